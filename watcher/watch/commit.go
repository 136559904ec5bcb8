package watch

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// commit keeps the new version. The order: decision, so that a crash repeats the
// commit and not the watch; the record of the version that is kept, which has to
// be there when the outcome says so; outcome, which the agent reports; clean-up;
// marker.
// The clean-up comes before the marker goes since the agent begins no other
// upgrade while it stands: so no home, staging folder or download removed here
// can be one that is being made.
func (w *Watch) commit(m handoff.Marker) (handoff.Outcome, error) {
	o := handoff.Outcome{ActionID: m.ActionID, From: m.From, To: m.To, Result: handoff.Committed, At: time.Now()}
	w.writeDecision(handoff.Decide(m, handoff.Committed, nil))
	if err := w.recordPrevious(m, o.At); err != nil {
		return o, err
	}
	if err := handoff.WriteOutcome(w.Disk, w.Top, o); err != nil {
		return o, err
	}
	// What cannot be removed costs space and is tried again by the next commit.
	if err := w.cleanUp(m); err != nil {
		w.Log.Warn("not everything old could be removed", "error", err)
	}
	return o, w.removeMarker()
}

// cleanUp removes every version but the new one and the one before, which stays
// for a rollback by hand, and what unpacking and downloading left behind.
func (w *Watch) cleanUp(m handoff.Marker) error {
	entries, err := w.Disk.ReadDir(opCleanUp, layout.Path(w.Top, layout.DataDir))
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		home := path.Join(layout.DataDir, e.Name())
		switch {
		case !e.IsDir() || home == m.To.Home || home == m.From.Home:
		case strings.HasPrefix(e.Name(), layout.HomePrefix):
			errs = append(errs, w.removeHome(home))
		case strings.HasPrefix(e.Name(), layout.StagingPrefix):
			errs = append(errs, w.Disk.RemoveAll(opCleanUp, layout.Path(w.Top, home)))
		}
	}
	return errors.Join(append(errs, w.cleanDownloads(m))...)
}

// cleanDownloads removes what belongs to upgrades that are over: the archives of
// this one, and files last written before it switched. What is newer is a
// download for an upgrade that waits for this one to end.
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

// archiveOf: 1.1.0-rc.1 is not an archive of 1.1.0, so the platform is required
// to follow the version; its name does not begin with a digit or a pre-release.
func archiveOf(name string, id manifest.Identity) bool {
	full := id.FullVersion()
	rest, ok := strings.CutPrefix(name, layout.HomePrefix+full+"-")
	return ok && (strings.HasPrefix(rest, "linux-") || strings.HasPrefix(rest, "darwin-") ||
		strings.HasPrefix(rest, "windows-") || strings.HasPrefix(rest, "freebsd-"))
}
