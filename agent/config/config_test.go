package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
)

func TestTemplateHasTheDefaults(t *testing.T) {
	got, err := Parse("agent.yml", Template)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, Default()) {
		t.Errorf("template gives %+v, defaults are %+v", got, Default())
	}
}

func TestMissingKeysHaveDefaults(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "server: {}\n", "log:\n"} {
		if got, err := Parse("agent.yml", []byte(text)); err != nil || !reflect.DeepEqual(got, Default()) {
			t.Errorf("%q gives %+v, %v", text, got, err)
		}
	}
	if got, err := Load(disk.OS{}, t.TempDir()); err != nil || !reflect.DeepEqual(got, Default()) {
		t.Errorf("no file gives %+v, %v", got, err)
	}
}

func TestOneKeyDoesNotChangeOthers(t *testing.T) {
	got, err := Parse("agent.yml", []byte("upgrade:\n  watch:\n    grace: 5s\nlog: {level: debug}\n"))
	want := Default()
	want.Upgrade.Watch.Grace = 5 * time.Second
	want.Log.Level = -4
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestErrorsNameFileLineAndKey(t *testing.T) {
	for text, want := range map[string]string{
		"server:\n  urls: x\n":                          "agent.yml: line 2: key urls is not known",
		"upgrade:\n  watch:\n    grace: soon\n":         "agent.yml: line 3: cannot read `soon` as a duration such as 30s or 10m",
		"upgrade:\n  watch:\n    grace: -1s\n":          "agent.yml: line 3: upgrade.watch.grace: is -1s",
		"upgrade: {watch: {max_crashes: -1}}\n":         "agent.yml: line 1: upgrade.watch.max_crashes: is -1",
		"\ncheckin:\n  poll_timeout: 10s\n":             "agent.yml: line 3: checkin.poll_timeout: is 10s, want 1m30s or more",
		"server:\n  url: fleet.example.com\n":           "agent.yml: line 2: server.url: is \"fleet.example.com\", want https://host:port",
		"upgrade:\n  download:\n    rate_limit: fast\n": "agent.yml: line 3: cannot read `fast` as a whole number",
		"upgrade: {download: {rate_limit: -1}}\n":       "upgrade.download.rate_limit: is -1",
		"upgrade:\n  keep: {previous: 0}\n":             "agent.yml: line 2: upgrade.keep.previous: is 0, want 1 or more",
		"upgrade:\n  keep:\n    size: 4 apples\n":       "agent.yml: line 3: upgrade.keep.size: is \"4 apples\", want bytes such as 500MB",
		"upgrade:\n  keep:\n    size: 99999999TB\n":     "upgrade.keep.size: is \"99999999TB\"",
		"upgrade:\n  keep:\n    size: -1\n":             "upgrade.keep.size: is \"-1\"",
		"upgrade:\n  keep: {staged: -1}\n":              "upgrade.keep.staged: is -1",
		"checks:\n  allow: [db.example.com]\n":          "agent.yml: line 2: checks.allow: holds \"db.example.com\": want an address",
		"log: [":                                        "agent.yml: line 1",
	} {
		_, err := Parse("agent.yml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

func TestSizesHaveUnits(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1500": 1500, "2kB": 2e3, "500MB": 5e8, "4 GB": 4e9, "1TB": 1e12} {
		c, err := Parse("agent.yml", []byte("upgrade:\n  keep:\n    size: "+text+"\n"))
		if got := c.Upgrade.Limits().Bytes; err != nil || got != want {
			t.Errorf("%s is %d bytes, %v; want %d", text, got, err, want)
		}
	}
}
