// Package report sends a watch's reports to the server: the watch leaves them with
// a [Sender], which sends the newest one beside it. That one gets through is also
// what tells a version that lost its server from a server that cannot be reached.
package report

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/watcher/beacon"
	"github.com/muster-fleet/muster/watcher/watch"
)

const (
	// minGap is the time between two beacons, however much changes: a crash
	// loop is told of once a second at most.
	minGap = time.Second

	// A beacon that failed is followed by the next after a wait, which doubles
	// up to the watch's own pace.
	firstWait = 2 * time.Second
	maxWait   = 30 * time.Second

	// lastPatience is how long a watcher whose watch is over still tries to
	// tell the result: four tries or five. The agent tells it as well.
	lastPatience = 30 * time.Second
	// hurriedPatience is what is left of it once the watcher is asked to stop.
	hurriedPatience = 2 * time.Second
)

// Sender sends the newest report of a watch. It is a [watch.Server].
type Sender struct {
	url  string
	send func(context.Context, agentapi.Beacon) error
	log  *slog.Logger
	stop context.CancelFunc
	done chan struct{}

	mu        sync.Mutex
	newest    *agentapi.Beacon // that was not sent yet
	changed   chan struct{}    // closed and replaced at every change of what is here
	sending   bool
	sent      time.Time // when the last one was, whatever came of it
	asked     time.Time // the server wants nothing before it
	retry     time.Time // nor is anything sent before this, after a failure
	wait      time.Duration
	good, bad int
	failing   bool // the last one failed, which was logged
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

// Tell leaves r to be sent in place of what was not sent yet. What ends a watch
// waits for what the server has asked, but not for what failed before.
func (s *Sender) Tell(r watch.Report) {
	b := beaconOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = &b
	if b.Stage != agentapi.BeaconWatching {
		s.retry, s.wait = time.Time{}, 0
	}
	s.change()
}

// Contact returns what has come of the beacons since it was last asked.
func (s *Sender) Contact() (good, bad int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	good, bad = s.good, s.bad
	s.good, s.bad = 0, 0
	return good, bad
}

// Flush waits until everything was sent, nothing can be sent for now, or ctx has
// ended.
func (s *Sender) Flush(ctx context.Context) {
	s.await(ctx, func() bool { return s.idle() || (!s.sending && time.Until(s.blocked()) > 0) })
}

// Close sends the result of a watch that is over, if it was told one, within half
// a minute or, once ctx has ended, two seconds. Then it ends the sender.
func (s *Sender) Close(ctx context.Context) {
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPatience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(hurriedPatience, cancel) })()
	s.await(patience, func() bool { return s.idle() || (s.newest != nil && !s.newest.Stage.Over()) })
	s.stop()
	<-s.done
}

// idle, blocked and change are called with the lock held.
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

// await returns when ok, which is asked with the lock held, or when ctx ends.
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

// idleWait is the longest sleep without a reason to wake.
const idleWait = time.Hour

// next takes the beacon that may go now, or says how long to wait.
func (s *Sender) next() (b *agentapi.Beacon, wait time.Duration, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest == nil {
		return nil, idleWait, s.changed
	}
	at := s.blocked()
	// What ends a watch does not wait for the pace of what goes on in it.
	if paced := s.sent.Add(minGap); s.newest.Stage == agentapi.BeaconWatching && paced.After(at) {
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
			s.log.Info("the server is told again how the watch goes")
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
	// The next look of a watch is newer anyway; what ends it is told again.
	if s.newest == nil && b.Stage != agentapi.BeaconWatching {
		s.newest = &b
	}
	if !s.failing {
		s.log.Warn("the server cannot be told how the watch goes, going on without", "stage", string(b.Stage), "again_in", time.Until(s.blocked()).String(), "error", err)
	}
	s.failing = true
}

func beaconOf(r watch.Report) agentapi.Beacon {
	b := agentapi.Beacon{
		ActionID: r.Marker.ActionID,
		From:     r.Marker.From.FullVersion(), To: r.Marker.To.FullVersion(),
		Stage: agentapi.BeaconStage(r.Stage), Waiting: r.Waiting, At: r.At.UTC(),
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
