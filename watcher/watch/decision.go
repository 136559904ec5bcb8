package watch

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/watcher/marker"
)

// decisionFile holds a verdict between the moment it falls and the moment it is
// carried out, so that a watcher started after a crash goes on with it and knows
// why. Only watchers read and write it; the whole format is in this file.
const decisionFile = "data/upgrade-decision"

const decisionVersion = 1

// decision is bound to one marker by what no other marker has in common with it.
type decision struct {
	ActionID  string         `json:"action_id,omitempty"`
	FromHome  string         `json:"from_home"`
	ToHome    string         `json:"to_home"`
	CreatedAt time.Time      `json:"created_at"` // of the marker
	Result    marker.Result  `json:"result"`     // committed or rolled_back
	Reason    *marker.Reason `json:"reason,omitempty"`
}

func decide(m marker.Marker, result marker.Result, reason *marker.Reason) decision {
	return decision{
		ActionID: m.ActionID, FromHome: m.From.Home, ToHome: m.To.Home, CreatedAt: m.CreatedAt,
		Result: result, Reason: reason,
	}
}

func (d decision) about(m marker.Marker) bool {
	return d.ActionID == m.ActionID && d.FromHome == m.From.Home && d.ToHome == m.To.Home &&
		d.CreatedAt.Equal(m.CreatedAt)
}

// writeDecision: one that cannot be written, on a full disk say, must not hold
// up a rollback. It is missed only if the watcher is killed as well.
func (w *Watch) writeDecision(d decision) {
	err := disk.WriteRecord(w.Disk, opDecision, filepath.Join(w.Top, decisionFile), "decision", decisionVersion, d)
	if err != nil {
		w.Log.Warn("the decision cannot be recorded, going on without", "error", err)
	}
}

// readDecision returns the decision about m, or nil. One that cannot be read
// counts as none: where the pointer leads still says what was decided.
func (w *Watch) readDecision(m marker.Marker) (*decision, error) {
	var d decision
	err := disk.ReadRecord(w.Disk, opDecision, filepath.Join(w.Top, decisionFile), "decision", decisionVersion, &d)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !d.about(m) {
		return nil, nil
	}
	return &d, nil
}

// removeDecision: one that stays fits no later marker.
func (w *Watch) removeDecision() {
	if err := disk.RemoveRecord(w.Disk, opDecision, filepath.Join(w.Top, decisionFile)); err != nil {
		w.Log.Warn("the decision that was carried out cannot be removed and is left", "error", err)
	}
}
