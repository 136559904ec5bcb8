package primitive

import (
	"context"
	"fmt"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// awaited are the phases of a change in lockstep that wait for the server, with the phases that
// are complete by then. The first may begin at once.
var awaited = map[agentapi.LockstepPhase]agentapi.LockstepPhase{
	agentapi.LockstepStop: agentapi.LockstepDrain, agentapi.LockstepBackup: agentapi.LockstepStop,
	agentapi.LockstepSwitch: agentapi.LockstepBackup, agentapi.LockstepStart: agentapi.LockstepSwitch,
}

// Await returns the name of the step that waits until a phase may begin.
func Await(phase agentapi.LockstepPhase) string { return "await_" + string(phase) }

// inLockstep adds what a change in lockstep does besides the actions.
func (c *Change) inLockstep(actions []steps.Step) (out []steps.Step) {
	if !c.lockstep() {
		return actions
	}
	before := map[string][]steps.Step{
		StopNode:    {c.await(agentapi.LockstepStop)},
		BackupData:  {c.verifyAgain(), c.await(agentapi.LockstepBackup)},
		MigrateDown: {c.await(agentapi.LockstepSwitch)},
		StartNode:   {c.await(agentapi.LockstepStart)},
	}
	for _, action := range actions {
		out = append(append(out, before[action.Name]...), action)
	}
	return out
}

// await waits until a phase may begin. What was done is recorded as reached before, since the
// server lets all go on by it.
func (c *Change) await(phase agentapi.LockstepPhase) steps.Step {
	return steps.Step{
		Name: Await(phase),
		Do: func(ctx context.Context) error {
			l := c.Journal.Lockstep
			if done := awaited[phase]; !l.Reached.Reaches(done) {
				l.Reached = done
				if err := c.Save(); err != nil {
					return err
				}
			}
			return c.Await(ctx, phase)
		},
	}
}

func (c *Change) lockstep() bool { return c.Journal.Lockstep != nil }

// verifyAgain verifies the version once more, now that all components are stopped: the last time at
// which all of them can go back.
func (c *Change) verifyAgain() steps.Step {
	return steps.Step{Name: VerifyAgain, Timeout: verifyTimeout, Do: c.doVerify}
}

// checkLockstep returns an error if a component cannot be changed in lockstep, since a boot would
// start it while it waits for others, or whose start cannot be withheld at boot.
func (c *Change) checkLockstep(to *runtime.Release) error {
	if c.Journal.Desired.WithheldAtBoot && !StaysStopped(&to.Component) {
		return fmt.Errorf("%s %s cannot run in a policy that says lockstep: it uses the host's own unit, which a boot would start whatever version is in force; let its package bring the unit as settings.unit_file", to.Name, to.FullVersion())
	}
	if !c.lockstep() {
		return nil
	}
	from, err := c.from()
	if err != nil {
		return err
	}
	for _, r := range []*runtime.Release{from, to} {
		if r != nil && !StaysStopped(&r.Component) {
			return fmt.Errorf("%s %s cannot be upgraded in lockstep: it uses the host's own unit, which a boot would start in the middle; let its package bring the unit as settings.unit_file", r.Name, r.FullVersion())
		}
	}
	return nil
}

// StaysStopped reports whether a version that the agent has stopped is started by nobody else: its
// runtime has to know it, and a unit that is the host's own it does not.
func StaysStopped(c *manifest.Component) bool {
	own, _ := c.Settings["unit_file"].(string)
	return c.Runtime != "systemd" || own != ""
}
