package automatic

import (
	"context"
	"fmt"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/store"
)

// A policy that lists a component with a version wants it on all of its agents. Where no
// version is installed, a rollout of the component installs it. A version that is installed is
// never changed automatically: that is an operator's rollout. An installation that failed is
// left to an operator too.

// wanted reports whether the policy names a version of the component.
func wanted(c agentapi.PolicyComponent) bool { return c.Version != "" }

// Install returns the agents on which a component is to be installed. catalog has its packages.
func Install(c agentapi.PolicyComponent, agents []fleet.Agent, catalog fleet.Catalog) []string {
	var ids []string
	for i := range agents {
		s := agents[i].Of(c.Name)
		if s.Reported && s.Version == "" && !s.Busy() && s.Status == fleet.UpgradeNone && len(ids) < maxAgents &&
			s.CheckUpgrade(fleet.UpgradeRequest{Version: c.Version}, catalog) == nil {
			ids = append(ids, agents[i].ID)
		}
	}
	return ids
}

// install starts a rollout for each component of a policy that agents of it lack.
func (s *Service) install(ctx context.Context, p *fleet.Policy) error {
	now := s.Now.UTC()
	var agents []fleet.Agent
	err := s.Store.Agents().Each(ctx, store.AgentFilter{PolicyID: p.ID, ActiveOnly: true}, func(a fleet.Agent) {
		if len(a.RunsComponents()) > 0 && a.Facts().StatusAt(now, p.InactivityTimeout) != fleet.StatusInactive {
			agents = append(agents, a)
		}
	})
	if err != nil || len(agents) == 0 {
		return err
	}
	for _, c := range p.Components {
		if !wanted(c) {
			continue
		}
		held, err := rollout.Locks{Store: s.Store}.OfPolicies(ctx, c.Name)
		if err != nil {
			return err
		}
		if _, busy := held[p.ID]; busy {
			continue
		}
		catalog, err := s.Rollouts.Actions.CatalogOf(ctx, c.Name)
		if err != nil {
			return err
		}
		ids := Install(c, agents, catalog)
		if len(ids) == 0 {
			continue
		}
		if _, err := s.tryStart(ctx, p, installation(p, c, ids)); err != nil {
			return err
		}
	}
	return nil
}

func installation(p *fleet.Policy, c agentapi.PolicyComponent, ids []string) fleet.Plan {
	return spread(fleet.Plan{
		Name: fmt.Sprintf("automatic installation of %s %s on policy %s", c.Name, c.Version, nameOf(p)), Component: c.Name, Version: c.Version,
		Select: fleet.Selector{Agents: ids},
	})
}
