package checkin

import (
	"slices"
	"testing"
)

func TestQueueTakesSmallWakesFirstAndHoldsNoConnectionTwice(t *testing.T) {
	var q queue
	q.init()
	bulk, both, small := &parkedConn{}, &parkedConn{}, &parkedConn{}
	for range 3 { // woken again and again before a worker is free
		q.push(bulkWake, bulk, both)
		q.push(smallWake, small, both)
	}
	take := func(lowest priority) []*parkedConn {
		batch, _ := q.take(lowest, make([]*parkedConn, 0, batchSize))
		return batch
	}
	if got, want := take(bulkWake), []*parkedConn{small, both}; !slices.Equal(got, want) {
		t.Errorf("first %v, want %v", got, want)
	}
	if got, want := take(bulkWake), []*parkedConn{bulk, both}; !slices.Equal(got, want) { // both is stale here: see beginCheck
		t.Errorf("then %v, want %v", got, want)
	}
	q.stop()
	if got := take(bulkWake); len(got) != 0 {
		t.Errorf("after that %v, want none", got)
	}
}
