package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/sequence"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/lease"
)

const (
	// Interval is between two rounds while a group is active. Members take minutes at
	// least.
	Interval = 5 * time.Second
	// readEvery is how often all groups are read, to find those that were started through
	// another server. Ended groups stay for long, so this is done seldom.
	readEvery = 30 * time.Second
	// leaseID is the lease whose owner executes groups.
	leaseID = "rollout-groups"
	// maxSteps bounds the steps of one group in a round. Its members have several each,
	// and most of them wait.
	maxSteps = 20
)

// Run runs rounds, on the server that owns the lease, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	lease.Rounds{Work: "groups of rollouts", Lease: s.Lease, Interval: Interval, Wake: s.wake, Log: s.Log}.Run(ctx, s.Round)
}

// Round takes the steps that are due, if this server owns the lease. It must not be
// called concurrently.
func (s *Service) Round(ctx context.Context) error {
	if s.changed.Swap(false) {
		s.readAt = time.Time{} // a group may have become active
	}
	owned, err := s.Lease.Take(ctx, leaseID)
	if err != nil || !owned {
		s.readAt = time.Time{}
		return err
	}
	var errs []error
	if now := s.Now.UTC(); s.readAt.IsZero() || now.Sub(s.readAt) >= readEvery {
		all, _, err := s.Store.RolloutGroups().List(ctx, 0, 0)
		if err != nil {
			return err
		}
		s.known, s.readAt = nil, now
		for i := range slices.Backward(all) { // the oldest first
			if all[i].State.Active() {
				s.known = append(s.known, all[i].ID)
			}
		}
		errs = append(errs, s.correctEnded(ctx, all, now))
	}
	s.known = slices.DeleteFunc(s.known, func(id string) bool {
		active, err := s.advance(ctx, id)
		errs = append(errs, err)
		return !active && err == nil
	})
	return errors.Join(errs...)
}

// advance takes the steps of a group that are due, and reports whether it is still active.
func (s *Service) advance(ctx context.Context, id string) (active bool, err error) {
	for range maxSteps {
		if !s.Lease.Owns(leaseID) {
			return true, nil
		}
		g, err := s.Get(ctx, id)
		if err != nil && fleet.KindOf(err) == fleet.NotFound {
			return false, nil
		}
		if err != nil || !g.State.Active() {
			return err != nil, err
		}
		more, err := s.step(ctx, &g)
		// Conflict: an operator has changed the group meanwhile, and the next step reads it.
		if err != nil && fleet.KindOf(err) != fleet.Conflict {
			return true, fmt.Errorf("%s: %w", title(&g), err)
		}
		if !more && err == nil {
			return true, nil
		}
	}
	return true, nil
}

// maxStuck bounds the failed targets that are looked at for hosts that could not go back: each has an
// incident, and one suffices for the end of the group.
const maxStuck = 1_000

// stuck names the hosts of a rollout's failed targets that could not be put back and still are so.
func (s *Service) stuck(ctx context.Context, r *fleet.Rollout) ([]string, error) {
	targets, _, err := s.Store.Targets().List(ctx, store.TargetQuery{RolloutID: r.ID, States: []fleet.TargetState{fleet.TargetFailed}, Limit: maxStuck})
	if err != nil {
		return nil, err
	}
	var ids []string
	for i := range targets {
		if targets[i].Code == fleet.WhyStuck {
			ids = append(ids, targets[i].AgentID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	agents, err := s.Store.Agents().GetMany(ctx, ids)
	var hosts []string
	for i := range agents {
		if s := agents[i].Of(r.Plan.Component); agents[i].Active && s.Stuck() {
			hosts = append(hosts, cmp.Or(agents[i].Hostname(), agents[i].ID))
		}
	}
	return hosts, err
}

// look reads the rollouts of members.
func (s *Service) look(ctx context.Context, g *fleet.RolloutGroup) ([]Seen, error) {
	seen := make([]Seen, len(g.Members))
	get := func(id string) (*fleet.Rollout, error) {
		r, err := s.Store.Rollouts().Get(ctx, id)
		if err != nil {
			if fleet.KindOf(err) == fleet.NotFound {
				err = nil
			}
			return nil, err
		}
		return &r, nil
	}
	for i := range g.Members {
		var err error
		if seen[i].Rollout, err = get(RolloutID(g.ID, i)); err != nil {
			return nil, err
		}
		if r := seen[i].Rollout; r != nil && r.State != fleet.RolloutDraft && (r.RolledBackBy != "" || g.RollingBack != nil) {
			if seen[i].Rollback, err = get(plan.RollbackID(r.ID)); err != nil {
				return nil, err
			}
		}
		if r := seen[i].Rollout; r != nil && g.RollingBack != nil && r.Counts.Failed > 0 {
			if seen[i].Stuck, err = s.stuck(ctx, r); err != nil {
				return nil, err
			}
		}
	}
	return seen, nil
}

// step takes one step. more reports whether another one is due at once.
func (s *Service) step(ctx context.Context, g *fleet.RolloutGroup) (more bool, err error) {
	seen, err := s.look(ctx, g)
	if err != nil {
		return false, err
	}
	now := s.Now.UTC()
	d := Decide(g, seen, now)
	switch {
	case d.Next != nil:
		return true, s.write(ctx, g, d.Next, now)
	case d.Act == sequence.Wait:
		return false, nil
	}
	refused := s.act(ctx, g, d, seen[d.Member])
	var refusal *fleet.Error
	if !errors.As(refused, &refusal) {
		return refused == nil, refused
	}
	switch refusal.Kind {
	case fleet.Unavailable, fleet.Internal, fleet.TooMany:
		return false, refused
	}
	if state := g.State; state != fleet.GroupRunning && state != fleet.GroupRollingBack || d.Act == sequence.Cancel || d.Act == sequence.Discard {
		return false, refused // a paused or cancelled group stays what it is, and the next round tries again
	}
	if seen, err = s.look(ctx, g); err != nil {
		return false, err
	}
	if again := Decide(g, seen, now); again.Next != nil || again.Act != d.Act || again.Member != d.Member {
		return true, nil // the rollout has gone on meanwhile
	}
	var drift *rollout.DriftError
	kind := fleet.GroupStopRefused
	if errors.As(refused, &drift) || refusal.Code == ErrDrift {
		kind = fleet.GroupStopDrift
	}
	return true, s.stop(ctx, g, d, kind, refusal.Message, now)
}

// stop pauses the group because a step was refused. An operator resumes it, which tries the
// step again.
func (s *Service) stop(ctx context.Context, g *fleet.RolloutGroup, d Decision, kind fleet.GroupStopKind, text string, now time.Time) error {
	next := *g
	name := g.Members[d.Member].Name
	next.State, next.Resume = fleet.GroupPaused, nil
	next.Generation++
	next.Stop = &fleet.GroupStop{Kind: kind, Text: fmt.Sprintf("cannot %s member %s: %s", d.Act, name, text), By: system, At: now, Member: name}
	return s.write(ctx, g, &next, now)
}

// write writes the group's next document, with an audit entry if its state changes.
func (s *Service) write(ctx context.Context, before, next *fleet.RolloutGroup, now time.Time) error {
	typ := fleet.EventGroupProgress
	if next.State != before.State {
		verb, text, event := change(next)
		if before.State.Ended() {
			text = "followed its members, which reports of hosts have corrected: it is " + strings.ReplaceAll(string(next.State), "_", " ")
		}
		typ = event
		why := ""
		if next.Stop != nil {
			why = next.Stop.Text
		}
		if err := s.record(ctx, next, verb, rollout.Request{Actor: system, Why: why}, text, now); err != nil {
			return err
		}
	}
	if _, err := s.Store.RolloutGroups().Update(ctx, *next); err != nil {
		return err
	}
	s.publish(ctx, typ, next, system, now)
	s.Log.Info("a group of rollouts has changed", "group", next.ID, "name", next.Plan.Name, "state", next.State)
	return nil
}

// change returns how a change of state is recorded and published.
func change(g *fleet.RolloutGroup) (verb, text, event string) {
	switch g.State {
	case fleet.GroupPaused:
		return "pause", "paused it", fleet.EventGroupPaused
	case fleet.GroupRollingBack:
		return "rollback", "began to roll back all members", fleet.EventGroupRollbackStarted
	case fleet.GroupCompleted:
		return "end", "ended it: all members are completed", fleet.EventGroupCompleted
	case fleet.GroupPartial:
		return "end", "ended it: some members are completed", fleet.EventGroupPartial
	case fleet.GroupCancelled:
		return "end", "ended it: it was cancelled", fleet.EventGroupCancelled
	case fleet.GroupRolledBack:
		return "end", "ended it: its members are rolled back", fleet.EventGroupRolledBack
	}
	return "end", "ended it: it has failed", fleet.EventGroupFailed
}

// act executes a step through the service of rollouts.
func (s *Service) act(ctx context.Context, g *fleet.RolloutGroup, d Decision, seen Seen) error {
	id := RolloutID(g.ID, d.Member)
	req := rollout.Request{Actor: "group " + g.Plan.Name, Why: fmt.Sprintf("member %s of group %s", g.Members[d.Member].Name, g.ID)}
	var err error
	switch d.Act {
	case sequence.Begin:
		return s.begin(ctx, g, d.Member, req)
	case sequence.Pause:
		_, err = s.Rollouts.Pause(ctx, id, g.Stop.AtOnce, rollout.Request{Actor: g.Stop.By, Why: req.Why})
	case sequence.Resume:
		_, err = s.Rollouts.Resume(ctx, id, rollout.Request{Actor: g.Resume.By, Why: g.Resume.Why})
	case sequence.Cancel:
		_, err = s.Rollouts.Cancel(ctx, id, req)
	case sequence.Discard:
		err = s.Rollouts.Delete(ctx, id, req)
	case Rollback:
		return s.rollBack(ctx, g, d.Member, seen.Rollout, req)
	}
	return err
}

// begin creates and starts the rollout of a member, or completes a start that a crash
// interrupted.
func (s *Service) begin(ctx context.Context, g *fleet.RolloutGroup, i int, req rollout.Request) error {
	m := &g.Members[i]
	r, err := s.Rollouts.CreateMember(ctx, g.ID, RolloutID(g.ID, i), g.Plan.Members[i].Plan, req)
	if err != nil {
		return err
	}
	accepts := m.AcceptDrift || g.Plan.AcceptDrift
	_, err = s.Rollouts.Begin(ctx, &r, accepts, func(pre *fleet.Preview) error {
		if pre.Hash == m.Hash || accepts {
			return nil
		}
		e := fleet.Errorf(fleet.Conflict, "the fleet has changed since the preview of the group: it would upgrade %s now, and leave out %d; resume to accept that", plan.Count(len(pre.Targets), "agent", "agents"), len(pre.Skipped))
		e.Code = ErrDrift
		return e
	}, req)
	return err
}

// rollBack rolls back the rollout of a member. If none of its agents has begun, the rollout
// is cancelled, and asked again when it has ended, since an offer may be taken until then.
func (s *Service) rollBack(ctx context.Context, g *fleet.RolloutGroup, i int, r *fleet.Rollout, req rollout.Request) error {
	if by := g.RollingBack.By; by != system {
		req.Actor = by
	}
	req.Why = g.RollingBack.Why
	_, err := s.Rollouts.Rollback(ctx, r.ID, rollout.ScopeAll, req)
	var refusal *fleet.Error
	if !errors.As(err, &refusal) || refusal.Code != rollout.ErrNothingBack {
		return err
	}
	if r.State.Active() {
		_, err = s.Rollouts.Cancel(ctx, r.ID, req)
		return err
	}
	next := *g
	next.Members = slices.Clone(g.Members)
	next.Members[i].NothingBack = true
	return s.write(ctx, g, &next, s.Now.UTC())
}
