package action

import (
	"context"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Status is an action with its state and its results, or a POLICY_CHANGE, which has no
// document.
type Status struct {
	fleet.Action
	// Policy is the revision of a POLICY_CHANGE; zero for other types.
	Policy fleet.PolicyAt
	State  fleet.ActionState
	Counts fleet.ResultCounts
	// Progress counts the agents of an UPGRADE by how it stands on them.
	Progress map[fleet.ProgressState]int
	// Causes count those on which it ended badly by the reason.
	Causes map[fleet.End]int
	// Unended is how many agents' upgrade has not ended, whatever they have acknowledged.
	Unended int
	Errors  []fleet.Result
	// Preparing is set while the order is being carried out. Then the action does not exist yet.
	Preparing *Preparing
}

// Done returns how many agents are done: of an upgrade, their watchers have committed.
func (s Status) Done() int {
	if s.Type == agentapi.ActionUpgrade {
		return s.Progress[fleet.ProgressCommitted]
	}
	return s.Counts.Acked
}

// Outcome is State, except that an upgrade is over only when it has ended on every agent.
func (s Status) Outcome() fleet.ActionState { return s.State.Outcome(s.Unended) }

// Stoppable returns on how many agents the upgrade has not ended, and their hosts do not run its
// version yet.
func (s Status) Stoppable() int { return s.Unended - s.Progress[fleet.ProgressWatching] }

// notListed are the types of actions that are not listed: a CANCEL shows in the state of the
// action that it cancels.
var notListed = []agentapi.ActionType{agentapi.ActionCancel}

// List returns the statuses of the actions that q selects, newest first, except notListed.
func (s *Service) List(ctx context.Context, q store.ActionQuery, errorSize int) ([]Status, error) {
	q.Except = append(slices.Clone(q.Except), notListed...)
	actions, err := s.Store.Actions().List(ctx, q)
	if err != nil {
		return nil, err
	}
	return s.statuses(ctx, actions, errorSize)
}

// Status returns the status of one action, or of a new revision of a policy.
func (s *Service) Status(ctx context.Context, id string, errorSize int) (Status, error) {
	prepared, err := s.preparingAction(ctx, id)
	if err != nil {
		return Status{}, err
	}
	a, err := s.Store.Actions().Get(ctx, id)
	switch {
	case fleet.KindOf(err) == fleet.NotFound && prepared != nil:
		return *prepared, nil
	case fleet.KindOf(err) == fleet.NotFound:
		return s.policyChange(ctx, id, err)
	}
	if err != nil {
		return Status{}, err
	}
	list, err := s.statuses(ctx, []fleet.Action{a}, errorSize)
	if err != nil {
		return Status{}, err
	}
	return list[0], nil
}

// statuses returns the status of each action, with at most errorSize errors.
func (s *Service) statuses(ctx context.Context, actions []fleet.Action, errorSize int) ([]Status, error) {
	ids := make([]string, len(actions))
	for i, a := range actions {
		ids[i] = a.ID
	}
	counts, err := s.Store.Results().Counts(ctx, ids)
	if err != nil {
		return nil, err
	}
	now := s.Now.UTC()
	out := make([]Status, len(actions))
	for i, a := range actions {
		out[i] = Status{Action: a, Counts: counts[a.ID], Errors: []fleet.Result{}}
	}
	if err := s.countProgress(ctx, out, now); err != nil {
		return nil, err
	}
	for i := range out {
		st := &out[i]
		st.State = st.StateAt(st.Counts, now)
		if st.Counts.Failed > 0 && errorSize > 0 {
			if st.Errors, err = s.Store.Results().Errors(ctx, st.ID, errorSize); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
