package group_test

import (
	"fmt"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/fleettest"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// liveAndDie executes a group whose process dies at its nth write, and returns how it ends.
// Another process takes over.
func liveAndDie(t *testing.T, at int, after bool, policy fleet.FailurePolicy) (end string, writes int) {
	w := newWorld(t, fourHosts...)
	w.Hosts["a1"].Bad, w.Hosts["a2"].Bad = true, true
	g := w.start(dbThenApp(policy))
	m := fleettest.NewMortal(w.db, at, after)
	w.serve(m, "mortal")
	for turn := 0; !over(w.group(g.ID)); turn++ {
		err := w.turn()
		if err != nil && !m.Dead() {
			t.Fatal(err)
		}
		if m.Dead() {
			writes, m = m.Writes(), fleettest.NewMortal(w.db, 0, false)
			w.serve(m, "next")
		}
		if turn == 500 {
			got := w.group(g.ID)
			t.Fatalf("killed at write %d, it stays %s, stopped by %+v, with %s", at, got.State, got.Stop, w.members(got))
		}
	}
	if at == 0 {
		writes = m.Writes()
	}
	got := w.group(g.ID)
	end = fmt.Sprintf("%s %s %s\n", got.State, w.members(got), w.Versions())
	list, n, err := w.db.Rollouts().List(t.Context(), 0, 100)
	w.must(err)
	for _, r := range list {
		end += fmt.Sprintf("%s of %d: %s %+v\n", r.Plan.Name, n, r.State, r.Counts)
	}
	entries, _, err := w.db.Audit().List(t.Context(), store.AuditQuery{Subject: g.ID, Limit: 100})
	w.must(err)
	for _, e := range entries {
		end += e.Actor + " " + e.Verb + "\n"
	}
	return end, writes
}

func TestGroupKilledAtAnyWriteReachesTheSameEnd(t *testing.T) {
	t.Parallel()
	require.Time(t, "kills the reconciler at every write")
	for _, policy := range []fleet.FailurePolicy{fleet.RollbackAll, fleet.PartialOK} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			want, writes := liveAndDie(t, 0, false, policy)
			if writes < 20 {
				t.Fatalf("only %d writes", writes)
			}
			for at := 1; at <= writes; at++ {
				after := at%2 == 0
				t.Run(fmt.Sprint(at), func(t *testing.T) {
					t.Parallel()
					if got, _ := liveAndDie(t, at, after, policy); got != want {
						t.Errorf("killed at write %d, which was made %v:\n%s\nwant\n%s", at, after, got, want)
					}
				})
			}
		})
	}
}
