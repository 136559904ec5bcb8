package rollout_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/reconcile"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/store/storetest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// site is a server with agents that run the component web, in version 1.0.0, by process.
type site struct {
	*harness
	round     func()
	incidents []fleet.Incident
}

func (s *site) Open(_ context.Context, i fleet.Incident) error {
	s.incidents = append(s.incidents, i)
	return nil
}

func newSite(t *testing.T, agents ...string) *site {
	t.Helper()
	s := &site{harness: newHarness(t)}
	for _, name := range []string{"web", "db"} {
		for _, v := range []string{"1.0.0", "2.0.0"} {
			s.must(s.store.Packages().Create(t.Context(), fleet.Package{
				File: "muster-component-" + name + "-" + v + "-linux-amd64.tar.gz", Version: v, OS: "linux", Arch: "amd64", Size: 700,
				SHA512: strings.Repeat("cd", 64), Component: name, Runtime: "process",
			}))
		}
	}
	components := []agentapi.PolicyComponent{{Name: "web", Runtime: "process"}, {Name: "db", Runtime: "process"}}
	s.must(s.store.Policies().Create(t.Context(), fleet.Policy{ID: fleet.DefaultPolicyID, Name: "default", Components: components}))
	s.enrol(agents...)
	for _, id := range agents {
		s.reports(id, component("web", "1.0.0", nil), component("db", "1.0.0", nil))
	}
	s.serveRounds()
	return s
}

func (s *site) serveRounds() {
	s.t.Helper()
	r := reconcile.New(reconcile.Config{
		Store: s.store, Actions: s.service.Actions, Events: s.service.Events, Log: slog.New(slog.DiscardHandler), Now: s.time, LeaseOwner: "this",
		Health: &storehealth.Monitor{}, Incidents: s, Renderer: s.service.Renderer,
	})
	s.round = func() {
		s.t.Helper()
		s.later(reconcile.RoundInterval)
		s.must(r.Round(s.t.Context()))
	}
}

func component(name, version string, d *agentapi.UpgradeDetails) agentapi.Component {
	return agentapi.Component{
		ID: "component-" + name, Type: "process", Status: "HEALTHY",
		ComponentReport: agentapi.ComponentReport{Name: name, Runtime: "process", Version: version, LastHealthyVersion: version, UpgradeDetails: d},
	}
}

// reports is a check-in of an agent with these components.
func (s *site) reports(id string, list ...agentapi.Component) {
	s.t.Helper()
	raw, err := json.Marshal(list)
	s.must(err)
	now := s.time()
	s.change(id, func(a *fleet.Agent) {
		was := a.Components
		a.Components = raw
		a.ObserveComponents(was, now)
	})
	s.must(s.store.Agents().Touch(s.t.Context(), []fleet.Touch{{AgentID: id, At: now, Status: "online"}}))
}

// phase reports that an agent is in a phase of the upgrade of web that it was offered.
func (s *site) phase(r fleet.Rollout, id string, state agentapi.UpgradeState, change ...func(*agentapi.UpgradeDetails)) {
	s.t.Helper()
	t := s.target(r, id)
	d := &agentapi.UpgradeDetails{TargetVersion: t.To, ActionID: t.ActionID, State: state}
	for _, f := range change {
		f(d)
	}
	s.reports(id, component("web", "1.0.0", d), component("db", "1.0.0", nil))
}

func failedWhile(state agentapi.UpgradeState, why, code string) func(*agentapi.UpgradeDetails) {
	return func(d *agentapi.UpgradeDetails) {
		d.Metadata.FailedState, d.Metadata.ErrorMsg, d.Metadata.ReasonCode = state, why, code
	}
}

func (s *site) target(r fleet.Rollout, id string) fleet.Target {
	s.t.Helper()
	t, err := s.store.Targets().Get(s.t.Context(), r.ID, id)
	s.must(err)
	return t
}

// in returns the agents whose target is in a state, in the order of the rollout.
func (s *site) in(r fleet.Rollout, state fleet.TargetState) (ids []string) {
	for _, t := range s.targets(r.ID) {
		if t.State == state {
			ids = append(ids, t.AgentID)
		}
	}
	return ids
}

func (s *site) action(id string) (fleet.Action, agentapi.UpgradeData) {
	s.t.Helper()
	a, err := s.store.Actions().Get(s.t.Context(), id)
	s.must(err)
	var d agentapi.UpgradeData
	s.must(json.Unmarshal(a.Data, &d))
	return a, d
}

// heartbeat lets all agents check in without news.
func (s *site) heartbeat(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		s.must(s.store.Agents().Touch(s.t.Context(), []fleet.Touch{{AgentID: id, At: s.time(), Status: "online"}}))
	}
}

func of(name string) func(*fleet.Plan) {
	return func(p *fleet.Plan) { p.Component, p.Version, p.Name = name, "2.0.0", name+" spring" }
}

// componentOrder upgrades a component without a rollout.
func componentOrder(name, version string, ids ...string) action.UpgradeOrder {
	o := upgradeOf(version, ids...)
	o.Component = name
	return o
}

func canaries(n int) func(*fleet.Plan) {
	return func(p *fleet.Plan) {
		p.Strategy = fleet.Strategy{Kind: fleet.Canary, Canary: &fleet.CanaryRule{Size: n}}
	}
}

var six = []string{"a", "b", "c", "d", "e", "f"}

func TestCanariesOfABadVersionOfAComponentStopAndRetract(t *testing.T) {
	s := newSite(t, six...)
	r := s.start(of("web"), canaries(3))
	s.round()
	offered := s.in(r, fleet.TargetOffered)
	if len(offered) != 3 {
		t.Fatalf("offered to %v, want the three canaries", offered)
	}
	act, data := s.action(s.target(r, offered[0]).ActionID)
	want := agentapi.ComponentData{Name: "web", UpgradeID: act.ID, Runtime: "process", Checksum: "sha512:" + strings.Repeat("cd", 64), Size: 700, Health: agentapi.ComponentHealth{WaitSeconds: 60}}
	if len(act.Agents) != 3 || data.Version != "2.0.0" || data.Component == nil || !equal(*data.Component, want) {
		t.Errorf("the action for %v is %+v with %+v, want %+v", act.Agents, data, data.Component, want)
	}
	if a := s.agentDoc(offered[0]); a.Upgrading() || a.ComponentUpgrades["web"].UpgradeStatus != fleet.UpgradeStarted {
		t.Errorf("the agent itself is upgraded, or web is not: %+v", a.ComponentUpgrades)
	}

	s.phase(r, offered[0], agentapi.UpgradeWatching)
	s.phase(r, offered[1], agentapi.UpgradeReplacing)
	s.round()
	if v, u := s.in(r, fleet.TargetVerifying), s.in(r, fleet.TargetUpgrading); !slices.Equal(v, offered[:1]) || !slices.Equal(u, offered[1:2]) {
		t.Errorf("verifying are %v and upgrading %v", v, u)
	}
	s.phase(r, offered[0], agentapi.UpgradeRollback)
	s.round()
	if got := s.target(r, offered[0]); got.State != fleet.TargetVerifying {
		t.Errorf("while its host undoes it, the target is %s (%s)", got.State, got.Code)
	}
	s.phase(r, offered[0], agentapi.UpgradeFailed, failedWhile(agentapi.UpgradeWatching, "check page: 500", ""))
	s.round()
	s.round()

	got := s.rollout(r.ID)
	if got.State != fleet.RolloutPaused || got.Stop == nil || got.Stop.Kind != fleet.StopCanary || got.Stop.Withdrawn != 1 {
		t.Fatalf("it is %s, stopped by %+v", got.State, got.Stop)
	}
	bad := s.target(r, offered[0])
	if bad.State != fleet.TargetRolledBack || bad.Code != fleet.WhyCompensated || !strings.Contains(bad.Error, "check page") {
		t.Errorf("the bad canary is %s (%s): %s", bad.State, bad.Code, bad.Error)
	}
	if w := s.in(r, fleet.TargetWithdrawn); !slices.Equal(w, offered[2:]) {
		t.Errorf("withdrawn are %v, want %v, which had not begun", w, offered[2:])
	}
	if a := s.agentDoc(offered[2]); a.ComponentUpgrades["web"].UpgradeStatus == fleet.UpgradeStarted {
		t.Errorf("the agent that had not begun is still marked: %+v", a.ComponentUpgrades["web"])
	}
	if n := got.Counts.Pending; n != 3 {
		t.Errorf("%d agents wait, want those after the canaries: %+v", n, got.Counts)
	}
	e, err := s.service.Why(t.Context(), offered[0], "web", "", s.time())
	s.must(err)
	if e.RolloutID != r.ID || !strings.Contains(e.Summary, "web on host-"+offered[0]) || !strings.Contains(e.Summary, "check page") {
		t.Errorf("it is explained as %q", e.Summary)
	}
	if e, err := s.service.Why(t.Context(), offered[0], "", "", s.time()); err != nil || e.RolloutID != "" {
		t.Errorf("the agent's own version is explained by the component's rollout: %+v, %v", e, err)
	}
}

func TestComponentIsUpgradedBatchByBatch(t *testing.T) {
	s := newSite(t, "a", "b")
	r := s.start(of("web"), func(p *fleet.Plan) { p.Strategy = fleet.Strategy{Kind: fleet.Rolling, BatchSize: 1} })
	for range 2 {
		s.round()
		now := s.in(r, fleet.TargetOffered)
		if len(now) != 1 {
			t.Fatalf("offered to %v, want one at a time", now)
		}
		s.phase(r, now[0], agentapi.UpgradeWatching)
		s.round()
		s.reports(now[0], component("web", "2.0.0", nil), component("db", "1.0.0", nil))
		for range 11 {
			s.later(time.Minute)
			s.heartbeat("a", "b")
			s.round()
		}
		if got := s.target(r, now[0]); got.State != fleet.TargetSucceeded || got.Code != fleet.WhyHealthy || got.From != "1.0.0" {
			t.Fatalf("%s is %s (%s) %s", now[0], got.State, got.Code, got.Error)
		}
	}
	s.round()
	if got := s.rollout(r.ID); got.State != fleet.RolloutCompleted || len(s.locks()) != 0 {
		t.Errorf("it is %s, and locks are %v", got.State, s.locks())
	}
}

func TestComponentWithoutAVersionIsInstalled(t *testing.T) {
	s := newSite(t, "a", "b")
	s.reports("a", component("web", "", nil))
	s.reports("b", component("db", "1.0.0", nil)) // it has not taken the new policy yet
	s.enrol("elsewhere/c")
	s.must(s.store.Policies().Create(t.Context(), fleet.Policy{ID: "elsewhere", Name: "elsewhere"}))
	r := s.create(of("web"))
	pre := s.preview(r)
	if len(pre.Targets) != 1 || pre.Targets[0].AgentID != "a" || pre.Targets[0].From != "" || pre.Targets[0].Bytes != 700 {
		t.Errorf("targets are %+v, want a, which has no version", pre.Targets)
	}
	codes := map[string]fleet.ReasonCode{}
	for _, out := range pre.Skipped {
		codes[out.AgentID] = out.Code
	}
	if want := map[string]fleet.ReasonCode{"b": fleet.WhyNoComponent, "c": fleet.WhyNoComponent}; !maps.Equal(codes, want) {
		t.Errorf("skipped are %v, want %v", codes, want)
	}
	r, err := s.service.Start(t.Context(), r.ID, pre.Hash, false, kim)
	s.must(err)
	s.round()
	if got := s.target(r, "a"); got.State != fleet.TargetOffered {
		t.Errorf("a is %s (%s) %s", got.State, got.Code, got.Error)
	}
}

func TestRolloutsOfOtherComponentsDoNotWait(t *testing.T) {
	s := newSite(t, "a", "b")
	web := s.start(of("web"))
	_, err := s.service.Create(t.Context(), springPlan(of("web")), kim)
	s.wantKind(err, fleet.Conflict, "is active on component web of policy default")
	db, agents := s.start(of("db")), s.start()
	if got := s.locks(); len(got) != 3 {
		t.Errorf("locks are %v, want one of the agents and one of each component", got)
	}
	s.round()
	for _, r := range []fleet.Rollout{web, db, agents} {
		if got := s.rollout(r.ID); got.Counts.Offered != 2 {
			t.Errorf("%s: counts are %+v", got.Plan.Name, got.Counts)
		}
	}
	verdict := func(name string) error {
		var got error
		s.must(s.service.Actions.EachVerdict(t.Context(), componentOrder(name, "2.0.0", "a"), func(v action.Verdict) { got = v.Err }))
		return got
	}
	_, err = s.service.Pause(t.Context(), web.ID, true, kim)
	s.must(err)
	s.round() // takes the offers back
	s.wantKind(verdict("web"), fleet.Conflict, "component web of agent a belongs to the active rollout “web spring”")
	_, err = s.service.Cancel(t.Context(), web.ID, kim)
	s.must(err)
	s.round()
	s.round()
	if err := verdict("web"); err != nil {
		t.Errorf("the rollout has ended, and an order is refused: %v", err)
	}
	if got := s.rollout(db.ID); got.State != fleet.RolloutRunning || got.Counts.Offered != 2 {
		t.Errorf("the other component's rollout is %s with %+v", got.State, got.Counts)
	}
}

func TestFailedRollbackOfAComponentOpensACriticalIncident(t *testing.T) {
	s := newSite(t, "a")
	r := s.start(of("web"))
	s.round()
	s.phase(r, "a", agentapi.UpgradeFailed, failedWhile(agentapi.UpgradeReplacing, "FAILED_ROLLBACK: the disk is gone", agentapi.FailedRollback))
	s.round()
	if got := s.target(r, "a"); got.State != fleet.TargetFailed || got.Code != fleet.WhyStuck {
		t.Errorf("it is %s (%s)", got.State, got.Code)
	}
	if len(s.incidents) == 0 {
		t.Fatal("no incident")
	}
	if i := s.incidents[0]; i.Category != fleet.IncidentUpgradeFailed || i.Severity != "critical" || i.AgentID != "a" || !strings.Contains(i.Title, "web on host-a") {
		t.Errorf("the incident is %+v", i)
	}
	_, err := s.service.Retry(t.Context(), r.ID, []string{"a"}, kim)
	if err == nil {
		s.round()
		s.round()
	}
	if u := s.agentDoc("a").ComponentUpgrades["web"]; u.Upgrading() {
		t.Errorf("the broken component is upgraded again: %+v", u)
	}
}

func TestComponentThatDoesNotBecomeHealthyOpensAnIncident(t *testing.T) {
	s := newSite(t, "a")
	r := s.start(of("web"))
	s.round()
	s.phase(r, "a", agentapi.UpgradeWatching)
	for range 22 { // twice the wait
		s.round()
		s.later(time.Minute)
		s.heartbeat("a")
	}
	if got := s.target(r, "a"); got.State != fleet.TargetFailed || got.Code != fleet.WhyStalled || !strings.Contains(got.Error, "still observes") {
		t.Errorf("it is %s (%s): %s", got.State, got.Code, got.Error)
	}
	if len(s.incidents) == 0 || s.incidents[0].Category != fleet.IncidentStalled {
		t.Errorf("incidents are %+v, want one of %s", s.incidents, fleet.IncidentStalled)
	}
}

func TestComponentIsRolledBackToItsLastHealthyVersion(t *testing.T) {
	s := newSite(t, "kept", "under-way", "gone")
	r := s.start(of("web"), func(p *fleet.Plan) { p.Strategy = fleet.Strategy{Kind: fleet.AllAtOnce} })
	s.round()
	done := component("web", "2.0.0", nil)
	done.Rollbacks = []string{"1.0.0"}
	s.reports("kept", done)
	s.phase(r, "under-way", agentapi.UpgradeWatching)
	s.reports("gone", component("web", "2.0.0", nil)) // it keeps nothing: the package is installed again
	s.round()
	back, err := s.service.Rollback(t.Context(), r.ID, rollout.ScopeAll, kim)
	s.must(err)
	s.round()
	if got := s.in(back, fleet.TargetOffered); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"gone", "kept"}) {
		t.Errorf("the rollback is offered to %v, want kept and gone: under-way is busy", got)
	}
	if _, d := s.action(s.target(back, "kept").ActionID); !d.Rollback || d.Version != "1.0.0" || d.Component == nil || d.Component.Name != "web" || d.Force {
		t.Errorf("kept is asked for %+v", d)
	}
	if _, d := s.action(s.target(back, "gone").ActionID); d.Rollback || d.Version != "1.0.0" || !d.Force {
		t.Errorf("gone is asked for %+v", d)
	}
	s.reports("under-way", done)
	s.round()
	s.round()
	if got := s.target(back, "under-way"); got.State != fleet.TargetOffered || !got.Rollback {
		t.Errorf("after its observation, under-way is %s (%s)", got.State, got.Code)
	}
}

func TestExposureOfAComponentCountsItsHosts(t *testing.T) {
	ids := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	s := newSite(t, ids...)
	for _, id := range ids[4:] {
		s.reports(id, component("db", "1.0.0", nil)) // no web
	}
	_, err := s.service.SetExposure(t.Context(), fleet.ExposureRule{Enabled: true, Percent: 50, HealthyHours: 100}, kim)
	s.must(err)
	r := s.create(of("web"), func(p *fleet.Plan) { p.Strategy = fleet.Strategy{Kind: fleet.Rolling, BatchSize: 2} })
	_, err = s.service.Preview(t.Context(), r.ID)
	s.wantKind(err, fleet.Conflict, "")
	var refused *fleet.Error
	if !errors.As(err, &refused) || refused.Code != "rollout_exposure" {
		t.Errorf("refused with %v", err)
	}
	few := s.start(of("web"), func(p *fleet.Plan) { p.Select = fleet.Selector{Agents: []string{"a", "b"}} })
	s.round()
	got := s.rollout(few.ID)
	if got.Exposure == nil || got.Exposure.Fleet != 4 || got.Exposure.Limit != 2 || got.Counts.Offered != 2 {
		t.Errorf("exposure is %+v and counts %+v, want 2 of the 4 hosts with web", got.Exposure, got.Counts)
	}
}

// One order after the other must not get past the budget.
func TestExposureBudgetBindsOrdersOfComponents(t *testing.T) {
	ids := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	s := newSite(t, ids...)
	for _, id := range ids[4:] {
		s.reports(id, component("db", "1.0.0", nil)) // no web
	}
	ctx, actions := t.Context(), s.service.Actions
	_, err := s.service.SetExposure(ctx, fleet.ExposureRule{Enabled: true, Percent: 50, HealthyHours: 100}, kim)
	s.must(err)
	_, err = actions.Upgrade(ctx, componentOrder("web", "2.0.0", "a", "b", "c"))
	s.wantKind(err, fleet.Conflict, "room for 2 of the 3 agents: 0 of 4 agents run 2.0.0")
	var refused *fleet.Error
	if err := actions.EachVerdict(ctx, componentOrder("web", "2.0.0", "a", "b", "c"), func(action.Verdict) {}); !errors.As(err, &refused) || refused.Code != string(fleet.WhyExposure) {
		t.Errorf("a preview says %v, want what the order does", err)
	}
	if u := s.agentDoc("a").ComponentUpgrades["web"]; u.Upgrading() {
		t.Errorf("the refused order has marked the component: %+v", u)
	}
	_, err = actions.Upgrade(ctx, componentOrder("db", "2.0.0", "a", "b", "c", "d", "e")) // all ten hosts have it
	s.must(err)
	_, err = actions.Upgrade(ctx, upgradeOf("1.2.0", "a", "b", "c", "d", "e")) // the agents themselves
	s.must(err)

	_, err = actions.Upgrade(ctx, componentOrder("web", "2.0.0", "a", "j")) // j has none, so only a counts
	s.must(err)
	_, err = actions.Upgrade(ctx, componentOrder("web", "2.0.0", "b", "c"))
	s.wantKind(err, fleet.Conflict, "room for 1 of the 2 agents: 1 of 4 agents run 2.0.0 or were offered it")
	over := componentOrder("web", "2.0.0", "b", "c")
	over.Force = true // opens no budget
	_, err = actions.Upgrade(ctx, over)
	s.wantKind(err, fleet.Conflict, "room for 1 of the 2 agents")
	over.OverrideExposure = true
	_, err = actions.Upgrade(ctx, over)
	s.wantKind(err, fleet.Invalid, "body.why")
	over.Why = "tested elsewhere"
	act, err := actions.Upgrade(ctx, over)
	s.must(err)
	trail, _, err := s.store.Audit().List(ctx, store.AuditQuery{Subject: act.ID, Limit: 10})
	s.must(err)
	if len(trail) != 1 || trail[0].Verb != "component.upgrade" || trail[0].Why != "tested elsewhere" || !strings.Contains(trail[0].Text, "in spite of the exposure budget") {
		t.Errorf("the audit trail says %+v", trail)
	}
}

// An upgrade to the version that is installed brings no version to a host.
func TestExposureBudgetDoesNotHoldAChangeOfConfiguration(t *testing.T) {
	s := newSite(t, "a", "b", "c")
	_, err := s.service.SetExposure(t.Context(), fleet.ExposureRule{Enabled: true, Percent: 1, HealthyHours: 1e6}, kim)
	s.must(err)
	again := componentOrder("web", "1.0.0", "a", "b", "c")
	again.Force = true
	_, err = s.service.Actions.Upgrade(t.Context(), again)
	s.must(err)
}

// renderer renders one file, whose content is a text and the agent's label site.
type renderer struct{ text string }

func (r *renderer) RenderFor(_ context.Context, p fleet.Plan, policy fleet.Policy, a *fleet.Agent) ([]agentapi.RenderedFile, error) {
	if p.Component != "web" || policy.ID != a.PolicyID {
		return nil, fmt.Errorf("asked for %s of policy %q", p.Component, policy.ID)
	}
	if a.Label("site") == "moon" {
		return nil, fmt.Errorf("web.conf:3: host %s: no address is known", a.Hostname())
	}
	return []agentapi.RenderedFile{{Path: "/etc/web.conf", Content: r.text + " " + a.Label("site")}}, nil
}

func (*renderer) Digest(files []agentapi.RenderedFile) string { return "digest of " + files[0].Content }

func TestOffersCarryTheConfigurationThatWasPreviewed(t *testing.T) {
	s := newSite(t, six...)
	for id, place := range map[string]string{"a": "fra", "b": "fra", "c": "nyc", "d": "moon", "e": "fra", "f": "fra"} {
		s.change(id, func(a *fleet.Agent) { a.Tags = []string{"site=" + place} })
	}
	current := component("web", "2.0.0", nil)
	// The digest of all files differs, since the package has some too.
	current.ConfigSHA256, current.RenderedSHA256 = "digest of all with v1", "digest of v1 fra"
	s.reports("e", current) // has version and configuration
	current.ConfigSHA256, current.RenderedSHA256 = "digest of all with v0", "digest of v0 fra"
	s.reports("f", current) // has the version, with other configuration
	words := &renderer{text: "v1"}
	s.service.Renderer = words
	s.serveRounds()

	r := s.create(of("web"), func(p *fleet.Plan) { p.Strategy = fleet.Strategy{Kind: fleet.AllAtOnce} })
	pre := s.preview(r)
	skipped := map[string]fleet.ReasonCode{}
	for _, out := range pre.Skipped {
		skipped[out.AgentID] = out.Code
	}
	if want := map[string]fleet.ReasonCode{"d": fleet.WhyConfig, "e": fleet.WhySame}; !maps.Equal(skipped, want) || len(pre.Targets) != 4 {
		t.Fatalf("skipped are %v, want %v", skipped, want)
	}
	words.text = "v2"
	_, err := s.service.Start(t.Context(), r.ID, pre.Hash, false, kim)
	s.wantKind(err, fleet.Conflict, "the fleet has changed since the preview")
	words.text = "v1"
	r, err = s.service.Start(t.Context(), r.ID, pre.Hash, false, kim)
	s.must(err)
	s.change("c", func(a *fleet.Agent) { a.Tags = []string{"site=lon"} }) // after the preview
	s.round()
	same := map[string][]string{}
	for _, id := range []string{"a", "b", "f"} {
		target := s.target(r, id)
		act, d := s.action(target.ActionID)
		if target.State != fleet.TargetOffered || len(d.Component.Files) != 1 || d.Component.Files[0].Content != "v1 fra" {
			t.Errorf("%s is %s (%s: %s) and gets %+v", id, target.State, target.Code, target.Error, d.Component)
		}
		same[act.ID] = act.Agents
	}
	if len(same) != 1 {
		t.Errorf("hosts with the same files have several actions: %v", same)
	}
	if got := s.target(r, "c"); got.State != fleet.TargetSkipped || got.Code != fleet.WhyConfigNow {
		t.Errorf("c, whose files have changed, is %s (%s)", got.State, got.Code)
	}
}

// slowRenderer takes a minute for each host, until its caller leaves.
type slowRenderer struct {
	renderer
	rendered int
}

func (r *slowRenderer) RenderFor(ctx context.Context, p fleet.Plan, policy fleet.Policy, a *fleet.Agent) ([]agentapi.RenderedFile, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Minute):
	}
	r.rendered++
	return r.renderer.RenderFor(ctx, p, policy, a)
}

func TestPreviewOfSlowTemplatesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, six...)
		slow := &slowRenderer{}
		s.service.Renderer = slow
		r := s.create(of("web"))
		_, err := s.service.Preview(t.Context(), r.ID)
		s.wantKind(err, fleet.Invalid, "take more than 2m0s for all hosts: make their loops shorter")
		if slow.rendered > 2 {
			t.Errorf("%d hosts were rendered", slow.rendered)
		}
	})
}

func TestPreviewWarnsOfRenderedConfigurationThatIsTakenAway(t *testing.T) {
	s := newSite(t, "a", "b", "c")
	for _, id := range []string{"a", "b"} {
		has := component("web", "1.0.0", nil)
		has.ConfigSHA256, has.RenderedSHA256 = "digest of all", "digest of v1"
		s.reports(id, has)
	}
	warned := func() bool {
		return slices.ContainsFunc(s.preview(s.create(of("web"))).Warnings, func(w string) bool {
			return strings.HasPrefix(w, "2 targets have configuration files that the server has rendered, and this plan renders none")
		})
	}
	if !warned() {
		t.Error("a plan that renders nothing has no warning")
	}
	s.service.Renderer = &renderer{text: "v2"}
	if warned() {
		t.Error("a plan that renders files has the warning")
	}
}

// A target that gets the version otherwise is done once it has the files too.
func TestWaitingTargetIsDoneOnceItHasVersionAndFiles(t *testing.T) {
	s := newSite(t, "a", "b", "c")
	for _, id := range []string{"a", "b", "c"} {
		s.change(id, func(a *fleet.Agent) { a.Tags = []string{"site=fra"} })
	}
	s.service.Renderer = &renderer{text: "v1"}
	s.serveRounds()
	r := s.start(of("web"), func(p *fleet.Plan) { p.Strategy = fleet.Strategy{Kind: fleet.Rolling, BatchSize: 1} })
	s.round()
	waiting := s.in(r, fleet.TargetPending)
	if len(waiting) != 2 {
		t.Fatalf("waiting are %v", waiting)
	}
	for id, rendered := range map[string]string{waiting[0]: "digest of v1 fra", waiting[1]: ""} {
		now := component("web", "2.0.0", nil)
		now.ConfigSHA256, now.RenderedSHA256 = "digest of all with "+rendered, rendered
		s.reports(id, now)
	}
	for range 5 {
		s.round()
	}
	if got := s.target(r, waiting[0]); got.State != fleet.TargetSkipped || got.Code != fleet.WhySame {
		t.Errorf("the host with version and files is %s (%s)", got.State, got.Code)
	}
	if got := s.target(r, waiting[1]); got.State != fleet.TargetPending {
		t.Errorf("the host with the package's own files is %s (%s)", got.State, got.Code)
	}
}

func TestHostsThatComeToRunAComponentJoin(t *testing.T) {
	s := newSite(t, "a")
	r := s.start(of("web"), func(p *fleet.Plan) { p.LateJoiners = fleet.LateJoin })
	s.round()
	s.enrol("late", "without")
	s.reports("late", component("web", "", nil))
	s.reports("without", component("db", "1.0.0", nil))
	s.heartbeat("a")
	for range 5 {
		s.round()
	}
	if got := s.agents(r.ID); !slices.Equal(got, []string{"a", "late"}) {
		t.Errorf("targets are %v, want late too, and not the host without web", got)
	}
	if got := s.target(r, "late"); got.From != "" || got.To != "2.0.0" {
		t.Errorf("late goes from %q to %q", got.From, got.To)
	}
}

func TestHostWhosePolicyHasAnotherRuntimeIsLeftOut(t *testing.T) {
	s := newSite(t, "a")
	p, err := s.store.Policies().Get(t.Context(), fleet.DefaultPolicyID)
	s.must(err)
	p.Components[0].Runtime = "systemd"
	storetest.Update(s.t, s.store.Policies(), p)
	pre := s.preview(s.create(of("web")))
	if len(pre.Skipped) != 1 || pre.Skipped[0].Code != fleet.WhyRefused || !strings.Contains(pre.Skipped[0].Text, "runs by process, and the policy says systemd") {
		t.Errorf("targets are %+v, skipped %+v", pre.Targets, pre.Skipped)
	}
}

// Of a rollout and of an order, also with force.
func TestHostWhosePolicyPinsAnotherImageIsLeftOut(t *testing.T) {
	s := newSite(t, "a")
	image := func(digit string) string { return "registry.example.com/cache@sha256:" + strings.Repeat(digit, 64) }
	s.must(s.store.Packages().Create(t.Context(), fleet.Package{
		File: "muster-component-cache-2.0.0-linux-amd64.tar.gz", Version: "2.0.0", OS: "linux", Arch: "amd64", SHA512: strings.Repeat("cd", 64),
		Component: "cache", Runtime: "docker", Image: image("2"),
	}))
	cache := component("cache", "1.0.0", nil)
	cache.Runtime = "docker"
	s.reports("a", cache)
	pin := func(digit string) {
		p, err := s.store.Policies().Get(t.Context(), fleet.DefaultPolicyID)
		s.must(err)
		p.Components = []agentapi.PolicyComponent{{Name: "cache", Runtime: "docker", Artifact: agentapi.ComponentArtifact{Image: image(digit)}}}
		storetest.Update(s.t, s.store.Policies(), p)
	}
	order := componentOrder("cache", "2.0.0", "a")
	order.Force = true
	verdict := func() (got error) {
		s.must(s.service.Actions.EachVerdict(t.Context(), order, func(v action.Verdict) { got = v.Err }))
		return got
	}

	pin("1")
	r := s.create(of("cache"))
	const says = "and the policy pins registry.example.com/cache@sha256:1111"
	if pre := s.preview(r); len(pre.Skipped) != 1 || pre.Skipped[0].Code != fleet.WhyRefused || !strings.Contains(pre.Skipped[0].Text, says) {
		t.Errorf("targets are %+v, skipped %+v", pre.Targets, pre.Skipped)
	}
	s.wantKind(verdict(), fleet.Invalid, says)
	pin("2")
	if pre := s.preview(r); len(pre.Targets) != 1 {
		t.Errorf("skipped is %+v", pre.Skipped)
	}
	s.must(verdict())
}

func TestUpgradeOfAComponentThatNobodyWaitsForIsGivenUp(t *testing.T) {
	s := newSite(t, "a")
	r := s.start(of("web"))
	s.round()
	s.phase(r, "a", agentapi.UpgradeReplacing)
	s.round()
	for range 60 { // silent: its target fails, and with it the rollout
		s.later(time.Minute)
		s.round()
	}
	if got := s.rollout(r.ID); got.State.Active() {
		t.Fatalf("the rollout is %s with %+v", got.State, got.Counts)
	}
	u := s.agentDoc("a").ComponentUpgrades["web"]
	if u.Upgrading() || u.UpgradeStatus != fleet.UpgradeFailed || !strings.Contains(u.UpgradeDetails.Metadata.ErrorMsg, "given up") {
		t.Errorf("the component is still in its upgrade: %+v", u)
	}
}

func (s *site) agentDoc(id string) fleet.Agent {
	s.t.Helper()
	a, err := s.store.Agents().Get(s.t.Context(), id)
	s.must(err)
	return a
}

func equal(a, b agentapi.ComponentData) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}
