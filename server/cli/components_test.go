package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestComponentsAreListedAndUpgraded(t *testing.T) {
	o, s := loggedIn(t, quick)
	err := s.Store.Packages().Create(t.Context(), fleet.Package{File: "muster-component-web-server-2.5.0-linux-amd64.tar.gz", Version: "2.5.0", Component: "web-server", OS: "linux", Arch: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	a, b, c := s.Enroll("web-01", "1.0.0"), s.Enroll("web-02", "1.0.0"), s.Enroll("db-01", "1.0.0")
	o.fails(1, []string{"components", "list", "web-server"}, "no agent runs component web-server, nor any other: list it in their policy first (`muster policies update --example`)")
	a.Components = []agentapi.Component{apptest.Component("web-server", "2.4.0")}
	b.Components = []agentapi.Component{apptest.Component("web-server", "")}
	for _, agent := range []*apptest.Agent{a, b, c} {
		agent.MustCheckin(nil)
	}
	o.contains(o.run("components", "list"), "web-server   systemd   2        2         0           0        2.4.0 (1), none (1)")
	o.contains(o.run("components", "list", "web-server"), a.ID, "web-01", "2.4.0", "HEALTHY", "web-02", "none")
	o.fails(1, []string{"components", "list", "cache"}, "no agent runs component cache, but web-server: `muster components list` shows those that run")
	o.fails(1, []string{"components", "upgrade", "wbe-server", "web-01", "--version", "2.5.0"}, "no agent runs component wbe-server, but web-server: ")
	o.fails(1, []string{"components", "rollback", "wbe-server", "web-01"}, "no agent runs component wbe-server, but web-server: ")
	o.fails(1, []string{"components", "list", "web-server", "--kuery", "components.version: 9.9.9"}, "no agent that the query selects runs component web-server")

	o.fails(2, []string{"components", "upgrade"}, "no component is named")
	o.fails(2, []string{"components", "upgrade", "web-server"}, "no agents are named")
	o.fails(2, []string{"components", "upgrade", "web-server", "web-01"}, "--version is missing")
	o.fails(2, []string{"components", "upgrade", "web-server", "web-01", "--version", "2.5.0", "--override-freeze"}, "--why is missing")
	o.fails(1, []string{"components", "upgrade", "web-server", "web-01", "--version", "2.6.0"}, "version: no package of component web-server in version 2.6.0 is published (published are 2.5.0)")
	o.fails(1, []string{"components", "upgrade", "web-server", "db-01", "--version", "2.5.0"}, "can be upgraded on none of the agents", "reports no component web-server")
	o.fails(1, []string{"agents", "upgrade", "db-01", "--component", "web-server", "--version", "2.5.0"}, "can be upgraded on none of the agents", "reports no component web-server")
	o.fails(1, []string{"agents", "rollback", "web-01", "--component", "wbe-server", "--to", "2.4.0"}, "no agent runs component wbe-server, but web-server: ")
	o.fails(2, []string{"agents", "rollback", "web-01", "--component", "web-server", "--forward"}, "--forward is for the agents themselves")
	o.fails(2, []string{"agents", "rollback", "web-01", "--to", "2.4.0"}, "--to goes with --component")
	all := []string{"components", "upgrade", "web-server", "--kuery", "*", "--version", "2.5.0"}
	o.contains(o.run(append(all, "--dry-run")...), "Component web-server would be upgraded to 2.5.0 on 2 agents, and not on 1.", "web-01   2.4.0   yes", "web-02   none    yes", "db-01    none    no        agent "+c.ID+" reports no component web-server")

	o.run("exposure", "set", "--percent", "50", "--healthy-hours", "1000")
	o.contains(o.run(append(all, "--dry-run")...), "The order would be refused: the exposure budget has room for 1 of the 2 agents", "--override-exposure")
	o.fails(1, all, "room for 1 of the 2 agents: 0 of 2 agents run 2.5.0", "--override-exposure --why REASON")
	all = append(all, "--override-exposure")
	o.fails(2, all, "--why is missing")
	all = append(all, "--why", "tested elsewhere")
	o.contains(o.run(all...), "Upgrading component web-server of 2 of 3 agents to 2.5.0: action ", "`muster components list web-server`")
	o.contains(o.run("components", "list", "web-server"), "requested 2.5.0")
	o.contains(o.run("actions", "list"), "UPGRADE of web-server   IN_PROGRESS   2.5.0     0           1        3 ")

	o.contains(o.run("audit"), "in spite of the exposure budget", "tested elsewhere")

	action := s.Fleet(a.ID).ComponentUpgrades["web-server"].UpgradeActionID
	a.Components[0].UpgradeDetails = apptest.Details(action, "2.5.0", agentapi.UpgradeReplacing)
	a.Components[0].UpgradeDetails.Metadata.Phase = agentapi.PhaseStopped
	a.MustCheckin(nil)
	type list struct {
		Items []struct {
			AgentID  string `json:"agent_id"`
			Hostname string
			adminapi.Component
		} `json:"items"`
	}
	if got := asJSON[list](o, "components", "list", "web-server", "--kuery", "components.upgrade_details.state: UPG_REPLACING"); len(got.Items) != 1 || got.Items[0].AgentID != a.ID || *got.Items[0].DesiredVersion != "2.5.0" {
		t.Errorf("being replaced are %+v", got)
	}
	o.contains(o.run("agents", "get", "web-01"), "upgrade: replacing 2.5.0 (stopped)")
	o.run("actions", "cancel", action)
	if got := o.run("components", "list", "web-server", "--kuery", "agent.id: "+b.ID); strings.Contains(got, "requested") {
		t.Errorf("after it was cancelled:\n%s", got)
	}
}

// A host repeats how its last upgrade ended until it begins the next one.
func TestComponentUpgradeWaitBeginsWithItsOwnOrder(t *testing.T) {
	o, s := loggedIn(t, quick)
	err := s.Store.Packages().Create(t.Context(), fleet.Package{File: "muster-component-web-server-2.5.0-linux-amd64.tar.gz", Version: "2.5.0", Component: "web-server", OS: "linux", Arch: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	a := s.Enroll("web-01", "1.0.0")
	web := apptest.Component("web-server", "2.4.0")
	web.UpgradeDetails = apptest.Details("earlier", "2.4.9", agentapi.UpgradeFailed)
	web.UpgradeDetails.Metadata = agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeWatching, ErrorMsg: "port 80 is taken"}
	a.Components = []agentapi.Component{web}
	a.MustCheckin(nil)
	o.contains(o.run("agents", "get", "web-01"), "port 80 is taken")
	_, errOut, ended := o.start(t.Context(), "", "components", "upgrade", "web-server", "web-01", "--version", "2.5.0", "--wait", "--timeout", apptest.WaitLimit.String())
	apptest.Eventually(t, "the order", func() string {
		if !strings.Contains(errOut.String(), "web-server requested 2.5.0") {
			return "so far: " + errOut.String()
		}
		return ""
	})
	a.MustCheckin(nil) // with the earlier failure
	a.Components = []agentapi.Component{apptest.Component("web-server", "2.5.0")}
	a.MustCheckin(nil)
	if code := <-ended; code != 0 || strings.Contains(errOut.String(), "port 80") {
		t.Errorf("exit code %d:\n%s", code, errOut)
	}
}

func TestComponentUpgradeWaitReportsTheOutcome(t *testing.T) {
	for name, row := range map[string]struct {
		version string // that runs at the end
		failure string
		code    int
		says    []string
	}{
		"succeeded": {"2.5.0", "", 0, []string{"web-server watching 2.5.0 (verifying)\n", "web-server is 2.5.0\n"}},
		"rolled back": {"2.4.0", "check port: connection refused", 1, []string{
			"web-server failed 2.5.0: check port: connection refused", "1 of 1 agent not upgraded: see `muster components list web-server`",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o, s := loggedIn(t, quick)
			err := s.Store.Packages().Create(t.Context(), fleet.Package{File: "muster-component-web-server-2.5.0-linux-amd64.tar.gz", Version: "2.5.0", Component: "web-server", OS: "linux", Arch: "amd64"})
			if err != nil {
				t.Fatal(err)
			}
			a := s.Enroll("web-01", "1.0.0")
			a.Components = []agentapi.Component{apptest.Component("web-server", "2.4.0")}
			a.MustCheckin(nil)
			out, errOut, ended := o.start(t.Context(), "", "components", "upgrade", "web-server", "web-01", "--version", "2.5.0", "--wait", "--timeout", apptest.WaitLimit.String())
			shown := func(text string) {
				apptest.Eventually(t, text, func() string {
					if !strings.Contains(errOut.String(), text) {
						return "so far: " + errOut.String()
					}
					return ""
				})
			}
			shown("web-server requested 2.5.0")
			details := apptest.Details(s.Fleet(a.ID).ComponentUpgrades["web-server"].UpgradeActionID, "2.5.0", agentapi.UpgradeWatching)
			details.Metadata.Phase, details.Metadata.Reason = agentapi.PhaseVerifying, "observed for another 1m0s"
			a.Components[0].UpgradeDetails = details
			a.MustCheckin(nil)
			shown("web-server watching 2.5.0 (verifying)")
			a.Components[0] = apptest.Component("web-server", row.version)
			if row.failure != "" {
				details.State = agentapi.UpgradeFailed
				details.Metadata = agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeWatching, ErrorMsg: row.failure}
				a.Components[0].UpgradeDetails = details
			}
			a.MustCheckin(nil)
			if code := <-ended; code != row.code || strings.Contains(out.String(), "done") != (code == 0) {
				t.Errorf("exit code %d: %s\n%s", code, out, errOut)
			}
			o.contains(errOut.String(), row.says...)
			if strings.Contains(errOut.String(), "ten minutes") {
				t.Errorf("a component is not watched like an agent:\n%s", errOut)
			}
		})
	}
}

func TestComponentsGoBackToTheVersionsThatTheirHostsKeep(t *testing.T) {
	o, s := loggedIn(t, quick)
	a, b, bare := s.Enroll("web-01", "1.0.0"), s.Enroll("web-02", "1.0.0"), s.Enroll("web-03", "1.0.0")
	for agent, kept := range map[*apptest.Agent][]string{a: {"2.3.0", "2.4.0"}, b: {"2.3.0", "2.5.0"}, bare: nil} {
		agent.Components = []agentapi.Component{apptest.Component("web-server", "2.5.0")}
		agent.Components[0].Rollbacks = kept
		agent.MustCheckin(nil)
	}
	back := func(more ...string) []string {
		return append([]string{"components", "rollback", "web-server"}, more...)
	}
	o.fails(2, []string{"components", "rollback"}, "no component is named")
	o.fails(2, back(), "no agents are named")
	o.fails(1, back("web-03"), "none of the agents has kept an earlier version of component web-server", "`muster components upgrade web-server AGENT --version VERSION --force`")
	o.fails(1, back("web-01", "--to", "2.2.0"), "web-server can be rolled back on none", "would go back to 2.4.0, not to 2.2.0")
	all := back("--kuery", "*")
	o.contains(o.run(append(all, "--dry-run")...), "would be rolled back on 2 agents, and not on 1.", "web-01   2.5.0   2.4.0", "web-02   2.5.0   2.3.0", "web-03   2.5.0   -             agent "+bare.ID+" keeps no earlier version")
	if got := asJSON[adminapi.RollbackPreview](o, append(all, "--dry-run")...); got.Will != 2 || got.Wont != 1 || len(got.Items) != 3 {
		t.Errorf("the dry run says %+v", got)
	}
	o.contains(o.run(back("web-01", "--to", "2.3.0", "--dry-run")...), "web-01   2.5.0   2.3.0")

	o.contains(o.run(append(all, "--why", "ticket 7")...), "Rolling component web-server back on 2 of 3 agents: action ", "`muster components list web-server`")
	for agent, want := range map[*apptest.Agent]string{a: "2.4.0", b: "2.3.0"} {
		var data agentapi.UpgradeData
		if got := agent.MustCheckin(nil).Actions; len(got) != 1 || json.Unmarshal(got[0].Data, &data) != nil || !data.Rollback || data.Version != want {
			t.Errorf("%s gets %+v", agent.Host, got)
		}
	}
	o.contains(o.run("actions", "list"), "ROLLBACK of web-server", "web-03: agent "+bare.ID+" keeps no earlier version")
	o.contains(o.run("audit"), "ordered the rollback of component web-server to 2.4.0", "ticket 7")
}

func TestComponentsAreRolledOut(t *testing.T) {
	o, s := loggedIn(t, quick)
	err := s.Store.Packages().Create(t.Context(), fleet.Package{
		File: "muster-component-web-server-2.5.0-linux-amd64.tar.gz", Version: "2.5.0", Component: "web-server", Runtime: "systemd", OS: "linux", Arch: "amd64", SHA512: strings.Repeat("0a", 64),
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Store.Policies().Get(t.Context(), fleet.DefaultPolicyID)
	if err != nil {
		t.Fatal(err)
	}
	p.Components = []agentapi.PolicyComponent{{Name: "web-server", Runtime: "systemd"}}
	if _, err := s.Store.Policies().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	a, b, c := s.Enroll("web-01", "1.0.0"), s.Enroll("web-02", "1.0.0"), s.Enroll("db-01", "1.0.0")
	a.Components = []agentapi.Component{apptest.Component("web-server", "2.4.0")}
	b.Components = []agentapi.Component{apptest.Component("web-server", "")}
	for _, agent := range []*apptest.Agent{a, b, c} {
		agent.MustCheckin(nil)
	}
	plan := []string{"--component", "web-server", "--version", "2.5.0", "--all", "--canary", "1"}
	o.contains(o.run(append([]string{"rollouts", "preview", "--agents-shown", "9"}, plan...)...), "2.4.0   2.5.0", "none    2.5.0", "no component", "Hosts observe the component, for a minute unless their policy says otherwise")
	o.contains(o.run(append([]string{"rollouts", "create", "--start", "--yes"}, plan...)...), `"upgrade to web-server 2.5.0"`)
	o.contains(o.run("rollouts", "list"), "web-server 2.5.0")
	o.contains(o.run("agents", "why", "web-01", "--component", "web-server"), "web-server on web-01", "component web-server is 2.4.0")
	o.contains(o.run("agents", "why", "web-01"), "no rollout includes it")
	o.fails(1, []string{"rollouts", "create", "--component", "cache", "--version", "1.0.0", "--all"}, "is cache, and no package of that component is published: packages of web-server are")
}

func TestPolicyUpdateSaysWhatItStops(t *testing.T) {
	o, s := loggedIn(t, quick)
	for _, host := range []string{"web-01", "web-02"} {
		agent := s.Enroll(host, "1.0.0")
		agent.Components = []agentapi.Component{apptest.Component("web", "2.4.0"), apptest.Component("db", "1.0.0"), apptest.Component("cache", "")}
		agent.MustCheckin(nil)
	}
	file := filepath.Join(t.TempDir(), "components.yaml")
	update := func(text string) string {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return o.run("policies", "update", "default", "--components", file)
	}
	all := update("components: [{name: web, runtime: process}, {name: db, runtime: systemd}, {name: cache, runtime: docker}]")
	o.contains(all, "default has revision 2 with 3 components; its 2 agents get it now")
	if strings.Contains(all, "left out") || strings.Contains(all, "installed") {
		t.Errorf("where nothing is left out or installed it says %q", all)
	}
	less := update("components: []")
	o.contains(less, "with 0 components", "web is left out: it is stopped on 2 hosts", "db is left out: it goes on and is managed no more on 2 hosts")
	if strings.Contains(less, "cache") {
		t.Errorf("of one that runs nowhere it says %q", less)
	}
}
