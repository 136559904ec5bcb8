package admin_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
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
		if got.Component != "web-server" || got.Version != "2.5.0" || got.ContentHash != m.ContentHash || m.Component == "" || len(m.ConfigFiles) != 1 || len(got.Items) != 2 {
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

// allowRendering lets the server write a file of web-server 2.5.0, which is published, from a
// template. setPort sets a variable of the policy, which allows it too.
func allowRendering(t *testing.T, s *apptest.Server, template string) (setPort func(string)) {
	t.Helper()
	pkg, err := s.Store.Packages().Get(t.Context(), "muster-component-web-server-2.5.0-linux-amd64.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	pkg.ServerFiles = []string{"/etc/web/web.conf"}
	if _, err := s.Store.Packages().Update(t.Context(), pkg); err != nil {
		t.Fatal(err)
	}
	writeManifest(t, s, template)
	return func(port string) {
		t.Helper()
		p, err := s.Store.Policies().Get(t.Context(), fleet.DefaultPolicyID)
		if err != nil {
			t.Fatal(err)
		}
		p.Components = []agentapi.PolicyComponent{{Name: "web-server", Runtime: "systemd", ServerConfig: true}}
		p.ComponentVariables = map[string]map[string]string{"web-server": {"port": port}}
		if _, err := s.Store.Policies().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
}

// ofManifest is a plan of an upgrade manifest for all hosts but those excluded.
func ofManifest(exclude ...string) map[string]any {
	return map[string]any{"plan": map[string]any{
		"name": "spring", "profile": "edge", "upgrade_id": "web", "select": map[string]any{"all": true, "exclude_agents": append([]string{}, exclude...)}, "strategy": map[string]any{"kind": "all_at_once"},
	}}
}

// The preview of a draft has the differences of each target, which its hash pins.
func TestRolloutPreviewShowsConfigurationOfEachTarget(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	publishComponent(t, s, "2.5.0")
	setPort := allowRendering(t, s, "# {{.Host.hostname}}\nport {{.Vars.port}}\n")
	setPort("80")
	a, b, done, out := enrollWithComponent(s, "web-01"), enrollWithComponent(s, "web-02"), enrollWithComponent(s, "web-03"), enrollWithComponent(s, "web-04")
	r := made[adminapi.Rollout](t, s.Admin("POST", "/api/v1/rollouts", ofManifest(out.ID)))
	path := "/api/v1/rollouts/" + r.ID
	configs := func(p adminapi.RolloutPreview, query string) apptest.Answer {
		t.Helper()
		return s.Admin("GET", path+"/previews/"+p.Hash+"/configs"+query, nil)
	}
	first := made[adminapi.RolloutPreview](t, s.Admin("POST", path+"/preview", nil))
	for _, target := range first.Targets { // web-03 has all that it would get, and web-01 other files
		for _, agent := range []*apptest.Agent{a, done} {
			if target.AgentID == agent.ID {
				agent.Components[0] = apptest.Component("web-server", "2.5.0")
				agent.Components[0].ConfigSHA256, agent.Components[0].RenderedSHA256 = digest, target.Config
			}
		}
	}
	a.Components[0].RenderedSHA256 = digest
	a.MustCheckin(nil)
	done.MustCheckin(nil)

	pre := made[adminapi.RolloutPreview](t, s.Admin("POST", path+"/preview", nil))
	if len(pre.Targets) != 2 || len(pre.Skipped) != 1 || pre.Skipped[0].AgentID != done.ID || pre.Skipped[0].Code != "runs_version" {
		t.Fatalf("targets are %+v, left out are %+v", pre.Targets, pre.Skipped)
	}
	all := apptest.Decode[adminapi.ConfigPreviewList](t, configs(pre, ""))
	if len(all.Items) != 2 || all.Total != 2 || all.Page != 1 || all.PerPage != 20 {
		t.Fatalf("%+v", all)
	}
	for i, item := range all.Items {
		target := pre.Targets[i]
		want := "--- /dev/null\n+++ /etc/web/web.conf\t0640\n@@ -0,0 +1,2 @@\n+# " + target.Hostname + "\n+port 80\n"
		if item.AgentId != target.AgentID || item.Hostname != target.Hostname || item.Error != nil || item.Diff == nil || *item.Diff != want || *item.RenderedSha256 != target.Config {
			t.Errorf("%s: %+v, want %s", target.Hostname, item, want)
		}
	}
	second := apptest.Decode[adminapi.ConfigPreviewList](t, configs(pre, "?page=2&perPage=1"))
	if len(second.Items) != 1 || second.Total != 2 || second.Items[0].AgentId != pre.Targets[1].AgentID {
		t.Errorf("the second page is %+v", second)
	}
	one := apptest.Decode[adminapi.ConfigPreviewList](t, configs(pre, "?agent="+b.ID))
	if len(one.Items) != 1 || one.Total != 1 || one.Items[0].AgentId != b.ID {
		t.Errorf("of web-02: %+v", one)
	}
	refused(t, "a host that is not enrolled", configs(pre, "?agent="+b.ID+"&agent=nobody"), 400, `[request query.agent]: is "nobody", which is not enrolled`)
	refused(t, "a host that is left out", configs(pre, "?agent="+done.ID), 400, "which is left out: runs 2.5.0 already")
	refused(t, "a host that the plan excludes", configs(pre, "?agent="+out.ID), 400, "which the plan did not select")
	refused(t, "too many", configs(pre, "?perPage=101"), 400, `query.perPage]: is "101", want a number from 1 to 100`)
	refused(t, "another preview", s.Admin("GET", path+"/previews/sha256:none/configs", nil), 404, "preview sha256:none is not kept")
	refused(t, "another rollout", s.Admin("GET", "/api/v1/rollouts/none/previews/"+pre.Hash+"/configs", nil), 404, "is not of rollout none")

	// What the hash pins can no longer be had.
	setPort("8080")
	s.Admin("DELETE", "/api/fleet/agents/"+b.ID, nil)
	for _, item := range apptest.Decode[adminapi.ConfigPreviewList](t, configs(pre, "")).Items {
		want := map[string]string{a.ID: "its files are others by now than in the preview", b.ID: "is not enrolled any more"}[item.AgentId]
		if item.Diff != nil || item.RenderedSha256 != nil || item.Error == nil || !strings.Contains(*item.Error, want) {
			t.Errorf("%s: %+v, want %q", item.Hostname, item, want)
		}
	}

	plain := made[adminapi.Rollout](t, s.Admin("POST", "/api/v1/rollouts", slow("2.5.0", map[string]any{"component": "web-server", "name": "plain", "force": true})))
	path = "/api/v1/rollouts/" + plain.ID
	refused(t, "a plan without files", configs(made[adminapi.RolloutPreview](t, s.Admin("POST", path+"/preview", nil)), ""), 400, "names rollout “plain” ("+plain.ID+"), whose targets get no configuration files from the server")
}

// From the template to the host: the rollout's preview covers the files, the order has them,
// and the next preview compares with them.
func TestRolloutOfManifestWritesConfiguration(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	publishComponent(t, s, "2.5.0")
	setPort := allowRendering(t, s, "# {{.Host.hostname}}\nport {{.Vars.port}}\n")
	a := enrollWithComponent(s, "web-01")
	setPort("80")
	r := made[adminapi.Rollout](t, s.Admin("POST", "/api/v1/rollouts", ofManifest()))
	if r.Plan.Component == "" || r.Plan.Component != "web-server" {
		t.Fatalf("the plan is %+v", r.Plan)
	}
	path := "/api/v1/rollouts/" + r.ID
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
	a.Components[0].RenderedSHA256 = pre.Targets[0].Config
	a.MustCheckin(nil)
	setPort("9090")
	got := apptest.Decode[adminapi.ConfigPreview](t, s.Admin("POST", "/api/v1/upgrade_manifests/edge/web/config_preview", map[string]any{"agents": []string{a.ID}}))
	if i := got.Items[0]; i.Diff == nil || *i.Diff != "--- /etc/web/web.conf\n+++ /etc/web/web.conf\n@@ -1,2 +1,2 @@\n # web-01\n-port 8080\n+port 9090\n" {
		t.Errorf("the next preview shows %+v", i)
	}
}
