package action

import (
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// recentActionsMax and recentAgentsMax bound the actions in memory and their agents:
	// more single actions than operators and rollouts create while agents are parked,
	// and 5 MB besides the ids.
	recentActionsMax = 4096
	recentAgentsMax  = 1 << 18
	// namedMax is how many agents an action may have to be indexed by agent; the few
	// larger actions are in a list of their own.
	namedMax = 64
	// noneMax bounds the agents known to have no pending action in a range: twice the
	// largest fleet that is a goal, 20 MB.
	noneMax = 200_000
)

// recentActions holds the agents of the newest actions, those with a number above from.
// An action for 10,000 agents wakes them at once, and without it each of them would be a
// query of the store.
type recentActions struct {
	mu     sync.RWMutex
	from   int64
	list   []*recentAction // lowest number first
	agents int             // of all actions in list
	byID   map[string]*recentAction

	// bulk has the actions for more than namedMax agents, own the others by agent; both
	// lowest number first.
	bulk []*recentAction
	own  map[string][]*recentAction

	// none has by agent a range of numbers in which the store had no action for it. No
	// action is added to such a range later.
	none map[string]noneRange
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

// noneRange means that at a time an agent had no pending action above from and up to upTo.
type noneRange struct{ from, upTo, at int64 }

// add appends actions with higher numbers than those in r, and returns the agents of
// each, sorted. The caller must not change them.
func (r *recentActions) add(actions []fleet.Action) (agents [][]string) {
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

// drop removes the oldest action.
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

// typeOf returns the type of an action in r if it is for the agent, else "".
func (r *recentActions) typeOf(actionID, agentID string) agentapi.ActionType {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if a := r.byID[actionID]; a != nil && a.isFor(agentID) {
		return a.kind
	}
	return ""
}

// newest returns the highest number in r.
func (r *recentActions) newest() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if n := len(r.list); n > 0 {
		return r.list[n-1].seq
	}
	return r.from
}

// empty records that the store had no action for an agent above after and up to upTo.
func (r *recentActions) empty(agentID string, after, upTo int64, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.none == nil || len(r.none) >= noneMax {
		r.none = map[string]noneRange{} // clearing all is simple and rare, and the next queries fill it again
	}
	r.none[agentID] = noneRange{after, upTo, now.UnixNano()}
}

// pending returns the ids of the first actions for an agent above after that have not
// expired, if known. upTo is then the highest number that was considered; otherwise it is
// the number above which the store has to be asked.
func (r *recentActions) pending(agentID string, after int64, now time.Time, limit int) (ids []string, upTo int64, known bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if was, ok := r.none[agentID]; ok && was.from <= after && was.at <= now.UnixNano() {
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

// above returns the actions with a number above after.
func above(list []*recentAction, after int64) []*recentAction {
	return list[sort.Search(len(list), func(i int) bool { return list[i].seq > after }):]
}
