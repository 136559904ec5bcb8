package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// outcome returns the exit code and the message for a rollout that has ended or needs an
// operator. The message is empty while the rollout continues by itself. In an interactive
// session a pause or a missing approval does not end the subcommand: the operator who reads
// it can act.
func outcome(r adminapi.Rollout, interactive bool) (code int, text string) {
	switch r.State {
	case fleet.RolloutCompleted:
		return 0, fmt.Sprintf("rollout %s completed: %d of %s run %s", nameAndID(r), r.Counts.Succeeded, counted(r.Counts.Total, "agent"), targetVersion(r))
	case fleet.RolloutFailed:
		again := ""
		if r.RollbackOf == "" {
			again = fmt.Sprintf(", and try them again with `muster rollouts create --from %s --failed`", r.ID)
		}
		return exitFailed, fmt.Sprintf("rollout %s failed: %d of %s run %s, %s. List them with `muster rollouts targets %s --state %s`%s. %s",
			nameAndID(r), r.Counts.Succeeded, counted(r.Counts.Total, "agent"), targetVersion(r), describeFailures(r.Counts), r.ID, failedStates(r.Counts), again, trimPeriod(rollbackAdvice(r)))
	case fleet.RolloutRolledBack:
		return exitFailed, fmt.Sprintf("rollout %s was rolled back by %s", nameAndID(r), cmp.Or(r.RolledBackBy, "another"))
	case fleet.RolloutCancelled:
		return exitCancelled, fmt.Sprintf("rollout %s was cancelled: %d of %s run %s", nameAndID(r), r.Counts.Succeeded, counted(r.Counts.Total, "agent"), targetVersion(r))
	case fleet.RolloutDraft:
		return 1, fmt.Sprintf("rollout %s is a draft: start it with `muster rollouts start %s`", nameAndID(r), r.ID)
	case fleet.RolloutPaused:
		return pausedOutcome(r, interactive)
	case fleet.RolloutRunning:
		for _, w := range r.Waiting {
			if w.Code == "approval" && !interactive {
				return exitOperator, fmt.Sprintf("rollout %s waits for an approval: %s. Approve it with `muster rollouts approve %s --wait`", nameAndID(r), trimPeriod(w.Text), r.ID)
			}
		}
	}
	return 0, ""
}

// describeFailures says how many targets failed, and how many could not be given the version.
func describeFailures(c adminapi.Counts) string {
	var words []string
	if n := failures(c); n > 0 || c.Refused == 0 {
		words = append(words, fmt.Sprintf("%d failed", n))
	}
	if n := c.Refused; n > 0 {
		words = append(words, fmt.Sprintf("%d could not be given it", n))
	}
	return strings.Join(words, ", ")
}

// failedStates are the states of the targets that describeFailures counts.
func failedStates(c adminapi.Counts) string {
	if c.Refused > 0 {
		return "failed,rolled_back,skipped"
	}
	return "failed,rolled_back"
}

func pausedOutcome(r adminapi.Rollout, interactive bool) (code int, text string) {
	stop, paused := deref(r.Stop), "rollout "+nameAndID(r)+" is paused"
	why := trimPeriod(cmp.Or(stop.Text, "an operator paused it")) + "."
	switch {
	case stop.Kind == fleet.StopRollback:
		return 0, "" // it ends when its rollback does
	case stop.Kind == fleet.StopVerify:
		return exitGate, sentences(paused+", and no target has begun:", why, advise(r.Commands, "resume", "Mend that, then resume it with `muster rollouts resume %s`", r.ID+" --wait"))
	case stop.Kind.Gate():
		return exitGate, trimPeriod(sentences(paused+":", why, resumeAdvice(r, ""), rollbackAdvice(r)))
	case interactive:
		return 0, ""
	}
	return exitOperator, trimPeriod(sentences(paused+":", why, resumeAdvice(r, " --wait")))
}

// trimPeriod removes a final period, so that s can stand within a sentence.
func trimPeriod(s string) string { return strings.TrimSuffix(s, ".") }

// batchesWatched is how many batches watch shows: with the rest they fit a terminal of
// 24 lines.
const batchesWatched = 12
