package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
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
		"server:\n  urls: x\n":                           "agent.yml: line 2: key urls is not known",
		"upgrade:\n  watch:\n    grace: soon\n":          "agent.yml: line 3: cannot read `soon` as a duration such as 30s or 10m",
		"upgrade:\n  watch:\n    grace: -1s\n":           "agent.yml: line 3: upgrade.watch.grace: is -1s",
		"upgrade: {watch: {max_crashes: -1}}\n":          "agent.yml: line 1: upgrade.watch.max_crashes: is -1",
		"\ncheckin:\n  poll_timeout: 10s\n":              "agent.yml: line 3: checkin.poll_timeout: is 10s, want 1m30s or more",
		"server:\n  url: fleet.example.com\n":            "agent.yml: line 2: server.url: is \"fleet.example.com\", want https://host:port",
		"upgrade:\n  download:\n    rate_limit: fast\n":  "agent.yml: line 3: cannot read `fast` as a whole number",
		"network:\n  proxy: proxy.example.com:3128\n":    "agent.yml: line 2: network.proxy: want http://host:port",
		"network: {proxy: 'ftp://u:secret@p:1'}\n":       "network.proxy: want http://host:port",
		"network:\n  no_proxy: [a]\n":                    "agent.yml: line 2: network.no_proxy: is used with network.proxy only",
		"network: {proxy: http://p, no_proxy: ['a, b']}": "network.no_proxy: holds \"a, b\"",
		"network:\n  ca_pem: none\n":                     "agent.yml: line 2: network.ca_pem: holds no certificate in PEM form",
		"upgrade: {download: {rate_limit: -1}}\n":        "upgrade.download.rate_limit: is -1",
		"upgrade:\n  keep: {previous: 0}\n":              "agent.yml: line 2: upgrade.keep.previous: is 0, want 1 or more",
		"upgrade:\n  keep:\n    size: 4 apples\n":        "agent.yml: line 3: upgrade.keep.size: is \"4 apples\", want bytes such as 500MB",
		"upgrade:\n  keep:\n    size: 99999999TB\n":      "upgrade.keep.size: is \"99999999TB\"",
		"upgrade:\n  keep:\n    size: -1\n":              "upgrade.keep.size: is \"-1\"",
		"upgrade:\n  keep: {staged: -1}\n":               "upgrade.keep.staged: is -1",
		"checks:\n  allow: [db.example.com]\n":           "agent.yml: line 2: checks.allow: holds \"db.example.com\": want an address",
		"log: [":                                         "agent.yml: line 1",
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

// A host whose file is broken goes on with what it has read last, and says what is wrong.
func TestEffectiveConfigurationOfABrokenFile(t *testing.T) {
	const good, broken = "log: {level: debug}\n", "log:\n\tlevel: info\n"
	debug := Default()
	debug.Log.Level = -4
	for _, row := range []struct {
		name  string
		files []string // in the order in which agents start with them
		want  Config
		says  string
	}{
		{"no file", nil, Default(), ""},
		{"a valid file", []string{good}, debug, ""},
		{"a tab, after a valid file", []string{good, broken}, debug, "agent.yml: line 2: "},
		{"an unknown key, after a valid file", []string{good, "log: {level: debug}\ncolour: red\n"}, debug, "agent.yml: line 2: key colour is not known"},
		{"a value out of range, after a valid file", []string{good, "checkin: {poll_timeout: 1s}\n"}, debug, "agent.yml: line 1: checkin.poll_timeout"},
		{"broken from the first start on", []string{broken}, Default(), "agent.yml: line 2: "},
		{"broken twice", []string{good, broken, "colour: red\n"}, debug, "agent.yml: line 1: key colour"},
		{"corrected", []string{good, broken, "\n"}, Default(), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			top := t.TempDir()
			if err := os.MkdirAll(filepath.Join(top, "data"), 0o700); err != nil {
				t.Fatal(err)
			}
			var got Config
			var problem error
			start := func() {
				got, problem = Effective(disk.OS{}, top)
				if err := KeepGood(disk.OS{}, top); err != nil {
					t.Fatal(err)
				}
			}
			start()
			for _, text := range row.files {
				if err := os.WriteFile(filepath.Join(top, "agent.yml"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				start()
			}
			if !reflect.DeepEqual(got, row.want) {
				t.Errorf("it runs with %+v, want %+v", got, row.want)
			}
			if (problem != nil) != (row.says != "") || problem != nil && !strings.Contains(problem.Error(), row.says) {
				t.Errorf("the problem is %v, want %q", problem, row.says)
			}
		})
	}
}
