package checkin

import "sync"

// priority is the order in which workers take connections from the queue.
type priority uint8

const (
	// emptyAnswer is for connections that need no check: a deadline, a newer poll,
	// Close.
	emptyAnswer priority = iota
	// smallWake is for wakes of few agents, such as an operator's action for one.
	smallWake
	// bulkWake is for wakes of many agents and for checks repeated after an error.
	bulkWake

	priorities
)

// queue holds the connections that wait for a worker. A connection is at most once
// in each list, so the number of connections bounds them.
type queue struct {
	mu      sync.Mutex
	filled  sync.Cond
	lists   [priorities][]*parkedConn
	stopped bool
}

func (q *queue) init() { q.filled.L = &q.mu }

// push appends connections to a list, except those it already holds. One that is in
// another list as well is served from the first; the second entry is stale then, and
// the worker skips it.
func (q *queue) push(p priority, conns ...*parkedConn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range conns {
		if !c.inList[p] {
			c.inList[p] = true
			q.lists[p] = append(q.lists[p], c)
		}
	}
	// Not Signal, which could wake a worker that takes no bulk wakes.
	q.filled.Broadcast()
}

// take waits for connections of the priority lowest or a higher one, and appends to
// batch up to its capacity of them, all from one list and with one Checker. It
// appends none once the queue is stopped.
func (q *queue) take(lowest priority, batch []*parkedConn) ([]*parkedConn, priority) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.stopped {
		for p := range lowest + 1 {
			if len(q.lists[p]) > 0 {
				return q.pop(p, batch), p
			}
		}
		q.filled.Wait()
	}
	return batch, 0
}

func (q *queue) pop(p priority, batch []*parkedConn) []*parkedConn {
	list := q.lists[p]
	for checker := list[0].checker; len(list) > 0 && list[0].checker == checker && len(batch) < cap(batch); list = list[1:] {
		list[0].inList[p] = false
		batch = append(batch, list[0])
		list[0] = nil // so that the array does not keep the connection alive
	}
	if len(list) == 0 {
		list = nil // frees the array of a bulk wake
	}
	q.lists[p] = list
	return batch
}

func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.filled.Broadcast()
}
