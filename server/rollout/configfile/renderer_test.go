package configfile_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/configfile"
	"github.com/muster-fleet/muster/server/rollout/upgrademanifest"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// world has a folder of upgrade manifests, a store with packages and actions, and a policy.
type world struct {
	t        testing.TB
	dir      string
	store    store.Store
	renderer *configfile.Renderer
	policy   fleet.Policy
}

const webConf = `# {{.Component.name}} {{.Component.version}} on {{.Host.hostname}}, {{.Host.os}}/{{.Host.arch}}
listen {{.Host.ip}}:{{.Vars.port}}
workers {{.Vars.workers}}
site {{.Labels.site}}
agent {{.Agent.id}} {{.Agent.version}} {{.Agent.policy}}
`

func newWorld(t testing.TB) *world {
	w := &world{t: t, dir: t.TempDir(), store: sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))}
	w.renderer = &configfile.Renderer{
		UpgradeManifests: upgrademanifest.Dir{Path: w.dir}, Actions: w.store.Actions(),
		Packages: func(ctx context.Context, component string) (fleet.Catalog, error) {
			all, _, err := w.store.Packages().List(ctx, 0, 0)
			return fleet.OfComponent(all, component), err
		},
	}
	w.policy = fleet.Policy{
		ID: "web", Components: []agentapi.PolicyComponent{{Name: "db"}, {Name: "web", ServerConfig: true}},
		ComponentVariables: map[string]map[string]string{"web": {"port": "80", "workers": "2"}, "db": {"port": "5432"}},
	}
	w.write("edge/2.0.0.yaml", "component: web\nversion: 2.0.0\nconfig_files:\n- {path: /etc/web/web.conf, template: 2.0.0/web.conf.tmpl, mode: \"0640\"}\nvariable_overrides: {workers: \"4\"}\n")
	w.write("edge/2.0.0/web.conf.tmpl", webConf)
	w.publish(fleet.Package{File: "web-2.0.0-linux-amd64", Component: "web", Version: "2.0.0", OS: "linux", Arch: "amd64", ServerFiles: []string{"/etc/web/"}})
	return w
}

func (w *world) write(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) publish(p fleet.Package) {
	w.t.Helper()
	if err := w.store.Packages().Create(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) render(a fleet.Agent) ([]agentapi.RenderedFile, error) {
	return w.renderer.RenderFor(w.t.Context(), plan, w.policy, &a)
}

func (w *world) preview(p fleet.Plan, agents ...fleet.Agent) ([]configfile.HostPreview, error) {
	return w.renderer.Preview(w.t.Context(), p, map[string]fleet.Policy{"web": w.policy}, agents)
}

func (w *world) refuses(a fleet.Agent, kind fleet.Kind, want string) {
	w.t.Helper()
	if files, err := w.render(a); fleet.KindOf(err) != kind || !strings.Contains(err.Error(), want) {
		w.t.Errorf("%+v, %s %v, want %s %q", files, fleet.KindOf(err), err, kind, want)
	}
}

var plan = fleet.Plan{Profile: "edge", UpgradeID: "2.0.0", Version: "2.0.0"}

func host(name, arch string, ips ...string) fleet.Agent {
	var meta struct {
		Host map[string]any    `json:"host"`
		OS   map[string]string `json:"os"`
	}
	meta.Host = map[string]any{"hostname": name, "architecture": arch, "ip": ips}
	meta.OS = map[string]string{"type": "linux", "platform": "debian"}
	return fleet.Agent{ID: "id-" + name, Active: true, Version: "1.4.0", PolicyID: "web", Tags: []string{"site=fra"}, LocalMetadata: event.Data(meta)}
}

func TestHostGetsFilesOfPolicyManifestAndItself(t *testing.T) {
	w := newWorld(t)
	got, err := w.render(host("web-01", "x86_64", "127.0.0.1/8", "::1/128", "fe80::1/64", "2001:db8::7/64", "10.0.0.7/24"))
	if err != nil || len(got) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	want := "# web 2.0.0 on web-01, linux/amd64\nlisten 10.0.0.7:80\nworkers 4\nsite fra\nagent id-web-01 1.4.0 web\n"
	if got[0].Content != want || got[0].Path != "/etc/web/web.conf" || got[0].Mode != "0640" {
		t.Errorf("%+v, want %s", got[0], want)
	}
	again, err := w.render(host("web-01", "x86_64", "10.0.0.7"))
	if err != nil || w.renderer.Digest(again) != w.renderer.Digest(got) {
		t.Errorf("the same host gets %+v, %v", again, err)
	}
	other, err := w.render(host("web-02", "x86_64", "2001:db8::7"))
	if err != nil || !strings.Contains(other[0].Content, "listen 2001:db8::7:80") || w.renderer.Digest(other) == w.renderer.Digest(got) {
		t.Errorf("the other host gets %+v, %v", other, err)
	}
}

func TestVariablesOfThePlanAreOverThePolicysAndBelowTheManifests(t *testing.T) {
	w := newWorld(t)
	a, p := host("web-01", "x86_64", "10.0.0.7"), plan
	p.Variables = map[string]string{"port": "8443", "workers": "9"}
	got, err := w.renderer.RenderFor(t.Context(), p, w.policy, &a)
	if err != nil || len(got) != 1 || !strings.Contains(got[0].Content, "listen 10.0.0.7:8443\nworkers 4\n") {
		t.Fatalf("%+v, %v", got, err)
	}
	// The same templates of another plan, and of none.
	p.Variables = map[string]string{"port": "81"}
	if got, err = w.renderer.RenderFor(t.Context(), p, w.policy, &a); err != nil || !strings.Contains(got[0].Content, "listen 10.0.0.7:81\n") {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = w.render(a); err != nil || !strings.Contains(got[0].Content, "listen 10.0.0.7:80\n") || w.policy.ComponentVariables["web"]["port"] != "80" {
		t.Errorf("%+v, %v, the policy has %v", got, err, w.policy.ComponentVariables)
	}
}

func TestPlanWithoutTemplatesRendersNothing(t *testing.T) {
	w := newWorld(t)
	w.write("edge/1.0.0.yaml", "component: web\nversion: 1.0.0\n")
	w.policy.Components = nil
	for _, p := range []fleet.Plan{{}, {Profile: "edge", UpgradeID: "1.0.0", Version: "1.0.0"}} {
		a := host("web-01", "x86_64")
		if files, err := w.renderer.RenderFor(t.Context(), p, w.policy, &a); err != nil || files != nil {
			t.Errorf("%+v, %v", files, err)
		}
	}
}

// What the host would refuse, or could not be given, is refused at the preview.
func TestFilesThatHostsWouldRefuseAreRefusedBefore(t *testing.T) {
	w := newWorld(t)
	web := host("web-01", "x86_64", "10.0.0.7")

	w.refuses(host("web-02", "x86_64"), fleet.Invalid, `2.0.0/web.conf.tmpl:2: .Host.ip: map has no entry for key "ip" (host web-02)`)
	delete(w.policy.ComponentVariables["web"], "port")
	w.refuses(web, fleet.Invalid, `2.0.0/web.conf.tmpl:2: .Vars.port: map has no entry for key "port" (host web-01): set it in variables`)
	w.policy.Components[1].ServerConfig = false
	w.refuses(web, fleet.Invalid, "does not let the server write configuration: set server_config of web in the policy web (host web-01)")
	w.policy.Components = w.policy.Components[:1]
	w.refuses(web, fleet.Invalid, "policy web has no component web (host web-01)")

	w = newWorld(t)
	w.publish(fleet.Package{File: "web-2.0.0-linux-arm64", Component: "web", Version: "2.0.0", OS: "linux", Arch: "arm64", ServerFiles: []string{"/etc/web/other.conf"}})
	w.refuses(host("web-03", "aarch64", "10.0.0.7"), fleet.Invalid, "/etc/web/web.conf: the publishers of web do not let a server write it: name it in server-files of the package (web-2.0.0-linux-arm64, host web-03)")
	if _, err := w.render(web); err != nil {
		t.Errorf("the package of another platform refuses: %v", err)
	}
	elsewhere, arm := plan, host("web-03", "aarch64", "10.0.0.7")
	elsewhere.SourceURI = "https://packages.example.com"
	if _, err := w.renderer.RenderFor(t.Context(), elsewhere, w.policy, &arm); err != nil {
		t.Errorf("a published package refuses files for one from elsewhere: %v", err)
	}
}

func TestTemplateThatChangedAfterThePreviewIsRefused(t *testing.T) {
	w := newWorld(t)
	m, err := upgrademanifest.Dir{Path: w.dir}.Get(t.Context(), "edge", "2.0.0")
	if err != nil {
		t.Fatal(err)
	}
	pinned := plan
	pinned.UpgradeManifestHash = m.ContentHash
	web := host("web-01", "x86_64", "10.0.0.7")
	before, err := w.renderer.RenderFor(t.Context(), pinned, w.policy, &web)
	if err != nil {
		t.Fatal(err)
	}
	w.write("edge/2.0.0/web.conf.tmpl", webConf+"debug\n")
	// This server still has the templates that the plan pins. Another one refuses.
	if after, err := w.renderer.RenderFor(t.Context(), pinned, w.policy, &web); err != nil || !reflect.DeepEqual(after, before) {
		t.Errorf("%+v, %v, want %+v", after, err, before)
	}
	another := configfile.Renderer{UpgradeManifests: w.renderer.UpgradeManifests, Packages: w.renderer.Packages}
	if files, err := another.RenderFor(t.Context(), pinned, w.policy, &web); fleet.KindOf(err) != fleet.Conflict || !strings.Contains(err.Error(), "edge/2.0.0 or one of its templates was changed meanwhile") {
		t.Errorf("%+v, %v", files, err)
	}
	if files, err := w.render(web); err != nil || !strings.HasSuffix(files[0].Content, "\ndebug\n") {
		t.Errorf("a new plan gets %+v, %v", files, err)
	}
}

// A server that kept the templates of all plans would grow without end.
func TestPlansInMemoryAreBounded(t *testing.T) {
	w := newWorld(t)
	reads := 0
	w.renderer.UpgradeManifests = counted{w.renderer.UpgradeManifests, &reads}
	a := host("web-01", "x86_64", "10.0.0.7")
	render := func(i int) {
		t.Helper()
		m, err := upgrademanifest.Dir{Path: w.dir}.Get(t.Context(), "edge", fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		p := fleet.Plan{Profile: "edge", UpgradeID: fmt.Sprint(i), UpgradeManifestHash: m.ContentHash, Version: "2.0.0"}
		if _, err := w.renderer.RenderFor(t.Context(), p, w.policy, &a); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 11 {
		w.write(fmt.Sprintf("edge/%d.yaml", i), fmt.Sprintf("component: web\nversion: 2.0.0\ndescription: \"%d\"\nconfig_files: [{path: /etc/web/web.conf, template: 2.0.0/web.conf.tmpl}]\nvariable_overrides: {workers: \"4\"}\n", i))
	}
	for range 2 {
		for i := range 10 {
			render(i)
		}
	}
	if reads != 10 {
		t.Errorf("ten plans were read %d times", reads)
	}
	render(10)
	if render(0); reads != 12 {
		t.Errorf("%d reads, want the first plan to be read again", reads)
	}
}

type counted struct {
	configfile.UpgradeManifests
	reads *int
}

func (c counted) Templates(ctx context.Context, profile, id string) (*configfile.Templates, error) {
	*c.reads++
	return c.UpgradeManifests.Templates(ctx, profile, id)
}

// A preview of a large fleet reads templates once and packages seldom, and a push is noticed.
func TestPlanIsReadOnceForItsTargets(t *testing.T) {
	w := newWorld(t)
	now, reads := time.Now(), 0
	packages := w.renderer.Packages
	w.renderer.Now = func() time.Time { return now }
	w.renderer.Packages = func(ctx context.Context, component string) (fleet.Catalog, error) {
		reads++
		return packages(ctx, component)
	}
	m, err := upgrademanifest.Dir{Path: w.dir}.Get(t.Context(), "edge", "2.0.0")
	if err != nil {
		t.Fatal(err)
	}
	pinned := plan
	pinned.UpgradeManifestHash = m.ContentHash
	a := host("web-01", "aarch64", "10.0.0.7")
	render := func() error {
		_, err := w.renderer.RenderFor(t.Context(), pinned, w.policy, &a)
		return err
	}
	for range 100 {
		if err := render(); err != nil {
			t.Fatal(err)
		}
	}
	if reads != 1 {
		t.Errorf("packages were read %d times", reads)
	}
	w.publish(fleet.Package{File: "web-2.0.0-linux-arm64", Component: "web", Version: "2.0.0", OS: "linux", Arch: "arm64"})
	now = now.Add(time.Second)
	if err := render(); err == nil || !strings.Contains(err.Error(), "web-2.0.0-linux-arm64") {
		t.Errorf("the new package is not noticed: %v", err)
	}
}

// runs returns an agent whose component web has these files of the server.
func (w *world) runs(a fleet.Agent, files ...agentapi.RenderedFile) fleet.Agent {
	report := agentapi.ComponentReport{Name: "web", Version: "1.0.0", ConfigSHA256: "all", RenderedSHA256: w.renderer.Digest(files)}
	a.Components = event.Data([]agentapi.Component{{ID: "component-web", Status: "HEALTHY", ComponentReport: report}})
	return a
}

// The diff begins at the files that the host reports to have, if the last order had them.
func TestPreviewComparesWithWhatTheHostHas(t *testing.T) {
	w := newWorld(t)
	w.write("edge/2.0.0/web.conf.tmpl", "port {{.Vars.port}}\n")
	now := time.Now().UTC()
	order := func(id, component string, files ...agentapi.RenderedFile) {
		t.Helper()
		data := agentapi.UpgradeData{Version: "1.0.0", Component: &agentapi.ComponentData{Name: component, Files: files}}
		expires := now.Add(time.Hour)
		if _, err := w.store.Actions().Create(t.Context(), fleet.Action{ID: id, Type: agentapi.ActionUpgrade, CreatedAt: now, Expiration: &expires, Agents: []string{"id-web-01", "x"}, Data: event.Data(data)}); err != nil {
			t.Fatal(err)
		}
	}
	old := agentapi.RenderedFile{Path: "/etc/web/web.conf", Content: "port 8080\n", Mode: "0640"}
	same := old
	same.Content = "port 80\n"
	order("old", "web", old)
	order("same", "web", same)
	owned := same
	owned.Owner = "web"
	order("owned", "web", owned)
	order("own files", "web")
	order("other", "db", old)
	files := func(f agentapi.RenderedFile) []agentapi.RenderedFile { return []agentapi.RenderedFile{f} }
	const whole = "--- /dev/null\n+++ /etc/web/web.conf\t0640\n@@ -0,0 +1 @@\n+port 80\n"
	for _, row := range []struct {
		what string
		u    fleet.ComponentUpgrade
		has  []agentapi.RenderedFile
		want string
	}{
		{"other files", fleet.ComponentUpgrade{Upgrade: fleet.Upgrade{UpgradeActionID: "old", UpgradedAt: &now}}, files(old), "--- /etc/web/web.conf\n+++ /etc/web/web.conf\n@@ -1 +1 @@\n-port 8080\n+port 80\n"},
		{"the same files", fleet.ComponentUpgrade{Upgrade: fleet.Upgrade{UpgradeActionID: "same", UpgradedAt: &now}}, files(same), ""},
		{"another owner", fleet.ComponentUpgrade{Upgrade: fleet.Upgrade{UpgradeActionID: "owned", UpgradedAt: &now}}, files(same), "--- /etc/web/web.conf\t0640 web:\n+++ /etc/web/web.conf\t0640\n"},
		{"it failed before the files were written", fleet.ComponentUpgrade{Upgrade: fleet.Upgrade{UpgradeActionID: "old"}}, nil, whole},
		{"it failed, and the files before were put back", fleet.ComponentUpgrade{Upgrade: fleet.Upgrade{UpgradeActionID: "same"}}, files(old), whole},
		{"a rollback brought the same files back", fleet.ComponentUpgrade{Upgrade: fleet.Upgrade{UpgradeActionID: "own files", UpgradedAt: &now}}, files(same), ""},
		{"its action was removed", fleet.ComponentUpgrade{Upgrade: fleet.Upgrade{UpgradeActionID: "gone", UpgradedAt: &now}}, files(old), whole},
		{"its action was removed, and the files are the same", fleet.ComponentUpgrade{Upgrade: fleet.Upgrade{UpgradeActionID: "gone", UpgradedAt: &now}}, files(same), ""},
		{"the package's own files were written", fleet.ComponentUpgrade{Upgrade: fleet.Upgrade{UpgradeActionID: "own files", UpgradedAt: &now}}, nil, whole},
		{"the action was for another component", fleet.ComponentUpgrade{Upgrade: fleet.Upgrade{UpgradeActionID: "other", UpgradedAt: &now}}, files(old), whole},
		{"never upgraded", fleet.ComponentUpgrade{}, nil, whole},
	} {
		a := w.runs(host("web-01", "x86_64"), row.has...)
		a.ComponentUpgrades = map[string]fleet.ComponentUpgrade{"web": row.u}
		got, err := w.preview(plan, a)
		if err != nil || got[0].Err != nil || got[0].Diff != row.want || got[0].Digest == "" || got[0].Agent.ID != a.ID {
			t.Errorf("%s: %+v, %v, want %s", row.what, got, err, row.want)
		}
	}
}

// A host without a variable does not hide the others.
func TestPreviewShowsErrorsOfSingleHosts(t *testing.T) {
	w := newWorld(t)
	got, err := w.preview(plan, host("web-01", "x86_64"), host("web-02", "x86_64", "10.0.0.7"))
	if err != nil || len(got) != 2 || got[0].Err == nil || got[0].Diff != "" || got[1].Err != nil || got[1].Diff == "" {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := w.preview(fleet.Plan{Profile: "edge", UpgradeID: "none"}, host("web-01", "x86_64")); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("without an upgrade manifest: %v", err)
	}
}

// BenchmarkPreviewOf100Hosts renders three files of 200 lines for each of 100 hosts, and
// compares them with what the hosts have. The goal is a second.
func BenchmarkPreviewOf100Hosts(b *testing.B) {
	w := newWorld(b)
	w.write("edge/2.0.0.yaml", "component: web\nversion: 2.0.0\nconfig_files:\n- {path: /etc/web/1.conf, template: 2.0.0/t}\n- {path: /etc/web/2.conf, template: 2.0.0/t}\n- {path: /etc/web/3.conf, template: 2.0.0/t}\n")
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, "location /%d {\n  proxy_pass http://{{.Host.ip}}:{{.Vars.port}}; # {{quote .Labels.site}}\n", i)
	}
	w.write("edge/2.0.0/t", text.String())
	ctx := b.Context()
	m, err := upgrademanifest.Dir{Path: w.dir}.Get(ctx, "edge", "2.0.0")
	if err != nil {
		b.Fatal(err)
	}
	pinned := plan
	pinned.UpgradeManifestHash = m.ContentHash
	had := make([][]agentapi.RenderedFile, 100)
	for i := range had {
		data := agentapi.UpgradeData{Version: "1.0.0", Component: &agentapi.ComponentData{Name: "web"}}
		for n := range 3 {
			old := strings.NewReplacer("{{.Host.ip}}", "10.0.0.7", "{{.Vars.port}}", "8080", "{{quote .Labels.site}}", `"fra"`).Replace(text.String())
			data.Component.Files = append(data.Component.Files, agentapi.RenderedFile{Path: fmt.Sprintf("/etc/web/%d.conf", n+1), Content: strings.Replace(old, "8080", "80", 20)})
		}
		had[i] = data.Component.Files
		if _, err := w.store.Actions().Create(ctx, fleet.Action{ID: fmt.Sprint("a", i), Type: agentapi.ActionUpgrade, Agents: []string{fmt.Sprintf("id-web-%d", i)}, Data: event.Data(data)}); err != nil {
			b.Fatal(err)
		}
	}
	w.policy.ComponentVariables["web"]["port"] = "8080"
	now := time.Now()
	agents := make([]fleet.Agent, 100)
	for i := range agents {
		agents[i] = w.runs(host(fmt.Sprintf("web-%d", i), "x86_64", "10.0.0.7"), had[i]...)
		agents[i].ComponentUpgrades = map[string]fleet.ComponentUpgrade{"web": {Upgrade: fleet.Upgrade{UpgradeActionID: fmt.Sprint("a", i), UpgradedAt: &now}}}
	}
	for b.Loop() {
		got, err := w.preview(pinned, agents...)
		if err != nil {
			b.Fatal(err)
		}
		for _, h := range got {
			if h.Err != nil || strings.Count(h.Diff, "+++ ") != 3 {
				b.Fatalf("%+v", h)
			}
		}
	}
}
