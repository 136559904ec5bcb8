package checkin

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

const (
	// batchSize is how many polls are checked together: enough to share the cost of a
	// check, and few enough to write their answers (15 µs each) soon.
	batchSize = 256
	// checkTimeout bounds one check, which makes several calls of the store with limits of
	// their own.
	checkTimeout = 30 * time.Second
	// yieldEvery is after how many answers a worker yields to other goroutines. Otherwise
	// it would keep its processor until it is preempted after 10 ms, and a request of the
	// admin API is scheduled several times.
	yieldEvery = 4
	// writeLimit bounds how long one answer takes to go into the socket's buffer.
	writeLimit = 5 * time.Second
	// lingerLimit is how long a client has to read its last answer and close.
	lingerLimit = time.Second
	// slowAnswers bounds the goroutines that write to clients that do not read.
	slowAnswers = 64
	// largeAnswer is the size above which an answer may not fit into a socket's buffer
	// that has room: less than a third of 16 KiB, the smallest one of a TCP connection on
	// Linux.
	largeAnswer = 4 << 10
)

// work takes connections of the priority lowest or a higher one from the queue and
// answers them until the queue is stopped.
func (p *EpollParker) work(lowest priority) {
	batch := make([]*parkedConn, 0, batchSize)
	for {
		clear(batch) // so that it does not keep released connections alive
		var of priority
		batch, of = p.queue.take(lowest, batch[:0])
		switch {
		case len(batch) == 0:
			return
		case of == emptyAnswer:
			for i, c := range batch {
				p.answer(c, empty)
				yield(i)
			}
		default:
			p.checkAll(batch)
		}
	}
}

func yield(answered int) {
	if answered%yieldEvery == yieldEvery-1 {
		runtime.Gosched()
	}
}

// checkAll checks the connections of a batch that are still queued, and answers those
// with pending actions.
func (p *EpollParker) checkAll(batch []*parkedConn) {
	conns, waits := batch[:0], make([]*Wait, 0, len(batch))
	for _, c := range batch {
		if c.beginCheck() {
			conns, waits = append(conns, c), append(waits, &c.wait)
		}
	}
	if len(conns) == 0 {
		return
	}
	found := p.pendingActions(conns[0].checker, waits)
	for i, c := range conns {
		if a := p.endCheck(c, found[i]); a != nil {
			p.answer(c, *a)
			yield(i)
		}
	}
}

// beginCheck starts a check. It returns false if c is no longer queued: it was in the
// queue twice, or has ended.
func (c *parkedConn) beginCheck() bool {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	if c.state != stateQueued {
		return false
	}
	c.state, c.retry = stateChecking, 0
	return true
}

// pendingActions calls the Checker. It turns a panic into an error, as net/http does for a
// handler.
func (p *EpollParker) pendingActions(checker Checker, waits []*Wait) (found []Pending) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	defer func() {
		err := errors.New("the check returned too few results")
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
		if len(found) < len(waits) {
			p.log.Error("check parked agents for pending actions", "agents", len(waits), "error", err)
			found = make([]Pending, len(waits))
			for i := range found {
				found[i].Err = err
			}
		}
	}()
	return checker.PendingActions(ctx, waits)
}

// endCheck applies the result of a check. It returns the answer that the caller must
// write, or nil.
func (p *EpollParker) endCheck(c *parkedConn, found Pending) *Answer {
	c.shard.mu.Lock()
	switch {
	case c.hungUp:
		p.drop(c)
		return nil
	case c.ended:
		found.Answer = &empty
	case found.Answer != nil:
	case c.due:
		found.Answer = &empty
	case c.woken:
		c.state, c.woken = stateQueued, false
		p.queue.push(smallWake, c)
		c.shard.mu.Unlock()
		return nil
	default:
		c.state = stateParked
		if found.Err != nil {
			c.retry = tick(p.base, time.Now().Add(CheckRetry))
			p.setTimer(c)
		}
		c.shard.mu.Unlock()
		return nil
	}
	c.shard.remove(c)
	c.state = stateAnswering
	p.timers.remove(c)
	c.shard.mu.Unlock()
	return found.Answer
}

// answer writes the answer of a connection in stateAnswering. If the client does not read,
// a separate goroutine writes, so that others are not delayed.
func (p *EpollParker) answer(c *parkedConn, a Answer) {
	c.last = c.last || p.closing.Load() || p.requeue.Load() == nil
	b := encode(c, a)
	writable := hasRoom(c.fd)
	if writable && len(b) <= largeAnswer {
		p.finish(c, c.write(b))
		return
	}
	select {
	case p.slow <- struct{}{}:
		go func() {
			err := c.write(b)
			<-p.slow
			p.finish(c, err)
		}()
	default:
		if !writable {
			p.finish(c, errNoRoom)
			return
		}
		p.finish(c, c.write(b))
	}
}

var errNoRoom = errors.New("the client does not read, and neither do many others")

func (c *parkedConn) write(b []byte) error {
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeLimit))
	_, err := c.conn.Write(b)
	return err
}

// finish sets the state after an answer. After an error the connection is closed; the
// agent's next check-in gets the same actions.
func (p *EpollParker) finish(c *parkedConn, err error) {
	if err == nil && c.last {
		closeWrite(c.conn)
	}
	_, early := c.conn.(*earlyConn)
	c.shard.mu.Lock()
	c.wait, c.head = Wait{AgentID: c.wait.AgentID}, ""
	switch {
	case err != nil, c.last && c.hungUp, !c.last && p.closing.Load():
		p.drop(c)
		return
	case c.last:
		c.state, c.deadline = stateLingering, tick(p.base, time.Now().Add(lingerLimit))
	case early, c.unread, c.hungUp:
		p.giveBack(c) // a part of the next request has already been read
		return
	default:
		c.state, c.deadline = stateIdle, tick(p.base, time.Now().Add(IdleLimit))
	}
	p.timers.set(c, c.deadline)
	c.shard.mu.Unlock()
}
