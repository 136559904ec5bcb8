package checkin

import (
	"time"

	"golang.org/x/sys/unix"
)

// smallWakeAgents is how many agents a wake may have to precede bulk wakes.
const smallWakeAgents = 64

// Wake checks the polls of these agents again. A wake of few agents precedes wakes of
// many.
func (p *EpollParker) Wake(agentIDs ...string) {
	priority := smallWake
	if len(agentIDs) > smallWakeAgents {
		priority = bulkWake
	}
	woken := make([]*parkedConn, 0, min(len(agentIDs), batchSize))
	for _, id := range agentIDs {
		if c := p.wake(id, priority); c != nil {
			woken = append(woken, c)
		}
		if len(woken) == batchSize { // workers answer these while the others are found
			p.queue.push(priority, woken...)
			woken = woken[:0]
		}
	}
	if len(woken) > 0 {
		p.queue.push(priority, woken...)
	}
	p.blocking.Wake(agentIDs...)
}

// Release answers the agent's poll Empty, if it has one here.
func (p *EpollParker) Release(agentID string) {
	sh := p.shard(agentID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	p.supersede(sh, agentID)
	p.blocking.Release(agentID)
}

// wake returns the agent's connection if it has to be queued.
func (p *EpollParker) wake(agentID string, as priority) *parkedConn {
	sh := p.shard(agentID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c := sh.polls[agentID]
	if c == nil {
		return nil
	}
	switch c.state {
	case stateNew, stateChecking:
		c.woken = true
	case stateParked:
		c.state = stateQueued
		return c
	case stateQueued:
		if as == smallWake { // it overtakes the bulk wake it may be in
			return c
		}
	}
	return nil
}

// handleEvent is called by the poller. It never writes to a connection, which can block,
// and so closes it below TLS.
func (p *EpollParker) handleEvent(c *parkedConn, events uint32) {
	c.shard.mu.Lock()
	c.unread = c.unread || events&unix.EPOLLIN != 0
	c.hungUp = c.hungUp || events&^unix.EPOLLIN != 0
	switch c.state {
	case stateIdle:
		// Also after a disconnect, since the client may have sent a request before.
		p.giveBack(c)
		return
	case stateParked, stateQueued, stateLingering:
		if c.hungUp {
			p.drop(c)
			return
		}
	}
	c.shard.mu.Unlock()
}

// runTimers advances the timer wheel until the parker stops.
func (p *EpollParker) runTimers() {
	t := time.NewTicker(wheelTick)
	defer t.Stop()
	for {
		select {
		case <-p.empty:
			return
		case <-t.C:
			p.advanceTimers(time.Now())
		}
	}
}

func (p *EpollParker) advanceTimers(to time.Time) {
	now := tick(p.base, to) - 1 // the last tick that has passed
	for _, c := range p.timers.advance(now) {
		p.handleTimer(c, now)
	}
}

// setTimer sets the timer to the next tick that c waits for. The caller holds the lock.
func (p *EpollParker) setTimer(c *parkedConn) {
	next := c.deadline
	if c.retry != 0 && c.retry < next {
		next = c.retry
	}
	p.timers.set(c, next)
}

// handleTimer acts on a timer that has fired. The state may have changed since the timer
// was set.
func (p *EpollParker) handleTimer(c *parkedConn, now int32) {
	c.shard.mu.Lock()
	over := now >= c.deadline
	switch c.state {
	case stateIdle, stateLingering:
		if over {
			p.drop(c)
			return
		}
		p.setTimer(c)
	case stateParked, stateQueued:
		switch {
		case over:
			p.end(c) // the agent's next poll finds an action it was woken for
		case c.state == stateParked && c.retry != 0 && now >= c.retry:
			c.state, c.retry = stateQueued, 0
			p.queue.push(bulkWake, c)
			p.setTimer(c)
		default:
			p.setTimer(c)
		}
	case stateChecking:
		if c.due = over; !over {
			p.setTimer(c)
		}
	}
	c.shard.mu.Unlock()
}

// end queues a poll to be answered with Empty. The caller holds the lock.
func (p *EpollParker) end(c *parkedConn) {
	c.shard.remove(c)
	switch c.state {
	case stateNew, stateChecking:
		c.ended = true
	case stateParked, stateQueued:
		c.state = stateAnswering
		p.timers.remove(c)
		p.queue.push(emptyAnswer, c)
	}
}

// drop closes the connection. The caller holds the lock, which drop unlocks.
func (p *EpollParker) drop(c *parkedConn) {
	p.release(c)
	c.shard.mu.Unlock()
	belowTLS(c.conn).Close() // without TLS's close_notify, for which there may be no room
	p.leave()
}

// giveBack gives the connection to net/http, which reads the next request. The caller
// holds the lock, which giveBack unlocks.
func (p *EpollParker) giveBack(c *parkedConn) {
	p.release(c)
	c.shard.mu.Unlock()
	_ = c.conn.SetWriteDeadline(time.Time{})
	if l := p.requeue.Load(); l == nil || !l.give(c.conn) {
		belowTLS(c.conn).Close()
	}
	p.leave()
}

// release ends the parker's use of the connection. The caller holds the lock.
func (p *EpollParker) release(c *parkedConn) {
	c.shard.remove(c)
	c.state = stateReleased
	p.timers.remove(c)
	p.poller.remove(c)
}
