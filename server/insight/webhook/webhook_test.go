package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/webhook"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite"
)

// receivers simulates the network. Each host answers by its function, and records what it
// received.
type receivers struct {
	mu    sync.Mutex
	hosts map[string]func(n int) (status int, retryAfter string) // n counts from 1; none: 200
	got   map[string][]delivery
}

type delivery struct {
	at     time.Time
	header http.Header
	body   []byte
}

func (r *receivers) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	host := req.URL.Host
	if r.got == nil {
		r.got = map[string][]delivery{}
	}
	r.got[host] = append(r.got[host], delivery{time.Now(), req.Header, body})
	status, retryAfter := http.StatusOK, ""
	if f := r.hosts[host]; f != nil {
		if status, retryAfter = f(len(r.got[host])); status == 0 {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
	}
	resp := &http.Response{StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)), Header: http.Header{}, Body: io.NopCloser(bytes.NewReader([]byte("  because\n")))}
	if retryAfter != "" {
		resp.Header.Set("Retry-After", retryAfter)
	}
	return resp, nil
}

func (r *receivers) answers(host string, f func(n int) (int, string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hosts == nil {
		r.hosts = map[string]func(int) (int, string){}
	}
	r.hosts[host] = f
}

func (r *receivers) of(host string) []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]delivery(nil), r.got[host]...)
}

// types returns the types of the events that a host received.
func (r *receivers) types(host string) string {
	var out []string
	for _, d := range r.of(host) {
		out = append(out, strings.TrimPrefix(d.header.Get(webhook.HeaderEvent), "rollout."))
	}
	return strings.Join(out, " ")
}

type world struct {
	*webhook.Service

	t    *testing.T
	s    store.Store
	net  *receivers
	stop func()
}

// bubble runs f in virtual time with one server that delivers.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), filepath.Join(dir, "muster.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		w := serve(t, s, &receivers{}, false)
		defer func() { w.stop() }()
		f(t, w)
	})
}

// serve starts a server that delivers from a store. With several, it also polls for events
// of other servers.
func serve(t *testing.T, s store.Store, net *receivers, several bool) *world {
	log := slog.New(slog.DiscardHandler)
	stream := &event.Stream{Store: s.Events(), Log: log}
	w := &world{t: t, s: s, net: net, Service: &webhook.Service{Store: s, Events: stream, Log: log, Transport: net}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	if several {
		running.Go(func() { stream.Run(ctx) })
	}
	running.Go(func() { w.Run(ctx) })
	w.stop = func() { cancel(); running.Wait() }
	return w
}

func (w *world) create(host string, events ...string) fleet.Webhook {
	w.t.Helper()
	hook, err := w.Create(w.t.Context(), fleet.Webhook{URL: "https://" + host + "/muster", Events: events}, "ann")
	if err != nil {
		w.t.Fatal(err)
	}
	return hook
}

func (w *world) happens(types ...string) {
	w.t.Helper()
	r := &fleet.Rollout{ID: "r1", State: fleet.RolloutRunning, Plan: fleet.Plan{Name: "spring", Version: "2.0.0"}, Counts: fleet.Counts{Total: 9, Succeeded: 4, Failed: 1}}
	for _, typ := range types {
		w.Events.Publish(w.t.Context(), fleet.RolloutEvent(typ, r, time.Now().UTC()))
	}
}

// gets waits some seconds and checks all events that a host has received.
func (w *world) gets(host, want string) {
	w.t.Helper()
	time.Sleep(12 * time.Second) // two checks of an idle service
	synctest.Wait()
	if got := w.net.types(host); got != want {
		w.t.Fatalf("%s was sent %q, want %q", host, got, want)
	}
}

func (w *world) letters() []fleet.DeadLetter {
	w.t.Helper()
	letters, total, err := w.DeadLetters(w.t.Context(), 0, 0)
	if err != nil || total != len(letters) {
		w.t.Fatal(total, err)
	}
	return letters
}

func TestWebhookReceivesTheEventsItSelects(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.happens(fleet.EventRolloutCreated) // before it was made
		w.create("usual.example")
		w.create("picky.example", fleet.EventRolloutProgress, fleet.EventRolloutFailed)
		w.happens(fleet.EventRolloutStarted, fleet.EventRolloutProgress, fleet.EventAgentStatus, fleet.EventTargetStarted, fleet.EventRolloutFailed, fleet.EventRollbackStarted)
		w.gets("usual.example", "started failed rollback_initiated")
		w.gets("picky.example", "progress failed")

		d := w.net.of("usual.example")[1]
		var n webhook.Notification
		if err := json.Unmarshal(d.body, &n); err != nil {
			t.Fatal(err)
		}
		if n.ID != d.header.Get(webhook.HeaderID) || n.Type != fleet.EventRolloutFailed || n.At.IsZero() || n.Rollout == nil || n.Rollout.ID != "r1" || n.Rollout.Counts.Succeeded != 4 {
			t.Errorf("body is %s", d.body)
		}
		if want := `Rollout "spring" has failed. Of 9 agents 4 succeeded, 1 failed, 0 are under way.`; n.Text != want {
			t.Errorf("the sentence is %s, want %s", n.Text, want)
		}
	})
}

func TestIncidentsAreDelivered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.create("a.example")
		w.Events.Publish(t.Context(), fleet.Event{Type: fleet.EventIncident, Subject: "i1", Data: json.RawMessage(`{"id":"i1","title":"The rollback of web-1 failed","state":"open","next":{"command":"muster agents why a1"}}`)})
		w.gets("a.example", fleet.EventIncident)
		var n webhook.Notification
		if err := json.Unmarshal(w.net.of("a.example")[0].body, &n); err != nil || n.Rollout != nil || !bytes.Contains(n.Incident, []byte(`"i1"`)) || n.Text != "The rollback of web-1 failed (incident open): see `muster agents why a1`" {
			t.Errorf("body is %+v, %v", n, err)
		}
	})
}

func TestGroupsAreDelivered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.create("a.example")
		g := &fleet.RolloutGroup{
			ID: "g1", State: fleet.GroupPartial, Stop: &fleet.GroupStop{Kind: fleet.GroupStopFailure, Text: "3 of 5 failed", Member: "app"},
			Plan:    fleet.GroupPlan{Name: "spring", FailurePolicy: fleet.PartialOK, DesiredVersions: map[string]string{"db": "1.1.0", "app": "2.0.0"}},
			Members: []fleet.GroupMember{{Name: "db", State: fleet.MemberCompleted}, {Name: "app", State: fleet.MemberRollbackFailed}},
		}
		w.Events.Publish(t.Context(), fleet.GroupEvent(fleet.EventGroupProgress, g, time.Now()), fleet.GroupEvent(fleet.EventGroupPartial, g, time.Now()))
		w.gets("a.example", fleet.EventGroupPartial)
		var n webhook.Notification
		want := `Group "spring" has ended with some members completed: 3 of 5 failed. Members: db 1.1.0 completed, app 2.0.0 rollback failed.`
		if err := json.Unmarshal(w.net.of("a.example")[0].body, &n); err != nil || n.Rollout != nil || n.Group == nil || n.Group.ID != "g1" || n.Text != want {
			t.Errorf("body is %+v, %v, want %s", n, err, want)
		}
	})
}

func TestFailedDeliveryIsRetried(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers func(n int) (int, string)
		// pauses between tries; the last ends in success or a dead letter.
		pauses []time.Duration
		dead   string // text in the dead letter; empty if there is none
	}{
		{"a receiver that comes back", func(n int) (int, string) {
			if n < 4 {
				return 503, ""
			}
			return 204, ""
		}, webhook.Backoff[:3], ""},
		{"one that is gone for good", func(int) (int, string) { return 0, "" }, webhook.Backoff, "connection refused"},
		{"one that does not know us", func(int) (int, string) { return 404, "" }, nil, "404 Not Found after"},
		{"one that points elsewhere", func(int) (int, string) { return 302, "" }, nil, "redirects are not followed"},
		{"one that asks for time", func(n int) (int, string) {
			if n == 1 {
				return 429, "90"
			}
			return 200, ""
		}, []time.Duration{90 * time.Second}, ""},
		{"one that asks for too much", func(n int) (int, string) {
			if n == 1 {
				return 429, "86400"
			}
			return 200, ""
		}, []time.Duration{10 * time.Minute}, ""},
		{"one that asks for less than the backoff", func(n int) (int, string) {
			if n == 1 {
				return 408, "0"
			}
			return 200, ""
		}, webhook.Backoff[:1], ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				hook := w.create("a.example")
				w.net.answers("a.example", c.answers)
				w.happens(fleet.EventRolloutStarted)
				for _, pause := range c.pauses {
					time.Sleep(pause)
				}
				time.Sleep(30 * time.Second) // and no try more
				synctest.Wait()
				tries := w.net.of("a.example")
				if len(tries) != len(c.pauses)+1 {
					t.Fatalf("%d tries, want %d", len(tries), len(c.pauses)+1)
				}
				for i, want := range c.pauses {
					if got := tries[i+1].at.Sub(tries[i].at); got < want || got > want+time.Second {
						t.Errorf("try %d came after %v, want %v", i+2, got, want)
					}
					if a, b := tries[0].header.Get(webhook.HeaderID), tries[i+1].header.Get(webhook.HeaderID); a != b {
						t.Errorf("the delivery is %s, then %s", a, b)
					}
				}
				letters := w.letters()
				if c.dead == "" {
					if len(letters) != 0 {
						t.Errorf("dead letters: %+v", letters)
					}
				} else if len(letters) != 1 || letters[0].WebhookID != hook.ID || letters[0].Attempts != len(tries) || !strings.Contains(letters[0].Error, c.dead) {
					t.Errorf("dead letters: %+v", letters)
				}

				w.net.answers("a.example", nil)
				w.happens(fleet.EventRolloutCompleted)
				time.Sleep(12 * time.Second)
				synctest.Wait()
				if got := w.net.types("a.example"); !strings.HasSuffix(got, " completed") || strings.Count(got, "completed") != 1 {
					t.Errorf("then it was sent %s", got)
				}
			})
		})
	}
}

func TestFailingReceiverDoesNotDelayOthers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.create("dead.example")
		w.create("alive.example")
		w.net.answers("dead.example", func(int) (int, string) { return 0, "" })
		w.happens(fleet.EventRolloutStarted, fleet.EventRolloutPaused)
		w.gets("alive.example", "started paused")
		time.Sleep(15 * time.Minute)
		w.happens(fleet.EventRolloutResumed)
		w.gets("alive.example", "started paused resumed")
		if got := w.letters(); len(got) != 1 || got[0].Type != fleet.EventRolloutStarted {
			t.Errorf("dead letters: %+v, want one: the next is still being tried", got)
		}
	})
}

func TestDeadLetterCanBeRedelivered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		hook := w.create("a.example")
		w.net.answers("a.example", func(int) (int, string) { return 410, "" })
		w.happens(fleet.EventRolloutStarted)
		w.gets("a.example", "started")
		letter := w.letters()[0]
		if err := w.Redeliver(t.Context(), letter.ID, "kim"); fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(err.Error(), "410") {
			t.Errorf("error is %v", err)
		}
		if got := w.letters(); len(got) != 1 || got[0].Attempts != 2 {
			t.Errorf("dead letters: %+v", got)
		}
		if err := w.Test(t.Context(), hook.ID); fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(err.Error(), "410 Gone after") {
			t.Errorf("the test says %v", err)
		}
		w.net.answers("a.example", nil)
		if err := w.Test(t.Context(), hook.ID); err != nil {
			t.Error(err)
		}
		if err := w.Redeliver(t.Context(), letter.ID, "kim"); err != nil || len(w.letters()) != 0 {
			t.Errorf("error is %v, dead letters: %+v", err, w.letters())
		}
		got := w.net.of("a.example")
		if first, last := got[0], got[len(got)-1]; !bytes.Equal(first.body, last.body) || first.header.Get(webhook.HeaderID) != last.header.Get(webhook.HeaderID) {
			t.Errorf("sent again is %s, was %s", last.body, first.body)
		}
	})
}

func TestDisabledWebhookReceivesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		hook := w.create("a.example")
		w.happens(fleet.EventRolloutStarted)
		w.gets("a.example", "started")
		for range 2 {
			if got, err := w.SetDisabled(t.Context(), hook.ID, true, "ann"); err != nil || !got.Disabled || got.Secret != "" {
				t.Fatalf("webhook is %+v, %v", got, err)
			}
		}
		w.happens(fleet.EventRolloutPaused)
		w.gets("a.example", "started")
		if _, err := w.SetDisabled(t.Context(), hook.ID, false, "ann"); err != nil {
			t.Fatal(err)
		}
		w.happens(fleet.EventRolloutResumed)
		w.gets("a.example", "started resumed")
	})
}

func TestDeletedWebhookLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		hook := w.create("a.example")
		w.net.answers("a.example", func(int) (int, string) { return 400, "" })
		w.happens(fleet.EventRolloutStarted)
		w.gets("a.example", "started")
		for range 2 {
			if err := w.Delete(t.Context(), hook.ID, "ann"); err != nil {
				t.Fatal(err)
			}
		}
		w.happens(fleet.EventRolloutPaused)
		w.gets("a.example", "started")
		_, leases, err := w.s.Leases().List(t.Context(), 0, 0)
		if hooks, lerr := w.List(t.Context()); len(hooks) != 0 || len(w.letters()) != 0 || leases != 0 || err != nil || lerr != nil {
			t.Errorf("left are %+v, %+v, %d leases; %v, %v", hooks, w.letters(), leases, err, lerr)
		}
		entries, _, err := w.s.Audit().List(t.Context(), store.AuditQuery{Subject: hook.ID, Limit: 9})
		if err != nil || len(entries) != 2 || entries[0].Verb != "webhook.delete" || entries[1].Verb != "webhook.create" {
			t.Errorf("the audit trail has %+v, %v", entries, err)
		}
	})
}

func TestAnotherServerContinuesDeliveries(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.create("a.example")
		w.stop()
		*w = *serve(t, w.s, w.net, true)
		other := serve(t, w.s, w.net, true)
		defer func() { other.stop() }()
		w.happens(fleet.EventRolloutStarted, fleet.EventRolloutPaused)
		w.gets("a.example", "started paused") // by one of the two
		w.stop()
		other.happens(fleet.EventRolloutResumed)
		other.gets("a.example", "started paused resumed")
		other.stop()

		w.happens(fleet.EventRolloutCompleted) // no server delivers
		*w = *serve(t, w.s, w.net, true)
		w.gets("a.example", "started paused resumed completed")
	})
}

// A server dies between two tries, and another one continues.
func TestAnotherServerRetriesFailedDeliveries(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.create("a.example")
		w.net.answers("a.example", func(n int) (int, string) {
			if n <= 3 {
				return 500, ""
			}
			return 200, ""
		})
		w.happens(fleet.EventRolloutStarted)
		time.Sleep(8 * time.Second)
		synctest.Wait()
		if got := len(w.net.of("a.example")); got != 3 {
			t.Fatalf("%d tries, want 3", got)
		}
		w.stop()
		*w = *serve(t, w.s, w.net, true)
		w.gets("a.example", "started started started started")
		if len(w.letters()) != 0 {
			t.Errorf("dead letters: %+v", w.letters())
		}
	})
}

// In a busy fleet, webhooks do not each read the events that none of them selects, and
// their positions are written all the same.
func TestUnselectedEventsAreSkipped(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		hook := w.create("a.example")
		status := make([]fleet.Event, 1000)
		for range 11 {
			for i := range status {
				status[i] = fleet.Event{Type: fleet.EventAgentStatus, Subject: "a"}
			}
			w.Events.Publish(t.Context(), status...)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		stored, err := w.s.Webhooks().Get(t.Context(), hook.ID)
		if err != nil || stored.After < 10_000 {
			t.Errorf("its place is %d (%v), want one near the end", stored.After, err)
		}
		w.happens(fleet.EventRolloutStarted)
		w.gets("a.example", "started")
	})
}

func TestDeadLettersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.create("a.example")
		w.net.answers("a.example", func(int) (int, string) { return 400, "" })
		for n := range webhook.MaxDeadLetters {
			if err := w.s.DeadLetters().Create(t.Context(), fleet.DeadLetter{ID: fmt.Sprint(n), WebhookID: "other"}); err != nil {
				t.Fatal(err)
			}
		}
		w.happens(fleet.EventRolloutStarted)
		w.gets("a.example", "started")
		letters := w.letters()
		if len(letters) != webhook.MaxDeadLetters || letters[0].Type != fleet.EventRolloutStarted || letters[len(letters)-1].ID != "1" {
			t.Errorf("%d dead letters, the newest %+v", len(letters), letters[0])
		}
	})
}
