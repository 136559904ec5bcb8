package group_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
	"github.com/muster-fleet/muster/server/store"
)

// errDead is the error of every write of a killed process.
var errDead = errors.New("killed")

// mortal is a store whose process dies at its nth write: before it, or after it and before
// it gets the result.
type mortal struct {
	store.Store
	at, writes int
	after      bool
	dead       bool
}

func (m *mortal) write(do func() error) error {
	if m.dead {
		return errDead
	}
	if m.writes++; m.writes != m.at {
		return do()
	}
	m.dead = true
	if m.after {
		_ = do()
	}
	return errDead
}

type counted[T any] struct {
	store.Collection[T]
	m *mortal
}

func (c counted[T]) Create(ctx context.Context, v T) error {
	return c.m.write(func() error { return c.Collection.Create(ctx, v) })
}

func (c counted[T]) Update(ctx context.Context, v T) error {
	return c.m.write(func() error { return c.Collection.Update(ctx, v) })
}

func (c counted[T]) Delete(ctx context.Context, id string) error {
	return c.m.write(func() error { return c.Collection.Delete(ctx, id) })
}

type countedRollouts struct {
	counted[fleet.Rollout]
	rollouts store.Rollouts
}

func (c countedRollouts) Active(ctx context.Context) ([]store.RolloutHead, error) {
	return c.rollouts.Active(ctx)
}

type countedTargets struct {
	store.Targets
	m *mortal
}

func (c countedTargets) Create(ctx context.Context, list []fleet.Target) error {
	return c.m.write(func() error { return c.Targets.Create(ctx, list) })
}

type countedAudit struct {
	store.Audit
	m *mortal
}

func (c countedAudit) Append(ctx context.Context, list []fleet.AuditEntry) error {
	return c.m.write(func() error { return c.Audit.Append(ctx, list) })
}

func (m *mortal) Rollouts() store.Rollouts {
	return countedRollouts{counted[fleet.Rollout]{m.Store.Rollouts(), m}, m.Store.Rollouts()}
}
func (m *mortal) Targets() store.Targets { return countedTargets{m.Store.Targets(), m} }
func (m *mortal) Audit() store.Audit     { return countedAudit{m.Store.Audit(), m} }
func (m *mortal) Previews() store.Collection[fleet.Preview] {
	return counted[fleet.Preview]{m.Store.Previews(), m}
}

func (m *mortal) PolicyLocks() store.Collection[fleet.PolicyLock] {
	return counted[fleet.PolicyLock]{m.Store.PolicyLocks(), m}
}

func (m *mortal) RolloutGroups() store.Collection[fleet.RolloutGroup] {
	return counted[fleet.RolloutGroup]{m.Store.RolloutGroups(), m}
}

// liveAndDie executes a group whose process dies at its nth write, and returns how it ends.
// Another process takes over.
func liveAndDie(t *testing.T, at int, after bool, policy fleet.FailurePolicy) (end string, writes int) {
	w := newWorld(t, fourHosts...)
	w.hosts["a1"].bad, w.hosts["a2"].bad = true, true
	g := w.start(dbThenApp(policy))
	m := &mortal{Store: w.db, at: at, after: after}
	w.serve(m, "mortal")
	for turn := 0; !over(w.group(g.ID)); turn++ {
		err := w.turn()
		if err != nil && !m.dead {
			t.Fatal(err)
		}
		if m.dead {
			writes, m = m.writes, &mortal{Store: w.db}
			w.serve(m, "next")
		}
		if turn == 500 {
			got := w.group(g.ID)
			t.Fatalf("killed at write %d, it stays %s, stopped by %+v, with %s", at, got.State, got.Stop, w.members(got))
		}
	}
	if at == 0 {
		writes = m.writes
	}
	got := w.group(g.ID)
	end = fmt.Sprintf("%s %s %s\n", got.State, w.members(got), w.versions())
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
	for _, policy := range []fleet.FailurePolicy{fleet.RollbackAll, fleet.PartialOK} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			want, writes := liveAndDie(t, 0, false, policy)
			if writes < 20 {
				t.Fatalf("only %d writes", writes)
			}
			for at := rollouttest.Slower; at <= writes; at += rollouttest.Slower {
				if testing.Short() && at/rollouttest.Slower%3 != 0 {
					continue
				}
				after := at/rollouttest.Slower%2 == 0
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
