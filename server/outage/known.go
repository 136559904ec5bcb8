package outage

import (
	"crypto/sha256"
	"encoding/json"
	"sync"

	"github.com/muster-fleet/muster/server/fleet"
)

// maxKnown bounds the agents kept in mind: twice the largest fleet there is a goal
// for. Each takes some 500 bytes with its strings, so all of them 100 MB.
const maxKnown = 200_000

// maxPackages bounds the packages kept in mind, of a few KB each: those of a dozen
// versions on half a dozen platforms.
const maxPackages = 100

// gist is a digest of what a word says; the zero value is of none.
type gist [16]byte

func gistOf(v any) gist {
	var g gist
	if v == nil {
		return g
	}
	b, err := json.Marshal(v)
	if err != nil {
		return g // then it is new
	}
	sum := sha256.Sum256(b)
	copy(g[:], sum[:])
	return g
}

// Known is who the agents are, as the store said last. It is asked only while the
// store does not answer. What it says no to is refused for good: a key whose
// secret does not fit, for a key never gets another; and an agent that is
// unenrolled, for it never comes back under the same key. What it has not heard of
// is unknown, not wrong.
//
// The zero value is ready.
type Known struct {
	mu     sync.Mutex
	agents map[string]*acquaintance // by id
	keys   map[string]*acquaintance // by access key id

	packages map[string]fleet.Package // by file
}

// acquaintance is what is kept of an agent: a whole document is ten times as large.
type acquaintance struct {
	id, keyID, keyHash, watcherID, watcherHash string
	active                                     bool
	checkin, beacon                            gist // of the last of each
}

// Note remembers an agent as the store has it.
func (k *Known) Note(a fleet.Agent) {
	is := &acquaintance{
		id: a.ID, active: a.Active, keyID: a.AccessKeyID, keyHash: a.AccessKeyHash,
		watcherID: a.WatcherKeyID, watcherHash: a.WatcherKeyHash,
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.agents == nil {
		k.agents, k.keys = map[string]*acquaintance{}, map[string]*acquaintance{}
	}
	old := k.agents[a.ID]
	switch {
	case old == nil && len(k.agents) >= maxKnown:
		for _, other := range k.agents {
			k.forget(other) // which one does not matter: its next message brings it back
			break
		}
	case old != nil && old.keyID != is.keyID:
		k.forget(old) // the host has enrolled again: what it said before was another's word
	case old != nil:
		is.checkin, is.beacon = old.checkin, old.beacon
	}
	k.agents[is.id], k.keys[is.keyID] = is, is
}

// forget is for who holds mu.
func (k *Known) forget(is *acquaintance) {
	delete(k.agents, is.id)
	delete(k.keys, is.keyID)
}

func (k *Known) byAccessKey(keyID string) (fleet.Agent, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys[keyID].agent()
}

func (k *Known) byID(id string) (fleet.Agent, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.agents[id].agent()
}

func (is *acquaintance) agent() (fleet.Agent, bool) {
	if is == nil {
		return fleet.Agent{}, false
	}
	return fleet.Agent{
		ID: is.id, Active: is.active, AccessKeyID: is.keyID, AccessKeyHash: is.keyHash,
		WatcherKeyID: is.watcherID, WatcherKeyHash: is.watcherHash,
	}, true
}

// last is where the gist of the agent's last word of a kind stands, nil for kinds
// that have none.
func (is *acquaintance) last(kind Kind) *gist {
	switch {
	case is == nil:
	case kind == Checkin:
		return &is.checkin
	case kind == Beacon:
		return &is.beacon
	}
	return nil
}

// said notes what an agent said last of a kind, which is in the store or kept.
func (k *Known) said(id string, kind Kind, g gist) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if last := k.agents[id].last(kind); last != nil {
		*last = g
	}
}

// repeats says whether it is what the agent said last.
func (k *Known) repeats(id string, kind Kind, g gist) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := k.agents[id].last(kind)
	return last != nil && g != gist{} && *last == g
}

// notePackage remembers a package as the store has it.
func (k *Known) notePackage(p fleet.Package) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.packages == nil {
		k.packages = map[string]fleet.Package{}
	}
	if _, ok := k.packages[p.File]; !ok && len(k.packages) >= maxPackages {
		for file := range k.packages {
			delete(k.packages, file) // which one does not matter: its next download brings it back
			break
		}
	}
	k.packages[p.File] = p
}

func (k *Known) byFile(file string) (fleet.Package, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, ok := k.packages[file]
	return p, ok
}
