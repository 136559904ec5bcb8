// Package lab runs a small fleet of real programs on this machine: one server,
// some agents installed in folders of their own, and a publisher that builds and
// signs packages. The demo and the end-to-end tests are written on it. It starts
// programs the way their users do and looks at them through the same doors.
package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/testing/toolchain"
)

// Lab is a folder with everything in it.
type Lab struct {
	Dir      string
	Programs toolchain.Programs
	// Shelf keeps built packages for other labs, each of which has a signer of its
	// own; nil builds every time.
	Shelf *Shelf
}

// Shelf has packages without signatures: to compress one takes a core three
// seconds. Make it with NewShelf.
type Shelf struct {
	dir string

	mu    sync.Mutex
	built map[string]func() (string, error) // by what went in
}

// NewShelf makes an empty shelf in a folder, which is made if it is not there.
func NewShelf(dir string) *Shelf {
	return &Shelf{dir: dir, built: map[string]func() (string, error){}}
}

// Take puts a copy of the package that build makes at the path to. build is given
// a path, and is called once for all that goes in, even if it fails.
func (s *Shelf) Take(to string, build func(path string) error, in ...string) error {
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

// program runs one to its end and returns what it printed.
func (l *Lab) program(ctx context.Context, env []string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), env...)
	c.Stdout, c.Stderr, c.Dir = &stdout, &stderr, l.Dir
	if err := c.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(args[0]), args[1], err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Publisher builds and signs packages.
type Publisher struct {
	lab *Lab
	// PublicKey is what hosts trust, in one line.
	PublicKey string
	keyFile   string
}

// NewPublisher makes a signing key.
func (l *Lab) NewPublisher(ctx context.Context, name string) (*Publisher, error) {
	p := &Publisher{lab: l, keyFile: filepath.Join(l.Dir, name+".key")}
	if _, err := l.program(ctx, nil, l.Programs.Muster, "package", "keygen", "--key", p.keyFile, "--no-password"); err != nil {
		return nil, err
	}
	pub, err := os.ReadFile(strings.TrimSuffix(p.keyFile, ".key") + ".pub")
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(string(pub)), "\n")
	p.PublicKey = lines[len(lines)-1]
	return p, nil
}

// Package builds and signs a package of a version whose muster-agent is the
// given program, with more files as NAME=PATH, and returns the archive.
func (p *Publisher) Package(ctx context.Context, version, agent string, more ...string) (string, error) {
	var flags []string
	for _, file := range more {
		flags = append(flags, "--file", file)
	}
	return p.PackageOf(ctx, version, agent, p.lab.Programs.Watcher, flags...)
}

// PackageOf is Package with another muster-watcher than the lab's own, and with
// more flags of `muster package build`.
func (p *Publisher) PackageOf(ctx context.Context, version, agent, watcher string, flags ...string) (string, error) {
	archive := filepath.Join(p.lab.Dir, "packages", manifest.ArchiveName(version, runtime.GOOS, runtime.GOARCH, "tar.gz"))
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		return "", err
	}
	contents := append([]string{"--version", version, "--file", "muster-agent=" + agent, "--file", "muster-watcher=" + watcher}, flags...)
	build := func(path string) error {
		_, err := p.lab.program(ctx, nil, append([]string{p.lab.Programs.Muster, "package", "build", "--out", path}, contents...)...)
		return err
	}
	var err error
	if p.lab.Shelf != nil {
		err = p.lab.Shelf.Take(archive, build, contents...)
	} else {
		err = build(archive)
	}
	if err != nil {
		return "", err
	}
	return archive, p.Sign(ctx, archive)
}

// Add signs an archive that was built elsewhere, under the name hosts ask for.
func (p *Publisher) Add(ctx context.Context, version, archive string) (string, error) {
	named := filepath.Join(p.lab.Dir, "packages", manifest.ArchiveName(version, runtime.GOOS, runtime.GOARCH, "tar.gz"))
	if err := errors.Join(os.MkdirAll(filepath.Dir(named), 0o755), os.Rename(archive, named)); err != nil {
		return "", err
	}
	return named, p.Sign(ctx, named)
}

// Sign writes the signature beside an archive.
func (p *Publisher) Sign(ctx context.Context, archive string) error {
	_, err := p.lab.program(ctx, nil, p.lab.Programs.Muster, "package", "sign", "--key", p.keyFile, archive)
	return err
}

// Server is a muster server in a folder of its own. It keeps its ports and its
// configuration when it is started again.
type Server struct {
	lab  *Lab
	Data string
	Info ServerInfo
	// Log is the file its log goes to, that of every start of it.
	Log string

	config string // the file of --config, empty: none
	cmd    *exec.Cmd
	done   chan struct{}
	log    *os.File
}

// ServerInfo is what `muster server -o json` prints.
type ServerInfo struct {
	AgentURL    string `json:"agent_url"`
	AdminURL    string `json:"admin_url"`
	CAPin       string `json:"ca_pin"`
	AdminKey    string `json:"admin_key"`
	LoginURL    string `json:"login_url"`
	EnrollToken string `json:"enrollment_token"`
	// DebugURL is where it serves profiles, if its configuration says debug.listen.
	DebugURL string `json:"debug_url"`
}

// StartServer starts a server in a fresh folder, on free ports of loopback.
func (l *Lab) StartServer(ctx context.Context) (*Server, error) {
	return l.StartServerWith(ctx, ServerOptions{})
}

// ServerOptions are a server's settings; the zero value is that of a lab with one
// server, which has all its defaults.
type ServerOptions struct {
	// Name is that of its data folder in the lab, and of its log with .log behind;
	// empty: server. Servers of one name share both.
	Name string
	// Config is the text of its configuration file in YAML; empty: none. The data
	// folder and the listeners are the lab's to choose, whatever it says.
	Config string
	// Seed is a server of which it becomes a replica on another machine: it gets
	// the folders tls and trust before its first start, and here its keys. What
	// the two share beyond that is for Config to say. Seed need not run.
	Seed *Server
}

// StartServerWith starts a server on free ports of loopback. A server that did
// not start is returned, too: its Log tells why.
func (l *Lab) StartServerWith(ctx context.Context, o ServerOptions) (*Server, error) {
	if o.Name == "" {
		o.Name = "server"
	}
	s := &Server{lab: l, Data: filepath.Join(l.Dir, o.Name), Log: filepath.Join(l.Dir, o.Name+".log")}
	if o.Config != "" {
		s.config = filepath.Join(l.Dir, o.Name+".yml")
		if err := os.WriteFile(s.config, []byte(o.Config), 0o600); err != nil {
			return s, err
		}
	}
	if o.Seed != nil {
		for _, dir := range []string{"tls", "trust"} {
			if err := copyDir(filepath.Join(o.Seed.Data, dir), filepath.Join(s.Data, dir)); err != nil {
				return s, fmt.Errorf("make %s a replica of %s: %w", s.Data, o.Seed.Data, err)
			}
		}
	}
	err := s.start(ctx, "127.0.0.1:0", "127.0.0.1:0")
	if o.Seed != nil && s.Info.AdminKey == "" {
		s.Info.AdminKey, s.Info.EnrollToken = o.Seed.Info.AdminKey, o.Seed.Info.EnrollToken
	}
	return s, err
}

// copyDir copies the files of a folder, as private as they are.
func copyDir(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
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

// PID is the server's process, 0 while it is stopped.
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
	c := exec.Command(s.lab.Programs.Muster, args...)
	c.Stderr = log
	stdout, err := c.StdoutPipe()
	if err != nil {
		return errors.Join(err, log.Close())
	}
	done, first := make(chan struct{}), make(chan error, 1)
	err = startProcess(c, func() {
		first <- json.NewDecoder(stdout).Decode(&s.Info)
		_, _ = io.Copy(io.Discard, stdout)
		_ = c.Wait() // how it ended is the log's to tell
		close(done)
	})
	if err != nil {
		return errors.Join(err, log.Close())
	}
	s.cmd, s.log, s.done = c, log, done
	select {
	case err = <-first:
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

// startProcess starts a program and runs wait, which has to wait for its end, on the
// same thread: the kernel sends the signal of a parent's death when the thread ends that
// started the process.
func startProcess(c *exec.Cmd, wait func()) error {
	c.SysProcAttr = ownGroup()
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.Start()
		started <- err
		if err == nil {
			wait()
		}
	}()
	return <-started
}

// Stop ends the server as Ctrl-C does.
func (s *Server) Stop() error { return s.end(syscall.SIGTERM) }

// Kill ends it without a chance to write anything.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

func (s *Server) end(sig syscall.Signal) error {
	if s.cmd == nil {
		return nil
	}
	_ = s.cmd.Process.Signal(sig) // it may have ended
	select {
	case <-s.done:
	case <-time.After(20 * time.Second): // above the server's own drain
		_ = s.cmd.Process.Kill()
		<-s.done
		return errors.New("the server did not stop in time")
	}
	s.cmd = nil
	return s.log.Close()
}

// CLI runs the operator's command line against the server.
func (s *Server) CLI(ctx context.Context, args ...string) (string, error) {
	env := []string{"MUSTER_URL=" + s.Info.AdminURL, "MUSTER_API_KEY=" + s.Info.AdminKey, "MUSTER_CA_PIN=" + s.Info.CAPin}
	return s.lab.program(ctx, env, append([]string{s.lab.Programs.Muster}, args...)...)
}

// Publish lets the server take in a publisher's packages, and pushes some.
func (s *Server) Publish(ctx context.Context, p *Publisher, archives ...string) error {
	if _, err := s.CLI(ctx, "package", "trust", p.PublicKey); err != nil {
		return err
	}
	_, err := s.CLI(ctx, append([]string{"package", "push"}, archives...)...)
	return err
}

// Publishers make a root with one key for each role in a folder of the lab, and
// publish p's archives under it. It returns the key that signs more, and the
// digest that hosts pin.
func (s *Server) Publishers(ctx context.Context, p *Publisher, archives ...string) (targetsKey, digest string, err error) {
	// The archives have p's signatures beside them, which a server checks too.
	if _, err := s.CLI(ctx, "package", "trust", p.PublicKey); err != nil {
		return "", "", err
	}
	dir := filepath.Join(s.lab.Dir, "release")
	out, err := s.CLI(ctx, "package", "keys", "init", "--dir", dir, "--no-password", "-o", "json")
	if err != nil {
		return "", "", err
	}
	var made struct {
		TrustRoot string `json:"trust_root"`
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		return "", "", fmt.Errorf("muster package keys init: %w", err)
	}
	targetsKey = filepath.Join(dir, "targets-1.key")
	return targetsKey, made.TrustRoot, s.Push(ctx, targetsKey, archives...)
}

// Push publishes archives, signed by a key that [Server.Publishers] made.
func (s *Server) Push(ctx context.Context, targetsKey string, archives ...string) error {
	_, err := s.CLI(ctx, append([]string{"package", "push", "--targets-key", targetsKey}, archives...)...)
	return err
}

// Host is an installed agent.
type Host struct {
	lab  *Lab
	Name string
	Top  string
	ID   string
}

// HostOptions are an agent's settings; the zero value has the rules of the real
// thing in seconds.
type HostOptions struct {
	// Grace is how long upgrades are watched; zero means DefaultGrace.
	Grace time.Duration
	// DownloadRate is a limit in bytes per second; zero means none.
	DownloadRate int64
	// TrustRoot is the digest of the publishers' root the host pins; empty
	// means that it trusts the publisher's key instead.
	TrustRoot string
	// Tags the host enrols with.
	Tags []string
	// Defaults leaves every setting as it is installed, apart from the name.
	Defaults bool
}

// DefaultGrace is long enough for the lab's sickly release to show.
const DefaultGrace = 4 * time.Second

const hostConfig = `host:
  name: %s
upgrade:
  watch:
    interval: 500ms
    grace: %s
    failed_for: 2s
    max_crashes: 2
  download:
    rate_limit: %d
`

// Install installs an agent from a package and enrols it.
func (l *Lab) Install(ctx context.Context, s *Server, p *Publisher, archive, name string, o HostOptions) (*Host, error) {
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	h := &Host{lab: l, Name: name, Top: filepath.Join(l.Dir, name)}
	trust := []string{"--trust-key", p.PublicKey}
	if o.TrustRoot != "" {
		trust = []string{"--trust-root", o.TrustRoot}
	}
	for _, tag := range o.Tags {
		trust = append(trust, "--tag", tag)
	}
	_, err := l.InstallCommand(ctx, h.Top, append(trust, "--package", archive,
		"--url", s.Info.AgentURL, "--token", s.Info.EnrollToken, "--ca-pin", s.Info.CAPin)...)
	if err != nil {
		return nil, err
	}
	config := fmt.Appendf(nil, hostConfig, name, o.Grace, o.DownloadRate)
	if o.Defaults {
		config = fmt.Appendf(nil, "host: {name: %s}\n", name)
	}
	if err := os.WriteFile(layout.Path(h.Top, layout.ConfigFile), config, 0o600); err != nil {
		return nil, err
	}
	return h, nil
}

// InstallCommand runs `muster-agent install --no-service` with more flags.
func (l *Lab) InstallCommand(ctx context.Context, top string, flags ...string) (string, error) {
	return l.program(ctx, nil, append([]string{l.Programs.Agent, "install", "--top", top, "--no-service"}, flags...)...)
}

// Start runs the agent as its user would without a service manager. It is not
// waited for: it may be replaced by another process in the course of an upgrade.
func (h *Host) Start() error {
	c := exec.Command(layout.Path(h.Top, layout.AgentLink), "run", "--top", h.Top)
	return startProcess(c, func() { _ = c.Wait() }) // no zombies
}

// CLI runs the agent's own command line on the host.
func (h *Host) CLI(ctx context.Context, args ...string) (string, error) {
	return h.lab.program(ctx, nil, append([]string{layout.Path(h.Top, layout.AgentLink)}, args...)...)
}

// Runs is the version the host's pointer leads to.
func (h *Host) Runs() (string, error) {
	target, err := os.Readlink(layout.Path(h.Top, layout.AgentLink))
	return strings.TrimPrefix(filepath.Base(filepath.Dir(target)), layout.HomePrefix), err
}

// Processes are the ids of the processes whose program lies in the host's
// folder: the agent, and a watcher, whoever started them.
func (h *Host) Processes() ([]int, error) {
	top := h.Top
	if real, err := filepath.EvalSymlinks(top); err == nil { // else it was uninstalled
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
		if exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe")); err == nil && strings.HasPrefix(exe, top+string(filepath.Separator)) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Stop ends everything that runs from the host's folder.
func (h *Host) Stop() error {
	for round := range 100 {
		pids, err := h.Processes()
		if err != nil || len(pids) == 0 {
			return err
		}
		sig := syscall.SIGTERM
		if round >= 60 {
			sig = syscall.SIGKILL
		}
		// The watcher, which would start the agent again, is among them; a few
		// rounds catch what it started meanwhile.
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
