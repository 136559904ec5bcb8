package incident_test

import (
	"context"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/incident"
)

// In each state, a command that is possible changes the incident, and one that is not does not.
func TestCommandsThatArePossibleChangeTheIncident(t *testing.T) {
	w := newWorld(t)
	give := map[string]func(context.Context, string, string, string) (fleet.Incident, error){"ack": w.Ack, "resolve": w.Resolve}
	for _, state := range []fleet.IncidentState{fleet.IncidentOpen, fleet.IncidentAcked, fleet.IncidentResolved} {
		for name, do := range give {
			i := stuck
			i.ID, i.State = string(state)+name, state
			if err := w.store.Incidents().Create(t.Context(), i); err != nil {
				t.Fatal(err)
			}
			before := w.get(t, i.ID)
			w.now = w.now.Add(time.Minute)
			after, err := do(t.Context(), i.ID, "ann", "")
			changed := err == nil && after.State != before.State
			listed := 0
			for _, c := range incident.Commands(&before) {
				if c.Name != name {
					continue
				}
				listed++
				if c.Allowed != changed || c.Allowed == (c.Reason != "") {
					t.Errorf("%s of one that is %s: it is changed: %t (%v), the list has %+v", name, state, changed, err, c)
				}
			}
			if listed != 1 {
				t.Errorf("%s is listed %d times", name, listed)
			}
		}
	}
}

func TestNextCommandIsAboutTheSubjectOfTheIncident(t *testing.T) {
	for want, i := range map[string]fleet.Incident{
		"muster rollouts status r1":            {Category: fleet.IncidentRolloutStopped, RolloutID: "r1"},
		"muster agents why a1":                 {Category: fleet.IncidentStalled, RolloutID: "r1", AgentID: "a1"},
		"muster agents why a1 --component web": {Category: fleet.IncidentUpgradeFailed, AgentID: "a1", Component: "web"},
		`muster agents list --kuery 'progress: rolled_back and upgrade_details.target_version: "2.4.1"'`: {Category: fleet.IncidentVersionRolledBack, Version: "2.4.1"},
		"": {Category: fleet.IncidentVersionRolledBack, Version: "2.4.1", Component: "web"},
	} {
		got := incident.NextOf(&i)
		if got == nil {
			got = &fleet.IncidentNext{}
		}
		if got.Command != want {
			t.Errorf("next of %+v is %q, want %q", i, got.Command, want)
		}
	}
}
