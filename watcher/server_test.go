//go:build unix

package main

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/beacon"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

// beaconServer is a TLS server that accepts the beacons of one host.
type beaconServer struct {
	*httptest.Server
	mu      sync.Mutex
	beacons []agentapi.Beacon
}

func newBeaconServer(t *testing.T) *beaconServer {
	t.Helper()
	s := &beaconServer{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b agentapi.Beacon
		if r.URL.Path != "/api/fleet/agents/agent-1/beacon" || r.Header.Get("Authorization") != "ApiKey watcher-key" ||
			json.NewDecoder(r.Body).Decode(&b) != nil || !b.Phase.Known() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		s.mu.Lock()
		s.beacons = append(s.beacons, b)
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *beaconServer) phases() []agentapi.BeaconPhase {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []agentapi.BeaconPhase
	for _, b := range s.beacons {
		out = append(out, b.Phase)
	}
	return slices.Compact(out)
}

func (s *beaconServer) last() agentapi.Beacon {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.beacons) == 0 {
		return agentapi.Beacon{}
	}
	return s.beacons[len(s.beacons)-1]
}

func (h *site) credential(s *beaconServer) {
	h.t.Helper()
	h.must(beacon.Save(disk.OS{}, h.top, beacon.Identity{
		AgentID: "agent-1", APIKey: "watcher-key", ServerURL: s.URL,
		CAPEM: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})),
	}))
}

func TestProgramSendsReports(t *testing.T) {
	t.Run("of a version that crashes, before and after the rollback", func(t *testing.T) {
		t.Parallel()
		h, s := newSite(t, script{"CrashAtStart": true}), newBeaconServer(t)
		h.credential(s)
		h.switched()
		h.ends(h.watcher(lineWatching))
		h.wantEnd(handoff.RolledBack, handoff.ReasonCrashLoop, "1.0.0")
		want := []agentapi.BeaconPhase{agentapi.BeaconWatching, agentapi.BeaconRollingBack, agentapi.BeaconRolledBack}
		if got := s.phases(); !slices.Equal(got, want) {
			t.Errorf("phases %v, want %v\n%s", got, want, h.log())
		}
		b := s.last()
		if b.ActionID != "a-1" || b.From != "1.0.0" || b.To != "1.1.0" || b.Reason == nil || b.Reason.Code != "crash_loop" ||
			!b.Agent.Alive || b.Agent.Version != "1.0.0" || b.Agent.Crashes < 3 {
			t.Errorf("the last beacon is %+v", b)
		}
	})

	t.Run("a server that cannot be reached delays nothing", func(t *testing.T) {
		t.Parallel()
		h, s := newSite(t, script{"CrashAtStart": true}), newBeaconServer(t)
		h.credential(s)
		s.Server.Close()
		h.switched()
		begin := time.Now()
		cmd := h.watcher(lineWatching)
		h.waitFor("the marker is gone", func() bool { return !h.exists(layout.MarkerFile) })
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("took %v, want seconds", took)
		}
		h.wantEnd(handoff.RolledBack, handoff.ReasonCrashLoop, "1.0.0")
		// The lock is free while the watcher still tries to send the result.
		h.waitFor("the lock is free", func() bool {
			out, err := exec.Command(layout.Path(h.top, layout.WatcherLink), "--top", h.top).Output()
			return err == nil && string(out) == lineNothing+"\n"
		})
		h.must(cmd.Process.Signal(os.Interrupt))
		h.ends(cmd)
	})

	t.Run("a version whose key is refused is rolled back if the watcher's is accepted", func(t *testing.T) {
		t.Parallel()
		s := newBeaconServer(t)
		h := newSite(t, script{"Fleet": probe.Fleet{
			URL: s.URL, State: probe.Degraded, Error: "server answered 401: key not accepted", FailedTries: 1, LastStatus: 401,
		}})
		h.m.Rules.FailedFor, h.m.Rules.Grace = handoff.Duration(time.Second), handoff.Duration(time.Minute)
		h.credential(s)
		h.switched()
		h.ends(h.watcher(lineWatching))
		h.wantEnd(handoff.RolledBack, handoff.ReasonCheckinLost, "1.0.0")
		if b := s.last(); b.Reason == nil || !strings.Contains(b.Reason.Text, "401") {
			t.Errorf("the last beacon is %+v", b)
		}
	})
}

func TestProgramRunsChecks(t *testing.T) {
	t.Run("a check that keeps failing rolls back", func(t *testing.T) {
		t.Parallel()
		h := newSite(t, nil)
		h.m.Rules.FailedFor, h.m.Rules.Grace = handoff.Duration(time.Second), handoff.Duration(time.Minute)
		h.m.Rules.Checks = []manifest.Check{{Name: "own state", Exec: []string{"/bin/sh", "-c", "echo no state here; exit 7"}}}
		h.switched()
		h.ends(h.watcher(lineWatching))
		h.wantEnd(handoff.RolledBack, handoff.ReasonCheckFailed, "1.0.0")
		o, err := handoff.ReadOutcome(disk.OS{}, h.top)
		h.must(err)
		for _, want := range []string{`"own state"`, "exit status 7", "no state here"} {
			if !strings.Contains(o.Reason.Text, want) {
				t.Errorf("reason %q, want it to name %s", o.Reason.Text, want)
			}
		}
	})

	t.Run("those that pass are part of a good version", func(t *testing.T) {
		t.Parallel()
		h, s := newSite(t, nil), newBeaconServer(t)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		h.must(err)
		defer l.Close()
		web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		defer web.Close()
		h.m.Rules.Checks = []manifest.Check{
			{Name: "program", Exec: []string{"script-check", "ok"}},
			{Name: "port", TCP: l.Addr().String()},
			{Name: "page", HTTP: web.URL},
		}
		h.must(os.WriteFile(filepath.Join(h.top, h.m.To.Home, "script-check"), []byte("#!/bin/sh\ntest \"$1\" = ok && test -e muster-agent\n"), 0o700))
		h.credential(s)
		h.switched()
		h.ends(h.watcher(lineWatching))
		h.wantEnd(handoff.Committed, "", "1.1.0")
		want := []agentapi.BeaconPhase{agentapi.BeaconWatching, agentapi.BeaconCommitted}
		if got := s.phases(); !slices.Equal(got, want) {
			t.Errorf("phases %v, want %v\n%s", got, want, h.log())
		}
	})
}

func TestProgramFollowsARollbackRequest(t *testing.T) {
	t.Parallel()
	h := newSite(t, nil)
	h.m.Rules.Grace = handoff.Duration(time.Minute)
	h.switched()
	cmd := h.watcher(lineWatching)
	h.waitFor("the new version answers", func() bool { return h.version() == "1.1.0" })
	h.must(handoff.WriteRequest(disk.OS{}, h.top, handoff.Request{ToHome: h.m.To.Home, Why: "Ann asked, it is slow.", At: time.Now()}))
	h.ends(cmd)
	h.wantEnd(handoff.RolledBack, handoff.ReasonManual, "1.0.0")
	if h.exists(layout.RequestFile) {
		t.Error("the request is still there")
	}
}

// A unit of Type=notify has started when the watcher watches, and when there is nothing to
// watch. Otherwise systemd would start it again and again.
func TestProgramNotifiesSystemd(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, says string
		switched   bool
	}{
		{"watching", lineWatching, true},
		{"nothing to watch", lineNothing, false},
	} {
		h := newSite(t, nil)
		path := filepath.Join(h.top, "notify")
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		h.must(err)
		h.point(h.m.From.Home)
		if tc.switched {
			h.switched()
		}
		cmd := exec.Command(layout.Path(h.top, layout.WatcherLink), "--top", h.top)
		cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+path)
		h.must(cmd.Start())
		h.must(l.SetReadDeadline(time.Now().Add(patience)))
		b := make([]byte, 200)
		n, err := l.Read(b)
		if want := "READY=1\nSTATUS=" + tc.says + "\n"; err != nil || string(b[:n]) != want {
			t.Errorf("%s: notified with %q, %v; want %q", tc.name, b[:n], err, want)
		}
		if tc.switched { // otherwise it exits by itself
			h.must(cmd.Process.Signal(os.Interrupt))
		}
		h.ends(cmd)
		h.must(l.Close())
	}
}

// rss is the resident memory of a process in kB.
func rss(pid int) (kB int, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	_, err = fmt.Sscan(rest, &kB)
	return kB, err
}
