package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func inLockstep(change func(*fleet.Plan)) fleet.Plan {
	p := fleet.Plan{Component: "web", Version: "2.0.0", Strategy: fleet.Strategy{Kind: fleet.LockstepStrategy, Patience: fleet.Duration(10 * time.Minute)}}
	if change != nil {
		change(&p)
	}
	return p
}

// lockstepScenario returns a rollout in lockstep of n targets, all of which are ready.
func lockstepScenario(t *testing.T, n int, change func(*fleet.Plan)) *simulation {
	s := scenario(t, inLockstep(change), n)
	s.world.Lockstep.Verified = true
	for i := range n {
		s.world.Lockstep.Names = append(s.world.Lockstep.Names, "host-"+string(rune('a'+i)))
	}
	return s
}

// reach lets hosts reach a phase, as the reconciler sees it after a report.
func (s *simulation) reach(p agentapi.LockstepPhase, targets ...int) {
	for _, i := range targets {
		if s.targets[i].State == Offered {
			s.put(Upgrading, i)
		}
		s.targets[i].Reached = ReachedNumber(p)
	}
}

// phase fails the test unless the rollout is in a phase once nothing is left to do now.
func (s *simulation) phase(want fleet.LockstepPhase) {
	s.Helper()
	s.settle()
	if s.r.Lockstep.Phase != want {
		s.Fatalf("it is %s in %s (undo %+v), waits for %+v, want %s", s.r.State, s.r.Lockstep.Phase, s.r.Lockstep.Undo, s.r.Waiting, want)
	}
}

// begin brings the rollout into a phase, which no target has reached yet.
func (s *simulation) begin(p fleet.LockstepPhase) {
	s.Helper()
	all := make([]int, len(s.targets))
	for i := range all {
		all[i] = i
	}
	s.phase(fleet.LockstepDrain)
	for _, to := range []struct {
		reach agentapi.LockstepPhase
		next  fleet.LockstepPhase
	}{
		{agentapi.LockstepDrain, fleet.LockstepStop},
		{agentapi.LockstepStop, fleet.LockstepBackup},
		{agentapi.LockstepBackup, fleet.LockstepSwitch},
		{agentapi.LockstepSwitch, fleet.LockstepStart},
	} {
		if s.r.Lockstep.Phase == p {
			return
		}
		s.reach(to.reach, all...)
		s.phase(to.next)
	}
}

func (s *simulation) undoes(text string) {
	s.Helper()
	s.phase(fleet.LockstepUndo)
	if l := s.r.Lockstep; l.CommittedAt != nil || !strings.Contains(l.Undo.Why, text) {
		s.Fatalf("it is %+v, undone because %q, want %q", l, l.Undo.Why, text)
	}
}

func TestLockstepGoesFromPhaseToPhase(t *testing.T) {
	s := lockstepScenario(t, 3, nil)
	step := s.round()
	if s.r.Lockstep.Phase != fleet.LockstepDrain || len(step.Offer) > 0 || !step.Next.Equal(s.now) || s.r.Lockstep.Targets != 3 {
		t.Fatalf("after the verification it is %+v and offers to %v: the phase is written before the offers", s.r.Lockstep, step.Offer)
	}
	s.offers(0, 1, 2)
	s.reach(agentapi.LockstepDrain, 0, 1)
	s.phase(fleet.LockstepDrain)
	s.waitsFor(fleet.WhyLockstep, "the targets finish what they do: 2 of 3 targets have done it")
	s.reach(agentapi.LockstepDrain, 2)
	s.phase(fleet.LockstepStop)

	s.world.Lockstep.Verified = false
	s.reach(agentapi.LockstepStop, 0, 1, 2)
	s.phase(fleet.LockstepVerifyAgain)
	s.world.Lockstep.Verified = true
	s.phase(fleet.LockstepBackup)
	s.reach(agentapi.LockstepBackup, 0, 1)
	s.phase(fleet.LockstepBackup)
	if s.r.Lockstep.Committed() {
		t.Fatal("it is committed although a target has no copy of its state")
	}
	s.reach(agentapi.LockstepBackup, 2)
	s.phase(fleet.LockstepSwitch)
	if at := s.r.Lockstep.CommittedAt; at == nil || !at.Equal(s.now) {
		t.Fatalf("it is committed at %v", at)
	}
	s.reach(agentapi.LockstepSwitch, 0, 1, 2)
	s.phase(fleet.LockstepStart)
	s.reach(agentapi.LockstepStart, 0)
	s.put(Verifying, 1, 2)
	s.phase(fleet.LockstepSettle)
	s.put(Succeeded, 0, 1)
	s.phase(fleet.LockstepSettle)
	s.is(fleet.RolloutRunning)
	s.put(Succeeded, 2)
	s.settle()
	s.is(fleet.RolloutCompleted)
}

func TestLockstepVerifiesBeforeItBegins(t *testing.T) {
	t.Run("it pauses with the list, and verifies again when it is resumed", func(t *testing.T) {
		s := lockstepScenario(t, 3, nil)
		s.targets[0].Verdict, s.targets[2].Verdict = CodeOf(fleet.WhyNotStaged), codeAway
		step := s.round()
		s.stops(fleet.StopVerify, "2 of 3 targets are not ready: host-a (its host has not staged the version), host-c (the agent is not connected)", 0)
		wantReasons(t, step, fleet.WhyNotStaged, fleet.WhyVerify, fleet.WhyAway)
		if l := s.r.Lockstep; len(l.Failed) != 2 || l.Running() {
			t.Errorf("its document says %+v", l)
		}
		s.targets[0].Verdict, s.targets[2].Verdict = 0, 0
		s.r.State, s.r.Stop = fleet.RolloutRunning, nil
		s.phase(fleet.LockstepDrain)
	})
	t.Run("targets that are away are left out and named if the plan says so", func(t *testing.T) {
		s := lockstepScenario(t, 3, func(p *fleet.Plan) { p.Strategy.Away = fleet.AwayExclude })
		s.targets[1].Verdict = codeAway
		s.phase(fleet.LockstepDrain)
		if l := s.r.Lockstep; !slices.Equal(l.Missing, []string{"host-b"}) || l.Targets != 2 || s.targets[1].State != Skipped || s.targets[1].Code != codeLeftOut {
			t.Errorf("it is %+v, and the target %+v", l, s.targets[1])
		}
	})
	t.Run("but not if all are away", func(t *testing.T) {
		s := lockstepScenario(t, 1, func(p *fleet.Plan) { p.Strategy.Away = fleet.AwayExclude })
		s.targets[0].Verdict = codeAway
		s.round()
		s.stops(fleet.StopVerify, "all targets are away: host-a", 0)
	})
	t.Run("one that somebody else has upgraded is left out", func(t *testing.T) {
		s := lockstepScenario(t, 2, nil)
		s.targets[0].Verdict = codeSame
		s.phase(fleet.LockstepDrain)
		if s.targets[0].State != Skipped || s.r.Lockstep.Targets != 1 {
			t.Errorf("it is %+v, the target %s", s.r.Lockstep, s.targets[0].State.Name())
		}
	})
	t.Run("and if that are all, it is done", func(t *testing.T) {
		s := lockstepScenario(t, 1, nil)
		s.targets[0].Verdict = codeSame
		s.settle()
		s.is(fleet.RolloutCompleted)
	})
	t.Run("another agent that matches is a reason too", func(t *testing.T) {
		s := lockstepScenario(t, 1, nil)
		s.world.Lockstep.Others = []string{"host-x"}
		s.round()
		s.stops(fleet.StopVerify, "other agents run another version, and match the plan or have a policy whose hosts must not run mixed versions, so another rollout is needed: host-x", 0)
	})
	t.Run("a window delays only the phase drain", func(t *testing.T) {
		s := lockstepScenario(t, 2, func(p *fleet.Plan) { p.Pace.Windows = []fleet.Window{{From: "22:00", To: "04:00"}} })
		s.phase(fleet.LockstepVerify)
		s.waitsFor(fleet.WhyWindow, "")
		s.wait(8 * time.Hour)
		s.phase(fleet.LockstepDrain)
		s.wait(5 * time.Minute)
		s.reach(agentapi.LockstepDrain, 0, 1)
		s.now = s.now.Add(9 * time.Minute)
		s.phase(fleet.LockstepStop)
	})
	t.Run("the exposure budget must have room for all", func(t *testing.T) {
		s := lockstepScenario(t, 3, nil)
		s.world.Exposure = &Room{Exposure: fleet.Exposure{Version: "2.0.0", Fleet: 10, Limit: 2, NeededHours: 10}}
		s.phase(fleet.LockstepVerify)
		s.waitsFor(fleet.WhyExposure, "")
		s.world.Exposure.Limit = 3
		s.phase(fleet.LockstepDrain)
	})
	t.Run("staging ahead comes first", func(t *testing.T) {
		s := lockstepScenario(t, 2, func(p *fleet.Plan) { p.Stage = fleet.StageAhead })
		s.targets[0].Verdict = CodeOf(fleet.WhyNotStaged)
		s.phase(fleet.LockstepVerify)
		s.waitsFor(fleet.WhyStaging, "2 agents stage")
		s.targets[0].Verdict = 0
		s.answered(0, 1)
		s.phase(fleet.LockstepDrain)
	})
}

func TestLockstepUndoesEverythingBeforeTheCommit(t *testing.T) {
	for _, c := range []struct {
		name   string
		in     fleet.LockstepPhase
		happen func(s *simulation)
		says   string
	}{
		{"a target fails while it drains", fleet.LockstepDrain, func(s *simulation) {
			s.put(Failed, 1)
			s.targets[1].Code = CodeOf(fleet.WhyReported)
		}, "a target has fallen out in the phase drain: host-b (the agent reported that the upgrade failed)"},
		{"an offer is refused", fleet.LockstepDrain, func(s *simulation) {
			s.put(Skipped, 1)
			s.targets[1].Code = CodeOf(fleet.WhyRefused)
		}, "host-b (it cannot be upgraded)"},
		{"a target is unenrolled while it stops", fleet.LockstepStop, func(s *simulation) {
			s.put(Cancelled, 2)
			s.targets[2].Code = CodeOf(fleet.WhyGone)
		}, "host-c (it was unenrolled, or is gone from its host)"},
		{"a target is too slow", fleet.LockstepStop, func(s *simulation) {
			s.reach(agentapi.LockstepStop, 0)
			s.wait(11 * time.Minute)
		}, "2 targets are not done with the phase stop within 10m: host-b, host-c"},
		{"a target goes ahead of the others", fleet.LockstepStop, func(s *simulation) { s.put(Verifying, 0) }, "host-a (it did not wait for the others)"},
		{"a target is away when they are verified again", fleet.LockstepStop, func(s *simulation) {
			s.reach(agentapi.LockstepStop, 0, 1, 2)
			s.targets[0].Verdict = codeAway
		}, "targets were lost while all were stopped: host-a (the agent is not connected)"},
		{"another agent came meanwhile", fleet.LockstepStop, func(s *simulation) {
			s.reach(agentapi.LockstepStop, 0, 1, 2)
			s.world.Lockstep.Others = []string{"host-x"}
		}, "other agents came that would run another version: host-x"},
		{"they cannot be verified again", fleet.LockstepStop, func(s *simulation) {
			s.reach(agentapi.LockstepStop, 0, 1, 2)
			s.world.Lockstep.Verified = false
			s.phase(fleet.LockstepVerifyAgain)
			s.wait(11 * time.Minute)
		}, "the targets could not be verified again in time"},
		{"a target cannot copy its state", fleet.LockstepBackup, func(s *simulation) {
			s.reach(agentapi.LockstepBackup, 0, 2)
			s.put(Failed, 1)
			s.targets[1].Code = CodeOf(fleet.WhyReported)
		}, "a target has fallen out in the phase backup"},
		{"an operator cancels it", fleet.LockstepBackup, func(s *simulation) { s.r.State = fleet.RolloutCancelling }, "the rollout was cancelled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := lockstepScenario(t, 3, nil)
			s.begin(c.in)
			c.happen(s)
			s.undoes(c.says)
			s.wait(time.Minute)
			for i := range s.targets { // the hosts report that they are back
				if s.targets[i].State.InFlight() {
					s.put(RolledBack, i)
					s.targets[i].Code = codeUndone
				}
			}
			want := fleet.RolloutFailed
			if s.r.State == fleet.RolloutCancelling {
				want = fleet.RolloutCancelled
			}
			s.settle()
			s.is(want)
		})
	}
}

func TestLockstepNamesHostsThatDoNotSayThatTheyAreBack(t *testing.T) {
	s := lockstepScenario(t, 2, nil)
	s.begin(fleet.LockstepBackup)
	s.put(Failed, 1)
	s.undoes("host-b")
	s.wait(9 * time.Minute)
	s.phase(fleet.LockstepUndo)
	s.waitsFor(fleet.WhyLockstep, "1 target has not reported that yet")
	s.wait(2 * time.Minute)
	s.settle()
	s.is(fleet.RolloutFailed)
	if s.targets[0].State != Failed || s.targets[0].Code != codeBehind || !slices.Equal(s.r.Lockstep.Failed, []string{"host-a", "host-b"}) {
		t.Errorf("the target is %+v, and the document names %q", s.targets[0], s.r.Lockstep.Failed)
	}
}

func TestLockstepGoesThroughToItsEndAfterTheCommit(t *testing.T) {
	s := lockstepScenario(t, 4, nil)
	s.begin(fleet.LockstepSwitch)
	s.put(Failed, 0) // one cannot migrate
	s.targets[1].Online = false
	s.reach(agentapi.LockstepSwitch, 2, 3)
	s.phase(fleet.LockstepSwitch) // waits for the one that is away
	s.wait(11 * time.Minute)
	s.phase(fleet.LockstepStart)
	s.put(Verifying, 2)
	s.put(Failed, 3) // unwell after its start
	s.phase(fleet.LockstepStart)
	s.wait(11 * time.Minute)
	s.phase(fleet.LockstepSettle)
	s.put(Succeeded, 2)
	s.phase(fleet.LockstepSettle)
	s.wait(11 * time.Minute)
	s.settle()
	s.is(fleet.RolloutFailed)
	if l := s.r.Lockstep; l.Undo != nil || !slices.Equal(l.Failed, []string{"host-a", "host-b", "host-d"}) || s.targets[1].Code != codeBehind {
		t.Errorf("it is %+v", l)
	}
	if Tolerated(&s.r) {
		t.Error("a failure after the commit is tolerated")
	}
}

func TestLockstepIsCancelledBeforeItBegins(t *testing.T) {
	s := lockstepScenario(t, 2, nil)
	s.world.Lockstep.Verified = false
	s.settle()
	s.r.State = fleet.RolloutCancelling
	s.settle()
	s.is(fleet.RolloutCancelled)
	if s.r.Lockstep.Undo != nil || s.targets[0].State != Cancelled {
		t.Errorf("it is %+v, the target %s", s.r.Lockstep, s.targets[0].State.Name())
	}
}

func TestVerdictsOfTargetsInLockstep(t *testing.T) {
	p := inLockstep(func(p *fleet.Plan) { p.SourceURI = "https://mirror.example.com/muster" })
	for name, c := range map[string]struct {
		change func(*fleet.Agent)
		state  State
		want   fleet.ReasonCode
	}{
		"ready":                          {func(*fleet.Agent) {}, Pending, ""},
		"unenrolled":                     {func(a *fleet.Agent) { a.Active = false }, Pending, fleet.WhyGone},
		"uninstalled":                    {func(a *fleet.Agent) { a.AuditUnenrolledReason = "uninstall" }, Pending, fleet.WhyGone},
		"being unenrolled, under way":    {func(a *fleet.Agent) { a.UnenrollmentStartedAt = &afternoon }, Upgrading, fleet.WhyGone},
		"away":                           {func(a *fleet.Agent) { a.Last.At = new(afternoon.Add(-time.Hour)) }, Pending, fleet.WhyAway},
		"away, under way":                {func(a *fleet.Agent) { a.Last.At = new(afternoon.Add(-time.Hour)) }, Upgrading, fleet.WhyAway},
		"without the component":          {func(a *fleet.Agent) { a.Components = nil }, Pending, fleet.WhyNoComponent},
		"being upgraded by another":      {func(a *fleet.Agent) { a.BeginOf("web", "x", "1.5.0", afternoon) }, Pending, fleet.WhyBusy},
		"being upgraded by this rollout": {func(a *fleet.Agent) { a.BeginOf("web", "x", "2.0.0", afternoon) }, Upgrading, ""},
		"an agent that does not know":    {func(a *fleet.Agent) { a.Components = reportsWeb("1.0.0", "") }, Pending, fleet.WhyNoLockstep},
		"runs the version":               {func(a *fleet.Agent) { a.Components = reportsWeb("2.0.0", `,"lockstep":true`) }, Pending, fleet.WhySame},
		"runs a later version":           {func(a *fleet.Agent) { a.Components = reportsWeb("3.0.0", `,"lockstep":true`) }, Pending, fleet.WhyRefused},
		"nothing staged":                 {func(a *fleet.Agent) { a.StagedVersions = []string{"2.0.0", "db 2.0.0"} }, Pending, fleet.WhyNotStaged},
		"keeps it from before": {func(a *fleet.Agent) {
			a.StagedVersions, a.Components = nil, reportsWeb("1.0.0", `,"lockstep":true,"rollbacks":["2.0.0"]`)
		}, Pending, ""},
	} {
		a := fleet.Agent{ID: "a", Active: true, StagedVersions: []string{"web 2.0.0"}, Components: reportsWeb("1.0.0", `,"lockstep":true`), Last: fleet.LastSeen{At: &afternoon}}
		c.change(&a)
		if got, _ := Verdict(&p, c.state, &a, fleet.ConnectionUnknown, nil, afternoon.Add(time.Minute)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got, _ := Verdict(&p, Pending, nil, fleet.ConnectionUnknown, nil, afternoon); got != fleet.WhyGone {
		t.Errorf("without a document: %q", got)
	}
}

// Before a rollout in lockstep begins, a closed connection decides where the server knows it, and when
// the agent was seen where it does not. Once targets are under way neither does.
func TestTargetWhoseConnectionIsClosedIsAwayBeforeLockstepBegins(t *testing.T) {
	p := inLockstep(func(p *fleet.Plan) { p.SourceURI = "https://mirror.example.com/muster" })
	const unknown, open, closed = fleet.ConnectionUnknown, fleet.ConnectionOpen, fleet.ConnectionClosed
	for _, c := range []struct {
		link   fleet.Connection
		state  State
		silent time.Duration
		away   bool
	}{
		{closed, Pending, time.Second, false}, // its last check-in was answered at once
		{closed, Pending, fleet.ReconnectWithin, false},
		{closed, Pending, fleet.ReconnectWithin + time.Second, true},
		{unknown, Pending, fleet.ReconnectWithin + time.Second, false},
		{unknown, Pending, fleet.ConnectedWithin, false},
		{unknown, Pending, fleet.ConnectedWithin + time.Second, true},
		{open, Pending, fleet.ConnectedWithin + time.Second, false},
		{closed, Upgrading, fleet.OfflineAfter, false}, // a server that restarts undoes nothing
		{closed, Upgrading, fleet.OfflineAfter + time.Second, true},
		{open, Upgrading, fleet.OfflineAfter + time.Second, true},
	} {
		a := fleet.Agent{ID: "a", Active: true, StagedVersions: []string{"web 2.0.0"}, Components: reportsWeb("1.0.0", `,"lockstep":true`), Last: fleet.LastSeen{At: new(afternoon.Add(-c.silent))}}
		want := fleet.ReasonCode("")
		if c.away {
			want = fleet.WhyAway
		}
		if got, _ := Verdict(&p, c.state, &a, c.link, nil, afternoon); got != want {
			t.Errorf("connection %d, %s, seen %s ago: %q, want %q", c.link, c.state.Name(), c.silent, got, want)
		}
	}
}

func reportsWeb(version, more string) []byte {
	return []byte(`[{"id":"component-web","name":"web","runtime":"process","version":"` + version + `"` + more + `}]`)
}

// The hosts, the operator and the clock do what they like.
func TestLockstepNeverPassesABarrier(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := &simulation{TB: rt, now: afternoon, r: fleet.Rollout{ID: "r", State: fleet.RolloutRunning, Generation: 1, Batches: []fleet.Batch{{}}}}
		s.r.Plan = inLockstep(func(p *fleet.Plan) {
			p.Limits.MaxParallel = fleet.DefaultMaxParallel
			if rapid.Bool().Draw(rt, "exclude") {
				p.Strategy.Away = fleet.AwayExclude
			}
		})
		n := rapid.IntRange(1, 6).Draw(rt, "targets")
		s.targets, s.exposed = make([]Target, n), make([]bool, n)
		for i := range s.targets {
			s.targets[i] = Target{Online: true, Since: s.now.UnixNano(), Groups: NoSites, Sites: NoSites}
		}
		for range 200 {
			l := s.r.Lockstep
			if s.r.State == fleet.RolloutPaused {
				s.r.State, s.r.Stop = fleet.RolloutRunning, nil
			}
			s.world.Lockstep.Verified = rapid.IntRange(0, 3).Draw(rt, "verified") > 0
			for i := range s.targets {
				x := &s.targets[i]
				x.Verdict = 0
				switch event := rapid.IntRange(0, 40).Draw(rt, "event"); {
				case event == 0:
					x.Verdict = codeAway
				case event == 1 && x.State.InFlight() && x.Reached < 5:
					s.put(Failed, i)
					x.Code = CodeOf(fleet.WhyReported)
				case event < 20 && x.State.InFlight():
					if until := permitted(l); x.Reached < until {
						if x.State == Offered {
							s.put(Upgrading, i)
						}
						x.Reached++
					}
					if x.Reached == 5 {
						s.put(Succeeded, i)
					}
				case l != nil && l.Undo != nil && event < 30 && x.State.InFlight():
					s.put(RolledBack, i)
				}
			}
			if l.Running() && !l.Committed() && rapid.IntRange(0, 60).Draw(rt, "cancel") == 0 {
				s.r.State = fleet.RolloutCancelling
			}
			s.wait(time.Duration(rapid.IntRange(0, 120).Draw(rt, "seconds")) * time.Second)
			before := s.r
			step := Decide(&s.r, s.targets, s.world, s.now)
			s.carryOut(&step)
			judgeLockstep(s, before.Lockstep, &step)
			if s.r.State.Ended() {
				return
			}
		}
	})
}

// permitted is the phase that the orders let hosts reach.
func permitted(l *fleet.Lockstep) uint8 {
	switch {
	case l == nil || l.Phase == fleet.LockstepVerify:
		return 0
	case l.Undo != nil:
		return ReachedNumber(agentapi.LockstepBackup)
	}
	if until, ok := l.Phase.Proceeds(); ok {
		return ReachedNumber(until)
	}
	switch l.Phase {
	case fleet.LockstepDrain:
		return 1
	case fleet.LockstepVerifyAgain:
		return 2
	}
	return 5
}

func judgeLockstep(s *simulation, was *fleet.Lockstep, step *Step) {
	l := s.r.Lockstep
	if l.CommittedAt != nil && l.Undo != nil {
		s.Fatal("it is committed, and is undone")
	}
	if was.Committed() && !l.Committed() || was != nil && was.Undo != nil && l.Undo == nil {
		s.Fatalf("it takes back what it has decided: %+v, then %+v", was, l)
	}
	if len(step.Offer) > 0 && (was == nil || was.Phase != fleet.LockstepDrain) {
		s.Fatal("it offers before the phase drain is written")
	}
	if l.Committed() && !was.Committed() {
		for i := range s.targets {
			if x := &s.targets[i]; x.Code != codeLeftOut && x.Reached < ReachedNumber(agentapi.LockstepBackup) {
				s.Fatalf("it commits, and target %d is %s and has reached %d", i, x.State.Name(), x.Reached)
			}
		}
	}
	if s.r.State.Ended() && s.r.Counts.InFlight() > 0 {
		s.Fatalf("it ends with %+v", s.r.Counts)
	}
}

func TestPlansInLockstepThatContradictThemselves(t *testing.T) {
	artifact := fleet.Artifact{Runtime: fleet.RuntimeProcess, Checksum: sum("sha512:")}
	for _, c := range []struct {
		name   string
		change func(*fleet.Plan)
		field  string // "" for none
		text   string
	}{
		{"nothing", func(*fleet.Plan) {}, "", ""},
		{"agents themselves", func(p *fleet.Plan) {
			p.Component, p.Artifacts = "", []fleet.Artifact{{Checksum: sum("sha512:")}}
		}, "component", "agents themselves may run mixed versions"},
		{"away in an unknown way", func(p *fleet.Plan) { p.Strategy.Away = "wait" }, "strategy.away", "want refuse or exclude"},
		{"no patience", func(p *fleet.Plan) { p.Strategy.Patience = fleet.Duration(time.Second) }, "strategy.patience", "want 1m to 2h"},
		{"too much of it", func(p *fleet.Plan) { p.Strategy.Patience = fleet.Duration(3 * time.Hour) }, "strategy.patience", "want 1m to 2h"},
		{"batches", func(p *fleet.Plan) { p.Strategy.BatchSize = 2 }, "strategy.batch_size", "does not go with lockstep"},
		{"canaries", func(p *fleet.Plan) { p.Strategy.Canary = &fleet.CanaryRule{Size: 1} }, "strategy.canary", "belongs to canary and rings"},
		{"rings", func(p *fleet.Plan) { p.Strategy.Rings = &fleet.RingRule{} }, "strategy.rings", "belongs to rings"},
		{"a limit", func(p *fleet.Plan) { p.Limits.MaxParallel = 3 }, "limits.max_parallel", "all targets go together"},
		{"a limit by site", func(p *fleet.Plan) { p.Limits.Per = []fleet.LabelLimit{{Label: "site", Max: 1}} }, "limits.per", "all targets go together"},
		{"tolerated failures", func(p *fleet.Plan) { p.Failure.Count = num(3) }, "failure.count", "undoes everything"},
		{"retries", func(p *fleet.Plan) { p.Failure.Retries = 1 }, "failure.retries", "by itself"},
		{"a soak", func(p *fleet.Plan) { p.Pace.Soak = fleet.Duration(time.Hour) }, "pace.soak", "one batch"},
		{"offers that are held", func(p *fleet.Plan) { p.Pace.OfferFor = fleet.Duration(time.Hour) }, "pace.offer_for", "strategy.away"},
		{"another wait", func(p *fleet.Plan) { p.Pace.WaitFor = fleet.Duration(time.Hour) }, "pace.wait_for", "strategy.patience"},
		{"late joiners", func(p *fleet.Plan) { p.LateJoiners = fleet.LateJoin }, "late_joiners", "another version beside the others"},
		{"windows", func(p *fleet.Plan) { p.Pace.Windows = []fleet.Window{{From: "22:00", To: "04:00", Zone: "UTC"}} }, "", ""},
		{"a breaking migration without its acknowledgement", func(p *fleet.Plan) {
			p.Migration = fleet.Migration{Type: fleet.MigrationBreaking, RecoveryPlan: "restore the copy"}
		}, "migration.acknowledge_state_risk", "does not go back"},
		{"a breaking migration needs no canaries", func(p *fleet.Plan) {
			p.Migration = fleet.Migration{Type: fleet.MigrationBreaking, RecoveryPlan: "restore the copy", AcknowledgeStateRisk: true}
		}, "", ""},
		{"away of another strategy", func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.Rolling, Away: fleet.AwayExclude}
		}, "strategy.away", "belongs to lockstep"},
		{"patience of another strategy", func(p *fleet.Plan) {
			p.Strategy = fleet.Strategy{Kind: fleet.Rolling, Patience: fleet.Duration(time.Hour)}
		}, "strategy.patience", "belongs to lockstep"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := inLockstep(func(p *fleet.Plan) {
				p.Name, p.Select, p.Artifacts = "as one", fleet.Selector{All: true}, []fleet.Artifact{artifact}
			})
			c.change(&p)
			p = WithDefaults(p)
			err := Check(&p)
			if c.field == "" {
				if err != nil {
					t.Errorf("it is refused: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "body.plan."+c.field) {
				t.Errorf("%v, want %s and %q", err, c.field, c.text)
			}
		})
	}
}
