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
	// Actor is who asks: the name of the admin key.
	Actor string
}

// RollbackVerdict is to which version, or why not, one agent would be rolled back.
type RollbackVerdict struct {
	Agent fleet.Agent
	To    agentapi.Rollback
	Err   error // nil: it will
}

// PreviewRollback says what an order would do to each agent, in the order asked
// for; see Preview.
func (s *Service) PreviewRollback(ctx context.Context, o RollbackOrder) ([]RollbackVerdict, error) {
	if err := checkAgents(o.AgentIDs); err != nil {
		return nil, err
	}
	now := s.Now.UTC()
	verdicts, err := s.judge(ctx, o.AgentIDs, func(*fleet.Agent) error { return nil })
	if err != nil {
		return nil, err
	}
	if err := s.checkLocks(ctx, verdicts); err != nil {
		return nil, err
	}
	out := make([]RollbackVerdict, len(verdicts))
	for i, v := range verdicts {
		out[i] = RollbackVerdict{Agent: v.Agent, Err: v.Err}
		if v.Err == nil {
			out[i].To, out[i].Err = v.Agent.CheckRollback(now)
		}
	}
	return out, nil
}

// Rollback creates an UPGRADE action for each version that agents would go back
// to, the newest first. Agents that cannot become error results of the first; if
// none can, that is the error. An error may come after some of the actions: they
// are returned with it.
func (s *Service) Rollback(ctx context.Context, o RollbackOrder) ([]fleet.Action, error) {
	verdicts, err := s.PreviewRollback(ctx, o)
	if err != nil {
		return nil, err
	}
	byVersion := map[string][]RollbackVerdict{}
	var refused []Verdict
	var versions []string
	for _, v := range verdicts {
		if v.Err != nil {
			refused = append(refused, Verdict{v.Agent, v.Err})
			continue
		}
		if byVersion[v.To.Version] == nil {
			versions = append(versions, v.To.Version)
		}
		byVersion[v.To.Version] = append(byVersion[v.To.Version], v)
	}
	if len(versions) == 0 {
		return nil, noneCan(refused)
	}
	manifest.SortVersions(versions)
	var actions []fleet.Action
	for _, version := range versions {
		a, err := s.rollback(ctx, o, version, byVersion[version], refused)
		if err != nil {
			return actions, err
		}
		refused = nil
		actions = append(actions, a)
	}
	return actions, nil
}

// noneCan is the refusal of an order that nobody could follow. That of a single
// agent is its own.
func noneCan(refused []Verdict) error {
	if len(refused) == 1 {
		return refused[0].Err
	}
	return &fleet.Error{
		Kind:    fleet.Invalid,
		Message: fmt.Sprintf("none of the %d agents can be rolled back: %v, and so on", len(refused), refused[0].Err),
		Err:     refused[0].Err,
	}
}

// rollback creates the action for one version.
func (s *Service) rollback(ctx context.Context, o RollbackOrder, version string, agents []RollbackVerdict, refused []Verdict) (fleet.Action, error) {
	now := s.Now.UTC()
	expiration := expires(agents, now)
	a := fleet.Action{
		ID: fleet.NewID(), Type: agentapi.ActionUpgrade, Actioned: len(agents) + len(refused), CreatedAt: now, CreatedBy: o.Actor,
		Expiration: &expiration, Data: event.Data(agentapi.UpgradeData{Version: version, Rollback: true}),
	}
	verdicts := refused
	for _, v := range agents {
		verdicts = append(verdicts, Verdict{Agent: v.Agent})
	}
	return s.order(ctx, a, verdicts, step{
		check: func(agent *fleet.Agent) error {
			to, err := agent.CheckRollback(now)
			if err == nil && to.Version != version {
				err = fleet.Errorf(fleet.Conflict, "agent %s changed meanwhile, and would now go back to %s: look at it and try again", agent.ID, to.Version)
			}
			return err
		},
		begin: func(agent *fleet.Agent) { agent.BeginRollback(a.ID, version, now) },
	})
}

// expires is when the last of the agents can no longer go back. While one is
// being watched that is not known yet.
func expires(agents []RollbackVerdict, now time.Time) time.Time {
	var last time.Time
	for _, v := range agents {
		until := v.To.ValidUntil
		if until.IsZero() {
			until = now.Add(fleet.RollbackWindow)
		}
		if until.After(last) {
			last = until
		}
	}
	return last
}
