package plan

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func num[T any](v T) *T { return &v }

// resolved returns a rolling plan to 2.0.0 for all agents.
func resolved(t *testing.T) fleet.Plan {
	t.Helper()
	p := fleet.Plan{Name: "to two", Version: "2.0.0", Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: fleet.Rolling}}
	if err := Resolve(&p, nil, rollouttest.Published("2.0.0")); err != nil {
		t.Fatal(err)
	}
	return p
}

// sum returns a well-formed checksum.
func sum(kind string) string { return kind + strings.Repeat("ab", hexDigits[kind]/2) }

func TestCheckErrorsNameTheField(t *testing.T) {
	artifact := func(a fleet.Artifact) func(*fleet.Plan) {
		return func(p *fleet.Plan) { p.Artifacts = []fleet.Artifact{a} }
	}
	component := func(a fleet.Artifact) func(*fleet.Plan) {
		return func(p *fleet.Plan) { p.Component, p.Artifacts = "web", []fleet.Artifact{a} }
	}
	canary := func(c fleet.CanaryRule) func(*fleet.Plan) {
		return func(p *fleet.Plan) { p.Strategy = fleet.Strategy{Kind: fleet.Canary, Canary: &c} }
	}
	rings := func(r fleet.RingRule) func(*fleet.Plan) {
		return func(p *fleet.Plan) { p.Strategy = fleet.Strategy{Kind: fleet.Rings, Rings: &r} }
	}
	breaking := func(plan string, st fleet.Strategy, ack bool) func(*fleet.Plan) {
		return func(p *fleet.Plan) {
			p.Migration = fleet.Migration{Type: fleet.MigrationBreaking, RecoveryPlan: plan, AcknowledgeStateRisk: ack}
			p.Strategy = st
		}
	}
	window := func(w fleet.Window) func(*fleet.Plan) {
		return func(p *fleet.Plan) { p.Pace.Windows = []fleet.Window{w} }
	}
	for _, row := range []struct {
		name   string
		change func(*fleet.Plan)
		field  string // "" for none
		text   string
		code   string
	}{
		{"nothing", func(*fleet.Plan) {}, "", "", ""},
		{"no name", func(p *fleet.Plan) { p.Name = " " }, "name", "is missing", ""},
		{"a name like a book", func(p *fleet.Plan) { p.Name = strings.Repeat("x", 201) }, "name", "at most 200", ""},
		{"a description like a book", func(p *fleet.Plan) { p.Description = strings.Repeat("x", 20_001) }, "description", "at most", ""},
		{"no version", func(p *fleet.Plan) { p.Version = "" }, "version", "is missing", ""},
		{"half a version", func(p *fleet.Plan) { p.Version = "2.0" }, "version", "three numbers", ""},
		{"half a source version", func(p *fleet.Plan) { p.SourceVersion = "1" }, "source_version", "three numbers", ""},
		{"down", func(p *fleet.Plan) { p.SourceVersion = "3.0.0" }, "version", "needs force", ""},
		{"down, forced", func(p *fleet.Plan) { p.SourceVersion, p.Force = "3.0.0", true }, "", "", ""},
		{"a source of no kind", func(p *fleet.Plan) { p.SourceURI = "packages" }, "source_uri", "https://host/path", ""},
		{"a folder of the hosts", func(p *fleet.Plan) { p.SourceURI = "file:///srv" }, "source_uri", "https://host/path", ""},
		{"a source with a password", func(p *fleet.Plan) { p.SourceURI = "https://u:p@x/a" }, "source_uri", "password", ""},
		{"a source with an @ in its path", func(p *fleet.Plan) { p.SourceURI = "https://x/a@b" }, "", "", ""},

		{"rule 1: no artifacts", func(p *fleet.Plan) { p.Artifacts = nil }, "artifacts", "muster package push", ErrChecksumMissing},
		{"rule 1: no checksum", artifact(fleet.Artifact{OS: "linux"}), "artifacts[0].checksum", "is missing", ErrChecksumMissing},
		{"rule 1: docker without", artifact(fleet.Artifact{Runtime: fleet.RuntimeDocker}), "artifacts[0].checksum", "is missing", ErrChecksumMissing},
		{"rule 2: docker by sha512", artifact(fleet.Artifact{Runtime: fleet.RuntimeDocker, Checksum: sum("sha512:"), URL: "x@sha256:y"}), "artifacts[0].checksum", "digest", ErrDockerChecksum},
		{"rule 3: docker by tag", artifact(fleet.Artifact{Runtime: fleet.RuntimeDocker, Checksum: sum("sha256:"), URL: "x:latest"}), "artifacts[0].url", "a tag can be moved", ErrDockerDigest},
		{"rule 3: docker by another digest", artifact(fleet.Artifact{Runtime: fleet.RuntimeDocker, Checksum: sum("sha256:"), URL: "x@sha256:cd"}), "artifacts[0].url", "want name@sha256:abab", ErrDockerDigest},
		{"docker for agents", artifact(fleet.Artifact{Runtime: fleet.RuntimeDocker, Checksum: sum("sha256:"), URL: "x@" + sum("sha256:")}), "artifacts[0].runtime", "name the component", ErrRuntime},
		{"systemd for agents", artifact(fleet.Artifact{Runtime: fleet.RuntimeSystemd, Checksum: sum("sha256:"), URL: "https://x"}), "artifacts[0].runtime", "name the component", ErrRuntime},
		{"process for agents", artifact(fleet.Artifact{Runtime: fleet.RuntimeProcess, Checksum: sum("sha256:")}), "artifacts[0].runtime", "name the component", ErrRuntime},
		{"a runtime there is not", artifact(fleet.Artifact{Runtime: "lxc", Checksum: sum("sha256:")}), "artifacts[0].runtime", "want self; with a component process, systemd or docker", ""},
		{"a component by docker", component(fleet.Artifact{Runtime: fleet.RuntimeDocker, Checksum: sum("sha256:"), URL: "x@" + sum("sha256:")}), "", "", ""},
		{"a component by an image that hosts have loaded", component(fleet.Artifact{Runtime: fleet.RuntimeDocker, Checksum: sum("sha256:"), URL: sum("sha256:")}), "", "", ""},
		{"rule 1: a component without checksum", component(fleet.Artifact{Runtime: fleet.RuntimeDocker}), "artifacts[0].checksum", "is missing", ErrChecksumMissing},
		{"rule 2: a component by docker by sha512", component(fleet.Artifact{Runtime: fleet.RuntimeDocker, Checksum: sum("sha512:"), URL: "x@sha256:y"}), "artifacts[0].checksum", "digest", ErrDockerChecksum},
		{"rule 3: a component by docker by tag", component(fleet.Artifact{Runtime: fleet.RuntimeDocker, Checksum: sum("sha256:"), URL: "x:latest"}), "artifacts[0].url", "a tag can be moved", ErrDockerDigest},
		{"a component by systemd", component(fleet.Artifact{Runtime: fleet.RuntimeSystemd, Checksum: sum("sha512:")}), "", "", ""},
		{"a component by process", component(fleet.Artifact{Runtime: fleet.RuntimeProcess, Checksum: sum("sha512:")}), "", "", ""},
		{"a component by a runtime of an agent's own", component(fleet.Artifact{Runtime: "lxc", Checksum: sum("sha512:")}), "", "", ""},
		{"a component by itself", component(fleet.Artifact{Runtime: fleet.RuntimeSelf, Checksum: sum("sha512:")}), "artifacts[0].runtime", "the agents' own", ErrRuntime},
		{"a component by nothing", component(fleet.Artifact{Checksum: sum("sha512:")}), "artifacts[0].runtime", "is missing", ""},
		{"a component without a proper name", func(p *fleet.Plan) { p.Component = "Web Server" }, "component", "Web Server", ""},
		{"variables for agents", func(p *fleet.Plan) { p.Variables = map[string]string{"port": "80"} }, "variables", "name it in component", ""},
		{"variables of a component", func(p *fleet.Plan) {
			component(fleet.Artifact{Runtime: fleet.RuntimeProcess, Checksum: sum("sha512:")})(p)
			p.Variables = map[string]string{"port": "80"}
		}, "", "", ""},
		{"a variable that no template can name", func(p *fleet.Plan) { p.Component, p.Variables = "web", map[string]string{"a-b": ""} }, "variables", `have the name "a-b"`, ""},
		{"a variable like a book", func(p *fleet.Plan) {
			p.Component, p.Variables = "web", map[string]string{"a": strings.Repeat("x", fleet.MaxVariableBytes+1)}
		}, "variables", "have 4097 bytes in a", ""},
		{"a checksum of nothing", artifact(fleet.Artifact{Checksum: "md5:ab"}), "artifacts[0].checksum", "want sha256:", ""},
		{"a short checksum", artifact(fleet.Artifact{Checksum: "sha256:abcd"}), "artifacts[0].checksum", "64 hex digits", ""},
		{"a size below nothing", artifact(fleet.Artifact{Checksum: sum("sha256:"), Size: -1}), "artifacts[0].size", "is -1", ""},
		{"an address nobody reads", artifact(fleet.Artifact{Checksum: sum("sha256:"), URL: "https://x"}), "artifacts[0].url", "source_uri", ""},
		{"two for one platform", func(p *fleet.Plan) { p.Artifacts = append(p.Artifacts, p.Artifacts[0]) }, "artifacts[2]", "second one for linux/amd64", ""},
		{"rule 4: the same version", func(p *fleet.Plan) { p.SourceVersion = "2.0.0" }, "source_version", "nothing would change", ErrVersionUnchanged},
		{"rule 6: a malformed hash", func(p *fleet.Plan) { p.UpgradeManifestHash = "abc" }, "manifest_hash", "64 hex digits", ErrUpgradeManifestHash},
		{"rule 6: a hash in manual mode", func(p *fleet.Plan) { p.UpgradeManifestHash = sum("sha256:") }, "", "", ""},
		{"rule 6: a manifest nobody read", func(p *fleet.Plan) { p.Profile, p.UpgradeID = "a", "b" }, "manifest_hash", "is missing", ErrUpgradeManifestHash},
		{"a manifest without its profile", func(p *fleet.Plan) { p.UpgradeID = "b" }, "profile", "is missing", ""},
		{"a profile alone", func(p *fleet.Plan) { p.Profile = "b" }, "upgrade_id", "is missing", ""},
		{"a migration there is not", func(p *fleet.Plan) { p.Migration.Type = "big" }, "migration.type", "want none, compatible or breaking", ""},
		{"rule 7: no recovery plan", breaking(" ", fleet.Strategy{Kind: fleet.Canary}, true), "migration.recovery_plan", "is missing", ErrRecoveryPlanMissing},
		{"rule 7: no canaries", breaking("x", fleet.Strategy{Kind: fleet.Rolling}, true), "strategy.kind", "needs canaries", ErrCanaryRequired},
		{"rule 7: rings without canaries", breaking("x", fleet.Strategy{Kind: fleet.Rings}, true), "strategy.kind", "rings with canary", ErrCanaryRequired},
		{"rule 7: no word about the risk", breaking("x", fleet.Strategy{Kind: fleet.Canary}, false), "migration.acknowledge_state_risk", "is not set", ErrStateRisk},
		{"rule 7: all of it", breaking("x", fleet.Strategy{Kind: fleet.Rings, Canary: &fleet.CanaryRule{}}, true), "", "", ""},
		{"a recovery plan like a book", func(p *fleet.Plan) { p.Migration.RecoveryPlan = strings.Repeat("x", 20_001) }, "migration.recovery_plan", "link to the rest", ""},

		{"nobody selected", func(p *fleet.Plan) { p.Select = fleet.Selector{ExcludeAgents: []string{"a"}} }, "select", "is empty: name agents, policies or labels, give a kuery, or say all: true", ""},
		{"an agent without a name", func(p *fleet.Plan) { p.Select.Agents = []string{"a", ""} }, "select.agents[1]", "is empty", ""},
		{"more agents than people name", func(p *fleet.Plan) { p.Select.Agents = make([]string, 10_001) }, "select.agents", "by a label", ""},
		{"a label without a name", func(p *fleet.Plan) { p.Select.Labels = map[string][]string{"": {"x"}} }, "select.labels", "without a name", ""},
		{"a label without values", func(p *fleet.Plan) { p.Select.Exclude = map[string][]string{"site": nil} }, "select.exclude.site", "has no values", ""},
		{"late joiners that wait", func(p *fleet.Plan) { p.LateJoiners = "wait" }, "late_joiners", "want ignore or join", ""},

		{"no strategy", func(p *fleet.Plan) { p.Strategy.Kind = "" }, "strategy.kind", "is missing", ""},
		{"a strategy there is not", func(p *fleet.Plan) { p.Strategy.Kind = "blue_green" }, "strategy.kind", `"blue_green"`, ""},
		{"a batch of less than nobody", func(p *fleet.Plan) { p.Strategy.BatchSize = -1 }, "strategy.batch_size", "is -1", ""},
		{"more than everybody", func(p *fleet.Plan) { p.Strategy.BatchPercent = 101 }, "strategy.batch_percent", "is 101", ""},
		{"a percentage that is no number", func(p *fleet.Plan) { p.Strategy.BatchPercent = math.NaN() }, "strategy.batch_percent", "NaN", ""},
		{"size and percentage", func(p *fleet.Plan) { p.Strategy.BatchSize, p.Strategy.BatchPercent = 1, 1 }, "strategy.batch_percent", "one of them", ""},
		{"batches of all at once", func(p *fleet.Plan) { p.Strategy = fleet.Strategy{Kind: fleet.AllAtOnce, BatchSize: 5} }, "strategy.batch_size", "all_at_once", ""},
		{"going on in batches", func(p *fleet.Plan) { p.Strategy.ForceContinue = true }, "strategy.force_continue", "belongs to all_at_once", ""},
		{"no validation in batches", func(p *fleet.Plan) { p.Strategy.SkipValidation = true }, "strategy.skip_validation", "belongs to all_at_once", ""},
		{"a deadline in batches", func(p *fleet.Plan) { p.Strategy.Deadline = &rollouttest.Noon }, "strategy.deadline", "belongs to all_at_once", ""},
		{"all at once by a date", func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.AllAtOnce, ForceContinue: true, SkipValidation: true, Deadline: &rollouttest.Noon}
		}, "", "", ""},
		{"canaries of a rolling rollout", func(p *fleet.Plan) { p.Strategy.Canary = &fleet.CanaryRule{} }, "strategy.canary", "belongs to canary and rings", ""},
		{"fewer canaries than none", canary(fleet.CanaryRule{Size: -1}), "strategy.canary.size", "is -1", ""},
		{"a percentage below none", canary(fleet.CanaryRule{Percent: -1}), "strategy.canary.percent", "is -1", ""},
		{"canaries twice", canary(fleet.CanaryRule{Size: 1, Percent: 1}), "strategy.canary.percent", "one of them", ""},
		{"canaries by taste", canary(fleet.CanaryRule{Pick: "nice"}), "strategy.canary.pick", "random or stratified", ""},
		{"canaries over nothing", canary(fleet.CanaryRule{Over: []string{"os", ""}}), "strategy.canary.over[1]", "is empty", ""},
		{"canaries over one thing twice", canary(fleet.CanaryRule{Over: []string{"os", "os"}}), "strategy.canary.over[1]", "is os again", ""},
		{"rings of a rolling rollout", func(p *fleet.Plan) { p.Strategy.Rings = &fleet.RingRule{} }, "strategy.rings", "belongs to rings", ""},
		{"a ring below the first", rings(fleet.RingRule{Only: []int{0, -1}}), "strategy.rings.only[1]", "is -1", ""},
		{"a ring twice", rings(fleet.RingRule{Only: []int{1, 1}}), "strategy.rings.only[1]", "ring 1 again", ""},
		{"a default beyond the last ring", rings(fleet.RingRule{Default: 70_000}), "strategy.rings.default", "is 70000", ""},

		{"nobody in parallel", func(p *fleet.Plan) { p.Limits.MaxParallel = -1 }, "limits.max_parallel", "is -1", ""},
		{"too many limits", func(p *fleet.Plan) { p.Limits.Per = make([]fleet.LabelLimit, 5) }, "limits.per", "at most 4", ""},
		{"a limit of nothing", func(p *fleet.Plan) { p.Limits.Per = []fleet.LabelLimit{{Max: 1}} }, "limits.per[0].label", "is missing", ""},
		{"a limit that lets nobody", func(p *fleet.Plan) { p.Limits.Per = []fleet.LabelLimit{{Label: "site"}} }, "limits.per[0].max", "is 0", ""},
		{"a limit twice", func(p *fleet.Plan) {
			p.Limits.Per = []fleet.LabelLimit{{Label: "site", Max: 1}, {Label: "site", Max: 2}}
		}, "limits.per[1].label", "again", ""},
		{"fewer failures than none", func(p *fleet.Plan) { p.Failure.Count = num(-1) }, "failure.count", "is -1", ""},
		{"more failures than all", func(p *fleet.Plan) { p.Failure.Percent = num(100.1) }, "failure.percent", "is 100.1", ""},
		{"no failure at all", func(p *fleet.Plan) { p.Failure.Count, p.Failure.Percent = num(0), num(0.0) }, "", "", ""},
		{"tries without end", func(p *fleet.Plan) { p.Failure.Retries = 11 }, "failure.retries", "0 to 10", ""},
		{"crashes below none", func(p *fleet.Plan) { p.Health.MaxCrashes = -1 }, "health.max_crashes", "is -1", ""},
		{"a wait below none", func(p *fleet.Plan) { p.Health.Wait = -1 }, "health.wait", "want 0 to 2208h", ""},
		{"stale before it began", func(p *fleet.Plan) { p.Health.StaleAfter = -1 }, "health.stale_after", "", ""},
		{"silent before it began", func(p *fleet.Plan) { p.Health.SilentAfter = -1 }, "health.silent_after", "", ""},
		{"a soak of years", func(p *fleet.Plan) { p.Pace.Soak = fleet.Duration(10_000 * time.Hour) }, "pace.soak", "is 10000h", ""},
		{"an offer of the past", func(p *fleet.Plan) { p.Pace.OfferFor = -1 }, "pace.offer_for", "", ""},
		{"a wait of the past", func(p *fleet.Plan) { p.Pace.WaitFor = -1 }, "pace.wait_for", "", ""},
		{"a day there is not", window(fleet.Window{Days: []string{"mon", "Tue"}, From: "22:00", To: "04:00"}), "pace.windows[0].days", `"Tue"`, ""},
		{"a time there is not", window(fleet.Window{From: "24:00", To: "04:00"}), "pace.windows[0].from", `"24:00"`, ""},
		{"a time as people say it", window(fleet.Window{From: "22:00", To: "4am"}), "pace.windows[0].to", `"4am"`, ""},
		{"a zone there is not", window(fleet.Window{From: "22:00", To: "04:00", Zone: "Mars/Olympus"}), "pace.windows[0].zone", "Europe/Berlin", ""},
		{"the server's own zone", window(fleet.Window{From: "22:00", To: "04:00", Zone: "Local"}), "pace.windows[0].zone", "Europe/Berlin", ""},
		{"a window over midnight", window(fleet.Window{Days: []string{"sat", "sun"}, From: "22:00", To: "04:00", Zone: "Europe/Berlin"}), "", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := resolved(t)
			row.change(&p)
			p = WithDefaults(p)
			err := Check(&p)
			if row.field == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			var e *fleet.Error
			if !errors.As(err, &e) {
				t.Fatalf("not refused: %v", err)
			}
			if e.Kind != fleet.Invalid || e.Field != "body.plan."+row.field || e.Code != row.code || !strings.Contains(e.Message, row.text) {
				t.Errorf("%s %s %q: %s\nwant %q %q: …%s…", e.Kind, e.Field, e.Code, e.Message, "body.plan."+row.field, row.code, row.text)
			}
		})
	}
}

func TestContainersArePinnedByTheirImage(t *testing.T) {
	digest := sum("sha256:")
	for _, row := range []struct {
		image string
		want  agentapi.ComponentData
	}{
		{"registry.example.com/web@" + digest, agentapi.ComponentData{Name: "web", Runtime: "docker", Checksum: digest, Image: "registry.example.com/web@" + digest, Size: 7}},
		{digest, agentapi.ComponentData{Name: "web", Runtime: "docker", Image: digest, Size: 7}}, // hosts have loaded it
	} {
		p := fleet.Plan{Name: "x", Component: "web", Version: "2.0.0", Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: fleet.Rolling}}
		pkg := fleet.Package{File: "f", Version: "2.0.0", Component: "web", Runtime: "docker", Image: row.image, OS: "linux", Arch: "amd64", Size: 7, SHA512: strings.Repeat("0a", 64)}
		if err := errors.Join(Resolve(&p, nil, fleet.Catalog{pkg}), Check(&p)); err != nil {
			t.Fatalf("%s: %v", row.image, err)
		}
		if !HasChecksum(pkg, p.Artifacts[0].Checksum) {
			t.Errorf("%s: the package is not the one that the plan pins: %+v", row.image, p.Artifacts)
		}
		if got := ComponentData(&p, 0); !reflect.DeepEqual(*got, row.want) {
			t.Errorf("%s: hosts get %+v, want %+v", row.image, *got, row.want)
		}
		again := p
		if err := Resolve(&again, nil, fleet.Catalog{pkg}); err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("%s: resolved again it is %+v, %v", row.image, again, err)
		}
	}
}

func TestResolveSetsAllDefaults(t *testing.T) {
	p := fleet.Plan{Name: "x", Version: "2.0.0", Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: fleet.Canary}, Pace: fleet.Pace{Windows: []fleet.Window{{From: "22:00", To: "04:00"}}}}
	if err := Resolve(&p, nil, rollouttest.Published("2.0.0", "1.0.0")); err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"migration": {
  "type": "none"
 }`, `"late_joiners": "ignore"`, `"batch_percent": 10`, `"size": 10`, `"pick": "random"`, `"max_parallel": 500`,
		`"wait": "10m0s"`, `"stale_after": "5m0s"`, `"silent_after": "2m0s"`, `"max_crashes": 3`, `"offer_for": "168h0m0s"`, `"wait_for": "168h0m0s"`, `"zone": "UTC"`,
		`"os": "linux",
   "arch": "amd64",
   "runtime": "self",
   "checksum": "sha512:`,
	} {
		if !strings.Contains(string(got), part) {
			t.Errorf("%s is missing in\n%s", part, got)
		}
	}
	if err := Check(&p); err != nil {
		t.Error(err)
	}
	if p.Failure.Count != nil {
		t.Errorf("a failure count of %d was said, which would go for the canaries too", *p.Failure.Count)
	}
	if c := p.Strategy.Canary; !reflect.DeepEqual(c.Over, []string{"os", "arch", "version"}) {
		t.Errorf("canaries over %v", c.Over)
	}
}

func TestResolveDoesNotChangeItsArgument(t *testing.T) {
	rule, over := &fleet.CanaryRule{}, []fleet.Artifact{{Checksum: sum("sha256:")}}
	windows := []fleet.Window{{From: "22:00", To: "04:00"}}
	p := fleet.Plan{Version: "2.0.0", SourceURI: "https://x", Artifacts: over, Strategy: fleet.Strategy{Kind: fleet.Canary, Canary: rule}, Pace: fleet.Pace{Windows: windows}}
	if err := Resolve(&p, nil, nil); err != nil {
		t.Fatal(err)
	}
	if rule.Size != 0 || over[0].Runtime != "" || windows[0].Zone != "" {
		t.Errorf("%+v %+v %+v", rule, over, windows)
	}
}

func TestUpgradeManifestOfComponentSetsIt(t *testing.T) {
	m := UpgradeManifest{Profile: "edge", ID: "web", Component: "web", Version: "2.0.0", ContentHash: sum("sha256:")}
	for name, component := range map[string]string{"the manifest's": "", "the same": "web"} {
		p := fleet.Plan{Profile: "edge", UpgradeID: "web", Component: component}
		if err := Resolve(&p, &m, rollouttest.Published("2.0.0")); err != nil || p.Component != "web" || p.Version != "2.0.0" {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	p := fleet.Plan{Profile: "edge", UpgradeID: "web", Component: "db"}
	var e *fleet.Error
	if err := Resolve(&p, &m, nil); !errors.As(err, &e) || e.Field != "request body.plan.component" && e.Field != "body.plan.component" {
		t.Errorf("another component: %v", err)
	}
}

func TestEmergencySkipsSoakWindowsAndObservation(t *testing.T) {
	p := fleet.Plan{Pace: fleet.Pace{Emergency: true, Soak: 1, PauseOnSuccess: true, Windows: []fleet.Window{{From: "22:00", To: "04:00"}}}}
	p.Failure.Count = num(1)
	p = WithDefaults(p)
	if p.Pace.Soak != 0 || p.Pace.Windows != nil || !p.Pace.PauseOnSuccess || *p.Failure.Count != 1 || p.Health.Wait == 0 {
		t.Errorf("%+v", p)
	}
}

func TestBreakingMigrationNeedsApproval(t *testing.T) {
	p := WithDefaults(fleet.Plan{Migration: fleet.Migration{Type: fleet.MigrationBreaking}, Strategy: fleet.Strategy{Kind: fleet.Canary}})
	if !p.Strategy.Canary.Approval {
		t.Error("it does not")
	}
}

func TestArtifactsComeFromPublishedPackages(t *testing.T) {
	withheld := rollouttest.Published("2.0.0")
	for i := range withheld {
		withheld[i].Withheld = "nobody has signed for it"
	}
	half := rollouttest.Published("2.0.0")
	half[0].Withheld = "nobody has signed for it"
	for _, row := range []struct {
		name  string
		plan  fleet.Plan
		c     fleet.Catalog
		want  int // artifacts
		field string
		text  string
	}{
		{"all platforms", fleet.Plan{Version: "2.0.0"}, rollouttest.Published("1.0.0", "2.0.0"), 2, "", ""},
		{"those that hosts will install", fleet.Plan{Version: "2.0.0"}, half, 1, "", ""},
		{"the others when forced", fleet.Plan{Version: "2.0.0", Force: true}, half, 2, "", ""},
		{"none that hosts will install", fleet.Plan{Version: "2.0.0"}, withheld, 0, "body.plan.version", "nobody has signed"},
		{"not published", fleet.Plan{Version: "3.0.0"}, rollouttest.Published("1.0.0", "2.0.0"), 0, "body.plan.artifacts", "published are 2.0.0, 1.0.0"},
		{"nothing published", fleet.Plan{Version: "3.0.0"}, nil, 0, "body.plan.artifacts", "nothing is published yet"},
		{"pinned, but not published", fleet.Plan{Version: "3.0.0", Artifacts: []fleet.Artifact{{Checksum: sum("sha256:")}}}, nil, 0, "body.plan.version", "publish it"},
		{"pinned, and somewhere else", fleet.Plan{Version: "3.0.0", SourceURI: "https://x", Artifacts: []fleet.Artifact{{Checksum: sum("sha256:")}}}, nil, 1, "", ""},
		{"somewhere else, not pinned", fleet.Plan{Version: "3.0.0", SourceURI: "https://x"}, nil, 0, "", ""},
	} {
		err := Resolve(&row.plan, nil, row.c)
		var e *fleet.Error
		switch {
		case row.field == "" && (err != nil || len(row.plan.Artifacts) != row.want):
			t.Errorf("%s: %v, %+v", row.name, err, row.plan.Artifacts)
		case row.field != "" && (!errors.As(err, &e) || e.Field != row.field || !strings.Contains(e.Message, row.text)):
			t.Errorf("%s: %v, want %s …%s…", row.name, err, row.field, row.text)
		}
	}
}

func TestUpgradeManifestSetsVersionArtifactsAndMigration(t *testing.T) {
	m := UpgradeManifest{
		Profile: "edge", ID: "two", Version: "2.0.0", Source: "1.0.0", ContentHash: sum("sha256:"),
		Artifacts: []fleet.Artifact{{OS: "linux", Arch: "amd64", Checksum: "sha512:" + rollouttest.Published("2.0.0")[0].SHA512}},
		Migration: fleet.Migration{Type: fleet.MigrationBreaking, RecoveryPlan: "restore"},
	}
	auto := func(change func(*fleet.Plan)) (fleet.Plan, error) {
		p := fleet.Plan{Name: "x", Profile: "edge", UpgradeID: "two", Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: fleet.Canary}}
		p.Migration.AcknowledgeStateRisk = true
		if change != nil {
			change(&p)
		}
		return p, Resolve(&p, &m, rollouttest.Published("2.0.0"))
	}
	t.Run("it does", func(t *testing.T) {
		p, err := auto(nil)
		if err == nil {
			err = Check(&p)
		}
		if err != nil {
			t.Fatal(err)
		}
		if p.Version != "2.0.0" || p.SourceVersion != "1.0.0" || p.UpgradeManifestHash != m.ContentHash || p.Artifacts[0].Size != 1000 || p.Migration.RecoveryPlan != "restore" || p.Migration.Type != fleet.MigrationBreaking {
			t.Errorf("%+v", p)
		}
		again := p
		if err := Resolve(&again, &m, rollouttest.Published("2.0.0")); err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("resolved again: %v\n%+v\nwant\n%+v", err, again, p)
		}
	})
	t.Run("but never acknowledges a risk for the operator", func(t *testing.T) {
		m.Migration.AcknowledgeStateRisk = true
		p, err := auto(func(p *fleet.Plan) { p.Migration.AcknowledgeStateRisk = false })
		var e *fleet.Error
		if err != nil || !errors.As(Check(&p), &e) || e.Code != ErrStateRisk {
			t.Errorf("%v, %v", err, e)
		}
	})
	for name, row := range map[string]struct {
		change func(*fleet.Plan)
		field  string
	}{
		"another version":                         {func(p *fleet.Plan) { p.Version = "2.0.1" }, "version"},
		"another source":                          {func(p *fleet.Plan) { p.SourceVersion = "1.0.1" }, "source_version"},
		"a tamer migration":                       {func(p *fleet.Plan) { p.Migration.Type = fleet.MigrationNone }, "migration.type"},
		"another recovery plan":                   {func(p *fleet.Plan) { p.Migration.RecoveryPlan = "pray" }, "migration.recovery_plan"},
		"other artifacts":                         {func(p *fleet.Plan) { p.Artifacts = []fleet.Artifact{{Checksum: sum("sha256:")}} }, "artifacts"},
		"the hash of before":                      {func(p *fleet.Plan) { p.UpgradeManifestHash = "sha256:" + strings.Repeat("00", 32) }, "manifest_hash"},
		"the same version again":                  {func(p *fleet.Plan) { p.Version = "2.0.0" }, ""},
		"a component, which the manifest has not": {func(p *fleet.Plan) { p.Component = "web" }, "component"},
	} {
		_, err := auto(row.change)
		var e *fleet.Error
		if row.field == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if row.field != "" && (!errors.As(err, &e) || e.Field != "body.plan."+row.field) {
			t.Errorf("%s: %v, want %s", name, err, row.field)
		}
	}
	p := fleet.Plan{Profile: "edge", UpgradeID: "gone"}
	if err := Resolve(&p, nil, nil); err == nil || !strings.Contains(err.Error(), "edge/gone") {
		t.Errorf("a manifest that was not found: %v", err)
	}
}
