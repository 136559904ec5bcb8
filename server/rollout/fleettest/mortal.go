package fleettest

import (
	"context"
	"errors"
	"sync"

	"github.com/muster-fleet/muster/server/store"
)

// ErrDead is the error of every call of a killed process.
var ErrDead = errors.New("killed")

// Mortal is a store whose process dies at its nth write, of whatever kind: before it, or after
// it and before it gets the result. Then every call fails.
type Mortal struct {
	store.Store
	at     int
	after  bool
	leases bool

	mu     sync.Mutex
	writes int
	dead   bool
	last   store.Call
}

// NewMortal returns a store that dies at the given write; 0: never. after makes that write all the
// same. Writes of leases are not counted: a lease that was not renewed needs no repair.
func NewMortal(s store.Store, at int, after bool) *Mortal {
	m := &Mortal{at: at, after: after}
	m.Store = store.Intercept(s, m.call)
	return m
}

// CountLeases makes the writes of leases count, too.
func (m *Mortal) CountLeases() *Mortal {
	m.leases = true
	return m
}

func (m *Mortal) call(_ context.Context, c store.Call, do func() error) error {
	counts := c.Writes() && (m.leases || c.Kind != store.KindLeases.Info)
	m.mu.Lock()
	dead, dies := m.dead, false
	if counts && !dead {
		m.writes++
		dies = m.writes == m.at
	}
	if dies {
		m.dead, m.last = true, c
	}
	m.mu.Unlock()
	if dead || dies && !m.after {
		return ErrDead
	}
	err := do()
	if dies {
		return ErrDead
	}
	return err
}

// Kill makes every later call fail.
func (m *Mortal) Kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
}

// Dead reports whether the process has died.
func (m *Mortal) Dead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

// Writes returns how many writes there were until then.
func (m *Mortal) Writes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes
}

// Last is the write at which the process died.
func (m *Mortal) Last() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last.Kind == nil {
		return ""
	}
	return m.last.Kind.Name + " " + m.last.Method
}
