// Package storehealth monitors whether the store can be reached. A [Monitor] pings the
// store. The check-in service, the agents' handlers and the server's loops call the store
// through it, or ask it before they begin. While the store is away agents stay parked and
// are authenticated from the agent cache; whatever has to be written is refused with 503
// and a Retry-After, and the agents send it again.
package storehealth

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// CallTimeout bounds the calls that handle one message of an agent: ten times the
	// time of a slow store, and well below the half minute after which agents hang up.
	CallTimeout = 5 * time.Second
	// PingInterval is how often the store is pinged, so that an outage without traffic,
	// and the end of any outage, are found within a second.
	PingInterval = time.Second
	// PingTimeout bounds a ping: four times the delay of a store that is slow by 0.5 s.
	PingTimeout = 2 * time.Second
	// Grace is how long after an outage agents are not judged by their documents, which
	// lack what was refused. The agents retry after 5 to 11 seconds, and an overloaded
	// server may refuse them once more.
	Grace = 30 * time.Second

	// pingGap is the shortest time between two pings, so that a thousand calls that fail
	// together cause one ping.
	pingGap = 100 * time.Millisecond
	// maxFailedPings is how many consecutive pings must fail if no call has failed: a
	// single ping may be lost or slow.
	maxFailedPings = 2
)

// State is whether the store can be reached.
type State struct {
	Away   bool
	Since  time.Time // when Away last changed; zero if it never did
	Reason string    // why it is away, for people

	failed int // consecutive failed pings
}

// next returns the state after a ping with the result err. If a call of the store has
// failed just before, one failed ping suffices. One successful ping ends an outage, since
// a ping reads and writes; if it is wrong, the next call waits for its timeout.
func (s State) next(err error, callFailed bool, now time.Time) State {
	if err == nil {
		if s.Away {
			s.Since = now
		}
		return State{Since: s.Since}
	}
	s.failed++
	if s.Away || callFailed || s.failed >= maxFailedPings {
		if !s.Away {
			s.Away, s.Since = true, now
		}
		s.Reason = reason(err)
	}
	return s
}

// reason returns the text for people. Causes are only logged, since they may contain
// addresses and credentials.
func reason(err error) string {
	var known *fleet.Error
	switch {
	case errors.As(err, &known):
		return known.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "it does not answer within " + PingTimeout.String()
	}
	return "it does not answer; the server's log says more"
}

// Monitor monitors the store. The zero value does not ping, and always reports that the
// store can be reached.
type Monitor struct {
	ping func(context.Context) error
	log  *slog.Logger
	now  clock.Clock

	pingNow chan struct{} // capacity 1
	mu      sync.Mutex
	state   State
}

// New returns a monitor; the caller must call Run. ping checks that the store accepts
// reads and writes; its errors are shown to operators.
func New(ping func(context.Context) error, log *slog.Logger, now clock.Clock) *Monitor {
	return &Monitor{ping: ping, log: log, now: now, pingNow: make(chan struct{}, 1)}
}

// State returns the last known state of the store.
func (m *Monitor) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Away returns nil while the store can be reached, else an error of kind Unavailable with
// the time and the reason.
func (m *Monitor) Away() error {
	if s := m.State(); s.Away {
		return fleet.Errorf(fleet.Unavailable, "the store has been away since %s: %s", s.Since.Format(time.RFC3339), s.Reason)
	}
	return nil
}

// Back returns when the last outage ended, or the zero time if there was none.
func (m *Monitor) Back() time.Time {
	if s := m.State(); !s.Away {
		return s.Since
	}
	return time.Time{}
}

// Steady returns nil if agents may be judged by their documents. It returns an error of
// kind Unavailable while the store is away and for Grace afterwards, when agents still
// have to repeat what was refused.
func (m *Monitor) Steady() error {
	if err := m.Away(); err != nil {
		return err
	}
	if back := m.Back(); !back.IsZero() && m.now.UTC().Sub(back) < Grace {
		return fleet.Errorf(fleet.Unavailable, "the store came back at %s: agents are sending again what was refused while it was away", back.Format(time.RFC3339))
	}
	return nil
}

// Call runs call, the store calls that handle one message, within CallTimeout. While the
// store is away it does not run it. If call fails because of the store, Call causes a ping
// and returns an error of kind Unavailable.
func (m *Monitor) Call(ctx context.Context, call func(context.Context) error) error {
	if err := m.Away(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	err := call(bounded)
	if ctx.Err() == nil { // otherwise the client has disconnected
		m.Failed(err)
	}
	if away(err) && fleet.KindOf(err) != fleet.Unavailable {
		return fleet.Errorf(fleet.Unavailable, "the store did not answer in time: %w", err)
	}
	return err
}

// Failed causes a ping if err means that the store may be away.
func (m *Monitor) Failed(err error) {
	if !away(err) {
		return
	}
	select {
	case m.pingNow <- struct{}{}:
	default: // a ping is already pending
	}
}

// away reports whether a call failed because of the store, and so may succeed later.
func away(err error) bool {
	return err != nil && (fleet.KindOf(err) == fleet.Unavailable || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
}

// Run pings every PingInterval, and when a call has failed, until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	tick := time.NewTicker(PingInterval)
	defer tick.Stop()
	for {
		callFailed := false
		select {
		case <-ctx.Done():
			return
		case <-m.pingNow:
			callFailed = true
		case <-tick.C:
		}
		m.check(ctx, callFailed)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pingGap):
		}
	}
}

func (m *Monitor) check(ctx context.Context, callFailed bool) {
	bounded, cancel := context.WithTimeout(ctx, PingTimeout)
	defer cancel()
	err := m.ping(bounded)
	if ctx.Err() != nil {
		return // the server is shutting down
	}
	now := m.now.UTC()
	m.mu.Lock()
	old := m.state
	m.state = old.next(err, callFailed, now)
	state := m.state
	m.mu.Unlock()
	switch {
	case state.Away && !old.Away:
		m.log.Error("the store is away: agents stay parked and repeat later what they report", "error", err)
	case old.Away && !state.Away:
		m.log.Info("the store is back", "away", now.Sub(old.Since).Round(time.Second))
	}
}
