package host

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/require"
)

const home = "data/muster-agent-1.0.0-9be1f0"

// TestMain is also the agent of the tests: as a process that holds the agent's lock, and as a
// service that stops when it is asked to, or hangs.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 {
		os.Exit(m.Run())
	}
	switch os.Args[1] {
	case "agent":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		exit(hold(ctx, os.Args[2]))
	case "stops", "hangs":
		exit(svc.Run("", testService{stops: os.Args[1] == "stops"}))
	default:
		os.Exit(m.Run())
	}
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// hold holds the agent's lock, as package daemon does, until ctx ends.
func hold(ctx context.Context, top string) error {
	lock := layout.Path(top, layout.AgentLockFile)
	if got, err := flock.New(lock).TryLock(); err != nil || !got {
		return fmt.Errorf("lock: %v, %w", got, err)
	}
	if err := os.WriteFile(layout.LockPID(lock), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// testService stops when it is asked to, or never.
type testService struct{ stops bool }

func (s testService) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (specific bool, code uint32) {
	status <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop}
	for r := range requests {
		if s.stops && r.Cmd == svc.Stop {
			break
		}
	}
	return false, 0
}

// install returns a top folder with this program as the agent.
func install(t *testing.T) (top, program string) {
	t.Helper()
	top = t.TempDir()
	program = filepath.Join(top, filepath.FromSlash(home), layout.AgentLink)
	must(t, os.MkdirAll(filepath.Dir(program), 0o700))
	self, err := os.Executable()
	must(t, err)
	from, err := os.Open(self)
	must(t, err)
	defer from.Close()
	to, err := os.Create(program)
	must(t, err)
	_, err = io.Copy(to, from)
	must(t, err)
	must(t, to.Close())
	return top, program
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheAgentIsFoundByItsProcessAndKilled(t *testing.T) {
	top, program := install(t)
	h := &Host{Top: top}
	if p := h.Agent(); p.Alive {
		t.Fatalf("before the start: %+v", p)
	}
	cmd := exec.Command(program, "agent", top)
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	if !waitFor(20*time.Second, func() bool { p := h.Agent(); return p.PID == cmd.Process.Pid && p.Home == home }) {
		t.Errorf("it is %+v, want process %d of %s", h.Agent(), cmd.Process.Pid, home)
	}
	if err := os.Remove(program); err == nil {
		t.Error("a program that runs was removed")
	}
	must(t, h.stop())
	<-done
	if p := h.Agent(); p.Alive {
		t.Errorf("after the stop: %+v", p)
	}
}

func TestAServiceIsRestartedEvenIfItHangs(t *testing.T) {
	m, err := mgr.Connect()
	require.Made(t, err, "run it as an administrator")
	defer m.Disconnect()
	for _, kind := range []string{"stops", "hangs"} {
		t.Run(kind, func(t *testing.T) {
			top, program := install(t)
			name := "muster-test-" + kind
			s, err := m.CreateService(name, program, mgr.Config{StartType: mgr.StartManual}, kind, top)
			must(t, err)
			manager, err := serviceManager(name)
			must(t, err)
			defer func() {
				if now, err := s.Query(); err == nil && now.ProcessId != 0 {
					p, err := os.FindProcess(int(now.ProcessId))
					must(t, err)
					must(t, p.Kill())
					_, _ = p.Wait()
				}
				must(t, s.Delete())
				must(t, s.Close())
			}()
			must(t, manager.Start())
			first := running(t, s, 0)
			must(t, manager.Start()) // as after a recovery action
			must(t, manager.Restart())
			running(t, s, first)
		})
	}
}

// running waits until the service runs as another process than before, and returns its id.
func running(t *testing.T, s *mgr.Service, before uint32) uint32 {
	t.Helper()
	var now svc.Status
	if !waitFor(20*time.Second, func() (ok bool) {
		var err error
		now, err = s.Query()
		return err == nil && now.State == svc.Running && now.ProcessId != before
	}) {
		t.Fatalf("the service is in state %d as process %d, want another one than %d", now.State, now.ProcessId, before)
	}
	return now.ProcessId
}
