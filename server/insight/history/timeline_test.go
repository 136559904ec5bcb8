package history

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

var now = time.Date(2026, time.March, 3, 10, 0, 0, 0, time.UTC)

func record(id, component string, ago time.Duration) fleet.HistoryRecord {
	return fleet.HistoryRecord{ID: id, Component: component, At: now.Add(-ago)}
}

func ids(list []fleet.HistoryRecord) []string {
	out := []string{}
	for _, r := range list {
		out = append(out, r.ID)
	}
	return out
}

func TestTimelineTellsOnceWhatTwoSourcesKnow(t *testing.T) {
	underway := []fleet.HistoryRecord{record("running", "", time.Hour)}
	over := []fleet.HistoryRecord{record("both", "", 2*time.Hour), record("enrolled", "", 9*time.Hour)}
	// A verdict that came first, and of which the document knows that it goes on.
	records := []fleet.HistoryRecord{record("running", "", time.Hour), record("both", "", 2*time.Hour), record("web", "web", 3*time.Hour)}
	changes := []fleet.HistoryRecord{record("tags", "", time.Minute)}
	got := merge(Query{Limit: 9}, store.HistoryPosition{}, underway, over, records, changes)
	if want := []string{"running", "tags", "both", "web", "enrolled"}; !slices.Equal(ids(got.Entries), want) || got.Next != "" {
		t.Errorf("the timeline is %v, next %q, want %v", ids(got.Entries), got.Next, want)
	}
	web, agent := "web", ""
	if got := merge(Query{Limit: 9, Component: &web}, store.HistoryPosition{}, underway, over, records[2:], nil); !slices.Equal(ids(got.Entries), []string{"web"}) {
		t.Errorf("of the component it is %v", ids(got.Entries))
	}
	if got := merge(Query{Limit: 9, Component: &agent}, store.HistoryPosition{}, underway, over, records[:2], changes); slices.Contains(ids(got.Entries), "web") {
		t.Errorf("of the agent it is %v", ids(got.Entries))
	}
}

func TestPagesOfATimelineJoinAlsoAtEqualTimes(t *testing.T) {
	over := []fleet.HistoryRecord{record("b", "", time.Hour), record("e", "", 2*time.Hour)}
	records := []fleet.HistoryRecord{record("d", "", time.Hour), record("a", "", time.Hour)}
	changes := []fleet.HistoryRecord{record("c", "", time.Hour)}
	var got []string
	for before, pages := "", 0; pages < 9; pages++ {
		p, err := parsePosition(before)
		if err != nil {
			t.Fatal(err)
		}
		left := func(list []fleet.HistoryRecord) []fleet.HistoryRecord {
			return slices.DeleteFunc(slices.Clone(list), func(r fleet.HistoryRecord) bool { return !isBefore(&r, p) })
		}
		page := merge(Query{Limit: 2}, p, nil, over, left(records), left(changes))
		got = append(got, ids(page.Entries)...)
		if before = page.Next; before == "" {
			break
		}
	}
	if want := []string{"d", "c", "b", "a", "e"}; !slices.Equal(got, want) {
		t.Errorf("the pages have %v, want %v", got, want)
	}
	for _, wrong := range []string{"x", "2026-03-03T10:00:00Z", "2026-03-03T10:00:00Z~", "~id"} {
		if _, err := parsePosition(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

func TestUnenrolledAgentHasNothingUnderWay(t *testing.T) {
	a := fleet.Agent{ID: "a", Version: "1.0.0", EnrolledAt: now.Add(-time.Hour), UnenrolledAt: &now, UnenrolledReason: "retired"}
	a.BeginUpgrade("act", "1.1.0", now)
	underway, over := ofDocument(&a, now)
	if len(underway) != 0 || len(over) != 3 || over[0].Text == "" || over[0].State != fleet.ProgressNone || over[2].Text != "The agent was unenrolled: retired." {
		t.Errorf("under way is %v, over %+v", underway, over)
	}
}
