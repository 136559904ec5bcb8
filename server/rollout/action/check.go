package action

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// CheckUpgradeRequest returns an error if a request to upgrade is wrong, whatever
// packages are published.
func CheckUpgradeRequest(r fleet.UpgradeRequest) error { return withSource(r).Check("", nil) }

// withSource returns the request with a source_uri, so that Check and CheckUpgrade do not
// look at the published packages.
func withSource(r fleet.UpgradeRequest) fleet.UpgradeRequest {
	if r.SourceURI == "" {
		r.SourceURI = "https://elsewhere/"
	}
	return r
}

// noPackage is the refusal of an agent that could be upgraded if there were a package that
// its host installs. Kibana, which knows no packages, accepts such an order and leaves the
// failure to the agent. So it is an error result of the action, of single orders too.
type noPackage struct{ error }

func (e noPackage) Unwrap() error { return e.error }

// upgradeStep returns what an order checks of each agent, and the packages of what it
// upgrades, or an error if no agent can follow it.
func (s *Service) upgradeStep(ctx context.Context, o UpgradeOrder) (do step, catalog fleet.Catalog, err error) {
	if err := checkAgents(o.AgentIDs, o.Selected); err != nil {
		return step{}, nil, err
	}
	do = step{component: o.Component, single: o.Single, why: o.Why, override: o.overrides()}
	if o.Rollback {
		packages, err := s.CatalogOf(ctx, o.Component)
		if err != nil {
			return step{}, nil, err
		}
		back := checkRollback(o.Component, o.Version, s.Now.UTC())
		inForce, err := s.InForceElsewhere(ctx, o.Component, o.Version)
		if err != nil {
			return step{}, nil, err
		}
		do.check = func(a *fleet.Agent) error {
			subject := a.Of(o.Component)
			if subject.Version == o.Version {
				return fleet.AlreadyHas(o.Component, a.ID, o.Version).Because(fleet.CauseRunning)
			}
			if err := cmp.Or(inForce[a.PolicyID], back(a)); err != nil {
				return err
			}
			return subject.CheckState(o.Version, packages)
		}
		return do, nil, o.check(nil)
	}
	if catalog, err = s.CatalogOf(ctx, o.Component); err != nil {
		return step{}, nil, err
	}
	if o.SourceURI == "" {
		if err := s.CheckPublished(ctx, "path.name", o.Component, catalog); err != nil {
			return step{}, nil, err
		}
	}
	if o.Component != "" {
		if err := o.check(catalog); err != nil {
			return step{}, nil, err
		}
		do.check, err = s.checkComponentUpgrade(ctx, o, catalog)
	} else {
		do.check, err = s.checkAgentUpgrade(ctx, o, catalog)
	}
	if upgrade := do.check; o.Stages {
		do.locked = true
		do.check = func(a *fleet.Agent) error { return cmp.Or(a.CheckStage(o.Component, o.Version), upgrade(a)) }
	}
	return do, catalog, err
}

// check validates the order without regard to any agent.
func (o *UpgradeOrder) check(catalog fleet.Catalog) error {
	if o.Rollback {
		return o.checkRollback()
	}
	return o.UpgradeRequest.Check(o.Component, catalog)
}

// checkRollback validates a rollback of a component without regard to any agent.
func (o *UpgradeOrder) checkRollback() error {
	if err := manifest.ValidComponentName(o.Component); err != nil {
		return fleet.FieldError("path.name", "%w", err)
	}
	if o.SourceURI != "" {
		return fleet.FieldError("body.source_uri", "contradicts rollback: hosts go back to a version that they have kept, and download nothing")
	}
	if _, err := manifest.ParseVersion(o.Version); err != nil {
		return fleet.FieldError("body.version", "%w", err)
	}
	return nil
}

// checkRollback returns a function that reports why an agent, or its component, cannot go back
// to the version.
func checkRollback(component, version string, now time.Time) func(*fleet.Agent) error {
	return func(agent *fleet.Agent) error {
		subject := agent.Of(component)
		to, err := subject.CheckRollback(version, now)
		if err == nil && to != version {
			err = fleet.Errorf(fleet.Invalid, "agent %s would go back to %s, not to %s", agent.ID, to, version).Because(fleet.CauseNoWayBack)
		}
		return err
	}
}

// checkComponentUpgrade returns a function that reports why an agent cannot follow an order of
// its component.
func (s *Service) checkComponentUpgrade(ctx context.Context, o UpgradeOrder, catalog fleet.Catalog) (func(*fleet.Agent) error, error) {
	policies, err := store.PoliciesWith(ctx, s.Store.Policies(), o.Component)
	listed := map[string]agentapi.PolicyComponent{} // by policy
	for id, p := range policies {
		listed[id] = *p.Component(o.Component)
	}
	check := func(a *fleet.Agent) error {
		subject := a.Of(o.Component)
		err := subject.CheckUpgrade(o.UpgradeRequest, catalog)
		if err == nil && !o.Stages {
			err = fleet.CheckInForce(listed[a.PolicyID], o.Version)
		}
		if err == nil {
			err = subject.CheckRendered(o.UpgradeRequest)
		}
		if err != nil || o.SourceURI != "" {
			return err
		}
		for _, p := range catalog.For(o.Version, a.Host()) {
			if err = fleet.CheckPin(listed[a.PolicyID], o.Version, p.Image); err == nil {
				return nil
			}
		}
		return err
	}
	if err != nil {
		return nil, err
	}
	return s.unlessHosted(ctx, o, check)
}

// InForceElsewhere returns, by policy, why its agents must not be brought to a version of a component:
// another one is in force. Upgrades in lockstep are not asked.
func (s *Service) InForceElsewhere(ctx context.Context, component, version string) (map[string]error, error) {
	policies, err := store.PoliciesWith(ctx, s.Store.Policies(), component)
	refused := map[string]error{}
	for id, p := range policies {
		if err := fleet.CheckInForce(*p.Component(component), version); err != nil {
			refused[id] = err
		}
	}
	return refused, err
}

// unlessHosted refuses the agents of managed policies, unless the order has force.
func (s *Service) unlessHosted(ctx context.Context, o UpgradeOrder, check func(*fleet.Agent) error) (func(*fleet.Agent) error, error) {
	if o.Force && !o.Single { // as in Kibana, where force does not open this for one agent
		return check, nil
	}
	check, err := s.unlessManaged(ctx, check, "Cannot upgrade agent %s in hosted agent policy %s: it is managed (is_managed)")
	if len(o.AgentIDs) > 1 { // the call for one agent has no such force
		check = managedForceable(check)
	}
	return check, err
}

// checkAgentUpgrade returns a function that reports why an agent cannot follow the order.
func (s *Service) checkAgentUpgrade(ctx context.Context, o UpgradeOrder, catalog fleet.Catalog) (func(*fleet.Agent) error, error) {
	if err := CheckUpgradeRequest(o.UpgradeRequest); err != nil {
		return nil, err
	}
	missing := o.UpgradeRequest.Check("", catalog)
	var of *fleet.Error
	if errors.As(missing, &of) {
		missing = fleet.Errorf(of.Kind, "%s", of.Message).Because(cmp.Or(of.Cause, fleet.CauseNotPublished)) // without the field of the request
	}
	check := func(a *fleet.Agent) error {
		err := a.CheckUpgrade(o.UpgradeRequest, catalog)
		if err == nil && missing == nil {
			return nil
		}
		var lacks *fleet.Error
		if errors.As(err, &lacks) && lacks.Cause == fleet.CauseRunning {
			return err // of another source it is not known whether it holds this build
		}
		if refused := a.CheckUpgrade(withSource(o.UpgradeRequest), catalog); refused != nil {
			return refused
		}
		if missing != nil {
			err = missing
		}
		if errors.As(err, &lacks) && lacks.Cause == fleet.CauseNoSpace {
			return err
		}
		return noPackage{err}
	}
	return s.unlessHosted(ctx, o, check)
}
