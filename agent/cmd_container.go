package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/agent/container"
	"github.com/muster-fleet/muster/agent/daemon"
	"github.com/muster-fleet/muster/agent/setup"
	"github.com/muster-fleet/muster/packaging/host/disk"
)

func containerSubcommand() *cobra.Command {
	var (
		top       string
		unsafeTop bool
		e         setup.Enrollment
	)
	c := &cobra.Command{
		Use:   "container",
		Short: "Run the agent as the program of a container",
		Long: `Run the agent as the program of a container, from the package in its image. If there is
no agent in the folder yet, it is installed there and enrolled. This program stays process 1
while the agent, its child, is upgraded, watched and rolled back.

The version in the folder runs, also if the image has a newer one. Make the folder a volume to
keep the version and the identity for the next container. Without a volume each new container
begins with the image's version, as a new agent.`,
		Example: `  muster-agent container --url https://fleet.example.com:8220 --ca-pin sha256:… --trust-root sha256:…`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			top, err := resolveTop(top)
			if err != nil {
				return err
			}
			inside := container.Container{Top: top, Log: slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))}
			installed, err := inside.Installed()
			if err != nil {
				return err
			}
			if !installed { // otherwise the token's file may be gone
				if err := readToken(c, &e); err != nil {
					return err
				}
				if err := installInContainer(c, top, unsafeTop, &e); err != nil {
					return err
				}
			}
			return inside.Run(c.Context())
		},
	}
	folderFlag(c, &top, "top", daemon.DefaultTop, "folder of the agent, which may be a volume")
	c.Flags().BoolVar(&unsafeTop, "unsafe-top", false, "let root use a folder that other users can change; for trials only")
	enrollmentFlags(c, &e)
	return c
}

func installInContainer(c *cobra.Command, top string, unsafeTop bool, e *setup.Enrollment) error {
	if e.URL == "" {
		return fmt.Errorf("no agent is in %s yet: pass --url, --ca-pin, --trust-root, and %s in the environment", top, tokenVariable)
	}
	exe, err := daemon.Executable()
	if err != nil {
		return err
	}
	done, err := setup.Installation{Disk: disk.OS{}, Top: top, UnsafeTop: unsafeTop, Executable: exe, Enrollment: e}.Run(c.Context())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "Installed muster-agent %s in %s, enrolled with %s as %s.\n", done.Version, top, done.Identity.ServerURL, done.Identity.AgentID)
	return err
}

// asProcess1 runs the agent below this process, which no upgrade must replace.
func asProcess1(ctx context.Context, top string) error {
	return container.Container{Top: top, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}.Run(ctx)
}
