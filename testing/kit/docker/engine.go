//go:build linux

// Package docker starts real Docker engines for tests, each with its own files and socket,
// and without any network of its own: containers have none, or the host's. It also makes
// the images for them, from one static program, and runs a registry. It needs root and
// dockerd.
package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/muster-fleet/muster/testing/kit/child"
	"github.com/muster-fleet/muster/testing/kit/require"
)

const (
	// startTimeout bounds a start, which takes a second on an idle machine.
	startTimeout = time.Minute
	// stopTimeout bounds an orderly end. The engine gives its containers shutdownTimeout.
	stopTimeout = 30 * time.Second
	// shutdownTimeout is in seconds. No program of a test takes longer to end.
	shutdownTimeout = "5"
	// logTail is how many bytes of the log an error shows.
	logTail = 4 << 10

	poll = 20 * time.Millisecond
)

// Engine is a Docker engine, running or not. It keeps its containers and images when it is
// started again. It is not safe for concurrent use.
type Engine struct {
	// Host is the address of its socket.
	Host string

	dir    string
	client *client.Client
	made   map[string]string // images by what they are made from

	cmd  *exec.Cmd // nil while it does not run
	done <-chan struct{}
}

// Needs requires what an engine needs.
func Needs(t testing.TB) {
	t.Helper()
	require.Root(t)
	require.Program(t, "dockerd")
}

// Start starts an engine that the test may stop and that ends with the test.
func Start(t testing.TB) *Engine {
	t.Helper()
	Needs(t)
	e, err := New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of the engine ends:\n%s", e.log())
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// New starts an engine. ctx bounds the start, not the engine. The caller must close it.
func New(ctx context.Context) (*Engine, error) {
	// The names of sockets are limited to 104 bytes.
	dir, err := os.MkdirTemp("", "muster-docker-")
	if err != nil {
		return nil, err
	}
	e := &Engine{Host: "unix://" + filepath.Join(dir, "socket"), dir: dir, made: map[string]string{}}
	if e.client, err = client.New(client.WithHost(e.Host)); err == nil {
		err = e.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Client returns a client of the engine, which lives as long as the engine.
func (e *Engine) Client() *client.Client { return e.client }

func (e *Engine) path(name string) string { return filepath.Join(e.dir, name) }

func (e *Engine) log() string {
	text, _ := os.ReadFile(e.path("log"))
	return string(text[max(0, len(text)-logTail):])
}

// Start starts the engine, and returns when it answers.
func (e *Engine) Start(ctx context.Context) error {
	if e.cmd != nil {
		return errors.New("the engine runs")
	}
	if err := e.launch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		_, err := e.client.Ping(ctx, client.PingOptions{})
		if err == nil {
			return nil
		}
		select {
		case <-time.After(poll):
			continue
		case <-e.done:
			err = errors.New("it has ended")
		case <-ctx.Done():
		}
		return fmt.Errorf("start a Docker engine: %w; its log ends:\n%s", errors.Join(err, e.end(syscall.SIGKILL)), e.log())
	}
}

func (e *Engine) launch() error {
	log, err := os.OpenFile(e.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command("dockerd", "--host", e.Host, "--data-root", e.path("data"), "--exec-root", e.path("exec"), "--pidfile", e.path("pid"),
		"--iptables=false", "--ip6tables=false", "--bridge=none", "--shutdown-timeout", shutdownTimeout)
	c.Stdout, c.Stderr = log, log
	// SIGTERM, so that the engine ends its containers too if the test is killed.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	ended, err := child.Start(c, nil)
	if err == nil {
		e.cmd, e.done = c, ended
	}
	return err
}

// Stop stops the engine as the service manager does. Its containers end.
func (e *Engine) Stop() error { return e.end(syscall.SIGTERM) }

func (e *Engine) end(s syscall.Signal) error {
	if e.cmd == nil {
		return nil
	}
	if err := e.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-e.done:
	case <-time.After(stopTimeout):
		return fmt.Errorf("the engine (process %d) does not end; its log ends:\n%s", e.cmd.Process.Pid, e.log())
	}
	e.cmd = nil
	return e.client.Close() // its connections have ended
}

// PowerCut kills the engine and all that it has started, as the end of the host's power does. The
// engine records nothing of it.
func (e *Engine) PowerCut() error {
	if err := e.end(syscall.SIGKILL); err != nil {
		return err
	}
	for deadline := time.Now().Add(stopTimeout); ; time.Sleep(poll) {
		left, err := e.processes()
		if err != nil || len(left) == 0 {
			// A host has them in memory.
			return errors.Join(err, e.unmount(), os.RemoveAll(e.path("exec")), os.RemoveAll(e.path("pid")))
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the engine's processes %v do not end", left)
		}
		for _, pid := range left {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
	}
}

// processes returns what an engine that has ended has left: its containerd, and the shims of its
// containers, which have its folder in their arguments, and their children.
func (e *Engine) processes() ([]int, error) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var own []int
	parents := map[int]int{}
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		if strings.Contains(string(text), e.dir+"/") {
			own = append(own, pid)
		}
		// pid (name) state parent
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "stat"))
		if _, rest, ok := strings.Cut(string(stat), ") "); ok {
			if f := strings.Fields(rest); len(f) > 1 && f[0] != "Z" {
				parents[pid], _ = strconv.Atoi(f[1])
			}
		}
	}
	for pid, parent := range parents {
		if slices.Contains(own, parent) && !slices.Contains(own, pid) {
			own = append(own, pid)
		}
	}
	return own, nil
}

// Close removes all containers, stops the engine and removes its files.
func (e *Engine) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	var errs []error
	if e.cmd == nil && e.client != nil {
		errs = append(errs, e.Start(ctx)) // its containers may run on
	}
	if e.cmd != nil {
		errs = append(errs, e.Clear(ctx))
	}
	errs = append(errs, e.end(syscall.SIGTERM))
	return errors.Join(append(errs, e.unmount(), os.RemoveAll(e.dir))...)
}

// unmount removes the mounts that engines leave: that of their network namespace, and those
// of containers that ran when they were killed.
func (e *Engine) unmount() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], e.dir+"/") {
			if err := syscall.Unmount(f[4], syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) { // one above it was detached
				errs = append(errs, fmt.Errorf("unmount %s: %w", f[4], err))
			}
		}
	}
	return errors.Join(errs...)
}

// Clear removes all containers and the networks that a test has created.
func (e *Engine) Clear(ctx context.Context) error {
	list, err := e.client.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list.Items {
		_, err := e.client.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		errs = append(errs, err)
	}
	networks, err := e.client.NetworkList(ctx, client.NetworkListOptions{})
	errs = append(errs, err)
	for _, n := range networks.Items {
		if n.Driver == "bridge" {
			_, err := e.client.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Names returns the names of all containers, in no order.
func (e *Engine) Names(ctx context.Context) ([]string, error) {
	list, err := e.client.ContainerList(ctx, client.ContainerListOptions{All: true})
	var names []string
	for _, c := range list.Items {
		for _, name := range c.Names {
			names = append(names, strings.TrimPrefix(name, "/"))
		}
	}
	return names, err
}
