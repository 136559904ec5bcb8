package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// ackBatch is how many results one request has, some 30 KB.
const ackBatch = 100

// Outbox holds the results that wait for the server.
type Outbox interface {
	// Acks returns up to n results, oldest first.
	Acks(n int) []agentapi.AckEvent
	// DropAcks removes results that the server has answered for.
	DropAcks([]agentapi.AckEvent) error
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
}

// AckClient is the part of a client that the sender needs.
type AckClient interface {
	Acks(ctx context.Context, events []agentapi.AckEvent) (agentapi.AckResponse, error)
}

var _ AckClient = (*Client)(nil)

// AckSender sends results until the server has answered for each one.
type AckSender struct {
	Server AckClient
	Outbox Outbox
	// Rand returns a number in [0,1); nil means math/rand.
	Rand func() float64
	Log  *slog.Logger
}

// Run sends until ctx ends.
func (s *AckSender) Run(ctx context.Context) {
	b := backoff.Backoff{Rand: s.Rand}
	batch := ackBatch
	for ctx.Err() == nil {
		changed := s.Outbox.Changed()
		events := s.Outbox.Acks(batch)
		if len(events) == 0 {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		resp, err := s.Server.Acks(ctx, events)
		answered := answeredFor(events, resp, err)
		if derr := s.Outbox.DropAcks(answered); derr != nil {
			err = errors.Join(err, derr)
			answered = nil
		}
		if err == nil && len(answered) == len(events) {
			b.Reset()
			batch = ackBatch
			continue
		}
		if ctx.Err() != nil {
			return
		}
		// One result that the server refuses must not block the others: they are
		// sent one by one until one is accepted.
		if refusedWhole(err) {
			batch = 1
		}
		if len(answered) > 0 {
			b.Reset()
		}
		wait := waitFor(err, b.Next(), b.Rand)
		if s.Log != nil {
			s.Log.Warn("results not confirmed by the server", "waiting", len(events)-len(answered), "error", err,
				"again_in", wait.Round(time.Millisecond).String())
		}
		_ = backoff.Sleep(ctx, wait) // an ended ctx ends the loop
	}
}

// answeredFor returns the results that need not be sent again: those that the server
// accepted, has no action for, or will never accept.
func answeredFor(events []agentapi.AckEvent, resp agentapi.AckResponse, err error) []agentapi.AckEvent {
	if err != nil && len(resp.Items) == 0 {
		if len(events) == 1 && refusedWhole(err) {
			return events
		}
		return nil
	}
	var out []agentapi.AckEvent
	for i, item := range resp.Items {
		if !retryable(item.Status) {
			out = append(out, events[i])
		}
	}
	return out
}

// refusedWhole reports whether the server refused the request itself, so that repeating
// it cannot succeed.
func refusedWhole(err error) bool {
	var refusal *StatusError
	return errors.As(err, &refusal) && (refusal.HTTPStatus == http.StatusBadRequest || refusal.HTTPStatus == http.StatusRequestEntityTooLarge)
}

func retryable(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	}
	return status >= 500 || status < 200
}
