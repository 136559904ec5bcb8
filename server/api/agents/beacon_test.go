package agents_test

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// eventTypes returns the types of the events about an agent's upgrade and watch.
func eventTypes(t *testing.T, s *apptest.Server, a *apptest.Agent) (types []string) {
	t.Helper()
	events, err := s.Store.Events().After(t.Context(), 0, 1_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Subject == a.ID && (e.Type == fleet.EventAgentUpgrade || e.Type == fleet.EventAgentWatch) {
			types = append(types, e.Type)
		}
	}
	return types
}

func TestBeaconsReportAnUpgradeWithoutTheAgent(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64 // of the real clock
	s := apptest.Start(t, quick, func(o *app.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	s.Publisher().Publish("1.1.0")
	a := s.Enroll("web-01", "1.0.0")
	id := upgrade(t, s, a, "1.1.0")
	a.MustCheckin(nil)
	a.MustCheckin(apptest.Details(id, "1.1.0", agentapi.UpgradeRestarting))
	before := len(eventTypes(t, s, a))

	// The watcher reports the new version before the agent checks in.
	a.Beacon(apptest.Beacon(id, agentapi.BeaconWatching))
	a.Beacon(apptest.Beacon(id, agentapi.BeaconWatching))
	got := seen(t, s, a)
	if w := got.Watch; w == nil || w.Stage != agentapi.BeaconWatching || w.From != "1.0.0" || w.To != "1.1.0" || *w.ActionId != id ||
		!w.Agent.Alive || *w.Agent.State != "healthy" || *w.Waiting == "" || w.Diagnosis != nil || w.ReceivedAt.IsZero() {
		t.Fatalf("the API shows the watch %+v", got.Watch)
	}
	if n := eventTypes(t, s, a)[before:]; !slices.Equal(n, []string{fleet.EventAgentWatch}) {
		t.Errorf("two beacons of one phase made the events %v", n)
	}

	// The agent dies. Two minutes later only the watcher reports.
	ahead.Store(int64(2 * time.Minute))
	dead := apptest.Beacon(id, agentapi.BeaconWatching)
	dead.Agent = agentapi.BeaconAgent{Crashes: 2}
	a.Beacon(dead)
	if w := seen(t, s, a).Watch; w.Diagnosis == nil || w.Diagnosis.Code != fleet.DiagnosisAgentDown || w.Agent.Alive || w.Agent.Crashes != 2 {
		t.Errorf("while the agent is down the watch is %+v", w)
	}
	if n := len(eventTypes(t, s, a)); n != before+1 {
		t.Errorf("beacons of the same stage made %d events", n-before)
	}

	// The watcher rolls back. The agent does not check in.
	back := apptest.Beacon(id, agentapi.BeaconRollingBack)
	a.Beacon(back)
	got = seen(t, s, a)
	if got.UpgradeStatus == nil || *got.UpgradeStatus != fleet.UpgradeRolledBack || got.UpgradeStartedAt != nil || got.UpgradedAt != nil ||
		*got.UpgradeDetails.Metadata.Reason != "it crashed 3 times" || *got.UpgradeDetails.Metadata.ReasonCode != "crash_loop" {
		t.Errorf("the API shows %+v", got)
	}
	actions := apptest.Decode[adminapi.ActionStatusList](t, s.Admin(http.MethodGet, "/api/fleet/agents/action_status", nil)).Items
	if actions[0].Status != adminapi.FAILED || actions[0].LatestErrors[0].Error != "it crashed 3 times" {
		t.Errorf("its action is %+v", actions[0])
	}
	back.Phase = agentapi.BeaconRolledBack
	a.Beacon(back)
	a.Beacon(back)
	if n := eventTypes(t, s, a)[before+1:]; !slices.Equal(n, []string{fleet.EventAgentWatch, fleet.EventAgentUpgrade, fleet.EventAgentWatch}) {
		t.Errorf("the rollback made the events %v", n)
	}
	ahead.Store(int64(10 * time.Minute))
	if w := seen(t, s, a).Watch; w.Diagnosis == nil || w.Diagnosis.Code != fleet.DiagnosisRolledBack {
		t.Errorf("with an agent silent since the rollback the watch is %+v", w)
	}

	// The agent checks in after all, and then a late beacon arrives.
	details := apptest.Details(id, "1.1.0", agentapi.UpgradeRollback)
	details.Metadata.Reason, details.Metadata.ReasonCode = "in the agent's words", "crash_loop"
	a.MustCheckin(details)
	a.Beacon(apptest.Beacon(id, agentapi.BeaconWatching))
	got = seen(t, s, a)
	if *got.UpgradeStatus != fleet.UpgradeRolledBack || *got.UpgradeDetails.Metadata.Reason != "in the agent's words" || got.Watch.Stage != agentapi.BeaconRolledBack || got.Watch.Diagnosis != nil {
		t.Errorf("at the end the API shows %+v with %+v", got, got.Watch)
	}
}

func TestWatcherKeyIsReplacedAndRevokedWithTheAgent(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	enrol := func(id string) *apptest.Agent {
		t.Helper()
		req := agentapi.EnrollRequest{Type: "PERMANENT", ID: id, ReplaceToken: "kept by the host", Metadata: agentapi.EnrollMetadata{Local: apptest.Metadata(id, "1.0.0")}}
		got := apptest.Decode[agentapi.EnrollResponse](t, s.Agents(http.MethodPost, agentapi.PathEnroll, s.Token, req))
		return &apptest.Agent{ID: id, Key: got.Item.AccessAPIKey, WatcherKey: got.Item.WatcherAPIKey}
	}
	status := func(a *apptest.Agent) (int, string) {
		got := s.Agents(http.MethodPost, a.Path("beacon"), a.WatcherKey, apptest.Beacon("", agentapi.BeaconWatching))
		return got.Status, got.ErrorBody().Code
	}
	a := enrol("web-01")
	if a.WatcherKey == "" || a.WatcherKey == a.Key {
		t.Fatalf("the watcher's key is %q", a.WatcherKey)
	}
	cred, err := fleet.ParseCredential(a.WatcherKey)
	if err != nil {
		t.Fatal(err)
	}
	if doc := s.Fleet(a.ID); doc.WatcherKeyID != cred.ID || doc.WatcherKeyHash != cred.Hash() {
		t.Errorf("stored is %+v", doc)
	}
	if n, _ := status(a); n != http.StatusNoContent {
		t.Errorf("a beacon answered %d", n)
	}

	again := enrol("web-01")
	if n, code := status(a); n != http.StatusUnauthorized || code != "ErrUnauthorized" {
		t.Errorf("after another enrolment the old key answered %d %s", n, code)
	}
	if n, _ := status(again); n != http.StatusNoContent {
		t.Errorf("its new key answered %d", n)
	}

	s.Admin(http.MethodPost, "/api/fleet/agents/"+a.ID+"/unenroll", map[string]bool{"revoke": true})
	if n, code := status(again); n != http.StatusUnauthorized || code != "ErrAgentInactive" {
		t.Errorf("the watcher of a revoked agent answered %d %s", n, code)
	}
	if doc := s.Fleet(a.ID); doc.WatcherKeyHash != "" {
		t.Error("the hash of its key is still stored")
	}
}
