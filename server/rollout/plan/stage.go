package plan

import (
	"fmt"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// StageFor bounds how long the first batch waits for the targets to stage the version. It lets
// hosts on slow lines load it over night. Those that have not staged it by then download it when
// they are upgraded, as without staging.
const StageFor = 24 * time.Hour

var codeStaging = CodeOf(fleet.WhyStaging)

func checkStage(p *fleet.Plan) error {
	if p.Stage != "" && p.Stage != fleet.StageAhead {
		return fleet.FieldError(field("stage"), "is %q, want ahead, or leave it out: then agents download the version when they are upgraded", p.Stage)
	}
	return nil
}

// stages reports whether the rollout waits for its targets to stage the version. The first call
// has them asked. Neither windows nor freezes matter, since nothing that runs is changed. Targets
// that are away do not hold it up: they stage the version when they are back.
func (d *decision) stages() bool {
	if d.plan.Stage != fleet.StageAhead || d.total.waiting() == 0 && d.given.Staging == nil {
		return false
	}
	s := fleet.Staging{StartedAt: d.now, Until: d.now.Add(StageFor), Targets: len(d.targets)}
	if d.given.Staging != nil {
		s = *d.given.Staging
	}
	if s.EndedAt != nil {
		return false
	}
	s.Answered, s.Waiting = 0, 0
	for i := range d.targets[:min(s.Targets, len(d.targets))] {
		t := &d.targets[i]
		switch {
		case t.Answered:
			s.Answered++
		case t.State.Waits() && t.Online:
			s.Waiting++
		}
	}
	d.out.Staging = &s
	asked := d.given.Staging != nil
	if asked && (s.Waiting == 0 || !s.Until.After(d.now)) {
		s.EndedAt = d.moment()
		return false
	}
	d.more = d.more || !asked
	d.wake(s.Until)
	for i, old := range d.step.Reasons {
		if old != 0 {
			d.step.Reasons[i] = codeStaging
		}
	}
	d.out.Waiting = []fleet.Wait{{
		Code: fleet.WhyStaging, Since: s.StartedAt, Until: &s.Until,
		Text: fmt.Sprintf("%s the version first; %d have answered", Count(s.Waiting, "agent stages", "agents stage"), s.Answered),
	}}
	return true
}
