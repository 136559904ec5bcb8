package watch

import (
	"slices"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// recordVersions records the versions that stay, and returns them: those that are staged or
// were kept before, and the one that was replaced, unless its program is missing.
func (w *Watch) recordVersions(m handoff.Marker, now time.Time) ([]handoff.Version, error) {
	startable, err := w.has(opPrevious, layout.AgentLink, m.From.Home)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(w.versions(), func(v handoff.Version) bool { return v.Home == m.To.Home || v.Home == m.From.Home })
	if startable {
		v := handoff.Version{Install: m.From, ReplacedAt: now}
		if v.Bytes, err = disk.Size(w.Disk, opPrevious, layout.Path(w.Top, v.Home)); err != nil {
			w.Log.Warn("the size of the previous version is not known and counts as nothing", "home", v.Home, "error", err)
		}
		list = append(list, v)
	}
	list = handoff.Without(list, handoff.Surplus(list, m.Rules.Keep, now))
	if !startable {
		w.Log.Warn("the previous version cannot be kept for a rollback, its program is missing", "home", m.From.Home)
	}
	return list, handoff.WriteVersions(w.Disk, w.Top, list)
}

// versions returns the versions on the host besides the two of the marker.
func (w *Watch) versions() []handoff.Version {
	list, err := handoff.ReadVersions(w.Disk, w.Top)
	if err != nil {
		w.Log.Warn("a record of the versions on the host cannot be read and is ignored", "error", err)
	}
	return list
}

// recordHighest raises the highest version that was committed here. It includes the previous
// version, which may be the one that was installed, and that no watcher has committed.
func (w *Watch) recordHighest(m handoff.Marker, now time.Time) error {
	known, err := handoff.ReadHighest(w.Disk, w.Top)
	if err != nil {
		w.Log.Warn("the record of the highest version cannot be read and is written again", "error", err)
	}
	h := known.Raise(m.From.FullVersion(), now).Raise(m.To.FullVersion(), now)
	if known != nil && *h == *known {
		return nil
	}
	return handoff.WriteHighest(w.Disk, w.Top, *h)
}
