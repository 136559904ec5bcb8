package cli

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newActions() *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List actions and new revisions of policies, newest first"}
	list.Flags().Int("limit", 20, "maximum number of actions to list")
	agents := &cobra.Command{
		Use:     "agents ACTION",
		Short:   "List the agents that an action was ordered for, each with its state and the reason",
		Example: "  muster actions agents ACTION --state failed,rolled_back",
		Args:    oneArg("one action id"),
	}
	statesFlag(agents, "agents", actionHostStates)
	return noun(&cobra.Command{Use: "actions", Short: "List and cancel actions, and list the agents of one"},
		showingFor(a, list, adminapi.ListActionStatus, query{"perPage": "--limit"}, printActions),
		listing(a, agents, adminapi.ListActionAgents, query{"state": "--state"}, 1000, "agents", actionHosts),
		showing(a, &cobra.Command{
			Use:   "cancel ACTION",
			Short: "Cancel the upgrades of an action that agents have not installed yet",
			Args:  oneArg("one action id"),
		}, adminapi.CancelAction, saying[adminapi.CancelResponse]("cancelled")))
}

func printActions(w io.Writer, got adminapi.ActionStatusList) {
	tableOf(w, "ACTION\tTYPE\tSTATUS\tVERSION\tCOMMITTED\tFAILED\tAGENTS\tCREATED\tBY", got.Items, func(s adminapi.ActionStatus) []any {
		return []any{s.ActionId, actionType(s), actionState(s), actionVersion(s), s.NbAgentsDone, s.NbAgentsFailed, s.NbAgentsActioned, atTime(s.CreationTime), deref(s.CreatedBy)}
	})
	for _, s := range got.Items {
		for _, e := range s.LatestErrors {
			fmt.Fprintf(w, "%s  %s: %s\n", s.ActionId, cmp.Or(deref(e.Hostname), e.AgentId), e.Error)
		}
	}
}

var actionHostStates = []string{
	"scheduled", "sent", "accepted", "downloading", "installing", "restarting", "watching", "committed", "rolled_back", "failed", "waiting_for_host", "done", "stopped",
}

var actionHosts = rows[adminapi.ActionHost]{heading: "HOST\tAGENT\tSTATE\tSINCE\tWHY", row: func(h adminapi.ActionHost, _ time.Time) []any {
	since := "-"
	if h.Since != nil {
		since = atTime(*h.Since)
	}
	return []any{cmp.Or(deref(h.Hostname), "-"), h.AgentId, spaced(string(h.State)), since, cmp.Or(deref(h.Text), deref(h.Reason).Text, "-")}
}}

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
