package group

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/sequence"
)

var (
	noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	kim  = rollout.Request{Actor: "kim", Why: "release day"}
)

// inOrder returns a running group of members that are upgraded one after the other.
func inOrder(policy fleet.FailurePolicy, names ...string) *fleet.RolloutGroup {
	g := &fleet.RolloutGroup{ID: "g", State: fleet.GroupRunning, StartedAt: &noon, Plan: fleet.GroupPlan{Name: "spring", FailurePolicy: policy}}
	for _, name := range names {
		g.Plan.Members = append(g.Plan.Members, fleet.GroupMemberPlan{Name: name})
		g.Members = append(g.Members, fleet.GroupMember{Name: name, State: fleet.MemberPending})
	}
	return g
}

// rolloutIn returns a rollout of ten agents in a state.
func rolloutIn(state fleet.RolloutState) *fleet.Rollout {
	r := &fleet.Rollout{ID: "r", State: state, Counts: fleet.Counts{Total: 10, Pending: 10}}
	if state.Ended() {
		ended := noon.Add(-time.Minute)
		r.EndedAt, r.Counts = &ended, fleet.Counts{Total: 10, Succeeded: 10}
	}
	return r
}

func with(r *fleet.Rollout, change func(*fleet.Rollout)) *fleet.Rollout { change(r); return r }

func stoppedBy(kind fleet.StopKind) *fleet.Rollout {
	return with(rolloutIn(fleet.RolloutPaused), func(r *fleet.Rollout) { r.Stop = &fleet.Stop{Kind: kind, Text: "3 of 5 failed"} })
}

func failedWith(bad int) *fleet.Rollout {
	return with(rolloutIn(fleet.RolloutFailed), func(r *fleet.Rollout) { r.Counts = fleet.Counts{Total: 10, Succeeded: 10 - bad, Failed: bad} })
}

// describe returns the decision as one line: what is done, or how the document changes.
func describe(given *fleet.RolloutGroup, d Decision) string {
	if d.Next == nil {
		if d.Act == sequence.Wait {
			return "wait"
		}
		return fmt.Sprintf("%s %s", d.Act, given.Members[d.Member].Name)
	}
	var words []string
	if d.Next.State != given.State {
		words = append(words, string(d.Next.State))
	}
	for i, m := range d.Next.Members {
		if m.State != given.Members[i].State {
			words = append(words, m.Name+"="+string(m.State))
		}
	}
	if d.Next.Resume == nil && given.Resume != nil {
		words = append(words, "resumed")
	}
	return strings.Join(words, " ")
}

func TestDecide(t *testing.T) {
	type change = func(*fleet.RolloutGroup)
	state := func(s fleet.GroupState) change { return func(g *fleet.RolloutGroup) { g.State = s } }
	member := func(i int, s fleet.GroupMemberState) change {
		return func(g *fleet.RolloutGroup) {
			ended := noon.Add(-time.Minute)
			g.Members[i].State, g.Members[i].RolloutID, g.Members[i].EndedAt = s, "r", &ended
		}
	}
	soak := func(d time.Duration) change {
		return func(g *fleet.RolloutGroup) { g.Plan.Members[0].Soak = fleet.Duration(d) }
	}
	stop := func(kind fleet.GroupStopKind, atOnce bool) change {
		return func(g *fleet.RolloutGroup) {
			g.State, g.Stop = fleet.GroupPaused, &fleet.GroupStop{Kind: kind, Member: "db", AtOnce: atOnce, Text: "3 of 5 failed", By: "muster"}
		}
	}
	resumed := func(g *fleet.RolloutGroup) { g.State, g.Resume = fleet.GroupRunning, &fleet.Decision{By: "kim"} }
	back := func(g *fleet.RolloutGroup) {
		g.State, g.RollingBack = fleet.GroupRollingBack, &fleet.Decision{By: "muster"}
	}
	apart := func(g *fleet.RolloutGroup) { g.Members[1].State = fleet.MemberCancelled } // app has not begun
	nothing := func(i int) change { return func(g *fleet.RolloutGroup) { g.Members[i].NothingBack = true } }
	done, running := member(0, fleet.MemberCompleted), member(0, fleet.MemberRunning)
	tolerated := func(g *fleet.RolloutGroup) {
		member(0, fleet.MemberFailed)(g)
		g.Members[0].Tolerated, g.Members[0].Error = true, fmt.Sprintf("%d of 10 agents failed", 2)
	}
	accepted := with(failedWith(6), func(r *fleet.Rollout) { r.Forgiven = 6 })
	refused := with(failedWith(0), func(r *fleet.Rollout) { r.Counts.Succeeded, r.Counts.Skipped, r.Counts.Refused = 9, 1, 1 })
	stuck := func(back *fleet.Rollout) Seen {
		return Seen{Rollout: failedWith(1), Rollback: back, Stuck: []string{"host-d1"}}
	}
	backBy := func(bad fleet.Counts) *fleet.Rollout {
		return with(rolloutIn(fleet.RolloutCancelled), func(r *fleet.Rollout) { r.Counts = bad })
	}
	pinned := with(rolloutIn(fleet.RolloutDraft), func(r *fleet.Rollout) { r.Pin = &fleet.Pin{Hash: "h"} })
	asked := with(rolloutIn(fleet.RolloutRunning), func(r *fleet.Rollout) { r.PauseAsked = &fleet.Decision{By: "kim"} })
	both := func(r, b *fleet.Rollout) Seen { return Seen{Rollout: r, Rollback: b} }
	only := func(r *fleet.Rollout) Seen { return Seen{Rollout: r} }
	const any = fleet.ManualPolicy
	for name, c := range map[string]struct {
		policy  fleet.FailurePolicy
		changes []change
		db, app Seen
		want    string
	}{
		"a draft does nothing":                    {any, []change{state(fleet.GroupDraft)}, Seen{}, Seen{}, "wait"},
		"what has ended does nothing":             {any, []change{state(fleet.GroupPartial)}, Seen{}, Seen{}, "wait"},
		"the first member begins":                 {any, nil, Seen{}, Seen{}, "begin db"},
		"an interrupted start is completed":       {any, nil, only(pinned), Seen{}, "begin db"},
		"a member that has begun is noted":        {any, nil, only(rolloutIn(fleet.RolloutRunning)), Seen{}, "db=running"},
		"the next waits for it":                   {any, []change{running}, only(rolloutIn(fleet.RolloutRunning)), Seen{}, "wait"},
		"also while it is paused":                 {any, []change{running}, only(stoppedBy(fleet.StopOperator)), Seen{}, "wait"},
		"or out of exposure budget":               {any, []change{running}, only(stoppedBy(fleet.StopExposure)), Seen{}, "wait"},
		"a completed member is noted":             {any, []change{running}, only(rolloutIn(fleet.RolloutCompleted)), Seen{}, "db=completed"},
		"a member with tolerated failures failed": {any, []change{running}, only(failedWith(2)), Seen{}, "db=failed"},
		"and the next begins all the same":        {any, []change{tolerated}, only(failedWith(2)), Seen{}, "begin app"},
		"after the soak of what failed":           {any, []change{tolerated, soak(2 * time.Minute)}, only(failedWith(2)), Seen{}, "wait"},
		"a late report that it is well counts":    {any, []change{tolerated, soak(2 * time.Minute)}, only(rolloutIn(fleet.RolloutCompleted)), Seen{}, "db=completed"},
		"late failures show, and stop nothing":    {any, []change{done, member(1, fleet.MemberRunning)}, only(failedWith(5)), only(rolloutIn(fleet.RolloutRunning)), "db=failed"},
		"and the group is partial":                {any, []change{tolerated, member(1, fleet.MemberRunning)}, only(failedWith(1)), only(rolloutIn(fleet.RolloutCompleted)), "partial app=completed"},
		"also if all members have failures":       {any, []change{tolerated, member(1, fleet.MemberRunning)}, only(failedWith(1)), only(failedWith(1)), "partial app=failed"},
		"a failure that was accepted shows":       {any, []change{done, member(1, fleet.MemberRunning)}, Seen{}, only(accepted), "partial app=failed"},
		"refused agents are failures":             {any, []change{done, member(1, fleet.MemberRunning)}, Seen{}, only(refused), "partial app=failed"},
		"then the next begins":                    {any, []change{done}, only(rolloutIn(fleet.RolloutCompleted)), Seen{}, "begin app"},
		"after the soak":                          {any, []change{done, soak(time.Minute)}, only(rolloutIn(fleet.RolloutCompleted)), Seen{}, "begin app"},
		"not before":                              {any, []change{done, soak(2 * time.Minute)}, only(rolloutIn(fleet.RolloutCompleted)), Seen{}, "wait"},
		"late failures in the soak count":         {any, []change{done, soak(2 * time.Minute)}, only(failedWith(5)), Seen{}, "paused db=failed"},
		"the last has no soak":                    {any, []change{done, member(1, fleet.MemberRunning)}, Seen{}, only(rolloutIn(fleet.RolloutCompleted)), "completed app=completed"},
		"a member whose rollout is gone":          {any, []change{running}, Seen{}, Seen{}, "paused db=failed"},
		"partial_ok: a failure stops the member":  {fleet.PartialOK, []change{done, member(1, fleet.MemberRunning)}, Seen{}, only(stoppedBy(fleet.StopThreshold)), "app=failed"},
		"partial_ok: its rollout is cancelled": {fleet.PartialOK, []change{done, member(1, fleet.MemberFailed), func(g *fleet.RolloutGroup) {
			g.Members[1].Error = "e"
			g.Stop = &fleet.GroupStop{Kind: fleet.GroupStopFailure, Member: "app", Text: "e"}
		}}, Seen{}, only(stoppedBy(fleet.StopThreshold)), "cancel app"},
		"partial_ok: it ends partial":                   {fleet.PartialOK, []change{done, member(1, fleet.MemberFailed)}, Seen{}, only(rolloutIn(fleet.RolloutCancelled)), "partial"},
		"partial_ok: it ends failed if none completed":  {fleet.PartialOK, []change{running}, only(failedWith(5)), Seen{}, "failed db=failed app=cancelled"},
		"rollback_all: a failure rolls back":            {fleet.RollbackAll, []change{done, member(1, fleet.MemberRunning)}, Seen{}, only(stoppedBy(fleet.StopCanary)), "rolling_back app=failed"},
		"rollback_all: a cancelled rollout too":         {fleet.RollbackAll, []change{running}, only(rolloutIn(fleet.RolloutCancelled)), Seen{}, "rolling_back db=failed"},
		"manual: a failure pauses":                      {fleet.ManualPolicy, []change{running}, only(stoppedBy(fleet.StopDeadline)), Seen{}, "paused"},
		"manual: a rolled back rollout too":             {fleet.ManualPolicy, []change{running}, only(rolloutIn(fleet.RolloutRolledBack)), Seen{}, "paused db=failed"},
		"paused: it waits":                              {any, []change{running, stop(fleet.GroupStopFailure, false)}, only(stoppedBy(fleet.StopThreshold)), Seen{}, "wait"},
		"paused: its rollout pauses":                    {any, []change{running, stop(fleet.GroupStopOperator, false)}, only(rolloutIn(fleet.RolloutRunning)), Seen{}, "pause db"},
		"paused: it does once":                          {any, []change{running, stop(fleet.GroupStopOperator, false)}, only(asked), Seen{}, "wait"},
		"paused: at once, if asked":                     {any, []change{running, stop(fleet.GroupStopOperator, true)}, only(asked), Seen{}, "pause db"},
		"resumed: its rollout is resumed":               {any, []change{running, stop(fleet.GroupStopOperator, false), resumed}, only(stoppedBy(fleet.StopOperator)), Seen{}, "resume db"},
		"resumed: also if it is to pause":               {any, []change{running, resumed}, only(asked), Seen{}, "resume db"},
		"resumed: the failure is accepted":              {any, []change{running, stop(fleet.GroupStopFailure, false), resumed}, only(stoppedBy(fleet.StopThreshold)), Seen{}, "resume db"},
		"resumed: another failure is not":               {any, []change{running, stop(fleet.GroupStopOperator, false), resumed}, only(stoppedBy(fleet.StopThreshold)), Seen{}, "paused resumed"},
		"resumed: it is carried out once":               {any, []change{running, resumed}, only(rolloutIn(fleet.RolloutRunning)), Seen{}, "resumed"},
		"resumed: without a rollout it just goes on":    {any, []change{resumed}, Seen{}, Seen{}, "resumed"},
		"skipped: the next begins":                      {any, []change{member(0, fleet.MemberSkipped)}, Seen{}, Seen{}, "begin app"},
		"skipped: after its rollout is cancelled":       {any, []change{member(0, fleet.MemberSkipped)}, only(rolloutIn(fleet.RolloutRunning)), Seen{}, "cancel db"},
		"skipped: and has ended":                        {any, []change{member(0, fleet.MemberSkipped)}, only(rolloutIn(fleet.RolloutCancelling)), Seen{}, "wait"},
		"skipped: a draft is deleted":                   {any, []change{member(0, fleet.MemberSkipped)}, only(rolloutIn(fleet.RolloutDraft)), Seen{}, "discard db"},
		"skipped: it is partial at the end":             {any, []change{done, member(1, fleet.MemberSkipped)}, Seen{}, only(rolloutIn(fleet.RolloutCancelled)), "partial"},
		"cancelling: the rollout is cancelled":          {any, []change{running, state(fleet.GroupCancelling)}, only(rolloutIn(fleet.RolloutPaused)), Seen{}, "cancel db"},
		"cancelling: an interrupted start is completed": {any, []change{state(fleet.GroupCancelling)}, only(pinned), Seen{}, "begin db"},
		"cancelling: then it ends":                      {any, []change{running, state(fleet.GroupCancelling)}, only(rolloutIn(fleet.RolloutCancelled)), Seen{}, "cancelled db=cancelled app=cancelled"},
		"cancelling: what is done stays done":           {any, []change{done, state(fleet.GroupCancelling)}, only(rolloutIn(fleet.RolloutCompleted)), Seen{}, "cancelled app=cancelled"},
		"back: the last member first":                   {any, []change{done, member(1, fleet.MemberFailed), back}, only(rolloutIn(fleet.RolloutCompleted)), only(stoppedBy(fleet.StopThreshold)), "roll back app"},
		"back: it waits for it":                         {any, []change{done, member(1, fleet.MemberFailed), back}, only(rolloutIn(fleet.RolloutCompleted)), both(stoppedBy(fleet.StopRollback), rolloutIn(fleet.RolloutRunning)), "wait"},
		"back: and for the rollout itself":              {any, []change{done, member(1, fleet.MemberFailed), back}, only(rolloutIn(fleet.RolloutCompleted)), both(stoppedBy(fleet.StopRollback), rolloutIn(fleet.RolloutCompleted)), "wait"},
		"back: it is noted":                             {any, []change{done, member(1, fleet.MemberFailed), back}, only(rolloutIn(fleet.RolloutCompleted)), both(rolloutIn(fleet.RolloutRolledBack), rolloutIn(fleet.RolloutCompleted)), "app=rolled_back"},
		"back: then the one before it":                  {any, []change{done, member(1, fleet.MemberRolledBack), back}, only(rolloutIn(fleet.RolloutCompleted)), both(rolloutIn(fleet.RolloutRolledBack), rolloutIn(fleet.RolloutCompleted)), "roll back db"},
		"back: an interrupted rollback is repeated":     {any, []change{done, back, apart}, both(rolloutIn(fleet.RolloutCompleted), rolloutIn(fleet.RolloutDraft)), Seen{}, "roll back db"},
		"back: what has not begun is not rolled back":   {any, []change{done, back}, both(rolloutIn(fleet.RolloutRolledBack), rolloutIn(fleet.RolloutCompleted)), Seen{}, "rolled_back db=rolled_back app=cancelled"},
		"back: a draft is deleted":                      {any, []change{done, back}, only(rolloutIn(fleet.RolloutCompleted)), only(rolloutIn(fleet.RolloutDraft)), "discard app"},
		"back: no agent had begun":                      {any, []change{running, nothing(0), back}, only(rolloutIn(fleet.RolloutCancelled)), Seen{}, "rolled_back db=cancelled app=cancelled"},
		"back: a member that its hosts put back failed": {any, []change{running, nothing(0), back, apart}, only(backBy(fleet.Counts{Total: 3, RolledBack: 3})), Seen{}, "rolled_back db=failed"},
		"back: a host that could not go back fails all": {any, []change{running, nothing(0), back, apart}, stuck(nil), Seen{}, "failed db=rollback_failed"},
		"back: also if the others were rolled back":     {any, []change{running, back, apart}, stuck(rolloutIn(fleet.RolloutCompleted)), Seen{}, "failed db=rollback_failed"},
		"cancelling: a member that failed has failed":   {any, []change{running, state(fleet.GroupCancelling)}, only(backBy(fleet.Counts{Total: 3, Failed: 3})), Seen{}, "cancelled db=failed app=cancelled"},
		"back: a cancelled rollout ends first":          {any, []change{running, back, apart}, only(rolloutIn(fleet.RolloutCancelling)), Seen{}, "wait"},
		"back: a failed rollback frees its policies":    {any, []change{running, back, apart}, both(stoppedBy(fleet.StopRollback), failedWith(1)), Seen{}, "cancel db"},
		"back: and the group has failed":                {any, []change{running, back}, both(rolloutIn(fleet.RolloutCancelled), failedWith(1)), Seen{}, "failed db=rollback_failed app=cancelled"},
		"back: a member that is kept is left alone":     {any, []change{member(0, fleet.MemberKept), back}, only(rolloutIn(fleet.RolloutCompleted)), Seen{}, "failed app=cancelled"},
		"back: paused, it waits":                        {any, []change{done, back, stop(fleet.GroupStopRefused, false)}, only(rolloutIn(fleet.RolloutCompleted)), Seen{}, "wait"},
	} {
		t.Run(name, func(t *testing.T) {
			g := inOrder(c.policy, "db", "app")
			for _, change := range c.changes {
				change(g)
			}
			// A running member has the id of its rollout, which is not what is tested here.
			for i, s := range []Seen{c.db, c.app} {
				if s.Rollout != nil && s.Rollout.State != fleet.RolloutDraft {
					g.Members[i].RolloutID = s.Rollout.ID
				}
			}
			if got := describe(g, Decide(g, []Seen{c.db, c.app}, noon)); got != c.want {
				t.Errorf("it decides %q, want %q", got, c.want)
			}
		})
	}
}

// model is a fleet whose rollouts go on at random, with a group that is executed on it.
type model struct {
	rt       *rapid.T
	g        *fleet.RolloutGroup
	seen     []Seen
	began    []bool // a rollout of the member was started
	now      time.Time
	resuming bool // operators let it go on, so that it must end
}

// step takes one step of the group and checks what must hold. It reports whether there was
// one.
func (m *model) step() bool {
	d := Decide(m.g, m.seen, m.now)
	if d.Next != nil {
		m.g = d.Next
		return true
	}
	if d.Act == sequence.Wait {
		return false
	}
	s := &m.seen[d.Member]
	switch d.Act {
	case sequence.Begin:
		if s.Rollout == nil {
			m.checkBefore(d.Member)
			if m.g.RollingBack != nil || m.g.State != fleet.GroupRunning {
				m.rt.Fatalf("member %d begins although the group is %s", d.Member, m.g.State)
			}
		}
		if s.Rollout == nil && rapid.Bool().Draw(m.rt, "the start is interrupted") {
			s.Rollout = rolloutIn(fleet.RolloutDraft)
			if rapid.Bool().Draw(m.rt, "after the pin") {
				s.Rollout.Pin = &fleet.Pin{Hash: "h"}
			}
			return true
		}
		s.Rollout, m.began[d.Member] = rolloutIn(fleet.RolloutRunning), true
	case sequence.Pause:
		s.Rollout.State, s.Rollout.Stop = fleet.RolloutPaused, &fleet.Stop{Kind: fleet.StopOperator, Text: "paused"}
	case sequence.Resume:
		s.Rollout.State, s.Rollout.Stop, s.Rollout.PauseAsked = fleet.RolloutRunning, nil, nil
	case sequence.Cancel:
		if !s.Rollout.State.Active() {
			m.rt.Fatalf("member %d is cancelled as %s", d.Member, s.Rollout.State)
		}
		s.Rollout.State = fleet.RolloutCancelling
	case sequence.Discard:
		if s.Rollout.State != fleet.RolloutDraft || s.Rollout.Pin != nil {
			m.rt.Fatalf("member %d is deleted as %s", d.Member, s.Rollout.State)
		}
		s.Rollout = nil
	case Rollback:
		if !m.began[d.Member] {
			m.rt.Fatalf("member %d is rolled back, but did not start", d.Member)
		}
		for j := d.Member + 1; j < len(m.seen); j++ {
			if o := m.seen[j]; o.Rollout != nil && o.Rollout.State.Active() {
				m.rt.Fatalf("member %d is rolled back before member %d is", d.Member, j)
			}
		}
		if rapid.IntRange(0, 4).Draw(m.rt, "nothing to roll back") == 0 {
			if s.Rollout.State.Active() {
				s.Rollout.State = fleet.RolloutCancelling
			} else {
				m.g.Members[d.Member].NothingBack = true
			}
			return true
		}
		s.Rollback = rolloutIn(fleet.RolloutRunning)
		if s.Rollout.State == fleet.RolloutRunning || s.Rollout.State == fleet.RolloutPaused {
			s.Rollout.State, s.Rollout.Stop = fleet.RolloutPaused, &fleet.Stop{Kind: fleet.StopRollback, Text: "its rollback"}
		}
	}
	return true
}

// checkBefore checks that all members before one are done when it begins.
func (m *model) checkBefore(i int) {
	for j := range i {
		r, member := m.seen[j].Rollout, m.g.Members[j]
		switch state := member.State; {
		case isDone(&member):
			if !sequence.Passed(r) || m.now.Before(r.EndedAt.Add(m.g.Plan.Members[j].Soak.D())) {
				m.rt.Fatalf("member %d begins, but member %d is %s", i, j, r.State)
			}
		case state == fleet.MemberSkipped:
			if r != nil && r.State.Active() {
				m.rt.Fatalf("member %d begins while the rollout of %d, which was skipped, is %s", i, j, r.State)
			}
		default:
			m.rt.Fatalf("member %d begins, but member %d is %s", i, j, member.State)
		}
	}
}

// elapse lets the rollouts go on.
func (m *model) elapse() {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 120).Draw(m.rt, "seconds")) * time.Second)
	for i := range m.seen {
		s := &m.seen[i]
		if b := s.Rollback; b != nil && b.State == fleet.RolloutRunning {
			m.end(b, rapid.SampledFrom([]fleet.RolloutState{fleet.RolloutCompleted, fleet.RolloutCompleted, fleet.RolloutFailed}).Draw(m.rt, "rollback"))
			if b.State == fleet.RolloutFailed {
				continue
			}
			m.end(s.Rollout, fleet.RolloutRolledBack)
		}
		r := s.Rollout
		switch {
		case r == nil || r.State == fleet.RolloutDraft || r.State.Ended():
		case r.State == fleet.RolloutCancelling:
			m.end(r, fleet.RolloutCancelled)
		case r.State == fleet.RolloutPaused && m.resuming && s.Rollback == nil && m.g.State == fleet.GroupRunning && sequence.Trouble(r) == "":
			r.State, r.Stop = fleet.RolloutRunning, nil // somebody resumes it
		case r.State == fleet.RolloutRunning:
			switch rapid.IntRange(0, 6).Draw(m.rt, "rollout") {
			case 0, 1:
				m.end(r, fleet.RolloutCompleted)
			case 2:
				m.end(r, fleet.RolloutFailed)
				bad := rapid.IntRange(1, 10).Draw(m.rt, "bad")
				r.Counts = fleet.Counts{Total: 10, Succeeded: 10 - bad, Failed: bad}
			case 3:
				r.State = fleet.RolloutPaused
				r.Stop = &fleet.Stop{Kind: rapid.SampledFrom([]fleet.StopKind{fleet.StopThreshold, fleet.StopCanary, fleet.StopExposure, fleet.StopOperator, fleet.StopDeadline}).Draw(m.rt, "stop"), Text: "stopped"}
			case 4:
				r.State = fleet.RolloutCancelling
			}
		}
	}
}

func (m *model) end(r *fleet.Rollout, state fleet.RolloutState) {
	ended := m.now
	r.State, r.EndedAt, r.Stop, r.Counts = state, &ended, nil, fleet.Counts{Total: 10, Succeeded: 10}
}

// command gives an operator's command, which may be refused. It checks that the list of commands
// says of it what becomes of it.
func (m *model) command(verbs ...string) {
	g := *m.g
	g.Members = slices.Clone(g.Members)
	text, err, name := "", error(nil), ""
	give := func(command string, do func(*fleet.RolloutGroup, rollout.Request, time.Time) (string, error)) {
		name = command
		text, err = commandOf(command, do).apply(&g, kim, m.now)
	}
	switch rapid.SampledFrom(verbs).Draw(m.rt, "command") {
	case "pause":
		atOnce := rapid.Bool().Draw(m.rt, "at once")
		give(pauseName(atOnce), func(g *fleet.RolloutGroup, req rollout.Request, now time.Time) (string, error) {
			return pause(g, atOnce, req, now)
		})
	case "resume":
		give(commandResume, resume)
	case "skip":
		_, err = skip(&g, g.Members[rapid.IntRange(0, len(g.Members)-1).Draw(m.rt, "member")].Name, kim)
		if err == nil && !possible(m.g, commandSkip) && fmt.Sprint(g) != fmt.Sprint(*m.g) {
			m.rt.Fatalf("a member was left out, which the commands do not allow: %+v", Commands(m.g))
		}
	case "skip the one that stopped it":
		if g.Stop != nil && g.Stop.Member != "" {
			_, err = skip(&g, g.Stop.Member, kim)
		}
	case "cancel":
		give(commandCancel, cancel)
	case "roll back":
		give(commandRollback, rollBack)
	}
	if accepted := err == nil && text != ""; name != "" && accepted != possible(m.g, name) {
		m.rt.Fatalf("%s of a group that is %s: accepted is %t (%v), and the commands are %+v", name, m.g.State, accepted, err, Commands(m.g))
	}
	if err == nil {
		m.g = &g
	}
}

func commandOf(name string, do func(*fleet.RolloutGroup, rollout.Request, time.Time) (string, error)) command {
	return command{name: name, decide: do}
}

// possible reports whether the list of commands allows one.
func possible(g *fleet.RolloutGroup, name string) bool {
	return slices.ContainsFunc(Commands(g), func(c fleet.Command) bool { return c.Name == name && c.Allowed })
}

// Whatever rollouts and operators do, a member begins only when those before it are done,
// what did not start is not rolled back, the rollback is in reverse order, and a group that
// operators let go on ends without an active rollout.
func TestGroupsKeepTheirOrderAndEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names := []string{"a", "b", "c", "d"}[:rapid.IntRange(1, 4).Draw(rt, "members")]
		g := inOrder(rapid.SampledFrom([]fleet.FailurePolicy{fleet.PartialOK, fleet.RollbackAll, fleet.ManualPolicy}).Draw(rt, "policy"), names...)
		for i := range g.Plan.Members {
			g.Plan.Members[i].Soak = fleet.Duration(time.Duration(rapid.IntRange(0, 100).Draw(rt, "soak")) * time.Second)
		}
		m := &model{rt: rt, g: g, seen: make([]Seen, len(names)), began: make([]bool, len(names)), now: noon}
		for range rapid.IntRange(0, 30).Draw(rt, "rounds") {
			for range rapid.IntRange(0, 3).Draw(rt, "steps") {
				m.step()
			}
			m.elapse()
			if rapid.IntRange(0, 3).Draw(rt, "operator") == 0 {
				m.command("pause", "resume", "skip", "skip the one that stopped it", "cancel", "roll back")
			}
		}
		m.resuming = true
		for round := 0; m.g.State.Active(); round++ {
			if round == 1000 {
				rt.Fatalf("it does not end: %s, stopped by %+v, %+v", m.g.State, m.g.Stop, m.g.Members)
			}
			for steps := 0; m.step(); steps++ {
				if steps == 100 {
					rt.Fatalf("it takes steps for ever: %s, %+v", m.g.State, m.g.Members)
				}
			}
			m.elapse()
			if m.g.State == fleet.GroupPaused {
				m.command("resume", "skip the one that stopped it", "roll back")
			}
		}
		for i, s := range m.seen {
			if r := s.Rollout; r != nil && !r.State.Ended() {
				rt.Errorf("the group is %s, but the rollout of member %d is %s", m.g.State, i, r.State)
			}
			if !m.began[i] && (m.g.Members[i].State == fleet.MemberCompleted || m.g.Members[i].State == fleet.MemberRolledBack) {
				rt.Errorf("member %d is %s, but did not start", i, m.g.Members[i].State)
			}
		}
		for i, s := range m.seen {
			if r := s.Rollout; r == nil || failures(r) == 0 || m.g.RollingBack != nil {
				continue
			}
			if member := m.g.Members[i].State; m.g.State == fleet.GroupCompleted || member != fleet.MemberFailed && member != fleet.MemberSkipped {
				rt.Errorf("%d of the agents of member %d failed, which is %s, and the group is %s", failures(s.Rollout), i, member, m.g.State)
			}
		}
		if m.g.State == fleet.GroupRolledBack {
			for i, member := range m.g.Members {
				if m.began[i] && member.State != fleet.MemberRolledBack && !member.NothingBack {
					rt.Errorf("it is rolled back, but member %d is %s", i, member.State)
				}
			}
		}
	})
}

func TestRollbackIDsFollowFromTheMember(t *testing.T) {
	if got := plan.RollbackID(RolloutID("g", 1)); got != "g-2-rollback" {
		t.Errorf("it is %s", got)
	}
}
