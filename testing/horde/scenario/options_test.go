//go:build linux

package scenario

import (
	"strings"
	"testing"
)

// A server runs out of descriptors as the agents' processes do: that is known before
// anything is started.
func TestServersThatCannotHoldTheFleetAreRefused(t *testing.T) {
	o := Options{Target: Target{Start: true, Replicas: 2}, Agents: 2*agentsPerProcess() + 1}
	if err := o.check(); err == nil || !strings.Contains(err.Error(), "--replicas") || !strings.Contains(err.Error(), "so want 3") {
		t.Errorf("the error is %v, want one that asks for 3 replicas", err)
	}
	o.Replicas = 3
	if err := o.check(); err != nil {
		t.Errorf("3 servers are refused: %v", err)
	}
}

// Whoever is apart is not in the way of the others, and is there only for the
// scenario that needs it.
func TestOnlyBehindSetsAgentsApart(t *testing.T) {
	for _, c := range []struct {
		agents, want int
		name         string
	}{
		{18_000, apartAgents, "behind"}, {50, 5, "behind"}, {2, 1, "behind"}, {1, 0, "behind"}, {18_000, 0, "upgrade-all"},
	} {
		if got := (&Options{Agents: c.agents}).apart([]string{"park", c.name}); got != c.want {
			t.Errorf("for %s %d of %d agents are apart, want %d", c.name, got, c.agents, c.want)
		}
	}
}
