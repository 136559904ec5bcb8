package store

import (
	"context"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
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

// Matching returns the documents of a small kind that match a query; values returns those of a field.
func Matching[T any](ctx context.Context, all Collection[T], f kql.Filter, values func(*T, *kql.Field) []any) ([]T, error) {
	list, _, err := all.List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(v T) bool {
		return !kql.Match(f, func(field *kql.Field) []any { return values(&v, field) })
	}), nil
}
