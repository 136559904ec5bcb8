package incident_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/incident"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// rollBack writes that a host was rolled back from 2.0.0, and publishes it.
func (w *world) rollBack(t *testing.T, host, code string) {
	t.Helper()
	a := rollouttest.Host{ID: host}.Agent()
	a.AccessKeyID = host
	a.BeginUpgrade("act", "2.0.0", w.now)
	a.ObserveUpgrade("1.0.0", &agentapi.UpgradeDetails{
		TargetVersion: "2.0.0", ActionID: "act", State: agentapi.UpgradeRollback, Metadata: agentapi.UpgradeMetadata{Reason: "It crashed.", ReasonCode: code},
	}, w.now)
	if err := w.store.Agents().Create(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	w.Events.Publish(t.Context(), a.UpgradeEvent(""))
}

// follow runs the service until stop is called.
func (w *world) follow(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// eventually waits until these are the titles of the incidents.
func (w *world) eventually(t *testing.T, want ...string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		list, _, err := w.List(t.Context(), "", 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		var titles []string
		for _, i := range list {
			titles = append(titles, i.Title)
		}
		slices.Sort(titles)
		if slices.Equal(titles, want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("incidents are %q, want %q", titles, want)
		}
	}
}

// opened waits until the incident of 2.0.0 has been opened count times.
func (w *world) opened(t *testing.T, count int) fleet.Incident {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		list, _, err := w.List(t.Context(), "", 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 1 && list[0].Count == count && list[0].State == fleet.IncidentOpen {
			return list[0]
		}
		if time.Now().After(end) {
			t.Fatalf("incidents are %+v, want one that was opened %d times", list, count)
		}
	}
}

func TestTwoHostsRolledBackFromOneVersionOpenAnIncident(t *testing.T) {
	w := newWorld(t)
	w.Agents = w.store.Agents()
	stop := w.follow(t)
	w.rollBack(t, "a", "crash_loop")
	w.rollBack(t, "asked", agentapi.ReasonManual)
	w.rollBack(t, "b", "crash_loop")
	i := w.opened(t, 1)
	if i.Category != fleet.IncidentVersionRolledBack || i.Version != "2.0.0" || i.Severity != "critical" || i.Title != "Several hosts were rolled back from 2.0.0" {
		t.Errorf("the incident is %+v", i)
	}
	if !strings.Contains(i.Text, "on host-a, host-b: It crashed. Bring it to no further host") {
		t.Errorf("its text is %q", i.Text)
	}

	// It opens again for a further host only, not when the server starts again.
	stop()
	w.now = w.now.Add(time.Hour)
	if _, err := w.Resolve(t.Context(), i.ID, "ann", "reinstalled"); err != nil {
		t.Fatal(err)
	}
	stop = w.follow(t)
	w.rollBack(t, "d", agentapi.ReasonManual)
	stop()
	if i := w.get(t, i.ID); i.State != fleet.IncidentResolved {
		t.Errorf("the incident is %+v", i)
	}
	w.now = w.now.Add(time.Hour)
	w.follow(t)
	w.rollBack(t, "c", "crash_loop")
	w.opened(t, 2)
}

func TestRollbacksBeforeTheStartOpenAnIncident(t *testing.T) {
	w := newWorld(t)
	w.Agents = w.store.Agents()
	w.rollBack(t, "a", "crash_loop")
	w.rollBack(t, "b", "crash_loop")
	w.follow(t)
	w.opened(t, 1)
}

func TestOneRollbackOpensNoIncident(t *testing.T) {
	w := newWorld(t)
	w.Agents = w.store.Agents()
	w.follow(t)
	w.rollBack(t, "a", "crash_loop")
	w.rollBack(t, "asked", agentapi.ReasonManual)
	// The incident of another version shows that the events before were handled.
	for _, host := range []string{"x", "y"} {
		a := rollouttest.Host{ID: host}.Agent()
		a.AccessKeyID = host
		a.BeginUpgrade("other", "3.0.0", w.now)
		a.ObserveUpgrade("1.0.0", &agentapi.UpgradeDetails{TargetVersion: "3.0.0", ActionID: "other", State: agentapi.UpgradeRollback}, w.now)
		if err := w.store.Agents().Create(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		w.Events.Publish(t.Context(), a.UpgradeEvent(""))
	}
	if i := w.opened(t, 1); i.Version != "3.0.0" {
		t.Errorf("the incident is %+v", i)
	}
}

// rollBackComponent writes that the upgrade of a component of a host to a version was undone,
// and publishes it.
func (w *world) rollBackComponent(t *testing.T, host, component, version string) {
	t.Helper()
	a := w.failedComponent(t, host, component, version, "act", agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeWatching, ErrorMsg: "port 80 does not answer"})
	w.Events.Publish(t.Context(), a.UpgradeEvent(component))
}

func TestTwoHostsWhoseComponentWasRolledBackOpenAnIncident(t *testing.T) {
	w := newWorld(t)
	w.Agents = w.store.Agents()
	stop := w.follow(t)
	w.rollBack(t, "agent", "crash_loop") // the agent itself
	w.rollBackComponent(t, "db", "db", "2.0.0")
	w.rollBackComponent(t, "other", "web", "3.0.0")
	w.fail(t, "not-started", "act", "") // never ran the version
	w.rollBackComponent(t, "a", "web", "2.0.0")
	w.rollBackComponent(t, "b", "web", "2.0.0")
	i := w.opened(t, 1)
	if i.Category != fleet.IncidentVersionRolledBack || i.Component != "web" || i.Version != "2.0.0" || i.Severity != "critical" || i.Title != "Several hosts were rolled back from web 2.0.0" {
		t.Errorf("the incident is %+v", i)
	}
	if !strings.Contains(i.Text, "Their agents put the previous version back on host-a, host-b: port 80 does not answer. Bring it to no further host") {
		t.Errorf("its text is %q", i.Text)
	}

	stop()
	w.now = w.now.Add(time.Hour)
	if _, err := w.Resolve(t.Context(), i.ID, "ann", "withdrawn"); err != nil {
		t.Fatal(err)
	}
	stop = w.follow(t)
	later := w.agent(t, "a")
	w.Events.Publish(t.Context(), later.UpgradeEvent("web")) // its status has changed, say
	stop()
	if i := w.get(t, i.ID); i.State != fleet.IncidentResolved {
		t.Errorf("the incident is %+v", i)
	}
	w.now = w.now.Add(time.Hour)
	w.follow(t)
	w.rollBackComponent(t, "c", "web", "2.0.0")
	w.opened(t, 2)

	// The same version of the agent and of another component are causes of their own.
	w.rollBack(t, "agent-2", "crash_loop")
	w.rollBackComponent(t, "db-2", "db", "2.0.0")
	w.eventually(t, "Several hosts were rolled back from 2.0.0", "Several hosts were rolled back from db 2.0.0", "Several hosts were rolled back from web 2.0.0")
}

func TestRollbacksOfComponentsBeforeTheStartOpenAnIncident(t *testing.T) {
	w := newWorld(t)
	w.Agents = w.store.Agents()
	for _, host := range []string{"a", "b"} {
		w.rollBackComponent(t, host, "web", "2.0.0")
	}
	w.rollBackComponent(t, "x", "db", "2.0.0")
	w.follow(t)
	if i := w.opened(t, 1); i.Component != "web" {
		t.Errorf("the incident is %+v", i)
	}
}

func TestRolloutThatStopsAgainChangesItsOpenIncident(t *testing.T) {
	w := newWorld(t)
	stop := fleet.Incident{Category: fleet.IncidentRolloutStopped, RolloutID: "r", Title: "r is paused by itself", Text: "3 of 5 failed."}
	w.open(t, stop)
	stop.Title, stop.Text = "r has failed", "9 of 9 failed."
	w.open(t, stop)
	if i := w.get(t, incident.ID(fleet.IncidentRolloutStopped, "r", "")); i.Title != stop.Title || i.Text != stop.Text || i.Count != 1 {
		t.Errorf("the incident is %+v", i)
	}
}
