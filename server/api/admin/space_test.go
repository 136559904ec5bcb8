package admin_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
)

func TestTheSpaceDefaultHasTheWholeAPI(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	a := s.Enroll("web-1", "1.0.0")
	if got := s.Admin("GET", "/s/default/api/fleet/agents/"+a.ID, nil); got.Status != 200 || got.Header.Get("Elastic-Api-Version") == "" {
		t.Errorf("an agent: %d %v %s", got.Status, got.Header, got.Body)
	}
	// An escaped slash stays part of the id.
	if got := s.Admin("GET", "/s/default/api/fleet/agents/a%2Fb?withMetrics=false", nil); got.Status != 404 || got.ErrorBody().Message != "Agent a/b not found" {
		t.Errorf("an id with a slash: %d %s", got.Status, got.Body)
	}
	do := func(method, path string, body any, headers ...string) apptest.Answer {
		got, err := s.Do(t.Context(), apptest.Request{Method: method, URL: s.AdminURL + path, Header: apptest.Headers(headers...), Body: body})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	refused(t, "without a key", do("GET", "/s/default/api/fleet/agents", nil), 401, "Authorization header is missing")
	key := "ApiKey " + s.AdminKey
	policy := "/s/default/api/fleet/agent_policies"
	refused(t, "without kbn-xsrf", do("POST", policy, `{"name":"x","namespace":"default"}`, "Authorization", key), 400, "kbn-xsrf")
	refused(t, "an unknown version", do("GET", policy, nil, "Authorization", key, "Elastic-Api-Version", "1"), 400, "[get] [/api/fleet/agent_policies]")

	// The audit trail names the call as it does without a space.
	if got := s.Admin("DELETE", "/s/default/api/v1/session", nil); got.Status != 200 {
		t.Fatalf("ending the sessions answered %d %s", got.Status, got.Body)
	}
	if got := s.Admin("GET", "/s/default/api/v1/audit", nil); !strings.Contains(string(got.Body), `called DELETE /api/v1/session"`) {
		t.Errorf("the audit trail is %s", got.Body)
	}
}

func TestPathsOfAnAPIAreNeverAnsweredByTheUI(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for path, says := range map[string]string{
		"/s/x/api/fleet/agents":           "Saved object [space/x] not found",
		"/s/x/api":                        "Saved object [space/x] not found",
		"/s/Default/api/status":           "Saved object [space/Default] not found",
		"/s/default/api/fleet/elsewhere":  "there is nothing at GET /api/fleet/elsewhere",
		"/api":                            "/api",
		"/foo/api/bar":                    "/foo/api/bar",
		"/foo/s/default/api/fleet/agents": "/foo/s/default/api/fleet/agents",
		"/s/default/foo/api/x":            "Saved object [space/default] not found",
	} {
		refused(t, path, s.Admin("GET", path, nil), 404, says)
	}
	for _, path := range []string{"/", "/agents", "/s/default/agents", "/apiary"} {
		if got := s.Admin("GET", path, nil); !strings.HasPrefix(got.Header.Get("Content-Type"), "text/html") {
			t.Errorf("%s answered %d %v, want the UI", path, got.Status, got.Header)
		}
	}
}

func TestAdminKeyIsAcceptedInEveryScheme(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	cred, err := fleet.ParseCredential(s.AdminKey)
	if err != nil {
		t.Fatal(err)
	}
	basic := func(name, password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
	}
	do := func(method, path string, h http.Header) apptest.Answer {
		t.Helper()
		got, err := s.Do(t.Context(), apptest.Request{Method: method, URL: s.AdminURL + path, Header: h})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, value := range []string{"ApiKey " + s.AdminKey, "Bearer " + s.AdminKey, "bearer " + s.AdminKey, basic(cred.ID, cred.Secret), strings.Replace(basic(cred.ID, cred.Secret), "Basic", "basic", 1)} {
		got := apptest.Decode[adminapi.Session](t, do("GET", "/api/v1/session", apptest.Headers("Authorization", value)))
		if got.KeyId != cred.ID {
			t.Errorf("%s is the key %q, want %q", value, got.KeyId, cred.ID)
		}
	}
	for value, says := range map[string]string{
		basic(cred.ID, "wrong"):                 "not valid here",
		basic(s.AdminKey, ""):                   "the name is the id of an admin key",
		basic("", cred.Secret):                  "the name is the id of an admin key",
		"Basic x":                               "Basic base64(name:password)",
		"Basic":                                 "Basic base64(name:password)",
		"Bearer " + cred.ID + ":" + cred.Secret: "copy it whole",
		"Bearer":                                "copy it whole",
		"ApiKey ":                               "copy it whole",
		"Negotiate " + s.AdminKey:               "unknown scheme",
		s.AdminKey:                              "unknown scheme",
		" ":                                     "Authorization",
	} {
		refused(t, value, do("GET", "/api/fleet/agents", http.Header{"Authorization": {value}}), 401, says)
	}
	for _, twice := range [][]string{{"ApiKey bm86Ym9keQ==", "ApiKey " + s.AdminKey}, {"", "ApiKey " + s.AdminKey}} {
		refused(t, "two headers", do("GET", "/api/fleet/agents", http.Header{"Authorization": twice}), 401, "")
	}
	if got := do("GET", "/api/fleet/agents", http.Header{"Authorization": {"ApiKey " + s.AdminKey, "ApiKey " + s.AdminKey}}); got.Status != 200 {
		t.Errorf("the same header twice: %d %s", got.Status, got.Body)
	}
	// A browser that knows a name and password sends them with another site's form.
	refused(t, "a change by Basic alone", do("DELETE", "/api/v1/admin_keys/none", apptest.Headers("Authorization", basic(cred.ID, cred.Secret))), 400, "kbn-xsrf")
	refused(t, "the same with the header", do("DELETE", "/api/v1/admin_keys/none", apptest.Headers("Authorization", basic(cred.ID, cred.Secret), "kbn-xsrf", "1")), 404, "")
}

func TestWrongKeysAreDelayedInEveryScheme(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for i := range 11 {
		wrong := fleet.NewCredential()
		value := "Bearer " + wrong.Encode()
		if i%2 == 0 {
			value = "Basic " + base64.StdEncoding.EncodeToString([]byte(wrong.ID+":"+wrong.Secret))
		}
		got, err := s.Do(t.Context(), apptest.Request{Method: "GET", URL: s.AdminURL + "/s/default/api/status", Header: apptest.Headers("Authorization", value)})
		if err != nil {
			t.Fatal(err)
		}
		if i < 10 {
			refused(t, fmt.Sprint("wrong key ", i+1), got, 401, "not valid here")
		} else {
			refused(t, "the wrong key after ten", got, 429, "try again in 1s")
		}
	}
}
