package reconcile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/reconcile"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// drawAgent returns an agent in one of the states in which an upgrade may leave it.
func drawAgent(t *rapid.T, i int) fleet.Agent {
	pick := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, name) }
	at := noon.Add(-time.Minute)
	a := fleet.Agent{
		ID: fmt.Sprint("agent-", i), Type: "PERMANENT", Active: true, PolicyID: pick("policy", "web", "db"), PolicyRev: 1, EnrolledAt: noon.Add(-time.Hour), Tags: []string{},
		Version: pick("version", "1.0.0", "1.1.0", "1.1.0", "1.2.0"), Last: fleet.LastSeen{At: &at, Status: "online"},
		LocalMetadata: fmt.Appendf(nil, `{"elastic":{"agent":{"version":"1.0.0","upgradeable":true}},"host":{"hostname":"host-%d","architecture":%q},"os":{"type":"linux"}}`, i, pick("arch", "x86_64", "x86_64", "arm64")),
	}
	switch pick("outcome", "none", "none", "failed", "rolled back", "stuck", "started", "failed before") {
	case "failed":
		a.UpgradeStatus, a.UpgradeTo = fleet.UpgradeFailed, pick("target", "1.1.0", "1.2.0")
		a.UpgradeDetails = &agentapi.UpgradeDetails{TargetVersion: a.UpgradeTo, State: agentapi.UpgradeFailed, Metadata: agentapi.UpgradeMetadata{ErrorMsg: "the disk is full"}}
	case "rolled back":
		a.UpgradeStatus, a.UpgradeTo = fleet.UpgradeRolledBack, "1.1.0"
	case "stuck":
		a.UpgradeStatus, a.UpgradeTo = fleet.UpgradeFailed, "1.1.0"
		a.UpgradeDetails = &agentapi.UpgradeDetails{TargetVersion: "1.1.0", State: agentapi.UpgradeFailed, Metadata: agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeRollback}}
	case "started":
		a.UpgradeStatus, a.UpgradeTo, a.UpgradeStartedAt = fleet.UpgradeStarted, pick("target", "1.1.0", "1.2.0"), &at
	case "failed before":
		a.FailedVersions = []fleet.FailedVersion{{Version: "1.1.0", Reason: "it crashed", At: at}}
	}
	switch pick("presence", "here", "here", "away", "never seen") {
	case "away":
		gone := noon.Add(-time.Hour)
		a.Last.At = &gone
	case "never seen":
		a.Last, a.EnrolledAt = fleet.LastSeen{}, at // so it does not count as offline yet
	}
	if web := pick("web", "", "1.0.0", "2.0.0", "2.0.0"); web != "" {
		a.Components = fmt.Appendf(nil, `[{"id":"component-web","status":"HEALTHY","name":"web","runtime":"process","version":%q}]`, web)
	}
	return a
}

// leftOut reports whether the owner of the object has said that an agent need not run a part.
func leftOut(f *spec.Fleet, a *fleet.Agent, component string) bool {
	away := a.Last.At == nil || noon.Sub(*a.Last.At) > fleet.OfflineAfter
	failed := a.UpgradeStatus != fleet.UpgradeNone && a.UpgradeStatus != fleet.UpgradeStarted && a.UpgradeTo == "1.1.0" || len(a.FailedVersions) > 0
	switch {
	case component != "" && a.PolicyID != "web": // the only policy that lists it
		return true
	case component == "":
		return away && f.Spec.Pace.OfferFor > 0 && !failed
	}
	return away && f.Spec.Pace.OfferFor > 0
}

func TestReadyMeansThatAllSelectedAgentsRunTheParts(t *testing.T) {
	t.Parallel()
	readyOnes := 0
	rapid.Check(t, func(t *rapid.T) {
		f := twoParts()
		f.Spec.Components[0] = spec.Component{Name: "web", Desired: spec.Desired{Version: "2.0.0"}}
		if rapid.Bool().Draw(t, "only web") {
			f.Spec.Selector = fleet.Selector{Policies: []string{"web"}}
		}
		if rapid.Bool().Draw(t, "waits") {
			f.Spec.Pace.OfferFor = returnWait
		}
		hash := spec.Hash(f)
		f.Status = spec.Status{ObservedGeneration: 1, RequestedRolloutHash: hash, LastCompletedRolloutHash: hash, Sequence: 1}
		catalog := fleet.Catalog{{File: "a", Version: "1.1.0", OS: "linux", Arch: "amd64"}}
		webs := fleet.Catalog{{File: "w", Version: "2.0.0", OS: "linux", Arch: "amd64", Component: "web", Runtime: "process"}}
		parts := f.Spec.Parts()
		census, err := reconcile.NewCensus([]*spec.Fleet{f}, [][]reconcile.Wish{{
			{Part: parts[0], Version: "1.1.0", Catalog: catalog}, {Part: parts[1], Version: "2.0.0", Catalog: webs, Listed: map[string]bool{"web": true}},
		}}, nil, noon)
		if err != nil {
			t.Fatal(err)
		}
		var lacking []string // what keeps the object from being ready, as the documents of the agents say
		agents := make([]fleet.Agent, rapid.IntRange(0, 3).Draw(t, "agents"))
		for i := range agents {
			agents[i] = drawAgent(t, i)
			a := &agents[i]
			census.Add(a)
			if len(f.Spec.Selector.Policies) > 0 && a.PolicyID != "web" {
				continue
			}
			stuck := a.UpgradeDetails != nil && a.UpgradeDetails.Metadata.FailedState == agentapi.UpgradeRollback
			if !leftOut(f, a, "") && (a.Version != "1.1.0" || a.UpgradeStatus == fleet.UpgradeStarted || stuck) {
				lacking = append(lacking, a.ID+" agent")
			}
			if web, _ := a.Component("web"); !leftOut(f, a, "web") && web.Version != "2.0.0" {
				lacking = append(lacking, a.ID+" web")
			}
		}
		for _, p := range census.Of(0).Parts {
			for i := range agents {
				if agents[i].Last.At == nil && slices.Contains(p.Behind, agents[i].ID) {
					t.Fatalf("a rollout is to bring %s to an agent that has never checked in", p.Name())
				}
			}
		}
		d := reconcile.Decide(f, hash, reconcile.Seen{Members: census.Of(0)}, noon)
		st := d.Status
		c := st.Condition(spec.Ready)
		if ready := c.Status == spec.True; ready != (len(lacking) == 0) {
			t.Fatalf("ready is %s (%s: %s), and these do not run the parts: %v", c.Status, c.Reason, c.Message, lacking)
		}
		if c.Status == spec.True {
			readyOnes++
			return
		}
		if !strings.Contains(c.Message, "host-") && c.Reason != "RolloutStarting" {
			t.Fatalf("it names no host: %s: %s", c.Reason, c.Message)
		}
	})
	if readyOnes == 0 {
		t.Error("no fleet was ready, so the test has shown nothing")
	}
}

func TestConditionNamesAFewAgentsAndHowManyMore(t *testing.T) {
	t.Parallel()
	s := &stepper{t: t, f: *twoParts()}
	hash := spec.Hash(&s.f)
	s.f.Status = spec.Status{ObservedGeneration: 1, RequestedRolloutHash: hash, LastCompletedRolloutHash: hash, Sequence: 1}
	part := reconcile.PartMembers{Version: "1.1.0"}
	part.Lacking[reconcile.LackFailed], part.Lacking[reconcile.LackAway] = 12, 3
	for i := range 5 {
		part.Named[reconcile.LackFailed] = append(part.Named[reconcile.LackFailed], reconcile.Lacking{Host: fmt.Sprint("web-", i), Why: "failed"})
	}
	s.members(part, reached[1])
	want := "15 agents do not run 1.1.0: web-0 failed; web-1 failed; web-2 failed; web-3 failed; web-4 failed; and 10 more. "
	st := s.step().Status
	if got := st.Condition(spec.Stalled); got.Status != spec.True || !strings.HasPrefix(got.Message, want) {
		t.Errorf("stalled is %+v", got)
	}
}
