package incident_test

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/incident"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
	"github.com/muster-fleet/muster/server/store"
)

// The incident of an identity that two hosts have opens and ends with the agent.
func TestSharedIdentityIsAnIncidentWhileItLasts(t *testing.T) {
	w := newWorld(t)
	w.Agents = w.store.Agents()
	a := rollouttest.Host{ID: "web-1"}.Agent()
	again := w.now.Add(time.Hour)
	a.SharedSince = &w.now
	a.Bearers = []fleet.Bearer{
		{ProcessID: "1", Hostname: "web-1", Since: w.now, Again: again}, {ProcessID: "2", Hostname: "web-1-clone", Since: w.now, Again: again},
	}
	if err := w.store.Agents().Create(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	w.follow(t)
	id := incident.ID(fleet.IncidentSharedIdentity, "", "web-1")
	state := func(want fleet.IncidentState) fleet.Incident {
		t.Helper()
		var i fleet.Incident
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			w.Events.Publish(t.Context(), a.SharedEvent()) // check-ins repeat it, since a reader may miss one
			var err error
			if i, err = w.Get(t.Context(), id); err == nil && i.State == want {
				return i
			}
			if time.Now().After(end) {
				t.Fatalf("the incident is %+v, %v; want it %s", i, err, want)
			}
		}
	}
	if i := state(fleet.IncidentOpen); !strings.Contains(i.Text, "web-1 and web-1-clone") || !strings.Contains(i.Text, "muster-agent enroll") || i.Severity != "critical" {
		t.Errorf("the incident is %+v", i)
	}
	var err error
	a, err = store.UpdateAgent(t.Context(), w.store.Agents(), "web-1", func(a *fleet.Agent) bool { a.SharedSince = nil; return true })
	if err != nil {
		t.Fatal(err)
	}
	if i := state(fleet.IncidentResolved); i.Resolved.By != incident.System || i.Resolved.Why == "" {
		t.Errorf("it was resolved by %+v", i.Resolved)
	}
}
