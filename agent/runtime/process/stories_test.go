//go:build linux || darwin

package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// The time of a record is that of an earlier process, whose clock may have been ahead.
func TestClockThatWasSetBackMakesNoNegativeRun(t *testing.T) {
	now := time.Now()
	for ago, want := range map[time.Duration]time.Duration{time.Minute: time.Minute, -2 * time.Hour: 0} {
		if got := ranFor(now.Add(-ago), now); got != want {
			t.Errorf("a process that started %s ago ran for %s, want %s", ago, got, want)
		}
	}
}

func TestWaitsBeforeRestartsGrowUntilAProgramRunsSteadily(t *testing.T) {
	again := newRestarts(func() float64 { return 1 })
	var got []string
	for range 8 {
		got = append(got, again.after(time.Minute).String())
	}
	if want := "1s 2s 4s 8s 16s 32s 1m0s 1m0s"; strings.Join(got, " ") != want {
		t.Errorf("the waits are %s, want %s", got, want)
	}
	if got := again.after(steadyAfter); got != restartBase {
		t.Errorf("the wait after a steady run is %s", got)
	}
}

func TestProgramThatEndsAtOnceIsTriedUntilItIsStopped(t *testing.T) {
	m := newMachine(t)
	a, r := m.agent(), m.release("web", "1.0.0", running("broken", "1.0.0"))
	m.start(a, r)
	eventually(t, func() error {
		s := m.status(a, r)
		if s.Restarts < 2 || s.Message != "its process ended by itself: exit status 3" || s.Ended != "exit status 3" {
			return fmt.Errorf("status is %+v, want two restarts and the exit status", s)
		}
		return nil
	})
	if err := a.Stop(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if s := m.status(a, r); s.Running || s.Message != "" {
		t.Errorf("status is %+v after a stop", s)
	}
	if rec, _, _ := a.component(r).snapshot(); rec != nil {
		t.Errorf("%+v is still supervised", rec)
	}
}

// Such a component does not run, so an upgrade may find nothing to stop.
func TestInstallKeepsAComponentFromBeingStartedAgain(t *testing.T) {
	m := newMachine(t)
	a, r := m.agent(), m.release("web", "1.0.0", running("broken", "1.0.0"))
	m.start(a, r)
	eventually(t, func() error {
		if s := m.status(a, r); s.Running || s.Message == "" {
			return fmt.Errorf("status is %+v, want that it waits for its restart", s)
		}
		return nil
	})
	if err := a.Install(t.Context(), m.good("web", "2.0.0"), r); err != nil {
		t.Fatal(err)
	}
	if rec, _, _ := a.component(r).snapshot(); rec != nil {
		t.Errorf("%+v is still supervised", rec)
	}
	if s := m.status(m.agent(), r); s.Running || s.Message != "" {
		t.Errorf("the next agent has the status %+v, want that it is stopped", s)
	}
}

func TestStopEndsTheChildrenToo(t *testing.T) {
	for _, test := range []struct {
		name     string
		groups   func(*testing.T) string
		children []string
		system   []string
	}{
		{"in the session", noGroups, []string{"parent", "no-environment"}, []string{"linux", "darwin"}},
		{"in sessions of their own", noGroups, []string{"session", "session"}, []string{"linux"}},
		{"in a control group", requireGroups(OwnGroup), []string{"parent", "session", "hidden", "no-environment"}, []string{"linux"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.System(t, test.system...)
			testStopEndsChildren(t, test.groups(t), test.children...)
		})
	}
}

func testStopEndsChildren(t *testing.T, groups string, children ...string) {
	t.Helper()
	m := newMachine(t)
	m.options.Groups = groups
	settings := running(append([]string{"family"}, children...)...)
	settings["stop_timeout"] = "500ms"
	a, r := m.agent(), m.release("web", "1.0.0", settings)
	m.start(a, r)
	want := len(children)
	if slices.Contains(children, "parent") {
		want++
	}
	first := m.family(a, r, 0, want)

	// A crash takes them with it, and the next run has others.
	if err := syscall.Kill(m.status(a, r).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := m.family(a, r, want, want)
	for _, id := range first {
		if runs(id) {
			t.Errorf("process %d outlived the crash", id.PID)
		}
	}
	if err := a.Stop(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for _, id := range second {
		if runs(id) {
			t.Errorf("process %d outlived the stop", id.PID)
		}
	}
	if folder := groupFolder(groups, r); folder != "" {
		if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the control group stays: %v", err)
		}
	}
}

func noGroups(*testing.T) string { return "" }

// requireGroups requires that this process may create control groups below its own.
func requireGroups(own func() string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		require.Root(t)
		if own() == "" {
			require.Made(t, errors.New("this process has no control group"), "mount control groups")
		}
		probe := filepath.Join(own(), "muster-probe-"+strconv.Itoa(os.Getpid()))
		err := os.Mkdir(probe, 0o755)
		if err == nil {
			err = os.Remove(probe)
		}
		require.Made(t, err, "mount control groups that can be written")
		return own()
	}
}

// family waits for n processes that have printed their ids, after the first skip.
func (m *machine) family(a *Adapter, r *runtime.Release, skip, n int) []identity {
	m.t.Helper()
	var out []identity
	eventually(m.t, func() error {
		lines, err := a.Logs(m.t.Context(), r, 1000)
		if err != nil {
			return err
		}
		out = nil
		found := 0
		for _, line := range lines {
			text, is := strings.CutPrefix(line, "member ")
			if !is {
				continue
			}
			if found++; found <= skip {
				continue
			}
			pid, err := strconv.Atoi(text)
			if err != nil {
				return err
			}
			info, err := find(pid)
			if err != nil {
				return fmt.Errorf("member %d: %w", pid, err)
			}
			out = append(out, info.identity)
		}
		if len(out) != n {
			return fmt.Errorf("%d processes have printed their ids, want %d: %q", len(out), n, lines)
		}
		return nil
	})
	return out
}

func TestProgramThatIgnoresTheSignalIsKilled(t *testing.T) {
	m := newMachine(t)
	settings := running("stubborn")
	settings["stop_timeout"] = "300ms"
	a, r := m.agent(), m.release("web", "1.0.0", settings)
	m.start(a, r)
	m.prints(a, r, "stubborn runs")
	began := time.Now()
	if err := a.Stop(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("it was killed after %s, before its time was over", took)
	}
	if s := m.status(a, r); s.Running {
		t.Errorf("status is %+v", s)
	}
}

// A stop that was interrupted may have sent its signal: the process ends at any moment.
func TestStartAfterAnInterruptedStopStartsAnew(t *testing.T) {
	m := newMachine(t)
	settings := running("stubborn")
	settings["stop_timeout"] = "1s"
	a, r := m.agent(), m.release("web", "1.0.0", settings)
	m.start(a, r)
	m.prints(a, r, "stubborn runs") // from here on the signal does not end it
	before := m.status(a, r)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.Stop(short, r); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error is %v", err)
	}
	a = m.agent()
	if err := a.Start(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if after := m.status(a, r); !after.Running || after.PID == before.PID || after.Restarts != 0 {
		t.Errorf("status is %+v, and was %+v before the stop", after, before)
	}
}

func (m *machine) prints(a *Adapter, r *runtime.Release, text string) {
	m.t.Helper()
	eventually(m.t, func() error {
		lines, err := a.Logs(m.t.Context(), r, 1000)
		if err == nil && !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, text) }) {
			err = fmt.Errorf("output is %q, want %q in it", lines, text)
		}
		return err
	})
}

// agentProcess is an agent in a process of its own.
type agentProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func startAgentProcess(t *testing.T, do string, r *runtime.Release, as *syscall.Credential) *agentProcess {
	t.Helper()
	release, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if as != nil {
		// Others may not run the test's program where it is.
		self = filepath.Join(r.Home, "bin", "server")
	}
	p := &agentProcess{t: t, cmd: exec.Command(self, "agent", do, string(release))}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// says returns the next line that the agent prints, without the prefix.
func (p *agentProcess) says(prefix string) string {
	p.t.Helper()
	if !p.lines.Scan() {
		p.t.Fatalf("the agent has ended: %v", p.lines.Err())
	}
	text, found := strings.CutPrefix(p.lines.Text(), prefix)
	if !found {
		p.t.Fatalf("the agent prints %q, want %q", p.lines.Text(), prefix)
	}
	return text
}

func (p *agentProcess) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()
	}
}

func TestAgentAdoptsWhatAKilledAgentLeft(t *testing.T) {
	m := newMachine(t)
	r := m.good("web", "1.0.0")
	m.removeAfter(r)
	m.point(r)
	killed := startAgentProcess(t, "start", r, nil)
	pid := killed.says("running ")
	killed.kill()

	a := m.agent()
	s := m.status(a, r)
	if !s.Running || strconv.Itoa(s.PID) != pid || s.Restarts != 0 {
		t.Fatalf("status is %+v, want process %s", s, pid)
	}
	// It is not the agent's child, and is supervised all the same.
	if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if again := m.status(a, r); !again.Running || again.PID == s.PID || again.Restarts != 1 {
			return fmt.Errorf("status is %+v, want another process and a restart", again)
		}
		return nil
	})
}

func TestReexecutedAgentKeepsItsChild(t *testing.T) {
	m := newMachine(t)
	r := m.good("web", "1.0.0")
	m.removeAfter(r)
	m.point(r)
	agent := startAgentProcess(t, "start", r, nil)
	pid := agent.says("running ")
	if err := agent.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if again := agent.says("running "); again != pid {
		t.Fatalf("process %s runs after the re-execution, and %s before", again, pid)
	}
	reader := New(m.options) // as a command on the host, which supervises nothing
	before := m.status(reader, r)
	first, err := find(before.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if s := m.status(reader, r); !s.Running || s.PID == before.PID || s.Restarts != 1 {
			return fmt.Errorf("status is %+v, want another process and a restart", s)
		}
		return nil
	})
	if info, err := find(before.PID); err == nil && info.identity == first.identity {
		t.Errorf("%+v was not collected", info)
	}
	agent.kill()
}

// removeAfter ends a component with the test.
func (m *machine) removeAfter(r *runtime.Release) {
	m.t.Cleanup(func() {
		if err := m.agent().Remove(context.Background(), r); err != nil {
			m.t.Error(err)
		}
	})
}

// A bystander has the process id that a record names, and leads a session as a component
// does.
func TestProcessThatGotTheIDOfAComponentIsLeftAlone(t *testing.T) {
	m := newMachine(t)
	r := m.good("web", "1.0.0")
	m.point(r)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bystander := exec.Command(self, "good", "bystander")
	bystander.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = bystander.Process.Kill() // it may have ended
		_ = bystander.Wait()
	})
	is, err := find(bystander.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	ended := exec.Command(self, "broken", "ended")
	if err := ended.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if info, err := find(ended.Process.Pid); err != nil || !info.ended {
			return fmt.Errorf("%+v has not ended, %w", info, err)
		}
		return nil
	})
	collected := identity{PID: ended.Process.Pid, Boot: is.Boot, Start: "1"}
	other := is.identity
	other.Start = "1"
	earlier := is.identity
	earlier.Boot = "another"
	for _, id := range []identity{other, earlier, collected} {
		a := New(m.options)
		rec := record{Wanted: true, Run: "an earlier run", Home: r.Home, Process: &id, Since: time.Now()}
		if err := a.writeRecord(r, rec); err != nil {
			t.Fatal(err)
		}
		if s := m.status(a, r); s.Running || s.PID != 0 {
			t.Errorf("status is %+v", s)
		}
		if err := a.Reload(t.Context(), r); err == nil {
			t.Error("Reload signals a process that is not the component's")
		}
		if err := send(id, "TERM"); err != nil {
			t.Error(err)
		}
		if err := a.Stop(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
	if !runs(is.identity) {
		t.Error("the bystander was ended")
	}
	if err := ended.Wait(); err == nil || err.Error() != "exit status 3" {
		t.Errorf("the agent's other child has the status %v", err)
	}
}

func TestAfterABootRunsWhatIsToRun(t *testing.T) {
	m := newMachine(t)
	wanted, stopped := m.good("web", "1.0.0"), m.good("database", "1.0.0")
	for _, r := range []*runtime.Release{wanted, stopped} {
		m.point(r)
		m.removeAfter(r)
		rec := record{Wanted: r == wanted, Run: "before", Home: r.Home, Process: &identity{PID: 1, Boot: "before", Start: "1"}, Since: time.Now()}
		if err := New(m.options).writeRecord(r, rec); err != nil {
			t.Fatal(err)
		}
	}
	a := m.agent()
	eventually(t, func() error {
		if s := m.status(a, wanted); !s.Running || s.Restarts != 0 || s.Since.Before(time.Now().Add(-time.Minute)) {
			return fmt.Errorf("status is %+v, want that it runs, and no restart counted", s)
		}
		return nil
	})
	if s := m.status(a, stopped); s.Running {
		t.Errorf("what was stopped has the status %+v", s)
	}
}

func TestComponentWithoutItsProgramStartsOnceItIsThere(t *testing.T) {
	m := newMachine(t)
	a, r := m.agent(), m.good("web", "1.0.0")
	m.start(a, r)
	program := filepath.Join(r.Home, "bin", "server")
	if err := os.Rename(program, program+".away"); err != nil {
		t.Fatal(err)
	}
	before := m.status(a, r)
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if s := m.status(a, r); s.Running || !strings.Contains(s.Message, "no such file") {
			return fmt.Errorf("status is %+v, want the reason", s)
		}
		return nil
	})
	if err := os.Rename(program+".away", program); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if s := m.status(a, r); !s.Running || s.Message != "" {
			return fmt.Errorf("status is %+v, want that it runs", s)
		}
		return nil
	})
}

func TestStartOfAMissingProgramIsAnError(t *testing.T) {
	m := newMachine(t)
	a, r := m.agent(), m.release("web", "1.0.0", map[string]any{"program": "bin/none"})
	if err := a.Start(t.Context(), r); err == nil || !strings.Contains(err.Error(), "no version is installed") {
		t.Errorf("error is %v", err)
	}
	m.point(r)
	if err := a.Start(t.Context(), r); err == nil || !strings.Contains(err.Error(), "start component web") {
		t.Errorf("error is %v", err)
	}
	// The next agent does not try either.
	if s := m.status(m.agent(), r); s.Running || s.Message != "" {
		t.Errorf("status is %+v", s)
	}
}

func TestOutputStaysBounded(t *testing.T) {
	m := newMachine(t)
	m.options.MaxOutput = 64 << 10
	a, r := m.agent(), m.release("web", "1.0.0", running("talker"))
	m.start(a, r)
	output := filepath.Join(r.Dir, outputFile)
	eventually(t, func() error {
		_, err := os.Stat(output + ".1")
		return err
	})
	if err := a.Stop(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	lines, err := a.Logs(t.Context(), r, 1)
	if err != nil || len(lines) != 1 {
		t.Fatalf("the last line is %q, %v", lines, err)
	}
	var last int64
	if _, err := fmt.Sscanf(lines[0], "line %d", &last); err != nil {
		t.Fatalf("%q: %v", lines[0], err)
	}
	printed := (last + 1) * int64(len(lines[0])+1)
	var kept int64
	for _, name := range []string{output, output + ".1"} {
		fi, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		kept += fi.Size()
	}
	if kept >= printed {
		t.Errorf("%d bytes are kept of %d", kept, printed)
	}
	if fi, err := os.Stat(output + ".1"); err != nil || fi.Size() != m.options.MaxOutput {
		t.Errorf("the older file: %+v, %v", fi, err)
	}
	if lines, err := a.Logs(t.Context(), r, 7); err != nil || len(lines) != 7 {
		t.Errorf("the last seven lines are %q, %v", lines, err)
	}
}

func TestComponentGetsOnlyItsOwnEnvironment(t *testing.T) {
	m := newMachine(t)
	t.Setenv("MUSTER_TEST_SECRET", "of the agent")
	settings := running("environ")
	settings["env"] = map[string]string{"PORT": "8080"}
	settings["working_dir"] = "bin"
	a, r := m.agent(), m.release("web", "1.0.0", settings)
	m.start(a, r)
	m.prints(a, r, "version environ")
	lines, err := a.Logs(t.Context(), r, 100)
	if err != nil {
		t.Fatal(err)
	}
	home, err := filepath.EvalSymlinks(r.Home)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range lines {
		name, _, _ := strings.Cut(line, "=")
		got = append(got, name)
	}
	want := []string{"working directory " + filepath.Join(home, "bin") + " <nil>", "variable " + runVariable, "variable PATH", "variable PORT", "variable TMPDIR"}
	if !slices.Equal(got[:min(len(got), len(want))], want) {
		t.Errorf("the program has %q", lines)
	}
}

func TestProgramRunsAsItsUser(t *testing.T) {
	require.System(t, "linux")
	require.Root(t)
	m := newMachine(t)
	settings := running("good", "1.0.0")
	settings["user"] = "nobody"
	a, r := m.agent(), m.release("web", "1.0.0", settings)
	if err := a.Check(t.Context(), r); err == nil || !strings.Contains(err.Error(), "user nobody may not run") {
		t.Errorf("a folder that only root may pass: error is %v", err)
	}
	m.open()
	m.start(a, r)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.status(a, r).PID))
	if err != nil || !strings.Contains(string(status), "Uid:\t65534\t65534\t65534\t65534") {
		t.Errorf("the process's status is %s, %v", status, err)
	}
}

// open lets others pass the machine's folders.
func (m *machine) open() {
	m.t.Helper()
	for dir := m.top; dir != os.TempDir() && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			m.t.Fatal(err)
		}
	}
}

func TestAgentThatIsNotRootRefusesAnotherUser(t *testing.T) {
	require.System(t, "linux")
	require.Root(t)
	m := newMachine(t)
	m.open()
	settings := running("good", "1.0.0")
	settings["user"] = "root"
	agent := startAgentProcess(t, "check", m.release("web", "1.0.0", settings), &syscall.Credential{Uid: 65534, Gid: 65534})
	if says := agent.says("error: "); !strings.Contains(says, "this host cannot run it: the agent runs as the user with id 65534") || !strings.Contains(says, "run the agent as root, or remove user and group") {
		t.Errorf("the agent says %q", says)
	}
}
