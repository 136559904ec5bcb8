package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/preview"
)

// Scope selects the targets of a rollback.
type Scope string

// Values of Scope.
const (
	ScopeFailed Scope = "failed" // targets that failed or were rolled back
	ScopeAll    Scope = "all"    // also those that reached the version, or are about to
)

// ErrNothingBack is the code of the error that a rollout has no agents to roll back: none
// has begun, or all run their old versions.
const ErrNothingBack = "rollout_nothing_to_roll_back"

// id returns the id of the rollback of a rollout, which is the same for every request.
func (c Scope) id(rolloutID string) string {
	if c == ScopeAll {
		return plan.RollbackID(rolloutID)
	}
	return plan.RollbackID(rolloutID) + "-" + string(c)
}

func (c Scope) command() string {
	if c == ScopeAll {
		return plan.CommandRollbackAll
	}
	return plan.CommandRollbackFailed
}

// holds reports whether a target is rolled back. ScopeAll includes targets under way, since
// the version that they are about to reach is undone, and those that were called off and
// whose hosts may carry the offer out all the same.
func (c Scope) holds(t *fleet.Target, a *fleet.Agent, p *fleet.Plan, now time.Time) bool {
	switch t.State {
	case fleet.TargetFailed, fleet.TargetRolledBack:
		return true
	case fleet.TargetSucceeded, fleet.TargetVerifying, fleet.TargetUpgrading:
		return c == ScopeAll
	}
	return c == ScopeAll && plan.CancelDeadline(t, a, p).After(now)
}

// Rollback creates and starts a rollout that returns targets to their last healthy
// versions, without canaries. A repeated call returns the same rollout.
//
// It first pauses the original, so that no more agents get the bad version, and then
// starts the rollback like any rollout.
func (s *Service) Rollback(ctx context.Context, id string, scope Scope, req Request) (fleet.Rollout, error) {
	if err := req.Check(); err != nil {
		return fleet.Rollout{}, err
	}
	if scope != ScopeAll && scope != ScopeFailed {
		return fleet.Rollout{}, fleet.FieldError("body.scope", "is %q, want %s or %s", scope, ScopeFailed, ScopeAll)
	}
	for try := 1; ; try++ {
		back, err := s.rollbackOnce(ctx, id, scope, req)
		if err == nil || !isRace(err) || try == startTries {
			return back, err
		}
	}
}

func (s *Service) rollbackOnce(ctx context.Context, id string, scope Scope, req Request) (fleet.Rollout, error) {
	r, err := s.Get(ctx, id)
	if err != nil {
		return r, err
	}
	around, err := s.around(ctx, &r)
	if err != nil {
		return r, err
	}
	if refused := plan.CheckCommand(scope.command(), &r, around, s.Now.UTC()); refused != nil && !refused.Done {
		return r, refused.Err(plan.Title(&r))
	}
	back, err := s.Store.Rollouts().Get(ctx, scope.id(id))
	known := err == nil
	switch {
	case known && back.State != fleet.RolloutDraft:
		return back, nil
	case err != nil && fleet.KindOf(err) != fleet.NotFound:
		return back, err
	}
	now := s.Now.UTC()
	if !known {
		back = rollbackOf(&r, scope, req, now)
		// Before any change: a rollback without targets must not leave the rollout
		// paused.
		pre, err := s.previewRollback(ctx, &r, &back, scope)
		if err != nil {
			return back, err
		}
		if err := s.checkOwnedTargets(ctx, &back, &pre, req); err != nil {
			return back, err
		}
	}
	if err := s.stopForRollback(ctx, id, back.ID, scope, req); err != nil {
		return back, err
	}
	if !known {
		err := s.Store.Rollouts().Create(ctx, back)
		if err != nil {
			return back, race(err)
		}
		if back, err = s.Get(ctx, back.ID); err != nil {
			return back, err
		}
	}
	var pre fleet.Preview
	if back.Pin != nil {
		pre, err = s.GetPreview(ctx, back.Pin.Hash)
	} else {
		pre, err = s.previewRollback(ctx, &r, &back, scope)
	}
	if err != nil {
		return back, err
	}
	return s.begin(ctx, back, pre, id, fleet.EventRollbackStarted, req)
}

// rollbackOf returns the draft of a rollback: one batch within the limits of the
// original, without canaries, windows or soak, since a fleet that is half rolled back
// is worse than either version. For the same reason failures do not stop it; each opens
// an incident.
func rollbackOf(r *fleet.Rollout, scope Scope, req Request, now time.Time) fleet.Rollout {
	p := r.Plan
	p.Name, p.Description = "Rollback of "+r.Plan.Name, fmt.Sprintf("puts back %s of rollout %s", map[Scope]string{ScopeAll: "all", ScopeFailed: "what failed"}[scope], r.ID)
	p.Profile, p.UpgradeID, p.UpgradeManifestHash = "", "", ""
	p.Version, p.SourceVersion, p.SourceURI, p.Artifacts = "", "", "", nil
	p.Variables = nil // it writes no files
	p.Force = true    // every target goes to a lower version
	p.LateJoiners, p.Stage = fleet.LateIgnore, ""
	p.Strategy = fleet.Strategy{Kind: fleet.AllAtOnce, ForceContinue: true}
	p.ServerDefaults = nil
	p.Pace = fleet.Pace{Emergency: true, OfferFor: r.Plan.Pace.OfferFor, WaitFor: r.Plan.Pace.WaitFor}
	return fleet.Rollout{ID: scope.id(r.ID), State: fleet.RolloutDraft, Plan: p, RollbackOf: r.ID, Group: r.Group, CreatedAt: now, CreatedBy: req.Actor}
}

// previewRollback computes what the rollback would do to the fleet now.
func (s *Service) previewRollback(ctx context.Context, r, back *fleet.Rollout, scope Scope) (fleet.Preview, error) {
	now := s.Now.UTC()
	f, err := s.fleetNow(ctx, back, now)
	if err != nil {
		return fleet.Preview{}, err
	}
	agents := make(map[string]*fleet.Agent, len(f.Agents))
	for i := range f.Agents {
		agents[f.Agents[i].ID] = &f.Agents[i]
	}
	var targets []fleet.Target
	err = s.Store.Targets().Each(ctx, r.ID, func(t fleet.Target) {
		if scope.holds(&t, agents[t.AgentID], &r.Plan, now) {
			targets = append(targets, t)
		}
	})
	if err != nil {
		return fleet.Preview{}, err
	}
	if len(targets) == 0 {
		e := fleet.Errorf(fleet.Conflict, "%s has no agents to roll back (%s)", plan.Title(r), map[Scope]string{
			ScopeAll: "no target has begun", ScopeFailed: "no target has failed; scope all takes those that succeeded too",
		}[scope])
		e.Code = ErrNothingBack
		return fleet.Preview{}, e
	}
	pre, err := preview.ComputeRollback(back, targets, f, now)
	if err != nil {
		return pre, err
	}
	pre.RolloutID = back.ID
	if len(pre.Targets) == 0 {
		e := fleet.Errorf(fleet.Conflict, "no agent of %s would be rolled back: %s", plan.Title(r), preview.LeftOut(pre.Skipped))
		if !slices.ContainsFunc(pre.Skipped, func(s fleet.SkippedAgent) bool { return s.Code != fleet.WhySame }) {
			e.Code = ErrNothingBack
		}
		return pre, e
	}
	return pre, nil
}

// stopForRollback pauses the original and records its rollback there. A rollout that is
// being cancelled, or has ended, makes no offers anyway.
func (s *Service) stopForRollback(ctx context.Context, id, backID string, scope Scope, req Request) error {
	_, err := s.command(ctx, id, req, command{verb: "rollback", event: fleet.EventRolloutPaused, decide: func(r *fleet.Rollout, req Request, now time.Time) (string, error) {
		stopped := r.State != fleet.RolloutRunning && (r.State != fleet.RolloutPaused || (r.Stop != nil && r.Stop.Kind == fleet.StopRollback))
		if stopped && r.RolledBackBy == backID {
			return "", nil
		}
		text := "began to roll back " + string(scope)
		r.RolledBackBy = backID
		if stopped {
			return text, nil
		}
		wasRunning := r.State == fleet.RolloutRunning
		r.State, r.PauseAsked, r.RunningSince = fleet.RolloutPaused, nil, nil
		r.Stop = &fleet.Stop{Kind: fleet.StopRollback, Text: because(req.Actor+" rolled it back", req), By: req.Actor, At: now, Batch: plan.CurrentBatch(r)}
		if !wasRunning {
			return text, nil
		}
		return text + "; offers that have not begun are withdrawn", addOrder(r, fleet.OrderWithdraw, nil, req, now)
	}})
	return err
}
