package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"time"

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

func (a *client) newAttention() *cobra.Command {
	return showing(a, &cobra.Command{
		Use:   "attention",
		Short: "List what waits for a person, the most urgent first",
		Long: `List what waits for a person, the most urgent first: rollouts that wait for approval or were
paused by a gate, open incidents, failed upgrades, suspended fleets, keys and signed files
that expire within 30 days, notifications that could not be delivered, and remarks about the
servers.`,
	}, adminapi.GetAttention, func(w io.Writer, got adminapi.Attention) {
		if len(got.Items) == 0 {
			fmt.Fprintln(w, "Nothing waits for a person.")
			return
		}
		now := time.Now()
		for _, i := range got.Items {
			fmt.Fprintf(w, "%-8s  %s\n", i.Severity, i.Text)
			about := deref(i.Subject)
			if i.Since != nil {
				about = cmp.Or(about, "since") + "  " + ago(i.Since, now)
			}
			fmt.Fprintf(w, "%-8s  %s", "", deref(i.Next))
			if about != "" {
				fmt.Fprintf(w, "  (%s)", about)
			}
			fmt.Fprintln(w)
		}
	})
}

func (a *client) newSettings() *cobra.Command {
	return showing(a, &cobra.Command{
		Use:   "settings",
		Short: "Show the settings in force on the server, and where each comes from",
		Long: `Show the settings in force on the server that answers, and where each comes from: the
default, the configuration file, the environment or a flag. Secrets are hidden.
` + "`muster server --example-config`" + ` explains every key.`,
	}, adminapi.GetServerSettings, func(w io.Writer, got adminapi.Settings) {
		tableOf(w, "KEY\tVALUE\tFROM", got.Items, func(s adminapi.Setting) []any { return []any{s.Key, cmp.Or(s.Value, "-"), s.Origin} })
	})
}
