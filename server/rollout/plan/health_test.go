package plan_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// patient is a target with its agent, some time after the offer.
type patient struct {
	target  fleet.Target
	agent   *fleet.Agent
	rollout fleet.Rollout
	now     time.Time
}

var offered = time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)

// offeredAgent returns a target that was offered 1.1.0 a minute ago and has not
// reported anything about it.
func offeredAgent() *patient {
	p := &patient{now: offered.Add(time.Minute)}
	p.rollout.Plan.Health.Wait = fleet.Duration(10 * time.Minute)
	p.target = fleet.Target{RolloutID: "r", AgentID: "a", State: fleet.TargetOffered, From: "1.0.0", To: "1.1.0", ActionID: "r-g1-1", Attempts: 1, OfferedAt: &offered}
	p.agent = &fleet.Agent{ID: "a", Active: true, PolicyRev: 1, Version: "1.0.0", EnrolledAt: offered.Add(-time.Hour)}
	p.agent.BeginUpgrade("r-g1-1", "1.1.0", offered)
	p.heard(0)
	return p
}

// heard lets the agent check in some time before now.
func (p *patient) heard(ago time.Duration) {
	at := p.now.Add(-ago)
	p.agent.Last = fleet.LastSeen{At: &at, Status: "online"}
}

func (p *patient) says(s agentapi.UpgradeState, m agentapi.UpgradeMetadata) {
	p.agent.ObserveUpgrade("", &agentapi.UpgradeDetails{ActionID: "r-g1-1", TargetVersion: "1.1.0", State: s, Metadata: m}, p.now)
}

func (p *patient) watched(phase agentapi.BeaconPhase, crashes int, ago time.Duration) {
	b := agentapi.Beacon{ActionID: "r-g1-1", From: "1.0.0", To: "1.1.0", Phase: phase, At: p.now, Agent: agentapi.BeaconAgent{Alive: true, Crashes: crashes}}
	if phase != agentapi.BeaconWatching && phase != agentapi.BeaconCommitted {
		b.Reason = &agentapi.BeaconCause{Code: "crash_loop", Text: "it ended twice"}
	}
	p.agent.ObserveBeacon(b, p.now.Add(-ago))
}

// stays lets the agent check in for some time, at one percentage of its download.
func (p *patient) stays(d time.Duration) {
	for left := d; left > 0; left -= min(left, 30*time.Second) {
		p.says(agentapi.UpgradeDownloading, agentapi.UpgradeMetadata{DownloadPercent: 50, DownloadRate: agentapi.Rate(left)})
		p.assess()
		p.later(min(left, 30*time.Second))
		p.heard(0)
	}
	p.says(agentapi.UpgradeDownloading, agentapi.UpgradeMetadata{DownloadPercent: 50})
	p.assess()
}

// reached lets the version check in now.
func (p *patient) reached() {
	p.agent.ObserveUpgrade("1.1.0", &agentapi.UpgradeDetails{ActionID: "r-g1-1", TargetVersion: "1.1.0", State: agentapi.UpgradeWatching}, p.now)
	p.heard(0)
	p.assess()
}

func (p *patient) assess() { p.target, _, _ = plan.Assess(p.target, p.agent, &p.rollout, p.now) }

func (p *patient) later(d time.Duration) { p.now = p.now.Add(d) }

func TestAssess(t *testing.T) {
	verifying := func(p *patient) { p.reached() }
	for _, c := range []struct {
		name   string
		happen []func(p *patient)
		state  fleet.TargetState
		code   fleet.ReasonCode
		says   string
	}{
		{name: "an offer nobody has answered yet", state: fleet.TargetOffered},
		{
			name: "one that is downloaded", state: fleet.TargetOffered,
			happen: []func(p *patient){func(p *patient) { p.says(agentapi.UpgradeDownloading, agentapi.UpgradeMetadata{}) }},
		},
		{
			name: "one that waits for its time is no stale one", state: fleet.TargetOffered,
			happen: []func(p *patient){func(p *patient) {
				at := p.now.Add(time.Hour)
				p.says(agentapi.UpgradeScheduled, agentapi.UpgradeMetadata{ScheduledAt: &at, RetryErrorMsg: "no route"})
				p.assess()
				p.later(50 * time.Minute)
				p.heard(50 * time.Minute)
			}},
		},
		{
			name: "one that is unpacked has begun", state: fleet.TargetUpgrading,
			happen: []func(p *patient){func(p *patient) { p.says(agentapi.UpgradeExtracting, agentapi.UpgradeMetadata{}) }},
		},
		{
			name: "one of which only the watcher tells has begun", state: fleet.TargetUpgrading,
			happen: []func(p *patient){func(p *patient) { p.watched(agentapi.BeaconWatching, 0, 0) }},
		},
		{
			name: "an agent that went away before it took the offer", state: fleet.TargetHeld, code: fleet.WhyAway,
			happen: []func(p *patient){func(p *patient) { p.later(5 * time.Minute); p.heard(6 * time.Minute) }},
		},
		{
			name: "one that became silent in its download", state: fleet.TargetFailed, code: fleet.WhyStale, says: "downloading",
			happen: []func(p *patient){func(p *patient) {
				p.says(agentapi.UpgradeDownloading, agentapi.UpgradeMetadata{})
				p.assess()
				p.later(6 * time.Minute)
			}},
		},
		{
			name: "one that loads slowly", state: fleet.TargetOffered,
			happen: []func(p *patient){func(p *patient) {
				for percent := range 60 {
					p.says(agentapi.UpgradeDownloading, agentapi.UpgradeMetadata{DownloadPercent: float64(percent)})
					p.assess()
					p.later(fleet.DefaultStall - time.Second)
					p.heard(20 * time.Second)
				}
			}},
		},
		{
			name: "one that checks in and stays at a percentage", state: fleet.TargetFailed, code: fleet.WhyNoProgress, says: "has made no progress since 2026-03-03T10:01:00Z, while it was downloading",
			happen: []func(p *patient){func(p *patient) { p.stays(fleet.DefaultStall) }},
		},
		{
			name: "one that has not stayed there for long enough", state: fleet.TargetOffered,
			happen: []func(p *patient){func(p *patient) { p.stays(fleet.DefaultStall - time.Second) }},
		},
		{
			name: "one that stays there, by the plan's own bound", state: fleet.TargetFailed, code: fleet.WhyNoProgress,
			happen: []func(p *patient){func(p *patient) {
				p.rollout.Plan.Health.StaleAfter = fleet.Duration(30 * time.Second)
				p.stays(90 * time.Second)
			}},
		},
		{
			name: "one that waits for its time, and then does nothing", state: fleet.TargetFailed, code: fleet.WhyNoProgress, says: "since 2026-03-03T11:00:00Z",
			happen: []func(p *patient){func(p *patient) {
				at := offered.Add(time.Hour)
				p.says(agentapi.UpgradeScheduled, agentapi.UpgradeMetadata{ScheduledAt: &at})
				p.assess()
				p.now = at.Add(fleet.DefaultStall)
				p.heard(0)
			}},
		},
		{
			name: "one that takes the order and does nothing", state: fleet.TargetFailed, code: fleet.WhyNoProgress, says: "while it was asked to upgrade",
			happen: []func(p *patient){func(p *patient) { p.now = offered.Add(fleet.DefaultStall); p.heard(0) }},
		},
		{
			name: "an Elastic Agent that reports no phases", state: fleet.TargetOffered,
			happen: []func(p *patient){func(p *patient) {
				p.agent.Version, p.agent.LocalMetadata = "8.11.0", json.RawMessage(`{"elastic":{"agent":{"version":"8.11.0","build":{"original":"8.11.0 (build: abc)"}}}}`)
				p.now = offered.Add(2 * time.Hour)
				p.heard(0)
			}},
		},
		{
			name: "one that stays in a phase that changes the host", state: fleet.TargetFailed, code: fleet.WhyNoProgress, says: "extracting",
			happen: []func(p *patient){func(p *patient) {
				p.says(agentapi.UpgradeExtracting, agentapi.UpgradeMetadata{})
				p.assess()
				for range 10 {
					p.later(fleet.DefaultStall)
					p.heard(0)
					p.assess()
				}
			}},
		},
		{
			name: "one that moves after all", state: fleet.TargetUpgrading,
			happen: []func(p *patient){func(p *patient) {
				p.stays(fleet.DefaultStall)
				p.later(time.Minute)
				p.says(agentapi.UpgradeDownloading, agentapi.UpgradeMetadata{DownloadPercent: 51})
			}},
		},
		{
			name: "one that reaches the version after all", state: fleet.TargetVerifying,
			happen: []func(p *patient){func(p *patient) {
				p.stays(fleet.DefaultStall)
				p.later(time.Minute)
				p.reached()
			}},
		},
		{
			name: "one that is silent, but its watcher is not", state: fleet.TargetUpgrading,
			happen: []func(p *patient){func(p *patient) {
				p.says(agentapi.UpgradeRestarting, agentapi.UpgradeMetadata{})
				p.assess()
				p.later(6 * time.Minute)
				p.watched(agentapi.BeaconWatching, 1, 0)
			}},
		},
		{
			name: "a failure that the agent reports", state: fleet.TargetFailed, code: fleet.WhyReported, says: "the disk is full",
			happen: []func(p *patient){func(p *patient) {
				p.says(agentapi.UpgradeFailed, agentapi.UpgradeMetadata{ErrorMsg: "the disk is full"})
			}},
		},
		{
			name: "one that its watcher rolled back", state: fleet.TargetRolledBack, code: fleet.WhyCompensated, says: "it ended twice",
			happen: []func(p *patient){func(p *patient) { p.watched(agentapi.BeaconRolledBack, 2, 0) }},
		},
		{
			name: "one that could not be rolled back", state: fleet.TargetFailed, code: fleet.WhyStuck, says: "it ended twice",
			happen: []func(p *patient){func(p *patient) { p.watched(agentapi.BeaconRollbackFailed, 2, 0) }},
		},
		{
			name: "a crash loop is not waited for", state: fleet.TargetFailed, code: fleet.WhyCrashLoop, says: "3",
			happen: []func(p *patient){func(p *patient) { p.watched(agentapi.BeaconWatching, 3, 0) }},
		},
		{
			name: "a crash loop that is rolled back then", state: fleet.TargetRolledBack, code: fleet.WhyCompensated,
			happen: []func(p *patient){func(p *patient) {
				p.watched(agentapi.BeaconWatching, 3, 0)
				p.assess()
				p.watched(agentapi.BeaconRolledBack, 3, 0)
			}},
		},
		{
			name: "an agent that is unenrolled", state: fleet.TargetCancelled, code: fleet.WhyGone,
			happen: []func(p *patient){func(p *patient) { p.agent.Active = false }},
		},
		{
			name: "an agent that is uninstalled on its host", state: fleet.TargetCancelled, code: fleet.WhyGone, says: "uninstalled on its host",
			happen: []func(p *patient){func(p *patient) { p.agent.AuditUnenrolledReason = "uninstall" }},
		},
		{
			name: "an agent that is deleted", state: fleet.TargetCancelled, code: fleet.WhyGone,
			happen: []func(p *patient){func(p *patient) { p.agent = nil }},
		},
		{
			name: "an agent that another action took over", state: fleet.TargetFailed, code: fleet.WhyLostTarget, says: "1.2.0",
			happen: []func(p *patient){func(p *patient) { p.agent.BeginUpgrade("other", "1.2.0", p.now) }},
		},
		{
			name: "one whose upgrade an operator called off", state: fleet.TargetWithdrawn, code: fleet.WhyOperator,
			happen: []func(p *patient){func(p *patient) { p.agent.CancelUpgrade("r-g1-1", p.now) }},
		},
		{
			name: "one that its rollout called off when it stopped", state: fleet.TargetWithdrawn, code: fleet.WhyThreshold, says: "2 have failed",
			happen: []func(p *patient){func(p *patient) {
				p.rollout.State, p.rollout.Stop = fleet.RolloutPaused, &fleet.Stop{Kind: fleet.StopThreshold, Text: "2 have failed"}
				p.agent.CancelUpgrade("r-g1-1", p.now)
			}},
		},
		{
			name: "one that an operator called off during a pause, which takes nothing back", state: fleet.TargetWithdrawn, code: fleet.WhyOperator, says: "called off",
			happen: []func(p *patient){func(p *patient) {
				p.rollout.State, p.rollout.Stop = fleet.RolloutPaused, &fleet.Stop{Kind: fleet.StopOperator, Text: "lunch"}
				p.agent.CancelUpgrade("r-g1-1", p.now)
			}},
		},
		{
			name: "one that its rollout called off to undo everything", state: fleet.TargetWithdrawn, code: fleet.WhyUndone, says: "one is missing",
			happen: []func(p *patient){func(p *patient) {
				p.rollout.Lockstep = &fleet.Lockstep{Undo: &fleet.Undo{Why: "one is missing"}}
				p.agent.CancelUpgrade("r-g1-1", p.now)
			}},
		},

		{name: "the version runs", state: fleet.TargetVerifying, happen: []func(p *patient){verifying}},
		{
			name: "and was seen for the whole wait", state: fleet.TargetSucceeded, code: fleet.WhyHealthy,
			happen: []func(p *patient){verifying, func(p *patient) {
				p.later(10 * time.Minute)
				p.heard(10 * time.Second)
				p.watched(agentapi.BeaconWatching, 0, 10*time.Second)
			}},
		},
		{
			name: "degraded is tolerated", state: fleet.TargetSucceeded, code: fleet.WhyHealthy,
			happen: []func(p *patient){verifying, func(p *patient) {
				p.later(10 * time.Minute)
				p.heard(10 * time.Second)
				p.agent.Last.Status = "degraded"
				p.agent.Components = json.RawMessage(`[{"id":"log","status":"DEGRADED"}]`)
			}},
		},
		{
			name: "a failed component before the wait is over is not yet a failure", state: fleet.TargetVerifying,
			happen: []func(p *patient){verifying, func(p *patient) {
				p.later(9 * time.Minute)
				p.heard(10 * time.Second)
				p.agent.Components = json.RawMessage(`[{"id":"log","status":"FAILED"}]`)
			}},
		},
		{
			name: "and is one after it", state: fleet.TargetFailed, code: fleet.WhyUnhealthy, says: "component log failed: no disk",
			happen: []func(p *patient){verifying, func(p *patient) {
				p.later(10 * time.Minute)
				p.heard(10 * time.Second)
				p.agent.Components = json.RawMessage(`[{"id":"log","status":"FAILED","message":"no disk"}]`)
			}},
		},
		{
			name: "an agent that says error", state: fleet.TargetFailed, code: fleet.WhyUnhealthy, says: "no disk",
			happen: []func(p *patient){verifying, func(p *patient) {
				p.later(10 * time.Minute)
				p.heard(10 * time.Second)
				p.agent.Last.Status, p.agent.Last.Message = "error", "no disk"
			}},
		},
		{
			name: "silent after the upgrade", state: fleet.TargetFailed, code: fleet.WhySilent,
			happen: []func(p *patient){verifying, func(p *patient) { p.later(2 * time.Minute) }},
		},
		{
			name: "silent for no longer than it usually is", state: fleet.TargetVerifying,
			happen: []func(p *patient){verifying, func(p *patient) {
				p.agent.UsualGap = fleet.Duration(time.Hour)
				p.later(30 * time.Minute)
			}},
		},
		{
			name: "and then longer", state: fleet.TargetFailed, code: fleet.WhySilent,
			happen: []func(p *patient){verifying, func(p *patient) {
				p.agent.UsualGap = fleet.Duration(time.Hour)
				p.later(time.Hour)
			}},
		},
		{
			name: "still starting at the end of the wait gets as long again", state: fleet.TargetVerifying,
			happen: []func(p *patient){verifying, func(p *patient) {
				p.later(19 * time.Minute)
				p.heard(10 * time.Second)
				p.agent.Last.Status = "starting"
			}},
		},
		{
			name: "and no more", state: fleet.TargetFailed, code: fleet.WhyStalled, says: "still starting",
			happen: []func(p *patient){verifying, func(p *patient) {
				p.later(20 * time.Minute)
				p.heard(10 * time.Second)
				p.agent.Last.Status = "starting"
			}},
		},
		{
			name: "still starting after a short wait, within the time that hosts watch a version", state: fleet.TargetVerifying,
			happen: []func(p *patient){verifying, func(p *patient) {
				p.rollout.Plan.Health.Wait = fleet.Duration(time.Second)
				p.later(fleet.DefaultWatch)
				p.heard(10 * time.Second)
				p.agent.Last.Status = "starting"
			}},
		},
		{
			name: "an agent without its policy is not healthy", state: fleet.TargetFailed, code: fleet.WhyStalled, says: "policy",
			happen: []func(p *patient){verifying, func(p *patient) {
				p.later(20 * time.Minute)
				p.heard(10 * time.Second)
				p.agent.PolicyRev = 0
			}},
		},
		{
			name: "a watcher that became silent has not agreed", state: fleet.TargetFailed, code: fleet.WhyStalled, says: "watcher",
			happen: []func(p *patient){verifying, func(p *patient) {
				p.watched(agentapi.BeaconWatching, 0, 0)
				p.later(20 * time.Minute)
				p.heard(10 * time.Second)
			}},
		},
		{
			name: "without validation reaching it is enough", state: fleet.TargetSucceeded, code: fleet.WhyUnchecked,
			happen: []func(p *patient){func(p *patient) { p.rollout.Plan.Strategy.SkipValidation = true }, verifying},
		},
		{
			name: "one that is rolled back after it succeeded has not", state: fleet.TargetRolledBack, code: fleet.WhyCompensated,
			happen: []func(p *patient){verifying, func(p *patient) {
				p.later(10 * time.Minute)
				p.heard(10 * time.Second)
				p.assess()
				p.watched(agentapi.BeaconRolledBack, 2, 0)
			}},
		},
		{
			name: "one that is being rolled back", state: fleet.TargetRolledBack, code: fleet.WhyCompensated, says: "it ended twice",
			happen: []func(p *patient){func(p *patient) { p.watched(agentapi.BeaconRollingBack, 2, 0) }},
		},
		{
			name: "and that cannot be, then", state: fleet.TargetFailed, code: fleet.WhyStuck, says: "going back to 1.0.0 failed",
			happen: []func(p *patient){func(p *patient) {
				p.watched(agentapi.BeaconRollingBack, 2, 0)
				p.assess()
				p.later(time.Minute)
				p.watched(agentapi.BeaconRollbackFailed, 2, 0)
			}},
		},
		{
			name: "the old version runs again, and nobody says why", state: fleet.TargetRolledBack, code: fleet.WhyCompensated, says: "runs 1.0.0 again",
			happen: []func(p *patient){verifying, func(p *patient) { p.agent.ObserveUpgrade("1.0.0", nil, p.now) }},
		},
		{
			name: "withdrawn, and it went on", state: fleet.TargetVerifying,
			happen: []func(p *patient){func(p *patient) {
				p.target.State, p.target.Code = fleet.TargetWithdrawn, fleet.WhyThreshold
				p.agent.CancelUpgrade("r-g1-1", p.now)
			}, verifying},
		},
		{
			name: "rolled back, and skipped by an operator then", state: fleet.TargetSkipped, code: fleet.WhyOperator,
			happen: []func(p *patient){verifying, func(p *patient) {
				p.watched(agentapi.BeaconRolledBack, 2, 0)
				p.assess()
				plan.ChangeState(&p.target, fleet.TargetSkipped, fleet.WhyOperator, "", p.now)
			}},
		},
		{
			name: "skipped by an operator, and rolled back then", state: fleet.TargetRolledBack, code: fleet.WhyCompensated, says: "it ended twice",
			happen: []func(p *patient){func(p *patient) {
				plan.ChangeState(&p.target, fleet.TargetSkipped, fleet.WhyOperator, "", p.now)
				p.agent.CancelUpgrade("r-g1-1", p.now)
			}, verifying, func(p *patient) { p.watched(agentapi.BeaconRolledBack, 2, 0) }},
		},
		{
			name: "stale, and it comes back with the version", state: fleet.TargetVerifying,
			happen: []func(p *patient){func(p *patient) {
				p.says(agentapi.UpgradeRestarting, agentapi.UpgradeMetadata{})
				p.assess()
				p.later(6 * time.Minute)
				p.assess()
			}, verifying},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := offeredAgent()
			for _, f := range c.happen {
				f(p)
			}
			p.assess()
			got := p.target
			if got.State != c.state || got.Code != c.code || !strings.Contains(got.Error, c.says) {
				t.Errorf("it is %s (%s): %s; want %s (%s): %s", got.State, got.Code, got.Error, c.state, c.code, c.says)
			}
			if (got.EndedAt != nil) != got.State.Ended() {
				t.Errorf("it is %s, and ended at %v", got.State, got.EndedAt)
			}
			if again, changed, _ := plan.Assess(got, p.agent, &p.rollout, p.now); changed {
				t.Errorf("asked again it is %+v", again)
			}
			if n := len(got.History); got.State != fleet.TargetOffered && (n == 0 || got.History[n-1].State != got.State) {
				t.Errorf("its history is %+v", got.History)
			}
		})
	}
}

func TestAssessProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := offeredAgent()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			p.later(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				p.says(rapid.SampledFrom([]agentapi.UpgradeState{
					agentapi.UpgradeDownloading, agentapi.UpgradeExtracting, agentapi.UpgradeRestarting, agentapi.UpgradeWatching, agentapi.UpgradeFailed, agentapi.UpgradeRollback,
				}).Draw(t, "phase"), agentapi.UpgradeMetadata{ErrorMsg: "x"})
			case 1:
				p.watched(rapid.SampledFrom([]agentapi.BeaconPhase{
					agentapi.BeaconWatching, agentapi.BeaconRollingBack, agentapi.BeaconRollbackFailed, agentapi.BeaconRolledBack, agentapi.BeaconCommitted,
				}).Draw(t, "phase"), rapid.IntRange(0, 3).Draw(t, "crashes"), 0)
			case 2:
				p.agent.ObserveUpgrade(rapid.SampledFrom([]string{"1.0.0", "1.1.0"}).Draw(t, "version"), p.agent.UpgradeDetails, p.now)
			case 3:
				p.agent.CancelUpgrade("r-g1-1", p.now)
			default:
				p.heard(0)
			}
			before := p.target
			after, changed, _ := plan.Assess(before, p.agent, &p.rollout, p.now)
			if again, _, _ := plan.Assess(before, p.agent, &p.rollout, p.now); again.State != after.State || again.Code != after.Code {
				t.Fatalf("the same asked twice is %s and %s", after.State, again.State)
			}
			if _, more, _ := plan.Assess(after, p.agent, &p.rollout, p.now); more {
				t.Fatalf("%s is not settled in one step", after.State)
			}
			if changed == false && (after.State != before.State || after.Code != before.Code || len(after.History) != len(before.History)) {
				t.Fatalf("%s became %s, and was not said to have changed", before.State, after.State)
			}
			if len(after.History) > fleet.MaxTargetHistory || (after.EndedAt != nil) != after.State.Ended() {
				t.Fatalf("%s ended at %v after %d changes", after.State, after.EndedAt, len(after.History))
			}
			if after.State == fleet.TargetSucceeded && before.State != after.State && p.agent.Version != after.To {
				t.Fatalf("it succeeded and runs %s", p.agent.Version)
			}
			p.target = after
		}
	})
}
