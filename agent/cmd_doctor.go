package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/agent/doctor"
	"github.com/muster-fleet/muster/agent/setup"
	"github.com/muster-fleet/muster/packaging/host/disk"
	findings "github.com/muster-fleet/muster/packaging/host/doctor"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

func doctorSubcommand() *cobra.Command {
	var top, output, url, pin string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Find what keeps the agent from being installed, running, or reaching its server",
		Long: `Examine this host: the system, the agent's folder and the space on its disk, the service
manager, the agent, its server, the clock, the publishers that it trusts, and the mirrors
and the drop folder that packages come from. For each problem the command that mends it is
printed. Before an agent is installed, name the server with --url and --ca-pin.

The exit status is 1 if there is a problem. Nothing is changed.`,
		Example: `  sudo muster-agent doctor
  muster-agent doctor --url https://fleet.example.com:8220 --ca-pin sha256:…`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "human" && output != "json" {
				return fmt.Errorf("-o is %q, want human or json", output)
			}
			if pin != "" {
				var err error
				if pin, err = capin.Parse(pin); err != nil {
					return err
				}
			}
			top, err := resolveTop(top)
			if err != nil {
				return err
			}
			d, manager := disk.OS{}, setup.Manager{}
			h := doctor.Host{
				Disk: d, Top: top, Now: time.Now, URL: url, CAPin: pin, Manager: manager.Name(),
				Service:       func() (string, doctor.ServiceState, error) { return manager.State(d, top) },
				CheckServices: func() error { return manager.Check(layout.Roots{Top: top}) },
			}
			found := findings.Run(c.Context(), h.Checks())
			if err := findings.Print(c.OutOrStdout(), found, output == "json"); err != nil {
				return err
			}
			return findings.Err(found)
		},
	}
	topFlag(c, &top)
	c.Flags().StringVarP(&output, "output", "o", "human", "human or json")
	c.Flags().StringVar(&url, "url", "", "the server to examine if no agent is installed, such as https://fleet.example.com:8220")
	c.Flags().StringVar(&pin, "ca-pin", "", "sha256:<hex> of that server's CA (default: the host's own CAs)")
	return c
}
