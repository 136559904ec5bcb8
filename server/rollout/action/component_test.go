package action_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/storetest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// newComponentWorld returns a world whose agents run web 2.4.0 and db 15.0.0, and in which
// later versions are published.
func newComponentWorld(t *testing.T, agents ...string) *world {
	t.Helper()
	w := newWorld(t, agents...)
	for name, version := range map[string]string{"web": "2.5.0", "db": "16.0.0"} {
		w.must(w.store.Packages().Create(t.Context(), fleet.Package{File: "muster-component-" + name, Version: version, Component: name, OS: "linux", Arch: "amd64"}))
	}
	for _, id := range agents {
		w.runs(id, "2.4.0", nil)
	}
	return w
}

// runs is what a check-in of the agent reports of web.
func (w *world) runs(id, version string, d *agentapi.UpgradeDetails) {
	w.t.Helper()
	w.change(id, func(a *fleet.Agent) {
		was := a.Components
		web := agentapi.Component{ID: "web", Status: "HEALTHY", ComponentReport: agentapi.ComponentReport{Name: "web", Runtime: "systemd", Version: version, UpgradeDetails: d}}
		db := agentapi.Component{ID: "db", Status: "HEALTHY", ComponentReport: agentapi.ComponentReport{Name: "db", Runtime: "systemd", Version: "15.0.0"}}
		b, err := json.Marshal([]agentapi.Component{web, db})
		w.must(err)
		a.Components = b
		a.ObserveComponents(was, w.now)
	})
}

func (w *world) upgradeComponent(name, version string, ids ...string) fleet.Action {
	w.t.Helper()
	o := order(version, ids...)
	o.Component = name
	a, err := w.service.Upgrade(w.t.Context(), o)
	w.must(err)
	return a
}

// wantWeb checks the last upgrade of web, and that the agent's own stays out of it.
func (w *world) wantWeb(what, id string, status fleet.UpgradeStatus) {
	w.t.Helper()
	a := w.agent(id)
	if u := a.ComponentUpgrades["web"]; u.UpgradeStatus != status || u.Upgrading() != (status == fleet.UpgradeStarted) {
		w.t.Errorf("%s: the upgrade is %q: %+v", what, u.UpgradeStatus, u)
	}
	if a.Upgrading() || a.UpgradeStatus != "" || a.UpgradeActionID != "" {
		w.t.Errorf("%s: the agent's own upgrade is %q by %s", what, a.UpgradeStatus, a.UpgradeActionID)
	}
}

func TestTwoComponentsOfAnAgentMayBeUpgradedAndOneOnlyOnce(t *testing.T) {
	w := newComponentWorld(t, "a")
	web := w.upgradeComponent("web", "2.5.0", "a")
	db := w.upgradeComponent("db", "16.0.0", "a")
	if a := w.agent("a"); !slices.Equal(a.ComponentActions, []string{db.ID, web.ID}) {
		t.Errorf("under way are %v", a.ComponentActions)
	}
	again := w.upgradeComponent("web", "2.5.0", "a")
	if r := w.result(again, "a"); r == nil || !strings.Contains(r.Error, "already being upgraded to 2.5.0 by action "+web.ID) || len(again.Agents) > 0 {
		t.Errorf("the second order of web is for %v, its result %+v", again.Agents, r)
	}
	own := w.upgrade("a") // the agent itself
	if a := w.agent("a"); a.UpgradeActionID != own.ID || len(a.ComponentActions) != 2 {
		t.Errorf("beside its components the agent is upgraded by %q", a.UpgradeActionID)
	}
}

func TestAcknowledgementsOfComponentUpgrades(t *testing.T) {
	w := newComponentWorld(t, "a", "b")
	up := w.upgradeComponent("web", "2.5.0", "a", "b")
	w.ack("a", agentapi.AckEvent{ActionID: up.ID})
	w.ack("b", agentapi.AckEvent{ActionID: up.ID, Error: "no rights"})
	w.wantWeb("accepted", "a", fleet.UpgradeStarted)
	w.wantWeb("refused", "b", fleet.UpgradeFailed)
	if s := w.status(up); s.Outcome() != fleet.ActionInProgress || s.Done() != 0 || s.Counts.Failed != 1 {
		t.Errorf("with one under way the action is %s, %d done, %d failed", s.Outcome(), s.Done(), s.Counts.Failed)
	}
	w.runs("a", "2.5.0", nil)
	w.wantWeb("installed", "a", fleet.UpgradeNone)
	if s := w.status(up); s.Outcome() != fleet.ActionFailed || s.Done() != 1 {
		t.Errorf("then the action is %s, %d done", s.Outcome(), s.Done())
	}
}

func TestComponentUpgradeIsCancelledOrWithdrawnBeforeItBegins(t *testing.T) {
	w := newComponentWorld(t, "a", "b")
	up := w.upgradeComponent("web", "2.5.0", "a", "b")
	w.runs("b", "2.4.0", &agentapi.UpgradeDetails{ActionID: up.ID, TargetVersion: "2.5.0", State: agentapi.UpgradeReplacing})
	cancel, err := w.service.Cancel(t.Context(), up.ID, "ann")
	w.must(err)
	w.wantWeb("not begun", "a", fleet.UpgradeNone)
	w.wantWeb("begun", "b", fleet.UpgradeStarted)
	w.ack("b", agentapi.AckEvent{ActionID: cancel.ID})
	w.wantWeb("begun and stopped", "b", fleet.UpgradeNone)

	up = w.upgradeComponent("web", "2.5.0", "a")
	w.must(w.service.Withdraw(t.Context(), action.Withdrawal{ID: action.WithdrawalID(up.ID, []string{"a"}), ActionID: up.ID, AgentIDs: []string{"a"}, Why: "paused", Actor: "ann"}))
	w.wantWeb("withdrawn", "a", fleet.UpgradeNone)
	if r := w.result(up, "a"); r == nil || !r.Withdrawn() {
		t.Errorf("the result is %+v", r)
	}
}

func TestReconcileEndsComponentUpgradesThatExpired(t *testing.T) {
	w := newComponentWorld(t, "a", "b")
	up := w.upgradeComponent("web", "2.5.0", "a", "b")
	w.runs("b", "2.4.0", &agentapi.UpgradeDetails{ActionID: up.ID, TargetVersion: "2.5.0", State: agentapi.UpgradeReplacing})
	w.must(w.service.ReconcileUpgradesOnce(t.Context()))
	w.wantWeb("at once", "a", fleet.UpgradeStarted)
	w.now = w.now.Add(fleet.DefaultExpiration + time.Minute)
	n := len(w.eventTypes(0))
	for range 2 { // a second server reconciles, too
		w.must(w.service.ReconcileUpgradesOnce(t.Context()))
	}
	w.wantWeb("expired", "a", fleet.UpgradeFailed)
	w.wantWeb("begun before", "b", fleet.UpgradeStarted)
	if r := w.result(up, "a"); r == nil || !strings.Contains(r.Error, "the action expired at ") {
		t.Errorf("the result is %+v", r)
	}
	if got := w.eventTypes(n); !slices.Equal(got, []string{fleet.EventAgentComponent, fleet.EventActionResult}) {
		t.Errorf("events are %v", got)
	}
}

// No package of the version is published any more.
func TestComponentGoesBackToTheVersionThatItsHostKeeps(t *testing.T) {
	w := newComponentWorld(t, "a", "b", "c")
	for id, kept := range map[string][]string{"a": {"2.3.0"}, "b": {"2.2.0"}, "c": nil} {
		w.change(id, func(a *fleet.Agent) {
			b, err := json.Marshal([]agentapi.Component{{ID: "web", Status: "HEALTHY", ComponentReport: agentapi.ComponentReport{Name: "web", Runtime: "systemd", Version: "2.4.0", Rollbacks: kept}}})
			w.must(err)
			a.Components = b
		})
	}
	o := order("2.3.0", "a", "b", "c")
	o.Component, o.Rollback, o.Force = "web", true, true
	back, err := w.service.Upgrade(t.Context(), o)
	w.must(err)
	if data := back.Upgrade(); !data.Rollback || data.Force || data.Version != "2.3.0" || back.Component() != "web" || !slices.Equal(back.Agents, []string{"a"}) {
		t.Errorf("the order for %v is %s", back.Agents, back.Data)
	}
	w.wantWeb("ordered", "a", fleet.UpgradeStarted)
	for id, want := range map[string]string{"b": "agent b would go back to 2.2.0, not to 2.3.0", "c": "agent c keeps no earlier version of component web"} {
		if r := w.result(back, id); r == nil || r.Error != want {
			t.Errorf("%s: the result is %+v, want %s", id, r, want)
		}
	}
	entries, _, err := w.store.Audit().List(t.Context(), store.AuditQuery{Limit: 10})
	w.must(err)
	if len(entries) != 2 || entries[1].Verb != "component.rollback" || entries[1].Text != "ann ordered the rollback of component web to 2.3.0 of 3 agents" ||
		entries[0].Verb != "component.rollback" || entries[0].Text != "ann's order is carried out: the rollback of component web to 2.3.0 of 1 of 3 agents; 2 were refused" {
		t.Errorf("the audit trail has %+v", entries)
	}
}

func TestComponentOrderIsRecorded(t *testing.T) {
	w := newComponentWorld(t, "a")
	up := w.upgradeComponent("web", "2.5.0", "a")
	if got := w.eventTypes(0); !slices.Equal(got, []string{fleet.EventActionCreated, fleet.EventAgentComponent}) {
		t.Errorf("events are %v", got)
	}
	if up.Component() != "web" || up.Upgrade().Component.UpgradeID != up.ID {
		t.Errorf("the data is %s", up.Data)
	}
}

// wantVerdict checks why web of an agent cannot be ordered, empty if it can.
func (w *world) wantVerdict(id, part string, force bool) {
	w.t.Helper()
	o := order("2.5.0", id)
	o.Component, o.Force = "web", force
	got, err := previewed(w.t.Context(), w.service.EachVerdict, o)
	w.must(err)
	if len(got) != 1 || (got[0].Err == nil) != (part == "") || part != "" && !strings.Contains(got[0].Err.Error(), part) {
		w.t.Errorf("with force %v the verdict is %v, want %q", force, got, part)
	}
}

// An order has no files of its own, and would put those of the package in their place.
func TestComponentOrderKeepsRenderedConfiguration(t *testing.T) {
	w := newComponentWorld(t, "a")
	w.wantVerdict("a", "", false)
	w.change("a", func(a *fleet.Agent) {
		a.Components = json.RawMessage(strings.Replace(string(a.Components), `"version":"2.4.0"`, `"version":"2.4.0","rendered_sha256":"ab"`, 1))
	})
	w.wantVerdict("a", "make a rollout from an upgrade manifest (`muster rollouts create --component web --profile PROFILE --upgrade-id ID`), or order it with force", false)
	w.wantVerdict("a", "", true)
}

func TestComponentsOfManagedPoliciesAreOrderedWithForceOnly(t *testing.T) {
	w := newComponentWorld(t, "a")
	policy := w.agent("a").PolicyID
	w.must(w.store.Policies().Create(t.Context(), fleet.Policy{ID: policy, Name: "hosted", Managed: true}))
	w.wantVerdict("a", "Cannot upgrade agent a in hosted agent policy "+policy+": it is managed (is_managed)", false)
	w.wantVerdict("a", "", true)
}

// Every way to a host is closed to another version than the one in force, except lockstep.
func TestOtherVersionThanTheOneInForceIsRefused(t *testing.T) {
	w := newComponentWorld(t, "a")
	policy := fleet.Policy{ID: w.agent("a").PolicyID, Name: "Web", Components: []agentapi.PolicyComponent{{
		Name: "web", Runtime: "systemd", Lockstep: true, InForce: &agentapi.ComponentInForce{Version: "2.4.0"},
	}}}
	w.must(w.store.Policies().Create(t.Context(), policy))
	const refusal = "web 2.4.0 is in force for the policy, whose hosts must not run mixed versions: to bring all of them to 2.5.0, make a rollout in lockstep (strategy: {kind: lockstep})"
	w.wantVerdict("a", refusal, false)
	w.wantVerdict("a", refusal, true)
	o := offer(w, "r-g1-1", "2.5.0", "a")
	o.Component = &agentapi.ComponentData{Name: "web", Runtime: "systemd"}
	if refused := w.offer(o); refused["a"] == nil || !strings.Contains(refused["a"].Error(), refusal) {
		t.Errorf("the offer is refused with %v", refused)
	}
	// A rollout in lockstep needs it on the hosts.
	w.change("a", func(a *fleet.Agent) { a.StagedVersions = []string{} })
	w.must(w.service.EachVerdict(t.Context(), action.UpgradeOrder{Stages: true, Component: "web", UpgradeRequest: order("2.5.0").UpgradeRequest, AgentIDs: []string{"a"}}, func(v action.Verdict) {
		if v.Err != nil {
			t.Errorf("the verdict of a stage is %+v", v)
		}
	}))
	back := order("2.3.0", "a")
	back.Component, back.Rollback = "web", true
	got, err := previewed(t.Context(), w.service.EachVerdict, back)
	w.must(err)
	if len(got) != 1 || got[0].Err == nil || !strings.Contains(got[0].Err.Error(), "in force") {
		t.Errorf("the verdict of a rollback is %+v", got)
	}

	change := func(f agentapi.ComponentInForce) {
		t.Helper()
		p, err := w.store.Policies().Get(t.Context(), policy.ID)
		w.must(err)
		p.Components[0].InForce = &f
		storetest.Update(w.t, w.store.Policies(), p)
	}
	change(agentapi.ComponentInForce{Version: "2.4.0", Changing: true})
	w.wantVerdict("a", "a rollout in lockstep changes component web", true)
	o.ID, o.Component.Lockstep = "r-g1-2", &agentapi.LockstepData{Until: agentapi.LockstepDrain}
	if refused := w.offer(o); len(refused) != 0 {
		t.Errorf("the offer of a rollout in lockstep is refused with %v", refused)
	}
	w.must(w.service.Withdraw(t.Context(), action.Withdrawal{ID: action.WithdrawalID(o.ID, []string{"a"}), ActionID: o.ID, AgentIDs: []string{"a"}, Actor: "kim"}))
	change(agentapi.ComponentInForce{Version: "2.5.0"})
	w.wantVerdict("a", "", false)
}
