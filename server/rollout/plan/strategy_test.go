package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/preview"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
)

// doubling is a strategy of which nothing else knows: its batches have one target, two, four and so
// on, and nobody may force it.
type doubling struct{ plan.Rolling }

func (doubling) Traits() plan.Traits {
	return plan.Traits{Kind: "doubling", Refused: map[string]string{"pace.soak": "does nothing in doubling"}}
}

func (doubling) Complete(p *fleet.Plan) {
	plan.Rolling{}.Complete(p)
	p.Strategy.BatchPercent = 0
}

func (doubling) CheckBreaking(*fleet.Plan) error { return nil } // its first batch is one host

func (doubling) Batches(_ *fleet.Plan, members []plan.Member) (cuts []plan.Cut) {
	for from, size := 0, 1; from < len(members); from, size = from+size, size*2 {
		cut := plan.Cut{Kind: fleet.BatchRegular}
		for i := from; i < min(from+size, len(members)); i++ {
			cut.Members = append(cut.Members, i)
		}
		cuts = append(cuts, cut)
	}
	return cuts
}

func (doubling) Refusal(command string, _ *fleet.Rollout) *fleet.Refusal {
	if command == plan.CommandForce {
		return &fleet.Refusal{Text: "doubles, and stops at failures"}
	}
	return nil
}

func (doubling) BatchText(b *fleet.Batch) string { return fmt.Sprintf(", of %d", 1<<b.Index) }

func (doubling) Warnings(*fleet.Plan, *fleet.Preview, []plan.Member) []string {
	return []string{"each batch is twice the one before"}
}

// A strategy is one file and its registration: plans with it are completed, checked, previewed,
// decided, described and commanded.
func TestStrategyIsOneFile(t *testing.T) {
	catalog := rollouttest.Published("1.2.0")
	planned := func() fleet.Plan {
		p := fleet.Plan{Name: "spring", Version: "1.2.0", Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: "doubling"}}
		if err := plan.Resolve(&p, nil, catalog); err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := planned()
	if err := plan.Check(&p); err == nil || !strings.Contains(err.Error(), "want rolling, canary") {
		t.Fatalf("a plan with a strategy that is not registered gives %v", err)
	}
	r := rollouttest.InState(fleet.RolloutRunning)
	r.Plan, r.Counts = p, fleet.Counts{}
	if plan.CheckKnown(&r) == nil {
		t.Fatal("this version works on a rollout with a strategy that it does not know")
	}
	plan.Register(t, doubling{})

	if p = planned(); p.Limits.MaxParallel != fleet.DefaultMaxParallel {
		t.Errorf("the complete plan is %+v", p)
	}
	if err := plan.Check(&p); err != nil {
		t.Fatal(err)
	}
	breaking := p
	breaking.Migration = fleet.Migration{Type: fleet.MigrationBreaking, RecoveryPlan: "restore the backup", AcknowledgeStateRisk: true}
	if err := plan.Check(&breaking); err != nil {
		t.Error(err)
	}
	for field, change := range map[string]func(*fleet.Plan){
		"pace.soak":           func(p *fleet.Plan) { p.Pace.Soak = fleet.Duration(time.Hour) },
		"strategy.batch_size": func(p *fleet.Plan) { p.Strategy.BatchSize = 2 },
	} {
		bad := p
		change(&bad)
		if err := plan.Check(&bad); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("a plan with %s gives %v", field, err)
		}
	}
	defaults := plan.Defaults{Strategy: fleet.Strategy{BatchSize: 7}, Limits: fleet.Limits{MaxParallel: 3}}
	if got := defaults.Apply(fleet.Plan{Strategy: p.Strategy}); got.Strategy.BatchSize != 0 || got.Limits.MaxParallel != 3 {
		t.Errorf("with the server's defaults the plan is %+v", got)
	}

	r.Plan = p
	pre, err := preview.Compute(&r, preview.Fleet{Agents: rollouttest.Many(10, rollouttest.Host{}), Catalog: catalog}, rollouttest.Noon)
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for _, b := range pre.Batches {
		sizes = append(sizes, b.Size)
	}
	if !slices.Equal(sizes, []int{1, 2, 4, 3}) || !slices.Contains(pre.Warnings, "each batch is twice the one before") {
		t.Errorf("batches are of %v, warnings are %q", sizes, pre.Warnings)
	}

	r.Batches = nil
	var targets []plan.Target
	for i, b := range pre.Batches {
		r.Batches = append(r.Batches, fleet.Batch{Index: i, Kind: b.Kind})
		for range b.Size {
			targets = append(targets, plan.Target{Batch: int32(i), Online: true, Groups: plan.NoSites, Sites: plan.NoSites})
		}
	}
	if step := plan.Decide(&r, targets, plan.World{}, rollouttest.Noon); !slices.Equal(step.Offer, []int32{0}) {
		t.Errorf("the first round offers to %v", step.Offer)
	}
	for _, c := range plan.Commands(&r, plan.Around{}, rollouttest.Noon) {
		if c.Name == plan.CommandForce && (c.Allowed || c.Reason != "It doubles, and stops at failures.") {
			t.Errorf("force is %+v", c)
		}
	}
}
