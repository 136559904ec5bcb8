package cli

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

// examplePlan is a plan with every key explained.
//
//go:embed example/plan.yaml
var examplePlan string

// exampleCI is a CI pipeline that rolls a release out.
//
//go:embed example/ci-rollout.yml
var exampleCI string

func (a *client) newRollouts() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollouts",
		Short: "Upgrade many agents in batches: preview, start, follow, pause, roll back",
		Long: `A rollout upgrades many agents in batches, and pauses by itself when too many fail. It
is created as a draft, previewed, and started exactly as previewed.

  muster rollouts create --version 1.1.0 --policy web --canary 5 --start
  muster rollouts watch ROLLOUT
  muster agents why AGENT

` + "`muster rollouts example`" + ` prints a plan with every key explained, and with --ci a
pipeline that uses these commands.

Commands that follow a rollout (--wait, watch) exit with
  0  it completed
  1  another error; the rollout is unchanged
  2  wrong flags or arguments
  3  it failed, or was rolled back
  4  a gate paused it: failures, a canary, the exposure budget, a deadline, or
     targets of a rollout in lockstep that are not ready
  5  it was cancelled
  6  it waits for an operator: an approval, or a pause (only without a terminal;
     on a terminal the command keeps following)`,
	}
	cmd.AddCommand(
		a.newRolloutsCreate(), a.newRolloutsPreview(), a.newRolloutsStart(), a.newRolloutsList(), a.newRolloutsStatus(), a.newRolloutsWatch(),
		a.newRolloutsTargets(), a.newRolloutsAudit(), a.newRolloutsDelete(), newRolloutsExample(),
		a.newRolloutsPause(), a.newRolloutsCancel(), a.newRolloutsAdjust(), a.newRolloutsRetry(), a.newRolloutsSkip(), a.newRolloutsRollback(),
	)
	for _, verb := range rolloutVerbs {
		cmd.AddCommand(a.newRolloutsVerb(verb))
	}
	return cmd
}

func (a *client) rollout(ctx context.Context, id string) (adminapi.RolloutItem, error) {
	return ask(ctx, a, adminapi.GetRollout, nil, id)
}

var oneRollout = oneArg("one rollout id: `muster rollouts list` shows them")

func newRolloutsExample() *cobra.Command {
	var ci bool
	cmd := &cobra.Command{
		Use:     "example",
		Short:   "Print a plan with every key explained",
		Example: "  muster rollouts example > plan.yaml\n  muster rollouts example --ci > .github/workflows/rollout.yml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := examplePlan
			if ci {
				text = exampleCI
			}
			_, err := io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().BoolVar(&ci, "ci", false, "print a CI pipeline that rolls a release out instead")
	return cmd
}

// everyPage reads a list page by page, up to limit items. get gets the query q with the page to
// read. total is the length of the whole list.
func everyPage[T any](limit int, q url.Values, get func(q url.Values) (items []T, total int, err error)) (all []T, total int, err error) {
	return everyPageOf(pageSize, limit, q, get)
}

// everyPageOf is everyPage for a list whose pages have a size of their own.
func everyPageOf[T any](size, limit int, q url.Values, get func(q url.Values) (items []T, total int, err error)) (all []T, total int, err error) {
	all = []T{}
	paged := url.Values{"perPage": {fmt.Sprint(size)}}
	maps.Copy(paged, q)
	for page := 1; ; page++ {
		paged.Set("page", fmt.Sprint(page))
		items, n, err := get(paged)
		if err != nil {
			return nil, 0, err
		}
		all, total = append(all, items...), n
		if len(items) < size || len(all) >= limit {
			return all[:min(len(all), limit)], total, nil
		}
	}
}

func (a *client) rollouts(ctx context.Context, states []string, limit int) (adminapi.RolloutList, error) {
	all, total, err := everyPage(maxListed, nil, func(q url.Values) ([]adminapi.Rollout, int, error) {
		got, err := ask(ctx, a, adminapi.ListRollouts, q)
		return got.Items, got.Total, err
	})
	if err != nil {
		return adminapi.RolloutList{}, err
	}
	if len(states) > 0 {
		all = slices.DeleteFunc(all, func(r adminapi.Rollout) bool { return !slices.Contains(states, string(r.State)) })
		total = len(all)
	}
	all = all[:min(len(all), limit)]
	return adminapi.RolloutList{Items: all, Total: total, Page: 1, PerPage: len(all)}, nil
}

// maxListed bounds how many items of a list are read. The server lists no agents beyond
// it, and rollouts number in the hundreds.
const maxListed = 10_000

var rolloutStates = []string{"draft", "running", "paused", "cancelling", "completed", "failed", "cancelled", "rolled_back"}

func (a *client) newRolloutsList() *cobra.Command {
	var (
		states []string
		limit  int
	)
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List rollouts, newest first",
		Example: "  muster rollouts list --state running,paused",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range states {
				if !slices.Contains(rolloutStates, s) {
					return &usageError{fmt.Errorf("--state is %q, want %s", s, strings.Join(rolloutStates, ", "))}
				}
			}
			got, err := a.rollouts(cmd.Context(), states, limit)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				if len(got.Items) == 0 {
					fmt.Fprintln(w, "no rollouts: create one with `muster rollouts create`")
					return
				}
				now := time.Now()
				table(w, "ID\tNAME\tFLEET\tVERSION\tSTATE\tDONE\tFAILED\tWAITS FOR\tSTARTED", func(add func(...any)) {
					for _, r := range got.Items {
						add(r.Id, r.Plan.Name, firstOf(deref(r.Fleet), "-"), targetVersion(r), r.State, fmt.Sprintf("%d/%d", r.Counts.Succeeded, r.Counts.Total), failures(r.Counts), waitsFor(r, now), describeStart(r, now))
					}
				})
				if got.Total > len(got.Items) {
					fmt.Fprintf(w, "… and %d more: see --limit\n", got.Total-len(got.Items))
				}
			})
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "list only rollouts in these states: "+strings.Join(rolloutStates, ", "))
	cmd.Flags().IntVar(&limit, "limit", 50, "maximum number of rollouts to list")
	_ = cmd.RegisterFlagCompletionFunc("state", completeWords(rolloutStates))
	return cmd
}

func describeStart(r adminapi.Rollout, now time.Time) string {
	if r.StartedAt == nil {
		return "not yet"
	}
	return ago(r.StartedAt, now)
}

func (a *client) newRolloutsStatus() *cobra.Command {
	return &cobra.Command{
		Use:               "status ROLLOUT",
		Short:             "Show one rollout: its batches, what it waits for, what stopped it",
		Args:              oneRollout,
		ValidArgsFunction: a.completeRollouts(),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := a.rollout(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { printRollout(w, got.Item, time.Now(), -1) })
		},
	}
}

// reachedWords is the phase that a target has reached in lockstep.
func reachedWords(t adminapi.Target) string { return string(deref(t.Reached)) }

var targetStates = []string{"pending", "held", "offered", "upgrading", "verifying", "succeeded", "failed", "rolled_back", "withdrawn", "skipped", "expired", "cancelled"}

func (a *client) newRolloutsTargets() *cobra.Command {
	var (
		states []string
		batch  int
		limit  int
	)
	cmd := &cobra.Command{
		Use:               "targets ROLLOUT",
		Short:             "List the agents of a rollout, each with its state and the reason",
		Example:           "  muster rollouts targets ROLLOUT --state failed,rolled_back\n  muster rollouts targets ROLLOUT --batch 1 -o json | jq -r '.items[].agent_id'",
		Args:              oneRollout,
		ValidArgsFunction: a.completeRollouts(),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := url.Values{"state": states}
			if cmd.Flags().Changed("batch") {
				if batch < 1 {
					return &usageError{fmt.Errorf("--batch is %d, but the first batch is 1", batch)}
				}
				q.Set("batch", fmt.Sprint(batch-1)) // the API counts from 0
			}
			all, total, err := everyPage(limit, q, func(q url.Values) ([]adminapi.Target, int, error) {
				got, err := ask(cmd.Context(), a, adminapi.ListTargets, q, args[0])
				return got.Items, got.Total, err
			})
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), adminapi.TargetList{Items: all, Total: total, Page: 1, PerPage: len(all)}, func(w io.Writer) {
				table(w, "HOST\tAGENT\tBATCH\tSTATE\tPHASE\tFROM\tTO\tTRIES\tWHY", func(add func(...any)) {
					for _, t := range all {
						add(t.Hostname, t.AgentId, t.Batch+1, t.State, firstOf(reachedWords(t), deref(t.Phase), "-"), t.From, t.To, t.Attempts, firstOf(deref(t.Error), spaced(deref(t.Code)), "-"))
					}
				})
				if total > len(all) {
					fmt.Fprintf(w, "… and %d more: see --limit\n", total-len(all))
				}
			})
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "list only agents in these states: "+strings.Join(targetStates, ", "))
	cmd.Flags().IntVar(&batch, "batch", 0, "list only agents of this batch; the first is 1")
	cmd.Flags().IntVar(&limit, "limit", 1000, "maximum number of agents to list")
	_ = cmd.RegisterFlagCompletionFunc("state", completeWords(targetStates))
	return cmd
}

// spaced returns a code such as rolled_back with spaces.
func spaced(code string) string { return strings.ReplaceAll(code, "_", " ") }

func (a *client) newRolloutsAudit() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:               "audit ROLLOUT",
		Short:             "Show who did what to a rollout, and why, newest first",
		Args:              oneRollout,
		ValidArgsFunction: a.completeRollouts(),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, total, err := everyPage(limit, nil, func(q url.Values) ([]adminapi.AuditEntry, int, error) {
				got, err := ask(cmd.Context(), a, adminapi.ListAudit, q, args[0])
				return got.Items, got.Total, err
			})
			if err != nil {
				return err
			}
			return a.showTrail(cmd.OutOrStdout(), all, total)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number of entries to list")
	return cmd
}

func (a *client) newRolloutsDelete() *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use:               "delete ROLLOUT",
		Short:             "Delete a draft",
		Args:              oneRollout,
		ValidArgsFunction: a.completeRollouts("draft"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := ask(cmd.Context(), a, adminapi.DeleteRollout, url.Values{"why": {why}}, args[0])
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { fmt.Fprintln(w, "deleted") })
		},
	}
	whyFlag(cmd, &why)
	return cmd
}

func whyFlag(cmd *cobra.Command, why *string) {
	cmd.Flags().StringVar(why, "why", "", "reason for the audit trail")
}

// completeRollouts completes the ids of rollouts in these states, or of all if there are
// none.
func (a *client) completeRollouts(states ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, err := a.rollouts(cmd.Context(), states, pageSize)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []string
		for _, r := range list.Items {
			out = append(out, r.Id+"\t"+string(r.State)+" "+r.Plan.Name)
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

func completeWords(words []string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// driftOf returns the drift that a refusal reports, or nil if err is another error.
func driftOf(err error) *adminapi.DriftRefusal {
	var refused *refusal
	if !errors.As(err, &refused) {
		return nil
	}
	var d adminapi.DriftRefusal
	if json.Unmarshal(refused.body, &d) != nil || d.Drift == nil {
		return nil
	}
	return &d
}
