package checkin_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/agents/policy"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/store/storetest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// policies lets the world deliver policies, of which it has default and other.
type policies struct {
	*world
	feed    *policy.Feed
	renders int
}

func newPolicies(t *testing.T) *policies {
	t.Helper()
	w := &policies{world: newWorld(t)}
	for _, id := range []string{"default", "other"} {
		w.must(w.store.Policies().Create(t.Context(), fleet.Policy{ID: id, Name: id, Namespace: "default", PolicyRev: 1}))
	}
	feed, err := policy.NewFeed(t.Context(), w.store.Policies(), w.parker.Parked, w.parker.Wake, &storehealth.Monitor{}, slog.New(slog.DiscardHandler))
	w.must(err)
	w.feed = feed
	w.service.Policies = &policy.Changes{Feed: feed, Render: func(ctx context.Context, id string) (policy.Rendered, error) {
		w.renders++
		p, err := w.store.Policies().Get(ctx, id)
		return policy.Rendered{ID: id, Revision: p.PolicyRev, Body: json.RawMessage(`{"id":"` + id + `","inputs":[]}`)}, err
	}}
	ctx, stop := context.WithCancel(context.Background())
	fed := make(chan struct{})
	go func() { defer close(fed); feed.Run(ctx) }()
	t.Cleanup(func() { stop(); <-fed })
	return w
}

// change raises the revision of a policy, and waits until the feed knows it.
func (w *policies) change(id string) {
	w.t.Helper()
	p, err := w.store.Policies().Get(w.t.Context(), id)
	w.must(err)
	p.PolicyRev++
	storetest.Update(w.t, w.store.Policies(), p)
	w.feed.Signal()
	w.eventually(func() error {
		if got := w.feed.Newest(id); got != p.PolicyRev {
			return fleet.Errorf(fleet.Internal, "revision %d of %s is known, want %d", got, id, p.PolicyRev)
		}
		return nil
	})
}

func (w *policies) ack(actionID, errText string) {
	w.t.Helper()
	items := w.actions.Ack(w.t.Context(), w.agent(), []agentapi.AckEvent{{ActionID: actionID, AgentID: agentID, Error: errText}})
	if items[0].Status != 200 {
		w.t.Fatalf("the acknowledgement of %s is answered %+v", actionID, items[0])
	}
}

// Elastic's agents before 9 do not say which revision they have, so their acknowledgement
// does.
func TestAgentWithoutPolicyReceivesItOnce(t *testing.T) {
	w := newPolicies(t)
	got := w.checkin(agentapi.CheckinRequest{}).delivers("policy:default:1")
	a := got.Actions[0]
	if a.Type != agentapi.ActionPolicyChange || string(a.Data) != `{"policy":{"id":"default","inputs":[]}}` || got.AckToken != "" {
		t.Errorf("the answer is %+v with data %s", got, a.Data)
	}
	w.ack("policy:default:1", "")
	if rev := w.agent().PolicyRev; rev != 1 {
		t.Errorf("the document has revision %d", rev)
	}
	w.checkin(agentapi.CheckinRequest{}).parked().leave()
	if w.renders != 1 {
		t.Errorf("the policy was rendered %d times", w.renders)
	}
}

func TestParkedAgentReceivesNewRevision(t *testing.T) {
	w := newPolicies(t)
	w.ack("policy:default:1", "")
	p := w.checkin(agentapi.CheckinRequest{}).parked()
	w.change("other")
	p.parked()
	w.change("default")
	p.delivers("policy:default:2")
	w.change("default")
	w.ack("policy:default:2", "") // it is already behind again
	w.checkin(agentapi.CheckinRequest{}).delivers("policy:default:3")
	w.ack("policy:default:3", "")
	w.ack("policy:default:2", "") // late
	w.ack("policy:other:9", "")   // of another policy
	if rev := w.agent().PolicyRev; rev != 3 {
		t.Errorf("the document has revision %d", rev)
	}
	w.checkin(agentapi.CheckinRequest{}).parked().leave()
}

func TestReassignedAgentReceivesOtherPolicy(t *testing.T) {
	w := newPolicies(t)
	w.ack("policy:default:1", "")
	has := agentapi.CheckinRequest{AgentPolicyID: "default", PolicyRevisionIdx: 1}
	p := w.checkin(has).parked()
	a := w.agent()
	a.PolicyID, a.PolicyRev = "other", 0
	_, err := w.store.Agents().Update(t.Context(), a)
	w.must(err)
	_, err = w.store.Actions().Create(t.Context(), fleet.Action{ID: "reassign", Type: agentapi.ActionPolicyReassign, Agents: []string{agentID}, Data: json.RawMessage(`{"policy_id":"other"}`)})
	w.must(err)
	w.world.feed.Signal()
	has.AckToken = p.delivers("reassign").AckToken
	w.checkin(has).delivers("policy:other:1")
	w.ack("policy:other:1", "")
	has.AgentPolicyID = "other"
	w.checkin(has).parked().leave()
	if got := w.agent(); got.PolicyID != "other" || got.PolicyRev != 1 {
		t.Errorf("the agent has revision %d of %s", got.PolicyRev, got.PolicyID)
	}
}

// A host that was rolled back has the policy of its earlier state.
func TestAgentThatLostRevisionReceivesItAgain(t *testing.T) {
	w := newPolicies(t)
	w.change("default")
	w.ack("policy:default:2", "")
	w.checkin(agentapi.CheckinRequest{AgentPolicyID: "default", PolicyRevisionIdx: 1}).delivers("policy:default:2")
	if rev := w.agent().PolicyRev; rev != 1 {
		t.Errorf("the document has revision %d", rev)
	}
	w.checkin(agentapi.CheckinRequest{AgentPolicyID: "default", PolicyRevisionIdx: 2}).parked().leave()
	if rev := w.agent().PolicyRev; rev != 2 {
		t.Errorf("the document has revision %d", rev)
	}
}

func TestActionsPrecedePolicy(t *testing.T) {
	w := newPolicies(t)
	act := w.upgrade()
	w.fed(1)
	token := w.checkin(agentapi.CheckinRequest{}).delivers(act.ID).AckToken
	w.checkin(agentapi.CheckinRequest{AckToken: token}).delivers("policy:default:1")
}

// An agent that cannot apply its policy checks in at once, and must not get it in a loop.
// A new revision is sent at once all the same.
func TestPolicyThatFailsIsSentRarely(t *testing.T) {
	w := newPolicies(t)
	now := time.Now().UTC()
	w.service.Now = func() time.Time { return now }
	// due reports whether the next check-in would be answered with the policy.
	due := func(revision int64) bool {
		wait := []*checkin.Wait{{AgentID: agentID, Policy: fleet.PolicyAt{ID: "default", Revision: revision}}}
		return w.service.PendingActions(t.Context(), wait)[0].Answer != nil
	}
	sent := 0
	for due(0) && sent < 10 {
		w.ack("policy:default:1", "it has no sense")
		sent++
	}
	if sent != 4 {
		t.Fatalf("it was sent %d times in a row, want 4", sent)
	}
	if rev := w.agent().PolicyRev; rev != 0 {
		t.Errorf("the document has revision %d", rev)
	}
	failures := 0
	for _, e := range w.events(0) {
		if e.Type == fleet.EventAgentPolicy && e.Subject == agentID && strings.Contains(string(e.Data), "it has no sense") {
			failures++
		}
	}
	if failures != sent {
		t.Errorf("%d failures are on the stream, want %d", failures, sent)
	}
	for _, pause := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
		if now = now.Add(pause - time.Second); due(0) {
			t.Errorf("it is sent again before %s", pause)
		}
		if now = now.Add(time.Second); !due(0) {
			t.Errorf("it is not sent again after %s", pause)
		}
	}
	p := w.checkin(agentapi.CheckinRequest{}).parked()
	w.change("default")
	p.delivers("policy:default:2")
}

func TestPolicyIsNotSentWhileStoreIsAway(t *testing.T) {
	w := newPolicies(t)
	w.service.Policies = &policy.Changes{Feed: w.feed, Render: func(context.Context, string) (policy.Rendered, error) {
		return policy.Rendered{}, fleet.Errorf(fleet.Unavailable, "the store is away")
	}}
	waits := []*checkin.Wait{{AgentID: agentID, Policy: fleet.PolicyAt{ID: "default"}}, {AgentID: agentID, Policy: fleet.PolicyAt{ID: "default", Revision: 1}}}
	got := w.service.PendingActions(t.Context(), waits)
	if got[0].Err == nil || got[0].Answer != nil || got[1] != (checkin.Pending{}) {
		t.Errorf("the checks found %+v", got)
	}
}
