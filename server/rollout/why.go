package rollout

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/explain"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// whyTargets is how many rollouts of an agent are read to find the one that a
	// question is about.
	whyTargets = 50
	// whyTrail is how many entries before a time are read to find a step of the
	// reconciler; operators write few between two steps.
	whyTrail = 50
)

// Why explains an agent, or a component of it. An empty rollout means the one that it belongs
// to, or belonged to last; a zero at means now.
func (s *Service) Why(ctx context.Context, agentID, component, rolloutID string, at time.Time) (explain.Explanation, error) {
	now := s.Now.UTC()
	if at.IsZero() {
		at = now
	}
	at = at.UTC()
	if at.After(now) {
		return explain.Explanation{}, fleet.FieldError("query.at", "is %s, which is yet to come", at.Format(time.RFC3339))
	}
	var agent *fleet.Agent
	a, err := s.Store.Agents().Get(ctx, agentID)
	switch {
	case err == nil:
		agent = &a
	case fleet.KindOf(err) != fleet.NotFound:
		return explain.Explanation{}, err
	}
	e, err := s.why(ctx, agent, agentID, component, rolloutID, at, now)
	if err == nil && agent != nil && !at.Before(now) {
		e.Depart(agent)
	}
	return e, err
}

func (s *Service) why(ctx context.Context, agent *fleet.Agent, agentID, component, rolloutID string, at, now time.Time) (explain.Explanation, error) {
	if rolloutID == "" {
		return s.whyLatest(ctx, agent, agentID, component, at, now)
	}
	r, err := s.Get(ctx, rolloutID)
	switch {
	case err != nil:
		return explain.Explanation{}, err
	case component != "" && r.Plan.Component != component:
		return explain.Explanation{}, fleet.FieldError("query.component", "is %s, and %s is of %s: leave it out", component, plan.Title(&r), cmp.Or(r.Plan.Component, "the agents themselves"))
	}
	t, err := s.Store.Targets().Get(ctx, rolloutID, agentID)
	switch {
	case err == nil:
		return s.whyTarget(ctx, &r, t, agent, at, now)
	case fleet.KindOf(err) != fleet.NotFound:
		return explain.Explanation{}, err
	case agent == nil:
		return explain.Explanation{}, noAgent(agentID)
	}
	return s.whyOutside(ctx, &r, agent, at, now)
}

func noAgent(id string) error {
	return fleet.Errorf(fleet.NotFound, "there is no agent %s: `muster agents list` shows those there are", id)
}

// whyLatest explains an agent, or a component of it, by the rollout that it belongs to, else
// by the active rollout of its policy, which has skipped it, else by its last upgrade and the
// last rollout that it belonged to.
func (s *Service) whyLatest(ctx context.Context, a *fleet.Agent, agentID, component string, at, now time.Time) (explain.Explanation, error) {
	targets, err := s.Store.Targets().ByAgent(ctx, agentID, whyTargets)
	if err != nil {
		return explain.Explanation{}, err
	}
	var last *fleet.Rollout
	var lastTarget fleet.Target
	for _, t := range targets {
		r, err := s.Get(ctx, t.RolloutID)
		switch {
		case err != nil && fleet.KindOf(err) == fleet.NotFound:
			continue
		case err != nil:
			return explain.Explanation{}, err
		case r.StartedAt == nil || r.StartedAt.After(at) || r.Plan.Component != component:
			continue // it had not begun at that time, or is of something else
		}
		last, lastTarget = &r, t
		break
	}
	if last != nil && (last.EndedAt == nil || last.EndedAt.After(at)) {
		return s.whyTarget(ctx, last, lastTarget, a, at, now)
	}
	if a == nil && last == nil {
		return explain.Explanation{}, noAgent(agentID)
	}
	if a != nil && !at.Before(now) {
		locked, err := s.locks().locked(ctx, component)
		if err != nil {
			return explain.Explanation{}, err
		}
		if h, ok := locked[a.PolicyID]; ok {
			r, err := s.Get(ctx, h.ID)
			if err != nil {
				return explain.Explanation{}, err
			}
			return s.whyOutside(ctx, &r, a, at, now)
		}
	}
	if a == nil || at.Before(now) && last != nil { // of its upgrades only the last one is known
		return s.whyTarget(ctx, last, lastTarget, a, at, now)
	}
	return s.whyUpgraded(ctx, last, lastTarget, targets, a, component, at, now)
}

// whyUpgraded explains an agent, or a component of it, that is in no rollout now. last is the
// rollout that it was in last, nil if there was none, and targets are its targets.
func (s *Service) whyUpgraded(ctx context.Context, last *fleet.Rollout, t fleet.Target, targets []fleet.Target, a *fleet.Agent, component string, at, now time.Time) (explain.Explanation, error) {
	by, err := s.lastOrder(ctx, a, component, targets)
	if err != nil {
		return explain.Explanation{}, err
	}
	catalog, err := s.Actions.CatalogOf(ctx, component)
	if err != nil {
		return explain.Explanation{}, err
	}
	if last != nil {
		e, err := s.whyTarget(ctx, last, t, a, at, now)
		e.AfterRollback(last, a, &t, catalog)
		e.StartFrom(a, component, &t, by, catalog, now)
		return e, err
	}
	wanted := ""
	policy, err := s.Store.Policies().Get(ctx, a.PolicyID)
	if err != nil && fleet.KindOf(err) != fleet.NotFound {
		return explain.Explanation{}, err
	}
	for _, c := range policy.Components {
		if c.Name == component {
			wanted = c.Version
		}
	}
	return explain.Alone(a, component, wanted, by, catalog, at, now), nil
}

// lastOrder returns who ordered the last upgrade of an agent, or of a component of it.
func (s *Service) lastOrder(ctx context.Context, a *fleet.Agent, component string, targets []fleet.Target) (explain.Last, error) {
	id := a.Of(component).UpgradeActionID
	if id == "" {
		return explain.Last{}, nil
	}
	var l explain.Last
	act, err := s.Store.Actions().Get(ctx, id)
	switch {
	case err == nil:
		l.Action = &act
	case fleet.KindOf(err) != fleet.NotFound:
		return l, err
	}
	i := slices.IndexFunc(targets, func(t fleet.Target) bool { return t.ActionID == id || slices.Contains(t.ActionIDs, id) })
	if i < 0 {
		return l, nil
	}
	r, err := s.Store.Rollouts().Get(ctx, targets[i].RolloutID)
	switch {
	case err == nil:
		l.Rollout = &r
	case fleet.KindOf(err) != fleet.NotFound:
		return l, err
	}
	return l, nil
}

func (s *Service) whyTarget(ctx context.Context, r *fleet.Rollout, t fleet.Target, a *fleet.Agent, at, now time.Time) (explain.Explanation, error) {
	trail, err := s.trailBefore(ctx, r.ID, at, now)
	if err != nil {
		return explain.Explanation{}, err
	}
	blocked := fleet.ReasonCode("")
	if !at.Before(now) {
		if blocked, err = s.blockReason(ctx, r, &t, a, now); err != nil {
			return explain.Explanation{}, err
		}
	}
	return explain.Target(r, t, a, trail, blocked, at, now), nil
}

// blockReason returns which limit of plan.Decide prevents an offer to a target that is
// due for one; empty if the target is not due. It reads only the targets in flight,
// whose number the plan bounds.
func (s *Service) blockReason(ctx context.Context, r *fleet.Rollout, t *fleet.Target, a *fleet.Agent, now time.Time) (fleet.ReasonCode, error) {
	switch {
	case r.State != fleet.RolloutRunning || !plan.StateOf(t.State).Waits() || t.Batch > plan.CurrentBatch(r):
		return "", nil
	case plan.Together(r.Plan.Strategy.Kind):
		return "", nil // no limit holds one target alone; what all wait for is in the document
	case plan.Gone(a) != "":
		return fleet.WhyGone, nil
	case now.Sub(a.LastActivity()) > fleet.OfflineAfter:
		return fleet.WhyAway, nil
	}
	list, _, err := s.Store.Targets().List(ctx, store.TargetQuery{
		RolloutID: r.ID, States: []fleet.TargetState{fleet.TargetOffered, fleet.TargetUpgrading, fleet.TargetVerifying}, Limit: fleet.MaxTargets,
	})
	if err != nil {
		return "", err
	}
	var groups plan.GroupNumbers
	inFlight := make([]plan.Target, len(list))
	for i := range list {
		inFlight[i] = plan.Target{State: plan.StateOf(list[i].State), Groups: groups.Of(&list[i], &r.Plan)}
	}
	subject := a.Of(r.Plan.Component)
	target := plan.Target{State: plan.StateOf(t.State), Busy: subject.Busy(), Groups: groups.Of(t, &r.Plan), Sites: plan.NoSites}
	tally, err := s.tally(ctx, r, now)
	if err != nil {
		return "", err
	}
	var room *plan.Room
	if tally != nil {
		offered, err := s.offered(ctx, &r.Plan, "")
		if err != nil {
			return "", err
		}
		room, target.Sites = tally.Budget(r.Plan.Version, offered), tally.Sites(fleet.EncodeLabels(a.Labels()))
	}
	return cmp.Or(plan.BlockReason(&r.Plan, inFlight, &target, room).Name(), fleet.WhyNext), nil
}

// trailBefore returns the audit entries that show the state of the rollout at a past
// time.
func (s *Service) trailBefore(ctx context.Context, id string, at, now time.Time) ([]fleet.AuditEntry, error) {
	if !at.Before(now) {
		return nil, nil
	}
	trail, _, err := s.Store.Audit().List(ctx, store.AuditQuery{Subject: id, Until: &at, Limit: whyTrail})
	return trail, err
}

// whyOutside explains an agent that is not a target of the rollout. The pinned preview
// has the reason, unless the agent came later.
func (s *Service) whyOutside(ctx context.Context, r *fleet.Rollout, a *fleet.Agent, at, now time.Time) (explain.Explanation, error) {
	hash := ""
	switch {
	case r.Pin != nil:
		hash = r.Pin.Hash
	case len(r.Previews) > 0:
		hash = r.Previews[len(r.Previews)-1]
	}
	var pinned *fleet.Preview
	if hash != "" {
		pre, err := s.Store.Previews().Get(ctx, hash)
		switch {
		case err == nil:
			pinned = &pre
		case fleet.KindOf(err) != fleet.NotFound:
			return explain.Explanation{}, err
		}
	}
	if pinned != nil {
		i := slices.IndexFunc(pinned.Skipped, func(out fleet.SkippedAgent) bool { return out.AgentID == a.ID })
		if i >= 0 {
			trail, err := s.trailBefore(ctx, r.ID, at, now)
			if err != nil {
				return explain.Explanation{}, err
			}
			return explain.Skipped(r, a, pinned.Skipped[i], trail, at, now), nil
		}
	}
	chosen, err := s.selector(ctx, &r.Plan.Select, now)
	if err != nil {
		return explain.Explanation{}, err
	}
	return explain.NonTarget(r, a, chosen.MatchesAgent(a), pinned, at, now), nil
}
