package reconcile

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/sequence"
	"github.com/muster-fleet/muster/server/rollout/spec"
)

// What is done with the rollout of an object besides what all owners of a sequence do.
const (
	Replace sequence.Act = "replace" // cancel it, unless it is promoting
	Promote sequence.Act = "promote"
	Adjust  sequence.Act = "adjust" // give it the limits, failure rule, health and pace of the spec
)

// Seen is what a decision depends on besides the object.
type Seen struct {
	// Rollout is the one that the status names; nil: there is none, or it does not exist.
	Rollout *fleet.Rollout
	// Members is what the last census found; nil: it has not counted this object yet.
	Members *Members
	// Refused is why the last step was refused, until it is tried again; empty: it was not.
	Refused string
}

// Decision is the next step of an object.
type Decision struct {
	// Status is the object's new status. If it differs from the stored one it is written, and
	// nothing else is done in this step: effects are written before they are executed.
	Status spec.Status
	Act    sequence.Act
	// Plan is what Begin creates, and what Adjust applies. It is not resolved.
	Plan fleet.Plan
	// Count asks for a census, without which nothing can be decided.
	Count bool
}

// RolloutID returns the id of a rollout of an object. It is derived, so that a crash after the
// rollout was created does not create another.
func RolloutID(uid string, sequence int64, part, number int) string {
	return uid + "-" + strconv.FormatInt(sequence, 10) + "-" + strconv.Itoa(part) + "-" + strconv.Itoa(number)
}

// Actor is the name under which the server works for an object.
func Actor(f *spec.Fleet) string { return "fleet " + f.Metadata.Name }

// returnWait is how long the rollout of an object waits for agents that are away, unless the spec
// says otherwise. It need not be long: an agent that comes back later is brought to the versions
// then, and until the rollout ends it holds the policies of its targets.
const returnWait = fleet.Duration(15 * time.Minute)

// PlanOf returns the plan of the rollout of a part, for all agents of the object.
func PlanOf(f *spec.Fleet, p spec.Part) fleet.Plan {
	out := f.Plan(p)
	if out.Pace.OfferFor == 0 && !plan.Together(out.Strategy.Kind) {
		out.Pace.OfferFor = returnWait
	}
	return out
}

// spreadFrom is, as for policies that require a version, from how many agents on they are not
// brought to it all at once.
const spreadFrom = 10

// Decide returns the next step of an object, whose rollout hash is given.
//
// A rollout that is promoting is never disturbed: what the spec says by then is requested when it
// has ended. Any other one is replaced as soon as the hash differs.
func Decide(f *spec.Fleet, hash string, seen Seen, now time.Time) Decision {
	d := decider{f: f, hash: hash, seen: seen, now: now, parts: f.Spec.Parts(), st: clone(f.Status)}
	d.observe()
	d.run()
	d.st.Conditions = d.conditions()
	d.out.Status = d.st
	if !reflect.DeepEqual(d.st, f.Status) {
		d.out.Act, d.out.Plan = sequence.Wait, fleet.Plan{}
	}
	return d.out
}

func clone(s spec.Status) spec.Status {
	if s.Rollout != nil {
		r := *s.Rollout
		s.Rollout = &r
	}
	s.Versions = maps.Clone(s.Versions)
	s.Conditions = slices.Clone(s.Conditions)
	return s
}

type decider struct {
	f     *spec.Fleet
	hash  string
	seen  Seen
	now   time.Time
	parts []spec.Part
	st    spec.Status
	out   Decision
}

// observe sets what the status says of the rollout and the agents.
func (d *decider) observe() {
	st := &d.st
	if st.Suspended != nil && d.f.Metadata.Generation > st.ObservedGeneration {
		st.Suspended = nil // whoever changes the spec wants it carried out
	}
	st.ObservedGeneration = d.f.Metadata.Generation
	if m := d.seen.Members; m != nil {
		st.Agents, st.Versions = m.Agents, m.Versions
	}
	if st.ForceRollout == nil && st.RequestedRolloutHash == d.hash && d.forced() != "" {
		st.ForceRollout = &spec.ForceRollout{Value: d.forced()} // a server without this field carried it out
	}
	r := d.seen.Rollout
	switch {
	case st.Rollout == nil:
		return
	case r == nil && st.Rollout.State.Active():
		st.Rollout.State, st.Rollout.Waiting = fleet.RolloutCancelled, "it no longer exists"
		return
	case r == nil:
		return
	}
	st.Rollout.State, st.Rollout.Version, st.Rollout.Waiting = r.State, r.Plan.Version, waiting(r)
	if plan.Promoting(r) && r.SpecHash != "" && r.SpecHash != st.RequestedRolloutHash {
		// It began to promote between two steps, of which the first requested the next hash.
		st.RequestedRolloutHash, st.Sequence = st.Rollout.Hash, st.Rollout.Sequence
	}
}

func waiting(r *fleet.Rollout) string {
	switch {
	case r.Stop != nil && r.State == fleet.RolloutPaused:
		return r.Stop.Text
	case len(r.Waiting) > 0 && r.State.Active():
		return r.Waiting[0].Text
	}
	return ""
}

func (d *decider) run() {
	st, r := &d.st, d.seen.Rollout
	switch {
	case st.Suspended != nil:
	case d.hash == st.RequestedRolloutHash:
		d.carryOut()
	case r != nil && plan.Promoting(r):
		d.tend()
	case d.f.Spec.Paused:
		d.pause()
	case d.counted():
		st.RequestedRolloutHash = d.hash
		st.Sequence++
		// The sequence goes back if the rollout before begins to promote meanwhile; then the same
		// value is carried out by a later request.
		if v, last := d.forced(), st.ForceRollout; last == nil || v != last.Value || last.Sequence >= st.Sequence {
			st.ForceRollout = nil
			if v != "" {
				st.ForceRollout = &spec.ForceRollout{Value: v, Sequence: st.Sequence}
			}
		}
	}
}

// forced returns the value of the annotation by which the owner asks for a rollout.
func (d *decider) forced() string { return d.f.Metadata.Annotations[spec.ForceRolloutAnnotation] }

// retries reports whether the rollout of the status is one that the owner has asked for by the
// annotation. It then includes agents on which the version failed before.
func (d *decider) retries() bool {
	st := &d.st
	return st.Rollout.Number == 0 && st.ForceRollout != nil && st.ForceRollout.Sequence == st.Rollout.Sequence
}

// counted reports whether the agents of this generation of the spec have been counted, and none of
// them belongs to another object.
func (d *decider) counted() bool {
	if d.members() == nil {
		d.out.Count = true
		return false
	}
	return d.problem() == ""
}

// problem returns why no rollout may begin.
func (d *decider) problem() string {
	m := d.members()
	if m == nil {
		return ""
	}
	for _, p := range m.Parts {
		switch {
		case p.Problem != "":
			return p.Problem
		case p.Taken > 0:
			return fmt.Sprintf("%s belong to the older fleet %s, which decides about their %s: change the selector of one of the two", plan.Count(p.Taken, "agent", "agents"), p.Owner, p.Name())
		}
	}
	return ""
}

// mine reports whether the status's rollout carries out the hash that is requested now.
func (d *decider) mine() bool {
	r := d.st.Rollout
	return r != nil && r.Sequence == d.st.Sequence && r.Hash == d.st.RequestedRolloutHash
}

// carryOut takes the next step towards the requested hash.
func (d *decider) carryOut() {
	st := &d.st
	switch {
	case !d.mine() && d.seen.Rollout != nil && !d.seen.Rollout.State.Ended():
		d.replace(d.seen.Rollout)
	case d.mine() && !st.Rollout.State.Ended():
		d.tend()
	case d.mine() && st.Rollout.Number > 0 || st.LastCompletedRolloutHash == st.RequestedRolloutHash:
		d.repair()
	default:
		switch step := sequence.Decide(d.items(), d.now); step.Status {
		case sequence.Begins:
			d.next(step.Item)
		case sequence.Over:
			st.LastCompletedRolloutHash = st.RequestedRolloutHash
		}
	}
}

// items returns the parts as a sequence. Before the one whose rollout the status names all are done.
func (d *decider) items() []sequence.Item {
	items := make([]sequence.Item, len(d.parts))
	if !d.mine() {
		return items
	}
	at := d.partAt(d.st.Rollout.Component)
	for i := range items[:at+1] {
		if items[i].Mark = sequence.Done; i == at && !d.passed() {
			items[i].Mark = sequence.Failed
		}
	}
	return items
}

// replace ends the rollout of an earlier hash.
func (d *decider) replace(r *fleet.Rollout) {
	act, _ := sequence.End(r)
	switch act {
	case sequence.Begin:
		d.out.Plan = r.Plan
	case sequence.Cancel:
		act = Replace
	}
	d.out.Act = act
}

func (d *decider) partAt(component string) int {
	return slices.IndexFunc(d.parts, func(p spec.Part) bool { return p.Component == component })
}

// passed reports whether the rollout that has ended reached what its plan asks for.
func (d *decider) passed() bool {
	if r := d.seen.Rollout; r != nil {
		return sequence.Passed(r)
	}
	return d.st.Rollout.State == fleet.RolloutCompleted
}

// next names the rollout of the part at an index.
func (d *decider) next(part int) {
	if d.f.Spec.Paused || !d.counted() {
		return
	}
	d.name(part, 0)
	if d.seen.Members.Parts[part].reached() {
		d.st.Rollout.State = fleet.RolloutCompleted // without one: its preview would read all agents
	}
}

// name writes down the rollout that begins in a later step.
func (d *decider) name(part, number int) {
	st := &d.st
	p := d.parts[part]
	st.Rollout = &spec.RolloutStatus{
		ID: RolloutID(d.f.Metadata.UID, st.Sequence, part, number), Hash: st.RequestedRolloutHash, Sequence: st.Sequence,
		Component: p.Component, Version: p.Version, Number: number, State: fleet.RolloutDraft,
	}
}

// repair names a rollout for agents that do not run the versions although the hash was rolled out:
// those that joined, came back, or were changed by others. What failed is left to an operator.
func (d *decider) repair() {
	if d.f.Spec.Paused || plan.Together(d.f.Spec.Strategy.Kind) || !d.counted() {
		return // hosts in lockstep are brought to the version in force by their policy
	}
	number := 1
	if d.mine() {
		number = d.st.Rollout.Number + 1
	}
	for i, p := range d.seen.Members.Parts {
		if len(p.Behind) > 0 {
			d.name(i, number)
			return
		}
	}
}

// tend keeps the rollout under way as the spec wants it.
func (d *decider) tend() {
	r, s := d.seen.Rollout, &d.f.Spec
	switch {
	case r == nil || r.State == fleet.RolloutDraft:
		if !s.Paused {
			d.begin()
		}
	case r.State == fleet.RolloutCancelling:
	case s.Paused:
		d.pause()
	case r.State == fleet.RolloutPaused && r.Stop != nil && r.Stop.Kind == fleet.StopOperator && r.Stop.By == Actor(d.f):
		d.out.Act = sequence.Resume
	case s.ForcePromote != "" && s.ForcePromote == d.st.RequestedRolloutHash && r.Promoted == nil:
		d.out.Act = Promote
	default:
		d.adjust(r)
	}
}

func (d *decider) pause() {
	if r := d.seen.Rollout; r != nil && r.State == fleet.RolloutRunning && !r.Lockstep.Running() {
		d.out.Act = sequence.Pause
	}
}

// begin decides the plan of the rollout that the status names.
func (d *decider) begin() {
	if !d.counted() {
		return
	}
	st := &d.st
	i := d.partAt(st.Rollout.Component)
	m := d.seen.Members.part(st.Rollout.Component)
	if i < 0 || m == nil {
		return
	}
	p := PlanOf(d.f, d.parts[i])
	p.Force, p.RetryFailed = m.Down, d.retries()
	if st.Rollout.Number > 0 {
		if len(m.Behind) == 0 && d.seen.Rollout == nil {
			st.Rollout.State = fleet.RolloutCompleted // they have been brought there meanwhile
			return
		}
		p.Name += ", later agents"
		p.Select = fleet.Selector{Agents: m.Behind}
		p.Strategy = fleet.Strategy{Kind: fleet.Rolling}
		if len(m.Behind) < spreadFrom {
			p.Strategy.Kind = fleet.AllAtOnce
		}
	}
	d.out.Act, d.out.Plan = sequence.Begin, p
}

// adjust applies to a rollout what of the spec takes effect without another rollout.
func (d *decider) adjust(r *fleet.Rollout) {
	i := d.partAt(r.Plan.Component)
	if i < 0 {
		return // a promoting rollout of a part that the spec no longer has
	}
	p := PlanOf(d.f, d.parts[i])
	want := r.Plan
	want.Limits, want.Failure, want.Health, want.Pace = p.Limits, p.Failure, p.Health, p.Pace
	if want = plan.WithDefaults(want); adjustable(&want) != adjustable(&r.Plan) {
		d.out.Act, d.out.Plan = Adjust, want
	}
}

// adjustable encodes the adjustable parts of a plan, so that nil and empty lists are the same.
func adjustable(p *fleet.Plan) string {
	b, err := json.Marshal([]any{p.Limits, p.Failure, p.Health, p.Pace})
	if err != nil {
		panic(err) // our own types always encode
	}
	return string(b)
}
