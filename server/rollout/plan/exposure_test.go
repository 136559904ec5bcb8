package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
)

// census returns an agent that has run a version, and been healthy, for some time.
func census(id, version, site string, since time.Duration) fleet.Census {
	seen := rollouttest.Noon.Add(-time.Minute)
	c := fleet.Census{ID: id, Active: true, Version: version, LastCheckin: &seen, VersionSince: seen.Add(-since), HealthySince: seen.Add(-since)}
	if site != "" {
		c.Labels = fleet.EncodeLabels(map[string]string{"site": site, "os": "linux"})
	}
	return c
}

func tally(rule fleet.ExposureRule, all ...fleet.Census) *Tally {
	t := NewTally(rule, rollouttest.Noon)
	for _, c := range all {
		t.Add(c)
	}
	return t
}

var tenPercent = fleet.ExposureRule{Enabled: true, Percent: 10, HealthyHours: 100}

// fleetOf returns n agents that run 1.0.0.
func fleetOf(n int, site string) []fleet.Census {
	var all []fleet.Census
	for i := range n {
		all = append(all, census(fmt.Sprintf("%s%d", site, i), "1.0.0", site, 1000*time.Hour))
	}
	return all
}

func TestTallyCountsExposedAgents(t *testing.T) {
	long := func(change func(*fleet.Census)) fleet.Census {
		c := census("x", "2.0.0", "", 50*time.Hour)
		change(&c)
		return c
	}
	days := func(n int) *time.Time { at := rollouttest.Noon.Add(-time.Duration(n) * 24 * time.Hour); return &at }
	for _, row := range []struct {
		name    string
		c       fleet.Census
		exposed int
		hours   float64
	}{
		{"a well one", long(func(*fleet.Census) {}), 1, 50},
		{"one that was never well", long(func(c *fleet.Census) { c.HealthySince = time.Time{} }), 1, 0},
		{"one well since before the version", long(func(c *fleet.Census) { c.HealthySince = *days(30) }), 1, 50},
		{"one that was unwell in between", long(func(c *fleet.Census) { c.HealthySince = rollouttest.Noon.Add(-2*time.Hour - time.Minute) }), 1, 2},
		{"one that became well after its last check-in", long(func(c *fleet.Census) { c.HealthySince = rollouttest.Noon }), 1, 0},
		{"one silent for 13 days", long(func(c *fleet.Census) { c.LastCheckin = days(13); c.HealthySince, c.VersionSince = *days(14), *days(14) }), 1, 24},
		{"one silent for longer", long(func(c *fleet.Census) { c.LastCheckin = days(15) }), 0, 0},
		{"one that never came", long(func(c *fleet.Census) { c.LastCheckin = nil }), 0, 0},
		{"an unenrolled one", long(func(c *fleet.Census) { c.Active = false }), 0, 0},
		{"one of another version", long(func(c *fleet.Census) { c.Version = "1.0.0" }), 0, 0},
	} {
		room := tally(tenPercent, row.c).Budget("2.0.0", nil)
		if room.Exposed != row.exposed || room.HealthyHours != row.hours {
			t.Errorf("%s: %d exposed, %v h, want %d and %v h", row.name, room.Exposed, room.HealthyHours, row.exposed, row.hours)
		}
	}
}

func TestTheBudget(t *testing.T) {
	t.Run("without a rule there is none", func(t *testing.T) {
		if room := tally(fleet.ExposureRule{}, fleetOf(3, "")...).Budget("2.0.0", nil); room != nil {
			t.Errorf("%+v", room)
		}
	})
	t.Run("a part of the fleet, rounded down", func(t *testing.T) {
		room := tally(tenPercent, fleetOf(39, "")...).Budget("2.0.0", nil)
		if room.Fleet != 39 || room.Limit != 3 || room.Exposed != 0 || room.NeededHours != 100 || room.Tightest != nil {
			t.Errorf("%+v", room.Exposure)
		}
	})
	t.Run("one at least", func(t *testing.T) {
		if room := tally(tenPercent, fleetOf(3, "")...).Budget("2.0.0", nil); room.Limit != 1 {
			t.Errorf("%+v", room.Exposure)
		}
	})
	t.Run("a proven version may go everywhere", func(t *testing.T) {
		all := append(fleetOf(38, "x"), census("p", "2.0.0", "y", 60*time.Hour), census("q", "2.0.0", "y", 40*time.Hour))
		rule := tenPercent
		rule.Per = []fleet.ExposureLabel{{Label: "site", Percent: 10}}
		room := tally(rule, all...).Budget("2.0.0", nil)
		if room.HealthyHours != 100 || room.Limit != 40 || room.Sites[0].Limit != 38 || room.Sites[1].Limit != 2 {
			t.Errorf("%+v", room)
		}
	})
	t.Run("offers count, once, and not those who are gone", func(t *testing.T) {
		all := append(fleetOf(20, "x"), census("p", "2.0.0", "y", time.Hour))
		rule := tenPercent
		rule.Per = []fleet.ExposureLabel{{Label: "site", Percent: 50}, {Label: "rack", Percent: 1}}
		count := tally(rule, all...)
		room := count.Budget("2.0.0", map[string]bool{"p": true, "x1": true, "x2": true, "gone": true})
		if room.Exposed != 3 || room.Limit != 2 {
			t.Errorf("%+v", room.Exposure)
		}
		x, y := room.Sites[0], room.Sites[1]
		if x != (fleet.ExposureValue{Label: "site", Value: "x", Fleet: 20, Exposed: 2, Limit: 10}) || y != (fleet.ExposureValue{Label: "site", Value: "y", Fleet: 1, Exposed: 1, Limit: 1}) {
			t.Errorf("%+v", room.Sites)
		}
		if room.Tightest == nil || *room.Tightest != y {
			t.Errorf("tightest: %+v", room.Tightest)
		}
		// The same tally has other counts for another version.
		if other := count.Budget("1.0.0", nil); other.Exposed != 20 || other.Sites[0].Exposed != 20 || room.Sites[0].Exposed != 2 {
			t.Errorf("%+v", other)
		}
	})
	t.Run("sites are numbered as in the room", func(t *testing.T) {
		rule := tenPercent
		rule.Per = []fleet.ExposureLabel{{Label: "os", Percent: 50}, {Label: "site", Percent: 50}}
		count := tally(rule, append(fleetOf(2, "x"), fleetOf(2, "y")...)...)
		room := count.Budget("2.0.0", nil)
		sites := count.Sites(fleet.EncodeLabels(map[string]string{"site": "y", "os": "linux"}))
		if room.Sites[sites[0]].Value != "linux" || room.Sites[sites[1]].Value != "y" || sites[2] != -1 || sites[3] != -1 {
			t.Errorf("%v in %+v", sites, room.Sites)
		}
		if sites := count.Sites(fleet.EncodeLabels(map[string]string{"site": "nowhere"})); sites != NoSites {
			t.Errorf("a value nobody has: %v", sites)
		}
	})
	t.Run("more labels than are kept bind nothing", func(t *testing.T) {
		rule := tenPercent
		rule.Per = slices.Repeat([]fleet.ExposureLabel{{Label: "site", Percent: 50}}, 9)
		if room := tally(rule, fleetOf(2, "x")...).Budget("2.0.0", nil); len(room.Sites) != fleet.MaxLabelLimits {
			t.Errorf("%d values", len(room.Sites))
		}
	})
}

func BenchmarkTally(b *testing.B) {
	all := make([]fleet.Census, 0, 100_000)
	for i := range 100_000 {
		all = append(all, census(fmt.Sprint("agent", i), "1.0.0", fmt.Sprint("site", i%100), time.Hour))
	}
	rule := tenPercent
	rule.Per = []fleet.ExposureLabel{{Label: "site", Percent: 10}}
	for b.Loop() {
		if tally(rule, all...).Budget("2.0.0", nil).Fleet != len(all) {
			b.Fatal("lost some")
		}
	}
}
