package fleet_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Every refusal that a host makes before it changes anything (agent/upgrade/preflight.go) has a
// cause in previews, or only the host can know it. What the server accepts and the host refuses is
// a remark.
func TestPreviewsNameWhatHostsRefuse(t *testing.T) {
	now := time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC)
	host := func(change func(*fleet.Agent)) *fleet.Agent {
		a := &fleet.Agent{ID: "a1", Active: true, Version: "1.1.0", LocalMetadata: json.RawMessage(`{"elastic":{"agent":{"id":"a1","version":"1.1.0","upgradeable":true}},"host":{"hostname":"web-1","architecture":"amd64"},"os":{"type":"linux"}}`)}
		if change != nil {
			change(a)
		}
		return a
	}
	withFree := func(bytes int64, changes ...func(*fleet.Agent)) *fleet.Agent {
		return host(func(a *fleet.Agent) {
			a.LocalMetadata = fmt.Appendf(nil, `%s,"muster":{"free_bytes":%d}}`, strings.TrimSuffix(string(a.LocalMetadata), "}"), bytes)
			for _, change := range changes {
				change(a)
			}
		})
	}
	pkg := func(version string, change func(*fleet.Package)) fleet.Catalog {
		p := fleet.Package{Version: version, File: "muster-agent-" + version + ".tar.gz", OS: "linux", Arch: "amd64", Maker: fleet.MakerMuster}
		if change != nil {
			change(&p)
		}
		return fleet.Catalog{p}
	}
	started := now.Add(-time.Minute)
	for _, c := range []struct {
		host    string // the refusal of the host
		a       *fleet.Agent
		version string
		force   bool
		catalog fleet.Catalog
		want    fleet.Cause
		choice  string
		remark  bool // the server accepts it
	}{
		{"nothing", host(nil), "1.2.0", false, pkg("1.2.0", nil), "", "", false},
		{"this version already runs here", host(nil), "1.1.0", false, pkg("1.1.0", nil), fleet.CauseRunning, "", false},
		{"this version failed here before", host(func(a *fleet.Agent) {
			a.FailedVersions = []fleet.FailedVersion{{Version: "1.2.0", Reason: "crash loop"}}
		}), "1.2.0", false, pkg("1.2.0", nil), fleet.CauseFailedBefore, fleet.ChoiceForce, false},
		{"the last upgrade is still being watched", host(func(a *fleet.Agent) {
			a.UpgradedAt, a.UpgradeDetails = &started, &agentapi.UpgradeDetails{State: agentapi.UpgradeWatching, TargetVersion: "1.1.0"}
		}), "1.2.0", false, pkg("1.2.0", nil), fleet.CauseUpgrading, fleet.ChoiceForce, false},
		{"an upgrade is under way", host(func(a *fleet.Agent) { a.UpgradeStartedAt = &started }), "1.2.0", false, pkg("1.2.0", nil), fleet.CauseUpgrading, fleet.ChoiceForce, false},
		{"this version is not signed by its publishers", host(nil), "1.2.0", false, pkg("1.2.0", func(p *fleet.Package) { p.Withheld = "not signed" }), fleet.CauseWithheld, fleet.ChoiceForce, false},
		{"this version is below the publishers' floor", host(nil), "1.2.0", false, pkg("1.2.0", func(p *fleet.Package) { p.Withheld, p.BelowFloor = "below 1.3.0", true }), fleet.CauseFloor, "", false},
		{"below the floor, also with force", host(nil), "1.2.0", true, pkg("1.2.0", func(p *fleet.Package) { p.Withheld, p.BelowFloor = "below 1.3.0", true }), fleet.CauseFloor, "", true},
		{"older than what was committed here", host(nil), "1.0.0", false, pkg("1.0.0", nil), fleet.CauseNewer, fleet.ChoiceForce, false},
		{"older, also with force", host(nil), "1.0.0", true, pkg("1.0.0", nil), fleet.CauseNewer, "", true},
		{"nothing: its publishers allow to go down", host(nil), "1.0.0", true, pkg("1.0.0", func(p *fleet.Package) { p.Downgrade = true }), "", "", false},
		{"nothing: it keeps the version", host(func(a *fleet.Agent) {
			a.Kept.Rollbacks = []agentapi.Rollback{{Version: "1.0.0", ValidUntil: now.Add(time.Hour)}}
		}), "1.0.0", true, pkg("1.0.0", nil), "", "", false},
		{"there is no package for its system", host(nil), "1.2.0", true, pkg("1.2.0", func(p *fleet.Package) { p.OS = "windows" }), fleet.CausePlatform, "", false},
		{"too little space is free", withFree(50e6), "1.2.0", false, pkg("1.2.0", func(p *fleet.Package) { p.Needs = 60e6 }), fleet.CauseNoSpace, fleet.ChoiceForce, false},
		{"too little space, also with force", withFree(50e6), "1.2.0", true, pkg("1.2.0", func(p *fleet.Package) { p.Needs = 60e6 }), fleet.CauseNoSpace, "", true},
		{"a full disk", withFree(0), "1.2.0", false, pkg("1.2.0", func(p *fleet.Package) { p.Needs = 60e6 }), fleet.CauseNoSpace, fleet.ChoiceForce, false},
		{"nothing: enough is free", withFree(60e6), "1.2.0", false, pkg("1.2.0", func(p *fleet.Package) { p.Needs = 60e6 }), "", "", false},
		{"nothing: its need is not known", withFree(0), "1.2.0", false, pkg("1.2.0", nil), "", "", false},
		{"nothing: it has not reported what is free", host(nil), "1.2.0", false, pkg("1.2.0", func(p *fleet.Package) { p.Needs = 60e6 }), "", "", false},
		{"nothing: it has staged the version", withFree(0, func(a *fleet.Agent) { a.StagedVersions = []string{"1.2.0"} }), "1.2.0", false, pkg("1.2.0", func(p *fleet.Package) { p.Needs = 60e6 }), "", "", false},
		{"it runs in a container", host(func(a *fleet.Agent) {
			a.LocalMetadata = json.RawMessage(strings.Replace(string(a.LocalMetadata), `"upgradeable":true`, `"upgradeable":false`, 1))
		}), "1.2.0", true, pkg("1.2.0", nil), fleet.CauseNotUpgradeable, "", false},
	} {
		w := fleet.UpgradeRequest{Version: c.version, Force: c.force}
		var counts fleet.CauseCounts
		err := c.a.CheckUpgrade(w, c.catalog)
		if err != nil {
			counts.AddRefusal(c.a, err)
		} else if s := c.a.Of(""); true {
			if cause, text := s.HostRefuses(w, c.catalog, now); cause != "" {
				counts.Add(fleet.CauseCount{Code: string(cause), Text: text, Will: true}, 1, "web-1")
			}
		}
		list := counts.List()
		if c.want == "" {
			if len(list) != 0 {
				t.Errorf("%s: the preview has %+v", c.host, list)
			}
			continue
		}
		if len(list) != 1 || list[0].Code != string(c.want) || list[0].Choice != c.choice || list[0].Will != c.remark || list[0].Count != 1 || fmt.Sprint(list[0].Sample) != "[web-1]" {
			t.Errorf("%s: the preview has %+v (%v)", c.host, list, err)
			continue
		}
		if text := list[0].Text; strings.Contains(text, "web-1") || strings.Contains(text, "a1") || !strings.HasSuffix(text, ".") {
			t.Errorf("%s: %q names the host, or is no sentence", c.host, text)
		}
	}
}

func TestCausesAreBoundedAndCountAll(t *testing.T) {
	var counts fleet.CauseCounts
	for i := range 1000 {
		counts.Add(fleet.CauseCount{Code: fmt.Sprint("cause ", i%100), Text: "So it is.", Will: i%2 == 0}, 1, fmt.Sprint("web-", i))
	}
	list, sum := counts.List(), 0
	for i, c := range list {
		sum += c.Count
		if len(c.Sample) > 5 || i > 0 && list[i-1].Will && !c.Will {
			t.Errorf("cause %d is %+v", i, c)
		}
	}
	if sum != 1000 || len(list) > 42 {
		t.Errorf("%d causes of %d agents", len(list), sum)
	}
}

// What the list of commands says of an agent is what its checks say.
func TestCommandsOfAgents(t *testing.T) {
	now := time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC)
	started := now.Add(-time.Minute)
	meta := json.RawMessage(`{"elastic":{"agent":{"id":"a1","version":"1.1.0","upgradeable":true}},"host":{"hostname":"web-1","architecture":"amd64"},"os":{"type":"linux"}}`)
	for _, c := range []struct {
		name   string
		change func(*fleet.Agent)
		blocks fleet.Blocks
		want   string // what is allowed
		reason string // of upgrade
	}{
		{"idle", nil, fleet.Blocks{}, "upgrade reassign tag unenroll", ""},
		{"with an earlier version", func(a *fleet.Agent) {
			a.StagedVersions = []string{}
			a.Kept.Rollbacks = []agentapi.Rollback{{Version: "1.0.0", ValidUntil: now.Add(time.Hour)}}
		}, fleet.Blocks{}, "upgrade rollback stage reassign tag unenroll", ""},
		{"being upgraded", func(a *fleet.Agent) { a.UpgradeStartedAt, a.UpgradeTo = &started, "1.2.0" }, fleet.Blocks{}, "reassign tag unenroll", "It is already being upgraded to 1.2.0."},
		{"unenrolled", func(a *fleet.Agent) { a.Active = false }, fleet.Blocks{}, "tag", "It is unenrolled."},
		{"in a rollout", nil, fleet.Blocks{Rollout: "agent a1 belongs to the active rollout “spring” (r1)"}, "reassign tag", "It belongs to the active rollout “spring” (r1)."},
		{"managed", nil, fleet.Blocks{Managed: true}, "", "It has a managed policy (is_managed): only who manages the policy changes its agents."},
	} {
		a := fleet.Agent{ID: "a1", Active: true, Version: "1.1.0", LocalMetadata: meta}
		if c.change != nil {
			c.change(&a)
		}
		var allowed []string
		for _, command := range a.Commands(c.blocks, now) {
			if command.Name == "diagnostics" {
				continue // by the agent's maker and version
			}
			if command.Allowed {
				allowed = append(allowed, command.Name)
			}
			if command.Name == "upgrade" && command.Reason != c.reason {
				t.Errorf("%s: no upgrade because %q, want %q", c.name, command.Reason, c.reason)
			}
			if command.Allowed == (command.Reason != "") || command.Primary && !command.Allowed {
				t.Errorf("%s: %+v", c.name, command)
			}
		}
		if got := strings.Join(allowed, " "); got != c.want {
			t.Errorf("%s: allowed is %q, want %q", c.name, got, c.want)
		}
	}
}
