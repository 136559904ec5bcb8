// Package presence is what a server knows by heart of the agents that talk to it:
// the proof each of them shows, what it said last, and when. A check-in that says
// the same again, as nearly all do, needs the store for nothing, and an
// acknowledgement that all is well for no more than its result. The agents'
// handlers and the check-in service ask it; [Store] tells it of every change to an
// agent that this process makes, and the store, four times a second, of those that
// others make: what is known is as old as the last of these looks. Of all other agents
// it knows what their status depends on, once somebody has asked for statuses.
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
	"github.com/muster-fleet/muster/server/store"
)

const (
	// LookInterval is how often the store is asked what other processes have
	// changed, so for how long an agent that was dismissed there may still be parked
	// here. Its next poll would come minutes later.
	LookInterval = 250 * time.Millisecond
	// maxPages bounds a look: more than the store keeps of single writes. Who is
	// further behind forgets everybody sooner than it catches up.
	maxPages = 64
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
	// Watched says which agents other processes have changed. nil: that cannot be
	// known, and nothing is known by heart.
	Watched store.Watched
	Log     *slog.Logger

	since  int64       // of the looks: what others have written up to there is taken in
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
	stance      store.Stance // of the document
	writers     int          // that are writing the document now
	seen        atomic.Int64 // Unix seconds
}

// New makes an empty registry; Run must follow. watched is nil where the store is not
// store.Watched.
func New(watched store.Watched, log *slog.Logger) *Registry {
	r := &Registry{Watched: watched, Log: log, since: store.Unwatched, seed: maphash.MakeSeed()}
	if r.knows() {
		r.roster = newRoster(watched)
	}
	return r
}

func (r *Registry) of(agentID string) (s *shard, generation *Ticket) {
	h := maphash.String(r.seed, agentID)
	s = &r.shards[h%shards]
	return s, &s.generations[h/shards%stripes]
}

func (r *Registry) knows() bool { return r != nil && r.Watched != nil }

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
	e := &entry{proof: w.Proof, said: w.Said, known: known, hostname: agent.Hostname(), stance: store.StanceOf(agent)}
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
	r.seen(s, agentID, now)
}

func (r *Registry) seen(s *shard, agentID string, at time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	// Of two at once either will do: they are of the same second.
	if e := s.agents[agentID]; e != nil && e.seen.Load() < at.Unix() {
		e.seen.Store(at.Unix())
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
	same := ok && was != nil && was.stands(store.StanceOf(agent))
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

// stands says whether what is known of an agent stays so under a document that has
// the stance.
func (e *entry) stands(is store.Stance) bool { return is != 0 && is == e.stance }

// elsewhere takes in what another process wrote about an agent. It was written before
// it was read of: who took a ticket since then will read what it made of the agent.
// And of writes of this process that it met, whoever was second had read what the
// first wrote, or was refused; so what is known must fit both of them to stay.
func (r *Registry) elsewhere(c *store.AgentChange) {
	r.roster.elsewhere(c)
	s, generation := r.of(c.AgentID)
	if c.Kind == store.AgentTouched {
		r.seen(s, c.AgentID, c.At)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	*generation++
	if e := s.agents[c.AgentID]; e != nil && (c.Kind != store.AgentWritten || !e.stands(c.Stance)) {
		delete(s.agents, c.AgentID)
	}
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

// look takes in what others changed. A store that cannot be asked makes it blind:
// every check-in is then taken in as if it were new.
func (r *Registry) look(ctx context.Context) {
	for page := 0; ; page++ {
		if page == maxPages {
			r.since = store.Unwatched
		}
		c, err := r.Watched.ChangesElsewhere(ctx, r.since)
		if err != nil {
			if !r.blind.Swap(true) && ctx.Err() == nil {
				r.Log.Debug("what other processes changed cannot be known", "error", err)
			}
			return
		}
		// What they changed while it was blind is there, too: it stands behind since.
		if c.Lost {
			r.forget()
		}
		for i := range c.Agents {
			r.elsewhere(&c.Agents[i])
		}
		r.since = c.Next
		if !c.More {
			break
		}
	}
	r.blind.Store(false)
}
