package admin_test

import (
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/app/apptest"
)

func TestEveryAnswerHasTheHeadersThatProtectBrowsers(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for _, target := range []string{
		"GET /", "GET /agents", "HEAD /", "POST /", "GET /assets/none.js", "GET /api/openapi.yaml", "GET /api/nothing", "GET /api/status", "GET /api/fleet/agents",
		"PATCH /api/fleet/agents", "POST /api/v1/session", "DELETE /api/v1/session", "GET /metrics", "GET /api/v1/packages/none.tar.gz",
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
