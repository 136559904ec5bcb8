package component

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/prooffile"
	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/testing/kit/simdisk"
)

// scenario is an upgrade whose every call is interrupted.
type scenario struct {
	name, about string
	// before are the upgrades that the host has behind it, and after them a stage.
	before []request.Request
	staged *request.Request
	// makes prepares the machine for what happens; nil: nothing.
	makes func(*machine)
	// orders are done at the same time, and a stage from just before them on.
	orders []request.Request
	stage  *request.Request
	// undoAt is the phase at which the server undoes an order in lockstep; empty: it does not.
	undoAt agentapi.LockstepPhase
	ends   ending
}

// ending is the only good end of a scenario, with and without a fault.
type ending struct {
	web, db string // versions that run; empty: none
	// config is the configuration of web; empty: that of its version.
	config string
	// undone means that the order ends with an error.
	undone bool
	// staged is the version of web that must be staged; empty: any or none.
	staged string
}

func (e ending) String() string {
	s := "nothing"
	if e.web != "" {
		s = "web " + e.web
	}
	if e.db != "" {
		s += " and db " + e.db
	}
	if e.config != "" {
		s += ", " + strings.TrimSpace(e.config)
	}
	if e.undone {
		s += "; undone"
	}
	if e.staged != "" {
		s += ", " + e.staged + " staged"
	}
	return s
}

const (
	newConfig = "port 81\n"
	badConfig = "port none\n"
)

var scenarios = func() []scenario {
	v1, v2, db, back := order("first", "1.0.0"), order("second", "2.0.0"), order("db", "1.0.0"), order("back", "1.0.0")
	db.Component.Name, back.Rollback = "db", true
	restarts := order("restarts", "1.1.0") // its package has no reload
	config := func(version, content string) []request.Request {
		r := order("config", version)
		r.Component.Files = []agentapi.RenderedFile{rendered(conf("web"), content)}
		return []request.Request{r}
	}
	stateful, next, later := order("stateful", "4.2.0"), order("next", "4.3.0"), order("later", "4.4.0")
	bare, bareNext := order("bare", "4.2.1"), order("bare-next", "4.5.0")
	down := order("down", "4.2.0")
	down.Rollback = true
	together, togetherDown := later, down
	together.Component.Lockstep, togetherDown.Component.Lockstep = &agentapi.LockstepData{Until: agentapi.LockstepDrain}, &agentapi.LockstepData{Until: agentapi.LockstepDrain}
	local := back
	local.ActionID, local.Local, local.Version = "", true, "2.0.0"
	cannotStart := func(m *machine) { m.fails["start 2.0.0"] = true }
	return []scenario{
		{
			name: "first_installation", about: "a version is installed where none was",
			orders: []request.Request{v2}, ends: ending{web: "2.0.0"},
		},
		{
			name: "bad_first_installation", about: "likewise, and it cannot start",
			makes: cannotStart, orders: []request.Request{v2}, ends: ending{undone: true},
		},
		{
			name: "good_upgrade", about: "a good version is installed and observed, and stays",
			before: []request.Request{v1}, orders: []request.Request{v2}, ends: ending{web: "2.0.0"},
		},
		{
			name: "third_version", about: "likewise, on a host that keeps an older version, which is removed",
			before: []request.Request{v1, restarts}, orders: []request.Request{v2}, ends: ending{web: "2.0.0"},
		},
		{
			name: "cannot_start", about: "the new version cannot start",
			before: []request.Request{v1}, makes: cannotStart, orders: []request.Request{v2}, ends: ending{web: "1.0.0", undone: true},
		},
		{
			name: "unhealthy_later", about: "the new version starts, and crashes again and again while it is observed",
			before: []request.Request{v1}, makes: func(m *machine) { m.crashes["2.0.0"] = true }, orders: []request.Request{v2}, ends: ending{web: "1.0.0", undone: true},
		},
		{
			name: "kept_version", about: "a rollback to the version that the host has kept",
			before: []request.Request{v1, v2}, orders: []request.Request{back}, ends: ending{web: "1.0.0"},
		},
		{
			name: "configuration_only", about: "the version stays, and reads the new configuration while it runs",
			before: []request.Request{v1}, orders: config("1.0.0", newConfig), ends: ending{web: "1.0.0", config: newConfig},
		},
		{
			name: "bad_configuration", about: "likewise, and crashes with it",
			before: []request.Request{v1}, orders: config("1.0.0", badConfig), ends: ending{web: "1.0.0", undone: true},
		},
		{
			name: "bad_configuration_restarted", about: "likewise, for a component that is restarted to read its configuration",
			before: []request.Request{restarts}, orders: config("1.1.0", badConfig), ends: ending{web: "1.1.0", undone: true},
		},
		{
			name: "two_components", about: "two components are upgraded at the same time",
			before: []request.Request{v1}, orders: []request.Request{v2, db}, ends: ending{web: "2.0.0", db: "1.0.0"},
		},
		{
			name: "stage", about: "a version is staged, and nothing is stopped",
			before: []request.Request{v1}, stage: &v2, ends: ending{web: "1.0.0", staged: "2.0.0"},
		},
		{
			name: "staged_version", about: "an upgrade to the version that was staged, which is not fetched again",
			before: []request.Request{v1}, staged: &v2, orders: []request.Request{v2}, ends: ending{web: "2.0.0"},
		},
		{
			name: "bad_staged_version", about: "a switch on the host to the version that was staged, which cannot start and stays staged",
			before: []request.Request{v1}, staged: &v2, makes: cannotStart, orders: []request.Request{local}, ends: ending{web: "1.0.0", undone: true, staged: "2.0.0"},
		},
		{
			name: "migrates_up", about: "a version with hooks and state is upgraded over two migrations",
			before: []request.Request{stateful}, orders: []request.Request{later}, ends: ending{web: "4.4.0"},
		},
		{
			name: "migration_fails", about: "the second of two migrations fails, and the copy of the state is put back",
			before: []request.Request{stateful}, makes: func(m *machine) { m.fails["form 4.4"] = true }, orders: []request.Request{later}, ends: ending{web: "4.2.0", undone: true},
		},
		{
			name: "migrated_unhealthy", about: "the new version crashes again and again with its migrated state, and the copy is put back",
			before: []request.Request{stateful}, makes: func(m *machine) { m.crashes["4.4.0"] = true }, orders: []request.Request{later}, ends: ending{web: "4.2.0", undone: true},
		},
		{
			name: "migrates_down", about: "a rollback to a kept version, whose state is brought back by a migration",
			before: []request.Request{stateful, next}, orders: []request.Request{down}, ends: ending{web: "4.2.0"},
		},
		{
			name: "migrates_back", about: "likewise crashes the new version, and without a copy the migrations are undone by their downs",
			before: []request.Request{bare}, makes: func(m *machine) { m.crashes["4.5.0"] = true }, orders: []request.Request{bareNext}, ends: ending{web: "4.2.1", undone: true},
		},
		{
			name: "lockstep", about: "an upgrade in lockstep over two migrations, which waits for the other hosts after each phase",
			before: []request.Request{stateful}, staged: &later, orders: []request.Request{together}, ends: ending{web: "4.4.0"},
		},
		{
			name: "lockstep_down", about: "likewise, back to a kept version",
			before: []request.Request{stateful, next}, orders: []request.Request{togetherDown}, ends: ending{web: "4.2.0"},
		},
		{
			name: "lockstep_undone", about: "likewise, and the server undoes it once the state is copied",
			before: []request.Request{stateful}, staged: &later, orders: []request.Request{together}, undoAt: agentapi.LockstepBackup, ends: ending{web: "4.2.0", undone: true},
		},
		{
			name: "lockstep_stays_stopped", about: "the second migration fails after other hosts have changed: the component stays stopped until an operator has mended it, and orders the version again",
			before: []request.Request{stateful}, staged: &later, makes: func(m *machine) { m.fails["form 4.4"] = true }, orders: []request.Request{together}, ends: ending{web: "4.4.0"},
		},
		{
			name: "stage_overtaken", about: "an upgrade begins while another version is staged, and ends the stage",
			before: []request.Request{v1}, stage: &v2, orders: []request.Request{restarts}, ends: ending{web: "1.1.0"},
		},
	}
}()

// wrong lists what is not as it has to be at the end. errs are those of the orders.
func (e ending) wrong(w *world, errs []error) []string {
	var wrong []string
	config := e.config
	if config == "" && e.web != "" {
		config = "version " + e.web + "\n"
	}
	dbConfig := ""
	if e.db != "" {
		dbConfig = "version " + e.db + "\n"
	}
	if err := errors.Join(errs...); (err != nil) != e.undone {
		wrong = append(wrong, fmt.Sprintf("the orders ended with the error %v", err))
	}
	if e.staged != "" && !slices.Contains(w.staged(), e.staged) {
		wrong = append(wrong, fmt.Sprintf("staged is %v, want %s", w.staged(), e.staged))
	}
	return slices.Concat(wrong, w.wrong("web", e.web, config), w.wrong("db", e.db, dbConfig))
}

// fault is a kind of fault.
type fault string

const (
	faultKill fault = "kill"
	faultHalt fault = "halt"
	faultLose fault = "lose"
	faultTorn fault = "torn"
	faultEIO  fault = "eio"
	faultFull fault = "full"
)

var faults = []fault{faultKill, faultHalt, faultLose, faultTorn, faultEIO, faultFull}

const (
	// killedFor is how long an agent is away that was killed, and offFor a host whose power
	// was cut. A host that was halted is off for so long that no checkpoint counts.
	killedFor = 3 * time.Second
	offFor    = time.Minute
	haltedFor = time.Hour
	// fullFor is how long a disk stays full: longer than the first retry takes.
	fullFor = 2 * time.Minute
	// retryAfter is how long the daemon waits before it tries an upgrade again.
	retryAfter = time.Minute
	// operatorAfter is how long it takes until somebody has seen that an upgrade could not
	// be undone, and has made room on the disk.
	operatorAfter = time.Hour
	// maxTries bounds the retries and new orders after a fault.
	maxTries = 5
	// callTakes is how long a call takes. So two upgrades alternate, and do in every run.
	callTakes = time.Millisecond
	// overtakenAfter is half of what a stage takes.
	overtakenAfter = 60 * callTakes
	// maxShown bounds the bad ends that are shown for one fault.
	maxShown = 3
)

// A test counts all faults, and runs those of one in so many calls or torn writes; `go tool
// mage proof` runs all.
const (
	tornStride    = 30
	failingStride = 8
	// furtherEvery is likewise one in how many hosts that is upgraded once more.
	furtherEvery = 10
)

// strides returns one in how many calls, and in how many torn writes at one of them, a fault
// runs.
func (f fault) strides() (calls, torn int) {
	switch {
	case prooffile.Whole():
		return 1, 1
	case f == faultTorn:
		return 1, tornStride
	case f == faultEIO, f == faultFull:
		return failingStride, 1
	}
	return 1, 1
}

// point is a point at which an upgrade is interrupted, just before a call.
type point struct {
	call  simdisk.Call
	world *world
	at    time.Duration // since the beginning
}

// at reports whether there is such a fault at a point.
func (f fault) at(p point) bool {
	onDisk := p.call.Op != opMachine && p.call.Op != opEnd
	switch f {
	case faultKill:
		return p.call.Op != opEnd
	case faultEIO:
		return onDisk
	case faultFull:
		return onDisk && p.call.NeedsSpace()
	}
	return true
}

// opEnd is the label of the point after the end, where what is still not durable may be lost.
const opEnd = "the end"

// do does the orders of a scenario as the daemon does. After a fault of the disk an operator
// orders again what could not be undone.
func (s *scenario) do(t *testing.T, w *world, a *agent, attempt int, operator bool) []error {
	m := w.start(a)
	errs := make([]error, len(s.orders))
	var all sync.WaitGroup
	if s.stage != nil {
		all.Go(func() {
			for _, r := range append(m.Interrupted(), *s.stage) {
				stageToEnd(t.Context(), m, r)
			}
		})
	}
	for i, r := range s.orders {
		r.Interrupted = attempt - 1
		all.Go(func() {
			time.Sleep(callTakes * time.Duration(i) / time.Duration(len(s.orders)))
			if s.stage != nil {
				time.Sleep(overtakenAfter)
			}
			if r.Component.Lockstep != nil {
				errs[i] = s.together(t.Context(), w, m, r)
				return
			}
			errs[i] = finish(t.Context(), m, r, operator)
		})
	}
	all.Wait()
	return errs
}

// stageToEnd does one stage until it has ended.
func stageToEnd(ctx context.Context, m *Manager, r request.Request) {
	for range maxTries {
		var f *request.Failure
		if err := m.Stage(ctx, r); !errors.As(err, &f) || !f.Transient {
			return
		}
		time.Sleep(retryAfter)
	}
}

// finish does one order until it has ended.
func finish(ctx context.Context, m *Manager, r request.Request, operator bool) (err error) {
	for range maxTries {
		err = m.Upgrade(ctx, r)
		var f *request.Failure
		switch {
		case !errors.As(err, &f):
			return err
		case f.Broken && operator:
			time.Sleep(operatorAfter)
			r.ID, r.Component.UpgradeID, r.ActionID = r.ID+"-again", r.Component.UpgradeID+"-again", r.ActionID+"-again"
		case f.Transient:
			time.Sleep(retryAfter)
		default:
			return err
		}
		r.Interrupted = 0
	}
	return fmt.Errorf("given up after %d tries: %w", maxTries, err)
}

// together does an order in lockstep with other hosts. What has failed is ordered again by an
// operator who has mended it: a new rollout if the hosts have gone back, else only for this host.
func (s *scenario) together(ctx context.Context, w *world, m *Manager, r request.Request) (err error) {
	for range maxTries {
		w.machine.set(func() {
			if l := &w.machine.server; l.from == "" {
				*l = server{from: versionOf(w.machine.installed["web"]), to: r.Version, until: r.Component.Lockstep.Until}
			}
		})
		w.agent.changed = func() { w.coordinate(m, r.ID, s.undoAt) }
		w.coordinate(m, r.ID, s.undoAt)
		err = m.Upgrade(ctx, r)
		var f *request.Failure
		if !errors.As(err, &f) || errors.Is(err, steps.ErrCancelled) {
			return err
		}
		r.Interrupted = 0
		if f.Transient {
			time.Sleep(retryAfter)
			continue
		}
		time.Sleep(operatorAfter)
		r.ID, r.Component.UpgradeID, r.ActionID = r.ID+"-again", r.Component.UpgradeID+"-again", r.ActionID+"-again"
		w.machine.set(func() {
			clear(w.machine.fails)
			if l := &w.machine.server; !l.until.Reaches(agentapi.LockstepSwitch) {
				*l = server{}
			}
		})
	}
	return fmt.Errorf("given up after %d tries: %w", maxTries, err)
}

// record runs a scenario without a fault and returns all its points.
func (s *scenario) record(t *testing.T, begin *world) (points []point) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began, w := time.Now(), begin.again(t)
		add := func(c simdisk.Call) { points = append(points, point{c, w.again(t), time.Since(began)}) }
		a := &agent{takes: callTakes, before: func(c simdisk.Call) error {
			add(c)
			return nil
		}}
		errs := s.do(t, w, a, 1, false)
		if wrong := s.ends.wrong(w, errs); len(wrong) > 0 {
			t.Fatalf("it does not end well without a fault:\n%s", strings.Join(wrong, "\n"))
		}
		add(simdisk.Call{Op: opEnd})
	})
	return points
}

// proof is one scenario with all its points, and what is known of its ends.
type proof struct {
	*scenario
	begin  *world
	points []point
	counts map[fault]int
	bad    int
	ended  map[string][]string // what is wrong at the end of a world, by its key
}

// resume continues a scenario in what a fault has left of a world. Many faults leave the same.
func (p *proof) resume(t *testing.T, w *world, at, off time.Duration) []string {
	m := w.machine
	key := fmt.Sprintf("%x %v %v %v %v %v %v %v %v %v %v", w.disk.Sum(), m.installed, m.running, m.restarts, m.config, m.stopped, m.drained, m.wrongs, m.server, m.fails, off)
	if wrong, known := p.ended[key]; known {
		return wrong
	}
	var wrong []string
	further := prooffile.Whole() || len(p.ended)%furtherEvery == 0
	synctest.Test(t, func(t *testing.T) {
		w.t = t
		time.Sleep(at + off)
		wrong = p.ends.wrong(w, p.do(t, w, &agent{}, 2, false))
		if len(wrong) == 0 && further {
			wrong = p.upgradeFurther(w)
		}
	})
	p.ended[key] = wrong
	return wrong
}

// upgradeFurther does one more upgrade of each component that runs. After it nothing may be
// left of any before.
func (s *scenario) upgradeFurther(w *world) (wrong []string) {
	e := s.ends
	w.machine.set(func() { clear(w.machine.fails) }) // whoever has published the next version has mended it
	for _, name := range []string{"web", "db"} {
		if name == "db" && e.db == "" {
			continue
		}
		version := "3.0.0"
		if formOf(e.web) != "" && name == "web" {
			version = "4.9.0" // state keeps its major version
		}
		r := order("further-"+name, version)
		r.Component.Name = name
		if err := w.start(&agent{}).Upgrade(w.t.Context(), r); err != nil {
			return append(wrong, fmt.Sprintf("it ended well, but %s cannot be upgraded any more: %v", name, err))
		}
		wrong = append(wrong, w.wrong(name, version, "version "+version+"\n")...)
	}
	if homes := w.homes(); len(homes) > keep.Previous+1+len(w.staged()) {
		wrong = append(wrong, fmt.Sprintf("after a further upgrade the host has the versions %v", homes))
	}
	for name := range w.disk.Tree("/") {
		file := filepath.Base(name)
		if file == journalFile || file == stageJournalFile || strings.HasSuffix(file, layout.NewSuffix) || strings.HasSuffix(file, ".muster-write-check") ||
			strings.HasPrefix(file, layout.StagingPrefix) || filepath.Base(filepath.Dir(name)) == "downloads" {
			wrong = append(wrong, "after a further upgrade this is left: "+name)
		}
	}
	return wrong
}

// failAt runs the scenario with a disk on which a call fails.
func (p *proof) failAt(t *testing.T, f fault, i int) (wrong []string) {
	synctest.Test(t, func(t *testing.T) {
		n, hit := 0, false
		var until time.Time
		a := &agent{takes: callTakes, before: func(c simdisk.Call) error {
			if n++; n == i+1 {
				if hit = c == p.points[i].call; hit && f == faultEIO {
					return syscall.EIO
				}
				until = time.Now().Add(fullFor)
			}
			if f == faultFull && c.Op != opMachine && c.NeedsSpace() && time.Now().Before(until) {
				return syscall.ENOSPC
			}
			return nil
		}}
		w := p.begin.again(t)
		wrong = p.ends.wrong(w, p.do(t, w, a, 1, true))
		if prooffile.Whole() || i%furtherEvery == 0 {
			wrong = append(wrong, p.upgradeFurther(w)...)
		}
		if !hit {
			wrong = append(wrong, "this call was not made this time: runs differ")
		}
	})
	return wrong
}

// interrupt runs the scenario with a fault at each call.
func (p *proof) interrupt(t *testing.T, f fault) {
	calls, torn := f.strides()
	shown := 0
	for i, at := range p.points {
		if !f.at(at) {
			continue
		}
		check := func(run bool, how string, end func() []string) {
			p.counts[f]++
			if !run {
				return
			}
			if wrong := end(); len(wrong) > 0 {
				p.bad++
				if shown++; shown <= maxShown {
					t.Errorf("%s before call %d of %d, %s %s %s:\n%s", how, i+1, len(p.points)-1, at.call.Op, at.call.Name, at.call.Path, strings.Join(wrong, "\n"))
				}
			}
		}
		run := i%calls == 0
		cut := func(c simdisk.Cut) func() []string {
			return func() []string {
				w := at.world.again(t)
				w.reboot(w.disk.After(c))
				return p.resume(t, w, at.at, offFor)
			}
		}
		switch f {
		case faultKill:
			check(run, string(f), func() []string { return p.resume(t, at.world.again(t), at.at, killedFor) })
		case faultHalt:
			check(run, string(f), func() []string {
				w := at.world.again(t)
				w.reboot(w.disk.Killed())
				return p.resume(t, w, at.at, haltedFor)
			})
		case faultLose:
			check(run, string(f), cut(simdisk.Lose))
		case faultTorn:
			for n, c := range at.world.disk.Cuts()[1:] {
				check(run && (i+n)%torn == 0, c.String(), cut(c))
			}
		case faultEIO, faultFull:
			check(run, string(f), func() []string { return p.failAt(t, f, i) })
		}
	}
}

// The agent is killed, the host is halted, its power is cut and its disk fails before each
// call that has an effect: the host must come to the end that the scenario wants.
func TestUpgradeInterruptedAtAnyCall(t *testing.T) {
	require.Time(t, "interrupts upgrades at every call")
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // each run leaves a disk as garbage
	first := provable(t)
	var all []*proof
	whole := true
	for _, s := range scenarios {
		whole = t.Run(s.name, func(t *testing.T) {
			p := s.prove(t, first)
			ran := 0
			for _, f := range faults {
				t.Run(string(f), func(t *testing.T) {
					ran++
					p.interrupt(t, f)
				})
			}
			if all = append(all, p); ran < len(faults) {
				whole = false
			}
		}) && whole
	}
	if len(all) < len(scenarios) || !whole {
		return // a part was asked for, or has failed
	}
	if err := prooffile.WriteOrCompare(tables(all)); err != nil {
		t.Error(err)
	}
}

// provable returns a host with the packages of the scenarios.
func provable(t *testing.T) *world {
	w := newWorld(t)
	w.policy[0].ServerConfig = true
	reload := func(c *manifest.Component) { c.Reload, c.ServerFiles = true, []string{etc + "/"} }
	for _, v := range []string{"1.0.0", "2.0.0", "3.0.0"} {
		w.publish(v, reload)
	}
	w.publish("1.1.0", func(c *manifest.Component) { c.ServerFiles = []string{etc + "/"} })
	for _, v := range []string{"1.0.0", "3.0.0"} {
		w.publishOf("db", v, nil)
	}
	for _, v := range []string{"4.2.0", "4.3.0", "4.4.0", "4.9.0"} {
		w.publish(v, withState(v, true))
	}
	for _, v := range []string{"4.2.1", "4.5.0"} {
		w.publish(v, withState(v, false))
	}
	w.machine.crashes[badConfig] = true
	return w
}

// withState gives a version hooks, and a migration to each minor version from 4.1 on.
func withState(version string, copied bool) func(*manifest.Component) {
	return func(c *manifest.Component) {
		hook := func(name string, args ...string) *manifest.Hook {
			return &manifest.Hook{Exec: slices.Concat([]string{"/usr/bin/" + name}, args)}
		}
		c.Hooks = &manifest.Hooks{Drain: hook("drain"), Undrain: hook("undrain")}
		if copied {
			c.StatePaths, c.Hooks.Backup = []string{stateOf("web")}, hook("save")
		}
		for minor := 1; minor <= int(version[2]-'0'); minor++ {
			c.Migrations = append(c.Migrations, manifest.Migration{
				Version: fmt.Sprintf("4.%d.0", minor), Up: *hook("form", fmt.Sprintf("4.%d", minor)), Down: hook("form", fmt.Sprintf("4.%d", minor-1)),
			})
		}
	}
}

// prove does what the scenario has behind it, and records it.
func (s *scenario) prove(t *testing.T, first *world) *proof {
	t.Helper()
	p := &proof{scenario: s, begin: first.again(t), counts: map[fault]int{}, ended: map[string][]string{}}
	synctest.Test(t, func(t *testing.T) {
		p.begin.t = t
		for _, r := range s.before {
			if err := p.begin.start(&agent{}).Upgrade(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		if s.staged != nil {
			if err := p.begin.start(&agent{}).Stage(t.Context(), *s.staged); err != nil {
				t.Fatal(err)
			}
		}
	})
	p.begin.disk.SyncAll()
	if s.makes != nil {
		s.makes(p.begin.machine)
	}
	if p.points = s.record(t, p.begin); len(p.points) < 100 {
		t.Fatalf("only %d calls: is the disk still handed in everywhere?", len(p.points))
	}
	return p
}

const preamble = `# Crash proof of components

Written by ` + "`go tool mage proof`" + `, and compared by ` + "`go tool mage test`" + `. Every call of a component's upgrade or stage that changes something, on the disk or in the
runtime, is interrupted or fails in each way below, and the host must come out of it by itself: the version runs that the scenario must end
with, complete, with its configuration; runtime, link and record agree, no upgrade is pending, and the order ends with an error exactly if it was
undone. The host is then upgraded once more, after which no left-over is tolerated. **Not covered:** the real runtimes, of which
` + "`agent/runtime`" + ` interrupts each call by itself; failing reads; two faults in one upgrade. [DESIGN.md](DESIGN.md) says more.

- **kill**: the agent is killed, and another one comes; what it runs goes on
- **halt**: the host is off for an hour, longer than checkpoints count; what was written is kept
- **lose**: the power is cut; what was not synced is lost
- **torn**: the power is cut; of what was not synced some survives, in each of the ways of ` + "`simdisk`" + `
- **eio**: the call to the disk fails with EIO, once
- **full**: the disk is full from this call on, for two minutes: all calls that need space fail with ENOSPC

After *eio* and *full* an upgrade that may succeed later is tried again, as by the daemon. If it could not be undone either, an operator
orders it again.

`

// tables returns PROOF.md.
func tables(all []*proof) string {
	var b strings.Builder
	b.WriteString(preamble)
	for _, p := range all {
		fmt.Fprintf(&b, "- `%s`: %s\n", p.name, p.about)
	}
	b.WriteString("\n| scenario | calls |")
	for _, f := range faults {
		fmt.Fprintf(&b, " %s |", f)
	}
	b.WriteString(" faults | must end with | bad |\n|---|--:|" + strings.Repeat("--:|", len(faults)) + "--:|---|--:|\n")
	sum, bad := 0, 0
	for _, p := range all {
		calls, n := 0, 0
		for _, at := range p.points {
			if at.call.Op != opEnd && !at.call.Half {
				calls++
			}
		}
		fmt.Fprintf(&b, "| %s | %d |", p.name, calls)
		for _, f := range faults {
			fmt.Fprintf(&b, " %d |", p.counts[f])
			n += p.counts[f]
		}
		fmt.Fprintf(&b, " %d | %s | %d |\n", n, p.ends, p.bad)
		sum, bad = sum+n, bad+p.bad
	}
	fmt.Fprintf(&b, "\n**%d faults, %d bad ends.** `go tool mage proof` runs all. `go tool mage test` counts all, and runs kill, halt and lose at every call, one in %d torn writes, and eio and full at one in %d calls.\n",
		sum, bad, tornStride, failingStride)
	return b.String()
}

// What the proof asks of a host can be missing.
func TestProofNotices(t *testing.T) {
	s := scenarios[slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == "two_components" })]
	points := s.prove(t, provable(t)).points
	for _, c := range []struct {
		name     string
		sabotage func(w *world) error
	}{
		{"nothing", func(*world) error { return nil }},
		{"a component that does not run", func(w *world) error { delete(w.machine.running, "db"); return nil }},
		{"a runtime that would start another version", func(w *world) error {
			w.machine.installed["web"] = strings.Replace(w.machine.installed["web"], "2.0.0", "1.0.0", 1)
			return nil
		}},
		{"a damaged version", func(w *world) error {
			_, err := w.look().OpenFile("test", w.machine.running["web"]+"/bin/web", os.O_WRONLY|os.O_TRUNC, 0)
			return err
		}},
		{"other configuration", func(w *world) error { return w.look().Remove("test", conf("db")) }},
		{"configuration that was not read", func(w *world) error { w.machine.config["web"] = "old"; return nil }},
		{"a link to nowhere", func(w *world) error { return w.look().Remove("test", top+"/components/web/current") }},
		{"a journal", func(w *world) error {
			f := journalOf(w.look(), top+"/components/db")
			return disk.WriteRecord(f.Disk, f.Op, f.Path, f.Kind, f.Version, primitive.Journal{})
		}},
		{"no record", func(w *world) error {
			return errors.Join(w.look().Remove("test", top+"/components/db/state"), w.look().Remove("test", top+"/components/db/state.prev"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := points[len(points)-1].world.again(t)
			if err := c.sabotage(w); err != nil {
				t.Fatal(err)
			}
			wrong := s.ends.wrong(w, nil)
			if (len(wrong) > 0) != (c.name != "nothing") {
				t.Errorf("found wrong is %q", wrong)
			}
		})
	}
}
