package sqlite

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counter is a queue of which the test is the loop.
type counter struct {
	*testing.T
	queue queue
}

// add queues a write; waits is nil for the fleet's.
func (l *counter) add(waits func() bool) *write {
	job := &write{waits: waits, done: make(chan error, 1)}
	l.queue.add(job)
	return job
}

// takes wants the next group to be these.
func (l *counter) takes(what string, want ...*write) {
	l.Helper()
	if group, open := l.queue.take(); !open || !slices.Equal(group, want) {
		l.Errorf("%s: a group of %d, open %v, want these %d", what, len(group), open, len(want))
	}
}

func always() bool { return true }

func TestAnOperatorsWriteGoesBeforeTheFleets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left atomic.Bool
		inside := func() bool { return !left.Load() }
		l := &counter{t, newQueue()}
		var crowd []*write
		for range 2 * shortGroup {
			crowd = append(crowd, l.add(nil))
		}
		if got := l.queue.share(touchBatch); got != touchBatch {
			t.Errorf("with nobody waiting a part of a flush has %d rows, want %d", got, touchBatch)
		}
		first := l.add(inside)
		if got := l.queue.share(touchBatch); got != touchBatch/shorter {
			t.Errorf("with an operator waiting a part of a flush has %d rows, want %d", got, touchBatch/shorter)
		}
		l.takes("with an operator's among them", first)

		// The next one of the same order comes a moment later, and finds nobody before it.
		next := &write{waits: first.waits}
		time.AfterFunc(5*time.Millisecond, func() { l.queue.add(next) })
		begin := time.Now()
		l.takes("then the operator's next", next)
		if got := time.Since(begin); got != 5*time.Millisecond {
			t.Errorf("it was taken after %s", got)
		}

		// The operator writes no more, but does not leave either.
		begin = time.Now()
		l.takes("in the end the fleet's", crowd[:shortGroup]...)
		if got := time.Since(begin); got > maxHold+holdLook {
			t.Errorf("they waited %s for what did not come", got)
		}
		time.AfterFunc(holdLook/2, func() { left.Store(true) })
		begin = time.Now()
		l.takes("when the operator has left", crowd[shortGroup:]...)
		if got := time.Since(begin); got > holdLook {
			t.Errorf("they waited %s for somebody who has left", got)
		}
		l.queue.close()
		if group, open := l.queue.take(); open || len(group) != 0 {
			t.Errorf("a closed queue has %d writes, open %v", len(group), open)
		}
	})
}

func TestOperatorsWithoutEndDoNotStopTheFleetsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &counter{t, newQueue()}
		l.add(nil)
		begin, urgent := time.Now(), 0
		for {
			l.add(always)
			group, _ := l.queue.take()
			if group[0].waits == nil {
				break
			}
			urgent++
			time.Sleep(time.Millisecond) // as long as it takes to write
		}
		if got := time.Since(begin); got < maxHold || got > 2*maxHold || urgent == 0 {
			t.Errorf("one of the fleet waited %s behind %d others", got, urgent)
		}
	})
}

// Those who are told that their write is durable run at once, a thousand of them: an
// operator's write that came meanwhile is not to wait for that.
func TestAnOperatorsWriteIsMadeBeforeTheFleetIsTold(t *testing.T) {
	s := fresh(t)
	w := idle(t, s)
	w.queue = newQueue()
	var group []*write
	for i := range 3 * toldTogether {
		job := creating(t, fmt.Sprint("agent-", i))
		job.done = make(chan error) // nobody has heard it before it is read
		group = append(group, job)
	}
	told := make(chan struct{})
	urgent := func(id string) *write {
		job := creating(t, id)
		job.waits, job.done = always, make(chan error, 1)
		w.queue.add(job)
		return job
	}
	first := urgent("before")
	go func() { defer close(told); w.write(group) }()
	if err := <-first.done; err != nil || !there(t, s, "before") {
		t.Errorf("the operator was told %v before all others", err)
	}
	for i, job := range group {
		if i == 1 { // the first piece is being told
			first = urgent("between")
		}
		if i == 2*toldTogether-1 {
			select {
			case err := <-first.done:
				if err != nil {
					t.Error(err)
				}
			default:
				t.Error("the operator waits until all are told")
			}
		}
		if err := <-job.done; err != nil {
			t.Errorf("write %d: %v", i, err)
		}
	}
	<-told
	if n := len(w.queue.urgent); n != 0 || !there(t, s, "between") {
		t.Errorf("%d urgent writes are left", n)
	}
}
