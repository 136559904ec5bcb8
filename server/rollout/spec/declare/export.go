package declare

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/spec"
)

// exported is what an export says of where an object comes from, in an annotation.
const exported = spec.Group + "/exported-from"

// Export returns what policies require of all of their agents, and what active rollouts of
// operators bring, as objects. Only what an object can say is exported: not a required version for
// some percent of the agents, no rollback. What an object selects by the policy, or because it
// selects all agents, is left out.
func (s *Service) Export(ctx context.Context) ([]spec.Fleet, error) {
	existing, err := s.All(ctx)
	if err != nil {
		return nil, err
	}
	policies, _, err := s.Store.Policies().List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	e := export{existing: existing, names: map[string]bool{}, list: []spec.Fleet{}}
	for _, f := range existing {
		e.names[f.Metadata.Name] = true
	}
	slices.SortFunc(policies, func(a, b fleet.Policy) int { return strings.Compare(a.ID, b.ID) })
	for i := range policies {
		e.policy(&policies[i])
	}
	active, err := s.Store.Rollouts().Active(ctx)
	if err != nil {
		return nil, err
	}
	for _, head := range active {
		r, err := s.Store.Rollouts().Get(ctx, head.ID)
		if err != nil && fleet.KindOf(err) == fleet.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		if r.Fleet == "" && r.RollbackOf == "" && !r.Automatic && r.State != fleet.RolloutCancelling {
			e.rollout(&r)
		}
	}
	return e.list, nil
}

type export struct {
	existing []spec.Fleet
	names    map[string]bool
	list     []spec.Fleet
}

// add adds an object under a name like the given one.
func (e *export) add(name, from string, s spec.Spec) {
	base := nameFrom(name)
	name = base
	for n := 2; e.names[name]; n++ {
		name = fmt.Sprintf("%s-%d", base[:min(len(base), 58)], n)
	}
	e.names[name] = true
	e.list = append(e.list, spec.Fleet{
		APIVersion: spec.APIVersion, Kind: spec.Kind,
		Metadata: spec.Metadata{Name: name, Annotations: map[string]string{exported: from}}, Spec: s,
	})
}

// nameFrom makes a DNS label of any text.
func nameFrom(text string) string {
	dashed := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(text))
	words := strings.FieldsFunc(dashed, func(r rune) bool { return r == '-' })
	name := strings.Join(words, "-")
	return cmp.Or(strings.Trim(name[:min(len(name), 58)], "-"), "fleet")
}

// declared reports whether an object has a part of the policy's agents already.
func (e *export) declared(policy, component string) bool {
	return slices.ContainsFunc(e.existing, func(f spec.Fleet) bool {
		return f.Spec.Has(component) && (f.Spec.Selector.All || slices.Contains(f.Spec.Selector.Policies, policy))
	})
}

func (e *export) policy(p *fleet.Policy) {
	own := spec.Spec{Selector: fleet.Selector{Policies: []string{p.ID}}}
	for _, v := range p.RequiredVersions {
		if v.Percentage == 100 && !p.Managed && !e.declared(p.ID, "") {
			own.Agent = &spec.Desired{Version: v.Version}
		}
	}
	var together []spec.Component
	for _, c := range p.Components {
		version := fleet.WantedVersion(c)
		if version == "" || e.declared(p.ID, c.Name) {
			continue
		}
		component := spec.Component{Name: c.Name, Desired: spec.Desired{Version: version}}
		if c.Lockstep {
			together = append(together, component)
		} else {
			own.Components = append(own.Components, component)
		}
	}
	from := "policy " + p.ID
	if own.Agent != nil || len(own.Components) > 0 {
		e.add(p.ID, from, own)
	}
	if len(together) > 0 { // another strategy, so an object of its own
		e.add(p.ID+"-lockstep", from, spec.Spec{Selector: own.Selector, Components: together, Strategy: fleet.Strategy{Kind: fleet.LockstepStrategy}})
	}
}

func (e *export) rollout(r *fleet.Rollout) {
	p := &r.Plan
	d := spec.Desired{Version: p.Version}
	if p.UpgradeID != "" {
		d = spec.Desired{UpgradeManifest: &spec.UpgradeManifest{Profile: p.Profile, ID: p.UpgradeID}}
	}
	s := spec.Spec{Selector: p.Select, Strategy: p.Strategy, Limits: p.Limits, Failure: p.Failure, Health: p.Health, Pace: p.Pace}
	if p.Component == "" {
		s.Agent = &d
	} else {
		s.Components = []spec.Component{{Name: p.Component, Desired: d}}
		if len(p.Variables) > 0 {
			s.Configuration.Variables = map[string]map[string]string{p.Component: p.Variables}
		}
	}
	e.add(p.Name, "rollout "+r.ID, s)
}

// Items returns objects as they are encoded for clients.
func Items(list []spec.Fleet) ([]json.RawMessage, error) {
	items := make([]json.RawMessage, len(list))
	for i, f := range list {
		doc, err := json.Marshal(f)
		if err != nil {
			return nil, err
		}
		items[i] = doc
	}
	return items, nil
}
