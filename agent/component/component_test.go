package component

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/runtime/docker"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	goos   = goruntime.GOOS
	goarch = goruntime.GOARCH
)

func failureOf(t *testing.T, err error) *request.Failure {
	t.Helper()
	var f *request.Failure
	if !errors.As(err, &f) {
		t.Fatalf("error is %v, want a failure", err)
	}
	return f
}

func TestComponentIsInstalledUpgradedAndRolledBack(t *testing.T) {
	w := newWorld(t)
	for _, v := range []string{"1.0.0", "1.1.0", "1.2.0"} {
		w.publish(v, nil)
	}
	synctest.Test(t, func(t *testing.T) {
		m := w.start(&agent{})
		if r := m.Reports()[0]; r.Status != "STOPPED" || r.Version != "" {
			t.Errorf("before the installation: %+v", r)
		}
		for i, v := range []string{"1.0.0", "1.1.0", "1.2.0"} {
			if err := m.Upgrade(t.Context(), order(fmt.Sprint("up", i), v)); err != nil {
				t.Fatalf("%s: %v", v, err)
			}
			w.expect(v)
		}
		if got := w.homes(); !slices.Equal(got, []string{"1.1.0", "1.2.0"}) {
			t.Errorf("versions on the host are %v, want the installed one and the one before", got)
		}
		back := order("back", "1.1.0")
		back.Rollback = true
		w.floor = "1.2.0"
		if f := failureOf(t, m.Upgrade(t.Context(), back)); !strings.Contains(f.Error(), "is below 1.2.0, the lowest version its publishers still allow") {
			t.Errorf("a rollback below the floor: %v", f)
		}
		w.floor = "1.1.0"
		if err := m.Upgrade(t.Context(), back); err != nil {
			t.Fatal(err)
		}
		w.expect("1.1.0")
		m.look(t.Context())
		r := m.Reports()[0]
		if r.Status != "HEALTHY" || r.Version != "1.1.0" || r.LastHealthyVersion != "1.1.0" || !slices.Equal(r.Rollbacks, []string{"1.2.0"}) || r.UpgradeDetails != nil {
			t.Errorf("report is %+v", r)
		}
		history, err := m.History("web")
		if err != nil || len(history) != 5 || history[0].From != "" || history[4].From != "1.2.0" {
			t.Errorf("history is %+v, %v", history, err)
		}
	})
}

func TestUpgradeThatIsDoneIsNotDoneAgain(t *testing.T) {
	w := newWorld(t)
	w.publish("1.0.0", nil)
	synctest.Test(t, func(t *testing.T) {
		m := w.start(&agent{})
		if err := m.Upgrade(t.Context(), order("a", "1.0.0")); err != nil {
			t.Fatal(err)
		}
		before := w.machine.count()
		again := order("a", "1.0.0")
		again.ID, again.ActionID = "another item", "another action"
		if err := w.start(&agent{}).Upgrade(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		if did := w.machine.since(before); len(did) > 0 {
			t.Errorf("did %v again", did)
		}
	})
}

// An agent that lacks the runtime of an installed version has lost the component. A policy that asks for another
// one, or for a component that was never there, says nothing against the agent.
func TestAgentThatLacksTheRuntimeOfAComponentHasLostIt(t *testing.T) {
	w := newWorld(t)
	w.publish("1.0.0", nil)
	synctest.Test(t, func(t *testing.T) {
		w.t = t
		if err := w.start(&agent{}).Upgrade(t.Context(), order("a", "1.0.0")); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			lacks   bool
			runtime string
			lost    bool
		}{{false, "model", false}, {true, "model", true}, {true, "other", false}} {
			m := w.start(&agent{})
			if c.lacks {
				m.Adapters = nil
			}
			policy := slices.Clone(w.policy)
			policy[0].Runtime = c.runtime
			if err := m.Follow(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			if got := !m.FailedSince("web").IsZero(); got != c.lost {
				t.Errorf("%+v: it has failed: %v", c, got)
			}
			if !m.FailedSince("db").IsZero() {
				t.Errorf("%+v: what was never installed has failed", c)
			}
		}
	})
}

// What is undone, and what is left, if an action fails or hangs.
func TestActionThatFailsOrHangsIsCompensatedInReverse(t *testing.T) {
	start := "start 2.0.0"
	all := []string{"stop", "reload daemon", "restore", "reload daemon", "start 1.0.0"}
	for _, c := range []struct {
		call, action string
		undone       []string
	}{
		{"backup", primitive.BackupState, nil},
		{"acquire", primitive.AcquireArtifact, []string{"discard"}},
		{"verify", primitive.VerifyArtifact, []string{"discard"}},
		{"check", primitive.VerifyArtifact, []string{"discard"}},
		{"stop", primitive.StopNode, []string{"reload daemon", "start 1.0.0", "discard"}},
		{"install", primitive.InstallArtifact, []string{"restore", "reload daemon", "start 1.0.0", "discard"}},
		{"reload daemon", primitive.ReloadDaemon, nil}, // fails while it is undone too
		{start, primitive.StartNode, append(slices.Clone(all), "discard")},
	} {
		for _, how := range []string{"fails", "hangs"} {
			t.Run(c.action+" "+how, func(t *testing.T) {
				w := newWorld(t)
				w.publish("1.0.0", nil)
				w.publish("2.0.0", nil)
				synctest.Test(t, func(t *testing.T) {
					m := w.start(&agent{})
					if err := m.Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
						t.Fatal(err)
					}
					set := w.machine.fails
					if how == "hangs" {
						set = w.machine.hangs
					}
					w.machine.set(func() { set[c.call] = true })
					before := w.machine.count()
					f := failureOf(t, m.Upgrade(t.Context(), order("second", "2.0.0")))
					if f.Step != c.action {
						t.Errorf("failed at %s: %v, want %s", f.Step, f, c.action)
					}
					if c.call == "reload daemon" {
						if !f.Broken || !strings.HasPrefix(f.Error(), agentapi.FailedRollback) {
							t.Errorf("failure is %+v, want %s", f, agentapi.FailedRollback)
						}
						return
					}
					did := w.machine.since(before)
					if undone := did[slices.Index(did, c.call)+1:]; !slices.Equal(undone, c.undone) {
						t.Errorf("undone was %q, want %q (all: %q)", undone, c.undone, did)
					}
					w.expect("1.0.0")
					if got := w.homes(); !slices.Equal(got, []string{"1.0.0"}) {
						t.Errorf("versions on the host are %v", got)
					}
				})
			})
		}
	}
}

// An upgrade that fails before anything is stopped leaves nothing to be undone by the runtime:
// it may be what failed. The next order is done.
func TestFailureBeforeAnythingIsStoppedBreaksNothing(t *testing.T) {
	for _, before := range []string{"", "1.0.0"} {
		for _, fails := range []string{"acquire", "verify", "check"} {
			for _, discard := range []string{"works", "fails", "hangs"} {
				t.Run(cmp.Or(before, "nothing")+" installed, "+fails+" fails, discard "+discard, func(t *testing.T) {
					w := newWorld(t)
					w.publish("1.0.0", nil)
					w.publish("2.0.0", nil)
					synctest.Test(t, func(t *testing.T) {
						m := w.start(&agent{})
						status := "STOPPED"
						if before != "" {
							status = "HEALTHY"
							if err := m.Upgrade(t.Context(), order("first", before)); err != nil {
								t.Fatal(err)
							}
						}
						w.machine.set(func() {
							w.machine.fails[fails], w.machine.fails["discard"], w.machine.hangs["discard"] = true, discard == "fails", discard == "hangs"
						})
						f := failureOf(t, m.Upgrade(t.Context(), order("second", "2.0.0")))
						if f.Broken || !strings.Contains(f.Error(), fails+" does not work") {
							t.Errorf("failure is %+v", f)
						}
						w.expect(before)
						m.look(t.Context())
						if r := m.Reports()[0]; r.Status != status || r.Version != before {
							t.Errorf("report is %+v, want %s", r, status)
						}
						if state, why := m.Health(); state != probe.Healthy {
							t.Errorf("the agent is %s: %s", state, why)
						}
						w.machine.set(func() { clear(w.machine.fails); clear(w.machine.hangs) })
						if err := m.Upgrade(t.Context(), order("third", "2.0.0")); err != nil {
							t.Fatal(err)
						}
						w.expect("2.0.0")
					})
				})
			}
		}
	}
}

// An agent whose undoing of acquire_artifact could fail has left such a journal. The component
// stays broken until the next order, which is done.
func TestOrderAfterAnUndoingThatAnEarlierAgentGaveUp(t *testing.T) {
	for _, before := range []string{"", "1.0.0"} {
		t.Run(cmp.Or(before, "nothing")+" installed", func(t *testing.T) {
			w := newWorld(t)
			w.publish("1.0.0", nil)
			w.publish("2.0.0", nil)
			synctest.Test(t, func(t *testing.T) {
				m := w.start(&agent{})
				if before != "" {
					if err := m.Upgrade(t.Context(), order("first", before)); err != nil {
						t.Fatal(err)
					}
				}
				dir := filepath.Join(top, FolderName, "web")
				s, err := readState(w.look(), dir)
				if err != nil {
					t.Fatal(err)
				}
				j := primitive.Journal{Desired: desired(order("second", "1.5.0"), agentapi.PolicyComponent{}), From: s.Installed, Runs: before != ""}
				j.Begun, j.Undoing = []string{primitive.BackupState, primitive.AcquireArtifact, primitive.VerifyArtifact}, true
				j.FailedStep, j.FailedError = primitive.VerifyArtifact, "the engine is away"
				// Its settings are those of another runtime.
				j.To = primitive.Installed{Identity: manifest.Identity{Version: "1.5.0", Hash: "3f2a9c"}, Home: "data/web-1.5.0-3f2a9c"}
				s.Broken = agentapi.FailedRollback + ": undo acquire_artifact"
				file := journalOf(w.look(), dir)
				if err := errors.Join(w.look().MkdirAll("test", dir, 0o755), s.save(w.look(), dir),
					disk.WriteRecord(file.Disk, file.Op, file.Path, file.Kind, file.Version, &j)); err != nil {
					t.Fatal(err)
				}
				m = w.start(&agent{})
				if r := m.Reports()[0]; r.Status != "FAILED" || !strings.Contains(r.Message, agentapi.FailedRollback) {
					t.Errorf("before the order: %+v", r)
				}
				w.machine.set(func() { w.machine.fails["discard"] = true })
				if err := m.Upgrade(t.Context(), order("third", "2.0.0")); err != nil {
					t.Fatal(err)
				}
				w.expect("2.0.0")
				m.look(t.Context())
				if r := m.Reports()[0]; r.Status != "HEALTHY" {
					t.Errorf("after the order: %+v", r)
				}
			})
		})
	}
}

// A host may lack the runtime.
func TestContainerThatCannotBeInstalledBreaksNothing(t *testing.T) {
	w := newWorld(t)
	w.publish("1.0.0", func(m *manifest.Component) {
		m.Runtime, m.Settings = docker.Name, map[string]any{"image": "registry.example.com/web@sha256:" + strings.Repeat("1", 64)}
	})
	synctest.Test(t, func(t *testing.T) {
		engine, err := docker.New(docker.Options{Host: "unix://" + filepath.Join(t.TempDir(), "docker.sock"), Disk: w.look()})
		if err != nil {
			t.Fatal(err)
		}
		defer engine.Close()
		m := w.start(&agent{})
		working := m.Adapters["model"]
		m.Adapters[docker.Name] = engine
		if err := m.Follow(t.Context(), []agentapi.PolicyComponent{{Name: "web", Runtime: docker.Name, Health: shortly}}); err != nil {
			t.Fatal(err)
		}
		upgrade := func(id string) error {
			r := order(id, "1.0.0")
			r.Component.Runtime = docker.Name
			return m.Upgrade(t.Context(), r)
		}
		for _, id := range []string{"first", "second"} {
			f := failureOf(t, upgrade(id))
			if want := "the Docker engine is away"; f.Broken || !strings.Contains(f.Error(), want) {
				t.Errorf("failure is %+v, want %q", f, want)
			}
			if r := m.Reports()[0]; r.Status != "STOPPED" {
				t.Errorf("report is %+v", r)
			}
			w.expect("")
		}
		m.Adapters[docker.Name] = working // the engine is started
		if err := upgrade("third"); err != nil {
			t.Fatal(err)
		}
		w.expect("1.0.0")
	})
}

func TestUnhealthyVersionIsUndoneAndRemembered(t *testing.T) {
	w := newWorld(t)
	w.publish("1.0.0", nil)
	w.publish("2.0.0", nil)
	w.machine.crashes["2.0.0"] = true
	synctest.Test(t, func(t *testing.T) {
		m := w.start(&agent{})
		if err := m.Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		m.Log = slog.New(slog.NewTextHandler(&log, nil))
		bad := order("second", "2.0.0")
		f := failureOf(t, m.Upgrade(t.Context(), bad))
		if text := log.String(); strings.Contains(text, `=""`) || !strings.Contains(text, "state=UPG_ROLLBACK version=2.0.0 error=") {
			t.Errorf("the log is\n%s", text)
		}
		if f.Step != observeHealth || !strings.HasSuffix(f.Error(), `crash loop: it was restarted 3 times within 3s; its last output: "2.0.0 cannot \x1b[31mbind"`) || f.Transient {
			t.Errorf("failure is %+v", f)
		}
		w.expect("1.0.0")
		m.Conclude(bad, f)
		d := m.Reports()[0].UpgradeDetails
		if d == nil || d.State != agentapi.UpgradeFailed || d.Metadata.FailedState != agentapi.UpgradeWatching || d.Metadata.ReasonCode != agentapi.ReasonCrashLoop || d.ActionID != "second" {
			t.Errorf("reported is %+v", d)
		}
		// Another agent process remembers both.
		m = w.start(&agent{})
		if d := m.Reports()[0].UpgradeDetails; d == nil || d.State != agentapi.UpgradeFailed {
			t.Errorf("after a restart reported is %+v", d)
		}
		f = failureOf(t, m.Upgrade(t.Context(), order("third", "2.0.0")))
		if !strings.Contains(f.Error(), agentapi.FailedBefore) {
			t.Errorf("the same version again: %v", f)
		}
		w.machine.set(func() { delete(w.machine.crashes, "2.0.0") })
		forced := order("fourth", "2.0.0")
		forced.Force = true
		if err := m.Upgrade(t.Context(), forced); err != nil {
			t.Fatal(err)
		}
		w.expect("2.0.0")
	})
}

// A version that prints nothing is not blamed for what the one before has printed, and what the
// runtime says already is not said twice.
func TestFailureHasTheLastOutputOfTheNewVersion(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(m *machine)
		want string // the end of the error
	}{
		{"does not start", func(m *machine) { m.fails["start 2.0.0"] = true }, `start 2.0.0 does not work; its last output: "start 2.0.0: Address already in use"`},
		{"does not start, and its runtime does not answer", func(m *machine) { m.hangs["start 2.0.0"] = true }, "start_node took longer than 30s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.publish("1.0.0", nil)
			w.publish("2.0.0", nil)
			synctest.Test(t, func(t *testing.T) {
				m := w.start(&agent{})
				if err := m.Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
					t.Fatal(err)
				}
				w.machine.set(func() { w.machine.printed = []string{"1.0.0 listens"}; c.fail(w.machine) })
				if f := failureOf(t, m.Upgrade(t.Context(), order("second", "2.0.0"))); !strings.HasSuffix(f.Error(), c.want) {
					t.Errorf("failure is %q, want %q", f, c.want)
				}
			})
		})
	}
	long := strings.Repeat("x", 2*maxQuoted)
	for _, c := range []struct{ before, now, want []string }{
		{nil, []string{"a", "b"}, []string{"a", "b"}},
		{[]string{"a", "b"}, []string{"a", "b"}, nil},
		{[]string{"a", "b"}, []string{"b", "c", "c", "", " c\r"}, []string{"c"}},
		{[]string{"a"}, []string{"1", "2", "3", "4"}, []string{"2", "3", "4"}},
		{[]string{"a"}, []string{long}, []string{long[:maxQuoted]}},
	} {
		if got := quotable(newLines(c.before, c.now)); !slices.Equal(got, c.want) {
			t.Errorf("%q after %q: quoted are %q, want %q", c.now, c.before, got, c.want)
		}
	}
	said := errors.New(`exit status 1; its last lines: ["starting" "cannot bind"]`)
	if err := quoting(said, []string{"cannot bind"}); err.Error() != said.Error() {
		t.Errorf("what the runtime says is said twice: %v", err)
	}
}

// The restarts of a component that runs come from its runtime, and those that an upgrade makes
// are no restarts.
func TestComponentThatCrashesAfterItsUpgradeIsDegraded(t *testing.T) {
	w := newWorld(t)
	w.publish("1.0.0", nil)
	synctest.Test(t, func(t *testing.T) {
		m := w.start(&agent{})
		if err := m.Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
			t.Fatal(err)
		}
		says := func(what, status, message string) {
			t.Helper()
			m.look(t.Context())
			if r := m.Reports()[0]; r.Status != status || r.Message != message {
				t.Errorf("%s it is %s: %q, want %s: %q", what, r.Status, r.Message, status, message)
			}
		}
		crashes := func(does bool) { w.machine.set(func() { w.machine.crashes["1.0.0"] = does }) }
		says("after its upgrade", "HEALTHY", "")
		crashes(true)
		for range DefaultMaxRestarts + 1 {
			time.Sleep(observeEvery)
			says("after as many crashes as a new version may have", "HEALTHY", "")
		}
		crashes(false)
		time.Sleep(observeEvery)
		says("after another one", "DEGRADED", "it was restarted 3 times in the last 5 min")
		if state, why := m.Health(); state != probe.Degraded || why != "component web: it was restarted 3 times in the last 5 min" {
			t.Errorf("the agent is %s: %s", state, why)
		}
		time.Sleep(restartWindow)
		says("when it has run for long enough", "HEALTHY", "")
	})
}

// The new version has changed state that the version before cannot read.
func TestVersionThatDoesNotRunAgainIsAFailedRollback(t *testing.T) {
	for _, c := range []struct{ migration, want string }{
		{"compatible", `version 1.0.0 is back, and crash loop: it was restarted 3 times within 3s; its last output: "1.0.0 cannot`},
		{"breaking", "it may not read the state: follow the recovery plan"},
	} {
		t.Run(c.migration, func(t *testing.T) {
			w := newWorld(t)
			w.publish("1.0.0", nil)
			w.publish("2.0.0", nil)
			synctest.Test(t, func(t *testing.T) {
				m := w.start(&agent{})
				if err := m.Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
					t.Fatal(err)
				}
				w.machine.set(func() { w.machine.crashes["1.0.0"], w.machine.crashes["2.0.0"] = true, true })
				bad := order("second", "2.0.0")
				bad.Component.Migration = c.migration
				f := failureOf(t, m.Upgrade(t.Context(), bad))
				if !f.Broken || f.Transient || !strings.Contains(f.Error(), c.want) || !strings.HasPrefix(f.Error(), agentapi.FailedRollback) {
					t.Errorf("failure is %+v", f)
				}
				w.expect("1.0.0")
				if r := m.Reports()[0]; r.Status != "FAILED" || !strings.Contains(r.Message, agentapi.FailedRollback) {
					t.Errorf("report is %+v", r)
				}
			})
		})
	}
}

// A component that does not run is reported as failed, and its agent as degraded, but not
// while it is upgraded.
func TestComponentThatIsUpgradedRaisesNoAlarm(t *testing.T) {
	w := newWorld(t)
	w.publish("1.0.0", nil)
	w.publish("2.0.0", nil)
	synctest.Test(t, func(t *testing.T) {
		m := w.start(&agent{})
		says := func(what, status string, agent probe.State) {
			t.Helper()
			m.look(t.Context())
			r := m.Reports()[0]
			if state, why := m.Health(); r.Status != status || state != agent {
				t.Errorf("%s it is %s (%s), and the agent %s (%s)", what, r.Status, r.Message, state, why)
			}
		}
		down := func() { w.machine.set(func() { delete(w.machine.running, "web") }) }
		if err := m.Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- m.Upgrade(t.Context(), order("second", "2.0.0")) }()
		synctest.Wait()
		down()
		time.Sleep(2 * sampleEvery)
		says("while it is observed", "STARTING", probe.Healthy)
		if f := failureOf(t, <-ended); f.Step != observeHealth {
			t.Errorf("it failed at %s: %v", f.Step, f)
		}
		says("put back", "HEALTHY", probe.Healthy)
		down()
		says("down without an upgrade", "FAILED", probe.Degraded)
	})
}

func TestRuntimeThatIsKilledDuringTheObservationCondemnsNoVersion(t *testing.T) {
	for name, away := range map[string]time.Duration{"a moment": 3 * time.Second, "a minute": time.Minute} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.publish("1.0.0", nil)
			w.publish("2.0.0", nil)
			synctest.Test(t, func(t *testing.T) {
				m := w.start(&agent{})
				if err := m.Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
					t.Fatal(err)
				}
				go func() {
					for w.machine.runs("web") != "2.0.0" {
						time.Sleep(time.Second)
					}
					w.machine.kill(away)
				}()
				if err := m.Upgrade(t.Context(), order("second", "2.0.0")); err != nil {
					t.Error(err)
				}
				w.expect("2.0.0")
			})
		})
	}
}

func TestUndoingIsTriedAgainWhenTheRuntimeIsBack(t *testing.T) {
	for name, c := range map[string]struct {
		away   time.Duration
		broken bool // at the end of the first try
	}{
		"within the time of one try": {silentTolerance + time.Minute, false},
		"later":                      {time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.publish("1.0.0", nil)
			w.publish("2.0.0", nil)
			synctest.Test(t, func(t *testing.T) {
				m := w.start(&agent{})
				if err := m.Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
					t.Fatal(err)
				}
				back := make(chan struct{})
				go func() {
					defer close(back)
					for w.machine.runs("web") != "2.0.0" {
						time.Sleep(time.Second)
					}
					w.machine.kill(c.away)
				}()
				f := failureOf(t, m.Upgrade(t.Context(), order("second", "2.0.0")))
				if !f.Transient || f.Broken != c.broken {
					t.Errorf("the failure is %+v, want one that may succeed later, broken %t", f, c.broken)
				}
				<-back
				if c.broken {
					m = w.start(&agent{})
					if f := failureOf(t, m.Upgrade(t.Context(), order("second", "2.0.0"))); !f.Transient || f.Broken {
						t.Errorf("once it is undone the failure is %+v", f)
					}
				}
				w.expect("1.0.0")
				if err := m.Upgrade(t.Context(), order("second", "2.0.0")); err != nil { // the version is not condemned
					t.Error(err)
				}
				w.expect("2.0.0")
			})
		})
	}
}

func TestWhatMayBeTriedAgain(t *testing.T) {
	away := fmt.Errorf("look for container web: the Docker engine is away, %w: %w", runtime.ErrTransient, fs.ErrNotExist)
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"an engine whose socket is gone":        {away, true},
		"the same while undoing":                {fmt.Errorf("undo install_artifact: %w", away), true},
		"a file that is missing in the package": {fs.ErrNotExist, false},
		"an upgrade that was cancelled":         {errors.Join(away, steps.ErrCancelled), false},
		"a runtime that is not there":           {runtime.ErrUnavailable, false},
	} {
		if got := transient(primitive.InstallArtifact, c.err); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

func TestFailedRollbackNeedsAnOperator(t *testing.T) {
	w := newWorld(t)
	w.publish("1.0.0", nil)
	w.publish("2.0.0", nil)
	synctest.Test(t, func(t *testing.T) {
		m := w.start(&agent{})
		if err := m.Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
			t.Fatal(err)
		}
		w.machine.set(func() { w.machine.fails["start 2.0.0"], w.machine.fails["restore"] = true, true })
		bad := order("second", "2.0.0")
		f := failureOf(t, m.Upgrade(t.Context(), bad))
		m.Conclude(bad, f)
		if !f.Broken || f.Transient {
			t.Errorf("failure is %+v", f)
		}
		r := m.Reports()[0]
		if r.Status != "FAILED" || !strings.Contains(r.Message, agentapi.FailedRollback) || r.UpgradeDetails.Metadata.ReasonCode != agentapi.FailedRollback {
			t.Errorf("report is %+v", r)
		}
		before := w.machine.count()
		m = w.start(&agent{})
		m.look(t.Context())
		if did := w.machine.since(before); len(did) > 0 {
			t.Errorf("by itself the agent did %v", did)
		}
		// The operator has repaired the host, and orders again.
		w.machine.set(func() { clear(w.machine.fails) })
		if err := m.Upgrade(t.Context(), order("third", "2.0.0")); err != nil {
			t.Fatal(err)
		}
		w.expect("2.0.0")
		if r := m.Reports()[0]; r.Status == "FAILED" {
			t.Errorf("report is %+v", r)
		}
	})
}

func TestConfigurationAloneIsReloadedWithoutARestart(t *testing.T) {
	w := newWorld(t)
	serverMay := func(c *manifest.Component) { c.Reload, c.ServerFiles = true, []string{etc + "/"} }
	w.publish("1.0.0", serverMay)
	synctest.Test(t, func(t *testing.T) {
		m := w.start(&agent{})
		policy := agentapi.PolicyComponent{Name: "web", Runtime: "model", ServerConfig: true}
		if err := m.Follow(t.Context(), []agentapi.PolicyComponent{policy}); err != nil {
			t.Fatal(err)
		}
		if err := m.Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
			t.Fatal(err)
		}
		before := w.machine.count()
		second := order("second", "1.0.0")
		second.Component.Files = []agentapi.RenderedFile{rendered(conf("web"), "port 81\n")}
		if err := m.Upgrade(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		did := w.machine.since(before)
		if slices.Contains(did, "stop") || !slices.Contains(did, "reload 1.0.0") {
			t.Errorf("did %q, want a reload and no stop", did)
		}
		if got := w.read(conf("web")); got != "port 81\n" {
			t.Errorf("configuration is %q", got)
		}
		// Bad configuration is taken back, and the component reads the old one.
		w.machine.set(func() { w.machine.crashes["1.0.0"] = true })
		third := order("third", "1.0.0")
		third.Component.Files = []agentapi.RenderedFile{rendered(conf("web"), "port none\n")}
		f := failureOf(t, m.Upgrade(t.Context(), third))
		if f.Step != observeHealth {
			t.Errorf("failure is %+v", f)
		}
		if got := w.read(conf("web")); got != "port 81\n" {
			t.Errorf("configuration is %q after a bad one", got)
		}
	})
}

// A version that the host went back to is older than one that was healthy here, and may be
// below the publishers' floor by now. Its configuration can be changed all the same.
func TestInstalledVersionGetsAnotherConfiguration(t *testing.T) {
	w := newWorld(t)
	for _, v := range []string{"1.0.0", "2.0.0"} {
		w.publish(v, func(c *manifest.Component) { c.ServerFiles = []string{conf("web")} })
	}
	synctest.Test(t, func(t *testing.T) {
		m := w.start(&agent{})
		policy := agentapi.PolicyComponent{Name: "web", Runtime: "model", ServerConfig: true, Health: shortly}
		if err := m.Follow(t.Context(), []agentapi.PolicyComponent{policy}); err != nil {
			t.Fatal(err)
		}
		back := order("back", "1.0.0")
		back.Rollback = true
		change := order("change", "1.0.0")
		change.Component.Files = []agentapi.RenderedFile{rendered(conf("web"), "port 81\n")}
		for _, r := range []request.Request{order("first", "1.0.0"), order("second", "2.0.0"), back, change} {
			if r.ID == change.ID {
				w.floor = "2.0.0"
			}
			if err := m.Upgrade(t.Context(), r); err != nil {
				t.Fatalf("%s: %v", r.ID, err)
			}
		}
		for _, what := range w.wrong("web", "1.0.0", "port 81\n") {
			t.Error(what)
		}
	})
}

// The server compares what it would render with what the host has of it, so that is reported
// apart from the package's own files.
func TestFilesOfTheServerAreReportedApartFromThePackagesOwn(t *testing.T) {
	w := newWorld(t)
	site := etc + "/site.conf"
	for _, v := range []string{"1.0.0", "2.0.0", "3.0.0"} {
		w.publish(v, func(c *manifest.Component) { c.ServerFiles = []string{site} })
	}
	w.machine.crashes["3.0.0"] = true
	written := func(path, content string) manifest.WrittenFile {
		return manifest.WrittenFile{Path: path, Mode: 0o640, SHA256: sha256.Sum256([]byte(content))}
	}
	synctest.Test(t, func(t *testing.T) {
		var m *Manager
		start := func() {
			t.Helper()
			m = w.start(&agent{})
			policy := agentapi.PolicyComponent{Name: "web", Runtime: "model", ServerConfig: true, Health: shortly}
			if err := m.Follow(t.Context(), []agentapi.PolicyComponent{policy}); err != nil {
				t.Fatal(err)
			}
		}
		// has checks what is on the host, and what is reported of it. content is what the
		// server has rendered; empty: nothing.
		has := func(when, version, content string) {
			t.Helper()
			w.expect(version)
			own := written(conf("web"), "version "+version+"\n")
			all, rendered := []manifest.WrittenFile{own}, ""
			if content != "" {
				all, rendered = append([]manifest.WrittenFile{written(site, content)}, own), manifest.ConfigDigest([]manifest.WrittenFile{written(site, content)})
			}
			is, err := w.look().ReadFile("test", site)
			if string(is) != content || content == "" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s has %q, %v, want %q", when, site, is, err, content)
			}
			if r := m.Reports()[0]; r.RenderedSHA256 != rendered || r.ConfigSHA256 != manifest.ConfigDigest(all) {
				t.Errorf("%s: reported are %q of the server and %q of all, want %q and %q", when, r.RenderedSHA256, r.ConfigSHA256, rendered, manifest.ConfigDigest(all))
			}
		}
		change := func(id, version, content string, rollback bool) error {
			r := order(id, version)
			r.Rollback = rollback
			if content != "" {
				r.Component.Files = []agentapi.RenderedFile{rendered(site, content)}
			}
			return m.Upgrade(t.Context(), r)
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		start()
		must(change("first", "1.0.0", "", false))
		has("without files of the server", "1.0.0", "")
		must(change("files", "1.0.0", "A", false))
		has("after a change of configuration alone", "1.0.0", "A")
		start()
		has("by the next agent", "1.0.0", "A")
		must(change("second", "2.0.0", "B", false))
		has("after an upgrade", "2.0.0", "B")
		if f := failureOf(t, change("bad", "3.0.0", "C", false)); f.Step != observeHealth {
			t.Errorf("failure is %+v", f)
		}
		has("after an upgrade that was undone", "2.0.0", "B")
		must(change("back", "1.0.0", "", true))
		has("after a rollback", "1.0.0", "A")
		must(change("none", "2.0.0", "", false))
		has("after an upgrade without files of the server", "2.0.0", "")
		must(change("again", "1.0.0", "", true))
		has("after a rollback to files of the server", "1.0.0", "A")
		must(change("forth", "2.0.0", "", true))
		has("after a rollback to none", "2.0.0", "")
	})
}

func TestTwoComponentsAreUpgradedAtTheSameTimeAndOneNeverTwice(t *testing.T) {
	w := newWorld(t)
	w.publish("1.0.0", nil)
	w.publish("1.1.0", nil)
	w.publishOf("db", "1.0.0", nil)
	synctest.Test(t, func(t *testing.T) {
		m := w.start(&agent{})
		ended := make(chan string, 3)
		up := func(r request.Request) {
			if err := m.Upgrade(t.Context(), r); err != nil {
				t.Error(err)
			}
			ended <- r.Component.UpgradeID
		}
		db := order("db", "1.0.0")
		db.Component.Name = "db"
		go up(order("web1", "1.0.0"))
		go up(db)
		synctest.Wait() // both are being observed
		if r := m.Reports(); r[0].UpgradeDetails == nil || r[0].UpgradeDetails.Metadata.Phase != agentapi.PhaseVerifying ||
			r[1].UpgradeDetails == nil || r[1].UpgradeDetails.Metadata.Phase != agentapi.PhaseVerifying {
			t.Errorf("reported are %+v and %+v", r[0].UpgradeDetails, r[1].UpgradeDetails)
		}
		go up(order("web2", "1.1.0"))
		synctest.Wait()
		if r := m.Reports()[0]; r.UpgradeDetails.TargetVersion != "1.0.0" {
			t.Errorf("a second upgrade of web has begun: %+v", r.UpgradeDetails)
		}
		last := ""
		for range 3 {
			last = <-ended
		}
		if last != "web2" {
			t.Errorf("the last upgrade was %s", last)
		}
		w.expect("1.1.0")
	})
}

func TestCancelledUpgradeIsUndone(t *testing.T) {
	w := newWorld(t)
	w.publish("1.0.0", nil)
	w.publish("2.0.0", nil)
	synctest.Test(t, func(t *testing.T) {
		m := w.start(&agent{})
		if err := m.Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		go func() { result <- m.Upgrade(t.Context(), order("second", "2.0.0")) }()
		synctest.Wait()
		if !m.Cancel("item-second", "cancelled by Ann") {
			t.Error("it cannot be cancelled")
		}
		f := failureOf(t, <-result)
		if !errors.Is(f, steps.ErrCancelled) || f.Error() != "cancelled by Ann" {
			t.Errorf("failure is %v", f)
		}
		w.expect("1.0.0")
		// The version itself is not to blame.
		if err := m.Upgrade(t.Context(), order("third", "2.0.0")); err != nil {
			t.Error(err)
		}
	})
}

func sha256Of(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func rendered(path, content string) agentapi.RenderedFile {
	return agentapi.RenderedFile{Path: path, Content: content, SHA256: sha256Of(content), Mode: "0640"}
}

func TestBadOrdersAreRefusedBeforeAnythingIsStopped(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(w *world, r *request.Request)
		want   string
	}{
		{"unknown component", func(_ *world, r *request.Request) { r.Component.Name = "cache" }, "there is no component cache: the host's policy has web, db"},
		{"another runtime than the policy's", func(_ *world, r *request.Request) { r.Component.Runtime = "docker" }, "runs with model by its policy, and the upgrade says docker"},
		{"unknown version", func(_ *world, r *request.Request) { r.Version = "9.9.9" }, "is not among the signed packages"},
		{"version that is not kept", func(_ *world, r *request.Request) { r.Version, r.Rollback = "9.9.9", true }, "is neither kept nor staged on this host: upgrade to it instead"},
		{"older version", func(_ *world, r *request.Request) { r.Version = "0.9.0" }, "is older than 1.0.0, which was committed on this host, and is not kept here for a rollback: let its publishers allow it with `muster package allow-downgrade 0.9.0 --component web`"},
		{"another image", func(_ *world, r *request.Request) { r.Component.Image = "web@sha256:00" }, "image: the publishers"},
		{"configuration of the server that the policy does not allow", func(w *world, r *request.Request) {
			r.Component.Files = []agentapi.RenderedFile{rendered(conf("web"), "x")}
		}, "set server_config in the policy"},
		{"folder that is not there", func(_ *world, r *request.Request) { r.Version = "2.2.0" }, "does not exist: create it"},
		{"file of the agent", func(_ *world, r *request.Request) { r.Version = "2.3.0" }, "configuration file " + top + "/identity: it would be in the agent's own folder " + top},
		{"file beside the agent's pointer", func(_ *world, r *request.Request) { r.Version = "2.6.0" }, "configuration file " + links + "/agent.yml: it would be in the agent's own folder " + links},
		{"file of the agent behind a link", func(w *world, r *request.Request) {
			r.Version = "2.4.0"
			if err := w.look().Symlink("test", "../../opt/muster/components", etc+"/conf.d"); err != nil {
				w.t.Fatal(err)
			}
		}, "configuration file " + etc + "/conf.d/web/state: it would be in the agent's own folder"},
		{"more checks than a policy may have", func(_ *world, r *request.Request) {
			r.Component.Health = agentapi.ComponentHealth{Checks: slices.Repeat([]agentapi.ComponentCheck{{Name: "c", TCP: ":1"}}, manifest.MaxChecks+1)}
		}, "health.checks: are 21, want at most 20"},
		{"a check without end", func(_ *world, r *request.Request) {
			r.Component.Health = agentapi.ComponentHealth{Checks: []agentapi.ComponentCheck{{Name: "c", TCP: ":1", TimeoutSeconds: 1 << 40}}}
		}, "health.checks[0].timeout_seconds: is 1099511627776, want 0 to 60"},
		{"an observation without end", func(_ *world, r *request.Request) {
			r.Component.Health = agentapi.ComponentHealth{WaitSeconds: 1 << 40}
		}, "health.wait_seconds: is 1099511627776, want 0 to 3600"},
		{"agent's folder", func(_ *world, r *request.Request) { r.Version = "2.5.0" }, "it would be in the agent's own folder"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.publish("0.9.0", nil)
			w.publish("1.0.0", nil)
			w.publish("2.0.0", nil)
			for v, path := range map[string]string{
				"2.2.0": etc + "/none/web.conf", "2.3.0": top + "/identity", "2.4.0": etc + "/conf.d/web/state", "2.5.0": top, "2.6.0": links + "/agent.yml",
			} {
				w.publish(v, func(m *manifest.Component) { m.ConfigFiles[0].Path = path })
			}
			synctest.Test(t, func(t *testing.T) {
				m := w.start(&agent{})
				if err := m.Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
					t.Fatal(err)
				}
				before := w.machine.count()
				r := order("second", "2.0.0")
				c.change(w, &r)
				f := failureOf(t, m.Upgrade(t.Context(), r))
				if !strings.Contains(f.Error(), c.want) {
					t.Errorf("error is %q, want %q", f, c.want)
				}
				if slices.Contains(w.machine.since(before), "stop") {
					t.Error("the component was stopped")
				}
				w.expect("1.0.0")
			})
		})
	}
}

func TestUntrustedVersionIsReportedWithItsCode(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		m := w.start(&agent{})
		r := order("first", "9.9.9")
		m.Conclude(r, failureOf(t, m.Upgrade(t.Context(), r)))
		if d := m.Reports()[0].UpgradeDetails; d == nil || d.State != agentapi.UpgradeFailed || d.Metadata.ReasonCode != agentapi.ReasonUntrusted {
			t.Errorf("reported is %+v", d)
		}
	})
}

func TestRollbackRestoresTheConfigurationAfterManyChanges(t *testing.T) {
	w := newWorld(t)
	serverMay := func(c *manifest.Component) { c.Reload, c.ServerFiles = true, []string{etc + "/"} }
	w.publish("1.0.0", serverMay)
	w.publish("2.0.0", serverMay)
	synctest.Test(t, func(t *testing.T) {
		m := w.start(&agent{})
		policy := agentapi.PolicyComponent{Name: "web", Runtime: "model", ServerConfig: true, Health: shortly}
		if err := m.Follow(t.Context(), []agentapi.PolicyComponent{policy}); err != nil {
			t.Fatal(err)
		}
		upgrade := func(id, version, content string) {
			t.Helper()
			r := order(id, version)
			if content == "" {
				r.Rollback = true
			} else {
				r.Component.Files = []agentapi.RenderedFile{rendered(conf("web"), content)}
			}
			if err := m.Upgrade(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		upgrade("first", "1.0.0", "port 1\n")
		upgrade("second", "2.0.0", "port 2\n")
		for i := range 2 * maxBackups {
			upgrade(fmt.Sprint("change ", i), "2.0.0", fmt.Sprintf("port 2%d\n", i))
		}
		if n := len(w.names("backup")); n > maxBackups+2 {
			t.Errorf("%d backups stay", n)
		}
		upgrade("back", "1.0.0", "")
		if got := w.read(conf("web")); got != "port 1\n" {
			t.Errorf("configuration is %q, want that of version 1.0.0", got)
		}
	})
}

// No adapter can stop what another one has started.
func TestComponentKeepsItsRuntime(t *testing.T) {
	w := newWorld(t)
	w.publish("1.0.0", nil)
	w.publish("2.0.0", func(c *manifest.Component) { c.Runtime = "other" })
	synctest.Test(t, func(t *testing.T) {
		m := w.start(&agent{})
		m.Adapters["other"] = m.Adapters["model"]
		if err := m.Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
			t.Fatal(err)
		}
		if err := m.Follow(t.Context(), []agentapi.PolicyComponent{{Name: "web", Runtime: "other", Health: shortly}}); err != nil {
			t.Fatal(err)
		}
		before := w.machine.count()
		r := order("second", "2.0.0")
		r.Component.Runtime = "other"
		if f := failureOf(t, m.Upgrade(t.Context(), r)); !strings.Contains(f.Error(), "is installed with the runtime model, and its policy now says other") {
			t.Error(f)
		}
		if did := w.machine.since(before); len(did) > 0 {
			t.Errorf("the machine did %q", did)
		}
		w.expect("1.0.0")
	})
}

// The policy's image is the only one that is installed, whatever is ordered. A rollback goes to
// a version that has run on the host.
func TestPolicyPinsTheImage(t *testing.T) {
	w := newWorld(t)
	image := map[string]string{}
	for v, digit := range map[string]string{"1.0.0": "1", "2.0.0": "2"} {
		image[v] = "registry.example.com/web@sha256:" + strings.Repeat(digit, 64)
		w.publish(v, func(m *manifest.Component) { m.Settings["image"] = image[v] })
	}
	synctest.Test(t, func(t *testing.T) {
		m := w.start(&agent{})
		pin := func(version string) {
			t.Helper()
			list := []agentapi.PolicyComponent{{Name: "web", Runtime: "model", Health: shortly, Artifact: agentapi.ComponentArtifact{Image: image[version]}}}
			if err := m.Follow(t.Context(), list); err != nil {
				t.Fatal(err)
			}
		}
		refused := func(r request.Request, says string) {
			t.Helper()
			before := w.machine.count()
			if f := failureOf(t, m.Upgrade(t.Context(), r)); !strings.Contains(f.Error(), says) {
				t.Errorf("error is %q, want %q", f, says)
			}
			if slices.Contains(w.machine.since(before), "stop") {
				t.Error("the component was stopped")
			}
		}
		pin("1.0.0")
		if err := m.Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
			t.Fatal(err)
		}
		refused(order("other", "2.0.0"), fmt.Sprintf("have signed %q, and %q was asked for", image["2.0.0"], image["1.0.0"]))
		said := order("said", "2.0.0")
		said.Component.Image, said.Force = image["2.0.0"], true
		refused(said, "is the image "+image["1.0.0"]+" by its policy, and the upgrade says "+image["2.0.0"])
		pin("2.0.0")
		said.Component.UpgradeID = "said again"
		if err := m.Upgrade(t.Context(), said); err != nil {
			t.Fatal(err)
		}
		w.expect("2.0.0")
		kept := order("kept", "1.0.0")
		kept.Force = true
		refused(kept, "have signed")
		back := order("back", "1.0.0")
		back.Rollback = true
		if err := m.Upgrade(t.Context(), back); err != nil {
			t.Fatal(err)
		}
		w.expect("1.0.0")
	})
}

func TestServerWritesOnlyTheConfigurationThatThePublishersAllow(t *testing.T) {
	w := newWorld(t)
	w.publish("1.0.0", func(c *manifest.Component) { c.ServerFiles = []string{etc + "/conf.d/", conf("web"), top + "/"} })
	for _, c := range []struct {
		name, path, sum, want string
	}{
		{"elsewhere", "/etc/passwd", "", "do not let a server write it: name it in server-files"},
		{"beside an allowed file", conf("web") + ".bak", "", "do not let a server write it"},
		{"out of an allowed folder", etc + "/conf.d/../web2.conf", "", "want an absolute path in its shortest form"},
		{"damaged", conf("web"), strings.Repeat("0", 64), "another SHA-256"},
		{"a file of the agent", top + "/identity", "", "it would be in the agent's own folder"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := w.start(&agent{})
				policy := agentapi.PolicyComponent{Name: "web", Runtime: "model", ServerConfig: true}
				if err := m.Follow(t.Context(), []agentapi.PolicyComponent{policy}); err != nil {
					t.Fatal(err)
				}
				r := order(c.name, "1.0.0")
				f := rendered(c.path, "x")
				if c.sum != "" {
					f.SHA256 = c.sum
				}
				r.Component.Files = []agentapi.RenderedFile{f}
				if err := failureOf(t, m.Upgrade(t.Context(), r)); !strings.Contains(err.Error(), c.want) {
					t.Errorf("error is %q, want %q", err, c.want)
				}
				w.expect("")
			})
		})
	}
}

func TestUninstallLeavesWhatGoesOnWithoutTheAgent(t *testing.T) {
	w := newWorld(t)
	w.publish("1.0.0", nil)
	synctest.Test(t, func(t *testing.T) {
		if err := w.start(&agent{}).Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
			t.Fatal(err)
		}
		adapter := model{w.machine, &agent{}, w.look()}
		left, err := Uninstall(t.Context(), w.look(), top, map[string]runtime.Adapter{"model": adapter})
		if err != nil || !slices.Equal(left, []string{"web"}) {
			t.Errorf("left are %v, %v", left, err)
		}
		w.expect("1.0.0")
		before := w.machine.count()
		left, err = Uninstall(t.Context(), w.look(), top, map[string]runtime.Adapter{"model": supervising{adapter}})
		if err != nil || len(left) > 0 || !slices.Contains(w.machine.since(before), "remove") {
			t.Errorf("left are %v, %v; did %v", left, err, w.machine.since(before))
		}
		if _, err := w.look().Lstat("test", filepath.Join(top, FolderName)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the folder of components is left: %v", err)
		}
	})
}

// supervising is a model whose components depend on the agent.
type supervising struct{ model }

func (supervising) Resume(context.Context, *runtime.Release) error { return nil }
func (supervising) Detach()                                        {}
