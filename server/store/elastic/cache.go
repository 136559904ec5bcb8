package elastic

import "sync"

// maxCached bounds the entries of a boundedMap. A full headCache has some 60 MB.
const maxCached = 1 << 18

// headCache holds the heads of agents as this process last read or wrote them. It saves the
// touch of a parked agent and the write of a check-in one read each. An outdated entry does
// no harm: a write that is based on one fails with a conflict.
type headCache struct{ boundedMap[storedHead] }

// keyCache maps access keys to the ids of their agents.
type keyCache struct{ boundedMap[string] }

// boundedMap is a map of limited size that is safe for concurrent use.
type boundedMap[T any] struct {
	mu sync.Mutex
	m  map[string]T
}

func (c *boundedMap[T]) get(id string) (T, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.m[id]
	return v, ok
}

func (c *boundedMap[T]) put(id string, v T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil || len(c.m) >= maxCached {
		// Emptying the map is simple and rare: entries in use are soon added again.
		c.m = map[string]T{}
	}
	c.m[id] = v
}

func (c *boundedMap[T]) drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.m, id)
}
