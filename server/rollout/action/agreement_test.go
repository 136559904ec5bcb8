package action_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// checkin is a check-in of an agent, as package checkin applies it.
func (w *world) checkin(id, version string, d *agentapi.UpgradeDetails, idle bool) {
	w.t.Helper()
	w.now = w.now.Add(time.Second)
	_, err := store.ApplyReport(w.t.Context(), w.store.Agents(), w.agent(id), w.now, func(a *fleet.Agent) (r store.Report) {
		changed := a.ObserveUpgrade(version, d, w.now)
		missing, _ := a.ObserveMissing(idle, w.now)
		if changed || missing {
			r.Agent, r.Results = a, a.UpgradeResults("", w.now)
		}
		r.Seen = &fleet.Touch{AgentID: id, At: w.now, Status: "online"}
		return r
	})
	w.must(err)
}

// reported is what a host says of its upgrade at one time.
type reported struct {
	version string
	state   agentapi.UpgradeState // empty: nothing
	idle    bool
}

// course is what happens on a host: what it reports, one after the other, what it acknowledges, and
// what is true at the end.
type course struct {
	reports []reported
	acks    []string // errors; empty: none
	end     fleet.ProgressState
}

var courses = map[string]course{
	"commits":                    {[]reported{{"1.0.0", agentapi.UpgradeDownloading, false}, {"1.1.0", agentapi.UpgradeWatching, false}, {"1.1.0", "", true}}, []string{""}, fleet.ProgressCommitted},
	"commits, and acks an error": {[]reported{{"1.0.0", agentapi.UpgradeDownloading, false}, {"1.1.0", agentapi.UpgradeWatching, false}, {"1.1.0", "", false}}, []string{"", "no rights"}, fleet.ProgressCommitted},
	"is restarted, and commits":  {[]reported{{"1.0.0", agentapi.UpgradeDownloading, false}, {"1.0.0", "", false}, {"1.0.0", agentapi.UpgradeDownloading, false}, {"1.1.0", "", true}}, []string{""}, fleet.ProgressCommitted},
	"is given up, and commits":   {[]reported{{"1.0.0", agentapi.UpgradeDownloading, false}, {"1.0.0", "", true}, {"1.0.0", agentapi.UpgradeReplacing, false}, {"1.1.0", "", true}}, []string{""}, fleet.ProgressCommitted},
	"reports no phases":          {[]reported{{"1.0.0", "", false}, {"1.1.0", "", false}}, []string{""}, fleet.ProgressCommitted},
	"rolls back":                 {[]reported{{"1.1.0", agentapi.UpgradeWatching, false}, {"1.0.0", agentapi.UpgradeRollback, false}, {"1.0.0", agentapi.UpgradeRollback, true}}, []string{"", "rolled back"}, fleet.ProgressRolledBack},
	"fails":                      {[]reported{{"1.0.0", agentapi.UpgradeDownloading, false}, {"1.0.0", agentapi.UpgradeFailed, false}, {"1.0.0", agentapi.UpgradeFailed, true}}, []string{"no space left"}, fleet.ProgressFailed},
	"fails, and acks on receipt": {[]reported{{"1.0.0", agentapi.UpgradeDownloading, false}, {"1.0.0", agentapi.UpgradeFailed, false}}, []string{""}, fleet.ProgressFailed},
	"loses it":                   {[]reported{{"1.0.0", agentapi.UpgradeReplacing, false}, {"1.0.0", "", true}}, nil, fleet.ProgressFailed},
	"acks, and goes on":          {[]reported{{"1.0.0", agentapi.UpgradeDownloading, false}, {"1.0.0", agentapi.UpgradeDownloading, false}}, []string{""}, fleet.ProgressDownloading},
	"does not answer":            {nil, nil, fleet.ProgressSent},
}

// delivery is a host on its course: what has arrived at the server, and what has not.
type delivery struct {
	id, name string
	action   fleet.Action
	course   course
	next     int      // of course.reports
	acks     []string // that have not arrived
}

// report sends the next report of the host.
func (d *delivery) report(w *world) {
	r := d.course.reports[d.next]
	d.next++
	var details *agentapi.UpgradeDetails
	if r.state != "" {
		details = &agentapi.UpgradeDetails{TargetVersion: "1.1.0", ActionID: d.action.ID, State: r.state}
		if r.state.Ended() {
			details.Metadata = agentapi.UpgradeMetadata{ErrorMsg: "the reason", FailedState: agentapi.UpgradeDownloading}
		}
	}
	w.checkin(d.id, r.version, details, r.idle)
}

func (d *delivery) ack(w *world) {
	w.service.Ack(w.t.Context(), w.agent(d.id), []agentapi.AckEvent{{ActionID: d.action.ID, AgentID: d.id, Error: d.acks[0]}})
	d.acks = d.acks[1:]
}

// Whatever order the messages come in, the state of an action, its counts, its progress and its
// hosts say the same, and at the end they say what the hosts have.
func TestStatusCountsAndProgressOfAnUpgradeAgree(t *testing.T) {
	require.Time(t, "tries a hundred orders of messages")
	names := slices.Sorted(maps.Keys(courses))
	w, enrolled := newWorld(t), 0 // one for all runs, since opening a store takes long
	rapid.Check(t, func(rt *rapid.T) {
		var ids []string
		for range rapid.IntRange(1, 5).Draw(rt, "hosts") {
			enrolled++
			ids = append(ids, fmt.Sprint("h", enrolled))
			w.enrol(ids[len(ids)-1], "1.0.0")
		}
		up := w.upgrade(ids...)
		var hosts []*delivery
		for _, id := range ids {
			name := rapid.SampledFrom(names).Draw(rt, "course")
			hosts = append(hosts, &delivery{id: id, name: name, action: up, course: courses[name], acks: courses[name].acks})
		}
		open := func() (list []*delivery) {
			for _, d := range hosts {
				if d.next < len(d.course.reports) || len(d.acks) > 0 {
					list = append(list, d)
				}
			}
			return list
		}
		again := map[string]bool{} // hosts that got another order
		for list := open(); len(list) > 0; list = open() {
			d := list[rapid.IntRange(0, len(list)-1).Draw(rt, "host")]
			switch left := len(d.course.reports) - d.next; {
			case left > 0 && (len(d.acks) == 0 || rapid.Bool().Draw(rt, "report")):
				if left > 1 && d.next > 0 && rapid.IntRange(0, 4).Draw(rt, "lost") == 0 {
					d.next++ // the next check-in has what the host has then
				}
				d.report(w)
			case left == 0 && d.course.end.Ended() && !again[d.id] && rapid.Bool().Draw(rt, "another order"):
				again[d.id] = true
				o := order("1.2.0", d.id)
				o.Force = true
				_, err := w.service.Upgrade(t.Context(), o)
				w.must(err)
			default:
				d.ack(w)
			}
			if rapid.IntRange(0, 3).Draw(rt, "reconcile") == 0 {
				w.must(w.service.ReconcileUpgradesOnce(t.Context()))
			}
			w.agree(rt, up, hosts, false)
		}
		w.agree(rt, up, hosts, true)
	})
}

// agree checks the status of the action; at the end also against the courses of the hosts.
func (w *world) agree(rt *rapid.T, up fleet.Action, hosts []*delivery, end bool) {
	s, err := w.service.Status(w.t.Context(), up.ID, 0)
	w.must(err)
	truth, shown := map[fleet.ProgressState]int{}, map[fleet.ProgressState]int{}
	list, _, err := w.service.Hosts(w.t.Context(), up.ID, action.HostQuery{Limit: 100})
	w.must(err)
	for i, h := range list {
		if h.State != action.HostStopped {
			shown[fleet.ProgressState(h.State)]++
		}
		truth[hosts[i].course.end]++
		r := w.result(up, h.AgentID)
		bad := h.State == action.HostState(fleet.ProgressFailed) || h.State == action.HostState(fleet.ProgressRolledBack)
		if end && (fleet.ProgressState(h.State) != hosts[i].course.end || bad != (r != nil && r.Error != "")) {
			rt.Fatalf("%s, which %s, is %s with the result %+v", h.AgentID, hosts[i].name, h.State, r)
		}
	}
	if !maps.Equal(shown, s.Progress) || end && !maps.Equal(truth, s.Progress) {
		rt.Fatalf("progress is %v, the hosts are %v, and at the end they are %v", s.Progress, shown, truth)
	}
	bad, done := s.Progress[fleet.ProgressFailed]+s.Progress[fleet.ProgressRolledBack], s.Progress[fleet.ProgressCommitted]
	over := bad+done == s.Actioned
	want := []fleet.ActionState{fleet.ActionInProgress}
	switch {
	case over && bad > 0:
		want = []fleet.ActionState{fleet.ActionFailed}
	case over:
		want = []fleet.ActionState{fleet.ActionComplete}
	}
	if s.Done() != done || s.Counts.Failed != bad || s.Counts.Acked < done || s.Counts.Acked+bad > s.Actioned || !slices.Contains(want, s.Outcome()) {
		rt.Fatalf("%d of %d are done, %+v, state %s, outcome %s, while progress is %v", s.Done(), s.Actioned, s.Counts, s.State, s.Outcome(), s.Progress)
	}
}

func TestHostsThatAcknowledgedOnReceiptAndWereCancelledAreNotDone(t *testing.T) {
	w := newWorld(t, "a", "b")
	up := w.upgrade("a", "b")
	for _, id := range []string{"a", "b"} { // all of them, and the upgrade can be cancelled nevertheless
		w.ack(id, agentapi.AckEvent{ActionID: up.ID})
	}
	_, err := w.service.Cancel(t.Context(), up.ID, "ann")
	w.must(err)
	w.must(w.service.ReconcileUpgradesOnce(t.Context()))
	if s := w.status(up); s.State != fleet.ActionCancelled || s.Done() != 0 || len(s.Progress) != 0 {
		t.Errorf("it is %s, %d are done, and progress is %v", s.State, s.Done(), s.Progress)
	}
}

func TestErrorThatIsAcknowledgedAfterTheCommitChangesNothing(t *testing.T) {
	for name, replaced := range map[string]bool{"": false, "and after another order": true} {
		w := newWorld(t, "a")
		up := w.upgrade("a")
		w.checkin("a", "1.1.0", nil, true)
		if replaced {
			_, err := w.service.Upgrade(t.Context(), order("1.2.0", "a"))
			w.must(err)
		}
		w.ack("a", agentapi.AckEvent{ActionID: up.ID, Error: "no rights"})
		s := w.status(up)
		if s.State != fleet.ActionComplete || s.Counts.Failed != 0 || s.Done() != 1 {
			t.Errorf("%s: it is %s, %+v, %d are done", name, s.State, s.Counts, s.Done())
		}
		if r := w.result(up, "a"); r == nil || r.Error != "" || !strings.Contains(r.Message, "1.1.0") {
			t.Errorf("%s: the result is %+v", name, r)
		}
	}
}
