package admin_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func timeline(t *testing.T, s *apptest.Server, a *apptest.Agent, query ...string) adminapi.Timeline {
	t.Helper()
	return get[adminapi.Timeline](t, s, "/api/v1/agents/"+a.ID+"/timeline", query...)
}

// entryText formats an entry: its kind, its state or text, and the states of its phases.
func entryText(e adminapi.TimelineEntry) string {
	text := string(e.Kind) + " " + string(deref(e.State)) + deref(e.Text)
	for _, p := range deref(e.Phases) {
		text += " " + string(p.State)
	}
	return text
}

func wantEntries(t *testing.T, got adminapi.Timeline, want ...string) {
	t.Helper()
	var texts []string
	for _, e := range got.Items {
		texts = append(texts, entryText(e))
	}
	if !slices.Equal(texts, want) {
		t.Errorf("the timeline has\n%s\nwant\n%s", strings.Join(texts, "\n"), strings.Join(want, "\n"))
	}
}

func progressOf(t *testing.T, s *apptest.Server, a *apptest.Agent, want adminapi.ProgressState) adminapi.Progress {
	t.Helper()
	got := get[adminapi.AgentItem](t, s, "/api/fleet/agents/"+a.ID).Item
	if got.Progress == nil || got.Progress.State != want {
		t.Fatalf("the progress is %+v, want %s", got.Progress, want)
	}
	if n := get[adminapi.AgentList](t, s, "/api/fleet/agents", "kuery", fmt.Sprintf("agent.id: %q and progress: %s", a.ID, want)).Total; n != 1 {
		t.Fatalf("the query of progress %s finds %d agents", want, n)
	}
	return *got.Progress
}

func upgradeOf(t *testing.T, s *apptest.Server, a *apptest.Agent, version string) string {
	t.Helper()
	return *apptest.Decode[adminapi.UpgradeResponse](t, s.Admin(http.MethodPost, "/api/fleet/agents/"+a.ID+"/upgrade", map[string]any{"version": version})).ActionId
}

// actionOf returns the counts by progress of an action, as the list of actions has them.
func actionOf(t *testing.T, s *apptest.Server, id string) adminapi.ActionStatus {
	t.Helper()
	list := get[adminapi.ActionStatusList](t, s, "/api/fleet/agents/action_status")
	i := slices.IndexFunc(list.Items, func(a adminapi.ActionStatus) bool { return a.ActionId == id })
	if i < 0 {
		t.Fatalf("action %s is not listed", id)
	}
	return list.Items[i]
}

func TestTimelineHasEachPhaseOfAnUpgradeOnce(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0", "1.2.0")
	a := s.Enroll("web-01", "1.0.0")
	a.MustCheckin(nil)
	first := upgradeOf(t, s, a, "1.1.0")
	if p := progressOf(t, s, a, fleet.ProgressSent); deref(p.By) == "" || deref(p.From) != "1.0.0" || p.Version != "1.1.0" || p.Since == nil {
		t.Errorf("the progress is %+v", p)
	}
	a.MustCheckin(nil)
	for _, step := range []struct {
		reported agentapi.UpgradeState
		want     adminapi.ProgressState
	}{
		{agentapi.UpgradeRequested, fleet.ProgressAccepted},
		{agentapi.UpgradeDownloading, fleet.ProgressDownloading},
		{agentapi.UpgradeDownloading, fleet.ProgressDownloading},
		{agentapi.UpgradeExtracting, fleet.ProgressInstalling},
		{agentapi.UpgradeReplacing, fleet.ProgressInstalling},
		{agentapi.UpgradeRestarting, fleet.ProgressRestarting},
	} {
		a.MustCheckin(apptest.Details(first, "1.1.0", step.reported))
		progressOf(t, s, a, step.want)
	}
	a.Ack("", first) // it is accepted, and not done
	a.Version = "1.1.0"
	a.MustCheckin(apptest.Details(first, "1.1.0", agentapi.UpgradeWatching))
	progressOf(t, s, a, fleet.ProgressWatching)
	phases := "sent accepted downloading installing restarting watching"
	wantEntries(t, timeline(t, s, a), "upgrade watching "+phases, "enrolled The host enrolled.")
	if got := actionOf(t, s, first); got.Outcome == adminapi.COMPLETE || fmt.Sprint(deref(got.Progress)) != "map[watching:1]" {
		t.Errorf("while it is watched the action is %s, with %v", got.Outcome, deref(got.Progress))
	}
	a.MustCheckin(nil)
	progressOf(t, s, a, fleet.ProgressCommitted)
	if got := actionOf(t, s, first); got.Outcome != adminapi.COMPLETE || fmt.Sprint(deref(got.Progress)) != "map[committed:1]" {
		t.Errorf("when it is committed the action is %s, with %v", got.Outcome, deref(got.Progress))
	}

	second := upgradeOf(t, s, a, "1.2.0")
	a.Version = "1.2.0"
	a.MustCheckin(apptest.Details(second, "1.2.0", agentapi.UpgradeWatching))
	rolledBack := apptest.Details(second, "1.2.0", agentapi.UpgradeRollback)
	rolledBack.Metadata.ReasonCode, rolledBack.Metadata.Reason = "crash_loop", "it ended 3 times"
	a.Version = "1.1.0"
	a.MustCheckin(rolledBack)
	a.MustCheckin(rolledBack) // the host repeats it
	progressOf(t, s, a, fleet.ProgressRolledBack)
	all := timeline(t, s, a)
	wantEntries(t, all, "upgrade rolled_back sent watching rolled_back", "upgrade committed "+phases+" committed", "enrolled The host enrolled.")
	if r := all.Items[0].Reason; r == nil || r.Code != "crash_loop" || r.Text != "it ended 3 times" || all.Items[0].EndedAt == nil || deref(all.Items[0].ActionId) != second {
		t.Errorf("the second upgrade is %+v", all.Items[0])
	}
	failed := get[adminapi.AgentItem](t, s, "/api/fleet/agents/"+a.ID).Item.FailedVersions
	if failed == nil || (*failed)[0].Version != "1.2.0" {
		t.Errorf("failed versions are %+v", failed)
	}
	if got := actionOf(t, s, second); fmt.Sprint(deref(got.Progress)) != "map[rolled_back:1]" || len(deref(got.Causes)) != 1 || (*got.Causes)[0].Code != "crash_loop" {
		t.Errorf("the second action has %v and %+v", deref(got.Progress), deref(got.Causes))
	}

	// A third order replaces nothing of the history, and pages join without a gap.
	third := apptest.Decode[adminapi.UpgradeResponse](t, s.Admin(http.MethodPost, "/api/fleet/agents/"+a.ID+"/upgrade", map[string]any{"version": "1.2.0", "force": true}))
	if third.ActionId == nil {
		t.Fatal("the forced order has no action")
	}
	var paged []string
	for before, pages := "", 0; ; pages++ {
		page := timeline(t, s, a, "limit", "1", "before", before)
		for _, e := range page.Items {
			paged = append(paged, entryText(e))
		}
		if before = deref(page.Next); before == "" || pages > 9 {
			break
		}
	}
	want := []string{"upgrade sent sent", "upgrade rolled_back sent watching rolled_back", "upgrade committed " + phases + " committed", "enrolled The host enrolled."}
	if !slices.Equal(paged, want) {
		t.Errorf("the pages have\n%s\nwant\n%s", strings.Join(paged, "\n"), strings.Join(want, "\n"))
	}

	// What somebody changed is there too, and only for the agent itself.
	s.Admin(http.MethodPut, "/api/fleet/agents/"+a.ID, map[string]any{"tags": []string{"edge"}})
	if e := timeline(t, s, a, "component", "agent").Items[1]; e.Kind != adminapi.TimelineChange || deref(e.By) == "" || deref(e.Text) == "" {
		t.Errorf("the change is %+v", e)
	}
	wantEntries(t, timeline(t, s, a, "component", "web"))
	refused(t, "a wrong cursor", s.Admin(http.MethodGet, "/api/v1/agents/"+a.ID+"/timeline?before=yesterday", nil), 400, "query.before")
	refused(t, "an unknown agent", s.Admin(http.MethodGet, "/api/v1/agents/nobody/timeline", nil), 404, "not found")
}

// Each cause has the count that the list has for its query.
func TestFailuresAreGroupedByCauseUntilTheyAreSeen(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	end := func(host string, d func(*agentapi.UpgradeDetails)) *apptest.Agent {
		a := s.Enroll(host, "1.0.0")
		a.MustCheckin(nil)
		details := apptest.Details(upgradeOf(t, s, a, "1.1.0"), "1.1.0", agentapi.UpgradeFailed)
		d(details)
		a.MustCheckin(details)
		return a
	}
	noSpace := func(d *agentapi.UpgradeDetails) {
		d.Metadata.FailedState, d.Metadata.ErrorMsg = agentapi.UpgradeDownloading, "no space"
	}
	end("a", noSpace)
	end("b", noSpace)
	end("c", func(d *agentapi.UpgradeDetails) {
		d.State, d.Metadata.ReasonCode, d.Metadata.Reason = agentapi.UpgradeRollback, "crash_loop", "it ended"
	})
	end("d", func(d *agentapi.UpgradeDetails) { d.Metadata.ErrorMsg = `a "reason"` })
	s.Enroll("fine", "1.0.0").MustCheckin(nil)

	read := func(kuery string) adminapi.Failures {
		t.Helper()
		return get[adminapi.Failures](t, s, "/api/v1/failures", "kuery", kuery)
	}
	got := read("")
	var texts []string
	for _, c := range got.Causes {
		texts = append(texts, fmt.Sprint(c.Count, " ", c.Code, " ", c.State, " ", c.Text))
		if n := get[adminapi.AgentList](t, s, "/api/fleet/agents", "kuery", c.Kuery, "perPage", "0").Total; n != c.Count || c.Version != "1.1.0" || c.Latest.IsZero() || c.Sample == nil {
			t.Errorf("the query finds %d agents of %+v", n, c)
		}
	}
	slices.Sort(texts)
	want := []string{
		"1 crash_loop rolled_back The new version kept crashing, and the host went back",
		"1 unknown failed The host reported no reason",
		"2 UPG_DOWNLOADING failed The package could not be downloaded",
	}
	if got.Total != 4 || got.Unseen != 4 || got.SeenAt != nil || !slices.Equal(texts, want) {
		t.Errorf("of %d failures %d are unseen, and the causes are\n%s", got.Total, got.Unseen, strings.Join(texts, "\n"))
	}
	if of := read("local_metadata.host.hostname: (a or c)"); of.Total != 2 || len(of.Causes) != 2 {
		t.Errorf("of two hosts %+v", of)
	}
	s.Admin(http.MethodPost, "/api/v1/failures/seen", map[string]any{})
	if seen := read(""); seen.Total != 4 || seen.Unseen != 0 || seen.SeenAt == nil {
		t.Errorf("once they are seen: %+v", seen)
	}
	if n := get[adminapi.Attention](t, s, "/api/v1/attention").FailuresUnseen; n != 0 {
		t.Errorf("the badge still has %d", n)
	}
	end("e", noSpace)
	apptest.Eventually(t, "the new failure is unseen", func() string {
		if f := read(""); f.Total != 5 || f.Unseen != 1 {
			return fmt.Sprintf("%d of %d are unseen", f.Unseen, f.Total)
		}
		return ""
	})
	if total := get[adminapi.AgentList](t, s, "/api/fleet/agents", "kuery", "progress: (failed or rolled_back)", "perPage", "0").Total; total != 5 {
		t.Errorf("the query of all failures finds %d agents", total)
	}
	if a := s.Fleet(fleetAgent(t, s, "e")); a.UpgradeEndedAt == nil || a.UpgradeBy == "" {
		t.Errorf("the document has %+v", a.UpgradeLog)
	}
}

func fleetAgent(t *testing.T, s *apptest.Server, host string) string {
	t.Helper()
	list := get[adminapi.AgentList](t, s, "/api/fleet/agents", "kuery", fmt.Sprintf("host: %q", host))
	if len(list.Items) != 1 {
		t.Fatalf("host: %s finds %d agents", host, len(list.Items))
	}
	return list.Items[0].Id
}
