package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/gofrs/flock"

	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/control"
	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/agent/logfile"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/upgrade"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/host/network"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/watcher/beacon"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// DefaultTop is the default top folder.
const DefaultTop = layout.DefaultTop

// Executable returns the path of the running program with all links resolved.
func Executable() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(exe)
}

// RunningVersion returns the version in the manifest beside the program. Without a
// manifest, or if the program belongs to no home under top, it returns the compiled version and
// an empty home.
func RunningVersion(d disk.Disk, top, executable, compiled string) (handoff.Install, error) {
	home, err := disk.FindHome(d, top, executable)
	if err != nil {
		return handoff.Install{}, err
	}
	file := filepath.Join(filepath.Dir(executable), manifest.FileName)
	f, err := d.OpenFile("running version", file, os.O_RDONLY, 0)
	if home == "" || errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = f.Close()
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return developmentVersion(compiled), err
	}
	if err != nil {
		return handoff.Install{}, err
	}
	defer f.Close()
	m, err := manifest.Parse(f)
	if err != nil {
		return handoff.Install{}, fmt.Errorf("%s: %w", file, err)
	}
	return handoff.Install{Identity: m.Package.Identity(), Home: home}, nil
}

func developmentVersion(compiled string) handoff.Install {
	version, snapshot := manifest.SplitSnapshot(compiled)
	if _, err := manifest.ParseVersion(version); err != nil {
		// The protocol requires three numbers.
		version, snapshot = "0.0.0", true
	}
	return handoff.Install{Identity: manifest.Identity{Version: version, Snapshot: snapshot}}
}

// Installed returns the options of the agent that is installed under top on this
// machine. compiled is the version built into the program. The caller must close the
// returned log after Run.
func Installed(top, compiled string) (Options, io.Closer, error) {
	d := disk.OS{}
	cfg, problem := config.Effective(d, top)
	level := &slog.LevelVar{}
	level.Set(cfg.Log.Level)
	log, closer, err := openLog(d, top, level)
	if err != nil {
		return Options{}, nil, err
	}
	if problem != nil {
		log.Error("the configuration is not valid: the agent runs with the last valid one, or the defaults", "error", problem)
	} else if err := config.KeepGood(d, top); err != nil {
		log.Warn("the configuration was not kept for a start at which it is not valid", "error", err)
	}
	o, err := installed(d, top, compiled, cfg, log)
	o.Level = level
	if err != nil {
		// Log the error as well, since standard error may be lost under a service
		// manager.
		log.Error("the agent cannot start", "error", err)
		return Options{}, nil, errors.Join(err, closer.Close())
	}
	return o, closer, nil
}

func installed(d disk.Disk, top, compiled string, cfg config.Config, log *slog.Logger) (Options, error) {
	exe, err := Executable()
	if err != nil {
		return Options{}, err
	}
	running, err := RunningVersion(d, top, exe, compiled)
	if err != nil {
		return Options{}, err
	}
	roots, err := disk.FindRoots(d, top)
	if err != nil {
		return Options{}, err
	}
	o := Options{
		Top: top, Links: roots.Links, Running: running, GOOS: runtime.GOOS, GOARCH: runtime.GOARCH, PID: os.Getpid(),
		Config: cfg, Host: host.Read(), Disk: d,
		Lock: FileLock, Startable: upgrade.Programs{}.Startable, CheckStart: upgrade.Programs{}.CheckStart, Reap: upgrade.Reap, Log: log,
		Stopped: func() error { return handoff.CountStop(d, top) },
		Exec:    func() error { return reexec(layout.Path(top, layout.AgentLink)) },
	}
	others, err := cfg.Network.Transport()
	if err != nil {
		return o, err
	}
	o.Other = &http.Client{Transport: others}
	if cfg.Host.Name != "" {
		o.Host.Hostname = cfg.Host.Name
	}
	if o.Service, err = readService(d, top); err != nil {
		return o, err
	}
	o.Watchers = upgrade.Programs{Service: o.Service}
	if o.Runtimes, err = HostRuntimes(d, o.Service, log); err != nil {
		return o, err
	}
	if err := o.enrolled(); err != nil {
		return o, err
	}
	o.Listen = func() (net.Listener, error) { return control.Listen(top) }
	if o.Control, err = o.Listen(); disk.IsUnwritable(err) {
		err = nil // it is tried again
	}
	return o, err
}

// CheckStart reads what an agent of this version reads when it starts, and returns an error if it
// would not start, or would not use the configuration.
func CheckStart(d disk.Disk, top string) error {
	cfg, err := config.Load(d, top)
	if err != nil {
		return err
	}
	e, err := readEnrolment(d, top, cfg)
	if e != nil {
		e.link.Client().CloseIdleConnections()
	}
	return err
}

// enrolment is what the agent reads of its enrolment.
type enrolment struct {
	id     *identity.Identity
	server string
	link   *gateway.Switch
	pinned bool
}

// readEnrolment returns nil if the host is not enrolled.
func readEnrolment(d disk.Disk, top string, cfg config.Config) (*enrolment, error) {
	id, err := identity.Load(d, top)
	if errors.Is(err, identity.ErrNotEnrolled) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e := &enrolment{id: id, server: cmp.Or(cfg.Server.URL, id.ServerURL)}
	if e.link, err = (gateway.Trust{CAPEM: id.CAPEM, Fingerprint: id.CAFingerprint, Network: cfg.Network}).Switch(e.server); err != nil {
		return nil, err
	}
	e.pinned, err = tuf.Pinned(d, layout.Path(top, layout.TrustDir))
	// With a pinned root that cannot be read, upgrades are refused with that error.
	e.pinned = e.pinned || err != nil
	return e, nil
}

// enrolled fills in the fields that depend on the enrolment, if the host is enrolled.
func (o *Options) enrolled() error {
	e, err := readEnrolment(o.Disk, o.Top, o.Config)
	if e == nil || err != nil {
		return err
	}
	o.Identity, o.Switch, o.HTTP = e.id, e.link, e.link.Client()
	o.Muster = followServer(o.Disk, o.Top, e.server, o.Config.Network, o.Log)
	if e.pinned {
		o.Trust = PinnedTrust(o.Disk, layout.Path(o.Top, layout.TrustDir), &gateway.Client{HTTP: o.HTTP, URL: e.server}, o.Log)
	}
	return nil
}

// followServer makes the watcher use the agent's server and settings. It returns whether the watcher has
// a credential, which only Muster's server issues.
func followServer(d disk.Disk, top, server string, settings network.Settings, log *slog.Logger) (muster bool) {
	w, err := beacon.Load(d, top)
	muster = w != nil
	if err == nil && w != nil && (w.ServerURL != server || !w.Network.Equal(settings)) {
		w.ServerURL, w.Network = server, settings
		err = beacon.Save(d, top, *w)
	}
	if err != nil {
		log.Warn("the watcher cannot report to the server", "error", err)
	}
	return muster || err != nil
}

// PinnedTrust returns the authority for the pinned root, which fetches the publishers' files
// from the server.
func PinnedTrust(d disk.Disk, dir string, server *gateway.Client, log *slog.Logger) trust.Authority {
	fetch := func(ctx context.Context, name string, limit int64) ([]byte, error) {
		data, err := server.TrustFile(ctx, name, limit)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			err = request.Later(err)
		}
		return data, err
	}
	return &tuf.Client{Disk: d, Dir: dir, Fetch: fetch, Log: log}
}

func readService(d disk.Disk, top string) (string, error) {
	data, err := d.ReadFile("service name", layout.Path(top, layout.ServiceFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

// openLog logs to the log file and to standard error, but only once if both are the same
// file, as when the watcher has started this agent.
func openLog(d disk.Disk, top string, level slog.Leveler) (*slog.Logger, io.Closer, error) {
	name := layout.Path(top, layout.AgentLogFile)
	file, err := logfile.Open(d, name, 0)
	if err != nil && file == nil {
		return nil, nil, fmt.Errorf("%w: is %s a Muster installation, and may you write there?", err, top)
	}
	out := io.Writer(file)
	if !sameFile(os.Stderr, name) {
		// Standard error first: a full disk must not silence it.
		out = io.MultiWriter(ignoreErrors{os.Stderr}, file)
	}
	log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
	if err != nil {
		log.Error("the log file cannot be written; it is tried again with each line", "error", err)
	}
	return log, file, nil
}

// LogCrashes also writes the trace of a panic to the log until undo is called. The watcher quotes it,
// and not every service manager keeps standard error.
func LogCrashes(top string) (undo func()) {
	name := layout.Path(top, layout.AgentLogFile)
	undo = func() {}
	if sameFile(os.Stderr, name) {
		return undo
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return undo // it is on standard error
	}
	defer f.Close() // the runtime has its own copy
	if debug.SetCrashOutput(f, debug.CrashOptions{}) == nil {
		undo = func() { _ = debug.SetCrashOutput(nil, debug.CrashOptions{}) }
	}
	return undo
}

// ignoreErrors ignores write errors, so that a closed standard error does not stop the
// log file.
type ignoreErrors struct{ w io.Writer }

func (i ignoreErrors) Write(p []byte) (int, error) {
	_, _ = i.w.Write(p)
	return len(p), nil
}

func sameFile(f *os.File, name string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(name)
	return err == nil && os.SameFile(a, b)
}

// FileLock acquires a lock file; see Options.Lock. The lock ends with the process at the
// latest.
func FileLock(path, content string) (release func() error, err error) {
	l := flock.New(path)
	got, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if !got {
		return nil, fmt.Errorf("lock %s: %w", path, ErrLocked)
	}
	if content != "" {
		// The lock alone shows that the agent runs: a disk that cannot be written is no
		// reason not to.
		if err := os.WriteFile(layout.LockPID(path), []byte(content), 0o600); err != nil && !disk.IsUnwritable(err) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), l.Unlock())
		}
	}
	return l.Unlock, nil
}
