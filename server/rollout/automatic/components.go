package automatic

import (
	"context"
	"fmt"
	"slices"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// A policy that lists a component with a version wants it on all of its agents. Where no
// version is installed, a rollout of the component installs it. A version that is installed is
// never changed automatically: that is an operator's rollout. An installation that failed is
// left to an operator too.
//
// Where hosts must not run mixed versions, the version in force counts instead. A host that withholds its start
// because it has another one runs nothing, so it is brought to it. While a rollout in lockstep
// changes the version in force, nothing is installed.

// inForce is fleet.WantedVersion where hosts must not run mixed versions.
func inForce(c agentapi.PolicyComponent) string {
	version, _ := fleet.InForce(c)
	return version
}

// JoinWithheld brings hosts that withhold the start of a component to the version in force, if this server owns the lease. It must
// not be called concurrently with Round.
func (s *Service) JoinWithheld(ctx context.Context) error {
	policies, _, err := s.Store.Policies().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	policies = slices.DeleteFunc(policies, func(p fleet.Policy) bool {
		return p.Managed || !slices.ContainsFunc(p.Components, func(c agentapi.PolicyComponent) bool { return inForce(c) != "" })
	})
	if len(policies) == 0 {
		return nil
	}
	if owned, err := s.Lease.Take(ctx, leaseID); err != nil || !owned {
		return err
	}
	for i := range policies {
		if err := s.install(ctx, &policies[i], inForce); err != nil {
			return fmt.Errorf("components of policy %s: %w", policies[i].ID, err)
		}
	}
	return nil
}

// Install returns the agents on which the wanted version of a component is to be installed. down
// are those that have a higher one, which needs force. catalog has the component's packages.
func Install(c agentapi.PolicyComponent, agents []fleet.Agent, catalog fleet.Catalog) (ids, down []string) {
	wish := fleet.UpgradeRequest{Version: fleet.WantedVersion(c)}
	for i := range agents {
		s := agents[i].Of(c.Name)
		if !s.Reported || s.Busy() || !lacks(&s, c, wish.Version) {
			continue
		}
		forced := wish
		forced.Force = true
		switch {
		case s.CheckUpgrade(wish, catalog) == nil:
			ids = append(ids, s.Agent.ID)
		case isDown(wish.Version, s.Version) && s.CheckUpgrade(forced, catalog) == nil:
			down = append(down, s.Agent.ID)
		}
	}
	return ids[:min(len(ids), maxAgents)], down[:min(len(down), maxAgents)]
}

// lacks reports whether a component needs a version that did not fail on its host before.
func lacks(s *fleet.Subject, c agentapi.PolicyComponent, version string) bool {
	if s.Version == "" {
		return s.UpgradeStatus == fleet.UpgradeNone
	}
	_, failed := s.FailedBefore(version)
	failed = failed || s.UpgradeStatus != fleet.UpgradeNone && s.UpgradeTo == version
	return s.StartWithheldBy(c) && !failed && !s.Stuck()
}

// isDown reports whether a version is lower than the one that is installed.
func isDown(version, installed string) bool {
	sign, err := manifest.CompareVersions(version, installed)
	return err == nil && installed != "" && sign < 0
}

// install starts a rollout for each component of a policy that agents of it lack, of those of which
// version returns one.
func (s *Service) install(ctx context.Context, p *fleet.Policy, version func(agentapi.PolicyComponent) string) error {
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
		if version(c) == "" {
			continue
		}
		locked, err := rollout.Locks{Store: s.Store}.OfPolicies(ctx, c.Name)
		if err != nil {
			return err
		}
		if _, busy := locked[p.ID]; busy {
			continue
		}
		catalog, err := s.Rollouts.Actions.CatalogOf(ctx, c.Name)
		if err != nil {
			return err
		}
		owned, err := s.owned(ctx, c.Name)
		if err != nil {
			return err
		}
		free := slices.DeleteFunc(slices.Clone(agents), func(a fleet.Agent) bool { return owned(&a) })
		ids, down := Install(c, free, catalog)
		force := len(ids) == 0 // one rollout holds the component of the policy, so these come later
		if force {
			ids = down
		}
		if len(ids) == 0 {
			continue
		}
		plan := installation(p, c, ids)
		plan.Force = force
		if _, err := s.tryStart(ctx, p, plan); err != nil {
			return err
		}
	}
	return nil
}

func installation(p *fleet.Policy, c agentapi.PolicyComponent, ids []string) fleet.Plan {
	plan := fleet.Plan{
		Name: fmt.Sprintf("automatic installation of %s %s on policy %s", c.Name, fleet.WantedVersion(c), nameOf(p)), Component: c.Name, Version: fleet.WantedVersion(c),
		Select: fleet.Selector{Agents: ids},
	}
	if inForce(c) != "" {
		// The other hosts run the version, so their hosts' own observation is enough, and the
		// next host that withholds a start does not wait for longer.
		plan.Health.Wait = fleet.Duration(c.Health.Wait())
	}
	return spread(plan)
}
