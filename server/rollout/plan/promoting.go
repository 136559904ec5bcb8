package plan

import "github.com/muster-fleet/muster/server/fleet"

// Promoting reports whether a rollout is past the point up to which another one may replace it:
// its canaries are done, and approved if the plan asks for that; or it was promoted by force; or
// it is in lockstep and committed. One that a gate has stopped has failed to promote. Without
// canaries there is no such point, except in lockstep.
func Promoting(r *fleet.Rollout) bool {
	switch {
	case r.State == fleet.RolloutRunning:
	case r.State == fleet.RolloutPaused && (r.Stop == nil || !r.Stop.Kind.Gate()):
	default:
		return false
	}
	return r.Promoted != nil || r.Lockstep.Committed() || canariesPassed(r)
}

// canariesPassed reports whether the rollout has canaries, and all of them are done and approved.
func canariesPassed(r *fleet.Rollout) bool {
	passed := false
	for i := range r.Batches {
		if b := &r.Batches[i]; b.Kind == fleet.BatchCanary {
			if passed = b.ClearedAt != nil; !passed {
				return false
			}
		}
	}
	return passed && (r.Approved != nil || !NeedsApproval(&r.Plan))
}
