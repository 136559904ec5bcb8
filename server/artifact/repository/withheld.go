package repository

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/packaging/trust/tuf"
	"github.com/muster-fleet/muster/server/fleet"
)

// HasRoot reports whether a root is published.
func (s *Service) HasRoot(ctx context.Context) (bool, error) {
	h, _, err := s.head(ctx)
	return len(h.Files) > 0, err
}

// SetWithheld sets Withheld of the packages that hosts will not install, and Downgrade of
// those that they may go back to.
func (s *Service) SetWithheld(ctx context.Context, packages []fleet.Package) error {
	state, err := s.load(ctx)
	if err != nil || state.repository.Root() == nil {
		return err
	}
	var targets *tuf.Contents
	if state.repository.Targets != nil {
		c, err := tuf.ContentsOf(state.repository.Targets)
		if err != nil {
			return err
		}
		targets = &c
	}
	now := s.now.UTC()
	for i := range packages {
		if packages[i].Maker != fleet.MakerMuster {
			continue // its hosts do not know the publishers
		}
		p := &packages[i]
		p.Withheld = withheld(targets, *p, now)
		p.Downgrade = targets != nil && targets.LimitsOf(p.Component).AllowsDowngrade(p.Version, now)
	}
	return nil
}

// withheld returns why hosts that trust the root will refuse a package, empty if they
// will not. targets is nil if no targets file is published.
func withheld(targets *tuf.Contents, p fleet.Package, now time.Time) string {
	if targets == nil {
		return "the publishers have signed no package yet: sign it with `muster package add`"
	}
	if !now.Before(targets.Expires) {
		return fmt.Sprintf("the publishers' targets version %d expired on %s: have them renew it with `muster package keys renew`", targets.Version, targets.Expires.UTC().Format(time.RFC3339))
	}
	for _, t := range targets.Targets {
		if t.FileName() != p.File {
			continue
		}
		if t.SHA512 != p.SHA512 {
			return fmt.Sprintf("targets version %d names other bytes under its name (sha512 %s…)", targets.Version, t.SHA512[:16])
		}
		floor := targets.LimitsOf(t.Component).Floor
		if floor == "" {
			return ""
		}
		if c, err := manifest.CompareVersions(p.Version, floor); err == nil && c < 0 {
			return fmt.Sprintf("it is below %s, the lowest version the publishers allow", floor)
		}
		return ""
	}
	return fmt.Sprintf("targets version %d does not name it: sign it with `muster package add`", targets.Version)
}
