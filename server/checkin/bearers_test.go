package checkin_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/action"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// Two programs check in as one agent. The document follows the first alone, each check-in counts as a
// sign of life, and an order is refused with both names.
func TestDocumentOfTwoBearersFollowsTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		checkin := func(host, version, status string) {
			t.Helper()
			w.checkin(agentapi.CheckinRequest{
				Status: status, LocalMeta: json.RawMessage(strings.ReplaceAll(metadata(version), `"web"`, `"`+host+`"`)),
				Instance: &agentapi.Instance{BootID: "boot-" + host, ProcessID: "process-" + host},
			}).parked().leave()
			time.Sleep(10 * time.Second)
		}
		checkin("web", "1.0.0", "online")
		for range 10 {
			checkin("copy", "1.0.1", "degraded")
			checkin("web", "1.0.0", "online")
		}
		checkin("copy", "1.0.1", "degraded")
		a := w.agent()
		if a.SharedSince == nil || a.Version != "1.0.0" || a.Hostname() != "web" || a.Last.Status != "online" || time.Since(*a.Last.At) > time.Minute {
			t.Errorf("the agent is %+v, last seen %+v", a, a.Last)
		}
		_, err := w.actions.Upgrade(t.Context(), action.UpgradeOrder{UpgradeRequest: fleet.UpgradeRequest{Version: "1.1.0"}, AgentIDs: []string{agentID}, Single: true, Actor: "ann"})
		if err == nil || !strings.Contains(err.Error(), "web and copy") {
			t.Errorf("an order is answered with %v", err)
		}
		events, err := w.store.Events().After(t.Context(), 0, 1000)
		w.must(err)
		shared := 0
		for _, e := range events {
			if e.Type == fleet.EventAgentShared {
				shared++
			}
			if e.Type == fleet.EventAgentStatus && strings.Contains(string(e.Data), "degraded") && e.At.After(*a.SharedSince) {
				t.Errorf("the status of the copy is published: %s", e.Data)
			}
		}
		if shared == 0 {
			t.Error("nobody is told")
		}
	})
}
