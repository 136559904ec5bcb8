package action

import (
	"context"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Query selects one page of actions.
type Query = store.ActionQuery

// Filter selects actions by what no store has an index of.
type Filter struct {
	Types     []agentapi.ActionType // also RollbackType; none: all
	CreatedBy string                // empty: everybody
	Outcomes  []fleet.ActionState   // none: all
}

// RollbackType selects upgrades to a previous version, which have the type UPGRADE.
const RollbackType agentapi.ActionType = "ROLLBACK"

func (f *Filter) isEmpty() bool { return len(f.Types)+len(f.Outcomes) == 0 && f.CreatedBy == "" }

func (f *Filter) has(s *Status) bool {
	typ := s.Type
	if s.Upgrade().Rollback {
		typ = RollbackType
	}
	return (len(f.Types) == 0 || slices.Contains(f.Types, typ)) &&
		(f.CreatedBy == "" || f.CreatedBy == s.CreatedBy) &&
		(len(f.Outcomes) == 0 || slices.Contains(f.Outcomes, s.Outcome()))
}

// Bounds of a filtered list.
const (
	// actionsRead is how many actions are read at one time; one may name 100,000 agents.
	actionsRead = 50
	// maxActionsRead bounds one answer. Older actions are in the audit trail.
	maxActionsRead = 5000
)

// page returns a page of the actions that have what the filter asks for. It reads from the newest
// on until the page is full.
func (f *Filter) page(q Query, read func(Query) ([]Status, error)) ([]Status, error) {
	if f.isEmpty() {
		return read(q)
	}
	var with []Status
	one := q
	one.Limit = actionsRead
	for one.Offset = 0; one.Offset < maxActionsRead && len(with) < q.Offset+q.Limit; one.Offset += actionsRead {
		some, err := read(one)
		if err != nil {
			return nil, err
		}
		for i := range some {
			if f.has(&some[i]) {
				with = append(with, some[i])
			}
		}
		if len(some) < actionsRead {
			break
		}
	}
	return fleet.Part(with, q.Offset, q.Limit), nil
}

// Find returns a page of the actions that a filter selects; unless recent, with orders that are
// being carried out and new revisions of policies, as [Service.ListWithPolicies] has them.
func (s *Service) Find(ctx context.Context, q Query, f Filter, recent bool, errorSize int) ([]Status, error) {
	read := s.ListWithPolicies
	if recent {
		read = s.List
	}
	return f.page(q, func(q Query) ([]Status, error) { return read(ctx, q, errorSize) })
}

// AgentsOf returns the agents of actions. Those that do not exist have none, as in Kibana.
func (s *Service) AgentsOf(ctx context.Context, ids []string) ([]string, error) {
	agents := []string{}
	for _, id := range ids {
		a, err := s.Store.Actions().Get(ctx, id)
		if err != nil && fleet.KindOf(err) != fleet.NotFound {
			return nil, err
		}
		agents = append(agents, a.Agents...)
	}
	return agents, nil
}
