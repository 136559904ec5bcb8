package runtimes

import (
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// container decodes settings of the runtime docker, with an image unless they have one.
func container(settings map[string]any) (Docker, error) {
	if settings["image"] == nil {
		settings["image"] = "registry.example/team/web@sha256:" + strings.Repeat("ab", 32)
	}
	var s Docker
	err := Decode(&manifest.Component{Settings: settings}, &s)
	return s, err
}

func TestSettingsOfDockerThatAreWrongAreNamed(t *testing.T) {
	for _, test := range []struct {
		settings m
		says     string
	}{
		{m{"image": "nginx"}, "image: is \"nginx\", want <repository>@sha256:<digest>: it has no digest"},
		{m{"image": "nginx:1.27"}, "it has no digest"},
		{m{"image": "nginx@sha256:12"}, "image: "},
		{m{"image": "nginx@sha512:" + strings.Repeat("ab", 64)}, "not SHA-256"},
		{m{"image": "Nginx@sha256:" + strings.Repeat("ab", 32)}, "image: "},
		{m{"privileged": true}, "settings.privileged: is no setting, want one of image, container, adopt, command, args, env, "},
		{m{"container": "x"}, "container: "},
		{m{"container": "web.bak"}, "do not end in .bak"},
		{m{"env": m{"PORT": 80}}, `settings.env.PORT: is 80, want text, such as "80"`},
		{m{"env": m{"A B": "1"}}, `env: "A B"`},
		{m{"ports": []m{{"host": 80}}}, "ports[0]: lacks host or container"},
		{m{"ports": []m{{"host": 80, "container": 80, "protocol": "http"}}}, "ports[0].protocol"},
		{m{"ports": []m{{"host": 80, "container": 80, "address": "localhost"}}}, "ports[0].address"},
		{m{"ports": []m{{"host": 80, "container": 80, "address": "10.0.0.1"}, {"host": 80, "container": 81}}}, "ports[1]: publishes 80/tcp"},
		{m{"ports": []m{{"host": 80, "container": 80}}, "network": "host"}, "have no effect with network: host"},
		{m{"mounts": []m{{"source": "data/x", "target": "/x"}}}, "mounts[0].source: is \"data/x\", want an absolute path"},
		{m{"mounts": []m{{"source": "/a/../b", "target": "/x"}}}, "mounts[0].source"},
		{m{"mounts": []m{{"source": "/a:b", "target": "/x"}}}, "mounts[0].source"},
		{m{"mounts": []m{{"source": "/a", "target": "x"}}}, "mounts[0].target"},
		{m{"mounts": []m{{"source": "/a", "target": "/x"}, {"source": "b2", "target": "/x"}}}, "mounts[1].target: /x occurs twice"},
		{m{"mounts": []m{{"target": "/x", "read_only": true}}}, "mounts[0].read_only"},
		{m{"network": "container:web"}, "network: "},
		{m{"user": "a b"}, "user: "},
		{m{"restart": "sometimes"}, "restart: "},
		{m{"restart": "always:3"}, "restart: "},
		{m{"stop_timeout": "2m"}, "stop_timeout: "},
		{m{"stop_timeout": "1.5s"}, "stop_timeout: "},
		{m{"reload_signal": "HUP"}, "reload_signal: "},
		{m{"cap_add": []string{"net admin"}}, "cap_add: "},
		{m{"memory": "1k"}, "memory: "},
		{m{"cpus": -1}, "cpus: "},
		{m{"labels": m{"muster.component": "x"}}, "Muster's own"},
		{m{"restart": "x", "user": "a b"}, "user: is"},
	} {
		_, err := container(test.settings)
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%v: %v, want %q in it", test.settings, err, test.says)
		}
	}
}

func TestFileThatIsReloadedIsNotMounted(t *testing.T) {
	for source, says := range map[string]string{"/etc/web": "", "/etc/web/web.conf": "settings.mounts[0].source: /etc/web/web.conf is a file, and the running container would not see a new one"} {
		c := manifest.Component{
			Reload: true, ServerFiles: []string{"/etc/web/web.conf"},
			Settings: m{"image": "web@sha256:" + strings.Repeat("ab", 32), "mounts": []m{{"source": source, "target": "/x"}}},
		}
		if err := Decode(&c, new(Docker)); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", source, err, says)
		}
		c.Reload = false
		if err := Decode(&c, new(Docker)); err != nil {
			t.Errorf("%s of a component that is restarted: %v", source, err)
		}
	}
}

func TestTagBesideTheDigestIsIgnored(t *testing.T) {
	for image, want := range map[string]string{
		"nginx:1.27@sha256:" + strings.Repeat("ab", 32):         "docker.io/library/nginx@sha256:" + strings.Repeat("ab", 32),
		"localhost:5000/a/b@sha256:" + strings.Repeat("ab", 32): "localhost:5000/a/b@sha256:" + strings.Repeat("ab", 32),
	} {
		s, err := container(map[string]any{"image": image})
		if err != nil || s.Image != want {
			t.Errorf("%s: %+v, %v, want %s", image, s, err, want)
		}
	}
}
