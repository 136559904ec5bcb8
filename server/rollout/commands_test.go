package rollout

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
)

type decide = func(r *fleet.Rollout, w Request, now time.Time) (string, error)

// changes are what commands do once they are possible.
var changes = map[string]decide{
	plan.CommandPause:     func(r *fleet.Rollout, w Request, now time.Time) (string, error) { return pause(r, false, w, now) },
	plan.CommandPauseNow:  func(r *fleet.Rollout, w Request, now time.Time) (string, error) { return pause(r, true, w, now) },
	plan.CommandResume:    resume,
	plan.CommandForce:     force,
	plan.CommandApprove:   approve,
	plan.CommandPromote:   promote,
	plan.CommandCancel:    cancel,
	plan.CommandCancelNow: cancelNow,
	plan.CommandRetry:     func(r *fleet.Rollout, w Request, now time.Time) (string, error) { return retry(r, nil, w, now) },
	plan.CommandSkip: func(r *fleet.Rollout, w Request, now time.Time) (string, error) {
		return skip(r, []string{"a1"}, w, now)
	},
}

// give does what the service does with a command: the check, then the change.
func give(name string, r *fleet.Rollout, w Request, now time.Time) (string, error) {
	return command{name: name, decide: changes[name]}.apply(r, plan.Around{}, w, now)
}

// lockstepIn puts a rollout in lockstep into a phase.
func lockstepIn(p fleet.LockstepPhase) func(*fleet.Rollout) {
	return func(r *fleet.Rollout) {
		r.Plan.Component, r.Plan.Strategy.Kind = "web", fleet.LockstepStrategy
		r.Lockstep = &fleet.Lockstep{Phase: p, Since: *r.StartedAt}
		switch p {
		case fleet.LockstepSwitch, fleet.LockstepStart, fleet.LockstepSettle:
			r.Lockstep.CommittedAt = r.StartedAt
		case fleet.LockstepUndo:
			r.Lockstep.Undo = &fleet.Undo{Why: "web-1 failed"}
		}
	}
}

// The table has the effect of each command in each state: "-" means none, "!words" an
// error with these words, anything else the resulting state.
func TestCommandsInEveryState(t *testing.T) {
	needsApprovalNow := func(r *fleet.Rollout) {
		r.Plan.Strategy.Canary = &fleet.CanaryRule{Approval: true}
		r.Batches[0].Kind, r.Batches[0].EndedAt = fleet.BatchCanary, r.StartedAt
	}
	canariesRun := func(r *fleet.Rollout) {
		needsApprovalNow(r)
		r.Batches[0].EndedAt = nil
	}
	approved := func(r *fleet.Rollout) { r.Approved = &fleet.Decision{By: "kim"} }
	promoted := func(r *fleet.Rollout) { r.Promoted = &fleet.Decision{By: "kim"} }
	promotedThen := func(kind fleet.StopKind) func(*fleet.Rollout) {
		return func(r *fleet.Rollout) { promoted(r); rollouttest.StoppedBy(kind)(r) }
	}
	forced := func(r *fleet.Rollout) { r.Forced = &fleet.Decision{By: "kim"} }
	pauseAsked := func(r *fleet.Rollout) { r.PauseAsked = &fleet.Decision{By: "kim"} }
	noneFailed := func(r *fleet.Rollout) { r.Counts = fleet.Counts{Total: 10, Pending: 10} }
	late := func(r *fleet.Rollout) { r.Plan.Strategy.Deadline = r.StartedAt }
	const (
		started = "!has not been started"
		too     = "!it is too late"
	)
	for _, c := range []struct {
		state fleet.RolloutState
		with  func(*fleet.Rollout)
		want  map[string]string
	}{
		{fleet.RolloutDraft, nil, map[string]string{
			"pause": started, "pause_now": started, "resume": started, "force": started, "approve": started, "promote": started, "cancel": started, "retry": started, "skip": started,
		}},
		{fleet.RolloutRunning, nil, map[string]string{
			"pause": "running", "pause_now": "paused", "resume": "-", "force": "running", "approve": "!asks for no approval", "promote": "running", "cancel": "cancelling", "retry": "running", "skip": "running",
		}},
		{fleet.RolloutRunning, pauseAsked, map[string]string{"pause": "-", "pause_now": "paused", "resume": "running"}},
		{fleet.RolloutRunning, promoted, map[string]string{"promote": "-", "approve": "!was promoted by kim"}},
		{fleet.RolloutRunning, forced, map[string]string{"force": "-"}},
		{fleet.RolloutRunning, noneFailed, map[string]string{"retry": "!no target that failed"}},
		{fleet.RolloutRunning, needsApprovalNow, map[string]string{"approve": "running"}},
		{fleet.RolloutRunning, canariesRun, map[string]string{"approve": "!are not done"}},
		{fleet.RolloutRunning, approved, map[string]string{"approve": "-"}},
		{fleet.RolloutRunning, late, map[string]string{"force": "!nothing is offered after it", "promote": "!nothing is offered after it"}},
		{fleet.RolloutRunning, lockstepIn(fleet.LockstepVerify), map[string]string{
			"pause": "running", "pause_now": "paused", "resume": "-", "force": "!nothing can be forced", "promote": "!cannot be promoted", "cancel": "cancelling", "retry": "!no target can try again", "skip": "running",
		}},
		{fleet.RolloutPaused, lockstepIn(fleet.LockstepVerify), map[string]string{"resume": "running", "force": "!nothing can be forced", "cancel": "cancelling", "skip": "paused"}},
		{fleet.RolloutRunning, lockstepIn(fleet.LockstepBackup), map[string]string{
			"pause": "!Cancel it to undo everything", "pause_now": "!Cancel it to undo everything", "resume": "-", "cancel": "cancelling", "skip": "!all of its targets wait for each other",
		}},
		{fleet.RolloutRunning, lockstepIn(fleet.LockstepUndo), map[string]string{"pause": "!is being undone", "cancel": "cancelling"}},
		{fleet.RolloutCancelling, lockstepIn(fleet.LockstepUndo), map[string]string{"cancel": "-"}},
		{fleet.RolloutRunning, lockstepIn(fleet.LockstepStart), map[string]string{
			"pause": "!goes through to its end", "cancel": "!goes through to its end", "skip": "!goes through to its end",
		}},
		{fleet.RolloutCompleted, lockstepIn(fleet.LockstepSettle), map[string]string{"cancel": too}},
		{fleet.RolloutPaused, rollouttest.StoppedBy(fleet.StopOperator), map[string]string{
			"pause": "-", "pause_now": "-", "resume": "running", "force": "running", "promote": "paused", "cancel": "cancelling", "retry": "paused", "skip": "paused",
		}},
		{fleet.RolloutPaused, rollouttest.StoppedBy(fleet.StopThreshold), map[string]string{"resume": "running", "force": "running", "promote": "running", "cancel": "cancelling"}},
		{fleet.RolloutPaused, rollouttest.StoppedBy(fleet.StopCanary), map[string]string{"promote": "running"}},
		{fleet.RolloutPaused, rollouttest.StoppedBy(fleet.StopSuccess), map[string]string{"promote": "paused"}},
		{fleet.RolloutPaused, rollouttest.StoppedBy(fleet.StopExposure), map[string]string{"promote": "paused"}},
		{fleet.RolloutPaused, rollouttest.StoppedBy(fleet.StopDeadline), map[string]string{"promote": "paused"}},
		{fleet.RolloutPaused, rollouttest.StoppedBy(fleet.StopRollback), map[string]string{"promote": "paused"}},
		{fleet.RolloutPaused, promotedThen(fleet.StopOperator), map[string]string{"promote": "-"}},
		{fleet.RolloutPaused, promotedThen(fleet.StopThreshold), map[string]string{"promote": "!has stopped since", "resume": "running"}},
		{fleet.RolloutPaused, func(r *fleet.Rollout) { rollouttest.StoppedBy(fleet.StopDeadline)(r); late(r) }, map[string]string{"resume": "!nothing is offered after it", "cancel": "cancelling"}},
		{fleet.RolloutCancelling, nil, map[string]string{
			"pause": too, "pause_now": too, "resume": too, "force": too, "approve": too, "promote": too, "cancel": "-", "retry": too, "skip": too,
		}},
		{fleet.RolloutCancelled, nil, map[string]string{"cancel": "-", "pause": too, "resume": too, "retry": too}},
		{fleet.RolloutCompleted, nil, map[string]string{
			"pause": too, "pause_now": too, "resume": too, "force": too, "approve": too, "promote": too, "cancel": too, "retry": too, "skip": too,
		}},
		{fleet.RolloutFailed, nil, map[string]string{"cancel": too, "retry": too}},
		{fleet.RolloutRolledBack, nil, map[string]string{"cancel": too, "resume": too}},
	} {
		for verb, want := range c.want {
			r := rollouttest.InState(c.state)
			if c.with != nil {
				c.with(&r)
			}
			name := fmt.Sprintf("%s of a %s rollout (stop %v) gives %s", verb, c.state, r.Stop, want)
			before := r
			text, err := give(verb, &r, Request{Actor: "kim", Why: "I looked"}, rollouttest.Hour)
			switch words, refused := strings.CutPrefix(want, "!"); {
			case refused:
				if err == nil || fleet.KindOf(err) != fleet.Conflict || !strings.Contains(err.Error(), words) {
					t.Errorf("%s: %v", name, err)
				}
			case err != nil:
				t.Errorf("%s: %v", name, err)
			case want == "-":
				if text != "" || fmt.Sprint(before) != fmt.Sprint(r) {
					t.Errorf("%s: %q, it is now %+v", name, text, r)
				}
			default:
				if text == "" || string(r.State) != want {
					t.Errorf("%s: %q, it is now %s", name, text, r.State)
				}
				again := r
				if text, err := give(verb, &again, Request{Actor: "kim", Why: "I looked"}, rollouttest.Hour.Add(time.Second)); err != nil || text != "" {
					t.Errorf("%s: asked again it says %q, %v", name, text, err)
				}
			}
		}
	}
}

// A console shows one command as the one that the state asks for.
func TestPrimaryCommand(t *testing.T) {
	needsApproval := func(r *fleet.Rollout) {
		r.Plan.Strategy.Canary = &fleet.CanaryRule{Approval: true}
		r.Batches[0].Kind, r.Batches[0].EndedAt = fleet.BatchCanary, r.StartedAt
	}
	stopped := func(kind fleet.StopKind) func(*fleet.Rollout) {
		return func(r *fleet.Rollout) { needsApproval(r); rollouttest.StoppedBy(kind)(r) }
	}
	for _, c := range []struct {
		name  string
		state fleet.RolloutState
		with  func(*fleet.Rollout)
		want  string
	}{
		{"a draft", fleet.RolloutDraft, nil, "start"},
		{"under way", fleet.RolloutRunning, nil, "pause"},
		{"waits for approval", fleet.RolloutRunning, needsApproval, "approve"},
		{"paused before its approval", fleet.RolloutPaused, stopped(fleet.StopOperator), "resume"},
		{"paused since nobody approved", fleet.RolloutPaused, stopped(fleet.StopDeadline), "resume"},
		{"stopped by failures before its approval", fleet.RolloutPaused, stopped(fleet.StopThreshold), ""},
		{"completed", fleet.RolloutCompleted, nil, ""},
	} {
		r := rollouttest.InState(c.state)
		if c.with != nil {
			c.with(&r)
		}
		got := ""
		if first := plan.Commands(&r, plan.Around{}, rollouttest.Hour)[0]; first.Primary {
			got = first.Name
		}
		if got != c.want {
			t.Errorf("%s: the primary command is %q, want %q", c.name, got, c.want)
		}
	}
}

func TestOverridingAGateNeedsAReason(t *testing.T) {
	for _, kind := range []fleet.StopKind{fleet.StopThreshold, fleet.StopCanary, fleet.StopExposure, fleet.StopDeadline} {
		for _, why := range []string{"", "  \n"} {
			r := rollouttest.InState(fleet.RolloutPaused, rollouttest.StoppedBy(kind))
			_, err := give(plan.CommandResume, &r, Request{Actor: "kim", Why: why}, rollouttest.Hour)
			var refusal *fleet.Error
			if !errors.As(err, &refusal) || refusal.Field != "body.why" || r.State != fleet.RolloutPaused {
				t.Errorf("resume after %s with the reason %q: %v, state %s", kind, why, err, r.State)
			}
		}
	}
	for _, kind := range []fleet.StopKind{fleet.StopOperator, fleet.StopSuccess, fleet.StopRollback} {
		r := rollouttest.InState(fleet.RolloutPaused, rollouttest.StoppedBy(kind))
		if _, err := give(plan.CommandResume, &r, Request{Actor: "kim"}, rollouttest.Hour); err != nil || r.State != fleet.RolloutRunning || r.Stop != nil {
			t.Errorf("resume after %s: %v, state %s", kind, err, r.State)
		}
	}
	r := rollouttest.InState(fleet.RolloutRunning)
	if _, err := give(plan.CommandForce, &r, Request{Actor: "kim"}, rollouttest.Hour); err == nil || r.Forced != nil {
		t.Errorf("force without a reason: %v", err)
	}
	r = rollouttest.InState(fleet.RolloutRunning)
	r.Plan.Strategy.Canary = &fleet.CanaryRule{Approval: true}
	r.Batches[0].Kind, r.Batches[0].EndedAt, r.Batches[0].Counts = fleet.BatchCanary, r.StartedAt, fleet.Counts{Total: 3, Succeeded: 2, Failed: 1}
	if _, err := give(plan.CommandApprove, &r, Request{Actor: "kim"}, rollouttest.Hour); err == nil || !strings.Contains(err.Error(), "1 of 3 canaries") || r.Approved != nil {
		t.Errorf("approved after a failed canary without a reason: %v", err)
	}
	if _, err := give(plan.CommandApprove, &r, Request{Actor: "kim", Why: "its disk was full"}, rollouttest.Hour); err != nil || r.Approved == nil || r.Approved.Why != "its disk was full" {
		t.Errorf("approved with a reason: %+v, %v", r.Approved, err)
	}
}

func TestResumeForgivesFailures(t *testing.T) {
	r := rollouttest.InState(fleet.RolloutPaused, rollouttest.StoppedBy(fleet.StopThreshold))
	text, err := give(plan.CommandResume, &r, Request{Actor: "kim", Why: "three old hosts"}, rollouttest.Hour)
	if err != nil || r.Forgiven != 3 || r.Forced != nil || !strings.Contains(text, "3 failures") {
		t.Errorf("resumed with %d forgiven, %q, %v", r.Forgiven, text, err)
	}
	if len(r.Orders) != 1 || r.Orders[0].Kind != fleet.OrderReturn || r.Orders[0].Agents != nil {
		t.Errorf("what was withdrawn does not return: %+v", r.Orders)
	}
	r = rollouttest.InState(fleet.RolloutPaused, rollouttest.StoppedBy(fleet.StopThreshold))
	if _, err := give(plan.CommandForce, &r, Request{Actor: "kim", Why: "the date stands"}, rollouttest.Hour); err != nil || len(r.Orders) != 1 || r.Orders[0].Kind != fleet.OrderReturn || r.Forgiven != 3 || r.Forced == nil || r.Forced.Why != "the date stands" || r.State != fleet.RolloutRunning {
		t.Errorf("forced: %+v, %v", r, err)
	}
}

func TestPauseNowWithdrawsOffers(t *testing.T) {
	r := rollouttest.InState(fleet.RolloutRunning)
	if _, err := pause(&r, true, Request{Actor: "kim", Why: "the site is on fire"}, rollouttest.Hour); err != nil {
		t.Fatal(err)
	}
	s := r.Stop
	if s == nil || s.Kind != fleet.StopOperator || s.By != "kim" || s.Batch != 1 || !strings.Contains(s.Text, "the site is on fire") {
		t.Errorf("stop is %+v", s)
	}
	if len(r.Orders) != 1 || r.Orders[0].Kind != fleet.OrderWithdraw || r.Orders[0].ID != "r1-g5-withdraw" {
		t.Errorf("orders are %+v", r.Orders)
	}
}

func TestOrdersAreBounded(t *testing.T) {
	r := rollouttest.InState(fleet.RolloutRunning)
	for i := range maxOrders {
		if _, err := skip(&r, []string{fmt.Sprint("a", i)}, Request{Actor: "kim"}, rollouttest.Hour); err != nil {
			t.Fatal(err)
		}
		r.Generation++
	}
	if _, err := skip(&r, []string{"one more"}, Request{Actor: "kim"}, rollouttest.Hour); fleet.KindOf(err) != fleet.TooMany {
		t.Errorf("one order too many: %v", err)
	}
	ids := map[string]bool{}
	for _, o := range r.Orders {
		ids[o.ID] = true
	}
	if len(ids) != maxOrders {
		t.Errorf("%d orders have %d ids", maxOrders, len(ids))
	}
}

// An order appended to one copy of a rollout must not show in another.
func TestCommandsDoNotChangeTheCallersDocument(t *testing.T) {
	r := rollouttest.InState(fleet.RolloutRunning)
	r.Orders = slices.Grow([]fleet.Order{{ID: "before"}}, 4)
	copied := r
	if _, err := skip(&copied, []string{"a1"}, Request{Actor: "kim"}, rollouttest.Hour); err != nil {
		t.Fatal(err)
	}
	if got := r.Orders[:2][1]; got.ID != "" {
		t.Errorf("the order %s stands in the other copy", got.ID)
	}
}
