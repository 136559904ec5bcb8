// Package runtimetest tests what package runtime promises of every adapter. The test of an
// adapter provides hosts with releases of components, and [Run] acts on them as package
// primitive does: it checks, acquires, verifies, backs up, stops, installs, moves the link
// to the installed version, and starts.
package runtimetest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/host/disk"
)

const (
	// patience bounds every wait for the runtime. Containers start in seconds on a busy
	// machine.
	patience = time.Minute
	poll     = 20 * time.Millisecond
	// bootWait is how long a runtime that has booted may take to start what it starts by itself.
	bootWait = 3 * time.Second
	// maxCalls bounds the calls of one operation at which the agent is killed. No
	// operation makes nearly as many.
	maxCalls = 200
	// manyLines are more than a component prints here.
	manyLines = 1000
)

// Host is a machine with one adapter. Its functions fail the test if they cannot do what
// is asked.
type Host struct {
	// Agent returns the adapter of an agent that starts now. The agents before it have
	// been killed: what they did to the machine stays.
	Agent func() runtime.Adapter
	// Dying is Agent for an agent that is killed at its n-th call, counted from 1, to what
	// outlives it: the disk, the service manager, the engine. That call and those after it
	// do nothing and return an error. died reports whether the agent made the n-th call.
	Dying func(n int) (a runtime.Adapter, died func() bool)
	// Release returns a version of a component, verified and unpacked in its home, and the
	// same one for the same names. Its program is [Program] or prints the same, and the
	// runtime starts it again within seconds when it ends by itself.
	Release func(component, version string) *runtime.Release
	// Broken is Release with a program that ends at once with an error.
	Broken func(component, version string) *runtime.Release
	// Refused are releases that Check refuses, by text that the error has.
	Refused map[string]*runtime.Release
	// PowerCut ends all that runs, and boots the machine: what starts without an agent starts.
	// nil: the test of the adapter cuts the power by itself.
	PowerCut func()
	// Kill kills the component's program; nil kills the process of Status.PID.
	Kill func(t *testing.T, s runtime.Status)
}

// Run runs the contract. newHost is called for each test, which ends what still runs.
func Run(t *testing.T, newHost func(t *testing.T) Host) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, h *host)
	}{
		{"Check accepts a release, and says what it refuses", testCheck},
		{"a component that was never installed does not run", testNeverInstalled},
		{"the first installation runs", testFirst},
		{"calls may be repeated", testRepeated},
		{"another version replaces the one before", testUpgrade},
		{"Restore undoes a complete installation", testRestoreComplete},
		{"Restore undoes an installation that has not begun", testRestoreNotBegun},
		{"Restore undoes a first installation", testRestoreFirst},
		{"a version that cannot run is undone", testBroken},
		{"a program that was killed runs again and is counted", testKilledProgram},
		{"an agent that starts finds what runs", testAgentRestarts},
		{"a boot does not start what was stopped", testStoppedStays},
		{"a boot does not start what is held, and a crash does not stop it", testWithheldAtBoot},
		{"Reload does not restart", testReload},
		{"a call whose context has ended returns and may be repeated", testEndedContext},
		{"two components do not disturb each other", testTwoComponents},
		{"an agent that is killed in Install", testKilledIn(opInstall)},
		{"an agent that is killed in Restore", testKilledIn(opRestore)},
		{"an agent that is killed in Stop", testKilledIn(opStop)},
		{"an agent that is killed in Start", testKilledIn(opStart)},
		{"an agent that is killed in Keep", testKilledIn(opKeep)},
		{"an agent that is killed in Remove", testKilledIn(opRemove)},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &host{Host: newHost(t), t: t, backup: t.TempDir()}
			h.agent = h.Agent()
			test.run(t, h)
		})
	}
}

// host is a Host in a test, with the adapter of the agent that runs.
type host struct {
	Host
	t      *testing.T
	agent  runtime.Adapter
	backup string
}

func (h *host) ctx() context.Context { return h.t.Context() }

// ok fails the test on an error; what begins with a verb.
func (h *host) ok(what string, err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("%s: %v", what, err)
	}
}

// restartAgent kills the agent and starts it.
func (h *host) restartAgent() { h.agent = h.Agent() }

// point moves the link as package primitive does. nil removes it.
func (h *host) point(dir string, to *runtime.Release) {
	h.t.Helper()
	link := filepath.Join(dir, runtime.CurrentLink)
	if to == nil {
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			h.t.Fatal(err)
		}
		return
	}
	target, err := filepath.Rel(dir, to.Home)
	h.ok("point", err)
	h.ok("point", disk.Point(disk.OS{}, "test", target, link))
}

func (h *host) prepare(to, from *runtime.Release) {
	h.t.Helper()
	h.ok("Check", h.agent.Check(h.ctx(), to))
	h.ok("Acquire", h.agent.Acquire(h.ctx(), to, func(float64) {}))
	got, err := h.agent.Acquired(h.ctx(), to)
	if err != nil || !got {
		h.t.Fatalf("Acquired is %v, %v after Acquire", got, err)
	}
	h.ok("Verify", h.agent.Verify(h.ctx(), to))
	if from != nil {
		h.ok("Backup", h.agent.Backup(h.ctx(), from, h.backup))
		h.ok("Stop", h.agent.Stop(h.ctx(), from))
	}
}

// install makes to the installed version, as package primitive does.
func (h *host) install(to, from *runtime.Release) {
	h.t.Helper()
	h.ok("Install", h.agent.Install(h.ctx(), to, from))
	h.point(to.Dir, to)
	got, err := h.agent.Installed(h.ctx(), to)
	if err != nil || !got {
		h.t.Fatalf("Installed is %v, %v after Install", got, err)
	}
	h.ok("ReloadDaemon", h.agent.ReloadDaemon(h.ctx(), to))
}

func (h *host) upgrade(to, from *runtime.Release) {
	h.t.Helper()
	h.prepare(to, from)
	h.install(to, from)
	h.ok("Start", h.agent.Start(h.ctx(), to))
}

// restore undoes an installation and starts the version before, if there is one.
func (h *host) restore(to, from *runtime.Release) {
	h.t.Helper()
	h.ok("Restore", h.agent.Restore(h.ctx(), to, from, h.backup))
	h.point(to.Dir, from)
	if from != nil {
		h.ok("ReloadDaemon", h.agent.ReloadDaemon(h.ctx(), from))
		h.ok("Start", h.agent.Start(h.ctx(), from))
	}
}

// installFirst installs a version and waits until it runs.
func (h *host) installFirst(component, version string) *runtime.Release {
	h.t.Helper()
	r := h.Release(component, version)
	h.t.Cleanup(func() { h.end(r) })
	h.upgrade(r, nil)
	h.runs(r)
	return r
}

// end stops and removes a component, so that a test leaves nothing behind.
func (h *host) end(r *runtime.Release) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := h.Agent().Remove(ctx, r); err != nil {
		h.t.Errorf("Remove at the end of the test: %v", err)
	}
}

func (h *host) status(r *runtime.Release) runtime.Status {
	h.t.Helper()
	s, err := h.agent.Status(h.ctx(), r)
	h.ok("Status", err)
	return s
}

// eventually waits until the status is as wanted.
func (h *host) eventually(r *runtime.Release, want string, holds func(runtime.Status) bool) runtime.Status {
	h.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(poll) {
		s := h.status(r)
		if holds(s) {
			return s
		}
		if time.Now().After(deadline) {
			lines, err := h.agent.Logs(h.ctx(), r, manyLines)
			h.t.Fatalf("%s %s: status is still %+v, want %s; its output, %v: %q", r.Name, r.Version, s, want, err, lines)
		}
	}
}

// runs waits until the release runs: it is ready, and has printed its version last.
func (h *host) runs(r *runtime.Release) runtime.Status {
	h.t.Helper()
	return h.eventually(r, "that it runs", func(s runtime.Status) bool {
		return s.Running && s.Ready && (s.Home == "" || s.Home == r.Home) && h.lastVersion(r) == r.Version
	})
}

// lastVersion is the version that the component printed last.
func (h *host) lastVersion(r *runtime.Release) string {
	h.t.Helper()
	lines, err := h.agent.Logs(h.ctx(), r, manyLines)
	h.ok("Logs", err)
	for _, line := range slices.Backward(lines) {
		if _, version, found := strings.Cut(line, greeting); found {
			return version
		}
	}
	return ""
}

func (h *host) doesNotRun(r *runtime.Release) {
	h.t.Helper()
	if s := h.status(r); s.Running || s.PID != 0 || !s.Since.IsZero() {
		h.t.Fatalf("status is %+v, want that it does not run", s)
	}
}

func testCheck(t *testing.T, h *host) {
	r := h.Release("web", "1.0.0")
	h.ok("Check", h.agent.Check(h.ctx(), r))
	for text, refused := range h.Refused {
		if err := h.agent.Check(h.ctx(), refused); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("Check: %v, want %q in it", err, text)
		}
	}
	h.doesNotRun(r)
}

func testNeverInstalled(t *testing.T, h *host) {
	r := h.Release("web", "1.0.0")
	h.doesNotRun(r)
	if got, err := h.agent.Installed(h.ctx(), r); got || err != nil {
		t.Errorf("Installed is %v, %v", got, err)
	}
	h.ok("Stop", h.agent.Stop(h.ctx(), r))
	h.ok("Remove", h.agent.Remove(h.ctx(), r))
	h.doesNotRun(r)
}

func testFirst(t *testing.T, h *host) {
	before := time.Now().Add(-time.Minute) // an engine may have another clock
	r := h.installFirst("web", "1.0.0")
	s := h.status(r)
	if s.PID <= 0 || s.Restarts != 0 || s.Since.Before(before) || s.Since.After(time.Now().Add(time.Minute)) {
		t.Errorf("status is %+v", s)
	}
	if lines, err := h.agent.Logs(h.ctx(), r, 1); err != nil || len(lines) != 1 {
		t.Errorf("Logs of one line: %q, %v", lines, err)
	}
	h.ok("Stop", h.agent.Stop(h.ctx(), r))
	h.doesNotRun(r)
	h.ok("Start", h.agent.Start(h.ctx(), r))
	if again := h.runs(r); again.PID == s.PID {
		t.Errorf("process %d runs before and after a stop", s.PID)
	}
	h.ok("Remove", h.agent.Remove(h.ctx(), r))
	h.doesNotRun(r)
}

func testStoppedStays(_ *testing.T, h *host) {
	if h.PowerCut == nil {
		return
	}
	r := h.installFirst("web", "1.0.0")
	h.ok("Stop", h.agent.Stop(h.ctx(), r))
	h.PowerCut()
	h.restartAgent()
	if s, ok := h.agent.(runtime.Supervisor); ok {
		h.ok("Resume", s.Resume(h.ctx(), r))
	}
	h.doesNotRun(r)
	h.ok("Start", h.agent.Start(h.ctx(), r))
	h.runs(r)
}

// version returns a version of the component web, held at boot or not.
func (h *host) version(version string, held bool) *runtime.Release {
	r := h.Release("web", version)
	r.WithheldAtBoot = held
	return r
}

func testWithheldAtBoot(_ *testing.T, h *host) {
	if h.PowerCut == nil {
		return
	}
	last := h.installFirst("web", "1.0.0") // which is not held
	for _, version := range []string{"2.0.0", "3.0.0"} {
		next := h.version(version, true)
		h.upgrade(next, last)
		h.restartsByItself(next)
		h.PowerCut()
		h.staysDown(next)
		// Until an agent starts it: then it is restarted as before.
		h.ok("Start", h.agent.Start(h.ctx(), next))
		h.restartsByItself(next)
		last = next
	}
	free := h.version("4.0.0", false)
	h.upgrade(free, last)
	h.runs(free)
	h.PowerCut()
	h.bootAgent(free)
	h.runs(free)
}

// restartsByItself kills the program of a component, and waits until the runtime has started it again.
func (h *host) restartsByItself(r *runtime.Release) {
	h.t.Helper()
	before := h.runs(r)
	h.kill(before)
	h.eventually(r, "that it runs again", func(s runtime.Status) bool { return s.Running && s.PID != before.PID && s.Ready })
}

// bootAgent starts the agent of a host that has booted.
func (h *host) bootAgent(r *runtime.Release) {
	h.t.Helper()
	h.restartAgent()
	if s, ok := h.agent.(runtime.Supervisor); ok {
		h.ok("Resume", s.Resume(h.ctx(), r))
	}
}

// staysDown wants a component not to run after a boot, with and without an agent.
func (h *host) staysDown(r *runtime.Release) {
	h.t.Helper()
	h.bootAgent(r)
	for deadline := time.Now().Add(bootWait); time.Now().Before(deadline); time.Sleep(poll) {
		h.doesNotRun(r)
	}
}

func testRepeated(t *testing.T, h *host) {
	v1 := h.installFirst("web", "1.0.0")
	before := h.runs(v1)
	h.ok("Start again", h.agent.Start(h.ctx(), v1))
	if after := h.runs(v1); after.PID != before.PID || after.Restarts != 0 {
		t.Errorf("status after a second Start is %+v, before %+v", after, before)
	}
	v2 := h.Release("web", "2.0.0")
	for range 2 {
		h.prepare(v2, v1)
	}
	h.doesNotRun(v1)
	for range 2 {
		h.install(v2, v1)
	}
	h.ok("Start", h.agent.Start(h.ctx(), v2))
	h.runs(v2)
	h.ok("Stop", h.agent.Stop(h.ctx(), v2))
	for range 2 {
		h.restore(v2, v1)
		h.runs(v1)
		h.ok("Stop", h.agent.Stop(h.ctx(), v1))
	}
	h.upgrade(v2, v1)
	for range 2 {
		h.ok("Keep", h.agent.Keep(h.ctx(), v2, v1))
		h.ok("Discard", h.agent.Discard(h.ctx(), v1))
	}
	h.runs(v2)
	for range 2 {
		h.ok("Remove", h.agent.Remove(h.ctx(), v2))
		h.doesNotRun(v2)
	}
}

func testUpgrade(t *testing.T, h *host) {
	v1 := h.installFirst("web", "1.0.0")
	before := h.status(v1)
	v2 := h.Release("web", "2.0.0")
	h.upgrade(v2, v1)
	if after := h.runs(v2); after.PID == before.PID {
		t.Errorf("process %d is that of both versions", after.PID)
	}
	h.ok("Keep", h.agent.Keep(h.ctx(), v2, v1))
	h.ok("Stop", h.agent.Stop(h.ctx(), v2))
	h.ok("Start", h.agent.Start(h.ctx(), v2))
	h.runs(v2)
	// And back: the version before is an upgrade like any other.
	h.upgrade(v1, v2)
	h.runs(v1)
}

func testRestoreComplete(_ *testing.T, h *host) {
	v1 := h.installFirst("web", "1.0.0")
	v2 := h.Release("web", "2.0.0")
	h.upgrade(v2, v1)
	h.runs(v2)
	h.ok("Stop", h.agent.Stop(h.ctx(), v2))
	h.restore(v2, v1)
	h.ok("Discard", h.agent.Discard(h.ctx(), v2))
	h.runs(v1)
	// What was discarded can be acquired again.
	h.upgrade(v2, v1)
	h.runs(v2)
}

func testRestoreNotBegun(_ *testing.T, h *host) {
	v1 := h.installFirst("web", "1.0.0")
	v2 := h.Release("web", "2.0.0")
	h.prepare(v2, v1)
	h.restore(v2, v1)
	h.runs(v1)
}

func testRestoreFirst(t *testing.T, h *host) {
	r := h.installFirst("web", "1.0.0")
	h.ok("Stop", h.agent.Stop(h.ctx(), r))
	h.restore(r, nil)
	h.doesNotRun(r)
	if got, err := h.agent.Installed(h.ctx(), r); got || err != nil {
		t.Errorf("Installed is %v, %v", got, err)
	}
	h.upgrade(r, nil)
	h.runs(r)
}

func testBroken(t *testing.T, h *host) {
	v1 := h.installFirst("web", "1.0.0")
	bad := h.Broken("web", "2.0.0")
	h.prepare(bad, v1)
	h.install(bad, v1)
	if err := h.agent.Start(h.ctx(), bad); err == nil {
		s := h.eventually(bad, "that it ends", func(s runtime.Status) bool { return !s.Running || s.Restarts > 0 })
		if s.Message == "" && s.Restarts == 0 {
			t.Errorf("status is %+v, want a message that says why it does not run", s)
		}
	}
	h.ok("Stop", h.agent.Stop(h.ctx(), bad))
	h.doesNotRun(bad)
	h.restore(bad, v1)
	h.runs(v1)
}

func testKilledProgram(t *testing.T, h *host) {
	r := h.installFirst("web", "1.0.0")
	before := h.status(r)
	h.kill(before)
	after := h.eventually(r, "that it runs again", func(s runtime.Status) bool { return s.Running && s.PID != before.PID && s.Restarts > 0 })
	if after.Restarts != 1 {
		t.Errorf("%d restarts after the program was killed once", after.Restarts)
	}
}

func (h *host) kill(s runtime.Status) {
	h.t.Helper()
	if h.Kill != nil {
		h.Kill(h.t, s)
		return
	}
	p, err := os.FindProcess(s.PID)
	h.ok("find the program", err)
	h.ok("kill the program", p.Kill())
}

func testAgentRestarts(t *testing.T, h *host) {
	r := h.installFirst("web", "1.0.0")
	before := h.status(r)
	h.restartAgent()
	if after := h.status(r); after.PID != before.PID || !after.Running {
		t.Errorf("status is %+v, before the agent's restart %+v", after, before)
	}
	h.ok("Start", h.agent.Start(h.ctx(), r))
	if after := h.runs(r); after.PID != before.PID {
		t.Errorf("process %d runs, before the agent's restart %d", after.PID, before.PID)
	}
	h.restartAgent()
	h.ok("Stop", h.agent.Stop(h.ctx(), r))
	h.doesNotRun(r)
}

func testReload(t *testing.T, h *host) {
	r := h.installFirst("reloads", "1.0.0") // no other test's output has its greeting
	said := func(text string) runtime.Status {
		t.Helper()
		return h.eventually(r, "the output "+text, func(runtime.Status) bool {
			lines, err := h.agent.Logs(h.ctx(), r, manyLines)
			h.ok("Logs", err)
			return slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, text) })
		})
	}
	before := said(greeting) // from then on it handles the signal, which would end it before
	h.ok("Reload", h.agent.Reload(h.ctx(), r))
	after := said(reloaded)
	if after.PID != before.PID || after.Restarts != 0 {
		t.Errorf("status after Reload is %+v, before %+v", after, before)
	}
	h.ok("Stop", h.agent.Stop(h.ctx(), r))
	if err := h.agent.Reload(h.ctx(), r); err == nil {
		t.Error("Reload of a component that does not run returned no error")
	}
}

func testEndedContext(t *testing.T, h *host) {
	r := h.installFirst("web", "1.0.0")
	ended, cancel := context.WithCancel(h.ctx())
	cancel()
	began := time.Now()
	// They may succeed; what counts is that they return, and what can be done after.
	_ = h.agent.Stop(ended, r)
	_ = h.agent.Start(ended, r)
	_, _ = h.agent.Status(ended, r)
	_ = h.agent.Stop(ended, r)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("calls with an ended context took %s", took)
	}
	h.ok("Stop", h.agent.Stop(h.ctx(), r))
	h.doesNotRun(r)
	h.ok("Start", h.agent.Start(h.ctx(), r))
	h.runs(r)
}

func testTwoComponents(_ *testing.T, h *host) {
	web, db := h.installFirst("web", "1.0.0"), h.installFirst("database", "1.0.0")
	before := h.status(db)
	web2, db2 := h.Release("web", "2.0.0"), h.Release("database", "2.0.0")
	h.upgrade(web2, web)
	h.runs(web2)
	if after := h.status(db); after.PID != before.PID || after.Restarts != 0 {
		h.t.Fatalf("the other component's status is %+v, before the upgrade %+v", after, before)
	}
	var both sync.WaitGroup
	for _, pair := range [][2]*runtime.Release{{web, web2}, {db2, db}} {
		both.Go(func() {
			to, from := pair[0], pair[1]
			for _, err := range []error{
				h.agent.Stop(h.ctx(), from), h.agent.Install(h.ctx(), to, from), link(to),
				h.agent.ReloadDaemon(h.ctx(), to), h.agent.Start(h.ctx(), to),
			} {
				if err != nil {
					h.t.Errorf("%s: %v", to.Name, err)
				}
			}
		})
	}
	both.Wait()
	h.runs(web)
	h.runs(db2)
	h.ok("Remove", h.agent.Remove(h.ctx(), web))
	h.runs(db2)
}

func link(to *runtime.Release) error {
	target, err := filepath.Rel(to.Dir, to.Home)
	if err != nil {
		return err
	}
	return disk.Point(disk.OS{}, "test", target, to.Current())
}

// operation is a call during which the agent is killed.
type operation struct {
	name string
	// before brings the host to where the call is made, from v1 that runs.
	before func(h *host, v1, v2 *runtime.Release)
	call   func(ctx context.Context, a runtime.Adapter, backup string, v1, v2 *runtime.Release) error
	// after ends with v1 or v2 running, after the call was completed or, if undo is set,
	// left as the killed agent left it.
	after func(h *host, v1, v2 *runtime.Release, undo bool)
}

var (
	opInstall = operation{
		name:   "Install",
		before: func(h *host, v1, v2 *runtime.Release) { h.prepare(v2, v1) },
		call: func(ctx context.Context, a runtime.Adapter, _ string, v1, v2 *runtime.Release) error {
			return a.Install(ctx, v2, v1)
		},
		after: func(h *host, v1, v2 *runtime.Release, undo bool) {
			if undo {
				h.restore(v2, v1)
				h.runs(v1)
				return
			}
			h.install(v2, v1)
			h.ok("Start", h.agent.Start(h.ctx(), v2))
			h.runs(v2)
		},
	}
	opRestore = operation{
		name: "Restore",
		before: func(h *host, v1, v2 *runtime.Release) {
			h.prepare(v2, v1)
			h.install(v2, v1)
		},
		call: func(ctx context.Context, a runtime.Adapter, backup string, v1, v2 *runtime.Release) error {
			return a.Restore(ctx, v2, v1, backup)
		},
		after: func(h *host, v1, v2 *runtime.Release, _ bool) {
			h.restore(v2, v1)
			h.runs(v1)
		},
	}
	opStop = operation{
		name:   "Stop",
		before: func(*host, *runtime.Release, *runtime.Release) {},
		call: func(ctx context.Context, a runtime.Adapter, _ string, v1, _ *runtime.Release) error {
			return a.Stop(ctx, v1)
		},
		after: func(h *host, v1, _ *runtime.Release, undo bool) {
			if !undo {
				h.ok("Stop", h.agent.Stop(h.ctx(), v1))
				h.doesNotRun(v1)
			}
			h.ok("Start", h.agent.Start(h.ctx(), v1))
			h.runs(v1)
		},
	}
	opStart = operation{
		name:   "Start",
		before: func(h *host, v1, _ *runtime.Release) { h.ok("Stop", h.agent.Stop(h.ctx(), v1)) },
		call: func(ctx context.Context, a runtime.Adapter, _ string, v1, _ *runtime.Release) error {
			return a.Start(ctx, v1)
		},
		after: func(h *host, v1, _ *runtime.Release, undo bool) {
			if undo {
				h.ok("Stop", h.agent.Stop(h.ctx(), v1))
				h.doesNotRun(v1)
			}
			h.ok("Start", h.agent.Start(h.ctx(), v1))
			h.runs(v1)
		},
	}
	opKeep = operation{
		name:   "Keep",
		before: func(h *host, v1, v2 *runtime.Release) { h.upgrade(v2, v1) },
		call: func(ctx context.Context, a runtime.Adapter, _ string, v1, v2 *runtime.Release) error {
			return a.Keep(ctx, v2, v1)
		},
		after: func(h *host, v1, v2 *runtime.Release, _ bool) {
			h.ok("Keep", h.agent.Keep(h.ctx(), v2, v1))
			h.runs(v2)
			h.upgrade(v1, v2)
			h.runs(v1)
		},
	}
	opRemove = operation{
		name:   "Remove",
		before: func(*host, *runtime.Release, *runtime.Release) {},
		call: func(ctx context.Context, a runtime.Adapter, _ string, v1, _ *runtime.Release) error {
			return a.Remove(ctx, v1)
		},
		after: func(h *host, v1, _ *runtime.Release, _ bool) {
			h.ok("Remove", h.agent.Remove(h.ctx(), v1))
			h.doesNotRun(v1)
			h.point(v1.Dir, nil)
			h.upgrade(v1, nil)
			h.runs(v1)
		},
	}
)

// testKilledIn kills the agent at each call that the operation makes, starts another one,
// and has it complete the operation, or undo it.
func testKilledIn(op operation) func(t *testing.T, h *host) {
	return func(t *testing.T, h *host) {
		v1, v2 := h.Release("web", "1.0.0"), h.Release("web", "2.0.0")
		t.Cleanup(func() { h.end(v1) })
		for _, undo := range []bool{false, true} {
			for n := 1; ; n++ {
				if n > maxCalls {
					t.Fatalf("%s makes more than %d calls", op.name, maxCalls)
				}
				h.upgrade(v1, nil)
				h.runs(v1)
				op.before(h, v1, v2)
				a, died := h.Dying(n)
				err := op.call(h.ctx(), a, h.backup, v1, v2)
				if !died() {
					h.ok(op.name, err)
					break
				}
				h.restartAgent()
				op.after(h, v1, v2, undo)
				h.ok("Remove", h.agent.Remove(h.ctx(), v1))
				h.point(v1.Dir, nil)
			}
			h.restartAgent()
			h.ok("Remove", h.agent.Remove(h.ctx(), v1))
			h.point(v1.Dir, nil)
		}
	}
}
