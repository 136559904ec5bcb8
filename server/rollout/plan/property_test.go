package plan

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
)

// simulation is a rollout whose agents and operator act at random, and whose reconciler
// executes every step of Decide. It checks each step.
type simulation struct {
	rapid.TB
	draw    *rapid.T // nil in a scenario, which is not random
	r       fleet.Rollout
	targets []Target
	world   World
	now     time.Time
	exposed []bool // runs the version, or was offered it
}

func newSimulation(t *rapid.T) *simulation {
	s := &simulation{TB: t, draw: t, now: time.Date(2026, 11, 24, 14, 0, 0, 0, time.UTC)}
	start := s.now
	s.r = fleet.Rollout{ID: "r", State: fleet.RolloutRunning, StartedAt: &start, Generation: 1}
	s.r.Plan = drawPlan(t, s.now)
	p := &s.r.Plan
	canaries := p.Strategy.Canary != nil
	for b := range rapid.IntRange(1, 5).Draw(t, "batches") {
		kind := fleet.BatchRegular
		if b == 0 && canaries {
			kind = fleet.BatchCanary
		}
		s.r.Batches = append(s.r.Batches, fleet.Batch{Index: b, Kind: kind, Ring: b / 2})
		for range rapid.IntRange(0, 8).Draw(t, "size") {
			target := Target{Batch: int32(b), Ring: int16(b / 2), Since: s.now.UnixNano(), Online: rapid.IntRange(0, 4).Draw(t, "online") > 0}
			for k := range target.Groups {
				target.Groups[k], target.Sites[k] = -1, -1
			}
			for k := range p.Limits.Per {
				target.Groups[k] = int32(rapid.IntRange(-1, 3).Draw(t, "group"))
			}
			target.Sites[0] = int32(rapid.IntRange(-1, 2).Draw(t, "site"))
			s.targets = append(s.targets, target)
			s.exposed = append(s.exposed, false)
		}
	}
	if rapid.Bool().Draw(t, "budget") {
		s.world.Exposure = &Room{Exposure: fleet.Exposure{Version: "1.2.0", Fleet: 60, NeededHours: 100}}
		for v := range 3 {
			s.world.Exposure.Sites = append(s.world.Exposure.Sites, fleet.ExposureValue{Label: "site", Value: fmt.Sprint(v), Fleet: 20})
		}
		s.limitTo(rapid.IntRange(1, 20).Draw(t, "fleet limit"), rapid.IntRange(1, 8).Draw(t, "site limit"))
	}
	if rapid.IntRange(0, 3).Draw(t, "freeze") == 0 {
		from := s.now.Add(time.Duration(rapid.IntRange(-5, 50).Draw(t, "hours to freeze")) * time.Hour)
		s.world.Freezes = []fleet.Freeze{{Name: "year end", From: from, To: from.Add(30 * time.Hour)}}
	}
	return s
}

func drawPlan(t *rapid.T, now time.Time) fleet.Plan {
	p := fleet.Plan{Strategy: fleet.Strategy{Kind: fleet.Rolling}}
	p.Limits.MaxParallel = rapid.IntRange(1, 6).Draw(t, "max parallel")
	for range rapid.IntRange(0, 2).Draw(t, "labels") {
		p.Limits.Per = append(p.Limits.Per, fleet.LabelLimit{Label: "l", Max: rapid.IntRange(1, 3).Draw(t, "per label")})
	}
	if rapid.Bool().Draw(t, "canary") {
		p.Strategy.Kind = fleet.Canary
		p.Strategy.Canary = &fleet.CanaryRule{Approval: rapid.Bool().Draw(t, "approval")}
	}
	if rapid.Bool().Draw(t, "by count") {
		n := rapid.IntRange(0, 4).Draw(t, "count")
		p.Failure.Count = &n
	}
	if rapid.Bool().Draw(t, "by percent") {
		n := float64(rapid.IntRange(0, 60).Draw(t, "percent"))
		p.Failure.Percent = &n
	}
	p.Failure.Retries = rapid.IntRange(0, 2).Draw(t, "retries")
	p.Pace.Soak = fleet.Duration(rapid.IntRange(0, 3).Draw(t, "soak")) * fleet.Duration(time.Hour)
	p.Pace.PauseOnSuccess = rapid.Bool().Draw(t, "pause on success")
	p.Pace.Emergency = rapid.IntRange(0, 4).Draw(t, "emergency") == 0
	p.Pace.OfferFor = fleet.Duration(20 * time.Hour)
	p.Pace.WaitFor = fleet.Duration(rapid.IntRange(10, 60).Draw(t, "wait for")) * fleet.Duration(time.Hour)
	if rapid.IntRange(0, 2).Draw(t, "windows") == 0 {
		p.Pace.Windows = []fleet.Window{{From: "22:00", To: "04:00", Zone: "Europe/Berlin"}}
	}
	if rapid.IntRange(0, 5).Draw(t, "deadline") == 0 {
		at := now.Add(time.Duration(rapid.IntRange(1, 100).Draw(t, "deadline in hours")) * time.Hour)
		p.Strategy.Deadline = &at
	}
	return p
}

func (s *simulation) limitTo(all, each int) {
	s.world.Exposure.Limit = all
	for v := range s.world.Exposure.Sites {
		s.world.Exposure.Sites[v].Limit = each
	}
}

// recount updates the room, as the reconciler does before each round.
func (s *simulation) recount() {
	room := s.world.Exposure
	if room == nil {
		return
	}
	fresh := *room
	fresh.Exposed, fresh.Sites = 0, slices.Clone(room.Sites)
	for v := range fresh.Sites {
		fresh.Sites[v].Exposed = 0
	}
	for i, is := range s.exposed {
		if is {
			fresh.Exposed++
			if site := s.targets[i].Sites[0]; site >= 0 {
				fresh.Sites[site].Exposed++
			}
		}
	}
	s.world.Exposure = &fresh
}

// round decides, checks the step and executes it.
func (s *simulation) round() Step {
	s.recount()
	before, targets := s.r, slices.Clone(s.targets)
	step := Decide(&s.r, s.targets, s.world, s.now)
	if !reflect.DeepEqual(before, s.r) || !slices.Equal(targets, s.targets) {
		s.Fatal("Decide changed what it was given")
	}
	if again := Decide(&s.r, s.targets, s.world, s.now); !reflect.DeepEqual(step, again) {
		s.Fatalf("asked again it says\n%+v, not\n%+v", again, step)
	}
	s.judgeOffers(&step)
	s.carryOut(&step)
	s.judgeRest(&before, &step)
	return step
}

func (s *simulation) judgeOffers(step *Step) {
	if len(step.Offer) == 0 {
		return
	}
	if s.world.RollingBack || s.r.State != fleet.RolloutRunning || step.Rollout.State != fleet.RolloutRunning || len(step.Withdraw) > 0 {
		s.Fatalf("it offers to %v while %s, and is %s then", step.Offer, s.r.State, step.Rollout.State)
	}
	if open, _ := OfferableAt(&s.r.Plan, s.world.Freezes, s.now); !open {
		s.Fatalf("it offers to %v though nothing may be offered at %s", step.Offer, s.now)
	}
	if d := s.r.Plan.Strategy.Deadline; d != nil && !d.After(s.now) {
		s.Fatal("it offers after the deadline")
	}
	current := slices.IndexFunc(step.Rollout.Batches, func(b fleet.Batch) bool { return b.ClearedAt == nil })
	for _, i := range step.Offer {
		target := &s.targets[i]
		if target.State != Pending && target.State != Held {
			s.Fatalf("it offers to %d, which is %s", i, target.State.Name())
		}
		if !target.Online || target.Busy {
			s.Fatalf("it offers to %d, which is away or busy", i)
		}
		if current >= 0 && int(target.Batch) > current {
			s.Fatalf("it offers to %d of batch %d, and is at %d", i, target.Batch, current)
		}
		for _, b := range step.Rollout.Batches[:target.Batch] {
			if b.Ring < int(target.Ring) && b.ClearedAt == nil {
				s.Fatalf("it offers to ring %d before ring %d is done", target.Ring, b.Ring)
			}
		}
	}
}

func (s *simulation) carryOut(step *Step) {
	touched := map[int32]bool{}
	once := func(i int32) *Target {
		if touched[i] {
			s.Fatalf("the step names %d twice", i)
		}
		touched[i] = true
		s.targets[i].Since = s.now.UnixNano()
		s.targets[i].Expires = 0
		return &s.targets[i]
	}
	for _, i := range step.Offer {
		target := once(i)
		target.State, target.Code = Offered, 0
		target.Attempts++
		s.exposed[i] = true
	}
	for _, i := range step.Withdraw {
		target := once(i)
		if target.State != Offered {
			s.Fatalf("it withdraws %d, which is %s", i, target.State.Name())
		}
		target.State = Withdrawn
		s.exposed[i] = false
	}
	for _, m := range step.Moves {
		target := once(m.Target)
		target.State, target.Code = m.To, m.Code
		if m.To == Held {
			target.Expires = s.now.Add(s.r.Plan.Pace.OfferFor.D()).UnixNano()
		}
	}
	s.r = step.Rollout
}

// judgeRest checks what must hold after the step was executed.
func (s *simulation) judgeRest(before *fleet.Rollout, step *Step) {
	var total fleet.Counts
	batches := make([]fleet.Counts, len(s.r.Batches))
	inFlight, groups := 0, map[[2]int32]int{}
	for i := range s.targets {
		target := &s.targets[i]
		total.Add(target.State.Name())
		batches[target.Batch].Add(target.State.Name())
		if target.Refused() {
			total.Refused++
			batches[target.Batch].Refused++
		}
		if target.State.InFlight() {
			inFlight++
			for k, g := range target.Groups {
				if g >= 0 {
					groups[[2]int32{int32(k), g}]++
				}
			}
		}
		if waits := target.State == Pending || target.State == Held; waits != (step.Reasons[i] != 0) {
			s.Fatalf("target %d is %s with the reason %q, rollout %s", i, target.State.Name(), step.Reasons[i].Name(), s.r.State)
		}
	}
	if total != s.r.Counts || total.Total != len(s.targets) {
		s.Fatalf("counts %+v, want %+v", s.r.Counts, total)
	}
	for b := range batches {
		if batches[b] != s.r.Batches[b].Counts {
			s.Fatalf("batch %d counts %+v, want %+v", b, s.r.Batches[b].Counts, batches[b])
		}
		checkBatch(s, &s.r.Batches[b])
	}
	if len(step.Offer) > 0 && inFlight > s.r.Plan.Limits.MaxParallel {
		s.Fatalf("%d in flight, at most %d may be", inFlight, s.r.Plan.Limits.MaxParallel)
	}
	for g, n := range groups {
		if limit := s.r.Plan.Limits.Per[g[0]].Max; n > limit {
			s.Fatalf("%d of a group in flight, at most %d may be", n, limit)
		}
	}
	if len(step.Offer) > 0 {
		s.judgeExposure()
	}
	if s.r.Generation < before.Generation {
		s.Fatalf("generation %d after %d", s.r.Generation, before.Generation)
	}
	s.judgeState(before, step)
}

func checkBatch(s *simulation, b *fleet.Batch) {
	early := b.Kind == fleet.BatchCanary && s.r.Promoted != nil // the others did not wait for its end
	if b.EndedAt != nil && (b.StartedAt == nil || b.EndedAt.Before(*b.StartedAt)) || !early && b.ClearedAt != nil && (b.EndedAt == nil || b.ClearedAt.Before(*b.EndedAt)) {
		s.Fatalf("batch %d started %v, ended %v, was cleared %v", b.Index, b.StartedAt, b.EndedAt, b.ClearedAt)
	}
}

func (s *simulation) judgeExposure() {
	s.recount()
	room := s.world.Exposure
	if room == nil {
		return
	}
	if room.Exposed > room.Limit {
		s.Fatalf("%d exposed, at most %d may be", room.Exposed, room.Limit)
	}
	for _, v := range room.Sites {
		if v.Exposed > v.Limit {
			s.Fatalf("%d of site %s exposed, at most %d may be", v.Exposed, v.Value, v.Limit)
		}
	}
}

func (s *simulation) judgeState(before *fleet.Rollout, step *Step) {
	switch r := &s.r; {
	case r.State == fleet.RolloutPaused:
		if r.Stop == nil || len(r.Waiting) == 0 {
			s.Fatal("it is paused and does not say why")
		}
		if before.State == fleet.RolloutRunning && r.Generation == before.Generation {
			s.Fatal("it stopped in the same generation")
		}
		if r.Stop.Kind.Gate() && r.Counts.Offered > 0 {
			s.Fatalf("it stopped at %s and %d offers stand", r.Stop.Kind, r.Counts.Offered)
		}
	case r.State.Ended():
		if r.EndedAt == nil || r.Counts.Pending+r.Counts.Held+r.Counts.InFlight() > 0 {
			s.Fatalf("it is %s with %+v", r.State, r.Counts)
		}
		undone := r.Lockstep != nil && r.Lockstep.Undo != nil // perhaps without one that failed itself
		if r.State != fleet.RolloutCancelled && !undone && (r.State == fleet.RolloutFailed) != (r.Counts.Bad() > 0) {
			s.Fatalf("it is %s with %+v", r.State, r.Counts)
		}
	case r.State.Active() && len(step.Offer) == 0 && len(r.Waiting) == 0 && !step.Next.Equal(s.now):
		s.Fatalf("it does not say what it waits for: %+v", r.Counts)
	}
	if !step.Next.IsZero() && step.Next.Before(s.now) {
		s.Fatalf("the next look is due at %s, before now, %s", step.Next, s.now)
	}
}

// settle decides until nothing is left to do at this time.
func (s *simulation) settle() Step {
	for range 2*len(s.r.Batches) + 5 {
		step := s.round()
		if !step.Changed && len(step.Offer)+len(step.Withdraw)+len(step.Moves) == 0 {
			if step.Next.Equal(s.now) {
				s.Fatal("it wants to look again at once, and has done nothing")
			}
			if s.draw != nil {
				s.judgeNext(&step)
			}
			return step
		}
	}
	s.Fatalf("it does not come to rest: %+v", s.r)
	return Step{}
}

// judgeNext checks that nothing changes by time alone before step.Next, since the
// reconciler does not decide before.
func (s *simulation) judgeNext(step *Step) {
	long := 2_000 * time.Hour
	if !step.Next.IsZero() {
		long = step.Next.Sub(s.now)
	}
	then := s.now.Add(time.Duration(float64(long) * rapid.SampledFrom([]float64{0.01, 0.5, 0.999}).Draw(s.draw, "meanwhile")))
	if early := Decide(&s.r, s.targets, s.world, then); early.Changed || len(early.Offer)+len(early.Withdraw)+len(early.Moves) > 0 {
		s.Fatalf("at %s it said that nothing changes before %s, but at %s it moves %v, offers %v; %s %+v %+v, not %s %+v %+v",
			s.now, step.Next, then, early.Moves, early.Offer, early.Rollout.State, early.Rollout.Waiting, early.Rollout.Batches, s.r.State, s.r.Waiting, s.r.Batches)
	}
}

// agents lets agents in flight proceed, succeed or fail, and agents come and go.
func (s *simulation) agents() {
	for i := range s.targets {
		target := &s.targets[i]
		switch target.State {
		case Offered:
			s.become(i, rapid.SampledFrom([]State{Offered, Upgrading, Upgrading, Failed}).Draw(s.draw, "offered"))
		case Upgrading:
			s.become(i, rapid.SampledFrom([]State{Upgrading, Verifying, Verifying, Verifying, RolledBack, Failed}).Draw(s.draw, "upgrading"))
		case Verifying:
			s.become(i, rapid.SampledFrom([]State{Verifying, Succeeded, Succeeded, Succeeded, Succeeded, RolledBack}).Draw(s.draw, "verifying"))
		case Pending, Held:
			if n := rapid.IntRange(0, 19).Draw(s.draw, "presence"); n < 2 {
				target.Online = n == 0
			} else if n < 4 {
				target.Busy = n == 2
			}
		}
	}
}

func (s *simulation) become(i int, to State) {
	target := &s.targets[i]
	if target.State == to {
		return
	}
	target.State, target.Code, target.Since = to, 0, s.now.UnixNano()
	if to == Failed && rapid.Bool().Draw(s.draw, "stale") {
		target.Code = codeStale
	}
	if to == Failed || to == RolledBack {
		s.exposed[i] = false
	}
}

// operator executes a command as the service does.
func (s *simulation) operator(command int) {
	r, word := &s.r, &fleet.Decision{By: "ann", At: s.now, Why: "because"}
	switch {
	case command == 0 && r.State == fleet.RolloutRunning:
		r.PauseAsked = word
	case command <= 4 && r.State == fleet.RolloutPaused:
		s.resume()
	case command == 5 && r.State.Active():
		r.Approved = word
	case command == 6 && r.State.Active() && r.State != fleet.RolloutCancelling:
		for i := range s.targets {
			if st := s.targets[i].State; st == Failed || st == RolledBack || st == Withdrawn || st == Expired {
				s.become(i, Pending)
			}
		}
	case command == 7 && r.State.Active() && rapid.IntRange(0, 5).Draw(s.draw, "cancel") == 0:
		r.State = fleet.RolloutCancelling
	case command == 8 && r.State.Active() && rapid.IntRange(0, 5).Draw(s.draw, "force") == 0:
		r.Forced = word
		if r.State == fleet.RolloutPaused {
			s.resume()
		}
	case command == 10 && r.Promoted == nil && (r.State == fleet.RolloutRunning || r.State == fleet.RolloutPaused):
		r.Promoted = word
		if r.Stop != nil && (r.Stop.Kind == fleet.StopThreshold || r.Stop.Kind == fleet.StopCanary) {
			s.resume()
		}
	case command == 9:
		s.world.RollingBack = !s.world.RollingBack
		return
	default:
		return
	}
	r.Generation++
}

// resume resumes the rollout, and executes the order to return that comes with it.
func (s *simulation) resume() {
	s.r.State, s.r.Stop, s.r.Forgiven = fleet.RolloutRunning, nil, s.r.Counts.Bad()
	for i := range s.targets {
		if s.targets[i].Stopped() {
			s.become(i, Pending)
		}
	}
}

func TestDecideProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSimulation(t)
		for range rapid.IntRange(5, 40).Draw(t, "rounds") {
			s.settle()
			if s.r.State.Ended() {
				break
			}
			s.agents()
			s.operator(rapid.IntRange(0, 15).Draw(t, "command"))
			s.now = s.now.Add(time.Duration(rapid.SampledFrom([]int{1, 60, 600, 3600, 5 * 3600}).Draw(t, "seconds")) * time.Second)
		}
		s.bringToAnEnd()
	})
}

// bringToAnEnd lets every agent answer and the operator resume, and fails the test
// unless the rollout ends.
func (s *simulation) bringToAnEnd() {
	if s.world.Exposure != nil {
		s.limitTo(60, 20)
	}
	s.r.Approved, s.world.RollingBack = &fleet.Decision{By: "ann"}, false
	for range 40 + 20*len(s.targets) + 10*len(s.r.Batches) {
		step := s.settle()
		if s.r.State.Ended() {
			return
		}
		for i := range s.targets {
			if s.targets[i].State.InFlight() {
				s.targets[i].State = Succeeded
			}
			s.targets[i].Online, s.targets[i].Busy = true, false
		}
		if d := s.r.Plan.Strategy.Deadline; d != nil && !d.After(s.now) {
			s.r.State = fleet.RolloutCancelling
		}
		if s.r.State == fleet.RolloutPaused {
			s.resume()
		}
		s.now = s.now.Add(time.Minute)
		if step.Next.After(s.now) {
			s.now = step.Next
		}
	}
	s.Fatalf("it does not end: %+v", s.r)
}
