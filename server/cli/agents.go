package cli

import (
	"cmp"
	"context"
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
	return noun(&cobra.Command{Use: "agents", Short: "List, count, export, inspect, explain, diagnose, upgrade, roll back and unenrol agents"},
		a.newAgentsFacets(), a.newAgentsExport(), a.newAgentsTimeline(), a.newAgentsFailures(), a.newAgentsList(), a.newAgentsGet(),
		a.newAgentsUpgrade(), a.newAgentsStage(), a.newAgentsRollback(), a.newAgentsUnenroll(), a.newAgentsDiagnostics(), a.newAgentsWhy())
}

// pageSize is how many agents one request asks for.
const pageSize = 1000

func (a *client) newAgentsList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List agents",
		Example: `  muster agents list
  muster agents list --kuery 'health: offline and tag: prod'
  muster agents list --kuery 'progress: (failed or rolled_back)'
  muster agents list --kuery 'agent.version < 1.10.0 and not local_metadata.os.platform: (debian or ubuntu)'
  muster agents list -o json | jq '.items[].id'`,
	}
	inactive := cmd.Flags().Bool("inactive", false, "include inactive and unenrolled agents")
	kuery := cmd.Flags().String("kuery", "", "list only agents that match this KQL query, such as 'health: offline'")
	return running(a, cmd, func(cmd *cobra.Command, _ []string) (paged[adminapi.Agent], error) {
		return a.listAgents(cmd.Context(), *kuery, *inactive)
	}, func(w io.Writer, all paged[adminapi.Agent]) {
		now := time.Now()
		tableOf(w, "ID\tHOST\tHEALTH\tVERSION\tUPGRADE\tLAST SEEN", all.Items, func(g adminapi.Agent) []any {
			version := g.Agent.Version
			if g.Maker != nil {
				version += ", Elastic"
			}
			return []any{g.Id, hostname(g), healthOf(g), version, progressOf(g), ago(g.LastCheckin, now)}
		})
		if all.Total > len(all.Items) {
			fmt.Fprintf(w, "… and %d more\n", all.Total-len(all.Items))
		}
	})
}

func (a *client) newAgentsGet() *cobra.Command {
	return running(a, &cobra.Command{
		Use:               "get AGENT",
		Short:             "Show one agent",
		Args:              oneAgent,
		ValidArgsFunction: completing(a.agentNames),
	}, func(cmd *cobra.Command, args []string) (got adminapi.AgentItem, err error) {
		id, err := a.agentID(cmd.Context(), args[0])
		if err != nil {
			return got, err
		}
		return ask(cmd.Context(), a, adminapi.GetAgent, nil, id)
	}, func(w io.Writer, got adminapi.AgentItem) { printAgent(w, got.Item) })
}

func printAgent(w io.Writer, g adminapi.Agent) {
	fmt.Fprintf(w, "%s  %s\n", hostname(g), g.Id)
	about := details{w, 12}
	about.row("health", healthOf(g))
	if g.Shared != nil {
		about.row("identity", g.Shared.Text)
		for _, b := range g.Shared.Hosts {
			about.rowf("", "%s runs %s, last seen beside the others %s (machine %s)", b.Hostname, b.Version, ago(&b.Again, time.Now()), cmp.Or(b.MachineID, "unknown"))
		}
		about.row("", g.Shared.Next)
	}
	about.row("version", g.Agent.Version)
	about.row("policy", g.PolicyId)
	about.row("enrolled", atTime(g.EnrolledAt))
	about.row("last seen", ago(g.LastCheckin, time.Now()))
	about.option("message", deref(g.LastCheckinMessage))
	about.option("upgrade", progressOf(g))
	about.option("phase", deref(deref(g.Progress).Phase))
	if desired := deref(g.DesiredVersion); desired != g.Agent.Version {
		about.option("desired", desired)
	}
	about.option("last healthy", deref(g.LastHealthyVersion))
	if g.Rollout != nil {
		about.rowf("rollout", "%s (%s): see `muster agents why %s`", g.Rollout.Name, g.Rollout.ID, g.Id)
	}
	about.row("rollback", describeRollback(g.Rollback))
	if g.Watch != nil {
		about.row("watcher", describeWatch(*g.Watch, time.Now()))
		about.option("", deref(g.Watch.Diagnosis).Text)
	}
	about.option("staged", strings.Join(deref(g.StagedVersions), ", "))
	for _, c := range g.Components {
		if c.Name == nil {
			about.rowf("component", "%s (%s): %s %s", c.Id, c.Type, c.Status, c.Message)
		} else {
			about.rowf("component", "%s (%s): %s %s", strings.TrimSpace(*c.Name+" "+deref(c.Version)), deref(c.Runtime), c.Status, c.Message)
		}
		if u := componentUpgrade(c); u != "" {
			about.row("", "upgrade: "+u)
		}
		for _, p := range deref(c.RollbackProblems) {
			about.rowf("", "kept %s: %s", p.Version, p.Reason)
		}
		for _, u := range deref(c.Units) {
			about.rowf("", "%s %s: %s %s", u.Type, u.Id, u.Status, u.Message)
		}
	}
}

// printVerdicts prints what would become of each agent of an order. runs and does head the columns
// of the version that it has, and of whether it follows.
func printVerdicts(w io.Writer, p adminapi.UpgradePreview, runs, does string) {
	tableOf(w, fmt.Sprintf("HOST\t%s\t%s\tREMARK", runs, does), p.Items, func(i adminapi.UpgradePreviewItem) []any {
		return []any{i.Hostname, cmp.Or(i.Version, "none"), yesNo(i.Will), deref(i.Reason)}
	})
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
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
	tableOf(w, "AGENTS\t"+does+"\tCAUSE\tINCLUDE WITH\tHOSTS", causes, func(c adminapi.PreviewCause) []any {
		hosts := strings.Join(c.Sample, ", ")
		if c.Count > len(c.Sample) {
			hosts += ", …"
		}
		return []any{c.Count, yesNo(c.Will), c.Text, cmp.Or(includes[c.Choice], "-"), hosts}
	})
}

var oneAgent = oneArg("one agent, by id or host name: `muster agents list` shows them")

var someAgents = someArgs("no agents are named: `muster agents list` shows them")

func hostname(g adminapi.Agent) string {
	host, _ := g.LocalMetadata["host"].(map[string]any)
	if name, _ := host["hostname"].(string); name != "" {
		return name
	}
	return g.Id
}

func (a *client) agentNames(ctx context.Context) ([]string, error) {
	list, err := ask(ctx, a, adminapi.ListAgents, url.Values{"perPage": {"1000"}})
	return each(list.Items, func(g adminapi.Agent) string { return g.Id + "\t" + hostname(g) + " " + g.Agent.Version }), err
}

func (a *client) versionNames(ctx context.Context) ([]string, error) {
	list, err := ask(ctx, a, adminapi.ListAvailableVersions, nil)
	return list.Items, err
}
