package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/storehealth/storehealthtest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func status(t *testing.T, s *apptest.Server) (agentapi.Status, int) {
	t.Helper()
	got := s.Agents(http.MethodGet, agentapi.PathStatus, "", nil)
	var status agentapi.Status
	if err := json.Unmarshal(got.Body, &status); err != nil {
		t.Fatalf("the status is %s", got.Body)
	}
	return status, got.Status
}

// The store goes away during an upgrade, the server is restarted, and the store comes
// back. The waiting agent stays parked, and what the upgraded one sends again is stored
// once.
func TestReportsRefusedDuringAnOutageAreAcceptedAfterARestart(t *testing.T) {
	var db *storehealthtest.Store
	behind := func(o *app.Options) {
		db = storehealthtest.New(o.Store)
		o.Store = db
	}
	s := apptest.Start(t, behind)
	s.Publisher().Publish("1.1.0")
	a, waiting := s.Enroll("web-01", "1.0.0"), s.Enroll("web-02", "1.0.0")
	id := *apptest.Decode[adminapi.UpgradeResponse](t, s.Admin(http.MethodPost, "/api/fleet/agents/"+a.ID+"/upgrade", map[string]string{"version": "1.1.0"})).ActionId
	if got := a.MustCheckin(nil); len(got.Actions) != 1 {
		t.Fatalf("the agent was given %+v", got)
	}
	answers := make(chan poll, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), apptest.WaitLimit)
		defer cancel()
		resp, err := waiting.Checkin(ctx, s, nil)
		answers <- poll{resp: resp, err: err}
	}()
	s.Parked(waiting)

	db.Set(storehealthtest.Hanging)
	apptest.Eventually(t, "the server to see it", func() string {
		if got, code := status(t, s); code != http.StatusServiceUnavailable || got.Status != agentapi.StatusDegraded {
			return got.Status
		}
		return ""
	})
	if metrics := string(s.Admin(http.MethodGet, "/metrics", nil).Body); !strings.Contains(metrics, "\nmuster_store_available 0\n") {
		t.Error("the metrics do not say that the store is away")
	}
	done := apptest.Details(id, "1.1.0", agentapi.UpgradeReplacing)
	if got := s.Agents(http.MethodPost, a.Path("checkin"), a.Key, agentapi.CheckinRequest{Status: "online", UpgradeDetails: done}); got.Status != http.StatusServiceUnavailable {
		t.Errorf("a changed check-in answered %d %s", got.Status, got.Body)
	}
	if got := a.Ack("", id); got.Status != http.StatusServiceUnavailable {
		t.Errorf("the acknowledgement answered %d %s", got.Status, got.Body)
	}
	beacon := apptest.Beacon(id, agentapi.BeaconWatching)
	if got := s.Agents(http.MethodPost, a.Path("beacon"), a.WatcherKey, beacon); got.Status != http.StatusServiceUnavailable {
		t.Errorf("the beacon answered %d %s", got.Status, got.Body)
	}
	select {
	case got := <-answers:
		t.Errorf("the parked agent was answered %+v, %v", got.resp, got.err)
	default:
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := <-answers; got.err != nil || len(got.resp.Actions) != 0 {
		t.Errorf("the parked agent was answered %+v, %v", got.resp, got.err)
	}

	again := apptest.StartOn(t, s.Data, behind)
	again.AdminKey = s.AdminKey
	post := func(call, key string, body any) {
		t.Helper()
		if got := again.Agents(http.MethodPost, a.Path(call), key, body); got.Status >= http.StatusBadRequest {
			t.Fatalf("%s answered %d %s", call, got.Status, got.Body)
		}
	}
	ack := agentapi.AckRequest{Events: []agentapi.AckEvent{{Type: agentapi.AckType, Subtype: agentapi.AckSubtype, AgentID: a.ID, ActionID: id}}}
	post("acks", a.Key, ack)
	post("acks", a.Key, ack) // the answer to the first was lost
	ctx, hangUp := context.WithCancel(t.Context())
	parked := make(chan error, 1)
	go func() {
		_, err := a.Checkin(ctx, again, done)
		parked <- err
	}()
	apptest.Eventually(t, "the phase to be stored", func() string {
		if again.Fleet(a.ID).UpgradeDetails == nil {
			return "the agent has no details"
		}
		return ""
	})
	hangUp()
	if err := <-parked; !errors.Is(err, context.Canceled) {
		t.Errorf("the poll ended with %v", err)
	}
	post("beacon", a.WatcherKey, beacon)
	doc := again.Fleet(a.ID)
	if doc.UpgradeDetails == nil || doc.UpgradeDetails.State != agentapi.UpgradeReplacing || doc.Watch == nil {
		t.Errorf("the agent is in %+v, watch %+v", doc.UpgradeDetails, doc.Watch)
	}
	if r, err := again.Store.Results().Get(t.Context(), id, a.ID); err != nil || r.Error != "" {
		t.Errorf("the result is %+v: %v", r, err)
	}
	phases := 0
	events, err := again.Store.Events().After(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Type == fleet.EventAgentUpgrade && strings.Contains(string(e.Data), string(agentapi.UpgradeReplacing)) {
			phases++
		}
	}
	if phases != 1 {
		t.Errorf("the event stream has the phase %d times", phases)
	}
}
