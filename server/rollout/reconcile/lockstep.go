package reconcile

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// closedVerify is how often the targets of a rollout in lockstep are verified while a window or a
// freeze keeps it from beginning. A fault then shows within a minute.
const closedVerify = time.Minute

// lockstepState is what this server knows of a rollout in lockstep besides its document.
type lockstepState struct {
	names []string // of the targets' hosts, in their order
	// proceeded is the phase whose orders this server has seen.
	proceeded fleet.LockstepPhase
	// inForce is the phase whose versions in force this server has written.
	inForce fleet.LockstepPhase
	// verified: the verdicts of the targets, and others, are of this round; verifyDue is when to
	// verify again.
	verified  bool
	others    []string
	texts     map[int]string // of the verdicts
	verifyDue time.Time
	// leftOut are the agents that the started preview left out, nil before they are read.
	leftOut map[string]bool
}

// proceed creates the orders that follow from the phase in the rollout's document, and may not
// exist yet. An action has the same data for all of its agents, so there is one for each UPGRADE.
func (r *Reconciler) proceed(ctx context.Context, run *runState) error {
	l := run.rollout.Lockstep
	if l == nil || !run.rollout.State.Active() || run.proceeded == l.Phase {
		return nil
	}
	data := agentapi.ProceedData{Component: run.rollout.Plan.Component}
	until, ok := l.Phase.Proceeds()
	switch {
	case ok:
		data.Until = until
	case l.Phase == fleet.LockstepUndo && l.Undo != nil:
		data.Undo, data.Reason = true, l.Undo.Why
	default:
		return nil
	}
	// A failed host has ended its upgrade. One that seems to be called off may wait all the same.
	goesOn := func(s fleet.TargetState) bool { return data.Undo || s.InFlight() || s == fleet.TargetWithdrawn }
	for n, offer := range run.offers(goesOn) {
		if n%renewEvery == renewEvery-1 {
			if err := r.renewLease(ctx, run); err != nil {
				return err
			}
		}
		data.UpgradeID = offer.id
		err := r.actions.Proceed(ctx, action.ProceedOrder{
			ID: fleet.ProceedID(run.rollout.ID, offerNumber(offer.id), l.Phase), ProceedData: data, AgentIDs: offer.agents,
			Actor: "rollout " + run.rollout.Plan.Name, Automatic: run.rollout.Automatic,
		})
		if err != nil {
			return err
		}
	}
	run.proceeded = l.Phase
	return nil
}

// setInForce writes which version is in force for the policies of the targets, before the orders of
// the phase exist.
//
// The rollout's document is read after the policy and before the policy is written. So a server
// that has lost the rollout without noticing changes no policy: what the next server writes in a
// later phase is newer than what this one has read.
func (r *Reconciler) setInForce(ctx context.Context, run *runState) error {
	l, p := run.rollout.Lockstep, &run.rollout.Plan
	if r.policies == nil || !plan.Together(run.rollout.Plan.Strategy.Kind) || !l.Running() || !run.rollout.State.Active() || run.inForce == l.Phase {
		return nil
	}
	for _, id := range run.rollout.Policies {
		err := r.policies.SetInForce(ctx, id, p.Component, "rollout "+p.Name, func(c agentapi.PolicyComponent) (*agentapi.ComponentInForce, error) {
			now, err := r.store.Rollouts().Get(ctx, run.rollout.ID)
			if err != nil {
				return nil, err
			}
			if !now.State.Active() || now.Lockstep == nil || now.Lockstep.Phase != l.Phase {
				return nil, errChanged
			}
			from := ""
			if c.InForce == nil {
				if from, err = r.commonVersion(ctx, run, id); err != nil {
					return nil, err
				}
			}
			return plan.InForce(l, p.Version, c.InForce, from), nil
		})
		if err != nil {
			return err
		}
	}
	run.inForce = l.Phase
	return nil
}

// commonVersion returns the version that all targets of a policy have; empty if they have several,
// or none.
func (r *Reconciler) commonVersion(ctx context.Context, run *runState, policyID string) (string, error) {
	versions := map[string]bool{}
	err := r.store.Agents().Each(ctx, store.AgentFilter{PolicyID: policyID, ActiveOnly: true}, func(a fleet.Agent) {
		if i, ok := run.byAgent[a.ID]; ok {
			if s := run.targets[i].State; s.Waits() || s.InFlight() {
				subject := a.Of(run.rollout.Plan.Component)
				versions[subject.Version] = true
			}
		}
	})
	if err != nil || len(versions) != 1 {
		return "", err
	}
	return slices.Collect(maps.Keys(versions))[0], nil
}

// madeOffer is an offer with the agents that have it.
type madeOffer struct {
	id     string
	agents []string
}

// offers returns the current offers of targets in some states, and their agents.
func (run *runState) offers(in func(fleet.TargetState) bool) []madeOffer {
	agents := map[string][]string{}
	for _, i := range slices.Sorted(maps.Keys(run.tracked)) {
		if t := &run.tracked[i].target; t.ActionID != "" && in(t.State) {
			agents[t.ActionID] = append(agents[t.ActionID], t.AgentID)
		}
	}
	var out []madeOffer
	for _, id := range slices.Sorted(maps.Keys(agents)) {
		out = append(out, madeOffer{id, agents[id]})
	}
	return out
}

// inUndo marks a target whose host has undone the upgrade because the rollout required it. What
// failed by itself did so before.
func (run *runState) inUndo(t *fleet.Target, was plan.State) {
	l := run.rollout.Lockstep
	if l == nil || l.Undo == nil || !was.InFlight() || t.State != fleet.TargetFailed || t.Code != fleet.WhyReported {
		return
	}
	t.State, t.Code = fleet.TargetRolledBack, fleet.WhyUndone
	last := &t.History[len(t.History)-1]
	last.State, last.Code = t.State, t.Code
}

// verifyLockstep determines which targets cannot go in lockstep, and which other agents would
// belong to them, in the phases whose decision depends on it.
func (r *Reconciler) verifyLockstep(ctx context.Context, run *runState) error {
	run.verified = false
	p, now := &run.rollout.Plan, r.now.UTC()
	if !plan.Together(run.rollout.Plan.Strategy.Kind) || run.rollout.State != fleet.RolloutRunning {
		return nil
	}
	again := false
	switch l := run.rollout.Lockstep; {
	case l != nil && l.Phase == fleet.LockstepVerifyAgain:
		again = true // everything stands still until this has succeeded
	case l.Running(), now.Before(run.verifyDue):
		return nil
	case p.Stage == fleet.StageAhead && (run.rollout.Staging == nil || run.rollout.Staging.EndedAt == nil):
		return nil
	}
	catalog, err := r.actions.CatalogOf(ctx, p.Component)
	if err != nil {
		return err
	}
	var which []int32
	for i := range run.targets {
		if s := run.targets[i].State; s.Waits() || again && s.InFlight() {
			which = append(which, int32(i))
		}
	}
	texts := map[int]string{}
	for part := range slices.Chunk(which, chunk) {
		agents, err := r.agents(ctx, run, part)
		if err != nil {
			return err
		}
		for _, i := range part {
			t := &run.targets[i]
			a := agents[t.AgentID]
			run.updateAvailability(i, a, now)
			code, text := plan.Verdict(p, t.State, a, r.connections.Of(a), catalog, now)
			if t.Verdict = plan.CodeOf(code); text != "" && len(texts) < fleet.MaxLockstepNames {
				texts[int(i)] = text
			}
		}
		if err := r.renewLease(ctx, run); err != nil {
			return err
		}
	}
	others, known, err := r.otherAgents(ctx, run, again, now)
	if err != nil {
		return err
	}
	run.others, run.texts, run.verified, run.dirty = others, texts, known, true
	rest := max(snapshotInterval, snapshotRest*r.now.UTC().Sub(now))
	if w := run.rollout.Waiting; len(w) > 0 && (w[0].Code == fleet.WhyWindow || w[0].Code == fleet.WhyFreeze) {
		rest = max(rest, closedVerify)
	}
	run.verifyDue = now.Add(rest)
	return nil
}

// otherAgents returns the names of agents that run another version and are no targets: the set of
// targets has changed. These are agents that match the selector and were not left out when the
// rollout was started, and all agents of the targets' policies that must not run mixed versions.
//
// An agent that is held does not run the component. known is false if one says so that does not
// have its current policy yet: it may have started the component by an earlier one.
func (r *Reconciler) otherAgents(ctx context.Context, run *runState, again bool, now time.Time) (names []string, known bool, err error) {
	p := &run.rollout.Plan
	if err := r.readLeftOut(ctx, run); err != nil {
		return nil, false, err
	}
	policies, err := store.PoliciesWith(ctx, r.store.Policies(), p.Component)
	if err != nil {
		return nil, false, err
	}
	chosen, err := r.selector(ctx, p)
	if err != nil {
		return nil, false, err
	}
	known = true
	err = store.EachOf(ctx, r.store.Agents(), p.Component, func(a *fleet.Agent) {
		s, online := a.Of(p.Component), !plan.Disconnected(a, r.connections.Of(a), again, now)
		policy, listed := policies[a.PolicyID]
		if !listed || a.UnenrollmentStartedAt != nil || s.Version == "" || s.Version == p.Version {
			return
		}
		c := policy.Component(p.Component)
		differs := false
		if i, ok := run.byAgent[a.ID]; ok {
			// One that was left out because it was away, and is back.
			differs = again && online && run.targets[i].Code == plan.CodeOf(fleet.WhyLeftOut)
		} else {
			ofTargets := slices.Contains(run.rollout.Policies, a.PolicyID)
			differs = plan.Apart(p, c, &s, ofTargets, run.leftOut[a.ID], !online, func() bool { return chosen.MatchesAgent(a) })
		}
		switch {
		case !differs:
		case !s.StartWithheldBy(*c):
			names = append(names, a.Hostname())
		case again && online && a.PolicyRev < policy.PolicyRev:
			known = false
		}
	})
	slices.Sort(names)
	return names, known, err
}

// readLeftOut reads which agents the started preview left out.
func (r *Reconciler) readLeftOut(ctx context.Context, run *runState) error {
	if run.leftOut != nil {
		return nil
	}
	out := map[string]bool{}
	if pin := run.rollout.Pin; pin != nil {
		pre, err := r.store.Previews().Get(ctx, pin.Hash)
		if err != nil && fleet.KindOf(err) != fleet.NotFound {
			return err
		}
		for _, s := range pre.Skipped {
			out[s.AgentID] = true
		}
	}
	run.leftOut = out
	return nil
}

// lockstepWorld is what the decision needs.
func (run *runState) lockstepWorld() plan.LockstepWorld {
	return plan.LockstepWorld{Verified: run.verified, Others: run.others, Texts: run.texts, Names: run.names}
}
