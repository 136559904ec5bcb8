package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/explain"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
)

func TestCommandsAreAuditedOnce(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b", "c", "d")
	r := d.start()
	generation := r.Generation
	signals := d.signals
	do := func(f func() (fleet.Rollout, error)) fleet.Rollout {
		t.Helper()
		_, err := f()
		d.must(err)
		again, err := f()
		d.must(err)
		if stored := d.rollout(r.ID); stored.State != again.State || stored.Generation != again.Generation {
			t.Errorf("the answer is %s of generation %d, stored is %s of %d", again.State, again.Generation, stored.State, stored.Generation)
		}
		return again
	}
	ctx := t.Context()
	do(func() (fleet.Rollout, error) { return d.service.Pause(ctx, r.ID, false, kim) })
	do(func() (fleet.Rollout, error) { return d.service.Pause(ctx, r.ID, true, kim) })
	do(func() (fleet.Rollout, error) { return d.service.Resume(ctx, r.ID, kim) })
	do(func() (fleet.Rollout, error) { return d.service.Force(ctx, r.ID, kim) })
	do(func() (fleet.Rollout, error) { return d.service.Skip(ctx, r.ID, []string{"a"}, kim) })
	last := do(func() (fleet.Rollout, error) { return d.service.Cancel(ctx, r.ID, kim) })
	want := []string{"rollout.create", "rollout.start", "rollout.pause", "rollout.pause", "rollout.resume", "rollout.force", "rollout.skip", "rollout.cancel"}
	if got := d.trail(r.ID); !slices.Equal(got, want) {
		t.Errorf("the trail is %v, want %v", got, want)
	}
	if last.State != fleet.RolloutCancelling || last.Generation != generation+6 || d.signals != signals+6 {
		t.Errorf("it is %s of generation %d after %d, %d signals", last.State, last.Generation, generation, d.signals-signals)
	}
	wantEvents := []string{
		fleet.EventRolloutCreated, fleet.EventRolloutStarted, fleet.EventRolloutProgress, fleet.EventRolloutPaused, fleet.EventRolloutResumed,
		fleet.EventRolloutProgress, fleet.EventRolloutProgress, fleet.EventRolloutProgress,
	}
	if got := d.events(); !slices.Equal(got, wantEvents) {
		t.Errorf("events are %v, want %v", got, wantEvents)
	}
}

func TestCommandIsRetriedAfterAConflictWithTheReconciler(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b")
	r := d.start()
	races := 3
	d.service.Store = &meddledStore{Store: d.store, before: func() {
		if races--; races >= 0 {
			d.edit(r.ID, func(r *fleet.Rollout) { r.Counts.Offered++ })
		}
	}}
	got, err := d.service.Pause(t.Context(), r.ID, true, kim)
	d.must(err)
	if got.State != fleet.RolloutPaused || got.Counts.Offered != 3 || len(d.trail(r.ID)) != 3 {
		t.Errorf("it is %s with %d offered, its trail is %v", got.State, got.Counts.Offered, d.trail(r.ID))
	}
	races = 100
	_, err = d.service.Resume(t.Context(), r.ID, kim)
	d.wantKind(err, fleet.Conflict, "")
	if spent := 100 - races; spent > 10 {
		t.Errorf("it tried %d times", spent)
	}
}

// meddledStore calls a function before each update of a rollout, to change it as
// another writer would.
type meddledStore struct {
	store.Store
	before func()
}

func (m *meddledStore) Rollouts() store.Rollouts { return meddledRollouts{m.Store.Rollouts(), m} }

type meddledRollouts struct {
	store.Rollouts
	m *meddledStore
}

func (m meddledRollouts) Update(ctx context.Context, r fleet.Rollout) (int64, error) {
	m.m.before()
	return m.Rollouts.Update(ctx, r)
}

func TestRetryAndSkipRefuseUnsuitableTargets(t *testing.T) {
	d := newHarness(t)
	d.enrol("fine", "broken", "waiting")
	r := d.start()
	d.end(r.ID, "fine", fleet.TargetSucceeded)
	d.end(r.ID, "broken", fleet.TargetFailed)
	ctx := t.Context()
	_, err := d.service.Retry(ctx, r.ID, []string{"broken", "fine"}, kim)
	d.wantKind(err, fleet.Conflict, "agent fine (host-fine) runs the version already, and need not be retried")
	_, err = d.service.Skip(ctx, r.ID, []string{"fine"}, kim)
	d.wantKind(err, fleet.Conflict, "agent fine (host-fine) runs the version already, and cannot be left out")
	_, err = d.service.Retry(ctx, r.ID, []string{"stranger"}, kim)
	d.wantKind(err, fleet.NotFound, "is no target of rollout “spring”")
	_, err = d.service.Skip(ctx, r.ID, nil, kim)
	d.wantKind(err, fleet.Invalid, "body.agents")
	_, err = d.service.Skip(ctx, r.ID, make([]string, 1001), kim)
	d.wantKind(err, fleet.Invalid, "at most 1000")
	if got := d.rollout(r.ID); len(got.Orders) != 0 {
		t.Errorf("orders are %+v", got.Orders)
	}
	_, err = d.service.Retry(ctx, r.ID, nil, kim)
	d.must(err)
	_, err = d.service.Skip(ctx, r.ID, []string{"waiting"}, kim)
	d.must(err)
	orders := d.rollout(r.ID).Orders
	if len(orders) != 2 || orders[0].Kind != fleet.OrderRetry || orders[0].Agents != nil || orders[1].Kind != fleet.OrderSkip || orders[1].By != "kim" || orders[1].Why != kim.Why {
		t.Errorf("orders are %+v", orders)
	}
}

func TestRollbackOfAllIncludesSucceededTargets(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b", "c", "d", "lab/e")
	r := d.start(func(p *fleet.Plan) { p.Limits.MaxParallel = 7 })
	_, err := d.service.Rollback(t.Context(), r.ID, rollout.ScopeAll, kim)
	d.wantKind(err, fleet.Conflict, "no target has begun")
	if got := d.rollout(r.ID); got.State != fleet.RolloutRunning || got.RolledBackBy != "" {
		t.Errorf("a refused rollback left it %s", got.State)
	}
	d.end(r.ID, "a", fleet.TargetSucceeded)
	d.end(r.ID, "b", fleet.TargetFailed)
	_, err = d.service.Rollback(t.Context(), r.ID, "some", kim)
	d.wantKind(err, fleet.Invalid, "body.scope")

	back, err := d.service.Rollback(t.Context(), r.ID, rollout.ScopeAll, kim)
	d.must(err)
	if back.ID != r.ID+"-rollback" || back.State != fleet.RolloutRunning || back.RollbackOf != r.ID || len(back.Batches) != 1 || back.Plan.Limits.MaxParallel != 7 || back.Plan.Strategy.Canary != nil {
		t.Errorf("the rollback is %+v", back)
	}
	targets := d.targets(back.ID)
	if len(targets) != 2 {
		t.Fatalf("targets are %+v", targets)
	}
	for _, target := range targets {
		if target.From != "1.2.0" || (target.To != "1.1.0") {
			t.Errorf("%s goes from %s to %s", target.AgentID, target.From, target.To)
		}
	}
	if got := d.agents(back.ID); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("targets are %v", got)
	}
	old := d.rollout(r.ID)
	if old.State != fleet.RolloutPaused || old.Stop == nil || old.Stop.Kind != fleet.StopRollback || old.RolledBackBy != back.ID || len(old.Orders) != 1 || old.Orders[0].Kind != fleet.OrderWithdraw {
		t.Errorf("the original is %+v", old)
	}
	if got := d.locks(); !slices.Equal(got, []string{"default=" + back.ID, "lab=" + r.ID}) {
		t.Errorf("locks are %v", got)
	}
	if got := d.events(); !slices.Equal(got[len(got)-2:], []string{fleet.EventRolloutPaused, fleet.EventRollbackStarted}) {
		t.Errorf("events are %v", got)
	}

	t.Run("its agents are locked to it, the others still to the original", func(t *testing.T) {
		agents, err := d.store.Agents().GetMany(t.Context(), []string{"a", "c"})
		d.must(err)
		locked, err := rollout.Locks{Store: d.store}.OfAgents(t.Context(), "", agents)
		d.must(err)
		if locked["a"].ID != back.ID || locked["c"].ID != r.ID {
			t.Errorf("locked are %v", locked)
		}
	})
	t.Run("asked again it is the same", func(t *testing.T) {
		again, err := d.service.Rollback(t.Context(), r.ID, rollout.ScopeAll, kim)
		d.must(err)
		if again.ID != back.ID || d.rollout(r.ID).Revision != old.Revision {
			t.Errorf("it is %s", again.ID)
		}
	})
	t.Run("another beside it is refused", func(t *testing.T) {
		_, err := d.service.Rollback(t.Context(), r.ID, rollout.ScopeFailed, kim)
		d.wantKind(err, fleet.Conflict, "is being rolled back by")
	})
	t.Run("so is a rollback of the rollback", func(t *testing.T) {
		_, err := d.service.Rollback(t.Context(), back.ID, rollout.ScopeAll, kim)
		d.wantKind(err, fleet.Conflict, "is itself a rollback")
	})
	t.Run("the original is not resumed beside it, but after it", func(t *testing.T) {
		_, err := d.service.Resume(t.Context(), r.ID, kim)
		d.wantKind(err, fleet.Conflict, "is being rolled back by")
		d.edit(back.ID, func(r *fleet.Rollout) { r.State, r.EndedAt = fleet.RolloutFailed, &d.now })
		resumed, err := d.service.Resume(t.Context(), r.ID, kim)
		d.must(err)
		if resumed.State != fleet.RolloutRunning || !slices.Equal(d.locks(), []string{"default=" + r.ID, "lab=" + r.ID}) {
			t.Errorf("it is %s, locks are %v", resumed.State, d.locks())
		}
	})
}

func TestNewRolloutForTheFailedTargetsOfAnother(t *testing.T) {
	d := newHarness(t)
	d.enrol("good", "failed", "back", "refused", "late", "left")
	r := d.start()
	ctx := t.Context()
	again := func() (fleet.Rollout, error) { return d.service.CreateForFailed(ctx, r.ID, kim) }
	_, err := again()
	d.wantKind(err, fleet.Conflict, "has not ended (running): retry its failed targets with `muster rollouts retry "+r.ID+" --all-failed`")
	for agent, state := range map[string]fleet.TargetState{
		"good": fleet.TargetSucceeded, "failed": fleet.TargetFailed, "back": fleet.TargetRolledBack, "refused": fleet.TargetSkipped, "late": fleet.TargetFailed, "left": fleet.TargetSkipped,
	} {
		d.end(r.ID, agent, state)
	}
	for agent, code := range map[string]fleet.ReasonCode{"refused": fleet.WhyFailedBefore, "left": fleet.WhyOperator} {
		target, err := d.store.Targets().Get(ctx, r.ID, agent)
		d.must(err)
		target.Code = code
		_, _, err = d.store.Targets().UpdateMany(ctx, []fleet.Target{target})
		d.must(err)
	}
	was, err := d.store.Targets().Get(ctx, r.ID, "failed")
	d.must(err)
	d.change("failed", func(a *fleet.Agent) {
		a.Version, a.LocalMetadata = was.From, document("failed", was.From, "default", d.now).LocalMetadata
	})
	for _, agent := range []string{"back", "refused"} {
		d.change(agent, func(a *fleet.Agent) {
			a.FailedVersions = []fleet.FailedVersion{{Version: "1.2.0", Reason: "it crashed", At: d.now}}
		})
	}
	d.edit(r.ID, func(r *fleet.Rollout) { r.State, r.EndedAt = fleet.RolloutFailed, &d.now })
	d.must(d.store.PolicyLocks().Delete(ctx, "default"))
	next, err := again()
	d.must(err)
	if next.State != fleet.RolloutDraft || next.Plan.Name != "failed targets of spring" || next.Plan.Version != "1.2.0" || next.Plan.Strategy.BatchSize != r.Plan.Strategy.BatchSize {
		t.Errorf("the draft is %+v", next.Plan)
	}
	pre := d.preview(next)
	var targets []string
	for _, target := range pre.Targets {
		targets = append(targets, target.AgentID)
	}
	if slices.Sort(targets); !slices.Equal(targets, []string{"back", "failed", "refused"}) {
		t.Errorf("its targets are %v, it leaves out %+v", targets, pre.Skipped)
	}
	d.must(d.service.Delete(ctx, next.ID, kim))
	for _, agent := range targets {
		d.change(agent, func(a *fleet.Agent) { a.Version = "1.2.0" })
	}
	_, err = again()
	d.wantKind(err, fleet.Conflict, "all targets of")
}

func TestRollbackOfFailedTargetsOnly(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b", "c")
	r := d.start()
	d.end(r.ID, "a", fleet.TargetSucceeded)
	d.end(r.ID, "b", fleet.TargetFailed)
	d.end(r.ID, "c", fleet.TargetSkipped)
	d.edit(r.ID, func(r *fleet.Rollout) { r.State, r.EndedAt = fleet.RolloutFailed, &d.now })
	back, err := d.service.Rollback(t.Context(), r.ID, rollout.ScopeFailed, kim)
	d.must(err)
	if got := d.agents(back.ID); back.ID != r.ID+"-rollback-failed" || !slices.Equal(got, []string{"b"}) {
		t.Errorf("%s has %v", back.ID, got)
	}
	if old := d.rollout(r.ID); old.State != fleet.RolloutFailed || old.RolledBackBy != back.ID || old.Stop != nil {
		t.Errorf("what had ended is %+v", old)
	}
}

func TestExposureRuleIsValidated(t *testing.T) {
	d := newHarness(t)
	if rule, err := d.service.Exposure(t.Context()); err != nil || rule.Enabled || rule.Percent != 10 || rule.HealthyHours != 24 {
		t.Errorf("without one it is %+v, %v", rule, err)
	}
	for field, wrong := range map[string]fleet.ExposureRule{
		"body.percent":        {Percent: 101},
		"body.healthy_hours":  {Percent: 5, HealthyHours: -1},
		"body.per[1].label":   {Percent: 5, Per: []fleet.ExposureLabel{{Label: "site", Percent: 5}, {Label: "site", Percent: 6}}},
		"body.per[0].percent": {Percent: 5, Per: []fleet.ExposureLabel{{Label: "site"}}},
		"body.per":            {Percent: 5, Per: make([]fleet.ExposureLabel, 5)},
	} {
		_, err := d.service.SetExposure(t.Context(), wrong, kim)
		d.wantKind(err, fleet.Invalid, "[request "+field+"]")
	}
	for _, hours := range []float64{48, 12} {
		_, err := d.service.SetExposure(t.Context(), fleet.ExposureRule{Enabled: true, Percent: 5, HealthyHours: hours}, kim)
		d.must(err)
		if rule, err := d.service.Exposure(t.Context()); err != nil || !rule.Enabled || rule.HealthyHours != hours || rule.UpdatedBy != "kim" {
			t.Errorf("it is %+v, %v", rule, err)
		}
	}
	if got := d.trail("exposure"); len(got) != 2 {
		t.Errorf("its trail is %v", got)
	}
}

func TestPreviewRespectsTheExposureBudget(t *testing.T) {
	d := newHarness(t)
	for i := range 40 {
		d.enrol(fmt.Sprint("agent-", i))
	}
	_, err := d.service.SetExposure(t.Context(), fleet.ExposureRule{Enabled: true, Percent: 10, HealthyHours: 100}, kim)
	d.must(err)
	_, err = d.service.DryRun(t.Context(), springPlan(func(p *fleet.Plan) { p.Strategy = fleet.Strategy{Kind: fleet.AllAtOnce} }))
	d.wantKind(err, fleet.Conflict, "exposure budget")
	pre, err := d.service.DryRun(t.Context(), springPlan(func(p *fleet.Plan) { p.Pace.Soak = fleet.Duration(100 * time.Hour) }))
	d.must(err)
	if pre.Exposure == nil || pre.Exposure.Limit != 4 || pre.Exposure.Fleet != 40 {
		t.Errorf("exposure is %+v", pre.Exposure)
	}
}

func TestFreezesAreValidatedAndStored(t *testing.T) {
	d := newHarness(t)
	freeze := func(f fleet.Freeze) (fleet.Freeze, error) { return d.service.CreateFreeze(t.Context(), f, kim) }
	good := fleet.Freeze{ID: "yule", Name: "Christmas", From: d.now.Add(time.Hour), To: d.now.Add(48 * time.Hour)}
	for field, change := range map[string]func(*fleet.Freeze){
		"body.name": func(f *fleet.Freeze) { f.Name = " " },
		"body.from": func(f *fleet.Freeze) { f.From = time.Time{} },
		"body.to":   func(f *fleet.Freeze) { f.To = f.From },
		"body.id":   func(f *fleet.Freeze) { f.ID = strings.Repeat("x", 300) },
	} {
		wrong := good
		change(&wrong)
		_, err := freeze(wrong)
		d.wantKind(err, fleet.Invalid, "[request "+field+"]")
	}
	past := fleet.Freeze{Name: "gone", From: d.now.Add(-2 * time.Hour), To: d.now.Add(-time.Hour)}
	_, err := freeze(past)
	d.wantKind(err, fleet.Invalid, "has passed")
	_, err = freeze(fleet.Freeze{Name: "for ever", From: d.now, To: d.now.AddDate(100, 0, 0)})
	d.wantKind(err, fleet.Invalid, "more than a year")
	for range 2 {
		_, err := freeze(good)
		d.must(err)
	}
	_, err = freeze(fleet.Freeze{ID: "yule", Name: "Easter", From: good.From, To: good.To})
	d.wantKind(err, fleet.Conflict, "a freeze with id yule exists")
	if list, err := d.service.ListFreezes(t.Context()); err != nil || len(list) != 1 || list[0].CreatedBy != "kim" {
		t.Errorf("the calendar is %+v, %v", list, err)
	}
	longer := good
	longer.Name, longer.To = "Christmas and New Year", good.To.Add(24*time.Hour)
	changed, err := d.service.ChangeFreeze(t.Context(), longer, kim)
	d.must(err)
	if changed.CreatedBy != "kim" || !changed.To.Equal(longer.To) || changed.Name != longer.Name {
		t.Errorf("the changed freeze is %+v", changed)
	}
	wrong := longer
	wrong.To = wrong.From
	_, err = d.service.ChangeFreeze(t.Context(), wrong, kim)
	d.wantKind(err, fleet.Invalid, "[request body.to]")
	wrong = longer
	wrong.ID = "none"
	_, err = d.service.ChangeFreeze(t.Context(), wrong, kim)
	d.wantKind(err, fleet.NotFound, "there is no freeze none")
	d.must(d.service.DeleteFreeze(t.Context(), "yule", kim))
	d.wantKind(d.service.DeleteFreeze(t.Context(), "yule", kim), fleet.NotFound, "there is no freeze yule")
	if got := d.trail("freezes"); !slices.Equal(got, []string{"freeze.create", "freeze.change", "freeze.delete"}) {
		t.Errorf("the trail is %v", got)
	}
}

func TestWhyExplainsAnAgent(t *testing.T) {
	d := newHarness(t)
	d.enrol("first", "second", "third", "done", "lab/alone")
	d.change("done", func(a *fleet.Agent) { a.Version = "1.2.0" })
	why := func(agent, id string, at time.Time) explain.Explanation {
		t.Helper()
		e, err := d.service.Why(t.Context(), agent, "", id, at)
		d.must(err)
		if e.Summary == "" || len(e.Chain) == 0 {
			t.Errorf("%s: %+v", agent, e)
		}
		return e
	}
	wantWhy := func(e explain.Explanation, id, part string) {
		t.Helper()
		if e.RolloutID != id || !strings.Contains(e.Summary, part) {
			t.Errorf("about %q it says %q, want %q about %q", e.RolloutID, e.Summary, part, id)
		}
	}
	wantWhy(why("first", "", time.Time{}), "", "and 1.2.0 is published, but no rollout brings it there")
	before := d.now
	d.later(time.Hour)
	draft := d.create(forPolicy("default"))
	wantWhy(why("first", draft.ID, time.Time{}), draft.ID, "has not been previewed")
	d.preview(draft)
	wantWhy(why("first", draft.ID, time.Time{}), draft.ID, "its preview has it in batch")
	d.must(d.service.Delete(t.Context(), draft.ID, kim))
	r := d.start(forPolicy("default"))
	d.later(time.Minute)
	last := d.targets(r.ID)[2].AgentID
	wantWhy(why(last, "", time.Time{}), r.ID, "an earlier batch is not done yet")
	wantWhy(why(last, "", before), "", "no rollout")
	wantWhy(why(last, r.ID, before), r.ID, "the rollout has not been started")
	wantWhy(why("done", "", time.Time{}), r.ID, "was left out of rollout “spring”")
	wantWhy(why("alone", "", time.Time{}), "", "no rollout brings it there")
	wantWhy(why("alone", r.ID, time.Time{}), r.ID, "the rollout's select does not choose it")
	d.enrol("newcomer")
	wantWhy(why("newcomer", "", time.Time{}), r.ID, "it enrolled after the start")
	_, err := d.service.Pause(t.Context(), r.ID, true, kim)
	d.must(err)
	wantWhy(why(last, "", time.Time{}), r.ID, "the rollout is paused")
	_, err = d.service.Why(t.Context(), "nobody", "", "", time.Time{})
	d.wantKind(err, fleet.NotFound, "there is no agent nobody")
	_, err = d.service.Why(t.Context(), "nobody", "", r.ID, time.Time{})
	d.wantKind(err, fleet.NotFound, "there is no agent nobody")
	_, err = d.service.Why(t.Context(), "first", "", "nothing", time.Time{})
	d.wantKind(err, fleet.NotFound, "there is no rollout nothing")
	_, err = d.service.Why(t.Context(), "first", "", "", d.now.Add(time.Hour))
	d.wantKind(err, fleet.Invalid, "query.at")
}

// A limit that blocks one target is not what the whole rollout waits for.
func TestWhyNamesTheLimitThatBlocksATarget(t *testing.T) {
	for _, c := range []struct {
		name  string
		plan  func(*fleet.Plan)
		what  func(d *harness, r fleet.Rollout, waits string)
		wants fleet.ReasonCode
	}{
		{"nothing does", nil, nil, fleet.WhyNext},
		{"its policy has as many in flight as may be", func(p *fleet.Plan) { p.Limits.Per = []fleet.LabelLimit{{Label: "policy", Max: 1}} }, nil, fleet.WhyLabelLimit},
		{"so has the rollout", func(p *fleet.Plan) { p.Limits.MaxParallel = 1 }, nil, fleet.WhyParallel},
		{"both do, and the narrower is told", func(p *fleet.Plan) {
			p.Limits.MaxParallel, p.Limits.Per = 1, []fleet.LabelLimit{{Label: "policy", Max: 1}}
		}, nil, fleet.WhyLabelLimit},
		{"it has something else to do", nil, func(d *harness, r fleet.Rollout, waits string) {
			d.change(waits, func(a *fleet.Agent) { a.BeginUpgrade("single", "1.3.0", d.now) })
		}, fleet.WhyBusy},
		{"it has just gone", nil, func(d *harness, r fleet.Rollout, waits string) { d.later(fleet.OfflineAfter + time.Minute) }, fleet.WhyAway},
		{"the exposure budget", nil, func(d *harness, r fleet.Rollout, waits string) {
			_, err := d.service.SetExposure(d.t.Context(), fleet.ExposureRule{Enabled: true, Percent: 25, HealthyHours: 100}, kim)
			d.must(err)
		}, fleet.WhyExposure},
		{"a window, whatever its own limits are", func(p *fleet.Plan) { p.Limits.MaxParallel = 1 }, func(d *harness, r fleet.Rollout, waits string) {
			d.edit(r.ID, func(r *fleet.Rollout) {
				r.Waiting = []fleet.Wait{{Code: fleet.WhyApproval, Text: "approve"}, {Code: fleet.WhyWindow, Text: "closed"}}
			})
		}, fleet.WhyWindow},
		{"no approval: that is for the batches behind", nil, func(d *harness, r fleet.Rollout, waits string) {
			d.edit(r.ID, func(r *fleet.Rollout) { r.Waiting = []fleet.Wait{{Code: fleet.WhyApproval, Text: "approve"}} })
		}, fleet.WhyNext},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newHarness(t)
			d.enrol("a", "b", "c", "d")
			change := []func(*fleet.Plan){}
			if c.plan != nil {
				change = append(change, c.plan)
			}
			r := d.start(change...)
			targets := d.targets(r.ID)
			flies, waits, later := targets[0].AgentID, targets[1].AgentID, targets[2].AgentID
			d.end(r.ID, flies, fleet.TargetOffered)
			if c.what != nil {
				c.what(d, r, waits)
			}
			e, err := d.service.Why(t.Context(), waits, "", r.ID, time.Time{})
			d.must(err)
			if !slices.ContainsFunc(e.Chain, func(link explain.Reason) bool {
				return link.Code == c.wants && strings.HasPrefix(link.Text, "it has not been offered")
			}) {
				t.Errorf("it says %q, %+v, want %s", e.Summary, e.Chain, c.wants)
			}
			e, err = d.service.Why(t.Context(), later, "", r.ID, time.Time{})
			d.must(err)
			if !strings.Contains(e.Summary, plan.ReasonText(fleet.WhyBatch)) {
				t.Errorf("of one of the next batch it says %q", e.Summary)
			}
		})
	}
}

// As TestCommandsThatArePossibleAreAccepted, for the commands on one target: in each state of the
// rollout and of the target, also while an order waits.
var targetStates = []fleet.TargetState{
	fleet.TargetPending, fleet.TargetHeld, fleet.TargetOffered, fleet.TargetUpgrading, fleet.TargetVerifying, fleet.TargetSucceeded,
	fleet.TargetFailed, fleet.TargetRolledBack, fleet.TargetWithdrawn, fleet.TargetSkipped, fleet.TargetExpired, fleet.TargetCancelled,
}

func TestTargetCommandsThatArePossibleAreAccepted(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b")
	id := d.start().ID
	orders := map[string][]fleet.Order{
		"none": nil, "retry all": {{ID: "o", Kind: fleet.OrderRetry}}, "retry a": {{ID: "o", Kind: fleet.OrderRetry, Agents: []string{"b", "a"}}}, "skip a": {{ID: "o", Kind: fleet.OrderSkip, Agents: []string{"a"}}},
	}
	give := map[string]func(*rollout.Service, context.Context, string, []string, rollout.Request) (fleet.Rollout, error){
		plan.CommandRetry: (*rollout.Service).Retry, plan.CommandSkip: (*rollout.Service).Skip,
	}
	for _, state := range []fleet.RolloutState{fleet.RolloutRunning, fleet.RolloutPaused, fleet.RolloutCancelling, fleet.RolloutCompleted} {
		for _, target := range targetStates {
			for waiting, list := range orders {
				for _, kind := range []fleet.StrategyKind{fleet.Rolling, fleet.LockstepStrategy} {
					for name, do := range give {
						d.edit(id, func(r *fleet.Rollout) { r.State, r.Orders, r.Plan.Strategy.Kind = state, list, kind })
						one, err := d.service.TargetsOf(t.Context(), id, "a")
						d.must(err)
						one[0].State = target
						_, errs, err := d.store.Targets().UpdateMany(t.Context(), one)
						d.must(errors.Join(append(errs, err)...))
						r := d.rollout(id)
						listed, err := d.service.Commands(t.Context(), &r)
						d.must(err)
						of := plan.TargetCommands(&r, listed, &one[0])
						c := of[slices.IndexFunc(of, func(c fleet.Command) bool { return c.Name == name })]
						after, err := do(d.service, t.Context(), id, []string{"a"}, kim)
						accepted := err == nil && after.Generation > r.Generation
						if accepted != c.Allowed || c.Allowed == (c.Reason != "") {
							t.Errorf("%s of a %s target of a %s rollout (%s, waiting: %s): accepted is %t (%v), the list has %+v", name, target, state, kind, waiting, accepted, err, c)
						}
					}
				}
			}
		}
	}
}
