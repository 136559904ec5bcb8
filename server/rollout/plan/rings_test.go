package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
)

func TestRingWaitsForLowerRings(t *testing.T) {
	as := rollouttest.Agents(
		rollouttest.Host{ID: "zero", Ring: "0", Version: "2.0.0"}, rollouttest.Host{ID: "behind", Ring: "0"}, rollouttest.Host{ID: "one", Ring: "1"},
		rollouttest.Host{ID: "two", Ring: "2"}, rollouttest.Host{ID: "three", Ring: "3"}, rollouttest.Host{ID: "other", Ring: "0", Policy: "other"},
	)
	plan := func(rule fleet.RingRule) *fleet.Plan {
		return &fleet.Plan{Version: "2.0.0", Select: fleet.Selector{Policies: []string{"default"}}, Strategy: fleet.Strategy{Kind: fleet.Rings, Rings: &rule}}
	}
	for _, row := range []struct {
		name string
		rule fleet.RingRule
		want []string
	}{
		{"all rings", fleet.RingRule{}, nil},
		{"the lowest", fleet.RingRule{Only: []int{0}}, nil},
		{"the next", fleet.RingRule{Only: []int{1}}, []string{"behind"}},
		{"the last", fleet.RingRule{Only: []int{3}}, []string{"behind", "one", "two"}},
		{"with one left out", fleet.RingRule{Only: []int{0, 2}}, []string{"one"}},
		{"forced", fleet.RingRule{Only: []int{3}, Force: true}, nil},
	} {
		var got []string
		behind, err := lowerRings(plan(row.rule), as, nil, rollouttest.Noon)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range behind {
			got = append(got, s.AgentID)
			if s.Code != fleet.WhyRing || !strings.Contains(s.Text, "2.0.0") {
				t.Errorf("%s: %+v", row.name, s)
			}
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%s: %v are behind, want %v", row.name, got, row.want)
		}
	}
	rolling := &fleet.Plan{Version: "2.0.0", Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: fleet.Rolling}}
	if behind, err := lowerRings(rolling, as, nil, rollouttest.Noon); behind != nil || err != nil {
		t.Errorf("rings bind another strategy: %v, %v", behind, err)
	}
	last := plan(fleet.RingRule{Only: []int{3}})
	last.Select = fleet.Selector{Kuery: "agent.id: one"}
	if behind, err := lowerRings(last, as, nil, rollouttest.Noon); err != nil || len(behind) != 1 || behind[0].AgentID != "one" {
		t.Errorf("of those that match the query %v are behind: %v", behind, err)
	}
}
