package spec_test

import (
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
	"github.com/muster-fleet/muster/server/rollout/spec"
)

func TestAgentBelongsToTheOlderObjectThatHasThePart(t *testing.T) {
	at := func(hour int) *time.Time { return new(rollouttest.Noon.Add(time.Duration(hour) * time.Hour)) }
	object := func(name string, created *time.Time, s spec.Spec) spec.Fleet {
		return spec.Fleet{Metadata: spec.Metadata{Name: name, CreationTimestamp: created}, Spec: s}
	}
	agent, berlin := &spec.Desired{Version: "2.0.0"}, fleet.Selector{Labels: map[string][]string{"site": {"berlin"}}}
	all := []spec.Fleet{
		object("young", at(3), spec.Spec{Selector: fleet.Selector{All: true}, Agent: agent}),
		object("b", at(2), spec.Spec{Selector: berlin, Agent: agent, Components: []spec.Component{{Name: "web"}}}),
		object("a", at(2), spec.Spec{Selector: berlin, Components: []spec.Component{{Name: "web"}}}),
		object("unreadable", at(1), spec.Spec{Selector: fleet.Selector{Kuery: "("}, Agent: agent}),
	}
	inBerlin, inRome := rollouttest.Host{ID: "x", Site: "berlin"}.Agent(), rollouttest.Host{ID: "y", Site: "rome"}.Agent()
	for _, row := range []struct {
		agent           *fleet.Agent
		component, want string
	}{
		{&inBerlin, "", "b"}, {&inRome, "", "young"}, {&inBerlin, "web", "a"}, {&inRome, "web", ""}, {&inBerlin, "db", ""},
	} {
		owners := spec.NewOwners(all, row.component, plan.QueryTime{Now: rollouttest.Noon})
		got := ""
		if f := owners.Of(&plan.Candidate{Agent: row.agent}); f != nil {
			got = f.Metadata.Name
		}
		if got != row.want || owners.None() != (row.component == "db") {
			t.Errorf("%s of %s belongs to %q, want %q", row.component, row.agent.ID, got, row.want)
		}
	}
}
