package fleet

import (
	"encoding/json"
	"testing"
	"time"
)

func TestRolloutEventData(t *testing.T) {
	start := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	end := start.Add(90 * time.Second)
	now := start.Add(10 * time.Minute)
	r := &Rollout{ID: "r1", State: RolloutRunning, Plan: Plan{Name: "spring", Version: "2.0.0", Strategy: Strategy{Kind: Canary}}, Batches: []Batch{{}, {Index: 1}}}
	read := func(t *testing.T) RolloutEventData {
		t.Helper()
		e := RolloutEvent(EventRolloutProgress, r, now)
		var d RolloutEventData
		if err := json.Unmarshal(e.Data, &d); err != nil || e.Subject != "r1" || e.Type != EventRolloutProgress || !e.At.Equal(now) {
			t.Fatalf("event is %+v, %v", e, err)
		}
		return d
	}
	t.Run("before the start nothing has lasted", func(t *testing.T) {
		if d := read(t); d.Seconds != 0 || d.Batch != -1 || d.Batches != 2 || d.Name != "spring" || d.Strategy != Canary {
			t.Errorf("data are %+v", d)
		}
	})
	r.StartedAt, r.Batches[0].StartedAt = &start, &start
	t.Run("while it runs the time goes on", func(t *testing.T) {
		if d := read(t); d.Seconds != 600 || d.Batch != 0 {
			t.Errorf("data are %+v", d)
		}
	})
	r.EndedAt, r.State = &end, RolloutCompleted
	t.Run("after its end the time stands", func(t *testing.T) {
		if d := read(t); d.Seconds != 90 || d.State != RolloutCompleted {
			t.Errorf("data are %+v", d)
		}
	})
}

func TestTargetEventData(t *testing.T) {
	offered := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	before, now := offered.Add(-time.Hour), offered.Add(time.Minute)
	r := &Rollout{ID: "r1", Plan: Plan{Name: "spring"}}
	for _, c := range []struct {
		name   string
		target Target
		phase  string
		secs   float64
	}{
		{"one that was not offered anything", Target{State: TargetPending}, "", 0},
		{"one that downloads", Target{State: TargetOffered, OfferedAt: &offered, Phase: "UPG_DOWNLOADING"}, "preparing", 60},
		{"one that tries again, with the end of before", Target{State: TargetUpgrading, OfferedAt: &offered, EndedAt: &before}, "mutating", 60},
		{"one whose host has stopped the component", Target{State: TargetUpgrading, OfferedAt: &offered, Phase: "UPG_REPLACING", HostPhase: "stopped"}, "stopped", 60},
		{"one that has made it", Target{State: TargetVerifying, OfferedAt: &offered, HostPhase: "starting"}, "verifying", 60},
		{"one that failed while it was stopped", Target{State: TargetFailed, OfferedAt: &before, EndedAt: &offered, HostPhase: "stopped"}, "", 3600},
		{"one that is done", Target{State: TargetSucceeded, OfferedAt: &before, EndedAt: &offered}, "", 3600},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.target.AgentID, c.target.Policy, c.target.Site = "a1", "p", "fra"
			e := TargetEvent(EventTargetPhase, r, &c.target, now)
			var d TargetEventData
			if err := json.Unmarshal(e.Data, &d); err != nil || e.Subject != "a1" || d.RolloutID != "r1" || d.RolloutName != "spring" {
				t.Fatalf("event is %+v, %v", e, err)
			}
			if d.Policy != "p" || d.Site != "fra" {
				t.Errorf("the place is %s in %s", d.Policy, d.Site)
			}
			if d.Phase != c.phase || d.Seconds != c.secs || d.Reported != c.target.Phase {
				t.Errorf("data are %+v, want phase %q after %v s", d, c.phase, c.secs)
			}
		})
	}
}
