package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

func testReports(t *testing.T, cfg Config) {
	ctx := t.Context()
	event := func(kind string) fleet.Event { return fleet.Event{At: at(0), Type: kind, Subject: "a"} }
	seen := &fleet.Touch{AgentID: "a", At: at(time.Second), Status: "degraded", Message: "disk is slow", ActionSeq: 7}
	result := fleet.Result{ActionID: "act", AgentID: "a", Timestamp: at(time.Second)}
	types := func(t *testing.T, s store.Store, want ...string) {
		t.Helper()
		cfg.eventually(t, func() error {
			var got []string
			for _, e := range value(s.Events().After(ctx, 0, 100))(t) {
				got = append(got, e.Type)
			}
			if !slices.Equal(got, want) {
				return fleet.Errorf(fleet.Internal, "events are %v, want %v", got, want)
			}
			return nil
		})
	}

	t.Run("a report writes results, document, last seen and events", func(t *testing.T) {
		s := cfg.open(t)
		must(t, s.Agents().Create(ctx, agent("a")))
		a := value(s.Agents().Get(ctx, "a"))(t)
		a.Version = "2.0.0"
		rev := value(s.Agents().Report(ctx, store.Report{
			Results: []fleet.Result{result}, Agent: &a, Seen: seen, Events: []fleet.Event{event("one"), event("two")},
		}))(t)
		got := value(s.Agents().Get(ctx, "a"))(t)
		if got.Version != "2.0.0" || got.Revision != rev || rev == a.Revision {
			t.Errorf("version %s, revision %d, Report returned %d, before it was %d", got.Version, got.Revision, rev, a.Revision)
		}
		equal(t, got.Last, fleet.LastSeen{At: &seen.At, Status: seen.Status, Message: seen.Message, ActionSeq: seen.ActionSeq})
		value(s.Results().Get(ctx, "act", "a"))(t)
		types(t, s, "one", "two", fleet.EventActionResult)
	})

	t.Run("each part of a report is optional", func(t *testing.T) {
		s := cfg.open(t)
		must(t, s.Agents().Create(ctx, agent("a")))
		before := value(s.Agents().Get(ctx, "a"))(t)
		for _, r := range []store.Report{{Seen: seen}, {Events: []fleet.Event{event("one")}}, {Results: []fleet.Result{result}}, {}} {
			value(s.Agents().Report(ctx, r))(t)
		}
		got := value(s.Agents().Get(ctx, "a"))(t)
		if got.Revision != before.Revision || got.Last.Status != seen.Status {
			t.Errorf("revision %d, before it was %d; last seen %+v", got.Revision, before.Revision, got.Last)
		}
		types(t, s, "one", fleet.EventActionResult)
	})

	t.Run("a repeated result appends no event", func(t *testing.T) {
		s := cfg.open(t)
		must(t, s.Agents().Create(ctx, agent("a")))
		for range 2 {
			value(s.Agents().Report(ctx, store.Report{Results: []fleet.Result{result}}))(t)
		}
		types(t, s, fleet.EventActionResult)
	})

	t.Run("a report with an outdated revision writes neither last seen nor events", func(t *testing.T) {
		s := cfg.open(t)
		must(t, s.Agents().Create(ctx, agent("a")))
		stale := value(s.Agents().Get(ctx, "a"))(t)
		value(s.Agents().Update(ctx, stale))(t)
		stale.Version = "2.0.0"
		_, err := s.Agents().Report(ctx, store.Report{Agent: &stale, Seen: seen, Events: []fleet.Event{event("one")}})
		wantKind(t, err, fleet.Conflict)
		if got := value(s.Agents().Get(ctx, "a"))(t); got.Version == "2.0.0" || got.Last.Status != "" || got.Last.ActionSeq != 0 {
			t.Errorf("version %s, last seen %+v", got.Version, got.Last)
		}
		types(t, s)
		stale.ID = "gone"
		_, err = s.Agents().Report(ctx, store.Report{Agent: &stale})
		wantKind(t, err, fleet.NotFound)
	})

	t.Run("ApplyReport retries after a conflict", func(t *testing.T) {
		s := cfg.open(t)
		must(t, s.Agents().Create(ctx, agent("a")))
		stale := value(s.Agents().Get(ctx, "a"))(t)
		other := stale
		other.Tags = []string{"edge"}
		value(s.Agents().Update(ctx, other))(t)
		calls := 0
		events, err := store.ApplyReport(ctx, s.Agents(), stale, at(0), func(a *fleet.Agent) store.Report {
			calls++
			a.Version = "2.0.0"
			return store.Report{Agent: a, Events: []fleet.Event{event("one")}}
		})
		must(t, err)
		if !events {
			t.Error("ApplyReport returned false, although it appended an event")
		}
		if got := value(s.Agents().Get(ctx, "a"))(t); calls != 2 || got.Version != "2.0.0" || len(got.Tags) != 1 {
			t.Errorf("after %d calls: version %s, tags %v", calls, got.Version, got.Tags)
		}
		types(t, s, "one")
	})
}
