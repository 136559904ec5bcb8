package artifact

import (
	"context"
	"net/http"

	"github.com/muster-fleet/muster/server/fleet"
)

// Catalog returns the published packages, with Withheld of those that hosts refuse.
func (s *Service) Catalog(ctx context.Context) (packages fleet.Catalog, err error) {
	err = s.Health.Call(ctx, func(ctx context.Context) error {
		list, _, err := s.Store.Packages().List(ctx, 0, 0)
		if err == nil && s.Trust != nil {
			err = s.Trust.SetWithheld(ctx, list)
		}
		packages = list
		return err
	})
	return packages, err
}

// ServeAgent responds to a GET or HEAD with the package that a new host of a platform, such
// as linux-amd64, is installed from.
func (s *Service) ServeAgent(w http.ResponseWriter, r *http.Request, platform string) error {
	packages, err := s.Catalog(r.Context())
	if err != nil {
		return err
	}
	p, ok := packages.NewestAgent(platform)
	if !ok {
		return NoAgent(platform)
	}
	// So that a person who downloads it sees which version it is.
	w.Header().Set("Content-Disposition", `attachment; filename="`+p.File+`"`)
	return s.serveBytes(w, r, p)
}

// NoAgent says that no package is published that new hosts of a platform can be installed
// from, and what publishes one.
func NoAgent(platform string) error {
	return fleet.Errorf(fleet.NotFound, "no agent that hosts accept is published for %q: build one with `muster package build --os OS --arch ARCH`, and publish it with `muster package push ARCHIVE --targets-key KEY`", platform)
}
