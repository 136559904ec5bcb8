package limit

import (
	"context"
	"errors"
	"sync"
)

// turns let one check-in of an agent at a time be read and handled, and one more wait for it: a
// host has one agent, and whoever has its key must not have a hundred bodies in memory.
type turns struct {
	mu    sync.Mutex
	taken map[string]*turn // by agent
}

// turn is that of one check-in.
type turn struct {
	agent string
	ready chan struct{} // closed when it begins; nil: at once

	// turns.mu guards the rest.
	end   func() // ends the reading of the body; nil once that has been read
	ended bool
	next  *turn // the one that waits
}

var errTurn = errors.New("two check-ins of the agent are in progress already")

// enter waits for the turn of an agent, up to maxWait. It ends the reading of the check-in that
// has the turn.
func (s *turns) enter(ctx context.Context, agent string, end func()) (*turn, error) {
	t := &turn{agent: agent, end: end}
	before, err := s.take(t)
	if err != nil || before == nil {
		return t, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	select {
	case <-t.ready:
		return t, nil
	case <-ctx.Done():
		return t, s.giveUp(t, before, ctx.Err())
	}
}

// take takes the turn of an agent, or the place after the check-in that has it.
func (s *turns) take(t *turn) (before *turn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken == nil {
		s.taken = map[string]*turn{}
	}
	before = s.taken[t.agent]
	switch {
	case before == nil:
		s.taken[t.agent] = t
		return nil, nil
	case before.next != nil:
		return nil, errTurn
	}
	before.next, t.ready = t, make(chan struct{})
	if before.end != nil {
		before.end()
		before.end, before.ended = nil, true
	}
	return before, nil
}

// giveUp ends the waiting of t. It returns nil if the turn has begun meanwhile.
func (s *turns) giveUp(t, before *turn, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[t.agent] == t {
		return nil
	}
	before.next = nil
	return err
}

// read reports whether the body of t was read before another check-in ended that.
func (s *turns) read(t *turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.end = nil
	return !t.ended
}

// leave ends the turn.
func (s *turns) leave(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.next == nil {
		delete(s.taken, t.agent)
		return
	}
	s.taken[t.agent] = t.next
	close(t.next.ready)
}
