package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

// quickDisk is the machine's disk without syncs, to keep thousands of writes fast.
type quickDisk struct{ disk.OS }

func (quickDisk) SyncDir(string, string) error { return nil }

func (d quickDisk) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	f, err := d.OS.OpenFile(op, path, flag, perm)
	if err != nil {
		return nil, err
	}
	return quickFile{f}, nil
}

type quickFile struct{ disk.File }

func (quickFile) Sync() error { return nil }

// life is how a version behaves once its process was started.
type life struct {
	dies time.Duration // this long after each start; 0 means never
	// health is called with the host's lock held; nil never answers.
	health func(age time.Duration) (probe.Health, error)
}

func lives(id manifest.Identity) life {
	return life{health: func(time.Duration) (probe.Health, error) {
		return probe.Health{Identity: id, State: probe.Healthy}, nil
	}}
}

// scriptedHost runs at most one agent: the version that the pointer under top leads to at
// the moment of a start. The keys of lives are versioned homes.
type scriptedHost struct {
	top   string
	links string // the folder of the pointer if it is not top
	lives map[string]life
	// manager is the time after which the service manager restarts an agent; 0 means
	// that there is none.
	manager time.Duration
	refuse  error // returned by Restart, if not nil
	// check returns the result of the package's checks. It is called with the host's
	// lock held; nil passes all checks.
	check func(name string) error
	// diagnosis is returned by Diagnose.
	diagnosis Diagnosis

	mu       sync.Mutex
	home     string
	pid      int
	started  time.Time
	ended    time.Time
	exits    int
	starts   int
	restarts int
	checked  int
}

// update applies the exits and restarts since the last call, each at its own time.
func (h *scriptedHost) update() {
	for {
		switch d := h.lives[h.home].dies; {
		case h.home != "" && d > 0 && time.Since(h.started) >= d:
			h.home, h.ended = "", h.started.Add(d)
			if h.manager == 0 {
				h.exits++
			}
		case h.home == "" && h.manager > 0 && !h.ended.IsZero() && time.Since(h.ended) >= h.manager:
			h.exits++ // systemd counts restarts, when it restarts
			h.begin(h.ended.Add(h.manager))
			if h.home == "" {
				return // there is no program to start
			}
		default:
			return
		}
	}
}

func (h *scriptedHost) begin(at time.Time) {
	roots := layout.Roots{Top: h.top, Links: h.links}
	target, err := os.Readlink(roots.Link(layout.AgentLink))
	if err != nil {
		return
	}
	home := roots.HomeOf(target)
	if _, err := os.Stat(filepath.Join(h.top, home, layout.AgentLink)); err != nil {
		return
	}
	h.pid++
	h.home, h.started, h.starts = home, at, h.starts+1
}

// become makes the agent re-execute itself: same process id, other program.
func (h *scriptedHost) become(home string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.home, h.started = home, time.Now()
}

func (h *scriptedHost) runs() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.update()
	return h.home
}

func (h *scriptedHost) Agent() Process {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.update()
	if h.home == "" {
		return Process{Exits: h.exits}
	}
	return Process{Alive: true, PID: h.pid, Home: h.home, Exits: h.exits}
}

func (h *scriptedHost) Health(context.Context) (probe.Health, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.update()
	if h.home == "" {
		return probe.Health{}, probe.ErrNotRunning
	}
	if h.lives[h.home].health == nil {
		return probe.Health{}, errors.New("nobody listens yet")
	}
	return h.lives[h.home].health(time.Since(h.started))
}

func (h *scriptedHost) Start() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begin(time.Now())
	return nil
}

func (h *scriptedHost) Restart() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.restarts++
	if h.refuse != nil {
		return h.refuse
	}
	h.home = ""
	h.begin(time.Now())
	return nil
}

func (h *scriptedHost) Diagnose(context.Context, string) Diagnosis { return h.diagnosis }

func (h *scriptedHost) Check(_ context.Context, home string, c manifest.Check) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.update()
	h.checked++
	if h.home != home {
		return errors.New("connection refused")
	}
	if h.check == nil {
		return nil
	}
	return h.check(c.Name)
}

// site is an installation on a real disk in a temporary folder that was just switched to
// the new version, with its scripted host.
type site struct {
	t     *testing.T
	top   string
	links string // the folder of the pointer if it is not top
	m     handoff.Marker
	disk  disk.Disk
	host  *scriptedHost
	lines *bytes.Buffer
	// server receives the reports if reports is set. Otherwise the watcher has no
	// credential.
	server  *scriptedServer
	reports bool
}

func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteIn(t, t.TempDir())
}

func newSiteIn(t *testing.T, top string) *site {
	t.Helper()
	s := &site{t: t, top: top, m: testMarker(), disk: quickDisk{}, lines: new(bytes.Buffer)}
	s.m.CreatedAt = time.Now()
	for _, in := range []handoff.Install{s.m.From, s.m.To} {
		s.install(in.Home)
	}
	s.must(os.MkdirAll(filepath.Join(top, "data/downloads"), 0o700))
	s.server = &scriptedServer{s: s}
	s.must(handoff.WriteMarker(quickDisk{}, top, s.m))
	s.pointTo(s.m.To.Home)
	s.host = &scriptedHost{top: top, home: s.m.From.Home, pid: 100, started: time.Now(), lives: map[string]life{
		s.m.From.Home: lives(oldID), s.m.To.Home: lives(newID),
	}}
	return s
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) install(home string) {
	s.must(os.MkdirAll(filepath.Join(s.top, home, "run"), 0o700))
	for _, name := range []string{layout.AgentLink, layout.WatcherLink} {
		s.must(os.WriteFile(filepath.Join(s.top, home, name), []byte(home), 0o700))
	}
}

// useSystem moves the previous version below a prefix and the links to a folder of
// configuration, as if the host had been installed into the folders of a system.
func (s *site) useSystem() {
	system := layout.System{Prefix: s.t.TempDir(), SysConfDir: s.t.TempDir(), LocalStateDir: "/not used"}
	home, folder := filepath.Join(s.top, s.m.From.Home), system.Version("1.0.0")
	s.must(os.MkdirAll(system.Versions(), 0o755))
	s.must(os.Rename(home, folder))
	s.must(install.LinkHome(quickDisk{}, s.top, s.m.From.Home, folder))
	s.must(os.Rename(filepath.Join(folder, "run"), filepath.Join(home, "run")))
	s.links = system.Roots().Links
	s.host.links = s.links
	s.must(os.MkdirAll(s.links, 0o755))
	s.must(os.Symlink(s.top, s.roots().Link(layout.StateLink)))
	for _, name := range []string{layout.AgentLink, layout.WatcherLink} {
		s.must(disk.Point(quickDisk{}, "test", s.roots().Link(name), filepath.Join(s.top, name)))
	}
	s.pointTo(s.m.To.Home)
	s.t.Cleanup(func() {
		if _, err := os.Stat(filepath.Join(folder, layout.AgentLink)); err != nil {
			s.t.Errorf("below the prefix: %v", err)
		}
	})
}

func (s *site) roots() layout.Roots { return layout.Roots{Top: s.top, Links: s.links} }

func (s *site) pointTo(home string) {
	for _, name := range []string{layout.AgentLink, layout.WatcherLink} {
		s.must(disk.Point(quickDisk{}, "test", s.roots().Target(home, name), s.roots().Link(name)))
	}
	s.must(os.WriteFile(layout.Path(s.top, layout.ActiveCommitFile), []byte(home), 0o600))
}

// switchAfter makes the old agent re-execute itself as the new one after d.
func (s *site) switchAfter(d time.Duration) {
	time.AfterFunc(d, func() { s.host.become(s.m.To.Home) })
}

func (s *site) watch() *Watch {
	w := &Watch{Top: s.top, Links: s.links, Disk: s.disk, Host: s.host, Log: slog.New(slog.NewTextHandler(s.lines, nil))}
	if s.reports {
		w.Server = s.server
	}
	return w
}

// scriptedServer accepts every report at once, or none.
type scriptedServer struct {
	s         *site
	away      bool
	hangs     bool // Flush lasts as long as it may
	good, bad int

	reports []Report
	pointer []string // where the pointer led when each came
}

func (s *scriptedServer) URL() string { return serverURL }

func (s *scriptedServer) Send(r Report) {
	if s.away {
		s.bad++
		return
	}
	s.good++
	s.reports = append(s.reports, r)
	s.pointer = append(s.pointer, s.s.leads(layout.AgentLink))
}

func (s *scriptedServer) Flush(ctx context.Context) {
	if s.hangs {
		<-ctx.Done()
	}
}

func (s *scriptedServer) Contact() (good, bad int) {
	good, bad = s.good, s.bad
	s.good, s.bad = 0, 0
	return good, bad
}

func (s *site) run(ctx context.Context) (*handoff.Outcome, error) { return s.watch().Run(ctx) }

func (s *site) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(s.top, name))
	return err == nil
}

func (s *site) leads(link string) string {
	target, err := os.Readlink(s.roots().Link(link))
	if err != nil {
		return err.Error()
	}
	return s.roots().HomeOf(target)
}

// settled returns an error unless the watch has ended as want: a runnable pointer, the
// outcome reported, and no marker.
func (s *site) settled(want handoff.Result, home string) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, link := range []string{layout.AgentLink, layout.WatcherLink} {
		check(s.leads(link) == home, "%s leads to %s, want %s", link, s.leads(link), home)
	}
	check(s.exists(home+"/"+layout.AgentLink), "%s has no program", home)
	check(s.host.runs() == home, "runs %q, want %s", s.host.runs(), home)
	p, err := s.previous()
	check(err == nil && (p == nil || s.exists(p.Home+"/"+layout.AgentLink)), "the kept version is %+v (%v), and its program is not there", p, err)
	if want == handoff.Committed {
		check(p != nil && p.Home == s.m.From.Home && !p.ReplacedAt.IsZero(), "the kept version is %+v, want %s", p, s.m.From.Home)
	}
	v, err := handoff.ReadVersions(quickDisk{}, s.top)
	if want == handoff.Committed {
		check(err == nil && v.Highest == s.m.To.FullVersion(), "the highest version is %q (%v), want %s", v.Highest, err, s.m.To.FullVersion())
	} else {
		check(err == nil && v.Highest == "", "the highest version is %q (%v), and nothing was committed", v.Highest, err)
	}
	o, err := handoff.ReadOutcome(quickDisk{}, s.top)
	check(err == nil && o != nil && o.Result == want && o.Archive == s.m.Archive, "outcome %+v, %v; want %s", o, err, want)
	for _, name := range []string{
		layout.MarkerFile, layout.MarkerFile + ".prev", layout.DecisionFile, layout.DecisionFile + ".prev",
		layout.RequestFile, layout.RequestFile + ".prev",
	} {
		check(!s.exists(name), "%s is still there", name)
	}
	return errors.Join(errs...)
}

func (s *site) wantSettled(want handoff.Result, home string) {
	s.t.Helper()
	if err := s.settled(want, home); err != nil {
		s.t.Errorf("%v\nlog:\n%s", err, s.lines)
	}
}

// previous returns the version that was replaced last, or nil.
func (s *site) previous() (*handoff.Version, error) {
	v, err := handoff.ReadVersions(quickDisk{}, s.top)
	list := v.Kept()
	if len(list) == 0 {
		return nil, err
	}
	return &list[len(list)-1], err
}
