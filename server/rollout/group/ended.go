package group

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// endedAtOnce is how many groups that ended long ago are compared with their members when all groups
// are read. Reports so late are rare, and each group costs a read of each member.
const endedAtOnce = 5

// Corrected returns the document of a group that has ended as its members are now, since hosts that
// report later correct rollouts after their end. It is nil if the document says so already.
func Corrected(given *fleet.RolloutGroup, seen []Seen, now time.Time) *fleet.RolloutGroup {
	if !given.State.Ended() {
		return nil
	}
	d := decider{g: *given, seen: seen, now: now}
	d.g.Members = slices.Clone(given.Members)
	for i := range d.g.Members {
		m, r := &d.g.Members[i], seen[i].Rollout
		switch {
		case m.RolloutID == "" || r == nil || !r.State.Ended():
		case d.g.RollingBack != nil:
			d.backAgain(m, seen[i])
		case follows(m, r, d.g.State):
			d.endAgain(i)
		}
	}
	switch {
	case d.g.RollingBack != nil:
		d.g.State = d.backState()
	case given.State != fleet.GroupCancelled:
		d.g.State = d.endState()
	}
	if reflect.DeepEqual(&d.g, given) {
		return nil
	}
	if d.g.State != given.State {
		d.g.Generation++
	}
	return &d.g
}

// follows reports whether the state of a member is what its rollout came to. A member that was skipped,
// or that failed before its rollout was cancelled for it, is what was decided.
func follows(m *fleet.GroupMember, r *fleet.Rollout, group fleet.GroupState) bool {
	switch m.State {
	case fleet.MemberCompleted:
		return true
	case fleet.MemberFailed:
		return isDone(m) || r.State == fleet.RolloutCompleted || r.State == fleet.RolloutFailed
	case fleet.MemberCancelled:
		return group == fleet.GroupCancelled
	}
	return false
}

// endAgain sets the state of a member whose rollout was corrected.
func (d *decider) endAgain(i int) {
	m := &d.g.Members[i]
	done, ended := isDone(m), m.EndedAt
	d.end(m, d.seen[i].Rollout)
	m.EndedAt = ended
	if done && !isDone(m) && !d.latest(i) { // too late to stop the group, but not to say it
		m.State, m.Tolerated = fleet.MemberFailed, true
	}
}

// backAgain sets the state of a member that was rolled back, or could not be.
func (d *decider) backAgain(m *fleet.GroupMember, seen Seen) {
	failed := m.State == fleet.MemberRollbackFailed
	switch {
	case !failed && m.State != fleet.MemberRolledBack && !m.NothingBack:
	case m.NothingBack:
		nothingBack(m, seen)
	case seen.Rollback == nil || !seen.Rollback.State.Ended():
	default:
		back(m, seen)
		if failed && m.State == fleet.MemberRolledBack {
			m.Error = ""
		}
	}
}

// correctEnded compares groups that have ended with their members: all that ended within the time in
// which hosts report late, and some others, in turn.
func (s *Service) correctEnded(ctx context.Context, all []fleet.RolloutGroup, now time.Time) error {
	var due, others []*fleet.RolloutGroup
	for i := range all {
		g := &all[i]
		switch {
		case !g.State.Ended():
		case g.EndedAt != nil && now.Sub(*g.EndedAt) <= plan.LateReportWindow:
			due = append(due, g)
		default:
			others = append(others, g)
		}
	}
	for n := range min(endedAtOnce, len(others)) {
		due = append(due, others[(s.nextEnded+n)%len(others)])
	}
	s.nextEnded += endedAtOnce
	for _, g := range due {
		seen, err := s.look(ctx, g)
		if err != nil {
			return fmt.Errorf("%s, which has ended: %w", title(g), err)
		}
		next := Corrected(g, seen, now)
		if next == nil {
			continue
		}
		if err := s.write(ctx, g, next, now); err != nil && fleet.KindOf(err) != fleet.Conflict { // or the next read finds it again
			return fmt.Errorf("%s, which has ended: %w", title(g), err)
		}
	}
	return nil
}
