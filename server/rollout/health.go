package rollout

import (
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Assess says what has become of a target in flight, or of one withdrawn, from
// the document of its agent (nil: there is none any more).
func Assess(t fleet.Target, a *fleet.Agent, p *fleet.Plan, now time.Time) (_ fleet.Target, changed bool) {
	panic("unwritten")
}
