package retention_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/node/retention"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/lease"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const day = 24 * time.Hour

type world struct {
	t     *testing.T
	store store.Store
	now   time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, store: sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db")), now: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)}
}

func (w *world) clock() time.Time { return w.now }

// server returns one of several servers that share the store.
func (w *world) server(name string, limits map[*store.Info]store.Limits) *retention.Service {
	return &retention.Service{
		Store: w.store, Lease: &lease.Owner{Leases: w.store.Leases(), Name: name, Now: w.clock}, Limits: limits,
		Log: slog.New(slog.DiscardHandler), Now: w.clock,
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// rounds runs several rounds, in each of which the lease is renewed.
func (w *world) rounds(s *retention.Service, n int) {
	w.t.Helper()
	for range n {
		w.must(s.Round(w.t.Context()))
		w.now = w.now.Add(time.Second)
	}
}

// ago returns the time some days before now.
func (w *world) ago(days int) time.Time { return w.now.Add(-time.Duration(days) * day) }

// order stores an action that was created days ago and expires days after that.
func (w *world) order(id string, created, expiresAfter int) {
	w.t.Helper()
	at := w.ago(created)
	end := at.Add(time.Duration(expiresAfter) * day)
	_, err := w.store.Actions().Create(w.t.Context(), fleet.Action{
		ID: id, Type: agentapi.ActionUpgrade, Data: []byte(`{"version":"1.1.0"}`), Agents: []string{"a"}, Actioned: 1, CreatedAt: at, Expiration: &end,
	})
	w.must(err)
	_, err = w.store.Results().Put(w.t.Context(), []fleet.Result{{ActionID: id, AgentID: "a", Timestamp: at}})
	w.must(err)
}

func (w *world) left() []string {
	w.t.Helper()
	list, err := w.store.Actions().After(w.t.Context(), 0, 1000)
	w.must(err)
	ids := make([]string, len(list))
	for i, a := range list {
		ids[i] = a.ID
	}
	return ids
}

func (w *world) want(what string, got []string, want ...string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Errorf("%s left are %v, want %v", what, got, want)
	}
}

func roomy() map[*store.Info]store.Limits {
	all := map[*store.Info]store.Limits{}
	for _, kind := range store.Kinds() {
		all[kind] = store.Limits{Age: 100 * day, Count: 1000}
	}
	return all
}

func TestOldActionsAreRemovedUnlessTheyAreOpen(t *testing.T) {
	w := newWorld(t)
	w.must(w.store.Rollouts().Create(t.Context(), fleet.Rollout{ID: "spring", State: fleet.RolloutPaused}))
	started := w.ago(200)
	w.must(w.store.Agents().Create(t.Context(), fleet.Agent{
		ID: "a", AccessKeyID: "k", Active: true, Upgrade: fleet.Upgrade{UpgradeStartedAt: &started, UpgradeActionID: "in-progress", Undoes: &fleet.UndoneUpgrade{ActionID: "undone"}},
	}))
	w.order("old", 200, 30)
	w.order("undelivered", 200, 365) // scheduled a year ahead
	w.order("in-progress", 200, 30)  // an agent still carries it out
	w.order("undone", 200, 30)       // an agent goes back from it
	w.order("spring-g1-7", 200, 30)  // an offer of a paused rollout
	w.order("autumn-g1-7", 200, 30)  // one of a rollout that has ended
	w.order("cancel-old", 200, 30)   //
	w.order("recent", 50, 30)        //
	w.order("newest", 150, 30)       // LastSeq is its number
	last, err := w.store.Actions().LastSeq(t.Context())
	w.must(err)
	w.rounds(w.server("one", roomy()), 3)
	w.want("actions", w.left(), "undelivered", "in-progress", "undone", "spring-g1-7", "recent", "newest")
	if _, err := w.store.Results().Get(t.Context(), "old", "a"); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("the result of a removed action is there: %v", err)
	}
	if after, err := w.store.Actions().LastSeq(t.Context()); err != nil || after != last {
		t.Errorf("LastSeq went from %d to %d: %v", last, after, err)
	}
}

func TestActionsAreBoundedInNumber(t *testing.T) {
	w := newWorld(t)
	for i := range 60 {
		w.order(fmt.Sprintf("a%02d", i), 60-i, 1)
	}
	p := roomy()
	p[store.KindActions] = store.Limits{Age: 100 * day, Count: 5}
	s := w.server("one", p)
	w.rounds(s, 1)
	if n := len(w.left()); n != 40 {
		t.Errorf("one round left %d of 60 actions, want 40: it must be bounded", n)
	}
	w.rounds(s, 5)
	w.want("actions", w.left(), "a55", "a56", "a57", "a58", "a59")
}

// Open actions must not hold up those after them.
func TestOpenActionsDoNotHoldUpOthers(t *testing.T) {
	w := newWorld(t)
	for i := range 45 {
		w.order(fmt.Sprintf("open%02d", i), 200, 365)
	}
	w.order("old", 200, 30)
	w.order("recent", 1, 30)
	w.rounds(w.server("one", roomy()), 4)
	if left := w.left(); slices.Contains(left, "old") || len(left) != 46 {
		t.Errorf("%d actions are left, among them the old one: %t", len(left), slices.Contains(left, "old"))
	}
}

func TestOldRolloutsAreRemovedWithTheirTargetsAndPreviews(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	rollout := func(id string, state fleet.RolloutState, days int, change ...func(*fleet.Rollout)) {
		at := w.ago(days)
		r := fleet.Rollout{ID: id, State: state, CreatedAt: at, Previews: []string{"hash-" + id}}
		if state != fleet.RolloutDraft && !state.Active() {
			r.EndedAt = &at
		}
		for _, f := range change {
			f(&r)
		}
		w.must(w.store.Rollouts().Create(ctx, r))
		w.must(w.store.Targets().Create(ctx, []fleet.Target{{RolloutID: id, AgentID: "a"}}))
		w.must(w.store.Previews().Create(ctx, fleet.Preview{Hash: "hash-" + id, RolloutID: id}))
	}
	rollout("old", fleet.RolloutCompleted, 300)
	rollout("running", fleet.RolloutRunning, 300)
	rollout("stuck", fleet.RolloutPaused, 300)
	rollout("forgotten", fleet.RolloutDraft, 300)
	rollout("interrupted", fleet.RolloutDraft, 300, func(r *fleet.Rollout) { r.Pin = &fleet.Pin{Hash: "x"} })
	rollout("undone", fleet.RolloutFailed, 300, func(r *fleet.Rollout) { r.RolledBackBy = "running" })
	rollout("recent", fleet.RolloutCancelled, 10)
	w.must(w.store.RolloutGroups().Create(ctx, fleet.RolloutGroup{ID: "active", State: fleet.GroupPaused}))
	w.must(w.store.RolloutGroups().Create(ctx, fleet.RolloutGroup{ID: "over", State: fleet.GroupCompleted, CreatedAt: w.ago(1)}))
	for _, group := range []string{"active", "over", "gone"} {
		rollout("of "+group, fleet.RolloutCompleted, 300, func(r *fleet.Rollout) { r.Group = group })
	}
	w.rounds(w.server("one", roomy()), 8)
	list, _, err := w.store.Rollouts().List(ctx, 0, 0)
	w.must(err)
	var ids, previews []string
	for _, r := range list {
		ids = append(ids, r.ID)
	}
	all, _, err := w.store.Previews().List(ctx, 0, 0)
	w.must(err)
	for _, p := range all {
		previews = append(previews, p.RolloutID)
	}
	w.want("rollouts", ids, "of active", "recent", "undone", "interrupted", "stuck", "running")
	w.want("previews", previews, "of active", "recent", "undone", "interrupted", "stuck", "running")
	if targets, err := w.store.Targets().ByAgent(ctx, "a", 99); err != nil || len(targets) != 6 {
		t.Errorf("%d targets are left: %v", len(targets), err)
	}
}

func TestTheRestIsBoundedByAgeAndNumber(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.must(w.store.Rollouts().Create(ctx, fleet.Rollout{ID: "spring", State: fleet.RolloutRunning}))
	for i, days := range []int{300, 200, 50, 1} {
		at := w.ago(days)
		id := fmt.Sprint(days)
		w.must(w.store.Audit().Append(ctx, []fleet.AuditEntry{{ID: id, At: at, Subject: "key"}, {ID: "spring" + id, At: at, Subject: "spring"}}))
		w.must(w.store.Incidents().Create(ctx, fleet.Incident{ID: id, State: fleet.IncidentResolved, Resolved: &fleet.Decision{At: at}}))
		w.must(w.store.Incidents().Create(ctx, fleet.Incident{ID: "open" + id, State: []fleet.IncidentState{fleet.IncidentOpen, fleet.IncidentAcked}[i%2]}))
		w.must(w.store.DeadLetters().Create(ctx, fleet.DeadLetter{ID: id, At: at}))
		w.must(w.store.RolloutGroups().Create(ctx, fleet.RolloutGroup{ID: id, State: fleet.GroupPartial, CreatedAt: w.ago(900), EndedAt: &at}))
		w.must(w.store.RolloutGroups().Create(ctx, fleet.RolloutGroup{ID: "open" + id, State: fleet.GroupPaused, CreatedAt: w.ago(900)}))
		w.must(w.store.Events().Append(ctx, []fleet.Event{{Type: "x", At: at}}))
		w.must(w.store.Servers().Create(ctx, fleet.Server{ID: id, SeenAt: at}))
	}
	p := roomy()
	p[store.KindDeadLetters.Info] = store.Limits{Age: 100 * day, Count: 1}
	p[store.KindEvents] = store.Limits{Count: 2}
	p[store.KindRolloutGroups.Info] = store.Limits{Age: 100 * day, Count: 4}
	w.rounds(w.server("one", p), 1)
	entries, _, err := w.store.Audit().List(ctx, store.AuditQuery{Limit: 99})
	w.must(err)
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	w.want("audit entries", ids, "spring1", "1", "spring50", "50", "spring200", "spring300")
	incidents, _, err := w.store.Incidents().List(ctx, 0, 0)
	w.must(err)
	ids = nil
	for _, i := range incidents {
		ids = append(ids, i.ID)
	}
	w.want("incidents", ids, "open1", "1", "open50", "50", "open200", "open300")
	groups, _, err := w.store.RolloutGroups().List(ctx, 0, 0)
	w.must(err)
	ids = nil
	for _, g := range groups {
		ids = append(ids, g.ID)
	}
	w.want("groups", ids, "open1", "1", "open50", "50", "open200", "open300")
	letters, _, err := w.store.DeadLetters().List(ctx, 0, 0)
	w.must(err)
	ids = nil
	for _, l := range letters {
		ids = append(ids, l.ID)
	}
	w.want("dead letters", ids, "1")
	servers, _, err := w.store.Servers().List(ctx, 0, 0)
	w.must(err)
	ids = nil
	for _, v := range servers {
		ids = append(ids, v.ID)
	}
	w.want("servers", ids, "1", "50")
	if first, last, err := w.store.Events().Bounds(ctx); err != nil || last-first != 1 {
		t.Errorf("the events from %d to %d are left, want two: %v", first, last, err)
	}
}

func TestOneServerRemoves(t *testing.T) {
	w := newWorld(t)
	one, two := w.server("one", roomy()), w.server("two", roomy())
	w.rounds(one, 1)
	w.order("old", 200, 30)
	w.order("newest", 1, 30)
	w.must(two.Round(t.Context())) // one owns the lease
	w.want("actions", w.left(), "old", "newest")
	w.now = w.now.Add(time.Minute) // one has died
	w.rounds(two, 1)
	w.want("actions", w.left(), "newest")
}
