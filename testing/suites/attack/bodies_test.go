package attack_test

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// call is a call of the API that clients and agents of Elastic use, with a body that is
// accepted.
type call struct {
	method, url string
	header      http.Header
	body        string
	// status is what the body is answered with.
	status int
}

func (c call) String() string { return c.method + " " + c.url }

// callsOf returns calls that work once, in this order: they make an agent and objects of
// their own. NEW stands for an id in them.
func callsOf(t testing.TB, s *apptest.Server) (calls []call) {
	t.Helper()
	a, chunk := s.Enroll("web-01", "9.3.0"), []byte("PK\x03\x04 not a whole archive")
	digest := func(b []byte) string { sum := sha256.Sum256(b); return hex.EncodeToString(sum[:]) }
	begin := fmt.Sprintf(`{"action_id":"NEW","agent_id":%q,"src":"agent","file":{"name":"d.zip","mime_type":"application/zip","size":%d,"ext":"zip","hash":{"sha256":""}}}`, a.ID, len(chunk))
	upload := apptest.Decode[agentapi.UploadBegun](t, s.Agents(http.MethodPost, agentapi.PathUploads, a.Key, begin)).UploadID
	agents := func(method, path, key, body string, status int) {
		calls = append(calls, call{method, s.AgentURL + path, apptest.Headers("Authorization", "ApiKey "+key, agentapi.HeaderChunk, digest(chunk)), body, status})
	}
	sum := sha256.Sum256(chunk)
	agents("POST", agentapi.PathUploads, a.Key, begin, 200)
	agents("PUT", agentapi.PathUploads+"/"+upload+"/0", a.Key, string(chunk), 200)
	agents("POST", agentapi.PathUploads+"/"+upload, a.Key, fmt.Sprintf(`{"transithash":{"sha256":%q}}`, digest(sum[:])), 200)
	agents("GET", "/api/fleet/artifacts/endpoint-trustlist-linux-v1/"+digest(chunk), a.Key, "", 404)
	agents("GET", "/api/fleet/file/"+upload, a.Key, "", 404)
	agents("GET", "/api/agents/upgrades/8.15.5/pgp-public-key", "", "", 404)
	agents("POST", "/api/fleet/agents/enroll", s.Token, `{"type":"PERMANENT","enrollment_id":"NEW","replace_token":"0123456789abcdef","metadata":{"local":{"elastic":{"agent":{"version":"9.0.0","build.original":"9.0.0"}}},"user_provided":{"a":{"b":1}},"tags":["x"]}}`, 200)
	agents("POST", a.Path("acks"), a.Key, `{"events":[{"type":"ACTION_RESULT","subtype":"ACKNOWLEDGED","agent_id":"`+a.ID+`","action_id":"policy:default:1","timestamp":"2026-01-31T12:00:00Z","payload":{"retry":false}}]}`, 200)
	gone := s.Enroll("web-02", "9.3.0") // nobody can order anything of it afterwards
	agents("POST", gone.Path("audit/unenroll"), gone.Key, `{"reason":"uninstall","timestamp":"2026-01-31T12:00:00Z"}`, 200)

	admin := func(method, path, body string) {
		calls = append(calls, call{method, s.AdminURL + "/api/fleet/" + path, apptest.Headers("Authorization", "ApiKey "+s.AdminKey, "kbn-xsrf", "test"), body, 200})
	}
	s.Publisher().Publish("9.0.0")
	id := fleet.NewID()
	for _, o := range []struct{ path, fields string }{
		{"fleet_server_hosts", `"host_urls":["https://fleet.example.com:8220"],"is_default":false,"ssl":{"certificate":"c","client_auth":"optional"},"secrets":{"ssl":{"key":"k"}}`},
		{"agent_download_sources", `"host":"https://packages.example.com/downloads","ssl":{"certificate_authorities":["c"]},"secrets":{"ssl":{"key":"k"}}`},
		{"proxies", `"url":"http://proxy.example.com:3128","proxy_headers":{"X-A":"b"},"certificate_key":"k"`},
		{"outputs", `"type":"kafka","hosts":["kafka.example.com:9092"],"topic":"t","partition":"random","auth_type":"user_pass","username":"u","secrets":{"password":"p"}`},
		{"outputs", `"type":"elasticsearch","hosts":["https://es.example.com"],"is_default":false,"ca_trusted_fingerprint":"ab","config_yaml":"a: 1","preset":"custom"`},
		{"agent_policies", `"namespace":"default","monitoring_enabled":["logs"],"unenroll_timeout":3600,"agent_features":[{"name":"f","enabled":true}],"global_data_tags":[{"name":"a","value":1}],"required_versions":[{"version":"9.0.0","percentage":10}]`},
	} {
		admin("POST", o.path, `{"name":"NEW",`+o.fields+`}`)
	}
	for path, fields := range map[string]string{
		"fleet_server_hosts": `"host_urls":["https://x"]`, "proxies": `"url":"http://x"`, "outputs": `"type":"elasticsearch","hosts":["https://x"]`, "agent_policies": `"namespace":"default"`,
	} {
		body := `{"id":"` + id + `","name":"NEW",` + fields + `}`
		if got := s.Admin("POST", "/api/fleet/"+path, strings.ReplaceAll(body, "NEW", fleet.NewID())); got.Status != 200 {
			t.Fatalf("making one of %s: %d %s", path, got.Status, got.Body)
		}
		admin("PUT", path+"/"+id, `{"name":"NEW",`+fields+`}`)
	}
	agent := "agents/" + a.ID
	admin("POST", "agent_policies/"+id+"/copy", `{"name":"NEW","description":"d"}`)
	admin("POST", "agent_policies/_bulk_get", `{"ids":["default","NEW"],"full":true,"ignoreMissing":true}`)
	admin("POST", "enrollment_api_keys", `{"name":"NEW","policy_id":"default","expiration":"1h"}`)
	admin("PUT", agent, `{"tags":["a"],"user_provided_metadata":{"a":{"b":[1]}}}`)
	admin("POST", agent+"/reassign", `{"policy_id":"default"}`)
	admin("POST", "agents/bulk_reassign", `{"agents":["`+a.ID+`"],"policy_id":"`+id+`","batchSize":1,"includeInactive":false}`)
	admin("POST", "agents/bulk_reassign", `{"agents":"tags:a and not status:offline","policy_id":"default","dryRun":true}`)
	admin("POST", "agents/bulk_update_agent_tags", `{"agents":["`+a.ID+`"],"tagsToAdd":["b"],"tagsToRemove":["a"]}`)
	admin("POST", agent+"/actions", `{"action":{"type":"SETTINGS","data":{"log_level":"debug"},"ack_data":{"a":1}}}`)
	admin("POST", agent+"/actions", `{"action":{"type":"POLICY_REASSIGN","data":{"policy_id":"default"}}}`)
	admin("POST", agent+"/actions", `{"action":{"type":"UPGRADE","data":{"version":"9.4.0","sourceURI":"https://x"}}}`)
	admin("POST", "agents/actions", `{"actionIds":["NEW"]}`)
	admin("POST", agent+"/request_diagnostics", `{"additional_metrics":["CPU"],"exclude_events_log":true}`)
	admin("POST", "agents/bulk_request_diagnostics", `{"agents":["`+a.ID+`"],"additional_metrics":["CPU"],"batchSize":10}`)
	admin("POST", agent+"/migrate", `{"uri":"https://elsewhere:8220","enrollment_token":"t","settings":{"headers":{"a":"b"},"tags":["x"],"replace_token":"r","insecure":true}}`)
	admin("POST", "agents/bulk_migrate", `{"agents":["`+a.ID+`"],"uri":"https://elsewhere:8220","enrollment_token":"t","settings":{"proxy_url":"https://x"}}`)
	admin("POST", agent+"/privilege_level_change", `{"user_info":{"username":"u","groupname":"g","password":"p"}}`)
	return calls
}

// odd are values that few calls expect.
var odd = []any{
	nil, true, "", 0, -1, 1.5, 1e300, 1 << 53,
	[]any{},
	[]any{nil},
	[]any{[]any{}},
	map[string]any{},
	map[string]any{"": nil},
	map[string]any{"a.b": map[string]any{}},
	"*", "\x00", "\u202e", "../..", "https://", "http://[::1", "2026-99-99T00:00:00Z", "9999999999h", "name:(", strings.Repeat("x", 5000), strings.Repeat("é", 300),
}

// oddSegments are parts of paths that no client sends.
var oddSegments = []string{"%00", "%ff", "..%2f..%2fetc", "a%2fb", "-1", "99999999999999999999", "%E2%80%AE", "%2e%2e", strings.Repeat("x", 3000)}

// warp returns v with other values and names in places.
func warp(r *rand.Rand, v any) any {
	if r.IntN(10) == 0 {
		return odd[r.IntN(len(odd))]
	}
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if r.IntN(12) > 0 {
				out[k] = warp(r, v[k])
			}
		}
		if r.IntN(12) == 0 {
			out["unknown"] = odd[r.IntN(len(odd))]
		}
		return out
	case []any:
		out := []any{}
		for _, e := range v {
			for range 1 + r.IntN(8)/7 { // rarely twice
				out = append(out, warp(r, e))
			}
		}
		return out
	}
	return v
}

// warped returns a body that is wrong in places: in its values if it is JSON, and sometimes
// in its bytes.
func warped(r *rand.Rand, body string) []byte {
	text := []byte(body)
	var v any
	if json.Unmarshal(text, &v) == nil {
		var err error
		if text, err = json.Marshal(warp(r, v)); err != nil {
			panic(err) // it was decoded from JSON
		}
	}
	if r.IntN(4) == 0 && len(text) > 0 {
		text = mutate(r, text)
	}
	return bytes.ReplaceAll(text, []byte("NEW"), []byte(fmt.Sprintf("%016x", r.Uint64())))
}

// misled returns a URL with one of its last segments replaced.
func misled(r *rand.Rand, to string) string {
	u, err := url.Parse(to)
	if err != nil {
		panic(err) // callsOf made it
	}
	parts := strings.Split(u.Path, "/")
	parts[len(parts)-1-r.IntN(2)] = oddSegments[r.IntN(len(oddSegments))]
	return u.Scheme + "://" + u.Host + strings.Join(parts, "/")
}

// reason matches what every refusal has: acknowledgements have one for each result.
var reason = regexp.MustCompile(`"message":"[^"]`)

// answered sends a request and returns the status of its answer and what is wrong with it,
// empty if nothing: a server that fails, or a refusal without a reason.
func answered(t testing.TB, s *apptest.Server, c call, body []byte) (status int, wrong string) {
	t.Helper()
	got, err := s.Do(t.Context(), apptest.Request{Method: c.method, URL: c.url, Header: c.header, Body: body})
	switch {
	case err != nil:
		wrong = err.Error()
	case got.Status == http.StatusNotFound: // as Fleet Server, without a message where there is no such path
	case got.Status >= http.StatusInternalServerError, got.Status >= http.StatusBadRequest && !reason.Match(got.Body):
		wrong = fmt.Sprintf("answered %d %s", got.Status, got.Body)
	}
	return got.Status, wrong
}

// randomBodies is how many each call gets: a second's worth in all.
const randomBodies = 25

// An attacker with the key of an agent, or an operator's script with a fault, sends what no
// client does. Every request is answered, and afterwards the calls work as before.
func TestRandomBodiesAreAnswered(t *testing.T) {
	start := cmp.Or(*seed, uint64(time.Now().UnixNano()))
	t.Logf("to repeat: go test -run RandomBodies ./testing/suites/attack -seed %d", start)
	r := rand.New(rand.NewPCG(start, 1))
	s := apptest.Start(t)
	accepted := map[string]bool{}
	for _, c := range callsOf(t, s) {
		for range randomBodies {
			to, body := c, warped(r, c.body)
			if r.IntN(4) == 0 {
				to.url = misled(r, c.url)
			}
			status, wrong := answered(t, s, to, body)
			if wrong != "" {
				t.Errorf("%s with %.500q: %s", to, body, wrong)
			}
			if status == http.StatusOK {
				accepted[c.String()] = true
			}
		}
	}
	if len(accepted) < 10 {
		t.Errorf("only %d calls accepted a body, so the bodies are too odd", len(accepted))
	}
	for _, c := range callsOf(t, s) {
		body := strings.ReplaceAll(c.body, "NEW", fleet.NewID())
		got, err := s.Do(t.Context(), apptest.Request{Method: c.method, URL: c.url, Header: c.header, Body: body})
		if err != nil || got.Status != c.status {
			t.Errorf("%s with %s then answered %d %s, %v; want %d", c, body, got.Status, got.Body, err, c.status)
		}
	}
	if got := apptest.Decode[adminapi.KibanaStatus](t, s.Admin("GET", "/api/status", nil)); got.Status.Overall.Level != "available" {
		t.Errorf("the server is then %+v", got.Status.Overall)
	}
}

// FuzzBodies goes on for as long as one likes: go test -fuzz FuzzBodies -fuzzminimizetime 1x
// ./testing/suites/attack. Without that it spends its time on inputs that seem new: what a server
// does in the background is not the same twice.
func FuzzBodies(f *testing.F) {
	s := apptest.Start(f)
	calls := callsOf(f, s)
	for i, c := range calls {
		f.Add(uint(i), []byte(c.body))
	}
	f.Fuzz(func(t *testing.T, i uint, body []byte) {
		c := calls[i%uint(len(calls))]
		if _, wrong := answered(t, s, c, body); wrong != "" {
			t.Errorf("%s: %s", c, wrong)
		}
	})
}
