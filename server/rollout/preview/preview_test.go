package preview

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// draft returns a resolved rollout of 2.0.0 to all agents, modified by change.
func draft(t testing.TB, change func(*fleet.Plan)) *fleet.Rollout {
	t.Helper()
	p := fleet.Plan{Name: "to two", Version: "2.0.0", Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: fleet.Rolling}}
	if change != nil {
		change(&p)
	}
	if err := plan.Resolve(&p, nil, rollouttest.Published("2.0.0")); err != nil {
		t.Fatal(err)
	}
	if err := plan.Check(&p); err != nil {
		t.Fatal(err)
	}
	return &fleet.Rollout{ID: "r1", State: fleet.RolloutDraft, Plan: p}
}

func compute(t testing.TB, r *fleet.Rollout, as []fleet.Agent, change func(*Fleet)) fleet.Preview {
	t.Helper()
	f := Fleet{Agents: as, Catalog: rollouttest.Published("1.0.0", "2.0.0")}
	if change != nil {
		change(&f)
	}
	pre, err := Compute(r, f, rollouttest.Noon)
	if err != nil {
		t.Fatal(err)
	}
	return pre
}

func sizes(pre fleet.Preview) []int {
	var n []int
	for _, b := range pre.Batches {
		n = append(n, b.Size)
	}
	return n
}

func hasWarning(pre fleet.Preview, part string) bool {
	return slices.ContainsFunc(pre.Warnings, func(w string) bool { return strings.Contains(w, part) })
}

func TestEveryMatchingAgentIsTargetOrSkipped(t *testing.T) {
	r := draft(t, func(p *fleet.Plan) {
		p.SourceVersion = "1.0.0"
		p.Select = fleet.Selector{Policies: []string{"default", "locked"}}
		p.Strategy = fleet.Strategy{Kind: fleet.Rings, Rings: &fleet.RingRule{Only: []int{0, 1}}}
	})
	upgrading := rollouttest.Host{ID: "busy"}.Agent()
	upgrading.BeginUpgrade("other", "1.5.0", rollouttest.Noon)
	container := rollouttest.Host{ID: "container"}.Agent()
	container.LocalMetadata = []byte(`{"os":{"type":"linux"}}`)
	burnt := rollouttest.Host{ID: "burnt"}.Agent()
	burnt.FailedVersions = []fleet.FailedVersion{{Version: "2.0.0", Reason: "it crashed", At: rollouttest.Noon}}
	leaving := rollouttest.Host{ID: "leaving"}.Agent()
	leaving.UnenrollmentStartedAt = &rollouttest.Noon
	gone := rollouttest.Host{ID: "gone"}.Agent()
	gone.Active = false
	ghost := rollouttest.Host{ID: "ghost"}.Agent()
	ghost.Last.At = nil
	as := append(rollouttest.Agents(
		rollouttest.Host{ID: "in"}, rollouttest.Host{ID: "there", Version: "2.0.0"}, rollouttest.Host{ID: "older", Version: "0.9.0"}, rollouttest.Host{ID: "late ring", Ring: "2"},
		rollouttest.Host{ID: "taken", Policy: "locked"}, rollouttest.Host{ID: "mac", OS: "darwin"}, rollouttest.Host{ID: "elsewhere", Policy: "other"},
	), upgrading, container, burnt, leaving, gone, ghost)
	pre := compute(t, r, as, func(f *Fleet) { f.Locked = map[string]LockOwner{"locked": {ID: "r0", Name: "last week's"}} })

	got := map[string]fleet.SkippedAgent{}
	for _, s := range pre.Skipped {
		got[s.AgentID] = s
	}
	for _, row := range []struct {
		id   string
		code fleet.ReasonCode
		text string
	}{
		{"there", fleet.WhySame, "runs 2.0.0 already"},
		{"older", fleet.WhyOtherSource, "runs 0.9.0"},
		{"late ring", fleet.WhyRing, "is in ring 2, the plan is for rings 0, 1"},
		{"taken", fleet.WhyLocked, "last week's"},
		{"mac", fleet.WhyRefused, "no package of version 2.0.0 for darwin"},
		{"busy", fleet.WhyRefused, "already being upgraded to 1.5.0"},
		{"container", fleet.WhyRefused, "container"},
		{"burnt", fleet.WhyFailedBefore, "version 2.0.0 failed on its host before"},
		{"leaving", fleet.WhyGone, "being unenrolled"},
		{"gone", fleet.WhyGone, "unenrolled"},
		{"ghost", fleet.WhyNeverSeen, "has never checked in"},
	} {
		if s := got[row.id]; s.Code != row.code || !strings.Contains(s.Text, row.text) {
			t.Errorf("%s is left out as %q %q, want %q %q", row.id, s.Code, s.Text, row.code, row.text)
		}
	}
	if len(got) != 11 {
		t.Errorf("%d are left out, want 11: %v", len(got), got)
	}
	if len(pre.Targets) != 1 || pre.Targets[0].AgentID != "in" || pre.Targets[0].Bytes != 1000 || pre.Targets[0].Hostname != "host-in" {
		t.Errorf("targets: %+v", pre.Targets)
	}
	forced := draft(t, func(p *fleet.Plan) { p.Force = true })
	if pre := compute(t, forced, []fleet.Agent{burnt}, nil); len(pre.Targets) != 1 {
		t.Errorf("a forced plan leaves out %+v", pre.Skipped)
	}
}

func TestOwnPolicyLockSkipsNoAgent(t *testing.T) {
	pre := compute(t, draft(t, nil), rollouttest.Agents(rollouttest.Host{ID: "a"}), func(f *Fleet) { f.Locked = map[string]LockOwner{"default": {ID: "r1"}} })
	if len(pre.Targets) != 1 {
		t.Errorf("it is locked out by itself: %+v", pre.Skipped)
	}
}

func TestPackageReplacedAfterThePlanIsRefused(t *testing.T) {
	r := draft(t, nil)
	pre := compute(t, r, rollouttest.Agents(rollouttest.Host{ID: "a"}), func(f *Fleet) {
		f.Catalog = slices.Clone(f.Catalog)
		for i := range f.Catalog {
			f.Catalog[i].SHA512 = strings.Repeat("00", 64)
		}
	})
	if len(pre.Targets) != 0 || pre.Skipped[0].Code != fleet.WhyRefused || !strings.Contains(pre.Skipped[0].Text, "not what the plan pins") {
		t.Errorf("targets %v, left out %+v", pre.Targets, pre.Skipped)
	}
}

func TestNamedAgentMustExist(t *testing.T) {
	r := draft(t, func(p *fleet.Plan) { p.Select = fleet.Selector{Agents: []string{"a", "typo"}} })
	_, err := Compute(r, Fleet{Agents: rollouttest.Agents(rollouttest.Host{ID: "a"}), Catalog: rollouttest.Published("2.0.0")}, rollouttest.Noon)
	if err == nil || !strings.Contains(err.Error(), "[request body.plan.select.agents]") || !strings.Contains(err.Error(), "typo") {
		t.Errorf("%v", err)
	}
	r = draft(t, func(p *fleet.Plan) { p.Select = fleet.Selector{Agents: strings.Split("abcdefghijklmnop", "")} })
	_, err = Compute(r, Fleet{Agents: rollouttest.Agents(rollouttest.Host{ID: "a"}), Catalog: rollouttest.Published("2.0.0")}, rollouttest.Noon)
	if err == nil || !strings.Contains(err.Error(), "15 agents that are not enrolled: b, c, d, e, f, g, h, i, j, k and 5 more") {
		t.Errorf("%v", err)
	}
	r = draft(t, func(p *fleet.Plan) {
		p.Select = fleet.Selector{Policies: []string{"default", "none"}, ExcludeAgents: []string{"typo"}}
	})
	pre := compute(t, r, rollouttest.Agents(rollouttest.Host{ID: "a"}), nil)
	if len(pre.Targets) != 1 || !hasWarning(pre, "typo") || !hasWarning(pre, "no agent has the policy none") {
		t.Errorf("warnings: %q", pre.Warnings)
	}
}

func TestPlannedBatches(t *testing.T) {
	canary := func(kind fleet.StrategyKind, size, batch int) func(*fleet.Plan) {
		return func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: kind, BatchSize: batch, Canary: &fleet.CanaryRule{Size: size}}
		}
	}
	for _, row := range []struct {
		name   string
		n      int
		change func(*fleet.Plan)
		want   []int
	}{
		{"ten by default", 111, nil, []int{12, 12, 12, 12, 12, 12, 12, 12, 12, 3}},
		{"of a size", 10, func(p *fleet.Plan) { p.Strategy.BatchSize = 4 }, []int{4, 4, 2}},
		{"of a percentage, rounded up", 10, func(p *fleet.Plan) { p.Strategy.BatchPercent = 33.3 }, []int{4, 4, 2}},
		{"of a percentage that binary fractions miss", 100, func(p *fleet.Plan) { p.Strategy.BatchPercent = 7 }, append(slices.Repeat([]int{7}, 14), 2)},
		{"one at least", 3, func(p *fleet.Plan) { p.Strategy.BatchPercent = 0.001 }, []int{1, 1, 1}},
		{"larger than the fleet", 3, func(p *fleet.Plan) { p.Strategy.BatchSize = 50 }, []int{3}},
		{"all at once", 1000, func(p *fleet.Plan) { p.Strategy.Kind = fleet.AllAtOnce }, []int{1000}},
		{"canaries first", 111, canary(fleet.Canary, 11, 50), []int{11, 50, 50}},
		{"canaries for the whole fleet", 8, canary(fleet.Canary, 8, 2), []int{8}},
		{"more canaries than there are agents", 8, canary(fleet.Canary, 100, 2), []int{8}},
		{"a percentage of canaries", 150, func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.Canary, BatchSize: 100, Canary: &fleet.CanaryRule{Percent: 1}}
		}, []int{2, 100, 48}},
		{"canaries by default", 20, func(p *fleet.Plan) { p.Strategy = fleet.Strategy{Kind: fleet.Canary, BatchSize: 100} }, []int{10, 10}},
		{"nobody", 0, nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			pre := compute(t, draft(t, row.change), rollouttest.Many(row.n, rollouttest.Host{}), nil)
			if got := sizes(pre); !slices.Equal(got, row.want) {
				t.Errorf("batches of %v, want %v", got, row.want)
			}
			for i, b := range pre.Batches {
				if b.Index != i || (b.Kind == fleet.BatchCanary) != (i == 0 && strings.Contains(row.name, "canar")) {
					t.Errorf("batch %d is %+v", i, b)
				}
			}
		})
	}
}

func TestRingsGoOneAfterTheOther(t *testing.T) {
	as := slices.Concat(rollouttest.Many(4, rollouttest.Host{Ring: "2"}), rollouttest.Many(2, rollouttest.Host{Ring: "0"}), rollouttest.Many(6, rollouttest.Host{Ring: "1"}), rollouttest.Many(1, rollouttest.Host{Ring: "soon", Site: "x"}), rollouttest.Many(1, rollouttest.Host{}))
	r := draft(t, func(p *fleet.Plan) {
		p.Strategy = fleet.Strategy{Kind: fleet.Rings, BatchSize: 4, Rings: &fleet.RingRule{Default: 2}, Canary: &fleet.CanaryRule{Size: 1}}
	})
	pre := compute(t, r, as, nil)
	var got []string
	for _, b := range pre.Batches {
		got = append(got, fmt.Sprintf("%s %d of ring %d", b.Kind, b.Size, b.Ring))
	}
	want := []string{"canary 1 of ring 0", "regular 1 of ring 0", "regular 4 of ring 1", "regular 2 of ring 1", "regular 4 of ring 2", "regular 2 of ring 2"}
	if !slices.Equal(got, want) {
		t.Errorf("batches:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !hasWarning(pre, "1 target has a ring that is no number") {
		t.Errorf("warnings: %q", pre.Warnings)
	}
	for _, target := range pre.Targets {
		if target.Ring != pre.Batches[target.Batch].Ring {
			t.Errorf("%s of ring %d is in a batch of ring %d", target.AgentID, target.Ring, pre.Batches[target.Batch].Ring)
		}
	}
}

func TestWarnsOfAQueryThatDependsOnTheClock(t *testing.T) {
	for query, want := range map[string]string{
		"tags: prod":                           "",
		"agent.version < 2.0.0":                "",
		"enrolled_at < 2026-01-01":             "",
		"last_checkin_status: error":           "",
		"status: unenrolled or tags: x":        "",
		"status: online":                       "the targets are those who match it when it starts",
		"tags: prod and last_checkin > now-1h": "the targets are those who match it when it starts",
		"enrolled_at >= now/y":                 "the targets are those who match it when it starts",
	} {
		for _, late := range []fleet.LateJoiners{fleet.LateIgnore, fleet.LateJoin} {
			want := want // of this plan
			if want != "" && late == fleet.LateJoin {
				want = "whoever comes to match it later joins"
			}
			r := draft(t, func(p *fleet.Plan) { p.Select, p.LateJoiners = fleet.Selector{Kuery: query}, late })
			pre := compute(t, r, rollouttest.Agents(rollouttest.Host{ID: "a"}), nil)
			var got []string
			for _, w := range pre.Warnings {
				if strings.HasPrefix(w, "select.kuery") {
					got = append(got, w)
				}
			}
			if len(got) != min(len(want), 1) || want != "" && !strings.HasSuffix(got[0], want) {
				t.Errorf("%s, %s: it warns %q", query, late, got)
			}
		}
	}
}

func TestStratifiedCanariesCoverTheLabels(t *testing.T) {
	fleetOf := slices.Concat(
		rollouttest.Many(500, rollouttest.Host{Site: "a"}), rollouttest.Many(100, rollouttest.Host{Site: "b", Version: "1.1.0"}), rollouttest.Many(20, rollouttest.Host{Site: "c", Arch: "arm64"}), rollouttest.Many(1, rollouttest.Host{Site: "d", Arch: "arm64", Version: "1.1.0"}),
	)
	plan := func(size int, over ...string) *fleet.Rollout {
		return draft(t, func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.Canary, Canary: &fleet.CanaryRule{Size: size, Pick: fleet.PickStratified, Over: over}}
		})
	}
	t.Run("the fewest that cover everything", func(t *testing.T) {
		pre := compute(t, plan(0), fleetOf, nil)
		if c := pre.Coverage; pre.Batches[0].Size != 4 || c.Cells != 4 || c.Covered != 4 || c.Agents != 1 || len(c.Uncovered) != 0 {
			t.Errorf("%d canaries, coverage %+v", pre.Batches[0].Size, c)
		}
	})
	t.Run("too few cover the most agents", func(t *testing.T) {
		pre := compute(t, plan(2), fleetOf, nil)
		c := pre.Coverage
		if c.Covered != 2 || c.Agents != 600.0/621 || len(c.Uncovered) != 2 || c.Uncovered[0].Agents != 20 {
			t.Errorf("coverage %+v", c)
		}
		if !slices.Equal(c.Uncovered[0].Values, []string{"linux", "arm64", "1.0.0"}) {
			t.Errorf("first uncovered: %v", c.Uncovered[0].Values)
		}
		if !hasWarning(pre, "the canaries stand for 2 of 4 combinations of os, arch, version; 21 targets have none: more canaries") {
			t.Errorf("warnings: %q", pre.Warnings)
		}
	})
	t.Run("those to spare go where one stands for many", func(t *testing.T) {
		pre := compute(t, plan(10, "site"), fleetOf, nil)
		at := map[string]int{}
		for _, target := range pre.Targets {
			if target.Batch == 0 {
				at[target.Site]++
			}
		}
		if want := map[string]int{"a": 6, "b": 2, "c": 1, "d": 1}; !reflect.DeepEqual(at, want) {
			t.Errorf("canaries at %v, want %v", at, want)
		}
	})
	t.Run("random ones say what they miss", func(t *testing.T) {
		r := draft(t, func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.Canary, Canary: &fleet.CanaryRule{Size: 1}}
		})
		pre := compute(t, r, fleetOf, nil)
		if pre.Coverage.Covered != 1 || !hasWarning(pre, "stratified canaries cover more") {
			t.Errorf("coverage %+v, warnings %q", pre.Coverage, pre.Warnings)
		}
	})
}

func TestThePreviewIsPinned(t *testing.T) {
	as := rollouttest.Many(50, rollouttest.Host{})
	r := draft(t, nil)
	first := compute(t, r, as, nil)
	same := func(name string, pre fleet.Preview) {
		t.Helper()
		if pre.Hash != first.Hash || !Compare(first, pre).None() {
			t.Errorf("%s: another preview: %+v", name, Compare(first, pre))
		}
	}
	shuffled := slices.Clone(as)
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	same("the store gives agents in another order", compute(t, r, shuffled, nil))
	later, err := Compute(r, Fleet{Agents: as, Catalog: rollouttest.Published("2.0.0", "3.0.0"), Durations: []time.Duration{time.Hour}}, rollouttest.Noon.Add(72*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	same("days later, all away", later)
	same("under another name", compute(t, draft(t, func(p *fleet.Plan) { p.Name, p.Description = "other", "words" }), as, nil))
	for name, change := range map[string]func(*fleet.Plan){
		"another batch size": func(p *fleet.Plan) { p.Strategy.BatchSize = 7 },
		"another soak":       func(p *fleet.Plan) { p.Pace.Soak = fleet.Duration(time.Hour) },
	} {
		if pre := compute(t, draft(t, change), as, nil); pre.Hash == first.Hash {
			t.Errorf("%s has the same hash", name)
		}
	}
	withVariable := draft(t, nil)
	withVariable.Plan.Variables = map[string]string{"port": "81"}
	if pre := compute(t, withVariable, as, nil); pre.Hash == first.Hash {
		t.Error("a variable has the same hash")
	}
	if want := "sha256:"; !strings.HasPrefix(first.Hash, want) || len(first.Hash) != len(want)+64 {
		t.Errorf("hash %q", first.Hash)
	}
}

// The hash may be presented days later, to another process.
func TestHashIsStableAcrossVersions(t *testing.T) {
	pre := compute(t, draft(t, nil), rollouttest.Many(5, rollouttest.Host{Site: "x"}), nil)
	const want = "sha256:bd0c814d211f76adf696ab9ff9926f3b54e1566db923f9fb440ef57f2c4d8ff8"
	if pre.Hash != want {
		t.Errorf("hash %s, want %s: previews made before an upgrade of the server could not be started after it", pre.Hash, want)
	}
}

func TestMoveBetweenRingsIsDrift(t *testing.T) {
	r := draft(t, func(p *fleet.Plan) { p.Strategy = fleet.Strategy{Kind: fleet.Rings} })
	before := compute(t, r, rollouttest.Agents(rollouttest.Host{ID: "a", Ring: "1"}, rollouttest.Host{ID: "b", Ring: "2"}), nil)
	after := compute(t, r, rollouttest.Agents(rollouttest.Host{ID: "a", Ring: "1"}, rollouttest.Host{ID: "b", Ring: "0"}), nil)
	d := Compare(before, after)
	if len(d.Changed) != 2 || d.Changed[0].Text != "is in batch 2, not 1" || d.Changed[1].Text != "is in ring 0, not 2; is in batch 1, not 2" {
		t.Errorf("%+v", d)
	}
}

func TestTooManyBatchesAreRefused(t *testing.T) {
	r := draft(t, func(p *fleet.Plan) { p.Strategy.BatchSize = 1 })
	_, err := Compute(r, Fleet{Agents: rollouttest.Many(fleet.MaxBatches+1, rollouttest.Host{}), Catalog: rollouttest.Published("2.0.0")}, rollouttest.Noon)
	if err == nil || !strings.Contains(err.Error(), "make batches of 2 or more") {
		t.Errorf("%v", err)
	}
}

func TestExternalPackageIsUsedAsPinned(t *testing.T) {
	r := draft(t, func(p *fleet.Plan) {
		p.Version, p.SourceURI = "4.0.0", "https://packages.example.com"
		p.Artifacts = []fleet.Artifact{{OS: "linux", Arch: "amd64", Checksum: "sha256:" + strings.Repeat("ab", 32), Size: 7}}
	})
	pre := compute(t, r, rollouttest.Agents(rollouttest.Host{ID: "a"}, rollouttest.Host{ID: "b", Arch: "aarch64"}), nil)
	if len(pre.Targets) != 1 || pre.Targets[0].Bytes != 7 || len(pre.Skipped) != 1 || pre.Skipped[0].Text != "the plan has no artifact for linux/arm64" {
		t.Errorf("%+v, left out %+v", pre.Targets, pre.Skipped)
	}
}

func TestDriftListsTheDifferences(t *testing.T) {
	r := draft(t, func(p *fleet.Plan) {
		p.Strategy.BatchSize = 100
		p.Select = fleet.Selector{Labels: map[string][]string{"site": {"x"}}}
	})
	before := rollouttest.Agents(
		rollouttest.Host{ID: "stays", Site: "x"}, rollouttest.Host{ID: "leaves", Site: "x"}, rollouttest.Host{ID: "upgraded", Site: "x"}, rollouttest.Host{ID: "moved", Site: "x", Version: "1.0.0"},
		rollouttest.Host{ID: "mac", Site: "x", OS: "darwin"}, rollouttest.Host{ID: "mac2", Site: "x", OS: "darwin"}, rollouttest.Host{ID: "skipped, gone", Site: "x", OS: "darwin"},
	)
	after := rollouttest.Agents(
		rollouttest.Host{ID: "stays", Site: "x"}, rollouttest.Host{ID: "leaves"}, rollouttest.Host{ID: "upgraded", Site: "x", Version: "2.0.0"}, rollouttest.Host{ID: "moved", Site: "x", Version: "1.1.0"},
		rollouttest.Host{ID: "mac", Site: "x"}, rollouttest.Host{ID: "mac2", Site: "x", OS: "darwin", Version: "2.0.0"}, rollouttest.Host{ID: "new", Site: "x"}, rollouttest.Host{ID: "new mac", Site: "x", OS: "darwin"},
	)
	d := Compare(compute(t, r, before, nil), compute(t, r, after, nil))
	lines := func(items []fleet.DriftItem) string {
		var b strings.Builder
		for _, i := range items {
			fmt.Fprintf(&b, "%s (%s): %s\n", i.AgentID, i.Hostname, i.Text)
		}
		return b.String()
	}
	if got, want := lines(d.Added), `mac (host-mac): was left out (there is no package of version 2.0.0 for darwin/x86_64), joins batch 1
new (host-new): matches now, joins batch 1
`; got != want {
		t.Errorf("added:\n%s\nwant\n%s", got, want)
	}
	if got, want := lines(d.Removed), `leaves (host-leaves): does not match any more
upgraded (host-upgraded): is left out: runs 2.0.0 already
`; got != want {
		t.Errorf("removed:\n%s\nwant\n%s", got, want)
	}
	if got, want := lines(d.Changed), `mac2 (host-mac2): is left out for another reason: runs 2.0.0 already (was: there is no package of version 2.0.0 for darwin/x86_64)
moved (host-moved): runs 1.1.0, not 1.0.0
new mac (host-new mac): matches now and is left out: there is no package of version 2.0.0 for darwin/x86_64
skipped, gone (host-skipped, gone): was left out (there is no package of version 2.0.0 for darwin/x86_64), does not match any more
`; got != want {
		t.Errorf("changed:\n%s\nwant\n%s", got, want)
	}
}

func TestTheTimeline(t *testing.T) {
	took := func(f *Fleet) { f.Durations = []time.Duration{5 * time.Minute, time.Minute, 20 * time.Minute} }
	t.Run("waves, soak and observation", func(t *testing.T) {
		r := draft(t, func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.Canary, BatchSize: 40, Canary: &fleet.CanaryRule{Size: 5}}
			p.Limits.MaxParallel = 20
			p.Pace.Soak = fleet.Duration(15 * time.Minute)
		})
		pre := compute(t, r, rollouttest.Many(85, rollouttest.Host{}), took)
		// 10 min of health wait and 5 of upgrade; after the canaries 20, then 15.
		for i, want := range [][2]float64{{0, 15}, {35, 65}, {80, 110}} {
			b := pre.Batches[i]
			if b.StartAt.Sub(rollouttest.Noon).Minutes() != want[0] || b.EndAt.Sub(rollouttest.Noon).Minutes() != want[1] {
				t.Errorf("batch %d goes from %s to %s, want %v to %v min", i, b.StartAt.Sub(rollouttest.Noon), b.EndAt.Sub(rollouttest.Noon), want[0], want[1])
			}
		}
		if pre.Estimate.D() != 110*time.Minute || pre.AtLeast.D() != (11+20+22+15+22)*time.Minute {
			t.Errorf("estimate %s, at least %s", pre.Estimate, pre.AtLeast)
		}
	})
	t.Run("label limits make waves", func(t *testing.T) {
		r := draft(t, func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.AllAtOnce}
			p.Limits.Per = []fleet.LabelLimit{{Label: "site", Max: 2}, {Label: "rack", Max: 1}}
		})
		pre := compute(t, r, slices.Concat(rollouttest.Many(7, rollouttest.Host{Site: "x"}), rollouttest.Many(3, rollouttest.Host{Site: "y"})), took)
		if pre.Estimate.D() != 4*15*time.Minute {
			t.Errorf("estimate %s, want 4 waves", pre.Estimate)
		}
		if !hasWarning(pre, "no target has the label rack") || pre.Targets[0].Values[0] != pre.Targets[0].Site {
			t.Errorf("warnings %q, values %q", pre.Warnings, pre.Targets[0].Values)
		}
	})
	t.Run("windows let a wave begin, and a wave may end behind one", func(t *testing.T) {
		r := draft(t, func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.AllAtOnce}
			p.Limits.MaxParallel = 10
			p.Pace.Windows = []fleet.Window{{Days: []string{"tue", "wed"}, From: "13:00", To: "13:20"}}
		})
		pre := compute(t, r, rollouttest.Many(30, rollouttest.Host{}), took)
		b := pre.Batches[0]
		if !b.StartAt.Equal(rollouttest.Noon.Add(time.Hour)) || !b.EndAt.Equal(rollouttest.Noon.Add(25*time.Hour+15*time.Minute)) || pre.AtLeast.D() != 33*time.Minute {
			t.Errorf("from %s to %s, at least %s", b.StartAt, b.EndAt, pre.AtLeast)
		}
	})
	t.Run("a freeze is waited for, but not in an emergency", func(t *testing.T) {
		freeze := func(f *Fleet) {
			took(f)
			f.Freezes = []fleet.Freeze{{Name: "Christmas", From: rollouttest.Noon.Add(-time.Hour), To: rollouttest.Noon.Add(48 * time.Hour)}}
		}
		if pre := compute(t, draft(t, nil), rollouttest.Many(1, rollouttest.Host{}), freeze); !slices.ContainsFunc(pre.Warnings, func(w string) bool { return strings.Contains(w, "the freeze “Christmas” delays it until") }) {
			t.Errorf("no warning names the freeze: %q", pre.Warnings)
		}
		if pre := compute(t, draft(t, nil), rollouttest.Many(1, rollouttest.Host{}), freeze); !pre.Batches[0].StartAt.Equal(rollouttest.Noon.Add(48 * time.Hour)) {
			t.Errorf("begins at %s", pre.Batches[0].StartAt)
		}
		if pre := compute(t, draft(t, func(p *fleet.Plan) { p.Pace.Emergency = true }), rollouttest.Many(1, rollouttest.Host{}), freeze); !pre.Batches[0].StartAt.Equal(rollouttest.Noon) {
			t.Errorf("begins at %s", pre.Batches[0].StartAt)
		}
	})
	t.Run("beyond a year there is no estimate", func(t *testing.T) {
		r := draft(t, func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.Rolling, BatchSize: 1}
			p.Pace.Soak = fleet.Duration(92 * 24 * time.Hour)
		})
		pre := compute(t, r, rollouttest.Many(20, rollouttest.Host{}), nil)
		if pre.Estimate.D() != maxEstimate || pre.AtLeast.D() != maxEstimate || !hasWarning(pre, "within a year") {
			t.Errorf("estimate %s, at least %s, %q", pre.Estimate, pre.AtLeast, pre.Warnings)
		}
	})
}

func TestStagingAheadIsPartOfTheTimeline(t *testing.T) {
	ahead := func(p *fleet.Plan) { p.Stage, p.Health.Wait = fleet.StageAhead, fleet.Duration(time.Minute) }
	took := func(f *Fleet) { f.Durations = []time.Duration{5 * time.Minute} }
	var agents []fleet.Agent
	for i, staged := range [][]string{{"2.0.0"}, {}, {"web 2.0.0"}} {
		a := rollouttest.Host{ID: fmt.Sprint("a", i)}.Agent()
		a.StagedVersions = staged
		agents = append(agents, a)
	}
	pre := compute(t, draft(t, ahead), agents, took)
	if want := (fleet.PreviewStaging{Staged: 1, Load: 2, Estimate: fleet.Duration(5 * time.Minute)}); pre.Staging == nil || *pre.Staging != want {
		t.Errorf("staging is %+v, want %+v", pre.Staging, want)
	}
	if want := fleet.Duration(5*time.Minute + 3*(usualSwitch+time.Minute)); pre.Estimate != want {
		t.Errorf("it takes %s, want %s", pre.Estimate, want)
	}
	all := compute(t, draft(t, ahead), agents[:1], took)
	if want := fleet.Duration(usualSwitch + time.Minute); all.Estimate != want || all.Staging.Estimate != 0 {
		t.Errorf("where the version is staged it takes %s, want %s", all.Estimate, want)
	}
	without := compute(t, draft(t, nil), agents, took)
	if without.Staging != nil {
		t.Errorf("without it staging is %+v", without.Staging)
	}
	old := compute(t, draft(t, ahead), append(agents, rollouttest.Host{ID: "old"}.Agent()), took)
	if old.Staging.Cannot != 1 || !hasWarning(old, "1 target has an agent that cannot stage versions: they download the version when they are upgraded") || old.Estimate <= pre.Estimate {
		t.Errorf("with an agent that cannot stage versions: %+v, %s, %q", old.Staging, old.Estimate, old.Warnings)
	}
}

// Agents that must not run mixed versions are one batch, in one wave, and not too many.
func TestLockstepIsOneBatch(t *testing.T) {
	together := func(p *fleet.Plan) {
		p.Component, p.Strategy = "web", fleet.Strategy{Kind: fleet.LockstepStrategy}
		p.Artifacts = []fleet.Artifact{{Runtime: fleet.RuntimeProcess, Checksum: "sha512:" + strings.Repeat("ab", 64)}}
		p.SourceURI, p.Limits.MaxParallel = "https://mirror.example.com/muster", 0
	}
	with := func(n int, h rollouttest.Host) []fleet.Agent {
		agents := rollouttest.Many(n, h)
		for i := range agents {
			agents[i].Components = json.RawMessage(`[{"id":"component-web","name":"web","runtime":"process","version":"1.0.0","lockstep":true}]`)
			agents[i].StagedVersions = []string{"web 2.0.0"}
		}
		return agents
	}
	listed := func(f *Fleet) {
		f.Components = map[string]agentapi.PolicyComponent{"default": {Name: "web", Runtime: "process"}}
	}
	pre := compute(t, draft(t, together), append(with(700, rollouttest.Host{}), with(1, rollouttest.Host{Site: "x", Away: true})...), listed)
	if len(pre.Batches) != 1 || pre.Batches[0].Size != len(pre.Targets) || pre.AtLeast.D() != fleet.DefaultHealthWait {
		t.Errorf("the batches are %+v, at least %s", pre.Batches, pre.AtLeast)
	}
	if len(pre.Refusals) != 1 || pre.Refusals[0].Text != "1 of 701 targets are not ready to go in lockstep: "+pre.Targets[slices.IndexFunc(pre.Targets, func(t fleet.PreviewTarget) bool { return !t.Online })].Hostname+" (the agent is not connected)" {
		t.Errorf("it is refused by %+v", pre.Refusals)
	}
	if !hasWarning(pre, "goes through to its end") || hasWarning(pre, "at one time") {
		t.Errorf("it warns %q", pre.Warnings)
	}
	f := Fleet{Agents: with(fleet.MaxLockstepTargets+1, rollouttest.Host{}), Catalog: rollouttest.Published("1.0.0", "2.0.0")}
	listed(&f)
	r := draft(t, together)
	if _, err := Compute(r, f, rollouttest.Noon); err == nil || !strings.Contains(err.Error(), "chooses 5001 agents, a rollout in lockstep may have 5000") {
		t.Errorf("too many: %v", err)
	}
}

func TestSitesAndShares(t *testing.T) {
	as := slices.Concat(rollouttest.Many(3, rollouttest.Host{Site: "x"}), rollouttest.Many(1, rollouttest.Host{Site: "y", Arch: "arm64", Away: true}), rollouttest.Agents(rollouttest.Host{ID: "has it", Version: "2.0.0"}))
	pre := compute(t, draft(t, func(p *fleet.Plan) { p.Strategy.BatchSize = 3 }), as, nil)
	if want := []fleet.SiteBytes{{Site: "x", Agents: 3, Bytes: 3000}, {Site: "y", Agents: 1, Bytes: 1001}}; !slices.Equal(pre.Sites, want) {
		t.Errorf("sites %+v", pre.Sites)
	}
	if pre.Batches[0].Share != 4.0/5 || pre.Batches[1].Share != 1 || pre.Offline != 1 || !hasWarning(pre, "1 of 4 targets are offline") {
		t.Errorf("%+v, %d offline, %q", pre.Batches, pre.Offline, pre.Warnings)
	}
}

func TestWarnings(t *testing.T) {
	deadline := rollouttest.Noon.Add(time.Minute)
	for _, row := range []struct {
		name   string
		n      int
		change func(*fleet.Plan)
		want   string
	}{
		{"nobody", 0, nil, "no agent matches"},
		{"a batch larger than max_parallel", 30, func(p *fleet.Plan) { p.Limits.MaxParallel = 2 }, "batch 1 has 3 agents, of which 2"},
		{"an approval", 30, func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.Canary, Canary: &fleet.CanaryRule{Size: 1, Approval: true}}
		}, "must approve the rest, within 168h"},
		{"a breaking migration", 30, func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.Canary}
			p.Migration = fleet.Migration{Type: fleet.MigrationBreaking, RecoveryPlan: "pray", AcknowledgeStateRisk: true}
		}, "The recovery plan: pray"},
		{"canaries that are all", 3, func(p *fleet.Plan) { p.Strategy = fleet.Strategy{Kind: fleet.Canary} }, "all 3 targets are canaries"},
		{"a deadline too early", 3, func(p *fleet.Plan) { p.Strategy = fleet.Strategy{Kind: fleet.AllAtOnce, Deadline: &deadline} }, "not be done by its deadline"},
		{"a pause after each batch", 30, func(p *fleet.Plan) { p.Pace.PauseOnSuccess = true }, "pauses after each batch"},
		{"an emergency", 30, func(p *fleet.Plan) { p.Pace.Emergency = true }, "is an emergency"},
	} {
		if pre := compute(t, draft(t, row.change), rollouttest.Many(row.n, rollouttest.Host{}), nil); !hasWarning(pre, row.want) {
			t.Errorf("%s: %q", row.name, pre.Warnings)
		}
	}
	calm := compute(t, draft(t, nil), rollouttest.Many(30, rollouttest.Host{}), nil)
	if len(calm.Warnings) != 0 {
		t.Errorf("a plain rollout warns: %q", calm.Warnings)
	}
}

func TestPreviewWarnsOfHostsThatRefuseAnOlderVersion(t *testing.T) {
	agents := func(kept bool) []fleet.Agent {
		a := rollouttest.Host{ID: "a", Version: "3.0.0"}.Agent()
		if kept {
			a.Kept = agentapi.CheckinUpgrade{Rollbacks: []agentapi.Rollback{{Version: "2.0.0", ValidUntil: rollouttest.Noon.Add(time.Hour)}}}
		}
		return []fleet.Agent{a}
	}
	const text = "1 target goes to an older version without keeping it. Hosts refuse that, also with force, unless the publishers allow it (`muster package allow-downgrade 2.0.0`)"
	down := draft(t, func(p *fleet.Plan) { p.Force = true })
	for name, c := range map[string]struct {
		agents  []fleet.Agent
		allowed bool
		want    bool
	}{
		"older":                    {agents(false), false, true},
		"older, allowed":           {agents(false), true, false},
		"older, kept":              {agents(true), false, false},
		"newer than what they run": {rollouttest.Many(1, rollouttest.Host{}), false, false},
	} {
		pre := compute(t, down, c.agents, func(f *Fleet) {
			f.Catalog = slices.Clone(f.Catalog)
			for i := range f.Catalog {
				f.Catalog[i].Downgrade = c.allowed
			}
		})
		if len(pre.Targets) != 1 || hasWarning(pre, text) != c.want {
			t.Errorf("%s: %d targets, warnings %q", name, len(pre.Targets), pre.Warnings)
		}
	}
}

func TestRollbackTargetIsTheLastHealthyVersion(t *testing.T) {
	upgraded := func(id, lastHealthy string) fleet.Agent {
		a := rollouttest.Host{ID: id, Version: "2.0.0"}.Agent()
		a.LastHealthyVersion = lastHealthy
		return a
	}
	kept := upgraded("kept", "1.0.0")
	kept.Kept = agentapi.CheckinUpgrade{Rollbacks: []agentapi.Rollback{{Version: "1.0.0", ValidUntil: rollouttest.Noon.Add(time.Hour)}}}
	as := []fleet.Agent{
		kept, upgraded("package", "1.0.0"), upgraded("well with the new one", "2.0.0"), upgraded("unknown", ""),
		upgraded("no package", "0.1.0"), upgraded("no way", "2.0.0"), rollouttest.Host{ID: "never left"}.Agent(), rollouttest.Host{ID: "moved on", Version: "3.0.0"}.Agent(),
	}
	as[7].LastHealthyVersion = "1.0.0"
	keepsAnother := upgraded("keeps another", "0.1.0")
	keepsAnother.Kept = agentapi.CheckinUpgrade{Rollbacks: []agentapi.Rollback{{Version: "1.0.0", ValidUntil: rollouttest.Noon.Add(time.Hour)}}}
	taken := upgraded("taken", "1.0.0")
	taken.PolicyID = "locked"
	left := upgraded("left", "1.0.0")
	left.Active = false
	leaving := upgraded("leaving", "1.0.0")
	leaving.UnenrollmentStartedAt = &rollouttest.Noon
	as = append(as, keepsAnother, taken, left, leaving)
	var targets []fleet.Target
	for i, a := range as {
		targets = append(targets, fleet.Target{AgentID: a.ID, Hostname: "old-" + a.ID, From: "1.0.0", To: "2.0.0", Place: i})
	}
	targets[5].From = ""
	targets = append(targets, fleet.Target{AgentID: "gone", Hostname: "old-gone", From: "1.0.0", To: "2.0.0", Place: 99})
	r := &fleet.Rollout{ID: "r1-rollback", RollbackOf: "r1", Plan: fleet.Plan{Name: "back", Migration: fleet.Migration{Type: fleet.MigrationBreaking, RecoveryPlan: "restore"}}}
	f := Fleet{Agents: as, Catalog: rollouttest.Published("1.0.0", "2.0.0"), Locked: map[string]LockOwner{"default": {ID: "r1"}, "locked": {ID: "r7"}}}
	pre, err := ComputeRollback(r, targets, f, rollouttest.Noon)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, target := range pre.Targets {
		got = append(got, fmt.Sprintf("%s %s→%s kept:%v %d bytes", target.AgentID, target.From, target.To, target.Rollback, target.Bytes))
	}
	want := []string{
		"kept 2.0.0→1.0.0 kept:true 0 bytes", "package 2.0.0→1.0.0 kept:false 1000 bytes",
		"well with the new one 2.0.0→1.0.0 kept:false 1000 bytes", "unknown 2.0.0→1.0.0 kept:false 1000 bytes",
	}
	if !slices.Equal(got, want) {
		t.Errorf("targets:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	codes := map[string]fleet.ReasonCode{}
	for _, s := range pre.Skipped {
		codes[s.AgentID] = s.Code
		if s.AgentID == "keeps another" && s.Text != "it keeps 1.0.0, not 0.1.0, and there is no package of version 0.1.0 for linux/x86_64" {
			t.Errorf("%q", s.Text)
		}
	}
	if !hasWarning(pre, "recovery plan: restore") {
		t.Errorf("warnings: %q", pre.Warnings)
	}
	wantCodes := map[string]fleet.ReasonCode{
		"no package": fleet.WhyNoWayBack, "no way": fleet.WhyNoWayBack, "never left": fleet.WhySame, "moved on": fleet.WhyLostTarget, "gone": fleet.WhyGone,
		"keeps another": fleet.WhyNoWayBack, "taken": fleet.WhyLocked, "left": fleet.WhyGone, "leaving": fleet.WhyGone,
	}
	if !reflect.DeepEqual(codes, wantCodes) {
		t.Errorf("left out %v, want %v", codes, wantCodes)
	}
	if len(pre.Batches) != 1 || pre.Coverage != nil {
		t.Errorf("batches %+v", pre.Batches)
	}
	again, err := ComputeRollback(r, reversed(targets), f, rollouttest.Noon.Add(time.Minute))
	if err != nil || again.Hash != pre.Hash {
		t.Errorf("another hash: %v", err)
	}
}

// anyFleet generates a small fleet with all kinds of agents.
func anyFleet(t *rapid.T) []fleet.Agent {
	n := rapid.IntRange(0, 60).Draw(t, "agents")
	var as []fleet.Agent
	for i := range n {
		h := rollouttest.Host{
			ID:      fmt.Sprintf("a%03d", i),
			Version: rapid.SampledFrom([]string{"1.0.0", "1.1.0", "2.0.0", "3.0.0"}).Draw(t, "version"),
			OS:      rapid.SampledFrom([]string{"linux", "linux", "linux", "darwin"}).Draw(t, "os"),
			Arch:    rapid.SampledFrom([]string{"x86_64", "aarch64", "s390x"}).Draw(t, "arch"),
			Site:    rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "site"),
			Ring:    rapid.SampledFrom([]string{"", "0", "1", "7", "-1"}).Draw(t, "ring"),
			Policy:  rapid.SampledFrom([]string{"default", "b", "locked"}).Draw(t, "policy"),
			Away:    rapid.Bool().Draw(t, "away"),
		}
		a := h.Agent()
		if rapid.IntRange(0, 9).Draw(t, "busy") == 0 {
			a.BeginUpgrade("x", "1.5.0", rollouttest.Noon)
		}
		as = append(as, a)
	}
	return as
}

func anyPlan(t *rapid.T) func(*fleet.Plan) {
	return func(p *fleet.Plan) {
		p.Force = rapid.Bool().Draw(t, "force")
		p.Select = rapid.SampledFrom([]fleet.Selector{
			{All: true},
			{Policies: []string{"default", "locked"}},
			{Labels: map[string][]string{"site": {"x", ""}}},
			{All: true, Exclude: map[string][]string{"os": {"darwin"}}},
			{Kuery: "status: online or tags: site=x"},
			{Kuery: "not agent.version: 1.0.0", Policies: []string{"default"}},
		}).Draw(t, "select")
		st := fleet.Strategy{Kind: rapid.SampledFrom([]fleet.StrategyKind{fleet.Rolling, fleet.Canary, fleet.AllAtOnce, fleet.Rings}).Draw(t, "kind")}
		if st.Kind != fleet.AllAtOnce {
			st.BatchSize = rapid.IntRange(0, 20).Draw(t, "batch size")
		}
		if st.Kind == fleet.Canary || (st.Kind == fleet.Rings && rapid.Bool().Draw(t, "canary")) {
			st.Canary = &fleet.CanaryRule{
				Size: rapid.IntRange(0, 30).Draw(t, "canaries"),
				Pick: rapid.SampledFrom([]fleet.CanaryPick{fleet.PickRandom, fleet.PickStratified}).Draw(t, "pick"),
			}
		}
		if st.Kind == fleet.Rings && rapid.Bool().Draw(t, "some rings") {
			st.Rings = &fleet.RingRule{Only: []int{0, 7}, Default: rapid.IntRange(0, 3).Draw(t, "default")}
		}
		p.Strategy = st
		p.Limits.MaxParallel = rapid.IntRange(0, 20).Draw(t, "max parallel")
	}
}

// Each matching agent is listed once, as a target or as skipped, and the batches have
// exactly the targets.
func TestEveryMatchingAgentIsListedOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		as := anyFleet(rt)
		r := draft(t, anyPlan(rt))
		pre := compute(t, r, as, func(f *Fleet) { f.Locked = map[string]LockOwner{"locked": {ID: "other"}} })
		seen := map[string]int{}
		for _, target := range pre.Targets {
			seen[target.AgentID]++
		}
		for _, s := range pre.Skipped {
			seen[s.AgentID]++
			if s.Code == "" || s.Text == "" {
				rt.Errorf("%s is left out without a reason", s.AgentID)
			}
		}
		selector, err := plan.NewSelector(&r.Plan.Select, plan.QueryTime{Now: rollouttest.Noon})
		if err != nil {
			rt.Fatal(err)
		}
		for i := range as {
			want := 0
			if selector.MatchesAgent(&as[i]) {
				want = 1
			}
			if seen[as[i].ID] != want {
				rt.Errorf("%s appears %d times, want %d", as[i].ID, seen[as[i].ID], want)
			}
		}
		// An agent with a known likeness has the same result as by CheckUpgrade.
		wish, published := fleet.UpgradeRequest{Version: "2.0.0", Force: r.Plan.Force}, rollouttest.Published("2.0.0")
		for _, target := range pre.Targets {
			i := slices.IndexFunc(as, func(a fleet.Agent) bool { return a.ID == target.AgentID })
			if err := as[i].CheckUpgrade(wish, published); err != nil {
				rt.Errorf("%s is taken in, but %v", target.AgentID, err)
			}
		}
		first, offline := 0, 0
		for i, b := range pre.Batches {
			if b.Size == 0 || b.Index != i {
				rt.Errorf("batch %d: %+v", i, b)
			}
			for _, target := range pre.Targets[first : first+b.Size] {
				if target.Batch != i || target.Ring != b.Ring {
					rt.Errorf("%s is in batch %d of ring %d, stands in %d of %d", target.AgentID, target.Batch, target.Ring, i, b.Ring)
				}
			}
			first += b.Size
			offline += b.Offline
			if i > 0 && (b.StartAt.Before(pre.Batches[i-1].EndAt) || b.Ring < pre.Batches[i-1].Ring || b.Share < pre.Batches[i-1].Share) {
				rt.Errorf("batch %d comes too early: %+v after %+v", i, b, pre.Batches[i-1])
			}
		}
		if first != len(pre.Targets) || offline != pre.Offline {
			rt.Errorf("batches hold %d of %d targets, %d of %d offline", first, len(pre.Targets), offline, pre.Offline)
		}
		if pre.AtLeast > pre.Estimate {
			rt.Errorf("at least %s, but estimated %s", pre.AtLeast, pre.Estimate)
		}
		checkCoverage(rt, r, pre, as)
	})
}

// checkCoverage compares the preview's coverage with a second count.
func checkCoverage(t *rapid.T, r *fleet.Rollout, pre fleet.Preview, as []fleet.Agent) {
	rule := r.Plan.Strategy.Canary
	if (rule == nil) != (pre.Coverage == nil) {
		t.Fatalf("coverage %v for canaries %v", pre.Coverage, rule)
	}
	if rule == nil {
		return
	}
	byID := map[string]*fleet.Agent{}
	for i := range as {
		byID[as[i].ID] = &as[i]
	}
	cell := func(id string) string {
		return fmt.Sprint(byID[id].Label("os"), "|", byID[id].Label("arch"), "|", byID[id].Label("version"))
	}
	all, covered := map[string]int{}, map[string]bool{}
	canaries := 0
	for _, target := range pre.Targets {
		all[cell(target.AgentID)]++
		if pre.Batches[target.Batch].Kind == fleet.BatchCanary {
			covered[cell(target.AgentID)] = true
			canaries++
		}
	}
	stood := 0
	for c := range covered {
		stood += all[c]
	}
	share := 0.0
	if len(pre.Targets) > 0 {
		share = float64(stood) / float64(len(pre.Targets))
	}
	c := pre.Coverage
	if c.Cells != len(all) || c.Covered != len(covered) || c.Agents != share || len(c.Uncovered) != min(plan.MaxUncovered, len(all)-len(covered)) {
		t.Errorf("coverage %+v, want %d cells, %d covered, %v of the agents", c, len(all), len(covered), share)
	}
	if r.Plan.Strategy.Kind != fleet.Canary || rule.Pick != fleet.PickStratified || len(pre.Targets) == 0 {
		return
	}
	if rule.Size == 0 && (canaries != len(all) || c.Covered != c.Cells) {
		t.Errorf("%d canaries for %d cells, %d covered: want the fewest that cover all", canaries, len(all), c.Covered)
	}
	if rule.Size > 0 && (canaries != min(rule.Size, len(pre.Targets)) || c.Covered != min(len(all), canaries)) {
		t.Errorf("%d canaries of %d cover %d of %d cells", canaries, rule.Size, c.Covered, c.Cells)
	}
}

// Two previews differ in their hash exactly when Compare finds a difference.
func TestHashChangesWithTheTargets(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := draft(t, anyPlan(rt))
		as := anyFleet(rt)
		before := compute(t, r, as, nil)
		after := slices.Clone(as)
		if len(after) > 0 {
			i := rapid.IntRange(0, len(after)-1).Draw(rt, "which")
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0:
				after = slices.Delete(after, i, i+1)
			case 1:
				after[i].Version = "2.0.0"
			case 2:
				after[i].Tags = []string{"ring=1", "site=x"}
			}
		}
		if rapid.Bool().Draw(rt, "another comes") {
			after = append(after, rollouttest.Host{ID: "new"}.Agent())
		}
		now := compute(t, r, after, func(f *Fleet) { f.Durations = []time.Duration{time.Second} })
		if same := before.Hash == now.Hash; same != Compare(before, now).None() {
			rt.Errorf("same hash: %v, drift: %+v", same, Compare(before, now))
		}
	})
}

func BenchmarkCompute(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		as := make([]fleet.Agent, 0, n)
		for i := range n {
			as = append(as, rollouttest.Host{ID: fmt.Sprintf("agent-%06d", i), Site: fmt.Sprintf("site%d", i%40), Arch: []string{"x86_64", "aarch64"}[i%2]}.Agent())
		}
		r := draft(b, func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.Canary, Canary: &fleet.CanaryRule{Pick: fleet.PickStratified}}
			p.Limits.Per = []fleet.LabelLimit{{Label: "site", Max: 100}}
			p.Pace.Windows = []fleet.Window{{From: "22:00", To: "04:00", Zone: "Europe/Berlin"}}
		})
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				compute(b, r, as, nil)
			}
		})
	}
}

func reversed(in []fleet.Target) []fleet.Target {
	out := slices.Clone(in)
	slices.Reverse(out)
	return out
}

func TestHealthWaitBelowTheHostsWatchIsWarnedOf(t *testing.T) {
	for wait, want := range map[time.Duration]bool{time.Minute: true, fleet.DefaultWatch: false, 0: false, time.Hour: false} {
		r := draft(t, func(p *fleet.Plan) { p.Health.Wait = fleet.Duration(wait) })
		pre := compute(t, r, rollouttest.Many(3, rollouttest.Host{}), nil)
		if got := hasWarning(pre, "hosts watch a new version for 10m by default"); got != want {
			t.Errorf("with a wait of %s the warnings are %q", wait, pre.Warnings)
		}
	}
}

// webHosts returns agents that report component web in version 1.0.0.
func webHosts(t testing.TB, n int) []fleet.Agent {
	t.Helper()
	as := rollouttest.Many(n, rollouttest.Host{})
	for i := range as {
		raw, err := json.Marshal([]agentapi.Component{{ID: "component-web", Status: "HEALTHY", ComponentReport: agentapi.ComponentReport{
			Name: "web", Runtime: "process", Version: "1.0.0", Lockstep: true,
		}}})
		if err != nil {
			t.Fatal(err)
		}
		as[i].Components = raw
	}
	return as
}

// web makes the fleet of a preview one whose hosts run component web by their policy.
func web(health agentapi.ComponentHealth) func(*Fleet) {
	return func(f *Fleet) {
		f.Catalog = nil
		for _, version := range []string{"1.0.0", "2.0.0"} {
			f.Catalog = append(f.Catalog, fleet.Package{Component: "web", Runtime: "process", Version: version, File: "web-" + version, OS: "linux", Arch: "amd64", SHA512: strings.Repeat("cd", 64), Maker: fleet.MakerMuster})
		}
		f.Components = map[string]agentapi.PolicyComponent{"default": {Name: "web", Runtime: "process", Health: health}}
	}
}

func TestChecksThatLeaveTheirHostsAreWarnedOf(t *testing.T) {
	local := agentapi.ComponentCheck{Name: "own", HTTP: "http://127.0.0.1:8080/ready"}
	remote := agentapi.ComponentCheck{Name: "gateway", HTTP: "http://gateway:8080/ready", Remote: true}
	const warning = "the policy's checks gateway (http://gateway:8080/ready) ask other hosts, for 3 targets: a host refuses that unless checks.allow of its agent.yml"
	for _, c := range []struct {
		checks []agentapi.ComponentCheck
		want   bool
	}{{nil, false}, {[]agentapi.ComponentCheck{local}, false}, {[]agentapi.ComponentCheck{local, remote}, true}} {
		pre := compute(t, webDraft(nil), webHosts(t, 3), web(agentapi.ComponentHealth{Checks: c.checks}))
		if got := hasWarning(pre, warning); got != c.want {
			t.Errorf("with the checks %+v the warnings are %q", c.checks, pre.Warnings)
		}
	}
}

func webDraft(change func(*fleet.Plan)) *fleet.Rollout {
	p := fleet.Plan{Name: "web to two", Component: "web", Version: "2.0.0", Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: fleet.Rolling}}
	if change != nil {
		change(&p)
	}
	return &fleet.Rollout{ID: "r1", State: fleet.RolloutDraft, Plan: plan.WithDefaults(p)}
}

// Hosts observe a new version of a component by their policy, so a shorter wait in the plan makes no
// rollout faster, and a batch whose time is shorter can never end.
func TestPreviewCountsOnWhatHostsObserve(t *testing.T) {
	for _, c := range []struct {
		wait, waitFor time.Duration
		health        agentapi.ComponentHealth
		least         time.Duration
		warns         bool
		refused       string
	}{
		{wait: 20 * time.Second, least: time.Minute, warns: true},
		{wait: 2 * time.Minute, least: 2 * time.Minute},
		{wait: 2 * time.Minute, health: agentapi.ComponentHealth{WaitSeconds: 600}, least: 10 * time.Minute, warns: true},
		{wait: 20 * time.Second, waitFor: time.Minute, refused: "[request body.plan.pace.wait_for]: is 1m, and each batch takes longer, since hosts observe web for 1m: want more than 1m"},
		{wait: 20 * time.Second, waitFor: time.Minute, health: agentapi.ComponentHealth{WaitSeconds: 5}, least: 20 * time.Second},
	} {
		r := webDraft(func(p *fleet.Plan) {
			p.Strategy.Kind, p.Health.Wait, p.Pace.WaitFor = fleet.AllAtOnce, fleet.Duration(c.wait), fleet.Duration(c.waitFor)
		})
		f := Fleet{Agents: webHosts(t, 2)}
		web(c.health)(&f)
		pre, err := Compute(r, f, rollouttest.Noon)
		if err != nil || c.refused != "" {
			if err == nil || err.Error() != c.refused {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if len(pre.Targets) != 2 || pre.AtLeast.D() != c.least || pre.Estimate.D() < c.least || hasWarning(pre, "hosts observe web for") != c.warns || pre.Targets[0].Observes.D() != c.health.Wait() {
			t.Errorf("%+v: at least %s, about %s, %q, %+v", c, pre.AtLeast, pre.Estimate, pre.Warnings, pre.Targets)
		}
	}
}
