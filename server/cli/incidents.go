package cli

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

var incidentStates = []string{"open", "acknowledged", "resolved"}

func (a *client) newIncidents() *cobra.Command {
	cmd := &cobra.Command{Use: "incidents", Short: "List, acknowledge and resolve incidents", Long: "List, acknowledge and resolve incidents.\n\nINCIDENT" + findLong + "\nThe name of an incident is its text in the column WHAT of the list."}
	cmd.AddCommand(a.newIncidentsList(),
		a.newIncidentsAck(),
		a.newIncidentsResolve())
	return cmd
}

func (a *client) newIncidentsList() *cobra.Command {
	var (
		state string
		all   bool
		limit int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List open incidents, or those in another state",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{}
			switch {
			case all && cmd.Flags().Changed("state"):
				return &usageError{errors.New("want --state or --all, not both")}
			case all:
			case !slices.Contains(incidentStates, state):
				return &usageError{fmt.Errorf("--state is %q, want %s", state, strings.Join(incidentStates, ", "))}
			default:
				q.Set("state", state)
			}
			got, err := everyPage[adminapi.Incident](cmd.Context(), a, adminapi.ListIncidents, limit, q)
			if err != nil {
				return err
			}
			return showPaged(a, cmd.OutOrStdout(), got, rows[adminapi.Incident]{
				heading: "ID\tSEVERITY\tSTATE\tHOST\tOPENED\tTIMES\tWHAT", empty: "none",
				row: func(i adminapi.Incident, now time.Time) []any {
					return []any{i.ID, i.Severity, i.State, firstOf(i.Hostname, i.AgentID, "-"), ago(&i.OpenedAt, now), i.Count, i.Title}
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
			})
		},
	}
	cmd.Flags().StringVar(&state, "state", "open", "list incidents in this state: open, acknowledged or resolved")
	cmd.Flags().BoolVar(&all, "all", false, "list incidents in every state")
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number of incidents to list")
	_ = cmd.RegisterFlagCompletionFunc("state", completeWords(incidentStates))
	return cmd
}

func (a *client) newIncidentsAck() *cobra.Command {
	return sending(a, &cobra.Command{
		Use:   "ack INCIDENT",
		Short: "Acknowledge an incident: somebody works on it",
		Args:  oneArg("one incident id: `muster incidents list` shows them"),
	}, adminapi.AckIncident, body(&adminapi.WhyRequest{}), func(w io.Writer, got adminapi.IncidentItem) {
		fmt.Fprintf(w, "acknowledged: %s\n", got.Item.Title)
	})
}

func (a *client) newIncidentsResolve() *cobra.Command {
	var category, rolloutID, agentID string
	var all bool
	cmd := sendingThen(a, &cobra.Command{
		Use:   "resolve [INCIDENT...]",
		Short: "Resolve incidents, by their ids or by a filter",
		Long: `Resolve incidents, by their ids or by a filter, and say what was done with each. The server itself
resolves an incident within a minute once its cause is gone.`,
		Example: `  muster incidents resolve upgrade_stalled:7f3c:web-1 --why "replaced the disk"
  muster incidents resolve --rollout ROLLOUT --why "the rollout is over"
  muster incidents resolve --category upgrade_stalled
  muster incidents resolve --all`,
	}, adminapi.ResolveIncidents, func(cmd *cobra.Command, args []string) (req adminapi.ResolveIncidentsRequest, err error) {
		if len(args) == 0 && !all && category == "" && rolloutID == "" && agentID == "" {
			return req, &usageError{errors.New("want the ids of incidents (`muster incidents list` shows them), or one of --category, --rollout, --agent and --all")}
		}
		id, err := a.allRollouts().find(cmd.Context(), rolloutID)
		if err != nil {
			return req, fmt.Errorf("--rollout: %w", err)
		}
		req = adminapi.ResolveIncidentsRequest{Category: given(category), AgentId: given(agentID), RolloutId: given(id), All: given(all)}
		if len(args) > 0 {
			req.Ids = &args
		}
		return req, nil
	}, func(cmd *cobra.Command, _ []string, got adminapi.ResolvedIncidents) error {
		failed := 0
		err := a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
			for _, i := range got.Item.Incidents {
				switch i.Result {
				case adminapi.ResolveDone:
					fmt.Fprintf(w, "resolved: %s\n", firstOf(deref(i.Title), i.Id))
				default:
					fmt.Fprintf(w, "%s: %s\n", i.Id, deref(i.Text))
				}
			}
			if len(got.Item.Incidents) == 0 {
				fmt.Fprintln(w, "No incident matches that is not resolved.")
			}
		})
		for _, i := range got.Item.Incidents {
			if i.Result == adminapi.ResolveNotFound || i.Result == adminapi.ResolveFailed {
				failed++
			}
		}
		if err == nil && failed > 0 {
			err = fmt.Errorf("%s could not be resolved", counted(failed, "incident"))
		}
		return err
	})
	f := cmd.Flags()
	f.StringVar(&category, "category", "", "those of a category, such as upgrade_stalled")
	f.StringVar(&rolloutID, "rollout", "", "those of a rollout, by its id")
	f.StringVar(&agentID, "agent", "", "those of an agent, by its id")
	f.BoolVar(&all, "all", false, "all that are not resolved")
	return cmd
}
