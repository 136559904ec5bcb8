package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

func TestFreezesForbidOrders(t *testing.T) {
	noon := time.Date(2026, 12, 24, 12, 0, 0, 0, time.UTC)
	hour := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Hour) }
	freezes := []fleet.Freeze{{Name: "Christmas", From: hour(0), To: hour(48)}, {Name: "audit", From: hour(100), To: hour(101)}}
	for name, c := range map[string]struct {
		from, to time.Time
		by       string    // the freeze that forbids it
		until    time.Time // else when it expires
	}{
		"within one":                          {hour(1), hour(1), "Christmas", time.Time{}},
		"at its first moment":                 {hour(0), hour(0), "Christmas", time.Time{}},
		"at its end":                          {hour(48), hour(48), "", hour(100)},
		"before it":                           {hour(-1), hour(-1), "", hour(0)},
		"spread over a time that reaches it":  {hour(-1), hour(1), "Christmas", time.Time{}},
		"spread over a time that encloses it": {hour(90), hour(110), "audit", time.Time{}},
		"after all":                           {hour(102), hour(102), "", hour(1000)},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckFreezes(freezes, c.from, c.to)
			if c.by != "" {
				if err == nil || !strings.Contains(err.Error(), c.by) || !strings.Contains(err.Error(), "--override-freeze") {
					t.Fatalf("error is %v, want one that names %s and the override", err, c.by)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := Expires(freezes, c.to, hour(1000)); !got.Equal(c.until) {
				t.Errorf("it expires at %v, want %v", got, c.until)
			}
		})
	}
}

func TestOrderIsToldHowManyFitTheExposureBudget(t *testing.T) {
	now := time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC)
	tally := NewTally(fleet.ExposureRule{Enabled: true, Percent: 30, HealthyHours: 24, Per: []fleet.ExposureLabel{{Label: "site", Percent: 50}}}, now)
	fra, par := fleet.EncodeLabels(map[string]string{"site": "fra"}), fleet.EncodeLabels(map[string]string{"site": "par"})
	for i := range 10 {
		labels := par
		if i < 2 {
			labels = fra
		}
		tally.Add(fleet.Census{ID: string(rune('a' + i)), Active: true, Version: "1.0.0", LastCheckin: &now, Labels: labels})
	}
	room := tally.Budget("1.1.0", map[string]bool{"j": true}) // 3 of 10 may, and 1 of the 2 in fra; 1 was offered it
	sites := func(labels ...string) (s [][fleet.MaxLabelLimits]int32) {
		for _, l := range labels {
			s = append(s, tally.Sites(l))
		}
		return s
	}
	for _, c := range []struct {
		sites [][fleet.MaxLabelLimits]int32
		fit   string
	}{
		{sites(par, par), ""},
		{sites(fra, par), ""},
		{sites(par, par, par), "room for 2 of the 3 agents"},
		{sites(fra, fra), "room for 1 of the 2 agents"},
		{nil, ""},
	} {
		err := CheckExposure(room, c.sites)
		if c.fit == "" && err != nil || c.fit != "" && (err == nil || !strings.Contains(err.Error(), c.fit)) {
			t.Errorf("error for %d agents is %v, want %q", len(c.sites), err, c.fit)
		}
	}
	if err := CheckExposure(nil, sites(par, par, par)); err != nil {
		t.Errorf("without a rule it says %v", err)
	}
}
