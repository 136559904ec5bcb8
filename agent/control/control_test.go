package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/watcher/probe"
)

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func serve(t *testing.T, top string, s *Server) probe.Client {
	t.Helper()
	l, err := Listen(top)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(probe.SocketPath(top)); !os.IsNotExist(err) {
			t.Errorf("the socket's file is left: %v", err)
		}
	})
	return probe.Client{Dial: probe.DialSocket(top)}
}

func TestHealthAndUpgrade(t *testing.T) {
	top := shortDir(t)
	var asked probe.UpgradeRequest
	var staged probe.StageRequest
	var removed probe.RemoveRequest
	var refusal error
	c := serve(t, top, &Server{
		Health:  func() probe.Health { return probe.Health{AgentID: "a1", State: probe.Degraded} },
		Upgrade: func(r probe.UpgradeRequest) error { asked = r; return refusal },
		Stage:   func(r probe.StageRequest) error { staged = r; return refusal },
		Remove:  func(r probe.RemoveRequest) error { removed = r; return refusal },
	})
	if h, err := c.Health(context.Background()); err != nil || h.AgentID != "a1" || h.State != probe.Degraded {
		t.Errorf("health %+v, %v", h, err)
	}
	want := probe.UpgradeRequest{Version: "1.1.0", SourceURI: "https://x/", Force: true}
	if err := c.Upgrade(context.Background(), want); err != nil || asked != want {
		t.Errorf("asked %+v, %v", asked, err)
	}
	for _, refusal = range []error{fmt.Errorf("%w: 1.0.5", request.ErrBusy), errors.New("version is no version")} {
		if err := c.Upgrade(context.Background(), want); err == nil || err.Error() != refusal.Error() {
			t.Errorf("refused with %v, want %v", err, refusal)
		}
	}
	stage, remove := probe.StageRequest{Version: "1.2.0", Force: true}, probe.RemoveRequest{Version: "1.1.0"}
	refusal = nil
	if err := c.Stage(context.Background(), stage); err != nil || staged != stage {
		t.Errorf("stage %+v, %v", staged, err)
	}
	if err := c.Remove(context.Background(), remove); err != nil || removed != remove {
		t.Errorf("remove %+v, %v", removed, err)
	}
	if fi, err := os.Stat(probe.SocketPath(top)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v", fi.Mode(), err)
	}
	if entries, err := os.ReadDir(top); err != nil || len(entries) != 1 {
		t.Errorf("in the folder: %v, %v", entries, err)
	}
}

func TestListenReplacesOnlyTheSocketOfADeadAgent(t *testing.T) {
	top := shortDir(t)
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: probe.SocketPath(top), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if _, err := Listen(top); err == nil || !strings.Contains(err.Error(), "already answers") {
		t.Errorf("beside a living agent: %v", err)
	}
	dead.Close()
	l, err := Listen(top)
	if err != nil {
		t.Fatalf("after a dead agent: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(probe.SocketPath(top), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(top); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("over a plain file: %v", err)
	}
}

func TestListenRemovesTheStagingDirOfAKilledAgent(t *testing.T) {
	top := shortDir(t)
	if err := os.Mkdir(StagingDir(top), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(StagingDir(top), "s"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(top)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(top); err != nil || len(entries) > 0 {
		t.Errorf("in the folder: %v, %v", entries, err)
	}
}

// Nothing of it is in a folder that is shared with other users.
func TestAgentUnderALongPathAnswersInItsOwnFolder(t *testing.T) {
	top := filepath.Join(shortDir(t), strings.Repeat("deep/", 40))
	if err := os.MkdirAll(top, 0o755); err != nil {
		t.Fatal(err)
	}
	temp := shortDir(t)
	t.Setenv("TMPDIR", temp)
	c := serve(t, top, &Server{Health: func() probe.Health { return probe.Health{AgentID: "a1"} }})
	if h, err := c.Health(context.Background()); err != nil || h.AgentID != "a1" {
		t.Errorf("health %+v, %v", h, err)
	}
	if fi, err := os.Lstat(filepath.Join(top, "muster-agent.sock")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", fi, err)
	}
	if entries, err := os.ReadDir(temp); err != nil || len(entries) != 0 {
		t.Errorf("in the temporary folder are %v, %v", entries, err)
	}
}
