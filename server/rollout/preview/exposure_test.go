package preview

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
)

// exposed previews 1,000 agents with a budget of 100 agents, and of 60 in a site, for
// 100 hours.
func exposed(t *testing.T, as []fleet.Agent, hours float64, change func(*fleet.Plan)) error {
	t.Helper()
	rule := fleet.ExposureRule{Enabled: true, Percent: 10, HealthyHours: 100, Per: []fleet.ExposureLabel{{Label: "site", Percent: 12}}}
	tally := plan.NewTally(rule, rollouttest.Noon)
	seen := rollouttest.Noon.Add(-time.Minute)
	since := seen.Add(-time.Hour)
	for i := range as {
		labels := fleet.EncodeLabels(map[string]string{"site": as[i].Label("site"), "os": "linux"})
		tally.Add(fleet.Census{ID: as[i].ID, Active: true, Version: "1.0.0", LastCheckin: &seen, VersionSince: since, HealthySince: since, Labels: labels})
	}
	room := tally.Budget("2.0.0", nil)
	room.HealthyHours = hours
	pre, err := Compute(draft(t, change), Fleet{Agents: as, Catalog: rollouttest.Published("2.0.0"), Room: room}, rollouttest.Noon)
	if len(pre.Targets) != 1000 || pre.Exposure == nil {
		t.Errorf("the preview is missing: %d targets", len(pre.Targets))
	}
	return err
}

func TestPlanThatCouldExceedTheBudgetIsRefused(t *testing.T) {
	as := slices.Concat(rollouttest.Many(500, rollouttest.Host{Site: "x", Tags: []string{"number=0"}}), rollouttest.Many(500, rollouttest.Host{Site: "y", Tags: []string{"number=1"}}))
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
		want   string // a part of the error, "" for none
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

// A plan that is accepted never exceeds the limit before the hours are reached, if
// every agent takes exactly the minimum time.
func TestAcceptedPlanStaysWithinTheBudget(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := plan.WithDefaults(fleet.Plan{Version: "2.0.0", Strategy: fleet.Strategy{Kind: fleet.Rolling}})
		p.Limits.MaxParallel = rapid.IntRange(1, 20).Draw(rt, "parallel")
		p.Health.Wait = fleet.Duration(time.Duration(rapid.IntRange(1, 120).Draw(rt, "wait")) * time.Minute)
		p.Pace.Soak = fleet.Duration(time.Duration(rapid.IntRange(0, 300).Draw(rt, "soak")) * time.Minute)
		pre := fleet.Preview{}
		for i, size := range rapid.SliceOfN(rapid.IntRange(1, 30), 1, 6).Draw(rt, "batches") {
			pre.Batches = append(pre.Batches, fleet.PreviewBatch{Index: i, Size: size})
		}
		limit := rapid.IntRange(1, 40).Draw(rt, "limit")
		room := &plan.Room{Exposure: fleet.Exposure{Fleet: 200, Limit: limit, NeededHours: rapid.Float64Range(0, 200).Draw(rt, "needed")}}
		refused := checkExposure(&p, &pre, room, nil, plan.VerifyTime(&p, 0)) != nil

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
