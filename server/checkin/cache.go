package checkin

import (
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Cache remembers how agents authenticate and what each said last, so that a check-in
// that repeats the last one needs no call of the store. Package agentcache implements it.
//
// Where the store belongs to this process alone, what a Cache returns is never older than
// the last change of the agent whose write returned before the call. Where other servers
// write the store, too, the Cache answers only while the store is away, and may be older
// than another server's write.
//
// Who reads an agent from the store to put it into the Cache takes its Generation
// before: if the agent was written since, Remember does nothing, and RememberCheckin
// remembers for the time the store is away alone.
type Cache interface {
	Generation(agentID string) Generation
	// Authenticated returns the id of the active agent whose key this is. false: the
	// store has to be asked.
	Authenticated(key fleet.Credential) (agentID string, ok bool)
	// IsDuplicate says whether an agent said the same in its last check-in, and doing
	// it again would change nothing but when the agent was seen.
	IsDuplicate(agentID string, f Fingerprint, now time.Time) (LastCheckin, bool)
	// Remember has the agent authenticated from the Cache, as it was read under g.
	Remember(a *fleet.Agent, g Generation)
	// RememberCheckin notes what an agent that is in the Cache said last. While the agent's
	// CheckinState is state, an identical check-in changes nothing; state 0 means that it
	// might. g was taken before the agent was read.
	RememberCheckin(agentID string, last LastCheckin, g Generation, state uint64, now time.Time)
	// Settled says that the agent is settled (fleet.Agent.Settled), and the name of its
	// host. false: it may be, or not.
	Settled(agentID string) (hostname string, ok bool)
	// Seen notes that an agent is there. One that was silent for long is looked at
	// again in the store.
	Seen(agentID string, now time.Time)
	// ForgetCheckin is called after a check-in that failed, and may have been stored. It
	// forgets what the agent said last, unless that was the same.
	ForgetCheckin(agentID string, f Fingerprint)
}

// Generation grows with every change of an agent that does not leave its CheckinState as
// it was.
type Generation uint64

// LastCheckin is what is remembered of an agent's last check-in.
type LastCheckin struct {
	Fingerprint Fingerprint
	// After is the sequence number behind which the agent's next actions are.
	After int64
	// PollTimeout is how long the agent is ready to wait; 0: it does not say.
	PollTimeout time.Duration
}
