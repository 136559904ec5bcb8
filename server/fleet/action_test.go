package fleet

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestStartsAreSpreadOverRolloutDuration(t *testing.T) {
	a := Action{ID: "act", Type: agentapi.ActionUpgrade, StartTime: &now, RolloutSeconds: 600}
	for i := range 10 {
		a.Agents = append(a.Agents, fmt.Sprint("agent-", i))
	}
	for i, id := range a.Agents {
		want := now.Add(time.Duration(i) * time.Minute)
		for range 2 { // whenever it is delivered
			if got := a.ForAgent(id).StartTime; got == nil || !got.Equal(want) {
				t.Errorf("%s starts at %v, want %s", id, got, want)
			}
		}
	}
	if got := a.ForAgent("stranger").StartTime; !got.Equal(now) {
		t.Errorf("an agent that is not in the list starts at %v", got)
	}
	a.RolloutSeconds = 0
	if got := a.ForAgent("agent-9").StartTime; !got.Equal(now) {
		t.Errorf("without a rollout the last starts at %v", got)
	}
	a.StartTime, a.RolloutSeconds = nil, 600
	if got := a.ForAgent("agent-9").StartTime; got != nil {
		t.Errorf("without a start the last starts at %v", got)
	}
}

// A rollout of a year for 100,000 agents must not overflow.
func TestSpreadStartsDoNotOverflow(t *testing.T) {
	a := Action{StartTime: &now, RolloutSeconds: 365 * 24 * 3600}
	for i := range 100_000 {
		a.Agents = append(a.Agents, fmt.Sprint(i))
	}
	end := now.Add(365 * 24 * time.Hour)
	last := now.Add(-1)
	for _, i := range []int{0, 1, 50_000, 99_998, 99_999} {
		start := *a.ForAgent(fmt.Sprint(i)).StartTime
		if !start.After(last) || !start.Before(end) {
			t.Errorf("agent %d starts at %s, after one that starts at %s", i, start, last)
		}
		last = start
	}
	if want := now.Add(365 * 12 * time.Hour); !a.ForAgent("50000").StartTime.Equal(want) {
		t.Errorf("the middle starts at %s, want %s", a.ForAgent("50000").StartTime, want)
	}
}

func TestActionForAgentOnTheWire(t *testing.T) {
	a := Action{
		ID: "act", Type: agentapi.ActionUpgrade, Data: json.RawMessage(`{"version":"1.1.0","source_uri":"https://x"}`),
		Agents: []string{"a"}, CreatedAt: now, Expiration: ago(-time.Hour),
	}
	w := a.ForAgent("a")
	if w.ID != "act" || w.AgentID != "a" || w.Type != agentapi.ActionUpgrade || string(w.Data) != string(a.Data) || !w.CreatedAt.Equal(now) || w.Expiration != a.Expiration {
		t.Errorf("on the wire it is %+v", w)
	}
	if d := a.Upgrade(); d.Version != "1.1.0" || d.SourceURI != "https://x" {
		t.Errorf("its upgrade is %+v", d)
	}
	a.Type = agentapi.ActionCancel
	if d := a.Upgrade(); d != (agentapi.UpgradeData{}) {
		t.Errorf("a CANCEL has the upgrade %+v", d)
	}
}

func TestActionStateAndCheckCancel(t *testing.T) {
	plain := Action{Type: agentapi.ActionUpgrade, Actioned: 3}
	with := func(change func(*Action)) Action { a := plain; change(&a); return a }
	cancelled := with(func(a *Action) { a.CancelledAt = &now })
	expired := with(func(a *Action) { a.Expiration = &now })
	rollout := func(begun time.Duration) Action {
		return with(func(a *Action) { a.StartTime, a.RolloutSeconds = ago(begun), 60 })
	}
	for _, row := range []struct {
		name   string
		action Action
		counts ResultCounts
		want   ActionState
		cancel bool // it can be cancelled

		open int
	}{
		{name: "all acknowledged on receipt, and one carries it out", action: plain, counts: ResultCounts{Acked: 3}, want: ActionComplete, cancel: true, open: 1},
		{"nobody has answered", plain, ResultCounts{}, ActionInProgress, true, 0},
		{"one is missing", plain, ResultCounts{Acked: 1, Failed: 1}, ActionInProgress, true, 0},
		{"all did it", plain, ResultCounts{Acked: 3}, ActionComplete, false, 0},
		{"all have answered, one failed", plain, ResultCounts{Acked: 2, Failed: 1}, ActionFailed, false, 0},
		{"more answers than agents", plain, ResultCounts{Acked: 4}, ActionComplete, false, 0},
		{"cancelled", cancelled, ResultCounts{Acked: 1}, ActionCancelled, true, 0},
		{"cancelled after all had answered", cancelled, ResultCounts{Acked: 2, Failed: 1}, ActionCancelled, true, 0},
		{"expired", expired, ResultCounts{Acked: 2}, ActionExpired, false, 0},
		{"all did it before it expired", expired, ResultCounts{Acked: 3}, ActionComplete, false, 0},
		{"expires in a moment", with(func(a *Action) { a.Expiration = ago(-1) }), ResultCounts{}, ActionInProgress, true, 0},
		{"amid its rollout", rollout(time.Minute), ResultCounts{}, ActionInProgress, true, 0},
		{"past its rollout", rollout(time.Minute + 1), ResultCounts{}, ActionRolloutPassed, true, 0},
		{"all did it past its rollout", rollout(time.Hour), ResultCounts{Acked: 3}, ActionComplete, false, 0},
		{"a start alone has no rollout to pass", with(func(a *Action) { a.StartTime = ago(time.Hour) }), ResultCounts{}, ActionInProgress, true, 0},
	} {
		if got := row.action.StateAt(row.counts, now); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
		err := row.action.CheckCancel(row.counts, row.open, now)
		if row.cancel != (err == nil) || (err != nil && KindOf(err) != Conflict) {
			t.Errorf("%s: cancelling it gives %v", row.name, err)
		}
	}
	unenroll := Action{Type: agentapi.ActionUnenroll, Actioned: 1}
	if err := unenroll.CheckCancel(ResultCounts{}, 0, now); KindOf(err) != Invalid {
		t.Errorf("cancelling an UNENROLL gives %v", err)
	}
}

func TestHostResultSupersedesWithdrawal(t *testing.T) {
	agent := Agent{ID: "a"}
	withdrawn := Withdrawal("act", &agent, "too many failed", time.Now())
	again := Withdrawal("act", &agent, "paused", time.Now())
	good, bad, cancelled := Result{Message: "upgraded"}, Result{Error: "the disk is full"}, Result{Error: agentapi.Cancelled}
	for _, row := range []struct {
		name           string
		earlier, later Result
		want           bool
	}{
		{"it went on and is good", withdrawn, good, true},
		{"it went on and failed", withdrawn, bad, true},
		{"it left it, as it was asked to", withdrawn, cancelled, false},
		{"withdrawn twice", withdrawn, again, false},
		{"withdrawn when it was done", good, withdrawn, false},
		{"withdrawn when it had failed", bad, withdrawn, false},
	} {
		if got := row.later.Supersedes(row.earlier); got != row.want {
			t.Errorf("%s: supersedes is %v", row.name, got)
		}
	}
}

func TestResultIsSupersededByWhatTheHostSaidLater(t *testing.T) {
	accepted, refused := Result{}, Result{Error: "no rights"}
	done, bad, presumed := Result{Outcome: true}, Result{Error: "rolled back", Outcome: true}, Result{Error: "silent", Outcome: true, Presumed: true}
	for _, row := range []struct {
		name           string
		later, earlier Result
		want           bool
	}{
		{"the same acknowledgement", accepted, accepted, false},
		{"the same error", refused, refused, false},
		{"an error after an acknowledgement on receipt", refused, accepted, true},
		{"an acknowledgement after an error", accepted, refused, false},
		{"done after it was accepted", done, accepted, false}, // the counts are the same
		{"done after an error", done, refused, true},
		{"rolled back after it was accepted", bad, accepted, true},
		{"rolled back after it was done", bad, done, true},
		{"done after it was given up", done, presumed, true},
		{"given up after it was accepted", presumed, accepted, true},
		{"given up twice", presumed, presumed, false},
		{"its reason after it was given up", bad, presumed, true},
		{"a late error after it was done", refused, done, false},
		{"a late error after it was given up", refused, presumed, true},
		{"a late acknowledgement after it was rolled back", accepted, bad, false},
	} {
		if got := row.later.Supersedes(row.earlier); got != row.want {
			t.Errorf("%s: supersedes is %v", row.name, got)
		}
	}
}
