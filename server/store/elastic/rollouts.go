package elastic

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// rollouts implements store.Rollouts.
type rollouts struct {
	store.Collection[fleet.Rollout]
	s *Store
}

// rolloutDocuments are the documents of rollouts. Delete also deletes the targets.
type rolloutDocuments struct{ documents }

// activePage is how many active rollouts one request reads.
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

// Delete deletes the targets first: if it is interrupted, the rollout still exists and can be
// deleted again.
func (r rolloutDocuments) Delete(ctx context.Context, id string) error {
	if err := (targets{r.s}).deleteAll(ctx, id); err != nil {
		return err
	}
	return r.documents.Delete(ctx, id)
}
