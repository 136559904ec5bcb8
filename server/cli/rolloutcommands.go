package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// rolloutVerb is a command on a rollout that takes only a reason.
type rolloutVerb struct {
	op                adminapi.Operation[adminapi.WhyRequest, adminapi.RolloutItem]
	name, short, long string
	done              string   // printed afterwards
	states            []string // of the rollouts that shells complete
	needsWhy          bool
}

var rolloutVerbs = []rolloutVerb{
	{
		op: adminapi.ResumeRollout, name: "resume", short: "Resume a paused rollout", done: "Resumed rollout %s.", states: []string{"paused"},
		long: `Resume a paused rollout. If a gate paused it (failures, a canary, the exposure budget, a
deadline), --why is required. Failures so far no longer count towards the failure
threshold; later ones do.`,
	},
	{
		op: adminapi.ForceRollout, name: "force", short: "Continue a rollout and ignore its failure threshold from now on", done: "Rollout %s continues. Failures no longer pause it.",
		states: []string{"paused", "running"}, needsWhy: true,
		long: `Continue a rollout whose failure threshold was crossed, and ignore the threshold for the
rest of this rollout: only the exposure budget and operators can pause it then.
` + "`muster rollouts resume`" + ` continues with the threshold in place.`,
	},
	{
		op: adminapi.ApproveRollout, name: "approve", short: "Approve a rollout to continue after its canaries", done: "Approved rollout %s.", states: []string{"running", "paused"},
		long: "Approve the batches after the canaries, in a rollout whose plan requires an approval.",
	},
	{
		op: adminapi.PromoteRollout, name: "promote", short: "Continue a rollout without observation, soak and approval", done: "Promoted rollout %s.", states: []string{"paused", "running"}, needsWhy: true,
		long: `Promote a rollout: it waits no more for its canaries, their observation and approval, or a
soak. If failures paused it, it resumes, and failures so far no longer count; later ones
do. A deadline, windows, freezes, the exposure budget and an operator's pause hold.`,
	},
}

func (a *client) newRolloutsVerb(v rolloutVerb) *cobra.Command {
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
				return &usageError{fmt.Errorf("--why is missing: give the reason to continue, for the audit trail")}
			}
			got, err := call(cmd.Context(), a, v.op, adminapi.WhyRequest{Why: &why}, args[0])
			if err != nil {
				return err
			}
			return a.showOrFollow(cmd, got, follow, func(w io.Writer) {
				fmt.Fprintf(w, v.done+"\n", nameAndID(got.Item))
				if got.Item.State == fleet.RolloutPaused {
					fmt.Fprintf(w, "It stays paused. Resume it with `muster rollouts resume %s`.\n", got.Item.ID)
				}
			})
		},
	}
	whyFlag(cmd, &why)
	follow.register(cmd.Flags())
	return cmd
}

func (a *client) newRolloutsPause() *cobra.Command {
	var (
		now bool
		why string
	)
	cmd := &cobra.Command{
		Use:   "pause ROLLOUT",
		Short: "Pause after the current batch, or at once",
		Long: `Pause a rollout when its current batch has ended. With --now it pauses at once: offers
that no agent has begun are withdrawn, and upgrades under way still end.`,
		Example:           "  muster rollouts pause ROLLOUT --now --why \"latency alarms in fra\"",
		Args:              oneRollout,
		ValidArgsFunction: a.completeRollouts("running"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call(cmd.Context(), a, adminapi.PauseRollout, adminapi.PauseRolloutRequest{Now: &now, Why: &why}, args[0])
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				if got.Item.State == fleet.RolloutPaused {
					fmt.Fprintf(w, "Paused rollout %s. Resume it with `muster rollouts resume %s`.\n", nameAndID(got.Item), args[0])
					return
				}
				fmt.Fprintf(w, "Rollout %s pauses when its current batch has ended; use --now to pause it at once.\n", nameAndID(got.Item))
			})
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "pause at once and withdraw offers that no agent has begun")
	whyFlag(cmd, &why)
	return cmd
}

func (a *client) newRolloutsCancel() *cobra.Command {
	var (
		now    bool
		why    string
		follow following
	)
	cmd := &cobra.Command{
		Use:   "cancel ROLLOUT",
		Short: "Cancel a rollout; upgrades under way still end",
		Long: `Cancel a rollout: it offers no more upgrades and withdraws offers that no agent has
begun, and other rollouts may begin on its policies. Upgrades under way still end. It has
ended when its hosts have said how that ended, half an hour later at the latest: hosts may
carry out what was delivered to them before the cancellation.

With --now it lets go of the hosts in flight, too: other orders may take them, and it judges
the health of none any more. --now is also possible while the rollout is being cancelled.

Upgraded agents stay upgraded: to move them back, use ` + "`muster rollouts rollback`" + ` instead.`,
		Example:           "  muster rollouts cancel ROLLOUT --now --why \"the build is bad\"",
		Args:              oneRollout,
		ValidArgsFunction: a.completeRollouts("running", "paused", "cancelling"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call(cmd.Context(), a, adminapi.CancelRollout, adminapi.CancelRolloutRequest{Now: &now, Why: &why}, args[0])
			if err != nil {
				return err
			}
			return a.showOrFollow(cmd, got, follow, func(w io.Writer) {
				if now {
					fmt.Fprintf(w, "Cancelling rollout %s. It has let go of its hosts; what was delivered to them still ends.\n", nameAndID(got.Item))
					return
				}
				fmt.Fprintf(w, "Cancelling rollout %s. Upgrades under way still end.\n", nameAndID(got.Item))
			})
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "let go of the hosts in flight, too")
	whyFlag(cmd, &why)
	follow.register(cmd.Flags())
	return cmd
}

// adjustRequest is adminapi.AdjustRolloutRequest with the parts of a fleet.Plan.
type adjustRequest struct {
	Limits  *fleet.Limits      `json:"limits,omitempty"`
	Failure *fleet.FailureRule `json:"failure,omitempty"`
	Health  *fleet.HealthRule  `json:"health,omitempty"`
	Pace    *fleet.Pace        `json:"pace,omitempty"`
	Why     string             `json:"why,omitempty"`
}

func (a *client) newRolloutsAdjust() *cobra.Command {
	var (
		flags planFlags
		why   string
	)
	cmd := &cobra.Command{
		Use:   "adjust ROLLOUT",
		Short: "Change limits, thresholds, health wait and pace of a rollout under way",
		Long: `Give a rollout that is under way other limits, failure thresholds, another health wait or
another pace. What no flag names stays as it is. It takes effect at once, also for agents in
flight. A paused rollout stays paused.`,
		Example: `  muster rollouts adjust ROLLOUT --max-parallel 50 --max-failures 5
  muster rollouts adjust ROLLOUT --health-wait 5m --soak 1h --why "the night is short"`,
		Args:              oneRollout,
		ValidArgsFunction: a.completeRollouts("running", "paused"),
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed
			of := func(names ...string) bool { return slices.ContainsFunc(names, given) }
			limits, failure := of("max-parallel", "max-per"), of("max-failures", "max-failure-percent", "retries")
			health, pace := of("health-wait"), of("soak", "pause-on-success", "emergency")
			if !limits && !failure && !health && !pace {
				return &usageError{errors.New("nothing to adjust: say what changes, such as --max-parallel 50 (see --help)")}
			}
			is, err := ask(cmd.Context(), a, adminapi.Operation[adminapi.None, struct {
				Item struct {
					Plan fleet.Plan `json:"plan"`
				} `json:"item"`
			}]{Call: adminapi.GetRollout.Call}, nil, args[0])
			if err != nil {
				return err
			}
			p := is.Item.Plan
			if err := flags.override(given, &p); err != nil {
				return &usageError{err}
			}
			req := adjustRequest{Why: why}
			set(limits, &req.Limits, &p.Limits)
			set(failure, &req.Failure, &p.Failure)
			set(health, &req.Health, &p.Health)
			set(pace, &req.Pace, &p.Pace)
			got, err := call(cmd.Context(), a, adminapi.Operation[adjustRequest, adminapi.RolloutItem]{Call: adminapi.AdjustRollout.Call}, req, args[0])
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				fmt.Fprintf(w, "Adjusted rollout %s. See what changed with `muster rollouts audit %s`.\n", nameAndID(got.Item), got.Item.ID)
			})
		},
	}
	flags.registerRules(cmd.Flags())
	whyFlag(cmd, &why)
	return cmd
}

func (a *client) newRolloutsRetry() *cobra.Command {
	var (
		why       string
		allFailed bool
	)
	cmd := &cobra.Command{
		Use:               "retry ROLLOUT [AGENT…]",
		Short:             "Retry agents that failed, expired or were withdrawn",
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
			got, err := call(cmd.Context(), a, adminapi.RetryTargets, targetsOf(agents, why), args[0])
			if err != nil {
				return err
			}
			what := counted(len(agents), "agent")
			if allFailed {
				what = "all failed agents"
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { fmt.Fprintf(w, "Rollout %s retries %s.\n", nameAndID(got.Item), what) })
		},
	}
	cmd.Flags().BoolVar(&allFailed, "all-failed", false, "retry every failed agent")
	whyFlag(cmd, &why)
	return cmd
}

func (a *client) newRolloutsSkip() *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use:   "skip ROLLOUT AGENT…",
		Short: "Skip agents in a rollout",
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
			got, err := call(cmd.Context(), a, adminapi.SkipTargets, targetsOf(agents, why), args[0])
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				fmt.Fprintf(w, "Rollout %s skips %s.\n", nameAndID(got.Item), counted(len(args)-1, "agent"))
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

func (a *client) newRolloutsRollback() *cobra.Command {
	var (
		scope, why string
		owner      takeOver
		follow     following
	)
	cmd := &cobra.Command{
		Use:   "rollback ROLLOUT --scope failed|all",
		Short: "Roll the agents of a rollout back, with a new rollout",
		Long: `Create and start a rollout that moves the agents of this one back, each to its last
healthy version. It starts at once and has no canaries. --scope failed selects the agents
that failed, --scope all also those that succeeded. Running the command again returns the
same rollout.`,
		Example:           "  muster rollouts rollback ROLLOUT --scope all --why OPS-1234 --wait",
		Args:              oneRollout,
		ValidArgsFunction: a.completeRollouts("running", "paused", "completed", "failed", "cancelled"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if scope != "failed" && scope != "all" {
				return &usageError{fmt.Errorf("--scope is %q, want failed (agents that failed) or all (also agents that succeeded)", scope)}
			}
			got, err := ordered(cmd, &owner, func(name *string) (adminapi.RolloutItem, error) {
				return call(cmd.Context(), a, adminapi.RollbackRollout, adminapi.RollbackRolloutRequest{Scope: adminapi.RollbackScope(scope), Why: &why, TakeOver: name}, args[0])
			})
			if err != nil {
				return err
			}
			id := got.Item.ID
			return a.showOrFollow(cmd, got, follow, func(w io.Writer) {
				fmt.Fprintf(w, "Rollout %s rolls back %s of %s.\nFollow it with `muster rollouts watch %s`.\n", nameAndID(got.Item), counted(got.Item.Counts.Total, "agent"), args[0], id)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&scope, "scope", "", "agents to roll back: failed or all (required)")
	whyFlag(cmd, &why)
	owner.flag(a, cmd)
	follow.register(f)
	_ = cmd.RegisterFlagCompletionFunc("scope", completeWords([]string{"failed", "all"}))
	return cmd
}
