package admin_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// crowd returns a server with agents of several policies, versions and statuses.
func crowd(t *testing.T) (*apptest.Server, []string) {
	t.Helper()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	var ids []string
	for i := range 9 {
		a := s.Enroll(fmt.Sprintf("web-%d", i*5%9), []string{"1.0.0", "1.1.0"}[i%2])
		ids = append(ids, a.ID)
		_, err := store.UpdateAgent(t.Context(), s.Store.Agents(), a.ID, func(a *fleet.Agent) bool {
			a.PolicyID, a.Tags = []string{"default", "lab"}[i%2], []string{fmt.Sprint("tag-", i)}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// Two actions with an error each, and one agent that has left.
	for range 2 {
		answered[adminapi.ActionCreated](t, s.Admin("POST", "/api/fleet/agents/bulk_upgrade", map[string]any{"version": "1.1.0", "agents": []string{ids[0], "nobody", "none"}, "force": true}))
	}
	s.Admin("DELETE", "/api/fleet/agents/"+ids[8], nil)
	return s, ids
}

// Every parameter of these lists changes the answer of some request.
func TestNoParameterIsIgnored(t *testing.T) {
	t.Parallel()
	s, _ := crowd(t)
	list := answered[adminapi.AgentList](t, s.Admin("GET", "/api/fleet/agents?perPage=3&openPit=true&pitKeepAlive=1m", nil))
	after := url.QueryEscape(*list.NextSearchAfter)
	time.Sleep(2 * time.Millisecond) // stored times have milliseconds: it must not enrol in that of the point in time
	later := s.Enroll("later", "1.0.0")
	tomorrow := time.Now().AddDate(0, 0, 1).UTC().Format("2006-01-02")
	// Two queries that differ in one parameter, whose answers must differ.
	pairs := map[string]map[string][2]string{
		"/api/fleet/agents": {
			"page": {"perPage=2", "perPage=2&page=2"}, "perPage": {"", "perPage=2"}, "kuery": {"", "kuery=policy_id:lab"},
			"showInactive": {"", "showInactive=true"}, "showUpgradeable": {"", "showUpgradeable=true"}, "getStatusSummary": {"", "getStatusSummary=true"},
			"sortField": {"", "sortField=local_metadata.host.hostname.keyword"}, "sortOrder": {"", "sortOrder=asc"},
			"searchAfter": {"", "searchAfter=" + after}, "openPit": {"pitKeepAlive=1m", "pitKeepAlive=1m&openPit=true"},
			"pitId":        {"pitKeepAlive=1m", "pitKeepAlive=1m&pitId=" + *list.Pit},
			"pitKeepAlive": {"pitKeepAlive=1m", "pitKeepAlive=x"}, "withMetrics": {"", "withMetrics=x"}, "showAgentless": {"", "showAgentless=x"},
		},
		"/api/fleet/agents/tags":  {"kuery": {"", "kuery=policy_id:lab"}, "showInactive": {"", "showInactive=true"}},
		"/api/fleet/agent_status": {"policyId": {"", "policyId=lab"}, "policyIds": {"", "policyIds=lab"}, "kuery": {"", "kuery=policy_id:lab"}},
		"/api/fleet/agents/action_status": {
			"page": {"perPage=1", "perPage=1&page=1"}, "perPage": {"", "perPage=1"}, "date": {"", "date=" + tomorrow},
			"latest": {"", "latest=1"}, "errorSize": {"", "errorSize=1"},
			"type": {"", "type=UNENROLL"}, "createdBy": {"", "createdBy=nobody"}, "outcome": {"", "outcome=EXPIRED"},
		},
	}
	for path, params := range pairs {
		var names []string
		for _, p := range callAt("GET", path).Params {
			if p.InQuery() {
				names = append(names, p.Name)
			}
		}
		slices.Sort(names)
		if tried := slices.Sorted(maps.Keys(params)); !slices.Equal(names, tried) {
			t.Errorf("%s takes %v, the test tries %v", path, names, tried)
		}
		for name, queries := range params {
			a, b := s.Admin("GET", path+"?"+queries[0], nil), s.Admin("GET", path+"?"+queries[1], nil)
			if a.Status != http.StatusOK || bytes.Equal(a.Body, b.Body) {
				t.Errorf("%s ignores %s: %q and %q have the answer %d %s", path, name, queries[0], queries[1], a.Status, a.Body)
			}
		}
	}
	if got := answered[adminapi.AgentList](t, s.Admin("GET", "/api/fleet/agents?pitKeepAlive=1m&pitId="+*list.Pit, nil)); got.Total != list.Total || *got.Pit != *list.Pit {
		t.Errorf("the point in time has %d agents, want %d without %s", got.Total, list.Total, later.ID)
	}
}

// A misspelt key must not change what a call does.
func TestNoKeyOfABodyIsIgnored(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for _, k := range objectKinds {
		s.Admin("POST", "/api/fleet/"+k.path, `{"id":"default",`+k.fields+`}`)
	}
	n := 0
	for _, call := range adminapi.Calls() {
		if call.In() == reflect.TypeFor[adminapi.None]() || call.BodyType != "" || call == adminapi.LogIn.Call {
			continue
		}
		path := call.Path
		if strings.HasPrefix(path, "/api/v1/fleets") && !strings.HasSuffix(path, "/resume") || path == "/convert" {
			continue // see TestFleetIsRefusedWithEveryPath; a newer Kubernetes may add keys to what is converted
		}
		n++
		refused(t, call.ID, s.Admin(call.Method, parameter.ReplaceAllString(path, "default"), `{"misspelt":1}`), http.StatusBadRequest, "[request body.misspelt]: ")
	}
	if n < 40 {
		t.Errorf("only %d calls have a body", n)
	}
}

// As clients page: they send nextSearchAfter until a page is empty.
func TestSearchAfterListsEveryAgentOnce(t *testing.T) {
	t.Parallel()
	s, ids := crowd(t)
	for _, sort := range []string{
		"", "sortField=last_checkin", "sortField=agent.version&sortOrder=asc", "sortField=local_metadata.host.hostname.keyword", "sortField=upgraded_at&sortOrder=asc",
	} {
		var got []string
		for after := ""; len(got) <= len(ids); {
			page := answered[adminapi.AgentList](t, s.Admin("GET", "/api/fleet/agents?showInactive=true&perPage=2&"+sort+after, nil))
			if page.Total != len(ids) {
				t.Fatalf("%q: the total is %d, want %d", sort, page.Total, len(ids))
			}
			if len(page.Items) == 0 {
				break
			}
			for _, a := range page.Items {
				got = append(got, a.Id)
			}
			after = "&searchAfter=" + url.QueryEscape(*page.NextSearchAfter)
		}
		slices.Sort(got)
		if want := slices.Sorted(slices.Values(ids)); !slices.Equal(got, want) {
			t.Errorf("%q lists %v, want %v", sort, got, want)
		}
	}
}
