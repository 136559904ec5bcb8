package reconcile

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// ordersMax bounds the orders carried out in one round; the next goes on.
const ordersMax = 64

// obey carries out orders, oldest first. An order is removed when all of it has
// been written, so it may be carried out twice, which does nothing twice.
func (r *Reconciler) obey(ctx context.Context, b *board) error {
	for range ordersMax {
		if len(b.rollout.Orders) == 0 {
			return nil
		}
		o := b.rollout.Orders[0]
		if err := r.carryOutOrder(ctx, b, o); err != nil {
			return err
		}
		next := b.rollout
		next.Orders = slices.Clone(next.Orders[1:])
		if o.Kind == fleet.OrderWithdraw {
			next.Stop = b.toldWithdrawn()
		}
		switch err := r.commit(ctx, b, next, r.Now.UTC()); {
		case errors.Is(err, errChanged):
			if err := r.reread(ctx, b); err != nil {
				return err
			}
		case err != nil:
			return err
		}
		b.stirred = true
	}
	return nil
}

func (r *Reconciler) carryOutOrder(ctx context.Context, b *board, o fleet.Order) error {
	switch o.Kind {
	case fleet.OrderRetry:
		return r.retry(ctx, b, o)
	case fleet.OrderSkip:
		return r.skip(ctx, b, o)
	case fleet.OrderReturn:
		return r.makeMoves(ctx, b, toPending(b.ordered(o, (*plan.Target).Stopped)), r.Now.UTC())
	case fleet.OrderWithdraw:
		return r.withdraw(ctx, b, b.ordered(o, func(s *plan.Target) bool { return s.State == plan.Offered }), withdrawal{
			why: cmp.Or(o.Why, "the rollout was paused"), state: fleet.TargetWithdrawn, code: plan.StopReason(b.rollout.Stop),
		})
	}
	r.Log.Warn("order not understood", "rollout", b.rollout.ID, "order", o.ID, "kind", o.Kind)
	return nil
}

// ordered are the seats that an order is for and that are in a state for it.
func (b *board) ordered(o fleet.Order, fits func(*plan.Target) bool) []int32 {
	var seats []int32
	if len(o.Agents) == 0 {
		for i := range b.seats {
			if fits(&b.seats[i]) {
				seats = append(seats, int32(i))
			}
		}
		return seats
	}
	for _, id := range o.Agents {
		if i, ok := b.index[id]; ok && fits(&b.seats[i]) {
			seats = append(seats, i)
		}
	}
	slices.Sort(seats)
	return slices.Compact(seats)
}

func (r *Reconciler) retry(ctx context.Context, b *board, o fleet.Order) error {
	seats := b.ordered(o, func(s *plan.Target) bool {
		return s.State == plan.Failed || s.State == plan.RolledBack || len(o.Agents) > 0 && (s.State == plan.Withdrawn || s.State == plan.Expired)
	})
	return r.makeMoves(ctx, b, toPending(seats), r.Now.UTC())
}

// toldWithdrawn is the rollout's stop with how many offers it took back. A gate
// has said so when it decided; that of an operator is known now.
func (b *board) toldWithdrawn() *fleet.Stop {
	stop := b.rollout.Stop
	if stop == nil || stop.Kind.Gate() {
		return stop
	}
	told := *stop
	told.Withdrawn = 0
	for i := range b.seats {
		if s := &b.seats[i]; s.Stopped() && s.Since >= stop.At.UnixNano() {
			told.Withdrawn++
		}
	}
	return &told
}

func toPending(seats []int32) []plan.Move {
	moves := make([]plan.Move, len(seats))
	for k, i := range seats {
		moves[k] = plan.Move{Seat: i, To: plan.Pending}
	}
	return moves
}

func (r *Reconciler) skip(ctx context.Context, b *board, o fleet.Order) error {
	offered := b.ordered(o, func(s *plan.Target) bool { return s.State == plan.Offered })
	if err := r.withdraw(ctx, b, offered, withdrawal{why: cmp.Or(o.Why, "skipped"), state: fleet.TargetSkipped, code: fleet.WhyOperator}); err != nil {
		return err
	}
	seats := b.ordered(o, func(s *plan.Target) bool {
		return s.State.Waits() || s.State == plan.Failed || s.State == plan.RolledBack || s.State == plan.Withdrawn || s.State == plan.Expired
	})
	moves := make([]plan.Move, len(seats))
	for k, i := range seats {
		moves[k] = plan.Move{Seat: i, To: plan.Skipped, Code: plan.CodeOf(fleet.WhyOperator)}
	}
	return r.makeMoves(ctx, b, moves, r.Now.UTC())
}
