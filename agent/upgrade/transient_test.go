package upgrade

import (
	"fmt"
	"testing"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
)

// The server signs its own files again by itself, and people sign the others.
func TestExpiredFileOfTheServerIsTriedAgain(t *testing.T) {
	for _, role := range []tuf.Role{tuf.RoleRoot, tuf.RoleTargets, tuf.RoleSnapshot, tuf.RoleTimestamp} {
		err := fmt.Errorf("trust: %w", &tuf.ExpiredError{Role: role})
		if got, want := transient(stepPreflight, err), !role.Offline(); got != want {
			t.Errorf("an expired %s is tried again: %v, want %v", role, got, want)
		}
	}
}
