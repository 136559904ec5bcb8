package rollout

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
)

// maxCaused bounds the failed targets that are read for the causes of a rollout. A rollout stops
// long before, unless it is forced; then the causes are those of the first so many.
const maxCaused = 10_000

// Overview returns what operators see of a rollout besides its document. Failures are read only
// if there are some.
func (s *Service) Overview(ctx context.Context, r *fleet.Rollout) (o plan.Overview, err error) {
	if o.Commands, err = s.Commands(ctx, r); err != nil || r.StartedAt == nil {
		return o, err
	}
	freezes, _, err := s.Store.Freezes().List(ctx, 0, 0)
	if err != nil {
		return o, err
	}
	pace := plan.PaceOf(r, freezes, s.Now.UTC())
	o.Pace, o.WouldStop = &pace, plan.WouldStop(r)
	if r.Counts.Bad() == 0 {
		return o, nil
	}
	failed, _, err := s.Store.Targets().List(ctx, store.TargetQuery{
		RolloutID: r.ID, States: []fleet.TargetState{fleet.TargetFailed, fleet.TargetRolledBack}, Limit: maxCaused,
	})
	var causes plan.Causes
	for i := range failed {
		causes.Add(&failed[i])
	}
	o.Causes = causes.List()
	return o, err
}
