package repository

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/packaging/install"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/packaging/trust/tuf"
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
	var targets *tuf.Contents
	if state.repository.Targets != nil {
		c, err := tuf.ContentsOf(state.repository.Targets)
		if err != nil {
			return err
		}
		targets = &c
	}
	setNeeds(packages, targets)
	now := s.now.UTC()
	for i := range packages {
		if packages[i].Maker != fleet.MakerMuster {
			continue // its hosts do not know the publishers
		}
		p := &packages[i]
		p.Withheld = withheld(targets, *p, now)
		p.BelowFloor = targets != nil && belowFloor(targets.LimitsOf(p.Component).Floor, p.Version)
		p.Downgrade = targets != nil && targets.LimitsOf(p.Component).AllowsDowngrade(p.Version, now)
	}
	return nil
}

// setNeeds sets Needs of packages by what the publishers state of their archives. targets may be
// nil.
func setNeeds(packages []fleet.Package, targets *tuf.Contents) {
	unpacked := map[string]int64{} // by SHA-512
	if targets != nil {
		for _, t := range targets.Targets {
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
		if belowFloor(floor, p.Version) {
			return fmt.Sprintf("it is below %s, the lowest version the publishers allow", floor)
		}
		return ""
	}
	return fmt.Sprintf("targets version %d does not name it: sign it with `muster package add`", targets.Version)
}

// belowFloor reports whether a version is below the lowest that the publishers allow.
func belowFloor(floor, version string) bool {
	if floor == "" {
		return false
	}
	c, err := manifest.CompareVersions(version, floor)
	return err == nil && c < 0
}
