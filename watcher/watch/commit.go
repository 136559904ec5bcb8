package watch

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// commit commits the new version. It writes the decision, so that a watcher started after a
// crash continues the commit; the versions that stay and the highest one, which must be recorded
// when the outcome is; and the outcome, which the agent reports. Then it cleans up and
// removes the marker. While the marker exists the agent begins no other upgrade, so the clean-up removes
// no home, staging folder or download that is in use.
func (w *Watch) commit(m handoff.Marker) (handoff.Outcome, error) {
	o := handoff.Outcome{ActionID: m.ActionID, From: m.From, To: m.To, Archive: m.Archive, Result: handoff.Committed, At: time.Now()}
	w.writeDecision(handoff.Decide(m, handoff.Committed, nil))
	stay, err := w.recordVersions(m, o.At)
	if err != nil {
		return o, err
	}
	if err := handoff.WriteOutcome(w.Disk, w.Top, o); err != nil {
		return o, err
	}
	// The next commit tries again to remove what is left.
	if err := w.cleanUp(m, stay); err != nil {
		w.Log.Warn("not everything old could be removed", "error", err)
	}
	return o, w.removeMarker()
}

// cleanUp removes all versions but the new one, the previous one and those that stay, and
// leftovers of unpacking and downloading.
func (w *Watch) cleanUp(m handoff.Marker, stay []handoff.Version) error {
	entries, err := w.Disk.ReadDir(opCleanUp, layout.Path(w.Top, layout.DataDir))
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		home := path.Join(layout.DataDir, e.Name())
		switch {
		case !e.IsDir() || home == m.To.Home || home == m.From.Home || handoff.Holds(stay, home):
		case strings.HasPrefix(e.Name(), layout.StagingPrefix):
			errs = append(errs, w.Disk.RemoveAll(opCleanUp, layout.Path(w.Top, home)))
		case w.isHome(home):
			errs = append(errs, w.removeHome(home))
		}
	}
	return errors.Join(append(errs, w.cleanDownloads(m))...)
}

// isHome reports whether a folder in the data folder is the home of a version.
func (w *Watch) isHome(name string) bool {
	if layout.NamesHome(name) {
		return true
	}
	_, err := w.Disk.Lstat(opCleanUp, layout.Path(w.Top, path.Join(name, layout.DigestsFile)))
	return err == nil && layout.IsHome(name)
}

// cleanDownloads removes the archives of this upgrade and files that were last written
// before it. Newer files belong to an upgrade that waits for this one to end.
func (w *Watch) cleanDownloads(m handoff.Marker) error {
	dir := layout.Path(w.Top, layout.DownloadsDir)
	entries, err := w.Disk.ReadDir(opCleanUp, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if archiveOf(e.Name(), m.To.Identity) || fi.ModTime().Before(m.CreatedAt) {
			errs = append(errs, w.Disk.RemoveAll(opCleanUp, filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// archiveOf reports whether name is an archive of the version. The platform must follow the
// version, since 1.1.0-rc.1 is not 1.1.0.
func archiveOf(name string, id manifest.Identity) bool {
	full := id.FullVersion()
	rest, ok := strings.CutPrefix(name, layout.HomePrefix+full+"-")
	return ok && (strings.HasPrefix(rest, "linux-") || strings.HasPrefix(rest, "darwin-") ||
		strings.HasPrefix(rest, "windows-") || strings.HasPrefix(rest, "freebsd-"))
}
