package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// abandonedInterval is how often abandoned upgrades are searched for.
	abandonedInterval = 5 * time.Minute
	// abandonedAfter is how long an agent may be marked as upgrading after its
	// target, or its rollout, has ended: some hosts come back late and report.
	abandonedAfter = 30 * time.Minute
)

// giveUpAbandoned ends upgrades that no rollout waits for any more: the target has
// ended, the agent is still marked as upgrading, and nothing else would end that.
// Other upgrades without an answer end in action.ReconcileUpgrades.
func (r *Reconciler) giveUpAbandoned(ctx context.Context, active map[string]bool) error {
	now := r.now.UTC()
	if err := r.giveUpComponents(ctx, active, now); err != nil {
		return err
	}
	if now.Sub(r.abandonedChecked) < abandonedInterval {
		return nil
	}
	agents, err := r.store.Agents().Upgrading(ctx, r.abandonedFrom, chunk)
	if err != nil {
		return err
	}
	r.abandonedFrom = store.UpgradingSince{}
	if len(agents) == chunk { // the next round continues from here
		last := agents[len(agents)-1]
		r.abandonedFrom = store.UpgradingSince{At: *last.UpgradeStartedAt, ID: last.ID}
	} else {
		r.abandonedChecked = now
	}
	ended := map[string]time.Time{}
	for _, a := range agents {
		if now.Sub(*a.UpgradeStartedAt) < abandonedAfter {
			r.abandonedChecked, r.abandonedFrom = now, store.UpgradingSince{} // the rest began later
			return nil
		}
		if err := r.giveUp(ctx, &a, a.UpgradeActionID, active, ended, now); err != nil {
			return err
		}
	}
	return nil
}

// giveUp ends an upgrade of an agent, or of its component, if no rollout waits for it.
func (r *Reconciler) giveUp(ctx context.Context, a *fleet.Agent, actionID string, active map[string]bool, ended map[string]time.Time, now time.Time) error {
	since, err := r.abandonedSince(ctx, a.ID, actionID, active, ended)
	if err != nil || since.IsZero() || now.Sub(since) < abandonedAfter {
		return err
	}
	why := fmt.Sprintf("given up: its rollout no longer waits for it since %s, and it has not said how it ended", since.UTC().Format(time.RFC3339))
	if err := r.actions.GiveUp(ctx, *a, actionID, why); err != nil {
		return err
	}
	r.log.Info("upgrade left behind by a rollout given up", "agent", a.ID, "action", actionID)
	return nil
}

// abandonedSince returns since when a rollout no longer waits for the agent's upgrade;
// zero if it still does, or the upgrade belongs to no rollout. ended caches when
// rollouts ended.
func (r *Reconciler) abandonedSince(ctx context.Context, agentID, actionID string, active map[string]bool, ended map[string]time.Time) (time.Time, error) {
	id := fleet.RolloutOf(actionID)
	if id == "" || r.newer[id] {
		return time.Time{}, nil
	}
	t, err := r.store.Targets().Get(ctx, id, agentID)
	if err != nil {
		if fleet.KindOf(err) == fleet.NotFound {
			err = nil
		}
		return time.Time{}, err
	}
	if t.EndedAt != nil {
		return *t.EndedAt, nil
	}
	if active[id] {
		return time.Time{}, nil
	}
	if at, known := ended[id]; known {
		return at, nil
	}
	o, err := r.store.Rollouts().Get(ctx, id)
	if err != nil && fleet.KindOf(err) != fleet.NotFound {
		return time.Time{}, err
	}
	if o.EndedAt != nil {
		ended[id] = *o.EndedAt
	}
	return ended[id], nil
}
