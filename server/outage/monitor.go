package outage

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
	// PingInterval is how often the store is asked whether it is there: an outage
	// that no message meets is seen, and the end of one is found, within a second.
	PingInterval = time.Second
	// PingTimeout bounds a ping: four times a store that is slow by half a second.
	PingTimeout = 2 * time.Second
	// pingRest is left between two pings: a thousand messages that fail together
	// ask for one look.
	pingRest = 100 * time.Millisecond
	// pingsLost is how many pings in a row must fail where no message has failed:
	// one may be lost on the way, or be slow by itself.
	pingsLost = 2
)

// State is whether the store is there.
type State struct {
	Away   bool
	Since  time.Time // when it went, or came back; at first, when the watch began
	Reason string    // why it is away

	failed int // pings in a row
}

// after is the state after a ping. doubted says that a message has failed before
// it: two witnesses are enough. One good ping ends an outage, for it has read and
// written; to be wrong costs the next message a wait.
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

// reason is what people are told. Causes stay in the log: addresses and
// credentials may stand in them.
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

// Monitor watches the store.
type Monitor struct {
	// Ping says whether the store takes reads and writes.
	Ping func(context.Context) error
	Log  *slog.Logger
	Now  clock.Clock
	// Back is called when the store has come back; nil is not.
	Back func()

	once  sync.Once
	mu    sync.Mutex
	state State
	doubt chan struct{} // capacity 1
}

func (m *Monitor) init() {
	m.once.Do(func() {
		m.doubt = make(chan struct{}, 1)
		m.state.Since = m.Now.UTC()
	})
}

// State is whether the store is there, as far as is known.
func (m *Monitor) State() State {
	m.init()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Failed says that a message met a store that was away: it is looked at now.
func (m *Monitor) Failed() {
	m.init()
	select {
	case m.doubt <- struct{}{}:
	default: // a look is due anyway
	}
}

// Run looks every PingInterval, and when a message has failed, until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	m.init()
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
		m.look(ctx, doubted)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pingRest):
		}
	}
}

func (m *Monitor) look(ctx context.Context, doubted bool) {
	bounded, cancel := context.WithTimeout(ctx, PingTimeout)
	defer cancel()
	err := m.Ping(bounded)
	if ctx.Err() != nil {
		return // the server ends
	}
	now := m.Now.UTC()
	m.mu.Lock()
	old := m.state
	m.state = old.after(err, doubted, now)
	is := m.state
	m.mu.Unlock()
	switch {
	case is.Away && !old.Away:
		m.Log.Error("the store is away: agents stay parked, what they say is kept", "error", err)
	case old.Away && !is.Away:
		m.Log.Info("the store is back", "away", now.Sub(old.Since).Round(time.Second))
		if m.Back != nil {
			m.Back()
		}
	}
}
