package incident_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/incident"
	"github.com/muster-fleet/muster/server/store"
)

func (w *world) rounds(t *testing.T, n int) {
	t.Helper()
	for range n {
		w.now = w.now.Add(time.Minute)
		if err := w.CloseOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Several incidents are resolved at once, and each says what was done with it. An empty selection does
// not mean all.
func TestIncidentsAreResolvedInBulk(t *testing.T) {
	w := newWorld(t)
	for _, i := range []fleet.Incident{
		{Category: fleet.IncidentStalled, RolloutID: "r", AgentID: "a"},
		{Category: fleet.IncidentStalled, RolloutID: "r", AgentID: "b"},
		{Category: fleet.IncidentUpgradeFailed, RolloutID: "r", AgentID: "c"},
		{Category: fleet.IncidentStalled, RolloutID: "q", AgentID: "c"},
	} {
		w.open(t, i)
	}
	results := func(sel incident.Selection) string {
		t.Helper()
		out, err := w.ResolveMany(t.Context(), sel, "ann", "done")
		if err != nil {
			return err.Error()
		}
		var said []string
		for _, o := range out {
			said = append(said, o.ID+" "+o.Result)
		}
		slices.Sort(said)
		return strings.Join(said, ", ")
	}
	for _, c := range []struct {
		sel  incident.Selection
		want string
	}{
		{incident.Selection{}, "body.ids]: is missing"},
		{incident.Selection{IDs: []string{"x"}, All: true}, "contradicts"},
		{incident.Selection{All: true, AgentID: "a"}, "contradicts"},
		{incident.Selection{Category: "bad"}, "body.category"},
		{incident.Selection{IDs: []string{"upgrade_stalled:r:a", "none"}}, "none not_found, upgrade_stalled:r:a resolved"},
		{incident.Selection{IDs: []string{"upgrade_stalled:r:a"}}, "upgrade_stalled:r:a was_resolved"},
		{incident.Selection{Category: fleet.IncidentStalled, RolloutID: "r"}, "upgrade_stalled:r:b resolved"},
		{incident.Selection{AgentID: "c"}, "upgrade_failed:r:c resolved, upgrade_stalled:q:c resolved"},
		{incident.Selection{All: true}, ""},
	} {
		if got := results(c.sel); got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%+v: %q, want %q", c.sel, got, c.want)
		}
	}
	if i := w.get(t, "upgrade_stalled:r:b"); i.Resolved == nil || i.Resolved.By != "ann" || i.Resolved.Why != "done" {
		t.Errorf("it was resolved by %+v", i.Resolved)
	}
}

// The server resolves an incident whose cause is gone, says so once, and opens it again with the cause.
func TestServerResolvesIncidentWhoseCauseIsGone(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	set := func(state fleet.RolloutState) {
		t.Helper()
		r, err := w.store.Rollouts().Get(ctx, "r")
		must(err)
		r.State = state
		must(w.store.Rollouts().Update(ctx, r))
	}
	must(w.store.Rollouts().Create(ctx, fleet.Rollout{ID: "r", State: fleet.RolloutPaused}))
	stopped := fleet.Incident{Category: fleet.IncidentRolloutStopped, RolloutID: "r", Title: "It stopped"}
	id := incident.ID(fleet.IncidentRolloutStopped, "r", "")
	w.open(t, stopped)
	w.rounds(t, 3)
	if i := w.get(t, id); i.State != fleet.IncidentOpen {
		t.Fatalf("the rollout is paused, and the incident is %s", i.State)
	}
	set(fleet.RolloutRunning)
	w.rounds(t, 1)
	// It stops again while the first round is not confirmed: the incident is written before the rollout.
	stopped.Text = "again"
	w.open(t, stopped)
	w.rounds(t, 1)
	if i := w.get(t, id); i.State != fleet.IncidentOpen {
		t.Fatal("it was resolved between the incident and the state of its rollout")
	}
	w.rounds(t, 3)
	i := w.get(t, id)
	if i.State != fleet.IncidentResolved || i.Resolved == nil || i.Resolved.By != incident.System || i.Resolved.Why != "The rollout runs again." || i.Resolved.At.IsZero() {
		t.Fatalf("it is %s: %+v", i.State, i.Resolved)
	}
	entries, _, err := w.store.Audit().List(ctx, store.AuditQuery{Verb: "incident.resolve", Limit: 9})
	must(err)
	if len(entries) != 1 || entries[0].Actor != incident.System || !strings.Contains(entries[0].Why, "runs again") {
		t.Errorf("the audit trail has %+v", entries)
	}
	set(fleet.RolloutPaused)
	w.open(t, stopped)
	w.rounds(t, 3)
	if i := w.get(t, id); i.State != fleet.IncidentOpen || i.Count != 2 {
		t.Errorf("a fresh stop is %s, the %d. time", i.State, i.Count)
	}
}
