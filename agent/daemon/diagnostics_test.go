package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// uploadServer requests the diagnostics of an agent once, and refuses the first request
// of the upload.
type uploadServer struct {
	t       *testing.T
	mu      sync.Mutex
	polls   int
	refused bool
	begun   agentapi.UploadBegin
	transit []byte
	size    int
	acks    chan agentapi.AckEvent
}

func (s *uploadServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	if r.Header.Get("Authorization") != "ApiKey key" {
		s.t.Errorf("%s has no key", r.URL.Path)
	}
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/checkin"):
		if s.polls++; s.polls == 1 {
			until := time.Now().Add(time.Hour)
			answer(agentapi.CheckinResponse{Action: "checkin", AckToken: "1", Actions: []agentapi.Action{
				{ID: "act", AgentID: "a", Type: agentapi.ActionRequestDiagnostics, CreatedAt: time.Now(), Expiration: &until},
				{ID: "late", AgentID: "a", Type: agentapi.ActionRequestDiagnostics, CreatedAt: time.Now(), Expiration: &time.Time{}},
			}})
			return
		}
		s.mu.Unlock()
		<-r.Context().Done()
		s.mu.Lock()
	case strings.HasSuffix(path, "/acks"):
		var req agentapi.AckRequest
		if err := json.Unmarshal(body, &req); err != nil {
			s.t.Error(err)
		}
		resp := agentapi.AckResponse{Action: "acks"}
		for _, e := range req.Events {
			s.acks <- e
			resp.Items = append(resp.Items, agentapi.AckItem{Status: 200})
		}
		answer(resp)
	case path == agentapi.PathUploads && !s.refused:
		s.refused = true
		http.Error(w, `{"statusCode":503}`, http.StatusServiceUnavailable)
	case path == agentapi.PathUploads:
		if err := json.Unmarshal(body, &s.begun); err != nil {
			s.t.Error(err)
		}
		answer(agentapi.UploadBegun{UploadID: "up", ChunkSize: 500})
	case r.Method == http.MethodPut:
		sum := sha256.Sum256(body)
		if got := r.Header.Get(agentapi.HeaderChunk); got != hex.EncodeToString(sum[:]) {
			s.t.Errorf("a chunk has the digest %s", got)
		}
		s.transit, s.size = append(s.transit, sum[:]...), s.size+len(body)
	default:
		var end agentapi.UploadEnd
		if err := json.Unmarshal(body, &end); err != nil {
			s.t.Error(err)
		}
		if sum := sha256.Sum256(s.transit); end.TransitHash.SHA256 != hex.EncodeToString(sum[:]) || path != agentapi.PathUploads+"/up" {
			s.t.Errorf("%s ended with %s", path, body)
		}
		answer(map[string]string{"status": "ok"})
	}
}

func TestAgentSendsItsDiagnosticsWhenAsked(t *testing.T) {
	server := &uploadServer{t: t, acks: make(chan agentapi.AckEvent, 10)}
	srv := httptest.NewServer(server)
	defer srv.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	o := Options{
		Top: t.TempDir(), Running: handoff.Install{Identity: manifest.Identity{Version: "1.0.0", Hash: "aaaaaa"}, Home: "data/muster-agent-1.0.0-aaaaaa"},
		GOOS: "linux", GOARCH: "amd64", Config: config.Default(), Disk: disk.OS{}, HTTP: client, Other: client,
		Identity: &identity.Identity{AgentID: "a", APIKey: "key", ServerURL: srv.URL},
		Lock:     func(string, string) (func() error, error) { return func() error { return nil }, nil },
	}
	done := make(chan error, 1)
	go func() { done <- Agent{Options: o}.Run(ctx) }()
	acks := map[string]agentapi.AckEvent{}
	for len(acks) < 2 {
		select {
		case e := <-server.acks:
			acks[e.ActionID] = e
		case <-time.After(20 * time.Second):
			t.Fatalf("the agent has acknowledged %+v", acks)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if e := acks["act"]; e.Error != "" || string(e.Data) != `{"upload_id":"up"}` {
		t.Errorf("the acknowledgement is %+v with data %s", e, e.Data)
	}
	if e := acks["late"]; !strings.Contains(e.Error, "expired") {
		t.Errorf("the acknowledgement of the expired request is %+v", e)
	}
	if b := server.begun; b.ActionID != "act" || b.AgentID != "a" || b.Source != "agent" || b.File.Size == nil || int(*b.File.Size) != server.size || server.size < 500 {
		t.Errorf("the upload of %d bytes began with %+v", server.size, b)
	}
}
