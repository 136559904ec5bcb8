package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// windowDays is how many days ahead windows are computed: they repeat every week, and a
// clock that is put forward may skip one.
const windowDays = 8

// weekdays are the names of days in windows, indexed by time.Weekday.
var weekdays = [...]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// OfferableAt reports whether the plan's windows and the freezes allow offers at t, and
// when that changes. A zero until means never, as far as can be computed.
func OfferableAt(p *fleet.Plan, freezes []fleet.Freeze, t time.Time) (open bool, until time.Time) {
	if p.Pace.Emergency {
		return true, time.Time{}
	}
	open, until = windowsAt(p.Pace.Windows, t)
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
		if open, until = windowsAt(p.Pace.Windows, t); open {
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
		if f.Holds(from, to) && (longest == nil || f.To.After(longest.To)) {
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

// span is the time from from up to but not including to.
type span struct{ from, to time.Time }

// windowsAt reports whether one of the windows is open at t, and when that changes.
// Windows that touch or overlap count as one. Without windows it is always open. An
// invalid window is never open; Check refuses it.
func windowsAt(windows []fleet.Window, t time.Time) (open bool, until time.Time) {
	if len(windows) == 0 {
		return true, time.Time{}
	}
	var spans []span
	for _, w := range windows {
		if hours, err := readWindow("", w); err == nil {
			spans = hours.around(spans, t)
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	for _, s := range spans {
		switch {
		case !s.to.After(t) || open && s.from.After(until):
		case !open && s.from.After(t):
			return false, s.from
		case !open:
			open, until = true, s.to
		case s.to.After(until):
			until = s.to
		}
	}
	if open && until.Sub(t) > (windowDays-1)*24*time.Hour {
		return true, time.Time{} // it stays open all week
	}
	return open, until
}

// localHours is a parsed Window.
type localHours struct {
	days     [7]bool
	from, to int // minutes after midnight; to may be the next day's
	zone     *time.Location
}

// readWindow parses a window; at is its field, for errors.
func readWindow(at string, w fleet.Window) (localHours, error) {
	var h localHours
	for _, day := range w.Days {
		i := slices.Index(weekdays[:], day)
		if i < 0 {
			return h, fleet.FieldError(at+".days", "has %q, want %s", day, strings.Join(weekdays[:], ", "))
		}
		h.days[i] = true
	}
	if len(w.Days) == 0 {
		h.days = [7]bool{true, true, true, true, true, true, true}
	}
	var ok bool
	if h.from, ok = readClock(w.From); !ok {
		return h, fleet.FieldError(at+".from", "is %q, want a time of day such as 22:00", w.From)
	}
	if h.to, ok = readClock(w.To); !ok {
		return h, fleet.FieldError(at+".to", "is %q, want a time of day such as 04:00", w.To)
	}
	if h.to <= h.from {
		h.to += 24 * 60
	}
	// The server's own zone is refused, since servers may differ in it.
	var err error
	if h.zone, err = time.LoadLocation(w.Zone); err != nil || w.Zone == "Local" {
		return h, fleet.FieldError(at+".zone", "is %q, want a name such as Europe/Berlin or UTC", w.Zone)
	}
	return h, nil
}

// readClock parses 22:00 into minutes after midnight. 24:00 is refused; it is written
// 00:00.
func readClock(text string) (minutes int, ok bool) {
	t, err := time.Parse("15:04", text)
	return t.Hour()*60 + t.Minute(), err == nil && len(text) == len("15:04")
}

// around appends the times at which the window is open, from those that may include t
// up to windowDays ahead.
func (h *localHours) around(spans []span, t time.Time) []span {
	year, month, day := t.In(h.zone).Date()
	// Yesterday's window may include t; one of the day before cannot.
	for offset := -1; offset <= windowDays; offset++ {
		if weekday := time.Date(year, month, day+offset, 0, 0, 0, 0, time.UTC).Weekday(); !h.days[weekday] {
			continue
		}
		s := span{wallTime(year, month, day+offset, h.from, h.zone).UTC(), wallTime(year, month, day+offset, h.to, h.zone).UTC()}
		if s.from.Before(s.to) { // otherwise a clock that is put forward skips it
			spans = append(spans, s)
		}
	}
	return spans
}

// wallTime returns the first moment at which clocks of the zone show a time of a day
// or, if they skip it, the moment at which they do.
func wallTime(year int, month time.Month, day, minutes int, zone *time.Location) time.Time {
	t := time.Date(year, month, day, 0, minutes, 0, 0, zone)
	asked := time.Date(year, month, day, 0, minutes, 0, 0, time.UTC)
	shown := wallClock(t)
	begin, end := t.ZoneBounds()
	switch {
	case shown.After(asked) && !begin.IsZero():
		return begin
	case shown.Before(asked) && !end.IsZero():
		return end
	case !begin.IsZero():
		_, before := begin.Add(-1).Zone()
		if early := asked.Add(-time.Duration(before) * time.Second).In(zone); early.Before(begin) {
			return early
		}
	}
	return t
}

// wallClock returns what clocks show at t, as a time in UTC.
func wallClock(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
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
	if open, _ := windowsAt(p.Pace.Windows, t); !open {
		return codeWindow, "it is outside the plan's maintenance windows", changes
	}
	return 0, "", changes
}
