package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/services"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/nspawn"
)

const (
	serviceTop  = "/opt/muster"
	releaseFile = "release.json"
)

// The first argument of the agent's unit is run.
func init() { programs["run"] = serviceProgram }

// serviceProgram is the agent of a machine, with the arguments of its unit. It starts the
// component once and resumes it later; SIGUSR1 stops it.
func serviceProgram(args []string) int {
	top := args[1] // after --top
	fail := func(err error) int {
		fmt.Println("error:", err)
		return 1
	}
	b, err := os.ReadFile(filepath.Join(top, releaseFile))
	if err != nil {
		return fail(err)
	}
	var r runtime.Release
	if err := json.Unmarshal(b, &r); err != nil {
		return fail(err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1)
	ctx := context.Background()
	a := New(Options{Disk: disk.OS{}, Groups: OwnGroup()})
	do := a.Resume
	if _, err := os.Stat(filepath.Join(r.Dir, recordFile)); errors.Is(err, fs.ErrNotExist) {
		do = a.Start
	}
	outside := r
	outside.Component.DataDir = "/srv"
	fmt.Println("check:", a.Check(ctx, &outside))
	if err := do(ctx, &r); err != nil {
		return fail(err)
	}
	for s := range signals {
		if s == syscall.SIGTERM {
			break
		}
		if err := a.Stop(ctx, &r); err != nil {
			return fail(err)
		}
	}
	a.Detach()
	return 0
}

// service is the agent in a machine with systemd.
type service struct {
	t *testing.T
	*nspawn.Machine
	release *runtime.Release
}

func TestServiceOfTheAgentKeepsItsComponents(t *testing.T) {
	s := &service{t: t, Machine: nspawn.Start(t, nspawn.Options{Name: "web-01"})}
	s.install()
	s.Must("systemctl", "enable", "--now", "muster-agent")
	first := s.waitRunning()
	s.isInItsOwnGroup(first)
	if log := s.Must("journalctl", "--no-pager", "-u", "muster-agent"); !strings.Contains(log, "data-dir /srv is read-only for the agent") {
		t.Errorf("the agent says of a component that writes to /srv\n%s", log)
	}

	s.Must("systemctl", "restart", "muster-agent")
	s.Must("systemctl", "kill", "--signal=KILL", "--kill-who=main", "muster-agent")
	s.waitActive()
	if again := s.waitRunning(); again != first {
		t.Errorf("process %d runs, and process %d before the agent was restarted and killed", again, first)
	}

	if err := s.PowerCut(); err != nil {
		t.Fatal(err)
	}
	s.On()
	s.waitRunning()

	// Not even a child is left that has its own session and no environment.
	eventually(t, func() error {
		if n := s.processes(); n != 2 {
			return fmt.Errorf("%d processes of the component run, want the program and its child", n)
		}
		return nil
	})
	s.Must("systemctl", "kill", "--signal=USR1", "--kill-who=main", "muster-agent")
	eventually(t, func() error {
		if n := s.processes(); n > 0 {
			return fmt.Errorf("%d processes of the component run after its stop", n)
		}
		return nil
	})
}

// install writes the agent's unit, the test's program as the agent, and a component.
func (s *service) install() {
	s.t.Helper()
	dir := filepath.Join(serviceTop, "components", "web")
	settings := running("family", "hidden")
	s.release = &runtime.Release{Name: "web", Dir: dir, Home: filepath.Join(dir, "data", "web-1.0.0-3f2a9c")}
	s.release.Component.Settings = settings
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		s.t.Fatal(err)
	}
	release, err := json.Marshal(s.release)
	if err != nil {
		s.t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		layout.Path(serviceTop, layout.AgentLink):      self,
		filepath.Join(s.release.Home, "bin", "server"): self,
		filepath.Join(serviceTop, releaseFile):         release,
		"/etc/systemd/system/muster-agent.service":     []byte(services.AgentSystemd(layout.Roots{Top: serviceTop})),
	} {
		s.Must("mkdir", "-p", filepath.Dir(name))
		if err := disk.WriteFile(disk.OS{}, "test", s.Path(name), content, 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := disk.Point(disk.OS{}, "test", "data/web-1.0.0-3f2a9c", s.Path(s.release.Current())); err != nil {
		s.t.Fatal(err)
	}
	s.Must("sync")
	s.Must("systemctl", "daemon-reload")
}

// waitRunning waits for the component and returns its process id in the machine.
func (s *service) waitRunning() int {
	s.t.Helper()
	pid := 0
	eventually(s.t, func() error {
		reader := New(Options{Disk: disk.OS{}})
		rec, err := reader.readRecord(&runtime.Release{Dir: s.Path(s.release.Dir)})
		if err != nil || rec.Process == nil {
			return fmt.Errorf("record is %+v, %w", rec, err)
		}
		pid = rec.Process.PID
		exe, err := s.Run(s.t.Context(), "readlink", "/proc/"+strconv.Itoa(pid)+"/exe")
		if err != nil || !strings.Contains(exe, s.release.Home) {
			return fmt.Errorf("process %d runs %q, %w", pid, exe, err)
		}
		return nil
	})
	return pid
}

func (s *service) waitActive() {
	s.t.Helper()
	eventually(s.t, func() error {
		if state, err := s.Run(s.t.Context(), "systemctl", "is-active", "muster-agent"); err != nil {
			return fmt.Errorf("the agent's unit is %s: %w", state, err)
		}
		return nil
	})
}

func (s *service) isInItsOwnGroup(pid int) {
	s.t.Helper()
	groups := s.Must("cat", fmt.Sprintf("/proc/%d/cgroup", pid))
	if !strings.Contains(groups, "/muster-agent.service/muster-web-") {
		s.t.Errorf("the component is in the control groups\n%s", groups)
	}
	changes := s.Must("nsenter", "--target", s.Property("muster-agent", "MainPID"), "--mount", "sh", "-c",
		`for g in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do mkdir $g/probe $g/system.slice/probe 2>/dev/null && echo $g; done; true`)
	if changes != "" {
		s.t.Errorf("the agent can create control groups beside its own in %s", changes)
	}
}

// processes counts those that run the component's program.
func (s *service) processes() int {
	s.t.Helper()
	n, err := strconv.Atoi(s.Must("sh", "-c", `readlink /proc/[0-9]*/exe 2>/dev/null | grep -c "^$0" || true`, s.release.Home))
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}
