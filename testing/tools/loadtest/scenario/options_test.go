//go:build linux

package scenario

import (
	"fmt"
	"strings"
	"testing"
)

// The descriptor limit of the server's process is checked before anything is started.
func TestMoreAgentsThanTheServerCanHoldAreRefused(t *testing.T) {
	o := Options{LoadedServer: LoadedServer{Start: true}, Agents: agentsPerServer() + 1}
	if err := o.check(); err == nil || !strings.Contains(err.Error(), "--agents") || !strings.Contains(err.Error(), fmt.Sprint("at most ", agentsPerServer())) {
		t.Errorf("the error is %v, want one that names the largest number of agents", err)
	}
	o.Agents--
	if err := o.check(); err != nil {
		t.Errorf("%d agents are refused: %v", o.Agents, err)
	}
}

// Only the scenario behind needs agents that are set apart.
func TestAgentsAreSetApartOnlyForBehind(t *testing.T) {
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
