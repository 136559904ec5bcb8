// Package inventory finds, lists and counts the agents of a fleet for people: by queries, at
// points in time, by status and by facet.
package inventory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/cache"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

// Service finds agents.
type Service struct {
	Store store.Store
	// Timeouts returns the inactivity timeouts of the policies, by their ids.
	Timeouts func(context.Context) (map[string]time.Duration, error)
	// Catalog returns the published packages of agents.
	Catalog func(context.Context) (fleet.Catalog, error)
	Now     clock.Clock

	counts  cache.Of[map[fleet.Status]int]
	tallies cache.Of[Tally]
}

// Selection says which agents are meant.
type Selection struct {
	// Kuery selects the agents that the list shows for it, which Inactive includes the inactive
	// ones in. See fleet.SelectAgents.
	Kuery    string
	Inactive bool
	// Field is the field of the request that has Kuery, for errors; empty: query.kuery.
	Field string
	// Policy and Policies select agents of policies by their ids; empty: of all.
	Policy   string
	Policies []string
	// With has to match, too; nil: it does not exist.
	With kql.Filter
}

// Found are the agents of a selection at one moment, as a filter of the store.
type Found struct {
	Filter   store.AgentFilter
	Timeouts map[string]time.Duration // by which statuses are derived
	Now      time.Time
}

// Find compiles a selection.
func (s *Service) Find(ctx context.Context, sel Selection) (Found, error) {
	return s.findAt(ctx, sel, s.Now.UTC())
}

func (s *Service) findAt(ctx context.Context, sel Selection, now time.Time) (Found, error) {
	timeouts, err := s.Timeouts(ctx)
	if err != nil {
		return Found{}, err
	}
	q, err := fleet.SelectAgents(sel.Kuery, sel.Inactive, timeouts, now)
	if err != nil {
		return Found{}, fleet.QueryError(cmp.Or(sel.Field, "query.kuery"), err)
	}
	if len(sel.Policies) > 0 {
		q = kql.AllOf{fleet.OfPolicies(sel.Policies), q}
	}
	if sel.With != nil {
		q = kql.AllOf{q, sel.With}
	}
	return Found{store.AgentFilter{PolicyID: sel.Policy, Query: q}, timeouts, now}, nil
}

// key identifies a selection in the caches. It leaves With out, which is empty there.
func (sel Selection) key(timeouts map[string]time.Duration) string {
	return fmt.Sprintf("%q %t %q %q %v", sel.Kuery, sel.Inactive, sel.Policy, sel.Policies, timeouts)
}

// Get returns an agent.
func (s *Service) Get(ctx context.Context, id string) (fleet.Agent, error) {
	a, err := s.Store.Agents().Get(ctx, id)
	if fleet.KindOf(err) == fleet.NotFound {
		err = fleet.Errorf(fleet.NotFound, "Agent %s not found", id)
	}
	return a, err
}

// Many returns those of the agents that exist, in the order of their ids.
func (s *Service) Many(ctx context.Context, ids []string) ([]fleet.Agent, error) {
	return s.Store.Agents().GetMany(ctx, ids)
}

// IDs returns the sorted ids of the agents of a selection, all at one moment.
func (s *Service) IDs(ctx context.Context, sel Selection) ([]string, error) {
	found, err := s.Find(ctx, sel)
	if err != nil {
		return nil, err
	}
	var ids []string
	err = s.Store.Agents().Facts(ctx, found.Filter, func(id string, _ fleet.StatusFacts) { ids = append(ids, id) })
	slices.Sort(ids)
	return ids, err
}

// Inactive counts the inactive agents of a query that are not among the sorted ids, and returns
// some of them.
func (s *Service) Inactive(ctx context.Context, sel Selection, ids []string, sample int) (n int, some []fleet.Agent, err error) {
	sel.Kuery, sel.Inactive = "("+sel.Kuery+") and status:"+string(fleet.StatusInactive), true
	all, err := s.IDs(ctx, sel)
	if err != nil {
		return 0, nil, err
	}
	left := slices.DeleteFunc(all, func(id string) bool { _, is := slices.BinarySearch(ids, id); return is })
	if len(left) == 0 {
		return 0, nil, nil
	}
	some, err = s.Many(ctx, left[:min(sample, len(left))])
	return len(left), some, err
}

// Each calls f with each agent that was found.
func (s *Service) Each(ctx context.Context, found Found, f func(fleet.Agent)) error {
	return s.Store.Agents().Each(ctx, found.Filter, f)
}

// Pages returns the agents that were found, by host name and page by page: the first page may be
// empty. An error is the last page.
func (s *Service) Pages(ctx context.Context, found Found, size int) iter.Seq2[[]fleet.Agent, error] {
	return func(yield func([]fleet.Agent, error) bool) {
		q := store.AgentQuery{AgentFilter: found.Filter, Sort: store.ByHostname, Limit: size}
		for {
			page, _, err := s.Store.Agents().List(ctx, q)
			if !yield(page, err) || err != nil || len(page) < size {
				return
			}
			last := q.Sort.Position(&page[len(page)-1])
			q.After = &last
		}
	}
}

// maxTags bounds the list of tags: a longer one is of no use.
const maxTags = 10_000

// Tags returns the tags of the agents of a selection.
func (s *Service) Tags(ctx context.Context, sel Selection) ([]string, error) {
	found, err := s.Find(ctx, sel)
	if err != nil {
		return nil, err
	}
	return s.Store.Agents().Values(ctx, found.Filter, fleet.FieldTags, "", maxTags)
}

const (
	// suggestedValues is how many values are suggested: users continue to type rather than read
	// more.
	suggestedValues = 20
	// suggestTimeout bounds the search for values: by then the user has typed on. Most fields
	// take less; host names of large fleets may take longer.
	suggestTimeout = 2 * time.Second
)

// Suggest returns how a query can continue at the cursor.
func (s *Service) Suggest(ctx context.Context, query string, cursor int) ([]kql.Completion, error) {
	out := kql.Suggest(query, cursor, fleet.AgentSchema(nil))
	if want := out.Values; want != nil {
		ctx, cancel := context.WithTimeout(ctx, suggestTimeout)
		defer cancel()
		values, err := s.Store.Agents().Values(ctx, store.AgentFilter{}, want.Field, want.Prefix, suggestedValues)
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		for _, v := range values {
			out.Completions = append(out.Completions, want.Complete(v))
		}
	}
	return out.Completions, nil
}
