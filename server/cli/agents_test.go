package cli_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestListUpgradeAndRollbackSelectAgentsByQuery(t *testing.T) {
	o, s := loggedIn(t, quick)
	s.Publisher().Publish("1.1.0")
	var agents []*apptest.Agent
	for _, host := range []string{"web-01", "web-02", "db-01"} {
		a := s.Enroll(host, "1.0.0")
		a.MustCheckin(nil)
		agents = append(agents, a)
	}
	if got := s.Admin(http.MethodPost, "/api/fleet/agents/"+agents[1].ID+"/unenroll", `{"revoke":true}`); got.Status != 200 {
		t.Fatal(string(got.Body))
	}

	web := `local_metadata.host.hostname: web`
	text := o.run("agents", "list", "--kuery", web)
	if o.contains(text, "web-01"); strings.Contains(text, "web-02") || strings.Contains(text, "db-01") {
		t.Errorf("the list of %s is\n%s", web, text)
	}
	o.contains(o.run("agents", "list", "--kuery", web, "--inactive"), "web-01", "web-02")
	o.fails(1, []string{"agents", "list", "--kuery", "status: online and ("}, "the query cannot be parsed", "\nstatus: online and (\n", "^")

	o.fails(2, []string{"agents", "upgrade", "--version", "1.1.0"}, "no agents are named", "--kuery")
	o.fails(2, []string{"agents", "upgrade", agents[0].ID, "--kuery", web, "--version", "1.1.0"}, "use one of the two")
	o.fails(2, []string{"agents", "rollback", agents[0].ID, "--inactive"}, "--inactive needs --kuery")
	o.fails(1, []string{"agents", "upgrade", "--kuery", "tags: none", "--version", "1.1.0"}, "selects no agents")

	o.contains(o.run("agents", "upgrade", "--kuery", web, "--version", "1.1.0", "--dry-run"), "1 would be upgraded to 1.1.0, 0 would not", "web-01")
	o.contains(o.run("agents", "upgrade", "--kuery", web, "--inactive", "--version", "1.1.0", "--dry-run"), "1 would be upgraded to 1.1.0, 1 would not", "web-02")
	if list := asJSON[adminapi.ActionStatusList](o, "actions", "list"); len(list.Items) != 1 { // the revocation above
		t.Fatal("a dry run created an action")
	}
	got := o.try("agents", "upgrade", "--kuery", web, "--inactive", "--version", "1.1.0")
	if got.code != 0 {
		t.Fatal(got.err)
	}
	o.contains(got.err, "The query selects 2 agents: 1 will be upgraded to 1.1.0, 1 will not.")
	o.contains(got.out, "Upgrading 1 of 2 agents to 1.1.0")
	list := asJSON[adminapi.ActionStatusList](o, "actions", "list")
	if len(list.Items) != 2 || list.Items[0].NbAgentsActioned != 2 || list.Items[0].NbAgentsActionCreated != 1 {
		t.Errorf("the actions are %+v", list.Items)
	}
	o.contains(o.run("agents", "list", "--kuery", "status: updating"), "web-01")
	o.contains(o.run("actions", "agents", list.Items[0].ActionId), "web-01", "sent", "web-02", "failed")
	if failed := asJSON[adminapi.ActionHostList](o, "actions", "agents", list.Items[0].ActionId, "--state", "failed"); failed.Total != 1 || deref(failed.Items[0].Hostname) != "web-02" {
		t.Errorf("the failed hosts are %+v", failed)
	}
	o.contains(o.run("actions", "agents", list.Items[0].ActionId, "--limit", "1"), "… and 1 more")
	o.fails(1, []string{"actions", "agents", "none"}, "action none does not exist")

	o.fails(1, []string{"agents", "rollback", "--kuery", "*"}, "none of the agents can be rolled back")
	o.contains(o.run("agents", "rollback", "--kuery", "*", "--dry-run"), "0 would be rolled back, 2 would not")
}

func TestUnenrollSelectsAgentsByQuery(t *testing.T) {
	o, s := loggedIn(t, quick)
	hosts := map[string]*apptest.Agent{}
	for _, host := range []string{"web-01", "web-02", "db-01", "db-02"} {
		a := s.Enroll(host, "1.0.0")
		a.MustCheckin(nil)
		hosts[host] = a
	}
	web := `local_metadata.host.hostname: web`
	o.fails(2, []string{"agents", "unenroll"}, "no agents are named", "--kuery")
	o.fails(2, []string{"agents", "unenroll", "--kuery", web}, "standard input is not a terminal", "--yes")
	o.fails(1, []string{"agents", "unenroll", "--kuery", web + " and (", "--yes"}, "the query cannot be parsed", "^")
	o.contains(o.run("agents", "unenroll", "--kuery", web, "--dry-run"), "2 would be unenrolled, 0 would not", "web-01", "web-02")
	if list := asJSON[adminapi.ActionStatusList](o, "actions", "list"); len(list.Items) != 0 {
		t.Fatal("a dry run created an action")
	}

	got := o.try("agents", "unenroll", "--kuery", web, "--yes")
	o.contains(got.err, "The query selects 2 agents: 2 will be unenrolled, 0 will not.")
	o.contains(got.out, "Unenrolling 2 of 2 agents: action ")
	given := hosts["web-01"].MustCheckin(nil).Actions
	if len(given) != 1 || given[0].Type != agentapi.ActionUnenroll {
		t.Fatalf("the agent receives %+v", given)
	}
	o.contains(o.run("agents", "list", "--kuery", web), "unenrolling")
	hosts["web-01"].Ack("", given[0].ID)
	if text := o.run("agents", "list", "--kuery", web); strings.Contains(text, "web-01") {
		t.Errorf("web-01 has unenrolled, but the list is\n%s", text)
	}

	o.contains(o.run("agents", "unenroll", hosts["db-01"].ID, hosts["web-01"].ID, "--revoke"), "Unenrolled 1 of 2 agents: action ")
	if _, err := hosts["db-01"].Checkin(t.Context(), s, nil); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("a check-in with a revoked key: %v, want 401", err)
	}
	o.fails(1, []string{"agents", "unenroll", hosts["db-01"].ID}, "is unenrolled already", "none of the agents can be unenrolled")
	list := asJSON[adminapi.ActionStatusList](o, "actions", "list")
	if len(list.Items) != 2 || list.Items[0].Type != "FORCE_UNENROLL" || list.Items[0].Status != adminapi.FAILED || list.Items[1].Status != adminapi.INPROGRESS {
		t.Errorf("the actions are %+v", list.Items)
	}
	// Agents that were not selected are still there.
	if got := asJSON[adminapi.AgentList](o, "agents", "list"); got.Total != 2 {
		t.Errorf("%d agents are left", got.Total)
	}
}

func TestAgentIsNamedByIDOrHostName(t *testing.T) {
	o, s := loggedIn(t, quick)
	s.Publisher().Publish("1.1.0")
	web, twin, other := s.Enroll("web-01", "1.0.0"), s.Enroll("twin", "1.0.0"), s.Enroll("twin", "1.0.0")
	web.MustCheckin(nil)
	quoted := s.Enroll(`od"d`, "1.0.0")

	for _, name := range []string{"web-01", web.ID} {
		o.contains(o.run("agents", "get", name), web.ID)
		o.contains(o.run("agents", "why", name), "web-01")
		o.contains(o.run("agents", "upgrade", name, "--version", "1.1.0", "--dry-run"), "1 would be upgraded to 1.1.0", "web-01")
		o.contains(o.run("agents", "rollback", name, "--dry-run"), "ROLLBACK TO", "web-01")
		o.contains(o.run("agents", "unenroll", name, "--dry-run"), "1 would be unenrolled", "web-01")
		o.contains(o.run("rollouts", "preview", "--version", "1.1.0", "--agents", name, "--agents-shown", "5"), "1 agent would be upgraded in 1 batch.\nIt takes at least", "web-01")
	}
	o.contains(o.run("agents", "get", `od"d`), quoted.ID)
	for _, verb := range [][]string{
		{"agents", "get"},
		{"agents", "why"},
		{"agents", "upgrade", "--version", "1.1.0"},
		{"agents", "rollback"},
		{"agents", "unenroll"},
		{"rollouts", "retry", "r"},
		{"rollouts", "skip", "r"},
		{"rollouts", "create", "--version", "1.1.0", "--agents"},
	} {
		o.fails(1, append(verb, "web-10"), "no agent with the id or host name web-10: did you mean "+web.ID+" (web-01, online)?", "`muster agents list`")
		o.fails(1, append(verb, "mail"), "no agent with the id or host name mail: `muster agents list`")
		o.fails(1, append(verb, "twin"), "2 agents have the host name twin", twin.ID, other.ID)
	}
	// An unenrolled agent no longer shares the name.
	o.run("agents", "unenroll", twin.ID, "--revoke")
	o.contains(o.run("agents", "get", "twin"), other.ID)
}

func TestUnenrollingManyAgentsNeedsAnOverrideWithAReason(t *testing.T) {
	o, s := loggedIn(t, quick, func(o *app.Options) { o.Config.Admin.RemovalsPerHour = 1 })
	for _, name := range []string{"web-01", "web-02"} {
		s.Enroll(name, "1.0.0").MustCheckin(nil)
	}
	all := []string{"agents", "unenroll", "--kuery", "*", "--revoke", "--yes"}
	o.contains(o.run(append(all, "--dry-run")...), "2 would be unenrolled", "The order would be refused", "at most 1")
	o.fails(1, all, "would take away 2 agents", "--override-limit --why REASON")
	o.fails(2, append(all, "--override-limit"), "--why is missing")
	o.contains(o.run(append(all, "--override-limit", "--why", "the site is closed")...), "Unenrolled 2 of 2 agents")
	o.contains(o.run("audit"), "of 2 agents, in spite of the removal limit", "the site is closed")
}

func TestUpgradeDuringAFreezeNeedsAnOverrideWithAReason(t *testing.T) {
	o, s := loggedIn(t, quick)
	s.Publisher().Publish("1.1.0")
	a := s.Enroll("web-01", "1.0.0")
	a.MustCheckin(nil)
	o.run("freezes", "add", "Christmas", "--from", time.Now().Add(-time.Minute).Format(time.RFC3339), "--to", time.Now().Add(time.Hour).Format(time.RFC3339))

	upgrade := []string{"agents", "upgrade", a.ID, "--version", "1.1.0"}
	o.contains(o.run(append(upgrade, "--dry-run")...), "The order would be refused", "“Christmas”", "--override-freeze")
	o.fails(1, upgrade, "“Christmas”", "--override-freeze --why REASON")
	o.fails(2, append(upgrade, "--override-freeze"), "--why is missing")
	// Clients of Kibana's API, which do not know of freezes, are refused too.
	for path, body := range map[string]map[string]any{
		a.Path("upgrade"): {"version": "1.1.0"}, "/api/fleet/agents/bulk_upgrade": {"version": "1.1.0", "agents": []string{a.ID}},
	} {
		got := s.Admin(http.MethodPost, path, body)
		if got.Status != http.StatusConflict || !strings.Contains(string(got.Body), "Christmas") || !strings.Contains(string(got.Body), "override_freeze") {
			t.Errorf("%s answered %d %s", path, got.Status, got.Body)
		}
	}
	if g := s.Fleet(a.ID); g.Upgrading() {
		t.Fatal("a refused order has begun")
	}
	o.contains(o.run(append(upgrade, "--override-freeze", "--why", "exploited")...), "Upgrading 1 of 1 agent")
	o.contains(o.run("audit"), "ordered the upgrade to 1.1.0 of agent "+a.ID+", in spite of the freeze", "exploited", "added the freeze “Christmas”")
	o.contains(o.run("audit", "--actor", "first key", "--verb", "freeze", "--search", "CHRISTMAS", "--since", "2020-01-01T00:00:00Z"), "added the freeze “Christmas”")
	if out := o.run("audit", "--verb", "freeze", "--until", "2020-01-01T00:00:00Z"); strings.Contains(out, "Christmas") {
		t.Errorf("entries after --until are shown: %s", out)
	}

	// Any change takes a reason.
	actions := asJSON[adminapi.ActionStatusList](o, "actions", "list")
	o.run("actions", "cancel", actions.Items[0].ActionId, "--why", "wrong host")
	o.contains(o.run("audit", actions.Items[0].ActionId), "cancelled the upgrade to 1.1.0", "wrong host")
}

func TestActionsListShowsRevisionsOfPolicies(t *testing.T) {
	o, s := loggedIn(t, quick)
	s.Enroll("web-01", "1.0.0")
	if got := s.Admin(http.MethodPut, "/api/fleet/agent_policies/default", `{"name":"Web","namespace":"default"}`); got.Status != 200 {
		t.Fatal(string(got.Body))
	}
	o.contains(o.run("actions", "list"), "POLICY_CHANGE", "IN_PROGRESS", "policy default revision 2")
}

// A pipeline that is repeated has reached what it asks for.
func TestRepeatedStepHasNothingToDo(t *testing.T) {
	o, s := loggedIn(t, quick)
	s.Publisher().Publish("1.1.0")
	s.Enroll("web-01", "1.1.0").MustCheckin(nil)
	s.Enroll("web-02", "1.1.0").MustCheckin(nil)
	none := func(what string) {
		t.Helper()
		if list := asJSON[adminapi.RolloutList](o, "rollouts", "list"); list.Total != 0 {
			t.Errorf("%s left %d rollouts", what, list.Total)
		}
		if list := asJSON[adminapi.ActionStatusList](o, "actions", "list"); len(list.Items) != 0 {
			t.Errorf("%s left %d actions", what, len(list.Items))
		}
	}
	upgrade := []string{"agents", "upgrade", "--kuery", "*", "--version", "1.1.0", "--wait"}
	create := []string{"rollouts", "create", "--version", "1.1.0", "--all", "--start", "--yes", "--wait"}
	o.contains(o.run(upgrade...), "nothing to do: the version is already 1.1.0 on 2 agents")
	o.contains(o.run(create...), "nothing to do: the version runs already on 2 agents of the rollout")
	none("a fleet that runs the version")

	o.fails(1, []string{"rollouts", "create", "--version", "1.1.0", "--label", "site=none", "--start", "--yes", "--wait"}, "no agent would be upgraded")
	none("a start without targets")

	// One that cannot follow for another reason is a failure.
	gone := s.Enroll("web-03", "1.0.0")
	gone.MustCheckin(nil)
	if got := s.Admin(http.MethodPost, "/api/fleet/agents/"+gone.ID+"/unenroll", `{"revoke":true}`); got.Status != 200 {
		t.Fatal(string(got.Body))
	}
	o.fails(1, append(upgrade, "--inactive"), "none of the agents can be upgraded")
}

func TestHostNamesInAPlanFile(t *testing.T) {
	o, s := loggedIn(t, quick)
	s.Publisher().Publish("1.1.0")
	a := s.Enroll("web-01", "1.0.0")
	a.MustCheckin(nil)
	s.Enroll("web-02", "1.0.0").MustCheckin(nil)
	plan := "version: 1.1.0\nselect: { agents: [web-01, web-02], exclude_agents: [web-02] }\n"
	if got := o.tryWith(plan, "rollouts", "create", "--file", "-", "-o", "json"); got.code != 0 {
		t.Fatal(got.err)
	}
	list := asJSON[adminapi.RolloutList](o, "rollouts", "list")
	if len(list.Items) != 1 {
		t.Fatalf("%d rollouts", len(list.Items))
	}
	preview := asJSON[adminapi.RolloutPreviewItem](o, "rollouts", "preview", list.Items[0].ID)
	if targets := preview.Item.Targets; len(targets) != 1 || targets[0].AgentID != a.ID {
		t.Errorf("the targets are %+v", targets)
	}
	if got := o.tryWith("version: 1.1.0\nselect: { agents: [web-03] }\n", "rollouts", "create", "--file", "-"); got.code != 1 || !strings.Contains(got.err, "plan.select.agents: there is no agent with the id or host name web-03") {
		t.Errorf("an unknown host: %d, %s", got.code, got.err)
	}

	// A schedule is sent with the order.
	o.contains(o.run("agents", "upgrade", "web-01", "--version", "1.1.0", "--at", "2100-01-01T00:00:00Z", "--dry-run"), "1 would be upgraded")
	o.fails(2, []string{"agents", "upgrade", "web-01", "--version", "1.1.0", "--at", "22:00", "--wait"}, "--wait follows upgrades that begin now")
	at := time.Now().Add(24 * time.Hour).Format(time.RFC3339)
	o.run("agents", "upgrade", "web-01", "web-02", "--version", "1.1.0", "--at", at, "--over", "2h")
	if got := asJSON[adminapi.ActionStatusList](o, "actions", "list").Items; len(got) != 1 || got[0].StartTime == nil || got[0].StartTime.Local().Format(time.RFC3339) != at || !got[0].HasRolloutPeriod {
		t.Errorf("the actions are %+v", got)
	}
}
