package horde

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/incident"
	"github.com/muster-fleet/muster/server/policy"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/reconcile"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/storehealth"
)

// world is one server and its fleet under virtual time.
type world struct {
	t          *testing.T
	store      store.Store
	fleet      *Fleet
	rollouts   *rollout.Service
	reconciler *reconcile.Reconciler
	incidents  *incident.Service
	manifests  manifests
	began      time.Time

	made  []*made // rollouts, in the order they were made
	busy  time.Time
	lives int // of the server process

	pages map[string]string // what stands for ids in answers
}

// made is a rollout as the script knows it.
type made struct {
	name, id, hash string
	last           string // what was last told of it
	// begun are the agents that had begun when it stopped; nil while it goes on.
	begun map[string]bool
}

// inWorld runs f in a bubble of virtual time, which begins on Saturday the 1st of
// January 2000, 00:00 UTC.
func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), filepath.Join(dir, "muster.db"), sqlite.Options{CommitDelay: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		f(t, newWorld(t, s))
	})
}

func newWorld(t *testing.T, s store.Store) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	f, err := newFleet(t.Context(), s, log, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, store: s, fleet: f, manifests: manifests{}, began: time.Now(), pages: map[string]string{}}
	policies := &policy.Service{Store: s, Events: f.Events}
	w.must(policies.EnsureDefault(t.Context()))
	w.incidents = &incident.Service{Store: s.Incidents(), Events: f.Events, Audit: s.Audit(), Log: log}
	w.rollouts = &rollout.Service{Store: s, Actions: f.Actions, Events: f.Events, Log: log, Manifests: w.manifests, Timeouts: policies.Timeouts}
	f.Actions.Locks = w.rollouts.Locked
	w.restart()
	return w
}

// restart is what kill -9 of the server and its start again leave: a reconciler
// that knows nothing.
func (w *world) restart() {
	w.lives++
	w.reconciler = &reconcile.Reconciler{
		Store: w.store, Actions: w.fleet.Actions, Events: w.fleet.Events, Log: w.fleet.Log,
		Holder: fmt.Sprint("server-", w.lives), Timeouts: w.rollouts.Timeouts, Incidents: w.incidents, Health: &storehealth.Monitor{},
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%s: %v", w.ago(time.Now()), err)
	}
}

func (w *world) ctx() context.Context { return w.t.Context() }

// ago spells a time by how long the world has stood.
func (w *world) ago(at time.Time) string {
	return "+" + at.Sub(w.began).Round(time.Second).String()
}

// How far time moves between two rounds: a second while something happens, as the
// server's own loop, and more while nothing does.
const (
	shortStep = time.Second
	longStep  = 15 * time.Second
	// restless is how long after the last change rounds stay close.
	restless = 5 * time.Second
)

// round is one round of the server, and what the agents make of it.
func (w *world) round() {
	w.t.Helper()
	w.must(w.reconciler.Round(w.ctx()))
	w.must(w.fleet.Step(w.ctx()))
}

// advance lets time pass, and tells what becomes of the rollouts meanwhile.
func (w *world) advance(d time.Duration) string {
	var out strings.Builder
	for end := time.Now().Add(d); ; {
		w.round()
		for _, m := range w.made {
			r := w.get(m.id)
			w.check(m, &r)
			if now := w.stand(&r); now != m.last {
				m.last = now
				w.busy = time.Now()
				fmt.Fprintf(&out, "%s %s %s, %s\n", w.ago(time.Now()), m.name, now, counts(r.Counts))
			}
		}
		left := time.Until(end)
		if left <= 0 {
			return out.String()
		}
		step := longStep
		if next := w.fleet.Next(); !next.IsZero() {
			step = min(step, time.Until(next))
		}
		if time.Since(w.busy) < restless {
			step = shortStep
		}
		time.Sleep(min(max(step, shortStep), left))
	}
}

func (w *world) get(id string) fleet.Rollout {
	w.t.Helper()
	r, err := w.rollouts.Get(w.ctx(), id)
	w.must(err)
	return r
}

// stand is where a rollout is, but for its counts.
func (w *world) stand(r *fleet.Rollout) string {
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
		s += fmt.Sprintf(", stopped by %s: %s (%d withdrawn)", r.Stop.Kind, w.scrub(strings.TrimSuffix(r.Stop.Text, ".")), r.Stop.Withdrawn)
		return s
	}
	if r.State.Active() {
		for _, wait := range r.Waiting {
			s += ", waits: " + string(wait.Code)
			if wait.Until != nil {
				s += " until " + w.ago(*wait.Until)
			}
		}
	}
	return s
}

// check judges what must hold at every moment.
func (w *world) check(m *made, r *fleet.Rollout) {
	w.t.Helper()
	if limit := r.Plan.Limits.MaxParallel; limit > 0 && r.Counts.Total > limit {
		_, inFlight, err := w.store.Targets().List(w.ctx(), store.TargetQuery{
			RolloutID: r.ID, States: []fleet.TargetState{fleet.TargetOffered, fleet.TargetUpgrading, fleet.TargetVerifying},
		})
		w.must(err)
		if inFlight > limit {
			w.t.Errorf("%s %s: %d targets are in flight, at most %d may be", w.ago(time.Now()), m.name, inFlight, limit)
		}
	}
	c := r.Counts
	if added := c.Pending + c.Held + c.InFlight() + c.Attempted() + c.Withdrawn + c.Skipped + c.Expired + c.Cancelled; added != c.Total {
		w.t.Errorf("%s %s: the counts add up to %d of %d: %+v", w.ago(time.Now()), m.name, added, c.Total, c)
	}
	if r.State != fleet.RolloutPaused || r.RollbackOf != "" {
		m.begun = nil
		return
	}
	first := m.begun == nil
	if first {
		m.begun = map[string]bool{}
	}
	for _, a := range w.fleet.Agents() { // hosts that are away have not heard of it
		if (a.Begun(r.Plan.Version) || a.Version() == r.Plan.Version) && !m.begun[a.ID] {
			m.begun[a.ID] = true
			if !first && a.Reachable() {
				w.t.Errorf("%s %s: %s began after the rollout had stopped", w.ago(time.Now()), m.name, a.ID)
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

// scrub puts names in the place of ids and hashes, which differ from run to run.
func (w *world) scrub(text string) string {
	for id, name := range w.pages {
		text = strings.ReplaceAll(text, id, name)
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
