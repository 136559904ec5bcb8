package reconcile

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
)

// board is what a replica knows of a rollout it works on: a seat for each target
// in memory, and the documents of those of which something may still come. The
// store is the truth: a board that failed to write, or met another writer, is
// thrown away and read again.
type board struct {
	rollout fleet.Rollout
	seats   []plan.Target
	ids     []string // of the agents, by seat
	index   map[string]int32
	// follows are the targets whose agents are looked at: those in flight, and
	// those that may still go on or back.
	follows map[int32]*follow
	// busy are seats whose agent had something else to do.
	busy map[int32]bool
	// again are offers that may have been lost in a crash, by action.
	again  map[string][]int32
	groups plan.GroupNumbers
	// offers is the highest number an action of this rollout bears.
	offers int

	sighted

	stirred  bool      // something changed since the last decision
	next     time.Time // to decide again at the latest
	wrote    time.Time // the rollout's document, last
	owed     bool      // it differs from what is stored in counts alone
	progress time.Time // last event of progress
	told     fleet.Counts
	trail    plan.TrailData
	events   []fleet.Event
}

// sighted is what the last census told of the board's agents.
type sighted struct {
	seen   bool     // there was one
	sights []uint32 // by seat: the census that saw its agent last
	runs   []bool   // by seat: its agent ran the version
	// Seats and agents that a census found something about that their documents
	// must confirm.
	doubtful  []int32
	strangers []string
	// strange are agents that do not join, by what the census said of them then.
	strange   map[string]uint64
	strangeAt time.Time
	attended  bool // busy seats were looked at since the census
}

// follow is a target whose agent is looked at.
type follow struct {
	target fleet.Target
	due    time.Time // to look at the latest; zero: when the agent is heard of
	back   time.Time // until when its watcher is waited for; see goingBack
}

// load reads a rollout and its targets.
func load(ctx context.Context, s store.Store, id string) (*board, error) {
	r, err := s.Rollouts().Get(ctx, id)
	if err != nil {
		return nil, err
	}
	b := &board{
		rollout: r, index: map[string]int32{}, follows: map[int32]*follow{}, busy: map[int32]bool{}, again: map[string][]int32{},
		stirred: true, told: r.Counts, trail: plan.TrailOf(&r),
	}
	if err := s.Targets().Each(ctx, id, b.add); err != nil {
		return nil, err
	}
	return b, nil
}

// add seats one more target.
func (b *board) add(t fleet.Target) {
	i := int32(len(b.seats))
	b.seats = append(b.seats, plan.Target{})
	b.ids = append(b.ids, t.AgentID)
	b.sights = append(b.sights, 0)
	b.runs = append(b.runs, false)
	b.index[t.AgentID] = i
	seat := &b.seats[i]
	seat.Ring, seat.Batch = int16(t.Ring), int32(t.Batch)
	seat.Groups, seat.Sites = b.groups.Of(&t, &b.rollout.Plan), plan.NoSites
	b.put(i, t)
	for _, id := range append(t.ActionIDs, t.ActionID) {
		b.offers = max(b.offers, offerNumber(id))
	}
	if t.State == fleet.TargetOffered {
		b.again[t.ActionID] = append(b.again[t.ActionID], i)
	}
}

// offerNumber is the last part of the id of an offer; see Reconciler.offer.
func offerNumber(actionID string) int {
	n, _ := strconv.Atoi(actionID[strings.LastIndexByte(actionID, '-')+1:])
	return n
}

// put takes in a target as it is stored now.
func (b *board) put(i int32, t fleet.Target) {
	seat := &b.seats[i]
	seat.State, seat.Code, seat.Attempts, seat.Expires, seat.Since = plan.StateOf(t.State), plan.CodeOf(t.Code), uint8(min(t.Attempts, 255)), 0, 0
	if t.ExpiresAt != nil && t.State == fleet.TargetHeld {
		seat.Expires = t.ExpiresAt.UnixNano()
	}
	for k := len(t.History) - 1; k >= 0 && t.History[k].State == t.State; k-- {
		seat.Since = t.History[k].At.UnixNano()
	}
	if f := b.follows[i]; mayMove(&t) {
		if f == nil {
			f = &follow{due: time.Unix(0, 0)}
			b.follows[i] = f
		}
		f.target = t
	} else {
		delete(b.follows, i)
	}
	b.stirred = true
}

// mayMove says whether something may still come of a target by itself. How long
// after its end is for forget to say.
func mayMove(t *fleet.Target) bool {
	switch t.State {
	case fleet.TargetCancelled, fleet.TargetSkipped:
		return false
	}
	return t.ActionID != ""
}

// forget stops following targets that ended long ago. Those whose offer was
// taken back are followed as long as the rollout lasts: a host may come back
// with the offer in its pocket.
func (b *board) forget(now time.Time) {
	for i, f := range b.follows {
		switch f.target.State {
		case fleet.TargetSucceeded, fleet.TargetFailed, fleet.TargetRolledBack:
			if f.target.EndedAt != nil && now.Sub(*f.target.EndedAt) > plan.Aftermath {
				delete(b.follows, i)
			}
		}
	}
}

// goingBack is until when a watcher is waited for, zero for none.
func (b *board) goingBack() time.Time {
	var until time.Time
	for _, f := range b.follows {
		if f.back.After(until) {
			until = f.back
		}
	}
	return until
}

// due are the seats whose agents are to be looked at now, in order.
func (b *board) due(heard map[string]bool, all bool, now time.Time) []int32 {
	var seats []int32
	for i, f := range b.follows {
		if all || heard[b.ids[i]] || (!f.due.IsZero() && !now.Before(f.due)) {
			seats = append(seats, i)
		}
	}
	slices.Sort(seats)
	return seats
}

// wantsPresence says whether it matters who is online.
func (b *board) wantsPresence() bool {
	return b.rollout.Plan.LateJoiners == fleet.LateJoin || slices.ContainsFunc(b.seats, func(s plan.Target) bool { return s.State.Waits() })
}

// exposed are the agents that were offered the version and did not run it at the
// last census, by id.
func (b *board) exposed(into map[string]bool) {
	for i := range b.seats {
		if s := b.seats[i].State; (s.InFlight() || s == plan.Succeeded) && !b.runs[i] {
			into[b.ids[i]] = true
		}
	}
}

// urgent says whether the difference between two states of a rollout is more
// than counting.
func urgent(a, b *fleet.Rollout) bool {
	return !plan.TrailOf(a).Same(plan.TrailOf(b)) || a.Generation != b.Generation || len(a.Orders) != len(b.Orders) || a.Forgiven != b.Forgiven ||
		(a.PauseAsked == nil) != (b.PauseAsked == nil) || !plan.SameTime(a.EndedAt, b.EndedAt) || !plan.SameTime(a.RunningSince, b.RunningSince) ||
		len(a.Policies) != len(b.Policies) || len(a.Batches) != len(b.Batches) ||
		!slices.EqualFunc(a.Batches, b.Batches, func(x, y fleet.Batch) bool {
			return plan.SameTime(x.StartedAt, y.StartedAt) && plan.SameTime(x.EndedAt, y.EndedAt) && plan.SameTime(x.ClearedAt, y.ClearedAt)
		})
}
