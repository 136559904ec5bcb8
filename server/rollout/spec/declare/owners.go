package declare

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/spec"
)

// Owners says to which objects agents belong, for orders of operators. The services of actions and
// rollouts, which this package's service needs, have it, so it only reads and writes objects.
type Owners struct{ service *Service }

// NewOwners returns the owners by the objects of a store. Of c only the fields that objects need are
// used: all but Rollouts.
func NewOwners(c Config) *Owners { return &Owners{New(c)} }

var _ action.Owners = (*Owners)(nil)

// Of implements action.Owners. Objects that are suspended own nothing: an operator has taken their
// agents over.
func (o *Owners) Of(ctx context.Context, component string) (func(*fleet.Agent) string, error) {
	all, err := o.service.All(ctx)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	at, err := o.service.queryTime(ctx)
	if err != nil {
		return nil, err
	}
	owners := spec.NewOwners(all, component, at)
	if owners.None() {
		return nil, nil //nolint:nilnil // nobody owns anything
	}
	return func(a *fleet.Agent) string {
		f := owners.Of(&plan.Candidate{Agent: a})
		if f == nil || f.Status.Suspended != nil {
			return ""
		}
		return f.Metadata.Name
	}, nil
}

// TakeOver implements action.Owners: it suspends the object.
func (o *Owners) TakeOver(ctx context.Context, name, actor, why string) error {
	return o.service.suspend(ctx, name, Request{Actor: actor, Why: why})
}
