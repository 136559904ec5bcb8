package parktest

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/fleet"
)

// AtOnce answers each poll instead of parking it, for simulated agents that run one step
// after the other.
type AtOnce struct{}

var _ checkin.Parker = AtOnce{}

// Park answers p with its pending actions, or with Empty.
func (AtOnce) Park(p checkin.Poll) {
	answer := checkin.Empty()
	if found := p.Checker.PendingActions(p.Request.Context(), []*checkin.Wait{&p.Wait})[0]; found.Answer != nil {
		answer = *found.Answer
	}
	p.Writer.WriteHeader(answer.Status)
	_, _ = p.Writer.Write(answer.Body) // writes to a recorder cannot fail
}

// Wake does nothing: no poll is parked.
func (AtOnce) Wake(...string) {}

// Release does nothing.
func (AtOnce) Release(string) {}

// Parked does not call f.
func (AtOnce) Parked(func(string, fleet.PolicyAt)) {}

// Connected returns false: no poll is parked.
func (AtOnce) Connected(string) bool { return false }

// HungUp does not call f.
func (AtOnce) HungUp(func(string, time.Time)) {}

// Count returns 0.
func (AtOnce) Count() int { return 0 }

// Close does nothing.
func (AtOnce) Close(context.Context) error { return nil }
