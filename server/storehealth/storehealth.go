// Package storehealth knows whether the store can be reached. A [Monitor] pings the
// store; the check-in service, the agents' handlers and the server's loops make their
// calls through it or ask it before they begin. While the store is away agents stay
// parked and are authenticated from the agent cache; everything that has to be
// written is refused with 503 and a Retry-After, and the agents send it again.
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
	// CallTimeout bounds the calls that handle one message of an agent: ten times
	// what a slow store takes, and well below the half minute after which agents
	// hang up.
	CallTimeout = 5 * time.Second
	// PingInterval is how often the store is pinged: an outage that no message meets
	// is seen, and the end of one is found, within a second.
	PingInterval = time.Second
	// PingTimeout bounds a ping: four times a store that is slow by half a second.
	PingTimeout = 2 * time.Second
	// Grace is how long after an outage agents are not judged by what the store has
	// of them. They were told to retry after 5 to 11 seconds, and an overloaded
	// server may send them away once more.
	Grace = 30 * time.Second

	// pingGap is left between two pings: a thousand calls that fail together cause
	// one.
	pingGap = 100 * time.Millisecond
	// pingsLost is how many pings in a row must fail where no call has failed: one
	// may be lost on the way, or be slow by itself.
	pingsLost = 2
)

// State is whether the store can be reached.
type State struct {
	Away   bool
	Since  time.Time // when it went away, or came back; zero: it has been there all the time
	Reason string    // why it is away

	failed int // pings in a row
}

// after is the state after a ping. doubted says that a call has failed before it:
// the two together are enough. One good ping ends an outage, for a ping reads and
// writes; if it is wrong, the next call waits for its timeout.
func (s State) after(err error, doubted bool, now time.Time) State {
	if err == nil {
		if s.Away {
			s.Since = now
		}
		return State{Since: s.Since}
	}
	s.failed++
	if s.Away || doubted || s.failed >= pingsLost {
		if !s.Away {
			s.Away, s.Since = true, now
		}
		s.Reason = reason(err)
	}
	return s
}

// reason is the text for people. Causes stay in the log: addresses and credentials
// may stand in them.
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

// Monitor watches the store. To the zero value, which nothing pings, the store is
// always there.
type Monitor struct {
	ping func(context.Context) error
	log  *slog.Logger
	now  clock.Clock

	doubt chan struct{} // capacity 1
	mu    sync.Mutex
	state State
}

// New returns a monitor; Run must follow. ping says whether the store takes reads and
// writes, and if not why, in words for operators.
func New(ping func(context.Context) error, log *slog.Logger, now clock.Clock) *Monitor {
	return &Monitor{ping: ping, log: log, now: now, doubt: make(chan struct{}, 1)}
}

// State is whether the store can be reached, as far as is known.
func (m *Monitor) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Away is nil while the store can be reached, else an error of kind Unavailable that
// says since when and why it cannot.
func (m *Monitor) Away() error {
	if s := m.State(); s.Away {
		return fleet.Errorf(fleet.Unavailable, "the store has been away since %s: %s", s.Since.Format(time.RFC3339), s.Reason)
	}
	return nil
}

// Back is when the last outage ended; zero: there was none.
func (m *Monitor) Back() time.Time {
	if s := m.State(); !s.Away {
		return s.Since
	}
	return time.Time{}
}

// Steady is nil when agents may be judged by what the store has of them. It is not
// while the store is away, nor for Grace afterwards: the agents have yet to send
// again what was refused.
func (m *Monitor) Steady() error {
	if err := m.Away(); err != nil {
		return err
	}
	if back := m.Back(); !back.IsZero() && m.now.UTC().Sub(back) < Grace {
		return fleet.Errorf(fleet.Unavailable, "the store came back at %s: agents are sending again what was refused while it was away", back.Format(time.RFC3339))
	}
	return nil
}

// Ask makes calls of the store that handle one message, within CallTimeout, and none
// while the store is away. If they fail because of the store, Ask pings it and returns
// an error of kind Unavailable.
func (m *Monitor) Ask(ctx context.Context, call func(context.Context) error) error {
	if err := m.Away(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	err := call(bounded)
	if ctx.Err() == nil { // else the client has gone
		m.Failed(err)
	}
	if away(err) && fleet.KindOf(err) != fleet.Unavailable {
		return fleet.Errorf(fleet.Unavailable, "the store did not answer in time: %w", err)
	}
	return err
}

// Failed has the store pinged now if err says that it is away.
func (m *Monitor) Failed(err error) {
	if !away(err) {
		return
	}
	select {
	case m.doubt <- struct{}{}:
	default: // a ping is due anyway
	}
}

// away says whether a call failed because of the store, so that it may succeed
// later.
func away(err error) bool {
	return err != nil && (fleet.KindOf(err) == fleet.Unavailable || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
}

// Run pings every PingInterval, and when a call has failed, until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	tick := time.NewTicker(PingInterval)
	defer tick.Stop()
	for {
		doubted := false
		select {
		case <-ctx.Done():
			return
		case <-m.doubt:
			doubted = true
		case <-tick.C:
		}
		m.check(ctx, doubted)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pingGap):
		}
	}
}

func (m *Monitor) check(ctx context.Context, doubted bool) {
	bounded, cancel := context.WithTimeout(ctx, PingTimeout)
	defer cancel()
	err := m.ping(bounded)
	if ctx.Err() != nil {
		return // the server ends
	}
	now := m.now.UTC()
	m.mu.Lock()
	old := m.state
	m.state = old.after(err, doubted, now)
	state := m.state
	m.mu.Unlock()
	switch {
	case state.Away && !old.Away:
		m.log.Error("the store is away: agents stay parked, and send again later what they report", "error", err)
	case old.Away && !state.Away:
		m.log.Info("the store is back", "away", now.Sub(old.Since).Round(time.Second))
	}
}
