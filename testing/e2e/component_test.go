package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/testing/harness"
)

// publishComponent publishes a version of the component web, which runs as a process. Its
// program says in a file of its folder which version and which configuration runs.
func (w *world) publishComponent(version, then string) {
	w.t.Helper()
	dir := filepath.Join(w.Dir, "web", version)
	check(w.t, os.MkdirAll(dir, 0o755))
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		check(w.t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	program := write("web", fmt.Sprintf("#!/bin/sh\necho \"%s with $(cat \"$1\")\" >\"$1.runs\"\necho started %s\n%s\n", version, version, then), 0o755)
	conf := write("web.conf", "port 80"+version+"\n", 0o644)
	description := write("component.yaml", fmt.Sprintf(`name: web
runtime: process
settings: {program: bin/web, args: [%q]}
config-files: [{path: %q, from: web.conf}]
`, w.conf(), w.conf()), 0o644)
	archive := filepath.Join(dir, manifest.ComponentArchiveName("web", version, runtime.GOOS, runtime.GOARCH, "tar.gz"))
	_, err := w.server.CLI(w.t.Context(), "package", "build", "--version", version, "--component", description,
		"--file", "bin/web="+program, "--file", "web.conf="+conf, "--out", archive)
	check(w.t, err)
	check(w.t, w.publisher.Sign(w.t.Context(), archive))
	check(w.t, w.server.Publish(w.t.Context(), w.publisher, archive))
}

// conf is the configuration file of the component, which all hosts of a test share.
func (w *world) conf() string { return filepath.Join(w.Dir, "web.conf") }

func (w *world) runs() string {
	b, _ := os.ReadFile(w.conf() + ".runs")
	return strings.TrimSpace(string(b))
}

func web(a adminapi.Agent) adminapi.Component {
	i := slices.IndexFunc(a.Components, func(c adminapi.Component) bool { return c.Name != nil && *c.Name == "web" })
	if i < 0 {
		return adminapi.Component{}
	}
	return a.Components[i]
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// webRuns waits until the component runs a version and nothing is under way.
func (w *world) webRuns(h *harness.Host, version string) adminapi.Component {
	w.t.Helper()
	a := w.wait(h, "runs web "+version, func(a adminapi.Agent) bool {
		c := web(a)
		return text(c.Version) == version && c.UpgradeStartedAt == nil && c.Status == "HEALTHY"
	})
	if got, want := w.runs(), fmt.Sprintf("%s with port 80%s", version, version); got != want {
		w.t.Errorf("what runs says %q, want %q", got, want)
	}
	return web(a)
}

func TestComponentIsInstalledUpgradedAndPutBack(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	h := w.hosts[0]
	wait := "exec sleep 1000"
	for version, then := range map[string]string{"1.0.0": wait, "1.1.0": wait, "1.2.0": "exit 3", "1.3.0": wait} {
		w.publishComponent(version, then)
	}
	policy := filepath.Join(w.Dir, "components.yaml")
	check(t, os.WriteFile(policy, []byte("components:\n  - {name: web, runtime: process, version: 1.0.0, health: {wait_seconds: 3, max_restarts: 1}}\n"), 0o600))
	_, err := w.server.CLI(t.Context(), "policies", "update", "default", "--components", policy)
	check(t, err)
	w.wait(h, "reports web", func(a adminapi.Agent) bool { return web(a).Status == "STOPPED" })

	upgrade := func(version string) {
		t.Helper()
		_, err := w.server.CLI(t.Context(), "components", "upgrade", "web", h.ID, "--version", version)
		check(t, err)
	}
	upgrade("1.0.0")
	w.webRuns(h, "1.0.0")
	upgrade("1.1.0")
	c := w.webRuns(h, "1.1.0")
	if text(c.LastHealthyVersion) != "1.1.0" || c.Rollbacks == nil || !slices.Equal(*c.Rollbacks, []string{"1.0.0"}) {
		t.Errorf("component is %+v", c)
	}

	// A version that ends at once is put back, with its configuration, by the agent alone.
	upgrade("1.2.0")
	a := w.wait(h, "has put web 1.1.0 back", func(a adminapi.Agent) bool {
		c := web(a)
		return c.UpgradeStatus != nil && *c.UpgradeStatus == adminapi.ComponentUpgradeRolledBack && text(c.Version) == "1.1.0" && c.Status == "HEALTHY"
	})
	if d := web(a).UpgradeDetails; d == nil || d.Metadata == nil || !strings.Contains(text(d.Metadata.ErrorMsg), "crash loop") {
		t.Errorf("details are %+v", d)
	}
	w.webRuns(h, "1.1.0")

	// An agent that is killed while it observes a version goes on where it was.
	upgrade("1.3.0")
	w.wait(h, "observes web 1.3.0", func(a adminapi.Agent) bool {
		d := web(a).UpgradeDetails
		return d != nil && d.State == adminapi.UpgradeWatching
	})
	pids, err := h.Processes()
	check(t, err)
	for _, pid := range pids {
		check(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	check(t, h.Start())
	w.webRuns(h, "1.3.0")

	// The component goes on while the agent itself is upgraded.
	w.publish("1.1.0", w.Programs.Agent)
	started := web(w.wait(h, "runs web", func(adminapi.Agent) bool { return true })).Since
	w.upgrade("1.1.0", h)
	w.upgraded(h, "1.1.0")
	if since := w.webRuns(h, "1.3.0").Since; since == nil || started == nil || !since.Equal(*started) {
		t.Errorf("web runs since %v, want since %v", since, started)
	}
	for _, args := range [][]string{{"components", "list"}, {"components", "status", "web"}, {"components", "history", "web"}} {
		if out, err := h.CLI(t.Context(), args...); err != nil || !strings.Contains(out, "1.3.0") {
			t.Errorf("muster-agent %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	if out, err := h.CLI(t.Context(), "components", "logs", "web"); err != nil || !strings.Contains(out, "started 1.3.0") {
		t.Errorf("muster-agent components logs: %v\n%s", err, out)
	}
}
