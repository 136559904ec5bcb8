package action_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// history gives the store 3 policies with 7 revisions each, and 20 actions among them, of
// which every fourth is a CANCEL. Some have equal times. It returns the ids of what is
// listed.
func (w *world) history() []string {
	w.t.Helper()
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // spread, not secret
	var listed []string
	at := w.now.Add(-time.Hour)
	for i := range 20 {
		at = at.Add(time.Duration(r.IntN(3)) * time.Second)
		a := fleet.Action{ID: fmt.Sprint("act-", i), Type: agentapi.ActionSettings, Actioned: 1, CreatedAt: at}
		if i%4 == 0 {
			a.Type = agentapi.ActionCancel
		} else {
			listed = append(listed, a.ID)
		}
		_, err := w.store.Actions().Create(w.t.Context(), a)
		w.must(err)
	}
	for i := range 3 {
		p := fleet.Policy{ID: fmt.Sprint("policy-", i), Name: fmt.Sprint(i), Namespace: "default"}
		at := w.now.Add(-time.Hour)
		for range 7 {
			at = at.Add(time.Duration(r.IntN(8)) * time.Second)
			p.NextRevision("ann", at)
			if p.PolicyRev > 1 {
				listed = append(listed, fmt.Sprintf("%s:%d", p.ID, p.PolicyRev))
			}
		}
		w.must(w.store.Policies().Create(w.t.Context(), p))
	}
	return listed
}

func ids(list []action.Status) []string {
	out := []string{}
	for _, s := range list {
		out = append(out, s.ID)
	}
	return out
}

func sameEntries(t *testing.T, what string, got, want []string) {
	t.Helper()
	if g, w := slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)); !slices.Equal(g, w) {
		t.Errorf("%s: the entries are\n%v, want\n%v", what, g, w)
	}
}

func TestRevisionsOfPoliciesAreListedAmongActions(t *testing.T) {
	w := newWorld(t)
	want := w.history()
	all, err := w.service.ListWithPolicies(t.Context(), store.ActionQuery{Limit: 100}, 5)
	w.must(err)
	sameEntries(t, "one page", ids(all), want)
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if a.CreatedAt.Before(b.CreatedAt) || a.CreatedAt.Equal(b.CreatedAt) && a.Type == agentapi.ActionPolicyChange && b.Type != agentapi.ActionPolicyChange {
			t.Errorf("%s of %s comes before %s of %s", a.ID, a.CreatedAt, b.ID, b.CreatedAt)
		}
	}
	for size := 1; size <= len(all)+1; size++ {
		for offset := 0; offset <= len(all); offset += size {
			page, err := w.service.ListWithPolicies(t.Context(), store.ActionQuery{Offset: offset, Limit: size}, 5)
			w.must(err)
			if rest := ids(all)[offset:]; !slices.Equal(ids(page), rest[:min(size, len(rest))]) {
				t.Errorf("%d entries from %d on are\n%v, want a part of\n%v", size, offset, ids(page), rest)
			}
		}
	}
	from, until := all[20].CreatedAt, all[4].CreatedAt
	page, err := w.service.ListWithPolicies(t.Context(), store.ActionQuery{From: &from, Until: &until, Limit: 100}, 5)
	w.must(err)
	var within []string
	for _, s := range all {
		if !s.CreatedAt.Before(from) && !s.CreatedAt.After(until) {
			within = append(within, s.ID)
		}
	}
	sameEntries(t, "between two times", ids(page), within)
}

func TestRevisionCountsTheAgentsThatHaveIt(t *testing.T) {
	w := newWorld(t, "behind", "current", "none", "left", "elsewhere")
	p := fleet.Policy{ID: "web", Name: "Web", Namespace: "default"}
	for i := range 3 {
		p.NextRevision("ann", w.now.Add(time.Duration(i)*time.Minute))
	}
	w.must(w.store.Policies().Create(t.Context(), p))
	for id, has := range map[string]int64{"behind": 2, "current": 3, "none": 0, "left": 3, "elsewhere": 0} {
		_, err := store.UpdateAgent(t.Context(), w.store.Agents(), id, func(a *fleet.Agent) bool {
			a.PolicyID, a.PolicyRev, a.Active = "web", has, id != "left"
			if id == "elsewhere" {
				a.PolicyID = "db"
			}
			return true
		})
		w.must(err)
	}
	counts := func() string {
		t.Helper()
		list, err := w.service.ListWithPolicies(t.Context(), store.ActionQuery{Limit: 10}, 5)
		w.must(err)
		text := ""
		for _, s := range list {
			text += fmt.Sprintf("%s %d of %d %s %s; ", s.ID, s.Done(), s.Actioned, s.State, s.Outcome())
		}
		return text
	}
	if got := counts(); got != "web:3 1 of 3 IN_PROGRESS IN_PROGRESS; web:2 2 of 3 IN_PROGRESS IN_PROGRESS; " {
		t.Errorf("the revisions are %s", got)
	}
	for _, id := range []string{"behind", "none"} {
		_, err := store.UpdateAgent(t.Context(), w.store.Agents(), id, func(a *fleet.Agent) bool { a.PolicyRev = 3; return true })
		w.must(err)
	}
	if got := counts(); got != "web:3 3 of 3 COMPLETE COMPLETE; web:2 3 of 3 COMPLETE COMPLETE; " {
		t.Errorf("once all agents have it, the revisions are %s", got)
	}
}
