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
	return running(a, &cobra.Command{
		Use:   "status",
		Short: "Show how many agents are in each status, how many incidents are open, and problems of the servers",
	}, func(cmd *cobra.Command, _ []string) (out fleetStatus, err error) {
		if out.AgentStatusResponse, err = ask(cmd.Context(), a, adminapi.GetAgentStatus, nil); err != nil {
			return out, err
		}
		incidents, err := ask(cmd.Context(), a, adminapi.ListIncidents, url.Values{"state": {"open"}, "perPage": {"1"}})
		if err != nil {
			return out, err
		}
		servers, err := ask(cmd.Context(), a, adminapi.ListServers, nil)
		out.OpenIncidents, out.ServerRemarks = incidents.Total, append([]string{}, servers.Remarks...)
		return out, err
	}, func(w io.Writer, out fleetStatus) {
		r := out.Results
		tableOf(w, "STATUS\tAGENTS", [][]any{
			{"online", r.Online}, {"error", r.Error}, {"updating", r.Updating}, {"offline", r.Offline}, {"inactive", r.Inactive}, {"unenrolled", r.Unenrolled}, {"all", r.All},
		}, func(row []any) []any { return row })
		if out.OpenIncidents > 0 {
			fmt.Fprintf(w, "%s: see `muster incidents list`\n", counted(out.OpenIncidents, "open incident"))
		}
		printRemarks(w, out.ServerRemarks)
	})
}
