// Package fakeserver is a small server of the agent protocol for tests of the agent. It
// enrols agents, parks polls, delivers actions and records what agents send. It speaks real
// TLS and keeps its state in memory. It shares no code with Muster's server, which the
// agent must not import.
package fakeserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

// Token is the only valid enrollment token.
const Token = "ZW5yb2xsOm1l"

// Server is the server. Its fields must not be changed after the first request.
type Server struct {
	// URL, CAPin and Close are set by New.
	URL   string
	CAPin string
	// Hold is how long a poll is parked; 0 means ten seconds.
	Hold time.Duration
	// Fleet makes the server behave as a Fleet Server: it validates requests strictly, keeps
	// an older poll parked when a newer one arrives, and stops delivering actions to the newer
	// poll when the older one ends.
	Fleet bool
	// Before is called before a request is handled. It returns true if it has answered
	// the request.
	Before func(w http.ResponseWriter, r *http.Request) bool

	http *httptest.Server

	mu      sync.Mutex
	changed chan struct{}
	state   State
	polls   map[string]chan struct{}
	// subscribed holds, for each agent, the channel of the poll that gets its actions; it has
	// an effect only with Fleet.
	subscribed map[string]chan struct{}
	refused    []string
}

// State is the state of a server, from which another one can continue. It must not be
// changed.
type State struct {
	agents   int
	packages map[string][]byte
	actions  []agentapi.Action
	enrolled []agentapi.EnrollRequest
	checkins []Checkin
	acks     []agentapi.AckEvent
}

// Checkin is a check-in as it arrived.
type Checkin struct {
	agentapi.CheckinRequest
	AgentID   string
	UserAgent string
	At        time.Time
}

// NewHandler returns a server with the state m and without a listener, for connections
// that the test makes. Its URL, CAPin and Close are not set.
func NewHandler(m State) *Server {
	m.packages = maps.Clone(m.packages)
	if m.packages == nil {
		m.packages = map[string][]byte{}
	}
	// Clipped, so that appending does not change the state of another server.
	m.actions, m.enrolled, m.checkins, m.acks = slices.Clip(m.actions), slices.Clip(m.enrolled), slices.Clip(m.checkins), slices.Clip(m.acks)
	return &Server{state: m, polls: map[string]chan struct{}{}, subscribed: map[string]chan struct{}{}, changed: make(chan struct{})}
}

// State returns the server's current state.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.state
	m.packages = maps.Clone(m.packages)
	m.actions, m.enrolled, m.checkins, m.acks = slices.Clip(m.actions), slices.Clip(m.enrolled), slices.Clip(m.checkins), slices.Clip(m.acks)
	return m
}

// Has reports whether the action was sent.
func (m State) Has(action string) bool {
	return slices.ContainsFunc(m.actions, func(a agentapi.Action) bool { return a.ID == action })
}

// Enrolled returns all enrolments of the state.
func (m State) Enrolled() []agentapi.EnrollRequest { return m.enrolled }

// Checkins returns all check-ins of the state.
func (m State) Checkins() []Checkin { return m.checkins }

// Acks returns all results of the state.
func (m State) Acks() []agentapi.AckEvent { return m.acks }

// New starts a server that stops when the test ends.
func New(t testing.TB) *Server {
	t.Helper()
	s := NewHandler(State{})
	ca, cert := certificates(t)
	s.CAPin = capin.Of(ca.Raw)
	s.http = httptest.NewUnstartedServer(s)
	s.http.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.http.StartTLS()
	s.URL = s.http.URL
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Publish serves data as a package file.
func (s *Server) Publish(name string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.packages[name] = data
}

// PublishTrust serves data as one of the publishers' signed files.
func (s *Server) PublishTrust(name string, data []byte) { s.Publish(agentapi.PathTrust+name, data) }

// Send delivers an action to every agent.
func (s *Server) Send(a agentapi.Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.actions = append(s.state.actions, a)
	s.wake()
}

// Upgrade delivers an UPGRADE.
func (s *Server) Upgrade(id, version string) {
	data, err := json.Marshal(agentapi.UpgradeData{Version: version})
	if err != nil {
		panic(err)
	}
	s.Send(agentapi.Action{ID: id, Type: agentapi.ActionUpgrade, CreatedAt: time.Now(), Data: data})
}

// Checkins returns all check-ins so far.
func (s *Server) Checkins() []Checkin {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.state.checkins)
}

// Acks returns all results so far.
func (s *Server) Acks() []agentapi.AckEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.state.acks)
}

// Refused returns what Fleet has refused, as "code: message".
func (s *Server) Refused() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.refused)
}

// Wait waits until ok holds. It calls ok after every change.
func (s *Server) Wait(t testing.TB, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	deadline := time.After(limit)
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			for _, c := range s.Checkins() {
				t.Logf("check-in %s %s %s %+v", c.UserAgent, c.Status, c.Message, c.UpgradeDetails)
			}
			t.Fatalf("not within %s: %s\nacks: %+v", limit, what, s.Acks())
		}
	}
}

// wake must be called with mu locked.
func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Before != nil && s.Before(w, r) {
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == agentapi.PathEnroll:
		s.enroll(w, r)
	case r.URL.Path == agentapi.PathStatus:
		answer(w, agentapi.Status{Name: "fleet-server", Status: agentapi.StatusHealthy})
	case strings.HasPrefix(r.URL.Path, agentapi.PathTrust):
		s.artifact(w, r)
	case !strings.HasPrefix(r.Header.Get("Authorization"), "ApiKey key-"):
		Refuse(w, http.StatusUnauthorized, "ErrUnauthorized", "no such key")
	case strings.HasPrefix(r.URL.Path, agentapi.PathArtifacts):
		s.artifact(w, r)
	case strings.HasSuffix(r.URL.Path, "/checkin"):
		s.checkin(w, r, parts[3])
	case strings.HasSuffix(r.URL.Path, "/acks"):
		s.ack(w, r)
	case strings.HasSuffix(r.URL.Path, "/audit/unenroll"):
	default:
		http.NotFound(w, r)
	}
}

// Refuse answers with an error of the protocol.
func Refuse(w http.ResponseWriter, status int, code, message string) {
	w.WriteHeader(status)
	answer(w, agentapi.Error{StatusCode: status, Code: code, Message: message})
}

func answer(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) } // the agent may have disconnected

func (s *Server) enroll(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "ApiKey "+Token {
		Refuse(w, http.StatusUnauthorized, "ErrUnauthorized", "unauthorized")
		return
	}
	if s.Fleet && s.refusesUserAgent(w, r) {
		return
	}
	var req agentapi.EnrollRequest
	_ = json.NewDecoder(r.Body).Decode(&req) // tests of refusals send none
	s.mu.Lock()
	s.state.agents++
	s.state.enrolled = append(s.state.enrolled, req)
	id := fmt.Sprintf("agent-%d", s.state.agents)
	s.mu.Unlock()
	answer(w, agentapi.EnrollResponse{Action: "created", Item: agentapi.EnrollItem{ID: id, AccessAPIKey: "key-" + id}})
}

func (s *Server) artifact(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, agentapi.PathArtifacts)
	s.mu.Lock()
	data, ok := s.state.packages[name]
	s.mu.Unlock()
	if !ok {
		Refuse(w, http.StatusNotFound, "NotFound", "no such package")
		return
	}
	w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprint(name, len(data))))
	http.ServeContent(w, r, name, time.Time{}, strings.NewReader(string(data)))
}

func (s *Server) checkin(w http.ResponseWriter, r *http.Request, agent string) {
	var req agentapi.CheckinRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		Refuse(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	if s.Fleet && s.refusesCheckin(w, r, req) {
		return
	}
	replaced := make(chan struct{})
	s.mu.Lock()
	if older := s.polls[agent]; older != nil && !s.Fleet {
		close(older)
	}
	s.polls[agent] = replaced
	s.subscribed[agent] = replaced
	s.state.checkins = append(s.state.checkins, Checkin{CheckinRequest: req, AgentID: agent, UserAgent: r.UserAgent(), At: time.Now()})
	s.wake()
	s.mu.Unlock()
	hold := s.Hold
	if hold == 0 {
		hold = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(r.Context(), hold)
	defer cancel()
	resp := s.park(ctx, agent, req.AckToken, replaced)
	s.mu.Lock()
	delete(s.subscribed, agent)
	if s.polls[agent] == replaced {
		delete(s.polls, agent)
	}
	s.mu.Unlock()
	answer(w, resp)
}

// park waits for an action after the token, which is the number of actions that the agent
// has received.
func (s *Server) park(ctx context.Context, agent, token string, replaced chan struct{}) agentapi.CheckinResponse {
	resp := agentapi.CheckinResponse{Action: "checkin", Actions: []agentapi.Action{}}
	seen := 0
	_, _ = fmt.Sscan(token, &seen) // without a token seen is 0
	for first := true; ; first = false {
		s.mu.Lock()
		if unsubscribed := s.Fleet && !first && s.subscribed[agent] != replaced; len(s.state.actions) > seen && !unsubscribed {
			resp.Actions = slices.Clone(s.state.actions[seen:])
			resp.AckToken = fmt.Sprint(len(s.state.actions))
		}
		changed := s.changed
		s.mu.Unlock()
		if len(resp.Actions) > 0 {
			return resp
		}
		select {
		case <-changed:
		case <-replaced:
			return resp
		case <-ctx.Done():
			return resp
		}
	}
}

func (s *Server) ack(w http.ResponseWriter, r *http.Request) {
	var req agentapi.AckRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		Refuse(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	resp := agentapi.AckResponse{Action: "acks"}
	if s.Fleet && s.refusesAcks(w, req) {
		return
	}
	s.mu.Lock()
	for _, e := range req.Events {
		s.state.acks = append(s.state.acks, e)
		resp.Items = append(resp.Items, agentapi.AckItem{Status: http.StatusOK})
	}
	s.wake()
	s.mu.Unlock()
	answer(w, resp)
}

// certificates creates a CA and its certificate for loopback.
func certificates(t testing.TB) (*x509.Certificate, tls.Certificate) {
	t.Helper()
	caKey, leafKey := key(t), key(t)
	now := time.Now()
	caTemplate := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, caTemplate, caTemplate, caKey.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := x509.ParseCertificate(caDER)
	if err != nil {
		t.Fatal(err)
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test server"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca, leafKey.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	return ca, tls.Certificate{Certificate: [][]byte{leafDER, caDER}, PrivateKey: leafKey}
}

func key(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
