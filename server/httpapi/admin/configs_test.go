package admin_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
)

// writeManifest writes a manifest of web-server with one template.
func writeManifest(t *testing.T, s *apptest.Server, template string) {
	t.Helper()
	for name, text := range map[string]string{
		"web.yaml":          "component: web-server\nversion: 2.5.0\nconfig_files: [{path: /etc/web/web.conf, template: web/web.conf.tmpl, mode: \"0640\"}]\nvariable_overrides: {workers: \"4\"}\n",
		"web/web.conf.tmpl": template, "agents.yaml": "version: 1.1.0\n",
	} {
		path := filepath.Join(s.Data, "upgrades", "edge", filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConfigPreviewShowsDiffOfEachHost(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	writeManifest(t, s, "# {{.Host.hostname}}\nport {{.Vars.port}}\nworkers {{.Vars.workers}}\nsite {{.Labels.site}}\n")
	a, b := enrollWithComponent(s, "web-01"), enrollWithComponent(s, "web-02")
	if got := s.Admin("PUT", "/api/fleet/agents/"+a.ID, `{"tags":["site=fra"]}`); got.Status != 200 {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	if got := s.Admin("PUT", "/api/fleet/agent_policies/default", `{"name":"Default policy","namespace":"default","components":[{"name":"web-server","runtime":"systemd","server_config":true,"variables":{"port":"80","workers":"2"}}]}`); got.Status != 200 {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	const path = "/api/v1/upgrade_manifests/edge/web/config_preview"
	for _, agents := range []any{[]string{a.ID, b.ID}, "local_metadata.host.hostname: web*"} {
		got := apptest.Decode[adminapi.ConfigPreview](t, s.Admin("POST", path, map[string]any{"agents": agents}))
		m := apptest.Decode[adminapi.UpgradeManifestItem](t, s.Admin("GET", "/api/v1/upgrade_manifests/edge/web", nil)).Item
		if got.Component != "web-server" || got.Version != "2.5.0" || got.ContentHash != m.ContentHash || m.Component == nil || len(*m.ConfigFiles) != 1 || len(got.Items) != 2 {
			t.Fatalf("%+v of %+v", got, m)
		}
		slices.SortFunc(got.Items, func(x, y adminapi.ConfigPreviewItem) int { return strings.Compare(x.Hostname, y.Hostname) })
		want := "--- /dev/null\n+++ /etc/web/web.conf\t0640\n@@ -0,0 +1,4 @@\n+# web-01\n+port 80\n+workers 4\n+site fra\n"
		if i := got.Items[0]; i.AgentId != a.ID || i.Hostname != "web-01" || i.Error != nil || i.Diff == nil || *i.Diff != want || i.RenderedSha256 == nil {
			t.Errorf("%+v", i)
		}
		if i := got.Items[1]; i.Diff != nil || i.Error == nil || !strings.HasPrefix(*i.Error, `web/web.conf.tmpl:4: .Labels.site: map has no entry for key "site" (host web-02)`) {
			t.Errorf("%+v", i)
		}
	}
}

func TestConfigPreviewIsRefused(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	writeManifest(t, s, "\n{{.Vars.port")
	a := enrollWithComponent(s, "web-01")
	preview := func(id string, agents any) apptest.Answer {
		return s.Admin("POST", "/api/v1/upgrade_manifests/edge/"+id+"/config_preview", map[string]any{"agents": agents})
	}
	refused(t, "a template with an error", preview("web", []string{a.ID}), 400, "edge/web.yaml cannot be used: web/web.conf.tmpl:2: unclosed action")
	refused(t, "no files", preview("agents", []string{a.ID}), 400, "edge/agents, which has no config_files")
	refused(t, "no manifest", preview("none", []string{a.ID}), 404, "there is no upgrade manifest edge/none")
	writeManifest(t, s, "")
	refused(t, "an unknown agent", preview("web", []string{a.ID, "x"}), 400, `body.agents[1]]: is "x", which is not enrolled`)
	refused(t, "nobody", preview("web", []string{}), 400, "body.agents]: selects no agents")
	many := []string{}
	for i := range 101 {
		many = append(many, fmt.Sprint("x", i))
	}
	refused(t, "too many", preview("web", many), 400, "body.agents]: selects 101 agents, at most 100 are rendered: choose some of them")
	refused(t, "neither", preview("web", 7), 400, "body.agents]: want a list of agent ids, or a query")
}

// From the template to the host: the rollout's preview covers the files, the order has them,
// and the next preview compares with them.
func TestRolloutOfManifestWritesConfiguration(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	publishComponent(t, s, "2.5.0")
	file := "muster-component-web-server-2.5.0-linux-amd64.tar.gz"
	pkg, err := s.Store.Packages().Get(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	pkg.ServerFiles = []string{"/etc/web/web.conf"}
	if err := s.Store.Packages().Update(t.Context(), pkg); err != nil {
		t.Fatal(err)
	}
	writeManifest(t, s, "# {{.Host.hostname}}\nport {{.Vars.port}}\n")
	a := enrollWithComponent(s, "web-01")
	setPort := func(port string) {
		t.Helper()
		p, err := s.Store.Policies().Get(t.Context(), fleet.DefaultPolicyID)
		if err != nil {
			t.Fatal(err)
		}
		p.Components = []agentapi.PolicyComponent{{Name: "web-server", Runtime: "systemd", ServerConfig: true}}
		p.ComponentVariables = map[string]map[string]string{"web-server": {"port": port}}
		if err := s.Store.Policies().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	setPort("80")
	draft := map[string]any{"plan": map[string]any{"name": "spring", "profile": "edge", "upgrade_id": "web", "select": map[string]any{"all": true}, "strategy": map[string]any{"kind": "all_at_once"}}}
	r := made[adminapi.Rollout](t, s.Admin("POST", "/api/v1/rollouts", draft))
	if r.Plan.Component == nil || *r.Plan.Component != "web-server" {
		t.Fatalf("the plan is %+v", r.Plan)
	}
	path := "/api/v1/rollouts/" + r.Id
	old := made[adminapi.RolloutPreview](t, s.Admin("POST", path+"/preview", nil))
	setPort("8080")
	refused(t, "a variable changed after the preview", s.Admin("POST", path+"/start", map[string]any{"hash": old.Hash}), 409, "changed")
	pre := made[adminapi.RolloutPreview](t, s.Admin("POST", path+"/preview", nil))
	made[adminapi.Rollout](t, s.Admin("POST", path+"/start", map[string]any{"hash": pre.Hash}))

	var files []agentapi.RenderedFile
	apptest.Eventually(t, "the order", func() string {
		for _, act := range a.MustCheckin(nil).Actions {
			var data agentapi.UpgradeData
			if act.Type == agentapi.ActionUpgrade && json.Unmarshal(act.Data, &data) == nil && data.Component != nil {
				files = data.Component.Files
			}
		}
		if files == nil {
			return "the host has none"
		}
		return ""
	})
	if f := files[0]; len(files) != 1 || f.Path != "/etc/web/web.conf" || f.Mode != "0640" || f.Content != "# web-01\nport 8080\n" {
		t.Errorf("the host gets %+v", files)
	}
	a.Components[0] = apptest.Component("web-server", "2.5.0")
	a.Components[0].RenderedSHA256 = *pre.Targets[0].Config
	a.MustCheckin(nil)
	setPort("9090")
	got := apptest.Decode[adminapi.ConfigPreview](t, s.Admin("POST", "/api/v1/upgrade_manifests/edge/web/config_preview", map[string]any{"agents": []string{a.ID}}))
	if i := got.Items[0]; i.Diff == nil || *i.Diff != "--- /etc/web/web.conf\n+++ /etc/web/web.conf\n@@ -1,2 +1,2 @@\n # web-01\n-port 8080\n+port 9090\n" {
		t.Errorf("the next preview shows %+v", i)
	}
}
