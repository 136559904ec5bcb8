package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/rollout/upgrademanifest"
)

func (a *client) newManifests() *cobra.Command {
	return noun(&cobra.Command{
		Use: "manifests", Short: "List and show upgrade manifests, which plans can name, and preview their configuration files",
		Long: `An upgrade manifest describes the upgrade of agents, or of a component, to a version. It is
a file on the server: upgrades/<profile>/<id>.yaml in its data folder, or in the folder
that upgrades of its configuration names. Plans name it by profile and upgrade_id.`,
	},
		showing(a, &cobra.Command{Use: "list", Short: "List the upgrade manifests on the server"}, adminapi.ListUpgradeManifests, func(w io.Writer, got adminapi.UpgradeManifestList) {
			manifestRows.print(w, got.Items)
			for _, m := range got.Items {
				if m.Error != "" {
					fmt.Fprintf(w, "%s/%s cannot be used: %s\n", m.Profile, m.ID, m.Error)
				}
			}
		}),
		showing(a, &cobra.Command{
			Use:   "show PROFILE ID",
			Short: "Show one upgrade manifest",
			Args:  twoArgs("a profile and an upgrade id"),
		}, adminapi.GetUpgradeManifest, printManifest),
		a.newManifestsPreview(), newManifestsExample())
}

var manifestRows = rows[adminapi.UpgradeManifest]{
	heading: "PROFILE\tID\tVERSION\tMIGRATION\tDESCRIPTION", empty: "no upgrade manifests: `muster manifests example` prints one, and says where it belongs",
	row: func(m adminapi.UpgradeManifest, _ time.Time) []any {
		return []any{m.Profile, m.ID, cmp.Or(m.Version, "-"), migrationWords(m.Migration), m.Description}
	},
}

func printManifest(w io.Writer, got adminapi.UpgradeManifestItem) {
	m := got.Item
	fmt.Fprintf(w, "%s %s  %s\n", m.Profile, m.ID, m.Description)
	about := details{w, 10}
	about.row("version", m.Version)
	about.row("from", cmp.Or(m.Source, "any"))
	about.row("migration", migrationWords(m.Migration))
	about.row("hash", m.ContentHash)
	for _, art := range m.Artifacts {
		about.rowf("artifact", "%s/%s %s %s", cmp.Or(art.OS, "any"), cmp.Or(art.Arch, "any"), art.Checksum, art.URL)
	}
	about.option("component", m.Component)
	for _, f := range m.ConfigFiles {
		about.rowf("file", "%s from %s", f.Path, f.Template)
	}
	about.option("recovery", m.Migration.RecoveryPlan)
}

func newManifestsExample() *cobra.Command {
	var template bool
	cmd := newExample("Print an upgrade manifest with every key explained", "  muster manifests example > 2.0.0.yaml\n  muster manifests example --template > web.conf.tmpl", func() string {
		if template {
			return upgrademanifest.ExampleTemplate
		}
		return upgrademanifest.Example
	})
	cmd.Flags().BoolVar(&template, "template", false, "print a template of a configuration file instead")
	return cmd
}

func (a *client) newManifestsPreview() *cobra.Command {
	var selection agentSelection
	cmd := &cobra.Command{
		Use:   "preview PROFILE ID {AGENT… | --kuery QUERY}",
		Short: "Show what an upgrade manifest changes in the configuration files of hosts",
		Long: `Render the configuration files of an upgrade manifest for up to 100 hosts, and show the
differences from what the server has rendered for each before. Nothing is changed. It
exits with 1 if a host cannot get the files.

Files of which the server does not know what a host has are shown as new.`,
		Example: `  muster manifests preview edge web-2.0.0 web-01 web-02
  muster manifests preview edge web-2.0.0 --kuery 'tags: canary'`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return fmt.Errorf("want a profile and an upgrade id, and agents (see `%s --help`)", c.CommandPath())
			}
			return selection.validate(c, args[2:])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := a.agentIDs(cmd.Context(), args[2:])
			if err != nil {
				return err
			}
			req := adminapi.ConfigPreviewRequest{Agents: selection.request(ids), IncludeInactive: selection.includeInactive()}
			got, err := call(cmd.Context(), a, adminapi.PreviewConfig, req, args[0], args[1])
			if err != nil {
				return err
			}
			packages, err := a.packages(cmd.Context())
			if err != nil {
				return err
			}
			if err := a.show(cmd.OutOrStdout(), got, func(w io.Writer) { printConfigs(w, got.Items) }); err != nil {
				return err
			}
			if !slices.ContainsFunc(packages.Items, func(p adminapi.Package) bool {
				return deref(p.Component) == got.Component && p.Version == got.Version
			}) {
				fmt.Fprintf(cmd.ErrOrStderr(), "No package of component %s in version %s is published: publish it with `muster package push` before you upgrade to it.\n", got.Component, got.Version)
			}
			failed := 0
			for _, i := range got.Items {
				if i.Error != nil {
					failed++
				}
			}
			if failed > 0 {
				return fmt.Errorf("%d of %s cannot get the files", failed, counted(len(got.Items), "agent"))
			}
			return nil
		},
	}
	selection.flags(cmd.Flags())
	return cmd
}

func migrationWords(m adminapi.Migration) string {
	if m.Type == "" {
		return "none"
	}
	return string(m.Type)
}
