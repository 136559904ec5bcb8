package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/muster-fleet/muster/server/api/access"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func decode(t *testing.T, a apptest.Answer, v any) {
	t.Helper()
	if err := json.Unmarshal(a.Body, v); err != nil || a.Status != http.StatusOK {
		t.Fatalf("answered %d %s, %v", a.Status, a.Body, err)
	}
}

func TestSessionCookie(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	do := func(method, path string, body any, headers ...string) apptest.Answer {
		t.Helper()
		got, err := s.Do(t.Context(), apptest.Request{Method: method, URL: s.AdminURL + path, Header: apptest.Headers(headers...), Body: body})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	refused(t, "a wrong key", do("POST", "/api/v1/session", adminapi.LogInRequest{ApiKey: fleet.NewCredential().Encode()}), 401, "muster admin-key")
	refused(t, "half a key", do("POST", "/api/v1/session", adminapi.LogInRequest{ApiKey: "abc"}), 401, "copy it whole")
	refused(t, "no key", do("POST", "/api/v1/session", adminapi.LogInRequest{}), 401, "copy it whole")

	for _, from := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example.com"}, {"Origin", "null"}} {
		got := do("POST", "/api/v1/session", adminapi.LogInRequest{ApiKey: s.AdminKey}, from...)
		refused(t, "a page elsewhere", got, 403, "not of this server")
		if got.Header.Get("Set-Cookie") != "" {
			t.Errorf("%v gets a cookie", from)
		}
	}
	if got := do("POST", "/api/v1/session", adminapi.LogInRequest{ApiKey: s.AdminKey}, "Sec-Fetch-Site", "same-origin"); got.Status != 200 {
		t.Errorf("the server's own page: %d %s", got.Status, got.Body)
	}

	in := do("POST", "/api/v1/session", adminapi.LogInRequest{ApiKey: s.AdminKey})
	session := apptest.Decode[adminapi.Session](t, in)
	c, err := http.ParseSetCookie(in.Header.Get("Set-Cookie"))
	if err != nil {
		t.Fatal(err)
	}
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || !strings.HasPrefix(c.Name, "__Host-") || c.MaxAge != int(access.SessionLifetime.Seconds()) || c.Domain != "" {
		t.Errorf("the cookie is %s", c)
	}
	if strings.Contains(c.Value, s.AdminKey) || session.Name != "first key" {
		t.Errorf("the session is %+v in %s", session, c.Value)
	}

	cookie := c.Name + "=" + c.Value
	if got := apptest.Decode[adminapi.Session](t, do("GET", "/api/v1/session", nil, "Cookie", cookie)); !got.ExpiresAt.Equal(session.ExpiresAt) {
		t.Errorf("the session ends at %s, want %s", got.ExpiresAt, session.ExpiresAt)
	}
	// A page of another origin can send the cookie, not the header.
	refused(t, "a change by cookie alone", do("POST", "/api/v1/upgrade_preview", `{}`, "Cookie", cookie), 400, "kbn-xsrf")
	refused(t, "the same with the header", do("POST", "/api/v1/upgrade_preview", `{}`, "Cookie", cookie, "kbn-xsrf", "1"), 400, "body.agents")
	refused(t, "a changed cookie", do("GET", "/api/v1/session", nil, "Cookie", c.Name+"=x"+c.Value), 401, "log in again")
	if got := do("GET", "/api/v1/session", nil, "Cookie", c.Name+"=x", "Authorization", "ApiKey "+s.AdminKey); got.Status != 200 {
		t.Errorf("a key beside a bad cookie answered %d %s", got.Status, got.Body)
	}
	refused(t, "logging out without a session", do("DELETE", "/api/v1/session", nil, "kbn-xsrf", "1"), 401, "Authorization")
	refused(t, "a logout that another page's form sends", do("DELETE", "/api/v1/session", nil, "Cookie", cookie), 400, "kbn-xsrf")
	out, err := http.ParseSetCookie(do("DELETE", "/api/v1/session", nil, "Cookie", cookie, "kbn-xsrf", "1").Header.Get("Set-Cookie"))
	if err != nil || out.Value != "" || out.MaxAge >= 0 || out.Name != c.Name || out.Path != c.Path {
		t.Errorf("logging out sets %v, %v", out, err)
	}
	refused(t, "a copy of the cookie after the logout", do("GET", "/api/v1/session", nil, "Cookie", cookie), 401, "ended by a logout")
}

func TestLoginIsDelayedAfterWrongKeys(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	var last apptest.Answer
	for i := range 12 { // by both ways to present a key
		req := apptest.Request{Method: "POST", URL: s.AdminURL + "/api/v1/session", Body: adminapi.LogInRequest{ApiKey: fleet.NewCredential().Encode()}}
		if i%2 == 0 {
			req = apptest.Request{Method: "GET", URL: s.AdminURL + "/api/v1/session", Header: apptest.Headers("Authorization", "ApiKey "+fleet.NewCredential().Encode())}
		}
		got, err := s.Do(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if i < 10 {
			refused(t, fmt.Sprint("wrong key ", i+1), got, 401, "not valid here")
		}
		last = got
	}
	refused(t, "the wrong key after ten", last, 429, "try again in 1s")
	if got := last.Header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After is %q", got)
	}
}

// message is a message of an event stream. A comment has only Text.
type message struct {
	ID, Event string
	Data      adminapi.Event
	Text      string
}

type stream struct {
	t     *testing.T
	lines *bufio.Scanner
	close func()
}

// follow opens the event stream.
func follow(t *testing.T, s *apptest.Server, query string, headers ...string) stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.AdminURL+"/api/v1/events"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = apptest.Headers(append(headers, "Authorization", "ApiKey "+s.AdminKey)...)
	resp, err := s.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("the stream answered %d %v", resp.StatusCode, resp.Header)
	}
	st := stream{t, bufio.NewScanner(resp.Body), func() { cancel(); resp.Body.Close() }}
	t.Cleanup(st.close)
	if m := st.next(); m.Text != "muster" {
		t.Fatalf("the stream begins with %+v", m)
	}
	return st
}

// next reads to the next blank line. It blocks until the timeout of the test binary.
func (s stream) next() message {
	s.t.Helper()
	var m message
	for s.lines.Scan() {
		line := s.lines.Text()
		if line == "" {
			return m
		}
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "":
			m.Text = value
		case "id":
			m.ID = value
		case "event":
			m.Event = value
		case "data":
			if err := json.Unmarshal([]byte(value), &m.Data); err != nil {
				s.t.Fatalf("data %s: %v", value, err)
			}
		}
	}
	s.t.Fatalf("the stream ended: %v", s.lines.Err())
	return m
}

func TestEventStreamResumes(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	live := follow(t, s, "")
	var created []string
	for i := range 3 {
		p := apptest.Decode[adminapi.PolicyItem](t, s.Admin("POST", "/api/fleet/agent_policies", map[string]string{"name": fmt.Sprint("p", i), "namespace": "default"}))
		created = append(created, p.Item.Id)
	}
	a := s.Enroll("web-01", "1.0.0")
	var ids []string
	for i, want := range append(created, a.ID) {
		m := live.next()
		if m.Data.Subject != want || m.ID != fmt.Sprint(m.Data.Seq) || m.Event != m.Data.Type {
			t.Fatalf("event %d is %+v, want one about %s", i, m, want)
		}
		if i < 3 && (m.Event != fleet.EventPolicyCreated || *m.Data.Actor != "first key") {
			t.Errorf("event %d is %+v", i, m)
		}
		ids = append(ids, m.ID)
		if i == 3 {
			agent, ok := (*m.Data.Data)["agent"].(map[string]any)
			if !ok || agent["id"] != a.ID || agent["status"] != "updating" {
				t.Errorf("the event lacks the agent: %+v", m.Data)
			}
		}
	}

	// A reader resumes after its last event. The header has precedence over the query.
	for name, st := range map[string]stream{
		"by header": follow(t, s, "", "Last-Event-ID", ids[1]),
		"by query":  follow(t, s, "?after="+ids[1]),
		"by both":   follow(t, s, "?after="+ids[0], "Last-Event-ID", ids[1]),
	} {
		for _, want := range ids[2:] {
			if m := st.next(); m.ID != want {
				t.Errorf("%s: got event %s, want %s", name, m.ID, want)
			}
		}
		st.close()
	}
	if m := follow(t, s, "?after=999999").next(); m.Event != "reset" {
		t.Errorf("after an unknown id: %+v", m)
	}
	if err := s.Store.Events().Trim(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if m := follow(t, s, "?after="+ids[0]).next(); m.Event != "reset" {
		t.Errorf("after an id that was trimmed: %+v", m)
	}
}

func TestIdleEventStreamIsKeptAlive(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apptest.Start(t, apptest.OnPipes)
				protocols := s.Client.Transport.(*http.Transport).Protocols
				protocols.SetHTTP1(!h2)
				protocols.SetHTTP2(h2)
				st := follow(t, s, "")
				start := time.Now()
				for range 100 { // far beyond the limit of an ordinary request
					if m := st.next(); m.Text != "still here" {
						t.Fatalf("got %+v", m)
					}
				}
				if took := time.Since(start); took != 100*15*time.Second {
					t.Errorf("100 of them took %s", took)
				}
				st.close()
			})
		})
	}
}

func TestEventStreamEndsWithItsLogin(t *testing.T) {
	for name, end := range map[string]func(s *apptest.Server, key adminapi.AdminKey, cookie string) apptest.Request{
		"its key is revoked": func(s *apptest.Server, key adminapi.AdminKey, _ string) apptest.Request {
			return apptest.Request{Method: "DELETE", URL: s.AdminURL + "/api/v1/admin_keys/" + key.Id, Header: apptest.Headers("Authorization", "ApiKey "+s.AdminKey)}
		},
		"another session of the key logs out": func(s *apptest.Server, _ adminapi.AdminKey, cookie string) apptest.Request {
			return apptest.Request{Method: "DELETE", URL: s.AdminURL + "/api/v1/session", Header: apptest.Headers("Cookie", cookie, "kbn-xsrf", "1")}
		},
		"the session ends, here with its key": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apptest.Start(t, apptest.OnPipes)
				key := apptest.Decode[adminapi.AdminKeyItem](t, s.Admin("POST", "/api/v1/admin_keys", map[string]string{"name": "ann", "expiration": "2m"})).Item
				do := func(req apptest.Request) apptest.Answer {
					t.Helper()
					got, err := s.Do(t.Context(), req)
					if err != nil || got.Status != http.StatusOK {
						t.Fatalf("%s %s answered %d %s, %v", req.Method, req.URL, got.Status, got.Body, err)
					}
					return got
				}
				in := do(apptest.Request{Method: "POST", URL: s.AdminURL + "/api/v1/session", Body: adminapi.LogInRequest{ApiKey: *key.ApiKey}})
				cookie, _, _ := strings.Cut(in.Header.Get("Set-Cookie"), ";")
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.AdminURL+"/api/v1/events", nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Cookie", cookie)
				resp, err := s.Client.Do(req)
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("the stream: %v, %v", resp, err)
				}
				defer resp.Body.Close()
				start, limit := time.Now(), 2*time.Minute
				if end != nil {
					do(end(s, key, cookie))
					limit = 0
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took < limit-time.Second || took > limit+30*time.Second {
					t.Errorf("it ended after %s", took)
				}
			})
		})
	}
}

func TestEventHandlerEndsWhenTheReaderDisconnects(t *testing.T) {
	s := apptest.Start(t)
	handlers := func() int {
		all := make([]byte, 4<<20)
		return strings.Count(string(all[:runtime.Stack(all, true)]), "admin.(*Handlers).events(")
	}
	var readers []stream
	for range 5 {
		readers = append(readers, follow(t, s, ""))
	}
	if n := handlers(); n != len(readers) {
		t.Fatalf("%d readers have %d handlers", len(readers), n)
	}
	for _, r := range readers {
		r.close()
	}
	apptest.Eventually(t, "the handlers to end", func() string {
		if n := handlers(); n > 0 {
			return fmt.Sprint(n, " are left")
		}
		return ""
	})
}
