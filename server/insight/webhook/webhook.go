// Package webhook posts events of rollouts and incidents to other systems. It reads
// the event stream from the position of each webhook and posts the events that the
// webhook subscribes to, signed, one after the other. A failed delivery is retried
// for some minutes and then becomes a dead letter, which an operator can send again.
// A webhook whose receiver is down delays no other.
//
// A webhook reaches addresses inside the server's network only if the configuration allows
// them; see NewTransport. Of a receiver's answer only the status and the time it took are
// shown, and redirects are not followed, so that webhooks cannot be used to read or to
// scan what is inside the network.
package webhook

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
)

const (
	// MaxWebhooks bounds the webhooks, each of which reads the stream by itself. An
	// organisation that needs more has a message bus, which needs one.
	MaxWebhooks = 50
	// MaxDeadLetters bounds the dead letters of all webhooks together. The oldest are
	// deleted.
	MaxDeadLetters = 1000
	// minSecret is the minimum length of a secret in characters: a shorter one can be
	// guessed from one delivery.
	minSecret = 16
	maxName   = 100
	maxURL    = 2000
)

// Service manages webhooks and delivers to them.
type Service struct {
	Store  store.Store
	Events *event.Stream
	Log    *slog.Logger
	Now    clock.Clock
	// Transport carries deliveries: one of NewTransport, except in tests.
	Transport http.RoundTripper

	mu              sync.Mutex
	woken           chan struct{} // signals Run to check; see wake
	deliveries      map[string]*delivery
	lastInteresting int64 // sequence number of the last event that a webhook may select
	// No webhook selects an event in (quietFrom, quietTo].
	quietFrom, quietTo int64
}

// Create creates a webhook for events from now on, with a new secret if none is
// given. Only the value it returns has the secret.
func (s *Service) Create(ctx context.Context, w fleet.Webhook, actor string) (fleet.Webhook, error) {
	u, err := checkURL(w.URL)
	if err != nil {
		return fleet.Webhook{}, err
	}
	w.Name = cmp.Or(strings.TrimSpace(w.Name), u.Host)
	if len(w.Name) > maxName {
		return fleet.Webhook{}, fleet.FieldError("body.name", "has %d characters, at most %d", len(w.Name), maxName)
	}
	w.Secret = cmp.Or(w.Secret, newSecret())
	if err := checkSecret(w.Secret); err != nil {
		return fleet.Webhook{}, err
	}
	for i, typ := range w.Events {
		if !slices.Contains(Types(), typ) {
			return fleet.Webhook{}, fleet.FieldError(fmt.Sprintf("body.events[%d]", i), "is %q, want some of %s", typ, strings.Join(Types(), ", "))
		}
	}
	return store.Exclusively(ctx, s.Store, "webhooks", func(ctx context.Context) (fleet.Webhook, error) { return s.create(ctx, w, actor) })
}

func (s *Service) create(ctx context.Context, w fleet.Webhook, actor string) (fleet.Webhook, error) {
	all, _, err := s.Store.Webhooks().List(ctx, 0, 0)
	if err != nil {
		return fleet.Webhook{}, err
	}
	if len(all) >= MaxWebhooks {
		return fleet.Webhook{}, fleet.Errorf(fleet.Conflict, "there are %d webhooks, as many as may be: delete one first", len(all))
	}
	_, last, err := s.Store.Events().Bounds(ctx)
	if err != nil {
		return fleet.Webhook{}, err
	}
	w.ID, w.After, w.CreatedAt, w.CreatedBy = fleet.NewID(), last, s.Now.UTC(), actor
	if err := s.record(ctx, "create:"+w.ID, w, actor, "webhook.create", "made webhook "+w.Name); err != nil {
		return fleet.Webhook{}, err
	}
	if err := s.Store.Webhooks().Create(ctx, w); err != nil {
		return fleet.Webhook{}, err
	}
	s.wake()
	return w, nil
}

func checkURL(text string) (*url.URL, error) {
	const field = "body.url"
	u, err := url.Parse(text)
	switch {
	case text == "":
		return nil, fleet.FieldError(field, "is missing: say where to post to, such as https://example.com/muster")
	case len(text) > maxURL:
		return nil, fleet.FieldError(field, "has %d characters, at most %d", len(text), maxURL)
	case err != nil:
		return nil, fleet.FieldError(field, "is not an address: want one such as https://example.com/muster")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, fleet.FieldError(field, "begins with %q, want https:// (or http:// inside a network you trust: anybody on the way can read it)", u.Scheme)
	case u.Hostname() == "":
		return nil, fleet.FieldError(field, "names no host, want one such as https://example.com/muster")
	case u.User != nil:
		return nil, fleet.FieldError(field, "has a user in it, which would show in lists: the receiver can check the signature instead")
	case u.Fragment != "":
		return nil, fleet.FieldError(field, "has a fragment (#%s), which is never sent: leave it out", u.Fragment)
	}
	return u, nil
}

// List returns all webhooks, newest first, without their secrets.
func (s *Service) List(ctx context.Context) ([]fleet.Webhook, error) {
	all, _, err := s.Store.Webhooks().List(ctx, 0, 0)
	for i := range all {
		all[i].Secret = ""
	}
	return all, err
}

// Delete removes a webhook and its dead letters. A missing one is no error.
func (s *Service) Delete(ctx context.Context, id, actor string) error {
	w, err := s.Store.Webhooks().Get(ctx, id)
	if err != nil {
		if fleet.KindOf(err) == fleet.NotFound {
			return nil
		}
		return err
	}
	if err := s.record(ctx, "delete:"+id, w, actor, "webhook.delete", "deleted webhook "+w.Name); err != nil {
		return err
	}
	if err := store.RemoveOwned(ctx, s.Store, store.KindWebhooks, &w); err != nil {
		return err
	}
	if err := s.Store.Leases().Delete(ctx, leaseID(id)); err != nil {
		return err
	}
	return s.Store.Webhooks().Delete(ctx, id)
}

// SetDisabled stops or resumes deliveries. Events that happened while a webhook was
// disabled are not delivered later.
func (s *Service) SetDisabled(ctx context.Context, id string, disabled bool, actor string) (fleet.Webhook, error) {
	_, last, err := s.Store.Events().Bounds(ctx)
	if err != nil {
		return fleet.Webhook{}, err
	}
	w, changed, err := store.Change(ctx, s.Store.Webhooks(), id, func(w fleet.Webhook) (fleet.Webhook, error) {
		if w.Disabled && !disabled {
			w.After = max(w.After, last)
		}
		w.Disabled = disabled
		return w, nil
	}, func(_, w fleet.Webhook) error {
		verb, text := "webhook.enable", "enabled webhook "+w.Name
		if disabled {
			verb, text = "webhook.disable", "disabled webhook "+w.Name
		}
		return s.record(ctx, fmt.Sprintf("%s:%s:%s", verb, id, fleet.NewID()), w, actor, verb, text)
	})
	w.Secret = ""
	if changed {
		s.wake()
	}
	return w, err
}

// Test sends a ping, once and now. The error has the status of the receiver's answer.
func (s *Service) Test(ctx context.Context, id string) error {
	w, err := s.Store.Webhooks().Get(ctx, id)
	if err != nil {
		return err
	}
	n := Notification{ID: id + ":ping:" + fleet.NewID(), Type: Ping, At: s.Now.UTC(), Text: "Muster can reach this webhook."}
	if f := s.post(ctx, w, Ping, n.ID, event.Data(n)); f != nil {
		return fleet.Errorf(fleet.Unavailable, "webhook %s: %s", w.Name, f.text)
	}
	return nil
}

// DeadLetters returns a page of the dead letters, newest first, and their total.
func (s *Service) DeadLetters(ctx context.Context, offset, limit int) ([]fleet.DeadLetter, int, error) {
	return s.Store.DeadLetters().List(ctx, offset, limit)
}

// Redeliver sends a dead letter once more, now, and deletes it when it is accepted.
// The error has the status of the receiver's answer.
func (s *Service) Redeliver(ctx context.Context, id, actor string) error {
	l, err := s.Store.DeadLetters().Get(ctx, id)
	if err != nil {
		return err
	}
	w, err := s.Store.Webhooks().Get(ctx, l.WebhookID)
	if err != nil {
		return err
	}
	if err := s.record(ctx, "redeliver:"+id+":"+fleet.NewID(), w, actor, "webhook.redeliver", "had the notification "+id+" delivered again to webhook "+w.Name); err != nil {
		return err
	}
	f := s.post(ctx, w, l.Type, l.ID, l.Body)
	if f == nil {
		return s.Store.DeadLetters().Delete(ctx, id)
	}
	l.Error = f.text
	l.Attempts++
	if _, err := s.Store.DeadLetters().Update(ctx, l); err != nil && fleet.KindOf(err) != fleet.Conflict && fleet.KindOf(err) != fleet.NotFound {
		return err
	}
	return fleet.Errorf(fleet.Unavailable, "webhook %s: %s", w.Name, f.text)
}

// record writes an audit entry, before the change where its id can be derived.
func (s *Service) record(ctx context.Context, id string, w fleet.Webhook, actor, verb, text string) error {
	return s.Store.Audit().Append(ctx, []fleet.AuditEntry{{ID: "webhook:" + id, At: s.Now.UTC(), Actor: actor, Verb: verb, Subject: w.ID, Text: actor + " " + text}})
}
