package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// afternoon is when the scenarios begin: on a Tuesday, at two o'clock in UTC.
var afternoon = time.Date(2026, 11, 24, 14, 0, 0, 0, time.UTC)

// scenario returns a running rollout with batches of these sizes, whose agents are
// online. If the plan has canaries, they are the first batch.
func scenario(t *testing.T, p fleet.Plan, sizes ...int) *simulation {
	start := afternoon
	s := &simulation{TB: t, now: afternoon}
	if p.Limits.MaxParallel == 0 {
		p.Limits.MaxParallel = fleet.DefaultMaxParallel
	}
	if p.Pace.OfferFor == 0 {
		p.Pace.OfferFor = fleet.Duration(fleet.DefaultOfferFor)
	}
	s.r = fleet.Rollout{ID: "r", State: fleet.RolloutRunning, Plan: p, StartedAt: &start, Generation: 1}
	for b, size := range sizes {
		kind := fleet.BatchRegular
		if b == 0 && p.Strategy.Canary != nil {
			kind = fleet.BatchCanary
		}
		s.r.Batches = append(s.r.Batches, fleet.Batch{Index: b, Kind: kind})
		for range size {
			s.targets = append(s.targets, Target{
				Batch: int32(b), Online: true, Since: start.UnixNano(),
				Groups: [fleet.MaxLabelLimits]int32{-1, -1, -1, -1}, Sites: [fleet.MaxLabelLimits]int32{-1, -1, -1, -1},
			})
		}
	}
	s.exposed = make([]bool, len(s.targets))
	return s
}

func rolling() fleet.Plan { return fleet.Plan{Strategy: fleet.Strategy{Kind: fleet.Rolling}} }

func withCanaries() fleet.Plan {
	return fleet.Plan{Strategy: fleet.Strategy{Kind: fleet.Canary, Canary: &fleet.CanaryRule{}}}
}

// put sets the state of targets, as the reconciler does after a report.
func (s *simulation) put(state State, targets ...int) {
	for _, i := range targets {
		s.targets[i].State, s.targets[i].Code, s.targets[i].Since = state, 0, s.now.UnixNano()
		if state == Failed || state == RolledBack {
			s.exposed[i] = false
		}
	}
}

// finish lets all targets in flight succeed.
func (s *simulation) finish() {
	for i := range s.targets {
		if s.targets[i].State.InFlight() {
			s.put(Succeeded, i)
		}
	}
}

func (s *simulation) wait(d time.Duration) { s.now = s.now.Add(d) }

// offers does a round and fails the test unless exactly these targets are offered the
// version.
func (s *simulation) offers(targets ...int32) Step {
	s.Helper()
	step := s.round()
	if !slices.Equal(step.Offer, targets) {
		s.Fatalf("it offers to %v, want %v; it is %s and waits for %+v", step.Offer, targets, s.r.State, s.r.Waiting)
	}
	return step
}

// waitsFor fails the test unless this is the first thing that the rollout waits for.
func (s *simulation) waitsFor(code fleet.ReasonCode, text string) fleet.Wait {
	s.Helper()
	if len(s.r.Waiting) == 0 || s.r.Waiting[0].Code != code || !strings.Contains(s.r.Waiting[0].Text, text) {
		s.Fatalf("it is %s and waits for %+v, want %s: %s", s.r.State, s.r.Waiting, code, text)
	}
	return s.r.Waiting[0]
}

// stops fails the test unless the rollout was stopped in this way.
func (s *simulation) stops(kind fleet.StopKind, text string, withdrawn int) {
	s.Helper()
	if s.r.State != fleet.RolloutPaused || s.r.Stop.Kind != kind || !strings.Contains(s.r.Stop.Text, text) || s.r.Stop.Withdrawn != withdrawn || !s.r.Stop.At.Equal(s.now) {
		s.Fatalf("it is %s with %+v, want %s: %s, %d withdrawn", s.r.State, s.r.Stop, kind, text, withdrawn)
	}
}

func (s *simulation) is(state fleet.RolloutState) {
	s.Helper()
	if s.r.State != state {
		s.Fatalf("it is %s (%+v, waits for %+v), want %s", s.r.State, s.r.Stop, s.r.Waiting, state)
	}
}

func reasons(step Step) []fleet.ReasonCode {
	var names []fleet.ReasonCode
	for _, c := range step.Reasons {
		names = append(names, c.Name())
	}
	return names
}

func wantReasons(t *testing.T, step Step, want ...fleet.ReasonCode) {
	t.Helper()
	if got := reasons(step); !slices.Equal(got, want) {
		t.Fatalf("the reasons are %q, want %q", got, want)
	}
}

func upTo(n int32) []int32 {
	var targets []int32
	for i := range n {
		targets = append(targets, i)
	}
	return targets
}

func ptr[T any](v T) *T { return &v }

func TestBatches(t *testing.T) {
	t.Run("a draft offers nothing and says so", func(t *testing.T) {
		s := scenario(t, rolling(), 1, 1)
		s.r.State = fleet.RolloutDraft
		wantReasons(t, s.round(), fleet.WhyDraft, fleet.WhyDraft)
	})
	t.Run("one batch after the other, and then it is completed", func(t *testing.T) {
		s := scenario(t, rolling(), 2, 1, 2)
		wantReasons(t, s.offers(0, 1), "", "", fleet.WhyBatch, fleet.WhyBatch, fleet.WhyBatch)
		if len(s.r.Waiting) > 0 {
			t.Fatalf("it offers, and waits for %+v", s.r.Waiting)
		}
		s.put(Succeeded, 0)
		s.offers()
		s.waitsFor(fleet.WhyBatch, "1 agent is being upgraded in batch 1 of 3")
		s.put(Succeeded, 1)
		s.offers(2)
		s.finish()
		s.offers(3, 4)
		s.finish()
		s.offers()
		s.is(fleet.RolloutCompleted)
		if s.r.RunningSince != nil || s.r.Waiting != nil {
			t.Fatalf("it is over, and %+v", s.r)
		}
	})
	t.Run("no more in flight than max_parallel, over all batches", func(t *testing.T) {
		p := rolling()
		p.Limits.MaxParallel = 2
		s := scenario(t, p, 4)
		wantReasons(t, s.offers(0, 1), "", "", fleet.WhyParallel, fleet.WhyParallel)
		s.offers()
		s.waitsFor(fleet.WhyParallel, "2 agents are being upgraded, as many as may")
		s.put(Verifying, 0)
		s.put(Succeeded, 1)
		s.offers(2)
	})
	t.Run("no more of a label's value than its limit; others go ahead of them", func(t *testing.T) {
		p := rolling()
		p.Limits.MaxParallel = 5
		p.Limits.Per = []fleet.LabelLimit{{Label: "site", Max: 1}, {Label: "rack", Max: 1}}
		s := scenario(t, p, 6)
		for i, group := range []int32{7, 7, 7, -1, -1, 3} {
			s.targets[i].Groups[0] = group
		}
		s.targets[0].Groups[1], s.targets[3].Groups[1] = 1, 1
		wantReasons(t, s.offers(0, 4, 5), "", fleet.WhyLabelLimit, fleet.WhyLabelLimit, fleet.WhyLabelLimit, "", "")
		s.offers()
		s.waitsFor(fleet.WhyLabelLimit, "3 agents wait for others with the same site or rack")
		s.put(Succeeded, 0)
		s.offers(1, 3)
	})
	t.Run("a rollout with a failure and nothing left to do is failed", func(t *testing.T) {
		s := scenario(t, rolling(), 2)
		s.offers(0, 1)
		s.put(Failed, 0)
		s.put(Succeeded, 1)
		s.offers()
		s.is(fleet.RolloutFailed)
	})
	t.Run("without targets it is completed at once", func(t *testing.T) {
		s := scenario(t, rolling())
		s.offers()
		s.is(fleet.RolloutCompleted)
	})
	t.Run("what was written before a crash counts: offered, and the batch not yet started", func(t *testing.T) {
		s := scenario(t, rolling(), 2, 1)
		s.put(Offered, 0, 1)
		s.offers()
		if s.r.Batches[0].StartedAt == nil {
			t.Fatal("the batch has offers and has not started")
		}
	})
	t.Run("late agents come last, and nobody watches them as canaries", func(t *testing.T) {
		s := scenario(t, withCanaries(), 1, 1, 1)
		s.r.Batches[2].Kind = fleet.BatchLate
		s.offers(0)
		s.finish()
		s.round()
		s.wait(2 * fleet.DefaultHealthWait)
		s.offers(1)
		s.finish()
		s.offers(2)
	})
	t.Run("a round moves a bounded number, and asks for the next at once", func(t *testing.T) {
		s := scenario(t, rolling(), MaxMoves+2)
		for i := range s.targets {
			s.targets[i].Online = false
		}
		step := s.offers()
		if len(step.Moves) != MaxMoves || !step.Next.Equal(s.now) || s.r.Counts.Pending != 2 {
			t.Fatalf("%d moves, the next round at %s, %+v", len(step.Moves), step.Next, s.r.Counts)
		}
		if step = s.offers(); len(step.Moves) != 2 {
			t.Fatalf("then %d moves", len(step.Moves))
		}
		s.settle()
		s.waitsFor(fleet.WhyAway, "10002 agents are away")
	})
	t.Run("asked again it says the same, and nothing worth writing", func(t *testing.T) {
		s := scenario(t, rolling(), 1, 1)
		s.offers(0)
		s.offers()
		since := s.waitsFor(fleet.WhyBatch, "").Since
		s.wait(time.Second)
		if step := s.offers(); step.Changed || !s.waitsFor(fleet.WhyBatch, "").Since.Equal(since) {
			t.Fatalf("it changed, or waits since another time: %+v, before since %s", step.Rollout, since)
		}
	})
}

func TestAgentsThatAreAway(t *testing.T) {
	t.Run("hold their offer, block nothing, and come first when they are back", func(t *testing.T) {
		p := rolling()
		p.Limits.MaxParallel = 1
		s := scenario(t, p, 2, 2)
		s.targets[0].Online = false
		wantReasons(t, s.offers(1), fleet.WhyAway, "", fleet.WhyBatch, fleet.WhyBatch)
		s.finish()
		s.offers(2)
		s.targets[0].Online = true
		s.finish()
		wantReasons(t, s.offers(0), "", "", "", fleet.WhyParallel)
		s.finish()
		s.offers(3)
		s.finish()
		s.offers()
		s.is(fleet.RolloutCompleted)
	})
	t.Run("keep it running until their offers expire, and never count as attempted", func(t *testing.T) {
		s := scenario(t, rolling(), 2)
		s.targets[0].Online = false
		s.offers(1)
		s.finish()
		step := s.offers()
		s.is(fleet.RolloutRunning)
		s.waitsFor(fleet.WhyAway, "1 agent is away")
		if want := afternoon.Add(fleet.DefaultOfferFor); !step.Next.Equal(want) {
			t.Fatalf("it looks again at %s, want when the offer expires, %s", step.Next, want)
		}
		s.now = step.Next
		s.offers()
		s.is(fleet.RolloutCompleted)
		if s.r.Counts.Expired != 1 || s.r.Counts.Attempted() != 1 {
			t.Fatalf("it counts %+v", s.r.Counts)
		}
	})
	t.Run("are passed over batch by batch in one round when all are", func(t *testing.T) {
		s := scenario(t, rolling(), 2, 2, 1)
		for i := range 4 {
			s.targets[i].Online = false
		}
		s.offers(4)
	})
	t.Run("that are back are not passed over with their batch", func(t *testing.T) {
		s := scenario(t, rolling(), 1, 1)
		s.targets[0].Online, s.targets[1].State = false, Held
		if step := s.offers(); !step.Next.Equal(s.now) {
			t.Fatalf("it looks again at %s, want at once", step.Next)
		}
		s.offers(1)
	})
	t.Run("are not offered anything in a pause, although they are back", func(t *testing.T) {
		s := scenario(t, rolling(), 2, 1)
		s.targets[0].Online = false
		s.offers(1)
		s.r.PauseAsked = &fleet.Decision{By: "ann"}
		s.finish()
		s.offers()
		s.stops(fleet.StopOperator, "an operator asked", 0)
		s.targets[0].Online = true
		wantReasons(t, s.offers(), fleet.WhyPaused, "", fleet.WhyPaused)
	})
	t.Run("busy agents wait, block their batch for as long as it may take, and are then left out", func(t *testing.T) {
		s := scenario(t, rolling(), 2, 1)
		s.targets[0].Busy = true
		wantReasons(t, s.offers(1), fleet.WhyBusy, "", fleet.WhyBatch)
		s.finish()
		step := s.offers()
		s.waitsFor(fleet.WhyBusy, "1 agent has something else under way")
		s.now = step.Next
		if step = s.round(); len(step.Moves) != 1 || step.Moves[0] != (Move{Target: 0, To: Skipped, Code: codeBusy}) {
			t.Fatalf("it moves %+v at %s", step.Moves, s.now)
		}
		s.offers(2)
	})
}

func TestPromotedRollouts(t *testing.T) {
	promote := func(s *simulation) { s.r.Promoted = &fleet.Decision{By: "ann", At: s.now, Why: "it is urgent"} }

	t.Run("wait for no observation, soak or approval", func(t *testing.T) {
		p := withCanaries()
		p.Strategy.Canary.Approval, p.Pace.Soak = true, fleet.Duration(time.Hour)
		s := scenario(t, p, 1, 1, 1)
		s.offers(0)
		s.finish()
		s.offers()
		s.waitsFor(fleet.WhyApproval, "an operator must approve")
		promote(s)
		s.offers(1)
		s.finish()
		s.offers(2) // the soak between later batches neither
		s.finish()
		s.settle()
		s.is(fleet.RolloutCompleted)
	})
	t.Run("do not wait for canaries in flight, or for those that are not offered yet", func(t *testing.T) {
		p := withCanaries()
		p.Limits.MaxParallel = 2
		s := scenario(t, p, 3, 2)
		s.offers(0, 1)
		s.settle()
		promote(s)
		s.settle()
		if b := s.r.Batches[0]; b.ClearedAt == nil || b.EndedAt != nil || b.StartedAt == nil {
			t.Errorf("the batch of canaries is %+v", b)
		}
		s.put(Succeeded, 0)
		s.offers(2) // canaries before the others, and never more than the limit
		s.put(Succeeded, 1)
		s.offers(3)
		if s.r.Batches[0].EndedAt != nil {
			t.Error("the canaries have ended while one is in flight")
		}
		s.wait(time.Minute)
		s.put(Succeeded, 2)
		s.offers(4)
		if end := s.r.Batches[0].EndedAt; end == nil || !end.Equal(s.now) {
			t.Errorf("the canaries ended at %v, want %v", end, s.now)
		}
		s.finish()
		s.settle()
		s.is(fleet.RolloutCompleted)
	})
	t.Run("do not stop at a failed canary, but at the threshold", func(t *testing.T) {
		s := scenario(t, withCanaries(), 3, 3)
		s.offers(0, 1, 2)
		promote(s)
		s.put(Failed, 0)
		s.offers(3, 4, 5)
		s.put(Failed, 1, 3)
		s.round()
		s.stops(fleet.StopThreshold, "3 of 3 failed, the plan stops at 3", 3)
	})
	t.Run("do not count the failures before", func(t *testing.T) {
		s := scenario(t, withCanaries(), 2, 4)
		s.offers(0, 1)
		s.put(Failed, 0, 1)
		s.round()
		s.stops(fleet.StopCanary, "2 of 2 canaries failed", 0)
		promote(s)
		s.resume()
		s.offers(2, 3, 4, 5)
		s.put(Failed, 2, 3, 4)
		s.round()
		s.stops(fleet.StopThreshold, "3 of 5 failed besides the 2 that were forgiven", 1)
	})
	t.Run("go on although no canary was upgraded", func(t *testing.T) {
		s := scenario(t, withCanaries(), 2, 1)
		for i := range 2 {
			s.targets[i].Online = false
		}
		s.settle()
		s.is(fleet.RolloutRunning)
		promote(s)
		s.offers(2)
		s.finish()
		s.settle()
		s.waitsFor(fleet.WhyAway, "2 agents are away")
		s.targets[0].Online = true
		s.offers(0)
	})
	t.Run("wait for windows, freezes, the budget and a pause that the plan requires", func(t *testing.T) {
		p := withCanaries()
		p.Pace.Windows = []fleet.Window{{From: "20:00", To: "22:00"}}
		s := scenario(t, p, 1, 1)
		promote(s)
		s.offers()
		s.waitsFor(fleet.WhyWindow, "")
		s.now = afternoon.Add(6 * time.Hour)
		s.world.Freezes = []fleet.Freeze{{Name: "quarter", From: afternoon, To: afternoon.Add(7 * time.Hour)}}
		s.offers()
		s.waitsFor(fleet.WhyFreeze, "quarter")
		s.world.Freezes = nil
		s.world.Exposure = &Room{Exposure: fleet.Exposure{Version: "2.0.0", Fleet: 10, Limit: 1, NeededHours: 5}}
		s.offers(0)

		p = withCanaries()
		p.Pace.PauseOnSuccess = true
		s = scenario(t, p, 1, 1)
		s.offers(0)
		s.finish()
		promote(s)
		s.round()
		s.stops(fleet.StopSuccess, "batch 1 of 2 is done, and the plan pauses after each", 0)
	})
	t.Run("end at the deadline", func(t *testing.T) {
		deadline := afternoon.Add(time.Hour)
		p := fleet.Plan{Strategy: fleet.Strategy{Kind: fleet.AllAtOnce, Deadline: &deadline}}
		p.Limits.MaxParallel = 1
		s := scenario(t, p, 2)
		promote(s)
		s.offers(0)
		s.wait(time.Hour)
		s.round()
		s.stops(fleet.StopDeadline, "nothing is offered after it", 1)
	})
}

func TestCanaries(t *testing.T) {
	t.Run("are watched for twice the health wait before anybody else comes", func(t *testing.T) {
		p := withCanaries()
		p.Health.Wait = fleet.Duration(3 * time.Minute)
		s := scenario(t, p, 2, 2, 1)
		s.offers(0, 1)
		s.wait(time.Minute)
		s.finish()
		wantReasons(t, s.offers(), "", "", fleet.WhyObservation, fleet.WhyObservation, fleet.WhyBatch)
		w := s.waitsFor(fleet.WhyObservation, "watched for 6m")
		if want := s.now.Add(6 * time.Minute); !w.Until.Equal(want) {
			t.Fatalf("it waits until %s, want %s", w.Until, want)
		}
		s.wait(6*time.Minute - time.Second)
		s.offers()
		s.wait(time.Second)
		s.offers(2, 3)
	})
	t.Run("in an emergency are not watched", func(t *testing.T) {
		p := withCanaries()
		p.Pace.Emergency, p.Pace.Soak = true, fleet.Duration(time.Hour)
		s := scenario(t, p, 1, 1, 1)
		s.offers(0)
		s.finish()
		s.offers(1)
		s.finish()
		s.offers(2)
	})
	t.Run("stop the rollout when one fails, and what has not begun is withdrawn", func(t *testing.T) {
		s := scenario(t, withCanaries(), 3, 2)
		s.offers(0, 1, 2)
		s.put(RolledBack, 0)
		s.put(Upgrading, 1)
		step := s.round()
		s.stops(fleet.StopCanary, "1 of 3 canaries failed", 1)
		if !slices.Equal(step.Withdraw, []int32{2}) || s.r.Generation != 2 {
			t.Fatalf("it takes back %v, generation %d", step.Withdraw, s.r.Generation)
		}
		wantReasons(t, step, "", "", "", fleet.WhyCanaryFailed, fleet.WhyCanaryFailed)
	})
	t.Run("may fail as often as the plan says in so many words", func(t *testing.T) {
		for count, stopsAt := range map[int]int{0: 1, 1: 1, 2: 2, fleet.DefaultFailureCount: 3, 4: 4} {
			p := withCanaries()
			p.Failure.Count = &count
			s := scenario(t, p, 6, 2)
			s.round()
			for failed := 0; s.r.State == fleet.RolloutRunning; failed++ {
				if failed == stopsAt {
					t.Fatalf("with a count of %d it goes on after %d failures", count, failed)
				}
				s.put(Failed, failed)
				s.round()
			}
			if s.r.Counts.Failed != stopsAt || s.r.Stop.Kind != fleet.StopCanary {
				t.Fatalf("with a count of %d it stops after %d failures: %+v", count, s.r.Counts.Failed, s.r.Stop)
			}
		}
	})
	t.Run("that are all away are waited for, and prove nothing when none came", func(t *testing.T) {
		s := scenario(t, withCanaries(), 2, 1)
		s.targets[0].Online, s.targets[1].Online = false, false
		step := s.settle()
		s.waitsFor(fleet.WhyAway, "2 agents are away")
		wantReasons(t, step, fleet.WhyAway, fleet.WhyAway, fleet.WhyBatch)
		s.wait(fleet.DefaultOfferFor)
		s.round()
		s.stops(fleet.StopCanary, "none of the 2 canaries was upgraded", 0)
		s.resume()
		s.wait(time.Hour)
		s.offers(2)
	})
	t.Run("one of which came are enough", func(t *testing.T) {
		s := scenario(t, withCanaries(), 2, 1)
		s.targets[0].Online = false
		s.offers(1)
		s.finish()
		s.round()
		s.wait(2 * fleet.DefaultHealthWait)
		s.offers(2)
	})
	t.Run("that came late are waited for", func(t *testing.T) {
		s := scenario(t, withCanaries(), 2, 1)
		s.targets[0].Online = false
		s.offers(1)
		s.finish()
		s.round()
		s.wait(2*fleet.DefaultHealthWait - time.Minute)
		s.targets[0].Online = true
		s.offers(0)
		s.wait(time.Hour)
		s.offers()
		s.waitsFor(fleet.WhyObservation, "1 canary that was away is being upgraded")
		s.put(Failed, 0)
		s.round()
		s.stops(fleet.StopCanary, "1 of 2 canaries failed", 0)
	})
	t.Run("are approved by an operator where the migration is breaking, within the wait", func(t *testing.T) {
		p := withCanaries()
		p.Migration.Type = fleet.MigrationBreaking
		s := scenario(t, p, 1, 1)
		s.offers(0)
		s.finish()
		wantReasons(t, s.offers(), "", fleet.WhyApproval)
		s.waitsFor(fleet.WhyApproval, "must approve")
		if len(s.r.Waiting) != 2 || s.r.Waiting[1].Code != fleet.WhyObservation {
			t.Fatalf("it waits for %+v, want the observation besides", s.r.Waiting)
		}
		s.now = *s.r.Waiting[0].Until
		s.round()
		s.stops(fleet.StopDeadline, "nobody has approved", 0)
		s.wait(40 * 24 * time.Hour)
		s.resume()
		s.offers()
		if until := s.waitsFor(fleet.WhyApproval, "").Until; !until.Equal(s.now.Add(fleet.DefaultWaitFor)) {
			t.Fatalf("resumed it waits until %s", until)
		}
		s.r.Approved = &fleet.Decision{By: "ann"}
		s.offers(1)
	})
	t.Run("of the last batch are neither watched nor approved", func(t *testing.T) {
		p := withCanaries()
		p.Strategy.Canary.Approval, p.Pace.Soak, p.Pace.PauseOnSuccess = true, fleet.Duration(time.Hour), true
		s := scenario(t, p, 2)
		s.offers(0, 1)
		s.finish()
		s.offers()
		s.is(fleet.RolloutCompleted)
	})
}

func TestStopping(t *testing.T) {
	t.Run("at the count of failures, with the arithmetic, and going on forgives them", func(t *testing.T) {
		s := scenario(t, rolling(), 10, 5)
		s.offers(upTo(10)...)
		s.put(Succeeded, 3, 4, 5)
		s.put(Failed, 0, 1)
		s.offers()
		s.put(RolledBack, 2)
		s.put(Upgrading, 6, 7)
		step := s.round()
		s.stops(fleet.StopThreshold, "3 of 6 failed, the plan stops at 3", 2)
		if !slices.Equal(step.Withdraw, []int32{8, 9}) || s.r.Counts.Offered != 0 || s.r.Batches[0].Counts.Withdrawn != 2 {
			t.Fatalf("it takes back %v and counts %+v", step.Withdraw, s.r.Counts)
		}
		s.put(Succeeded, 6, 7)
		s.offers()
		s.resume()
		s.offers(8, 9) // withdrawn targets come first
		s.put(Succeeded, 8, 9)
		s.offers(10, 11, 12, 13, 14)
		s.put(Failed, 10, 11)
		s.offers()
		s.is(fleet.RolloutRunning)
		s.put(Failed, 12)
		s.round()
		s.stops(fleet.StopThreshold, "3 of 13 failed besides the 3 that were forgiven", 2)
	})
	t.Run("a failure that was forgiven and tried again counts when it fails again", func(t *testing.T) {
		p := rolling()
		p.Failure.Count = ptr(1)
		s := scenario(t, p, 1, 1, 1)
		s.offers(0)
		s.put(Failed, 0)
		s.round()
		s.resume()
		s.put(Pending, 0)
		s.offers(0)
		if s.r.Forgiven != 0 {
			t.Fatalf("%d failures are still forgiven", s.r.Forgiven)
		}
		s.put(Failed, 0)
		s.round()
		s.stops(fleet.StopThreshold, "1 of 1 failed", 0)
	})
	t.Run("above a percentage, once enough were attempted to speak of one", func(t *testing.T) {
		p := rolling()
		p.Failure.Percent = ptr(20.0)
		s := scenario(t, p, 10, 5)
		s.round()
		s.put(Failed, 0)
		s.put(Succeeded, 1, 2, 3)
		s.offers() // 25 % of 4
		s.is(fleet.RolloutRunning)
		s.put(Succeeded, 4)
		s.offers() // 20 % of 5
		s.is(fleet.RolloutRunning)
		s.put(Failed, 5)
		s.round()
		s.stops(fleet.StopThreshold, "2 of 6 failed, which is 33.3 %; the plan stops above 20 %", 4)
	})
	t.Run("above a percentage at the end of a small batch", func(t *testing.T) {
		p := rolling()
		p.Failure.Percent = ptr(40.0)
		s := scenario(t, p, 2, 5)
		s.round()
		s.put(Failed, 0)
		s.offers()
		s.is(fleet.RolloutRunning)
		s.put(Succeeded, 1)
		s.round()
		s.stops(fleet.StopThreshold, "1 of 2 failed, which is 50 %", 0)
	})
	t.Run("above a percentage at the end of a batch of which some were away", func(t *testing.T) {
		p := rolling()
		p.Failure.Percent = ptr(20.0)
		s := scenario(t, p, 6, 5)
		s.targets[4].Online, s.targets[5].Online = false, false
		s.offers(0, 1, 2, 3)
		s.put(Failed, 0)
		s.put(Succeeded, 1, 2)
		s.offers()
		s.is(fleet.RolloutRunning)
		s.put(Succeeded, 3)
		s.round()
		s.stops(fleet.StopThreshold, "1 of 4 failed, which is 25 %", 0)
	})
	t.Run("never where failures are to be ignored: all at once with force_continue, or forced", func(t *testing.T) {
		p := fleet.Plan{Strategy: fleet.Strategy{Kind: fleet.AllAtOnce, ForceContinue: true}}
		p.Limits.MaxParallel = 4
		for _, s := range []*simulation{scenario(t, p, 6), scenario(t, withCanaries(), 4, 2)} {
			if s.r.Plan.Strategy.Canary != nil {
				s.r.Forced = &fleet.Decision{By: "ann"}
			}
			s.offers(0, 1, 2, 3)
			s.put(Failed, 0, 1, 2, 3)
			s.round()
			s.wait(2 * fleet.DefaultHealthWait)
			s.settle()
			if s.put(Succeeded, 4, 5); s.r.Counts.Offered != 2 {
				t.Fatalf("%s: %+v, %+v", s.r.Plan.Strategy.Kind, s.r.Counts, s.r.Stop)
			}
			s.offers()
			s.is(fleet.RolloutFailed)
		}
	})
	t.Run("for an operator when the batch is done, which is offered to the end", func(t *testing.T) {
		p := rolling()
		p.Limits.MaxParallel = 1
		s := scenario(t, p, 2, 1)
		s.offers(0)
		s.r.PauseAsked = &fleet.Decision{By: "ann", Why: "lunch"}
		s.finish()
		s.offers(1)
		s.offers()
		s.is(fleet.RolloutRunning)
		s.finish()
		wantReasons(t, s.offers(), "", "", fleet.WhyPaused)
		s.stops(fleet.StopOperator, "lunch", 0)
		if s.r.Stop.By != "ann" || s.r.PauseAsked != nil || s.r.Generation != 2 {
			t.Fatalf("it was stopped: %+v, %+v", s.r.Stop, s.r)
		}
		s.resume()
		s.offers(2)
	})
	t.Run("for an operator at once when the batch has not begun", func(t *testing.T) {
		s := scenario(t, rolling(), 2)
		s.r.PauseAsked = &fleet.Decision{By: "ann"}
		s.offers()
		s.stops(fleet.StopOperator, "an operator asked for it", 0)
	})
	t.Run("for an operator when nothing is in flight and the window has closed upon the batch", func(t *testing.T) {
		p := rolling()
		p.Limits.MaxParallel = 1
		p.Pace.Windows = []fleet.Window{{From: "14:00", To: "15:00"}}
		s := scenario(t, p, 2)
		s.offers(0)
		s.r.PauseAsked = &fleet.Decision{By: "ann"}
		s.wait(time.Hour)
		s.offers()
		s.is(fleet.RolloutRunning)
		s.finish()
		s.offers()
		s.stops(fleet.StopOperator, "an operator asked for it", 0)
	})
	t.Run("after each batch that succeeded, once", func(t *testing.T) {
		p := rolling()
		p.Pace.PauseOnSuccess = true
		s := scenario(t, p, 1, 1)
		s.offers(0)
		s.finish()
		wantReasons(t, s.offers(), "", fleet.WhyPaused)
		s.stops(fleet.StopSuccess, "batch 1 of 2 is done", 0)
		s.resume()
		s.offers(1)
		s.finish()
		s.offers()
		s.is(fleet.RolloutCompleted)
	})
	t.Run("after each batch that succeeded, but not in the step that offers to an agent that is back", func(t *testing.T) {
		p := rolling()
		p.Pace.PauseOnSuccess, p.Limits.MaxParallel = true, 1
		s := scenario(t, p, 2, 2, 1)
		s.targets[0].Online = false
		s.offers(1)
		s.finish()
		s.offers()
		s.resume()
		s.offers(2)
		s.finish()
		s.targets[0].Online, s.targets[3].Online = true, false
		s.offers(0)
		s.is(fleet.RolloutRunning)
		s.offers()
		s.stops(fleet.StopSuccess, "batch 2 of 3 is done", 0)
	})
	t.Run("a pause becomes a gate when what is in flight fails in it", func(t *testing.T) {
		s := scenario(t, rolling(), 5, 5)
		s.round()
		s.put(Upgrading, 0, 1, 2)
		s.r.State, s.r.Stop = fleet.RolloutPaused, &fleet.Stop{Kind: fleet.StopOperator, By: "ann", At: s.now}
		s.offers()
		s.put(Failed, 0, 1, 2)
		s.round()
		s.stops(fleet.StopThreshold, "3 of 3 failed", 2)
	})
	t.Run("an offer that was on its way when a gate stopped it is withdrawn too", func(t *testing.T) {
		s := scenario(t, rolling(), 3)
		s.put(Offered, 1)
		s.r.State, s.r.Stop = fleet.RolloutPaused, &fleet.Stop{Kind: fleet.StopThreshold, By: "muster", At: s.now, Withdrawn: 0}
		if step := s.round(); !slices.Equal(step.Withdraw, []int32{1}) || s.r.Stop.Withdrawn != 1 {
			t.Fatalf("it takes back %v, %+v", step.Withdraw, s.r.Stop)
		}
	})
	t.Run("cancelling takes back what has not begun and waits for the rest", func(t *testing.T) {
		s := scenario(t, rolling(), 3, 1)
		s.targets[2].Online = false
		s.offers(0, 1)
		s.put(Upgrading, 0)
		s.r.State = fleet.RolloutCancelling
		if step := s.round(); !slices.Equal(step.Withdraw, []int32{1}) || s.r.Counts.Cancelled != 2 {
			t.Fatalf("it takes back %v and counts %+v", step.Withdraw, s.r.Counts)
		}
		s.is(fleet.RolloutCancelling)
		s.waitsFor(fleet.WhyBatch, "1 agent is being upgraded in batch 1 of 2")
		s.finish()
		s.offers()
		s.is(fleet.RolloutCancelled)
		s.put(Pending, 1)
		wantReasons(t, Decide(&s.r, s.targets, s.world, s.now), "", fleet.WhyOver, "", "")
	})
	t.Run("nothing is offered while it is being rolled back", func(t *testing.T) {
		s := scenario(t, rolling(), 1, 1)
		s.world.RollingBack = true
		wantReasons(t, s.offers(), fleet.WhyRollingBack, fleet.WhyBatch)
		s.waitsFor(fleet.WhyRollingBack, "rollback")
	})
}

func TestRetries(t *testing.T) {
	stale := func(s *simulation, i int) {
		s.put(Failed, i)
		s.targets[i].Code = codeStale
	}
	t.Run("what failed without harm is tried again, as often as the plan says", func(t *testing.T) {
		p := rolling()
		p.Failure.Count, p.Failure.Retries = ptr(1), 1
		s := scenario(t, p, 1, 1)
		s.offers(0)
		stale(s, 0)
		wantReasons(t, s.offers(), fleet.WhyNext, fleet.WhyBatch)
		if s.r.Counts.Failed != 0 || s.r.Counts.Pending != 2 {
			t.Fatalf("it counts %+v", s.r.Counts)
		}
		s.offers(0)
		stale(s, 0)
		s.round()
		s.stops(fleet.StopThreshold, "1 of 1 failed", 0)
	})
	t.Run("what failed otherwise is not", func(t *testing.T) {
		p := rolling()
		p.Failure.Retries = 3
		s := scenario(t, p, 1)
		s.offers(0)
		s.put(Failed, 0)
		s.offers()
		s.is(fleet.RolloutFailed)
	})
	t.Run("an operator's retry in a batch that is done goes ahead of the current one", func(t *testing.T) {
		s := scenario(t, rolling(), 2, 2)
		s.offers(0, 1)
		s.put(Failed, 0)
		s.put(Succeeded, 1)
		s.offers(2, 3)
		s.put(Pending, 0)
		s.offers(0)
	})
	t.Run("an operator's retry that cannot be offered is waited for as long as a batch, and no longer", func(t *testing.T) {
		for _, end := range []State{Skipped, Expired} {
			s := scenario(t, rolling(), 1, 1)
			s.offers(0)
			s.put(Failed, 0)
			s.offers(1)
			s.finish()
			s.put(Pending, 0)
			if end == Skipped {
				s.targets[0].Busy = true
			} else {
				s.world.Exposure = &Room{Exposure: fleet.Exposure{Version: "1.2.0", Fleet: 9, Limit: 1}} // target 1 has it
			}
			s.offers()
			s.wait(fleet.DefaultWaitFor - time.Second)
			s.offers()
			s.is(fleet.RolloutRunning)
			s.wait(time.Second)
			s.round()
			s.is(fleet.RolloutCompleted)
			if s.targets[0].State != end {
				t.Fatalf("it is %s in the end, want %s", s.targets[0].State.Name(), end.Name())
			}
		}
	})
}

func TestSoakDeadlinesAndWindows(t *testing.T) {
	t.Run("a batch is left to soak before the next, and agents put back begin it anew", func(t *testing.T) {
		p := rolling()
		p.Pace.Soak = fleet.Duration(time.Hour)
		s := scenario(t, p, 2, 1, 1)
		s.offers(0, 1)
		s.put(Failed, 0)
		s.put(Succeeded, 1)
		wantReasons(t, s.offers(), "", "", fleet.WhySoak, fleet.WhyBatch)
		s.waitsFor(fleet.WhySoak, "batch 1 of 3 is left to show its health for 1h")
		s.wait(50 * time.Minute)
		s.put(Pending, 0)
		s.offers(0)
		s.finish()
		s.offers()
		s.wait(59 * time.Minute)
		s.offers()
		s.wait(time.Minute)
		s.offers(2)
	})
	t.Run("a batch begun anew has all its time again", func(t *testing.T) {
		p := rolling()
		p.Pace.Soak = fleet.Duration(2 * fleet.DefaultWaitFor)
		s := scenario(t, p, 2, 1)
		s.offers(0, 1)
		s.put(Failed, 0)
		s.put(Succeeded, 1)
		s.offers()
		s.wait(fleet.DefaultWaitFor + time.Hour)
		s.put(Pending, 0)
		s.offers(0)
		s.wait(fleet.DefaultWaitFor - time.Second)
		s.offers()
		s.is(fleet.RolloutRunning)
	})
	t.Run("outside the windows nothing is offered, and an open one is told too", func(t *testing.T) {
		p := rolling()
		p.Limits.MaxParallel = 1
		p.Pace.Windows = []fleet.Window{{From: "22:00", To: "23:00"}}
		s := scenario(t, p, 2, 1)
		step := s.offers()
		wantReasons(t, step, fleet.WhyWindow, fleet.WhyWindow, fleet.WhyBatch)
		if w := s.waitsFor(fleet.WhyWindow, "outside"); !w.Until.Equal(afternoon.Add(8*time.Hour)) || !step.Next.Equal(*w.Until) {
			t.Fatalf("it waits until %s, and looks again at %s", w.Until, step.Next)
		}
		s.now = step.Next
		if step = s.offers(0); !step.Next.Equal(s.now.Add(time.Hour)) {
			t.Fatalf("it looks again at %s, want when the window closes", step.Next)
		}
		s.now = step.Next
		s.finish()
		wantReasons(t, s.offers(), "", fleet.WhyWindow, fleet.WhyBatch)
	})
	t.Run("in a freeze nothing is offered but in an emergency", func(t *testing.T) {
		for _, emergency := range []bool{false, true} {
			p := rolling()
			p.Pace.Emergency, p.Pace.Windows = emergency, []fleet.Window{{From: "22:00", To: "23:00"}}
			s := scenario(t, p, 1)
			s.world.Freezes = []fleet.Freeze{{Name: "year end", From: afternoon, To: afternoon.Add(24 * time.Hour)}}
			if emergency {
				s.offers(0)
				continue
			}
			s.offers()
			if w := s.waitsFor(fleet.WhyFreeze, `"year end"`); !w.Until.Equal(afternoon.Add(32 * time.Hour)) {
				t.Fatalf("it waits until %s, want the first window after the freeze", w.Until)
			}
		}
	})
	t.Run("a batch that is not done in time stops it; pauses and freezes use up nothing", func(t *testing.T) {
		s := scenario(t, rolling(), 1, 1)
		s.offers(0)
		s.wait(fleet.DefaultWaitFor)
		s.world.Freezes = []fleet.Freeze{{From: s.now.Add(-2 * time.Hour), To: s.now.Add(-time.Hour)}}
		s.offers()
		s.is(fleet.RolloutRunning)
		s.wait(fleet.DefaultWaitFor - time.Hour)
		s.round()
		s.stops(fleet.StopDeadline, "batch 1 of 2 has taken", 1)
		s.put(Upgrading, 0)
		s.wait(fleet.DefaultWaitFor)
		s.resume()
		s.offers()
		s.wait(fleet.DefaultWaitFor - time.Second)
		s.offers()
		s.is(fleet.RolloutRunning)
		s.wait(time.Second)
		s.round()
		s.stops(fleet.StopDeadline, "0 pending, 1 in flight", 0)
	})
	t.Run("nothing is offered after the plan's deadline", func(t *testing.T) {
		p := rolling()
		p.Limits.MaxParallel = 2
		p.Strategy.Deadline = ptr(afternoon.Add(time.Hour))
		s := scenario(t, p, 3)
		step := s.offers(0, 1)
		if !step.Next.Equal(*p.Strategy.Deadline) {
			t.Fatalf("it looks again at %s", step.Next)
		}
		s.put(Upgrading, 0)
		s.now = step.Next
		wantReasons(t, s.round(), "", "", fleet.WhyDeadline)
		s.stops(fleet.StopDeadline, "the plan's deadline 2026-11-24 15:00 UTC has passed", 1)
		s.resume()
		s.offers()
		s.is(fleet.RolloutPaused)
	})
}

func TestExposureBudget(t *testing.T) {
	budget := func(s *simulation, all, each int) {
		s.world.Exposure = &Room{
			Exposure: fleet.Exposure{Version: "1.2.0", Fleet: 100, NeededHours: 200, HealthyHours: 85},
			Sites:    []fleet.ExposureValue{{Label: "site", Value: "berlin", Fleet: 10}, {Label: "site", Value: "oslo", Fleet: 10}},
		}
		s.limitTo(all, each)
	}
	t.Run("each offer takes of the room, and then hours are waited for", func(t *testing.T) {
		s := scenario(t, rolling(), 4)
		budget(s, 2, 10)
		wantReasons(t, s.offers(0, 1), "", "", fleet.WhyExposure, fleet.WhyExposure)
		s.finish()
		step := s.offers()
		s.waitsFor(fleet.WhyExposure, "2 of 100 agents run 1.2.0 or were offered it, and 2 may; it has had 42 % of the 200 healthy agent-hours")
		if step.Next.After(s.now.Add(exposureInterval)) || s.r.Exposure.Exposed != 2 {
			t.Fatalf("it looks again at %s, %+v", step.Next, s.r.Exposure)
		}
		s.wait(time.Second)
		s.world.Exposure.HealthyHours += 0.1
		if s.round().Changed {
			t.Fatal("hours alone are worth writing")
		}
		s.limitTo(100, 10)
		s.offers(2, 3)
	})
	t.Run("the room of a site is taken too, and the others go on", func(t *testing.T) {
		s := scenario(t, rolling(), 4)
		budget(s, 100, 1)
		s.targets[0].Sites[0], s.targets[1].Sites[0], s.targets[2].Sites[0] = 1, 1, 0
		wantReasons(t, s.offers(0, 2, 3), "", fleet.WhyExposure, "", "")
		s.finish()
		s.offers()
		s.waitsFor(fleet.WhyExposure, "1 of 10 agents with site oslo run 1.2.0 or were offered it, and 1 may")
	})
	t.Run("beyond the limit it stops, and what has not begun is withdrawn", func(t *testing.T) {
		s := scenario(t, rolling(), 3, 1)
		budget(s, 10, 10)
		s.offers(0, 1, 2)
		s.put(Upgrading, 0)
		s.limitTo(2, 10)
		wantReasons(t, s.round(), "", "", "", fleet.WhyExposure)
		s.stops(fleet.StopExposure, "3 of 100 agents run 1.2.0", 2)
	})
	t.Run("beyond the limit of a site it stops as well", func(t *testing.T) {
		s := scenario(t, rolling(), 2, 1)
		budget(s, 10, 10)
		s.targets[0].Sites[0], s.targets[1].Sites[0] = 0, 0
		s.offers(0, 1)
		s.limitTo(10, 1)
		s.round()
		s.stops(fleet.StopExposure, "2 of 10 agents with site berlin", 2)
	})
}

func TestInconsistentTargets(t *testing.T) {
	s := scenario(t, rolling(), 2)
	s.targets[0].State, s.targets[1].Batch = 99, 12
	s.targets[1].Sites[0], s.world.Exposure = 40, &Room{Exposure: fleet.Exposure{Limit: 5}}
	step := Decide(&s.r, s.targets, s.world, s.now)
	if !slices.Equal(step.Offer, []int32{1}) || step.Rollout.Counts.Cancelled != 1 {
		t.Fatalf("it offers to %v and counts %+v", step.Offer, step.Rollout.Counts)
	}
	s.r.Batches = nil
	if step = Decide(&s.r, s.targets, s.world, s.now); len(step.Rollout.Batches) != 1 || !slices.Equal(step.Offer, []int32{1}) {
		t.Fatalf("it makes of no batches %+v and offers to %v", step.Rollout.Batches, step.Offer)
	}
}

func TestNumbersInSentences(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 0.004: "0", 0.25: "0.25", 4: "4", 9.996: "10", 33.333: "33.3", 99.96: "100", 100: "100", 1000: "1000", 12345.6: "12346", 1e6: "1000000",
	} {
		if got := Number(f); got != want {
			t.Errorf("%v is written %s, want %s", f, got, want)
		}
	}
}

// A watcher's rollback may fail, and then a person is needed: the rollout must not end
// before the result is known.
func TestRolloutWaitsForItsWatchers(t *testing.T) {
	for _, c := range []struct {
		name  string
		state fleet.RolloutState
		end   fleet.RolloutState
	}{
		{"running", fleet.RolloutRunning, fleet.RolloutFailed},
		{"cancelling", fleet.RolloutCancelling, fleet.RolloutCancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := scenario(t, rolling(), 1)
			s.offers(0)
			s.r.State = c.state
			s.put(RolledBack, 0)
			s.r.Plan.Failure.Count = new(9)
			until := s.now.Add(5 * time.Minute)
			s.world.RollbackDeadline = until
			step := s.offers()
			s.is(c.state)
			if w := s.waitsFor(fleet.WhyGoingBack, "a watcher"); !w.Until.Equal(until) || !step.Next.Equal(until) {
				t.Errorf("it waits until %v and looks again at %s, want %s", w.Until, step.Next, until)
			}
			// The watcher never reports: the rollout ends nevertheless.
			s.wait(5 * time.Minute)
			s.offers()
			s.is(c.end)
		})
	}
}

func TestWhichWatchersAreWaitedFor(t *testing.T) {
	heard := afternoon
	for _, c := range []struct {
		name  string
		state fleet.TargetState
		code  fleet.ReasonCode
		phase agentapi.BeaconPhase
		ended bool // the agent itself reported the end
		other bool // the watcher reports on another upgrade
		waits bool
	}{
		{name: "it goes back", state: fleet.TargetRolledBack, code: fleet.WhyCompensated, phase: agentapi.BeaconRollingBack, waits: true},
		{name: "it goes back and the target was judged before", state: fleet.TargetFailed, code: fleet.WhyStalled, phase: agentapi.BeaconRollingBack, waits: true},
		{name: "it will go back from a crash loop", state: fleet.TargetFailed, code: fleet.WhyCrashLoop, phase: agentapi.BeaconWatching, waits: true},
		{name: "it only watches", state: fleet.TargetFailed, code: fleet.WhyUnhealthy, phase: agentapi.BeaconWatching},
		{name: "it went back", state: fleet.TargetRolledBack, code: fleet.WhyCompensated, phase: agentapi.BeaconRolledBack},
		{name: "it could not", state: fleet.TargetFailed, code: fleet.WhyStuck, phase: agentapi.BeaconRollbackFailed},
		{name: "the old version is back and has reported it", state: fleet.TargetRolledBack, code: fleet.WhyCompensated, phase: agentapi.BeaconRollingBack, ended: true},
		{name: "it reports on an earlier upgrade", state: fleet.TargetFailed, code: fleet.WhyStalled, phase: agentapi.BeaconRollingBack, other: true},
		{name: "the target succeeded", state: fleet.TargetSucceeded, code: fleet.WhyHealthy, phase: agentapi.BeaconWatching},
		{name: "no watcher was heard of", state: fleet.TargetFailed, code: fleet.WhyStale},
	} {
		t.Run(c.name, func(t *testing.T) {
			target := fleet.Target{State: c.state, Code: c.code, ActionID: "r-g1-1"}
			a := &fleet.Agent{Upgrade: fleet.Upgrade{UpgradeEndReported: c.ended}}
			if c.phase != "" {
				a.Watch = &fleet.Watch{Beacon: agentapi.Beacon{ActionID: "r-g1-1", Phase: c.phase}, ReceivedAt: heard}
			}
			if c.other {
				a.Watch.ActionID = "r-g0-1"
			}
			got := RollbackDeadline(&target, a, &fleet.Plan{})
			if want := heard.Add(fleet.DefaultStaleAfter); c.waits != got.Equal(want) || c.waits == got.IsZero() {
				t.Errorf("it is waited for until %s, want waiting %t", got, c.waits)
			}
		})
	}
	if !RollbackDeadline(&fleet.Target{State: fleet.TargetFailed}, nil, &fleet.Plan{}).IsZero() {
		t.Error("an agent that is gone is waited for")
	}
}

func TestRolloutDoesNotCompleteWhileAHostIsWatched(t *testing.T) {
	s := scenario(t, rolling(), 1)
	s.offers(0)
	s.put(Succeeded, 0)
	until := s.now.Add(5 * time.Minute)
	s.world.WatchDeadline = until
	step := s.offers()
	s.is(fleet.RolloutRunning)
	if w := s.waitsFor(fleet.WhyWatched, "still watch"); !w.Until.Equal(until) || !step.Next.Equal(until) {
		t.Errorf("it waits until %v and looks again at %s, want %s", w.Until, step.Next, until)
	}
	s.world.WatchDeadline = time.Time{} // the last watcher has committed
	s.offers()
	s.is(fleet.RolloutCompleted)
}

func TestHowLongAWatchIsWaitedFor(t *testing.T) {
	ended := afternoon
	details := func(state agentapi.UpgradeState) func(*fleet.Agent) {
		return func(a *fleet.Agent) { a.UpgradeDetails = &agentapi.UpgradeDetails{ActionID: "act", State: state} }
	}
	heard := func(at time.Time, phase agentapi.BeaconPhase) func(*fleet.Agent) {
		return func(a *fleet.Agent) {
			a.Watch = &fleet.Watch{Beacon: agentapi.Beacon{ActionID: "act", Phase: phase}, ReceivedAt: at}
		}
	}
	for name, c := range map[string]struct {
		change func(*fleet.Agent)
		state  fleet.TargetState
		want   time.Time
	}{
		"the agent says so":                       {details(agentapi.UpgradeWatching), fleet.TargetSucceeded, ended.Add(LateReportWindow)},
		"only the watcher is heard from":          {heard(ended.Add(time.Minute), agentapi.BeaconWatching), fleet.TargetSucceeded, ended.Add(time.Minute + fleet.BeaconFresh)},
		"the agent has reported since":            {heard(ended.Add(-time.Minute), agentapi.BeaconWatching), fleet.TargetSucceeded, time.Time{}},
		"the watcher has committed":               {heard(ended.Add(time.Minute), agentapi.BeaconCommitted), fleet.TargetSucceeded, time.Time{}},
		"it has a later upgrade":                  {func(a *fleet.Agent) { details(agentapi.UpgradeWatching)(a); a.UpgradeActionID = "other" }, fleet.TargetSucceeded, time.Time{}},
		"it failed, and nothing can make it good": {details(agentapi.UpgradeWatching), fleet.TargetFailed, time.Time{}},
	} {
		a := fleet.Agent{Upgrade: fleet.Upgrade{UpgradeActionID: "act"}, Last: fleet.LastSeen{At: &ended}}
		c.change(&a)
		target := fleet.Target{ActionID: "act", State: c.state, EndedAt: &ended}
		if got := WatchDeadline(&target, &a, &fleet.Plan{}); !got.Equal(c.want) {
			t.Errorf("%s: until %s, want %s", name, got, c.want)
		}
	}
}

func TestToleratedFailures(t *testing.T) {
	count := func(n int) fleet.FailureRule { return fleet.FailureRule{Count: &n} }
	percent := func(p float64) fleet.FailureRule { return fleet.FailureRule{Percent: &p} }
	for name, c := range map[string]struct {
		rule           fleet.FailureRule
		good, failed   int
		forgiven       int
		refused        int
		forced, canary bool
		promoted       bool
		want           bool
	}{
		"none":                              {good: 3, want: true},
		"below the default":                 {good: 8, failed: 2, want: true},
		"at the default":                    {good: 8, failed: 3},
		"below the count":                   {rule: count(5), good: 8, failed: 4, want: true},
		"at the count":                      {rule: count(4), good: 8, failed: 4},
		"at the percentage":                 {rule: percent(20), good: 8, failed: 2, want: true},
		"above the percentage":              {rule: percent(19), good: 8, failed: 2},
		"more than succeeded":               {good: 1, failed: 2},
		"all of one":                        {failed: 1},
		"a canary":                          {good: 9, failed: 1, canary: true},
		"a canary that the count tolerates": {rule: count(2), good: 9, failed: 1, canary: true, want: true},
		"a canary of a promoted rollout":    {good: 9, failed: 1, canary: true, promoted: true, want: true},
		"too many of a promoted rollout":    {good: 9, failed: 3, canary: true, promoted: true},
		"forgiven":                          {good: 1, failed: 5, forgiven: 5, want: true},
		"forced":                            {good: 1, failed: 5, forced: true, want: true},
		"few refused":                       {good: 8, refused: 2, want: true},
		"refused at the count":              {rule: count(4), good: 8, failed: 2, refused: 2},
		"all refused":                       {refused: 3},
	} {
		r := fleet.Rollout{Plan: fleet.Plan{Failure: c.rule}, Forgiven: c.forgiven, Counts: fleet.Counts{Total: c.good + c.failed + c.refused, Succeeded: c.good, Failed: c.failed, Skipped: c.refused, Refused: c.refused}}
		if c.forced {
			r.Forced = &fleet.Decision{By: "kim"}
		}
		if c.promoted {
			r.Promoted = &fleet.Decision{By: "kim"}
		}
		if c.canary {
			r.Batches = []fleet.Batch{{Kind: fleet.BatchCanary, Counts: fleet.Counts{Total: c.failed, Failed: c.failed}}}
		}
		if got := Tolerated(&r); got != c.want {
			t.Errorf("%s: tolerated is %t", name, got)
		}
	}
}

func TestOnlyWhatNobodyLeftOutFailsARollout(t *testing.T) {
	t.Parallel()
	for code, want := range map[fleet.ReasonCode]fleet.RolloutState{
		fleet.WhyOperator: fleet.RolloutCompleted, fleet.WhySame: fleet.RolloutCompleted, fleet.WhyLeftOut: fleet.RolloutCompleted,
		fleet.WhyRefused: fleet.RolloutFailed, fleet.WhyFailedBefore: fleet.RolloutFailed, fleet.WhyInForce: fleet.RolloutFailed, fleet.WhyConfigNow: fleet.RolloutFailed,
	} {
		now := time.Date(2026, 11, 24, 14, 0, 0, 0, time.UTC)
		r := fleet.Rollout{ID: "r", State: fleet.RolloutRunning, StartedAt: &now, RunningSince: &now, Plan: fleet.Plan{Strategy: fleet.Strategy{Kind: fleet.Rolling}}}
		step := Decide(&r, []Target{{State: Succeeded}, {State: Skipped, Code: CodeOf(code)}}, World{}, now)
		if got := step.Rollout; got.State != want || got.Counts.Refused != map[fleet.RolloutState]int{fleet.RolloutFailed: 1}[want] {
			t.Errorf("with a target that is skipped for %s it is %s with %+v", code, got.State, got.Counts)
		}
	}
}
