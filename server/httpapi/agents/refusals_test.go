package agents_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

var agentQuery = store.AgentQuery{Limit: 10}

func zipped(t *testing.T, r io.Reader) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.Copy(z, r); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// spaces reads as an endless run of blanks, which JSON ignores.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestInvalidAgentRequestsAreRefused(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	a, other := s.Enroll("web-01", "1.0.0"), s.Enroll("web-02", "1.0.0")
	key, token := "ApiKey "+a.Key, "ApiKey "+s.Token
	checkin, acks, beacon := a.Path("checkin"), a.Path("acks"), a.Path("beacon")
	sees, watcher := apptest.Beacon("act", agentapi.BeaconWatching), apptest.Headers("Authorization", "ApiKey "+a.WatcherKey)
	good := `{"status":"online"}`
	sound := zipped(t, strings.NewReader(good))
	type headers = http.Header
	auth := func(more ...string) headers {
		return apptest.Headers(append([]string{"Authorization", key}, more...)...)
	}
	enrol := apptest.Headers("Authorization", token)

	for _, c := range []struct {
		name         string
		method, path string
		header       headers
		body         any
		status       int
		code, says   string // the message contains it
	}{
		// Authentication.
		{"no key", "POST", checkin, headers{}, good, 401, "ErrNoAuthHeader", "Authorization header is missing"},
		{"two keys", "POST", checkin, headers{"Authorization": {key, key}}, good, 400, "ErrMalformedHeader", "more than one"},
		{"another scheme", "POST", checkin, apptest.Headers("Authorization", "Basic "+a.Key), good, 400, "ErrMalformedHeader", "ApiKey"},
		{"no scheme", "POST", checkin, apptest.Headers("Authorization", a.Key), good, 400, "ErrMalformedHeader", "ApiKey"},
		{"a key that is not base64", "POST", checkin, apptest.Headers("Authorization", "ApiKey ???"), good, 400, "ErrMalformedToken", "not base64"},
		{"a key without a secret", "POST", checkin, apptest.Headers("Authorization", "ApiKey aWQ6"), good, 400, "ErrMalformedToken", "base64(id:secret)"},
		{"a key with two colons", "POST", checkin, apptest.Headers("Authorization", "ApiKey YTpiOmM="), good, 400, "ErrMalformedToken", "base64(id:secret)"},
		{"an unknown key", "POST", checkin, apptest.Headers("Authorization", "ApiKey "+fleet.NewCredential().Encode()), good, 401, "ErrUnauthorized", "enrol the host again"},
		{"a wrong secret", "POST", checkin, apptest.Headers("Authorization", "ApiKey "+fleet.Credential{ID: s.Fleet(a.ID).AccessKeyID, Secret: "guess"}.Encode()), good, 401, "ErrUnauthorized", "enrol the host again"},
		{"an enrollment token", "POST", checkin, enrol, good, 401, "ErrUnauthorized", ""},
		{"another agent's id", "POST", other.Path("checkin"), auth(), good, 403, "ErrAgentIdentity", other.ID},
		{"acks for another agent", "POST", other.Path("acks"), auth(), `{"events":[]}`, 403, "ErrAgentIdentity", other.ID},
		{"an agent's key does not enrol", "POST", agentapi.PathEnroll, auth(), `{"type":"PERMANENT"}`, 401, "ErrUnauthorized", "enrollment token"},
		{"a watcher's key does not check in", "POST", checkin, watcher, good, 401, "ErrUnauthorized", "enrol the host again"},
		{"a watcher's key does not acknowledge", "POST", acks, watcher, `{"events":[]}`, 401, "ErrUnauthorized", ""},
		{"a watcher's key does not fetch packages", "GET", agentapi.PathArtifacts + "x.tar.gz", watcher, nil, 401, "ErrUnauthorized", ""},
		{"a watcher's key does not enrol", "POST", agentapi.PathEnroll, watcher, `{"type":"PERMANENT"}`, 401, "ErrUnauthorized", "enrollment token"},
		{"a watcher's key does not unenrol", "POST", a.Path("audit/unenroll"), watcher, `{"reason":"uninstall"}`, 401, "ErrUnauthorized", ""},
		{"an agent's key sends no beacon", "POST", beacon, auth(), sees, 401, "ErrUnauthorized", "watcher_api_key"},
		{"a token sends no beacon", "POST", beacon, enrol, sees, 401, "ErrUnauthorized", "watcher_api_key"},
		{"another agent's watcher", "POST", other.Path("beacon"), watcher, sees, 401, "ErrUnauthorized", "watcher_api_key"},
		{"the watcher of an unknown agent", "POST", "/api/fleet/agents/nobody/beacon", watcher, sees, 401, "ErrUnauthorized", "watcher_api_key"},
		{"a watcher with a wrong secret", "POST", beacon, apptest.Headers("Authorization", "ApiKey "+fleet.Credential{ID: s.Fleet(a.ID).WatcherKeyID, Secret: "guess"}.Encode()), sees, 401, "ErrUnauthorized", "watcher_api_key"},
		{"a beacon without a key", "POST", beacon, headers{}, sees, 401, "ErrNoAuthHeader", ""},
		{"a package without a key", "GET", agentapi.PathArtifacts + "x.tar.gz", headers{}, nil, 401, "ErrNoAuthHeader", ""},

		// Version, path and method.
		{"an unknown version", "POST", checkin, auth("Elastic-Api-Version", "2024-01-01"), good, 400, "ErrUnsupportedAPIVersion", "2023-06-01"},
		{"a version that is none", "POST", checkin, auth("Elastic-Api-Version", "v1"), good, 400, "ErrInvalidAPIVersionFormat", "2023-06-01"},
		{"an unknown method", "DELETE", checkin, auth(), nil, 405, "Method Not Allowed", "DELETE"},
		{"an unknown package", "GET", agentapi.PathArtifacts + "x.tar.gz", auth(), nil, 404, "NotFound", "x.tar.gz"},

		// Bodies.
		{"nothing", "POST", checkin, auth(), "", 400, "BadRequest", "is empty"},
		{"no JSON", "POST", checkin, auth(), "status=online", 400, "BadRequest", "is not JSON"},
		{"half a body", "POST", checkin, auth(), `{"status":"onl`, 400, "BadRequest", "ends early"},
		{"two values", "POST", checkin, auth(), good + good, 400, "BadRequest", "after its JSON value"},
		{"a bracket too many", "POST", checkin, auth(), good + "}", 400, "BadRequest", "after its JSON value"},
		{"a list", "POST", checkin, auth(), "[]", 400, "BadRequest", "[request body]: is a JSON array, want an object"},
		{"no status", "POST", checkin, auth(), "{}", 400, "BadRequest", "[request body.status]: is missing"},
		{"a status that is a number", "POST", checkin, auth(), `{"status":1}`, 400, "BadRequest", "[request body.status]: is a JSON number, want a string"},
		{"metadata that is text", "POST", checkin, auth(), `{"status":"online","local_metadata":"x"}`, 400, "BadRequest", "body.local_metadata"},
		{"components that are an object", "POST", checkin, auth(), `{"status":"online","components":{}}`, 400, "BadRequest", "body.components"},
		{"a poll time that is none", "POST", checkin, auth(), `{"status":"online","poll_timeout":"soon"}`, 400, "BadRequest", "body.poll_timeout"},
		{"an unknown phase", "POST", checkin, auth(), `{"status":"online","upgrade_details":{"state":"UPG_DREAMING"}}`, 400, "BadRequest", "body.upgrade_details.state"},
		{"progress that is text", "POST", checkin, auth(), `{"status":"online","upgrade_details":{"metadata":{"download_percent":"half"}}}`, 400, "BadRequest", "body.upgrade_details.metadata.download_percent"},
		{"a rate in furlongs", "POST", checkin, auth(), `{"status":"online","upgrade_details":{"metadata":{"download_rate":"3 fpf"}}}`, 400, "BadRequest", "download_rate"},
		{"a time that is none", "POST", acks, auth(), `{"events":[{"timestamp":"yesterday"}]}`, 400, "BadRequest", "yesterday"},
		{"events that are none", "POST", acks, auth(), `{"events":{}}`, 400, "BadRequest", "[request body.events]: is a JSON object, want a list"},
		{"a beacon of nothing", "POST", beacon, watcher, "", 400, "BadRequest", "is empty"},
		{"a beacon without a stage", "POST", beacon, watcher, "{}", 400, "BadRequest", "[request body.stage]: is \"\", want watching"},
		{"a beacon without versions", "POST", beacon, watcher, `{"stage":"watching"}`, 400, "BadRequest", "[request body.from]"},
		{"a beacon of another form", "POST", beacon, watcher, `{"agent":{"alive":"yes"}}`, 400, "BadRequest", "[request body.agent.alive]: is a JSON string, want true or false"},
		{"a rollback without a reason", "POST", beacon, watcher, `{"stage":"rolled_back","from":"1.0.0","to":"1.1.0","at":"2026-03-03T10:00:00Z"}`, 400, "BadRequest", "[request body.reason]: is missing"},
		{"too many kept versions", "POST", checkin, auth(), `{"status":"online","upgrade":{"rollbacks":[` + strings.Repeat(`{"version":"1.0.0"},`, 32) + `{"version":"1.0.0"}]}}`, 400, "BadRequest", "[request body.upgrade.rollbacks]: has 33 entries"},
		{"a kept version without a name", "POST", checkin, auth(), `{"status":"online","upgrade":{"rollbacks":[{"version":"1.0.0"},{}]}}`, 400, "BadRequest", "[request body.upgrade.rollbacks[1].version]"},
		{"an unknown type", "POST", agentapi.PathEnroll, enrol, `{"type":"VISITOR"}`, 400, "BadRequest", "body.type"},
		{"an id with a path", "POST", agentapi.PathEnroll, enrol, `{"type":"PERMANENT","id":"../x"}`, 400, "BadRequest", "body.id"},
		{"metadata that is a list", "POST", agentapi.PathEnroll, enrol, `{"type":"PERMANENT","metadata":{"local":[]}}`, 400, "BadRequest", "body.metadata.local"},

		// Sizes.
		{"a long check-in", "POST", checkin, auth(), good + strings.Repeat(" ", agentapi.MaxCheckinBody), 400, "BadRequest", "more than 1048576 bytes"},
		{"a long message", "POST", checkin, auth(), `{"status":"` + strings.Repeat("x", agentapi.MaxCheckinBody), 400, "BadRequest", "more than 1048576 bytes"},
		{"long acks", "POST", acks, auth(), `{"x":"` + strings.Repeat("x", agentapi.MaxAcksBody), 400, "BadRequest", "more than 2097152 bytes"},
		{"a long beacon", "POST", beacon, watcher, `{"waiting":"` + strings.Repeat("x", agentapi.MaxBeaconBody), 400, "BadRequest", "more than 65536 bytes"},
		{"a long enrolment", "POST", agentapi.PathEnroll, enrol, `{"x":"` + strings.Repeat("x", agentapi.MaxEnrollBody), 400, "BadRequest", "more than 524288 bytes"},
		{"gzip that is none", "POST", checkin, auth("Content-Encoding", "gzip"), good, 400, "BadRequest", "is not gzip"},
		{"gzip cut short", "POST", checkin, auth("Content-Encoding", "gzip"), sound[:len(sound)-4], 400, "BadRequest", "ends early"},
		{"gzip with a wrong sum", "POST", checkin, auth("Content-Encoding", "gzip"), append(bytes.Clone(sound[:len(sound)-8]), "12345678"...), 400, "BadRequest", "checksum"},
		{"a bomb", "POST", checkin, auth("Content-Encoding", "gzip"), zipped(t, io.LimitReader(spaces{}, agentapi.MaxCheckinInflated+1)), 400, "BadRequest", "20971520 bytes when unpacked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := s.Do(t.Context(), apptest.Request{Method: c.method, URL: s.AgentURL + c.path, Header: c.header, Body: c.body})
			if err != nil {
				t.Fatal(err)
			}
			e := got.ErrorBody()
			if got.Status != c.status || e.StatusCode != c.status || e.Code != c.code || !strings.Contains(e.Message, c.says) || e.Message == "" {
				t.Errorf("answered %d %s\nwant %d %s %q", got.Status, got.Body, c.status, c.code, c.says)
			}
			if got.Header.Get("Elastic-Api-Version") != agentapi.APIVersion || got.Header.Get("X-Request-Id") == "" {
				t.Errorf("headers are %v", got.Header)
			}
		})
	}
	if got, err := s.Do(t.Context(), apptest.Request{Method: "POST", URL: s.AgentURL + checkin, Header: auth("Content-Encoding", "GZIP"), Body: sound}); err != nil || got.Status != 200 {
		t.Errorf("a sound gzip body answered %d %s, %v", got.Status, got.Body, err)
	}
}

func TestRequestIDIsEchoed(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for sent, echoed := range map[string]bool{"r-17": true, "": false, "two words": false, strings.Repeat("x", 129): false} {
		got, err := s.Do(t.Context(), apptest.Request{Method: "GET", URL: s.AgentURL + agentapi.PathStatus, Header: apptest.Headers("X-Request-Id", sent)})
		if err != nil {
			t.Fatal(err)
		}
		if id := got.Header.Get("X-Request-Id"); id == "" || (id == sent) != echoed {
			t.Errorf("X-Request-Id %q was answered with %q", sent, id)
		}
	}
}

// Unknown paths are answered as by Fleet Server: a plain 404, and 405 for the method alone.
func TestUnknownPathIsPlain404(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	for _, path := range []string{"/", "/api/fleet/elsewhere", "/api/fleet/agents", "/v1/opamp"} {
		got := s.Agents(http.MethodGet, path, "", nil)
		if got.Status != http.StatusNotFound || string(got.Body) != "404 page not found\n" || got.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("GET %s is answered %d %s %q", path, got.Status, got.Header.Get("Content-Type"), got.Body)
		}
	}
	if got := s.Agents(http.MethodGet, agentapi.PathEnroll, "", nil); got.Status != http.StatusMethodNotAllowed {
		t.Errorf("GET of the enrolment is answered %d %s", got.Status, got.Body)
	}
}
