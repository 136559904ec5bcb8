// Package agentcache holds the credential and the last check-in of the agents that
// connect to this server. A check-in that repeats the last one, as nearly all do, then
// needs no call of the store, and while the store is away agents stay authenticated and
// parked. The agents' handlers and the check-in service use it as their checkin.Cache.
//
// A store that belongs to this process alone reports every write of an agent. The cache
// drops the agent's entry before the write returns, unless the agent's CheckinState is
// unchanged, so it is valid at any time. If other servers write the store too, the cache
// is valid only while the store is away. An agent that was unenrolled at another server
// may then be parked, but whatever it reports is refused, as from all agents.
package agentcache

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// MaxAgents bounds the memory: twice the largest fleet that is a goal, at about 400
	// bytes each.
	MaxAgents = 200_000
	// stripes is the number of generations. Agents that share one only delay each other's
	// duplicates by a check-in.
	stripes = 1024
)

// Cache implements checkin.Cache.
type Cache struct {
	current bool // the store reports every write
	away    func() error

	seed maphash.Seed
	mu   sync.RWMutex
	// generations grow with every change of an agent of the stripe; see
	// checkin.Generation.
	generations [stripes]checkin.Generation
	agents      map[string]*entry // by id
	keys        map[string]*entry // by access key id
}

var _ checkin.Cache = (*Cache)(nil)

// entry is one active agent. Only seen is changed without mu locked for writing.
type entry struct {
	agentID  string
	keyID    string
	keyHash  string
	hostname string
	maker    fleet.Maker
	last     checkin.LastCheckin // zero if there is none
	state    uint64              // in this CheckinState, repeating last changes nothing; 0 means it might
	seen     atomic.Int64        // Unix seconds
}

// New returns an empty cache. onChange is store.Store.OnAgentChange: it registers a
// function that is called after every write of agents, before the write returns, and
// reports whether the store supports that. away returns nil while the store can be
// reached.
func New(onChange func(func([]store.AgentChange)) bool, away func() error) *Cache {
	c := &Cache{away: away, seed: maphash.MakeSeed(), agents: map[string]*entry{}, keys: map[string]*entry{}}
	c.current = onChange(c.changed)
	return c
}

// changed drops the entries of agents that were written, except those whose CheckinState
// is unchanged: an upgrade of the whole fleet writes every document, and then all agents
// check in at once.
func (c *Cache) changed(changes []store.AgentChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range changes {
		if e := c.agents[change.AgentID]; e != nil && change.State != 0 && change.State == e.state {
			continue
		}
		*c.generation(change.AgentID)++
		c.drop(change.AgentID)
	}
}

// Generation implements checkin.Cache.
func (c *Cache) Generation(agentID string) checkin.Generation {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return *c.generation(agentID)
}

func (c *Cache) generation(agentID string) *checkin.Generation {
	return &c.generations[maphash.String(c.seed, agentID)%stripes]
}

// Authenticated implements checkin.Cache.
func (c *Cache) Authenticated(key fleet.Credential) (agentID string, ok bool) {
	if !c.current && c.away() == nil {
		return "", false
	}
	c.mu.RLock()
	e := c.keys[key.ID]
	c.mu.RUnlock()
	if e == nil || !key.Matches(e.keyHash) {
		return "", false
	}
	return e.agentID, true
}

// IsDuplicate implements checkin.Cache. While the store is away a check-in that equals
// the last accepted one is a duplicate even if it would change the agent by now, since it
// has no new information.
func (c *Cache) IsDuplicate(agentID string, f checkin.Fingerprint, now time.Time) (checkin.LastCheckin, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e := c.agents[agentID]
	if e == nil || e.last.Fingerprint != f {
		return checkin.LastCheckin{}, false
	}
	if c.away() != nil {
		return e.last, true
	}
	silent := now.Sub(time.Unix(e.seen.Load(), 0))
	return e.last, c.current && e.state != 0 && silent < fleet.OfflineAfter-time.Second
}

// Remember implements checkin.Cache.
func (c *Cache) Remember(a *fleet.Agent, g checkin.Generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *c.generation(a.ID) != g {
		return
	}
	old := c.agents[a.ID]
	switch {
	case !a.Active:
		c.drop(a.ID)
		return
	case old != nil && old.keyID == a.AccessKeyID && old.keyHash == a.AccessKeyHash:
		return
	}
	c.drop(a.ID) // the host has a new key
	if len(c.agents) >= MaxAgents {
		for id := range c.agents {
			c.drop(id) // any one: its next check-in adds it again
			break
		}
	}
	host := a.Host()
	e := &entry{agentID: a.ID, keyID: a.AccessKeyID, keyHash: a.AccessKeyHash, hostname: a.HostnameOn(host), maker: host.Maker}
	c.agents[e.agentID], c.keys[e.keyID] = e, e
}

// RememberCheckin implements checkin.Cache.
func (c *Cache) RememberCheckin(agentID string, last checkin.LastCheckin, g checkin.Generation, state uint64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.agents[agentID]; e != nil {
		if e.last, e.state = last, state; *c.generation(agentID) != g {
			e.state = 0
		}
		e.seen.Store(now.Unix())
	}
}

// Stable implements checkin.Cache.
func (c *Cache) Stable(agentID string) (hostname string, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if e := c.agents[agentID]; e != nil && e.state != 0 && c.current && e.maker == fleet.MakerMuster {
		return e.hostname, true
	}
	return "", false
}

// Seen implements checkin.Cache.
func (c *Cache) Seen(agentID string, now time.Time) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	// Two concurrent calls store times of the same second.
	if e := c.agents[agentID]; e != nil && e.seen.Load() < now.Unix() {
		e.seen.Store(now.Unix())
	}
}

// ForgetCheckin implements checkin.Cache.
func (c *Cache) ForgetCheckin(agentID string, f checkin.Fingerprint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.agents[agentID]; e != nil && e.last.Fingerprint != f {
		e.last, e.state = checkin.LastCheckin{}, 0
	}
}

// drop must be called with mu locked.
func (c *Cache) drop(agentID string) {
	if e := c.agents[agentID]; e != nil {
		delete(c.agents, agentID)
		delete(c.keys, e.keyID)
	}
}
