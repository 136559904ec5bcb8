package action

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// ListWithPolicies is List with orders that are being carried out, and with new revisions of
// policies among the actions, as in Kibana:
// each revision of a policy except its first is a POLICY_CHANGE, which counts the policy's
// agents, and those of them that have this revision or a later one. Policies keep their
// latest revisions only, so the list of actions goes further back.
func (s *Service) ListWithPolicies(ctx context.Context, q store.ActionQuery, errorSize int) ([]Status, error) {
	policies, _, err := s.Store.Policies().List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	orders, err := s.preparing(ctx) // before the actions, so that an order is in one of the lists
	if err != nil {
		return nil, err
	}
	changes := newestFirst(policyChanges(policies, q.From, q.Until), createdBetween(orders, q.From, q.Until), math.MaxInt)
	before, err := changesBefore(changes, q.Offset, func(i int) (*time.Time, error) {
		one := q
		one.Offset, one.Limit, one.Except = i, 1, append(slices.Clone(q.Except), notListed...)
		list, err := s.Store.Actions().List(ctx, one)
		if err != nil || len(list) == 0 {
			return nil, err
		}
		return &list[0].CreatedAt, nil
	})
	if err != nil {
		return nil, err
	}
	q.Offset -= before
	actions, err := s.List(ctx, q, errorSize)
	if err != nil {
		return nil, err
	}
	changes = slices.DeleteFunc(changes[before:], func(c Status) bool { // its action was created meanwhile
		return c.Preparing != nil && slices.ContainsFunc(actions, func(a Status) bool { return a.ID == c.ID })
	})
	page := newestFirst(actions, changes, q.Limit)
	return page, s.countPolicies(ctx, page)
}

// policyChanges returns the POLICY_CHANGEs at or between two times, newest first. They are
// not counted yet.
func policyChanges(policies []fleet.Policy, from, until *time.Time) []Status {
	var out []Status
	for i := range policies {
		p := &policies[i]
		for _, r := range p.Revisions {
			if r.Revision == 1 || from != nil && r.At.Before(*from) || until != nil && r.At.After(*until) {
				continue
			}
			at := fleet.PolicyAt{ID: p.ID, Revision: r.Revision}
			out = append(out, Status{
				Action: fleet.Action{ID: fmt.Sprintf("%s:%d", at.ID, at.Revision), Type: agentapi.ActionPolicyChange, CreatedAt: r.At, CreatedBy: r.By},
				Policy: at,
				Errors: []fleet.Result{},
			})
		}
	}
	slices.SortFunc(out, func(a, b Status) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.Policy.ID, b.Policy.ID), cmp.Compare(b.Policy.Revision, a.Policy.Revision))
	})
	return out
}

// createdBetween returns the statuses of the actions that were ordered at or between two times.
func createdBetween(list []Status, from, until *time.Time) []Status {
	return slices.DeleteFunc(list, func(st Status) bool {
		return from != nil && st.CreatedAt.Before(*from) || until != nil && st.CreatedAt.After(*until)
	})
}

// policyChange returns the POLICY_CHANGE of an id, or missing if there is none.
func (s *Service) policyChange(ctx context.Context, id string, missing error) (Status, error) {
	policies, _, err := s.Store.Policies().List(ctx, 0, 0)
	if err != nil {
		return Status{}, err
	}
	changes := policyChanges(policies, nil, nil)
	i := slices.IndexFunc(changes, func(st Status) bool { return st.ID == id })
	if i < 0 {
		return Status{}, missing
	}
	return changes[i], s.countPolicies(ctx, changes[i:i+1])
}

// changesBefore returns how many of the changes are among the first entries, up to offset, of
// the list of changes and actions. createdAt returns when the action at an index of the list
// of actions was created, nil if there are not so many. It is called for a few actions only,
// since one may name 100,000 agents.
func changesBefore(changes []Status, offset int, createdAt func(i int) (*time.Time, error)) (int, error) {
	var failed error
	n := sort.Search(min(len(changes), offset), func(n int) bool {
		if failed != nil {
			return true
		}
		// The change at n comes later than the first entries if n changes and offset-n actions
		// fill them.
		at, err := createdAt(offset - n - 1)
		failed = err
		return at != nil && !at.Before(changes[n].CreatedAt)
	})
	return n, failed
}

// newestFirst merges actions and changes, of which an action comes first if the times are
// equal, and returns at most limit of them.
func newestFirst(actions, changes []Status, limit int) []Status {
	out := make([]Status, 0, min(limit, len(actions)+len(changes)))
	for len(out) < limit && len(actions)+len(changes) > 0 {
		from := &actions
		if len(actions) == 0 || len(changes) > 0 && actions[0].CreatedAt.Before(changes[0].CreatedAt) {
			from = &changes
		}
		out = append(out, (*from)[0])
		*from = (*from)[1:]
	}
	return out
}

// countPolicies counts the agents of the POLICY_CHANGEs among the statuses.
func (s *Service) countPolicies(ctx context.Context, statuses []Status) error {
	if !slices.ContainsFunc(statuses, func(st Status) bool { return st.Type == agentapi.ActionPolicyChange }) {
		return nil
	}
	agents, err := s.Store.Agents().CountPolicies(ctx)
	if err != nil {
		return err
	}
	for i := range statuses {
		st := &statuses[i]
		if st.Type != agentapi.ActionPolicyChange {
			continue
		}
		for has, n := range agents {
			if has.ID != st.Policy.ID {
				continue
			}
			st.Actioned += n
			if has.Revision >= st.Policy.Revision {
				st.Counts.Acked += n
			}
		}
		st.State = fleet.ActionInProgress
		if st.Counts.Acked == st.Actioned {
			st.State = fleet.ActionComplete
		}
	}
	return nil
}
