package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// The commands that operators give to rollouts, as the API names them.
const (
	CommandStart          = "start"
	CommandDelete         = "delete"
	CommandPause          = "pause"     // after the current batch
	CommandPauseNow       = "pause_now" // offers that have not begun are withdrawn
	CommandResume         = "resume"
	CommandApprove        = "approve"
	CommandPromote        = "promote"
	CommandForce          = "force"
	CommandAdjust         = "adjust"
	CommandRetry          = "retry"         // all targets that failed
	CommandRetryTargets   = "retry_targets" // those that are named
	CommandSkip           = "skip"
	CommandCancel         = "cancel"
	CommandCancelNow      = "cancel_now" // its hosts are let go of at once
	CommandRollbackFailed = "rollback_failed"
	CommandRollbackAll    = "rollback_all"
)

// commandNames are in the order in which a menu shows them.
var commandNames = []string{
	CommandStart, CommandApprove, CommandResume, CommandPause, CommandPauseNow, CommandRetry, CommandRetryTargets, CommandSkip, CommandAdjust,
	CommandPromote, CommandForce, CommandRollbackFailed, CommandRollbackAll, CommandCancel, CommandCancelNow, CommandDelete,
}

// Around is what commands depend on besides the rollout itself.
type Around struct {
	// Backs are its rollbacks.
	Backs []fleet.Rollout
	// Locked is why the rollout cannot lock its policies again, which a paused one does when it
	// continues; nil: it can.
	Locked *fleet.Error
}

// back returns the rollback that is under way, nil if none is.
func (a Around) back() *fleet.Rollout {
	for i := range a.Backs {
		if a.Backs[i].State.Active() {
			return &a.Backs[i]
		}
	}
	return nil
}

// Commands returns which commands are possible, and why the others are not. The primary command,
// if there is one, comes first.
func Commands(r *fleet.Rollout, a Around, now time.Time) []fleet.Command {
	primary := primaryCommand(r, a, now)
	list := make([]fleet.Command, 0, len(commandNames))
	for _, name := range commandNames {
		refusal := CheckCommand(name, r, a, now)
		if refusal == nil {
			refusal = nothingBack(name, r)
		}
		c := refusal.Command(name)
		c.Danger = isDangerous(name)
		if c.Allowed {
			c.NeedsReason, c.Warning = NeedsReason(name, r) != "", commandWarning(name, r)
			c.Primary = name == primary
		}
		if c.Primary {
			list = append([]fleet.Command{c}, list...)
		} else {
			list = append(list, c)
		}
	}
	return list
}

// isDangerous reports whether a command stops the rollout for good, or changes hosts beyond its
// plan.
func isDangerous(name string) bool {
	switch name {
	case CommandForce, CommandPromote, CommandCancel, CommandCancelNow, CommandRollbackFailed, CommandRollbackAll:
		return true
	}
	return false
}

// primaryCommand returns the command that the state asks for; empty: none. After failures it is
// a decision between several, and none stands out.
func primaryCommand(r *fleet.Rollout, a Around, now time.Time) string {
	possible := func(name string) bool { return CheckCommand(name, r, a, now) == nil }
	failed := r.Stop != nil && (FailuresStopped(r.Stop.Kind) || r.Stop.Kind == fleet.StopRollback)
	switch {
	case possible(CommandStart):
		return CommandStart
	case r.State == fleet.RolloutPaused && possible(CommandResume) && !failed:
		return CommandResume // before an approval: a paused rollout waits for this first
	case r.State == fleet.RolloutRunning && possible(CommandApprove) && !failed:
		return CommandApprove
	case r.State == fleet.RolloutPaused && pastDeadline(r, now) && possible(CommandCancel):
		return CommandCancel
	case r.State == fleet.RolloutRunning && r.PauseAsked == nil && possible(CommandPause):
		return CommandPause
	}
	return ""
}

// CheckCommand returns why a command is not possible now; nil: it is. Whoever carries out a
// command asks here first. What depends on the fleet is not checked: a start is also refused if
// the fleet differs from the preview, a rollback if no host could go back.
func CheckCommand(name string, r *fleet.Rollout, a Around, now time.Time) *fleet.Refusal {
	if CheckKnown(r) != nil && name != CommandDelete {
		return fleet.Refuse("has the strategy %q, which this version of Muster does not know: a newer one made it, and only servers of that version work on it. Upgrade this server, or use one of them", r.Plan.Strategy.Kind)
	}
	own := Of(&r.Plan).Refusal(name, r)
	switch name {
	case CommandStart:
		return checkStart(r)
	case CommandDelete:
		return checkDelete(r)
	case CommandPause, CommandPauseNow:
		return checkPause(r, own, name == CommandPauseNow)
	case CommandResume:
		return checkResume(r, a, now)
	case CommandForce:
		return checkForce(r, own, a, now)
	case CommandPromote:
		return checkPromote(r, own, a, now)
	case CommandApprove:
		return checkApprove(r)
	case CommandAdjust:
		return checkAdjust(r)
	case CommandCancel:
		return checkCancel(r, own)
	case CommandCancelNow:
		return checkCancelNow(r, own)
	case CommandRetry, CommandRetryTargets:
		return checkRetry(r, own, name == CommandRetry)
	case CommandSkip:
		return checkSkip(r, own)
	case CommandRollbackFailed, CommandRollbackAll:
		return checkRollback(r, own, a, name == CommandRollbackAll)
	}
	return fleet.Refuse("has no command %s", name)
}

// checkLive refuses a command that only active rollouts know. It says what can be done instead.
func checkLive(r *fleet.Rollout, verb string) *fleet.Refusal {
	switch r.State {
	case fleet.RolloutRunning, fleet.RolloutPaused:
		return nil
	case fleet.RolloutDraft:
		return fleet.Refuse("has not been started, so there is nothing to %s: start it, or delete it", verb)
	case fleet.RolloutCancelling:
		if LocksPolicies(r) || r.CancelledNow != nil {
			return fleet.Refuse("is being cancelled, it is too late to %s: wait until what has begun has ended", verb)
		}
		return fleet.Refuse("is being cancelled, it is too late to %s: wait until what has begun has ended, or cancel it at once (`muster rollouts cancel %s --now`), which lets go of its hosts", verb, r.ID)
	}
	next := "roll back, or make another rollout"
	if r.RollbackOf != "" || r.RolledBackBy != "" || Together(r.Plan.Strategy.Kind) {
		next = "make another rollout to the version that the agents should run" // a rollback is refused, or was done
	}
	return fleet.Refuse("has ended (%s), it is too late to %s: %s", spaced(string(r.State)), verb, next)
}

func spaced(name string) string { return strings.ReplaceAll(name, "_", " ") }

// pastDeadline reports whether the plan's deadline is over.
func pastDeadline(r *fleet.Rollout, now time.Time) bool {
	d := r.Plan.Strategy.Deadline
	return d != nil && !now.Before(*d)
}

// checkDeadline refuses to continue after the plan's deadline, since the rollout would stop again
// at once.
func checkDeadline(r *fleet.Rollout, now time.Time) *fleet.Refusal {
	if !pastDeadline(r, now) {
		return nil
	}
	return fleet.Refuse("had the deadline %s, and nothing is offered after it: cancel it, and make another rollout for the rest", r.Plan.Strategy.Deadline.UTC().Format(time.RFC3339))
}

func checkStart(r *fleet.Rollout) *fleet.Refusal {
	switch {
	case r.State != fleet.RolloutDraft && r.State.Ended():
		return fleet.RefuseDone("was started, and has ended (%s)", spaced(string(r.State)))
	case r.State != fleet.RolloutDraft:
		return fleet.RefuseDone("has been started already")
	case r.RollbackOf != "":
		return fleet.Refuse("is a rollback whose start was interrupted: ask for the rollback of %s again", r.RollbackOf)
	}
	return nil
}

func checkDelete(r *fleet.Rollout) *fleet.Refusal {
	switch {
	case r.State.Active():
		return fleet.Refuse("is %s: only drafts can be deleted; cancel it", r.State)
	case r.State != fleet.RolloutDraft:
		return fleet.Refuse("has ended (%s) and is kept as a record: only drafts can be deleted", spaced(string(r.State)))
	case r.Pin != nil:
		// Its targets may exist, and nothing would ever remove them.
		return fleet.Refuse("cannot be deleted, because its start was interrupted: start it again with preview %s, then cancel it", r.Pin.Hash)
	}
	return nil
}

func checkPause(r *fleet.Rollout, own *fleet.Refusal, atOnce bool) *fleet.Refusal {
	switch {
	case r.State == fleet.RolloutPaused:
		return fleet.RefuseDone("is paused already")
	case r.State != fleet.RolloutRunning:
		return checkLive(r, "pause")
	case own != nil:
		return own
	case !atOnce && r.PauseAsked != nil:
		return fleet.RefuseDone("pauses when the current batch has ended: %s has asked for that already", r.PauseAsked.By)
	}
	return nil
}

// checkContinue refuses to continue a paused rollout while its rollback is under way, or another
// rollout has its policies.
func checkContinue(r *fleet.Rollout, a Around) *fleet.Refusal {
	switch {
	case r.State != fleet.RolloutPaused:
		return nil
	case a.back() != nil:
		return fleet.Refuse("is being rolled back by %s: cancel that first, or wait until it has ended", Title(a.back()))
	case a.Locked != nil:
		return &fleet.Refusal{Text: "cannot go on: " + a.Locked.Message, Code: a.Locked.Code}
	}
	return nil
}

func checkResume(r *fleet.Rollout, a Around, now time.Time) *fleet.Refusal {
	switch {
	case r.State == fleet.RolloutRunning && r.PauseAsked != nil:
		return nil
	case r.State == fleet.RolloutRunning:
		return fleet.RefuseDone("is running already")
	case r.State != fleet.RolloutPaused:
		return checkLive(r, "resume")
	}
	if r.Stop != nil && r.Stop.Kind.Gate() {
		if late := checkDeadline(r, now); late != nil {
			return late
		}
	}
	return checkContinue(r, a)
}

func checkForce(r *fleet.Rollout, own *fleet.Refusal, a Around, now time.Time) *fleet.Refusal {
	switch {
	case checkLive(r, "force") != nil:
		return checkLive(r, "force")
	case own != nil:
		return own
	case r.State == fleet.RolloutRunning && r.Forced != nil:
		return fleet.RefuseDone("ignores failures already: %s has forced it", r.Forced.By)
	case checkDeadline(r, now) != nil:
		return checkDeadline(r, now)
	}
	return checkContinue(r, a)
}

// FailuresStopped reports whether a stop is because of failures, or because canaries showed
// nothing.
func FailuresStopped(k fleet.StopKind) bool {
	return k == fleet.StopThreshold || k == fleet.StopCanary
}

func checkPromote(r *fleet.Rollout, own *fleet.Refusal, a Around, now time.Time) *fleet.Refusal {
	failed := r.State == fleet.RolloutPaused && r.Stop != nil && FailuresStopped(r.Stop.Kind)
	switch {
	case checkLive(r, "promote") != nil:
		return checkLive(r, "promote")
	case own != nil:
		return own
	case r.Promoted != nil && failed:
		return fleet.Refuse("was promoted already (%s), and has stopped since: %s. Look at the failures, then resume it with a reason", r.Promoted.By, r.Stop.Text)
	case r.Promoted != nil:
		return fleet.RefuseDone("was promoted already: %s has done it", r.Promoted.By)
	case checkDeadline(r, now) != nil:
		return checkDeadline(r, now)
	case failed:
		return checkContinue(r, a)
	}
	return nil
}

func checkAdjust(r *fleet.Rollout) *fleet.Refusal {
	switch {
	case checkLive(r, "adjust") != nil:
		return checkLive(r, "adjust")
	case r.RollbackOf != "":
		return fleet.Refuse("is a rollback, and goes by the limits of the rollout that it rolls back: it cannot be adjusted")
	}
	return nil
}

func checkApprove(r *fleet.Rollout) *fleet.Refusal {
	switch {
	case checkLive(r, "approve") != nil:
		return checkLive(r, "approve")
	case r.Approved != nil:
		return fleet.RefuseDone("was approved already: %s has done it", r.Approved.By)
	case r.Promoted != nil:
		return fleet.Refuse("was promoted by %s: there is nothing to approve", r.Promoted.By)
	case !NeedsApproval(&r.Plan):
		return fleet.Refuse("has a plan that asks for no approval: there is nothing to approve")
	}
	for _, b := range r.Batches {
		if b.Kind == fleet.BatchCanary && b.EndedAt == nil {
			return fleet.Refuse("has canaries that are not done (%d of %d are): approve them when they are", b.Counts.Total-b.Counts.Pending-b.Counts.InFlight(), b.Counts.Total)
		}
	}
	return nil
}

func checkCancel(r *fleet.Rollout, own *fleet.Refusal) *fleet.Refusal {
	switch {
	case own != nil:
		return own
	case r.State == fleet.RolloutCancelled:
		return fleet.RefuseDone("was cancelled")
	case r.State == fleet.RolloutCancelling:
		return fleet.RefuseDone("is being cancelled already")
	}
	return checkLive(r, "cancel")
}

func checkCancelNow(r *fleet.Rollout, own *fleet.Refusal) *fleet.Refusal {
	switch {
	case own != nil:
		return own
	case r.CancelledNow != nil:
		return fleet.RefuseDone("was cancelled at once already: %s has done it", r.CancelledNow.By)
	case r.State == fleet.RolloutCancelled:
		return fleet.RefuseDone("was cancelled")
	case r.State == fleet.RolloutCancelling:
		return nil
	}
	return checkLive(r, "cancel")
}

func checkRetry(r *fleet.Rollout, own *fleet.Refusal, all bool) *fleet.Refusal {
	switch {
	case checkLive(r, "retry") != nil:
		return checkLive(r, "retry")
	case own != nil:
		return own
	case all && Ordered(r, fleet.OrderRetry, nil):
		return fleet.RefuseDone("retries all that failed already")
	case all && r.Counts.Bad()+r.Counts.Refused == 0:
		return fleet.Refuse("has no target that failed: name the agents to retry others, such as withdrawn ones")
	}
	return nil
}

func checkSkip(r *fleet.Rollout, own *fleet.Refusal) *fleet.Refusal {
	if live := checkLive(r, "skip"); live != nil {
		return live
	}
	return own
}

func checkRollback(r *fleet.Rollout, own *fleet.Refusal, a Around, all bool) *fleet.Refusal {
	switch {
	case r.RollbackOf != "":
		return fleet.Refuse("is itself a rollback: make a rollout to the version that the agents should run")
	case r.State == fleet.RolloutDraft:
		return checkLive(r, "roll back")
	case own != nil:
		return own
	}
	id := RollbackID(r.ID)
	if !all {
		id += "-failed"
	}
	for i := range a.Backs { // one of each scope
		if b := &a.Backs[i]; b.ID == id && b.State != fleet.RolloutDraft {
			return fleet.RefuseDone("was rolled back so already, by %s", Title(b))
		}
	}
	if b := a.back(); b != nil {
		return fleet.Refuse("is being rolled back by %s: wait until that has ended, or cancel it", Title(b))
	}
	return nil
}

// targetCommands are the commands on one target, each with the one of its rollout that names targets.
var targetCommands = []struct{ name, ofRollout string }{{CommandRetry, CommandRetryTargets}, {CommandSkip, CommandSkip}}

// TargetCommands returns which commands are possible for one target, and why the others are not.
// of are those of its rollout.
func TargetCommands(r *fleet.Rollout, of []fleet.Command, t *fleet.Target) []fleet.Command {
	list := make([]fleet.Command, 0, len(targetCommands))
	for _, named := range targetCommands {
		c := CheckTarget(named.ofRollout, r, t).Command(named.name)
		if i := slices.IndexFunc(of, func(c fleet.Command) bool { return c.Name == named.ofRollout }); i >= 0 && !of[i].Allowed {
			// The reasons of commands say it of their object, which is the target here.
			c.Allowed, c.Reason = false, "The rollout"+strings.TrimPrefix(of[i].Reason, "It")
		}
		list = append(list, c)
	}
	return list
}

// CheckTarget returns why a command that names a target would not change it; nil: it would. What
// the rollout refuses for all of its targets CheckCommand says.
func CheckTarget(name string, r *fleet.Rollout, t *fleet.Target) *fleet.Refusal {
	switch name {
	case CommandRetryTargets:
		return checkRetryTarget(r, t)
	case CommandSkip:
		return checkSkipTarget(r, t)
	}
	return fleet.Refuse("has no command %s", name)
}

func checkRetryTarget(r *fleet.Rollout, t *fleet.Target) *fleet.Refusal {
	failed := t.State == fleet.TargetFailed || t.State == fleet.TargetRolledBack || Refused(t)
	switch {
	case t.State == fleet.TargetPending:
		return fleet.RefuseDone("waits for its turn already")
	case t.State == fleet.TargetSucceeded:
		return fleet.Refuse("runs the version already, and need not be retried")
	case t.State == fleet.TargetSkipped && !failed:
		return fleet.Refuse("was left out, and cannot be retried: make another rollout for it")
	case !failed && t.State != fleet.TargetWithdrawn && t.State != fleet.TargetExpired:
		return fleet.Refuse("has not failed (%s), and cannot be retried", spaced(string(t.State)))
	case orderedFor(r, fleet.OrderRetry, t.AgentID), failed && Ordered(r, fleet.OrderRetry, nil):
		return fleet.RefuseDone("is retried already")
	}
	return nil
}

func checkSkipTarget(r *fleet.Rollout, t *fleet.Target) *fleet.Refusal {
	switch {
	case t.State == fleet.TargetSkipped, orderedFor(r, fleet.OrderSkip, t.AgentID):
		return fleet.RefuseDone("is left out already")
	case t.State == fleet.TargetSucceeded:
		return fleet.Refuse("runs the version already, and cannot be left out: roll back to undo that")
	case t.State == fleet.TargetUpgrading, t.State == fleet.TargetVerifying:
		return fleet.Refuse("is being upgraded (%s), and cannot be left out before its end", spaced(string(t.State)))
	case t.State == fleet.TargetCancelled:
		return fleet.Refuse("was cancelled with its rollout, and cannot be left out")
	}
	return nil
}

// orderedFor reports whether an order of that kind names the agent and is not executed yet.
func orderedFor(r *fleet.Rollout, kind fleet.OrderKind, agentID string) bool {
	return slices.ContainsFunc(r.Orders, func(o fleet.Order) bool { return o.Kind == kind && slices.Contains(o.Agents, agentID) })
}

// nothingBack refuses a rollback that would have no targets, by the counts. The rollback itself
// reads the targets, since counts are written after them: it is refused by what it finds there.
func nothingBack(name string, r *fleet.Rollout) *fleet.Refusal {
	c := &r.Counts
	switch {
	case name == CommandRollbackFailed && c.Failed == 0 && c.RolledBack > 0:
		return fleet.Refuse("has no failed target to roll back: the watchers of all that failed have restored the earlier version")
	case name == CommandRollbackFailed && c.Failed == 0:
		return fleet.Refuse("has no target that failed")
	case name == CommandRollbackAll && c.Failed+c.Succeeded+c.Verifying+c.Upgrading == 0 && !waitsFor(r, fleet.WhyUnconfirmed):
		return fleet.Refuse("has no target that runs the version, or is about to")
	}
	return nil
}

func waitsFor(r *fleet.Rollout, code fleet.ReasonCode) bool {
	return slices.ContainsFunc(r.Waiting, func(w fleet.Wait) bool { return w.Code == code })
}

// Ordered reports whether the same order is waiting for execution.
func Ordered(r *fleet.Rollout, kind fleet.OrderKind, agents []string) bool {
	return slices.ContainsFunc(r.Orders, func(o fleet.Order) bool { return o.Kind == kind && slices.Equal(o.Agents, agents) })
}

// NeedsReason returns why a command is refused without a reason, as a sentence that asks for it;
// empty: it needs none.
func NeedsReason(name string, r *fleet.Rollout) string {
	switch name {
	case CommandResume:
		if r.State == fleet.RolloutPaused && r.Stop != nil && r.Stop.Kind.Gate() {
			return fmt.Sprintf("%s stopped by itself (%s); say why it may go on all the same", Title(r), r.Stop.Text)
		}
	case CommandForce:
		return fmt.Sprintf("with force no number of failures stops %s any more; say why", Title(r))
	case CommandPromote:
		return fmt.Sprintf("promoted, %s waits no more for its canaries, their observation and approval, or a soak; say why", Title(r))
	case CommandApprove:
		if bad, all := canaryFailures(r); bad > 0 {
			return fmt.Sprintf("%d of %d canaries of %s failed; say why the batches after them may have the version all the same", bad, all, Title(r))
		}
	}
	return ""
}

// canaryFailures returns how many canaries failed, of how many.
func canaryFailures(r *fleet.Rollout) (bad, all int) {
	for i := range r.Batches {
		if b := &r.Batches[i]; b.Kind == fleet.BatchCanary {
			bad, all = bad+b.Counts.Bad(), all+b.Counts.Total
		}
	}
	return bad, all
}

// commandWarning returns what an operator should know before a command is given.
func commandWarning(name string, r *fleet.Rollout) string {
	switch name {
	case CommandApprove:
		if bad, all := canaryFailures(r); bad > 0 {
			return fmt.Sprintf("%d of %d canaries failed. All batches after them get the same version.", bad, all)
		}
	case CommandResume:
		return resumeWarning(r)
	case CommandForce:
		return "No number of failures pauses it again. The exposure budget, windows and limits still hold."
	case CommandPromote:
		return "It waits no more for canaries, their observation, approval and soak. Windows, freezes and the exposure budget still hold."
	case CommandCancel:
		if r.Lockstep.Running() {
			return "Everything is undone on all targets."
		}
		if n := r.Counts.Upgrading + r.Counts.Verifying; n > 0 {
			return fmt.Sprintf("%s under way still ends, and targets that were upgraded stay upgraded: roll back to undo that.", Count(n, "upgrade", "upgrades"))
		}
		if r.Counts.Succeeded > 0 {
			return "Targets that were upgraded stay upgraded: roll back to undo that."
		}
	case CommandCancelNow:
		return "It waits for the health of no host any more, and other orders may take its hosts at once. What was delivered to them still ends as it does there."
	case CommandRollbackFailed, CommandRollbackAll:
		if n := r.Counts.RolledBack; n > 0 {
			return fmt.Sprintf("%s rolled back by the watchers already, and left as they are.", wasWere(n, "target"))
		}
	}
	return ""
}

func wasWere(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " was"
	}
	return fmt.Sprintf("%d %ss were", n, noun)
}

func resumeWarning(r *fleet.Rollout) string {
	if r.State != fleet.RolloutPaused || r.Stop == nil {
		return ""
	}
	switch r.Stop.Kind {
	case fleet.StopThreshold, fleet.StopCanary:
		failed := max(0, r.Counts.Bad()-r.Forgiven)
		return fmt.Sprintf("It goes on with the same version. The %s so far no longer %s; further ones pause it again.",
			Count(failed, "failure", "failures"), map[bool]string{true: "counts", false: "count"}[failed == 1])
	case fleet.StopExposure:
		return "If more hosts run the version than the exposure budget allows, it pauses again."
	case fleet.StopRollback:
		return "It goes on with the version that was rolled back."
	case fleet.StopDeadline:
		return "It waits again for what took too long."
	}
	return ""
}
