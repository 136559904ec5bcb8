package runtimes

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/docker/go-units"
	"github.com/opencontainers/go-digest"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

const (
	// AsideSuffix ends the name of the container that an upgrade sets aside.
	AsideSuffix = ".bak"
	// LabelPrefix begins the labels that Muster gives to containers.
	LabelPrefix = "muster."
	// minMemory is the least that the engine accepts.
	minMemory = 6 << 20
)

// Docker are the settings of the runtime docker. There is no privileged: cap_add names each
// right.
type Docker struct {
	// Image is <repository>@sha256:<digest>: the digest of the manifest in the registry or,
	// for an image that was loaded on the host, its id.
	Image string `json:"image"`
	// Container is the container's name; empty: the component's.
	Container string `json:"container,omitempty"`
	// Adopt allows the first installation to replace a container that Muster did not
	// create. It hands the name, and the name with .bak, to Muster.
	Adopt bool `json:"adopt,omitempty"`
	// Command replaces the image's ENTRYPOINT, and Args its CMD.
	Command []string `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`

	Env    map[string]string `json:"env,omitempty"`
	Ports  []Port            `json:"ports,omitempty"`
	Mounts []Mount           `json:"mounts,omitempty"`
	// Network is none, host, bridge, or the name of a network; empty: the engine's default.
	Network string `json:"network,omitempty"`
	// User is user[:group]; empty: the image's.
	User string `json:"user,omitempty"`
	// Restart is no, always, unless-stopped, on-failure or on-failure:<times>; empty:
	// unless-stopped.
	Restart string `json:"restart,omitempty"`
	// StopTimeout is how long the program has after SIGTERM, such as 30s.
	StopTimeout string `json:"stop_timeout,omitempty"`
	// ReloadSignal has the program read its configuration; empty: SIGHUP.
	ReloadSignal string   `json:"reload_signal,omitempty"`
	CapDrop      []string `json:"cap_drop,omitempty"`
	CapAdd       []string `json:"cap_add,omitempty"`
	// ReadOnly makes the container's own file system read-only.
	ReadOnly bool `json:"read_only,omitempty"`
	// Memory is a limit such as 512m, CPUs one such as 1.5.
	Memory string            `json:"memory,omitempty"`
	CPUs   float64           `json:"cpus,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`

	// What is parsed of the others.
	Digest        digest.Digest `json:"-"`
	RestartPolicy string        `json:"-"`
	RestartTimes  int           `json:"-"`
	StopAfter     time.Duration `json:"-"`
	MemoryBytes   int64         `json:"-"`
}

// Port is published on the host.
type Port struct {
	Host      uint16 `json:"host"`
	Container uint16 `json:"container"`
	// Address is the host's; empty: all of them.
	Address string `json:"address,omitempty"`
	// Protocol is tcp, udp or sctp; empty: tcp.
	Protocol string `json:"protocol,omitempty"`
}

// ProtocolOf returns the protocol or its default.
func (p Port) ProtocolOf() string { return cmp.Or(p.Protocol, "tcp") }

// Addr returns the address, the zero Addr for all of them.
func (p Port) Addr() netip.Addr {
	addr, _ := netip.ParseAddr(p.Address)
	return addr
}

// String returns the port of the host, such as 8080/tcp.
func (p Port) String() string { return fmt.Sprintf("%d/%s", p.Host, p.ProtocolOf()) }

// Mount is a file or folder of the host, a volume, or a file system in memory.
type Mount struct {
	// Source is an absolute path of the host or the name of a volume; empty: a file system
	// in memory.
	Source   string `json:"source,omitempty"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// IsBind reports whether the source is a path of the host.
func (m Mount) IsBind() bool { return path.IsAbs(m.Source) }

var (
	nameForm    = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{1,127}$`)
	networkForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)
	signalForm  = regexp.MustCompile(`^SIG[A-Z0-9+-]{1,12}$`)
	envForm     = regexp.MustCompile(`^[^=\x00\s]{1,256}$`)
	capForm     = regexp.MustCompile(`^(CAP_)?[A-Z_]{2,40}$`)
	userForm    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,31})?$`)
	restartForm = regexp.MustCompile(`^(no|always|unless-stopped|on-failure(:[1-9][0-9]{0,3})?)$`)
)

func (s *Docker) needs() []need { return nil }

func (s *Docker) complete(c *manifest.Component) error {
	var p problems
	bad := p.add
	s.ReloadSignal = cmp.Or(s.ReloadSignal, "SIGHUP")
	s.Restart = cmp.Or(s.Restart, "unless-stopped")
	if err := s.parseImage(); err != nil {
		bad("image", "is %q, want <repository>@sha256:<digest>: %v", s.Image, err)
	}
	if s.Container != "" && (!nameForm.MatchString(s.Container) || strings.HasSuffix(s.Container, AsideSuffix)) {
		bad("container", "is %q, want 2 to 128 letters, digits, dots, dashes and underscores that do not end in %s", s.Container, AsideSuffix)
	}
	for name := range s.Env {
		if !envForm.MatchString(name) {
			bad("env", "%q is no name of a variable", name)
		}
	}
	s.validatePorts(bad)
	s.validateMounts(bad)
	s.validateReload(c, bad)
	if s.Network != "" && !networkForm.MatchString(s.Network) {
		bad("network", "is %q, want none, host, bridge, or the name of a network", s.Network)
	}
	if s.User != "" && !userForm.MatchString(s.User) {
		bad("user", "is %q, want user or user:group, as names or numbers", s.User)
	}
	if !restartForm.MatchString(s.Restart) {
		bad("restart", "is %q, want unless-stopped, always, no, on-failure or on-failure:<times>", s.Restart)
	}
	policy, times, _ := strings.Cut(s.Restart, ":")
	s.RestartPolicy = policy
	s.RestartTimes, _ = strconv.Atoi(times)
	s.StopAfter = defaultStopTimeout
	if s.StopTimeout != "" {
		d, err := time.ParseDuration(s.StopTimeout)
		if err != nil || d < time.Second || d > maxStopTimeout || d%time.Second != 0 {
			bad("stop_timeout", "is %q, want whole seconds from 1s to %s", s.StopTimeout, maxStopTimeout)
		}
		s.StopAfter = d
	}
	if !signalForm.MatchString(s.ReloadSignal) {
		bad("reload_signal", "is %q, want a name such as SIGHUP", s.ReloadSignal)
	}
	for field, caps := range map[string][]string{"cap_drop": s.CapDrop, "cap_add": s.CapAdd} {
		for _, c := range caps {
			if !capForm.MatchString(c) {
				bad(field, "%q is no capability such as NET_BIND_SERVICE, nor ALL", c)
			}
		}
	}
	if s.Memory != "" {
		n, err := units.RAMInBytes(s.Memory)
		if err != nil || n < minMemory {
			bad("memory", "is %q, want at least 6m, such as 512m or 2g", s.Memory)
		}
		s.MemoryBytes = n
	}
	if s.CPUs < 0 || s.CPUs > 1024 || s.CPUs > 0 && s.CPUs < 0.01 {
		bad("cpus", "is %g, want from 0.01 to the number of the host's", s.CPUs)
	}
	for key := range s.Labels {
		if key == "" || strings.HasPrefix(key, LabelPrefix) {
			bad("labels", "%q: labels that begin with %s are Muster's own", key, LabelPrefix)
		}
	}
	return p.join()
}

// parseImage removes a tag beside the digest, which alone decides.
func (s *Docker) parseImage() error {
	named, err := reference.ParseNormalizedNamed(s.Image)
	if errors.Is(err, digest.ErrDigestUnsupported) {
		return errors.New("the digest is not SHA-256")
	}
	if err != nil {
		return err
	}
	digested, ok := named.(reference.Digested)
	if !ok {
		return errors.New("it has no digest, and whoever can write to the registry decides what a tag means")
	}
	if s.Digest = digested.Digest(); s.Digest.Algorithm() != digest.SHA256 {
		return fmt.Errorf("the digest is not SHA-256 but %s", s.Digest.Algorithm())
	}
	canonical, err := reference.WithDigest(reference.TrimNamed(named), s.Digest)
	if err != nil {
		return err
	}
	s.Image = canonical.String()
	return nil
}

func (s *Docker) validatePorts(bad func(field, format string, args ...any)) {
	if len(s.Ports) > 0 && (s.Network == "host" || s.Network == "none") {
		bad("ports", "have no effect with network: %s", s.Network)
	}
	for i, p := range s.Ports {
		field := fmt.Sprintf("ports[%d]", i)
		if p.Host == 0 || p.Container == 0 {
			bad(field, "lacks host or container, which are numbers from 1 to 65535")
		}
		if !slices.Contains([]string{"tcp", "udp", "sctp"}, p.ProtocolOf()) {
			bad(field+".protocol", "is %q, want tcp, udp or sctp", p.Protocol)
		}
		if _, err := netip.ParseAddr(p.Address); p.Address != "" && err != nil {
			bad(field+".address", "is %q, want an IP address of the host", p.Address)
		}
		for _, q := range s.Ports[:i] {
			if p.Collides(q.Addr(), q.Host, q.ProtocolOf()) {
				bad(field, "publishes %s, as another one does", p)
			}
		}
	}
}

// Collides reports whether the port cannot be published beside another one.
func (p Port) Collides(addr netip.Addr, number uint16, protocol string) bool {
	all := func(a netip.Addr) bool { return !a.IsValid() || a.IsUnspecified() }
	return p.Host == number && p.ProtocolOf() == protocol && (all(addr) || all(p.Addr()) || addr == p.Addr())
}

func (s *Docker) validateMounts(bad func(field, format string, args ...any)) {
	for i, m := range s.Mounts {
		field := fmt.Sprintf("mounts[%d].", i)
		// The engine's form separates the parts of a mount with colons.
		if !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target || m.Target == "/" || strings.ContainsAny(m.Target, ":\x00") {
			bad(field+"target", "is %q, want an absolute path in its shortest form, without colons", m.Target)
		}
		for _, n := range s.Mounts[:i] {
			if n.Target == m.Target {
				bad(field+"target", "%s occurs twice", m.Target)
			}
		}
		switch {
		case m.IsBind():
			if path.Clean(m.Source) != m.Source || m.Source == "/" || strings.ContainsAny(m.Source, ":\x00") {
				bad(field+"source", "is %q, want a path in its shortest form, without colons", m.Source)
			}
		case m.Source == "":
			if m.ReadOnly {
				bad(field+"read_only", "makes no sense without a source")
			}
		case !nameForm.MatchString(m.Source):
			bad(field+"source", "is %q, want an absolute path of the host or the name of a volume", m.Source)
		}
	}
}

// validateReload refuses to mount a configuration file that is to be reloaded: files are
// replaced, and a running container keeps the one that it was started with.
func (s *Docker) validateReload(c *manifest.Component, bad func(field, format string, args ...any)) {
	if !c.Reload {
		return
	}
	for i, m := range s.Mounts {
		if slices.ContainsFunc(c.ConfigFiles, func(f manifest.ConfigFile) bool { return f.Path == m.Source }) || slices.Contains(c.ServerFiles, m.Source) {
			bad(fmt.Sprintf("mounts[%d].source", i), "%s is a file, and the running container would not see a new one, so it cannot be reloaded: mount its folder", m.Source)
		}
	}
}
