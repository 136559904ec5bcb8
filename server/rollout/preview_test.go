package rollout

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

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// noon is a Tuesday's.
var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// host is an agent as a test describes it.
type host struct {
	id, version, os, arch, site, ring, policy string
	tags                                      []string
	away                                      bool
}

// agent makes an upgradeable agent of linux/amd64 that runs 1.0.0, unless said.
func (h host) agent() fleet.Agent {
	or := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	seen := noon.Add(-10 * time.Second)
	if h.away {
		seen = noon.Add(-time.Hour)
	}
	meta := map[string]any{
		"elastic": map[string]any{"agent": map[string]any{"id": h.id, "version": or(h.version, "1.0.0"), "upgradeable": true, "snapshot": false}},
		"host":    map[string]any{"architecture": or(h.arch, "x86_64"), "hostname": "host-" + h.id, "name": "host-" + h.id, "id": "0", "ip": []string{"10.0.0.1/8"}},
		"os":      map[string]any{"type": or(h.os, "linux"), "platform": "debian", "family": "debian", "version": "12", "name": "Debian", "full": "Debian 12"},
	}
	local, err := json.Marshal(meta)
	if err != nil {
		panic(err)
	}
	a := fleet.Agent{
		ID: h.id, Active: true, Version: or(h.version, "1.0.0"), PolicyID: or(h.policy, "default"), LocalMetadata: local,
		EnrolledAt: noon.Add(-time.Hour), Tags: h.tags, Last: fleet.LastSeen{At: &seen, Status: "online"},
	}
	for name, v := range map[string]string{"site": h.site, "ring": h.ring} {
		if v != "" {
			a.Tags = append(a.Tags, name+"="+v)
		}
	}
	return a
}

func agents(hosts ...host) []fleet.Agent {
	var out []fleet.Agent
	for _, h := range hosts {
		out = append(out, h.agent())
	}
	return out
}

// many are n like hosts with ids of their own.
func many(n int, h host) []fleet.Agent {
	var out []fleet.Agent
	for i := range n {
		h.id = fmt.Sprintf("%s%05d", h.os+h.site+h.ring+"a", i)
		out = append(out, h.agent())
	}
	return out
}

func published(versions ...string) fleet.Catalog {
	var c fleet.Catalog
	for _, v := range versions {
		for i, arch := range []string{"amd64", "arm64"} {
			sum := strings.Repeat(fmt.Sprintf("%02x", len(v)*7+i+int(v[0])), 64)
			c = append(c, fleet.Package{File: "agent-" + v + "-linux-" + arch, Version: v, OS: "linux", Arch: arch, Size: 1000 + int64(i), SHA512: sum})
		}
	}
	return c
}

// draft is a resolved rollout of 2.0.0 to everybody, changed.
func draft(t testing.TB, change func(*fleet.Plan)) *fleet.Rollout {
	t.Helper()
	p := fleet.Plan{Name: "to two", Version: "2.0.0", Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: fleet.Rolling}}
	if change != nil {
		change(&p)
	}
	if err := Resolve(&p, nil, published("2.0.0")); err != nil {
		t.Fatal(err)
	}
	if err := Check(&p); err != nil {
		t.Fatal(err)
	}
	return &fleet.Rollout{ID: "r1", State: fleet.RolloutDraft, Plan: p}
}

func survey(t testing.TB, r *fleet.Rollout, as []fleet.Agent, change func(*Fleet)) fleet.Preview {
	t.Helper()
	f := Fleet{Agents: as, Catalog: published("1.0.0", "2.0.0")}
	if change != nil {
		change(&f)
	}
	pre, err := Survey(r, f, noon)
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

func TestEveryMatchingAgentHasItsVerdict(t *testing.T) {
	r := draft(t, func(p *fleet.Plan) {
		p.SourceVersion = "1.0.0"
		p.Select = fleet.Selector{Policies: []string{"default", "locked"}}
		p.Strategy = fleet.Strategy{Kind: fleet.Rings, Rings: &fleet.RingRule{Only: []int{0, 1}}}
	})
	upgrading := host{id: "busy"}.agent()
	upgrading.BeginUpgrade("other", "1.5.0", noon)
	container := host{id: "container"}.agent()
	container.LocalMetadata = []byte(`{"os":{"type":"linux"}}`)
	leaving := host{id: "leaving"}.agent()
	leaving.UnenrollmentStartedAt = &noon
	gone := host{id: "gone"}.agent()
	gone.Active = false
	as := append(agents(
		host{id: "in"}, host{id: "there", version: "2.0.0"}, host{id: "older", version: "0.9.0"}, host{id: "late ring", ring: "2"},
		host{id: "taken", policy: "locked"}, host{id: "mac", os: "darwin"}, host{id: "elsewhere", policy: "other"},
	), upgrading, container, leaving, gone)
	pre := survey(t, r, as, func(f *Fleet) { f.Locked = map[string]Holder{"locked": {ID: "r0", Name: "last week's"}} })

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
		{"leaving", fleet.WhyGone, "being unenrolled"},
		{"gone", fleet.WhyGone, "unenrolled"},
	} {
		if s := got[row.id]; s.Code != row.code || !strings.Contains(s.Text, row.text) {
			t.Errorf("%s is left out as %q %q, want %q %q", row.id, s.Code, s.Text, row.code, row.text)
		}
	}
	if len(got) != 9 {
		t.Errorf("%d are left out, want 9: %v", len(got), got)
	}
	if len(pre.Targets) != 1 || pre.Targets[0].AgentID != "in" || pre.Targets[0].Bytes != 1000 || pre.Targets[0].Hostname != "host-in" {
		t.Errorf("targets: %+v", pre.Targets)
	}
}

func TestTheRolloutThatHasAPolicyMayHaveItself(t *testing.T) {
	pre := survey(t, draft(t, nil), agents(host{id: "a"}), func(f *Fleet) { f.Locked = map[string]Holder{"default": {ID: "r1"}} })
	if len(pre.Targets) != 1 {
		t.Errorf("it is locked out by itself: %+v", pre.Skipped)
	}
}

func TestAPackageExchangedAfterThePlanWasMadeIsRefused(t *testing.T) {
	r := draft(t, nil)
	pre := survey(t, r, agents(host{id: "a"}), func(f *Fleet) {
		f.Catalog = slices.Clone(f.Catalog)
		for i := range f.Catalog {
			f.Catalog[i].SHA512 = strings.Repeat("00", 64)
		}
	})
	if len(pre.Targets) != 0 || pre.Skipped[0].Code != fleet.WhyRefused || !strings.Contains(pre.Skipped[0].Text, "not what the plan pins") {
		t.Errorf("targets %v, left out %+v", pre.Targets, pre.Skipped)
	}
}

func TestAnAgentThatIsNamedMustExist(t *testing.T) {
	r := draft(t, func(p *fleet.Plan) { p.Select = fleet.Selector{Agents: []string{"a", "typo"}} })
	_, err := Survey(r, Fleet{Agents: agents(host{id: "a"}), Catalog: published("2.0.0")}, noon)
	if err == nil || !strings.Contains(err.Error(), "[request body.plan.select.agents]") || !strings.Contains(err.Error(), "typo") {
		t.Errorf("%v", err)
	}
	r = draft(t, func(p *fleet.Plan) { p.Select = fleet.Selector{Agents: strings.Split("abcdefghijklmnop", "")} })
	_, err = Survey(r, Fleet{Agents: agents(host{id: "a"}), Catalog: published("2.0.0")}, noon)
	if err == nil || !strings.Contains(err.Error(), "15 agents that are not enrolled: b, c, d, e, f, g, h, i, j, k and 5 more") {
		t.Errorf("%v", err)
	}
	r = draft(t, func(p *fleet.Plan) {
		p.Select = fleet.Selector{Policies: []string{"default", "none"}, ExcludeAgents: []string{"typo"}}
	})
	pre := survey(t, r, agents(host{id: "a"}), nil)
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
			pre := survey(t, draft(t, row.change), many(row.n, host{}), nil)
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
	as := slices.Concat(many(4, host{ring: "2"}), many(2, host{ring: "0"}), many(6, host{ring: "1"}), many(1, host{ring: "soon", site: "x"}), many(1, host{}))
	r := draft(t, func(p *fleet.Plan) {
		p.Strategy = fleet.Strategy{Kind: fleet.Rings, BatchSize: 4, Rings: &fleet.RingRule{Default: 2}, Canary: &fleet.CanaryRule{Size: 1}}
	})
	pre := survey(t, r, as, nil)
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

func TestARingWaitsForThoseBelow(t *testing.T) {
	as := agents(
		host{id: "zero", ring: "0", version: "2.0.0"}, host{id: "behind", ring: "0"}, host{id: "one", ring: "1"},
		host{id: "two", ring: "2"}, host{id: "three", ring: "3"}, host{id: "other", ring: "0", policy: "other"},
	)
	plan := func(rule fleet.RingRule) *fleet.Plan {
		return &fleet.Plan{Version: "2.0.0", Select: fleet.Selector{Policies: []string{"default"}}, Strategy: fleet.Strategy{Kind: fleet.Rings, Rings: &rule}}
	}
	for _, row := range []struct {
		name string
		rule fleet.RingRule
		want []string
	}{
		{"all rings", fleet.RingRule{}, nil},
		{"the lowest", fleet.RingRule{Only: []int{0}}, nil},
		{"the next", fleet.RingRule{Only: []int{1}}, []string{"behind"}},
		{"the last", fleet.RingRule{Only: []int{3}}, []string{"behind", "one", "two"}},
		{"with one left out", fleet.RingRule{Only: []int{0, 2}}, []string{"one"}},
		{"forced", fleet.RingRule{Only: []int{3}, Force: true}, nil},
	} {
		var got []string
		behind, err := CheckRings(plan(row.rule), Fleet{Agents: as}, noon)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range behind {
			got = append(got, s.AgentID)
			if s.Code != fleet.WhyRing || !strings.Contains(s.Text, "2.0.0") {
				t.Errorf("%s: %+v", row.name, s)
			}
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%s: %v are behind, want %v", row.name, got, row.want)
		}
	}
	rolling := &fleet.Plan{Version: "2.0.0", Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: fleet.Rolling}}
	if behind, err := CheckRings(rolling, Fleet{Agents: as}, noon); behind != nil || err != nil {
		t.Errorf("rings bind another strategy: %v, %v", behind, err)
	}
	last := plan(fleet.RingRule{Only: []int{3}})
	last.Select = fleet.Selector{Kuery: "agent.id: one"}
	if behind, err := CheckRings(last, Fleet{Agents: as}, noon); err != nil || len(behind) != 1 || behind[0].AgentID != "one" {
		t.Errorf("of those that match the query %v are behind: %v", behind, err)
	}
}

// matches asks a selector of a test at noon.
func matches(t testing.TB, s *fleet.Selector, a *fleet.Agent) bool {
	t.Helper()
	c, err := newChooser(s, askedAt{now: noon, timeouts: map[string]time.Duration{"short": time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	return c.chooses(a)
}

func TestMatches(t *testing.T) {
	a := host{id: "a", site: "berlin", tags: []string{"prod"}, arch: "aarch64"}.agent()
	a.UserMetadata = []byte(`{"team":"db","cores":8}`)
	for _, row := range []struct {
		name string
		s    fleet.Selector
		want bool
	}{
		{"nothing", fleet.Selector{}, false},
		{"only an exclusion", fleet.Selector{Exclude: map[string][]string{"site": {"rome"}}}, false},
		{"all", fleet.Selector{All: true}, true},
		{"its id", fleet.Selector{Agents: []string{"b", "a"}}, true},
		{"another id", fleet.Selector{Agents: []string{"b"}}, false},
		{"its policy", fleet.Selector{Policies: []string{"default"}}, true},
		{"its policy, not its id", fleet.Selector{Policies: []string{"default"}, Agents: []string{"b"}}, false},
		{"a label", fleet.Selector{Labels: map[string][]string{"site": {"rome", "berlin"}}}, true},
		{"a label of the host", fleet.Selector{Labels: map[string][]string{"arch": {"arm64"}, "os": {"linux"}}}, true},
		{"a label of the user", fleet.Selector{Labels: map[string][]string{"team": {"db"}, "cores": {"8"}}}, true},
		{"two labels, one wrong", fleet.Selector{Labels: map[string][]string{"site": {"berlin"}, "os": {"windows"}}}, false},
		{"a label it has not", fleet.Selector{Labels: map[string][]string{"rack": {"1"}}}, false},
		{"a tag", fleet.Selector{Labels: map[string][]string{"tag:prod": {"true"}}}, true},
		{"a tag it has not", fleet.Selector{Labels: map[string][]string{"tag:test": {"true"}}}, false},
		{"all but its site", fleet.Selector{All: true, Exclude: map[string][]string{"site": {"berlin"}}}, false},
		{"all but its tag", fleet.Selector{All: true, Exclude: map[string][]string{"tag:prod": {"true"}}}, false},
		{"all but another site", fleet.Selector{All: true, Exclude: map[string][]string{"site": {"rome"}}}, true},
		{"all but itself", fleet.Selector{All: true, ExcludeAgents: []string{"a"}}, false},
		{"a query", fleet.Selector{Kuery: "tags: prod and agent.version < 1.10"}, true},
		{"a query it does not match", fleet.Selector{Kuery: "tags: Prod"}, false},
		{"a query of its status", fleet.Selector{Kuery: "status: online"}, true},
		{"a query of what it is not", fleet.Selector{Kuery: "not tags: test"}, true},
		{"a query of when it was seen", fleet.Selector{Kuery: "last_checkin > now-1m"}, true},
		{"a query of what was long ago", fleet.Selector{Kuery: "last_checkin < now-1m"}, false},
		{"any", fleet.Selector{Kuery: "*"}, true},
		{"a blank query", fleet.Selector{Kuery: " \n"}, false},
		{"a query and another policy", fleet.Selector{Kuery: "*", Policies: []string{"other"}}, false},
		{"a query and its label", fleet.Selector{Kuery: "tags: prod", Labels: map[string][]string{"site": {"berlin"}}}, true},
		{"a query, but not its site", fleet.Selector{Kuery: "*", Exclude: map[string][]string{"site": {"berlin"}}}, false},
		{"a query, but not itself", fleet.Selector{Kuery: "*", ExcludeAgents: []string{"a"}}, false},
	} {
		if got := matches(t, &row.s, &a); got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
}

// A query hides nobody, unlike a list: who is inactive is chosen as by any other
// part.
func TestAQueryChoosesTheInactive(t *testing.T) {
	a := host{id: "a", policy: "short", away: true, tags: []string{"prod"}}.agent()
	for query, want := range map[string]bool{"tags: prod": true, "status: inactive": true, "status: online": false, "not status: inactive": false, "*": true} {
		if got := matches(t, &fleet.Selector{Kuery: query}, &a); got != want {
			t.Errorf("%s: %v", query, got)
		}
	}
}

func TestAQueryOfAPlanIsPointedAt(t *testing.T) {
	for query, says := range map[string]string{
		"tags: (prod":          "Kuery is malformed: ",
		"tag: prod":            `did you mean "tags"?`,
		"status: gone":         "it is one of",
		"last_checkin > never": "is a date",
	} {
		p := fleet.Plan{Name: "n", Select: fleet.Selector{Kuery: query}}
		err := checkSelector(&p)
		lines := strings.Split(fmt.Sprint(err), "\n")
		if fleet.KindOf(err) != fleet.Invalid || len(lines) != 3 || !strings.HasPrefix(lines[0], "[request body.plan.select.kuery]: ") || !strings.Contains(lines[0], says) ||
			lines[1] != query || strings.Trim(lines[2], " ") != "^" {
			t.Errorf("%s: %v", query, err)
		}
		// What a plan of another version could say.
		if _, err := Survey(&fleet.Rollout{Plan: p}, Fleet{}, noon); err == nil || !strings.Contains(err.Error(), "select.kuery") {
			t.Errorf("the survey of %s says %v", query, err)
		}
	}
	for _, query := range []string{" ", "\t\n"} {
		if err := checkSelector(&fleet.Plan{Select: fleet.Selector{All: true, Kuery: query}}); err == nil || !strings.Contains(err.Error(), "select.kuery]: is the empty query") {
			t.Errorf("%q: %v", query, err)
		}
	}
}

func TestAQueryThatTheClockChangesIsSaid(t *testing.T) {
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
			pre := survey(t, r, agents(host{id: "a"}), nil)
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

func TestCanariesAreSpread(t *testing.T) {
	fleetOf := slices.Concat(
		many(500, host{site: "a"}), many(100, host{site: "b", version: "1.1.0"}), many(20, host{site: "c", arch: "arm64"}), many(1, host{site: "d", arch: "arm64", version: "1.1.0"}),
	)
	plan := func(size int, over ...string) *fleet.Rollout {
		return draft(t, func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.Canary, Canary: &fleet.CanaryRule{Size: size, Pick: fleet.PickStratified, Over: over}}
		})
	}
	t.Run("the fewest that cover everything", func(t *testing.T) {
		pre := survey(t, plan(0), fleetOf, nil)
		if c := pre.Coverage; pre.Batches[0].Size != 4 || c.Cells != 4 || c.Covered != 4 || c.Agents != 1 || len(c.Uncovered) != 0 {
			t.Errorf("%d canaries, coverage %+v", pre.Batches[0].Size, c)
		}
	})
	t.Run("too few cover the most agents", func(t *testing.T) {
		pre := survey(t, plan(2), fleetOf, nil)
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
		pre := survey(t, plan(10, "site"), fleetOf, nil)
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
		pre := survey(t, r, fleetOf, nil)
		if pre.Coverage.Covered != 1 || !hasWarning(pre, "stratified canaries cover more") {
			t.Errorf("coverage %+v, warnings %q", pre.Coverage, pre.Warnings)
		}
	})
}

func TestThePreviewIsPinned(t *testing.T) {
	as := many(50, host{})
	r := draft(t, nil)
	first := survey(t, r, as, nil)
	same := func(name string, pre fleet.Preview) {
		t.Helper()
		if pre.Hash != first.Hash || !Compare(first, pre).None() {
			t.Errorf("%s: another preview: %+v", name, Compare(first, pre))
		}
	}
	shuffled := slices.Clone(as)
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	same("the store gives agents in another order", survey(t, r, shuffled, nil))
	later, err := Survey(r, Fleet{Agents: as, Catalog: published("2.0.0", "3.0.0"), Took: []time.Duration{time.Hour}}, noon.Add(72*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	same("days later, all away", later)
	same("under another name", survey(t, draft(t, func(p *fleet.Plan) { p.Name, p.Description = "other", "words" }), as, nil))
	for name, change := range map[string]func(*fleet.Plan){
		"another batch size": func(p *fleet.Plan) { p.Strategy.BatchSize = 7 },
		"another soak":       func(p *fleet.Plan) { p.Pace.Soak = fleet.Duration(time.Hour) },
	} {
		if pre := survey(t, draft(t, change), as, nil); pre.Hash == first.Hash {
			t.Errorf("%s has the same hash", name)
		}
	}
	if want := "sha256:"; !strings.HasPrefix(first.Hash, want) || len(first.Hash) != len(want)+64 {
		t.Errorf("hash %q", first.Hash)
	}
}

// The hash is presented days later, to another process.
func TestTheHashStaysTheSameFromVersionToVersion(t *testing.T) {
	pre := survey(t, draft(t, nil), many(5, host{site: "x"}), nil)
	const want = "sha256:bd0c814d211f76adf696ab9ff9926f3b54e1566db923f9fb440ef57f2c4d8ff8"
	if pre.Hash != want {
		t.Errorf("hash %s, want %s: previews made before an upgrade of the server could not be started after it", pre.Hash, want)
	}
}

func TestAMoveBetweenRingsIsDrift(t *testing.T) {
	r := draft(t, func(p *fleet.Plan) { p.Strategy = fleet.Strategy{Kind: fleet.Rings} })
	before := survey(t, r, agents(host{id: "a", ring: "1"}, host{id: "b", ring: "2"}), nil)
	after := survey(t, r, agents(host{id: "a", ring: "1"}, host{id: "b", ring: "0"}), nil)
	d := Compare(before, after)
	if len(d.Changed) != 2 || d.Changed[0].Text != "is in batch 2, not 1" || d.Changed[1].Text != "is in ring 0, not 2; is in batch 1, not 2" {
		t.Errorf("%+v", d)
	}
}

func TestMoreBatchesThanMayBeAreRefused(t *testing.T) {
	r := draft(t, func(p *fleet.Plan) { p.Strategy.BatchSize = 1 })
	_, err := Survey(r, Fleet{Agents: many(fleet.MaxBatches+1, host{}), Catalog: published("2.0.0")}, noon)
	if err == nil || !strings.Contains(err.Error(), "make batches of 2 or more") {
		t.Errorf("%v", err)
	}
}

func TestAPackageThatLiesElsewhereIsTakenAsPinned(t *testing.T) {
	r := draft(t, func(p *fleet.Plan) {
		p.Version, p.SourceURI = "4.0.0", "https://packages.example.com"
		p.Artifacts = []fleet.Artifact{{OS: "linux", Arch: "amd64", Checksum: sum("sha256:"), Size: 7}}
	})
	pre := survey(t, r, agents(host{id: "a"}, host{id: "b", arch: "aarch64"}), nil)
	if len(pre.Targets) != 1 || pre.Targets[0].Bytes != 7 || len(pre.Skipped) != 1 || pre.Skipped[0].Text != "the plan has no artifact for linux/arm64" {
		t.Errorf("%+v, left out %+v", pre.Targets, pre.Skipped)
	}
}

func TestDriftSaysWhatIsDifferent(t *testing.T) {
	r := draft(t, func(p *fleet.Plan) {
		p.Strategy.BatchSize = 100
		p.Select = fleet.Selector{Labels: map[string][]string{"site": {"x"}}}
	})
	before := agents(
		host{id: "stays", site: "x"}, host{id: "leaves", site: "x"}, host{id: "upgraded", site: "x"}, host{id: "moved", site: "x", version: "1.0.0"},
		host{id: "mac", site: "x", os: "darwin"}, host{id: "mac2", site: "x", os: "darwin"}, host{id: "skipped, gone", site: "x", os: "darwin"},
	)
	after := agents(
		host{id: "stays", site: "x"}, host{id: "leaves"}, host{id: "upgraded", site: "x", version: "2.0.0"}, host{id: "moved", site: "x", version: "1.1.0"},
		host{id: "mac", site: "x"}, host{id: "mac2", site: "x", os: "darwin", version: "2.0.0"}, host{id: "new", site: "x"}, host{id: "new mac", site: "x", os: "darwin"},
	)
	d := Compare(survey(t, r, before, nil), survey(t, r, after, nil))
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
	took := func(f *Fleet) { f.Took = []time.Duration{5 * time.Minute, time.Minute, 20 * time.Minute} }
	t.Run("waves, soak and observation", func(t *testing.T) {
		r := draft(t, func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.Canary, BatchSize: 40, Canary: &fleet.CanaryRule{Size: 5}}
			p.Limits.MaxParallel = 20
			p.Pace.Soak = fleet.Duration(15 * time.Minute)
		})
		pre := survey(t, r, many(85, host{}), took)
		// 10 min of health wait and 5 of upgrade; behind the canaries 20, then 15.
		for i, want := range [][2]float64{{0, 15}, {35, 65}, {80, 110}} {
			b := pre.Batches[i]
			if b.StartAt.Sub(noon).Minutes() != want[0] || b.EndAt.Sub(noon).Minutes() != want[1] {
				t.Errorf("batch %d goes from %s to %s, want %v to %v min", i, b.StartAt.Sub(noon), b.EndAt.Sub(noon), want[0], want[1])
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
		pre := survey(t, r, slices.Concat(many(7, host{site: "x"}), many(3, host{site: "y"})), took)
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
		pre := survey(t, r, many(30, host{}), took)
		b := pre.Batches[0]
		if !b.StartAt.Equal(noon.Add(time.Hour)) || !b.EndAt.Equal(noon.Add(25*time.Hour+15*time.Minute)) || pre.AtLeast.D() != 33*time.Minute {
			t.Errorf("from %s to %s, at least %s", b.StartAt, b.EndAt, pre.AtLeast)
		}
	})
	t.Run("a freeze is waited for, but not in an emergency", func(t *testing.T) {
		freeze := func(f *Fleet) {
			took(f)
			f.Freezes = []fleet.Freeze{{From: noon.Add(-time.Hour), To: noon.Add(48 * time.Hour)}}
		}
		if pre := survey(t, draft(t, nil), many(1, host{}), freeze); !pre.Batches[0].StartAt.Equal(noon.Add(48 * time.Hour)) {
			t.Errorf("begins at %s", pre.Batches[0].StartAt)
		}
		if pre := survey(t, draft(t, func(p *fleet.Plan) { p.Pace.Emergency = true }), many(1, host{}), freeze); !pre.Batches[0].StartAt.Equal(noon) {
			t.Errorf("begins at %s", pre.Batches[0].StartAt)
		}
	})
	t.Run("beyond a year there is no estimate", func(t *testing.T) {
		r := draft(t, func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.Rolling, BatchSize: 1}
			p.Pace.Soak = maxSpan
		})
		pre := survey(t, r, many(20, host{}), nil)
		if pre.Estimate.D() != maxEstimate || pre.AtLeast.D() != maxEstimate || !hasWarning(pre, "within a year") {
			t.Errorf("estimate %s, at least %s, %q", pre.Estimate, pre.AtLeast, pre.Warnings)
		}
	})
}

func TestSitesAndShares(t *testing.T) {
	as := slices.Concat(many(3, host{site: "x"}), many(1, host{site: "y", arch: "arm64", away: true}), agents(host{id: "has it", version: "2.0.0"}))
	pre := survey(t, draft(t, func(p *fleet.Plan) { p.Strategy.BatchSize = 3 }), as, nil)
	if want := []fleet.SiteBytes{{Site: "x", Agents: 3, Bytes: 3000}, {Site: "y", Agents: 1, Bytes: 1001}}; !slices.Equal(pre.Sites, want) {
		t.Errorf("sites %+v", pre.Sites)
	}
	if pre.Batches[0].Share != 4.0/5 || pre.Batches[1].Share != 1 || pre.Offline != 1 || !hasWarning(pre, "1 of 4 targets are offline") {
		t.Errorf("%+v, %d offline, %q", pre.Batches, pre.Offline, pre.Warnings)
	}
}

func TestWarnings(t *testing.T) {
	deadline := noon.Add(time.Minute)
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
		if pre := survey(t, draft(t, row.change), many(row.n, host{}), nil); !hasWarning(pre, row.want) {
			t.Errorf("%s: %q", row.name, pre.Warnings)
		}
	}
	calm := survey(t, draft(t, nil), many(30, host{}), nil)
	if len(calm.Warnings) != 0 {
		t.Errorf("a plain rollout warns: %q", calm.Warnings)
	}
}

func TestARollbackGoesToTheLastHealthyVersion(t *testing.T) {
	upgraded := func(id, lastHealthy string) fleet.Agent {
		a := host{id: id, version: "2.0.0"}.agent()
		a.LastHealthyVersion = lastHealthy
		return a
	}
	kept := upgraded("kept", "1.0.0")
	kept.Kept = agentapi.CheckinUpgrade{Rollbacks: []agentapi.Rollback{{Version: "1.0.0", ValidUntil: noon.Add(time.Hour)}}}
	as := []fleet.Agent{
		kept, upgraded("package", "1.0.0"), upgraded("well with the new one", "2.0.0"), upgraded("unknown", ""),
		upgraded("no package", "0.1.0"), upgraded("no way", "2.0.0"), host{id: "never left"}.agent(), host{id: "moved on", version: "3.0.0"}.agent(),
	}
	as[7].LastHealthyVersion = "1.0.0"
	keepsAnother := upgraded("keeps another", "0.1.0")
	keepsAnother.Kept = agentapi.CheckinUpgrade{Rollbacks: []agentapi.Rollback{{Version: "1.0.0", ValidUntil: noon.Add(time.Hour)}}}
	taken := upgraded("taken", "1.0.0")
	taken.PolicyID = "locked"
	left := upgraded("left", "1.0.0")
	left.Active = false
	leaving := upgraded("leaving", "1.0.0")
	leaving.UnenrollmentStartedAt = &noon
	as = append(as, keepsAnother, taken, left, leaving)
	var targets []fleet.Target
	for i, a := range as {
		targets = append(targets, fleet.Target{AgentID: a.ID, Hostname: "old-" + a.ID, From: "1.0.0", To: "2.0.0", Order: i})
	}
	targets[5].From = ""
	targets = append(targets, fleet.Target{AgentID: "gone", Hostname: "old-gone", From: "1.0.0", To: "2.0.0", Order: 99})
	r := &fleet.Rollout{ID: "r1-rollback", RollbackOf: "r1", Plan: fleet.Plan{Name: "back", Migration: fleet.Migration{Type: fleet.MigrationBreaking, RecoveryPlan: "restore"}}}
	f := Fleet{Agents: as, Catalog: published("1.0.0", "2.0.0"), Locked: map[string]Holder{"default": {ID: "r1"}, "locked": {ID: "r7"}}}
	pre, err := SurveyRollback(r, targets, f, noon)
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
	again, err := SurveyRollback(r, reversed(targets), f, noon.Add(time.Minute))
	if err != nil || again.Hash != pre.Hash {
		t.Errorf("another hash: %v", err)
	}
}

// anyFleet draws a small fleet with all kinds of agents.
func anyFleet(t *rapid.T) []fleet.Agent {
	n := rapid.IntRange(0, 60).Draw(t, "agents")
	var as []fleet.Agent
	for i := range n {
		h := host{
			id:      fmt.Sprintf("a%03d", i),
			version: rapid.SampledFrom([]string{"1.0.0", "1.1.0", "2.0.0", "3.0.0"}).Draw(t, "version"),
			os:      rapid.SampledFrom([]string{"linux", "linux", "linux", "darwin"}).Draw(t, "os"),
			arch:    rapid.SampledFrom([]string{"x86_64", "aarch64", "s390x"}).Draw(t, "arch"),
			site:    rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "site"),
			ring:    rapid.SampledFrom([]string{"", "0", "1", "7", "-1"}).Draw(t, "ring"),
			policy:  rapid.SampledFrom([]string{"default", "b", "locked"}).Draw(t, "policy"),
			away:    rapid.Bool().Draw(t, "away"),
		}
		a := h.agent()
		if rapid.IntRange(0, 9).Draw(t, "busy") == 0 {
			a.BeginUpgrade("x", "1.5.0", noon)
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

// What an operator selects is what happens: each agent that matches is a target
// or left out, once, and the batches hold exactly the targets.
func TestNobodyIsLostOrCountedTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		as := anyFleet(rt)
		r := draft(t, anyPlan(rt))
		pre := survey(t, r, as, func(f *Fleet) { f.Locked = map[string]Holder{"locked": {ID: "other"}} })
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
		for i := range as {
			want := 0
			if matches(t, &r.Plan.Select, &as[i]) {
				want = 1
			}
			if seen[as[i].ID] != want {
				rt.Errorf("%s appears %d times, want %d", as[i].ID, seen[as[i].ID], want)
			}
		}
		// The shortcut of alike agents is none.
		wish, published := fleet.UpgradeWish{Version: "2.0.0", Force: r.Plan.Force}, published("2.0.0")
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

// checkCoverage counts anew what the preview says of its canaries.
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
	if c.Cells != len(all) || c.Covered != len(covered) || c.Agents != share || len(c.Uncovered) != min(maxUncovered, len(all)-len(covered)) {
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
func TestTheHashChangesWithTheTargets(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := draft(t, anyPlan(rt))
		as := anyFleet(rt)
		before := survey(t, r, as, nil)
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
			after = append(after, host{id: "new"}.agent())
		}
		now := survey(t, r, after, func(f *Fleet) { f.Took = []time.Duration{time.Second} })
		if same := before.Hash == now.Hash; same != Compare(before, now).None() {
			rt.Errorf("same hash: %v, drift: %+v", same, Compare(before, now))
		}
	})
}

func BenchmarkSurvey(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		as := make([]fleet.Agent, 0, n)
		for i := range n {
			as = append(as, host{id: fmt.Sprintf("agent-%06d", i), site: fmt.Sprintf("site%d", i%40), arch: []string{"x86_64", "aarch64"}[i%2]}.agent())
		}
		r := draft(b, func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.Canary, Canary: &fleet.CanaryRule{Pick: fleet.PickStratified}}
			p.Limits.Per = []fleet.LabelLimit{{Label: "site", Max: 100}}
			p.Pace.Windows = []fleet.Window{{From: "22:00", To: "04:00", Zone: "Europe/Berlin"}}
		})
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				survey(b, r, as, nil)
			}
		})
	}
}

func reversed(in []fleet.Target) []fleet.Target {
	out := slices.Clone(in)
	slices.Reverse(out)
	return out
}
