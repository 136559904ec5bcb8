package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// agentRuntimes are those that Muster's agents have. Another one is known by the packages
// that are for it.
var agentRuntimes = []fleet.Runtime{fleet.RuntimeProcess, fleet.RuntimeSystemd, fleet.RuntimeDocker}

// checkPublished refuses components that no agent could run: with another runtime than that
// of their packages, or in a version that is not among them. The packages of a component that
// are nowhere published are not known, since a mirror may have them. Components that old has too
// are accepted: an edit of another field must not fail because a package was removed.
//
// The versions of agents in required_versions are not checked so: Kibana, whose field that is,
// knows no packages, and nothing stops or fails where one is not published.
func (s *Service) checkPublished(ctx context.Context, old, components []agentapi.PolicyComponent) error {
	var packages []fleet.Package
	for i, c := range components {
		if slices.ContainsFunc(old, func(o agentapi.PolicyComponent) bool {
			return o.Name == c.Name && o.Runtime == c.Runtime && o.Version == c.Version
		}) {
			continue
		}
		if packages == nil {
			var err error
			if packages, _, err = s.Store.Packages().List(ctx, 0, 0); err != nil {
				return err
			}
		}
		if err := checkAgainst(fmt.Sprintf("body.components[%d]", i), c, fleet.OfComponent(packages, c.Name)); err != nil {
			return err
		}
	}
	return nil
}

// checkAgainst checks a component of a policy with its packages.
func checkAgainst(at string, c agentapi.PolicyComponent, published fleet.Catalog) error {
	if len(published) == 0 {
		if !slices.Contains(agentRuntimes, fleet.Runtime(c.Runtime)) {
			return fleet.FieldError(at+".runtime", "is %q, want process, systemd or docker: no package of component %s is published that is for another one", c.Runtime, c.Name)
		}
		return nil
	}
	of := published
	if c.Version != "" {
		if of = published.Of(c.Version); len(of) == 0 {
			return fleet.FieldError(at+".version", "is %s, and no package of component %s is published in it, only %s: publish it with `muster package push` first", c.Version, c.Name, fleet.List(published.Versions()))
		}
	}
	runtimes := map[string]bool{}
	for _, p := range of {
		runtimes[p.Runtime] = true
	}
	if !runtimes[c.Runtime] && !runtimes[""] { // earlier servers did not store the runtime
		return fleet.FieldError(at+".runtime", "is %q, and the published packages of component %s are for %s", c.Runtime, c.Name, strings.Join(slices.Sorted(maps.Keys(runtimes)), " and "))
	}
	return nil
}
