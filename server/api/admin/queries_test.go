package admin_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// asked returns path with a query.
func asked(path, kuery string, more ...string) string {
	q := url.Values{"kuery": {kuery}}
	for _, m := range more {
		name, value, _ := strings.Cut(m, "=")
		q.Set(name, value)
	}
	return path + "?" + q.Encode()
}

// queried starts a server with six agents: web-0 to web-2 with 1.0.0, db-0 and db-1 with
// 1.10.0, all online, and gone, which is unenrolled.
func queried(t *testing.T) (*apptest.Server, map[string]string) {
	t.Helper()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0", "1.11.0")
	ids := map[string]string{}
	for _, name := range []string{"web-0", "web-1", "web-2", "db-0", "db-1", "gone"} {
		version := "1.0.0"
		if strings.HasPrefix(name, "db") {
			version = "1.10.0"
		}
		a := s.Enroll(name, version)
		a.MustCheckin(nil)
		ids[name] = a.ID
		_, err := store.UpdateAgent(t.Context(), s.Store.Agents(), a.ID, func(a *fleet.Agent) bool {
			a.Tags = []string{"all", name[:2]}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Admin("POST", "/api/fleet/agents/"+ids["gone"]+"/unenroll", `{"revoke":true}`); got.Status != 200 {
		t.Fatalf("unenroll: %s", got.Body)
	}
	return s, ids
}

func TestQuerySelectsTheSameAgentsInListCountsAndPreviews(t *testing.T) {
	t.Parallel()
	s, ids := queried(t)
	name := map[string]string{}
	for n, id := range ids {
		name[id] = n
	}
	for kuery, want := range map[string]string{
		"*":                     "db-0 db-1 web-0 web-1 web-2",
		"tags: we":              "web-0 web-1 web-2",
		"agent.version > 1.9.0": "db-0 db-1", // as versions, not as texts
		"agent.version < 1.10.0 and not tags: db":     "web-0 web-1 web-2",
		"local_metadata.host.hostname: WEB":           "web-0 web-1 web-2",
		"local_metadata.host.hostname.keyword: *-1":   "db-1 web-1",
		"status: unenrolled":                          "gone",
		"status: * and tags: (go or db)":              "db-0 db-1 gone",
		"not status: online":                          "",
		"fleet-agents.agent.id: " + ids["db-0"]:       "db-0",
		"last_checkin > now-1h and tags: (\"db\")":    "db-0 db-1",
		"(tags: all) and not agent.version: \"1.0*\"": "db-0 db-1 web-0 web-1 web-2",
	} {
		list := apptest.Decode[adminapi.AgentList](t, s.Admin("GET", asked("/api/fleet/agents", kuery, "getStatusSummary=true"), nil))
		var got []string
		for _, a := range list.Items {
			got = append(got, name[a.Id])
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want || list.Total != len(got) {
			t.Errorf("%s lists %v of %d, want %s", kuery, got, list.Total, want)
		}
		sum := 0
		for _, n := range *list.StatusSummary {
			sum += n
		}
		if sum != len(got) {
			t.Errorf("the summary of %s is %v", kuery, *list.StatusSummary)
		}
		if want == "" {
			refused(t, kuery, s.Admin("POST", "/api/v1/upgrade_preview", map[string]any{"version": "1.11.0", "agents": kuery}), 400, "selects no agents")
			continue
		}
		preview := apptest.Decode[adminapi.UpgradePreview](t, s.Admin("POST", "/api/v1/upgrade_preview", map[string]any{"version": "1.11.0", "agents": kuery}))
		back := apptest.Decode[adminapi.RollbackPreview](t, s.Admin("POST", "/api/v1/rollback_preview", map[string]any{"agents": kuery}))
		out := apptest.Decode[adminapi.UnenrollPreview](t, s.Admin("POST", "/api/v1/unenroll_preview", map[string]any{"agents": kuery}))
		var previewed []string
		for i := range preview.Items {
			previewed = append(previewed, preview.Items[i].Hostname)
			if back.Items[i].AgentId != preview.Items[i].AgentId || out.Items[i].AgentId != preview.Items[i].AgentId {
				t.Errorf("%s would upgrade %v, roll back %v and unenrol %v", kuery, preview.Items[i], back.Items[i], out.Items[i])
			}
		}
		slices.Sort(previewed)
		if strings.Join(previewed, " ") != want {
			t.Errorf("%s would upgrade %v, want %s", kuery, previewed, want)
		}
	}
	all := apptest.Decode[adminapi.AgentList](t, s.Admin("GET", asked("/api/fleet/agents", "tags: all", "showInactive=true", "perPage=2", "page=2"), nil))
	if all.Total != 6 || len(all.Items) != 2 {
		t.Errorf("the second page with the unenrolled has %d of %d", len(all.Items), all.Total)
	}
	counts := apptest.Decode[adminapi.AgentStatusResponse](t, s.Admin("GET", asked("/api/fleet/agent_status", "tags: (db or go)"), nil)).Results
	if want := (adminapi.AgentStatusCounts{All: 3, Active: 2, Online: 2, Unenrolled: 1}); counts != want {
		t.Errorf("the counts are %+v, want %+v", counts, want)
	}
	tags := func(path string) []string {
		return apptest.Decode[adminapi.TagList](t, s.Admin("GET", path, nil)).Items
	}
	if got := tags("/api/fleet/agents/tags"); !slices.Equal(got, []string{"all", "db", "we"}) {
		t.Errorf("the tags are %v", got)
	}
	if got := tags(asked("/api/fleet/agents/tags", "not agent.version: 1.0.0", "showInactive=true")); !slices.Equal(got, []string{"all", "db"}) {
		t.Errorf("the tags of some are %v", got)
	}
	if got := tags("/api/fleet/agents/tags?showInactive=true"); !slices.Contains(got, "go") {
		t.Errorf("the tags of all are %v", got)
	}
}

// In Kibana a query could list three agents and upgrade the whole fleet.
func TestBulkUpgradeByQueryIsForTheListedAgents(t *testing.T) {
	t.Parallel()
	s, ids := queried(t)
	created := apptest.Decode[adminapi.ActionCreated](t, s.Admin("POST", "/api/fleet/agents/bulk_upgrade", map[string]any{"version": "1.1.0", "agents": "tags: we"}))
	a, err := s.Store.Actions().Get(t.Context(), created.ActionId)
	want := []string{ids["web-0"], ids["web-1"], ids["web-2"]}
	slices.Sort(want)
	if err != nil || !slices.Equal(a.Agents, want) || a.Actioned != 3 {
		t.Errorf("the action is for %v of %d, want %v: %v", a.Agents, a.Actioned, want, err)
	}
	// The upgrading agents no longer match; the others do.
	created = apptest.Decode[adminapi.ActionCreated](t, s.Admin("POST", "/api/fleet/agents/bulk_upgrade",
		map[string]any{"version": "1.11.0", "agents": "not status: updating", "includeInactive": true}))
	a, err = s.Store.Actions().Get(t.Context(), created.ActionId)
	want = []string{ids["db-0"], ids["db-1"]}
	slices.Sort(want)
	if err != nil || !slices.Equal(a.Agents, want) || a.Actioned != 3 {
		t.Errorf("the action is for %v of %d, want %v and a refusal: %v", a.Agents, a.Actioned, want, err)
	}
	results, err := s.Store.Results().Errors(t.Context(), created.ActionId, 10)
	if err != nil || len(results) != 1 || results[0].AgentID != ids["gone"] {
		t.Errorf("refused are %+v: %v", results, err)
	}
	refused(t, "a rollback of agents without a previous version", s.Admin("POST", "/api/fleet/agents/bulk_rollback", map[string]any{"agents": "tags: db"}), 400, "none of the 2 agents")
}

func TestBulkUpgradeByQueryExceedsTheLimitOfIDs(t *testing.T) {
	t.Parallel()
	require.Time(t, "enrols ten thousand agents")
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	const n = 10_100
	ids := make([]string, n)
	errs := make(chan error, n)
	for w := range 50 {
		go func() {
			for i := w; i < n; i += 50 {
				ids[i] = fmt.Sprintf("agent-%05d", i)
				errs <- s.Store.Agents().Create(t.Context(), fleet.Agent{
					ID: ids[i], AccessKeyID: ids[i], Type: "PERMANENT", Active: true, PolicyID: "default", Version: "1.0.0", EnrolledAt: time.Now().UTC(),
					LocalMetadata: []byte(`{"elastic":{"agent":{"version":"1.0.0","upgradeable":true}},"os":{"type":"linux"},"host":{"architecture":"x86_64"}}`),
				})
			}
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	refused(t, "ten thousand and more by name", s.Admin("POST", "/api/fleet/agents/bulk_upgrade", map[string]any{"version": "1.1.0", "agents": ids}), 400, "select them by a query")
	created := apptest.Decode[adminapi.ActionCreated](t, s.Admin("POST", "/api/fleet/agents/bulk_upgrade", map[string]any{"version": "1.1.0", "agents": "agent.version: 1.0.0"}))
	a, err := s.Store.Actions().Get(t.Context(), created.ActionId)
	if err != nil || a.Actioned != n || !slices.Equal(a.Agents, ids) {
		t.Errorf("the action is for %d of %d agents: %v", len(a.Agents), a.Actioned, err)
	}
}

func TestMalformedQueryIsPointedAt(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	got := s.Admin("GET", asked("/api/fleet/agents", "status: online and ("), nil)
	lines := strings.Split(got.ErrorBody().Message, "\n")
	if got.Status != 400 || got.ErrorBody().Code != "Bad Request" || len(lines) != 3 || !strings.HasPrefix(lines[0], "[request query.kuery]: Kuery is malformed: ") ||
		lines[1] != "status: online and (" || strings.TrimSpace(lines[2]) != "^" {
		t.Errorf("it answers %d %s", got.Status, got.Body)
	}
}

func TestKeysAndPoliciesAreQueried(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	for _, name := range []string{"lab", "shop"} {
		if got := s.Admin("POST", "/api/fleet/agent_policies", map[string]any{"name": name, "id": name, "namespace": "default", "description": "The " + name + " hosts"}); got.Status != 200 {
			t.Fatalf("policy: %s", got.Body)
		}
		for i := range 3 {
			if got := s.Admin("POST", "/api/fleet/enrollment_api_keys", map[string]any{"name": fmt.Sprint(name, "-key ", i), "policy_id": name}); got.Status != 200 {
				t.Fatalf("key: %s", got.Body)
			}
		}
	}
	for kuery, want := range map[string]int{"policy_id:lab": 3, "fleet-enrollment-api-keys.policy_id: shop and active: true": 3, "name: lab*": 3, "active: false": 0, "expire_at: *": 0} {
		got := apptest.Decode[adminapi.EnrollmentKeyList](t, s.Admin("GET", asked("/api/fleet/enrollment_api_keys", kuery, "perPage=2"), nil))
		if got.Total != want || len(got.Items) != min(want, 2) {
			t.Errorf("%s finds %d keys, %d on the page, want %d", kuery, got.Total, len(got.Items), want)
		}
	}
	last := apptest.Decode[adminapi.EnrollmentKeyList](t, s.Admin("GET", asked("/api/fleet/enrollment_api_keys", "policy_id: lab", "perPage=2", "page=2"), nil))
	if last.Total != 3 || len(last.Items) != 1 {
		t.Errorf("the last page has %d of %d keys", len(last.Items), last.Total)
	}
	beyond := apptest.Decode[adminapi.EnrollmentKeyList](t, s.Admin("GET", asked("/api/fleet/enrollment_api_keys", "policy_id: lab", "page=99"), nil))
	if beyond.Total != 3 || len(beyond.Items) != 0 {
		t.Errorf("a page beyond the last has %d of %d keys", len(beyond.Items), beyond.Total)
	}
	got := apptest.Decode[adminapi.PolicyList](t, s.Admin("GET", asked("/api/fleet/agent_policies", `ingest-agent-policies.description: "the lab" or name: nothing`), nil))
	if got.Total != 1 || got.Items[0].Id != "lab" {
		t.Errorf("found the policies %+v", got)
	}
}

func TestQuerySuggestions(t *testing.T) {
	t.Parallel()
	s, _ := queried(t)
	suggested := func(q string, more ...string) (texts []string) {
		t.Helper()
		values := url.Values{"q": {q}}
		for _, m := range more {
			values.Set("cursor", m)
		}
		for _, i := range apptest.Decode[adminapi.QuerySuggestions](t, s.Admin("GET", "/api/v1/kql/suggest?"+values.Encode(), nil)).Items {
			if i.From > i.To || i.To > len(q) || !slices.Contains([]adminapi.QuerySuggestionKind{adminapi.Field, adminapi.Operator, adminapi.Value, adminapi.Conjunction}, i.Kind) {
				t.Errorf("%q: %+v", q, i)
			}
			texts = append(texts, strings.TrimSpace(i.Text))
		}
		return texts
	}
	for q, want := range map[string]string{
		"":                             "status",
		"stat":                         "status",
		"status: onl":                  "online",
		"tags: ":                       "db",
		"tags: W":                      "we",
		"agent.version: 1.":            "1.10.0",
		"policy_id: ":                  "default",
		"status: online a":             "and",
		"last_checkin_status: ":        "online",
		"local_metadata.host.hostname": "local_metadata.host.hostname",
	} {
		if got := suggested(q); !slices.ContainsFunc(got, func(s string) bool { return strings.Trim(s, `": `) == want }) {
			t.Errorf("%q is completed with %q, want %q among them", q, got, want)
		}
	}
	if got := suggested("sta: online", "3"); !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "status") }) {
		t.Errorf("within a query there is %q", got)
	}
	refused(t, "a query that is too long", s.Admin("GET", "/api/v1/kql/suggest?q="+strings.Repeat("x", 10_001), nil), 400, "[request query.q]")
}
