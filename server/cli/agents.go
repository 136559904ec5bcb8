package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newAgents() *cobra.Command {
	cmd := &cobra.Command{Use: "agents", Short: "List, count, export, inspect, explain, diagnose, upgrade, roll back and unenrol agents"}
	cmd.AddCommand(a.newAgentsFacets(), a.newAgentsExport(), a.newAgentsTimeline(), a.newAgentsFailures())
	cmd.AddCommand(a.newAgentsList(), a.newAgentsGet(), a.newAgentsUpgrade(), a.newAgentsStage(), a.newAgentsRollback(), a.newAgentsUnenroll(), a.newAgentsDiagnostics(), a.newAgentsWhy())
	return cmd
}

// pageSize is how many agents one request asks for.
const pageSize = 1000

func (a *client) newAgentsList() *cobra.Command {
	var (
		inactive bool
		kuery    string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List agents",
		Example: `  muster agents list
  muster agents list --kuery 'health: offline and tag: prod'
  muster agents list --kuery 'progress: (failed or rolled_back)'
  muster agents list --kuery 'agent.version < 1.10.0 and not local_metadata.os.platform: (debian or ubuntu)'
  muster agents list -o json | jq '.items[].id'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := a.listAgents(cmd.Context(), kuery, inactive)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), all, func(w io.Writer) {
				now := time.Now()
				table(w, "ID\tHOST\tHEALTH\tVERSION\tUPGRADE\tLAST SEEN", func(add func(...any)) {
					for _, g := range all.Items {
						version := g.Agent.Version
						if g.Maker != nil {
							version += ", Elastic"
						}
						add(g.Id, hostname(g), healthOf(g), version, progressOf(g), ago(g.LastCheckin, now))
					}
				})
				if all.Total > len(all.Items) {
					fmt.Fprintf(w, "… and %d more\n", all.Total-len(all.Items))
				}
			})
		},
	}
	cmd.Flags().BoolVar(&inactive, "inactive", false, "include inactive and unenrolled agents")
	cmd.Flags().StringVar(&kuery, "kuery", "", "list only agents that match this KQL query, such as 'health: offline'")
	return cmd
}

func (a *client) newAgentsGet() *cobra.Command {
	return &cobra.Command{
		Use:               "get AGENT",
		Short:             "Show one agent",
		Args:              oneAgent,
		ValidArgsFunction: a.completeAgents,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := a.agentID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			got, err := ask(cmd.Context(), a, adminapi.GetAgent, nil, id)
			if err != nil {
				return err
			}
			g := got.Item
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				fmt.Fprintf(w, "%s  %s\n", hostname(g), g.Id)
				row := func(name, format string, args ...any) {
					fmt.Fprintf(w, "  %-12s %s\n", name, fmt.Sprintf(format, args...))
				}
				row("health", "%s", healthOf(g))
				if g.Shared != nil {
					row("identity", "%s", g.Shared.Text)
					for _, b := range g.Shared.Hosts {
						row("", "%s runs %s, last seen beside the others %s (machine %s)", b.Hostname, b.Version, ago(&b.Again, time.Now()), cmp.Or(deref(b.MachineId), "unknown"))
					}
					row("", "%s", g.Shared.Next)
				}
				row("version", "%s", g.Agent.Version)
				row("policy", "%s", g.PolicyId)
				row("enrolled", "%s", g.EnrolledAt.Local().Format(time.DateTime))
				row("last seen", "%s", ago(g.LastCheckin, time.Now()))
				if m := deref(g.LastCheckinMessage); m != "" {
					row("message", "%s", m)
				}
				if p := progressOf(g); p != "" {
					row("upgrade", "%s", p)
				}
				if p := g.Progress; p != nil && p.Phase != nil {
					row("phase", "%s", *p.Phase)
				}
				if desired := deref(g.DesiredVersion); desired != "" && desired != g.Agent.Version {
					row("desired", "%s", desired)
				}
				if healthy := deref(g.LastHealthyVersion); healthy != "" {
					row("last healthy", "%s", healthy)
				}
				if g.Rollout != nil {
					row("rollout", "%s (%s): see `muster agents why %s`", g.Rollout.Name, g.Rollout.Id, g.Id)
				}
				row("rollback", "%s", describeRollback(g.Rollback))
				if g.Watch != nil {
					row("watcher", "%s", describeWatch(*g.Watch, time.Now()))
					if g.Watch.Diagnosis != nil {
						row("", "%s", g.Watch.Diagnosis.Text)
					}
				}
				if g.StagedVersions != nil && len(*g.StagedVersions) > 0 {
					row("staged", "%s", strings.Join(*g.StagedVersions, ", "))
				}
				for _, c := range g.Components {
					if c.Name == nil {
						row("component", "%s (%s): %s %s", c.Id, c.Type, c.Status, c.Message)
					} else {
						row("component", "%s (%s): %s %s", strings.TrimSpace(*c.Name+" "+deref(c.Version)), deref(c.Runtime), c.Status, c.Message)
					}
					if u := componentUpgrade(c); u != "" {
						row("", "upgrade: %s", u)
					}
					for _, p := range deref(c.RollbackProblems) {
						row("", "kept %s: %s", p.Version, p.Reason)
					}
					for _, u := range deref(c.Units) {
						row("", "%s %s: %s %s", u.Type, u.Id, u.Status, u.Message)
					}
				}
			})
		},
	}
}

func (a *client) newAgentsUpgrade() *cobra.Command {
	var (
		req                      adminapi.BulkUpgradeRequest
		selection                agentSelection
		source                   string
		why                      string
		force                    bool
		overFreeze, overExposure bool
		later                    scheduleFlags
		dryRun                   bool
		wait                     waitFlags
		owner                    takeOver
	)
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
		Args:              selection.validate,
		ValidArgsFunction: a.completeAgents,
		RunE: func(cmd *cobra.Command, args []string) error {
			if req.Version == "" {
				return &usageError{errors.New("--version is missing: `muster package list` shows what is published")}
			}
			if source != "" {
				req.SourceUri = &source
			}
			if force {
				req.Force = &force
			}
			if (overFreeze || overExposure) && why == "" {
				return errNoWhy
			}
			start, over, err := later.times(wait, time.Now())
			if err != nil {
				return &usageError{err}
			}
			req.StartTime, req.RolloutDurationSeconds = start, over
			req.OverrideFreeze, req.OverrideExposure, req.Why = given(overFreeze), given(overExposure), given(why)
			args, err = a.agentIDs(cmd.Context(), args)
			if err != nil {
				return err
			}
			preview, err := call(cmd.Context(), a, adminapi.PreviewUpgrade, adminapi.UpgradePreviewRequest{
				Agents: selection.request(args), IncludeInactive: selection.includeInactive(), Version: req.Version, SourceUri: req.SourceUri, Force: req.Force,
				OverrideFreeze: req.OverrideFreeze, OverrideExposure: req.OverrideExposure, TakeOver: given(owner.name),
			})
			if err != nil {
				return err
			}
			if dryRun {
				return a.show(cmd.OutOrStdout(), preview, func(w io.Writer) { printPreview(w, preview) })
			}
			if nothingToDo(preview) {
				return a.showNothingToDo(cmd, preview, "the version is")
			}
			if preview.Will == 0 {
				printPreview(cmd.ErrOrStderr(), preview)
				return errors.New("none of the agents can be upgraded")
			}
			selection.printCounts(cmd, preview.Will, preview.Wont, "upgraded to "+req.Version)
			req.Agents = selection.requestPreviewed(args, each(preview.Items, func(i adminapi.UpgradePreviewItem) string { return i.AgentId }))
			req.IncludeInactive = selection.includeInactive()
			created, err := ordered(cmd, &owner, func(name *string) (adminapi.BulkActionResponse, error) {
				req.TakeOver = name
				return call(cmd.Context(), a, adminapi.BulkUpgradeAgents, req)
			})
			if err != nil {
				return err
			}
			if !wait.on {
				return a.show(cmd.OutOrStdout(), created, func(w io.Writer) {
					fmt.Fprintf(w, "Upgrading %d of %s to %s: action %s\nFollow it with `muster actions list`.\n", preview.Will, counted(len(preview.Items), "agent"), req.Version, deref(created.ActionId))
				})
			}
			if err := a.waitFor(cmd, awaitUpgrade(preview), wait.timeout, agentEnd("not upgraded")); err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), created, func(w io.Writer) {
				fmt.Fprintf(w, "%s upgraded by action %s\n", counted(preview.Will, "agent"), deref(created.ActionId))
			})
		},
	}
	f := cmd.Flags()
	selection.flags(f)
	f.StringVar(&req.Version, "version", "", "version to upgrade to (required)")
	f.StringVar(&source, "source-uri", "", "URL that hosts download the package from instead of the server")
	f.BoolVar(&force, "force", false, "also upgrade agents that are upgrading already, run this version or a later one, report too little free space, or on whose host it failed before (hosts go back only to the version they keep, or that muster package allow-downgrade allows)")
	f.BoolVar(&overFreeze, "override-freeze", false, "also during a freeze; needs --why")
	f.BoolVar(&overExposure, "override-exposure", false, "also beyond the exposure budget; needs --why")
	f.StringVar(&why, "why", "", "reason for the audit trail")
	f.BoolVar(&dryRun, "dry-run", false, "show what would happen and change nothing")
	later.flags(f)
	owner.flag(a, cmd)
	wait.flags(f, "the watch of every upgrade has ended, which takes ten minutes by default")
	_ = cmd.RegisterFlagCompletionFunc("version", a.completeVersions)
	return cmd
}

// errNoWhy is the error of an order that overrides a guard rail without a reason.
var errNoWhy = &usageError{errors.New("--why is missing: say why the guard rail is overridden; the audit trail keeps it")}

// watchText tells operators who wait for an upgrade how long it takes.
const watchText = "Hosts watch a new version for ten minutes by default; their upgrades are done after that."

func printPreview(w io.Writer, p adminapi.UpgradePreview) {
	fmt.Fprintf(w, "%d would be upgraded to %s, %d would not. %s\n", p.Will, p.Version, p.Wont, watchText)
	printVerdicts(w, p, "RUNS", "UPGRADE")
	printCauses(w, deref(p.Causes), "UPGRADE")
	if p.Refused != nil {
		fmt.Fprintf(w, "The order would be refused: %s\n", *p.Refused)
	}
}

// printVerdicts prints what would become of each agent of an order. runs and does head the columns
// of the version that it has, and of whether it follows.
func printVerdicts(w io.Writer, p adminapi.UpgradePreview, runs, does string) {
	table(w, fmt.Sprintf("HOST\t%s\t%s\tREMARK", runs, does), func(add func(...any)) {
		for _, i := range p.Items {
			will := "no"
			if i.Will {
				will = "yes"
			}
			add(i.Hostname, firstOf(i.Version, "none"), will, deref(i.Reason))
		}
	})
}

// includes are the flags of the choices of causes.
var includes = map[adminapi.PreviewCauseChoice]string{
	adminapi.ChoiceForce: "--force", adminapi.ChoiceIncludeInactive: "--inactive", adminapi.ChoiceTakeOver: "--take-over",
}

// printCauses prints why agents would not follow an order, and remarks, with counts and some hosts.
// does heads the column of whether they follow.
func printCauses(w io.Writer, causes []adminapi.PreviewCause, does string) {
	if len(causes) == 0 {
		return
	}
	fmt.Fprintln(w)
	table(w, "AGENTS\t"+does+"\tCAUSE\tINCLUDE WITH\tHOSTS", func(add func(...any)) {
		for _, c := range causes {
			will := "no"
			if c.Will {
				will = "yes"
			}
			hosts := strings.Join(deref(c.Sample), ", ")
			if c.Count > len(deref(c.Sample)) {
				hosts += ", …"
			}
			add(c.Count, will, c.Text, firstOf(includes[deref(c.Choice)], "-"), hosts)
		}
	})
}

var oneAgent = oneArg("one agent, by id or host name: `muster agents list` shows them")

func someAgents(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("no agents are named: `muster agents list` shows them")
	}
	return nil
}

func hostname(g adminapi.Agent) string {
	host, _ := g.LocalMetadata["host"].(map[string]any)
	if name, _ := host["hostname"].(string); name != "" {
		return name
	}
	return g.Id
}

func (a *client) completeAgents(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	list, err := ask(cmd.Context(), a, adminapi.ListAgents, url.Values{"perPage": {"1000"}})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, g := range list.Items {
		out = append(out, g.Id+"\t"+hostname(g)+" "+g.Agent.Version)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (a *client) completeVersions(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	list, err := ask(cmd.Context(), a, adminapi.ListAvailableVersions, nil)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return list.Items, cobra.ShellCompDirectiveNoFileComp
}
