package admin_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/agents/infra"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
)

// objectKinds are the kinds of objects, with the fields of one and a change to it.
var objectKinds = []struct{ path, fields, change string }{
	{"fleet_server_hosts", `"name":"Berlin","host_urls":["https://berlin.example.com:8220"]`, `{"name":"Berlin 2"}`},
	{"agent_download_sources", `"name":"Mirror","host":"https://mirror.example.com/"`, `{"name":"Mirror 2","host":"https://mirror.example.com/"}`},
	{"proxies", `"name":"Proxy","url":"http://proxy.example.com:3128","proxy_headers":{"X-Site":"berlin"}`, `{"name":"Proxy 2"}`},
	{"outputs", `"name":"Logs","type":"logstash","hosts":["logs.example.com:5044"]`, `{"name":"Logs 2"}`},
}

// callAt returns the operation with a method and a path.
func callAt(method, path string) *adminapi.Call {
	i := slices.IndexFunc(adminapi.Calls(), func(c *adminapi.Call) bool { return c.Method == method && c.Path == path })
	return adminapi.Calls()[i]
}

// tryInfra makes the calls of the specification on objects, and those before the others.
func tryInfra(do func(call *adminapi.Call, body any, params ...string) map[string]any) {
	for _, k := range objectKinds {
		param := map[string]string{"agent_download_sources": "{sourceId}", "outputs": "{outputId}"}[k.path]
		if param == "" {
			param = "{itemId}"
		}
		all, one := "/api/fleet/"+k.path, "/api/fleet/"+k.path+"/"+param
		do(callAt("POST", all), "{\"id\":\"mine\","+k.fields+"}")
		do(callAt("GET", all), nil)
		do(callAt("GET", one), nil, "mine")
		do(callAt("PUT", one), k.change, "mine")
		if k.path == "outputs" {
			do(adminapi.GetOutputHealth.Call, nil, "mine")
		}
		do(callAt("DELETE", one), nil, "mine")
	}
	do(adminapi.GetSettings.Call, nil)
	do(adminapi.UpdateSettings.Call, `{"prerelease_integrations_enabled":false}`)
	for _, call := range []*adminapi.Call{
		adminapi.GetSetup.Call, adminapi.Setup.Call, adminapi.GetAgentsSetup.Call, adminapi.SetupAgents.Call, adminapi.GetPermissions.Call, adminapi.ListIntegrations.Call,
		adminapi.ListInstalledIntegrations.Call, adminapi.ListLimitedIntegrations.Call, adminapi.ListIntegrationCategories.Call, adminapi.ListPackagePolicies.Call,
	} {
		do(call, nil)
	}
	token := do(adminapi.ListUninstallTokens.Call, nil)["items"].([]any)[0].(map[string]any)["id"].(string)
	do(adminapi.GetUninstallToken.Call, nil, token)
}

func TestObjectsAreCreatedChangedAndDeleted(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for _, k := range objectKinds {
		path := "/api/fleet/" + k.path
		created := s.Admin("POST", path, `{"id":"mine",`+k.fields+`}`)
		item, _ := object(t, created.Body)["item"].(map[string]any)
		for name, want := range object(t, []byte("{"+k.fields+"}")) {
			if created.Status != 200 || !reflect.DeepEqual(item[name], want) {
				t.Errorf("%s: %s is %v, want %v: %d", path, name, item[name], want, created.Status)
			}
		}
		changed := object(t, s.Admin("PUT", path+"/mine", k.change).Body)["item"].(map[string]any)
		if !strings.HasSuffix(changed["name"].(string), " 2") || changed["id"] != "mine" {
			t.Errorf("%s: changed to %v", path, changed)
		}
		list := object(t, s.Admin("GET", path, nil).Body)
		if n := float64(len(list["items"].([]any))); list["total"] != n || list["page"] != 1.0 || list["perPage"] == 0.0 || n == 0 {
			t.Errorf("%s: the list is %v", path, list)
		}
		if got := s.Admin("DELETE", path+"/mine", nil); got.Status != 200 || string(got.Body) != `{"id":"mine"}` {
			t.Errorf("%s: deletion answers %d %s", path, got.Status, got.Body)
		}
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			if got := s.Admin(method, path+"/mine", k.change); got.Status != 404 || !strings.HasSuffix(got.ErrorBody().Message, " mine not found") {
				t.Errorf("%s of a deleted one in %s: %d %s", method, path, got.Status, got.Body)
			}
		}
	}
}

// A policy that names no host follows the default one.
func TestNewDefaultReplacesOldOneAndReachesAgents(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	revision := func() float64 {
		return object(t, s.Admin("GET", "/api/fleet/agent_policies/default", nil).Body)["item"].(map[string]any)["revision"].(float64)
	}
	hosts := func() (defaults []string) {
		var list struct{ Items []fleet.FleetServerHost }
		if err := json.Unmarshal(s.Admin("GET", "/api/fleet/fleet_server_hosts", nil).Body, &list); err != nil {
			t.Fatal(err)
		}
		for _, h := range list.Items {
			if h.Default {
				defaults = append(defaults, h.ID)
			}
		}
		return defaults
	}
	start := revision()
	if got := hosts(); !slices.Equal(got, []string{infra.DefaultHostID}) {
		t.Fatalf("at the first start the defaults are %v", got)
	}
	for i, id := range []string{"a", "b"} {
		s.Admin("POST", "/api/fleet/fleet_server_hosts", fmt.Sprintf(`{"id":%q,"name":%q,"host_urls":["https://%s"],"is_default":true}`, id, id, id))
		if got := hosts(); !slices.Equal(got, []string{id}) {
			t.Errorf("after %s the defaults are %v", id, got)
		}
		if got := revision(); got != start+float64(i)+1 {
			t.Errorf("after %s the revision is %v, want %v", id, got, start+float64(i)+1)
		}
	}
	full := object(t, s.Admin("GET", "/api/fleet/agent_policies/default/full", nil).Body)["item"].(map[string]any)
	if got := full["fleet"].(map[string]any)["hosts"]; !reflect.DeepEqual(got, []any{"https://b:443"}) {
		t.Errorf("agents check in at %v", got)
	}
	for id, says := range map[string]string{"b": "Default Fleet Server hosts b cannot be deleted.", infra.DefaultHostID: "made from the server's configuration"} {
		if got := s.Admin("DELETE", "/api/fleet/fleet_server_hosts/"+id, nil); got.Status != 400 || !strings.Contains(got.ErrorBody().Message, says) {
			t.Errorf("deletion of %s: %d %s", id, got.Status, got.Body)
		}
	}
	if got := s.Admin("PUT", "/api/fleet/fleet_server_hosts/b", `{"is_default":false}`); got.Status != 200 || !slices.Equal(hosts(), []string{infra.DefaultHostID}) {
		t.Errorf("without another default: %d %s, the defaults are %v", got.Status, got.Body, hosts())
	}
	if got := s.Admin("PUT", "/api/fleet/fleet_server_hosts/"+infra.DefaultHostID, `{"is_default":false}`); got.Status != 400 {
		t.Errorf("the last default gives way: %d %s", got.Status, got.Body)
	}
	if got := s.Admin("PUT", "/api/fleet/fleet_server_hosts/"+infra.DefaultHostID, `{"host_urls":["https://lb.example.com"]}`); got.Status != 200 || !bytes.Contains(got.Body, []byte("https://lb.example.com:443")) || !slices.Equal(hosts(), []string{infra.DefaultHostID}) {
		t.Errorf("the built-in host can be changed: %d %s", got.Status, got.Body)
	}
}

func TestDefaultOutputStaysUntilAnotherIsDefault(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	s.Admin("POST", "/api/fleet/outputs", `{"id":"a","name":"a","type":"elasticsearch","hosts":["https://es"],"is_default":true,"is_default_monitoring":true}`)
	for method, says := range map[string]string{
		"PUT":    "Default output a cannot be set to is_default=false or is_default_monitoring=false manually. Make another output the default first.",
		"DELETE": "Default output a cannot be deleted.",
	} {
		if got := s.Admin(method, "/api/fleet/outputs/a", `{"is_default":false}`); got.Status != 400 || got.ErrorBody().Message != says {
			t.Errorf("%s: %d %s", method, got.Status, got.Body)
		}
	}
	s.Admin("POST", "/api/fleet/outputs", `{"id":"b","name":"b","type":"elasticsearch","hosts":["https://es"],"is_default":true}`)
	if got := s.Admin("DELETE", "/api/fleet/outputs/a", nil); got.Status != 400 || got.ErrorBody().Message != "Default monitoring output a cannot be deleted." {
		t.Errorf("it still gets the agents' own logs: %d %s", got.Status, got.Body)
	}
}

func TestKafkaOutputIsCompletedAsInKibana(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	got := s.Admin("POST", "/api/fleet/outputs", `{"id":"k","name":"k","type":"kafka","hosts":["k:9092"],"auth_type":"user_pass","username":"u","secrets":{"password":"p"},"partition":"random"}`)
	var item struct{ Item fleet.Output }
	if err := json.Unmarshal(got.Body, &item); err != nil || got.Status != 200 {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	o := item.Item
	if o.Version != "1.0.0" || o.Compression != "gzip" || *o.CompressionLevel != 4 || o.ClientID != "Elastic" || o.SASL.Mechanism != "PLAIN" ||
		*o.Random.GroupEvents != 1 || *o.Timeout != 30 || *o.BrokerTimeout != 10 || *o.RequiredAcks != 1 || o.Password != "p" {
		t.Errorf("the output is %s", got.Body)
	}
	// A change of the type removes what the new type does not have.
	got = s.Admin("PUT", "/api/fleet/outputs/k", `{"type":"elasticsearch","hosts":["https://es"]}`)
	if got.Status != 200 || bytes.Contains(got.Body, []byte("username")) || bytes.Contains(got.Body, []byte("password")) || !bytes.Contains(got.Body, []byte(`"preset":"balanced"`)) {
		t.Errorf("as Elasticsearch: %d %s", got.Status, got.Body)
	}
}

// A reader of the store, or of its backups, must not learn the secrets of objects.
func TestSecretsOfObjectsAreEncryptedInTheStore(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	s.Admin("POST", "/api/fleet/proxies", `{"id":"p","name":"p","url":"http://p:1","certificate_key":"hush"}`)
	s.Admin("POST", "/api/fleet/agent_download_sources", `{"id":"d","name":"d","host":"https://d","ssl":{"certificate":"c"},"secrets":{"ssl":{"key":"hush"}}}`)
	s.Admin("POST", "/api/fleet/outputs", `{"id":"o","name":"o","type":"remote_elasticsearch","hosts":["https://o"],"service_token":"hush","kibana_api_key":"hush","ssl":{"key":"hush"}}`)
	s.Admin("PUT", "/api/fleet/outputs/o", `{"name":"other"}`)
	ctx := t.Context()
	proxy, err1 := s.Store.FleetProxies().Get(ctx, "p")
	source, err2 := s.Store.DownloadSources().Get(ctx, "d")
	output, err3 := s.Store.Outputs().Get(ctx, "o")
	stored, err := json.Marshal([]any{proxy, source, output})
	if err != nil || err1 != nil || err2 != nil || err3 != nil || bytes.Contains(stored, []byte("hush")) || !bytes.Contains(stored, []byte(`"name":"other"`)) {
		t.Errorf("%v %v %v: the store has %s", err1, err2, err3, stored)
	}
	for path, n := range map[string]int{"proxies/p": 1, "agent_download_sources/d": 1, "outputs/o": 3} {
		got := s.Admin("GET", "/api/fleet/"+path, nil)
		if bytes.Count(got.Body, []byte("hush")) != n || bytes.Contains(got.Body, []byte("sealed")) {
			t.Errorf("%s is %s", path, got.Body)
		}
	}
}

func TestDeletedObjectLeavesWhatRefersToIt(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	s.Admin("POST", "/api/fleet/proxies", `{"id":"p","name":"p","url":"http://p:1"}`)
	s.Admin("POST", "/api/fleet/agent_download_sources", `{"id":"d","name":"d","host":"https://d","proxy_id":"p"}`)
	s.Admin("POST", "/api/fleet/agent_policies", `{"id":"web","name":"Web","namespace":"default","download_source_id":"d"}`)
	policy := func() map[string]any {
		return object(t, s.Admin("GET", "/api/fleet/agent_policies/web", nil).Body)["item"].(map[string]any)
	}
	other := object(t, s.Admin("GET", "/api/fleet/agent_policies/default", nil).Body)
	steps := []struct{ method, path, body string }{
		{"PUT", "proxies/p", `{"url":"http://p:2"}`}, {"DELETE", "proxies/p", ""}, {"DELETE", "agent_download_sources/d", ""},
	}
	for i, step := range steps {
		if got := s.Admin(step.method, "/api/fleet/"+step.path, step.body); got.Status != 200 {
			t.Fatalf("%v: %d %s", step, got.Status, got.Body)
		}
		if got := policy()["revision"]; got != float64(i+2) {
			t.Errorf("after %v the policy has revision %v, want %d", step, got, i+2)
		}
	}
	if got := policy()["download_source_id"]; got != nil {
		t.Errorf("the policy still names the source: %v", got)
	}
	if now := object(t, s.Admin("GET", "/api/fleet/agent_policies/default", nil).Body); !reflect.DeepEqual(other["item"], now["item"]) {
		t.Errorf("another policy changed from %v to %v", other, now)
	}
}

func TestUninstallTokens(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for _, id := range []string{"web", "web-2", "db"} {
		s.Admin("POST", "/api/fleet/agent_policies", fmt.Sprintf(`{"id":%q,"name":"The %s","namespace":"default"}`, id, id))
	}
	list := func(query string) adminapi.UninstallTokenList {
		return apptest.Decode[adminapi.UninstallTokenList](t, s.Admin("GET", "/api/fleet/uninstall_tokens?"+query, nil))
	}
	for query, want := range map[string]int{"": 4, "policyId=web": 2, "policyId=web-2": 1, "search=THE": 3, "policyId=no": 0, "page=2&perPage=5": 0} {
		if got := list(query); len(got.Items) != min(want, got.PerPage) && want != 0 || want == 0 && len(got.Items) != 0 {
			t.Errorf("?%s lists %+v, want %d", query, got, want)
		}
	}
	one := list("policyId=db").Items[0]
	if one.Token != nil || one.PolicyName != "The db" {
		t.Errorf("the list has %+v", one)
	}
	got := apptest.Decode[adminapi.UninstallTokenItem](t, s.Admin("GET", "/api/fleet/uninstall_tokens/"+one.Id, nil)).Item
	if got.Token == nil || len(*got.Token) != 32 || got.PolicyId != "db" {
		t.Errorf("the token is %+v", got)
	}
	refused(t, "a long search", s.Admin("GET", "/api/fleet/uninstall_tokens?search="+strings.Repeat("a", 51), nil), 400, "[request query.search]: value has length [51]")
}

func TestStatusHasVersionOfKibanaBesideMusters(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	got := apptest.Decode[adminapi.KibanaStatus](t, s.Admin("GET", "/api/status", nil))
	if got.Version.Number != "9.1.0" || got.Version.BuildSnapshot || got.Muster.Version == "" || got.Muster.Version == "9.1.0" || got.Status.Overall.Level != "available" {
		t.Errorf("status is %+v", got)
	}
}

func TestAbsentPartsOfKibanaSayWhatMusterHasInstead(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for call, says := range map[string]string{
		"POST /api/fleet/package_policies":            "integrations",
		"DELETE /api/fleet/package_policies/nginx":    "integrations",
		"GET /api/fleet/epm/packages/nginx":           "integrations",
		"POST /api/fleet/service_tokens":              "enrollment token",
		"POST /api/fleet/health_check":                "no connection",
		"POST /api/fleet/logstash_api_keys":           "config_yaml",
		"GET /api/fleet/something":                    "/api/openapi.yaml",
		"GET /s/default/api/fleet/package_policies/x": "integrations",
	} {
		method, path, _ := strings.Cut(call, " ")
		if got := s.Admin(method, path, nil); got.Status != 404 || !strings.Contains(got.ErrorBody().Message, says) {
			t.Errorf("%s: %d %s", call, got.Status, got.Body)
		}
	}
}

// Sending a fleet to another server is bounded as other orders that take agents away, whichever
// call does it, and counts together with them.
func TestSendingManyAgentsToAnotherServerNeedsAReason(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick, func(o *app.Options) { o.Config.Admin.RemovalsPerHour = 2 })
	agents := make([]*apptest.Agent, 4)
	for i := range agents {
		agents[i] = s.Enroll(fmt.Sprintf("web-%d", i), "1.0.0")
		agents[i].MustCheckin(nil)
	}
	ok := func(method, path, body string) []byte {
		t.Helper()
		got := s.Admin(method, path, body)
		if got.Status != 200 {
			t.Fatalf("%s %s %s answers %d %s", method, path, body, got.Status, got.Body)
		}
		return got.Body
	}
	const hosts, web, lab = "/api/fleet/fleet_server_hosts", "/api/fleet/agent_policies/default", "/api/fleet/agent_policies/lab"
	const toBerlin = `{"name":"Default policy","namespace":"default","fleet_server_host_id":"berlin"}`
	ok("POST", "/api/fleet/agent_policies", `{"id":"lab","name":"lab","namespace":"default"}`)
	ok("POST", agents[3].Path("reassign"), `{"policy_id":"lab"}`) // one by one neither counts nor is refused
	ok("POST", hosts, `{"id":"berlin","name":"Berlin","host_urls":["https://berlin:8220"]}`)
	for _, c := range []struct{ method, path, body, says string }{
		{"PUT", web, toBerlin, "3 agents of the policy Default policy to https://berlin:8220, and at most 2"},
		{"PUT", web, `{"name":"Default policy","namespace":"default","overrides":{"fleet":{"hosts":"https://berlin:8220"}}}`, "3 agents"},
		{"PUT", hosts + "/berlin", `{"is_default":true}`, "1 agent of the policy lab to https://berlin:8220"},
		{"POST", hosts, `{"name":"Paris","host_urls":["https://paris:8220"],"is_default":true}`, "to https://paris:8220"},
	} {
		got := s.Admin(c.method, c.path, c.body)
		if got.Status != 409 || !strings.Contains(string(got.Body), `"code":"removal_limit"`) || !strings.Contains(got.ErrorBody().Message, c.says) ||
			!strings.Contains(got.ErrorBody().Message, "override_limit=true and why=REASON") {
			t.Errorf("%s %s answers %d %s, want %q", c.method, c.path, got.Status, got.Body, c.says)
		}
		if got := s.Admin(c.method, c.path+"?override_limit=true", c.body); got.Status != 400 || !strings.Contains(string(got.Body), "[request query.why]: is missing") {
			t.Errorf("%s %s without a reason answers %d %s", c.method, c.path, got.Status, got.Body)
		}
	}

	// A policy with few agents is moved as in Kibana, and uses up its part of the hour.
	ok("PUT", lab, `{"name":"lab","namespace":"default","fleet_server_host_id":"berlin"}`)
	two := fmt.Sprintf(`{"agents":[%q,%q]}`, agents[0].ID, agents[1].ID)
	if got := s.Admin("POST", "/api/fleet/agents/bulk_unenroll", two); got.Status != 409 || !strings.Contains(string(got.Body), "2 agents, after 1 in the last hour") {
		t.Errorf("an order after it answers %d %s", got.Status, got.Body)
	}

	ok("PUT", web+"?override_limit=true&why=we+move+to+Berlin", toBerlin)
	trail := string(ok("GET", "/api/v1/audit?verb=fleet_server_host.move&subject=default", ""))
	if !strings.Contains(trail, `"why":"we move to Berlin"`) || !strings.Contains(trail, "sent 3 agents of the policy Default policy to https://berlin:8220, in spite of the removal limit") {
		t.Errorf("the audit trail has %s", trail)
	}
	ok("PUT", hosts+"/berlin", `{"host_urls":["https://berlin:8220","https://paris:8220"]}`)
	ok("PUT", web, `{"name":"Default policy","namespace":"default","fleet_server_host_id":null}`) // who made a mistake goes back
}
