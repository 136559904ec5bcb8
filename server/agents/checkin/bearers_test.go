package checkin_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/agents/agentcache"
	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Two programs check in as one agent. The document follows the first alone, each check-in counts as a
// sign of life, and an order is refused with both names.
func TestDocumentOfTwoBearersFollowsTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		checksIn := func(host, version, status string) {
			t.Helper()
			w.checkin(agentapi.CheckinRequest{
				Status: status, LocalMeta: json.RawMessage(strings.ReplaceAll(metadata(version), `"web"`, `"`+host+`"`)),
				Instance: &agentapi.Instance{BootID: "boot-" + host, ProcessID: "process-" + host},
			}).parked().leave()
			time.Sleep(10 * time.Second)
		}
		checksIn("web", "1.0.0", "online")
		for range 10 {
			checksIn("copy", "1.0.1", "degraded")
			checksIn("web", "1.0.0", "online")
		}
		checksIn("copy", "1.0.1", "degraded")
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

// machineCheckin is a check-in of a machine with an id.
func machineCheckin(machine string) agentapi.CheckinRequest {
	return agentapi.CheckinRequest{
		Status: "online", LocalMeta: json.RawMessage(strings.ReplaceAll(metadata("1.0.0"), `"hostname"`, `"id":"`+machine+`","hostname"`)),
		Instance: &agentapi.Instance{BootID: "boot-" + machine, ProcessID: "process-" + machine},
	}
}

// A host was installed again and kept the agent's state: what is pending is delivered once it was alone
// for a minute, not before. The document stays that of the earlier machine until then.
func TestOrderWaitsUntilNewMachineIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.checkin(machineCheckin("m1")).parked().leave()
		ordered := w.upgrade()
		w.fed(1)
		time.Sleep(time.Hour)
		began := time.Now()
		for {
			p := w.checkin(machineCheckin("m2"))
			<-p.done
			got := p.response()
			if len(got.Actions) > 0 {
				if got.Actions[0].ID != ordered.ID {
					t.Fatalf("delivered is %+v", got.Actions)
				}
				break
			}
			if a := w.agent(); time.Since(began) < time.Minute && a.Host().Host.ID != "m1" || time.Since(*a.Last.At) > time.Minute {
				t.Fatalf("after %s the document is that of %s, seen %s", time.Since(began), a.Host().Host.ID, a.Last.At)
			}
			if got.AckToken != "" || time.Since(began) > 3*time.Minute {
				t.Fatalf("after %s the answer is %+v", time.Since(began), got)
			}
			time.Sleep(time.Second)
		}
		a := w.agent()
		if took := time.Since(began); took < time.Minute || took > 2*time.Minute || a.Host().Host.ID != "m2" {
			t.Errorf("the order was delivered after %s to %s", took, a.Host().Host.ID)
		}
	})
}

// A reboot and a restart are of one machine, and get what is pending at once.
func TestRebootDoesNotDelayOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.checkin(machineCheckin("m1")).parked().leave()
		ordered := w.upgrade()
		w.fed(1)
		rebooted := machineCheckin("m1")
		rebooted.Instance = &agentapi.Instance{BootID: "another", ProcessID: "another"}
		began := time.Now()
		w.checkin(rebooted).delivers(ordered.ID)
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s", took)
		}
	})
}

// While two machines have one identity, an order is delivered to neither: also not to the one whose
// poll was parked at another server before the second came, and not when they are found to be two. A
// cancellation is.
func TestOrderIsDeliveredToNeitherOfTwoMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		parker := &checkin.Blocking{}
		defer func() { _ = parker.Close(context.Background()) }()
		other := &checkin.Service{ // another server with the same store
			Agents: w.store.Agents(), Actions: w.store.Actions(), Results: w.store.Results(), Pending: w.feed, Parker: parker, Events: w.service.Events, Log: w.service.Log,
			Generation: generation, Health: w.service.Health, LastSeen: w.service.LastSeen,
			Cache: agentcache.New(func(func([]store.AgentChange)) bool { return false }, w.service.Health.Away),
		}
		first := make(chan string, 1)
		agent := w.agent()
		go func() {
			rec := httptest.NewRecorder()
			w.must(other.Handle(rec, httptest.NewRequest(http.MethodPost, "/", http.NoBody), agent, machineCheckin("m1"), checkin.Received{}))
			first <- rec.Body.String()
		}()
		synctest.Wait()
		second := w.checkin(machineCheckin("m2")).parked()
		ordered := w.upgrade()
		w.fed(1)
		parker.Wake(agentID)
		synctest.Wait()
		select {
		case got := <-first:
			t.Fatalf("the first machine was answered %s", got)
		default:
		}
		<-second.done
		second.delivers()
		for range 30 {
			w.checkin(machineCheckin("m1")).parked().leave()
			time.Sleep(3 * time.Second)
			w.checkin(machineCheckin("m2")).parked().leave()
			time.Sleep(3 * time.Second)
		}
		if w.agent().SharedSince == nil {
			t.Fatal("they are not found")
		}
		if _, err := w.actions.Cancel(t.Context(), ordered.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		w.fed(2)
		if got := w.checkin(machineCheckin("m2")).response().Actions; len(got) != 1 || got[0].Type != agentapi.ActionCancel {
			t.Errorf("after the cancellation it gets %+v", got)
		}
		w.must(parker.Close(t.Context()))
		if got := <-first; strings.Contains(got, ordered.ID) {
			t.Errorf("the first machine was answered %s", got)
		}
	})
}
