package component

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// stateful returns a host that runs version 4.2.0, which has hooks and state.
func stateful(t *testing.T) (*world, *Manager) {
	t.Helper()
	w := newWorld(t)
	for _, v := range []string{"4.2.0", "4.3.0", "4.4.0"} {
		w.publish(v, withState(v, true))
	}
	m := w.start(&agent{})
	if err := m.Upgrade(t.Context(), order("first", "4.2.0")); err != nil {
		t.Fatal(err)
	}
	return w, m
}

func TestHooksAndMigrationsAreRunInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := stateful(t)
		do := func(r request.Request, want ...string) {
			t.Helper()
			before := w.machine.count()
			if err := m.Upgrade(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			did := slices.DeleteFunc(w.machine.since(before), func(call string) bool {
				return slices.Contains([]string{"check", "verify", "acquire", "backup", "keep", "reload daemon", "remove", "discard"}, call)
			})
			if !slices.Equal(did, want) {
				t.Errorf("it did %q, want %q", did, want)
			}
			w.expect(r.Version)
		}
		w.machine.set(func() { w.machine.notYet = 2 })
		do(order("jump", "4.4.0"), "drain", "drain", "drain", "stop", "save", "install", "form 4.3", "form 4.4", "start 4.4.0", "undrain")
		back := order("back", "4.2.0")
		back.Rollback = true
		if f := failureOf(t, m.Upgrade(t.Context(), back)); !strings.Contains(f.Error(), "state goes back by one minor version at a time, to 4.3 first") {
			t.Errorf("back by two minor versions: %v", f)
		}
		do(order("again", "4.4.0")) // nothing but the configuration, which is the same
	})
}

func TestFailedHookIsUndone(t *testing.T) {
	for _, c := range []struct {
		hook, step, want string
		hangs            bool
	}{
		{hook: "drain", step: primitive.DrainNode, want: "hook drain: it is not drained after 5m0s"},
		{hook: "drain", hangs: true, step: primitive.DrainNode, want: "hook drain: it is not drained after 5m0s"},
		{hook: "save", step: primitive.BackupData, want: `hook backup: save: exit status 1, saying "no such table"`},
		{hook: "form 4.3", step: primitive.MigrateUp, want: `migrate-up to the state of 4.3.0: form 4.3: exit status 1, saying "no such table"`},
		{hook: "form 4.4", hangs: true, step: primitive.MigrateUp, want: "migrate-up to the state of 4.4.0: after 5m0s: form 4.4: killed"},
	} {
		t.Run(c.hook, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, m := stateful(t)
				w.machine.set(func() {
					if c.hangs {
						w.machine.hangs[c.hook] = true
					} else {
						w.machine.fails[c.hook] = true
					}
				})
				f := failureOf(t, m.Upgrade(t.Context(), order("jump", "4.4.0")))
				if f.Step != c.step || f.Error() != c.want || f.Broken || f.Transient {
					t.Errorf("failed at %s: %v, want %s: %s", f.Step, f, c.step, c.want)
				}
				w.expect("4.2.0")
				// A migration is of the new version, whose fault it is.
				again := m.Upgrade(t.Context(), order("again", "4.4.0"))
				if refused := strings.Contains(again.Error(), agentapi.FailedBefore); refused != (c.step == primitive.MigrateUp) {
					t.Errorf("ordered again: %v", again)
				}
			})
		})
	}
}

// An agent that stops in the middle of a migration leaves it to the next one, which runs it again.
func TestMigrationIsRunAgainByTheNextAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := stateful(t)
		w.machine.set(func() { w.machine.hangs["form 4.4"] = true })
		done := make(chan error)
		go func() { done <- m.Upgrade(t.Context(), order("jump", "4.4.0")) }()
		time.Sleep(time.Minute)
		if r := m.Reports()[0].UpgradeDetails; r == nil || r.Metadata.Reason != "migration 2 of 2, version 4.4.0" {
			t.Errorf("reported is %+v", r)
		}
		m.component("web").stop(steps.ErrStopping)
		if err := <-done; !errors.Is(err, steps.ErrStopping) {
			t.Fatal(err)
		}
		w.machine.set(func() { clear(w.machine.hangs) })
		before := w.machine.count()
		again := order("jump", "4.4.0")
		again.Interrupted = 1
		if err := w.start(&agent{}).Upgrade(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		if did := w.machine.since(before); slices.Contains(did, "form 4.3") || slices.Contains(did, "save") || !slices.Contains(did, "form 4.4") {
			t.Errorf("the next agent did %q", did)
		}
		w.expect("4.4.0")
	})
}

// Without a copy of the state and without a way back an operator has to act.
func TestMigrationThatCannotBeUndoneNeedsAnOperator(t *testing.T) {
	w := newWorld(t)
	w.publish("4.2.0", withState("4.2.0", false))
	w.publish("4.3.0", func(c *manifest.Component) {
		withState("4.3.0", false)(c)
		c.Migrations[2].Down = nil
	})
	synctest.Test(t, func(t *testing.T) {
		m := w.start(&agent{})
		if err := m.Upgrade(t.Context(), order("first", "4.2.0")); err != nil {
			t.Fatal(err)
		}
		w.machine.set(func() { w.machine.fails["start 4.3.0"] = true })
		f := failureOf(t, m.Upgrade(t.Context(), order("next", "4.3.0")))
		if !f.Broken || !strings.Contains(f.Error(), "the migration to 4.3.0 was run, and the package has neither a down for it nor state-paths: bring the state back by hand, and order a version with force") {
			t.Errorf("failure is %+v", f)
		}
		w.machine.set(func() {
			if w.machine.running["web"] != "" || !w.machine.stopped["web"] {
				t.Error("it runs, with state that it cannot read")
			}
		})
		again := order("again", "4.2.0")
		if f := failureOf(t, m.Upgrade(t.Context(), again)); !f.Broken {
			t.Errorf("without force: %v", f)
		}
		if err := writeForm(w.look(), "web", "4.2"); err != nil {
			t.Fatal(err)
		}
		again.Component.UpgradeID, again.Force = "by hand", true
		if err := m.Upgrade(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		w.expect("4.2.0")
	})
}

func TestStateThatCannotBeKeptIsRefusedBeforeAnythingIsStopped(t *testing.T) {
	for _, c := range []struct {
		name, want string
		version    string
		change     func(*manifest.Component)
	}{
		{"another major version", "version 5.0.0 cannot follow 4.2.0: their major versions differ", "5.0.0", func(*manifest.Component) {}},
		{"agent's folder", "state path /opt: it would hold the agent's own folder " + top, "4.3.0", func(c *manifest.Component) { c.StatePaths = []string{"/opt"} }},
		{"in the agent's folder", "state path " + top + "/data: it would be in the agent's own folder " + top, "4.3.0", func(c *manifest.Component) { c.StatePaths = []string{top + "/data"} }},
		{"folder of the agent's pointer", "state path /etc: it would hold the agent's own folder " + links, "4.3.0", func(c *manifest.Component) { c.StatePaths = []string{"/etc"} }},
		{"a link", "state path /var/current is a link: name what it leads to", "4.3.0", func(c *manifest.Component) { c.StatePaths = []string{"/var/current"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, m := stateful(t)
				if err := w.look().Symlink("test", "lib", "/var/current"); err != nil {
					t.Fatal(err)
				}
				w.publish(c.version, c.change)
				before := w.machine.count()
				if f := failureOf(t, m.Upgrade(t.Context(), order("next", c.version))); !strings.Contains(f.Error(), c.want) {
					t.Errorf("error is %q, want %q", f, c.want)
				}
				if did := w.machine.since(before); slices.Contains(did, "drain") || slices.Contains(did, "stop") {
					t.Errorf("it did %q", did)
				}
				w.expect("4.2.0")
			})
		})
	}
}
