package kql

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// dateExamples follows every error about a date.
const dateExamples = `write a date such as 2026-01-31, "2026-01-31T10:00:00Z", now-1h/d or 2026-01-31||+1M, or milliseconds since 1970`

// span is the interval that a date means, from start up to but not including end, in
// UTC and whole milliseconds. An instant spans one millisecond.
type span struct{ start, end time.Time }

// within returns the bound for field op date: "after a day" excludes the day, and "not
// after" includes it.
func (s span) within(op Op) (Op, time.Time) {
	switch op {
	case More:
		return MoreEqual, s.end
	case LessEqual:
		return Less, s.end
	case Less:
		return Less, s.start
	}
	return MoreEqual, s.start
}

// parseDate parses what Elasticsearch accepts as a date: an ISO 8601 date, whose
// missing parts extend it to the whole day, month and so on; milliseconds since 1970;
// or now, or a date and "||", followed by date math.
func parseDate(text string, now time.Time) (span, error) {
	base, math, ok := strings.Cut(text, "||")
	s := span{}
	if rest, isNow := strings.CutPrefix(text, "now"); isNow {
		s.start, math, ok = now, rest, true
	} else {
		var err error
		if s, err = parseInstant(base); err != nil {
			return s, err
		}
	}
	if !ok {
		return s, nil
	}
	start, err := dateMath(s.start.UTC().Truncate(time.Millisecond), math, false)
	if err != nil {
		return s, err
	}
	last, err := dateMath(s.start.UTC().Truncate(time.Millisecond), math, true)
	return span{start, last.Add(time.Millisecond)}, err
}

var (
	isoDate = regexp.MustCompile(`^(\d{4})(?:-(\d{2})(?:-(\d{2})(?:T(?:(\d{2})(?::(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?)?(Z|[+-]\d{2}(?::?\d{2})?)?)?)?)?)?$`)
	millis  = regexp.MustCompile(`^-?(?:\d{1,3}|\d{5,15})$`) // four digits are a year
)

// Dates must have a year of four digits, which every store can order.
var (
	firstYear = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	lastYear  = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
)

func inYears(t time.Time) error {
	if t.Before(firstYear) || !t.Before(lastYear) {
		return fmt.Errorf("it is not between the years 0 and 9999")
	}
	return nil
}

func parseInstant(text string) (span, error) {
	if millis.MatchString(text) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return span{}, err // unreachable: at most 15 digits
		}
		t := time.UnixMilli(n).UTC()
		return span{t, t.Add(time.Millisecond)}, inYears(t)
	}
	m := isoDate.FindStringSubmatch(text)
	if m == nil {
		return span{}, fmt.Errorf("it has no form that is known")
	}
	// Year, month, day, hour, minute and second, as far as given.
	parts, given := [6]int{1: 1, 2: 1}, 0
	for i := range parts {
		if m[i+1] == "" {
			break
		}
		parts[i], _ = strconv.Atoi(m[i+1]) // the pattern matched digits
		given++
	}
	start := time.Date(parts[0], time.Month(parts[1]), parts[2], parts[3], parts[4], parts[5], 0, time.UTC)
	if y, month, d := start.Date(); y != parts[0] || int(month) != parts[1] || d != parts[2] || start.Hour() != parts[3] || start.Minute() != parts[4] || start.Second() != parts[5] {
		return span{}, fmt.Errorf("there is no such day or time")
	}
	s := span{start, addUnits(start, 1, "yMdhms"[given-1])}
	if fraction := m[7]; fraction != "" {
		n, _ := strconv.Atoi((fraction + "00")[:3])
		s.start = start.Add(time.Duration(n) * time.Millisecond)
		s.end = s.start.Add(time.Millisecond)
	}
	if zone := strings.ReplaceAll(m[8], ":", ""); len(zone) > 1 {
		hours, _ := strconv.Atoi(zone[:3])
		minutes, _ := strconv.Atoi(zone[:1] + (zone + "00")[3:5])
		offset := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
		if offset.Abs() > 18*time.Hour || minutes <= -60 || minutes >= 60 {
			return span{}, fmt.Errorf("there is no such time zone")
		}
		s = span{s.start.Add(-offset), s.end.Add(-offset)}
	}
	return s, inYears(s.start)
}

// maxSteps bounds the number of units to add. A larger number exceeds the range of
// years.
const maxSteps = 1_000_000_000

// dateMath adds, subtracts and rounds, from left to right. Rounding up yields the last
// millisecond of the unit.
func dateMath(t time.Time, math string, up bool) (time.Time, error) {
	for math != "" {
		op := math[0]
		digits := 0
		for digits+1 < len(math) && math[digits+1] >= '0' && math[digits+1] <= '9' {
			digits++
		}
		number, rest := math[1:1+digits], math[1+digits:]
		if op != '+' && op != '-' && op != '/' {
			return t, fmt.Errorf("%q is not +, - or /", math[:1])
		}
		if rest == "" || strings.IndexByte("yMwdhHms", rest[0]) < 0 {
			return t, fmt.Errorf("a unit is missing behind %q: y, M, w, d, h, m or s", math[:1+digits])
		}
		unit := rest[0]
		math = rest[1:]
		switch {
		case op == '/' && number != "":
			return t, fmt.Errorf("it rounds to whole units only: write /%c", unit)
		case op == '/':
			t = floor(t, unit)
			if up {
				t = addUnits(t, 1, unit).Add(-time.Millisecond)
			}
		default:
			n := 1
			if number != "" {
				var err error
				if n, err = strconv.Atoi(number); err != nil || n > maxSteps {
					return t, fmt.Errorf("%s is more than %d", quote(number), maxSteps)
				}
			}
			if op == '-' {
				n = -n
			}
			t = addUnits(t, n, unit)
		}
		if err := inYears(t); err != nil {
			return t, err
		}
	}
	return t, nil
}

// seconds are the lengths of the units of constant length.
var seconds = map[byte]int64{'w': 7 * 86400, 'd': 86400, 'h': 3600, 'H': 3600, 'm': 60, 's': 1}

// addUnits adds n units. A day that the resulting month does not have becomes its last
// day.
func addUnits(t time.Time, n int, unit byte) time.Time {
	if length, ok := seconds[unit]; ok {
		return time.Unix(t.Unix()+int64(n)*length, int64(t.Nanosecond())).UTC()
	}
	if unit == 'y' {
		n *= 12
	}
	first := time.Date(t.Year(), t.Month()+time.Month(n), 1, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
	return first.AddDate(0, 0, min(t.Day(), first.AddDate(0, 1, -1).Day())-1)
}

// floor returns the beginning of a unit; weeks begin on Monday.
func floor(t time.Time, unit byte) time.Time {
	year, month, day := t.Date()
	switch unit {
	case 'y':
		month, day = 1, 1
	case 'M':
		day = 1
	case 'w':
		day -= (int(t.Weekday()) + 6) % 7
	case 'd':
	default:
		return t.Truncate(time.Duration(seconds[unit]) * time.Second)
	}
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}
