package declare_test

import (
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/spec"
)

// enrol adds two agents that run 2.0.0, and packages of three versions.
func (w *world) enrol() {
	w.t.Helper()
	seen := noon
	for _, id := range []string{"a", "b"} {
		err := w.db.Agents().Create(w.t.Context(), fleet.Agent{
			ID: id, Type: "PERMANENT", Active: true, PolicyID: "default", PolicyRev: 1, AccessKeyID: "key-" + id, AccessKeyHash: "hash", EnrolledAt: noon, Version: "2.0.0", Tags: []string{},
			LocalMetadata: []byte(`{"elastic":{"agent":{"version":"2.0.0","upgradeable":true}},"host":{"hostname":"host-` + id + `","architecture":"x86_64"},"os":{"type":"linux"}}`),
		})
		if err == nil {
			err = w.db.Agents().Touch(w.t.Context(), []fleet.Touch{{AgentID: id, At: seen, Status: "online"}})
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	for _, v := range []string{"1.0.0", "2.0.0", "3.0.0"} {
		if err := w.db.Packages().Create(w.t.Context(), fleet.Package{File: "muster-agent-" + v + "-linux-amd64.tar.gz", Version: v, OS: "linux", Arch: "amd64", SHA512: strings.Repeat("ab", 64)}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// start starts a rollout of a draft, by its preview of now.
func (w *world) start(r fleet.Rollout, err error) fleet.Rollout {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	pre, err := w.rollouts.Preview(w.t.Context(), r.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	if r, err = w.rollouts.Start(w.t.Context(), r.ID, pre.Hash, false, rollout.Request{Actor: "kim"}); err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) part(version string) spec.PartPreview {
	w.t.Helper()
	d, err := w.Diff(w.t.Context(), "", []byte(object("web", version)), spec.Strict)
	if err != nil || len(d.Previews) != 1 {
		w.t.Fatalf("the diff has %+v, %v", d.Previews, err)
	}
	return d.Previews[0]
}

func plan(version string) fleet.Plan {
	return fleet.Plan{Name: "by hand", Version: version, Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: fleet.AllAtOnce}}
}

// A diff shows the rollout that would be made: one to a lower version forces it.
func TestDiffShowsARolloutThatGoesDown(t *testing.T) {
	w := newWorld(t)
	w.enrol()
	if got := w.part("1.0.0"); got.Targets != 2 || !got.Forced || got.Error != "" || got.LeftOut != "" {
		t.Errorf("down: %+v", got)
	}
	if got := w.part("3.0.0"); got.Targets != 2 || got.Forced {
		t.Errorf("up: %+v", got)
	}
	if got := w.part("2.0.0"); got.Targets != 0 || got.Skipped != 2 || got.LeftOut != "2 because it runs the version already" || !strings.Contains(got.Error, "no agent would be upgraded") {
		t.Errorf("what runs: %+v", got)
	}
}

// The rollout under way of the object itself is replaced, so what it holds is free.
func TestDiffShowsWhatTakesThePlaceOfARollout(t *testing.T) {
	w := newWorld(t)
	w.enrol()
	a := w.apply(object("web", "3.0.0"))
	p := plan("3.0.0")
	p.Limits.MaxParallel = 1
	r := w.start(w.rollouts.CreateDeclared(t.Context(), "web-1", "web", spec.Hash(&a.Fleet), p, rollout.Request{Actor: "fleet web"}))
	hash := spec.Hash(&a.Fleet)
	if _, err := w.UpdateStatus(t.Context(), &a.Fleet, spec.Status{RequestedRolloutHash: hash, Sequence: 1, Rollout: &spec.RolloutStatus{ID: r.ID, Hash: hash, Sequence: 1, State: r.State}}); err != nil {
		t.Fatal(err)
	}
	if got := w.part("1.0.0"); got.Targets != 2 || !got.Forced || got.Error != "" {
		t.Errorf("in the place of its own rollout: %+v", got)
	}
}

// What another rollout holds is named.
func TestDiffSaysWhyAgentsAreLeftOut(t *testing.T) {
	w := newWorld(t)
	w.enrol()
	w.start(w.rollouts.Create(t.Context(), plan("3.0.0"), rollout.Request{Actor: "kim"}))
	if got := w.part("1.0.0"); got.Targets != 0 || got.Skipped != 2 || !strings.Contains(got.LeftOut, "2 because another rollout has its policy") || got.Error == "" {
		t.Errorf("beside another rollout: %+v", got)
	}
}
