package action_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func leave(ids ...string) action.UnenrollOrder {
	return action.UnenrollOrder{AgentIDs: ids, Actor: "ann"}
}

func revoke(ids ...string) action.UnenrollOrder {
	return action.UnenrollOrder{AgentIDs: ids, Revoke: true, Actor: "ann"}
}

func (w *world) unenroll(o action.UnenrollOrder) fleet.Action {
	w.t.Helper()
	a, err := w.service.Unenroll(w.t.Context(), o)
	w.must(err)
	return a
}

func (w *world) pending(id string) []fleet.Action {
	w.t.Helper()
	list, err := w.store.Actions().Pending(w.t.Context(), id, 0, w.now, 10)
	w.must(err)
	return list
}

func (w *world) counts(a fleet.Action) (fleet.ResultCounts, fleet.ActionState) {
	w.t.Helper()
	counts, err := w.store.Results().Counts(w.t.Context(), []string{a.ID})
	w.must(err)
	return counts[a.ID], a.StateAt(counts[a.ID], w.now)
}

func TestUnenrollAsksAgents(t *testing.T) {
	w := newWorld(t, "a", "b", "gone")
	w.unenroll(revoke("gone"))
	n := len(w.eventTypes(0))
	ids := []string{"a", "gone", "b", "unknown"}
	verdicts, err := previewed(t.Context(), w.service.EachUnenrollVerdict, leave(ids...))
	w.must(err)
	if w.agent("a").UnenrollmentStartedAt != nil {
		t.Error("a preview has asked it")
	}
	act := w.unenroll(leave(ids...))
	if act.Type != agentapi.ActionUnenroll || act.CreatedBy != "ann" || act.Actioned != 4 || !slices.Equal(act.Agents, []string{"a", "b"}) || act.Expiration == nil {
		t.Errorf("the action is %+v", act)
	}
	for i, id := range ids {
		v, r := verdicts[i], w.result(act, id)
		switch {
		case v.Agent.ID != id:
			t.Errorf("verdict %d is about %s", i, v.Agent.ID)
		case v.Err == nil && r != nil || v.Err != nil && (r == nil || r.Error != v.Err.Error()):
			t.Errorf("of %s the preview says %v, the result is %v", id, v.Err, r)
		}
	}
	w.wantKind(verdicts[1].Err, fleet.Invalid, "unenrolled already")
	w.wantKind(verdicts[3].Err, fleet.NotFound, "unknown")
	if types := w.eventTypes(n); !slices.Equal(types, []string{fleet.EventActionCreated, fleet.EventAgentUnenrolled, fleet.EventAgentUnenrolled}) {
		t.Errorf("events are %v", types)
	}

	a := w.agent("a")
	if !a.Active || a.UnenrollmentStartedAt == nil || a.AccessKeyHash == "" || a.Facts().StatusAt(w.now, 0) == fleet.StatusUnenrolled {
		t.Errorf("the agent that was asked is %+v", a)
	}
	if got := w.pending("a"); len(got) != 1 || got[0].ID != act.ID {
		t.Fatalf("it is handed %+v", got)
	}
	n = len(w.eventTypes(0))
	w.service.Ack(t.Context(), a, []agentapi.AckEvent{{ActionID: act.ID}})
	a = w.agent("a")
	if a.Active || a.UnenrolledReason != "unenrolled" || a.AccessKeyHash != "" || a.WatcherKeyHash != "" || a.UnenrolledAt == nil {
		t.Errorf("after it left: %+v", a)
	}
	if types := w.eventTypes(n); !slices.Contains(types, fleet.EventAgentUnenrolled) {
		t.Errorf("events are %v", types)
	}
	if c, state := w.counts(act); c.Acked != 1 || c.Failed != 2 || state != fleet.ActionInProgress {
		t.Errorf("one has answered: %+v, %s", c, state)
	}
}

func TestUnenrollWithRevokeEndsAtOnce(t *testing.T) {
	w := newWorld(t, "a", "b")
	act := w.unenroll(revoke("a", "b", "unknown"))
	for _, id := range []string{"a", "b"} {
		a := w.agent(id)
		if a.Active || a.UnenrolledReason != "revoked" || (fleet.Credential{}).Matches(a.AccessKeyHash) || a.Facts().StatusAt(w.now, 0) != fleet.StatusUnenrolled {
			t.Errorf("after its key was revoked: %+v", a)
		}
		if r := w.result(act, id); r == nil || r.Error != "" || r.Message != "its keys were revoked" || r.Hostname != "host-"+id {
			t.Errorf("its result is %+v", r)
		}
	}
	// The action is only a record and complete: it is not delivered.
	if c, state := w.counts(act); act.Type != agentapi.ActionForceUnenroll || c.Acked != 2 || c.Failed != 1 || state != fleet.ActionFailed {
		t.Errorf("the action is %s with %+v: %s", act.Type, c, state)
	}
	if _, state := w.counts(w.unenroll(revoke("a"))); state != fleet.ActionFailed { // again: nothing to do
		t.Errorf("once more it is %s", state)
	}
}

// An agent that was asked and never answered can be asked again, and revoked.
func TestUnenrollAgainCreatesAnotherAction(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.store.create = away
	_, err := w.service.Unenroll(t.Context(), leave("a")) // the server dies after the marks
	w.wantKind(err, fleet.Unavailable, "away")
	w.store.create = nil
	since := w.agent("a").UnenrollmentStartedAt
	if since == nil || len(w.pending("a")) != 0 {
		t.Fatalf("the marks are %v", since)
	}
	w.now = w.now.Add(time.Hour)
	act := w.unenroll(leave("a", "b"))
	if got := w.pending("a"); len(got) != 1 || got[0].ID != act.ID || !w.agent("a").UnenrollmentStartedAt.Equal(*since) {
		t.Errorf("it is handed %+v since %v", got, w.agent("a").UnenrollmentStartedAt)
	}
	w.unenroll(revoke("a"))
	if a := w.agent("a"); a.Active {
		t.Error("it was not put out")
	}
	// Its acknowledgement, which was on its way, changes nothing any more.
	w.service.Ack(t.Context(), w.agent("a"), []agentapi.AckEvent{{ActionID: act.ID}})
	if a := w.agent("a"); a.UnenrolledReason != "revoked" {
		t.Errorf("it left because %q", a.UnenrolledReason)
	}
}

func TestUnenrollOfRolloutAgentsNeedsForce(t *testing.T) {
	w := newWorld(t, "free", "held")
	w.service.Locks = locks(func(_ context.Context, agents []fleet.Agent) (map[string]string, error) {
		locked := map[string]string{}
		for _, a := range agents {
			if a.ID == "held" {
				locked[a.ID] = "agent held belongs to the active rollout spring"
			}
		}
		return locked, nil
	})
	for _, o := range []action.UnenrollOrder{leave("free", "held"), revoke("held")} {
		act := w.unenroll(o)
		if r := w.result(act, "held"); r == nil || !strings.Contains(r.Error, "rollout spring; or unenrol it with force") || w.agent("held").UnenrollmentStartedAt != nil || !w.agent("held").Active {
			t.Errorf("the result of the one that a rollout has is %+v", r)
		}
	}
	o := revoke("held")
	o.Force = true
	w.unenroll(o)
	if w.agent("held").Active {
		t.Error("force has not put it out")
	}
}

// An agent that leaves by itself meanwhile is not unenrolled a second time.
func TestUnenrollOfAnAgentThatLeavesMeanwhile(t *testing.T) {
	w := newWorld(t, "left", "touched")
	first := true
	w.store.updateMany = func() error {
		if first {
			first = false
			w.change("left", func(a *fleet.Agent) { a.Active, a.UnenrolledReason = false, "unenrolled" })
			w.change("touched", func(a *fleet.Agent) { a.Tags = []string{"edge"} })
		}
		return nil
	}
	act := w.unenroll(revoke("left", "touched"))
	if !slices.Equal(act.Agents, []string{"touched"}) || w.agent("left").UnenrolledReason != "unenrolled" || w.agent("touched").UnenrolledReason != "revoked" {
		t.Errorf("the action is for %v", act.Agents)
	}
	if r := w.result(act, "left"); r == nil || !strings.Contains(r.Error, "unenrolled already") {
		t.Errorf("its result is %+v", r)
	}
	if w.agent("touched").Tags[0] != "edge" {
		t.Error("what changed meanwhile is lost")
	}
}

func TestInvalidUnenrollOrdersAreRefused(t *testing.T) {
	w := newWorld(t, "a")
	for text, o := range map[string]action.UnenrollOrder{
		"is empty": leave(), "selects no agents": {Selected: true}, "names agent a twice": leave("a", "a"),
		"select them by a query": leave(make([]string, action.MaxAgents+1)...),
	} {
		_, err := w.service.Unenroll(t.Context(), o)
		w.wantKind(err, fleet.Invalid, text)
		_, err = previewed(t.Context(), w.service.EachUnenrollVerdict, o)
		w.wantKind(err, fleet.Invalid, text)
	}
}

// The event stream names the agents of small orders. Large ones have one event.
func TestUnenrollManyAgents(t *testing.T) {
	w := newWorld(t)
	ids := make([]string, 1010) // more than one page
	var enrolling sync.WaitGroup
	for first := range 50 { // writes that wait together are made together
		enrolling.Go(func() {
			for i := first; i < len(ids); i += 50 {
				ids[i] = fmt.Sprintf("agent-%04d", i)
				a := fleet.Agent{ID: ids[i], AccessKeyID: ids[i], AccessKeyHash: "hash", Active: true, PolicyID: "default", EnrolledAt: w.now, Version: "1.0.0"}
				if err := w.store.Agents().Create(t.Context(), a); err != nil {
					t.Error(err)
				}
			}
		})
	}
	enrolling.Wait()
	o := revoke(ids...)
	o.Selected = true
	act := w.unenroll(o)
	if c, state := w.counts(act); c.Acked != len(ids) || state != fleet.ActionComplete || !slices.Equal(act.Agents, ids) {
		t.Errorf("it is %s with %+v", state, c)
	}
	if types := w.eventTypes(0); !slices.Equal(types, []string{fleet.EventActionCreated, fleet.EventAgentUnenrolled}) {
		t.Errorf("events are %v", types)
	}
	if w.agent(ids[1009]).Active {
		t.Error("the last was forgotten")
	}
}
