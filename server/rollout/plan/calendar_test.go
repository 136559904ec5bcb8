package plan

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestWindows(t *testing.T) {
	night := fleet.Window{From: "22:00", To: "04:00", Zone: "Europe/Berlin"}
	on := func(w fleet.Window, days ...string) fleet.Window {
		w.Days = days
		return w
	}
	for _, test := range []struct {
		name    string
		windows []fleet.Window
		at      string
		open    bool
		until   string
	}{
		{"none is always open", nil, "2026-11-24T14:00:00Z", true, ""},
		{"before it opens", []fleet.Window{night}, "2026-11-24T20:59:59Z", false, "2026-11-24T21:00:00Z"},
		{"the moment it opens", []fleet.Window{night}, "2026-11-24T21:00:00Z", true, "2026-11-25T03:00:00Z"},
		{"after midnight it is still yesterday's", []fleet.Window{night}, "2026-11-25T02:59:59Z", true, "2026-11-25T03:00:00Z"},
		{"the moment it closes", []fleet.Window{night}, "2026-11-25T03:00:00Z", false, "2026-11-25T21:00:00Z"},
		{"a day is that on which it begins", []fleet.Window{on(night, "fri")}, "2026-11-28T02:00:00Z", true, "2026-11-28T03:00:00Z"},
		{"and not that on which it ends", []fleet.Window{on(night, "sat")}, "2026-11-28T02:00:00Z", false, "2026-11-28T21:00:00Z"},
		{"once a week", []fleet.Window{on(night, "fri")}, "2026-11-28T04:00:00Z", false, "2026-12-04T21:00:00Z"},
		{"the day is that of the window's zone", []fleet.Window{{Days: []string{"tue"}, From: "00:30", To: "01:30", Zone: "Pacific/Auckland"}}, "2026-11-23T11:45:00Z", true, "2026-11-23T12:30:00Z"},
		{"UTC where no zone is said", []fleet.Window{{From: "14:00", To: "15:00"}}, "2026-11-24T14:30:00Z", true, "2026-11-24T15:00:00Z"},
		{"two that touch are one", []fleet.Window{{From: "15:00", To: "16:00"}, {From: "14:00", To: "15:00"}}, "2026-11-24T14:30:00Z", true, "2026-11-24T16:00:00Z"},
		{"one inside another changes nothing", []fleet.Window{{From: "10:00", To: "18:00"}, {From: "12:00", To: "13:00"}}, "2026-11-24T12:30:00Z", true, "2026-11-24T18:00:00Z"},
		{"the next of several", []fleet.Window{on(night, "thu"), {From: "18:00", To: "19:00"}}, "2026-11-24T14:00:00Z", false, "2026-11-24T18:00:00Z"},
		{"whole days are always open", []fleet.Window{{From: "00:00", To: "00:00"}}, "2026-11-24T14:00:00Z", true, ""},
		{"one that cannot be read is never open", []fleet.Window{{From: "late", To: "later"}}, "2026-11-24T14:00:00Z", false, ""},

		// On 29 March 2026 Berlin goes from 2:00 CET (1:00 UTC) to 3:00 CEST.
		{"it opens when the clock skips its beginning", []fleet.Window{{From: "02:30", To: "04:00", Zone: "Europe/Berlin"}}, "2026-03-29T00:00:00Z", false, "2026-03-29T01:00:00Z"},
		{"it closes when the clock skips its end", []fleet.Window{{From: "01:00", To: "02:30", Zone: "Europe/Berlin"}}, "2026-03-29T00:30:00Z", true, "2026-03-29T01:00:00Z"},
		{"one that is skipped whole stays closed till the next day", []fleet.Window{{From: "02:10", To: "02:50", Zone: "Europe/Berlin"}}, "2026-03-29T00:30:00Z", false, "2026-03-30T00:10:00Z"},
		{"a night is an hour shorter", []fleet.Window{night}, "2026-03-28T21:00:00Z", true, "2026-03-29T02:00:00Z"},
		// On 25 October 2026 it goes from 3:00 CEST (1:00 UTC) back to 2:00 CET.
		{"it opens when its beginning is first shown", []fleet.Window{{From: "02:30", To: "04:00", Zone: "Europe/Berlin"}}, "2026-10-24T22:00:00Z", false, "2026-10-25T00:30:00Z"},
		{"it closes when its end is first shown", []fleet.Window{{From: "01:00", To: "02:30", Zone: "Europe/Berlin"}}, "2026-10-24T23:30:00Z", true, "2026-10-25T00:30:00Z"},
		{"and not once more", []fleet.Window{{From: "01:00", To: "02:30", Zone: "Europe/Berlin"}}, "2026-10-25T01:15:00Z", false, "2026-10-26T00:00:00Z"},
		{"a night is an hour longer", []fleet.Window{night}, "2026-10-24T20:00:00Z", true, "2026-10-25T03:00:00Z"},
		{"midnight itself is skipped in some places", []fleet.Window{{From: "00:00", To: "02:00", Zone: "America/Santiago"}}, "2026-09-06T03:30:00Z", false, "2026-09-06T04:00:00Z"},
	} {
		t.Run(test.name, func(t *testing.T) {
			open, until := windowsAt(test.windows, at(t, test.at))
			if open != test.open || !until.Equal(at(t, test.until)) {
				t.Errorf("at %s it is open: %v, until %s; want %v, %s", test.at, open, until, test.open, test.until)
			}
		})
	}
}

func TestMalformedWindowsAreRefused(t *testing.T) {
	good := fleet.Window{Days: []string{"mon"}, From: "22:00", To: "04:00", Zone: "Europe/Berlin"}
	if _, err := readWindow("w", good); err != nil {
		t.Fatal(err)
	}
	for field, spoil := range map[string]func(*fleet.Window){
		"days": func(w *fleet.Window) { w.Days = []string{"monday"} },
		"from": func(w *fleet.Window) { w.From = "25:00" },
		"to":   func(w *fleet.Window) { w.To = "" },
		"zone": func(w *fleet.Window) { w.Zone = "Europe/Atlantis" },
	} {
		w := good
		spoil(&w)
		_, err := readWindow("w", w)
		var e *fleet.Error
		if !errors.As(err, &e) || e.Field != "w."+field || e.Kind != fleet.Invalid {
			t.Errorf("%+v is refused with %v, want a word on %s", w, err, field)
		}
	}
	good.Zone = "Local"
	if _, err := readWindow("w", good); err == nil {
		t.Error("a window of the server's own time zone is taken")
	}
}

func TestFreezesAndWindows(t *testing.T) {
	freeze := func(from, to string) fleet.Freeze { return fleet.Freeze{Name: from, From: at(t, from), To: at(t, to)} }
	christmas := freeze("2026-12-20T00:00:00Z", "2027-01-04T08:00:00Z")
	inventory := freeze("2027-01-04T07:00:00Z", "2027-01-05T23:30:00Z")
	night := []fleet.Window{{From: "22:00", To: "23:00"}}
	for _, test := range []struct {
		name      string
		windows   []fleet.Window
		freezes   []fleet.Freeze
		emergency bool
		at        string
		open      bool
		until     string
	}{
		{"open until the freeze", nil, []fleet.Freeze{inventory, christmas}, false, "2026-12-01T00:00:00Z", true, "2026-12-20T00:00:00Z"},
		{"open until the window closes", night, []fleet.Freeze{christmas}, false, "2026-12-01T22:00:00Z", true, "2026-12-01T23:00:00Z"},
		{"open until the freeze that begins in the window", night, []fleet.Freeze{freeze("2026-12-01T22:30:00Z", "2026-12-02T00:00:00Z")}, false, "2026-12-01T22:00:00Z", true, "2026-12-01T22:30:00Z"},
		{"frozen until the last of the freezes that overlap", nil, []fleet.Freeze{christmas, inventory}, false, "2026-12-24T00:00:00Z", false, "2027-01-05T23:30:00Z"},
		{"frozen until the first window after it", night, []fleet.Freeze{inventory, christmas}, false, "2026-12-24T00:00:00Z", false, "2027-01-06T22:00:00Z"},
		{"the window before a freeze", night, []fleet.Freeze{christmas}, false, "2026-12-19T12:00:00Z", false, "2026-12-19T22:00:00Z"},
		{"no window that falls into a freeze", night, []fleet.Freeze{christmas}, false, "2026-12-19T23:00:00Z", false, "2027-01-04T22:00:00Z"},
		{"an emergency", night, []fleet.Freeze{christmas}, true, "2026-12-24T00:00:00Z", true, ""},
		{"a freeze that ends before it begins is none", nil, []fleet.Freeze{freeze("2026-12-20T00:00:00Z", "2026-12-01T00:00:00Z")}, false, "2026-12-10T00:00:00Z", true, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &fleet.Plan{Pace: fleet.Pace{Windows: test.windows, Emergency: test.emergency}}
			open, until := OfferableAt(p, test.freezes, at(t, test.at))
			if open != test.open || !until.Equal(at(t, test.until)) {
				t.Errorf("at %s it is open: %v, until %s; want %v, %s", test.at, open, until, test.open, test.until)
			}
		})
	}
}

// For any windows and freezes, nothing changes before until, and something does then.
func TestCalendarProperties(t *testing.T) {
	zones := []string{"", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca"}
	clock := func(t *rapid.T) string {
		return time.Date(0, 1, 1, rapid.IntRange(0, 23).Draw(t, "hour"), 10*rapid.IntRange(0, 5).Draw(t, "minute"), 0, 0, time.UTC).Format("15:04")
	}
	rapid.Check(t, func(t *rapid.T) {
		begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		now := begin.Add(time.Duration(rapid.IntRange(0, 365*24*60).Draw(t, "now")) * time.Minute)
		var p fleet.Plan
		for range rapid.IntRange(0, 3).Draw(t, "windows") {
			p.Pace.Windows = append(p.Pace.Windows, fleet.Window{
				Days: rapid.SliceOfN(rapid.SampledFrom(weekdays[:]), 0, 3).Draw(t, "days"), From: clock(t), To: clock(t),
				Zone: rapid.SampledFrom(zones).Draw(t, "zone"),
			})
		}
		var freezes []fleet.Freeze
		for range rapid.IntRange(0, 2).Draw(t, "freezes") {
			from := now.Add(time.Duration(rapid.IntRange(-100, 200).Draw(t, "from")) * time.Hour)
			freezes = append(freezes, fleet.Freeze{From: from, To: from.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "long")) * time.Hour)})
		}
		open, until := OfferableAt(&p, freezes, now)
		end := until
		if until.IsZero() {
			if !open {
				t.Fatal("it never opens")
			}
			end = now.Add(24 * time.Hour)
		}
		if !end.After(now) {
			t.Fatalf("at %s it changes at %s", now, end)
		}
		for _, part := range []float64{0.001, 0.3, 0.7, 0.999} {
			then := now.Add(time.Duration(part * float64(end.Sub(now))))
			if is, _ := OfferableAt(&p, freezes, then); is != open {
				t.Fatalf("at %s it is open: %v, until %s; but not at %s", now, open, until, then)
			}
		}
		if is, _ := OfferableAt(&p, freezes, end); !until.IsZero() && is == open {
			t.Fatalf("at %s it is open: %v, and was to change then", end, is)
		}
	})
}
