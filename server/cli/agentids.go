package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// namesPerQuery keeps the URL of one query below 10 KB.
	namesPerQuery = 100
	// candidatesShown is how many agents an error about a name lists.
	candidatesShown = 3
	// minSharedPrefix is how many leading bytes an unknown name must share with a
	// host name for the error to suggest that host.
	minSharedPrefix = 2
)

// agentIDs returns the ids of the agents with these ids or host names. A name that
// matches no agent, or more than one, is an error that lists candidates.
func (a *client) agentIDs(ctx context.Context, names []string) ([]string, error) {
	ids := make([]string, 0, len(names))
	for some := range slices.Chunk(names, namesPerQuery) {
		quoted := strings.Join(each(some, quoteKQL), " or ")
		found, err := a.findAgents(ctx, "agent.id: ("+quoted+") or local_metadata.host.hostname.keyword: ("+quoted+")")
		if err != nil {
			return nil, err
		}
		for _, name := range some {
			id, err := a.pickAgent(ctx, name, found)
			if err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (a *client) agentID(ctx context.Context, name string) (string, error) {
	ids, err := a.agentIDs(ctx, []string{name})
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// findAgents returns the agents that match a query, unenrolled ones included. An empty
// query matches all agents. It returns one page at most.
func (a *client) findAgents(ctx context.Context, kuery string) ([]adminapi.Agent, error) {
	q := url.Values{"kuery": {kuery}, "perPage": {fmt.Sprint(pageSize)}, "showInactive": {"true"}}
	got, err := ask(ctx, a, adminapi.ListAgents, q)
	return got.Items, err
}

// pickAgent returns the id of the agent with this id, or of the only agent with this
// host name. Unenrolled and uninstalled agents count only if no other has the name.
func (a *client) pickAgent(ctx context.Context, name string, found []adminapi.Agent) (string, error) {
	var enrolled, left []adminapi.Agent
	for _, g := range found {
		switch {
		case g.Id == name:
			return name, nil
		case hostname(g) != name:
		case g.Status == fleet.StatusUnenrolled || g.Status == fleet.StatusUninstalled:
			left = append(left, g)
		default:
			enrolled = append(enrolled, g)
		}
	}
	if len(enrolled) == 0 {
		enrolled = left
	}
	switch len(enrolled) {
	case 0:
		return "", a.noSuchAgent(ctx, name)
	case 1:
		return enrolled[0].Id, nil
	}
	return "", fmt.Errorf("%d agents have the host name %s: name one by its id, such as %s", len(enrolled), name, candidates(enrolled))
}

func (a *client) noSuchAgent(ctx context.Context, name string) error {
	const list = "`muster agents list` lists all agents"
	all, err := a.findAgents(ctx, "")
	if err != nil {
		return err
	}
	near := slices.DeleteFunc(all, func(g adminapi.Agent) bool { return sharedPrefix(hostname(g), name) < minSharedPrefix })
	if len(near) == 0 {
		return fmt.Errorf("there is no agent with the id or host name %s: %s", name, list)
	}
	slices.SortStableFunc(near, func(x, y adminapi.Agent) int {
		return cmp.Compare(sharedPrefix(hostname(y), name), sharedPrefix(hostname(x), name))
	})
	return fmt.Errorf("there is no agent with the id or host name %s: did you mean %s? %s", name, candidates(near), list)
}

// sharedPrefix returns how many leading bytes x and y have in common.
func sharedPrefix(x, y string) int {
	n := min(len(x), len(y))
	for i := range n {
		if x[i] != y[i] {
			return i
		}
	}
	return n
}

func candidates(agents []adminapi.Agent) string {
	return strings.Join(each(agents[:min(len(agents), candidatesShown)], func(g adminapi.Agent) string {
		return fmt.Sprintf("%s (%s, %s)", g.Id, hostname(g), g.Status)
	}), ", ")
}

// resolveAgents replaces the host names of agents in a plan, by flags or in its file, with agent ids.
func (a *client) resolveAgents(cmd *cobra.Command, file *planFile) error {
	for _, list := range []struct {
		flag, field string
		agents      *[]string
	}{
		{"agents", "plan.select.agents", &file.plan.Select.Agents},
		{"exclude-agents", "plan.select.exclude_agents", &file.plan.Select.ExcludeAgents},
	} {
		ids, err := a.agentIDs(cmd.Context(), *list.agents)
		switch {
		case err != nil && cmd.Flags().Changed(list.flag):
			return fmt.Errorf("--%s: %w", list.flag, err)
		case err != nil:
			return fmt.Errorf("%s: %w", list.field, err)
		case len(ids) > 0:
			*list.agents = ids
		}
	}
	return nil
}

func quoteKQL(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
