package upgrademanifest

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/configfile"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// folder writes files to a new folder.
func folder(t *testing.T, files map[string]string) Dir {
	t.Helper()
	d := Dir{Path: t.TempDir()}
	for name, content := range files {
		path := filepath.Join(d.Path, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// The example explains every key; this test keeps it complete.
func TestExample(t *testing.T) {
	d := Dir{Path: "example"}
	m, err := d.Get(t.Context(), "edge", "2.0.0")
	if err != nil {
		t.Fatal(err)
	}
	raw := Example
	sum := sha256.Sum256([]byte(raw))
	if m.ContentHash != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("hash %s is not that of the bytes", m.ContentHash)
	}
	if m.Profile != "edge" || m.ID != "2.0.0" || m.Version != "2.0.0" || m.Source != "1.9.4" || m.SourceURI == "" || m.Description == "" ||
		len(m.Artifacts) != 2 || m.Artifacts[0].Size != 41943040 || m.Artifacts[0].Runtime != fleet.RuntimeSelf ||
		m.Migration.Type != fleet.MigrationBreaking || !strings.Contains(m.Migration.RecoveryPlan, "Restore its state folder") {
		t.Errorf("%+v", m)
	}
	for _, doc := range []any{document{}, artifact{}, migration{}, fleet.ConfigTemplate{}} {
		for i := range reflect.TypeOf(doc).NumField() {
			if key := reflect.TypeOf(doc).Field(i).Tag.Get("yaml"); !strings.Contains(raw, key+":") {
				t.Errorf("the example does not explain %s", key)
			}
		}
	}
	p := fleet.Plan{Name: "x", Profile: "edge", UpgradeID: "2.0.0", Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: fleet.Canary}}
	p.Migration.AcknowledgeStateRisk = true
	if err := plan.Resolve(&p, &m, nil); err != nil {
		t.Fatal(err)
	}
	if err := plan.Check(&p); err != nil {
		t.Error(err)
	}
}

// The example of a component renders, and its template explains what templates see.
func TestExampleOfComponentRenders(t *testing.T) {
	d := Dir{Path: "example"}
	m, err := d.Get(t.Context(), "edge", "web-2.0.0")
	if err != nil || m.Component != "web" || len(m.ConfigFiles) != 1 || m.VariableOverrides["workers"] != "4" {
		t.Fatalf("%+v, %v", m, err)
	}
	templates, err := d.Templates(t.Context(), "edge", "web-2.0.0")
	if err != nil || templates.Component != "web" || templates.Hash != m.ContentHash {
		t.Fatalf("%+v, %v", templates, err)
	}
	a := fleet.Agent{Tags: []string{"site=fra"}, LocalMetadata: []byte(`{"host":{"hostname":"web-01","ip":["10.0.0.7/24"]}}`)}
	values := configfile.ValuesOf(&a, "web", "2.0.0", map[string]string{"port": "80", "workers": "2", "upstreams": "a:1, b:2", "rate_fra": "10"}, templates.Overrides)
	files, err := templates.Render(values)
	if err != nil {
		t.Fatal(err)
	}
	want := "# web 2.0.0 on web-01\nlisten 10.0.0.7:80\nworkers 4\nsite \"fra\"\nupstream a:1\nupstream b:2\nrate 10\n"
	if f := files[0]; f.Content != want || f.Path != "/etc/web/web.conf" || f.Mode != "0640" || f.Owner != "root" || f.Group != "web" {
		t.Errorf("%+v, want %s", f, want)
	}
	for group := range values {
		if !strings.Contains(ExampleTemplate, "    ."+group+" ") {
			t.Errorf("the template does not explain .%s", group)
		}
	}
}

// With an edited template a manifest is another one. sha256sum computes the same hash.
func TestContentHashCoversTemplates(t *testing.T) {
	const text = "component: web\nversion: 1.0.0\nconfig_files:\n- {path: /etc/b, template: a/b.tmpl}\n- {path: /etc/a, template: a/a.tmpl}\n- {path: /etc/c, template: a/a.tmpl}\n"
	d := folder(t, map[string]string{"p/a.yaml": text, "p/a/a.tmpl": "a", "p/a/b.tmpl": "b"})
	hash := func() string {
		t.Helper()
		m, err := d.Get(t.Context(), "p", "a")
		if err != nil {
			t.Fatal(err)
		}
		return m.ContentHash
	}
	sum := func(text string) string { h := sha256.Sum256([]byte(text)); return hex.EncodeToString(h[:]) }
	want := "sha256:" + sum(sum(text)+"  a.yaml\n"+sum("a")+"  a/a.tmpl\n"+sum("b")+"  a/b.tmpl\n")
	if got := hash(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := os.WriteFile(filepath.Join(d.Path, "p", "a", "b.tmpl"), []byte("c"), 0o600); err != nil {
		t.Fatal(err)
	}
	if hash() == want {
		t.Error("the hash does not cover the template")
	}
}

func TestConfigurationErrors(t *testing.T) {
	web := func(more string) string { return "component: web\nversion: 1.0.0\n" + more }
	file := func(template string) string {
		return web("config_files: [{path: /etc/web.conf, template: " + template + "}]\n")
	}
	d := folder(t, map[string]string{
		"p/agents.yaml": "version: 1.0.0\nconfig_files: [{path: /etc/x, template: t/x}]\n", "p/name.yaml": "component: Web\nversion: 1.0.0\n",
		"p/key.yaml": web("config_files: [{path: /etc/x, template: t/good, uid: 0}]\n"), "p/path.yaml": web("config_files: [{path: etc/x, template: t/good}]\n"),
		"p/twice.yaml":    web("config_files: [{path: /etc/x, template: t/good}, {path: /etc/x, template: t/good}]\n"),
		"p/variable.yaml": web("variable_overrides: {a-b: x}\n"), "p/number.yaml": web("variable_overrides: {a: [1]}\n"),
		"p/outside.yaml": file("../q/t"), "p/gone.yaml": file("t/gone"), "p/folder.yaml": file("t"), "p/self.yaml": file("self.yaml"), "p/long.yaml": file("t/long"), "p/syntax.yaml": file("t/syntax"), "p/function.yaml": file("t/function"),
		"p/t/good": "x", "p/t/long": strings.Repeat("x", configfile.MaxTemplate+1), "p/t/syntax": "\n{{if", "p/t/function": "\n\n{{html .Vars.x}}", "q/t": "secret",
	})
	for id, want := range map[string]string{
		"agents":   "p/agents.yaml cannot be used: component is missing: config_files and variable_overrides belong to",
		"name":     `p/name.yaml cannot be used: component: is "Web"`,
		"key":      "field uid not found",
		"path":     `config_files[0].path: is "etc/x", want an absolute path`,
		"twice":    `config_files[1].path: "/etc/x" occurs twice`,
		"variable": `variable_overrides: have the name "a-b"`,
		"number":   "cannot unmarshal",
		"outside":  `config_files[0].template: is "../q/t", want the path of a file below the folder of the upgrade manifest`,
		"gone":     "p/gone.yaml cannot be used: there is no template t/gone in the folder p",
		"folder":   "the template t of the upgrade manifest p/folder.yaml is no file",
		"self":     `config_files[0].template: is "self.yaml", which would be an upgrade manifest itself: put it into a folder`,
		"long":     "the template t/long of the upgrade manifest p/long.yaml has more than 65536 bytes",
		"syntax":   "p/syntax.yaml cannot be used: t/syntax:2: ",
		"function": "p/function.yaml cannot be used: t/function:3: function html is not available",
	} {
		if _, err := d.Templates(t.Context(), "p", id); fleet.KindOf(err) != fleet.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s %v, want %q", id, fleet.KindOf(err), err, want)
		}
	}
	if _, err := d.Templates(t.Context(), "p", "none"); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("%v", err)
	}
	if templates, err := folder(t, map[string]string{"p/a.yaml": "version: 1.0.0\n"}).Templates(t.Context(), "p", "a"); err != nil || !templates.Empty() {
		t.Errorf("a manifest of agents: %+v, %v", templates, err)
	}
}

func TestGetReadsFileOnDemand(t *testing.T) {
	d := folder(t, map[string]string{"p/a.yaml": "version: 1.0.0\n"})
	first, err := d.Get(t.Context(), "p", "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Path, "p", "a.yaml"), []byte("# now with a comment\nversion: 1.0.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	second, err := d.Get(t.Context(), "p", "a")
	if err != nil || second.Version != first.Version || second.ContentHash == first.ContentHash {
		t.Errorf("%v: %+v after %+v", err, second, first)
	}
}

func TestGetErrors(t *testing.T) {
	long := "version: 1.0.0\ndescription: " + strings.Repeat("x", maxSize)
	d := folder(t, map[string]string{
		"p/unknown.yaml": "version: 1.0.0\nsise: 1.0.1\n", "p/nested.yaml": "version: 1.0.0\nmigration:\n  kind: none\n",
		"p/empty.yaml": "# nothing\n", "p/versionless.yaml": "description: x\n", "p/half.yaml": "version: 1.0\n", "p/source.yaml": "version: 1.0.0\nsource_version: x\n",
		"p/two.yaml": "version: 1.0.0\n---\nversion: 1.0.1\n", "p/long.yaml": long, "p/list.yaml": "- version: 1.0.0\n", "p/risk.yaml": "version: 1.0.0\nmigration: {acknowledge_state_risk: true}\n",
		"p/folder.yaml/x": "", "p/good.yaml": "version: 1.0.0\n", "q/other.yaml": "version: 1.0.0\n",
	})
	for _, row := range []struct {
		profile, id string
		kind        fleet.Kind
		want        string
	}{
		{"p", "unknown", fleet.Invalid, "line 2: field sise not found"},
		{"p", "nested", fleet.Invalid, "line 3: field kind not found"},
		{"p", "empty", fleet.Invalid, "p/empty.yaml cannot be used: it is empty"},
		{"p", "versionless", fleet.Invalid, "version is missing"},
		{"p", "half", fleet.Invalid, "three numbers"},
		{"p", "source", fleet.Invalid, "source_version: "},
		{"p", "two", fleet.Invalid, "second document"},
		{"p", "long", fleet.Invalid, "more than 262144 bytes"},
		{"p", "list", fleet.Invalid, "cannot unmarshal"},
		{"p", "risk", fleet.Invalid, "acknowledge_state_risk"},
		{"p", "folder", fleet.Invalid, "is no file"},
		{"p", "gone", fleet.NotFound, "there is no upgrade manifest p/gone: there are p/empty, p/folder, p/good"},
		{"nowhere", "good", fleet.NotFound, "q/other"},
		{"..", "p", fleet.Invalid, "[request body.plan.profile]"},
		{"p", "../q/other", fleet.Invalid, "[request body.plan.upgrade_id]"},
		{"p", "", fleet.Invalid, "[request body.plan.upgrade_id]"},
		{"p", "a\x00b", fleet.Invalid, "letters, digits"},
	} {
		_, err := d.Get(t.Context(), row.profile, row.id)
		if fleet.KindOf(err) != row.kind || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s/%s: %s %v, want %s %q", row.profile, row.id, fleet.KindOf(err), err, row.kind, row.want)
		}
	}
}

func TestLinkOutOfFolderIsNotFollowed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("links need rights there")
		return
	}
	secret := filepath.Join(t.TempDir(), "secret.yaml")
	if err := os.WriteFile(secret, []byte("version: 1.0.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := folder(t, map[string]string{"p/a.yaml": "version: 1.0.0\n"})
	if err := os.Symlink(secret, filepath.Join(d.Path, "p", "out.yaml")); err != nil {
		t.Fatal(err)
	}
	if m, err := d.Get(t.Context(), "p", "out"); fleet.KindOf(err) != fleet.Invalid || !strings.Contains(err.Error(), "p/out.yaml cannot be read: ") {
		t.Errorf("read from outside: %+v, %v", m, err)
	}
	if err := os.Symlink(secret, filepath.Join(d.Path, "p", "out.tmpl")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Path, "p", "web.yaml"), []byte("component: web\nversion: 1.0.0\nconfig_files: [{path: /etc/x, template: out.tmpl}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if m, err := d.Get(t.Context(), "p", "web"); fleet.KindOf(err) != fleet.Invalid || !strings.Contains(err.Error(), "the template out.tmpl of the upgrade manifest p/web.yaml cannot be read: ") {
		t.Errorf("read a template from outside: %+v, %v", m, err)
	}
	if err := os.Symlink("a.yaml", filepath.Join(d.Path, "p", "in.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Get(t.Context(), "p", "in"); err != nil {
		t.Errorf("a link within the folder: %v", err)
	}
}

// The files are the operators', so one that cannot be read is no fault of the server.
func TestUnreadableManifestIsAnInvalidRequest(t *testing.T) {
	d := folder(t, map[string]string{"file": "", "p/a.yaml": "version: 1.0.0\n"})
	_, inFile := d.Get(t.Context(), "file", "a")
	_, noFolder := Dir{Path: filepath.Join(d.Path, "file")}.Get(t.Context(), "p", "a")
	_, noList := Dir{Path: filepath.Join(d.Path, "file")}.List(t.Context())
	for _, err := range []error{inFile, noFolder, noList} {
		if fleet.KindOf(err) != fleet.Invalid || !strings.Contains(err.Error(), " cannot be read: ") {
			t.Errorf("%s %v, want an invalid request", fleet.KindOf(err), err)
		}
	}
}

func TestListIsSortedAndIncludesInvalidFiles(t *testing.T) {
	d := folder(t, map[string]string{
		"q/1.yaml": "version: 1.0.0\n", "p/2.yaml": "version: 2.0.0\n", "p/10.yaml": "version: oops\n", "README.md": "", "p/notes.txt": "", "p/.hidden.yaml": "", "p/deep/3.yaml": "version: 3.0.0\n", "top.yaml": "version: 1.0.0\n",
	})
	all, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		got = append(got, m.Profile+"/"+m.ID+" "+m.Version)
		if (m.Error != "") != (m.ID == "10") || (m.Error == "") != (m.ContentHash != "") {
			t.Errorf("%+v", m)
		}
	}
	if want := []string{"p/10 ", "p/2 2.0.0", "q/1 1.0.0"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestMissingFolderHasNoManifests(t *testing.T) {
	d := Dir{Path: filepath.Join(t.TempDir(), "none")}
	if all, err := d.List(t.Context()); err != nil || len(all) != 0 || all == nil {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := d.Get(t.Context(), "p", "a"); fleet.KindOf(err) != fleet.NotFound || !strings.Contains(err.Error(), d.Path+", does not exist: create it with the file p/a.yaml (`muster manifests example`") {
		t.Errorf("%v", err)
	}
	empty := Dir{Path: t.TempDir()}
	if _, err := empty.Get(t.Context(), "p", "a"); fleet.KindOf(err) != fleet.NotFound || !strings.Contains(err.Error(), "there is none at all in the server's folder "+empty.Path+" (`muster manifests example`") {
		t.Errorf("%v", err)
	}
}
