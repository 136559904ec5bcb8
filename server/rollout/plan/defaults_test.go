package plan

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
)

const minutes = fleet.Duration(time.Minute)

// everyDefault has each field that can have a default, except the alternatives of others.
func everyDefault() Defaults {
	return Defaults{
		Strategy: fleet.Strategy{
			BatchSize: 7, Canary: &fleet.CanaryRule{Size: 5, Pick: fleet.PickStratified, Over: []string{"site"}}, Rings: &fleet.RingRule{By: "stage"},
			Away: fleet.AwayExclude, Patience: 12 * minutes,
		},
		Limits:  fleet.Limits{MaxParallel: 50, Per: []fleet.LabelLimit{{Label: "site", Max: 2}}},
		Failure: fleet.FailureRule{Count: num(5)},
		Health:  fleet.HealthRule{Wait: 20 * minutes, StaleAfter: 6 * minutes, SilentAfter: 3 * minutes, MaxCrashes: 4},
		Pace:    fleet.Pace{Windows: []fleet.Window{{From: "22:00", To: "04:00"}}, OfferFor: 60 * minutes, WaitFor: 90 * minutes},
	}
}

// ofKind returns a complete plan of a component, with canaries if the strategy may have them.
func ofKind(kind fleet.StrategyKind) fleet.Plan {
	return fleet.Plan{
		Name: "web", Version: "2.0.0", Component: "web", Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: kind},
		Artifacts: []fleet.Artifact{{Runtime: fleet.RuntimeProcess, Checksum: sum("sha256:")}},
	}
}

func TestEachStrategyGetsTheServerDefaultsOfTheFieldsItHas(t *testing.T) {
	rest := []string{"health.wait", "health.stale_after", "health.silent_after", "health.max_crashes", "pace.windows"}
	undivided := []string{"limits.max_parallel", "limits.per", "failure.count", "pace.offer_for", "pace.wait_for"}
	canary := []string{"strategy.canary.size", "strategy.canary.pick", "strategy.canary.over"}
	for _, row := range []struct {
		name string
		plan fleet.Plan
		want []string
	}{
		{"rolling", ofKind(fleet.Rolling), slices.Concat(rest, undivided, []string{"strategy.batch_size"})},
		{"canary", ofKind(fleet.Canary), slices.Concat(rest, undivided, canary, []string{"strategy.batch_size"})},
		{"rings", ofKind(fleet.Rings), slices.Concat(rest, undivided, []string{"strategy.batch_size", "strategy.rings.by"})},
		{"rings with canaries", func() fleet.Plan {
			p := ofKind(fleet.Rings)
			p.Strategy.Canary = &fleet.CanaryRule{}
			return p
		}(), slices.Concat(rest, undivided, canary, []string{"strategy.batch_size", "strategy.rings.by"})},
		{"all at once", ofKind(fleet.AllAtOnce), slices.Concat(rest, undivided)},
		{"lockstep", ofKind(fleet.LockstepStrategy), slices.Concat(rest, []string{"strategy.away", "strategy.patience"})},
		{"an emergency, which has no windows", func() fleet.Plan {
			p := ofKind(fleet.Rolling)
			p.Pace.Emergency = true
			return p
		}(), slices.Concat(rest[:4], undivided, []string{"strategy.batch_size"})},
		{"a strategy of a newer server", ofKind("spiral"), nil},
	} {
		d := everyDefault()
		got := d.Apply(row.plan)
		names := slices.Sorted(slices.Values(got.ServerDefaults))
		if !slices.Equal(names, slices.Sorted(slices.Values(row.want))) {
			t.Errorf("%s: defaults of %v, want %v", row.name, names, row.want)
		}
		d.Pace.Windows[0].Zone = "UTC" // as in each complete plan
		for _, path := range names {
			if !reflect.DeepEqual(valueAt(got, path), valueAt(d, path)) {
				t.Errorf("%s: %s is %v", row.name, path, valueAt(got, path))
			}
		}
		if got = WithDefaults(got); len(row.want) > 0 {
			if err := Check(&got); err != nil {
				t.Errorf("%s: %v", row.name, err)
			}
		}
	}
}

func TestPlanThatGivesAFieldKeepsIt(t *testing.T) {
	for _, row := range []struct {
		name string
		give func(*fleet.Plan)
		path string
		want any // nil: absent
	}{
		{"a limit", func(p *fleet.Plan) { p.Limits.MaxParallel = 3 }, "limits.max_parallel", 3},
		{"a wait", func(p *fleet.Plan) { p.Health.Wait = minutes }, "health.wait", minutes},
		{"a number of failures", func(p *fleet.Plan) { p.Failure.Count = num(0) }, "failure.count", num(0)},
		{"a share of failures", func(p *fleet.Plan) { p.Failure.Percent = num(2.5) }, "failure.count", nil},
		{"a share of a batch", func(p *fleet.Plan) { p.Strategy.BatchPercent = 30 }, "strategy.batch_size", nil},
		{"a share of canaries", func(p *fleet.Plan) { p.Strategy.Canary = &fleet.CanaryRule{Percent: 3} }, "strategy.canary.size", nil},
		{"the fewest canaries", func(p *fleet.Plan) { p.Strategy.Canary = &fleet.CanaryRule{Pick: fleet.PickStratified} }, "strategy.canary.size", nil},
		{"random canaries", func(p *fleet.Plan) { p.Strategy.Canary = &fleet.CanaryRule{Pick: fleet.PickRandom} }, "strategy.canary.size", 5},
		{"the other fields of a rule", func(p *fleet.Plan) { p.Strategy.Canary = &fleet.CanaryRule{Approval: true} }, "strategy.canary.size", 5},
	} {
		p := ofKind(fleet.Canary)
		row.give(&p)
		before := jsonOf(t, p)
		got := everyDefault().Apply(p)
		if v := valueAt(got, row.path); !reflect.DeepEqual(v, row.want) {
			t.Errorf("%s: %s is %v, want %v", row.name, row.path, v, row.want)
		}
		if jsonOf(t, p) != before {
			t.Errorf("%s: the given plan became %s", row.name, jsonOf(t, p))
		}
	}
}

func jsonOf(t *testing.T, p fleet.Plan) string {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A count in a plan applies to canaries too. That of the server must not: canaries exist to stop a
// rollout at the first failure.
func TestServerDefaultOfFailuresDoesNotApplyToCanaries(t *testing.T) {
	d := Defaults{Failure: fleet.FailureRule{Count: num(5)}}
	inherited := d.Apply(ofKind(fleet.Canary))
	if limit, counted := failureCount(&inherited.Failure); limit != 5 || !counted || toleratesCanaries(&inherited) {
		t.Errorf("it stops at %d failures, and tolerates canaries: %v", limit, toleratesCanaries(&inherited))
	}
	own := ofKind(fleet.Canary)
	own.Failure.Count = num(5)
	if own = d.Apply(own); !toleratesCanaries(&own) {
		t.Error("the plan's own count does not apply to canaries")
	}
	// A copy of the plan has the same rule; one that is adjusted has its own.
	if again := d.Apply(inherited); toleratesCanaries(&again) {
		t.Error("in a copy of the plan the server's count applies to canaries")
	}
	adjusted, _, err := Adjust(WithDefaults(inherited), inherited.Limits, fleet.FailureRule{Count: num(6)}, inherited.Health, inherited.Pace)
	if err != nil || !toleratesCanaries(&adjusted) || len(adjusted.ServerDefaults) != 0 {
		t.Errorf("after an adjustment defaults are %v (%v)", adjusted.ServerDefaults, err)
	}
}

func TestServerDefaultsThatCannotBeAreRefused(t *testing.T) {
	for _, row := range []struct {
		d           Defaults
		field, text string
	}{
		{Defaults{}, "", ""},
		{everyDefault(), "", ""},
		{Defaults{Strategy: fleet.Strategy{Kind: fleet.Canary}}, "strategy.kind", "each plan says it"},
		{Defaults{Strategy: fleet.Strategy{Deadline: &time.Time{}}}, "strategy.deadline", "each plan says it"},
		{Defaults{Strategy: fleet.Strategy{Rings: &fleet.RingRule{Only: []int{1}}}}, "strategy.rings.only", "each plan says it"},
		{Defaults{Pace: fleet.Pace{Soak: minutes}}, "pace.soak", "could not be told"},
		{Defaults{Pace: fleet.Pace{PauseOnSuccess: true}}, "pace.pause_on_success", "could not be told"},
		{Defaults{Failure: fleet.FailureRule{Retries: 2}}, "failure.retries", "could not be told"},
		{Defaults{Strategy: fleet.Strategy{Canary: &fleet.CanaryRule{Approval: true}}}, "strategy.canary.approval", "could not be told"},
		{Defaults{Limits: fleet.Limits{MaxParallel: -1}}, "limits.max_parallel", "is -1, want 1 or more"},
		{Defaults{Limits: fleet.Limits{Per: []fleet.LabelLimit{{Label: "site"}}}}, "limits.per[0].max", "is 0"},
		{Defaults{Strategy: fleet.Strategy{BatchSize: 2, BatchPercent: 5}}, "strategy.batch_percent", "conflicts with batch_size"},
		{Defaults{Strategy: fleet.Strategy{Canary: &fleet.CanaryRule{Pick: "best"}}}, "strategy.canary.pick", `is "best"`},
		{Defaults{Strategy: fleet.Strategy{Away: "wait"}}, "strategy.away", `is "wait", want refuse or exclude`},
		{Defaults{Strategy: fleet.Strategy{Patience: 1}}, "strategy.patience", "want"},
		{Defaults{Health: fleet.HealthRule{Wait: -minutes}}, "health.wait", "want 0 to"},
		{Defaults{Pace: fleet.Pace{WaitFor: minutes}}, "pace.wait_for", "each batch takes longer"},
		{Defaults{Pace: fleet.Pace{Windows: []fleet.Window{{From: "25:00", To: "1:00"}}}}, "pace.windows[0].from", "25:00"},
		{Defaults{Failure: fleet.FailureRule{Percent: num(101.0)}}, "failure.percent", "is 101"},
	} {
		err := row.d.Check()
		var refused *fleet.Error
		switch {
		case row.field == "" && err == nil:
		case !errors.As(err, &refused) || refused.Field != row.field || !strings.Contains(refused.Message, row.text):
			t.Errorf("%s: %v, want an error about %q that says %q", row.d, err, row.field, row.text)
		}
	}
}

// Whatever defaults are accepted: a plan that is valid without them is valid with them, unless it
// gives a wait for batches that is too short for the server's health wait.
func TestAcceptedServerDefaultsBreakNoPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every, d := everyDefault(), Defaults{}
		for _, f := range defaultFields {
			if v := valueAt(every, f.path); v != nil && rapid.Bool().Draw(t, f.path) {
				setValue(reflect.ValueOf(&d).Elem(), strings.Split(f.path, "."), v)
			}
		}
		if d.Check() != nil { // a wait for batches without the health wait that it goes with
			d.Pace.WaitFor = 0
		}
		p := ofKind(rapid.SampledFrom([]fleet.StrategyKind{fleet.Rolling, fleet.Canary, fleet.Rings, fleet.AllAtOnce, fleet.LockstepStrategy}).Draw(t, "kind"))
		if p.Strategy.Kind != fleet.LockstepStrategy {
			p.Limits.MaxParallel, p.Failure.Percent = rapid.IntRange(0, 9).Draw(t, "max_parallel"), rapid.SampledFrom([]*float64{nil, num(3.0)}).Draw(t, "percent")
			if p.Strategy.Kind != fleet.AllAtOnce {
				p.Strategy.BatchPercent = rapid.SampledFrom([]float64{0, 20}).Draw(t, "batch_percent")
			}
		}
		once := WithDefaults(d.Apply(p))
		if err := Check(&once); err != nil {
			t.Fatalf("%s: %v", d, err)
		}
		if twice := WithDefaults(d.Apply(once)); !reflect.DeepEqual(once, twice) {
			t.Fatalf("applied again: %+v became %+v", once, twice)
		}
	})
}
