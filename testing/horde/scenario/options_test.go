//go:build linux

package scenario

import (
	"fmt"
	"strings"
	"testing"
)

// The server runs out of descriptors as the agents' processes do: that is known before
// anything is started.
func TestFleetLargerThanAServerIsRefused(t *testing.T) {
	o := Options{Target: Target{Start: true}, Agents: agentsPerServer() + 1}
	if err := o.check(); err == nil || !strings.Contains(err.Error(), "--agents") || !strings.Contains(err.Error(), fmt.Sprint("at most ", agentsPerServer())) {
		t.Errorf("the error is %v, want one that names the largest number of agents", err)
	}
	o.Agents--
	if err := o.check(); err != nil {
		t.Errorf("%d agents are refused: %v", o.Agents, err)
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
