package reconcile_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/sequence"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/reconcile"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// stepper takes the steps of an object whose rollouts end as the test wants.
type stepper struct {
	t    *testing.T
	f    spec.Fleet
	seen reconcile.Seen
}

func (s *stepper) members(parts ...reconcile.PartMembers) {
	s.seen.Members = &reconcile.Members{Generation: s.f.Metadata.Generation, Agents: 3, Parts: parts}
}

// step returns the next act, after all writes of the status that come before it.
func (s *stepper) step() reconcile.Decision {
	s.t.Helper()
	for range 10 {
		d := reconcile.Decide(&s.f, spec.Hash(&s.f), s.seen, noon)
		if reflect.DeepEqual(d.Status, s.f.Status) {
			return d
		}
		if d.Act != sequence.Wait {
			s.t.Fatalf("it would %s before the status is written: %+v", d.Act, d.Status)
		}
		s.f.Status = d.Status
		if id := d.Status.Rollout; s.seen.Rollout != nil && (id == nil || id.ID != s.seen.Rollout.ID) {
			s.seen.Rollout = nil
		}
	}
	s.t.Fatalf("the status changes without end: %+v", s.f.Status)
	return reconcile.Decision{}
}

// begun is the rollout that a step has created.
func (s *stepper) begun(d reconcile.Decision) *fleet.Rollout {
	s.t.Helper()
	if d.Act != sequence.Begin {
		s.t.Fatalf("it would %q, want a rollout: %+v", d.Act, s.f.Status)
	}
	s.seen.Rollout = &fleet.Rollout{ID: d.Status.Rollout.ID, State: fleet.RolloutRunning, Plan: d.Plan, SpecHash: d.Status.Rollout.Hash}
	s.seen.Rollout.Plan.Version = "1.1.0"
	return s.seen.Rollout
}

func twoParts() *spec.Fleet {
	return &spec.Fleet{
		Metadata: spec.Metadata{Name: "edge", UID: "u", Generation: 1},
		Spec: spec.Spec{
			Selector: fleet.Selector{All: true}, Agent: &spec.Desired{Version: "1.1.0"},
			Components:    []spec.Component{{Name: "web", Desired: spec.Desired{UpgradeManifest: &spec.UpgradeManifest{Profile: "prod", ID: "2.0.0"}}}},
			Configuration: spec.Configuration{Variables: map[string]map[string]string{"web": {"port": "80"}}},
		},
	}
}

// behind are members of which one has to be upgraded, and reached are those that run all versions.
// That of web comes from an upgrade manifest, so only a preview knows whether its files change.
var (
	web     = spec.Part{Component: "web", Desired: spec.Desired{UpgradeManifest: &spec.UpgradeManifest{Profile: "prod", ID: "2.0.0"}}}
	behind  = []reconcile.PartMembers{{Version: "1.1.0", Behind: []string{"a"}}, {Part: web, Version: "2.0.0"}}
	reached = []reconcile.PartMembers{{Version: "1.1.0"}, {Part: web, Version: "2.0.0"}}
)

func TestPartsAreRolledOutOneAfterTheOther(t *testing.T) {
	t.Parallel()
	s := &stepper{t: t, f: *twoParts()}
	if d := s.step(); d.Act != sequence.Wait || !d.Count {
		t.Fatalf("before the agents are counted it would %q", d.Act)
	}
	s.members(behind...)
	r := s.begun(s.step())
	if r.ID != "u-1-0-0" || r.Plan.Component != "" || r.Plan.Version != "1.1.0" {
		t.Errorf("the first rollout is %+v", r)
	}
	if d := s.step(); d.Act == sequence.Begin {
		t.Error("the second part begins before the first has ended")
	}
	r.State = fleet.RolloutCompleted
	d := s.step()
	second := s.begun(d)
	if second.ID != "u-1-1-0" || d.Plan.Component != "web" || d.Plan.Profile != "prod" || d.Plan.UpgradeID != "2.0.0" || d.Plan.Variables["port"] != "80" {
		t.Errorf("the second rollout is %+v", d.Plan)
	}
	second.State = fleet.RolloutCompleted
	s.members(reached...)
	if d := s.step(); d.Act != sequence.Wait || d.Status.LastCompletedRolloutHash != spec.Hash(&s.f) || d.Status.Condition(spec.Ready).Status != spec.True {
		t.Errorf("at the end it would %q: %+v", d.Act, d.Status)
	}
}

func TestPartThatAllAgentsRunNeedsNoRollout(t *testing.T) {
	t.Parallel()
	s := &stepper{t: t, f: *twoParts()}
	s.members(reached...)
	if r := s.begun(s.step()); r.ID != "u-1-1-0" || r.Plan.Component != "web" {
		t.Errorf("the first rollout is %+v", r)
	}
}

func TestPartThatFailedStopsTheOthers(t *testing.T) {
	t.Parallel()
	s := &stepper{t: t, f: *twoParts()}
	s.members(behind...)
	r := s.begun(s.step())
	r.State, r.Counts = fleet.RolloutFailed, fleet.Counts{Total: 3, Failed: 3}
	d := s.step()
	if d.Act != sequence.Wait || d.Status.LastCompletedRolloutHash != "" || d.Status.Condition(spec.Stalled).Reason != "RolloutFailed" {
		t.Errorf("it would %q: %+v", d.Act, d.Status)
	}
	// The annotation asks for the same again.
	s.f.Metadata.Generation++
	s.f.Metadata.Annotations = map[string]string{spec.ForceRolloutAnnotation: "1"}
	s.members(behind...)
	if r := s.begun(s.step()); r.ID != "u-2-0-0" {
		t.Errorf("the next rollout is %s", r.ID)
	}
}

func TestRolloutThatBeginsToPromoteWhileItIsReplacedGoesOn(t *testing.T) {
	t.Parallel()
	s := &stepper{t: t, f: *twoParts()}
	s.members(behind...)
	r := s.begun(s.step())
	first := spec.Hash(&s.f)
	s.f.Metadata.Generation++
	s.f.Spec.Agent.Version = "1.2.0"
	s.members(behind...)
	if d := s.step(); d.Act != reconcile.Replace || d.Status.RequestedRolloutHash != spec.Hash(&s.f) {
		t.Fatalf("it would %q: %+v", d.Act, d.Status)
	}
	r.Promoted = &fleet.Decision{By: "kim"}
	s.seen.Refused = "it is promoting"
	d := s.step()
	if d.Act == reconcile.Replace || d.Status.RequestedRolloutHash != first || d.Status.Condition(spec.Promoting).Reason != "NextWaits" {
		t.Errorf("it would %q: %+v", d.Act, d.Status)
	}
	s.seen.Refused = ""
	r.State = fleet.RolloutCompleted
	if r := s.begun(s.step()); r.ID != "u-2-0-0" || r.Plan.Component != "" {
		t.Errorf("the next rollout is %s", r.ID)
	}
}

func TestObjectConvertedWhileItsRolloutPromotesWaitsForIt(t *testing.T) {
	t.Parallel()
	s := &stepper{t: t, f: *twoParts()}
	// What a conversion from v1alpha1 leaves: no requested hash, and a rollout that is promoting.
	s.f.Status.Rollout = &spec.RolloutStatus{ID: "before", State: fleet.RolloutRunning}
	s.seen.Rollout = &fleet.Rollout{ID: "before", State: fleet.RolloutRunning, Promoted: &fleet.Decision{}, Plan: fleet.Plan{Version: "1.0.0"}}
	s.members(behind...)
	if d := s.step(); d.Act == sequence.Begin || d.Act == reconcile.Replace || d.Status.RequestedRolloutHash != "" {
		t.Errorf("it would %q: %+v", d.Act, d.Status)
	}
	s.seen.Rollout.State = fleet.RolloutCompleted
	if r := s.begun(s.step()); r.ID != "u-1-0-0" {
		t.Errorf("the next rollout is %s", r.ID)
	}
}

func TestDraftOfAnEarlierHashIsDiscarded(t *testing.T) {
	t.Parallel()
	s := &stepper{t: t, f: *twoParts()}
	s.members(behind...)
	r := s.begun(s.step())
	r.State = fleet.RolloutDraft
	s.f.Metadata.Generation++
	s.f.Spec.Agent.Version = "1.2.0"
	s.members(behind...)
	if d := s.step(); d.Act != sequence.Discard {
		t.Errorf("it would %q with the draft", d.Act)
	}
	// A start that a crash interrupted is completed, and the rollout then replaced.
	r.Pin = &fleet.Pin{Hash: "sha256:1"}
	if d := s.step(); d.Act != sequence.Begin || d.Plan.Version != r.Plan.Version {
		t.Errorf("it would %q with the interrupted start", d.Act)
	}
	r.State = fleet.RolloutRunning
	if d := s.step(); d.Act != reconcile.Replace {
		t.Errorf("it would %q with the running rollout", d.Act)
	}
}

func TestAgentsAboveTheVersionAreForcedDown(t *testing.T) {
	t.Parallel()
	s := &stepper{t: t, f: *twoParts()}
	parts := []reconcile.PartMembers{{Version: "1.1.0", Behind: []string{"a"}, Down: true}, reached[1]}
	s.members(parts...)
	if d := s.step(); d.Act != sequence.Begin || !d.Plan.Force {
		t.Errorf("it would %q with %+v", d.Act, d.Plan)
	}
}
