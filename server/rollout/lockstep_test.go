package rollout_test

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/store/storetest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// able is what an agent reports that can upgrade web in lockstep.
func able(version string, d *agentapi.UpgradeDetails) agentapi.Component {
	c := component("web", version, d)
	c.Lockstep = true
	return c
}

func webTogether(p *fleet.Plan) {
	p.Component, p.Version, p.Strategy = "web", "2.0.0", fleet.Strategy{Kind: fleet.LockstepStrategy}
}

func TestRolloutInLockstepIsRefusedAndPausesUntilItsTargetsAreReady(t *testing.T) {
	s := newSite(t, "a", "b")
	r := s.create(webTogether)
	pre := s.preview(r)
	refused := func(r fleet.Rollout, says string) {
		t.Helper()
		pre := s.preview(r)
		if len(pre.Refusals) != 1 || !strings.Contains(pre.Refusals[0].Text, says) {
			t.Errorf("the preview has the refusals %+v, want one that says %q", pre.Refusals, says)
		}
		_, err := s.service.Start(t.Context(), r.ID, pre.Hash, false, kim)
		s.wantKind(err, fleet.Conflict, says)
	}
	refused(r, "2 of 2 targets are not ready to go in lockstep: host-a (its agent cannot upgrade the component in lockstep), host-b")
	if len(pre.Batches) != 1 || pre.Batches[0].Size != 2 || !strings.Contains(strings.Join(pre.Warnings, "\n"), "goes through to its end") {
		t.Errorf("the batches are %+v, it warns %q", pre.Batches, pre.Warnings)
	}
	stage := func(versions ...string) {
		for _, id := range []string{"a", "b"} {
			s.reports(id, able("1.0.0", nil), component("db", "1.0.0", nil))
			s.change(id, func(a *fleet.Agent) { a.StagedVersions = versions })
		}
	}
	stage()
	refused(r, "stage the version first (`muster agents stage host-a host-b --component web --version 2.0.0 --wait`), or let the rollout do it (stage: ahead, --stage-ahead)")
	stage("web 2.0.0")
	seen := s.time().Add(-2 * time.Minute) // its connection is closed, and it is not offline yet
	s.must(s.store.Agents().Touch(t.Context(), []fleet.Touch{{AgentID: "b", At: seen}}))
	s.change("b", func(a *fleet.Agent) { a.Last.At = &seen })
	s.later(2 * time.Minute)
	s.heartbeat("a")
	refused(r, "1 of 2 targets are not ready to go in lockstep: host-b (the agent is not connected)")
	s.heartbeat("b")
	pre = s.preview(r)
	if len(pre.Refusals) != 0 {
		t.Fatalf("ready, the preview has %+v", pre.Refusals)
	}
	r, err := s.service.Start(t.Context(), r.ID, pre.Hash, false, kim)
	s.must(err)
	stage() // between the start and the first round
	s.round()
	r, err = s.service.Get(t.Context(), r.ID)
	s.must(err)
	if r.State != fleet.RolloutPaused || r.Stop.Kind != fleet.StopVerify || !strings.Contains(r.Stop.Text, "`muster agents stage host-a host-b --component web --version 2.0.0 --wait`") || !strings.Contains(r.Stop.Text, "2 of 2 targets are not ready") {
		t.Fatalf("it is %s, stopped by %+v", r.State, r.Stop)
	}
	why, err := s.service.Why(t.Context(), "a", "web", "", s.time())
	s.must(err)
	if !strings.Contains(why.Summary+why.Next, "verifies again") {
		t.Errorf("asked why, it says %q: %q", why.Summary, why.Next)
	}

	stage("web 2.0.0")
	_, err = s.service.Resume(t.Context(), r.ID, rollout.Request{Actor: "kim"})
	s.must(err)
	for range 5 {
		s.round()
	}
	r, err = s.service.Get(t.Context(), r.ID)
	s.must(err)
	if r.Lockstep.Phase != fleet.LockstepDrain || r.Counts.Offered != 2 {
		t.Fatalf("it is %s: %+v %+v, waits for %+v", r.State, r.Lockstep, r.Counts, r.Waiting)
	}
	act, err := s.store.Actions().Get(t.Context(), s.target(r, "a").ActionID)
	s.must(err)
	if d := act.Upgrade().Component; d == nil || d.Lockstep == nil || d.Lockstep.Until != agentapi.LockstepDrain || d.UpgradeID != act.ID {
		t.Errorf("the offer brings %+v", d)
	}

	_, err = s.service.Pause(t.Context(), r.ID, true, kim)
	s.wantKind(err, fleet.Conflict, "Cancel it to undo everything")
	_, err = s.service.Skip(t.Context(), r.ID, []string{"a"}, kim)
	s.wantKind(err, fleet.Conflict, "wait for each other")
	_, err = s.service.Rollback(t.Context(), r.ID, rollout.ScopeAll, kim)
	s.wantKind(err, fleet.Conflict, "a rollback would run mixed versions")
	_, err = s.service.Cancel(t.Context(), r.ID, kim)
	s.must(err)
	for range 5 {
		s.round()
	}
	r, err = s.service.Get(t.Context(), r.ID)
	s.must(err)
	if r.State != fleet.RolloutCancelled || r.Lockstep.Undo == nil || r.Counts.Withdrawn != 2 {
		t.Errorf("it is %s: %+v %+v", r.State, r.Lockstep, r.Counts)
	}
}

func TestRolloutInLockstepIsBounded(t *testing.T) {
	s := newSite(t, "a")
	_, err := s.service.Create(t.Context(), springPlan(webTogether, func(p *fleet.Plan) { p.Limits.MaxParallel = 5 }), kim)
	s.wantKind(err, fleet.Invalid, "body.plan.limits.max_parallel")
	_, err = s.service.Create(t.Context(), springPlan(func(p *fleet.Plan) { p.Strategy = fleet.Strategy{Kind: fleet.LockstepStrategy} }), kim)
	s.wantKind(err, fleet.Invalid, "body.plan.component")
}

// inForce lets the policy of the site require one version of web.
func (s *site) inForce(version string, changing bool) {
	s.t.Helper()
	p, err := s.store.Policies().Get(s.t.Context(), fleet.DefaultPolicyID)
	s.must(err)
	p.Component("web").Lockstep, p.Component("web").InForce = true, &agentapi.ComponentInForce{Version: version, Changing: changing}
	storetest.Update(s.t, s.store.Policies(), p)
}

func TestOnlyLockstepChangesTheVersionInForce(t *testing.T) {
	s := newSite(t, "a", "b")
	s.inForce("1.0.0", false)
	webTo2 := func(p *fleet.Plan) { p.Component, p.Version = "web", "2.0.0" }
	_, err := s.service.Create(t.Context(), springPlan(webTo2), kim)
	s.wantKind(err, fleet.Invalid, "policy default: web 1.0.0 is in force for the policy, whose hosts must not run mixed versions: to bring all of them to 2.0.0, make a rollout in lockstep (strategy: {kind: lockstep})")
	pre, err := s.service.DryRun(t.Context(), springPlan(webTo2))
	s.must(err)
	if len(pre.Targets) != 0 || len(pre.Skipped) != 2 || !strings.Contains(pre.Skipped[0].Text, "in force") {
		t.Errorf("the preview has %d targets and skips %+v", len(pre.Targets), pre.Skipped)
	}
	if pre, err = s.service.DryRun(t.Context(), springPlan(webTogether)); err != nil || len(pre.Targets) != 2 {
		t.Errorf("in lockstep there are %d targets, %v", len(pre.Targets), err)
	}

	s.inForce("2.0.0", false) // a host that is behind may be brought to it
	if pre, err = s.service.DryRun(t.Context(), springPlan(webTo2)); err != nil || len(pre.Targets) != 2 {
		t.Errorf("to the version in force there are %d targets, %v", len(pre.Targets), err)
	}
	s.inForce("2.0.0", true)
	_, err = s.service.Create(t.Context(), springPlan(webTo2), kim)
	s.wantKind(err, fleet.Invalid, "a rollout in lockstep changes component web for all hosts of the policy: wait until it has ended")
}

func TestRollbackFromTheVersionInForceIsRefused(t *testing.T) {
	s := newSite(t, "a")
	r := s.create(func(p *fleet.Plan) { p.Component, p.Version = "web", "2.0.0" })
	r, err := s.service.Start(t.Context(), r.ID, s.preview(r).Hash, false, kim)
	s.must(err)
	s.round()
	s.phase(r, "a", agentapi.UpgradeWatching)
	s.round()
	s.reports("a", component("web", "2.0.0", nil), component("db", "1.0.0", nil))
	s.round()
	s.inForce("2.0.0", false)
	_, err = s.service.Rollback(t.Context(), r.ID, rollout.ScopeAll, kim)
	if err == nil || !strings.Contains(err.Error(), "another version is in force for its policy, which only a rollout in lockstep changes") {
		t.Errorf("the error is %v", err)
	}
}
