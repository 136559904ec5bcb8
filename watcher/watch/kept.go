package watch

import (
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// recordVersions records the commit of the new version, and returns the versions that stay: those that
// are staged or were kept before, and the one that was replaced, unless its program is missing.
func (w *Watch) recordVersions(m handoff.Marker, now time.Time) ([]handoff.Version, error) {
	startable, err := w.has(opPrevious, layout.AgentLink, m.From.Home)
	if err != nil {
		return nil, err
	}
	v, err := handoff.ReadVersions(w.Disk, w.Top)
	if err != nil {
		w.Log.Warn("the record of the versions on the host cannot be read and is written again", "error", err)
	}
	v.Raise(m.From.FullVersion()) // it may be the one that was installed, and that no watcher has committed
	v.Commit(m.To.Identity)
	v.Remove(m.To.Home, m.From.Home)
	if startable {
		from := handoff.Version{Install: m.From, ReplacedAt: now}
		if from.Bytes, err = disk.Size(w.Disk, opPrevious, layout.Path(w.Top, from.Home)); err != nil {
			w.Log.Warn("the size of the previous version is not known and counts as nothing", "home", from.Home, "error", err)
		}
		v.Add(from)
	} else {
		w.Log.Warn("the previous version cannot be kept for a rollback, its program is missing", "home", m.From.Home)
	}
	v.Trim(m.Rules.Keep, now)
	return v.OnHost, handoff.WriteVersions(w.Disk, w.Top, v)
}
