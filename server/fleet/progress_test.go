package fleet

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Each row also satisfies all later rules, so it passes only if its rule comes first.
func TestHealthAtFirstMatchWins(t *testing.T) {
	const day = 24 * time.Hour
	all := StatusFacts{
		EnrolledAt: *ago(30 * day), LastCheckin: ago(20 * day), LastCheckinStatus: "error",
		AuditUnenrolledReason: "uninstall", UpgradingSince: &now, Unenrolling: true, NoPolicy: true,
	}
	from := func(change func(*StatusFacts)) StatusFacts { change(&all); return all } // keeps what earlier rows changed
	for _, row := range []struct {
		want  Health
		facts StatusFacts
	}{
		{HealthUnenrolled, from(func(*StatusFacts) {})},
		{HealthUninstalled, from(func(f *StatusFacts) { f.Active = true })},
		{HealthUninstalled, from(func(f *StatusFacts) { f.AuditUnenrolledReason = "orphaned" })},
		{HealthInactive, from(func(f *StatusFacts) { f.AuditUnenrolledReason = "key_revoked" })},
		{HealthOffline, from(func(f *StatusFacts) { f.LastCheckin = ago(13 * day) })},
		{HealthFailed, from(func(f *StatusFacts) { f.LastCheckin = ago(time.Minute) })},
		{HealthEnrolling, from(func(f *StatusFacts) { f.LastCheckinStatus = "degraded" })},
		{HealthEnrolling, from(func(f *StatusFacts) { f.NoPolicy, f.LastCheckin, f.EnrolledAt = false, nil, *ago(time.Minute) })},
		{HealthDegraded, from(func(f *StatusFacts) { f.LastCheckin = ago(OfflineAfter) })},
		{HealthHealthy, from(func(f *StatusFacts) { f.LastCheckinStatus = "online" })}, // also while it is upgraded
	} {
		if got := row.facts.HealthAt(now, 14*day); got != row.want {
			t.Errorf("health is %s, want %s, of %+v", got, row.want, row.facts)
		}
	}
}

// progressIs checks the state of the host's upgrade at its time.
func (h *host) progressIs(want ProgressState) Progress {
	h.Helper()
	p, ok := h.ProgressAt(h.now)
	if p.State != want || ok != (want != ProgressNone) {
		h.Fatalf("progress is %q, want %q\n%+v", p.State, want, h.Agent)
	}
	return p
}

func (h *host) phasesAre(want ...ProgressState) {
	h.Helper()
	var got []ProgressState
	for _, p := range h.UpgradePhases {
		got = append(got, p.State)
	}
	if !slices.Equal(got, want) {
		h.Fatalf("phases are %v, want %v", got, want)
	}
}

func TestUpgradeIsCommittedOnlyWhenItsWatchIsOver(t *testing.T) {
	h := newHost(t)
	h.Last.At = &h.now
	h.progressIs(ProgressNone)
	h.BeginUpgrade("act", "1.1.0", h.now)
	h.RequestedBy("", Requester{By: "ann", Rollout: &RolloutRef{ID: "r", Name: "web"}}, h.now)
	h.progressIs(ProgressSent)

	if h.after(time.Second).ObserveAck("act", "", false, h.now) {
		t.Error("an acknowledgement changes the document")
	}
	h.progressIs(ProgressSent)
	for _, step := range []struct {
		version string
		state   agentapi.UpgradeState
		want    ProgressState
	}{
		{"1.0.0", agentapi.UpgradeRequested, ProgressAccepted},
		{"1.0.0", agentapi.UpgradeDownloading, ProgressDownloading},
		{"1.0.0", agentapi.UpgradeDownloading, ProgressDownloading},
		{"1.0.0", agentapi.UpgradeExtracting, ProgressInstalling},
		{"1.0.0", agentapi.UpgradeReplacing, ProgressInstalling},
		{"1.0.0", agentapi.UpgradeRestarting, ProgressRestarting},
		{"1.1.0", agentapi.UpgradeWatching, ProgressWatching},
		{"1.1.0", "", ProgressCommitted},
	} {
		h.after(time.Minute).checkin(step.version, step.state)
		p := h.progressIs(step.want)
		if p.Version != "1.1.0" || p.From != "1.0.0" || p.By != "ann" || p.Rollout.Name != "web" || p.Since == nil {
			t.Errorf("progress is %+v", p)
		}
		if ended := h.UpgradeEndedAt != nil; ended != (step.want == ProgressCommitted) {
			t.Errorf("%s has ended: %v", step.want, ended)
		}
	}
	h.phasesAre(ProgressSent, ProgressAccepted, ProgressDownloading, ProgressInstalling, ProgressRestarting, ProgressWatching, ProgressCommitted)
	h.after(time.Minute).checkin("1.1.0", "")
	if at := h.UpgradeEndedAt; !at.Equal(now.Add(time.Second + 8*time.Minute)) {
		t.Errorf("it ended at %s", at)
	}
}

func TestOfflineHostWaits(t *testing.T) {
	h := begun(t)
	seen := h.now
	h.Last.At = &seen
	h.after(OfflineAfter).progressIs(ProgressSent)
	if p := h.after(1).progressIs(ProgressWaitingForHost); !p.Since.Equal(seen.Add(OfflineAfter)) {
		t.Errorf("it waits since %s, and was seen at %s", p.Since, seen)
	}
	h.checkin("1.1.0", agentapi.UpgradeWatching)
	h.progressIs(ProgressWatching)
	seen = h.now
	h.Last.At = &seen
	h.after(OfflineAfter + 1).progressIs(ProgressWaitingForHost) // nobody knows the verdict
	h.checkin("1.1.0", "")
	h.after(time.Hour).progressIs(ProgressCommitted)

	h.BeginUpgrade("later", "1.2.0", h.now.Add(time.Hour))
	h.RequestedBy("", Requester{By: "ann"}, h.now)
	if p := h.progressIs(ProgressScheduled); !p.Until.Equal(h.now.Add(time.Hour)) {
		t.Errorf("it begins at %s", p.Until)
	}
	h.phasesAre(ProgressScheduled)
	h.Last.At = ago(-3 * time.Hour)
	h.after(time.Hour)
	if p := h.progressIs(ProgressSent); !p.Since.Equal(h.now) {
		t.Errorf("it is sent since %s", p.Since)
	}
	h.BeginUpgrade("away", "1.3.0", h.now)
	h.Last.At = ago(time.Hour)
	if p := h.progressIs(ProgressWaitingForHost); !p.Since.Equal(h.now) {
		t.Errorf("one that was ordered while the host was away waits since %s", p.Since)
	}
	h.Active = false
	h.progressIs(ProgressNone)
}

func TestFailureHasItsReasonAndALaterVerdictReplacesIt(t *testing.T) {
	h := begun(t)
	h.after(time.Minute).checkin("1.1.0", agentapi.UpgradeWatching)
	h.after(time.Minute).checkin("1.0.0", agentapi.UpgradeRollback)
	if p := h.progressIs(ProgressRolledBack); p.Reason != "the reason" || p.Code != string(agentapi.UpgradeWatching) {
		t.Errorf("progress is %+v", p)
	}
	h.phasesAre(ProgressSent, ProgressWatching, ProgressRolledBack)

	h = begun(t)
	h.after(time.Minute).ObserveAck("act", "disk full", false, h.now)
	failed := *h.UpgradeEndedAt
	h.progressIs(ProgressFailed)
	h.after(time.Minute).checkin("1.1.0", "") // it went on after all
	h.progressIs(ProgressCommitted)
	h.phasesAre(ProgressSent, ProgressFailed, ProgressCommitted)
	if !h.UpgradeEndedAt.After(failed) {
		t.Errorf("it ended at %s", h.UpgradeEndedAt)
	}
}

func TestCancelledUpgradeHasEndedWithoutAState(t *testing.T) {
	h := begun(t)
	h.after(time.Minute).CancelUpgrade("act", h.now)
	h.progressIs(ProgressNone)
	if h.UpgradeEndedAt == nil || !h.UpgradeEndedAt.Equal(h.now) {
		t.Errorf("it ended at %v", h.UpgradeEndedAt)
	}
	h.phasesAre(ProgressSent)
}

func TestRepeatedAttemptsAreBoundedAndTheFirstPhaseStays(t *testing.T) {
	h := begun(t)
	began := h.now
	for i := range 3 * maxPhases {
		h.after(time.Minute).checkin("1.0.0", agentapi.UpgradeDownloading)
		until := h.now.Add(time.Hour)
		d := agentapi.UpgradeDetails{TargetVersion: "1.1.0", ActionID: "act", State: agentapi.UpgradeScheduled}
		d.Metadata.RetryErrorMsg, d.Metadata.RetryUntil, d.Metadata.RetryAttempt = "no route", &until, i+1
		h.ObserveUpgrade("1.0.0", &d, h.now)
		if p := h.progressIs(ProgressScheduled); p.Retrying != "no route" || !p.Until.Equal(until) {
			t.Fatalf("progress is %+v", p)
		}
	}
	if n := len(h.UpgradePhases); n != maxPhases || h.UpgradePhases[0].State != ProgressSent || !h.UpgradePhases[0].At.Equal(began) || h.UpgradePhases[n-1].Text != "no route" {
		t.Errorf("phases are %+v", h.UpgradePhases)
	}
}

func TestRollbackRestoresTheOrderOfTheUpgradeThatItUndoes(t *testing.T) {
	h := newHost(t)
	h.BeginUpgrade("act", "1.1.0", h.now)
	h.RequestedBy("", Requester{By: "ann"}, h.now)
	h.after(time.Minute).checkin("1.1.0", agentapi.UpgradeWatching)
	h.BeginRollback("back", "1.0.0", h.now)
	h.RequestedBy("", Requester{By: "bob", Why: "it is slow"}, h.now)
	if p := h.progressIs(ProgressSent); p.By != "bob" || !p.Rollback {
		t.Errorf("progress is %+v", p)
	}
	h.after(time.Minute).CancelUpgrade("back", h.now)
	if p := h.progressIs(ProgressWatching); p.By != "ann" || p.Rollback {
		t.Errorf("progress is %+v", p)
	}
	h.phasesAre(ProgressSent, ProgressWatching)
}

func TestProgressOfComponent(t *testing.T) {
	h := newComponentHost(t)
	h.a.Last.At = &h.now
	h.a.BeginOf("web", "act", "2.0.0", h.now)
	h.a.RequestedBy("web", Requester{By: "ann"}, h.now)
	is := func(want ProgressState) Progress {
		t.Helper()
		c, _ := h.a.Component("web")
		p, _ := h.a.ComponentProgressAt(&c, h.now)
		if p.State != want {
			t.Fatalf("progress is %q, want %q", p.State, want)
		}
		return p
	}
	is(ProgressSent)
	h.a.ObserveAck("act", "", false, h.now)
	is(ProgressSent)
	h.reports("2.4.0", componentDetails("act", "2.0.0", agentapi.UpgradeRequested))
	is(ProgressAccepted)
	h.reports("2.4.0", componentDetails("act", "2.0.0", agentapi.UpgradeWatching))
	is(ProgressWatching)
	h.reports("2.0.0", nil)
	if p := is(ProgressCommitted); p.By != "ann" || p.Version != "2.0.0" || p.From != "2.4.0" || !p.Since.Equal(h.now) {
		t.Errorf("progress is %+v", p)
	}

	// One that was asked for on the host.
	h.reports("2.0.0", componentDetails("", "3.0.0", agentapi.UpgradeDownloading))
	if p := is(ProgressDownloading); p.Version != "3.0.0" || p.From != "2.0.0" || p.Since != nil {
		t.Errorf("progress is %+v", p)
	}
	h.reports("2.0.0", nil)
	is(ProgressCommitted)

	// Its undoing shows as the phase that failed, and then as what it is.
	h.begins("bad", "2.1.0")
	h.reports("2.0.0", componentDetails("bad", "2.1.0", agentapi.UpgradeWatching))
	undoing := componentDetails("bad", "2.1.0", agentapi.UpgradeRollback)
	undoing.Metadata.FailedState = agentapi.UpgradeWatching
	h.reports("2.0.0", undoing)
	is(ProgressWatching)
	ended := componentFailed("bad", "2.1.0", agentapi.UpgradeWatching, "crash loop")
	ended.Metadata.ReasonCode = agentapi.ReasonCrashLoop
	h.reports("2.0.0", ended)
	if p := is(ProgressRolledBack); p.Code != agentapi.ReasonCrashLoop || p.Reason != "crash loop" {
		t.Errorf("progress is %+v", p)
	}
	upgrades := h.a.LastUpgrades(h.now)
	if r := upgrades[len(upgrades)-1]; r.State != ProgressRolledBack || r.Code != agentapi.ReasonCrashLoop || len(r.Phases) != 3 {
		t.Errorf("the record is %+v", r)
	}
}

func TestCommittedRollbackRecordsWhatItHasUndone(t *testing.T) {
	h := newHost(t)
	h.BeginUpgrade("act", "1.1.0", h.now)
	h.RequestedBy("", Requester{By: "ann"}, h.now)
	h.after(time.Minute).checkin("1.1.0", agentapi.UpgradeWatching)
	read := func() Agent {
		doc, err := h.Encode()
		if err != nil {
			t.Fatal(err)
		}
		a, err := DecodeAgent(string(doc), 1)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	h.Agent = read()
	h.BeginRollback("back", "1.0.0", h.now)
	h.RequestedBy("", Requester{By: "bob"}, h.now)
	if got := h.EndedUpgrades(); len(got) != 0 {
		t.Errorf("when the rollback begins, ended is %+v", got)
	}
	h.Agent = read()
	h.after(time.Minute).checkinOf("act", "1.0.0", agentapi.UpgradeRollback)
	got := h.EndedUpgrades()
	if len(got) != 2 || got[0].Kind != HistoryRollback || got[0].State != ProgressCommitted || got[0].By != "bob" ||
		got[1].ActionID != "act" || got[1].State != ProgressRolledBack || got[1].By != "ann" || got[1].Reason != "the reason" || got[1].Code != agentapi.ReasonManual {
		t.Errorf("ended is %+v", got)
	}
	h.Agent = read()
	if h.checkin("1.0.0", ""); len(h.EndedUpgrades()) != 0 {
		t.Errorf("a later check-in ends %+v", h.EndedUpgrades())
	}
}

// What a host reports is a label of metrics, so no more than the five phases comes of it.
func TestHostPhase(t *testing.T) {
	for _, c := range []struct {
		state       agentapi.UpgradeState
		phase, want string
	}{
		{agentapi.UpgradeRequested, "", "preparing"},
		{agentapi.UpgradeScheduled, "", ""},
		{agentapi.UpgradeReplacing, "", "mutating"},
		{agentapi.UpgradeReplacing, "STOPPED", "stopped"},
		{agentapi.UpgradeReplacing, "odd", "mutating"},
		{agentapi.UpgradeRestarting, "MUTATING", "mutating"},
		{agentapi.UpgradeRestarting, "", "starting"},
		{agentapi.UpgradeWatching, "", "verifying"},
		{agentapi.UpgradeRollback, "STOPPED", ""},
		{agentapi.UpgradeFailed, "", ""},
		{"", "", ""},
	} {
		if got := HostPhase(&agentapi.UpgradeDetails{State: c.state, Metadata: agentapi.UpgradeMetadata{Phase: c.phase}}); got != c.want {
			t.Errorf("a host that reports %s and phase %q is in phase %q, want %q", c.state, c.phase, got, c.want)
		}
	}
	if got := HostPhase(nil); got != "" {
		t.Errorf("a host that reports nothing is in phase %q", got)
	}
	var all []string
	for _, p := range componentPhases {
		all = append(all, strings.ToLower(p))
	}
	if !slices.Equal(all, TargetPhases) {
		t.Errorf("the phases of targets are %v, those of components %v", TargetPhases, all)
	}
}

// A phase is one of the five of components, and only while something is done on the host.
func TestPhaseOfAnUpgrade(t *testing.T) {
	reported := func(phase string) *agentapi.UpgradeDetails {
		return &agentapi.UpgradeDetails{Metadata: agentapi.UpgradeMetadata{Phase: phase}}
	}
	want := map[ProgressState]string{
		ProgressAccepted: "preparing", ProgressDownloading: "preparing", ProgressInstalling: "mutating", ProgressRestarting: "starting", ProgressWatching: "verifying",
	}
	for _, s := range ProgressStates {
		if got := hostPhase(s, nil); got != want[s] {
			t.Errorf("%s is in phase %q, want %q", s, got, want[s])
		}
		for _, phase := range componentPhases {
			got := hostPhase(s, reported(phase))
			if under := want[s] != ""; under && got != strings.ToLower(phase) || s.Ended() && got != "" {
				t.Errorf("%s of a component that reports %s is in phase %q", s, phase, got)
			}
		}
	}
}

// Life is no progress: a check-in, a rate or an error that is repeated moves nothing.
func TestUpgradeMovesByItsPhaseAndItsPercentageOnly(t *testing.T) {
	h := begun(t)
	ordered := h.now
	says := func(s agentapi.UpgradeState, m agentapi.UpgradeMetadata) time.Time {
		h.after(time.Minute)
		h.Last.At = new(h.now)
		h.ObserveUpgrade("1.0.0", &agentapi.UpgradeDetails{TargetVersion: "1.1.0", ActionID: "act", State: s, Metadata: m}, h.now)
		s2 := h.Of("")
		return s2.Moved()
	}
	if s := h.Of(""); !s.Moved().Equal(ordered) {
		t.Errorf("it moved at %s, want %s", s.Moved(), ordered)
	}
	at := says(agentapi.UpgradeDownloading, agentapi.UpgradeMetadata{DownloadPercent: 50, DownloadRate: 10})
	if !at.Equal(h.now) {
		t.Errorf("a phase is no progress: %s", at)
	}
	for _, m := range []agentapi.UpgradeMetadata{{DownloadPercent: 50, DownloadRate: 20}, {DownloadPercent: 50, RetryErrorMsg: "no route"}, {DownloadPercent: 50}, {DownloadPercent: 50.04}, {DownloadPercent: 50.09}} {
		if got := says(agentapi.UpgradeDownloading, m); !got.Equal(at) {
			t.Errorf("%+v moved it", m)
		}
	}
	stalledAfter := func(d time.Duration) bool {
		s := h.Of("")
		_, ok := s.Stalled(at.Add(d))
		return ok
	}
	h.Last.At = new(at.Add(DefaultStall))
	if stalledAfter(DefaultStall-time.Second) || !stalledAfter(DefaultStall) {
		t.Error("it is not stalled after the bound")
	}
	h.Last.At = new(at.Add(DefaultStall - OfflineAfter - time.Second))
	if stalledAfter(DefaultStall) {
		t.Error("that of a host which is away is stalled")
	}
	if got := says(agentapi.UpgradeDownloading, agentapi.UpgradeMetadata{DownloadPercent: 50.1}); !got.Equal(h.now) {
		t.Error("a tenth of a percent is no progress")
	}
	if got := says(agentapi.UpgradeExtracting, agentapi.UpgradeMetadata{}); !got.Equal(h.now) {
		t.Error("the next phase is no progress")
	}
}
