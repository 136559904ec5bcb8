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
	// views are by component; that of the agents themselves has an empty name.
	views map[string]*view
}

// view is what a snapshot shows of the agents, or of one component of them.
type view struct {
	tally *plan.Tally // nil without an exposure rule
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
	r.fleet.views = map[string]*view{}
	of := map[string][]*runState{}
	for _, run := range runs {
		run.beginSnapshot(now)
		name := run.rollout.Plan.Component
		of[name] = append(of[name], run)
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		v := &view{ordered: map[string]map[string]bool{}}
		if rule.Enabled {
			v.tally = plan.NewTally(rule, now)
		}
		r.fleet.views[name] = v
		if err := r.look(ctx, name, v, of[name], now); err != nil {
			return err
		}
	}
	took := r.now.UTC().Sub(now)
	r.fleet.next = now.Add(max(snapshotInterval, snapshotRest*took))
	return nil
}

// look reads the census of the agents, or of a component, for the rollouts of it.
func (r *Reconciler) look(ctx context.Context, component string, v *view, runs []*runState, now time.Time) error {
	err := store.CensusOf(ctx, r.store.Agents(), component, func(c fleet.Census, _ *fleet.Agent) {
		if v.tally != nil {
			v.tally.Add(c)
		}
		for _, run := range runs {
			if i, ok := run.byAgent[c.ID]; ok {
				run.see(i, c, now)
				if v.tally != nil {
					run.targets[i].Sites = v.tally.Sites(c.Labels)
				}
			} else {
				run.considerJoin(c)
			}
		}
	})
	if err != nil {
		return err
	}
	for _, run := range runs {
		run.endSnapshot()
	}
	return r.readOrdered(ctx, component, v, runs)
}

// readOrdered reads which agents are being upgraded to the versions that the exposure
// rule bounds. It reads nothing for a version that all agents may have.
func (r *Reconciler) readOrdered(ctx context.Context, component string, v *view, runs []*runState) (err error) {
	if v.tally == nil {
		return nil
	}
	for _, run := range runs {
		version := run.rollout.Plan.Version
		if version == "" || v.ordered[version] != nil {
			continue
		}
		if room := v.tally.Budget(version, nil); room.Limit == room.Fleet {
			continue
		}
		if v.ordered[version], err = store.UpgradingTo(ctx, r.store.Agents(), component, version); err != nil {
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
	if run.rollout.Plan.LateJoiners != fleet.LateJoin || run.rollout.State != fleet.RolloutRunning || !c.Active || c.LastCheckin == nil || len(run.joining) >= chunk {
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
	if !t.State.Waits() || c.Active && !t.Runs && c.LastCheckin != nil {
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
		run.updateAvailability(i, agents[run.targets[i].AgentID], now)
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
	component := run.rollout.Plan.Component
	changes = slices.DeleteFunc(changes, func(c update) bool {
		a := agents[c.target.AgentID]
		if plan.Gone(a) != "" {
			return false
		}
		subject := a.Of(component)
		return c.target.ActionID != "" || a.Last.At != nil && subject.Reported && (!has(&subject, &c.target) || run.mayGoOn(&subject, now))
	})
	for k := range changes {
		t := &changes[k].target
		a := agents[t.AgentID]
		switch {
		case plan.Gone(a) != "":
			plan.ChangeState(t, fleet.TargetCancelled, fleet.WhyGone, plan.Gone(a), now)
		case a.Last.At == nil:
			// It has enrolled again since it became a target.
			plan.ChangeState(t, fleet.TargetSkipped, fleet.WhyNeverSeen, "it has never checked in", now)
		case !a.Of(component).Reported:
			plan.ChangeState(t, fleet.TargetSkipped, fleet.WhyNoComponent, "it does not report component "+component+" any more", now)
		default:
			plan.ChangeState(t, fleet.TargetSkipped, fleet.WhySame, "it runs "+t.To+" already", now)
		}
	}
	return r.write(ctx, run, changes)
}

// has reports whether the target's version runs and stays, with the configuration that it was
// to get.
func has(s *fleet.Subject, t *fleet.Target) bool {
	stays := !s.Upgrading() || s.UpgradeTo == t.To
	return s.Version == t.To && stays && (t.Config == "" || t.Config == s.RenderedSHA256())
}

// room returns how far the version of a rollout may spread, nil without a rule.
func (r *Reconciler) room(run *runState) *plan.Room {
	component, version := run.rollout.Plan.Component, run.rollout.Plan.Version
	v := r.fleet.views[component]
	if v == nil || v.tally == nil || version == "" {
		return nil
	}
	offered := maps.Clone(v.ordered[version])
	if offered == nil {
		offered = map[string]bool{}
	}
	for _, other := range r.runs {
		if other.rollout.Plan.Component == component && other.rollout.Plan.Version == version {
			other.exposed(offered)
		}
	}
	return v.tally.Budget(version, offered)
}
