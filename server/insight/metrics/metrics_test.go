package metrics_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/metrics"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

type world struct {
	*metrics.Metrics

	t      *testing.T
	s      *sqlite.Store
	events *event.Stream
}

// bubble runs f in virtual time with metrics that count.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), filepath.Join(dir, "muster.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		w := &world{t: t, s: s, events: &event.Stream{Store: s.Events(), Log: slog.New(slog.DiscardHandler)}}
		w.Metrics = metrics.New(s, w.events, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.events.Run(ctx) })
		running.Go(func() { w.Run(ctx) })
		defer running.Wait()
		defer cancel()
		synctest.Wait()
		f(t, w)
	})
}

// scrape returns the lines that begin with the prefix, without histogram buckets.
func (w *world) scrape(prefix string) string {
	w.t.Helper()
	synctest.Wait()
	rec := httptest.NewRecorder()
	w.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if rec.Code != http.StatusOK {
		w.t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	var out []string
	for line := range strings.Lines(rec.Body.String()) {
		if strings.HasPrefix(line, prefix) && !strings.Contains(line, "_bucket{") {
			out = append(out, strings.TrimSpace(strings.TrimPrefix(line, prefix)))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func (w *world) scrapes(prefix string, want ...string) {
	w.t.Helper()
	slices.Sort(want)
	if got := w.scrape(prefix); got != strings.Join(want, "\n") {
		w.t.Errorf("%s…:\n%s\nwant\n%s", prefix, got, strings.Join(want, "\n"))
	}
}

func TestEventsAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		start := time.Now().UTC()
		later := start.Add(90 * time.Second)
		r := &fleet.Rollout{ID: "r1", State: fleet.RolloutCompleted, Plan: fleet.Plan{Strategy: fleet.Strategy{Kind: fleet.Canary}}, StartedAt: &start, EndedAt: &later}
		failed := *r
		failed.State, failed.Plan.Strategy.Kind = fleet.RolloutFailed, "odd"
		target := func(s fleet.TargetState) fleet.Event {
			return fleet.TargetEvent(fleet.EventTargetCompleted, r, &fleet.Target{AgentID: "a", Policy: "p", Site: "fra", State: s, OfferedAt: &start, EndedAt: &later}, later)
		}
		component := func(name string) *fleet.Rollout {
			of := *r
			of.Plan.Component = name
			return &of
		}
		w.events.Publish(t.Context(),
			fleet.RolloutEvent(fleet.EventRolloutStarted, r, later), // has not ended
			fleet.RolloutEvent(fleet.EventRolloutCompleted, r, later),
			fleet.RolloutEvent(fleet.EventRolloutCompleted, r, later),
			fleet.RolloutEvent(fleet.EventRolloutFailed, &failed, later),
			target(fleet.TargetSucceeded), target(fleet.TargetSucceeded), target(fleet.TargetRolledBack), target("odd"),
			fleet.RolloutEvent(fleet.EventRolloutCompleted, component("web"), later),
			fleet.Event{Type: fleet.EventTargetCompleted, Subject: "a", Data: []byte(`[]`)},
		)
		w.scrapes("muster_rollout_total", `{component="",status="completed",strategy="canary"} 2`, `{component="",status="failed",strategy="other"} 1`,
			`{component="web",status="completed",strategy="canary"} 1`)
		w.scrapes("muster_rollout_duration_seconds",
			`_count{component="",status="completed",strategy="canary"} 2`, `_sum{component="",status="completed",strategy="canary"} 180`,
			`_count{component="",status="failed",strategy="other"} 1`, `_sum{component="",status="failed",strategy="other"} 90`,
			`_count{component="web",status="completed",strategy="canary"} 1`, `_sum{component="web",status="completed",strategy="canary"} 90`)
		w.scrapes("muster_rollout_target_upgrades_total", `{component="",policy="p",site="fra",status="other"} 1`,
			`{component="",policy="p",site="fra",status="rolled_back"} 1`, `{component="",policy="p",site="fra",status="succeeded"} 2`)
		if got := w.scrape("muster_rollout_target_upgrade_duration_seconds"); !strings.Contains(got, `_sum{component="",status="succeeded"} 180`) {
			t.Errorf("durations are %s", got)
		}
		if w.scrape("go_goroutines") == "" || w.scrape("process_start_time_seconds") == "" {
			t.Error("there are no metrics of the process")
		}
		var many []fleet.Event
		for i := range agentapi.MaxComponents + 5 {
			many = append(many, fleet.RolloutEvent(fleet.EventRolloutCompleted, component(fmt.Sprint("c", i)), later))
		}
		w.events.Publish(t.Context(), many...)
		time.Sleep(time.Second) // the stream pauses between reads
		if got := w.scrape(`muster_rollout_total{component="other"`); !strings.HasSuffix(got, " 6") {
			t.Errorf("the components beyond the bound are counted as %q", got)
		}
	})
}

func TestActiveRolloutsHaveSeries(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.scrapes("muster_rollout_active", "0")
		r := fleet.Rollout{ID: "r1", State: fleet.RolloutRunning, Plan: fleet.Plan{Component: "web"}, Counts: fleet.Counts{Total: 8, Pending: 1, Held: 1, Offered: 1, Upgrading: 2, Verifying: 1, Succeeded: 2}}
		if err := w.s.Rollouts().Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		for i, target := range []fleet.Target{
			{State: fleet.TargetPending},
			{State: fleet.TargetOffered},
			{State: fleet.TargetUpgrading, HostPhase: "stopped"},
			{State: fleet.TargetUpgrading, HostPhase: "stopped", Site: "ber"},
			{State: fleet.TargetVerifying, HostPhase: "starting"},
			{State: fleet.TargetSucceeded},
		} {
			target.RolloutID, target.AgentID, target.Place, target.Policy = "r1", fmt.Sprint("a", i), i, "p"
			if target.Site == "" {
				target.Site = "fra"
			}
			if err := w.s.Targets().Create(t.Context(), []fleet.Target{target}); err != nil {
				t.Fatal(err)
			}
		}
		w.scrapes("muster_rollout_active", "0") // cached for ten seconds
		time.Sleep(metrics.FreshFor)
		w.scrapes("muster_rollout_active", "1")
		w.scrapes("muster_rollout_progress", `{component="web",rollout="r1"} 0.25`)
		w.scrapes("muster_rollout_target_phase", `{component="web",phase="preparing",policy="p",rollout="r1",site="fra"} 1`,
			`{component="web",phase="stopped",policy="p",rollout="r1",site="ber"} 1`, `{component="web",phase="stopped",policy="p",rollout="r1",site="fra"} 1`,
			`{component="web",phase="verifying",policy="p",rollout="r1",site="fra"} 1`)

		// The host goes on, which changes no count of the rollout.
		moved, err := w.s.Targets().Get(t.Context(), "r1", "a2")
		if err != nil {
			t.Fatal(err)
		}
		moved.HostPhase = "mutating"
		if _, _, err := w.s.Targets().UpdateMany(t.Context(), []fleet.Target{moved}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(metrics.FreshFor)
		w.scrapes(`muster_rollout_target_phase{component="web",phase="mutating"`, `,policy="p",rollout="r1",site="fra"} 1`)

		stored, err := w.s.Rollouts().Get(t.Context(), "r1")
		if err != nil {
			t.Fatal(err)
		}
		stored.Counts.Verifying, stored.Counts.Succeeded = 0, 3
		if _, err := w.s.Rollouts().Update(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
		time.Sleep(metrics.FreshFor)
		w.scrapes("muster_rollout_progress", `{component="web",rollout="r1"} 0.375`)

		if stored, err = w.s.Rollouts().Get(t.Context(), "r1"); err != nil {
			t.Fatal(err)
		}
		stored.State = fleet.RolloutCompleted
		if _, err := w.s.Rollouts().Update(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
		time.Sleep(metrics.FreshFor)
		w.scrapes("muster_rollout_active", "0")
		w.scrapes("muster_rollout_progress")
		w.scrapes("muster_rollout_target_phase")
	})
}

// Sites and policies beyond the bounds are counted as other, and none is lost.
func TestSeriesOfSitesAreBounded(t *testing.T) {
	const sites, policies = metrics.MaxSites + 5, metrics.MaxPolicies + 3
	bubble(t, func(t *testing.T, w *world) {
		now := time.Now().UTC()
		r := fleet.Rollout{ID: "r1", State: fleet.RolloutRunning, Counts: fleet.Counts{Total: sites, Upgrading: sites}}
		var targets []fleet.Target
		var events []fleet.Event
		for i := range sites {
			target := fleet.Target{
				RolloutID: "r1", AgentID: fmt.Sprint("a", i), Place: i, State: fleet.TargetUpgrading, Site: fmt.Sprint("s", i), Policy: fmt.Sprint("p", i%policies), OfferedAt: &now,
			}
			targets = append(targets, target)
			target.State = fleet.TargetSucceeded
			events = append(events, fleet.TargetEvent(fleet.EventTargetCompleted, &r, &target, now))
		}
		if err := w.s.Rollouts().Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if err := w.s.Targets().Create(t.Context(), targets); err != nil {
			t.Fatal(err)
		}
		w.events.Publish(t.Context(), events...)
		time.Sleep(time.Second) // the stream pauses between reads
		for _, name := range []string{"muster_rollout_target_phase", "muster_rollout_target_upgrades_total"} {
			for label, most := range map[string]int{"site": metrics.MaxSites, "policy": metrics.MaxPolicies} {
				seen, sum := w.valuesOf(name, label)
				if len(seen) != most+1 || seen["other"] == 0 || sum != sites {
					t.Errorf("%s has %d values of %s (%d of other) for %d targets, want %d and other for %d", name, len(seen), label, seen["other"], sum, most, sites)
				}
			}
		}
	})
}

// valuesOf returns the sum of a metric by the values of a label, and in all.
func (w *world) valuesOf(name, label string) (seen map[string]int, sum int) {
	w.t.Helper()
	seen = map[string]int{}
	for line := range strings.SplitSeq(w.scrape(name), "\n") {
		_, after, _ := strings.Cut(line, label+`="`)
		value, _, _ := strings.Cut(after, `"`)
		_, count, _ := strings.Cut(line, "} ")
		n, err := strconv.Atoi(count)
		if err != nil {
			w.t.Fatalf("%s%s: %s", name, line, err)
		}
		seen[value] += n
		sum += n
	}
	return seen, sum
}

// The targets of a rollout that upgrades more than one read takes are not read; its counts are shown.
func TestTargetsBeyondTheBoundAreCountedByState(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := fleet.Rollout{ID: "r1", State: fleet.RolloutRunning, Counts: fleet.Counts{Total: 99_999, Offered: 3, Upgrading: metrics.MaxInFlight}}
		if err := w.s.Rollouts().Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		w.scrapes("muster_rollout_target_phase", `{component="",phase="preparing",policy="other",rollout="r1",site="other"} 3`,
			fmt.Sprintf(`{component="",phase="mutating",policy="other",rollout="r1",site="other"} %d`, metrics.MaxInFlight))
	})
}

func TestGroupsAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		started := time.Now().UTC()
		g := fleet.RolloutGroup{
			ID: "g1", State: fleet.GroupPaused, StartedAt: &started, Plan: fleet.GroupPlan{FailurePolicy: fleet.RollbackAll},
			Members: []fleet.GroupMember{{State: fleet.MemberCompleted}, {State: fleet.MemberRunning}, {State: fleet.MemberPending}, {State: fleet.MemberPending}},
		}
		if err := w.s.RolloutGroups().Create(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		w.scrapes("muster_rollout_group_active", "1")
		w.scrapes("muster_rollout_group_paused", "1")
		w.scrapes("muster_rollout_group_progress", `{group="g1"} 0.25`)
		stored, err := w.s.RolloutGroups().Get(t.Context(), "g1")
		if err != nil {
			t.Fatal(err)
		}
		stored.State = fleet.GroupPartial
		if _, err := w.s.RolloutGroups().Update(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
		w.events.Publish(t.Context(), fleet.GroupEvent(fleet.EventGroupPartial, &stored, started.Add(time.Minute)))
		stored.State, stored.Plan.FailurePolicy = "new", "new"
		w.events.Publish(t.Context(), fleet.GroupEvent(fleet.EventGroupFailed, &stored, started.Add(time.Minute)))
		time.Sleep(metrics.FreshFor)
		w.scrapes("muster_rollout_group_active", "0")
		w.scrapes("muster_rollout_group_progress")
		w.scrapes("muster_rollout_group_total", `{failure_policy="other",status="other"} 1`, `{failure_policy="rollback_all",status="partial"} 1`)
	})
}

func TestAgentsAndIncidentsAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		now := time.Now().UTC()
		for n, status := range []string{"online", "online", "degraded", ""} {
			id := fmt.Sprint("a", n)
			if err := w.s.Agents().Create(t.Context(), fleet.Agent{ID: id, AccessKeyID: id, Active: true, EnrolledAt: now, PolicyRev: 1}); err != nil {
				t.Fatal(err)
			}
			if status != "" {
				if err := w.s.Agents().Touch(t.Context(), []fleet.Touch{{AgentID: id, At: now, Status: status}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for n, state := range []fleet.IncidentState{fleet.IncidentOpen, fleet.IncidentAcked, fleet.IncidentResolved} {
			if err := w.s.Incidents().Create(t.Context(), fleet.Incident{ID: fmt.Sprint(n), Category: fleet.IncidentStalled, State: state}); err != nil {
				t.Fatal(err)
			}
		}
		for n, s := range []fleet.Server{{Version: "1.0.0", SeenAt: now}, {Version: "1.0.0", SeenAt: now}, {Version: "1.1.0", SeenAt: now}, {Version: "0.9.0", SeenAt: now.Add(-fleet.ServerAway)}} {
			s.ID = fmt.Sprint(n)
			if err := w.s.Servers().Create(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		w.scrapes("muster_servers", `{version="1.0.0"} 2`, `{version="1.1.0"} 1`)
		w.scrapes("muster_incidents_open", `{category="rollout_stopped"} 0`, `{category="shared_identity"} 0`, `{category="upgrade_failed"} 0`, `{category="upgrade_rollback_failed"} 0`, `{category="upgrade_stalled"} 2`, `{category="version_rolled_back"} 0`)
		if got := w.scrape("muster_agents"); !strings.Contains(got, `{status="online"} 2`) || !strings.Contains(got, `{status="degraded"} 1`) ||
			!strings.Contains(got, `{status="enrolling"} 1`) || !strings.Contains(got, `{status="offline"} 0`) {
			t.Errorf("agents are\n%s", got)
		}
	})
}

func TestUploadsAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for id, u := range map[string]fleet.Upload{
			"whole": {Status: fleet.UploadReady, Size: 7, Chunks: []fleet.Chunk{{Size: 4, Key: "a"}, {Size: 3, Key: "b"}}},
			"half":  {Status: fleet.UploadAwaiting, Size: 9, Chunks: []fleet.Chunk{{Size: 5, Key: "c"}, {Size: 4}}},
			"begun": {Status: fleet.UploadAwaiting, Size: 4, Chunks: []fleet.Chunk{{Size: 4}}},
			"bad":   {Status: fleet.UploadError},
			"gone":  {Status: fleet.UploadDeleted},
		} {
			u.ID = id
			if err := w.s.Uploads().Create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
		}
		w.scrapes("muster_uploads{", `state="stored"} 1`, `state="unfinished"} 2`)
		w.scrapes("muster_uploads_bytes{", `state="stored"} 7`, `state="unfinished"} 5`)
	})
}

// away is a store that does not answer for agents, and counts the attempts.
type away struct {
	store.Store
	asked int
}

func (a *away) Policies() store.Collection[fleet.Policy] {
	a.asked++
	return silent{}
}

type silent struct{ store.Collection[fleet.Policy] }

func (silent) List(context.Context, int, int) ([]fleet.Policy, int, error) {
	return nil, 0, fleet.Errorf(fleet.Unavailable, "the store is away")
}

func TestStoreUpIsZeroDuringOutage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.scrapes("muster_store_up", "1")
		a := &away{Store: w.s}
		w.Metrics = metrics.New(a, w.events, nil)
		for range 5 {
			w.scrapes("muster_store_up", "0")
		}
		w.scrapes("muster_agents")
		if a.asked != 1 {
			t.Errorf("six scrapes caused %d reads", a.asked)
		}
		if w.scrape("go_goroutines") == "" {
			t.Error("metrics that need no store are absent too")
		}
	})
}
