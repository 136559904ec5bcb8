package sqlite

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

type (
	rollouts struct{ s *Store }
	targets  struct{ s *Store }
	audit    struct{ s *Store }
)

func (r rollouts) Create(ctx context.Context, v fleet.Rollout) error         { panic("unwritten") }
func (r rollouts) Get(ctx context.Context, id string) (fleet.Rollout, error) { panic("unwritten") }
func (r rollouts) Update(ctx context.Context, v fleet.Rollout) error         { panic("unwritten") }
func (r rollouts) Delete(ctx context.Context, id string) error               { panic("unwritten") }
func (r rollouts) Active(ctx context.Context) ([]store.RolloutHead, error)   { panic("unwritten") }
func (r rollouts) List(ctx context.Context, offset, limit int) ([]fleet.Rollout, int, error) {
	panic("unwritten")
}

func (t targets) Create(ctx context.Context, list []fleet.Target) error { panic("unwritten") }
func (t targets) Get(ctx context.Context, rolloutID, agentID string) (fleet.Target, error) {
	panic("unwritten")
}
func (t targets) GetMany(ctx context.Context, rolloutID string, ids []string) ([]fleet.Target, error) {
	panic("unwritten")
}
func (t targets) UpdateMany(ctx context.Context, list []fleet.Target) ([]int64, []error, error) {
	panic("unwritten")
}
func (t targets) Each(ctx context.Context, rolloutID string, f func(fleet.Target)) error {
	panic("unwritten")
}
func (t targets) List(ctx context.Context, q store.TargetQuery) ([]fleet.Target, int, error) {
	panic("unwritten")
}
func (t targets) ByAgent(ctx context.Context, agentID string, limit int) ([]fleet.Target, error) {
	panic("unwritten")
}

func (a audit) Append(ctx context.Context, list []fleet.AuditEntry) error { panic("unwritten") }
func (a audit) List(ctx context.Context, q store.AuditQuery) ([]fleet.AuditEntry, int, error) {
	panic("unwritten")
}

func (g agents) Each(ctx context.Context, filter store.AgentFilter, f func(fleet.Agent)) error {
	panic("unwritten")
}
func (g agents) Census(ctx context.Context, f func(fleet.Census)) error { panic("unwritten") }
