package action_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestReconcileUpgrades(t *testing.T) {
	details := func(a *fleet.Agent, up fleet.Action, s agentapi.UpgradeState) {
		a.UpgradeDetails = &agentapi.UpgradeDetails{ActionID: up.ID, TargetVersion: "1.1.0", State: s}
	}
	for _, c := range []struct {
		name   string
		happen func(w *world, up fleet.Action)
		after  time.Duration
		status fleet.UpgradeStatus
		over   bool
		result string // of the action; "" with over: none
	}{
		{name: "the agent is away, and may come", after: 24 * time.Hour, status: fleet.UpgradeStarted},
		{name: "the action expired before it began", after: fleet.DefaultExpiration, over: true, status: fleet.UpgradeFailed, result: "expired"},
		{
			name: "begun before the action expired", after: 2 * fleet.DefaultExpiration, status: fleet.UpgradeStarted,
			happen: func(w *world, up fleet.Action) {
				w.change("a", func(a *fleet.Agent) { details(a, up, agentapi.UpgradeDownloading) })
				w.must(w.store.Agents().Touch(w.t.Context(), []fleet.Touch{{AgentID: "a", At: w.now.Add(2*fleet.DefaultExpiration - fleet.SilentGrace), Status: "online"}}))
			},
		},
		{
			name: "begun before the action expired, and away", after: 2 * fleet.DefaultExpiration, over: true, status: fleet.UpgradeFailed, result: "has been silent since",
			happen: func(w *world, up fleet.Action) {
				w.change("a", func(a *fleet.Agent) { details(a, up, agentapi.UpgradeDownloading) })
			},
		},
		{
			name: "acknowledged, away, and expired", after: 2 * fleet.DefaultExpiration, over: true, status: fleet.UpgradeFailed, result: "has been silent since",
			happen: func(w *world, up fleet.Action) { w.ack("a", agentapi.AckEvent{ActionID: up.ID}) },
		},
		{
			name: "begun on the host itself", after: 2 * fleet.DefaultExpiration, status: fleet.UpgradeStarted,
			happen: func(w *world, up fleet.Action) {
				w.change("a", func(a *fleet.Agent) { a.UpgradeActionID = "" })
			},
		},
		{
			name: "acknowledged with an error that did not reach the document", over: true, status: fleet.UpgradeFailed, result: "the disk is full",
			happen: func(w *world, up fleet.Action) {
				w.store.report = away
				w.ack("a", agentapi.AckEvent{ActionID: up.ID, Error: "the disk is full"})
				w.store.report = nil
			},
		},
		{
			name: "acknowledged a moment ago", after: fleet.AckGrace - time.Minute, status: fleet.UpgradeStarted,
			happen: func(w *world, up fleet.Action) { w.ack("a", agentapi.AckEvent{ActionID: up.ID}) },
		},
		{
			name: "acknowledged, then away", after: time.Hour, status: fleet.UpgradeStarted,
			happen: func(w *world, up fleet.Action) { w.ack("a", agentapi.AckEvent{ActionID: up.ID}) },
		},
		{
			name: "acknowledged, and the old version goes on", after: time.Hour, over: true, status: fleet.UpgradeFailed, result: "still runs 1.0.0",
			happen: func(w *world, up fleet.Action) {
				w.ack("a", agentapi.AckEvent{ActionID: up.ID})
				w.must(w.store.Agents().Touch(w.t.Context(), []fleet.Touch{{AgentID: "a", At: w.now.Add(30 * time.Minute), Status: "online"}}))
			},
		},
		{
			name: "cancelled before it began, by a server that died half-way", over: true, status: fleet.UpgradeNone,
			happen: func(w *world, up fleet.Action) { w.must(w.store.Actions().Cancel(w.t.Context(), up.ID, w.now)) },
		},
		{
			name: "cancelled after it began", after: time.Hour, status: fleet.UpgradeStarted,
			happen: func(w *world, up fleet.Action) {
				w.change("a", func(a *fleet.Agent) { details(a, up, agentapi.UpgradeReplacing) })
				w.must(w.store.Actions().Cancel(w.t.Context(), up.ID, w.now))
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, "a")
			up := w.upgrade("a")
			if c.happen != nil {
				c.happen(w, up)
			}
			w.now = w.now.Add(c.after)
			n := len(w.eventTypes(0))
			for range 2 { // a second server reconciles, too
				w.must(w.service.ReconcileUpgradesOnce(t.Context()))
			}
			a := w.agent("a")
			if a.UpgradeStatus != c.status || a.Upgrading() == c.over {
				t.Errorf("status is %q, upgrading %t; details %+v", a.UpgradeStatus, a.Upgrading(), a.UpgradeDetails)
			}
			r := w.result(up, "a")
			if c.over && (c.result == "") != (r == nil) || c.result != "" && !strings.Contains(r.Error, c.result) {
				t.Errorf("result is %+v, want %q", r, c.result)
			}
			if told := slices.Contains(w.eventTypes(n), fleet.EventAgentUpgrade); told != c.over {
				t.Errorf("events are %v", w.eventTypes(n))
			}
		})
	}
}

// The server dies before it writes the end of an upgrade.
func TestReconcileUpgradesIsRepeatedAfterACrash(t *testing.T) {
	w := newWorld(t, "a")
	up := w.upgrade("a")
	w.now = w.now.Add(fleet.DefaultExpiration)
	w.store.report = away
	w.wantKind(w.service.ReconcileUpgradesOnce(t.Context()), fleet.Unavailable, "away")
	w.store.report = nil
	w.must(w.service.ReconcileUpgradesOnce(t.Context()))
	if r := w.result(up, "a"); r == nil || w.upgrading("a") {
		t.Errorf("result is %v, upgrading %t", r, w.upgrading("a"))
	}
	if s := w.status(up); s.State != fleet.ActionFailed {
		t.Errorf("the action is %s", s.State)
	}
}

// The next upgrade begins while the end of one is being written. It must not end too, or
// it would never be delivered.
func TestReconcileUpgradesDoesNotEndTheNextUpgrade(t *testing.T) {
	w := newWorld(t, "a")
	up := w.upgrade("a")
	w.store.report = away
	w.ack("a", agentapi.AckEvent{ActionID: up.ID, Error: "the disk is full"})
	var next fleet.Action
	w.store.report = func() error {
		w.store.report = nil
		o := order("1.2.0", "a")
		o.Force = true
		var err error
		next, err = w.service.Upgrade(t.Context(), o)
		return err
	}
	w.must(w.service.ReconcileUpgradesOnce(t.Context()))
	if a := w.agent("a"); !a.Upgrading() || a.UpgradeActionID != next.ID {
		t.Errorf("after the next upgrade the agent is %+v", a)
	}
	if r := w.result(next, "a"); r != nil {
		t.Errorf("the next upgrade has the result %+v", r)
	}
}

func TestReconcileUpgradesRunsUntilItsContextEnds(t *testing.T) {
	w := newWorld(t, "a")
	w.upgrade("a")
	w.now = w.now.Add(fleet.DefaultExpiration)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.service.ReconcileUpgrades(ctx) }()
	for deadline := time.Now().Add(20 * time.Second); w.upgrading("a"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the first round has not ended it within 20 s")
		}
	}
	stop()
	<-done
}
