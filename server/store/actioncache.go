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

// Get returns a copy of the action that was put.
func (c *ActionCache[K]) Get(k K) (fleet.Action, bool) {
	if a := c.get(k); a != nil {
		return a.Clone(), true
	}
	return fleet.Action{}, false
}

// For returns the action that was put as it is for one agent.
func (c *ActionCache[K]) For(k K, agentID string) (fleet.Action, bool) {
	a := c.get(k)
	if a == nil {
		return fleet.Action{}, false
	}
	place := -1
	if i, ok := slices.BinarySearchFunc(a.places, agentID, func(at int32, id string) int { return cmp.Compare(a.Agents[at], id) }); ok {
		place = int(a.places[i])
	}
	return a.Action.For(place), true
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
	cached := &cachedAction{Action: a, places: make([]int32, len(a.Agents))}
	for i := range cached.places {
		cached.places[i] = int32(i) //nolint:gosec // an action is for 100,000 agents
	}
	slices.SortStableFunc(cached.places, func(x, y int32) int { return cmp.Compare(a.Agents[x], a.Agents[y]) })
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
