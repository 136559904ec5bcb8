package plan

import (
	"fmt"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// CheckFreezes returns an error if a freeze forbids an order without a rollout, whose first and last
// agent begin then. The rule is that of [Decide] for offers: no host begins an upgrade during a freeze.
func CheckFreezes(freezes []fleet.Freeze, from, to time.Time) error {
	f := FrozenBetween(freezes, from, to)
	if f == nil {
		return nil
	}
	e := fleet.Errorf(fleet.Conflict, "the freeze “%s” forbids upgrades from %s to %s: order it for a later time or, if it cannot wait, set override_freeze and say why (--override-freeze --why REASON)",
		f.Name, minute(f.From), minute(f.To))
	e.Code = string(fleet.WhyFreeze)
	return e
}

// CheckExposure returns an error if the agents of an order are more than the budget of the version
// has room for. sites has an element for each agent that neither runs the version nor
// was offered it; see [Tally.Sites]. room is nil without an exposure rule.
func CheckExposure(room *Room, sites [][fleet.MaxLabelLimits]int32) error {
	if room == nil {
		return nil
	}
	left, fit := newRoomLeft(room), 0
	for i := range sites {
		if t := (Target{Sites: sites[i]}); left.has(&t) {
			left.take(&t)
			fit++
		}
	}
	if fit == len(sites) {
		return nil
	}
	var full *fleet.ExposureValue
	if left.full >= 0 {
		full = &room.Sites[left.full]
	}
	e := fleet.Errorf(fleet.Conflict, "the exposure budget has room for %d of the %s: %s. Name fewer, make a rollout or, if it cannot wait, set override_exposure and say why (--override-exposure --why REASON)",
		fit, Count(len(sites), "agent", "agents"), exposureText(&room.Exposure, full))
	e.Code = string(fleet.WhyExposure)
	return e
}

// Expires returns when hosts that are away can no longer begin an order, whose last agent begins at
// to: at latest, or when the next freeze begins. A host that returns during a freeze would otherwise
// be upgraded then.
func Expires(freezes []fleet.Freeze, to, latest time.Time) time.Time {
	if next := NextFreeze(freezes, to); !next.IsZero() && next.Before(latest) {
		return next
	}
	return latest
}

func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// FreezeWarning says that a freeze delays a rollout.
func FreezeWarning(f *fleet.Freeze) string {
	return fmt.Sprintf("the freeze “%s” delays it until %s", f.Name, minute(f.To))
}
