package group

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
)

// The commands that operators give to groups, as the API names them.
const (
	commandStart    = "start"
	commandDelete   = "delete"
	commandPause    = "pause"
	commandPauseNow = "pause_now"
	commandResume   = "resume"
	commandSkip     = "skip" // a member, see checkMember
	commandRollback = "rollback"
	commandCancel   = "cancel"
)

var commandNames = []string{commandStart, commandResume, commandPause, commandPauseNow, commandSkip, commandRollback, commandCancel, commandDelete}

// Commands returns which commands are possible, and why the others are not. The primary command,
// if there is one, comes first. Skipping is possible if some member can be left out.
func Commands(g *fleet.RolloutGroup) []fleet.Command {
	list := make([]fleet.Command, 0, len(commandNames))
	for _, name := range commandNames {
		c := checkCommand(name, g).Command(name)
		c.Danger = name == commandRollback || name == commandCancel
		if c.Allowed {
			c.Warning, c.NeedsReason = commandWarning(name, g), needsReason(name, g) != ""
			c.Primary = isPrimary(name, g)
		}
		if c.Primary {
			list = append([]fleet.Command{c}, list...)
		} else {
			list = append(list, c)
		}
	}
	return list
}

// isPrimary reports whether a possible command is the one that the state asks for. After a failure
// it is a decision between several, and none stands out.
func isPrimary(name string, g *fleet.RolloutGroup) bool {
	switch name {
	case commandStart, commandPause:
		return true
	case commandResume:
		return g.Stop == nil || g.Stop.Kind != fleet.GroupStopFailure
	}
	return false
}

// checkCommand returns why a command is not possible now; nil: it is. What depends on the fleet is
// not checked: a start is also refused if the fleet differs from the preview.
func checkCommand(name string, g *fleet.RolloutGroup) *fleet.Refusal {
	switch name {
	case commandStart:
		if g.State != fleet.GroupDraft {
			return fleet.RefuseDone("has been started already")
		}
		return nil
	case commandDelete:
		return checkDelete(g)
	case commandPause, commandPauseNow:
		return checkPause(g, name == commandPauseNow)
	case commandResume:
		return checkResume(g)
	case commandRollback:
		return checkRollback(g)
	case commandCancel:
		return checkCancel(g)
	case commandSkip:
		return checkSkip(g)
	}
	return fleet.Refuse("has no command %s", name)
}

func spaced(name string) string { return strings.ReplaceAll(name, "_", " ") }

// checkLive refuses a command that the group's state does not allow.
func checkLive(g *fleet.RolloutGroup, verb string) *fleet.Refusal {
	switch {
	case g.State == fleet.GroupRunning || g.State == fleet.GroupPaused:
		return nil
	case g.State == fleet.GroupDraft:
		return fleet.Refuse("has not been started, so there is nothing to %s: start it, or delete it", verb)
	case g.State.Active():
		return fleet.Refuse("is %s, it cannot %s: wait until that has ended", spaced(string(g.State)), verb)
	}
	return fleet.Refuse("has ended (%s), it is too late to %s", spaced(string(g.State)), verb)
}

func checkDelete(g *fleet.RolloutGroup) *fleet.Refusal {
	switch {
	case g.State.Active():
		return fleet.Refuse("is %s: only drafts can be deleted; cancel it", spaced(string(g.State)))
	case g.State != fleet.GroupDraft:
		return fleet.Refuse("has ended (%s) and is kept as a record: only drafts can be deleted", spaced(string(g.State)))
	}
	return nil
}

func checkPause(g *fleet.RolloutGroup, atOnce bool) *fleet.Refusal {
	if g.State == fleet.GroupPaused && (!atOnce || g.Stop != nil && (g.Stop.AtOnce || g.Stop.Kind != fleet.GroupStopOperator)) {
		return fleet.RefuseDone("is paused already")
	}
	return checkLive(g, "pause")
}

func checkResume(g *fleet.RolloutGroup) *fleet.Refusal {
	switch g.State {
	case fleet.GroupRunning:
		return fleet.RefuseDone("is running already")
	case fleet.GroupRollingBack:
		return fleet.RefuseDone("is being rolled back")
	case fleet.GroupPaused:
	default:
		return checkLive(g, "resume")
	}
	if stop := g.Stop; stop != nil && stop.Kind == fleet.GroupStopFailure {
		if m := member(g, stop.Member); m != nil && m.State == fleet.MemberFailed && !m.Tolerated {
			return fleet.Refuse("has nothing to resume, because the rollout of member %s has ended (%s): skip the member, or roll the group back", m.Name, m.Error)
		}
	}
	return nil
}

func checkCancel(g *fleet.RolloutGroup) *fleet.Refusal {
	switch {
	case g.State == fleet.GroupCancelled:
		return fleet.RefuseDone("was cancelled")
	case g.State == fleet.GroupCancelling:
		return fleet.RefuseDone("is being cancelled already")
	case checkLive(g, "cancel") != nil:
		return checkLive(g, "cancel")
	case g.RollingBack != nil:
		return fleet.Refuse("is being rolled back, which cannot be cancelled half way: resume it, or skip the member that stopped it")
	}
	return nil
}

func checkRollback(g *fleet.RolloutGroup) *fleet.Refusal {
	switch {
	case g.State == fleet.GroupDraft:
		return checkLive(g, "roll back")
	case g.State == fleet.GroupRolledBack:
		return fleet.RefuseDone("was rolled back")
	case g.State == fleet.GroupRollingBack:
		return fleet.RefuseDone("is being rolled back already")
	case g.RollingBack != nil && g.State == fleet.GroupPaused:
		return fleet.Refuse("is paused in its rollback (%s): resume it, or skip the member that stopped it", g.Stop.Text)
	case g.RollingBack != nil:
		return fleet.Refuse("was rolled back, and not all members went back: roll back the rollouts of the others one by one")
	}
	return nil
}

// checkSkip refuses to leave out a member if that is possible for none.
func checkSkip(g *fleet.RolloutGroup) *fleet.Refusal {
	var first *fleet.Refusal
	for i := range g.Members {
		why := checkMember(g, &g.Members[i])
		if why == nil {
			return nil
		}
		if first == nil || first.Done {
			first = why
		}
	}
	if first == nil {
		first = fleet.Refuse("has no members")
	}
	return first
}

// checkMember returns why a member cannot be left out; nil: it can. During a rollback the member
// keeps its version.
func checkMember(g *fleet.RolloutGroup, m *fleet.GroupMember) *fleet.Refusal {
	if g.RollingBack != nil && g.State.Active() {
		switch {
		case m.State == fleet.MemberKept:
			return fleet.RefuseDone("leaves member %s out of its rollback already", m.Name)
		case !stoppedAt(g, m.Name):
			return fleet.Refuse("is being rolled back, and only a member that stopped the rollback can be left out of it")
		}
		return nil
	}
	switch {
	case m.State == fleet.MemberSkipped:
		return fleet.RefuseDone("leaves member %s out already", m.Name)
	case checkLive(g, "skip a member") != nil:
		return checkLive(g, "skip a member")
	case isDone(m), !slices.Contains([]fleet.GroupMemberState{fleet.MemberPending, fleet.MemberRunning, fleet.MemberFailed}, m.State):
		return fleet.Refuse("has a member %s that is %s: only members that are not done can be left out", m.Name, spaced(string(m.State)))
	}
	return nil
}

// stoppedAt reports whether a member has paused the group.
func stoppedAt(g *fleet.RolloutGroup, name string) bool {
	return g.State == fleet.GroupPaused && g.Stop != nil && g.Stop.Member == name
}

// needsReason returns why a command is refused without a reason, as a sentence that asks for it;
// empty: it needs none. That of skip is for the member that stopped the group.
func needsReason(name string, g *fleet.RolloutGroup) string {
	gate := g.State == fleet.GroupPaused && g.Stop != nil && g.Stop.Kind.Gate()
	switch {
	case gate && name == commandResume:
		return fmt.Sprintf("%s stopped by itself (%s); say why it may go on all the same", title(g), g.Stop.Text)
	case gate && name == commandSkip && g.RollingBack == nil:
		return fmt.Sprintf("%s stopped at %s (%s); say why it may go on without it", title(g), g.Stop.Member, g.Stop.Text)
	}
	return ""
}

func commandWarning(name string, g *fleet.RolloutGroup) string {
	switch {
	case name == commandResume && g.Stop != nil && g.Stop.Kind == fleet.GroupStopFailure:
		return "The failures so far are accepted, and the rollout of the member goes on."
	case name == commandResume && g.Stop != nil && g.Stop.Kind == fleet.GroupStopDrift:
		return "The member is started with the fleet as it is now."
	case name == commandRollback:
		return "All members that have begun are rolled back, the last one first, each agent to its last healthy version."
	case name == commandCancel:
		return "No member is started, and the rollout of the current one is cancelled. Agents that were upgraded stay upgraded."
	}
	return ""
}
