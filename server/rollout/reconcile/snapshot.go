package reconcile

import (
	"context"
	"hash/maphash"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// strangerRest is how long an agent that does not join is left alone, unless
// something about it changes.
const strangerRest = 5 * time.Minute

// sighting is the fleet as the last census showed it.
type sighting struct {
	count   uint32 // of censuses
	next    time.Time
	freezes []fleet.Freeze
	tally   *plan.Tally // nil without an exposure rule
}

// look counts the fleet, when it is time and somebody wants to know.
func (r *Reconciler) look(ctx context.Context, boards []*board) error {
	now := r.Now.UTC()
	due := !now.Before(r.fleet.next)
	if !slices.ContainsFunc(boards, func(b *board) bool { return !b.seen || (due && b.wantsPresence()) }) {
		return nil
	}
	var err error
	if r.fleet.freezes, _, err = r.Store.Freezes().List(ctx, 0, 0); err != nil {
		return err
	}
	rule, err := r.Store.ExposureRules().Get(ctx, fleet.ExposureRuleID)
	if err != nil && fleet.KindOf(err) != fleet.NotFound {
		return err
	}
	r.fleet.tally = nil
	if rule.Enabled {
		r.fleet.tally = plan.NewTally(rule, now)
	}
	r.fleet.count++
	for _, b := range boards {
		b.expect(now)
	}
	if err := r.Store.Agents().Census(ctx, func(c fleet.Census) {
		if r.fleet.tally != nil {
			r.fleet.tally.Add(c)
		}
		for _, b := range boards {
			if i, ok := b.index[c.ID]; ok {
				b.sight(i, c, r.fleet.count, now)
				if r.fleet.tally != nil {
					b.seats[i].Sites = r.fleet.tally.Sites(c.Labels)
				}
			} else {
				b.pass(c)
			}
		}
	}); err != nil {
		return err
	}
	for _, b := range boards {
		b.miss(r.fleet.count)
	}
	took := r.Now.UTC().Sub(now)
	r.fleet.next = now.Add(max(lookInterval, lookRest*took))
	return nil
}

// expect makes a board ready for a census.
func (b *board) expect(now time.Time) {
	b.seen, b.attended, b.stirred = true, false, true
	b.doubtful, b.strangers = nil, nil
	if b.strange == nil || now.Sub(b.strangeAt) >= strangerRest {
		b.strange, b.strangeAt = map[string]uint64{}, now
	}
}

var strangerSeed = maphash.MakeSeed()

// pass takes in an agent of a census that is no target, but might become one.
func (b *board) pass(c fleet.Census) {
	if b.rollout.Plan.LateJoiners != fleet.LateJoin || b.rollout.State != fleet.RolloutRunning || !c.Active || len(b.strangers) >= chunk {
		return
	}
	sum := maphash.String(strangerSeed, c.Version+"\x00"+c.PolicyID+"\x00"+c.Labels)
	if b.strange[c.ID] != sum {
		b.strange[c.ID] = sum
		b.strangers = append(b.strangers, c.ID)
	}
}

// sight takes in the agent of a seat.
func (b *board) sight(i int32, c fleet.Census, count uint32, now time.Time) {
	b.sights[i], b.runs[i] = count, c.Version == b.rollout.Plan.Version
	seat := &b.seats[i]
	seat.Online = c.Active && c.LastCheckin != nil && now.Sub(*c.LastCheckin) <= fleet.OfflineAfter
	if !seat.State.Waits() || c.Active && !b.runs[i] {
		return
	}
	if f := b.follows[i]; f != nil {
		f.due = now // it may have gone on with an earlier offer
	}
	if len(b.doubtful) < chunk {
		b.doubtful = append(b.doubtful, i)
	}
}

// miss notes the seats whose agents the census did not show.
func (b *board) miss(count uint32) {
	for i := range b.seats {
		if b.seats[i].State.Waits() && b.sights[i] != count && len(b.doubtful) < chunk {
			b.doubtful = append(b.doubtful, int32(i))
		}
	}
}

// attend confirms what a census found, by the documents of the agents.
func (r *Reconciler) attend(ctx context.Context, b *board) error {
	if b.attended {
		return nil
	}
	b.attended = true
	if err := r.confirm(ctx, b); err != nil {
		return err
	}
	if len(b.strangers) > 0 {
		if err := r.join(ctx, b); err != nil {
			return err
		}
	}
	busy := make([]int32, 0, min(len(b.busy), chunk))
	for i := range b.busy {
		if b.seats[i].State.Waits() && len(busy) < chunk {
			busy = append(busy, i)
		}
	}
	if len(busy) == 0 {
		return nil
	}
	slices.Sort(busy)
	agents, err := r.agents(ctx, b, busy)
	if err != nil {
		return err
	}
	now := r.Now.UTC()
	for _, i := range busy {
		b.sees(i, agents[b.ids[i]], now)
	}
	return nil
}

// confirm ends targets whose agents are gone, or run the version already.
func (r *Reconciler) confirm(ctx context.Context, b *board) error {
	seats := slices.DeleteFunc(b.doubtful, func(i int32) bool { return !b.seats[i].State.Waits() })
	b.doubtful = nil
	if len(seats) == 0 {
		return nil
	}
	agents, err := r.agents(ctx, b, seats)
	if err != nil {
		return err
	}
	changes, err := r.targets(ctx, b, seats)
	if err != nil {
		return err
	}
	now := r.Now.UTC()
	changes = slices.DeleteFunc(changes, func(c change) bool {
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
	return r.write(ctx, b, changes)
}

// room is how far the version of a rollout may spread, nil without a rule.
func (r *Reconciler) room(b *board) *plan.Room {
	version := b.rollout.Plan.Version
	if r.fleet.tally == nil || version == "" {
		return nil
	}
	offered := map[string]bool{}
	for _, other := range r.boards {
		if other.rollout.Plan.Version == version {
			other.exposed(offered)
		}
	}
	return r.fleet.tally.Budget(version, offered)
}
