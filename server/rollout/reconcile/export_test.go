package reconcile

import "github.com/muster-fleet/muster/server/fleet"

// Listen is what Run does when it begins to follow the events, and Heard when some arrive.
func (r *Reconciler) Listen() { r.reported.begin() }

func (r *Reconciler) Heard(events []fleet.Event) { r.onEvents(events) }
