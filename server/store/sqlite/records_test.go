package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
)

var recordStart = time.Date(2026, time.March, 3, 10, 0, 0, 0, time.UTC)

// ack is what an agent says of the action "act"; an empty errText is success.
func ack(agent, errText string, after time.Duration) fleet.Result {
	return fleet.Result{ActionID: "act", AgentID: agent, Error: errText, Timestamp: recordStart.Add(after)}
}

func recording(events []fleet.Event, list ...fleet.Result) *write {
	rec := &records{results: list, events: events}
	return &write{ctx: context.Background(), records: rec, do: func(x *tx) error { return putRecords(x, []*records{rec}) }}
}

// told are the events of a store behind one, a line each.
func told(t interface{ Fatal(...any) }, s *Store, after int64) (lines []string, last int64) {
	list, err := s.Events().After(context.Background(), after, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	last = after
	for _, e := range list {
		lines, last = append(lines, line(e)), e.Seq
	}
	return lines, last
}

func line(e fleet.Event) string {
	return fmt.Sprint(e.Type, " ", e.Subject, " ", e.At.UnixNano(), " ", string(e.Data))
}

func TestAcknowledgementsShareTheirTransactionWithOthers(t *testing.T) {
	s := fresh(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w := idle(t, s)
	left := recording(nil, ack("left", "", 0))
	left.ctx = gone
	group := []*write{
		creating(t, "a"), recording(nil, ack("a", "", 0)), recording(nil, ack("b", "no space", time.Second)),
		{ctx: t.Context(), do: func(*tx) error { return errors.New("a write of another kind failed") }},
		left, recording([]fleet.Event{{Type: "one", Subject: "c"}}), creating(t, "b"),
	}
	if err := w.commit(group); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{3: "a write of another kind failed", 4: context.Canceled.Error(), 6: ""} {
		if got := group[i].err; (got == nil) != (want == "") || (got != nil && got.Error() != want) {
			t.Errorf("write %d: %v, want %q", i, got, want)
		}
	}
	if !there(t, s, "a") || !there(t, s, "b") {
		t.Error("an agent is missing")
	}
	counts, err := s.Results().Counts(t.Context(), []string{"act"})
	if want := (fleet.ResultCounts{Acked: 1, Failed: 1, Last: recordStart.Add(time.Second)}); err != nil || counts["act"] != want {
		t.Errorf("counts are %+v, want %+v: %v", counts["act"], want, err)
	}
	want := []string{line(ack("a", "", 0).Event()), line(ack("b", "no space", time.Second).Event()), line(fleet.Event{Type: "one", Subject: "c"})}
	if got, _ := told(t, s, 0); !slices.Equal(got, want) {
		t.Errorf("events are %q, want %q", got, want)
	}
}

func TestAnAcknowledgementThatFailsTakesNoOtherWithIt(t *testing.T) {
	s := fresh(t)
	w := idle(t, s)
	before := []*write{recording(nil, ack("damaged", "", 0), ack("b", "", 0)), {ctx: t.Context(), do: func(x *tx) error {
		_, err := x.exec(`UPDATE results SET doc = 'no JSON' WHERE agent_id = 'damaged'`)
		return err
	}}}
	if err := errors.Join(w.commit(before), before[0].err, before[1].err); err != nil {
		t.Fatal(err)
	}
	_, last := told(t, s, 0)
	group := []*write{
		recording(nil, ack("a", "", 0)), recording(nil, ack("damaged", "rolled back", time.Second)), creating(t, "x"),
		recording(nil, ack("b", "rolled back", time.Second)), recording(nil, ack("b", "", 0)),
	}
	if err := w.commit(group); err != nil {
		t.Fatal(err)
	}
	for i, job := range group {
		if damaged := i == 1; (job.err != nil) != damaged || (damaged && fleet.KindOf(job.err) != fleet.Internal) {
			t.Errorf("write %d: %v", i, job.err)
		}
	}
	if !there(t, s, "x") {
		t.Error("the agent is missing")
	}
	counts, err := s.Results().Counts(t.Context(), []string{"act"})
	if want := (fleet.ResultCounts{Acked: 2, Failed: 1, Last: recordStart.Add(time.Second)}); err != nil || counts["act"] != want {
		t.Errorf("counts are %+v, want %+v: %v", counts["act"], want, err)
	}
	want := []string{line(ack("a", "", 0).Event()), line(ack("b", "rolled back", time.Second).Event())}
	if got, _ := told(t, s, last); !slices.Equal(got, want) {
		t.Errorf("events are %q, want %q", got, want)
	}
}

// Whatever is written together comes out as if each had come alone, in turn.
func TestRecordsTogetherAreAsOneAfterTheOther(t *testing.T) {
	s := fresh(t)
	w := idle(t, s)
	round, last := 0, int64(0)
	errTexts := []string{"", "failed", "withdrawn: the rollout was paused", "cancelled"}
	rapid.Check(t, func(t *rapid.T) {
		round++
		actions := []string{fmt.Sprint("first-", round), fmt.Sprint("second-", round)}
		stored := map[string]fleet.Result{}
		counts := map[string]fleet.ResultCounts{}
		for range rapid.IntRange(1, 3).Draw(t, "groups") {
			var group []*write
			var wantChanged [][]bool
			var wantTold []string
			for range rapid.IntRange(1, 5).Draw(t, "writes") {
				var events []fleet.Event
				for i := range rapid.IntRange(0, 2).Draw(t, "events") {
					events = append(events, fleet.Event{Type: "of its own", Subject: fmt.Sprint(i)})
					wantTold = append(wantTold, line(events[i]))
				}
				var list []fleet.Result
				var changed []bool
				for i := range rapid.SampledFrom([]int{0, 1, 1, 1, 2, 9, 70}).Draw(t, "results") {
					r := fleet.Result{
						ActionID: rapid.SampledFrom(actions).Draw(t, "action"), AgentID: fmt.Sprint("agent-", rapid.IntRange(0, 40).Draw(t, "agent")),
						Error:     rapid.SampledFrom(errTexts).Draw(t, "error"),
						Timestamp: recordStart.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "after")+i) * time.Second),
					}
					list = append(list, r)
					id := fleet.ResultID(r.ActionID, r.AgentID)
					earlier, repeated := stored[id]
					changed = append(changed, !repeated || r.Supersedes(earlier))
					if !changed[i] {
						continue
					}
					c := counts[r.ActionID]
					if repeated && earlier.Error == "" {
						c.Acked--
					} else if repeated {
						c.Failed--
					}
					if r.Error == "" {
						c.Acked++
					} else {
						c.Failed++
					}
					if r.Timestamp.After(c.Last) {
						c.Last = r.Timestamp
					}
					counts[r.ActionID], stored[id] = c, r
					wantTold = append(wantTold, line(r.Event()))
				}
				group = append(group, recording(events, list...))
				wantChanged = append(wantChanged, changed)
			}
			if err := w.commit(group); err != nil {
				t.Fatal(err)
			}
			for i, job := range group {
				if job.err != nil || !slices.Equal(job.records.changed, wantChanged[i]) {
					t.Fatalf("write %d changed %v, want %v: %v", i, job.records.changed, wantChanged[i], job.err)
				}
			}
			var got []string
			if got, last = told(t, s, last); !slices.Equal(got, wantTold) {
				t.Fatalf("events are %q, want %q", got, wantTold)
			}
		}
		got, err := s.Results().Counts(context.Background(), actions)
		if err != nil || len(got) != len(counts) {
			t.Fatalf("counts are %+v, want %+v: %v", got, counts, err)
		}
		for action, want := range counts {
			if got[action] != want {
				t.Fatalf("counts of %s are %+v, want %+v", action, got[action], want)
			}
		}
		for _, want := range stored {
			if r, err := s.Results().Get(context.Background(), want.ActionID, want.AgentID); err != nil || r.Error != want.Error || !r.Timestamp.Equal(want.Timestamp) {
				t.Fatalf("the result is %+v, want %+v: %v", r, want, err)
			}
		}
	})
}

func TestAnAcknowledgementThatCannotBeEncodedFailsAlone(t *testing.T) {
	s := fresh(t)
	w := idle(t, s)
	bad := ack("bad", "", 0)
	bad.Timestamp = time.Date(10_000, time.January, 1, 0, 0, 0, 0, time.UTC) // a year that JSON has no room for
	group := []*write{recording(nil, ack("first", "", 0)), recording(nil, bad), recording(nil, ack("last", "", 0))}
	if err := w.commit(group); err != nil {
		t.Fatal(err)
	}
	if group[0].err != nil || fleet.KindOf(group[1].err) != fleet.Internal || group[2].err != nil {
		t.Errorf("they end with %v, %v and %v", group[0].err, group[1].err, group[2].err)
	}
	counts, err := s.Results().Counts(t.Context(), []string{"act"})
	if err != nil || counts["act"].Acked != 2 {
		t.Errorf("there are %+v: %v", counts, err)
	}
	if lines, _ := told(t, s, 0); len(lines) != 2 {
		t.Errorf("the stream tells of\n%v", lines)
	}
}

func TestTheEventOfAResultIsEncodedAsAnyOther(t *testing.T) {
	r := fleet.Result{ActionID: "act", AgentID: "a", Hostname: "h", Message: "did <it>", Error: "no \xff space", Timestamp: recordStart}
	doc, err := encodeResultEvent(r)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := encodeEvents([]fleet.Event{r.Event()})
	if err != nil || doc != docs[0] {
		t.Errorf("it is %s, elsewhere %s: %v", doc, docs, err)
	}
}

func TestAQueueGivesOutWhatCameFirst(t *testing.T) {
	q := newQueue()
	var jobs []*write
	for range maxGroup + 2 {
		job := &write{}
		jobs = append(jobs, job)
		if !q.add(job) {
			t.Fatal("it is closed")
		}
	}
	q.remove(jobs[1]) // its caller gave up
	first, open := q.take()
	if want := append([]*write{jobs[0]}, jobs[2:maxGroup+1]...); !open || !slices.Equal(first, want) {
		t.Errorf("first came %d, want %d", len(first), len(want))
	}
	q.remove(jobs[0]) // too late, and harmless
	if second, open := q.take(); !open || !slices.Equal(second, jobs[maxGroup+1:]) {
		t.Errorf("then came %d, want 1", len(second))
	}
	late := &write{}
	q.add(late)
	q.close()
	if left, open := q.take(); open || !slices.Equal(left, []*write{late}) {
		t.Errorf("closed, it gave out %d: %v", len(left), open)
	}
	if q.add(&write{}) {
		t.Error("a closed queue took another")
	}
}

// record is a write of an acknowledgement.
func record() *write { return &write{ctx: context.Background(), records: &records{}} }

func TestAcknowledgementsOfAFleetAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		over := make(chan struct{})
		defer close(over)
		go func() { // one in a millisecond
			for {
				select {
				case <-over:
					return
				case <-time.After(time.Millisecond):
					q.add(record())
				}
			}
		}()
		began, groups, got := time.Now(), 0, 0
		for time.Since(began) < time.Second {
			group, _ := q.take()
			groups, got = groups+1, got+len(group)
		}
		// Of one each, until there is a crowd.
		if most := crowd + int(time.Second/maxGather) + 1; groups > most || got < 900 {
			t.Errorf("%d acknowledgements in a second were written in %d groups, want %d at most", got, groups, most)
		}
	})
}

func TestWhoIsWaitedForIsGatheredNoLongerThanItHelps(t *testing.T) {
	many := func(n int) (list []*write) {
		for range n {
			list = append(list, record())
		}
		return list
	}
	other := func() *write { return &write{ctx: context.Background()} }
	urgent := other()
	urgent.waits = func() bool { return true }
	for _, c := range []struct {
		name  string
		jobs  []*write
		want  int
		after time.Duration
	}{
		{"one, at once", many(1), 1, 0},
		{"some, at once", many(crowd), crowd, 0},
		{"all of a crowd, when no more come", many(crowd + 1), crowd + 1, gatherLook},
		{"a full group, at once", many(fullGroup), fullGroup, 0},
		{"more than that, at once", many(fullGroup + 1), fullGroup + 1, 0},
		{"who is waited for, at once", append(many(crowd+1), urgent), 1, 0},
		{"others are no crowd", slices.Concat(many(crowd), []*write{other(), other()}), crowd + 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue()
				for _, job := range c.jobs {
					q.add(job)
				}
				takes(t, &q, c.want, c.after, true)
			})
		})
	}
}

// takes takes a group of so many, after so long, from a queue that is open or closed.
func takes(t *testing.T, q *queue, want int, after time.Duration, wantOpen bool) {
	t.Helper()
	began := time.Now()
	group, open := q.take()
	if took := time.Since(began); len(group) != want || took != after || open != wantOpen {
		t.Errorf("%d are written after %s, want %d after %s; open: %t", len(group), took, want, after, open)
	}
}

// queueOf has so many acknowledgements.
func queueOf(n int) *queue {
	q := newQueue()
	for range n {
		q.add(record())
	}
	return &q
}

func TestACrowdOfBeforeHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queueOf(2 * crowd)
		q.take()
		q.written()
		time.Sleep(maxGather + time.Millisecond)
		q.add(record())
		takes(t, q, 1, 0, true)
	})
}

func TestWhoWritesOneAfterTheOtherIsNoCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		for range 3 * crowd {
			q.add(record())
			takes(t, &q, 1, 0, true)
			q.written()
		}
	})
}

func TestClosingDoesNotWaitForACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queueOf(2 * crowd)
		q.close()
		takes(t, q, 2*crowd, 0, false)
	})
}
