package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/muster-fleet/muster/agent/runtime"
)

const (
	// maxLogBytes bounds the output that Logs holds in memory.
	maxLogBytes = 1 << 20
	// terminated is the exit status of a container whose program a SIGTERM has ended, as of docker stop.
	terminated = 128 + 15
	// maxMessageBytes bounds what a health check has printed, in Status.
	maxMessageBytes = 300
)

// Status returns what the component's container does.
func (a *Adapter) Status(ctx context.Context, r *runtime.Release) (runtime.Status, error) {
	s, err := parse(r)
	if err != nil {
		return runtime.Status{}, err
	}
	c, err := a.find(ctx, s.Container)
	if err != nil || c == nil {
		return runtime.Status{}, err
	}
	if err := c.errForeign(s, r); err != nil {
		return runtime.Status{Message: err.Error()}, nil
	}
	return status(&c.InspectResponse), nil
}

// status is that of a container. One that waits for its next restart runs, as the engine
// says too, since it must be stopped.
func status(c *container.InspectResponse) runtime.Status {
	st := c.State
	out := runtime.Status{Home: c.Config.Labels[labelHome], Restarts: c.RestartCount, Running: st.Running}
	var ended string
	switch {
	case st.Error != "":
		ended = st.Error
	case st.OOMKilled:
		ended = "it was killed because it had no memory left"
	case st.Status == container.StateCreated:
		ended = "it was never started"
	default:
		ended = fmt.Sprintf("it ended with status %d", st.ExitCode)
	}
	switch {
	case st.Status == container.StateRemoving:
		ended = "the engine is removing it"
	case st.Dead || st.Status == container.StateDead:
		ended = "the engine could not remove it (dead)"
	}
	if !st.Running {
		// Under these policies the engine starts it again unless somebody has stopped it.
		policy := c.HostConfig.RestartPolicy
		orderly := policy.IsAlways() || policy.IsUnlessStopped() || st.ExitCode == 0 || st.ExitCode == terminated
		out.Stopped = orderly && st.Status == container.StateExited && st.Error == "" && !st.OOMKilled
		out.Message = ended
		return out
	}
	out.PID = st.Pid
	out.Since, _ = time.Parse(time.RFC3339Nano, st.StartedAt)
	switch {
	case st.Restarting:
		out.Ended, out.Message = ended, ended+", and is restarted"
	case st.Paused:
		out.Message = "it is paused"
	case st.Health == nil || st.Health.Status == container.NoHealthcheck || st.Health.Status == "":
		out.Ready = true
	default:
		out.Ready = st.Health.Status == container.Healthy
		if !out.Ready {
			out.Message = fmt.Sprintf("its health check says %s", st.Health.Status)
		}
		if n := len(st.Health.Log); n > 0 && !out.Ready {
			text := strings.TrimSpace(st.Health.Log[n-1].Output)
			out.Message += ": " + text[:min(len(text), maxMessageBytes)]
		}
	}
	return out
}

// Stop stops the container and waits for its end. All its processes end with the first one.
func (a *Adapter) Stop(ctx context.Context, r *runtime.Release) error {
	s, err := parse(r)
	if err != nil {
		return err
	}
	c, err := a.find(ctx, s.Container)
	if err != nil || c == nil || c.errForeign(s, r) != nil {
		return err // a container of somebody else is not the component
	}
	return a.stop(ctx, c, r)
}

// stop also keeps the engine from starting the container before Start does. That comes
// first, since whoever finds a stopped container does not stop it again.
func (a *Adapter) stop(ctx context.Context, c *found, r *runtime.Release) error {
	if c.ends() {
		return nil // nothing starts it any more
	}
	var unset error
	if c.of(r) {
		unset = a.setRestart(ctx, c, stays)
	}
	if c.State.Running {
		if _, err := a.engine.ContainerStop(ctx, c.ID, client.ContainerStopOptions{}); err != nil && !errdefs.IsNotFound(err) {
			return a.explain(ctx, "stop container "+strings.TrimPrefix(c.Name, "/"), err)
		}
	}
	if unset == nil {
		return nil
	}
	// The engine cannot change a container that ends at that moment.
	return a.setRestart(ctx, c, stays)
}

func (a *Adapter) setRestart(ctx context.Context, c *found, policy container.RestartPolicy) error {
	if c.HostConfig.RestartPolicy == policy {
		return nil
	}
	_, err := a.engine.ContainerUpdate(ctx, c.ID, client.ContainerUpdateOptions{RestartPolicy: &policy})
	return a.explain(ctx, "set the restart policy of container "+strings.TrimPrefix(c.Name, "/"), err)
}

// Start starts the container of the installed release.
func (a *Adapter) Start(ctx context.Context, r *runtime.Release) error {
	s, err := parse(r)
	if err != nil {
		return err
	}
	c, err := a.find(ctx, s.Container)
	if err != nil {
		return err
	}
	if !c.is(r) {
		return fmt.Errorf("start container %s: it is not that of version %s: install it first", s.Container, r.Identity)
	}
	if c, err = a.replaceEnding(ctx, c, r, s); err != nil {
		return err
	}
	if err := r.LetStart(a.disk); err != nil {
		return err
	}
	// First, since whoever finds a running container does not start it again.
	if err := a.setRestart(ctx, c, s.restart()); err != nil {
		return err
	}
	if c.State.Paused {
		_, err = a.engine.ContainerUnpause(ctx, c.ID, client.ContainerUnpauseOptions{})
		return a.explain(ctx, "continue the paused container "+s.Container, err)
	}
	if c.State.Running {
		return nil
	}
	if err := a.checkBinds(s, nil); err != nil {
		return err
	}
	_, err = a.engine.ContainerStart(ctx, c.ID, client.ContainerStartOptions{})
	return a.explain(ctx, "start container "+s.Container, err)
}

// replaceEnding returns the container, or a new one of the release in its place if it ends.
func (a *Adapter) replaceEnding(ctx context.Context, c *found, r *runtime.Release, s *settings) (*found, error) {
	if !c.ends() {
		return c, nil
	}
	if err := a.remove(ctx, c.ID, s.Container); err != nil {
		return nil, err
	}
	if err := a.create(ctx, r, s); err != nil {
		return nil, err
	}
	c, err := a.find(ctx, s.Container)
	if err == nil && !c.serves(r) {
		err = fmt.Errorf("create container %s again: another container has the name", s.Container)
	}
	return c, err
}

// ReloadDaemon does nothing: the engine has no definitions in files.
func (*Adapter) ReloadDaemon(context.Context, *runtime.Release) error { return nil }

// Reload sends the reload signal to the container's first process.
func (a *Adapter) Reload(ctx context.Context, r *runtime.Release) error {
	s, err := parse(r)
	if err != nil {
		return err
	}
	c, err := a.find(ctx, s.Container)
	if err != nil {
		return err
	}
	if !c.is(r) || !c.State.Running {
		return fmt.Errorf("reload container %s: version %s does not run", s.Container, r.Identity)
	}
	_, err = a.engine.ContainerKill(ctx, c.ID, client.ContainerKillOptions{Signal: s.ReloadSignal})
	return a.explain(ctx, "send "+s.ReloadSignal+" to container "+s.Container, err)
}

// Logs returns the last lines of both outputs, as far as the engine keeps them.
func (a *Adapter) Logs(ctx context.Context, r *runtime.Release, lines int) ([]string, error) {
	s, err := parse(r)
	if err != nil {
		return nil, err
	}
	c, err := a.find(ctx, s.Container)
	if err != nil || c == nil || lines <= 0 || c.errForeign(s, r) != nil {
		return nil, err
	}
	stream, err := a.engine.ContainerLogs(ctx, c.ID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: strconv.Itoa(lines)})
	if err != nil {
		return nil, a.explain(ctx, "read the output of container "+s.Container, err)
	}
	defer stream.Close()
	var out tail
	if c.Config.Tty {
		_, err = io.Copy(&out, stream)
	} else {
		_, err = stdcopy.StdCopy(&out, &out, stream)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, a.explain(ctx, "read the output of container "+s.Container, err)
	}
	return out.lines(lines), nil
}

// tail holds the last maxLogBytes that were written to it.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - maxLogBytes; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

func (t *tail) lines(n int) []string {
	text := bytes.TrimSuffix(t.text, []byte("\n"))
	if len(text) == 0 {
		return nil
	}
	all := strings.Split(string(text), "\n")
	return all[max(0, len(all)-n):]
}
