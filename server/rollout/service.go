package rollout

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-fleet/muster/server/action"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Service is what operators do with rollouts.
type Service struct {
	Store   store.Store
	Actions *action.Service
	Events  *event.Stream
	Log     *slog.Logger
	Now     clock.Clock
	// Signal wakes the reconciler of this replica; nil: it comes by itself.
	Signal func()
	// Manifests finds upgrade manifests; nil: there are none.
	Manifests Manifests
	// Timeouts are the inactivity timeouts by policy.
	Timeouts func(ctx context.Context) (map[string]time.Duration, error)
}

// Manifests finds upgrade manifests.
type Manifests interface {
	Get(ctx context.Context, profile, id string) (UpgradeManifest, error)
	List(ctx context.Context) ([]UpgradeManifest, error)
}

// Word is who commands, and why.
type Word struct{ Actor, Why string }

// Create makes a draft.
func (s *Service) Create(ctx context.Context, p fleet.Plan, w Word) (fleet.Rollout, error) {
	panic("unwritten")
}

// DryRun previews a plan without keeping anything.
func (s *Service) DryRun(ctx context.Context, p fleet.Plan) (fleet.Preview, error) {
	panic("unwritten")
}

// Preview previews a draft and keeps the preview, so that its hash can be
// presented at the start.
func (s *Service) Preview(ctx context.Context, id string) (fleet.Preview, error) { panic("unwritten") }

// Start begins a draft as previewed. A *DriftError says how the fleet has
// changed since; acceptDrift starts all the same, with the fleet as it is now.
func (s *Service) Start(ctx context.Context, id, hash string, acceptDrift bool, w Word) (fleet.Rollout, error) {
	panic("unwritten")
}

// DriftError refuses a start because the fleet has changed since the preview.
type DriftError struct {
	Drift fleet.Drift
	Now   fleet.Preview // what it would be
}

func (e *DriftError) Error() string { panic("unwritten") }

// Delete removes a draft.
func (s *Service) Delete(ctx context.Context, id string, w Word) error { panic("unwritten") }

// Pause pauses after the current batch, or at once: then what has not begun is
// taken back.
func (s *Service) Pause(ctx context.Context, id string, atOnce bool, w Word) (fleet.Rollout, error) {
	panic("unwritten")
}

// Resume goes on. After a gate it needs a reason.
func (s *Service) Resume(ctx context.Context, id string, w Word) (fleet.Rollout, error) {
	panic("unwritten")
}

// Force goes on although a threshold was crossed, and forgives what has failed
// so far. It needs a reason.
func (s *Service) Force(ctx context.Context, id string, w Word) (fleet.Rollout, error) {
	panic("unwritten")
}

// Approve lets a rollout go on behind its canaries.
func (s *Service) Approve(ctx context.Context, id string, w Word) (fleet.Rollout, error) {
	panic("unwritten")
}

// Cancel offers nothing more; what has begun ends by itself.
func (s *Service) Cancel(ctx context.Context, id string, w Word) (fleet.Rollout, error) {
	panic("unwritten")
}

// Retry puts failed, withdrawn and expired targets back in line; no agents: all
// that failed.
func (s *Service) Retry(ctx context.Context, id string, agents []string, w Word) (fleet.Rollout, error) {
	panic("unwritten")
}

// Skip leaves targets out.
func (s *Service) Skip(ctx context.Context, id string, agents []string, w Word) (fleet.Rollout, error) {
	panic("unwritten")
}

// Scope of a rollback.
type Scope string

// The scopes.
const (
	ScopeFailed Scope = "failed" // what failed, wherever it stands
	ScopeAll    Scope = "all"    // and what succeeded
)

// Rollback makes and starts a rollout that puts targets back to their last
// healthy versions, without canaries. Asked again it returns the same one.
func (s *Service) Rollback(ctx context.Context, id string, scope Scope, w Word) (fleet.Rollout, error) {
	panic("unwritten")
}

// Explanation is why an agent runs what it runs and not the version of a rollout.
type Explanation struct {
	AgentID string    `json:"agent_id"`
	At      time.Time `json:"at"`
	// Rollout is nil when no rollout has anything to do with the agent.
	RolloutID   string `json:"rollout_id,omitempty"`
	RolloutName string `json:"rollout_name,omitempty"`
	// Summary is the answer in one sentence; Chain how it comes about, the widest
	// reason first.
	Summary string   `json:"summary"`
	Chain   []Reason `json:"chain"`
	// Next is what will change it, or what to do.
	Next string `json:"next,omitempty"`
}

// Reason is one link of an explanation.
type Reason struct {
	Code  fleet.ReasonCode `json:"code"`
	Text  string           `json:"text"`
	Since *time.Time       `json:"since,omitempty"`
	Until *time.Time       `json:"until,omitempty"`
}

// Why explains an agent. An empty rollout means the one that has it, or had it
// last; a zero at means now.
func (s *Service) Why(ctx context.Context, agentID, rolloutID string, at time.Time) (Explanation, error) {
	panic("unwritten")
}

// Lock names the rollout that has the agents, by agent, for those that one has.
func (s *Service) Lock(ctx context.Context, agents []fleet.Agent) (map[string]Holder, error) {
	panic("unwritten")
}
