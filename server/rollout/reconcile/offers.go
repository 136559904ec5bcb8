package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// offerID returns the id of an offer's action. Numbers are not reused, so an action
// belongs to one offer.
func offerID(rolloutID string, generation int64, n int) string {
	return fmt.Sprintf("%s-g%d-%d", rolloutID, generation, n)
}

// renewEvery is after how many actions of a round the lease is renewed: each takes some
// milliseconds, and hosts with configuration of their own have one each.
const renewEvery = 100

// offer offers the version to targets: it writes the action's id to their documents,
// then creates the action.
func (r *Reconciler) offer(ctx context.Context, run *runState, which []int32, now time.Time) error {
	if len(which) == 0 {
		return nil
	}
	changes, err := r.documents(ctx, run, which)
	if err != nil {
		return err
	}
	artifacts, err := r.artifacts(ctx, run, which)
	if err != nil {
		return err
	}
	type kind struct {
		to       string
		rollback bool
		retried  bool
		artifact int
		config   string
		observes fleet.Duration
	}
	var kinds []kind
	groups := map[kind][]update{}
	for _, c := range changes {
		k := kind{c.target.To, c.target.Rollback, c.target.Retried, artifacts[c.index], c.target.Config, c.target.Observes}
		if groups[k] == nil {
			kinds = append(kinds, k)
		}
		groups[k] = append(groups[k], c)
	}
	for _, k := range kinds {
		for part := range slices.Chunk(groups[k], action.MaxAgents) {
			run.lastOffer++
			id := offerID(run.rollout.ID, run.rollout.Generation, run.lastOffer)
			for i := range part {
				t := &part[i].target
				if t.ActionID != "" {
					t.ActionIDs = append(slices.Clip(t.ActionIDs), t.ActionID)
				}
				t.ActionID, t.Phase, t.HostPhase, t.Reached, t.OfferedAt, t.ReachedAt, t.SignAt = id, "", "", "", &now, nil, nil
				t.Attempts++
				plan.ChangeState(t, fleet.TargetOffered, "", "", now)
				run.pendingOffers[id] = append(run.pendingOffers[id], part[i].index)
			}
			if err := r.write(ctx, run, part); err != nil {
				return err
			}
		}
	}
	return r.makeOffers(ctx, run)
}

// makeOffers creates the actions of offers that are written.
func (r *Reconciler) makeOffers(ctx context.Context, run *runState) error {
	for n, id := range slices.Sorted(maps.Keys(run.pendingOffers)) {
		if n%renewEvery == renewEvery-1 {
			if err := r.renewLease(ctx, run); err != nil {
				return err
			}
		}
		var which []int32
		var ids []string
		var t *fleet.Target
		for _, i := range run.pendingOffers[id] {
			if f := run.tracked[i]; f != nil && f.target.State == fleet.TargetOffered && f.target.ActionID == id {
				which, ids, t = append(which, i), append(ids, run.targets[i].AgentID), &f.target
			}
		}
		if len(which) > 0 {
			p := &run.rollout.Plan
			data, err := r.componentData(ctx, run, which)
			if errors.Is(err, plan.ErrNoArtifact) || errors.Is(err, plan.ErrConfigChanged) {
				refused := make(map[string]error, len(ids))
				for _, id := range ids {
					refused[id] = err
				}
				if err := r.refused(ctx, run, which, refused); err != nil {
					return err
				}
				delete(run.pendingOffers, id)
				continue
			}
			if err != nil {
				return err
			}
			if data != nil { // what the deadline of the verification counts on
				data.Health.WaitSeconds = int(t.Observes.D() / time.Second)
			}
			refused, err := r.actions.Offer(ctx, action.Offer{
				ID: id, Rollback: t.Rollback, Component: data, AgentIDs: ids, Expiration: t.OfferedAt.Add(plan.OfferFor(p)), Actor: "rollout " + p.Name, Rollout: &fleet.RolloutRef{ID: run.rollout.ID, Name: p.Name}, By: run.rollout.StartedBy, Automatic: run.rollout.Automatic,
				UpgradeRequest: fleet.UpgradeRequest{Version: t.To, SourceURI: p.SourceURI, Force: p.Force || run.rollout.RollbackOf != "" && !t.Rollback, Retry: p.RetryFailed || t.Retried},
			})
			if err != nil {
				return err
			}
			if err := r.refused(ctx, run, which, refused); err != nil {
				return err
			}
		}
		delete(run.pendingOffers, id)
	}
	return nil
}

// refused writes the new states of targets whose agents could not take the offer.
func (r *Reconciler) refused(ctx context.Context, run *runState, which []int32, refused map[string]error) error {
	which = slices.DeleteFunc(which, func(i int32) bool { return refused[run.targets[i].AgentID] == nil })
	if len(which) == 0 {
		return nil
	}
	now := r.now.UTC()
	changes, err := r.documents(ctx, run, which)
	if err != nil {
		return err
	}
	agents, err := r.agents(ctx, run, which)
	if err != nil {
		return err
	}
	for k := range changes {
		t, i := &changes[k].target, changes[k].index
		a, why := agents[run.targets[i].AgentID], refused[run.targets[i].AgentID]
		run.updateAvailability(i, a, now)
		subject := fleet.NoSubject()
		if a != nil {
			subject = a.Of(run.rollout.Plan.Component)
		}
		switch {
		case plan.Gone(a) != "":
			plan.ChangeState(t, fleet.TargetCancelled, fleet.WhyGone, why.Error(), now)
		case !run.mayGoOn(&subject, now) && has(&subject, t):
			plan.ChangeState(t, fleet.TargetSkipped, fleet.WhySame, why.Error(), now)
		case run.busy(&subject, now), errors.Is(why, action.ErrOtherOffer), fleet.KindOf(why) == fleet.Unavailable,
			fleet.KindOf(why) == fleet.Conflict && !isShared(why): // the hosts of one identity do not become one by another try
			// The offer did not reach the agent, so the attempt does not count.
			t.ActionID, t.OfferedAt, t.Attempts = "", nil, t.Attempts-1
			if n := len(t.ActionIDs); n > 0 {
				t.ActionID, t.ActionIDs = t.ActionIDs[n-1], t.ActionIDs[:n-1]
			}
			code := fleet.ReasonCode("")
			if run.busy(&subject, now) {
				code = fleet.WhyBusy
			}
			plan.ChangeState(t, fleet.TargetPending, code, "", now)
		default:
			plan.ChangeState(t, fleet.TargetSkipped, plan.RefusalCode(why), why.Error(), now)
		}
	}
	r.Signal() // other targets may be offered instead
	return r.write(ctx, run, changes)
}

// isShared reports whether an agent is refused since several hosts have its identity.
func isShared(err error) bool {
	var refused *fleet.Error
	return errors.As(err, &refused) && refused.Cause == fleet.CauseShared
}

// withdrawal is why offers are withdrawn, and the states of their targets afterwards.
type withdrawal struct {
	why   string
	state fleet.TargetState
	code  fleet.ReasonCode
}

// withdraw withdraws offers, then writes that it has. If the write is lost, the targets
// are still offered, and the next round withdraws them again.
func (r *Reconciler) withdraw(ctx context.Context, run *runState, which []int32, w withdrawal) error {
	if len(which) == 0 {
		return nil
	}
	changes, err := r.documents(ctx, run, which)
	if err != nil {
		return err
	}
	if err := r.withdrawOffers(ctx, run, changes, w.why); err != nil {
		return err
	}
	now := r.now.UTC()
	for k := range changes {
		plan.ChangeState(&changes[k].target, w.state, w.code, w.why, now)
	}
	return r.write(ctx, run, changes)
}

// withdrawOffers withdraws the offers of targets from their agents.
func (r *Reconciler) withdrawOffers(ctx context.Context, run *runState, changes []update, why string) error {
	byAction := map[string][]string{}
	for _, c := range changes {
		byAction[c.target.ActionID] = append(byAction[c.target.ActionID], c.target.AgentID)
	}
	for _, id := range slices.Sorted(maps.Keys(byAction)) {
		if err := r.actions.Withdraw(ctx, action.Withdrawal{
			ID: action.WithdrawalID(id, byAction[id]), ActionID: id, AgentIDs: byAction[id], Why: why, Actor: "rollout " + run.rollout.Plan.Name,
		}); err != nil {
			return err
		}
	}
	return nil
}
