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

// whyContinue is why a command that goes on in spite of a gate needs a reason.
const whyContinue = "give the reason to continue, for the audit trail"

var rolloutVerbs = []reasoned[adminapi.RolloutItem]{
	{
		op: adminapi.ResumeRollout, name: "resume", short: "Resume a paused rollout", done: "Resumed rollout %s.", states: []string{"paused"},
		long: `Resume a paused rollout. If a gate paused it (failures, a canary, the exposure budget, a
deadline), --why is required. Failures so far no longer count towards the failure
threshold; later ones do.`,
	},
	{
		op: adminapi.ForceRollout, name: "force", short: "Continue a rollout and ignore its failure threshold from now on", done: "Rollout %s continues. Failures no longer pause it.",
		states: []string{"paused", "running"}, needsWhy: whyContinue,
		long: `Continue a rollout whose failure threshold was crossed, and ignore the threshold for the
rest of this rollout: only the exposure budget and operators can pause it then.
` + "`muster rollouts resume`" + ` continues with the threshold in place.`,
	},
	{
		op: adminapi.ApproveRollout, name: "approve", short: "Approve a rollout to continue after its canaries", done: "Approved rollout %s.", states: []string{"running", "paused"},
		long: "Approve the batches after the canaries, in a rollout whose plan requires an approval.",
	},
	{
		op: adminapi.PromoteRollout, name: "promote", short: "Continue a rollout without observation, soak and approval", done: "Promoted rollout %s.", states: []string{"paused", "running"}, needsWhy: whyContinue,
		long: `Promote a rollout: it waits no more for its canaries, their observation and approval, or a
soak. If failures paused it, it resumes, and failures so far no longer count; later ones
do. A deadline, windows, freezes, the exposure budget and an operator's pause hold.`,
	},
}

// staysPaused is added to what a subcommand prints if the rollout stays paused.
func staysPaused(got adminapi.RolloutItem) string {
	if got.Item.State != fleet.RolloutPaused {
		return ""
	}
	return fmt.Sprintf("\nIt stays paused. Resume it with `muster rollouts resume %s`.", got.Item.ID)
}

func (a *client) newRolloutsPause() *cobra.Command {
	var req adminapi.PauseRolloutRequest
	req.Now = new(bool)
	cmd := commanding(a, a.rolloutDrafts(), &cobra.Command{
		Use:   "pause ROLLOUT",
		Short: "Pause after the current batch, or at once",
		Long: `Pause a rollout when its current batch has ended. With --now it pauses at once: offers
that no agent has begun are withdrawn, and upgrades under way still end.`,
		Example: "  muster rollouts pause ROLLOUT --now --why \"latency alarms in fra\"",
	}, []string{"running"}, adminapi.PauseRollout, body(&req), func(got adminapi.RolloutItem, args []string) string {
		if got.Item.State == fleet.RolloutPaused {
			return fmt.Sprintf("Paused rollout %s. Resume it with `muster rollouts resume %s`.", nameAndID(got.Item), args[0])
		}
		return fmt.Sprintf("Rollout %s pauses when its current batch has ended; use --now to pause it at once.", nameAndID(got.Item))
	}, nil)
	cmd.Flags().BoolVar(req.Now, "now", false, "pause at once and withdraw offers that no agent has begun")
	return cmd
}

func (a *client) newRolloutsCancel() *cobra.Command {
	var req adminapi.CancelRolloutRequest
	req.Now = new(bool)
	cmd := commanding(a, a.rolloutDrafts(), &cobra.Command{
		Use:   "cancel ROLLOUT",
		Short: "Cancel a rollout; upgrades under way still end",
		Long: `Cancel a rollout: it offers no more upgrades and withdraws offers that no agent has
begun, and other rollouts may begin on its policies. Upgrades under way still end. It has
ended when its hosts have said how that ended, half an hour later at the latest: hosts may
carry out what was delivered to them before the cancellation.

With --now it lets go of the hosts in flight, too: other orders may take them, and it judges
the health of none any more. --now is also possible while the rollout is being cancelled.

Upgraded agents stay upgraded: to move them back, use ` + "`muster rollouts rollback`" + ` instead.`,
		Example: "  muster rollouts cancel ROLLOUT --now --why \"the build is bad\"",
	}, []string{"running", "paused", "cancelling"}, adminapi.CancelRollout, body(&req), func(got adminapi.RolloutItem, _ []string) string {
		how := "Upgrades under way still end."
		if *req.Now {
			how = "It has let go of its hosts; what was delivered to them still ends."
		}
		return fmt.Sprintf("Cancelling rollout %s. %s", nameAndID(got.Item), how)
	}, new(following))
	cmd.Flags().BoolVar(req.Now, "now", false, "let go of the hosts in flight, too")
	return cmd
}

// adjustRequest is adminapi.AdjustRolloutRequest with the parts of a fleet.Plan.
type adjustRequest struct {
	Limits  *fleet.Limits      `json:"limits,omitempty"`
	Failure *fleet.FailureRule `json:"failure,omitempty"`
	Health  *fleet.HealthRule  `json:"health,omitempty"`
	Pace    *fleet.Pace        `json:"pace,omitempty"`
	Why     *string            `json:"why,omitempty"`
}

func (a *client) newRolloutsAdjust() *cobra.Command {
	var flags planFlags
	cmd := commanding(a, a.rolloutDrafts(), &cobra.Command{
		Use:   "adjust ROLLOUT",
		Short: "Change limits, thresholds, health wait and pace of a rollout under way",
		Long: `Give a rollout that is under way other limits, failure thresholds, another health wait or
another pace. What no flag names stays as it is. It takes effect at once, also for agents in
flight. A paused rollout stays paused.`,
		Example: `  muster rollouts adjust ROLLOUT --max-parallel 50 --max-failures 5
  muster rollouts adjust ROLLOUT --health-wait 5m --soak 1h --why "the night is short"`,
	}, []string{"running", "paused"}, adminapi.Operation[adjustRequest, adminapi.RolloutItem]{Call: adminapi.AdjustRollout.Call}, func(cmd *cobra.Command, args []string) (req adjustRequest, err error) {
		given := cmd.Flags().Changed
		of := func(names ...string) bool { return slices.ContainsFunc(names, given) }
		limits, failure := of("max-parallel", "max-per"), of("max-failures", "max-failure-percent", "retries")
		health, pace := of("health-wait"), of("soak", "pause-on-success", "emergency")
		if !limits && !failure && !health && !pace {
			return req, &usageError{errors.New("nothing to adjust: say what changes, such as --max-parallel 50 (see --help)")}
		}
		is, err := ask(cmd.Context(), a, adminapi.GetRollout, nil, args[0])
		if err != nil {
			return req, err
		}
		p := is.Item.Plan
		if err := flags.override(cmd.Flags(), &p); err != nil {
			return req, &usageError{err}
		}
		set(limits, &req.Limits, &p.Limits)
		set(failure, &req.Failure, &p.Failure)
		set(health, &req.Health, &p.Health)
		set(pace, &req.Pace, &p.Pace)
		return req, nil
	}, func(got adminapi.RolloutItem, _ []string) string {
		return fmt.Sprintf("Adjusted rollout %s. See what changed with `muster rollouts audit %s`.", nameAndID(got.Item), got.Item.ID)
	}, nil)
	flags.registerRules(cmd.Flags())
	return cmd
}

func (a *client) newRolloutsRetry() *cobra.Command {
	var allFailed bool
	cmd := commanding(a, a.rolloutDrafts(), &cobra.Command{
		Use:     "retry ROLLOUT [AGENT…]",
		Short:   "Retry agents that failed, expired or were withdrawn",
		Example: "  muster rollouts retry ROLLOUT web-01\n  muster rollouts retry ROLLOUT --all-failed",
		Args:    rolloutAndAgents,
	}, []string{"running", "paused"}, adminapi.RetryTargets, func(cmd *cobra.Command, args []string) (req adminapi.TargetsRequest, err error) {
		if allFailed == (len(args) > 1) {
			return req, &usageError{errors.New("name the agents to retry, or pass --all-failed")}
		}
		return a.targetsOf(cmd, args)
	}, func(got adminapi.RolloutItem, args []string) string {
		what := counted(len(args)-1, "agent")
		if allFailed {
			what = "all failed agents"
		}
		return fmt.Sprintf("Rollout %s retries %s.", nameAndID(got.Item), what)
	}, nil)
	cmd.Flags().BoolVar(&allFailed, "all-failed", false, "retry every failed agent")
	return cmd
}

func (a *client) newRolloutsSkip() *cobra.Command {
	return commanding(a, a.rolloutDrafts(), &cobra.Command{
		Use:   "skip ROLLOUT AGENT…",
		Short: "Skip agents in a rollout",
		Args: func(c *cobra.Command, args []string) error {
			if err := rolloutAndAgents(c, args); err != nil {
				return err
			}
			return someAgents(c, args[1:])
		},
	}, []string{"running", "paused"}, adminapi.SkipTargets, a.targetsOf, func(got adminapi.RolloutItem, args []string) string {
		return fmt.Sprintf("Rollout %s skips %s.", nameAndID(got.Item), counted(len(args)-1, "agent"))
	}, nil)
}

func rolloutAndAgents(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want one rollout id, and agents (see `%s --help`)", c.CommandPath())
	}
	return nil
}

// targetsOf returns the request for the agents that follow the rollout in the arguments.
func (a *client) targetsOf(cmd *cobra.Command, args []string) (req adminapi.TargetsRequest, err error) {
	agents, err := a.agentIDs(cmd.Context(), args[1:])
	if len(agents) > 0 {
		req.Agents = &agents
	}
	return req, err
}

func (a *client) newRolloutsRollback() *cobra.Command {
	var (
		scope  string
		owner  takeOver
		follow following
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
				return call(cmd.Context(), a, adminapi.RollbackRollout, adminapi.RollbackRolloutRequest{Scope: adminapi.RollbackScope(scope), TakeOver: name}, args[0])
			})
			if err != nil {
				return err
			}
			id := got.Item.ID
			return a.rolloutDrafts().showOrFollow(a, cmd, got, follow, func(w io.Writer) {
				fmt.Fprintf(w, "Rollout %s rolls back %s of %s.\nFollow it with `muster rollouts watch %s`.\n", nameAndID(got.Item), counted(got.Item.Counts.Total, "agent"), args[0], id)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&scope, "scope", "", "agents to roll back: failed or all (required)")
	owner.flag(a, cmd)
	follow.register(f, "rollout")
	_ = cmd.RegisterFlagCompletionFunc("scope", completeWords([]string{"failed", "all"}))
	return cmd
}
