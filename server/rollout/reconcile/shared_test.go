package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// A target whose identity several hosts have since the rollout was started is left out, with both
// names: an offer of it would be refused again and again.
func TestTargetThatSeveralHostsAreIsSkipped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	shared := w.order[1]
	w.start("r", rolling(nil))
	b := func(name string) fleet.Bearer {
		return fleet.Bearer{ProcessID: name, Hostname: name, Since: w.now.Add(-time.Hour), Again: w.now}
	}
	_, err := store.UpdateAgent(t.Context(), w.store.Agents(), shared, func(a *fleet.Agent) bool {
		a.Bearers, a.SharedSince = []fleet.Bearer{b("web-1"), b("web-1-copy")}, &w.now
		return true
	})
	w.must(err)
	w.until("r", 10*time.Minute, over)
	if got := w.target("r", shared); got.State != fleet.TargetSkipped || !strings.Contains(got.Error, "web-1 and web-1-copy") || got.Attempts > 1 {
		t.Errorf("the target is %+v", got)
	}
}
