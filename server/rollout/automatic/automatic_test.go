package automatic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/automatic"
	"github.com/muster-fleet/muster/server/rollout/spec/declare"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/lease"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/store/storetest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// world is a server with a policy that requires 1.1.0 for half of its agents.
type world struct {
	*automatic.Service
	t  *testing.T
	db store.Store
}

func newWorld(t *testing.T, agents int) *world {
	t.Helper()
	db := sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))
	clock := func() time.Time { return now }
	log := slog.New(slog.DiscardHandler)
	events := &event.Stream{Store: db.Events(), Log: log, Now: clock}
	feed, err := action.NewFeed(t.Context(), db.Actions(), func(...string) {}, &storehealth.Monitor{}, log)
	if err != nil {
		t.Fatal(err)
	}
	actions := &action.Service{Store: db, Feed: feed, Health: &storehealth.Monitor{}, Events: events, Log: log, Now: clock, Locks: rollout.Locks{Store: db}, Guards: rollout.Guards{Store: db}}
	w := &world{t: t, db: db, Service: &automatic.Service{
		Store: db, Rollouts: &rollout.Service{Store: db, Actions: actions, Events: events, Log: log, Now: clock},
		Lease: &lease.Owner{Leases: db.Leases(), Name: "here", Now: clock}, Log: log, Now: clock,
	}}
	w.must(db.Packages().Create(t.Context(), fleet.Package{
		File: "muster-agent-1.1.0-linux-amd64.tar.gz", Version: "1.1.0", OS: "linux", Arch: "amd64", Size: 1000, SHA512: strings.Repeat("ab", 64), SHA256: strings.Repeat("ab", 32),
	}))
	w.must(db.Policies().Create(t.Context(), fleet.Policy{
		ID: "web", Name: "Web", Namespace: "default", InactivityTimeout: fleet.DefaultInactivityTimeout, RequiredVersions: requires("1.1.0", 50.0),
	}))
	for i := range agents {
		id := fmt.Sprintf("a%02d", i)
		meta := `{"elastic":{"agent":{"version":"1.0.0","upgradeable":true}},"host":{"hostname":"` + id + `","architecture":"x86_64"},"os":{"type":"linux"}}`
		w.must(db.Agents().Create(t.Context(), fleet.Agent{
			ID: id, Type: "PERMANENT", Active: true, PolicyID: "web", AccessKeyID: "key-" + id, AccessKeyHash: "h", EnrolledAt: now,
			Version: "1.0.0", LocalMetadata: json.RawMessage(meta), Tags: []string{}, Last: fleet.LastSeen{At: &now, Status: "online"},
		}))
	}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) change(f func(*fleet.Policy)) {
	w.t.Helper()
	p, err := w.db.Policies().Get(w.t.Context(), "web")
	w.must(err)
	f(&p)
	storetest.Update(w.t, w.db.Policies(), p)
}

func (w *world) rollouts() []fleet.Rollout {
	w.t.Helper()
	list, _, err := w.db.Rollouts().List(w.t.Context(), 0, 0)
	w.must(err)
	return list
}

func TestRoundStartsARolloutForTheShareOfAPolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 30)
	w.must(w.Round(t.Context()))
	list := w.rollouts()
	if len(list) != 1 {
		t.Fatalf("there are %d rollouts", len(list))
	}
	r := list[0]
	if !r.Automatic || r.State != fleet.RolloutRunning || r.Counts.Total != 15 || r.Plan.Version != "1.1.0" || r.Plan.Strategy.Kind != fleet.Rolling ||
		r.CreatedBy != "automatic upgrades of policy Web" || r.StartedBy != r.CreatedBy || !strings.Contains(r.Plan.Name, "policy Web to 1.1.0") {
		t.Errorf("the rollout is %+v", r)
	}
	w.must(w.Round(t.Context()))
	if n := len(w.rollouts()); n != 1 {
		t.Errorf("while a rollout holds the policy, another round starts one: there are %d", n)
	}
}

func TestFewAgentsAreUpgradedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	w.must(w.Round(t.Context()))
	if r := w.rollouts()[0]; r.Plan.Strategy.Kind != fleet.AllAtOnce || r.Counts.Total != 2 {
		t.Errorf("the rollout is %+v", r)
	}
}

func TestNothingStartsWithoutARequirementThatCanBeMet(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*fleet.Policy){
		"managed":       func(p *fleet.Policy) { p.Managed = true },
		"no version":    func(p *fleet.Policy) { p.RequiredVersions = nil },
		"not published": func(p *fleet.Policy) { p.RequiredVersions = requires("9.9.9", 100.0) },
		"no share":      func(p *fleet.Policy) { p.RequiredVersions[0].Percentage = 1 },
	} {
		w := newWorld(t, 3)
		w.change(change)
		w.must(w.Round(t.Context()))
		if list := w.rollouts(); len(list) != 0 {
			t.Errorf("%s: there is %+v", what, list)
		}
	}
}

func TestRefusedUpgradeLeavesNoDraft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 30)
	_, err := w.Rollouts.SetExposure(t.Context(), fleet.ExposureRule{Enabled: true, Percent: 1, HealthyHours: 24}, rollout.Request{Actor: "kim", Why: "careful"})
	w.must(err)
	w.must(w.Round(t.Context()))
	if list := w.rollouts(); len(list) != 0 {
		t.Errorf("there is %+v", list)
	}
}

func TestHostsWhereTheVersionFailedAreLeftOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	a, err := w.db.Agents().Get(t.Context(), "a00")
	w.must(err)
	a.FailedVersions, a.UpgradeTo, a.UpgradeStatus = []fleet.FailedVersion{{Version: "1.1.0", At: now}}, "1.1.0", fleet.UpgradeRolledBack
	_, err = w.db.Agents().Update(t.Context(), a)
	w.must(err)
	w.must(w.Round(t.Context()))
	r := w.rollouts()[0]
	if r.Counts.Total != 1 || r.Plan.Select.Agents[0] == "a00" {
		t.Errorf("of 4 agents, one of which keeps its place, the rollout is for %v", r.Plan.Select.Agents)
	}
}

func TestInterruptedDraftIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	plan := fleet.Plan{Name: "left", Version: "1.1.0", Select: fleet.Selector{Agents: []string{"a00"}}, Strategy: fleet.Strategy{Kind: fleet.AllAtOnce}}
	_, err := w.Rollouts.Create(t.Context(), plan, rollout.Request{Actor: "automatic upgrades of policy Web", Automatic: true})
	w.must(err)
	own, err := w.Rollouts.Create(t.Context(), plan, rollout.Request{Actor: "kim"})
	w.must(err)
	w.must(w.Round(t.Context()))
	var drafts []string
	for _, r := range w.rollouts() {
		if r.State == fleet.RolloutDraft {
			drafts = append(drafts, r.ID)
		}
	}
	if len(drafts) != 1 || drafts[0] != own.ID || len(w.rollouts()) != 2 {
		t.Errorf("the drafts are %v, want only %s", drafts, own.ID)
	}
}

func TestOneServerUpgrades(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	other := *w.Service
	other.Lease = &lease.Owner{Leases: w.db.Leases(), Name: "there", Now: w.Now}
	w.must(w.Round(t.Context()))
	r := w.rollouts()[0]
	_, err := w.Rollouts.Cancel(t.Context(), r.ID, rollout.Request{Actor: "kim"})
	w.must(err)
	w.must(other.Round(t.Context()))
	if n := len(w.rollouts()); n != 1 {
		t.Errorf("a server without the lease started a rollout: there are %d", n)
	}
}

func TestRoundInstallsComponentsThatAgentsLack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5)
	components := []agentapi.PolicyComponent{{Name: "web", Runtime: "process", Version: "2.0.0"}, {Name: "db", Runtime: "process"}}
	p, err := w.db.Policies().Get(t.Context(), "web")
	w.must(err)
	p.RequiredVersions, p.Components = nil, components
	storetest.Update(w.t, w.db.Policies(), p)
	for _, name := range []string{"web", "db"} {
		w.must(w.db.Packages().Create(t.Context(), fleet.Package{
			File: "muster-component-" + name + "-2.0.0-linux-amd64.tar.gz", Version: "2.0.0", OS: "linux", Arch: "amd64", Size: 700,
			SHA512: strings.Repeat("cd", 64), Component: name, Runtime: "process",
		}))
	}
	reports := func(id, version string, change ...func(*fleet.Agent)) {
		raw, err := json.Marshal([]agentapi.Component{
			{ID: "component-web", ComponentReport: agentapi.ComponentReport{Name: "web", Runtime: "process", Version: version}},
			{ID: "component-db", ComponentReport: agentapi.ComponentReport{Name: "db", Runtime: "process"}}, // in no version that the policy names
		})
		w.must(err)
		_, err = store.UpdateAgent(t.Context(), w.db.Agents(), id, func(a *fleet.Agent) bool {
			a.Components = raw
			for _, f := range change {
				f(a)
			}
			return true
		})
		w.must(err)
	}
	reports("a00", "")
	reports("a01", "")
	reports("a02", "1.0.0") // never changed automatically
	reports("a03", "", func(a *fleet.Agent) {
		a.BeginOf("web", "act", "2.0.0", now)
		a.ObserveAck("act", "no space", false, now)
	}) // a04 has not taken the policy yet
	w.must(w.Round(t.Context()))
	list := w.rollouts()
	if len(list) != 1 {
		t.Fatalf("rollouts are %+v", list)
	}
	r := list[0]
	if !r.Automatic || r.State != fleet.RolloutRunning || r.Plan.Component != "web" || r.Plan.Version != "2.0.0" ||
		!slices.Equal(r.Plan.Select.Agents, []string{"a00", "a01"}) || r.Counts.Total != 2 {
		t.Errorf("the rollout is %+v", r)
	}
	w.must(w.Round(t.Context()))
	if n := len(w.rollouts()); n != 1 {
		t.Errorf("while it runs, there are %d rollouts", n)
	}
}

// A host that withholds its start runs nothing, so it is brought to the version in force by itself.
func TestHostsThatAreHeldAreBroughtToTheVersionInForce(t *testing.T) {
	t.Parallel()
	in := func(version string, changing bool) *agentapi.ComponentInForce {
		return &agentapi.ComponentInForce{Version: version, Changing: changing}
	}
	withheld := func(name, version string) agentapi.ComponentReport {
		return agentapi.ComponentReport{Name: name, Runtime: "process", Version: version, StartWithheld: true}
	}
	for _, c := range []struct {
		name     string
		inForce  *agentapi.ComponentInForce
		reports  agentapi.ComponentReport
		change   func(*fleet.Agent)
		want     bool
		wantDown bool
	}{
		{name: "it comes back with the old version", inForce: in("2.0.0", false), reports: withheld("web", "1.0.0"), want: true},
		{name: "it comes back with a higher version", inForce: in("2.0.0", false), reports: withheld("web", "3.0.0"), want: true, wantDown: true},
		{name: "it has the version, and waits for its first check-in", inForce: in("2.0.0", false), reports: withheld("web", "2.0.0")},
		{name: "it withholds nothing", inForce: in("2.0.0", false), reports: agentapi.ComponentReport{Name: "web", Runtime: "process", Version: "1.0.0"}},
		{name: "a rollout in lockstep is under way", inForce: in("2.0.0", true), reports: withheld("web", "1.0.0")},
		{name: "no version is in force", reports: withheld("web", "1.0.0")},
		{name: "it has none, and another one is in force than the policy names", inForce: in("2.0.0", false), reports: agentapi.ComponentReport{Name: "web", Runtime: "process"}, want: true},
		{name: "the version failed on it", inForce: in("2.0.0", false), reports: withheld("web", "1.0.0"), change: func(a *fleet.Agent) {
			a.BeginOf("web", "act", "2.0.0", now)
			a.ObserveAck("act", "no space", false, now)
		}},
		{name: "it goes there already", inForce: in("2.0.0", false), reports: withheld("web", "1.0.0"), change: func(a *fleet.Agent) {
			a.BeginOf("web", "act", "2.0.0", now)
		}},
	} {
		for how, round := range map[string]func(*automatic.Service, context.Context) error{"": (*automatic.Service).Round, ", within seconds": (*automatic.Service).JoinWithheld} {
			t.Run(c.name+how, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, 1)
				p, err := w.db.Policies().Get(t.Context(), "web")
				w.must(err)
				p.RequiredVersions = nil
				p.Components = []agentapi.PolicyComponent{{Name: "web", Runtime: "process", Version: "1.5.0", Lockstep: true, InForce: c.inForce}}
				storetest.Update(w.t, w.db.Policies(), p)
				for _, v := range []string{"1.5.0", "2.0.0"} {
					w.must(w.db.Packages().Create(t.Context(), fleet.Package{
						File: "muster-component-web-" + v + "-linux-amd64.tar.gz", Version: v, OS: "linux", Arch: "amd64", Size: 700,
						SHA512: strings.Repeat("cd", 64), Component: "web", Runtime: "process",
					}))
				}
				raw, err := json.Marshal([]agentapi.Component{{ID: "component-web", ComponentReport: c.reports}})
				w.must(err)
				_, err = store.UpdateAgent(t.Context(), w.db.Agents(), "a00", func(a *fleet.Agent) bool {
					a.Components = raw
					if c.change != nil {
						c.change(a)
					}
					return true
				})
				w.must(err)
				w.must(round(w.Service, t.Context()))
				list := w.rollouts()
				if len(list) == 0 && !c.want {
					return
				}
				if len(list) != 1 || !c.want {
					t.Fatalf("rollouts are %+v", list)
				}
				if r := list[0]; r.Plan.Version != "2.0.0" || !slices.Equal(r.Plan.Select.Agents, []string{"a00"}) || r.Counts.Total != 1 || r.Plan.Force != c.wantDown || r.Plan.Health.Wait.D() != time.Minute {
					t.Errorf("the rollout is %+v", r)
				}
			})
		}
	}
}

// The policy requires 1.1.0 for half of 20 agents; an object has the first 15.
func TestAgentsOfADeclaredFleetAreLeftToIt(t *testing.T) {
	w := newWorld(t, 20)
	log, clock := slog.New(slog.DiscardHandler), w.Now
	w.Rollouts.Owners = declare.NewOwners(declare.Config{Store: w.db, Events: &event.Stream{Store: w.db.Events(), Log: log, Now: clock}, Log: log, Now: clock})
	w.must(w.db.DeclaredFleets().Create(t.Context(), fleet.DeclaredFleet{Name: "web", Doc: json.RawMessage(
		`{"apiVersion":"muster.dev/v1alpha2","kind":"Fleet","metadata":{"name":"web","uid":"u"},"spec":{"selector":{"kuery":"agent.id < a15"},"agent":{"version":"1.0.0"}}}`,
	)}))
	w.must(w.Round(t.Context()))
	list := w.rollouts()
	if len(list) != 1 {
		t.Fatalf("%d rollouts were started", len(list))
	}
	for _, id := range list[0].Plan.Select.Agents {
		if id < "a15" {
			t.Errorf("%s belongs to an object, and is upgraded to %s", id, list[0].Plan.Version)
		}
	}
}

// Outside its windows a policy starts nothing, so no rollout locks its agents, and the batches
// of a rollout stay inside them.
func TestUpgradesBeginInTheWindowsOfThePolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 30)
	w.change(func(p *fleet.Policy) {
		p.UpgradeWindows = []fleet.Window{{From: now.Add(time.Hour).UTC().Format("15:04"), To: now.Add(3 * time.Hour).UTC().Format("15:04")}}
	})
	w.must(w.Round(t.Context()))
	if list := w.rollouts(); len(list) > 0 {
		t.Fatalf("outside the window begins %+v", list)
	}
	later := func() time.Time { return now.Add(2 * time.Hour) }
	w.Now, w.Rollouts.Now = later, later
	w.must(w.Round(t.Context()))
	list := w.rollouts()
	if len(list) != 1 || list[0].State != fleet.RolloutRunning || len(list[0].Plan.Pace.Windows) != 1 || list[0].Plan.Pace.Windows[0].Zone != "UTC" {
		t.Fatalf("inside the window the rollouts are %+v", list)
	}
}
