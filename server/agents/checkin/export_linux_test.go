package checkin

import (
	"reflect"
	"time"
)

// TestOnlyLive is the number of connections that the parker holds, with the idle ones.
func (p *EpollParker) TestOnlyLive() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live
}

// TestOnlyBlocked is the number of polls that hold a goroutine.
func (p *EpollParker) TestOnlyBlocked() int { return p.blocking.Count() }

// TestOnlyTakenOver reports whether the parker has the agent's connection.
func (p *EpollParker) TestOnlyTakenOver(agentID string) bool {
	sh := p.shard(agentID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c := sh.polls[agentID]
	return c != nil && c.state != stateNew
}

// TestOnlyIdle is the number of connections that wait for their client's next request.
func (p *EpollParker) TestOnlyIdle() int {
	n := 0
	for _, c := range p.poller.all() {
		c.shard.mu.Lock()
		if c.state == stateIdle {
			n++
		}
		c.shard.mu.Unlock()
	}
	return n
}

// TestOnlyAdvance makes the timers fire that are due within d.
func (p *EpollParker) TestOnlyAdvance(d time.Duration) { p.advanceTimers(time.Now().Add(d)) }

// TestOnlyReadBuffers is the size of the read buffers of the parked agent's TLS
// connection.
func (p *EpollParker) TestOnlyReadBuffers(agentID string) int {
	sh := p.shard(agentID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	conn := reflect.ValueOf(sh.polls[agentID].conn).Elem()
	return conn.FieldByName("rawInput").FieldByName("buf").Cap() + conn.FieldByName("hand").FieldByName("buf").Cap()
}
