// Package sequence decides what is next in an ordered list of plans, of which each is carried out by a
// rollout before the next one begins. Package group and the reconciler of declared fleets have such
// lists. They record how far each plan is, say what happens after a failure, and execute the steps
// through the service of rollouts. Nothing here reads a clock or does I/O.
package sequence

import (
	"cmp"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// Act is what an owner does next with a rollout. Each can be repeated without a further effect.
type Act string

// Values of Act. Owners have others for what only they do.
const (
	Wait    Act = ""
	Begin   Act = "begin" // create, preview and start it, or complete a start
	Pause   Act = "pause"
	Resume  Act = "resume"
	Cancel  Act = "cancel"
	Discard Act = "discard" // delete the draft
)

// Mark is what an owner has recorded of an item.
type Mark int

// Values of Mark.
const (
	Open    Mark = iota // it has not begun
	Running             // its rollout has been started
	Done                // its rollout has ended well enough for the next item
	Failed              // it has not, or was not carried out
	LeftOut             // the owner does not want it any more
)

// Item is one plan of a list.
type Item struct {
	Mark    Mark
	Rollout *fleet.Rollout // nil: there is none
	// Done since EndedAt, after which the next item waits for Soak.
	EndedAt time.Time
	Soak    time.Duration
}

// Status is where a list is.
type Status int

// Values of Status.
const (
	Over    Status = iota // no item is left
	Begins                // an item is to begin
	Follows               // an item is under way
	Soaks                 // an item is done, and the next one waits until it has shown its health
	Ends                  // an item that is left out is ended
	Fails                 // an item has failed; the owner decides about the others
)

// Step is what is next in a list.
type Step struct {
	Status Status
	Item   int
	// Act is how the item is ended, in Ends.
	Act Act
	// Until is when Soaks ends.
	Until time.Time
}

// Decide returns what is next in a list: its first item that is neither done nor left out, unless one
// before it is still to be waited for.
func Decide(items []Item, now time.Time) Step {
	for i := range items {
		switch it := &items[i]; it.Mark {
		case Done:
			if until := it.EndedAt.Add(it.Soak); i < len(items)-1 && until.After(now) {
				return Step{Status: Soaks, Item: i, Until: until}
			}
		case LeftOut:
			if act, over := End(it.Rollout); !over {
				return Step{Status: Ends, Item: i, Act: act}
			}
		case Failed:
			return Step{Status: Fails, Item: i}
		case Running:
			return Step{Status: Follows, Item: i}
		default:
			return Step{Status: Begins, Item: i}
		}
	}
	return Step{Status: Over, Item: len(items)}
}

// End returns how a rollout is ended that its owner does not want any more. over reports that there is
// nothing to end.
func End(r *fleet.Rollout) (act Act, over bool) {
	switch {
	case r == nil || r.State.Ended():
		return Wait, true
	case r.State == fleet.RolloutDraft && r.Pin == nil:
		return Discard, false
	case r.State == fleet.RolloutDraft:
		return Begin, false // its start was interrupted: only what has started can be cancelled, and its targets may exist
	case r.State == fleet.RolloutCancelling:
		return Wait, false
	}
	return Cancel, false
}

// Passed reports whether a rollout has ended well enough for the next item.
func Passed(r *fleet.Rollout) bool {
	return (r.State == fleet.RolloutCompleted || r.State == fleet.RolloutFailed) && plan.Tolerated(r)
}

// Trouble returns why a paused rollout has failed as an item; empty: it has not. Other pauses, such as
// an operator's or that of the exposure budget, say nothing about the version.
func Trouble(r *fleet.Rollout) string {
	if r.State != fleet.RolloutPaused || r.Stop == nil {
		return ""
	}
	switch r.Stop.Kind {
	case fleet.StopThreshold, fleet.StopCanary, fleet.StopDeadline:
		return cmp.Or(r.Stop.Text, string(r.Stop.Kind))
	}
	return ""
}
