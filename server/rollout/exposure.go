package rollout

import (
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Tally counts a census against the exposure rule. Begin with NewTally, Add every
// agent, then ask for the Room of a version.
type Tally struct{}

// NewTally makes an empty count.
func NewTally(rule fleet.ExposureRule, now time.Time) *Tally { panic("unwritten") }

// Add counts one agent.
func (t *Tally) Add(c fleet.Census) { panic("unwritten") }

// Budget is how far a version may spread. offered are the agents that were
// offered it and do not run it yet, by id.
func (t *Tally) Budget(version string, offered map[string]bool) *Room { panic("unwritten") }

// Sites numbers an agent's values of the rule's labels, as Room.Sites does.
func (t *Tally) Sites(labels string) [fleet.MaxLabelLimits]int32 { panic("unwritten") }
