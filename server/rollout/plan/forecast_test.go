package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// paced returns a running rollout of 100 hosts of which ended have ended: every minute for the
// last minutes, perMinute of them.
func paced(ended, perMinute, minutes int, now time.Time) fleet.Rollout {
	r := fleet.Rollout{
		ID: "r1", State: fleet.RolloutRunning, Plan: fleet.Plan{Strategy: fleet.Strategy{Kind: fleet.Rolling}},
		Counts: fleet.Counts{Total: 100, Succeeded: ended, Pending: 100 - ended}, Batches: []fleet.Batch{{Counts: fleet.Counts{Total: 100}}},
	}
	for i := minutes; i >= 0; i-- {
		c := fleet.Counts{Succeeded: ended - i*perMinute}
		r.Marks = markEnds(r.Marks, &c, now.Add(-time.Duration(i)*time.Minute))
	}
	return r
}

func TestPaceIsThatOfTheLastTenMinutes(t *testing.T) {
	now := time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC)
	soaking := func(r *fleet.Rollout) {
		until := now.Add(20 * time.Minute)
		r.Waiting = []fleet.Wait{{Code: fleet.WhySoak, Until: &until}}
		r.Plan.Pace.Soak = fleet.Duration(time.Hour)
		r.Batches = []fleet.Batch{{EndedAt: &now}, {Index: 1}, {Index: 2}}
	}
	canaries := func(r *fleet.Rollout) {
		r.Plan.Strategy.Canary = &fleet.CanaryRule{Approval: true}
		r.Batches[0].Kind = fleet.BatchCanary
	}
	frozen := []fleet.Freeze{{Name: "night", From: now.Add(5 * time.Minute), To: now.Add(65 * time.Minute)}}
	for _, c := range []struct {
		name    string
		r       fleet.Rollout
		with    func(*fleet.Rollout)
		freezes []fleet.Freeze
		want    string
	}{
		{"steady", paced(40, 4, 10, now), nil, nil, "4 a minute, done 12:15"},
		{"fast long ago", paced(60, 1, 20, now), nil, nil, "1 a minute, done 12:40"},
		{"just begun", paced(6, 3, 2, now), nil, nil, "3 a minute, done 12:31"},
		{"nothing has ended", paced(0, 0, 10, now), nil, nil, ""},
		{"stands still for long", paced(40, 4, 10, now.Add(-time.Hour)), nil, nil, ""},
		{"paused", paced(40, 4, 10, now), func(r *fleet.Rollout) { r.State = fleet.RolloutPaused }, nil, "4 a minute"},
		{"pauses after the batch", paced(40, 4, 10, now), func(r *fleet.Rollout) { r.PauseAsked = &fleet.Decision{} }, nil, "4 a minute"},
		{"half are away", paced(40, 4, 10, now), func(r *fleet.Rollout) { r.Counts.Pending, r.Counts.Held = 20, 40 }, nil, "4 a minute, done 12:05"},
		{"the rest is away", paced(40, 4, 10, now), func(r *fleet.Rollout) { r.Counts.Pending, r.Counts.Held = 0, 60 }, nil, "4 a minute"},
		{"soaks, and one soak is ahead", paced(40, 4, 10, now), soaking, nil, "4 a minute, done 13:35"},
		{"promoted", paced(40, 4, 10, now), func(r *fleet.Rollout) { soaking(r); r.Waiting, r.Promoted = nil, &fleet.Decision{} }, nil, "4 a minute, done 12:15"},
		{"needs approval", paced(40, 4, 10, now), canaries, nil, "4 a minute"},
		{"approved", paced(40, 4, 10, now), func(r *fleet.Rollout) { canaries(r); r.Approved, r.Batches = &fleet.Decision{}, r.Batches[:1] }, nil, "4 a minute, done 12:15"},
		{"a freeze comes", paced(40, 4, 10, now), nil, frozen, "4 a minute, done 13:15"},
	} {
		if c.with != nil {
			c.with(&c.r)
		}
		p, got := PaceOf(&c.r, c.freezes, now), ""
		if p.PerMinute != nil {
			got = Number(*p.PerMinute) + " a minute"
		}
		if p.DoneAbout != nil {
			got += ", done " + p.DoneAbout.Format("15:04")
		}
		if got != c.want || p.Total != 100 || p.Done != c.r.Counts.Ended() {
			t.Errorf("%s: %q with %d of %d done, want %q", c.name, got, p.Done, p.Total, c.want)
		}
	}
}

func TestMarksAreFewAndCoverTheWindow(t *testing.T) {
	now := time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC)
	var marks []fleet.EndMark
	for i := range 1000 {
		before := slices.Clone(marks)
		next := markEnds(marks, &fleet.Counts{Succeeded: i}, now.Add(time.Duration(i)*10*time.Second))
		if fmt.Sprint(marks) != fmt.Sprint(before) {
			t.Fatal("the marks of the rollout before have changed")
		}
		marks = next
		if len(marks) > 12 {
			t.Fatalf("%d marks", len(marks))
		}
	}
	end := now.Add(9990 * time.Second)
	if age := end.Sub(marks[0].At); age < paceWindow || age > paceWindow+2*time.Minute {
		t.Errorf("the oldest mark is %s old: %v", age, marks)
	}
}

func TestWouldStop(t *testing.T) {
	two, zero := 2, 0
	percent := 5.0
	running := func(change func(*fleet.Rollout)) *fleet.Rollout {
		r := fleet.Rollout{State: fleet.RolloutRunning, Plan: fleet.Plan{Strategy: fleet.Strategy{Kind: fleet.Rolling}}, Counts: fleet.Counts{Total: 100, Succeeded: 39, Failed: 1}, Batches: []fleet.Batch{{}}}
		change(&r)
		return &r
	}
	for want, r := range map[string]*fleet.Rollout{
		"": running(func(r *fleet.Rollout) { r.State = fleet.RolloutCompleted }),
		"1 of 2 failures so far: 1 more pauses it.":                   running(func(r *fleet.Rollout) { r.Plan.Failure.Count = &two }),
		"0 of 2 failures so far: 2 more pause it.":                    running(func(r *fleet.Rollout) { r.Plan.Failure.Count, r.Forgiven = &two, 1 }),
		"It pauses at 1 failure: there are 1.":                        running(func(r *fleet.Rollout) { r.Plan.Failure.Count = &zero }),
		"1 of 40 failed so far, which is 2.5 %: it pauses above 5 %.": running(func(r *fleet.Rollout) { r.Plan.Failure.Percent = &percent }),
		"It pauses once more than 5 % of the targets that have ended have failed.": running(func(r *fleet.Rollout) {
			r.Plan.Failure.Percent, r.Counts = &percent, fleet.Counts{Total: 100, Pending: 100}
		}),
		"One canary that fails pauses it.":                    running(func(r *fleet.Rollout) { r.Batches[0].Kind = fleet.BatchCanary }),
		"No number of failures pauses it: ann has forced it.": running(func(r *fleet.Rollout) { r.Forced = &fleet.Decision{By: "ann"} }),
		"One target that fails undoes everything.":            running(func(r *fleet.Rollout) { r.Plan.Strategy.Kind = fleet.LockstepStrategy }),
	} {
		if got := WouldStop(r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestCausesGroupWhatDiffersOnlyByHost(t *testing.T) {
	var c Causes
	for i := range 30 {
		host := fmt.Sprintf("web-%02d", i)
		c.Add(&fleet.Target{AgentID: fmt.Sprint("id", i), Hostname: host, State: fleet.TargetFailed, Code: fleet.WhyReported, Error: fmt.Sprintf("not enough disk space on %s: 5.%d MB are free, at 2026-03-03T12:00:%02dZ", host, i, i)})
	}
	for range 40 {
		c.Add(&fleet.Target{State: fleet.TargetRolledBack, Code: fleet.WhyCompensated, Error: "crash_loop"})
	}
	c.Add(&fleet.Target{State: fleet.TargetFailed, Code: fleet.WhyReported, Error: "version 1.2.0 is not signed"})
	c.Add(&fleet.Target{State: fleet.TargetFailed, Code: fleet.WhyReported, Error: "version 1.3.0 is not signed"})
	c.Add(&fleet.Target{State: fleet.TargetSucceeded, Code: fleet.WhyHealthy})
	list := c.List()
	if len(list) != 4 || list[0].Count != 40 || list[0].State != fleet.TargetRolledBack || list[1].Count != 30 || list[1].Text != "The agent reported that the upgrade failed: not enough disk space on the host: … are free, at …." {
		t.Errorf("%+v", list)
	}
	for i := range 100 {
		c.Add(&fleet.Target{State: fleet.TargetFailed, Error: strings.Repeat("x", i+1)})
	}
	list = c.List()
	sum := 0
	for _, one := range list {
		sum += one.Count
	}
	if len(list) != maxCauses || list[maxCauses-1].Code != CodeOther || sum != 172 {
		t.Errorf("%d causes of %d targets: %+v", len(list), sum, list)
	}
}

// Nothing but a success is committed, and what is under way never looks ended.
func TestProgressOfTargets(t *testing.T) {
	for want, target := range map[fleet.ProgressState]fleet.Target{
		fleet.ProgressNone: {State: fleet.TargetPending}, fleet.ProgressWaitingForHost: {State: fleet.TargetHeld}, fleet.ProgressSent: {State: fleet.TargetOffered},
		fleet.ProgressDownloading: {State: fleet.TargetOffered, Phase: "UPG_DOWNLOADING"}, fleet.ProgressInstalling: {State: fleet.TargetUpgrading, Phase: "UPG_EXTRACTING"},
		fleet.ProgressRestarting: {State: fleet.TargetUpgrading, Phase: "UPG_RESTARTING"}, fleet.ProgressWatching: {State: fleet.TargetVerifying, Phase: "UPG_WATCHING"},
		fleet.ProgressCommitted: {State: fleet.TargetSucceeded}, fleet.ProgressFailed: {State: fleet.TargetFailed, Phase: "UPG_DOWNLOADING"}, fleet.ProgressRolledBack: {State: fleet.TargetRolledBack},
	} {
		if got := ProgressOf(&target); got != want {
			t.Errorf("%s in phase %q is %q, want %q", target.State, target.Phase, got, want)
		}
	}
}
