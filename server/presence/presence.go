// Package presence is what a server knows by heart of the agents that talk to it:
// the proof each of them shows, what it said last, and when. A check-in that says
// the same again, as nearly all do, needs the store for nothing, and an
// acknowledgement that all is well for no more than its result. The agents'
// handlers and the check-in service ask it; [Store] tells it of every change to an
// agent that this process makes, and the store of those that others make. Of all other
// agents it knows what their status depends on, once somebody has asked for statuses.
package presence

import (
	"context"
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
	// some 250 bytes each.
	maxAgents = 200_000
	// shards keep handlers on several processors apart, and stripes within them the
	// changes of different agents, as far as it matters: who shares one with an agent
	// that changes is remembered a check-in later.
	shards  = 64
	stripes = 256
)

// Ticket is taken before an agent is read from the store, for Keep.
type Ticket uint64

// Written is the ticket of who took t, then wrote the agent's document or status,
// once, over the one it had read, and knows what it is now.
func (t Ticket) Written() Ticket { return t + 2 }

// Mark is a word, and the ticket that was taken before its agent was read.
type Mark struct {
	Word
	Ticket Ticket
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
	roster *roster // nil if nothing can be known by heart
}

type shard struct {
	mu sync.RWMutex
	// generations grow with every change to an agent of the stripe: what was learnt
	// before may not be kept after it.
	generations [stripes]Ticket
	agents      map[string]*entry
}

type entry struct {
	proof, said Digest
	known       Known
	hostname    string
	stance      uint64       // of the document
	writers     int          // that are writing the document now
	seen        atomic.Int64 // Unix seconds
}

// New makes an empty registry; Run must follow.
func New(changedElsewhere func(context.Context) (bool, error), log *slog.Logger) *Registry {
	r := &Registry{ChangedElsewhere: changedElsewhere, Log: log, seed: maphash.MakeSeed()}
	if r.knows() {
		r.roster = newRoster()
	}
	return r
}

func (r *Registry) of(agentID string) (s *shard, generation *Ticket) {
	h := maphash.String(r.seed, agentID)
	s = &r.shards[h%shards]
	return s, &s.generations[h/shards%stripes]
}

func (r *Registry) knows() bool { return r != nil && r.ChangedElsewhere != nil }

// proven returns what is known of an agent, if the proof is the agent's. Of an entry
// only writers and seen change.
func (r *Registry) proven(agentID string, proof Digest) *entry {
	if !r.knows() {
		return nil
	}
	s, _ := r.of(agentID)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.agents[agentID]; e != nil && subtle.ConstantTimeCompare(e.proof[:], proof[:]) == 1 {
		return e
	}
	return nil
}

// Proves says whether the word's proof is the agent's, as far as that is known. It
// is the cheap question before the body is read.
func (r *Registry) Proves(agentID string, proof Digest) bool { return r.proven(agentID, proof) != nil }

// Repeats says whether the agent said exactly this last, and nothing has changed
// about it since: then to take it in would change nothing but when it was seen. An
// agent that was silent for long is not remembered.
func (r *Registry) Repeats(w Word, now time.Time) (Known, bool) {
	e := r.proven(w.AgentID, w.Proof)
	if e == nil || r.blind.Load() || e.said != w.Said || now.Sub(time.Unix(e.seen.Load(), 0)) > fleet.OfflineAfter-time.Second {
		return Known{}, false
	}
	return e.known, true
}

// Ticket is taken before an agent is read from the store, for Keep.
func (r *Registry) Ticket(agentID string) Ticket {
	if !r.knows() {
		return 0
	}
	s, generation := r.of(agentID)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return *generation
}

// Keep remembers a word that would change nothing about its agent, which was read
// under its ticket and is settled (fleet.Agent.Settled), unless something else has
// changed the agent since.
func (r *Registry) Keep(w Mark, agent *fleet.Agent, known Known, now time.Time) {
	if !r.knows() {
		return
	}
	e := &entry{proof: w.Proof, said: w.Said, known: known, hostname: agent.Hostname(), stance: r.stance(agent)}
	e.seen.Store(now.Unix())
	s, generation := r.of(w.AgentID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if *generation != w.Ticket {
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
	r.roster.sign(agentID, now)
	s, _ := r.of(agentID)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.agents[agentID]; e != nil {
		e.seen.Store(now.Unix())
	}
}

// Settled says whether the word's proof is the agent's, and the agent one of which
// it is known that an acknowledgement without an error changes nothing about it; and
// the name of its host. What was said does not matter.
func (r *Registry) Settled(agentID string, proof Digest) (hostname string, ok bool) {
	e := r.proven(agentID, proof)
	if e == nil || r.blind.Load() {
		return "", false
	}
	return e.hostname, true
}

// Changed forgets agents: their documents are not what they were. It comes after
// the change, or when it is not known whether that has been made.
func (r *Registry) Changed(agentIDs ...string) {
	for _, id := range agentIDs {
		r.written(id, nil, false)
	}
}

// changing comes before a document is written, and returns what changed wants of it.
func (r *Registry) changing(agentID string) *entry {
	if !r.knows() {
		return nil
	}
	s, generation := r.of(agentID)
	s.mu.Lock()
	defer s.mu.Unlock()
	*generation++
	e := s.agents[agentID]
	if e != nil {
		e.writers++
	}
	return e
}

// changed comes after a document was written, if ok is true. What is known of the
// agent stays so if the change was to nothing that its check-ins are compared with:
// an order for a fleet marks all of its agents, and they are to answer it at once.
func (r *Registry) changed(agent *fleet.Agent, was *entry, ok bool) {
	if !r.knows() {
		return
	}
	same := ok && was != nil && agent.Active && agent.Settled() && r.stance(agent) == was.stance
	r.written(agent.ID, was, same)
}

// written comes after a write of what check-ins are compared with, which was the same
// afterwards or not.
func (r *Registry) written(agentID string, was *entry, same bool) {
	if !r.knows() {
		return
	}
	s, generation := r.of(agentID)
	s.mu.Lock()
	defer s.mu.Unlock()
	*generation++
	// Of two that write at the same time it is not known who came last; and what was
	// kept meanwhile may have been read before.
	if is := s.agents[agentID]; !same || is != was || was.writers > 1 {
		delete(s.agents, agentID)
	}
	if was != nil {
		was.writers--
	}
}

// stance is a hash of what an agent's check-ins are compared with, and of its key.
func (r *Registry) stance(a *fleet.Agent) uint64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	a.Stance(func(part []byte) {
		_, _ = h.Write(part)
		_ = h.WriteByte(0)
	})
	return h.Sum64()
}

// forget forgets everybody.
func (r *Registry) forget() {
	r.roster.forget()
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		for i := range s.generations {
			s.generations[i]++
		}
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
