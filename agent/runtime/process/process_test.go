//go:build linux || darwin

package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/primitive/primitivetest"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/runtime/runtimetest"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// machine is a host with components in a folder.
type machine struct {
	t        *testing.T
	top      string
	options  Options
	mu       sync.Mutex
	agents   []*Adapter
	releases map[string]*runtime.Release // by home
}

func newMachine(t *testing.T) *machine {
	require.System(t, "linux", "darwin")
	m := &machine{t: t, top: t.TempDir(), options: Options{Disk: disk.OS{}, Groups: OwnGroup()}, releases: map[string]*runtime.Release{}}
	t.Cleanup(m.killAgents)
	return m
}

// killAgents ends all agents. What they have started runs on.
func (m *machine) killAgents() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.agents {
		a.Detach()
	}
	m.agents = nil
}

// agent starts an agent, as the daemon does: it resumes what is installed.
func (m *machine) agent() *Adapter { return m.agentOn(m.options.Disk) }

func (m *machine) agentOn(d disk.Disk) *Adapter {
	m.t.Helper()
	m.killAgents()
	o := m.options
	o.Disk = d
	a := New(o)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.agents = append(m.agents, a)
	for _, r := range m.releases {
		home, err := a.currentHome(r)
		if err == nil && home == r.Home {
			err = a.Resume(m.t.Context(), r)
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
	return a
}

// release unpacks a version of a component whose program is that of the test.
func (m *machine) release(component, version string, settings map[string]any) *runtime.Release {
	m.t.Helper()
	dir := filepath.Join(m.top, "components", component)
	r := &runtime.Release{
		Name: component, Dir: dir, Home: filepath.Join(dir, "data", component+"-"+version+"-3f2a9c"),
		Identity:  manifest.Identity{Version: version, Hash: "3f2a9c"},
		Component: manifest.Component{Name: component, Runtime: "process", Settings: settings},
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.releases[r.Home]; known != nil {
		return known
	}
	if err := os.MkdirAll(filepath.Join(r.Home, "bin"), 0o755); err != nil {
		m.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := copyProgram(self, filepath.Join(r.Home, "bin", "server")); err != nil {
		m.t.Fatal(err)
	}
	m.releases[r.Home] = r
	return r
}

func copyProgram(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

// running are the settings of a program of the test; see programs.
func running(args ...string) map[string]any {
	// Under the race detector a program otherwise ends a second later.
	return map[string]any{"program": "bin/server", "args": args, "env": map[string]string{"GORACE": "atexit_sleep_ms=0"}}
}

func (m *machine) good(component, version string) *runtime.Release {
	return m.release(component, version, running("good", version))
}

// start installs and starts a release, which ends with the test.
func (m *machine) start(a *Adapter, r *runtime.Release) {
	m.t.Helper()
	m.point(r)
	m.removeAfter(r)
	if err := a.Check(m.t.Context(), r); err != nil {
		m.t.Fatal(err)
	}
	if err := a.Start(m.t.Context(), r); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) point(r *runtime.Release) {
	m.t.Helper()
	target, err := filepath.Rel(r.Dir, r.Home)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := disk.Point(disk.OS{}, "test", target, r.Current()); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) status(a *Adapter, r *runtime.Release) runtime.Status {
	m.t.Helper()
	s, err := a.Status(m.t.Context(), r)
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

func TestContract(t *testing.T) { runtimetest.Run(t, newHost) }

func TestActionsThatAreInterrupted(t *testing.T) { primitivetest.Run(t, newHost) }

// cutPower ends all that runs, and has what is recorded of it be of another boot.
func (m *machine) cutPower() {
	m.t.Helper()
	m.killAgents()
	a := New(m.options)
	for _, r := range m.releases {
		rec, err := a.readRecord(r)
		if err != nil {
			m.t.Fatal(err)
		}
		if rec.Process == nil {
			continue
		}
		if err := send(*rec.Process, "KILL"); err != nil {
			m.t.Fatal(err)
		}
		eventually(m.t, func() error {
			if runs(*rec.Process) {
				return errors.New("the program still runs")
			}
			return nil
		})
		rec.Process.Boot = "before"
		if err := a.writeRecord(r, rec); err != nil {
			m.t.Fatal(err)
		}
	}
}

// newHost is without control groups, which not every agent may create. The other tests have
// them.
func newHost(t *testing.T) runtimetest.Host {
	m := newMachine(t)
	m.options.Groups = ""
	return runtimetest.Host{
		Agent: func() runtime.Adapter { return m.agent() },
		Dying: func(n int) (runtime.Adapter, func() bool) {
			d := &dyingDisk{Disk: disk.OS{}}
			a := m.agentOn(d)
			d.left.Store(int64(n))
			return dyingAgent{a}, func() bool { return d.left.Load() <= 0 }
		},
		PowerCut: m.cutPower,
		Release:  m.good,
		Broken: func(component, version string) *runtime.Release {
			return m.release(component, version, running("broken", version))
		},
		Refused: refused(m),
	}
}

// refused are releases that no host can run, by what Check says.
func refused(m *machine) map[string]*runtime.Release {
	out := map[string]*runtime.Release{}
	add := func(says string, change func(settings map[string]any)) {
		settings := running("good", "1.0.0")
		change(settings)
		out[says] = m.release(fmt.Sprintf("refused-%d", len(out)), "1.0.0", settings)
	}
	add("settings.nice: is no setting, want one of program, args, env", func(s map[string]any) { s["nice"] = 5 })
	add(`settings.program: is "", want a file of the package`, func(s map[string]any) { delete(s, "program") })
	add(`settings.program: is "/bin/sh", want a file of the package`, func(s map[string]any) { s["program"] = "/bin/sh" })
	add(`settings.program: is "../../other/bin/server", want a file of the package`, func(s map[string]any) { s["program"] = "../../other/bin/server" })
	add("program bin/none of the package 1.0.0-3f2a9c", func(s map[string]any) { s["program"] = "bin/none" })
	add(`settings.stop_signal: is "KILL", want one of`, func(s map[string]any) { s["stop_signal"] = "KILL" })
	add(`settings.reload_signal: is "USR3", want one of`, func(s map[string]any) { s["reload_signal"] = "USR3" })
	add(`settings.stop_timeout: is "2m", want a time such as 10s, at most 50s`, func(s map[string]any) { s["stop_timeout"] = "2m" })
	add(`settings.env: cannot have "A=B"`, func(s map[string]any) { s["env"] = map[string]string{"A=B": "c"} })
	add(`settings.working_dir: is "../..", want`, func(s map[string]any) { s["working_dir"] = "../.." })
	add("working_dir /nonexistent/data", func(s map[string]any) { s["working_dir"] = "/nonexistent/data" })
	add("user nobody-of-this-name", func(s map[string]any) { s["user"] = "nobody-of-this-name" })
	add("group none-of-this-name", func(s map[string]any) { s["group"] = "none-of-this-name" })
	return out
}

// dyingDisk ends the goroutine that makes the last call it has left, and those after.
type dyingDisk struct {
	disk.Disk
	left atomic.Int64 // 0 from the start: the disk does not die
	died atomic.Bool
}

func (d *dyingDisk) change() {
	if d.died.Load() || d.left.Load() > 0 && d.left.Add(-1) == 0 {
		d.died.Store(true)
		goruntime.Goexit()
	}
}

func (d *dyingDisk) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	if flag&os.O_CREATE != 0 {
		d.change()
	}
	return d.Disk.OpenFile(op, path, flag, perm)
}

func (d *dyingDisk) Rename(op, from, to string) error {
	d.change()
	return d.Disk.Rename(op, from, to)
}

func (d *dyingDisk) Remove(op, path string) error {
	d.change()
	return d.Disk.Remove(op, path)
}

// dyingAgent is an adapter on a dyingDisk: a call that is killed returns an error.
type dyingAgent struct{ *Adapter }

var errKilled = errors.New("the agent was killed")

func killed(call func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errKilled
		defer func() { done <- err }()
		err = call()
	}()
	return <-done
}

func (a dyingAgent) Install(ctx context.Context, to, from *runtime.Release) error {
	return killed(func() error { return a.Adapter.Install(ctx, to, from) })
}

func (a dyingAgent) Restore(ctx context.Context, to, from *runtime.Release, dir string) error {
	return killed(func() error { return a.Adapter.Restore(ctx, to, from, dir) })
}

func (a dyingAgent) Keep(ctx context.Context, to, from *runtime.Release) error {
	return killed(func() error { return a.Adapter.Keep(ctx, to, from) })
}

func (a dyingAgent) Stop(ctx context.Context, r *runtime.Release) error {
	return killed(func() error { return a.Adapter.Stop(ctx, r) })
}

func (a dyingAgent) Start(ctx context.Context, r *runtime.Release) error {
	return killed(func() error { return a.Adapter.Start(ctx, r) })
}

func (a dyingAgent) Remove(ctx context.Context, r *runtime.Release) error {
	return killed(func() error { return a.Adapter.Remove(ctx, r) })
}

// eventually waits for a condition that says what it is waiting for.
func eventually(t *testing.T, holds func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err = holds(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
