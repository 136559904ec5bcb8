// Package harness runs a small fleet of real programs on this machine: one or more servers,
// agents installed in folders of their own, and a publisher that builds and signs packages.
// The demo, the end-to-end tests and the load test use it. It starts the programs as users
// do, and observes them through their public interfaces. A [World] is such a fleet for a
// test, or with [SharedWorld] for all tests of a package.
package harness

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/testing/kit/child"
	"github.com/muster-fleet/muster/testing/kit/port"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// Fleet is a fleet whose files are all in Dir.
type Fleet struct {
	Dir      string
	Programs toolchain.Programs
	// Cache has built packages of other fleets, each of which signs them itself; nil means
	// to build every time.
	Cache *Cache
}

// Cache caches packages without signatures, since compressing one takes three seconds.
// NewCache returns one.
type Cache struct {
	dir string

	mu    sync.Mutex
	built map[string]func() (string, error) // by the contents
}

// NewCache returns an empty cache in a folder, which it creates if necessary.
func NewCache(dir string) *Cache {
	return &Cache{dir: dir, built: map[string]func() (string, error){}}
}

// Get copies the package that build creates to the path to. build gets a path, and is
// called once for the same contents in, even if it fails.
func (s *Cache) Get(to string, build func(path string) error, in ...string) error {
	s.mu.Lock()
	key := strings.Join(in, "\x00")
	get := s.built[key]
	if get == nil {
		path := filepath.Join(s.dir, strconv.Itoa(len(s.built)))
		get = sync.OnceValues(func() (string, error) {
			if err := os.MkdirAll(s.dir, 0o755); err != nil {
				return "", err
			}
			return path, build(path)
		})
		s.built[key] = get
	}
	s.mu.Unlock()
	path, err := get()
	if err != nil {
		return err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

// program runs a program and returns its output.
func (f *Fleet) program(ctx context.Context, env []string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), env...)
	c.Stdout, c.Stderr, c.Dir = &stdout, &stderr, f.Dir
	if err := c.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(args[0]), args[1], err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Publisher builds and signs packages.
type Publisher struct {
	fleet *Fleet
	dir   string
	// TrustRoot is the digest of the root that hosts pin. It is empty until something is
	// published.
	TrustRoot string
}

// NewPublisher returns a publisher. It has its keys in a folder of the fleet as soon as it
// publishes something.
func (f *Fleet) NewPublisher(name string) *Publisher {
	return &Publisher{fleet: f, dir: filepath.Join(f.Dir, name)}
}

// TargetsKey is the file of the key that signs packages.
func (p *Publisher) TargetsKey() string { return filepath.Join(p.dir, "targets-1.key") }

// Package builds a package of a version whose muster-agent is the
// given program, with more files as NAME=PATH, and returns the archive.
func (p *Publisher) Package(ctx context.Context, version, agent string, more ...string) (string, error) {
	var flags []string
	for _, file := range more {
		flags = append(flags, "--file", file)
	}
	return p.PackageOf(ctx, version, agent, p.fleet.Programs.Watcher, flags...)
}

// PackageOf is Package with another muster-watcher than the fleet's own, and with
// more flags of `muster package build`.
func (p *Publisher) PackageOf(ctx context.Context, version, agent, watcher string, flags ...string) (string, error) {
	archive := filepath.Join(p.fleet.Dir, "packages", manifest.ArchiveName(version, runtime.GOOS, runtime.GOARCH, "tar.gz"))
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		return "", err
	}
	contents := append([]string{"--version", version, "--file", "muster-agent=" + agent, "--file", "muster-watcher=" + watcher}, flags...)
	build := func(path string) error {
		_, err := p.fleet.program(ctx, nil, append([]string{p.fleet.Programs.Muster, "package", "build", "--out", path}, contents...)...)
		return err
	}
	var err error
	if p.fleet.Cache != nil {
		err = p.fleet.Cache.Get(archive, build, contents...)
	} else {
		err = build(archive)
	}
	return archive, err
}

// Component builds a package of a component that its description (YAML) describes,
// with files as NAME=PATH, and returns the archive.
func (p *Publisher) Component(ctx context.Context, name, version, description string, files ...string) (string, error) {
	dir := filepath.Join(p.fleet.Dir, "packages")
	yaml := filepath.Join(dir, name+"-"+version+".yaml")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(yaml, []byte(description), 0o600)); err != nil {
		return "", err
	}
	archive := filepath.Join(dir, manifest.ComponentArchiveName(name, version, runtime.GOOS, runtime.GOARCH, "tar.gz"))
	args := []string{p.fleet.Programs.Muster, "package", "build", "--version", version, "--component", yaml, "--out", archive}
	for _, file := range files {
		args = append(args, "--file", file)
	}
	_, err := p.fleet.program(ctx, nil, args...)
	return archive, err
}

// Add moves an archive to the name that hosts ask for.
func (p *Publisher) Add(version, archive string) (string, error) {
	named := filepath.Join(p.fleet.Dir, "packages", manifest.ArchiveName(version, runtime.GOOS, runtime.GOARCH, "tar.gz"))
	return named, errors.Join(os.MkdirAll(filepath.Dir(named), 0o755), os.Rename(archive, named))
}

// Server is a muster server in a folder of its own. It keeps its ports and its
// configuration when it is started again.
type Server struct {
	fleet *Fleet
	Data  string
	Info  ServerInfo
	// Log is the log file, of all starts.
	Log string

	config string // the file of --config, or empty
	cmd    *exec.Cmd
	done   <-chan struct{}
	log    *os.File
}

// ServerInfo is what `muster server -o json` prints, with the secrets of the files that it
// names.
type ServerInfo struct {
	AgentURL        string `json:"agent_url"`
	AdminURL        string `json:"admin_url"`
	CAPin           string `json:"ca_pin"`
	AdminKeyFile    string `json:"admin_key_file"`
	EnrollTokenFile string `json:"enrollment_token_file"`
	AdminKey        string `json:"-"`
	LoginURL        string `json:"-"`
	EnrollToken     string `json:"-"`
	// DebugURL is the URL of its profiles, if debug.listen is configured.
	DebugURL string `json:"debug_url"`
}

// readSecrets reads the files of the first start.
func (i *ServerInfo) readSecrets() error {
	if i.AdminKeyFile == "" {
		return nil
	}
	key, err := os.ReadFile(i.AdminKeyFile)
	if err != nil {
		return err
	}
	token, err := os.ReadFile(i.EnrollTokenFile)
	i.AdminKey, i.EnrollToken = strings.TrimSpace(string(key)), strings.TrimSpace(string(token))
	i.LoginURL = i.AdminURL + "/login#key=" + i.AdminKey
	return err
}

// StartServer starts a server in a fresh folder, on free ports of loopback.
func (f *Fleet) StartServer(ctx context.Context) (*Server, error) {
	return f.StartServerWith(ctx, ServerOptions{})
}

// ServerOptions configure a server. The zero value has all defaults, for the only server of
// a fleet.
type ServerOptions struct {
	// Name is the name of its data folder in the fleet, and with .log of its log; empty
	// means server. Servers with the same name share both.
	Name string
	// Config is the text of its configuration file in YAML; empty means none. The fleet
	// chooses the data folder and the listeners.
	Config string
	// Seed is a server of the same group, which need not run: the new one gets copies of
	// its folders tls and trust, and its admin key. Config names the common store.
	Seed *Server
}

// StartServerWith starts a server on free ports of loopback. With an error it also returns
// the server, for its Log.
func (f *Fleet) StartServerWith(ctx context.Context, o ServerOptions) (*Server, error) {
	if o.Name == "" {
		o.Name = "server"
	}
	s := &Server{fleet: f, Data: filepath.Join(f.Dir, o.Name), Log: filepath.Join(f.Dir, o.Name+".log")}
	if o.Config != "" {
		s.config = filepath.Join(f.Dir, o.Name+".yml")
		if err := os.WriteFile(s.config, []byte(o.Config), 0o600); err != nil {
			return s, err
		}
	}
	if o.Seed != nil {
		for _, dir := range []string{"tls", "trust"} {
			if err := CopyDir(filepath.Join(o.Seed.Data, dir), filepath.Join(s.Data, dir)); err != nil {
				return s, fmt.Errorf("make %s a replica of %s: %w", s.Data, o.Seed.Data, err)
			}
		}
	}
	agents, err := port.Address()
	if err != nil {
		return s, err
	}
	admin, err := port.Address()
	if err != nil {
		return s, err
	}
	err = s.start(ctx, agents, admin)
	if o.Seed != nil && s.Info.AdminKey == "" {
		s.Info.AdminKey, s.Info.EnrollToken = o.Seed.Info.AdminKey, o.Seed.Info.EnrollToken
	}
	return s, err
}

// CopyDir copies a folder, with what is in it and the permissions.
func CopyDir(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil:
			return err
		case e.IsDir():
			if err := CopyDir(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				return err
			}
			continue
		case !info.Mode().IsRegular(): // a socket
			continue
		}
		data, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, e.Name()), data, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}

// Start starts a stopped server again on the same ports.
func (s *Server) Start(ctx context.Context) error {
	keep := s.Info
	err := s.start(ctx, strings.TrimPrefix(keep.AgentURL, "https://"), strings.TrimPrefix(keep.AdminURL, "https://"))
	s.Info.AdminKey, s.Info.LoginURL, s.Info.EnrollToken = keep.AdminKey, keep.LoginURL, keep.EnrollToken
	return err
}

// PID returns the id of the server's process, or 0 while it is stopped.
func (s *Server) PID() int {
	if s.cmd == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// StartTimeout bounds the start of a program: on a loaded machine a cold start
// takes some seconds.
const StartTimeout = 60 * time.Second

func (s *Server) start(ctx context.Context, agents, admin string) error {
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	args := []string{"server", "-o", "json", "--data", s.Data, "--agents-listen", agents, "--admin-listen", admin}
	if s.config != "" {
		args = append(args, "--config", s.config)
	}
	c := exec.Command(s.fleet.Programs.Muster, args...)
	c.Stderr = log
	stdout, err := c.StdoutPipe()
	if err != nil {
		return errors.Join(err, log.Close())
	}
	first := make(chan error, 1)
	done, err := child.Start(c, func() {
		first <- json.NewDecoder(stdout).Decode(&s.Info)
		_, _ = io.Copy(io.Discard, stdout)
	})
	if err != nil {
		return errors.Join(err, log.Close())
	}
	s.cmd, s.log, s.done = c, log, done
	select {
	case err = <-first:
		if err == nil {
			err = s.Info.readSecrets()
		}
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(StartTimeout):
		err = errors.New("no answer")
	}
	if err != nil {
		_ = s.Kill()
		text, _ := os.ReadFile(s.Log)
		return fmt.Errorf("the server did not start: %w: %s", err, lastLines(text))
	}
	return nil
}

// Stop stops the server as Ctrl-C does.
func (s *Server) Stop() error { return s.end(syscall.SIGTERM) }

// Kill kills the server with SIGKILL.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

func (s *Server) end(sig syscall.Signal) error {
	if s.cmd == nil {
		return nil
	}
	_ = s.cmd.Process.Signal(sig) // it may have ended already
	select {
	case <-s.done:
	case <-time.After(20 * time.Second): // longer than the server's own drain
		_ = s.cmd.Process.Kill()
		<-s.done
		return errors.New("the server did not stop in time")
	}
	s.cmd = nil
	return s.log.Close()
}

// CLI runs the operator's command line against the server.
func (s *Server) CLI(ctx context.Context, args ...string) (string, error) {
	env := []string{
		"MUSTER_URL=" + s.Info.AdminURL, "MUSTER_API_KEY=" + s.Info.AdminKey, "MUSTER_CA_PIN=" + s.Info.CAPin,
		"XDG_CONFIG_HOME=" + filepath.Join(s.fleet.Dir, "config"), // for new secrets
	}
	return s.fleet.program(ctx, env, append([]string{s.fleet.Programs.Muster}, args...)...)
}

// Publish pushes archives, and has p sign them. The first time, p gets a root with one key for
// each role, and the server's.
func (s *Server) Publish(ctx context.Context, p *Publisher, archives ...string) error {
	if p.TrustRoot == "" {
		out, err := s.CLI(ctx, "package", "keys", "init", "--dir", p.dir, "--no-password", "-o", "json")
		if err != nil {
			return err
		}
		var made struct {
			TrustRoot string `json:"trust_root"`
		}
		if err := json.Unmarshal([]byte(out), &made); err != nil {
			return fmt.Errorf("muster package keys init: %w", err)
		}
		p.TrustRoot = made.TrustRoot
	}
	_, err := s.CLI(ctx, append([]string{"package", "push", "--targets-key", p.TargetsKey()}, archives...)...)
	return err
}

// Host is an installed agent.
type Host struct {
	fleet *Fleet
	Name  string
	Top   string
	// Prefix is the prefix of the system into whose folders the agent was installed; empty if
	// everything is below Top.
	Prefix string
	ID     string
}

// HostOptions configure an agent. The zero value has short times.
type HostOptions struct {
	// Grace is how long upgrades are watched; zero means DefaultGrace.
	Grace time.Duration
	// DownloadRate is the limit in bytes per second; zero means none.
	DownloadRate int64
	// Tags are the host's tags at enrolment.
	Tags []string
	// Defaults keeps every installed setting except the name.
	Defaults bool
}

// DefaultGrace is long enough to find the fleet's unhealthy release.
const DefaultGrace = 4 * time.Second

// hostConfig has short times, and for failed_for one in which a busy machine counts three ends of a
// process, so that a crash loop is called one.
const hostConfig = `host:
  name: %s
upgrade:
  watch:
    interval: 500ms
    grace: %s
    failed_for: 5s
    max_crashes: 2
  download:
    rate_limit: %d
    allow_http: [127.0.0.1]
`

// Install installs an agent from a package and enrols it.
func (f *Fleet) Install(ctx context.Context, s *Server, p *Publisher, archive, name string, o HostOptions) (*Host, error) {
	h := &Host{fleet: f, Name: name, Top: filepath.Join(f.Dir, name)}
	if _, err := f.InstallCommand(ctx, h.Top, append(o.enrollment(s, p), "--package", archive)...); err != nil {
		return nil, err
	}
	return h, h.configure(o)
}

// Clone copies a host whose agent does not run, with its identity, as a copy of its machine would.
func (f *Fleet) Clone(ctx context.Context, h *Host, name string, o HostOptions) (*Host, error) {
	clone := &Host{fleet: f, Name: name, Top: filepath.Join(f.Dir, name)}
	if out, err := exec.CommandContext(ctx, "cp", "-a", h.Top, clone.Top).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy %s: %w: %s", h.Top, err, out)
	}
	return clone, clone.configure(o)
}

// Enrol enrols the host, whose agent must be restarted, as another agent.
func (h *Host) Enrol(ctx context.Context, s *Server, p *Publisher, o HostOptions) error {
	_, err := h.CLI(ctx, append([]string{"enroll", "--top", h.Top}, o.enrollment(s, p)...)...)
	return err
}

// InstallSystem installs the agent whose version is below the prefix of a system into the
// system's folders, and enrols it.
func (f *Fleet) InstallSystem(ctx context.Context, s *Server, p *Publisher, system layout.System, version, name string, o HostOptions) (*Host, error) {
	h := &Host{fleet: f, Name: name, Top: system.Roots().Top, Prefix: system.Prefix}
	program := filepath.Join(system.Version(version), layout.AgentLink)
	args := []string{program, "install", "--prefix", system.Prefix, "--sysconfdir", system.SysConfDir, "--localstatedir", system.LocalStateDir, "--unsafe-top", "--no-service"}
	if _, err := f.program(ctx, nil, append(args, o.enrollment(s, p)...)...); err != nil {
		return nil, err
	}
	return h, h.configure(o)
}

// enrollment returns the flags that enrol a host.
func (o HostOptions) enrollment(s *Server, p *Publisher) []string {
	flags := []string{"--url", s.Info.AgentURL, "--token", s.Info.EnrollToken, "--ca-pin", s.Info.CAPin, "--trust-root", p.TrustRoot}
	for _, tag := range o.Tags {
		flags = append(flags, "--tag", tag)
	}
	return flags
}

// configure writes the host's settings.
func (h *Host) configure(o HostOptions) error {
	config := fmt.Appendf(nil, hostConfig, h.Name, cmp.Or(o.Grace, DefaultGrace), o.DownloadRate)
	if o.Defaults {
		config = fmt.Appendf(nil, "host: {name: %s}\n", h.Name)
	}
	return os.WriteFile(layout.Path(h.Top, layout.ConfigFile), config, 0o600)
}

// InstallCommand runs `muster-agent install --no-service` with more flags. The folders of
// tests are in the system's temporary folder, so root needs --unsafe-top.
func (f *Fleet) InstallCommand(ctx context.Context, top string, flags ...string) (string, error) {
	return f.program(ctx, nil, append([]string{f.Programs.Agent, "install", "--top", top, "--unsafe-top", "--no-service"}, flags...)...)
}

// Start starts the agent without a service manager. It does not wait for the process, which
// an upgrade may replace by another one.
func (h *Host) Start() error {
	c := exec.Command(layout.Path(h.Top, layout.AgentLink), "run", "--top", h.Top)
	_, err := child.Start(c, nil)
	return err
}

// CLI runs the agent's own command line on the host.
func (h *Host) CLI(ctx context.Context, args ...string) (string, error) {
	program := layout.Path(h.Top, layout.AgentLink)
	if h.Prefix != "" {
		program, _ = layout.System{Prefix: h.Prefix}.Command()
	}
	return h.fleet.program(ctx, nil, append([]string{program}, args...)...)
}

// Runs returns the version to which the host's pointer leads.
func (h *Host) Runs() (string, error) {
	roots, err := disk.FindRoots(disk.OS{}, h.Top)
	if err != nil {
		return "", err
	}
	target, err := os.Readlink(roots.Link(layout.AgentLink))
	return strings.TrimPrefix(path.Base(roots.HomeOf(target)), layout.HomePrefix), err
}

// Processes returns the ids of the processes whose program is in the host's folder or below its
// prefix: the agent and a watcher.
func (h *Host) Processes() ([]int, error) {
	return h.processes("exe", func(path, top string) bool {
		below := h.Prefix != "" && strings.HasPrefix(path, h.Prefix+string(filepath.Separator))
		return below || strings.HasPrefix(path, top) && !strings.HasPrefix(path, filepath.Join(top, "components"))
	})
}

// components returns the ids of the processes that run in the folder of a component.
func (h *Host) components() ([]int, error) {
	return h.processes("cwd", func(path, top string) bool { return strings.HasPrefix(path, filepath.Join(top, "components")) })
}

// processes returns the ids of the processes of which a link in /proc leads to what belongs
// accepts.
func (h *Host) processes(link string, belongs func(path, top string) bool) ([]int, error) {
	top := h.Top
	if real, err := filepath.EvalSymlinks(top); err == nil { // otherwise the host is uninstalled
		top = real
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("find the processes of %s: %w", h.Top, err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if path, err := os.Readlink(filepath.Join("/proc", e.Name(), link)); err == nil && belongs(path, top+string(filepath.Separator)) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Stop ends everything that runs from the host's folder, components after their agent.
func (h *Host) Stop() error {
	if err := h.end(h.Processes, syscall.SIGTERM); err != nil {
		return err
	}
	return h.end(h.components, syscall.SIGTERM)
}

// Kill kills the agent and a watcher, as a crash would, and waits until they are gone: until
// then they answer on their socket.
func (h *Host) Kill() error { return h.end(h.Processes, syscall.SIGKILL) }

func (h *Host) end(processes func() ([]int, error), sig syscall.Signal) error {
	for round := range 100 {
		pids, err := processes()
		if err != nil || len(pids) == 0 {
			return err
		}
		if round >= 60 {
			sig = syscall.SIGKILL
		}
		// The watcher may start the agent again before it ends; later rounds stop that one.
		for _, pid := range pids {
			_ = syscall.Kill(pid, sig)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("processes of %s do not end", h.Top)
}

func lastLines(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
