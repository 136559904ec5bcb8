// Package docker runs components as containers of the host's Docker engine. It is the
// adapter of package runtime for the runtime docker: it turns the settings of a signed
// manifest into a container, and finds its own containers again by their labels, so that it
// keeps no state of its own. DESIGN.md has the settings and the rules.
package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/runtimes"
)

// Name is the runtime's name in manifests.
const Name = "docker"

// Labels of the containers that Muster creates. Versions of the agent read those of others,
// so they never change.
const (
	labelPrefix    = runtimes.LabelPrefix
	labelComponent = labelPrefix + "component" // the component's name
	labelHome      = labelPrefix + "home"      // the home of the release, absolute
	labelVersion   = labelPrefix + "version"   // for people
)

// asideSuffix ends the name of the container that Install sets aside for Restore.
const asideSuffix = runtimes.AsideSuffix

// Options are what an adapter depends on. The zero value is the engine of the host.
type Options struct {
	// Host is the address of the engine; empty: the system's usual socket.
	Host string
	// Disk is where Backup writes, and where mounted paths and other versions are; nil: the
	// system's.
	Disk disk.Disk
	// Hook is called before each request to the engine, and its error ends the request. nil:
	// none. Tests kill an agent with it.
	Hook func(*http.Request) error
}

// Adapter runs components as containers. It is safe for concurrent use.
type Adapter struct {
	engine *client.Client
	disk   disk.Disk
	// local means that the engine sees this host's files and ports.
	local bool
	// program is the engine's, by which a host that has one is known while it is stopped.
	program string
	// met means that the engine has answered.
	met atomic.Bool
}

var _ runtime.Adapter = (*Adapter)(nil)

// New returns an adapter. It does not connect yet, since most hosts have no engine.
func New(o Options) (*Adapter, error) {
	if o.Host == "" {
		o.Host = client.DefaultDockerHost
	}
	if o.Disk == nil {
		o.Disk = disk.OS{}
	}
	opts := []client.Opt{client.WithHost(o.Host)}
	if o.Hook != nil {
		opts = append(opts, client.WithHTTPRequestHook(o.Hook))
	}
	engine, err := client.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("docker engine %s: %w", o.Host, err)
	}
	local := strings.HasPrefix(o.Host, "unix:") || strings.HasPrefix(o.Host, "npipe:")
	return &Adapter{engine: engine, disk: o.Disk, local: local, program: "dockerd"}, nil
}

// Close closes idle connections to the engine.
func (a *Adapter) Close() error { return a.engine.Close() }

const (
	// stoppingWait is how long an engine that reports an error of its own is watched: one
	// that stops closes its socket only after it has stopped its containers.
	stoppingWait = time.Second
	stoppingPoll = 100 * time.Millisecond
)

// explain adds what was asked of the engine to an error, and runtime.ErrTransient if the
// engine is stopped, stops, or starts: then the release has no part in the error.
func (a *Adapter) explain(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case isGone(err), errdefs.IsInternal(err) && a.isStopping(ctx):
		return errAway(what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// refuses reports whether the engine and this client have no version of the API in common. An engine that starts
// refuses the client's newest version too, and is about to say which one it has.
func (a *Adapter) refuses(ctx context.Context) bool {
	_, err := a.engine.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	return errdefs.IsInvalidArgument(err)
}

// errAway is the error of a call to an engine that is stopped, stops, or starts.
func errAway(what string, err error) error {
	return fmt.Errorf("%s: the Docker engine is away, %w: %w", what, runtime.ErrTransient, err)
}

// isStopping reports whether the engine ends within stoppingWait.
func (a *Adapter) isStopping(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, stoppingWait)
	defer cancel()
	for {
		if _, err := a.engine.Ping(ctx, client.PingOptions{}); err != nil && isGone(err) {
			return true
		}
		select {
		case <-time.After(stoppingPoll):
		case <-ctx.Done():
			return false
		}
	}
}

// goneTexts are in errors of an engine that stops or starts: it answers, but its containerd
// does not, or the client has not learned the version of its API.
var goneTexts = []string{"transport is closing", "ttrpc: closed", "containerd.sock", "client version", "server is shutting down"}

func isGone(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	for _, lost := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, lost) {
			return true
		}
	}
	for _, text := range goneTexts {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return client.IsErrConnectionFailed(err) || errdefs.IsUnavailable(err)
}

// found is a container as the engine describes it.
type found struct {
	container.InspectResponse
	raw []byte
}

// find returns the container with a name, or nil. Everything else is done by its id, so
// that it cannot hit a container that got the name in the meantime.
func (a *Adapter) find(ctx context.Context, name string) (*found, error) {
	answer, err := a.engine.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	if errdefs.IsNotFound(err) {
		return nil, nil //nolint:nilnil // no container is an answer
	}
	switch {
	case err == nil:
	case errdefs.IsInvalidArgument(err) && a.refuses(ctx):
		return nil, fmt.Errorf("look for container %s: %w: %w", name, runtime.ErrRefused, err)
	default:
		return nil, a.explain(ctx, "look for container "+name, err)
	}
	c := &found{InspectResponse: answer.Container, raw: answer.Raw}
	// The engine also finds containers whose id begins with the name.
	if strings.TrimPrefix(c.Name, "/") != name {
		return nil, nil //nolint:nilnil // no container is an answer
	}
	if c.State == nil || c.Config == nil || c.HostConfig == nil {
		return nil, fmt.Errorf("look for container %s: the engine's answer lacks its state or configuration", name)
	}
	return c, nil
}

// isOf reports whether labels are those of a container that this agent created for the
// component.
func isOf(labels map[string]string, r *runtime.Release) bool {
	return labels[labelComponent] == r.Name && strings.HasPrefix(labels[labelHome], r.Dir+string(filepath.Separator))
}

// of reports whether the container is the component's, in any version.
func (c *found) of(r *runtime.Release) bool { return isOf(c.Config.Labels, r) }

// is reports whether the container is that of the release.
func (c *found) is(r *runtime.Release) bool {
	return c != nil && c.of(r) && c.Config.Labels[labelHome] == r.Home
}

// ends reports whether the engine removes the container, or has failed to remove it. Such a
// container cannot be started or changed any more.
func (c *found) ends() bool {
	return c.State.Dead || c.State.Status == container.StateDead || c.State.Status == container.StateRemoving
}

// serves reports whether the container is that of the release, and can still be started.
func (c *found) serves(r *runtime.Release) bool { return c.is(r) && !c.ends() }

// errForeign returns an error unless the container may be replaced: it is the component's,
// or the manifest adopts it.
func (c *found) errForeign(s *settings, r *runtime.Release) error {
	if c == nil || c.of(r) || s.Adopt {
		return nil
	}
	name := strings.TrimPrefix(c.Name, "/")
	if other := c.Config.Labels[labelComponent]; other != "" {
		return fmt.Errorf("container %s is that of component %s in %s: remove it, or choose another name in the setting container", name, other, filepath.Dir(c.Config.Labels[labelHome]))
	}
	return fmt.Errorf("container %s exists and Muster has not created it: rename or remove it, or have the manifest say adopt: true to replace it", name)
}

// remove kills and removes a container. Volumes stay. What the engine cannot remove, such as a
// container whose files are in use, gives up its name, and the engine removes it when it starts again.
func (a *Adapter) remove(ctx context.Context, id, name string) error {
	_, err := a.engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true})
	if errdefs.IsConflict(err) && await(ctx, func() bool {
		_, err := a.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		return errdefs.IsNotFound(err)
	}) {
		return nil
	}
	if err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	err = a.explain(ctx, "remove container "+name, err)
	if errors.Is(err, runtime.ErrTransient) || ctx.Err() != nil {
		return err
	}
	answer, lost := a.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if errdefs.IsNotFound(lost) {
		return nil
	}
	c := &found{InspectResponse: answer.Container}
	if lost != nil || c.State == nil || !c.ends() {
		return err
	}
	if strings.Contains(c.Name, deadSuffix) {
		return nil // it has no name that anything needs
	}
	if unnamed := a.rename(ctx, c, strings.TrimPrefix(c.Name, "/")+deadSuffix+id[:min(len(id), shortID)]); unnamed != nil {
		return fmt.Errorf("%w, %w: %w", err, runtime.ErrTransient, unnamed)
	}
	return nil
}

const (
	// deadSuffix follows the name that a container had which cannot be removed, before its id.
	deadSuffix = ".dead-"
	// shortID is the length of ids as docker ps shows them.
	shortID = 12
)

const (
	// pendingWait bounds how long the engine may take for what an agent that was killed has
	// asked of it.
	pendingWait = 5 * time.Second
	pendingPoll = 50 * time.Millisecond
)

// await waits for the end of a request that conflicts with the same one of an agent that was
// killed: the engine completes what it has begun.
func await(ctx context.Context, done func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, pendingWait)
	defer cancel()
	for !done() {
		select {
		case <-time.After(pendingPoll):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// exists reports whether a path is on the host.
func (a *Adapter) exists(path string) (bool, error) {
	_, err := a.disk.Lstat("component", path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
