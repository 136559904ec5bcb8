package component

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestWhoUndoesAnUpgrade(t *testing.T) {
	for _, c := range []struct {
		until, reached agentapi.LockstepPhase
		want           undoer
	}{
		{agentapi.LockstepDrain, "", byHost},
		{agentapi.LockstepBackup, agentapi.LockstepStop, byHost},
		{agentapi.LockstepBackup, agentapi.LockstepBackup, byServer},
		{agentapi.LockstepSwitch, agentapi.LockstepBackup, byNobody},
		{agentapi.LockstepStart, agentapi.LockstepDrain, byNobody}, // released on the host
	} {
		if got := undoneBy(&agentapi.LockstepReport{Until: c.until, Reached: c.reached}); got != c.want {
			t.Errorf("one that may go on until %q and has reached %q is undone by %d, want %d", c.until, c.reached, got, c.want)
		}
	}
	if undoneBy(nil) != byHost {
		t.Error("one that is not in lockstep is not undone by its host")
	}
}

// together is an upgrade in lockstep of a host with state, which the test lets go on.
type together struct {
	t    *testing.T
	w    *world
	m    *Manager
	r    request.Request
	done chan error
}

func lockstep(t *testing.T) *together {
	t.Helper()
	w, m := stateful(t)
	r := order("jump", "4.4.0")
	r.Component.Lockstep = &agentapi.LockstepData{Until: agentapi.LockstepDrain}
	l := &together{t: t, w: w, m: m, r: r}
	l.begin()
	return l
}

func (l *together) begin() {
	l.done = make(chan error, 1)
	go func() { l.done <- l.m.Upgrade(l.t.Context(), l.r) }()
	synctest.Wait()
}

// until lets the host go on, and wants it to do so at once.
func (l *together) until(phase agentapi.LockstepPhase) {
	l.t.Helper()
	l.m.Proceed("web", l.r.ID, phase, "")
	time.Sleep(time.Second)
	if phase != agentapi.LockstepStart {
		l.reached(phase)
	}
}

func (l *together) reached(phase agentapi.LockstepPhase) {
	l.t.Helper()
	d := l.m.Reports()[0].UpgradeDetails
	if d == nil || d.Metadata.Lockstep == nil || d.Metadata.Lockstep.Reached != phase {
		l.t.Fatalf("reported is %+v, want that it has reached %q", d, phase)
	}
}

func (l *together) restart() {
	l.t.Helper()
	l.m.component("web").stop(steps.ErrStopping)
	if err := l.ended(); !errors.Is(err, steps.ErrStopping) {
		l.t.Fatal(err)
	}
	l.m = l.w.start(&agent{})
	l.begin()
}

// ended returns how the upgrade has ended, within the time that a retry or an observation takes.
func (l *together) ended() error {
	l.t.Helper()
	select {
	case err := <-l.done:
		return err
	case <-time.After(2 * lockstepRetry):
		l.t.Fatal("the upgrade has not ended")
		return nil
	}
}

func (l *together) runs() string {
	l.w.machine.mu.Lock()
	defer l.w.machine.mu.Unlock()
	if home := l.w.machine.running["web"]; home != "" {
		return versionOf(home)
	}
	return ""
}

func TestLockstepWaitsAfterEachPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lockstep(t)
		before := l.w.machine.count()
		for _, c := range []struct {
			until agentapi.LockstepPhase
			runs  string
			does  []string
		}{
			{agentapi.LockstepDrain, "4.2.0", nil},
			{agentapi.LockstepStop, "", []string{"stop"}},
			{agentapi.LockstepBackup, "", []string{"save"}},
			{agentapi.LockstepSwitch, "", []string{"install", "form 4.3", "form 4.4"}},
		} {
			l.until(c.until)
			time.Sleep(24 * time.Hour / 12)
			l.reached(c.until) // however long the others take
			l.restart()
			l.reached(c.until)
			did := slices.DeleteFunc(l.w.machine.since(before), func(call string) bool {
				return slices.Contains([]string{"check", "verify", "acquire", "backup", "reload daemon", "drain"}, call)
			})
			// Checkpoints are too old after this time: what may be repeated is.
			did = slices.Compact(slices.DeleteFunc(did, func(call string) bool { return call == "save" && !slices.Contains(c.does, call) }))
			if l.runs() != c.runs || !slices.Equal(did, c.does) {
				t.Errorf("until %q it runs %q and did %q, want %q and %q", c.until, l.runs(), did, c.runs, c.does)
			}
			before = l.w.machine.count()
		}
		l.until(agentapi.LockstepStart)
		if err := l.ended(); err != nil {
			t.Fatal(err)
		}
		l.w.expect("4.4.0")
		if d := l.m.Reports()[0].UpgradeDetails; d != nil {
			t.Errorf("reported is %+v", d)
		}
	})
}

func TestLockstepMayLeavePhasesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lockstep(t)
		l.m.Proceed("web", l.r.ID, agentapi.LockstepStart, "")
		l.m.Proceed("web", "another", agentapi.LockstepDrain, "") // of an upgrade that has ended
		l.m.Proceed("web", l.r.ID, agentapi.LockstepStart, "")
		if err := l.ended(); err != nil {
			t.Fatal(err)
		}
		l.w.expect("4.4.0")
	})
}

// The server undoes the upgrade while the host waits, works, or is away.
func TestLockstepIsUndoneByTheServer(t *testing.T) {
	phases := []agentapi.LockstepPhase{agentapi.LockstepDrain, agentapi.LockstepStop, agentapi.LockstepBackup}
	for i, phase := range phases {
		for _, away := range []bool{false, true} {
			t.Run(string(phase), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := lockstep(t)
					for _, p := range phases[:i+1] {
						l.until(p)
					}
					if away {
						l.m.component("web").stop(steps.ErrStopping)
						if err := l.ended(); !errors.Is(err, steps.ErrStopping) {
							t.Fatal(err)
						}
						l.m = l.w.start(&agent{})
						l.m.Proceed("web", l.r.ID, phase, "a host was lost")
						l.begin()
					} else {
						l.m.Proceed("web", l.r.ID, phase, "a host was lost")
					}
					if err := l.ended(); !errors.Is(err, steps.ErrCancelled) || err.Error() != "a host was lost" {
						t.Errorf("it ended with %v", err)
					}
					l.w.expect("4.2.0")
				})
			})
		}
	}
}

// Until the state is copied, a host undoes by itself what fails, also what another try could
// mend: the other hosts do not wait for it.
func TestLockstepIsUndoneByTheHost(t *testing.T) {
	for _, c := range []struct {
		until agentapi.LockstepPhase
		fails string
	}{{agentapi.LockstepDrain, "drain"}, {agentapi.LockstepStop, "stop"}, {agentapi.LockstepBackup, "save"}} {
		t.Run(c.fails, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, m := stateful(t)
				w.machine.set(func() { w.machine.fails[c.fails] = true })
				r := order("jump", "4.4.0")
				r.Component.Lockstep = &agentapi.LockstepData{Until: c.until}
				f := failureOf(t, m.Upgrade(t.Context(), r))
				if f.Transient || f.Broken {
					t.Errorf("it ended with %+v", f)
				}
				w.expect("4.2.0")
			})
		})
	}
}

func TestHostThatHearsNothingUndoesAsLongAsItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lockstep(t)
		l.until(agentapi.LockstepStop)
		time.Sleep(aloneFor + time.Minute)
		if err := l.ended(); err == nil || !strings.Contains(err.Error(), "no PROCEED until backup has come from the server within 3h0m0s") {
			t.Errorf("it ended with %v", err)
		}
		l.w.expect("4.2.0")

		l.r = order("again", "4.4.0")
		l.r.Component.Lockstep = &agentapi.LockstepData{Until: agentapi.LockstepBackup}
		l.begin()
		time.Sleep(30 * 24 * time.Hour)
		l.reached(agentapi.LockstepBackup)
		if l.runs() != "" {
			t.Errorf("it runs %q, and the others may have changed", l.runs())
		}
		l.until(agentapi.LockstepSwitch)
		l.until(agentapi.LockstepStart)
		if err := l.ended(); err != nil {
			t.Fatal(err)
		}
		l.w.expect("4.4.0")
	})
}

// A host whose server may have let the others go on repeats what fails after a restart.
func TestHostThatMayNotUndoRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lockstep(t)
		for _, p := range agentapi.LockstepPhases[:3] {
			l.until(p)
		}
		l.w.machine.set(func() { l.w.machine.fails["verify"] = true })
		l.restart()
		time.Sleep(time.Hour + lockstepRetry/2) // between two tries
		if d := l.m.Reports()[0].UpgradeDetails; d == nil || d.State.Ended() || d.Metadata.ErrorMsg != "verify does not work" {
			t.Errorf("reported is %+v", d)
		}
		l.w.machine.set(func() { clear(l.w.machine.fails) })
		l.m.Proceed("web", l.r.ID, agentapi.LockstepStart, "")
		if err := l.ended(); err != nil {
			t.Fatal(err)
		}
		l.w.expect("4.4.0")
	})
}

// What fails once the others have changed leaves the component stopped. An operator decides.
func TestLockstepThatFailsAfterTheOthersHaveChanged(t *testing.T) {
	for _, c := range []struct{ fails, want string }{
		{"install", "install does not work; component web stays stopped"},
		{"form 4.4", `migrate-up to the state of 4.4.0: form 4.4: exit status 1, saying "no such table"; component web stays stopped`},
		{"start 4.4.0", "start 4.4.0 does not work"},
	} {
		t.Run(c.fails, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := lockstep(t)
				l.w.machine.set(func() { l.w.machine.fails[c.fails] = true })
				l.m.Proceed("web", l.r.ID, agentapi.LockstepStart, "")
				f := failureOf(t, l.ended())
				if f.Transient || !strings.Contains(f.Error(), c.want) || f.Lockstep == nil || f.Lockstep.Until != agentapi.LockstepStart {
					t.Errorf("it ended with %+v", f)
				}
				l.w.reboot(l.w.disk.Killed())
				l.m = l.w.start(&agent{})
				if l.runs() != "" {
					t.Errorf("it runs %q after a reboot", l.runs())
				}
				if r := l.m.Reports()[0]; r.Status != "FAILED" || !strings.Contains(r.Message, "stays stopped") || r.Version != "4.2.0" {
					t.Errorf("reported is %+v", r)
				}
				other := l.m.Upgrade(t.Context(), order("other", "4.3.0"))
				if f := failureOf(t, other); !strings.Contains(f.Error(), "order 4.4.0 to go on, or with force to go back first") || l.runs() != "" {
					t.Errorf("another version: %v, and it runs %q", f, l.runs())
				}
				l.w.machine.set(func() { clear(l.w.machine.fails) })
				if err := l.m.Upgrade(t.Context(), order("again", "4.4.0")); err != nil {
					t.Fatal(err)
				}
				l.w.expect("4.4.0")
			})
		})
	}
}

func TestForceGoesBackFromLockstep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lockstep(t)
		l.w.machine.set(func() { l.w.machine.fails["form 4.4"] = true })
		l.m.Proceed("web", l.r.ID, agentapi.LockstepStart, "")
		if f := failureOf(t, l.ended()); f.Transient {
			t.Errorf("it ended with %+v", f)
		}
		back := order("back", "4.3.0")
		back.Force = true
		if err := l.m.Upgrade(t.Context(), back); err != nil {
			t.Fatal(err)
		}
		l.w.expect("4.3.0")
	})
}

// A version that was started stays, healthy or not, since the others run it too.
func TestLockstepWhoseVersionIsNotHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lockstep(t)
		l.w.machine.set(func() { l.w.machine.crashes["4.4.0"] = true })
		l.m.Proceed("web", l.r.ID, agentapi.LockstepStart, "")
		f := failureOf(t, l.ended())
		if !strings.Contains(f.Error(), "version 4.4.0 is not healthy") || f.Broken || f.Transient {
			t.Errorf("it ended with %+v", f)
		}
		l.w.expect("4.4.0")
		if s := l.m.component("web").state; s.LastHealthy != "4.2.0" || s.Highest != "4.2.0" {
			t.Errorf("recorded is %+v", s)
		}
		if again := l.m.Upgrade(t.Context(), l.r); again == nil || again.Error() != f.Error() {
			t.Errorf("done again it ends with %v", again)
		}
	})
}

func TestLockstepIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lockstep(t)
		for _, p := range agentapi.LockstepPhases[:3] {
			l.until(p)
		}
		l.m.component("web").stop(steps.ErrStopping)
		if err := l.ended(); !errors.Is(err, steps.ErrStopping) {
			t.Fatal(err)
		}
		m := l.w.start(&agent{})
		if f := failureOf(t, m.Upgrade(t.Context(), order("other", "4.4.0"))); !strings.Contains(f.Error(), "only the server's rollout decides how that ends") || l.runs() != "" {
			t.Errorf("another order: %v, and it runs %q", f, l.runs())
		}
		other := order("other", "4.3.0")
		other.Force = true
		if err := m.Upgrade(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		l.w.expect("4.3.0")
	})
}
