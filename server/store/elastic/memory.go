package elastic

import "sync"

// maxHeld bounds what is remembered of agents: some 60 MB when full.
const maxHeld = 1 << 18

// heldCache remembers the heads of agents as this process last read or wrote them.
// It spares a parked agent's touch and a check-in's write one read each. Nothing is
// decided by it: a write that builds on it is refused if it is no longer so.
type heldCache struct{ memory[heldAgent] }

// keyCache remembers whose access keys are.
type keyCache struct{ memory[string] }

// memory is a bounded map.
type memory[T any] struct {
	mu sync.Mutex
	m  map[string]T
}

func (c *memory[T]) get(id string) (T, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.m[id]
	return v, ok
}

func (c *memory[T]) put(id string, v T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil || len(c.m) >= maxHeld {
		// Starting over is simple and rare: what is asked for comes back.
		c.m = map[string]T{}
	}
	c.m[id] = v
}

func (c *memory[T]) drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.m, id)
}
