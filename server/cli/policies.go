package cli

import (
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/adminapi"
)

func (a *client) newPolicies() *cobra.Command {
	cmd := &cobra.Command{Use: "policies", Short: "List and create policies"}
	list := &cobra.Command{
		Use:   "list",
		Short: "List policies",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := call[adminapi.PolicyList](cmd.Context(), a, http.MethodGet, "/api/fleet/agent_policies?perPage=10000&sortField=name&sortOrder=asc", nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				table(w, "ID\tNAME\tAGENTS\tREVISION", func(add func(...any)) {
					for _, p := range got.Items {
						add(p.Id, p.Name, p.Agents, p.Revision)
					}
				})
			})
		},
	}
	req := adminapi.PolicyRequest{Namespace: "default"}
	var id string
	create := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a policy",
		Args:  oneArg("the policy's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Name = args[0]
			if id != "" {
				req.Id = &id
			}
			got, err := call[adminapi.PolicyItem](cmd.Context(), a, http.MethodPost, "/api/fleet/agent_policies", req)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { fmt.Fprintln(w, got.Item.Id) })
		},
	}
	create.Flags().StringVar(&id, "id", "", "id of the policy (default: generated)")
	cmd.AddCommand(list, create)
	return cmd
}
