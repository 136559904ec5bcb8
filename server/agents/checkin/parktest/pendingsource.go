package parktest

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/store"
)

// PendingSource reads the store for each agent, for servers without a running action.Feed.
type PendingSource struct{ Actions store.Actions }

var _ checkin.PendingSource = PendingSource{}

// Pending implements checkin.PendingSource.
func (i PendingSource) Pending(ctx context.Context, agentID string, after int64, now time.Time, limit int) (ids []string, upTo int64, err error) {
	list, err := i.Actions.Pending(ctx, agentID, after, now, limit)
	for _, a := range list {
		ids = append(ids, a.ID)
	}
	return ids, after, err
}
