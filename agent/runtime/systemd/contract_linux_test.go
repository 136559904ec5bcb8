package systemd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/muster-fleet/muster/agent/primitive/primitivetest"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/runtime/runtimetest"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/testing/kit/nspawn"
)

func TestAdapterKeepsTheContract(t *testing.T) {
	if !inMachine(t) {
		return
	}
	runtimetest.Run(t, newHost)
}

func TestActionsThatAreInterrupted(t *testing.T) {
	if !inMachine(t) {
		return
	}
	primitivetest.Run(t, newHost)
}

// The process of the test ends with the power of the machine.
func TestActionsThatAreFollowedByAPowerCut(t *testing.T) {
	switch phase := os.Getenv(phaseVariable); phase {
	case "":
		for _, action := range primitivetest.Actions() {
			phases(t, action, "go on")
		}
	case "go on":
		primitivetest.GoOn(t, newHost)
	default:
		primitivetest.UntilPowerCut(t, newHost, phase)
	}
}

func newHost(t *testing.T) runtimetest.Host {
	release := func(name, version, more string) *runtime.Release {
		unit := strings.Replace(plainUnit, "A component", name+" "+version, 1) // Install has to replace it
		return component{t, name, unit}.release(version, more+" "+versionVariable+"="+version+" exec "+nspawn.TestProgram)
	}
	missing := component{t: t, name: "missing"}.release("1.0.0", runsForEver)
	return runtimetest.Host{
		Agent:   func() runtime.Adapter { return newAdapter() },
		Dying:   dying,
		Release: func(name, version string) *runtime.Release { return release(name, version, "") },
		Broken:  func(name, version string) *runtime.Release { return release(name, version, brokenVariable+"=1") },
		Refused: map[string]*runtime.Release{"missing.service of component missing does not exist on this host": missing},
	}
}

var errDied = errors.New("the agent was killed")

// life ends at a call.
type life struct {
	mu   sync.Mutex
	ends func(call string) bool
	died bool
}

func (l *life) call(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.died = l.died || l.ends(name); l.died {
		return errDied
	}
	return nil
}

func dying(n int) (runtime.Adapter, func() bool) {
	return dyingAt(func(string) bool { n--; return n == 0 })
}

// dyingAt returns the adapter of an agent that is killed at the first call for which ends
// returns true.
func dyingAt(ends func(call string) bool) (runtime.Adapter, func() bool) {
	l := &life{ends: ends}
	a := newAdapter()
	a.disk = dyingDisk{a.disk, l}
	a.connect = func(ctx context.Context) (manager, error) {
		m, err := connect(ctx)
		return dyingManager{m, l}, err
	}
	return a, func() bool { return l.died }
}

// dyingManager and dyingDisk change nothing for an agent that was killed. What changes
// nothing that others see counts as no call: an agent that is killed there is as one that is
// killed at the next call.
type (
	dyingManager struct {
		manager
		*life
	}
	dyingDisk struct {
		disk.Disk
		*life
	}
)

// first returns the error of the first, or calls the second.
func first(err error, call func() error) error {
	if err != nil {
		return err
	}
	return call()
}

func (m dyingManager) job(ctx context.Context, verb, unit string) (string, error) {
	if err := m.call(verb); err != nil {
		return "", err
	}
	return m.manager.job(ctx, verb, unit)
}

func (m dyingManager) resetFailed(ctx context.Context, unit string) error {
	return first(m.call("resetFailed"), func() error { return m.manager.resetFailed(ctx, unit) })
}

func (m dyingManager) reload(ctx context.Context) error {
	return first(m.call("reload"), func() error { return m.manager.reload(ctx) })
}

func (m dyingManager) link(ctx context.Context, file string) error {
	return first(m.call("link"), func() error { return m.manager.link(ctx, file) })
}

func (m dyingManager) enable(ctx context.Context, file string) error {
	return first(m.call("enable"), func() error { return m.manager.enable(ctx, file) })
}

func (m dyingManager) disable(ctx context.Context, unit string) error {
	return first(m.call("disable"), func() error { return m.manager.disable(ctx, unit) })
}

func (d dyingDisk) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	if flag != os.O_RDONLY {
		if err := d.call("openFile"); err != nil {
			return nil, err
		}
	}
	return d.Disk.OpenFile(op, path, flag, perm)
}

func (d dyingDisk) MkdirAll(op, path string, perm fs.FileMode) error {
	return first(d.call("mkdirAll"), func() error { return d.Disk.MkdirAll(op, path, perm) })
}

func (d dyingDisk) Rename(op, from, to string) error {
	return first(d.call("rename"), func() error { return d.Disk.Rename(op, from, to) })
}

func (d dyingDisk) Remove(op, path string) error {
	return first(d.call("remove"), func() error { return d.Disk.Remove(op, path) })
}
