package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

func fresh(t testing.TB) *Store {
	t.Helper()
	return mustOpen(t, filepath.Join(t.TempDir(), "muster.db"))
}

// idle returns a writer without a running loop; the test commits groups itself. It uses the
// database of s, whose own writer must not have written yet.
func idle(t *testing.T, s *Store) *writer {
	t.Helper()
	w := newWriter(s.writer.db, 0)
	t.Cleanup(w.dropConn)
	return w
}

func creating(t *testing.T, id string) *write {
	t.Helper()
	row, err := newAgentRow(&fleet.Agent{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return &write{ctx: t.Context(), do: func(x *tx) error { return createAgent(x, row) }}
}

func stored(t *testing.T, s *Store, id string) bool {
	t.Helper()
	_, err := s.Agents().Get(t.Context(), id)
	if err != nil && fleet.KindOf(err) != fleet.NotFound {
		t.Fatal(err)
	}
	return err == nil
}

func TestFailedWriteDoesNotAffectOthersInItsTransaction(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	half := creating(t, "half")
	create := half.do
	half.do = func(x *tx) error {
		if err := create(x); err != nil {
			return err
		}
		return errors.New("after its first half")
	}
	cancelled := creating(t, "cancelled")
	cancelled.ctx = ended
	group := []*write{creating(t, "a"), creating(t, "b"), creating(t, "a"), half, cancelled, creating(t, "c")}
	if err := idle(t, s).commit(group); err != nil {
		t.Fatal(err)
	}
	for i, want := range []func(error) bool{
		0: func(err error) bool { return err == nil },
		1: func(err error) bool { return err == nil },
		2: func(err error) bool { return fleet.KindOf(err) == fleet.Conflict },
		3: func(err error) bool { return err != nil && err.Error() == "after its first half" },
		4: func(err error) bool { return errors.Is(err, context.Canceled) },
		5: func(err error) bool { return err == nil },
	} {
		if !want(group[i].err) {
			t.Errorf("write %d: %v", i, group[i].err)
		}
	}
	for id, want := range map[string]bool{"a": true, "b": true, "c": true, "half": false, "cancelled": false} {
		if stored(t, s, id) != want {
			t.Errorf("%s is stored: %v, want %v", id, !want, want)
		}
	}
}

func TestLostTransactionFailsAllItsWrites(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	w := idle(t, s)
	lost := &write{ctx: t.Context(), do: func(x *tx) error {
		if _, err := x.exec(`ROLLBACK`); err != nil { // as SQLite does on a full disk
			return err
		}
		return errors.New("transaction lost")
	}}
	if err := w.commit([]*write{creating(t, "a"), lost, creating(t, "b")}); err == nil || err.Error() != "transaction lost" {
		t.Fatalf("the transaction ended with %v", err)
	}
	if stored(t, s, "a") || stored(t, s, "b") {
		t.Error("a part of the transaction is stored")
	}
	if err := w.commit([]*write{creating(t, "a")}); err != nil || !stored(t, s, "a") {
		t.Errorf("the next one: %v", err)
	}
}

func TestFullDiskIsReportedAndRolledBack(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	if err := s.Agents().Create(t.Context(), fleet.Agent{ID: "before"}); err != nil {
		t.Fatal(err)
	}
	// A limit on the pages of the file causes the same error as a full disk.
	err := s.writer.run(t.Context(), func(x *tx) error {
		var pages, limit int
		if err := x.get(`PRAGMA page_count`, nil, &pages); err != nil {
			return err
		}
		st, err := x.w.conn.PrepareContext(context.Background(), fmt.Sprintf(`PRAGMA max_page_count = %d`, pages+2))
		if err != nil {
			return err
		}
		defer st.Close() // of a statement that has run
		return st.QueryRow().Scan(&limit)
	})
	if err != nil {
		t.Fatal(err)
	}
	agents := make([]string, 10_000)
	for i := range agents {
		agents[i] = fmt.Sprint("agent-", i)
	}
	_, err = s.Actions().Create(t.Context(), fleet.Action{ID: "big", Agents: agents})
	if fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(err.Error(), "disk is full") || !strings.Contains(err.Error(), s.Path()) {
		t.Fatalf("Create: %v", err)
	}
	if err := s.Ping(t.Context()); fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("Ping: %v", err)
	}
	if _, err := s.Actions().Get(t.Context(), "big"); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("Get: %v", err)
	}
	if list, err := s.Actions().Pending(t.Context(), "agent-1", 0, time.Now(), 1); err != nil || len(list) != 0 {
		t.Errorf("pending actions are %v: %v", list, err)
	}
	if !stored(t, s, "before") {
		t.Error("an agent that was stored before is missing")
	}
	// A new connection has no limit, as if space had been freed.
	s.writer.dropConnSoon(t)
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("Ping after space was freed: %v", err)
	}
	if err := s.Settings().Each(t.Context(), func(name string, _ []byte) { t.Errorf("there is a setting %s", name) }); err != nil {
		t.Error(err)
	}
	if _, err := s.Actions().Create(t.Context(), fleet.Action{ID: "big", Agents: agents}); err != nil {
		t.Errorf("after space was freed: %v", err)
	}
}

// hold keeps the writer busy with a transaction until release is called.
func hold(t *testing.T, s *Store) (release func()) {
	t.Helper()
	begun, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- s.writer.run(context.Background(), func(*tx) error { close(begun); <-end; return nil })
	}()
	<-begun
	return func() {
		close(end)
		if err := <-done; err != nil {
			t.Errorf("the write that held the writer: %v", err)
		}
	}
}

func TestWriteReturnsWhenItsContextEndsInTheQueue(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	release := hold(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := s.Agents().Create(ctx, fleet.Agent{ID: "late"}) // must return although the writer is busy
	if fleet.KindOf(err) != fleet.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v", err)
	}
	release()
	if err := s.Agents().Create(t.Context(), fleet.Agent{ID: "next"}); err != nil {
		t.Error(err)
	}
	if stored(t, s, "late") {
		t.Error("the write was executed after its context had ended")
	}
}

func TestWriteReturnsWhenItsContextEndsDuringTheTransaction(t *testing.T) {
	t.Parallel()
	w := newWriter(nil, 0) // the test is its loop
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error)
	go func() { returned <- w.run(ctx, func(*tx) error { return nil }) }()
	job := <-w.jobs
	cancel()
	if err := <-returned; !errors.Is(err, context.Canceled) {
		t.Errorf("run returned %v", err)
	}
	job.done <- nil // must not block the loop
}

func TestCloseFailsQueuedWrites(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "muster.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	release := hold(t, s)
	var waiting sync.WaitGroup
	for i := range 3 {
		waiting.Go(func() {
			if err := s.Agents().Create(t.Context(), fleet.Agent{ID: fmt.Sprint(i)}); err != nil && fleet.KindOf(err) != fleet.Unavailable {
				t.Errorf("a write that waited: %v", err)
			}
		})
	}
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		t.Fatalf("closed during a write: %v", err)
	case <-time.After(20 * time.Millisecond): // only to catch a Close that does not wait
	}
	release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	waiting.Wait()
	if err := s.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

func TestCloseLeavesNoGoroutinesAndNoLog(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "muster.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := s.Agents().Create(t.Context(), fleet.Agent{ID: fmt.Sprint(i)}); err != nil {
			t.Error(err)
		}
		if _, _, err := s.Agents().List(t.Context(), store.AgentQuery{Limit: 5}); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(s.Path() + "-[ws]*") // the log and its index, but not the lock file
	if err != nil || len(left) != 0 {
		t.Errorf("files left: %v %v", left, err)
	}
}

// The fleet simulation runs servers in virtual time.
func TestStoreWorksInVirtualTime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "muster.db")
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), path, Options{CommitDelay: -1})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				id := fmt.Sprint(i)
				if err := s.Agents().Create(t.Context(), fleet.Agent{ID: id}); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Hour)
				if err := s.Agents().Touch(t.Context(), []fleet.Touch{{AgentID: id, At: time.Now(), Status: "online"}}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if passed := time.Since(begin); passed != time.Hour {
			t.Errorf("%s have passed, want 1h", passed)
		}
		seen := 0
		err = s.Agents().Facts(t.Context(), store.AgentFilter{}, func(_ string, f fleet.StatusFacts) {
			if f.LastCheckin != nil && f.LastCheckin.Equal(begin.Add(time.Hour)) {
				seen++
			}
		})
		if err != nil || seen != 20 {
			t.Errorf("%d of 20 agents were seen: %v", seen, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestTouchOfAFleetIsSplitSoThatOtherWritesRunBetween(t *testing.T) {
	t.Parallel()
	s := &Store{writer: newWriter(nil, 0)} // the test is its loop
	var touches []fleet.Touch
	rows := map[string]int64{}
	for i := range 2*touchBatch + 1 {
		id := fmt.Sprint("agent-", i)
		touches, rows[id] = append(touches, fleet.Touch{AgentID: id}), int64(i)
	}
	s.rids.add(rows)
	flushed := make(chan error, 1)
	go func() { flushed <- s.Agents().Touch(t.Context(), touches) }()
	for parts := 0; ; parts++ {
		select {
		case part := <-s.writer.jobs:
			if len(s.writer.jobs) > 0 {
				t.Error("two parts are queued at once: a write queued now would wait for both")
			}
			part.done <- nil
		case err := <-flushed:
			if err != nil || parts != 3 {
				t.Errorf("it was written in %d parts, want 3: %v", parts, err)
			}
			return
		}
	}
}

func TestGroupTakesQueuedWritesUpToItsBound(t *testing.T) {
	t.Parallel()
	w := newWriter(nil, 0) // the test is its loop
	var jobs []*write
	for range maxGroup {
		jobs = append(jobs, &write{})
		w.jobs <- jobs[len(jobs)-1]
	}
	first := &write{}
	if got, want := w.group(first), append([]*write{first}, jobs[:maxGroup-1]...); !slices.Equal(got, want) {
		t.Errorf("the first group has %d writes, want the first %d", len(got), len(want))
	}
	if got := w.group(<-w.jobs); !slices.Equal(got, jobs[maxGroup-1:]) {
		t.Errorf("the second group has %d writes, want the last one", len(got))
	}
}

func TestCommitDelayAppliesOnlyWithMoreThanCommitSiblings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(nil, time.Second) // the test is its loop
		for _, c := range []struct {
			waiting int
			want    time.Duration
		}{{1, 0}, {commitSiblings, 0}, {commitSiblings + 1, time.Second}, {maxGroup, 0}} {
			for range c.waiting - 1 {
				w.jobs <- &write{}
			}
			begin := time.Now()
			if group := w.group(&write{}); len(group) != c.waiting || time.Since(begin) != c.want {
				t.Errorf("%d writes: a group of %d after %s, want all after %s", c.waiting, len(group), time.Since(begin), c.want)
			}
		}
	})
}
