// Package presence is what a server knows by heart of the agents that talk to it:
// the proof each of them shows, what it said last, and when. A check-in that says
// the same again, as nearly all do, needs the store for nothing. The agents'
// handlers and the check-in service ask it; [Store] tells it of every change to an
// agent that this process makes, and the store of those that others make.
package presence

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// LookInterval is how often the store is asked whether another process has
	// changed something, so for how long an agent that was dismissed there may
	// still be parked here. Its next poll would come minutes later.
	LookInterval = 250 * time.Millisecond
	// maxAgents bounds the memory: twice the largest fleet there is a goal for, at
	// some 200 bytes each.
	maxAgents = 200_000
	// shards keep handlers on several processors apart.
	shards = 64
)

// Digest is a SHA-256.
type Digest [sha256.Size]byte

// DigestOf makes one.
func DigestOf(b []byte) Digest { return sha256.Sum256(b) }

// Word is a check-in as it came: from whom, with which proof, saying what.
type Word struct {
	AgentID string
	// Proof is of the credential, Said of the body.
	Proof, Said Digest
}

// Mark is a word, and the ticket that was taken before its agent was read.
type Mark struct {
	Word
	Ticket uint64
}

// Known is what is known of an agent whose word changes nothing.
type Known struct {
	// After is the sequence number behind which the agent's next actions are.
	After int64
	// Wait is how long the agent asked to be parked, as it asked; 0: it did not.
	Wait time.Duration
}

// Registry is what this process knows of agents. A nil Registry knows nothing.
type Registry struct {
	// ChangedElsewhere says whether another process may have changed an agent since
	// it was asked last. nil: that cannot be known, and nothing is known by heart.
	ChangedElsewhere func(context.Context) (bool, error)
	Log              *slog.Logger

	blind  atomic.Bool // the store could not be asked
	seed   maphash.Seed
	shards [shards]shard
}

type shard struct {
	mu sync.RWMutex
	// generation grows with every change to an agent of the shard: what was learnt
	// before may not be kept after it.
	generation uint64
	agents     map[string]*entry
}

type entry struct {
	proof, said Digest
	known       Known
	seen        atomic.Int64 // Unix seconds
}

// New makes an empty registry; Run must follow.
func New(changedElsewhere func(context.Context) (bool, error), log *slog.Logger) *Registry {
	return &Registry{ChangedElsewhere: changedElsewhere, Log: log, seed: maphash.MakeSeed()}
}

func (r *Registry) of(agentID string) *shard {
	return &r.shards[maphash.String(r.seed, agentID)%shards]
}

func (r *Registry) knows() bool { return r != nil && r.ChangedElsewhere != nil }

// Proves says whether the word's proof is the agent's, as far as that is known. It
// is the cheap question before the body is read.
func (r *Registry) Proves(agentID string, proof Digest) bool {
	if !r.knows() {
		return false
	}
	s := r.of(agentID)
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.agents[agentID]
	return e != nil && subtle.ConstantTimeCompare(e.proof[:], proof[:]) == 1
}

// Repeats says whether the agent said exactly this last, and nothing has changed
// about it since: then to take it in would change nothing but when it was seen. An
// agent that was silent for long is not remembered.
func (r *Registry) Repeats(w Word, now time.Time) (Known, bool) {
	if !r.knows() || r.blind.Load() {
		return Known{}, false
	}
	s := r.of(w.AgentID)
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.agents[w.AgentID]
	if e == nil || subtle.ConstantTimeCompare(e.proof[:], w.Proof[:]) != 1 || e.said != w.Said ||
		now.Sub(time.Unix(e.seen.Load(), 0)) > fleet.OfflineAfter-time.Second {
		return Known{}, false
	}
	return e.known, true
}

// Ticket is taken before an agent is read from the store, for Keep.
func (r *Registry) Ticket(agentID string) uint64 {
	if !r.knows() {
		return 0
	}
	s := r.of(agentID)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.generation
}

// Keep remembers a word that changed nothing about its agent, unless something else
// has changed that since its ticket was taken.
func (r *Registry) Keep(w Mark, known Known, now time.Time) {
	if !r.knows() {
		return
	}
	e := &entry{proof: w.Proof, said: w.Said, known: known}
	e.seen.Store(now.Unix())
	s := r.of(w.AgentID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation != w.Ticket {
		return
	}
	if s.agents == nil || len(s.agents) >= maxAgents/shards {
		s.agents = map[string]*entry{} // starting over is simple and rare: everybody comes back
	}
	s.agents[w.AgentID] = e
}

// Seen notes that an agent is there.
func (r *Registry) Seen(agentID string, now time.Time) {
	if !r.knows() {
		return
	}
	s := r.of(agentID)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.agents[agentID]; e != nil {
		e.seen.Store(now.Unix())
	}
}

// Changed forgets agents: their documents are not what they were. It comes after
// the change, or when it is not known whether that has been made.
func (r *Registry) Changed(agentIDs ...string) {
	for _, id := range agentIDs {
		s := r.of(id)
		s.mu.Lock()
		s.generation++
		delete(s.agents, id)
		s.mu.Unlock()
	}
}

// forget forgets everybody.
func (r *Registry) forget() {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		s.generation++
		s.agents = nil
		s.mu.Unlock()
	}
}

// Run asks the store for what others changed, until ctx ends.
func (r *Registry) Run(ctx context.Context) {
	if !r.knows() {
		return
	}
	tick := time.NewTicker(LookInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.look(ctx)
		}
	}
}

// look forgets what may have changed. A store that cannot be asked makes it blind:
// every check-in is then taken in as if it were new.
func (r *Registry) look(ctx context.Context) {
	changed, err := r.ChangedElsewhere(ctx)
	if err != nil {
		if !r.blind.Swap(true) && ctx.Err() == nil {
			r.Log.Debug("what other processes changed cannot be known", "error", err)
		}
		return
	}
	// What they changed while it was blind is in changed, for it is since the last
	// answer.
	if changed {
		r.forget()
	}
	r.blind.Store(false)
}
