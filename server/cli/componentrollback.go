package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

// rollbackOrder is an order to roll agents back, or a component of them, as the subcommands for both
// give it.
type rollbackOrder struct {
	component string // empty: the agents themselves
	to        string // of a component; empty: the version that each agent would choose
	selection agentSelection
	dryRun    bool
	wait      waitFlags
	owner     takeOver
}

func (r *rollbackOrder) flags(a *client, cmd *cobra.Command) {
	f := cmd.Flags()
	r.selection.flags(f)
	f.BoolVar(&r.dryRun, "dry-run", false, "show what would happen and change nothing")
	r.owner.flag(a, cmd)
	r.wait.flags(f, "every rollback has ended")
}

func (a *client) newComponentsRollback() *cobra.Command {
	var r rollbackOrder
	cmd := &cobra.Command{
		Use:   "rollback COMPONENT {AGENT… | --kuery QUERY}",
		Short: "Take a component of agents back to a version that they have kept",
		Long: `Take a component back to an earlier version, with the configuration that it had. Agents
are named by id or host name, or selected by a query. Without --to each goes back to its
last healthy version if it has kept that, otherwise to the last that it has kept.

Nothing is downloaded, and neither freezes nor the exposure budget hold. Of a version that
an agent has not kept, install the package: muster components upgrade --force.

--dry-run shows the version each agent would go back to and changes nothing. --wait
follows the rollbacks to their end and exits with 0 only if every agent runs the older
version.`,
		Example: `  muster components rollback web-server web-01 web-02 --dry-run
  muster components rollback web-server --kuery 'components.version: 2.5.0' --to 2.4.0
  muster components rollback web-server web-01 --wait`,
		Args: componentAndAgents(&r.selection),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.component = args[0]
			return r.runComponent(a, cmd, args[1:])
		},
	}
	r.flags(a, cmd)
	cmd.Flags().StringVar(&r.to, "to", "", "version to go back to (default: on each agent the one that it would choose)")
	return cmd
}

// run completes the order by what rollbacks have in common, and gives it.
func (r *rollbackOrder) run(a *client, cmd *cobra.Command, names []string, end upgradeEnd, o agentOrder[adminapi.RollbackPreview, adminapi.ActionsCreated]) error {
	o.selection, o.dryRun, o.what = &r.selection, r.dryRun, "rolled back"
	o.count = func(p adminapi.RollbackPreview) (will, wont int, ids []string) {
		return p.Will, p.Wont, each(p.Items, func(i adminapi.RollbackPreviewItem) string { return i.AgentId })
	}
	if r.wait.on {
		o.wait = func(p adminapi.RollbackPreview, _ adminapi.ActionsCreated) error {
			return a.waitFor(cmd, awaitRollback(p), r.wait.timeout, end)
		}
	}
	return o.run(a, cmd, names)
}

// runComponent previews the order for a component of the named or selected agents, and gives it.
func (r *rollbackOrder) runComponent(a *client, cmd *cobra.Command, names []string) error {
	name := r.component
	var orders []adminapi.ComponentUpgradeRequest
	o := agentOrder[adminapi.RollbackPreview, adminapi.ActionsCreated]{
		print:  func(w io.Writer, p adminapi.RollbackPreview) { printComponentRollback(w, name, p) },
		follow: seeComponent(name),
		preview: func(_ json.RawMessage, ids []string) (all adminapi.RollbackPreview, err error) {
			if orders, err = a.componentRollbacks(cmd.Context(), name, ids, &r.selection, r.to); err != nil {
				return all, err
			}
			for i := range orders {
				orders[i].TakeOver = given(r.owner.name)
				got, err := call(cmd.Context(), a, adminapi.PreviewComponentUpgrade, orders[i], name)
				if err != nil {
					return all, err
				}
				addRollbacks(&all, got)
			}
			return all, nil
		},
		none: func() error {
			return a.ofComponent(cmd.Context(), name, fmt.Errorf("component %s can be rolled back on none of the agents", name))
		},
		order: func(agents json.RawMessage) (created adminapi.ActionsCreated, err error) {
			for _, o := range orders {
				if r.to != "" {
					o.Agents = agents
				}
				got, err := ordered(cmd, &r.owner, func(fleet *string) (adminapi.BulkActionResponse, error) {
					o.TakeOver = fleet
					return call(cmd.Context(), a, adminapi.UpgradeComponent, o, name)
				})
				if err != nil {
					return created, err
				}
				created.ActionIds = append(created.ActionIds, deref(got.ActionId))
			}
			return created, nil
		},
		begun: func(p adminapi.RollbackPreview, created adminapi.ActionsCreated) string {
			return fmt.Sprintf("Rolling component %s back on %s: action %s", name, ofAgents(p.Will, len(p.Items)), strings.Join(created.ActionIds, ", "))
		},
	}
	o.done = func(p adminapi.RollbackPreview, created adminapi.ActionsCreated) string {
		return o.begun(p, created) + "\n" + componentDone(name, awaitRollback(p))
	}
	return r.run(a, cmd, names, componentEnd(name, "not rolled back"), o)
}

// componentRollbacks returns an order for each version that agents go back to. An agent that
// has kept none is in the first one, and the server says so.
func (a *client) componentRollbacks(ctx context.Context, name string, ids []string, selection *agentSelection, to string) ([]adminapi.ComponentUpgradeRequest, error) {
	order := func(version string, agents json.RawMessage) adminapi.ComponentUpgradeRequest {
		return adminapi.ComponentUpgradeRequest{Agents: agents, IncludeInactive: selection.includeInactive(), Version: version, Rollback: given(true)}
	}
	if to != "" {
		return []adminapi.ComponentUpgradeRequest{order(to, selection.request(ids))}, nil
	}
	agents, err := a.agentsRunning(ctx, name, ids, selection)
	if err != nil {
		return nil, err
	}
	byVersion := map[string][]string{}
	var none []string
	for _, g := range agents {
		if version := keptComponent(g, name); version != "" {
			byVersion[version] = append(byVersion[version], g.Id)
		} else {
			none = append(none, g.Id)
		}
	}
	if len(byVersion) == 0 {
		return nil, a.ofComponent(ctx, name, fmt.Errorf("none of the agents has kept an earlier version of component %s: install one with `muster components upgrade %s AGENT --version VERSION --force`", name, name))
	}
	var orders []adminapi.ComponentUpgradeRequest
	for _, version := range slices.Sorted(maps.Keys(byVersion)) {
		orders = append(orders, order(version, mustJSON(append(none, byVersion[version]...))))
		none = nil
	}
	return orders, nil
}

// agentsRunning returns the agents with these ids, or those that the query selects and that
// report the component.
func (a *client) agentsRunning(ctx context.Context, name string, ids []string, selection *agentSelection) (agents []adminapi.Agent, err error) {
	if selection.kuery == "" {
		for some := range slices.Chunk(ids, namesPerQuery) {
			found, err := a.findAgents(ctx, "agent.id: ("+strings.Join(each(some, quoteKQL), " or ")+")")
			if err != nil {
				return nil, err
			}
			agents = append(agents, found...)
		}
		return agents, nil
	}
	list, err := a.agentsWith(ctx, name, selection.kuery, selection.inactive)
	if err == nil && list.Total > len(list.Items) {
		err = fmt.Errorf("the query selects %d agents, of which %d can be read: narrow it, or name the version with --to", list.Total, len(list.Items))
	}
	return list.Items, err
}

// keptComponent returns the version that a component of an agent goes back to by default; it
// is empty if the agent has kept none. Agents report the one that they have kept last at the
// end.
func keptComponent(g adminapi.Agent, name string) (version string) {
	for _, c := range g.Components {
		if deref(c.Name) != name {
			continue
		}
		for _, kept := range deref(c.Rollbacks) {
			if kept != deref(c.Version) && (version == "" || version != deref(c.LastHealthyVersion)) {
				version = kept
			}
		}
	}
	return version
}

// addRollbacks adds the preview of an order to that of all.
func addRollbacks(all *adminapi.RollbackPreview, p adminapi.UpgradePreview) {
	all.Will, all.Wont = all.Will+p.Will, all.Wont+p.Wont
	for _, i := range p.Items {
		item := adminapi.RollbackPreviewItem{AgentId: i.AgentId, Hostname: i.Hostname, Version: i.Version, Will: i.Will, Reason: i.Reason}
		if i.Will {
			item.To = &p.Version
		}
		all.Items = append(all.Items, item)
	}
	causes := deref(all.Causes)
	for _, c := range deref(p.Causes) {
		i := slices.IndexFunc(causes, func(has adminapi.PreviewCause) bool { return has.Text == c.Text && has.Will == c.Will })
		if i < 0 {
			causes = append(causes, c)
			continue
		}
		causes[i].Count += c.Count
	}
	all.Causes = &causes
}

func printComponentRollback(w io.Writer, name string, p adminapi.RollbackPreview) {
	fmt.Fprintf(w, "Component %s would be rolled back on %s, and not on %d.\n", name, counted(p.Will, "agent"), p.Wont)
	tableOf(w, "HOST\tHAS\tROLLBACK TO\tREMARK", p.Items, func(i adminapi.RollbackPreviewItem) []any {
		return []any{i.Hostname, cmp.Or(i.Version, "none"), cmp.Or(deref(i.To), "-"), deref(i.Reason)}
	})
	printCauses(w, deref(p.Causes), "ROLLBACK")
}
