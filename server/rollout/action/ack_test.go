package action_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func (w *world) ack(id string, events ...agentapi.AckEvent) []agentapi.AckItem {
	w.t.Helper()
	items := w.service.Ack(w.t.Context(), w.agent(id), events)
	if len(items) != len(events) {
		w.t.Fatalf("%d answers to %d events", len(items), len(events))
	}
	return items
}

func (w *world) wantItem(item agentapi.AckItem, status int, text string) {
	w.t.Helper()
	if item.Status != status || !strings.Contains(item.Message, text) {
		w.t.Errorf("answer is %+v, want %d with %q", item, status, text)
	}
}

func TestAckDoesNotCompleteAnUpgrade(t *testing.T) {
	w := newWorld(t, "a")
	up := w.upgrade("a")
	w.wantItem(w.ack("a", agentapi.AckEvent{ActionID: up.ID, AgentID: "a", Message: "on it"})[0], http.StatusOK, "OK")
	if r := w.result(up, "a"); r == nil || r.Error != "" || r.Message != "on it" || r.Hostname != "host-a" {
		t.Errorf("result is %+v", r)
	}
	if !w.upgrading("a") {
		t.Error("the old version runs, and the upgrade is taken for done")
	}
	n := len(w.eventTypes(0))
	w.wantItem(w.ack("a", agentapi.AckEvent{ActionID: up.ID, AgentID: "a", Message: "once more"})[0], http.StatusOK, "OK")
	if r := w.result(up, "a"); r.Message != "on it" {
		t.Errorf("a repeated ack has replaced the result: %+v", r)
	}
	if types := w.eventTypes(n); len(types) != 0 {
		t.Errorf("a repeated ack has made events: %v", types)
	}
	w.change("a", func(a *fleet.Agent) { a.Version = "1.1.0" })
	w.ack("a", agentapi.AckEvent{ActionID: up.ID})
	if a := w.agent("a"); a.Upgrading() || a.UpgradedAt == nil {
		t.Error("the target runs and has acknowledged, and it is not done")
	}
}

func TestErrorResultReplacesSuccess(t *testing.T) {
	w := newWorld(t, "a")
	up := w.upgrade("a")
	w.ack("a", agentapi.AckEvent{ActionID: up.ID})
	n := len(w.eventTypes(0))
	w.ack("a", agentapi.AckEvent{ActionID: up.ID, Error: "the disk is full"})
	if r := w.result(up, "a"); r.Error != "the disk is full" {
		t.Errorf("result is %+v", r)
	}
	a := w.agent("a")
	if a.Upgrading() || a.UpgradeStatus != fleet.UpgradeFailed || a.UpgradeDetails.Metadata.ErrorMsg != "the disk is full" {
		t.Errorf("agent is %q with %+v", a.UpgradeStatus, a.UpgradeDetails)
	}
	types := w.eventTypes(n)
	slices.Sort(types)
	if !slices.Equal(types, []string{fleet.EventActionResult, fleet.EventAgentUpgrade}) {
		t.Errorf("events are %v", types)
	}
	w.ack("a", agentapi.AckEvent{ActionID: up.ID}) // the success arrives late
	if r := w.result(up, "a"); r.Error != "the disk is full" {
		t.Errorf("a late success has replaced the error: %+v", r)
	}
	if s := w.status(up); s.State != fleet.ActionFailed || s.Counts != (fleet.ResultCounts{Failed: 1, Last: s.Counts.Last}) {
		t.Errorf("status is %s with %+v", s.State, s.Counts)
	}
}

func TestAckOfAFailureWithRetryIsNoResult(t *testing.T) {
	w := newWorld(t, "a")
	up := w.upgrade("a")
	w.wantItem(w.ack("a", agentapi.AckEvent{ActionID: up.ID, Error: "no route", Payload: &agentapi.AckPayload{Retry: true, RetryAttempt: 1}})[0], http.StatusOK, "")
	if r := w.result(up, "a"); r != nil || !w.upgrading("a") {
		t.Errorf("result is %+v, upgrading %t", r, w.upgrading("a"))
	}
	w.ack("a", agentapi.AckEvent{ActionID: up.ID, Error: "no route", Payload: &agentapi.AckPayload{RetryAttempt: 5}})
	if r := w.result(up, "a"); r == nil || w.upgrading("a") {
		t.Errorf("after the last attempt the result is %+v", r)
	}
}

func TestAckAnswersEachEvent(t *testing.T) {
	w := newWorld(t, "a", "b")
	up, other := w.upgrade("a"), w.upgrade("b")
	items := w.ack("a",
		agentapi.AckEvent{ActionID: up.ID, AgentID: "b"},
		agentapi.AckEvent{},
		agentapi.AckEvent{ActionID: "unknown"},
		agentapi.AckEvent{ActionID: other.ID},
		agentapi.AckEvent{ActionID: "policy:default:3"},
		agentapi.AckEvent{ActionID: up.ID},
	)
	w.wantItem(items[0], http.StatusBadRequest, "events.agent_id")
	w.wantItem(items[1], http.StatusBadRequest, "events.action_id")
	w.wantItem(items[2], http.StatusNotFound, "unknown")
	w.wantItem(items[3], http.StatusNotFound, "not for agent a")
	w.wantItem(items[4], http.StatusOK, "")
	w.wantItem(items[5], http.StatusOK, "")
	if s := w.status(other); s.State != fleet.ActionInProgress || s.Counts.Acked != 0 {
		t.Errorf("another agent's ack counts: %s, %+v", s.State, s.Counts)
	}
}

// The server dies between the result and the document. The agent has no answer
// and acknowledges again.
func TestRepeatedAckCompletesAnInterruptedOne(t *testing.T) {
	w := newWorld(t, "a")
	up := w.upgrade("a")
	w.store.report = away
	e := agentapi.AckEvent{ActionID: up.ID, Error: "the disk is full"}
	w.wantItem(w.ack("a", e)[0], http.StatusServiceUnavailable, "away")
	if r := w.result(up, "a"); r == nil || !w.upgrading("a") {
		t.Fatalf("result is %v, upgrading %t", r, w.upgrading("a"))
	}
	w.store.report = nil
	w.wantItem(w.ack("a", e)[0], http.StatusOK, "OK")
	if a := w.agent("a"); a.Upgrading() || a.UpgradeStatus != fleet.UpgradeFailed {
		t.Errorf("after the second ack: %q", a.UpgradeStatus)
	}
}
