package action

import (
	"context"
	"maps"
	"slices"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
)

// Catalog returns the published packages of agents.
func (s *Service) Catalog(ctx context.Context) (fleet.Catalog, error) { return s.CatalogOf(ctx, "") }

// CheckPublished returns an error about a field that names a component of which no package is
// published, with those that have packages: the name is probably wrong. catalog has its packages.
func (s *Service) CheckPublished(ctx context.Context, field, component string, catalog fleet.Catalog) error {
	if component == "" || len(catalog) > 0 || manifest.ValidComponentName(component) != nil {
		return nil
	}
	packages, _, err := s.Store.Packages().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, p := range packages {
		if p.Component != "" {
			names[p.Component] = true
		}
	}
	if len(names) == 0 {
		return nil // then no version is, which is another error
	}
	return fleet.FieldError(field, "is %s, and no package of that component is published: packages of %s are", component, fleet.List(slices.Sorted(maps.Keys(names))))
}

// CatalogOf returns the published packages of a component, or those of agents if the name is
// empty.
func (s *Service) CatalogOf(ctx context.Context, component string) (fleet.Catalog, error) {
	packages, _, err := s.Store.Packages().List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	catalog := fleet.OfComponent(packages, component)
	if s.Trust != nil {
		err = s.Trust.SetWithheld(ctx, catalog)
	}
	return catalog, err
}
