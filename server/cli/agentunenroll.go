package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newAgentsUnenroll() *cobra.Command {
	var (
		selection agentSelection
		revoke    bool
		force     bool
		overLimit bool
		dryRun    bool
		yes       bool
	)
	cmd := &cobra.Command{
		Use:   "unenroll {AGENT… | --kuery QUERY}",
		Short: "Unenrol agents, or revoke their keys",
		Long: `Unenrol the agents that are named by id or host name, or that a query selects. Each agent
acknowledges and stops; an offline agent does so when it returns. --revoke unenrols them
at once, without their acknowledgement: their keys no longer work.

If more agents would be unenrolled, moved to another policy or migrated within an hour
than admin.removals_per_hour of the server's configuration permits, the order is refused.
--override-limit gives it nevertheless; it needs --why, which the audit trail keeps. An
order for one agent is never refused.

With a query the command shows how many agents it selects and asks for confirmation.
Without a terminal, pass --yes to skip the question.`,
		Example: `  muster agents unenroll web-01
  muster agents unenroll --kuery 'tags: lab and status: online' --dry-run
  muster agents unenroll --kuery 'status: inactive' --revoke --yes`,
		Args:              selection.validate,
		ValidArgsFunction: a.completeAgents,
		RunE: func(cmd *cobra.Command, args []string) error {
			ask := selection.kuery != "" && !yes && !dryRun
			if ask && !isTerminal(cmd.InOrStdin()) {
				return &usageError{errors.New("standard input is not a terminal, so the selection cannot be confirmed: check it with --dry-run, then add --yes")}
			}
			if overLimit && a.target.Why == "" {
				return errNoWhy
			}
			args, err := a.agentIDs(cmd.Context(), args)
			if err != nil {
				return err
			}
			preview, err := call(cmd.Context(), a, adminapi.PreviewUnenroll, adminapi.UnenrollPreviewRequest{
				Agents: selection.request(args), IncludeInactive: selection.includeInactive(), Revoke: &revoke, Force: &force, OverrideLimit: given(overLimit),
			})
			if err != nil {
				return err
			}
			if dryRun {
				return a.show(cmd.OutOrStdout(), preview, func(w io.Writer) { printUnenrollPreview(w, preview) })
			}
			if preview.Will == 0 {
				printUnenrollPreview(cmd.ErrOrStderr(), preview)
				return errors.New("none of the agents can be unenrolled")
			}
			if preview.Refused != nil { // before it asks for a confirmation that would be in vain
				return errors.New(*preview.Refused)
			}
			selection.printCounts(cmd, preview.Will, preview.Wont, "unenrolled")
			if ask {
				ok, err := confirm(cmd, fmt.Sprintf("Unenrol %s?", counted(preview.Will, "agent")))
				if err != nil {
					return err
				}
				if !ok {
					return errors.New("not unenrolled: --dry-run shows each agent")
				}
			}
			created, err := call(cmd.Context(), a, adminapi.BulkUnenrollAgents, adminapi.BulkUnenrollRequest{
				Agents:          selection.requestPreviewed(args, each(preview.Items, func(i adminapi.UnenrollPreviewItem) string { return i.AgentId })),
				IncludeInactive: selection.includeInactive(), Revoke: &revoke, Force: &force,
				OverrideLimit: given(overLimit),
			})
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), created, func(w io.Writer) {
				if revoke {
					fmt.Fprintf(w, "Unenrolled %d of %s: action %s\n", preview.Will, counted(len(preview.Items), "agent"), deref(created.ActionId))
					return
				}
				fmt.Fprintf(w, "Unenrolling %d of %s: action %s\nFollow it with `muster actions list`.\n", preview.Will, counted(len(preview.Items), "agent"), deref(created.ActionId))
			})
		},
	}
	f := cmd.Flags()
	selection.flags(f)
	f.BoolVar(&revoke, "revoke", false, "unenrol at once, without acknowledgement: the agents' keys no longer work")
	f.BoolVar(&force, "force", false, "also unenrol agents in a rollout, or with a managed policy")
	f.BoolVar(&overLimit, "override-limit", false, "also more agents than admin.removals_per_hour; needs --why")
	f.BoolVar(&dryRun, "dry-run", false, "show what would happen and change nothing")
	f.BoolVarP(&yes, "yes", "y", false, "with --kuery: unenrol without asking for confirmation")
	return cmd
}

func printUnenrollPreview(w io.Writer, p adminapi.UnenrollPreview) {
	fmt.Fprintf(w, "%d would be unenrolled, %d would not:\n", p.Will, p.Wont)
	table(w, "HOST\tSTATUS\tUNENROL\tREMARK", func(add func(...any)) {
		for _, i := range p.Items {
			will := "no"
			if i.Will {
				will = "yes"
			}
			add(i.Hostname, i.Status, will, deref(i.Reason))
		}
	})
	printCauses(w, deref(p.Causes), "UNENROL")
	if p.Refused != nil {
		fmt.Fprintf(w, "The order would be refused: %s\n", *p.Refused)
	}
}
