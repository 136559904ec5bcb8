package attack_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// unfinished requests are more than there are slots of any kind in these tests.
	unfinished = 40
	// servedWithin is what an operator's request may take beside them: less than any request
	// waits for a slot.
	servedWithin = 3 * time.Second
	// strangersEnd is when the server has given up a stranger's body that does not arrive.
	strangersEnd = 10 * time.Second
)

// served checks that operators are served without waiting, with a key and by logging in.
func served(t *testing.T, s *apptest.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), servedWithin)
	defer cancel()
	key := apptest.Headers("Authorization", "ApiKey "+s.AdminKey)
	for _, r := range []apptest.Request{
		{Method: http.MethodGet, URL: s.AdminURL + "/api/status", Header: key},
		{Method: http.MethodPost, URL: s.AdminURL + "/api/v1/upgrade_preview", Header: key, Body: `{"agents":"*"}`},
		{Method: http.MethodPost, URL: s.AdminURL + "/api/v1/session", Body: adminapi.LogInRequest{ApiKey: s.AdminKey}},
	} {
		got, err := s.Do(ctx, r)
		if err != nil || got.Status == http.StatusTooManyRequests || got.Status >= http.StatusInternalServerError {
			t.Errorf("%s %s is answered %d %s, %v", r.Method, r.URL, got.Status, got.Body, err)
		}
	}
}

// A client without a key begins requests, and does not end their bodies. Operators are served
// meanwhile, and the server gives each up after seconds.
func TestUnfinishedRequestsOfStrangersHoldNoSlot(t *testing.T) {
	for _, path := range []string{"/api/v1/session", "/convert", "/api/v1/upgrade_preview", "/api/fleet/agents/bulk_upgrade", "/api/v1/fleets", "/api/v1/packages/x.tar.gz"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			s := apptest.Start(t)
			begun := time.Now()
			answers := make(chan error, unfinished)
			method := http.MethodPost
			if strings.Contains(path, "packages") {
				method = http.MethodPut
			}
			for range unfinished {
				c, err := secured(t, s, attacker, s.AdminURL)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nkbn-xsrf: x\r\nContent-Length: 4000\r\n\r\n{", method, path)
				go func() {
					_, err := io.Copy(io.Discard, c) // until the server closes it
					answers <- err
				}()
			}
			time.Sleep(time.Second) // all of them have arrived
			served(t, s)
			for range unfinished {
				if err := <-answers; err != nil {
					t.Fatalf("the connection of one is not closed: %v", err)
				}
			}
			if took := time.Since(begun); took > strangersEnd {
				t.Errorf("they were given up after %s", took)
			}
		})
	}
}

// The same as streams of one connection over HTTP/2, from the address of the operators.
func TestUnfinishedStreamsOfOneConnectionHoldNoSlot(t *testing.T) {
	s := apptest.Start(t)
	transport := s.Client.Transport.(*http.Transport).Clone()
	transport.ForceAttemptHTTP2 = true
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()
	answers := make(chan error, unfinished)
	for range unfinished {
		body, sender := io.Pipe()
		defer sender.Close()
		go func() { _, _ = sender.Write([]byte("{")) }()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.AdminURL+"/api/v1/session", body)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			resp, err := client.Do(r)
			if err == nil {
				if resp.ProtoMajor != 2 {
					err = fmt.Errorf("the answer came by %s", resp.Proto)
				}
				resp.Body.Close()
			}
			answers <- err
		}()
	}
	begun := time.Now()
	time.Sleep(time.Second)
	served(t, s)
	for range unfinished {
		if err := <-answers; err != nil {
			t.Errorf("a stream ended with %v", err)
		}
	}
	if took := time.Since(begun); took > strangersEnd {
		t.Errorf("they were given up after %s", took)
	}
}

// A client with a key does the same. It holds no slot either, so that a program on a slow link
// keeps nobody waiting.
func TestUnfinishedRequestsOfOperatorsHoldNoSlot(t *testing.T) {
	s := apptest.Start(t)
	for range unfinished {
		c, err := secured(t, s, attacker, s.AdminURL)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /api/v1/upgrade_preview HTTP/1.1\r\nHost: x\r\nAuthorization: ApiKey %s\r\nContent-Length: 4000\r\n\r\n{", s.AdminKey)
	}
	time.Sleep(time.Second)
	if got := s.Admin(http.MethodGet, "/metrics", nil); got.Status != http.StatusOK {
		t.Errorf("the metrics are answered %d", got.Status)
	}
	served(t, s)
}

// An agent begins to send chunks on many connections, and stops. Another agent can send its file.
func TestUnfinishedChunksOfOneAgentLeaveOthersSlots(t *testing.T) {
	s := apptest.Start(t, func(o *app.Options) { o.Config.Limits.MemoryBytes = 256 << 20 })
	chunk := []byte("PK\x03\x04 not a whole archive")
	sum := sha256.Sum256(chunk)
	digest := hex.EncodeToString(sum[:])
	begin := func(a *apptest.Agent) string {
		body := fmt.Sprintf(`{"action_id":%q,"agent_id":%q,"src":"agent","file":{"name":"d.zip","mime_type":"application/zip","size":%d,"ext":"zip","hash":{"sha256":""}}}`, fleet.NewID(), a.ID, len(chunk))
		return apptest.Decode[agentapi.UploadBegun](t, s.Agents(http.MethodPost, agentapi.PathUploads, a.Key, body)).UploadID
	}
	slow, other := s.Enroll("web-01", "9.3.0"), s.Enroll("web-02", "9.3.0")
	upload := begin(slow)
	for range 20 {
		c, err := secured(t, s, attacker, s.AgentURL)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "PUT %s/%s/0 HTTP/1.1\r\nHost: x\r\nAuthorization: ApiKey %s\r\n%s: %s\r\nContent-Length: %d\r\n\r\nP", agentapi.PathUploads, upload, slow.Key, agentapi.HeaderChunk, digest, len(chunk))
	}
	time.Sleep(time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), servedWithin)
	defer cancel()
	got, err := s.Do(ctx, apptest.Request{
		Method: http.MethodPut, URL: s.AgentURL + agentapi.PathUploads + "/" + begin(other) + "/0", Body: string(chunk),
		Header: apptest.Headers("Authorization", "ApiKey "+other.Key, agentapi.HeaderChunk, digest),
	})
	if err != nil || got.Status != http.StatusOK {
		t.Errorf("another agent's chunk is answered %d %s, %v", got.Status, got.Body, err)
	}
}

// One agent's key opens as many connections as the server has. Another agent connects all the same.
func TestConnectionsOfOneKeyLeaveOthersSome(t *testing.T) {
	const agents = 60
	s := apptest.Start(t, func(o *app.Options) { o.Config.Limits.MaxAgents = agents })
	greedy, other := s.Enroll("web-01", "9.3.0"), s.Enroll("web-02", "9.3.0")
	s.Client.CloseIdleConnections()
	kept := 0
	for range agents {
		c, err := secured(t, s, attacker, s.AgentURL)
		if err != nil {
			continue // it has too many
		}
		defer c.Close()
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: ApiKey %s\r\nContent-Length: 13\r\n\r\n{\"events\":[]}", greedy.Path("acks"), greedy.Key)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			kept++
		}
	}
	if kept == 0 || kept > agents*2/3 {
		t.Errorf("one key has %d of %d connections", kept, agents)
	}
	if got := s.Agents(http.MethodPost, other.Path("acks"), other.Key, `{"events":[]}`); got.Status != http.StatusOK {
		t.Errorf("another agent is answered %d %s", got.Status, got.Body)
	}
}
