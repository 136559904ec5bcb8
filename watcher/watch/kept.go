package watch

import (
	"time"

	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// recordPrevious writes down which version is kept for a rollback by hand. One
// that has lost its program cannot be gone back to and is not promised.
func (w *Watch) recordPrevious(m handoff.Marker, now time.Time) error {
	startable, err := w.has(opPrevious, layout.AgentLink, m.From.Home)
	if err != nil {
		return err
	}
	if !startable {
		w.Log.Warn("the version before cannot be kept for a rollback, its program is missing", "home", m.From.Home)
		return handoff.RemovePrevious(w.Disk, w.Top)
	}
	return handoff.WritePrevious(w.Disk, w.Top, handoff.Previous{Install: m.From, ReplacedBy: m.To, ReplacedAt: now})
}

// dropPrevious forgets a kept version whose home is gone: it was the one that
// was gone back to by hand, and has just lost. Otherwise the version that was
// kept at the last commit is still the one before this.
func (w *Watch) dropPrevious() error {
	p, err := handoff.ReadPrevious(w.Disk, w.Top)
	if err != nil {
		w.Log.Warn("the record of the kept version cannot be read and counts as none", "error", err)
	}
	if p == nil {
		return nil
	}
	if there, err := w.has(opPrevious, layout.AgentLink, p.Home); err != nil || there {
		return err
	}
	return handoff.RemovePrevious(w.Disk, w.Top)
}
