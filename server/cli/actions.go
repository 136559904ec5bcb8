package cli

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newActions() *cobra.Command {
	cmd := &cobra.Command{Use: "actions", Short: "List and cancel actions, and list the agents of one"}
	var limit int
	list := &cobra.Command{
		Use:   "list",
		Short: "List actions and new revisions of policies, newest first",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := ask(cmd.Context(), a, adminapi.ListActionStatus, url.Values{"perPage": {fmt.Sprint(limit)}})
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				table(w, "ACTION\tTYPE\tSTATUS\tVERSION\tCOMMITTED\tFAILED\tAGENTS\tCREATED\tBY", func(add func(...any)) {
					for _, s := range got.Items {
						add(s.ActionId, actionType(s), actionState(s), actionVersion(s), s.NbAgentsDone, s.NbAgentsFailed, s.NbAgentsActioned, s.CreationTime.Local().Format(time.DateTime), deref(s.CreatedBy))
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
	cancel := showing(a, &cobra.Command{
		Use:   "cancel ACTION",
		Short: "Cancel the upgrades of an action that agents have not installed yet",
		Args:  oneArg("one action id"),
	}, adminapi.CancelAction, saying[adminapi.CancelResponse]("cancelled"))
	cmd.AddCommand(list, a.newActionsAgents(), cancel)
	return cmd
}

var actionHostStates = []string{
	"scheduled", "sent", "accepted", "downloading", "installing", "restarting", "watching", "committed", "rolled_back", "failed", "waiting_for_host", "done", "stopped",
}

func (a *client) newActionsAgents() *cobra.Command {
	var (
		states []string
		limit  int
	)
	cmd := &cobra.Command{
		Use:     "agents ACTION",
		Short:   "List the agents that an action was ordered for, each with its state and the reason",
		Example: "  muster actions agents ACTION --state failed,rolled_back",
		Args:    oneArg("one action id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := everyPage[adminapi.ActionHost](cmd.Context(), a, adminapi.ListActionAgents, limit, url.Values{"state": states}, args[0])
			if err != nil {
				return err
			}
			return showPaged(a, cmd.OutOrStdout(), got, rows[adminapi.ActionHost]{heading: "HOST\tAGENT\tSTATE\tSINCE\tWHY", row: func(h adminapi.ActionHost, _ time.Time) []any {
				since := "-"
				if h.Since != nil {
					since = h.Since.Local().Format(time.DateTime)
				}
				return []any{firstOf(deref(h.Hostname), "-"), h.AgentId, spaced(string(h.State)), since, firstOf(deref(h.Text), deref(h.Reason).Text, "-")}
			}})
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "list only agents in these states: "+strings.Join(actionHostStates, ", "))
	cmd.Flags().IntVar(&limit, "limit", 1000, "maximum number of agents to list")
	_ = cmd.RegisterFlagCompletionFunc("state", completeWords(actionHostStates))
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

// actionState returns how an action stands, and while the server still carries the order out, how
// far it is.
func actionState(s adminapi.ActionStatus) string {
	if p := s.Preparing; p != nil {
		return fmt.Sprintf("ORDERING %d of %d", p.Handled, p.Agents)
	}
	return string(s.Outcome)
}

// actionVersion returns the version of an action, and of a POLICY_CHANGE the policy's
// revision.
func actionVersion(s adminapi.ActionStatus) string {
	if s.PolicyId != nil {
		return fmt.Sprintf("policy %s revision %d", *s.PolicyId, deref(s.Revision))
	}
	return deref(s.Version)
}
