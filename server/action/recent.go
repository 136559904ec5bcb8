package action

import (
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// recentActionsMax and recentAgentsMax bound what is remembered of actions and of
	// whom they are for: an hour of a busy fleet, and 5 MB beside the ids.
	recentActionsMax = 256
	recentAgentsMax  = 1 << 18
	// emptiedMax bounds the agents of whom is remembered that older actions are
	// nothing to them: twice the largest fleet there is a goal for, 20 MB.
	emptiedMax = 200_000
)

// recentActions remembers whom the newest actions are for: all with a number above
// from. An action for 10,000 agents wakes them at once, and each would ask the
// store for what it was woken for.
type recentActions struct {
	mu     sync.RWMutex
	from   int64
	list   []recentAction // lowest number first
	agents int            // in all of them

	// emptied says of agents above which number there was nothing for them up to
	// from and beyond, when the store was asked. Nothing comes to be there later.
	emptied map[string]emptied
}

type recentAction struct {
	seq        int64
	id         string
	kind       agentapi.ActionType
	agents     []string // sorted
	expiration *time.Time
}

// emptied says that an agent had nothing to do above one number and up to another,
// at a time.
type emptied struct{ from, upTo, at int64 }

// note remembers actions that follow those it has.
func (r *recentActions) note(actions []fleet.Action) {
	fresh := make([]recentAction, len(actions))
	for i, a := range actions {
		agents := slices.Clone(a.Agents)
		slices.Sort(agents)
		fresh[i] = recentAction{seq: a.Seq, id: a.ID, kind: a.Type, agents: agents, expiration: a.Expiration}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range fresh {
		r.list = append(r.list, a)
		r.agents += len(a.agents)
	}
	drop := 0
	for len(r.list)-drop > recentActionsMax || drop < len(r.list) && r.agents > recentAgentsMax {
		r.from = r.list[drop].seq
		r.agents -= len(r.list[drop].agents)
		drop++
	}
	if drop > 0 {
		r.list = append([]recentAction(nil), r.list[drop:]...) // lets go of their agents
	}
}

// typeOf returns the type of an action that is remembered, if it is for the agent,
// and else nothing.
func (r *recentActions) typeOf(id, agentID string) agentapi.ActionType {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, a := range slices.Backward(r.list) { // what is acknowledged is among the last
		if a.id != id {
			continue
		}
		if _, isFor := slices.BinarySearch(a.agents, agentID); isFor {
			return a.kind
		}
		break
	}
	return ""
}

// newest is the highest number that is remembered.
func (r *recentActions) newest() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if n := len(r.list); n > 0 {
		return r.list[n-1].seq
	}
	return r.from
}

// empty remembers that the store had nothing for an agent above after and up to
// upTo.
func (r *recentActions) empty(agentID string, after, upTo int64, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.emptied == nil || len(r.emptied) >= emptiedMax {
		r.emptied = map[string]emptied{} // starting over is simple and rare: what is asked for comes back
	}
	r.emptied[agentID] = emptied{after, upTo, now.UnixNano()}
}

// pending returns the ids of the first actions for an agent above after that have
// not expired, if all of these are remembered. upTo is then the highest number that
// was looked at; else it is the one above which the store has to be asked.
func (r *recentActions) pending(agentID string, after int64, now time.Time, limit int) (ids []string, upTo int64, known bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if was, ok := r.emptied[agentID]; ok && was.from <= after && was.at <= now.UnixNano() {
		after = max(after, was.upTo)
	}
	if after < r.from {
		return nil, after, false
	}
	upTo = after
	first := sort.Search(len(r.list), func(i int) bool { return r.list[i].seq > after })
	for _, a := range r.list[first:] {
		if len(ids) == limit {
			break
		}
		upTo = a.seq
		if a.expiration != nil && !a.expiration.After(now) {
			continue
		}
		if _, isFor := slices.BinarySearch(a.agents, agentID); isFor {
			ids = append(ids, a.id)
		}
	}
	return ids, upTo, true
}
