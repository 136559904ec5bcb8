package sqlite

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

func TestEachLeavesOutAnUnreadableDocument(t *testing.T) {
	t.Parallel()
	s, ctx := fresh(t), t.Context()
	const n = 3 * documentsAhead / 2
	list := make([]fleet.Target, n)
	for i := range list {
		list[i] = fleet.Target{RolloutID: "r", AgentID: fmt.Sprint(i), Place: i}
	}
	if err := s.Targets().Create(ctx, list); err != nil {
		t.Fatal(err)
	}
	if err := s.write(ctx, "spoil", func(t *tx) error {
		_, err := t.exec(`UPDATE targets SET doc = '{"order":"no number"}' WHERE place = ?`, documentsAhead+5)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	next := 0
	err := s.Targets().Each(ctx, "r", func(v fleet.Target) {
		if next == documentsAhead+5 {
			next++
		}
		if v.Place != next {
			t.Fatalf("target %d has order %d", next, v.Place)
		}
		next++
	})
	if left := s.Unreadable().List(time.Time{}); err != nil || next != n || len(left) != 1 || left[0].Noun != "target" {
		t.Errorf("it ended at target %d of %d, and left out %v: %v", next, n, left, err)
	}
}
