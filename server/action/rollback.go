package action

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
)

// RollbackOrder asks agents to go back to the version before.
type RollbackOrder struct {
	AgentIDs []string
	Selected bool // as in UpgradeOrder
	// Actor is who asks: the name of the admin key.
	Actor string
}

// RollbackVerdict is to which version, or why not, one agent would be rolled back.
type RollbackVerdict struct {
	Agent fleet.Agent
	To    agentapi.Rollback
	Err   error // nil: it will
}

// EachRollbackVerdict calls f with what an order would do to each agent; see
// EachVerdict.
func (s *Service) EachRollbackVerdict(ctx context.Context, o RollbackOrder, f func(RollbackVerdict)) error {
	if err := checkAgents(o.AgentIDs, o.Selected); err != nil {
		return err
	}
	now := s.Now.UTC()
	return s.eachVerdict(ctx, o.AgentIDs, step{check: func(*fleet.Agent) error { return nil }}, func(v Verdict) {
		r := RollbackVerdict{Agent: v.Agent, Err: v.Err}
		if v.Err == nil {
			r.To, r.Err = v.Agent.CheckRollback(now)
		}
		f(r)
	})
}

// Rollback creates an UPGRADE action for each version that agents would go back
// to, the newest first. Agents that cannot become error results of the first; if
// none can, that is the error. An error may come after some of the actions: they
// are returned with it.
func (s *Service) Rollback(ctx context.Context, o RollbackOrder) ([]fleet.Action, error) {
	now := s.Now.UTC()
	byVersion := map[string]*rollbackTo{}
	var (
		refused  []fleet.Result
		first    error // why
		versions []string
	)
	err := s.EachRollbackVerdict(ctx, o, func(v RollbackVerdict) {
		if v.Err != nil {
			refused = append(refused, fleet.Result{AgentID: v.Agent.ID, Hostname: v.Agent.Hostname(), Error: v.Err.Error()})
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
	if len(versions) == 0 {
		return nil, noneCan(len(refused), first)
	}
	manifest.SortVersions(versions)
	var actions []fleet.Action
	for _, version := range versions {
		a, err := s.rollback(ctx, o, byVersion[version], refused)
		if err != nil {
			return actions, err
		}
		refused = nil
		actions = append(actions, a)
	}
	return actions, nil
}

// rollbackTo is the part of an order that goes back to one version.
type rollbackTo struct {
	version string
	agents  []string
	// expires is when the last of the agents can no longer go back.
	expires time.Time
}

func (r *rollbackTo) add(v RollbackVerdict, now time.Time) {
	r.agents = append(r.agents, v.Agent.ID)
	until := v.To.ValidUntil
	if until.IsZero() { // while it is being watched that is not known yet
		until = now.Add(fleet.RollbackWindow)
	}
	if until.After(r.expires) {
		r.expires = until
	}
}

// noneCan is the refusal of an order that nobody could follow. That of a single
// agent is its own.
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

// rollback creates the action for one version.
func (s *Service) rollback(ctx context.Context, o RollbackOrder, to *rollbackTo, refused []fleet.Result) (fleet.Action, error) {
	now := s.Now.UTC()
	a := fleet.Action{
		ID: fleet.NewID(), Type: agentapi.ActionUpgrade, CreatedAt: now, CreatedBy: o.Actor,
		Expiration: &to.expires, Data: event.Data(agentapi.UpgradeData{Version: to.version, Rollback: true}),
	}
	return s.order(ctx, a, to.agents, refused, step{
		check: func(agent *fleet.Agent) error {
			goes, err := agent.CheckRollback(now)
			if err == nil && goes.Version != to.version {
				err = fleet.Errorf(fleet.Conflict, "agent %s changed meanwhile, and would now go back to %s: look at it and try again", agent.ID, goes.Version)
			}
			return err
		},
		begin: func(agent *fleet.Agent) { agent.BeginRollback(a.ID, to.version, now) },
	})
}
