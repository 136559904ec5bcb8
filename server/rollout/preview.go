package rollout

import (
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Fleet is the fleet as Survey sees it.
type Fleet struct {
	// Agents are all that could match, unenrolled ones left out.
	Agents  []fleet.Agent
	Catalog fleet.Catalog
	// Locked names the rollout that has an agent's policy, by policy.
	Locked map[string]Holder
	// Timeouts are the inactivity timeouts by policy.
	Timeouts map[string]time.Duration
	Freezes  []fleet.Freeze
	// Room is the exposure budget for the plan's version, nil without a rule.
	Room *Room
	// Took are how long upgrades of this fleet have taken, from offer to version
	// reached; empty: not known.
	Took []time.Duration
}

// Holder is the rollout that has a policy.
type Holder struct{ ID, Name string }

// Survey says what a rollout would do to the fleet. The same rollout and fleet
// give the same preview, whatever now is, but for its times.
func Survey(r *fleet.Rollout, f Fleet, now time.Time) (fleet.Preview, error) { panic("unwritten") }

// Compare says how the fleet now differs from the pinned preview.
func Compare(pinned, now fleet.Preview) fleet.Drift { panic("unwritten") }

// Matches says whether the selector chooses the agent.
func Matches(s *fleet.Selector, a *fleet.Agent) bool { panic("unwritten") }

// CheckRings says which agents below the rings of the plan do not yet run its
// version: nil when the rings may go, or are forced.
func CheckRings(p *fleet.Plan, agents []fleet.Agent) []fleet.SkippedAgent { panic("unwritten") }
