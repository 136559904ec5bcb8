package admin_test

import (
	"net/http"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
)

// groupOf returns a plan that upgrades agents one after the other, as one and two.
func groupOf(version string, agents ...string) map[string]any {
	versions, members := map[string]any{}, []any{}
	for i, id := range agents {
		name := []string{"one", "two"}[i]
		versions[name] = version
		members = append(members, map[string]any{
			"name": name, "soak": "1m", "plan": map[string]any{"name": "to " + version, "select": map[string]any{"agents": []string{id}}, "strategy": map[string]any{"kind": "all_at_once"}},
		})
	}
	return map[string]any{
		"plan": map[string]any{"name": "spring", "failure_policy": "rollback_all", "desired_versions": versions, "members": members}, "why": "OPS-1",
	}
}

// tryGroups is the part of TestResponsesMatchTheSpecification about groups. It leaves the
// policy of the agents free.
func tryGroups(t *testing.T, s *apptest.Server, do func(call *adminapi.Call, body any, params ...string) map[string]any, agents ...string) {
	t.Helper()
	item := func(v map[string]any) map[string]any { return v["item"].(map[string]any) }
	draft := item(do(adminapi.CreateGroup.Call, groupOf("2.0.0", agents...)))["id"].(string)
	do(adminapi.DeleteGroup.Call, nil, draft)
	id := item(do(adminapi.CreateGroup.Call, groupOf("2.0.0", agents...)))["id"].(string)
	hash := item(do(adminapi.PreviewGroup.Call, nil, id))["hash"].(string)
	do(adminapi.GetGroup.Call, nil, id)
	do(adminapi.StartGroup.Call, map[string]any{"hash": hash, "why": "OPS-1"}, id)
	apptest.Eventually(t, "the first member to begin", func() string {
		g := answered[adminapi.GroupStatusItem](t, s.Admin(http.MethodGet, "/api/v1/rollout-groups/"+id, nil)).Item
		if g.Members[0].State != fleet.MemberRunning {
			return string(g.Members[0].State)
		}
		return ""
	})
	do(adminapi.GetGroup.Call, nil, id)
	do(adminapi.ListGroups.Call, nil)
	do(adminapi.PauseGroup.Call, map[string]any{"now": true, "why": "lunch"}, id)
	do(adminapi.SkipGroupMember.Call, map[string]any{"member": "two", "why": "not today"}, id)
	do(adminapi.ResumeGroup.Call, map[string]any{"why": "back"}, id)
	do(adminapi.CancelGroup.Call, nil, id)
	ended := func(state fleet.GroupState) {
		t.Helper()
		apptest.Eventually(t, "the group to be "+string(state), func() string {
			g, err := s.Store.RolloutGroups().Get(t.Context(), id)
			if err != nil {
				return err.Error()
			}
			if g.State != state {
				return string(g.State)
			}
			return ""
		})
	}
	ended(fleet.GroupCancelled)
	do(adminapi.RollbackGroup.Call, map[string]any{"why": "no good"}, id)
	ended(fleet.GroupRolledBack)
	do(adminapi.GetGroup.Call, nil, id)
}

func TestGroupsAreRefusedWithTheirRules(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	plan := func(change func(map[string]any)) map[string]any {
		body := groupOf("2.0.0", "a", "b")
		change(body["plan"].(map[string]any))
		return body
	}
	for _, c := range []struct {
		change  func(map[string]any)
		code    string
		message string
	}{
		{func(p map[string]any) { delete(p, "failure_policy") }, "group_failure_policy_missing", "[request body.plan.failure_policy]: is missing, and has no default: say what happens to the members that are done when one fails: partial_ok, rollback_all or manual"},
		{func(p map[string]any) { p["desired_versions"] = map[string]any{"one": "2.0.0"} }, "group_order_incomplete", "[request body.plan.desired_versions]: has no version for members[1], two: give one"},
		{func(p map[string]any) { p["component_order"] = []any{} }, "", `[request body.plan.component_order]: is not a known field`},
	} {
		got := s.Admin(http.MethodPost, "/api/v1/rollout-groups", plan(c.change))
		e := apptest.Decode[adminapi.Error](t, apptest.Answer{Status: http.StatusOK, Body: got.Body})
		code := ""
		if e.Code != nil {
			code = *e.Code
		}
		if got.Status != http.StatusBadRequest || code != c.code || c.code != "" && e.Message != c.message {
			t.Errorf("answered %d %s, want %s %s", got.Status, got.Body, c.code, c.message)
		}
	}
	if got := s.Admin(http.MethodGet, "/api/v1/rollout-groups/none", nil); got.Status != http.StatusNotFound {
		t.Errorf("an unknown group is answered %d %s", got.Status, got.Body)
	}
}
