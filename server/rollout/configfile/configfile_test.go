package configfile_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/configfile"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// web01 is a host.
func web01() configfile.Values {
	return configfile.Values{
		"Host":   {"hostname": "web-01", "os": "linux", "ip": "10.0.0.7"},
		"Labels": {"site": "fra"},
		"Vars":   {"port": "8080", "upstreams": "a:1, b:2,,c:3 ", "rate_fra": "10"},
	}
}

// parsed is one template as the file /etc/web.conf.
func parsed(text string) (*configfile.Templates, error) {
	return configfile.Parse([]fleet.ConfigTemplate{{Path: "/etc/web.conf", Template: "web.conf.tmpl"}}, map[string]string{"web.conf.tmpl": text})
}

// render returns what a template makes for web-01.
func render(text string) (string, error) {
	s, err := parsed(text)
	if err != nil {
		return "", err
	}
	files, err := s.Render(web01())
	if err != nil {
		return "", err
	}
	return files[0].Content, nil
}

func TestFilesAreRenderedByPathWithRightsAndSum(t *testing.T) {
	s, err := configfile.Parse([]fleet.ConfigTemplate{
		{Path: "/etc/z.conf", Template: "1/z", Mode: "0640", Owner: "root", Group: "web"},
		{Path: "/etc/a.conf", Template: "1/a"},
		{Path: "/etc/b.conf", Template: "1/a"},
	}, map[string]string{"1/z": "port {{.Vars.port}}\n", "1/a": "{{.Host.hostname}}"})
	if err != nil {
		t.Fatal(err)
	}
	sum := func(text string) string { h := sha256.Sum256([]byte(text)); return hex.EncodeToString(h[:]) }
	want := []agentapi.RenderedFile{
		{Path: "/etc/a.conf", SHA256: sum("web-01"), Content: "web-01"},
		{Path: "/etc/b.conf", SHA256: sum("web-01"), Content: "web-01"},
		{Path: "/etc/z.conf", SHA256: sum("port 8080\n"), Content: "port 8080\n", Mode: "0640", Owner: "root", Group: "web"},
	}
	for range 2 { // the first host leaves nothing to the second
		if got, err := s.Render(web01()); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func TestTemplateLanguage(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "",
		"as it is\n":                           "as it is\n",
		"{{.Host.os}}":                         "linux",
		`{{index .Host "rack"}}`:               "",
		`{{or (index .Labels "rack") "none"}}`: "none",
		`{{if eq .Labels.site "fra" "ams"}}eu{{end}}`:                   "eu",
		`{{index .Vars (print "rate_" .Labels.site)}}`:                  "10",
		`{{range split "," .Vars.upstreams}}<{{.}}>{{else}}none{{end}}`: "<a:1><b:2><c:3>",
		`{{range $k, $v := .Labels}}{{$k}}={{$v}}{{end}}`:               "site=fra",
		`{{range 3}}{{if eq . 1}}{{continue}}{{end}}{{.}}{{end}}`:       "02",
		`{{.Vars.port | print "port=" | quote}}`:                        `"port=8080"`,
		`{{quote "<a> \"b\"\n"}}`:                                       `"<a> \"b\"\n"`,
		`{{with $x := .Vars.port}}{{$x}}{{$.Host.hostname}}{{end}}`:     "8080web-01",
		`{{"{{"}} a }}`: "{{ a }}",
	} {
		if got, err := render(text); err != nil || got != want {
			t.Errorf("%s makes %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestTemplateErrorsNameFileLineAndHost(t *testing.T) {
	for text, want := range map[string]string{
		"\n\nport {{.Vars.prot}}":                `web.conf.tmpl:3: .Vars.prot: map has no entry for key "prot" (host web-01): set it in variables of the component in the host's policy, in variables of the plan, or in variable_overrides of the upgrade manifest`,
		"{{range .Labels}}\n{{$.Vars.x}}{{end}}": `web.conf.tmpl:2: $.Vars.x: map has no entry for key "x" (host web-01): set it in variables`,
		"{{.Labels.rack}}":                       `web.conf.tmpl:1: .Labels.rack: map has no entry for key "rack" (host web-01): set it, or use {{index}}`,
		"{{.Hots.name}}":                         `web.conf.tmpl:1: .Hots.name: map has no entry for key "Hots" (host web-01)`,
		"\n{{split \"\" .Vars.port}}":            `web.conf.tmpl:2: split "" .Vars.port: error calling split: the separator is empty (host web-01)`,
		"{{print 1}}":                            `web.conf.tmpl:1: 1: expected string; found 1 (host web-01)`,
		// Before there is a host:
		"a\n{{.Vars.port":                                  `web.conf.tmpl:2: unclosed action`,
		"a\n{{env \"HOME\"}}":                              `web.conf.tmpl:2: function "env" not defined`,
		"\n{{printf \"%1000000d\" 1}}":                     `web.conf.tmpl:2: function printf is not available, want one of and, eq, `,
		"{{if true}}\n{{(call .Vars)}}{{end}}":             `web.conf.tmpl:2: function call is not available`,
		"{{step 1}}":                                       `web.conf.tmpl:1: function step is not available`,
		"\n{{template \"web.conf.tmpl\" .}}":               `web.conf.tmpl:2: {{template}} is not available`,
		"{{define \"a\"}}{{end}}{{block \"b\" .}}x{{end}}": `web.conf.tmpl: {{define}} and {{block}} are not available`,
		strings.Repeat("x", configfile.MaxTemplate+1):      `web.conf.tmpl: has more than 65536 bytes`,
		"\xff": `web.conf.tmpl makes a file that is not UTF-8: put binary files into the package (host web-01)`,
	} {
		if got, err := render(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40q: %q, %v, want %q", text, got, err, want)
		}
	}
}

// A template cannot keep the server busy, or fill its memory, whatever its author does.
func TestTemplatesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 60<<10)
	for text, want := range map[string]string{
		`{{range 1000000000000}}{{end}}`:                                            "takes more than 100000 steps",
		`{{range 1000}}{{range 1000}}{{range 1000}}a{{end}}{{end}}{{end}}`:          "takes more than 100000 steps",
		`{{$x := "abcdefgh"}}{{range 1000}}{{$x = print $x $x}}{{end}}`:             "takes more than 100000 steps",
		`{{$x := "\"\"\"\"\""}}{{range 100}}{{$x = quote $x}}{{end}}`:               "takes more than 100000 steps",
		`{{range 9999}}{{if eq . ` + strings.Repeat("1 ", 500) + `}}{{end}}{{end}}`: "takes more than 100000 steps",
		`{{range 10}}` + long + `{{end}}`:                                           "makes more than 262144 bytes",
	} {
		start := time.Now()
		got, err := render(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "web.conf.tmpl") || !strings.Contains(err.Error(), "(host web-01)") {
			t.Errorf("%.60s makes %d bytes, %v, want %q", text, len(got), err, want)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%.60s took %v", text, took)
		}
	}
}

// The bounds are for all files of a host together.
func TestFilesShareBounds(t *testing.T) {
	var files []fleet.ConfigTemplate
	for i := range 10 {
		files = append(files, fleet.ConfigTemplate{Path: fmt.Sprintf("/etc/%d.conf", i), Template: "t"})
	}
	for text, want := range map[string]string{
		strings.Repeat("x", 60<<10): "makes more than 262144 bytes",
		`{{range 20000}}{{end}}`:    "takes more than 100000 steps",
	} {
		one, err := configfile.Parse(files[:1], map[string]string{"t": text})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := one.Render(web01()); err != nil {
			t.Errorf("one file: %v", err)
		}
		all, err := configfile.Parse(files, map[string]string{"t": text})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := all.Render(web01()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ten files: %v, want %q", err, want)
		}
	}
}

func TestInvalidConfigFilesAreNamed(t *testing.T) {
	many := make([]fleet.ConfigTemplate, 101)
	for want, files := range map[string][]fleet.ConfigTemplate{
		`config_files[0].path: is "etc/web.conf", want an absolute path`:      {{Path: "etc/web.conf", Template: "t"}},
		`config_files[0].path: is "/etc/../root/.ssh", want an absolute path`: {{Path: "/etc/../root/.ssh", Template: "t"}},
		`config_files[1].path: "/etc/a" occurs twice`:                         {{Path: "/etc/a", Template: "t"}, {Path: "/etc/a", Template: "t"}},
		`config_files[0].template: is "../secret", want the path of a file`:   {{Path: "/etc/a", Template: "../secret"}},
		`config_files[0].template: is "a/../b", want the path of a file`:      {{Path: "/etc/a", Template: "a/../b"}},
		`config_files[0].template: is "/etc/passwd", want the path of a file`: {{Path: "/etc/a", Template: "/etc/passwd"}},
		`config_files[0].template: is "", want the path of a file`:            {{Path: "/etc/a"}},
		`config_files[0].mode: is "4755", want three octal digits`:            {{Path: "/etc/a", Template: "t", Mode: "4755"}},
		`config_files[0].owner: is "-x", want the name or the number`:         {{Path: "/etc/a", Template: "t", Owner: "-x"}},
		`config_files[0].group: is "a b", want the name or the number`:        {{Path: "/etc/a", Template: "t", Group: "a b"}},
		`config_files[0].template: there is no template u`:                    {{Path: "/etc/a", Template: "u"}},
		`config_files has 101 entries, want at most 100`:                      many,
	} {
		if _, err := configfile.Parse(files, map[string]string{"t": ""}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The digest is the one that agents report of what they have written.
func TestDigestIsThatOfAgents(t *testing.T) {
	var r configfile.Renderer
	file := agentapi.RenderedFile{Path: "/etc/web.conf", SHA256: "of another content", Content: "x"}
	want := manifest.ConfigDigest([]manifest.WrittenFile{{Path: "/etc/web.conf", Mode: 0o644, SHA256: sha256.Sum256([]byte("x"))}})
	said := file
	said.Mode = "0644"
	if a, b := r.Digest(files(file)), r.Digest(files(said)); a != want || b != want || r.Digest(nil) != "" {
		t.Errorf("%q and %q, want %q", a, b, want)
	}
	seen := []string{want}
	for _, other := range []agentapi.RenderedFile{{Path: "/etc/b.conf", Content: "x"}, {Path: "/etc/web.conf", Content: "y"}, {Path: "/etc/web.conf", Content: "x", Mode: "0600"}} {
		d := r.Digest(files(other))
		if slices.Contains(seen, d) {
			t.Errorf("%+v has the digest of another file", other)
		}
		seen = append(seen, d)
	}
}
