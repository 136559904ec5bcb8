package cli

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
	d := a.groupDrafts()
	start, _ := d.newStart(a, `Start a draft as in the preview with the given --hash. If the fleet has changed since,
the server refuses; --accept-drift starts the group with the fleet as it is now. Without
--hash the command shows a preview first and asks for confirmation.`)
	cmd.AddCommand(
		a.newGroupsCreate(), start, a.newGroupsList(), d.newWatch(a, "", "running", "paused", "cancelling", "rolling_back"), a.newGroupsPause(), a.newGroupsSkip(),
		d.of(&cobra.Command{
			Use:   "preview GROUP",
			Short: "Show what a draft would do",
			Long: `Show what each member of a draft would upgrade as of now. Pass the hash to start, which
refuses if the fleet has changed since. ` + "`muster rollouts preview --file`" + ` shows the whole
preview of one plan.`,
			RunE: func(cmd *cobra.Command, args []string) error {
				return d.showPreview(a, cmd, args[0], printGroupPreview)
			},
		}, []string{"draft"}),
		showing(a, d.of(&cobra.Command{
			Use:   "show GROUP",
			Short: "Show one group: its members, what it waits for, what stopped it",
		}, nil), adminapi.GetGroup, func(w io.Writer, got adminapi.GroupStatusItem) { printGroup(w, got.Item, time.Now()) }),
		showing(a, d.of(&cobra.Command{Use: "delete GROUP", Short: "Delete a draft"}, []string{"draft"}), adminapi.DeleteGroup, saying[adminapi.ActionWord]("deleted")),
		newExample("Print a group with every key explained", "  muster groups example > group.yaml", func() string { return exampleGroup }),
	)
	for _, verb := range groupVerbs {
		cmd.AddCommand(newReasoned(a, d, verb, func(adminapi.RolloutGroupItem) string { return "" }))
	}
	return cmd
}

// groupDrafts is what groups have in common with rollouts.
func (a *client) groupDrafts() drafted[adminapi.RolloutGroupItem, adminapi.GroupStatusItem, adminapi.GroupPreviewItem] {
	return drafted[adminapi.RolloutGroupItem, adminapi.GroupStatusItem, adminapi.GroupPreviewItem]{
		noun: "group", one: oneGroup, complete: a.completeGroups,
		get: adminapi.GetGroup, preview: adminapi.PreviewGroup, start: adminapi.StartGroup,
		named: func(got adminapi.RolloutGroupItem) (id, title, size string) {
			return got.Item.ID, groupNameAndID(got.Item), "with " + counted(len(got.Item.Members), "member")
		},
		printPreview: printGroupPreview,
		previewed: func(got adminapi.GroupPreviewItem) (hash, size string, err error) {
			return got.Item.Hash, "with " + counted(len(got.Item.Members), "member"), nil
		},
		line:   func(got adminapi.GroupStatusItem) string { return groupLine(got.Item) },
		screen: func(w io.Writer, got adminapi.GroupStatusItem, now time.Time) { printGroup(w, got.Item, now) },
		outcome: func(got adminapi.GroupStatusItem, interactive bool) (int, string) {
			return groupOutcome(got.Item, interactive)
		},
	}
}

var oneGroup = oneArg("one group id: `muster groups list` shows them")

func (a *client) newGroupsCreate() *cobra.Command {
	var (
		name string
		c    creating
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
			case c.follow.wait && !c.start:
				return &usageError{errors.New("--wait follows a started group: add --start")}
			case c.start && !c.yes && (name == "-" || !isTerminal(cmd.InOrStdin())):
				return &usageError{errors.New("the preview cannot be confirmed, since standard input is not a terminal: add --yes to start without confirmation, or omit --start to create a draft")}
			}
			file := yamlFile{name: name, what: "group", field: "plan", example: "muster groups example", tooLong: ": select agents by labels or policies instead of one by one"}
			var plan fleet.GroupPlan
			if err := file.read(cmd, &plan); err != nil {
				return err
			}
			got, err := call(cmd.Context(), a, adminapi.CreateGroup, adminapi.CreateGroupRequest{Plan: plan})
			if err != nil {
				return file.locate(err)
			}
			return a.groupDrafts().created(a, cmd, got, &c)
		},
	}
	cmd.Flags().StringVarP(&name, "file", "f", "", "the group in YAML; - reads standard input (required)")
	c.register(cmd, "group")
	return cmd
}

func groupNameAndID(g adminapi.RolloutGroup) string { return fmt.Sprintf("%q (%s)", g.Plan.Name, g.ID) }

func printGroupPreview(w io.Writer, got adminapi.GroupPreviewItem) {
	p := got.Item
	tableOf(w, "MEMBER\tVERSION\tAGENTS\tLEFT OUT\tOFFLINE\tBATCHES\tAT LEAST\tABOUT", p.Members, func(m fleet.GroupMemberPreview) []any {
		return []any{m.Name, m.Version, m.Targets, m.Skipped, m.Offline, m.Batches, formatDuration(m.AtLeast.D()), formatDuration(m.Estimate.D())}
	})
	fmt.Fprintf(w, "It takes at least %s; at the pace of past upgrades about %s.\n", formatDuration(p.AtLeast.D()), formatDuration(p.Estimate.D()))
	for _, m := range p.Members {
		for _, text := range m.Warnings {
			fmt.Fprintf(w, "warning: %s: %s\n", m.Name, text)
		}
	}
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

func printGroup(w io.Writer, g adminapi.GroupStatus, now time.Time) {
	fmt.Fprintf(w, "%s  %s\n", g.Plan.Name, g.ID)
	about := details{w, 14}
	about.row("state", spaced(string(g.State)))
	about.row("on failure", string(g.Plan.FailurePolicy))
	about.times(g.CreatedAt, g.CreatedBy, g.StartedAt, g.StartedBy, g.EndedAt, now)
	if g.RollingBack != nil {
		about.rowf("rolled back", "%s by %s: %s", ago(&g.RollingBack.At, now), g.RollingBack.By, g.RollingBack.Why)
	}
	if g.Stop != nil {
		about.rowf("stopped", "%s (%s, %s)", g.Stop.Text, g.Stop.By, ago(&g.Stop.At, now))
	} else if g.Waiting != "" {
		about.row("waiting", g.Waiting+timeLeft(adminapi.Wait{Until: g.Until}, now))
	}
	table(w, "MEMBER\tVERSION\tSTATE\tDONE\tFAILED\tROLLOUT\tREMARK", func(add func(...any)) {
		for i, p := range g.Progress {
			done, bad, m := "-", "-", g.Members[i]
			if p.Counts != nil {
				done, bad = fmt.Sprintf("%d/%d", p.Counts.Succeeded, p.Counts.Total), fmt.Sprint(failures(*p.Counts))
			}
			add(p.Name, p.Version, spaced(string(p.State)), done, bad, cmp.Or(m.RolloutID, "-"), memberRemark(p, m))
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

// nextGroupStep says what an operator does next; empty: nothing.
func nextGroupStep(g adminapi.GroupStatus) string {
	skip, back := "", ""
	if member := deref(g.Stop).Member; member != "" {
		skip = advise(g.Commands, "skip", "Leave "+member+" out with `muster groups skip %s`.", g.ID+" "+member)
	}
	if g.State == fleet.GroupPaused || g.State == fleet.GroupPartial || g.State == fleet.GroupFailed {
		back = advise(g.Commands, "rollback", "Roll all members back with `muster groups rollback %s`.", g.ID)
	}
	return sentences(
		advise(g.Commands, "start", "Start it with `muster groups start %s`.", g.ID),
		advise(g.Commands, "resume", "Resume it with `muster groups resume %s`.", g.ID),
		skip, back)
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
			return exitGate, name + " is paused" + why + ". " + nextGroupStep(g)
		}
		if !interactive {
			return exitOperator, name + " is paused" + why + ". " + nextGroupStep(g)
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

var groupVerbs = []reasoned[adminapi.RolloutGroupItem]{
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

func (a *client) newGroupsPause() *cobra.Command {
	var req adminapi.PauseRolloutRequest
	req.Now = new(bool)
	cmd := commanding(a, a.groupDrafts(), &cobra.Command{
		Use:   "pause GROUP",
		Short: "Start no more members, and pause the rollout of the current one",
		Long: `Pause a group. The rollout of its current member pauses when its batch has ended or, with
--now, at once.`,
	}, []string{"running"}, adminapi.PauseGroup, body(&req), func(got adminapi.RolloutGroupItem, args []string) string {
		return fmt.Sprintf("Paused group %s. Resume it with `muster groups resume %s`.", groupNameAndID(got.Item), args[0])
	}, nil)
	cmd.Flags().BoolVar(req.Now, "now", false, "pause the rollout of the current member at once, not after its batch")
	return cmd
}

func (a *client) newGroupsSkip() *cobra.Command {
	return commanding(a, a.groupDrafts(), &cobra.Command{
		Use:   "skip GROUP MEMBER",
		Short: "Leave a member out",
		Long: `Leave a member out. Its rollout is cancelled if it is under way, and the group goes on if
that member had stopped it; --why is required then. During a rollback, a member that
stopped the rollback keeps its version.`,
		Args: twoArgs("one group id and the name of a member"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
			if len(args) != 1 {
				return a.completeGroups("running", "paused")(cmd, args, text)
			}
			got, err := ask(cmd.Context(), a, adminapi.GetGroup, nil, args[0])
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return each(got.Item.Members, func(m adminapi.GroupMember) string { return m.Name + "\t" + spaced(string(m.State)) }), cobra.ShellCompDirectiveNoFileComp
		},
	}, nil, adminapi.SkipGroupMember, func(_ *cobra.Command, args []string) (adminapi.SkipMemberRequest, error) {
		return adminapi.SkipMemberRequest{Member: args[1]}, nil
	}, func(got adminapi.RolloutGroupItem, args []string) string {
		return fmt.Sprintf("Group %s goes on without %s.", groupNameAndID(got.Item), args[1])
	}, nil)
}

// completeGroups completes the ids of groups in these states, or of all if there are none.
func (a *client) completeGroups(states ...string) cobra.CompletionFunc {
	return completeListed(a, adminapi.ListGroups, states, func(g adminapi.RolloutGroup) (id, state, name string) { return g.ID, string(g.State), g.Plan.Name })
}
