package reconcile

import (
	"context"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
)

// join adds agents that match the selector only since the start, as a last batch of
// their own.
func (r *Reconciler) join(ctx context.Context, run *runState) error {
	agents, err := r.store.Agents().GetMany(ctx, run.joining)
	run.joining = nil
	if err != nil {
		return err
	}
	p := &run.rollout.Plan
	catalog, err := r.actions.CatalogOf(ctx, p.Component)
	if err != nil {
		return err
	}
	chosen, err := r.selector(ctx, p)
	switch {
	case err != nil && fleet.KindOf(err) == fleet.Invalid:
		// A server of another version accepted the query.
		r.log.Warn("nobody joins the rollout", "rollout", run.rollout.ID, "error", err)
		return nil
	case err != nil:
		return err
	}
	wish := fleet.UpgradeRequest{Version: p.Version, SourceURI: p.SourceURI, Force: p.Force, Retry: p.RetryFailed}
	agents = slices.DeleteFunc(agents, func(a fleet.Agent) bool {
		s := a.Of(p.Component)
		return !chosen.MatchesAgent(&a) || s.Version == p.Version || s.Busy() || plan.Of(p).Place(p, &plan.Candidate{Agent: &a}).Out != "" ||
			(p.SourceVersion != "" && s.Version != p.SourceVersion) || s.CheckUpgrade(wish, catalog) != nil
	})
	policies, err := store.PoliciesWith(ctx, r.store.Policies(), p.Component)
	if err != nil {
		return err
	}
	configs := r.configsOf(ctx, p, policies, agents)
	if p.Component != "" {
		agents = slices.DeleteFunc(agents, func(a fleet.Agent) bool { _, ok := configs[a.ID]; return !ok })
	}
	if agents, err = r.lock(ctx, run, agents); err != nil {
		return err
	}
	agents = agents[:min(len(agents), max(0, fleet.MaxTargets-len(run.targets)))]
	if len(agents) == 0 {
		return nil
	}
	next := run.rollout
	next.Batches = slices.Clone(next.Batches)
	last := len(next.Batches) - 1
	if last < 0 || next.Batches[last].Kind != fleet.BatchLate || next.Batches[last].EndedAt != nil {
		if len(next.Batches) >= fleet.MaxBatches {
			return nil // full: they would need a rollout of their own
		}
		last++
		next.Batches = append(next.Batches, fleet.Batch{Index: last, Kind: fleet.BatchLate})
	}
	for i := range agents {
		if !slices.Contains(next.Policies, agents[i].PolicyID) {
			next.Policies = append(slices.Clip(next.Policies), agents[i].PolicyID)
		}
	}
	// The batch is written before its targets; an empty one ends by itself.
	if len(next.Batches) != len(run.rollout.Batches) || len(next.Policies) != len(run.rollout.Policies) {
		if err := r.save(ctx, run, next, r.now.UTC()); err != nil {
			return err
		}
	}
	targets := make([]fleet.Target, len(agents))
	for i := range agents {
		targets[i] = lateTarget(&run.rollout, &agents[i], last, len(run.targets)+i)
		targets[i].Config = configs[agents[i].ID]
		if policy, ok := policies[agents[i].PolicyID]; ok {
			targets[i].Observes = fleet.Duration(policy.Component(p.Component).Health.Wait())
		}
		plan.ChangeState(&targets[i], fleet.TargetPending, "", "", r.now.UTC())
	}
	if err := r.store.Targets().Create(ctx, targets); err != nil {
		return err
	}
	ids := make([]string, len(agents))
	for i := range agents {
		ids[i] = agents[i].ID
	}
	stored, err := r.store.Targets().GetMany(ctx, run.rollout.ID, ids)
	if err != nil {
		return err
	}
	now := r.now.UTC()
	for i := range stored {
		run.add(stored[i])
		run.updateAvailability(run.byAgent[stored[i].AgentID], &agents[slices.IndexFunc(agents, func(a fleet.Agent) bool { return a.ID == stored[i].AgentID })], now)
	}
	return nil
}

// selector returns the plan's selector as of now.
func (r *Reconciler) selector(ctx context.Context, p *fleet.Plan) (s plan.Selector, err error) {
	at := plan.QueryTime{Now: r.now.UTC()}
	if r.policies != nil {
		if at.Timeouts, err = r.policies.Timeouts(ctx); err != nil {
			return s, err
		}
	}
	return plan.NewSelector(&p.Select, at)
}

func lateTarget(r *fleet.Rollout, a *fleet.Agent, batch, place int) fleet.Target {
	return fleet.Target{
		RolloutID: r.ID, AgentID: a.ID, Hostname: a.Hostname(), Batch: batch, Place: place, Ring: plan.Of(&r.Plan).Place(&r.Plan, &plan.Candidate{Agent: a}).Ring,
		From: a.Of(r.Plan.Component).Version, To: r.Plan.Version, Site: a.Label(fleet.SiteLabel), Policy: a.PolicyID, Values: limitValues(&r.Plan, a),
	}
}

// lock locks the policies of agents to the rollout, and leaves out agents whose policy
// another rollout holds.
func (r *Reconciler) lock(ctx context.Context, run *runState, agents []fleet.Agent) ([]fleet.Agent, error) {
	has := map[string]bool{}
	for _, p := range run.rollout.Policies {
		has[p] = true
	}
	for i := range agents {
		policy := agents[i].PolicyID
		if _, known := has[policy]; known {
			continue
		}
		err := r.store.PolicyLocks().Create(ctx, fleet.PolicyLock{PolicyID: policy, Component: run.rollout.Plan.Component, RolloutID: run.rollout.ID, At: r.now.UTC()})
		if err != nil && fleet.KindOf(err) == fleet.Conflict {
			lock, err := r.store.PolicyLocks().Get(ctx, fleet.LockKey(policy, run.rollout.Plan.Component))
			if err != nil && fleet.KindOf(err) != fleet.NotFound {
				return nil, err
			}
			has[policy] = err == nil && lock.RolloutID == run.rollout.ID // locked before a crash
			continue
		}
		if err != nil {
			return nil, err
		}
		has[policy] = true
	}
	return slices.DeleteFunc(agents, func(a fleet.Agent) bool { return !has[a.PolicyID] }), nil
}
