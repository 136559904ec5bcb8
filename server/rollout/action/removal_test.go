package action_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestRemovalLimit(t *testing.T) {
	for _, c := range []struct {
		n, earlier, configured, size int
		refused                      bool
	}{
		{n: 25, size: 25},
		{n: 26, size: 26, refused: true},
		{n: 1, earlier: 25, size: 25, refused: true},
		{n: 0, earlier: 25, size: 25}, // repeated, or of hosts that nobody misses
		{n: 100, size: 1000},
		{n: 101, size: 1000, refused: true},
		{n: 60, earlier: 41, size: 1000, refused: true},
		{n: 10_000, size: 100_000},
		{n: 3, configured: 3, size: 100_000},
		{n: 4, configured: 3, size: 100_000, refused: true},
		{n: 5000, configured: 5000, size: 10},
	} {
		err := action.CheckRemoved(c.n, c.earlier, action.RemovalLimit(c.configured, c.size))
		if (err != nil) != c.refused {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// seen makes agents that have checked in, that long ago.
func (w *world) seen(ago time.Duration, prefix string, n int) (ids []string) {
	w.t.Helper()
	for i := range n {
		id := fmt.Sprintf("%s-%02d", prefix, i)
		w.enrol(id, "9.3.0")
		w.must(w.store.Agents().Touch(w.t.Context(), []fleet.Touch{{AgentID: id, At: w.now.Add(-ago), Status: "online"}}))
		ids = append(ids, id)
	}
	return ids
}

// Every order that takes agents away counts towards the same limit, whichever way it does so.
func TestOrdersBeyondTheRemovalLimitAreRefused(t *testing.T) {
	w := newWorld(t)
	w.must(w.store.Policies().Create(t.Context(), fleet.Policy{ID: "lab", Name: "lab"}))
	ids := w.seen(time.Minute, "web", 16)
	w.service.RemovalsPerHour = 5
	mean := action.Removal{OverrideLimit: true, Why: "the site is closed"}
	orders := map[string]func(ids []string, r action.Removal) (fleet.Action, error){
		"unenrol": func(ids []string, r action.Removal) (fleet.Action, error) {
			return w.service.Unenroll(t.Context(), action.UnenrollOrder{AgentIDs: ids, Removal: r, Actor: "ann"})
		},
		"revoke": func(ids []string, r action.Removal) (fleet.Action, error) {
			return w.service.Unenroll(t.Context(), action.UnenrollOrder{AgentIDs: ids, Revoke: true, Removal: r, Actor: "ann"})
		},
		"reassign": func(ids []string, r action.Removal) (fleet.Action, error) {
			return w.service.Reassign(t.Context(), action.ReassignOrder{AgentIDs: ids, PolicyID: "lab", Removal: r, Actor: "ann"})
		},
		"migrate": func(ids []string, r action.Removal) (fleet.Action, error) {
			data := event.Data(agentapi.MigrateData{TargetURI: "https://elsewhere:8220", EnrollmentToken: "t"})
			return w.service.Create(t.Context(), action.Order{Type: agentapi.ActionMigrate, Data: data, AgentIDs: ids, Removal: r, Actor: "ann"})
		},
	}
	for name, order := range orders {
		_, err := order(ids[:6], action.Removal{})
		w.wantKind(err, fleet.Conflict, "would take away 6 agents, and at most 5")
		if !strings.Contains(err.Error(), "--override-limit --why REASON") {
			t.Errorf("%s: the error offers no next step: %v", name, err)
		}
		_, err = order(ids[:6], action.Removal{OverrideLimit: true, Why: " "})
		w.wantKind(err, fleet.Invalid, "body.why")
	}
	if list := w.actions(); len(list) != 0 {
		t.Fatalf("refused orders have made %d actions", len(list))
	}

	_, err := orders["reassign"](ids[:3], action.Removal{})
	w.must(err)
	for _, order := range orders {
		_, err := order(ids[3:6], action.Removal{})
		w.wantKind(err, fleet.Conflict, "3 agents, after 3 in the last hour")
	}
	w.must(w.service.EachUnenrollVerdict(t.Context(), action.UnenrollOrder{AgentIDs: ids[:5]}, func(action.Verdict) {})) // 3 of them count already
	for _, id := range ids[8:16] {                                                                                       // one by one
		w.unenroll(action.UnenrollOrder{AgentIDs: []string{id}, Single: true, Actor: "ann"})
	}
	a, err := orders["revoke"](ids[:8], mean)
	w.must(err)
	entries, _, err := w.store.Audit().List(t.Context(), store.AuditQuery{Limit: 100})
	w.must(err)
	said := false
	for _, e := range entries {
		said = said || e.Subject == a.ID && e.Why == mean.Why && strings.Contains(e.Text, "in spite of the removal limit")
	}
	if !said {
		t.Errorf("the audit trail has %+v", entries)
	}

	w.now = w.now.Add(time.Hour + time.Second)
	more := w.seen(time.Minute, "db", 5)
	_, err = orders["unenrol"](more, action.Removal{})
	w.must(err)
}

// Clean-ups of hosts that have been away for weeks neither need a reason nor use the limit up.
func TestAgentsThatAreLongGoneDoNotCountAsRemoved(t *testing.T) {
	w := newWorld(t)
	w.service.RemovalsPerHour = 5
	w.unenroll(revoke(w.seen(15*24*time.Hour, "old", 9)...))
	there := w.seen(time.Hour, "web", 6)
	_, err := w.service.Unenroll(t.Context(), revoke(there...))
	w.wantKind(err, fleet.Conflict, "would take away 6 agents, and at most 5")
	w.unenroll(revoke(there[:5]...))
}

func (w *world) actions() []fleet.Action {
	w.t.Helper()
	list, err := w.store.Actions().List(w.t.Context(), store.ActionQuery{Limit: 100})
	w.must(err)
	return list
}
