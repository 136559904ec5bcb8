package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/fleettest"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// A command that is interrupted at any write is completed by repeating it, with the
// same result as without the interruption.
func TestRepeatedCommandCompletesAfterACrashAtAnyWrite(t *testing.T) {
	require.Time(t, "kills a command at every write")
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
			run := func(at int) (end string, died bool, writes int) {
				d := newHarness(t)
				d.enrol("a", "b", "lab/c")
				r := story.prepare(d)
				hash := ""
				if r.State == fleet.RolloutDraft {
					d.preview(r)
					d.enrol("x") // so that there is a second preview to drop
					hash = d.preview(r).Hash
				}
				m := fleettest.NewMortal(d.store, at, false)
				_, err := story.ask(t.Context(), d.serve(m), r, hash)
				// A command goes on without an event that it could not append.
				if died := errors.Is(err, fleettest.ErrDead); died && !m.Dead() || !died && m.Dead() && m.Last() != "event Append" {
					t.Fatalf("write %d (%s): dead is %t, the answer was %v", at, m.Last(), m.Dead(), err)
				}
				got, err := story.ask(t.Context(), d.service, r, hash)
				d.must(err)
				return d.leftBehind(r.ID, got.ID), m.Dead(), m.Writes()
			}
			whole, _, writes := run(0)
			if writes < 2 {
				t.Errorf("it makes only %d writes", writes)
			}
			for at := 1; at <= writes; at++ {
				end, died, _ := run(at)
				if !died {
					t.Errorf("it was not killed at write %d", at)
				}
				if end != whole {
					t.Errorf("killed at write %d it ends as\n%s\nwant\n%s", at, end, whole)
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
			text += fmt.Sprintf("  %d %s %d %s %s→%s\n", target.Place, target.AgentID, target.Batch, target.State, target.From, target.To)
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
