package cli

import (
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newAdminKeys() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin-keys",
		Short: "List, create, rotate and revoke the keys of operators and pipelines",
		Long: `An admin key gives access to the admin API, the web UI and this command line. Its name
stands beside everything that is done with it, so give each person and each pipeline its
own. (Hosts enrol with enrollment keys: ` + "`muster keys`" + `. If no admin key is left,
` + "`muster admin-key`" + ` makes one on the server's machine.)`,
	}
	list := showingFor(a, &cobra.Command{Use: "list", Short: "List the admin keys"}, adminapi.ListAdminKeys, url.Values{"perPage": {"1000"}}, func(w io.Writer, got adminapi.AdminKeyList) {
		rows[adminapi.AdminKey]{heading: "ID\tNAME\tSTATE\tCREATED\tBY\tEXPIRES\tLAST USED", row: func(k adminapi.AdminKey, now time.Time) []any {
			return []any{k.Id, k.Name, adminKeyState(k, now), k.CreatedAt.Local().Format(time.DateTime), deref(k.CreatedBy), expires(k.ExpireAt), ago(k.LastUsedAt, now)}
		}}.print(w, got.Items)
	})
	var expiration string
	create := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create an admin key and show it, this once",
		Example: "  muster admin-keys create ann\n  muster admin-keys create ci --expires 2160h",
		Args:    oneArg("the name of the person or program that uses the key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return showNewAdminKey(cmd, a, adminapi.CreateAdminKey, adminapi.CreateAdminKeyRequest{Name: args[0], Expiration: &expiration})
		},
	}
	create.Flags().StringVar(&expiration, "expires", "", "how long the key gives access, such as 2160h (default: no limit)")
	var grace string
	rotate := &cobra.Command{
		Use:   "rotate KEY",
		Short: "Replace your admin key by one with the same name",
		Long: `Create a key with the same name, and revoke this one and end its sessions: at once, or
after the time of --grace, in which both keys are usable. Only the owner of a key rotates
it, with the key itself, and then logs in again with the new one. A key of somebody else
can be revoked.`,
		Args: oneArg("one key id: `muster admin-keys list` shows them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return showNewAdminKey(cmd, a, adminapi.RotateAdminKey, adminapi.RotateAdminKeyRequest{Expiration: &expiration, Grace: &grace}, args[0])
		},
	}
	rotate.Flags().StringVar(&expiration, "expires", "", "how long the new key gives access, such as 2160h (default: as long as the old one was to)")
	rotate.Flags().StringVar(&grace, "grace", "", "how long the old key stays usable, at most 168h (default: not at all)")
	revoke := showing(a, &cobra.Command{
		Use:   "revoke KEY",
		Short: "Revoke an admin key, which also ends its sessions",
		Args:  oneArg("one key id: `muster admin-keys list` shows them"),
	}, adminapi.RevokeAdminKey, saying[adminapi.ActionWord]("revoked"))
	cmd.AddCommand(list, create, rotate, revoke)
	return cmd
}

// expires says when a key expires.
func expires(at *time.Time) string {
	if at == nil {
		return "never"
	}
	return at.Local().Format(time.DateTime)
}

func adminKeyState(k adminapi.AdminKey, now time.Time) string {
	switch {
	case !k.Active:
		return "revoked"
	case k.ExpireAt != nil && !now.Before(*k.ExpireAt):
		return "expired"
	}
	return "active"
}

// showNewAdminKey creates a key by a request and shows it.
func showNewAdminKey[In any](cmd *cobra.Command, a *client, op adminapi.Operation[In, adminapi.AdminKeyItem], req In, path ...string) error {
	secret, err := openSecret(cmd.OutOrStdout(), "admin-key")
	if err != nil {
		return err
	}
	defer secret.discard()
	got, err := call(cmd.Context(), a, op, req, path...)
	if err != nil {
		return err
	}
	out := struct {
		adminapi.AdminKeyItem
		File string `json:"api_key_file,omitempty"`
	}{AdminKeyItem: got}
	if out.Item.ApiKey, out.File, err = secret.keep(got.Item.ApiKey); err != nil {
		return fmt.Errorf("key %s: %w", got.Item.Id, err)
	}
	return a.show(cmd.OutOrStdout(), out, func(w io.Writer) { fmt.Fprintln(w, shownSecret(out.Item.ApiKey, out.File)) })
}
