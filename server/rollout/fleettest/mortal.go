package fleettest

import (
	"context"
	"errors"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// ErrDead is the error of every write of a killed process.
var ErrDead = errors.New("killed")

// Mortal is a store whose process dies at its nth write: before it, or after it and before
// it gets the result.
type Mortal struct {
	store.Store
	// At is the number of the write at which it dies; 0: never. After makes that write all the same.
	At    int
	After bool
	// Writes counts the writes until then.
	Writes int
	Dead   bool
}

func (m *Mortal) write(do func() error) error {
	if m.Dead {
		return ErrDead
	}
	if m.Writes++; m.Writes != m.At {
		return do()
	}
	m.Dead = true
	if m.After {
		_ = do()
	}
	return ErrDead
}

type counted[T any] struct {
	store.Collection[T]
	m *Mortal
}

func (c counted[T]) Create(ctx context.Context, v T) error {
	return c.m.write(func() error { return c.Collection.Create(ctx, v) })
}

func (c counted[T]) Update(ctx context.Context, v T) (rev int64, err error) {
	err = c.m.write(func() (err error) { rev, err = c.Collection.Update(ctx, v); return err })
	return rev, err
}

func (c counted[T]) Delete(ctx context.Context, id string) error {
	return c.m.write(func() error { return c.Collection.Delete(ctx, id) })
}

type countedRollouts struct {
	counted[fleet.Rollout]
	rollouts store.Rollouts
}

func (c countedRollouts) Active(ctx context.Context) ([]store.RolloutHead, error) {
	return c.rollouts.Active(ctx)
}

type countedTargets struct {
	store.Targets
	m *Mortal
}

func (c countedTargets) Create(ctx context.Context, list []fleet.Target) error {
	return c.m.write(func() error { return c.Targets.Create(ctx, list) })
}

type countedAudit struct {
	store.Audit
	m *Mortal
}

func (c countedAudit) Append(ctx context.Context, list []fleet.AuditEntry) error {
	return c.m.write(func() error { return c.Audit.Append(ctx, list) })
}

func (m *Mortal) Rollouts() store.Rollouts {
	return countedRollouts{counted[fleet.Rollout]{m.Store.Rollouts(), m}, m.Store.Rollouts()}
}
func (m *Mortal) Targets() store.Targets { return countedTargets{m.Store.Targets(), m} }
func (m *Mortal) Audit() store.Audit     { return countedAudit{m.Store.Audit(), m} }
func (m *Mortal) Previews() store.Collection[fleet.Preview] {
	return counted[fleet.Preview]{m.Store.Previews(), m}
}

func (m *Mortal) AcceptedOrders() store.Collection[fleet.AcceptedOrder] {
	return counted[fleet.AcceptedOrder]{m.Store.AcceptedOrders(), m}
}

func (m *Mortal) PolicyLocks() store.Collection[fleet.PolicyLock] {
	return counted[fleet.PolicyLock]{m.Store.PolicyLocks(), m}
}

func (m *Mortal) RolloutGroups() store.Collection[fleet.RolloutGroup] {
	return counted[fleet.RolloutGroup]{m.Store.RolloutGroups(), m}
}

func (m *Mortal) DeclaredFleets() store.Collection[fleet.DeclaredFleet] {
	return counted[fleet.DeclaredFleet]{m.Store.DeclaredFleets(), m}
}
