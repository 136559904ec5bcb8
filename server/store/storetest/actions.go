package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func upgradeAction(id string, agents ...string) fleet.Action {
	return fleet.Action{ID: id, Type: agentapi.ActionUpgrade, Data: json.RawMessage(`{"version":"1.1.0"}`), Agents: agents, Actioned: len(agents), CreatedAt: base, CreatedBy: "admin"}
}

func actionIDs(list []fleet.Action) []string {
	out := []string{}
	for _, a := range list {
		out = append(out, a.ID)
	}
	return out
}

func testActions(t *testing.T, cfg Config) {
	ctx := t.Context()
	// pending fails the test unless Pending returns these actions for an agent.
	pending := func(t *testing.T, s store.Store, agentID string, after int64, now time.Time, want ...string) {
		t.Helper()
		cfg.eventually(t, func() error {
			got, err := s.Actions().Pending(ctx, agentID, after, now, 100)
			if err != nil {
				return err
			}
			return differs(actionIDs(got), append([]string{}, want...))
		})
	}

	t.Run("Get, For and After return the stored action with its Seq", func(t *testing.T) {
		s := cfg.open(t)
		want := upgradeAction("act", "b", "a")
		want.Actioned, want.StartTime, want.RolloutSeconds = 3, atPtr(time.Minute), 600
		want.Expiration, want.InputType, want.Timeout = atPtr(time.Hour), "osquery", 300
		want.Signed = &agentapi.Signed{Data: "e30=", Signature: "c2ln"}
		bare := fleet.Action{ID: "bare", Type: agentapi.ActionUnenroll}
		for _, want := range []fleet.Action{want, bare} {
			seq := value(s.Actions().Create(ctx, want))(t)
			got := value(s.Actions().Get(ctx, want.ID))(t)
			equal(t, got, want)
			if got.Seq != seq || seq <= 0 {
				t.Fatalf("Seq is %d, Create returned %d", got.Seq, seq)
			}
			agents := append([]string{"stranger"}, want.Agents...)
			wantEach := []fleet.Action{want.For(-1)}
			for i := range want.Agents {
				wantEach = append(wantEach, want.For(i))
			}
			equal(t, value(s.Actions().For(ctx, want.ID, agents...))(t), wantEach)
			equal(t, value(s.Actions().For(ctx, want.ID, agents[0]))(t), wantEach[:1])
		}
		cfg.eventually(t, func() error {
			list, err := s.Actions().After(ctx, 0, 10)
			if err != nil {
				return err
			}
			return differs(list, []fleet.Action{want, bare})
		})
	})

	t.Run("Create refuses an existing id and delivers nothing", func(t *testing.T) {
		s := cfg.open(t)
		value(s.Actions().Create(ctx, upgradeAction("act", "a")))(t)
		_, err := s.Actions().Create(ctx, upgradeAction("act", "b"))
		wantKind(t, err, fleet.Conflict)
		pending(t, s, "a", 0, base, "act")
		pending(t, s, "b", 0, base)
		equal(t, value(s.Actions().Get(ctx, "act"))(t), upgradeAction("act", "a"))
	})

	t.Run("Delete removes an action and its results, and disturbs no reader", func(t *testing.T) {
		s := cfg.open(t)
		seqs := map[string]int64{}
		for _, id := range []string{"one", "two", "three"} {
			seqs[id] = value(s.Actions().Create(ctx, upgradeAction(id, "a", "b")))(t)
		}
		var results []fleet.Result
		for _, id := range []string{"one", "two"} {
			results = append(results, fleet.Result{ActionID: id, AgentID: "a", Timestamp: base}, fleet.Result{ActionID: id, AgentID: "b", Timestamp: base, Error: "disk full"})
		}
		value(s.Results().Put(ctx, results))(t)
		must(t, s.Actions().Cancel(ctx, "one", base))
		must(t, s.Actions().Delete(ctx, "one"))
		must(t, s.Actions().Delete(ctx, "one")) // a missing one is no error
		_, err := s.Actions().Get(ctx, "one")
		wantKind(t, err, fleet.NotFound)
		_, err = s.Results().Get(ctx, "one", "a")
		wantKind(t, err, fleet.NotFound)
		value(s.Results().Get(ctx, "two", "a"))(t)
		cfg.eventually(t, func() error {
			counts, err := s.Results().Counts(ctx, []string{"one", "two"})
			if err != nil {
				return err
			}
			return differs(counts, map[string]fleet.ResultCounts{"two": {Acked: 1, Failed: 1, Last: base}})
		})
		pending(t, s, "a", 0, base, "two", "three")
		pending(t, s, "a", seqs["one"], base, "two", "three")
		pending(t, s, "a", seqs["two"], base, "three")
		cfg.eventually(t, func() error {
			list, err := s.Actions().After(ctx, 0, 10)
			if err != nil {
				return err
			}
			return differs(actionIDs(list), []string{"two", "three"})
		})

		// Agents have the number of the newest action as their token, so it is not removed.
		wantKind(t, s.Actions().Delete(ctx, "three"), fleet.Conflict)
		must(t, s.Actions().Delete(ctx, "two"))
		if last := value(s.Actions().LastSeq(ctx))(t); last != seqs["three"] {
			t.Fatalf("LastSeq is %d, want %d", last, seqs["three"])
		}
		if next := value(s.Actions().Create(ctx, upgradeAction("four", "a")))(t); next <= seqs["three"] {
			t.Fatalf("the next action has Seq %d, the last one had %d", next, seqs["three"])
		}
		pending(t, s, "a", seqs["three"], base, "four")
	})

	t.Run("a missing action is NotFound", func(t *testing.T) {
		s := cfg.open(t)
		_, err := s.Actions().For(ctx, "none", "a")
		wantKind(t, err, fleet.NotFound)
		_, err = s.Actions().Get(ctx, "none")
		wantKind(t, err, fleet.NotFound)
		wantKind(t, s.Actions().Cancel(ctx, "none", base), fleet.NotFound)
		if n := value(s.Actions().LastSeq(ctx))(t); n != 0 {
			t.Fatalf("LastSeq is %d without actions", n)
		}
		if list := value(s.Actions().After(ctx, 0, 10))(t); len(list) != 0 {
			t.Fatalf("there are actions: %v", list)
		}
	})

	t.Run("the store does not share values with its caller", func(t *testing.T) {
		s := cfg.open(t)
		whole := func() fleet.Action {
			a := upgradeAction("act", "a", "b")
			a.StartTime, a.Expiration, a.Sealed = atPtr(time.Minute), atPtr(time.Hour), []byte{0, 255, 1}
			return a
		}
		modify := func(a fleet.Action) {
			a.Agents[0], a.Data[2], a.Sealed[2] = "modified", 'X', 'X'
			*a.StartTime, *a.Expiration = base, base
			if a.CancelledAt != nil {
				*a.CancelledAt = base
			}
		}
		mine := whole()
		value(s.Actions().Create(ctx, mine))(t)
		modify(mine)
		for range 2 {
			got := value(s.Actions().Get(ctx, "act"))(t)
			equal(t, got, whole())
			modify(got)
		}
		must(t, s.Actions().Cancel(ctx, "act", at(time.Second)))
		want := whole()
		want.CancelledAt = atPtr(time.Second)
		for range 2 {
			cfg.eventually(t, func() error {
				list, err := s.Actions().Pending(ctx, "a", 0, base, 1)
				if err != nil || len(list) != 1 {
					return fmt.Errorf("have %d actions: %w", len(list), err)
				}
				defer modify(list[0])
				return differs(list[0], want)
			})
		}
	})

	t.Run("Pending returns an agent's later, unexpired actions, oldest first", func(t *testing.T) {
		s := cfg.open(t)
		seqs := map[string]int64{}
		for _, a := range []fleet.Action{
			upgradeAction("one", "a", "b"), upgradeAction("two", "b"), upgradeAction("short", "a"),
			upgradeAction("three", "b", "a"), upgradeAction("all", "a", "b", "a-longer-name"),
		} {
			if a.ID == "short" {
				a.Expiration = atPtr(time.Minute)
			}
			seqs[a.ID] = value(s.Actions().Create(ctx, a))(t)
		}
		pending(t, s, "a", 0, base, "one", "short", "three", "all")
		pending(t, s, "a", 0, at(time.Minute-time.Millisecond), "one", "short", "three", "all")
		pending(t, s, "a", 0, at(time.Minute), "one", "three", "all")
		pending(t, s, "a", seqs["one"], at(time.Minute), "three", "all")
		pending(t, s, "a", seqs["all"], base)
		pending(t, s, "b", 0, base, "one", "two", "three", "all")
		pending(t, s, "a-longer-name", 0, base, "all")
		pending(t, s, "a-longer", 0, base)
		pending(t, s, "", 0, base)
		first := value(s.Actions().Pending(ctx, "b", 0, base, 2))(t)
		equal(t, actionIDs(first), []string{"one", "two"})
	})

	t.Run("a large action is pending only for its agents, in order with small ones", func(t *testing.T) {
		s := cfg.open(t)
		const many = 12_000
		name := func(i int) string { return fmt.Sprintf("agent-%05d", i) }
		large := upgradeAction("large")
		for i := range many {
			large.Agents = append(large.Agents, name((i*7919)%many*2)) // every second agent, unordered
		}
		odd := []string{`"quoted"`, `a","b`, "<ä&>", "zz"}
		large.Agents = append(large.Agents, odd...)
		large.Agents = append(large.Agents, name(0)) // twice
		large.Actioned, large.Expiration = len(large.Agents), atPtr(time.Hour)
		before := value(s.Actions().Create(ctx, upgradeAction("before", name(0), name(1))))(t)
		seq := value(s.Actions().Create(ctx, large))(t)
		value(s.Actions().Create(ctx, upgradeAction("after", name(0), name(1))))(t)
		large.ID, large.Expiration = "larger", nil
		value(s.Actions().Create(ctx, large))(t)
		pending(t, s, name(0), 0, base, "before", "large", "after", "larger")
		pending(t, s, name(0), before, base, "large", "after", "larger")
		pending(t, s, name(0), seq, base, "after", "larger")
		pending(t, s, name(0), 0, at(time.Hour), "before", "after", "larger")
		pending(t, s, name(1), 0, base, "before", "after")
		for _, id := range append([]string{name(many), name(2*many - 2), name(178), name(180), name(182)}, odd...) {
			pending(t, s, id, 0, base, "large", "larger")
		}
		for _, id := range []string{"", "a", "b", "zzz", "quoted", `",`, name(3), name(2 * many), name(2)[:10], name(2) + "0", `"`, "[", "<ä"} {
			pending(t, s, id, 0, base)
		}
		first := value(s.Actions().Pending(ctx, name(0), 0, base, 2))(t)
		equal(t, actionIDs(first), []string{"before", "large"})
		equal(t, first[1].Agents[:100], large.Agents[:100])
		equal(t, value(s.Actions().For(ctx, "large", "zz"))(t), []fleet.Action{first[1].For(slices.Index(large.Agents, "zz"))})
	})

	t.Run("CancelledAt is the time of the first cancellation", func(t *testing.T) {
		s := cfg.open(t)
		value(s.Actions().Create(ctx, upgradeAction("act", "a")))(t)
		must(t, s.Actions().Cancel(ctx, "act", at(time.Second)))
		must(t, s.Actions().Cancel(ctx, "act", at(time.Hour)))
		want := upgradeAction("act", "a")
		want.CancelledAt = atPtr(time.Second)
		equal(t, value(s.Actions().Get(ctx, "act"))(t), want)
	})

	t.Run("List returns the newest first and After continues from any Seq", func(t *testing.T) {
		s := cfg.open(t)
		var want []string
		var seqs []int64
		for i := range 10 {
			id := fmt.Sprintf("act-%d", i)
			a := upgradeAction(id, "a")
			a.CreatedAt = at(time.Duration(i) * time.Second)
			seqs = append(seqs, value(s.Actions().Create(ctx, a))(t))
			want = append(want, id)
		}
		if !slices.IsSorted(seqs) || seqs[0] < 1 {
			t.Fatalf("Seq does not increase: %v", seqs)
		}
		cfg.eventually(t, func() error {
			last, err := s.Actions().LastSeq(ctx)
			if err != nil || last != seqs[9] {
				return fmt.Errorf("LastSeq is %d, want %d: %w", last, seqs[9], err)
			}
			return nil
		})
		equal(t, actionIDs(value(s.Actions().After(ctx, seqs[3], 4))(t)), want[4:8])
		equal(t, actionIDs(value(s.Actions().After(ctx, seqs[9], 4))(t)), []string{})
		slices.Reverse(want)
		cfg.eventually(t, func() error {
			var got []string
			for offset := 0; offset < 12; offset += 3 {
				page, err := s.Actions().List(ctx, store.ActionQuery{Offset: offset, Limit: 3})
				if err != nil {
					return err
				}
				got = append(got, actionIDs(page)...)
			}
			return differs(got, want)
		})
	})

	t.Run("List selects by type and time before it makes pages", func(t *testing.T) {
		s := cfg.open(t)
		for i := range 12 {
			a := upgradeAction(fmt.Sprintf("act-%02d", i), "a")
			a.CreatedAt = at(time.Duration(i) * time.Minute)
			if i%2 == 0 {
				a.Type = agentapi.ActionCancel
			}
			value(s.Actions().Create(ctx, a))(t)
		}
		list := func(q store.ActionQuery, want ...string) {
			t.Helper()
			cfg.eventually(t, func() error {
				list, err := s.Actions().List(ctx, q)
				if err != nil {
					return err
				}
				return differs(actionIDs(list), want)
			})
		}
		except := []agentapi.ActionType{agentapi.ActionCancel}
		list(store.ActionQuery{Except: except, Limit: 4}, "act-11", "act-09", "act-07", "act-05")
		list(store.ActionQuery{Except: except, Offset: 4, Limit: 4}, "act-03", "act-01")
		list(store.ActionQuery{Except: append(except, agentapi.ActionUpgrade), Limit: 4}, []string{}...)
		list(store.ActionQuery{From: atPtr(9 * time.Minute), Limit: 9}, "act-11", "act-10", "act-09")
		list(store.ActionQuery{Except: except, From: atPtr(3 * time.Minute), Until: atPtr(7 * time.Minute), Limit: 2}, "act-07", "act-05")
		list(store.ActionQuery{Until: atPtr(time.Minute), Offset: 1, Limit: 2}, "act-00")
	})

	t.Run("an action for 10,000 agents is pending for each and keeps their order", func(t *testing.T) {
		s := cfg.open(t)
		a := upgradeAction("act")
		for i := range 10_000 {
			a.Agents = append(a.Agents, fmt.Sprintf("agent-%05d", i*7919%10_000))
		}
		value(s.Actions().Create(ctx, a))(t)
		for _, id := range []string{"agent-00000", "agent-05000", "agent-09999"} {
			pending(t, s, id, 0, base, "act")
		}
		pending(t, s, "agent-10000", 0, base)
		if got := value(s.Actions().Get(ctx, "act"))(t); !slices.Equal(got.Agents, a.Agents) {
			t.Fatal("the agents have another order, which determines their start times")
		}
	})

	t.Run("readers see the actions of concurrent writers in two processes once and in order", func(t *testing.T) {
		stores := cfg.openTwice(t)
		h := history{
			stores: stores,
			write: func(ctx context.Context, s store.Store, id string) (int64, error) {
				return s.Actions().Create(ctx, upgradeAction(id, "a"))
			},
			read: func(ctx context.Context, s store.Store, after int64) (entries []entry, err error) {
				list, err := s.Actions().After(ctx, after, 3)
				for _, a := range list {
					entries = append(entries, entry{a.Seq, a.ID})
				}
				return entries, err
			},
			last: func(ctx context.Context, s store.Store) (int64, error) { return s.Actions().LastSeq(ctx) },
		}
		h.check(t, cfg)
	})
}

// entry is one action or event that a reader read.
type entry struct {
	Seq int64
	ID  string
}

// history checks that readers see what concurrent writers append, once and in order.
type history struct {
	stores []store.Store
	// write returns the Seq of what it appended, or 0 if the method does not return it.
	write func(ctx context.Context, s store.Store, id string) (int64, error)
	read  func(ctx context.Context, s store.Store, after int64) ([]entry, error)
	last  func(ctx context.Context, s store.Store) (int64, error)
}

const (
	historyWriters = 8
	historyEach    = 25
	historyReaders = 4
	// historyTimeout bounds the test, in addition to the lag of the store.
	historyTimeout = 20 * time.Second
)

func (h history) check(t *testing.T, cfg Config) {
	ctx, cancel := context.WithTimeout(t.Context(), historyTimeout+cfg.ListLag)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	written := map[string]int64{}
	for w := range historyWriters {
		s := h.stores[w%len(h.stores)]
		all.Go(func() {
			for i := range historyEach {
				id := fmt.Sprintf("w%d-%d", w, i)
				before, err := h.last(ctx, s)
				if err != nil {
					t.Errorf("last: %v", err)
					return
				}
				seq, err := h.write(ctx, s, id)
				if err != nil {
					t.Errorf("write %s: %v", id, err)
					return
				}
				if seq != 0 && seq <= before {
					t.Errorf("%s got Seq %d although %d had been seen", id, seq, before)
				}
				mu.Lock()
				written[id] = seq
				mu.Unlock()
			}
		})
	}
	histories := make([][]entry, historyReaders)
	for r := range historyReaders {
		s := h.stores[r%len(h.stores)]
		all.Go(func() {
			for len(histories[r]) < historyWriters*historyEach {
				var after int64
				if n := len(histories[r]); n > 0 {
					after = histories[r][n-1].Seq
				}
				more, err := h.read(ctx, s, after)
				if err != nil {
					t.Errorf("reader %d has read %d of %d: %v", r, len(histories[r]), historyWriters*historyEach, err)
					return
				}
				histories[r] = append(histories[r], more...)
				if len(more) == 0 {
					time.Sleep(time.Millisecond) // leave the processor to the writers
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	for r, history := range histories {
		ids := map[string]bool{}
		for i, e := range history {
			if i > 0 && e.Seq <= history[i-1].Seq {
				t.Errorf("reader %d read %v after %v", r, e, history[i-1])
			}
			if seq := written[e.ID]; seq != 0 && seq != e.Seq {
				t.Errorf("reader %d read %s with Seq %d, its writer got %d", r, e.ID, e.Seq, seq)
			}
			ids[e.ID] = true
		}
		if len(ids) != len(written) || len(history) != len(written) {
			t.Errorf("reader %d read %d entries, %d different, of %d", r, len(history), len(ids), len(written))
		}
		if !slices.Equal(history, histories[0]) {
			t.Errorf("readers %d and 0 read different orders", r)
		}
	}
}
