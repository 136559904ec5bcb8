package rollout_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
)

func TestRolloutStoppedByFailuresIsPromotedOnce(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b", "c", "d")
	r := d.start(func(p *fleet.Plan) {
		p.Strategy = fleet.Strategy{Kind: fleet.Canary, BatchSize: 2, Canary: &fleet.CanaryRule{Size: 1, Approval: true}}
	})
	canary := d.targets(r.ID)[0].AgentID
	d.end(r.ID, canary, fleet.TargetFailed)
	d.edit(r.ID, func(r *fleet.Rollout) {
		r.State, r.Stop = fleet.RolloutPaused, &fleet.Stop{Kind: fleet.StopCanary, Text: "1 of 1 canaries failed", By: "muster", At: d.now}
	})
	_, err := d.service.Promote(t.Context(), r.ID, rollout.Request{Actor: "kim", Why: " "})
	d.wantKind(err, fleet.Invalid, "body.why")
	for range 2 {
		got, err := d.service.Promote(t.Context(), r.ID, kim)
		d.must(err)
		if p := got.Promoted; got.State != fleet.RolloutRunning || got.Stop != nil || got.Forgiven != 1 || got.Forced != nil || p == nil || p.By != "kim" || p.Why != kim.Why || !p.At.Equal(d.now) || !plan.Promoting(&got) {
			t.Errorf("it is %+v", got)
		}
	}
	if orders := d.rollout(r.ID).Orders; len(orders) != 1 || orders[0].Kind != fleet.OrderReturn {
		t.Errorf("orders are %+v", orders)
	}
	if got := d.trail(r.ID); !slices.Equal(got, []string{"rollout.create", "rollout.start", "rollout.promote"}) {
		t.Errorf("the trail is %v", got)
	}
	if got := d.events(); !slices.Equal(got[2:], []string{fleet.EventRolloutResumed}) {
		t.Errorf("events are %v", got)
	}
}

func TestDeclaredRolloutIsCreatedOnceUnderItsID(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b")
	ctx := t.Context()
	r, err := d.service.CreateDeclared(ctx, "web-7", "web", "a1b2", springPlan(), kim)
	d.must(err)
	if r.ID != "web-7" || r.Fleet != "web" || r.SpecHash != "a1b2" || r.State != fleet.RolloutDraft || r.Plan.Limits.MaxParallel != fleet.DefaultMaxParallel || len(r.Plan.Artifacts) == 0 {
		t.Errorf("it is %+v", r)
	}
	again, err := d.service.CreateDeclared(ctx, "web-7", "web", "a1b2", springPlan(called("another")), kim)
	d.must(err)
	if again.Plan.Name != "spring" || again.CreatedAt != r.CreatedAt {
		t.Errorf("the second call returned %+v", again)
	}
	r, err = d.service.Start(ctx, "web-7", d.preview(r).Hash, false, kim)
	d.must(err)
	again, err = d.service.CreateDeclared(ctx, "web-7", "web", "a1b2", springPlan(), kim)
	d.must(err)
	if again.State != fleet.RolloutRunning || again.Revision != d.rollout("web-7").Revision || again.Fleet != "web" || again.SpecHash != "a1b2" {
		t.Errorf("after the start it returned %+v", again)
	}
	if got := d.trail("web-7"); !slices.Equal(got, []string{"rollout.create", "rollout.start"}) {
		t.Errorf("the trail is %v", got)
	}

	why, err := d.service.Why(ctx, "a", "", "", time.Time{})
	d.must(err)
	if len(why.Chain) < 3 || !strings.Contains(why.Chain[0].Text, "is running, to 1.2.0") || why.Chain[1].Text != "the declared fleet web made the rollout, and decides what its agents run" {
		t.Errorf("why a runs its version: %+v", why)
	}
	list, err := d.store.Events().After(ctx, 0, 10)
	d.must(err)
	for _, e := range list {
		var data fleet.RolloutEventData
		if err := json.Unmarshal(e.Data, &data); err != nil || data.Fleet != "web" {
			t.Errorf("event %s has %s, %v", e.Type, e.Data, err)
		}
	}

	_, err = d.service.CreateDeclared(ctx, "web-7", "web", "c3d4", springPlan(), kim)
	d.wantKind(err, fleet.Conflict, "exists already, and was made for something else")
	_, err = d.service.CreateDeclared(ctx, "web-7", "db", "a1b2", springPlan(), kim)
	d.wantKind(err, fleet.Conflict, "exists already, and was made for something else")
	_, err = d.service.CreateMember(ctx, "g", "web-7", springPlan(), kim)
	d.wantKind(err, fleet.Conflict, "exists already, and was made for something else")
	_, err = d.service.CreateDeclared(ctx, "web-8", "web", "c3d4", springPlan(), kim)
	d.wantKind(err, fleet.Conflict, "is active on policy default")
	_, err = d.service.CreateDeclared(ctx, "web-8", "web", "c3d4", springPlan(func(p *fleet.Plan) { p.Version = "" }), kim)
	d.wantKind(err, fleet.Invalid, "body.plan.version")

	t.Run("its rollback does not carry the fleet out", func(t *testing.T) {
		d.end("web-7", "a", fleet.TargetSucceeded)
		back, err := d.service.Rollback(ctx, "web-7", "all", kim)
		d.must(err)
		if back.Fleet != "" || back.SpecHash != "" {
			t.Errorf("the rollback is of fleet %q", back.Fleet)
		}
	})
}

func TestAdjustedRolloutIsWrittenIfSomethingDiffers(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b", "c", "d")
	r := d.create()
	adjust := func(id string, change func(*fleet.Plan)) (fleet.Rollout, error) {
		p := d.rollout(id).Plan
		change(&p)
		return d.service.Adjust(t.Context(), id, p.Limits, p.Failure, p.Health, p.Pace, kim)
	}
	fewer := func(p *fleet.Plan) { p.Limits.MaxParallel = 1 }
	_, err := adjust(r.ID, fewer)
	d.wantKind(err, fleet.Conflict, "has not been started, so there is nothing to adjust")
	r, err = d.service.Start(t.Context(), r.ID, d.preview(r).Hash, false, kim)
	d.must(err)

	r = d.rollout(r.ID)
	_, err = adjust(r.ID, func(p *fleet.Plan) { p.Limits.MaxParallel = 0 }) // the default
	d.must(err)
	if got := d.rollout(r.ID); got.Revision != r.Revision {
		t.Errorf("nothing differed, and it was written: %+v", got)
	}
	for range 2 {
		got, err := adjust(r.ID, fewer)
		d.must(err)
		if got.Plan.Limits.MaxParallel != 1 || got.Pin.Hash != r.Pin.Hash || got.Generation != r.Generation+1 || len(got.Orders) != 0 || got.State != fleet.RolloutRunning {
			t.Errorf("it is %+v", got)
		}
	}
	d.edit(r.ID, func(r *fleet.Rollout) { r.State = fleet.RolloutPaused; rollouttest.StoppedBy(fleet.StopThreshold)(r) })
	perSite := func(p *fleet.Plan) { p.Limits.Per = []fleet.LabelLimit{{Label: "site", Max: 1}} }
	_, err = adjust(r.ID, perSite)
	d.must(err)
	got, err := adjust(r.ID, func(p *fleet.Plan) { p.Limits.Per = nil })
	d.must(err)
	if got.State != fleet.RolloutPaused || got.Stop == nil || len(got.Orders) != 1 || got.Orders[0].Kind != fleet.OrderAdjust || got.Orders[0].Agents != nil {
		t.Errorf("it is %s with the orders %+v", got.State, got.Orders)
	}
	entries, _, err := d.service.Trail(t.Context(), r.ID, 0, 10)
	d.must(err)
	if len(entries) != 5 || entries[2].Verb != "rollout.adjust" || entries[2].Text != "kim adjusted limits.max_parallel from 500 to 1" || entries[2].Why != kim.Why {
		t.Errorf("the trail is %+v", entries)
	}
	_, err = adjust(r.ID, func(p *fleet.Plan) { p.Health.MaxCrashes = -1 })
	d.wantKind(err, fleet.Invalid, "body.plan.health.max_crashes")
	_, err = d.service.Cancel(t.Context(), r.ID, kim)
	d.must(err)
	_, err = adjust(r.ID, perSite)
	d.wantKind(err, fleet.Conflict, "it is too late to adjust")

	t.Run("but not a rollback", func(t *testing.T) {
		d.end(r.ID, "a", fleet.TargetSucceeded)
		back, err := d.service.Rollback(t.Context(), r.ID, rollout.ScopeAll, kim)
		d.must(err)
		_, err = adjust(back.ID, fewer)
		d.wantKind(err, fleet.Conflict, "it cannot be adjusted")
	})
}
