package webhook

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/lease"
)

const (
	// CheckInterval is how often webhooks are checked without an event: another server
	// may have stopped delivering to one.
	CheckInterval = 5 * time.Second
	// A delivery may take PostTimeout, during which the lease is not renewed. After a
	// server has died, deliveries may pause for half a minute.
	leaseTTL   = 30 * time.Second
	leaseRenew = 10 * time.Second
	// roundMax bounds the deliveries of one round, after which the webhook is read
	// again: it may be disabled or deleted.
	roundMax = 100
	// saveEvery is after how many unselected events a webhook's position is written: a
	// twentieth of the stored events, so that the position is always among them.
	saveEvery = store.MaxEvents / 20
)

func leaseID(webhookID string) string { return "webhook/" + webhookID }

// delivery is this server's progress with one webhook. A server that takes over counts
// the tries of a notification from zero, so there may be more of them than Backoff has
// steps, never fewer.
type delivery struct {
	busy  bool
	pos   int64     // the last event that is delivered or given up
	seq   int64     // the event tried last
	tries int       // failed tries of it
	again time.Time // when to try it again
}

// Run delivers until ctx ends.
func (s *Service) Run(ctx context.Context) {
	owner := &lease.Owner{Leases: s.Store.Leases(), Name: fleet.NewID(), TTL: leaseTTL, Renew: leaseRenew, Now: s.Now}
	var running sync.WaitGroup
	running.Go(func() {
		begun := func(last int64) { s.noteEvents(last, last) } // a webhook may select earlier events
		s.Events.Follow(ctx, begun, s.onEvents)
	})
	woken := s.wakes()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-woken:
		case <-timer.C:
		}
		if ctx.Err() == nil {
			timer.Reset(s.check(ctx, owner, &running))
		}
	}
	running.Wait()
	if err := owner.ReleaseAll(ctx); err != nil {
		s.Log.Warn("webhook leases were not released and will expire", "error", err)
	}
}

// onEvents wakes Run for events that a webhook may select, and records ranges of the
// stream without such events, so that no webhook reads them.
func (s *Service) onEvents(events []fleet.Event) {
	interesting := int64(0)
	for _, e := range events {
		if e.Type == fleet.EventRolloutProgress || e.Type == fleet.EventGroupProgress || slices.Contains(usual, e.Type) {
			interesting = e.Seq
		}
	}
	last := events[len(events)-1].Seq
	if interesting > 0 {
		s.noteEvents(interesting, last)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quietTo = max(s.quietTo, last)
}

// noteEvents records the last event that a webhook may select and the end of the stream.
// Webhooks that have read up to the preceding quiet range skip that range.
func (s *Service) noteEvents(interesting, last int64) {
	s.mu.Lock()
	for _, d := range s.deliveries {
		if d.pos >= s.quietFrom {
			d.pos = max(d.pos, s.quietTo)
		}
	}
	s.lastInteresting, s.quietFrom, s.quietTo = interesting, interesting, last
	s.mu.Unlock()
	s.wake()
}

func (s *Service) wakes() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.woken == nil {
		s.woken = make(chan struct{}, 1)
	}
	return s.woken
}

func (s *Service) wake() {
	select {
	case s.wakes() <- struct{}{}:
	default: // Run is woken already
	}
}

// check starts a round for each webhook that has something to deliver, and returns
// when to check again.
func (s *Service) check(ctx context.Context, owner *lease.Owner, running *sync.WaitGroup) time.Duration {
	all, _, err := s.Store.Webhooks().List(ctx, 0, 0)
	if err != nil {
		return CheckInterval
	}
	now := s.Now.UTC()
	next := CheckInterval
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deliveries == nil {
		s.deliveries = map[string]*delivery{}
	}
	known := map[string]bool{}
	for _, w := range all {
		known[w.ID] = true
		d := s.deliveries[w.ID]
		if d == nil {
			d = &delivery{}
			s.deliveries[w.ID] = d
		}
		if d.pos >= s.quietFrom {
			d.pos = max(d.pos, s.quietTo)
		}
		d.pos = max(d.pos, w.After)
		switch {
		case w.Disabled || d.busy || (d.pos >= s.lastInteresting && d.pos-w.After < saveEvery):
		case now.Before(d.again):
			next = min(next, d.again.Sub(now))
		default:
			d.busy = true
			running.Go(func() {
				s.round(ctx, owner, w.ID, d)
				s.mu.Lock()
				d.busy = false
				s.mu.Unlock()
				s.wake()
			})
		}
	}
	for id, d := range s.deliveries {
		if !known[id] && !d.busy {
			delete(s.deliveries, id)
		}
	}
	return next
}

// round delivers events to one webhook until there are no more, one fails, or
// roundMax is reached.
func (s *Service) round(ctx context.Context, owner *lease.Owner, id string, d *delivery) {
	if owned, err := owner.Take(ctx, leaseID(id)); err != nil || !owned {
		s.retryIn(d, CheckInterval)
		return
	}
	w, err := s.Store.Webhooks().Get(ctx, id) // the lease prevents other servers from changing its position
	if err != nil {
		s.retryIn(d, CheckInterval)
		return
	}
	s.mu.Lock()
	pos, last := max(d.pos, w.After), s.lastInteresting
	s.mu.Unlock()
	s.logLoss(ctx, w, pos)
	for sent := 0; sent < roundMax && !w.Disabled; {
		events, err := s.Store.Events().After(ctx, pos, event.ReadBatch)
		if err != nil {
			s.retryIn(d, CheckInterval)
			return
		}
		if len(events) == 0 {
			pos = max(pos, last) // events that are no longer stored cannot be read
			s.advance(d, pos)
			break
		}
		for _, e := range events {
			if sent == roundMax || w.Disabled {
				break
			}
			if wants(&w, e.Type) {
				if owned, err := owner.Take(ctx, leaseID(id)); err != nil || !owned {
					return
				}
				if !s.deliver(ctx, w, e, d) {
					return
				}
				if w, err = s.save(ctx, id, e.Seq); err != nil {
					s.retryIn(d, CheckInterval)
					return
				}
				sent++
			}
			pos = e.Seq
			s.advance(d, pos)
		}
	}
	if pos-w.After >= saveEvery {
		_, _ = s.save(ctx, id, pos) // tried again at the next check
	}
}

// deliver tries one event once. It reports whether the event is done with: accepted, or
// given up.
func (s *Service) deliver(ctx context.Context, w fleet.Webhook, e fleet.Event, d *delivery) bool {
	body := notify(w.ID, e)
	f := s.post(ctx, w, e.Type, deliveryID(w.ID, e.Seq), body)
	if ctx.Err() != nil {
		return false // the server is shutting down
	}
	s.mu.Lock()
	if d.seq != e.Seq {
		d.seq, d.tries = e.Seq, 0
	}
	d.tries++
	tries := d.tries
	s.mu.Unlock()
	if f == nil {
		return true
	}
	if pause, ok := f.pause(tries); ok {
		s.Log.Info("webhook delivery failed", "webhook", w.Name, "event", e.Type, "tries", tries, "again_in", pause, "error", f.text)
		s.retryIn(d, pause)
		return false
	}
	err := s.addDeadLetter(ctx, fleet.DeadLetter{
		ID: deliveryID(w.ID, e.Seq), WebhookID: w.ID, Type: e.Type, Body: body, Error: f.text, Attempts: tries, At: s.Now.UTC(),
	})
	if err != nil {
		s.retryIn(d, CheckInterval) // the event is tried once more, then given up again
		return false
	}
	s.Log.Warn("webhook delivery given up", "webhook", w.Name, "event", e.Type, "tries", tries, "error", f.text)
	return true
}

// addDeadLetter stores a dead letter and deletes the oldest beyond MaxDeadLetters.
func (s *Service) addDeadLetter(ctx context.Context, l fleet.DeadLetter) error {
	letters := s.Store.DeadLetters()
	if err := letters.Create(ctx, l); err != nil && fleet.KindOf(err) != fleet.Conflict {
		return err
	}
	old, _, err := letters.List(ctx, MaxDeadLetters, 0)
	if err != nil {
		return err
	}
	for _, l := range old {
		if err := letters.Delete(ctx, l.ID); err != nil {
			return err
		}
	}
	return nil
}

// save writes the position of a webhook.
func (s *Service) save(ctx context.Context, id string, seq int64) (fleet.Webhook, error) {
	w, _, err := store.Change(ctx, s.Store.Webhooks(), id, func(w fleet.Webhook) (fleet.Webhook, error) {
		w.After = max(w.After, seq)
		return w, nil
	})
	return w, err
}

// logLoss logs that events after a webhook's position are no longer stored: the receiver
// was away, or no server delivered, for days.
func (s *Service) logLoss(ctx context.Context, w fleet.Webhook, pos int64) {
	first, _, err := s.Store.Events().Bounds(ctx)
	if err == nil && first > pos+1 {
		s.Log.Warn("events that were not delivered to a webhook are no longer stored", "webhook", w.Name, "after", pos, "first_kept", first)
	}
}

// retryIn delays the next try.
func (s *Service) retryIn(d *delivery, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.again = s.Now.UTC().Add(pause)
}

func (s *Service) advance(d *delivery, pos int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.pos = pos
}
