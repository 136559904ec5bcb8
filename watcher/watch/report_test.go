package watch

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

func (s *scriptedServer) phases() []Phase {
	var out []Phase
	for _, r := range s.reports {
		out = append(out, r.Phase)
	}
	return slices.Compact(out)
}

func TestLoopSendsReports(t *testing.T) {
	inTime(t, "each half minute, and when something changes", func(t *testing.T, s *site) {
		s.reports = true
		s.switchAfter(5 * time.Second)
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		if got, want := s.server.phases(), []Phase{Watching, Phase(handoff.Committed)}; !slices.Equal(got, want) {
			t.Errorf("phases %v, want %v", got, want)
		}
		if n := len(s.server.reports); n < 20 || n > 24 {
			t.Errorf("%d reports in ten minutes, want one each half minute", n)
		}
		first, last := s.server.reports[0], s.server.reports[len(s.server.reports)-1]
		if first.Marker.ActionID != "a-1" || !first.Alive || first.Waiting == "" || first.Health == nil || first.Health.Identity != oldID {
			t.Errorf("the first report is %+v, want the old version before the switch", first)
		}
		if last.Reason != nil || last.Waiting != "" || last.Health == nil || last.Health.Identity != newID {
			t.Errorf("the last report is %+v", last)
		}
	})

	inTime(t, "the reason before the pointer moves, and the running version after", func(t *testing.T, s *site) {
		s.reports = true
		s.crashing()
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.RolledBack {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		if got, want := s.server.phases(), []Phase{Watching, RollingBack, Phase(handoff.RolledBack)}; !slices.Equal(got, want) {
			t.Fatalf("phases %v, want %v", got, want)
		}
		n := len(s.server.reports)
		before, after := s.server.reports[n-2], s.server.reports[n-1]
		if before.Reason == nil || before.Reason.Code != handoff.ReasonCrashLoop || before.Crashes < 3 || s.server.pointer[n-2] != s.m.To.Home {
			t.Errorf("before: %+v, the pointer leads to %s", before, s.server.pointer[n-2])
		}
		if after.Reason == nil || after.Reason.Code != handoff.ReasonCrashLoop || !after.Alive || after.Health == nil || after.Health.Identity != oldID || s.server.pointer[n-1] != s.m.From.Home {
			t.Errorf("after: %+v, the pointer leads to %s", after, s.server.pointer[n-1])
		}
	})

	inTime(t, "a server that hangs delays a rollback by two seconds at most", func(t *testing.T, s *site) {
		s.reports, s.server.hangs = true, true
		s.crashing()
		begin := time.Now()
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.RolledBack {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		if took := time.Since(begin); took > 12*time.Second {
			t.Errorf("took %v, want the crashes, two seconds and a restart", took)
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
	})
}

// The new version answers well, but cannot reach its server.
func offlineLife(checkinLost bool) life {
	return life{health: func(age time.Duration) (probe.Health, error) {
		h := probe.Health{Identity: newID, State: probe.Healthy, Fleet: probe.Fleet{URL: serverURL, State: probe.Healthy}}
		if age > time.Minute && checkinLost {
			h.State = probe.Degraded
			h.Fleet = probe.Fleet{URL: serverURL, State: probe.Degraded, Error: "connection refused", FailedTries: int(age / (20 * time.Second))}
		}
		return h, nil
	}}
}

func TestLoopRollsBackOnLostCheckins(t *testing.T) {
	inTime(t, "lost while the watcher reaches the server", func(t *testing.T, s *site) {
		s.reports = true
		s.host.lives[s.m.To.Home] = offlineLife(true)
		s.switchAfter(time.Second)
		begin := time.Now()
		o, err := s.run(t.Context())
		if err != nil || o == nil || o.Reason == nil || o.Reason.Code != handoff.ReasonCheckinLost {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
		if took := time.Since(begin); took < 4*time.Minute || took > 5*time.Minute {
			t.Errorf("took %v, want a minute, three of loss, and an interval", took)
		}
	})

	inTime(t, "lost for both is no fault of the version", func(t *testing.T, s *site) {
		s.reports, s.server.away = true, true
		s.host.lives[s.m.To.Home] = offlineLife(true)
		s.switchAfter(time.Second)
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
	})

	inTime(t, "without a credential check-ins are ignored", func(t *testing.T, s *site) {
		s.host.lives[s.m.To.Home] = offlineLife(true)
		s.switchAfter(time.Second)
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
	})
}
