// Package apptest runs whole servers inside tests: a real store in a temporary folder,
// both listeners with TLS, and the requests that most scenarios begin with. Only tests of
// the HTTP interfaces, of package app, of the command line and of packaging/release/monitoring use it.
package apptest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

// Version is the version of the servers.
const Version = "0.1.0-test"

// Server is a running server with a fresh store.
type Server struct {
	app.Info
	Store *sqlite.Store
	// AdminKey and Token are those of FirstKeys; a second server on the same data has
	// none.
	AdminKey string
	Token    string
	// Client trusts the server's CA and nothing else.
	Client *http.Client

	t         testing.TB
	publisher *Publisher
	owner     bool // of Store
	stop      context.CancelFunc
	done      chan error
}

// Start runs a server until the test ends.
func Start(t testing.TB, change ...func(*app.Options)) *Server {
	t.Helper()
	// Not t.TempDir, whose path contains the test's name.
	dir, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return StartOn(t, dir, change...)
}

// StartOn runs a server on the data in dir, which no other may be using.
func StartOn(t testing.TB, dir string, change ...func(*app.Options)) *Server {
	t.Helper()
	db, err := sqlite.Open(context.Background(), filepath.Join(dir, "muster.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, dir, db, change...)
	s.owner = true
	return s
}

// StartBeside runs a second server on the folder and the store of first, in the same
// process: the embedded store belongs to one. first must be stopped last.
func StartBeside(t testing.TB, first *Server, change ...func(*app.Options)) *Server {
	t.Helper()
	return start(t, first.Data, first.Store, change...)
}

func start(t testing.TB, dir string, db *sqlite.Store, change ...func(*app.Options)) *Server {
	t.Helper()
	ctx := context.Background()
	o := app.Options{Config: app.Defaults(), Store: db, Version: Version, Log: slog.New(slog.DiscardHandler)}
	o.Config.Data = dir
	// Not measured: that takes long under the race detector, and its result would be that
	// of a slow machine.
	o.Config.Limits.HandshakesPerSecond = 10_000
	// A test makes its fleet at once, with one token.
	o.Config.Limits.EnrollmentsPerSecond = 10_000
	o.Config.Agents.Listen, o.Config.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0"
	for _, f := range change {
		f(&o)
	}
	srv, err := app.New(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Info: srv.Info(), Store: db, t: t, done: make(chan error, 1)}
	admin, token, first, err := srv.FirstKeys(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if first {
		s.AdminKey, s.Token = admin.Encode(), token.Encode()
	}
	s.Client = s.NewClient(o)
	running, stop := context.WithCancel(ctx)
	s.stop = stop
	go func() { s.done <- srv.Run(running) }()
	t.Cleanup(func() {
		s.Client.CloseIdleConnections()
		if err := s.Stop(); err != nil {
			t.Errorf("the server ended with: %v", err)
		}
	})
	return s
}

// Stop stops the server and waits for it, and closes the store unless it is another server's.
// Later calls do nothing.
func (s *Server) Stop() error {
	s.stop()
	err, ok := <-s.done
	if ok {
		close(s.done)
		if s.owner {
			err = errors.Join(err, s.Store.Close())
		}
	}
	return err
}

// NewClient returns a client with connections of its own. o are the server's options, so
// that the client also reaches servers on pipes.
func (s *Server) NewClient(o app.Options) *http.Client {
	u, err := url.Parse(s.AgentURL)
	if err != nil {
		s.t.Fatal(err)
	}
	config, err := capin.TLSConfig(s.CAPin, u.Hostname())
	if err != nil {
		s.t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	if agents, ok := o.AgentListener.(*Pipes); ok {
		admin := o.AdminListener.(*Pipes)
		// Two ends of HTTP/1.1 that close a pipe at the same time wait for each other with
		// a mutex, which stops virtual time.
		transport.Protocols = &http.Protocols{}
		transport.Protocols.SetHTTP2(true)
		transport.DialContext = func(ctx context.Context, _, addr string) (net.Conn, error) {
			if addr == admin.name {
				return admin.dial(ctx)
			}
			return agents.dial(ctx)
		}
	}
	return &http.Client{Transport: transport}
}

// OnPipes makes the server use connections in memory, as the virtual time of
// testing/synctest requires.
func OnPipes(o *app.Options) {
	o.Config.Agents.URL, o.Config.Admin.URL = "https://localhost:8220", "https://localhost:8221"
	o.AgentListener, o.AdminListener = newPipes("localhost:8220"), newPipes("localhost:8221")
}

// Pipes is a listener whose connections are pipes.
type Pipes struct {
	name   string
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes(name string) *Pipes {
	return &Pipes{name: name, conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (p *Pipes) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *Pipes) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

func (p *Pipes) Addr() net.Addr { return pipeAddr(p.name) }

type pipeAddr string

func (pipeAddr) Network() string  { return "pipe" }
func (a pipeAddr) String() string { return string(a) }

// Answer is a complete response.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// ErrorBody decodes an error body. It returns the zero value for another body.
func (a Answer) ErrorBody() agentapi.Error {
	var e agentapi.Error
	_ = json.Unmarshal(a.Body, &e) // the caller compares
	return e
}

// Decode decodes a 200 answer as T. It fails the test for another status, and for fields
// that T does not have.
func Decode[T any](t testing.TB, a Answer) T {
	t.Helper()
	var v T
	dec := json.NewDecoder(bytes.NewReader(a.Body))
	dec.DisallowUnknownFields()
	if a.Status != http.StatusOK {
		t.Fatalf("the answer is %d: %s", a.Status, a.Body)
	}
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("the answer does not decode: %v\n%s", err, a.Body)
	}
	return v
}

// Request is a request to either listener.
type Request struct {
	Method, URL string
	Header      http.Header
	// Body is sent unchanged if it is a string, []byte or io.Reader, otherwise as JSON.
	Body any
}

// Do sends a request and reads the complete response.
func (s *Server) Do(ctx context.Context, r Request) (Answer, error) {
	var body io.Reader
	switch b := r.Body.(type) {
	case nil:
	case string:
		body = bytes.NewReader([]byte(b))
	case []byte:
		body = bytes.NewReader(b)
	case io.Reader:
		body = b
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return Answer{}, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, body)
	if err != nil {
		return Answer{}, err
	}
	for k, v := range r.Header {
		req.Header[http.CanonicalHeaderKey(k)] = v
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return Answer{resp.StatusCode, resp.Header, b}, err
}

// Headers returns headers of alternating names and values. A header with an empty value is
// left out.
func Headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			h[http.CanonicalHeaderKey(pairs[i])] = []string{pairs[i+1]}
		}
	}
	return h
}

func (s *Server) must(r Request) Answer {
	s.t.Helper()
	a, err := s.Do(context.Background(), r)
	if err != nil {
		s.t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	return a
}

// Admin sends a request to the admin API with the first admin key.
func (s *Server) Admin(method, path string, body any) Answer {
	s.t.Helper()
	return s.must(Request{method, s.AdminURL + path, Headers("Authorization", "ApiKey "+s.AdminKey, "kbn-xsrf", "test"), body})
}

// Agents sends a request to the agents' listener with a key, or without one.
func (s *Server) Agents(method, path, key string, body any) Answer {
	s.t.Helper()
	h := Headers()
	if key != "" {
		h = Headers("Authorization", "ApiKey "+key)
	}
	return s.must(Request{method, s.AgentURL + path, h, body})
}

// Agent is an enrolled agent with the state of its host.
type Agent struct {
	ID, Key, Host, Version string
	// Token is the last ack token.
	Token string
	// WatcherKey authorizes beacons.
	WatcherKey string
	// Kept are the versions that check-ins report as available for a rollback; nil reports
	// none.
	Kept []agentapi.Rollback
	// Components are what check-ins report of the workloads that it runs; nil reports none.
	Components []agentapi.Component
	// Staged are the versions that check-ins report as staged; nil is that of an agent that
	// stages none.
	Staged []string
	// FreeBytes is what check-ins report as free on the agent's disk; nil reports nothing.
	FreeBytes *int64

	server *Server
}

// Metadata returns the local metadata of a host with the agent.
func Metadata(host, version string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"elastic":{"agent":{"version":%q,"upgradeable":true}},"host":{"hostname":%q,"architecture":"amd64"},"os":{"type":"linux"}}`, version, host))
}

// Enroll enrols a host, and gives it its policy, which would otherwise be its first action.
func (s *Server) Enroll(host, version string) *Agent {
	s.t.Helper()
	a := s.EnrollWithoutPolicy(host, version)
	_, err := store.UpdateAgent(context.Background(), s.Store.Agents(), a.ID, func(a *fleet.Agent) bool { a.PolicyRev = 1; return true })
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// EnrollWithoutPolicy enrols a host.
func (s *Server) EnrollWithoutPolicy(host, version string) *Agent {
	s.t.Helper()
	req := agentapi.EnrollRequest{Type: "PERMANENT", Metadata: agentapi.EnrollMetadata{Local: Metadata(host, version)}}
	got := Decode[agentapi.EnrollResponse](s.t, s.Agents(http.MethodPost, agentapi.PathEnroll, s.Token, req))
	return &Agent{ID: got.Item.ID, Key: got.Item.AccessAPIKey, WatcherKey: got.Item.WatcherAPIKey, Host: host, Version: version, server: s}
}

// Path returns the path of one of the agent's calls, such as checkin or acks.
func (a *Agent) Path(call string) string { return "/api/fleet/agents/" + a.ID + "/" + call }

// Checkin polls at s, which may be another server than the agent enrolled at, and stores
// the ack token. details is the agent's upgrade, or nil.
func (a *Agent) Checkin(ctx context.Context, s *Server, details *agentapi.UpgradeDetails) (agentapi.CheckinResponse, error) {
	var out agentapi.CheckinResponse
	req := agentapi.CheckinRequest{Status: "online", Message: "Running", AckToken: a.Token, LocalMeta: Metadata(a.Host, a.Version), UpgradeDetails: details}
	if a.FreeBytes != nil {
		req.LocalMeta = fmt.Appendf(bytes.TrimSuffix(req.LocalMeta, []byte("}")), `,"muster":{"free_bytes":%d}}`, *a.FreeBytes)
	}
	if a.Kept != nil {
		req.Upgrade = &agentapi.CheckinUpgrade{Rollbacks: a.Kept}
	}
	req.StagedVersions = a.Staged
	if a.Components != nil {
		var err error
		if req.Components, err = json.Marshal(a.Components); err != nil {
			return out, err
		}
	}
	got, err := s.Do(ctx, Request{http.MethodPost, s.AgentURL + a.Path("checkin"), Headers("Authorization", "ApiKey "+a.Key), req})
	if err != nil {
		return out, err
	}
	if got.Status != http.StatusOK {
		return out, fmt.Errorf("check-in answered %d: %s", got.Status, got.Body)
	}
	if err := json.Unmarshal(got.Body, &out); err != nil {
		return out, err
	}
	if out.AckToken != "" {
		a.Token = out.AckToken
	}
	return out, nil
}

// Component returns a healthy component as agents report it. An empty version is that of one
// that has not been installed.
func Component(name, version string) agentapi.Component {
	c := agentapi.Component{ID: name, Type: "component", Status: "HEALTHY", Message: "Running"}
	c.Name, c.Runtime, c.Version = name, "systemd", version
	return c
}

// MustCheckin is Checkin at the agent's own server, within a deadline.
func (a *Agent) MustCheckin(details *agentapi.UpgradeDetails) agentapi.CheckinResponse {
	a.server.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), WaitLimit)
	defer cancel()
	out, err := a.Checkin(ctx, a.server, details)
	if err != nil {
		a.server.t.Fatal(err)
	}
	return out
}

// Ack acknowledges actions; errText is empty for success.
func (a *Agent) Ack(errText string, actionIDs ...string) Answer {
	a.server.t.Helper()
	var req agentapi.AckRequest
	for _, id := range actionIDs {
		req.Events = append(req.Events, agentapi.AckEvent{Type: agentapi.AckType, Subtype: agentapi.AckSubtype, AgentID: a.ID, ActionID: id, Error: errText})
	}
	return a.server.Agents(http.MethodPost, a.Path("acks"), a.Key, req)
}

// Beacon returns a watcher's report of an upgrade from 1.0.0 to 1.1.0 with a healthy
// agent. Phases of a rollback have a reason.
func Beacon(actionID string, phase agentapi.BeaconPhase) agentapi.Beacon {
	b := agentapi.Beacon{
		ActionID: actionID, From: "1.0.0", To: "1.1.0", Phase: phase, At: time.Now().UTC(),
		Agent: agentapi.BeaconAgent{Alive: true, State: "healthy", Version: "1.1.0"}, Waiting: "for 3 more healthy samples",
	}
	if phase != agentapi.BeaconWatching && phase != agentapi.BeaconCommitted {
		b.Reason = &agentapi.BeaconCause{Code: "crash_loop", Text: "it crashed 3 times"}
	}
	return b
}

// Beacon sends b with the watcher's key.
func (a *Agent) Beacon(b agentapi.Beacon) {
	a.server.t.Helper()
	if got := a.server.Agents(http.MethodPost, a.Path("beacon"), a.WatcherKey, b); got.Status != http.StatusNoContent || len(got.Body) != 0 {
		a.server.t.Fatalf("the beacon answered %d: %s", got.Status, got.Body)
	}
}

// WaitLimit is how long a test waits for a condition that should hold at once.
const WaitLimit = 20 * time.Second

// Eventually waits until ok returns "". After WaitLimit it fails with ok's last result.
func Eventually(t testing.TB, what string, ok func() string) {
	t.Helper()
	end := time.Now().Add(WaitLimit)
	for {
		state := ok()
		if state == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s: %s", what, state)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Parked waits until the agent's check-in is stored, which precedes parking its poll.
func (s *Server) Parked(a *Agent) {
	s.t.Helper()
	Eventually(s.t, "the check-in of "+a.Host, func() string {
		got, err := s.Store.Agents().Get(context.Background(), a.ID)
		switch {
		case err != nil:
			return err.Error()
		case got.Last.At == nil:
			return "it has not checked in"
		}
		return ""
	})
}

// Publisher signs packages that hosts of the server install. A server has one.
type Publisher struct {
	// Root is the root that the publisher has published.
	Root    []byte
	server  *Server
	signer  tuf.PrivateKey
	targets []byte
}

// Publisher creates the publisher of the server and publishes its root, or returns the one that
// it has created before.
func (s *Server) Publisher() *Publisher {
	s.t.Helper()
	if s.publisher != nil {
		return s.publisher
	}
	state := Decode[adminapi.Trust](s.t, s.Admin(http.MethodGet, "/api/v1/trust", nil))
	online, err := tuf.ParsePublicKey(state.OnlineKeys[0])
	s.ok(err)
	rosa, err := tuf.GenerateKey(rand.Reader, "rosa")
	s.ok(err)
	tina, err := tuf.GenerateKey(rand.Reader, "tina")
	s.ok(err)
	root, err := tuf.NewRoot(tuf.RootSpec{
		Root:     tuf.Signers{Keys: []tuf.PublicKey{rosa.Public()}, Threshold: 1},
		Targets:  tuf.Signers{Keys: []tuf.PublicKey{tina.Public()}, Threshold: 1},
		Snapshot: online, Timestamp: online, Expires: time.Now().Add(tuf.RootLife),
	})
	s.ok(err)
	root, err = tuf.Sign(root, nil, rosa)
	s.ok(err)
	s.publishTrust(root)
	s.publisher = &Publisher{Root: root, server: s, signer: tina}
	return s.publisher
}

func (s *Server) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) publishTrust(file []byte) {
	s.t.Helper()
	if a := s.Admin(http.MethodPost, "/api/v1/trust/files", map[string]any{"files": [][]byte{file}}); a.Status != http.StatusOK {
		s.t.Fatalf("publish signed metadata: %s", a.Body)
	}
}

// Archive writes the package of a version into dir and returns its path.
func (p *Publisher) Archive(dir, version string) string {
	p.server.t.Helper()
	pkg := fakepkg.Describe(version)
	return fakepkg.Write(p.server.t, dir, "muster-agent-"+version+"-linux-amd64.tar.gz", fakepkg.Sound(p.server.t, pkg))
}

// Publish pushes packages of these versions, and signs them.
func (p *Publisher) Publish(versions ...string) {
	p.server.t.Helper()
	dir := p.server.t.TempDir()
	for _, v := range versions {
		if a := p.Push(p.Archive(dir, v)); a.Status != http.StatusOK {
			p.server.t.Fatalf("push %s: %s", v, a.Body)
		}
	}
}

// Push sends an archive, and signs it if the server accepts it.
func (p *Publisher) Push(archive string) Answer {
	p.server.t.Helper()
	a := p.server.Upload(archive)
	if a.Status == http.StatusOK {
		p.Sign(Decode[adminapi.PackageItem](p.server.t, a).Item)
	}
	return a
}

// Sign adds a published package to the targets, and publishes these.
func (p *Publisher) Sign(pkg adminapi.Package) {
	p.server.t.Helper()
	format := "tar.gz"
	if strings.HasSuffix(pkg.File, ".zip") {
		format = "zip"
	}
	target := tuf.Target{Version: pkg.Version, OS: pkg.Os, Arch: pkg.Arch, Format: format, Size: pkg.Size, Unpacked: pkg.Size, SHA512: pkg.Sha512}
	if pkg.Component != nil {
		target.Component = *pkg.Component
	}
	edit, err := tuf.EditTargets(p.targets, time.Now().Add(tuf.TargetsLife))
	p.server.ok(err)
	p.server.ok(edit.AddTarget(target))
	targets, err := edit.Bytes()
	p.server.ok(err)
	targets, err = tuf.Sign(targets, p.Root, p.signer)
	p.server.ok(err)
	p.server.publishTrust(targets)
	p.targets = targets
}

// Upload sends an archive.
func (s *Server) Upload(archive string) Answer {
	s.t.Helper()
	body, err := os.ReadFile(archive)
	s.ok(err)
	return s.Admin(http.MethodPut, "/api/v1/packages/"+filepath.Base(archive), body)
}

// Details returns the details of an upgrade in a phase.
func Details(actionID, version string, state agentapi.UpgradeState) *agentapi.UpgradeDetails {
	return &agentapi.UpgradeDetails{ActionID: actionID, TargetVersion: version, State: state}
}

// Fleet reads an agent's document.
func (s *Server) Fleet(id string) fleet.Agent {
	s.t.Helper()
	a, err := s.Store.Agents().Get(context.Background(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}
