package group_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/fleettest"
	"github.com/muster-fleet/muster/server/rollout/group"
	"github.com/muster-fleet/muster/server/store"
)

var kim = rollout.Request{Actor: "kim", Why: "release day"}

// world is a small fleet with the service that executes groups.
type world struct {
	*fleettest.Fleet
	t        *testing.T
	db       store.Store
	groups   *group.Service
	rollouts *rollout.Service
}

func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	w := &world{Fleet: fleettest.New(t, []string{"1.0.0", "1.1.0"}, names...), t: t}
	w.db = w.DB
	w.serve(w.db, "first")
	return w
}

// serve starts the process that executes groups, on a store.
func (w *world) serve(db store.Store, name string) {
	w.rollouts = w.Service(db)
	w.groups = group.New(group.Config{
		Store: db, Rollouts: w.rollouts, Lease: w.Lease(name), Events: w.Events(), Log: slog.New(slog.DiscardHandler), Now: w.Clock,
	})
}

func (w *world) must(err error) {
	w.t.Helper()
	w.Must(err)
}

// turn lets ten seconds pass. The error is that of the groups' loop.
func (w *world) turn() error {
	w.t.Helper()
	w.Tick()
	return w.groups.Round(w.t.Context())
}

func (w *world) group(id string) fleet.RolloutGroup {
	w.t.Helper()
	g, err := w.db.RolloutGroups().Get(w.t.Context(), id)
	w.must(err)
	return g
}

// until lets time pass until the condition holds.
func (w *world) until(id string, ok func(fleet.RolloutGroup) bool) fleet.RolloutGroup {
	w.t.Helper()
	for range 1_000 {
		w.must(w.turn())
		if g := w.group(id); ok(g) {
			return g
		}
	}
	st, err := w.groups.Status(w.t.Context(), id)
	w.t.Fatalf("it stays %s, stopped by %+v, waiting: %s, %v: %+v", st.State, st.Stop, st.Waiting, err, st.Progress)
	return fleet.RolloutGroup{}
}

func over(g fleet.RolloutGroup) bool { return g.State.Ended() }

func paused(g fleet.RolloutGroup) bool { return g.State == fleet.GroupPaused }

// dbThenApp returns a plan for the agents of two policies, one after the other.
func dbThenApp(policy fleet.FailurePolicy) fleet.GroupPlan {
	one := 1
	member := func(name string) fleet.GroupMemberPlan {
		return fleet.GroupMemberPlan{Name: name, Plan: fleet.Plan{
			Select: fleet.Selector{Policies: []string{name}}, Strategy: fleet.Strategy{Kind: fleet.Rolling, BatchSize: 1},
			Failure: fleet.FailureRule{Count: &one}, Health: fleet.HealthRule{Wait: fleet.Duration(20 * time.Second)},
		}}
	}
	return fleet.GroupPlan{
		Name: "spring", FailurePolicy: policy, DesiredVersions: map[string]string{"db": "1.1.0", "app": "1.1.0"},
		Members: []fleet.GroupMemberPlan{member("db"), member("app")},
	}
}

// start starts a group as previewed.
func (w *world) start(p fleet.GroupPlan) fleet.RolloutGroup {
	w.t.Helper()
	g, err := w.groups.Create(w.t.Context(), p, kim)
	w.must(err)
	pre, err := w.groups.Preview(w.t.Context(), g.ID)
	w.must(err)
	g, err = w.groups.Start(w.t.Context(), g.ID, pre.Hash, false, kim)
	w.must(err)
	return g
}

func (w *world) members(g fleet.RolloutGroup) string {
	var words []string
	for _, m := range g.Members {
		words = append(words, m.Name+"="+string(m.State))
	}
	return strings.Join(words, " ")
}

// events returns the types of the group's events.
func (w *world) events(id string) []string {
	w.t.Helper()
	list, err := w.db.Events().After(w.t.Context(), 0, 10_000)
	w.must(err)
	var types []string
	for _, e := range list {
		if e.Subject == id {
			types = append(types, e.Type)
		}
	}
	return types
}

func (w *world) wantError(err error, kind fleet.Kind, code, field, text string) {
	w.t.Helper()
	var e *fleet.Error
	if !errors.As(err, &e) || e.Kind != kind || e.Code != code || e.Field != field || !strings.Contains(e.Message, text) {
		w.t.Errorf("error is %+v, want %s %s about %s that says %q", err, kind, code, field, text)
	}
}
