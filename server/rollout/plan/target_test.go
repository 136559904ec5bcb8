package plan

import (
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
)

// State has the order of fleet.TargetStates, and each state its own counter.
func TestStatesAreThoseOfDocuments(t *testing.T) {
	t.Parallel()
	want := [...]State{Pending, Held, Offered, Upgrading, Verifying, Succeeded, Failed, RolledBack, Withdrawn, Skipped, Expired, Cancelled}
	var c targetCounts
	for i, name := range fleet.TargetStates {
		if StateOf(name) != want[i] || want[i].Name() != name || want[i].InFlight() != name.InFlight() {
			t.Errorf("%s is the state %d", name, StateOf(name))
		}
		c[i] = i + 1
	}
	counts := c.counts()
	for i, name := range fleet.TargetStates {
		if n := counts.Of(name); *n != i+1 {
			t.Errorf("%d targets are %s, want %d", *n, name, i+1)
		}
	}
	if len(want) != len(fleet.TargetStates) || counts.Failed != 7 || counts.Cancelled != 12 || counts.Total != 78 {
		t.Errorf("the counts are %+v", counts)
	}
}
