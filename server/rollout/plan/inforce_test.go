package plan_test

import (
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestVersionInForceFollowsThePhase(t *testing.T) {
	at := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	begun := &fleet.Lockstep{Phase: fleet.LockstepDrain}
	committed := &fleet.Lockstep{Phase: fleet.LockstepSwitch, CommittedAt: &at}
	undone := &fleet.Lockstep{Phase: fleet.LockstepUndo, Undo: &fleet.Undo{At: at}}
	in := func(version string, changing bool) *agentapi.ComponentInForce {
		return &agentapi.ComponentInForce{Version: version, Changing: changing}
	}
	for _, c := range []struct {
		name      string
		l         *fleet.Lockstep
		has, want *agentapi.ComponentInForce
		from      string
	}{
		{"the first rollout begins", begun, nil, in("1.0.0", true), "1.0.0"},
		{"the first one begins on mixed versions", begun, nil, in("", true), ""},
		{"another one begins", begun, in("1.0.0", false), in("1.0.0", true), "0.9.0"},
		{"a later phase of it", begun, in("1.0.0", true), in("1.0.0", true), ""},
		{"it is committed", committed, in("1.0.0", true), in("1.1.0", false), ""},
		{"it is committed, and the record is new", committed, nil, in("1.1.0", false), ""},
		{"it is undone", undone, in("1.0.0", true), in("1.0.0", false), ""},
		{"the first one is undone on mixed versions", undone, in("", true), nil, ""},
		{"it is undone, and the record is new", undone, nil, nil, ""},
	} {
		got := plan.InForce(c.l, "1.1.0", c.has, c.from)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: in force is %+v, want %+v", c.name, got, c.want)
		}
	}
}
