package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/watcher/marker"
	"github.com/muster-fleet/muster/watcher/probe"
)

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

// scriptedHost runs at most one agent: whatever version the pointer under top
// leads to at the moment of a start. lives is by versioned home.
type scriptedHost struct {
	top   string
	lives map[string]life
	// manager restarts an ended agent after this long; 0 means nobody does.
	manager time.Duration
	refuse  error // what Restart answers, if not nil

	mu       sync.Mutex
	home     string
	pid      int
	started  time.Time
	ended    time.Time
	exits    int
	starts   int
	restarts int
}

func (h *scriptedHost) update() {
	if h.home != "" {
		if d := h.lives[h.home].dies; d > 0 && time.Since(h.started) >= d {
			h.home, h.ended = "", h.started.Add(d)
			h.exits++
		}
	}
	if h.home == "" && h.manager > 0 && !h.ended.IsZero() && time.Since(h.ended) >= h.manager {
		h.begin()
	}
}

func (h *scriptedHost) begin() {
	target, err := os.Readlink(filepath.Join(h.top, marker.AgentLink))
	if err != nil {
		return
	}
	home := filepath.ToSlash(filepath.Dir(target))
	if _, err := os.Stat(filepath.Join(h.top, home, marker.AgentLink)); err != nil {
		return
	}
	h.pid++
	h.home, h.started, h.starts = home, time.Now(), h.starts+1
}

// become is an agent that replaces itself in place: same number, other program.
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
	h.begin()
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
	h.begin()
	return nil
}

// site is an installation on a real disk in a temporary folder, switched to the
// new version a moment ago, with its scripted host.
type site struct {
	t     *testing.T
	top   string
	m     marker.Marker
	disk  disk.Disk
	host  *scriptedHost
	lines *bytes.Buffer
}

func newSite(t *testing.T) *site {
	t.Helper()
	top := t.TempDir()
	s := &site{t: t, top: top, m: testMarker(), disk: disk.OS{}, lines: new(bytes.Buffer)}
	s.m.CreatedAt = time.Now()
	for _, in := range []marker.Install{s.m.From, s.m.To} {
		s.install(in.Home)
	}
	s.must(os.MkdirAll(filepath.Join(top, "data/downloads"), 0o700))
	s.must(marker.Write(disk.OS{}, top, s.m))
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
	for _, name := range []string{marker.AgentLink, marker.WatcherLink} {
		s.must(os.WriteFile(filepath.Join(s.top, home, name), []byte(home), 0o700))
	}
}

func (s *site) pointTo(home string) {
	for _, name := range []string{marker.AgentLink, marker.WatcherLink} {
		s.must(disk.Point(disk.OS{}, "test", home+"/"+name, filepath.Join(s.top, name)))
	}
	s.must(os.WriteFile(filepath.Join(s.top, marker.ActiveCommitFile), []byte(home), 0o600))
}

// handOver has the old agent become the new one after d.
func (s *site) handOver(d time.Duration) {
	time.AfterFunc(d, func() { s.host.become(s.m.To.Home) })
}

func (s *site) watch() *Watch {
	return &Watch{Top: s.top, Disk: s.disk, Host: s.host, Log: slog.New(slog.NewTextHandler(s.lines, nil))}
}

func (s *site) run(ctx context.Context) (*marker.Outcome, error) { return s.watch().Run(ctx) }

func (s *site) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(s.top, name))
	return err == nil
}

func (s *site) leads(link string) string {
	target, err := os.Readlink(filepath.Join(s.top, link))
	if err != nil {
		return err.Error()
	}
	return filepath.ToSlash(filepath.Dir(target))
}

// settled returns what is wrong with a host on which a watch has ended as want:
// one runnable pointer, the outcome told, and nothing left to watch.
func (s *site) settled(want marker.Result, home string) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, link := range []string{marker.AgentLink, marker.WatcherLink} {
		check(s.leads(link) == home, "%s leads to %s, want %s", link, s.leads(link), home)
	}
	check(s.exists(home+"/"+marker.AgentLink), "%s has no program", home)
	check(s.host.runs() == home, "runs %q, want %s", s.host.runs(), home)
	o, err := marker.ReadOutcome(disk.OS{}, s.top)
	check(err == nil && o != nil && o.Result == want, "outcome %+v, %v; want %s", o, err, want)
	for _, name := range []string{marker.MarkerFile, marker.MarkerFile + ".prev", decisionFile, decisionFile + ".prev"} {
		check(!s.exists(name), "%s is still there", name)
	}
	return errors.Join(errs...)
}

func (s *site) wantSettled(want marker.Result, home string) {
	s.t.Helper()
	if err := s.settled(want, home); err != nil {
		s.t.Errorf("%v\nlog:\n%s", err, s.lines)
	}
}
