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

	"github.com/muster-fleet/muster/server/adminapi"
)

// Exit codes of commands that follow a rollout; `muster rollouts --help` has the
// list. Scripts know them: append only.
const (
	exitFailed    = 3
	exitGate      = 4
	exitCancelled = 5
	exitOperator  = 6
)

// exitError ends the program with a code of its own.
type exitError struct {
	code int
	error
}

// following is how a command follows what it has started.
type following struct {
	wait    bool
	timeout time.Duration
}

func (f *following) register(set *pflag.FlagSet) {
	set.BoolVar(&f.wait, "wait", false, "follow it to its end, or to where it needs somebody; the exit code says how it went (see muster rollouts --help)")
	f.registerTimeout(set)
}

func (f *following) registerTimeout(set *pflag.FlagSet) {
	set.DurationVar(&f.timeout, "timeout", 0, "follow it no longer than this; the rollout goes on (default: no limit)")
}

// showOrFollow shows what a command has done or, with --wait, how it goes on.
func (a *app) showOrFollow(cmd *cobra.Command, got adminapi.RolloutItem, follow following, human func(io.Writer)) error {
	if !follow.wait {
		return a.show(cmd.OutOrStdout(), got, human)
	}
	return a.follow(cmd, got.Item.Id, follow, lines(cmd.ErrOrStderr()))
}

// follow shows a rollout until it ends, or cannot go on without somebody. A
// server that does not answer is waited for too. To stop following changes
// nothing about the rollout.
func (a *app) follow(cmd *cobra.Command, id string, follow following, see func(adminapi.Rollout, time.Time)) error {
	ctx := cmd.Context()
	if follow.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, follow.timeout)
		defer cancel()
	}
	tick := time.NewTicker(waitInterval)
	defer tick.Stop()
	attended := isTerminal(cmd.InOrStdin())
	problem := ""
	for {
		got, err := a.rollout(ctx, id)
		var refused *refusal
		switch {
		case ctx.Err() != nil:
			return leftAlone(cmd.Context(), id, follow.timeout)
		case errors.As(err, &refused) && refused.status < http.StatusInternalServerError:
			return err
		case err != nil:
			if problem != err.Error() {
				problem = err.Error()
				fmt.Fprintf(cmd.ErrOrStderr(), "%s  %s\n", time.Now().Format(time.TimeOnly), problem)
			}
		default:
			problem = ""
			see(got.Item, time.Now())
			if code, text := outcome(got.Item, attended); text != "" {
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
			return leftAlone(cmd.Context(), id, follow.timeout)
		case <-tick.C:
		}
	}
}

// leftAlone is the error of one who stops following.
func leftAlone(ctx context.Context, id string, timeout time.Duration) error {
	if ctx.Err() != nil {
		return &exitError{interrupted, fmt.Errorf("no longer following: rollout %s goes on. Follow it with `muster rollouts watch %s`, stop it with `muster rollouts pause %s --now`", id, id, id)}
	}
	return fmt.Errorf("it has not ended within %s: rollout %s goes on. Follow it with `muster rollouts watch %s`", timeout, id, id)
}

// outcome says how a rollout ended, or whom it needs; the text is empty while it
// goes on by itself. attended: somebody is there who can act on what they read.
func outcome(r adminapi.Rollout, attended bool) (code int, text string) {
	switch r.State {
	case adminapi.RolloutCompleted:
		return 0, fmt.Sprintf("rollout %s completed: %d of %s run %s", called(r), r.Counts.Succeeded, counted(r.Counts.Total, "agent"), versionWords(r))
	case adminapi.RolloutFailed:
		return exitFailed, fmt.Sprintf("rollout %s failed: %d of %d. See them with `muster rollouts targets %s --state failed,rolled_back`, put them back with `muster rollouts rollback %s --scope failed`",
			called(r), bad(r.Counts), r.Counts.Total, r.Id, r.Id)
	case adminapi.RolloutRolledBack:
		return exitFailed, fmt.Sprintf("rollout %s was rolled back by %s", called(r), firstOf(deref(r.RolledBackBy), "another"))
	case adminapi.RolloutCancelled:
		return exitCancelled, fmt.Sprintf("rollout %s was cancelled: %d of %s run %s", called(r), r.Counts.Succeeded, counted(r.Counts.Total, "agent"), versionWords(r))
	case adminapi.RolloutDraft:
		return 1, fmt.Sprintf("rollout %s is a draft: start it with `muster rollouts start %s`", called(r), r.Id)
	case adminapi.RolloutPaused:
		return pausedOutcome(r, attended)
	case adminapi.RolloutRunning:
		for _, w := range deref(r.Waiting) {
			if w.Code == "approval" && !attended {
				return exitOperator, fmt.Sprintf("rollout %s waits for an approval: %s. Give it with `muster rollouts approve %s --wait`", called(r), sentence(w.Text), r.Id)
			}
		}
	}
	return 0, ""
}

func pausedOutcome(r adminapi.Rollout, attended bool) (code int, text string) {
	stop := deref(r.Stop)
	switch stop.Kind {
	case adminapi.StopThreshold, adminapi.StopCanary, adminapi.StopExposure, adminapi.StopDeadline:
		return exitGate, fmt.Sprintf("rollout %s is paused: %s. Go on with `muster rollouts resume %s --why …`, or back with `muster rollouts rollback %s --scope failed`", called(r), sentence(stop.Text), r.Id, r.Id)
	case adminapi.StopRollback:
		return 0, "" // it ends when its rollback does
	}
	if attended {
		return 0, ""
	}
	return exitOperator, fmt.Sprintf("rollout %s is paused: %s. Go on with `muster rollouts resume %s --wait`", called(r), firstOf(sentence(stop.Text), "an operator paused it"), r.Id)
}

// sentence is a sentence that goes on.
func sentence(s string) string { return strings.TrimSuffix(s, ".") }

// lines writes a line whenever something has changed.
func lines(w io.Writer) func(adminapi.Rollout, time.Time) {
	shown := ""
	return func(r adminapi.Rollout, now time.Time) {
		if line := progressLine(r); line != shown {
			shown = line
			fmt.Fprintf(w, "%s  %s\n", now.Format(time.TimeOnly), line)
		}
	}
}

func (a *app) newRolloutsWatch() *cobra.Command {
	var follow following
	cmd := &cobra.Command{
		Use:   "watch ROLLOUT",
		Short: "Follow a rollout to its end",
		Long: `Shows a rollout as it goes: redrawn on a terminal, else a line for each change.
It ends when the rollout does, or needs somebody; the exit code says which (see
` + "`muster rollouts --help`" + `). Ctrl-C stops following and leaves the rollout alone.`,
		Example:           "  muster rollouts watch ROLLOUT\n  muster rollouts watch ROLLOUT --timeout 5h > progress.log",
		Args:              oneRollout,
		ValidArgsFunction: a.completeRollouts("running", "paused", "cancelling"),
		RunE: func(cmd *cobra.Command, args []string) error {
			see := lines(cmd.OutOrStdout())
			switch {
			case a.output == "json":
				see = lines(cmd.ErrOrStderr())
			case isTerminal(cmd.OutOrStdout()):
				see = func(r adminapi.Rollout, now time.Time) {
					fmt.Fprint(cmd.OutOrStdout(), clearScreen)
					printRollout(cmd.OutOrStdout(), r, now, batchesWatched)
				}
			}
			return a.follow(cmd, args[0], follow, see)
		},
	}
	follow.registerTimeout(cmd.Flags())
	return cmd
}

const (
	// clearScreen moves to the top left and empties the terminal.
	clearScreen = "\x1b[H\x1b[2J"
	// batchesWatched fit a terminal of 24 lines with what stands around them.
	batchesWatched = 12
)
