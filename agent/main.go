// Command muster-agent runs on every host of a fleet: it checks in with the server and
// upgrades itself on request. This package holds the command line; package daemon is the
// agent.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/agent/daemon"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/terminal"
)

// version is set by the linker. An installed agent reports the version in its package's
// manifest instead.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	os.Exit(execute(ctx, newCommand()))
}

// execute runs the subcommand and returns the exit code. All output is escaped, because much of
// it is text of the server and of packages.
func execute(ctx context.Context, root *cobra.Command) int {
	root.SetOut(terminal.NewWriter(root.OutOrStdout()))
	root.SetErr(terminal.NewWriter(root.ErrOrStderr()))
	err := root.ExecuteContext(ctx)
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(root.ErrOrStderr(), "muster-agent:", err)
	return 1
}

// exitCode ends the program with a status and no message.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit status %d", int(c)) }

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "muster-agent",
		Short:         "The agent of a Muster fleet on this host",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
	}
	root.AddCommand(installSubcommand(), enrollSubcommand(), runSubcommand(), checkStartSubcommand(), containerSubcommand(), unitsSubcommand(), statusSubcommand(), doctorSubcommand(), componentsSubcommand(), diagnosticsSubcommand(), upgradeSubcommand(), rollbackSubcommand(), versionsSubcommand(), uninstallSubcommand(), versionSubcommand())
	return root
}

// topFlag adds --top. Its value is resolved by resolveTop.
func topFlag(c *cobra.Command, top *string) {
	folderFlag(c, top, "top", "", "folder the agent is installed in (default: where this program is installed, else "+daemon.DefaultTop+")")
}

// folderFlag adds a flag with a folder, which shells complete.
func folderFlag(c *cobra.Command, folder *string, name, value, usage string) {
	c.Flags().StringVar(folder, name, value, usage)
	_ = c.MarkFlagDirname(name) // it fails only for a flag that does not exist
}

// resolveTop returns the absolute path of the top folder without links, so that all
// programs of an installation derive the same control socket from it.
func resolveTop(top string) (string, error) {
	if top == "" {
		top = daemon.DefaultTop
		if exe, err := daemon.Executable(); err == nil {
			if found := disk.FindTop(disk.OS{}, exe); found != "" {
				top = found
			}
		}
	}
	top, err := filepath.Abs(top)
	if err != nil {
		return "", fmt.Errorf("--top: %w", err)
	}
	return resolved(top), nil
}

// resolved resolves the links in the part of path that exists.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(resolved(dir), filepath.Base(path))
	}
	return path
}

func versionSubcommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			running, err := ownVersion("")
			if err != nil {
				return err
			}
			suffix := ""
			if running.Home == "" {
				suffix = " (development build)"
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "muster-agent %s%s\n", running.Identity, suffix)
			return err
		},
	}
}
