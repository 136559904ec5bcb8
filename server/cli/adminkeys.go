package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newAdminKeys() *cobra.Command {
	create := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create an admin key and show it, this once",
		Example: "  muster admin-keys create ann\n  muster admin-keys create ci --expires 2160h",
		Args:    oneArg("the name of the person or program that uses the key"),
	}
	life := create.Flags().String("expires", "", "how long the key gives access, such as 2160h (default: no limit)")
	rotate := &cobra.Command{
		Use:   "rotate KEY",
		Short: "Replace your admin key by one with the same name",
		Long: `Create a key with the same name, and revoke this one and end its sessions: at once, or
after the time of --grace, in which both keys are usable. Only the owner of a key rotates
it, with the key itself, and then logs in again with the new one. A key of somebody else
can be revoked.`,
		Args: oneArg("one key id: `muster admin-keys list` shows them"),
	}
	var req adminapi.RotateAdminKeyRequest
	req.Expiration = rotate.Flags().String("expires", "", "how long the new key gives access, such as 2160h (default: as long as the old one was to)")
	req.Grace = rotate.Flags().String("grace", "", "how long the old key stays usable, at most 168h (default: not at all)")
	return noun(&cobra.Command{
		Use:   "admin-keys",
		Short: "List, create, rotate and revoke the keys of operators and pipelines",
		Long: `An admin key gives access to the admin API, the web UI and this command line. Its name
stands beside everything that is done with it, so give each person and each pipeline its
own. (Hosts enrol with enrollment keys: ` + "`muster keys`" + `. If no admin key is left,
` + "`muster admin-key`" + ` makes one on the server's machine.)`,
	},
		showingFor(a, &cobra.Command{Use: "list", Short: "List the admin keys"}, adminapi.ListAdminKeys, query{"perPage": "1000"}, func(w io.Writer, got adminapi.AdminKeyList) {
			rows[adminapi.AdminKey]{heading: "ID\tNAME\tSTATE\tCREATED\tBY\tEXPIRES\tLAST USED", row: func(k adminapi.AdminKey, now time.Time) []any {
				return []any{k.Id, k.Name, adminKeyState(k, now), atTime(k.CreatedAt), deref(k.CreatedBy), expires(k.ExpireAt), ago(k.LastUsedAt, now)}
			}}.print(w, got.Items)
		}),
		newAdminKey(a, create, adminapi.CreateAdminKey, func(_ *cobra.Command, args []string) (adminapi.CreateAdminKeyRequest, error) {
			return adminapi.CreateAdminKeyRequest{Name: args[0], Expiration: life}, nil
		}),
		newAdminKey(a, rotate, adminapi.RotateAdminKey, body(&req)),
		showing(a, &cobra.Command{
			Use:   "revoke KEY",
			Short: "Revoke an admin key, which also ends its sessions",
			Args:  oneArg("one key id: `muster admin-keys list` shows them"),
		}, adminapi.RevokeAdminKey, saying[adminapi.ActionWord]("revoked")))
}

// expires says when a key expires.
func expires(at *time.Time) string {
	if at == nil {
		return "never"
	}
	return atTime(*at)
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

// newAdminKeyItem is the output about a new key.
type newAdminKeyItem struct {
	adminapi.AdminKeyItem
	File string `json:"api_key_file,omitempty"`
}

// newAdminKey makes cmd create a key by a request, and show it.
func newAdminKey[In any](a *client, cmd *cobra.Command, op adminapi.Operation[In, adminapi.AdminKeyItem], request func(cmd *cobra.Command, args []string) (In, error)) *cobra.Command {
	create := sent(a, op, request)
	return running(a, cmd, func(cmd *cobra.Command, args []string) (out newAdminKeyItem, err error) {
		out.File, err = keepSecret(cmd.OutOrStdout(), "admin-key", func() (string, **string, error) {
			out.AdminKeyItem, err = create(cmd, args)
			return "key " + out.Item.Id, &out.Item.ApiKey, err
		})
		return out, err
	}, func(w io.Writer, out newAdminKeyItem) { fmt.Fprintln(w, shownSecret(out.Item.ApiKey, out.File)) })
}
