package component

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/simdisk"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

// versions returns what the host has of web, as <version> <state>.
func versions(m *Manager) []string {
	var out []string
	for _, v := range m.Versions("web") {
		out = append(out, v.Version+" "+string(v.State))
	}
	return out
}

func (w *world) has(m *Manager, want ...string) {
	w.t.Helper()
	if got := versions(m); !slices.Equal(got, want) {
		w.t.Errorf("the host has %q, want %q", got, want)
	}
	if got := w.homes(); len(got) != len(want) {
		w.t.Errorf("on its disk are %v, want %d versions", got, len(want))
	}
}

// installed returns a host with 1.0.0 of web, and packages of other versions.
func installed(t *testing.T, others ...string) *world {
	w := newWorld(t)
	for _, v := range append([]string{"1.0.0"}, others...) {
		w.publish(v, nil)
	}
	if err := w.start(&agent{}).Upgrade(t.Context(), order("first", "1.0.0")); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestKeptVersionWhoseImageIsGoneShowsTheProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := installed(t, "2.0.0")
		changes := 0
		m := w.start(&agent{changed: func() { changes++ }})
		if err := m.Upgrade(t.Context(), order("second", "2.0.0")); err != nil {
			t.Fatal(err)
		}
		m.look(t.Context())
		// problem returns what the host shows, which must be what it reports.
		problem := func(reported bool) string {
			time.Sleep(goneEvery)
			before := changes
			m.look(t.Context())
			v := m.Versions("web")
			if len(v) != 2 || v[0].Problem != "" || v[1].Version != "1.0.0" {
				t.Fatalf("the versions are %+v", v)
			}
			var want []agentapi.RollbackProblem
			if v[1].Problem != "" {
				want = []agentapi.RollbackProblem{{Version: "1.0.0", Reason: v[1].Problem}}
			}
			if got := m.Reports()[0].RollbackProblems; !slices.Equal(got, want) {
				t.Errorf("the report has %+v, want %+v", got, want)
			}
			if got := changes > before; got != reported {
				t.Errorf("a new report: %t, want %t", got, reported)
			}
			return v[1].Problem
		}
		if got := problem(false); got != "" {
			t.Errorf("while the host has it, its problem is %q", got)
		}
		w.machine.set(func() { w.machine.pruned = map[string]bool{"1.0.0": true} })
		if got := problem(true); got != goneText {
			t.Errorf("without its image its problem is %q", got)
		}
		w.machine.set(func() { w.machine.away = true })
		if got := problem(true); got != goneText { // the component's state is new
			t.Errorf("while its runtime is away its problem is %q", got)
		}
		w.machine.set(func() { w.machine.away = false })
		w.machine.set(func() { w.machine.pruned = nil })
		if got := problem(true); got != "" {
			t.Errorf("once it is there again its problem is %q", got)
		}
	})
}

func TestStagedVersionIsSwitchedToWithoutItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := installed(t, "2.0.0")
		m, before := w.start(&agent{}), w.machine.count()
		if err := m.Stage(t.Context(), order("stage", "2.0.0")); err != nil {
			t.Fatal(err)
		}
		if did := w.machine.since(before); slices.ContainsFunc(did, func(what string) bool { return strings.HasPrefix(what, "st") }) {
			t.Errorf("staging did %v", did)
		}
		w.expect("1.0.0")
		w.has(m, "1.0.0 running", "2.0.0 staged")
		if left := w.names("downloads"); len(left) > 0 {
			t.Errorf("downloads are left: %v", left)
		}

		w.packages = t.TempDir()
		m = w.start(&agent{})
		back := order("switch", "2.0.0")
		back.Rollback, back.Local = true, true
		if err := m.Upgrade(t.Context(), back); err != nil {
			t.Fatal(err)
		}
		w.expect("2.0.0")
		w.has(m, "2.0.0 running", "1.0.0 previous")
	})
}

func TestUpgradeToAStagedVersionFetchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := installed(t, "2.0.0")
		m := w.start(&agent{})
		if err := m.Stage(t.Context(), order("stage", "2.0.0")); err != nil {
			t.Fatal(err)
		}
		m = w.start(&agent{before: func(c simdisk.Call) error {
			if strings.HasSuffix(c.Path, ".tar.gz") {
				t.Errorf("it was fetched: %+v", c)
			}
			return nil
		}})
		if err := m.Upgrade(t.Context(), order("second", "2.0.0")); err != nil {
			t.Fatal(err)
		}
		w.expect("2.0.0")
	})
}

// The rules of upgrades are those of stages, and of a switch to what was staged long ago.
func TestVersionThatMustNotBeInstalledIsNeitherStagedNorSwitchedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := installed(t, "2.0.0", "3.0.0")
		m := w.start(&agent{})
		refused := func(err error, want string) {
			t.Helper()
			if f := failureOf(t, err); f.Transient || !strings.Contains(f.Error(), want) {
				t.Errorf("error is %v, want %q", f, want)
			}
		}
		refused(m.Stage(t.Context(), order("stage", "1.0.0")), "version 1.0.0 of web is installed here already")
		if d := m.Staging("web"); d == nil || d.State != agentapi.UpgradeFailed || d.TargetVersion != "1.0.0" {
			t.Errorf("reported is %+v", d)
		}
		unknown := order("stage", "2.0.0")
		unknown.Component.Name = "cache"
		refused(m.Stage(t.Context(), unknown), "there is no component cache: the host's policy has web, db")
		w.floor = "2.5.0"
		refused(m.Stage(t.Context(), order("stage", "2.0.0")), "is below 2.5.0")
		w.floor = ""
		if err := m.Stage(t.Context(), order("stage", "2.0.0")); err != nil {
			t.Fatal(err)
		}
		if d := m.Staging("web"); d != nil {
			t.Errorf("after it succeeded reported is %+v", d)
		}
		w.floor = "2.5.0"
		local := order("switch", "2.0.0")
		local.Rollback, local.Local = true, true
		refused(m.Upgrade(t.Context(), local), "is below 2.5.0")
		w.floor = ""
		if err := m.Upgrade(t.Context(), order("third", "3.0.0")); err != nil {
			t.Fatal(err)
		}
		local.Component.UpgradeID = "again"
		refused(m.Upgrade(t.Context(), local), "version 2.0.0 is older than 3.0.0, which was committed on this host")
		w.has(m, "3.0.0 running", "2.0.0 staged", "1.0.0 previous")
	})
}

func TestOlderStagedVersionsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := installed(t, "1.1.0", "2.0.0", "3.0.0", "4.0.0")
		m := w.start(&agent{})
		for i, v := range []string{"2.0.0", "3.0.0", "4.0.0"} {
			if err := m.Stage(t.Context(), order("stage", v)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(i) * time.Minute)
		}
		w.has(m, "1.0.0 running", "4.0.0 staged", "3.0.0 staged")

		m.Keep.Bytes = m.Versions("web")[1].Bytes / 2
		w.unpacked = 1 // they say too little
		f := failureOf(t, m.Stage(t.Context(), order("stage", "2.0.0")))
		if !strings.Contains(f.Error(), "and upgrade.keep.size leaves ") || f.Step != recordStage {
			t.Errorf("failure is %+v", f)
		}
		// Otherwise it is not even fetched.
		w.unpacked = m.Keep.Bytes + 1
		if f = failureOf(t, m.Stage(t.Context(), order("stage", "2.0.0"))); f.Step != primitive.AcquireArtifact || f.Transient || len(w.names("downloads")) > 0 {
			t.Errorf("failure is %+v", f)
		}
		w.unpacked = 0
		w.has(m, "1.0.0 running", "4.0.0 staged", "3.0.0 staged")

		// Another configuration counts from the next start on.
		defer func(l handoff.Limits) { keep = l }(keep)
		keep.Staged = 1
		w.has(w.start(&agent{}), "1.0.0 running", "4.0.0 staged")
		keep.Staged = 0
		m = w.start(&agent{})
		w.has(m, "1.0.0 running")
		f = failureOf(t, m.Stage(t.Context(), order("stage", "2.0.0")))
		if !strings.Contains(f.Error(), "keeps no staged versions") {
			t.Errorf("failure is %v", f)
		}

		keep.Previous = 2
		m = w.start(&agent{})
		for _, v := range []string{"1.1.0", "2.0.0", "3.0.0"} {
			if err := m.Upgrade(t.Context(), order("up "+v, v)); err != nil {
				t.Fatal(err)
			}
		}
		w.has(m, "3.0.0 running", "2.0.0 previous", "1.1.0 previous")
		if r := m.Reports()[0]; !slices.Equal(r.Rollbacks, []string{"1.1.0", "2.0.0"}) {
			t.Errorf("reported is %v", r.Rollbacks)
		}
	})
}

func TestVersionIsRemovedOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := installed(t, "2.0.0", "3.0.0")
		m := w.start(&agent{})
		if err := m.Stage(t.Context(), order("stage", "2.0.0")); err != nil {
			t.Fatal(err)
		}
		for version, want := range map[string]string{
			"1.0.0": "version 1.0.0 of web is the installed one: switch to another one before you remove it",
			"3.0.0": "version 3.0.0 of web is not on this host, which has 1.0.0, 2.0.0",
		} {
			if err := m.RemoveVersion(t.Context(), "web", version); err == nil || err.Error() != want {
				t.Errorf("error is %v, want %s", err, want)
			}
		}
		var while error
		w.machine.set(func() { w.machine.hangs["acquire"] = true })
		ctx, stop := context.WithCancelCause(t.Context())
		var staged sync.WaitGroup
		staged.Go(func() { _ = m.Stage(ctx, order("another", "3.0.0")) })
		synctest.Wait()
		while = m.RemoveVersion(t.Context(), "web", "2.0.0")
		stop(steps.ErrCancelled)
		staged.Wait()
		w.machine.set(func() { delete(w.machine.hangs, "acquire") })
		if !errors.Is(while, request.ErrBusy) {
			t.Errorf("while another one is staged: %v", while)
		}
		if err := m.RemoveVersion(t.Context(), "web", "2.0.0"); err != nil {
			t.Fatal(err)
		}
		w.has(m, "1.0.0 running")
		if err := m.RemoveVersion(t.Context(), "cache", "2.0.0"); err == nil {
			t.Error("a version of an unknown component was removed")
		}
	})
}

// A stage that takes long neither hides the component's state nor holds up an upgrade.
func TestUpgradeEndsAStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := installed(t, "1.1.0", "2.0.0")
		m := w.start(&agent{})
		w.machine.set(func() { w.machine.hangs["acquire"] = true })
		var err error
		var staged sync.WaitGroup
		r := order("stage", "2.0.0")
		if err := m.AcceptStage(r); err != nil {
			t.Fatal(err)
		}
		staged.Go(func() { err = m.Stage(t.Context(), r) })
		synctest.Wait()
		if d := m.Staging("web"); d == nil || d.State != agentapi.UpgradeDownloading {
			t.Errorf("reported is %+v", d)
		}
		if err := m.AcceptStage(order("other", "1.1.0")); !errors.Is(err, request.ErrBusy) {
			t.Errorf("a second stage: %v", err)
		}
		m.look(t.Context())
		if r := m.Reports()[0]; r.Status != "HEALTHY" {
			t.Errorf("while it is staged the report is %+v", r)
		}
		w.machine.set(func() { delete(w.machine.hangs, "acquire") })
		if err := m.Upgrade(t.Context(), order("up", "1.1.0")); err != nil {
			t.Fatal(err)
		}
		staged.Wait()
		if f := failureOf(t, err); !errors.Is(f, steps.ErrCancelled) || f.Transient || f.Error() != "ended by an upgrade that began" {
			t.Errorf("the stage ended with %v", f)
		}
		w.expect("1.1.0")
		w.has(m, "1.1.0 running", "1.0.0 previous")
		if left := w.names("downloads"); len(left) > 0 {
			t.Errorf("downloads are left: %v", left)
		}
	})
}

func TestStageThatWasInterruptedBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := installed(t, "2.0.0")
		r := order("stage", "2.0.0")
		r.Force, r.Local = true, true
		for n := range request.MaxInterrupted + 1 {
			m := w.start(&agent{})
			if again := m.Interrupted(); (len(again) > 0) != (n > 0) {
				t.Fatalf("after %d interruptions: %+v", n, again)
			} else if n > 0 {
				if r = again[0]; !r.Force || !r.Local || r.Version != "2.0.0" {
					t.Fatalf("to begin again: %+v", r)
				}
			}
			w.machine.set(func() { w.machine.hangs["acquire"] = true })
			ctx, stop := context.WithCancelCause(t.Context())
			var err error
			var staged sync.WaitGroup
			staged.Go(func() { err = m.Stage(ctx, r) })
			synctest.Wait()
			stop(steps.ErrStopping)
			staged.Wait()
			if last := n == request.MaxInterrupted; errors.Is(err, steps.ErrStopping) == last {
				t.Fatalf("interruption %d ended with %v", n+1, err)
			}
		}
		m := w.start(&agent{})
		if again := m.Interrupted(); len(again) > 0 {
			t.Errorf("it begins once more: %+v", again)
		}
		w.has(m, "1.0.0 running")
		r.Interrupted = request.MaxInterrupted + 1
		if f := failureOf(t, m.Stage(t.Context(), r)); f.Error() != "given up after it was interrupted 5 times" || f.Transient {
			t.Errorf("a seventh time: %v", f)
		}
		w.has(m, "1.0.0 running")
		w.machine.set(func() { delete(w.machine.hangs, "acquire") })
		if err := m.Stage(t.Context(), order("stage", "2.0.0")); err != nil {
			t.Fatal(err)
		}
		w.has(m, "1.0.0 running", "2.0.0 staged")
	})
}

// A stage checks what an upgrade checks before anything is stopped.
func TestStageFindsWhatWouldFailLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := installed(t)
		w.publish("2.0.0", func(c *manifest.Component) {
			c.ConfigFiles = append(c.ConfigFiles, manifest.ConfigFile{Path: "/nowhere/web.conf", From: "conf/web.conf"})
		})
		m := w.start(&agent{})
		f := failureOf(t, m.Stage(t.Context(), order("stage", "2.0.0")))
		if f.Step != primitive.VerifyArtifact || !strings.Contains(f.Error(), "the folder /nowhere does not exist") {
			t.Errorf("failure is %+v", f)
		}
		w.has(m, "1.0.0 running")
		var known []probe.Version
		if known = m.Versions("cache"); known != nil {
			t.Errorf("an unknown component has %v", known)
		}
	})
}
