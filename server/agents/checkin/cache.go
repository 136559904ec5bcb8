package checkin

import (
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Cache holds the credential and the last check-in of agents, so that a check-in that
// repeats the last one needs no call of the store. Package agentcache implements it.
//
// Where the store belongs to this process alone, what a Cache returns is never older than
// the last change of the agent whose write returned before the call. Where other servers
// write the store too, the Cache answers only while the store is away, and may be older
// than another server's write.
//
// A caller that reads an agent from the store to put it into the Cache takes its
// Generation first: if the agent was written since, Remember does nothing, and what
// RememberCheckin adds is used only while the store is away.
type Cache interface {
	Generation(agentID string) Generation
	// Authenticated returns the id of the active agent whose key this is, or false if the
	// store has to be asked.
	Authenticated(key fleet.Credential) (agentID string, ok bool)
	// IsDuplicate reports whether the agent's last check-in had the same fingerprint, and
	// another one would change nothing except when the agent was last seen.
	IsDuplicate(agentID string, f Fingerprint, now time.Time) (LastCheckin, bool)
	// Remember adds the agent, which was read after g was taken.
	Remember(a *fleet.Agent, g Generation)
	// RememberCheckin stores the last check-in of an agent that is in the Cache. While the
	// agent's CheckinState is state, an identical check-in changes nothing; state 0 means
	// that it might. g was taken before the agent was read.
	RememberCheckin(agentID string, last LastCheckin, g Generation, state uint64, now time.Time)
	// Stable returns the hostname of an agent that is known to be stable
	// (fleet.Agent.Stable), and is Muster's: the acknowledgements of others release their
	// polls. false means that it is not known.
	Stable(agentID string) (hostname string, ok bool)
	// Seen records that an agent checked in. After a long silence its next check-in is no
	// duplicate.
	Seen(agentID string, now time.Time)
	// ForgetCheckin is called after a check-in that failed and may all the same have been
	// stored. It removes the agent's last check-in, unless that one was identical.
	ForgetCheckin(agentID string, f Fingerprint)
}

// Generation grows with every write of an agent that changes its CheckinState.
type Generation uint64

// LastCheckin is what a Cache holds of an agent's last check-in.
type LastCheckin struct {
	Fingerprint Fingerprint
	// Policy is the revision of its policy that the agent has.
	Policy fleet.PolicyAt
	// After is the sequence number after which the agent's next actions come.
	After int64
	// PollTimeout is how long the agent is willing to wait; 0 if it did not say.
	PollTimeout time.Duration
}
