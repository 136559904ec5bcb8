package app_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
)

func settingsOf(c app.Config) map[string]adminapi.Setting {
	out := map[string]adminapi.Setting{}
	for _, s := range c.Settings(map[string]string{"agents.url": "https://srv:8220", "limits.max_agents": "7"}) {
		out[s.Key] = s
	}
	return out
}

func load(t *testing.T, text string) app.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "server.yml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := app.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const elasticsearch = `
store:
  elasticsearch:
    hosts: ["https://ann:secret1@es1:9200"]
    password: secret2
`

func TestSettingsSayWhereTheyComeFrom(t *testing.T) {
	c := load(t, "checkin: {poll: 90s}\nlog: {level: warn}\nlimits: {max_agents: 0}\nwebhooks:\n  allow: [10.0.0.0/8, chat.corp.example]\n"+elasticsearch)
	c.Admin.Listen = "127.0.0.1:9000"
	c.Override("admin.listen")
	got := settingsOf(c)
	for key, want := range map[string][2]string{
		"checkin.poll":                     {"1m30s", "file"},
		"checkin.poll_jitter":              {"30s", "default"},
		"log.level":                        {"warn", "file"},
		"admin.listen":                     {"127.0.0.1:9000", "flag"},
		"agents.listen":                    {":8220", "default"},
		"agents.url":                       {"https://srv:8220", "default"},
		"limits.max_agents":                {"7", "file"},
		"webhooks.allow":                   {"10.0.0.0/8, chat.corp.example", "file"},
		"enrollment.readable_keys":         {"true", "default"},
		"store.elasticsearch.hosts":        {"https://ann:xxxxx@es1:9200", "file"},
		"store.elasticsearch.password":     {"hidden", "file"},
		"store.elasticsearch.api_key":      {"", "default"},
		"store.elasticsearch.username":     {"", "default"},
		"store.elasticsearch.prefix":       {"", "default"},
		"limits.handshakes_per_second":     {"0", "default"},
		"tls.names":                        {"", "default"},
		"store.elasticsearch.ca":           {"", "default"},
		"store.elasticsearch.key":          {"", "default"},
		"admin.kibana_version":             {app.Defaults().Admin.KibanaVersion, "default"},
		"data":                             {app.Defaults().Data, "default"},
		"store.elasticsearch.api_key_file": {"", "default"},
	} {
		if s := got[key]; s.Value != want[0] || string(s.Origin) != want[1] {
			t.Errorf("%s is %q from %s, want %q from %s", key, s.Value, s.Origin, want[0], want[1])
		}
	}
	for key, s := range got {
		if s.Description == "" {
			t.Errorf("%s is not described", key)
		}
	}
	if s, ok := settingsOf(app.Defaults())["store.elasticsearch"]; !ok || s.Value != "" || s.Description == "" {
		t.Errorf("without a store the setting is %+v", s)
	}
}

func TestSecretOfTheEnvironmentIsHidden(t *testing.T) {
	t.Setenv("MUSTER_ELASTICSEARCH_API_KEY", "secret3")
	if s := settingsOf(load(t, elasticsearch))["store.elasticsearch.api_key"]; s.Value != "hidden" || s.Origin != adminapi.OriginEnvironment {
		t.Errorf("the key is %+v", s)
	}
}
