package action

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
)

// For any actions in any batches, pending returns what the store would return, or that it
// does not know.
func TestRecentActionsEqualThoseOfTheStore(t *testing.T) {
	names := []string{"a", "b", "c"}
	others := make([]string, namedMax)
	for i := range others {
		others[i] = strconv.Itoa(i)
	}
	start := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		var all []fleet.Action
		var r recentActions
		last := int64(0) // of all numbers; some have no action
		for range rapid.IntRange(0, 40).Draw(t, "reads") {
			for len(r.list) > 100 { // as if the bound were reached
				r.drop()
			}
			var shown []fleet.Action
			for range rapid.IntRange(0, 20).Draw(t, "numbers") {
				last++
				if rapid.IntRange(0, 3).Draw(t, "no action") == 0 {
					continue
				}
				a := fleet.Action{ID: fleet.NewID(), Seq: last, Agents: rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 3, rapid.ID).Draw(t, "agents")}
				if rapid.IntRange(0, 3).Draw(t, "for many") == 0 {
					a.Agents = append(a.Agents, others...)
				}
				if rapid.Bool().Draw(t, "expires") {
					at := start.Add(time.Duration(rapid.IntRange(-2, 2).Draw(t, "in")) * time.Hour)
					a.Expiration = &at
				}
				shown = append(shown, a)
			}
			all = append(all, shown...)
			r.add(shown)
		}
		for range 20 {
			after := rapid.Int64Range(0, last).Draw(t, "seen")
			limit := rapid.IntRange(1, 5).Draw(t, "limit")
			name := rapid.SampledFrom(names).Draw(t, "agent")
			var want []string
			for _, a := range all {
				if a.Seq > after && slices.Contains(a.Agents, name) && (a.Expiration == nil || a.Expiration.After(start)) && len(want) < limit {
					want = append(want, a.ID)
				}
			}
			got, upTo, known := r.pending(name, after, start, limit)
			if !known {
				if len(want) == 0 {
					r.empty(name, after, last, start)
				}
				continue
			}
			if !slices.Equal(got, want) {
				t.Fatalf("above %d there are %v for %s, want %v", after, got, name, want)
			}
			if again, _, known := r.pending(name, upTo, start, limit); len(got) == 0 && (len(again) > 0 || !known || upTo < after) {
				t.Fatalf("above %d there is nothing for %s up to %d, but %v behind it", after, name, upTo, again)
			}
		}
	})
}

// Woken agents cause no query of the store as long as their actions are in memory.
func TestOldestRecentActionsAreDropped(t *testing.T) {
	var r recentActions
	now := time.Now()
	const last = 2 * recentActionsMax
	for seq := int64(1); seq <= last; seq++ {
		r.add([]fleet.Action{{ID: "x", Seq: seq, Agents: []string{"a"}}})
	}
	pending := func(after int64, now time.Time) (n int, upTo int64, known bool) {
		ids, upTo, known := r.pending("a", after, now, 10*recentActionsMax)
		return len(ids), upTo, known
	}
	if n, upTo, known := pending(last-recentActionsMax, now); n != recentActionsMax || upTo != last || !known {
		t.Errorf("of the newest %d are in memory up to %d, known %t", n, upTo, known)
	}
	if _, upTo, known := pending(last-recentActionsMax-1, now); known || upTo != last-recentActionsMax-1 {
		t.Errorf("older ones count as known up to %d", upTo)
	}
	// A range in which the store had no action is not read again.
	r.empty("a", 7, last, now)
	if n, upTo, known := pending(8, now); n > 0 || !known || upTo != last {
		t.Errorf("it is asked again above %d: %d, known %t", upTo, n, known)
	}
	if _, _, known := pending(6, now); known {
		t.Error("an agent that was put back is not looked for")
	}
	if _, _, known := pending(8, now.Add(-time.Second)); known {
		t.Error("what had expired later counts for earlier")
	}
	everybody := make([]string, recentAgentsMax+1)
	for i := range everybody {
		everybody[i] = strconv.Itoa(i)
	}
	r.add([]fleet.Action{{ID: "all", Seq: last + 1, Agents: everybody}})
	if r.agents > recentAgentsMax {
		t.Errorf("%d agents of %d actions are remembered", r.agents, len(r.list))
	}
}
