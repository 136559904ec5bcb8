package reconcile

import (
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
)

// rejoinInterval is how long an agent that did not join is ignored, unless something
// about it changes.
const rejoinInterval = 5 * time.Minute

// snapshot is the fleet as of the latest census.
type snapshot struct {
	next    time.Time // when the next is due
	freezes []fleet.Freeze
	tally   *plan.Tally // nil without an exposure rule
	// ordered are the agents that are being upgraded, by version, whoever ordered it. It
	// has the versions of rollouts that the exposure rule bounds.
	ordered map[string]map[string]bool
}

// takeSnapshot reads the census, if that is due and a rollout needs it.
func (r *Reconciler) takeSnapshot(ctx context.Context, runs []*runState) error {
	now := r.now.UTC()
	due := !now.Before(r.fleet.next)
	if !slices.ContainsFunc(runs, func(run *runState) bool { return !run.taken || (due && run.needsSnapshot()) }) {
		return nil
	}
	var err error
	if r.fleet.freezes, _, err = r.store.Freezes().List(ctx, 0, 0); err != nil {
		return err
	}
	rule, err := r.store.ExposureRules().Get(ctx, fleet.ExposureRuleID)
	if err != nil && fleet.KindOf(err) != fleet.NotFound {
		return err
	}
	r.fleet.tally = nil
	if rule.Enabled {
		r.fleet.tally = plan.NewTally(rule, now)
	}
	for _, run := range runs {
		run.beginSnapshot(now)
	}
	if err := r.store.Agents().Census(ctx, func(c fleet.Census) {
		if r.fleet.tally != nil {
			r.fleet.tally.Add(c)
		}
		for _, run := range runs {
			if i, ok := run.byAgent[c.ID]; ok {
				run.see(i, c, now)
				if r.fleet.tally != nil {
					run.targets[i].Sites = r.fleet.tally.Sites(c.Labels)
				}
			} else {
				run.considerJoin(c)
			}
		}
	}); err != nil {
		return err
	}
	for _, run := range runs {
		run.endSnapshot()
	}
	if err := r.readOrdered(ctx, runs); err != nil {
		return err
	}
	took := r.now.UTC().Sub(now)
	r.fleet.next = now.Add(max(snapshotInterval, snapshotRest*took))
	return nil
}

// readOrdered reads which agents are being upgraded to the versions that the exposure
// rule bounds. It reads nothing for a version that all agents may have.
func (r *Reconciler) readOrdered(ctx context.Context, runs []*runState) (err error) {
	r.fleet.ordered = map[string]map[string]bool{}
	if r.fleet.tally == nil {
		return nil
	}
	for _, run := range runs {
		version := run.rollout.Plan.Version
		if version == "" || r.fleet.ordered[version] != nil {
			continue
		}
		if room := r.fleet.tally.Budget(version, nil); room.Limit == room.Fleet {
			continue
		}
		if r.fleet.ordered[version], err = store.UpgradingTo(ctx, r.store.Agents(), version); err != nil {
			return err
		}
	}
	return nil
}

func (run *runState) beginSnapshot(now time.Time) {
	run.taken, run.confirmed, run.dirty = true, false, true
	run.ended, run.joining = nil, nil
	for i := range run.targets {
		run.targets[i].Seen = false
	}
	if run.ignored == nil || now.Sub(run.ignoredAt) >= rejoinInterval {
		run.ignored, run.ignoredAt = map[string]uint64{}, now
	}
}

var ignoredSeed = maphash.MakeSeed()

// considerJoin records an agent that is not a target and might become one.
func (run *runState) considerJoin(c fleet.Census) {
	if run.rollout.Plan.LateJoiners != fleet.LateJoin || run.rollout.State != fleet.RolloutRunning || !c.Active || len(run.joining) >= chunk {
		return
	}
	sum := maphash.String(ignoredSeed, c.Version+"\x00"+c.PolicyID+"\x00"+c.Labels)
	if run.ignored[c.ID] != sum {
		run.ignored[c.ID] = sum
		run.joining = append(run.joining, c.ID)
	}
}

// see updates a target from its agent's entry in the census.
func (run *runState) see(i int32, c fleet.Census, now time.Time) {
	t := &run.targets[i]
	t.Seen, t.Runs = true, c.Version == run.rollout.Plan.Version
	t.Online = c.Active && c.LastCheckin != nil && now.Sub(*c.LastCheckin) <= fleet.OfflineAfter
	if !t.State.Waits() || c.Active && !t.Runs {
		return
	}
	if f := run.tracked[i]; f != nil {
		f.due = now // it may have continued with an earlier offer
	}
	if len(run.ended) < chunk {
		run.ended = append(run.ended, i)
	}
}

// endSnapshot records the waiting targets whose agents are not in the census.
func (run *runState) endSnapshot() {
	for i := range run.targets {
		if t := &run.targets[i]; t.State.Waits() && !t.Seen && len(run.ended) < chunk {
			run.ended = append(run.ended, int32(i))
		}
	}
}

// confirm reads the agents' documents to confirm what the snapshot showed: which
// targets ended, which agents join, and whether busy agents still are.
func (r *Reconciler) confirm(ctx context.Context, run *runState) error {
	if run.confirmed {
		return nil
	}
	run.confirmed = true
	if err := r.confirmEnded(ctx, run); err != nil {
		return err
	}
	if len(run.joining) > 0 {
		if err := r.join(ctx, run); err != nil {
			return err
		}
	}
	var busy []int32
	for i := range run.targets {
		if t := &run.targets[i]; t.Busy && t.State.Waits() && len(busy) < chunk {
			busy = append(busy, int32(i))
		}
	}
	if len(busy) == 0 {
		return nil
	}
	agents, err := r.agents(ctx, run, busy)
	if err != nil {
		return err
	}
	now := r.now.UTC()
	for _, i := range busy {
		run.updatePresence(i, agents[run.targets[i].AgentID], now)
	}
	return nil
}

// confirmEnded ends targets whose agents are gone, or run the version already.
func (r *Reconciler) confirmEnded(ctx context.Context, run *runState) error {
	which := slices.DeleteFunc(run.ended, func(i int32) bool { return !run.targets[i].State.Waits() })
	run.ended = nil
	if len(which) == 0 {
		return nil
	}
	agents, err := r.agents(ctx, run, which)
	if err != nil {
		return err
	}
	changes, err := r.documents(ctx, run, which)
	if err != nil {
		return err
	}
	now := r.now.UTC()
	changes = slices.DeleteFunc(changes, func(c update) bool {
		a := agents[c.target.AgentID]
		return a != nil && a.Active && (a.Version != c.target.To || c.target.ActionID != "")
	})
	for k := range changes {
		t := &changes[k].target
		if a := agents[t.AgentID]; a == nil || !a.Active {
			plan.ChangeState(t, fleet.TargetCancelled, fleet.WhyGone, "the agent is unenrolled", now)
		} else {
			plan.ChangeState(t, fleet.TargetSkipped, fleet.WhySame, "it runs "+a.Version+" already", now)
		}
	}
	return r.write(ctx, run, changes)
}

// room returns how far the version of a rollout may spread, nil without a rule.
func (r *Reconciler) room(run *runState) *plan.Room {
	version := run.rollout.Plan.Version
	if r.fleet.tally == nil || version == "" {
		return nil
	}
	offered := maps.Clone(r.fleet.ordered[version])
	if offered == nil {
		offered = map[string]bool{}
	}
	for _, other := range r.runs {
		if other.rollout.Plan.Version == version {
			other.exposed(offered)
		}
	}
	return r.fleet.tally.Budget(version, offered)
}
