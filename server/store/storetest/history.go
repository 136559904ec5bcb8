package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func historyRecord(id, agentID, component string, state fleet.ProgressState, when time.Duration) fleet.HistoryRecord {
	return fleet.HistoryRecord{
		ID: id, AgentID: agentID, At: at(when), EndedAt: atPtr(when + time.Second), Kind: fleet.HistoryUpgrade, Component: component, ActionID: "act",
		By: "ann", Rollout: &fleet.RolloutRef{ID: "r", Name: "<web>"}, From: "1.0.0", To: "1.1.0", State: state,
		Phases: []fleet.Phase{{State: fleet.ProgressSent, At: at(when)}, {State: state, At: at(when + time.Second), Text: "ü"}}, Reason: "it fell",
	}
}

func testHistory(t *testing.T, cfg Config) {
	ctx := t.Context()
	ids := func(list []fleet.HistoryRecord) []string {
		out := []string{}
		for _, r := range list {
			out = append(out, r.ID)
		}
		return out
	}

	t.Run("List returns the records of an agent, newest first, in pages", func(t *testing.T) {
		h := cfg.open(t).History()
		must(t, h.Put(ctx, nil))
		must(t, h.Put(ctx, []fleet.HistoryRecord{
			historyRecord("b", "x", "", fleet.ProgressCommitted, time.Minute), historyRecord("c", "x", "web", fleet.ProgressFailed, time.Minute),
			historyRecord("a", "x", "", fleet.ProgressCommitted, 2*time.Minute), historyRecord("d", "y", "", fleet.ProgressCommitted, 3*time.Minute),
		}))
		must(t, h.Put(ctx, []fleet.HistoryRecord{historyRecord("e", "x", "web", fleet.ProgressRolledBack, 0)}))
		web, agent, none := "web", "", "db"
		for _, tc := range []struct {
			q    store.HistoryQuery
			want []string
		}{
			{store.HistoryQuery{AgentID: "x", Limit: 9}, []string{"a", "c", "b", "e"}},
			{store.HistoryQuery{AgentID: "x", Limit: 2}, []string{"a", "c"}},
			{store.HistoryQuery{AgentID: "x", Limit: 9, Before: store.HistoryPosition{At: at(time.Minute), ID: "c"}}, []string{"b", "e"}},
			{store.HistoryQuery{AgentID: "x", Limit: 9, Before: store.HistoryPosition{At: at(time.Minute), ID: "b"}}, []string{"e"}},
			{store.HistoryQuery{AgentID: "x", Component: &web, Limit: 9}, []string{"c", "e"}},
			{store.HistoryQuery{AgentID: "x", Component: &agent, Limit: 9}, []string{"a", "b"}},
			{store.HistoryQuery{AgentID: "x", Component: &none, Limit: 9}, []string{}},
			{store.HistoryQuery{AgentID: "x"}, []string{}},
			{store.HistoryQuery{AgentID: "z", Limit: 9}, []string{}},
		} {
			cfg.eventually(t, func() error {
				list, err := h.List(ctx, tc.q)
				if err != nil {
					return err
				}
				return differs(ids(list), tc.want)
			})
		}
		list, err := h.List(ctx, store.HistoryQuery{AgentID: "y", Limit: 1})
		must(t, err)
		equal(t, list[0], historyRecord("d", "y", "", fleet.ProgressCommitted, 3*time.Minute))
	})

	t.Run("a record replaces that of its id, and the states of an action are counted", func(t *testing.T) {
		h := cfg.open(t).History()
		counts, err := h.CountEnds(ctx, []string{"act"})
		must(t, err)
		if len(counts) > 0 {
			t.Errorf("without records the ends are %v", counts)
		}
		must(t, h.Put(ctx, []fleet.HistoryRecord{
			historyRecord("a", "a", "", fleet.ProgressCommitted, 0), historyRecord("b", "b", "", fleet.ProgressCommitted, 0),
			historyRecord("c", "c", "", fleet.ProgressNone, 0),
		}))
		other := historyRecord("d", "d", "", fleet.ProgressFailed, 0)
		other.ActionID = "other"
		replaced := historyRecord("b", "b", "", fleet.ProgressRolledBack, time.Minute)
		replaced.Code = "crash_loop"
		none := historyRecord("e", "e", "", fleet.ProgressFailed, 0)
		none.ActionID = ""
		must(t, h.Put(ctx, []fleet.HistoryRecord{other, none, replaced}))
		cfg.eventually(t, func() error {
			counts, err := h.CountEnds(ctx, []string{"act", "other", "missing"})
			if err != nil {
				return err
			}
			want := map[string]map[fleet.End]int{
				"act": {{State: fleet.ProgressCommitted}: 1, {State: fleet.ProgressRolledBack, Code: "crash_loop"}: 1, {}: 1}, "other": {{State: fleet.ProgressFailed}: 1},
			}
			if !reflect.DeepEqual(counts, want) { // the keys of the maps do not encode
				return fmt.Errorf("the ends are %v, want %v", counts, want)
			}
			return nil
		})
		cfg.eventually(t, func() error {
			got := map[string]fleet.HistoryRecord{}
			if err := h.Each(ctx, func(r fleet.HistoryRecord) { got[r.ID] = r }); err != nil {
				return err
			}
			n, err := h.Count(ctx)
			if err != nil || n != 5 || len(got) != 5 {
				return fmt.Errorf("%d records are counted and %d read, want 5: %w", n, len(got), err)
			}
			return differs(got["b"], replaced)
		})
	})

	t.Run("OfAction returns the records of an action, by agents and by states", func(t *testing.T) {
		h := cfg.open(t).History()
		other, none := historyRecord("d", "a", "", fleet.ProgressFailed, 0), historyRecord("e", "a", "", fleet.ProgressFailed, 0)
		other.ActionID, none.ActionID = "other", ""
		must(t, h.Put(ctx, []fleet.HistoryRecord{
			historyRecord("a", "a", "", fleet.ProgressCommitted, 0), historyRecord("b", "b", "web", fleet.ProgressFailed, 0), historyRecord("c", "c", "", fleet.ProgressNone, 0), other, none,
		}))
		for _, tc := range []struct {
			q    store.ActionHistory
			want []string
		}{
			{store.ActionHistory{ActionID: "act"}, []string{"a", "b", "c"}},
			{store.ActionHistory{ActionID: "other"}, []string{"d"}},
			{store.ActionHistory{}, []string{}},
			{store.ActionHistory{ActionID: "act", AgentIDs: []string{"c", "x", "a"}}, []string{"a", "c"}},
			{store.ActionHistory{AgentIDs: []string{"a"}}, []string{}},
			{store.ActionHistory{ActionID: "act", AgentIDs: []string{}}, []string{}},
			{store.ActionHistory{ActionID: "act", States: []fleet.ProgressState{fleet.ProgressFailed, fleet.ProgressNone}}, []string{"b", "c"}},
			{store.ActionHistory{ActionID: "act", AgentIDs: []string{"a", "b"}, States: []fleet.ProgressState{fleet.ProgressFailed}}, []string{"b"}},
		} {
			cfg.eventually(t, func() error {
				got := []string{}
				if err := h.OfAction(ctx, tc.q, func(r fleet.HistoryRecord) { got = append(got, r.ID) }); err != nil {
					return err
				}
				slices.Sort(got)
				return differs(got, tc.want)
			})
		}
		var whole fleet.HistoryRecord
		must(t, h.OfAction(ctx, store.ActionHistory{ActionID: "other"}, func(r fleet.HistoryRecord) { whole = r }))
		equal(t, whole, other)
	})

	t.Run("Trim removes the records that ended first, by age and number", func(t *testing.T) {
		h := cfg.open(t).History()
		var list []fleet.HistoryRecord
		for i := range 8 {
			list = append(list, historyRecord(fmt.Sprint(i), "x", "", fleet.ProgressCommitted, time.Duration(i)*time.Minute))
		}
		list[7].EndedAt = nil // of no duration
		must(t, h.Put(ctx, list))
		left := 8
		for _, tc := range []struct {
			trim store.HistoryTrim
			left int
		}{
			{store.HistoryTrim{Before: base, Keep: 8, Limit: 9}, 8},
			{store.HistoryTrim{Before: at(time.Hour), Keep: 8, Limit: 1}, 7},
			{store.HistoryTrim{Before: at(3 * time.Minute), Keep: 8, Limit: 9}, 5},
			{store.HistoryTrim{Before: base, Keep: 4, Limit: 9}, 4},
			{store.HistoryTrim{Before: base, Keep: 0, Limit: 2}, 2},
			{store.HistoryTrim{Before: at(time.Hour), Keep: 9, Limit: 0}, 2},
		} {
			cfg.eventually(t, func() error { // a search finds what was put
				n, err := h.Count(ctx)
				if err == nil && n != left {
					err = fmt.Errorf("%d records are found, want %d", n, left)
				}
				return err
			})
			removed, err := h.Trim(ctx, tc.trim)
			must(t, err)
			if removed != left-tc.left {
				t.Fatalf("%+v removed %d of %d, want %d left", tc.trim, removed, left, tc.left)
			}
			left = tc.left
		}
		cfg.eventually(t, func() error {
			list, err := h.List(ctx, store.HistoryQuery{AgentID: "x", Limit: 9})
			if err != nil {
				return err
			}
			return differs(ids(list), []string{"7", "6"})
		})
	})

	t.Run("a document whose upgrade has ended leaves a record, however it is written", func(t *testing.T) {
		s := cfg.open(t)
		write := map[string]func(a fleet.Agent) error{
			"update": func(a fleet.Agent) error { _, err := s.Agents().Update(ctx, a); return err },
			"many": func(a fleet.Agent) error {
				errs, err := s.Agents().UpdateMany(ctx, []fleet.Agent{a})
				if err == nil {
					err = errs[0]
				}
				return err
			},
			"report": func(a fleet.Agent) error { _, err := s.Agents().Report(ctx, store.Report{Agent: &a}); return err },
		}
		for id, write := range write {
			must(t, s.Agents().Create(ctx, agent(id)))
			change := func(f func(*fleet.Agent)) {
				t.Helper()
				a, err := s.Agents().Get(ctx, id)
				must(t, err)
				f(&a)
				must(t, write(a))
			}
			states := func(want ...fleet.ProgressState) {
				t.Helper()
				cfg.eventually(t, func() error {
					list, err := s.History().List(ctx, store.HistoryQuery{AgentID: id, Limit: 9})
					if err != nil {
						return err
					}
					got := []fleet.ProgressState{}
					for _, r := range list {
						got = append(got, r.State)
					}
					return differs(got, append([]fleet.ProgressState{}, want...))
				})
			}
			change(func(a *fleet.Agent) {
				a.BeginUpgrade("act", "2.0.0", at(0))
				a.RequestedBy("", fleet.Requester{By: "ann"}, at(0))
			})
			states()
			change(func(a *fleet.Agent) { a.ObserveAck("act", "disk full", false, at(time.Minute)) })
			states(fleet.ProgressFailed)
			change(func(a *fleet.Agent) { a.UsualGap++ })
			states(fleet.ProgressFailed)
			change(func(a *fleet.Agent) { a.ObserveUpgrade("2.0.0", nil, at(2*time.Minute)) }) // it went on
			states(fleet.ProgressCommitted)
			change(func(a *fleet.Agent) { a.BeginUpgrade("next", "3.0.0", at(3*time.Minute)) })
			change(func(a *fleet.Agent) { a.BeginUpgrade("forced", "3.0.1", at(4*time.Minute)) })
			states(fleet.ProgressNone, fleet.ProgressCommitted) // another order replaced it
			change(func(a *fleet.Agent) {
				a.ObserveUpgrade("2.0.0", &agentapi.UpgradeDetails{TargetVersion: "3.0.1", ActionID: "forced", State: agentapi.UpgradeRollback}, at(5*time.Minute))
			})
			states(fleet.ProgressRolledBack, fleet.ProgressNone, fleet.ProgressCommitted)
		}
		must(t, func() error {
			_, err := s.Agents().Report(ctx, store.Report{History: []fleet.HistoryRecord{historyRecord("z", "z", "", fleet.ProgressNone, 0)}})
			return err
		}())
		cfg.eventually(t, func() error {
			list, err := s.History().List(ctx, store.HistoryQuery{AgentID: "z", Limit: 9})
			if err != nil {
				return err
			}
			return differs(ids(list), []string{"z"})
		})
	})
}
