package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
)

// A client that gives up, and a server that is restarted, leave no order half done, and the audit
// trail says what was done.
func TestOrderOfAClientThatGaveUpIsCarriedOutAfterARestart(t *testing.T) {
	const fleetSize = 3000
	dir, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	first := apptest.StartOn(t, dir)
	var enrolling errgroup.Group
	enrolling.SetLimit(64)
	for i := range fleetSize {
		id := fmt.Sprintf("agent-%05d", i)
		enrolling.Go(func() error {
			return first.Store.Agents().Create(context.Background(), fleet.Agent{
				ID: id, Type: "PERMANENT", Active: true, PolicyID: "default", AccessKeyID: "key-" + id, AccessKeyHash: "hash", EnrolledAt: time.Now(), Version: "1.0.0",
				LocalMetadata: apptest.Metadata(id, "1.0.0"), Tags: []string{},
			})
		})
	}
	if err := enrolling.Wait(); err != nil {
		t.Fatal(err)
	}

	ctx, giveUp := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, first.AdminURL+"/api/fleet/agents/bulk_unenroll", strings.NewReader(`{"agents":"*","revoke":true}`))
		if err == nil {
			for name, value := range map[string]string{"Authorization": "ApiKey " + first.AdminKey, "kbn-xsrf": "x", "Content-Type": "application/json"} {
				req.Header.Set(name, value)
			}
			var resp *http.Response
			if resp, err = first.Client.Do(req); err == nil {
				resp.Body.Close()
			}
		}
		answered <- err
	}()
	apptest.Eventually(t, "the accepted order", func() string {
		if entries, _, err := first.Store.AcceptedOrders().List(t.Context(), 0, 0); err != nil || len(entries) != 1 {
			return fmt.Sprintf("%d orders, %v", len(entries), err)
		}
		return ""
	})
	giveUp()
	if err := <-answered; err == nil {
		t.Error("the client was answered before it gave up")
	}
	key := first.AdminKey
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}

	second := apptest.StartOn(t, dir)
	second.AdminKey = key
	apptest.Eventually(t, "the whole order", func() string {
		got := apptest.Decode[adminapi.ActionStatusList](t, second.Admin(http.MethodGet, "/api/fleet/agents/action_status", nil)).Items
		if len(got) == 1 && got[0].Preparing == nil && got[0].Status == "COMPLETE" && got[0].NbAgentsAck == fleetSize && got[0].NbAgentsActionCreated == fleetSize {
			return ""
		}
		text, _ := json.Marshal(got)
		return string(text)
	})
	counts := apptest.Decode[adminapi.AgentStatusResponse](t, second.Admin(http.MethodGet, "/api/fleet/agent_status", nil)).Results
	if counts.Unenrolled != fleetSize || counts.Active != 0 {
		t.Errorf("the counts are %+v", counts)
	}
	apptest.Eventually(t, "what was done in the audit trail", func() string {
		trail := apptest.Decode[adminapi.AuditList](t, second.Admin(http.MethodGet, "/api/v1/audit?verb=agent.revoke", nil)).Items
		if len(trail) == 2 && strings.Contains(trail[1].Text, "ordered the unenrolment, with revoked keys, of 3000 agents") &&
			strings.Contains(trail[0].Text, "is carried out: the unenrolment, with revoked keys, of 3000 of 3000 agents") {
			return ""
		}
		text, _ := json.Marshal(trail)
		return string(text)
	})
}
