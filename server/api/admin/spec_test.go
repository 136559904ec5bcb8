package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
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
	OperationID string             `yaml:"operationId"`
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

// operations returns the calls of the specification by method and path.
func (s spec) operations(t *testing.T) map[string]operation {
	t.Helper()
	out := map[string]operation{}
	for path, methods := range s.Paths {
		for method, node := range methods {
			if method == "parameters" {
				continue
			}
			var op operation
			if err := node.Decode(&op); err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			out[strings.ToUpper(method)+" "+path] = op
		}
	}
	return out
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

func TestEveryCallOfTheSpecificationIsServed(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for call, op := range loadSpec(t).operations(t) {
		method, path, _ := strings.Cut(call, " ")
		// Without a key an unknown route answers 404, and the handler of a known one does not
		// run.
		got, err := s.Do(t.Context(), apptest.Request{Method: method, URL: s.AdminURL + parameter.ReplaceAllString(path, "x")})
		if err != nil {
			t.Fatal(err)
		}
		want := http.StatusUnauthorized
		if op.OperationID == "logIn" || op.OperationID == "convertFleets" {
			want = http.StatusBadRequest // its body is empty
		}
		if op.OperationID == "getReadiness" {
			want = http.StatusOK // probes have no key
		}
		if got.Status != want {
			t.Errorf("%s answered %d %s", call, got.Status, got.Body)
		}
	}
}

func TestEveryRouteIsInTheSpecification(t *testing.T) {
	t.Parallel()
	specified := loadSpec(t).operations(t)
	routes := routesOf(t)
	for _, r := range routes {
		if _, ok := specified[r]; !ok && r != "GET /api/openapi.yaml" {
			t.Errorf("the route %s is not in openapi.yaml", r)
		}
	}
	for call := range specified {
		if !slices.Contains(routes, call) {
			t.Errorf("%s of openapi.yaml has no route", call)
		}
	}
}

// changesNothing are the calls, other than GET, that change nothing which concerns others.
var changesNothing = []string{
	"POST /api/fleet/agents", "POST /api/fleet/agents/actions", "POST /api/v1/failures/seen",
	"POST /api/v1/session", "DELETE /api/v1/session", "POST /api/v1/upgrade_preview", "POST /api/v1/stage_preview", "POST /api/v1/rollback_preview", "POST /api/v1/unenroll_preview",
	"POST /api/v1/components/{name}/upgrade_preview", "POST /api/v1/upgrade_manifests/{profile}/{upgradeId}/config_preview",
	"POST /convert", "POST /api/v1/fleets/{name}/diff",
	"POST /api/v1/rollout_preview", "POST /api/v1/rollouts/{rolloutId}/preview", "POST /api/v1/rollout-groups/{groupId}/preview", "POST /api/v1/webhooks/{webhookId}/test",
	"POST /api/fleet/setup", "POST /api/fleet/agents/setup", "PUT /api/fleet/settings", "POST /api/fleet/agent_policies/_bulk_get", "POST /api/fleet/agent_policies/outputs",
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
func checkAudited(t *testing.T, call string, body any, before, after []fleet.AuditEntry) {
	t.Helper()
	if strings.HasPrefix(call, "GET ") || slices.Contains(changesNothing, call) {
		return
	}
	if fields, ok := body.(map[string]any); ok && fields["dryRun"] == true {
		if len(after) != len(before) {
			t.Errorf("a dry run of %s stands in the audit trail", call)
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
		t.Errorf("%s is not in the audit trail", call)
	case len(own) > 1 || len(own) == 1 && len(others) > 0:
		t.Errorf("%s changes something before it records it: the trail has %q and %q", call, own, others)
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
	calls := want.operations(t)
	left := maps.Clone(calls)
	delete(left, "GET /api/v1/events") // a stream: see TestEventStreamResumes

	before := entries(t, s)
	p := s.Publisher()
	checkAudited(t, "POST /api/v1/publisher_keys", nil, before, entries(t, s))
	delete(left, "POST /api/v1/publisher_keys")
	before = entries(t, s)
	p.Publish("1.1.0", "1.2.0-SNAPSHOT")
	checkAudited(t, "PUT /api/v1/packages/{file}", nil, before, entries(t, s))
	delete(left, "PUT /api/v1/packages/{file}")
	a, b, c := s.Enroll("web-01", "1.0.0"), s.Enroll("web-02", "1.1.0"), s.Enroll("web-03", "1.0.0")
	a.MustCheckin(nil)

	do := func(call string, body any, params ...string) map[string]any {
		t.Helper()
		op, ok := calls[call]
		if !ok {
			t.Fatalf("%s is not in the specification", call)
		}
		delete(left, call)
		before := entries(t, s)
		method, path, _ := strings.Cut(call, " ")
		for _, v := range params {
			path = strings.Replace(path, parameter.FindString(path), v, 1)
		}
		got := s.Admin(method, path, body)
		if got.Status != http.StatusOK && got.Status != http.StatusCreated {
			t.Fatalf("%s answered %d %s", call, got.Status, got.Body)
		}
		checkAudited(t, call, body, before, entries(t, s))
		var v map[string]any
		if err := json.Unmarshal(got.Body, &v); err != nil {
			t.Fatalf("%s: %v", call, err)
		}
		for _, bad := range want.check(call, op.Responses[strconv.Itoa(got.Status)].Content["application/json"].Schema, v) {
			t.Errorf("%s\nin %s", bad, got.Body)
		}
		if strings.HasPrefix(path, "/api/") && (got.Header.Get("Elastic-Api-Version") != "2023-10-31" || got.Header.Get("Cache-Control") != "no-store") {
			t.Errorf("%s has the headers %v", call, got.Header)
		}
		return v
	}
	do("GET /api/status", nil)
	tryInfra(do)
	do("GET /api/v1/server", nil)
	do("GET /api/v1/enrollment_commands", nil)
	if err := s.Store.Servers().Create(t.Context(), fleet.Server{ID: "gone", Host: "srv-2", SharedWith: "srv-3"}); err != nil {
		t.Fatal(err)
	}
	do("GET /api/v1/servers", nil)
	do("DELETE /api/v1/servers/{serverId}", nil, "gone")
	self := do("GET /api/v1/session", nil)["key_id"].(string)
	do("POST /api/v1/session", map[string]string{"api_key": s.AdminKey})
	do("DELETE /api/v1/session", nil)
	admin := do("POST /api/v1/admin_keys", map[string]any{"name": "ci", "expiration": "24h"})["item"].(map[string]any)["id"].(string)
	do("DELETE /api/v1/admin_keys/{keyId}", nil, admin)
	s.AdminKey = do("POST /api/v1/admin_keys/{keyId}/rotate", map[string]any{}, self)["item"].(map[string]any)["api_key"].(string)
	do("GET /api/v1/admin_keys", nil)
	do("GET /api/v1/audit", nil)
	do("GET /api/v1/packages", nil)
	keys := do("GET /api/v1/publisher_keys", nil)["items"].([]any)
	do("GET /api/v1/trust", nil)
	publishComponent(t, s, "2.5.0")
	tryRollouts(t, s, do)
	tryFleets(t, s, do)
	delete(left, "GET /metrics") // text: see TestMetricsNeedAKey
	delete(left, "GET /readyz")  // text: see TestServerIsReadyWhileItsStoreAnswers in package app
	root, targets := signedFor(t, s)
	do("POST /api/v1/trust/files", map[string]any{"files": [][]byte{root, targets}})
	do("GET /api/v1/trust/files", nil)
	do("GET /api/v1/trust", nil)
	do("GET /api/v1/server", nil)
	do("GET /api/v1/packages", nil)
	do("GET /api/fleet/agents/available_versions", nil)
	web := enrollWithComponent(s, "web-00")
	do("POST /api/v1/components/{name}/upgrade_preview", map[string]any{"version": "2.5.0", "agents": []string{web.ID, a.ID}, "force": true}, "web-server")
	do("POST /api/v1/components/{name}/upgrade", map[string]any{"version": "2.5.0", "agents": []string{web.ID}, "force": true}, "web-server")
	do("GET /api/v1/components", nil)
	do("GET /api/fleet/agents/{agentId}", nil, web.ID)
	do("POST /api/v1/upgrade_preview", map[string]any{"version": "1.1.0", "agents": []string{a.ID, b.ID, "gone"}})
	do("POST /api/v1/stage_preview", map[string]any{"version": "1.1.0", "agents": []string{a.ID, b.ID, "gone"}})
	do("POST /api/v1/stage", map[string]any{"version": "1.1.0", "agents": []string{a.ID, b.ID}})
	bulk := do("POST /api/fleet/agents/bulk_upgrade", map[string]any{
		"version": "1.1.0", "agents": []string{a.ID, b.ID}, "override_exposure": true, "why": "a test",
	})
	do("POST /api/fleet/agents/{agentId}/upgrade", map[string]any{"version": "1.1.0", "override_exposure": true, "why": "a test"}, c.ID)
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
	do("POST /api/v1/rollback_preview", map[string]any{"agents": []string{a.ID, d.ID, "gone"}})
	do("GET /api/fleet/agents/{agentId}", nil, d.ID)
	do("POST /api/fleet/agents/{agentId}/rollback", nil, d.ID)
	do("POST /api/fleet/agents/bulk_rollback", map[string]any{"agents": []string{d.ID, e.ID}})
	do("GET /api/fleet/agents", nil)
	do("GET /api/v1/agents/facets", nil)
	delete(left, "GET /api/v1/agents/export") // CSV: see TestExportHasEveryAgentOnce
	do("GET /api/v1/attention", nil)
	do("GET /api/v1/agents/{agentId}/timeline", nil, a.ID)
	do("GET /api/v1/failures", nil)
	do("POST /api/v1/failures/seen", map[string]any{})
	do("GET /api/v1/series", nil)
	do("GET /api/v1/settings", nil)
	view := do("POST /api/v1/views", map[string]any{"page": "agents", "name": "edge", "search": "kuery=tag%3Aedge"})["item"].(map[string]any)["id"].(string)
	do("GET /api/v1/views", nil)
	do("DELETE /api/v1/views/{viewId}", nil, view)
	do("GET /api/fleet/agents/tags", nil)
	do("GET /api/v1/kql/suggest", nil)
	do("GET /api/fleet/agents/{agentId}", nil, a.ID)
	do("GET /api/fleet/agent_status", nil)
	delete(left, "GET /api/fleet/agent_status/data") // it needs a parameter: see TestAdminAPIContract
	do("GET /api/fleet/agents/action_status", nil)
	do("GET /api/v1/actions/{actionId}", nil, bulk["actionId"].(string))
	do("GET /api/v1/actions/{actionId}/agents", nil, bulk["actionId"].(string))
	do("POST /api/fleet/agents/actions/{actionId}/cancel", nil, bulk["actionId"].(string))
	do("POST /api/fleet/agents/{agentId}/request_diagnostics", nil, a.ID)
	do("POST /api/fleet/agents/bulk_request_diagnostics", map[string]any{"agents": []string{a.ID, b.ID}})
	uploads := do("GET /api/fleet/agents/{agentId}/uploads", nil, a.ID)["items"].([]any)
	file := upload(t, s, a, uploads[0].(map[string]any)["actionId"].(string))
	do("GET /api/fleet/agents/{agentId}/uploads", nil, a.ID)
	delete(left, "GET /api/fleet/agents/files/{fileId}/{fileName}") // no JSON: see httpapi/agents
	do("DELETE /api/fleet/agents/files/{fileId}", nil, file)
	f := s.Enroll("web-06", "9.3.0")
	do("PUT /api/fleet/agents/{agentId}", map[string]any{"tags": []string{"edge"}, "user_provided_metadata": map[string]any{"rack": "4"}}, f.ID)
	do("POST /api/fleet/agents/bulk_update_agent_tags", map[string]any{"agents": []string{f.ID}, "tagsToAdd": []string{"lab"}})
	do("POST /api/fleet/agents/{agentId}/reassign", map[string]any{"policy_id": "default"}, f.ID)
	if _, err := store.UpdateAgent(t.Context(), s.Store.Agents(), f.ID, func(a *fleet.Agent) bool { a.PolicyID = "old"; return true }); err != nil {
		t.Fatal(err)
	}
	moved := do("POST /api/fleet/agents/bulk_reassign", map[string]any{"agents": []string{f.ID}, "policy_id": "default"})
	do("POST /api/fleet/agents/{agentId}/actions", map[string]any{"action": map[string]any{"type": "SETTINGS", "data": map[string]any{"log_level": "debug"}}}, f.ID)
	for _, path := range []string{"/agents", "/agents/actions"} {
		do("POST /api/fleet"+path, map[string]any{"actionIds": []string{moved["actionId"].(string), "none"}})
	}
	do("POST /api/fleet/agents/{agentId}/privilege_level_change", nil, f.ID)
	do("POST /api/fleet/agents/bulk_privilege_level_change", map[string]any{"agents": []string{f.ID}, "user_info": map[string]any{"username": "elastic"}})
	do("POST /api/fleet/agents/{agentId}/migrate", map[string]any{"uri": "https://elsewhere:8220", "enrollment_token": "t", "settings": map[string]any{"insecure": true}}, f.ID)
	do("POST /api/fleet/agents/bulk_migrate", map[string]any{"agents": []string{f.ID}, "uri": "https://elsewhere:8220", "enrollment_token": "t"})
	do("GET /api/fleet/agents/action_status", nil)
	do("DELETE /api/fleet/agents/{agentId}", nil, f.ID)
	do("POST /api/fleet/agents/{agentId}/unenroll", map[string]bool{"revoke": true}, b.ID)
	do("GET /api/fleet/agents/{agentId}", nil, b.ID)
	do("POST /api/v1/unenroll_preview", map[string]any{"agents": []string{a.ID, b.ID, "gone"}})
	do("POST /api/fleet/agents/bulk_unenroll", map[string]any{"agents": "*", "dryRun": true})
	do("POST /api/fleet/agents/bulk_unenroll", map[string]any{"agents": []string{a.ID, b.ID}})
	policy := do("POST /api/fleet/agent_policies", map[string]any{"name": "lab", "namespace": "default", "monitoring_enabled": []string{"logs"}})
	do("GET /api/fleet/agent_policies", nil)
	lab := policy["item"].(map[string]any)["id"].(string)
	do("GET /api/fleet/agent_policies/{policyId}", nil, lab)
	do("PUT /api/fleet/agent_policies/{policyId}", map[string]any{"name": "lab 1", "namespace": "default", "required_versions": []any{map[string]any{"version": "1.1.0", "percentage": 5}}}, lab)
	do("POST /api/fleet/agent_policies/{policyId}/copy", map[string]any{"name": "lab 2"}, lab)
	do("POST /api/fleet/agent_policies/_bulk_get", map[string]any{"ids": []string{lab}})
	do("GET /api/fleet/agent_policies/{policyId}/full", nil, lab)
	delete(left, "GET /api/fleet/agent_policies/{policyId}/download") // YAML: see TestPolicyIsShownAsAgentsGetIt
	do("GET /api/fleet/agent_policies/{policyId}/outputs", nil, lab)
	do("POST /api/fleet/agent_policies/outputs", map[string]any{"ids": []string{lab}})
	do("GET /api/fleet/agent_policies/{policyId}/auto_upgrade_agents_status", nil, lab)
	do("POST /api/fleet/agent_policies/delete", map[string]any{"agentPolicyId": lab})
	key := do("POST /api/fleet/enrollment_api_keys", map[string]any{"policy_id": "default", "name": "", "expiration": "24h"})
	id := key["item"].(map[string]any)["id"].(string)
	do("GET /api/fleet/enrollment_api_keys", nil)
	do("GET /api/fleet/enrollment_api_keys/{keyId}", nil, id)
	do("DELETE /api/fleet/enrollment_api_keys/{keyId}", nil, id)
	do("DELETE /api/v1/packages/{file}", nil, "muster-agent-1.1.0-linux-amd64.tar.gz")
	do("DELETE /api/v1/publisher_keys/{keyId}", nil, keys[0].(map[string]any)["id"].(string))
	for call := range left {
		t.Errorf("%s was not called", call)
	}
	if got := s.Admin(http.MethodGet, "/api/openapi.yaml", nil); !bytes.Equal(got.Body, adminapi.Spec) {
		t.Error("the server serves another specification")
	}
}
