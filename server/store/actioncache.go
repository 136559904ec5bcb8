package store

import (
	"cmp"
	"slices"
	"sync"

	"github.com/muster-fleet/muster/server/fleet"
)

// maxActionCache bounds the encoded size of the cached actions. An action for 10,000
// agents has 300 KB, and all of them request it within a second of its creation: decoding
// it for each of them would take a minute.
const maxActionCache = 32 << 20

// ActionCache is a store's cache of decoded actions. An action is immutable except for
// its cancellation, which the store reads each time.
type ActionCache[K comparable] struct {
	mu      sync.Mutex
	entries map[K]*cachedAction
	size    int // the sum of the encoded sizes of entries
}

type cachedAction struct {
	fleet.Action
	byID []int32 // indices into Agents, ordered by id
}

func newCachedAction(a fleet.Action) *cachedAction {
	return &cachedAction{a, fleet.IndexesByID(a.Agents)}
}

func (a *cachedAction) forEach(agentIDs []string) []fleet.Action {
	out := make([]fleet.Action, len(agentIDs))
	for n, id := range agentIDs {
		index := -1
		if i, ok := slices.BinarySearchFunc(a.byID, id, func(at int32, id string) int { return cmp.Compare(a.Agents[at], id) }); ok {
			index = int(a.byID[i])
		}
		out[n] = a.Action.For(index)
	}
	return out
}

// Get returns a copy of a cached action.
func (c *ActionCache[K]) Get(k K) (fleet.Action, bool) {
	if a := c.get(k); a != nil {
		return a.Clone(), true
	}
	return fleet.Action{}, false
}

// For returns a cached action as fleet.Action.For reduces it for each of the agents, at
// the agent's index.
func (c *ActionCache[K]) For(k K, agentIDs []string) ([]fleet.Action, bool) {
	if a := c.get(k); a != nil {
		return a.forEach(agentIDs), true
	}
	return nil, false
}

// ActionFor is ActionCache.For of an action that is not cached.
func ActionFor(a fleet.Action, agentIDs []string) []fleet.Action {
	return newCachedAction(a).forEach(agentIDs)
}

// Drop removes an action, whose entry then counts as much as before until the cache is
// emptied.
func (c *ActionCache[K]) Drop(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, k)
}

func (c *ActionCache[K]) get(k K) *cachedAction {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[k]
}

// Put adds an action of the given encoded size. The caller must not modify it afterwards.
func (c *ActionCache[K]) Put(k K, a fleet.Action, size int) {
	if size > maxActionCache {
		return
	}
	cached := newCachedAction(a)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[k] != nil {
		return
	}
	if c.entries == nil || c.size+size > maxActionCache {
		// Emptying the cache is simple and rare: actions in use are soon cached again.
		c.entries, c.size = map[K]*cachedAction{}, 0
	}
	c.entries[k] = cached
	c.size += size
}
