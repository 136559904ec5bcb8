package rollout_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/store/storetest"
)

// harness runs the service on a real store with a clock of its own.
type harness struct {
	t       testing.TB
	store   store.Store
	service *rollout.Service

	mu      sync.Mutex
	now     time.Time
	signals int
}

var kim = rollout.Request{Actor: "kim", Why: "release day"}

func newHarness(t testing.TB) *harness {
	t.Helper()
	s := sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))
	d := &harness{t: t, store: s, now: time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)}
	d.service = d.serve(s)
	for _, v := range []string{"1.0.0", "1.1.0", "1.2.0"} {
		d.must(s.Packages().Create(t.Context(), fleet.Package{
			File: "muster-agent-" + v + "-linux-amd64.tar.gz", Version: v, OS: "linux", Arch: "amd64", Size: 1000, SHA512: strings.Repeat("ab", 64), SHA256: strings.Repeat("ab", 32),
		}))
	}
	return d
}

func (d *harness) serve(s store.Store) *rollout.Service {
	log := slog.New(slog.DiscardHandler)
	events := &event.Stream{Store: s.Events(), Log: log, Now: d.time}
	health := &storehealth.Monitor{}
	feed, err := action.NewFeed(d.t.Context(), s.Actions(), func(...string) {}, health, log)
	d.must(err)
	return &rollout.Service{
		Store: s, Events: events, Log: log, Now: d.time, Reconciler: d,
		Actions: &action.Service{Store: s, Feed: feed, Health: health, Events: events, Log: log, Now: d.time, Locks: rollout.Locks{Store: s}, Guards: rollout.Guards{Store: s}},
	}
}

// Signal implements Reconciler by counting the calls.
func (d *harness) Signal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.signals++
}

func (d *harness) time() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

func (d *harness) later(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = d.now.Add(by)
}

func (d *harness) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *harness) wantKind(err error, kind fleet.Kind, text string) {
	d.t.Helper()
	if err == nil || fleet.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		d.t.Fatalf("error is %v (%s), want one of kind %s that says %q", err, fleet.KindOf(err), kind, text)
	}
}

func document(id, version, policy string, now time.Time) fleet.Agent {
	meta := fmt.Sprintf(`{"elastic":{"agent":{"version":%q,"upgradeable":true}},"host":{"hostname":"host-%s","architecture":"x86_64"},"os":{"type":"linux"}}`, version, id)
	return fleet.Agent{
		ID: id, Type: "PERMANENT", Active: true, PolicyID: policy, PolicyRev: 1, AccessKeyID: "key-" + id, AccessKeyHash: "hash", EnrolledAt: now,
		Version: version, LocalMetadata: json.RawMessage(meta), Tags: []string{}, Last: fleet.LastSeen{At: &now, Status: "online"},
	}
}

// enrol adds agents that run 1.1.0, in the policy default unless the name is
// policy/agent.
func (d *harness) enrol(names ...string) {
	d.t.Helper()
	for _, name := range names {
		policy, id, ok := strings.Cut(name, "/")
		if !ok {
			policy, id = fleet.DefaultPolicyID, name
		}
		d.must(d.store.Agents().Create(d.t.Context(), document(id, "1.1.0", policy, d.now)))
		d.must(d.store.Agents().Touch(d.t.Context(), []fleet.Touch{{AgentID: id, At: d.now, Status: "online"}}))
	}
}

func (d *harness) change(id string, f func(*fleet.Agent)) {
	d.t.Helper()
	_, err := store.UpdateAgent(d.t.Context(), d.store.Agents(), id, func(a *fleet.Agent) bool { f(a); return true })
	d.must(err)
}

// springPlan returns a rolling rollout of 1.2.0 to all agents, two at a time.
func springPlan(change ...func(*fleet.Plan)) fleet.Plan {
	p := fleet.Plan{
		Name: "spring", Version: "1.2.0", Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: fleet.Rolling, BatchSize: 2},
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

func forPolicy(ids ...string) func(*fleet.Plan) {
	return func(p *fleet.Plan) { p.Select = fleet.Selector{Policies: ids} }
}

func called(name string) func(*fleet.Plan) { return func(p *fleet.Plan) { p.Name = name } }

func (d *harness) create(change ...func(*fleet.Plan)) fleet.Rollout {
	d.t.Helper()
	r, err := d.service.Create(d.t.Context(), springPlan(change...), kim)
	d.must(err)
	return r
}

func (d *harness) preview(r fleet.Rollout) fleet.Preview {
	d.t.Helper()
	pre, err := d.service.Preview(d.t.Context(), r.ID)
	d.must(err)
	return pre
}

func (d *harness) start(change ...func(*fleet.Plan)) fleet.Rollout {
	d.t.Helper()
	r := d.create(change...)
	r, err := d.service.Start(d.t.Context(), r.ID, d.preview(r).Hash, false, kim)
	d.must(err)
	return r
}

func (d *harness) rollout(id string) fleet.Rollout {
	d.t.Helper()
	r, err := d.service.Get(d.t.Context(), id)
	d.must(err)
	return r
}

// edit changes a rollout as the reconciler would.
func (d *harness) edit(id string, f func(*fleet.Rollout)) {
	d.t.Helper()
	r := d.rollout(id)
	f(&r)
	storetest.Update(d.t, d.store.Rollouts(), r)
}

// end ends a target as the reconciler would, and sets the version that its agent then
// runs.
func (d *harness) end(id, agent string, state fleet.TargetState) {
	d.t.Helper()
	t, err := d.store.Targets().Get(d.t.Context(), id, agent)
	d.must(err)
	t.State, t.Code = state, map[fleet.TargetState]fleet.ReasonCode{fleet.TargetSucceeded: fleet.WhyHealthy, fleet.TargetFailed: fleet.WhyUnhealthy}[state]
	_, errs, err := d.store.Targets().UpdateMany(d.t.Context(), []fleet.Target{t})
	d.must(errors.Join(append(errs, err)...))
	if state == fleet.TargetSucceeded || state == fleet.TargetFailed {
		d.change(agent, func(a *fleet.Agent) {
			a.LastHealthyVersion, a.Version = a.Version, t.To
			a.LocalMetadata = document(agent, t.To, a.PolicyID, d.now).LocalMetadata
			if state == fleet.TargetSucceeded {
				a.LastHealthyVersion = t.To
			}
		})
	}
	d.edit(id, func(r *fleet.Rollout) {
		*r.Counts.Of(fleet.TargetPending)--
		*r.Counts.Of(state)++
	})
}

func (d *harness) targets(id string) []fleet.Target {
	d.t.Helper()
	list, _, err := d.service.ListTargets(d.t.Context(), store.TargetQuery{RolloutID: id, Limit: 10_000})
	d.must(err)
	return list
}

func (d *harness) agents(id string) []string {
	d.t.Helper()
	var ids []string
	for _, t := range d.targets(id) {
		ids = append(ids, t.AgentID)
	}
	slices.Sort(ids)
	return ids
}

// locks returns the policy locks in the form policy=rollout.
func (d *harness) locks() []string {
	d.t.Helper()
	list, _, err := d.store.PolicyLocks().List(d.t.Context(), 0, 0)
	d.must(err)
	var locks []string
	for _, l := range list {
		locks = append(locks, l.PolicyID+"="+l.RolloutID)
	}
	slices.Sort(locks)
	return locks
}

// trail returns the verbs of the audit trail, oldest first.
func (d *harness) trail(id string) []string {
	d.t.Helper()
	entries, _, err := d.service.Trail(d.t.Context(), id, 0, 1000)
	d.must(err)
	var verbs []string
	for _, e := range slices.Backward(entries) {
		if e.Actor != "kim" || e.Subject != id || !strings.HasPrefix(e.Text, "kim ") {
			d.t.Errorf("entry is %+v", e)
		}
		verbs = append(verbs, e.Verb)
	}
	return verbs
}

func (d *harness) events() []string {
	d.t.Helper()
	list, err := d.store.Events().After(d.t.Context(), 0, 1000)
	d.must(err)
	var types []string
	for _, e := range list {
		types = append(types, e.Type)
	}
	return types
}

func (d *harness) previews() int {
	d.t.Helper()
	_, n, err := d.store.Previews().List(d.t.Context(), 0, 0)
	d.must(err)
	return n
}
