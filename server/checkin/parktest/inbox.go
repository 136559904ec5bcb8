package parktest

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/checkin"
	"github.com/muster-fleet/muster/server/store"
)

// Inbox asks the store for each agent: for servers without an action.Feed that runs.
type Inbox struct{ Actions store.Actions }

var _ checkin.Inbox = Inbox{}

// Pending implements checkin.Inbox.
func (i Inbox) Pending(ctx context.Context, agentID string, after int64, now time.Time, limit int) (ids []string, upTo int64, err error) {
	list, err := i.Actions.Pending(ctx, agentID, after, now, limit)
	for _, a := range list {
		ids = append(ids, a.ID)
	}
	return ids, after, err
}
