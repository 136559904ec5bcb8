package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/watcher/probe"
)

func versionsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "versions",
		Short: "Show the versions of the agent on this host, install others ahead of time, and switch among them",
		Long: `Show the versions of the agent on this host, install others ahead of time, and switch
among them.

Besides the version that runs, a host has versions that ran before (previous), for a
rollback, and versions that were staged, which have not run yet. An upgrade to a staged
version fetches nothing. How many stay is set by upgrade.keep in agent.yml.`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(versionsListCommand(), versionsStageCommand(), versionsSwitchCommand(), versionsRemoveCommand())
	return c
}

func versionsListCommand() *cobra.Command {
	var f hostFlags
	c := &cobra.Command{
		Use:   "list",
		Short: "List the versions of the agent on this host",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			client, top, err := f.client()
			if err != nil {
				return err
			}
			h, err := client.Health(c.Context())
			if err != nil {
				return explainNotRunning(err, top)
			}
			if h.Versions == nil {
				h.Versions = []probe.Version{} // the agent is of an earlier release
			}
			if err := f.print(c.OutOrStdout(), h.Versions, func(w *tabwriter.Writer) { printVersions(w, h.Versions) }); err != nil || h.Staging == nil || f.output == "json" {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "\nstaging: %s %s\n", h.Staging.State, upgradeText(*h.Staging))
			return err
		},
	}
	f.add(c)
	return c
}

func printVersions(w *tabwriter.Writer, list []probe.Version) {
	fmt.Fprintln(w, "VERSION\tSTATE\tSINCE\tSIZE\tROLLBACK UNTIL\tPROBLEM")
	date := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.Local().Format(time.DateTime)
	}
	for _, v := range list {
		size := "-"
		if v.Bytes > 0 {
			size = fmt.Sprintf("%.1f MB", float64(v.Bytes)/1e6)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", v.Version, v.State, date(v.Since), size, date(v.Until), orDash(v.Problem))
	}
}

// onHost returns the version of that name on the host besides the one that runs, or nil.
func onHost(h probe.Health, version string) *probe.Version {
	for _, v := range h.Versions {
		if v.Version == version && v.State != probe.VersionRunning {
			return &v
		}
	}
	return nil
}

func versionsStageCommand() *cobra.Command {
	var (
		top    string
		noWait bool
		req    probe.StageRequest
	)
	c := &cobra.Command{
		Use:   "stage VERSION",
		Short: "Install a version beside the one that runs, without switching to it",
		Long: `Install a version beside the one that runs, without switching to it.

The version is fetched, verified and unpacked as for an upgrade, and nothing is stopped or
started. Later muster-agent versions switch, or any upgrade to that version, takes seconds.
The oldest staged versions make room for a new one (upgrade.keep in agent.yml). An upgrade
that begins ends the staging.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, top, err := agentIn(top)
			if err != nil {
				return err
			}
			req.Version = args[0]
			h, err := client.Health(c.Context())
			if err != nil {
				return explainNotRunning(err, top)
			}
			if v := onHost(h, req.Version); v != nil && v.State == probe.VersionStaged && v.Problem == "" && !req.Force {
				_, err := fmt.Fprintf(c.OutOrStdout(), "Version %s is staged here already.\n", req.Version)
				return err
			}
			if err := client.Stage(c.Context(), req); err != nil {
				return explainNotRunning(err, top)
			}
			if noWait {
				_, err := fmt.Fprintf(c.OutOrStdout(), "Staging %s; muster-agent versions list shows the progress.\n", req.Version)
				return err
			}
			return follow(c, client, func(h probe.Health) (string, bool, error) { return judgeStage(h, req.Version) })
		},
	}
	topFlag(c, &top)
	c.Flags().BoolVar(&noWait, "no-wait", false, "return once the agent has accepted")
	c.Flags().StringVar(&req.SourceURI, "source-uri", "", "folder of packages to fetch from (default: the agent's server)")
	c.Flags().BoolVar(&req.Force, "force", false, "stage a version although it was rolled back on this host before, or is older than one that was committed here")
	return c
}

// judgeStage interprets one health document while a version is staged.
func judgeStage(h probe.Health, version string) (line string, over bool, err error) {
	s := h.Staging
	switch {
	case s == nil && onHost(h, version) != nil:
		return fmt.Sprintf("Version %s is on this host: muster-agent versions switch %s switches to it.", version, version), true, nil
	case s == nil || s.TargetVersion != version:
		return "", true, fmt.Errorf("the agent does not stage %s any more (see data/agent.log): stage it again", version)
	case overState(s.State):
		return "", true, fmt.Errorf("version %s is not staged: %s", version, s.Message)
	}
	return fmt.Sprintf("%s %s", s.State, upgradeText(*s)), false, nil
}

func versionsSwitchCommand() *cobra.Command {
	var (
		top    string
		noWait bool
	)
	req := probe.UpgradeRequest{Rollback: true}
	c := &cobra.Command{
		Use:   "switch VERSION",
		Short: "Switch to a version that is on this host, and show the progress until it is committed or rolled back",
		Long: `Switch to a version that is on this host, and show the progress until it is committed or
rolled back.

Nothing is downloaded. Otherwise it is an upgrade: the watcher watches the version for ten
minutes (upgrade.watch.grace in agent.yml), and puts the one before back if it fails. The
command returns after that, or with --no-wait at once.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, top, err := agentIn(top)
			if err != nil {
				return err
			}
			req.Version = args[0]
			if err := client.Upgrade(c.Context(), req); err != nil {
				return explainNotRunning(err, top)
			}
			if noWait {
				_, err := fmt.Fprintf(c.OutOrStdout(), "Switching to %s; muster-agent status shows the progress.\n", req.Version)
				return err
			}
			return followSwitch(c, client, req.Version, "runs now")
		},
	}
	topFlag(c, &top)
	c.Flags().BoolVar(&noWait, "no-wait", false, "return once the agent has accepted")
	c.Flags().BoolVar(&req.Force, "force", false, "switch to a staged version although it was rolled back on this host before, or is older than one that was committed here")
	return c
}

func versionsRemoveCommand() *cobra.Command {
	var top string
	c := &cobra.Command{
		Use:   "remove VERSION",
		Short: "Remove a version that does not run from this host",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, top, err := agentIn(top)
			if err != nil {
				return err
			}
			if err := client.Remove(c.Context(), probe.RemoveRequest{Version: args[0]}); err != nil {
				return explainNotRunning(err, top)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "Removed version %s.\n", args[0])
			return err
		},
	}
	topFlag(c, &top)
	return c
}
