// Package reconcile carries out declared fleets: [Decide] compares an object with the rollout that
// its status names and with a census of its agents, and returns one step; the server that holds the
// lease takes it, through the service of rollouts, so that all rules of rollouts hold. Operators
// change objects through package declare, which signals this one.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/sequence"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/lease"
)

const (
	// Interval is between two rounds. A change through this server is carried out at once; one
	// through another server, and the end of a rollout, are noticed within it.
	Interval = 5 * time.Second
	// censusPause is how many times as long as the last census took the next one is put off, so that
	// reading all agents costs a fiftieth of a processor. askedPause is the same while an object
	// cannot go on without one.
	censusPause, askedPause = 50, 5
	// minCensusPause is for small fleets, where a census takes no time: an agent that joins or comes
	// back waits for it. An outage ends for many agents at once, which this collects.
	minCensusPause = 30 * time.Second
	// firstRetry and lastRetry are after how long a refused step is tried again: each time twice as
	// long.
	firstRetry, lastRetry = 30 * time.Second, 5 * time.Minute
	// maxSteps bounds the steps of one object in a round: the longest way, from a new hash to a
	// rollout under way, has five.
	maxSteps = 10
	// leaseID is the lease whose owner carries out objects.
	leaseID = "declared-fleets"
)

// Objects has the declared fleets.
type Objects interface {
	// All returns all objects.
	All(ctx context.Context) ([]spec.Fleet, error)
	// UpdateStatus replaces the status of an object, unless it was changed since it was read, and
	// returns it as it is stored then.
	UpdateStatus(ctx context.Context, f *spec.Fleet, status spec.Status) (spec.Fleet, error)
}

// Wake requests rounds. It is made before the services that change objects, which signal it.
type Wake chan struct{}

// NewWake returns a Wake.
func NewWake() Wake { return make(Wake, 1) }

// Signal requests a round now.
func (w Wake) Signal() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Config is what a service depends on.
type Config struct {
	Objects  Objects
	Wake     Wake
	Store    store.Store
	Rollouts *rollout.Service
	Lease    *lease.Owner
	Log      *slog.Logger
	Now      clock.Clock
}

// Service carries out declared fleets.
type Service struct {
	Config

	members   map[string]*Members // of the last census, by uid
	countedAt time.Time           // when the last census ended
	took      time.Duration       // how long it took
	refused   map[string]refusal  // by uid
	hashes    map[string]hashed   // by uid
}

// refusal is a step that was refused, and is tried again at a later time.
type refusal struct {
	generation int64
	text       string
	delay      time.Duration
	until      time.Time
}

// hashed is the hash of a generation of an object.
type hashed struct {
	generation int64
	hash       string
}

// New returns a service. Objects are carried out while its Run is running.
func New(c Config) *Service {
	return &Service{Config: c, members: map[string]*Members{}, refused: map[string]refusal{}, hashes: map[string]hashed{}}
}

// Run runs rounds, on the server that owns the lease, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	lease.Rounds{Work: "declared fleets", Lease: s.Lease, Interval: Interval, Wake: s.Wake, Log: s.Log}.Run(ctx, s.Round)
}

// Round takes the steps that are due, if this server owns the lease. It must not be called
// concurrently.
func (s *Service) Round(ctx context.Context) error {
	owned, err := s.Lease.Take(ctx, leaseID)
	if err != nil || !owned {
		return err
	}
	objects, err := s.read(ctx)
	if err != nil || len(objects) == 0 {
		return err
	}
	asked, err := s.advanceAll(ctx, objects)
	if now := s.Now.UTC(); err != nil || !s.censusDue(asked, now) {
		return err
	}
	if err := s.count(ctx, objects); err != nil {
		return fmt.Errorf("count the agents of declared fleets: %w", err)
	}
	_, err = s.advanceAll(ctx, objects)
	return err
}

// read returns all objects, the oldest first, and forgets what is known of those that are gone.
func (s *Service) read(ctx context.Context) ([]*spec.Fleet, error) {
	all, err := s.Objects.All(ctx)
	if err != nil {
		return nil, err
	}
	objects := make([]*spec.Fleet, len(all))
	here := make(map[string]bool, len(all))
	for i := range all {
		objects[i] = &all[i]
		here[all[i].Metadata.UID] = true
	}
	slices.SortFunc(objects, spec.Older)
	drop(s.members, here)
	drop(s.refused, here)
	drop(s.hashes, here)
	return objects, nil
}

func drop[T any](m map[string]T, here map[string]bool) {
	for uid := range m {
		if !here[uid] {
			delete(m, uid)
		}
	}
}

func (s *Service) censusDue(asked bool, now time.Time) bool {
	pause := max(minCensusPause, censusPause*s.took)
	if asked {
		pause = askedPause * s.took
	}
	return s.countedAt.IsZero() || now.Sub(s.countedAt) >= pause
}

// count takes a census of the agents of all objects.
func (s *Service) count(ctx context.Context, objects []*spec.Fleet) error {
	start := s.Now.UTC()
	wishes, err := s.wishes(ctx, objects)
	if err != nil {
		return err
	}
	timeouts := map[string]time.Duration{}
	if s.Rollouts.Policies != nil {
		if timeouts, err = s.Rollouts.Policies.Timeouts(ctx); err != nil {
			return err
		}
	}
	census, err := NewCensus(objects, wishes, timeouts, start)
	if err != nil {
		return err
	}
	if err := s.Store.Agents().Each(ctx, store.AgentFilter{ActiveOnly: true}, func(a fleet.Agent) { census.Add(&a) }); err != nil {
		return err
	}
	for i, f := range objects {
		s.members[f.Metadata.UID] = census.Of(i)
	}
	s.countedAt = s.Now.UTC()
	s.took = s.countedAt.Sub(start)
	return nil
}

// wishes resolves what each object desires.
func (s *Service) wishes(ctx context.Context, objects []*spec.Fleet) ([][]Wish, error) {
	catalogs := map[string]fleet.Catalog{}
	policies, _, err := s.Store.Policies().List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	out := make([][]Wish, len(objects))
	for i, f := range objects {
		for _, p := range f.Spec.Parts() {
			catalog, ok := catalogs[p.Component]
			if !ok {
				var err error
				if catalog, err = s.Rollouts.Actions.CatalogOf(ctx, p.Component); err != nil {
					return nil, err
				}
				catalogs[p.Component] = catalog
			}
			w, err := s.wish(ctx, p, catalog)
			if err != nil {
				return nil, err
			}
			w.Listed = map[string]bool{}
			for i := range policies {
				if policies[i].Component(p.Component) != nil {
					w.Listed[policies[i].ID] = true
				}
			}
			out[i] = append(out[i], w)
		}
	}
	return out, nil
}

func (s *Service) wish(ctx context.Context, p spec.Part, catalog fleet.Catalog) (Wish, error) {
	w := Wish{Part: p, Version: p.Version, Catalog: catalog}
	if p.UpgradeManifest != nil {
		m, err := s.Rollouts.GetUpgradeManifest(ctx, p.UpgradeManifest.Profile, p.UpgradeManifest.ID)
		var refusal *fleet.Error
		switch {
		case errors.As(err, &refusal) && refusal.Kind != fleet.Unavailable && refusal.Kind != fleet.Internal:
			w.Problem = refusal.Message
			return w, nil
		case err != nil:
			return w, err
		case m.Component != p.Component:
			w.Problem = fmt.Sprintf("the upgrade manifest %s/%s is not for %s", m.Profile, m.ID, p.Name())
			return w, nil
		}
		w.Version, w.SourceURI = m.Version, m.SourceURI
	}
	if w.SourceURI == "" && len(catalog.Of(w.Version)) == 0 {
		w.Problem = fmt.Sprintf("no package of %s is published: publish it with `muster package push`", fleet.What(p.Component, w.Version))
	}
	return w, nil
}

// advanceAll takes the steps of all objects that are due. asked reports whether one of them needs a
// census to go on.
func (s *Service) advanceAll(ctx context.Context, objects []*spec.Fleet) (asked bool, err error) {
	var errs []error
	for _, f := range objects {
		if !s.Lease.Owns(leaseID) {
			break
		}
		needs, err := s.advance(ctx, f)
		asked = asked || needs
		if err != nil && fleet.KindOf(err) != fleet.Conflict { // it was changed meanwhile: the next round reads it
			errs = append(errs, fmt.Errorf("fleet %s: %w", f.Metadata.Name, err))
		}
	}
	return asked, errors.Join(errs...)
}

// advance takes the steps of an object that are due.
func (s *Service) advance(ctx context.Context, f *spec.Fleet) (asked bool, err error) {
	uid := f.Metadata.UID
	for range maxSteps {
		now := s.Now.UTC().Truncate(time.Second) // as times of Kubernetes' objects
		seen := Seen{Members: s.members[uid]}
		refused, delayed := s.refused[uid]
		if delayed && refused.generation != f.Metadata.Generation {
			delete(s.refused, uid)
			refused, delayed = refusal{}, false
		}
		seen.Refused = refused.text
		if seen.Rollout, err = s.rollout(ctx, &f.Status); err != nil {
			return asked, err
		}
		d := Decide(f, s.hash(f), seen, now)
		asked = asked || d.Count
		if !reflect.DeepEqual(d.Status, f.Status) {
			if underWay(&f.Status) && !underWay(&d.Status) {
				delete(s.members, uid) // the rollout has changed what the agents run
			}
			if *f, err = s.Objects.UpdateStatus(ctx, f, d.Status); err != nil {
				return asked, err
			}
			continue
		}
		switch {
		case d.Act == sequence.Wait && delayed && !d.Count:
			delete(s.refused, uid) // what was refused is no longer to be done
			continue
		case d.Act == sequence.Wait, delayed && s.Now.UTC().Before(refused.until):
			return asked, nil
		}
		if err := s.take(ctx, f, d, refused); err != nil {
			return asked, err
		}
	}
	return asked, nil
}

func underWay(st *spec.Status) bool { return st.Rollout != nil && st.Rollout.State.Active() }

// take executes a step. One that the rules of rollouts refuse is tried again later.
func (s *Service) take(ctx context.Context, f *spec.Fleet, d Decision, last refusal) error {
	uid := f.Metadata.UID
	err := s.act(ctx, f, d)
	var refused *fleet.Error
	switch {
	case err == nil:
		delete(s.refused, uid)
		return nil
	case !errors.As(err, &refused), refused.Kind == fleet.Unavailable, refused.Kind == fleet.Internal, refused.Kind == fleet.TooMany:
		return err
	}
	delay := min(max(firstRetry, 2*last.delay), lastRetry)
	s.refused[uid] = refusal{f.Metadata.Generation, refused.Message, delay, s.Now.UTC().Add(delay)}
	s.Log.Info("a step of a declared fleet waits", "fleet", f.Metadata.Name, "step", d.Act, "error", err, "retry", delay)
	return nil
}

// hash returns the rollout hash of an object.
func (s *Service) hash(f *spec.Fleet) string {
	h, ok := s.hashes[f.Metadata.UID]
	if !ok || h.generation != f.Metadata.Generation {
		h = hashed{f.Metadata.Generation, spec.Hash(f)}
		s.hashes[f.Metadata.UID] = h
	}
	return h.hash
}

// rollout reads the rollout of a status, unless it cannot matter any more; nil: there is none.
func (s *Service) rollout(ctx context.Context, st *spec.Status) (*fleet.Rollout, error) {
	if st.Rollout == nil || st.Rollout.State.Ended() && st.LastCompletedRolloutHash == st.RequestedRolloutHash {
		return nil, nil //nolint:nilnil // as documented
	}
	r, err := s.Store.Rollouts().Get(ctx, st.Rollout.ID)
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		return nil, nil //nolint:nilnil // as documented
	}
	return &r, err
}

// act executes a step through the service of rollouts.
func (s *Service) act(ctx context.Context, f *spec.Fleet, d Decision) error {
	id := d.Status.Rollout.ID
	req := rollout.Request{Actor: Actor(f), Why: fmt.Sprintf("generation %d of its spec", f.Metadata.Generation)}
	var err error
	switch d.Act {
	case sequence.Begin:
		return s.begin(ctx, f, d, req)
	case Replace:
		_, err = s.Rollouts.Replace(ctx, id, req)
	case sequence.Discard:
		err = s.Rollouts.Delete(ctx, id, req)
	case sequence.Pause:
		_, err = s.Rollouts.Pause(ctx, id, true, req)
	case sequence.Resume:
		_, err = s.Rollouts.Resume(ctx, id, req)
	case Promote:
		req.Why = "spec.forcePromote names its hash"
		_, err = s.Rollouts.Promote(ctx, id, req)
	case Adjust:
		_, err = s.Rollouts.Adjust(ctx, id, d.Plan.Limits, d.Plan.Failure, d.Plan.Health, d.Plan.Pace, req)
	}
	return err
}

// begin creates and starts the rollout that the status names, or completes a start that a crash
// interrupted. If it is refused, or has nothing to do, it leaves no draft.
func (s *Service) begin(ctx context.Context, f *spec.Fleet, d Decision, req rollout.Request) error {
	st := d.Status
	r, err := s.Rollouts.CreateDeclared(ctx, st.Rollout.ID, f.Metadata.Name, st.Rollout.Hash, d.Plan, req)
	if err != nil {
		return err
	}
	pre, err := s.Rollouts.Begin(ctx, &r, true, hasTargets, req)
	switch {
	case pre == nil:
		return err
	case err == nil:
		s.Log.Info("a declared fleet has begun a rollout", "fleet", f.Metadata.Name, "rollout", r.ID, "agents", len(pre.Targets))
		return nil
	case !errors.Is(err, errNothing):
		return errors.Join(err, s.Rollouts.Delete(ctx, r.ID, req))
	}
	if err := s.Rollouts.Delete(ctx, r.ID, req); err != nil {
		return err
	}
	delete(s.members, f.Metadata.UID) // the census that found agents behind is too old
	done := clone(st)
	done.Rollout.State = fleet.RolloutCompleted
	*f, err = s.Objects.UpdateStatus(ctx, f, done)
	return err
}

// errNothing: a rollout would have no targets.
var errNothing = errors.New("no agent would be upgraded")

// hasTargets returns an error if a preview has no targets: because other rollouts hold the agents, or
// because nothing is to be done.
func hasTargets(pre *fleet.Preview) error {
	if len(pre.Targets) > 0 {
		return nil
	}
	for _, a := range pre.Skipped {
		if a.Code == fleet.WhyLocked {
			return fleet.Errorf(fleet.Conflict, "agent %s (%s) %s", a.AgentID, a.Hostname, a.Text)
		}
	}
	return errNothing
}
