package plan

import (
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

func stagedAhead(change func(*fleet.Plan)) fleet.Plan {
	p := rolling()
	p.Stage = fleet.StageAhead
	if change != nil {
		change(&p)
	}
	return p
}

func (s *simulation) answered(targets ...int) {
	for _, i := range targets {
		s.targets[i].Answered = true
	}
}

func TestStagedAhead(t *testing.T) {
	t.Run("nothing is offered before all that are online have answered", func(t *testing.T) {
		s := scenario(t, stagedAhead(nil), 1, 2)
		s.targets[2].Online = false
		step := s.offers()
		if st := s.r.Staging; st == nil || !st.StartedAt.Equal(s.now) || st.Targets != 3 || st.Waiting != 2 || !step.Next.Equal(s.now) {
			t.Fatalf("staging is %+v, the next round at %s", st, step.Next)
		}
		wantReasons(t, step, fleet.WhyStaging, fleet.WhyStaging, fleet.WhyStaging)
		s.wait(time.Minute)
		s.answered(0)
		if step = s.offers(); !step.Changed || s.r.Staging.Answered != 1 || !step.Next.Equal(s.r.Staging.Until) {
			t.Errorf("staging is %+v, the next round at %s", s.r.Staging, step.Next)
		}
		s.waitsFor(fleet.WhyStaging, "1 agent stages the version first; 1 have answered")
		if step = s.offers(); step.Changed {
			t.Error("a round without news is written")
		}
		s.answered(1)
		s.offers(0)
		if st := s.r.Staging; st.EndedAt == nil || !st.EndedAt.Equal(s.now) {
			t.Errorf("staging is %+v", st)
		}
		s.finish()
		s.offers(1)
	})
	t.Run("it waits for a day at most", func(t *testing.T) {
		s := scenario(t, stagedAhead(nil), 1)
		s.offers()
		s.wait(StageFor - time.Second)
		s.offers()
		s.wait(time.Second)
		s.offers(0)
	})
	t.Run("a target that went away does not hold it up", func(t *testing.T) {
		s := scenario(t, stagedAhead(nil), 2)
		s.offers()
		s.answered(0)
		s.targets[1].Online = false
		s.offers(0)
	})
	t.Run("those who join later are not asked", func(t *testing.T) {
		s := scenario(t, stagedAhead(nil), 1)
		s.offers()
		s.targets = append(s.targets, s.targets[0])
		s.exposed = append(s.exposed, false)
		s.answered(0)
		s.offers(0, 1)
	})
	t.Run("a closed window does not keep it from beginning", func(t *testing.T) {
		s := scenario(t, stagedAhead(func(p *fleet.Plan) {
			p.Pace.Windows = []fleet.Window{{From: "02:00", To: "03:00"}}
		}), 1)
		s.offers()
		s.waitsFor(fleet.WhyStaging, "stages the version first")
		s.answered(0)
		s.offers()
		s.waitsFor(fleet.WhyWindow, "")
		if s.r.Staging.EndedAt == nil {
			t.Error("staging has not ended")
		}
	})
	t.Run("a pause ends the wait, and resuming goes on with it", func(t *testing.T) {
		s := scenario(t, stagedAhead(nil), 1)
		s.offers()
		s.r.PauseAsked = &fleet.Decision{By: "ann", At: s.now}
		s.offers()
		s.is(fleet.RolloutPaused)
		s.r.State, s.r.Stop = fleet.RolloutRunning, nil
		s.offers()
		s.waitsFor(fleet.WhyStaging, "")
	})
	t.Run("without it nothing is staged", func(t *testing.T) {
		s := scenario(t, rolling(), 1)
		s.offers(0)
		if s.r.Staging != nil {
			t.Errorf("staging is %+v", s.r.Staging)
		}
	})
}
