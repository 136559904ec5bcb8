package admin_test

import (
	"fmt"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
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

// Elastic Agents answer such a request from 8.7.0 on, Muster's in every version.
func TestDiagnosticsNeedAnAgentThatSendsThem(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	elastic := func(version string) string {
		var out struct{ Item struct{ ID string } }
		decode(t, s.Agents("POST", "/api/fleet/agents/enroll", s.Token,
			fmt.Sprintf(`{"type":"PERMANENT","metadata":{"local":{"elastic":{"agent":{"version":%q,"build.original":"%s (build: 1a2b)"}},"os":{"platform":"debian"}}}}`, version, version)), &out)
		return out.Item.ID
	}
	old, able, own := elastic("8.6.2"), elastic("8.7.0"), s.Enroll("web-01", "1.0.0").ID
	request := func(id string) apptest.Answer {
		return s.Admin("POST", "/api/fleet/agents/"+id+"/request_diagnostics", nil)
	}
	refused(t, "an old Elastic Agent", request(old), 400, "Agent "+old+" does not support request diagnostics action.")
	for _, id := range []string{able, own} {
		answered[adminapi.ActionCreated](t, request(id))
	}

	// Of many agents, the old one fails and the others get the request.
	const path = "/api/fleet/agents/bulk_request_diagnostics"
	list := fmt.Sprintf(`{"agents":[%q,%q,%q]`, old, able, own)
	if got := s.Admin("POST", path, list+`,"dryRun":true}`); string(got.Body) != `{"count":3}` {
		t.Errorf("the dry run answered %d %s", got.Status, got.Body)
	}
	answered[adminapi.ActionCreated](t, s.Admin("POST", path, list+`}`))
	got := apptest.Decode[adminapi.ActionStatusList](t, s.Admin("GET", "/api/fleet/agents/action_status?errorSize=5", nil)).Items[0]
	if got.NbAgentsActioned != 3 || got.NbAgentsActionCreated != 2 || got.NbAgentsFailed != 1 || len(got.LatestErrors) != 1 ||
		got.LatestErrors[0].Error != "Agent "+old+" does not support request diagnostics action." {
		t.Errorf("the state of the action is %+v", got)
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
