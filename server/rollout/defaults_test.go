package rollout_test

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// serverDefaults are none of those that every server has.
func serverDefaults() plan.Defaults {
	count := 7
	return plan.Defaults{
		Limits: fleet.Limits{MaxParallel: 50}, Failure: fleet.FailureRule{Count: &count}, Health: fleet.HealthRule{Wait: fleet.Duration(20 * time.Minute)},
		Strategy: fleet.Strategy{Canary: &fleet.CanaryRule{Size: 1}},
	}
}

func TestServerDefaultsAreForPlansThatLeaveTheFieldsOut(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b")
	d.service.Defaults = serverDefaults()
	r := d.create(func(p *fleet.Plan) { p.Health.Wait = fleet.Duration(time.Minute) })
	got := r.Plan
	if got.Limits.MaxParallel != 50 || *got.Failure.Count != 7 || got.Health.Wait.D() != time.Minute || !slices.Equal(got.ServerDefaults, []string{"limits.max_parallel", "failure.count"}) {
		t.Errorf("the draft has %+v, %+v, %+v by the defaults of %v", got.Limits, got.Failure, got.Health, got.ServerDefaults)
	}
	pre := d.preview(r)
	if want := []string{"limits.max_parallel: 50", "failure.count: 7"}; !slices.Equal(pre.ServerDefaults, want) {
		t.Errorf("the preview shows %v, want %v", pre.ServerDefaults, want)
	}
	dry, err := d.service.DryRun(t.Context(), springPlan(func(p *fleet.Plan) { p.Health.Wait = fleet.Duration(time.Minute) }))
	d.must(err)
	if dry.Hash != pre.Hash {
		t.Error("a dry run has another plan than the rollout")
	}
	// Another configuration changes no draft, nor what is started.
	d.service.Defaults = plan.Defaults{Limits: fleet.Limits{MaxParallel: 3}}
	if again := d.preview(r); again.Hash != pre.Hash {
		t.Error("after a change of the configuration the draft has another preview")
	}
}

func TestDeclaredFleetsDoNotGetServerDefaults(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b")
	ctx := t.Context()
	before, err := d.service.DryRunDeclared(ctx, "web", "", springPlan())
	d.must(err)
	d.service.Defaults = serverDefaults()
	after, err := d.service.DryRunDeclared(ctx, "web", "", springPlan())
	d.must(err)
	resolved, err := d.service.ResolveDeclared(ctx, springPlan())
	d.must(err)
	r, err := d.service.CreateDeclared(ctx, "web-1", "web", "a1", springPlan(), kim)
	d.must(err)
	if before.Hash != after.Hash || d.preview(r).Hash != before.Hash {
		t.Error("the preview of the fleet's rollout depends on the server's defaults")
	}
	for _, p := range []fleet.Plan{resolved, r.Plan} {
		if p.Limits.MaxParallel != fleet.DefaultMaxParallel || p.Failure.Count != nil || len(p.ServerDefaults) != 0 {
			t.Errorf("its plan is %+v, %+v by the defaults of %v", p.Limits, p.Failure, p.ServerDefaults)
		}
	}
}

func TestRolloutForFailedTargetsRepeatsThePlanAsItWas(t *testing.T) {
	d := newHarness(t)
	d.enrol("a")
	r := d.start()
	d.end(r.ID, "a", fleet.TargetFailed)
	d.change("a", func(a *fleet.Agent) { a.Version = "1.1.0" })
	d.edit(r.ID, func(r *fleet.Rollout) { r.State, r.EndedAt = fleet.RolloutFailed, &d.now })
	d.must(d.store.PolicyLocks().Delete(t.Context(), "default"))
	d.service.Defaults = serverDefaults()
	next, err := d.service.CreateForFailed(t.Context(), r.ID, kim)
	d.must(err)
	if next.Plan.Failure.Count != nil || len(next.Plan.ServerDefaults) != 0 {
		t.Errorf("it got the defaults of %v, which the server has since", next.Plan.ServerDefaults)
	}
}
