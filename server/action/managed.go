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
			return fleet.Errorf(fleet.Invalid, says, a.ID, a.PolicyID)
		}
		return err
	}, err
}
