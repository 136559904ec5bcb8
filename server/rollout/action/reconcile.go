package action

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/lease"
)

const (
	// ReconcileInterval is how often ReconcileUpgrades checks the unfinished upgrades. The
	// shortest bound of fleet.Agent.ReconcileUpgrade is a minute.
	ReconcileInterval = 30 * time.Second
	// reconcileBatch bounds the agents of one round, about 100 ms of a store. The next round
	// continues after them, so that agents that wait for weeks do not block the others.
	reconcileBatch = 1_000
)

// ReconcileUpgrades ends upgrades that no message of the agent will end
// (fleet.Agent.ReconcileUpgrade). It runs a round every ReconcileInterval until ctx ends.
// Several servers may run it at the same time.
func (s *Service) ReconcileUpgrades(ctx context.Context) {
	s.steadyRounds(ctx, "ends of upgrades", ReconcileInterval, s.ReconcileUpgradesOnce)
}

// steadyRounds does rounds while the store is steady: agents must first repeat what was refused
// while it was away. Until then their upgrades look as if they had not begun.
func (s *Service) steadyRounds(ctx context.Context, work string, interval time.Duration, round func(context.Context) error) {
	lease.Rounds{Work: work, Interval: interval, AtOnce: true, Log: s.Log}.Run(ctx, func(ctx context.Context) error {
		if s.Health.Steady() != nil {
			return nil
		}
		return round(ctx)
	})
}

// ReconcileUpgradesOnce runs one round, over the next agents that are being upgraded, or a
// component of which is, the oldest upgrades first. It must not be called concurrently.
func (s *Service) ReconcileUpgradesOnce(ctx context.Context) error {
	agents, err := s.Store.Agents().Upgrading(ctx, s.reconciled, reconcileBatch)
	if err != nil {
		return err
	}
	s.reconciled = store.UpgradingSince{}
	if len(agents) == reconcileBatch {
		last := agents[len(agents)-1]
		s.reconciled = store.UpgradingSince{At: *last.UpgradeStartedAt, ID: last.ID}
	}
	var under []underway
	for _, agent := range agents {
		if id := agent.UpgradeActionID; id != "" { // else it was started on the host itself
			under = append(under, underway{agent, id})
		}
	}
	more, err := s.componentsUnderway(ctx)
	if err != nil {
		return err
	}
	return s.reconcileAll(ctx, append(under, more...), s.Now.UTC())
}

// underway is an upgrade that has not ended on an agent.
type underway struct {
	agent    fleet.Agent
	actionID string
}

// componentsUnderway returns the upgrades of components of the next agents.
func (s *Service) componentsUnderway(ctx context.Context) (under []underway, err error) {
	by := store.AgentSort(fleet.FieldComponentsSince.Name)
	agents, _, err := s.Store.Agents().List(ctx, store.AgentQuery{
		AgentFilter: store.AgentFilter{Query: kql.Exists{Field: fleet.FieldComponentsSince}}, Sort: by, Limit: reconcileBatch, After: s.components,
	})
	if err != nil {
		return nil, err
	}
	s.components = nil
	if len(agents) == reconcileBatch {
		s.components = new(by.Position(&agents[len(agents)-1]))
	}
	for _, agent := range agents {
		for _, id := range agent.ComponentActions {
			under = append(under, underway{agent, id})
		}
	}
	return under, nil
}

func (s *Service) reconcileAll(ctx context.Context, under []underway, now time.Time) (err error) {
	waiting := map[string][]string{} // agents, by action
	for _, u := range under {
		waiting[u.actionID] = append(waiting[u.actionID], u.agent.ID)
	}
	acts, answered := map[string]*fleet.Action{}, map[string]map[string]bool{}
	for id, agentIDs := range waiting {
		if acts[id], err = store.Optional(s.Store.Actions().Get(ctx, id)); err != nil {
			return err
		}
		if acts[id] == nil {
			prepared, err := s.preparingAction(ctx, id)
			if err != nil {
				return err
			}
			if prepared != nil {
				waiting[id] = nil // the order goes on, and ends with the action
				continue
			}
			// The order may have ended between the two.
			if acts[id], err = store.Optional(s.Store.Actions().Get(ctx, id)); err != nil {
				return err
			}
		}
		if answered[id], err = s.Store.Results().Answered(ctx, id, agentIDs); err != nil {
			return err
		}
	}
	for _, u := range under {
		if waiting[u.actionID] == nil {
			continue
		}
		var result *fleet.Result
		if answered[u.actionID][u.agent.ID] {
			if result, err = store.Optional(s.Store.Results().Get(ctx, u.actionID, u.agent.ID)); err != nil {
				return err
			}
		}
		if err := s.reconcile(ctx, u, acts[u.actionID], result, now); err != nil {
			return err
		}
	}
	return nil
}

// reconcile ends an upgrade if no message will end it.
func (s *Service) reconcile(ctx context.Context, u underway, act *fleet.Action, result *fleet.Result, now time.Time) error {
	return s.apply(ctx, u.agent, now, func(a *fleet.Agent) store.Report {
		// act and result belong to the upgrade of the agent that was read. Applied to a later
		// upgrade, they would end it with the result of the earlier one.
		name := a.ComponentOf(u.actionID)
		if !a.ReconcileUpgrade(u.actionID, act, result, now) {
			return store.Report{}
		}
		s.Log.Info("upgrade ended without a message of its agent", "agent", a.ID, "component", name, "action", u.actionID)
		r := store.Report{Agent: a, Events: []fleet.Event{a.UpgradeEvent(name)}}
		if act != nil {
			// It replaces an acknowledgement that had no effect.
			r.Results = a.UpgradeResults(name, now)
		}
		return r
	})
}
