package webhook

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/lease"
)

const (
	// LookInterval is how often webhooks are looked at when nothing wakes: for
	// those that another replica had and no longer has.
	LookInterval = 5 * time.Second
	// A delivery may take PostTimeout, in which nothing is renewed; and nobody
	// minds half a minute after a replica has died.
	leaseTTL   = 30 * time.Second
	leaseRenew = 10 * time.Second
	// roundMax bounds the deliveries of one round, so that a webhook that was
	// disabled or deleted meanwhile is seen.
	roundMax = 100
	// saveEvery is how far a webhook that nothing interests may read before its
	// place is written: a twentieth of the events that are kept, so that its
	// place is never among those that are not.
	saveEvery = event.DefaultKeep / 20
)

func leaseID(webhookID string) string { return "webhook/" + webhookID }

// desk is what this replica knows of one webhook. The tries of a notification
// begin again on a replica that takes over: it may be tried more often than the
// ladder says, never less.
type desk struct {
	busy bool
	pos  int64 // events up to here are dealt with
	seq  int64 // event that was tried
	// tries failed so far; the next is not before again.
	tries int
	again time.Time
}

// Run delivers until ctx ends.
func (s *Service) Run(ctx context.Context) {
	holder := &lease.Holder{Leases: s.Store.Leases(), Name: fleet.NewID(), TTL: leaseTTL, Renew: leaseRenew, Now: s.Now}
	var running sync.WaitGroup
	running.Go(func() {
		begun := func(last int64) { s.heard(last, last) } // whatever it was: the webhooks find out
		s.Events.Follow(ctx, begun, s.sort)
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
			timer.Reset(s.look(ctx, holder, &running))
		}
	}
	running.Wait()
	if err := holder.ReleaseAll(ctx); err != nil {
		s.Log.Warn("webhook leases are left to run out", "error", err)
	}
}

// sort wakes Run when something has happened that may interest a webhook, and notes
// stretches of the stream that interest none, so that not every webhook reads
// them.
func (s *Service) sort(events []fleet.Event) {
	interesting := int64(0)
	for _, e := range events {
		if e.Type == fleet.EventRolloutProgress || slices.Contains(usual, e.Type) {
			interesting = e.Seq
		}
	}
	last := events[len(events)-1].Seq
	if interesting > 0 {
		s.heard(interesting, last)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quietTo = max(s.quietTo, last)
}

// heard notes the last event that may interest a webhook and where the stream
// ends. Those that had read up to the quiet stretch before it need not read that.
func (s *Service) heard(interesting, last int64) {
	s.mu.Lock()
	for _, d := range s.desks {
		if d.pos >= s.quietFrom {
			d.pos = max(d.pos, s.quietTo)
		}
	}
	s.news, s.quietFrom, s.quietTo = interesting, interesting, last
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
	default: // it is asked for already
	}
}

// look begins a round for each webhook that has something to do, and says when to
// look again.
func (s *Service) look(ctx context.Context, holder *lease.Holder, running *sync.WaitGroup) time.Duration {
	all, _, err := s.Store.Webhooks().List(ctx, 0, 0)
	if err != nil {
		return LookInterval
	}
	now := s.Now.UTC()
	next := LookInterval
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.desks == nil {
		s.desks = map[string]*desk{}
	}
	known := map[string]bool{}
	for _, w := range all {
		known[w.ID] = true
		d := s.desks[w.ID]
		if d == nil {
			d = &desk{}
			s.desks[w.ID] = d
		}
		if d.pos >= s.quietFrom {
			d.pos = max(d.pos, s.quietTo)
		}
		d.pos = max(d.pos, w.After)
		switch {
		case w.Disabled || d.busy || (d.pos >= s.news && d.pos-w.After < saveEvery):
		case now.Before(d.again):
			next = min(next, d.again.Sub(now))
		default:
			d.busy = true
			running.Go(func() {
				s.round(ctx, holder, w.ID, d)
				s.mu.Lock()
				d.busy = false
				s.mu.Unlock()
				s.wake()
			})
		}
	}
	for id, d := range s.desks {
		if !known[id] && !d.busy {
			delete(s.desks, id)
		}
	}
	return next
}

// round delivers to one webhook what it has not heard of, until there is no more,
// it fails, or it has been enough for one round.
func (s *Service) round(ctx context.Context, holder *lease.Holder, id string, d *desk) {
	if held, err := holder.Hold(ctx, leaseID(id)); err != nil || !held {
		s.park(d, LookInterval)
		return
	}
	w, err := s.Store.Webhooks().Get(ctx, id) // now that no other replica moves it
	if err != nil {
		s.park(d, LookInterval)
		return
	}
	s.mu.Lock()
	pos, news := max(d.pos, w.After), s.news
	s.mu.Unlock()
	s.tellLoss(ctx, w, pos)
	for sent := 0; sent < roundMax && !w.Disabled; {
		events, err := s.Store.Events().After(ctx, pos, event.ReadBatch)
		if err != nil {
			s.park(d, LookInterval)
			return
		}
		if len(events) == 0 {
			pos = max(pos, news) // what is no longer kept will not come
			s.moveTo(d, pos)
			break
		}
		for _, e := range events {
			if sent == roundMax || w.Disabled {
				break
			}
			if wants(&w, e.Type) {
				if held, err := holder.Hold(ctx, leaseID(id)); err != nil || !held {
					return
				}
				if !s.deliver(ctx, w, e, d) {
					return
				}
				if w, err = s.save(ctx, id, e.Seq); err != nil {
					s.park(d, LookInterval)
					return
				}
				sent++
			}
			pos = e.Seq
			s.moveTo(d, pos)
		}
	}
	if pos-w.After >= saveEvery {
		_, _ = s.save(ctx, id, pos) // again at the next look
	}
}

// deliver tries one event once. It says whether the event is dealt with: taken,
// or given up.
func (s *Service) deliver(ctx context.Context, w fleet.Webhook, e fleet.Event, d *desk) bool {
	body := notify(w.ID, e)
	f := s.post(ctx, w, e.Type, deliveryID(w.ID, e.Seq), body)
	if ctx.Err() != nil {
		return false // the shutdown cut it off
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
		s.Log.Info("webhook was not taken", "webhook", w.Name, "event", e.Type, "tries", tries, "again_in", pause, "error", f.text)
		s.park(d, pause)
		return false
	}
	err := s.bury(ctx, fleet.DeadLetter{
		ID: deliveryID(w.ID, e.Seq), WebhookID: w.ID, Type: e.Type, Body: body, Error: f.text, Attempts: tries, At: s.Now.UTC(),
	})
	if err != nil {
		s.park(d, LookInterval) // it is tried once more, and buried then
		return false
	}
	s.Log.Warn("webhook was given up", "webhook", w.Name, "event", e.Type, "tries", tries, "error", f.text)
	return true
}

// bury keeps a dead letter, and no more than may be kept.
func (s *Service) bury(ctx context.Context, l fleet.DeadLetter) error {
	letters := s.Store.DeadLetters()
	if err := letters.Create(ctx, l); err != nil && fleet.KindOf(err) != fleet.Conflict {
		return err
	}
	old, _, err := letters.List(ctx, KeepDeadLetters, 0)
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

// save writes the place up to which a webhook is dealt with.
func (s *Service) save(ctx context.Context, id string, seq int64) (fleet.Webhook, error) {
	return s.change(ctx, id, func(w *fleet.Webhook) bool {
		if w.After >= seq {
			return false
		}
		w.After = seq
		return true
	})
}

// tellLoss logs when events behind a webhook's place are no longer kept: it was
// away, or nobody delivered, for days.
func (s *Service) tellLoss(ctx context.Context, w fleet.Webhook, pos int64) {
	first, _, err := s.Store.Events().Bounds(ctx)
	if err == nil && first > pos+1 {
		s.Log.Warn("events that a webhook has not heard of are no longer kept", "webhook", w.Name, "after", pos, "first_kept", first)
	}
}

// park leaves a webhook alone for a while.
func (s *Service) park(d *desk, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.again = s.Now.UTC().Add(pause)
}

func (s *Service) moveTo(d *desk, pos int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.pos = pos
}
