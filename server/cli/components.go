package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func (a *client) newComponents() *cobra.Command {
	return noun(&cobra.Command{Use: "components", Short: "List, upgrade and roll back the components that agents run"},
		a.newComponentsList(), a.newComponentsUpgrade(), a.newComponentsRollback())
}

func (a *client) newComponentsList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [COMPONENT]",
		Short: "List the components that agents run, or the agents that run one",
		Example: `  muster components list
  muster components list web-server
  muster components list web-server --kuery 'components.version < 2.5.0'`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return oneArg("one component at most: `muster components list` shows them")(c, args)
			}
			return nil
		},
	}
	kuery := cmd.Flags().String("kuery", "", "only on agents that match this KQL query")
	all := showingFor(a, cmd, adminapi.ListComponents, query{"kuery": "--kuery"}, printComponents).RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return a.listComponent(cmd, args[0], *kuery)
		}
		return all(cmd, args)
	}
	return cmd
}

func printComponents(w io.Writer, got adminapi.ComponentList) {
	tableOf(w, "COMPONENT\tRUNTIME\tAGENTS\tHEALTHY\tUPGRADING\tFAILED\tVERSIONS", got.Items, func(c adminapi.ComponentSummary) []any {
		versions := each(c.Versions, func(v adminapi.ComponentVersion) string {
			return fmt.Sprintf("%s (%d)", cmp.Or(v.Version, "none"), v.Agents)
		})
		return []any{c.Name, strings.Join(c.Runtimes, ", "), c.Agents, c.Healthy, c.Upgrading, c.Failed, strings.Join(versions, ", ")}
	})
}

// componentOnAgent is a component of one agent, for -o json.
type componentOnAgent struct {
	AgentID  string `json:"agent_id"`
	Hostname string `json:"hostname"`
	adminapi.Component
}

func (a *client) listComponent(cmd *cobra.Command, name, kuery string) error {
	all, total, err := a.componentOn(cmd.Context(), name, kuery)
	if err != nil {
		return err
	}
	if total == 0 {
		return a.ofComponent(cmd.Context(), name, fmt.Errorf("no agent that the query selects runs component %s", name))
	}
	return a.show(cmd.OutOrStdout(), map[string]any{"items": all}, func(w io.Writer) {
		tableOf(w, "ID\tHOST\tVERSION\tHEALTH\tUPGRADE\tMESSAGE", all, func(c componentOnAgent) []any {
			return []any{c.AgentID, c.Hostname, cmp.Or(deref(c.Version), "none"), c.Status, componentUpgrade(c.Component), c.Message}
		})
		if total > len(all) {
			fmt.Fprintf(w, "… and %d more\n", total-len(all))
		}
	})
}

// componentsNamed is how many components an error about an unknown one names.
const componentsNamed = 10

// ofComponent returns the error of an order or a list, or one that says so if no agent runs the
// component; without a name it is about the agents themselves.
func (a *client) ofComponent(ctx context.Context, name string, err error) error {
	if name == "" || err == nil {
		return err
	}
	got, listErr := ask(ctx, a, adminapi.ListComponents, nil)
	if listErr != nil {
		return err
	}
	names := each(got.Items, func(c adminapi.ComponentSummary) string { return c.Name })
	switch {
	case slices.Contains(names, name):
		return err
	case len(names) == 0:
		return fmt.Errorf("no agent runs component %s, nor any other: list it in their policy first (`muster policies update --example`)", name)
	}
	more := ""
	if len(names) > componentsNamed {
		names, more = names[:componentsNamed], " and others"
	}
	return fmt.Errorf("no agent runs component %s, but %s%s: `muster components list` shows those that run, and policies say which are to run", name, strings.Join(names, ", "), more)
}

// componentOn returns the component of each agent that runs it, up to maxListed.
func (a *client) componentOn(ctx context.Context, name, kuery string) (all []componentOnAgent, total int, err error) {
	agents, err := a.agentsWith(ctx, name, kuery, false)
	for _, g := range agents.Items {
		for _, c := range g.Components {
			if deref(c.Name) == name {
				all = append(all, componentOnAgent{g.Id, hostname(g), c})
			}
		}
	}
	return all, agents.Total, err
}

// agentsWith returns the agents that report a component, up to maxListed.
func (a *client) agentsWith(ctx context.Context, name, kuery string, inactive bool) (paged[adminapi.Agent], error) {
	query := fmt.Sprintf("components.name: %q", name)
	if kuery != "" {
		query += " and (" + kuery + ")"
	}
	return a.listAgents(ctx, query, inactive)
}

// listAgents returns the agents that match a query, all if it is empty, by their host names and up
// to maxListed.
func (a *client) listAgents(ctx context.Context, kuery string, inactive bool) (paged[adminapi.Agent], error) {
	q := url.Values{"sortField": {"local_metadata.host.hostname"}, "sortOrder": {"asc"}, "showInactive": {fmt.Sprint(inactive)}}
	if kuery != "" {
		q.Set("kuery", kuery)
	}
	return everyPage[adminapi.Agent](ctx, a, adminapi.ListAgents, maxListed, q)
}

// componentUpgrade describes the last upgrade of a component.
func componentUpgrade(c adminapi.Component) string {
	switch {
	case c.UpgradeDetails != nil:
		return describeDetails(c.UpgradeDetails)
	case c.UpgradeStatus != nil:
		return "requested " + deref(c.DesiredVersion)
	}
	return ""
}

// componentAndAgents requires a component, and agents that are named or selected.
func componentAndAgents(selection *agentSelection) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errors.New("no component is named: `muster components list` shows them")
		}
		return selection.validate(c, args[1:])
	}
}

// seeActions is how orders for agents are followed, and seeComponent how those for a component are.
const seeActions = "`muster actions list`"

func seeComponent(name string) string { return "`muster components list " + name + "`" }

// componentEnd is how --wait knows that an order for a component has ended.
func componentEnd(name, failed string) upgradeEnd {
	return upgradeEnd{
		outcome: func(g adminapi.Agent, to string) (string, bool, bool) { return componentOutcome(g, name, to) },
		failed:  failed, see: seeComponent(name), seeFailed: seeComponent(name),
	}
}

func componentDone(name string, agents []awaited) string {
	return fmt.Sprintf("done: component %s is in that version on %s", name, counted(len(agents), "agent"))
}

// componentOutcome is upgradeOutcome of a component. Its phase begins with its name.
func componentOutcome(g adminapi.Agent, name, to string) (phase string, over, good bool) {
	i := slices.IndexFunc(g.Components, func(c adminapi.Component) bool { return deref(c.Name) == name })
	if i < 0 {
		return name + " is not reported", true, false
	}
	c := g.Components[i]
	phase = name + " " + cmp.Or(componentUpgrade(c), "is "+cmp.Or(deref(c.Version), "not installed"))
	switch {
	case c.UpgradeStatus == nil:
		return phase, true, deref(c.Version) == to
	case *c.UpgradeStatus == fleet.UpgradeStarted:
		if d := c.UpgradeDetails; d != nil && d.State == agentapi.UpgradeWatching {
			phase = name + " " + describePhase(d) // without the seconds that are left
		}
		return phase, false, false
	}
	return phase, true, false
}
