// Package primitivetest tests the eight actions of package primitive on a real runtime. The
// test of an adapter provides the hosts of its contract suite, and [Run] upgrades a component
// there while each action fails, hangs, or is the last that the agent does.
package primitivetest

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"testing"

	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/runtime/runtimetest"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/install"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/packaging/trust"
	"github.com/muster-fleet/muster/server/agentapi"
)

// calls are the calls of the adapter in which each action is interrupted, and what undoing
// calls then.
var calls = []struct {
	name, action string
	undone       []string
}{
	{"Backup", primitive.BackupState, nil},
	{"Acquire", primitive.AcquireArtifact, nil}, // the version was on the host, and stays
	{"Verify", primitive.VerifyArtifact, nil},
	{"Stop", primitive.StopNode, []string{"ReloadDaemon", "Start"}},
	{"Install", primitive.InstallArtifact, []string{"Restore", "ReloadDaemon", "Start"}},
	{"ReloadDaemon", primitive.ReloadDaemon, []string{"ReloadDaemon", "Restore", "ReloadDaemon", "Start"}},
	{"Start", primitive.StartNode, []string{"Stop", "ReloadDaemon", "Restore", "ReloadDaemon", "Start"}},
}

// how are the ways in which a call is interrupted.
type how string

const (
	failsBefore  how = "fails"
	failsAfter   how = "fails after it has acted"
	hangs        how = "hangs"
	killedBefore how = "is killed before"
	killedAfter  how = "is killed after"
)

var (
	errFails  = errors.New("does not work")
	errKilled = errors.New("the agent was killed")
)

// Run runs the table on hosts of an adapter: of all calls, or of those in only, where each
// takes seconds.
func Run(t *testing.T, newHost func(t *testing.T) runtimetest.Host, only ...string) {
	for _, c := range calls {
		if len(only) > 0 && !slices.Contains(only, c.name) {
			continue
		}
		for _, h := range []how{failsBefore, failsAfter, hangs, killedBefore, killedAfter} {
			t.Run(c.action+" "+string(h), func(t *testing.T) {
				w := newWorld(t, newHost(t))
				f := &faulty{Adapter: w.host.Agent(), name: c.name, how: h}
				ctx, cancel := context.WithCancelCause(t.Context())
				f.hung = func() { cancel(errFails) }
				j := &primitive.Journal{Order: w.order(), From: &w.v1}
				run := w.run(f, j)
				step, err := run.Do(ctx)
				if err == nil || step != c.action {
					t.Fatalf("ended at %q with %v, want %s", step, err, c.action)
				}
				if h == killedBefore || h == killedAfter {
					w.goOn()
					return
				}
				f.undoing, f.did = true, nil
				if err := run.Fail(step, err); err != nil {
					t.Fatalf("undo: %v (did %q)", err, f.did)
				}
				if !slices.Equal(f.did, c.undone) {
					t.Errorf("undoing did %q, want %q", f.did, c.undone)
				}
				w.expect(w.first)
			})
		}
	}
}

// world is a host on which version 1.0.0 of a component runs, and 2.0.0 is kept.
type world struct {
	t             *testing.T
	host          runtimetest.Host
	first, second *runtime.Release
	v1, v2        primitive.Installed
}

func newWorld(t *testing.T, host runtimetest.Host) *world {
	t.Helper()
	w := &world{t: t, host: host, first: host.Release("web", "1.0.0"), second: host.Release("web", "2.0.0")}
	w.v1, w.v2 = w.describe(w.first), w.describe(w.second)
	a := host.Agent()
	t.Cleanup(func() {
		// Hosts may share a machine, and its folders.
		err := host.Agent().Remove(context.WithoutCancel(t.Context()), w.first)
		if err := errors.Join(err, os.RemoveAll(filepath.Join(w.first.Dir, "backup")), os.RemoveAll(w.first.Current()), w.file().Remove()); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(
		a.Acquire(t.Context(), w.first, func(float64) {}), a.Install(t.Context(), w.first, nil), point(w.first),
		a.ReloadDaemon(t.Context(), w.first), a.Start(t.Context(), w.first),
	); err != nil {
		t.Fatal(err)
	}
	return w
}

func point(r *runtime.Release) error {
	target, err := filepath.Rel(r.Dir, r.Home)
	if err != nil {
		return err
	}
	return disk.Point(disk.OS{}, "test", target, r.Current())
}

// describe writes what an unpacked package has beside its files.
func (w *world) describe(r *runtime.Release) primitive.Installed {
	w.t.Helper()
	c := r.Component
	p := manifest.Package{Version: r.Version, Hash: r.Hash, OS: goruntime.GOOS, Arch: goruntime.GOARCH, Component: &c}
	p.VersionedHome = p.HomeOf(r.ShortHash())
	home := p.HomeOf(r.Identity.String())
	p.PathMappings = []map[string]string{{p.VersionedHome: home, manifest.FileName: home + "/" + manifest.FileName}}
	m := manifest.Manifest{APIVersion: manifest.APIVersion, Kind: manifest.Kind, Package: p}
	text, err := m.Encode()
	if err == nil {
		err = os.WriteFile(filepath.Join(r.Home, manifest.FileName), text, 0o600)
	}
	if err == nil {
		err = install.RecordDigests(disk.OS{}, r.Home)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return primitive.Installed{Identity: r.Identity, Home: p.Home(), Archive: r.Version}
}

// order goes to the version that is kept, so that nothing is downloaded.
func (w *world) order() primitive.Order {
	return primitive.Order{ID: "upgrade", Component: "web", Runtime: w.second.Component.Runtime, Version: "2.0.0", Rollback: true}
}

func (w *world) run(a runtime.Adapter, j *primitive.Journal) *steps.Run {
	run := &steps.Run{Journal: j, File: w.file(), Log: slog.New(slog.DiscardHandler)}
	c := &primitive.Change{
		Disk: disk.OS{}, Adapter: a, Packages: none{}, Dir: w.first.Dir, GOOS: goruntime.GOOS, GOARCH: goruntime.GOARCH,
		Kept: []primitive.Installed{w.v2}, Allow: func(string, *trust.Expectation) error { return nil }, Journal: j,
		Save: func() error { return run.Save() }, Report: func(agentapi.UpgradeMetadata) {},
		Account: func(string, string) (disk.Owner, error) { return disk.Own, nil },
	}
	run.Steps = c.Steps()
	return run
}

func (w *world) file() steps.File {
	return steps.File{Disk: disk.OS{}, Op: "test", Path: filepath.Join(w.first.Dir, "journal"), Kind: "test", Version: 1}
}

// goOn continues the upgrade by another agent.
func (w *world) goOn() {
	w.t.Helper()
	j, err := steps.Read[primitive.Journal](w.file())
	if err != nil || j == nil {
		w.t.Fatalf("journal: %v, %v", j, err)
	}
	if step, err := w.run(w.host.Agent(), j).Do(w.t.Context()); err != nil {
		w.t.Fatalf("continued to %s: %v", step, err)
	}
	w.expect(w.second)
}

// expect checks that a version is installed and runs.
func (w *world) expect(r *runtime.Release) {
	w.t.Helper()
	a := w.host.Agent()
	installed, err := a.Installed(w.t.Context(), r)
	if err != nil || !installed {
		w.t.Errorf("%s is installed: %v, %v", r.Version, installed, err)
	}
	s, err := a.Status(w.t.Context(), r)
	if err != nil || !s.Running || s.Home != "" && s.Home != r.Home {
		w.t.Errorf("status is %+v, %v; want that %s runs", s, err, r.Version)
	}
	if target, err := os.Readlink(r.Current()); err != nil || filepath.Base(target) != filepath.Base(r.Home) {
		w.t.Errorf("the link leads to %s, %v; want %s", target, err, r.Home)
	}
}

// none has no packages.
type none struct{}

func (none) Expect(context.Context, string, string) (*trust.Expectation, error) {
	return nil, errors.ErrUnsupported
}

func (none) Floor(context.Context, string) string { return "" }

func (none) Fetch(context.Context, string, string, string, download.Want, func(download.Progress)) error {
	return errors.ErrUnsupported
}
