package admin_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
)

// slow returns a plan whose rollout does not advance during a test: its canary is watched
// for ten minutes.
func slow(version string, change ...map[string]any) map[string]any {
	plan := map[string]any{
		"name": "to " + version, "version": version, "select": map[string]any{"all": true},
		"strategy": map[string]any{"kind": "canary", "canary": map[string]any{"size": 1, "approval": true}},
	}
	for _, c := range change {
		maps.Copy(plan, c)
	}
	return map[string]any{"plan": plan, "why": "OPS-1"}
}

func made[T any](t *testing.T, got apptest.Answer) T {
	t.Helper()
	return apptest.Decode[struct{ Item T }](t, got).Item
}

// tryRollouts is the part of TestResponsesMatchTheSpecification about rollouts.
func tryRollouts(t *testing.T, s *apptest.Server, do func(call *adminapi.Call, body any, params ...string) map[string]any) {
	t.Helper()
	item := func(v map[string]any) map[string]any { return v["item"].(map[string]any) }
	s.Publisher().Publish("2.0.0")
	f, g := s.Enroll("db-01", "1.1.0"), s.Enroll("db-02", "1.1.0")
	for _, a := range []*apptest.Agent{f, g} {
		a.MustCheckin(nil)
	}
	tryGroups(t, s, do, f.ID, g.ID)
	some := map[string]any{"select": map[string]any{"agents": []string{f.ID, g.ID}}}
	do(adminapi.DryRunRollout.Call, map[string]any{"plan": slow("2.0.0", some)["plan"]})
	id := item(do(adminapi.CreateRollout.Call, slow("2.0.0", some)))["id"].(string)
	draft := item(do(adminapi.CreateRollout.Call, slow("2.0.0", some)))["id"].(string)
	do(adminapi.DeleteRollout.Call, nil, draft)
	do(adminapi.ListRollouts.Call, nil)
	hash := item(do(adminapi.PreviewRollout.Call, nil, id))["hash"].(string)
	do(adminapi.GetRolloutPreview.Call, nil, id, hash)
	do(adminapi.StartRollout.Call, map[string]any{"hash": hash, "why": "OPS-1"}, id)
	do(adminapi.GetRollout.Call, nil, id)
	do(adminapi.ListTargets.Call, nil, id)
	do(adminapi.GetRolloutGrid.Call, nil, id)
	do(adminapi.ListAudit.Call, nil, id)
	do(adminapi.GetAgent.Call, nil, f.ID)
	do(adminapi.ExplainAgent.Call, nil, f.ID)
	do(adminapi.ListRollouts.Call, nil)
	do(adminapi.PauseRollout.Call, map[string]any{"now": true, "why": "lunch"}, id)
	do(adminapi.GetRollout.Call, nil, id)

	// Both targets are set to failed, so that each command applies. A paused rollout does not
	// change them.
	failed := func(agents ...string) {
		t.Helper()
		apptest.Eventually(t, "the targets to have failed", func() string {
			targets, err := s.Store.Targets().GetMany(t.Context(), id, agents)
			if err != nil {
				return err.Error()
			}
			for i := range targets {
				targets[i].State, targets[i].Code, targets[i].EndedAt = fleet.TargetFailed, fleet.WhyStale, new(time.Now())
			}
			_, errs, err := s.Store.Targets().UpdateMany(t.Context(), targets)
			for _, one := range append(errs, err) {
				if one != nil {
					return one.Error()
				}
			}
			return ""
		})
	}
	failed(f.ID, g.ID)
	do(adminapi.RetryTarget.Call, nil, id, f.ID)
	failed(f.ID, g.ID)
	do(adminapi.RetryTargets.Call, map[string]any{"agents": []string{g.ID}}, id)
	do(adminapi.SkipTargets.Call, map[string]any{"agents": []string{g.ID}, "why": "broken disk"}, id)
	do(adminapi.ResumeRollout.Call, map[string]any{"why": "back"}, id)
	do(adminapi.ForceRollout.Call, map[string]any{"why": "it must be today"}, id)
	apptest.Eventually(t, "the canaries to be done", func() string {
		r, err := s.Store.Rollouts().Get(t.Context(), id)
		if err == nil {
			r.Batches[0].EndedAt = new(time.Now())
			_, err = s.Store.Rollouts().Update(t.Context(), r)
		}
		if err != nil {
			return err.Error()
		}
		if got := s.Admin(http.MethodPost, "/api/v1/rollouts/"+id+"/approve", nil); got.Status != http.StatusOK {
			return string(got.Body)
		}
		return ""
	})
	do(adminapi.ApproveRollout.Call, nil, id)
	do(adminapi.PromoteRollout.Call, map[string]any{"why": "it is needed today"}, id)
	do(adminapi.AdjustRollout.Call, map[string]any{"limits": map[string]any{"max_parallel": 7}, "why": "the night is short"}, id)
	do(adminapi.CancelRollout.Call, map[string]any{"now": true}, id)
	do(adminapi.RollbackRollout.Call, map[string]any{"scope": "all", "why": "no good"}, rolledOut(t, s, f.ID))
	do(adminapi.ExplainAgent.Call, nil, g.ID)

	do(adminapi.GetExposure.Call, nil)
	do(adminapi.SetExposure.Call, map[string]any{"enabled": true, "percent": 50, "healthy_hours": 1, "per": []any{map[string]any{"label": "site", "percent": 60}}})
	freeze := item(do(adminapi.CreateFreeze.Call, map[string]any{"name": "end of year", "from": "2096-12-18T00:00:00Z", "to": "2097-01-04T00:00:00Z"}))["id"].(string)
	do(adminapi.ListFreezes.Call, nil)
	do(adminapi.ChangeFreeze.Call, map[string]any{"name": "end of year", "from": "2096-12-18T00:00:00Z", "to": "2097-01-05T00:00:00Z", "why": "one day more"}, freeze)
	do(adminapi.DeleteFreeze.Call, nil, freeze)
	dir := filepath.Join(s.Data, "upgrades", "web")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	text := "version: 2.0.0\ndescription: a test\nmigration:\n  type: breaking\n  recovery_plan: restore it\n"
	if err := os.WriteFile(filepath.Join(dir, "u1.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	do(adminapi.ListUpgradeManifests.Call, nil)
	do(adminapi.GetUpgradeManifest.Call, nil, "web", "u1")
	allowRendering(t, s, "{{.Host.hostname}}")("80")
	enrollWithComponent(s, "web-09")
	do(adminapi.PreviewConfig.Call, map[string]any{"agents": []string{g.ID}}, "edge", "web")
	files := item(do(adminapi.CreateRollout.Call, ofManifest()))["id"].(string)
	hash = item(do(adminapi.PreviewRollout.Call, nil, files))["hash"].(string)
	do(adminapi.ListPreviewConfigs.Call, nil, files, hash)
	tryIncidentsAndWebhooks(t, s, do)
}

// rolledOut stores a completed rollout of the agent.
func rolledOut(t *testing.T, s *apptest.Server, agent string) string {
	t.Helper()
	now := time.Now().UTC()
	r := fleet.Rollout{
		ID: fleet.NewID(), State: fleet.RolloutCompleted, Plan: fleet.Plan{Name: "done", Version: "1.1.0", Strategy: fleet.Strategy{Kind: fleet.AllAtOnce}},
		Policies: []string{"default"}, Batches: []fleet.Batch{{StartedAt: &now, EndedAt: &now, ClearedAt: &now, Counts: fleet.Counts{Total: 1, Succeeded: 1}}},
		Counts: fleet.Counts{Total: 1, Succeeded: 1}, CreatedAt: now, StartedAt: &now, EndedAt: &now, Pin: &fleet.Pin{Hash: "sha256:x", Targets: 1, At: now},
	}
	if err := s.Store.Rollouts().Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	target := fleet.Target{RolloutID: r.ID, AgentID: agent, Hostname: "db-01", State: fleet.TargetSucceeded, From: "1.0.0", To: "1.1.0", EndedAt: &now}
	if err := s.Store.Targets().Create(t.Context(), []fleet.Target{target}); err != nil {
		t.Fatal(err)
	}
	s.Publisher().Publish("1.0.0")
	apptest.Eventually(t, "the policy to be free", func() string {
		rollouts := answered[adminapi.RolloutList](t, s.Admin(http.MethodGet, "/api/v1/rollouts", nil))
		for _, r := range rollouts.Items {
			if r.State == fleet.RolloutCancelling {
				return "a rollout is being cancelled"
			}
		}
		return ""
	})
	return r.ID
}

func answered[T any](t *testing.T, got apptest.Answer) T {
	t.Helper()
	return apptest.Decode[T](t, got)
}

func tryIncidentsAndWebhooks(t *testing.T, s *apptest.Server, do func(call *adminapi.Call, body any, params ...string) map[string]any) {
	t.Helper()
	now := time.Now().UTC()
	i := fleet.Incident{
		ID: "upgrade_stalled:r1:a1", Category: fleet.IncidentStalled, Severity: "warning", State: fleet.IncidentOpen, Title: "stalled", Text: "It is stalled.",
		RolloutID: "r1", AgentID: "a1", Hostname: "db-01", RecoveryPlan: "restore it", OpenedAt: now, Count: 1,
	}
	if err := s.Store.Incidents().Create(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	do(adminapi.ListIncidents.Call, nil)
	do(adminapi.AckIncident.Call, map[string]any{"why": "looking"}, i.ID)
	do(adminapi.ResolveIncident.Call, nil, i.ID)
	i.ID, i.AgentID = "upgrade_stalled:r1:a2", "a2"
	if err := s.Store.Incidents().Create(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	do(adminapi.ResolveIncidents.Call, map[string]any{"ids": []string{i.ID}, "why": "all"})
	do(adminapi.ListIncidents.Call, nil)

	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	t.Cleanup(receiver.Close)
	hook := do(adminapi.CreateWebhook.Call, map[string]any{"name": "chat", "url": receiver.URL, "events": []string{fleet.EventRolloutPaused}})["item"].(map[string]any)["id"].(string)
	do(adminapi.ListWebhooks.Call, nil)
	do(adminapi.TestWebhook.Call, nil, hook)
	do(adminapi.DisableWebhook.Call, nil, hook)
	do(adminapi.EnableWebhook.Call, nil, hook)
	letter := fleet.DeadLetter{ID: hook + ":1", WebhookID: hook, Type: fleet.EventRolloutPaused, Body: json.RawMessage(`{"id":"1"}`), Error: "it was away", Attempts: 5, At: now}
	if err := s.Store.DeadLetters().Create(t.Context(), letter); err != nil {
		t.Fatal(err)
	}
	do(adminapi.ListDeadLetters.Call, nil)
	do(adminapi.Redeliver.Call, nil, letter.ID)
	do(adminapi.DeleteWebhook.Call, nil, hook)
}

func TestStartRequiresTheHashOfTheCurrentPreview(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	a := s.Enroll("web-01", "1.0.0")
	a.MustCheckin(nil)
	r := made[adminapi.Rollout](t, s.Admin("POST", "/api/v1/rollouts", slow("1.1.0")))
	path := "/api/v1/rollouts/" + r.ID
	p := made[adminapi.RolloutPreview](t, s.Admin("POST", path+"/preview", nil))
	if len(p.Targets) != 1 || p.Hash == "" {
		t.Fatalf("the preview is %+v", p)
	}
	refused(t, "starting without a hash", s.Admin("POST", path+"/start", map[string]any{}), 400, "[request body.hash]")

	b := s.Enroll("web-02", "1.0.0")
	b.MustCheckin(nil)
	got := s.Admin("POST", path+"/start", map[string]any{"hash": p.Hash})
	var drift adminapi.DriftRefusal
	if err := json.Unmarshal(got.Body, &drift); err != nil || got.Status != 409 {
		t.Fatalf("with a fleet that has changed: %d %s", got.Status, got.Body)
	}
	t.Run("the refusal has the drift and the new hash", func(t *testing.T) {
		if drift.StatusCode != http.StatusConflict || drift.Message == "" || drift.Drift == nil || len(drift.Drift.Added) != 1 || drift.Drift.Added[0].AgentID != b.ID {
			t.Errorf("it is %s", got.Body)
		}
		if *drift.Hash == p.Hash || *drift.Targets != 2 || drift.Drift.Removed == nil {
			t.Errorf("it is %s", got.Body)
		}
	})
	t.Run("starting twice with the new hash is the same", func(t *testing.T) {
		for range 2 {
			started := made[adminapi.Rollout](t, s.Admin("POST", path+"/start", map[string]any{"hash": *drift.Hash}))
			if started.State != fleet.RolloutRunning || started.Counts.Total != 2 {
				t.Errorf("it is %+v", started)
			}
		}
	})
	t.Run("the list leaves out the batches", func(t *testing.T) {
		list := answered[adminapi.RolloutList](t, s.Admin("GET", "/api/v1/rollouts", nil))
		if list.Total != 1 || list.Items[0].Batches != nil {
			t.Errorf("the list is %+v", list)
		}
		if one := made[adminapi.Rollout](t, s.Admin("GET", path, nil)); len(one.Batches) != 2 {
			t.Errorf("the rollout has %+v", one.Batches)
		}
	})
	t.Run("its agents have the rollout and its version", func(t *testing.T) {
		for _, g := range answered[adminapi.AgentList](t, s.Admin("GET", "/api/fleet/agents", nil)).Items {
			if g.Rollout == nil || g.Rollout.ID != r.ID || g.Rollout.Name != "to 1.1.0" || *g.DesiredVersion != "1.1.0" {
				t.Errorf("%s says %+v, %v", g.Id, g.Rollout, *g.DesiredVersion)
			}
		}
		refused(t, "upgrading one of them alone", s.Admin("POST", "/api/fleet/agents/"+a.ID+"/upgrade", `{"version":"1.1.0","force":true}`), 409, "to 1.1.0")
	})
	t.Run("targets are found by state, batch and agent", func(t *testing.T) {
		for query, want := range map[string]int{
			"": 2, "?batch=0": 1, "?batch=7": 0, "?state=pending,offered,held&state=upgrading": 2, "?state=succeeded": 0, "?perPage=1": 1,
			"?agent=" + a.ID: 1, "?agent=" + a.ID + "&state=succeeded": 0, "?agent=none": 0,
		} {
			if list := answered[adminapi.TargetList](t, s.Admin("GET", path+"/targets"+query, nil)); len(list.Items) != want {
				t.Errorf("%q finds %d, want %d", query, len(list.Items), want)
			}
		}
	})
	t.Run("the audit trail has actor and reason", func(t *testing.T) {
		list := answered[adminapi.AuditList](t, s.Admin("GET", path+"/audit", nil))
		seen := false
		for _, e := range list.Items {
			seen = seen || e.Verb == "rollout.create" && e.Actor == "first key" && e.Why != "" && e.Why == "OPS-1"
		}
		if !seen {
			t.Errorf("the trail is %+v", list.Items)
		}
	})
}

func TestInvalidRolloutRequestsAreRefused(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	s.Enroll("web-01", "1.0.0").MustCheckin(nil)
	id := made[adminapi.Rollout](t, s.Admin("POST", "/api/v1/rollouts", slow("1.1.0"))).ID
	other := made[adminapi.Rollout](t, s.Admin("POST", "/api/v1/rollouts", slow("1.1.0"))).ID
	hash := made[adminapi.RolloutPreview](t, s.Admin("POST", "/api/v1/rollouts/"+id+"/preview", nil)).Hash
	path := "/api/v1/rollouts/" + id
	for _, row := range []struct {
		call   string
		body   any
		status int
		says   string
	}{
		{"POST /api/v1/rollouts", nil, 400, "[request body]: is empty"},
		{"POST /api/v1/rollouts", `{"plan":{}`, 400, "[request body]"},
		{"POST /api/v1/rollouts", `[]`, 400, "want an object"},
		{"POST /api/v1/rollouts", `{}`, 400, "[request body.plan]: is missing"},
		{"POST /api/v1/rollouts", `{"from":"` + id + `"}`, 400, "[request body.failed]"},
		{"POST /api/v1/rollouts", `{"failed":true,"plan":{"name":"x","strategy":{"kind":"rolling"}}}`, 400, "[request body.failed]"},
		{"POST /api/v1/rollouts", `{"from":"` + id + `","failed":true,"plan":{"name":"x","strategy":{"kind":"rolling"}}}`, 400, "[request body.plan]: does not go with from"},
		{"POST /api/v1/rollouts", `{"from":"` + id + `","failed":true}`, 409, "has not been started"},
		{"POST /api/v1/rollouts", `{"from":"none","failed":true}`, 404, "none"},
		{"POST /api/v1/rollouts", `{"plan":{"name":"x","strategy":{"kind":"rolling"}},"whi":"x"}`, 400, "[request body.whi]: is not a known key, want one of failed, from, plan, take_over, why"},
		{"POST /api/v1/rollouts", `{"plan":{"strategy":{"kind":"canary","canary":{"sice":1}}}}`, 400, "[request body.plan.strategy.canary.sice]: is not a known key, want one of approval, over, percent, pick, size"},
		{"POST /api/v1/rollouts", `{"plan":{"limits":{"maxParallel":1}}}`, 400, "body.plan.limits.maxParallel]: is not a known key: did you mean max_parallel?"},
		{"POST /api/v1/rollouts", `{"plan":{"limits":{"per":[{"label":"x","maximum":1}]}}}`, 400, "body.plan.limits.per[0].maximum"},
		{"POST /api/v1/rollouts", `{"plan":{"pace":{"soak":"soon"}}}`, 400, `[request body.plan.pace.soak]: is "soon", want a duration`},
		{"POST /api/v1/rollouts", `{"plan":{"pace":{"soak":10}}}`, 400, `[request body.plan.pace.soak]: is 10, want a duration`},
		{"POST /api/v1/rollouts", `{"plan":{"strategy":{"deadline":"soon"}}}`, 400, `[request body.plan.strategy.deadline]: is "soon", want a time`},
		{"POST /api/v1/rollouts", `{"plan":{"strategy":{"batch_size":"5"}}}`, 400, "[request body.plan.strategy.batch_size]: is a JSON string, want a whole number"},
		{"POST /api/v1/rollouts", `{"plan":{"name":"x","version":"1.1.0","strategy":{"kind":"rolling"}}}`, 400, "[request body.plan.select"},
		{"POST /api/v1/rollouts", `{"plan":{"name":"x","version":"1.1.0","select":{"all":true},"strategy":{"kind":"waves"}}}`, 400, "[request body.plan.strategy.kind]"},
		{"POST /api/v1/rollout_preview", `{"plan":{"name":"x","version":"1.1.0","select":{"all":true},"strategy":{"kind":"waves"}}}`, 400, "[request body.plan.strategy.kind]"},
		{"POST " + path + "/pause", nil, 409, "has not been started"},
		{"POST " + path + "/pause", `{"soon":true}`, 400, "[request body.soon]"},
		{"POST " + path + "/resume", `{"why":"` + strings.Repeat("x", 3000) + `"}`, 400, "[request body.why]"},
		{"POST " + path + "/rollback", `{"scope":"most"}`, 400, "[request body.scope]"},
		{"POST " + path + "/skip", `{}`, 400, "[request body.agents]"},
		{"GET " + path + "/previews/sha256:none", nil, 404, "sha256:none"},
		{"GET /api/v1/rollouts/" + other + "/previews/" + hash, nil, 404, "is not of rollout " + other},
		{"GET " + path + "/previews/sha256:none/configs", nil, 404, "sha256:none"},
		{"GET /api/v1/rollouts/" + other + "/previews/" + hash + "/configs", nil, 404, "is not of rollout " + other},
		{"GET " + path + "/previews/" + hash + "/configs", nil, 400, "[request path.rolloutId]: names rollout “to 1.1.0”"},
		{"GET " + path + "/previews/" + hash + "/configs?agent=none", nil, 400, "query.agent"},
		{"GET /api/v1/rollouts/none", nil, 404, "none"},
		{"GET /api/v1/rollouts/none/targets", nil, 404, "none"},
		{"GET /api/v1/rollouts?perPage=0", nil, 400, "query.perPage"},
		{"GET " + path + "/targets?state=odd", nil, 400, "query.state"},
		{"GET " + path + "/targets?batch=-1", nil, 400, "query.batch"},
		{"GET /api/v1/agents/none/why", nil, 404, "none"},
		{"GET /api/v1/agents/none/why?at=yesterday", nil, 400, "query.at"},
		{"PUT /api/v1/exposure", `{"enabled":true}`, 400, "body.percent"},
		{"PUT /api/v1/exposure", `{"percent":5}`, 400, "body.enabled"},
		{"PUT /api/v1/exposure", `{"enabled":true,"percent":5}`, 400, "body.healthy_hours"},
		{"PUT /api/v1/exposure", `{"enabled":true,"percent":500,"healthy_hours":1}`, 400, "body.percent"},
		{"POST /api/v1/freezes", `{"name":"x"}`, 400, "body.from"},
		{"POST /api/v1/freezes", `{"name":"x","from":"soon"}`, 400, "[request body.from]: is \"soon\""},
		{"DELETE /api/v1/freezes/none", nil, 404, "none"},
		{"GET /api/v1/upgrade_manifests/web/none", nil, 404, "none"},
		{"GET /api/v1/incidents?state=odd", nil, 400, "query.state"},
		{"POST /api/v1/incidents/none/ack", nil, 404, "none"},
		{"POST /api/v1/webhooks", `{"name":"x","url":"ftp://x"}`, 400, "body.url"},
		{"POST /api/v1/webhooks", `{"name":"x","url":"https://x","events":["odd"]}`, 400, "body.events[0]"},
		{"POST /api/v1/webhooks/none/test", nil, 404, "none"},
		{"POST /api/v1/dead_letters/none/redeliver", nil, 404, "none"},
	} {
		method, at, _ := strings.Cut(row.call, " ")
		refused(t, fmt.Sprintf("%s %.80v", row.call, row.body), s.Admin(method, at, row.body), row.status, row.says)
	}
	t.Run("the code names the violated rule", func(t *testing.T) {
		plan := slow("1.1.0", map[string]any{"migration": map[string]any{"type": "breaking"}})
		got := s.Admin("POST", "/api/v1/rollouts", plan)
		var e adminapi.Error
		if err := json.Unmarshal(got.Body, &e); err != nil || got.Status != 400 || e.Code == nil || !strings.HasPrefix(*e.Code, "rollout_") || e.Error != "Bad Request" {
			t.Errorf("it answered %d %s", got.Status, got.Body)
		}
	})
}

func TestWebhookSecretIsShownOnce(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	hook := made[adminapi.Webhook](t, s.Admin("POST", "/api/v1/webhooks", `{"name":"x","url":"https://hooks.example.com","secret":"0123456789abcdef0123456789abcdef"}`))
	if hook.Secret == nil || *hook.Secret != "0123456789abcdef0123456789abcdef" {
		t.Errorf("the answer that made it has %v", hook.Secret)
	}
	for _, got := range []apptest.Answer{
		s.Admin("GET", "/api/v1/webhooks", nil), s.Admin("POST", "/api/v1/webhooks/"+hook.Id+"/disable", nil), s.Admin("POST", "/api/v1/webhooks/"+hook.Id+"/enable", nil),
	} {
		if got.Status != 200 || strings.Contains(string(got.Body), "0123456789abcdef") {
			t.Errorf("it answered %d %s", got.Status, got.Body)
		}
	}
}

func TestMetricsNeedAKey(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	got := s.Admin("GET", "/metrics", nil)
	if got.Status != 200 || !strings.HasPrefix(got.Header.Get("Content-Type"), "text/plain") || !strings.Contains(string(got.Body), "muster_rollout_active") {
		t.Errorf("they are %d %s %.200s", got.Status, got.Header.Get("Content-Type"), got.Body)
	}
	got, err := s.Do(t.Context(), apptest.Request{Method: "GET", URL: s.AdminURL + "/metrics"})
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "without a key", got, 401, "Authorization")
}
