package component

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/check"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
	"github.com/muster-fleet/muster/testing/kit/simdisk"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// The host's folders, on its simulated disk.
const (
	top   = "/opt/muster"
	links = "/etc/muster-agent" // of the pointer
	etc   = "/etc/app"
)

// world is a host with a disk and a runtime that outlive its agents, and packages at a source.
type world struct {
	t        *testing.T
	disk     *simdisk.FS
	machine  *machine
	packages string
	agent    *agent
	repo     *tuftest.Repo
	floor    string
	unpacked int64 // what the publishers say that a package holds, if not 0
	policy   []agentapi.PolicyComponent
}

// machine is what a service manager knows. Its calls are those of an adapter.
type machine struct {
	mu        sync.Mutex
	installed map[string]string // home by component
	running   map[string]string
	pid       int
	restarts  map[string]int
	config    map[string]string // that a running component has read
	// stopped are the components that were stopped: no boot starts them.
	stopped map[string]bool
	// withheldAtBoot are those whose installed version no boot starts.
	withheldAtBoot map[string]bool
	// drained is what the hooks have made of a component.
	drained map[string]bool
	// wrongs are what no component may do: to run with state of another form than its own, or in
	// lockstep a version that the other hosts no longer run, or do not yet.
	wrongs  []string
	server  server
	notYet  int // how often the hook drain asks for another try
	calls   []string
	printed []string // by all components
	// fails has the calls that fail, by name; hangs those that wait for the end of ctx.
	fails, hangs map[string]bool
	// away means that the runtime does not answer: its socket is gone.
	away bool
	// pruned are the versions of which somebody has removed what the runtime had.
	pruned map[string]bool
	// crashes are versions, or contents of configuration, with which a component ends
	// whenever it is started.
	crashes map[string]bool
}

// server is what a server has decided of an upgrade of web in lockstep. Other hosts do what it
// says at once.
type server struct {
	from, to string
	until    agentapi.LockstepPhase
	undo     string
}

// coordinate lets an upgrade in lockstep go on once the host has reached what it may, and undoes
// it once it has reached a phase; empty: never.
func (w *world) coordinate(m *Manager, id string, undoAt agentapi.LockstepPhase) {
	var reached agentapi.LockstepPhase
	if d := m.component("web").report().UpgradeDetails; d != nil && d.Metadata.Lockstep != nil {
		reached = d.Metadata.Lockstep.Reached
	}
	var now server
	w.machine.set(func() {
		l := &w.machine.server
		next := slices.Index(agentapi.LockstepPhases, l.until) + 1
		switch {
		case l.undo != "" || l.until != reached || next == len(agentapi.LockstepPhases):
		case undoAt != "" && reached == undoAt:
			l.undo = "a host was lost"
		default:
			l.until = agentapi.LockstepPhases[next]
		}
		now = *l
	})
	m.Proceed("web", id, now.until, now.undo)
}

// agent is one process of the agent. before is called before each of its calls that have an
// effect, on the disk or on the machine; the call fails with its error. nil means nothing.
type agent struct {
	mu     sync.Mutex
	before func(simdisk.Call) error
	takes  time.Duration // for such a call
	// changed is called when a report has changed; nil: nothing is.
	changed func()
}

// opMachine is the label of calls to the machine.
const opMachine = "runtime"

// call is called before each call.
func (a *agent) call(c simdisk.Call) error {
	if a.before == nil || c.Kind == simdisk.Read {
		return nil
	}
	time.Sleep(a.takes)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.before(c)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, disk: simdisk.New(), packages: t.TempDir(), agent: &agent{}, policy: []agentapi.PolicyComponent{
		{Name: "web", Runtime: "model", Health: shortly}, {Name: "db", Runtime: "model", Health: shortly},
	}}
	for _, dir := range []string{top, links, etc} {
		if err := w.look().MkdirAll("test", dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.disk.SyncAll()
	w.machine = &machine{
		installed: map[string]string{}, running: map[string]string{}, restarts: map[string]int{}, config: map[string]string{},
		stopped: map[string]bool{}, withheldAtBoot: map[string]bool{}, drained: map[string]bool{},
		fails: map[string]bool{}, hangs: map[string]bool{}, crashes: map[string]bool{},
	}
	w.repo = tuftest.New(t)
	return w
}

// again returns a copy of the host, for a test.
func (w *world) again(t *testing.T) *world {
	next := *w
	next.t, next.disk, next.machine = t, w.disk.Clone(), w.machine.clone()
	return &next
}

// look returns the disk without faults.
func (w *world) look() disk.Disk { return w.disk.View(func(simdisk.Call) error { return nil }) }

func (w *world) read(path string) string {
	b, err := w.look().ReadFile("test", path)
	if err != nil {
		w.t.Error(err)
	}
	return string(b)
}

// reboot starts the host with what is left on its disk. Its service manager starts what is
// installed.
func (w *world) reboot(left *simdisk.FS) {
	w.disk = left
	m := w.machine
	m.set(func() {
		m.running = map[string]string{}
		for name, home := range m.installed {
			if !m.fails["start "+versionOf(home)] && !m.stopped[name] && !m.withheldAtBoot[name] {
				m.run(w.look(), name, home)
			}
		}
	})
}

// publish makes the package of a version of the component web, whose configuration file has
// the version in it.
func (w *world) publish(version string, change func(*manifest.Component)) {
	w.t.Helper()
	w.publishOf("web", version, change)
}

func (w *world) publishOf(name, version string, change func(*manifest.Component)) {
	w.t.Helper()
	c := manifest.Component{
		Name: name, Runtime: "model", Settings: map[string]any{"program": "bin/" + name},
		ConfigFiles: []manifest.ConfigFile{{Path: conf(name), From: "conf/" + name + ".conf", Mode: "0640"}},
	}
	if change != nil {
		change(&c)
	}
	files := map[string]string{"bin/" + name: "#!/bin/sh\n# " + version + "\n"}
	for _, f := range c.ConfigFiles {
		files[f.From] = "version " + version + "\n"
	}
	w.repo.SignFile(fakepkg.BuildComponent(w.t, w.packages, c, version, files))
}

func conf(name string) string { return etc + "/" + name + ".conf" }

// start starts an agent on the host.
func (w *world) start(a *agent) *Manager {
	w.t.Helper()
	w.agent = a
	m := New(Options{
		Disk: w.disk.View(a.call), Top: top, Links: links, GOOS: goos, GOARCH: goarch,
		Adapters: map[string]runtime.Adapter{"model": model{w.machine, a, w.look()}},
		Packages: source{w}, Check: func(context.Context, string, manifest.Check) error { return nil },
		PolicyCheck: func(context.Context, manifest.Check) error { return nil },
		Execute:     hooks{w.machine, a, w.look()}.execute,
		Account:     func(string, string) (disk.Owner, error) { return disk.Own, nil },
		Keep:        keep, Changed: func(bool) {
			if a.changed != nil {
				a.changed()
			}
		}, Log: slog.New(slog.DiscardHandler),
	})
	if err := m.Follow(w.t.Context(), w.policy); err != nil {
		w.t.Fatal(err)
	}
	return m
}

// keep is how many versions a host keeps besides the installed one.
var keep = handoff.DefaultLimits()

// shortly is how components are observed: long enough for a crash loop to show.
var shortly = agentapi.ComponentHealth{WaitSeconds: 5}

func order(id, version string) request.Request {
	return request.Request{ID: "item-" + id, ActionID: id, Version: version, Component: agentapi.ComponentData{UpgradeID: id, Name: "web", Runtime: "model"}}
}

// expect checks what the host runs, what its configuration file says, and that nothing is
// pending.
func (w *world) expect(version string) {
	w.t.Helper()
	config := ""
	if version != "" {
		config = "version " + version + "\n"
	}
	for _, what := range w.wrong("web", version, config) {
		w.t.Error(what)
	}
}

// wrong lists what is not as it has to be once a component runs a version with a
// configuration, or none.
func (w *world) wrong(name, version, config string) (wrong []string) {
	complain := func(format string, args ...any) {
		wrong = append(wrong, name+": "+fmt.Sprintf(format, args...))
	}
	m := w.machine
	m.mu.Lock()
	running, installed, read, drained := m.running[name], m.installed[name], m.config[name], m.drained[name]
	wrong = slices.Clone(m.wrongs)
	m.mu.Unlock()
	if drained {
		complain("it is still drained")
	}
	if form, want := formAt(w.look(), name), formOf(version); form != want {
		complain("its state has the form %q, want %q", form, want)
	}
	d, dir := w.look(), filepath.Join(top, FolderName, name)
	link, _ := d.Readlink("test", filepath.Join(dir, runtime.CurrentLink))
	file, _ := d.ReadFile("test", conf(name))
	state, err := readState(d, dir)
	if err != nil {
		complain("state: %v", err)
	}
	switch {
	case version == "":
		if running != "" || installed != "" || link != "" || state.installed() != "" {
			complain("running %q, installed %q, link %q, recorded %q: want nothing", running, installed, link, state.installed())
		}
	case !strings.HasPrefix(filepath.Base(running), name+"-"+version+"-") || running != installed || filepath.Base(link) != filepath.Base(running) || state.installed() != version:
		complain("running %q, installed %q, link %q, recorded %q: want version %s", running, installed, link, state.installed(), version)
	default:
		if _, err := install.CheckIntact(context.Background(), d, dir, link); err != nil {
			complain("version %s: %v", version, err)
		}
		if read != string(file) {
			complain("it runs with the configuration %q, and the file is %q", read, file)
		}
	}
	if string(file) != config {
		complain("configuration is %q, want %q", file, config)
	}
	// That of an upgrade which is done only waits for the next one, if it could not be removed.
	if j, err := steps.Read[primitive.Journal](journalOf(d, dir)); err != nil || j != nil && !state.isCompleted(j.Desired.ID) {
		complain("the journal is left: %v", err)
	}
	for _, v := range state.OnHost {
		if _, err := install.CheckIntact(context.Background(), d, dir, v.Home); err != nil {
			complain("version %s on the host: %v", v.FullVersion(), err)
		}
	}
	return wrong
}

// staged returns the versions of web that are staged.
func (w *world) staged() []string {
	s, _ := readState(w.look(), filepath.Join(top, FolderName, "web")) // wrong reads it too
	return names(s.Staged())
}

// homes returns the versions on the host.
func (w *world) homes() []string {
	var out []string
	for _, name := range w.names("data") {
		out = append(out, strings.Split(name, "-")[1])
	}
	slices.Sort(out)
	return out
}

// names returns what is in a folder of the component's.
func (w *world) names(folder string) []string {
	entries, _ := w.look().ReadDir("test", filepath.Join(top, FolderName, "web", folder))
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// source has the packages of the world.
type source struct{ w *world }

func (s source) Expect(ctx context.Context, archive, _ string) (*trust.Expectation, error) {
	e, err := s.w.repo.Authority().Expect(ctx, archive, nil)
	if e != nil {
		e.Floor = s.w.floor
		if s.w.unpacked > 0 {
			e.Unpacked = s.w.unpacked
		}
	}
	return e, err
}

func (s source) Floor(context.Context, string) string { return s.w.floor }

func (s source) Fetch(_ context.Context, dir, archive, _ string, _ download.Want, report func(download.Progress)) error {
	report(download.Progress{Percent: 50})
	content, err := os.ReadFile(filepath.Join(s.w.packages, archive))
	if err != nil {
		return err
	}
	return disk.WriteFile(s.w.disk.View(s.w.agent.call), "download", filepath.Join(dir, archive), content, 0o600)
}

// model is an adapter of the machine.
type model struct {
	m    *machine
	a    *agent
	disk disk.Disk
}

var _ runtime.Adapter = model{}

// do makes a call with an effect.
func (m model) do(ctx context.Context, what string, act func(*machine) error) error {
	m.m.mu.Lock()
	m.m.calls = append(m.m.calls, what)
	hangs, fails, away := m.m.hangs[what], m.m.fails[what], m.m.away
	m.m.mu.Unlock()
	if away {
		return errAway(what)
	}
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if fails {
		m.m.set(func() { m.m.printed = append(m.m.printed, what+": Address already in use") })
		return fmt.Errorf("%s does not work", what)
	}
	if err := m.a.call(simdisk.Call{Op: opMachine, Name: what, Kind: simdisk.Change}); err != nil {
		return err
	}
	m.m.mu.Lock()
	defer m.m.mu.Unlock()
	return act(m.m)
}

// errAway is the error of a runtime that does not answer.
func errAway(what string) error {
	return fmt.Errorf("%s: the engine is away, %w: %w", what, runtime.ErrTransient, fs.ErrNotExist)
}

// runs returns the version of a component that runs, "" for none.
func (m *machine) runs(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if home := m.running[name]; home != "" {
		return versionOf(home)
	}
	return ""
}

// kill ends the runtime, and with it the components, which it takes for stopped when it is back.
func (m *machine) kill(back time.Duration) {
	m.set(func() { m.away = true; clear(m.running) })
	time.Sleep(back)
	m.set(func() { m.away = false })
}

// see makes a call without an effect.
func (m model) see(ctx context.Context, what string) error {
	return m.do(ctx, what, func(*machine) error { return nil })
}

func (m model) Check(ctx context.Context, _ *runtime.Release) error  { return m.see(ctx, "check") }
func (m model) Verify(ctx context.Context, _ *runtime.Release) error { return m.see(ctx, "verify") }
func (m model) Acquire(ctx context.Context, _ *runtime.Release, _ func(float64)) error {
	return m.see(ctx, "acquire")
}

func (m model) Acquired(_ context.Context, r *runtime.Release) (bool, error) {
	m.m.mu.Lock()
	defer m.m.mu.Unlock()
	if m.m.away {
		return false, errAway("look for its image")
	}
	return !m.m.pruned[versionOf(r.Home)], nil
}

func (m model) Discard(ctx context.Context, _ *runtime.Release) error { return m.see(ctx, "discard") }

func (m model) Backup(ctx context.Context, _ *runtime.Release, _ string) error {
	return m.see(ctx, "backup")
}

func (m model) Status(_ context.Context, r *runtime.Release) (runtime.Status, error) {
	m.m.mu.Lock()
	defer m.m.mu.Unlock()
	if m.m.away {
		return runtime.Status{}, errAway("status")
	}
	home, runs := m.m.running[r.Name]
	s := runtime.Status{Running: runs, Ready: runs, Home: home, PID: m.m.pid, Restarts: m.m.restarts[r.Name]}
	if runs && (m.m.crashes[versionOf(home)] || m.m.crashes[m.m.config[r.Name]]) {
		m.m.restarts[r.Name]++
		m.m.printed = append(m.m.printed, "", versionOf(home)+" cannot \x1b[31mbind\n")
	}
	return s, nil
}

// versionOf returns the version in the name of a home.
func versionOf(home string) string { return strings.Split(filepath.Base(home), "-")[1] }

func (m model) Stop(ctx context.Context, r *runtime.Release) error {
	return m.do(ctx, "stop", func(w *machine) error {
		delete(w.running, r.Name)
		w.stopped[r.Name] = true
		return nil
	})
}

func (m model) Start(ctx context.Context, r *runtime.Release) error {
	return m.do(ctx, "start "+versionOf(r.Home), func(w *machine) error {
		target, err := m.disk.Readlink("model", r.Current())
		if err != nil {
			return err
		}
		if home := filepath.Join(r.Dir, target); home != r.Home || w.installed[r.Name] != r.Home {
			return fmt.Errorf("%s is to start, the link leads to %s, and installed is %s", r.Home, home, w.installed[r.Name])
		}
		delete(w.stopped, r.Name)
		w.run(m.disk, r.Name, r.Home)
		w.pid++
		return nil
	})
}

func (m model) Install(ctx context.Context, to, _ *runtime.Release) error {
	return m.do(ctx, "install", func(w *machine) error {
		if home := w.running[to.Name]; home != "" {
			return fmt.Errorf("installed while %s runs", home)
		}
		w.installed[to.Name], w.withheldAtBoot[to.Name] = to.Home, to.WithheldAtBoot
		return nil
	})
}

func (m model) Installed(_ context.Context, r *runtime.Release) (bool, error) {
	m.m.mu.Lock()
	defer m.m.mu.Unlock()
	return m.m.installed[r.Name] == r.Home, nil
}

func (m model) Restore(ctx context.Context, to, from *runtime.Release, _ string) error {
	return m.do(ctx, "restore", func(w *machine) error {
		if from == nil {
			delete(w.installed, to.Name)
		} else {
			w.installed[to.Name], w.withheldAtBoot[to.Name] = from.Home, from.WithheldAtBoot
		}
		return nil
	})
}

func (m model) Keep(ctx context.Context, _, _ *runtime.Release) error { return m.see(ctx, "keep") }
func (m model) ReloadDaemon(ctx context.Context, _ *runtime.Release) error {
	return m.see(ctx, "reload daemon")
}

func (m model) Reload(ctx context.Context, r *runtime.Release) error {
	return m.do(ctx, "reload "+versionOf(r.Home), func(w *machine) error {
		home, runs := w.running[r.Name]
		if !runs {
			return errors.New("what does not run cannot be reloaded")
		}
		w.run(m.disk, r.Name, home)
		return nil
	})
}
func (m model) Remove(ctx context.Context, _ *runtime.Release) error { return m.see(ctx, "remove") }
func (m model) Logs(_ context.Context, _ *runtime.Release, lines int) ([]string, error) {
	m.m.mu.Lock()
	defer m.m.mu.Unlock()
	return slices.Clone(m.m.printed[max(0, len(m.m.printed)-lines):]), nil
}

// run has a component run, with the configuration that it finds. mu is locked.
func (m *machine) run(d disk.Disk, name, home string) {
	content, _ := d.ReadFile("component", conf(name))
	m.running[name], m.config[name] = home, string(content)
	if l := m.server; l.from != "" && name == "web" {
		switch version := versionOf(home); {
		case l.until.Reaches(agentapi.LockstepSwitch) && version == l.from:
			m.wrongs = append(m.wrongs, fmt.Sprintf("%s was started, and other hosts change to %s", version, l.to))
		case !l.until.Reaches(agentapi.LockstepStart) && version == l.to:
			m.wrongs = append(m.wrongs, fmt.Sprintf("%s was started while the other hosts are at %q", version, l.until))
		}
	}
	want := formOf(versionOf(home))
	switch is := formAt(d, name); {
	case is == "" && want != "":
		if err := writeForm(d, name, want); err != nil {
			m.wrongs = append(m.wrongs, err.Error())
		}
	case is != want:
		m.wrongs = append(m.wrongs, fmt.Sprintf("%s was started with state of the form %q", filepath.Base(home), is))
	}
}

// formOf returns the form of the state of a version, empty for versions without state: only those
// of the major version 4 have any.
func formOf(version string) string {
	if !strings.HasPrefix(version, "4.") {
		return ""
	}
	return version[:3]
}

func stateOf(name string) string { return "/var/lib/" + name }

func formAt(d disk.Disk, name string) string {
	b, _ := d.ReadFile("component", stateOf(name)+"/form")
	return string(b)
}

// writeForm is what a component or one of its migrations does, which makes it durable.
func writeForm(d disk.Disk, name, form string) error {
	return errors.Join(
		d.MkdirAll("component", stateOf(name), 0o750), d.SyncDir("component", filepath.Dir(stateOf(name))),
		disk.WriteFile(d, "component", stateOf(name)+"/form", []byte(form), 0o640))
}

// hooks are the programs of packages: drain and undrain, form FORM, which brings the state to a
// form, and save, which copies it.
type hooks struct {
	m    *machine
	a    *agent
	disk disk.Disk
}

func (h hooks) execute(ctx context.Context, p check.Program) (int, error) {
	argv := slices.Concat([]string{filepath.Base(p.Exec[0])}, p.Exec[1:])
	what := strings.Join(argv, " ")
	env := func(name string) string {
		for _, v := range p.Env {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}
	name := env("MUSTER_COMPONENT")
	var fails, hangs bool
	h.m.set(func() {
		h.m.calls = append(h.m.calls, what)
		fails, hangs = h.m.fails[what], h.m.hangs[what]
		if h.m.notYet > 0 && argv[0] == "drain" {
			h.m.notYet--
			fails = true
		}
	})
	for _, half := range []string{"begins", "ends"} {
		if err := h.a.call(simdisk.Call{Op: opMachine, Name: what + " " + half, Kind: simdisk.Change}); err != nil {
			return -1, err
		}
		if half == "begins" && argv[0] == "form" {
			if err := writeForm(h.disk, name, "half of "+argv[1]); err != nil {
				return -1, err
			}
		}
		if hangs {
			<-ctx.Done()
			return -1, errors.New(what + ": killed")
		}
	}
	switch {
	case fails && argv[0] == "drain":
		return manifest.HookNotYet, errors.New("drain: exit status 75")
	case fails:
		return 1, errors.New(what + `: exit status 1, saying "no such table"`)
	}
	switch argv[0] {
	case "drain", "undrain":
		h.m.set(func() { h.m.drained[name] = argv[0] == "drain" })
	case "form":
		return 0, writeForm(h.disk, name, argv[1])
	case "save":
		return 0, disk.WriteFile(h.disk, "component", env("MUSTER_BACKUP")+"/saved", []byte(formAt(h.disk, name)), 0o600)
	}
	return 0, nil
}

func (m *machine) clone() *machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &machine{
		installed: maps.Clone(m.installed), running: maps.Clone(m.running), restarts: maps.Clone(m.restarts), config: maps.Clone(m.config), pid: m.pid,
		stopped: maps.Clone(m.stopped), withheldAtBoot: maps.Clone(m.withheldAtBoot), drained: maps.Clone(m.drained), wrongs: slices.Clone(m.wrongs), notYet: m.notYet, server: m.server,
		fails: maps.Clone(m.fails), hangs: maps.Clone(m.hangs), crashes: maps.Clone(m.crashes), calls: slices.Clone(m.calls), printed: slices.Clone(m.printed),
	}
}

// since returns the machine's calls from an index on.
func (m *machine) since(n int) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls[n:])
}

func (m *machine) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.calls)
}

func (m *machine) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}
