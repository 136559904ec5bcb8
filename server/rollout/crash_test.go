package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
	"github.com/muster-fleet/muster/server/store"
)

var errPowerCut = errors.New("power cut")

// fuse simulates a power cut: the write with the number at, and all later ones, fail
// without effect.
type fuse struct {
	at    int
	n     int
	blown bool
}

func (f *fuse) write(do func() error) error {
	if f.blown {
		return errPowerCut
	}
	if f.n++; f.n != f.at {
		return do()
	}
	f.blown = true
	return errPowerCut
}

// fusedStore is a store whose writes pass a fuse.
type fusedStore struct {
	store.Store
	fuse *fuse
}

type fused[T any] struct {
	store.Collection[T]
	fuse *fuse
}

func (c fused[T]) Create(ctx context.Context, v T) error {
	return c.fuse.write(func() error { return c.Collection.Create(ctx, v) })
}

func (c fused[T]) Update(ctx context.Context, v T) error {
	return c.fuse.write(func() error { return c.Collection.Update(ctx, v) })
}

func (c fused[T]) Delete(ctx context.Context, id string) error {
	return c.fuse.write(func() error { return c.Collection.Delete(ctx, id) })
}

type fusedRollouts struct {
	fused[fleet.Rollout]
	rollouts store.Rollouts
}

func (c fusedRollouts) Active(ctx context.Context) ([]store.RolloutHead, error) {
	return c.rollouts.Active(ctx)
}

type fusedTargets struct {
	store.Targets
	fuse *fuse
}

func (c fusedTargets) Create(ctx context.Context, list []fleet.Target) error {
	return c.fuse.write(func() error { return c.Targets.Create(ctx, list) })
}

type fusedAudit struct {
	store.Audit
	fuse *fuse
}

func (c fusedAudit) Append(ctx context.Context, list []fleet.AuditEntry) error {
	return c.fuse.write(func() error { return c.Audit.Append(ctx, list) })
}

func (s *fusedStore) Rollouts() store.Rollouts {
	return fusedRollouts{fused[fleet.Rollout]{s.Store.Rollouts(), s.fuse}, s.Store.Rollouts()}
}
func (s *fusedStore) Targets() store.Targets { return fusedTargets{s.Store.Targets(), s.fuse} }
func (s *fusedStore) Audit() store.Audit     { return fusedAudit{s.Store.Audit(), s.fuse} }
func (s *fusedStore) Previews() store.Collection[fleet.Preview] {
	return fused[fleet.Preview]{s.Store.Previews(), s.fuse}
}

func (s *fusedStore) PolicyLocks() store.Collection[fleet.PolicyLock] {
	return fused[fleet.PolicyLock]{s.Store.PolicyLocks(), s.fuse}
}

// A command that is interrupted at any write is completed by repeating it, with the
// same result as without the interruption.
func TestRepeatedCommandCompletesAfterACrashAtAnyWrite(t *testing.T) {
	for name, story := range map[string]struct {
		prepare func(d *harness) fleet.Rollout
		ask     func(ctx context.Context, s *rollout.Service, r fleet.Rollout, hash string) (fleet.Rollout, error)
	}{
		"create for a declared fleet": {
			func(d *harness) fleet.Rollout { return fleet.Rollout{ID: "web-7"} },
			func(ctx context.Context, s *rollout.Service, r fleet.Rollout, hash string) (fleet.Rollout, error) {
				return s.CreateDeclared(ctx, r.ID, "web", "a1b2", springPlan(), kim)
			},
		},
		"start": {
			func(d *harness) fleet.Rollout { return d.create() },
			func(ctx context.Context, s *rollout.Service, r fleet.Rollout, hash string) (fleet.Rollout, error) {
				return s.Start(ctx, r.ID, hash, false, kim)
			},
		},
		"start with drift": {
			func(d *harness) fleet.Rollout { return d.create() },
			func(ctx context.Context, s *rollout.Service, r fleet.Rollout, hash string) (fleet.Rollout, error) {
				return s.Start(ctx, r.ID, "sha256:of-before", true, kim)
			},
		},
		"rollback": {
			func(d *harness) fleet.Rollout {
				r := d.start()
				d.end(r.ID, "a", fleet.TargetSucceeded)
				d.end(r.ID, "b", fleet.TargetSucceeded)
				return r
			},
			func(ctx context.Context, s *rollout.Service, r fleet.Rollout, hash string) (fleet.Rollout, error) {
				return s.Rollback(ctx, r.ID, rollout.ScopeAll, kim)
			},
		},
		"adjust": {
			func(d *harness) fleet.Rollout { return d.start() },
			func(ctx context.Context, s *rollout.Service, r fleet.Rollout, hash string) (fleet.Rollout, error) {
				return s.Adjust(ctx, r.ID, fleet.Limits{Per: []fleet.LabelLimit{{Label: "site", Max: 1}}}, r.Plan.Failure, r.Plan.Health, r.Plan.Pace, kim)
			},
		},
		"promote": {
			func(d *harness) fleet.Rollout { return d.start() },
			func(ctx context.Context, s *rollout.Service, r fleet.Rollout, hash string) (fleet.Rollout, error) {
				return s.Promote(ctx, r.ID, kim)
			},
		},
		"pause at once": {
			func(d *harness) fleet.Rollout { return d.start() },
			func(ctx context.Context, s *rollout.Service, r fleet.Rollout, hash string) (fleet.Rollout, error) {
				return s.Pause(ctx, r.ID, true, kim)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(f *fuse) (end string, blown bool) {
				d := newHarness(t)
				d.enrol("a", "b", "lab/c")
				r := story.prepare(d)
				hash := ""
				if r.State == fleet.RolloutDraft {
					d.preview(r)
					d.enrol("x") // so that there is a second preview to drop
					hash = d.preview(r).Hash
				}
				cut := d.serve(&fusedStore{d.store, f})
				_, err := story.ask(t.Context(), cut, r, hash)
				if f.blown != errors.Is(err, errPowerCut) {
					t.Fatalf("write %d: blown is %t, the answer was %v", f.at, f.blown, err)
				}
				got, err := story.ask(t.Context(), d.service, r, hash)
				d.must(err)
				return d.leftBehind(r.ID, got.ID), f.blown
			}
			counts := &fuse{}
			whole, _ := run(counts)
			if counts.n < 2 {
				t.Errorf("it makes only %d writes", counts.n)
			}
			for at := min(rollouttest.Slower, counts.n); at <= counts.n; at += rollouttest.Slower {
				end, blown := run(&fuse{at: at})
				if !blown {
					t.Errorf("write %d was not cut", at)
				}
				if end != whole {
					t.Errorf("cut at write %d it ends as\n%s\nwant\n%s", at, end, whole)
				}
			}
		})
	}
}

// leftBehind returns what is stored of a rollout and of its rollback, without randomly
// chosen ids.
func (d *harness) leftBehind(ids ...string) string {
	d.t.Helper()
	var text string
	for _, id := range slices.Compact(ids) {
		r := d.rollout(id)
		text += fmt.Sprintf("%s %+v stop %v orders %d generation %d pinned %t batches %d policies %v previews %d by %t\n",
			r.State, r.Counts, r.Stop, len(r.Orders), r.Generation, r.Pin != nil, len(r.Batches), r.Policies, len(r.Previews), r.RolledBackBy != "")
		for _, target := range d.targets(id) {
			text += fmt.Sprintf("  %d %s %d %s %s→%s\n", target.Order, target.AgentID, target.Batch, target.State, target.From, target.To)
		}
		text += fmt.Sprintf("  %v\n", d.trail(id))
	}
	locks, _, err := d.store.PolicyLocks().List(d.t.Context(), 0, 0)
	d.must(err)
	for _, l := range locks {
		text += fmt.Sprintf("%s locked to %d\n", l.PolicyID, slices.Index(ids, l.RolloutID))
	}
	return text + fmt.Sprintf("%d previews\n", d.previews())
}
