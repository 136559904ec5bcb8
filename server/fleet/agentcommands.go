package fleet

import (
	"strings"
	"time"
)

// Blocks are what keeps an agent from following orders besides its own document.
type Blocks struct {
	// Rollout is why an active rollout does not let go of it, as a sentence; empty: none has it.
	Rollout string
	// Managed means that its policy is managed.
	Managed bool
}

// Commands returns which commands are possible for the agent, and why the others are not, by the
// checks that refuse them. Whether it can be upgraded to a certain version a preview says.
func (a *Agent) Commands(b Blocks, now time.Time) []Command {
	to, back := a.CheckRollback(now)
	if back == nil {
		back = a.CheckForward(to.Version)
	}
	list := []Command{
		a.command("upgrade", firstRefusal(a.checkAble(), a.checkIdle(), b.managed(), b.locked())),
		a.command("rollback", firstRefusal(back, b.managed(), b.locked())),
		a.command("stage", firstRefusal(a.checkAble(), a.canStage(), b.managed())),
		a.command("diagnostics", firstRefusal(a.CheckEnrolled(), a.CheckDiagnostics())),
		a.command("reassign", firstRefusal(a.CheckEnrolled(), b.managed())),
		a.command("tag", firstRefusal(b.managed())),
		a.command("unenroll", firstRefusal(a.CheckRevoke(), b.managed(), b.locked())),
	}
	list[0].Primary = list[0].Allowed
	for i := range list {
		list[i].Danger = list[i].Name == "rollback" || list[i].Name == "unenroll"
	}
	return list
}

// ComponentCommands returns which commands are possible for a component of the agent, and why the
// others are not, by the checks that refuse them. Whether it can be upgraded to a certain version a
// preview says.
func (a *Agent) ComponentCommands(name string, b Blocks) []Command {
	able := firstRefusal(a.checkComponentAble(name), b.locked())
	return []Command{
		a.componentCommand("upgrade", name, able),
		a.componentCommand("rollback", name, firstRefusal(able, a.checkComponentBack(name))),
	}
}

// componentCommand returns a command with the verdict of a check, whose sentence is about the component.
func (a *Agent) componentCommand(command, name string, refused error) Command {
	if refused == nil {
		return Command{Name: command, Allowed: true}
	}
	return Command{Name: command, Reason: Sentence(strings.NewReplacer(
		"component "+name+" of agent "+a.ID, "it", "agent "+a.ID, "its agent",
	).Replace(refused.Error()))}
}

func (b Blocks) managed() error {
	if b.Managed {
		return Errorf(Invalid, "it has a managed policy (is_managed): only who manages the policy changes its agents").Because(CauseManaged)
	}
	return nil
}

func (b Blocks) locked() error {
	if b.Rollout != "" {
		return Errorf(Conflict, "%s", b.Rollout).Because(CauseRollout)
	}
	return nil
}

func firstRefusal(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *Agent) command(name string, refused error) Command {
	if refused == nil {
		return Command{Name: name, Allowed: true}
	}
	return Command{Name: name, Reason: Sentence(strings.ReplaceAll(strings.ReplaceAll(refused.Error(), "agent "+a.ID, "it"), "Agent "+a.ID, "It"))}
}

// checkAble returns why the agent can be upgraded to no version, or nil.
func (a *Agent) checkAble() error {
	switch {
	case a.checkStays() != nil:
		return a.checkStays()
	case a.checkShared() != nil:
		return a.checkShared()
	case !a.Host().Elastic.Agent.Upgradeable:
		return Errorf(Invalid, "agent %s cannot upgrade itself: it may run in a container, or was not installed", a.ID).Because(CauseNotUpgradeable)
	}
	return nil
}

// checkIdle returns which upgrade is under way, or nil.
func (a *Agent) checkIdle() error {
	switch {
	case a.Upgrading():
		return Errorf(Invalid, "agent %s is already being upgraded to %s", a.ID, a.UpgradeTo).unlessForced(CauseUpgrading)
	case a.UpgradeDetails != nil && !a.UpgradeDetails.State.Ended():
		return Errorf(Invalid, "agent %s is still being watched after its upgrade to %s", a.ID, a.UpgradeDetails.TargetVersion).unlessForced(CauseUpgrading)
	}
	return nil
}

// CheckDiagnostics returns an error if the agent cannot send its diagnostics.
func (a *Agent) CheckDiagnostics() error {
	if err := a.checkShared(); err != nil {
		return err
	}
	if m := a.Host(); !m.Maker.SendsDiagnostics(m.Elastic.Agent.Version) {
		return Errorf(Invalid, "Agent %s does not support request diagnostics action.", a.ID)
	}
	return nil
}
