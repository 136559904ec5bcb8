package admin_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// contract is what clients may rely on at one call.
type contract struct {
	call  *adminapi.Call
	cases []contractCase
}

// contractCase is one request and its answer. A word in capitals stands for an id that the
// server has chosen; see world.
type contractCase struct {
	// at has the values of the call's path parameters and the query.
	at     string
	body   string
	status int
	// want is the message of a refusal, or the shape of an answer; see apptest.Shape. "…" at its end
	// stands for any text. An answer that is not JSON has its content type for a shape.
	want string
}

var shapeName = regexp.MustCompile(`\b[A-Z][A-Za-z]+\b`)

// expand replaces the names of shapes in one.
func expand(want string) string {
	return shapeName.ReplaceAllStringFunc(want, func(name string) string {
		if s, ok := shapes[name]; ok {
			return expand(s)
		}
		return name
	})
}

// world makes what the requests of the contract are about, and returns the ids that the
// server has chosen by the words that stand for them.
func world(t *testing.T, s *apptest.Server) *strings.Replacer {
	t.Helper()
	s.Publisher().Publish("1.1.0", "1.2.0")
	for id, more := range map[string]string{"lab": "", "hosted": `,"is_managed":true`, "guarded": `,"is_protected":true`} {
		name := strings.ToUpper(id[:1]) + id[1:]
		answered[adminapi.PolicyItem](t, s.Admin("POST", "/api/fleet/agent_policies", fmt.Sprintf(`{"id":%q,"name":%q,"namespace":"default"%s}`, id, name, more)))
	}
	enrol := func(id, policy, version, more string) *apptest.Agent {
		t.Helper()
		got := apptest.Decode[agentapi.EnrollResponse](t, s.Agents("POST", agentapi.PathEnroll, s.Token, fmt.Sprintf(
			`{"type":"PERMANENT","id":%q,"metadata":{"local":{"elastic":{"agent":{"version":%q,"upgradeable":%t%s}},"host":{"hostname":%q,"architecture":"amd64"},"os":{"type":"linux"}}}}`,
			id, version, id != "boxed", more, id)))
		if _, err := store.UpdateAgent(t.Context(), s.Store.Agents(), id, func(a *fleet.Agent) bool { a.PolicyID, a.PolicyRev = policy, 1; return true }); err != nil {
			t.Fatal(err)
		}
		return &apptest.Agent{ID: id, Key: got.Item.AccessAPIKey, Host: id, Version: version}
	}
	web := enrol("web", "default", "1.0.0", "")
	for _, id := range []string{"gone", "leaving", "busy", "removed"} {
		enrol(id, "default", "1.0.0", "")
	}
	enrol("boxed", "default", "9.3.0", "")
	enrol("new", "default", "1.2.0", "")
	enrol("freed", "hosted", "1.0.0", "")
	enrol("able", "default", "9.3.0", "")
	enrol("plain", "default", "9.3.0", `,"unprivileged":true`)
	enrol("guarded", "guarded", "9.3.0", "")
	for id, left := range map[string]time.Duration{"kept": time.Hour, "kept2": time.Hour, "stale": -time.Hour, "held": time.Hour} {
		policy := "default"
		if id == "held" {
			policy = "hosted"
		}
		enrol(id, policy, "1.2.0", "")
		if _, err := store.UpdateAgent(t.Context(), s.Store.Agents(), id, func(a *fleet.Agent) bool {
			a.Kept.Rollbacks = keeps("1.0.0", left)
			return true
		}); err != nil {
			t.Fatal(err)
		}
	}
	s.Admin("POST", "/api/fleet/agents/gone/unenroll", `{"revoke":true}`)
	s.Admin("POST", "/api/fleet/agents/leaving/unenroll", nil)
	upgrade := answered[adminapi.ActionCreated](t, s.Admin("POST", "/api/fleet/agents/busy/upgrade", `{"version":"1.1.0"}`)).ActionId
	key := answered[adminapi.EnrollmentKeyCreated](t, s.Admin("POST", keysPath, `{"policy_id":"default"}`)).Item.Id
	d := answered[adminapi.ActionCreated](t, s.Admin("POST", "/api/fleet/agents/web/request_diagnostics", nil)).ActionId
	file := upload(t, s, web, d)
	sum := sha256.Sum256([]byte("abc"))
	if got, err := s.Do(t.Context(), apptest.Request{
		Method: "PUT", URL: s.AgentURL + agentapi.PathUploads + "/" + file + "/0", Body: "abc",
		Header: apptest.Headers("Authorization", "ApiKey "+web.Key, "X-Chunk-Sha2", hex.EncodeToString(sum[:])),
	}); err != nil || got.Status != 200 {
		t.Fatalf("the upload answered %d %s, %v", got.Status, got.Body, err)
	}
	all := sha256.Sum256(sum[:])
	if got := s.Agents("POST", agentapi.PathUploads+"/"+file, web.Key, `{"transithash":{"sha256":"`+hex.EncodeToString(all[:])+`"}}`); got.Status != 200 {
		t.Fatalf("the upload ended with %d %s", got.Status, got.Body)
	}
	token := answered[adminapi.UninstallTokenList](t, s.Admin("GET", "/api/fleet/uninstall_tokens?policyId=default", nil)).Items[0].Id
	return strings.NewReplacer("ACTION", upgrade, "KEY", key, "FILE", file, "TOKEN", token)
}

// TestAdminAPIContract makes every request of the contract, in its order, at one server.
func TestAdminAPIContract(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	ids := world(t, s)
	for _, c := range adminContract {
		for _, x := range c.cases {
			values, query, _ := strings.Cut(ids.Replace(x.at), "?")
			at := c.call.Path
			for v := range strings.SplitSeq(values, "/") {
				at = strings.Replace(at, parameter.FindString(at), v, 1)
			}
			if query != "" {
				at += "?" + query
			}
			var body any // none
			if x.body != "" {
				body = ids.Replace(x.body)
			}
			got := s.Admin(c.call.Method, at, body)
			what := fmt.Sprintf("%s %s %s", c.call.Method, at, x.body)
			if x.status >= 400 {
				says, begins := strings.CutSuffix(x.want, "…")
				refused(t, what, got, x.status, says)
				if message := got.ErrorBody().Message; message != says && !(begins && strings.HasPrefix(message, says)) {
					t.Errorf("%s says %q, want %q", what, message, x.want)
				}
				continue
			}
			has := got.Header.Get("Content-Type")
			if strings.HasPrefix(has, "application/json") {
				has = apptest.Shape(got)
			}
			if got.Status != x.status || has != expand(x.want) {
				t.Errorf("%s answered %d with\n%s\nwant %d with\n%s", what, got.Status, has, x.status, expand(x.want))
			}
		}
	}
}

// TestEveryOperationOfKibanaHasAContract fails for one without an accepted request in the contract,
// and without a refused one. Muster's own are in TestResponsesMatchTheSpecification.
func TestEveryOperationOfKibanaHasAContract(t *testing.T) {
	t.Parallel()
	accepted, refused := map[*adminapi.Call]bool{}, map[*adminapi.Call]bool{adminapi.GetStatus.Call: true} // which every caller with a key gets
	for _, c := range adminContract {
		for _, x := range c.cases {
			accepted[c.call] = accepted[c.call] || x.status < 400
			refused[c.call] = refused[c.call] || x.status >= 400
		}
	}
	for _, call := range adminapi.Calls() {
		if (call.Kibana() || call == adminapi.GetStatus.Call) && !(accepted[call] && refused[call]) {
			t.Errorf("%s has no row that is accepted, or none that is refused, in adminContract", call.ID)
		}
	}
}
