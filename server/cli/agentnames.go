package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/adminapi"
)

const (
	// namesPerQuery keeps the URL of one query below 10 KB.
	namesPerQuery = 100
	// candidatesShown is how many agents an error about a name lists.
	candidatesShown = 3
	// nearEnough is how many leading characters a host name shares with one
	// that was probably mistyped.
	nearEnough = 2
)

// agentIDs gives the ids of agents that are named by id or by host name. A name
// that fits no agent, or several, is an error that lists candidates.
func (a *app) agentIDs(ctx context.Context, names []string) ([]string, error) {
	ids := make([]string, 0, len(names))
	for some := range slices.Chunk(names, namesPerQuery) {
		quoted := strings.Join(each(some, quoteKQL), " or ")
		found, err := a.agentsNamed(ctx, "agent.id: ("+quoted+") or local_metadata.host.hostname.keyword: ("+quoted+")")
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

func (a *app) agentID(ctx context.Context, name string) (string, error) {
	ids, err := a.agentIDs(ctx, []string{name})
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// agentsNamed gives the agents that match a query, also those that have left;
// an empty query gives the first page of all.
func (a *app) agentsNamed(ctx context.Context, kuery string) ([]adminapi.Agent, error) {
	q := url.Values{"kuery": {kuery}, "perPage": {fmt.Sprint(pageSize)}, "showInactive": {"true"}}
	got, err := call[adminapi.AgentList](ctx, a, http.MethodGet, "/api/fleet/agents?"+q.Encode(), nil)
	return got.Items, err
}

// pickAgent finds the agent with this id, or the only one with this host name.
// Agents that have left count only if no other has the name.
func (a *app) pickAgent(ctx context.Context, name string, found []adminapi.Agent) (string, error) {
	var present, gone []adminapi.Agent
	for _, g := range found {
		switch {
		case g.Id == name:
			return name, nil
		case hostname(g) != name:
		case g.Status == adminapi.StatusUnenrolled || g.Status == adminapi.StatusUninstalled:
			gone = append(gone, g)
		default:
			present = append(present, g)
		}
	}
	if len(present) == 0 {
		present = gone
	}
	switch len(present) {
	case 0:
		return "", a.noSuchAgent(ctx, name)
	case 1:
		return present[0].Id, nil
	}
	return "", fmt.Errorf("%d agents have the host name %s: name one by its id, such as %s", len(present), name, candidates(present))
}

func (a *app) noSuchAgent(ctx context.Context, name string) error {
	const list = "`muster agents list` shows those there are"
	all, err := a.agentsNamed(ctx, "")
	if err != nil {
		return err
	}
	near := slices.DeleteFunc(all, func(g adminapi.Agent) bool { return shared(hostname(g), name) < nearEnough })
	if len(near) == 0 {
		return fmt.Errorf("there is no agent with the id or host name %s: %s", name, list)
	}
	slices.SortStableFunc(near, func(x, y adminapi.Agent) int {
		return cmp.Compare(shared(hostname(y), name), shared(hostname(x), name))
	})
	return fmt.Errorf("there is no agent with the id or host name %s: did you mean %s? %s", name, candidates(near), list)
}

// shared is how many leading bytes two names have in common.
func shared(x, y string) int {
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

// nameAgents replaces the names that --agents and --exclude-agents gave to a plan
// by ids.
func (a *app) nameAgents(ctx context.Context, file *planFile, flags planFlags) (err error) {
	if len(flags.agents) > 0 {
		if file.plan.Select.Agents, err = a.agentIDs(ctx, flags.agents); err != nil {
			return fmt.Errorf("--agents: %w", err)
		}
	}
	if len(flags.excludeAgents) > 0 {
		if file.plan.Select.ExcludeAgents, err = a.agentIDs(ctx, flags.excludeAgents); err != nil {
			return fmt.Errorf("--exclude-agents: %w", err)
		}
	}
	return nil
}

func quoteKQL(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
