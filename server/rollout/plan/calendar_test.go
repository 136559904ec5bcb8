package plan

import (
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
				Days: rapid.SliceOfN(rapid.SampledFrom([]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}), 0, 3).Draw(t, "days"), From: clock(t), To: clock(t),
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
