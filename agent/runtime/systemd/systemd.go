// Package systemd runs components as units of systemd. It asks systemd over D-Bus, and
// through systemctl on hosts without D-Bus.
//
// A component names a unit of the host, or brings its own as a file of its package. The
// adapter then writes that file below the component's folder, and systemd makes the links to
// it: the agent itself may not write where systemd looks for units. Programs in the unit are
// below the link to the installed version, so an upgrade changes the unit only if its text
// changes.
package systemd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/services"
	"github.com/muster-fleet/muster/packaging/host/disk"
)

const (
	// unitDir is the folder of a component's folder with the unit that systemd's links lead
	// to. It is not that of the package, which remains as it was signed.
	unitDir = "unit"
	// linkDir is where systemd makes the links.
	linkDir = "/etc/systemd/system"

	// explainTimeout bounds what is asked to explain a failure, after the caller's context
	// may have ended.
	explainTimeout = 3 * time.Second
	// explainLines is how many lines of the journal an error has.
	explainLines = 5
	// maxExplained bounds such a line in bytes: the error travels to the server.
	maxExplained = 500
	// maxLogLines and maxLogBytes bound what Logs returns, since one line of a journal may
	// have megabytes.
	maxLogLines = 10_000
	maxLogBytes = 1 << 20
)

// Labels of calls to the disk.
const (
	opUnit = "unit file"
	opLink = "unit link"
)

// Options are what an adapter depends on.
type Options struct {
	Disk disk.Disk
	// Agent is the name of the agent's own service, empty if it runs without one. Neither
	// it nor its watcher's can be a component.
	Agent string
}

// Adapter runs components as units of systemd.
type Adapter struct {
	disk  disk.Disk
	agent string

	connect func(context.Context) (manager, error)
	journal func(ctx context.Context, out *tail, args ...string) error
}

var _ runtime.Printer = (*Adapter)(nil)

// New returns an adapter. It connects to systemd for each call, so it holds nothing that
// could break.
func New(o Options) *Adapter {
	return &Adapter{disk: o.Disk, agent: o.Agent, connect: connect, journal: journalctl}
}

// Check returns an error if systemd cannot run the release on this host.
func (a *Adapter) Check(ctx context.Context, r *runtime.Release) error {
	s, err := decode(r)
	if err != nil {
		return err
	}
	d, err := a.definition(r, s)
	if err != nil {
		return err
	}
	m, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer m.close()
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: systemd lets only root manage its units: run the agent as root", runtime.ErrUnavailable)
	}
	st, err := a.show(ctx, m, r, s)
	if err != nil {
		return err
	}
	if err := r.CheckBoot(a.disk); err != nil {
		return err
	}
	if err := a.checkUnit(r, s, d, st); err != nil {
		return fmt.Errorf("unit %s of component %s %w", s.Unit, r.Name, err)
	}
	if d == nil {
		return nil
	}
	return a.checkMounts(ctx, m, r.Dir)
}

// checkUnit checks the unit that the host has. d is nil if the release does not bring its
// own.
func (a *Adapter) checkUnit(r *runtime.Release, s settings, d *definition, st state) error {
	names := append([]string{s.Unit}, st.names...)
	if d != nil {
		names = append(names, d.links...)
	}
	for _, name := range names {
		if a.agent != "" && (name == a.agent+".service" || name == services.WatcherName(a.agent)+".service") {
			return errors.New("runs the agent itself: a component needs a unit of its own")
		}
	}
	// systemd has read the file when the unit was loaded; a link may be newer.
	link, err := a.linkTarget(s)
	if err != nil {
		return err
	}
	canReload := st.canReload
	switch {
	case st.load == "masked" || link == os.DevNull:
		return fmt.Errorf("is masked on this host: run systemctl unmask %s", s.Unit)
	case d != nil:
		if st.load == foreign {
			return fmt.Errorf("exists on this host in %s: choose another name in the package, or remove unit_file to use that one", st.file)
		}
		canReload = d.canReload
	case st.load == "not-found" || link == unitPath(r, s):
		return errors.New("does not exist on this host: install it, or add it to the package as unit_file")
	case st.load != "loaded":
		return fmt.Errorf("cannot be used: %s", st.why())
	}
	if r.Component.Reload && !canReload {
		return errors.New("has no ExecReload, but the manifest says reload: add it to the unit, or remove reload to have configuration applied by a restart")
	}
	return nil
}

// show returns the state of the release's unit. A unit of that name that the host has from
// elsewhere is not the release's, if that brings its own: it is neither reported nor stopped.
func (a *Adapter) show(ctx context.Context, m manager, r *runtime.Release, s settings) (state, error) {
	st, err := m.show(ctx, s.Unit)
	if err != nil {
		return st, fmt.Errorf("unit %s: %w", s.Unit, err)
	}
	if s.UnitFile == "" || st.load == "masked" {
		return st, nil
	}
	target, err := a.linkTarget(s)
	if err != nil || target == unitPath(r, s) {
		return st, err
	}
	link := filepath.Join(linkDir, s.Unit)
	file := st.file
	if there, err := a.exists(opLink, link); err != nil {
		return st, err
	} else if there {
		file = link
	} else if file == link {
		file = "" // the release's, of which systemd does not know yet that it is gone
	}
	if file != "" && file != unitPath(r, s) && st.load != "not-found" {
		return state{names: st.names, load: foreign, file: file, active: "inactive"}, nil
	}
	return st, nil
}

// checkMounts refuses a folder on a file system of its own. systemd reads units before it
// mounts such file systems, so at the next boot it would not find the unit.
func (a *Adapter) checkMounts(ctx context.Context, m manager, dir string) error {
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		st, err := m.show(ctx, mountUnit(dir))
		if err != nil {
			return fmt.Errorf("whether %s is a file system: %w", dir, err)
		}
		if st.active == "active" {
			return fmt.Errorf("%s is a file system of its own, which systemd mounts after it has read its units, so after a boot it would not know the component's: install the unit on the host, and remove unit_file from the package", dir)
		}
	}
	return nil
}

// A unit needs nothing besides its package.

// Acquire does nothing.
func (a *Adapter) Acquire(context.Context, *runtime.Release, func(float64)) error { return nil }

// Acquired returns true.
func (a *Adapter) Acquired(context.Context, *runtime.Release) (bool, error) { return true, nil }

// Discard does nothing.
func (a *Adapter) Discard(context.Context, *runtime.Release) error { return nil }

// Verify does nothing: the unit is a file of the package, whose content is verified.
func (a *Adapter) Verify(context.Context, *runtime.Release) error { return nil }

// Backup does nothing: the unit of a release can be made from its package.
func (a *Adapter) Backup(context.Context, *runtime.Release, string) error { return nil }

// Keep does nothing.
func (a *Adapter) Keep(context.Context, *runtime.Release, *runtime.Release) error { return nil }

// Status returns the state of the unit. It has no Home: the unit names the link.
func (a *Adapter) Status(ctx context.Context, r *runtime.Release) (runtime.Status, error) {
	s, m, err := a.open(ctx, r)
	if err != nil {
		return runtime.Status{}, err
	}
	defer m.close()
	st, err := a.show(ctx, m, r, s)
	if err != nil {
		return runtime.Status{}, err
	}
	return st.status(), nil
}

// Stop stops the unit and waits for its end. systemd does not start it before Start does.
func (a *Adapter) Stop(ctx context.Context, r *runtime.Release) error {
	s, m, err := a.open(ctx, r)
	if err != nil {
		return err
	}
	defer m.close()
	return a.stop(ctx, m, r, s)
}

func (a *Adapter) stop(ctx context.Context, m manager, r *runtime.Release, s settings) error {
	st, err := a.show(ctx, m, r, s)
	if err != nil {
		return err
	}
	// First, since whoever finds a stopped unit does not stop it again.
	if err := a.hold(r, s); err != nil {
		return err
	}
	if st.stopped() {
		return nil
	}
	result, err := m.job(ctx, "stop", s.Unit)
	if err == nil {
		st, err = m.show(ctx, s.Unit)
	}
	switch {
	case err != nil:
		return fmt.Errorf("stop %s: %w", s.Unit, err)
	case !st.stopped():
		return fmt.Errorf("stop %s: it is %s (%s) after its stop, whose result was %s", s.Unit, st.active, st.sub, result)
	}
	return nil
}

// Start starts the unit and waits until systemd has started it: for Type=notify until it
// says that it is ready.
func (a *Adapter) Start(ctx context.Context, r *runtime.Release) error {
	s, m, err := a.open(ctx, r)
	if err != nil {
		return err
	}
	defer m.close()
	st, err := a.show(ctx, m, r, s)
	switch {
	case err != nil:
		return err
	case st.load == foreign:
		return fmt.Errorf("start %s: %s", s.Unit, st.why())
	}
	if err := r.LetStart(a.disk); err != nil {
		return err
	}
	if err := a.release(r); err != nil {
		return err
	}
	if st.status().Ready {
		return nil
	}
	// Failures of another version must not exhaust the limit of starts. This fails if
	// systemd has forgotten the unit, and so its failures.
	_ = m.resetFailed(ctx, s.Unit)
	result, err := m.job(ctx, "start", s.Unit)
	if err == nil {
		st, err = m.show(ctx, s.Unit)
	}
	if err == nil && result == done && st.status().Running {
		return nil
	}
	if err == nil && result != done {
		err = fmt.Errorf("its job has the result %s", result)
	}
	return fmt.Errorf("start %s: %w", s.Unit, a.explain(ctx, s.Unit, err))
}

// explain adds to an error, which may be nil, what systemd and the journal say of a unit
// that did not start or reload.
func (a *Adapter) explain(ctx context.Context, unit string, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTimeout)
	defer cancel()
	said := []error{err}
	if m, err := a.connect(ctx); err == nil {
		defer m.close()
		if st, err := m.show(ctx, unit); err == nil {
			said = append(said, errors.New(st.why()))
		}
	}
	a.sync(ctx)
	if lines, err := a.lines(ctx, unit, "--unit="+unit, explainLines); err == nil && len(lines) > 0 {
		for i, line := range lines {
			lines[i] = line[:min(len(line), maxExplained)]
		}
		said = append(said, fmt.Errorf("its last lines: %q", lines))
	}
	return joined(said)
}

// joined joins errors in one line.
func joined(errs []error) error {
	var out error
	for _, err := range errs {
		switch {
		case err == nil || err.Error() == "":
		case out == nil:
			out = err
		default:
			out = fmt.Errorf("%w; %w", out, err)
		}
	}
	return out
}

// Install has systemd know the unit of to, and forget that of from if it is another one.
func (a *Adapter) Install(ctx context.Context, to, from *runtime.Release) error {
	m, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer m.close()
	if err := a.swap(ctx, m, from, to); err != nil {
		return fmt.Errorf("install the unit of %s %s: %w", to.Name, to.Version, err)
	}
	return nil
}

// Installed reports whether systemd knows the unit of the release.
func (a *Adapter) Installed(_ context.Context, to *runtime.Release) (bool, error) {
	s, err := decode(to)
	if err != nil {
		return false, err
	}
	d, err := a.definition(to, s)
	if err != nil || d == nil {
		return d == nil, err
	}
	text, err := a.text(to, s)
	if err != nil || !bytes.Equal(text, d.text) {
		return false, err
	}
	return a.isLinked(to, s, d)
}

// Restore has systemd know the unit of from again. Its text comes from its package.
func (a *Adapter) Restore(ctx context.Context, to, from *runtime.Release, _ string) error {
	m, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer m.close()
	if err := a.swap(ctx, m, to, from); err != nil {
		return fmt.Errorf("restore the unit before %s %s: %w", to.Name, to.Version, err)
	}
	return nil
}

// Remove stops the unit, and removes it if it came with the package.
func (a *Adapter) Remove(ctx context.Context, r *runtime.Release) error {
	s, m, err := a.open(ctx, r)
	if err != nil {
		return err
	}
	defer m.close()
	if err := a.swap(ctx, m, r, nil); err != nil {
		return fmt.Errorf("remove the unit of %s: %w", r.Name, err)
	}
	_ = m.resetFailed(ctx, s.Unit) // as in Start
	return r.RemoveStarted(a.disk)
}

// ReloadDaemon has systemd read its units again, unless it knows that of the release.
func (a *Adapter) ReloadDaemon(ctx context.Context, r *runtime.Release) error {
	s, m, err := a.open(ctx, r)
	if err != nil {
		return err
	}
	defer m.close()
	st, err := m.show(ctx, s.Unit)
	if err != nil {
		return fmt.Errorf("unit %s: %w", s.Unit, err)
	}
	if st.load == "loaded" && !st.changed {
		return nil
	}
	return m.reload(ctx)
}

// Reload has systemd execute the unit's ExecReload.
func (a *Adapter) Reload(ctx context.Context, r *runtime.Release) error {
	s, m, err := a.open(ctx, r)
	if err != nil {
		return err
	}
	defer m.close()
	st, err := a.show(ctx, m, r, s)
	switch {
	case err != nil:
		return err
	case !st.status().Ready:
		return fmt.Errorf("reload %s: it does not run: %s", s.Unit, st.why())
	case !st.canReload:
		return fmt.Errorf("reload %s: it has no ExecReload: add it to the unit, or remove reload from the manifest to have configuration applied by a restart", s.Unit)
	}
	result, err := m.job(ctx, "reload", s.Unit)
	if err == nil && result == done {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("its job has the result %s", result)
	}
	return fmt.Errorf("reload %s: %w", s.Unit, a.explain(ctx, s.Unit, err))
}

// Logs returns the last lines that the journal has of the unit, from the unit and from
// systemd.
func (a *Adapter) Logs(ctx context.Context, r *runtime.Release, lines int) ([]string, error) {
	s, err := decode(r)
	if err != nil {
		return nil, err
	}
	return a.lines(ctx, s.Unit, "--unit="+s.Unit, min(max(lines, 0), maxLogLines))
}

// Output returns the last lines that the journal has from the unit's processes.
func (a *Adapter) Output(ctx context.Context, r *runtime.Release, lines int) ([]string, error) {
	s, err := decode(r)
	if err != nil {
		return nil, err
	}
	a.sync(ctx)
	return a.lines(ctx, s.Unit, "_SYSTEMD_UNIT="+s.Unit, min(max(lines, 0), maxLogLines))
}

// sync has the journal take the last lines of what has just ended. Old versions cannot do it.
func (a *Adapter) sync(ctx context.Context) { _ = a.journal(ctx, &tail{}, "--sync") }

// lines returns the last lines that the journal has of a unit, by a match.
func (a *Adapter) lines(ctx context.Context, unit, match string, n int) ([]string, error) {
	out := &tail{}
	if err := a.journal(ctx, out, match, fmt.Sprintf("--lines=%d", n), "--output=cat", "--no-pager", "--quiet"); err != nil {
		return nil, fmt.Errorf("journal of %s: %w", unit, err)
	}
	text := strings.TrimSuffix(string(out.bytes()), "\n")
	if text == "" {
		return nil, nil
	}
	all := strings.Split(text, "\n") // an entry may have several lines
	return all[max(0, len(all)-n):], nil
}

// open decodes the settings and connects.
func (a *Adapter) open(ctx context.Context, r *runtime.Release) (settings, manager, error) {
	s, err := decode(r)
	if err != nil {
		return s, nil, err
	}
	m, err := a.connect(ctx)
	return s, m, err
}

func journalctl(ctx context.Context, out *tail, args ...string) error {
	var stderr bytes.Buffer
	c := exec.CommandContext(ctx, "journalctl", args...)
	c.Stdout, c.Stderr = out, &stderr
	c.WaitDelay = time.Second
	if err := c.Run(); err != nil {
		return fmt.Errorf("journalctl: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// tail keeps the last maxLogBytes written to it.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if len(t.kept) > 2*maxLogBytes { // seldom enough that the copies do not count
		t.kept = slices.Clone(t.bytes())
	}
	return len(p), nil
}

func (t *tail) bytes() []byte { return t.kept[max(0, len(t.kept)-maxLogBytes):] }
