package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

// upgradeOrder is an order to upgrade agents, or a component of them, as the subcommands for both give it.
type upgradeOrder struct {
	component                               string // empty: the agents themselves
	req                                     adminapi.ComponentUpgradeRequest
	selection                               agentSelection
	source                                  string
	force, dryRun, overFreeze, overExposure bool
	later                                   scheduleFlags
	wait                                    waitFlags
	owner                                   takeOver
}

func (a *client) newAgentsUpgrade() *cobra.Command {
	var u upgradeOrder
	cmd := &cobra.Command{
		Use:   "upgrade {AGENT… | --kuery QUERY} --version VERSION",
		Short: "Upgrade agents",
		Long: `Upgrade the agents that are named by id or host name, or that a query selects (the
agents that ` + "`muster agents list --kuery`" + ` shows).

The new version runs within seconds. Then the host's watcher watches it, for ten minutes
by default, and puts the previous version back if it fails. An upgrade is done when its
watch has ended.

--dry-run shows what would happen to each agent and changes nothing. --wait follows the
upgrades to their end and exits with 0 only if every agent runs the new version.

During a freeze, or if more agents would have the version than the exposure budget
allows, the order is refused. --override-freeze and --override-exposure order it
nevertheless; they need --why, which the audit trail keeps.`,
		Example: `  muster agents upgrade web-01 web-02 --version 1.1.0 --dry-run
  muster agents upgrade --kuery 'tags: canary and agent.version < 1.1.0' --version 1.1.0
  muster agents upgrade --kuery 'tags: site-a' --version 1.1.0 --at 22:00 --over 2h
  muster agents upgrade web-01 --version 1.1.0 --wait`,
		Args:              u.selection.validate,
		ValidArgsFunction: completing(a.agentNames),
		RunE:              func(cmd *cobra.Command, args []string) error { return u.run(a, cmd, args) },
	}
	u.flags(a, cmd, "also upgrade agents that are upgrading already, run this version or a later one, report too little free space, or on whose host it failed before (hosts go back only to the version they keep, or that muster package allow-downgrade allows)", "the watch of every upgrade has ended, which takes ten minutes by default")
	cmd.Flags().StringVar(&u.component, "component", "", "upgrade this component of the agents, as muster components upgrade does")
	return cmd
}

func (a *client) newComponentsUpgrade() *cobra.Command {
	var u upgradeOrder
	cmd := &cobra.Command{
		Use:   "upgrade COMPONENT {AGENT… | --kuery QUERY} --version VERSION",
		Short: "Upgrade a component of agents, or install it for the first time",
		Long: `Upgrade a component of the agents that are named by id or host name, or that a query
selects. Their policy must list the component, and they must have reported it.

An agent stops the component, installs the version with its configuration, starts it,
and observes it, for a minute unless the policy says otherwise. If the version fails, it
puts the earlier one back. --dry-run shows what would happen to each agent and changes
nothing. --wait follows the upgrades to their end and exits with 0 only if every agent
runs the new version.

During a freeze, or if more agents would have the version than the exposure budget
allows, the order is refused. --override-freeze and --override-exposure order it
nevertheless; they need --why, which the audit trail keeps.`,
		Example: `  muster components upgrade web-server web-01 web-02 --version 2.5.0 --dry-run
  muster components upgrade web-server --kuery 'tags: canary' --version 2.5.0
  muster components upgrade web-server web-01 --version 2.5.0 --wait`,
		Args: componentAndAgents(&u.selection),
		RunE: func(cmd *cobra.Command, args []string) error {
			u.component = args[0]
			return u.run(a, cmd, args[1:])
		},
	}
	u.flags(a, cmd, "also a version that is installed, older, or failed on the host before (a host goes down only to a version that it keeps, or that muster package allow-downgrade allows)", "every upgrade has ended")
	return cmd
}

func (u *upgradeOrder) flags(a *client, cmd *cobra.Command, force, until string) {
	f := cmd.Flags()
	u.selection.flags(f)
	f.StringVar(&u.req.Version, "version", "", "version to upgrade to (required)")
	f.StringVar(&u.source, "source-uri", "", "URL that hosts download the package from instead of the server")
	f.BoolVar(&u.force, "force", false, force)
	f.BoolVar(&u.overFreeze, "override-freeze", false, "also during a freeze; needs --why")
	f.BoolVar(&u.overExposure, "override-exposure", false, "also beyond the exposure budget; needs --why")
	f.BoolVar(&u.dryRun, "dry-run", false, "show what would happen and change nothing")
	u.later.flags(f)
	u.owner.flag(a, cmd)
	u.wait.flags(f, until)
	_ = cmd.RegisterFlagCompletionFunc("version", completing(a.versionNames))
}

// run previews the order for the named or selected agents, and gives it.
func (u *upgradeOrder) run(a *client, cmd *cobra.Command, names []string) error {
	req := &u.req
	if req.Version == "" {
		return &usageError{errors.New("--version is missing: `muster package list` shows what is published")}
	}
	if (u.overFreeze || u.overExposure) && a.server.Why == "" {
		return errNoWhy
	}
	start, over, err := u.later.times(u.wait, time.Now())
	if err != nil {
		return &usageError{err}
	}
	req.StartTime, req.RolloutDurationSeconds = start, over
	req.SourceUri, req.Force, req.OverrideFreeze, req.OverrideExposure = given(u.source), given(u.force), given(u.overFreeze), given(u.overExposure)
	req.TakeOver = given(u.owner.name)
	req.IncludeInactive = u.selection.includeInactive()
	component, subject, begun, none := u.component, "the version is", "Upgrading ", "none of the agents can be upgraded"
	if component != "" {
		subject, begun = "component "+component+" is", "Upgrading component "+component+" of "
		none = "component " + component + " can be upgraded on none of the agents"
	}
	o := agentOrder[adminapi.UpgradePreview, adminapi.BulkActionResponse]{
		selection: &u.selection, dryRun: u.dryRun, what: "upgraded to " + req.Version, count: countUpgrades, follow: seeActions,
		preview: func(agents json.RawMessage, _ []string) (adminapi.UpgradePreview, error) {
			req.Agents = agents
			return u.preview(a, cmd)
		},
		print: func(w io.Writer, p adminapi.UpgradePreview) { printPreview(w, component, p) },
		instead: func(p adminapi.UpgradePreview) (bool, error) {
			if !nothingToDo(p) {
				return false, nil
			}
			return true, a.showNothingToDo(cmd, p, subject)
		},
		none: func() error { return a.ofComponent(cmd.Context(), component, errors.New(none)) },
		order: func(agents json.RawMessage) (adminapi.BulkActionResponse, error) {
			req.Agents = agents
			return ordered(cmd, &u.owner, func(fleet *string) (adminapi.BulkActionResponse, error) {
				req.TakeOver = fleet
				return u.order(a, cmd)
			})
		},
		begun: func(p adminapi.UpgradePreview, created adminapi.BulkActionResponse) string {
			return fmt.Sprintf("%s%s to %s: action %s", begun, ofAgents(p.Will, len(p.Items)), req.Version, deref(created.ActionId))
		},
		done: func(p adminapi.UpgradePreview, created adminapi.BulkActionResponse) string {
			return fmt.Sprintf("%s upgraded by action %s", counted(p.Will, "agent"), deref(created.ActionId))
		},
	}
	end := agentEnd("not upgraded")
	if component != "" {
		o.follow, end = seeComponent(component), componentEnd(component, "not upgraded")
		o.done = func(p adminapi.UpgradePreview, created adminapi.BulkActionResponse) string {
			return o.begun(p, created) + "\n" + componentDone(component, awaitUpgrade(p))
		}
	}
	if u.wait.on {
		o.wait = func(p adminapi.UpgradePreview, _ adminapi.BulkActionResponse) error {
			return a.waitFor(cmd, awaitUpgrade(p), u.wait.timeout, end)
		}
	}
	return o.run(a, cmd, names)
}

// countUpgrades is count of an order that installs something.
func countUpgrades(p adminapi.UpgradePreview) (will, wont int, ids []string) {
	return p.Will, p.Wont, each(p.Items, func(i adminapi.UpgradePreviewItem) string { return i.AgentId })
}

func (u *upgradeOrder) preview(a *client, cmd *cobra.Command) (adminapi.UpgradePreview, error) {
	r := u.req
	if u.component != "" {
		got, err := call(cmd.Context(), a, adminapi.PreviewComponentUpgrade, r, u.component)
		return got, a.ofComponent(cmd.Context(), u.component, err)
	}
	return call(cmd.Context(), a, adminapi.PreviewUpgrade, adminapi.UpgradePreviewRequest{
		Agents: r.Agents, IncludeInactive: r.IncludeInactive, Version: r.Version, SourceUri: r.SourceUri, Force: r.Force,
		OverrideFreeze: r.OverrideFreeze, OverrideExposure: r.OverrideExposure, TakeOver: r.TakeOver,
	})
}

func (u *upgradeOrder) order(a *client, cmd *cobra.Command) (adminapi.BulkActionResponse, error) {
	r := u.req
	if u.component != "" {
		return call(cmd.Context(), a, adminapi.UpgradeComponent, r, u.component)
	}
	return call(cmd.Context(), a, adminapi.BulkUpgradeAgents, adminapi.BulkUpgradeRequest{
		Agents: r.Agents, IncludeInactive: r.IncludeInactive, Version: r.Version, SourceUri: r.SourceUri, Force: r.Force,
		StartTime: r.StartTime, RolloutDurationSeconds: r.RolloutDurationSeconds,
		OverrideFreeze: r.OverrideFreeze, OverrideExposure: r.OverrideExposure, TakeOver: r.TakeOver,
	})
}

// errNoWhy is the error of an order that overrides a guard rail without a reason.
var errNoWhy = &usageError{errors.New("--why is missing: say why the guard rail is overridden; the audit trail keeps it")}

// watchText says how long an upgrade takes, for operators who wait for it.
const watchText = "Hosts watch a new version for ten minutes by default; their upgrades are done after that."

// printPreview prints what an order to upgrade agents, or a component of them, would do.
func printPreview(w io.Writer, component string, p adminapi.UpgradePreview) {
	runs := "RUNS"
	if component == "" {
		fmt.Fprintf(w, "%d would be upgraded to %s, %d would not. %s\n", p.Will, p.Version, p.Wont, watchText)
	} else {
		runs = "HAS"
		fmt.Fprintf(w, "Component %s would be upgraded to %s on %s, and not on %d.\n", component, p.Version, counted(p.Will, "agent"), p.Wont)
	}
	printVerdicts(w, p, runs, "UPGRADE")
	printCauses(w, deref(p.Causes), "UPGRADE")
	if p.Refused != nil {
		fmt.Fprintf(w, "The order would be refused: %s\n", *p.Refused)
	}
}
