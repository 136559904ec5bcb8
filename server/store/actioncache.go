package store

import (
	"cmp"
	"slices"
	"sync"

	"github.com/muster-fleet/muster/server/fleet"
)

// maxActionCache bounds the encoded size of the actions kept in memory. An
// action for 10,000 agents has 300 KB, and all of them ask for it within a
// second of its creation: decoding it for each would take a minute.
const maxActionCache = 32 << 20

// ActionCache keeps decoded actions for a store, by what it finds them by. Actions
// do not change, but for their cancellation, which a store reads anew each time.
type ActionCache[K comparable] struct {
	mu   sync.Mutex
	kept map[K]*cachedAction
	size int
}

type cachedAction struct {
	fleet.Action
	// places are those of the agents, in the order of their ids.
	places []int32
}

func newCachedAction(a fleet.Action) *cachedAction {
	return &cachedAction{a, fleet.PlacesByID(a.Agents)}
}

func (a *cachedAction) forEach(agentIDs []string) []fleet.Action {
	out := make([]fleet.Action, len(agentIDs))
	for n, id := range agentIDs {
		place := -1
		if i, ok := slices.BinarySearchFunc(a.places, id, func(at int32, id string) int { return cmp.Compare(a.Agents[at], id) }); ok {
			place = int(a.places[i])
		}
		out[n] = a.Action.For(place)
	}
	return out
}

// Get returns a copy of the action that was put.
func (c *ActionCache[K]) Get(k K) (fleet.Action, bool) {
	if a := c.get(k); a != nil {
		return a.Clone(), true
	}
	return fleet.Action{}, false
}

// For returns the action that was put as it is for each of the agents.
func (c *ActionCache[K]) For(k K, agentIDs []string) ([]fleet.Action, bool) {
	if a := c.get(k); a != nil {
		return a.forEach(agentIDs), true
	}
	return nil, false
}

// ActionFor is an action as it is for each of the agents.
func ActionFor(a fleet.Action, agentIDs []string) []fleet.Action {
	return newCachedAction(a).forEach(agentIDs)
}

func (c *ActionCache[K]) get(k K) *cachedAction {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept[k]
}

// Put keeps an action of an encoded size, which nobody may change any more.
func (c *ActionCache[K]) Put(k K, a fleet.Action, size int) {
	if size > maxActionCache {
		return
	}
	cached := newCachedAction(a)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept[k] != nil {
		return
	}
	if c.kept == nil || c.size+size > maxActionCache {
		// Starting over is simple and rare: what is asked for comes back.
		c.kept, c.size = map[K]*cachedAction{}, 0
	}
	c.kept[k] = cached
	c.size += size
}
