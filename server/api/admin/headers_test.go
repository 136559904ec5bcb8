package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
)

func TestEveryAnswerHasTheHeadersThatProtectBrowsers(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for _, target := range []string{
		"GET /", "GET /agents", "HEAD /", "POST /", "GET /assets/none.js", "GET /api/openapi.yaml", "GET /api/nothing", "GET /api/status", "GET /api/fleet/agents",
		"PATCH /api/fleet/agents", "POST /api/v1/session", "DELETE /api/v1/session", "GET /metrics", "GET /readyz", "GET /api/v1/packages/none.tar.gz",
	} {
		for _, key := range []string{"", "ApiKey " + s.AdminKey} {
			method, path, _ := strings.Cut(target, " ")
			got, err := s.Do(t.Context(), apptest.Request{Method: method, URL: s.AdminURL + path, Header: apptest.Headers("Authorization", key)})
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Strict-Transport-Security": "max-age=15552000"} {
				if values := got.Header.Values(name); len(values) != 1 || values[0] != want {
					t.Errorf("%s with key %q, %d: %s is %q", target, key, got.Status, name, values)
				}
			}
		}
	}
}

// A proxy or a browser between would show old numbers, or keep them for somebody without a key.
func TestNobodyStoresAnswersOfTheAPI(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for _, path := range []string{"/metrics", "/readyz", "/api/status", "/api/nothing", "/api/openapi.yaml", "/api/v1/packages/none.tar.gz"} {
		for _, key := range []string{"", "ApiKey " + s.AdminKey} {
			got, err := s.Do(t.Context(), apptest.Request{Method: http.MethodGet, URL: s.AdminURL + path, Header: apptest.Headers("Authorization", key)})
			if err != nil {
				t.Fatal(err)
			}
			if says := got.Header.Get("Cache-Control"); says != "no-store" {
				t.Errorf("%s with key %q, %d: Cache-Control is %q", path, key, got.Status, says)
			}
		}
	}
}

// The one body that is read before its sender is authenticated.
func TestLogInReadsLittle(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	long := make([]byte, 5<<10)
	got, err := s.Do(t.Context(), apptest.Request{Method: "POST", URL: s.AdminURL + "/api/v1/session", Body: `{"api_key":"` + string(long) + `"}`})
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "a long body", got, 400, "more than 4096 bytes")
}

// TestFleetCallsCheckInTheOrderOfKibana sends requests of which everything is wrong, and
// puts one thing after the other right: the credential, kbn-xsrf, the version, the query.
func TestFleetCallsCheckInTheOrderOfKibana(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for _, call := range adminapi.Calls() {
		method, pattern, r := call.Method, call.Path, call.ID
		if !call.Kibana() {
			continue
		}
		ask := func(pairs ...string) apptest.Answer {
			got, err := s.Do(t.Context(), apptest.Request{
				Method: method, URL: s.AdminURL + parameter.ReplaceAllString(pattern, "x") + "?unknown=1", Header: apptest.Headers(pairs...), Body: "{",
			})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		key := "ApiKey " + s.AdminKey
		refused(t, r+" without a key", ask("Elastic-Api-Version", "2030-01-01"), 401, "the Authorization header is missing")
		if method != http.MethodGet {
			refused(t, r+" without kbn-xsrf", ask("Elastic-Api-Version", "2030-01-01", "Authorization", key), 400, "Request must contain a kbn-xsrf header.")
		}
		refused(t, r+" of another version", ask("Elastic-Api-Version", "2030-01-01", "Authorization", key, "kbn-xsrf", "x"), 400,
			fmt.Sprintf(`No version "2030-01-01" available for [%s] [%s]. Available versions are: [2023-10-31]`, strings.ToLower(method), pattern))
		if method == http.MethodGet {
			refused(t, r+" with an unknown parameter", ask("Elastic-Api-Version", "2023-10-31", "Authorization", key), 400, "[request query.unknown]: definition for this key is missing")
		}
	}
}
