package cli

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/terminal"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// exampleGroup is a group with every key explained.
//
//go:embed example/group.yaml
var exampleGroup string

func (a *client) newGroups() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "groups",
		Short: "Upgrade several things one after the other: groups of rollouts",
		Long: `A group upgrades several things one after the other, each with a rollout, such as a
database before the programs that use it. Its failure policy says what happens to those
that are done when one fails.

  muster groups example > group.yaml
  muster groups create --file group.yaml --start
  muster groups watch GROUP

GROUP` + findLong + `

Commands that follow a group (--wait, watch) exit with
  0  it completed
  1  another error; the group is unchanged
  2  wrong flags or arguments
  3  it failed, ended partial, or was rolled back
  4  it stopped by itself: a member failed, the fleet had changed, or a start was refused
  5  it was cancelled
  6  an operator paused it (only without a terminal; on a terminal the command keeps
     following)`,
	}
	cmd.AddCommand(
		a.newGroupsCreate(), a.newGroupsPreview(), a.newGroupsStart(), a.newGroupsList(), a.newGroupsShow(), a.newGroupsWatch(),
		a.newGroupsPause(), a.newGroupsSkip(), a.newGroupsDelete(), newGroupsExample(),
	)
	for _, verb := range groupVerbs {
		cmd.AddCommand(a.newGroupsVerb(verb))
	}
	a.allGroups().finding(cmd, "GROUP")
	return cmd
}

func (a *client) group(ctx context.Context, id string) (adminapi.GroupStatusItem, error) {
	return ask(ctx, a, adminapi.GetGroup, nil, id)
}

var oneGroup = oneArg("one group id: `muster groups list` shows them")

func newGroupsExample() *cobra.Command {
	return &cobra.Command{
		Use:     "example",
		Short:   "Print a group with every key explained",
		Example: "  muster groups example > group.yaml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), exampleGroup)
			return err
		},
	}
}

// createGroupRequest is adminapi.CreateGroupRequest with a fleet.GroupPlan.
type createGroupRequest struct {
	Plan fleet.GroupPlan `json:"plan"`
	Why  string          `json:"why,omitempty"`
}

func (a *client) newGroupsCreate() *cobra.Command {
	var (
		name, why           string
		preview, start, yes bool
		follow              following
	)
	cmd := &cobra.Command{
		Use:   "create --file group.yaml",
		Short: "Create a group from a file",
		Long: `Create a group as a draft, which does nothing until it is started. --preview shows what
it would do. --start previews it, asks for confirmation, and starts it exactly as
previewed; without a terminal, pass --yes to skip the question.`,
		Example: `  muster groups create --file group.yaml --preview
  muster groups create --file group.yaml --start --yes --wait`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case name == "":
				return &usageError{errors.New("--file is missing: `muster groups example` prints a group to start from")}
			case follow.wait && !start:
				return &usageError{errors.New("--wait follows a started group: add --start")}
			case start && !yes && (name == "-" || !isTerminal(cmd.InOrStdin())):
				return &usageError{errors.New("the preview cannot be confirmed, since standard input is not a terminal: add --yes to start without confirmation, or omit --start to create a draft")}
			}
			file := yamlFile{name: name, what: "group", field: "plan", example: "muster groups example", tooLong: ": select agents by labels or policies instead of one by one"}
			var plan fleet.GroupPlan
			if err := file.read(cmd, &plan); err != nil {
				return err
			}
			got, err := call(cmd.Context(), a, adminapi.Operation[createGroupRequest, adminapi.RolloutGroupItem]{Call: adminapi.CreateGroup.Call}, createGroupRequest{plan, why})
			if err != nil {
				return file.locate(err)
			}
			id := got.Item.ID
			switch {
			case start:
				return a.previewAndStartGroup(cmd, id, adminapi.StartRolloutRequest{Why: &why}, yes, follow)
			case preview:
				return a.showGroupPreview(cmd, id)
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				fmt.Fprintf(w, "Created draft %s.\nPreview it with `muster groups preview %s`, then start it with `muster groups start %s`.\n", groupNameAndID(got.Item), id, id)
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&name, "file", "f", "", "the group in YAML; - reads standard input (required)")
	f.BoolVar(&preview, "preview", false, "show what the draft would do")
	f.BoolVar(&start, "start", false, "preview the group, ask for confirmation, and start it")
	f.BoolVarP(&yes, "yes", "y", false, "start without asking for confirmation")
	whyFlag(cmd, &why)
	follow.register(f)
	return cmd
}

func groupNameAndID(g adminapi.RolloutGroup) string { return fmt.Sprintf("%q (%s)", g.Plan.Name, g.ID) }

func (a *client) newGroupsPreview() *cobra.Command {
	return &cobra.Command{
		Use:   "preview GROUP",
		Short: "Show what a draft would do",
		Long: `Show what each member of a draft would upgrade as of now. Pass the hash to start, which
refuses if the fleet has changed since. ` + "`muster rollouts preview --file`" + ` shows the whole
preview of one plan.`,
		Args:              oneGroup,
		ValidArgsFunction: a.completeGroups("draft"),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.showGroupPreview(cmd, args[0]) },
	}
}

func (a *client) groupPreview(ctx context.Context, id string) (adminapi.GroupPreviewItem, error) {
	return ask(ctx, a, adminapi.PreviewGroup, nil, id)
}

func (a *client) showGroupPreview(cmd *cobra.Command, id string) error {
	got, err := a.groupPreview(cmd.Context(), id)
	if err != nil {
		return err
	}
	return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
		printGroupPreview(w, got.Item)
		fmt.Fprintf(w, "\nStart it exactly as previewed with\n  muster groups start %s --hash %s\n", id, got.Item.Hash)
	})
}

func printGroupPreview(w io.Writer, p adminapi.GroupPreview) {
	table(w, "MEMBER\tVERSION\tAGENTS\tLEFT OUT\tOFFLINE\tBATCHES\tAT LEAST\tABOUT", func(add func(...any)) {
		for _, m := range p.Members {
			add(m.Name, m.Version, m.Targets, m.Skipped, m.Offline, m.Batches, formatDuration(m.AtLeast.D()), formatDuration(m.Estimate.D()))
		}
	})
	fmt.Fprintf(w, "It takes at least %s; at the pace of past upgrades about %s.\n", formatDuration(p.AtLeast.D()), formatDuration(p.Estimate.D()))
	for _, m := range p.Members {
		for _, text := range m.Warnings {
			fmt.Fprintf(w, "warning: %s: %s\n", m.Name, text)
		}
	}
}

func (a *client) newGroupsStart() *cobra.Command {
	var (
		req         adminapi.StartRolloutRequest
		follow      following
		accept, yes bool
		why         string
	)
	cmd := &cobra.Command{
		Use:   "start GROUP",
		Short: "Start a draft exactly as it was previewed",
		Long: `Start a draft as in the preview with the given --hash. If the fleet has changed since,
the server refuses; --accept-drift starts the group with the fleet as it is now. Without
--hash the command shows a preview first and asks for confirmation.`,
		Example: `  muster groups start GROUP
  muster groups start GROUP --hash sha256:5f2a… --wait`,
		Args:              oneGroup,
		ValidArgsFunction: a.completeGroups("draft"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Why = &why
			if accept {
				req.AcceptDrift = &accept
			}
			if req.Hash != "" {
				return a.startGroup(cmd, args[0], req, follow)
			}
			if !yes && !isTerminal(cmd.InOrStdin()) {
				return &usageError{errors.New("standard input is not a terminal, so the preview cannot be confirmed: pass its --hash, or --yes to start without confirmation")}
			}
			return a.previewAndStartGroup(cmd, args[0], req, yes, follow)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Hash, "hash", "", "hash of the preview, sha256:…")
	f.BoolVar(&accept, "accept-drift", false, "start even if the fleet has changed since the preview")
	f.BoolVarP(&yes, "yes", "y", false, "without --hash: start without asking for confirmation")
	whyFlag(cmd, &why)
	follow.register(f)
	return cmd
}

func (a *client) previewAndStartGroup(cmd *cobra.Command, id string, req adminapi.StartRolloutRequest, yes bool, follow following) error {
	got, err := a.groupPreview(cmd.Context(), id)
	if err != nil {
		return err
	}
	printGroupPreview(cmd.ErrOrStderr(), got.Item)
	if !yes {
		ok, err := confirm(cmd, fmt.Sprintf("Start group %s with %s?", id, counted(len(got.Item.Members), "member")))
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("not started: start the draft later with `muster groups start %s --hash %s`", id, got.Item.Hash)
		}
	}
	req.Hash = got.Item.Hash
	return a.startGroup(cmd, id, req, follow)
}

func (a *client) startGroup(cmd *cobra.Command, id string, req adminapi.StartRolloutRequest, follow following) error {
	got, err := call(cmd.Context(), a, adminapi.StartGroup, req, id)
	if err != nil {
		return err
	}
	return a.showOrFollowGroup(cmd, got, follow, func(w io.Writer) {
		fmt.Fprintf(w, "Started group %s with %s.\nFollow it with `muster groups watch %s`.\n", groupNameAndID(got.Item), counted(len(got.Item.Members), "member"), id)
	})
}

var groupStates = []string{"draft", "running", "paused", "cancelling", "rolling_back", "completed", "partial", "failed", "cancelled", "rolled_back"}

func (a *client) newGroupsList() *cobra.Command {
	return newListed(a, "group", adminapi.ListGroups, groupStates, func(g adminapi.RolloutGroup) string { return string(g.State) }, rows[adminapi.RolloutGroup]{
		empty:   "no groups: create one with `muster groups create`",
		heading: "ID\tNAME\tSTATE\tFAILURE POLICY\tMEMBERS\tSTARTED",
		row: func(g adminapi.RolloutGroup, now time.Time) []any {
			members := each(g.Members, func(m adminapi.GroupMember) string { return m.Name + " " + spaced(string(m.State)) })
			return []any{g.ID, g.Plan.Name, spaced(string(g.State)), g.Plan.FailurePolicy, strings.Join(members, ", "), describeStart(g.StartedAt, now)}
		},
	})
}

func (a *client) newGroupsShow() *cobra.Command {
	return showing(a, &cobra.Command{
		Use:               "show GROUP",
		Short:             "Show one group: its members, what it waits for, what stopped it",
		Args:              oneGroup,
		ValidArgsFunction: a.completeGroups(),
	}, adminapi.GetGroup, func(w io.Writer, got adminapi.GroupStatusItem) { printGroup(w, got.Item, time.Now()) })
}

func printGroup(w io.Writer, g adminapi.GroupStatus, now time.Time) {
	fmt.Fprintf(w, "%s  %s\n", g.Plan.Name, g.ID)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-14s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("state", "%s", spaced(string(g.State)))
	row("on failure", "%s", g.Plan.FailurePolicy)
	row("created", "%s by %s", ago(&g.CreatedAt, now), g.CreatedBy)
	if g.StartedAt != nil {
		row("started", "%s by %s", ago(g.StartedAt, now), g.StartedBy)
	}
	if g.EndedAt != nil {
		row("ended", "%s", ago(g.EndedAt, now))
	}
	if g.RollingBack != nil {
		row("rolled back", "%s by %s: %s", ago(&g.RollingBack.At, now), g.RollingBack.By, g.RollingBack.Why)
	}
	if g.Stop != nil {
		row("stopped", "%s (%s, %s)", g.Stop.Text, g.Stop.By, ago(&g.Stop.At, now))
	} else if text := g.Waiting; text != "" {
		row("waiting", "%s%s", text, timeLeft(adminapi.Wait{Until: g.Until}, now))
	}
	table(w, "MEMBER\tVERSION\tSTATE\tDONE\tFAILED\tROLLOUT\tREMARK", func(add func(...any)) {
		for i, p := range g.Progress {
			done, bad, m := "-", "-", g.Members[i]
			if p.Counts != nil {
				done, bad = fmt.Sprintf("%d/%d", p.Counts.Succeeded, p.Counts.Total), fmt.Sprint(failures(*p.Counts))
			}
			add(p.Name, p.Version, spaced(string(p.State)), done, bad, firstOf(m.RolloutID, "-"), memberRemark(p, m))
		}
	})
	if next := nextGroupStep(g); next != "" {
		fmt.Fprintln(w, next)
	}
}

func memberRemark(p adminapi.GroupProgress, m adminapi.GroupMember) string {
	switch {
	case m.Error != "":
		return m.Error
	case p.RollbackID != "":
		return "rolled back by " + p.RollbackID
	case p.Stop != nil:
		return p.Stop.Text
	}
	if waiting := p.Waiting; len(waiting) > 0 {
		return waiting[0].Text
	}
	return ""
}

// nextGroupStep returns what an operator does next; empty: nothing.
func nextGroupStep(g adminapi.GroupStatus) string {
	switch g.State {
	case fleet.GroupDraft:
		return fmt.Sprintf("Start it with `muster groups start %s`.", g.ID)
	case fleet.GroupPaused:
		return groupAdvice(g)
	case fleet.GroupPartial, fleet.GroupFailed:
		if g.RollingBack == nil {
			return fmt.Sprintf("Roll all members back with `muster groups rollback %s`.", g.ID)
		}
	}
	return ""
}

// groupAdvice says how a paused group goes on.
func groupAdvice(g adminapi.GroupStatus) string {
	resume, skip := fmt.Sprintf("Resume it with `muster groups resume %s", g.ID), ""
	stop := deref(g.Stop)
	if stop.Member != "" {
		skip = fmt.Sprintf(" Leave %s out with `muster groups skip %s %s --why …`.", stop.Member, g.ID, stop.Member)
	}
	back := fmt.Sprintf(" Roll all members back with `muster groups rollback %s`.", g.ID)
	if g.RollingBack != nil {
		back = ""
	}
	switch {
	case stop.Kind == fleet.GroupStopFailure && stop.Member != "" && memberState(g, stop.Member) == fleet.MemberFailed:
		return strings.TrimSpace(skip + back)
	case stop.Kind == fleet.GroupStopFailure || stop.Kind == fleet.GroupStopDrift:
		resume += " --why …"
	}
	return resume + "`." + skip + back
}

func memberState(g adminapi.GroupStatus, name string) adminapi.GroupMemberState {
	for _, m := range g.Members {
		if m.Name == name {
			return m.State
		}
	}
	return ""
}

func groupLine(g adminapi.GroupStatus) string {
	members := make([]string, len(g.Progress))
	for i, p := range g.Progress {
		members[i] = p.Name + " " + spaced(string(p.State))
		if p.State == fleet.MemberRunning && p.Counts != nil {
			members[i] += fmt.Sprintf(" (%d of %d done)", p.Counts.Succeeded, p.Counts.Total)
		}
	}
	line := spaced(string(g.State)) + ": " + strings.Join(members, ", ")
	if g.Stop != nil {
		return line + "; " + g.Stop.Text
	}
	return line
}

// groupOutcome is like outcome, for groups.
func groupOutcome(g adminapi.GroupStatus, interactive bool) (code int, text string) {
	name := fmt.Sprintf("group %q (%s)", g.Plan.Name, g.ID)
	why := ""
	if g.Stop != nil {
		why = ": " + trimPeriod(g.Stop.Text)
	} else if bad := membersWithErrors(g); len(bad) > 0 {
		why = ": " + strings.Join(bad, "; ")
	}
	switch g.State {
	case fleet.GroupCompleted:
		return 0, name + " completed: " + counted(len(g.Members), "member")
	case fleet.GroupPartial:
		return exitFailed, name + " ended partial" + why + ". " + nextGroupStep(g)
	case fleet.GroupFailed:
		return exitFailed, trimPeriod(name + " failed" + why + ". " + nextGroupStep(g))
	case fleet.GroupRolledBack:
		return exitFailed, name + " was rolled back" + why
	case fleet.GroupCancelled:
		return exitCancelled, name + " was cancelled"
	case fleet.GroupDraft:
		return 1, name + " is a draft. " + nextGroupStep(g)
	case fleet.GroupPaused:
		if g.Stop != nil && g.Stop.Kind != fleet.GroupStopOperator {
			return exitGate, name + " is paused" + why + ". " + groupAdvice(g)
		}
		if !interactive {
			return exitOperator, name + " is paused" + why + ". " + groupAdvice(g)
		}
	}
	return 0, ""
}

// membersWithErrors says what is wrong with each member that has failed, or could not be rolled back.
func membersWithErrors(g adminapi.GroupStatus) (words []string) {
	for _, m := range g.Members {
		if e := m.Error; e != "" {
			words = append(words, m.Name+" "+spaced(string(m.State))+" ("+trimPeriod(e)+")")
		}
	}
	return words
}

func (a *client) followGroup(cmd *cobra.Command, id string, follow following, print func(adminapi.GroupStatus, time.Time)) error {
	return followed[adminapi.GroupStatusItem]{
		noun: "group", id: id,
		get:   a.group,
		line:  func(got adminapi.GroupStatusItem) string { return groupLine(got.Item) },
		print: func(got adminapi.GroupStatusItem, now time.Time) { print(got.Item, now) },
		outcome: func(got adminapi.GroupStatusItem, interactive bool) (int, string) {
			return groupOutcome(got.Item, interactive)
		},
	}.follow(a, cmd, follow)
}

func (a *client) showOrFollowGroup(cmd *cobra.Command, got adminapi.RolloutGroupItem, follow following, human func(io.Writer)) error {
	if !follow.wait {
		return a.show(cmd.OutOrStdout(), got, human)
	}
	return a.followGroup(cmd, got.Item.ID, follow, groupLines(cmd.ErrOrStderr()))
}

// groupLines returns a function that prints the progress of a group whenever it changes.
func groupLines(w io.Writer) func(adminapi.GroupStatus, time.Time) { return linesOf(w, groupLine) }

func (a *client) newGroupsWatch() *cobra.Command {
	var follow following
	cmd := &cobra.Command{
		Use:   "watch GROUP",
		Short: "Follow a group to its end",
		Long: `Show the progress of a group until it ends or needs an operator: redrawn on a terminal,
otherwise one line for each change. The exit code is the outcome (see
` + "`muster groups --help`" + `). Ctrl-C stops following; the group continues.`,
		Args:              oneGroup,
		ValidArgsFunction: a.completeGroups("running", "paused", "cancelling", "rolling_back"),
		RunE: func(cmd *cobra.Command, args []string) error {
			print := groupLines(cmd.OutOrStdout())
			switch {
			case a.output == "json":
				print = groupLines(cmd.ErrOrStderr())
			case isTerminal(cmd.OutOrStdout()):
				print = func(g adminapi.GroupStatus, now time.Time) {
					fmt.Fprint(terminal.Raw(cmd.OutOrStdout()), clearScreen)
					printGroup(cmd.OutOrStdout(), g, now)
				}
			}
			return a.followGroup(cmd, args[0], follow, print)
		},
	}
	follow.registerTimeout(cmd.Flags())
	return cmd
}

// groupVerb is a command on a group that takes only a reason.
type groupVerb struct {
	op                adminapi.Operation[adminapi.WhyRequest, adminapi.RolloutGroupItem]
	name, short, long string
	done              string   // printed afterwards
	states            []string // of the groups that shells complete
}

var groupVerbs = []groupVerb{
	{
		op: adminapi.ResumeGroup, name: "resume", short: "Resume a paused group", done: "Resumed group %s.", states: []string{"paused"},
		long: `Resume a paused group, with the rollout of its current member. After a failure, or if
the fleet was not as previewed, --why is required: the group goes on all the same.`,
	},
	{
		op: adminapi.CancelGroup, name: "cancel", short: "Cancel a group; upgrades under way still end", done: "Cancelling group %s. Upgrades under way still end.",
		states: []string{"running", "paused"},
		long: `Cancel a group: it starts no more members and cancels the rollout of the current one.
Upgraded agents stay upgraded: to move them back, use ` + "`muster groups rollback`" + ` instead.`,
	},
	{
		op: adminapi.RollbackGroup, name: "rollback", short: "Roll all members of a group back, the last one first", done: "Rolling back group %s.",
		states: []string{"running", "paused", "completed", "partial", "failed", "cancelled"},
		long: `Roll back all members of a group that have begun, the last one first, each agent to its
last healthy version. A group that has ended can be rolled back too.`,
	},
}

func (a *client) newGroupsVerb(v groupVerb) *cobra.Command {
	var (
		why    string
		follow following
	)
	cmd := &cobra.Command{
		Use:               v.name + " GROUP",
		Short:             v.short,
		Long:              v.long,
		Args:              oneGroup,
		ValidArgsFunction: a.completeGroups(v.states...),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call(cmd.Context(), a, v.op, adminapi.WhyRequest{Why: &why}, args[0])
			if err != nil {
				return err
			}
			return a.showOrFollowGroup(cmd, got, follow, func(w io.Writer) { fmt.Fprintf(w, v.done+"\n", groupNameAndID(got.Item)) })
		},
	}
	whyFlag(cmd, &why)
	follow.register(cmd.Flags())
	return cmd
}

func (a *client) newGroupsPause() *cobra.Command {
	var (
		now bool
		why string
	)
	cmd := &cobra.Command{
		Use:   "pause GROUP",
		Short: "Start no more members, and pause the rollout of the current one",
		Long: `Pause a group. The rollout of its current member pauses when its batch has ended or, with
--now, at once.`,
		Args:              oneGroup,
		ValidArgsFunction: a.completeGroups("running"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call(cmd.Context(), a, adminapi.PauseGroup, adminapi.PauseRolloutRequest{Now: &now, Why: &why}, args[0])
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				fmt.Fprintf(w, "Paused group %s. Resume it with `muster groups resume %s`.\n", groupNameAndID(got.Item), args[0])
			})
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "pause the rollout of the current member at once, not after its batch")
	whyFlag(cmd, &why)
	return cmd
}

func (a *client) newGroupsSkip() *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use:   "skip GROUP MEMBER",
		Short: "Leave a member out",
		Long: `Leave a member out. Its rollout is cancelled if it is under way, and the group goes on if
that member had stopped it; --why is required then. During a rollback, a member that
stopped the rollback keeps its version.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("want one group id and the name of a member (see `%s --help`)", c.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
			if len(args) != 1 {
				return a.completeGroups("running", "paused")(cmd, args, text)
			}
			got, err := a.group(cmd.Context(), args[0])
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return each(got.Item.Members, func(m adminapi.GroupMember) string { return m.Name + "\t" + spaced(string(m.State)) }), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call(cmd.Context(), a, adminapi.SkipGroupMember, adminapi.SkipMemberRequest{Member: args[1], Why: &why}, args[0])
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { fmt.Fprintf(w, "Group %s goes on without %s.\n", groupNameAndID(got.Item), args[1]) })
		},
	}
	whyFlag(cmd, &why)
	return cmd
}

func (a *client) newGroupsDelete() *cobra.Command {
	return showing(a, &cobra.Command{
		Use:               "delete GROUP",
		Short:             "Delete a draft",
		Args:              oneGroup,
		ValidArgsFunction: a.completeGroups("draft"),
	}, adminapi.DeleteGroup, saying[adminapi.ActionWord]("deleted"))
}

// completeGroups completes the ids of groups in these states, or of all if there are none.
func (a *client) completeGroups(states ...string) cobra.CompletionFunc {
	return completeListed(a, adminapi.ListGroups, states, func(g adminapi.RolloutGroup) (id, state, name string) { return g.ID, string(g.State), g.Plan.Name })
}
