package series

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/lease"
)

const (
	// leaseID is the lease whose owner takes samples.
	leaseID = "series"
	// checkEvery is how often a server looks whether a sample is due. Another server takes
	// over within this time.
	checkEvery = 30 * time.Second
	// removedAtOnce bounds the samples that one round removes; usually there is one.
	removedAtOnce = 100
	// sampleTimeout bounds a round. A sample reads the whole fleet, which takes less than a
	// second for 100,000 agents.
	sampleTimeout = time.Minute
)

// Service takes samples, and reads them.
type Service struct {
	Agents  store.Agents
	Samples store.Collection[fleet.Sample]
	// Timeouts returns the inactivity timeouts of policies, on which the health depends.
	Timeouts func(context.Context) (map[string]time.Duration, error)
	Lease    *lease.Owner
	Log      *slog.Logger
	Now      clock.Clock
}

// Run takes a sample in each interval, on the server that owns the lease, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	lease.Rounds{Work: "samples of the fleet", Lease: s.Lease, Interval: checkEvery, AtOnce: true, Log: s.Log}.Run(ctx, s.Round)
}

// Round takes a sample if one is due and this server owns the lease, and then removes those
// that are no longer kept. The first sample of a store is due at once, so that a new server
// shows something; later ones are due once in an interval.
func (s *Service) Round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	owned, err := s.Lease.Take(ctx, leaseID)
	if err != nil || !owned {
		return err
	}
	now := s.Now.UTC()
	last, _, err := s.Samples.List(ctx, 0, 1)
	if err != nil || len(last) > 0 && last[0].ID >= sampleID(now) {
		return err
	}
	counts, err := s.count(ctx, now)
	if err != nil {
		return err
	}
	if err := s.Samples.Create(ctx, newSample(counts, now)); err != nil && fleet.KindOf(err) != fleet.Conflict {
		return err
	}
	list, _, err := s.Samples.List(ctx, 0, 0)
	if err != nil {
		return err
	}
	old := superfluous(list, now)
	for _, id := range old[:min(len(old), removedAtOnce)] {
		if err := s.Samples.Delete(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// count returns the agents that are not unenrolled by version and health.
func (s *Service) count(ctx context.Context, now time.Time) (map[string]map[fleet.Health]int, error) {
	timeouts, err := s.Timeouts(ctx)
	if err != nil {
		return nil, err
	}
	health := fleet.HealthClasses(timeouts, now)
	tally, err := s.Agents.Tally(ctx, store.AgentFilter{ActiveOnly: true}, store.TallyQuery{
		Classes: [][]kql.Filter{health.Filters}, Fields: []store.TallyField{{Field: fleet.FieldVersion, ByClass: true}},
	})
	if err != nil {
		return nil, err
	}
	out := map[string]map[fleet.Health]int{}
	for version, c := range tally.Values[0] {
		out[version] = health.ByValue(c.Classes)
	}
	return out, nil
}

// read is how many of the newest samples a window can need, with room for those that a thinning
// round has not removed yet.
func read(w Window) int {
	n := 0
	for _, a := range ages {
		n += int(min(a.until, w.Span)/a.step) + removedAtOnce
		if a.until > w.Span {
			break
		}
	}
	return n
}

// Over returns the series of a window that ends now.
func (s *Service) Over(ctx context.Context, w Window) (Series, error) {
	list, _, err := s.Samples.List(ctx, 0, read(w))
	if err != nil {
		return Series{}, err
	}
	return Over(list, w, s.Now.UTC()), nil
}
