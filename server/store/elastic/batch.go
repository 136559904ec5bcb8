package elastic

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// maxInFlight bounds the concurrent requests of a batcher. If one hangs, another is
	// left. With more, each would have fewer callers.
	maxInFlight = 2
	// batchItems and batchBytes bound the writes of a call that shares a request: those of a
	// check-in, an acknowledgement or an enrolment. A larger call gets its own request.
	batchItems = 32
	batchBytes = 64 << 10
	// batchLookups bounds the reads of a call that shares a request.
	batchLookups = maxGet / maxBatched
	// maxBatched bounds the calls that share a request: maxBulkBytes has room for as many of
	// batchBytes.
	maxBatched = 128
	// maxQueued bounds the queued calls. With more, a cluster would not catch up before their
	// timeout.
	maxQueued = 20_000
)

// errQueueFull is the error of calls beyond maxQueued.
var errQueueFull = fleet.Errorf(fleet.Unavailable, "%d calls wait for Elasticsearch already: look at the load of the cluster", maxQueued)

// batcher combines the items of many callers into few requests. It sends a call immediately
// if fewer than maxInFlight requests are running. Otherwise it queues the call, and sends all
// queued calls together when a request returns. Each caller gets the answers to its own
// items.
type batcher[Q, A any] struct {
	// send sends one request for all items; each answer has the index of its item.
	send func(context.Context, []Q) ([]A, error)

	mu       sync.Mutex
	inFlight int
	queue    []*batched[Q, A]
}

// batched is one call that shares a request.
type batched[Q, A any] struct {
	ctx     context.Context
	items   []Q
	answers []A
	err     error
	done    chan struct{}
}

// do returns the answers to items, within callTimeout. After an error the items may have been
// sent: the end of a caller's context does not stop a shared request.
func (g *batcher[Q, A]) do(ctx context.Context, items []Q) ([]A, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	call := &batched[Q, A]{ctx: ctx, items: items, done: make(chan struct{})}
	if !g.enqueue(call) {
		return nil, errQueueFull
	}
	select {
	case <-call.done:
		return call.answers, call.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// enqueue reports whether the queue had room.
func (g *batcher[Q, A]) enqueue(call *batched[Q, A]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) == maxQueued {
		return false
	}
	g.queue = append(g.queue, call)
	if g.inFlight < maxInFlight {
		g.inFlight++
		go g.run()
	}
	return true
}

// run sends queued calls until the queue is empty.
func (g *batcher[Q, A]) run() {
	for calls := g.next(); len(calls) > 0; calls = g.next() {
		g.sendBatch(calls)
	}
}

// next removes the first calls from the queue and returns those whose context has not ended.
// If there are none, it decrements inFlight, and run must return.
func (g *batcher[Q, A]) next() []*batched[Q, A] {
	g.mu.Lock()
	defer g.mu.Unlock()
	var calls []*batched[Q, A]
	for i, c := range g.queue {
		if len(calls) == maxBatched {
			g.queue = g.queue[i:]
			return calls
		}
		if c.ctx.Err() == nil {
			calls = append(calls, c)
		}
	}
	g.queue = nil
	if len(calls) == 0 {
		g.inFlight--
	}
	return calls
}

func (g *batcher[Q, A]) sendBatch(calls []*batched[Q, A]) {
	var items []Q
	for _, c := range calls {
		items = append(items, c.items...)
	}
	// The context of one caller must not stop the request of the others.
	answers, err := g.send(context.Background(), items)
	if err != nil && len(calls) > 1 && refusedUnread(err) {
		// The items of one call make Elasticsearch refuse the whole request.
		for one := range slices.Chunk(calls, 1) {
			g.sendBatch(one)
		}
		return
	}
	for _, c := range calls {
		if c.err = err; err == nil {
			c.answers, answers = answers[:len(c.items):len(c.items)], answers[len(c.items):]
		}
		close(c.done)
	}
}

// refusedUnread reports whether a request had no effect because its content is invalid.
func refusedUnread(err error) bool {
	var r *refusal
	return errors.As(err, &r) && (r.status == http.StatusBadRequest || r.status == http.StatusRequestEntityTooLarge)
}
