package probe

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// agent serves handler on the control socket of a fresh top folder.
func agent(t *testing.T, handler http.Handler) (top string) {
	t.Helper()
	top, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", SocketPath(top))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: Timeout}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
		_ = os.RemoveAll(top)
	})
	return top
}

func client(top string) Client { return Client{Dial: DialSocket(top)} }

func TestHealth(t *testing.T) {
	checkin := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	want := Health{
		AgentID: "a-1", Identity: manifest.Identity{Version: "1.1.0", Hash: "3f2a9c"}, Home: "data/muster-agent-1.1.0-3f2a9c",
		PID: 42, StartedAt: checkin, State: Degraded, Message: "no server",
		Checks:    []Check{{Name: "queue", Problem: "it cannot be written", Since: checkin, AtFault: true}},
		Workloads: []Workload{{Name: "logs", Runtime: "process", State: Failed, Message: "exit 1", FailedSince: checkin}},
		Fleet:     Fleet{URL: "https://fleet:8220", State: Failed, LastCheckin: &checkin, Error: "timeout"},
	}
	top := agent(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/v1/health" {
			http.Error(w, r.URL.Path, http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(want)
	}))
	got, err := client(top).Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(want)
	b, _ := json.Marshal(got)
	if string(a) != string(b) {
		t.Errorf("health is %s, want %s", b, a)
	}
	if !strings.Contains(string(a), `"version":"1.1.0","snapshot":false,"hash":"3f2a9c"`) {
		t.Errorf("the identity does not stand at the top of %s", a)
	}
}

func TestUpgradeIsAccepted(t *testing.T) {
	asked := make(chan UpgradeRequest, 1)
	top := agent(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var u UpgradeRequest
		if r.Method != http.MethodPost || r.URL.Path != "/v1/upgrade" || json.NewDecoder(r.Body).Decode(&u) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		asked <- u
		w.WriteHeader(http.StatusAccepted)
	}))
	want := UpgradeRequest{Version: "1.1.0", SourceURI: "file:///srv"}
	if err := client(top).Upgrade(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; got != want {
		t.Errorf("the agent was asked for %+v, want %+v", got, want)
	}
}

func TestHealthReturnsErrorsOfTheAgent(t *testing.T) {
	answer := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	tests := []struct {
		name    string
		handler http.HandlerFunc
		want    string
	}{
		{"a refusal with a message", answer(409, `{"message":"an upgrade to 1.2.0 is running"}`), "an upgrade to 1.2.0 is running"},
		{"a refusal without", answer(500, "oops"), "500 Internal Server Error"},
		{"no JSON", answer(200, "hello"), "control socket: /v1/health"},
		{"half a document", answer(200, `{"state":"heal`), "control socket: /v1/health"},
		{"more than any document has", answer(200, `{"message":"`+strings.Repeat("x", maxBody)+`"}`), "control socket: /v1/health"},
		{"a broken connection", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "control socket: GET /v1/health"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			top := agent(t, tc.handler)
			_, err := client(top).Health(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want it to say %q", err, tc.want)
			}
			if errors.Is(err, ErrNotRunning) {
				t.Error("an agent that answers counts as not running")
			}
		})
	}
}

func TestHealthReturnsErrNotRunning(t *testing.T) {
	top := t.TempDir()
	if _, err := client(top).Health(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("error is %v, want that the agent is not running", err)
	}
}

// An agent that accepts the connection and hangs delays a request by one Timeout.
func TestHealthTimesOut(t *testing.T) {
	release := make(chan struct{})
	top := agent(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer close(release)
	begin := time.Now()
	_, err := client(top).Health(t.Context())
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNotRunning) {
		t.Errorf("error is %v, want that the time is up", err)
	}
	if took := time.Since(begin); took < Timeout || took > 5*Timeout {
		t.Errorf("took %v, want %v", took, Timeout)
	}
}

func TestSocketIsInTheTopFolder(t *testing.T) {
	for _, top := range []string{"/opt/muster", "/srv/" + strings.Repeat("deep/", 30) + "muster"} {
		if got := SocketPath(top); filepath.Dir(got) != filepath.FromSlash(top) {
			t.Errorf("the socket of %s is %s", top, got)
		}
	}
}
