package agentapi_test

import (
	"testing"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestLockstepPhasesAreInOrder(t *testing.T) {
	all := append([]agentapi.LockstepPhase{""}, agentapi.LockstepPhases...)
	for i, p := range all {
		for j, other := range all {
			if p.Reaches(other) != (i >= j) {
				t.Errorf("%q reaches %q: %v", p, other, p.Reaches(other))
			}
		}
		if err := p.Valid(); (err == nil) != (p != "") {
			t.Errorf("%q: %v", p, err)
		}
	}
	if err := agentapi.LockstepPhase("later").Valid(); err == nil {
		t.Error("an unknown phase is valid")
	}
}
