package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

func rollbackSubcommand() *cobra.Command {
	var (
		top    string
		noWait bool
	)
	c := &cobra.Command{
		Use:   "rollback [VERSION]",
		Short: "Roll back to the previous version, which is kept on this host for a while",
		Long: `Roll back to the previous version, which is kept on this host for a while.

Nothing is downloaded. While a new version is still being watched, the watcher
rolls it back. Later the agent switches as for an upgrade, and the watcher watches
the restored version. muster-agent status shows the versions that this host can be
rolled back to; it keeps more than one if upgrade.keep.previous in agent.yml says so.
Two builds of one version differ in their BUILD in muster-agent versions list,
such as 1.1.0-3f2a9c.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, top, err := agentIn(top)
			if err != nil {
				return err
			}
			req := probe.UpgradeRequest{Rollback: true}
			if len(args) > 0 {
				req.Version = args[0]
			}
			before, target, err := rollbackVersion(c.Context(), client, top, req.Version)
			if err != nil {
				return err
			}
			req.Version = target.Build()
			if before {
				err = client.Upgrade(c.Context(), req)
			} else {
				err = askWatcher(top)
			}
			if err != nil {
				return err
			}
			if noWait {
				_, err := fmt.Fprintf(c.OutOrStdout(), "Rolling back to %s; muster-agent status shows the progress.\n", target.Version)
				return err
			}
			return followSwitch(c, client, probe.Version{Version: target.Version, Hash: target.Hash}, "runs again")
		},
	}
	topFlag(c, &top)
	c.Flags().BoolVar(&noWait, "no-wait", false, "return when the request is accepted")
	return c
}

// rollbackVersion returns the version to roll back to: the wanted one, or if that is empty, the
// previous one. It is known from the agent, or if the agent does not answer, from the marker of
// the current upgrade.
func rollbackVersion(ctx context.Context, client probe.Client, top, wanted string) (answers bool, target probe.Rollback, err error) {
	h, err := client.Health(ctx)
	if err == nil {
		target, err = pickRollback(h.Rollbacks, wanted)
		return true, target, err
	}
	m, merr := handoff.ReadMarker(disk.OS{}, top)
	if merr != nil || m == nil {
		return false, target, errors.Join(explainNotRunning(err, top), merr)
	}
	target, err = pickRollback([]probe.Rollback{{Version: m.From.FullVersion(), Hash: m.From.Hash}}, wanted)
	return false, target, err
}

// pickRollback returns the wanted version, or if that is empty, the first one that starts.
func pickRollback(kept []probe.Rollback, wanted string) (target probe.Rollback, err error) {
	var names []string
	for _, r := range kept {
		names = append(names, r.Build())
		if wanted != "" && r.Version != wanted && r.Build() != wanted {
			continue
		}
		if r.Problem == "" {
			return r, nil
		}
		err = errors.Join(err, fmt.Errorf("version %s cannot be rolled back to: %s", r.Version, r.Problem))
	}
	switch {
	case err != nil:
		return target, err
	case len(names) == 0:
		return target, errors.New("no earlier version is kept on this host: upgrade to the version you want instead")
	}
	return target, fmt.Errorf("version %s is not kept for a rollback on this host: it has %s", wanted, strings.Join(names, ", "))
}

// askWatcher requests a rollback from the watcher, for an agent that does not answer.
func askWatcher(top string) error {
	m, err := handoff.ReadMarker(disk.OS{}, top)
	if err != nil || m == nil {
		return errors.Join(errors.New("the watch has just ended: look at muster-agent status"), err)
	}
	return handoff.WriteRequest(disk.OS{}, top, handoff.Request{ToHome: m.To.Home, Why: "Asked for on the host.", At: time.Now().UTC()})
}

// followSwitch waits until the version runs and is no longer watched, and then prints that it
// does.
func followSwitch(c *cobra.Command, client probe.Client, target probe.Version, runs string) error {
	return follow(c, client, func(h probe.Health) (string, bool, error) { return judgeSwitch(h, target, runs) })
}

// judgeSwitch interprets one health document while the host is switched to another version on it.
func judgeSwitch(h probe.Health, target probe.Version, runs string) (line string, over bool, err error) {
	u := h.Upgrade
	ours := u != nil && target.Is(u.TargetVersion)
	switch {
	case h.Is(target.Build()) && !ours:
		return "Version " + target.Version + " " + runs + ".", true, nil
	case u == nil:
		return "", true, fmt.Errorf("version %s runs, and the agent reports no switch to another one (see data/agent.log)", h.Identity)
	case ours && overState(u.State):
		return "", true, fmt.Errorf("%s: %s", u.State, u.Message)
	}
	return fmt.Sprintf("%s %s", u.State, upgradeText(*u)), false, nil
}
