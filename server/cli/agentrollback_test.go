package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestRollbackPreviewsAndOrders(t *testing.T) {
	o, s := loggedIn(t, quick)
	a, bare := s.Enroll("web-01", "1.1.0"), s.Enroll("web-02", "1.1.0")
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	a.Kept = []agentapi.Rollback{{Version: "1.0.0", ValidUntil: until}}
	a.MustCheckin(nil)

	o.contains(o.run("agents", "get", a.ID), "rollback     to 1.0.0, until "+until.Local().Format(time.DateTime))
	o.contains(o.run("agents", "get", bare.ID), "rollback     no: upgrade rollback not available for agent")
	o.contains(o.run("agents", "rollback", a.ID, bare.ID, "--dry-run"), "1 would be rolled back, 1 would not", "web-01   1.1.0   1.0.0", "not available", "CAUSE", "The host keeps no earlier version.")
	if got := asJSON[adminapi.RollbackPreview](o, "agents", "rollback", a.ID, "--dry-run"); got.Will != 1 || *got.Items[0].To != "1.0.0" {
		t.Errorf("the dry run says %+v", got)
	}
	if list := asJSON[adminapi.ActionStatusList](o, "actions", "list"); len(list.Items) != 0 {
		t.Fatal("a dry run created an action")
	}
	o.fails(1, []string{"agents", "rollback", bare.ID}, "not available", "none of the agents can be rolled back")
	o.fails(2, []string{"agents", "rollback"}, "no agents are named")

	o.contains(o.run("agents", "rollback", a.ID, bare.ID), "Rolling back 1 of 2 agents: action ")
	o.contains(o.run("actions", "list"), "ROLLBACK", "IN_PROGRESS", "1.0.0", "web-02: upgrade rollback not available")
	o.contains(o.run("agents", "list"), "sent the rollback to 1.0.0")
}

func TestRollbackWaitDuringTheWatch(t *testing.T) {
	for name, row := range map[string]struct {
		end  func(a *apptest.Agent, up, back string)
		code int
		says []string
	}{
		"succeeded": {func(a *apptest.Agent, up, back string) {
			a.Ack("", back)
			a.Version = "1.0.0"
			a.MustCheckin(apptest.Details(up, "1.1.0", agentapi.UpgradeRollback))
		}, 0, []string{"rollback requested", "runs 1.0.0"}},
		"reported by the watcher": {func(a *apptest.Agent, up, _ string) {
			b := apptest.Beacon(up, agentapi.BeaconRolledBack)
			b.Agent.Version = "1.0.0"
			a.Beacon(b)
		}, 0, []string{"runs 1.0.0"}},
		"refused by the agent": {func(a *apptest.Agent, _, back string) {
			a.Ack("the older version is gone", back)
		}, 1, []string{"failed 1.0.0: the older version is gone", "1 of 1 agent not rolled back"}},
	} {
		t.Run(name, func(t *testing.T) {
			o, s := loggedIn(t, quick)
			s.Publisher().Publish("1.1.0")
			a := s.Enroll("web-01", "1.0.0")
			up := asJSON[adminapi.ActionCreated](o, "agents", "upgrade", a.ID, "--version", "1.1.0").ActionId
			a.MustCheckin(nil)
			a.Version = "1.1.0"
			a.MustCheckin(apptest.Details(up, "1.1.0", agentapi.UpgradeWatching))
			a.Beacon(apptest.Beacon(up, agentapi.BeaconWatching))
			o.contains(o.run("agents", "get", a.ID), "rollback     to 1.0.0, while the upgrade is watched", "watcher      watching 1.1.0, reported now; the agent runs and is healthy")

			_, errOut, ended := o.start(t.Context(), "", "agents", "rollback", a.ID, "--wait", "--timeout", apptest.WaitLimit.String())
			apptest.Eventually(t, "the rollback to begin", func() string {
				if doc := s.Fleet(a.ID); !doc.UpgradeRollback || !strings.Contains(errOut.String(), "rollback requested") {
					return "so far: " + errOut.String()
				}
				return ""
			})
			row.end(a, up, s.Fleet(a.ID).UpgradeActionID)
			if code := <-ended; code != row.code {
				t.Errorf("exit code %d: %s", code, errOut)
			}
			o.contains(errOut.String(), row.says...)
		})
	}
}

func TestRetryOfAnUpgradeIsShownWithItsTime(t *testing.T) {
	o, s := loggedIn(t, quick)
	s.Publisher().Publish("1.1.0")
	a := s.Enroll("web-01", "1.0.0")
	up := asJSON[adminapi.ActionCreated](o, "agents", "upgrade", a.ID, "--version", "1.1.0").ActionId
	next := time.Now().Add(5 * time.Minute)
	details := apptest.Details(up, "1.1.0", agentapi.UpgradeScheduled)
	details.Metadata = agentapi.UpgradeMetadata{ScheduledAt: &next, RetryErrorMsg: "no route to host", RetryAttempt: 2, RetryLimit: 6}
	a.MustCheckin(details)
	a.Ack("", "unknown") // does not end the upgrade
	want := "scheduled 1.1.0, retry 2 of 6 at " + next.Local().Format("15:04") + ": no route to host"
	o.contains(o.run("agents", "get", a.ID), want)
	o.contains(o.run("agents", "list"), "healthy", want)
	if got := asJSON[adminapi.AgentItem](o, "agents", "get", a.ID).Item; got.UpgradeStartedAt == nil || *got.UpgradeDetails.Metadata.RetryAttempt != 2 {
		t.Errorf("get shows %+v", got)
	}
}
