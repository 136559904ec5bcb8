package limit

import (
	"context"
	"errors"
	"sync"
)

// agentLocks let one check-in of an agent at a time be read and handled, and one more wait for it: a
// host has one agent, and whoever has its key must not have a hundred bodies in memory.
type agentLocks struct {
	mu   sync.Mutex
	held map[string]*agentLock // by agent
}

// agentLock is that of one check-in.
type agentLock struct {
	agent    string
	acquired chan struct{} // closed when the check-in gets the lock; nil: it had it at once

	// agentLocks.mu guards the rest.
	end    func() // ends the reading of the body; nil once that has been read
	ended  bool
	waiter *agentLock
}

var errCheckins = errors.New("two check-ins of the agent are in progress already")

// acquire waits for the lock of an agent, up to maxWait. It ends the reading of the check-in that
// holds it.
func (s *agentLocks) acquire(ctx context.Context, agent string, end func()) (*agentLock, error) {
	l := &agentLock{agent: agent, end: end}
	holder, err := s.acquireOrQueue(l)
	if err != nil || holder == nil {
		return l, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	select {
	case <-l.acquired:
		return l, nil
	case <-ctx.Done():
		return l, s.giveUp(l, holder, ctx.Err())
	}
}

// acquireOrQueue returns nil if l has the lock now, and otherwise the holder, which l waits for.
func (s *agentLocks) acquireOrQueue(l *agentLock) (holder *agentLock, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = map[string]*agentLock{}
	}
	holder = s.held[l.agent]
	switch {
	case holder == nil:
		s.held[l.agent] = l
		return nil, nil
	case holder.waiter != nil:
		return nil, errCheckins
	}
	holder.waiter, l.acquired = l, make(chan struct{})
	if holder.end != nil {
		holder.end()
		holder.end, holder.ended = nil, true
	}
	return holder, nil
}

// giveUp ends the waiting of l. It returns nil if l has got the lock meanwhile.
func (s *agentLocks) giveUp(l, holder *agentLock, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[l.agent] == l {
		return nil
	}
	holder.waiter = nil
	return err
}

// bodyRead reports whether the body of l was read before another check-in ended that.
func (s *agentLocks) bodyRead(l *agentLock) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.end = nil
	return !l.ended
}

// release gives the lock to the check-in that waits for it.
func (s *agentLocks) release(l *agentLock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.waiter == nil {
		delete(s.held, l.agent)
		return
	}
	s.held[l.agent] = l.waiter
	close(l.waiter.acquired)
}
