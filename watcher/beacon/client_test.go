package beacon

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

func example() Identity {
	return Identity{AgentID: "agent 1", APIKey: "key", ServerURL: "https://fleet.example.com:8220"}
}

func TestLoadReturnsTheSavedCredential(t *testing.T) {
	top := t.TempDir()
	if id, err := Load(disk.OS{}, top); id != nil || err != nil {
		t.Fatalf("without one: %+v, %v; want none and no error", id, err)
	}
	want := example()
	want.CAPEM, want.CAFingerprint = "pem", "sha256:00"
	if err := Save(disk.OS{}, top, want); err != nil {
		t.Fatal(err)
	}
	if id, err := Load(disk.OS{}, top); err != nil || !reflect.DeepEqual(*id, want) {
		t.Fatalf("read %+v, %v; want %+v", id, err, want)
	}
	fi, err := os.Stat(layout.Path(top, layout.WatcherIdentityFile))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want it readable by the owner alone", fi, err)
	}
	if err := Remove(disk.OS{}, top); err != nil {
		t.Fatal(err)
	}
	if id, err := Load(disk.OS{}, top); id != nil || err != nil {
		t.Errorf("after Remove: %+v, %v", id, err)
	}
}

func TestDamagedCredentialIsAnError(t *testing.T) {
	top := t.TempDir()
	if err := os.WriteFile(layout.Path(top, layout.WatcherIdentityFile), make([]byte, 300), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := Load(disk.OS{}, top); id != nil || !errors.Is(err, disk.ErrDamaged) || !strings.Contains(err.Error(), "enrol this host again") {
		t.Errorf("%+v, %v", id, err)
	}
}

func TestInvalidCredentialsAreRefused(t *testing.T) {
	for field, change := range map[string]func(*Identity){
		"agent_id": func(id *Identity) { id.AgentID = "" }, "api_key": func(id *Identity) { id.APIKey = "" },
		"server_url": func(id *Identity) { id.ServerURL = "fleet.example.com" },
	} {
		id := example()
		change(&id)
		if err := Save(disk.OS{}, t.TempDir(), id); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
		if _, err := NewClient(id, "1", nil); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	id := example()
	id.CAPEM = "no certificate"
	if _, err := NewClient(id, "1", nil); err == nil || !strings.Contains(err.Error(), "ca_pem") {
		t.Errorf("ca_pem: %v", err)
	}
}

func TestSendMakesTheRequest(t *testing.T) {
	var got *http.Request
	var body agentapi.Beacon
	connections := map[string]bool{}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		connections[r.RemoteAddr] = true
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer s.Close()
	id := example()
	id.ServerURL = s.URL + "/"
	id.CAPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	c, err := NewClient(id, "1.2.3", nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.Send(t.Context(), agentapi.Beacon{Phase: agentapi.BeaconWatching, To: "1.1.0"}); err != nil {
			t.Fatal(err)
		}
	}
	if got.Method != http.MethodPost || got.URL.EscapedPath() != "/api/fleet/agents/agent%201/beacon" || got.Header.Get("Authorization") != "ApiKey key" ||
		got.Header.Get("Content-Type") != "application/json" || got.Header.Get(agentapi.HeaderAPIVersion) != agentapi.APIVersion || body.To != "1.1.0" {
		t.Errorf("%s %s, %v, %+v", got.Method, got.URL, got.Header, body)
	}
	if len(connections) != 3 {
		t.Errorf("%d connections for 3 beacons: a kept one proves nothing", len(connections))
	}
}

func TestTrustOfTheServersCertificate(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	der := s.Certificate().Raw
	other := strings.Repeat("ab", 32)
	tests := []struct {
		name string
		id   Identity
		ok   bool
	}{
		{"the CA it was given", Identity{CAPEM: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}, true},
		{"the CA with the stored fingerprint", Identity{CAFingerprint: capin.Of(der)}, true},
		{"not another fingerprint", Identity{CAFingerprint: "sha256:" + other}, false},
		{"not one the host's roots do not know", Identity{}, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			tc.id.AgentID, tc.id.APIKey, tc.id.ServerURL = "a", "k", s.URL
			c, err := NewClient(tc.id, "1", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Send(t.Context(), agentapi.Beacon{}); (err == nil) != tc.ok {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func TestRefusedErrorHasMessageAndRetryAfter(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the key was carried elsewhere") }))
	defer elsewhere.Close()
	tests := []struct {
		name       string
		status     int
		retryAfter string
		want       time.Duration
	}{
		{"busy", 429, "7", 7 * time.Second},
		{"busy for days", 503, "999999999", maxRetryAfter},
		{"nonsense", 503, "soon", 0},
		{"below nothing", 503, "-5", 0},
		{"a redirect", 307, "", 0},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", tc.retryAfter)
				w.Header().Set("Location", elsewhere.URL)
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(`{"statusCode":1,"error":"E","message":"not now"}`))
			}))
			defer s.Close()
			id := example()
			id.ServerURL = s.URL
			c, err := NewClient(id, "1", nil)
			if err != nil {
				t.Fatal(err)
			}
			var refusal *RefusedError
			if err := c.Send(context.WithoutCancel(t.Context()), agentapi.Beacon{}); !errors.As(err, &refusal) {
				t.Fatalf("error is %v", err)
			}
			if refusal.HTTPStatus != tc.status || refusal.RetryAfter != tc.want || !strings.Contains(refusal.Error(), "not now") {
				t.Errorf("%+v: %v", refusal, refusal)
			}
		})
	}
}
