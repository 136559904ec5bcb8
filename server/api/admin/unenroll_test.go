package admin_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const bulkUnenroll = "/api/fleet/agents/bulk_unenroll"

func TestBulkUnenrollAsksAgents(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	a, b, away := s.Enroll("web-01", "1.0.0"), s.Enroll("web-02", "1.0.0"), s.Enroll("web-03", "1.0.0")
	a.MustCheckin(nil)
	b.MustCheckin(nil)
	past := time.Now().Add(-time.Hour)
	if err := s.Store.Agents().Touch(t.Context(), []fleet.Touch{{AgentID: away.ID, At: past, Status: "online"}}); err != nil {
		t.Fatal(err)
	}
	ids := []string{a.ID, b.ID, away.ID, "gone"}
	preview := apptest.Decode[adminapi.UnenrollPreview](t, s.Admin("POST", "/api/v1/unenroll_preview", map[string]any{"agents": ids}))
	if preview.Will != 3 || preview.Wont != 1 || preview.Items[0].Reason != nil || *preview.Items[3].Reason != "Agent gone not found" || preview.Items[3].Status != "" ||
		preview.Items[2].Status != "offline" || !strings.Contains(*preview.Items[2].Reason, "it unenrols if it returns within 30 days") {
		t.Errorf("the preview is %+v", preview)
	}
	few := apptest.Decode[adminapi.UnenrollPreview](t, s.Admin("POST", "/api/v1/unenroll_preview", map[string]any{"agents": ids, "max_items": 1}))
	if c := *few.Causes; few.Will != 3 || len(few.Items) != 1 || len(c) != 2 || c[0].Code != "not_found" || c[0].Will || c[1].Code != "offline" || !c[1].Will || c[1].Count != 1 || c[1].Sample[0] != "web-03" {
		t.Errorf("the preview with one item is %+v", few)
	}
	dry := s.Admin("POST", bulkUnenroll, map[string]any{"agents": ids, "dryRun": true})
	if got := apptest.Decode[adminapi.BulkActionResponse](t, dry); got.ActionId != nil || got.Count == nil || *got.Count != 3 {
		t.Errorf("the dry run answers %s", dry.Body)
	}
	if seen(t, s, a).Status != fleet.StatusOnline {
		t.Fatal("a preview or a dry run unenrolled the agent")
	}

	// The request as Kibana's clients send it.
	created := apptest.Decode[adminapi.BulkActionResponse](t, s.Admin("POST", bulkUnenroll, map[string]any{
		"agents": ids, "revoke": false, "force": false, "batchSize": 100, "includeInactive": false,
	}))
	if got := seen(t, s, a); got.Status != fleet.StatusUnenrolling || got.UnenrollmentStartedAt == nil || !got.Active {
		t.Errorf("the API shows %+v", got)
	}
	again := apptest.Decode[adminapi.UnenrollPreview](t, s.Admin("POST", "/api/v1/unenroll_preview", map[string]any{"agents": "status: unenrolling"}))
	if again.Will != 2 || !strings.Contains(*again.Items[0].Reason, "is asked again") {
		t.Errorf("unenrolling agents are previewed as %+v", again)
	}
	given := a.MustCheckin(nil).Actions
	if len(given) != 1 || given[0].Type != agentapi.ActionUnenroll || given[0].ID != *created.ActionId {
		t.Fatalf("delivered is %+v", given)
	}
	a.Ack("", *created.ActionId)
	if got := seen(t, s, a); got.Status != fleet.StatusUnenrolled || got.Active || *got.UnenrolledReason != "unenrolled" {
		t.Errorf("after the ack the API shows %+v", got)
	}
	if _, err := a.Checkin(t.Context(), s, nil); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("its next check-in ends with %v", err)
	}
	item := apptest.Decode[adminapi.ActionStatusList](t, s.Admin("GET", "/api/fleet/agents/action_status", nil)).Items[0]
	if item.Type != "UNENROLL" || item.Status != adminapi.INPROGRESS || item.NbAgentsActioned != 4 || item.NbAgentsActionCreated != 3 || item.NbAgentsAck != 1 || item.NbAgentsFailed != 1 || *item.CreatedBy != "first key" {
		t.Errorf("the action is %+v", item)
	}
}

func TestRevokedAgentIsUnenrolledAtOnce(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	a, b := s.Enroll("web-01", "1.0.0"), s.Enroll("web-02", "1.0.0")
	a.MustCheckin(nil)
	created := apptest.Decode[adminapi.BulkActionResponse](t, s.Admin("POST", bulkUnenroll, map[string]any{"agents": "*", "revoke": true}))
	for _, agent := range []*apptest.Agent{a, b} {
		if got := seen(t, s, agent); got.Status != fleet.StatusUnenrolled || *got.UnenrolledReason != "revoked" {
			t.Errorf("the API shows %+v", got)
		}
		if _, err := agent.Checkin(t.Context(), s, nil); err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("its check-in ends with %v", err)
		}
	}
	item := apptest.Decode[adminapi.ActionStatusList](t, s.Admin("GET", "/api/fleet/agents/action_status", nil)).Items[0]
	if item.ActionId != *created.ActionId || item.Type != "FORCE_UNENROLL" || item.Status != adminapi.COMPLETE || item.NbAgentsAck != 2 {
		t.Errorf("the record is %+v", item)
	}
	events, err := s.Store.Events().After(t.Context(), 0, 1_000)
	if err != nil || !slices.ContainsFunc(events, func(e fleet.Event) bool {
		return e.Type == fleet.EventAgentUnenrolled && e.Subject == a.ID && e.Actor == "first key" && strings.Contains(string(e.Data), `"revoked":true`)
	}) {
		t.Errorf("no event names the actor: %v", err)
	}
	// Unenrolling again succeeds.
	for _, body := range []any{nil, "null", `{"revoke":true}`} {
		if got := s.Admin("POST", "/api/fleet/agents/"+a.ID+"/unenroll", body); got.Status != http.StatusOK || strings.TrimSpace(string(got.Body)) != "{}" {
			t.Errorf("%v once more answers %d %s", body, got.Status, got.Body)
		}
	}
}

func TestRevocationEndsAParkedPoll(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t) // with long polls
	a := s.Enroll("web-01", "1.0.0")
	ended := make(chan error, 1)
	go func() {
		_, err := a.Checkin(t.Context(), s, nil)
		ended <- err
	}()
	s.Parked(a)
	if got := s.Admin("POST", "/api/fleet/agents/"+a.ID+"/unenroll", `{"revoke":true}`); got.Status != http.StatusOK {
		t.Fatalf("unenroll: %s", got.Body)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the parked poll ends with %v", err)
		}
	case <-time.After(apptest.WaitLimit):
		t.Fatal("the poll is still parked")
	}
}

func TestUnenrollOfAnAgentInARolloutNeedsForce(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	a := s.Enroll("web-01", "1.0.0")
	a.MustCheckin(nil)
	id := made[adminapi.Rollout](t, s.Admin("POST", "/api/v1/rollouts", slow("1.1.0"))).ID
	hash := made[adminapi.RolloutPreview](t, s.Admin("POST", "/api/v1/rollouts/"+id+"/preview", nil)).Hash
	if got := s.Admin("POST", "/api/v1/rollouts/"+id+"/start", map[string]string{"hash": hash}); got.Status != http.StatusOK {
		t.Fatalf("start: %s", got.Body)
	}
	path := "/api/fleet/agents/" + a.ID + "/unenroll"
	refused(t, "asked", s.Admin("POST", path, nil), 409, "belongs to the active rollout")
	refused(t, "revoked", s.Admin("POST", path, `{"revoke":true}`), 409, "or unenrol it with force")
	preview := apptest.Decode[adminapi.UnenrollPreview](t, s.Admin("POST", "/api/v1/unenroll_preview", map[string]any{"agents": "*", "force": true}))
	if preview.Will != 1 {
		t.Errorf("with force the preview is %+v", preview)
	}
	if got := s.Admin("POST", path, `{"revoke":true,"force":true}`); got.Status != http.StatusOK {
		t.Errorf("with force it answers %d %s", got.Status, got.Body)
	}
	if got := seen(t, s, a); got.Status != fleet.StatusUnenrolled {
		t.Errorf("the API shows %+v", got)
	}
}

func TestOrdersThatTakeManyAgentsAwayNeedAReason(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick, func(o *app.Options) { o.Config.Admin.RemovalsPerHour = 2 })
	agents := make([]*apptest.Agent, 4)
	for i := range agents {
		agents[i] = s.Enroll(fmt.Sprintf("web-%d", i), "1.0.0")
		agents[i].MustCheckin(nil)
	}
	if got := s.Admin("POST", "/api/fleet/agent_policies", map[string]any{"id": "lab", "name": "lab", "namespace": "default"}); got.Status != http.StatusOK {
		t.Fatalf("the policy: %s", got.Body)
	}
	const preview, reassign = "/api/v1/unenroll_preview", "/api/fleet/agents/bulk_reassign"
	body := func(more map[string]any) map[string]any {
		b := map[string]any{"agents": "*"}
		maps.Copy(b, more)
		return b
	}
	got := apptest.Decode[adminapi.UnenrollPreview](t, s.Admin("POST", preview, body(nil)))
	if got.Will != 4 || got.Refused == nil || !strings.Contains(*got.Refused, "4 agents, and at most 2") {
		t.Errorf("the preview is %+v", got)
	}
	if got := apptest.Decode[adminapi.UnenrollPreview](t, s.Admin("POST", preview, body(map[string]any{"override_limit": true}))); got.Refused != nil {
		t.Errorf("the preview of the override is %+v", got)
	}
	dry := apptest.Decode[adminapi.BulkActionResponse](t, s.Admin("POST", reassign, body(map[string]any{"policy_id": "lab", "dryRun": true})))
	if *dry.Count != 4 || dry.Warnings == nil || !strings.Contains((*dry.Warnings)[0], "at most 2") {
		t.Errorf("the dry run answers %+v", dry)
	}
	for path, more := range map[string]map[string]any{bulkUnenroll: {"revoke": true}, reassign: {"policy_id": "lab"}} {
		refused(t, path, s.Admin("POST", path, body(more)), http.StatusConflict, "set override_limit and say why (--override-limit --why REASON)")
		more["override_limit"] = true
		refused(t, path, s.Admin("POST", path, body(more)), http.StatusBadRequest, "[request body.why]: is missing")
	}
	if got := s.Admin("POST", bulkUnenroll, body(nil)); !strings.Contains(string(got.Body), `"code":"removal_limit"`) {
		t.Errorf("the refusal is %s", got.Body)
	}
	// Small numbers, and single agents in any number, are ordered as in Kibana.
	for path, b := range map[string]any{
		reassign:                   map[string]any{"agents": []string{agents[0].ID, agents[1].ID}, "policy_id": "lab"},
		agents[2].Path("reassign"): map[string]any{"policy_id": "lab"}, agents[3].Path("reassign"): map[string]any{"policy_id": "lab"},
	} {
		if got := s.Admin("POST", path, b); got.Status != http.StatusOK {
			t.Errorf("%s answers %d %s", path, got.Status, got.Body)
		}
	}
	// The parameter why of every call is a reason, too.
	if got := s.Admin("POST", bulkUnenroll+"?why=the+site+is+closed", body(map[string]any{"override_limit": true})); got.Status != http.StatusOK {
		t.Errorf("with a reason it answers %d %s", got.Status, got.Body)
	}
}
