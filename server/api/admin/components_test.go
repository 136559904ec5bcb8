package admin_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// publishComponent stores packages of web-server for linux/amd64.
func publishComponent(t *testing.T, s *apptest.Server, versions ...string) {
	t.Helper()
	for _, v := range versions {
		err := s.Store.Packages().Create(t.Context(), fleet.Package{
			File: "muster-component-web-server-" + v + "-linux-amd64.tar.gz", Version: v, Component: "web-server", Runtime: "systemd", OS: "linux", Arch: "amd64", SHA512: strings.Repeat("0a", 64), Size: 1234,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// enrollWithComponent enrols a host that runs web-server 2.4.0 and cache 1.0.0.
func enrollWithComponent(s *apptest.Server, host string) *apptest.Agent {
	a := s.Enroll(host, "1.0.0")
	a.Components = []agentapi.Component{apptest.Component("web-server", "2.4.0"), apptest.Component("cache", "1.0.0")}
	a.MustCheckin(nil)
	return a
}

// component returns what the API says of a component of an agent.
func component(t *testing.T, s *apptest.Server, a *apptest.Agent, name string) adminapi.Component {
	t.Helper()
	all := apptest.Decode[adminapi.AgentItem](t, s.Admin("GET", "/api/fleet/agents/"+a.ID, nil)).Item.Components
	i := slices.IndexFunc(all, func(c adminapi.Component) bool { return c.Name != nil && *c.Name == name })
	if i < 0 {
		t.Fatalf("there is no component %s: %+v", name, all)
	}
	return all[i]
}

// order orders an upgrade of web-server, and returns the action that each agent gets.
func order(t *testing.T, s *apptest.Server, version string, agents ...*apptest.Agent) agentapi.Action {
	t.Helper()
	ids := []string{}
	for _, a := range agents {
		ids = append(ids, a.ID)
	}
	id := *apptest.Decode[adminapi.BulkActionResponse](t, s.Admin("POST", "/api/v1/components/web-server/upgrade", map[string]any{"agents": ids, "version": version})).ActionId
	var act agentapi.Action
	for _, a := range agents {
		got := a.MustCheckin(nil)
		if len(got.Actions) != 1 || got.Actions[0].ID != id || got.Actions[0].Type != agentapi.ActionUpgrade {
			t.Fatalf("%s gets %+v, want %s", a.Host, got.Actions, id)
		}
		act = got.Actions[0]
	}
	return act
}

// freeze adds a freeze that has begun.
func freeze(t *testing.T, s *apptest.Server) {
	t.Helper()
	now := time.Now().UTC()
	got := s.Admin("POST", "/api/v1/freezes", fmt.Sprintf(`{"name":"holidays","from":%q,"to":%q}`, now.Add(-time.Hour).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339)))
	if got.Status != 200 {
		t.Fatalf("adding a freeze answers %d %s", got.Status, got.Body)
	}
}

func TestComponentIsUpgradedByAnOrder(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	publishComponent(t, s, "2.4.0", "2.5.0")
	a := enrollWithComponent(s, "web-01")
	act := order(t, s, "2.5.0", a)
	var data agentapi.UpgradeData
	if err := json.Unmarshal(act.Data, &data); err != nil || data.Version != "2.5.0" || data.Component == nil {
		t.Fatalf("the data is %s, %v", act.Data, err)
	}
	if c := data.Component; c.Name != "web-server" || c.UpgradeID != act.ID || c.Checksum != "sha512:"+strings.Repeat("0a", 64) || c.Size != 1234 {
		t.Errorf("the data is %s", act.Data)
	}
	item := apptest.Decode[adminapi.AgentItem](t, s.Admin("GET", "/api/fleet/agents/"+a.ID, nil)).Item
	if item.Status != "online" || item.UpgradeStartedAt != nil || item.UpgradeStatus != nil {
		t.Errorf("the agent itself is %s, %v, %v", item.Status, item.UpgradeStartedAt, item.UpgradeStatus)
	}
	if c := component(t, s, a, "web-server"); *c.DesiredVersion != "2.5.0" || *c.UpgradeStatus != "started" || c.UpgradeStartedAt == nil || *c.UpgradeActionId != act.ID {
		t.Errorf("the component is %+v", c)
	}
	if c := component(t, s, a, "cache"); *c.DesiredVersion != "1.0.0" || c.UpgradeStatus != nil {
		t.Errorf("the other one is %+v", c)
	}
	refused(t, "of the agent", s.Admin("POST", "/api/v1/upgrade_preview", `{"version":"2.5.0","agents":["`+a.ID+`"]}`), 400, "no package of version 2.5.0 is published (nothing is published yet)")

	a.Components[0].UpgradeDetails = apptest.Details(act.ID, "2.5.0", agentapi.UpgradeWatching)
	a.MustCheckin(nil)
	if got := apptest.Decode[adminapi.AgentList](t, s.Admin("GET", "/api/fleet/agents?kuery=component_actions:"+act.ID, nil)); got.Total != 1 {
		t.Errorf("%d agents are upgrading a component by the action", got.Total)
	}
	a.Components[0] = apptest.Component("web-server", "2.5.0")
	a.MustCheckin(nil)
	a.Ack("", act.ID)
	if c := component(t, s, a, "web-server"); *c.DesiredVersion != "2.5.0" || c.UpgradeStatus != nil || c.UpgradedAt == nil {
		t.Errorf("then the component is %+v", c)
	}
	status := apptest.Decode[adminapi.ActionStatusList](t, s.Admin("GET", "/api/fleet/agents/action_status", nil)).Items[0]
	if status.Component == nil || *status.Component != "web-server" || status.Outcome != "COMPLETE" || status.NbAgentsDone != 1 || *status.Version != "2.5.0" {
		t.Errorf("the action is %+v", status)
	}
}

// Neither a freeze nor a missing package is in the way.
func TestComponentGoesBackByAnOrder(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	a := enrollWithComponent(s, "web-01")
	freeze(t, s)
	back := func(version, more string) string {
		return `{"rollback":true,"version":"` + version + `","agents":["` + a.ID + `"]` + more + `}`
	}
	preview := func(version string) adminapi.UpgradePreviewItem {
		p := apptest.Decode[adminapi.UpgradePreview](t, s.Admin("POST", "/api/v1/components/web-server/upgrade_preview", back(version, "")))
		if p.Refused != nil || len(p.Items) != 1 {
			t.Fatalf("the preview is %+v", p)
		}
		return p.Items[0]
	}
	if i := preview("2.3.0"); i.Will || *i.Reason != "agent "+a.ID+" keeps no earlier version of component web-server" {
		t.Errorf("without a kept version: %+v", i)
	}
	a.Components[0].Rollbacks = []string{"2.3.0"}
	a.MustCheckin(nil)
	if i := preview("2.4.0"); i.Will || *i.Reason != "component web-server of agent "+a.ID+" already is 2.4.0" {
		t.Errorf("to the installed version: %+v", i)
	}
	if i := preview("2.3.0"); !i.Will {
		t.Errorf("to the kept version: %+v", i)
	}
	const path = "/api/v1/components/web-server/upgrade"
	refused(t, "a source", s.Admin("POST", path, back("2.3.0", `,"source_uri":"https://mirror.example.com"`)), 400, "source_uri]: contradicts rollback")
	refused(t, "no version", s.Admin("POST", path, back("", "")), 400, "version]: ")
	id := *apptest.Decode[adminapi.BulkActionResponse](t, s.Admin("POST", path, back("2.3.0", ""))).ActionId
	got := a.MustCheckin(nil).Actions
	var data agentapi.UpgradeData
	if len(got) != 1 || got[0].ID != id || json.Unmarshal(got[0].Data, &data) != nil || !data.Rollback || data.Version != "2.3.0" || data.Component == nil || data.Component.Name != "web-server" {
		t.Errorf("the agent gets %+v", got)
	}
	status := apptest.Decode[adminapi.ActionStatusList](t, s.Admin("GET", "/api/fleet/agents/action_status", nil)).Items[0]
	if status.Rollback == nil || !*status.Rollback || *status.Component != "web-server" {
		t.Errorf("the action is %+v", status)
	}
}

func TestComponentHasItsRollout(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	publishComponent(t, s, "2.5.0")
	a := enrollWithComponent(s, "web-01")
	p, err := s.Store.Policies().Get(t.Context(), fleet.DefaultPolicyID)
	if err != nil {
		t.Fatal(err)
	}
	p.Components = []agentapi.PolicyComponent{{Name: "web-server", Runtime: "systemd"}}
	if _, err := s.Store.Policies().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	freeze(t, s) // it makes no offer, so that the component waits for all of the test
	draft := slow("2.5.0", map[string]any{"component": "web-server", "name": "spring"})
	r := made[adminapi.Rollout](t, s.Admin("POST", "/api/v1/rollouts", draft))
	path := "/api/v1/rollouts/" + r.ID
	if arts := r.Plan.Artifacts; r.Plan.Component != "web-server" || len(arts) != 1 || arts[0].Runtime != fleet.RuntimeSystemd {
		t.Errorf("the plan is %+v", r.Plan)
	}
	pre := made[adminapi.RolloutPreview](t, s.Admin("POST", path+"/preview", nil))
	made[adminapi.Rollout](t, s.Admin("POST", path+"/start", map[string]any{"hash": pre.Hash}))

	if c := component(t, s, a, "web-server"); c.Rollout == nil || c.Rollout.ID != r.ID || *c.DesiredVersion != "2.5.0" || *c.Version != "2.4.0" {
		t.Errorf("the component is %+v", c)
	}
	if c := component(t, s, a, "cache"); c.Rollout != nil || *c.DesiredVersion != "1.0.0" {
		t.Errorf("another component is %+v", c)
	}
	if got := apptest.Decode[adminapi.AgentItem](t, s.Admin("GET", "/api/fleet/agents/"+a.ID, nil)).Item; got.Rollout != nil {
		t.Errorf("the agent itself is in %+v", got.Rollout)
	}
	why := made[adminapi.Explanation](t, s.Admin("GET", "/api/v1/agents/"+a.ID+"/why?component=web-server", nil))
	if why.RolloutID == "" || why.RolloutID != r.ID || !strings.Contains(why.Summary, "web-server on web-01") {
		t.Errorf("it is explained as %+v", why)
	}
	order := map[string]any{"agents": []string{a.ID}, "version": "2.5.0"}
	if got := s.Admin("POST", "/api/v1/components/web-server/upgrade_preview", order); !strings.Contains(string(got.Body), "component web-server of agent "+a.ID+" belongs to the active rollout") {
		t.Errorf("an order for the component answers %s", got.Body)
	}
	refused(t, "another runtime", s.Admin("POST", "/api/v1/rollouts", slow("2.5.0", map[string]any{
		"component": "web-server", "artifacts": []any{map[string]any{"runtime": "docker", "checksum": "sha256:" + strings.Repeat("0a", 32), "url": "web:latest"}},
	})), 400, "a tag can be moved")
}

func TestComponentUpgradeThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	publishComponent(t, s, "2.5.0")
	a, b := enrollWithComponent(s, "web-01"), enrollWithComponent(s, "web-02")
	act := order(t, s, "2.5.0", a, b)
	d := apptest.Details(act.ID, "2.5.0", agentapi.UpgradeFailed)
	d.Metadata = agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeWatching, ErrorMsg: "port 80 does not answer"}
	a.Components[0].UpgradeDetails = d
	a.MustCheckin(nil)
	b.Ack("no rights", act.ID)
	if c := component(t, s, a, "web-server"); *c.UpgradeStatus != "rolled_back" || *c.Version != "2.4.0" || *c.DesiredVersion != "2.4.0" {
		t.Errorf("the component is %+v", c)
	}
	if c := component(t, s, b, "web-server"); *c.UpgradeStatus != "failed" || *c.UpgradeDetails.Metadata.ErrorMsg != "no rights" {
		t.Errorf("the component of an agent that answers with an error is %+v", c)
	}
	status := apptest.Decode[adminapi.ActionStatusList](t, s.Admin("GET", "/api/fleet/agents/action_status", nil)).Items[0]
	if status.Outcome != "FAILED" || status.NbAgentsFailed != 2 || len(status.LatestErrors) != 2 {
		t.Errorf("the action is %+v", status)
	}
	preview := apptest.Decode[adminapi.UpgradePreview](t, s.Admin("POST", "/api/v1/components/web-server/upgrade_preview", map[string]any{"version": "2.5.0", "agents": []string{a.ID, b.ID}}))
	if preview.Will != 1 || preview.Wont != 1 || preview.Items[0].Version != "2.4.0" || !strings.Contains(*preview.Items[0].Reason, "failed on its host before, at ") {
		t.Errorf("the preview is %+v", preview)
	}
}

func TestOnlyAgentsThatReportTheComponentGetItsUpgrade(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	publishComponent(t, s, "2.5.0")
	a, other := enrollWithComponent(s, "web-01"), s.Enroll("db-01", "1.0.0")
	other.MustCheckin(nil)
	upgrade := func(body string) apptest.Answer {
		return s.Admin("POST", "/api/v1/components/web-server/upgrade", body)
	}
	got := apptest.Decode[adminapi.BulkActionResponse](t, upgrade(`{"agents":"*","version":"2.5.0"}`))
	act, err := s.Store.Actions().Get(t.Context(), *got.ActionId)
	if err != nil || !slices.Equal(act.Agents, []string{a.ID}) || act.Actioned != 2 {
		t.Errorf("the action is %+v, %v", act, err)
	}
	status := apptest.Decode[adminapi.ActionStatusList](t, s.Admin("GET", "/api/fleet/agents/action_status", nil)).Items[0]
	if len(status.LatestErrors) != 1 || !strings.Contains(status.LatestErrors[0].Error, "reports no component web-server: add it to the components of its policy default") {
		t.Errorf("the errors are %+v", status.LatestErrors)
	}
	for body, says := range map[string]string{
		`{"agents":[],"version":"2.5.0"}`:                             "[request body.agents]: is empty",
		`{"agents":["x"]}`:                                            "[request body.version]: ",
		`{"agents":["x"],"version":"2.9.0"}`:                          "no package of component web-server in version 2.9.0 is published (published are 2.5.0)",
		`{"agents":["x"],"version":"2.5.0","override_freeze":true}`:   "[request body.why]: ",
		`{"agents":["x"],"version":"2.5.0","override_exposure":true}`: "[request body.why]: ",
		`{"agents":["x"],"version":"2.5.0","source_uri":"ftp://x"}`:   "[request body.source_uri]: ",
	} {
		refused(t, body, upgrade(body), 400, says)
	}
	const unknown = "is wbe, and no package of that component is published: packages of web-server are"
	refused(t, "an unknown name", s.Admin("POST", "/api/v1/components/wbe/upgrade", `{"agents":["x"],"version":"2.5.0"}`), 400, unknown)
	refused(t, "an unknown name in a plan", s.Admin("POST", "/api/v1/rollouts", slow("2.5.0", map[string]any{"component": "wbe"})), 400, unknown)
	refused(t, "a wrong name", s.Admin("POST", "/api/v1/components/Web/upgrade", `{"agents":["x"],"version":"2.5.0"}`), 400, `is "Web", want`)
}

func TestComponentUpgradeIsCancelled(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	publishComponent(t, s, "2.5.0")
	a := enrollWithComponent(s, "web-01")
	act := order(t, s, "2.5.0", a)
	if got := s.Admin("POST", "/api/fleet/agents/actions/"+act.ID+"/cancel", nil); got.Status != 200 {
		t.Fatalf("cancelling answers %d %s", got.Status, got.Body)
	}
	if c := component(t, s, a, "web-server"); c.UpgradeStatus != nil || *c.DesiredVersion != "2.4.0" {
		t.Errorf("the component is %+v", c)
	}
	if got := a.MustCheckin(nil); len(got.Actions) != 1 || got.Actions[0].Type != agentapi.ActionCancel {
		t.Errorf("the agent gets %+v", got.Actions)
	}
	order(t, s, "2.5.0", a) // again
}

func TestGuardRailsHoldUpgradesOfComponents(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	publishComponent(t, s, "2.5.0")
	a, b := enrollWithComponent(s, "web-01"), enrollWithComponent(s, "web-02")
	s.Admin("PUT", "/api/v1/exposure", `{"enabled":true,"percent":1,"healthy_hours":1000}`)
	freeze(t, s)
	body := map[string]any{"agents": []string{a.ID, b.ID}, "version": "2.5.0"}
	refused(t, "during a freeze", s.Admin("POST", "/api/v1/components/web-server/upgrade", body), 409, "holidays")
	preview := apptest.Decode[adminapi.UpgradePreview](t, s.Admin("POST", "/api/v1/components/web-server/upgrade_preview", body))
	if preview.Will != 2 || preview.Refused == nil || *preview.Guard != "freeze" {
		t.Errorf("the preview is %+v", preview)
	}
	body["override_freeze"], body["why"] = true, "a fix"
	refused(t, "beyond the budget", s.Admin("POST", "/api/v1/components/web-server/upgrade", body), 409, "room for 1 of the 2 agents: 0 of 2 agents run 2.5.0")
	preview = apptest.Decode[adminapi.UpgradePreview](t, s.Admin("POST", "/api/v1/components/web-server/upgrade_preview", body))
	if preview.Will != 2 || preview.Refused == nil || *preview.Guard != "exposure" {
		t.Errorf("the preview is %+v", preview)
	}
	body["override_exposure"] = true
	if got := s.Admin("POST", "/api/v1/components/web-server/upgrade", body); got.Status != 200 {
		t.Errorf("in spite of both: %d %s", got.Status, got.Body)
	}
}

func TestComponentsAreCountedByVersion(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	publishComponent(t, s, "2.5.0")
	a, b := enrollWithComponent(s, "web-01"), enrollWithComponent(s, "web-02")
	c := s.Enroll("web-03", "1.0.0")
	c.Components = []agentapi.Component{apptest.Component("web-server", "")}
	c.Components[0].Status = "STOPPED"
	c.MustCheckin(nil)
	order(t, s, "2.5.0", a)
	b.Components[0].Version = "2.10.0"
	b.MustCheckin(nil)
	list := apptest.Decode[adminapi.ComponentList](t, s.Admin("GET", "/api/v1/components", nil)).Items
	if len(list) != 2 || list[0].Name != "cache" || list[0].Agents != 2 {
		t.Fatalf("components are %+v", list)
	}
	got, _ := json.Marshal(list[1])
	want := `{"name":"web-server","runtimes":["systemd"],"agents":3,"healthy":2,"upgrading":1,"failed":0,"versions":[{"version":"2.10.0","agents":1},{"version":"2.4.0","agents":1},{"version":"","agents":1}]}`
	if string(got) != want {
		t.Errorf("web-server is %s, want %s", got, want)
	}
	list = apptest.Decode[adminapi.ComponentList](t, s.Admin("GET", "/api/v1/components?kuery=local_metadata.host.hostname.keyword:web-03", nil)).Items
	if len(list) != 1 || list[0].Agents != 1 {
		t.Errorf("of web-03 they are %+v", list)
	}
	refused(t, "a wrong query", s.Admin("GET", "/api/v1/components?kuery=flavour:x", nil), 400, "flavour")
}

func TestComponentsOfAgentsThatAreGoneAreNotHealthy(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	a := enrollWithComponent(s, "web-01")
	enrollWithComponent(s, "web-02")
	if got := s.Agents("POST", a.Path("audit/unenroll"), a.Key, map[string]any{"reason": "uninstall", "timestamp": time.Now()}); got.Status != 200 {
		t.Fatalf("uninstalling answers %d %s", got.Status, got.Body)
	}
	list := apptest.Decode[adminapi.ComponentList](t, s.Admin("GET", "/api/v1/components", nil)).Items
	if len(list) != 2 || list[1].Name != "web-server" || list[1].Agents != 2 || list[1].Healthy != 1 {
		t.Errorf("with one of two agents uninstalled they are %+v", list)
	}
}
