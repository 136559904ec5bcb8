package component

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestVersionInForceDecides(t *testing.T) {
	const (
		goesOn  = ""
		changed = "version 1.1.0 is in force for this policy, and 1.0.0 is installed: it is not started until it has switched"
		moves   = "a rollout in lockstep changes this policy from version 1.0.0, and 1.0.0 is installed: it is not started until the rollout has decided which version all hosts run"
		unknown = "version 1.0.0 is installed, and the server has not answered yet whether it is still in force: it is not started until then"
		waits   = "it did not run when the agent started, and its upgrade goes on before it is started"
	)
	force := func(version string, changing bool) *agentapi.ComponentInForce {
		return &agentapi.ComponentInForce{Version: version, Changing: changing}
	}
	same, other, changing, otherChanging := force("1.0.0", false), force("1.1.0", false), force("1.0.0", true), force("1.1.0", true)
	for _, c := range []struct {
		what string
		f    facts // installed is 1.0.0, and the policy says lockstep
		do   action
		why  string
	}{
		{"it runs, and is in force", facts{policy: agentapi.PolicyComponent{InForce: same}, runs: true}, leaveIt, goesOn},
		{"it runs while that changes", facts{policy: agentapi.PolicyComponent{InForce: changing}, runs: true}, leaveIt, goesOn},
		{"it runs while another one changes", facts{policy: agentapi.PolicyComponent{InForce: otherChanging}, runs: true}, leaveIt, goesOn},
		{"it runs, and another one is in force", facts{policy: agentapi.PolicyComponent{InForce: other}, runs: true}, stopIt, changed},
		{"likewise, upgraded", facts{policy: agentapi.PolicyComponent{InForce: other}, runs: true, upgraded: true}, leaveIt, goesOn},
		{"likewise, released", facts{policy: agentapi.PolicyComponent{InForce: other}, runs: true, released: force("1.1.0", false)}, leaveIt, goesOn},
		{"released when another one was in force", facts{policy: agentapi.PolicyComponent{InForce: other}, runs: true, released: same}, stopIt, changed},
		{"it runs, and none is in force", facts{runs: true}, leaveIt, goesOn},

		{"it is down, and in force", facts{policy: agentapi.PolicyComponent{InForce: same}, down: true, confirmed: true}, startIt, goesOn},
		{"likewise, not confirmed", facts{policy: agentapi.PolicyComponent{InForce: same}, down: true}, withholdIt, unknown},
		{"likewise, released", facts{policy: agentapi.PolicyComponent{InForce: same}, down: true, released: force("1.0.0", false)}, startIt, goesOn},
		{"it is down while that changes", facts{policy: agentapi.PolicyComponent{InForce: changing}, down: true, confirmed: true}, withholdIt, moves},
		{"it is down, and another one is in force", facts{policy: agentapi.PolicyComponent{InForce: other}, down: true, confirmed: true}, withholdIt, changed},
		{"likewise, not confirmed", facts{policy: agentapi.PolicyComponent{InForce: other}, down: true}, withholdIt, changed},
		{"it is down, and none is in force", facts{down: true}, startIt, goesOn},
		{"it is down and upgraded", facts{policy: agentapi.PolicyComponent{InForce: same}, down: true, confirmed: true, upgraded: true}, withholdIt, waits},

		{"somebody has stopped it", facts{policy: agentapi.PolicyComponent{InForce: same}, confirmed: true}, leaveIt, goesOn},
		{"likewise, and another one is in force", facts{policy: agentapi.PolicyComponent{InForce: other}, confirmed: true}, leaveIt, goesOn},
	} {
		c.f.policy.Lockstep, c.f.installed = true, "1.0.0"
		if do, why := c.f.decide(); do != c.do || why != c.why {
			t.Errorf("%s: decided is %d, %q, want %d, %q", c.what, do, why, c.do, c.why)
		}
		// Without lockstep nothing is in force.
		c.f.policy.Lockstep = false
		want := leaveIt
		switch {
		case c.f.down && c.f.upgraded:
			want = withholdIt
		case c.f.down:
			want = startIt
		}
		if do, _ := c.f.decide(); do != want {
			t.Errorf("%s, without lockstep: decided is %d, want %d", c.what, do, want)
		}
	}
}

// bound is a host with web 1.0.0, which is in force.
type bound struct {
	*together
}

func boundHost(t *testing.T) *bound {
	t.Helper()
	w := newWorld(t)
	for _, v := range []string{"1.0.0", "1.1.0"} {
		w.publish(v, nil)
	}
	w.policy = w.policy[:1]
	w.policy[0].Lockstep = true // nothing is in force before the first installation
	b := &bound{&together{t: t, w: w}}
	b.m = w.start(&agent{})
	if err := b.m.Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
		t.Fatal(err)
	}
	b.force("1.0.0", false)
	b.m.Confirmed()
	b.sees("1.0.0", "")
	return b
}

// force has the server put a version in force. The host gets the policy.
func (b *bound) force(version string, changing bool) {
	b.t.Helper()
	policy := b.w.policy[0]
	policy.InForce = &agentapi.ComponentInForce{Version: version, Changing: changing}
	b.follow(policy)
}

func (b *bound) follow(policy agentapi.PolicyComponent) {
	b.t.Helper()
	b.w.policy = []agentapi.PolicyComponent{policy}
	if err := b.m.Follow(b.t.Context(), b.w.policy); err != nil {
		b.t.Fatal(err)
	}
}

// boots boots the host, whose agent has the policy that it had before.
func (b *bound) boots() {
	b.w.reboot(b.w.disk.Killed())
	b.starts()
}

func (b *bound) starts() { b.m = b.w.start(&agent{}) }

// sees looks at the component, and wants what it runs, and that the report has why its start is withheld.
func (b *bound) sees(runs, why string) {
	b.t.Helper()
	b.m.look(b.t.Context())
	if got := b.runs(); got != runs {
		b.t.Errorf("it runs %q, want %q", got, runs)
	}
	r := b.m.Reports()[0]
	if r.StartWithheld != (why != "") || why != "" && (r.Status != "STOPPED" || !strings.Contains(r.Message, why)) {
		b.t.Errorf("reported is %+v, want that it is held because %q", r, why)
	}
}

func TestHostThatBootsWaitsForItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := boundHost(t)
		b.boots()
		b.sees("", "the server has not answered yet")
		if !b.m.AwaitsServer() {
			t.Error("it does not wait for the server")
		}
		time.Sleep(24 * time.Hour)
		b.boots() // once more, still without the server
		b.sees("", "the server has not answered yet")
		b.m.Confirmed()
		b.sees("1.0.0", "")
		if b.m.AwaitsServer() || b.m.component("web").state.Withheld != "" {
			t.Errorf("recorded is %+v", b.m.component("web").state)
		}
		b.starts() // an agent that finds it running waits for nothing
		b.sees("1.0.0", "")
	})
}

// A host that was away when the others have switched is withheld until it has switched too.
func TestHostThatComesBackWithTheVersionBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := boundHost(t)
		b.boots()
		b.force("1.1.0", false) // it comes with the first answer
		b.m.Confirmed()
		why := "version 1.1.0 is in force for this policy, and 1.0.0 is installed"
		b.sees("", why)
		b.boots()
		b.m.Confirmed()
		b.sees("", why)
		b.w.machine.set(func() { b.w.machine.fails["install"] = true })
		_ = failureOf(t, b.m.Upgrade(t.Context(), order("fails", "1.1.0")))
		b.sees("", why) // as before it
		b.w.machine.set(func() { clear(b.w.machine.fails) })
		if err := b.m.Upgrade(t.Context(), order("switch", "1.1.0")); err != nil {
			t.Fatal(err)
		}
		b.sees("1.1.0", "")
		b.w.expect("1.1.0")
	})
}

func TestVersionInForceChangesWhileAHostRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := boundHost(t)
		b.force("1.0.0", true)
		b.sees("1.0.0", "")
		b.force("1.1.0", false)
		b.sees("", "version 1.1.0 is in force")
		b.force("1.0.0", true) // another rollout
		b.sees("", "until the rollout has decided")
		b.force("1.0.0", false)
		b.sees("1.0.0", "")

		// A policy without lockstep lets it run, as one in which nothing is in force.
		for _, change := range []func(*agentapi.PolicyComponent){
			func(p *agentapi.PolicyComponent) { p.Lockstep = false },
			func(p *agentapi.PolicyComponent) { p.InForce = nil },
		} {
			b.force("1.1.0", false)
			b.sees("", "version 1.1.0 is in force")
			policy := b.w.policy[0]
			change(&policy)
			b.follow(policy)
			b.sees("1.0.0", "")
			b.boots() // before the server answers
			b.sees("1.0.0", "")
			b.w.policy[0].Lockstep = true
		}
	})
}

func TestStopThatFailsIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := boundHost(t)
		b.w.machine.set(func() { b.w.machine.fails["stop"] = true })
		b.force("1.1.0", false)
		b.m.look(t.Context())
		if b.runs() != "1.0.0" {
			t.Errorf("it runs %q", b.runs())
		}
		b.w.machine.set(func() { clear(b.w.machine.fails) })
		b.sees("", "version 1.1.0 is in force")
		b.w.machine.set(func() { b.w.machine.fails["start 1.0.0"] = true })
		b.force("1.0.0", false)
		b.sees("", "its start fails, which is repeated every 10s: start 1.0.0 does not work")
		b.w.machine.set(func() { clear(b.w.machine.fails) })
		b.sees("1.0.0", "")
	})
}

// What somebody stops by hand while the agent runs stays stopped.
func TestComponentStoppedByHandIsNotWithheld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := boundHost(t)
		b.w.machine.set(func() { delete(b.w.machine.running, "web") })
		b.sees("", "")
	})
}

// Nor does a policy that begins to say lockstep start it.
func TestComponentStoppedByHandBeforeLockstepIsNotWithheld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.publish("1.0.0", nil)
		w.policy = w.policy[:1]
		b := &bound{&together{t: t, w: w}}
		b.starts()
		if err := b.m.Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
			t.Fatal(err)
		}
		b.starts()
		b.sees("1.0.0", "")
		w.machine.set(func() { delete(w.machine.running, "web") })
		w.policy[0].Lockstep = true
		b.force("1.0.0", false)
		b.m.Confirmed()
		b.sees("", "")
		b.boots() // its version is not held at boot, since it is older than that policy
		b.sees("1.0.0", "")
	})
}

func TestWithheldComponentIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := boundHost(t)
		if err := b.m.ReleaseWithheld(t.Context(), "web"); err == nil || err.Error() != "the start of component web is not withheld" {
			t.Errorf("one that is not held is released: %v", err)
		}
		b.force("1.1.0", false)
		b.sees("", "version 1.1.0 is in force")
		if err := b.m.ReleaseWithheld(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
		b.sees("1.0.0", "")
		b.boots() // the server is still away
		b.sees("1.0.0", "")
		b.force("1.1.0", true)
		b.sees("1.0.0", "")
		b.force("1.1.0", false) // the next policy
		b.sees("", "version 1.1.0 is in force")
	})
}

// An upgrade in lockstep that is undone leaves the start of the version before to what is in force.
func TestHostDoesNotUndoIntoMixedVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := boundHost(t)
		b.force("1.0.0", true)
		b.begins("1.1.0", agentapi.LockstepStop)
		b.sees("", "") // it is being upgraded
		time.Sleep(aloneFor + time.Minute)
		if err := b.ended(); err == nil {
			t.Fatal("the upgrade has succeeded")
		}
		b.sees("", "until the rollout has decided")
		b.force("1.1.0", false) // without this host
		b.sees("", "version 1.1.0 is in force")
		b.force("1.0.0", false)
		b.sees("1.0.0", "")
		b.w.expect("1.0.0")
	})
}

func (b *bound) begins(version string, until agentapi.LockstepPhase) {
	b.t.Helper()
	b.r = order("jump", version)
	b.r.Component.Lockstep = &agentapi.LockstepData{Until: until}
	b.begin()
	b.reached(until)
}

// A failed upgrade that stays stopped is not started by what is in force, also not after a boot.
func TestFailedUpgradeInLockstepStaysStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := boundHost(t)
		b.force("1.0.0", true)
		b.w.machine.set(func() { b.w.machine.fails["install"] = true })
		b.begins("1.1.0", agentapi.LockstepBackup)
		b.m.Proceed("web", b.r.ID, agentapi.LockstepStart, "")
		_ = failureOf(t, b.ended())
		for _, version := range []string{"1.0.0", "1.1.0"} {
			b.force(version, false)
			b.boots()
			b.m.Confirmed()
			b.m.look(t.Context())
			if r := b.m.Reports()[0]; b.runs() != "" || r.Status != "FAILED" || !strings.Contains(r.Message, "stays stopped") {
				t.Errorf("it runs %q, and reported is %+v", b.runs(), r)
			}
		}
	})
}

// withHooks makes a version without state that is drained before it is stopped.
func withHooks(c *manifest.Component) {
	c.Hooks = &manifest.Hooks{Drain: &manifest.Hook{Exec: []string{"/usr/bin/drain"}}, Undrain: &manifest.Hook{Exec: []string{"/usr/bin/undrain"}}}
}

// A boot in the middle of an upgrade, before the component was stopped, does not start it either.
func TestBootOfADrainedHost(t *testing.T) {
	for _, undone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := boundHost(t)
			b.w.publish("1.2.0", withHooks)
			if err := b.m.Upgrade(t.Context(), order("hooks", "1.2.0")); err != nil {
				t.Fatal(err)
			}
			b.force("1.2.0", true)
			b.w.publish("1.3.0", withHooks)
			b.begins("1.3.0", agentapi.LockstepDrain)
			b.m.component("web").stop(steps.ErrStopping)
			if err := b.ended(); !errors.Is(err, steps.ErrStopping) {
				t.Fatal(err)
			}
			b.boots()
			b.m.Confirmed()
			b.sees("", "until the rollout has decided")
			b.begin()
			if undone {
				b.m.Proceed("web", b.r.ID, agentapi.LockstepDrain, "a host was lost")
				if err := b.ended(); !errors.Is(err, steps.ErrCancelled) {
					t.Fatal(err)
				}
				b.sees("", "until the rollout has decided")
				b.force("1.2.0", false)
				b.sees("1.2.0", "")
				b.w.expect("1.2.0") // and is not drained any more
				return
			}
			b.m.Proceed("web", b.r.ID, agentapi.LockstepStart, "")
			if err := b.ended(); err != nil {
				t.Fatal(err)
			}
			b.force("1.3.0", false)
			b.sees("1.3.0", "")
			b.w.expect("1.3.0")
		})
	}
}
