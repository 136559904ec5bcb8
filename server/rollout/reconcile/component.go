package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// An action has the same data for all of its agents. So the targets of a component are divided
// by what they get: the artifact of their platform, and their configuration files. A host
// with files of its own gets an action of its own. Targets have only the digest of the files,
// which the preview has shown; the files are rendered again for the offer.

// artifacts returns which artifact of the plan each target gets; -1: none fits its host.
func (r *Reconciler) artifacts(ctx context.Context, run *runState, which []int32) (map[int32]int, error) {
	p := &run.rollout.Plan
	of := map[int32]int{}
	if p.Component == "" {
		return of, nil
	}
	for part := range slices.Chunk(which, chunk) {
		agents, err := r.agents(ctx, run, part)
		if err != nil {
			return nil, err
		}
		for _, i := range part {
			of[i] = -1
			if a := agents[run.targets[i].AgentID]; a != nil {
				of[i], _ = plan.ArtifactFor(p, plan.PlatformOf(&plan.Candidate{Agent: a}))
			}
		}
	}
	return of, nil
}

// componentData returns what an offer brings to a component of the targets, which all get the
// same; nil in a rollout of agents. An error of package plan refuses the offer.
func (r *Reconciler) componentData(ctx context.Context, run *runState, which []int32) (*agentapi.ComponentData, error) {
	p := &run.rollout.Plan
	if p.Component == "" {
		return nil, nil
	}
	t := run.tracked[which[0]].target
	none := plan.ComponentData(p, -1)
	for part := range slices.Chunk(which, renderTries) {
		agents, err := r.agents(ctx, run, part)
		if err != nil {
			return nil, err
		}
		for _, i := range part {
			a := agents[run.targets[i].AgentID]
			if a == nil {
				continue // its offer is refused
			}
			if t.Rollback || len(p.Artifacts) == 0 {
				return none, nil
			}
			at := plan.PlatformOf(&plan.Candidate{Agent: a})
			artifact, ok := plan.ArtifactFor(p, at)
			if !ok {
				return nil, fmt.Errorf("%w for %s", plan.ErrNoArtifact, at)
			}
			data := plan.ComponentData(p, artifact)
			if t.Config == "" {
				return data, nil
			}
			if data.Files, err = r.render(ctx, p, a); err == nil && r.renderer.Digest(data.Files) == t.Config {
				return data, nil
			}
		}
	}
	if t.Config != "" {
		return nil, plan.ErrConfigChanged
	}
	return none, nil
}

// renderTries is how many agents are read at once to find one whose files are still those
// that were previewed: nearly always the first is.
const renderTries = 10

func (r *Reconciler) render(ctx context.Context, p *fleet.Plan, a *fleet.Agent) ([]agentapi.RenderedFile, error) {
	if r.renderer == nil {
		return nil, errors.New("this server renders no configuration")
	}
	policy, err := r.store.Policies().Get(ctx, a.PolicyID)
	if err != nil {
		return nil, err
	}
	return r.renderer.RenderFor(ctx, *p, policy, a)
}

// configsOf identifies the configuration that each agent gets with the plan's component. An
// agent whose policy does not list the component, or whose files cannot be rendered, is
// missing. policies are those that list it.
func (r *Reconciler) configsOf(ctx context.Context, p *fleet.Plan, policies map[string]fleet.Policy, agents []fleet.Agent) map[string]string {
	configs := map[string]string{}
	for i := range agents {
		a := &agents[i]
		policy, listed := policies[a.PolicyID]
		switch {
		case !listed:
		case r.renderer == nil:
			configs[a.ID] = ""
		default:
			files, err := r.renderer.RenderFor(ctx, *p, policy, a)
			if err != nil {
				r.log.Debug("an agent does not join a rollout", "agent", a.ID, "error", err)
				continue
			}
			configs[a.ID] = ""
			if len(files) > 0 {
				configs[a.ID] = r.renderer.Digest(files)
			}
		}
	}
	return configs
}

// abandonedComponents is where the search for abandoned upgrades of components continues.
type abandonedComponents struct {
	after   *store.AgentPosition
	checked time.Time
}

// giveUpComponents is giveUpAbandoned for components.
func (r *Reconciler) giveUpComponents(ctx context.Context, active map[string]bool, now time.Time) error {
	c := &r.abandonedComponents
	if now.Sub(c.checked) < abandonedInterval {
		return nil
	}
	by := store.AgentSort(fleet.FieldComponentsSince.Name)
	agents, _, err := r.store.Agents().List(ctx, store.AgentQuery{
		AgentFilter: store.AgentFilter{Query: kql.Exists{Field: fleet.FieldComponentsSince}}, Sort: by, Limit: chunk, After: c.after,
	})
	if err != nil {
		return err
	}
	c.after = nil
	if len(agents) == chunk { // the next round continues from here
		c.after = new(by.Position(&agents[len(agents)-1]))
	} else {
		c.checked = now
	}
	ended := map[string]time.Time{}
	for i := range agents {
		for _, id := range agents[i].ComponentActions {
			if err := r.giveUp(ctx, &agents[i], id, active, ended, now); err != nil {
				return err
			}
		}
	}
	return nil
}
