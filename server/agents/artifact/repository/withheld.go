package repository

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/fleet"
)

// HasRoot reports whether a root is published.
func (s *Service) HasRoot(ctx context.Context) (bool, error) {
	h, _, err := s.head(ctx)
	return len(h.Files) > 0, err
}

// SetWithheld sets Withheld of the packages that hosts will not install, Downgrade of those that
// they may go back to, and Needs.
func (s *Service) SetWithheld(ctx context.Context, packages []fleet.Package) error {
	state, err := s.load(ctx)
	if err != nil {
		return err
	}
	if state.repository.Root() == nil {
		setNeeds(packages, nil)
		return nil
	}
	var signed *tuf.Contents
	if state.repository.Targets != nil {
		c, err := tuf.ContentsOf(state.repository.Targets)
		if err != nil {
			return err
		}
		signed = &c
	}
	setNeeds(packages, signed)
	now := s.now.UTC()
	for i := range packages {
		if packages[i].Maker != fleet.MakerMuster {
			continue // its hosts do not know the publishers
		}
		p := &packages[i]
		p.Withheld = withheld(signed, *p, now)
		p.BelowFloor = signed != nil && belowFloor(signed.LimitsOf(p.Component).Floor, p.Version)
		p.Downgrade = signed != nil && signed.LimitsOf(p.Component).AllowsDowngrade(p.Version, now)
	}
	return nil
}

// setNeeds sets Needs of packages by what the publishers state of their archives. signed may be
// nil.
func setNeeds(packages []fleet.Package, signed *tuf.Contents) {
	unpacked := map[string]int64{} // by SHA-512
	if signed != nil {
		for _, t := range signed.Targets {
			unpacked[t.SHA512] = t.Unpacked
		}
	}
	for i := range packages {
		p := &packages[i]
		if p.Size <= 0 {
			continue
		}
		size, stated := unpacked[p.SHA512]
		if !stated {
			size = -1
		}
		p.Needs = install.UpgradeNeed(p.Size, size, 0)
	}
}

// withheld returns why hosts that trust the root will refuse a package, empty if they
// will not. signed is nil if the publishers have signed no targets.
func withheld(signed *tuf.Contents, p fleet.Package, now time.Time) string {
	if signed == nil {
		return "the publishers have signed no package yet: sign it with `muster package add`"
	}
	if !now.Before(signed.Expires) {
		return fmt.Sprintf("the publishers' targets version %d expired on %s: have them renew it with `muster package keys renew`", signed.Version, signed.Expires.UTC().Format(time.RFC3339))
	}
	for _, t := range signed.Targets {
		if t.FileName() != p.File {
			continue
		}
		if t.SHA512 != p.SHA512 {
			return fmt.Sprintf("targets version %d names other bytes under its name (sha512 %s…)", signed.Version, t.SHA512[:16])
		}
		floor := signed.LimitsOf(t.Component).Floor
		if belowFloor(floor, p.Version) {
			return fmt.Sprintf("it is below %s, the lowest version the publishers allow", floor)
		}
		return ""
	}
	return fmt.Sprintf("targets version %d does not name it: sign it with `muster package add`", signed.Version)
}

// belowFloor reports whether a version is below the lowest that the publishers allow.
func belowFloor(floor, version string) bool {
	if floor == "" {
		return false
	}
	c, err := manifest.CompareVersions(version, floor)
	return err == nil && c < 0
}
