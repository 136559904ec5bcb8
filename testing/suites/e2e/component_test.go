package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/watcher/probe"
)

// publishComponent publishes a version of the component web, which runs as a process. Its
// program says in a file of its folder which version and which configuration runs.
func (w *world) publishComponent(version, then string) {
	w.Helper()
	dir := filepath.Join(w.Dir, "web", version)
	check(w, os.MkdirAll(dir, 0o755))
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		check(w, os.WriteFile(path, []byte(text), mode))
		return path
	}
	program := write("web", fmt.Sprintf("#!/bin/sh\necho \"%s with $(cat \"$1\")\" >\"$1.runs\"\necho started %s\n%s\n", version, version, then), 0o755)
	conf := write("web.conf", "port 80"+version+"\n", 0o644)
	description := fmt.Sprintf(`name: web
runtime: process
settings: {program: bin/web, args: [%q]}
config-files: [{path: %q, from: web.conf}]
`, w.conf(), w.conf())
	archive, err := w.Publisher.Component(w.Context(), "web", version, description, "bin/web="+program, "web.conf="+conf)
	check(w, err)
	check(w, w.Server.Publish(w.Context(), w.Publisher, archive))
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
	w.Helper()
	a := w.Wait(h, "runs web "+version, func(a adminapi.Agent) bool {
		c := web(a)
		return text(c.Version) == version && c.UpgradeStartedAt == nil && c.Status == "HEALTHY"
	})
	if got, want := w.runs(), fmt.Sprintf("%s with port 80%s", version, version); got != want {
		w.Errorf("what runs says %q, want %q", got, want)
	}
	return web(a)
}

func TestComponentIsInstalledUpgradedAndPutBack(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	h := w.Hosts[0]
	wait := "exec sleep 1000"
	lock := filepath.Join(w.Dir, "web.lock")
	needsLock := fmt.Sprintf("while ! kill -0 \"$(cat %s)\"; do sleep 0.2; done 2>/dev/null\nexit 4", lock)
	for version, then := range map[string]string{"1.0.0": wait, "1.1.0": wait, "1.2.0": "exit 3", "1.3.0": needsLock} {
		w.publishComponent(version, then)
	}
	policy := filepath.Join(w.Dir, "components.yaml")
	check(t, os.WriteFile(policy, []byte("components:\n  - {name: web, runtime: process, health: {wait_seconds: 3, max_restarts: 1}}\n"), 0o600))
	_, err := w.Server.CLI(t.Context(), "policies", "update", "default", "--components", policy)
	check(t, err)
	w.Wait(h, "reports web", func(a adminapi.Agent) bool { return web(a).Status == "STOPPED" })

	upgrade := func(version string) {
		t.Helper()
		_, err := w.Server.CLI(t.Context(), "components", "upgrade", "web", h.ID, "--version", version)
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
	a := w.Wait(h, "has put web 1.1.0 back", func(a adminapi.Agent) bool {
		c := web(a)
		return c.UpgradeStatus != nil && *c.UpgradeStatus == fleet.UpgradeRolledBack && text(c.Version) == "1.1.0" && c.Status == "HEALTHY"
	})
	d := web(a).UpgradeDetails
	if d == nil || d.Metadata == nil {
		t.Fatalf("details are %+v", d)
	}
	for _, want := range []string{"crash loop: it was restarted 2 times", ": exit status 3; its last output: \"started 1.2.0"} {
		if got := text(d.Metadata.ErrorMsg); !strings.Contains(got, want) {
			t.Errorf("the failure is %q, want %q in it", got, want)
		}
	}
	w.webRuns(h, "1.1.0")

	// An agent that is killed while it observes a version goes on where it was.
	upgrade("1.3.0")
	w.Wait(h, "observes web 1.3.0", func(a adminapi.Agent) bool {
		d := web(a).UpgradeDetails
		return d != nil && d.State == agentapi.UpgradeWatching
	})
	check(t, h.Kill())
	check(t, h.Start())
	w.webRuns(h, "1.3.0")

	// The component goes on while the agent itself is upgraded.
	w.Publish("1.1.0", w.Programs.Agent)
	started := web(w.Wait(h, "runs web", func(adminapi.Agent) bool { return true })).Since
	w.Upgrade("1.1.0", h)
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

	// A version of the agent under which it no longer runs is rolled back.
	settings, err := os.ReadFile(layout.Path(h.Top, layout.ConfigFile))
	check(t, err)
	settings = bytes.Replace(settings, []byte("grace: 4s"), []byte("grace: 1m"), 1)
	check(t, os.WriteFile(layout.Path(h.Top, layout.ConfigFile), settings, 0o600))
	check(t, h.Kill())
	check(t, h.Start())
	w.webRuns(h, "1.3.0")
	takes := filepath.Join(w.Dir, "takes-lock")
	check(t, os.WriteFile(takes, []byte(lock), 0o600))
	archive, err := w.Publisher.Package(t.Context(), "1.2.0", w.Programs.Unhealthy, "takes-lock="+takes)
	check(t, err)
	check(t, w.Server.Publish(t.Context(), w.Publisher, archive))
	w.Upgrade("1.2.0", h)
	a = w.Wait(h, "has been rolled back", func(a adminapi.Agent) bool {
		return a.Agent.Version == "1.1.0" && a.UpgradeStatus != nil && *a.UpgradeStatus == fleet.UpgradeRolledBack && reasonCode(a) != ""
	})
	if got := text(a.UpgradeDetails.Metadata.Reason); reasonCode(a) != "component_failed" || !strings.Contains(got, "Component web has failed for") || !strings.Contains(got, "exit status 4") {
		t.Errorf("it was rolled back for %s: %s", reasonCode(a), got)
	}
	w.webRuns(h, "1.3.0")
}

// A version of a component is staged, the server goes away, and the host switches to it and back.
func TestStagedVersionOfAComponentIsSwitchedToWithoutItsSource(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	h := w.Hosts[0]
	w.components([]string{"web"}, []string{"1.0.0", "1.1.0"}, "1.2.0")
	_, err := w.Server.CLI(t.Context(), "components", "upgrade", "web", h.ID, "--version", "1.0.0")
	check(t, err)
	w.Wait(h, "runs web 1.0.0", func(a adminapi.Agent) bool { return text(web(a).Version) == "1.0.0" && web(a).UpgradeStartedAt == nil })
	versions := func(want string, args ...string) {
		t.Helper()
		args = append([]string{"versions"}, append(args, "--component", "web")...)
		out, err := h.CLI(t.Context(), args...)
		if err != nil {
			out += err.Error()
		}
		if !strings.Contains(out, want) {
			t.Errorf("muster-agent %s: %v\n%s\nwant %q in it", strings.Join(args, " "), err, out, want)
		}
	}
	has := func(want ...string) {
		t.Helper()
		out, err := h.CLI(t.Context(), "versions", "list", "--component", "web", "-o", "json")
		check(t, err)
		var list []probe.Version
		check(t, json.Unmarshal([]byte(out), &list))
		var got []string
		for _, v := range list {
			got = append(got, v.Version+" "+string(v.State))
		}
		if !slices.Equal(got, want) {
			t.Errorf("the host has %q, want %q", got, want)
		}
	}

	versions("stage it first with `muster-agent versions stage 1.1.0 --component web`", "switch", "1.1.0")
	versions("Version 1.1.0 is on this host: muster-agent versions switch 1.1.0 --component web switches to it.", "stage", "1.1.0")
	versions("Version 1.1.0 is staged here already.", "stage", "1.1.0")
	versions("Version 1.2.0 is on this host", "stage", "1.2.0")
	has("1.0.0 running", "1.2.0 staged", "1.1.0 staged")

	check(t, w.Server.Stop())
	versions("Version 1.1.0 of web runs now.", "switch", "1.1.0")
	has("1.1.0 running", "1.2.0 staged", "1.0.0 previous")
	versions("UPG_FAILED: version 1.2.0 is not healthy", "switch", "1.2.0")
	has("1.1.0 running", "1.2.0 staged", "1.0.0 previous")
	versions("Version 1.0.0 of web runs now.", "switch", "1.0.0")
	versions("is the installed one: switch to another one before you remove it", "remove", "1.0.0")
	versions("Removed version 1.2.0.", "remove", "1.2.0")
	has("1.0.0 running", "1.1.0 previous")

	check(t, w.Server.Start(t.Context()))
	w.Wait(h, "is known to run web 1.0.0", func(a adminapi.Agent) bool { return text(web(a).Version) == "1.0.0" && web(a).Status == "HEALTHY" })
}

// stateful is a component whose versions read state of their own form only. Its migrations bring the
// state to a form, the one to 1.3 by half.
const stateful = `#!/bin/sh
state=%[1]s/web.state
case $1 in
migrate)
	echo half > $state/form
	test $2 != 1.3 && echo $2 > $state/form
	exit ;;
drain | undrain)
	echo $1 >> $state.log
	exit ;;
esac
test -e $state/form || { mkdir -p $state; echo %[2]s > $state/form; }
test $(cat $state/form) = %[2]s || exit 3
exec sleep 1000
`

// Versions are skipped over their migrations, what fails puts the state back, and going back is by
// one minor version.
func TestComponentWithStateIsMigrated(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	h := w.Hosts[0]
	var archives []string
	for minor := range 4 {
		form := fmt.Sprintf("1.%d", minor)
		description := fmt.Sprintf("{name: web, runtime: process, settings: {program: bin/run}, state-paths: [%s/web.state], hooks: {drain: {exec: [bin/run, drain]}, undrain: {exec: [bin/run, undrain]}}, migrations: [", w.Dir)
		for m := 1; m <= minor; m++ {
			description += fmt.Sprintf(`{version: 1.%d.0, up: {exec: [bin/run, migrate, "1.%d"]}, down: {exec: [bin/run, migrate, "1.%d"]}}, `, m, m, m-1)
		}
		program := filepath.Join(w.Dir, form+".sh")
		check(t, os.WriteFile(program, fmt.Appendf(nil, stateful, w.Dir, form), 0o755))
		archive, err := w.Publisher.Component(t.Context(), "web", form+".0", description+"]}", "bin/run="+program)
		check(t, err)
		archives = append(archives, archive)
	}
	check(t, w.Server.Publish(t.Context(), w.Publisher, archives...))
	w.inPolicy("web")
	upgrade := func(version string) {
		t.Helper()
		_, err := w.Server.CLI(t.Context(), "components", "upgrade", "web", h.ID, "--version", version)
		check(t, err)
	}
	state := func(form, hooks string) {
		t.Helper()
		is, err := os.ReadFile(filepath.Join(w.Dir, "web.state", "form"))
		check(t, err)
		log, _ := os.ReadFile(filepath.Join(w.Dir, "web.state.log"))
		if got := strings.Join(strings.Fields(string(log)), " "); strings.TrimSpace(string(is)) != form || got != hooks {
			t.Errorf("the state has the form %s, and the hooks were %q; want %s and %q", is, got, form, hooks)
		}
	}
	runs := func(version string) func(a adminapi.Agent) bool {
		return func(a adminapi.Agent) bool {
			return text(web(a).Version) == version && web(a).UpgradeStartedAt == nil && web(a).Status == "HEALTHY"
		}
	}
	upgrade("1.0.0")
	w.Wait(h, "runs web 1.0.0", runs("1.0.0"))
	upgrade("1.2.0")
	w.Wait(h, "runs web 1.2.0", runs("1.2.0"))
	state("1.2", "drain undrain")

	const why = "state goes back by one minor version at a time, to 1.1 first"
	out, err := h.CLI(t.Context(), "versions", "switch", "1.0.0", "--component", "web")
	if err == nil || !strings.Contains(out+err.Error(), why) {
		t.Errorf("switched back by two minor versions: %s, %v", out, err)
	}
	w.Wait(h, "reports that it has refused to go back", func(a adminapi.Agent) bool {
		d := web(a).UpgradeDetails
		return d != nil && d.State == "UPG_FAILED" && d.TargetVersion == "1.0.0"
	})
	for _, args := range [][]string{{"upgrade", "web", h.ID, "--version", "1.0.0", "--force"}, {"rollback", "web", h.ID, "--to", "1.0.0"}} {
		out, err = w.Server.CLI(t.Context(), append([]string{"components"}, args...)...)
		if err == nil || !strings.Contains(out+err.Error(), why) {
			t.Errorf("muster components %s: %s, %v", strings.Join(args, " "), out, err)
		}
	}
	upgrade("1.3.0")
	w.Wait(h, "has put web 1.2.0 back", func(a adminapi.Agent) bool {
		d := web(a).UpgradeDetails
		return text(web(a).Version) == "1.2.0" && d != nil && d.State == "UPG_FAILED" && strings.Contains(text(d.Metadata.ErrorMsg), "migrate-up to the state of 1.3.0: bin/run: exit status 1")
	})
	w.Wait(h, "runs web 1.2.0 again", func(a adminapi.Agent) bool { return web(a).Status == "HEALTHY" })
	state("1.2", "drain undrain drain undrain")
}

// components lists components in the policy of all hosts, and publishes versions of each that
// run, and one that ends at once. They have no configuration.
func (w *world) components(names []string, good []string, bad string) {
	w.Helper()
	var archives []string
	for _, name := range names {
		for _, version := range append(good, bad) {
			then := "exec sleep 1000"
			if version == bad {
				then = "exit 3"
			}
			program := filepath.Join(w.Dir, name+"-"+version+".sh")
			check(w, os.WriteFile(program, []byte("#!/bin/sh\n"+then+"\n"), 0o755))
			archive, err := w.Publisher.Component(w.Context(), name, version, fmt.Sprintf("{name: %s, runtime: process, settings: {program: bin/run}}", name), "bin/run="+program)
			check(w, err)
			archives = append(archives, archive)
		}
	}
	check(w, w.Server.Publish(w.Context(), w.Publisher, archives...))
	w.inPolicy(names...)
}

// inPolicy lists components in the policy of all hosts.
func (w *world) inPolicy(names ...string) {
	w.Helper()
	var list []string
	for _, name := range names {
		list = append(list, fmt.Sprintf("  - {name: %s, runtime: process, health: {wait_seconds: 2, max_restarts: 1}}\n", name))
	}
	policy := filepath.Join(w.Dir, "components.yaml")
	check(w, os.WriteFile(policy, []byte("components:\n"+strings.Join(list, "")), 0o600))
	_, err := w.Server.CLI(w.Context(), "policies", "update", "default", "--components", policy)
	check(w, err)
	for _, h := range w.Hosts {
		w.Wait(h, "reports its components", func(a adminapi.Agent) bool { return len(a.Components) == len(names) })
	}
}

// versions returns the versions of a component on all hosts, once none is being upgraded.
func (w *world) versions(name string) map[string]int {
	w.Helper()
	out := map[string]int{}
	for _, h := range w.Hosts {
		a := w.Wait(h, "has ended the upgrades of "+name, func(a adminapi.Agent) bool {
			return !slices.ContainsFunc(a.Components, func(c adminapi.Component) bool { return text(c.Name) == name && c.UpgradeStartedAt != nil })
		})
		for _, c := range a.Components {
			if text(c.Name) == name {
				out[text(c.Version)]++
			}
		}
	}
	return out
}

func TestBadCanaryOfAComponentStopsItsRollout(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01", "web-02", "web-03", "web-04", "web-05", "web-06")
	w.components([]string{"web"}, []string{"1.0.0"}, "2.0.0")
	r := w.rollOut(w.plan("1.0.0", "component: web\nselect: {all: true}\nstrategy: {kind: rolling, batch_size: 3}\nhealth: {wait: 3s}\n"), exitCompleted)
	if got := w.versions("web"); r.Counts.Succeeded != 6 || !maps.Equal(got, map[string]int{"1.0.0": 6}) {
		t.Fatalf("the first installation ended with %+v, %v", r.Counts, got)
	}
	r = w.rollOut(w.plan("2.0.0", "component: web\nselect: {all: true}\nstrategy: {kind: canary, canary: {size: 2}}\nhealth: {wait: 3s}\n"), exitPaused)
	if r.Stop == nil || r.Stop.Kind != "canary" {
		t.Fatalf("the rollout is %s, stopped by %+v", r.State, r.Stop)
	}
	targets, err := harness.Get[adminapi.TargetList](t.Context(), w.Server, "/api/v1/rollouts/"+r.ID+"/targets?perPage=100")
	check(t, err)
	offered := 0
	for _, target := range targets.Items {
		if target.OfferedAt != nil {
			offered++
		}
	}
	// Each host has put the earlier version back by itself, and no other was offered the bad one.
	if got := w.versions("web"); offered > 2 || !maps.Equal(got, map[string]int{"1.0.0": 6}) {
		t.Errorf("%d were offered the bad version, and now run %v", offered, got)
	}
	untouched := slices.IndexFunc(targets.Items, func(target adminapi.Target) bool { return target.OfferedAt == nil })
	code, said := w.command("agents", "why", targets.Items[untouched].AgentID, "--component", "web")
	if code != 0 || !strings.Contains(said, "canary") {
		t.Errorf("why not? It says:\n%s", said)
	}
}

func TestGroupOfTwoComponentsIsRolledBackAsAWhole(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01", "web-02")
	w.components([]string{"db", "web"}, []string{"1.0.0", "1.1.0"}, "2.0.0")
	group := func(policy, db, web string) (code int, said string) {
		t.Helper()
		path := filepath.Join(w.Dir, fmt.Sprintf("group-%s-%s.yaml", db, web))
		plan := func(component string) string {
			return fmt.Sprintf("  - {name: %s, plan: {component: %s, select: {all: true}, strategy: {kind: all_at_once}, health: {wait: 3s}, failure: {count: 1}}}\n", component, component)
		}
		text := fmt.Sprintf("name: release\nfailure_policy: %s\naccept_drift: true\ndesired_versions: {db: %s, web: %s}\nmembers:\n", policy, db, web) + plan("db") + plan("web")
		check(t, os.WriteFile(path, []byte(text), 0o600))
		return w.command("groups", "create", "--file", path, "--start", "--yes", "--wait", "--timeout", "3m")
	}
	if code, said := group("rollback_all", "1.0.0", "1.0.0"); code != exitCompleted {
		t.Fatalf("the first installation ended with %d:\n%s", code, said)
	}
	code, said := group("rollback_all", "1.1.0", "2.0.0")
	if code == exitCompleted {
		t.Errorf("a group with a bad member is done:\n%s", said)
	}
	for _, name := range []string{"db", "web"} {
		if got := w.versions(name); !maps.Equal(got, map[string]int{"1.0.0": 2}) {
			t.Errorf("hosts run %s %v, want 1.0.0 again\n%s", name, got, said)
		}
	}
}

// A component whose package has one file and the server another: its host is done, and no target
// again, until what the server renders changes.
func TestHostThatHasTheServersFilesIsNoTargetAgain(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	own, site := filepath.Join(w.Dir, "own.conf"), filepath.Join(w.Dir, "site.conf")
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(w.Dir, filepath.FromSlash(name))
		check(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check(t, os.WriteFile(path, []byte(text), 0o700))
		return path
	}
	says := func(path, want string) {
		t.Helper()
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s says %q, %v, want %q", filepath.Base(path), b, err, want)
		}
	}
	description := fmt.Sprintf("name: web\nruntime: process\nsettings: {program: bin/web}\nconfig-files: [{path: %q, from: own.conf}]\nserver-files: [%q]\n", own, site)
	archive, err := w.Publisher.Component(t.Context(), "web", "1.0.0", description, "bin/web="+write("web/run", "#!/bin/sh\nexec sleep 1000\n"), "own.conf="+write("web/own", "of the package\n"))
	check(t, err)
	check(t, w.Server.Publish(t.Context(), w.Publisher, archive))
	upgrades, err := filepath.Rel(w.Dir, filepath.Join(w.Server.Data, "upgrades", "edge"))
	check(t, err)
	write(upgrades+"/web.yaml", fmt.Sprintf("component: web\nversion: 1.0.0\nconfig_files: [{path: %q, template: web/site.tmpl}]\n", site))
	write(upgrades+"/web/site.tmpl", "port {{.Vars.port}} of {{.Host.hostname}}\n")
	setPort := func(port string) {
		t.Helper()
		policy := write("components.yaml", fmt.Sprintf("components:\n  - {name: web, runtime: process, server_config: true, variables: {port: %q}, health: {wait_seconds: 2, max_restarts: 1}}\n", port))
		_, err := w.Server.CLI(t.Context(), "policies", "update", "default", "--components", policy)
		check(t, err)
	}
	setPort("80")
	plan := write("files.yaml", "name: files\nprofile: edge\nupgrade_id: web\nselect: {all: true}\nstrategy: {kind: rolling}\nhealth: {wait: 3s}\n")
	h := w.Hosts[0]
	w.Wait(h, "reports web, with the policy's leave", func(a adminapi.Agent) bool { return web(a).Status == "STOPPED" })

	if r := w.rollOut(plan, exitCompleted); r.Counts.Succeeded != 1 {
		t.Fatalf("the rollout ended with %+v", r.Counts)
	}
	says(own, "of the package\n")
	c := web(w.Wait(h, "runs web", func(a adminapi.Agent) bool { return web(a).Status == "HEALTHY" }))
	if text(c.RenderedSha256) == "" || text(c.ConfigSha256) == text(c.RenderedSha256) {
		t.Errorf("the digest of all files is %q, that of the server's %q", text(c.ConfigSha256), text(c.RenderedSha256))
	}
	if code, said := w.command("rollouts", "create", "--file", plan, "--start", "--yes"); code != exitCompleted || !strings.Contains(said, "nothing to do") {
		t.Errorf("a rollout of what the host has ends with %d:\n%s", code, said)
	}

	setPort("81")
	code, said := w.command("rollouts", "create", "--file", plan, "-o", "json")
	var draft adminapi.RolloutItem
	if err := json.Unmarshal([]byte(said), &draft); code != 0 || err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	code, said = w.command("rollouts", "preview", draft.Item.ID, "--configs", "--host", h.ID)
	if code != 0 || !strings.Contains(said, "\n-port 80 of ") || !strings.Contains(said, "\n+port 81 of ") {
		t.Errorf("the preview shows\n%s", said)
	}
	if r := w.rollOut(plan, exitCompleted); r.Counts.Succeeded != 1 {
		t.Fatalf("the rollout of the change ended with %+v", r.Counts)
	}
	if b, err := os.ReadFile(site); err != nil || !strings.HasPrefix(string(b), "port 81 of ") {
		t.Errorf("the host has %q, %v", b, err)
	}
	says(own, "of the package\n")
}
