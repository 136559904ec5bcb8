package cli

import (
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

// fleetStatus is the JSON output of `muster status`.
type fleetStatus struct {
	adminapi.AgentStatusResponse
	OpenIncidents int `json:"open_incidents"`
	// ServerRemarks are those of `muster servers list`.
	ServerRemarks []string `json:"server_remarks"`
}

func (a *client) newStatus() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show how many agents are in each status, how many incidents are open, and problems of the servers",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := ask(cmd.Context(), a, adminapi.GetAgentStatus, nil)
			if err != nil {
				return err
			}
			incidents, err := ask(cmd.Context(), a, adminapi.ListIncidents, url.Values{"state": {"open"}, "perPage": {"1"}})
			if err != nil {
				return err
			}
			servers, err := ask(cmd.Context(), a, adminapi.ListServers, nil)
			if err != nil {
				return err
			}
			r, open := got.Results, incidents.Total
			return a.show(cmd.OutOrStdout(), fleetStatus{got, open, append([]string{}, servers.Remarks...)}, func(w io.Writer) {
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
				printRemarks(w, servers.Remarks)
			})
		},
	}
}
