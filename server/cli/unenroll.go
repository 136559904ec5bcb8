package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/adminapi"
)

func (a *app) newAgentsUnenroll() *cobra.Command {
	var (
		chosen chosenAgents
		revoke bool
		force  bool
		dryRun bool
		yes    bool
	)
	cmd := &cobra.Command{
		Use:   "unenroll {AGENT… | --kuery QUERY}",
		Short: "Ask agents to leave, or put them out",
		Long: `Asks the agents named by id or host name, or those that a query selects, to leave
the fleet.
Each acknowledges and stops; one that is away leaves when it is back. --revoke
puts them out at once, without asking: their keys no longer work.

For a query it says how many agents there are and asks. Without a terminal there
is nobody to ask: pass --yes.`,
		Example: `  muster agents unenroll web-01
  muster agents unenroll --kuery 'tags: lab and status: online' --dry-run
  muster agents unenroll --kuery 'status: inactive' --revoke --yes`,
		Args:              chosen.check,
		ValidArgsFunction: a.completeAgents,
		RunE: func(cmd *cobra.Command, args []string) error {
			ask := chosen.kuery != "" && !yes && !dryRun
			if ask && !isTerminal(cmd.InOrStdin()) {
				return &usageError{errors.New("standard input is no terminal, so there is nobody to ask: look with --dry-run, then add --yes to unenrol what it says")}
			}
			args, err := a.agentIDs(cmd.Context(), args)
			if err != nil {
				return err
			}
			preview, err := call[adminapi.UnenrollPreview](cmd.Context(), a, http.MethodPost, "/api/v1/unenroll_preview", adminapi.UnenrollPreviewRequest{
				Agents: chosen.selection(args), IncludeInactive: chosen.includeInactive(), Revoke: &revoke, Force: &force,
			})
			if err != nil {
				return err
			}
			if dryRun {
				return a.show(cmd.OutOrStdout(), preview, func(w io.Writer) { printUnenrollPreview(w, preview, revoke) })
			}
			if preview.Will == 0 {
				printUnenrollPreview(cmd.ErrOrStderr(), preview, revoke)
				return errors.New("none of the agents can be unenrolled")
			}
			chosen.tell(cmd, preview.Will, preview.Wont, unenrolled(revoke))
			if ask {
				ok, err := confirm(cmd, fmt.Sprintf("Unenrol %s?", counted(preview.Will, "agent")))
				if err != nil {
					return err
				}
				if !ok {
					return errors.New("not unenrolled: --dry-run shows each agent")
				}
			}
			created, err := call[adminapi.BulkActionResponse](cmd.Context(), a, http.MethodPost, "/api/fleet/agents/bulk_unenroll", adminapi.BulkUnenrollRequest{
				Agents:          chosen.previewed(args, each(preview.Items, func(i adminapi.UnenrollPreviewItem) string { return i.AgentId })),
				IncludeInactive: chosen.includeInactive(), Revoke: &revoke, Force: &force,
			})
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), created, func(w io.Writer) {
				if revoke {
					fmt.Fprintf(w, "Put out %d of %s: action %s\n", preview.Will, counted(len(preview.Items), "agent"), deref(created.ActionId))
					return
				}
				fmt.Fprintf(w, "Asked %d of %s to leave: action %s\nFollow it with `muster actions list`.\n", preview.Will, counted(len(preview.Items), "agent"), deref(created.ActionId))
			})
		},
	}
	f := cmd.Flags()
	chosen.flags(f)
	f.BoolVar(&revoke, "revoke", false, "at once, without asking the agents: their keys no longer work")
	f.BoolVar(&force, "force", false, "also agents that a rollout has")
	f.BoolVar(&dryRun, "dry-run", false, "show what would happen, change nothing")
	f.BoolVarP(&yes, "yes", "y", false, "with --kuery: without a question")
	return cmd
}

// unenrolled is what happens to agents, in a sentence about them.
func unenrolled(revoke bool) string {
	if revoke {
		return "put out"
	}
	return "asked to leave"
}

func printUnenrollPreview(w io.Writer, p adminapi.UnenrollPreview, revoke bool) {
	fmt.Fprintf(w, "%d would be %s, %d would not:\n", p.Will, unenrolled(revoke), p.Wont)
	table(w, "HOST\tSTATUS\tUNENROL\tREMARK", func(add func(...any)) {
		for _, i := range p.Items {
			will := "no"
			if i.Will {
				will = "yes"
			}
			add(i.Hostname, i.Status, will, deref(i.Reason))
		}
	})
}
