package upgrade

import (
	"context"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/watcher/handoff"
)

const opKept = "kept version"

// OnHost is a version on the host besides the one that runs.
type OnHost struct {
	handoff.Version
	// ValidUntil is until when the host can be rolled back to it; zero for a staged version.
	ValidUntil time.Time
	// Problem is why the version cannot be started; empty if it can.
	Problem string
}

// Versions returns the versions on the host besides the one that runs, the newest first. It
// checks that their files are intact and their programs start. It does not read the files of
// those in intact, which the caller has seen to be intact: a version may have gigabytes. While
// this version is watched, the one before it is the first, and is not checked.
func (e *Executor) Versions(ctx context.Context, intact map[handoff.Install]bool) []OnHost {
	var found []OnHost
	list := e.versions()
	if m := e.marker(); m != nil && m.To == e.Running {
		v := handoff.Version{Install: m.From, ReplacedAt: m.CreatedAt}
		v.Bytes, _ = disk.Size(e.Disk, opKept, e.path(v.Home)) // for people; unknown sizes are not shown
		found = append(found, OnHost{Version: v, ValidUntil: e.validUntil(v)})
		list = slices.DeleteFunc(list, func(v handoff.Version) bool { return v.Home == m.From.Home })
	}
	for _, v := range slices.Backward(list) {
		o := OnHost{Version: v, ValidUntil: e.validUntil(v)}
		if _, err := e.ready(ctx, v.Install, intact[v.Install]); err != nil {
			o.Problem = err.Error()
		}
		found = append(found, o)
	}
	return found
}

// recorded returns the record of the versions besides the one that runs.
func (e *Executor) recorded() handoff.Versions {
	v, err := handoff.ReadVersions(e.Disk, e.Top)
	if err != nil {
		e.log().Warn("an unreadable record of the versions on the host is ignored", "error", err)
	}
	v.Remove(e.Running.Home)
	return v
}

// versions returns the versions on the host besides the one that runs, the newest last.
func (e *Executor) versions() []handoff.Version { return e.recorded().OnHost }

// edit changes the record of the versions, unless change returns an error. There must be no marker: with
// one the watcher writes the record.
func (e *Executor) edit(change func(*handoff.Versions) error) error {
	e.recording.Lock()
	defer e.recording.Unlock()
	v := e.recorded()
	before := v
	if err := change(&v); err != nil || reflect.DeepEqual(v, before) {
		return err
	}
	return handoff.WriteVersions(e.Disk, e.Top, v)
}

// RememberFailed records a version that was rolled back on this host. Recording the same failure again
// has no effect.
func (e *Executor) RememberFailed(f handoff.FailedVersion) error {
	return e.edit(func(v *handoff.Versions) error {
		v.Fail(f)
		return nil
	})
}

func (e *Executor) validUntil(v handoff.Version) time.Time {
	if v.Staged() {
		return time.Time{}
	}
	now := time.Now()
	return now.Add(e.left(v, now)).Round(time.Minute) // the same at each check
}

// left returns how much of its window is left for a version that ran.
func (e *Executor) left(v handoff.Version, now time.Time) time.Duration {
	left := v.Left(time.Duration(e.Keep.Window), now)
	if elapsed := e.elapsed(v, now); elapsed != nil {
		left -= *elapsed
	}
	return left
}

// elapsed returns the time since this process has counted the version, which a clock that is set does not
// change; nil if it has not counted it.
func (e *Executor) elapsed(v handoff.Version, now time.Time) *time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, ok := e.counted[v.Home]
	if !ok {
		return nil
	}
	d := now.Sub(at)
	return &d
}

// ready returns the package in the version's home, or an error if it cannot be started.
func (e *Executor) ready(ctx context.Context, v handoff.Install, intact bool) (manifest.Package, error) {
	p, err := install.ReadHome(e.Disk, e.Top, v.Home)
	if err == nil && !intact {
		err = install.CheckDigests(ctx, e.Disk, e.Top, v.Home)
	}
	if err != nil {
		return p, err
	}
	if p.Identity() != v.Identity {
		return p, fmt.Errorf("%s holds %s, not %s", v.Home, p.Identity(), v.Identity)
	}
	if err := e.executable(v.Home, agentName); err != nil {
		return p, err
	}
	if e.Startable == nil {
		return p, nil
	}
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	return p, e.Startable(ctx, e.path(path.Join(v.Home, agentName)))
}

// executable returns an error unless the program in a home is executable.
func (e *Executor) executable(home, program string) error {
	fi, err := disk.Stat(e.Disk, opKept, e.path(path.Join(home, program)))
	if err != nil {
		return fmt.Errorf("package has no program %s: %w", program, err)
	}
	// On Windows the name determines whether a file is executable.
	may := fi.Mode().Perm()&0o111 != 0 || e.GOOS == "windows"
	if !fi.Mode().IsRegular() || !may {
		return fmt.Errorf("%s of the package cannot be executed", program)
	}
	return nil
}

// DropSurplus removes the versions whose window is over, and those beyond the limits. It does
// nothing while a version is watched, since the watcher may need them, or while an upgrade runs.
func (e *Executor) DropSurplus(now time.Time) error {
	if !e.changing.TryLock() {
		return nil
	}
	defer e.changing.Unlock()
	if e.marker() != nil {
		return nil
	}
	counted := map[string]time.Time{}
	err := e.edit(func(v *handoff.Versions) error {
		v.OnHost = slices.Clone(v.OnHost)
		for i, o := range v.OnHost { // how long it was kept since it was counted last
			v.OnHost[i], counted[o.Home] = o.Count(now, e.elapsed(o, now)), now
		}
		return e.removeHomes(v.Trim(e.Keep, now))
	})
	if err == nil {
		e.mu.Lock()
		e.counted = counted
		e.mu.Unlock()
	}
	return err
}

// removeWait is how long the removal of a version waits for what changes the versions. Upgrades
// and stages take longer, and refuse it; counting how long versions are kept takes one write of a
// small file, for which a host must not be refused.
const removeWait = 2 * time.Second

// RemoveVersion removes the versions of that name, as of [manifest.Identity.Is], from the host. It
// returns [request.ErrBusy] while an upgrade or a stage runs.
func (e *Executor) RemoveVersion(version string) error {
	if e.Running.Is(version) && len(e.named(version)) == 0 {
		return fmt.Errorf("version %s is the one that runs: switch to another one before you remove it", version)
	}
	if !e.changing.LockWithin(removeWait) {
		return errUnderWay
	}
	defer e.changing.Unlock()
	if m := e.marker(); m != nil {
		return fmt.Errorf("%w: version %s is being watched", request.ErrBusy, m.To.FullVersion())
	}
	// What is left of an upgrade may need the version.
	if err := e.undoLeftovers(); err != nil {
		return err
	}
	gone := e.named(version)
	if len(gone) == 0 {
		return fmt.Errorf("version %s is not on this host, which has %s", version, e.names(append(e.versions(), handoff.Version{Install: e.Running})))
	}
	return e.edit(func(v *handoff.Versions) error {
		v.OnHost = handoff.Without(v.OnHost, gone)
		return e.removeHomes(gone)
	})
}

// removeHomes removes versions from the host, before they are removed from the record: a home without a
// record would stay until the next upgrade is committed.
func (e *Executor) removeHomes(gone []handoff.Version) error {
	for _, v := range gone {
		e.log().Info("a version is removed from the host", "version", v.Identity.String(), "staged_at", v.StagedAt, "replaced_at", v.ReplacedAt)
		if err := disk.RemoveHome(e.Disk, e.Top, v.Home); err != nil {
			return err
		}
	}
	return nil
}

// named returns the versions of that name on the host besides the one that runs, the newest last.
func (e *Executor) named(name string) []handoff.Version {
	return slices.DeleteFunc(e.versions(), func(v handoff.Version) bool { return !v.Is(name) })
}

// NameOf returns what people and requests call a version on the host: its full version, or if another
// build of that version runs or is on the host too, its identity.
func (e *Executor) NameOf(v handoff.Install) string {
	version := v.FullVersion()
	builds := e.named(version)
	if e.Running.Is(version) {
		builds = append(builds, handoff.Version{Install: e.Running})
	}
	if slices.ContainsFunc(builds, func(b handoff.Version) bool { return b.Identity != v.Identity }) {
		return v.Identity.String()
	}
	return version
}

// names returns the versions' names for a message.
func (e *Executor) names(list []handoff.Version) string {
	var out []string
	for _, v := range list {
		out = append(out, e.NameOf(v.Install))
	}
	if len(out) < 2 {
		return strings.Join(out, "")
	}
	return strings.Join(out[:len(out)-1], ", ") + " and " + out[len(out)-1]
}

// chooseOnHost selects a version on the host as the one to switch to: the named one, or without
// a name the one that ran last.
func (w *work) chooseOnHost(ctx context.Context) error {
	v, err := w.Find(w.j.Request.Version)
	if err != nil {
		return err
	}
	r := &w.j.Request
	r.Version = v.FullVersion() // the name may have been that of a build
	if v.Staged() {
		err = w.checkStaged(ctx, v)
	} else {
		err = w.checkKept(ctx, v)
	}
	if err != nil {
		return err
	}
	p, err := w.ready(ctx, v.Install, false)
	if err != nil {
		return fmt.Errorf("version %s cannot be started: %w", r.Version, err)
	}
	w.j.To, w.j.Reused, w.checks, w.source = v.Install, true, p.Checks, v.Archive
	return nil
}

// Find returns the newest version of that name, as of [manifest.Identity.Is], on the host besides the one
// that runs, or without a name the one that ran last.
func (e *Executor) Find(version string) (handoff.Version, error) {
	list := e.versions()
	for _, v := range slices.Backward(list) {
		if v.Is(version) || version == "" && !v.Staged() {
			return v, nil
		}
	}
	switch {
	case version == "":
		return handoff.Version{}, errors.New("no earlier version is kept on this host: upgrade to the version you want instead")
	case len(list) == 0:
		return handoff.Version{}, fmt.Errorf("version %s is neither staged nor kept on this host: stage it first with `muster-agent versions stage %s`", version, version)
	}
	return handoff.Version{}, fmt.Errorf("version %s is neither staged nor kept on this host, which has %s: stage it first with `muster-agent versions stage %s`",
		version, e.names(list), version)
}

// checkKept refuses a version whose window is over, or that the server may not order.
func (w *work) checkKept(ctx context.Context, v handoff.Version) error {
	if now := time.Now(); w.left(v, now) < 0 {
		return fmt.Errorf("version %s can no longer be rolled back to: its window of %s is over; upgrade to the version you want instead",
			v.FullVersion(), w.Keep.Window)
	}
	if w.j.Request.Local {
		return nil
	}
	return w.CheckRollback(ctx, v.FullVersion())
}

// checkStaged makes the checks of an upgrade again: the version may have been staged long ago.
func (w *work) checkStaged(ctx context.Context, v handoff.Version) error {
	if w.Trust == nil {
		return errNoTrust
	}
	publishers := trust.Expectation{Floor: w.Trust.Floor(ctx, ""), Archive: v.Archive}
	err := w.allow(v.Hash, publishers)
	if !errors.Is(err, request.ErrOlder) {
		return err
	}
	// Only its publishers can still allow it.
	now, unknown := w.Expect(ctx, w.archiveName(w.j.Request.Version), w.j.Request.SourceURI)
	if unknown != nil {
		return fmt.Errorf("%w (its publishers cannot be asked: %w)", err, unknown)
	}
	if publishers.Downgrade = now.Downgrade && now.Archive == v.Archive; !publishers.Downgrade {
		return err
	}
	return w.allow(v.Hash, publishers)
}
