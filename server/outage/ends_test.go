package outage

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/store"
)

func TestCallsThatBeginTogetherEndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e ends
		begin := time.Now()
		first := sharing{t.Context(), e.next()}
		time.Sleep(sharedFor)
		second := sharing{store.Urgent(t.Context(), nil), e.next()}
		time.Sleep(time.Millisecond)
		third := sharing{t.Context(), e.next()}
		if first.end != second.end || second.end == third.end {
			t.Error("those of a second do not share their end, or a later one does")
		}
		if !store.IsUrgent(second) || store.IsUrgent(first) {
			t.Error("they share more than their end")
		}
		if first.Err() != nil {
			t.Errorf("it is over at once: %v", first.Err())
		}
		<-first.Done()
		if took := time.Since(begin); took != CallTimeout || !errors.Is(second.Err(), context.DeadlineExceeded) || third.Err() != nil {
			t.Errorf("the first end came after %s: %v, %v", took, second.Err(), third.Err())
		}
		<-third.Done()
		if at, ok := third.Deadline(); !ok || !at.Equal(time.Now()) {
			t.Errorf("the last deadline was %s, and is over at %s", at, time.Now())
		}
	})
}
