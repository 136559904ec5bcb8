package incident

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
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

		"deleted":     {fleet.IncidentStalled, world{target: target(fleet.TargetFailed)}, "deleted"},
		"unenrolled":  {fleet.IncidentUpgradeFailed, world{agent: host(func(a *fleet.Agent) { stuck(a); a.Active = false })}, "unenrolled"},
		"uninstalled": {fleet.IncidentRollbackFailed, world{agent: host(func(a *fleet.Agent) { a.AuditUnenrolledReason = "uninstall" }), target: target(fleet.TargetFailed)}, "uninstalled"},
	} {
		i := fleet.Incident{Category: c.kind, OpenedAt: opened, AgentID: "a"}
		if c.kind == fleet.IncidentRolloutStopped || c.kind == fleet.IncidentVersionRolledBack {
			i.AgentID = ""
		}
		if got := gone(&i, c.world); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s (%s): gone because %q, want %q", name, c.kind, got, c.says)
		}
	}
	// One that stands for many hosts has no host that could be back.
	if got := gone(&fleet.Incident{Category: fleet.IncidentStalled}, world{}); got != "" {
		t.Errorf("many hosts are gone because %q", got)
	}
}
