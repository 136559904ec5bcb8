package elastic

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

// query calls read, which evaluates a query if isQuery is set, within a bounded time.
// Elasticsearch ends a search whose request is closed.
func (g agents) query(ctx context.Context, isQuery bool, read func(context.Context) error) error {
	if !isQuery {
		return read(ctx)
	}
	return store.InQueryTime(ctx, read)
}

func (g agents) List(ctx context.Context, q store.AgentQuery) (out []fleet.Agent, total int, err error) {
	err = g.query(ctx, q.Query != nil, func(ctx context.Context) (err error) {
		out, total, err = g.list(ctx, q)
		return err
	})
	return out, total, err
}

func (g agents) Facts(ctx context.Context, filter store.AgentFilter, f func(string, fleet.StatusFacts)) error {
	return g.query(ctx, filter.Query != nil, func(ctx context.Context) error { return g.facts(ctx, filter, f) })
}

func (g agents) Tally(ctx context.Context, filter store.AgentFilter, q store.TallyQuery) (out store.Tally, err error) {
	err = g.query(ctx, true, func(ctx context.Context) (err error) {
		out, err = g.tally(ctx, filter, q)
		return err
	})
	return out, err
}

func (g agents) Values(ctx context.Context, filter store.AgentFilter, field *kql.Field, prefix string, limit int) (out []string, err error) {
	err = g.query(ctx, true, func(ctx context.Context) (err error) {
		out, err = g.values(ctx, filter, field, prefix, limit)
		return err
	})
	return out, err
}
