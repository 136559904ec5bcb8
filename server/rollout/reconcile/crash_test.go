package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
	"github.com/muster-fleet/muster/server/store"
)

// errDead is the error of every call of a killed process.
var errDead = errors.New("killed")

// mortal is a store whose process dies at its nth write: before it, or after it and
// before it gets the result.
type mortal struct {
	store.Store
	at, writes int
	after      bool
	dead       bool
	last       string
}

// write counts a write and reports whether to execute it, and whether to return its
// result.
func (m *mortal) write(what string) (do, tell bool) {
	if m.dead {
		return false, false
	}
	m.writes++
	if m.writes == m.at {
		m.dead, m.last = true, what
		return m.after, false
	}
	return true, true
}

func alive[T any](m *mortal, v T, err error) (T, error) {
	if m.dead {
		var none T
		return none, errDead
	}
	return v, err
}

func one(m *mortal, what string, f func() error) error {
	do, tell := m.write(what)
	var err error
	if do {
		err = f()
	}
	if !tell {
		return errDead
	}
	return err
}

func (m *mortal) Agents() store.Agents     { return mortalAgents{m.Store.Agents(), m} }
func (m *mortal) Actions() store.Actions   { return mortalActions{m.Store.Actions(), m} }
func (m *mortal) Results() store.Results   { return mortalResults{m.Store.Results(), m} }
func (m *mortal) Rollouts() store.Rollouts { return mortalRollouts{m.Store.Rollouts(), m} }
func (m *mortal) Targets() store.Targets   { return mortalTargets{m.Store.Targets(), m} }
func (m *mortal) Audit() store.Audit       { return mortalAudit{m.Store.Audit(), m} }
func (m *mortal) PolicyLocks() store.Collection[fleet.PolicyLock] {
	return mortalLocks{m.Store.PolicyLocks(), m}
}

func (m *mortal) Policies() store.Collection[fleet.Policy] {
	return mortalPolicies{m.Store.Policies(), m}
}

type mortalPolicies struct {
	store.Collection[fleet.Policy]
	m *mortal
}

func (s mortalPolicies) Update(ctx context.Context, p fleet.Policy) (rev int64, err error) {
	err = one(s.m, "policy", func() (err error) { rev, err = s.Collection.Update(ctx, p); return err })
	return rev, err
}

func (m *mortal) Leases() store.Collection[fleet.Lease] { return mortalLeases{m.Store.Leases(), m} }

// mortalLeases are not counted: a lease that was not renewed needs no repair.
type mortalLeases struct {
	store.Collection[fleet.Lease]
	m *mortal
}

func (s mortalLeases) Create(ctx context.Context, l fleet.Lease) error {
	if s.m.dead {
		return errDead
	}
	return s.Collection.Create(ctx, l)
}

func (s mortalLeases) Update(ctx context.Context, l fleet.Lease) (int64, error) {
	if s.m.dead {
		return 0, errDead
	}
	return s.Collection.Update(ctx, l)
}

type mortalAgents struct {
	store.Agents
	m *mortal
}

func (s mortalAgents) GetMany(ctx context.Context, ids []string) ([]fleet.Agent, error) {
	v, err := s.Agents.GetMany(ctx, ids)
	return alive(s.m, v, err)
}

func (s mortalAgents) Update(ctx context.Context, a fleet.Agent) (rev int64, err error) {
	err = one(s.m, "agent", func() (err error) { rev, err = s.Agents.Update(ctx, a); return err })
	return rev, err
}

func (s mortalAgents) Report(ctx context.Context, r store.Report) (rev int64, err error) {
	err = one(s.m, "report", func() (err error) { rev, err = s.Agents.Report(ctx, r); return err })
	return rev, err
}

func (s mortalAgents) UpdateMany(ctx context.Context, list []fleet.Agent) (errs []error, err error) {
	return errs, one(s.m, "agents", func() error { errs, err = s.Agents.UpdateMany(ctx, list); return err })
}

type mortalActions struct {
	store.Actions
	m *mortal
}

func (s mortalActions) Create(ctx context.Context, a fleet.Action) (seq int64, err error) {
	return seq, one(s.m, "action "+string(a.Type), func() error { seq, err = s.Actions.Create(ctx, a); return err })
}

type mortalResults struct {
	store.Results
	m *mortal
}

func (s mortalResults) Put(ctx context.Context, list []fleet.Result) (changed []bool, err error) {
	return changed, one(s.m, "results", func() error { changed, err = s.Results.Put(ctx, list); return err })
}

type mortalRollouts struct {
	store.Rollouts
	m *mortal
}

func (s mortalRollouts) Active(ctx context.Context) ([]store.RolloutHead, error) {
	v, err := s.Rollouts.Active(ctx)
	return alive(s.m, v, err)
}

func (s mortalRollouts) Get(ctx context.Context, id string) (fleet.Rollout, error) {
	v, err := s.Rollouts.Get(ctx, id)
	return alive(s.m, v, err)
}

func (s mortalRollouts) Update(ctx context.Context, r fleet.Rollout) (rev int64, err error) {
	err = one(s.m, fmt.Sprintf("rollout %s", r.State), func() (err error) { rev, err = s.Rollouts.Update(ctx, r); return err })
	return rev, err
}

type mortalTargets struct {
	store.Targets
	m *mortal
}

func (s mortalTargets) UpdateMany(ctx context.Context, list []fleet.Target) (revs []int64, errs []error, err error) {
	return revs, errs, one(s.m, fmt.Sprintf("%d targets %s", len(list), list[0].State), func() error { revs, errs, err = s.Targets.UpdateMany(ctx, list); return err })
}

type mortalAudit struct {
	store.Audit
	m *mortal
}

func (s mortalAudit) Append(ctx context.Context, list []fleet.AuditEntry) error {
	return one(s.m, "audit", func() error { return s.Audit.Append(ctx, list) })
}

type mortalLocks struct {
	store.Collection[fleet.PolicyLock]
	m *mortal
}

func (s mortalLocks) Delete(ctx context.Context, id string) error {
	return one(s.m, "unlock", func() error { return s.Collection.Delete(ctx, id) })
}

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
	m := &mortal{Store: w.store, at: at, after: after}
	w.server.loop = w.process(m).loop
	settled := scenario(w)
	arrived := 0 // turns after the end, in which what is on its way arrives
	for limit := w.now.Add(time.Hour); arrived < 4; {
		_ = w.turn() // an error: it may be dying
		if m.dead {
			writes, last = m.writes, m.last
			m = &mortal{Store: w.store} // a new process, which is not killed
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
	if m.writes > writes {
		writes = m.writes
	}
	return end, writes, last
}

func TestReconcilerKilledAtAnyWriteReachesTheSameEnd(t *testing.T) {
	t.Parallel()
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
			for at := rollouttest.Slower; at <= writes; at += rollouttest.Slower {
				if testing.Short() && at/rollouttest.Slower%3 != 0 {
					continue
				}
				// Alternately before and after the write: most bugs show in both cases.
				after := at/rollouttest.Slower%2 == 0
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
