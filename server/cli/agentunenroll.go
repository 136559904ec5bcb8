package cli

import (
	"encoding/json"
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
		ValidArgsFunction: completing(a.agentNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			ask := selection.kuery != "" && !yes && !dryRun
			if ask && !isTerminal(cmd.InOrStdin()) {
				return &usageError{errors.New("standard input is not a terminal, so the selection cannot be confirmed: check it with --dry-run, then add --yes")}
			}
			if overLimit && a.server.Why == "" {
				return errNoWhy
			}
			req := adminapi.BulkUnenrollRequest{IncludeInactive: selection.includeInactive(), Revoke: &revoke, Force: &force, OverrideLimit: given(overLimit)}
			begun, follow := "Unenrolling", seeActions
			if revoke {
				begun, follow = "Unenrolled", ""
			}
			return agentOrder[adminapi.UnenrollPreview, adminapi.BulkActionResponse]{
				selection: &selection, dryRun: dryRun, what: "unenrolled", print: printUnenrollPreview, follow: follow,
				preview: func(agents json.RawMessage, _ []string) (adminapi.UnenrollPreview, error) {
					return call(cmd.Context(), a, adminapi.PreviewUnenroll, adminapi.UnenrollPreviewRequest{
						Agents: agents, IncludeInactive: req.IncludeInactive, Revoke: req.Revoke, Force: req.Force, OverrideLimit: req.OverrideLimit,
					})
				},
				count: func(p adminapi.UnenrollPreview) (will, wont int, ids []string) {
					return p.Will, p.Wont, each(p.Items, func(i adminapi.UnenrollPreviewItem) string { return i.AgentId })
				},
				none: func() error { return errors.New("none of the agents can be unenrolled") },
				confirm: func(p adminapi.UnenrollPreview) error {
					if p.Refused != nil { // before it asks for a confirmation that would be in vain
						return errors.New(*p.Refused)
					}
					if !ask {
						return nil
					}
					return confirm(cmd, fmt.Sprintf("Unenrol %s?", counted(p.Will, "agent")), "not unenrolled: --dry-run shows each agent")
				},
				order: func(agents json.RawMessage) (adminapi.BulkActionResponse, error) {
					req.Agents = agents
					return call(cmd.Context(), a, adminapi.BulkUnenrollAgents, req)
				},
				begun: func(p adminapi.UnenrollPreview, created adminapi.BulkActionResponse) string {
					return fmt.Sprintf("%s %s: action %s", begun, ofAgents(p.Will, len(p.Items)), deref(created.ActionId))
				},
			}.run(a, cmd, args)
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
	tableOf(w, "HOST\tSTATUS\tUNENROL\tREMARK", p.Items, func(i adminapi.UnenrollPreviewItem) []any {
		return []any{i.Hostname, i.Status, yesNo(i.Will), deref(i.Reason)}
	})
	printCauses(w, deref(p.Causes), "UNENROL")
	if p.Refused != nil {
		fmt.Fprintf(w, "The order would be refused: %s\n", *p.Refused)
	}
}
