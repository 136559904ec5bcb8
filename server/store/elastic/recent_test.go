package elastic

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
)

// Whatever readers show, in pieces, with gaps and again: what is remembered is what
// a search would find, or nothing is.
func TestWhatIsRememberedOfNewActionsIsWhatASearchWouldFind(t *testing.T) {
	names := []string{"a", "b", "c"}
	start := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		var all []fleet.Action
		last := int64(0) // of all numbers; some have no action
		for range rapid.IntRange(0, 400).Draw(t, "numbers") {
			last++
			if rapid.IntRange(0, 3).Draw(t, "action") == 0 {
				continue
			}
			a := fleet.Action{ID: fleet.NewID(), Seq: last, Agents: rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 3, rapid.ID).Draw(t, "agents")}
			if rapid.Bool().Draw(t, "expires") {
				at := start.Add(time.Duration(rapid.IntRange(-2, 2).Draw(t, "in")) * time.Hour)
				a.Expiration = &at
			}
			all = append(all, a)
		}
		shown := func(after, upTo int64) (out []fleet.Action) {
			for _, a := range all {
				if a.Seq > after && a.Seq <= upTo {
					out = append(out, a)
				}
			}
			return out
		}
		var r recentActions
		for range rapid.IntRange(0, 6).Draw(t, "reads") {
			after := rapid.Int64Range(0, last).Draw(t, "after")
			if rapid.Bool().Draw(t, "goes on") {
				after = r.to
			}
			upTo := rapid.Int64Range(after, max(after, last)).Draw(t, "up to")
			r.note(after, upTo, shown(after, upTo))
		}
		for range 20 {
			after := rapid.Int64Range(0, last).Draw(t, "seen")
			upTo := rapid.Int64Range(after, last).Draw(t, "visible")
			limit := rapid.IntRange(1, 5).Draw(t, "limit")
			name := rapid.SampledFrom(names).Draw(t, "agent")
			var want []string
			for _, a := range shown(after, upTo) {
				if slices.Contains(a.Agents, name) && (a.Expiration == nil || a.Expiration.After(start)) && len(want) < limit {
					want = append(want, a.ID)
				}
			}
			if got, ok := r.pending(name, after, upTo, start, limit); ok && !slices.Equal(got, want) {
				t.Fatalf("above %d up to %d there are %v for %s, want %v", after, upTo, got, name, want)
			}
		}
	})
}

// An agent that is woken searches for nothing, however many come at once.
func TestTheNewestActionsAreRemembered(t *testing.T) {
	var r recentActions
	for seq := int64(1); seq <= 2*recentActionsMax; seq++ {
		r.note(seq-1, seq, []fleet.Action{{ID: "x", Seq: seq, Agents: []string{"a"}}})
	}
	const last = 2 * recentActionsMax
	if ids, ok := r.pending("a", last-recentActionsMax, last, time.Now(), 10*recentActionsMax); !ok || len(ids) != recentActionsMax {
		t.Errorf("of the newest %d are remembered, %t", len(ids), ok)
	}
	if _, ok := r.pending("a", last-recentActionsMax-1, last, time.Now(), 1); ok {
		t.Error("older ones are taken for known")
	}
	everybody := make([]string, recentAgentsMax+1)
	for i := range everybody {
		everybody[i] = strconv.Itoa(i)
	}
	r.note(last, last+1, []fleet.Action{{ID: "all", Seq: last + 1, Agents: everybody}})
	if r.agents > recentAgentsMax {
		t.Errorf("%d agents of %d actions are remembered", r.agents, len(r.list))
	}
}
