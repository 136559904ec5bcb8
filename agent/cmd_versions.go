package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/probe"
)

func versionsSubcommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "versions",
		Short: "Show the versions of the agent or a component on this host, install others ahead of time, and switch among them",
		Long: `Show the versions of the agent, or with --component of a component, on this host, install
others ahead of time, and switch among them.

Besides the version that runs, a host has versions that ran before (previous), for a
rollback, and versions that were staged, which have not run yet. An upgrade to a staged
version fetches nothing. How many stay is set by upgrade.keep in agent.yml.`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(versionsListSubcommand(), versionsStageSubcommand(), versionsSwitchSubcommand(), versionsRemoveSubcommand())
	return c
}

func componentFlag(c *cobra.Command, name *string) {
	c.Flags().StringVar(name, "component", "", "name of a component (default: the agent itself)")
}

// versionsOf returns the versions of the agent or of a component on the host, and its stage.
func versionsOf(h probe.Health, component string) ([]probe.Version, *probe.Upgrade, error) {
	versions, staging := h.Versions, h.Staging
	if component != "" {
		w, err := workload(h.Workloads, component)
		if err != nil {
			return nil, nil, err
		}
		versions, staging = w.Versions, w.Staging
	}
	if versions == nil {
		versions = []probe.Version{} // nothing is installed
	}
	return versions, staging, nil
}

func versionsListSubcommand() *cobra.Command {
	var (
		f         hostFlags
		component string
	)
	c := &cobra.Command{
		Use:   "list",
		Short: "List the versions of the agent, or of a component, on this host",
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
			versions, staging, err := versionsOf(h, component)
			if err != nil {
				return err
			}
			if err := f.print(c.OutOrStdout(), versions, func(w *tabwriter.Writer) { printVersions(w, versions) }); err != nil || staging == nil || f.output == "json" {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "\nstaging: %s %s\n", staging.State, upgradeText(*staging))
			return err
		},
	}
	f.add(c)
	componentFlag(c, &component)
	return c
}

func printVersions(w *tabwriter.Writer, list []probe.Version) {
	fmt.Fprintln(w, "VERSION\tBUILD\tSTATE\tSINCE\tSIZE\tROLLBACK UNTIL\tPROBLEM")
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
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.Version, v.Build(), v.State, date(v.Since), size, date(v.Until), orDash(v.Problem))
	}
}

// onHost returns the version of that name in a list, as of [probe.Version.Is], besides the one that runs, or
// nil.
func onHost(list []probe.Version, version string) *probe.Version {
	for _, v := range list {
		if v.Is(version) && v.State != probe.VersionRunning {
			return &v
		}
	}
	return nil
}

func versionsStageSubcommand() *cobra.Command {
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
			versions, _, err := versionsOf(h, req.Component)
			if err != nil {
				return err
			}
			if v := onHost(versions, req.Version); v != nil && v.State == probe.VersionStaged && v.Problem == "" && !req.Force {
				_, err := fmt.Fprintf(c.OutOrStdout(), "Version %s is staged here already.\n", req.Version)
				return err
			}
			if err := client.Stage(c.Context(), req); err != nil {
				return explainNotRunning(err, top)
			}
			if noWait {
				_, err := fmt.Fprintf(c.OutOrStdout(), "Staging %s; muster-agent versions list%s shows the progress.\n", req.Version, ofComponent(req.Component))
				return err
			}
			return follow(c, client, func(h probe.Health) (string, bool, error) { return judgeStage(h, req.Component, req.Version) })
		},
	}
	topFlag(c, &top)
	c.Flags().BoolVar(&noWait, "no-wait", false, "return once the agent has accepted")
	c.Flags().StringVar(&req.SourceURI, "source-uri", "", "folder of packages to fetch from (default: the agent's server)")
	c.Flags().BoolVar(&req.Force, "force", false, "stage a version although it was rolled back on this host before, or is older than one that was committed here")
	componentFlag(c, &req.Component)
	return c
}

// ofComponent returns the flag that names a component in a command, with a space before it.
func ofComponent(component string) string {
	if component == "" {
		return ""
	}
	return " --component " + component
}

// judgeStage interprets one health document while a version is staged.
func judgeStage(h probe.Health, component, version string) (line string, over bool, err error) {
	versions, s, err := versionsOf(h, component)
	if err != nil {
		return "", true, err
	}
	switch {
	case s == nil && onHost(versions, version) != nil:
		return fmt.Sprintf("Version %s is on this host: muster-agent versions switch %s%s switches to it.", version, version, ofComponent(component)), true, nil
	case s == nil || s.TargetVersion != version:
		return "", true, fmt.Errorf("the agent does not stage %s any more (see data/agent.log): stage it again", version)
	case overState(s.State):
		return "", true, fmt.Errorf("version %s is not staged: %s", version, s.Message)
	}
	return fmt.Sprintf("%s %s", s.State, upgradeText(*s)), false, nil
}

func versionsSwitchSubcommand() *cobra.Command {
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
minutes (upgrade.watch.grace in agent.yml), and puts the one before back if it fails. A
component is observed by the agent, for the wait of its policy. The command returns after
that, or with --no-wait at once. Of two builds of one version of the agent, name the BUILD
in muster-agent versions list, such as 1.1.0-3f2a9c.`,
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
			target := probe.Version{Version: req.Version}
			if v := onHost(h.Versions, req.Version); v != nil && req.Component == "" {
				target = *v
				req.Version = v.Build()
			}
			if err := client.Upgrade(c.Context(), req); err != nil {
				return explainNotRunning(err, top)
			}
			if noWait {
				_, err := fmt.Fprintf(c.OutOrStdout(), "Switching to %s; muster-agent status shows the progress.\n", req.Version)
				return err
			}
			if req.Component != "" {
				return followComponent(c, client, req.Component, req.Version)
			}
			return followSwitch(c, client, target, "runs now")
		},
	}
	topFlag(c, &top)
	c.Flags().BoolVar(&noWait, "no-wait", false, "return once the agent has accepted")
	componentFlag(c, &req.Component)
	c.Flags().BoolVar(&req.Force, "force", false, "switch to a staged version although it was rolled back on this host before, or is older than one that was committed here")
	return c
}

// followComponent shows the progress of a switch of a component until it has ended.
func followComponent(c *cobra.Command, client probe.Client, component, version string) error {
	return follow(c, client, func(h probe.Health) (string, bool, error) {
		w, err := workload(h.Workloads, component)
		if err != nil {
			return "", true, err
		}
		u := w.Upgrade
		switch {
		case u == nil && w.Version == version:
			return fmt.Sprintf("Version %s of %s runs now.", version, component), true, nil
		case u == nil:
			return "", true, fmt.Errorf("version %s of %s is installed, and the agent reports no switch to another one (see data/agent.log)", w.Version, component)
		case u.TargetVersion == version && u.State == string(agentapi.UpgradeFailed): // being rolled back is no end
			return "", true, fmt.Errorf("%s: %s", u.State, u.Message)
		}
		return fmt.Sprintf("%s %s", u.State, upgradeText(*u)), false, nil
	})
}

func versionsRemoveSubcommand() *cobra.Command {
	var (
		top string
		req probe.RemoveRequest
	)
	c := &cobra.Command{
		Use:   "remove VERSION",
		Short: "Remove a version that does not run from this host",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, top, err := agentIn(top)
			if err != nil {
				return err
			}
			req.Version = args[0]
			if err := client.Remove(c.Context(), req); err != nil {
				return explainNotRunning(err, top)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "Removed version %s.\n", args[0])
			return err
		},
	}
	topFlag(c, &top)
	componentFlag(c, &req.Component)
	return c
}
