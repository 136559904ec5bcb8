package admin_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
)

func TestTrailHasOrdersWithTheirReason(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	a := s.Enroll("web-01", "1.0.0")
	a.MustCheckin(nil)
	if got := s.Admin("POST", a.Path("unenroll")+"?why=scrapped", map[string]bool{"revoke": true}); got.Status != 200 {
		t.Fatalf("answered %d %s", got.Status, got.Body)
	}
	if got := s.Admin("POST", a.Path("unenroll")+"?why="+strings.Repeat("x", 3000), nil); got.Status != 400 || !strings.Contains(string(got.Body), "query.why") {
		t.Errorf("a long reason is answered %d %s", got.Status, got.Body)
	}
	trail := func() []adminapi.AuditEntry {
		return apptest.Decode[adminapi.AuditList](t, s.Admin("GET", "/api/v1/audit", nil)).Items
	}
	before := trail()
	e := before[0]
	if e.Actor != "first key" || e.Verb != "agent.revoke" || e.Why == "" || e.Why != "scrapped" || !strings.Contains(e.Text, a.ID) || e.At.IsZero() {
		t.Errorf("the newest entry is %+v", e)
	}
	one := apptest.Decode[adminapi.AuditList](t, s.Admin("GET", "/api/v1/audit?subject="+e.Subject, nil))
	if one.Total != 1 || one.Items[0].ID != e.ID {
		t.Errorf("the entries about %s are %+v", e.Subject, one)
	}
	for query, want := range map[string]int{
		"actor=first+key&verb=agent&q=" + strings.ToUpper(a.ID): 1, "actor=first+key&verb=agent.revoke&q=scrapped": 1, "actor=nobody": 0,
		"people=true&q=scrapped": 1, "people=true&actor=muster": 0, "verb=agent.revok": 0, "q=scrapped&until=2020-01-01T00:00:00Z": 0, "q=scrapped&since=2020-01-01T00:00:00Z": 1,
	} {
		if got := apptest.Decode[adminapi.AuditList](t, s.Admin("GET", "/api/v1/audit?"+query, nil)); got.Total != want || len(got.Items) != want {
			t.Errorf("%s selects %d of %+v, want %d", query, got.Total, before, want)
		}
	}
	for query, field := range map[string]string{"people=perhaps": "query.people", "since=yesterday": "query.since", "until=1": "query.until", "q=" + strings.Repeat("a+", 11): "query.q", "q=" + strings.Repeat("a", 201): "query.q"} {
		if got := s.Admin("GET", "/api/v1/audit?"+query, nil); got.Status != 400 || !strings.Contains(string(got.Body), field) {
			t.Errorf("%s is answered %d %s", query, got.Status, got.Body)
		}
	}
	// What is refused has changed nothing.
	s.Admin("POST", a.Path("upgrade"), map[string]string{"version": "9.9.9"})
	s.Admin("DELETE", "/api/v1/packages/none.tar.gz", nil)
	if after := trail(); len(after) != len(before) {
		t.Errorf("refused calls stand in the trail: %+v", after[:len(after)-len(before)])
	}
}

func TestTrailSaysWhatChangedOfAnObject(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	do := func(method, path, body string) {
		t.Helper()
		if got := s.Admin(method, path, body); got.Status != 200 && got.Status != 201 {
			t.Fatalf("%s %s is answered %d %s", method, path, got.Status, got.Body)
		}
	}
	do("POST", "/api/fleet/proxies", `{"id":"p","name":"p","url":"http://p:1","proxy_headers":{"Authorization":"hush"},"certificate_key":"hush"}`)
	do("PUT", "/api/fleet/proxies/p", `{"url":"http://p:2","proxy_headers":{"Authorization":"hush hush"},"certificate_key":"hush hush"}`)
	do("POST", "/api/fleet/agent_download_sources", `{"id":"d","name":"d","host":"https://d","ssl":{"certificate":"c","key":"hush"}}`)
	do("PUT", "/api/fleet/agent_download_sources/d", `{"name":"d","host":"https://ann:hush@d","ssl":{"certificate":"c","key":"hush hush"}}`)
	do("POST", "/api/fleet/fleet_server_hosts", `{"id":"h","name":"h","host_urls":["https://h:8220"],"ssl":{"key":"hush"}}`)
	do("PUT", "/api/fleet/fleet_server_hosts/h", `{"name":"i","host_urls":["https://h:8220","https://i:8220"],"ssl":{"key":"hush hush"}}`)
	do("POST", "/api/fleet/outputs", `{"id":"o","name":"o","type":"remote_elasticsearch","hosts":["https://o:9200"],"service_token":"hush","kibana_api_key":"hush"}`)
	do("PUT", "/api/fleet/outputs/o", `{"service_token":"hush hush","config_yaml":"password: hush","preset":"latency"}`)
	do("POST", "/api/fleet/agent_policies", `{"id":"web","name":"Web","namespace":"default"}`)
	do("PUT", "/api/fleet/agent_policies/web", `{"name":"Web","namespace":"default","data_output_id":"o","overrides":{"agent":{"password":"hush"}}}`)
	do("PUT", "/api/v1/exposure", `{"enabled":true,"percent":7,"healthy_hours":100}`)
	do("PUT", "/api/v1/exposure", `{"enabled":true,"percent":9,"healthy_hours":100}`)
	do("POST", "/api/v1/freezes", `{"name":"holidays","from":"2098-01-01T00:00:00Z","to":"2098-01-02T00:00:00Z"}`)
	freezes, _, err := s.Store.Freezes().List(t.Context(), 0, 0)
	if err != nil || len(freezes) != 1 {
		t.Fatalf("the freezes are %+v, %v", freezes, err)
	}
	do("PUT", "/api/v1/freezes/"+freezes[0].ID, `{"name":"holidays","from":"2098-01-01T00:00:00Z","to":"2098-01-03T00:00:00Z"}`)
	do("POST", "/api/v1/views", `{"page":"agents","name":"edge","search":"kuery=a"}`)
	do("POST", "/api/v1/views", `{"page":"agents","name":"edge","search":"kuery=b"}`)

	all := s.Admin("GET", "/api/v1/audit?perPage=100", nil)
	if strings.Contains(string(all.Body), "hush") {
		t.Errorf("a secret is in the trail: %s", all.Body)
	}
	newest := map[string]adminapi.AuditEntry{}
	for _, e := range apptest.Decode[adminapi.AuditList](t, all).Items {
		if _, ok := newest[e.Verb]; !ok {
			newest[e.Verb] = e
		}
	}
	for verb, want := range map[string]string{
		"proxy.update":             `[{"field":"certificate_key","hidden":true},{"field":"proxy_headers.Authorization","hidden":true},{"after":"http://p:2","before":"http://p:1","field":"url"}]`,
		"download_source.update":   `[{"field":"host","hidden":true},{"field":"ssl.key","hidden":true}]`,
		"fleet_server_host.update": `[{"after":"[\"https://h:8220\",\"https://i:8220\"]","before":"[\"https://h:8220\"]","field":"host_urls"},{"after":"i","before":"h","field":"name"},{"field":"ssl.key","hidden":true}]`,
		"output.update":            `[{"field":"config_yaml","hidden":true},{"after":"latency","before":"balanced","field":"preset"},{"field":"service_token","hidden":true}]`,
		"policy.update":            `[{"after":"o","field":"data_output_id"},{"field":"overrides.agent.password","hidden":true}]`,
		"exposure.set":             `[{"after":"9","before":"7","field":"percent"}]`,
		"freeze.change":            `[{"after":"2098-01-03T00:00:00Z","before":"2098-01-02T00:00:00Z","field":"to"}]`,
		"view.save":                `[{"after":"kuery=b","before":"kuery=a","field":"search"}]`,
	} {
		e := newest[verb]
		var data struct{ Changes any }
		_ = json.Unmarshal(e.Data, &data)
		if got, _ := json.Marshal(data.Changes); string(got) != want {
			t.Errorf("%s (%s) says that it changed %s, want %s", verb, e.Text, got, want)
		}
	}
	if text := newest["output.update"].Text; !strings.HasSuffix(text, "changed the output o: config_yaml, preset, service_token") {
		t.Errorf("the text is %q", text)
	}
}
