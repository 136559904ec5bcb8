package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/adminapi"
)

func (a *app) newAgentsRollback() *cobra.Command {
	var (
		chosen  chosenAgents
		dryRun  bool
		wait    bool
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:   "rollback {AGENT… | --kuery QUERY}",
		Short: "Roll agents back to the version they have kept",
		Long: `Rolls the agents named by id or host name, or those that a query selects, back to the version
they kept last. While an upgrade is being watched, that is the version before it.
--dry-run shows where each would go and changes nothing. --wait follows the
rollback to its end and exits with 0 only if every agent runs the older version.`,
		Example: `  muster agents rollback web-01 web-02 --dry-run
  muster agents rollback --kuery 'agent.version: 1.1.0 and status: (error or degraded)'
  muster agents rollback web-01 --wait`,
		Args:              chosen.check,
		ValidArgsFunction: a.completeAgents,
		RunE: func(cmd *cobra.Command, args []string) error {
			args, err := a.agentIDs(cmd.Context(), args)
			if err != nil {
				return err
			}
			preview, err := call[adminapi.RollbackPreview](cmd.Context(), a, http.MethodPost, "/api/v1/rollback_preview", adminapi.RollbackPreviewRequest{
				Agents: chosen.selection(args), IncludeInactive: chosen.includeInactive(),
			})
			if err != nil {
				return err
			}
			if dryRun {
				return a.show(cmd.OutOrStdout(), preview, func(w io.Writer) { printRollbackPreview(w, preview) })
			}
			if preview.Will == 0 {
				printRollbackPreview(cmd.ErrOrStderr(), preview)
				return errors.New("none of the agents can be rolled back")
			}
			chosen.tell(cmd, preview.Will, preview.Wont, "rolled back")
			created, err := call[adminapi.ActionsCreated](cmd.Context(), a, http.MethodPost, "/api/fleet/agents/bulk_rollback", adminapi.BulkRollbackRequest{
				Agents:          chosen.previewed(args, each(preview.Items, func(i adminapi.RollbackPreviewItem) string { return i.AgentId })),
				IncludeInactive: chosen.includeInactive(),
			})
			if err != nil {
				return err
			}
			actions := "action " + strings.Join(created.ActionIds, ", ")
			if !wait {
				return a.show(cmd.OutOrStdout(), created, func(w io.Writer) {
					fmt.Fprintf(w, "Rolling back %d of %s: %s\nFollow it with `muster actions list`.\n", preview.Will, counted(len(preview.Items), "agent"), actions)
				})
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			failed, err := a.waitForUpgrades(ctx, cmd, awaitRollback(preview), timeout)
			switch {
			case err != nil:
				return err
			case failed > 0:
				return fmt.Errorf("%d of %s not rolled back: see `muster actions list`", failed, counted(len(preview.Items), "agent"))
			}
			return a.show(cmd.OutOrStdout(), created, func(w io.Writer) {
				fmt.Fprintf(w, "%s rolled back by %s\n", counted(len(preview.Items), "agent"), actions)
			})
		},
	}
	f := cmd.Flags()
	chosen.flags(f)
	f.BoolVar(&dryRun, "dry-run", false, "show what would happen, change nothing")
	f.BoolVar(&wait, "wait", false, "wait until every agent is done")
	f.DurationVar(&timeout, "timeout", 30*time.Minute, "how long --wait waits")
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
}
