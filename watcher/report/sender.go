// Package report sends a watch's reports to the server. A [Sender] sends the newest report
// in the background. Its successes also show the watch that the server can be reached.
package report

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/beacon"
	"github.com/muster-fleet/muster/watcher/watch"
)

const (
	// minGap is the minimum time between two beacons, for instance during a crash loop.
	minGap = time.Second

	// The wait after a failed beacon doubles from firstWait up to maxWait, the
	// interval of the watch's reports.
	firstWait = 2 * time.Second
	maxWait   = 30 * time.Second

	// lastTimeout is how long the watcher tries to send the result of a watch. The
	// agent reports it as well.
	lastTimeout = 30 * time.Second
	// hurriedTimeout replaces lastTimeout when the watcher is asked to stop.
	hurriedTimeout = 2 * time.Second
)

// Sender sends the newest report of a watch. It is a [watch.Server].
type Sender struct {
	url  string
	send func(context.Context, agentapi.Beacon) error
	log  *slog.Logger
	stop context.CancelFunc
	done chan struct{}

	mu        sync.Mutex
	newest    *agentapi.Beacon // not sent yet
	changed   chan struct{}    // closed and replaced at every change
	sending   bool
	sent      time.Time // of the last beacon, successful or not
	asked     time.Time // end of the server's Retry-After
	retry     time.Time // end of the wait after a failure
	wait      time.Duration
	good, bad int
	failing   bool // the last beacon failed, and that was logged
}

var _ watch.Server = (*Sender)(nil)

// Start starts a sender; Close ends it.
func Start(c *beacon.Client, log *slog.Logger) *Sender { return start(c.URL(), c.Send, log) }

func start(url string, send func(context.Context, agentapi.Beacon) error, log *slog.Logger) *Sender {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Sender{url: url, send: send, log: log, stop: cancel, done: make(chan struct{}), changed: make(chan struct{})}
	go s.run(ctx)
	return s
}

// URL is the server's base URL.
func (s *Sender) URL() string { return s.url }

// Send sends r in the background. It replaces a report that was not sent yet. A report of
// the end of a watch waits for a Retry-After, but not after earlier failures.
func (s *Sender) Send(r watch.Report) {
	b := beaconOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = &b
	if b.Phase != agentapi.BeaconWatching {
		s.retry, s.wait = time.Time{}, 0
	}
	s.change()
}

// Contact returns the number of accepted and failed beacons since the last call.
func (s *Sender) Contact() (good, bad int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	good, bad = s.good, s.bad
	s.good, s.bad = 0, 0
	return good, bad
}

// Flush waits until the newest report was sent, the sender has to wait, or ctx ends.
func (s *Sender) Flush(ctx context.Context) {
	s.await(ctx, func() bool { return s.idle() || (!s.sending && time.Until(s.blocked()) > 0) })
}

// Close waits until the result of a watch was sent, for lastTimeout at most, or
// hurriedTimeout once ctx has ended. Then it stops the sender.
func (s *Sender) Close(ctx context.Context) {
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(hurriedTimeout, cancel) })()
	s.await(patience, func() bool { return s.idle() || (s.newest != nil && !s.newest.Phase.Ended()) })
	s.stop()
	<-s.done
}

// idle reports whether there is nothing to send. The caller holds mu, as for blocked and
// change.
func (s *Sender) idle() bool { return s.newest == nil && !s.sending }

func (s *Sender) blocked() time.Time {
	if s.retry.After(s.asked) {
		return s.retry
	}
	return s.asked
}

func (s *Sender) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// await returns when ok returns true, or ctx ends. It calls ok with mu held.
func (s *Sender) await(ctx context.Context, ok func() bool) {
	for {
		s.mu.Lock()
		met, changed := ok(), s.changed
		s.mu.Unlock()
		if met {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Sender) run(ctx context.Context) {
	defer close(s.done)
	for {
		b, wait, changed := s.next()
		if b != nil {
			s.finish(ctx, *b, s.send(ctx, *b))
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-changed:
		case <-t.C:
		}
		t.Stop()
	}
}

// idleWait is the wait while there is nothing to send.
const idleWait = time.Hour

// next returns the beacon to send now, or how long to wait.
func (s *Sender) next() (b *agentapi.Beacon, wait time.Duration, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest == nil {
		return nil, idleWait, s.changed
	}
	at := s.blocked()
	// The result of a watch is sent without minGap.
	if paced := s.sent.Add(minGap); s.newest.Phase == agentapi.BeaconWatching && paced.After(at) {
		at = paced
	}
	if wait = time.Until(at); wait > 0 {
		return nil, wait, s.changed
	}
	b, s.newest, s.sending = s.newest, nil, true
	s.change()
	return b, 0, nil
}

func (s *Sender) finish(ctx context.Context, b agentapi.Beacon, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending, s.sent = false, time.Now()
	defer s.change()
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		s.good++
		s.retry, s.asked, s.wait = time.Time{}, time.Time{}, 0
		if s.failing {
			s.log.Info("reports reach the server again")
		}
		s.failing = false
		return
	}
	s.bad++
	s.wait = min(max(firstWait, 2*s.wait), maxWait)
	s.retry = time.Now().Add(s.wait)
	var refusal *beacon.RefusedError
	if errors.As(err, &refusal) && refusal.RetryAfter > 0 {
		s.asked = time.Now().Add(refusal.RetryAfter)
	}
	// During a watch newer reports follow; the result must be sent again.
	if s.newest == nil && b.Phase != agentapi.BeaconWatching {
		s.newest = &b
	}
	if !s.failing {
		s.log.Warn("a report could not be sent to the server, continuing without", "stage", string(b.Phase), "again_in", time.Until(s.blocked()).String(), "error", err)
	}
	s.failing = true
}

func beaconOf(r watch.Report) agentapi.Beacon {
	b := agentapi.Beacon{
		ActionID: r.Marker.ActionID,
		From:     r.Marker.From.FullVersion(), To: r.Marker.To.FullVersion(),
		Phase: agentapi.BeaconPhase(r.Phase), Waiting: r.Waiting, At: r.At.UTC(),
		Agent: agentapi.BeaconAgent{Alive: r.Alive, Crashes: r.Crashes},
	}
	if h := r.Health; h != nil {
		b.Agent.State, b.Agent.Version, b.Agent.LastCheckin = string(h.State), h.FullVersion(), h.Fleet.LastCheckin
	}
	if r.Reason != nil {
		b.Reason = &agentapi.BeaconCause{Code: string(r.Reason.Code), Text: r.Reason.Text}
	}
	return b
}
