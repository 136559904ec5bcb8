package admin_test

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// actionPage returns the ids of a page of action_status.
func actionPage(t *testing.T, s *apptest.Server, query string) []string {
	t.Helper()
	ids := []string{}
	for _, a := range answered[adminapi.ActionStatusList](t, s.Admin("GET", "/api/fleet/agents/action_status?"+query, nil)).Items {
		ids = append(ids, a.ActionId)
	}
	return ids
}

func TestPagesOfActionStatusAreFullAfterCancellations(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	var want []string
	for i := range 6 {
		a := s.Enroll(fmt.Sprintf("web-%d", i), "1.0.0")
		got := answered[adminapi.BulkActionResponse](t, s.Admin("POST", "/api/fleet/agents/bulk_upgrade", map[string]any{"version": "1.1.0", "agents": []string{a.ID}}))
		want = append(want, *got.ActionId)
		if i%2 == 1 {
			if got := s.Admin("POST", "/api/fleet/agents/actions/"+*got.ActionId+"/cancel", nil); got.Status != http.StatusOK {
				t.Fatalf("cancel: %d %s", got.Status, got.Body)
			}
		}
	}
	slices.Reverse(want)
	for page := range 4 {
		if got := actionPage(t, s, fmt.Sprintf("perPage=2&page=%d", page)); !slices.Equal(got, want[min(2*page, 6):min(2*page+2, 6)]) {
			t.Errorf("page %d has %v, want a part of %v", page, got, want)
		}
	}
	now := time.Now().UTC()
	for query, n := range map[string]int{
		"latest=3600000":                                                         6,
		"date=" + now.Format("2006-01-02"):                                       6,
		"date=" + now.AddDate(0, 0, -2).Format("2006-01-02"):                     0,
		"date=" + now.Add(time.Hour).Format("2006-01-02T15:04:05Z"):              0,
		"date=" + now.AddDate(0, 0, -3).Format("2006-01-02") + "&latest=3600000": 0,
	} {
		if got := actionPage(t, s, query); len(got) != n {
			t.Errorf("%s has %d actions, want %d", query, len(got), n)
		}
	}
}

func TestAgentStatusCountsTheAgentsOfPolicies(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	for i, policy := range []string{"a", "b", "b", "c"} {
		a := s.Enroll(fmt.Sprintf("web-%d", i), "1.0.0")
		if _, err := store.UpdateAgent(t.Context(), s.Store.Agents(), a.ID, func(a *fleet.Agent) bool { a.PolicyID = policy; return true }); err != nil {
			t.Fatal(err)
		}
	}
	for query, want := range map[string]int{
		"": 4, "policyId=b": 2, "policyIds=b": 2, "policyIds=a&policyIds=b": 3, "policyIds=none": 0, "policyIds=": 4,
		"policyId=b&policyIds=a": 0, "policyIds=a&policyIds=c&kuery=policy_id:c": 1,
	} {
		if got := answered[adminapi.AgentStatusResponse](t, s.Admin("GET", "/api/fleet/agent_status?"+query, nil)).Results.All; got != want {
			t.Errorf("%q counts %d agents, want %d", query, got, want)
		}
	}
}

func TestNewRevisionsOfPoliciesAreActions(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	behind, current := s.Enroll("web-01", "1.0.0"), s.Enroll("web-02", "1.0.0")
	change := func(name string) {
		t.Helper()
		answered[adminapi.PolicyItem](t, s.Admin("PUT", "/api/fleet/agent_policies/default", map[string]any{"name": name, "namespace": "default"}))
	}
	if got := actionPage(t, s, ""); len(got) != 0 {
		t.Errorf("before any change there is %v", got)
	}
	change("Second")
	upgrade := answered[adminapi.BulkActionResponse](t, s.Admin("POST", "/api/fleet/agents/bulk_upgrade", map[string]any{"version": "1.1.0", "agents": []string{behind.ID}}))
	change("Third")
	if got, want := actionPage(t, s, ""), []string{"default:3", *upgrade.ActionId, "default:2"}; !slices.Equal(got, want) {
		t.Errorf("the list is %v, want %v", got, want)
	}
	if got := actionPage(t, s, "page=1&perPage=1"); !slices.Equal(got, []string{*upgrade.ActionId}) {
		t.Errorf("the second page of one is %v", got)
	}
	if got := actionPage(t, s, "latest=3600000"); !slices.Equal(got, []string{*upgrade.ActionId}) {
		t.Errorf("the latest actions are %v, want none of policies, as in Kibana", got)
	}
	tomorrow := time.Now().UTC().AddDate(0, 0, 1).Format("2006-01-02")
	if got := actionPage(t, s, "date="+tomorrow); len(got) != 0 {
		t.Errorf("tomorrow there is %v", got)
	}

	for _, a := range []*apptest.Agent{behind, current} {
		a.Ack("", "policy:default:2")
	}
	current.Ack("", "policy:default:3")
	items := answered[adminapi.ActionStatusList](t, s.Admin("GET", "/api/fleet/agents/action_status", nil)).Items
	for i, want := range []struct {
		revision int64
		acked    int
		status   adminapi.ActionState
	}{{3, 1, adminapi.INPROGRESS}, {}, {2, 2, adminapi.COMPLETE}} {
		got := items[i]
		if want.revision == 0 {
			if got.PolicyId != nil || got.Revision != nil || got.Type != "UPGRADE" {
				t.Errorf("the upgrade is %+v", got)
			}
			continue
		}
		if got.Type != "POLICY_CHANGE" || *got.PolicyId != "default" || *got.Revision != want.revision || got.Status != want.status || got.Outcome != want.status ||
			got.NbAgentsActioned != 2 || got.NbAgentsActionCreated != 2 || got.NbAgentsAck != want.acked || got.NbAgentsDone != want.acked || got.NbAgentsFailed != 0 ||
			!got.CompletionTime.Equal(got.CreationTime) || len(got.LatestErrors) != 0 {
			t.Errorf("revision %d is %+v", want.revision, got)
		}
	}
}

func TestHostsOfAnActionAreListedInPages(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	s.Publisher().Publish("1.1.0", "1.2.0")
	good, bad, newer := s.Enroll("good", "1.0.0"), s.Enroll("bad", "1.0.0"), s.Enroll("newer", "1.1.0")
	ids := []string{good.ID, bad.ID, newer.ID}
	id := answered[adminapi.ActionCreated](t, s.Admin("POST", "/api/fleet/agents/bulk_upgrade", map[string]any{"version": "1.1.0", "agents": ids})).ActionId
	good.Version = "1.1.0"
	good.MustCheckin(nil)
	bad.MustCheckin(apptest.Details(id, "1.1.0", agentapi.UpgradeFailed))
	answered[adminapi.ActionCreated](t, s.Admin("POST", "/api/fleet/agents/bulk_upgrade", map[string]any{"version": "1.2.0", "agents": ids}))

	path := "/api/v1/actions/" + id
	all := get[adminapi.ActionHostList](t, s, path+"/agents")
	var text string
	for _, h := range all.Items {
		text += deref(h.Hostname) + " " + string(h.State) + ", "
	}
	if text != "good committed, bad failed, newer failed, " || all.Total != 3 || all.Items[1].AgentId != bad.ID || all.Items[2].Reason.Code != "refused" || all.Items[0].Since == nil {
		t.Errorf("the hosts are %s: %+v", text, all)
	}
	if page := get[adminapi.ActionHostList](t, s, path+"/agents", "page", "2", "perPage", "2"); page.Total != 3 || page.Page != 2 || page.PerPage != 2 || len(page.Items) != 1 || page.Items[0].AgentId != newer.ID {
		t.Errorf("the second page is %+v", page)
	}
	if failed := get[adminapi.ActionHostList](t, s, path+"/agents", "state", "failed,stopped"); failed.Total != 2 || failed.Items[0].AgentId != bad.ID {
		t.Errorf("the failed ones are %+v", failed)
	}
	one := get[adminapi.ActionStatusItem](t, s, path).Item
	if want := actionOf(t, s, id); !reflect.DeepEqual(one, want) || fmt.Sprint(deref(one.Progress)) != "map[committed:1 failed:2]" {
		t.Errorf("the action is %+v, in the list %+v", one, want)
	}
	refused(t, "an unknown state", s.Admin("GET", path+"/agents?state=done,over", nil), http.StatusBadRequest, `[request query.state]: is "over", which is not the state of a host of an action`)
	refused(t, "page 0", s.Admin("GET", path+"/agents?page=0", nil), http.StatusBadRequest, "[request query.page]: ")
	refused(t, "no action", s.Admin("GET", "/api/v1/actions/none/agents", nil), http.StatusNotFound, "action none does not exist")
	refused(t, "no action", s.Admin("GET", "/api/v1/actions/none", nil), http.StatusNotFound, "action none does not exist")
}
