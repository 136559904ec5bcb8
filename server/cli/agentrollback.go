package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

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
		ValidArgsFunction: a.completeAgents,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case r.component != "" && forward:
				return &usageError{errors.New("--forward is for the agents themselves: name the version of the component with --to")}
			case r.component != "":
				return r.runComponent(a, cmd, args)
			case r.to != "":
				return &usageError{errors.New("--to goes with --component: agents go back to the version that they keep")}
			}
			args, err := a.agentIDs(cmd.Context(), args)
			if err != nil {
				return err
			}
			preview, err := call(cmd.Context(), a, adminapi.PreviewRollback, adminapi.RollbackPreviewRequest{
				Agents: r.selection.request(args), IncludeInactive: r.selection.includeInactive(), TakeOver: given(r.owner.name), Forward: &forward,
			})
			if err != nil {
				return err
			}
			if r.dryRun {
				return a.show(cmd.OutOrStdout(), preview, func(w io.Writer) { printRollbackPreview(w, preview) })
			}
			if preview.Will == 0 {
				printRollbackPreview(cmd.ErrOrStderr(), preview)
				return errors.New("none of the agents can be rolled back")
			}
			r.selection.printCounts(cmd, preview.Will, preview.Wont, "rolled back")
			created, err := ordered(cmd, &r.owner, func(name *string) (adminapi.ActionsCreated, error) {
				return call(cmd.Context(), a, adminapi.BulkRollbackAgents, adminapi.BulkRollbackRequest{
					Agents:          r.selection.requestPreviewed(args, each(preview.Items, func(i adminapi.RollbackPreviewItem) string { return i.AgentId })),
					IncludeInactive: r.selection.includeInactive(),
					TakeOver:        name,
					Forward:         &forward,
				})
			})
			if err != nil {
				return err
			}
			actions := "action " + strings.Join(created.ActionIds, ", ")
			if !r.wait.on {
				return a.show(cmd.OutOrStdout(), created, func(w io.Writer) {
					fmt.Fprintf(w, "Rolling back %d of %s: %s\nFollow it with `muster actions list`.\n", preview.Will, counted(len(preview.Items), "agent"), actions)
				})
			}
			if err := a.waitFor(cmd, awaitRollback(preview), r.wait.timeout, agentEnd("not rolled back")); err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), created, func(w io.Writer) {
				fmt.Fprintf(w, "%s rolled back by %s\n", counted(len(preview.Items), "agent"), actions)
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
	table(w, "HOST\tRUNS\tROLLBACK TO\tUNTIL\tREMARK", func(add func(...any)) {
		for _, i := range p.Items {
			to, until := "-", "-"
			if i.Will {
				to, until = deref(i.To), "the watch ends"
			}
			if i.ValidUntil != nil {
				until = i.ValidUntil.Local().Format(time.DateTime)
			}
			add(i.Hostname, i.Version, to, until, deref(i.Reason))
		}
	})
	printCauses(w, deref(p.Causes), "ROLLBACK")
}
