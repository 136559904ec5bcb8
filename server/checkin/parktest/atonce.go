package parktest

import (
	"context"

	"github.com/muster-fleet/muster/server/checkin"
)

// AtOnce answers each poll as soon as it would be parked: for simulated agents that
// do one thing after the other.
type AtOnce struct{}

var _ checkin.Parker = AtOnce{}

// Park answers p with what there is to do now, or with nothing.
func (AtOnce) Park(p checkin.Poll) {
	answer := checkin.Empty()
	if found := p.Checker.PendingActions(p.Request.Context(), []*checkin.Wait{&p.Wait})[0]; found.Answer != nil {
		answer = *found.Answer
	}
	p.Writer.WriteHeader(answer.Status)
	_, _ = p.Writer.Write(answer.Body) // a recorder
}

// Wake does nothing: no poll is parked.
func (AtOnce) Wake(...string) {}

// Parked does not call f.
func (AtOnce) Parked(func(agentID string)) {}

// Count is 0.
func (AtOnce) Count() int { return 0 }

// Close has nothing to answer.
func (AtOnce) Close(context.Context) error { return nil }
