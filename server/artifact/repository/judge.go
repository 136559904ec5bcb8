package repository

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/packaging/trust/tuf"
	"github.com/muster-fleet/muster/server/fleet"
)

// Rooted says whether a root is published.
func (s *Service) Rooted(ctx context.Context) (bool, error) {
	h, _, err := s.head(ctx)
	return len(h.Files) > 0, err
}

// Judge sets Withheld of the packages that hosts will not install.
func (s *Service) Judge(ctx context.Context, packages []fleet.Package) error {
	state, err := s.load(ctx)
	if err != nil || state.repository.Root() == nil {
		return err
	}
	var said *tuf.Contents
	if state.repository.Targets != nil {
		c, err := tuf.ContentsOf(state.repository.Targets)
		if err != nil {
			return err
		}
		said = &c
	}
	now := s.Now.UTC()
	for i := range packages {
		packages[i].Withheld = withheld(said, packages[i], now)
	}
	return nil
}

// withheld is what hosts that trust the root will say about a package. nil is
// that no targets file is published.
func withheld(said *tuf.Contents, p fleet.Package, now time.Time) string {
	if said == nil {
		return "the publishers have signed no package yet: sign it with `muster package add`"
	}
	if !now.Before(said.Expires) {
		return fmt.Sprintf("the publishers' targets version %d expired on %s: have them sign it anew with `muster package keys renew`", said.Version, said.Expires.UTC().Format(time.RFC3339))
	}
	for _, t := range said.Targets {
		if t.FileName() != p.File {
			continue
		}
		if t.SHA512 != p.SHA512 {
			return fmt.Sprintf("targets version %d names other bytes under its name (sha512 %s…)", said.Version, t.SHA512[:16])
		}
		if said.Floor == "" {
			return ""
		}
		if c, err := manifest.CompareVersions(p.Version, said.Floor); err == nil && c < 0 {
			return fmt.Sprintf("it is below %s, the lowest version the publishers allow", said.Floor)
		}
		return ""
	}
	return fmt.Sprintf("targets version %d does not name it: sign it with `muster package add`", said.Version)
}
