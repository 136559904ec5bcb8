package action_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// An order processes the agents in the store's order. The action lists them in the order
// of the request, which decides their starts in an upgrade that is spread over time.
func TestActionKeepsTheOrderOfItsAgents(t *testing.T) {
	w := newWorld(t, "c", "a", "d", "b")
	w.change("d", func(a *fleet.Agent) { a.Version = "1.1.0" })
	service := w.serve(w.store.Store)
	if in, err := service.Store.Agents().Sorted(t.Context(), []string{"b", "a"}); err != nil || !slices.Equal(in, []string{"a", "b"}) {
		t.Fatalf("the order of the store is %v: %v", in, err)
	}
	for _, tc := range [][2][]string{
		{{"b", "nobody", "d", "a"}, {"b", "a"}},
		{{"c"}, {"c"}},
	} {
		up, err := service.Upgrade(t.Context(), order("1.1.0", tc[0]...))
		w.must(err)
		if !slices.Equal(up.Agents, tc[1]) || up.Actioned != len(tc[0]) {
			t.Errorf("the action is for %v of %d, want %v", up.Agents, up.Actioned, tc[1])
		}
	}
}

func TestUpgradeMatchesItsPreview(t *testing.T) {
	w := newWorld(t, "good", "there", "gone", "stuck")
	w.change("there", func(a *fleet.Agent) { a.Version = "1.1.0" })
	w.change("gone", func(a *fleet.Agent) { a.Active = false })
	w.change("stuck", func(a *fleet.Agent) { a.LocalMetadata = nil })
	ids := []string{"stuck", "good", "unknown", "there", "gone"}
	verdicts, err := previewed(t.Context(), w.service.EachVerdict, order("1.1.0", ids...))
	w.must(err)
	if w.upgrading("good") {
		t.Error("a preview has begun the upgrade")
	}
	up := w.upgrade(ids...)
	if up.Actioned != len(ids) || !slices.Equal(up.Agents, []string{"good"}) || up.Expiration == nil || up.Seq == 0 {
		t.Errorf("action is %+v", up)
	}
	for i, v := range verdicts {
		if v.Agent.ID != ids[i] {
			t.Errorf("verdict %d is about %s, want %s", i, v.Agent.ID, ids[i])
		}
		r := w.result(up, ids[i])
		switch {
		case v.Err == nil && (r != nil || !w.upgrading(ids[i])):
			t.Errorf("%s was to be upgraded, its result is %v", ids[i], r)
		case v.Err != nil && (r == nil || r.Error != v.Err.Error()):
			t.Errorf("%s was to be refused with %q, its result is %v", ids[i], v.Err, r)
		}
	}
	if verdicts[1].Err != nil || verdicts[0].Err == nil || verdicts[2].Err == nil || verdicts[3].Err == nil || verdicts[4].Err == nil {
		t.Errorf("verdicts are %v", verdicts)
	}
	a := w.agent("good")
	if a.UpgradeActionID != up.ID || a.UpgradeTo != "1.1.0" || a.UpgradeStatus != fleet.UpgradeStarted || !a.UpgradeStartedAt.Equal(w.now) {
		t.Errorf("the agent's mark is %+v", a)
	}
	if s := w.status(up); s.State != fleet.ActionInProgress || s.Counts.Failed != 4 || len(s.Errors) != 4 {
		t.Errorf("status is %s with %+v", s.State, s.Counts)
	}
	if types := w.eventTypes(0); !slices.Equal(types, []string{fleet.EventActionCreated, fleet.EventAgentUpgrade}) {
		t.Errorf("events are %v", types)
	}
}

func TestInvalidOrdersChangeNothing(t *testing.T) {
	w := newWorld(t, "a", "b")
	many := make([]string, action.MaxAgents+1)
	for i := range many {
		many[i] = fmt.Sprint("agent-", i)
	}
	for _, c := range []struct {
		order action.UpgradeOrder
		says  string
	}{
		{order("1.1.0"), "body.agents]: is empty"},
		{order("1.1.0", "a", "b", "a"), "names agent a twice"},
		{order("1.1.0", many...), "at most 10000"},
		{selected("1.1.0"), "selects no agents"},
		{selected("1.1.0", make([]string, action.MaxSelected+1)...), "selects 100001 agents, at most 100000"},
		{order("", "a"), "body.version]: is missing"},
		{order("next", "a"), "body.version]: version is \"next\""},
	} {
		_, err := previewed(t.Context(), w.service.EachVerdict, c.order)
		w.wantKind(err, fleet.Invalid, c.says)
		_, err = w.service.Upgrade(t.Context(), c.order)
		w.wantKind(err, fleet.Invalid, c.says)
	}
	_, err := previewed(t.Context(), w.service.EachVerdict, order("9.9.9", "a"))
	w.wantKind(err, fleet.Invalid, "published are 1.2.0, 1.1.0")
	if list, err := w.service.List(t.Context(), store.ActionQuery{Limit: 10}, 10); err != nil || len(list) != 0 {
		t.Errorf("actions are %v, %v", list, err)
	}
	if w.upgrading("a") {
		t.Error("an agent was marked")
	}
}

// selected returns an order for agents that a query has selected.
func selected(version string, ids ...string) action.UpgradeOrder {
	o := order(version, ids...)
	o.Selected = true
	return o
}

// The agents of an order by a query are processed in pages. Refused agents are at the ends
// of pages and in between.
func TestOrderOfSeveralPagesIsOneAction(t *testing.T) {
	w := newWorld(t)
	const n = 2500
	var want []string
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("agent-%04d", i)
		if i%999 != 0 {
			want = append(want, ids[i])
		}
	}
	var enrolling sync.WaitGroup
	for first := range 50 { // writes that wait together are made together
		enrolling.Go(func() {
			for i := first; i < n; i += 50 {
				a := fleet.Agent{
					ID: ids[i], AccessKeyID: "key-" + ids[i], Active: i%999 != 0, Version: "1.0.0", EnrolledAt: w.now,
					LocalMetadata: []byte(`{"elastic":{"agent":{"version":"1.0.0","upgradeable":true}},"os":{"type":"linux"},"host":{"architecture":"x86_64"}}`),
				}
				if err := w.store.Agents().Create(t.Context(), a); err != nil {
					t.Error(err)
				}
			}
		})
	}
	enrolling.Wait()
	a, err := w.service.Upgrade(t.Context(), selected("1.1.0", ids...))
	if err != nil || a.Actioned != n || !slices.Equal(a.Agents, want) {
		t.Fatalf("the action is for %d of %d agents, want %d of %d: %v", len(a.Agents), a.Actioned, len(want), n, err)
	}
	if s := w.status(a); s.Counts.Failed != n-len(want) {
		t.Errorf("%d were refused, want %d", s.Counts.Failed, n-len(want))
	}
}

// threePages is an order whose pages have one agent each that exists.
func threePages(w *world) action.UpgradeOrder {
	var ids []string
	for _, id := range []string{"a", "b", "c"} {
		w.enrol(id, "1.0.0")
		ids = append(ids, id)
		for i := range 999 {
			ids = append(ids, fmt.Sprint(id, "-unknown-", i))
		}
	}
	return selected("1.1.0", ids...)
}

func TestNextPageIsReadWhileOneIsWritten(t *testing.T) {
	w := newWorld(t)
	o := threePages(w)
	reads := make(chan struct{}, 3) // as many as there are pages
	w.store.getMany = func() error { reads <- struct{}{}; return nil }
	writes := 0
	w.store.updateMany = func() error {
		if writes++; writes > 1 {
			return nil
		}
		for range 2 {
			select {
			case <-reads:
			case <-time.After(30 * time.Second):
				t.Error("the second page is not read until the first is written")
				return nil
			}
		}
		if len(reads) > 0 {
			t.Error("a third page is read while the first is written")
		}
		return nil
	}
	a, err := w.service.Upgrade(t.Context(), o)
	if err != nil || writes != 3 || !slices.Equal(a.Agents, []string{"a", "b", "c"}) {
		t.Errorf("after %d writes the action is for %v: %v", writes, a.Agents, err)
	}
}

func TestOrderEndsWithTheFirstError(t *testing.T) {
	for name, breakOff := range map[string]func(w *world){
		"of reading": func(w *world) {
			var reads atomic.Int32
			w.store.getMany = func() error {
				if reads.Add(1) == 2 {
					return errAway
				}
				return nil
			}
		},
		"of writing": func(w *world) { w.store.updateMany = away },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := threePages(w)
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			breakOff(w)
			if a, err := w.service.Upgrade(t.Context(), o); !errors.Is(err, errAway) {
				t.Errorf("the order made %+v: %v", a, err)
			}
			if list, err := w.store.Actions().List(t.Context(), store.ActionQuery{Limit: 10}); err != nil || len(list) > 0 {
				t.Errorf("there is an action for %d: %v", len(list), err)
			}
			if c := w.agent("c"); c.Upgrading() {
				t.Error("the last page was marked all the same")
			}
		})
	}
}

func TestOrderOnlyForRefusedAgentsIsComplete(t *testing.T) {
	w := newWorld(t)
	up := w.upgrade("nobody")
	if s := w.status(up); s.State != fleet.ActionFailed || len(s.Errors) != 1 || s.Errors[0].Error != "Agent nobody not found" {
		t.Errorf("status is %s with %+v", s.State, s.Errors)
	}
}

func TestOrderChecksAChangedAgentAgain(t *testing.T) {
	w := newWorld(t, "touched", "overtaken", "deleted", "calm")
	first := true
	w.store.updateMany = func() error {
		if first {
			first = false
			w.change("touched", func(a *fleet.Agent) { a.Tags = []string{"edge"} })
			w.change("overtaken", func(a *fleet.Agent) { a.BeginUpgrade("another", "1.2.0", w.now) })
			w.change("deleted", func(a *fleet.Agent) { a.Tags = []string{"old"} })
			return nil
		}
		return w.store.Store.Agents().Delete(t.Context(), "deleted")
	}
	up := w.upgrade("touched", "overtaken", "deleted", "calm")
	slices.Sort(up.Agents)
	if !slices.Equal(up.Agents, []string{"calm", "touched"}) {
		t.Errorf("delivered to %v", up.Agents)
	}
	if a := w.agent("touched"); a.UpgradeActionID != up.ID || !slices.Equal(a.Tags, []string{"edge"}) {
		t.Errorf("the other writer's change is lost: %+v", a)
	}
	if a := w.agent("overtaken"); a.UpgradeActionID != "another" || w.result(up, "overtaken") == nil {
		t.Errorf("overtaken: action %s, result %v", a.UpgradeActionID, w.result(up, "overtaken"))
	}
	if r := w.result(up, "deleted"); r == nil || r.Error == "" {
		t.Errorf("the deleted agent has no result: the action would never be over")
	}
}

func TestOrderCountsAnAgentDeletedBetweenTries(t *testing.T) {
	w := newWorld(t, "deleted")
	w.store.updateMany = func() error {
		// Another writer changes the agent first, and then it is deleted.
		w.change("deleted", func(a *fleet.Agent) { a.Tags = []string{"x"} })
		w.store.updateMany = func() error { return nil }
		return nil
	}
	agents := w.store.Store.Agents()
	w.service.Store = &deletesOnConflict{faultyStore: w.store, delete: func() { w.must(agents.Delete(t.Context(), "deleted")) }}
	up := w.upgrade("deleted")
	if r := w.result(up, "deleted"); r == nil || r.Error != "Agent deleted not found" {
		t.Errorf("result is %v", r)
	}
}

func TestAgentsWithEndlessConflictsAreRefused(t *testing.T) {
	w := newWorld(t, "busy")
	tries := 0
	w.store.updateMany = func() error {
		tries++
		w.change("busy", func(a *fleet.Agent) { a.Tags = []string{fmt.Sprint(tries)} })
		return nil
	}
	up := w.upgrade("busy")
	if r := w.result(up, "busy"); r == nil || r.Error == "" || tries < 2 || tries > 10 {
		t.Errorf("after %d tries the result is %v", tries, r)
	}
	if w.upgrading("busy") {
		t.Error("it is marked though it was refused")
	}
}

func TestUpgradeLeavesOutHostsOnWhichTheVersionFailed(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.change("b", func(a *fleet.Agent) {
		a.FailedVersions = []fleet.FailedVersion{{Version: "1.1.0", Reason: "it crashed", At: w.now}}
	})
	up := w.upgrade("a", "b")
	if r := w.result(up, "b"); w.upgrading("b") || !w.upgrading("a") || r == nil || !strings.Contains(r.Error, "failed on its host before") {
		t.Errorf("b is being upgraded: %v, its result is %+v", w.upgrading("b"), r)
	}
	offer := action.Offer{ID: "r-g1-1", AgentIDs: []string{"b"}, UpgradeRequest: fleet.UpgradeRequest{Version: "1.1.0"}, Expiration: w.now.Add(time.Hour)}
	if refused := w.offer(offer); !errors.Is(refused["b"], fleet.ErrFailedBefore) {
		t.Errorf("a rollout's offer is refused with %v", refused["b"])
	}
	forced := order("1.1.0", "b")
	forced.Force = true
	_, err := w.service.Upgrade(t.Context(), forced)
	w.must(err)
	if !w.upgrading("b") {
		t.Error("the forced upgrade is refused")
	}
}

func TestRolloutSecondsSpreadTheStarts(t *testing.T) {
	w := newWorld(t, "a", "b")
	o := order("1.1.0", "a", "b")
	o.RolloutSeconds = 600
	up, err := w.service.Upgrade(t.Context(), o)
	w.must(err)
	if !up.StartTime.Equal(w.now) || !up.ForAgent("b").StartTime.Equal(w.now.Add(5*time.Minute)) {
		t.Errorf("starts are %s and %s", up.StartTime, up.ForAgent("b").StartTime)
	}
	start := w.now.Add(48 * time.Hour)
	o = order("1.1.0", "a")
	o.StartTime, o.Force = &start, true
	up, err = w.service.Upgrade(t.Context(), o)
	w.must(err)
	if since := w.agent("a").UpgradeStartedAt; !since.Equal(start) {
		t.Errorf("it is being upgraded since %s, want %s, when it begins", since, start)
	}
	if want := start.Add(fleet.DefaultExpiration); !up.Expiration.Equal(want) {
		t.Errorf("expires at %s, want %s, counted from its start", up.Expiration, want)
	}
}

// The server dies, or the store goes away, between the marks and the action.
func TestReconcileUpgradesClearsMarksWithoutAnAction(t *testing.T) {
	w := newWorld(t, "a")
	w.store.create = away
	o := order("1.1.0", "a")
	o.Single = true // an order of several agents is continued instead
	_, err := w.service.Upgrade(t.Context(), o)
	w.wantKind(err, fleet.Unavailable, "away")
	w.store.create = nil
	w.now = w.now.Add(fleet.CreateGrace - time.Second)
	w.must(w.service.ReconcileUpgradesOnce(t.Context()))
	if !w.upgrading("a") {
		t.Error("cleared while the action may still be coming")
	}
	w.now = w.now.Add(2 * time.Second)
	w.must(w.service.ReconcileUpgradesOnce(t.Context()))
	if a := w.agent("a"); a.Upgrading() || a.UpgradeStatus != fleet.UpgradeFailed || a.UpgradeDetails.Metadata.ErrorMsg == "" {
		t.Errorf("after the grace: %q, %+v", a.UpgradeStatus, a.UpgradeDetails)
	}
	w.upgrade("a") // it can be tried again
}

func TestCancel(t *testing.T) {
	w := newWorld(t, "waiting", "begun")
	up := w.upgrade("waiting", "begun")
	w.change("begun", func(a *fleet.Agent) {
		a.UpgradeDetails = &agentapi.UpgradeDetails{ActionID: up.ID, TargetVersion: "1.1.0", State: agentapi.UpgradeReplacing}
	})
	n := len(w.eventTypes(0))
	c, err := w.service.Cancel(t.Context(), up.ID, "ann")
	w.must(err)
	if c.Type != agentapi.ActionCancel || c.ID != fleet.CancelID(up.ID) || !slices.Equal(c.Agents, up.Agents) || c.Seq <= up.Seq {
		t.Errorf("CANCEL is %+v", c)
	}
	if a := w.agent("waiting"); a.Upgrading() || a.UpgradeStatus != fleet.UpgradeNone {
		t.Errorf("the agent that had not begun is %q", a.UpgradeStatus)
	}
	if !w.upgrading("begun") {
		t.Error("the agent that had begun was not asked")
	}
	if s := w.status(up); s.State != fleet.ActionCancelled {
		t.Errorf("state is %s", s.State)
	}
	if types := w.eventTypes(n); len(types) == 0 || types[0] != fleet.EventActionCancelled {
		t.Errorf("events are %v", types)
	}
	again, err := w.service.Cancel(t.Context(), up.ID, "bob")
	if err != nil || again.ID != c.ID || again.Seq != c.Seq {
		t.Errorf("cancelled twice: %+v, %v", again, err)
	}
	// The agent could still cancel, and reports it.
	items := w.service.Ack(t.Context(), w.agent("begun"), []agentapi.AckEvent{{ActionID: c.ID, AgentID: "begun"}})
	if items[0].Status != 200 || w.upgrading("begun") {
		t.Errorf("after its ack: %+v, upgrading %t", items, w.upgrading("begun"))
	}
	list, err := w.service.List(t.Context(), store.ActionQuery{Limit: 10}, 10)
	if err != nil || len(list) != 1 {
		t.Errorf("listed are %d actions, %v: a CANCEL shows in what it cancelled", len(list), err)
	}
}

func TestRepeatedCancelCompletesAnInterruptedOne(t *testing.T) {
	w := newWorld(t, "a")
	up := w.upgrade("a")
	w.store.create = away
	_, err := w.service.Cancel(t.Context(), up.ID, "ann")
	w.wantKind(err, fleet.Unavailable, "away")
	w.store.create = nil
	_, err = w.service.Cancel(t.Context(), up.ID, "ann")
	w.must(err)
	if w.upgrading("a") {
		t.Error("the agent is still upgrading")
	}
	if _, err := w.store.Actions().Get(t.Context(), fleet.CancelID(up.ID)); err != nil {
		t.Errorf("CANCEL: %v", err)
	}
}

func TestCancelRefusals(t *testing.T) {
	w := newWorld(t, "a", "b")
	_, err := w.service.Cancel(t.Context(), "unknown", "ann")
	w.wantKind(err, fleet.NotFound, "unknown")

	w.unenroll(leave("b"))
	list, err := w.service.List(t.Context(), store.ActionQuery{Limit: 10}, 10)
	w.must(err)
	_, err = w.service.Cancel(t.Context(), list[0].ID, "ann")
	w.wantKind(err, fleet.Invalid, "only an UPGRADE")

	up := w.upgrade("a")
	w.service.Ack(t.Context(), w.agent("a"), []agentapi.AckEvent{{ActionID: up.ID}})
	w.checkin("a", "1.1.0", nil, true)
	_, err = w.service.Cancel(t.Context(), up.ID, "ann")
	w.wantKind(err, fleet.Conflict, "COMPLETE")
}

func TestSingleOrderReturnsTheRefusalAndCreatesNoAction(t *testing.T) {
	w := newWorld(t, "busy")
	if _, err := w.service.Upgrade(t.Context(), order("1.1.0", "busy")); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"nobody", "busy"} {
		o := order("1.2.0", id)
		o.Single = true
		_, err := w.service.Upgrade(t.Context(), o)
		var refused action.Refused
		if !errors.As(err, &refused) || refused.Agent.ID != id {
			t.Errorf("agent %s: error %v, want its refusal", id, err)
		}
	}
	if list, err := w.store.Actions().List(t.Context(), store.ActionQuery{Limit: 10}); err != nil || len(list) != 1 {
		t.Errorf("actions %+v, error %v; want the first alone", list, err)
	}
}

func TestUpgradeIsDoneWhenTheWatcherHasCommitted(t *testing.T) {
	w := newWorld(t, "a", "b")
	up := w.upgrade("a", "b")
	for _, id := range []string{"a", "b"} {
		w.change(id, func(a *fleet.Agent) {
			a.ObserveUpgrade("1.1.0", &agentapi.UpgradeDetails{TargetVersion: "1.1.0", ActionID: up.ID, State: agentapi.UpgradeWatching}, w.now)
		})
		w.ack(id, agentapi.AckEvent{ActionID: up.ID})
	}
	want := func(done int, outcome fleet.ActionState) {
		t.Helper()
		s := w.status(up)
		if s.Counts.Acked != 2 || s.State != fleet.ActionComplete {
			t.Errorf("by Kibana's rules %d have acknowledged and it is %s", s.Counts.Acked, s.State)
		}
		if s.Done() != done || s.Outcome() != outcome {
			t.Errorf("%d are done and it is %s, want %d and %s", s.Done(), s.Outcome(), done, outcome)
		}
	}
	want(0, fleet.ActionInProgress)
	w.change("a", func(a *fleet.Agent) { a.ObserveUpgrade("1.1.0", nil, w.now) })
	want(1, fleet.ActionInProgress)
	w.change("b", func(a *fleet.Agent) { a.ObserveUpgrade("1.1.0", nil, w.now) })
	want(2, fleet.ActionComplete)
}

// A component has versions of its own: an agent must not be sent to one of them.
func TestAgentsAreNotUpgradedToTheVersionOfAComponent(t *testing.T) {
	w := newWorld(t, "a")
	file := "muster-component-web-9.9.9-linux-amd64.tar.gz"
	w.must(w.store.Packages().Create(t.Context(), fleet.Package{File: file, Version: "9.9.9", OS: "linux", Arch: "amd64", Component: "web", Runtime: "process"}))
	catalog, err := w.service.Catalog(t.Context())
	w.must(err)
	if got := catalog.Versions(); !slices.Equal(got, []string{"1.2.0", "1.1.0"}) {
		t.Errorf("agents can be upgraded to %v", got)
	}
	_, err = previewed(t.Context(), w.service.EachVerdict, order("9.9.9", "a"))
	w.wantKind(err, fleet.Invalid, "no package of version 9.9.9 is published")
	web, err := w.service.CatalogOf(t.Context(), "web")
	w.must(err)
	a := w.agent("a")
	if got := web.For("9.9.9", a.Host()); len(got) != 1 || got[0].File != file || len(web.For("1.1.0", a.Host())) != 0 {
		t.Errorf("the component has %+v", web)
	}
}
