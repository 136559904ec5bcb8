package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
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
	// pending wants these actions for an agent.
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

	t.Run("an action comes back as it went in, with the number it was given", func(t *testing.T) {
		s := cfg.open(t)
		want := upgradeAction("act", "b", "a")
		want.Actioned, want.StartTime, want.RolloutSeconds = 3, atPtr(time.Minute), 600
		want.Expiration = atPtr(time.Hour)
		bare := fleet.Action{ID: "bare", Type: agentapi.ActionUnenroll}
		for _, want := range []fleet.Action{want, bare} {
			seq := value(s.Actions().Create(ctx, want))(t)
			got := value(s.Actions().Get(ctx, want.ID))(t)
			equal(t, got, want)
			if got.Seq != seq || seq <= 0 {
				t.Fatalf("Seq is %d, Create gave %d", got.Seq, seq)
			}
			asked := append([]string{"stranger"}, want.Agents...)
			wantEach := []fleet.Action{want.For(-1)}
			for place := range want.Agents {
				wantEach = append(wantEach, want.For(place))
			}
			equal(t, value(s.Actions().For(ctx, want.ID, asked...))(t), wantEach)
			equal(t, value(s.Actions().For(ctx, want.ID, asked[0]))(t), wantEach[:1])
		}
		cfg.eventually(t, func() error {
			list, err := s.Actions().After(ctx, 0, 10)
			if err != nil {
				return err
			}
			return differs(list, []fleet.Action{want, bare})
		})
	})

	t.Run("an id that is taken is refused, and delivers nothing", func(t *testing.T) {
		s := cfg.open(t)
		value(s.Actions().Create(ctx, upgradeAction("act", "a")))(t)
		_, err := s.Actions().Create(ctx, upgradeAction("act", "b"))
		wantKind(t, err, fleet.Conflict)
		pending(t, s, "a", 0, base, "act")
		pending(t, s, "b", 0, base)
		equal(t, value(s.Actions().Get(ctx, "act"))(t), upgradeAction("act", "a"))
	})

	t.Run("a missing action is not found", func(t *testing.T) {
		s := cfg.open(t)
		_, err := s.Actions().For(ctx, "none", "a")
		wantKind(t, err, fleet.NotFound)
		_, err = s.Actions().Get(ctx, "none")
		wantKind(t, err, fleet.NotFound)
		wantKind(t, s.Actions().Cancel(ctx, "none", base), fleet.NotFound)
		if n := value(s.Actions().LastSeq(ctx))(t); n != 0 {
			t.Fatalf("the last number is %d without actions", n)
		}
		if list := value(s.Actions().After(ctx, 0, 10))(t); len(list) != 0 {
			t.Fatalf("there are actions: %v", list)
		}
	})

	t.Run("what a caller does with its value changes nothing in the store", func(t *testing.T) {
		s := cfg.open(t)
		whole := func() fleet.Action {
			a := upgradeAction("act", "a", "b")
			a.StartTime, a.Expiration = atPtr(time.Minute), atPtr(time.Hour)
			return a
		}
		spoil := func(a fleet.Action) {
			a.Agents[0], a.Data[2] = "spoilt", 'X'
			*a.StartTime, *a.Expiration = base, base
			if a.CancelledAt != nil {
				*a.CancelledAt = base
			}
		}
		mine := whole()
		value(s.Actions().Create(ctx, mine))(t)
		spoil(mine)
		for range 2 {
			got := value(s.Actions().Get(ctx, "act"))(t)
			equal(t, got, whole())
			spoil(got)
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
				defer spoil(list[0])
				return differs(list[0], want)
			})
		}
	})

	t.Run("pending is what is an agent's own, newer and not expired, oldest first", func(t *testing.T) {
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

	t.Run("an action for very many is pending for each of them, among others, and for nobody else", func(t *testing.T) {
		s := cfg.open(t)
		const many = 12_000
		name := func(i int) string { return fmt.Sprintf("agent-%05d", i) }
		large := upgradeAction("large")
		for i := range many {
			large.Agents = append(large.Agents, name((i*7919)%many*2)) // every other, in no order
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

	t.Run("a cancelled action says since when, and the first time counts", func(t *testing.T) {
		s := cfg.open(t)
		value(s.Actions().Create(ctx, upgradeAction("act", "a")))(t)
		must(t, s.Actions().Cancel(ctx, "act", at(time.Second)))
		must(t, s.Actions().Cancel(ctx, "act", at(time.Hour)))
		want := upgradeAction("act", "a")
		want.CancelledAt = atPtr(time.Second)
		equal(t, value(s.Actions().Get(ctx, "act"))(t), want)
	})

	t.Run("they are listed newest first and read on from any number", func(t *testing.T) {
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
			t.Fatalf("numbers do not grow: %v", seqs)
		}
		cfg.eventually(t, func() error {
			last, err := s.Actions().LastSeq(ctx)
			if err != nil || last != seqs[9] {
				return fmt.Errorf("the last number is %d, want %d: %w", last, seqs[9], err)
			}
			return nil
		})
		equal(t, actionIDs(value(s.Actions().After(ctx, seqs[3], 4))(t)), want[4:8])
		equal(t, actionIDs(value(s.Actions().After(ctx, seqs[9], 4))(t)), []string{})
		slices.Reverse(want)
		cfg.eventually(t, func() error {
			var got []string
			for offset := 0; offset < 12; offset += 3 {
				page, err := s.Actions().List(ctx, offset, 3)
				if err != nil {
					return err
				}
				got = append(got, actionIDs(page)...)
			}
			return differs(got, want)
		})
	})

	t.Run("an action for 10,000 agents reaches each", func(t *testing.T) {
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
			t.Fatal("the agents are not in their order, which decides who begins when")
		}
	})

	t.Run("readers that follow eight writers in two processes see every action once and in order", func(t *testing.T) {
		stores := cfg.openTwice(t)
		h := history{
			stores: stores,
			write: func(ctx context.Context, s store.Store, id string) (int64, error) {
				return s.Actions().Create(ctx, upgradeAction(id, "a"))
			},
			read: func(ctx context.Context, s store.Store, after int64) (seen []seen, err error) {
				list, err := s.Actions().After(ctx, after, 3)
				for _, a := range list {
					seen = append(seen, sighting(a.Seq, a.ID))
				}
				return seen, err
			},
			last: func(ctx context.Context, s store.Store) (int64, error) { return s.Actions().LastSeq(ctx) },
		}
		h.check(t, cfg)
	})
}

// seen is one action or event as a reader saw it.
type seen struct {
	Seq int64
	ID  string
}

func sighting(seq int64, id string) seen { return seen{seq, id} }

// history has writers append while readers follow, and judges what they saw.
type history struct {
	stores []store.Store
	// write returns the number given, or 0 if the call does not tell.
	write func(ctx context.Context, s store.Store, id string) (int64, error)
	read  func(ctx context.Context, s store.Store, after int64) ([]seen, error)
	last  func(ctx context.Context, s store.Store) (int64, error)
}

const (
	historyWriters = 8
	historyEach    = 25
	historyReaders = 4
	// historyPatience is how long a reader waits for the last entry after the
	// writers are done, beside the lag of the store.
	historyPatience = 20 * time.Second
)

func (h history) check(t *testing.T, cfg Config) {
	ctx, cancel := context.WithTimeout(t.Context(), historyPatience+cfg.ListLag)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	given := map[string]int64{}
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
					t.Errorf("%s was given %d when %d had been seen", id, seq, before)
				}
				mu.Lock()
				given[id] = seq
				mu.Unlock()
			}
		})
	}
	histories := make([][]seen, historyReaders)
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
					t.Errorf("reader %d has seen %d of %d: %v", r, len(histories[r]), historyWriters*historyEach, err)
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
		for i, entry := range history {
			if i > 0 && entry.Seq <= history[i-1].Seq {
				t.Errorf("reader %d saw %v after %v", r, entry, history[i-1])
			}
			if seq := given[entry.ID]; seq != 0 && seq != entry.Seq {
				t.Errorf("reader %d saw %s as %d, its writer was told %d", r, entry.ID, entry.Seq, seq)
			}
			ids[entry.ID] = true
		}
		if len(ids) != len(given) || len(history) != len(given) {
			t.Errorf("reader %d saw %d entries, %d different, of %d", r, len(history), len(ids), len(given))
		}
		if !slices.Equal(history, histories[0]) {
			t.Errorf("readers %d and 0 saw different orders", r)
		}
	}
}
