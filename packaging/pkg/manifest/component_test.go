package manifest

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const componentSample = `version: muster/v1
kind: PackageManifest
package:
  version: 2.4.0
  snapshot: false
  hash: 3f2a9c52
  os: linux
  arch: amd64
  versioned-home: data/web-3f2a9c
  path-mappings:
    - data/web-3f2a9c: data/web-2.4.0-3f2a9c
  component:
    name: web
    runtime: systemd
    settings:
      unit: web.service
      limits: {nofile: 1024, soft: 0.5, names: [a, b]}
    data-dir: /var/lib/web
    config-files:
      - path: /etc/web/web.conf
        from: conf/web.conf
        mode: "0640"
        owner: web
    server-files:
      - /etc/web/conf.d/
    reload: true
`

// anyComponent draws a description that is valid or nearly so.
func anyComponent(t *rapid.T) *Component {
	c := &Component{
		Name:        rapid.SampledFrom([]string{"web", "node-exporter", "downloads", "w", "Web", "../x"}).Draw(t, "name"),
		Runtime:     rapid.SampledFrom([]string{"process", "systemd", "docker", ""}).Draw(t, "runtime"),
		DataDir:     rapid.SampledFrom([]string{"", "/var/lib/web", "/", "var"}).Draw(t, "data dir"),
		ServerFiles: rapid.SliceOfN(rapid.SampledFrom([]string{"/etc/web/", "/etc/web/a.conf", "/", "etc"}), 0, 2).Draw(t, "server files"),
		Reload:      rapid.Bool().Draw(t, "reload"),
	}
	if rapid.Bool().Draw(t, "settings") {
		c.Settings = map[string]any{"image": "r@sha256:0", "ports": []any{80, 0.5}, "deep": map[string]any{"a": nil, "b": true}}
	}
	if rapid.Bool().Draw(t, "config file") {
		c.ConfigFiles = []ConfigFile{{Path: "/etc/web.conf", From: anyPath(t, "from"), Mode: rapid.SampledFrom([]string{"", "0640", "999"}).Draw(t, "mode")}}
	}
	return c
}

func TestComponentSampleParses(t *testing.T) {
	m, err := Parse(strings.NewReader(componentSample))
	if err != nil {
		t.Fatal(err)
	}
	p := m.Package
	if p.Home() != "data/web-2.4.0-3f2a9c" || p.ArchiveName("tar.gz") != "muster-component-web-2.4.0-linux-amd64.tar.gz" {
		t.Errorf("its home is %s, its archive %s", p.Home(), p.ArchiveName("tar.gz"))
	}
	if !p.Component.ServerMayWrite("/etc/web/conf.d/a.conf") || p.Component.ServerMayWrite("/etc/web/web.conf") {
		t.Error("the server may write what it may not, or the other way round")
	}
}

// The home of one component must not be taken for another's.
func TestComponentManifestIsRefused(t *testing.T) {
	for what, c := range map[string]struct{ old, new, says string }{
		"another home":     {"data/web-2.4.0-3f2a9c", "data/db-2.4.0-3f2a9c", "want data/web-2.4.0-3f2a9c"},
		"an agent's home":  {"data/web-2.4.0-3f2a9c", "data/muster-agent-2.4.0-3f2a9c", "want data/web-2.4.0-3f2a9c"},
		"the other format": {"muster/v1", "co.elastic.agent/v1", "want muster/v1 for a component"},
		"a number as key":  {"nofile: 1024", "1: 1024", "package.component.settings: want what JSON can hold"},
		"no number":        {"0.5", ".nan", "package.component.settings: want what JSON can hold"},
		"huge settings":    {"web.service", strings.Repeat("x", MaxSettings), "package.component.settings: have 32"},
		"a misspelt key":   {"server-files", "server-file", "server-file not found"},
		"two of one path":  {"    server-files:", "      - {path: /etc/web/web.conf, from: x}\n    server-files:", "occurs twice"},
	} {
		if _, err := Parse(strings.NewReader(strings.Replace(componentSample, c.old, c.new, 1))); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", what, err, c.says)
		}
	}
}

func TestPackageIsOfOneComponentOrOfAnAgent(t *testing.T) {
	agent, web := Package{}, Package{Component: &Component{Name: "web"}}
	for _, c := range []struct {
		p    Package
		name string
		says string
	}{
		{agent, "", ""},
		{web, "web", ""},
		{agent, "web", "package is an agent's, want one of component web"},
		{web, "", "package is one of component web, want an agent's"},
		{web, "db", "package is one of component web, want one of component db"},
	} {
		if err := c.p.CheckComponent(c.name); (err == nil) != (c.says == "") || err != nil && err.Error() != c.says {
			t.Errorf("asked for %q: %v, want %q", c.name, err, c.says)
		}
	}
}
