package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newViews() *cobra.Command {
	save := &cobra.Command{
		Use:     "save NAME",
		Short:   "Save a view, which replaces the one of the same page and name",
		Example: `  muster views save 'Offline in Berlin' --search 'kuery=health%3Aoffline+and+site%3Aber'`,
		Args:    cobra.ExactArgs(1),
	}
	page := save.Flags().String("page", "agents", "page of the view: agents, activity, rollouts, audit or incidents")
	search := save.Flags().String("search", "", "the page's address after the question mark")
	return noun(&cobra.Command{Use: "views", Short: "List, save and delete the saved views of the web UI's lists"},
		showing(a, &cobra.Command{Use: "list", Short: "List the saved views"}, adminapi.ListViews, func(w io.Writer, got adminapi.ViewList) {
			rows[adminapi.View]{heading: "ID\tPAGE\tNAME\tSEARCH\tBY\tAT", empty: "none", row: func(v adminapi.View, _ time.Time) []any {
				return []any{v.ID, v.Page, v.Name, v.Search, v.CreatedBy, atTime(v.CreatedAt)}
			}}.print(w, got.Items)
		}),
		sending(a, save, adminapi.SaveView, func(_ *cobra.Command, args []string) (adminapi.SaveViewRequest, error) {
			return adminapi.SaveViewRequest{Page: adminapi.ViewPage(*page), Name: args[0], Search: *search}, nil
		}, func(w io.Writer, got adminapi.ViewItem) { fmt.Fprintf(w, "saved %s\n", got.Item.ID) }),
		showing(a, &cobra.Command{
			Use:   "delete VIEW",
			Short: "Delete a saved view, by its id",
			Args:  cobra.ExactArgs(1),
		}, adminapi.DeleteView, func(w io.Writer, got adminapi.ActionWord) { fmt.Fprintln(w, got.Action) }))
}
