package component

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/server/agentapi"
)

const (
	goos   = goruntime.GOOS
	goarch = goruntime.GOARCH
)

func failureOf(t *testing.T, err error) *Failure {
	t.Helper()
	var f *Failure
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
		back.Order.Rollback = true
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
		bad := order("second", "2.0.0")
		f := failureOf(t, m.Upgrade(t.Context(), bad))
		if f.Step != observeHealth || !strings.Contains(f.Error(), "crash loop") || f.Transient {
			t.Errorf("failure is %+v", f)
		}
		w.expect("1.0.0")
		m.Conclude(bad, f)
		d := m.Reports()[0].UpgradeDetails
		if d == nil || d.State != agentapi.UpgradeFailed || d.Metadata.FailedState != agentapi.UpgradeWatching || d.ActionID != "second" {
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
		second.Order.Files = []agentapi.RenderedFile{rendered(conf("web"), "port 81\n")}
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
		third.Order.Files = []agentapi.RenderedFile{rendered(conf("web"), "port none\n")}
		f := failureOf(t, m.Upgrade(t.Context(), third))
		if f.Step != observeHealth {
			t.Errorf("failure is %+v", f)
		}
		if got := w.read(conf("web")); got != "port 81\n" {
			t.Errorf("configuration is %q after a bad one", got)
		}
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
		up := func(r Request) {
			if err := m.Upgrade(t.Context(), r); err != nil {
				t.Error(err)
			}
			ended <- r.Order.ID
		}
		db := order("db", "1.0.0")
		db.Order.Component = "db"
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
		if !errors.Is(f, ErrCancelled) || f.Error() != "cancelled by Ann" {
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
		change func(w *world, r *Request)
		want   string
	}{
		{"unknown component", func(_ *world, r *Request) { r.Order.Component = "cache" }, "there is no component cache: the host's policy has web, db"},
		{"another runtime than the policy's", func(_ *world, r *Request) { r.Order.Runtime = "docker" }, "runs with model by its policy, and the upgrade says docker"},
		{"unknown version", func(_ *world, r *Request) { r.Order.Version = "9.9.9" }, "no such file"},
		{"version that is not kept", func(_ *world, r *Request) { r.Order.Version, r.Order.Rollback = "9.9.9", true }, "is not kept on this host: upgrade to it instead"},
		{"older version", func(_ *world, r *Request) { r.Order.Version = "0.9.0" }, "is older than 1.0.0, which was healthy on this host"},
		{"another image", func(_ *world, r *Request) { r.Order.Image = "web@sha256:00" }, "image: the publishers"},
		{"configuration of the server that the policy does not allow", func(w *world, r *Request) {
			r.Order.Files = []agentapi.RenderedFile{rendered(conf("web"), "x")}
		}, "set server_config in the policy"},
		{"folder that is not there", func(_ *world, r *Request) { r.Order.Version = "2.2.0" }, "does not exist: create it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.publish("0.9.0", nil)
			w.publish("1.0.0", nil)
			w.publish("2.0.0", nil)
			w.publish("2.2.0", func(m *manifest.Component) { m.ConfigFiles[0].Path = etc + "/none/web.conf" })
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

func TestServerWritesOnlyTheConfigurationThatThePublishersAllow(t *testing.T) {
	w := newWorld(t)
	w.publish("1.0.0", func(c *manifest.Component) { c.ServerFiles = []string{etc + "/conf.d/", conf("web")} })
	for _, c := range []struct {
		name, path, sum, want string
	}{
		{"elsewhere", "/etc/passwd", "", "do not let a server write it: name it in server-files"},
		{"beside an allowed file", conf("web") + ".bak", "", "do not let a server write it"},
		{"out of an allowed folder", etc + "/conf.d/../web2.conf", "", "want an absolute path in its shortest form"},
		{"damaged", conf("web"), strings.Repeat("0", 64), "another SHA-256"},
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
				r.Order.Files = []agentapi.RenderedFile{f}
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

func (supervising) Resume(context.Context, *runtime.Release) error  { return nil }
func (supervising) Detach()                                         {}
func (supervising) Release(context.Context, *runtime.Release) error { return nil }
