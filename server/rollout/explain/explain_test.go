package explain

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func before(d time.Duration) *time.Time {
	t := rollouttest.Hour.Add(-d)
	return &t
}

func someTarget(state fleet.TargetState, change ...func(*fleet.Target)) fleet.Target {
	t := fleet.Target{RolloutID: "r1", AgentID: "a1", Hostname: "web-1", Batch: 1, State: state, From: "1.1.0", To: "1.2.0"}
	for _, f := range change {
		f(&t)
	}
	return t
}

func someAgent(change ...func(*fleet.Agent)) *fleet.Agent {
	a := &fleet.Agent{
		ID: "a1", Active: true, PolicyRev: 1, Version: "1.1.0", EnrolledAt: rollouttest.Hour.Add(-240 * time.Hour), Last: fleet.LastSeen{At: before(time.Second), Status: "online"},
		LocalMetadata: json.RawMessage(`{"host":{"hostname":"web-1","architecture":"x86_64"},"os":{"type":"linux"},"elastic":{"agent":{"version":"1.1.0","upgradeable":true}}}`),
	}
	for _, f := range change {
		f(a)
	}
	return a
}

func texts(e Explanation) string {
	var all []string
	for _, link := range e.Chain {
		all = append(all, "["+string(link.Code)+"] "+link.Text)
	}
	return strings.Join(all, "\n")
}

// wantChain fails the test unless the chain has the parts in this order.
func wantChain(t *testing.T, e Explanation, parts ...string) {
	t.Helper()
	rest := texts(e)
	for _, part := range parts {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Errorf("%q is not there, or not in its place, in\n%s", part, texts(e))
			return
		}
		rest = after
	}
}

func wantSummary(t *testing.T, e Explanation, part string) {
	t.Helper()
	if !strings.Contains(e.Summary, part) {
		t.Errorf("the summary is %q, want %q in it", e.Summary, part)
	}
}

func waitsFor(code fleet.ReasonCode, text string) func(*fleet.Rollout) {
	return func(r *fleet.Rollout) {
		until := rollouttest.Hour.Add(time.Hour)
		r.Waiting = []fleet.Wait{{Code: code, Text: text, Since: rollouttest.Hour.Add(-time.Minute), Until: &until}}
	}
}

func TestExplainWaitingTarget(t *testing.T) {
	pending := someTarget(fleet.TargetPending)
	t.Run("a draft waits for its start", func(t *testing.T) {
		r := rollouttest.InState(fleet.RolloutDraft)
		e := Target(&r, pending, someAgent(), nil, "", rollouttest.Hour, rollouttest.Hour)
		wantChain(t, e, "[draft] ", "has not been started")
		wantSummary(t, e, "the rollout has not been started")
	})
	t.Run("a rollout that stopped at its threshold says the arithmetic, and what to do", func(t *testing.T) {
		r := rollouttest.InState(fleet.RolloutPaused, rollouttest.StoppedBy(fleet.StopThreshold))
		e := Target(&r, pending, someAgent(), nil, "", rollouttest.Hour, rollouttest.Hour)
		wantChain(t, e, "[threshold] ", "3 of 6 failed", "batch 2 of 3", "[threshold] ", "its status is online")
		if e.Chain[0].Since == nil || !e.Chain[0].Since.Equal(r.Stop.At) || !strings.Contains(e.Next, "resume with a reason") {
			t.Errorf("since %v, next %q", e.Chain[0].Since, e.Next)
		}
	})
	t.Run("a later batch waits for the ones before", func(t *testing.T) {
		r := rollouttest.InState(fleet.RolloutRunning)
		e := Target(&r, someTarget(fleet.TargetPending, func(t *fleet.Target) { t.Batch = 2 }), someAgent(), nil, "", rollouttest.Hour, rollouttest.Hour)
		wantChain(t, e, "is running, to 1.2.0", "[later_batch] ", "batch 2 comes before it", "[later_batch] ")
	})
	t.Run("a soak tells until when", func(t *testing.T) {
		r := rollouttest.InState(fleet.RolloutRunning, waitsFor(fleet.WhySoak, "batch 1 soaks for an hour"))
		e := Target(&r, pending, someAgent(), nil, "", rollouttest.Hour, rollouttest.Hour)
		wantChain(t, e, "[soak] batch 1 soaks for an hour", "[soak] it has not been offered 1.2.0")
		if until := e.Chain[1].Until; until == nil || !until.Equal(rollouttest.Hour.Add(time.Hour)) {
			t.Errorf("until %v", until)
		}
	})
	t.Run("its own limit is told where the rollout goes on", func(t *testing.T) {
		r := rollouttest.InState(fleet.RolloutRunning, waitsFor(fleet.WhyParallel, "500 are being upgraded"))
		e := Target(&r, someTarget(fleet.TargetPending, func(t *fleet.Target) { t.Code = fleet.WhyLabelLimit }), someAgent(), nil, "", rollouttest.Hour, rollouttest.Hour)
		wantSummary(t, e, "the same label value")
	})
	t.Run("an agent that is away has its offer held, until then", func(t *testing.T) {
		r := rollouttest.InState(fleet.RolloutRunning)
		expires := rollouttest.Hour.Add(48 * time.Hour)
		held := someTarget(fleet.TargetHeld, func(t *fleet.Target) { t.Code, t.ExpiresAt = fleet.WhyAway, &expires })
		e := Target(&r, held, someAgent(func(a *fleet.Agent) { a.Last.At = before(time.Hour) }), nil, "", rollouttest.Hour, rollouttest.Hour)
		wantChain(t, e, "[away] its turn came while it was away", "[away] the agent runs 1.1.0 and has been silent since")
		if i := slices.IndexFunc(e.Chain, func(r Reason) bool { return r.Until != nil }); i < 0 || !e.Chain[i].Until.Equal(expires) {
			t.Errorf("nothing says until when:\n%s", texts(e))
		}
	})
	t.Run("another upgrade on the host is named", func(t *testing.T) {
		r := rollouttest.InState(fleet.RolloutRunning)
		busy := someTarget(fleet.TargetPending, func(t *fleet.Target) { t.Code = fleet.WhyBusy })
		e := Target(&r, busy, someAgent(func(a *fleet.Agent) { a.BeginUpgrade("single", "1.3.0", rollouttest.Hour) }), nil, "", rollouttest.Hour, rollouttest.Hour)
		wantChain(t, e, "[busy] it has not been offered", "[busy] another upgrade, to 1.3.0")
	})
}

func TestExplainUpgradeThatDoesNotMove(t *testing.T) {
	r := rollouttest.InState(fleet.RolloutRunning)
	offered := someTarget(fleet.TargetUpgrading, func(t *fleet.Target) {
		t.ActionID, t.OfferedAt, t.Phase = "r1-g1-0", before(20*time.Minute), "UPG_DOWNLOADING"
	})
	standsFor := func(d time.Duration) *fleet.Agent {
		return someAgent(func(a *fleet.Agent) {
			a.BeginUpgrade("r1-g1-0", "1.2.0", *before(time.Hour))
			a.ObserveUpgrade("", &agentapi.UpgradeDetails{ActionID: "r1-g1-0", State: agentapi.UpgradeDownloading, Metadata: agentapi.UpgradeMetadata{DownloadPercent: 50}}, *before(d))
			a.Last.At = before(time.Second)
		})
	}
	t.Run("in a rollout it says until when it is waited for", func(t *testing.T) {
		e := Target(&r, offered, standsFor(fleet.DefaultStaleAfter), nil, "", rollouttest.Hour, rollouttest.Hour)
		wantChain(t, e, "it is being upgraded to 1.2.0 (downloading)", "it reports downloading 50 %", "[no_progress] it has made no progress since then")
		until := rollouttest.Hour.Add(fleet.DefaultStall - fleet.DefaultStaleAfter).UTC().Format(time.RFC3339)
		if !strings.Contains(e.Next, "If it has not moved by "+until+", it fails") {
			t.Errorf("next is %q, want %s in it", e.Next, until)
		}
	})
	t.Run("one that moves is not mentioned", func(t *testing.T) {
		e := Target(&r, offered, standsFor(time.Minute), nil, "", rollouttest.Hour, rollouttest.Hour)
		if strings.Contains(texts(e), "no progress") || e.Next != "" {
			t.Errorf("next is %q:\n%s", e.Next, texts(e))
		}
	})
	t.Run("one that failed says what to do", func(t *testing.T) {
		failed := offered
		failed.State, failed.Code, failed.Error = fleet.TargetFailed, fleet.WhyNoProgress, "its host is online, and has made no progress since 10:00"
		e := Target(&r, failed, standsFor(time.Hour), nil, "", rollouttest.Hour, rollouttest.Hour)
		wantSummary(t, e, "has made no progress since 10:00")
		if !strings.Contains(e.Next, "restart the agent, then retry it") {
			t.Errorf("next is %q", e.Next)
		}
	})
	t.Run("without a rollout", func(t *testing.T) {
		for _, c := range []struct {
			agent *fleet.Agent
			next  string
		}{
			{standsFor(fleet.DefaultStall - time.Second), "It ends by itself."},
			{standsFor(fleet.DefaultStall), "Its host is online, and has made no progress since 2026-"},
		} {
			if e := Alone(c.agent, "", "", Last{}, nil, rollouttest.Hour, rollouttest.Hour); !strings.HasPrefix(e.Next, c.next) {
				t.Errorf("next is %q, want %q", e.Next, c.next)
			}
		}
		away := standsFor(time.Hour)
		away.Last.At = before(time.Hour)
		if e := Alone(away, "", "", Last{}, nil, rollouttest.Hour, rollouttest.Hour); e.Next != "It goes on when its host is back." {
			t.Errorf("of a host that is away next is %q", e.Next)
		}
	})
}

func TestExplainReportsOfTheHost(t *testing.T) {
	r := rollouttest.InState(fleet.RolloutRunning)
	offered := someTarget(fleet.TargetOffered, func(t *fleet.Target) {
		t.ActionID, t.OfferedAt, t.Phase = "r1-g1-0", before(time.Minute), "UPG_SCHEDULED"
	})
	t.Run("the retry ladder", func(t *testing.T) {
		next := rollouttest.Hour.Add(time.Minute)
		e := Target(&r, offered, someAgent(func(a *fleet.Agent) {
			a.BeginUpgrade("r1-g1-0", "1.2.0", rollouttest.Hour)
			a.UpgradeDetails = &agentapi.UpgradeDetails{ActionID: "r1-g1-0", State: agentapi.UpgradeScheduled, Metadata: agentapi.UpgradeMetadata{
				RetryErrorMsg: "no space left", RetryAttempt: 2, RetryLimit: 5, ScheduledAt: &next,
			}}
		}), nil, "", rollouttest.Hour, rollouttest.Hour)
		wantChain(t, e, "was offered 1.2.0", "(scheduled)", "its last attempt failed (no space left)", "2026-03-03T12:01:00Z, retry 2 of 5")
	})
	t.Run("the watcher's word", func(t *testing.T) {
		e := Target(&r, someTarget(fleet.TargetVerifying, func(t *fleet.Target) { t.ActionID, t.ReachedAt = "r1-g1-0", before(time.Minute) }), someAgent(func(a *fleet.Agent) {
			a.UpgradeActionID, a.Version = "r1-g1-0", "1.2.0"
			a.Watch = &fleet.Watch{ReceivedAt: rollouttest.Hour, Beacon: agentapi.Beacon{ActionID: "r1-g1-0", Phase: agentapi.BeaconWatching, To: "1.2.0", Waiting: "seven more healthy samples"}}
		}), nil, "", rollouttest.Hour, rollouttest.Hour)
		wantChain(t, e, "its health is being watched", "its watcher reports: watching 1.2.0, waiting: seven more")
	})
	t.Run("why it failed", func(t *testing.T) {
		failed := someTarget(fleet.TargetFailed, func(t *fleet.Target) { t.Code, t.Error = fleet.WhyReported, "signature does not match" })
		e := Target(&r, failed, someAgent(), nil, "", rollouttest.Hour, rollouttest.Hour)
		wantSummary(t, e, "signature does not match")
		wantChain(t, e, "[reported_failure] it failed: the agent reported that the upgrade failed: signature")
	})
	t.Run("that its document is gone", func(t *testing.T) {
		wantChain(t, Target(&r, offered, nil, nil, "", rollouttest.Hour, rollouttest.Hour), "[gone] ")
	})
	t.Run("a success needs no advice", func(t *testing.T) {
		e := Target(&r, someTarget(fleet.TargetSucceeded, func(t *fleet.Target) { t.Code = fleet.WhyHealthy }), someAgent(), nil, "", rollouttest.Hour, rollouttest.Hour)
		wantSummary(t, e, "web-1 was upgraded from 1.1.0 to 1.2.0")
		if e.Next != "" {
			t.Errorf("next is %q", e.Next)
		}
	})
}

func stepEntry(at time.Time, d plan.TrailData) fleet.AuditEntry {
	data, _ := json.Marshal(d)
	return fleet.AuditEntry{At: at, Verb: plan.VerbStep, Data: data}
}

func TestExplainAnEarlierTime(t *testing.T) {
	end := rollouttest.Hour.Add(-10 * time.Minute)
	r := rollouttest.InState(fleet.RolloutCompleted, func(r *fleet.Rollout) { r.EndedAt, r.CreatedAt = &end, rollouttest.Hour.Add(-2*time.Hour) })
	done := someTarget(fleet.TargetSucceeded, func(t *fleet.Target) {
		t.OfferedAt, t.ReachedAt, t.Code = before(25*time.Minute), before(20*time.Minute), fleet.WhyHealthy
		t.History = []fleet.TargetChange{
			{At: *before(25 * time.Minute), State: fleet.TargetOffered},
			{At: *before(23 * time.Minute), State: fleet.TargetUpgrading, Phase: "UPG_REPLACING"},
			{At: *before(20 * time.Minute), State: fleet.TargetVerifying},
			{At: *before(10 * time.Minute), State: fleet.TargetSucceeded, Code: fleet.WhyHealthy},
		}
	})
	stop := fleet.Stop{Kind: fleet.StopCanary, Text: "a canary failed", At: *before(40 * time.Minute)}
	trail := []fleet.AuditEntry{ // newest first, as the store has them
		{At: *before(24 * time.Minute), Verb: "rollout.approve"},
		stepEntry(*before(30 * time.Minute), plan.TrailData{State: fleet.RolloutRunning, Batch: 1}),
		stepEntry(*before(40 * time.Minute), plan.TrailData{State: fleet.RolloutPaused, Stop: &stop}),
		stepEntry(*before(50 * time.Minute), plan.TrailData{State: fleet.RolloutRunning, Waiting: []fleet.Wait{{Code: fleet.WhyObservation, Text: "the canaries are observed", Since: *before(50 * time.Minute)}}}),
	}
	for _, c := range []struct {
		story string
		at    time.Duration // before rollouttest.Hour
		want  []string
	}{
		{"before the start it was a draft", 90 * time.Minute, []string{"[draft] "}},
		{"right after the start nothing was known yet", 59 * time.Minute, []string{"is running", "[later_batch] "}},
		{"then the canaries were observed", 45 * time.Minute, []string{"[observation] the canaries are observed", "[later_batch] "}},
		{"then one failed", 35 * time.Minute, []string{"[canary_failed] ", "a canary failed", "[canary_failed] it has not been offered"}},
		{"then its turn came", 24 * time.Minute, []string{"is running", "was offered 1.2.0"}},
		{"then it was changed", 22 * time.Minute, []string{"being upgraded to 1.2.0 (replacing)"}},
		{"then it was watched", 15 * time.Minute, []string{"its health is being watched"}},
		{"and in the end it was well", 5 * time.Minute, []string{"[over] ", "completed", "[healthy] it was upgraded"}},
	} {
		t.Run(c.story, func(t *testing.T) {
			at := rollouttest.Hour.Add(-c.at)
			// As the store returns it: without entries after that time.
			known := slices.DeleteFunc(slices.Clone(trail), func(e fleet.AuditEntry) bool { return e.At.After(at) })
			e := Target(&r, done, someAgent(), known, "", at, rollouttest.Hour)
			wantChain(t, e, c.want...)
			if all := Target(&r, done, someAgent(), trail, "", at, rollouttest.Hour); texts(all) != texts(e) {
				t.Errorf("entries of later change the answer:\n%s\n%s", texts(e), texts(all))
			}
			if strings.Contains(texts(e), "its status is online") {
				t.Error("it tells of the agent as it is now")
			}
		})
	}
}

func TestExplainAgentsThatAreNotTargets(t *testing.T) {
	r := rollouttest.InState(fleet.RolloutRunning)
	t.Run("one that was left out hears why", func(t *testing.T) {
		e := Skipped(&r, nil, fleet.SkippedAgent{AgentID: "a1", Hostname: "web-1", Code: fleet.WhyRefused, Text: "agent a1 cannot upgrade itself"}, nil, rollouttest.Hour, rollouttest.Hour)
		wantSummary(t, e, "web-1 was left out of rollout “spring” (r1): agent a1 cannot upgrade itself")
		wantChain(t, e, "is running", "[refused] ")
	})
	burnt := someAgent(func(a *fleet.Agent) {
		a.FailedVersions = []fleet.FailedVersion{{Version: r.Plan.Version, Reason: "it crashed"}, {Version: "1.2.0", Reason: "it crashed"}}
	})
	t.Run("a version that failed on the host is not advised", func(t *testing.T) {
		want := plan.ReasonNext(fleet.WhyFailedBefore)
		busy := fleet.SkippedAgent{AgentID: "a1", Hostname: "web-1", Code: fleet.WhyRefused, Text: "agent a1 is being upgraded"}
		for name, e := range map[string]Explanation{
			"skipped":   Skipped(&r, burnt, busy, nil, rollouttest.Hour, rollouttest.Hour),
			"no target": NonTarget(&r, burnt, true, &fleet.Preview{}, rollouttest.Hour, rollouttest.Hour),
			"target":    Target(&r, fleet.Target{AgentID: "a1", Hostname: "web-1", State: fleet.TargetRolledBack, Code: fleet.WhyCompensated, To: r.Plan.Version}, burnt, nil, "", rollouttest.Hour, rollouttest.Hour),
		} {
			if e.Next != want {
				t.Errorf("%s: the advice is %q", name, e.Next)
			}
		}
		stuck := fleet.Target{AgentID: "a1", Hostname: "web-1", State: fleet.TargetFailed, Code: fleet.WhyStuck, To: r.Plan.Version}
		if e := Target(&r, stuck, burnt, nil, "", rollouttest.Hour, rollouttest.Hour); e.Next != plan.ReasonNext(fleet.WhyStuck) {
			t.Errorf("the advice for a host that needs repair is %q", e.Next)
		}
	})
	catalog := fleet.Catalog{{Version: "1.2.0", OS: "linux", Arch: "amd64"}, {Version: "1.3.0", OS: "windows", Arch: "amd64"}}
	for _, c := range []struct {
		story, want string
		agent       *fleet.Agent
		catalog     fleet.Catalog
	}{
		{"the newest version of its platform is named", "and 1.2.0 is published, but no rollout", someAgent(), catalog},
		{"where it runs that, all is well", "the newest version published", someAgent(func(a *fleet.Agent) { a.Version = "1.2.0" }), catalog},
		{"one that failed on the host is passed over", "1.2.0 failed on its host before, and nothing else that is later is published", burnt, catalog},
		{"an older one is named in its place", "and 1.1.5 is published, but no rollout", burnt, append(fleet.Catalog{{Version: "1.1.5", OS: "linux", Arch: "amd64"}}, catalog...)},
		{"where nothing is published, it says so", "nothing newer is published", someAgent(), nil},
		{"where it cannot be upgraded, it says why", "cannot upgrade itself", someAgent(func(a *fleet.Agent) { a.LocalMetadata = nil }), fleet.Catalog{{Version: "1.2.0"}}},
	} {
		t.Run(c.story, func(t *testing.T) {
			e := Alone(c.agent, "", "", Last{}, c.catalog, rollouttest.Hour, rollouttest.Hour)
			wantSummary(t, e, c.want)
			if e.RolloutID != "" || len(e.Chain) == 0 {
				t.Errorf("explanation is %+v", e)
			}
		})
	}
}

func TestExplainTargetInLockstep(t *testing.T) {
	inPhase := func(p fleet.LockstepPhase) fleet.Rollout {
		return rollouttest.InState(fleet.RolloutRunning, func(r *fleet.Rollout) {
			r.Plan.Component, r.Plan.Strategy.Kind = "web", fleet.LockstepStrategy
			r.Lockstep = &fleet.Lockstep{Phase: p, Since: *before(time.Minute), Targets: 10}
			r.Waiting = []fleet.Wait{{Code: fleet.WhyLockstep, Text: "the targets are stopped: 3 of 10 targets have done it", Since: *before(time.Minute)}}
		})
	}
	r := inPhase(fleet.LockstepStop)
	e := Target(&r, someTarget(fleet.TargetUpgrading, func(t *fleet.Target) { t.Reached, t.Phase = agentapi.LockstepDrain, "UPG_REPLACING" }), someAgent(), nil, "", rollouttest.Hour, rollouttest.Hour)
	wantChain(t, e, "is running in lockstep, in the phase stop", "[lockstep] the targets are stopped: 3 of 10", "it is being upgraded to 1.2.0 (replacing), and has reached the phase drain in lockstep")

	r = inPhase(fleet.LockstepUndo)
	e = Target(&r, someTarget(fleet.TargetRolledBack, func(t *fleet.Target) { t.Code, t.Error = fleet.WhyUndone, "web-2 failed" }), someAgent(), nil, "", rollouttest.Hour, rollouttest.Hour)
	wantChain(t, e, "in the phase undo", "[undone] it was rolled back: everything was undone, and it runs its earlier version: web-2 failed")
}
