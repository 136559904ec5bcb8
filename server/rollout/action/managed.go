package action

import (
	"context"
	"errors"

	"github.com/muster-fleet/muster/server/fleet"
)

// unlessManaged returns a check that also refuses the agents of managed policies, as Kibana
// does. says is the refusal; its arguments are the ids of the agent and of the policy.
func (s *Service) unlessManaged(ctx context.Context, check func(*fleet.Agent) error, says string) (func(*fleet.Agent) error, error) {
	policies, _, err := s.Store.Policies().List(ctx, 0, 0)
	managed := map[string]bool{}
	for i := range policies {
		managed[policies[i].ID] = policies[i].Managed
	}
	return func(a *fleet.Agent) error {
		err := check(a)
		if managed[a.PolicyID] && (err == nil || errors.As(err, new(noPackage))) {
			return fleet.Errorf(fleet.Invalid, says, a.ID, a.PolicyID).Because(fleet.CauseManaged)
		}
		return err
	}, err
}

// managedForceable returns check for orders that include the agents of managed policies with force.
func managedForceable(check func(*fleet.Agent) error) func(*fleet.Agent) error {
	return func(a *fleet.Agent) error {
		err := check(a)
		var refused *fleet.Error
		if errors.As(err, &refused) && refused.Cause == fleet.CauseManaged {
			refused.Forceable = true // it is of this agent alone
		}
		return err
	}
}
