package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// statusCounts caches counts of statuses.
type statusCounts = cache[map[fleet.Status]int]

// countStatuses returns store.CountStatuses of a filter, which was made from kuery. The
// counts are at most countsFreshFor old. The map is shared: do not change it.
func (h *Handlers) countStatuses(ctx context.Context, filter store.AgentFilter, kuery string, inactive bool, timeouts map[string]time.Duration) (map[fleet.Status]int, error) {
	key := fmt.Sprintf("%q %q %q %t %v", filter.PolicyID, filter.VersionBelow, kuery, inactive, timeouts)
	return h.counts.get(ctx, key, h.Now.UTC(), func(ctx context.Context, now time.Time) (map[fleet.Status]int, error) {
		return store.CountStatuses(ctx, h.Store.Agents(), filter, timeouts, now)
	})
}
