package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func rolloutIn(state adminapi.RolloutState, change ...func(*adminapi.Rollout)) adminapi.Rollout {
	r := adminapi.Rollout{Rollout: fleet.Rollout{
		ID: "r1", State: state, Plan: fleet.Plan{Name: "x", Version: "1.1.0", Strategy: fleet.Strategy{Kind: fleet.Rolling}}, Counts: fleet.Counts{Total: 111, Succeeded: 12, Failed: 2, RolledBack: 1, Upgrading: 5, Pending: 91},
	}}
	for _, f := range change {
		f(&r)
	}
	r.Commands = plan.Commands(&r.Rollout, plan.Around{}, time.Now())
	return r
}

func stopped(kind adminapi.StopKind) func(*adminapi.Rollout) {
	return func(r *adminapi.Rollout) {
		r.Stop = &adminapi.Stop{Kind: kind, Text: "It stopped.", By: "muster", At: time.Now(), Withdrawn: 7}
	}
}

func waiting(code fleet.ReasonCode) func(*adminapi.Rollout) {
	return func(r *adminapi.Rollout) {
		r.Waiting = []fleet.Wait{{Code: "batch", Text: "batch 0"}, {Code: code, Text: "something"}}
	}
}

// late gives a rollout a deadline that is over: it does not go on.
func late(r *adminapi.Rollout) { r.Plan.Strategy.Deadline = new(time.Now().Add(-time.Hour)) }

func refused(r *adminapi.Rollout) { r.Counts.Refused, r.Counts.Skipped = 2, r.Counts.Skipped+2 }

// Scripts depend on the exit codes.
func TestExitCodeOfAFollowedRollout(t *testing.T) {
	for name, row := range map[string]struct {
		r           adminapi.Rollout
		interactive bool
		code        int
		says        string // empty if the command keeps following
	}{
		"running":                              {rolloutIn(fleet.RolloutRunning), false, 0, ""},
		"cancelling":                           {rolloutIn(fleet.RolloutCancelling), false, 0, ""},
		"completed":                            {rolloutIn(fleet.RolloutCompleted), false, 0, "12 of 111 agents run 1.1.0"},
		"failed":                               {rolloutIn(fleet.RolloutFailed), false, 3, "12 of 111 agents run 1.1.0, 3 failed. List them with `muster rollouts targets r1 --state failed,rolled_back`, and try them again with `muster rollouts create --from r1 --failed`"},
		"failed since a target was refused":    {rolloutIn(fleet.RolloutFailed, refused), false, 3, "12 of 111 agents run 1.1.0, 3 failed, 2 could not be given it. List them with `muster rollouts targets r1 --state failed,rolled_back,skipped`"},
		"rolled back":                          {rolloutIn(fleet.RolloutRolledBack), false, 3, "was rolled back"},
		"cancelled":                            {rolloutIn(fleet.RolloutCancelled), false, 5, "was cancelled"},
		"draft":                                {rolloutIn(fleet.RolloutDraft), false, 1, "muster rollouts start r1"},
		"paused by failures":                   {rolloutIn(fleet.RolloutPaused, stopped(fleet.StopThreshold)), false, 4, "is paused: It stopped. Resume it with `muster rollouts resume r1 --why"},
		"paused by failures, interactive":      {rolloutIn(fleet.RolloutPaused, stopped(fleet.StopThreshold)), true, 4, "is paused"},
		"paused by a canary":                   {rolloutIn(fleet.RolloutPaused, stopped(fleet.StopCanary)), false, 4, "is paused"},
		"paused by the exposure budget":        {rolloutIn(fleet.RolloutPaused, stopped(fleet.StopExposure)), false, 4, "is paused"},
		"paused by a deadline":                 {rolloutIn(fleet.RolloutPaused, stopped(fleet.StopDeadline), late), false, 4, "is paused: It stopped. Cancel it with `muster rollouts cancel r1`. Watchers"},
		"paused since not all are ready":       {rolloutIn(fleet.RolloutPaused, stopped(fleet.StopVerify)), true, 4, "no target has begun: It stopped. Mend that, then resume it"},
		"being rolled back":                    {rolloutIn(fleet.RolloutPaused, stopped(fleet.StopRollback)), false, 0, ""},
		"paused by an operator":                {rolloutIn(fleet.RolloutPaused, stopped(fleet.StopOperator)), false, 6, "muster rollouts resume r1"},
		"paused by an operator, interactive":   {rolloutIn(fleet.RolloutPaused, stopped(fleet.StopOperator)), true, 0, ""},
		"paused on success":                    {rolloutIn(fleet.RolloutPaused, stopped(fleet.StopSuccess)), false, 6, "is paused"},
		"waiting for an approval":              {rolloutIn(fleet.RolloutRunning, waiting("approval")), false, 6, "muster rollouts approve r1"},
		"waiting for an approval, interactive": {rolloutIn(fleet.RolloutRunning, waiting("approval")), true, 0, ""},
		"soaking":                              {rolloutIn(fleet.RolloutRunning, waiting("soak")), false, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, text := outcome(row.r, row.interactive)
			if code != row.code || (text == "") != (row.says == "") || !strings.Contains(text, row.says) {
				t.Errorf("exit code %d, %q\nwant %d, %q", code, text, row.code, row.says)
			}
		})
	}
}

func TestProgressPrintsALineForEachChange(t *testing.T) {
	var b bytes.Buffer
	print := linesOf(&b, progressLine)
	r := rolloutIn(fleet.RolloutRunning, waiting("soak"))
	begun := time.Now()
	r.Batches = []fleet.Batch{{StartedAt: &begun}, {Index: 1, StartedAt: &begun}, {Index: 2}}
	print(r, begun)
	print(r, begun.Add(time.Second))
	r.Counts.Succeeded++
	print(r, begun.Add(2*time.Second))
	stopped(fleet.StopThreshold)(&r)
	r.State = fleet.RolloutPaused
	print(r, begun.Add(3*time.Second))
	got := strings.Split(strings.TrimSpace(b.String()), "\n")
	want := []string{
		"running, batch 2 of 3, 12 of 111 done, 5 in flight, 3 failed; waiting: batch 0",
		"running, batch 2 of 3, 13 of 111 done, 5 in flight, 3 failed; waiting: batch 0",
		"paused, batch 2 of 3, 13 of 111 done, 5 in flight, 3 failed: It stopped.",
	}
	if len(got) != len(want) {
		t.Fatalf("the lines are %q", got)
	}
	for i := range want {
		if _, line, _ := strings.Cut(got[i], "  "); line != want[i] {
			t.Errorf("line %d is %q, want %q", i, line, want[i])
		}
	}
}

func TestPrintRolloutShowsBatchesWaitsAndNextCommand(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	until := now.Add(90 * time.Minute)
	r := rolloutIn(fleet.RolloutRunning)
	r.Waiting = []fleet.Wait{{Code: "approval", Text: "an operator must approve", Until: &until}}
	r.Commands = []adminapi.Command{{Name: "approve", Allowed: true, Primary: true}}
	r.Fleet, r.Promoted = "edge", &fleet.Decision{By: "ann", At: now, Why: "OPS-9"}
	batches := make([]adminapi.Batch, 40)
	for i := range batches {
		batches[i] = adminapi.Batch{Index: i, Kind: fleet.BatchRegular, Counts: adminapi.Counts{Total: 3}}
		if i <= 20 {
			batches[i].StartedAt = &now
		}
	}
	batches[0].Kind = fleet.BatchCanary
	r.Batches = batches
	var b bytes.Buffer
	printRollout(&b, r, now, batchesWatched)
	for _, want := range []string{"fleet          edge, which declares it", " by ann: OPS-9", "an operator must approve, 1 h 30 min", "under way", "not started", "… and 28 more batches", "`muster rollouts approve r1`"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if n := strings.Count(b.String(), "regular"); n != batchesWatched {
		t.Errorf("%d batches are shown", n)
	}
	b.Reset()
	printRollout(&b, r, now, -1)
	if n := strings.Count(b.String(), "regular"); n != 39 || !strings.Contains(b.String(), "canary") {
		t.Errorf("without a limit %d batches are shown", n)
	}

	b.Reset()
	stopped(fleet.StopThreshold)(&r)
	recovery := "Restore the volume."
	r.State, r.Plan.Migration = fleet.RolloutPaused, fleet.Migration{RecoveryPlan: recovery}
	r.Commands = plan.Commands(&r.Rollout, plan.Around{}, now)
	printRollout(&b, r, now, 0)
	for _, want := range []string{"It stopped. (muster", "7 offers withdrawn", recovery, "`muster rollouts resume r1 --why …`"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

func TestAdviceOfAStoppedRolloutIsRightForItsState(t *testing.T) {
	for name, row := range map[string]struct {
		counts adminapi.Counts
		want   string
	}{
		"the watchers put all back": {adminapi.Counts{RolledBack: 2, Pending: 8}, "Watchers put the previous version back on 2: there is nothing to roll back on them."},
		"some failed and stay":      {adminapi.Counts{Failed: 2, Pending: 8}, "Roll back the 2 that failed with `muster rollouts rollback r1 --scope failed`."},
		"others run it well":        {adminapi.Counts{RolledBack: 1, Succeeded: 3}, "Watchers put the previous version back on 1: there is nothing to roll back on them. Roll back all 3 that took the version with `muster rollouts rollback r1 --scope all`."},
		"nothing has begun":         {adminapi.Counts{Pending: 8}, ""},
	} {
		r := rolloutIn(fleet.RolloutPaused, stopped(fleet.StopThreshold), func(r *adminapi.Rollout) { r.Counts = row.counts })
		if got := rollbackAdvice(r); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

func TestRolloutInLockstepShowsItsPhase(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	r := adminapi.Rollout{Rollout: fleet.Rollout{
		ID: "r1", State: fleet.RolloutRunning, Plan: adminapi.Plan{Name: "as one", Strategy: adminapi.Strategy{Kind: fleet.LockstepStrategy}},
		Counts:   adminapi.Counts{Total: 3, Upgrading: 3},
		Lockstep: &adminapi.RolloutLockstep{Phase: fleet.LockstepVerifyAgain, Since: now.Add(-time.Minute), Missing: []string{"web-9"}},
	}}
	if got := progressLine(r); !strings.HasPrefix(got, "running, phase verify again, 0 of 3 done") {
		t.Errorf("its line is %q", got)
	}
	shows := func(texts ...string) {
		t.Helper()
		var b strings.Builder
		printRollout(&b, r, now, -1)
		for _, want := range texts {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%q is not in\n%s", want, b.String())
			}
		}
	}
	shows("phase          verify again, since", "left out       offline: web-9")
	at := now.Add(-time.Second)
	r.Lockstep.Phase, r.Lockstep.CommittedAt, r.Lockstep.Failed = fleet.LockstepStart, &at, []string{"web-1"}
	shows("there has been no way back since", "look at        web-1")
	r.State = fleet.RolloutFailed
	shows("To go back, make a rollout in lockstep to the earlier version")
	r.Lockstep = &adminapi.RolloutLockstep{Phase: fleet.LockstepUndo, Since: now, Undo: &adminapi.Undo{In: fleet.LockstepStop, Why: "web-2 failed"}}
	shows("undone         in the phase stop: web-2 failed", "Everything was undone: mend what it names")
	var listed strings.Builder
	targets.print(&listed, []adminapi.Target{{Target: fleet.Target{Hostname: "web-3", Reached: agentapi.LockstepBackup}}})
	if !strings.Contains(listed.String(), "backup") {
		t.Errorf("the phase of a target is not in\n%s", listed.String())
	}
}

func TestWaitSaysWhatItWaitedFor(t *testing.T) {
	phases, hosts := map[string]string{"a": "watching 1.1.0"}, map[string]string{"a": "web-01"}
	if got, want := describeWaiting(phases, hosts), "web-01 is in phase “watching 1.1.0”. Hosts watch a new version for ten minutes by default"; !strings.HasPrefix(got, want) {
		t.Errorf("it says %q, want %q", got, want)
	}
	for _, id := range []string{"b", "c", "d", "e", "f", "g"} {
		phases[id], hosts[id] = "", "web-"+id
	}
	if got := describeWaiting(phases, hosts); !strings.Contains(got, "web-e is in phase “unknown” and 2 more.") {
		t.Errorf("it says %q", got)
	}
}

func TestHelpAndPreviewsNameTheWatch(t *testing.T) {
	var b bytes.Buffer
	printPreview(&b, "", adminapi.UpgradePreview{Version: "1.1.0"})
	printRolloutPreview(&b, adminapi.RolloutPreview{}, 0)
	if n := strings.Count(b.String(), "ten minutes"); n != 2 {
		t.Errorf("the previews name it %d times:\n%s", n, b.String())
	}
	if help := (&client{}).newAgentsUpgrade().Long; !strings.Contains(help, "ten minutes") {
		t.Errorf("the help is %q", help)
	}
}

func TestScheduleOfAnUpgrade(t *testing.T) {
	now := time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		flags scheduleFlags
		start string
		over  int
		err   string
	}{
		{scheduleFlags{}, "", 0, ""},
		{scheduleFlags{at: "22:00"}, "2026-03-03T22:00:00Z", 0, ""},
		{scheduleFlags{at: "06:00", over: 2 * time.Hour}, "2026-03-04T06:00:00Z", 7200, ""},
		{scheduleFlags{at: "2026-03-05 01:30"}, "2026-03-05T01:30:00Z", 0, ""},
		{scheduleFlags{over: time.Hour}, "", 3600, ""},
		{scheduleFlags{at: "2026-03-03 11:00"}, "", 0, "--at is 2026-03-03 11:00, which is past"},
		{scheduleFlags{at: "tonight"}, "", 0, "--at is \"tonight\", want a time"},
		{scheduleFlags{over: -time.Hour}, "", 0, "--over is -1h0m0s"},
	} {
		start, over, err := c.flags.times(waitFlags{}, now)
		got := ""
		if start != nil {
			got = start.Format(time.RFC3339)
		}
		if got != c.start || deref(over) != c.over || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v begins at %q over %d: %v", c.flags, got, deref(over), err)
		}
	}
	if _, _, err := (&scheduleFlags{at: "22:00"}).times(waitFlags{on: true}, now); err == nil || !strings.Contains(err.Error(), "--wait follows upgrades that begin now") {
		t.Errorf("with --wait: %v", err)
	}
}
