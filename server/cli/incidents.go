package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/adminapi"
)

var incidentStates = []string{"open", "acknowledged", "resolved"}

func (a *client) newIncidents() *cobra.Command {
	cmd := &cobra.Command{Use: "incidents", Short: "List, acknowledge and resolve incidents"}
	cmd.AddCommand(a.newIncidentsList(),
		a.newIncidentsVerb("ack", "Acknowledge an incident: somebody works on it", "acknowledged"),
		a.newIncidentsVerb("resolve", "Resolve an incident", "resolved"))
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
			items, total, err := everyPage(limit, func(page, size int) ([]adminapi.Incident, int, error) {
				q.Set("page", fmt.Sprint(page))
				q.Set("perPage", fmt.Sprint(size))
				got, err := call[adminapi.IncidentList](cmd.Context(), a, http.MethodGet, "/api/v1/incidents?"+q.Encode(), nil)
				return got.Items, got.Total, err
			})
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), adminapi.IncidentList{Items: items, Total: total, Page: 1, PerPage: len(items)}, func(w io.Writer) {
				if len(items) == 0 {
					fmt.Fprintln(w, "none")
					return
				}
				now := time.Now()
				table(w, "ID\tSEVERITY\tSTATE\tHOST\tOPENED\tTIMES\tWHAT", func(add func(...any)) {
					for _, i := range items {
						add(i.Id, i.Severity, i.State, firstOf(deref(i.Hostname), deref(i.AgentId), "-"), ago(&i.OpenedAt, now), i.Count, i.Title)
					}
				})
				for _, i := range items {
					if plan := deref(i.RecoveryPlan); plan != "" {
						fmt.Fprintf(w, "%s  recovery: %s\n", i.Id, plan)
					}
					if i.Next != nil && i.State == adminapi.IncidentOpen {
						fmt.Fprintf(w, "%s  next: %s\n", i.Id, i.Next.Command)
					}
				}
				if total > len(items) {
					fmt.Fprintf(w, "… and %d more: see --limit\n", total-len(items))
				}
			})
		},
	}
	cmd.Flags().StringVar(&state, "state", "open", "list incidents in this state: open, acknowledged or resolved")
	cmd.Flags().BoolVar(&all, "all", false, "list incidents in every state")
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number of incidents to list")
	_ = cmd.RegisterFlagCompletionFunc("state", completeWords(incidentStates))
	return cmd
}

func (a *client) newIncidentsVerb(verb, short, done string) *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use:   verb + " INCIDENT",
		Short: short,
		Args:  oneArg("one incident id: `muster incidents list` shows them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call[adminapi.IncidentItem](cmd.Context(), a, http.MethodPost, "/api/v1/incidents/"+url.PathEscape(args[0])+"/"+verb, adminapi.WhyRequest{Why: &why})
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { fmt.Fprintf(w, "%s: %s\n", done, got.Item.Title) })
		},
	}
	whyFlag(cmd, &why)
	return cmd
}
