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
	// whom they are for: more single actions than operators and rollouts make while
	// agents are parked, and 5 MB beside the ids.
	recentActionsMax = 4096
	recentAgentsMax  = 1 << 18
	// namedMax is for how many agents an action may be to stand with each of them;
	// those for more are few.
	namedMax = 64
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
	list   []*recentAction // lowest number first
	agents int             // in all of them
	byID   map[string]*recentAction

	// Lowest number first: those for more than namedMax agents, and by agent the
	// others.
	bulk []*recentAction
	own  map[string][]*recentAction

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

func (a *recentAction) isFor(agentID string) bool {
	_, ok := slices.BinarySearch(a.agents, agentID)
	return ok
}

// emptied says that an agent had nothing to do above one number and up to another,
// at a time.
type emptied struct{ from, upTo, at int64 }

// note remembers actions that follow those it has, and returns the agents of each,
// sorted, which are not to be changed.
func (r *recentActions) note(actions []fleet.Action) (agents [][]string) {
	fresh := make([]*recentAction, len(actions))
	agents = make([][]string, len(actions))
	for i, a := range actions {
		fresh[i] = &recentAction{seq: a.Seq, id: a.ID, kind: a.Type, agents: fleet.SortedIDs(a.Agents), expiration: a.Expiration}
		agents[i] = fresh[i].agents
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.own == nil {
		r.byID, r.own = map[string]*recentAction{}, map[string][]*recentAction{}
	}
	for _, a := range fresh {
		r.list = append(r.list, a)
		r.agents += len(a.agents)
		r.byID[a.id] = a
		if len(a.agents) > namedMax {
			r.bulk = append(r.bulk, a)
			continue
		}
		for _, id := range a.agents {
			r.own[id] = append(r.own[id], a)
		}
	}
	for len(r.list) > recentActionsMax || len(r.list) > 0 && r.agents > recentAgentsMax {
		r.drop()
	}
	return agents
}

// drop forgets the oldest.
func (r *recentActions) drop() {
	a := r.list[0]
	r.list[0] = nil
	r.list = r.list[1:]
	r.from = a.seq
	r.agents -= len(a.agents)
	delete(r.byID, a.id)
	if len(a.agents) > namedMax {
		r.bulk = slices.Delete(r.bulk, 0, 1)
		return
	}
	for _, id := range a.agents {
		if rest := r.own[id][1:]; len(rest) > 0 {
			r.own[id] = rest
		} else {
			delete(r.own, id)
		}
	}
}

// typeOf returns the type of a remembered action that is for the agent, else "".
func (r *recentActions) typeOf(actionID, agentID string) agentapi.ActionType {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if a := r.byID[actionID]; a != nil && a.isFor(agentID) {
		return a.kind
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
	if n := len(r.list); n > 0 {
		upTo = max(upTo, r.list[n-1].seq)
	}
	bulk, own := above(r.bulk, after), above(r.own[agentID], after)
	for len(bulk)+len(own) > 0 {
		var a *recentAction
		if len(own) == 0 || len(bulk) > 0 && bulk[0].seq < own[0].seq {
			a, bulk = bulk[0], bulk[1:]
			if !a.isFor(agentID) {
				continue
			}
		} else {
			a, own = own[0], own[1:]
		}
		if a.expiration != nil && !a.expiration.After(now) {
			continue
		}
		if ids = append(ids, a.id); len(ids) == limit {
			return ids, a.seq, true
		}
	}
	return ids, upTo, true
}

// above returns what has a number above after.
func above(list []*recentAction, after int64) []*recentAction {
	return list[sort.Search(len(list), func(i int) bool { return list[i].seq > after }):]
}
