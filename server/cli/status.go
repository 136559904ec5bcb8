package cli

import (
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/adminapi"
)

// fleetStatus is the JSON output of `muster status`.
type fleetStatus struct {
	adminapi.AgentStatusResponse
	OpenIncidents int `json:"open_incidents"`
}

func (a *client) newStatus() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show how many agents are in each status, and how many incidents are open",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := call[adminapi.AgentStatusResponse](cmd.Context(), a, http.MethodGet, "/api/fleet/agent_status", nil)
			if err != nil {
				return err
			}
			incidents, err := call[adminapi.IncidentList](cmd.Context(), a, http.MethodGet, "/api/v1/incidents?state=open&perPage=1", nil)
			if err != nil {
				return err
			}
			r, open := got.Results, incidents.Total
			return a.show(cmd.OutOrStdout(), fleetStatus{got, open}, func(w io.Writer) {
				table(w, "STATUS\tAGENTS", func(add func(...any)) {
					add("online", r.Online)
					add("error", r.Error)
					add("updating", r.Updating)
					add("offline", r.Offline)
					add("inactive", r.Inactive)
					add("unenrolled", r.Unenrolled)
					add("all", r.All)
				})
				if open > 0 {
					fmt.Fprintf(w, "%s: see `muster incidents list`\n", counted(open, "open incident"))
				}
			})
		},
	}
}
