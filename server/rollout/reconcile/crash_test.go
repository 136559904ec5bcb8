package reconcile_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/fleettest"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// ending is what must be the same wherever the loop was killed.
type ending struct {
	state    fleet.RolloutState
	counts   fleet.Counts
	stop     fleet.StopKind
	back     int // withdrawn offers, according to the stop
	targets  string
	upgrades string
}

// liveAndDie runs a scenario to its end, with the loop killed at a write; 0: never. It
// returns how many writes there were, and at which it was killed.
func liveAndDie(t *testing.T, at int, after bool, scenario func(w *world) (settled func(fleet.Rollout) bool)) (end ending, writes int, last string) {
	w := newWorld(t, 4)
	m := fleettest.NewMortal(w.store, at, after)
	w.server.loop = w.process(m).loop
	settled := scenario(w)
	arrived := 0 // turns after the end, in which what is on its way arrives
	for limit := w.now.Add(time.Hour); arrived < 4; {
		_ = w.turn() // an error: it may be dying
		if m.Dead() {
			writes, last = m.Writes(), m.Last()
			m = fleettest.NewMortal(w.store, 0, false) // a new process, which is not killed
			w.server.loop = w.process(m).loop
		}
		if w.now.After(limit) {
			r := w.rollout("r")
			t.Fatalf("killed at write %d (%s): it is %s with %+v, stopped by %+v, waiting for %+v", at, last, r.State, r.Counts, r.Stop, r.Waiting)
		}
		if arrived++; !settled(w.rollout("r")) || w.rollout("r").Counts.InFlight() > 0 {
			arrived = 0
		}
	}
	r := w.rollout("r")
	w.checkCounts(r)
	end = ending{state: r.State, counts: r.Counts}
	if r.Stop != nil {
		end.stop, end.back = r.Stop.Kind, r.Stop.Withdrawn
	}
	w.must(w.store.Targets().Each(t.Context(), "r", func(x fleet.Target) {
		end.targets += fmt.Sprintf("%s %s %s %d\n", x.AgentID, x.State, x.Code, x.Attempts)
	}))
	for _, id := range w.order {
		a, h := w.agent(id), w.hosts[id]
		end.upgrades += fmt.Sprintf("%s %s %s %d\n", id, h.version, h.web, h.upgrades)
		if web := a.Of("web"); web.Upgrading() || web.Version != h.web {
			t.Errorf("killed at write %d (%s): the server takes web on %s for %s, upgrading %v; it is %s", at, last, id, web.Version, web.Upgrading(), h.web)
		}
		if a.Upgrading() || a.Version != h.version {
			t.Errorf("killed at write %d (%s): the server takes %s for one that runs %s, upgrading %v; it runs %s", at, last, id, a.Version, a.Upgrading(), h.version)
		}
	}
	if r.State.Ended() && at == 0 {
		if _, err := w.store.PolicyLocks().Get(t.Context(), fleet.LockKey("default", r.Plan.Component)); fleet.KindOf(err) != fleet.NotFound {
			t.Errorf("the policy is still locked: %v", err)
		}
	}
	writes = max(writes, m.Writes())
	return end, writes, last
}

func TestReconcilerKilledAtAnyWriteReachesTheSameEnd(t *testing.T) {
	t.Parallel()
	require.Time(t, "kills the reconciler at every write")
	for _, c := range []struct {
		name     string
		scenario func(w *world) func(fleet.Rollout) bool
	}{
		{"a rollout with one failure", func(w *world) func(fleet.Rollout) bool {
			w.start("r", rolling(func(p *fleet.Plan) { p.Strategy.BatchSize, p.Health.Wait = 2, fleet.Duration(20*time.Second) }))
			w.hosts["agent-002"].bad = "crash"
			return over
		}},
		{"a rollout of a component with one failure", func(w *world) func(fleet.Rollout) bool {
			w.runWeb()
			w.start("r", rolling(func(p *fleet.Plan) {
				p.Component, p.Strategy.BatchSize, p.Health.Wait = "web", 2, fleet.Duration(40*time.Second)
			}))
			w.hosts["agent-002"].bad = "crash"
			return over
		}},
		{"a rollout whose version is staged first, which one host fails to", func(w *world) func(fleet.Rollout) bool {
			for _, h := range w.hosts {
				h.staged = []string{}
				w.checkin(h)
			}
			w.hosts["agent-001"].failsStage = true
			w.start("r", rolling(func(p *fleet.Plan) {
				p.Stage, p.Strategy.BatchSize, p.Health.Wait = fleet.StageAhead, 2, fleet.Duration(20*time.Second)
			}))
			return over
		}},
		{"a stop with offers to take back", func(w *world) func(fleet.Rollout) bool {
			two := 2
			w.start("r", rolling(func(p *fleet.Plan) {
				p.Strategy.BatchSize, p.Failure.Count = 4, &two
			}))
			n := 0
			w.must(w.store.Targets().Each(w.t.Context(), "r", func(x fleet.Target) {
				if n++; n <= 2 {
					w.hosts[x.AgentID].bad = "download"
				} else {
					w.hosts[x.AgentID].slow = true
				}
			}))
			return func(r fleet.Rollout) bool { return stopped(r) && len(r.Orders) == 0 }
		}},
		{"other limits amid a rollout, on a label that its targets have no values of", func(w *world) func(fleet.Rollout) bool {
			w.start("r", rolling(func(p *fleet.Plan) {
				p.Strategy.BatchSize, p.Limits.MaxParallel, p.Health.Wait = 4, 1, fleet.Duration(20*time.Second)
			}))
			return func(r fleet.Rollout) bool {
				if r.Generation == 1 && r.Counts.Succeeded == 1 {
					w.adjust("r", func(p *fleet.Plan) { p.Limits = fleet.Limits{Per: []fleet.LabelLimit{{Label: "os", Max: 2}}} })
				}
				if n := r.Counts.InFlight(); n > 2 {
					w.t.Errorf("%d agents with one os are upgraded at one time, 2 may be", n)
				}
				return over(r)
			}
		}},
		{"a pause at once, and resuming with what it withdrew", func(w *world) func(fleet.Rollout) bool {
			w.start("r", rolling(func(p *fleet.Plan) { p.Strategy.BatchSize, p.Health.Wait = 2, fleet.Duration(20*time.Second) }))
			for _, h := range w.hosts {
				h.slow = true
			}
			return func(r fleet.Rollout) bool {
				switch {
				case r.Generation == 1 && r.Counts.Offered == 2:
					w.change("r", func(r *fleet.Rollout) {
						r.State, r.Stop = fleet.RolloutPaused, &fleet.Stop{Kind: fleet.StopOperator, Text: "lunch", By: "ann", At: w.now}
						r.Orders = append(r.Orders, fleet.Order{ID: "o1", Kind: fleet.OrderWithdraw})
					})
				case r.Generation == 2 && r.Counts.Withdrawn == 2 && len(r.Orders) == 0:
					for _, h := range w.hosts {
						if h.action != nil {
							return false // has not received its cancellation yet
						}
					}
					for _, h := range w.hosts {
						h.slow = false
					}
					w.change("r", func(r *fleet.Rollout) {
						r.State, r.Stop = fleet.RolloutRunning, nil
						r.Orders = append(r.Orders, fleet.Order{ID: "o2", Kind: fleet.OrderReturn})
					})
				}
				return over(r)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, writes, _ := liveAndDie(t, 0, false, c.scenario)
			if writes < 10 {
				t.Fatalf("only %d writes", writes)
			}
			for at := 1; at <= writes; at++ {
				// Alternately before and after the write: most bugs show in both cases.
				after := at%2 == 0
				t.Run(fmt.Sprint(at), func(t *testing.T) {
					t.Parallel()
					got, _, last := liveAndDie(t, at, after, c.scenario)
					if got != want {
						t.Errorf("killed at write %d (%s), which was made %v:\n%+v\nwant\n%+v", at, last, after, got, want)
					}
				})
			}
		})
	}
}
