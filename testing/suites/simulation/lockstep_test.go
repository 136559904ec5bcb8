package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/policy"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/reconcile"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/store/storetest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// errKilled is the error of every write of a coordinator that was killed.
var errKilled = errors.New("killed")

// mortal is the store of a coordinator that is killed at its nth write: before it, or after it
// and before the coordinator gets the result. alter changes its orders; see the mutations below.
type mortal struct {
	store.Store
	left  int
	after bool
	dead  bool
	alter func(*fleet.Action)
}

func (m *mortal) write(do func() error) error {
	if m.dead {
		return errKilled
	}
	if m.left--; m.left > 0 {
		return do()
	}
	m.dead = true
	if m.after {
		_ = do() // nobody gets to know
	}
	return errKilled
}

func (m *mortal) Rollouts() store.Rollouts { return mortalRollouts{m.Store.Rollouts(), m} }
func (m *mortal) Targets() store.Targets   { return mortalTargets{m.Store.Targets(), m} }
func (m *mortal) Actions() store.Actions   { return mortalActions{m.Store.Actions(), m} }
func (m *mortal) Agents() store.Agents     { return mortalAgents{m.Store.Agents(), m} }

func (m *mortal) Policies() store.Collection[fleet.Policy] {
	return mortalPolicies{m.Store.Policies(), m}
}

type mortalPolicies struct {
	store.Collection[fleet.Policy]
	m *mortal
}

func (s mortalPolicies) Update(ctx context.Context, p fleet.Policy) (rev int64, err error) {
	err = s.m.write(func() (err error) { rev, err = s.Collection.Update(ctx, p); return err })
	return rev, err
}

type mortalRollouts struct {
	store.Rollouts
	m *mortal
}

func (s mortalRollouts) Update(ctx context.Context, r fleet.Rollout) (rev int64, err error) {
	err = s.m.write(func() (err error) { rev, err = s.Rollouts.Update(ctx, r); return err })
	return rev, err
}

type mortalTargets struct {
	store.Targets
	m *mortal
}

func (s mortalTargets) UpdateMany(ctx context.Context, list []fleet.Target) (revs []int64, errs []error, err error) {
	err = s.m.write(func() error { revs, errs, err = s.Targets.UpdateMany(ctx, list); return err })
	return revs, errs, err
}

type mortalActions struct {
	store.Actions
	m *mortal
}

func (s mortalActions) Create(ctx context.Context, a fleet.Action) (seq int64, err error) {
	if s.m.alter != nil {
		s.m.alter(&a)
	}
	err = s.m.write(func() error { seq, err = s.Actions.Create(ctx, a); return err })
	return seq, err
}

type mortalAgents struct {
	store.Agents
	m *mortal
}

func (s mortalAgents) UpdateMany(ctx context.Context, list []fleet.Agent) (errs []error, err error) {
	err = s.m.write(func() error { errs, err = s.Agents.UpdateMany(ctx, list); return err })
	return errs, err
}

// coordinator is a server that works on the rollout until it is killed.
func (sim *simulation) coordinator(m *mortal) *reconcile.Reconciler {
	sim.starts++
	events := &event.Stream{Store: sim.store.Events(), Log: sim.fleet.Log}
	health := &storehealth.Monitor{}
	feed, err := action.NewFeed(sim.ctx(), m.Actions(), func(...string) {}, health, sim.fleet.Log)
	sim.must(err)
	return reconcile.New(reconcile.Config{
		Store: m, Actions: &action.Service{Store: m, Health: health, Feed: feed, Events: events, Log: sim.fleet.Log}, Events: events, Log: sim.fleet.Log,
		LeaseOwner: fmt.Sprint("server-", sim.starts), Policies: &policy.Service{Store: m, Events: events}, Incidents: sim.incidents, Health: health,
	})
}

// lockstepHosts is how many hosts go together.
const lockstepHosts = 200

// lockstepRun is one rollout in lockstep with seeded faults.
type lockstepRun struct {
	*simulation
	random  *rand.Rand
	running *running
	id      string
	// kills is how often a coordinator was killed.
	kills int
	alter func(*fleet.Action)
}

// newLockstepRun enrols the hosts, which run web 1.0.0 and have staged 2.0.0.
func newLockstepRun(sim *simulation, seed uint64) *lockstepRun {
	run := &lockstepRun{simulation: sim, random: rand.New(rand.NewPCG(seed, 1)), running: &running{by: map[string]string{}}}
	sim.must(sim.fleet.PublishComponent(sim.ctx(), "web", "2.0.0", 20<<20))
	p, err := sim.store.Policies().Get(sim.ctx(), fleet.DefaultPolicyID)
	sim.must(err)
	p.Components = append(p.Components, agentapi.PolicyComponent{Name: "web", Runtime: "process", Lockstep: true})
	storetest.Update(sim.t, sim.store.Policies(), p)
	hosts := make([]Host, lockstepHosts)
	for i := range hosts {
		hosts[i] = Host{ID: fmt.Sprintf("web-%03d", i), Version: "1.0.0"}
	}
	sim.must(sim.fleet.Enrol(sim.ctx(), hosts...))
	for _, a := range sim.fleet.Agents() {
		a.staged = []string{"web 2.0.0"}
		a.components = []*component{{name: "web", version: "1.0.0", healthy: "1.0.0", together: &together{running: run.running}}}
		run.running.set(a.ID, "1.0.0")
	}
	sim.must(forEach(sim.fleet.Agents(), func(a *Agent) error { return a.checkin(sim.ctx()) }))
	return run
}

func (run *lockstepRun) anyHost() *together {
	return run.fleet.Agents()[run.random.IntN(lockstepHosts)].components[0].together
}

func (run *lockstepRun) anyPhase() agentapi.LockstepPhase {
	return agentapi.LockstepPhases[run.random.IntN(len(agentapi.LockstepPhases)-1)] // none is interrupted after start
}

// upTo returns a duration of at least a second.
func (run *lockstepRun) upTo(d time.Duration) time.Duration {
	return time.Second + time.Duration(run.random.Int64N(int64(d)))
}

// breakHosts draws the faults: in every other run one that undoes everything.
func (run *lockstepRun) breakHosts(seed uint64) {
	switch seed % 6 {
	case 1:
		run.anyHost().fails = agentapi.LockstepPhases[run.random.IntN(3)]
	case 3:
		run.anyHost().loses = agentapi.LockstepDrain
	case 5:
		defer func() { // after the others, none of which undoes it
			l := run.anyHost()
			l.leaves, l.gone = agentapi.LockstepPhases[run.random.IntN(2)], time.Hour
		}()
	}
	for range run.random.IntN(4) {
		run.anyHost().fails = []agentapi.LockstepPhase{agentapi.LockstepSwitch, agentapi.LockstepStart}[run.random.IntN(2)]
	}
	for range run.random.IntN(4) {
		l := run.anyHost()
		l.leaves, l.gone = agentapi.LockstepSwitch, run.upTo(time.Hour)
	}
	for range run.random.IntN(8) {
		run.anyHost().slow = run.upTo(4 * time.Minute)
	}
	for range run.random.IntN(8) {
		l := run.anyHost()
		l.boots, l.gone = run.anyPhase(), run.upTo(2*time.Minute)
	}
	for range run.random.IntN(8) {
		l := run.anyHost()
		l.leaves, l.gone = run.anyPhase(), run.upTo(3*time.Minute)
	}
}

func (run *lockstepRun) start(change func(*fleet.Plan)) {
	p := fleet.Plan{
		Name: "as one", Component: "web", Version: "2.0.0", Select: fleet.Selector{All: true},
		Strategy: fleet.Strategy{Kind: fleet.LockstepStrategy, Patience: fleet.Duration(5 * time.Minute)}, Health: fleet.HealthRule{Wait: fleet.Duration(2 * time.Minute)},
	}
	if change != nil {
		change(&p)
	}
	by := rollout.Request{Actor: "kim"}
	r, err := run.rollouts.Create(run.ctx(), p, by)
	run.must(err)
	pre, err := run.rollouts.Preview(run.ctx(), r.ID)
	run.must(err)
	_, err = run.rollouts.Start(run.ctx(), r.ID, pre.Hash, false, by)
	run.must(err)
	run.id = r.ID
}

// live lets time pass until the rollout has ended and all hosts are back, or the invariant is
// violated. Coordinators are killed at seeded writes.
func (run *lockstepRun) live() (r fleet.Rollout, violation string) {
	run.t.Helper()
	var m *mortal
	var server *reconcile.Reconciler
	for end := time.Now().Add(4 * time.Hour); time.Now().Before(end); {
		if m == nil || m.dead {
			if m != nil {
				run.kills++
			}
			m = &mortal{Store: run.store, left: 1 + run.random.IntN(40), after: run.random.IntN(2) == 0, alter: run.alter}
			server = run.coordinator(m)
		}
		if err := server.Round(run.ctx()); err != nil && !m.dead {
			run.must(err)
		}
		run.must(run.fleet.Step(run.ctx()))
		r = run.get(run.id)
		if l := r.Lockstep; l != nil && l.CommittedAt != nil && l.Undo != nil {
			return r, "the document has a commit and an undo"
		}
		if v := run.running.violation(); v != "" {
			return r, v
		}
		if r.State.Ended() && run.quiet() {
			return r, ""
		}
		step := shortStep
		if r.State.Ended() {
			step = longStep
		}
		time.Sleep(step)
	}
	run.t.Fatalf("after 4 h it is %s in %+v with %s, waiting for %+v", r.State, r.Lockstep, counts(r.Counts), r.Waiting)
	return r, ""
}

// quiet reports whether nothing is under way on any host.
func (run *lockstepRun) quiet() bool {
	return !slices.ContainsFunc(run.fleet.Agents(), func(a *Agent) bool {
		return !a.connected() || len(a.steps) > 0 || a.components[0].together.action != ""
	})
}

// TestLockstepOfManyHostsNeverRunsMixedVersions is checked after each step of each host.
func TestLockstepOfManyHostsNeverRunsMixedVersions(t *testing.T) {
	require.Time(t, "simulates two hundred hosts")
	seeds := 2 // one of which goes on, and one back
	if toolchain.Nightly() {
		seeds = 20
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			simulate(t, func(t *testing.T, sim *simulation) {
				run := newLockstepRun(sim, seed)
				run.breakHosts(seed)
				away := ""
				run.start(func(p *fleet.Plan) {
					if seed%3 != 0 { // one host is switched off, and on again at any time
						p.Strategy.Away = fleet.AwayExclude
						a := run.fleet.Agents()[run.random.IntN(lockstepHosts)]
						away = a.ID
						a.switchOff()
						time.Sleep(fleet.OfflineAfter + time.Minute)
						for range 3 {
							sim.must(sim.fleet.Step(sim.ctx()))
							time.Sleep(longStep)
						}
						a.after(run.upTo(10*time.Minute), a.switchOn)
					}
				})
				r, violation := run.live()
				if violation != "" {
					t.Fatalf("%s (%+v)", violation, r.Lockstep)
				}
				run.judge(r, away)
			})
		})
	}
}

// judge checks the end: all run the old version, or those that did not fail the new one.
func (run *lockstepRun) judge(r fleet.Rollout, away string) {
	run.t.Helper()
	l := r.Lockstep
	run.t.Logf("%s after %s, committed %v, %d kills, running %v, failed %q, undo %+v", r.State, run.elapsed(*r.EndedAt), l.Committed(), run.kills, run.running.versions(), l.Failed, l.Undo)
	if run.kills == 0 {
		run.t.Error("no coordinator was killed")
	}
	run.must(run.store.Targets().Each(run.ctx(), r.ID, func(t fleet.Target) {
		if t.AgentID == away {
			run.judgeAway(r, t)
			return
		}
		is, failsAt := run.running.version(t.AgentID), run.fleet.Agent(t.AgentID).components[0].together.fails
		want := "1.0.0"
		if l.Committed() {
			want = "2.0.0"
			if failsAt == agentapi.LockstepSwitch {
				want = ""
			}
		}
		if is != want {
			run.t.Errorf("%s runs %q, want %q; its target is %s (%s)", t.AgentID, is, want, t.State, t.Code)
		}
		if good := t.State == fleet.TargetSucceeded; good && (!l.Committed() || failsAt.Reaches(agentapi.LockstepSwitch)) {
			run.t.Errorf("%s has succeeded, and fails in %q", t.AgentID, failsAt)
		}
	}))
}

// judgeAway checks the host that was switched off: it runs what the others run, or is held.
func (run *lockstepRun) judgeAway(r fleet.Rollout, t fleet.Target) {
	run.t.Helper()
	p, err := run.store.Policies().Get(run.ctx(), fleet.DefaultPolicyID)
	run.must(err)
	want := "1.0.0"
	if r.Lockstep.Committed() {
		want = "2.0.0"
	}
	if f := p.Component("web").InForce; f == nil || f.Version != want || f.Changing {
		run.t.Errorf("in force is %+v, want %s", f, want)
	}
	c, is := run.fleet.Agent(t.AgentID).components[0], run.running.version(t.AgentID)
	run.t.Logf("%s, which was switched off, has %s, runs %q, held %v (%s)", t.AgentID, c.version, is, c.together.held, t.Code)
	if c.version == want && is != want && c.together.fails == "" || c.version != want && (is != "" || !c.together.held) {
		run.t.Errorf("%s, which was switched off, has %s, runs %q, held %v; %s is in force", t.AgentID, c.version, is, c.together.held, want)
	}
}

// A rollout in which one barrier is missing must not pass.
func TestLockstepWithoutABarrierIsCaught(t *testing.T) {
	require.Time(t, "simulates two hundred hosts")
	for _, c := range []struct {
		name string
		// from is what an order lets hosts do, and to what it lets them do instead.
		from, to agentapi.LockstepPhase
		fails    agentapi.LockstepPhase
	}{
		{"hosts do not wait for the slowest to drain", agentapi.LockstepDrain, agentapi.LockstepStart, ""},
		{"hosts do not wait for the copies of the others", agentapi.LockstepBackup, agentapi.LockstepStart, agentapi.LockstepBackup},
		{"hosts do not wait for the second verification", agentapi.LockstepStop, agentapi.LockstepStart, agentapi.LockstepStop},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			simulate(t, func(t *testing.T, sim *simulation) {
				run := newLockstepRun(sim, 1)
				l := run.anyHost()
				l.fails, l.slow = c.fails, time.Minute
				run.alter = func(a *fleet.Action) { removeBarrier(t, a, c.from, c.to) }
				run.start(nil)
				if r, violation := run.live(); violation == "" {
					t.Errorf("nothing was noticed: %s, %+v, running %v", r.State, r.Lockstep, run.running.versions())
				}
			})
		})
	}
}

// removeBarrier lets the hosts of an order go on to a later phase.
func removeBarrier(t *testing.T, a *fleet.Action, from, to agentapi.LockstepPhase) {
	t.Helper()
	switch a.Type {
	case agentapi.ActionUpgrade:
		d := a.Upgrade()
		if d.Component != nil && d.Component.Lockstep != nil && d.Component.Lockstep.Until == from {
			d.Component.Lockstep.Until = to
			a.Data = event.Data(d)
		}
	case agentapi.ActionProceed:
		var d agentapi.ProceedData
		if err := json.Unmarshal(a.Data, &d); err != nil {
			t.Fatal(err)
		}
		if d.Until == from {
			d.Until = to
			a.Data = event.Data(d)
		}
	}
}
