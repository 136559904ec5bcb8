package admin_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func seen(t *testing.T, s *apptest.Server, a *apptest.Agent) adminapi.Agent {
	t.Helper()
	return apptest.Decode[adminapi.AgentItem](t, s.Admin(http.MethodGet, "/api/fleet/agents/"+a.ID, nil)).Item
}

func keeps(version string, left time.Duration) []agentapi.Rollback {
	return []agentapi.Rollback{{Version: version, ValidUntil: time.Now().UTC().Add(left).Truncate(time.Second)}}
}

func TestAgentRollsBackToAPreviousVersion(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	a := s.Enroll("web-01", "1.1.0")
	path := "/api/fleet/agents/" + a.ID + "/rollback"
	a.MustCheckin(nil)
	refused(t, "nothing kept", s.Admin("POST", path, nil), 400, "upgrade rollback not available for agent")
	if r := seen(t, s, a).Rollback; r == nil || r.Available || !strings.Contains(*r.Reason, "not available") {
		t.Errorf("the API shows %+v", r)
	}
	a.Kept = keeps("1.0.0", -time.Hour)
	a.MustCheckin(nil)
	refused(t, "kept too long ago", s.Admin("POST", path, nil), 400, "upgrade rollback window has expired")

	a.Kept = keeps("1.0.0", time.Hour)
	a.MustCheckin(nil)
	got := seen(t, s, a)
	if r := got.Rollback; r == nil || !r.Available || *r.Version != "1.0.0" || !r.ValidUntil.Equal(a.Kept[0].ValidUntil) || len(*got.Upgrade.Rollbacks) != 1 {
		t.Fatalf("the API shows %+v and %+v", r, got.Upgrade)
	}
	created := apptest.Decode[adminapi.ActionCreated](t, s.Admin("POST", path, nil))
	refused(t, "twice", s.Admin("POST", path, nil), 400, "already being rolled back to 1.0.0")
	given := a.MustCheckin(nil).Actions
	var data agentapi.UpgradeData
	if len(given) != 1 || given[0].ID != created.ActionId || given[0].Type != agentapi.ActionUpgrade || json.Unmarshal(given[0].Data, &data) != nil || data.Version != "1.0.0" || !data.Rollback {
		t.Fatalf("delivered is %+v", given)
	}
	if !given[0].Expiration.Equal(a.Kept[0].ValidUntil) {
		t.Errorf("it expires at %s, want the end of the version's validity", given[0].Expiration)
	}
	a.Ack("", created.ActionId)
	a.MustCheckin(apptest.Details(created.ActionId, "1.0.0", agentapi.UpgradeReplacing))
	if got := seen(t, s, a); got.Status != fleet.StatusUpdating || got.UpgradeRollback == nil || !*got.UpgradeRollback {
		t.Errorf("under way the API shows %+v", got)
	}
	a.Version, a.Kept = "1.0.0", []agentapi.Rollback{}
	a.MustCheckin(apptest.Details(created.ActionId, "1.0.0", agentapi.UpgradeWatching))
	a.MustCheckin(nil)
	got = seen(t, s, a)
	if got.Status != fleet.StatusOnline || got.Agent.Version != "1.0.0" || got.UpgradedAt == nil || got.UpgradeStatus != nil || got.UpgradeDetails != nil || got.Upgrade != nil {
		t.Errorf("at the end the API shows %+v", got)
	}
	list := apptest.Decode[adminapi.ActionStatusList](t, s.Admin("GET", "/api/fleet/agents/action_status", nil)).Items
	if len(list) != 1 || list[0].Status != adminapi.COMPLETE || list[0].Rollback == nil || !*list[0].Rollback || *list[0].CreatedBy != "first key" {
		t.Errorf("the action is %+v", list)
	}
	events, err := s.Store.Events().After(t.Context(), 0, 1_000)
	if err != nil || !slices.ContainsFunc(events, func(e fleet.Event) bool {
		return e.Type == "action.created" && e.Actor == "first key" && strings.Contains(string(e.Data), `"rollback":true`)
	}) {
		t.Errorf("no event names the actor: %v", err)
	}
}

func TestUpgradeIsRolledBackDuringItsWatch(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	a := s.Enroll("web-01", "1.0.0")
	up := apptest.Decode[adminapi.UpgradeResponse](t, s.Admin("POST", "/api/fleet/agents/"+a.ID+"/upgrade", map[string]string{"version": "1.1.0"}))
	a.MustCheckin(nil)
	a.Ack("", *up.ActionId)
	a.MustCheckin(apptest.Details(*up.ActionId, "1.1.0", agentapi.UpgradeDownloading))
	refused(t, "amid the download", s.Admin("POST", "/api/fleet/agents/"+a.ID+"/rollback", nil), 400, "already being upgraded to 1.1.0")
	a.Version = "1.1.0"
	a.MustCheckin(apptest.Details(*up.ActionId, "1.1.0", agentapi.UpgradeWatching))
	a.Beacon(apptest.Beacon(*up.ActionId, agentapi.BeaconWatching))
	if r := seen(t, s, a).Rollback; !r.Available || *r.Version != "1.0.0" || r.ValidUntil != nil {
		t.Fatalf("the API shows %+v", r)
	}

	back := apptest.Decode[adminapi.ActionCreated](t, s.Admin("POST", "/api/fleet/agents/"+a.ID+"/rollback", nil))
	if got := a.MustCheckin(apptest.Details(*up.ActionId, "1.1.0", agentapi.UpgradeWatching)); len(got.Actions) != 1 || got.Actions[0].ID != back.ActionId {
		t.Fatalf("delivered is %+v", got)
	}
	a.Ack("", back.ActionId)
	a.Version = "1.0.0"
	details := apptest.Details(*up.ActionId, "1.1.0", agentapi.UpgradeRollback)
	details.Metadata.Reason, details.Metadata.ReasonCode = "an operator asked for it", "manual"
	a.MustCheckin(details)
	got := seen(t, s, a)
	if got.Agent.Version != "1.0.0" || got.UpgradedAt == nil || got.UpgradeStartedAt != nil || got.UpgradeStatus != nil {
		t.Errorf("at the end the API shows %+v", got)
	}
	list := apptest.Decode[adminapi.ActionStatusList](t, s.Admin("GET", "/api/fleet/agents/action_status", nil)).Items
	if len(list) != 2 || list[0].ActionId != back.ActionId || list[0].Status != adminapi.COMPLETE ||
		list[1].Status != adminapi.FAILED || list[1].LatestErrors[0].Error != "an operator asked for it" {
		t.Errorf("the actions are %+v", list)
	}
}

func TestBulkRollbackMakesAnActionForEachVersion(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	enrol := func(host string, kept []agentapi.Rollback) *apptest.Agent {
		a := s.Enroll(host, "1.2.0")
		a.Kept = kept
		a.MustCheckin(nil)
		return a
	}
	a, b := enrol("web-01", keeps("1.0.0", time.Hour)), enrol("web-02", keeps("1.1.0", time.Hour))
	c, none := enrol("web-03", keeps("1.0.0", 2*time.Hour)), enrol("web-04", nil)
	ids := []string{a.ID, b.ID, c.ID, none.ID, "gone"}

	preview := apptest.Decode[adminapi.RollbackPreview](t, s.Admin("POST", "/api/v1/rollback_preview", map[string]any{"agents": ids}))
	if preview.Will != 3 || preview.Wont != 2 || *preview.Items[1].To != "1.1.0" || *preview.Items[2].To != "1.0.0" || !strings.Contains(*preview.Items[3].Reason, "not available") {
		t.Errorf("the preview is %+v", preview)
	}
	if got := seen(t, s, a); got.UpgradeStartedAt != nil {
		t.Error("the preview started the rollback")
	}
	got := apptest.Decode[adminapi.ActionsCreated](t, s.Admin("POST", "/api/fleet/agents/bulk_rollback", map[string]any{"agents": ids, "includeInactive": false}))
	list := apptest.Decode[adminapi.ActionStatusList](t, s.Admin("GET", "/api/fleet/agents/action_status", nil)).Items
	slices.Reverse(list)
	if len(got.ActionIds) != 2 || len(list) != 2 || list[0].ActionId != got.ActionIds[0] || *list[0].Version != "1.1.0" || *list[1].Version != "1.0.0" {
		t.Fatalf("the actions are %v: %+v", got.ActionIds, list)
	}
	if list[0].NbAgentsActioned != 3 || list[0].NbAgentsActionCreated != 1 || list[0].NbAgentsFailed != 2 || list[1].NbAgentsActionCreated != 2 || list[1].NbAgentsFailed != 0 {
		t.Errorf("the actions are %+v", list)
	}

	refused(t, "nobody can", s.Admin("POST", "/api/fleet/agents/bulk_rollback", map[string]any{"agents": []string{none.ID, a.ID}}), 400, "none of the 2 agents can be rolled back")
	refused(t, "a query of the one that cannot", s.Admin("POST", "/api/fleet/agents/bulk_rollback", `{"agents":"status:online"}`), 400, "keeps no earlier version")
	refused(t, "one twice", s.Admin("POST", "/api/v1/rollback_preview", map[string]any{"agents": []string{a.ID, a.ID}}), 400, "twice")
}
