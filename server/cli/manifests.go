package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/adminapi"
)

func (a *client) newManifests() *cobra.Command {
	cmd := &cobra.Command{Use: "manifests", Short: "List and show upgrade manifests, which plans can name"}
	list := &cobra.Command{
		Use:   "list",
		Short: "List the upgrade manifests on the server",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := call[adminapi.UpgradeManifestList](cmd.Context(), a, http.MethodGet, "/api/v1/upgrade_manifests", nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				table(w, "PROFILE\tID\tVERSION\tMIGRATION\tDESCRIPTION", func(add func(...any)) {
					for _, m := range got.Items {
						add(m.Profile, m.Id, firstOf(m.Version, "-"), migrationWords(m.Migration), deref(m.Description))
					}
				})
				for _, m := range got.Items {
					if m.Error != nil {
						fmt.Fprintf(w, "%s/%s cannot be used: %s\n", m.Profile, m.Id, *m.Error)
					}
				}
			})
		},
	}
	show := &cobra.Command{
		Use:   "show PROFILE ID",
		Short: "Show one upgrade manifest",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("want a profile and an upgrade id (see `%s --help`)", c.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call[adminapi.UpgradeManifestItem](cmd.Context(), a, http.MethodGet, "/api/v1/upgrade_manifests/"+url.PathEscape(args[0])+"/"+url.PathEscape(args[1]), nil)
			if err != nil {
				return err
			}
			m := got.Item
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				fmt.Fprintf(w, "%s %s  %s\n", m.Profile, m.Id, deref(m.Description))
				fmt.Fprintf(w, "  version    %s\n  from       %s\n  migration  %s\n  hash       %s\n", m.Version, firstOf(deref(m.SourceVersion), "any"), migrationWords(m.Migration), m.ContentHash)
				for _, art := range deref(m.Artifacts) {
					fmt.Fprintf(w, "  artifact   %s/%s %s %s\n", firstOf(deref(art.Os), "any"), firstOf(deref(art.Arch), "any"), art.Checksum, deref(art.Url))
				}
				if plan := deref(m.Migration).RecoveryPlan; plan != nil {
					fmt.Fprintf(w, "  recovery   %s\n", *plan)
				}
			})
		},
	}
	cmd.AddCommand(list, show)
	return cmd
}

func migrationWords(m *adminapi.Migration) string {
	if m == nil || m.Type == nil {
		return "none"
	}
	return string(*m.Type)
}
