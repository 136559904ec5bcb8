package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// agentRuntimes are those that Muster's agents have. Another one is known by the packages
// that are for it.
var agentRuntimes = []fleet.Runtime{fleet.RuntimeProcess, fleet.RuntimeSystemd, fleet.RuntimeDocker}

// checkPublished refuses components that no agent could run: with another runtime than that
// of their packages, or in a version that is not among them. The packages of a component that
// are nowhere published are not known, since a mirror may have them. It also refuses required
// versions without a package, to which the server would upgrade no agent. What old has too is
// accepted: an edit of another field must not fail because a package was removed.
func (s *Service) checkPublished(ctx context.Context, old, p *fleet.Policy) error {
	var components, versions []int
	for i, c := range p.Components {
		if !slices.ContainsFunc(old.Components, func(o agentapi.PolicyComponent) bool {
			return o.Name == c.Name && o.Runtime == c.Runtime && o.Version == c.Version
		}) {
			components = append(components, i)
		}
	}
	for i, v := range p.RequiredVersions {
		if !slices.ContainsFunc(old.RequiredVersions, func(o fleet.RequiredVersion) bool { return o.Version == v.Version }) {
			versions = append(versions, i)
		}
	}
	if len(components)+len(versions) == 0 {
		return nil
	}
	packages, _, err := s.Store.Packages().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	for _, i := range components {
		c := p.Components[i]
		if err := checkAgainst(fmt.Sprintf("body.components[%d]", i), c, fleet.OfComponent(packages, c.Name)); err != nil {
			return err
		}
	}
	for _, i := range versions {
		if err := checkRequired(fmt.Sprintf("body.required_versions[%d].version", i), p.RequiredVersions[i].Version, fleet.OfComponent(packages, "")); err != nil {
			return err
		}
	}
	return nil
}

// checkRequired refuses a required version of agents that is not published.
func checkRequired(at, version string, published fleet.Catalog) error {
	if len(published.Of(version)) > 0 {
		return nil
	}
	near := "none is published yet"
	if v := nearest(published.Versions(), version); len(v) > 0 {
		near = "the nearest that are published are " + fleet.List(v)
	}
	return fleet.FieldError(at, "is %s, and no package of that version is published, so no agent would be upgraded to it (%s): publish it with `muster package push` first", version, near)
}

// nearby is how many versions on each side a refusal names.
const nearby = 2

// nearest returns the versions around one that is not among them. They are sorted, newest first.
func nearest(versions []string, version string) []string {
	key := fleet.VersionKey(version)
	at, _ := slices.BinarySearchFunc(versions, key, func(v, key string) int { return strings.Compare(key, fleet.VersionKey(v)) })
	return versions[max(0, at-nearby):min(at+nearby, len(versions))]
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
	if !runtimes[c.Runtime] {
		return fleet.FieldError(at+".runtime", "is %q, and the published packages of component %s are for %s", c.Runtime, c.Name, strings.Join(slices.Sorted(maps.Keys(runtimes)), " and "))
	}
	return nil
}
