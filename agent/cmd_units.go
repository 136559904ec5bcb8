package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/agent/services"
	"github.com/muster-fleet/muster/agent/setup"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
)

func unitsSubcommand() *cobra.Command {
	var (
		place placeFlags
		out   string
	)
	c := &cobra.Command{
		Use:   "units",
		Short: "Print the systemd units of the agent and its watcher",
		Long: `Print the systemd units that muster-agent install writes, for a system whose configuration
generates /etc/systemd/system, so that nothing else may write there. Put both into it, install
the agent with --service NAME, and start that service. Both are needed: the watcher's brings the
old version back if a new one does not start after a power cut.`,
		Example: `  muster-agent units
  muster-agent units --top /srv/muster --out ./units`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			top, system, err := place.resolve(c, "")
			if err != nil {
				return err
			}
			roots := layout.Roots{Top: top}
			if system != nil {
				roots = system.Roots()
			}
			if err := setup.CheckFolders(roots); err != nil {
				return err
			}
			name := setup.ServiceName(top)
			for _, unit := range []struct{ name, text string }{
				{name, services.AgentSystemd(roots)}, {services.WatcherName(name), services.WatcherSystemd(roots)},
			} {
				file := unit.name + ".service"
				if out != "" {
					err = disk.WriteFile(disk.OS{}, "units", filepath.Join(out, file), []byte(unit.text), 0o644)
				} else {
					_, err = fmt.Fprintf(c.OutOrStdout(), "# %s\n%s\n", file, unit.text)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	place.flags(c)
	folderFlag(c, &out, "out", "", "folder to write the two files to, instead of printing them")
	return c
}
