package fleet

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// host is an agent's document with the test's clock. An action is "act", its version
// 1.1.0, and the version before it 1.0.0, unless a test says otherwise.
type host struct {
	*testing.T
	Agent
	now time.Time
}

func newHost(t *testing.T) *host {
	return &host{T: t, Agent: Agent{ID: "a", Active: true, Version: "1.0.0"}, now: now}
}

func begun(t *testing.T) *host {
	h := newHost(t)
	h.BeginUpgrade("act", "1.1.0", h.now)
	h.want(UpgradeStarted, true)
	return h
}

func (h *host) after(d time.Duration) *host { h.now = h.now.Add(d); return h }

// checkin reports a version and the phase of an action, "" for no details.
func (h *host) checkin(version string, state agentapi.UpgradeState) bool {
	return h.checkinOf("act", version, state)
}

func (h *host) checkinOf(actionID, version string, state agentapi.UpgradeState) bool {
	var d *agentapi.UpgradeDetails
	if state != "" {
		d = &agentapi.UpgradeDetails{TargetVersion: "1.1.0", ActionID: actionID, State: state}
		if state.Ended() {
			d.Metadata = agentapi.UpgradeMetadata{ErrorMsg: "the reason", FailedState: agentapi.UpgradeWatching}
		}
	}
	h.Last.At = &h.now
	return h.ObserveUpgrade(version, d, h.now)
}

// want checks the fields that operators see, and their consistency.
func (h *host) want(status UpgradeStatus, upgrading bool) {
	h.Helper()
	if h.UpgradeStatus != status || h.Upgrading() != upgrading {
		h.Fatalf("status is %q, upgrading %v; want %q, %v\n%+v", h.UpgradeStatus, h.Upgrading(), status, upgrading, h.Agent)
	}
	if upgrading != (status == UpgradeStarted) {
		h.Fatalf("status is %q while upgrading is %v", h.UpgradeStatus, h.Upgrading())
	}
}

func (h *host) wantUpgraded(at time.Time) {
	h.Helper()
	h.want(UpgradeNone, false)
	if h.UpgradedAt == nil || !h.UpgradedAt.Equal(at) || h.UpgradeStartedAt != nil {
		h.Fatalf("upgraded at %v, want %s; started at %v, want never", h.UpgradedAt, at, h.UpgradeStartedAt)
	}
	if r, ok := h.UpgradeResult("", h.now); h.UpgradeActionID != "" && (!ok || r.Error != "" || r.ActionID != h.UpgradeActionID) {
		h.Fatalf("the result is %+v, %v", r, ok)
	}
}

func (h *host) wantFailed(status UpgradeStatus, reason string) {
	h.Helper()
	h.want(status, false)
	if h.UpgradedAt != nil || h.UpgradeStartedAt != nil {
		h.Fatalf("upgraded at %v, started at %v after a failure", h.UpgradedAt, h.UpgradeStartedAt)
	}
	if d := h.UpgradeDetails; d == nil || !d.State.Ended() || !strings.Contains(d.Metadata.ErrorMsg, reason) {
		h.Fatalf("details are %+v, want the reason %q", d, reason)
	}
	if r, ok := h.UpgradeResult("", h.now); h.UpgradeActionID != "" && (!ok || !strings.Contains(r.Error, reason)) {
		h.Fatalf("the result is %+v, %v, want the reason %q", r, ok, reason)
	}
}

func TestUpgradeSucceeds(t *testing.T) {
	h := begun(t)
	for _, phase := range []agentapi.UpgradeState{
		agentapi.UpgradeRequested, agentapi.UpgradeScheduled, agentapi.UpgradeDownloading, agentapi.UpgradeExtracting,
		agentapi.UpgradeReplacing, agentapi.UpgradeRestarting,
	} {
		if !h.after(time.Second).checkin("1.0.0", phase) {
			t.Fatalf("phase %s changed nothing", phase)
		}
		h.want(UpgradeStarted, true)
		if h.UpgradeDetails.State != phase {
			t.Fatalf("details show %s in phase %s", h.UpgradeDetails.State, phase)
		}
		if h.checkin("1.0.0", phase) {
			t.Fatalf("repeating phase %s was a change", phase)
		}
	}
	h.after(time.Second).checkin("1.1.0", agentapi.UpgradeWatching)
	reached := h.now
	h.wantUpgraded(reached)
	if h.ObserveAck("act", "", false, h.after(time.Second).now) {
		t.Fatal("the acknowledgement after the check-in was a change")
	}
	h.after(time.Minute).checkin("1.1.0", "")
	h.wantUpgraded(reached)
	if h.UpgradeDetails != nil {
		t.Fatalf("details stay after the watch: %+v", h.UpgradeDetails)
	}
	if h.after(time.Minute).checkin("1.1.0", "") {
		t.Fatal("a later check-in was a change")
	}
}

func TestUpgradeSucceedsWithoutAck(t *testing.T) {
	h := begun(t)
	h.checkin("1.0.0", agentapi.UpgradeDownloading)
	h.after(time.Minute).checkin("1.1.0", "")
	h.wantUpgraded(h.now)
}

func TestAckAloneDoesNotCompleteUpgrade(t *testing.T) {
	h := begun(t)
	h.ObserveAck("act", "", false, h.now)
	h.want(UpgradeStarted, true)
	if _, ok := h.UpgradeResult("", h.now); ok {
		t.Fatal("there is a result while it runs")
	}
	h.after(time.Minute).checkin("1.1.0", "")
	h.wantUpgraded(h.now)
}

func TestAckAfterNewVersionCheckedInCompletesUpgrade(t *testing.T) {
	h := newHost(t)
	h.BeginUpgrade("act", "1.1.0", h.now)
	h.Version = "1.1.0" // reported in the request that carries the ack
	h.ObserveAck("act", "", false, h.after(time.Second).now)
	h.wantUpgraded(h.now)
}

func TestUpgradeFails(t *testing.T) {
	t.Run("reported in the acknowledgement", func(t *testing.T) {
		h := begun(t)
		h.ObserveAck("act", "no space left", false, h.now)
		h.wantFailed(UpgradeFailed, "no space left")
		if got := h.UpgradeDetails.Metadata.FailedState; got != agentapi.UpgradeRequested {
			t.Errorf("failed in %s", got)
		}
		h.after(time.Minute).checkin("1.0.0", "")
		h.wantFailed(UpgradeFailed, "no space left") // operators can still read the reason
	})
	t.Run("reported while an earlier report is still on its way", func(t *testing.T) {
		h := begun(t)
		h.ObserveAck("act", "no space left", false, h.now)
		if h.checkin("1.0.0", agentapi.UpgradeRequested) {
			t.Error("the report that was overtaken changed something")
		}
		h.wantFailed(UpgradeFailed, "no space left")
	})
	t.Run("reported in the check-in, then acknowledged", func(t *testing.T) {
		h := begun(t)
		h.checkin("1.0.0", agentapi.UpgradeExtracting)
		h.checkin("1.0.0", agentapi.UpgradeFailed)
		h.wantFailed(UpgradeFailed, "the reason")
		if h.ObserveAck("act", "another wording", false, h.now) {
			t.Error("the acknowledgement changed the reason")
		}
	})
	t.Run("acknowledged during the download, then reported in the check-in", func(t *testing.T) {
		h := begun(t)
		h.checkin("1.0.0", agentapi.UpgradeDownloading)
		h.ObserveAck("act", "no space left", false, h.now)
		h.wantFailed(UpgradeFailed, "no space left")
		if got := h.UpgradeDetails.Metadata.FailedState; got != agentapi.UpgradeDownloading {
			t.Errorf("failed in %s", got)
		}
		h.checkin("1.0.0", agentapi.UpgradeFailed)
		h.wantFailed(UpgradeFailed, "the reason")
	})
	t.Run("that the agent tries again", func(t *testing.T) {
		h := begun(t)
		if h.ObserveAck("act", "timeout", true, h.now) {
			t.Error("an attempt that is repeated was a change")
		}
		h.want(UpgradeStarted, true)
	})
	t.Run("and a second attempt by a new action", func(t *testing.T) {
		h := begun(t)
		h.checkin("1.0.0", agentapi.UpgradeFailed)
		h.BeginUpgrade("again", "1.1.0", h.after(time.Hour).now)
		h.want(UpgradeStarted, true)
		if h.UpgradeDetails != nil {
			t.Error("the old reason stands beside the new attempt")
		}
		if h.checkin("1.0.0", agentapi.UpgradeFailed) { // repeated until the agent begins the new one
			t.Error("stale details were a change")
		}
		if h.ObserveAck("act", "stale", false, h.now) {
			t.Error("a stale acknowledgement was a change")
		}
		h.want(UpgradeStarted, true)
		h.after(time.Minute).checkinOf("again", "1.1.0", agentapi.UpgradeWatching)
		h.wantUpgraded(h.now)
	})
}

func TestUpgradeIsRolledBack(t *testing.T) {
	t.Run("before the new version was seen", func(t *testing.T) {
		h := begun(t)
		h.checkin("1.0.0", agentapi.UpgradeRestarting)
		h.after(time.Minute).checkin("1.0.0", agentapi.UpgradeRollback)
		h.wantFailed(UpgradeRolledBack, "the reason")
	})
	t.Run("after the new version ran", func(t *testing.T) {
		h := begun(t)
		h.checkin("1.1.0", agentapi.UpgradeWatching)
		h.wantUpgraded(h.now)
		h.after(time.Minute).checkin("1.0.0", agentapi.UpgradeRollback)
		h.wantFailed(UpgradeRolledBack, "the reason")
		if h.ObserveAck("act", "rolled back", false, h.now) {
			t.Error("the acknowledgement changed the reason")
		}
		h.after(time.Minute).checkin("1.0.0", "") // some agents forget it
		h.wantFailed(UpgradeRolledBack, "the reason")
		if h.Version != "1.0.0" {
			t.Errorf("version is %s", h.Version)
		}
	})
	t.Run("whose acknowledgement comes first", func(t *testing.T) {
		h := begun(t)
		h.checkin("1.1.0", agentapi.UpgradeWatching)
		h.ObserveAck("act", "rolled back", false, h.now)
		h.checkin("1.0.0", agentapi.UpgradeRollback)
		h.wantFailed(UpgradeRolledBack, "the reason")
	})
	t.Run("repeated reports change nothing", func(t *testing.T) {
		h := begun(t)
		h.checkin("1.0.0", agentapi.UpgradeRollback)
		if h.checkin("1.0.0", agentapi.UpgradeRollback) {
			t.Error("the second report was a change")
		}
	})
}

// idle is a check-in without upgrade details that says that nothing is under way.
func (h *host) idle() bool {
	changed := h.checkin("1.0.0", "")
	upgrade, _ := h.ObserveMissing(true, h.now)
	return changed || upgrade
}

// presumedFailed is a host that had begun, and that said later that it is idle.
func presumedFailed(t *testing.T) *host {
	h := begun(t)
	h.checkin("1.0.0", agentapi.UpgradeDownloading)
	h.after(time.Minute).idle()
	h.wantFailed(UpgradeFailed, "no upgrade under way any more, was last in UPG_DOWNLOADING, and still runs 1.0.0")
	return h
}

func TestMissingReportDoesNotEndUpgrade(t *testing.T) {
	t.Run("of an agent that has not taken up the action", func(t *testing.T) {
		h := begun(t)
		if h.checkin("1.0.0", "") || h.idle() {
			t.Error("it was a change")
		}
		h.want(UpgradeStarted, true)
	})
	t.Run("of an agent that was restarted", func(t *testing.T) {
		h := begun(t)
		h.checkin("1.0.0", agentapi.UpgradeDownloading)
		for range 5 {
			h.after(time.Minute).checkin("1.0.0", "")
			h.want(UpgradeStarted, true)
		}
		h.after(time.Minute).checkin("1.0.0", agentapi.UpgradeDownloading)
		if h.UpgradeUnreported != nil {
			t.Errorf("it counts as unreported since %s", h.UpgradeUnreported)
		}
		h.after(UnreportedGrace).checkin("1.0.0", "") // the time counts again
		h.want(UpgradeStarted, true)
		h.after(time.Minute).checkin("1.1.0", "")
		h.wantUpgraded(h.now)
	})
	t.Run("until the agent has reported nothing for the grace period", func(t *testing.T) {
		for _, other := range []string{"", "an earlier one"} {
			h := begun(t)
			h.checkin("1.0.0", agentapi.UpgradeDownloading)
			missing := func() {
				if other == "" {
					h.checkin("1.0.0", "")
				} else {
					h.checkinOf(other, "1.0.0", agentapi.UpgradeFailed)
				}
			}
			h.after(time.Minute)
			missing()
			h.after(UnreportedGrace - time.Second)
			missing()
			h.want(UpgradeStarted, true)
			h.after(time.Second)
			missing()
			h.wantFailed(UpgradeFailed, "has reported nothing of the upgrade since 2026-03-03T10:01:00Z, when it was in UPG_DOWNLOADING, and still runs 1.0.0")
		}
	})
	t.Run("until the host says that it is idle", func(t *testing.T) {
		h := presumedFailed(t)
		if h.after(time.Minute).idle() {
			t.Error("saying it again was a change")
		}
	})
	t.Run("of a host that says that it is idle and reports the upgrade", func(t *testing.T) {
		h := begun(t)
		h.checkin("1.0.0", agentapi.UpgradeDownloading)
		if upgrade, _ := h.ObserveMissing(true, h.now); upgrade {
			t.Error("it was a change")
		}
		h.want(UpgradeStarted, true)
	})
}

func TestPresumedFailureIsCorrectedByTheHost(t *testing.T) {
	t.Run("that runs the version", func(t *testing.T) {
		h := presumedFailed(t)
		failed, _ := h.UpgradeResult("", h.now)
		h.after(time.Minute).checkin("1.1.0", "")
		h.wantUpgraded(h.now)
		if done, _ := h.UpgradeResult("", h.now); !done.Supersedes(failed) {
			t.Errorf("the result %+v does not correct %+v", done, failed)
		}
		if h.ProgressStateAt(h.now) != ProgressCommitted {
			t.Errorf("progress is %s", h.ProgressStateAt(h.now))
		}
	})
	t.Run("that goes on", func(t *testing.T) {
		h := presumedFailed(t)
		failed, _ := h.UpgradeResult("", h.now)
		h.after(time.Minute).checkin("1.0.0", agentapi.UpgradeRequested) // it may end like this
		h.wantFailed(UpgradeFailed, "no upgrade under way")
		h.checkin("1.0.0", agentapi.UpgradeDownloading)
		h.want(UpgradeStarted, true)
		if h.UpgradeEndedAt != nil || !h.UpgradeStartedAt.Equal(now) {
			t.Errorf("ended at %v, started at %v", h.UpgradeEndedAt, h.UpgradeStartedAt)
		}
		if h.ReconcileUpgrade(h.UpgradeActionID, &Action{ID: "act"}, &failed, h.now) {
			t.Error("the server's own result ended it again")
		}
		h.after(time.Minute).checkin("1.1.0", agentapi.UpgradeWatching)
		h.wantUpgraded(h.now)
	})
	t.Run("that says why it failed", func(t *testing.T) {
		h := presumedFailed(t)
		h.checkin("1.0.0", agentapi.UpgradeFailed)
		h.wantFailed(UpgradeFailed, "the reason")
		if h.after(time.Minute).checkin("1.0.0", agentapi.UpgradeDownloading) {
			t.Error("an end that the host has reported was taken back")
		}
	})
	t.Run("that acknowledges an error", func(t *testing.T) {
		h := presumedFailed(t)
		h.ObserveAck("act", "no space left", false, h.now)
		h.wantFailed(UpgradeFailed, "no space left")
	})
	t.Run("that was rolled back", func(t *testing.T) {
		h := presumedFailed(t)
		h.checkin("1.0.0", agentapi.UpgradeRollback)
		h.wantFailed(UpgradeRolledBack, "the reason")
	})
	t.Run("that has cancelled it", func(t *testing.T) {
		for name, cancelled := range map[string]func(*host){
			"CANCEL acknowledged":  func(h *host) { h.CancelUpgrade("act", h.now) },
			"upgrade acknowledged": func(h *host) { h.ObserveAck("act", "cancelled", false, h.now) },
			"FAILED":               func(h *host) { h.failed("act", "cancelled: an operator asked") },
		} {
			h := presumedFailed(t)
			cancelled(h)
			h.want(UpgradeNone, false)
			if h.UpgradePresumed || h.UpgradeDetails != nil {
				t.Errorf("%s: presumed %v, details %+v", name, h.UpgradePresumed, h.UpgradeDetails)
			}
		}
	})
}

func TestUpgradeOfAHostThatStaysAwayEndsWithItsAction(t *testing.T) {
	h := begun(t)
	h.checkin("1.0.0", agentapi.UpgradeExtracting)
	h.Last.At = new(h.now)
	expires := h.now.Add(time.Hour)
	act := &Action{ID: "act", Expiration: &expires}
	if h.after(SilentGrace); h.ReconcileUpgrade(h.UpgradeActionID, act, nil, h.now) {
		t.Error("it ended within the grace period")
	}
	if h.after(time.Second); !h.ReconcileUpgrade(h.UpgradeActionID, act, nil, h.now) {
		t.Error("it never ends")
	}
	h.wantFailed(UpgradeFailed, "the host has been silent since 2026-03-03T10:00:00Z, when it was in UPG_EXTRACTING")
	h.after(time.Hour).checkin("1.1.0", agentapi.UpgradeWatching)
	h.wantUpgraded(h.now)
}

func TestCancelUpgrade(t *testing.T) {
	h := begun(t)
	if h.CancelUpgrade("another", now) {
		t.Error("cancelling another action was a change")
	}
	h.checkin("1.0.0", agentapi.UpgradeScheduled)
	if !h.CancelUpgrade("act", now) || h.CancelUpgrade("act", now) {
		t.Error("cancelling is one change")
	}
	h.want(UpgradeNone, false)
	if _, ok := h.UpgradeResult("", h.now); ok || h.UpgradedAt != nil {
		t.Error("a cancelled upgrade has a result")
	}
	h.checkin("1.0.0", agentapi.UpgradeScheduled) // the CANCEL is still on its way
	h.want(UpgradeNone, false)
	h.checkin("1.0.0", "")
	h.want(UpgradeNone, false)
	if h.UpgradeDetails != nil {
		t.Errorf("details stay: %+v", h.UpgradeDetails)
	}
}

// Agent and server learn of a CANCEL in several ways, in any order.
func TestCancelInFlightEndsTheSameInAnyOrder(t *testing.T) {
	reports := map[string]func(*host){
		"cancel acknowledged":  func(h *host) { h.CancelUpgrade("act", now) },
		"upgrade acknowledged": func(h *host) { h.ObserveAck("act", "cancelled", false, h.now) },
		"FAILED":               func(h *host) { h.failed("act", "cancelled: an operator asked") },
		"no details":           func(h *host) { h.checkin("1.0.0", "") },
		"a late report":        func(h *host) { h.checkin("1.0.0", agentapi.UpgradeExtracting) },
	}
	for _, order := range [][]string{
		{"cancel acknowledged", "upgrade acknowledged", "no details"},
		{"cancel acknowledged", "upgrade acknowledged", "FAILED"},
		{"upgrade acknowledged", "cancel acknowledged", "FAILED", "no details"},
		{"FAILED", "cancel acknowledged", "upgrade acknowledged"},
		{"cancel acknowledged", "a late report", "FAILED"},
		{"cancel acknowledged", "a late report", "upgrade acknowledged", "no details"},
		{"upgrade acknowledged", "a late report", "FAILED", "FAILED"},
	} {
		t.Run(strings.Join(order, ", "), func(t *testing.T) {
			h := begun(t)
			h.checkin("1.0.0", agentapi.UpgradeDownloading)
			for _, name := range order {
				reports[name](h.after(time.Second))
			}
			h.want(UpgradeNone, false)
			if _, ok := h.UpgradeResult("", h.now); ok || h.UpgradedAt != nil || h.UpgradeDetails != nil {
				t.Errorf("upgraded at %v, result %v, details %+v", h.UpgradedAt, ok, h.UpgradeDetails)
			}
		})
	}
}

func (h *host) failed(actionID, text string) bool {
	return h.ObserveUpgrade("1.0.0", &agentapi.UpgradeDetails{
		ActionID: actionID, TargetVersion: "1.1.0", State: agentapi.UpgradeFailed,
		Metadata: agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeDownloading, ErrorMsg: text},
	}, h.now)
}

// An agent that failed reports when it will retry.
func TestRetryKeepsUpgradeUnderWay(t *testing.T) {
	for _, phase := range []agentapi.UpgradeState{agentapi.UpgradeDownloading, agentapi.UpgradeExtracting, agentapi.UpgradeReplacing} {
		t.Run("after "+string(phase), func(t *testing.T) {
			h := begun(t)
			for attempt := 1; attempt <= 3; attempt++ {
				h.after(time.Minute).checkin("1.0.0", phase)
				h.want(UpgradeStarted, true)
				next := h.now.Add(5 * time.Minute)
				if !h.after(time.Second).waits(next, attempt) {
					t.Fatal("waiting to try again was no change")
				}
				h.ObserveAck("act", "no route to host", true, h.now)
				h.want(UpgradeStarted, true)
				if d := h.UpgradeDetails; d.State != agentapi.UpgradeScheduled || d.Metadata.RetryAttempt != attempt || !d.Metadata.ScheduledAt.Equal(next) {
					t.Fatalf("details are %+v", d)
				}
				if h.ReconcileUpgrade(h.UpgradeActionID, &Action{ID: "act", Expiration: &next}, nil, h.now) {
					t.Fatal("the upgrade was failed while a retry is pending")
				}
			}
			h.after(time.Hour).checkin("1.0.0", agentapi.UpgradeDownloading)
			h.after(time.Minute).checkin("1.1.0", agentapi.UpgradeWatching)
			h.wantUpgraded(h.now)
		})
	}
	t.Run("and gives up", func(t *testing.T) {
		h := begun(t)
		h.waits(h.now.Add(time.Minute), 6)
		h.failed("act", "no route to host, after 7 attempts")
		h.wantFailed(UpgradeFailed, "after 7 attempts")
	})
	t.Run("until the action expires", func(t *testing.T) {
		h := begun(t)
		h.waits(h.now.Add(time.Hour), 6)
		h.ReconcileUpgrade(h.UpgradeActionID, &Action{ID: "act", Expiration: &h.now}, nil, h.now)
		h.wantFailed(UpgradeFailed, "while the agent waited to try again: no route to host")
	})
}

func (h *host) waits(next time.Time, attempt int) bool {
	return h.ObserveUpgrade("1.0.0", &agentapi.UpgradeDetails{
		ActionID: "act", TargetVersion: "1.1.0", State: agentapi.UpgradeScheduled,
		Metadata: agentapi.UpgradeMetadata{ScheduledAt: &next, RetryErrorMsg: "no route to host", RetryAttempt: attempt, RetryLimit: 6},
	}, h.now)
}

func TestLateReportOfSupersededUpgradeIsIgnored(t *testing.T) {
	h := begun(t)
	h.checkin("1.0.0", agentapi.UpgradeDownloading)
	h.BeginUpgrade("newer", "1.2.0", h.after(time.Minute).now)
	before := h.Agent
	const text = "superseded by the newer upgrade newer"
	if h.ObserveAck("act", text, false, h.now) || h.failed("act", text) || h.checkin("1.0.0", agentapi.UpgradeExtracting) {
		t.Errorf("it was a change: %+v", h.Agent)
	}
	h.want(UpgradeStarted, true)
	if h.UpgradeActionID != "newer" || h.UpgradeTo != before.UpgradeTo || h.UpgradeDetails != nil {
		t.Errorf("under way is %+v", h.Agent)
	}
}

func TestUpgradeStartedOnHost(t *testing.T) {
	h := newHost(t)
	for range 2 { // the second as well as the first
		h.Version = "1.0.0"
		h.after(time.Hour).checkinOf("", "1.0.0", agentapi.UpgradeDownloading)
		h.want(UpgradeStarted, true)
		if h.UpgradeTo != "1.1.0" || h.UpgradeDetails == nil {
			t.Fatalf("target is %q, details %+v", h.UpgradeTo, h.UpgradeDetails)
		}
		started := *h.UpgradeStartedAt
		h.after(time.Second).checkinOf("", "1.0.0", agentapi.UpgradeExtracting)
		if !h.UpgradeStartedAt.Equal(started) {
			t.Fatal("it started twice")
		}
		h.after(time.Minute).checkinOf("", "1.1.0", agentapi.UpgradeWatching)
		reached := h.now
		h.wantUpgraded(reached)
		if h.after(time.Minute).checkinOf("", "1.1.0", agentapi.UpgradeWatching) {
			t.Fatal("being watched was a change")
		}
		h.after(time.Minute).checkinOf("", "1.1.0", "")
		h.wantUpgraded(reached)
	}
	h.Version = "1.0.0"
	h.checkinOf("", "1.0.0", agentapi.UpgradeDownloading)
	h.checkinOf("", "1.0.0", agentapi.UpgradeFailed)
	h.wantFailed(UpgradeFailed, "the reason")
	h.checkinOf("", "1.0.0", agentapi.UpgradeDownloading) // and tried again
	h.want(UpgradeStarted, true)
}

func TestUpgradeStartedOnHostDoesNotReplaceAction(t *testing.T) {
	h := begun(t)
	h.checkin("1.0.0", agentapi.UpgradeScheduled)
	if h.checkinOf("", "1.0.0", agentapi.UpgradeDownloading) {
		t.Error("it was a change")
	}
	if h.UpgradeActionID != "act" || h.UpgradeDetails.State != agentapi.UpgradeScheduled {
		t.Errorf("the action's upgrade is now %q in %s", h.UpgradeActionID, h.UpgradeDetails.State)
	}
}

func TestPresumedFailureIsRevokedWhenTargetRuns(t *testing.T) {
	expired := Action{ID: "act", Expiration: &now}
	for name, state := range map[string]agentapi.UpgradeState{"being watched": agentapi.UpgradeWatching, "without details": ""} {
		t.Run(name, func(t *testing.T) {
			h := begun(t)
			h.ReconcileUpgrade(h.UpgradeActionID, &expired, nil, h.now)
			h.wantFailed(UpgradeFailed, "expired")
			h.after(time.Hour).checkin("1.1.0", state)
			h.wantUpgraded(h.now)
			if (h.UpgradeDetails != nil) != (state != "") {
				t.Errorf("details are %+v", h.UpgradeDetails)
			}
		})
	}
	t.Run("but not while the agent itself reports a failure", func(t *testing.T) {
		h := begun(t)
		h.checkin("1.0.0", agentapi.UpgradeFailed)
		h.checkin("1.1.0", agentapi.UpgradeFailed)
		h.wantFailed(UpgradeFailed, "the reason")
	})
}

func TestReconcileUpgrade(t *testing.T) {
	action := &Action{ID: "act", Expiration: ago(-time.Hour)}
	expired, cancelled := &Action{ID: "act", Expiration: ago(0)}, &Action{ID: "act", CancelledAt: ago(0)}
	ack := func(errText string, age time.Duration) *Result {
		return &Result{Timestamp: now.Add(-age), Error: errText}
	}
	for _, row := range []struct {
		name    string
		age     time.Duration // since it began
		phase   agentapi.UpgradeState
		action  *Action
		result  *Result
		lastAge time.Duration // since the last check-in
		want    UpgradeStatus
		reason  string
	}{
		{"under way", time.Hour, "", action, nil, 0, UpgradeStarted, ""},
		{"its action is still being made", CreateGrace - 1, "", nil, nil, 0, UpgradeStarted, ""},
		{"its action was never made", CreateGrace, "", nil, nil, 0, UpgradeFailed, "never created"},
		{"expired before the agent came", time.Hour, "", expired, nil, 0, UpgradeFailed, "expired at 2026-03-03T10:00:00Z"},
		{"expired while scheduled", time.Hour, agentapi.UpgradeScheduled, expired, nil, 0, UpgradeFailed, "expired"},
		{"expired while downloading", time.Hour, agentapi.UpgradeDownloading, expired, nil, 0, UpgradeStarted, ""},
		{"expired after it was acknowledged", time.Hour, "", expired, ack("", time.Minute), 0, UpgradeStarted, ""},
		{"cancelled before the agent began", time.Hour, agentapi.UpgradeScheduled, cancelled, nil, 0, UpgradeNone, ""},
		{"cancelled too late", time.Hour, agentapi.UpgradeDownloading, cancelled, nil, 0, UpgradeStarted, ""},
		{"acknowledged with an error that was not applied", time.Hour, agentapi.UpgradeDownloading, action, ack("no space left", 0), 0, UpgradeFailed, "no space left"},
		{"just acknowledged", time.Hour, "", action, ack("", AckGrace), 0, UpgradeStarted, ""},
		{"long acknowledged, and the old version checks in", time.Hour, "", action, ack("", AckGrace+2), 1, UpgradeFailed, "acknowledged the upgrade"},
		{"long acknowledged, and silent since", time.Hour, "", action, ack("", AckGrace+2), 10 * time.Minute, UpgradeStarted, ""},
		{"long acknowledged, and at work", time.Hour, agentapi.UpgradeReplacing, action, ack("", AckGrace+2), 1, UpgradeStarted, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHost(t)
			h.BeginUpgrade("act", "1.1.0", now.Add(-row.age))
			if row.phase != "" {
				h.checkin("1.0.0", row.phase)
			}
			h.Last.At = ago(row.lastAge)
			changed := h.ReconcileUpgrade(h.UpgradeActionID, row.action, row.result, now)
			h.want(row.want, row.want == UpgradeStarted)
			if changed != (row.want != UpgradeStarted) {
				t.Errorf("changed is %v", changed)
			}
			if row.want == UpgradeFailed {
				h.wantFailed(UpgradeFailed, row.reason)
			}
			if h.ReconcileUpgrade(h.UpgradeActionID, row.action, row.result, now) {
				t.Error("reconciling twice was a change")
			}
		})
	}
	h := newHost(t)
	h.checkinOf("", "1.0.0", agentapi.UpgradeDownloading)
	if h.ReconcileUpgrade(h.UpgradeActionID, nil, nil, now.Add(time.Hour)) {
		t.Error("an upgrade asked for on the host has no action that could be missing")
	}
}

// Whatever happened before, an agent does not stay "updating" once it has reported the
// end of its upgrade, or once the bounds of ReconcileUpgrade have passed.
func TestUpgradeNeverStaysUpdating(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &upgradeModel{agent: Agent{ID: "a", Active: true, Version: "1.0.0"}, now: now}
		t.Repeat(map[string]func(*rapid.T){
			"":          s.invariants,
			"begin":     s.begin,
			"check in":  s.checkin,
			"ack":       s.ack,
			"cancel":    s.cancel,
			"reconcile": s.reconcile,
			"end":       s.end,
			"give up":   s.giveUp,
			"beacon":    s.beacon,
			"go back":   s.rollBack,
		})
	})
}

// The watcher of an earlier order still reports while the host upgrades by its own command, so the end
// of that upgrade shows as the phase of the watch.
func TestEndedUpgradeIsNotUnreported(t *testing.T) {
	s := &upgradeModel{agent: Agent{ID: "a", Active: true, Version: "1.0.0"}, now: now}
	s.agent.BeginUpgrade("c", "1.2.0", s.now)
	s.agent.CancelUpgrade("c", s.now)
	s.agent.ObserveBeacon(agentapi.Beacon{ActionID: "c", From: "1.0.0", To: "1.2.0", Phase: agentapi.BeaconRollingBack, Reason: &agentapi.BeaconCause{Code: "crash_loop"}, At: s.now, Agent: agentapi.BeaconAgent{Alive: true, Version: "1.0.0"}}, s.now)
	s.now = s.now.Add(time.Second)
	s.observe("1.0.0", &agentapi.UpgradeDetails{TargetVersion: "1.1.0", State: agentapi.UpgradeReplacing}, false)
	s.observe("1.1.0", &agentapi.UpgradeDetails{ActionID: "c", TargetVersion: "1.0.0", State: agentapi.UpgradeScheduled}, false)
	if a := s.agent; !a.Upgrading() || a.UpgradeUnreported == nil {
		t.Fatalf("upgrading %v, unreported since %v", a.Upgrading(), a.UpgradeUnreported)
	}
	s.agent.ObserveAck("", "", false, s.now)
	if a := s.agent; a.Upgrading() || a.UpgradeUnreported != nil {
		t.Errorf("after its end: upgrading %v, unreported since %v", a.Upgrading(), a.UpgradeUnreported)
	}
}

type upgradeModel struct {
	agent   Agent
	now     time.Time
	actions int
}

func (s *upgradeModel) tick(t *rapid.T) {
	s.now = s.now.Add(time.Duration(rapid.IntRange(1, 900).Draw(t, "seconds")) * time.Second)
}

func (s *upgradeModel) invariants(t *rapid.T) {
	a := s.agent
	if a.Upgrading() != (a.UpgradeStatus == UpgradeStarted) || (a.UpgradeStartedAt != nil && a.UpgradedAt != nil) {
		t.Fatalf("fields contradict each other: %+v", a)
	}
	if a.UpgradedAt != nil && a.UpgradeStatus != UpgradeNone {
		t.Fatalf("upgraded, and yet %s", a.UpgradeStatus)
	}
	if a.UpgradePresumed && a.UpgradeStatus != UpgradeFailed || a.UpgradeUnreported != nil && !a.Upgrading() {
		t.Fatalf("presumed %v, unreported since %v: %+v", a.UpgradePresumed, a.UpgradeUnreported, a)
	}
	if r, ok := a.UpgradeResult("", s.now); ok && a.Upgrading() {
		t.Fatalf("a result while it runs: %+v", r)
	}
}

func (s *upgradeModel) begin(t *rapid.T) {
	s.tick(t)
	s.actions++
	s.agent.BeginUpgrade(string(rune('a'+s.actions%26)), rapid.SampledFrom(versions).Draw(t, "target"), s.now)
}

var (
	versions = []string{"1.0.0", "1.1.0", "1.2.0"}
	states   = []agentapi.UpgradeState{
		agentapi.UpgradeRequested, agentapi.UpgradeScheduled, agentapi.UpgradeDownloading, agentapi.UpgradeExtracting, agentapi.UpgradeReplacing,
		agentapi.UpgradeRestarting, agentapi.UpgradeWatching, agentapi.UpgradeRollback, agentapi.UpgradeFailed,
	}
)

func (s *upgradeModel) observe(version string, d *agentapi.UpgradeDetails, idle bool) {
	at := s.now
	s.agent.Last.At = &at
	s.agent.ObserveUpgrade(version, d, s.now)
	s.agent.ObserveMissing(idle, s.now)
}

// details returns details of the server's own upgrade, of one started on the host, or
// stale ones.
func (s *upgradeModel) details(t *rapid.T) *agentapi.UpgradeDetails {
	if rapid.Bool().Draw(t, "none") {
		return nil
	}
	return &agentapi.UpgradeDetails{
		ActionID:      rapid.SampledFrom([]string{s.agent.UpgradeActionID, "", "stale"}).Draw(t, "action"),
		TargetVersion: rapid.SampledFrom(versions).Draw(t, "target"), State: rapid.SampledFrom(states).Draw(t, "state"),
	}
}

func (s *upgradeModel) checkin(t *rapid.T) {
	s.tick(t)
	s.observe(rapid.SampledFrom(append(versions, "")).Draw(t, "version"), s.details(t), rapid.Bool().Draw(t, "idle"))
}

func (s *upgradeModel) ack(t *rapid.T) {
	s.tick(t)
	id := rapid.SampledFrom([]string{s.agent.UpgradeActionID, "stale"}).Draw(t, "action")
	s.agent.ObserveAck(id, rapid.SampledFrom([]string{"", "failed"}).Draw(t, "error"), rapid.Bool().Draw(t, "retry"), s.now)
}

func (s *upgradeModel) cancel(t *rapid.T) {
	s.tick(t)
	s.agent.CancelUpgrade(rapid.SampledFrom([]string{s.agent.UpgradeActionID, "stale"}).Draw(t, "action"), s.now)
}

func (s *upgradeModel) reconcile(t *rapid.T) {
	s.tick(t)
	var action *Action
	if rapid.Bool().Draw(t, "found") {
		action = &Action{ID: s.agent.UpgradeActionID}
		if rapid.Bool().Draw(t, "expires") {
			action.Expiration = &s.now
		}
		if rapid.Bool().Draw(t, "cancelled") {
			action.CancelledAt = &s.now
		}
	}
	var result *Result
	if rapid.Bool().Draw(t, "answered") {
		result = &Result{Timestamp: s.now.Add(-time.Hour), Error: rapid.SampledFrom([]string{"", "failed"}).Draw(t, "error")}
	}
	s.agent.ReconcileUpgrade(s.agent.UpgradeActionID, action, result, s.now)
}

func (s *upgradeModel) beacon(t *rapid.T) {
	s.tick(t)
	b := agentapi.Beacon{
		ActionID: rapid.SampledFrom([]string{s.agent.UpgradeActionID, "", "stale"}).Draw(t, "action"),
		From:     rapid.SampledFrom(versions).Draw(t, "from"), To: rapid.SampledFrom(versions).Draw(t, "to"),
		Phase: rapid.SampledFrom(phases).Draw(t, "phase"), Reason: &agentapi.BeaconCause{Code: "crash_loop", Text: "it crashed"},
		At: s.now, Agent: agentapi.BeaconAgent{Alive: rapid.Bool().Draw(t, "alive"), Version: rapid.SampledFrom(versions).Draw(t, "answers")},
	}
	if u := s.agent.Undoes; u != nil && rapid.Bool().Draw(t, "of what is undone") {
		b.ActionID, b.From, b.To = u.ActionID, u.From, u.To
	}
	mine := b.ActionID == s.agent.UpgradeActionID && b.ActionID != ""
	change := s.agent.ObserveBeacon(b, s.now)
	if (change.Phase || change.Upgrade) && !change.Write {
		t.Fatalf("changed and not written: %+v", change)
	}
	if mine && change.Write && endsBadly(b.Phase) && s.agent.Upgrading() {
		t.Fatalf("still updating after %s: %+v", b.Phase, s.agent)
	}
	s.agent.Diagnose(s.now)
}

var phases = []agentapi.BeaconPhase{
	agentapi.BeaconWatching, agentapi.BeaconRollingBack, agentapi.BeaconCommitted, agentapi.BeaconRolledBack, agentapi.BeaconRollbackFailed,
}

func (s *upgradeModel) rollBack(t *rapid.T) {
	s.tick(t)
	s.agent.Kept.Rollbacks = []agentapi.Rollback{{Version: rapid.SampledFrom(versions).Draw(t, "kept"), ValidUntil: s.now.Add(time.Hour)}}
	to, err := s.agent.CheckRollback(s.now)
	if err != nil {
		return
	}
	if to.Version == "" || to.Version == s.agent.Version && s.agent.UpgradeDetails == nil && s.agent.Watch == nil {
		t.Fatalf("it would go back to %+v", to)
	}
	s.actions++
	s.agent.BeginRollback(string(rune('a'+s.actions%26)), to.Version, s.now)
}

// end reports the end of the upgrade in one of the possible ways.
func (s *upgradeModel) end(t *rapid.T) {
	s.tick(t)
	a := &s.agent
	if !a.Upgrading() {
		return
	}
	target := a.UpgradeTo
	over := func(state agentapi.UpgradeState) *agentapi.UpgradeDetails {
		return &agentapi.UpgradeDetails{ActionID: a.UpgradeActionID, TargetVersion: target, State: state}
	}
	ways := []string{"failed", "rolled back", "error acknowledged", "runs", "runs, watched", "idle", "forgot"}
	if a.UpgradeActionID != "" { // else it has no action to expire
		ways = append(ways, "away")
	}
	switch rapid.SampledFrom(ways).Draw(t, "way") {
	case "failed":
		s.observe("1.0.0", over(agentapi.UpgradeFailed), false)
	case "rolled back":
		s.observe("1.0.0", over(agentapi.UpgradeRollback), false)
	case "error acknowledged":
		a.ObserveAck(a.UpgradeActionID, "failed", false, s.now)
	case "runs":
		s.observe(target, nil, false)
	case "runs, watched":
		s.observe(target, over(agentapi.UpgradeWatching), false)
	case "idle":
		s.observe("1.0.0", over(agentapi.UpgradeDownloading), false)
		s.observe("1.0.0", nil, true)
	case "forgot":
		s.observe("1.0.0", over(agentapi.UpgradeDownloading), false)
		s.observe("1.0.0", nil, false)
		s.now = s.now.Add(UnreportedGrace)
		s.observe("1.0.0", nil, false)
	case "away":
		s.observe("1.0.0", over(agentapi.UpgradeDownloading), false)
		expired := s.now
		s.now = s.now.Add(SilentGrace + time.Second)
		s.agent.Watch = nil
		a.ReconcileUpgrade(a.UpgradeActionID, &Action{ID: a.UpgradeActionID, Expiration: &expired}, nil, s.now)
	}
	if a.Upgrading() {
		t.Fatalf("still updating: %+v", a)
	}
}

// giveUp reconciles an upgrade that its agent has not begun, past every bound.
func (s *upgradeModel) giveUp(t *rapid.T) {
	a := &s.agent
	working := a.UpgradeDetails != nil && a.UpgradeDetails.State != agentapi.UpgradeRequested && a.UpgradeDetails.State != agentapi.UpgradeScheduled
	if !a.Upgrading() || a.UpgradeActionID == "" || working {
		s.tick(t)
		return
	}
	id := a.UpgradeActionID
	switch way := rapid.SampledFrom([]string{"no action", "expired", "cancelled", "acknowledged without effect", "failed"}).Draw(t, "way"); way {
	case "no action":
		s.now = s.now.Add(CreateGrace)
		a.ReconcileUpgrade(a.UpgradeActionID, nil, nil, s.now)
	case "expired":
		a.ReconcileUpgrade(a.UpgradeActionID, &Action{ID: a.UpgradeActionID, Expiration: &s.now}, nil, s.now)
	case "cancelled":
		a.ReconcileUpgrade(a.UpgradeActionID, &Action{ID: a.UpgradeActionID, CancelledAt: &s.now}, nil, s.now)
	case "acknowledged without effect":
		acked := s.now
		s.now = s.now.Add(AckGrace + time.Second)
		at := s.now
		a.Last.At = &at
		a.ReconcileUpgrade(a.UpgradeActionID, &Action{ID: a.UpgradeActionID}, &Result{Timestamp: acked}, s.now)
	case "failed":
		a.ReconcileUpgrade(a.UpgradeActionID, &Action{ID: a.UpgradeActionID}, &Result{Timestamp: s.now, Error: "failed"}, s.now)
	}
	if a.Upgrading() && a.UpgradeActionID == id { // a cancelled rollback resumes the upgrade that it was to undo
		t.Fatalf("still updating: %+v", a)
	}
}

// What was cancelled may go on until its host has confirmed that it does not.
func TestCancellationIsConfirmedByTheHostOnly(t *testing.T) {
	at := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name   string
		says   func(a *Agent)
		goesOn bool
		isOff  bool
	}{
		{"the server alone", func(*Agent) {}, true, true},
		{"a version of before", func(a *Agent) { a.ObserveUpgrade("1.0.0", nil, at) }, true, true},
		{"a phase that it reported before it got the CANCEL", func(a *Agent) {
			a.ObserveUpgrade("1.0.0", &agentapi.UpgradeDetails{ActionID: "a1", TargetVersion: "1.1.0", State: agentapi.UpgradeDownloading}, at)
		}, true, true},
		{"the acknowledgement of the CANCEL", func(a *Agent) { a.ConfirmCancel("a1", at) }, false, true},
		{"that of another CANCEL", func(a *Agent) { a.ConfirmCancel("a0", at) }, true, true},
		{"the acknowledgement of the order", func(a *Agent) { a.ObserveAck("a1", agentapi.Cancelled, false, at) }, false, true},
		{"the report that it was cancelled", func(a *Agent) {
			a.ObserveUpgrade("1.0.0", &agentapi.UpgradeDetails{ActionID: "a1", TargetVersion: "1.1.0", State: agentapi.UpgradeFailed, Metadata: agentapi.UpgradeMetadata{ErrorMsg: agentapi.Cancelled}}, at)
		}, false, true},
		{"the version, with a report of the upgrade", func(a *Agent) {
			a.ObserveUpgrade("1.1.0", &agentapi.UpgradeDetails{ActionID: "a1", TargetVersion: "1.1.0", State: agentapi.UpgradeWatching}, at)
		}, false, false},
		{"the version first, and then a report of the upgrade", func(a *Agent) {
			a.ObserveUpgrade("1.1.0", nil, at)
			a.ObserveUpgrade("1.1.0", &agentapi.UpgradeDetails{ActionID: "a1", TargetVersion: "1.1.0", State: agentapi.UpgradeWatching}, at)
		}, false, false},
	} {
		a := &Agent{ID: "a", Active: true, Version: "1.0.0"}
		a.BeginUpgrade("a1", "1.1.0", at)
		a.CancelUpgrade("a1", at)
		c.says(a)
		s := a.Of("")
		if s.MayGoOn(at.Add(time.Minute)) != c.goesOn || s.MayGoOn(at.Add(LateReportWindow)) {
			t.Errorf("after %s it may go on: %v", c.name, s.MayGoOn(at.Add(time.Minute)))
		}
		if off := a.UpgradedAt == nil; off != c.isOff {
			t.Errorf("after %s it is called off: %v", c.name, off)
		}
		a.BeginUpgrade("a2", "1.1.0", at)
		if a.CancelConfirmedAt != nil {
			t.Errorf("after %s the next order begins as confirmed", c.name)
		}
	}
}
