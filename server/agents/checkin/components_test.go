package checkin_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// reports returns a check-in with these components, of a name and a version each.
func reports(details *agentapi.UpgradeDetails, namesAndVersions ...string) agentapi.CheckinRequest {
	var list []agentapi.Component
	for i := 0; i < len(namesAndVersions); i += 2 {
		c := agentapi.Component{ID: namesAndVersions[i], Type: "systemd", Status: "HEALTHY"}
		c.Name, c.Runtime, c.Version = namesAndVersions[i], "systemd", namesAndVersions[i+1]
		list = append(list, c)
	}
	list[0].UpgradeDetails = details
	b, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return agentapi.CheckinRequest{Components: b}
}

// types returns the types of events with the component that each is about.
func types(events []fleet.Event) (out []string) {
	for _, e := range events {
		var data struct{ Component string }
		_ = json.Unmarshal(e.Data, &data) // some have none
		out = append(out, strings.TrimSpace(e.Type+" "+data.Component))
	}
	return out
}

func TestReportsOfComponentsAreEventsAndEndTheirUpgrades(t *testing.T) {
	w := newWorld(t)
	w.must(w.store.Packages().Create(t.Context(), fleet.Package{File: "web", Version: "2.5.0", Component: "web", OS: "linux", Arch: "amd64"}))
	w.checkin(reports(nil, "web", "2.4.0", "db", "15.0.0")).parked().leave()
	if got := types(w.events(0)); !slices.Equal(got[1:], []string{"agent.component web", "agent.component db"}) { // after the status
		t.Errorf("events of the first report are %v", got)
	}
	up, err := w.actions.Upgrade(t.Context(), action.UpgradeOrder{
		Component: "web", UpgradeRequest: fleet.UpgradeRequest{Version: "2.5.0"}, AgentIDs: []string{agentID}, Actor: "ann",
	})
	w.must(err)
	token := w.checkin(reports(nil, "web", "2.4.0", "db", "15.0.0")).delivers(up.ID).AckToken
	n := len(w.events(0))
	send := func(what string, req agentapi.CheckinRequest, want ...string) {
		t.Helper()
		req.AckToken = token
		revision := w.agent().Revision
		w.checkin(req).parked().leave()
		news := w.events(n)
		n += len(news)
		if got := types(news); !slices.Equal(got, want) {
			t.Errorf("%s: events are %v, want %v", what, got, want)
		}
		if what == "the same" && w.agent().Revision != revision {
			t.Error("a report that repeats the last one writes the document")
		}
	}
	details := agentapi.UpgradeDetails{TargetVersion: "2.5.0", ActionID: up.ID, State: agentapi.UpgradeDownloading}
	send("download", reports(&details, "web", "2.4.0", "db", "15.0.0"), "agent.component web")
	send("the same", reports(&details, "web", "2.4.0", "db", "15.0.0"))
	details.State = agentapi.UpgradeWatching
	send("observed", reports(&details, "web", "2.5.0", "db", "15.0.0"), "agent.component web")
	send("done", reports(nil, "web", "2.5.0", "db", "15.0.0"), "agent.component web", "action.result")
	if a := w.agent(); a.ComponentUpgrades["web"].UpgradedAt == nil || a.Upgrading() || a.UpgradeActionID != "" {
		t.Errorf("web's upgrade is %+v, the agent's own is by %q", a.ComponentUpgrades["web"], a.UpgradeActionID)
	}
	// The acknowledgement is lost; the result is there all the same.
	if r, err := w.store.Results().Get(t.Context(), up.ID, agentID); err != nil || r.Error != "" || r.Message != "web upgraded to 2.5.0" {
		t.Errorf("the result is %+v, %v", r, err)
	}

	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("c%d", i), "1.0.0")
	}
	send("many", reports(nil, many...), "agent.component")
}
