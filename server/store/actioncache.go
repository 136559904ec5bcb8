package store

import (
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
	kept map[K]fleet.Action
	size int
}

// Get returns the action that was put; the caller clones what it gives away.
func (c *ActionCache[K]) Get(k K) (fleet.Action, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.kept[k]
	return a, ok
}

// Put keeps an action of an encoded size.
func (c *ActionCache[K]) Put(k K, a fleet.Action, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.kept[k]; ok || size > maxActionCache {
		return
	}
	if c.kept == nil || c.size+size > maxActionCache {
		// Starting over is simple and rare: what is asked for comes back.
		c.kept, c.size = map[K]fleet.Action{}, 0
	}
	c.kept[k] = a
	c.size += size
}
