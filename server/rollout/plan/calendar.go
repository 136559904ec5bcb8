package plan

import (
	"fmt"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// OfferableAt reports whether the plan's windows and the freezes allow offers at t, and
// when that changes. A zero until means never, as far as can be computed.
func OfferableAt(p *fleet.Plan, freezes []fleet.Freeze, t time.Time) (open bool, until time.Time) {
	if p.Pace.Emergency {
		return true, time.Time{}
	}
	open, until = fleet.OpenAt(p.Pace.Windows, t)
	if open && frozenAt(freezes, t) == nil {
		if next := NextFreeze(freezes, t); !next.IsZero() && (until.IsZero() || next.Before(until)) {
			until = next
		}
		return true, until
	}
	// Each iteration passes the end of a freeze, or reaches the beginning of a
	// window; at most one window is reached for each freeze.
	for range 2*len(freezes) + 2 {
		if f := frozenAt(freezes, t); f != nil {
			t = f.To
			continue
		}
		if open, until = fleet.OpenAt(p.Pace.Windows, t); open {
			return false, t
		}
		if until.IsZero() {
			break
		}
		t = until
	}
	return false, time.Time{}
}

// frozenAt returns the freeze at t that lasts longest, nil if there is none.
func frozenAt(freezes []fleet.Freeze, t time.Time) *fleet.Freeze {
	return FrozenBetween(freezes, t, t)
}

// FrozenBetween returns the freeze between two times, both included, that lasts longest;
// nil if there is none.
func FrozenBetween(freezes []fleet.Freeze, from, to time.Time) *fleet.Freeze {
	var longest *fleet.Freeze
	for i := range freezes {
		f := &freezes[i]
		if f.Covers(from, to) && (longest == nil || f.To.After(longest.To)) {
			longest = f
		}
	}
	return longest
}

// NextFreeze returns when the first freeze after t begins; zero if there is none.
func NextFreeze(freezes []fleet.Freeze, t time.Time) time.Time {
	var next time.Time
	for _, f := range freezes {
		if f.From.After(t) && f.To.After(f.From) && (next.IsZero() || f.From.Before(next)) {
			next = f.From
		}
	}
	return next
}

// lastThaw returns when the last freeze before t ended, zero if there was none.
func lastThaw(freezes []fleet.Freeze, t time.Time) time.Time {
	var last time.Time
	for _, f := range freezes {
		if !f.To.After(t) && f.To.After(last) && f.To.After(f.From) {
			last = f.To
		}
	}
	return last
}

// closedNow returns why a plan may not offer at t, 0 if it may. The reason may change
// at changes.
func closedNow(p *fleet.Plan, freezes []fleet.Freeze, t time.Time) (code Code, text string, changes time.Time) {
	if p.Pace.Emergency {
		return 0, "", time.Time{}
	}
	changes = NextFreeze(freezes, t)
	if f := frozenAt(freezes, t); f != nil {
		if changes.IsZero() || f.To.Before(changes) {
			changes = f.To
		}
		return codeFreeze, fmt.Sprintf("the freeze %q keeps rollouts from offering anything", f.Name), changes
	}
	if open, _ := fleet.OpenAt(p.Pace.Windows, t); !open {
		return codeWindow, "it is outside the plan's maintenance windows", changes
	}
	return 0, "", changes
}
