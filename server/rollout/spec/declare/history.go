package declare

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Change is one change of an object.
type Change struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Action string    `json:"action"` // apply, delete, suspend or resume
	Text   string    `json:"text"`
	UID    string    `json:"uid,omitempty"`
	// Generation and Hash are those of the object after the change.
	Generation int64    `json:"generation,omitempty"`
	Hash       string   `json:"hash,omitempty"`
	Changed    []string `json:"changed"`
	Why        string   `json:"why,omitempty"`
	// Rollouts carried out the hash, oldest first.
	Rollouts []RolloutRef `json:"rollouts"`
}

// RolloutRef is a rollout of a hash.
type RolloutRef struct {
	ID    string             `json:"id"`
	State fleet.RolloutState `json:"state"`
}

// rolloutsRead is among how many of the latest rollouts those of an object are found: each has up
// to 300 KB, and retention keeps hardly more.
const rolloutsRead = 500

// History returns a page of the changes of an object, newest first, and their total number. It is
// read from the audit trail, so it outlives the object.
func (s *Service) History(ctx context.Context, name string, offset, limit int) ([]Change, int, error) {
	entries, total, err := s.Store.Audit().List(ctx, store.AuditQuery{Subject: Subject(name), Offset: offset, Limit: limit})
	if err != nil {
		return nil, 0, err
	}
	if total == 0 {
		if _, err := s.Get(ctx, name); err != nil {
			return nil, 0, err
		}
		return []Change{}, 0, nil
	}
	rollouts, err := s.rolloutsOf(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	list := make([]Change, len(entries))
	for i, e := range entries {
		var data entry
		if len(e.Data) > 0 {
			_ = json.Unmarshal(e.Data, &data) // of a newer server, it may have another shape
		}
		list[i] = Change{
			At: e.At, By: e.Actor, Action: strings.TrimPrefix(e.Verb, "fleet."), Text: e.Text, UID: data.UID, Generation: data.Generation, Hash: data.Hash,
			Changed: append([]string{}, data.Changed...), Why: e.Why, Rollouts: []RolloutRef{},
		}
		if e.Verb == verbApply {
			list[i].Rollouts = append(list[i].Rollouts, rollouts[data.Hash]...)
		}
	}
	return list, total, nil
}

// rolloutsOf returns the rollouts of an object by hash, oldest first.
func (s *Service) rolloutsOf(ctx context.Context, name string) (map[string][]RolloutRef, error) {
	latest, _, err := s.Store.Rollouts().List(ctx, 0, rolloutsRead)
	if err != nil {
		return nil, err
	}
	slices.Reverse(latest)
	byHash := map[string][]RolloutRef{}
	for i := range latest {
		if r := &latest[i]; r.Fleet == name {
			byHash[r.SpecHash] = append(byHash[r.SpecHash], RolloutRef{r.ID, r.State})
		}
	}
	return byHash, nil
}
