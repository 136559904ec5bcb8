package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/agent/daemon"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/watcher/probe"
)

// checkStartSubcommand answers [probe.CheckStart]. The agent that upgrades to this version runs it, and
// the watcher that rolls back from it.
func checkStartSubcommand() *cobra.Command {
	var top string
	c := &cobra.Command{
		Use:    probe.CheckStartCommand,
		Short:  "Check what this version of the agent reads when it starts",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			top, err := resolveTop(top)
			if err != nil {
				return err
			}
			if err := daemon.CheckStart(disk.OS{}, top); err != nil {
				fmt.Fprintln(c.OutOrStdout(), err)
				return exitCode(probe.ExitSettings)
			}
			return nil
		},
	}
	topFlag(c, &top)
	return c
}
