package checkin

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/limit"
)

// While somebody waits for the admin API, what a fleet says waits, and what one
// agent says does not.
func TestAFleetStepsAsideInTheLaneAndASingleAgentDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Lot{Courtesy: &limit.Courtesy{}}
		n := &lane{lot: l, ready: make(chan struct{}, 1)}
		one, many, again := &slot{}, &slot{}, &slot{}
		n.push(many, true, false)
		n.push(again, true, true)
		n.push(one, false, false)
		visit := l.Courtesy.Enter()
		for range fewFirst { // these had theirs
			n.few.push(&slot{})
			if s, _ := n.next(); s == many || s == again {
				t.Fatal("one of the fleet goes first")
			}
		}
		if s, _ := n.next(); s == nil || s == many || s == again {
			t.Errorf("next is %p, want one that is alone", s)
		}
		if s, wait := n.next(); s != nil || wait <= 0 || wait > trickle {
			t.Errorf("with the fleet alone next is %p, in %s", s, wait)
		}
		visit.Leave()
		if s, _ := n.next(); s != many {
			t.Errorf("with nobody inside next is %p, want the fleet's", s)
		}
		if s, _ := n.next(); s != again {
			t.Errorf("then next is %p, want the fleet's other", s)
		}

		// A fleet is not forgotten for an operator who asks without end.
		n.push(many, true, false)
		visit = l.Courtesy.Enter()
		begin := time.Now()
		for s, wait := n.next(); s == nil; s, wait = n.next() {
			time.Sleep(wait)
		}
		if took := time.Since(begin); took > 20*time.Millisecond {
			t.Errorf("one of the fleet waited %s", took)
		}
		visit.Leave()
	})
}

func TestAWorkerStepsAsideWithAFleetsAnswersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &worker{lot: &Lot{Courtesy: &limit.Courtesy{}}}
		waited := func(bulk bool) time.Duration {
			begin := time.Now()
			w.yield(0, bulk)
			return time.Since(begin)
		}
		if got := waited(true); got != 0 {
			t.Errorf("with nobody inside it waited %s", got)
		}
		visit := w.lot.Courtesy.Enter()
		if got := waited(false); got != 0 {
			t.Errorf("an answer for one agent waited %s", got)
		}
		if got := waited(true); got < time.Millisecond {
			t.Errorf("an answer for a fleet waited %s", got)
		}
		visit.Leave()
	})
}

// A fleet's answers leave the processor alone now and then: only then does Go look for
// who else has something to say.
func TestAWorkerRestsBetweenAFleetsAnswersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &worker{lot: &Lot{}}
		rests := func(bulk bool) bool {
			begin := time.Now()
			for i := range yieldEvery {
				w.yield(i, bulk)
			}
			return time.Since(begin) > 0
		}
		for _, step := range []struct {
			what       string
			after      time.Duration
			bulk, want bool
		}{
			{"one agent's", time.Second, false, false},
			{"the first of a fleet", 0, true, true},
			{"those right behind", 0, true, false},
			{"those a little later", restEvery - time.Microsecond, true, false},
			{"those after a while", time.Microsecond, true, true},
		} {
			time.Sleep(step.after)
			if got := rests(step.bulk); got != step.want {
				t.Errorf("with %s it rests: %v, want %v", step.what, got, step.want)
			}
		}
	})
}

// A worker that has waited in vain for anything takes what comes for what it is.
func TestAWakeOfOneIsNotBulkForAWorkerThatWasIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		q.open()
		took := make(chan bool)
		take := func() {
			_, bulk := q.take(looksForAll, batchSize, nil)
			took <- bulk
		}
		for _, small := range []bool{true, false, true} {
			go take()
			synctest.Wait() // it has found nothing
			q.pushWoken(small, &slot{})
			if bulk := <-took; bulk == small {
				t.Errorf("a wake that is small (%v) is taken for bulk: %v", small, bulk)
			}
		}
	})
}

// Under an operator who asks without end a fleet's requests go on at a pace, however
// seldom the usher has the processor.
func TestAnUsherThatIsLateDoesNotStopAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Lot{Courtesy: &limit.Courtesy{}}
		n := &lane{lot: l, ready: make(chan struct{}, 1)}
		const fleet = 200
		for range fleet {
			n.push(&slot{}, true, false)
		}
		over := make(chan struct{})
		go func() {
			for {
				visit := l.Courtesy.Enter()
				select {
				case <-over:
					visit.Leave()
					return
				case <-time.After(100 * time.Millisecond):
					visit.Leave()
				}
			}
		}()
		time.Sleep(time.Millisecond)
		begin := time.Now()
		for began := 0; began < fleet; {
			// A round of Gosched behind those who compute, as long as both turns of the
			// courtesy together: it might always look at the wrong moment.
			time.Sleep(20 * time.Millisecond)
			if s, _ := n.next(); s != nil {
				began++
			}
		}
		close(over)
		if took, most := time.Since(begin), fleet*20*time.Millisecond*3/2; took > most {
			t.Errorf("%d requests have begun in %s, want %s at the most", fleet, took, most)
		}
	})
}
