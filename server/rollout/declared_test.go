package rollout_test

import (
	"slices"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
)

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
