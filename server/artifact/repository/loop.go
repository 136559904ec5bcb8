package repository

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/packaging/trust/tuf"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// LookInterval is the longest the loop waits: whoever publishes signs, so all
	// it may miss is that an expiry comes near, or that nobody signs any more.
	LookInterval = time.Hour
	// RetryInterval is for a round that failed. A timestamp is renewed 18 hours
	// before it expires, so there is no hurry, and a store that is away for a
	// moment does not show for long.
	RetryInterval = time.Minute
	// roundTimeout bounds one round: some reads and writes of a store.
	roundTimeout = 30 * time.Second
	// ExpiryNotice is how long before an offline role expires people are told:
	// several have to find their keys, and one of them is on holiday.
	ExpiryNotice = 30 * 24 * time.Hour
	// tellInterval is how often the log repeats it.
	tellInterval = 24 * time.Hour
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

// round signs what is due now, and says how long to wait for the next.
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
		return LookInterval
	}
	return max(RetryInterval, min(LookInterval, next.Sub(s.Now.UTC())))
}

// sign writes what is due and returns what is served then.
func (s *Service) sign(ctx context.Context) (state, error) {
	from, err := s.load(ctx)
	if err != nil {
		return state{}, err
	}
	now := s.Now.UTC()
	next, err := s.keys.Sign(from.repository, now)
	switch {
	case errors.Is(err, tuf.ErrNoOnlineKey) && !overdue(from.repository, now):
		return from, nil // a replica that has the key signs
	case err != nil:
		return from, err
	}
	changed, err := tuf.Changes(from.repository, next)
	if err != nil || len(changed) == 0 {
		return from, err
	}
	if err := s.save(ctx, from, next); err != nil {
		if errors.Is(err, errChanged) {
			return from, nil // whoever came first has signed too
		}
		return from, err
	}
	s.Log.Debug("signed metadata renewed", "files", len(changed))
	from.repository = next
	return from, nil
}

// overdue says whether the timestamp should long have been renewed by somebody.
func overdue(r tuf.Repository, now time.Time) bool {
	due, err := tuf.NextSigning(r)
	return err == nil && r.Targets != nil && now.After(due.Add(LookInterval))
}

// report keeps why signing failed for those who ask, and tells of a change once.
func (s *Service) report(ctx context.Context, r tuf.Repository, err error) {
	problem := ""
	if err != nil {
		problem = fmt.Sprintf("timestamp.json cannot be signed: %v", err)
		s.Log.Error("sign the metadata of packages", "error", err, "again_in", RetryInterval)
	}
	s.mu.Lock()
	before := s.problem
	s.problem = problem
	s.mu.Unlock()
	switch {
	case problem != "" && before == "":
		s.Events.Publish(ctx, fleet.Event{Type: fleet.EventTrustProblem, Subject: tuf.TimestampFile, Data: event.Data(map[string]string{"reason": problem})})
	case problem == "" && before != "":
		s.Events.Publish(ctx, fleet.Event{Type: fleet.EventTrustRestored, Subject: tuf.TimestampFile})
	}
	expiries, err := r.OfflineExpiries()
	if err != nil {
		return // then nothing could be signed either
	}
	now := s.Now.UTC()
	for _, e := range expiries {
		if w := warning(e, now); w != "" && now.Sub(s.told[e.Role]) >= tellInterval {
			s.told[e.Role] = now // only the loop's goroutine comes here
			s.Log.Warn("people have to sign the metadata of packages", "what", w)
		}
	}
}

// warning says that people have to sign soon; empty while they need not.
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
