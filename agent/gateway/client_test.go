package gateway_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
	"github.com/muster-fleet/muster/testing/kit/fakeserver"
)

func client(t *testing.T, url string, trust gateway.Trust, at ...string) *gateway.Client {
	t.Helper()
	if len(at) > 0 { // dial this address for the name in url
		trust.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, strings.TrimPrefix(at[0], "https://"))
		}
	}
	h, err := trust.HTTPClient(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.CloseIdleConnections)
	return &gateway.Client{HTTP: h, URL: url, AgentID: "agent-1", APIKey: "key-agent-1", Version: "1.2.3"}
}

func TestRequestsHaveTheProtocolsHeaders(t *testing.T) {
	s := fakeserver.New(t)
	var got http.Header
	s.Before = func(_ http.ResponseWriter, r *http.Request) bool { got = r.Header.Clone(); return false }
	s.Hold = time.Millisecond
	c := client(t, s.URL, gateway.Trust{Fingerprint: s.CAPin})
	sent := 0
	if _, err := c.Checkin(context.Background(), agentapi.CheckinRequest{Status: "online", PollTimeout: "2m"}, func() { sent++ }); err != nil {
		t.Fatal(err)
	}
	if sent != 1 {
		t.Errorf("sent was called %d times", sent)
	}
	for header, want := range map[string]string{
		"Authorization": "ApiKey key-agent-1", "Elastic-Api-Version": "2023-06-01", "User-Agent": "Elastic Agent v1.2.3",
	} {
		if got.Get(header) != want {
			t.Errorf("%s is %q, want %q", header, got.Get(header), want)
		}
	}
	if len(got.Get("X-Request-Id")) != 36 {
		t.Errorf("X-Request-Id is %q", got.Get("X-Request-Id"))
	}
}

func TestTrustOfServerCertificates(t *testing.T) {
	s, other := fakeserver.New(t), fakeserver.New(t)
	pem, err := gateway.Trust{Fingerprint: s.CAPin}.FetchCA(context.Background(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		trust gateway.Trust
		url   string
		want  string // "" is trusted
		is    error
	}{
		{name: "pinned", trust: gateway.Trust{Fingerprint: s.CAPin}, url: s.URL},
		{name: "pinned, in capitals and with colons", trust: gateway.Trust{Fingerprint: "SHA256:" + strings.ToUpper(s.CAPin[7:9]) + ":" + s.CAPin[9:]}, url: s.URL},
		{name: "known CA", trust: gateway.Trust{CAPEM: pem}, url: s.URL},
		{name: "another server's pin", trust: gateway.Trust{Fingerprint: other.CAPin}, url: s.URL, is: capin.ErrMismatch, want: "compare --ca-pin"},
		{name: "another server's CA", trust: gateway.Trust{CAPEM: pem}, url: other.URL, want: "pass --ca-pin"},
		{name: "no pin", url: s.URL, want: "pass --ca-pin"},
		{name: "a name the certificate is not for", trust: gateway.Trust{Fingerprint: s.CAPin}, url: "https://elsewhere.test", want: "use a name or address the certificate is for"},
		{name: "nobody listens", trust: gateway.Trust{Fingerprint: s.CAPin}, url: "https://127.0.0.1:1", want: "nothing listens there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var at []string
			if strings.HasSuffix(c.url, ".test") {
				at = []string{s.URL}
			}
			_, err := client(t, c.url, c.trust, at...).Enroll(context.Background(), fakeserver.Token, agentapi.EnrollRequest{})
			switch {
			case c.want == "" && err != nil:
				t.Errorf("not trusted: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want %q", err, c.want)
			case c.is != nil && !errors.Is(err, c.is):
				t.Errorf("error %v, want %v", err, c.is)
			}
		})
	}
}

// An agent that reconnects resumes its TLS session.
func TestSecondConnectionResumesTheTLSSession(t *testing.T) {
	s := fakeserver.New(t)
	s.Hold = time.Millisecond
	var resumed []bool
	s.Before = func(_ http.ResponseWriter, r *http.Request) bool {
		resumed = append(resumed, r.TLS.DidResume)
		return false
	}
	pem, err := gateway.Trust{Fingerprint: s.CAPin}.FetchCA(context.Background(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, trust := range map[string]gateway.Trust{"pinned": {Fingerprint: s.CAPin}, "known CA": {CAPEM: pem}} {
		t.Run(name, func(t *testing.T) {
			resumed = nil
			c := client(t, s.URL, trust)
			for range 3 {
				if _, err := c.Checkin(context.Background(), agentapi.CheckinRequest{Status: "online", PollTimeout: "2m"}, nil); err != nil {
					t.Fatal(err)
				}
				c.HTTP.CloseIdleConnections()
			}
			if want := []bool{false, true, true}; !slices.Equal(resumed, want) {
				t.Errorf("resumed: %v, want %v", resumed, want)
			}
		})
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var mu sync.Mutex
	visits := 0
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { mu.Lock(); visits++; mu.Unlock() }))
	defer thief.Close()
	s := fakeserver.New(t)
	s.Before = func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
		return true
	}
	_, err := client(t, s.URL, gateway.Trust{Fingerprint: s.CAPin}).Checkin(context.Background(), agentapi.CheckinRequest{PollTimeout: "2m"}, nil)
	mu.Lock()
	defer mu.Unlock()
	if err == nil || visits != 0 {
		t.Errorf("error %v, %d visits", err, visits)
	}
}

func TestStatusErrorHasMessageAndRetryAfter(t *testing.T) {
	s := fakeserver.New(t)
	s.Before = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "7")
		fakeserver.Refuse(w, http.StatusTooManyRequests, "RateLimit", "slow down")
		return true
	}
	_, err := client(t, s.URL, gateway.Trust{Fingerprint: s.CAPin}).Checkin(context.Background(), agentapi.CheckinRequest{PollTimeout: "2m"}, nil)
	var refusal *gateway.StatusError
	if !errors.As(err, &refusal) || refusal.HTTPStatus != 429 || refusal.Code != "RateLimit" || refusal.Message != "slow down" || refusal.RetryAfter != 7*time.Second {
		t.Errorf("error %+v", err)
	}
}

func TestAcksWithItemsAreAcceptedWithAnyStatus(t *testing.T) {
	s := fakeserver.New(t)
	s.Before = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"action":"acks","errors":true,"items":[{"status":200},{"status":404,"message":"unknown"}]}`))
		return true
	}
	resp, err := client(t, s.URL, gateway.Trust{Fingerprint: s.CAPin}).Acks(context.Background(), make([]agentapi.AckEvent, 2))
	if err != nil || len(resp.Items) != 2 || resp.Items[1].Status != 404 {
		t.Errorf("%+v, %v", resp, err)
	}
}

// Fleet Servers of version 7 answer {"action":"acks"}.
func TestAcksWithoutItemsAreAcceptedIfTheServerReportsNoError(t *testing.T) {
	s := fakeserver.New(t)
	status, body := http.StatusOK, `{"action":"acks"}`
	s.Before = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
		return true
	}
	c := client(t, s.URL, gateway.Trust{Fingerprint: s.CAPin})
	if resp, err := c.Acks(context.Background(), make([]agentapi.AckEvent, 2)); err != nil || len(resp.Items) != 2 || resp.Items[1].Status != 200 {
		t.Errorf("%+v, %v", resp, err)
	}
	for _, bad := range []string{`{"action":"acks","errors":true}`, `{"action":"acks","items":[]}`, `{"action":"acks","items":[{"status":200}]}`, `{}`, `<html>`} {
		body = bad
		if _, err := c.Acks(context.Background(), make([]agentapi.AckEvent, 2)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	status, body = http.StatusBadRequest, `{"action":"acks"}`
	if _, err := c.Acks(context.Background(), make([]agentapi.AckEvent, 2)); err == nil {
		t.Error("an answer of status 400 is accepted")
	}
}

func TestAcksReturnRetryAfterWithTheItems(t *testing.T) {
	s := fakeserver.New(t)
	s.Before = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"action":"acks","errors":true,"items":[{"status":200},{"status":503}]}`))
		return true
	}
	resp, err := client(t, s.URL, gateway.Trust{Fingerprint: s.CAPin}).Acks(context.Background(), make([]agentapi.AckEvent, 2))
	var refusal *gateway.StatusError
	if !errors.As(err, &refusal) || refusal.RetryAfter != 7*time.Second || len(resp.Items) != 2 || resp.Items[0].Status != 200 {
		t.Errorf("%+v, %v", resp, err)
	}
}

// outbox is an Outbox in memory.
type outbox struct {
	mu      sync.Mutex
	events  []agentapi.AckEvent
	changed chan struct{}
}

func (o *outbox) Acks(n int) []agentapi.AckEvent {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.events[:min(n, len(o.events))])
}

func (o *outbox) DropAcks(gone []agentapi.AckEvent) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = slices.DeleteFunc(o.events, func(e agentapi.AckEvent) bool {
		return slices.ContainsFunc(gone, func(g agentapi.AckEvent) bool { return g.ActionID == e.ActionID })
	})
	return nil
}

func (o *outbox) Changed() <-chan struct{} { return o.changed }

func (o *outbox) left() (ids []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.events {
		ids = append(ids, e.ActionID)
	}
	return ids
}

type ackScript func(n int, events []agentapi.AckEvent) (agentapi.AckResponse, error)

type ackServer struct {
	mu     sync.Mutex
	n      int
	answer ackScript
}

func (a *ackServer) Acks(_ context.Context, e []agentapi.AckEvent) (agentapi.AckResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
	return a.answer(a.n, e)
}

func items(e []agentapi.AckEvent, status func(id string) int) (r agentapi.AckResponse) {
	for _, x := range e {
		r.Items = append(r.Items, agentapi.AckItem{Status: status(x.ActionID)})
	}
	return r
}

func TestAckSenderSendsUntilEachResultIsAnswered(t *testing.T) {
	ok := func(string) int { return 200 }
	for _, c := range []struct {
		name   string
		answer ackScript
		calls  int
	}{
		{"all accepted", func(_ int, e []agentapi.AckEvent) (agentapi.AckResponse, error) { return items(e, ok), nil }, 1},
		{"one unknown", func(_ int, e []agentapi.AckEvent) (agentapi.AckResponse, error) {
			return items(e, func(id string) int {
				if id == "b" {
					return 404
				}
				return 200
			}), nil
		}, 1},
		{"one busy for a while", func(n int, e []agentapi.AckEvent) (agentapi.AckResponse, error) {
			return items(e, func(id string) int {
				if id == "b" && n < 4 {
					return 503
				}
				return 200
			}), nil
		}, 4},
		{"server away", func(n int, e []agentapi.AckEvent) (agentapi.AckResponse, error) {
			if n < 6 {
				return agentapi.AckResponse{}, errors.New("connection refused")
			}
			return items(e, ok), nil
		}, 6},
		{"one that makes the server refuse all", func(_ int, e []agentapi.AckEvent) (agentapi.AckResponse, error) {
			for _, x := range e {
				if x.ActionID == "b" {
					return agentapi.AckResponse{}, &gateway.StatusError{HTTPStatus: 400}
				}
			}
			return items(e, ok), nil
		}, 5}, // all; a; b and c; b, given up; c
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &outbox{changed: make(chan struct{}), events: []agentapi.AckEvent{{ActionID: "a"}, {ActionID: "b"}, {ActionID: "c"}}}
				a := &ackServer{answer: c.answer}
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan struct{})
				go func() { (&gateway.AckSender{Server: a, Outbox: o}).Run(ctx); close(done) }()
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				cancel()
				<-done
				if left := o.left(); len(left) > 0 || a.n != c.calls {
					t.Errorf("left %v after %d calls, want none after %d", left, a.n, c.calls)
				}
			})
		})
	}
}

// A server without its store refuses results for ten minutes, first single items and then
// whole requests.
func TestAckSenderRecoversAfterALongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outage, retryAfter = 10 * time.Minute, 7 * time.Second
		begin := time.Now()
		var accepted time.Duration
		o := &outbox{changed: make(chan struct{}), events: []agentapi.AckEvent{{ActionID: "a"}, {ActionID: "b"}}}
		a := &ackServer{answer: func(n int, e []agentapi.AckEvent) (agentapi.AckResponse, error) {
			refusal := &gateway.StatusError{HTTPStatus: http.StatusServiceUnavailable, RetryAfter: retryAfter}
			switch {
			case n == 1:
				return items(e, func(id string) int {
					if id == "b" {
						return http.StatusServiceUnavailable
					}
					return http.StatusOK
				}), refusal
			case time.Since(begin) < outage:
				return agentapi.AckResponse{}, refusal
			}
			accepted = time.Since(begin)
			return items(e, func(string) int { return http.StatusOK }), nil
		}}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { (&gateway.AckSender{Server: a, Outbox: o}).Run(ctx); close(done) }()
		time.Sleep(outage + time.Minute)
		cancel()
		<-done
		if late := accepted - outage; len(o.left()) > 0 || late < 0 || late > retryAfter+retryAfter/10 {
			t.Errorf("left %v, accepted %s after the outage", o.left(), late)
		}
		if most := int(outage/retryAfter) + 2; a.n > most {
			t.Errorf("the server was called %d times, want %d at most", a.n, most)
		}
	})
}

// A Fleet Server supports versions of Elastic Agent only. The agent then names one that every
// Fleet Server since 7.17 supports.
func TestAgentEnrolsAtAFleetServerThatDoesNotSupportItsVersion(t *testing.T) {
	s := fakeserver.New(t)
	s.Fleet, s.Hold = true, time.Millisecond
	c := client(t, s.URL, gateway.Trust{Fingerprint: s.CAPin})
	if _, err := c.Enroll(context.Background(), fakeserver.Token, agentapi.EnrollRequest{Type: "PERMANENT"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Checkin(context.Background(), agentapi.CheckinRequest{Status: "online", Message: "Running", PollTimeout: "2m"}, nil); err != nil {
		t.Fatal(err)
	}
	if got := s.Checkins()[0].UserAgent; got != "Elastic Agent v"+gateway.CompatibleVersion {
		t.Errorf("User-Agent is %q", got)
	}
}

func TestVersionThatTheServerRefusesIsExplained(t *testing.T) {
	s := fakeserver.New(t)
	s.Fleet = true
	for version, code := range map[string]string{"7.12.0": "UnsupportedVersion", "99.0.0": "UnsupportedVersion", "8.15.3": "", "8.15.3-SNAPSHOT": ""} {
		c := client(t, s.URL, gateway.Trust{Fingerprint: s.CAPin})
		c.NamedVersion = version
		_, err := c.Enroll(context.Background(), fakeserver.Token, agentapi.EnrollRequest{Type: "PERMANENT"})
		var refusal *gateway.StatusError
		switch {
		case code == "" && err != nil:
			t.Errorf("%s: %v", version, err)
		case code != "" && (!errors.As(err, &refusal) || refusal.Code != code || !strings.Contains(err.Error(), "server.user_agent_version")):
			t.Errorf("%s: %v, want %s and the next step", version, err, code)
		}
	}
}

// Requests follow the server, and the certificates there must come from the same authority.
func TestSwitchSendsRequestsToWhereTheServerIs(t *testing.T) {
	s, stranger := fakeserver.New(t), fakeserver.New(t)
	moved := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	sw, err := (gateway.Trust{Fingerprint: s.CAPin}).Switch(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	var host string
	s.Before = func(_ http.ResponseWriter, r *http.Request) bool { host = r.Host; return false }
	c := &gateway.Client{HTTP: sw.Client(), URL: s.URL, Version: "1.0.0"}
	defer c.HTTP.CloseIdleConnections()
	if err := sw.Try(context.Background(), moved); err != nil {
		t.Fatal(err)
	}
	if err := sw.Move(moved); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(context.Background()); err != nil || "https://"+host != moved || c.Address() != moved {
		t.Errorf("asked %s, the address is %s: %v", host, c.Address(), err)
	}
	if err := sw.Try(context.Background(), stranger.URL); !errors.Is(err, capin.ErrMismatch) {
		t.Errorf("a server of another authority: %v", err)
	}
	for _, bad := range []string{"http://fleet.test:8220", "https://me:secret@fleet.test", "ftp://fleet.test", "fleet.test:8220", "http://127.0.0.1:1", "\x00"} {
		if err := sw.CheckHost(bad); err == nil {
			t.Errorf("a policy may move the agent to %q", bad)
		}
	}
	if err := sw.CheckHost("https://fleet.test:8220"); err != nil {
		t.Error(err)
	}
}
