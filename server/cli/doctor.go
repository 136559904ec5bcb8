package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/host/disk"
	findings "github.com/muster-fleet/muster/packaging/host/doctor"
	"github.com/muster-fleet/muster/server/app/doctor"
	"github.com/muster-fleet/muster/server/store/elastic"
)

// packagedConfig is the configuration of a server that a package of the system brought.
const packagedConfig = "/etc/muster/server.yml"

func (a *client) newDoctor() *cobra.Command {
	var configFile, data string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what keeps the server of this machine from starting or being reached",
		Long: `Examine the server of this machine, whether or not it runs: the system, the configuration,
who can change what muster is, the data folder and the space on its disk, the ports and who
holds them, the certificates, the keys, the store, the service, and the clock. For each problem
the command that mends it is printed.

It reads ` + packagedConfig + ` if there is one and --config names no other file.

The exit status is 1 if there is a problem. Nothing is changed.`,
		Example: `  sudo muster doctor
  muster doctor --data ./fleet -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if configFile == "" {
				if _, err := os.Stat(packagedConfig); !errors.Is(err, fs.ErrNotExist) {
					configFile = packagedConfig
				}
			}
			config, err := validConfig(configFile, data)
			s := doctor.Server{
				Disk: disk.OS{}, Programs: programs(), Config: config, ConfigError: err, StoreFile: filepath.Join(config.Data, storeFile), Now: time.Now,
				Ping: func(ctx context.Context) error {
					o, err := elasticOptions(config.Store.Elasticsearch)
					if err != nil {
						return err
					}
					return elastic.Probe(ctx, o)
				},
			}
			found := findings.Run(cmd.Context(), s.Checks())
			if err := findings.Print(cmd.OutOrStdout(), found, a.output == "json"); err != nil {
				return err
			}
			return findings.Err(found)
		},
	}
	cmd.Flags().StringVar(&configFile, "config", "", "configuration file (default "+packagedConfig+", if there is one)")
	cmd.Flags().StringVar(&data, "data", "", "folder with the server's data, if the configuration names none")
	return cmd
}

// programs returns the paths by which people run the server: that of the packages, and that of this
// program's own installation.
func programs() []string {
	paths := []string{"/usr/bin/muster"}
	if l, err := ownLayout(); err == nil && l != nil && l.Link() != paths[0] {
		paths = append(paths, l.Link())
	}
	return paths
}
