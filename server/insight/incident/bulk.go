package incident

import (
	"context"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
)

// maxResolved bounds the ids of one call: a person names tens, and a filter selects more.
const maxResolved = 1000

// Selection selects incidents: those of the ids, or those that are not resolved and match all other
// fields.
type Selection struct {
	IDs       []string           `json:"ids,omitempty"`
	Category  fleet.IncidentKind `json:"category,omitempty"`
	RolloutID string             `json:"rollout_id,omitempty"`
	AgentID   string             `json:"agent_id,omitempty"`
	All       bool               `json:"all,omitempty"`
}

func (s *Selection) check() error {
	filter := s.Category != "" || s.RolloutID != "" || s.AgentID != ""
	switch {
	case len(s.IDs) > maxResolved:
		return fleet.FieldError("body.ids", "has %d ids, at most %d are accepted: use a filter", len(s.IDs), maxResolved)
	case len(s.IDs) > 0 && (filter || s.All):
		return fleet.FieldError("body.ids", "contradicts a filter: send one of them")
	case s.All && filter:
		return fleet.FieldError("body.all", "contradicts a filter: send one of them")
	case len(s.IDs) == 0 && !filter && !s.All:
		// An empty list must not mean all.
		return fleet.FieldError("body.ids", "is missing: name incidents, a category, a rollout or an agent, or all")
	case s.Category != "" && !slices.Contains(fleet.IncidentKinds, s.Category):
		return fleet.FieldError("body.category", "is %q, want one of %v", s.Category, fleet.IncidentKinds)
	}
	return nil
}

func (s *Selection) matches(i *fleet.Incident) bool {
	return i.State != fleet.IncidentResolved && (s.Category == "" || s.Category == i.Category) &&
		(s.RolloutID == "" || s.RolloutID == i.RolloutID) && (s.AgentID == "" || s.AgentID == i.AgentID)
}

// Values of Outcome.Result.
const (
	ResolveDone     = "resolved"
	ResolveWasDone  = "was_resolved"
	ResolveNotFound = "not_found"
	ResolveFailed   = "failed"
)

// Outcome is what ResolveMany did with one incident.
type Outcome struct {
	ID     string `json:"id"`
	Title  string `json:"title,omitempty"`
	Result string `json:"result"`
	Text   string `json:"text,omitempty"` // why it was not resolved
}

// ResolveMany resolves the selected incidents one by one, and returns what became of each. What cannot
// be resolved does not hold up the others; the same call again resolves what is left.
func (s *Service) ResolveMany(ctx context.Context, sel Selection, actor, why string) ([]Outcome, error) {
	if err := sel.check(); err != nil {
		return nil, err
	}
	ids := sel.IDs
	if len(ids) == 0 {
		all, _, err := s.List(ctx, "", 0, 0)
		if err != nil {
			return nil, err
		}
		for n := range all {
			if sel.matches(&all[n]) {
				ids = append(ids, all[n].ID)
			}
		}
	}
	out := make([]Outcome, len(ids))
	for n, id := range ids {
		out[n] = s.resolveOne(ctx, id, actor, why)
	}
	return out, nil
}

func (s *Service) resolveOne(ctx context.Context, id, actor, why string) Outcome {
	o := Outcome{ID: id, Result: ResolveDone}
	before, err := s.Store.Get(ctx, id)
	o.Title = before.Title
	if err == nil && before.State == fleet.IncidentResolved {
		o.Result, o.Text = ResolveWasDone, "It was resolved"+by(before.Resolved)+"."
		return o
	}
	if err == nil {
		_, err = s.Resolve(ctx, id, actor, why)
	}
	switch {
	case err == nil:
	case fleet.KindOf(err) == fleet.NotFound:
		o.Result, o.Text = ResolveNotFound, "There is no such incident."
	default:
		o.Result, o.Text = ResolveFailed, fleet.Sentence(err.Error())
	}
	return o
}
