package repository

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/event"
)

const (
	// CheckInterval is the longest pause between rounds. Publishing signs at once, so a
	// round only detects that an expiry is near or that no server signs any more.
	CheckInterval = time.Hour
	// RetryInterval is the pause after a failed round. A timestamp is renewed 18 hours
	// before it expires, so a short outage of the store does no harm.
	RetryInterval = time.Minute
	// roundTimeout bounds one round, which is a few reads and writes of the store.
	roundTimeout = 30 * time.Second
	// ExpiryNotice is how long before an offline role expires the server warns: several
	// people have to find their keys, and one of them is on holiday.
	ExpiryNotice = 30 * 24 * time.Hour
	// warnInterval is how often the log repeats the warning.
	warnInterval = 24 * time.Hour
)

// Run signs what is due until ctx ends.
func (s *Service) Run(ctx context.Context) {
	for {
		timer := time.NewTimer(s.round(ctx))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-s.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// round signs what is due now, and returns the pause before the next round.
func (s *Service) round(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	state, err := s.sign(ctx)
	if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.report(ctx, state.repository, err)
	}
	if err != nil {
		return RetryInterval
	}
	next, err := tuf.NextSigning(state.repository)
	if err != nil || next.IsZero() {
		return CheckInterval
	}
	return max(RetryInterval, min(CheckInterval, next.Sub(s.now.UTC())))
}

// sign stores the metadata that is due and returns the new state.
func (s *Service) sign(ctx context.Context) (state, error) {
	from, err := s.load(ctx)
	if err != nil {
		return state{}, err
	}
	now := s.now.UTC()
	next, err := s.keys.Sign(from.repository, now)
	switch {
	case errors.Is(err, tuf.ErrNoOnlineKey) && !overdue(from.repository, now):
		return from, nil // a server that has the key signs
	case err != nil:
		return from, err
	}
	changed, err := tuf.Changes(from.repository, next)
	if err != nil || len(changed) == 0 {
		return from, err
	}
	if err := s.save(ctx, from, next); err != nil {
		if errors.Is(err, errChanged) {
			return from, nil // another server has signed first
		}
		return from, err
	}
	s.log.Debug("signed metadata renewed", "files", len(changed))
	from.repository = next
	return from, nil
}

// overdue reports whether some server should long have renewed the timestamp.
func overdue(r tuf.Repository, now time.Time) bool {
	due, err := tuf.NextSigning(r)
	return err == nil && r.Targets != nil && now.After(due.Add(CheckInterval))
}

// report stores the problem that kept this server from signing, and publishes an event
// when it appears or ends.
func (s *Service) report(ctx context.Context, r tuf.Repository, err error) {
	problem := ""
	if err != nil {
		problem = fmt.Sprintf("timestamp.json cannot be signed: %v", err)
		s.log.Error("sign the metadata of packages", "error", err, "again_in", RetryInterval)
	}
	s.mu.Lock()
	before := s.problem
	s.problem = problem
	s.mu.Unlock()
	switch {
	case problem != "" && before == "":
		s.events.Publish(ctx, fleet.Event{Type: fleet.EventTrustProblem, Subject: tuf.TimestampFile, Data: event.Data(map[string]string{"reason": problem})})
	case problem == "" && before != "":
		s.events.Publish(ctx, fleet.Event{Type: fleet.EventTrustRestored, Subject: tuf.TimestampFile})
	}
	expiries, err := r.OfflineExpiries()
	if err != nil {
		return // signing has failed for the same reason
	}
	now := s.now.UTC()
	for _, e := range expiries {
		if w := warning(e, now); w != "" && now.Sub(s.warned[e.Role]) >= warnInterval {
			s.warned[e.Role] = now // only Run's goroutine uses warned
			s.log.Warn("publishers have to sign the metadata of packages", "what", w)
		}
	}
}

// warning returns a notice that publishers have to sign soon, empty if they need not.
func warning(e tuf.Expiry, now time.Time) string {
	left := e.Expires.Sub(now)
	what := fmt.Sprintf("%s version %d", e.Role, e.Version)
	when := e.Expires.UTC().Format(time.RFC3339)
	switch {
	case left > ExpiryNotice:
		return ""
	case left > 0:
		return fmt.Sprintf("%s expires on %s, in %d days: let %s sign the next", what, when, int(left.Hours()/24), e.Who)
	}
	return fmt.Sprintf("%s expired on %s: hosts install nothing new until %s sign the next", what, when, e.Who)
}
