package action

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Offer is a rollout's UPGRADE of some agents.
type Offer struct {
	// ID is chosen by the caller: to offer twice is to offer once.
	ID string
	fleet.UpgradeWish
	// Rollback asks hosts for the version they have kept.
	Rollback   bool
	AgentIDs   []string
	Expiration time.Time
	Actor      string
}

// Offer makes an UPGRADE for those of the agents that can take it, and says why
// the others cannot. If the action is there already, it says the same again.
func (s *Service) Offer(ctx context.Context, o Offer) (refused map[string]error, err error) {
	panic("unwritten")
}

// Withdrawal takes an offer back from agents that have not begun.
type Withdrawal struct {
	ID       string // of the CANCEL
	ActionID string
	AgentIDs []string
	Why      string
	Actor    string
}

// Withdraw makes sure that those who have not been handed the action never are,
// and asks the others to leave it. To withdraw twice is to withdraw once.
func (s *Service) Withdraw(ctx context.Context, w Withdrawal) error { panic("unwritten") }
