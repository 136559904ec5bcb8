package admin_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
)

// A preview of many agents is small: it counts all of them, by cause, and lists as many as are
// asked for.
func TestPreviewsCountAllAndListSome(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	good, done, newer := s.Enroll("good", "1.0.0"), s.Enroll("done", "1.1.0"), s.Enroll("newer", "1.2.0")
	for _, a := range []*apptest.Agent{good, done, newer} {
		a.MustCheckin(nil)
	}
	ask := func(path string, body map[string]any) adminapi.UpgradePreview {
		t.Helper()
		return apptest.Decode[adminapi.UpgradePreview](t, s.Admin("POST", path, body))
	}
	codes := func(causes *[]adminapi.PreviewCause) string {
		var out []string
		for _, c := range *causes {
			word := c.Code
			if c.Choice != "" {
				word += " " + c.Choice
			}
			if c.Will {
				word += " remark"
			}
			out = append(out, word)
		}
		return strings.Join(out, ", ")
	}
	body := map[string]any{"version": "1.1.0", "agents": []string{good.ID, done.ID, newer.ID, "gone"}, "max_items": 1}
	p := ask("/api/v1/upgrade_preview", body)
	if p.Will != 1 || p.Wont != 3 || len(p.Items) != 1 || codes(p.Causes) != "newer force, not_found, running" {
		t.Errorf("%d would, %d would not, %d items, causes %s", p.Will, p.Wont, len(p.Items), codes(p.Causes))
	}
	body["force"], body["max_items"] = true, 0
	p = ask("/api/v1/upgrade_preview", body)
	if p.Will != 2 || len(p.Items) != 0 || codes(p.Causes) != "not_found, running, newer remark" { // no host takes what it runs
		t.Errorf("with force %d would, %d items, causes %s", p.Will, len(p.Items), codes(p.Causes))
	}
	body["max_items"] = -1
	refused(t, "max_items -1", s.Admin("POST", "/api/v1/upgrade_preview", body), http.StatusBadRequest, "body.max_items")
	back := apptest.Decode[adminapi.RollbackPreview](t, s.Admin("POST", "/api/v1/rollback_preview", map[string]any{"agents": "*", "max_items": 2}))
	if back.Wont != 3 || len(back.Items) != 2 || codes(back.Causes) != "no_way_back" {
		t.Errorf("rollback: %d would not, %d items, causes %s", back.Wont, len(back.Items), codes(back.Causes))
	}
	plan := map[string]any{"name": "p", "version": "1.1.0", "select": map[string]any{"all": true}, "strategy": map[string]any{"kind": "rolling"}}
	roll := made[adminapi.RolloutPreview](t, s.Admin("POST", "/api/v1/rollout_preview?max_items=1", map[string]any{"plan": plan}))
	if roll.TargetCount != 1 || roll.SkippedCount != 2 || len(roll.Skipped) != 1 || codes(&roll.Causes) != "newer force, running" {
		t.Errorf("rollout: %d targets, %d skipped of which %d are listed, causes %s", roll.TargetCount, roll.SkippedCount, len(roll.Skipped), codes(&roll.Causes))
	}
}

// A package that does not fit is no surprise: hosts report what is free, and the server knows what
// the package needs.
func TestPreviewsCountHostsWithoutSpace(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	ids := map[string]string{}
	for host, free := range map[string]int64{"full": 0, "small": 1 << 20, "roomy": 1 << 40} {
		a := s.Enroll(host, "1.0.0")
		a.FreeBytes = &free
		a.MustCheckin(nil)
		ids[host] = a.ID
	}
	body := map[string]any{"version": "1.1.0", "agents": "*"}
	p := apptest.Decode[adminapi.UpgradePreview](t, s.Admin("POST", "/api/v1/upgrade_preview", body))
	causes := *p.Causes
	if p.Will != 1 || len(causes) != 1 || causes[0].Code != "no_space" || causes[0].Count != 2 || causes[0].Choice != fleet.ChoiceForce ||
		!strings.HasPrefix(causes[0].Text, "The host needs 17 MB of free disk space for version 1.1.0") || len(causes[0].Sample) != 2 {
		t.Errorf("%d would be upgraded, causes %+v", p.Will, causes)
	}
	for _, i := range p.Items {
		if i.AgentId == ids["small"] && !strings.Contains(*i.Reason, "it last reported 1 MB") {
			t.Errorf("the host with 1 MB is previewed with %q", *i.Reason)
		}
	}
	plan := map[string]any{"name": "p", "version": "1.1.0", "select": map[string]any{"all": true}, "strategy": map[string]any{"kind": "rolling"}}
	roll := made[adminapi.RolloutPreview](t, s.Admin("POST", "/api/v1/rollout_preview", map[string]any{"plan": plan}))
	if c := roll.Causes; roll.TargetCount != 1 || len(c) != 1 || c[0].Code != "no_space" || c[0].Count != 2 || c[0].Text != causes[0].Text || c[0].Choice != fleet.ChoiceForce {
		t.Errorf("the rollout has %d targets, causes %+v", roll.TargetCount, c)
	}
	plan["force"] = true
	forced := made[adminapi.RolloutPreview](t, s.Admin("POST", "/api/v1/rollout_preview", map[string]any{"plan": plan}))
	if !strings.Contains(strings.Join(forced.Warnings, "\n"), "2 targets report less free space than 1.1.0 needs") || forced.TargetCount != 3 {
		t.Errorf("with force the rollout has %d targets and warns: %q", forced.TargetCount, forced.Warnings)
	}
	refused(t, "an order for a full host", s.Admin("POST", "/api/fleet/agents/"+ids["full"]+"/upgrade", map[string]any{"version": "1.1.0"}), http.StatusBadRequest, "of free disk space")
	body["force"] = true
	p = apptest.Decode[adminapi.UpgradePreview](t, s.Admin("POST", "/api/v1/upgrade_preview", body))
	if c := *p.Causes; p.Will != 3 || len(c) != 1 || c[0].Code != "no_space" || !c[0].Will {
		t.Errorf("with force %d would be upgraded, causes %+v", p.Will, c)
	}
}

// The board of a rollout asks again and again, and gets an answer only if something has changed.
func TestRolloutGridAnswersOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("2.0.0")
	a := s.Enroll("web-1", "1.0.0")
	a.MustCheckin(nil)
	r := made[adminapi.Rollout](t, s.Admin("POST", "/api/v1/rollouts", slow("2.0.0", map[string]any{"select": map[string]any{"agents": []string{a.ID}}})))
	commands := func(r adminapi.Rollout) (primary string, allowed []string) {
		for _, c := range r.Commands {
			if c.Primary {
				primary = c.Name
			}
			if c.Allowed {
				allowed = append(allowed, c.Name)
			}
		}
		return primary, allowed
	}
	if primary, allowed := commands(r); primary != "start" || strings.Join(allowed, " ") != "start delete" {
		t.Errorf("a draft asks for %q and allows %v", primary, allowed)
	}
	hash := made[adminapi.RolloutPreview](t, s.Admin("POST", "/api/v1/rollouts/"+r.ID+"/preview", nil)).Hash
	r = made[adminapi.Rollout](t, s.Admin("POST", "/api/v1/rollouts/"+r.ID+"/start", map[string]any{"hash": hash}))
	if primary, _ := commands(r); primary != "pause" || r.Pace == nil || r.Pace.Total != 1 || r.WouldStop == "" {
		t.Errorf("it asks for %q, its pace is %+v, and it would stop by %v", primary, r.Pace, r.WouldStop)
	}
	// Paused, its targets stay as they are.
	s.Admin("POST", "/api/v1/rollouts/"+r.ID+"/pause", map[string]any{"now": true})
	apptest.Eventually(t, "the offer to be withdrawn", func() string {
		got := made[adminapi.Rollout](t, s.Admin("GET", "/api/v1/rollouts/"+r.ID, nil))
		if primary, _ := commands(got); primary != "resume" || got.Counts.Offered > 0 {
			return primary
		}
		return ""
	})
	var tag string
	apptest.Eventually(t, "the grid to rest", func() string {
		got := s.Admin("GET", "/api/v1/rollouts/"+r.ID+"/grid", nil)
		grid := apptest.Decode[adminapi.RolloutGrid](t, got)
		if len(grid.AgentIds) != 1 || grid.Hostnames[0] != "web-1" || len(*grid.Progress) != 1 || grid.States[0].InFlight() {
			return string(got.Body)
		}
		tag = got.Header.Get("ETag")
		return ""
	})
	again, err := s.Do(t.Context(), apptest.Request{
		Method: "GET", URL: s.AdminURL + "/api/v1/rollouts/" + r.ID + "/grid", Header: apptest.Headers("Authorization", "ApiKey "+s.AdminKey, "If-None-Match", tag),
	})
	if err != nil || again.Status != http.StatusNotModified || len(again.Body) > 0 || tag == "" {
		t.Errorf("the same grid again, with the tag %q: %d %s, %v", tag, again.Status, again.Body, err)
	}
}

// A rollout goes on with its targets, whatever their policy and tags are by then: the calls that
// change these say so.
func TestReassignAndTagSayWhichRolloutsGoOn(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	target, free := s.Enroll("target", "1.0.0"), s.Enroll("free", "1.0.0")
	target.MustCheckin(nil)
	free.MustCheckin(nil)
	r := made[adminapi.Rollout](t, s.Admin("POST", "/api/v1/rollouts", slow("1.1.0", map[string]any{"select": map[string]any{"agents": []string{target.ID}}})))
	path := "/api/v1/rollouts/" + r.ID
	tag := func(dry bool, ids ...string) []string {
		t.Helper()
		got := apptest.Decode[adminapi.BulkActionResponse](t, s.Admin("POST", "/api/fleet/agents/bulk_update_agent_tags", map[string]any{"agents": ids, "tagsToRemove": []string{"x"}, "dryRun": dry}))
		if dry != (got.Count != nil) || dry == (got.ActionId != nil) {
			t.Errorf("dry run %v: %+v", dry, got)
		}
		if got.Warnings == nil {
			return nil
		}
		return *got.Warnings
	}
	if said := tag(false, target.ID); said != nil {
		t.Errorf("before the rollout it says %q", said)
	}
	pre := made[adminapi.RolloutPreview](t, s.Admin("POST", path+"/preview", nil))
	made[adminapi.Rollout](t, s.Admin("POST", path+"/start", map[string]any{"hash": pre.Hash}))
	for _, dry := range []bool{true, false} {
		if said := tag(dry, target.ID, free.ID); len(said) != 1 || !strings.Contains(said[0], "1 agent is a target of the active rollout “"+r.Plan.Name+"” ("+r.ID+")") {
			t.Errorf("dry run %v: it says %q", dry, said)
		}
	}
	if said := tag(false, free.ID); said != nil {
		t.Errorf("of another agent it says %q", said)
	}
	for _, c := range []struct {
		id   string
		body map[string]any
		want int
	}{
		{target.ID, map[string]any{"tags": []string{"y"}}, 1},
		{target.ID, map[string]any{"tags": []string{}}, 1},
		{target.ID, map[string]any{"user_provided_metadata": map[string]any{"rack": "1"}}, 0},
		{free.ID, map[string]any{"tags": []string{"y"}}, 0},
	} {
		got := apptest.Decode[adminapi.UpdatedAgent](t, s.Admin("PUT", "/api/fleet/agents/"+c.id, c.body))
		said := orNone(got.Warnings)
		if got.Item.Id != c.id || len(said) != c.want || c.want > 0 && !strings.Contains(said[0], "1 agent is a target of the active rollout “"+r.Plan.Name+"” ("+r.ID+")") {
			t.Errorf("changed by %v, %s has the warnings %q", c.body, got.Item.Id, said)
		}
	}
	policy := made[adminapi.Policy](t, s.Admin("POST", "/api/fleet/agent_policies", map[string]any{"name": "Lab", "namespace": "default"})).Id
	for id, want := range map[string]int{target.ID: 1, free.ID: 0} {
		got := apptest.Decode[adminapi.Reassigned](t, s.Admin("POST", "/api/fleet/agents/"+id+"/reassign", map[string]any{"policy_id": policy}))
		if n := len(orNone(got.Warnings)); n != want {
			t.Errorf("reassigned, %s has the warnings %v", id, got.Warnings)
		}
	}
}

func orNone(list *[]string) []string {
	if list == nil {
		return nil
	}
	return *list
}
