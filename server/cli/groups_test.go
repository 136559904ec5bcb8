package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
)

const groupFile = `name: autumn
failure_policy: manual
desired_versions: { db: 1.1.0, web: 1.1.0 }
members:
  - name: db
    plan: { select: { agents: [DB] }, strategy: { kind: all_at_once, skip_validation: true } }
  - name: web
    plan: { select: { agents: [WEB] }, strategy: { kind: all_at_once, skip_validation: true } }
`

func TestGroupCommandsFromDraftToEnd(t *testing.T) {
	o, s := loggedIn(t, quick)
	s.Publisher().Publish("1.1.0")
	db, web := s.Enroll("db-01", "1.0.0"), s.Enroll("web-01", "1.0.0")
	db.MustCheckin(nil)
	web.MustCheckin(nil)
	o.contains(o.run("groups", "list"), "no groups: create one with `muster groups create`")

	text := strings.NewReplacer("DB", db.ID, "WEB", web.ID).Replace(groupFile)
	file := filepath.Join(t.TempDir(), "group.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Replace(text, "failure_policy: manual\n", "", 1))
	o.fails(2, []string{"groups", "create"}, "--file is missing: `muster groups example`")
	o.fails(1, []string{"groups", "create", "--file", file}, file+":1: failure_policy", "has no default")
	write(strings.Replace(text, "name: web", "name: db", 1))
	o.fails(1, []string{"groups", "create", "--file", file}, file+":7: members[1].name", "as is members[0].name")
	write(strings.Replace(text, "web: 1.1.0", "web: 9.9.9", 1))
	o.fails(1, []string{"groups", "create", "--file", file}, file+":8: members[1].plan.artifacts", "9.9.9")
	write(strings.Replace(text, "members:", "member:", 1))
	o.fails(1, []string{"groups", "create", "--file", file}, file+":4: member is not a known key")
	write(text)
	o.fails(2, []string{"groups", "create", "--file", file, "--start"}, "add --yes")
	o.fails(2, []string{"groups", "create", "--file", file, "--wait"}, "add --start")

	id := asJSON[adminapi.RolloutGroupItem](o, "groups", "create", "--file", file, "--why", "OPS-7").Item.ID
	o.contains(o.run("groups", "list", "--state", "draft"), id, "autumn", "manual", "db pending, web pending", "not yet")
	o.fails(2, []string{"groups", "list", "--state", "odd"}, `--state is "odd"`)
	o.contains(o.run("groups", "show", "autumn"), "state          draft", "on failure     manual", "`muster groups start "+id+"`")
	preview := asJSON[adminapi.GroupPreviewItem](o, "groups", "preview", id).Item
	o.contains(o.run("groups", "preview", id), "db ", "1.1.0", "muster groups start "+id+" --hash "+preview.Hash)
	o.fails(1, []string{"groups", "watch", id}, "is a draft", "muster groups start "+id)
	o.fails(2, []string{"groups", "start", id}, "standard input is not a terminal")
	o.fails(1, []string{"groups", "start", id, "--hash", "sha256:0"}, "changed since the preview")
	o.fails(1, []string{"groups", "pause", id}, "has not been started")
	o.contains(o.run("groups", "start", id, "--hash", preview.Hash), `Started group "autumn" (`+id+") with 2 members.", "muster groups watch "+id)
	o.fails(1, []string{"groups", "delete", id}, "only drafts can be deleted")

	// The first member's agent fails, so the group asks.
	apptest.Eventually(t, "the offer", func() string {
		if doc := s.Fleet(db.ID); !doc.Upgrading() {
			return o.run("groups", "show", id)
		}
		return ""
	})
	db.MustCheckin(nil)
	db.Ack("the disk is full", s.Fleet(db.ID).UpgradeActionID)
	o.fails(4, []string{"groups", "watch", id, "--timeout", apptest.WaitLimit.String()}, "is paused", "1 of 1 agent failed", "muster groups skip "+id+" db --why …", "muster groups rollback "+id)
	o.contains(o.run("groups", "show", id), "state          paused", "stopped", "failed", "0/1", id+"-1")
	o.fails(1, []string{"groups", "resume", id, "--why", "now"}, "skip the member, or roll the group back")
	o.fails(1, []string{"groups", "skip", id, "db"}, "why", "is missing")
	o.fails(2, []string{"groups", "skip", id}, "the name of a member")
	o.contains(o.run("groups", "skip", id, "db", "--why", "broken disk"), "goes on without db")
	apptest.Eventually(t, "the next offer", func() string {
		if doc := s.Fleet(web.ID); !doc.Upgrading() {
			return o.run("groups", "show", id)
		}
		return ""
	})
	web.MustCheckin(nil)
	web.Ack("", s.Fleet(web.ID).UpgradeActionID)
	web.Version = "1.1.0"
	web.MustCheckin(nil)
	o.fails(3, []string{"groups", "watch", id, "--timeout", apptest.WaitLimit.String()}, "ended partial", "muster groups rollback "+id)
	o.contains(o.run("audit", id), "OPS-7", "broken disk", "left out db", "some members are completed")
	o.contains(o.run("rollouts", "list"), "autumn: db", "autumn: web")

	draft := asJSON[adminapi.RolloutGroupItem](o, "groups", "create", "--file", file).Item.ID
	if got := asJSON[adminapi.ActionWord](o, "groups", "delete", draft); got.Action != "deleted" {
		t.Errorf("delete says %+v", got)
	}
	if got := asJSON[adminapi.RolloutGroupList](o, "groups", "list"); got.Total != 1 || got.Items[0].State != fleet.GroupPartial {
		t.Errorf("groups are %+v", got)
	}
}

func TestGroupsArePausedAndCancelled(t *testing.T) {
	o, s := loggedIn(t, quick)
	s.Publisher().Publish("1.1.0")
	db, web := s.Enroll("db-01", "1.0.0"), s.Enroll("web-01", "1.0.0")
	db.MustCheckin(nil)
	web.MustCheckin(nil)
	text := strings.NewReplacer("DB", db.ID, "WEB", web.ID).Replace(groupFile)
	got := o.tryWith(text, "groups", "create", "--file", "-", "--start", "--yes", "-o", "json")
	if got.code != 0 {
		t.Fatal(got.err)
	}
	o.contains(got.err, "MEMBER", "db", "web")
	id := asJSON[adminapi.RolloutGroupList](o, "groups", "list").Items[0].ID
	o.contains(o.run("groups", "pause", id, "--now", "--why", "lunch"), "Paused group", "muster groups resume "+id)
	o.fails(6, []string{"groups", "watch", id}, "is paused: first key paused it: lunch", "Resume it with `muster groups resume "+id)
	o.contains(o.run("groups", "resume", id), "Resumed group")
	o.fails(1, []string{"groups", "watch", id, "--timeout", "50ms"}, "continues", "`muster groups watch "+id+"`")
	o.fails(5, []string{"groups", "cancel", id, "--wait", "--timeout", apptest.WaitLimit.String()}, "was cancelled")
	for _, args := range [][]string{{"__complete", "groups", "show", ""}, {"__complete", "groups", "skip", id, ""}} {
		o.contains(o.run(args...), map[bool]string{true: "db\tcancelled", false: id + "\tcancelled autumn"}[len(args) == 5])
	}
}
