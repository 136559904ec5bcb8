package cli

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
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

ROLLOUT` + findLong + `

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
	d := a.rolloutDrafts()
	cmd.AddCommand(
		a.newRolloutsCreate(), a.newRolloutsPreview(), a.newRolloutsStart(), a.newRolloutsList(), a.newRolloutsTargets(), a.newRolloutsAudit(), newRolloutsExample(),
		d.newWatch(a, "  muster rollouts watch ROLLOUT\n  muster rollouts watch ROLLOUT --timeout 5h > progress.log", "running", "paused", "cancelling"),
		showing(a, d.of(&cobra.Command{
			Use:   "status ROLLOUT",
			Short: "Show one rollout: its batches, what it waits for, what stopped it",
		}, nil), adminapi.GetRollout, func(w io.Writer, got adminapi.RolloutItem) { printRollout(w, got.Item, time.Now(), -1) }),
		showing(a, d.of(&cobra.Command{Use: "delete ROLLOUT", Short: "Delete a draft"}, []string{"draft"}), adminapi.DeleteRollout, saying[adminapi.ActionWord]("deleted")),
		a.newRolloutsPause(), a.newRolloutsCancel(), a.newRolloutsAdjust(), a.newRolloutsRetry(), a.newRolloutsSkip(), a.newRolloutsRollback(),
	)
	for _, verb := range rolloutVerbs {
		cmd.AddCommand(newReasoned(a, d, verb, staysPaused))
	}
	return cmd
}

// rolloutDrafts is what rollouts have in common with groups.
func (a *client) rolloutDrafts() drafted[adminapi.RolloutItem, adminapi.RolloutItem, adminapi.RolloutPreviewItem] {
	return drafted[adminapi.RolloutItem, adminapi.RolloutItem, adminapi.RolloutPreviewItem]{
		noun: "rollout", one: oneRollout, complete: a.completeRollouts,
		get: adminapi.GetRollout, preview: adminapi.PreviewRollout, start: adminapi.StartRollout,
		named: func(got adminapi.RolloutItem) (id, title, size string) {
			return got.Item.ID, nameAndID(got.Item), "for " + counted(got.Item.Counts.Total, "agent")
		},
		printPreview: func(w io.Writer, p adminapi.RolloutPreviewItem) { printRolloutPreview(w, p.Item, 0) },
		previewed:    previewedRollout,
		line:         func(got adminapi.RolloutItem) string { return progressLine(got.Item) },
		screen: func(w io.Writer, got adminapi.RolloutItem, now time.Time) {
			printRollout(w, got.Item, now, batchesWatched)
		},
		outcome: func(got adminapi.RolloutItem, interactive bool) (int, string) { return outcome(got.Item, interactive) },
	}
}

var oneRollout = oneArg("one rollout id: `muster rollouts list` shows them")

func newRolloutsExample() *cobra.Command {
	var ci bool
	cmd := newExample("Print a plan with every key explained", "  muster rollouts example > plan.yaml\n  muster rollouts example --ci > .github/workflows/rollout.yml", func() string {
		if ci {
			return exampleCI
		}
		return examplePlan
	})
	cmd.Flags().BoolVar(&ci, "ci", false, "print a CI pipeline that rolls a release out instead")
	return cmd
}

// inStates reads the newest items of a list that are in one of the states, or in any if there are none,
// up to limit. It filters itself, as the API filters the states of rollouts only.
func inStates[T, Out any](ctx context.Context, a *client, op adminapi.Operation[adminapi.None, Out], states []string, limit int, stateOf func(T) string) (paged[T], error) {
	all, err := everyPage[T](ctx, a, op, maxListed, nil)
	if err != nil {
		return all, err
	}
	if len(states) > 0 {
		all.Items = slices.DeleteFunc(all.Items, func(item T) bool { return !slices.Contains(states, stateOf(item)) })
		all.Total = len(all.Items)
	}
	all.Items = all.Items[:min(len(all.Items), limit)]
	all.PerPage = len(all.Items)
	return all, nil
}

// newListed returns the subcommand that lists things of a noun, such as rollout, which have states.
func newListed[T, Out any](a *client, noun string, op adminapi.Operation[adminapi.None, Out], known []string, stateOf func(T) string, r rows[T]) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List " + noun + "s, newest first",
		Example: "  muster " + noun + "s list --state running,paused",
		Args:    noArgs,
	}
	states := statesFlag(cmd, noun+"s", known)
	limit := cmd.Flags().Int("limit", 50, "maximum number of "+noun+"s to list")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, s := range *states {
			if !slices.Contains(known, s) {
				return &usageError{fmt.Errorf("--state is %q, want %s", s, strings.Join(known, ", "))}
			}
		}
		got, err := inStates(cmd.Context(), a, op, *states, *limit, stateOf)
		if err != nil {
			return err
		}
		return showPaged(a, cmd.OutOrStdout(), got, r)
	}
	return cmd
}

// completeListed completes the ids of things in these states, or of all if there are none.
func completeListed[T, Out any](a *client, op adminapi.Operation[adminapi.None, Out], states []string, describe func(T) (id, state, name string)) cobra.CompletionFunc {
	return completingFirst(func(ctx context.Context) ([]string, error) {
		list, err := inStates(ctx, a, op, states, pageSize, func(item T) string { _, state, _ := describe(item); return state })
		return each(list.Items, func(item T) string {
			id, state, name := describe(item)
			return id + "\t" + state + " " + name
		}), err
	})
}

// maxListed bounds how many items of a list are read. The server lists no agents beyond
// it, and rollouts number in the hundreds.
const maxListed = 10_000

var rolloutStates = []string{"draft", "running", "paused", "cancelling", "completed", "failed", "cancelled", "rolled_back"}

func (a *client) newRolloutsList() *cobra.Command {
	return newListed(a, "rollout", adminapi.ListRollouts, rolloutStates, func(r adminapi.Rollout) string { return string(r.State) }, rows[adminapi.Rollout]{
		empty:   "no rollouts: create one with `muster rollouts create`",
		heading: "ID\tNAME\tFLEET\tVERSION\tSTATE\tDONE\tFAILED\tWAITS FOR\tSTARTED",
		row: func(r adminapi.Rollout, now time.Time) []any {
			return []any{r.ID, r.Plan.Name, cmp.Or(r.Fleet, "-"), targetVersion(r), r.State, fmt.Sprintf("%d/%d", r.Counts.Succeeded, r.Counts.Total), failures(r.Counts), waitsFor(r, now), describeStart(r.StartedAt, now)}
		},
	})
}

func describeStart(at *time.Time, now time.Time) string {
	if at == nil {
		return "not yet"
	}
	return ago(at, now)
}

var targetStates = each(fleet.TargetStates[:], func(s fleet.TargetState) string { return string(s) })

func (a *client) newRolloutsTargets() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "targets ROLLOUT",
		Short:             "List the agents of a rollout, each with its state and the reason",
		Example:           "  muster rollouts targets ROLLOUT --state failed,rolled_back\n  muster rollouts targets ROLLOUT --batch 1 -o json | jq -r '.items[].agent_id'",
		Args:              oneRollout,
		ValidArgsFunction: a.completeRollouts(),
	}
	statesFlag(cmd, "agents", targetStates)
	batch := cmd.Flags().Int("batch", 0, "list only agents of this batch; the first is 1")
	limit := cmd.Flags().Int("limit", 1000, "maximum number of agents to list")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := query{"state": "--state"}.values(cmd)
		if cmd.Flags().Changed("batch") {
			if *batch < 1 {
				return &usageError{fmt.Errorf("--batch is %d, but the first batch is 1", *batch)}
			}
			q.Set("batch", fmt.Sprint(*batch-1)) // the API counts from 0
		}
		got, err := everyPage[adminapi.Target](cmd.Context(), a, adminapi.ListTargets, *limit, q, args[0])
		if err != nil {
			return err
		}
		return showPaged(a, cmd.OutOrStdout(), got, targets)
	}
	return cmd
}

var targets = rows[adminapi.Target]{heading: "HOST\tAGENT\tBATCH\tSTATE\tPHASE\tFROM\tTO\tTRIES\tWHY", row: func(t adminapi.Target, _ time.Time) []any {
	return []any{t.Hostname, t.AgentID, t.Batch + 1, t.State, cmp.Or(string(t.Reached), t.Phase, "-"), t.From, t.To, t.Attempts, cmp.Or(t.Error, spaced(string(t.Code)), "-")}
}}

// spaced returns a code such as rolled_back with spaces.
func spaced(code string) string { return strings.ReplaceAll(code, "_", " ") }

func (a *client) newRolloutsAudit() *cobra.Command {
	return listing(a, &cobra.Command{
		Use:               "audit ROLLOUT",
		Short:             "Show who did what to a rollout, and why, newest first",
		Args:              oneRollout,
		ValidArgsFunction: a.completeRollouts(),
	}, adminapi.ListAudit, nil, 100, "entries", trail)
}

// completeRollouts completes the ids of rollouts in these states, or of all if there are
// none.
func (a *client) completeRollouts(states ...string) cobra.CompletionFunc {
	return completeListed(a, adminapi.ListRollouts, states, func(r adminapi.Rollout) (id, state, name string) { return r.ID, string(r.State), r.Plan.Name })
}

// completing completes with words, which are read from the server; if they cannot be, with none.
func completing(read func(ctx context.Context) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		words, err := read(cmd.Context())
		if err != nil {
			words = nil
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completingFirst is completing of the first argument only.
func completingFirst(read func(ctx context.Context) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completing(read)(cmd, args, typed)
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
