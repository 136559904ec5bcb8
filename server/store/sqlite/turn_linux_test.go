package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Servers that write without a pause leave each other their turns: when the first has
// made its last write, each of the others has made its share, too.
func TestServersThatShareAFileTakeTurns(t *testing.T) {
	const servers, writes = 4, 300
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	path := filepath.Join(t.TempDir(), "muster.db")
	var stores [servers]*Store
	for i := range stores {
		stores[i] = mustOpen(t, path)
	}
	var made [servers]atomic.Int64
	var all sync.WaitGroup
	for i, s := range stores {
		for w := range 2 { // one waits while the other is being written
			all.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					_, err := s.Settings().GetOrPut(ctx, fmt.Sprintf("server %d, %d, %d", i, w, n), nil)
					if ctx.Err() != nil {
						return
					}
					if err != nil {
						t.Errorf("server %d: %v", i, err)
						stop()
						return
					}
					if made[i].Add(1) >= writes {
						stop()
					}
				}
			})
		}
	}
	all.Wait()
	for i := range made {
		if n := made[i].Load(); n < writes/4 {
			t.Errorf("server %d has made %d writes in the time of another's %d", i, n, writes)
		}
	}
}

// A process that does not give its turn back is waited for as long as a lock is, and
// not longer; what comes after it is written again.
func TestATurnThatIsNotGivenBackMakesWritesUnavailable(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "muster.db")
	s, err := Open(ctx, path, Options{BusyTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	held, err := newTurn(path, time.Minute)
	if err == nil {
		err = held.take()
	}
	if err != nil {
		t.Fatal(err)
	}

	for range 2 {
		_, err := s.Settings().GetOrPut(ctx, "name", nil)
		if fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(err.Error(), "locked by another process") {
			t.Fatalf("a write while another process has the turn: %v", err)
		}
	}

	held.close() // as if the process had died
	if _, err := s.Settings().GetOrPut(ctx, "name", nil); err != nil {
		t.Fatal(err)
	}
}

// A server hears that another one of its machine hands something out, and nothing of
// itself; one that has gone hands nothing out.
func TestServersOfAMachineHearOfEachOthersHandOuts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "muster.db")
	var stores [3]*Store
	for i := range stores {
		stores[i] = mustOpen(t, path)
	}
	heard := func(want ...bool) {
		t.Helper()
		for i, w := range want {
			if got := stores[i].HandOutElsewhere(); got != w {
				t.Errorf("server %d hears of a hand-out: %t, want %t", i, got, w)
			}
		}
	}
	heard(false, false, false)
	stores[0].HandOut(true)
	heard(false, true, true)
	stores[1].HandOut(true)
	heard(true, true, true)
	stores[0].HandOut(false)
	heard(true, false, true)
	if _, err := stores[2].Settings().GetOrPut(t.Context(), "name", nil); err != nil {
		t.Errorf("a hand-out keeps another server from writing: %v", err)
	}
	if err := stores[1].Close(); err != nil {
		t.Fatal(err)
	}
	heard(false)
}
