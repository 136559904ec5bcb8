package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/adminapi"
)

// rolloutVerb is a command on a rollout that takes a reason alone.
type rolloutVerb struct {
	name, short, long string
	done              string   // what is printed
	states            []string // to complete
	needsWhy, waits   bool
}

var rolloutVerbs = []rolloutVerb{
	{
		name: "resume", short: "Go on with a paused rollout", done: "Rollout %s goes on.", states: []string{"paused"}, waits: true,
		long: `Goes on with a paused rollout. After a gate (too many failures, a failed canary,
the exposure budget, a deadline) it needs --why; the failures so far no longer
count, and the next ones do.`,
	},
	{
		name: "force", short: "Go on although too many have failed, and never stop for failures again", done: "Rollout %s goes on; failures no longer stop it.",
		states: []string{"paused", "running"}, needsWhy: true, waits: true,
		long: `Goes on although the failure threshold was crossed. The failures so far are
forgiven, and the threshold is not looked at again in this rollout: only the
exposure budget and you can stop it. ` + "`muster rollouts resume`" + ` goes on with the
threshold in place.`,
	},
	{
		name: "approve", short: "Let a rollout go on behind its canaries", done: "Rollout %s is approved.", states: []string{"running", "paused"}, waits: true,
		long: "Lets a rollout go on with the batches behind its canaries, where the plan asks for an approval.",
	},
	{
		name: "cancel", short: "Offer nothing more; what has begun ends by itself", done: "Rollout %s is being cancelled: what has begun ends by itself.",
		states: []string{"running", "paused"}, waits: true,
		long: `Ends a rollout: nothing more is offered, offers that have not begun are taken
back, upgrades that have begun end by themselves. What is upgraded stays upgraded:
to put it back, use ` + "`muster rollouts rollback`" + ` instead.`,
	},
}

func (a *app) newRolloutsVerb(v rolloutVerb) *cobra.Command {
	var (
		why    string
		follow following
	)
	cmd := &cobra.Command{
		Use:               v.name + " ROLLOUT",
		Short:             v.short,
		Long:              v.long,
		Args:              oneRollout,
		ValidArgsFunction: a.completeRollouts(v.states...),
		RunE: func(cmd *cobra.Command, args []string) error {
			if v.needsWhy && why == "" {
				return &usageError{fmt.Errorf("--why is missing: say why it may go on; the audit trail keeps it")}
			}
			got, err := call[adminapi.RolloutItem](cmd.Context(), a, http.MethodPost, rolloutPath(args[0], v.name), adminapi.WhyRequest{Why: &why})
			if err != nil {
				return err
			}
			return a.showOrFollow(cmd, got, follow, func(w io.Writer) { fmt.Fprintf(w, v.done+"\n", called(got.Item)) })
		},
	}
	whyFlag(cmd, &why)
	follow.register(cmd.Flags())
	return cmd
}

func (a *app) newRolloutsPause() *cobra.Command {
	var (
		now bool
		why string
	)
	cmd := &cobra.Command{
		Use:   "pause ROLLOUT",
		Short: "Pause after the current batch, or at once",
		Long: `Pauses a rollout when the current batch has ended. With --now nothing more is
offered from this moment on, and what was offered and has not begun is taken back;
upgrades that have begun end by themselves.`,
		Example:           "  muster rollouts pause ROLLOUT --now --why \"latency alarms in fra\"",
		Args:              oneRollout,
		ValidArgsFunction: a.completeRollouts("running"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call[adminapi.RolloutItem](cmd.Context(), a, http.MethodPost, rolloutPath(args[0], "pause"), adminapi.PauseRolloutRequest{Now: &now, Why: &why})
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				if got.Item.State == adminapi.RolloutPaused {
					fmt.Fprintf(w, "Rollout %s is paused. Go on with `muster rollouts resume %s`.\n", called(got.Item), args[0])
					return
				}
				fmt.Fprintf(w, "Rollout %s pauses when its current batch has ended; --now stops it at once.\n", called(got.Item))
			})
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "at once, and take back what has not begun")
	whyFlag(cmd, &why)
	return cmd
}

func (a *app) newRolloutsRetry() *cobra.Command {
	var (
		why       string
		allFailed bool
	)
	cmd := &cobra.Command{
		Use:               "retry ROLLOUT [AGENT…]",
		Short:             "Put failed, withdrawn and expired agents back in line",
		Example:           "  muster rollouts retry ROLLOUT web-01\n  muster rollouts retry ROLLOUT --all-failed",
		Args:              rolloutAndAgents,
		ValidArgsFunction: a.completeRollouts("running", "paused"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if allFailed == (len(args) > 1) {
				return &usageError{errors.New("name the agents to retry, or pass --all-failed")}
			}
			agents, err := a.agentIDs(cmd.Context(), args[1:])
			if err != nil {
				return err
			}
			got, err := call[adminapi.RolloutItem](cmd.Context(), a, http.MethodPost, rolloutPath(args[0], "retry"), targetsOf(agents, why))
			if err != nil {
				return err
			}
			what := counted(len(agents), "agent")
			if allFailed {
				what = "all that failed"
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { fmt.Fprintf(w, "Rollout %s tries %s again.\n", called(got.Item), what) })
		},
	}
	cmd.Flags().BoolVar(&allFailed, "all-failed", false, "every agent that failed")
	whyFlag(cmd, &why)
	return cmd
}

func (a *app) newRolloutsSkip() *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use:   "skip ROLLOUT AGENT…",
		Short: "Leave agents out of a rollout",
		Args: func(c *cobra.Command, args []string) error {
			if err := rolloutAndAgents(c, args); err != nil {
				return err
			}
			return someAgents(c, args[1:])
		},
		ValidArgsFunction: a.completeRollouts("running", "paused"),
		RunE: func(cmd *cobra.Command, args []string) error {
			agents, err := a.agentIDs(cmd.Context(), args[1:])
			if err != nil {
				return err
			}
			got, err := call[adminapi.RolloutItem](cmd.Context(), a, http.MethodPost, rolloutPath(args[0], "skip"), targetsOf(agents, why))
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				fmt.Fprintf(w, "Rollout %s leaves %s out.\n", called(got.Item), counted(len(args)-1, "agent"))
			})
		},
	}
	whyFlag(cmd, &why)
	return cmd
}

func rolloutAndAgents(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want one rollout id, and agents (see `%s --help`)", c.CommandPath())
	}
	return nil
}

func targetsOf(agents []string, why string) adminapi.TargetsRequest {
	req := adminapi.TargetsRequest{Why: &why}
	if len(agents) > 0 {
		req.Agents = &agents
	}
	return req
}

func (a *app) newRolloutsRollback() *cobra.Command {
	var (
		scope, why string
		follow     following
	)
	cmd := &cobra.Command{
		Use:   "rollback ROLLOUT --scope failed|all",
		Short: "Put agents back to their last healthy versions, as a new rollout",
		Long: `Makes and starts a rollout that puts the agents of this one back, each to the
last healthy version. It begins at once and waits for no canaries.
--scope failed puts back what failed, wherever it stands; all also what succeeded.
Asked again it is the same rollout.`,
		Example:           "  muster rollouts rollback ROLLOUT --scope all --why OPS-1234 --wait",
		Args:              oneRollout,
		ValidArgsFunction: a.completeRollouts("running", "paused", "completed", "failed", "cancelled"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if scope != "failed" && scope != "all" {
				return &usageError{fmt.Errorf("--scope is %q, want failed (what failed) or all (and what succeeded)", scope)}
			}
			got, err := call[adminapi.RolloutItem](cmd.Context(), a, http.MethodPost, rolloutPath(args[0], "rollback"),
				adminapi.RollbackRolloutRequest{Scope: adminapi.RollbackScope(scope), Why: &why})
			if err != nil {
				return err
			}
			id := got.Item.Id
			return a.showOrFollow(cmd, got, follow, func(w io.Writer) {
				fmt.Fprintf(w, "Rollout %s puts back %s of %s.\nFollow it with `muster rollouts watch %s`.\n", called(got.Item), counted(got.Item.Counts.Total, "agent"), args[0], id)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&scope, "scope", "", "failed, or all (required)")
	whyFlag(cmd, &why)
	follow.register(f)
	_ = cmd.RegisterFlagCompletionFunc("scope", completeWords([]string{"failed", "all"}))
	return cmd
}
