package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
)

var recordStart = time.Date(2026, time.March, 3, 10, 0, 0, 0, time.UTC)

// ack is an agent's result of the action "act"; an empty errText is success.
func ack(agent, errText string, after time.Duration) fleet.Result {
	return fleet.Result{ActionID: "act", AgentID: agent, Error: errText, Timestamp: recordStart.Add(after)}
}

func recording(events []fleet.Event, list ...fleet.Result) *write {
	rec := &records{results: list, events: events}
	return &write{ctx: context.Background(), records: rec, do: func(x *tx) error { return putRecords(x, []*records{rec}) }}
}

// eventsAfter returns the events of a store after a Seq, one line for each.
func eventsAfter(t interface{ Fatal(...any) }, s *Store, after int64) (lines []string, last int64) {
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

func TestAcknowledgementsShareATransactionWithOtherWrites(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	w := idle(t, s)
	cancelled := recording(nil, ack("cancelled", "", 0))
	cancelled.ctx = ended
	group := []*write{
		creating(t, "a"), recording(nil, ack("a", "", 0)), recording(nil, ack("b", "no space", time.Second)),
		{ctx: t.Context(), do: func(*tx) error { return errors.New("a write of another kind failed") }},
		cancelled, recording([]fleet.Event{{Type: "one", Subject: "c"}}), creating(t, "b"),
	}
	if err := w.commit(group); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{3: "a write of another kind failed", 4: context.Canceled.Error(), 6: ""} {
		if got := group[i].err; (got == nil) != (want == "") || (got != nil && got.Error() != want) {
			t.Errorf("write %d: %v, want %q", i, got, want)
		}
	}
	if !stored(t, s, "a") || !stored(t, s, "b") {
		t.Error("an agent is missing")
	}
	counts, err := s.Results().Counts(t.Context(), []string{"act"})
	if want := (fleet.ResultCounts{Acked: 1, Failed: 1, Last: recordStart.Add(time.Second)}); err != nil || counts["act"] != want {
		t.Errorf("counts are %+v, want %+v: %v", counts["act"], want, err)
	}
	want := []string{line(ack("a", "", 0).Event()), line(ack("b", "no space", time.Second).Event()), line(fleet.Event{Type: "one", Subject: "c"})}
	if got, _ := eventsAfter(t, s, 0); !slices.Equal(got, want) {
		t.Errorf("events are %q, want %q", got, want)
	}
}

func TestFailedAcknowledgementDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	w := idle(t, s)
	before := []*write{recording(nil, ack("damaged", "", 0), ack("b", "", 0)), {ctx: t.Context(), do: func(x *tx) error {
		_, err := x.exec(`CREATE TRIGGER damaged BEFORE UPDATE ON results WHEN old.agent_id = 'damaged' BEGIN SELECT RAISE(ABORT, 'damaged'); END`)
		return err
	}}}
	if err := errors.Join(w.commit(before), before[0].err, before[1].err); err != nil {
		t.Fatal(err)
	}
	_, last := eventsAfter(t, s, 0)
	group := []*write{
		recording(nil, ack("a", "", 0)), recording(nil, ack("damaged", "rolled back", time.Second)), creating(t, "x"),
		recording(nil, ack("b", "rolled back", time.Second)), recording(nil, ack("b", "", 0)),
	}
	if err := w.commit(group); err != nil {
		t.Fatal(err)
	}
	for i, job := range group {
		if damaged := i == 1; (job.err != nil) != damaged {
			t.Errorf("write %d: %v", i, job.err)
		}
	}
	if !stored(t, s, "x") {
		t.Error("the agent is missing")
	}
	counts, err := s.Results().Counts(t.Context(), []string{"act"})
	if want := (fleet.ResultCounts{Acked: 2, Failed: 1, Last: recordStart.Add(time.Second)}); err != nil || counts["act"] != want {
		t.Errorf("counts are %+v, want %+v: %v", counts["act"], want, err)
	}
	want := []string{line(ack("a", "", 0).Event()), line(ack("b", "rolled back", time.Second).Event())}
	if got, _ := eventsAfter(t, s, last); !slices.Equal(got, want) {
		t.Errorf("events are %q, want %q", got, want)
	}
}

// Records that are written together have the same effect as if they were written one by
// one.
func TestGroupedRecordsEqualSequentialWrites(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	w := idle(t, s)
	round, last := 0, int64(0)
	errTexts := []string{"", "failed", "withdrawn: the rollout was paused", "cancelled"}
	rapid.Check(t, func(t *rapid.T) {
		round++
		actions := []string{fmt.Sprint("first-", round), fmt.Sprint("second-", round)}
		results := map[string]fleet.Result{}
		counts := map[string]fleet.ResultCounts{}
		for range rapid.IntRange(1, 3).Draw(t, "groups") {
			var group []*write
			var wantChanged [][]bool
			var wantEvents []string
			for range rapid.IntRange(1, 5).Draw(t, "writes") {
				var events []fleet.Event
				for i := range rapid.IntRange(0, 2).Draw(t, "events") {
					events = append(events, fleet.Event{Type: "of its own", Subject: fmt.Sprint(i)})
					wantEvents = append(wantEvents, line(events[i]))
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
					earlier, repeated := results[id]
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
					counts[r.ActionID], results[id] = c, r
					wantEvents = append(wantEvents, line(r.Event()))
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
			if got, last = eventsAfter(t, s, last); !slices.Equal(got, wantEvents) {
				t.Fatalf("events are %q, want %q", got, wantEvents)
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
		for _, want := range results {
			if r, err := s.Results().Get(context.Background(), want.ActionID, want.AgentID); err != nil || r.Error != want.Error || !r.Timestamp.Equal(want.Timestamp) {
				t.Fatalf("the result is %+v, want %+v: %v", r, want, err)
			}
		}
	})
}

func TestUnencodableAcknowledgementFailsAlone(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	w := idle(t, s)
	bad := ack("bad", "", 0)
	bad.Timestamp = time.Date(10_000, time.January, 1, 0, 0, 0, 0, time.UTC) // JSON times have four-digit years
	group := []*write{recording(nil, ack("first", "", 0)), recording(nil, bad), recording(nil, ack("last", "", 0))}
	if err := w.commit(group); err != nil {
		t.Fatal(err)
	}
	if group[0].err != nil || fleet.KindOf(group[1].err) != fleet.Internal || group[2].err != nil {
		t.Errorf("the errors are %v, %v and %v", group[0].err, group[1].err, group[2].err)
	}
	counts, err := s.Results().Counts(t.Context(), []string{"act"})
	if err != nil || counts["act"].Acked != 2 {
		t.Errorf("counts are %+v: %v", counts, err)
	}
	if lines, _ := eventsAfter(t, s, 0); len(lines) != 2 {
		t.Errorf("the events are\n%v", lines)
	}
}

func TestResultEventIsEncodedLikeOtherEvents(t *testing.T) {
	t.Parallel()
	r := fleet.Result{ActionID: "act", AgentID: "a", Hostname: "h", Message: "did <it>", Error: "no \xff space", Timestamp: recordStart}
	doc, err := encodeResultEvent(r)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := encodeEvents([]fleet.Event{r.Event()})
	if err != nil || doc != docs[0] {
		t.Errorf("encodeResultEvent: %s, encodeEvents: %s: %v", doc, docs, err)
	}
}
