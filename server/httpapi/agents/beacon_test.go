package agents_test

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/replica"
	"github.com/muster-fleet/muster/server/replica/replicatest"
)

// told are the types of the events about an agent's upgrade and watch.
func told(t *testing.T, s *replicatest.Server, a *replicatest.Agent) (types []string) {
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

func TestAWatcherTellsWhatTheAgentCannot(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64 // of the real clock
	s := replicatest.Start(t, quick, func(o *replica.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	s.Publisher().Publish("1.1.0")
	a := s.Enroll("web-01", "1.0.0")
	id := upgrade(t, s, a, "1.1.0")
	a.MustCheckin(nil)
	a.MustCheckin(replicatest.Details(id, "1.1.0", agentapi.UpgradeRestarting))
	before := len(told(t, s, a))

	// The new version is up, says its watcher; the agent has not said so yet.
	a.Beacon(replicatest.Beacon(id, agentapi.BeaconWatching))
	a.Beacon(replicatest.Beacon(id, agentapi.BeaconWatching))
	got := seen(t, s, a)
	if w := got.Watch; w == nil || w.Stage != adminapi.WatchWatching || w.From != "1.0.0" || w.To != "1.1.0" || *w.ActionId != id ||
		!w.Agent.Alive || *w.Agent.State != "healthy" || *w.Waiting == "" || w.Diagnosis != nil || w.ReceivedAt.IsZero() {
		t.Fatalf("people see the watch %+v", got.Watch)
	}
	if n := told(t, s, a)[before:]; !slices.Equal(n, []string{fleet.EventAgentWatch}) {
		t.Errorf("two beacons of one stage made the events %v", n)
	}

	// It dies. Two minutes later the host is there, and the agent is not.
	ahead.Store(int64(2 * time.Minute))
	dead := replicatest.Beacon(id, agentapi.BeaconWatching)
	dead.Agent = agentapi.BeaconAgent{Crashes: 2}
	a.Beacon(dead)
	if w := seen(t, s, a).Watch; w.Diagnosis == nil || w.Diagnosis.Code != adminapi.DiagnosisAgentDown || w.Agent.Alive || w.Agent.Crashes != 2 {
		t.Errorf("while it is down people see %+v", w)
	}
	if n := len(told(t, s, a)); n != before+1 {
		t.Errorf("what the watcher sees made an event, without a new stage: %d", n-before)
	}

	// Its watcher decides. The agent never checks in again.
	back := replicatest.Beacon(id, agentapi.BeaconRollingBack)
	a.Beacon(back)
	got = seen(t, s, a)
	if got.UpgradeStatus == nil || *got.UpgradeStatus != adminapi.RolledBack || got.UpgradeStartedAt != nil || got.UpgradedAt != nil ||
		*got.UpgradeDetails.Metadata.Reason != "it crashed 3 times" || *got.UpgradeDetails.Metadata.ReasonCode != "crash_loop" {
		t.Errorf("people see %+v", got)
	}
	actions := replicatest.Decode[adminapi.ActionStatusList](t, s.Admin(http.MethodGet, "/api/fleet/agents/action_status", nil)).Items
	if actions[0].Status != adminapi.FAILED || actions[0].LatestErrors[0].Error != "it crashed 3 times" {
		t.Errorf("its action is %+v", actions[0])
	}
	back.Stage = agentapi.BeaconRolledBack
	a.Beacon(back)
	a.Beacon(back)
	if n := told(t, s, a)[before+1:]; !slices.Equal(n, []string{fleet.EventAgentWatch, fleet.EventAgentUpgrade, fleet.EventAgentWatch}) {
		t.Errorf("the rollback made the events %v", n)
	}
	ahead.Store(int64(10 * time.Minute))
	if w := seen(t, s, a).Watch; w.Diagnosis == nil || w.Diagnosis.Code != adminapi.DiagnosisRolledBack {
		t.Errorf("silent since the rollback, people see %+v", w)
	}

	// It does after all, and a late beacon comes behind it.
	details := replicatest.Details(id, "1.1.0", agentapi.UpgradeRollback)
	details.Metadata.Reason, details.Metadata.ReasonCode = "in the agent's words", "crash_loop"
	a.MustCheckin(details)
	a.Beacon(replicatest.Beacon(id, agentapi.BeaconWatching))
	got = seen(t, s, a)
	if *got.UpgradeStatus != adminapi.RolledBack || *got.UpgradeDetails.Metadata.Reason != "in the agent's words" || got.Watch.Stage != adminapi.WatchRolledBack || got.Watch.Diagnosis != nil {
		t.Errorf("at the end people see %+v with %+v", got, got.Watch)
	}
}

func TestTheWatchersKeyGoesWithTheAgent(t *testing.T) {
	t.Parallel()
	s := replicatest.Start(t, quick)
	enrol := func(id string) *replicatest.Agent {
		t.Helper()
		req := agentapi.EnrollRequest{Type: "PERMANENT", ID: id, ReplaceToken: "kept by the host", Metadata: agentapi.EnrollMetadata{Local: replicatest.Metadata(id, "1.0.0")}}
		got := replicatest.Decode[agentapi.EnrollResponse](t, s.Agents(http.MethodPost, agentapi.PathEnroll, s.Token, req))
		return &replicatest.Agent{ID: id, Key: got.Item.AccessAPIKey, WatcherKey: got.Item.WatcherAPIKey}
	}
	status := func(a *replicatest.Agent) (int, string) {
		got := s.Agents(http.MethodPost, a.Path("beacon"), a.WatcherKey, replicatest.Beacon("", agentapi.BeaconWatching))
		return got.Status, got.Refusal().Code
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
		t.Errorf("the key of before the host enrolled again answered %d %s", n, code)
	}
	if n, _ := status(again); n != http.StatusNoContent {
		t.Errorf("its new key answered %d", n)
	}

	s.Admin(http.MethodPost, "/api/fleet/agents/"+a.ID+"/unenroll", map[string]bool{"revoke": true})
	if n, code := status(again); n != http.StatusUnauthorized || code != "ErrAgentInactive" {
		t.Errorf("the watcher of an agent that was put out answered %d %s", n, code)
	}
	if doc := s.Fleet(a.ID); doc.WatcherKeyHash != "" {
		t.Error("its hash is still there")
	}
}
