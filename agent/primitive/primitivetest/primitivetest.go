// Package primitivetest tests the actions of package primitive on a real runtime. The
// test of an adapter provides the hosts of its contract suite, and [Run] upgrades a component
// there while each action fails, hangs, or is the last that the agent or the host does. Where
// the test itself runs in the host whose power is cut, [UntilPowerCut] and [GoOn] are what it
// does before and after.
package primitivetest

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"testing"

	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/runtime/runtimetest"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/check"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// calls are the calls of the adapter in which each action is interrupted, and what undoing
// calls then.
var calls = []interrupted{
	{"Backup", primitive.BackupState, nil},
	{"Acquire", primitive.AcquireArtifact, nil}, // the version was on the host, and stays
	{"Verify", primitive.VerifyArtifact, nil},
	{"Stop", primitive.StopNode, []string{"ReloadDaemon", "Start"}},
	{"Install", primitive.InstallArtifact, []string{"Restore", "ReloadDaemon", "Start"}},
	{"ReloadDaemon", primitive.ReloadDaemon, []string{"ReloadDaemon", "Restore", "ReloadDaemon", "Start"}},
	{"Start", primitive.StartNode, []string{"Stop", "ReloadDaemon", "Restore", "ReloadDaemon", "Start"}},
}

type interrupted struct {
	name, action string
	undone       []string
}

// how are the ways in which a call is interrupted.
type how string

const (
	failsBefore  how = "fails"
	failsAfter   how = "fails after it has acted"
	hangs        how = "hangs"
	killedBefore how = "is killed before"
	killedAfter  how = "is killed after"
	powerCut     how = "is followed by a power cut"
)

var (
	errFails  = errors.New("does not work")
	errKilled = errors.New("the agent was killed")
)

// Run runs an upgrade with hooks, and then the table on one host of an adapter, from one version to
// the other and back.
func Run(t *testing.T, newHost func(t *testing.T) runtimetest.Host) {
	t.Run("hooks and state", func(t *testing.T) { testHooks(t, newHost) })
	w := newWorld(t, newHost(t))
	t.Cleanup(func() { w.remove(t) })
	w.install()
	for _, c := range calls {
		for _, h := range []how{failsBefore, failsAfter, hangs, killedBefore, killedAfter, powerCut} {
			if h == powerCut && w.host.PowerCut == nil {
				continue
			}
			ok := t.Run(c.action+" "+string(h), func(t *testing.T) {
				w.t = t
				w.interrupt(c, h)
			})
			if !ok {
				return // nobody knows what the next row would begin with
			}
		}
	}
}

// Actions returns the names of the actions for UntilPowerCut.
func Actions() []string {
	var names []string
	for _, c := range calls {
		names = append(names, c.action)
	}
	return names
}

// UntilPowerCut installs a version of a component, and upgrades it until an action is the last
// thing that the agent does. Then the caller cuts the power of the host, and calls GoOn on it.
func UntilPowerCut(t *testing.T, newHost func(t *testing.T) runtimetest.Host, action string) {
	t.Helper()
	i := slices.Index(Actions(), action)
	if i < 0 {
		t.Fatalf("no action is called %s", action)
	}
	w := newWorld(t, newHost(t))
	w.install()
	// The packages, which the test has written, are durable before an upgrade begins.
	if err := exec.CommandContext(t.Context(), "sync").Run(); err != nil {
		t.Fatalf("sync: %v", err)
	}
	w.until(calls[i], powerCut)
}

// GoOn continues the upgrade of UntilPowerCut, and removes the component.
func GoOn(t *testing.T, newHost func(t *testing.T) runtimetest.Host) {
	t.Helper()
	w := newWorld(t, newHost(t))
	t.Cleanup(func() { w.remove(t) })
	w.goOn()
}

// until upgrades the component until one call is interrupted.
func (w *world) until(c interrupted, h how) (*steps.Run, *faulty) {
	w.t.Helper()
	f := &faulty{Adapter: w.host.Agent(), name: c.name, how: h}
	ctx, cancel := context.WithCancelCause(w.t.Context())
	f.hung = func() { cancel(errFails) }
	run := w.run(f, &primitive.Journal{Desired: w.order(), From: &w.from.installed})
	step, err := run.Do(ctx)
	if step != c.action || !errors.Is(err, errFails) && !errors.Is(err, errKilled) {
		w.t.Fatalf("ended at %q with %v, want %s", step, err, c.action)
	}
	return run, f
}

// interrupt upgrades the component with one call interrupted.
func (w *world) interrupt(c interrupted, h how) {
	t := w.t
	run, f := w.until(c, h)
	switch h {
	case powerCut:
		w.host.PowerCut()
		w.goOn()
		return
	case killedBefore, killedAfter:
		w.goOn()
		return
	}
	f.undoing, f.did = true, nil
	if err := run.Fail(c.action, errFails); err != nil {
		t.Fatalf("undo: %v (did %q)", err, f.did)
	}
	if !slices.Equal(f.did, c.undone) {
		t.Errorf("undoing did %q, want %q", f.did, c.undone)
	}
	w.expect(w.from)
}

// world is a host on which one version of a component runs, and the other is kept.
type world struct {
	t        *testing.T
	host     runtimetest.Host
	from, to version
}

type version struct {
	*runtime.Release
	installed primitive.Installed
}

func newWorld(t *testing.T, host runtimetest.Host) *world {
	t.Helper()
	w := &world{t: t, host: host}
	w.from, w.to = w.version("1.0.0", nil), w.version("2.0.0", nil)
	return w
}

// install installs and starts the first version.
func (w *world) install() {
	w.t.Helper()
	a, r, ctx := w.host.Agent(), w.from.Release, w.t.Context()
	if err := errors.Join(
		a.Acquire(ctx, r, func(float64) {}), a.Install(ctx, r, nil), point(r), a.ReloadDaemon(ctx, r), a.Start(ctx, r),
	); err != nil {
		w.t.Fatal(err)
	}
}

// remove removes the component and its files: hosts may share a machine, and its folders.
func (w *world) remove(t *testing.T) {
	t.Helper()
	r := w.from.Release
	err := w.host.Agent().Remove(context.WithoutCancel(t.Context()), r)
	if err := errors.Join(err, os.RemoveAll(filepath.Join(r.Dir, "backup")), os.RemoveAll(r.Current()), w.file().Remove()); err != nil {
		t.Error(err)
	}
}

func point(r *runtime.Release) error {
	target, err := filepath.Rel(r.Dir, r.Home)
	if err != nil {
		return err
	}
	return disk.Point(disk.OS{}, "test", target, r.Current())
}

// version returns a version that is on the host, with what an unpacked package has beside its
// files. change may change its description.
func (w *world) version(number string, change func(*runtime.Release, *manifest.Component)) version {
	w.t.Helper()
	r := w.host.Release("web", number)
	c := r.Component
	if change != nil {
		change(r, &c)
	}
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
	return version{r, primitive.Installed{Identity: r.Identity, Home: p.Home(), Archive: r.Version}}
}

// order goes to the version that is kept, so that nothing is downloaded.
func (w *world) order() primitive.Desired {
	return primitive.Desired{ID: w.t.Name(), Component: "web", Runtime: w.to.Component.Runtime, Version: w.to.Version, Rollback: true}
}

func (w *world) run(a runtime.Adapter, j *primitive.Journal) *steps.Run {
	run := &steps.Run{Journal: j, File: w.file(), Log: slog.New(slog.DiscardHandler)}
	c := &primitive.Change{
		Disk: disk.OS{}, Adapter: a, Packages: none{}, Top: w.from.Dir, Dir: w.from.Dir, GOOS: goruntime.GOOS, GOARCH: goruntime.GOARCH,
		OnHost: []handoff.Version{{Install: handoff.Install{Identity: w.to.installed.Identity, Home: w.to.installed.Home}, Archive: w.to.installed.Archive}}, Allow: func(string, *trust.Expectation) error { return nil }, Journal: j,
		Save: func() error { return run.Save() }, Report: func(agentapi.UpgradeMetadata) {},
		Execute: check.Execute, Account: func(string, string) (disk.Owner, error) { return disk.Own, nil }, Log: slog.New(slog.DiscardHandler),
	}
	run.Steps = c.Steps()
	return run
}

func (w *world) file() steps.File {
	return steps.File{Disk: disk.OS{}, Op: "test", Path: filepath.Join(w.from.Dir, "journal"), Kind: "test", Version: 1}
}

// goOn continues the upgrade by another agent. The next one goes back.
func (w *world) goOn() {
	w.t.Helper()
	j, err := steps.Read[primitive.Journal](w.file())
	if err != nil || j == nil {
		w.t.Fatalf("journal: %v, %v", j, err)
	}
	if step, err := w.run(w.host.Agent(), j).Do(w.t.Context()); err != nil {
		w.t.Fatalf("continued to %s: %v", step, err)
	}
	w.expect(w.to)
	if err := errors.Join(w.host.Agent().Keep(w.t.Context(), w.to.Release, w.from.Release), w.file().Remove()); err != nil {
		w.t.Fatal(err)
	}
	w.from, w.to = w.to, w.from
}

// expect checks that a version is installed and runs.
func (w *world) expect(v version) {
	w.t.Helper()
	a, r := w.host.Agent(), v.Release
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
