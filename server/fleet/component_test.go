package fleet

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// componentHost is an agent of Muster that runs web 2.4.0 and db 15.0.0, and what happens to
// it. Every step is ten seconds later.
type componentHost struct {
	t   *testing.T
	a   Agent
	now time.Time
}

func newComponentHost(t *testing.T) *componentHost {
	h := &componentHost{t: t, now: now, a: Agent{ID: "a1", Active: true, PolicyID: "p1", LocalMetadata: json.RawMessage(`{"os":{"type":"linux"},"host":{"hostname":"web-01","architecture":"x86_64"}}`)}}
	h.reports("2.4.0", nil)
	return h
}

func componentReport(name, version string, d *agentapi.UpgradeDetails) agentapi.Component {
	return agentapi.Component{
		ID: "component-" + name, Type: "systemd", Status: "HEALTHY",
		ComponentReport: agentapi.ComponentReport{Name: name, Runtime: "systemd", Version: version, UpgradeDetails: d},
	}
}

// reports is a check-in with this version of web. It returns the components in the news.
func (h *componentHost) reports(web string, d *agentapi.UpgradeDetails) (changed []string) {
	h.t.Helper()
	was := h.a.Components
	b, err := json.Marshal([]agentapi.Component{componentReport("web", web, d), componentReport("db", "15.0.0", nil)})
	if err != nil {
		h.t.Fatal(err)
	}
	h.now = h.now.Add(10 * time.Second)
	h.a.Components, h.a.Last.At = b, new(h.now)
	changed, _ = h.a.ObserveComponents(was, h.now)
	return changed
}

func (h *componentHost) begins(actionID, target string) {
	h.a.BeginOf("web", actionID, target, h.now)
}

func componentDetails(actionID, target string, s agentapi.UpgradeState) *agentapi.UpgradeDetails {
	return &agentapi.UpgradeDetails{TargetVersion: target, ActionID: actionID, State: s}
}

func componentFailed(actionID, target string, in agentapi.UpgradeState, why string) *agentapi.UpgradeDetails {
	d := componentDetails(actionID, target, agentapi.UpgradeFailed)
	d.Metadata.FailedState, d.Metadata.ErrorMsg = in, why
	return d
}

// is checks the state of web's upgrade: its status, "done" or "cancelled", and its result.
func (h *componentHost) is(what, state, result string) {
	h.t.Helper()
	u := h.a.ComponentUpgrades["web"]
	got := string(u.UpgradeStatus)
	switch {
	case u.Upgrading() != (u.UpgradeStatus == UpgradeStarted) || u.Upgrading() != (h.a.ComponentsSince != nil) || u.Upgrading() != slices.Contains(h.a.ComponentActions, u.UpgradeActionID):
		h.t.Errorf("%s: the document contradicts itself: %+v, %v, %v", what, u, h.a.ComponentActions, h.a.ComponentsSince)
	case u.UpgradedAt != nil:
		got = "done"
	case u.calledOff():
		got = "cancelled"
	}
	if got != state {
		h.t.Errorf("%s: the upgrade is %s, want %s: %+v", what, got, state, u)
	}
	r, ok := h.a.UpgradeResult("web", h.now)
	if text := r.Error + r.Message; ok != (result != "") || !strings.Contains(text, result) {
		h.t.Errorf("%s: the result is %q, want %q", what, text, result)
	}
	if h.a.UpgradeStartedAt != nil || h.a.UpgradeStatus != "" || h.a.UpgradeDetails != nil || h.a.UpgradeActionID != "" || h.a.Upgrading() {
		h.t.Errorf("%s: the agent's own upgrade has changed", what)
	}
}

func TestComponentUpgradeIsFollowedToItsEnd(t *testing.T) {
	h := newComponentHost(t)
	h.begins("x", "2.5.0")
	h.is("ordered", "started", "")
	h.reports("2.4.0", nil)
	h.is("not begun", "started", "")
	for _, s := range []agentapi.UpgradeState{agentapi.UpgradeDownloading, agentapi.UpgradeReplacing} {
		if got := h.reports("2.4.0", componentDetails("x", "2.5.0", s)); !slices.Equal(got, []string{"web"}) {
			t.Errorf("%s is news of %v", s, got)
		}
		h.is(string(s), "started", "")
	}
	// The version may be there before it has been observed.
	h.reports("2.5.0", componentDetails("x", "2.5.0", agentapi.UpgradeWatching))
	h.is("observed", "started", "")
	h.reports("2.5.0", nil)
	h.is("done", "done", "web upgraded to 2.5.0")
	h.reports("2.5.0", componentDetails("x", "2.5.0", agentapi.UpgradeWatching))
	h.is("an old report", "done", "web upgraded to 2.5.0")
}

func TestComponentUpgradeThatFailsHasItsReason(t *testing.T) {
	const why = "port 80 is taken"
	for _, c := range []struct {
		in     agentapi.UpgradeState
		code   string
		state  string
		failed bool // the version counts as bad
	}{
		{agentapi.UpgradeDownloading, "", "failed", false},
		{agentapi.UpgradeReplacing, "", "failed", false},
		{agentapi.UpgradeRestarting, "", "rolled_back", true},
		{agentapi.UpgradeWatching, "", "rolled_back", true},
		{agentapi.UpgradeWatching, agentapi.FailedRollback, "failed", true},
	} {
		h := newComponentHost(t)
		h.begins("x", "2.5.0")
		h.reports("2.4.0", componentDetails("x", "2.5.0", c.in))
		h.reports("2.4.0", componentDetails("x", "2.5.0", agentapi.UpgradeRollback))
		h.is("being undone", "started", "")
		d := componentFailed("x", "2.5.0", c.in, why)
		d.Metadata.ReasonCode = c.code
		h.reports("2.4.0", d)
		h.is("undone", c.state, why)
		h.reports("2.4.0", componentDetails("x", "2.5.0", c.in))
		h.is("an old report", c.state, why)
		h.reports("2.4.0", nil) // some time later
		h.is("forgotten by the host", c.state, why)
		if got := len(h.a.ComponentUpgrades["web"].FailedVersions) == 1; got != c.failed {
			t.Errorf("after %s %s failed versions are %v", c.in, c.code, h.a.ComponentUpgrades["web"].FailedVersions)
		}
		h.begins("y", "2.5.1")
		h.reports("2.4.0", d) // that of the last upgrade
		h.is("the next one", "started", "")
		if web, _ := h.a.Component("web"); web.LastDetails() != nil {
			t.Errorf("the next one is said to be %+v before it begins", web.LastDetails())
		}
		begun := componentDetails("y", "2.5.1", agentapi.UpgradeDownloading)
		h.reports("2.4.0", begun)
		if web, _ := h.a.Component("web"); web.LastDetails() == nil || web.LastDetails().ActionID != "y" {
			t.Errorf("the next one is said to be %+v when it has begun", web.LastDetails())
		}
	}
}

// The installed version says nothing then.
func TestConfigurationOnlyUpgradeIsDoneWhenItsReportEnds(t *testing.T) {
	h := newComponentHost(t)
	h.begins("x", "2.4.0")
	h.reports("2.4.0", nil)
	h.is("not begun", "started", "")
	h.reports("2.4.0", componentDetails("x", "2.4.0", agentapi.UpgradeReplacing))
	h.is("under way", "started", "")
	h.reports("2.4.0", nil)
	h.is("done", "done", "web upgraded to 2.4.0")

	h.begins("y", "2.4.0")
	h.reports("2.4.0", componentFailed("y", "2.4.0", agentapi.UpgradeWatching, "no answer"))
	h.is("failed", "rolled_back", "no answer")
	if f := h.a.ComponentUpgrades["web"].FailedVersions; len(f) > 0 {
		t.Errorf("the version that runs counts as bad: %v", f)
	}
}

func inLockstep(actionID, target string, s agentapi.UpgradeState, until, reached agentapi.LockstepPhase) *agentapi.UpgradeDetails {
	d := componentDetails(actionID, target, s)
	d.Metadata.Lockstep = &agentapi.LockstepReport{Until: until, Reached: reached}
	return d
}

func TestComponentUpgradeInLockstepIsFollowed(t *testing.T) {
	h := newComponentHost(t)
	h.begins("x", "2.5.0")
	h.reports("2.4.0", inLockstep("x", "2.5.0", agentapi.UpgradeReplacing, agentapi.LockstepDrain, ""))
	if news := h.reports("2.4.0", inLockstep("x", "2.5.0", agentapi.UpgradeReplacing, agentapi.LockstepDrain, agentapi.LockstepDrain)); !slices.Equal(news, []string{"web"}) {
		t.Errorf("a phase that is reached is news of %q", news)
	}
	h.reports("2.4.0", nil)
	h.is("just restarted", "started", "")

	// From the phase switch on its host puts nothing back, so it was not rolled back.
	d := inLockstep("x", "2.5.0", agentapi.UpgradeFailed, agentapi.LockstepStart, agentapi.LockstepSwitch)
	d.Metadata.FailedState, d.Metadata.ErrorMsg = agentapi.UpgradeWatching, "no answer"
	h.reports("2.5.0", d)
	h.is("unwell after its start", "failed", "no answer")

	h.begins("y", "2.5.0") // only its files change
	h.reports("2.5.0", inLockstep("y", "2.5.0", agentapi.UpgradeReplacing, agentapi.LockstepBackup, agentapi.LockstepStop))
	h.reports("2.5.0", nil)
	h.is("just restarted, while the others are waited for", "started", "")
	h.reports("2.5.0", inLockstep("y", "2.5.0", agentapi.UpgradeWatching, agentapi.LockstepStart, agentapi.LockstepSwitch))
	h.reports("2.5.0", nil)
	h.is("done", "done", "web upgraded to 2.5.0")
}

// A host waits for others as long as its rollout lets it.
func TestAcknowledgementDoesNotEndAnUpgradeInLockstep(t *testing.T) {
	h := newComponentHost(t)
	h.begins("x", "2.5.0")
	h.reports("2.4.0", inLockstep("x", "2.5.0", agentapi.UpgradeReplacing, agentapi.LockstepBackup, agentapi.LockstepBackup))
	result := &Result{ActionID: "x", AgentID: "a1", Timestamp: h.now}
	h.now = h.now.Add(10 * AckGrace)
	h.reports("2.4.0", inLockstep("x", "2.5.0", agentapi.UpgradeReplacing, agentapi.LockstepBackup, agentapi.LockstepBackup))
	if h.a.ReconcileUpgrade("x", &Action{ID: "x", Expiration: new(h.now.Add(time.Hour))}, result, h.now) {
		t.Error("it has ended")
	}
	h.is("waiting", "started", "")
}

func TestAgentThatRestartsDuringAComponentUpgradeContinuesIt(t *testing.T) {
	h := newComponentHost(t)
	h.begins("x", "2.5.0")
	h.reports("2.4.0", componentDetails("x", "2.5.0", agentapi.UpgradeReplacing))
	h.reports("2.4.0", nil)
	h.is("just restarted", "started", "")
	h.reports("2.4.0", componentDetails("x", "2.5.0", agentapi.UpgradeReplacing))
	h.reports("2.5.0", nil)
	h.is("done", "done", "web upgraded")
}

// missing is a check-in that reports nothing of the upgrade.
func (h *componentHost) missing(idle bool) (upgraded []string) {
	h.reports("2.4.0", nil)
	_, upgraded = h.a.ObserveMissing(idle, h.now)
	return upgraded
}

func TestMissingReportOfAComponentEndsItsUpgradeAtLast(t *testing.T) {
	begun := func(t *testing.T) *componentHost {
		h := newComponentHost(t)
		h.begins("x", "2.5.0")
		if upgraded := h.missing(true); upgraded != nil {
			t.Errorf("before it began, %v changed", upgraded)
		}
		h.reports("2.4.0", componentDetails("x", "2.5.0", agentapi.UpgradeReplacing))
		return h
	}
	t.Run("of an agent that has just started", func(t *testing.T) {
		h := begun(t)
		h.missing(false)
		h.is("just started", "started", "")
		h.reports("2.4.0", componentDetails("x", "2.5.0", agentapi.UpgradeReplacing))
		if since := h.a.ComponentUpgrades["web"].UpgradeUnreported; since != nil {
			t.Errorf("it counts as unreported since %s", since)
		}
	})
	t.Run("of an idle host", func(t *testing.T) {
		h := begun(t)
		if got := h.missing(true); !slices.Equal(got, []string{"web"}) {
			t.Errorf("changed is %v", got)
		}
		h.is("idle", "failed", "no upgrade of the component under way any more, was last in UPG_REPLACING, and still has 2.4.0")
	})
	t.Run("for the grace period", func(t *testing.T) {
		h := begun(t)
		h.missing(false)
		h.now = h.now.Add(UnreportedGrace - 20*time.Second)
		h.missing(false)
		h.is("waiting", "started", "")
		h.missing(false)
		h.is("given up", "failed", "reported nothing of the upgrade since")
		h.reports("2.4.0", componentDetails("x", "2.5.0", agentapi.UpgradeReplacing))
		h.is("goes on", "started", "")
		if h.a.ReconcileUpgrade("x", &Action{ID: "x"}, &Result{Error: "silent", Presumed: true}, h.now) {
			t.Error("the server's own result ended it again")
		}
		h.reports("2.5.0", nil)
		h.is("done", "done", "web upgraded")
	})
	t.Run("that says later why it failed, or that it was cancelled", func(t *testing.T) {
		h := begun(t)
		h.missing(true)
		h.reports("2.4.0", componentFailed("x", "2.5.0", agentapi.UpgradeReplacing, "no space left"))
		h.is("failed", "failed", "no space left")
		h = begun(t)
		h.missing(true)
		h.a.ObserveAck("x", agentapi.Cancelled, false, h.now)
		h.is("cancelled", "cancelled", "")
	})
	t.Run("of a host that stays away", func(t *testing.T) {
		h := begun(t)
		act := &Action{ID: "x", Expiration: new(h.now.Add(time.Hour))}
		if h.a.ReconcileUpgrade("x", act, nil, h.now.Add(SilentGrace)) || !h.a.ReconcileUpgrade("x", act, nil, h.now.Add(SilentGrace+time.Second)) {
			t.Error("it does not end after the grace period")
		}
		h.is("away", "failed", "the host has been silent since")
	})
}

func TestComponentUpgradeIsCancelledOrReportedAsLate(t *testing.T) {
	h := newComponentHost(t)
	h.begins("x", "2.5.0")
	if h.a.CancelUpgrade("y", now) || !h.a.Waits("x") || !h.a.Withdrawable("x") || !h.a.UpgradingBy("x") {
		t.Error("another action cancels it, or it cannot be withdrawn")
	}
	if !h.a.CancelUpgrade("x", now) || h.a.UpgradingBy("x") {
		t.Error("it is not cancelled")
	}
	h.is("cancelled", "cancelled", "")
	h.reports("2.4.0", componentDetails("x", "2.5.0", agentapi.UpgradeReplacing))
	h.reports("2.4.0", componentFailed("x", "2.5.0", agentapi.UpgradeReplacing, agentapi.Cancelled))
	h.is("cancelled on the host", "cancelled", "")
	if d := h.a.ComponentUpgrades["web"].UpgradeDetails; d != nil {
		t.Errorf("details stay: %+v", d)
	}
	h.reports("2.5.0", nil)
	h.is("it went on after all", "done", "web upgraded")
}

func TestComponentUpgradeEndsWithoutAMessageOfItsAgent(t *testing.T) {
	act := &Action{ID: "x", Expiration: new(now.Add(time.Hour))}
	for what, c := range map[string]struct {
		after  time.Duration
		action *Action
		result *Result
		begun  bool
		state  string
		says   string
	}{
		"the action is about to be created":  {time.Second, nil, nil, false, "started", ""},
		"the action was never created":       {2 * time.Minute, nil, nil, false, "failed", "the action was never created"},
		"it expired":                         {time.Hour, act, nil, false, "failed", "expired"},
		"it expired, but the agent is at it": {time.Hour, act, nil, true, "started", ""},
		"it was cancelled":                   {time.Minute, &Action{ID: "x", CancelledAt: new(now)}, nil, false, "cancelled", ""},
		"it was withdrawn":                   {time.Minute, act, new(Withdrawal("x", &Agent{}, "", now)), false, "cancelled", ""},
		"its agent answered with an error":   {time.Minute, act, &Result{Error: "no rights", Timestamp: now}, false, "failed", "no rights"},
		"its agent has just answered":        {time.Minute, act, &Result{Timestamp: now}, false, "started", ""},
		"its agent answered long ago":        {time.Hour - time.Second, act, &Result{Timestamp: now}, false, "failed", "still has 2.4.0"},
	} {
		t.Run(what, func(t *testing.T) {
			h := newComponentHost(t)
			h.a.BeginOf("web", "x", "2.5.0", now)
			if c.begun {
				h.reports("2.4.0", componentDetails("x", "2.5.0", agentapi.UpgradeReplacing))
			}
			at := now.Add(c.after)
			h.a.Last.At = &at
			if got := h.a.ReconcileUpgrade("x", c.action, c.result, at); got != (c.state != "started") {
				t.Errorf("it says %v", got)
			}
			h.is(what, c.state, c.says)
		})
	}
	t.Run("it expired, and the agent has forgotten it", func(t *testing.T) {
		h := newComponentHost(t)
		h.a.BeginOf("web", "x", "2.5.0", now)
		h.reports("2.4.0", componentDetails("x", "2.5.0", agentapi.UpgradeReplacing))
		h.reports("2.4.0", nil)
		if h.a.ReconcileUpgrade("x", act, nil, now.Add(time.Hour-time.Second)) {
			t.Error("it ends before its action does: the agent may just have started")
		}
		if !h.a.ReconcileUpgrade("x", act, nil, now.Add(time.Hour)) {
			t.Error("it does not end")
		}
		h.is("forgotten", "failed", "the agent no longer reports the upgrade")
	})
}

func TestAcknowledgedErrorEndsAComponentUpgrade(t *testing.T) {
	h := newComponentHost(t)
	h.begins("x", "2.5.0")
	h.a.ObserveAck("x", "", false, now) // it is accepted, which is no more
	if h.a.ObserveAck("x", "no route", true, now) || h.a.ObserveAck("y", "no rights", false, now) {
		t.Error("a success, an error that is tried again or another action ends it")
	}
	h.is("acknowledged", "started", "")
	if !h.a.ObserveAck("x", "no rights", false, now) {
		t.Error("an error does not end it")
	}
	h.is("failed", "failed", "no rights")
}

func TestTwoComponentsAreUpgradedAtTheSameTime(t *testing.T) {
	h := newComponentHost(t)
	h.begins("x", "2.5.0")
	h.a.BeginOf("db", "y", "16.0.0", h.now.Add(-time.Hour))
	if want := []string{"y", "x"}; !reflect.DeepEqual(h.a.ComponentActions, want) || !h.a.ComponentsSince.Equal(h.now.Add(-time.Hour)) {
		t.Errorf("under way are %v since %v", h.a.ComponentActions, h.a.ComponentsSince)
	}
	h.a.CancelUpgrade("y", now)
	h.is("the other one", "started", "")
	// The document that was read stays as it is; see AsRead.
	copied := h.a
	h.a.CancelUpgrade("x", now)
	if u := copied.ComponentUpgrades["web"]; !u.Upgrading() {
		t.Error("a copy of the document has changed too")
	}
}

func TestCheckComponentUpgradeSaysWhyNot(t *testing.T) {
	catalog := Catalog{
		{Component: "web", Version: "2.5.0", OS: "linux", Arch: "amd64"},
		{Component: "web", Version: "2.4.0", OS: "linux", Arch: "amd64"},
		{Component: "web", Version: "2.3.0", OS: "linux", Arch: "amd64"},
		{Component: "web", Version: "2.6.0", OS: "windows", Arch: "amd64"},
		{Component: "web", Version: "2.7.0", OS: "linux", Arch: "amd64", Withheld: "nobody signed it"},
		{Component: "db", Version: "2.8.0", OS: "linux", Arch: "amd64"},
		{Component: "web", Version: "2.9.1", OS: "linux", Arch: "amd64", Runtime: "docker"},
		{Version: "1.1.0", OS: "linux", Arch: "amd64"},
	}
	to := func(version string, edit ...func(*UpgradeRequest)) UpgradeRequest {
		w := UpgradeRequest{Version: version}
		for _, f := range edit {
			f(&w)
		}
		return w
	}
	force := func(w *UpgradeRequest) { w.Force = true }
	elsewhere := func(w *UpgradeRequest) { w.SourceURI = "https://mirror.example.com" }
	unchanged := func(*componentHost) {}
	for what, c := range map[string]struct {
		host func(*componentHost)
		w    UpgradeRequest
		says string
	}{
		"a later version":           {unchanged, to("2.5.0"), ""},
		"the same one":              {unchanged, to("2.4.0"), "already is 2.4.0"},
		"the same one by force":     {unchanged, to("2.4.0", force), ""},
		"an earlier one":            {unchanged, to("2.3.0"), "going down to 2.3.0 needs force"},
		"an earlier one by force":   {unchanged, to("2.3.0", force), ""},
		"that of another component": {unchanged, to("2.8.0"), "no package of component web in version 2.8.0 for linux/x86_64"},
		"that of agents":            {unchanged, to("1.1.0", force), "no package of component web in version 1.1.0"},
		"that of another platform":  {unchanged, to("2.6.0"), "no package of component web in version 2.6.0"},
		"one from elsewhere":        {unchanged, to("2.9.0", elsewhere), ""},
		"one with another runtime":  {unchanged, to("2.9.1", force), "runs with systemd by its policy p1, and version 2.9.1 is for docker"},
		"one that nobody signed":    {unchanged, to("2.7.0"), "nobody signed it"},
		"the first installation":    {func(h *componentHost) { h.reports("", nil) }, to("2.3.0"), ""},
		"of an unenrolled agent":    {func(h *componentHost) { h.a.Active = false }, to("2.5.0"), "is unenrolled"},
		"of an Elastic Agent": {func(h *componentHost) {
			h.a.LocalMetadata = json.RawMessage(`{"elastic":{"agent":{"build":{"original":"9.1.0"}}}}`)
		}, to("2.5.0"), "is an Elastic Agent"},
		"of an agent without it":       {func(h *componentHost) { h.a.Components = nil }, to("2.5.0"), "reports no component web: add it to the components of its policy p1"},
		"during another one":           {func(h *componentHost) { h.begins("x", "2.5.0") }, to("2.5.0", force), "already being upgraded to 2.5.0 by action x"},
		"during one of db":             {func(h *componentHost) { h.a.BeginOf("db", "x", "16.0.0", h.now) }, to("2.5.0"), ""},
		"during one of the agent":      {func(h *componentHost) { h.a.BeginUpgrade("x", "1.1.0", h.now) }, to("2.5.0"), ""},
		"during one begun on the host": {func(h *componentHost) { h.reports("2.4.0", componentDetails("", "2.5.0", agentapi.UpgradeReplacing)) }, to("2.5.0"), "as was asked for on its host"},
		"after it failed": {func(h *componentHost) {
			h.begins("x", "2.5.0")
			h.reports("2.4.0", componentFailed("x", "2.5.0", agentapi.UpgradeWatching, "it fell"))
		}, to("2.5.0"), "failed on its host before"},
		"after it failed, by force": {func(h *componentHost) {
			h.begins("x", "2.5.0")
			h.reports("2.4.0", componentFailed("x", "2.5.0", agentapi.UpgradeWatching, "it fell"))
		}, to("2.5.0", force), ""},
		"after the download had failed": {func(h *componentHost) {
			h.begins("x", "2.5.0")
			h.reports("2.4.0", componentFailed("x", "2.5.0", agentapi.UpgradeDownloading, "404"))
		}, to("2.5.0"), ""},
		"of a broken one": {func(h *componentHost) {
			d := componentFailed("x", "2.6.0", agentapi.UpgradeWatching, "it fell")
			d.Metadata.ReasonCode = agentapi.FailedRollback
			h.reports("2.4.0", d)
		}, to("2.5.0"), "is broken"},
	} {
		h := newComponentHost(t)
		c.host(h)
		web := h.a.Of("web")
		err := web.CheckUpgrade(c.w, OfComponent(catalog, "web"))
		if got := ""; err != nil {
			got = err.Error()
			if c.says == "" || !strings.Contains(got, c.says) {
				t.Errorf("%s: %q, want %q", what, got, c.says)
			}
		} else if c.says != "" {
			t.Errorf("%s is accepted", what)
		}
	}
	for _, c := range []struct{ name, version, says string }{
		{"Web", "2.5.0", "path.name"}, {"web", "", "body.version"}, {"web", "2.5", "body.version"}, {"web", "1.1.0", "no package of component web in version 1.1.0 is published (published are 2.9.1, 2.6.0, 2.5.0, 2.4.0, 2.3.0)"},
	} {
		err := UpgradeRequest{Version: c.version}.Check(c.name, OfComponent(catalog, "web"))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %s: %v, want %q", c.name, c.version, err, c.says)
		}
	}
	if got := OfComponent(catalog, ""); len(got) != 1 || got[0].Version != "1.1.0" {
		t.Errorf("the packages of agents are %v", got)
	}
}

// In each state of a host, the list of commands says what becomes of an order with force.
func TestComponentCommandsThatArePossibleAreAccepted(t *testing.T) {
	catalog := OfComponent(Catalog{{Component: "web", Version: "2.5.0", OS: "linux", Arch: "amd64"}}, "web")
	forced := UpgradeRequest{Version: "2.5.0", Force: true}
	for what, c := range map[string]struct {
		host         func(*componentHost)
		locked, says string
	}{
		"idle":                   {func(*componentHost) {}, "", ""},
		"without it":             {func(h *componentHost) { h.a.Components = nil }, "", "Its agent reports no component web: add it"},
		"unenrolled":             {func(h *componentHost) { h.a.Active = false }, "", "Its agent is unenrolled."},
		"being unenrolled":       {func(h *componentHost) { h.a.UnenrollmentStartedAt = &h.now }, "", "Its agent is being unenrolled."},
		"being upgraded":         {func(h *componentHost) { h.begins("x", "2.5.0") }, "", "It is already being upgraded to 2.5.0 by action x"},
		"upgraded by its host":   {func(h *componentHost) { h.reports("2.4.0", componentDetails("", "2.5.0", agentapi.UpgradeReplacing)) }, "", ""},
		"another being upgraded": {func(h *componentHost) { h.a.BeginOf("db", "x", "16.0.0", h.now) }, "", ""},
		"in a rollout":           {func(*componentHost) {}, "component web of agent a1 belongs to the active rollout", "It belongs to the active rollout."},
	} {
		h := newComponentHost(t)
		c.host(h)
		got := h.a.ComponentCommands("web", Blocks{Rollout: c.locked})[0]
		web := h.a.Of("web")
		err := web.CheckUpgrade(forced, catalog)
		if got.Allowed != (err == nil && c.locked == "") || !strings.HasPrefix(got.Reason, c.says) || got.Allowed != (got.Reason == "") {
			t.Errorf("%s: the list has %+v, the order is refused by %v", what, got, err)
		}
	}
	h := newComponentHost(t)
	for version, want := range map[string]bool{"": false, "2.4.0": false, "2.3.0": true} {
		report := componentReport("web", "2.4.0", nil)
		if version != "" {
			report.Rollbacks = []string{version}
		}
		b, err := json.Marshal([]agentapi.Component{report})
		if err != nil {
			t.Fatal(err)
		}
		h.a.Components = b
		if got := h.a.ComponentCommands("web", Blocks{})[1]; got.Name != "rollback" || got.Allowed != want || !want && got.Reason != "It has no other version that its host has kept." {
			t.Errorf("a host that keeps %q: %+v", version, got)
		}
	}
}

// Hosts refuse what the state of a component cannot follow, also with force.
func TestStateOfAComponentFollowsItsVersion(t *testing.T) {
	first, second := PackageMigration{Version: "2.4.0", Down: true}, PackageMigration{Version: "2.6.0"}
	web := func(version string, m ...PackageMigration) Package {
		return Package{Component: "web", Version: version, OS: "linux", Arch: "amd64", Migrations: m}
	}
	catalog := Catalog{
		web("2.3.0"), web("2.4.0", first), web("2.5.0", first), web("2.6.0", first, second), web("3.0.0", first, second), web("3.1.0"),
	}
	for _, c := range []struct{ from, to, says string }{
		{"", "2.6.0", ""},
		{"2.3.0", "2.6.0", ""},
		{"2.4.0", "2.3.0", ""},
		{"2.6.0", "2.5.0", "component web of agent a1: version 2.5.0 cannot follow 2.6.0: the migration to 2.6.0 has no down, so its state cannot go back"},
		{"2.5.0", "2.3.0", "state goes back by one minor version at a time, to 2.4 first"},
		{"2.5.0", "3.0.0", "their major versions differ"},
		{"2.3.0", "3.1.0", ""},
		{"2.2.0", "3.1.0", ""}, // its package is gone
	} {
		h := newComponentHost(t)
		h.reports(c.from, nil)
		subject := h.a.Of("web")
		err := subject.CheckUpgrade(UpgradeRequest{Version: c.to, Force: true}, catalog)
		if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("from %q to %s: %v, want %q", c.from, c.to, err, c.says)
		}
		if back := subject.CheckState(c.to, catalog); (back != nil) != (c.says != "") {
			t.Errorf("back from %q to %s: %v, want %q", c.from, c.to, back, c.says)
		}
	}
}

func TestUpgradeOfAComponentPinsItsOnlyArtifact(t *testing.T) {
	amd := Package{Component: "web", Version: "2.5.0", OS: "linux", Arch: "amd64", Runtime: "systemd", SHA512: "0a", Size: 5}
	arm := amd
	arm.Arch = "arm64"
	w := UpgradeRequest{Version: "2.5.0"}
	elsewhere := w
	elsewhere.SourceURI = "https://mirror.example.com"
	for _, c := range []struct {
		w       UpgradeRequest
		catalog Catalog
		want    agentapi.ComponentData
	}{
		{w, Catalog{amd}, agentapi.ComponentData{Name: "web", UpgradeID: "x", Runtime: "systemd", Checksum: "sha512:0a", Size: 5}},
		{w, Catalog{amd, arm}, agentapi.ComponentData{Name: "web", UpgradeID: "x", Runtime: "systemd"}},
		{elsewhere, Catalog{amd}, agentapi.ComponentData{Name: "web", UpgradeID: "x"}},
	} {
		if got := c.w.ComponentData("web", "x", c.catalog); !reflect.DeepEqual(*got, c.want) {
			t.Errorf("the data is %+v, want %+v", *got, c.want)
		}
	}
}

func TestReportsThatAreNoneHaveNoComponents(t *testing.T) {
	for _, raw := range []string{``, `null`, `{}`, `[]`, `[null, 7, "web", ["web"], {"id": "logs"}, {"name": 7}, {"name": ""}]`, `[{"name": "web"`} {
		a := Agent{Components: json.RawMessage(raw)}
		if got := a.RunsComponents(); len(got) > 0 {
			t.Errorf("%s has %v", raw, got)
		}
	}
	h := newComponentHost(t)
	all := h.a.RunsComponents()
	if len(all) != 2 || all[0].Name != "web" || all[0].Desired() != "2.4.0" {
		t.Errorf("components are %+v", all)
	}
	h.begins("x", "2.5.0")
	if c, ok := h.a.Component("web"); !ok || c.Desired() != "2.5.0" || c.Version != "2.4.0" {
		t.Errorf("during an upgrade web is %+v", c)
	}
}

// The acknowledgement of a failure may arrive before the report, and has the same words.
func TestReportAfterTheAcknowledgementSaysHowAComponentFailed(t *testing.T) {
	h := newComponentHost(t)
	h.begins("act", "2.5.0")
	h.reports("2.4.0", componentDetails("act", "2.5.0", agentapi.UpgradeWatching))
	if !h.a.ObserveAck("act", "check page: 500", false, now) {
		t.Fatal("the acknowledgement changed nothing")
	}
	h.is("acknowledged", "failed", "check page")
	failed := componentFailed("act", "2.5.0", agentapi.UpgradeWatching, "check page: 500")
	h.reports("2.4.0", failed)
	h.is("reported", "rolled_back", "check page")
	s := h.a.Of("web")
	if f, ok := s.FailedBefore("2.5.0"); !ok || f.ActionID != "act" {
		t.Errorf("the version is not among those that failed: %+v", f)
	}
	was := h.a.ComponentUpgrades["web"]
	h.reports("2.4.0", failed)
	if got := h.a.ComponentUpgrades["web"]; !reflect.DeepEqual(got, was) {
		t.Errorf("the same report changed %+v to %+v", was, got)
	}
}

func TestSubjectIsAgentOrComponent(t *testing.T) {
	h := newComponentHost(t)
	h.a.Version, h.a.LastHealthyVersion = "9.0.0", "8.0.0"
	h.begins("act", "2.5.0")
	agent, web, none := h.a.Of(""), h.a.Of("web"), h.a.Of("cache")
	if agent.Version != "9.0.0" || agent.Upgrading() || agent.Busy() || !agent.Reported || agent.LastHealthyVersion != "8.0.0" {
		t.Errorf("the agent is %+v", agent)
	}
	if web.Version != "2.4.0" || !web.Upgrading() || !web.Busy() || web.UpgradeActionID != "act" || web.UpgradeTo != "2.5.0" || !web.Reported {
		t.Errorf("the component is %+v", web)
	}
	if none.Reported || none.Version != "" || none.Upgrading() || none.Busy() {
		t.Errorf("a component that it does not report is %+v", none)
	}
	h.a.ComponentUpgrades = nil
	h.reports("2.4.0", componentDetails("", "2.6.0", agentapi.UpgradeRollback)) // asked for on the host
	if web := h.a.Of("web"); web.Upgrading() || !web.Busy() {
		t.Errorf("an upgrade that the host asked for: upgrading %t, busy %t", web.Upgrading(), web.Busy())
	}
	h.reports("2.4.0", nil)
	if web := h.a.Of("web"); web.Busy() {
		t.Error("it is busy after the host's own upgrade has ended")
	}
}
