package incident_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/incident"
	"github.com/muster-fleet/muster/server/rollout/reconcile"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

// The reconciler opens incidents through this service.
var _ reconcile.IncidentReporter = (*incident.Service)(nil)

type world struct {
	*incident.Service

	store store.Store
	now   time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))
	w := &world{store: s, now: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
	clock := func() time.Time { return w.now }
	log := slog.New(slog.DiscardHandler)
	w.Service = &incident.Service{Store: s.Incidents(), Agents: s.Agents(), Rollouts: s.Rollouts(), Targets: s.Targets(), Events: &event.Stream{Store: s.Events(), Log: log, Now: clock}, Audit: s.Audit(), Log: log, Now: clock}
	return w
}

func (w *world) open(t *testing.T, i fleet.Incident) {
	t.Helper()
	if err := w.Open(t.Context(), i); err != nil {
		t.Fatal(err)
	}
}

func (w *world) get(t *testing.T, id string) fleet.Incident {
	t.Helper()
	i, err := w.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func (w *world) agent(t *testing.T, id string) fleet.Agent {
	t.Helper()
	a, err := w.store.Agents().Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// published returns the states in the event stream, in order.
func (w *world) published(t *testing.T) string {
	t.Helper()
	events, err := w.store.Events().After(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range events {
		for _, state := range []string{"open", "acknowledged", "resolved"} {
			if strings.Contains(string(e.Data), `"state":"`+state+`"`) {
				out = append(out, state+" "+e.Actor)
			}
		}
	}
	return strings.Join(out, ", ")
}

// trail returns the verbs of the audit entries of a rollout, oldest first.
func (w *world) trail(t *testing.T, subject string) string {
	t.Helper()
	entries, _, err := w.store.Audit().List(t.Context(), store.AuditQuery{Subject: subject, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	out := ""
	for _, e := range entries {
		out = e.Verb + " " + e.Actor + " " + e.Why + "; " + out
	}
	return out
}

var stuck = fleet.Incident{Category: fleet.IncidentUpgradeFailed, RolloutID: "r1", AgentID: "a1", Hostname: "web-1", Text: "no way back", RecoveryPlan: "reinstall"}

func TestIncidentLifecycle(t *testing.T) {
	w := newWorld(t)
	w.open(t, stuck)
	id := incident.ID(stuck.Category, "r1", "a1")
	i := w.get(t, id)
	if i.State != fleet.IncidentOpen || i.Severity != "critical" || i.Count != 1 || i.RecoveryPlan != "reinstall" || !strings.Contains(i.Title, "web-1") {
		t.Fatalf("incident is %+v", i)
	}
	t.Run("opening it again changes and publishes nothing", func(t *testing.T) {
		w.now = w.now.Add(time.Minute)
		w.open(t, stuck)
		if again := w.get(t, id); again != i {
			t.Errorf("incident is %+v, was %+v", again, i)
		}
	})
	t.Run("the first acknowledgement stays", func(t *testing.T) {
		for _, who := range []string{"ann", "bob"} {
			got, err := w.Ack(t.Context(), id, who, "on my way")
			if err != nil || got.State != fleet.IncidentAcked || got.Acked.By != "ann" {
				t.Fatalf("incident is %+v, %v", got, err)
			}
		}
		w.open(t, stuck)
		if got := w.get(t, id); got.State != fleet.IncidentAcked {
			t.Errorf("after opening it again it is %s, want acknowledged", got.State)
		}
	})
	t.Run("a resolved incident stays resolved", func(t *testing.T) {
		for _, who := range []string{"bob", "ann"} {
			got, err := w.Resolve(t.Context(), id, who, "reinstalled")
			if err != nil || got.State != fleet.IncidentResolved || got.Resolved.By != "bob" || got.Acked.By != "ann" {
				t.Fatalf("incident is %+v, %v", got, err)
			}
		}
		_, err := w.Ack(t.Context(), id, "ann", "")
		if fleet.KindOf(err) != fleet.Conflict || !strings.Contains(err.Error(), "resolved by bob") {
			t.Errorf("acknowledging it then returns %v", err)
		}
	})
	t.Run("a recurrence opens it again", func(t *testing.T) {
		w.now = w.now.Add(time.Hour)
		w.open(t, stuck)
		got := w.get(t, id)
		if got.State != fleet.IncidentOpen || got.Count != 2 || got.Acked != nil || got.Resolved != nil || !got.OpenedAt.Equal(w.now) {
			t.Errorf("incident is %+v", got)
		}
	})
	if got, want := w.published(t), "open muster, acknowledged ann, resolved bob, open muster"; got != want {
		t.Errorf("the stream has %s, want %s", got, want)
	}
	if got, want := w.trail(t, "r1"), "incident.open muster ; incident.ack ann on my way; incident.resolve bob reinstalled; incident.open muster ; "; got != want {
		t.Errorf("the audit trail has\n%s\nwant\n%s", got, want)
	}
}

// lossy loses audit entries, as a crash between two writes does.
type lossy struct {
	store.Audit
	lose bool
}

func (l *lossy) Append(ctx context.Context, entries []fleet.AuditEntry) error {
	if l.lose {
		return fleet.Errorf(fleet.Unavailable, "the store is away")
	}
	return l.Audit.Append(ctx, entries)
}

func TestRepeatedCallWritesLostAuditEntry(t *testing.T) {
	w := newWorld(t)
	l := &lossy{Audit: w.Audit}
	w.Audit = l
	for _, step := range []func() error{
		func() error { return w.Open(t.Context(), stuck) },
		func() error {
			_, err := w.Ack(t.Context(), incident.ID(stuck.Category, "r1", "a1"), "ann", "")
			return err
		},
		func() error {
			_, err := w.Resolve(t.Context(), incident.ID(stuck.Category, "r1", "a1"), "ann", "")
			return err
		},
	} {
		l.lose = true
		if err := step(); fleet.KindOf(err) != fleet.Unavailable {
			t.Fatalf("error is %v", err)
		}
		l.lose = false
		for range 2 {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, want := w.trail(t, "r1"), "incident.open muster ; incident.ack ann ; incident.resolve ann ; "; got != want {
		t.Errorf("the audit trail has %s, want %s", got, want)
	}
}

func TestListByState(t *testing.T) {
	w := newWorld(t)
	for n := range 5 {
		w.now = w.now.Add(time.Minute)
		w.open(t, fleet.Incident{Category: fleet.IncidentStalled, RolloutID: "r1", AgentID: fmt.Sprint("a", n)})
	}
	id := func(n int) string { return incident.ID(fleet.IncidentStalled, "r1", fmt.Sprint("a", n)) }
	if _, err := w.Ack(t.Context(), id(1), "ann", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Resolve(t.Context(), id(3), "ann", ""); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Minute)
	w.open(t, fleet.Incident{Category: fleet.IncidentStalled, RolloutID: "r1", AgentID: "a3"}) // now the most recent
	for _, c := range []struct {
		state         fleet.IncidentState
		offset, limit int
		want          string
		total         int
	}{
		{"", 0, 0, "a3 a4 a2 a1 a0", 5},
		{"", 1, 2, "a4 a2", 5},
		{"", 9, 2, "", 5},
		{fleet.IncidentOpen, 0, 2, "a3 a4", 4},
		{fleet.IncidentOpen, 2, 2, "a2 a0", 4},
		{fleet.IncidentAcked, 0, 10, "a1", 1},
		{fleet.IncidentResolved, 0, 10, "", 0},
	} {
		got, total, err := w.List(t.Context(), c.state, c.offset, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		var agents []string
		for _, i := range got {
			agents = append(agents, i.AgentID)
		}
		if strings.Join(agents, " ") != c.want || total != c.total {
			t.Errorf("%q from %d, %d: got %v of %d, want %s of %d", c.state, c.offset, c.limit, agents, total, c.want, c.total)
		}
	}
	if _, _, err := w.List(t.Context(), "odd", 0, 0); fleet.KindOf(err) != fleet.Invalid || !strings.Contains(err.Error(), "query.state") {
		t.Errorf("an unknown state returns %v", err)
	}
}

func TestOpenDeletesIncidentsPastRetention(t *testing.T) {
	w := newWorld(t)
	w.open(t, stuck)
	still := stuck
	still.AgentID = "open-still"
	w.open(t, still)
	if _, err := w.Resolve(t.Context(), incident.ID(stuck.Category, "r1", "a1"), "ann", ""); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		after time.Duration
		kept  bool
	}{{incident.ResolvedRetention, true}, {time.Second, false}} {
		w.now = w.now.Add(c.after)
		w.open(t, fleet.Incident{Category: fleet.IncidentStalled, RolloutID: "r2", AgentID: c.after.String()})
		if _, err := w.Get(t.Context(), incident.ID(stuck.Category, "r1", "a1")); (err == nil) != c.kept {
			t.Errorf("%v later the resolved one is kept: %v (%v)", c.after, err == nil, err)
		}
	}
	w.get(t, incident.ID(still.Category, "r1", "open-still"))
}

func TestOneIncidentStandsForThoseBeyondLimit(t *testing.T) {
	w := newWorld(t)
	for n := range incident.MaxPerRollout {
		i := stuck
		i.ID, i.State, i.AgentID = incident.ID(stuck.Category, "r1", fmt.Sprint(n)), fleet.IncidentOpen, fmt.Sprint(n)
		if err := w.store.Incidents().Create(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	for _, agent := range []string{"one", "two"} {
		i := stuck
		i.AgentID = agent
		w.open(t, i)
	}
	if _, total, err := w.List(t.Context(), "", 0, 1); err != nil || total != incident.MaxPerRollout+1 {
		t.Errorf("there are %d, %v", total, err)
	}
	if i := w.get(t, incident.ID(stuck.Category, "r1", "")); !strings.Contains(i.Title, "More than 500") || i.RecoveryPlan != "reinstall" {
		t.Errorf("incident is %+v", i)
	}
	other := stuck
	other.RolloutID = "r2"
	w.open(t, other)
	w.get(t, incident.ID(stuck.Category, "r2", "a1"))
}

func TestOpenRefusesUnknownCategory(t *testing.T) {
	w := newWorld(t)
	if err := w.Open(t.Context(), fleet.Incident{Category: "odd"}); fleet.KindOf(err) != fleet.Invalid {
		t.Errorf("error is %v", err)
	}
	for _, f := range []func(context.Context, string, string, string) (fleet.Incident, error){w.Ack, w.Resolve} {
		if _, err := f(t.Context(), "none", "ann", ""); fleet.KindOf(err) != fleet.NotFound {
			t.Errorf("error is %v", err)
		}
	}
}
