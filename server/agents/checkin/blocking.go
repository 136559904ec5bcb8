package checkin

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Blocking is the Parker that lets the handler's goroutine wait. It works with
// every kind of connection on every system; it costs a goroutine and the
// request's buffers for each agent. The zero value is ready.
type Blocking struct {
	mu     sync.Mutex
	polls  map[string]*waiting
	ended  ended
	hungUp hungUp
	inside int // calls of Park, those of superseded polls among them
	closed bool
	idle   chan struct{} // closed when the last of them leaves after Close
}

type waiting struct {
	policy    fleet.PolicyAt
	wake      chan struct{} // capacity 1: a wake during a check is not lost
	supersede chan struct{} // closed when a newer poll replaces this one, or at Close
}

var _ Parker = (*Blocking)(nil)

// Park waits in the caller's goroutine and returns when p is answered.
func (b *Blocking) Park(p Poll) {
	b.wait(p, b.enter(p.Wait))
}

// wait answers p, which enter has registered as w.
func (b *Blocking) wait(p Poll, w *waiting) {
	if w == nil {
		write(p.Writer, empty)
		return
	}
	defer b.leave(p.AgentID, w)

	ctx := p.Request.Context()
	deadline := time.NewTimer(time.Until(p.Deadline))
	defer deadline.Stop()
	var retry <-chan time.Time
	for {
		found := p.Checker.PendingActions(ctx, []*Wait{&p.Wait})[0]
		answer, err := found.Answer, found.Err
		switch {
		case answer != nil:
			if w.superseded() {
				answer = &empty
			}
			write(p.Writer, *answer)
			return
		case err != nil && ctx.Err() == nil:
			retry = time.After(CheckRetry)
		}
		select {
		case <-w.wake:
		case <-retry:
			retry = nil
		case <-w.supersede:
			write(p.Writer, empty)
			return
		case <-deadline.C:
			write(p.Writer, empty)
			return
		case <-ctx.Done():
			b.disconnected(p.AgentID, w)
			return
		}
	}
}

// enter registers the poll and ends an older one. It returns nil if the parker is closed.
func (b *Blocking) enter(wait Wait) *waiting {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	if older := b.polls[wait.AgentID]; older != nil {
		close(older.supersede)
	}
	if b.polls == nil {
		b.polls = map[string]*waiting{}
	}
	w := &waiting{policy: wait.Policy, wake: make(chan struct{}, 1), supersede: make(chan struct{})}
	b.polls[wait.AgentID] = w
	b.inside++
	return w
}

// Release answers the poll of an agent with Empty, if there is one.
func (b *Blocking) Release(agentID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.polls[agentID]; w != nil && !b.closed { // Close has ended it
		close(w.supersede)
		b.remove(agentID)
	}
}

// remove must be called with mu locked.
func (b *Blocking) remove(agentID string) {
	delete(b.polls, agentID)
	b.ended.add(agentID, time.Now())
}

func (w *waiting) superseded() bool {
	select {
	case <-w.supersede:
		return true
	default:
		return false
	}
}

// leave removes the poll, unless a newer one has replaced it: that one's wake-ups
// must not be lost because an older connection ends late.
func (b *Blocking) leave(agentID string, w *waiting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.polls[agentID] == w {
		b.remove(agentID)
	}
	if b.inside--; b.idle != nil && b.inside == 0 {
		close(b.idle)
		b.idle = nil
	}
}

// disconnected records that the client of the poll has closed its connection, unless this server does.
func (b *Blocking) disconnected(agentID string, w *waiting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.polls[agentID] == w && !b.closed {
		b.hungUp.add(agentID, time.Now())
	}
}

func (b *Blocking) HungUp(f func(agentID string, at time.Time)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hungUp.each(func(id string) bool { return b.polls[id] != nil }, f)
}

func (b *Blocking) Wake(agentIDs ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.polls) == 0 {
		return
	}
	for _, id := range agentIDs {
		if w := b.polls[id]; w != nil {
			select {
			case w.wake <- struct{}{}:
			default: // a check is due anyway
			}
		}
	}
}

func (b *Blocking) Parked(f func(agentID string, has fleet.PolicyAt)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, w := range b.polls {
		f(id, w.policy)
	}
}

func (b *Blocking) Connected(agentID string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.polls[agentID] != nil || b.ended.has(agentID, time.Now())
}

func (b *Blocking) Count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.polls)
}

func (b *Blocking) Close(ctx context.Context) error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		for _, w := range b.polls {
			close(w.supersede)
		}
	}
	if b.inside == 0 {
		b.mu.Unlock()
		return nil
	}
	if b.idle == nil {
		b.idle = make(chan struct{})
	}
	idle := b.idle
	b.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write sends an answer. It ignores errors, which mean that the client has disconnected:
// its next check-in gets the same actions, since it has not acknowledged them.
func write(w http.ResponseWriter, a Answer) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
}

// writeLast is write for a server that shuts down: the client should connect to another.
func writeLast(w http.ResponseWriter, a Answer) {
	w.Header().Set("Connection", "close")
	write(w, a)
}
