package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

// testUnreadable replaces one document of every kind, beneath the store, by what cannot be read,
// and calls everything that reads more than one document.
func testUnreadable(t *testing.T, cfg Config) {
	ctx := t.Context()
	for name, doc := range map[string]string{
		"cut off":         `{"id":"x`,
		"of another type": `["x"]`,
		// Go reads it, and SQLite does not.
		"deeper than SQLite reads": strings.Repeat(`{"a":`, 1_001) + "1" + strings.Repeat("}", 1_001),
	} {
		t.Run("a document that is "+name+" costs its own row", func(t *testing.T) {
			location := cfg.NewLocation(t)
			s := cfg.reopen(t, location)
			must(t, Fill(ctx, s, 9))
			var before map[string]int
			cfg.eventually(t, func() (err error) {
				before, err = readings(ctx, s)
				return err
			})
			if cfg.OneProcess {
				must(t, s.Close())
			}
			cfg.Damage(t, location, doc)
			s = cfg.reopen(t, location)
			var logged []string
			s.Unreadable().OnFirst(func(d store.Unreadable) { logged = append(logged, d.Noun+" "+d.ID) })
			after, err := readings(ctx, s)
			must(t, err)
			for what, n := range before {
				if got := after[what]; got < n-1 {
					t.Errorf("%s: %d of %d are left", what, got, n)
				}
			}
			if slices.Sort(logged); len(slices.Compact(slices.Clone(logged))) != len(logged) {
				t.Errorf("some were reported twice: %q", logged)
			}
			if name == "deeper than SQLite reads" {
				return // what Go reads is not left out
			}
			nouns := map[string]bool{}
			for _, d := range s.Unreadable().List(time.Now().Add(-time.Minute)) {
				nouns[d.Noun] = true
			}
			if len(nouns) < 20 || len(logged) < len(nouns) {
				t.Errorf("%d kinds are counted, and %d reported: %q", len(nouns), len(logged), slices.Sorted(maps.Keys(nouns)))
			}
			for _, noun := range []string{"agent", "action", "result", "rollout", "target", "audit entry", "history record", "event", "policy", "incident"} {
				if !nouns[noun] {
					t.Errorf("of the kind %s none is counted", noun)
				}
			}
		})
	}
}

// readings calls every method of the store that reads several documents, and returns how many
// each has returned.
func readings(ctx context.Context, s store.Store) (map[string]int, error) {
	out := map[string]int{}
	var failed error
	note := func(what string, n int, err error) {
		out[what] = n
		if err != nil && fleet.KindOf(err) != fleet.Invalid && failed == nil { // a field that stores do not know
			failed = fmt.Errorf("%s: %w", what, err)
		}
	}
	eachCollection(func(k collected) {
		list, _, err := k.list(ctx, s.Documents(k.Info), 0, 0)
		note(k.Plural, len(list), err)
	})
	ids := make([]string, 9)
	for i := range ids {
		ids[i] = fmt.Sprintf("agent-%06d", i)
	}

	agents := s.Agents()
	list, err := agents.GetMany(ctx, ids)
	note("Agents.GetMany", len(list), err)
	list, err = agents.Upgrading(ctx, store.UpgradingSince{}, 100)
	note("Agents.Upgrading", len(list), err)
	n := 0
	err = agents.Each(ctx, store.AgentFilter{}, func(fleet.Agent) { n++ })
	note("Agents.Each", n, err)
	n = 0
	err = agents.Facts(ctx, store.AgentFilter{}, func(string, fleet.StatusFacts) { n++ })
	note("Agents.Facts", n, err)
	n = 0
	err = agents.Census(ctx, func(fleet.Census) { n++ })
	note("Agents.Census", n, err)
	policies, err := agents.CountPolicies(ctx)
	note("Agents.CountPolicies", len(policies), err)
	fields := fleet.AgentSchema(nil).Fields
	for _, f := range fields {
		filters := []kql.Filter{kql.Exists{Field: f}, kql.NotOf{Filter: kql.Exists{Field: f}}}
		if f.Type == kql.TypeKeyword || f.Type == kql.TypeText {
			filters = append(filters, kql.Equals{Field: f, Value: "db-1"}, kql.NotOf{Filter: kql.Like{Field: f, Pattern: kql.Wildcard{"x", ""}}})
		}
		for _, q := range filters {
			filter := store.AgentFilter{Query: q}
			_, total, err := agents.List(ctx, store.AgentQuery{AgentFilter: filter, Limit: 100})
			note(fmt.Sprintf("Agents.List where %s %T", f.Name, q), total, err)
			counts, err := store.CountFirst(ctx, agents, store.AgentFilter{}, []kql.Filter{q})
			note(fmt.Sprintf("Agents.CountFirst where %s %T", f.Name, q), len(counts), err)
		}
		if f.Type == kql.TypeKeyword || f.Type == kql.TypeVersion {
			_, err := agents.Values(ctx, store.AgentFilter{}, f, "", 10)
			note("Agents.Values of "+f.Name, 0, err)
			_, err = agents.Tally(ctx, store.AgentFilter{}, store.TallyQuery{Fields: []store.TallyField{{Field: f}}})
			note("Agents.Tally of "+f.Name, 0, err)
		}
	}
	for _, f := range fields {
		by, ok := store.ParseAgentSort(f.Name)
		if !ok {
			continue
		}
		for _, desc := range []bool{false, true} {
			list, _, err := agents.List(ctx, store.AgentQuery{Sort: by, Desc: desc, Limit: 100})
			note(fmt.Sprintf("Agents.List by %s %t", by, desc), len(list), err)
		}
	}

	actions, err := s.Actions().After(ctx, 0, 100)
	note("Actions.After", len(actions), err)
	actions, err = s.Actions().List(ctx, store.ActionQuery{Limit: 100})
	note("Actions.List", len(actions), err)
	actions, err = s.Actions().Pending(ctx, ids[5], 0, base, 100)
	note("Actions.Pending", len(actions), err)
	n = 0
	err = s.Results().Each(ctx, func(fleet.Result) { n++ })
	note("Results.Each", n, err)
	for name, some := range map[string][]string{"": nil, "-by-agents": ids} {
		n = 0
		err = s.Results().OfAction(ctx, "first-0", some, func(fleet.Result) { n++ })
		note("Results.OfAction"+name, n, err)
		n = 0
		err = s.History().OfAction(ctx, store.ActionHistory{ActionID: "act", AgentIDs: some}, func(fleet.HistoryRecord) { n++ })
		note("History.OfAction"+name, n, err)
	}
	results, err := s.Results().Errors(ctx, "first-0", 100)
	note("Results.Errors", len(results), err)
	answered, err := s.Results().Answered(ctx, "first-0", ids)
	note("Results.Answered", len(answered), err)

	rollouts, _, err := s.Rollouts().List(ctx, 0, 0)
	note("Rollouts.List", len(rollouts), err)
	active, err := s.Rollouts().Active(ctx)
	note("Rollouts.Active", len(active), err)
	for _, id := range []string{"early", "late"} {
		targets, _, err := s.Targets().List(ctx, store.TargetQuery{RolloutID: id, Limit: 100})
		note("Targets.List "+id, len(targets), err)
		targets, err = s.Targets().GetMany(ctx, id, ids)
		note("Targets.GetMany "+id, len(targets), err)
		n = 0
		err = s.Targets().Each(ctx, id, func(fleet.Target) { n++ })
		note("Targets.Each "+id, n, err)
	}
	targets, err := s.Targets().ByAgent(ctx, ids[1], 10)
	note("Targets.ByAgent", len(targets), err)

	for name, q := range map[string]store.AuditQuery{"": {}, " of people": {People: true}, " with words": {Words: []string{"r"}}, " of a verb": {Verb: "rollout"}, " of an actor": {Actor: "x"}} {
		q.Limit = 100
		entries, _, err := s.Audit().List(ctx, q)
		note("Audit.List"+name, len(entries), err)
	}
	n = 0
	err = s.Audit().Each(ctx, func(fleet.AuditEntry) { n++ })
	note("Audit.Each", n, err)
	n = 0
	err = s.History().Each(ctx, func(fleet.HistoryRecord) { n++ })
	note("History.Each", n, err)
	records, err := s.History().List(ctx, store.HistoryQuery{AgentID: "x", Limit: 100})
	note("History.List", len(records), err)
	events, err := s.Events().After(ctx, 0, 100)
	note("Events.After", len(events), err)
	// Readers go on after the last document that they have got.
	n, err = eachPage(func(after int64) (int64, error) {
		page, err := s.Events().After(ctx, after, 1)
		if len(page) == 0 {
			return after, err
		}
		return page[len(page)-1].Seq, err
	})
	note("Events.After by one", n, err)
	n, err = eachPage(func(after int64) (int64, error) {
		page, err := s.Actions().After(ctx, after, 1)
		if len(page) == 0 {
			return after, err
		}
		return page[len(page)-1].Seq, err
	})
	note("Actions.After by one", n, err)
	return out, failed
}

// eachPage counts the pages of a stream until there are no more.
func eachPage(next func(after int64) (last int64, err error)) (n int, err error) {
	for after := int64(0); ; n++ {
		last, err := next(after)
		if err != nil || last == after {
			return n, err
		}
		after = last
	}
}
