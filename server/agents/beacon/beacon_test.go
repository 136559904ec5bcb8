package beacon_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/beacon"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// world is the service on a real store, with one agent that is being upgraded.
type world struct {
	t       *testing.T
	store   *sqlite.Store
	service *beacon.Service
	agents  *awayAgents
	now     time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))
	w := &world{t: t, store: s, agents: &awayAgents{Agents: s.Agents()}, now: time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)}
	w.service = &beacon.Service{
		Agents: w.agents, Now: func() time.Time { return w.now },
		Events: &event.Stream{Store: s.Events(), Log: slog.New(slog.DiscardHandler)},
	}
	a := fleet.Agent{ID: "a", Active: true, Version: "1.0.0", EnrolledAt: w.now, Tags: []string{}}
	a.BeginUpgrade("act", "1.1.0", w.now)
	w.must(s.Agents().Create(t.Context(), a))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) agent() fleet.Agent {
	w.t.Helper()
	a, err := w.store.Agents().Get(w.t.Context(), "a")
	w.must(err)
	return a
}

func (w *world) events() []fleet.Event {
	w.t.Helper()
	list, err := w.store.Events().After(w.t.Context(), 0, 1_000)
	w.must(err)
	return list
}

func sees(phase agentapi.BeaconPhase) agentapi.Beacon {
	b := agentapi.Beacon{ActionID: "act", From: "1.0.0", To: "1.1.0", Phase: phase, At: time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)}
	if phase == agentapi.BeaconRolledBack || phase == agentapi.BeaconRollingBack {
		b.Reason = &agentapi.BeaconCause{Code: "crash_loop", Text: "it crashed 3 times"}
	}
	return b
}

// awayAgents is a store whose writes can fail.
type awayAgents struct {
	store.Agents
	away    bool
	reports atomic.Int64
}

func (a *awayAgents) Report(ctx context.Context, r store.Report) (int64, error) {
	if a.away {
		return 0, fleet.Errorf(fleet.Unavailable, "the store is away")
	}
	a.reports.Add(1)
	return a.Agents.Report(ctx, r)
}

func TestUnchangedBeaconIsNotWritten(t *testing.T) {
	w := newWorld(t)
	for range 10 { // a beacon every 10 s
		w.must(w.service.Handle(t.Context(), w.agent(), sees(agentapi.BeaconWatching)))
		w.now = w.now.Add(10 * time.Second)
	}
	if n := len(w.events()); w.agents.reports.Load() != 4 || n != 1 {
		t.Errorf("10 beacons in 90 s made %d writes and %d events, want one every %s and one event", w.agents.reports.Load(), n, fleet.BeaconWrite)
	}
}

func TestBeaconEndsUpgradeAndAction(t *testing.T) {
	w := newWorld(t)
	w.must(w.service.Handle(t.Context(), w.agent(), sees(agentapi.BeaconRolledBack)))
	if a := w.agent(); a.UpgradeStatus != fleet.UpgradeRolledBack || a.Watch == nil || !a.Watch.ReceivedAt.Equal(w.now) {
		t.Errorf("the agent is %q with %+v", a.UpgradeStatus, a.Watch)
	}
	r, err := w.store.Results().Get(t.Context(), "act", "a")
	if err != nil || r.Error != "it crashed 3 times" {
		t.Errorf("the result is %+v, %v", r, err)
	}
	types := map[string]int{}
	for _, e := range w.events() {
		types[e.Type]++
	}
	if len(types) != 3 || types[fleet.EventActionResult] != 1 || types[fleet.EventAgentWatch] != 1 || types[fleet.EventAgentUpgrade] != 1 {
		t.Errorf("events are %v", types)
	}
	w.must(w.service.Handle(t.Context(), w.agent(), sees(agentapi.BeaconRolledBack)))
	if n := len(w.events()); n != 3 {
		t.Errorf("the repeated beacon published %d events", n)
	}
}

// The watcher gets no response and sends its beacon again.
func TestRepeatedBeaconCompletesFailedWrite(t *testing.T) {
	w := newWorld(t)
	w.agents.away = true
	if err := w.service.Handle(t.Context(), w.agent(), sees(agentapi.BeaconRolledBack)); fleet.KindOf(err) != fleet.Unavailable {
		t.Fatalf("a beacon that could not be stored answered %v", err)
	}
	if a := w.agent(); !a.Upgrading() {
		t.Fatal("the document was written")
	}
	w.agents.away = false
	w.must(w.service.Handle(t.Context(), w.agent(), sees(agentapi.BeaconRolledBack)))
	if a := w.agent(); a.UpgradeStatus != fleet.UpgradeRolledBack {
		t.Errorf("after the second beacon: %q", a.UpgradeStatus)
	}
}

// Beacons and the agent's check-ins write the same document.
func TestBeaconRetriesOnConflict(t *testing.T) {
	w := newWorld(t)
	var all sync.WaitGroup
	failed := make(chan error, 20)
	for range 10 {
		stale := w.agent()
		all.Go(func() { failed <- w.service.Handle(t.Context(), stale, sees(agentapi.BeaconRollingBack)) })
	}
	_, err := store.UpdateAgent(t.Context(), w.store.Agents(), "a", func(a *fleet.Agent) bool { a.Tags = []string{"edge"}; return true })
	all.Wait()
	close(failed)
	for e := range failed {
		err = errors.Join(err, e)
	}
	w.must(err)
	a := w.agent()
	if a.UpgradeStatus != fleet.UpgradeRolledBack || len(a.Tags) != 1 {
		t.Errorf("the agent is %q, tagged %v", a.UpgradeStatus, a.Tags)
	}
}

func TestInvalidBeaconChangesNothing(t *testing.T) {
	w := newWorld(t)
	b := sees(agentapi.BeaconRolledBack)
	b.Reason = nil
	if err := w.service.Handle(t.Context(), w.agent(), b); fleet.KindOf(err) != fleet.Invalid {
		t.Errorf("it answered %v", err)
	}
	if w.agents.reports.Load() != 0 || len(w.events()) != 0 {
		t.Error("it was written")
	}
}
