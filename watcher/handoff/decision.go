package handoff

import (
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/layout"
)

const opDecision = "decision"

// Decision is a verdict between the moment it falls and the moment it is carried
// out, so that a watcher started after a crash goes on with it and knows why.
// Watchers write it. The agent that comes up again reads it, to know that the
// pointer was led back on purpose: an upgrade of its own that was merely cut
// short looks the same. It is bound to one marker by what no other marker has in
// common with it.
type Decision struct {
	ActionID  string    `json:"action_id,omitempty"`
	FromHome  string    `json:"from_home"`
	ToHome    string    `json:"to_home"`
	CreatedAt time.Time `json:"created_at"` // of the marker
	Result    Result    `json:"result"`     // committed or rolled_back
	Reason    *Reason   `json:"reason,omitempty"`
}

// Decide makes the decision about m.
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

// WriteDecision stores a decision.
func WriteDecision(d disk.Disk, top string, decision Decision) error {
	return disk.WriteRecord(d, opDecision, layout.Path(top, layout.DecisionFile), "decision", recordVersion, decision)
}

// ReadDecision returns the decision about m, or nil. One that cannot be read
// counts as none, with err telling why: where the pointer leads still says what
// was decided.
func ReadDecision(d disk.Disk, top string, m Marker) (*Decision, error) {
	decision, err := disk.FindRecord[Decision](d, opDecision, layout.Path(top, layout.DecisionFile), "decision", recordVersion)
	if err != nil || decision == nil || !decision.about(m) {
		return nil, err
	}
	return decision, nil
}

// RemoveDecision forgets the decision. One that stays fits no later marker.
func RemoveDecision(d disk.Disk, top string) error {
	return disk.RemoveRecord(d, opDecision, layout.Path(top, layout.DecisionFile))
}
