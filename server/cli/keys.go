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

func (a *client) newKeys() *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "List, show, create and revoke enrollment keys"}
	list := &cobra.Command{
		Use:   "list",
		Short: "List enrollment keys",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := call[adminapi.EnrollmentKeyList](cmd.Context(), a, http.MethodGet, "/api/fleet/enrollment_api_keys?perPage=10000", nil)
			if err != nil {
				return err
			}
			// A list is kept and passed on more readily than one token; see newSecret.
			got.List = nil
			for i := range got.Items {
				got.Items[i].ApiKey = nil
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
	show := &cobra.Command{
		Use:   "show KEY",
		Short: "Show the token of an enrollment key, and the command that enrols a host with it",
		Args:  oneArg("one key id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.showKey(cmd, func() (shownKey, error) {
				return call[shownKey](cmd.Context(), a, http.MethodGet, "/api/fleet/enrollment_api_keys/"+url.PathEscape(args[0]), nil)
			})
		},
	}
	var name, policyID, expiration string
	create := &cobra.Command{
		Use:   "create",
		Short: "Create an enrollment key and show its token",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.showKey(cmd, func() (shownKey, error) {
				req := adminapi.CreateEnrollmentKeyRequest{Name: &name, PolicyId: policyID, Expiration: expirationOf(expiration)}
				got, err := call[shownKey](cmd.Context(), a, http.MethodPost, "/api/fleet/enrollment_api_keys", req)
				var refused *refusal
				if errors.As(err, &refused) && refused.status == http.StatusNotFound {
					err = fmt.Errorf("%w: see `muster policies list`", err)
				}
				return got, err
			})
		},
	}
	create.Flags().StringVar(&name, "name", "", "name of the key")
	create.Flags().StringVar(&policyID, "policy", "default", "policy that hosts enrol into")
	create.Flags().StringVar(&expiration, "expires", "", "how long the key enrols hosts, such as 24h or 30d (default: no limit)")
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
	cmd.AddCommand(list, show, create, revoke)
	return cmd
}

// shownKey is the output about one key.
type shownKey struct {
	Action string                 `json:"action,omitempty"` // created
	Item   adminapi.EnrollmentKey `json:"item"`
	File   string                 `json:"api_key_file,omitempty"`
}

// showKey shows the token of the key that get returns, and the command that enrols a host.
func (a *client) showKey(cmd *cobra.Command, get func() (shownKey, error)) error {
	secret, err := openSecret(cmd.OutOrStdout(), "enrollment-token")
	if err != nil {
		return err
	}
	defer secret.discard()
	out, err := get()
	if err != nil {
		return err
	}
	if out.Item.ApiKey == nil {
		return fmt.Errorf("key %s: the server does not show its token again: it keeps only a hash of it, or lacks the key that decrypts it (then /api/status is degraded): create another key", out.Item.Id)
	}
	if out.Item.ApiKey, out.File, err = secret.keep(out.Item.ApiKey); err != nil {
		return fmt.Errorf("key %s: %w", out.Item.Id, err)
	}
	info, err := call[adminapi.Server](cmd.Context(), a, http.MethodGet, "/api/v1/server", nil)
	if err != nil {
		return err
	}
	return a.show(cmd.OutOrStdout(), out, func(w io.Writer) {
		command := enrollCommand(info.AgentUrl, tokenArgument(out.Item.ApiKey, out.File), info.CaPin, trustFlags(info.TrustRoot, info.PublisherKeys))
		fmt.Fprintf(w, "%s\n\nInstall and enrol a host, as root, in the folder of an unpacked package:\n  ./data/*/%s\n", shownSecret(out.Item.ApiKey, out.File), command)
	})
}

// expirationOf returns the expiration of a key as the API has it, which takes one unit. It
// passes what is no duration on to the server, which says what is wrong with it.
func expirationOf(text string) *string {
	if d, err := time.ParseDuration(text); err == nil && d > 0 && d%time.Second == 0 {
		text = fmt.Sprintf("%ds", int64(d/time.Second))
	}
	if text == "" {
		return nil
	}
	return &text
}

// tokenArgument returns an enrollment token for a command line, or what reads it there.
func tokenArgument(token *string, file string) string {
	if token != nil {
		return *token
	}
	return `"$(cat ` + file + `)"`
}
