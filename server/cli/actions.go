package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/adminapi"
)

func (a *client) newActions() *cobra.Command {
	cmd := &cobra.Command{Use: "actions", Short: "List and cancel actions"}
	var limit int
	list := &cobra.Command{
		Use:   "list",
		Short: "List actions and new revisions of policies, newest first",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := call[adminapi.ActionStatusList](cmd.Context(), a, http.MethodGet, fmt.Sprintf("/api/fleet/agents/action_status?perPage=%d", limit), nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				table(w, "ACTION\tTYPE\tSTATUS\tVERSION\tDONE\tFAILED\tAGENTS\tCREATED\tBY", func(add func(...any)) {
					for _, s := range got.Items {
						add(s.ActionId, actionType(s), s.Outcome, actionVersion(s), s.NbAgentsDone, s.NbAgentsFailed, s.NbAgentsActioned, s.CreationTime.Local().Format(time.DateTime), deref(s.CreatedBy))
					}
				})
				for _, s := range got.Items {
					for _, e := range s.LatestErrors {
						fmt.Fprintf(w, "%s  %s: %s\n", s.ActionId, firstOf(deref(e.Hostname), e.AgentId), e.Error)
					}
				}
			})
		},
	}
	list.Flags().IntVar(&limit, "limit", 20, "maximum number of actions to list")
	cancel := &cobra.Command{
		Use:   "cancel ACTION",
		Short: "Cancel the upgrades of an action that agents have not installed yet",
		Args:  oneArg("one action id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call[adminapi.CancelResponse](cmd.Context(), a, http.MethodPost, "/api/fleet/agents/actions/"+url.PathEscape(args[0])+"/cancel", nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { fmt.Fprintln(w, "cancelled") })
		},
	}
	cmd.AddCommand(list, cancel)
	return cmd
}

// actionType returns the type to show: to agents a rollback is an UPGRADE too.
func actionType(s adminapi.ActionStatus) string {
	kind := s.Type
	if deref(s.Rollback) {
		kind = "ROLLBACK"
	}
	if s.Component != nil {
		kind += " of " + *s.Component
	}
	return kind
}

// actionVersion returns the version of an action, and of a POLICY_CHANGE the policy's
// revision.
func actionVersion(s adminapi.ActionStatus) string {
	if s.PolicyId != nil {
		return fmt.Sprintf("policy %s revision %d", *s.PolicyId, deref(s.Revision))
	}
	return deref(s.Version)
}
