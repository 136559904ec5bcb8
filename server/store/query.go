package store

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// QueryTimeout bounds one read of agents by a query that somebody wrote: ten times what a
// question about the metadata of 100,000 hosts takes, and half of what browsers and proxies
// wait for.
const QueryTimeout = 15 * time.Second

// InQueryTime calls read, which evaluates a query, within QueryTimeout. A query that takes
// longer fails for its caller alone: the error is none that means that the store is away.
func InQueryTime(ctx context.Context, read func(context.Context) error) error {
	inTime, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	err := read(inTime)
	if err != nil && inTime.Err() != nil && ctx.Err() == nil {
		return fleet.Errorf(fleet.TooMany, "the query takes more than %s, with the others that run: name its fields, use fewer wildcards, or ask in several steps", QueryTimeout)
	}
	return err
}
