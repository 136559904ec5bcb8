package admin_test

import (
	"fmt"
	"testing"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/app/apptest"
)

func TestDiagnosticsOfManyAgentsAreRequestedWithOneAction(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	a, b, gone := s.Enroll("web-01", "1.0.0"), s.Enroll("web-02", "1.0.0"), s.Enroll("web-03", "1.0.0")
	s.Admin("POST", "/api/fleet/agents/"+gone.ID+"/unenroll", `{"revoke":true}`)
	const path = "/api/fleet/agents/bulk_request_diagnostics"
	if got := s.Admin("POST", path, `{"agents":"*","dryRun":true}`); string(got.Body) != `{"count":2}` {
		t.Errorf("the dry run answered %d %s", got.Status, got.Body)
	}
	list := fmt.Sprintf(`{"agents":[%q,%q],"batchSize":1,"additional_metrics":["CPU"]}`, a.ID, gone.ID)
	created := apptest.Decode[adminapi.BulkActionResponse](t, s.Admin("POST", path, list))
	if created.ActionId == nil {
		t.Fatal("the answer has no action")
	}
	state := apptest.Decode[adminapi.ActionStatusList](t, s.Admin("GET", "/api/fleet/agents/action_status", nil)).Items[0]
	if state.ActionId != *created.ActionId || state.Type != "REQUEST_DIAGNOSTICS" || state.NbAgentsActioned != 2 || state.NbAgentsActionCreated != 1 || state.NbAgentsFailed != 1 {
		t.Errorf("the state of the action is %+v", state)
	}
	if got := a.MustCheckin(nil).Actions; len(got) != 1 || got[0].ID != *created.ActionId {
		t.Errorf("the agent got %+v", got)
	}
	if got := b.MustCheckin(nil).Actions; len(got) != 0 {
		t.Errorf("the other agent got %+v", got)
	}

	// An agent that cannot send them says so.
	if got := a.Ack("no space left on device", *created.ActionId); got.Status != 200 {
		t.Fatalf("the acknowledgement answered %d %s", got.Status, got.Body)
	}
	failed := apptest.Decode[adminapi.UploadList](t, s.Admin("GET", "/api/fleet/agents/"+a.ID+"/uploads", nil)).Items
	if len(failed) != 1 || failed[0].Status != adminapi.UploadFailed || failed[0].Error == nil || *failed[0].Error != "no space left on device" {
		t.Errorf("the uploads are %+v", failed)
	}

	one := "/api/fleet/agents/" + a.ID + "/request_diagnostics"
	for _, body := range []any{nil, `null`, `{}`} {
		if got := s.Admin("POST", one, body); got.Status != 200 {
			t.Errorf("the body %v answered %d %s", body, got.Status, got.Body)
		}
	}
}

// upload begins an upload of the agent for an action and returns its id.
func upload(t *testing.T, s *apptest.Server, a *apptest.Agent, actionID string) string {
	t.Helper()
	size := int64(3)
	return apptest.Decode[agentapi.UploadBegun](t, s.Agents("POST", agentapi.PathUploads, a.Key, agentapi.UploadBegin{
		ActionID: actionID, AgentID: a.ID, Source: agentapi.UploadSource, File: agentapi.UploadFile{Name: "d.zip", MIMEType: "application/zip", Size: &size},
	})).UploadID
}
