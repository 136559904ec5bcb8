package outage

import (
	"context"
	"sync"
	"time"
)

// sharedFor is for how long calls begin that end together; it is a part of CallTimeout.
const sharedFor = time.Second

// ends are what calls end by that begin within sharedFor.
type ends struct {
	mu   sync.Mutex
	last *end
}

type end struct {
	at   time.Time
	done chan struct{} // closed at at
}

// next is the end of a call that begins now, in CallTimeout at the most.
func (e *ends) next() *end {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if e.last == nil || e.last.at.Sub(now) < CallTimeout-sharedFor {
		last := &end{at: now.Add(CallTimeout), done: make(chan struct{})}
		time.AfterFunc(CallTimeout, func() { close(last.done) })
		e.last = last
	}
	return e.last
}

// sharing is the context of a call: with the values of the message's, and an end that
// others have, too.
type sharing struct {
	context.Context //nolint:containedctx // it is one
	end             *end
}

func (s sharing) Deadline() (time.Time, bool) { return s.end.at, true }
func (s sharing) Done() <-chan struct{}       { return s.end.done }

func (s sharing) Err() error {
	select {
	case <-s.end.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
