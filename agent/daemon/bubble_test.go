package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// pipes is a listener whose connections are net.Pipe.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Many agents run in one process in virtual time: they share no state, and nothing waits
// for the real clock.
func TestManyAgentsInOneProcess(t *testing.T) {
	const agents, hours = 50, 2
	top := t.TempDir()
	begun := time.Now()
	seen := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		var mu sync.Mutex
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			seen[r.Header.Get("Authorization")]++
			mu.Unlock()
			// net/http watches for a hang-up only once the body has been read.
			_, _ = io.Copy(io.Discard, r.Body)
			// A server holds a poll five minutes.
			if backoff.Sleep(r.Context(), 5*time.Minute) == nil {
				_ = json.NewEncoder(w).Encode(agentapi.CheckinResponse{Action: "checkin"})
			}
		})}
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		all.Go(func() { _ = srv.Serve(l) })
		for i := range agents {
			id := fmt.Sprintf("agent-%d", i)
			folder := filepath.Join(top, id)
			if err := os.MkdirAll(filepath.Join(folder, "data"), 0o755); err != nil {
				t.Fatal(err)
			}
			client := &http.Client{Transport: &http.Transport{DialContext: l.dial}}
			o := Options{
				Top: folder, Running: handoff.Install{Identity: manifest.Identity{Version: "1.0.0", Hash: "aaaaaa"}, Home: "data/muster-agent-1.0.0-aaaaaa"},
				GOOS: "linux", GOARCH: "amd64", Config: config.Default(), Disk: disk.OS{}, Muster: true, HTTP: client, Other: client,
				Identity: &identity.Identity{AgentID: id, APIKey: id, ServerURL: "http://fleet.test"},
				Lock:     func(string, string) (func() error, error) { return func() error { return nil }, nil },
			}
			all.Go(func() {
				defer client.CloseIdleConnections()
				if err := (Agent{Options: o}).Run(ctx); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			})
		}
		time.Sleep(hours * time.Hour)
		cancel()
		synctest.Wait()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
		synctest.Wait() // the handlers have seen their clients leave
	})
	if len(seen) != agents {
		t.Errorf("%d agents were seen, want %d", len(seen), agents)
	}
	for id, n := range seen {
		if want := hours * 12; n < want || n > want+1 {
			t.Errorf("%s polled %d times in %d hours, want %d", id, n, hours, want)
		}
	}
	t.Logf("%d agents for %d hours in %s", agents, hours, time.Since(begun).Round(time.Millisecond))
}
