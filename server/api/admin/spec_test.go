package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/elasticpkg"
)

// schema has the parts of OpenAPI that the specification uses.
type schema struct {
	Ref        string             `yaml:"$ref"`
	Type       string             `yaml:"type"`
	Format     string             `yaml:"format"`
	Enum       []string           `yaml:"enum"`
	Nullable   bool               `yaml:"nullable"`
	Required   []string           `yaml:"required"`
	Properties map[string]*schema `yaml:"properties"`
	Items      *schema            `yaml:"items"`
	AllOf      []*schema          `yaml:"allOf"`
	// Additional is true or a schema.
	Additional any `yaml:"additionalProperties"`
}

type operation struct {
	RequestBody content            `yaml:"requestBody"`
	Responses   map[string]content `yaml:"responses"`
}

type content struct {
	Content map[string]struct {
		Schema *schema `yaml:"schema"`
	} `yaml:"content"`
}

type spec struct {
	Paths      map[string]map[string]yaml.Node `yaml:"paths"`
	Components struct {
		Schemas map[string]*schema `yaml:"schemas"`
	} `yaml:"components"`
}

func loadSpec(t *testing.T) spec {
	t.Helper()
	var s spec
	if err := yaml.Unmarshal(adminapi.Spec, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// of returns the schemas of an operation.
func (s spec) of(t *testing.T, call *adminapi.Call) (op operation) {
	t.Helper()
	node := s.Paths[call.Path][strings.ToLower(call.Method)]
	if err := node.Decode(&op); err != nil {
		t.Fatalf("%s: %v", call.ID, err)
	}
	return op
}

// check compares a JSON value with its schema and returns the differences.
func (s spec) check(at string, want *schema, v any) []string {
	for want.Ref != "" {
		want = s.Components.Schemas[strings.TrimPrefix(want.Ref, "#/components/schemas/")]
	}
	if v == nil {
		if want.Nullable {
			return nil
		}
		return []string{at + " is null"}
	}
	if len(want.AllOf) > 0 {
		return s.check(at, want.AllOf[0], v)
	}
	wrong := func() []string { return []string{fmt.Sprintf("%s is %v, want %s", at, v, want.Type)} }
	switch want.Type {
	case "object":
		m, ok := v.(map[string]any)
		if !ok {
			return wrong()
		}
		return s.checkObject(at, want, m)
	case "array":
		list, ok := v.([]any)
		if !ok {
			return wrong()
		}
		var bad []string
		for i, item := range list {
			bad = append(bad, s.check(fmt.Sprintf("%s[%d]", at, i), want.Items, item)...)
		}
		return bad
	case "string":
		text, ok := v.(string)
		if !ok || (len(want.Enum) > 0 && !slices.Contains(want.Enum, text)) {
			return wrong()
		}
		if _, err := time.Parse(time.RFC3339Nano, text); want.Format == "date-time" && err != nil {
			return []string{at + ": " + err.Error()}
		}
	case "boolean":
		if _, ok := v.(bool); !ok {
			return wrong()
		}
	case "integer":
		if n, ok := v.(float64); !ok || n != float64(int64(n)) {
			return wrong()
		}
	case "number":
		if _, ok := v.(float64); !ok {
			return wrong()
		}
	default:
		return []string{at + ": this test does not know the type " + want.Type}
	}
	return nil
}

func (s spec) checkObject(at string, want *schema, m map[string]any) []string {
	var bad []string
	for _, name := range want.Required {
		if _, ok := m[name]; !ok {
			bad = append(bad, at+"."+name+" is missing")
		}
	}
	for name, v := range m {
		switch p := want.Properties[name]; {
		case p != nil:
			bad = append(bad, s.check(at+"."+name, p, v)...)
		case want.Additional == nil && len(want.Properties) > 0:
			bad = append(bad, at+"."+name+" is not in the specification")
		}
	}
	return bad
}

var parameter = regexp.MustCompile(`\{(\w+)\}`)

func TestEveryCallIsServed(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for _, call := range adminapi.Calls() {
		// Without a key an unknown route answers 404, and the handler of a known one does not
		// run.
		got, err := s.Do(t.Context(), apptest.Request{Method: call.Method, URL: s.AdminURL + parameter.ReplaceAllString(call.Path, "x")})
		if err != nil {
			t.Fatal(err)
		}
		want := http.StatusUnauthorized
		switch {
		case call == adminapi.GetReadiness.Call:
			want = http.StatusOK // probes have no key
		case call.Admission == adminapi.Stranger:
			want = http.StatusBadRequest // its body is empty
		}
		if got.Status != want {
			t.Errorf("%s answered %d %s", call.ID, got.Status, got.Body)
		}
	}
}

func entries(t *testing.T, s *apptest.Server) []fleet.AuditEntry {
	t.Helper()
	list, _, err := s.Store.Audit().List(t.Context(), store.AuditQuery{Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// checkAudited checks that a call which changes something has written an audit entry: who,
// what, when and to what.
func checkAudited(t *testing.T, call *adminapi.Call, body any, before, after []fleet.AuditEntry) {
	t.Helper()
	if call.Reads() || call.Unaudited || call.Admission == adminapi.Stranger || call == adminapi.UpdateSettings.Call { // which everyCall makes without a change
		return
	}
	if fields, ok := body.(map[string]any); ok && fields["dryRun"] == true {
		if len(after) != len(before) {
			t.Errorf("a dry run of %s stands in the audit trail", call.ID)
		}
		return
	}
	known := map[string]bool{}
	for _, e := range before {
		known[e.ID] = true
	}
	var own, others []string
	for _, e := range after {
		switch {
		case known[e.ID] || e.Actor != "first key":
		case strings.HasPrefix(e.Text, "first key called "):
			own = append(own, e.Text)
		case e.Verb == "" || e.Text == "" || e.At.IsZero() || e.Subject == "":
		default:
			others = append(others, e.Text)
		}
	}
	switch {
	case len(own)+len(others) == 0:
		t.Errorf("%s is not in the audit trail", call.ID)
	case len(own) > 1 || len(own) == 1 && len(others) > 0:
		t.Errorf("%s changes something before it records it: the trail has %q and %q", call.ID, own, others)
	}
}

// The test makes every call of the specification, in an order in which each succeeds. Each
// that changes something must be in the audit trail.
func TestResponsesMatchTheSpecification(t *testing.T) {
	t.Parallel()
	everyCall(t)
}

// The caller of every call hangs up as soon as the call has its entry in the audit trail, and
// then the call goes on to its end. Before, nothing is changed: see package audit.
func TestCallsWhoseCallerHangsUpAreRecordedAndFinished(t *testing.T) {
	t.Parallel()
	everyCall(t, func(o *app.Options) { o.Store = hangsUp{o.Store} })
}

// hangsUp is a store whose callers hang up once it has an entry about what they do.
type hangsUp struct{ store.Store }

func (s hangsUp) Audit() store.Audit { return hangsUpTrail{s.Store.Audit()} }

type hangsUpTrail struct{ store.Audit }

func (t hangsUpTrail) Append(ctx context.Context, entries []fleet.AuditEntry) error {
	go audit.HangUp(ctx) // waits for the end of Append, as a connection that ends meanwhile does
	return t.Audit.Append(ctx, entries)
}

func everyCall(t *testing.T, change ...func(*app.Options)) {
	s := apptest.Start(t, append(change, quick)...)
	want := loadSpec(t)
	left := map[*adminapi.Call]bool{}
	for _, call := range adminapi.Calls() {
		if call.AnswerType == "" { // the others have tests of their own
			left[call] = true
		}
	}

	before := entries(t, s)
	p := s.Publisher()
	checkAudited(t, adminapi.PublishTrustFiles.Call, nil, before, entries(t, s))
	before = entries(t, s)
	p.Publish("1.1.0", "1.2.0-SNAPSHOT")
	checkAudited(t, adminapi.PushPackage.Call, nil, before, entries(t, s))
	delete(left, adminapi.PushPackage.Call)
	a, b, c := s.Enroll("web-01", "1.0.0"), s.Enroll("web-02", "1.1.0"), s.Enroll("web-03", "1.0.0")
	a.MustCheckin(nil)

	do := func(call *adminapi.Call, body any, params ...string) map[string]any {
		t.Helper()
		delete(left, call)
		before := entries(t, s)
		got := s.Admin(call.Method, call.URL(params...), body)
		if got.Status != http.StatusOK && got.Status != http.StatusCreated {
			t.Fatalf("%s answered %d %s", call.ID, got.Status, got.Body)
		}
		checkAudited(t, call, body, before, entries(t, s))
		var v map[string]any
		if err := json.Unmarshal(got.Body, &v); err != nil {
			t.Fatalf("%s: %v", call.ID, err)
		}
		for _, bad := range want.check(call.ID, want.of(t, call).Responses[strconv.Itoa(got.Status)].Content["application/json"].Schema, v) {
			t.Errorf("%s\nin %s", bad, got.Body)
		}
		if strings.HasPrefix(call.Path, "/api/") && (got.Header.Get("Elastic-Api-Version") != "2023-10-31" || got.Header.Get("Cache-Control") != "no-store") {
			t.Errorf("%s has the headers %v", call.ID, got.Header)
		}
		return v
	}
	do(adminapi.GetStatus.Call, nil)
	tryInfra(do)
	do(adminapi.GetServer.Call, nil)
	do(adminapi.GetEnrollmentCommands.Call, nil)
	if err := s.Store.Servers().Create(t.Context(), fleet.Server{ID: "gone", Host: "srv-2", SharedWith: "srv-3"}); err != nil {
		t.Fatal(err)
	}
	do(adminapi.ListServers.Call, nil)
	do(adminapi.ForgetServer.Call, nil, "gone")
	self := do(adminapi.GetSession.Call, nil)["key_id"].(string)
	do(adminapi.LogIn.Call, map[string]string{"api_key": s.AdminKey})
	do(adminapi.LogOut.Call, nil)
	admin := do(adminapi.CreateAdminKey.Call, map[string]any{"name": "ci", "expiration": "24h"})["item"].(map[string]any)["id"].(string)
	do(adminapi.RevokeAdminKey.Call, nil, admin)
	s.AdminKey = do(adminapi.RotateAdminKey.Call, map[string]any{}, self)["item"].(map[string]any)["api_key"].(string)
	do(adminapi.ListAdminKeys.Call, nil)
	do(adminapi.ListTrail.Call, nil)
	do(adminapi.ListPackages.Call, nil)
	do(adminapi.AddPublisherKey.Call, map[string]any{"public_key": elasticpkg.NewPublisher(t).PublicKey, "name": "Elastic"})
	keys := do(adminapi.ListPublisherKeys.Call, nil)["items"].([]any)
	do(adminapi.GetTrust.Call, nil)
	publishComponent(t, s, "2.5.0")
	for _, pkg := range apptest.Decode[adminapi.PackageList](t, s.Admin(http.MethodGet, "/api/v1/packages", nil)).Items {
		if !*pkg.Signed {
			p.Sign(pkg)
		}
	}
	tryRollouts(t, s, do)
	tryFleets(t, s, do)
	do(adminapi.PublishTrustFiles.Call, map[string]any{"files": [][]byte{p.Root}})
	do(adminapi.ListTrustFiles.Call, nil)
	do(adminapi.GetTrust.Call, nil)
	do(adminapi.GetServer.Call, nil)
	do(adminapi.ListPackages.Call, nil)
	do(adminapi.ListAvailableVersions.Call, nil)
	web := enrollWithComponent(s, "web-00")
	do(adminapi.PreviewComponentUpgrade.Call, map[string]any{"version": "2.5.0", "agents": []string{web.ID, a.ID}, "force": true}, "web-server")
	do(adminapi.UpgradeComponent.Call, map[string]any{"version": "2.5.0", "agents": []string{web.ID}, "force": true}, "web-server")
	do(adminapi.ListComponents.Call, nil)
	do(adminapi.GetAgent.Call, nil, web.ID)
	do(adminapi.PreviewUpgrade.Call, map[string]any{"version": "1.1.0", "agents": []string{a.ID, b.ID, "gone"}})
	do(adminapi.PreviewStage.Call, map[string]any{"version": "1.1.0", "agents": []string{a.ID, b.ID, "gone"}})
	do(adminapi.StageVersion.Call, map[string]any{"version": "1.1.0", "agents": []string{a.ID, b.ID}})
	bulk := do(adminapi.BulkUpgradeAgents.Call, map[string]any{
		"version": "1.1.0", "agents": []string{a.ID, b.ID}, "override_exposure": true, "why": "a test",
	})
	do(adminapi.UpgradeAgent.Call, map[string]any{"version": "1.1.0", "override_exposure": true, "why": "a test"}, c.ID)
	details := apptest.Details(bulk["actionId"].(string), "1.1.0", "UPG_DOWNLOADING")
	details.Metadata.DownloadPercent = 40
	a.MustCheckin(details)
	beacon := apptest.Beacon(bulk["actionId"].(string), agentapi.BeaconWatching)
	beacon.Reason, beacon.Agent.LastCheckin = &agentapi.BeaconCause{Code: "agent_failed", Text: "for 30 s"}, &beacon.At
	a.Beacon(beacon)
	d, e := s.Enroll("web-04", "1.1.0"), s.Enroll("web-05", "1.1.0")
	for _, agent := range []*apptest.Agent{d, e} {
		agent.Kept = keeps("1.0.0", time.Hour)
		agent.MustCheckin(nil)
	}
	do(adminapi.PreviewRollback.Call, map[string]any{"agents": []string{a.ID, d.ID, "gone"}})
	do(adminapi.GetAgent.Call, nil, d.ID)
	do(adminapi.RollbackAgent.Call, nil, d.ID)
	do(adminapi.BulkRollbackAgents.Call, map[string]any{"agents": []string{d.ID, e.ID}})
	do(adminapi.ListAgents.Call, nil)
	do(adminapi.GetFacets.Call, nil)
	do(adminapi.GetAttention.Call, nil)
	do(adminapi.GetTimeline.Call, nil, a.ID)
	do(adminapi.GetFailures.Call, nil)
	do(adminapi.SeeFailures.Call, map[string]any{})
	do(adminapi.GetSeries.Call, nil)
	do(adminapi.GetServerSettings.Call, nil)
	view := do(adminapi.SaveView.Call, map[string]any{"page": "agents", "name": "edge", "search": "kuery=tag%3Aedge"})["item"].(map[string]any)["id"].(string)
	do(adminapi.ListViews.Call, nil)
	do(adminapi.DeleteView.Call, nil, view)
	do(adminapi.ListAgentTags.Call, nil)
	do(adminapi.SuggestQuery.Call, nil)
	do(adminapi.GetAgent.Call, nil, a.ID)
	do(adminapi.GetAgentStatus.Call, nil)
	delete(left, adminapi.GetAgentData.Call) // it needs a parameter: see TestAdminAPIContract
	do(adminapi.ListActionStatus.Call, nil)
	do(adminapi.GetAction.Call, nil, bulk["actionId"].(string))
	do(adminapi.ListActionAgents.Call, nil, bulk["actionId"].(string))
	do(adminapi.CancelAction.Call, nil, bulk["actionId"].(string))
	do(adminapi.RequestDiagnostics.Call, nil, a.ID)
	do(adminapi.BulkRequestDiagnostics.Call, map[string]any{"agents": []string{a.ID, b.ID}})
	uploads := do(adminapi.ListUploads.Call, nil, a.ID)["items"].([]any)
	file := upload(t, s, a, uploads[0].(map[string]any)["actionId"].(string))
	do(adminapi.ListUploads.Call, nil, a.ID)
	do(adminapi.DeleteUpload.Call, nil, file)
	f := s.Enroll("web-06", "9.3.0")
	do(adminapi.UpdateAgent.Call, map[string]any{"tags": []string{"edge"}, "user_provided_metadata": map[string]any{"rack": "4"}}, f.ID)
	do(adminapi.BulkTagAgents.Call, map[string]any{"agents": []string{f.ID}, "tagsToAdd": []string{"lab"}})
	do(adminapi.ReassignAgent.Call, map[string]any{"policy_id": "default"}, f.ID)
	if _, err := store.UpdateAgent(t.Context(), s.Store.Agents(), f.ID, func(a *fleet.Agent) bool { a.PolicyID = "old"; return true }); err != nil {
		t.Fatal(err)
	}
	moved := do(adminapi.BulkReassignAgents.Call, map[string]any{"agents": []string{f.ID}, "policy_id": "default"})
	do(adminapi.CreateAction.Call, map[string]any{"action": map[string]any{"type": "SETTINGS", "data": map[string]any{"log_level": "debug"}}}, f.ID)
	for _, call := range []*adminapi.Call{adminapi.GetAgentsByActions.Call, adminapi.ListAgentsOfActions.Call} {
		do(call, map[string]any{"actionIds": []string{moved["actionId"].(string), "none"}})
	}
	do(adminapi.ChangeAgentPrivilege.Call, nil, f.ID)
	do(adminapi.BulkChangeAgentPrivilege.Call, map[string]any{"agents": []string{f.ID}, "user_info": map[string]any{"username": "elastic"}})
	do(adminapi.MigrateAgent.Call, map[string]any{"uri": "https://elsewhere:8220", "enrollment_token": "t", "settings": map[string]any{"insecure": true}}, f.ID)
	do(adminapi.BulkMigrateAgents.Call, map[string]any{"agents": []string{f.ID}, "uri": "https://elsewhere:8220", "enrollment_token": "t"})
	do(adminapi.ListActionStatus.Call, nil)
	do(adminapi.DeleteAgent.Call, nil, f.ID)
	do(adminapi.UnenrollAgent.Call, map[string]bool{"revoke": true}, b.ID)
	do(adminapi.GetAgent.Call, nil, b.ID)
	do(adminapi.PreviewUnenroll.Call, map[string]any{"agents": []string{a.ID, b.ID, "gone"}})
	do(adminapi.BulkUnenrollAgents.Call, map[string]any{"agents": "*", "dryRun": true})
	do(adminapi.BulkUnenrollAgents.Call, map[string]any{"agents": []string{a.ID, b.ID}})
	policy := do(adminapi.CreatePolicy.Call, map[string]any{"name": "lab", "namespace": "default", "monitoring_enabled": []string{"logs"}})
	do(adminapi.ListPolicies.Call, nil)
	lab := policy["item"].(map[string]any)["id"].(string)
	do(adminapi.GetPolicy.Call, nil, lab)
	do(adminapi.UpdatePolicy.Call, map[string]any{"name": "lab 1", "namespace": "default", "required_versions": []any{map[string]any{"version": "1.1.0", "percentage": 5}}}, lab)
	do(adminapi.CopyPolicy.Call, map[string]any{"name": "lab 2"}, lab)
	do(adminapi.BulkGetPolicies.Call, map[string]any{"ids": []string{lab}})
	do(adminapi.GetFullPolicy.Call, nil, lab)
	do(adminapi.GetPolicyOutputs.Call, nil, lab)
	do(adminapi.ListPolicyOutputs.Call, map[string]any{"ids": []string{lab}})
	do(adminapi.GetAutoUpgradeStatus.Call, nil, lab)
	do(adminapi.DeletePolicy.Call, map[string]any{"agentPolicyId": lab})
	key := do(adminapi.CreateEnrollmentKey.Call, map[string]any{"policy_id": "default", "name": "", "expiration": "24h"})
	id := key["item"].(map[string]any)["id"].(string)
	do(adminapi.ListEnrollmentKeys.Call, nil)
	do(adminapi.GetEnrollmentKey.Call, nil, id)
	do(adminapi.RevokeEnrollmentKey.Call, nil, id)
	do(adminapi.DeletePackage.Call, nil, "muster-agent-1.1.0-linux-amd64.tar.gz")
	do(adminapi.RemovePublisherKey.Call, nil, keys[0].(map[string]any)["id"].(string))
	for call := range left {
		t.Errorf("%s was not called", call.ID)
	}
	if got := s.Admin(http.MethodGet, "/api/openapi.yaml", nil); !bytes.Equal(got.Body, adminapi.Spec) {
		t.Error("the server serves another specification")
	}
}
