package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// look reads on from a place, all pages.
func look(t testing.TB, s *Store, since int64) (out []store.AgentChange, lost bool, next int64) {
	t.Helper()
	for range 1000 {
		c, err := s.ChangesElsewhere(t.Context(), since)
		if err != nil {
			t.Fatal(err)
		}
		out, lost, since = append(out, c.Agents...), lost || c.Lost, c.Next
		if !c.More {
			return out, lost, since
		}
	}
	t.Fatal("the pages do not end")
	return nil, false, 0
}

func TestEachWriteIsToldToOthers(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "muster.db")
	here, there := mustOpen(t, path), mustOpen(t, path)
	_, lost, since := look(t, here, store.Unwatched)
	if !lost {
		t.Error("who has not looked before knows what was written")
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	agents := there.Agents()
	const uuid = "7f3c2a10-9b1e-4c55-8d60-0123456789ab"
	at := time.Date(2026, 3, 3, 10, 0, 0, 7, time.UTC)
	get := func(id string) fleet.Agent {
		a, err := agents.Get(ctx, id)
		must(err)
		return a
	}
	stance := func(a fleet.Agent) store.Stance {
		s := store.StanceOf(&a)
		if s == 0 {
			t.Errorf("agent %s has no stance", a.ID)
		}
		return s
	}
	for _, c := range []struct {
		name  string
		write func() []store.AgentChange // what is to be told of it
	}{
		{"create", func() []store.AgentChange {
			for _, id := range []string{"a", uuid} {
				must(agents.Create(ctx, fleet.Agent{ID: id, AccessKeyID: id, Active: true, Version: "1", LastHealthyVersion: "1"}))
			}
			return []store.AgentChange{{AgentID: "a"}, {AgentID: uuid}}
		}},
		{"create of what is there", func() []store.AgentChange {
			if err := agents.Create(ctx, fleet.Agent{ID: "a"}); fleet.KindOf(err) != fleet.Conflict {
				t.Error(err)
			}
			return nil
		}},
		{"update", func() []store.AgentChange {
			a := get(uuid)
			a.Version, a.LastHealthyVersion = "2", "2"
			_, err := agents.Update(ctx, a)
			must(err)
			return []store.AgentChange{{AgentID: uuid, Stance: stance(a)}}
		}},
		{"update of what has changed", func() []store.AgentChange {
			a := get("a")
			a.Revision--
			if _, err := agents.Update(ctx, a); fleet.KindOf(err) != fleet.Conflict {
				t.Error(err)
			}
			return nil
		}},
		{"update of many, of which one is refused", func() []store.AgentChange {
			a, b, none := get("a"), get(uuid), fleet.Agent{ID: "none"}
			b.Active = false
			errs, err := agents.UpdateMany(ctx, []fleet.Agent{a, none, b})
			must(err)
			if errs[0] != nil || errs[1] == nil || errs[2] != nil {
				t.Error(errs)
			}
			return []store.AgentChange{{AgentID: "a", Stance: stance(a)}, {AgentID: uuid}}
		}},
		{"check-in that changes the document and the status", func() []store.AgentChange {
			a := get("a")
			_, err := agents.Report(ctx, store.Report{Agent: &a, Seen: &fleet.Touch{AgentID: "a", At: at, Status: "degraded", Message: "slow"}})
			must(err)
			return []store.AgentChange{{AgentID: "a", Stance: stance(a)}, {AgentID: "a", Kind: store.AgentTold, At: at, Status: "degraded"}}
		}},
		{"re-enrolment, which is no check-in", func() []store.AgentChange {
			a := get("a")
			a.AccessKeyID = "another"
			_, err := agents.Report(ctx, store.Report{Agent: &a, Seen: &fleet.Touch{AgentID: "a", ActionSeq: 3}})
			must(err)
			return []store.AgentChange{{AgentID: "a", Stance: stance(a)}}
		}},
		{"acknowledgement, which changes no agent", func() []store.AgentChange {
			_, err := agents.Report(ctx, store.Report{Results: []fleet.Result{{ActionID: "x", AgentID: "a"}}})
			must(err)
			return nil
		}},
		{"last-seen times", func() []store.AgentChange {
			must(agents.Touch(ctx, []fleet.Touch{
				{AgentID: uuid, At: at.Add(time.Second), Status: "online"},
				{AgentID: "a", At: at.Add(-time.Hour)},
				{AgentID: "a", ActionSeq: 9},
				{AgentID: "none", At: at},
			}))
			// In the order of their rows; who is unknown is passed over.
			return []store.AgentChange{
				{AgentID: "a", Kind: store.AgentTouched, At: at.Add(-time.Hour)},
				{AgentID: uuid, Kind: store.AgentTouched, At: at.Add(time.Second), Status: "online"},
			}
		}},
		{"delete", func() []store.AgentChange {
			must(agents.Delete(ctx, uuid))
			return []store.AgentChange{{AgentID: uuid}}
		}},
		{"delete of what is not there", func() []store.AgentChange { must(agents.Delete(ctx, uuid)); return nil }},
		{"a policy, an action and a result", func() []store.AgentChange {
			must(there.Policies().Create(ctx, fleet.Policy{ID: "p"}))
			_, err := there.Actions().Create(ctx, fleet.Action{ID: "x", Agents: []string{"a"}})
			must(err)
			return nil
		}},
		{"writes of its own", func() []store.AgentChange {
			must(here.Agents().Create(ctx, fleet.Agent{ID: "mine", AccessKeyID: "mine"}))
			must(here.Agents().Touch(ctx, []fleet.Touch{{AgentID: "mine", At: at}}))
			return nil
		}},
	} {
		want := c.write()
		var got []store.AgentChange
		got, lost, since = look(t, here, since)
		if lost || !slices.Equal(got, want) {
			t.Errorf("%s: it hears of %+v, lost: %t; want %+v", c.name, got, lost, want)
		}
	}
}

// What many processes write side by side comes to each of the others, all of it and in
// its order, also while it is trimmed: or it is told that it missed some.
func TestNothingIsMissedBetweenProcesses(t *testing.T) {
	const processes, writes = 3, 100
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "muster.db")
	var stores [processes]*Store
	for i := range stores {
		s, err := Open(ctx, path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stores[i] = s
	}
	reader := stores[0]
	_, _, since := look(t, reader, store.Unwatched)
	done := make(chan struct{})
	var all sync.WaitGroup
	for p := range processes {
		all.Go(func() {
			for i := range writes {
				if err := stores[p].Agents().Create(ctx, fleet.Agent{ID: fmt.Sprintf("%d/%03d", p, i), AccessKeyID: fmt.Sprintf("%d/%d", p, i)}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	go func() { all.Wait(); close(done) }()
	heard := map[string][]string{}
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true // and one more look
		default:
		}
		var got []store.AgentChange
		var lost bool
		got, lost, since = look(t, reader, since)
		if lost {
			t.Fatal("nothing was trimmed, and something is lost")
		}
		for _, c := range got {
			if _, err := reader.Agents().Get(ctx, c.AgentID); err != nil {
				t.Fatalf("it heard of %s before it was there: %v", c.AgentID, err)
			}
			p, _, _ := strings.Cut(c.AgentID, "/")
			heard[p] = append(heard[p], c.AgentID)
		}
	}
	for p, ids := range heard {
		if len(ids) != writes || !slices.IsSorted(ids) {
			t.Errorf("of process %s it heard %d writes, in order: %t", p, len(ids), slices.IsSorted(ids))
		}
	}
	if want := []string{"1", "2"}; !slices.Equal(slices.Sorted(maps.Keys(heard)), want) {
		t.Errorf("it heard of processes %v, want %v", slices.Sorted(maps.Keys(heard)), want)
	}
}

func TestTheLogIsTrimmedAndWhoIsBehindIsTold(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "muster.db")
	here, there := mustOpen(t, path), mustOpen(t, path)
	if err := there.Agents().Create(ctx, fleet.Agent{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	_, _, since := look(t, here, store.Unwatched)
	var p packed
	p.written("a", 1)
	// add logs rows at a time, and trims as a writer does.
	add := func(n int, at time.Time) {
		t.Helper()
		err := there.write(ctx, "test", func(x *tx) error {
			_, err := x.exec(`WITH RECURSIVE r (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < ?)
				INSERT INTO agent_changes (writer, at, changes) SELECT 1, ?, ? FROM r`, n, at.Unix(), p.bytes)
			if err != nil {
				return err
			}
			return trimChanges(x, time.Now())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	rows := func() (n int) {
		t.Helper()
		if err := here.get(ctx, `SELECT count(*) FROM agent_changes`, nil, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	now := time.Now()
	add(100, now)
	got, lost, next := look(t, here, since)
	if len(got) != 100 || lost {
		t.Errorf("of 100 writes it hears of %d, lost: %t", len(got), lost)
	}

	// More than a page.
	add(changesPage+5, now)
	c, err := here.ChangesElsewhere(ctx, next)
	if err != nil || !c.More || len(c.Agents) != changesPage {
		t.Errorf("a page has %d changes, more: %t, %v", len(c.Agents), c.More, err)
	}
	got, lost, next = look(t, here, next)
	if len(got) != changesPage+5 || lost {
		t.Errorf("of many writes it hears of %d, lost: %t", len(got), lost)
	}

	// More than are kept: trimmed bit by bit, and who is behind is told so.
	behind := next
	add(changesKept+3*trimMost, now)
	for range 2 + (changesPage+3*trimMost)/trimMost {
		add(1, now)
	}
	if n := rows(); n != changesKept+1 {
		t.Errorf("%d rows are kept, want %d", n, changesKept+1)
	}
	if got, lost, next = look(t, here, behind); !lost || len(got) > 0 {
		t.Errorf("who is behind hears of %d changes, lost: %t", len(got), lost)
	}
	if again, lost, _ := look(t, here, next); len(again) > 0 || lost {
		t.Errorf("and then of %d, lost: %t", len(again), lost)
	}

	// Of old ones the newest stays, so that numbers grow. A clock that was put back
	// keeps rows, and never makes a hole.
	behind = next
	err = there.write(ctx, "test", func(x *tx) error {
		_, err := x.exec(`UPDATE agent_changes SET at = ? WHERE seq <> ?`, now.Add(-2*changesAge).Unix(), next-10)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for range changesKept/trimMost + 2 {
		add(1, now.Add(-2*changesAge))
	}
	var oldest int64
	if err := here.get(ctx, oldestChange, nil, &oldest); err != nil || oldest != next-10 {
		t.Errorf("the oldest row is %d, want %d, of which the clock said that it is new; %v", oldest, next-10, err)
	}
	if got, lost, next = look(t, here, behind); lost || len(got) != changesKept/trimMost+2 {
		t.Errorf("after the trimming of what it has read it hears of %d, lost: %t", len(got), lost)
	}
	if err := there.write(ctx, "test", func(x *tx) error { _, err := x.exec(`UPDATE agent_changes SET at = 0`); return err }); err != nil {
		t.Fatal(err)
	}
	add(1, now.Add(-2*changesAge))
	if n := rows(); n != 1 {
		t.Errorf("%d old rows are kept, want the newest", n)
	}
	if got, lost, _ = look(t, here, next); lost || len(got) != 1 {
		t.Errorf("then it hears of %d, lost: %t", len(got), lost)
	}
	if _, lost, _ = look(t, here, behind); !lost {
		t.Error("who had not read what was trimmed is not told")
	}

	// What cannot be read may have been anything.
	if err := there.write(ctx, "test", func(x *tx) error { _, err := x.exec(`UPDATE agent_changes SET changes = x'ff00'`); return err }); err != nil {
		t.Fatal(err)
	}
	if _, lost, _ = look(t, here, next); !lost {
		t.Error("a row that makes no sense is passed over")
	}
}

func TestChangesAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p packed
		var want []store.AgentChange
		for range rapid.IntRange(0, 5).Draw(t, "changes") {
			c := store.AgentChange{
				AgentID: rapid.SampledFrom([]string{"", "a", "7f3c2a10-9b1e-4c55-8d60-0123456789ab", "7F3C2A10-9b1e-4c55-8d60-0123456789ab", strings.Repeat("ü", 100)}).Draw(t, "id"),
				Kind:    rapid.SampledFrom([]store.AgentChangeKind{store.AgentWritten, store.AgentTold, store.AgentTouched}).Draw(t, "kind"),
			}
			if c.Kind == store.AgentWritten {
				c.Stance = store.Stance(rapid.Uint64().Draw(t, "stance"))
				p.written(c.AgentID, c.Stance)
			} else {
				c.At, c.Status = toTime(rapid.Int64().Draw(t, "time")), rapid.SampledFrom([]string{"", "online"}).Draw(t, "status")
				p.touched(c.Kind, &fleet.Touch{AgentID: c.AgentID, At: c.At, Status: c.Status})
			}
			want = append(want, c)
		}
		var got []store.AgentChange
		if err := unpack(p.bytes, func(c store.AgentChange) { got = append(got, c) }); err != nil || !slices.Equal(got, want) {
			t.Fatalf("read as %+v, %v; written as %+v", got, err, want)
		}
		// Cut short or not ours: an error or other changes, and no panic.
		for n := range p.bytes {
			_ = unpack(p.bytes[:n], func(store.AgentChange) {})
		}
		_ = unpack(rapid.SliceOf(rapid.Byte()).Draw(t, "noise"), func(store.AgentChange) {})
	})
}

// older makes a file as a Muster before agent_changes left it.
func older(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "muster.db")
	db, err := connect(path, Options{}, immediate, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for version := 1; version < aloneSchema; version++ {
		step, err := migrationFor(version)
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{step, fmt.Sprintf("PRAGMA user_version = %d", version), fmt.Sprintf("PRAGMA application_id = %d", applicationID)} {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := db.ExecContext(t.Context(), `INSERT INTO agents (id, rev, access_key_id, doc) VALUES ('a', 1, 'k', '{"id":"a"}');
		INSERT INTO hot (rid, status, message) SELECT rid, '', '' FROM agents`); err != nil {
		t.Fatal(err)
	}
	return path
}

// An older Muster that has the file open would write to it and tell nobody.
func TestTheSchemaWaitsForOlderProcessesToEnd(t *testing.T) {
	path := older(t)
	old, err := sql.Open("sqlite", uri(path))
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close() // it stands for an older process
	version := func() (v int) {
		t.Helper()
		if err := old.QueryRowContext(t.Context(), `PRAGMA user_version`).Scan(&v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := version(); v != aloneSchema-1 {
		t.Fatalf("schema %d", v)
	}
	wantRefusal(t, path, "older Muster", "stop every process")
	if _, err := old.ExecContext(t.Context(), `UPDATE agents SET rev = 2`); err != nil || version() != aloneSchema-1 {
		t.Fatalf("after the refusal the older process has schema %d, %v", version(), err)
	}

	// Several new ones wait for it to end, and then for each other.
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			s, err := Open(context.Background(), path, Options{BusyTimeout: 20 * time.Second})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	s := mustOpen(t, path)
	if !there(t, s, "a") {
		t.Error("the agent is gone")
	}
	if c, err := s.ChangesElsewhere(t.Context(), store.Unwatched); err != nil || !c.Lost {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestALookThatFailsSaysSo(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "muster.db"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.ChangesElsewhere(ctx, store.Unwatched); !errors.Is(err, context.Canceled) || fleet.KindOf(err) != fleet.Unavailable {
		t.Errorf("the error is %v", err)
	}
}
