package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

func quick(o *app.Options) {
	o.Config.Check.Poll, o.Config.Check.PollJitter = time.Second, 0
	o.Config.Webhooks.Allow = []string{"127.0.0.0/8"} // where tests receive
}

// refused checks a refusal. says is a part of its message.
func refused(t *testing.T, what string, got apptest.Answer, status int, says string) {
	t.Helper()
	e := got.ErrorBody()
	if got.Status != status || e.StatusCode != status || e.Code != http.StatusText(status) || e.Message == "" || !strings.Contains(e.Message, says) {
		t.Errorf("%s answered %d %s\nwant %d %q", what, got.Status, got.Body, status, says)
	}
}

// The order of these checks is in TestFleetCallsCheckInTheOrderOfKibana.
func TestKibanaHeadersAndErrors(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	key := "ApiKey " + s.AdminKey
	do := func(method, path string, h http.Header, body any) apptest.Answer {
		got, err := s.Do(t.Context(), apptest.Request{Method: method, URL: s.AdminURL + path, Header: h, Body: body})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	policy := `{"name":"x","namespace":"default"}`
	if got := do("POST", "/api/fleet/agent_policies", apptest.Headers("Authorization", key, "kbn-version", "9.1.0"), policy); got.Status != 200 {
		t.Errorf("with kbn-version: %d %s", got.Status, got.Body)
	}
	refused(t, "a strange key", do("GET", "/api/fleet/agents", apptest.Headers("Authorization", "ApiKey "+fleet.NewCredential().Encode()), nil), 401, "muster admin-key")
	refused(t, "half a key", do("GET", "/api/fleet/agents", apptest.Headers("Authorization", "ApiKey abc"), nil), 401, "copy it whole")
	refused(t, "a token of agents", do("GET", "/api/fleet/agents", apptest.Headers("Authorization", "ApiKey "+s.Token), nil), 401, "muster admin-key")
	refused(t, "an unknown path", s.Admin("GET", "/api/fleet/elsewhere", nil), 404, "/api/fleet/elsewhere")
	refused(t, "an unknown method", s.Admin("PATCH", "/api/fleet/agents", nil), 405, "PATCH")
}

func TestAgentListSortsPagesAndCounts(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0", "1.10.0")
	var ids []string
	for i, version := range []string{"1.0.0", "1.9.0", "1.10.0"} {
		a := s.Enroll(fmt.Sprintf("web-%d", i), version)
		ids = append(ids, a.ID)
		if i == 0 {
			a.MustCheckin(nil)
		}
	}
	gone := s.Enroll("web-9", "1.0.0")
	s.Admin("POST", "/api/fleet/agents/"+gone.ID+"/unenroll", `{"revoke":true}`)
	list := func(query string) adminapi.AgentList {
		t.Helper()
		return apptest.Decode[adminapi.AgentList](t, s.Admin("GET", "/api/fleet/agents?"+query, nil))
	}
	names := func(l adminapi.AgentList) (out []string) {
		for _, a := range l.Items {
			out = append(out, strings.TrimPrefix(a.LocalMetadata["host"].(map[string]any)["hostname"].(string), "web-"))
		}
		return out
	}
	for query, want := range map[string]string{
		"":                                 "2 1 0", // newest first
		"sortOrder=asc":                    "0 1 2",
		"showInactive=true":                "9 2 1 0",
		"sortField=agent.version":          "2 1 0", // as versions, not as text
		"sortField=last_checkin&perPage=1": "0",
		"sortField=local_metadata.host.hostname&sortOrder=asc&page=2&perPage=2": "2",
		"sortField=policy_id":  "2 1 0",
		"perPage=0":            "",
		"page=10000&perPage=1": "",
		"showUpgradeable=true": "1 0", // those below the newest package
		"kuery=+":              "2 1 0",
	} {
		if query == "sortField=policy_id" {
			if got := list(query); got.Total != 3 {
				t.Errorf("%s found %d", query, got.Total)
			}
			continue
		}
		if got := strings.Join(names(list(query)), " "); got != want {
			t.Errorf("%q lists %q, want %q", query, got, want)
		}
	}
	// One that runs in a container, or was not installed, is upgraded by other means.
	_, err := store.UpdateAgent(t.Context(), s.Store.Agents(), ids[1], func(a *fleet.Agent) bool {
		a.LocalMetadata = []byte(strings.Replace(string(a.LocalMetadata), `"upgradeable":true`, `"upgradeable":false`, 1))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"showUpgradeable=true", "showUpgradeable=true&kuery=" + url.QueryEscape("tags: * or not tags: *")} {
		if got := strings.Join(names(list(query)), " "); got != "0" {
			t.Errorf("%q lists %q, want only the one that can upgrade itself", query, got)
		}
	}
	summary := *list("getStatusSummary=true&showInactive=true").StatusSummary
	if len(summary) != 11 || summary["enrolling"] != 2 || summary["online"] != 1 || summary["unenrolled"] != 1 {
		t.Errorf("the summary is %v", summary)
	}

	s.Admin("POST", "/api/fleet/agents/"+ids[0]+"/upgrade", `{"version":"1.1.0","source_uri":""}`)
	apptest.Eventually(t, "the upgrade among the counts, which may be 2 s old", func() string {
		got := apptest.Decode[adminapi.AgentStatusResponse](t, s.Admin("GET", "/api/fleet/agent_status", nil)).Results
		if want := (adminapi.AgentStatusCounts{All: 4, Active: 3, Updating: 3, Unenrolled: 1}); got != want {
			return fmt.Sprintf("the counts are %+v, want %+v", got, want)
		}
		return ""
	})
	if got := apptest.Decode[adminapi.AgentStatusResponse](t, s.Admin("GET", "/api/fleet/agent_status?policyId=other", nil)).Results; got.All != 0 {
		t.Errorf("another policy has %+v", got)
	}
	versions := apptest.Decode[adminapi.VersionList](t, s.Admin("GET", "/api/fleet/agents/available_versions", nil)).Items
	if !slices.Equal(versions, []string{"1.10.0", "1.1.0"}) {
		t.Errorf("available are %v", versions)
	}
}

// Those of Kibana's calls are in adminContract.
func TestInvalidParametersOfMustersCallsAreNamed(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/api/v1/kql/suggest?q=a&cursor=2", "", 400, "[request query.cursor]"},
		{"GET", "/api/v1/events?after=-1", "", 400, "[request query.after]"},
		{"GET", "/api/v1/events?after=now", "", 400, "[request query.after]"},
		{"POST", "/api/v1/upgrade_preview", `{"version":"9.9.9","agents":["x"]}`, 400, "muster package push"},
		{"POST", "/api/v1/upgrade_preview", `{"version":"1.0.0","agents":"every:thing"}`, 400, "[request body.agents]"},
		{"POST", "/api/v1/unenroll_preview", `{"agents":["x"],"revok":true}`, 400, "[request body.revok]: is not a known key"},
		{"POST", "/api/v1/publisher_keys", `{"public_key":"RWQ"}`, 400, "[request body.public_key]"},
		{"DELETE", "/api/v1/packages/x", "", 404, ""},
		{"POST", "/api/v1/session", `{"api_key":7}`, 400, "[request body.api_key]"},
	} {
		refused(t, c.method+" "+c.path+" "+c.body, s.Admin(c.method, c.path, c.body), c.status, c.says)
	}
}

// No body makes the server panic or answer without a message.
func TestGarbageIsRefused(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	a := s.Enroll("web-01", "1.0.0")
	deep := strings.Repeat("[", 20_000)
	for _, call := range adminapi.Calls() {
		if call.Reads() || call.Method == http.MethodDelete && !call.Kibana() {
			continue
		}
		path := parameter.ReplaceAllString(call.Path, a.ID)
		for _, body := range []string{
			"", " ", "null", "true", "0", `""`, "[]", "{", "}", "{}", "{}{}", "[[]]", `{"":""}`, "\x00", "\xff\xfe{}", "\xef\xbb\xbf{}", deep,
			`{"agents":null,"version":null,"public_key":null,"policy_id":null,"name":null,"namespace":null,"api_key":null}`,
			`{"agents":{},"version":[],"public_key":{},"policy_id":1,"name":false,"namespace":{},"api_key":[]}`,
			`{"agents":[null,"",{}],"version":"1.0.0","source_uri":"x"}`,
			`{"version":"` + strings.Repeat("9", 5000) + `","agents":["x"]}`,
			`{"agents":["x"],"policy_id":"default","tags":[null],"tagsToAdd":[{}],"action":[],"actionIds":[null,1],"user_info":[],"settings":[]}`,
			`{"action":{"type":"SETTINGS","data":[]},"uri":"https://\u0000","enrollment_token":"x","user_provided_metadata":{"":null,"a":{"b":[1e300]}}}`,
			`{"action":{"type":"UPGRADE","data":{"version":1}},"agents":"*","policy_id":"","actionIds":["x","x"],"dryRun":true}`,
			`{"version":"1.0.0\u0000","agents":["x"],"api_key":"\u0000","policy_id":"\u0000","name":"\ud800"}`,
		} {
			got := s.Admin(call.Method, path, body)
			if got.Status >= 500 || (got.Status >= 400 && got.ErrorBody().Message == "") {
				t.Errorf("%s with %.60q answered %d %s", call.ID, body, got.Status, got.Body)
			}
		}
	}
}

func TestUpgradeOfOneAgentIsRefusedWithReason(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0", "1.2.0")
	enrol := func(meta string) *apptest.Agent {
		got := s.Agents("POST", "/api/fleet/agents/enroll", s.Token, `{"type":"PERMANENT","metadata":{"local":`+meta+`}}`)
		var out struct{ Item struct{ ID string } }
		decode(t, got, &out)
		return &apptest.Agent{ID: out.Item.ID}
	}
	unenrolled, leaving, busy := s.Enroll("a", "1.0.0"), s.Enroll("b", "1.0.0"), s.Enroll("c", "1.0.0")
	s.Admin("POST", "/api/fleet/agents/"+unenrolled.ID+"/unenroll", `{"revoke":true}`)
	s.Admin("POST", "/api/fleet/agents/"+leaving.ID+"/unenroll", nil)
	upgrade := func(a *apptest.Agent, body string) apptest.Answer {
		return s.Admin("POST", "/api/fleet/agents/"+a.ID+"/upgrade", body)
	}
	if got := upgrade(busy, `{"version":"1.1.0"}`); got.Status != 200 {
		t.Fatalf("upgrade: %s", got.Body)
	}
	container := enrol(`{"elastic":{"agent":{"version":"1.0.0","upgradeable":false}},"os":{"type":"linux"},"host":{"architecture":"amd64"}}`)
	mac := enrol(`{"elastic":{"agent":{"version":"1.0.0","upgradeable":true}},"os":{"type":"darwin"},"host":{"architecture":"arm64"}}`)
	for _, c := range []struct {
		agent *apptest.Agent
		body  string
		says  string
	}{
		{unenrolled, `{"version":"1.1.0"}`, "is unenrolled"},
		{leaving, `{"version":"1.1.0"}`, "is being unenrolled"},
		{busy, `{"version":"1.2.0"}`, "is already being upgraded to 1.1.0"},
		{container, `{"version":"1.1.0"}`, "may run in a container"},
		{s.Enroll("d", "1.1.0"), `{"version":"1.1.0"}`, "already runs 1.1.0"},
		{s.Enroll("e", "1.2.0"), `{"version":"1.1.0"}`, "going down to 1.1.0 needs force"},
		{busy, `{"version":"1.3.0"}`, "is already being upgraded to 1.1.0"},
	} {
		refused(t, c.body, upgrade(c.agent, c.body), 400, c.says)
	}
	// Kibana knows no packages, and accepts these. Elastic's client always sends source_uri.
	for _, c := range []struct {
		agent *apptest.Agent
		body  string
		says  string
	}{
		{mac, `{"version":"1.1.0"}`, "there is no package of version 1.1.0 for darwin/arm64"},
		{s.Enroll("f", "1.0.0"), `{"version":"1.3.0","source_uri":""}`, "no package of version 1.3.0 is published (published are 1.2.0, 1.1.0)"},
		{s.Enroll("g", "1.0.0"), `{"version":"1.3.0","source_uri":null,"force":true}`, "no package of version 1.3.0 is published"},
	} {
		id := answered[adminapi.ActionCreated](t, upgrade(c.agent, c.body)).ActionId
		got := answered[adminapi.ActionStatusList](t, s.Admin("GET", "/api/fleet/agents/action_status?perPage=1", nil)).Items[0]
		doc := s.Fleet(c.agent.ID)
		if got.ActionId != id || got.Status != adminapi.FAILED || len(got.LatestErrors) != 1 || !strings.HasPrefix(got.LatestErrors[0].Error, c.says) || doc.Upgrading() {
			t.Errorf("%s: the action is %+v", c.body, got)
		}
	}
	if got := upgrade(busy, `{"version":"1.2.0","force":true}`); got.Status != 200 {
		t.Errorf("with force: %d %s", got.Status, got.Body)
	}
}

func TestBulkUpgradeSkipsAgentsThatCannotUpgrade(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	good, done := s.Enroll("good", "1.0.0"), s.Enroll("done", "1.1.0")
	body := map[string]any{"version": "1.1.0", "agents": []string{good.ID, done.ID, "gone"}, "source_uri": ""}
	preview := apptest.Decode[adminapi.UpgradePreview](t, s.Admin("POST", "/api/v1/upgrade_preview", body))
	if preview.Will != 1 || preview.Wont != 2 || !preview.Items[0].Will || *preview.Items[2].Reason != "Agent gone not found" {
		t.Errorf("the preview is %+v", preview)
	}
	upgrading := func(a *apptest.Agent) bool {
		doc := s.Fleet(a.ID)
		return doc.Upgrading()
	}
	if upgrading(good) {
		t.Fatal("the preview started the upgrade")
	}
	id := apptest.Decode[adminapi.ActionCreated](t, s.Admin("POST", "/api/fleet/agents/bulk_upgrade", body)).ActionId
	status := func() adminapi.ActionStatus {
		return apptest.Decode[adminapi.ActionStatusList](t, s.Admin("GET", "/api/fleet/agents/action_status", nil)).Items[0]
	}
	got := status()
	if got.ActionId != id || got.Status != adminapi.INPROGRESS || got.NbAgentsActioned != 3 || got.NbAgentsActionCreated != 1 || got.NbAgentsFailed != 2 || len(got.LatestErrors) != 2 || *got.CreatedBy != "first key" {
		t.Errorf("the action is %+v", got)
	}
	if upgrading(done) || !upgrading(good) {
		t.Error("the wrong agents are marked")
	}
	for range 2 { // cancelling twice is no error
		if got := s.Admin("POST", "/api/fleet/agents/actions/"+id+"/cancel", nil); got.Status != 200 {
			t.Errorf("cancel: %d %s", got.Status, got.Body)
		}
	}
	if got := status(); got.Status != adminapi.CANCELLED || got.CancellationTime == nil {
		t.Errorf("after the cancel it is %+v", got)
	}
	if upgrading(good) {
		t.Error("the agent still counts as updating")
	}
}

func TestKeysAndPoliciesOfElasticClients(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	// elastic-agent-libs sends an empty name.
	created := apptest.Decode[adminapi.EnrollmentKeyCreated](t, s.Admin("POST", "/api/fleet/enrollment_api_keys", `{"name":"","policy_id":"default"}`))
	if created.Action != "created" || created.Item.ApiKey == nil || created.Item.Name != created.Item.Id {
		t.Errorf("the key is %+v", created)
	}
	list := apptest.Decode[adminapi.EnrollmentKeyList](t, s.Admin("GET", "/api/fleet/enrollment_api_keys", nil))
	if list.Total != 2 || len(list.Items) != 2 {
		t.Errorf("there are %d keys, %d shown", list.Total, len(list.Items))
	}
	if got := apptest.Decode[adminapi.EnrollmentKeyList](t, s.Admin("GET", "/api/fleet/enrollment_api_keys?page=2&perPage=1", nil)); len(got.Items) != 1 || got.Total != 2 {
		t.Errorf("page 2 of 1 has %d of %d", len(got.Items), got.Total)
	}
	policy := apptest.Decode[adminapi.PolicyItem](t, s.Admin("POST", "/api/fleet/agent_policies", `{"name":"p","namespace":"default","is_protected":false,"id":"p-1"}`)).Item
	if policy.Id != "p-1" || policy.Revision != 1 || policy.UpdatedBy != "first key" {
		t.Errorf("the policy is %+v", policy)
	}
}

func TestPushingAPackageTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	p := s.Publisher()
	archive := p.Archive(t.TempDir(), "1.1.0")
	first := apptest.Decode[adminapi.PackageItem](t, p.Push(archive)).Item
	again := apptest.Decode[adminapi.PackageItem](t, p.Push(archive)).Item
	if first.Sha256 != again.Sha256 || !first.PushedAt.Equal(again.PushedAt) || *first.PushedBy != "first key" {
		t.Errorf("pushed twice it is %+v and %+v", first, again)
	}
	escaped := "/api/v1/packages/" + url.PathEscape("../muster-agent-1.1.0-linux-amd64.tar.gz")
	got, err := s.Do(t.Context(), apptest.Request{
		Method: "PUT", URL: s.AdminURL + escaped, Body: "x",
		Header: apptest.Headers("Authorization", "ApiKey "+s.AdminKey),
	})
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "a name with a path", got, 400, "[request path.file]")
}

func TestPackagesOfComponentsAreListedAndNotOfferedToAgents(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	p := s.Publisher()
	p.Publish("1.1.0", "1.0.0")
	for _, version := range []string{"9.9.9", "9.10.0"} {
		web := fakepkg.BuildComponent(t, t.TempDir(), fakepkg.Component("web"), version, map[string]string{"bin/web": "", "conf/web.conf": ""})
		if a := p.Push(web); a.Status != 200 {
			t.Fatalf("push: %s", a.Body)
		}
	}
	var listed []string
	for _, item := range apptest.Decode[adminapi.PackageList](t, s.Admin("GET", "/api/v1/packages", nil)).Items {
		name := "agent"
		if item.Component != nil && item.Runtime != nil {
			name = *item.Component + "/" + *item.Runtime
		}
		listed = append(listed, name+" "+item.Version)
	}
	if want := []string{"agent 1.1.0", "agent 1.0.0", "web/process 9.10.0", "web/process 9.9.9"}; !slices.Equal(listed, want) {
		t.Errorf("listed are %v, want %v", listed, want)
	}
	if got := apptest.Decode[adminapi.VersionList](t, s.Admin("GET", "/api/fleet/agents/available_versions", nil)).Items; !slices.Equal(got, []string{"1.1.0", "1.0.0"}) {
		t.Errorf("agents can be upgraded to %v", got)
	}
}

func TestUIIsServedOutsideTheAPI(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	got, err := s.Do(t.Context(), apptest.Request{Method: "GET", URL: s.AdminURL + "/agents"})
	if err != nil || got.Status != 200 && got.Status != 503 || !strings.HasPrefix(got.Header.Get("Content-Type"), "text/html") {
		t.Errorf("a page answered %d %v, %v", got.Status, got.Header, err)
	}
	got, err = s.Do(t.Context(), apptest.Request{Method: "GET", URL: s.AdminURL + "/api/nothing"})
	if err != nil || got.Status != 404 || got.ErrorBody().Message == "" {
		t.Errorf("an unknown call answered %d %s, %v", got.Status, got.Body, err)
	}
}

func TestUnavailableStoreAnswers503(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	if err := s.Store.Close(); err != nil {
		t.Fatal(err)
	}
	got := s.Admin("GET", "/api/fleet/agents", nil)
	refused(t, "the list", got, 503, "")
	if got.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
}

func TestComponentsAreShownAsTheirAgentReportsThem(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	a := s.Enroll("web-01", "1.0.0")
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	web := apptest.Component("web-server", "2.4.0")
	web.Hash, web.Image, web.ConfigSHA256, web.RenderedSHA256, web.LastHealthyVersion = "0a1b2c", "web@sha256:"+digest, digest, "9a0b", "2.3.0"
	web.Rollbacks, web.Restarts, web.Since = []string{"2.3.0"}, 2, &since
	web.UpgradeDetails = &agentapi.UpgradeDetails{
		TargetVersion: "2.5.0", ActionID: "x", State: agentapi.UpgradeFailed,
		Metadata: agentapi.UpgradeMetadata{Phase: agentapi.PhaseStarting, FailedState: agentapi.UpgradeRestarting, ErrorMsg: "port 80 is taken", ReasonCode: agentapi.FailedRollback},
	}
	a.Components = []agentapi.Component{web, {ID: "logs", Type: "process", Status: "HEALTHY", Units: json.RawMessage(`[]`)}}
	a.MustCheckin(nil)
	got := apptest.Decode[struct{ Item map[string]any }](t, s.Admin("GET", "/api/fleet/agents/"+a.ID, nil)).Item["components"]
	want := object(t, []byte(`{"components":[
		{"id":"web-server","type":"component","status":"HEALTHY","message":"Running","name":"web-server","runtime":"systemd","version":"2.4.0","hash":"0a1b2c",
			"image":"web@sha256:`+digest+`","config_sha256":"`+digest+`","rendered_sha256":"9a0b","desired_version":"2.4.0","last_healthy_version":"2.3.0","rollbacks":["2.3.0"],"restarts":2,"since":"2026-01-02T03:04:05Z",
			"commands":[{"name":"upgrade","allowed":true},{"name":"rollback","allowed":true}],
			"upgrade_details":{"target_version":"2.5.0","action_id":"x","state":"UPG_FAILED",
				"metadata":{"phase":"STARTING","failed_state":"UPG_RESTARTING","error_msg":"port 80 is taken","reason_code":"FAILED_ROLLBACK"}}},
		{"id":"logs","type":"process","status":"HEALTHY","message":""}]}`))["components"]
	if !reflect.DeepEqual(got, want) {
		t.Errorf("components are\n%v, want\n%v", got, want)
	}
}
