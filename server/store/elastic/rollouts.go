package elastic

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// rollouts is a collection that knows which of its documents are active, and whose
// targets go with it.
type rollouts struct {
	collection[fleet.Rollout]
}

func newRollouts(s *Store) rollouts {
	return rollouts{collection[fleet.Rollout]{
		s: s, index: indexRollouts, noun: "rollout", page: largePage,
		head: func(v *fleet.Rollout) (string, *int64) { return v.ID, &v.Revision },
		fields: func(v *fleet.Rollout) map[string]any {
			return map[string]any{
				"id": v.ID, "state": text(string(v.State)), "active": v.State.Active(), "name": text(v.Plan.Name), "version": text(v.Plan.Version),
				"created_at": when(v.CreatedAt), "created_by": text(v.CreatedBy), "started_at": v.StartedAt, "ended_at": v.EndedAt,
			}
		},
	}}
}

// activePage bounds what one request reads of active rollouts; more are walked.
const activePage = 1_000

func (r rollouts) Active(ctx context.Context) ([]store.RolloutHead, error) {
	hits, _, err := r.s.c.page(ctx, "list active rollouts", indexRollouts, body{
		"query": body{"bool": body{"filter": []any{body{"term": body{"active": true}}}}},
		"sort":  []any{body{"born": "asc"}}, "_source": false, "seq_no_primary_term": true,
	}, 0, activePage, activePage)
	if err != nil {
		return nil, err
	}
	out := make([]store.RolloutHead, 0, len(hits))
	for _, h := range hits {
		out = append(out, store.RolloutHead{ID: h.ID, Revision: h.guard().revision()})
	}
	return out, nil
}

// Delete removes the targets first: whoever dies half-way finds the rollout still
// there, and deletes it again.
func (r rollouts) Delete(ctx context.Context, id string) error {
	if err := (targets{r.s}).deleteAll(ctx, id); err != nil {
		return err
	}
	return r.collection.Delete(ctx, id)
}
