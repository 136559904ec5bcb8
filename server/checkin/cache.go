package checkin

import (
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Cache remembers how agents authenticate and what each said last, so that a check-in
// that repeats the last one needs no call of the store. package agentcache has it.
//
// What a Cache returns is never older than the last write of the agent that returned
// before the call. Where the store does not report the writes of others, the Cache
// knows nothing until the store is away.
//
// Who reads an agent from the store to put it into the Cache takes its Generation
// before: Remember and RememberCheckin do nothing if the agent was written since.
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
	// RememberCheckin notes what an agent that is in the Cache said last. The same would
	// change nothing about the agent, as it was read under g, while its CheckinState is
	// state; 0: it may.
	RememberCheckin(agentID string, last LastCheckin, g Generation, state uint64, now time.Time)
	// Settled says that the agent is settled (fleet.Agent.Settled), and the name of its
	// host. false: it may be, or not.
	Settled(agentID string) (hostname string, ok bool)
	// Seen notes that an agent is there. One that was silent for long is looked at
	// again in the store.
	Seen(agentID string, now time.Time)
	// ForgetCheckin is for a check-in that failed, and may have been written: unless the
	// agent said the same before, it is not known what it said last.
	ForgetCheckin(agentID string, f Fingerprint)
}

// Generation grows with every write of an agent.
type Generation uint64

// LastCheckin is what is remembered of an agent's last check-in.
type LastCheckin struct {
	Fingerprint Fingerprint
	// After is the sequence number behind which the agent's next actions are.
	After int64
	// PollTimeout is how long the agent is ready to wait; 0: it does not say.
	PollTimeout time.Duration
}
