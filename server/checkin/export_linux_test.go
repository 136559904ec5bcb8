package checkin

import "reflect"

// TestOnlyLive is the number of connections that the lot holds, the idle ones among
// them.
func (l *Lot) TestOnlyLive() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live
}

// TestOnlyBlocked is the number of polls that hold a goroutine.
func (l *Lot) TestOnlyBlocked() int { return l.blocking.Count() }

// TestOnlyAside says whether the agent's connection is the lot's.
func (l *Lot) TestOnlyAside(agentID string) bool {
	sh := l.shard(agentID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s := sh.polls[agentID]
	return s != nil && s.state != arriving
}

// MeasureForTest is how long the lane takes a request for.
func MeasureForTest(text []byte) (int, error) {
	_, size, err := measure(text)
	return size, err
}

// TestOnlySpare is how many bytes the parked agent's TLS connection has for reading.
func (l *Lot) TestOnlySpare(agentID string) int {
	sh := l.shard(agentID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	conn := reflect.ValueOf(sh.polls[agentID].conn).Elem()
	return conn.FieldByName("rawInput").FieldByName("buf").Cap() + conn.FieldByName("hand").FieldByName("buf").Cap()
}

// TestOnlyServing is the number of requests that are worked on in the lane.
func (l *Lot) TestOnlyServing() int { return len(l.lane.places) }

// TestOnlyTurns is the number of goroutines that the lane has.
func (l *Lot) TestOnlyTurns() int {
	l.lane.mu.Lock()
	defer l.lane.mu.Unlock()
	return len(l.lane.turns)
}
