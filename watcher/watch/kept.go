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
