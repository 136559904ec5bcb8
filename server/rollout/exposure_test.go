package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
)

// census is an agent that has run a version, and been well, for so long.
func census(id, version, site string, since time.Duration) fleet.Census {
	seen := noon.Add(-time.Minute)
	c := fleet.Census{ID: id, Active: true, Version: version, LastCheckin: &seen, VersionSince: seen.Add(-since), HealthySince: seen.Add(-since)}
	if site != "" {
		c.Labels = fleet.EncodeLabels(map[string]string{"site": site, "os": "linux"})
	}
	return c
}

func tally(rule fleet.ExposureRule, all ...fleet.Census) *Tally {
	t := NewTally(rule, noon)
	for _, c := range all {
		t.Add(c)
	}
	return t
}

var tenPercent = fleet.ExposureRule{Enabled: true, Percent: 10, HealthyHours: 100}

// fleetOf are n agents that run 1.0.0.
func fleetOf(n int, site string) []fleet.Census {
	var all []fleet.Census
	for i := range n {
		all = append(all, census(fmt.Sprintf("%s%d", site, i), "1.0.0", site, 1000*time.Hour))
	}
	return all
}

func TestWhoCountsForTheExposure(t *testing.T) {
	long := func(change func(*fleet.Census)) fleet.Census {
		c := census("x", "2.0.0", "", 50*time.Hour)
		change(&c)
		return c
	}
	days := func(n int) *time.Time { at := noon.Add(-time.Duration(n) * 24 * time.Hour); return &at }
	for _, row := range []struct {
		name    string
		c       fleet.Census
		exposed int
		hours   float64
	}{
		{"a well one", long(func(*fleet.Census) {}), 1, 50},
		{"one that was never well", long(func(c *fleet.Census) { c.HealthySince = time.Time{} }), 1, 0},
		{"one well since before the version", long(func(c *fleet.Census) { c.HealthySince = *days(30) }), 1, 50},
		{"one that was unwell in between", long(func(c *fleet.Census) { c.HealthySince = noon.Add(-2*time.Hour - time.Minute) }), 1, 2},
		{"one that became well after its last check-in", long(func(c *fleet.Census) { c.HealthySince = noon }), 1, 0},
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
		// Another version of the same count has numbers of its own.
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
		if sites := count.Sites(fleet.EncodeLabels(map[string]string{"site": "nowhere"})); sites != noSites {
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

// exposed surveys 1,000 agents with a budget of 100 agents, and 60 of a site, for
// 100 hours.
func exposed(t *testing.T, as []fleet.Agent, hours float64, change func(*fleet.Plan)) error {
	t.Helper()
	var all []fleet.Census
	for i := range as {
		all = append(all, census(as[i].ID, "1.0.0", as[i].Label("site"), time.Hour))
	}
	rule := tenPercent
	rule.Per = []fleet.ExposureLabel{{Label: "site", Percent: 12}}
	room := tally(rule, all...).Budget("2.0.0", nil)
	room.HealthyHours = hours
	pre, err := Survey(draft(t, change), Fleet{Agents: as, Catalog: published("2.0.0"), Room: room}, noon)
	if len(pre.Targets) != 1000 || pre.Exposure == nil {
		t.Errorf("the preview is missing: %d targets", len(pre.Targets))
	}
	return err
}

func TestAPlanThatCouldBreakTheBudgetIsRefused(t *testing.T) {
	as := slices.Concat(many(500, host{site: "x", tags: []string{"number=0"}}), many(500, host{site: "y", tags: []string{"number=1"}}))
	canary := func(size int, soak time.Duration, more func(*fleet.Plan)) func(*fleet.Plan) {
		return func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.Canary, BatchSize: 300, Canary: &fleet.CanaryRule{Size: size}}
			p.Pace.Soak = fleet.Duration(soak)
			if more != nil {
				more(p)
			}
		}
	}
	for _, row := range []struct {
		name   string
		hours  float64
		change func(*fleet.Plan)
		want   string // a part of the refusal, "" for none
	}{
		// 50 canaries: 10 min of health wait and 20 of observation are 25 h.
		{"too fast", 0, canary(50, 0, nil), "batch 2 could bring 2.0.0 to 350 of the fleet (35 % of 1000), where the exposure budget lets 100 have it before 100 h of health; only 25 h are certain by then: soak for about 1h30m longer"},
		{"slow enough", 0, canary(50, 110*time.Minute, nil), ""},
		{"a minute too fast", 0, canary(50, 109*time.Minute, nil), "soak for about 1m longer"},
		{"in an emergency", 0, canary(50, 110*time.Minute, func(p *fleet.Plan) { p.Pace.Emergency = true }), "8.33 h are certain"},
		{"most of the hours are there", 80, canary(50, 0, nil), ""},
		{"too many canaries", 0, canary(101, 1000*time.Hour, nil), "batch 1 could bring 2.0.0 to 101 of the fleet (10.1 % of 1000), where the exposure budget lets 100 have it before 100 h of health; only 0 h are certain by then: begin with 100 agents at most"},
		{"a proven version", 100, canary(500, 0, nil), ""},
		{"waves of a batch prove it", 0, func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.AllAtOnce}
			p.Limits.MaxParallel = 100
			p.Health.Wait = fleet.Duration(time.Hour)
		}, ""},
		{"waves without a look at their health do not", 0, func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.AllAtOnce, SkipValidation: true}
			p.Limits.MaxParallel = 100
			p.Health.Wait = fleet.Duration(time.Hour)
		}, "only 0 h are certain"},
		// A site has room for 60, the fleet for 100.
		{"too many of one site", 0, func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.Rings, BatchSize: 61, Rings: &fleet.RingRule{By: "number"}}
		}, "batch 1 could bring 2.0.0 to 61 of those with site x (12.2 % of 500), where the exposure budget lets 60"},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := exposed(t, as, row.hours, row.change)
			if row.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if fleet.KindOf(err) != fleet.Conflict || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v\nwant %q", err, row.want)
			}
		})
	}
}

// Whatever the plan: one that is let through never has more than the limit before
// the hours are there, when every agent takes exactly the time it must.
func TestAPlanThatIsLetThroughKeepsTheBudget(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := withDefaults(fleet.Plan{Version: "2.0.0", Strategy: fleet.Strategy{Kind: fleet.Rolling}})
		p.Limits.MaxParallel = rapid.IntRange(1, 20).Draw(rt, "parallel")
		p.Health.Wait = fleet.Duration(time.Duration(rapid.IntRange(1, 120).Draw(rt, "wait")) * time.Minute)
		p.Pace.Soak = fleet.Duration(time.Duration(rapid.IntRange(0, 300).Draw(rt, "soak")) * time.Minute)
		pre := fleet.Preview{}
		for i, size := range rapid.SliceOfN(rapid.IntRange(1, 30), 1, 6).Draw(rt, "batches") {
			pre.Batches = append(pre.Batches, fleet.PreviewBatch{Index: i, Size: size})
		}
		limit := rapid.IntRange(1, 40).Draw(rt, "limit")
		room := &Room{Exposure: fleet.Exposure{Fleet: 200, Limit: limit, NeededHours: rapid.Float64Range(0, 200).Draw(rt, "needed")}}
		refused := checkExposure(&p, &pre, room, nil) != nil

		// The same, minute by minute.
		minute := 0
		var upgraded []int // when each agent began
		broken := false
		hours := func() float64 {
			sum := 0
			for _, at := range upgraded {
				sum += minute - at
			}
			return float64(sum) / 60
		}
		for _, b := range pre.Batches {
			for left := b.Size; left > 0; {
				n := min(left, p.Limits.MaxParallel)
				before := hours()
				for range n {
					upgraded = append(upgraded, minute)
				}
				broken = broken || (len(upgraded) > limit && before < room.NeededHours-1e-6)
				left -= n
				minute += int(p.Health.Wait.D().Minutes())
			}
			minute += int(p.Pace.Soak.D().Minutes())
		}
		if broken && !refused {
			rt.Errorf("let through, and breaks the budget")
		}
		if refused && !broken && hours() < room.NeededHours-1e-6 && len(upgraded) <= limit {
			rt.Errorf("refused, though it keeps the budget")
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
