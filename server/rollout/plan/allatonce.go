package plan

import "github.com/muster-fleet/muster/server/fleet"

// allAtOnce has one batch. With force_continue it goes on whatever happens, for a date that cannot be
// moved.
type allAtOnce struct{ Rolling }

func (allAtOnce) Traits() Traits {
	const why = "does nothing in all_at_once: leave it out, or bound max_parallel in limits"
	return Traits{
		Kind: fleet.AllAtOnce, Fields: []string{"force_continue", "skip_validation", "deadline"},
		Refused: map[string]string{"strategy.batch_size": why, "strategy.batch_percent": why},
	}
}

func (allAtOnce) Complete(p *fleet.Plan) { completeBatches(p) }

func (allAtOnce) Batches(_ *fleet.Plan, members []Member) []Cut { return oneBatch(members) }

func oneBatch(members []Member) []Cut {
	return []Cut{{Kind: fleet.BatchRegular, Members: indices(len(members))}}
}
