package action_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// hosts returns the agents of an action with their states.
func (w *world) hosts(id string, states ...action.HostState) []string {
	w.t.Helper()
	list, total, err := w.service.Hosts(w.t.Context(), id, action.HostQuery{States: states, Limit: 100})
	w.must(err)
	if total != len(list) {
		w.t.Errorf("the page has %d of %d agents", len(list), total)
	}
	var out []string
	for _, h := range list {
		out = append(out, h.AgentID+" "+string(h.State))
	}
	return out
}

func (w *world) wantHosts(id string, want ...string) {
	w.t.Helper()
	if got := w.hosts(id); !slices.Equal(got, want) {
		w.t.Errorf("the hosts are %q, want %q", got, want)
	}
	// A filter finds the agents that the whole list shows in the state.
	for _, s := range action.HostStates {
		var of []string
		for _, h := range want {
			if strings.HasSuffix(h, " "+string(s)) {
				of = append(of, h)
			}
		}
		if got := w.hosts(id, s); !slices.Equal(got, of) {
			w.t.Errorf("in state %s are %q, want %q", s, got, of)
		}
	}
}

// Its hosts stay with the action when they get newer orders, are unenrolled or are removed.
func TestHostsOfAnUpgradeHaveTheOutcomesThatItsStatusCounts(t *testing.T) {
	w := newWorld(t, "good", "bad", "back", "again", "left", "removed", "waits")
	w.enrol("newer", "1.1.0")
	ids := []string{"good", "bad", "back", "again", "left", "removed", "waits", "newer"}
	a, err := w.service.Upgrade(t.Context(), order("1.1.0", ids...))
	w.must(err)
	w.wantHosts(a.ID, "good sent", "bad sent", "back sent", "again sent", "left sent", "removed sent", "waits sent", "newer failed")

	w.now = w.now.Add(time.Second)
	w.change("good", func(a *fleet.Agent) { a.ObserveUpgrade("1.1.0", nil, w.now) })
	w.change("bad", func(g *fleet.Agent) { g.ObserveAck(a.ID, "disk full", false, w.now) })
	w.change("back", func(g *fleet.Agent) {
		g.ObserveUpgrade("1.0.0", &agentapi.UpgradeDetails{TargetVersion: "1.1.0", ActionID: a.ID, State: agentapi.UpgradeRollback, Metadata: agentapi.UpgradeMetadata{ReasonCode: "crash_loop"}}, w.now)
	})
	w.change("left", func(a *fleet.Agent) { a.Active, a.UnenrolledAt = false, &w.now })
	w.must(w.store.Agents().Delete(t.Context(), "removed"))
	now := []string{"good committed", "bad failed", "back rolled_back", "again sent", "left stopped", "removed stopped", "waits sent", "newer failed"}
	w.wantHosts(a.ID, now...)

	// All that can be is ordered again.
	again := order("1.2.0", "good", "bad", "back", "again")
	again.Force = true
	next, err := w.service.Upgrade(t.Context(), again)
	w.must(err)
	now[3] = "again stopped"
	w.wantHosts(a.ID, now...)
	w.wantHosts(next.ID, "good sent", "bad sent", "back sent", "again sent")

	st := w.status(a)
	for _, s := range fleet.ProgressStates {
		if n := len(w.hosts(a.ID, action.HostState(s))); n != st.Progress[s] {
			t.Errorf("%d hosts are %s, the status counts %d", n, s, st.Progress[s])
		}
	}
	list, total, err := w.service.Hosts(t.Context(), a.ID, action.HostQuery{Offset: 1, Limit: 2})
	w.must(err)
	if total != len(ids) || len(list) != 2 || list[0].AgentID != "bad" || list[0].Hostname != "host-bad" || list[0].Reason != "disk full" || list[0].Since == nil || list[1].Code != "crash_loop" {
		t.Errorf("the second and third of %d are %+v", total, list)
	}
	list, _, err = w.service.Hosts(t.Context(), a.ID, action.HostQuery{States: []action.HostState{action.HostStopped, "failed"}, Limit: 9})
	w.must(err)
	texts := ""
	for _, h := range list {
		texts += fmt.Sprintf("%s: %s %s%s\n", h.AgentID, h.Code, h.Reason, h.Text)
	}
	if want := "bad: UPG_REQUESTED disk full\n" +
		"again:  Another order replaced the upgrade before it was done.\n" +
		"left:  There is no outcome, since the agent is unenrolled.\n" +
		"removed:  The agent was removed before it was done.\n" +
		"newer: refused " + w.result(a, "newer").Error + "\n"; texts != want {
		t.Errorf("the reasons are\n%swant\n%s", texts, want)
	}
	if _, _, err := w.service.Hosts(t.Context(), "none", action.HostQuery{}); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("the hosts of no action: %v", err)
	}
}

func TestHostsOfAnActionThatIsNoUpgradeAreInItsResults(t *testing.T) {
	w := newWorld(t, "yes", "no", "waits")
	a, err := w.service.RequestDiagnostics(t.Context(), action.DiagnosticsOrder{AgentIDs: []string{"yes", "no", "waits"}, Actor: "ann"})
	w.must(err)
	_, err = w.store.Results().Put(t.Context(), []fleet.Result{
		{ActionID: a.ID, AgentID: "yes", Timestamp: w.now}, {ActionID: a.ID, AgentID: "no", Error: "disk full", Timestamp: w.now},
	})
	w.must(err)
	w.wantHosts(a.ID, "yes done", "no failed", "waits sent")
	w.now = a.Expiration.Add(time.Second)
	w.wantHosts(a.ID, "yes done", "no failed", "waits stopped")
}

func TestStatusOfOneAction(t *testing.T) {
	w := newWorld(t, "web")
	a := w.upgrade("web")
	w.must(w.store.Policies().Create(t.Context(), fleet.Policy{ID: "desk", PolicyRev: 2, Revisions: []fleet.PolicyRevision{{Revision: 1, At: w.now, By: "ann"}, {Revision: 2, At: w.now, By: "ben"}}}))
	for id, by := range map[string]string{a.ID: "ann", "desk:2": "ben"} {
		st, err := w.service.Status(t.Context(), id, 1)
		w.must(err)
		if st.ID != id || st.CreatedBy != by {
			t.Errorf("the status of %s is %+v", id, st)
		}
	}
	_, err := w.service.Status(t.Context(), "desk:1", 1)
	w.wantKind(err, fleet.NotFound, "desk:1")
}
