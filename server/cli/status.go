package cli

import (
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/adminapi"
)

func (a *client) newStatus() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show how many agents are in each status",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := call[adminapi.AgentStatusResponse](cmd.Context(), a, http.MethodGet, "/api/fleet/agent_status", nil)
			if err != nil {
				return err
			}
			r := got.Results
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				table(w, "STATUS\tAGENTS", func(add func(...any)) {
					add("online", r.Online)
					add("error", r.Error)
					add("updating", r.Updating)
					add("offline", r.Offline)
					add("inactive", r.Inactive)
					add("unenrolled", r.Unenrolled)
					add("all", r.All)
				})
			})
		},
	}
}
