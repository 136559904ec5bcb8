package fleet

import (
	"fmt"
	"testing"

	"github.com/muster-fleet/muster/server/kql"
)

func TestNewestAcknowledgementOfPolicyCounts(t *testing.T) {
	a := Agent{ID: "a", PolicyID: "web", PolicyRev: 2}
	finds := func(query string) bool {
		t.Helper()
		f, err := kql.Compile(query, AgentSchema(nil), now)
		if err != nil {
			t.Fatal(err)
		}
		return kql.Match(f, a.Values)
	}
	if finds("policy_coordinator_idx: *") {
		t.Error("an agent that has acknowledged nothing has a coordinator's number")
	}
	for _, step := range []struct {
		id      string
		changed bool
		then    string // revision and coordinator
	}{
		{"policy:web:2", false, "2 -"},
		{"policy:web:3", true, "3 -"},
		{"policy:web:3:0", false, "3 -"},
		{"policy:web:3:1", true, "3 1"},
		{"policy:web:3", false, "3 1"},
		{"policy:db:9:9", false, "3 1"},
		{"policy:web:2:9", false, "3 1"},
		{"policy:web:4", true, "4 -"},
		{"policy:web:5:7", true, "5 7"},
	} {
		has, coordinator, ok := ParseChange(step.id)
		if !ok {
			t.Fatalf("%s is refused", step.id)
		}
		changed, then := a.AcknowledgePolicy(has, coordinator), fmt.Sprint(a.PolicyRev, " -")
		if a.PolicyCoordinator != nil {
			then = fmt.Sprint(a.PolicyRev, *a.PolicyCoordinator)
		}
		if changed != step.changed || then != step.then {
			t.Errorf("after %s the agent has %s, changed %t; want %s, %t", step.id, then, changed, step.then, step.changed)
		}
	}
	if !finds("policy_coordinator_idx: 7") || !finds("policy_coordinator_idx >= 7") || finds("policy_coordinator_idx: 0") {
		t.Error("the coordinator's number cannot be queried")
	}
	for _, id := range []string{"policy:web", "policy::1", "policy:web:0", "policy:web:-1", "policy:web:x", "policy:web:1:x", "policy:web:1:-1", "policy:web:1:2:3", "web:1"} {
		if _, _, ok := ParseChange(id); ok {
			t.Errorf("%q is accepted", id)
		}
	}
}
