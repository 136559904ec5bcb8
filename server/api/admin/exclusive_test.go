package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
)

// atOnce sends n requests at once and returns how many were answered 200.
func atOnce(s *apptest.Server, n int, method, path string, body func(i int) string) (accepted int) {
	var all sync.WaitGroup
	status := make([]int, n)
	for i := range n {
		all.Go(func() { status[i] = s.Admin(method, path, body(i)).Status })
	}
	all.Wait()
	for _, code := range status {
		if code == http.StatusOK {
			accepted++
		}
	}
	return accepted
}

func TestConcurrentRequestsLeaveOneDefaultAndOneOfAName(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for _, kind := range []struct{ path, fields string }{
		{"agent_policies", `"namespace":"default"`},
		{"fleet_server_hosts", `"host_urls":["https://fleet.example.com:8220"]`},
		{"agent_download_sources", `"host":"https://packages.example.com/"`},
		{"outputs", `"type":"elasticsearch","hosts":["https://es.example.com"],"is_default_monitoring":true`},
	} {
		path := "/api/fleet/" + kind.path
		if n := atOnce(s, 8, "POST", path, func(i int) string {
			return fmt.Sprintf(`{"id":"new-%d","name":"default %d","is_default":true,%s}`, i, i, kind.fields)
		}); n != 8 {
			t.Errorf("%s: %d of 8 were made", kind.path, n)
		}
		items := func() (list []struct {
			ID, Name   string
			Default    bool `json:"is_default"`
			Monitoring bool `json:"is_default_monitoring"`
		},
		) {
			var page struct{ Items json.RawMessage }
			if err := json.Unmarshal(s.Admin("GET", path, nil).Body, &page); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(page.Items, &list); err != nil {
				t.Fatal(err)
			}
			return list
		}
		defaults, monitoring := 0, 0
		for _, v := range items() {
			if v.Default {
				defaults++
			}
			if v.Monitoring {
				monitoring++
			}
		}
		if defaults != 1 || monitoring > 1 {
			t.Errorf("%s: %d are the default, %d that of monitoring", kind.path, defaults, monitoring)
		}
	}
	for _, kind := range []struct{ path, body string }{
		{"agent_policies", `{"name":"Edge","namespace":"default"}`},
		{"agent_download_sources", `{"name":"Edge","host":"https://packages.example.com/"}`},
		{"enrollment_api_keys", `{"name":"Edge","policy_id":"default"}`},
	} {
		if n := atOnce(s, 10, "POST", "/api/fleet/"+kind.path, func(int) string { return kind.body }); n != 1 {
			t.Errorf("%s: %d have the same name", kind.path, n)
		}
	}
}

func TestAnotherDefaultPolicyLetsTheEarlierOneGo(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	policy := func(id string) (item struct {
		Default bool `json:"is_default"`
	},
	) {
		var got struct{ Item json.RawMessage }
		if err := json.Unmarshal(s.Admin("GET", "/api/fleet/agent_policies/"+id, nil).Body, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(got.Item, &item); err != nil {
			t.Fatal(err)
		}
		return item
	}
	for _, id := range []string{"one", "two"} {
		if got := s.Admin("POST", "/api/fleet/agent_policies", fmt.Sprintf(`{"id":%q,"name":%q,"namespace":"default","is_default":true}`, id, id)); got.Status != 200 {
			t.Fatalf("%d %s", got.Status, got.Body)
		}
	}
	if policy("one").Default || policy(fleet.DefaultPolicyID).Default || !policy("two").Default {
		t.Error("there are several defaults")
	}
	if got := s.Admin("POST", "/api/fleet/agent_policies/delete", `{"agentPolicyId":"one"}`); got.Status != 200 {
		t.Errorf("the earlier default cannot be deleted: %d %s", got.Status, got.Body)
	}
	for _, id := range []string{"two", fleet.DefaultPolicyID} {
		if got := s.Admin("POST", "/api/fleet/agent_policies/delete", fmt.Sprintf(`{"agentPolicyId":%q}`, id)); got.Status != 400 {
			t.Errorf("%s was deleted: %d %s", id, got.Status, got.Body)
		}
	}
	if got := s.Admin("PUT", "/api/fleet/agent_policies/two", `{"name":"two","namespace":"default","is_default":false}`); got.Status != 400 {
		t.Errorf("no policy is the default: %d %s", got.Status, got.Body)
	}
}
