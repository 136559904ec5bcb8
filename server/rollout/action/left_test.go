package action_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// kinds are orders of every type that waits for agents, by the type.
var kinds = map[string]func(w *world, id string) fleet.Action{
	"UPGRADE":  func(w *world, id string) fleet.Action { return w.upgrade(id) },
	"UNENROLL": func(w *world, id string) fleet.Action { return w.unenroll(leave(id)) },
	"UPGRADE of a component": func(w *world, id string) fleet.Action {
		w.runs(id, "2.4.0", nil)
		return w.upgradeComponent("web", "2.5.0", id)
	},
	"STAGE": func(w *world, id string) fleet.Action {
		w.change(id, func(a *fleet.Agent) { a.StagedVersions = []string{} })
		a, err := w.service.Upgrade(w.t.Context(), action.UpgradeOrder{Stages: true, UpgradeRequest: fleet.UpgradeRequest{Version: "1.1.0"}, AgentIDs: []string{id}, Actor: "ann"})
		w.must(err)
		return a
	},
	"SETTINGS":        other(agentapi.ActionSettings, `{"log_level":"debug"}`),
	"POLICY_REASSIGN": other(agentapi.ActionPolicyReassign, `{"policy_id":"edge"}`),
	"REQUEST_DIAGNOSTICS": func(w *world, id string) fleet.Action {
		a, err := w.service.RequestDiagnostics(w.t.Context(), action.DiagnosticsOrder{AgentIDs: []string{id}, Actor: "ann"})
		w.must(err)
		return a
	},
	"INPUT_ACTION": other(agentapi.ActionInput, `{"q":"1"}`),
	// Only agents of some versions, or a rollout, get these.
	"MIGRATE":                existing(agentapi.ActionMigrate),
	"PRIVILEGE_LEVEL_CHANGE": existing(agentapi.ActionPrivilegeLevelChange),
	"PROCEED":                existing(agentapi.ActionProceed),
}

func existing(kind agentapi.ActionType) func(w *world, id string) fleet.Action {
	return func(w *world, id string) fleet.Action {
		return w.stored(fleet.Action{ID: fleet.NewID(), Type: kind, Agents: []string{id}, Actioned: 1, Data: event.Data(map[string]string{})})
	}
}

func other(kind agentapi.ActionType, data string) func(w *world, id string) fleet.Action {
	return func(w *world, id string) fleet.Action {
		o := action.Order{Type: kind, Data: json.RawMessage(data), AgentIDs: []string{id}, Actor: "ann"}
		if kind == agentapi.ActionInput {
			o.InputType = "osquery"
		}
		a, err := w.service.Create(w.t.Context(), o)
		w.must(err)
		return a
	}
}

func (w *world) stored(a fleet.Action) fleet.Action {
	w.t.Helper()
	a.CreatedAt, a.Expiration = w.now, new(w.now.Add(fleet.DefaultExpiration))
	seq, err := w.store.Actions().Create(w.t.Context(), a)
	w.must(err)
	a.Seq = seq
	return a
}

// ways are all ways to leave, and what the results of stopped orders then say. The last one is
// what a server that died half-way has left behind.
var ways = map[string]struct {
	leave func(w *world, id string)
	says  string
}{
	"acknowledged": {func(w *world, id string) {
		act := w.unenroll(leave(id))
		w.service.Ack(w.t.Context(), w.agent(id), []agentapi.AckEvent{{ActionID: act.ID}})
	}, "is unenrolled"},
	"revoked": {func(w *world, id string) { w.unenroll(revoke(id)) }, "is unenrolled"},
	"forced": {func(w *world, id string) {
		o := revoke(id)
		o.Force = true
		w.unenroll(o)
	}, "is unenrolled"},
	"migrated": {func(w *world, id string) {
		act := existing(agentapi.ActionMigrate)(w, id)
		w.service.Ack(w.t.Context(), w.agent(id), []agentapi.AckEvent{{ActionID: act.ID}})
	}, "is unenrolled"},
	"uninstalled": {func(w *world, id string) {
		w.change(id, func(a *fleet.Agent) { a.AuditUnenrolledReason, a.AuditUnenrolledTime = "uninstall", &w.now })
	}, "was uninstalled on its host"},
	"orphaned": {func(w *world, id string) {
		w.change(id, func(a *fleet.Agent) { a.AuditUnenrolledReason, a.AuditUnenrolledTime = "orphaned", &w.now })
	}, "is gone from its host"},
	"by a server that died": {func(w *world, id string) {
		w.change(id, func(a *fleet.Agent) { a.Unenroll("manual", w.now) })
	}, "is unenrolled"},
}

// Whichever way an agent leaves, it ends its part of every open order, once.
func TestAgentThatLeavesEndsItsPartOfEveryOpenOrder(t *testing.T) {
	for kind, make := range kinds {
		for way, by := range ways {
			t.Run(kind+"/"+way, func(t *testing.T) {
				w := newComponentWorld(t, "a", "b")
				act := make(w, "a")
				stays := w.upgrade("b")
				if act.Type == agentapi.ActionMigrate && way == "migrated" {
					w.service.Ack(t.Context(), w.agent("a"), []agentapi.AckEvent{{ActionID: act.ID}})
				} else {
					by.leave(w, "a")
				}
				w.now = w.now.Add(time.Second)
				w.must(w.service.EndOrdersOfLeaversOnce(t.Context()))

				r := w.result(act, "a")
				switch {
				case r == nil:
					t.Fatalf("the %s is still open", act.Type)
				case act.Type == agentapi.ActionUnenroll && r.Error != "",
					act.Type != agentapi.ActionUnenroll && r.Error == "" && way != "migrated":
					t.Errorf("the result is %+v", r)
				case r.Error != "" && (!r.Withdrawn() || !strings.Contains(r.Error, by.says)):
					t.Errorf("the result does not say why: %+v", r)
				}
				if s := w.status(act); act.Type != agentapi.ActionProceed && (s.State == fleet.ActionInProgress || s.Outcome() == fleet.ActionInProgress) {
					t.Errorf("the action is %s, its outcome %s", s.State, s.Outcome())
				}
				a := w.agent("a")
				if a.Upgrading() || len(a.ComponentActions) > 0 || a.ComponentsSince != nil {
					t.Errorf("the document still has an upgrade under way: %+v", a)
				}
				if act.Type == agentapi.ActionUnenroll && (a.Active || a.AccessKeyHash != "") {
					t.Error("it was asked to leave, has left, and is not unenrolled")
				}
				hosts, _, err := w.service.Hosts(t.Context(), act.ID, action.HostQuery{Limit: 9})
				w.must(err)
				if act.Type != agentapi.ActionUnenroll && r.Error != "" && (hosts[0].State != action.HostStopped || !strings.Contains(hosts[0].Text, by.says)) {
					t.Errorf("the host's part is %+v", hosts[0])
				}
				if r := w.result(stays, "b"); r != nil || !w.upgrading("b") {
					t.Errorf("another host's upgrade ended with %+v", r)
				}

				// Later rounds, also of another server, change nothing but the mark.
				events := len(w.eventTypes(0))
				for range 2 {
					for _, s := range []*action.Service{w.service, w.serve(w.store)} {
						w.now = w.now.Add(fleet.CreateGrace)
						w.must(s.EndOrdersOfLeaversOnce(t.Context()))
					}
				}
				w.must(w.service.EndOrdersOfLeaversOnce(t.Context()))
				if more := w.eventTypes(events); len(more) > 0 {
					t.Errorf("later rounds write events: %v", more)
				}
				if left, err := w.store.Agents().Leavers(t.Context(), "", 9); err != nil || len(left) > 0 {
					t.Errorf("they never end: %d, %v", len(left), err)
				}
			})
		}
	}
}

// Orders for an agent that has left are refused with the reason, also with force.
func TestOrdersForAgentThatHasLeftAreRefused(t *testing.T) {
	causes := map[string]fleet.Cause{"was uninstalled on its host": fleet.CauseUninstalled, "is gone from its host": fleet.CauseUninstalled, "is unenrolled": fleet.CauseUnenrolled}
	for way, by := range ways {
		t.Run(way, func(t *testing.T) {
			w := newComponentWorld(t, "a")
			w.change("a", func(a *fleet.Agent) { a.StagedVersions = []string{} })
			by.leave(w, "a")
			refused := func(what string, err error) {
				t.Helper()
				var e *fleet.Error
				if err == nil || !strings.Contains(err.Error(), by.says) {
					t.Errorf("%s: error is %v", what, err)
				} else if !errors.As(err, &e) || e.Cause != causes[by.says] {
					t.Errorf("%s: %v has not the cause %s", what, err, causes[by.says])
				}
			}
			for _, component := range []string{"", "web"} {
				o := order(map[string]string{"": "1.1.0", "web": "2.5.0"}[component], "a")
				o.Component, o.Single, o.Force = component, true, true
				_, err := w.service.Upgrade(t.Context(), o)
				refused("upgrade of "+component, err)
			}
			a := w.agent("a")
			_, err := a.CheckRollback(w.now)
			refused("rollback", err)
			refused("stage", a.CheckStage("", "1.1.0"))
			_, err = w.service.RequestDiagnostics(t.Context(), action.DiagnosticsOrder{AgentIDs: []string{"a"}, Single: true, Actor: "ann"})
			refused("diagnostics", err)
			_, err = w.service.Create(t.Context(), action.Order{Type: agentapi.ActionSettings, Data: json.RawMessage(`{"log_level":"debug"}`), AgentIDs: []string{"a"}, Single: true, Actor: "ann"})
			refused("settings", err)
			o := leave("a")
			o.Single = true
			if _, err = w.service.Unenroll(t.Context(), o); err == nil {
				t.Error("it is asked to leave")
			}
		})
	}
}

// A host that was uninstalled can be revoked, which is what is left to do with it.
func TestUninstalledHostCanBeRevoked(t *testing.T) {
	w := newWorld(t, "a")
	ways["uninstalled"].leave(w, "a")
	if _, state := w.counts(w.unenroll(revoke("a"))); state != fleet.ActionComplete {
		t.Errorf("the revocation is %s", state)
	}
	a := w.agent("a")
	for _, c := range a.Commands(fleet.Blocks{}, w.now) {
		if c.Name == "unenroll" && c.Allowed {
			t.Error("once it is unenrolled it can be unenrolled again")
		}
	}
}

// An order that was accepted just before the agent left gets its action only after the first round.
func TestActionThatIsCreatedAfterItsAgentHasLeftEnds(t *testing.T) {
	w := newWorld(t, "a")
	w.unenroll(revoke("a"))
	w.must(w.service.EndOrdersOfLeaversOnce(t.Context()))
	late := w.stored(fleet.Action{ID: "late", Type: agentapi.ActionSettings, Agents: []string{"a"}, Actioned: 1})
	w.now = w.now.Add(fleet.CreateGrace)
	w.must(w.service.EndOrdersOfLeaversOnce(t.Context()))
	if r := w.result(late, "a"); r == nil || !r.Withdrawn() {
		t.Errorf("the result is %+v", r)
	}
}

// A server that dies between the results and the document leaves the rest to the next round.
func TestEndOfOrdersIsRepeatedAfterACrash(t *testing.T) {
	w := newWorld(t, "a")
	up := w.upgrade("a")
	w.unenroll(revoke("a"))
	w.store.report = away
	w.wantKind(w.service.EndOrdersOfLeaversOnce(t.Context()), fleet.Unavailable, "away")
	w.store.report = nil
	w.must(w.service.EndOrdersOfLeaversOnce(t.Context()))
	if r := w.result(up, "a"); r == nil || w.upgrading("a") {
		t.Errorf("the result is %+v, upgrading %t", r, w.upgrading("a"))
	}
}

// A host that returns after its uninstallation follows new orders; what ended stays ended.
func TestHostThatReturnsMayLeaveAgain(t *testing.T) {
	w := newWorld(t, "a")
	for round := range 2 {
		up := w.upgrade("a")
		ways["uninstalled"].leave(w, "a")
		for range 3 {
			w.must(w.service.EndOrdersOfLeaversOnce(t.Context()))
			w.now = w.now.Add(fleet.CreateGrace)
		}
		if r := w.result(up, "a"); r == nil || !r.Withdrawn() {
			t.Fatalf("in round %d the result is %+v", round, r)
		}
		w.change("a", func(a *fleet.Agent) { a.Return() })
	}
}

// More leavers than one round handles are ended by the rounds that follow, while the first ones wait
// for their second time.
func TestRoundsReachAllLeavers(t *testing.T) {
	const n = 600
	w := newWorld(t)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("agent-%03d", i)
		w.enrol(ids[i], "1.0.0")
	}
	up := w.upgrade(ids...)
	w.unenroll(revoke(ids...))
	rounds := 0
	for ; rounds < 10; rounds++ {
		w.must(w.service.EndOrdersOfLeaversOnce(t.Context()))
		if c, _ := w.counts(up); c.Failed == n {
			break
		}
	}
	if c, _ := w.counts(up); c.Failed != n || rounds > 3 {
		t.Errorf("after %d rounds %d of %d have ended", rounds, c.Failed, n)
	}
}

// The upgrade that stopped has a record that says why, and no upgrade was cancelled by anybody.
func TestRecordOfAnUpgradeThatStoppedSaysWhy(t *testing.T) {
	for _, watched := range []bool{false, true} {
		w := newWorld(t, "a")
		up := w.upgrade("a")
		if watched {
			w.change("a", func(a *fleet.Agent) {
				a.ObserveUpgrade("1.1.0", &agentapi.UpgradeDetails{TargetVersion: "1.1.0", ActionID: up.ID, State: agentapi.UpgradeWatching}, w.now)
			})
		}
		w.unenroll(revoke("a"))
		w.must(w.service.EndOrdersOfLeaversOnce(t.Context()))
		a := w.agent("a")
		records := a.LastUpgrades(w.now)
		i := slices.IndexFunc(records, func(r fleet.HistoryRecord) bool { return r.ActionID == up.ID })
		if i < 0 || records[i].State != fleet.ProgressNone || records[i].EndedAt == nil || !strings.Contains(records[i].Text, "is unenrolled") {
			t.Errorf("watched %t: records are %+v", watched, records)
		}
		if s := w.status(up); s.Outcome() == fleet.ActionInProgress {
			t.Errorf("watched %t: the outcome is %s", watched, s.Outcome())
		}
	}
}
