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
	// maxFlights is how many requests a gatherer has under way. One that hangs leaves
	// the others; with more of them each would carry less.
	maxFlights = 2
	// gatherItems and gatherBytes bound what is gathered: what a check-in, an
	// acknowledgement or an enrolment asks for. More makes a request of its own.
	gatherItems = 32
	gatherBytes = 64 << 10
	// gatherLookups is that for reads.
	gatherLookups = maxGet / maxGathered
	// maxGathered is how many callers share a request: as many of gatherBytes as
	// maxBulkBytes has room for.
	maxGathered = 128
	// maxWaiting bounds the callers that wait. A cluster that is behind by more does
	// not catch up before they give up.
	maxWaiting = 20_000
)

// errTooMany is what callers beyond maxWaiting meet.
var errTooMany = fleet.Errorf(fleet.Unavailable, "%d calls wait for Elasticsearch already: look at the load of the cluster", maxWaiting)

// gatherer asks for what many callers want in few requests. Whoever comes while
// fewer than maxFlights are under way is sent at once; the others wait together for
// the first that returns. Each gets the answers to what he asked alone.
type gatherer[Q, A any] struct {
	// send asks for all at once; answers stand at the index of what they are for.
	send func(context.Context, []Q) ([]A, error)

	mu      sync.Mutex
	flights int
	waiting []*gathered[Q, A]
}

// gathered is one caller's part of a request.
type gathered[Q, A any] struct {
	ctx     context.Context
	asked   []Q
	answers []A
	err     error
	done    chan struct{}
}

// do returns the answers to what is asked, in callTimeout at most. After an error
// it may have been done: a caller that gives up does not stop a request he shares.
func (g *gatherer[Q, A]) do(ctx context.Context, asked []Q) ([]A, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	part := &gathered[Q, A]{ctx: ctx, asked: asked, done: make(chan struct{})}
	if !g.enter(part) {
		return nil, errTooMany
	}
	select {
	case <-part.done:
		return part.answers, part.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (g *gatherer[Q, A]) enter(part *gathered[Q, A]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == maxWaiting {
		return false
	}
	g.waiting = append(g.waiting, part)
	if g.flights < maxFlights {
		g.flights++
		go g.fly()
	}
	return true
}

// fly sends what waits until nothing does.
func (g *gatherer[Q, A]) fly() {
	for parts := g.next(); len(parts) > 0; parts = g.next() {
		g.ask(parts)
	}
}

// next takes those that have waited longest, without those who have given up. Of
// none the flight is over.
func (g *gatherer[Q, A]) next() []*gathered[Q, A] {
	g.mu.Lock()
	defer g.mu.Unlock()
	var parts []*gathered[Q, A]
	for i, p := range g.waiting {
		if len(parts) == maxGathered {
			g.waiting = g.waiting[i:]
			return parts
		}
		if p.ctx.Err() == nil {
			parts = append(parts, p)
		}
	}
	g.waiting = nil
	if len(parts) == 0 {
		g.flights--
	}
	return parts
}

func (g *gatherer[Q, A]) ask(parts []*gathered[Q, A]) {
	var asked []Q
	for _, p := range parts {
		asked = append(asked, p.asked...)
	}
	// Nobody's own context: who gives up must not stop the others.
	answers, err := g.send(context.Background(), asked)
	if err != nil && len(parts) > 1 && refusedUnread(err) {
		// Somebody's part is such that Elasticsearch takes the whole for wrong.
		for one := range slices.Chunk(parts, 1) {
			g.ask(one)
		}
		return
	}
	for _, p := range parts {
		if p.err = err; err == nil {
			p.answers, answers = answers[:len(p.asked):len(p.asked)], answers[len(p.asked):]
		}
		close(p.done)
	}
}

// refusedUnread says that nothing of a request was done, for what is in it.
func refusedUnread(err error) bool {
	var r *refusal
	return errors.As(err, &r) && (r.status == http.StatusBadRequest || r.status == http.StatusRequestEntityTooLarge)
}
