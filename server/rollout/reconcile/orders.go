package reconcile

import (
	"cmp"
	"context"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// executeOrders executes the orders of operators, oldest first. It removes them when
// all of their effects are written, so one may be executed twice, which changes
// nothing.
func (r *Reconciler) executeOrders(ctx context.Context, run *runState) error {
	if len(run.rollout.Orders) == 0 {
		return nil
	}
	next := run.rollout
	next.Orders = nil
	for _, o := range run.rollout.Orders {
		if err := r.executeOrder(ctx, run, o); err != nil {
			return err
		}
		if o.Kind == fleet.OrderWithdraw {
			next.Stop = run.stopWithCount()
		}
	}
	return r.save(ctx, run, next, r.now.UTC())
}

func (r *Reconciler) executeOrder(ctx context.Context, run *runState, o fleet.Order) error {
	switch o.Kind {
	case fleet.OrderRetry:
		return r.retry(ctx, run, o)
	case fleet.OrderSkip:
		return r.skip(ctx, run, o)
	case fleet.OrderReturn:
		return r.makeMoves(ctx, run, toPending(run.orderTargets(o, (*plan.Target).Stopped)), r.now.UTC())
	case fleet.OrderWithdraw:
		return r.withdraw(ctx, run, run.orderTargets(o, func(t *plan.Target) bool { return t.State == plan.Offered }), withdrawal{
			why: cmp.Or(o.Why, "the rollout was paused"), state: fleet.TargetWithdrawn, code: plan.StopReason(run.rollout.Stop),
		})
	case fleet.OrderAdjust:
		return r.adjust(ctx, run)
	}
	r.log.Warn("order not understood", "rollout", run.rollout.ID, "order", o.ID, "kind", o.Kind)
	return nil
}

// adjust determines again what the documents of targets have from the plan: their values of the
// labels in its limits, and when offers that are held for them expire. Targets that have ended
// are included, since an operator may retry them. It writes only what differs, so a server that
// goes on after a crash does the rest.
func (r *Reconciler) adjust(ctx context.Context, run *runState) error {
	p := &run.rollout.Plan
	all := make([]int32, len(run.targets))
	for i := range all {
		all[i] = int32(i)
	}
	var groups plan.GroupNumbers
	for part := range slices.Chunk(all, chunk) {
		if err := r.renewLease(ctx, run); err != nil { // perhaps nothing is written for long
			return err
		}
		changes, err := r.documents(ctx, run, part)
		if err != nil {
			return err
		}
		agents, err := r.agents(ctx, run, part)
		if err != nil {
			return err
		}
		var differ []update
		for _, c := range changes {
			t := &c.target
			values, until := limitValues(p, agents[t.AgentID]), t.ExpiresAt
			if since := plan.HeldSince(t); until != nil && !since.IsZero() {
				until = new(since.Add(plan.OfferFor(p)))
			}
			if !slices.Equal(values, t.Values) || !plan.SameTime(until, t.ExpiresAt) {
				t.Values, t.ExpiresAt, c.quiet = values, until, true
				differ = append(differ, c)
			}
			run.targets[c.index].Groups = groups.Of(t, p)
		}
		if err := r.write(ctx, run, differ); err != nil {
			return err
		}
	}
	run.groups = groups
	return nil
}

// limitValues returns the values that an agent has of the labels in the plan's limits, in their
// order; none of an agent that was deleted.
func limitValues(p *fleet.Plan, a *fleet.Agent) []string {
	var values []string
	for _, limit := range p.Limits.Per {
		value := ""
		if a != nil {
			value = a.Label(limit.Label)
		}
		values = append(values, value)
	}
	return values
}

// orderTargets returns the targets that an order applies to.
func (run *runState) orderTargets(o fleet.Order, fits func(*plan.Target) bool) []int32 {
	var which []int32
	if len(o.Agents) == 0 {
		for i := range run.targets {
			if fits(&run.targets[i]) {
				which = append(which, int32(i))
			}
		}
		return which
	}
	for _, id := range o.Agents {
		if i, ok := run.byAgent[id]; ok && fits(&run.targets[i]) {
			which = append(which, i)
		}
	}
	slices.Sort(which)
	return slices.Compact(which)
}

// retry makes targets pending again. Who orders it wants the version there although it failed, so
// an earlier failure on the host leaves none of them out.
func (r *Reconciler) retry(ctx context.Context, run *runState, o fleet.Order) error {
	which := run.orderTargets(o, func(t *plan.Target) bool {
		return t.State == plan.Failed || t.State == plan.RolledBack || t.Refused() || len(o.Agents) > 0 && (t.State == plan.Withdrawn || t.State == plan.Expired)
	})
	now := r.now.UTC()
	for part := range slices.Chunk(which, chunk) {
		changes, err := r.documents(ctx, run, part)
		if err != nil {
			return err
		}
		for k := range changes {
			changes[k].target.Retried = true
			run.move(&changes[k].target, fleet.TargetPending, "", "", now)
		}
		if err := r.write(ctx, run, changes); err != nil {
			return err
		}
	}
	return nil
}

// stopWithCount returns the rollout's stop with the number of offers that it withdrew.
// A gate counted them when it decided.
func (run *runState) stopWithCount() *fleet.Stop {
	if run.rollout.Stop == nil || run.rollout.Stop.Kind.Gate() {
		return run.rollout.Stop
	}
	stop := *run.rollout.Stop
	stop.Withdrawn = 0
	for i := range run.targets {
		if t := &run.targets[i]; t.Stopped() && t.Since >= stop.At.UnixNano() {
			stop.Withdrawn++
		}
	}
	return &stop
}

func toPending(which []int32) []plan.Move {
	moves := make([]plan.Move, len(which))
	for k, i := range which {
		moves[k] = plan.Move{Target: i, To: plan.Pending}
	}
	return moves
}

func (r *Reconciler) skip(ctx context.Context, run *runState, o fleet.Order) error {
	offered := run.orderTargets(o, func(t *plan.Target) bool { return t.State == plan.Offered })
	if err := r.withdraw(ctx, run, offered, withdrawal{why: cmp.Or(o.Why, "skipped"), state: fleet.TargetSkipped, code: fleet.WhyOperator}); err != nil {
		return err
	}
	which := run.orderTargets(o, func(t *plan.Target) bool {
		return t.State.Waits() || t.State == plan.Failed || t.State == plan.RolledBack || t.State == plan.Withdrawn || t.State == plan.Expired
	})
	moves := make([]plan.Move, len(which))
	for k, i := range which {
		moves[k] = plan.Move{Target: i, To: plan.Skipped, Code: plan.CodeOf(fleet.WhyOperator)}
	}
	return r.makeMoves(ctx, run, moves, r.now.UTC())
}
