package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxWindows bounds the windows of a plan or a policy: each is computed for every decision.
const maxWindows = 200

// windowDays is how many days ahead windows are computed: they repeat every week, and a
// clock that is put forward may skip one.
const windowDays = 8

// weekdays are the names of days in windows, indexed by time.Weekday.
var weekdays = [...]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// CheckWindows returns what is wrong with windows; at is their field, for errors.
func CheckWindows(at string, windows []Window) error {
	if len(windows) > maxWindows {
		return FieldError(at, "has %d windows, want at most %d", len(windows), maxWindows)
	}
	for i, w := range windows {
		if _, err := readWindow(fmt.Sprintf("%s[%d]", at, i), w); err != nil {
			return err
		}
	}
	return nil
}

// span is the time from from up to but not including to.
type span struct{ from, to time.Time }

// OpenAt reports whether one of the windows is open at t, and when that changes.
// Windows that touch or overlap count as one. Without windows it is always open. An
// invalid window is never open; Check refuses it.
func OpenAt(windows []Window, t time.Time) (open bool, until time.Time) {
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
func readWindow(at string, w Window) (localHours, error) {
	var h localHours
	for _, day := range w.Days {
		i := slices.Index(weekdays[:], day)
		if i < 0 {
			return h, FieldError(at+".days", "has %q, want %s", day, strings.Join(weekdays[:], ", "))
		}
		h.days[i] = true
	}
	if len(w.Days) == 0 {
		h.days = [7]bool{true, true, true, true, true, true, true}
	}
	var ok bool
	if h.from, ok = readClock(w.From); !ok {
		return h, FieldError(at+".from", "is %q, want a time of day such as 22:00", w.From)
	}
	if h.to, ok = readClock(w.To); !ok {
		return h, FieldError(at+".to", "is %q, want a time of day such as 04:00", w.To)
	}
	if h.to <= h.from {
		h.to += 24 * 60
	}
	// The server's own zone is refused, since servers may differ in it.
	var err error
	if h.zone, err = time.LoadLocation(w.Zone); err != nil || w.Zone == "Local" {
		return h, FieldError(at+".zone", "is %q, want a name such as Europe/Berlin or UTC", w.Zone)
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
