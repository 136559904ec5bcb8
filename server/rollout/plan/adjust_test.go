package plan

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
)

// adjusted returns a plan whose limits and rules were changed.
func adjusted(p fleet.Plan, change func(*fleet.Plan)) (fleet.Plan, []string, error) {
	to := p
	change(&to)
	return Adjust(p, to.Limits, to.Failure, to.Health, to.Pace)
}

func TestAdjustedPlanSaysWhatDiffers(t *testing.T) {
	for want, change := range map[string]func(*fleet.Plan){
		"":                                   func(*fleet.Plan) {},
		"limits.max_parallel from 500 to 10": func(p *fleet.Plan) { p.Limits.MaxParallel = 10 },
		`limits.per from none to [{"label":"site","max":2}]`: func(p *fleet.Plan) { p.Limits.Per = []fleet.LabelLimit{{Label: "site", Max: 2}} },
		"failure.count from none to 0":                       func(p *fleet.Plan) { p.Failure.Count = num(0) },
		"failure.percent from none to 5":                     func(p *fleet.Plan) { p.Failure.Percent = num(5.0) },
		`health.wait from "10m0s" to "1m0s", pace.soak from none to "1h0m0s"`: func(p *fleet.Plan) {
			p.Health.Wait, p.Pace.Soak = fleet.Duration(time.Minute), fleet.Duration(time.Hour)
		},
		`pace.emergency from none to true`:                                       func(p *fleet.Plan) { p.Pace.Emergency, p.Pace.Soak = true, fleet.Duration(time.Hour) },
		`pace.windows from none to [{"from":"22:00","to":"04:00","zone":"UTC"}]`: func(p *fleet.Plan) { p.Pace.Windows = []fleet.Window{{From: "22:00", To: "04:00"}} },
		`pace.windows from none to [{"days":["mon"],"from":"22:00","to":"04:00","zone"`: func(p *fleet.Plan) {
			p.Pace.Windows = slices.Repeat([]fleet.Window{{Days: []string{"mon"}, From: "22:00", To: "04:00"}}, 5)
		},
	} {
		p, changes, err := adjusted(resolved(t), change)
		text := strings.Join(changes, ", ")
		if err != nil || text != want && !strings.HasPrefix(text, want+":") {
			t.Errorf("%q, %v, want %q", text, err, want)
		}
		if again, changes, err := adjusted(p, func(*fleet.Plan) {}); err != nil || len(changes) > 0 || !reflect.DeepEqual(again, p) {
			t.Errorf("%s: adjusted to the same it is %+v, %v, %v", want, again, changes, err)
		}
	}
	// Defaults, whether or not they are written, are no difference.
	p := resolved(t)
	if _, changes, err := Adjust(p, fleet.Limits{Per: []fleet.LabelLimit{}}, fleet.FailureRule{}, fleet.HealthRule{Wait: fleet.Duration(fleet.DefaultHealthWait)}, fleet.Pace{Windows: []fleet.Window{}}); err != nil || len(changes) > 0 {
		t.Errorf("the defaults differ: %v, %v", changes, err)
	}
}

func TestAdjustErrorsNameTheField(t *testing.T) {
	lockstep := fleet.Plan{Name: "together", Component: "web", Version: "2.0.0", Strategy: fleet.Strategy{Kind: fleet.LockstepStrategy}}
	for _, c := range []struct {
		name   string
		p      fleet.Plan
		change func(*fleet.Plan)
		want   string // "" for none
	}{
		{"none at one time", resolved(t), func(p *fleet.Plan) { p.Limits.MaxParallel = -1 }, "body.plan.limits.max_parallel]: is -1"},
		{"a label twice", resolved(t), func(p *fleet.Plan) { p.Limits.Per = slices.Repeat([]fleet.LabelLimit{{Label: "site", Max: 1}}, 2) }, "body.plan.limits.per[1].label]: is site again"},
		{"below no failure", resolved(t), func(p *fleet.Plan) { p.Failure.Count = num(-1) }, "body.plan.failure.count]: is -1"},
		{"a wait of a year", resolved(t), func(p *fleet.Plan) { p.Health.Wait = fleet.Duration(365 * 24 * time.Hour) }, "body.plan.health.wait]: is 8760h"},
		{"no such day", resolved(t), func(p *fleet.Plan) {
			p.Pace.Windows = []fleet.Window{{Days: []string{"someday"}, From: "22:00", To: "04:00"}}
		}, "body.plan.pace.windows[0]"},
		{"limits in lockstep", lockstep, func(p *fleet.Plan) { p.Limits.MaxParallel = 2 }, "body.plan.limits.max_parallel]: does not go with lockstep, in which all targets go together"},
		{"failures in lockstep", lockstep, func(p *fleet.Plan) { p.Failure.Count = num(2) }, "body.plan.failure.count]: does not go with lockstep, in which the first failure undoes everything"},
		{"a soak in lockstep", lockstep, func(p *fleet.Plan) { p.Pace.Soak = fleet.Duration(time.Hour) }, "body.plan.pace.soak]: does not go with lockstep"},
		{"health and windows in lockstep", lockstep, func(p *fleet.Plan) {
			p.Health.Wait, p.Pace.Windows = fleet.Duration(time.Minute), []fleet.Window{{From: "22:00", To: "04:00"}}
		}, ""},
	} {
		_, changes, err := adjusted(c.p, c.change)
		switch {
		case c.want == "" && (err != nil || len(changes) == 0):
			t.Errorf("%s: %v, %v", c.name, changes, err)
		case c.want != "" && (err == nil || fleet.KindOf(err) != fleet.Invalid || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

func TestTargetsAreLookedAtAgainIfTheirDocumentsWouldDiffer(t *testing.T) {
	perSite := func(p *fleet.Plan) {
		p.Limits.Per = []fleet.LabelLimit{{Label: "site", Max: 1}, {Label: "rack", Max: 1}}
	}
	base, _, err := adjusted(resolved(t), perSite)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*fleet.Plan)
		same   bool
	}{
		"other numbers": {func(p *fleet.Plan) {
			p.Limits.MaxParallel, p.Limits.Per = 1, []fleet.LabelLimit{{Label: "site", Max: 5}, {Label: "rack", Max: 2}}
		}, true},
		"another wait": {func(p *fleet.Plan) { p.Health.Wait, p.Pace.WaitFor = 1, 2 }, true},
		"the labels in other order": {func(p *fleet.Plan) {
			p.Limits.Per = []fleet.LabelLimit{{Label: "rack", Max: 1}, {Label: "site", Max: 1}}
		}, false},
		"one label less":         {func(p *fleet.Plan) { p.Limits.Per = p.Limits.Per[:1] }, false},
		"no labels":              {func(p *fleet.Plan) { p.Limits = fleet.Limits{} }, false},
		"another time of offers": {func(p *fleet.Plan) { p.Pace.OfferFor = fleet.Duration(time.Hour) }, false},
	} {
		p, _, err := adjusted(base, c.change)
		if err != nil || SameTargets(&base, &p) != c.same {
			t.Errorf("%s: the same is %t, %v", name, !c.same, err)
		}
	}
}

// An agent that comes and goes does not prolong the time for which its offer is held.
func TestHeldSince(t *testing.T) {
	at := func(minutes int) time.Time { return rollouttest.Noon.Add(time.Duration(minutes) * time.Minute) }
	for want, states := range map[int][]fleet.TargetState{
		1: {fleet.TargetPending, fleet.TargetHeld},
		2: {fleet.TargetPending, fleet.TargetPending, fleet.TargetHeld, fleet.TargetOffered, fleet.TargetOffered, fleet.TargetHeld, fleet.TargetHeld},
		5: {fleet.TargetPending, fleet.TargetHeld, fleet.TargetOffered, fleet.TargetFailed, fleet.TargetPending, fleet.TargetHeld}, // a second attempt
		0: {fleet.TargetHeld},                                                                                                      // what was before is no longer known
	} {
		target := fleet.Target{State: fleet.TargetHeld}
		for i, s := range states {
			target.History = append(target.History, fleet.TargetChange{At: at(i), State: s})
		}
		if got := HeldSince(&target); !got.Equal(at(want)) {
			t.Errorf("%v: held since %s, want %s", states, got, at(want))
		}
		target.State = fleet.TargetPending
		if got := HeldSince(&target); !got.IsZero() {
			t.Errorf("%v, and pending since: held since %s", states, got)
		}
	}
}
