package cli_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/replica/replicatest"
)

func TestAgentsAreSelectedByAQuery(t *testing.T) {
	o := newOperator(t)
	s := replicatest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	o.login(s)
	var agents []*replicatest.Agent
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
	o.fails(1, []string{"agents", "list", "--kuery", "status: online and ("}, "Kuery is malformed", "\nstatus: online and (\n", "^")

	o.fails(2, []string{"agents", "upgrade", "--version", "1.1.0"}, "no agents are named", "--kuery")
	o.fails(2, []string{"agents", "upgrade", agents[0].ID, "--kuery", web, "--version", "1.1.0"}, "say one of the two")
	o.fails(2, []string{"agents", "rollback", agents[0].ID, "--inactive"}, "--inactive is for --kuery")
	o.fails(1, []string{"agents", "upgrade", "--kuery", "tags: none", "--version", "1.1.0"}, "selects no agents")

	o.contains(o.run("agents", "upgrade", "--kuery", web, "--version", "1.1.0", "--dry-run"), "1 would be upgraded to 1.1.0, 0 would not", "web-01")
	o.contains(o.run("agents", "upgrade", "--kuery", web, "--inactive", "--version", "1.1.0", "--dry-run"), "1 would be upgraded to 1.1.0, 1 would not", "web-02")
	if list := asJSON[adminapi.ActionStatusList](o, "actions", "list"); len(list.Items) != 0 {
		t.Fatal("a dry run made an action")
	}
	got := o.try("agents", "upgrade", "--kuery", web, "--inactive", "--version", "1.1.0")
	if got.code != 0 {
		t.Fatal(got.err)
	}
	o.contains(got.err, "The query selects 2 agents: 1 will be upgraded to 1.1.0, 1 will not.")
	o.contains(got.out, "Upgrading 1 of 2 agents to 1.1.0")
	list := asJSON[adminapi.ActionStatusList](o, "actions", "list")
	if len(list.Items) != 1 || list.Items[0].NbAgentsActioned != 2 || list.Items[0].NbAgentsActionCreated != 1 {
		t.Errorf("the actions are %+v", list.Items)
	}
	o.contains(o.run("agents", "list", "--kuery", "status: updating"), "web-01")

	o.fails(1, []string{"agents", "rollback", "--kuery", "*"}, "none of the agents can be rolled back")
	o.contains(o.run("agents", "rollback", "--kuery", "*", "--dry-run"), "0 would be rolled back, 2 would not")
}
