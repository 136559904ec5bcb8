package kql_test

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/kql"
)

// bounds returns the first instant that a date means and the first instant after it.
func bounds(t *testing.T, date string) (from, to string) {
	t.Helper()
	f, err := kql.Compile("last_checkin: "+kql.Quote(date), schema, now)
	if err != nil {
		t.Fatal(err)
	}
	both := f.(kql.AllOf)
	show := func(f kql.Filter) string { return f.(kql.Compare).Value.(time.Time).Format("2006-01-02 15:04:05.000") }
	return show(both[0]), show(both[1])
}

// now is Sunday, 2026-03-15 10:20:30.400.
func TestDateSpans(t *testing.T) {
	for _, test := range []struct{ date, from, to string }{
		// Missing parts extend the date to the whole unit.
		{"2026", "2026-01-01 00:00:00.000", "2027-01-01 00:00:00.000"},
		{"2026-02", "2026-02-01 00:00:00.000", "2026-03-01 00:00:00.000"},
		{"2024-02-29", "2024-02-29 00:00:00.000", "2024-03-01 00:00:00.000"},
		{"2026-12-31T", "2026-12-31 00:00:00.000", "2027-01-01 00:00:00.000"},
		{"2026-12-31T23", "2026-12-31 23:00:00.000", "2027-01-01 00:00:00.000"},
		{"2026-12-31T23:59", "2026-12-31 23:59:00.000", "2027-01-01 00:00:00.000"},
		{"2026-12-31T23:59:59", "2026-12-31 23:59:59.000", "2027-01-01 00:00:00.000"},
		{"2026-12-31T23:59:59.5", "2026-12-31 23:59:59.500", "2026-12-31 23:59:59.501"},
		{"2026-12-31T23:59:59.123456789Z", "2026-12-31 23:59:59.123", "2026-12-31 23:59:59.124"},
		{"2026-12-31T23:59:59,25", "2026-12-31 23:59:59.250", "2026-12-31 23:59:59.251"},
		{"9999", "9999-01-01 00:00:00.000", "10000-01-01 00:00:00.000"},
		{"0000-01-01", "0000-01-01 00:00:00.000", "0000-01-02 00:00:00.000"},
		// Zones.
		{"2026-01-01T00+01:00", "2025-12-31 23:00:00.000", "2026-01-01 00:00:00.000"},
		{"2026-01-01T00:00:00-0530", "2026-01-01 05:30:00.000", "2026-01-01 05:30:01.000"},
		{"2026-01-01T00:00+14", "2025-12-31 10:00:00.000", "2025-12-31 10:01:00.000"},
		// Milliseconds since 1970; four digits are a year.
		{"0", "1970-01-01 00:00:00.000", "1970-01-01 00:00:00.001"},
		{"1767225600000", "2026-01-01 00:00:00.000", "2026-01-01 00:00:00.001"},
		{"-10000", "1969-12-31 23:59:50.000", "1969-12-31 23:59:50.001"},
		// Date math. now is an instant, and so is a date followed by ||.
		{"now", "2026-03-15 10:20:30.400", "2026-03-15 10:20:30.401"},
		{"now-1h", "2026-03-15 09:20:30.400", "2026-03-15 09:20:30.401"},
		{"now+90m", "2026-03-15 11:50:30.400", "2026-03-15 11:50:30.401"},
		{"now-d", "2026-03-14 10:20:30.400", "2026-03-14 10:20:30.401"},
		{"now-2H+3s", "2026-03-15 08:20:33.400", "2026-03-15 08:20:33.401"},
		{"now/y", "2026-01-01 00:00:00.000", "2027-01-01 00:00:00.000"},
		{"now/M", "2026-03-01 00:00:00.000", "2026-04-01 00:00:00.000"},
		{"now/w", "2026-03-09 00:00:00.000", "2026-03-16 00:00:00.000"},
		{"now+1d/w", "2026-03-16 00:00:00.000", "2026-03-23 00:00:00.000"},
		{"now/d", "2026-03-15 00:00:00.000", "2026-03-16 00:00:00.000"},
		{"now/h", "2026-03-15 10:00:00.000", "2026-03-15 11:00:00.000"},
		{"now/m", "2026-03-15 10:20:00.000", "2026-03-15 10:21:00.000"},
		{"now/s", "2026-03-15 10:20:30.000", "2026-03-15 10:20:31.000"},
		{"now-1d/d", "2026-03-14 00:00:00.000", "2026-03-15 00:00:00.000"},
		// Rounding up yields the last millisecond, from which the rest continues.
		{"now/d-1d", "2026-03-14 00:00:00.000", "2026-03-15 00:00:00.000"},
		{"now/d+1h", "2026-03-15 01:00:00.000", "2026-03-16 01:00:00.000"},
		{"2026-01-01||+1M", "2026-02-01 00:00:00.000", "2026-02-01 00:00:00.001"},
		{"2026-01||/M", "2026-01-01 00:00:00.000", "2026-02-01 00:00:00.000"},
		{"2026||", "2026-01-01 00:00:00.000", "2026-01-01 00:00:00.001"},
		{"2026-01-31||+1M/d", "2026-02-28 00:00:00.000", "2026-03-01 00:00:00.000"},
		{"2024-02-29||+1y/d", "2025-02-28 00:00:00.000", "2025-03-01 00:00:00.000"},
		{"2026-03-31||-1M/d", "2026-02-28 00:00:00.000", "2026-03-01 00:00:00.000"},
		{"1960-06-15T12:34:56||/h", "1960-06-15 12:00:00.000", "1960-06-15 13:00:00.000"},
		{"1960-06-15T12:34:56.7||/s", "1960-06-15 12:34:56.000", "1960-06-15 12:34:57.000"},
		{"0||+1d", "1970-01-02 00:00:00.000", "1970-01-02 00:00:00.001"},
	} {
		if from, to := bounds(t, test.date); from != test.from || to != test.to {
			t.Errorf("%s is from %s to %s, want %s to %s", test.date, from, to, test.from, test.to)
		}
	}
}

// Greater than a day begins with the next day; not greater ends with the day.
func TestDateRanges(t *testing.T) {
	for query, want := range map[string]string{
		"last_checkin > 2026-01-31":   "last_checkin >= 2026-02-01T00:00:00Z",
		"last_checkin >= 2026-01-31":  "last_checkin >= 2026-01-31T00:00:00Z",
		"last_checkin < 2026-01-31":   "last_checkin < 2026-01-31T00:00:00Z",
		"last_checkin <= 2026-01-31":  "last_checkin < 2026-02-01T00:00:00Z",
		"last_checkin > now":          "last_checkin >= 2026-03-15T10:20:30.401Z",
		"last_checkin <= now":         "last_checkin < 2026-03-15T10:20:30.401Z",
		"last_checkin > now-1d/d":     "last_checkin >= 2026-03-15T00:00:00Z",
		"last_checkin <= 2026||+1M":   "last_checkin < 2026-02-01T00:00:00.001Z",
		"last_checkin < 2026-01||/y":  "last_checkin < 2026-01-01T00:00:00Z",
		"last_checkin >= 1000000":     "last_checkin >= 1970-01-01T00:16:40Z",
		`last_checkin < "2026-02-28"`: "last_checkin < 2026-02-28T00:00:00Z",
	} {
		f, err := kql.Compile(query, schema, now)
		if err != nil {
			t.Errorf("%s: %v", query, err)
		} else if got := showFilter(f); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

func TestInvalidDates(t *testing.T) {
	for date, want := range map[string]string{
		"":                             "no form that is known",
		"yesterday":                    "no form that is known",
		"-1000":                        "no form that is known", // before year 0
		"26-01-01":                     "no form that is known",
		"2026-1-1":                     "no form that is known",
		"2026-01-01 10:00":             "no form that is known",
		"2026-01-01T10:00:00.":         "no form that is known",
		"2026-01-01t10:00z":            "no form that is known",
		"2026-01-01Z":                  "no form that is known",
		"1234567890123456":             "no form that is known",
		"2026-02-29":                   "no such day or time",
		"2026-13":                      "no such day or time",
		"2026-00-01":                   "no such day or time",
		"2026-01-01T24:00":             "no such day or time",
		"2026-01-01T23:60":             "no such day or time",
		"2026-01-01T00:00+19:00":       "no such time zone",
		"2026-01-01T00:00+01:99":       "no such time zone",
		"nowhere":                      `"h" is not +, - or /`,
		"now-":                         `a unit is missing behind "-"`,
		"now-1":                        `a unit is missing behind "-1"`,
		"now-1x":                       `a unit is missing behind "-1"`,
		"now/2d":                       "write /d",
		"now-1d/":                      `a unit is missing behind "/"`,
		"now||+1d":                     `"|" is not`,
		"2026-01-01|+1d":               "no form that is known",
		"2026-01-01||1d":               `"1" is not`,
		"now-99999999999d":             "is more than",
		"now-99999999999999999999999s": "is more than",
		"now-1000000000y":              "between the years",
		"now+1000000000M":              "between the years",
		"now+1000000000w":              "between the years",
		"9999-12-31||+1d":              "between the years",
		"0000-01-01T00+01:00":          "between the years",
		"999999999999999":              "between the years",
		"-99999999999999":              "between the years",
	} {
		_, err := kql.Compile("last_checkin > "+kql.Quote(date), schema, now)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "write a date such as") {
			t.Errorf("%q: error %v, want one that says %q, with an example", date, err, want)
		}
	}
}
