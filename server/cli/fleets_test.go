package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/rollout/spec"
)

// fleetDoc is an object for the agents with a tag, in YAML.
func fleetDoc(name, version string) string {
	return "apiVersion: muster.dev/v1alpha2\nkind: Fleet\nmetadata:\n  name: " + name + "\n  labels: { team: " + name + ", stage: prod }\nspec:\n" +
		"  selector: { policies: [default] }\n  agent:\n    version: " + version + "\n  strategy: { kind: all_at_once }\n"
}

// file writes a file of its own.
func (o operator) file(name, text string) string {
	o.t.Helper()
	path := filepath.Join(o.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
	return path
}

// fleetOf returns an object.
func fleetOf(o operator, name string) spec.Fleet {
	o.t.Helper()
	return asJSON[spec.Fleet](o, "get", "fleets", name)
}

// fleetNames returns the names of all objects.
func fleetNames(o operator) string {
	o.t.Helper()
	return strings.Join(strings.Fields(o.run("get", "fleets", "-o", "name")), " ")
}

func TestDeclaredFleetFromApplyToDelete(t *testing.T) {
	o, s := loggedIn(t, quick)
	s.Publisher().Publish("1.1.0", "1.2.0")
	s.Enroll("web-01", "1.1.0").MustCheckin(nil)
	o.contains(o.run("get", "fleets"), "no objects: create one with `muster apply`")

	// A diff of an object that does not exist yet shows all of it.
	file := o.file("web.yaml", fleetDoc("web", "1.1.0"))
	got := o.try("diff", "-f", file)
	o.failed(got, 1, []string{"diff", "-f", file}, "1 of 1 object would change")
	o.contains(got.out, "--- /dev/null", "+++ fleet/web", "+    version: 1.1.0", "hash none → ", "a rollout starts: ")

	o.contains(o.run("apply", "-f", file, "--dry-run"), "fleet/web created (dry run)")
	if names := fleetNames(o); names != "" {
		t.Fatalf("a dry run created %s", names)
	}
	o.contains(o.run("apply", "-f", file, "--why", "OPS-7"), "fleet/web created\n")
	first := fleetOf(o, "web")
	if first.Metadata.Generation != 1 || first.Metadata.UID == "" || first.Spec.Agent.Version != "1.1.0" {
		t.Fatalf("it is %+v", first)
	}
	o.contains(o.run("get", "fleets"), "NAME", "READY", "VERSIONS", "web", "agent 1.1.0 ")
	o.contains(o.run("fleets", "list"), "agent 1.1.0 ")
	o.contains(o.run("get", "fleets", "-o", "wide"), "GENERATION", "MESSAGE")
	o.contains(o.run("get", "fleets", "web"), "fleet/web\n", "wants 1.1.0", "generation   1, created now")
	o.fails(1, []string{"get", "fleets", "none"}, "none")
	o.fails(2, []string{"get", "fleets", "web", "-l", "team=web"}, "--selector")

	// Applying it again changes nothing, also from what the server prints.
	o.contains(o.run("apply", "-f", file), "fleet/web unchanged\n")
	apptest.Eventually(t, "no status to be written between the two commands", func() string {
		got := o.tryWith(o.run("get", "fleets", "web", "-o", "yaml"), "apply", "-f", "-")
		if got.out != "fleet/web unchanged\n" {
			return got.out + got.err
		}
		return ""
	})
	if again := fleetOf(o, "web"); again.Metadata.Generation != 1 || again.Metadata.UID != first.Metadata.UID {
		t.Errorf("after applying it again it is %+v", again.Metadata)
	}
	o.contains(o.run("diff", "-f", file), "fleet/web: nothing differs")

	// A field that starts no rollout: the hash stays.
	observed(t, s, "web")
	limits := o.file("web.yaml", fleetDoc("web", "1.1.0")+"  limits: { max_parallel: 7 }\n")
	got = o.try("diff", "-f", limits)
	o.failed(got, 1, []string{"diff"}, "1 of 1 object would change")
	o.contains(got.out, "+  limits:\n+    max_parallel: 7\n", " stays\n", "no rollout starts: ")
	o.contains(o.run("apply", "-f", limits), "fleet/web configured\n")
	if f := fleetOf(o, "web"); f.Metadata.Generation != 2 || spec.Hash(&f) != spec.Hash(&first) {
		t.Errorf("generation %d, hash %s, want 2 and the hash as before", f.Metadata.Generation, spec.Hash(&f))
	}

	// One that starts a rollout.
	version := o.file("web.yaml", fleetDoc("web", "1.2.0"))
	got = o.try("diff", "-f", version)
	o.contains(got.out, "-    version: 1.1.0\n", "+    version: 1.2.0\n", " → ", "a rollout starts: ", "PART", "agent   1.2.0     1 ")
	type diff struct {
		Items []adminapi.FleetDiff `json:"items"`
	}
	var diffs diff
	if err := json.Unmarshal([]byte(o.try("diff", "-f", version, "-o", "json").out), &diffs); err != nil || len(diffs.Items) != 1 || !diffs.Items[0].StartsRollout || len(diffs.Items[0].Previews) != 1 {
		t.Errorf("as JSON it is %+v, %v", diffs, err)
	}
	o.contains(o.run("fleets", "hash", "-f", version), diffs.Items[0].HashAfter+"  fleet/web\n")
	applied := asJSON[spec.Fleet](o, "apply", "-f", version)
	if applied.Spec.Agent.Version != "1.2.0" || applied.Metadata.Generation != 3 {
		t.Errorf("the answer is %+v", applied)
	}
	if got := o.run("apply", "-f", version, "-o", "name"); got != "fleet/web\n" {
		t.Errorf("-o name prints %q", got)
	}

	history := asJSON[adminapi.FleetHistory](o, "fleets", "history", "web")
	if history.Total != 3 || len(history.Items) != 3 || history.Items[2].Why != "OPS-7" {
		t.Fatalf("the history is %+v", history)
	}
	o.contains(o.run("fleets", "history", "web"), "spec.agent.version", "spec.limits", "OPS-7", "first key")
	o.fails(1, []string{"fleets", "resume", "web"}, "suspended")

	o.fails(2, []string{"delete", "fleet", "web"}, "standard input is not a terminal", "--yes")
	o.contains(o.run("delete", "fleet", "web", "--dry-run"), "fleet/web deleted (dry run)")
	if names := fleetNames(o); names != "fleet/web" {
		t.Fatalf("a dry run left %q", names)
	}
	ctx, cancel := context.WithTimeout(t.Context(), apptest.WaitLimit)
	defer cancel()
	out, errOut, ended := o.start(ctx, "", "wait", "fleets", "web", "--for", "delete")
	apptest.Eventually(t, "the wait to begin", func() string {
		if !strings.Contains(errOut.String(), "exists") {
			return "so far: " + errOut.String()
		}
		return ""
	})
	o.contains(o.run("delete", "fleet", "web", "--yes", "--why", "moved"), "fleet/web deleted\n")
	if code := <-ended; code != 0 || out.String() != "fleet/web deleted\n" {
		t.Errorf("the wait ends with %d: %s%s", code, out, errOut)
	}
	o.contains(o.run("fleets", "history", "web"), "delete", "moved")
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func TestExampleFleetIsAccepted(t *testing.T) {
	o, _ := loggedIn(t, quick)
	got := o.tryWith(o.run("fleets", "example"), "apply", "-f", "-", "--dry-run")
	if got.code != 0 || !strings.Contains(got.out, "fleet/web created (dry run)") {
		t.Errorf("exit code %d: %s%s", got.code, got.out, got.err)
	}
}

func TestErrorsInFilesOfObjectsNameTheLines(t *testing.T) {
	o, _ := loggedIn(t, quick)
	file := o.file("fleets.yaml", fleetDoc("web", "1.1.0")+"---\n"+fleetDoc("db", "1.1.0")+"  strategi: {}\n  limits:\n    max_at_once: 7\n")
	o.fails(1, []string{"apply", "-f", file}, "nothing was applied: ", "fleets.yaml:22 (document 2): spec.strategi", "fleets.yaml:24 (document 2): spec.limits.max_at_once")
	if names := fleetNames(o); names != "" {
		t.Errorf("%s was applied", names)
	}
	o.fails(2, []string{"diff", "-f", file}, "fleets.yaml:22 (document 2): spec.strategi")
	got := o.try("apply", "-f", file, "--validate", "warn")
	if got.code != 0 {
		t.Fatalf("with --validate warn: %s", got.err)
	}
	o.contains(got.err, "warning: ", "spec.strategi", "spec.limits.max_at_once")
	o.contains(got.out, "fleet/web created\nfleet/db created\n")

	odd := o.file("odd.yaml", strings.Replace(fleetDoc("web", "1.1.0"), "all_at_once", "sideways", 1))
	o.fails(1, []string{"apply", "-f", odd}, "odd.yaml:10: spec.strategy.kind")
	stale := o.file("stale.yaml", strings.Replace(fleetDoc("web", "1.1.0"), "  name: web\n", "  name: web\n  resourceVersion: \"999\"\n", 1))
	o.fails(1, []string{"apply", "-f", stale}, "resourceVersion")

	for line, says := range map[string]string{
		"apply":                                    "--file is missing: `muster fleets example`",
		"apply -f x --prune":                       "--prune needs --selector",
		"apply -f x --selector a=b":                "add --prune",
		"apply -f x --prune -l a=b":                "standard input is not a terminal",
		"apply -f x --prune -l a --yes":            `"a" is not a label`,
		"apply -f x --dry-run --wait":              "--wait waits for what is applied",
		"apply -f x --validate maybe":              `--validate is "maybe"`,
		"diff":                                     "--file is missing",
		"delete fleet":                             "want the name of one object",
		"get flets":                                "did you mean fleets?",
		"get fleets -o xml":                        `--output is "xml", want human, json, yaml, wide or name`,
		"wait fleets":                              "no object is named",
		"wait fleets web":                          "--for is missing",
		"wait fleets web --for condition=Odd":      "Ready, Progressing, Promoting, Degraded, Stalled",
		"explain agent":                            `there is no kind "agent": want fleet`,
		"fleets history":                           "want the name of one object",
		"agents list -o yaml":                      `--output is "yaml", want human or json`,
		"apply -f x --prune -l a=b --timeout soon": "--timeout",
		"fleets hash":                              "--file is missing",
		"wait fleets web --for condition=Ready=Perhaps": "True, False or Unknown",
	} {
		o.fails(2, strings.Fields(line), says)
	}
	o.fails(1, []string{"apply", "-f", filepath.Join(t.TempDir(), "none.yaml")}, "`muster fleets example` prints an object to start from")
	o.fails(1, []string{"apply", "-f", t.TempDir()}, "no objects")
}

func TestPruneDeletesOnlyWhatTheSelectorFinds(t *testing.T) {
	o, _ := loggedIn(t, quick)
	web, db := fleetDoc("web", "1.1.0"), fleetDoc("db", "1.1.0")
	other := strings.Replace(fleetDoc("other", "1.1.0"), "stage: prod", "stage: lab", 1)
	o.contains(o.tryWith(web+"---\n"+db+"---\n"+other, "apply", "-f", "-").out, "fleet/web created", "fleet/db created", "fleet/other created")

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "web.yml"), []byte(web), 0o600); err != nil {
		t.Fatal(err)
	}
	prune := []string{"apply", "-f", dir, "--prune", "--selector", "stage=prod"}
	o.contains(o.run(append(prune, "--dry-run")...), "fleet/web unchanged (dry run)", "fleet/db pruned (dry run)")
	if names := fleetNames(o); names != "fleet/db fleet/other fleet/web" {
		t.Fatalf("a dry run left %s", names)
	}
	o.contains(o.run(append(prune, "--yes")...), "fleet/web unchanged", "fleet/db pruned")
	if names := fleetNames(o); names != "fleet/other fleet/web" {
		t.Errorf("left are %s", names)
	}
	got := o.tryWith(other, "apply", "-f", "-", "--prune", "-l", "stage=prod", "--yes")
	o.contains(got.out, "fleet/other unchanged", "fleet/web pruned")
	o.contains(got.err, "warning: standard input:1: fleet/other has no label stage=prod of --selector")
	if got := o.run("get", "fleets", "--selector", "team=other"); !strings.Contains(got, "other") {
		t.Errorf("listed are %s", got)
	}
}

func TestObjectsOfTheOlderVersionAreApplied(t *testing.T) {
	o, _ := loggedIn(t, quick)
	old := `{"apiVersion": "muster.dev/v1alpha1", "kind": "Fleet", "metadata": {"name": "web"}, "spec": {"selector": {"policies": ["default"]}, "agentVersion": "1.1.0", "requestRollout": "9e0a4e0c-6c0c-4e3b-8f0e-2f5c3a7a1b11"}}`
	file := o.file("web.json", old)
	o.contains(o.run("apply", "-f", file), "fleet/web created")
	if f := fleetOf(o, "web"); f.APIVersion != spec.APIVersion || f.Spec.Agent == nil || f.Spec.Agent.Version != "1.1.0" {
		t.Errorf("it is %+v", f)
	}
	o.contains(o.run("apply", "-f", file), "fleet/web unchanged")
	o.contains(o.run("diff", "-f", file), "nothing differs")
}

func TestWaitSaysWhyAnObjectIsNotReady(t *testing.T) {
	o, s := loggedIn(t, quick)
	s.Publisher().Publish("1.1.0")
	s.Enroll("web-01", "1.1.0").MustCheckin(nil)
	file := o.file("web.yaml", fleetDoc("web", "1.1.0"))
	o.fails(1, []string{"wait", "fleets", "web", "--for", "condition=Ready"}, "web")
	o.run("apply", "-f", file)
	o.fails(1, []string{"wait", "fleets", "web", "--for", "condition=Degraded", "--timeout", "50ms"}, "not Degraded within 50ms (--timeout): fleet/web: ")

	ctx, leave := context.WithCancel(t.Context())
	_, errOut, ended := o.start(ctx, "", "wait", "fleet", "web", "--for", "condition=Degraded")
	apptest.Eventually(t, "the first line", func() string {
		if !strings.Contains(errOut.String(), "web") {
			return "so far: " + errOut.String()
		}
		return ""
	})
	leave()
	if code := <-ended; code != 130 {
		t.Errorf("Ctrl-C gives exit code %d", code)
	}
	o.contains(errOut.String(), "the server goes on")

	observed(t, s, "web")
	o.contains(o.run("wait", "fleets", "web", "--for", "condition=Ready", "--timeout", apptest.WaitLimit.String()), "fleet/web ready\n")
	o.contains(o.run("apply", "-f", file, "--wait", "--timeout", apptest.WaitLimit.String()), "fleet/web unchanged\nfleet/web ready\n")
	o.contains(o.run("get", "fleets"), "True")
	o.contains(o.run("get", "fleets", "web"), "CONDITION", "Ready")
}

// observed waits until the server has observed an object whose agents run what it says, or writes
// the status that the server would.
func observed(t *testing.T, s *apptest.Server, name string) {
	t.Helper()
	apptest.Eventually(t, "the status to be written", func() string {
		stored, err := s.Store.DeclaredFleets().Get(t.Context(), name)
		if err != nil {
			return err.Error()
		}
		var f spec.Fleet
		if err := json.Unmarshal(stored.Doc, &f); err != nil {
			return err.Error()
		}
		if f.Status.ObservedGeneration == f.Metadata.Generation {
			return ""
		}
		hash := spec.Hash(&f)
		f.Status = spec.Status{
			ObservedGeneration: f.Metadata.Generation, RequestedRolloutHash: hash, LastCompletedRolloutHash: hash,
			Agents: 1, Versions: map[string]map[string]int{spec.AgentPart: {"1.1.0": 1}},
			Conditions: []spec.Condition{{Type: spec.Ready, Status: spec.True, Reason: "Done", LastTransitionTime: time.Now().UTC(), ObservedGeneration: f.Metadata.Generation}},
		}
		if stored.Doc, err = json.Marshal(f); err != nil {
			return err.Error()
		}
		if _, err := s.Store.DeclaredFleets().Update(t.Context(), stored); err != nil {
			return err.Error()
		}
		return ""
	})
}

func TestExportedPoliciesStartNoRollout(t *testing.T) {
	o, s := loggedIn(t, quick)
	o.fails(1, []string{"export"}, "there is nothing to export", "`muster fleets example`")
	s.Publisher().Publish("1.1.0")
	s.Enroll("web-01", "1.1.0").MustCheckin(nil)
	file := o.file("components.yaml", "components:\n- name: web-server\n  runtime: systemd\n  version: 2.4.0\n")
	o.run("policies", "update", "default", "--components", file)
	exported := o.run("export")
	var doc map[string]any
	if err := yaml.Unmarshal([]byte(exported), &doc); err != nil || doc["kind"] != spec.Kind || doc["status"] != nil {
		t.Fatalf("it prints %v\n%s", err, exported)
	}
	o.contains(exported, "name: web-server", "version: 2.4.0")
	got := o.tryWith(exported, "diff", "-f", "-")
	o.contains(got.out, "web-server")
	if got := o.tryWith(exported, "apply", "-f", "-"); got.code != 0 || !strings.Contains(got.out, " created") {
		t.Errorf("exit code %d: %s%s", got.code, got.out, got.err)
	}
	o.contains(o.tryWith(exported, "apply", "-f", "-").out, " unchanged")
	if list := asJSON[adminapi.RolloutList](o, "rollouts", "list"); list.Total != 0 {
		t.Errorf("there are %d rollouts", list.Total)
	}
}

func TestOrdersForAgentsOfAnObjectNeedItsName(t *testing.T) {
	o, s := loggedIn(t, quick)
	s.Publisher().Publish("1.1.0", "1.2.0")
	a := s.Enroll("web-01", "1.1.0")
	a.MustCheckin(nil)
	file := o.file("web.yaml", fleetDoc("web", "1.1.0"))
	o.run("apply", "-f", file)

	upgrade := []string{"agents", "upgrade", a.ID, "--version", "1.2.0"}
	o.fails(1, upgrade, "web", "--take-over NAME", "`muster fleets resume`")
	o.fails(1, append(upgrade, "--take-over", "other"), "web")
	o.fails(1, []string{"rollouts", "create", "--version", "1.2.0", "--agents", a.ID, "--start", "--yes"}, "web", "--take-over NAME")
	if f := fleetOf(o, "web"); f.Status.Suspended != nil {
		t.Fatalf("refused orders suspended it: %+v", f.Status.Suspended)
	}
	o.run("rollouts", "create", "--version", "1.2.0", "--agents", a.ID, "--take-over", "web")
	if f := fleetOf(o, "web"); f.Status.Suspended == nil {
		t.Fatal("the rollout did not suspend it")
	}
	o.run("fleets", "resume", "web")
	o.contains(o.run(append(upgrade, "--take-over", "web", "--why", "incident 7")...), "Upgrading 1 of 1 agent to 1.2.0")
	f := fleetOf(o, "web")
	if f.Status.Suspended == nil || f.Status.Suspended.By != "first key" {
		t.Fatalf("after the order its status is %+v", f.Status)
	}
	o.contains(o.run("get", "fleets"), "False (Suspended)")
	o.contains(o.run("get", "fleets", "web"), "suspended    by first key", "`muster fleets resume web`")
	o.contains(o.run("fleets", "history", "web"), "suspend")
	o.contains(o.run("fleets", "resume", "web", "--why", "it is over"), "fleet/web resumed", "`muster wait fleets web --for condition=Ready`")
	if f := fleetOf(o, "web"); f.Status.Suspended != nil {
		t.Errorf("after resume it is %+v", f.Status.Suspended)
	}
}

func TestExplainNeedsNoServer(t *testing.T) {
	o := newOperator(t)
	o.contains(o.run("explain", "fleet"), "KIND:     Fleet", "VERSION:  muster.dev/v1alpha2", "spec <Object> (required)")
	o.contains(o.run("explain", "fleets.spec.strategy"), "FIELD:    spec.strategy <Object>", "  kind <string>\n", "  canary <Object>\n")
	o.contains(o.run("explain", "fleet.spec.strategy.kind"), "One of rolling, canary,")
	o.contains(o.run("explain", "fleet.spec.limits", "--recursive"), "  per <[]Object>\n", "    label <string> (required)\n")
	o.contains(o.run("explain", "fleet.spec.selector.labels"), "<map[string][]string>")
	o.fails(1, []string{"explain", "fleet.spec.stategy"}, `fleet.spec has no field "stategy": did you mean strategy?`)
	o.fails(1, []string{"explain", "fleet.spec.paused.x"}, "fleet.spec.paused has no field \"x\": it has no fields")
	type explained struct {
		Path, Name, Type, Description, Example string
		Required                               bool
		Enum                                   []string
		Fields                                 []any
	}
	if got := asJSON[explained](o, "explain", "fleet.spec.health"); got.Path != "spec.health" || len(got.Fields) != 4 {
		t.Errorf("as JSON it is %+v", got)
	}
	o.contains(o.run("__complete", "explain", "fleet.spec.he"), "fleet.spec.health\t", "fleet.spec.pace\t")
	o.contains(o.run("__complete", "get", "fleets", "-o", ""), "yaml\n", "wide\n")
}
