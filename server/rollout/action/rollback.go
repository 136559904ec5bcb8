package action

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// RollbackOrder asks agents to go back to the version before.
type RollbackOrder struct {
	AgentIDs []string `json:"-"`
	Selected bool     // as in UpgradeOrder
	// Forward also takes agents whose other version is a later one, as after a rollback.
	Forward bool
	// TakeOver is the declared fleet whose agents are meant, as in Claim, and Why the reason.
	TakeOver, Why string
	// Actor is the name of the admin key.
	Actor string
}

// RollbackVerdict has the version to which an agent would be rolled back, if it can be.
type RollbackVerdict struct {
	Verdict
	To agentapi.Rollback
}

// EachRollbackVerdict calls f with the verdict of a rollback of each agent; see
// EachVerdict. That Rollback refuses agents of declared fleets is no error.
func (s *Service) EachRollbackVerdict(ctx context.Context, o RollbackOrder, f func(RollbackVerdict)) error {
	_, err := s.eachRollback(ctx, o, f)
	return err
}

func (s *Service) eachRollback(ctx context.Context, o RollbackOrder, f func(RollbackVerdict)) (*owned, error) {
	if err := checkAgents(o.AgentIDs, o.Selected); err != nil {
		return nil, err
	}
	now := s.Now.UTC()
	check, err := s.checkAgentRollback(ctx, o.Forward, now)
	if err != nil {
		return nil, err
	}
	owned, err := ownedBy(ctx, s.Owners, Claim{TakeOver: o.TakeOver, Actor: o.Actor, Why: o.Why})
	if err != nil {
		return nil, err
	}
	return owned, s.judgeAll(ctx, o.AgentIDs, step{check: check}, nil, func(v Verdict) {
		r := RollbackVerdict{Verdict: v}
		if v.Err == nil {
			r.Owner = owned.add(&v.Agent)
			r.To, r.Err = v.Agent.CheckRollback(now)
		}
		f(r)
	})
}

// checkAgentRollback returns a function that reports why an agent cannot go back to any version.
func (s *Service) checkAgentRollback(ctx context.Context, forward bool, now time.Time) (func(*fleet.Agent) error, error) {
	return s.unlessManaged(ctx, func(a *fleet.Agent) error {
		to, err := a.CheckRollback(now)
		if err == nil && !forward {
			err = a.CheckForward(to.Version)
		}
		return err
	}, "Cannot roll back upgrade for agent %s on hosted agent policy %s: it is managed (is_managed)")
}

// Rollback creates an UPGRADE action for each version that agents would go back to, the
// newest first. Agents that cannot go back become error results of the first action; if
// none can, Rollback fails. If it fails after some of the orders were accepted, it
// returns the actions that exist with the error.
func (s *Service) Rollback(ctx context.Context, o RollbackOrder) ([]fleet.Action, error) {
	if err := checkAgents(o.AgentIDs, o.Selected); err != nil {
		return nil, err
	}
	key := keyOf("rollback", &o, nil, o.Actor, o.AgentIDs)
	if earlier, found, err := s.again(ctx, key); err != nil || found {
		return earlier, err
	}
	now := s.Now.UTC()
	byVersion := map[string]*rollbackTo{}
	var (
		refused  []string
		first    error // why
		versions []string
	)
	owned, err := s.eachRollback(ctx, o, func(v RollbackVerdict) {
		if v.Err != nil {
			refused = append(refused, v.Agent.ID)
			if first == nil {
				first = v.Err
			}
			return
		}
		to := byVersion[v.To.Version]
		if to == nil {
			to = &rollbackTo{version: v.To.Version}
			byVersion[to.version] = to
			versions = append(versions, to.version)
		}
		to.add(v, now)
	})
	if err != nil {
		return nil, err
	}
	if err := owned.refuses(); err != nil {
		return nil, err
	}
	if len(versions) == 0 {
		return nil, noneCan(len(refused), first)
	}
	if err := s.takeOver(ctx, owned); err != nil {
		return nil, err
	}
	manifest.SortVersions(versions)
	var orders []fleet.AcceptedOrder
	var steps []step
	for _, version := range versions {
		to := byVersion[version]
		a := fleet.Action{
			ID: fleet.NewID(), Type: agentapi.ActionUpgrade, CreatedAt: now, CreatedBy: o.Actor,
			Expiration: &to.expires, Data: event.Data(agentapi.UpgradeData{Version: version, Rollback: true}),
		}
		ids := slices.Concat(to.agents, refused) // the latter are refused again, for the same reason
		refused = nil
		do, err := o.step(ctx, s, &a, ids)
		if err != nil {
			return nil, err
		}
		orders, steps = append(orders, fleet.AcceptedOrder{
			ID: key + " " + version, Kind: "rollback", Terms: event.Data(&o), Action: a, AgentIDs: ids, Entry: entryOf(ctx, a, ids, do),
		}), append(steps, do)
	}
	return s.accept(ctx, orders, steps)
}

func (o *RollbackOrder) step(ctx context.Context, s *Service, a *fleet.Action, _ []string) (step, error) {
	now, version := a.CreatedAt, a.Upgrade().Version
	can, err := s.checkAgentRollback(ctx, o.Forward, now)
	return step{
		why: o.Why,
		check: func(agent *fleet.Agent) error {
			if err := can(agent); err != nil {
				return err
			}
			goes, err := agent.CheckRollback(now)
			if err == nil && goes.Version != version {
				err = fleet.Errorf(fleet.Conflict, "agent %s changed meanwhile, and would now go back to %s: look at it and try again", agent.ID, goes.Version)
			}
			return err
		},
		begin: func(agent *fleet.Agent) {
			agent.BeginRollback(a.ID, version, now)
			agent.RequestedBy("", fleet.Requester{By: o.Actor, Why: o.Why}, now)
		},
		begun: func(agent *fleet.Agent) bool { return marked(agent, a.ID) },
	}, err
}

// rollbackTo is the part of an order for one version.
type rollbackTo struct {
	version string
	agents  []string
	// expires is when the last of the agents can no longer go back.
	expires time.Time
}

func (r *rollbackTo) add(v RollbackVerdict, now time.Time) {
	r.agents = append(r.agents, v.Agent.ID)
	until := v.To.ValidUntil
	if until.IsZero() { // unknown while the upgrade is being watched
		until = now.Add(fleet.RollbackWindow)
	}
	if until.After(r.expires) {
		r.expires = until
	}
}

// noneCan returns the error of an order that no agent can follow. With a single agent it
// is that agent's error.
func noneCan(agents int, first error) error {
	if agents == 1 {
		return first
	}
	return &fleet.Error{
		Kind:    fleet.Invalid,
		Message: fmt.Sprintf("none of the %d agents can be rolled back: %v, and so on", agents, first),
		Err:     first,
	}
}
