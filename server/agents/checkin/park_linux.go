package checkin

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// Park makes the first check in the handler's goroutine. If that finds nothing, the
// parker takes over the connection.
func (p *EpollParker) Park(poll Poll) {
	fd, ok := watchable(poll.Request)
	if !ok || !p.start() {
		p.block(poll)
		return
	}
	c := &parkedConn{
		wait: poll.Wait, shard: p.shard(poll.AgentID), checker: poll.Checker, fd: fd,
		deadline: tick(p.base, poll.Deadline), last: poll.Request.Close,
	}
	if !p.enter(c) {
		writeLast(poll.Writer, empty)
		return
	}
	taken := false
	defer func() {
		if !taken { // answered here, or the check has panicked
			p.forget(c)
			p.leave()
		}
	}()
	ctx := poll.Request.Context()
	for {
		found := c.checker.PendingActions(ctx, []*Wait{&c.wait})[0]
		if ctx.Err() != nil {
			return // the client has disconnected
		}
		switch answer, again := p.firstCheck(c, found, poll.Deadline); {
		case answer != nil && p.closing.Load():
			writeLast(poll.Writer, *answer)
			return
		case answer != nil:
			write(poll.Writer, *answer)
			return
		case !again:
			taken = p.takeOver(c, poll)
			return
		}
	}
}

// watchable returns the descriptor of a request's connection. Only with HTTP/1.1 a poll
// has a connection of its own that stays open.
func watchable(r *http.Request) (fd int32, ok bool) {
	if r.ProtoMajor != 1 || r.ProtoMinor != 1 {
		return 0, false
	}
	return descriptor(connOf(r))
}

// enter registers the poll and ends an older one. It returns false if the parker is
// closed.
func (p *EpollParker) enter(c *parkedConn) bool {
	sh := c.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !p.join() {
		return false
	}
	p.supersede(sh, c.wait.AgentID)
	p.blocking.Release(c.wait.AgentID)
	sh.polls[c.wait.AgentID] = c
	return true
}

// supersede ends the poll of an agent in the shard, if there is one. The caller holds the
// shard's lock.
func (p *EpollParker) supersede(sh *shard, agentID string) {
	if older := sh.polls[agentID]; older != nil {
		p.end(older)
	}
}

func (p *EpollParker) forget(c *parkedConn) {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	c.shard.remove(c)
}

// firstCheck returns the answer after the handler's check, or whether to check again.
func (p *EpollParker) firstCheck(c *parkedConn, found Pending, deadline time.Time) (a *Answer, again bool) {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	switch {
	case c.ended:
		return &empty, false
	case found.Answer != nil:
		c.shard.remove(c)
		return found.Answer, false
	case !time.Now().Before(deadline):
		c.shard.remove(c)
		return &empty, false
	case c.woken:
		c.woken = false
		return nil, true
	case found.Err != nil:
		c.retry = tick(p.base, time.Now().Add(CheckRetry))
	}
	return nil, false
}

// takeOver takes the connection from net/http and parks it. It returns false if the
// poll has been answered otherwise.
func (p *EpollParker) takeOver(c *parkedConn, poll Poll) bool {
	c.head = headerLines(poll.Writer.Header())
	if !wholeBody(poll.Request) {
		// The rest of the body comes before the next request.
		p.blockInstead(c, poll)
		return false
	}
	// epoll first: a connection that it refuses still belongs to net/http, and Blocking
	// can park it.
	if err := p.poller.add(c); err != nil {
		p.unwatched.Do(func() {
			p.log.Warn("a parked connection takes a goroutine: epoll does not watch it", "agent", poll.AgentID, "error", err)
		})
		p.blockInstead(c, poll)
		return false
	}
	conn, buffered, err := http.NewResponseController(poll.Writer).Hijack()
	if err != nil {
		p.poller.remove(c)
		p.blockInstead(c, poll)
		return false
	}
	c.conn = withEarly(conn, buffered.Reader)
	trim(c.conn)
	c.shard.mu.Lock()
	if c.hungUp {
		p.drop(c)
		return true
	}
	p.park(c)
	c.shard.mu.Unlock()
	return true
}

// wholeBody reports whether all of the request has been read. net/http's own limit
// bounds how long that takes to find out.
func wholeBody(r *http.Request) bool {
	if r.Body == nil || r.Body == http.NoBody {
		return true
	}
	var one [1]byte
	n, err := r.Body.Read(one[:])
	return n == 0 && errors.Is(err, io.EOF)
}

// park begins to wait, or acts on what happened while the connection was taken over. The
// caller holds the lock.
func (p *EpollParker) park(c *parkedConn) {
	switch {
	case c.ended:
		c.state = stateAnswering
		p.queue.push(emptyAnswer, c)
		return
	case c.woken:
		c.state, c.woken = stateQueued, false
		p.queue.push(smallWake, c)
	default:
		c.state = stateParked
	}
	p.setTimer(c)
}

// block parks a poll with Blocking.
func (p *EpollParker) block(poll Poll) {
	sh := p.shard(poll.AgentID)
	sh.mu.Lock()
	p.supersede(sh, poll.AgentID)
	w := p.blocking.enter(poll.Wait)
	sh.mu.Unlock()
	p.blocking.wait(poll, w)
}

// blockInstead is block for a poll that is already registered.
func (p *EpollParker) blockInstead(c *parkedConn, poll Poll) {
	c.shard.mu.Lock()
	if c.ended {
		c.shard.mu.Unlock()
		write(poll.Writer, empty)
		return
	}
	c.shard.remove(c)
	w := p.blocking.enter(poll.Wait)
	c.shard.mu.Unlock()
	p.blocking.wait(poll, w)
}
