package reconcile_test

import (
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// The hosts stage the version, and none is upgraded before all that can have. One that is away
// stages it when it is back.
func TestVersionIsStagedBeforeTheFirstUpgrade(t *testing.T) {
	w := newWorld(t, 4)
	for _, id := range w.order[:3] { // the last one cannot stage versions
		w.hosts[id].staged = []string{}
	}
	away, failing := w.hosts[w.order[1]], w.hosts[w.order[2]]
	failing.failsStage = true
	for _, id := range w.order {
		w.checkin(w.hosts[id])
	}
	w.server.flush(t.Context())
	away.away = true
	w.now = w.now.Add(fleet.OfflineAfter)
	w.start("r", rolling(func(p *fleet.Plan) { p.Stage = fleet.StageAhead }))
	var asked bool
	r := w.until("r", time.Hour, func(r fleet.Rollout) bool {
		if s := r.Staging; s != nil && s.EndedAt == nil {
			asked = true
			if r.Counts.Offered+r.Counts.Upgrading+r.Counts.Verifying > 0 {
				t.Errorf("while it stages the counts are %+v", r.Counts)
			}
		}
		return r.Counts.Succeeded == 3
	})
	if !asked || r.Staging == nil || r.Staging.EndedAt == nil || r.Staging.Answered != 3 || r.Counts.Held != 1 {
		t.Errorf("staging is %+v, the counts are %+v", r.Staging, r.Counts)
	}
	away.away = false
	r = w.until("r", time.Hour, over)
	if r.State != fleet.RolloutCompleted || len(away.staged) != 1 || len(failing.staged) != 0 {
		t.Errorf("it is %s; staged are %v and %v", r.State, away.staged, failing.staged)
	}
	stages, err := w.store.Actions().List(t.Context(), store.ActionQuery{Except: []agentapi.ActionType{agentapi.ActionUpgrade, agentapi.ActionCancel}, Limit: 10})
	w.must(err)
	if len(stages) != 1 || len(stages[0].Agents) != 3 || stages[0].CancelledAt != nil {
		t.Errorf("the actions are %+v", stages)
	}
}

// What was not staged when a rollout is cancelled is not staged afterwards.
func TestCancelledRolloutStagesNothingMore(t *testing.T) {
	w := newWorld(t, 2)
	for _, id := range w.order {
		w.hosts[id].staged = []string{}
		w.checkin(w.hosts[id])
	}
	w.server.flush(t.Context())
	away := w.hosts[w.order[1]]
	away.away = true
	w.start("r", rolling(func(p *fleet.Plan) { p.Stage = fleet.StageAhead }))
	w.until("r", time.Hour, func(r fleet.Rollout) bool { return r.Staging != nil })
	w.must(w.turn())
	w.change("r", func(r *fleet.Rollout) { r.State = fleet.RolloutCancelling })
	w.until("r", time.Hour, over)
	away.away = false
	w.pass(time.Hour)
	if len(away.staged) > 0 {
		t.Errorf("staged is %v", away.staged)
	}
}

// A package that was withdrawn after the start keeps the rollout from asking, and not from going on:
// each target then says why it is not upgraded.
func TestRolloutGoesOnThatCannotAskItsTargets(t *testing.T) {
	w := newWorld(t, 2)
	for _, id := range w.order {
		w.hosts[id].staged = []string{}
		w.checkin(w.hosts[id])
	}
	w.server.flush(t.Context())
	w.start("r", rolling(func(p *fleet.Plan) { p.Stage = fleet.StageAhead }))
	w.must(w.store.Packages().Delete(t.Context(), "muster-agent-1.1.0-linux-amd64.tar.gz"))
	r := w.until("r", time.Hour, over)
	if r.Staging == nil || r.Staging.EndedAt == nil || r.Counts.Skipped != 2 {
		t.Errorf("it is %s with %+v, staging %+v", r.State, r.Counts, r.Staging)
	}
	if x := w.target("r", w.order[0]); x.Code != fleet.WhyRefused || x.Error == "" {
		t.Errorf("a target is %s: %s %s", x.State, x.Code, x.Error)
	}
}
