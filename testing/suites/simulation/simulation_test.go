package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/agents/policy"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/incident"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/reconcile"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/store/storehealth"
)

// simulation is one server and its fleet under virtual time.
type simulation struct {
	t          *testing.T
	store      store.Store
	fleet      *Fleet
	rollouts   *rollout.Service
	reconciler *reconcile.Reconciler
	incidents  *incident.Service
	manifests  manifests
	startedAt  time.Time

	known      []*knownRollout // in the order of creation
	lastChange time.Time
	starts     int // of the server process

	placeholders map[string]string // placeholders for ids and hashes in the output
}

// knownRollout is a rollout that the script has created.
type knownRollout struct {
	name, id, hash string
	lastShown      string // its description when it was last printed
	// begun has the agents that had begun when the rollout stopped; nil while it runs.
	begun map[string]bool
}

// simulate runs f under virtual time (testing/synctest), which begins on Saturday,
// 1 January 2000, 00:00 UTC.
func simulate(t *testing.T, f func(t *testing.T, sim *simulation)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), filepath.Join(dir, "muster.db"), sqlite.Options{CommitDelay: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		f(t, newSimulation(t, s))
	})
}

func newSimulation(t *testing.T, s store.Store) *simulation {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	f, err := newFleet(t.Context(), s, log, nil)
	if err != nil {
		t.Fatal(err)
	}
	sim := &simulation{t: t, store: s, fleet: f, manifests: manifests{}, startedAt: time.Now(), placeholders: map[string]string{}}
	policies := &policy.Service{Store: s, Events: f.Events}
	sim.must(policies.EnsureDefault(t.Context()))
	sim.incidents = &incident.Service{Store: s.Incidents(), Events: f.Events, Audit: s.Audit(), Log: log}
	sim.rollouts = &rollout.Service{Store: s, Actions: f.Actions, Events: f.Events, Log: log, UpgradeManifests: sim.manifests, Policies: policies}
	sim.restart()
	return sim
}

// restart replaces the reconciler by a new one, as kill -9 and a start of the server do.
func (sim *simulation) restart() {
	sim.starts++
	sim.reconciler = reconcile.New(reconcile.Config{
		Store: sim.store, Actions: sim.fleet.Actions, Events: sim.fleet.Events, Log: sim.fleet.Log,
		LeaseOwner: fmt.Sprint("server-", sim.starts), Policies: &policy.Service{Store: sim.store, Events: sim.fleet.Events}, Incidents: sim.incidents, Health: &storehealth.Monitor{},
	})
}

func (sim *simulation) must(err error) {
	sim.t.Helper()
	if err != nil {
		sim.t.Fatalf("%s: %v", sim.elapsed(time.Now()), err)
	}
}

func (sim *simulation) ctx() context.Context { return sim.t.Context() }

// elapsed formats a time relative to the start of the simulation.
func (sim *simulation) elapsed(at time.Time) string {
	return "+" + at.Sub(sim.startedAt).Round(time.Second).String()
}

// The time between two rounds: a second while something happens, as in the server's own
// loop, and more while nothing does.
const (
	shortStep = time.Second
	longStep  = 15 * time.Second
	// shortFor is how long after the last change the short step is used.
	shortFor = 5 * time.Second
)

// round runs one round of the reconciler and one step of the agents.
func (sim *simulation) round() {
	sim.t.Helper()
	sim.must(sim.reconciler.Round(sim.ctx()))
	sim.must(sim.fleet.Step(sim.ctx()))
}

// advance lets time pass, and returns every change of the rollouts.
func (sim *simulation) advance(d time.Duration) string {
	var out strings.Builder
	for end := time.Now().Add(d); ; {
		sim.round()
		for _, m := range sim.known {
			r := sim.get(m.id)
			sim.check(m, &r)
			if now := sim.describe(&r); now != m.lastShown {
				m.lastShown = now
				sim.lastChange = time.Now()
				fmt.Fprintf(&out, "%s %s %s, %s\n", sim.elapsed(time.Now()), m.name, now, counts(r.Counts))
			}
		}
		left := time.Until(end)
		if left <= 0 {
			return out.String()
		}
		step := longStep
		if next := sim.fleet.Next(); !next.IsZero() {
			step = min(step, time.Until(next))
		}
		if time.Since(sim.lastChange) < shortFor {
			step = shortStep
		}
		time.Sleep(min(max(step, shortStep), left))
	}
}

func (sim *simulation) get(id string) fleet.Rollout {
	sim.t.Helper()
	r, err := sim.rollouts.Get(sim.ctx(), id)
	sim.must(err)
	return r
}

// describe returns the state of a rollout without its counts.
func (sim *simulation) describe(r *fleet.Rollout) string {
	s := string(r.State)
	for i := range r.Batches {
		if b := &r.Batches[i]; b.StartedAt != nil && (i == len(r.Batches)-1 || r.Batches[i+1].StartedAt == nil) && r.State.Active() {
			s += fmt.Sprintf(", batch %d of %d", b.Index+1, len(r.Batches))
			if b.Kind != fleet.BatchRegular {
				s += " (" + string(b.Kind) + ")"
			}
		}
	}
	if r.Stop != nil && r.State == fleet.RolloutPaused {
		s += fmt.Sprintf(", stopped by %s: %s (%d withdrawn)", r.Stop.Kind, sim.replaceIDs(strings.TrimSuffix(r.Stop.Text, ".")), r.Stop.Withdrawn)
		return s
	}
	if r.State.Active() {
		for _, wait := range r.Waiting {
			s += ", waits: " + string(wait.Code)
			if wait.Until != nil {
				s += " until " + sim.elapsed(*wait.Until)
			}
		}
	}
	return s
}

// check checks the invariants that must always hold.
func (sim *simulation) check(m *knownRollout, r *fleet.Rollout) {
	sim.t.Helper()
	if limit := r.Plan.Limits.MaxParallel; limit > 0 && r.Counts.Total > limit {
		_, inFlight, err := sim.store.Targets().List(sim.ctx(), store.TargetQuery{
			RolloutID: r.ID, States: []fleet.TargetState{fleet.TargetOffered, fleet.TargetUpgrading, fleet.TargetVerifying},
		})
		sim.must(err)
		if inFlight > limit {
			sim.t.Errorf("%s %s: %d targets are in flight, at most %d may be", sim.elapsed(time.Now()), m.name, inFlight, limit)
		}
	}
	c := r.Counts
	if added := c.Pending + c.Held + c.InFlight() + c.Attempted() + c.Withdrawn + c.Skipped + c.Expired + c.Cancelled; added != c.Total {
		sim.t.Errorf("%s %s: the counts add up to %d of %d: %+v", sim.elapsed(time.Now()), m.name, added, c.Total, c)
	}
	if r.State != fleet.RolloutPaused || r.RollbackOf != "" {
		m.begun = nil
		return
	}
	first := m.begun == nil
	if first {
		m.begun = map[string]bool{}
	}
	for _, a := range sim.fleet.Agents() { // hosts that are offline do not know of the stop
		if a.Begun(&r.Plan) && !m.begun[a.ID] {
			m.begun[a.ID] = true
			if !first && a.Reachable() {
				sim.t.Errorf("%s %s: %s began after the rollout had stopped", sim.elapsed(time.Now()), m.name, a.ID)
			}
		}
	}
}

var states = []fleet.TargetState{
	fleet.TargetPending, fleet.TargetHeld, fleet.TargetOffered, fleet.TargetUpgrading, fleet.TargetVerifying, fleet.TargetSucceeded,
	fleet.TargetFailed, fleet.TargetRolledBack, fleet.TargetWithdrawn, fleet.TargetSkipped, fleet.TargetExpired, fleet.TargetCancelled,
}

func counts(c fleet.Counts) string {
	var out []string
	for _, s := range states {
		if n := *c.Of(s); n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, s))
		}
	}
	if len(out) == 0 {
		return "no targets"
	}
	return strings.Join(out, " ")
}

// replaceIDs replaces ids and hashes, which differ from run to run, by names.
func (sim *simulation) replaceIDs(text string) string {
	// The id of a rollback begins with that of its rollout, and is replaced first.
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(sim.placeholders))) {
		text = strings.ReplaceAll(text, id, sim.placeholders[id])
	}
	return text
}

// manifests are upgrade manifests by profile/id.
type manifests map[string]plan.UpgradeManifest

func (m manifests) Get(_ context.Context, profile, id string) (plan.UpgradeManifest, error) {
	if got, ok := m[profile+"/"+id]; ok {
		return got, nil
	}
	return plan.UpgradeManifest{}, fleet.Errorf(fleet.NotFound, "there is no upgrade manifest %s/%s", profile, id)
}

func (m manifests) List(context.Context) ([]plan.UpgradeManifest, error) {
	var out []plan.UpgradeManifest
	for _, one := range m {
		out = append(out, one)
	}
	return out, nil
}
