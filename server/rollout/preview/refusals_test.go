package preview

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// The state of a component goes from the version that runs to that of the plan, so the preview has
// to know both packages: it has refused nothing, and the hosts were refused one by one after the
// start.
func TestWhatTheStateOfAComponentForbidsIsInThePreview(t *testing.T) {
	for name, c := range map[string]struct {
		runs, to string
		says     string
	}{
		"two minor versions down": {"1.3.0", "1.1.0", "state goes back by one minor version at a time, to 1.2 first"},
		"another major version":   {"1.3.0", "2.0.0", "their major versions differ"},
		"the previous minor":      {"1.3.0", "1.2.0", ""},
	} {
		for _, kind := range []fleet.StrategyKind{fleet.Rolling, fleet.LockstepStrategy} {
			r := webDraft(func(p *fleet.Plan) {
				p.Version, p.Force, p.Strategy = c.to, true, fleet.Strategy{Kind: kind}
			})
			f := Fleet{Agents: webHosts(t, 2)}
			web(agentapi.ComponentHealth{})(&f)
			f.Catalog = nil
			for _, v := range []string{"1.1.0", "1.2.0", "1.3.0", "2.0.0"} {
				f.Catalog = append(f.Catalog, fleet.Package{
					Component: "web", Runtime: "process", Version: v, File: "web-" + v, OS: "linux", Arch: "amd64", Maker: fleet.MakerMuster,
					Migrations: []fleet.PackageMigration{{Version: "1.0.0", Down: true}},
				})
			}
			for i := range f.Agents {
				a := &f.Agents[i]
				a.Components = []byte(strings.Replace(string(a.Components), `"version":"1.0.0"`, `"version":"`+c.runs+`"`, 1))
				a.StagedVersions = []string{"web " + c.to}
			}
			pre, err := Compute(r, f, rollouttest.Noon)
			if err != nil {
				t.Fatal(err)
			}
			skipped := slices.ContainsFunc(pre.Skipped, func(s fleet.SkippedAgent) bool { return strings.Contains(s.Text, c.says) })
			if refused := c.says != ""; refused != (len(pre.Skipped) == 2) || refused && (!skipped || len(pre.Refusals) != 1) || !refused && len(pre.Refusals) > 0 {
				t.Errorf("%s, %s: left out are %+v, refused by %+v", name, kind, pre.Skipped, pre.Refusals)
			}
			// What would be verified after the start is what the preview has found.
			for i := range f.Agents {
				code, text := plan.Verdict(&r.Plan, plan.Pending, &f.Agents[i], fleet.ConnectionUnknown, f.Catalog, rollouttest.Noon)
				if (code != "") != (c.says != "") || !strings.Contains(text, c.says) {
					t.Errorf("%s: the verdict is %s %q", name, code, text)
				}
			}
		}
	}
}

// Hosts of a policy that must not run mixed versions are named before the start if they would stay
// on another one.
func TestLockstepIsRefusedWhileOthersOfThePolicyWouldStayBehind(t *testing.T) {
	r := webDraft(func(p *fleet.Plan) {
		p.Select, p.Strategy = fleet.Selector{Agents: []string{"agent-0", "agent-1"}}, fleet.Strategy{Kind: fleet.LockstepStrategy}
	})
	f := Fleet{Agents: webHosts(t, 3)}
	web(agentapi.ComponentHealth{})(&f)
	r.Plan.Select.Agents = []string{f.Agents[0].ID, f.Agents[1].ID}
	for i := range f.Agents {
		f.Agents[i].StagedVersions = []string{"web 2.0.0"}
	}
	for _, must := range []bool{false, true} {
		c := f.Components["default"]
		c.Lockstep = must
		f.Components["default"] = c
		pre, err := Compute(r, f, rollouttest.Noon)
		if err != nil {
			t.Fatal(err)
		}
		if refused := len(pre.Refusals) == 1 && strings.Contains(pre.Refusals[0].Text, f.Agents[2].Hostname()); refused != must || len(pre.Refusals) > 1 {
			t.Errorf("must not run mixed versions: %v, refused by %+v", must, pre.Refusals)
		}
	}
}

func TestACompatibleMigrationWithoutCanariesIsWarnedOf(t *testing.T) {
	for _, c := range []struct {
		migration fleet.MigrationType
		kind      fleet.StrategyKind
		want      bool
	}{
		{fleet.MigrationCompatible, fleet.Rolling, true}, {fleet.MigrationCompatible, fleet.AllAtOnce, true}, {fleet.MigrationCompatible, fleet.Canary, false}, {fleet.MigrationNone, fleet.Rolling, false},
	} {
		pre := compute(t, draft(t, func(p *fleet.Plan) { p.Migration.Type, p.Strategy.Kind = c.migration, c.kind }), rollouttest.Many(30, rollouttest.Host{}), nil)
		if hasWarning(pre, "the migration is compatible, and no canary shows first") != c.want {
			t.Errorf("%+v: it warns %q", c, pre.Warnings)
		}
	}
}

// The connection of an agent, where the server knows it, decides whether it is away.
func TestLockstepIsRefusedWhileTheConnectionOfATargetIsClosed(t *testing.T) {
	seen := rollouttest.Noon.Add(-time.Minute) // so it is neither offline nor away by when it was seen
	for _, c := range []struct {
		link fleet.Connection
		away fleet.AwayMode
		// refused and offline are what the preview says of the second of two targets.
		refused, offline bool
	}{
		{fleet.ConnectionUnknown, fleet.AwayRefuse, false, false},
		{fleet.ConnectionOpen, fleet.AwayRefuse, false, false},
		{fleet.ConnectionClosed, fleet.AwayRefuse, true, true},
		{fleet.ConnectionClosed, fleet.AwayExclude, false, true},
	} {
		r := webDraft(func(p *fleet.Plan) { p.Strategy = fleet.Strategy{Kind: fleet.LockstepStrategy, Away: c.away} })
		f := Fleet{Agents: webHosts(t, 2)}
		web(agentapi.ComponentHealth{})(&f)
		for i := range f.Agents {
			f.Agents[i].StagedVersions, f.Agents[i].Last.At = []string{"web 2.0.0"}, &seen
		}
		second := &f.Agents[1]
		f.Connections = func(a *fleet.Agent) fleet.Connection {
			if a.ID == second.ID {
				return c.link
			}
			return fleet.ConnectionOpen
		}
		pre, err := Compute(r, f, rollouttest.Noon)
		if err != nil {
			t.Fatal(err)
		}
		says := second.Hostname() + " (the agent is not connected)"
		if refused := len(pre.Refusals) == 1 && strings.Contains(pre.Refusals[0].Text, says); refused != c.refused || !refused && len(pre.Refusals) > 0 {
			t.Errorf("connection %d, %s: refused by %+v", c.link, c.away, pre.Refusals)
		}
		if offline := pre.Offline == 1; offline != c.offline || len(pre.Targets) != 2 {
			t.Errorf("connection %d, %s: %d of %d targets are offline", c.link, c.away, pre.Offline, len(pre.Targets))
		}
		if hasWarning(pre, "1 of 2 targets are not connected: those that still are not when it begins are left out") != (c.offline && c.away == fleet.AwayExclude) {
			t.Errorf("connection %d, %s: it warns %q", c.link, c.away, pre.Warnings)
		}
	}
}
