package plan_test

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// componentPatient is a target whose component web was offered 2.0.0 a minute ago, instead of
// 1.0.0, with its agent.
type componentPatient struct {
	*patient
	fail     func(error)
	restarts int
	status   string
}

func offeredComponent(fail func(error)) *componentPatient {
	p := &componentPatient{patient: &patient{now: offered.Add(time.Minute)}, fail: fail, status: "HEALTHY"}
	p.rollout.Plan.Component, p.rollout.Plan.Health.Wait = "web", fleet.Duration(10*time.Minute)
	p.target = fleet.Target{RolloutID: "r", AgentID: "a", State: fleet.TargetOffered, From: "1.0.0", To: "2.0.0", ActionID: "r-g1-1", Attempts: 1, OfferedAt: &offered}
	p.agent = &fleet.Agent{ID: "a", Active: true, PolicyRev: 1, Version: "1.0.0", EnrolledAt: offered.Add(-time.Hour)}
	p.reports("1.0.0", nil)
	p.agent.BeginOf("web", "r-g1-1", "2.0.0", offered)
	return p
}

// reports is a check-in with this version of web.
func (p *componentPatient) reports(version string, d *agentapi.UpgradeDetails) {
	c := agentapi.Component{ID: "component-web", Status: p.status, Message: "it says", ComponentReport: agentapi.ComponentReport{Name: "web", Version: version, Restarts: p.restarts, UpgradeDetails: d}}
	raw, err := json.Marshal([]agentapi.Component{c})
	if err != nil {
		p.fail(err)
	}
	was := p.agent.Components
	p.agent.Components = raw
	p.agent.ObserveComponents(was, p.now)
	p.heard(0)
}

func (p *componentPatient) phase(s agentapi.UpgradeState, m agentapi.UpgradeMetadata) {
	p.reports("1.0.0", &agentapi.UpgradeDetails{ActionID: "r-g1-1", TargetVersion: "2.0.0", State: s, Metadata: m})
	p.assess()
}

func (p *componentPatient) is(s agentapi.UpgradeState) { p.phase(s, agentapi.UpgradeMetadata{}) }

// failed is the agent's report of a failure in a phase.
func (p *componentPatient) failed(in agentapi.UpgradeState, text, code string) {
	p.phase(agentapi.UpgradeFailed, agentapi.UpgradeMetadata{FailedState: in, ErrorMsg: text, ReasonCode: code})
}

// accepted is the report that the host has observed the version and keeps it.
func (p *componentPatient) accepted() {
	p.is(agentapi.UpgradeWatching)
	p.later(time.Minute)
	p.reports("2.0.0", nil)
	p.assess()
}

// rest lets the agent check in until the wait is over.
func (p *componentPatient) rest(d time.Duration) {
	for end := p.now.Add(d); p.now.Before(end); p.assess() {
		p.later(30 * time.Second)
		p.heard(0)
	}
}

func TestAssessOfComponents(t *testing.T) {
	for _, c := range []struct {
		name   string
		happen func(p *componentPatient)
		state  fleet.TargetState
		code   fleet.ReasonCode
		says   string
	}{
		{name: "nobody has answered yet", happen: func(*componentPatient) {}, state: fleet.TargetOffered},
		{name: "its package is loaded", happen: func(p *componentPatient) { p.is(agentapi.UpgradeDownloading) }, state: fleet.TargetOffered},
		{name: "it is stopped", happen: func(p *componentPatient) { p.is(agentapi.UpgradeReplacing) }, state: fleet.TargetUpgrading},
		{name: "it is observed, and the old version still counts as installed", happen: func(p *componentPatient) { p.is(agentapi.UpgradeWatching) }, state: fleet.TargetVerifying},
		{
			name: "its host has accepted it, and the plan's wait is not over", state: fleet.TargetVerifying,
			happen: func(p *componentPatient) { p.accepted() },
		},
		{
			name: "it was healthy for the wait", state: fleet.TargetSucceeded, code: fleet.WhyHealthy,
			happen: func(p *componentPatient) { p.accepted(); p.rest(11 * time.Minute) },
		},
		{
			name: "degraded suffices", state: fleet.TargetSucceeded, code: fleet.WhyHealthy,
			happen: func(p *componentPatient) {
				p.accepted()
				p.status = "DEGRADED"
				p.reports("2.0.0", nil)
				p.rest(11 * time.Minute)
			},
		},
		{
			name: "it failed after its host had accepted it", state: fleet.TargetFailed, code: fleet.WhyUnhealthy, says: "component web failed: it says",
			happen: func(p *componentPatient) {
				p.accepted()
				p.status = "FAILED"
				p.reports("2.0.0", nil)
				p.rest(11 * time.Minute)
			},
		},
		{
			name: "it recovered within the wait", state: fleet.TargetSucceeded, code: fleet.WhyHealthy,
			happen: func(p *componentPatient) {
				p.accepted()
				p.status = "FAILED"
				p.reports("2.0.0", nil)
				p.rest(5 * time.Minute)
				p.status = "HEALTHY"
				p.reports("2.0.0", nil)
				p.rest(6 * time.Minute)
			},
		},
		{
			name: "it restarts again and again", state: fleet.TargetFailed, code: fleet.WhyCrashLoop, says: "restarted 3 times",
			happen: func(p *componentPatient) {
				p.accepted()
				p.restarts = 3
				p.reports("2.0.0", nil)
				p.assess()
			},
		},
		{
			name: "another component of the host has failed", state: fleet.TargetSucceeded, code: fleet.WhyHealthy,
			happen: func(p *componentPatient) {
				p.accepted()
				p.agent.Components = json.RawMessage(strings.Replace(string(p.agent.Components), "[", `[{"id":"component-db","name":"db","status":"FAILED"},`, 1))
				p.rest(11 * time.Minute)
			},
		},
		{
			name: "it still starts after the wait", state: fleet.TargetFailed, code: fleet.WhyStalled, says: "web is starting",
			happen: func(p *componentPatient) {
				p.accepted()
				p.status = "STARTING"
				p.reports("2.0.0", nil)
				p.rest(21 * time.Minute)
			},
		},
		{
			name: "its host observes it for longer than it may", state: fleet.TargetFailed, code: fleet.WhyStalled, says: "still observes",
			happen: func(p *componentPatient) { p.is(agentapi.UpgradeWatching); p.rest(21 * time.Minute) },
		},
		{
			name: "the host went away after it", state: fleet.TargetFailed, code: fleet.WhySilent,
			happen: func(p *componentPatient) { p.accepted(); p.later(5 * time.Minute); p.assess() },
		},
		{
			name: "the package could not be loaded", state: fleet.TargetFailed, code: fleet.WhyReported, says: "no space",
			happen: func(p *componentPatient) { p.failed(agentapi.UpgradeDownloading, "no space", "") },
		},
		{
			name: "its host puts the old one back", state: fleet.TargetVerifying,
			happen: func(p *componentPatient) { p.is(agentapi.UpgradeWatching); p.is(agentapi.UpgradeRollback) },
		},
		{
			name: "its host has put the old one back", state: fleet.TargetRolledBack, code: fleet.WhyCompensated, says: "check page",
			happen: func(p *componentPatient) {
				p.is(agentapi.UpgradeWatching)
				p.is(agentapi.UpgradeRollback)
				p.failed(agentapi.UpgradeWatching, "check page: 500", "")
			},
		},
		{
			name: "it was silent while it put the old one back", state: fleet.TargetFailed, code: fleet.WhyStale,
			happen: func(p *componentPatient) {
				p.is(agentapi.UpgradeWatching)
				p.is(agentapi.UpgradeRollback)
				p.later(6 * time.Minute)
				p.assess()
			},
		},
		{
			name: "nothing could be put back", state: fleet.TargetFailed, code: fleet.WhyStuck, says: "the disk is gone",
			happen: func(p *componentPatient) {
				p.failed(agentapi.UpgradeReplacing, "FAILED_ROLLBACK: the disk is gone", agentapi.FailedRollback)
			},
		},
		{
			name: "the acknowledgement says first that nothing could be put back", state: fleet.TargetFailed, code: fleet.WhyStuck,
			happen: func(p *componentPatient) {
				p.is(agentapi.UpgradeReplacing)
				p.agent.ObserveAck("r-g1-1", "FAILED_ROLLBACK: the disk is gone", false, p.now)
				p.assess()
			},
		},
		{
			name: "the acknowledgement came first, and the report says more", state: fleet.TargetRolledBack, code: fleet.WhyCompensated,
			happen: func(p *componentPatient) {
				p.is(agentapi.UpgradeWatching)
				p.agent.ObserveAck("r-g1-1", "check page: 500", false, p.now)
				p.assess()
				p.failed(agentapi.UpgradeWatching, "check page: 500", "")
			},
		},
		{
			name: "somebody installed another version", state: fleet.TargetFailed, code: fleet.WhyLostTarget, says: "3.0.0",
			happen: func(p *componentPatient) { p.accepted(); p.reports("3.0.0", nil); p.assess() },
		},
		{
			name: "another action took it over", state: fleet.TargetFailed, code: fleet.WhyLostTarget,
			happen: func(p *componentPatient) {
				p.agent.BeginOf("web", "other", "3.0.0", p.now)
				p.assess()
			},
		},
		{
			name: "an upgrade of the agent itself is another thing", state: fleet.TargetOffered,
			happen: func(p *componentPatient) { p.agent.BeginUpgrade("other", "9.0.0", p.now); p.assess() },
		},
		{
			name: "only the configuration changes: it has the version from the start", state: fleet.TargetOffered,
			happen: func(p *componentPatient) { p.config(); p.assess() },
		},
		{
			name: "the configuration has changed", state: fleet.TargetSucceeded, code: fleet.WhyHealthy,
			happen: func(p *componentPatient) {
				p.config()
				p.reports("2.0.0", &agentapi.UpgradeDetails{ActionID: "r-g1-1", TargetVersion: "2.0.0", State: agentapi.UpgradeWatching})
				p.assess()
				p.later(time.Minute)
				p.reports("2.0.0", nil)
				p.rest(11 * time.Minute)
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := offeredComponent(func(err error) { t.Fatal(err) })
			c.happen(p)
			if got := p.target; got.State != c.state || got.Code != c.code || !strings.Contains(got.Error, c.says) {
				t.Errorf("it is %s (%s) %q, want %s (%s) …%s…", got.State, got.Code, got.Error, c.state, c.code, c.says)
			}
		})
	}
}

// A host observes a new version for a time of its own, which the plan's wait may be shorter than.
// A target whose host says that it still observes the version is not failed for that, and one
// whose host never ends the observation does not stay open.
func TestAHostMayObserveForLongerThanThePlanWaits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		wait := time.Duration(rapid.IntRange(1, 1200).Draw(rt, "wait")) * time.Second
		observes := time.Duration(rapid.IntRange(0, 3600).Draw(rt, "observes")) * time.Second // 0: its policy did not list the component
		host := cmp.Or(observes, agentapi.DefaultComponentWait)
		p := offeredComponent(func(err error) { rt.Fatal(err) })
		p.rollout.Plan.Health.Wait, p.target.Observes = fleet.Duration(wait), fleet.Duration(observes)
		if rapid.Bool().Draw(rt, "down meanwhile") {
			p.status = "FAILED"
		}
		p.is(agentapi.UpgradeWatching)
		takes := host + time.Duration(rapid.IntRange(0, int(agentapi.ComponentWaitSlack/time.Second)-30).Draw(rt, "slack"))*time.Second
		p.rest(takes)
		if p.target.State != fleet.TargetVerifying {
			rt.Fatalf("after %s of the host's observation it is %s (%s) %s", takes, p.target.State, p.target.Code, p.target.Error)
		}
		if rapid.Bool().Draw(rt, "ends") {
			p.status = "HEALTHY"
			p.reports("2.0.0", nil)
			p.rest(wait)
			if p.target.State != fleet.TargetSucceeded {
				rt.Errorf("accepted after %s it is %s (%s) %s", takes, p.target.State, p.target.Code, p.target.Error)
			}
			return
		}
		p.rest(2*wait + agentapi.ComponentWaitSlack + time.Minute)
		if p.target.State != fleet.TargetFailed || p.target.Code != fleet.WhyStalled {
			rt.Errorf("a host that observes for ever has a target that is %s (%s)", p.target.State, p.target.Code)
		}
	})
}

// config makes it an offer of another configuration for the version that is installed.
func (p *componentPatient) config() {
	p.target.From = "2.0.0"
	p.agent.ComponentUpgrades = nil
	p.reports("2.0.0", nil)
	p.agent.BeginOf("web", "r-g1-1", "2.0.0", p.now)
}

// Whatever an agent reports, and in whatever order: assessing again changes nothing, a target
// succeeds only with the version installed, and one that could not be put back has failed.
func TestAssessOfComponentsIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := offeredComponent(func(err error) { t.Fatal(err) })
		states := []agentapi.UpgradeState{
			agentapi.UpgradeRequested, agentapi.UpgradeScheduled, agentapi.UpgradeDownloading, agentapi.UpgradeReplacing, agentapi.UpgradeRestarting,
			agentapi.UpgradeWatching, agentapi.UpgradeRollback, agentapi.UpgradeFailed,
		}
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			p.status = rapid.SampledFrom([]string{"HEALTHY", "DEGRADED", "FAILED", "STARTING", ""}).Draw(t, "status")
			p.restarts = rapid.IntRange(0, 4).Draw(t, "restarts")
			version := rapid.SampledFrom([]string{"", "1.0.0", "2.0.0", "3.0.0"}).Draw(t, "version")
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				p.reports(version, nil)
			case 1:
				p.agent.ObserveAck("r-g1-1", rapid.SampledFrom([]string{"", "no", "FAILED_ROLLBACK: no"}).Draw(t, "ack"), false, p.now)
			default:
				d := &agentapi.UpgradeDetails{ActionID: rapid.SampledFrom([]string{"r-g1-1", "other"}).Draw(t, "action"), TargetVersion: "2.0.0", State: rapid.SampledFrom(states).Draw(t, "state")}
				if d.State == agentapi.UpgradeFailed {
					d.Metadata.FailedState = rapid.SampledFrom(states[:6]).Draw(t, "failed state")
					d.Metadata.ReasonCode = rapid.SampledFrom([]string{"", agentapi.FailedRollback}).Draw(t, "reason")
				}
				p.reports(version, d)
			}
			p.later(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
			was := p.target
			p.assess()
			got := p.target
			if again, changed, _ := plan.Assess(got, p.agent, &p.rollout, p.now); changed {
				t.Fatalf("%s (%s) becomes %s (%s) when nothing has happened", got.State, got.Code, again.State, again.Code)
			}
			s := p.agent.Of("web")
			if got.State == fleet.TargetSucceeded && was.State != got.State && (s.Version != "2.0.0" || s.Upgrading()) {
				t.Fatalf("it succeeded with %q, %+v", s.Version, s.UpgradeDetails)
			}
			if s.Stuck() && got.State.InFlight() && s.UpgradeActionID == got.ActionID {
				t.Fatalf("it could not be put back, and is %s", got.State)
			}
		}
	})
}

// What the host says of its phase goes to the target, also while the state of its upgrade stays.
func TestTargetHasThePhaseOfItsHost(t *testing.T) {
	p := offeredComponent(func(err error) { t.Fatal(err) })
	for _, c := range []struct {
		state       agentapi.UpgradeState
		phase, want string
	}{
		{agentapi.UpgradeDownloading, agentapi.PhasePreparing, "preparing"},
		{agentapi.UpgradeReplacing, agentapi.PhaseStopped, "stopped"},
		{agentapi.UpgradeReplacing, agentapi.PhaseMutating, "mutating"},
		{agentapi.UpgradeRestarting, agentapi.PhaseStarting, "starting"},
		{agentapi.UpgradeWatching, agentapi.PhaseVerifying, "verifying"},
	} {
		p.phase(c.state, agentapi.UpgradeMetadata{Phase: c.phase})
		if got := fleet.TargetPhase(&p.target); got != c.want {
			t.Errorf("the host reports %s and %s, and the target is in phase %q (%+v)", c.state, c.phase, got, p.target)
		}
	}
}
