package incident_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/incident"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/storetest"
	"github.com/muster-fleet/muster/testing/kit/require"
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
		storetest.Update(t, w.store.Rollouts(), r)
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

// hosts creates n agents on a version, which report health, and their failed targets in a rollout to 1.1.0.
func (w *world) hosts(t *testing.T, rollout string, n int, version string, code fleet.ReasonCode) (ids []string) {
	t.Helper()
	ctx := t.Context()
	var targets []fleet.Target
	for k := range n {
		id := fmt.Sprintf("%s-%05d", rollout, k)
		a := fleet.Agent{ID: id, Type: "PERMANENT", Active: true, Version: version, PolicyID: "p", PolicyRev: 1, AccessKeyID: "key-" + id, EnrolledAt: w.now, HealthySince: &w.now, Tags: []string{}}
		if err := w.store.Agents().Create(ctx, a); err != nil {
			t.Fatal(err)
		}
		targets = append(targets, fleet.Target{RolloutID: rollout, AgentID: id, Place: k, From: "1.0.0", To: "1.1.0", State: fleet.TargetFailed, Code: code})
		ids = append(ids, id)
	}
	if err := w.store.Targets().Create(ctx, targets); err != nil {
		t.Fatal(err)
	}
	return ids
}

func (w *world) upgrade(t *testing.T, id, version string) {
	t.Helper()
	if _, err := store.UpdateAgent(t.Context(), w.store.Agents(), id, func(a *fleet.Agent) bool { a.Version = version; return true }); err != nil {
		t.Fatal(err)
	}
}

// A failed rollout whose hosts are repaired one by one needs nobody any more, however many there are.
func TestIncidentOfFailedRolloutEndsWhenItsHostsAreRepaired(t *testing.T) {
	w := newWorld(t)
	if err := w.store.Rollouts().Create(t.Context(), fleet.Rollout{ID: "r", State: fleet.RolloutFailed}); err != nil {
		t.Fatal(err)
	}
	ids := w.hosts(t, "r", 1_200, "1.1.0", fleet.WhyStale)
	w.upgrade(t, ids[0], "1.0.0")
	w.upgrade(t, ids[1_150], "1.0.0")
	w.open(t, fleet.Incident{Category: fleet.IncidentRolloutStopped, RolloutID: "r", Title: "It failed"})
	id := incident.ID(fleet.IncidentRolloutStopped, "r", "")
	for _, host := range []int{0, 1_150} {
		w.rounds(t, 3)
		if i := w.get(t, id); i.State != fleet.IncidentOpen {
			t.Fatalf("host %d does not run the version, and the incident is %s: %+v", host, i.State, i.Resolved)
		}
		w.upgrade(t, ids[host], "1.1.0")
	}
	w.rounds(t, 3)
	if i := w.get(t, id); i.State != fleet.IncidentResolved || i.Resolved.By != incident.System || !strings.Contains(i.Resolved.Why, "were repaired") {
		t.Errorf("all hosts run the version, and the incident is %s: %+v", i.State, i.Resolved)
	}
}

// The incident that stands for more agents than have one of their own ends with their trouble.
func TestIncidentOfManyHostsEndsWithTheirTrouble(t *testing.T) {
	require.Time(t, "opens more incidents than are listed apart")
	w := newWorld(t)
	if err := w.store.Rollouts().Create(t.Context(), fleet.Rollout{ID: "r", State: fleet.RolloutFailed}); err != nil {
		t.Fatal(err)
	}
	ids := w.hosts(t, "r", incident.MaxPerRollout+1, "1.1.0", fleet.WhyStalled)
	unwell := func(id string, is bool) {
		t.Helper()
		if _, err := store.UpdateAgent(t.Context(), w.store.Agents(), id, func(a *fleet.Agent) bool {
			if a.HealthySince = nil; !is {
				a.HealthySince = &w.now
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
	}
	last := ids[len(ids)-1]
	unwell(last, true)
	for _, id := range ids {
		w.open(t, fleet.Incident{Category: fleet.IncidentStalled, RolloutID: "r", AgentID: id})
	}
	many := incident.ID(fleet.IncidentStalled, "r", "")
	w.rounds(t, 4)
	open, _, err := w.List(t.Context(), fleet.IncidentOpen, 0, 0)
	if err != nil || len(open) != 1 || open[0].ID != many {
		t.Fatalf("one host is unwell, and %d incidents are open, %v", len(open), err)
	}
	unwell(last, false)
	w.rounds(t, 3)
	if i := w.get(t, many); i.State != fleet.IncidentResolved || !strings.Contains(i.Resolved.Why, "No host of the rollout") {
		t.Errorf("all hosts are well, and the incident is %s: %+v", i.State, i.Resolved)
	}
}
