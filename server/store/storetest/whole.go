package storetest

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// testReadingEverything tests the methods that read all documents of a kind.
func testReadingEverything(t *testing.T, cfg Config) {
	ctx := t.Context()

	t.Run("Results.Each returns every result once", func(t *testing.T) {
		s := cfg.open(t)
		want := map[string]any{}
		for i := range 3 {
			var list []fleet.Result
			for n := range 400 {
				r := result(fmt.Sprint("act-", i), fmt.Sprint("agent-", n), "", time.Duration(n)*time.Second)
				list = append(list, r)
				want[fleet.ResultID(r.ActionID, r.AgentID)] = r
			}
			value(s.Results().Put(ctx, list))(t)
		}
		cfg.eventually(t, func() error {
			got := map[string]any{}
			err := s.Results().Each(ctx, func(r fleet.Result) {
				id := fleet.ResultID(r.ActionID, r.AgentID)
				if r.Revision == 0 || got[id] != nil {
					t.Errorf("%s has the revision %d, or was returned twice", id, r.Revision)
				}
				got[id] = r
			})
			if err != nil {
				return err
			}
			return differs(got, want)
		})
	})

	t.Run("Audit.Each returns every entry, oldest first", func(t *testing.T) {
		s := cfg.open(t)
		// Of entries with equal times, the one written later is newer.
		for _, part := range [][]fleet.AuditEntry{
			{auditEntry("c", "r", 3*time.Second), auditEntry("a", "r", time.Second)},
			{auditEntry("d", "s", 3*time.Second), auditEntry("b", "r", 2*time.Second)},
		} {
			must(t, s.Audit().Append(ctx, part))
		}
		cfg.eventually(t, func() error {
			var got []string
			err := s.Audit().Each(ctx, func(e fleet.AuditEntry) { got = append(got, e.ID) })
			if err != nil {
				return err
			}
			return differs(got, []string{"a", "b", "c", "d"})
		})
	})

	t.Run("Targets.Rollouts is in the order of first targets", func(t *testing.T) {
		s := cfg.open(t)
		equal(t, value(s.Targets().Rollouts(ctx))(t), []string{})
		for _, id := range []string{"b", "a", "c", "none"} {
			must(t, s.Rollouts().Create(ctx, rollout(id, fleet.RolloutRunning)))
		}
		for _, id := range []string{"c", "a", "b", "a"} {
			must(t, s.Targets().Create(ctx, []fleet.Target{target(id, "x", 0)}))
		}
		want := func(ids ...string) {
			t.Helper()
			cfg.eventually(t, func() error {
				got, err := s.Targets().Rollouts(ctx)
				if err != nil {
					return err
				}
				return differs(got, ids)
			})
		}
		want("c", "a", "b")
		must(t, s.Rollouts().Delete(ctx, "a"))
		want("c", "b")
		must(t, s.Targets().Create(ctx, []fleet.Target{target("a", "x", 0)}))
		want("c", "b", "a")
	})

	t.Run("Settings.Each returns every setting", func(t *testing.T) {
		s := cfg.open(t)
		want := map[string][]byte{"key": {0, 1, 255}, "empty": {}}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			value(s.Settings().GetOrPut(ctx, name, want[name]))(t)
		}
		cfg.eventually(t, func() error {
			got := map[string][]byte{}
			if err := s.Settings().Each(ctx, func(name string, v []byte) { got[name] = append([]byte{}, v...) }); err != nil {
				return err
			}
			return differs(got, want)
		})
	})
}
