package checkin

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// street is what the servers of a machine know of each other.
type street struct{ here, elsewhere atomic.Bool }

func (s *street) HandOut(on bool)        { s.here.Store(on) }
func (s *street) HandOutElsewhere() bool { return s.elsewhere.Load() }

// What a fleet says waits while a neighbour answers its own, what one agent says does
// not; and a neighbour that never ends is not minded for ever.
func TestAFleetsRequestsMindTheNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		street := &street{}
		n := &lane{lot: &Lot{}, ready: make(chan struct{}, 1), neighbours: neighbours{of: street}}
		// waits is how long a request of a fleet waits for its turn.
		waits := func() time.Duration {
			n.push(&slot{}, true, false)
			began := time.Now()
			for s, wait := n.next(); s == nil; s, wait = n.next() {
				time.Sleep(wait)
			}
			return time.Since(began)
		}
		free := func(when string) {
			t.Helper()
			time.Sleep(neighboursLook)
			for range 3 {
				if took := waits(); took > 0 {
					t.Errorf("%s: one of the fleet waited %s", when, took)
				}
			}
		}
		free("with quiet neighbours")

		street.elsewhere.Store(true)
		for range 2 { // the neighbour's next hand-out is minded as its first was
			time.Sleep(time.Second)
			waits() // the first of a trickle is due
			if took := waits(); took != trickle {
				t.Errorf("one of the fleet waited %s, want %s", took, trickle)
			}
			n.push(&slot{}, false, false)
			if s, _ := n.next(); s == nil {
				t.Error("one agent waits for the neighbours, too")
			}
			street.elsewhere.Store(false)
			free("when the neighbour is done")
			street.elsewhere.Store(true)
		}

		time.Sleep(neighboursLook)
		began := time.Now()
		for waits(); waits() > 0; {
		}
		if took := time.Since(began); took < neighboursPatience-time.Second || took > neighboursPatience+trickle {
			t.Errorf("a neighbour that does not end is minded for %s, want about %s", took, neighboursPatience)
		}
		free("when the neighbour's time is over")
		time.Sleep(time.Hour)
		waits()
		if took := waits(); took != trickle {
			t.Errorf("an hour later one of the fleet waited %s, want %s", took, trickle)
		}
	})
}

// The neighbours hear of a hand-out from its first poll to its last.
func TestTheNeighboursHearOfAHandOut(t *testing.T) {
	street := &street{}
	q := &queue{handOut: street.HandOut}
	q.open()
	said := func(want bool, when string) {
		t.Helper()
		if got := street.here.Load(); got != want {
			t.Errorf("%s they hear %t, want %t", when, got, want)
		}
	}
	q.pushWoken(true, &slot{})
	q.pushWoken(false, &slot{}, &slot{})
	said(true, "while two polls wait")
	for _, left := range []bool{true, true, false} { // the small wake's first
		if _, bulk := q.take(looksForAll, 1, nil); bulk != (q.small.len() == 0 && q.bulk.len() < 2) {
			t.Errorf("a poll of a bulk wake: %t", bulk)
		}
		said(left, "behind a poll")
	}
}
