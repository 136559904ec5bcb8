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

// runState is this server's copy of a rollout that it works on: every target in short
// form, and the documents of the tracked ones. The store is authoritative: after a
// failed write or a conflict the run state is dropped and loaded again.
type runState struct {
	rollout fleet.Rollout
	targets []plan.Target    // in the order of their batches
	byAgent map[string]int32 // index into targets, by agent
	// tracked are the targets whose agents are assessed, by index: those in flight, and
	// those that ended and may still continue or be rolled back.
	tracked map[int32]*tracked
	// pendingOffers are targets whose offer is written and whose action may not exist
	// yet, by action.
	pendingOffers map[string][]int32
	groups        plan.GroupNumbers
	// lastOffer is the highest number in an action id of this rollout.
	lastOffer int

	fromSnapshot
	lockstepState

	// asked means that this server has seen the actions by which the targets stage the version,
	// and answersDue is when to look for their answers again.
	asked      bool
	answersDue time.Time

	dirty         bool      // something changed since the last decision
	next          time.Time // to decide again at the latest
	written       time.Time // when the rollout's document was written last
	countsPending bool      // its counts differ from those written
	progress      time.Time // when an event of progress was published last
	published     fleet.Counts
	trail         plan.TrailData
	events        []fleet.Event
}

// fromSnapshot is what the latest snapshot of the fleet showed and the documents of the
// agents must confirm.
type fromSnapshot struct {
	taken     bool // there was a snapshot
	confirmed bool // and all of the following was confirmed
	// ended are waiting targets whose agents seem to be gone, or to run the
	// version already.
	ended []int32
	// joining are agents that are not targets and may match the selector.
	joining []string
	// ignored are agents that did not join, by a hash of what the snapshot showed
	// of them.
	ignored   map[string]uint64
	ignoredAt time.Time
}

// tracked is a target whose agent is assessed.
type tracked struct {
	target fleet.Target
	due    time.Time // when to assess it at the latest; zero: when its agent reports
	// Until when to wait for its watcher, and for its host to confirm that the offer was withdrawn; see
	// plan.RollbackDeadline, plan.WatchDeadline and plan.CancelDeadline.
	back, watched, cancelled time.Time
}

// load reads a rollout and its targets.
func load(ctx context.Context, s store.Store, id string) (*runState, error) {
	r, err := s.Rollouts().Get(ctx, id)
	if err != nil {
		return nil, err
	}
	run := &runState{
		rollout: r, byAgent: map[string]int32{}, tracked: map[int32]*tracked{}, pendingOffers: map[string][]int32{},
		dirty: true, published: r.Counts, trail: plan.TrailOf(&r),
	}
	if err := s.Targets().Each(ctx, id, run.add); err != nil {
		return nil, err
	}
	return run, nil
}

// add appends a target.
func (run *runState) add(doc fleet.Target) {
	i := int32(len(run.targets))
	run.targets = append(run.targets, plan.Target{
		AgentID: doc.AgentID, Ring: int16(doc.Ring), Batch: int32(doc.Batch), Groups: run.groups.Of(&doc, &run.rollout.Plan), Sites: plan.NoSites,
	})
	run.byAgent[doc.AgentID] = i
	if plan.Together(run.rollout.Plan.Strategy.Kind) {
		run.names = append(run.names, doc.Hostname)
	}
	run.apply(i, doc)
	for _, id := range append(doc.ActionIDs, doc.ActionID) {
		run.lastOffer = max(run.lastOffer, offerNumber(id))
	}
	if doc.State == fleet.TargetOffered {
		run.pendingOffers[doc.ActionID] = append(run.pendingOffers[doc.ActionID], i)
	}
}

// offerNumber is the last part of the id of an offer; see offerID.
func offerNumber(actionID string) int {
	n, _ := strconv.Atoi(actionID[strings.LastIndexByte(actionID, '-')+1:])
	return n
}

// apply updates a target from its stored document.
func (run *runState) apply(i int32, doc fleet.Target) {
	t := &run.targets[i]
	t.State, t.Code, t.Attempts, t.Expires, t.Since = plan.StateOf(doc.State), plan.CodeOf(doc.Code), uint8(min(doc.Attempts, 255)), 0, 0
	t.Reached = plan.ReachedNumber(doc.Reached)
	if doc.ExpiresAt != nil && doc.State == fleet.TargetHeld {
		t.Expires = doc.ExpiresAt.UnixNano()
	}
	for k := len(doc.History) - 1; k >= 0 && doc.History[k].State == doc.State; k-- {
		t.Since = doc.History[k].At.UnixNano()
	}
	if f := run.tracked[i]; doc.ActionID != "" { // else nothing can have been delivered
		if f == nil {
			f = &tracked{due: time.Unix(0, 0)}
			run.tracked[i] = f
		}
		if plan.CalledOff(doc.State) && f.target.State != doc.State {
			f.due = time.Unix(0, 0) // is there a host that has to confirm it?
		}
		f.target = doc
	} else {
		delete(run.tracked, i)
	}
	run.dirty = true
}

// untrack drops targets whose end no later report corrects. All others stay tracked as long as the
// rollout lasts: their agents may carry out the offer when they are back, or go on.
func (run *runState) untrack(now time.Time) {
	for i, f := range run.tracked {
		if plan.Final(&f.target, now) {
			delete(run.tracked, i)
		}
	}
}

// deadlines sets until when the rollout waits for hosts before it ends.
func (run *runState) deadlines(w *plan.World, now time.Time) {
	for _, f := range run.tracked {
		w.RollbackDeadline = later(w.RollbackDeadline, f.back)
		w.WatchDeadline = later(w.WatchDeadline, f.watched)
		w.CancelDeadline = later(w.CancelDeadline, f.cancelled)
		if f.cancelled.After(now) {
			w.Unconfirmed++
		}
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// due returns the targets to assess now, in order.
func (run *runState) due(reported map[string]bool, all bool, now time.Time) []int32 {
	var which []int32
	for i, f := range run.tracked {
		if all || reported[run.targets[i].AgentID] || (!f.due.IsZero() && !now.Before(f.due)) {
			which = append(which, i)
		}
	}
	slices.Sort(which)
	return which
}

// assessAll makes all tracked targets due.
func (run *runState) assessAll() {
	for _, f := range run.tracked {
		f.due = time.Unix(0, 0)
	}
}

// needsSnapshot reports whether the rollout depends on which agents are online.
func (run *runState) needsSnapshot() bool {
	return run.rollout.Plan.LateJoiners == fleet.LateJoin || slices.ContainsFunc(run.targets, func(t plan.Target) bool { return t.State.Waits() })
}

// exposed adds the agents that were offered the version and did not run it in the
// latest snapshot.
func (run *runState) exposed(into map[string]bool) {
	for i := range run.targets {
		if t := &run.targets[i]; (t.State.InFlight() || t.State == plan.Succeeded) && !t.Runs {
			into[t.AgentID] = true
		}
	}
}

// counts returns the number of targets by state.
func (run *runState) counts() fleet.Counts {
	var c fleet.Counts
	for i := range run.targets {
		c.Add(run.targets[i].State.Name())
		if run.targets[i].Refused() {
			c.Refused++
		}
	}
	return c
}

// urgent reports whether two states of a rollout differ in more than counts.
func urgent(was, is *fleet.Rollout) bool {
	return !plan.TrailOf(was).Same(plan.TrailOf(is)) || was.Generation != is.Generation || len(was.Orders) != len(is.Orders) || was.Forgiven != is.Forgiven ||
		(was.PauseAsked == nil) != (is.PauseAsked == nil) || !plan.SameTime(was.EndedAt, is.EndedAt) || !plan.SameTime(was.RunningSince, is.RunningSince) ||
		(was.Staging == nil) != (is.Staging == nil) || len(was.Policies) != len(is.Policies) || len(was.Batches) != len(is.Batches) ||
		!slices.EqualFunc(was.Batches, is.Batches, func(x, y fleet.Batch) bool {
			return plan.SameTime(x.StartedAt, y.StartedAt) && plan.SameTime(x.EndedAt, y.EndedAt) && plan.SameTime(x.ClearedAt, y.ClearedAt)
		})
}
