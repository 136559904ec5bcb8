package replica_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/outage/outagetest"
	"github.com/muster-fleet/muster/server/replica"
	"github.com/muster-fleet/muster/server/replica/replicatest"
)

func status(t *testing.T, s *replicatest.Server) (agentapi.Status, int) {
	t.Helper()
	got := s.Agents(http.MethodGet, agentapi.PathStatus, "", nil)
	var status agentapi.Status
	if err := json.Unmarshal(got.Body, &status); err != nil {
		t.Fatalf("the status is %s", got.Body)
	}
	return status, got.Status
}

// The store goes away in the middle of an upgrade, the server is stopped, and both
// come back: the agent has noticed nothing, and nothing that it said is lost.
func TestAnOutageAndARestart(t *testing.T) {
	var db *outagetest.Store
	behind := func(o *replica.Options) {
		db = &outagetest.Store{Store: o.Store}
		o.Store = db
	}
	s := replicatest.Start(t, behind)
	s.Publisher().Publish("1.1.0")
	a := s.Enroll("web-01", "1.0.0")
	id := *replicatest.Decode[adminapi.UpgradeResponse](t, s.Admin(http.MethodPost, "/api/fleet/agents/"+a.ID+"/upgrade", map[string]string{"version": "1.1.0"})).ActionId
	if got := a.MustCheckin(nil); len(got.Actions) != 1 {
		t.Fatalf("the agent was given %+v", got)
	}
	db.Set(outagetest.Hanging)
	replicatest.Eventually(t, "the server to see it", func() string {
		if got, code := status(t, s); code != http.StatusServiceUnavailable || got.Status != agentapi.StatusDegraded {
			return got.Status
		}
		return ""
	})
	kept := func(n string) {
		replicatest.Eventually(t, n+" kept messages", func() string {
			got, _ := status(t, s)
			if !strings.Contains(got.Reason, "; "+n+" messages") {
				return got.Reason
			}
			return ""
		})
	}
	// Each phase comes in a check-in of its own, which ends the one before.
	answers := make(chan poll, 3)
	for i, state := range []agentapi.UpgradeState{agentapi.UpgradeDownloading, agentapi.UpgradeExtracting, agentapi.UpgradeReplacing} {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), replicatest.Patience)
			defer cancel()
			resp, err := a.Checkin(ctx, s, replicatest.Details(id, "1.1.0", state))
			answers <- poll{resp: resp, err: err}
		}()
		kept(string(rune('1' + i)))
	}
	if got := a.Ack("", id); got.Status != http.StatusOK {
		t.Errorf("the acknowledgement answered %d %s", got.Status, got.Body)
	}
	a.Beacon(replicatest.Beacon(id, agentapi.BeaconWatching))
	kept("5")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := <-answers; got.err != nil || len(got.resp.Actions) != 0 {
			t.Errorf("a check-in was answered %+v, %v", got.resp, got.err)
		}
	}

	again := replicatest.StartOn(t, s.Data, behind)
	again.AdminKey = s.AdminKey
	replicatest.Eventually(t, "what was kept to be written", func() string {
		got, _ := status(t, again)
		return got.Reason
	})
	doc := again.Fleet(a.ID)
	if doc.UpgradeDetails == nil || doc.UpgradeDetails.State != agentapi.UpgradeReplacing || doc.Watch == nil {
		t.Errorf("the agent is in %+v, watch %+v", doc.UpgradeDetails, doc.Watch)
	}
	if _, err := again.Store.Results().Get(t.Context(), id, a.ID); err != nil {
		t.Errorf("the result: %v", err)
	}
	var phases []string
	events, err := again.Store.Events().After(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		for _, phase := range []string{"DOWNLOADING", "EXTRACTING", "REPLACING"} {
			if e.Type == fleet.EventAgentUpgrade && strings.Contains(string(e.Data), phase) {
				phases = append(phases, phase)
			}
		}
	}
	if got := strings.Join(phases, " "); got != "DOWNLOADING EXTRACTING REPLACING" {
		t.Errorf("the stream tells of %s", got)
	}
	metrics := string(again.Admin(http.MethodGet, "/metrics", nil).Body)
	for _, line := range []string{"muster_store_available 1", "muster_outage_journal_messages 0", "muster_outage_journal_bytes 0", "muster_outage_messages_dropped_total 0"} {
		if !strings.Contains(metrics, "\n"+line+"\n") {
			t.Errorf("the metrics do not have %q", line)
		}
	}
}
