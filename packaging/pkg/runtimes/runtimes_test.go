package runtimes

import (
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

type m = map[string]any

// web is the package of a component with two programs and a configuration file.
func web(runtime string, settings m) error {
	return Check(&manifest.Component{
		Name: "web", Runtime: runtime, Settings: settings,
		ConfigFiles: []manifest.ConfigFile{{Path: "/etc/web/web.conf", From: "conf/web.conf"}},
	}, map[string]bool{"bin/web": true, "bin/notes": false, "web.service": false, "conf/web.conf": false})
}

func TestPublisherIsToldWhatNoHostCouldUse(t *testing.T) {
	for _, test := range []struct {
		runtime  string
		settings m
		says     string // all of it; "" if the package is good
	}{
		{"process", m{"program": "bin/web", "args": []any{"--config", "/etc/web/web.conf"}, "env": m{"PORT": "80"}, "user": nil}, ""},
		{"process", m{"programm": "bin/web"}, "settings.programm: is no setting, want one of program, args, env, working_dir, user, group, stop_signal, reload_signal, stop_timeout"},
		{"process", m{"Program": "bin/web"}, "settings.Program: is no setting, want one of program, args, env, working_dir, user, group, stop_signal, reload_signal, stop_timeout"},
		{"process", nil, `settings.program: is "", want a file of the package such as bin/server`},
		{"process", m{"program": "bin/webb"}, `settings.program: "bin/webb" is not in the package: build it with --file bin/webb=PATH`},
		{"process", m{"program": "bin/notes"}, `settings.program: "bin/notes" is not executable: build the package again after chmod +x of that file`},
		{"process", m{"program": "bin/web", "args": "--config"}, `settings.args: is "--config", want a list, such as ["--config"]`},
		{"process", m{"program": "bin/web", "args": []any{"-p", 80}}, `settings.args[1]: is 80, want text, such as "80"`},
		{"process", m{"program": "bin/web", "env": "A=b"}, `settings.env: is "A=b", want names with values, such as {NAME: "value"}`},
		{"process", m{"program": []any{"bin/web"}}, `settings.program: is ["bin/web"], want text`},
		{"process", m{"program": "x", "stop_timeout": "2m"}, `settings.stop_timeout: is "2m", want a time such as 10s, at most 50s`},
		{"systemd", m{"unit": "web.service", "unit_file": "web.service"}, ""},
		{"systemd", m{"unit": "web.service", "unit_file": "units/web.service"}, `settings.unit_file: "units/web.service" is not in the package: build it with --file units/web.service=PATH`},
		{"systemd", m{"unit": "web", "unit_file": "/etc/web.service"}, "settings.unit: is \"web\", want the name of a service such as web.service\nsettings.unit_file: is \"/etc/web.service\", want a file of the package"},
		{"docker", m{"image": "nginx:1.27"}, `settings.image: is "nginx:1.27", want <repository>@sha256:<digest>: it has no digest, and whoever can write to the registry decides what a tag means`},
		{"docker", m{"image": "a", "read_only": "yes"}, `settings.read_only: is "yes", want true or false`},
		{"docker", m{"image": "a", "cpus": "2"}, `settings.cpus: is "2", want a number`},
		{"docker", m{"image": "a", "ports": []any{m{"host": 80, "container": 70000}}}, "settings.ports[0].container: is 70000, want a whole number from 0 to 65535"},
		{"docker", m{"image": "a", "ports": []any{m{"host": 80, "target": 80}}}, "settings.ports[0].target: is no setting, want one of host, container, address, protocol"},
		{"docker", m{"image": "a", "ports": []any{"80:80"}}, `settings.ports[0]: is "80:80", want keys with values`},
		// An agent may have more runtimes than are known here.
		{"podman", m{"anything": 1}, ""},
	} {
		err := web(test.runtime, test.settings)
		if (err == nil) != (test.says == "") || err != nil && err.Error() != test.says {
			t.Errorf("%s with %v:\n%v\nwant\n%s", test.runtime, test.settings, err, test.says)
		}
	}
}

func TestAllMistakesOfAPackageAreNamedAtOnce(t *testing.T) {
	c := manifest.Component{Name: "web", Runtime: "process", Settings: m{"program": "bin/web"}, ConfigFiles: []manifest.ConfigFile{{Path: "/etc/web.conf", From: "web.conf"}}}
	err := Check(&c, nil)
	if err == nil || !strings.Contains(err.Error(), `config-files[0].from: "web.conf" is not in the package`) || !strings.Contains(err.Error(), `settings.program: "bin/web" is not`) {
		t.Errorf("a package without files: %v", err)
	}
}

func TestEveryNameHasSettings(t *testing.T) {
	for _, name := range Names() {
		if settingsOf(name) == nil {
			t.Errorf("%s has none", name)
		}
	}
}

// An adapter that is not known here decodes settings of its own in the same way.
func TestSettingsOfAnotherRuntimeAreDecoded(t *testing.T) {
	var s struct {
		Image   string `json:"image"`
		Retries int    `json:"retries"`
	}
	c := manifest.Component{Settings: m{"image": "a", "retries": 3}}
	if err := Decode(&c, &s); err != nil || s.Image != "a" || s.Retries != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	c.Settings["imagee"] = "b"
	if err := Decode(&c, &s); err == nil || err.Error() != "settings.imagee: is no setting, want one of image, retries" {
		t.Error(err)
	}
}
