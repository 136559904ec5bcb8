package incident

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Each category ends with its cause, and not before. says is empty if the incident stays open.
func TestIncidentIsGoneWithItsCause(t *testing.T) {
	opened := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	later := opened.Add(time.Minute)
	host := func(change func(*fleet.Agent)) *fleet.Agent {
		a := &fleet.Agent{ID: "a", Active: true, Version: "1.1.0", PolicyRev: 1}
		change(a)
		return a
	}
	same := func(*fleet.Agent) {}
	stuck := func(a *fleet.Agent) {
		a.BeginUpgrade("up", "1.1.0", opened)
		a.UpgradeStartedAt, a.UpgradeStatus = nil, fleet.UpgradeFailed
		a.UpgradeDetails = &agentapi.UpgradeDetails{ActionID: "up", State: agentapi.UpgradeFailed, Metadata: agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeRollback}}
	}
	target := func(s fleet.TargetState) *fleet.Target { return &fleet.Target{AgentID: "a", To: "1.1.0", State: s} }
	rollout := func(s fleet.RolloutState) *fleet.Rollout { return &fleet.Rollout{ID: "r", State: s} }
	noProgress := &fleet.Target{AgentID: "a", From: "1.0.0", To: "1.1.0", State: fleet.TargetFailed, Code: fleet.WhyNoProgress}

	for name, c := range map[string]struct {
		kind  fleet.IncidentKind
		world world
		says  string
	}{
		"paused":          {fleet.IncidentRolloutStopped, world{rollout: rollout(fleet.RolloutPaused)}, ""},
		"failed":          {fleet.IncidentRolloutStopped, world{rollout: rollout(fleet.RolloutFailed)}, ""},
		"resumed":         {fleet.IncidentRolloutStopped, world{rollout: rollout(fleet.RolloutRunning)}, "runs again"},
		"completed":       {fleet.IncidentRolloutStopped, world{rollout: rollout(fleet.RolloutCompleted)}, "has completed"},
		"cancelled":       {fleet.IncidentRolloutStopped, world{rollout: rollout(fleet.RolloutCancelled)}, "was cancelled"},
		"being cancelled": {fleet.IncidentRolloutStopped, world{rollout: rollout(fleet.RolloutCancelling)}, ""},
		"rolled back":     {fleet.IncidentRolloutStopped, world{rollout: rollout(fleet.RolloutRolledBack)}, "rolled back"},
		"removed":         {fleet.IncidentRolloutStopped, world{}, "removed"},

		"one host is as it was left":   {fleet.IncidentVersionRolledBack, world{rolledBack: 1}, ""},
		"no host is as it was left":    {fleet.IncidentVersionRolledBack, world{}, "no host"},
		"stalled still":                {fleet.IncidentStalled, world{agent: host(same), target: target(fleet.TargetFailed)}, ""},
		"stalled, healthy now":         {fleet.IncidentStalled, world{agent: host(func(a *fleet.Agent) { a.HealthySince = &later }), target: target(fleet.TargetFailed)}, "is healthy"},
		"stalled, went elsewhere":      {fleet.IncidentStalled, world{agent: host(func(a *fleet.Agent) { a.Version = "1.0.0" }), target: target(fleet.TargetFailed)}, "runs 1.0.0"},
		"stalled, on the way":          {fleet.IncidentStalled, world{agent: host(func(a *fleet.Agent) { a.Version = "1.0.0"; a.BeginUpgrade("x", "1.2.0", later) }), target: target(fleet.TargetFailed)}, ""},
		"stalled, its end corrected":   {fleet.IncidentStalled, world{agent: host(same), target: target(fleet.TargetRolledBack)}, "rolled back"},
		"no progress, and called off":  {fleet.IncidentStalled, world{agent: host(func(a *fleet.Agent) { a.Version = "1.0.0" }), target: noProgress}, ""},
		"no progress, and healthy now": {fleet.IncidentStalled, world{agent: host(func(a *fleet.Agent) { a.HealthySince = &later }), target: noProgress}, "is healthy"},
		"no progress, went elsewhere":  {fleet.IncidentStalled, world{agent: host(func(a *fleet.Agent) { a.Version = "0.9.0" }), target: noProgress}, "runs 0.9.0"},
		"stalled, target unknown":      {fleet.IncidentStalled, world{agent: host(same)}, ""},
		"stuck":                        {fleet.IncidentUpgradeFailed, world{agent: host(stuck)}, ""},
		"stuck, healthy before":        {fleet.IncidentUpgradeFailed, world{agent: host(func(a *fleet.Agent) { stuck(a); a.HealthySince = new(opened.Add(-time.Minute)) })}, ""},
		"stuck, healthy again":         {fleet.IncidentUpgradeFailed, world{agent: host(func(a *fleet.Agent) { stuck(a); a.HealthySince = &later })}, "healthy again"},
		"upgraded since":               {fleet.IncidentUpgradeFailed, world{agent: host(func(a *fleet.Agent) { a.UpgradedAt = &later })}, "has reached 1.1.0"},
		"being upgraded since":         {fleet.IncidentUpgradeFailed, world{agent: host(func(a *fleet.Agent) { a.BeginUpgrade("x", "1.2.0", later) })}, ""},
		"rollback failed":              {fleet.IncidentRollbackFailed, world{agent: host(func(a *fleet.Agent) { a.Version = "1.2.0" }), target: target(fleet.TargetFailed)}, ""},
		"rollback failed, went back":   {fleet.IncidentRollbackFailed, world{agent: host(same), target: target(fleet.TargetFailed)}, "runs 1.1.0"},
		"rollback failed, then better": {fleet.IncidentRollbackFailed, world{agent: host(same), target: target(fleet.TargetSucceeded)}, "succeeded"},

		"put the newer version back": {fleet.IncidentRollbackFailed, world{agent: host(func(a *fleet.Agent) { a.Version = "1.2.0" }), target: target(fleet.TargetRolledBack)}, ""},
		"put back, then went back":   {fleet.IncidentRollbackFailed, world{agent: host(same), target: target(fleet.TargetRolledBack)}, "runs 1.1.0"},

		"failed, its hosts repaired":  {fleet.IncidentRolloutStopped, world{rollout: rollout(fleet.RolloutFailed), repaired: true}, "were repaired"},
		"paused, its hosts repaired":  {fleet.IncidentRolloutStopped, world{rollout: rollout(fleet.RolloutPaused), repaired: true}, ""},
		"many hosts":                  {"many " + fleet.IncidentStalled, world{rollout: rollout(fleet.RolloutFailed)}, ""},
		"many hosts, all repaired":    {"many " + fleet.IncidentStalled, world{rollout: rollout(fleet.RolloutFailed), repaired: true}, "no host of the rollout"},
		"many hosts, rollout removed": {"many " + fleet.IncidentUpgradeFailed, world{}, "removed"},

		"deleted":     {fleet.IncidentStalled, world{target: target(fleet.TargetFailed)}, "deleted"},
		"unenrolled":  {fleet.IncidentUpgradeFailed, world{agent: host(func(a *fleet.Agent) { stuck(a); a.Active = false })}, "unenrolled"},
		"uninstalled": {fleet.IncidentRollbackFailed, world{agent: host(func(a *fleet.Agent) { a.AuditUnenrolledReason = "uninstall" }), target: target(fleet.TargetFailed)}, "uninstalled"},
	} {
		i := fleet.Incident{Category: c.kind, OpenedAt: opened, AgentID: "a"}
		if kind, many := strings.CutPrefix(string(c.kind), "many "); many {
			i.Category, i.AgentID, i.RolloutID = fleet.IncidentKind(kind), "", "r"
		}
		if c.kind == fleet.IncidentRolloutStopped || c.kind == fleet.IncidentVersionRolledBack {
			i.AgentID = ""
		}
		if got := gone(&i, c.world); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s (%s): gone because %q, want %q", name, c.kind, got, c.says)
		}
	}
}

// An incident about many hosts lasts as long as one of them has its trouble.
func TestHostIsInTroubleUntilItIsRepaired(t *testing.T) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	on := func(version string, change ...func(*fleet.Agent)) *fleet.Agent {
		a := &fleet.Agent{ID: "a", Active: true, Version: version, PolicyRev: 1, HealthySince: &now}
		for _, f := range change {
			f(a)
		}
		return a
	}
	unwell := func(a *fleet.Agent) { a.HealthySince = nil }
	const stop, stalled = fleet.IncidentRolloutStopped, fleet.IncidentStalled
	for name, c := range map[string]struct {
		kind    fleet.IncidentKind
		target  fleet.Target
		agent   *fleet.Agent
		rollout fleet.Rollout
		want    bool
	}{
		"failed, as it was":               {stop, fleet.Target{State: fleet.TargetFailed}, on("1.0.0"), fleet.Rollout{}, true},
		"failed, upgraded by itself":      {stop, fleet.Target{State: fleet.TargetFailed}, on("1.1.0"), fleet.Rollout{}, false},
		"failed, on a later version":      {stop, fleet.Target{State: fleet.TargetRolledBack}, on("1.1.1"), fleet.Rollout{}, false},
		"failed, on its way":              {stop, fleet.Target{State: fleet.TargetFailed}, on("1.1.0", func(a *fleet.Agent) { a.BeginUpgrade("x", "1.1.0", now) }), fleet.Rollout{}, true},
		"failed, unwell on the version":   {stop, fleet.Target{State: fleet.TargetFailed}, on("1.1.0", unwell), fleet.Rollout{}, true},
		"failed, unenrolled":              {stop, fleet.Target{State: fleet.TargetFailed}, on("1.0.0", func(a *fleet.Agent) { a.Active = false }), fleet.Rollout{}, false},
		"failed, deleted":                 {stop, fleet.Target{State: fleet.TargetFailed}, nil, fleet.Rollout{}, false},
		"refused":                         {stop, fleet.Target{State: fleet.TargetSkipped, Code: fleet.WhyFailedBefore}, on("1.0.0"), fleet.Rollout{}, true},
		"left out by an operator":         {stop, fleet.Target{State: fleet.TargetSkipped, Code: fleet.WhyOperator}, on("1.0.0"), fleet.Rollout{}, false},
		"undone in lockstep":              {stop, fleet.Target{State: fleet.TargetWithdrawn}, on("1.0.0"), fleet.Rollout{Lockstep: &fleet.Lockstep{Undo: &fleet.Undo{}}}, true},
		"a rollback, on a later version":  {stop, fleet.Target{State: fleet.TargetFailed}, on("1.2.0"), fleet.Rollout{RollbackOf: "q"}, true},
		"a rollback, brought back":        {stop, fleet.Target{State: fleet.TargetFailed}, on("1.1.0"), fleet.Rollout{RollbackOf: "q"}, false},
		"stalled":                         {stalled, fleet.Target{State: fleet.TargetFailed, Code: fleet.WhyStalled}, on("1.1.0", unwell), fleet.Rollout{}, true},
		"stalled, well now":               {stalled, fleet.Target{State: fleet.TargetFailed, Code: fleet.WhyStalled}, on("1.1.0"), fleet.Rollout{}, false},
		"stalled, failed otherwise":       {stalled, fleet.Target{State: fleet.TargetFailed, Code: fleet.WhyUnhealthy}, on("1.1.0", unwell), fleet.Rollout{}, false},
		"put the newer version back":      {fleet.IncidentRollbackFailed, fleet.Target{State: fleet.TargetRolledBack}, on("1.2.0"), fleet.Rollout{RollbackOf: "q"}, true},
		"put it back, and is brought low": {fleet.IncidentRollbackFailed, fleet.Target{State: fleet.TargetRolledBack}, on("1.1.0"), fleet.Rollout{RollbackOf: "q"}, false},
	} {
		c.target.AgentID, c.target.From, c.target.To = "a", "1.0.0", "1.1.0"
		if got := troubled(&fleet.Incident{Category: c.kind, RolloutID: "r", OpenedAt: now}, &c.rollout, &c.target, c.agent); got != c.want {
			t.Errorf("%s: in trouble is %v", name, got)
		}
	}
}
