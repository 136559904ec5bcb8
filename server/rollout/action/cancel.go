package action

import (
	"cmp"
	"context"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Cancel cancels an upgrade for agents that have not begun. An agent that has begun
// decides itself whether it still can cancel.
func (s *Service) Cancel(ctx context.Context, actionID, actor string) (fleet.Action, error) {
	return s.cancel(ctx, actionID, actor, "")
}

func (s *Service) cancel(ctx context.Context, actionID, actor, why string) (fleet.Action, error) {
	prepared, err := s.preparingAction(ctx, actionID)
	if err != nil {
		return fleet.Action{}, err
	}
	var toCancel fleet.Action
	if prepared != nil { // it is cancelled once it exists
		toCancel = prepared.Action
	} else if toCancel, err = s.Store.Actions().Get(ctx, actionID); err != nil {
		return fleet.Action{}, err
	}
	counts, err := s.Store.Results().Counts(ctx, []string{actionID})
	if err != nil {
		return fleet.Action{}, err
	}
	now := s.Now.UTC()
	if prepared == nil {
		status := []Status{{Action: toCancel, Counts: counts[actionID]}}
		if err := s.countProgress(ctx, status, now); err != nil {
			return fleet.Action{}, err
		}
		err = toCancel.CheckCancel(status[0].Counts, status[0].Stoppable(), now)
	} else {
		err = toCancel.CheckCancelType()
	}
	if err != nil {
		return fleet.Action{}, err
	}
	c := fleet.Action{
		ID: fleet.CancelID(actionID), Type: agentapi.ActionCancel, CreatedAt: now, CreatedBy: actor, Expiration: toCancel.Expiration,
		Data: event.Data(agentapi.CancelData{TargetID: actionID}),
	}
	done, err := s.accept(ctx, []fleet.AcceptedOrder{{ID: c.ID, Kind: cancelKind, Action: c, AgentIDs: []string{}, Entry: fleet.AuditEntry{
		ID: fleet.NewID(), At: now, Actor: actor, Verb: "action.cancel", Subject: actionID, Why: cmp.Or(why, audit.Why(ctx)), Text: actor + " cancelled the " + upgradeText(toCancel),
	}}}, []step{{}})
	if err != nil {
		return fleet.Action{}, err
	}
	return done[0], nil
}

// carryOutCancel marks the action as cancelled, creates the CANCEL, and takes their marks from the
// agents that have not received the action. The others lose it when they answer.
func (s *Service) carryOutCancel(ctx context.Context, r *carried, o *fleet.AcceptedOrder) (fleet.Action, error) {
	actionID := o.Action.Cancels()
	if err := s.waitUntilCreated(ctx, actionID); err != nil {
		return fleet.Action{}, err
	}
	toCancel, err := s.Store.Actions().Get(ctx, actionID)
	if err != nil {
		return fleet.Action{}, err
	}
	now := s.Now.UTC()
	if err := s.Store.Actions().Cancel(ctx, actionID, now); err != nil {
		return fleet.Action{}, err
	}
	c := o.Action
	c.Agents, c.Actioned = toCancel.Agents, len(toCancel.Agents)
	if err = s.create(ctx, &c); fleet.KindOf(err) == fleet.Conflict { // it was cancelled before
		c, err = s.Store.Actions().Get(ctx, c.ID)
	}
	if err != nil {
		return fleet.Action{}, err
	}
	if toCancel.Type == agentapi.ActionUpgrade {
		ids, err := s.Store.Agents().Sorted(ctx, toCancel.Agents)
		if err != nil {
			return fleet.Action{}, err
		}
		for some := range slices.Chunk(ids, s.pageSize()) {
			err := store.ChangeAgents(ctx, s.Store.Agents(), some, func(a *fleet.Agent) bool { return a.Waits(actionID) && a.CancelUpgrade(actionID, now) })
			if err == nil {
				r.handled.Add(int64(len(some)))
				err = s.own(ctx, o)
			}
			if err != nil {
				return fleet.Action{}, err
			}
		}
	}
	cancelled := fleet.Event{Type: fleet.EventActionCancelled, Subject: actionID, Actor: o.Action.CreatedBy}
	s.Events.Publish(ctx, append([]fleet.Event{cancelled}, agentEvents(toCancel)...)...)
	return c, nil
}

// waitUntilCreated waits while the order of an action is being carried out. If no server carries it
// out, this one does.
func (s *Service) waitUntilCreated(ctx context.Context, actionID string) error {
	orders, _, err := s.Store.AcceptedOrders().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	for _, o := range orders {
		if o.Kind != cancelKind && o.Action.ID == actionID {
			_, err := s.join(ctx, o.ID)
			return err
		}
	}
	return nil
}
