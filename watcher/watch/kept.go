package watch

import (
	"time"

	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// recordPrevious records the version that stays for a manual rollback, unless its program is
// missing.
func (w *Watch) recordPrevious(m handoff.Marker, now time.Time) error {
	startable, err := w.has(opPrevious, layout.AgentLink, m.From.Home)
	if err != nil {
		return err
	}
	if !startable {
		w.Log.Warn("the previous version cannot be kept for a rollback, its program is missing", "home", m.From.Home)
		return handoff.RemovePrevious(w.Disk, w.Top)
	}
	return handoff.WritePrevious(w.Disk, w.Top, handoff.Previous{Install: m.From, ReplacedBy: m.To, ReplacedAt: now})
}

// recordHighest raises the highest version that was committed here. It includes the previous
// version, which an older watcher committed without a record.
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

// dropPrevious removes the record of the previous version if its home is gone, as after a
// manual rollback to it that was rolled back itself. Otherwise the record of the last commit
// stays valid.
func (w *Watch) dropPrevious() error {
	p, err := handoff.ReadPrevious(w.Disk, w.Top)
	if err != nil {
		w.Log.Warn("the record of the previous version cannot be read and is ignored", "error", err)
	}
	if p == nil {
		return nil
	}
	if there, err := w.has(opPrevious, layout.AgentLink, p.Home); err != nil || there {
		return err
	}
	return handoff.RemovePrevious(w.Disk, w.Top)
}
