package group

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/sequence"
)

// Rollback is done with the rollout of a member besides what all owners of a sequence do.
const Rollback sequence.Act = "roll back"

// Seen is what a decision depends on of the rollouts of one member.
type Seen struct {
	Rollout  *fleet.Rollout // nil: there is none
	Rollback *fleet.Rollout // the one that rolls Rollout back; nil: there is none
	// Stuck names hosts that neither run the version that Rollout gave them nor could go back. They
	// matter, and are known, only while the group is rolled back.
	Stuck []string
}

// Decision is the next step of a group.
type Decision struct {
	// Next is the group's new document. If it is not nil, it is written, and nothing else
	// is done in this step: effects are written before they are executed.
	Next   *fleet.RolloutGroup
	Act    sequence.Act
	Member int // the member that Act is about
	// Text says what the group waits for or does, and Until when the wait ends by itself.
	Text  string
	Until *time.Time
}

// RolloutID returns the id of the rollout of a member. It is derived, so that a crash
// after the rollout was created does not create another.
func RolloutID(groupID string, member int) string { return groupID + "-" + strconv.Itoa(member+1) }

// Decide returns the next step of a group. seen has the rollouts of each member.
func Decide(given *fleet.RolloutGroup, seen []Seen, now time.Time) Decision {
	if !given.State.Active() {
		return Decision{}
	}
	d := decider{g: *given, seen: seen, now: now}
	d.g.Members = slices.Clone(given.Members)
	d.observe()
	var out Decision
	switch d.g.State {
	case fleet.GroupRollingBack:
		out = d.rollBack()
	case fleet.GroupCancelling:
		out = d.cancel()
	case fleet.GroupPaused:
		out = d.paused()
	default:
		out = d.run()
	}
	if !reflect.DeepEqual(&d.g, given) {
		if d.g.State != given.State {
			d.g.Generation++
		}
		out.Act, out.Next = sequence.Wait, &d.g
	}
	return out
}

type decider struct {
	g    fleet.RolloutGroup
	seen []Seen
	now  time.Time
}

// observe sets the states of members from those of their rollouts.
func (d *decider) observe() {
	for i := range d.g.Members {
		m, r := &d.g.Members[i], d.seen[i].Rollout
		switch {
		case r == nil && m.State == fleet.MemberRunning:
			m.State, m.Error = fleet.MemberFailed, "its rollout no longer exists"
			continue
		case r == nil || r.State == fleet.RolloutDraft:
			continue
		}
		m.RolloutID = r.ID
		switch m.State {
		case fleet.MemberPending:
			m.State = fleet.MemberRunning
			fallthrough
		case fleet.MemberRunning:
			if r.State.Ended() && d.g.RollingBack == nil {
				d.end(m, r)
			}
		default:
			// Reports of hosts still correct a rollout for a while after its end.
			if isDone(m) && r.State.Ended() && d.g.RollingBack == nil {
				d.endAgain(i)
			}
		}
	}
}

// isDone reports whether the next member may begin. A member some of whose agents failed is failed
// even then: the worst member decides the state of a group.
func isDone(m *fleet.GroupMember) bool {
	return m.State == fleet.MemberCompleted || m.State == fleet.MemberFailed && m.Tolerated
}

// failures returns how many agents a rollout has not brought to its version although nobody left
// them out.
func failures(r *fleet.Rollout) int { return r.Counts.Bad() + r.Counts.Refused }

func failuresText(r *fleet.Rollout) string {
	return fmt.Sprintf("%d of %s failed", failures(r), plan.Count(r.Counts.Total, "agent", "agents"))
}

// end sets the state of a member whose rollout has ended.
func (d *decider) end(m *fleet.GroupMember, r *fleet.Rollout) {
	m.EndedAt = r.EndedAt
	if m.EndedAt == nil {
		m.EndedAt = &d.now
	}
	m.Error, m.Tolerated = "", false
	switch {
	case sequence.Passed(r) && failures(r) == 0:
		m.State = fleet.MemberCompleted
	case sequence.Passed(r):
		m.State, m.Tolerated, m.Error = fleet.MemberFailed, true, failuresText(r)
	case (d.g.State == fleet.GroupCancelling || d.g.State == fleet.GroupCancelled) && failures(r) == 0:
		m.State = fleet.MemberCancelled
	default:
		m.State, m.Error = fleet.MemberFailed, map[fleet.RolloutState]string{
			fleet.RolloutCancelled: "its rollout was cancelled", fleet.RolloutRolledBack: "its rollout was rolled back",
		}[r.State]
		if m.Error == "" {
			m.Error = failuresText(r) + ", which is more than its plan tolerates"
		}
	}
}

// latest reports whether no member after this one has begun.
func (d *decider) latest(i int) bool {
	for j := i + 1; j < len(d.g.Members); j++ {
		if d.seen[j].Rollout != nil || d.g.Members[j].State != fleet.MemberPending {
			return false
		}
	}
	return true
}

// run continues with the first member that is not done.
func (d *decider) run() Decision {
	step := sequence.Decide(d.items(), d.now)
	if step.Status == sequence.Over {
		d.finish()
		return Decision{}
	}
	i, m := step.Item, &d.g.Members[step.Item]
	switch step.Status {
	case sequence.Soaks:
		d.resumed()
		return Decision{Member: i, Text: fmt.Sprintf("member %s is left to show its health before the next is upgraded", m.Name), Until: &step.Until}
	case sequence.Ends:
		return d.ends(i, step.Act)
	case sequence.Fails:
		return d.failed(i, m.Error)
	case sequence.Follows:
		return d.follow(i)
	}
	d.resumed()
	return Decision{Act: sequence.Begin, Member: i, Text: fmt.Sprintf("member %s is started", m.Name)}
}

// items returns the members as a sequence.
func (d *decider) items() []sequence.Item {
	items := make([]sequence.Item, len(d.g.Members))
	for i := range items {
		m, it := &d.g.Members[i], &items[i]
		it.Rollout = d.seen[i].Rollout
		switch {
		case isDone(m):
			it.Mark, it.EndedAt, it.Soak = sequence.Done, *m.EndedAt, d.g.Plan.Members[i].Soak.D()
		case m.State == fleet.MemberSkipped:
			it.Mark = sequence.LeftOut
		case m.State == fleet.MemberFailed:
			it.Mark = sequence.Failed
		case m.State == fleet.MemberRunning:
			it.Mark = sequence.Running
		}
	}
	return items
}

// resumed ends the order to resume.
func (d *decider) resumed() {
	if d.g.Resume != nil {
		d.g.Resume, d.g.Stop = nil, nil
	}
}

// follow waits for the rollout of a member, or reacts to its failure.
func (d *decider) follow(i int) Decision {
	m, r := &d.g.Members[i], d.seen[i].Rollout
	trouble := sequence.Trouble(r)
	if d.g.Resume != nil {
		// The order accepts the failure that stopped the group, and no other one.
		accepted := d.g.Stop != nil && d.g.Stop.Kind == fleet.GroupStopFailure && d.g.Stop.Member == m.Name
		if r.State == fleet.RolloutPaused && (trouble == "" || accepted) || r.PauseAsked != nil {
			return Decision{Act: sequence.Resume, Member: i, Text: fmt.Sprintf("the rollout of member %s is resumed", m.Name)}
		}
		d.resumed()
	}
	if trouble != "" {
		return d.failed(i, trouble)
	}
	step := Decision{Member: i, Text: fmt.Sprintf("member %s is being upgraded", m.Name)}
	if r.State == fleet.RolloutPaused {
		step.Text = fmt.Sprintf("the rollout of member %s is paused: resume it", m.Name)
	}
	if len(r.Waiting) > 0 {
		step.Text, step.Until = fmt.Sprintf("member %s: %s", m.Name, r.Waiting[0].Text), r.Waiting[0].Until
	}
	return step
}

// failed does what the failure policy says.
func (d *decider) failed(i int, text string) Decision {
	m := &d.g.Members[i]
	stop := func() {
		if d.g.Stop == nil || d.g.Stop.Kind != fleet.GroupStopFailure || d.g.Stop.Member != m.Name || d.g.Stop.Text != text {
			d.g.Stop = &fleet.GroupStop{Kind: fleet.GroupStopFailure, Text: text, By: system, At: d.now, Member: m.Name}
		}
	}
	switch d.g.Plan.FailurePolicy {
	case fleet.RollbackAll:
		stop()
		m.State, m.Error = fleet.MemberFailed, text
		d.g.State, d.g.Resume = fleet.GroupRollingBack, nil
		d.g.RollingBack = &fleet.Decision{By: system, At: d.now, Why: fmt.Sprintf("member %s failed: %s", m.Name, text)}
		return Decision{Member: i, Text: "all members are rolled back"}
	case fleet.PartialOK:
		stop()
		m.State, m.Error = fleet.MemberFailed, text
		if over, step := d.clear(i); !over {
			return step
		}
		d.finish()
		return Decision{Member: i}
	}
	stop()
	d.g.State, d.g.Resume = fleet.GroupPaused, nil
	return Decision{Member: i, Text: text}
}

// clear ends the rollout of a member that is left out. over reports that it has ended.
func (d *decider) clear(i int) (over bool, step Decision) {
	act, over := sequence.End(d.seen[i].Rollout)
	if over {
		return true, Decision{Member: i}
	}
	return false, d.ends(i, act)
}

// ends describes how the rollout of a member is ended.
func (d *decider) ends(i int, act sequence.Act) Decision {
	text := map[sequence.Act]string{
		sequence.Discard: "the draft of member %s is deleted",
		sequence.Begin:   "the interrupted start of member %s is completed, to be cancelled",
		sequence.Wait:    "the rollout of member %s is being cancelled",
		sequence.Cancel:  "the rollout of member %s is cancelled",
	}[act]
	return Decision{Act: act, Member: i, Text: fmt.Sprintf(text, d.g.Members[i].Name)}
}

// finish ends a group that is done with its members.
func (d *decider) finish() {
	for i := range d.g.Members {
		if m := &d.g.Members[i]; m.State == fleet.MemberPending {
			m.State = fleet.MemberCancelled
		}
	}
	d.over(d.endState())
}

// endState returns the state of a group that is done with its members. It has completed only if no
// agent of any member has failed.
func (d *decider) endState() fleet.GroupState {
	completed, tolerated, failed := 0, 0, 0
	for i := range d.g.Members {
		switch m := &d.g.Members[i]; m.State {
		case fleet.MemberCompleted:
			completed++
		case fleet.MemberFailed:
			failed++
			if m.Tolerated {
				tolerated++
			}
		}
	}
	switch {
	case completed == len(d.g.Members):
		return fleet.GroupCompleted
	case completed+tolerated > 0:
		return fleet.GroupPartial
	case failed > 0:
		return fleet.GroupFailed
	}
	return fleet.GroupCancelled // all were skipped
}

func (d *decider) over(state fleet.GroupState) {
	d.g.State, d.g.EndedAt, d.g.Resume = state, &d.now, nil
}

// cancel ends the rollouts that are active, and then the group.
func (d *decider) cancel() Decision {
	for i := range slices.Backward(d.g.Members) {
		if over, step := d.clear(i); !over {
			return step
		}
	}
	for i := range d.g.Members {
		if m := &d.g.Members[i]; m.State == fleet.MemberPending {
			m.State = fleet.MemberCancelled
		}
	}
	d.over(fleet.GroupCancelled)
	return Decision{}
}

// paused pauses the rollouts of a group that an operator has paused. If something else
// stopped the group, the rollout has stopped as well, or there is none.
func (d *decider) paused() Decision {
	step := Decision{Text: "it is paused"}
	stop := d.g.Stop
	if stop == nil {
		return step
	}
	step.Text = stop.Text
	if stop.Kind != fleet.GroupStopOperator || d.g.RollingBack != nil {
		return step
	}
	for i := range d.g.Members {
		r := d.seen[i].Rollout
		if r != nil && r.State == fleet.RolloutRunning && (r.PauseAsked == nil || stop.AtOnce) {
			step.Act, step.Member = sequence.Pause, i
			return step
		}
	}
	return step
}

// rollBack rolls back the members whose rollouts have begun, one after the other, the last
// one first.
func (d *decider) rollBack() Decision {
	for i := range slices.Backward(d.g.Members) {
		if over, step := d.rollBackOne(i); !over {
			step.Member = i
			return step
		}
	}
	d.over(d.backState())
	return Decision{}
}

// backState returns the state of a group whose members are rolled back.
func (d *decider) backState() fleet.GroupState {
	for i := range d.g.Members {
		if s := d.g.Members[i].State; s == fleet.MemberRollbackFailed || s == fleet.MemberKept {
			return fleet.GroupFailed
		}
	}
	return fleet.GroupRolledBack
}

func (d *decider) rollBackOne(i int) (over bool, step Decision) {
	m, r, b := &d.g.Members[i], d.seen[i].Rollout, d.seen[i].Rollback
	switch m.State {
	case fleet.MemberRolledBack, fleet.MemberRollbackFailed:
		return true, step
	case fleet.MemberKept:
		return d.clear(i) // it keeps its version, and not its locks
	}
	switch {
	case r == nil && m.RolloutID == "":
		if m.State == fleet.MemberPending {
			m.State = fleet.MemberCancelled
		}
		return true, step
	case r == nil:
		m.State, m.Error = fleet.MemberRollbackFailed, "its rollout no longer exists"
		return true, step
	case r.State == fleet.RolloutDraft:
		return d.clear(i)
	case m.NothingBack && r.State.Ended():
		nothingBack(m, d.seen[i])
		return true, step
	case b == nil && r.State == fleet.RolloutCancelling:
		return d.clear(i) // what has begun ends first
	case b == nil || b.State == fleet.RolloutDraft:
		return false, Decision{Act: Rollback, Text: fmt.Sprintf("member %s is rolled back", m.Name)}
	case b.State.Active():
		return false, Decision{Text: fmt.Sprintf("member %s is being rolled back", m.Name)}
	case b.State == fleet.RolloutCompleted && !r.State.Ended():
		return false, Decision{Text: fmt.Sprintf("the rollout of member %s ends", m.Name)}
	case b.State != fleet.RolloutCompleted:
		if over, step := d.clear(i); !over {
			return over, step
		}
	}
	back(m, d.seen[i])
	return true, step
}

// back sets the state of a member whose rollback has ended. Hosts that could not go back have incidents;
// the other members are rolled back all the same.
func back(m *fleet.GroupMember, seen Seen) {
	b := seen.Rollback
	switch {
	case b.State != fleet.RolloutCompleted:
		m.State, m.Error = fleet.MemberRollbackFailed, fmt.Sprintf("its rollback ended as %s: %d of %s did not go back", b.State, b.Counts.Total-b.Counts.Succeeded, plan.Count(b.Counts.Total, "agent", "agents"))
	case len(seen.Stuck) > 0:
		m.State, m.Error = fleet.MemberRollbackFailed, stuckText(seen.Stuck)
	default:
		m.State = fleet.MemberRolledBack
	}
}

// nothingBack sets the state of a member that is rolled back, of whose agents none could go back.
func nothingBack(m *fleet.GroupMember, seen Seen) {
	switch r := seen.Rollout; {
	case len(seen.Stuck) > 0:
		m.State, m.Error = fleet.MemberRollbackFailed, stuckText(seen.Stuck)
	case m.State == fleet.MemberSkipped, m.State == fleet.MemberFailed:
	case failures(r) > 0:
		m.State, m.Error = fleet.MemberFailed, failuresText(r)
	default:
		m.State, m.Error = fleet.MemberCancelled, ""
	}
}

func stuckText(hosts []string) string {
	return fmt.Sprintf("%s could not be put back: %s", plan.Count(len(hosts), "host", "hosts"), plan.Few(hosts, len(hosts)))
}
