package docker

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/jsonstream"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// pinned is an image with a digest.
var pinned = "registry.example/team/web@sha256:" + strings.Repeat("ab", 32)

func releaseWith(settings map[string]any) *runtime.Release {
	if settings["image"] == nil {
		settings["image"] = pinned
	}
	return &runtime.Release{Name: "web", Dir: "/c/web", Home: "/c/web/data/web-1", Component: manifest.Component{Settings: settings}}
}

func TestPortsBecomeBindings(t *testing.T) {
	s, err := parse(releaseWith(map[string]any{"ports": []map[string]any{
		{"host": 8080, "container": 80}, {"host": 8081, "container": 80, "address": "127.0.0.1"}, {"host": 53, "container": 53, "protocol": "udp"},
	}}))
	if err != nil {
		t.Fatal(err)
	}
	c, h := s.config(releaseWith(map[string]any{}), "sha256:1")
	var got []string
	for inside, bindings := range h.PortBindings {
		if _, ok := c.ExposedPorts[inside]; !ok {
			t.Errorf("%s is not exposed", inside)
		}
		for _, b := range bindings {
			got = append(got, fmt.Sprintf("%v:%s→%s", b.HostIP, b.HostPort, inside))
		}
	}
	slices.Sort(got)
	if want := []string{"127.0.0.1:8081→80/tcp", "invalid IP:53→53/udp", "invalid IP:8080→80/tcp"}; !slices.Equal(got, want) {
		t.Errorf("the bindings are %q, want %q", got, want)
	}
}

func TestStatusSaysWhyItDoesNotRun(t *testing.T) {
	for _, test := range []struct {
		state          container.State
		running, ready bool
		says           string
	}{
		{container.State{Status: "running", Running: true, Pid: 7}, true, true, ""},
		{container.State{Status: "created"}, false, false, "it was never started"},
		{container.State{Status: "exited", ExitCode: 3}, false, false, "it ended with status 3"},
		{container.State{Status: "exited", ExitCode: 137, OOMKilled: true}, false, false, "no memory left"},
		{container.State{Status: "exited", ExitCode: 127, Error: "no such file"}, false, false, "no such file"},
		// It must be stopped, or the engine would start it in the middle of an upgrade.
		{container.State{Status: "restarting", Running: true, Restarting: true, ExitCode: 1}, true, false, "it ended with status 1, and is restarted"},
		{container.State{Status: "paused", Running: true, Paused: true}, true, false, "it is paused"},
		{container.State{Status: "running", Running: true, Health: &container.Health{Status: container.Starting}}, true, false, "starting"},
		{container.State{Status: "running", Running: true, Health: &container.Health{Status: container.Unhealthy, Log: []*container.HealthcheckResult{{Output: "502\n"}}}}, true, false, "unhealthy: 502"},
		{container.State{Status: "running", Running: true, Health: &container.Health{Status: container.Healthy}}, true, true, ""},
	} {
		s := status(&container.InspectResponse{State: &test.state, Config: &container.Config{}, HostConfig: &container.HostConfig{}})
		if s.Running != test.running || s.Ready != test.ready || !strings.Contains(s.Message, test.says) || (s.Message == "") != (test.says == "") {
			t.Errorf("%+v: %+v", test.state, s)
		}
		if want := map[bool]string{true: "it ended with status 1"}[test.state.Restarting]; s.Ended != want {
			t.Errorf("%+v: it ended with %q, want %q", test.state, s.Ended, want)
		}
	}
}

func TestContainerThatSomebodyStoppedHasNotFailed(t *testing.T) {
	for _, test := range []struct {
		policy  container.RestartPolicyMode
		state   container.State
		stopped bool
	}{
		{"always", container.State{Status: "exited", ExitCode: 137}, true},
		{"unless-stopped", container.State{Status: "exited", ExitCode: 3}, true},
		{"no", container.State{Status: "exited"}, true},
		{"on-failure", container.State{Status: "exited", ExitCode: 143}, true},
		{"on-failure", container.State{Status: "exited", ExitCode: 3}, false},
		{"always", container.State{Status: "exited", ExitCode: 127, Error: "no such file"}, false},
		{"no", container.State{Status: "exited", ExitCode: 143, OOMKilled: true}, false},
		{"always", container.State{Status: "created"}, false},
		{"always", container.State{Status: "restarting", Running: true, Restarting: true}, false},
	} {
		c := container.InspectResponse{State: &test.state, Config: &container.Config{}, HostConfig: &container.HostConfig{RestartPolicy: container.RestartPolicy{Name: test.policy}}}
		if s := status(&c); s.Stopped != test.stopped {
			t.Errorf("%s, %+v: stopped %v", test.policy, test.state, s.Stopped)
		}
	}
}

// An engine that is older than every version of the API that this agent knows refuses it for ever, and one that
// starts until it says which version it has.
func TestEngineThatRefusesTheAgent(t *testing.T) {
	for _, test := range []struct {
		version string // of the API, as the engine says
		refused bool
	}{{"1.12", true}, {"", false}} {
		engine := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/_ping") {
				out.Header().Set("Api-Version", test.version)
				return
			}
			out.Header().Set("Content-Type", "application/json")
			out.WriteHeader(http.StatusBadRequest)
			_, _ = out.Write([]byte(`{"message":"client version 1.54 is too new"}`))
		}))
		t.Cleanup(engine.Close)
		a, err := New(Options{Host: "tcp://" + engine.Listener.Addr().String()})
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.find(t.Context(), "web")
		if got := errors.Is(err, runtime.ErrRefused); got != test.refused || err == nil {
			t.Errorf("an engine with version %q: refused %v, %v", test.version, got, err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestProgressOfAPullOnlyGrows(t *testing.T) {
	p := progress{layers: map[string]float64{}}
	var got []float64
	for _, m := range []jsonstream.Message{
		{Status: "Pulling from team/web", ID: "latest"},
		{Status: "Pulling fs layer", ID: "a"},
		{Status: "Pulling fs layer", ID: "b"},
		{Status: "Downloading", ID: "a", Progress: &jsonstream.Progress{Current: 1, Total: 2}},
		{Status: "Download complete", ID: "a"},
		{Status: "Already exists", ID: "b"},
		{Status: "Extracting", ID: "a", Progress: &jsonstream.Progress{Current: 1, Total: 2}},
		{Status: "Pulling fs layer", ID: "c"}, // known late: the part that is done shrinks
		{Status: "Pull complete", ID: "a"},
		{Status: "Pull complete", ID: "c"},
		{Status: "Digest: sha256:ab"},
	} {
		if p.add(m) {
			got = append(got, p.percent)
		}
	}
	if want := []float64{12.5, 25, 75, 87.5, 100}; !slices.Equal(got, want) {
		t.Errorf("progress is %v, want %v", got, want)
	}
}

func TestLogsAreBounded(t *testing.T) {
	var out tail
	for i := range 3 * maxLogBytes / 1000 {
		fmt.Fprintf(&out, "%0999d\n", i)
	}
	lines := out.lines(3)
	if len(out.text) > maxLogBytes || len(lines) != 3 || !strings.HasSuffix(lines[2], fmt.Sprint(3*maxLogBytes/1000-1)) {
		t.Errorf("%d bytes, the last lines are %q", len(out.text), lines)
	}
	if lines := new(tail).lines(3); lines != nil {
		t.Errorf("the lines of no output are %q", lines)
	}
}
