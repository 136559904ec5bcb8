package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	// followEvery is how often the agent is asked about a followed upgrade.
	followEvery = 500 * time.Millisecond
	// silentFor is how long a followed agent may not answer: long enough for the
	// restart, and for a rollback with its waits.
	silentFor = 2 * time.Minute
)

func upgradeSubcommand() *cobra.Command {
	var (
		top    string
		noWait bool
		req    probe.UpgradeRequest
	)
	c := &cobra.Command{
		Use:   "upgrade VERSION",
		Short: "Upgrade this host, and show the progress until the new version is committed or rolled back",
		Long: `Upgrade this host, and show the progress until the new version is committed or rolled
back.

The new version runs within seconds. Then the watcher watches it for ten minutes
(upgrade.watch.grace in agent.yml), and puts the previous version back if it fails. The
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
				_, err := fmt.Fprintf(c.OutOrStdout(), "Upgrade to %s accepted; muster-agent status shows the progress.\n", req.Version)
				return err
			}
			return follow(c, client, func(h probe.Health) (string, bool, error) { return judge(h, req.Version) })
		},
	}
	topFlag(c, &top)
	c.Flags().BoolVar(&noWait, "no-wait", false, "return once the agent has accepted")
	c.Flags().StringVar(&req.SourceURI, "source-uri", "", "folder of packages to fetch from (default: the agent's server)")
	c.Flags().BoolVar(&req.Force, "force", false, "install a version although it was rolled back on this host before, or is older than one that was committed here")
	return c
}

// follow prints each phase until judge says that it is over.
func follow(c *cobra.Command, client probe.Client, judge func(probe.Health) (line string, over bool, err error)) error {
	out, last := c.OutOrStdout(), ""
	answered := time.Now()
	for {
		h, err := client.Health(c.Context())
		if err == nil {
			answered = time.Now()
			line, over, verr := judge(h)
			if line != last && line != "" {
				fmt.Fprintln(out, line)
				last = line
			}
			if over {
				return verr
			}
		} else if time.Since(answered) > silentFor {
			return fmt.Errorf("the agent has not answered for %s: %w (see data/agent.log and data/watcher.log)", silentFor, err)
		}
		if err := backoff.Sleep(c.Context(), followEvery); err != nil {
			if errors.Is(err, context.Canceled) {
				return errors.New("stopped following; the upgrade itself continues")
			}
			return err
		}
	}
}

// judge interprets one health document. The agent reports the upgrade as soon as it has
// accepted it.
func judge(h probe.Health, version string) (line string, over bool, err error) {
	u := h.Upgrade
	switch {
	case u == nil && h.FullVersion() == version:
		return "Version " + version + " was healthy and stays.", true, nil
	case u == nil:
		return "", true, fmt.Errorf("version %s runs, and the agent reports no upgrade to %s (see data/agent.log)", h.FullVersion(), version)
	case overState(u.State):
		return "", true, fmt.Errorf("%s: %s", u.State, u.Message)
	}
	return fmt.Sprintf("%s %s", u.State, upgradeText(*u)), false, nil
}

func overState(state string) bool { return agentapi.UpgradeState(state).Ended() }
