package reconcile_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/preview"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestARollingRolloutFromEndToEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 25)
	w.start("r", rolling(nil))
	most := 0
	r := w.until("r", time.Hour, func(r fleet.Rollout) bool {
		most = max(most, r.Counts.InFlight())
		return over(r)
	})
	if r.State != fleet.RolloutCompleted || r.Counts.Succeeded != 25 || r.EndedAt == nil || len(r.Waiting) != 0 {
		t.Errorf("it ended %s with %+v, waiting for %v", r.State, r.Counts, r.Waiting)
	}
	w.checkCounts(r)
	if most != 10 {
		t.Errorf("at most %d were in flight, want the 10 of a batch", most)
	}
	if n := len(w.running("1.1.0")); n != 25 {
		t.Errorf("%d hosts run the version", n)
	}
	for _, id := range w.order {
		if n := w.hosts[id].upgrades; n != 1 {
			t.Errorf("%s was upgraded %d times", id, n)
		}
		if a := w.agent(id); a.LastHealthyVersion != "1.1.0" || a.Upgrading() {
			t.Errorf("%s was last healthy with %q", id, a.LastHealthyVersion)
		}
	}
	if _, err := w.store.PolicyLocks().Get(t.Context(), "default"); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("the policy is still locked: %v", err)
	}
	if n := len(w.events(fleet.EventTargetStarted)); n != 25 {
		t.Errorf("%d events tell of a start", n)
	}
	if n := len(w.events(fleet.EventTargetCompleted)); n != 25 {
		t.Errorf("%d events tell of an end", n)
	}
	if n := len(w.events(fleet.EventRolloutCompleted)); n != 1 {
		t.Errorf("%d events tell of the rollout's end", n)
	}
}

func TestThresholdWithdrawsOffersThatHaveNotBegun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 30)
	// Batches of ten. In the first, three fail early while the others are slow.
	three := 3
	r := w.start("r", rolling(func(p *fleet.Plan) { p.Failure.Count = &three }))
	var first []string
	w.must(w.store.Targets().Each(t.Context(), r.ID, func(t fleet.Target) {
		if t.Batch == 0 {
			first = append(first, t.AgentID)
		}
	}))
	for i, id := range first {
		if w.hosts[id].slow = true; i < 3 {
			w.hosts[id].slow, w.hosts[id].bad = false, "download"
		}
	}
	r = w.until("r", 10*time.Minute, stopped)
	if r.Stop.Kind != fleet.StopThreshold || r.Stop.Withdrawn != 7 || r.Counts.Withdrawn != 7 || r.Counts.Failed != 3 || r.Counts.Offered != 0 {
		t.Fatalf("it stopped with %+v, %+v", r.Stop, r.Counts)
	}
	w.checkCounts(r)
	w.pass(w.tick) // they receive it
	for _, id := range first {
		w.hosts[id].slow = false
	}
	w.pass(10 * time.Minute)
	if ids := w.running("1.1.0"); len(ids) > 0 {
		t.Errorf("%v reached the version after the stop", ids)
	}
	for _, id := range first {
		if a := w.agent(id); a.Upgrading() || (a.UpgradeDetails != nil && !a.UpgradeDetails.State.Ended()) {
			t.Errorf("%s is still marked: %+v", id, a.UpgradeDetails)
		}
		if target := w.target("r", id); target.State == fleet.TargetWithdrawn && target.Code != fleet.WhyThreshold {
			t.Errorf("%s was withdrawn as %s", id, target.Code)
		}
	}
	if n := len(w.events(fleet.EventRolloutPaused)); n != 1 {
		t.Errorf("%d events tell of the stop", n)
	}

	t.Run("an operator resumes, and what was withdrawn comes with it, but for what an operator called off; the failed are tried again", func(t *testing.T) {
		for _, id := range first {
			w.hosts[id].bad = ""
		}
		off := w.target("r", first[9])
		off.Code = fleet.WhyOperator // as if an operator had cancelled the upgrade of this agent
		_, errs, err := w.store.Targets().UpdateMany(t.Context(), []fleet.Target{off})
		w.must(errors.Join(append(errs, err)...))
		w.server.loop = w.process(w.store).loop // it has read the target before
		w.change("r", func(r *fleet.Rollout) {
			r.State, r.Stop, r.Forgiven = fleet.RolloutRunning, nil, r.Counts.Bad()
			r.Orders = append(r.Orders, fleet.Order{ID: "o1", Kind: fleet.OrderReturn}, fleet.Order{ID: "o2", Kind: fleet.OrderRetry}, fleet.Order{ID: "o3", Kind: fleet.OrderReturn})
		})
		r := w.until("r", time.Hour, over)
		if r.State != fleet.RolloutCompleted || r.Counts.Succeeded != 29 || r.Counts.Withdrawn != 1 || len(r.Orders) != 0 {
			t.Errorf("it ended %s with %+v, orders %v", r.State, r.Counts, r.Orders)
		}
		if target := w.target("r", first[9]); target.State != fleet.TargetWithdrawn || target.Attempts != 1 {
			t.Errorf("the target that was called off is %+v", target)
		}
		if target := w.target("r", first[8]); target.Attempts != 2 || target.ActionIDs[0] == target.ActionID {
			t.Errorf("the target that came back is %+v", target)
		}
		if target := w.target("r", first[0]); target.Attempts != 2 || len(target.ActionIDs) != 1 || target.ActionIDs[0] == target.ActionID {
			t.Errorf("the target tried again is %+v", target)
		}
	})
}

func TestTargetsOfFailingHosts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bad      string
		state    fleet.TargetState
		code     fleet.ReasonCode
		incident fleet.IncidentKind
	}{
		{"download", fleet.TargetFailed, fleet.WhyReported, ""},
		{"crash", fleet.TargetRolledBack, fleet.WhyCompensated, ""},
		{"stuck", fleet.TargetFailed, fleet.WhyStuck, fleet.IncidentUpgradeFailed},
		{"silent", fleet.TargetFailed, fleet.WhySilent, ""},
		{"sick", fleet.TargetFailed, fleet.WhyUnhealthy, ""},
	} {
		t.Run(c.bad, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 4)
			w.hosts["agent-002"].bad = c.bad
			w.start("r", rolling(func(p *fleet.Plan) { p.Health.Wait = fleet.Duration(5 * time.Minute) }))
			r := w.until("r", time.Hour, over)
			if r.State != fleet.RolloutFailed || r.Counts.Succeeded != 3 || r.Counts.Bad() != 1 {
				t.Errorf("it ended %s with %+v", r.State, r.Counts)
			}
			if target := w.target("r", "agent-002"); target.State != c.state || target.Code != c.code || target.Error == "" || target.EndedAt == nil {
				t.Errorf("its target is %+v", target)
			}
			want := []fleet.IncidentKind{c.incident, fleet.IncidentRolloutStopped}
			if c.incident == "" {
				want = want[1:]
			}
			var got []fleet.IncidentKind
			for _, i := range w.reports {
				got = append(got, i.Category)
			}
			if !slices.Equal(got, want) {
				t.Errorf("incidents are %v, want %v", got, want)
			}
		})
	}
}

func TestAgentsThatAreAway(t *testing.T) {
	t.Parallel()
	t.Run("hold their offer, neither block the batch nor fail, and are upgraded when they are back", func(t *testing.T) {
		w := newWorld(t, 12)
		w.hosts["agent-003"].away = true
		w.pass(6 * time.Minute)
		w.start("r", rolling(func(p *fleet.Plan) { p.Strategy.BatchSize = 4 }))
		r := w.until("r", time.Hour, func(r fleet.Rollout) bool { return r.Counts.Succeeded == 11 && len(r.Waiting) > 0 })
		if r.State != fleet.RolloutRunning || r.Counts.Held != 1 || r.Waiting[0].Code != fleet.WhyAway {
			t.Fatalf("it is %s with %+v, waiting for %+v", r.State, r.Counts, r.Waiting)
		}
		w.hosts["agent-003"].away = false
		if r = w.until("r", time.Hour, over); r.State != fleet.RolloutCompleted || r.Counts.Succeeded != 12 {
			t.Errorf("it ended %s with %+v", r.State, r.Counts)
		}
	})
	t.Run("expire", func(t *testing.T) {
		w := newWorld(t, 3)
		w.hosts["agent-001"].away = true
		w.pass(6 * time.Minute)
		w.start("r", rolling(func(p *fleet.Plan) { p.Pace.OfferFor = fleet.Duration(20 * time.Minute) }))
		r := w.until("r", time.Hour, over)
		if r.State != fleet.RolloutCompleted || r.Counts.Expired != 1 || r.Counts.Succeeded != 2 {
			t.Errorf("it ended %s with %+v", r.State, r.Counts)
		}
		if target := w.target("r", "agent-001"); target.Code != fleet.WhyExpired || target.ActionID != "" {
			t.Errorf("its target is %+v", target)
		}
	})
	t.Run("give their offer back when they went away before they took it", func(t *testing.T) {
		w := newWorld(t, 3)
		w.start("r", rolling(nil))
		w.now = w.now.Add(time.Second)
		w.must(w.server.loop.Round(t.Context())) // make the offer
		w.hosts["agent-001"].away = true
		w.until("r", 20*time.Minute, func(r fleet.Rollout) bool { return r.Counts.Held == 1 })
		if a := w.agent("agent-001"); a.Upgrading() {
			t.Error("it is still marked")
		}
		target := w.target("r", "agent-001")
		if target.ExpiresAt == nil || target.Code != fleet.WhyAway {
			t.Errorf("its target is %+v", target)
		}
		h := w.hosts["agent-001"]
		h.away, h.slow = false, true
		w.until("r", time.Minute, func(r fleet.Rollout) bool { return r.Counts.Offered == 1 })
		w.pass(w.tick)
		if now := w.target("r", "agent-001"); now.ActionID == target.ActionID || h.action == nil || h.action.ID != now.ActionID {
			t.Errorf("it was given %+v, its target is %+v", h.action, now)
		}
		h.slow = false
		if r := w.until("r", time.Hour, over); r.State != fleet.RolloutCompleted || r.Counts.Succeeded != 3 || h.upgrades != 1 {
			t.Errorf("it ended %s with %+v after %d upgrades", r.State, r.Counts, h.upgrades)
		}
	})
	t.Run("leave the rollout when they are unenrolled", func(t *testing.T) {
		w := newWorld(t, 3)
		w.hosts["agent-001"].away = true
		w.pass(6 * time.Minute)
		w.start("r", rolling(nil))
		w.until("r", time.Hour, func(r fleet.Rollout) bool { return r.Counts.Succeeded == 2 })
		_, err := w.server.actions.Unenroll(t.Context(), action.UnenrollOrder{AgentIDs: []string{"agent-001"}, Revoke: true, Force: true, Actor: "ann"})
		w.must(err)
		r := w.until("r", time.Hour, over)
		if target := w.target("r", "agent-001"); r.State != fleet.RolloutCompleted || target.Code != fleet.WhyGone {
			t.Errorf("it ended %s, the target %+v", r.State, target)
		}
	})
}

func TestStaleTargetsAreRetriedWithinTheLimit(t *testing.T) {
	t.Parallel()
	for _, retries := range []int{0, 1} {
		w := newWorld(t, 3)
		h := w.hosts["agent-001"]
		h.slow = true
		w.start("r", rolling(func(p *fleet.Plan) { p.Failure.Retries = retries }))
		w.until("r", time.Minute, func(fleet.Rollout) bool { return h.state == agentapi.UpgradeDownloading })
		w.pass(10 * time.Second)
		h.away = true // in the middle of its download
		if retries == 0 {
			r := w.until("r", time.Hour, over)
			if target := w.target("r", "agent-001"); r.State != fleet.RolloutFailed || target.Code != fleet.WhyStale || target.Attempts != 1 {
				t.Errorf("without retries it ended %s, the target %+v", r.State, target)
			}
			continue
		}
		w.until("r", time.Hour, func(r fleet.Rollout) bool { return r.Counts.Held == 1 })
		h.away, h.slow, h.action, h.state, h.details = false, false, nil, "", nil // started again, without memory
		r := w.until("r", 2*time.Hour, over)
		if target := w.target("r", "agent-001"); r.State != fleet.RolloutCompleted || target.Attempts != 2 || h.upgrades != 1 {
			t.Errorf("with a retry it ended %s after %d upgrades, the target %+v", r.State, h.upgrades, target)
		}
	}
}

func TestRetryOfARolledBackHostTriesItAgain(t *testing.T) {
	t.Parallel()
	for _, agents := range [][]string{nil, {"agent-001"}} {
		w := newWorld(t, 4)
		h, late := w.hosts["agent-001"], w.hosts["agent-002"]
		h.bad, late.slow = "crash", true
		w.start("r", rolling(nil))
		w.until("r", time.Hour, func(r fleet.Rollout) bool { return r.Counts.RolledBack == 1 })
		w.pass(time.Minute)
		h.bad = ""
		w.change("r", func(r *fleet.Rollout) {
			r.Orders = append(r.Orders, fleet.Order{ID: "o", Kind: fleet.OrderRetry, Agents: agents})
		})
		w.until("r", time.Hour, func(r fleet.Rollout) bool { return r.Counts.Succeeded == 3 })
		late.slow = false
		r := w.until("r", time.Hour, over)
		if target := w.target("r", "agent-001"); r.State != fleet.RolloutCompleted || r.Counts.Succeeded != 4 || target.Attempts != 2 || h.upgrades != 2 || h.version != "1.1.0" {
			t.Errorf("after a retry of %v it ended %s with %+v, the target %+v", agents, r.State, r.Counts, target)
		}
	}
}

func TestRolloutWhoseTargetIsRefusedHasFailed(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T, batch int) (*world, fleet.Target) {
		w := newWorld(t, 3)
		w.start("r", rolling(func(p *fleet.Plan) { p.Strategy.BatchSize = batch }))
		var last fleet.Target
		w.must(w.store.Targets().Each(t.Context(), "r", func(t fleet.Target) { last = t }))
		_, err := store.UpdateAgent(t.Context(), w.store.Agents(), last.AgentID, func(a *fleet.Agent) bool {
			a.FailedVersions = []fleet.FailedVersion{{Version: "1.1.0", Reason: "it crashed", At: w.now}}
			return true
		})
		w.must(err)
		return w, last
	}
	t.Run("at its end", func(t *testing.T) {
		w, last := start(t, 1)
		r := w.until("r", time.Hour, over)
		if target := w.target("r", last.AgentID); r.State != fleet.RolloutFailed || r.Counts.Refused != 1 || r.Counts.Succeeded != 2 || target.Code != fleet.WhyFailedBefore {
			t.Errorf("it ended %s with %+v, the target %+v", r.State, r.Counts, target)
		}
		w.checkCounts(r)
		if i := w.reports[len(w.reports)-1]; i.Category != fleet.IncidentRolloutStopped || !strings.Contains(i.Text, "1 could not be given the version") {
			t.Errorf("the last incident is %+v", i)
		}
	})
	t.Run("unless it is retried", func(t *testing.T) {
		w, last := start(t, 3)
		for _, h := range w.hosts {
			h.slow = true
		}
		w.until("r", time.Hour, func(r fleet.Rollout) bool { return r.Counts.Refused == 1 })
		w.change("r", func(r *fleet.Rollout) { r.Orders = append(r.Orders, fleet.Order{ID: "o", Kind: fleet.OrderRetry}) })
		w.until("r", time.Hour, func(r fleet.Rollout) bool { return r.Counts.Offered == 3 })
		for _, h := range w.hosts {
			h.slow = false
		}
		if r := w.until("r", time.Hour, over); r.State != fleet.RolloutCompleted || r.Counts.Succeeded != 3 || w.hosts[last.AgentID].version != "1.1.0" {
			t.Errorf("it ended %s with %+v", r.State, r.Counts)
		}
	})
}

func TestHostThatBeginsDuringAWithdrawalEndsByItsVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.start("r", rolling(nil))
	late := w.hosts["agent-002"]
	late.slow = true
	w.until("r", time.Minute, func(fleet.Rollout) bool { return late.state == agentapi.UpgradeDownloading })
	// The offer is withdrawn, and the host continues before it receives that.
	w.change("r", func(r *fleet.Rollout) {
		r.State, r.Stop = fleet.RolloutPaused, &fleet.Stop{Kind: fleet.StopOperator, Text: "lunch", By: "ann", At: w.now}
		r.Orders = append(r.Orders, fleet.Order{ID: "o", Kind: fleet.OrderWithdraw})
	})
	w.must(w.server.loop.Round(t.Context()))
	if target := w.target("r", "agent-002"); target.State != fleet.TargetWithdrawn {
		t.Fatalf("its target is %+v", target)
	}
	late.slow = false
	late.enter(w, agentapi.UpgradeReplacing)
	w.pass(10 * time.Minute)
	target, a := w.target("r", "agent-002"), w.agent("agent-002")
	if target.State != fleet.TargetSucceeded || late.version != "1.1.0" || a.Upgrading() || a.UpgradedAt == nil || a.UpgradeStatus != fleet.UpgradeNone {
		t.Errorf("its target is %+v, the agent %+v", target, a)
	}
	if result, err := w.store.Results().Get(t.Context(), target.ActionID, "agent-002"); err != nil || result.Error != "" {
		t.Errorf("its result is %+v, %v", result, err)
	}
}

func TestOrders(t *testing.T) {
	t.Parallel()
	t.Run("skip what has not begun, and what failed", func(t *testing.T) {
		w := newWorld(t, 6)
		w.hosts["agent-000"].bad, w.hosts["agent-001"].slow = "download", true
		w.start("r", rolling(func(p *fleet.Plan) { p.Strategy.BatchSize = 6 }))
		w.until("r", 10*time.Minute, func(r fleet.Rollout) bool { return r.Counts.Failed == 1 && r.Counts.Succeeded == 4 })
		w.change("r", func(r *fleet.Rollout) {
			r.Orders = append(r.Orders, fleet.Order{ID: "o", Kind: fleet.OrderSkip, Agents: []string{"agent-000", "agent-001", "agent-004"}})
		})
		r := w.until("r", time.Hour, over)
		if r.State != fleet.RolloutCompleted || r.Counts.Skipped != 2 || r.Counts.Succeeded != 4 {
			t.Errorf("it ended %s with %+v", r.State, r.Counts)
		}
		w.pass(time.Minute)
		if a := w.agent("agent-001"); a.Upgrading() {
			t.Error("the skipped agent is still marked")
		}
	})
	t.Run("cancel lets what has begun end", func(t *testing.T) {
		w := newWorld(t, 20)
		w.start("r", rolling(nil))
		w.until("r", time.Minute, func(r fleet.Rollout) bool { return r.Counts.Verifying == 10 })
		w.change("r", func(r *fleet.Rollout) { r.State = fleet.RolloutCancelling })
		r := w.until("r", time.Hour, over)
		if r.State != fleet.RolloutCancelled || r.Counts.Succeeded != 10 || r.Counts.Cancelled != 10 {
			t.Errorf("it ended %s with %+v", r.State, r.Counts)
		}
		w.checkCounts(r)
	})
}

func TestRollbacks(t *testing.T) {
	t.Parallel()
	t.Run("of a rollout that is stopped", func(t *testing.T) { rollBack(t, false) })
	t.Run("of one that has ended", func(t *testing.T) { rollBack(t, true) })
}

func rollBack(t *testing.T, ended bool) {
	w := newWorld(t, 8)
	one := 1
	w.start("r", rolling(func(p *fleet.Plan) { p.Strategy.BatchSize, p.Failure.Count = 4, &one }))
	w.must(w.store.Targets().Each(t.Context(), "r", func(t fleet.Target) {
		if t.Place == 0 {
			w.hosts[t.AgentID].bad = "crash"
		}
	}))
	r := w.until("r", time.Hour, func(r fleet.Rollout) bool { return stopped(r) && r.Counts.InFlight() == 0 })
	if ended {
		w.change("r", func(r *fleet.Rollout) { r.State = fleet.RolloutCancelling })
		r = w.until("r", time.Hour, over)
	}
	var list []fleet.Target
	w.must(w.store.Targets().Each(t.Context(), "r", func(t fleet.Target) {
		if t.State == fleet.TargetSucceeded {
			list = append(list, t)
		}
	}))
	if len(list) == 0 {
		t.Fatal("nobody was upgraded")
	}
	var agents []fleet.Agent
	for _, target := range list {
		agents = append(agents, w.agent(target.AgentID))
	}
	catalog, err := w.server.actions.Catalog(t.Context())
	w.must(err)
	back := fleet.Rollout{
		ID: "r-rollback", State: fleet.RolloutRunning, RollbackOf: "r", Generation: 1, CreatedAt: w.now, StartedAt: &w.now, Policies: []string{"default"},
		Plan: fleet.Plan{Name: "back", Strategy: fleet.Strategy{Kind: fleet.AllAtOnce}, Health: r.Plan.Health},
	}
	pre, err := preview.ComputeRollback(&back, list, preview.Fleet{Agents: agents, Catalog: catalog}, w.now)
	w.must(err)
	w.must(w.store.PolicyLocks().Delete(t.Context(), "default"))
	w.adopt(&back, pre)
	w.change("r", func(r *fleet.Rollout) { r.RolledBackBy = "r-rollback" })
	if r := w.until("r-rollback", time.Hour, over); r.State != fleet.RolloutCompleted || r.Counts.Succeeded != len(list) {
		t.Errorf("the rollback ended %s with %+v", r.State, r.Counts)
	}
	r = w.until("r", time.Minute, func(r fleet.Rollout) bool { return r.State == fleet.RolloutRolledBack })
	if r.EndedAt == nil || r.Counts.Pending != 0 {
		t.Errorf("the rollout ended %s with %+v", r.State, r.Counts)
	}
	if ids := w.running("1.1.0"); len(ids) > 0 {
		t.Errorf("%v still run the version", ids)
	}
	if n := len(w.events(fleet.EventRollbackDone)); n != 1 {
		t.Errorf("%d events tell of the rollback's end", n)
	}
	if _, err := w.store.PolicyLocks().Get(t.Context(), "default"); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("the policy is still locked: %v", err)
	}
}

func TestLateJoiners(t *testing.T) {
	t.Parallel()
	for _, join := range []bool{true, false} {
		w := newWorld(t, 6)
		w.start("r", rolling(func(p *fleet.Plan) {
			p.Strategy.BatchSize = 3
			if p.Select = (fleet.Selector{Policies: []string{"default"}}); join {
				p.LateJoiners = fleet.LateJoin
			}
		}))
		w.pass(30 * time.Second)
		w.enrol("new-1")
		w.enrol("new-2")
		r := w.until("r", time.Hour, over)
		want := map[bool]int{true: 8, false: 6}[join]
		if r.State != fleet.RolloutCompleted || r.Counts.Succeeded != want {
			t.Errorf("joining %v: it ended %s with %+v", join, r.State, r.Counts)
		}
		if last := r.Batches[len(r.Batches)-1]; join && (last.Kind != fleet.BatchLate || last.Counts.Succeeded != 2) {
			t.Errorf("the last batch is %+v", last)
		}
		w.checkCounts(r)
	}
}

// An agent that enrolled and never checked in, such as one whose answer was lost, is waited for by
// no rollout. Once it checks in it is a late joiner like others.
func TestAgentThatNeverCheckedInHoldsNoRollout(t *testing.T) {
	t.Parallel()
	for _, comes := range []bool{false, true} {
		w := newWorld(t, 3)
		w.enrol("ghost")
		w.neverCheckedIn("ghost")
		w.start("r", rolling(func(p *fleet.Plan) {
			p.Strategy.BatchSize, p.LateJoiners = 1, fleet.LateJoin
			p.Select = fleet.Selector{Policies: []string{"default"}}
		}))
		w.pass(30 * time.Second)
		w.enrol("late")
		w.neverCheckedIn("late")
		w.pass(30 * time.Second)
		want := 3
		if comes {
			w.hosts["late"].away = false
			want++
		}
		r := w.until("r", time.Hour, over)
		if r.State != fleet.RolloutCompleted || r.Counts.Succeeded != want || r.Counts.Total != want {
			t.Errorf("coming %v: it ended %s with %+v, want %d succeeded", comes, r.State, r.Counts, want)
		}
	}
}

// neverCheckedIn makes a host one that enrolled and never checked in.
func (w *world) neverCheckedIn(id string) {
	w.t.Helper()
	w.hosts[id].away = true
	a, err := w.store.Agents().Get(w.t.Context(), id)
	w.must(err)
	w.must(w.store.Agents().Delete(w.t.Context(), id))
	a.Last, a.EnrolledAt = fleet.LastSeen{}, w.now.Add(-time.Hour)
	w.must(w.store.Agents().Create(w.t.Context(), a))
}

// A host that enrols again under its id is an agent that has never checked in.
func TestHeldTargetThatNeverCheckedInIsSkipped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	w.hosts["agent-002"].away = true
	w.start("r", rolling(func(p *fleet.Plan) { p.Pace.OfferFor = fleet.Duration(7 * 24 * time.Hour) }))
	w.neverCheckedIn("agent-002")
	r := w.until("r", time.Hour, over)
	if r.State != fleet.RolloutCompleted || r.Counts.Succeeded != 2 || r.Counts.Skipped != 1 {
		t.Errorf("it ended %s with %+v", r.State, r.Counts)
	}
	if got := w.target("r", "agent-002"); got.Code != fleet.WhyNeverSeen {
		t.Errorf("the target is %+v", got)
	}
}

func TestExposureBudgetDelaysARollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 20)
	w.must(w.store.ExposureRules().Create(t.Context(), fleet.ExposureRule{ID: fleet.ExposureRuleID, Enabled: true, Percent: 25, HealthyHours: 2}))
	w.start("r", rolling(nil))
	most := 0
	r := w.until("r", 30*time.Minute, func(r fleet.Rollout) bool {
		most = max(most, len(w.running("1.1.0")))
		return len(r.Waiting) > 0 && r.Waiting[0].Code == fleet.WhyExposure && r.Counts.Succeeded == 5
	})
	if most > 5 || r.Exposure == nil || r.Exposure.Limit != 5 || r.Exposure.Exposed != 5 {
		t.Errorf("%d agents had the version, the budget stands at %+v", most, r.Exposure)
	}
	w.tick = 30 * time.Second
	r = w.until("r", 3*time.Hour, over)
	if r.State != fleet.RolloutCompleted || r.Counts.Succeeded != 20 {
		t.Errorf("it ended %s with %+v", r.State, r.Counts)
	}
}

// Upgrades that are ordered without a rollout use up the budget of rollouts.
func TestOtherOrdersUseUpTheExposureBudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 20)
	w.must(w.store.ExposureRules().Create(t.Context(), fleet.ExposureRule{ID: fleet.ExposureRuleID, Enabled: true, Percent: 25, HealthyHours: 1000}))
	for _, id := range []string{"agent-001", "agent-002"} {
		w.hosts[id].away = true
		_, err := store.UpdateAgent(t.Context(), w.store.Agents(), id, func(a *fleet.Agent) bool {
			a.BeginUpgrade("ordered-by-hand", "1.1.0", w.now)
			return true
		})
		w.must(err)
	}
	w.start("r", rolling(nil))
	r := w.until("r", 30*time.Minute, func(r fleet.Rollout) bool {
		return len(r.Waiting) > 0 && slices.ContainsFunc(r.Waiting, func(wait fleet.Wait) bool { return wait.Code == fleet.WhyExposure }) && r.Counts.Succeeded == 3
	})
	w.pass(5 * time.Minute)
	if n := len(w.running("1.1.0")); n != 3 || r.Exposure == nil || r.Exposure.Exposed != 5 {
		t.Errorf("%d agents run the version besides the two that were ordered by hand, the budget stands at %+v", n, r.Exposure)
	}
}

func TestAbandonedUpgradesEndAsFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	h := w.hosts["agent-001"]
	h.slow = true
	w.start("r", rolling(nil))
	w.until("r", time.Minute, func(fleet.Rollout) bool { return h.state == agentapi.UpgradeDownloading })
	w.pass(10 * time.Second)
	h.away = true
	if r := w.until("r", time.Hour, over); r.State != fleet.RolloutFailed {
		t.Fatalf("it ended %s", r.State)
	}
	w.pass(20 * time.Minute)
	if a := w.agent("agent-001"); !a.Upgrading() {
		t.Fatal("it was given up although it may come back")
	}
	w.pass(20 * time.Minute)
	if a := w.agent("agent-001"); a.Upgrading() || a.UpgradeStatus != fleet.UpgradeFailed {
		t.Errorf("it is still being upgraded: %s", a.UpgradeStatus)
	}
}
