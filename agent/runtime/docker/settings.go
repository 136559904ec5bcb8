package docker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/docker/go-units"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/opencontainers/go-digest"

	"github.com/muster-fleet/muster/agent/runtime"
)

const (
	// maxStopTimeout leaves the rest of the minute that a stop may take to the engine.
	maxStopTimeout = 50 * time.Second
	// defaultStopTimeout is the engine's own.
	defaultStopTimeout = 10 * time.Second
	// minMemory is the least that the engine accepts.
	minMemory = 6 << 20
)

// settings are those of a component in its signed manifest. There is no privileged:
// cap_add names each right.
type settings struct {
	// Image is <repository>@sha256:<digest>: the digest of the manifest in the registry or,
	// for an image that was loaded on the host, its id.
	Image string `json:"image"`
	// Container is its name; empty: the component's.
	Container string `json:"container,omitempty"`
	// Adopt allows the first installation to replace a container that Muster did not
	// create. It hands the name, and the name with .bak, to Muster.
	Adopt bool `json:"adopt,omitempty"`
	// Command replaces the image's ENTRYPOINT, and Args its CMD.
	Command []string `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`

	Env    map[string]string `json:"env,omitempty"`
	Ports  []port            `json:"ports,omitempty"`
	Mounts []mount           `json:"mounts,omitempty"`
	// Network is none, host, bridge, or the name of a network; empty: the engine's default.
	Network string `json:"network,omitempty"`
	// User is user[:group]; empty: the image's.
	User string `json:"user,omitempty"`
	// Restart is no, always, unless-stopped, on-failure or on-failure:<times>; empty:
	// unless-stopped.
	Restart string `json:"restart,omitempty"`
	// StopTimeout is how long the program has after SIGTERM, such as 30s.
	StopTimeout string `json:"stop_timeout,omitempty"`
	// ReloadSignal tells the program to read its configuration; empty: SIGHUP.
	ReloadSignal string   `json:"reload_signal,omitempty"`
	CapDrop      []string `json:"cap_drop,omitempty"`
	CapAdd       []string `json:"cap_add,omitempty"`
	// ReadOnly makes the container's own file system read-only.
	ReadOnly bool `json:"read_only,omitempty"`
	// Memory is a limit such as 512m, CPUs one such as 1.5.
	Memory string            `json:"memory,omitempty"`
	CPUs   float64           `json:"cpus,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`

	// What validate has parsed.
	digest      digest.Digest
	restart     container.RestartPolicy
	stopTimeout time.Duration
	memory      int64
}

// port is published on the host.
type port struct {
	Host      uint16 `json:"host"`
	Container uint16 `json:"container"`
	// Address is the host's; empty: all of them.
	Address string `json:"address,omitempty"`
	// Protocol is tcp, udp or sctp; empty: tcp.
	Protocol string `json:"protocol,omitempty"`
}

func (p port) protocol() string { return cmp.Or(p.Protocol, string(network.TCP)) }

// address returns the address, the zero Addr for all of them.
func (p port) address() netip.Addr {
	addr, _ := netip.ParseAddr(p.Address)
	return addr
}

func (p port) String() string { return fmt.Sprintf("%d/%s", p.Host, p.protocol()) }

// mount is a file or folder of the host, a volume, or a file system in memory.
type mount struct {
	// Source is an absolute path of the host or the name of a volume; empty: a file system
	// in memory.
	Source   string `json:"source,omitempty"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

func (m mount) isBind() bool { return path.IsAbs(m.Source) }

var (
	nameForm    = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{1,127}$`)
	networkForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)
	signalForm  = regexp.MustCompile(`^SIG[A-Z0-9+-]{1,12}$`)
	envForm     = regexp.MustCompile(`^[^=\x00\s]{1,256}$`)
	capForm     = regexp.MustCompile(`^(CAP_)?[A-Z_]{2,40}$`)
	userForm    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,31})?$`)
	restartForm = regexp.MustCompile(`^(no|always|unless-stopped|on-failure(:[1-9][0-9]{0,3})?)$`)
)

// parse returns the settings of a release with their defaults.
func parse(r *runtime.Release) (*settings, error) {
	var s settings
	if err := r.DecodeSettings(&s); err != nil {
		return nil, err
	}
	s.Container = cmp.Or(s.Container, r.Name)
	s.ReloadSignal = cmp.Or(s.ReloadSignal, "SIGHUP")
	s.Restart = cmp.Or(s.Restart, string(container.RestartPolicyUnlessStopped))
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("settings of component %s: %w", r.Name, err)
	}
	return &s, nil
}

// validate returns an error that names all invalid settings.
func (s *settings) validate() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if err := s.parseImage(); err != nil {
		bad("image", "is %q, want <repository>@sha256:<digest>: %v", s.Image, err)
	}
	if !nameForm.MatchString(s.Container) || strings.HasSuffix(s.Container, asideSuffix) {
		bad("container", "is %q, want 2 to 128 letters, digits, dots, dashes and underscores that do not end in %s", s.Container, asideSuffix)
	}
	for name := range s.Env {
		if !envForm.MatchString(name) {
			bad("env", "%q is no name of a variable", name)
		}
	}
	s.validatePorts(bad)
	s.validateMounts(bad)
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
	s.restart.Name = container.RestartPolicyMode(policy)
	s.restart.MaximumRetryCount, _ = strconv.Atoi(times)
	s.stopTimeout = defaultStopTimeout
	if s.StopTimeout != "" {
		d, err := time.ParseDuration(s.StopTimeout)
		if err != nil || d < time.Second || d > maxStopTimeout || d%time.Second != 0 {
			bad("stop_timeout", "is %q, want whole seconds from 1s to %s", s.StopTimeout, maxStopTimeout)
		}
		s.stopTimeout = d
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
		s.memory = n
	}
	if s.CPUs < 0 || s.CPUs > 1024 || s.CPUs > 0 && s.CPUs < 0.01 {
		bad("cpus", "is %g, want from 0.01 to the number of the host's", s.CPUs)
	}
	for key := range s.Labels {
		if key == "" || strings.HasPrefix(key, labelPrefix) {
			bad("labels", "%q: labels that begin with %s are Muster's own", key, labelPrefix)
		}
	}
	return errors.Join(errs...)
}

// parseImage removes a tag beside the digest, which alone decides.
func (s *settings) parseImage() error {
	named, err := reference.ParseNormalizedNamed(s.Image)
	if err != nil {
		return err
	}
	digested, ok := named.(reference.Digested)
	if !ok {
		return errors.New("it has no digest, and whoever can write to the registry decides what a tag means")
	}
	if s.digest = digested.Digest(); s.digest.Algorithm() != digest.SHA256 {
		return fmt.Errorf("the digest is not SHA-256 but %s", s.digest.Algorithm())
	}
	canonical, err := reference.WithDigest(reference.TrimNamed(named), s.digest)
	if err != nil {
		return err
	}
	s.Image = canonical.String()
	return nil
}

func (s *settings) validatePorts(bad func(field, format string, args ...any)) {
	if len(s.Ports) > 0 && (s.Network == network.NetworkHost || s.Network == network.NetworkNone) {
		bad("ports", "have no effect with network: %s", s.Network)
	}
	for i, p := range s.Ports {
		field := fmt.Sprintf("ports[%d]", i)
		if p.Host == 0 || p.Container == 0 {
			bad(field, "lacks host or container, which are numbers from 1 to 65535")
		}
		if !slices.Contains([]string{"tcp", "udp", "sctp"}, p.protocol()) {
			bad(field+".protocol", "is %q, want tcp, udp or sctp", p.Protocol)
		}
		if _, err := netip.ParseAddr(p.Address); p.Address != "" && err != nil {
			bad(field+".address", "is %q, want an IP address of the host", p.Address)
		}
		for _, q := range s.Ports[:i] {
			if p.collides(q.address(), q.Host, q.protocol()) {
				bad(field, "publishes %s, as another one does", p)
			}
		}
	}
}

// collides reports whether the port cannot be published beside another one.
func (p port) collides(addr netip.Addr, number uint16, protocol string) bool {
	all := func(a netip.Addr) bool { return !a.IsValid() || a.IsUnspecified() }
	return p.Host == number && p.protocol() == protocol && (all(addr) || all(p.address()) || addr == p.address())
}

func (s *settings) validateMounts(bad func(field, format string, args ...any)) {
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
		case m.isBind():
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

// config returns the container of a release. imageID is that of its verified image.
//
// The container does not restart by itself until Start says so: an engine that starts between
// Install and Start would otherwise run it without its configuration files.
func (s *settings) config(r *runtime.Release, imageID string) (*container.Config, *container.HostConfig) {
	seconds := int(s.stopTimeout / time.Second)
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
	h.Memory, h.NanoCPUs = s.memory, int64(s.CPUs*1e9)
	if len(s.Ports) > 0 {
		c.ExposedPorts, h.PortBindings = network.PortSet{}, network.PortMap{}
	}
	for _, p := range s.Ports {
		inside, _ := network.PortFrom(p.Container, network.IPProtocol(p.protocol()))
		c.ExposedPorts[inside] = struct{}{}
		h.PortBindings[inside] = append(h.PortBindings[inside], network.PortBinding{HostIP: p.address(), HostPort: strconv.Itoa(int(p.Host))})
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
	return c, h
}

// stays is the restart policy of a container that is not to run.
var stays = container.RestartPolicy{Name: container.RestartPolicyDisabled}
