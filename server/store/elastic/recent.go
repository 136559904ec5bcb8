package elastic

import (
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// recentActionsMax and recentAgentsMax bound what is remembered of actions and of
	// whom they are for: an hour of a busy fleet, and some 20 MB.
	recentActionsMax = 256
	recentAgentsMax  = 1 << 18
)

// recentActions remembers whom the newest actions are for, as After has shown them:
// all with a number above from and not above to. An action for 10,000 agents wakes
// them at once, and each would search for what it was woken for.
type recentActions struct {
	mu       sync.Mutex
	from, to int64
	list     []recentAction // lowest number first
	agents   int            // in all of them
}

type recentAction struct {
	seq        int64
	id         string
	agents     map[string]struct{}
	expiration *time.Time
}

// note remembers all the actions above after and not above upTo.
func (r *recentActions) note(after, upTo int64, actions []fleet.Action) {
	if upTo <= after {
		return
	}
	fresh := make([]recentAction, len(actions))
	for i, a := range actions {
		agents := make(map[string]struct{}, len(a.Agents))
		for _, id := range a.Agents {
			agents[id] = struct{}{}
		}
		fresh[i] = recentAction{seq: a.Seq, id: a.ID, agents: agents, expiration: a.Expiration}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case after > r.to || r.to == 0:
		r.from, r.to, r.list, r.agents = after, after, nil, 0 // what lies between is not known
	case after < r.to:
		return // a reader that is behind
	}
	for _, a := range fresh {
		r.list = append(r.list, a)
		r.agents += len(a.agents)
	}
	r.to = upTo
	for len(r.list) > recentActionsMax || len(r.list) > 0 && r.agents > recentAgentsMax {
		r.from = r.list[0].seq
		r.agents -= len(r.list[0].agents)
		r.list = append([]recentAction(nil), r.list[1:]...) // lets go of its agents
	}
}

// pending returns the ids of the first actions for an agent above after and not
// above upTo that have not expired; ok says that all of these numbers are known.
func (r *recentActions) pending(agentID string, after, upTo int64, now time.Time, limit int) (ids []string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to == 0 || after < r.from || upTo > r.to {
		return nil, false
	}
	for _, a := range r.list {
		if a.seq <= after || a.seq > upTo || a.expiration != nil && !a.expiration.After(now) {
			continue
		}
		if _, isFor := a.agents[agentID]; !isFor {
			continue
		}
		if ids = append(ids, a.id); len(ids) == limit {
			break
		}
	}
	return ids, true
}
