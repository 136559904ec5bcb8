package admin_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
)

// stir lets agents check in, so that lists by last_checkin change.
func stir(t *testing.T, s *apptest.Server, ids []string, at time.Time) {
	t.Helper()
	var touches []fleet.Touch
	for _, id := range ids {
		touches = append(touches, fleet.Touch{AgentID: id, At: at.Add(time.Duration(rand.IntN(1_000)) * time.Millisecond), Status: "online"})
	}
	if err := s.Store.Agents().Touch(t.Context(), touches); err != nil {
		t.Fatal(err)
	}
}

func many(t *testing.T, s *apptest.Server, n int) (ids []string) {
	t.Helper()
	for i := range n {
		id := fmt.Sprintf("agent-%03d", i)
		err := s.Store.Agents().Create(t.Context(), fleet.Agent{
			ID: id, Type: "PERMANENT", Active: true, PolicyID: "default", AccessKeyID: "key-" + id, EnrolledAt: time.Now().Add(-time.Hour), Version: "1.0.0", Tags: []string{},
		})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	stir(t, s, ids, time.Now().Add(-time.Minute))
	return ids
}

// While a client reads the pages, half of the agents check in between any two of them.
func TestPointInTimeListsEveryAgentOnceWhileItsFieldChanges(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	ids := many(t, s, 120)
	for _, order := range []string{"sortField=last_checkin&sortOrder=desc", "sortField=last_checkin&sortOrder=asc", "sortField=last_checkin&sortOrder=asc&kuery=agent.version:1.0.0"} {
		for _, byPage := range []bool{false, true} {
			query := "/api/fleet/agents?perPage=20&pitKeepAlive=1m&" + order
			page := answered[adminapi.AgentList](t, s.Admin("GET", query+"&openPit=true", nil))
			var got []string
			for n := 2; len(page.Items) > 0 && len(got) <= len(ids); n++ {
				for _, a := range page.Items {
					got = append(got, a.Id)
				}
				if page.Total != len(ids) {
					t.Errorf("the total is %d, want %d", page.Total, len(ids))
				}
				stir(t, s, ids[len(ids)/2:], time.Now())
				next := fmt.Sprintf("&page=%d", n)
				if !byPage {
					next = "&searchAfter=" + url.QueryEscape(*page.NextSearchAfter)
				}
				page = answered[adminapi.AgentList](t, s.Admin("GET", query+"&pitId="+*page.Pit+next, nil))
			}
			if slices.Sort(got); !slices.Equal(got, ids) {
				t.Errorf("%s, by page %t: %d agents are listed, of which %d are different", order, byPage, len(got), len(slices.Compact(got)))
			}
		}
	}
}

func TestPointsInTimeAreBounded(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	many(t, s, 3)
	open := func(kuery string) int {
		return s.Admin("GET", "/api/fleet/agents?perPage=2&openPit=true&pitKeepAlive=1h&sortField=last_checkin&kuery="+url.QueryEscape(kuery), nil).Status
	}
	for i := range 8 {
		if status := open(fmt.Sprintf("agent.version:1.0.%d", i)); status != 200 {
			t.Fatalf("the point in time %d is answered %d", i, status)
		}
	}
	if status := open("agent.version:2.0.0"); status != 429 {
		t.Errorf("one more is answered %d, want 429", status)
	}
	if got := s.Admin("GET", "/api/fleet/agents?openPit=true&pitKeepAlive=1h", nil); got.Status != 200 {
		t.Errorf("one by enrolled_at, which needs nothing, is answered %d", got.Status)
	}

	list, _, err := s.Store.AgentListings().List(t.Context(), 0, 0)
	if err != nil || len(list) != 8 || time.Until(list[0].Until) > 16*time.Minute {
		t.Fatalf("%d listings are kept, until %v: %v", len(list), list[0].Until, err)
	}
	page := answered[adminapi.AgentList](t, s.Admin("GET", "/api/fleet/agents?openPit=true&pitKeepAlive=1h", nil))
	// Its first page was never read, so nothing is kept for this list.
	got := s.Admin("GET", "/api/fleet/agents?perPage=2&pitKeepAlive=1h&sortField=last_checkin&page=2&pitId="+*page.Pit, nil)
	if got.Status != 404 {
		t.Errorf("a later page of a list that has expired is answered %d %s", got.Status, got.Body)
	}
	for _, o := range list[:2] {
		o.Until = time.Now().Add(-time.Second)
		if _, err := s.Store.AgentListings().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if status := open("agent.version:2.0.0"); status != 200 {
		t.Errorf("after two have expired, another is answered %d", status)
	}
	if list, _, err := s.Store.AgentListings().List(t.Context(), 0, 0); err != nil || len(list) != 7 {
		t.Errorf("%d listings are kept, want 7: %v", len(list), err)
	}
}
