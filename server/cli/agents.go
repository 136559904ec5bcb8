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
	"github.com/muster-fleet/muster/server/fleet"
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
						row("", "%s runs %s, last seen beside the others %s (machine %s)", b.Hostname, b.Version, ago(&b.Again, time.Now()), cmp.Or(b.MachineID, "unknown"))
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
					row("rollout", "%s (%s): see `muster agents why %s`", g.Rollout.Name, g.Rollout.ID, g.Id)
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
var includes = map[string]string{
	fleet.ChoiceForce: "--force", fleet.ChoiceIncludeInactive: "--inactive", fleet.ChoiceTakeOver: "--take-over",
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
			hosts := strings.Join(c.Sample, ", ")
			if c.Count > len(c.Sample) {
				hosts += ", …"
			}
			add(c.Count, will, c.Text, firstOf(includes[c.Choice], "-"), hosts)
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
