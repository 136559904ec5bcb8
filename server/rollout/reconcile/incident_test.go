package reconcile_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/preview"
)

func TestRolloutThatStopsOpensAnIncident(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 6)
	for _, id := range w.order {
		w.hosts[id].bad = "crash"
	}
	w.start("r", rolling(func(p *fleet.Plan) { p.Strategy.BatchSize, p.Failure.Count = 2, new(1) }))
	w.until("r", time.Hour, func(r fleet.Rollout) bool { return r.State == fleet.RolloutPaused || r.State.Ended() })
	w.pass(time.Minute)
	if got := w.reports; len(got) != 1 || got[0].Category != fleet.IncidentRolloutStopped || got[0].RolloutID != "r" ||
		!strings.Contains(got[0].Title, "is paused by itself") || !strings.Contains(got[0].Text, "failed") {
		t.Fatalf("incidents are %+v", got)
	}
}

func TestOperatorsPauseIsNoIncident(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 6)
	w.start("r", rolling(func(p *fleet.Plan) { p.Strategy.BatchSize = 2 }))
	w.change("r", func(r *fleet.Rollout) {
		r.State, r.RunningSince = fleet.RolloutPaused, nil
		r.Stop = &fleet.Stop{Kind: fleet.StopOperator, Text: "ann paused it", By: "ann", At: w.now}
	})
	w.pass(10 * time.Minute)
	if r := w.rollout("r"); r.State != fleet.RolloutPaused || len(w.reports) > 0 {
		t.Errorf("the rollout is %s, incidents are %+v", r.State, w.reports)
	}
}

// A host that puts the newer version back has not been rolled back.
func TestRollbackThatItsHostUndoesIsAnIncident(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.start("r", rolling(nil))
	r := w.until("r", time.Hour, over)
	var targets []fleet.Target
	var agents []fleet.Agent
	w.must(w.store.Targets().Each(t.Context(), "r", func(t fleet.Target) { targets = append(targets, t) }))
	for _, id := range w.order {
		agents = append(agents, w.agent(id))
	}
	catalog, err := w.server.actions.Catalog(t.Context())
	w.must(err)
	back := fleet.Rollout{
		ID: "r-rollback", State: fleet.RolloutRunning, RollbackOf: "r", Generation: 1, CreatedAt: w.now, StartedAt: &w.now, Policies: []string{"default"},
		Plan: fleet.Plan{Name: "back", Strategy: fleet.Strategy{Kind: fleet.AllAtOnce, ForceContinue: true}, Health: r.Plan.Health},
	}
	for i := range targets {
		targets[i].To, agents[i].LastHealthyVersion = "1.1.0", "1.0.0"
	}
	pre, err := preview.ComputeRollback(&back, targets, preview.Fleet{Agents: agents, Catalog: catalog}, w.now)
	w.must(err)
	w.adopt(&back, pre)
	w.hosts[w.order[0]].bad = "crash"
	if b := w.until("r-rollback", time.Hour, over); b.Counts.RolledBack != 1 || b.Counts.Succeeded != 1 {
		t.Fatalf("the rollback ended %s with %+v", b.State, b.Counts)
	}
	i := slices.IndexFunc(w.reports, func(i fleet.Incident) bool { return i.Category == fleet.IncidentRollbackFailed })
	if i < 0 || w.reports[i].AgentID != w.order[0] || !strings.Contains(w.reports[i].Title, "was rolled back to 1.0.0, and put 1.1.0 back") {
		t.Errorf("incidents are %+v", w.reports)
	}
}
