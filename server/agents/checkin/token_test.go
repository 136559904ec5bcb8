package checkin_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func (w *world) unenroll(id string) int64 {
	w.t.Helper()
	seq, err := w.store.Actions().Create(w.t.Context(), fleet.Action{ID: id, Type: agentapi.ActionUnenroll, Agents: []string{agentID}})
	w.must(err)
	return seq
}

// countedActions counts the reads of the store.
type countedActions struct {
	store.Actions
	reads atomic.Int64
}

func (a *countedActions) After(ctx context.Context, after int64, limit int) ([]fleet.Action, error) {
	a.reads.Add(1)
	return a.Actions.After(ctx, after, limit)
}

func (a *countedActions) LastSeq(ctx context.Context) (int64, error) {
	a.reads.Add(1)
	return a.Actions.LastSeq(ctx)
}

// A copy of the store's folder that is put back assigns numbers again that agents have
// acknowledged, with the same generation.
func TestTokenOfAnotherHistoryHidesNoAction(t *testing.T) {
	lost := newWorld(t)
	for _, id := range []string{"common", "lost-1", "lost-2"} {
		lost.unenroll(id)
	}
	lost.fed(3)
	shown := lost.checkin(agentapi.CheckinRequest{}).delivers("common", "lost-1", "lost-2").AckToken

	w := newWorld(t)
	w.unenroll("common")
	w.fed(1)
	w.checkin(agentapi.CheckinRequest{AckToken: shown}).delivers("common") // the number is beyond the newest
	for _, id := range []string{"new-1", "new-2", "new-3"} {
		w.unenroll(id)
	}
	w.fed(4)
	resp := w.checkin(agentapi.CheckinRequest{AckToken: shown}).delivers("common", "new-1", "new-2", "new-3")
	if got := w.agent().Last.ActionSeq; got != 0 {
		t.Errorf("the agent's sequence number has become %d", got)
	}
	w.checkin(agentapi.CheckinRequest{AckToken: resp.AckToken}).parked().leave()

	// The same for the check-ins that are recognised without the store.
	f, cut := checkin.FingerprintOf(fmt.Appendf(nil, `{"status":"online","ack_token":%q}`, shown), "")
	if cut != shown {
		t.Fatalf("the token %s is cut out as %s", shown, cut)
	}
	cached := w.agent()
	g := w.cache.Generation(agentID)
	w.cache.Remember(&cached, g)
	w.cache.RememberCheckin(agentID, checkin.LastCheckin{Fingerprint: f, After: 3}, g, 1, time.Now())
	parked := &oncePark{}
	w.service.Parker = parked
	defer func() { w.service.Parker = w.parker }()
	if !w.service.HandleDuplicate(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", http.NoBody), agentID, f, cut) || parked.After != 0 {
		t.Errorf("the duplicate is parked after %d, want 0", parked.After)
	}
}

// A fleet shows the token of one action: the store is asked once, and not at all for a token
// that this server has issued.
func TestTokenCostsOneReadOfTheStore(t *testing.T) {
	w := newWorld(t)
	counted := &countedActions{Actions: w.store.Actions()}
	w.service.Actions = counted
	w.unenroll("a")
	w.fed(1)
	token := w.checkin(agentapi.CheckinRequest{}).delivers("a").AckToken
	if reads := counted.reads.Load(); reads != 0 {
		t.Errorf("the delivery cost %d reads", reads)
	}
	w.checkin(agentapi.CheckinRequest{AckToken: token}).parked().leave()
	if reads := counted.reads.Load(); reads > 1 { // that of the newest number
		t.Errorf("the first token cost %d reads", reads)
	}

	restarted := &checkin.Service{
		Agents: w.agents, Actions: counted, Results: w.service.Results, Pending: w.feed, Parker: w.parker, Events: w.service.Events, Log: w.service.Log,
		Generation: generation, Cache: w.cache, Health: w.service.Health, LastSeen: w.service.LastSeen,
	}
	w.service = restarted
	counted.reads.Store(0)
	for range 10 {
		w.checkin(agentapi.CheckinRequest{AckToken: token}).parked().leave()
	}
	if reads := counted.reads.Load(); reads > 2 {
		t.Errorf("10 check-ins cost a server that has just started %d reads", reads)
	}
	f, cut := checkin.FingerprintOf(fmt.Appendf(nil, `{"status":"online","ack_token":%q}`, token), "")
	cached := w.agent()
	g := w.cache.Generation(agentID)
	w.cache.Remember(&cached, g)
	w.cache.RememberCheckin(agentID, checkin.LastCheckin{Fingerprint: f, After: 1}, g, 1, time.Now())
	parked := &oncePark{}
	restarted.Parker = parked
	defer func() { restarted.Parker = w.parker }()
	counted.reads.Store(0)
	if !restarted.HandleDuplicate(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", http.NoBody), agentID, f, cut) || parked.After != 1 || counted.reads.Load() != 0 {
		t.Errorf("the duplicate is parked after %d, with %d reads", parked.After, counted.reads.Load())
	}
}

// Those of actions that were removed cannot be compared.
func TestTokenThatCannotBeComparedIsUsed(t *testing.T) {
	w := newWorld(t)
	first := w.unenroll("first")
	second := w.unenroll("second")
	w.fed(2)
	issued := w.checkin(agentapi.CheckinRequest{}).delivers("first", "second").AckToken
	number := issued[:strings.LastIndex(issued, "-")]
	for _, shown := range []string{issued[:len(issued)-1], number, number + "-", number + "-0", number + "-x", token(second, "other")} {
		w.checkin(agentapi.CheckinRequest{AckToken: shown}).delivers("first", "second")
	}
	w.unenroll("third")
	w.fed(3)
	w.must(w.store.Actions().Delete(t.Context(), "first"))
	w.checkin(agentapi.CheckinRequest{AckToken: token(first, "gone")}).delivers("second", "third")
}
