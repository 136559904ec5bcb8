package declare

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/store"
)

// rolloutsRead is among how many of the latest rollouts those of an object are found: each has up
// to 300 KB, and retention keeps hardly more.
const rolloutsRead = 500

// History returns a page of the changes of an object, newest first, and their total number. It is
// read from the audit trail, so it outlives the object.
func (s *Service) History(ctx context.Context, name string, offset, limit int) ([]spec.Change, int, error) {
	entries, total, err := s.Store.Audit().List(ctx, store.AuditQuery{Subject: Subject(name), Offset: offset, Limit: limit})
	if err != nil {
		return nil, 0, err
	}
	if total == 0 {
		if _, err := s.Get(ctx, name); err != nil {
			return nil, 0, err
		}
		return []spec.Change{}, 0, nil
	}
	rollouts, err := s.rolloutsOf(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	list := make([]spec.Change, len(entries))
	for i, e := range entries {
		var data entry
		if len(e.Data) > 0 {
			_ = json.Unmarshal(e.Data, &data) // of a newer server, it may have another shape
		}
		list[i] = spec.Change{
			At: e.At, By: e.Actor, Action: spec.ChangeAction(strings.TrimPrefix(e.Verb, "fleet.")), Text: e.Text, UID: data.UID, Generation: data.Generation, Hash: data.Hash,
			Changed: append([]string{}, data.Changed...), Why: e.Why, Rollouts: []spec.RolloutRef{},
		}
		if e.Verb == verbApply {
			list[i].Rollouts = append(list[i].Rollouts, rollouts[data.Hash]...)
		}
	}
	return list, total, nil
}

// rolloutsOf returns the rollouts of an object by hash, oldest first.
func (s *Service) rolloutsOf(ctx context.Context, name string) (map[string][]spec.RolloutRef, error) {
	latest, _, err := s.Store.Rollouts().List(ctx, 0, rolloutsRead)
	if err != nil {
		return nil, err
	}
	slices.Reverse(latest)
	byHash := map[string][]spec.RolloutRef{}
	for i := range latest {
		if r := &latest[i]; r.Fleet == name {
			byHash[r.SpecHash] = append(byHash[r.SpecHash], spec.RolloutRef{ID: r.ID, State: r.State})
		}
	}
	return byHash, nil
}
