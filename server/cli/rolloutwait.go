package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-fleet/muster/packaging/terminal"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// Exit codes of commands that follow a rollout, listed in `muster rollouts --help`, and of
// `muster wait fleets` and `muster apply --wait`, listed in their help.
// Scripts depend on them: append only.
const (
	exitFailed    = 3
	exitGate      = 4
	exitCancelled = 5
	exitOperator  = 6
	exitStalled   = 7
)

// exitError is an error with its own exit code.
type exitError struct {
	code int
	error
}

// following holds the flags of commands that follow a rollout.
type following struct {
	wait    bool
	timeout time.Duration
}

func (f *following) register(set *pflag.FlagSet) {
	set.BoolVar(&f.wait, "wait", false, "follow the rollout until it ends or needs an operator; the exit code is its outcome (see muster rollouts --help)")
	f.registerTimeout(set)
}

func (f *following) registerTimeout(set *pflag.FlagSet) {
	set.DurationVar(&f.timeout, "timeout", 0, "stop following after this time; the rollout continues (default: no limit)")
}

// showOrFollow prints the result of a command or, with --wait, follows the rollout.
func (a *client) showOrFollow(cmd *cobra.Command, got adminapi.RolloutItem, follow following, human func(io.Writer)) error {
	if !follow.wait {
		return a.show(cmd.OutOrStdout(), got, human)
	}
	return a.follow(cmd, got.Item.ID, follow, lines(cmd.ErrOrStderr()))
}

// follow calls print with a rollout until it ends or needs an operator.
func (a *client) follow(cmd *cobra.Command, id string, follow following, print func(adminapi.Rollout, time.Time)) error {
	return followed[adminapi.RolloutItem]{
		noun: "rollout", id: id,
		get:     a.rollout,
		line:    func(got adminapi.RolloutItem) string { return progressLine(got.Item) },
		print:   func(got adminapi.RolloutItem, now time.Time) { print(got.Item, now) },
		outcome: func(got adminapi.RolloutItem, interactive bool) (int, string) { return outcome(got.Item, interactive) },
	}.follow(a, cmd, follow)
}

// followed is something that a command follows: a rollout or a group.
type followed[T any] struct {
	noun, id string // the commands about it are muster NOUNs
	get      func(ctx context.Context, id string) (T, error)
	line     func(T) string
	print    func(T, time.Time)
	// outcome returns the exit code and the message once it ends or needs an operator.
	outcome func(got T, interactive bool) (code int, text string)
}

// follow follows until there is an outcome. While the server does not answer, it retries.
// What is followed continues when nobody follows it.
func (f followed[T]) follow(a *client, cmd *cobra.Command, follow following) error {
	ctx := cmd.Context()
	if follow.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, follow.timeout)
		defer cancel()
	}
	tick := time.NewTicker(waitInterval)
	defer tick.Stop()
	interactive := isTerminal(cmd.InOrStdin())
	lastError, last := "", "the server has not answered"
	for {
		got, err := f.get(ctx, f.id)
		var refused *refusal
		switch {
		case ctx.Err() != nil:
			return f.stopped(cmd.Context(), follow.timeout, last)
		case errors.As(err, &refused) && refused.status < http.StatusInternalServerError:
			return err
		case err != nil:
			if lastError != err.Error() {
				lastError = err.Error()
				last = lastError
				fmt.Fprintf(cmd.ErrOrStderr(), "%s  %s\n", time.Now().Format(time.TimeOnly), lastError)
			}
		default:
			lastError, last = "", f.line(got)
			f.print(got, time.Now())
			if code, text := f.outcome(got, interactive); text != "" {
				if err := a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
					if code == 0 {
						fmt.Fprintln(w, text)
					}
				}); err != nil || code == 0 {
					return err
				}
				return &exitError{code, errors.New(text)}
			}
		}
		select {
		case <-ctx.Done():
			return f.stopped(cmd.Context(), follow.timeout, last)
		case <-tick.C:
		}
	}
}

// stopped is the error of follow after Ctrl-C or --timeout; last describes what was
// followed, or why that is not known.
func (f followed[T]) stopped(ctx context.Context, timeout time.Duration, last string) error {
	commands := "muster " + f.noun + "s"
	if ctx.Err() != nil {
		return &exitError{interrupted, fmt.Errorf("stopped following: %s %s continues. Follow it with `%s watch %[2]s`, pause it with `%[3]s pause %[2]s --now`", f.noun, f.id, commands)}
	}
	return fmt.Errorf("not ended within %s (%s): %s %s continues. Follow it with `%s watch %[4]s`", timeout, last, f.noun, f.id, commands)
}

// outcome returns the exit code and the message for a rollout that has ended or needs an
// operator. The message is empty while the rollout continues by itself. In an interactive
// session a pause or a missing approval does not end the command: the operator who reads
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
		return exitFailed, fmt.Sprintf("rollout %s was rolled back by %s", nameAndID(r), firstOf(r.RolledBackBy, "another"))
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
	stop := deref(r.Stop)
	switch stop.Kind {
	case fleet.StopThreshold, fleet.StopCanary, fleet.StopExposure, fleet.StopDeadline:
		return exitGate, fmt.Sprintf("rollout %s is paused: %s. Resume it with `muster rollouts resume %s --why …`. %s", nameAndID(r), trimPeriod(stop.Text), r.ID, trimPeriod(rollbackAdvice(r)))
	case fleet.StopVerify:
		return exitGate, fmt.Sprintf("rollout %s is paused, and no target has begun: %s. Mend that, then resume it with `muster rollouts resume %s --wait`", nameAndID(r), trimPeriod(stop.Text), r.ID)
	case fleet.StopRollback:
		return 0, "" // it ends when its rollback does
	}
	if interactive {
		return 0, ""
	}
	return exitOperator, fmt.Sprintf("rollout %s is paused: %s. Resume it with `muster rollouts resume %s --wait`", nameAndID(r), firstOf(trimPeriod(stop.Text), "an operator paused it"), r.ID)
}

// trimPeriod removes a final period, so that s can stand within a sentence.
func trimPeriod(s string) string { return strings.TrimSuffix(s, ".") }

// lines returns a function that prints the progress of a rollout whenever it changes.
func lines(w io.Writer) func(adminapi.Rollout, time.Time) { return linesOf(w, progressLine) }

// linesOf returns a function that prints the line of what is followed whenever it changes.
func linesOf[T any](w io.Writer, lineOf func(T) string) func(T, time.Time) {
	shown := ""
	return func(followed T, now time.Time) {
		if line := lineOf(followed); line != shown {
			shown = line
			fmt.Fprintf(w, "%s  %s\n", now.Format(time.TimeOnly), line)
		}
	}
}

func (a *client) newRolloutsWatch() *cobra.Command {
	var follow following
	cmd := &cobra.Command{
		Use:   "watch ROLLOUT",
		Short: "Follow a rollout to its end",
		Long: `Show the progress of a rollout until it ends or needs an operator: redrawn on a terminal,
otherwise one line for each change. The exit code is the outcome (see
` + "`muster rollouts --help`" + `). Ctrl-C stops following; the rollout continues.`,
		Example:           "  muster rollouts watch ROLLOUT\n  muster rollouts watch ROLLOUT --timeout 5h > progress.log",
		Args:              oneRollout,
		ValidArgsFunction: a.completeRollouts("running", "paused", "cancelling"),
		RunE: func(cmd *cobra.Command, args []string) error {
			print := lines(cmd.OutOrStdout())
			switch {
			case a.output == "json":
				print = lines(cmd.ErrOrStderr())
			case isTerminal(cmd.OutOrStdout()):
				print = func(r adminapi.Rollout, now time.Time) {
					fmt.Fprint(terminal.Raw(cmd.OutOrStdout()), clearScreen)
					printRollout(cmd.OutOrStdout(), r, now, batchesWatched)
				}
			}
			return a.follow(cmd, args[0], follow, print)
		},
	}
	follow.registerTimeout(cmd.Flags())
	return cmd
}

const (
	// clearScreen moves to the top left and empties the terminal.
	clearScreen = "\x1b[H\x1b[2J"
	// batchesWatched is how many batches watch shows: with the rest they fit a terminal of
	// 24 lines.
	batchesWatched = 12
)
