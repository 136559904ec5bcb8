package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newServers() *cobra.Command {
	return noun(&cobra.Command{
		Use:   "servers",
		Short: "List the servers of the installation, and forget those that are gone",
		Long: `Every server writes to the store that it runs, and in which version. One that has not for
15 seconds is away, and is listed for another 7 days. The metric muster_servers counts those
that run, by version.`,
	},
		showing(a, &cobra.Command{
			Use:   "list",
			Short: "List the servers, with their versions and since when they run",
		}, adminapi.ListServers, func(w io.Writer, got adminapi.KnownServerList) {
			knownServers.print(w, got.Items)
			printRemarks(w, got.Remarks)
		}),
		showing(a, &cobra.Command{
			Use:   "forget SERVER",
			Short: "Remove a server that is away from the list",
			Long: `forget removes a server that is away from the list. One that runs is listed again within
seconds, and is refused: stop it first.`,
			Args: oneArg("one server id: `muster servers list` shows them"),
			ValidArgsFunction: completing(func(ctx context.Context) ([]string, error) {
				list, err := ask(ctx, a, adminapi.ListServers, nil)
				away := slices.DeleteFunc(list.Items, func(s adminapi.KnownServer) bool { return !s.Away })
				return each(away, func(s adminapi.KnownServer) string { return s.Id + "\t" + s.Host + " " + s.Version }), err
			}),
		}, adminapi.ForgetServer, saying[adminapi.ActionWord]("forgotten")))
}

var knownServers = rows[adminapi.KnownServer]{heading: "ID\tHOST\tVERSION\tSTATE\tSTARTED\tSEEN\tAGENTS\tURL", row: func(s adminapi.KnownServer, now time.Time) []any {
	state, parked := "running", fmt.Sprint(s.Parked)
	if s.Away {
		state, parked = "away", "-"
	}
	return []any{s.Id, s.Host, s.Version, state, ago(&s.StartedAt, now), ago(&s.SeenAt, now), parked, s.AdminUrl}
}}

func printRemarks(w io.Writer, remarks []string) {
	for _, text := range remarks {
		fmt.Fprintf(w, "warning: %s\n", text)
	}
}
