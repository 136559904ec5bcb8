package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/adminapi"
)

func (a *client) newKeys() *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "List, create and revoke enrollment keys"}
	list := &cobra.Command{
		Use:   "list",
		Short: "List enrollment keys",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := call[adminapi.EnrollmentKeyList](cmd.Context(), a, http.MethodGet, "/api/fleet/enrollment_api_keys?perPage=1000", nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				table(w, "ID\tNAME\tPOLICY\tACTIVE\tCREATED\tEXPIRES", func(add func(...any)) {
					for _, k := range got.Items {
						expires := "never"
						if k.ExpireAt != nil {
							expires = k.ExpireAt.Local().Format(time.DateTime)
						}
						add(k.Id, k.Name, k.PolicyId, k.Active, k.CreatedAt.Local().Format(time.DateTime), expires)
					}
				})
			})
		},
	}
	var name, policyID, expiration string
	create := &cobra.Command{
		Use:   "create",
		Short: "Create an enrollment key and show its token, this once",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			secret, err := openSecret(cmd.OutOrStdout(), "enrollment-token")
			if err != nil {
				return err
			}
			defer secret.discard()
			got, err := call[adminapi.EnrollmentKeyCreated](cmd.Context(), a, http.MethodPost, "/api/fleet/enrollment_api_keys",
				adminapi.CreateEnrollmentKeyRequest{Name: &name, PolicyId: policyID, Expiration: &expiration})
			if err != nil {
				return err
			}
			out := struct {
				adminapi.EnrollmentKeyCreated
				File string `json:"api_key_file,omitempty"`
			}{EnrollmentKeyCreated: got}
			if out.Item.ApiKey, out.File, err = secret.keep(got.Item.ApiKey); err != nil {
				return fmt.Errorf("key %s: %w", got.Item.Id, err)
			}
			info, err := call[adminapi.Server](cmd.Context(), a, http.MethodGet, "/api/v1/server", nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), out, func(w io.Writer) {
				command := enrollCommand(info.AgentUrl, tokenArgument(out.Item.ApiKey, out.File), info.CaPin, trustFlags(info.TrustRoot, info.PublisherKeys))
				fmt.Fprintf(w, "%s\n\nInstall and enrol a host, as root, in the folder of an unpacked package:\n  ./data/*/%s\n", shownSecret(out.Item.ApiKey, out.File), command)
			})
		},
	}
	create.Flags().StringVar(&name, "name", "", "name of the key")
	create.Flags().StringVar(&policyID, "policy", "default", "policy that hosts enrol into")
	create.Flags().StringVar(&expiration, "expires", "", "how long the key enrols hosts, such as 24h (default: no limit)")
	revoke := &cobra.Command{
		Use:   "revoke KEY",
		Short: "Revoke an enrollment key; agents enrolled with it stay enrolled",
		Args:  oneArg("one key id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call[adminapi.ActionWord](cmd.Context(), a, http.MethodDelete, "/api/fleet/enrollment_api_keys/"+url.PathEscape(args[0]), nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { fmt.Fprintln(w, "revoked") })
		},
	}
	cmd.AddCommand(list, create, revoke)
	return cmd
}

// tokenArgument returns an enrollment token for a command line, or what reads it there.
func tokenArgument(token *string, file string) string {
	if token != nil {
		return *token
	}
	return `"$(cat ` + file + `)"`
}
