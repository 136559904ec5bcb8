package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

const (
	// againChunk is how many agents are read at once: some megabytes.
	againChunk = 1_000
	// againName begins the names of what CreateForFailed creates.
	againName = "failed targets of "
)

// CreateForFailed creates a draft with the plan of a rollout that has ended, for those of its
// targets that failed, were rolled back or could not be given the version. Whoever orders it wants
// the version there although it failed: an earlier failure on a host leaves it out no more. A plan
// names at most plan.MaxNamed agents; a second call takes those that are left, since agents that run
// the version by then are not taken.
func (s *Service) CreateForFailed(ctx context.Context, id string, req Request) (fleet.Rollout, error) {
	if err := req.Check(); err != nil {
		return fleet.Rollout{}, err
	}
	r, err := s.Get(ctx, id)
	if err != nil {
		return r, err
	}
	if err := plan.CheckKnown(&r); err != nil {
		return r, err
	}
	switch {
	case r.RollbackOf != "":
		return r, fleet.Errorf(fleet.Conflict, "%s is itself a rollback, in which each host has its own version: roll back again, or make a rollout to the version that they should run", plan.Title(&r))
	case r.State == fleet.RolloutDraft:
		return r, fleet.Errorf(fleet.Conflict, "%s has not been started, so none of its targets has failed", plan.Title(&r))
	case !r.State.Ended():
		return r, fleet.Errorf(fleet.Conflict, "%s has not ended (%s): retry its failed targets with `muster rollouts retry %s --all-failed`", plan.Title(&r), r.State, r.ID)
	}
	var failed []string
	if err := s.Store.Targets().Each(ctx, id, func(t fleet.Target) {
		if t.State == fleet.TargetFailed || t.State == fleet.TargetRolledBack || plan.Refused(&t) {
			failed = append(failed, t.AgentID)
		}
	}); err != nil {
		return r, err
	}
	if len(failed) == 0 {
		return r, fleet.Errorf(fleet.Conflict, "%s has no target that failed", plan.Title(&r))
	}
	var again []string
	for part := range slices.Chunk(failed, againChunk) {
		agents, err := s.Store.Agents().GetMany(ctx, part)
		if err != nil {
			return r, err
		}
		for i := range agents {
			if s := agents[i].Of(r.Plan.Component); agents[i].Active && s.Version != r.Plan.Version {
				again = append(again, agents[i].ID)
			}
		}
	}
	if len(again) == 0 {
		return r, fleet.Errorf(fleet.Conflict, "all targets of %s that failed run %s by now, or are unenrolled", plan.Title(&r), plan.VersionText(r.Plan.Version))
	}
	p := r.Plan
	if named := againName + r.Plan.Name; !strings.HasPrefix(r.Plan.Name, againName) && len(named) <= plan.MaxName {
		p.Name = named
	}
	p.Description = fmt.Sprintf("tries again what failed in rollout %s", r.ID)
	if left := len(again) - plan.MaxNamed; left > 0 {
		again = again[:plan.MaxNamed]
		p.Description += fmt.Sprintf("; %d more follow in another rollout", left)
	}
	p.Select, p.LateJoiners = fleet.Selector{Agents: again}, ""
	p.RetryFailed = true
	return s.create(ctx, fleet.Rollout{ID: fleet.NewID(), Plan: p}, req)
}
