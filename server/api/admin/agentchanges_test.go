package admin_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
)

func newest(t *testing.T, s *apptest.Server) adminapi.ActionStatus {
	t.Helper()
	return answered[adminapi.ActionStatusList](t, s.Admin("GET", "/api/fleet/agents/action_status?perPage=1", nil)).Items[0]
}

func lab(t *testing.T, s *apptest.Server) {
	t.Helper()
	if got := s.Admin("POST", "/api/fleet/agent_policies", map[string]any{"id": "lab", "name": "lab", "namespace": "default"}); got.Status != http.StatusOK {
		t.Fatalf("create a policy: %d %s", got.Status, got.Body)
	}
}

func TestReassignedAgentGetsItsPolicy(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	lab(t, s)
	a, b, gone := s.Enroll("web-1", "1.0.0"), s.Enroll("web-2", "1.0.0"), s.Enroll("web-3", "1.0.0")
	one := "/api/fleet/agents/" + a.ID + "/reassign"
	if got := s.Admin("POST", one, map[string]any{"policy_id": "lab"}); got.Status != http.StatusOK || string(got.Body) != "{}" {
		t.Fatalf("reassign: %d %s", got.Status, got.Body)
	}
	if doc := s.Fleet(a.ID); doc.PolicyID != "lab" || doc.PolicyRev != 0 {
		t.Errorf("the agent has revision %d of policy %s", doc.PolicyRev, doc.PolicyID)
	}
	if got := newest(t, s); got.Type != "POLICY_REASSIGN" || got.NewPolicyId == nil || *got.NewPolicyId != "lab" || got.NbAgentsActionCreated != 1 {
		t.Errorf("the action is %+v", got)
	}
	const bulk = "/api/fleet/agents/bulk_reassign"
	ids := []string{a.ID, b.ID, gone.ID, "nobody"}
	if got := answered[adminapi.BulkActionResponse](t, s.Admin("POST", bulk, map[string]any{"policy_id": "lab", "agents": ids, "dryRun": true})); *got.Count != 3 {
		t.Errorf("a dry run counts %d agents, want 3", *got.Count)
	}
	if doc := s.Fleet(b.ID); doc.PolicyID != "default" {
		t.Fatal("the dry run changed an agent")
	}
	s.Admin("DELETE", "/api/fleet/agents/"+gone.ID, nil)
	id := *answered[adminapi.BulkActionResponse](t, s.Admin("POST", bulk, map[string]any{"policy_id": "lab", "agents": ids})).ActionId
	got := newest(t, s)
	if got.ActionId != id || got.NbAgentsActioned != 4 || got.NbAgentsActionCreated != 1 || got.NbAgentsFailed != 3 {
		t.Errorf("the action is %+v", got)
	}
	has := answered[adminapi.AgentsOfActions](t, s.Admin("POST", "/api/fleet/agents/actions", map[string]any{"actionIds": []string{id, "none"}})).Items
	if !slices.Equal(has, []string{b.ID}) {
		t.Errorf("the action has the agents %v, want %s", has, b.ID)
	}
}

func TestTagsAndMetadataOfAnAgentAreSet(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	a, b := s.Enroll("web-1", "1.0.0"), s.Enroll("web-2", "1.0.0")
	put := func(body any) adminapi.Agent {
		t.Helper()
		return answered[adminapi.AgentItem](t, s.Admin("PUT", "/api/fleet/agents/"+a.ID, body)).Item
	}
	if got := put(map[string]any{"tags": []string{"x", "y", "x"}}); !slices.Equal(got.Tags, []string{"x", "y"}) {
		t.Errorf("the tags are %v", got.Tags)
	}
	put(map[string]any{"user_provided_metadata": map[string]any{"rack": map[string]any{"row": 1}}})
	got := put(map[string]any{"user_provided_metadata": map[string]any{"rack": map[string]any{"unit": 2}}})
	if rack, _ := (*got.UserProvidedMetadata)["rack"].(map[string]any); len(rack) != 2 || len(got.Tags) != 2 {
		t.Errorf("the agent has the metadata %v and the tags %v", got.UserProvidedMetadata, got.Tags)
	}

	const bulk = "/api/fleet/agents/bulk_update_agent_tags"
	id := *answered[adminapi.BulkActionResponse](t, s.Admin("POST", bulk, map[string]any{
		"agents": []string{a.ID, b.ID, "nobody"}, "tagsToAdd": []string{"z", "x"}, "tagsToRemove": []string{"y"},
	})).ActionId
	for _, agent := range []*apptest.Agent{a, b} {
		doc := s.Fleet(agent.ID)
		slices.Sort(doc.Tags)
		if !slices.Equal(doc.Tags, []string{"x", "z"}) {
			t.Errorf("%s has the tags %v", agent.Host, doc.Tags)
		}
	}
	done := newest(t, s)
	if done.ActionId != id || done.Type != "UPDATE_TAGS" || done.Status != adminapi.FAILED || done.NbAgentsAck != 2 || done.NbAgentsFailed != 1 {
		t.Errorf("the action is %+v", done)
	}
	if got := a.MustCheckin(nil); len(got.Actions) != 0 {
		t.Errorf("the agent was sent %+v", got.Actions)
	}
	if got := answered[adminapi.BulkActionResponse](t, s.Admin("POST", bulk, map[string]any{"agents": "tags: z", "tagsToRemove": []string{"z"}, "dryRun": true})); *got.Count != 2 {
		t.Errorf("a dry run counts %d agents", *got.Count)
	}
}

func TestDeletedAgentIsUnenrolled(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	a := s.Enroll("web-1", "1.0.0")
	for range 2 { // the second changes nothing
		if got := s.Admin("DELETE", "/api/fleet/agents/"+a.ID, nil); got.Status != http.StatusOK || string(got.Body) != `{"action":"deleted"}` {
			t.Fatalf("delete: %d %s", got.Status, got.Body)
		}
	}
	if got := answered[adminapi.AgentItem](t, s.Admin("GET", "/api/fleet/agents/"+a.ID, nil)).Item; got.Active || got.Status != "unenrolled" {
		t.Errorf("the agent is %+v", got)
	}
	if got := s.Agents("POST", a.Path("checkin"), a.Key, `{}`); got.Status != http.StatusUnauthorized && got.Status != http.StatusForbidden {
		t.Errorf("its key still works: %d", got.Status)
	}
}

func TestActionsOfOneAgentAreCreated(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	lab(t, s)
	for _, c := range []struct {
		body string
		does func(*fleet.Agent) bool
	}{
		{`{"action":{"type":"SETTINGS","data":{"log_level":null},"ack_data":{"a":1}}}`, func(*fleet.Agent) bool { return true }},
		{`{"action":{"type":"POLICY_REASSIGN","data":{"policy_id":"lab"}}}`, func(a *fleet.Agent) bool { return a.PolicyID == "lab" }},
		{`{"action":{"type":"UPGRADE","data":{"version":"1.1.0"}}}`, (*fleet.Agent).Upgrading},
		{`{"action":{"type":"UNENROLL"}}`, func(a *fleet.Agent) bool { return a.UnenrollmentStartedAt != nil }},
	} {
		a := s.Enroll("web", "1.0.0")
		got := answered[adminapi.CreatedActionItem](t, s.Admin("POST", "/api/fleet/agents/"+a.ID+"/actions", c.body)).Item
		doc := s.Fleet(a.ID)
		if got.Id == "" || got.Type == "" || !slices.Equal(got.Agents, []string{a.ID}) || !c.does(&doc) {
			t.Errorf("%s made %+v of %+v", c.body, got, doc)
		}
		if sent := a.MustCheckin(nil).Actions; len(sent) != 1 || sent[0].ID != got.Id || string(sent[0].Type) != got.Type {
			t.Errorf("%s: the agent was sent %+v", c.body, sent)
		}
		refused(t, c.body, s.Admin("POST", "/api/fleet/agents/nobody/actions", c.body), 404, "Agent nobody not found")
	}
}

func TestPrivilegesAndMigrationsNeedAnAgentThatKnowsThem(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	old, able := s.Enroll("old", "9.1.0"), s.Enroll("able", "9.3.0")
	const to = `{"uri":"https://elsewhere:8220","enrollment_token":"t"}`
	at := func(a *apptest.Agent, call string) string { return "/api/fleet/agents/" + a.ID + "/" + call }
	for _, call := range []struct{ path, body, kind string }{
		{at(able, "privilege_level_change"), `{"user_info":{"username":"elastic"}}`, "PRIVILEGE_LEVEL_CHANGE"},
		{at(able, "migrate"), to, "MIGRATE"},
	} {
		id := answered[adminapi.ActionCreated](t, s.Admin("POST", call.path, call.body)).ActionId
		if got := newest(t, s); got.ActionId != id || got.Type != call.kind || got.NbAgentsFailed != 0 {
			t.Errorf("%s made %+v", call.path, got)
		}
	}
	ids := []string{old.ID, able.ID, "nobody"}
	for path, body := range map[string]map[string]any{
		"/api/fleet/agents/bulk_privilege_level_change": {"agents": ids},
		"/api/fleet/agents/bulk_migrate":                {"agents": ids, "uri": "https://elsewhere:8220", "enrollment_token": "t"},
	} {
		answered[adminapi.ActionCreated](t, s.Admin("POST", path, body))
		if got := newest(t, s); got.NbAgentsActioned != 3 || got.NbAgentsActionCreated != 1 || got.NbAgentsFailed != 2 {
			t.Errorf("%s made %+v", path, got)
		}
	}
	unprivileged := s.Agents("POST", "/api/fleet/agents/enroll", s.Token,
		`{"type":"PERMANENT","metadata":{"local":{"elastic":{"agent":{"version":"9.3.0","unprivileged":true}}}}}`)
	var out struct{ Item struct{ ID string } }
	decode(t, unprivileged, &out)
	got := s.Admin("POST", "/api/fleet/agents/"+out.Item.ID+"/privilege_level_change", nil)
	if want := `{"message":"Agent ` + out.Item.ID + ` is already unprivileged"}`; got.Status != http.StatusOK || string(got.Body) != want {
		t.Errorf("an unprivileged agent: %d %s, want %s", got.Status, got.Body, want)
	}
}

func TestAgentsOfManagedPoliciesStayUnlessForced(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	lab(t, s)
	a := s.Enroll("held", "1.0.0")
	s.Admin("POST", "/api/fleet/agents/bulk_reassign", map[string]any{"policy_id": "lab", "agents": []string{a.ID}})
	s.Admin("PUT", "/api/fleet/agent_policies/lab", `{"name":"lab","namespace":"default","is_managed":true}`)
	for path, more := range map[string]map[string]any{
		"bulk_upgrade":           {"version": "1.1.0"},
		"bulk_unenroll":          {},
		"bulk_update_agent_tags": {"tagsToAdd": []string{"x"}},
		"bulk_reassign":          {"policy_id": "default"},
	} {
		before := s.Fleet(a.ID)
		more["agents"] = []string{a.ID, s.Enroll("free", "1.0.0").ID}
		if path == "bulk_reassign" { // free has the policy already
			refused(t, path, s.Admin("POST", "/api/fleet/agents/"+path, more), http.StatusBadRequest, "No agents to reassign, already assigned or hosted agents")
			continue
		}
		answered[adminapi.BulkActionResponse](t, s.Admin("POST", "/api/fleet/agents/"+path, more))
		got := newest(t, s)
		if len(got.LatestErrors) != 1 || got.LatestErrors[0].AgentId != a.ID || got.NbAgentsActionCreated != 1 {
			t.Errorf("%s made %+v", path, got)
		}
		if doc := s.Fleet(a.ID); doc.Revision != before.Revision {
			t.Errorf("%s changed the agent to %+v", path, doc)
		}
	}
	answered[adminapi.BulkActionResponse](t, s.Admin("POST", "/api/fleet/agents/bulk_upgrade", map[string]any{"version": "1.1.0", "agents": []string{a.ID}, "force": true}))
	if doc := s.Fleet(a.ID); !doc.Upgrading() {
		t.Errorf("with force: %+v", doc)
	}
	s.Admin("POST", "/api/fleet/agents/"+a.ID+"/unenroll", `{"force":true,"revoke":true}`)
	if doc := s.Fleet(a.ID); doc.Active {
		t.Errorf("unenrolled by force: %+v", doc)
	}
}
