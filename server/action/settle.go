package action

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// SettleInterval is how often upgrades that no message will end are looked
	// for. The shortest bound of the rule is a minute.
	SettleInterval = 30 * time.Second
	// settleBatch bounds one round; the next goes on behind it, so that agents
	// that wait for weeks do not keep the others from being looked at. 1,000 are
	// some 100 ms of a store.
	settleBatch = 1_000
)

// Settle does a round every SettleInterval until ctx ends. Any number of
// replicas may: what one has settled, the others find settled.
func (s *Service) Settle(ctx context.Context) {
	tick := time.NewTicker(SettleInterval)
	defer tick.Stop()
	for {
		// Not before agents have repeated what was refused while the store was away: an
		// upgrade would look as if nobody had begun it.
		if s.Health.Steady() == nil {
			if err := s.SettleOnce(ctx); err != nil && ctx.Err() == nil {
				s.Log.Warn("settle upgrades", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// SettleOnce looks at the next agents that are being upgraded, the longest so
// first, and ends what is over. It is not for concurrent use.
func (s *Service) SettleOnce(ctx context.Context) error {
	agents, err := s.Store.Agents().Upgrading(ctx, s.settled, settleBatch)
	if err != nil {
		return err
	}
	s.settled = store.UpgradingSince{}
	if len(agents) == settleBatch {
		last := agents[len(agents)-1]
		s.settled = store.UpgradingSince{At: *last.UpgradeStartedAt, ID: last.ID}
	}
	now := s.Now.UTC()
	waiting := map[string][]string{} // agents, by action
	for _, agent := range agents {
		if id := agent.UpgradeActionID; id != "" {
			waiting[id] = append(waiting[id], agent.ID)
		}
	}
	acts, answered := map[string]*fleet.Action{}, map[string]map[string]bool{}
	for id, agentIDs := range waiting {
		if acts[id], err = optional(s.Store.Actions().Get(ctx, id)); err != nil {
			return err
		}
		if answered[id], err = s.Store.Results().Answered(ctx, id, agentIDs); err != nil {
			return err
		}
	}
	for _, agent := range agents {
		id := agent.UpgradeActionID
		if id == "" {
			continue // begun on the host itself
		}
		var result *fleet.Result
		if answered[id][agent.ID] {
			if result, err = optional(s.Store.Results().Get(ctx, id, agent.ID)); err != nil {
				return err
			}
		}
		if err := s.settle(ctx, agent, acts[id], result, now); err != nil {
			return err
		}
	}
	return nil
}

// settle ends the upgrade of an agent, if what is known of it says that it has.
func (s *Service) settle(ctx context.Context, agent fleet.Agent, act *fleet.Action, result *fleet.Result, now time.Time) error {
	return s.apply(ctx, agent, now, func(a *fleet.Agent) store.Report {
		// What was read is about the upgrade the agent had then. It may be in the
		// next by now, which would end with the last one's result.
		if a.UpgradeActionID != agent.UpgradeActionID || !a.SettleUpgrade(act, result, now) {
			return store.Report{}
		}
		s.Log.Info("upgrade settled", "agent", a.ID, "action", a.UpgradeActionID, "status", a.UpgradeStatus)
		r := store.Report{Agent: a, Events: []fleet.Event{a.UpgradeEvent()}}
		if act != nil {
			// It takes the place of an acknowledgement that nothing came of.
			r.Results = a.UpgradeResults(now)
		}
		return r
	})
}

// optional turns NotFound into nil.
func optional[T any](v T, err error) (*T, error) {
	switch {
	case err == nil:
		return &v, nil
	case fleet.KindOf(err) == fleet.NotFound:
		return nil, nil
	}
	return nil, err
}
