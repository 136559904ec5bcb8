package checkin

import (
	"sync"
	"sync/atomic"
)

// queue is what the workers take from. Each slot is at most once in each list, so
// that the number of polls bounds them.
type queue struct {
	mu                 sync.Mutex
	work, spare, done  *sync.Cond // for general workers, the reserved one, and the one of empty
	idle               int        // general workers that wait and have not been signalled
	small, bulk, empty fifo
	bulkLeft           atomic.Int64 // in bulk
	handOut            func(bool)   // hears whether there are any; nil: nobody does
	stopped            bool
}

// bulky says whether polls of a bulk wake wait.
func (q *queue) bulky() bool { return q.bulkLeft.Load() > 0 }

// countBulk comes after each change of bulk.
func (q *queue) countBulk() {
	left := int64(q.bulk.len())
	if was := q.bulkLeft.Swap(left); q.handOut != nil && (was > 0) != (left > 0) {
		q.handOut(left > 0)
	}
}

func (q *queue) open() {
	q.work, q.spare, q.done = sync.NewCond(&q.mu), sync.NewCond(&q.mu), sync.NewCond(&q.mu)
}

type fifo struct {
	slots []*slot
	head  int
}

func (f *fifo) push(s *slot) { f.slots = append(f.slots, s) }

func (f *fifo) len() int { return len(f.slots) - f.head }

// first takes the first slot; there is one.
func (f *fifo) first() *slot {
	var one [1]*slot
	return f.pop(1, one[:0])[0]
}

// pop takes up to n slots that are looked for together.
func (f *fifo) pop(n int, into []*slot) []*slot {
	for len(into) < n && f.len() > 0 {
		s := f.slots[f.head]
		if len(into) > 0 && s.looker != into[0].looker {
			break
		}
		into = append(into, s)
		f.slots[f.head] = nil
		f.head++
	}
	if f.len() == 0 {
		*f = fifo{slots: f.slots[:0]}
		if cap(f.slots) > 4*batchSize {
			f.slots = nil // what a bulk wake needed is not kept for the next
		}
	}
	return into
}

// pushWoken queues slots for a look.
func (q *queue) pushWoken(small bool, s ...*slot) {
	if len(s) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !small {
		for _, s := range s {
			if !s.inBulk { // else it was looked for with a small wake, and that is to come
				s.inBulk = true
				q.bulk.push(s)
			}
		}
		q.countBulk()
		q.work.Broadcast()
		q.idle = 0
		return
	}
	for _, s := range s {
		if !s.inSmall {
			s.inSmall = true
			q.small.push(s)
		}
	}
	if q.idle > 0 {
		q.work.Signal()
		q.idle--
	} else {
		q.spare.Signal()
	}
}

// pushEmpty queues slots to be answered Empty.
func (q *queue) pushEmpty(s *slot) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.empty.push(s)
	q.done.Signal()
}

// role is what a worker does.
type role uint8

const (
	looksForAll   role = iota // small wakes first, then bulk ones
	looksForSmall             // so that a bulk look that lasts does not hold up an operator's single action
	answersEmpty              // deadlines and drains do not wait for looks
)

// take waits for work and appends up to n slots to into, and says whether they are of
// a bulk wake; none: the queue is stopped.
func (q *queue) take(r role, n int, into []*slot) (slots []*slot, bulk bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		bulk = false // it was looked for in vain before, and what has come is small
		switch r {
		case answersEmpty:
			into = q.empty.pop(n, into)
		case looksForSmall:
			into = q.takeSmall(n, into)
		case looksForAll:
			if into = q.takeSmall(n, into); len(into) == 0 {
				into, bulk = q.bulk.pop(n, into), true
				q.countBulk()
				for _, s := range into {
					s.inBulk = false
				}
			}
		}
		if len(into) > 0 || q.stopped {
			return into, bulk
		}
		switch r {
		case answersEmpty:
			q.done.Wait()
		case looksForSmall:
			q.spare.Wait()
		case looksForAll:
			q.idle++
			q.work.Wait()
		}
	}
}

func (q *queue) takeSmall(n int, into []*slot) []*slot {
	into = q.small.pop(n, into)
	for _, s := range into {
		s.inSmall = false
	}
	return into
}

func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.work.Broadcast()
	q.spare.Broadcast()
	q.done.Broadcast()
}
