package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Watched is a store that several processes may write, and that can tell each of them
// which agents the others have written.
type Watched interface {
	// ChangesElsewhere returns what other processes have written about agents behind
	// since, the place that the last call returned as Next; Unwatched if there was none.
	// Places are in the order in which writes become visible: what a call has not
	// returned is not yet in the store for any reader, or stands behind Next. It
	// returns a page of some thousand.
	ChangesElsewhere(ctx context.Context, since int64) (Changes, error)
	// FactsOf is Agents.Facts for those of the ids that exist.
	FactsOf(ctx context.Context, ids []string, f func(id string, facts fleet.StatusFacts)) error
}

// Unwatched is the place of who does not know what others have written so far.
const Unwatched int64 = -1

// Changes are a page of what others have written.
type Changes struct {
	// Lost says that it cannot be told what others wrote behind since: any agent may
	// have changed until Next.
	Lost   bool
	Agents []AgentChange // in the order in which they were written
	Next   int64
	More   bool // there is another page
}

// AgentChange is what one write has changed about an agent.
type AgentChange struct {
	AgentID string
	Kind    AgentChangeKind
	Stance  Stance // of a document that was written
	// At and Status are those of the touch, of all kinds but AgentWritten. An empty
	// Status stayed as it was.
	At     time.Time
	Status string
}

// AgentChangeKind says what a write was about.
type AgentChangeKind uint8

const (
	// AgentWritten: the document was made, replaced or removed.
	AgentWritten AgentChangeKind = iota
	// AgentTold: a Report had a status that may be another than before.
	AgentTold
	// AgentTouched: when it was last seen is new, by Touch or Report.
	AgentTouched
	AgentChangeKinds // how many there are
)

// Stance is a digest of what an agent's check-ins are compared with, the same in every
// process; 0: its check-ins must be, whatever they say.
type Stance uint64

// StanceOf returns the stance of a settled agent (fleet.Agent.Stance), else 0.
func StanceOf(a *fleet.Agent) Stance {
	if !a.Active || !a.Settled() {
		return 0
	}
	// Of an agent's own making are most of the parts, and its key is one of them: no
	// two that somebody can think of may look alike.
	h := sha256.New()
	a.Stance(func(part []byte) {
		_, _ = h.Write(part)
		_, _ = h.Write([]byte{0})
	})
	var sum [sha256.Size]byte
	return Stance(binary.BigEndian.Uint64(h.Sum(sum[:0])))
}
