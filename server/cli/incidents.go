package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

var incidentStates = []string{"open", "acknowledged", "resolved"}

func (a *client) newIncidents() *cobra.Command {
	return noun(&cobra.Command{Use: "incidents", Short: "List, acknowledge and resolve incidents", Long: "List, acknowledge and resolve incidents.\n\nINCIDENT" + findLong + "\nThe name of an incident is its text in the column WHAT of the list."},
		a.newIncidentsList(),
		sending(a, &cobra.Command{
			Use:   "ack INCIDENT",
			Short: "Acknowledge an incident: somebody works on it",
			Args:  oneArg("one incident id: `muster incidents list` shows them"),
		}, adminapi.AckIncident, body(&adminapi.WhyRequest{}), func(w io.Writer, got adminapi.IncidentItem) {
			fmt.Fprintf(w, "acknowledged: %s\n", got.Item.Title)
		}),
		a.newIncidentsResolve())
}

func (a *client) newIncidentsList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List open incidents, or those in another state"}
	state := cmd.Flags().String("state", "open", "list incidents in this state: open, acknowledged or resolved")
	all := cmd.Flags().Bool("all", false, "list incidents in every state")
	_ = cmd.RegisterFlagCompletionFunc("state", completeWords(incidentStates))
	list := listing(a, cmd, adminapi.ListIncidents, query{"state": "--state"}, 100, "incidents", rows[adminapi.Incident]{
		heading: "ID\tSEVERITY\tSTATE\tHOST\tOPENED\tTIMES\tWHAT", empty: "none",
		row: func(i adminapi.Incident, now time.Time) []any {
			return []any{i.ID, i.Severity, i.State, cmp.Or(i.Hostname, i.AgentID, "-"), ago(&i.OpenedAt, now), i.Count, i.Title}
		},
		below: func(w io.Writer, items []adminapi.Incident) {
			for _, i := range items {
				if plan := i.RecoveryPlan; plan != "" {
					fmt.Fprintf(w, "%s  recovery: %s\n", i.ID, plan)
				}
				if i.Next != nil && i.State == fleet.IncidentOpen {
					fmt.Fprintf(w, "%s  next: %s\n", i.ID, i.Next.Command)
				}
			}
		},
	}).RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case *all && cmd.Flags().Changed("state"):
			return &usageError{errors.New("want --state or --all, not both")}
		case *all:
			*state = ""
		case !slices.Contains(incidentStates, *state):
			return &usageError{fmt.Errorf("--state is %q, want %s", *state, strings.Join(incidentStates, ", "))}
		}
		return list(cmd, args)
	}
	return cmd
}

func (a *client) newIncidentsResolve() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resolve [INCIDENT...]",
		Short: "Resolve incidents, by their ids or by a filter",
		Long: `Resolve incidents, by their ids or by a filter, and say what was done with each. The server itself
resolves an incident within a minute once its cause is gone.`,
		Example: `  muster incidents resolve upgrade_stalled:7f3c:web-1 --why "replaced the disk"
  muster incidents resolve --rollout ROLLOUT --why "the rollout is over"
  muster incidents resolve --category upgrade_stalled
  muster incidents resolve --all`,
	}
	f := cmd.Flags()
	category := f.String("category", "", "those of a category, such as upgrade_stalled")
	rollout := f.String("rollout", "", "those of a rollout, by its id")
	agent := f.String("agent", "", "those of an agent, by its id")
	all := f.Bool("all", false, "all that are not resolved")
	resolve := sent(a, adminapi.ResolveIncidents, func(cmd *cobra.Command, args []string) (req adminapi.ResolveIncidentsRequest, err error) {
		if len(args) == 0 && !*all && *category == "" && *rollout == "" && *agent == "" {
			return req, &usageError{errors.New("want the ids of incidents (`muster incidents list` shows them), or one of --category, --rollout, --agent and --all")}
		}
		id, err := a.allRollouts().find(cmd.Context(), *rollout)
		if err != nil {
			return req, fmt.Errorf("--rollout: %w", err)
		}
		req = adminapi.ResolveIncidentsRequest{Category: given(*category), AgentId: given(*agent), RolloutId: given(id), All: given(*all)}
		if len(args) > 0 {
			req.Ids = &args
		}
		return req, nil
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		got, err := resolve(cmd, args)
		if err != nil {
			return err
		}
		return errors.Join(a.show(cmd.OutOrStdout(), got, func(w io.Writer) { printResolved(w, got) }), unresolved(got))
	}
	return cmd
}

func printResolved(w io.Writer, got adminapi.ResolvedIncidents) {
	for _, i := range got.Item.Incidents {
		if i.Result == adminapi.ResolveDone {
			fmt.Fprintf(w, "resolved: %s\n", cmp.Or(deref(i.Title), i.Id))
		} else {
			fmt.Fprintf(w, "%s: %s\n", i.Id, deref(i.Text))
		}
	}
	if len(got.Item.Incidents) == 0 {
		fmt.Fprintln(w, "No incident matches that is not resolved.")
	}
}

// unresolved returns an error if incidents could not be resolved.
func unresolved(got adminapi.ResolvedIncidents) error {
	failed := 0
	for _, i := range got.Item.Incidents {
		if i.Result == adminapi.ResolveNotFound || i.Result == adminapi.ResolveFailed {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%s could not be resolved", counted(failed, "incident"))
	}
	return nil
}
