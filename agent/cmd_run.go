package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/agent/daemon"
	"github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/agent/setup"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/launch"
	"github.com/muster-fleet/muster/watcher/handoff"
)

func runSubcommand() *cobra.Command {
	var top string
	c := &cobra.Command{
		Use:   "run",
		Short: "Run the agent in the foreground, as the service manager does",
		Long: `Run the agent in the foreground, as the service manager does. As process 1 of a container
it runs the agent as its child, as muster-agent container does.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			top, err := resolveTop(top)
			if err != nil {
				return err
			}
			if os.Getpid() == 1 {
				return asProcess1(c.Context(), top)
			}
			return launch.AsService(c.Context(), func(ctx context.Context) error { return run(ctx, top) })
		},
	}
	topFlag(c, &top)
	return c
}

func run(ctx context.Context, top string) error {
	running, err := ownVersion(top)
	if err != nil {
		return err
	}
	m := setup.Machine{Disk: disk.OS{}, Top: top, Running: running.Identity, Host: host.Read(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if err := m.Follow(ctx); err != nil {
		return err
	}
	options, log, err := daemon.Installed(top, version)
	if err != nil {
		return err
	}
	defer daemon.LogCrashes(top)()
	err = daemon.Agent{Options: options}.Run(ctx)
	return errors.Join(err, log.Close())
}

// ownVersion returns the version of this program. An empty top means the one the program
// is under.
func ownVersion(top string) (handoff.Install, error) {
	exe, err := daemon.Executable()
	if err != nil {
		return handoff.Install{}, err
	}
	if top == "" {
		top = disk.FindTop(disk.OS{}, exe)
	}
	return daemon.RunningVersion(disk.OS{}, top, exe, version)
}
