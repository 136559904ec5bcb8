//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

// patience bounds a test, which takes a second or two.
const patience = 30 * time.Second

// programs holds the real watcher and the scripted agent, built once.
var programs = struct{ watcher, agent string }{}

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "m")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs.watcher, programs.agent = filepath.Join(dir, "muster-watcher"), filepath.Join(dir, "muster-agent")
	for out, pkg := range map[string]string{programs.watcher: ".", programs.agent: "./testdata/agent"} {
		if msg, err := releaseBuild(out, pkg).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", pkg, err, msg)
			return 1
		}
	}
	return m.Run()
}

// site is an installation of real programs in a temporary folder.
type site struct {
	t   *testing.T
	top string
	m   handoff.Marker
}

// script is what the scripted agent reads; see testdata/agent.
type script map[string]any

func newSite(t *testing.T, newVersion script) *site {
	t.Helper()
	top, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	h := &site{t: t, top: top, m: handoff.Marker{
		ActionID:  "a-1",
		From:      handoff.Install{Identity: manifest.Identity{Version: "1.0.0", Hash: "9be1f0"}, Home: "data/muster-agent-1.0.0-9be1f0"},
		To:        handoff.Install{Identity: manifest.Identity{Version: "1.1.0", Hash: "3f2a9c"}, Home: "data/muster-agent-1.1.0-3f2a9c"},
		CreatedAt: time.Now(),
		Rules: handoff.Rules{
			Interval: handoff.Duration(50 * time.Millisecond), Grace: handoff.Duration(time.Second),
			FailedFor: handoff.Duration(5 * time.Second), MaxCrashes: 2,
		},
	}}
	t.Cleanup(func() {
		h.killAgent()
		_ = os.RemoveAll(top)
	})
	h.install(h.m.From, script{"Reexecutes": true})
	h.install(h.m.To, newVersion)
	return h
}

func (h *site) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *site) install(in handoff.Install, s script) {
	home := filepath.Join(h.top, in.Home)
	h.must(os.MkdirAll(home, 0o700))
	h.must(os.Link(programs.agent, layout.Path(home, layout.AgentLink)))
	h.must(os.Link(programs.watcher, layout.Path(home, layout.WatcherLink)))
	full := script{"version": in.Version, "hash": in.Hash}
	for k, v := range s {
		full[k] = v
	}
	b, err := json.Marshal(full)
	h.must(err)
	h.must(os.WriteFile(filepath.Join(home, "script"), b, 0o600))
}

func (h *site) point(home string) {
	for _, link := range []string{layout.AgentLink, layout.WatcherLink} {
		h.must(disk.Point(disk.OS{}, "test", home+"/"+link, filepath.Join(h.top, link)))
	}
}

// switched returns a host on which the old agent has just switched to the new version.
func (h *site) switched() {
	h.t.Helper()
	h.point(h.m.From.Home)
	agent := exec.Command(layout.Path(h.top, layout.AgentLink), "run", "--top", h.top)
	h.must(agent.Start())
	go agent.Wait() //nolint:errcheck // reaped, so that the test sees its exit
	h.waitFor("the old version answers", func() bool { return h.version() == "1.0.0" })
	h.must(handoff.WriteMarker(disk.OS{}, h.top, h.m))
	h.point(h.m.To.Home)
}

func (h *site) version() string {
	health, err := probe.Client{Dial: probe.DialSocket(h.top)}.Health(context.Background())
	if err != nil {
		return err.Error()
	}
	return health.Version
}

func (h *site) waitFor(what string, ok func() bool) {
	h.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Fatalf("not within %v: %s; answers: %s\n%s", patience, what, h.version(), h.log())
		}
	}
}

func (h *site) killAgent() {
	b, err := os.ReadFile(layout.Path(h.top, layout.AgentLockFile))
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(string(b))
	if err != nil {
		return
	}
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && strings.HasPrefix(exe, h.top) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// watcher starts the real program as the agent does: it waits for the first line and
// closes the pipe.
func (h *site) watcher(firstLine string) *exec.Cmd {
	h.t.Helper()
	cmd := exec.Command(layout.Path(h.top, layout.WatcherLink), "--top", h.top)
	out, err := cmd.StdoutPipe()
	h.must(err)
	h.must(cmd.Start())
	h.t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	h.must(err)
	h.must(out.Close())
	if line != firstLine+"\n" {
		h.t.Fatalf("the watcher printed %q, want %q", line, firstLine)
	}
	return cmd
}

func (h *site) ends(cmd *exec.Cmd) {
	h.t.Helper()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			h.t.Fatalf("the watcher: %v\n%s", err, h.log())
		}
	case <-time.After(patience):
		h.t.Fatalf("the watcher does not end\n%s", h.log())
	}
}

func (h *site) log() string {
	b, err := os.ReadFile(layout.Path(h.top, layout.WatcherLogFile))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (h *site) exists(name string) bool {
	_, err := os.Stat(filepath.Join(h.top, name))
	return err == nil
}

func (h *site) wantEnd(result handoff.Result, code handoff.ReasonCode, version string) {
	h.t.Helper()
	o, err := handoff.ReadOutcome(disk.OS{}, h.top)
	if err != nil || o == nil || o.Result != result || o.ActionID != "a-1" {
		h.t.Fatalf("outcome %+v, %v; want %s\n%s", o, err, result, h.log())
	}
	if (o.Reason == nil) != (code == "") || (o.Reason != nil && o.Reason.Code != code) {
		h.t.Errorf("reason %+v, want %q", o.Reason, code)
	}
	if h.exists(layout.MarkerFile) {
		h.t.Error("the marker is still there")
	}
	if got := h.version(); got != version {
		h.t.Errorf("%s answers, want %s\n%s", got, version, h.log())
	}
	if result == handoff.RolledBack && h.exists(h.m.To.Home) {
		h.t.Error("the bad version is still on the disk")
	}
	if !h.exists(h.m.From.Home) {
		h.t.Error("the previous version is gone")
	}
}

func TestProgram(t *testing.T) {
	t.Run("a good version is committed", func(t *testing.T) {
		t.Parallel()
		h := newSite(t, nil)
		h.switched()
		h.ends(h.watcher(lineWatching))
		h.wantEnd(handoff.Committed, "", "1.1.0")
	})

	t.Run("a version that crashes at start is rolled back", func(t *testing.T) {
		t.Parallel()
		h := newSite(t, script{"CrashAtStart": true})
		h.switched()
		begin := time.Now()
		h.ends(h.watcher(lineWatching))
		h.wantEnd(handoff.RolledBack, handoff.ReasonCrashLoop, "1.0.0")
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("took %v, want seconds", took)
		}
		if b, err := os.ReadFile(filepath.Join(h.top, "data/agent.log")); err != nil || !strings.Contains(string(b), "crashes at start") {
			t.Errorf("agent.log %q, %v; want the output of the crashing version", b, err)
		}
	})

	t.Run("a version that turns unhealthy is rolled back", func(t *testing.T) {
		t.Parallel()
		h := newSite(t, script{"UnhealthyAfter": "400ms"})
		h.m.Rules.FailedFor = handoff.Duration(time.Second)
		h.m.Rules.Grace = handoff.Duration(time.Minute)
		h.switched()
		h.ends(h.watcher(lineWatching))
		h.wantEnd(handoff.RolledBack, handoff.ReasonAgentFailed, "1.0.0")
	})

	t.Run("a version that does not answer is rolled back", func(t *testing.T) {
		t.Parallel()
		h := newSite(t, script{"Mute": true})
		h.m.Rules.FailedFor = handoff.Duration(time.Second)
		h.switched()
		h.ends(h.watcher(lineWatching))
		h.wantEnd(handoff.RolledBack, handoff.ReasonControlLost, "1.0.0")
	})

	t.Run("there is one watcher", func(t *testing.T) {
		t.Parallel()
		h := newSite(t, nil)
		h.m.Rules.Grace = handoff.Duration(2 * time.Second)
		h.switched()
		first := h.watcher(lineWatching)
		h.ends(h.watcher(lineHeld))
		h.ends(first)
		h.wantEnd(handoff.Committed, "", "1.1.0")
	})

	t.Run("a watcher that is stopped or killed is replaced by the next", func(t *testing.T) {
		t.Parallel()
		h := newSite(t, script{"UnhealthyAfter": "1500ms"})
		h.m.Rules.FailedFor = handoff.Duration(1500 * time.Millisecond)
		h.m.Rules.Grace = handoff.Duration(time.Minute)
		h.switched()
		first := h.watcher(lineWatching)
		h.must(first.Process.Signal(syscall.SIGTERM))
		h.ends(first)
		if !h.exists(layout.MarkerFile) {
			t.Fatal("a stopped watcher removed the marker")
		}
		second := h.watcher(lineWatching)
		h.must(second.Process.Kill())
		_ = second.Wait()
		h.ends(h.watcher(lineWatching))
		h.wantEnd(handoff.RolledBack, handoff.ReasonAgentFailed, "1.0.0")
	})

	t.Run("a watcher killed in the middle of a rollback", func(t *testing.T) {
		t.Parallel()
		h := newSite(t, script{"CrashAtStart": true})
		h.switched()
		first := h.watcher(lineWatching)
		h.waitFor("the pointer is back", func() bool {
			target, _ := os.Readlink(layout.Path(h.top, layout.AgentLink))
			return strings.HasPrefix(target, h.m.From.Home)
		})
		h.must(first.Process.Kill())
		_ = first.Wait()
		if h.exists(layout.MarkerFile) { // otherwise it was done before it could be killed
			h.ends(h.watcher(lineWatching))
		}
		h.wantEnd(handoff.RolledBack, handoff.ReasonCrashLoop, "1.0.0")
	})

	t.Run("nothing to watch", func(t *testing.T) {
		t.Parallel()
		h := newSite(t, nil)
		h.point(h.m.From.Home)
		h.ends(h.watcher(lineNothing))
		if h.exists(layout.WatcherLogFile) {
			t.Error("a watcher that found nothing left a log")
		}
	})

	t.Run("a damaged marker is nothing to watch", func(t *testing.T) {
		t.Parallel()
		h := newSite(t, nil)
		h.point(h.m.To.Home)
		h.must(os.WriteFile(layout.Path(h.top, layout.MarkerFile), make([]byte, 400), 0o600))
		h.ends(h.watcher(lineNothing))
		if target, _ := os.Readlink(layout.Path(h.top, layout.AgentLink)); !strings.HasPrefix(target, h.m.To.Home) {
			t.Errorf("the pointer was moved to %s", target)
		}
		if !strings.Contains(h.log(), "is ignored") {
			t.Errorf("the log does not say so: %s", h.log())
		}
	})
}

func TestCommandLine(t *testing.T) {
	tests := []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--marker-version"}, exitOK, strconv.Itoa(handoff.MarkerVersion) + "\n"},
		{[]string{"--version"}, exitOK, "dev\n"},
		{[]string{"--help"}, exitOK, "-top folder"},
		{[]string{"--bottom"}, exitUsage, "flag provided but not defined"},
		{[]string{"now"}, exitUsage, `unexpected argument "now"`},
		{[]string{"--top", "/nonexistent"}, exitOK, lineNothing + "\n"},
	}
	for _, tc := range tests {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			cmd := exec.Command(programs.watcher, tc.args...)
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != tc.code || !strings.Contains(string(out), tc.want) {
				t.Errorf("exit %d, output %q; want %d and %q", code, out, tc.code, tc.want)
			}
		})
	}
}

// The log stays bounded however much is written to it, and keeps lines whole.
func TestLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "watcher.log")
	l, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	line := []byte(strings.Repeat("x", 999) + "\n")
	for range 3 * maxLog / len(line) {
		if _, err := l.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + ".1"} {
		fi, err := os.Stat(name)
		if err != nil || fi.Size() == 0 || fi.Size() > maxLog || fi.Size()%int64(len(line)) != 0 {
			t.Errorf("%s: %+v, %v; want whole lines of at most %d bytes", name, fi, err, maxLog)
		}
	}
	entries, _ := os.ReadDir(filepath.Dir(path))
	if len(entries) != 2 {
		t.Errorf("%d files, want the log and one before it", len(entries))
	}
}

// releaseBuild builds as releases are built.
func releaseBuild(out, pkg string) *exec.Cmd {
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "nomsgpack", "-ldflags", "-s -w", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return cmd
}
