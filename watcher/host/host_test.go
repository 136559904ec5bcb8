//go:build linux

package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/watcher/watch"
)

// agentProgram is the scripted agent of the watcher's tests, built once.
var agentProgram string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "m")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	agentProgram = layout.Path(dir, layout.AgentLink)
	if msg, err := exec.Command("go", "build", "-o", agentProgram, "../testdata/agent").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the agent: %v\n%s", err, msg)
		return 1
	}
	return m.Run()
}

const home = "data/muster-agent-1.0.0-9be1f0"

// install returns the host of an agent that behaves as script says.
func install(t *testing.T, script map[string]any) *Host {
	t.Helper()
	top, err := os.MkdirTemp("", "m")
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(top, home), 0o700))
	must(t, os.Link(agentProgram, filepath.Join(top, home, layout.AgentLink)))
	all := map[string]any{"version": "1.0.0", "hash": "9be1f0"}
	for k, v := range script {
		all[k] = v
	}
	b, err := json.Marshal(all)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(top, home, "script"), b, 0o600))
	must(t, disk.Point(disk.OS{}, "test", home+"/"+layout.AgentLink, layout.Path(top, layout.AgentLink)))
	h := &Host{Top: top}
	t.Cleanup(func() {
		if h.child.running() {
			_ = h.child.process.Kill()
			<-h.child.done
		}
		_ = os.RemoveAll(top)
	})
	return h
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, what string, h *Host, ok func(watch.Process) bool) watch.Process {
	t.Helper()
	var p watch.Process
	if !waitFor(20*time.Second, func() bool { p = h.Agent(); return ok(p) }) {
		t.Fatalf("never %s; last seen %+v", what, p)
	}
	return p
}

func answers(t *testing.T, h *Host) watch.Process {
	t.Helper()
	return until(t, "answers", h, func(p watch.Process) bool {
		_, err := h.Health(t.Context())
		return err == nil && p.Home == home
	})
}

func TestAgentFollowsTheProcess(t *testing.T) {
	h := install(t, nil)
	if p := h.Agent(); p != (watch.Process{}) {
		t.Fatalf("before the start: %+v", p)
	}
	must(t, h.Start())
	p := answers(t, h)
	if sid, err := unix.Getsid(p.PID); err != nil || sid != p.PID {
		t.Errorf("session %d, %v; want one of its own, so that it outlives the watcher", sid, err)
	}
	must(t, syscall.Kill(p.PID, syscall.SIGKILL))
	p = until(t, "gone", h, func(p watch.Process) bool { return !p.Alive })
	if p.Exits != 1 {
		t.Errorf("%d ends counted, want 1", p.Exits)
	}
}

func TestRestartReplacesTheProcess(t *testing.T) {
	h := install(t, nil)
	must(t, h.Start())
	first := answers(t, h)
	must(t, h.Restart())
	until(t, "another process", h, func(p watch.Process) bool { return p.Alive && p.PID != first.PID && p.Home == home })
}

// An agent that was started here is stopped even if it never acquires its lock.
func TestRestartStopsAnAgentWithoutItsLock(t *testing.T) {
	h := install(t, map[string]any{"HangAtStart": true})
	must(t, h.Start())
	first := h.Agent()
	if !first.Alive || first.PID == 0 {
		t.Fatalf("a started agent counts as %+v", first)
	}
	must(t, h.Restart())
	if p := h.Agent(); !p.Alive || p.PID == first.PID {
		t.Errorf("after the restart %+v, want another process than %d", p, first.PID)
	}
	if err := syscall.Kill(first.PID, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the first process is still there (%v)", err)
	}
}

// An agent that answers but does not stop is killed after the timeout.
func TestRestartKillsAnAgentThatDoesNotStop(t *testing.T) {
	h := install(t, map[string]any{"IgnoreTerm": true})
	h.StopTimeout = 300 * time.Millisecond
	must(t, h.Start())
	first := answers(t, h)
	begin := time.Now()
	must(t, h.Restart())
	if took := time.Since(begin); took < h.StopTimeout {
		t.Errorf("took %v, want the %v an agent has to stop", took, h.StopTimeout)
	}
	until(t, "another process", h, func(p watch.Process) bool { return p.Alive && p.PID != first.PID && p.Home == home })
}

// An agent that exits because another one runs has not crashed.
func TestAgentThatFindsAnotherIsNoCrash(t *testing.T) {
	h := install(t, nil)
	must(t, h.Start())
	first := answers(t, h)
	winner := h.child
	defer func() { _ = winner.process.Kill(); <-winner.done }()
	must(t, h.Start())
	<-h.child.done
	if p := h.Agent(); !p.Alive || p.PID != first.PID || p.Exits != 0 {
		t.Errorf("%+v, want the first process and no end counted", p)
	}
}

func TestStartOfAMissingProgramFails(t *testing.T) {
	h := install(t, nil)
	must(t, os.Remove(filepath.Join(h.Top, home, layout.AgentLink)))
	if err := h.Start(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v, want that the program is not there", err)
	}
}

func TestFindAgent(t *testing.T) {
	lockFile := func(t *testing.T, content string) (top, path string) {
		t.Helper()
		top = t.TempDir()
		must(t, os.Mkdir(layout.Path(top, layout.DataDir), 0o700))
		path = layout.Path(top, layout.AgentLockFile)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		return top, path
	}
	t.Run("no lock file", func(t *testing.T) {
		if p := findAgent(t.TempDir()); p.Alive {
			t.Errorf("found %+v", p)
		}
	})
	t.Run("a number that is now another program's", func(t *testing.T) {
		top, _ := lockFile(t, strconv.Itoa(os.Getpid()))
		if p := findAgent(top); p.Alive {
			t.Errorf("found %+v: this test is no agent", p)
		}
	})
	t.Run("another program that holds the lock", func(t *testing.T) {
		top, path := lockFile(t, strconv.Itoa(os.Getpid())+"\n")
		l := flock.New(path)
		if held, err := l.TryLock(); !held {
			t.Fatal(err)
		}
		defer l.Unlock() //nolint:errcheck // test
		if p := findAgent(top); !p.Alive || p.PID != os.Getpid() {
			t.Errorf("found %+v, want the holder of the lock", p)
		}
	})
	t.Run("a lock with no number", func(t *testing.T) {
		top, path := lockFile(t, "")
		l := flock.New(path)
		if held, err := l.TryLock(); !held {
			t.Fatal(err)
		}
		defer l.Unlock() //nolint:errcheck // test
		if p := findAgent(top); !p.Alive || p.PID != 0 {
			t.Errorf("found %+v, want an agent without a number", p)
		}
		if err := (&Host{Top: top}).stop(); err == nil {
			t.Error("an agent without a number was stopped")
		}
	})
	t.Run("a process that was not reaped yet", func(t *testing.T) {
		cmd := exec.Command("true")
		must(t, cmd.Start())
		defer cmd.Wait() //nolint:errcheck // reaped at the end
		pid := cmd.Process.Pid
		if !waitFor(5*time.Second, func() bool {
			_, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
			return errors.Is(err, os.ErrNotExist)
		}) {
			t.Fatal("the process does not end")
		}
		top, _ := lockFile(t, strconv.Itoa(pid))
		if p := findAgent(top); p.Alive {
			t.Errorf("found %+v", p)
		}
	})
}

// manager is a service manager that records its calls and returns the given errors.
type manager struct {
	restart, start error
	orders         []string
}

func (m *manager) Restart() error { m.orders = append(m.orders, "restart"); return m.restart }
func (m *manager) Start() error   { m.orders = append(m.orders, "start"); return m.start }

func TestRestartUsesTheServiceManager(t *testing.T) {
	refused := errors.New("refused")
	tests := []struct {
		name   string
		m      manager
		orders string
		fails  bool
	}{
		{"one order", manager{}, "[restart]", false},
		{"a stopped service is started", manager{restart: refused}, "[restart start]", false},
		{"both refused", manager{restart: refused, start: refused}, "[restart start]", true},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			h := install(t, nil)
			h.Service, h.Manager = "muster-agent", &tc.m
			err := h.Restart()
			if (err != nil) != tc.fails || (tc.fails && !errors.Is(err, refused)) {
				t.Errorf("error is %v", err)
			}
			if got := fmt.Sprint(tc.m.orders); got != tc.orders {
				t.Errorf("orders %s, want %s", got, tc.orders)
			}
			if p := h.Agent(); p.Alive {
				t.Errorf("%+v was started beside the service manager", p)
			}
		})
	}
}

func TestSystemdRestartsAreCounted(t *testing.T) {
	reported, ok := 0, true
	r := restartCount{daemon: func(string) (int, bool) { return reported, ok }}
	steps := []struct {
		name     string
		reported int
		ok       bool
		alive    bool
		want     int
	}{
		{"restarts before the watch do not count", 7, true, true, 0},
		{"not asked while the agent is there", 8, true, true, 0},
		{"asked when it is gone", 8, true, false, 1},
		{"two more", 10, true, false, 3},
		{"no answer", 99, false, false, 3},
		{"started manually: systemd counts from 0 again", 0, true, false, 3},
		{"one more", 1, true, false, 4},
	}
	for _, s := range steps {
		reported, ok = s.reported, s.ok
		if got := r.count("muster-agent", watch.Process{Alive: s.alive}); got != s.want {
			t.Errorf("%s: %d counted, want %d", s.name, got, s.want)
		}
	}
}

func TestAgentLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.log")
	must(t, os.WriteFile(path, make([]byte, maxAgentLog+1), 0o600))
	f, err := openAgentLog(path)
	must(t, err)
	must(t, f.Close())
	fi, err := os.Stat(path)
	if err != nil || fi.Size() != 0 {
		t.Errorf("%+v, %v; want a new log", fi, err)
	}
	if fi, err = os.Stat(path + ".1"); err != nil || fi.Size() != maxAgentLog+1 {
		t.Errorf("%+v, %v; want the old log beside it", fi, err)
	}
}
