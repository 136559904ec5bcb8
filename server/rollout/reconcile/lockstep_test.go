package reconcile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/policy"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/storetest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// inLockstep is a model of the host's half of a rollout in lockstep. until, reached and undo
// survive a reboot, as on a real host.
type inLockstep struct {
	can bool
	// fails is the phase that the host cannot do, empty: none. With start the new version
	// runs, and is unwell.
	fails agentapi.LockstepPhase
	// leaves is the phase after which the host goes away for as long as gone; 0: for ever.
	leaves agentapi.LockstepPhase
	gone   time.Duration
	backAt time.Time
	// forgets is the phase after which the agent restarts, and reports no details once.
	forgets agentapi.LockstepPhase

	running        string // the version that runs, empty: it is stopped
	action         *agentapi.Action
	until, reached agentapi.LockstepPhase
	undo           string // why it is to undo
	from, to       string
	watchedSince   time.Time
	done           []string // upgrade ids that have ended

	// What the host knows of its policy, which a check-in brings; see followInForce.
	policy    agentapi.PolicyComponent
	policyRev int64
	off       bool // it is switched off
	cut       bool // when it is on again, one check-in is answered, and then its network is gone
	held      bool // as it reports
	stays     bool // its upgrade failed after the commit: it stays stopped
}

// runInLockstep gives all hosts the component web in 1.0.0, all of which have staged 1.1.0.
func (w *world) runInLockstep() {
	w.t.Helper()
	w.runWeb()
	w.must(w.store.Policies().Create(w.t.Context(), fleet.Policy{ID: "default", Name: "default", PolicyRev: 1, Components: []agentapi.PolicyComponent{{Name: "web", Runtime: "process"}}}))
	for _, h := range w.hosts {
		w.joinLockstep(h)
	}
}

func (w *world) joinLockstep(h *host) {
	w.t.Helper()
	h.web = "1.0.0"
	h.inLockstep = inLockstep{can: true, running: "1.0.0"}
	h.staged = []string{"web 1.1.0"}
	w.checkin(h)
}

// together is a plan that upgrades web in lockstep.
func together(change func(*fleet.Plan)) fleet.Plan {
	return rolling(func(p *fleet.Plan) {
		p.Component = "web"
		p.Strategy = fleet.Strategy{Kind: fleet.LockstepStrategy, Patience: fleet.Duration(5 * time.Minute)}
		p.Health.Wait = fleet.Duration(30 * time.Second)
		if change != nil {
			change(p)
		}
	})
}

// checkVersions checks the invariant: no two targets of a rollout in lockstep run different
// versions.
func (w *world) checkVersions() {
	w.t.Helper()
	runs := map[string]string{}
	for _, id := range w.order {
		if l := w.hosts[id].inLockstep; l.can && l.running != "" {
			runs[l.running] = id
		}
	}
	if len(runs) > 1 {
		w.t.Fatalf("%s: hosts run mixed versions: %v", w.now.Format(time.TimeOnly), runs)
	}
}

// followInForce is a model of the host's rule: it runs only the version that is in force. A host
// that has booted runs nothing before its first check-in was answered. An answer brings the newest
// revision of the policy.
func (w *world) followInForce(h *host) {
	w.t.Helper()
	l := &h.inLockstep
	p, err := w.store.Policies().Get(w.t.Context(), "default")
	w.must(err)
	if p.PolicyRev > l.policyRev {
		l.policy, l.policyRev = *p.Component("web"), p.PolicyRev
		w.ack(h, fleet.PolicyAt{ID: "default", Revision: p.PolicyRev}.ChangeID(), "")
	}
	if l.action != nil {
		return
	}
	was, f := l.held, l.policy.InForce
	switch {
	case !l.policy.Lockstep || f == nil:
		l.held = false
	case l.running != "":
		if l.held = !f.Changing && f.Version != l.running; l.held {
			l.running = ""
		}
	case l.stays:
	default:
		if l.held = f.Changing || f.Version != h.web; !l.held {
			l.running = h.web
		}
	}
	if l.held != was {
		w.checkin(h)
	}
}

// switchOff switches a host off, for as long as d.
func (w *world) switchOff(h *host, d time.Duration) {
	l := &h.inLockstep
	h.away, l.off, l.running, l.backAt = true, true, "", w.now.Add(d)
	l.held = true // what it reports first when it is back
}

// oneInForce lets the policy require that its hosts run one version, which is 1.0.0 now.
func (w *world) oneInForce() {
	w.t.Helper()
	p, err := w.store.Policies().Get(w.t.Context(), "default")
	w.must(err)
	p.Components[0].Lockstep, p.Components[0].InForce = true, &agentapi.ComponentInForce{Version: "1.0.0"}
	p.PolicyRev++
	storetest.Update(w.t, w.store.Policies(), p)
}

// inForce describes the version in force.
func (w *world) inForce() string {
	w.t.Helper()
	p, err := w.store.Policies().Get(w.t.Context(), "default")
	w.must(err)
	switch f := p.Components[0].InForce; {
	case f == nil:
		return "none"
	case f.Changing:
		return f.Version + ", changing"
	default:
		return f.Version
	}
}

// beginLockstep takes an UPGRADE in lockstep.
func (w *world) beginLockstep(h *host, a agentapi.Action) bool {
	var d agentapi.UpgradeData
	w.must(json.Unmarshal(a.Data, &d))
	if d.Component == nil || d.Component.Lockstep == nil {
		return false
	}
	l := &h.inLockstep
	if slices.Contains(l.done, d.Component.UpgradeID) || l.action != nil {
		return true
	}
	l.action, l.until, l.reached, l.undo, l.from, l.to = &a, d.Component.Lockstep.Until, "", "", h.web, d.Version
	w.report(h, agentapi.UpgradeReplacing)
	return true
}

// proceed takes a PROCEED.
func (w *world) proceed(h *host, a agentapi.Action) {
	var d agentapi.ProceedData
	w.must(json.Unmarshal(a.Data, &d))
	l := &h.inLockstep
	switch {
	case l.action == nil || l.action.ID != d.UpgradeID:
		w.ack(h, a.ID, "there is no such upgrade")
		return
	case d.Undo && l.until.Reaches(agentapi.LockstepSwitch):
		w.t.Errorf("host %s is to undo what may have been switched", h.id)
	case d.Undo:
		l.undo = d.Reason
	case l.undo != "":
	case !l.until.Reaches(d.Until):
		l.until = d.Until
	}
	w.ack(h, a.ID, "")
}

func (w *world) report(h *host, s agentapi.UpgradeState) {
	l := &h.inLockstep
	h.details = w.details(h, *l.action, s)
	h.details.Metadata.Lockstep = &agentapi.LockstepReport{Until: l.until, Reached: l.reached}
}

// endInLockstep ends the upgrade as failed.
func (w *world) endInLockstep(h *host, text string) {
	l := &h.inLockstep
	w.report(h, agentapi.UpgradeFailed)
	h.details.Metadata.ErrorMsg, h.details.Metadata.FailedState = text, agentapi.UpgradeReplacing
	w.ack(h, l.action.ID, text)
	l.done, l.action = append(l.done, l.action.ID), nil
}

// liveInLockstep is what happens on a host in one tick: it does one phase.
func (w *world) liveInLockstep(h *host) {
	l := &h.inLockstep
	if h.away {
		if l.backAt.IsZero() || w.now.Before(l.backAt) {
			return
		}
		h.away, l.backAt, l.off = false, time.Time{}, false
	}
	if l.off {
		return
	}
	w.checkin(h)
	w.followInForce(h)
	if l.cut {
		l.cut, h.away, l.backAt = false, true, w.now.Add(time.Hour)
	}
	if l.action == nil {
		return
	}
	if l.undo != "" {
		l.running = l.from
		w.endInLockstep(h, l.undo)
		w.checkin(h)
		return
	}
	at := slices.Index(agentapi.LockstepPhases, l.reached) + 1
	if at == len(agentapi.LockstepPhases) || !l.until.Reaches(agentapi.LockstepPhases[at]) {
		return
	}
	w.do(h, agentapi.LockstepPhases[at])
	w.checkin(h)
}

// do does one phase.
func (w *world) do(h *host, p agentapi.LockstepPhase) {
	l := &h.inLockstep
	if l.fails == p && p != agentapi.LockstepStart {
		if !p.Reaches(agentapi.LockstepSwitch) {
			l.running = l.from // its own undo
		}
		l.stays = l.running == ""
		w.endInLockstep(h, "the disk is full")
		return
	}
	switch p {
	case agentapi.LockstepStop:
		l.running = ""
	case agentapi.LockstepStart:
		if l.running != l.to {
			l.running, l.watchedSince = l.to, w.now
			h.upgrades++
			w.report(h, agentapi.UpgradeWatching)
			return
		}
		switch {
		case w.now.Sub(l.watchedSince) < 20*time.Second:
			return
		case l.fails == p:
			h.web = l.to
			w.endInLockstep(h, "it is not healthy")
			h.details.Metadata.FailedState = agentapi.UpgradeWatching
			return
		}
		h.web = l.to
		w.ack(h, l.action.ID, "")
		l.done, l.action, h.details = append(l.done, l.action.ID), nil, nil
		return
	}
	l.reached = p
	w.report(h, agentapi.UpgradeReplacing)
	if l.forgets == p {
		h.details = nil
		w.checkin(h)
		w.report(h, agentapi.UpgradeReplacing)
	}
	if l.leaves == p {
		w.checkin(h)
		h.away = true
		if l.gone > 0 {
			l.backAt = w.now.Add(l.gone)
		}
	}
}

// phases are the phases of a rollout in its audit trail.
func (w *world) phases(id string) []string {
	w.t.Helper()
	entries, _, err := w.store.Audit().List(w.t.Context(), store.AuditQuery{Subject: id, Limit: 1_000})
	w.must(err)
	var out []string
	for _, e := range slices.Backward(entries) {
		var d struct {
			Lockstep string `json:"lockstep"`
		}
		if json.Unmarshal(e.Data, &d) == nil && d.Lockstep != "" && (len(out) == 0 || out[len(out)-1] != d.Lockstep) {
			out = append(out, d.Lockstep)
		}
	}
	return out
}

func TestLockstepUpgradesAllAsOne(t *testing.T) {
	w := newWorld(t, 5)
	w.runInLockstep()
	w.hosts["agent-001"].inLockstep.forgets = agentapi.LockstepBackup
	w.start("r", together(nil))
	r := w.until("r", 20*time.Minute, over)
	if r.State != fleet.RolloutCompleted || r.Counts.Succeeded != 5 || r.Lockstep.Undo != nil || !r.Lockstep.Committed() {
		t.Fatalf("it is %s with %+v: %+v", r.State, r.Counts, r.Lockstep)
	}
	if got, want := strings.Join(w.phases("r"), " "), "drain stop verify_again backup switch start settle"; got != want {
		t.Errorf("its phases are %q, want %q", got, want)
	}
	for _, h := range w.hosts {
		if h.web != "1.1.0" || h.inLockstep.running != "1.1.0" || h.upgrades != 1 {
			t.Errorf("host %s is %+v", h.id, h.inLockstep)
		}
	}
	for _, p := range []fleet.LockstepPhase{fleet.LockstepStop, fleet.LockstepBackup, fleet.LockstepSwitch, fleet.LockstepStart} {
		a, err := w.store.Actions().Get(t.Context(), fleet.ProceedID("r", 1, p))
		if err != nil || len(a.Agents) != 5 || a.Expiration.Sub(a.CreatedAt) != 30*24*time.Hour || fleet.RolloutOf(a.ID) != "r" {
			t.Errorf("the order of phase %s is %+v, %v", p, a, err)
		}
	}
}

// Each UPGRADE has orders of its own, since an order names the upgrade.
func TestLockstepOrdersOfSeveralArtifacts(t *testing.T) {
	w := newWorld(t, 3)
	w.runInLockstep()
	w.must(w.store.Packages().Create(t.Context(), fleet.Package{
		File: "muster-component-web-1.1.0-linux-arm64.tar.gz", Version: "1.1.0", OS: "linux", Arch: "arm64", SHA512: strings.Repeat("ef", 64), Size: 1 << 20,
		Component: "web", Runtime: "process",
	}))
	w.hosts["agent-001"].arch = "aarch64"
	w.checkin(w.hosts["agent-001"])
	w.start("r", together(nil))
	r := w.until("r", 20*time.Minute, over)
	if r.State != fleet.RolloutCompleted || r.Counts.Succeeded != 3 {
		t.Fatalf("it is %s with %+v: %+v", r.State, r.Counts, r.Lockstep)
	}
	agents := map[int]int{}
	for offer := 1; offer <= 2; offer++ {
		a, err := w.store.Actions().Get(t.Context(), fleet.ProceedID("r", offer, fleet.LockstepSwitch))
		w.must(err)
		agents[len(a.Agents)]++
	}
	if agents[1] != 1 || agents[2] != 1 {
		t.Errorf("the orders have %v agents", agents)
	}
}

func TestLockstepFailureBeforeTheCommitUndoesEverything(t *testing.T) {
	for _, phase := range []agentapi.LockstepPhase{agentapi.LockstepDrain, agentapi.LockstepStop, agentapi.LockstepBackup} {
		t.Run(string(phase), func(t *testing.T) {
			w := newWorld(t, 4)
			w.runInLockstep()
			w.hosts["agent-002"].inLockstep.fails = phase
			w.start("r", together(nil))
			r := w.until("r", 20*time.Minute, over)
			if r.State != fleet.RolloutFailed || r.Lockstep.Committed() || !strings.Contains(r.Lockstep.Undo.Why, "host-agent-002") {
				t.Fatalf("it is %s: %+v %+v", r.State, r.Lockstep, r.Lockstep.Undo)
			}
			w.checkCounts(r)
			for id, h := range w.hosts {
				state, code := fleet.TargetRolledBack, fleet.WhyUndone
				if id == "agent-002" {
					state, code = fleet.TargetFailed, fleet.WhyReported
				}
				if x := w.target("r", id); x.State != state || x.Code != code || h.inLockstep.running != "1.0.0" {
					t.Errorf("%s is %s (%s, %s) and runs %q", id, x.State, x.Code, x.Error, h.inLockstep.running)
				}
				a := w.agent(id)
				if s := a.Of("web"); s.Upgrading() {
					t.Errorf("%s counts as being upgraded", id)
				}
			}
			w.start2(t)
		})
	}
}

// start2 starts the rollout again, which succeeds: what was undone is no failure of the version.
func (w *world) start2(t *testing.T) {
	t.Helper()
	for _, h := range w.hosts {
		h.inLockstep.fails = ""
		h.details = nil
		w.checkin(h)
	}
	w.start("r2", together(nil))
	if r := w.until("r2", 20*time.Minute, over); r.State != fleet.RolloutCompleted || r.Counts.Succeeded != len(w.hosts) {
		t.Errorf("the next rollout is %s with %+v", r.State, r.Counts)
	}
}

func TestLockstepFailureAfterTheCommitStaysStopped(t *testing.T) {
	w := newWorld(t, 4)
	w.runInLockstep()
	w.hosts["agent-000"].inLockstep.fails = agentapi.LockstepSwitch
	w.hosts["agent-001"].inLockstep.fails = agentapi.LockstepStart
	w.hosts["agent-002"].inLockstep.leaves, w.hosts["agent-002"].inLockstep.gone = agentapi.LockstepBackup, 2*time.Hour
	w.start("r", together(nil))
	r := w.until("r", 40*time.Minute, over)
	if r.State != fleet.RolloutFailed || !r.Lockstep.Committed() || r.Counts.Succeeded != 1 || r.Counts.Failed != 3 {
		t.Fatalf("it is %s with %+v: %+v", r.State, r.Counts, r.Lockstep)
	}
	if want := []string{"host-agent-000", "host-agent-001", "host-agent-002"}; !slices.Equal(slices.Sorted(slices.Values(r.Lockstep.Failed)), want) {
		t.Errorf("it names %q", r.Lockstep.Failed)
	}
	if x := w.target("r", "agent-001"); x.State != fleet.TargetFailed {
		t.Errorf("one that is unwell is %s (%s): it was not rolled back", x.State, x.Code)
	}
	if h := w.hosts["agent-000"]; h.inLockstep.running != "" {
		t.Errorf("one that could not migrate runs %s", h.inLockstep.running)
	}
	w.pass(2 * time.Hour) // the one that was away goes on by itself
	if h := w.hosts["agent-002"]; h.inLockstep.running != "1.1.0" || h.web != "1.1.0" {
		t.Errorf("the one that was away is %+v", h.inLockstep)
	}
	a := w.agent("agent-002")
	if s := a.Of("web"); s.Version != "1.1.0" || s.Upgrading() {
		t.Errorf("the server takes it for %s, upgrading %v", s.Version, s.Upgrading())
	}
}

func TestLockstepPausesUntilAllAreReady(t *testing.T) {
	w := newWorld(t, 3)
	w.runInLockstep()
	w.hosts["agent-001"].staged = []string{}
	w.hosts["agent-002"].away = true
	w.start("r", together(nil))
	w.now = w.now.Add(fleet.OfflineAfter)
	for _, id := range []string{"agent-000", "agent-001"} {
		w.checkin(w.hosts[id])
	}
	r := w.until("r", 10*time.Minute, stopped)
	if r.Stop.Kind != fleet.StopVerify || !strings.Contains(r.Stop.Text, "2 of 3 targets are not ready") || len(r.Lockstep.Failed) != 2 {
		t.Fatalf("it is stopped by %+v: %+v", r.Stop, r.Lockstep)
	}
	w.hosts["agent-001"].staged = []string{"web 1.1.0"}
	w.hosts["agent-002"].away = false
	w.pass(time.Minute)
	w.change("r", func(r *fleet.Rollout) { r.State, r.Stop = fleet.RolloutRunning, nil })
	if r = w.until("r", 20*time.Minute, over); r.State != fleet.RolloutCompleted || len(r.Lockstep.Failed) > 0 {
		t.Errorf("it is %s: %+v", r.State, r.Lockstep)
	}
}

func TestLockstepUndoesWhenTheSetOfTargetsChanges(t *testing.T) {
	t.Run("an agent enrols meanwhile", func(t *testing.T) {
		w := newWorld(t, 3)
		w.runInLockstep()
		w.start("r", together(nil))
		w.until("r", 10*time.Minute, func(r fleet.Rollout) bool { return r.Lockstep != nil && r.Lockstep.Phase == fleet.LockstepStop })
		w.joinLockstep(w.enrol("agent-new"))
		r := w.until("r", 10*time.Minute, over)
		if r.State != fleet.RolloutFailed || r.Lockstep.Undo.In != fleet.LockstepVerifyAgain || !strings.Contains(r.Lockstep.Undo.Why, "host-agent-new") {
			t.Errorf("it is %s: %+v", r.State, r.Lockstep.Undo)
		}
	})
	t.Run("one that was left out comes back", func(t *testing.T) {
		w := newWorld(t, 3)
		w.runInLockstep()
		w.hosts["agent-001"].away = true
		w.pass(fleet.OfflineAfter + time.Minute)
		w.start("r", together(func(p *fleet.Plan) { p.Strategy.Away = fleet.AwayExclude }))
		r := w.until("r", 10*time.Minute, func(r fleet.Rollout) bool { return r.Lockstep != nil && r.Lockstep.Phase == fleet.LockstepStop })
		if !slices.Equal(r.Lockstep.Missing, []string{"host-agent-001"}) || r.Lockstep.Targets != 2 {
			t.Errorf("it is %+v", r.Lockstep)
		}
		w.hosts["agent-001"].away = false
		r = w.until("r", 10*time.Minute, over)
		if r.Lockstep.Undo == nil || !strings.Contains(r.Lockstep.Undo.Why, "host-agent-001") {
			t.Errorf("it is %s: %+v", r.State, r.Lockstep)
		}
	})
}

func TestLockstepIsUndoneByCancelling(t *testing.T) {
	w := newWorld(t, 3)
	w.runInLockstep()
	w.hosts["agent-001"].inLockstep.leaves, w.hosts["agent-001"].inLockstep.gone = agentapi.LockstepStop, time.Hour
	w.start("r", together(nil))
	w.until("r", 10*time.Minute, func(r fleet.Rollout) bool { return r.Lockstep != nil && r.Lockstep.Phase == fleet.LockstepBackup })
	w.change("r", func(r *fleet.Rollout) { r.State = fleet.RolloutCancelling })
	r := w.until("r", 20*time.Minute, over)
	if r.State != fleet.RolloutCancelled || r.Lockstep.Undo.Why != "the rollout was cancelled" || !slices.Equal(r.Lockstep.Failed, []string{"host-agent-001"}) {
		t.Fatalf("it is %s: %+v", r.State, r.Lockstep)
	}
	w.pass(time.Hour) // the host that was away gets the order to undo when it is back
	for id, h := range w.hosts {
		if h.inLockstep.running != "1.0.0" {
			t.Errorf("%s runs %q", id, h.inLockstep.running)
		}
	}
}

func TestLockstepCoordinatorKilledAtAnyWriteReachesTheSameEnd(t *testing.T) {
	t.Parallel()
	require.Time(t, "kills the coordinator at every write")
	for _, c := range []struct {
		name    string
		prepare func(w *world)
		runs    map[string]int // hosts by the version that runs in the end
		// cancelled is the phase in which an operator cancels it, if one does.
		cancelled fleet.LockstepPhase
	}{
		{"all goes well", func(*world) {}, map[string]int{"1.1.0": 4}, ""},
		{"one fails while it stops", func(w *world) { w.hosts["agent-001"].inLockstep.fails = agentapi.LockstepStop }, map[string]int{"1.0.0": 4}, ""},
		{"one fails to copy its state", func(w *world) { w.hosts["agent-001"].inLockstep.fails = agentapi.LockstepBackup }, map[string]int{"1.0.0": 4}, ""},
		{"one fails to migrate", func(w *world) { w.hosts["agent-001"].inLockstep.fails = agentapi.LockstepSwitch }, map[string]int{"1.1.0": 3, "": 1}, ""},
		{"an operator cancels it while one is away", func(w *world) {
			w.hosts["agent-001"].inLockstep.leaves, w.hosts["agent-001"].inLockstep.gone = agentapi.LockstepStop, 2*time.Minute
		}, map[string]int{"1.0.0": 4}, fleet.LockstepBackup},
		{"one is away for long after the copy", func(w *world) {
			w.hosts["agent-001"].inLockstep.leaves, w.hosts["agent-001"].inLockstep.gone = agentapi.LockstepBackup, 3*time.Minute
		}, map[string]int{"1.1.0": 4}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			scenario := func(w *world) func(fleet.Rollout) bool {
				w.runInLockstep()
				c.prepare(w)
				w.start("r", together(nil))
				return func(r fleet.Rollout) bool {
					if l := r.Lockstep; l != nil && l.Phase == c.cancelled && r.State == fleet.RolloutRunning {
						w.change("r", func(r *fleet.Rollout) { r.State = fleet.RolloutCancelling })
					}
					if !over(r) {
						return false
					}
					got := map[string]int{}
					for _, h := range w.hosts {
						got[h.inLockstep.running]++
					}
					if fmt.Sprint(got) != fmt.Sprint(c.runs) {
						w.t.Errorf("in the end %v run, want %v (%+v)", got, c.runs, r.Lockstep)
					}
					return true
				}
			}
			want, writes, _ := liveAndDie(t, 0, false, scenario)
			if writes < 20 {
				t.Fatalf("only %d writes", writes)
			}
			for at := 1; at <= writes; at++ {
				for _, after := range []bool{false, true} {
					t.Run(fmt.Sprint(at, after), func(t *testing.T) {
						t.Parallel()
						got, _, last := liveAndDie(t, at, after, scenario)
						if got != want {
							t.Errorf("killed at write %d (%s), which was made %v:\n%+v\nwant\n%+v", at, last, after, got, want)
						}
					})
				}
			}
		})
	}
}

func TestLockstepWritesWhichVersionIsInForce(t *testing.T) {
	for _, c := range []struct {
		name  string
		has   bool // a version is in force before
		fails agentapi.LockstepPhase
		want  string
	}{
		{"all goes well", true, "", "1.0.0, changing→1.1.0"},
		{"it is undone", true, agentapi.LockstepBackup, "1.0.0, changing→1.0.0"},
		{"it is the first one", false, "", "1.0.0, changing→1.1.0"},
		{"the first one is undone", false, agentapi.LockstepBackup, "1.0.0, changing→1.0.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 3)
			w.runInLockstep()
			w.oneInForce()
			if !c.has {
				p, err := w.store.Policies().Get(t.Context(), "default")
				w.must(err)
				p.Components[0].InForce = nil
				storetest.Update(w.t, w.store.Policies(), p)
			}
			w.hosts["agent-001"].inLockstep.fails = c.fails
			w.start("r", together(nil))
			var was []string
			w.until("r", 20*time.Minute, func(r fleet.Rollout) bool {
				if f := w.inForce(); r.Lockstep.Running() && (len(was) == 0 || was[len(was)-1] != f) && (len(was) > 0 || strings.Contains(f, "changing")) {
					was = append(was, f)
				}
				return over(r)
			})
			if got := strings.Join(was, "→"); got != c.want {
				t.Errorf("in force is %s, want %s", got, c.want)
			}
		})
	}
	t.Run("the targets have several versions", func(t *testing.T) {
		w := newWorld(t, 3)
		w.runInLockstep()
		w.oneInForce()
		p, err := w.store.Policies().Get(t.Context(), "default")
		w.must(err)
		p.Components[0].InForce = nil
		storetest.Update(w.t, w.store.Policies(), p)
		h := w.hosts["agent-000"]
		h.web, h.inLockstep.running, h.inLockstep.stays = "0.9.0", "", true
		w.checkin(h)
		w.start("r", together(nil))
		w.until("r", 10*time.Minute, func(r fleet.Rollout) bool { return r.Lockstep != nil && r.Lockstep.Phase == fleet.LockstepStop })
		if f := w.inForce(); f != ", changing" {
			t.Errorf("in force is %s", f)
		}
	})
}

// An agent of the policy that is no target would run another version beside the targets.
func TestLockstepNeedsAllHostsOfAPolicyWithAVersionInForce(t *testing.T) {
	w := newWorld(t, 3)
	w.runInLockstep()
	w.oneInForce()
	w.start("r", together(func(p *fleet.Plan) { p.Select = fleet.Selector{Agents: []string{"agent-000", "agent-001"}} }))
	r := w.until("r", 10*time.Minute, stopped)
	if r.Stop.Kind != fleet.StopVerify || !slices.Equal(r.Lockstep.Failed, []string{"host-agent-002"}) {
		t.Errorf("it is stopped by %+v: %+v", r.Stop, r.Lockstep)
	}
}

// The coordinator is killed at every write, and a host that was left out boots at another instant
// each time, and may lose its network again. It runs no other version than the others, or none.
func TestHostThatComesBackRunsNoOtherVersionAtAnyWrite(t *testing.T) {
	t.Parallel()
	require.Time(t, "stops a host at every write")
	for _, fails := range []agentapi.LockstepPhase{"", agentapi.LockstepBackup} {
		ends := func(back int, cut bool) func(w *world) func(fleet.Rollout) bool {
			return func(w *world) func(fleet.Rollout) bool {
				w.runInLockstep()
				w.oneInForce()
				w.turn2()
				late := w.hosts["agent-003"]
				w.switchOff(late, time.Hour)
				w.pass(fleet.OfflineAfter + time.Minute)
				w.hosts["agent-001"].inLockstep.fails = fails
				w.start("r", together(func(p *fleet.Plan) { p.Strategy.Away = fleet.AwayExclude }))
				late.inLockstep.cut = cut
				late.inLockstep.backAt = w.now.Add(time.Duration(back) * w.tick)
				return func(r fleet.Rollout) bool {
					if !over(r) {
						return false
					}
					want := "1.0.0"
					if r.Lockstep.Committed() {
						want = "1.1.0"
					}
					if got := w.inForce(); got != want {
						w.t.Errorf("back at tick %d: in the end %s is in force, want %s", back, got, want)
					}
					for id, h := range w.hosts {
						if l := h.inLockstep; l.running != want && (h.web == want || l.running != "" || !l.held) && !h.away {
							w.t.Errorf("back at tick %d: %s has %s, runs %q, held %v; in force is %s", back, id, h.web, l.running, l.held, want)
						}
					}
					return true
				}
			}
		}
		_, writes, _ := liveAndDie(t, 0, false, ends(1000, false))
		if writes < 20 {
			t.Fatalf("only %d writes", writes)
		}
		for at := 1; at <= writes; at++ {
			for _, after := range []bool{false, true} {
				back := 1 + at*7%30
				if after {
					back = 1 + (at*7+15)%30
				}
				t.Run(fmt.Sprint(fails, at, after), func(t *testing.T) {
					t.Parallel()
					liveAndDie(t, at, after, ends(back, at%2 == 0))
				})
			}
		}
	}
}

// turn2 lets all hosts get their policy.
func (w *world) turn2() {
	w.t.Helper()
	w.must(w.turn())
	w.must(w.turn())
}

// latePolicies lets something happen while a server decides which version is in force.
type latePolicies struct {
	*policy.Service
	w *world
}

func (l latePolicies) SetInForce(ctx context.Context, id, component, actor string, decide func(agentapi.PolicyComponent) (*agentapi.ComponentInForce, error)) error {
	return l.Service.SetInForce(ctx, id, component, actor, func(c agentapi.PolicyComponent) (*agentapi.ComponentInForce, error) {
		if l.w.beforeInForce != nil {
			l.w.beforeInForce()
		}
		return decide(c)
	})
}

// A server that has lost the rollout without noticing, and is slow, changes no policy.
func TestServerThatLostTheRolloutSetsNoVersionInForce(t *testing.T) {
	w := newWorld(t, 3)
	w.runInLockstep()
	w.oneInForce()
	calls := 0
	w.beforeInForce = func() {
		if calls++; calls > 1 {
			return
		}
		w.change("r", func(r *fleet.Rollout) { // as the next server
			r.Lockstep.Phase, r.Lockstep.Undo = fleet.LockstepUndo, &fleet.Undo{At: w.now, In: fleet.LockstepDrain, Why: "it was cancelled"}
		})
	}
	w.start("r", together(nil))
	r := w.until("r", 20*time.Minute, func(r fleet.Rollout) bool {
		if f := w.inForce(); f != "1.0.0" {
			t.Errorf("after %d calls in force is %s", calls, f)
		}
		return over(r)
	})
	if r.State != fleet.RolloutFailed || calls < 2 {
		t.Errorf("it is %s after %d calls", r.State, calls)
	}
}
