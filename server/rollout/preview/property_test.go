package preview

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
)

// Any plan that passes Check can be previewed, and none causes a panic.
func TestAnyPlanIsRefusedOrPreviewed(t *testing.T) {
	anyInt := rapid.OneOf(rapid.IntRange(-2, 5), rapid.Int())
	anyText := rapid.SampledFrom([]string{"", "os", "tag:", "tag:x", "site", "2.0.0", "mon", "22:00", "UTC", "\x00"})
	rapid.Check(t, func(rt *rapid.T) {
		st := fleet.Strategy{
			Kind:      fleet.StrategyKind(rapid.SampledFrom([]string{"", "rolling", "canary", "rings", "all_at_once", "odd"}).Draw(rt, "kind")),
			BatchSize: anyInt.Draw(rt, "size"), BatchPercent: rapid.Float64().Draw(rt, "percent"),
		}
		if rapid.Bool().Draw(rt, "canary") {
			st.Canary = &fleet.CanaryRule{Size: anyInt.Draw(rt, "canaries"), Percent: rapid.Float64().Draw(rt, "canary percent"), Pick: fleet.CanaryPick(rapid.SampledFrom([]string{"", "stratified", "odd"}).Draw(rt, "pick")), Over: rapid.SliceOfN(anyText, 0, 3).Draw(rt, "over")}
		}
		if rapid.Bool().Draw(rt, "rings") {
			st.Rings = &fleet.RingRule{By: anyText.Draw(rt, "by"), Default: anyInt.Draw(rt, "default"), Only: rapid.SliceOfN(anyInt, 0, 3).Draw(rt, "only")}
		}
		p := fleet.Plan{
			Name: "x", Version: "2.0.0", Select: fleet.Selector{All: true}, Strategy: st,
			Limits: fleet.Limits{MaxParallel: anyInt.Draw(rt, "parallel"), Per: []fleet.LabelLimit{{Label: anyText.Draw(rt, "label"), Max: anyInt.Draw(rt, "max")}}},
			Health: fleet.HealthRule{Wait: fleet.Duration(rapid.Int64().Draw(rt, "wait"))},
			Pace: fleet.Pace{
				Soak:    fleet.Duration(rapid.Int64().Draw(rt, "soak")),
				Windows: []fleet.Window{{Days: []string{anyText.Draw(rt, "day")}, From: anyText.Draw(rt, "from"), To: anyText.Draw(rt, "to"), Zone: anyText.Draw(rt, "zone")}},
			},
		}
		if err := plan.Resolve(&p, nil, rollouttest.Published("2.0.0")); err != nil {
			rt.Fatalf("resolve: %v", err)
		}
		again := p
		if err := plan.Resolve(&again, nil, rollouttest.Published("2.0.0")); err != nil || !reflect.DeepEqual(again, p) {
			rt.Errorf("resolved again: %v\n%+v\nwant\n%+v", err, again, p)
		}
		checked := plan.Check(&p)
		pre, err := Compute(&fleet.Rollout{Plan: p}, Fleet{Agents: rollouttest.Many(5, rollouttest.Host{}), Catalog: rollouttest.Published("2.0.0")}, rollouttest.Noon)
		if checked == nil && (err != nil || len(pre.Targets) != 5) {
			rt.Errorf("a good plan cannot be previewed: %v, %d targets", err, len(pre.Targets))
		}
	})
}
