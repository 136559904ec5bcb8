package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/runtimes"
)

// Check returns an error if the engine cannot run the release, as far as that can be known.
func (a *Adapter) Check(ctx context.Context, r *runtime.Release) error {
	s, err := parse(r)
	if err != nil {
		return err
	}
	version, err := a.reach(ctx)
	if err != nil {
		return err
	}
	for _, check := range []func() error{
		func() error { return a.checkNames(ctx, s, r) },
		func() error { return a.checkNetwork(ctx, s) },
		func() error { return a.checkBinds(s, &r.Component) },
		func() error { return a.checkPorts(ctx, s, r) },
		func() error { return r.CheckBoot(a.disk) },
		func() error {
			img, err := a.image(ctx, s)
			if err != nil || img == nil {
				return err // Verify checks it once it is here
			}
			return s.suits(img, version.Os, version.Arch)
		},
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// reach returns the engine's version.
func (a *Adapter) reach(ctx context.Context) (client.ServerVersionResult, error) {
	_, err := a.engine.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	var version client.ServerVersionResult
	if err == nil {
		version, err = a.engine.ServerVersion(ctx, client.ServerVersionOptions{})
	}
	if err == nil {
		a.met.Store(true)
	}
	if err == nil || ctx.Err() != nil {
		return version, err
	}
	remedy := "install Docker"
	switch {
	case strings.Contains(err.Error(), "permission denied"):
		remedy = "run the agent as root, or add its user to the group docker"
	case errdefs.IsInvalidArgument(err):
		remedy = "upgrade Docker"
	case isGone(err) && a.hasEngine():
		return version, errAway("ask for its version", fmt.Errorf("%w: if it was stopped, start it (systemctl start docker)", err))
	}
	return version, fmt.Errorf("no Docker engine at %s: %w: %w: %s", a.engine.DaemonHost(), runtime.ErrUnavailable, err, remedy)
}

// hasEngine reports whether this host has an engine, even if none answers now: it was stopped, is being
// upgraded, or starts after the agent does.
func (a *Adapter) hasEngine() bool {
	if !a.local || a.met.Load() {
		return true // somebody has named another machine's, or it has answered
	}
	if there, err := a.exists(strings.TrimPrefix(a.engine.DaemonHost(), "unix://")); err == nil && there {
		return true // systemd listens for it, or it was killed
	}
	_, err := exec.LookPath(a.program)
	return err == nil
}

// checkNames refuses a name that somebody else's container has, and a container that could
// not be put back.
func (a *Adapter) checkNames(ctx context.Context, s *settings, r *runtime.Release) error {
	for _, name := range []string{s.Container, s.Container + asideSuffix} {
		c, err := a.find(ctx, name)
		if err != nil {
			return err
		}
		if err := c.errForeign(s, r); err != nil {
			return err
		}
		if c == nil || c.of(r) {
			continue
		}
		if c.HostConfig.AutoRemove {
			return fmt.Errorf("container %s cannot be adopted: it was started with --rm, so it could not be put back", name)
		}
		if p := c.HostConfig.RestartPolicy; p.IsAlways() || p.IsOnFailure() {
			return fmt.Errorf("container %s cannot be adopted: with its restart policy %s the engine may start it beside the new one: docker update --restart unless-stopped %s", name, p.Name, name)
		}
	}
	return nil
}

func (a *Adapter) checkNetwork(ctx context.Context, s *settings) error {
	if slices.Contains([]string{"", network.NetworkNone, network.NetworkHost, network.NetworkDefault}, s.Network) {
		return nil
	}
	_, err := a.engine.NetworkInspect(ctx, s.Network, client.NetworkInspectOptions{})
	if errdefs.IsNotFound(err) {
		return fmt.Errorf("network %s does not exist: docker network create %s", s.Network, s.Network)
	}
	return a.explain(ctx, "look for network "+s.Network, err)
}

// checkBinds returns an error if a path that is mounted does not exist, since the engine
// would make a folder of it. The files of the component c are yet to be written.
func (a *Adapter) checkBinds(s *settings, c *manifest.Component) error {
	if !a.local {
		return nil
	}
	for i, m := range s.Mounts {
		if !m.IsBind() || c != nil && holdsConfig(m.Source, c) {
			continue
		}
		ok, err := a.exists(m.Source)
		if err != nil {
			return fmt.Errorf("mounts[%d].source: %w", i, err)
		}
		if !ok {
			return fmt.Errorf("mounts[%d].source: %s does not exist on this host: create it first", i, m.Source)
		}
	}
	return nil
}

// holdsConfig reports whether a path is that of a configuration file, or of a folder with one.
func holdsConfig(path string, c *manifest.Component) bool {
	is := func(file string) bool {
		return file == path || strings.HasPrefix(file, path+"/") || strings.TrimSuffix(file, "/") == path
	}
	return slices.ContainsFunc(c.ConfigFiles, func(f manifest.ConfigFile) bool { return is(f.Path) }) || slices.ContainsFunc(c.ServerFiles, is)
}

// checkPorts returns an error if a port is taken by another container, or by a program of
// the host.
func (a *Adapter) checkPorts(ctx context.Context, s *settings, r *runtime.Release) error {
	if len(s.Ports) == 0 {
		return nil
	}
	list, err := a.engine.ContainerList(ctx, client.ContainerListOptions{})
	if err != nil {
		return a.explain(ctx, "list the containers for their ports", err)
	}
	for i, p := range s.Ports {
		taken := func(c container.Summary) bool {
			return slices.ContainsFunc(c.Ports, func(q container.PortSummary) bool { return p.Collides(q.IP, q.PublicPort, q.Type) })
		}
		own := func(c container.Summary) bool {
			return isOf(c.Labels, r) || s.Adopt && slices.Contains(c.Names, "/"+s.Container)
		}
		if k := slices.IndexFunc(list.Items, taken); k >= 0 {
			if c := list.Items[k]; !own(c) {
				return fmt.Errorf("ports[%d]: %s is taken by container %s", i, p, strings.TrimPrefix(strings.Join(c.Names, ", "), "/"))
			}
			continue // the version before frees it
		}
		if a.local && isTaken(ctx, p) {
			return fmt.Errorf("ports[%d]: %s is taken by a program of this host", i, p)
		}
	}
	return nil
}

// isTaken reports whether a program of the host listens on the port. What cannot be known,
// such as without rights, is not taken.
func isTaken(ctx context.Context, p runtimes.Port) bool {
	address := p.Addr()
	if !address.IsValid() {
		address = netip.IPv4Unspecified()
	}
	at := net.JoinHostPort(address.String(), strconv.Itoa(int(p.Host)))
	var (
		l   interface{ Close() error }
		err error
		lc  net.ListenConfig
	)
	switch p.ProtocolOf() {
	case string(network.TCP):
		l, err = lc.Listen(ctx, "tcp", at)
	case string(network.UDP):
		l, err = lc.ListenPacket(ctx, "udp", at)
	default:
		return false
	}
	if err == nil {
		err = l.Close()
	}
	return errors.Is(err, syscall.EADDRINUSE)
}
