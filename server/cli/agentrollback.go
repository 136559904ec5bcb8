package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newAgentsRollback() *cobra.Command {
	var (
		r       rollbackOrder
		forward bool
	)
	cmd := &cobra.Command{
		Use:   "rollback {AGENT… | --kuery QUERY}",
		Short: "Roll agents back to their previous version",
		Long: `Roll agents back to their previous version, if it is still on the host. Agents are named
by id or host name, or selected by a query. While an upgrade is being watched, the
previous version is the one before it. An agent that was rolled back keeps the later version:
going there again needs --forward.

--dry-run shows the version each agent would go back to and changes nothing. --wait
follows the rollbacks to their end and exits with 0 only if every agent runs the older
version.`,
		Example: `  muster agents rollback web-01 web-02 --dry-run
  muster agents rollback --kuery 'agent.version: 1.1.0 and status: (error or degraded)'
  muster agents rollback web-01 --wait`,
		Args:              r.selection.validate,
		ValidArgsFunction: completing(a.agentNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case r.component != "" && forward:
				return &usageError{errors.New("--forward is for the agents themselves: name the version of the component with --to")}
			case r.component != "":
				return r.runComponent(a, cmd, args)
			case r.to != "":
				return &usageError{errors.New("--to goes with --component: agents go back to the version that they keep")}
			}
			return r.run(a, cmd, args, agentEnd("not rolled back"), agentOrder[adminapi.RollbackPreview, adminapi.ActionsCreated]{
				print: printRollbackPreview, follow: seeActions,
				preview: func(agents json.RawMessage, _ []string) (adminapi.RollbackPreview, error) {
					return call(cmd.Context(), a, adminapi.PreviewRollback, adminapi.RollbackPreviewRequest{
						Agents: agents, IncludeInactive: r.selection.includeInactive(), TakeOver: given(r.owner.name), Forward: &forward,
					})
				},
				none: func() error { return errors.New("none of the agents can be rolled back") },
				order: func(agents json.RawMessage) (adminapi.ActionsCreated, error) {
					return ordered(cmd, &r.owner, func(name *string) (adminapi.ActionsCreated, error) {
						return call(cmd.Context(), a, adminapi.BulkRollbackAgents, adminapi.BulkRollbackRequest{
							Agents: agents, IncludeInactive: r.selection.includeInactive(), TakeOver: name, Forward: &forward,
						})
					})
				},
				begun: func(p adminapi.RollbackPreview, created adminapi.ActionsCreated) string {
					return fmt.Sprintf("Rolling back %s: action %s", ofAgents(p.Will, len(p.Items)), strings.Join(created.ActionIds, ", "))
				},
				done: func(p adminapi.RollbackPreview, created adminapi.ActionsCreated) string {
					return fmt.Sprintf("%s rolled back by action %s", counted(len(p.Items), "agent"), strings.Join(created.ActionIds, ", "))
				},
			})
		},
	}
	r.flags(a, cmd)
	cmd.Flags().BoolVar(&forward, "forward", false, "also go to a later version than the one that runs: the one that a rollback has left")
	cmd.Flags().StringVar(&r.component, "component", "", "roll back this component of the agents, as muster components rollback does")
	cmd.Flags().StringVar(&r.to, "to", "", "with --component: version to go back to (default: on each agent the one that it would choose)")
	return cmd
}

func printRollbackPreview(w io.Writer, p adminapi.RollbackPreview) {
	fmt.Fprintf(w, "%d would be rolled back, %d would not:\n", p.Will, p.Wont)
	tableOf(w, "HOST\tRUNS\tROLLBACK TO\tUNTIL\tREMARK", p.Items, func(i adminapi.RollbackPreviewItem) []any {
		to, until := "-", "-"
		if i.Will {
			to, until = deref(i.To), "the watch ends"
		}
		if i.ValidUntil != nil {
			until = atTime(*i.ValidUntil)
		}
		return []any{i.Hostname, i.Version, to, until, deref(i.Reason)}
	})
	printCauses(w, deref(p.Causes), "ROLLBACK")
}
