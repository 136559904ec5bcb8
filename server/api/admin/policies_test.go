package admin_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// components are two of them, with every field.
const components = `"components":[
	{"name":"web-server","runtime":"systemd","version":"2.4.0","server_config":true,
		"health":{"wait_seconds":300,"max_restarts":0,"checks":[{"name":"answers","http":"http://127.0.0.1:8080/health","timeout_seconds":5,"threshold":3},{"name":"listens","tcp":"127.0.0.1:8080"}]}},
	{"name":"cache","runtime":"docker","artifact":{"image":"registry.example.com/cache@sha256:` + digest + `"}}]`

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// fullPolicy gives every field that Kibana takes, except name and namespace, and Muster's own.
const fullPolicy = `"description":"for the web","space_ids":["default"],"inactivity_timeout":60,"unenroll_timeout":900,
	"monitoring_enabled":["logs","metrics","traces"],"keep_monitoring_alive":true,"monitoring_pprof_enabled":true,
	"monitoring_http":{"enabled":true,"host":"localhost","port":6791,"buffer":{"enabled":false}},
	"monitoring_diagnostics":{"limit":{"interval":"1m","burst":1},"uploader":{"max_retries":2,"init_dur":"1s","max_dur":"1m"}},
	"data_output_id":"o1","monitoring_output_id":"o2","download_source_id":"s1","fleet_server_host_id":"h1",
	"agent_features":[{"name":"fqdn","enabled":true}],"global_data_tags":[{"name":"site","value":"fra"},{"name":"rack","value":7}],
	"required_versions":[{"version":"1.1.0","percentage":25}],"upgrade_windows":[{"days":["mon","fri"],"from":"22:00","to":"04:00","zone":"Europe/Berlin"},{"from":"01:00","to":"02:00"}],
	"advanced_settings":{"agent_logging_level":"debug","agent_limits_go_max_procs":2,"agent_download_timeout":"120s"},
	"overrides":{"agent":{"logging":{"level":"debug"}}},` + components + `,"is_protected":true,"is_managed":false,"is_default":false,"is_default_fleet_server":false,
	"has_fleet_server":false,"supports_agentless":false,"agentless":{"resources":{"requests":{"memory":"1Gi","cpu":"500m"}}}`

func object(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return m
}

func TestPolicyKeepsEveryFieldThatKibanaTakes(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	s.Publisher().Publish("1.1.0")
	want := object(t, []byte("{"+fullPolicy+"}"))
	check := func(what string, got apptest.Answer) map[string]any {
		t.Helper()
		item, _ := object(t, got.Body)["item"].(map[string]any)
		if got.Status != 200 || item == nil {
			t.Fatalf("%s: %d %s", what, got.Status, got.Body)
		}
		for name, value := range want {
			// A flag that is false may be absent, as in Kibana.
			if value == false && item[name] == nil {
				continue
			}
			if !reflect.DeepEqual(item[name], value) {
				t.Errorf("%s: %s is %v, want %v", what, name, item[name], value)
			}
		}
		return item
	}
	check("created", s.Admin("POST", "/api/fleet/agent_policies", `{"id":"web","name":"Web","namespace":"default",`+fullPolicy+`}`))
	check("read", s.Admin("GET", "/api/fleet/agent_policies/web?format=simplified", nil))
	item := check("changed in one field", s.Admin("PUT", "/api/fleet/agent_policies/web", `{"name":"Web 2","namespace":"prod","inactivity_timeout":60}`))
	if item["name"] != "Web 2" || item["namespace"] != "prod" || item["revision"] != 2.0 || item["updated_by"] == "" {
		t.Errorf("changed: %v", item)
	}

	// A field that is left out stays, null clears it, and inactivity_timeout has a default.
	for _, name := range []string{"data_output_id", "monitoring_output_id", "download_source_id", "fleet_server_host_id", "unenroll_timeout", "overrides", "components", "required_versions", "upgrade_windows", "keep_monitoring_alive"} {
		want[name] = nil
	}
	want["inactivity_timeout"] = 1209600.0
	check("cleared", s.Admin("PUT", "/api/fleet/agent_policies/web", `{"name":"Web 2","namespace":"prod","data_output_id":null,"monitoring_output_id":null,
		"download_source_id":null,"fleet_server_host_id":null,"unenroll_timeout":null,"overrides":null,"components":null,"required_versions":null,"upgrade_windows":null,"keep_monitoring_alive":null}`))
}

func TestRefusedPolicyFieldIsNamed(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for body, says := range map[string]string{
		`{"namespace":"default"}`:                                                                                                          "[request body.name]: ",
		`{"name":" ","namespace":"default"}`:                                                                                               "[request body.name]: ",
		`{"name":"x"}`:                                                                                                                     "[request body.namespace]: ",
		`{"name":"x","namespace":"Default"}`:                                                                                               "[request body.namespace]: Namespace must be lowercase",
		`{"name":"x","namespace":"a-b"}`:                                                                                                   "[request body.namespace]: Namespace contains invalid characters",
		`{"name":"x","namespace":"default","names":"y"}`:                                                                                   "[request body.names]: ",
		`{"name":"x","namespace":"default","bumpRevision":true}`:                                                                           "[request body.bumpRevision]: ",
		`{"name":"x","namespace":"default","description":null}`:                                                                            "[request body.description]: ",
		`{"name":"x","namespace":"default","unenroll_timeout":-1}`:                                                                         "[request body.unenroll_timeout]: ",
		`{"name":"x","namespace":"default","unenroll_timeout":"1h"}`:                                                                       "[request body.unenroll_timeout]: ",
		`{"name":"x","namespace":"default","inactivity_timeout":-9223372036854775808}`:                                                     "[request body.inactivity_timeout]: ",
		`{"name":"x","namespace":"default","inactivity_timeout":99999999999999}`:                                                           "[request body.inactivity_timeout]: ",
		`{"name":"x","namespace":"default","monitoring_enabled":["logs","rocks"]}`:                                                         "[request body.monitoring_enabled[1]]: ",
		`{"name":"x","namespace":"default","global_data_tags":[{"name":"a","value":true}]}`:                                                "[request body.global_data_tags[0].value]: ",
		`{"name":"x","namespace":"default","global_data_tags":[{"name":"a","value":1},{"name":"a","value":2}]}`:                            "Found duplicate tag names: ['a'], duplicate tag names are not allowed.",
		`{"name":"x","namespace":"default","global_data_tags":[{"name":"a b","value":1}]}`:                                                 "Found tag names with spaces: ['a b'], tag names with spaces are not allowed.",
		`{"name":"x","namespace":"default","agent_features":[{"name":"fqdn","on":true}]}`:                                                  "[request body.agent_features[0].on]: ",
		`{"name":"x","namespace":"default","advanced_settings":{"agent_speed":1}}`:                                                         "[request body.advanced_settings.agent_speed]: ",
		`{"name":"x","namespace":"default","advanced_settings":{"agent_logging_level":"loud"}}`:                                            "[request body.advanced_settings.agent_logging_level]: ",
		`{"name":"x","namespace":"default","overrides":{"inputs.0":1}}`:                                                                    "[request body.overrides]: inputs overrides is not allowed",
		`{"name":"x","namespace":"default","monitoring_http":{"port":"x"}}`:                                                                "[request body.monitoring_http.port]: ",
		`{"name":"x","namespace":"default","agentless":{"resources":{"requests":{"cpu":"many"}}}}`:                                         "[request body.agentless.resources.requests.cpu]: ",
		`{"name":"x","namespace":"default","space_ids":["other"]}`:                                                                         "[request body.space_ids[0]]: ",
		`{"name":"x","namespace":"default","supports_agentless":true}`:                                                                     "supports_agentless is only allowed in serverless",
		`{"name":"x","namespace":"default","required_versions":[{"version":"1.0.0","percentage":101}]}`:                                    "[request body.required_versions[0].percentage]: ",
		`{"name":"x","namespace":"default","required_versions":[{"version":"1.0.0","percentage":50,"soon":true}]}`:                         "[request body.required_versions[0].soon]: ",
		`{"name":"x","namespace":"default","required_versions":[{"version":"one","percentage":5}]}`:                                        `Policy "x" failed required_versions validation: invalid semver version one`,
		`{"name":"x","namespace":"default","required_versions":[{"version":"1.0.0","percentage":0}]}`:                                      `Policy "x" failed required_versions validation: percentage is required`,
		`{"name":"x","namespace":"default","required_versions":[{"version":"1.0.0","percentage":1},{"version":"1.0.0","percentage":2}]}`:   `failed required_versions validation: duplicate versions not allowed`,
		`{"name":"x","namespace":"default","required_versions":[{"version":"1.0.0","percentage":60},{"version":"1.1.0","percentage":60}]}`: `failed required_versions validation: sum of percentages cannot exceed 100`,
		`{"name":"x","namespace":"default","required_versions":[{"version":"9.9.9","percentage":5}]}`:                                      "[request body.required_versions[0].version]: is 9.9.9, and no package of that version is published",
		`{"name":"x","namespace":"default","upgrade_windows":[{"from":"22:00","to":"24:00"}]}`:                                             `[request body.upgrade_windows[0].to]: is "24:00", want a time of day such as 04:00`,
		`{"name":"x","namespace":"default","upgrade_windows":[{"from":"22:00","to":"04:00","days":["Monday"]}]}`:                           "[request body.upgrade_windows[0].days]: ",
		`{"name":"x","namespace":"default","upgrade_windows":[{"from":"22:00","to":"04:00","every":"day"}]}`:                               "[request body.upgrade_windows[0].every]: ",
	} {
		refused(t, "POST "+body, s.Admin("POST", "/api/fleet/agent_policies", body), 400, says)
		if !strings.Contains(body, "bumpRevision") {
			refused(t, "PUT "+body, s.Admin("PUT", "/api/fleet/agent_policies/default", body), 400, says)
		}
	}
	if got := apptest.Decode[adminapi.PolicyList](t, s.Admin("GET", "/api/fleet/agent_policies", nil)); got.Total != 1 || got.Items[0].Revision != 1 {
		t.Errorf("after refusals there are %+v", got)
	}
}

func TestRefusedComponentOfPolicyIsNamed(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	const web = `{"name":"web","runtime":"systemd"}`
	check := func(text string) string {
		return `{"name":"db","runtime":"systemd","health":{"checks":[` + text + `]}}`
	}
	for component, says := range map[string]string{
		`{"runtime":"systemd"}`:              `components[1].name]: is ""`,
		`{"name":"Web","runtime":"systemd"}`: `components[1].name]: is "Web"`,
		web:                                  `components[1].name]: is "web", as is that of another component`,
		`{"name":"db"}`:                      `components[1].runtime]: is ""`,
		`{"name":"db","runtime":"systemd","version":"2.4"}`:                                       `components[1].version]: version is "2.4", want three numbers`,
		`{"name":"db","runtime":"systemd","unit":"db.service"}`:                                   `components[1].unit]: is not a known key`,
		`{"name":"db","runtime":"docker","artifact":{"image":"web:latest"}}`:                      `components[1].artifact.image]: is "web:latest", want an image by its digest`,
		`{"name":"db","runtime":"docker","artifact":{"image":"web@sha256:0123"}}`:                 `components[1].artifact.image]: `,
		`{"name":"db","runtime":"systemd","artifact":{"image":"web@sha256:` + digest + `"}}`:      `components[1].artifact.image]: is "web@sha256:` + digest + `", and the runtime systemd runs no images`,
		`{"name":"db","runtime":"docker","artifact":{"package":"db"}}`:                            `components[1].artifact.package]: is not a known key`,
		`{"name":"db","runtime":"systemd","health":{"wait_seconds":3601}}`:                        `components[1].health.wait_seconds]: is 3601, want 0 to 3600`,
		`{"name":"db","runtime":"systemd","health":{"max_restarts":-1}}`:                          `components[1].health.max_restarts]: is -1`,
		`{"name":"db","runtime":"systemd","variables":{"a-b":"x"}}`:                               `components[1].variables]: have the name "a-b", want a letter`,
		`{"name":"db","runtime":"systemd","variables":{"a":1}}`:                                   `components[1].variables`,
		`{"name":"db","runtime":"systemd","variables":{"a":"` + strings.Repeat("x", 4097) + `"}}`: `components[1].variables]: have 4097 bytes in a, want at most 4096`,
		check(`{"name":"x","exec":["/bin/sh"]}`):                                                  `components[1].health.checks[0].exec]: is not a known key`,
		check(`{"name":"x"}`):                                                                     `components[1].health.checks[0]]: wants exactly one of http and tcp`,
		check(`{"name":"x","http":"http://a","tcp":"a:1"}`):                                       `components[1].health.checks[0]]: wants exactly one of http and tcp`,
		check(`{"name":"x","http":"file:///etc/passwd"}`):                                         `components[1].health.checks[0]]: http is "file:///etc/passwd"`,
		check(`{"name":"x","tcp":"a:1","timeout_seconds":9223372036854775807}`):                   `components[1].health.checks[0].timeout_seconds]: `,
		check(`{"name":"x","tcp":":1"},{"name":"x","tcp":":2"}`):                                  `components[1].health.checks[1].name]: is "x", as is that of another check`,
		check(`{"name":"x","http":"http://169.254.169.254/latest/"}`):                             `components[1].health.checks[0]]: asks another place than the host's loopback addresses`,
		check(`{"name":"x","http":"http://${host.name}/"}`):                                       `components[1].health.checks[0]]: has ${`,
	} {
		body := `{"name":"x","namespace":"default","components":[` + web + "," + component + `]}`
		refused(t, body, s.Admin("POST", "/api/fleet/agent_policies", body), 400, says)
		refused(t, body, s.Admin("PUT", "/api/fleet/agent_policies/default", body), 400, says)
	}
	refused(t, "too many", s.Admin("POST", "/api/fleet/agent_policies", `{"name":"x","namespace":"default","components":[`+strings.Repeat(web+",", 50)+web+`]}`), 400, "[request body.components]: are 51, want at most 50")
	for _, name := range []string{"Components", "COMPONENTS", "componentſ", "Components.0"} {
		refused(t, name, s.Admin("POST", "/api/fleet/agent_policies", `{"name":"x","namespace":"default","overrides":{"`+name+`":[]}}`), 400, "[request body.overrides]: has components")
	}
	refused(t, "in overrides", s.Admin("POST", "/api/fleet/agent_policies", `{"name":"x","namespace":"default","overrides":{"components":[]}}`), 400, "[request body.overrides]: has components")
}

// A component that no agent could run would fail on all hosts of the policy.
func TestComponentOfPolicyFitsItsPackages(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	update := func(components string) apptest.Answer {
		return s.Admin("PUT", "/api/fleet/agent_policies/default", `{"name":"Default policy","namespace":"default","components":[`+components+`]}`)
	}
	accepted := func(what, components string) {
		t.Helper()
		if got := update(components); got.Status != 200 {
			t.Errorf("%s: %d %s", what, got.Status, got.Body)
		}
	}
	const elsewhere = `{"name":"web-server","runtime":"systemd","version":"9.9.9"}`
	refused(t, "an unknown runtime", update(`{"name":"web-server","runtime":"podman"}`), 400, `[request body.components[0].runtime]: is "podman", want process, systemd or docker: no package of component web-server is published`)
	accepted("without packages a version cannot be checked", elsewhere)

	publishComponent(t, s, "2.4.0", "2.5.0")
	accepted("what the policy has already", elsewhere)
	refused(t, "a version that is not there", update(`{"name":"web-server","runtime":"systemd","version":"9.9.8"}`), 400, "[request body.components[0].version]: is 9.9.8, and no package of component web-server is published in it, only 2.5.0, 2.4.0")
	refused(t, "another runtime", update(`{"name":"web-server","runtime":"docker","version":"2.5.0"}`), 400, `[request body.components[0].runtime]: is "docker", and the published packages of component web-server are for systemd`)
	refused(t, "in a new policy", s.Admin("POST", "/api/fleet/agent_policies", `{"name":"x","namespace":"default","components":[`+elsewhere+`]}`), 400, "is 9.9.9, and no package")
	if got := s.Admin("POST", "/api/fleet/agent_policies/default/copy", `{"name":"copy"}`); got.Status != 200 {
		t.Errorf("a copy of a policy answers %d %s", got.Status, got.Body)
	}
	accepted("a published version", `{"name":"web-server","runtime":"systemd","version":"2.5.0"}`)
	accepted("no version", `{"name":"web-server","runtime":"systemd"}`)

	if err := s.Store.Packages().Create(t.Context(), fleet.Package{File: "muster-component-vm-1.0.0-linux-amd64.tar.gz", Version: "1.0.0", Component: "vm", Runtime: "podman", OS: "linux", Arch: "amd64"}); err != nil {
		t.Fatal(err)
	}
	accepted("a runtime that a package has", `{"name":"vm","runtime":"podman"}`)
}

func TestAgentsGetComponentsOfTheirPolicy(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	a := s.EnrollWithoutPolicy("web-01", "1.0.0")
	a.MustCheckin(nil)
	if s.Admin("PUT", "/api/fleet/agent_policies/default", `{"name":"Default policy","namespace":"default",`+components+`}`).Status != 200 {
		t.Fatal("the policy was not changed")
	}
	got := getsRevision(t, a, "policy:default:2")
	var data struct{ Policy map[string]any }
	if err := json.Unmarshal(got.Data, &data); err != nil {
		t.Fatal(err)
	}
	want := object(t, []byte("{"+components+"}"))
	if !reflect.DeepEqual(data.Policy["components"], want["components"]) {
		t.Errorf("the agent gets %v, want %v", data.Policy["components"], want["components"])
	}
	a.Ack("", got.ID)
	if rev := s.Fleet(a.ID).PolicyRev; rev != 2 {
		t.Errorf("the agent has revision %d", rev)
	}
}

// getsRevision checks in until the agent gets a revision of its policy. Check-ins learn of it soon
// after the change has been answered.
func getsRevision(t *testing.T, a *apptest.Agent, id string) agentapi.Action {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; {
		got := a.MustCheckin(nil)
		switch {
		case len(got.Actions) == 1 && got.Actions[0].ID == id:
			return got.Actions[0]
		case time.Now().After(end):
			t.Fatalf("the answer is %+v, want %s", got, id)
		}
	}
}

// The server keeps which version is in force: a request cannot set it, and does not lose it.
func TestOperatorsSetLockstepAndTheServerWhatIsInForce(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	put := func(component string) apptest.Answer {
		return s.Admin("PUT", "/api/fleet/agent_policies/default", `{"name":"Default policy","namespace":"default","components":[`+component+`]}`)
	}
	const web = `{"name":"web","runtime":"process","lockstep":true}`
	inForce := func(what string, got apptest.Answer, want string) {
		t.Helper()
		c := (*apptest.Decode[adminapi.PolicyItem](t, got).Item.Components)[0]
		has := "none"
		if c.InForce != nil {
			has = c.InForce.Version
		}
		if !c.Lockstep || has != want {
			t.Errorf("%s: the component is %+v, in force is %s, want %s", what, c, has, want)
		}
	}
	inForce("with lockstep", put(web), "none")
	const forged = `{"name":"web","runtime":"process","lockstep":true,"in_force":{"version":"6.6.6"}}`
	refused(t, "in_force of an operator", put(forged), 400, "[request body.components[0].in_force]: is set by the server")
	refused(t, "in_force of a new policy", s.Admin("POST", "/api/fleet/agent_policies", `{"name":"x","namespace":"default","components":[`+forged+`]}`), 400, "components[0].in_force]: is set by the server")

	p, err := s.Store.Policies().Get(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	p.Components[0].InForce = &agentapi.ComponentInForce{Version: "1.1.0"}
	if _, err := s.Store.Policies().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	inForce("after another change", put(`{"name":"web","runtime":"process","lockstep":true,"version":"2.0.0"}`), "1.1.0")
	inForce("with what it has", put(`{"name":"web","runtime":"process","lockstep":true,"in_force":{"version":"1.1.0"}}`), "1.1.0")
	refused(t, "with something else", put(`{"name":"web","runtime":"process","lockstep":true,"in_force":{"version":"1.1.0","changing":true}}`), 400, "components[0].in_force]: is set by the server")
	inForce("a copy", s.Admin("POST", "/api/fleet/agent_policies/default/copy", `{"name":"copy"}`), "none")
	put(`{"name":"web","runtime":"process"}`)
	inForce("lockstep off and on again", put(web), "none")
}

func TestVariablesOfComponentsStayOnTheServer(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	a := s.EnrollWithoutPolicy("web-01", "1.0.0")
	a.MustCheckin(nil)
	put := func(components string) adminapi.Policy {
		t.Helper()
		return apptest.Decode[adminapi.PolicyItem](t, s.Admin("PUT", "/api/fleet/agent_policies/default", `{"name":"Default policy","namespace":"default","components":`+components+`}`)).Item
	}
	const db = `{"name":"db","runtime":"process"}`
	put(`[` + db + `,{"name":"web","runtime":"process","variables":{"port":"8080","greeting":"hello-from-vars"}}]`)
	got := getsRevision(t, a, "policy:default:2")
	if strings.Contains(string(got.Data), "hello-from-vars") || !strings.Contains(string(got.Data), `"web"`) {
		t.Errorf("the agent gets %+v", got)
	}
	copied := apptest.Decode[adminapi.PolicyItem](t, s.Admin("POST", "/api/fleet/agent_policies/default/copy", `{"name":"copy"}`)).Item
	read := apptest.Decode[adminapi.PolicyItem](t, s.Admin("GET", "/api/fleet/agent_policies/default", nil)).Item
	for what, p := range map[string]adminapi.Policy{"policy": read, "copy": copied} {
		list := *p.Components
		if list[0].Variables != nil || list[1].Variables == nil || !maps.Equal(list[1].Variables, map[string]string{"port": "8080", "greeting": "hello-from-vars"}) {
			t.Errorf("the %s has %+v", what, list)
		}
	}
	if list := *put(`[{"name":"web","runtime":"process"},` + db + `]`).Components; list[0].Variables != nil || list[1].Variables != nil {
		t.Errorf("left out, they stay: %+v", list)
	}
}

func TestPolicyNamesAreUnique(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for _, id := range []string{"web", "db"} {
		if got := s.Admin("POST", "/api/fleet/agent_policies", fmt.Sprintf(`{"id":%q,"name":%q,"namespace":"default"}`, id, strings.ToUpper(id))); got.Status != 200 {
			t.Fatalf("%s: %d %s", id, got.Status, got.Body)
		}
	}
	const says = "Agent Policy 'web' already exists with name 'WEB'"
	refused(t, "POST", s.Admin("POST", "/api/fleet/agent_policies", `{"name":"WEB","namespace":"default"}`), 409, says)
	refused(t, "PUT", s.Admin("PUT", "/api/fleet/agent_policies/db", `{"name":"WEB","namespace":"default"}`), 409, says)
	refused(t, "copy", s.Admin("POST", "/api/fleet/agent_policies/db/copy", `{"name":"WEB"}`), 409, says)
	if got := s.Admin("PUT", "/api/fleet/agent_policies/web", `{"name":"WEB","namespace":"default","description":"same name"}`); got.Status != 200 {
		t.Errorf("keeping the name: %d %s", got.Status, got.Body)
	}
}

func TestPolicyRevisionGrowsUnlessTheClientSaysNo(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	put := func(more string) adminapi.Policy {
		t.Helper()
		return apptest.Decode[adminapi.PolicyItem](t, s.Admin("PUT", "/api/fleet/agent_policies/default", `{"name":"Default policy","namespace":"default"`+more+`}`)).Item
	}
	if p := put(""); p.Revision != 2 {
		t.Errorf("a change of nothing gives revision %d, want 2", p.Revision)
	}
	if p := put(`,"description":"x","bumpRevision":false`); p.Revision != 2 || *p.Description != "x" {
		t.Errorf("without a bump: %+v", p)
	}
	if p := put(`,"is_managed":true`); p.Revision != 3 || !p.IsManaged {
		t.Errorf("managed: %+v", p)
	}
	refused(t, "a managed policy", s.Admin("PUT", "/api/fleet/agent_policies/default", `{"name":"Default policy","namespace":"default","description":"y"}`), 400, "Cannot update description")
	if p := put(`,"description":"x"`); p.Revision != 4 {
		t.Errorf("the same values for a managed policy: %+v", p)
	}
	if p := put(`,"description":"y","force":true`); *p.Description != "y" {
		t.Errorf("with force: %+v", p)
	}
	trail := string(s.Admin("GET", "/api/v1/audit?subject=default", nil).Body)
	for _, says := range []string{"policy.update", "changed the policy Default policy: description", "changed the policy Default policy: is_managed"} {
		if !strings.Contains(trail, says) {
			t.Errorf("the audit trail lacks %q: %s", says, trail)
		}
	}
	// The trail has the settings after each change, so that revisions can be compared.
	newest := apptest.Decode[adminapi.AuditList](t, s.Admin("GET", "/api/v1/audit?subject=default&verb=policy.update", nil)).Items[0]
	var settings struct {
		Name, Description string
		Revision          int
	}
	if err := json.Unmarshal(newest.Data, &settings); err != nil || settings.Description != "y" || settings.Name != "Default policy" || settings.Revision < 2 {
		t.Errorf("the newest entry has the settings %s", newest.Data)
	}
}

func TestPolicyWithAgentsIsNotDeleted(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Admin("POST", "/api/fleet/agent_policies", `{"id":"web","name":"Web","namespace":"default"}`)
	key := apptest.Decode[adminapi.EnrollmentKeyCreated](t, s.Admin("POST", "/api/fleet/enrollment_api_keys", `{"name":"k","policy_id":"web"}`)).Item
	remove := func(body string) apptest.Answer { return s.Admin("POST", "/api/fleet/agent_policies/delete", body) }

	s.Admin("POST", "/api/fleet/agent_policies", `{"id":"hosted","name":"Hosted","namespace":"default","is_managed":true}`)
	if got := remove(`{"agentPolicyId":"hosted","force":true}`); got.Status != 200 || string(got.Body) != `{"id":"hosted","name":"Hosted"}` {
		t.Errorf("deleting a managed policy by force: %d %s", got.Status, got.Body)
	}

	a := s.Enroll("web-1", "1.0.0")
	stored, err := s.Store.Agents().Get(t.Context(), a.ID)
	if err != nil {
		t.Fatal(err)
	}
	stored.PolicyID = "web"
	if _, err := s.Store.Agents().Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	const assigned = "Cannot delete an agent policy that is assigned to any active or inactive agents"
	refused(t, "with an agent", remove(`{"agentPolicyId":"web"}`), 400, assigned)
	refused(t, "with an agent, by force", remove(`{"agentPolicyId":"web","force":true}`), 400, assigned)
	s.Admin("POST", "/api/fleet/agents/"+a.ID+"/unenroll", `{"revoke":true}`)
	if got := remove(`{"agentPolicyId":"web"}`); got.Status != 200 || string(got.Body) != `{"id":"web","name":"Web"}` {
		t.Errorf("without agents: %d %s", got.Status, got.Body)
	}
	if k := apptest.Decode[adminapi.EnrollmentKeyItem](t, s.Admin("GET", "/api/fleet/enrollment_api_keys/"+key.Id, nil)).Item; k.Active {
		t.Error("the key of a deleted policy still enrols")
	}
	refused(t, "deleted", s.Admin("GET", "/api/fleet/agent_policies/web", nil), 404, "Agent policy not found")
}

func TestPolicyCopyHasSettingsWithoutUpgrades(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	s.Publisher().Publish("1.1.0")
	s.Admin("POST", "/api/fleet/agent_policies", `{"id":"web","name":"Web","namespace":"prod",`+fullPolicy+`}`)
	p := apptest.Decode[adminapi.PolicyItem](t, s.Admin("POST", "/api/fleet/agent_policies/web/copy", `{"name":"Web copy","description":"d"}`)).Item
	if p.Id == "web" || p.Name != "Web copy" || *p.Description != "d" || p.Namespace != "prod" || !p.IsProtected || *p.UnenrollTimeout != 900 || *p.DataOutputId != "o1" || p.RequiredVersions != nil || len(*p.Components) != 2 {
		t.Errorf("the copy is %+v", p)
	}
	refused(t, "without a name", s.Admin("POST", "/api/fleet/agent_policies/web/copy", `{}`), 400, "[request body.name]: ")
	refused(t, "of nothing", s.Admin("POST", "/api/fleet/agent_policies/none/copy", `{"name":"x"}`), 404, "Agent policy not found")
}

func TestPolicyListSortsFiltersAndCounts(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for _, id := range []string{"b", "a", "c"} {
		s.Admin("POST", "/api/fleet/agent_policies", fmt.Sprintf(`{"id":%q,"name":"P%s","namespace":"prod"}`, id, id))
	}
	s.Enroll("web-1", "1.0.0")
	names := func(query string) (string, adminapi.PolicyList) {
		t.Helper()
		l := apptest.Decode[adminapi.PolicyList](t, s.Admin("GET", "/api/fleet/agent_policies?"+query, nil))
		var ids []string
		for _, p := range l.Items {
			ids = append(ids, p.Id)
		}
		return strings.Join(ids, " "), l
	}
	for query, want := range map[string]string{
		"":                                "c a b default",
		"sortField=name&sortOrder=asc":    "default a b c",
		"sortField=name":                  "c b a default",
		"sortField=name&perPage=2&page=2": "a default",
		"perPage=10000&kuery=" + url.QueryEscape("ingest-agent-policies.namespace: prod and not name: Pa"): "c b",
		"sortField=updated_at&sortOrder=asc&full=true&format=legacy":                                       "default b a c",
	} {
		if got, l := names(query); got != want || !strings.Contains(query, "perPage=2") && l.Total != len(l.Items) {
			t.Errorf("%s lists %q of %d, want %q", query, got, l.Total, want)
		}
	}
	for query, want := range map[string]int{"": 1, "noAgentCount=false": 1, "withAgentCount=true": 1, "noAgentCount=true": 0, "withAgentCount=false": 0} {
		_, l := names("kuery=id:default&" + query)
		if len(l.Items) != 1 || l.Items[0].Agents != want {
			t.Errorf("%s counts %+v, want %d", query, l.Items, want)
		}
	}
	for query, says := range map[string]string{
		"sortField=colour": "Unknown sort field colour",
		"sortOrder=up":     "[request query.sortOrder]: ",
		"perPage=10001":    "[request query.perPage]: ",
		"page=0":           "[request query.page]: ",
		"format=short":     "[request query.format]: ",
		"noAgentCount=x":   "[request query.noAgentCount]: ",
		"full=x":           "[request query.full]: ",
		"namespace=prod":   "[request query.namespace]: ",
		"kuery=" + url.QueryEscape("name: (a or"): "Kuery is malformed",
		"withAgentCount=true&noAgentCount=true":   "[request query.noAgentCount]: ",
	} {
		refused(t, query, s.Admin("GET", "/api/fleet/agent_policies?"+query, nil), 400, says)
	}
}

func TestPoliciesAreReadByTheirIDs(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	s.Admin("POST", "/api/fleet/agent_policies", `{"id":"web","name":"Web","namespace":"default"}`)
	read := func(body string) apptest.Answer { return s.Admin("POST", "/api/fleet/agent_policies/_bulk_get", body) }
	got := apptest.Decode[adminapi.PolicyItems](t, read(`{"ids":["web","default"],"full":true}`))
	if len(got.Items) != 2 || got.Items[0].Id != "web" || got.Items[1].Id != "default" {
		t.Errorf("policies are %+v", got)
	}
	if got := apptest.Decode[adminapi.PolicyItems](t, read(`{"ids":["none","web"],"ignoreMissing":true}`)); len(got.Items) != 1 {
		t.Errorf("ignoring the missing: %+v", got)
	}
	refused(t, "a missing one", read(`{"ids":["none","web"]}`), 404, "Agent policy none not found")
	refused(t, "no ids", read(`{"ids":[]}`), 400, "[request body.ids]: array size is [0], but cannot be smaller than [1]")
	refused(t, "an unknown key", read(`{"ids":["web"],"all":true}`), 400, "[request body.all]: ")

	outputs := apptest.Decode[adminapi.PolicyOutputsList](t, s.Admin("POST", "/api/fleet/agent_policies/outputs", `{"ids":["web"]}`))
	if len(outputs.Items) != 1 || *outputs.Items[0].AgentPolicyId != "web" || len(outputs.Items[0].Data.Integrations) != 0 {
		t.Errorf("outputs are %+v", outputs)
	}
	refused(t, "outputs of nothing", s.Admin("POST", "/api/fleet/agent_policies/outputs", `{"ids":["none"]}`), 404, "Agent policy none not found")
	if got := s.Admin("GET", "/api/fleet/agent_policies/web/outputs", nil); got.Status != 200 || !strings.HasPrefix(string(got.Body), `{"item":{"monitoring":`) {
		t.Errorf("outputs of one: %d %s", got.Status, got.Body)
	}
	refused(t, "outputs of nothing", s.Admin("GET", "/api/fleet/agent_policies/none/outputs", nil), 404, "Agent policy not found")
}

func TestPolicyIsShownAsAgentsGetIt(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	full := apptest.Decode[struct{ Item map[string]any }](t, s.Admin("GET", "/api/fleet/agent_policies/default/full", nil)).Item
	if full["id"] != "default" || full["revision"] != 1.0 {
		t.Errorf("the policy is %v", full)
	}
	file := s.Admin("GET", "/api/fleet/agent_policies/default/download?download=true", nil)
	var fromYAML map[string]any
	if err := yaml.Unmarshal(file.Body, &fromYAML); err != nil || file.Header.Get("Content-Type") != "text/x-yaml" || strings.Contains(string(file.Body), `"id"`) {
		t.Errorf("the download is %v %v\n%s", err, file.Header, file.Body)
	}
	again, _ := json.Marshal(fromYAML)
	if !reflect.DeepEqual(object(t, again), full) {
		t.Errorf("the download has %s, the policy %v", again, full)
	}
	if want := `attachment; filename="elastic-agent.yml"`; file.Header.Get("Content-Disposition") != want {
		t.Errorf("the download's headers are %v", file.Header)
	}
	for _, path := range []string{"full", "download"} {
		for _, name := range []string{"standalone", "kubernetes"} {
			refused(t, path, s.Admin("GET", "/api/fleet/agent_policies/default/"+path+"?"+name+"=true", nil), 400, "[request query."+name+"]: ")
		}
		refused(t, path, s.Admin("GET", "/api/fleet/agent_policies/none/"+path, nil), 404, "Agent policy not found")
	}
}

func TestAutoUpgradeStatusCountsVersions(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	for i, v := range []string{"1.0.0", "1.0.0", "1.1.0"} {
		s.Enroll(fmt.Sprint("web-", i), v)
	}
	got := apptest.Decode[adminapi.AutoUpgradeStatus](t, s.Admin("GET", "/api/fleet/agent_policies/default/auto_upgrade_agents_status", nil))
	want := []adminapi.AutoUpgradeVersion{{Version: "1.0.0", Agents: 2}, {Version: "1.1.0", Agents: 1}}
	if got.TotalAgents != 3 || !slices.Equal(got.CurrentVersions, want) {
		t.Errorf("the status is %+v", got)
	}
	got = apptest.Decode[adminapi.AutoUpgradeStatus](t, s.Admin("GET", "/api/fleet/agent_policies/none/auto_upgrade_agents_status", nil))
	if got.TotalAgents != 0 || got.CurrentVersions == nil {
		t.Errorf("of no policy the status is %+v", got)
	}
}

func TestActionsOfAutomaticUpgradesAreMarked(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for id, automatic := range map[string]bool{"by-hand": false, "by-policy": true} {
		_, err := s.Store.Actions().Create(t.Context(), fleet.Action{
			ID: id, Type: agentapi.ActionUpgrade, Data: json.RawMessage(`{"version":"1.1.0"}`), Agents: []string{"a"}, Actioned: 1, CreatedAt: time.Now().UTC(), Automatic: automatic,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	list := apptest.Decode[adminapi.ActionStatusList](t, s.Admin("GET", "/api/fleet/agents/action_status", nil))
	if len(list.Items) != 2 {
		t.Fatalf("actions are %+v", list.Items)
	}
	for _, a := range list.Items {
		if marked := a.IsAutomatic != nil && *a.IsAutomatic; marked != (a.ActionId == "by-policy") {
			t.Errorf("%s: is_automatic is %v", a.ActionId, marked)
		}
	}
}
