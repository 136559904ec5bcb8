package docker

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/pkg/runtimes"
)

// settings are those of a component in its signed manifest.
type settings struct{ runtimes.Docker }

// parse returns the settings of a release with their defaults.
func parse(r *runtime.Release) (*settings, error) {
	var s settings
	if err := r.DecodeSettings(&s.Docker); err != nil {
		return nil, err
	}
	s.Container = cmp.Or(s.Container, r.Name)
	return &s, nil
}

// restart returns when the engine restarts the container by itself.
func (s *settings) restart() container.RestartPolicy {
	return container.RestartPolicy{Name: container.RestartPolicyMode(s.RestartPolicy), MaximumRetryCount: s.RestartTimes}
}

// config returns the container of a release. imageID is that of its verified image.
//
// The container does not restart by itself until Start says so: an engine that starts between
// Install and Start would otherwise run it without its configuration files.
func (s *settings) config(r *runtime.Release, imageID string) (*container.Config, *container.HostConfig) {
	seconds := int(s.StopAfter / time.Second)
	c := &container.Config{
		Image:       imageID,
		User:        s.User,
		Entrypoint:  s.Command,
		Cmd:         s.Args,
		StopTimeout: &seconds,
		Labels:      map[string]string{},
	}
	maps.Copy(c.Labels, s.Labels)
	c.Labels[labelComponent], c.Labels[labelHome], c.Labels[labelVersion] = r.Name, r.Home, r.FullVersion()
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		c.Env = append(c.Env, name+"="+s.Env[name])
	}
	h := &container.HostConfig{
		NetworkMode:    container.NetworkMode(s.Network),
		RestartPolicy:  stays,
		CapAdd:         s.CapAdd,
		CapDrop:        s.CapDrop,
		ReadonlyRootfs: s.ReadOnly,
	}
	h.Memory, h.NanoCPUs = s.MemoryBytes, int64(s.CPUs*1e9)
	if len(s.Ports) > 0 {
		c.ExposedPorts, h.PortBindings = network.PortSet{}, network.PortMap{}
	}
	for _, p := range s.Ports {
		inside, _ := network.PortFrom(p.Container, network.IPProtocol(p.ProtocolOf()))
		c.ExposedPorts[inside] = struct{}{}
		h.PortBindings[inside] = append(h.PortBindings[inside], network.PortBinding{HostIP: p.Addr(), HostPort: strconv.Itoa(int(p.Host))})
	}
	for _, m := range s.Mounts {
		if m.Source == "" {
			if h.Tmpfs == nil {
				h.Tmpfs = map[string]string{}
			}
			h.Tmpfs[m.Target] = ""
			continue
		}
		// As Binds, since Mounts need their sources when the container is created, and the
		// configuration files are written after that. Start checks them.
		bind := m.Source + ":" + m.Target
		if m.ReadOnly {
			bind += ":ro"
		}
		h.Binds = append(h.Binds, bind)
	}
	if r.WithheldAtBoot {
		h.Mounts = append(h.Mounts, startedMount(r))
	}
	return c, h
}

// stays is the restart policy of a container that is not to run.
var stays = container.RestartPolicy{Name: container.RestartPolicyDisabled}
