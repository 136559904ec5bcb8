package upgrade

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/services"
	"github.com/muster-fleet/muster/packaging/host/launch"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	// watcherReadyLine is what a watcher prints once it watches.
	watcherReadyLine = "watching"
	// watcherStop is how long a watcher may take to exit before it is killed. It
	// has nothing to finish while it only watches.
	watcherStop = 5 * time.Second
)

// Programs implements [Watchers] with processes and services.
type Programs struct {
	// Service is the name of the agent's service, or empty.
	Service string
}

var _ Watchers = Programs{}

// MarkerVersion runs `<path> --marker-version`.
func (Programs) MarkerVersion(ctx context.Context, path string) (int, error) {
	cmd := exec.CommandContext(ctx, path, "--marker-version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%s --marker-version: %w", path, err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return 0, fmt.Errorf("%s --marker-version: answered %q, want a number", path, strings.TrimSpace(string(out)))
	}
	return n, nil
}

// Startable runs `<path> version` and returns an error unless it exits with 0.
func (Programs) Startable(ctx context.Context, path string) error {
	cmd := exec.CommandContext(ctx, path, "version")
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s version: %w (%.200q)", path, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// CheckStart is [probe.CheckStart] with an error that is [request.ErrSettings].
func (Programs) CheckStart(ctx context.Context, path, top string) error {
	if err := probe.CheckStart(ctx, path, top); err != nil {
		return fmt.Errorf("%w: %w", request.ErrSettings, err)
	}
	return nil
}

// ErrNothingToWatch is returned if a watcher exits at once, because there is no marker
// or another watcher runs.
var ErrNothingToWatch = errors.New("it exited at once")

// Start starts the watcher's own unit if systemd has one, so that stopping or
// restarting the agent's service does not stop the watcher. Otherwise it runs
// `<path> --top <top>` in a new session. It returns when the watcher watches.
func (p Programs) Start(ctx context.Context, path, top string) (Watcher, error) {
	if p.Service != "" {
		w, err := services.StartWatcher(ctx, p.Service)
		switch {
		case err == nil:
			return w, nil
		case errors.Is(err, services.ErrNothingToWatch):
			return nil, fmt.Errorf("%w: %w", ErrNothingToWatch, err)
		case !errors.Is(err, services.ErrNoUnit):
			return nil, err
		}
	}
	return startProcess(ctx, path, top)
}

// startProcess starts the watcher and waits for its line "watching".
func startProcess(ctx context.Context, path, top string) (Watcher, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command(path, "--top", top)
	// Standard error is discarded: the watcher logs to a file, and a pipe would
	// break with this process.
	cmd.Stdout = w
	cmd.Dir = top
	err = launch.Detached(cmd)
	w.Close()
	if err != nil {
		return nil, err
	}
	p := &program{cmd: cmd, gone: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.gone)
	}()
	if err := p.ready(ctx, r); err != nil {
		return nil, errors.Join(err, p.Stop(context.WithoutCancel(ctx)))
	}
	return p, nil
}

type program struct {
	cmd  *exec.Cmd
	gone chan struct{}
	err  error // of Wait, set before gone is closed
}

func (p *program) ready(ctx context.Context, r *os.File) error {
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(r).ReadString('\n') // "" if it exits without a line
		line <- strings.TrimSpace(text)
	}()
	select {
	case text := <-line:
		if text == watcherReadyLine {
			return nil
		}
		return fmt.Errorf("%s: %w, saying %q (see data/watcher.log)", p.cmd.Path, ErrNothingToWatch, text)
	case <-ctx.Done():
		// The caller closes the pipe, which ends the goroutine above.
		return fmt.Errorf("%s: did not print %q in time: %w", p.cmd.Path, watcherReadyLine, context.Cause(ctx))
	}
}

// PID returns the watcher's process id.
func (p *program) PID() int { return p.cmd.Process.Pid }

// Stop terminates the watcher, and kills it if it does not exit in time, or before ctx
// ends.
func (p *program) Stop(ctx context.Context) error {
	err := terminate(p.cmd.Process)
	if errors.Is(err, os.ErrProcessDone) {
		<-p.gone
		return nil
	}
	select {
	case <-p.gone:
		return nil
	case <-time.After(watcherStop):
	case <-ctx.Done():
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.gone
	return nil
}
