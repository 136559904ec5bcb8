package cli_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func rolloutOf(o operator, id string) adminapi.Rollout {
	o.t.Helper()
	return asJSON[adminapi.RolloutItem](o, "rollouts", "status", id).Item
}

func TestRolloutCommandsFromDraftToCancel(t *testing.T) {
	o, s := loggedIn(t, quick)
	s.Publisher().Publish("1.1.0")
	a, current := s.Enroll("web-01", "1.0.0"), s.Enroll("web-02", "1.1.0")
	a.MustCheckin(nil)
	current.MustCheckin(nil)
	o.contains(o.run("rollouts", "list"), "no rollouts: create one with `muster rollouts create`")

	// The preview of a plan on standard input is not stored.
	plan := "name: to the web\nversion: 1.1.0\nselect: { policies: [default] }\nstrategy: { kind: canary, canary: { size: 1, approval: true } }\nhealth: { wait: 30m }\n"
	got := o.tryWith(plan, "rollouts", "preview", "--file", "-", "--agents-shown", "5")
	o.contains(got.out, "1 agent would be upgraded in 1 batch", "Selected, but left out: 1 agent.\nIt takes at least 30 min; at the pace of past upgrades about 32 min.", "runs version", "web-01", "web-02", "canary")
	if list := asJSON[adminapi.RolloutList](o, "rollouts", "list"); list.Total != 0 {
		t.Fatal("the preview of a plan created a rollout")
	}
	if got := asJSON[adminapi.RolloutPreviewItem](o, "rollouts", "preview", "--version", "1.1.0", "--all"); len(got.Item.Targets) != 1 || len(got.Item.Skipped) != 1 {
		t.Errorf("as JSON it is %+v", got.Item)
	}

	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte(plan), 0o600); err != nil {
		t.Fatal(err)
	}
	id := asJSON[adminapi.RolloutItem](o, "rollouts", "create", "--file", file, "--name", "to all of the web", "--why", "OPS-7").Item.ID
	o.contains(o.run("rollouts", "list", "--state", "draft"), id, "to all of the web", "1.1.0", "draft", "not yet")
	o.contains(o.run("rollouts", "status", "@last"), "state          draft", "`muster rollouts start "+id+"`")
	hash := asJSON[adminapi.RolloutPreviewItem](o, "rollouts", "preview", id).Item.Hash
	o.contains(o.run("rollouts", "preview", id), "muster rollouts start "+id+" --hash "+hash)
	o.fails(2, []string{"rollouts", "start", id}, "standard input is not a terminal")
	o.fails(1, []string{"rollouts", "watch", id}, "is a draft: start it with")

	// A start after the fleet has changed is refused with the difference.
	s.Enroll("web-03", "1.0.0").MustCheckin(nil)
	o.fails(1, []string{"rollouts", "start", id, "--hash", hash}, "The fleet has changed since the preview: 1 agent added, 0 removed", "+ web-03", "--accept-drift", "(2 agents)")
	o.contains(o.run("rollouts", "start", id, "--hash", hash, "--accept-drift"), `Started rollout "to all of the web" (`+id+") for 2 agents.", "`muster rollouts watch "+id+"`")

	o.contains(o.run("rollouts", "list", "--state", "running"), id, "0/2")
	apptest.Eventually(t, "what the rollout waits for", func() string {
		if got := o.run("rollouts", "list"); !strings.Contains(got, "being upgraded in batch 1 of ") {
			return got
		}
		return ""
	})
	o.contains(o.run("rollouts", "status", id), "state          running", "canary", "0 of 2 done")
	o.contains(o.run("rollouts", "targets", id), "web-01", "web-03", "1.0.0", "1.1.0")
	o.fails(2, []string{"rollouts", "targets", id, "--batch", "0"}, "the first batch is 1")
	if got := asJSON[adminapi.TargetList](o, "rollouts", "targets", id, "--batch", "1"); len(got.Items) != 1 || got.Total != 1 {
		t.Errorf("batch 1 has %+v", got)
	}
	o.fails(1, []string{"rollouts", "targets", id, "--state", "odd"}, "muster: state: is \"odd\"")
	o.contains(o.run("agents", "get", a.ID), "desired      1.1.0", "rollout      to all of the web ("+id+")")
	o.contains(o.run("agents", "why", a.ID), id, "to all of the web")
	o.contains(o.run("agents", "why", current.ID, "--rollout", id), "1.1.0")
	if got := asJSON[adminapi.ExplanationItem](o, "agents", "why", a.ID, "--at", "1h ago"); got.Item.At.After(time.Now().Add(-50 * time.Minute)) {
		t.Errorf("--at asks about %v", got.Item.At)
	}
	o.fails(1, []string{"agents", "upgrade", a.ID, "--version", "1.1.0", "--force"}, "to all of the web")
	o.fails(1, []string{"rollouts", "create", "--version", "1.1.0", "--all"}, id)

	o.contains(o.run("rollouts", "pause", id), "pauses when its current batch has ended")
	o.contains(o.run("rollouts", "resume", id), "Resumed rollout")
	o.contains(o.run("rollouts", "pause", id, "--now", "--why", "alarms in fra"), "Paused rollout", "Resume it with `muster rollouts resume "+id+"`")
	o.contains(o.run("rollouts", "audit", id), "OPS-7", "alarms in fra", "first key")
	o.fails(6, []string{"rollouts", "watch", id}, "("+id+") is paused", "alarms in fra", "muster rollouts resume")
	o.fails(2, []string{"rollouts", "force", id}, "--why is missing")
	o.fails(1, []string{"rollouts", "approve", id}, "canaries")
	o.fails(2, []string{"rollouts", "promote", id}, "--why is missing")
	o.contains(o.run("rollouts", "promote", id, "--why", "OPS-8"), "Promoted rollout", "It stays paused. Resume it with `muster rollouts resume "+id+"`")
	o.contains(o.run("rollouts", "status", id), "promoted", ": OPS-8")
	o.fails(2, []string{"rollouts", "retry", id}, "--all-failed")
	o.fails(1, []string{"rollouts", "retry", id, "--all-failed"}, "no target")
	apptest.Eventually(t, "the offer to be withdrawn, so that the agent can be skipped", func() string {
		got := o.try("rollouts", "skip", id, a.ID, "--why", "broken disk")
		if got.code == 0 {
			o.contains(got.out, "skips 1 agent")
		}
		return got.err
	})
	o.fails(2, []string{"rollouts", "adjust", id}, "nothing to adjust")
	o.fails(2, []string{"rollouts", "adjust", id, "--max-parallel", "0"}, "--max-parallel is 0")
	o.contains(o.run("rollouts", "adjust", id, "--max-parallel", "7", "--soak", "1h", "--why", "the night is short"), "Adjusted rollout")
	o.contains(o.run("rollouts", "audit", id), "limits.max_parallel from 500 to 7", "pace.soak", "the night is short")
	o.fails(1, []string{"rollouts", "delete", id}, "only drafts can be deleted")
	o.fails(5, []string{"rollouts", "cancel", id, "--now", "--wait", "--timeout", apptest.WaitLimit.String()}, "was cancelled: 0 of 2 agents run 1.1.0")
	o.fails(5, []string{"rollouts", "watch", id, "-o", "json"}, "was cancelled")

	draft := asJSON[adminapi.RolloutItem](o, "rollouts", "create", "--version", "1.1.0", "--all").Item.ID
	if got := asJSON[adminapi.ActionWord](o, "rollouts", "delete", draft); got.Action != "deleted" {
		t.Errorf("delete says %+v", got)
	}
}

func TestFollowedRollout(t *testing.T) {
	t.Run("ends with its outcome", func(t *testing.T) {
		o, s := loggedIn(t, quick)
		s.Publisher().Publish("1.1.0")
		a := s.Enroll("web-01", "1.0.0")
		a.MustCheckin(nil)
		plan := "name: quick\nselect: { all: true }\nstrategy: { kind: all_at_once, skip_validation: true }\n"
		ctx, cancel := context.WithTimeout(t.Context(), apptest.WaitLimit)
		defer cancel()
		out, errOut, ended := o.start(ctx, plan, "rollouts", "create", "--file", "-", "--version", "1.1.0", "--start", "--yes", "--wait")
		apptest.Eventually(t, "the offer", func() string {
			if doc := s.Fleet(a.ID); !doc.Upgrading() {
				return "so far: " + errOut.String()
			}
			return ""
		})
		a.MustCheckin(nil)
		id := s.Fleet(a.ID).UpgradeActionID
		a.Ack("", id)
		a.Version = "1.1.0"
		a.MustCheckin(nil)
		if code := <-ended; code != 0 || !strings.Contains(out.String(), "1 of 1 agent run 1.1.0") {
			t.Errorf("exit code %d: %s\n%s", code, out, errOut)
		}
		o.contains(errOut.String(), "1 agent would be upgraded", "running, 0 of 1 done", "completed, 1 of 1 done")
	})
	t.Run("continues when following stops", func(t *testing.T) {
		o, s := loggedIn(t, quick)
		s.Publisher().Publish("1.1.0")
		s.Enroll("web-01", "1.0.0").MustCheckin(nil)
		id := asJSON[adminapi.RolloutItem](o, "rollouts", "create", "--version", "1.1.0", "--all", "--start", "--yes").Item.ID
		o.fails(1, []string{"rollouts", "watch", id, "--timeout", "50ms"}, "continues", "`muster rollouts watch "+id+"`")
		ctx, leave := context.WithCancel(t.Context())
		out, errOut, ended := o.start(ctx, "", "rollouts", "watch", id)
		apptest.Eventually(t, "the first line", func() string {
			if !strings.Contains(out.String(), "running") {
				return "so far: " + out.String()
			}
			return ""
		})
		leave()
		if code := <-ended; code != 130 {
			t.Errorf("Ctrl-C gives exit code %d", code)
		}
		o.contains(errOut.String(), "rollout "+id+" continues", "muster rollouts watch "+id, "muster rollouts pause "+id+" --now")
		if r := rolloutOf(o, id); r.State != fleet.RolloutRunning {
			t.Errorf("it is %s", r.State)
		}
	})
	t.Run("stops at a gate", func(t *testing.T) {
		o, s := loggedIn(t, quick)
		s.Publisher().Publish("1.0.0", "1.1.0")
		a := s.Enroll("web-01", "1.0.0")
		s.Enroll("web-02", "1.0.0").MustCheckin(nil)
		a.MustCheckin(nil)
		id := asJSON[adminapi.RolloutItem](o, "rollouts", "create", "--version", "1.1.0", "--agents", a.ID, "--max-failures", "1", "--strategy", "all_at_once", "--start", "--yes").Item.ID
		apptest.Eventually(t, "the offer", func() string {
			if doc := s.Fleet(a.ID); !doc.Upgrading() {
				return "none yet"
			}
			return ""
		})
		a.MustCheckin(nil)
		details := apptest.Details(s.Fleet(a.ID).UpgradeActionID, "1.1.0", agentapi.UpgradeFailed)
		details.Metadata.ErrorMsg = "no space left"
		a.MustCheckin(details)
		args := []string{"rollouts", "watch", id, "--timeout", apptest.WaitLimit.String()}
		got := o.try(args...)
		if got.code != 3 && got.code != 4 { // 3 or 4: the only target failed, so it may end first
			t.Errorf("exit code %d: %s%s", got.code, got.out, got.err)
		}
		o.contains(got.err, "muster rollouts rollback "+id+" --scope failed")
		o.contains(o.run("rollouts", "targets", id, "--state", "failed"), "web-01", "no space left")
	})
}

func TestWrongRolloutArgumentsAreUsageErrors(t *testing.T) {
	o := newOperator(t)
	for _, c := range []struct{ line, says string }{
		{"rollouts strt", "did you mean start"},
		{"rollouts start", "want one rollout id"},
		{"rollouts list --state odd", "--state is \"odd\""},
		{"rollouts create --wait", "add --start"},
		{"rollouts create --version 1 --start", "add --yes"},
		{"rollouts create --from a", "it goes with --failed"},
		{"rollouts create --failed --version 1", "it goes with --failed"},
		{"rollouts create --from a --failed --version 1", "--version does not go with --from"},
		{"rollouts create --label fra", "--label is \"fra\""},
		{"rollouts preview", "nothing to preview"},
		{"rollouts preview a b", "want one rollout id, or a plan"},
		{"rollouts rollback a", "--scope is \"\""},
		{"rollouts retry a", "--all-failed"},
		{"rollouts retry a b --all-failed", "--all-failed"},
		{"rollouts retry", "want one rollout id, and agents"},
		{"rollouts skip a", "no agents are named"},
		{"rollouts skip", "want one rollout id, and agents"},
		{"rollouts force a", "--why is missing"},
		{"rollouts watch a --timeout soon", "--timeout"},
		{"agents why", "want one agent, by id or host name"},
		{"agents why a --at soon", "--at is \"soon\""},
		{"exposure set", "nothing to set"},
		{"freezes add", "the freeze's name"},
		{"freezes add x --from soon --to 12:00", "--from is \"soon\""},
		{"freezes remove", "want one freeze id"},
		{"incidents list --state odd", "--state is \"odd\""},
		{"incidents list --state open --all", "--state or --all, not both"},
		{"incidents ack", "want one incident id"},
		{"webhooks add x", "want a name and a URL"},
		{"webhooks test", "want one webhook id"},
		{"webhooks redeliver", "want one dead letter id"},
		{"manifests show web", "want a profile"},
	} {
		o.fails(2, strings.Fields(c.line), c.says)
	}
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte("name: x\nstrategy:\n  kidn: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.fails(1, []string{"rollouts", "create", "--file", file}, "plan.yaml:3: strategy.kidn is not a known key")
	o.contains(o.run("rollouts", "example"), "strategy:", "version: 1.1.0")
	o.contains(o.run("rollouts", "example", "--ci"), "muster rollouts create", "exit code")
	o.contains(o.run("rollouts", "--help"), "0  it completed", "6  it waits for an operator")
}

func TestServerRefusalNamesTheLineOfThePlan(t *testing.T) {
	o, s := loggedIn(t)
	s.Publisher().Publish("1.1.0")
	plan := "name: x\nversion: 1.1.0\nselect: { all: true }\nstrategy:\n  kind: waves\n"
	for _, args := range [][]string{{"rollouts", "create", "--file", "-"}, {"rollouts", "preview", "--file", "-"}} {
		o.failed(o.tryWith(plan, args...), 1, args, "standard input:5: strategy.kind: ")
	}
	plan = "name: x\nversion: 1.1.0\nselect:\n  kuery: 'tags: (prod'\nstrategy: { kind: rolling }\n"
	for _, verb := range []string{"create", "preview"} {
		args := []string{"rollouts", verb, "--file", "-"}
		o.failed(o.tryWith(plan, args...), 1, args, "standard input:4: select.kuery: the query cannot be parsed: ", "\ntags: (prod\n           ^")
	}
	// The server accepts the example plan, once its package is published.
	got := o.tryWith(o.run("rollouts", "example"), "rollouts", "create", "--file", "-", "--preview")
	if o.contains(got.out, "0 agents would be upgraded"); got.code != 0 {
		t.Errorf("the example gives exit code %d: %s", got.code, got.err)
	}
	// A rollout without agents is not started.
	args := []string{"rollouts", "create", "--version", "1.1.0", "--all", "--start", "--yes"}
	o.fails(1, args, "no agent would be upgraded", "muster rollouts preview")
	if list := asJSON[adminapi.RolloutList](o, "rollouts", "list", "--state", "draft"); list.Total != 1 { // of the example above
		t.Errorf("%d drafts are left", list.Total)
	}
}

func TestExposureFreezesAndManifests(t *testing.T) {
	o, s := loggedIn(t)
	o.contains(o.run("exposure", "show"), "There is no exposure budget", "muster exposure set")
	o.contains(o.run("exposure", "set", "--percent", "10", "--healthy-hours", "24", "--per", "site=25%"), "At most 10 % of the fleet", "fewer than 24", "at most 25 % of each site")
	o.contains(o.run("exposure", "set", "--percent", "20"), "At most 20 %", "fewer than 24", "25 % of each site")
	if got := asJSON[adminapi.ExposureRuleItem](o, "exposure", "set", "--off"); got.Item.Enabled || got.Item.Percent != 20 {
		t.Errorf("off is %+v", got.Item)
	}
	o.fails(1, []string{"exposure", "set", "--percent", "500"}, "muster: percent: is 500")
	o.fails(2, []string{"exposure", "set", "--per", "site"}, "--per is")

	id := asJSON[adminapi.FreezeItem](o, "freezes", "add", "end of year", "--from", "2096-12-18", "--to", "2097-01-04 08:00").Item.ID
	o.contains(o.run("freezes", "list"), id, "end of year", "later", "first key")
	o.contains(o.run("freezes", "remove", id), "removed")
	o.fails(1, []string{"freezes", "remove", id}, "muster freezes list")

	o.contains(o.run("manifests", "list"), "no upgrade manifests: `muster manifests example` prints one")
	dir := filepath.Join(s.Data, "upgrades", "web")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"good.yaml": "version: 1.1.0\ndescription: a test\n", "bad.yaml": "verzion: 1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.contains(o.run("manifests", "list"), "good", "1.1.0", "a test", "web/bad cannot be used: ")
	o.contains(o.run("manifests", "show", "web", "good"), "hash       sha256:")
	o.fails(1, []string{"manifests", "show", "web", "none"}, "there are web/bad, web/good in the server's folder ", "`muster manifests example`")
}

// What the command prints works once it is on the server.
func TestExampleOfManifestIsUsable(t *testing.T) {
	o, s := loggedIn(t)
	example := o.run("manifests", "example")
	// Components have what agents lack.
	_, more, _ := strings.Cut(example, "# The component that is upgraded.")
	ofComponent := "description: none\nversion: 2.0.0\n" + regexp.MustCompile(`(?m)^# ( *(?:- )?[a-z_]+:( |$))`).ReplaceAllString("# "+more, "$1")
	for name, text := range map[string]string{"2.0.0.yaml": example, "web.yaml": ofComponent, "web-2.0.0/web.conf.tmpl": o.run("manifests", "example", "--template")} {
		path := filepath.Join(s.Data, "upgrades", "edge", filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.contains(o.run("manifests", "show", "edge", "2.0.0"), "version    2.0.0", "migration  breaking")
	o.contains(o.run("manifests", "show", "edge", "web"), "component  web", "file       /etc/web/web.conf from web-2.0.0/web.conf.tmpl")
}

func TestManifestsPreviewShowsDiffs(t *testing.T) {
	o, s := loggedIn(t)
	s.Enroll("web-01", "1.0.0")
	s.Enroll("web-02", "1.0.0")
	for name, text := range map[string]string{
		"web.yaml": "component: web\nversion: 1.1.0\nconfig_files: [{path: /etc/web.conf, template: web/t}]\n",
		"web/t":    "{{if eq .Host.hostname \"web-02\"}}{{.Vars.port}}{{end}}hello {{.Host.hostname}}\n",
	} {
		path := filepath.Join(s.Data, "upgrades", "edge", filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.contains(o.run("manifests", "show", "edge", "web"), "component  web", "file       /etc/web.conf from web/t")
	args := []string{"manifests", "preview", "edge", "web", "web-01", "web-02"}
	failed := o.try(args...)
	o.failed(failed, 1, args, "2 of 2 agents cannot get the files", "No package of component web in version 1.1.0 is published")
	o.contains(failed.out, "web-01 cannot get the files: policy default has no component web")
	policy := map[string]any{"name": "Default policy", "namespace": "default", "components": []any{map[string]any{"name": "web", "runtime": "process", "server_config": true}}}
	if got := s.Admin("PUT", "/api/fleet/agent_policies/default", policy); got.Status != 200 {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	failed = o.try(args...)
	o.failed(failed, 1, args, "1 of 2 agents cannot get the files")
	o.contains(failed.out, "web-01:\n--- /dev/null\n+++ /etc/web.conf\t0644\n@@ -0,0 +1 @@\n+hello web-01\n", `web-02 cannot get the files: web/t:1: .Vars.port: `)
	o.contains(o.run("manifests", "preview", "edge", "web", "--kuery", "local_metadata.host.hostname.keyword: web-01"), "+hello web-01")
	o.fails(2, []string{"manifests", "preview", "edge"}, "want a profile and an upgrade id, and agents")
	o.fails(2, []string{"manifests", "preview", "edge", "web"}, "no agents are named")
}

func TestRolloutsPreviewShowsEachDifferenceOnce(t *testing.T) {
	o, s := loggedIn(t, quick)
	err := s.Store.Packages().Create(t.Context(), fleet.Package{
		File: "muster-component-web-1.1.0-linux-amd64.tar.gz", Version: "1.1.0", Component: "web", Runtime: "systemd", OS: "linux", Arch: "amd64",
		SHA512: strings.Repeat("0a", 64), ServerFiles: []string{"/etc/web.conf"},
	})
	if err != nil {
		t.Fatal(err)
	}
	policy := map[string]any{"name": "Default policy", "namespace": "default", "components": []any{map[string]any{"name": "web", "runtime": "systemd", "server_config": true}}}
	if got := s.Admin("PUT", "/api/fleet/agent_policies/default", policy); got.Status != 200 {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	dir := filepath.Join(s.Data, "upgrades", "edge", "web")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"../web.yaml":   "component: web\nversion: 1.1.0\nconfig_files: [{path: /etc/web.conf, template: web/t}]\n",
		"../plain.yaml": "component: web\nversion: 1.1.0\n",
		"t":             "hello\n{{if eq .Host.hostname \"db-01\"}}of the database\n{{end}}",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, host := range []string{"web-01", "web-02", "db-01"} {
		a := s.Enroll(host, "1.0.0")
		a.Components = []agentapi.Component{apptest.Component("web", "1.0.0")}
		a.MustCheckin(nil)
	}
	s.Enroll("other", "1.0.0").MustCheckin(nil)
	draft := func(manifest string) string {
		t.Helper()
		plan := "name: spring\nprofile: edge\nupgrade_id: " + manifest + "\nselect: {all: true}\nstrategy: {kind: rolling}\n"
		file := filepath.Join(t.TempDir(), "plan.yaml")
		if err := os.WriteFile(file, []byte(plan), 0o600); err != nil {
			t.Fatal(err)
		}
		return asJSON[adminapi.RolloutItem](o, "rollouts", "create", "--file", file).Item.ID
	}
	id := draft("web")
	o.contains(o.run("rollouts", "preview", id), "The server renders configuration files for them: `muster rollouts preview ROLLOUT --configs`")
	got := o.run("rollouts", "preview", id, "--configs")
	o.contains(got, "2 hosts (web-0", ":\n--- /dev/null\n+++ /etc/web.conf\t0644\n@@ -0,0 +1 @@\n+hello\n", "db-01:\n--- /dev/null\n", "+of the database\n")
	if strings.Count(got, "+++ ") != 2 {
		t.Errorf("a difference is shown twice:\n%s", got)
	}
	got = o.run("rollouts", "preview", id, "--configs", "--host", "web-02")
	if want := "web-02:\n--- /dev/null\n+++ /etc/web.conf\t0644\n@@ -0,0 +1 @@\n+hello\n"; got != want {
		t.Errorf("of one host it says\n%s, want\n%s", got, want)
	}
	if list := asJSON[adminapi.ConfigPreviewList](o, "rollouts", "preview", id, "--configs"); list.Total != 3 || len(list.Items) != 3 {
		t.Errorf("as JSON it says %+v", list)
	}
	o.fails(1, []string{"rollouts", "preview", id, "--configs", "--host", "none"}, "none")
	o.fails(1, []string{"rollouts", "preview", id, "--configs", "--host", "other"}, "which is left out: does not report component web")
	o.fails(1, []string{"rollouts", "preview", draft("plain"), "--configs"}, "whose targets get no configuration files from the server")
	o.fails(2, []string{"rollouts", "preview", id, "--host", "web-01"}, "add --configs")
	o.fails(2, []string{"rollouts", "preview", "--version", "1.1.0", "--all", "--configs"}, "--configs compares the configuration files of a draft")
}

func TestIncidentsAreResolvedAndWebhooksManaged(t *testing.T) {
	o, s := loggedIn(t)
	o.contains(o.run("incidents", "list"), "none")
	i := fleet.Incident{
		ID: "upgrade_stalled:r1:a1", Category: fleet.IncidentStalled, Severity: "warning", State: fleet.IncidentOpen, Title: "web-01 is stalled",
		Text: "x", Hostname: "web-01", RecoveryPlan: "restore it", OpenedAt: time.Now(), Count: 1,
	}
	if err := s.Store.Incidents().Create(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	o.contains(o.run("incidents", "list"), i.ID, "web-01 is stalled", "recovery: restore it")
	o.contains(o.run("status"), "1 open incident: see `muster incidents list`")
	o.contains(o.run("incidents", "ack", "@last", "--why", "looking"), "acknowledged: web-01 is stalled")
	o.contains(o.run("incidents", "resolve", i.Title), "resolved")
	if got := asJSON[adminapi.IncidentList](o, "incidents", "list", "--all"); got.Total != 1 || got.Items[0].State != fleet.IncidentResolved || got.Items[0].Acked.Why != "looking" {
		t.Errorf("all are %+v", got)
	}
	o.fails(1, []string{"incidents", "ack", "none"}, "none")

	o.contains(o.run("webhooks", "dead"), "none")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	created := asJSON[struct {
		adminapi.WebhookItem
		File string `json:"secret_file"`
	}](o, "webhooks", "add", "chat", "https://127.0.0.1:1/x", "--event", "rollout.paused", "--secret-file", secret)
	hook := created.Item
	if got := o.secretIn(created.File); got != "0123456789abcdef0123456789abcdef" || hook.Secret != nil {
		t.Errorf("the secret is %q", got)
	}
	o.contains(o.run("webhooks", "add", "other", "https://127.0.0.1:1/y"), "Its secret", "muster webhooks test")
	o.contains(o.run("webhooks", "list"), hook.Id, "chat", "rollout.paused", "all rollout events", "enabled")
	o.contains(o.run("webhooks", "disable", "chat"), "disabled")
	o.contains(o.run("webhooks", "list"), "disabled")
	o.contains(o.run("webhooks", "enable", hook.Id[:6]), "enabled")
	o.fails(1, []string{"webhooks", "test", hook.Id})
	letter := fleet.DeadLetter{ID: hook.Id + ":1", WebhookID: hook.Id, Type: fleet.EventRolloutPaused, Body: []byte(`{}`), Error: "it was away", Attempts: 5, At: time.Now()}
	if err := s.Store.DeadLetters().Create(t.Context(), letter); err != nil {
		t.Fatal(err)
	}
	o.contains(o.run("webhooks", "dead"), letter.ID, "it was away", "muster webhooks redeliver")
	o.fails(1, []string{"webhooks", "redeliver", letter.ID}, letter.ID)
	asJSON[map[string]any](o, "webhooks", "remove", hook.Id)
	if got := asJSON[adminapi.WebhookList](o, "webhooks", "list"); len(got.Items) != 1 {
		t.Errorf("left are %+v", got.Items)
	}
}

// What is registered is what the API and the shell offer.
func TestStrategiesAreOffered(t *testing.T) {
	o := newOperator(t)
	o.contains(o.run("__complete", "rollouts", "create", "--strategy", ""), plan.Kinds()...)
	for _, of := range []string{"StrategyKind", "Strategy", "FleetStrategy"} {
		schema, err := adminapi.Schema(of)
		if err != nil {
			t.Fatal(err)
		}
		if fields, ok := schema["properties"].(map[string]any); ok {
			schema = fields["kind"].(map[string]any)
		}
		if got, want := fmt.Sprint(schema["enum"]), fmt.Sprint(plan.Kinds()); got != want {
			t.Errorf("%s offers %s, registered are %s", of, got, want)
		}
	}
}

func TestShellCompletionOfRollouts(t *testing.T) {
	o, s := loggedIn(t)
	s.Publisher().Publish("1.1.0")
	s.Enroll("web-01", "1.0.0")
	id := asJSON[adminapi.RolloutItem](o, "rollouts", "create", "--version", "1.1.0", "--all").Item.ID
	o.contains(o.run("__complete", "rollouts", "start", ""), id+"\tdraft upgrade to 1.1.0")
	o.contains(o.run("__complete", "rollouts", "targets", id, "--state", ""), "rolled_back")
	o.contains(o.run("__complete", "rollouts", "rollback", id, "--scope", ""), "failed", "all")
	if got := o.run("__complete", "rollouts", "pause", ""); strings.Contains(got, id) {
		t.Errorf("completion of pause offers a draft: %s", got)
	}
	if got := s.Admin(http.MethodDelete, "/api/v1/rollouts/"+id, nil); got.Status != http.StatusOK {
		t.Errorf("%d %s", got.Status, got.Body)
	}
}
