package handoff

import (
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
)

const opDecision = "decision"

// Decision is a verdict that has not been carried out completely, so that a watcher
// started after a crash continues with it and knows the reason. Watchers write it. An agent
// that starts reads it to distinguish a rollback from an upgrade that was interrupted
// before the pointer moved. A Decision belongs to one marker, which its fields identify.
type Decision struct {
	ActionID  string    `json:"action_id,omitempty"`
	FromHome  string    `json:"from_home"`
	ToHome    string    `json:"to_home"`
	CreatedAt time.Time `json:"created_at"` // of the marker
	Result    Result    `json:"result"`     // committed or rolled_back
	Reason    *Reason   `json:"reason,omitempty"`
	// KeepHome means that the home of the version that is rolled back stays.
	KeepHome bool `json:"keep_home,omitempty"`
}

// decisionRoom is the size of the reserved file: a reason has some 2 kB, and a control character of it
// takes six bytes in JSON.
const decisionRoom = 16 << 10

// Decide returns the decision about m.
func Decide(m Marker, result Result, reason *Reason) Decision {
	return Decision{
		ActionID: m.ActionID, FromHome: m.From.Home, ToHome: m.To.Home, CreatedAt: m.CreatedAt,
		Result: result, Reason: reason,
	}
}

func (d Decision) about(m Marker) bool {
	return d.ActionID == m.ActionID && d.FromHome == m.From.Home && d.ToHome == m.To.Home &&
		d.CreatedAt.Equal(m.CreatedAt)
}

// ReserveDecision takes the space for a decision, so that it can be written on a disk that has become
// full. What it stores is about no marker. It does nothing if there is a decision already. The agent
// calls it before it starts the watcher.
func ReserveDecision(d disk.Disk, top string) error {
	if has, err := disk.FindRecord[Decision](d, opDecision, layout.Path(top, layout.DecisionFile), "decision", recordVersion); has != nil && err == nil {
		return nil
	}
	return disk.ReserveRecord(d, opDecision, layout.Path(top, layout.DecisionFile), "decision", recordVersion, Decision{}, decisionRoom)
}

// WriteDecision stores a decision, in the reserved space if there is some.
func WriteDecision(d disk.Disk, top string, decision Decision) error {
	done, err := disk.OverwriteRecord(d, opDecision, layout.Path(top, layout.DecisionFile), "decision", recordVersion, decision, decisionRoom)
	if done && err == nil {
		return nil
	}
	return disk.WriteRecord(d, opDecision, layout.Path(top, layout.DecisionFile), "decision", recordVersion, decision)
}

// ReadDecision returns the decision about m, or nil. For one that cannot be read it returns
// nil and an error, which callers log: the pointer still shows what was decided.
func ReadDecision(d disk.Disk, top string, m Marker) (*Decision, error) {
	decision, err := disk.FindRecord[Decision](d, opDecision, layout.Path(top, layout.DecisionFile), "decision", recordVersion)
	if err != nil || decision == nil || !decision.about(m) {
		return nil, err
	}
	return decision, nil
}

// RemoveDecision removes the decision. One that stays does not match a later marker.
func RemoveDecision(d disk.Disk, top string) error {
	return disk.RemoveRecord(d, opDecision, layout.Path(top, layout.DecisionFile))
}
