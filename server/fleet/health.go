package fleet

import (
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Health is whether an agent is well, whatever its upgrade does. Kibana's Status mixes the
// two.
type Health string

const (
	HealthHealthy  Health = "healthy"
	HealthDegraded Health = "degraded"
	// HealthFailed: it reports an error.
	HealthFailed  Health = "failed"
	HealthOffline Health = "offline"
	// HealthEnrolling: it has not checked in, or has no revision of its policy yet.
	HealthEnrolling Health = "enrolling"
	HealthInactive  Health = "inactive"
	// HealthUninstalled: it is gone from its host, and was not unenrolled.
	HealthUninstalled Health = "uninstalled"
	HealthUnenrolled  Health = "unenrolled"
)

// Healths lists all values in display order.
var Healths = [...]Health{HealthHealthy, HealthDegraded, HealthFailed, HealthOffline, HealthEnrolling, HealthInactive, HealthUninstalled, HealthUnenrolled}

// HealthAt returns the health at now; the first rule that matches decides. inactivity is the
// policy's timeout, 0 for none.
func (f StatusFacts) HealthAt(now time.Time, inactivity time.Duration) Health {
	silent := now.Sub(f.seen())
	switch {
	case !f.Active:
		return HealthUnenrolled
	case slices.Contains(GoneFromHost, f.AuditUnenrolledReason):
		return HealthUninstalled
	case inactivity > 0 && silent > inactivity:
		return HealthInactive
	case silent > OfflineAfter: // what it reported before it fell silent is old
		return HealthOffline
	case f.LastCheckinStatus == "error":
		return HealthFailed
	case f.NoPolicy, f.LastCheckin == nil:
		return HealthEnrolling
	case f.LastCheckinStatus == "degraded":
		return HealthDegraded
	}
	return HealthHealthy
}

// UnwritableHosts is the query for the agents whose host cannot write to its disk.
const UnwritableHosts = `last_checkin_status: degraded and last_checkin_message: "` + agentapi.Unwritable + `"`
