package app_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/agents/limit"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// limited runs a server with a section limits of its own.
func limited(c limit.Config) func(*app.Options) {
	return func(o *app.Options) {
		c.HandshakesPerSecond = o.Config.Limits.HandshakesPerSecond
		o.Config.Limits = c
	}
}

func limits(t *testing.T, s *apptest.Server) adminapi.ServerLimits {
	t.Helper()
	return *apptest.Decode[adminapi.KibanaStatus](t, s.Admin(http.MethodGet, "/api/status", nil)).Limits
}

// alone returns a client with the server's CA and connections of its own, over HTTP/1.1.
func alone(s *apptest.Server) *http.Client {
	transport := s.Client.Transport.(*http.Transport).Clone()
	transport.ForceAttemptHTTP2, transport.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
	transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	return &http.Client{Transport: transport}
}

func ask(ctx context.Context, t *testing.T, c *http.Client, method, url, key, body string) (*http.Response, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "ApiKey "+key)
	}
	resp, err := c.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

// A fleet reconnects at once, and the server makes eight handshakes at a time. All agents
// are served, and the admin API stays responsive.
func TestAllAgentsReturnAfterAStorm(t *testing.T) {
	const storm = 300
	s := apptest.Start(t, limited(limit.Config{MaxHandshakes: 8, MaxReports: 16}))
	var agents []*apptest.Agent // of whose connections each may have a few
	for i := range storm / 15 {
		agents = append(agents, s.Enroll(fmt.Sprintf("web-%02d", i), "1.0.0"))
	}
	s.Client.CloseIdleConnections()

	ctx, cancel := context.WithTimeout(t.Context(), 3*apptest.WaitLimit)
	defer cancel()
	var fleetOf sync.WaitGroup
	for i := range storm {
		fleetOf.Go(func() {
			c, a := alone(s), agents[i%len(agents)]
			defer c.CloseIdleConnections()
			resp, text, err := ask(ctx, t, c, http.MethodPost, s.AgentURL+a.Path("acks"), a.Key, `{"events":[]}`)
			switch {
			case err != nil:
				t.Errorf("one of the storm: %v", err)
			case resp.StatusCode != http.StatusOK:
				t.Errorf("one of the storm was answered %d: %s", resp.StatusCode, text)
			}
		})
	}
	returned := make(chan struct{})
	go func() {
		fleetOf.Wait()
		close(returned)
	}()
	var slowest time.Duration
	var most int64
	for asked := 0; ; asked++ {
		start := time.Now()
		l := limits(t, s)
		slowest, most = max(slowest, time.Since(start)), max(most, l.Handshakes.Used)
		select {
		case <-returned:
			t.Logf("of %d questions to the admin API the slowest took %s", asked, slowest)
			// All of the storm's clients use this process's processors too, without a limit.
			if slowest > apptest.WaitLimit/4 || asked == 0 {
				t.Error("the admin API did not answer in time")
			}
			if most > 8 || l.Handshakes.Max != 8 {
				t.Errorf("%d handshakes were under way, at most %d should be", most, l.Handshakes.Max)
			}
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// stuck returns a store in which the calls of a method of a kind wait until free is closed.
func stuck(s store.Store, kind *store.Info, method string, free chan struct{}) store.Store {
	return store.Intercept(s, func(_ context.Context, c store.Call, do func() error) error {
		if c.Kind == kind && c.Method == method {
			<-free
		}
		return do()
	})
}

func TestRefusedRequestsGetDifferentRetryAfters(t *testing.T) {
	const inside, more = 2, 40
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		s := apptest.Start(t, apptest.OnPipes, limited(limit.Config{MaxEnrollments: inside}), func(o *app.Options) {
			o.Store = stuck(o.Store, store.KindAgents, "Create", free)
		})
		enrol := func() apptest.Answer {
			return s.Agents(http.MethodPost, agentapi.PathEnroll, s.Token, agentapi.EnrollRequest{Type: "PERMANENT", Metadata: agentapi.EnrollMetadata{Local: apptest.Metadata("web", "1.0.0")}})
		}
		var let sync.WaitGroup
		for range inside {
			let.Go(func() {
				if got := enrol(); got.Status != http.StatusOK {
					t.Errorf("one that was let in got %d: %s", got.Status, got.Body)
				}
			})
		}
		time.Sleep(time.Millisecond)
		var mu sync.Mutex
		times := map[string]bool{}
		var sent sync.WaitGroup
		for range more {
			sent.Go(func() {
				got := enrol()
				if got.Status != http.StatusTooManyRequests || got.ErrorBody().Code != "RateLimit" || !strings.Contains(got.ErrorBody().Message, "retry in") {
					t.Errorf("one too many got %d: %s", got.Status, got.Body)
				}
				mu.Lock()
				defer mu.Unlock()
				times[got.Header.Get("Retry-After")] = true
			})
		}
		sent.Wait()
		if len(times) < 4 || times[""] || times["0"] {
			t.Errorf("%d hosts are to come back in the seconds %v", more, times)
		}
		l := limits(t, s) // which has nothing to do with agents' limits
		if l.Enrollments.Max != inside || l.Enrollments.Used != inside || l.Enrollments.Limited != more || l.Reports.Used != 0 {
			t.Errorf("the status shows %+v", l)
		}
		if got := string(s.Admin(http.MethodGet, "/metrics", nil).Body); !strings.Contains(got, `muster_requests_limited_total{kind="enroll"} 40`) {
			t.Errorf("the metrics do not count them:\n%s", got)
		}
		close(free)
		let.Wait()
		if got := enrol(); got.Status != http.StatusOK {
			t.Errorf("afterwards one got %d: %s", got.Status, got.Body)
		}
	})
}

// A script that sends requests to the admin API without pause is refused beyond its budget.
// Agents are served meanwhile, and so are event streams.
func TestOverloadedAdminAPIDoesNotDelayAgents(t *testing.T) {
	const budget, more = (32 + 128) * 7 / 8, 20 // what one key gets of the slots, and of those that wait
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		s := apptest.Start(t, apptest.OnPipes, func(o *app.Options) { o.Store = stuck(o.Store, store.KindEnrollmentKeys.Info, "Get", free) })
		// The requests share this connection: of many that are made at once, the client closes
		// all but one, and fails requests on them.
		s.Admin(http.MethodGet, "/api/openapi.yaml", nil)
		var mu sync.Mutex
		answers := map[int]int{}
		times := map[string]bool{}
		var script sync.WaitGroup
		for range budget + more {
			script.Go(func() {
				got := s.Admin(http.MethodGet, "/api/fleet/enrollment_api_keys/none", nil)
				mu.Lock()
				defer mu.Unlock()
				answers[got.Status]++
				if got.Status == http.StatusTooManyRequests {
					times[got.Header.Get("Retry-After")] = true
				}
			})
		}
		time.Sleep(time.Second)
		if got := s.Agents(http.MethodGet, agentapi.PathStatus, "", nil); got.Status != http.StatusOK {
			t.Errorf("an agent got %d: %s", got.Status, got.Body)
		}
		watching, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if got, err := s.Do(watching, apptest.Request{Method: http.MethodGet, URL: s.AdminURL + "/api/v1/events", Header: apptest.Headers("Authorization", "ApiKey "+s.AdminKey)}); err == nil && got.Status != http.StatusOK {
			t.Errorf("an event stream got %d: %s", got.Status, got.Body)
		}
		close(free)
		script.Wait()
		if answers[http.StatusTooManyRequests] != more || answers[http.StatusNotFound] != budget || len(times) < 4 || times[""] {
			t.Errorf("the script got %v, and is to come back in the seconds %v", answers, times)
		}
	})
}

func TestParkedAgentsHoldNoSlot(t *testing.T) {
	s := apptest.Start(t, limited(limit.Config{MaxCheckins: 1}))
	var answered []<-chan poll
	for _, host := range []string{"web-01", "web-02", "web-03"} {
		answered = append(answered, park(s, s.Enroll(host, "1.0.0")))
	}
	apptest.Eventually(t, "all of them to be parked", func() string {
		l := limits(t, s)
		if l.AgentsParked != 3 || l.Checkins.Used != 0 || l.BodyBytes.Used != 0 {
			return "the status shows too few, or some at work"
		}
		return ""
	})
	if got := string(s.Admin(http.MethodGet, "/metrics", nil).Body); !strings.Contains(got, "\nmuster_agents_parked 3\n") || !strings.Contains(got, "\nmuster_agents_max ") {
		t.Errorf("the metrics do not count them:\n%s", got)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	for _, a := range answered {
		if got := <-a; got.err != nil {
			t.Error(got.err)
		}
	}
}

func TestFullServerAnswers429(t *testing.T) {
	s := apptest.Start(t, limited(limit.Config{MaxAgents: 1}))
	a := s.Enroll("web-01", "1.0.0") // whose client keeps the connection
	resp, text, err := ask(t.Context(), t, alone(s), http.MethodPost, s.AgentURL+a.Path("checkin"), a.Key, `{"status":"online"}`)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusTooManyRequests || !resp.Close || resp.Header.Get("Retry-After") == "" || !strings.Contains(text, "RateLimit") || !strings.Contains(text, "limits.max_agents") {
		t.Errorf("one too many got %d, %v, %s", resp.StatusCode, resp.Header, text)
	}
	if l := limits(t, s); l.Agents.Max != 1 || l.Agents.Used != 1 || l.Agents.Limited != 1 {
		t.Errorf("the status shows %+v", l.Agents)
	}
}

func TestSessionResumesAtAnotherServerAndAfterARestart(t *testing.T) {
	first := apptest.Start(t)
	second := apptest.StartBeside(t, first)
	c := alone(first)
	transport := c.Transport.(*http.Transport)
	transport.DisableKeepAlives, transport.TLSClientConfig.ClientSessionCache = true, tls.NewLRUClientSessionCache(1)
	// The session's name in the cache is the server's, which is localhost of both.
	resumed := func(s *apptest.Server) bool {
		resp, _, err := ask(t.Context(), t, c, http.MethodGet, s.AgentURL+agentapi.PathStatus, "", "")
		if err != nil {
			t.Fatal(err)
		}
		if resp.TLS.Version != tls.VersionTLS13 {
			t.Errorf("the connection is of version %x", resp.TLS.Version)
		}
		return resp.TLS.DidResume
	}
	if resumed(first) {
		t.Error("the first session was resumed")
	}
	if !resumed(second) {
		t.Error("another server did not resume the session")
	}
	for _, s := range []*apptest.Server{second, first} {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	third := apptest.StartOn(t, first.Data)
	if !resumed(third) {
		t.Error("after a restart the session was not resumed")
	}
	transport.TLSClientConfig.MaxVersion = tls.VersionTLS12
	if _, _, err := ask(t.Context(), t, c, http.MethodGet, third.AgentURL+agentapi.PathStatus, "", ""); err == nil {
		t.Error("agents are served with TLS 1.2")
	}
	if _, _, err := ask(t.Context(), t, c, http.MethodGet, third.AdminURL+"/api/openapi.yaml", "", ""); err != nil {
		t.Errorf("people are not served with TLS 1.2: %v", err)
	}
}

func TestProfilesAreServedOnTheDebugListener(t *testing.T) {
	s := apptest.Start(t, func(o *app.Options) { o.Config.Debug.Listen = "127.0.0.1:0" })
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, text, err := ask(t.Context(), t, c, http.MethodGet, s.DebugURL+"goroutine?debug=1", "", "")
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(text, "goroutine profile") {
		t.Errorf("the profile is %.200s, %v", text, err)
	}
	if apptest.Start(t).DebugURL != "" {
		t.Error("a server that was not asked to serves profiles")
	}
}

func TestRSACertificateIsLoggedAsAWarning(t *testing.T) {
	cert, key := rsaCertificate(t)
	var said synced
	apptest.Start(t, func(o *app.Options) {
		o.Log = slog.New(slog.NewTextHandler(&said, nil))
		o.Config.TLS.Certificate, o.Config.TLS.Key = cert, key
	})
	if got := said.String(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, "RSA") || !strings.Contains(got, cert) {
		t.Errorf("the log says %s", got)
	}
}

// synced is a log that is read while it is written.
type synced struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *synced) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *synced) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
