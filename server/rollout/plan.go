package rollout

import (
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Decide says what a rollout does next.
func Decide(r *fleet.Rollout, seats []Seat, w World, now time.Time) Step { panic("unwritten") }
