package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/adminapi"
)

func (a *client) newPolicies() *cobra.Command {
	cmd := &cobra.Command{Use: "policies", Short: "List, show, create, copy and delete policies"}
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
	cmd.AddCommand(list, a.newPoliciesShow(), create, a.newPoliciesCopy(), a.newPoliciesDelete())
	return cmd
}

func (a *client) newPoliciesShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show a policy; -o json shows all of its settings",
		Args:  oneArg("the policy's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call[adminapi.PolicyItem](cmd.Context(), a, http.MethodGet, "/api/fleet/agent_policies/"+url.PathEscape(args[0]), nil)
			if err != nil {
				return err
			}
			p := got.Item
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				fmt.Fprintf(w, "%s  %s\n", p.Name, p.Id)
				row := func(name, format string, args ...any) {
					fmt.Fprintf(w, "  %-12s %s\n", name, fmt.Sprintf(format, args...))
				}
				if d := deref(p.Description); d != "" {
					row("description", "%s", d)
				}
				row("namespace", "%s", p.Namespace)
				row("agents", "%d", p.Agents)
				row("revision", "%d, by %s at %s", p.Revision, p.UpdatedBy, p.UpdatedAt.Local().Format(time.DateTime))
				row("inactive", "%s", inactiveAfter(deref(p.InactivityTimeout)))
				for _, v := range deref(p.RequiredVersions) {
					row("requires", "%s of %v %% of the agents", v.Version, v.Percentage)
				}
				if p.IsProtected {
					row("protected", "from uninstalling")
				}
				if p.IsManaged {
					row("managed", "changed only with force")
				}
			})
		},
	}
}

func inactiveAfter(seconds int) string {
	if seconds == 0 {
		return "never"
	}
	return fmt.Sprintf("after %s of silence", time.Duration(seconds)*time.Second)
}

func (a *client) newPoliciesCopy() *cobra.Command {
	return &cobra.Command{
		Use:   "copy ID NAME",
		Short: "Create a policy with the settings of another, without its required versions",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("want the policy's id and the name of the new one (see `muster policies copy --help`)")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call[adminapi.PolicyItem](cmd.Context(), a, http.MethodPost, "/api/fleet/agent_policies/"+url.PathEscape(args[0])+"/copy",
				adminapi.CopyPolicyRequest{Name: args[1]})
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { fmt.Fprintln(w, got.Item.Id) })
		},
	}
}

func (a *client) newPoliciesDelete() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete a policy that has no agents, and revoke its enrollment keys",
		Args:  oneArg("the policy's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call[adminapi.DeletedPolicy](cmd.Context(), a, http.MethodPost, "/api/fleet/agent_policies/delete",
				adminapi.DeletePolicyRequest{AgentPolicyId: args[0], Force: &force})
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { fmt.Fprintf(w, "deleted %s (%s)\n", got.Id, got.Name) })
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "delete even a managed policy")
	return cmd
}
