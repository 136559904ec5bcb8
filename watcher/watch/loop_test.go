package watch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

// Each test runs in virtual time, with a real disk and a scripted agent.
func inTime(t *testing.T, name string, f func(t *testing.T, s *site)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t)
			// Timers of the test may still use the folder that is removed with the
			// test.
			defer synctest.Wait()
			f(t, s)
		})
	})
}

func TestLoop(t *testing.T) {
	inTime(t, "a good version is kept after the grace, the previous one stays", func(t *testing.T, s *site) {
		s.switchAfter(3 * time.Second)
		begin := time.Now()
		o, err := s.run(t.Context())
		if err != nil || o == nil || o.Result != handoff.Committed || o.Reason != nil {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.Committed, s.m.To.Home)
		if !s.exists(s.m.From.Home) {
			t.Error("the previous version was removed")
		}
		if took := time.Since(begin); took < 10*time.Minute || took > 11*time.Minute {
			t.Errorf("took %v, want the grace of 10m and the switch", took)
		}
		if s.host.restarts+s.host.starts != 0 {
			t.Error("a good version was started or restarted by the watcher")
		}
	})

	inTime(t, "a version that becomes unhealthy later is rolled back", func(t *testing.T, s *site) {
		s.host.lives[s.m.To.Home] = life{health: func(age time.Duration) (probe.Health, error) {
			h := probe.Health{Identity: newID, State: probe.Healthy}
			if age > 4*time.Minute {
				h.State, h.Message = probe.Failed, "cannot write"
			}
			return h, nil
		}}
		s.switchAfter(time.Second)
		begin := time.Now()
		o, err := s.run(t.Context())
		if err != nil || o == nil || o.Reason == nil || o.Reason.Code != handoff.ReasonAgentFailed {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
		if took := time.Since(begin); took < 4*time.Minute+30*time.Second || took > 5*time.Minute {
			t.Errorf("took %v, want four and a half minutes and an interval", took)
		}
	})

	inTime(t, "two crashes are survived: the watcher is the supervisor", func(t *testing.T, s *site) {
		crashes := 0
		s.host.lives[s.m.To.Home] = life{health: func(age time.Duration) (probe.Health, error) {
			if age > time.Minute && crashes < 2 {
				crashes++
				s.host.home = ""
				return probe.Health{}, errors.New("connection reset")
			}
			return probe.Health{Identity: newID, State: probe.Healthy}, nil
		}}
		s.switchAfter(time.Second)
		o, err := s.run(t.Context())
		if err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.Committed, s.m.To.Home)
		if s.host.starts != 2 {
			t.Errorf("started %d times, want 2", s.host.starts)
		}
	})

	inTime(t, "a stop before the verdict leaves the marker, and the next watcher continues", func(t *testing.T, s *site) {
		s.switchAfter(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if o, err := s.run(ctx); o != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("outcome %+v, %v; want none and the reason to stop", o, err)
		}
		if d, err := handoff.ReadDecision(quickDisk{}, s.top, s.m); d != nil || err != nil {
			t.Fatalf("a stopped watcher has decided %+v, %v", d, err)
		}
		if !s.exists(layout.MarkerFile) || s.leads(layout.AgentLink) != s.m.To.Home {
			t.Fatal("a stopped watcher changed the host")
		}
		if o, err := s.run(t.Context()); err != nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v", o, err)
		}
		s.wantSettled(handoff.Committed, s.m.To.Home)
	})

	inTime(t, "an upgrade that begins again is followed with its new marker", func(t *testing.T, s *site) {
		// The agent that wrote the first marker was killed before the switch; the next one
		// removes that marker and writes its own.
		s.pointTo(s.m.From.Home)
		s.host.exits = 3 // earlier exits, not those of the new version
		time.AfterFunc(2*time.Second, func() {
			s.m.CreatedAt = s.m.CreatedAt.Add(time.Minute)
			s.must(handoff.WriteMarker(quickDisk{}, s.top, s.m))
		})
		time.AfterFunc(4*time.Second, func() {
			s.pointTo(s.m.To.Home)
			s.switchAfter(time.Second)
		})
		o, err := s.run(t.Context())
		if err != nil || o == nil || o.Result != handoff.Committed || !strings.Contains(s.lines.String(), "watching again") {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.Committed, s.m.To.Home)
	})

	inTime(t, "a stop during a rollback finishes it", func(t *testing.T, s *site) {
		s.host.lives[s.m.To.Home] = life{dies: 50 * time.Millisecond}
		old := s.host.lives[s.m.From.Home]
		ctx, cancel := context.WithCancel(t.Context())
		// The old version takes 20 s to answer; the stop comes in the middle.
		s.host.lives[s.m.From.Home] = life{health: func(age time.Duration) (probe.Health, error) {
			if s.host.restarts > 0 && age < 20*time.Second {
				cancel()
				return probe.Health{}, errors.New("not yet")
			}
			return old.health(age)
		}}
		s.switchAfter(time.Second)
		if o, err := s.run(ctx); err != nil || o.Result != handoff.RolledBack {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		if ctx.Err() == nil {
			t.Fatal("the stop never came")
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
	})
}

// A crash loop under the default rules is detected within 15 seconds of the switch, with and
// without a service manager.
func TestCrashLoopIsDetectedWithin15Seconds(t *testing.T) {
	const atMost = 15 * time.Second
	for _, c := range []struct {
		name    string
		manager time.Duration // 0: the watcher supervises
		lives   time.Duration // each of its processes
		by      time.Duration // the verdict, from the switch
	}{
		{"under systemd, at start", 3 * time.Second, 50 * time.Millisecond, 10 * time.Second},
		{"under systemd, after a second and a half", 3 * time.Second, 1500 * time.Millisecond, 14 * time.Second},
		{"under the watcher, at start", 0, 50 * time.Millisecond, 4 * time.Second},
		{"under the watcher, after a second and a half", 0, 1500 * time.Millisecond, 8 * time.Second},
	} {
		inTime(t, c.name, func(t *testing.T, s *site) {
			if c.manager > 0 {
				s.m.Restart.Service = "muster-agent"
				s.must(handoff.WriteMarker(quickDisk{}, s.top, s.m))
			}
			s.host.manager = c.manager
			s.host.lives[s.m.To.Home] = life{dies: c.lives}
			const switchAfter = 2300 * time.Millisecond
			s.switchAfter(switchAfter)
			switched := time.Now().Add(switchAfter)
			var decided time.Time
			s.disk = faultDisk{Disk: quickDisk{}, before: func(_, op, _ string) error {
				if op == "decision" && decided.IsZero() {
					decided = time.Now()
				}
				return nil
			}}
			o, err := s.run(t.Context())
			if err != nil || o == nil || o.Result != handoff.RolledBack || o.Reason.Code != handoff.ReasonCrashLoop {
				t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
			}
			s.wantSettled(handoff.RolledBack, s.m.From.Home)
			if took := decided.Sub(switched); took > c.by || took > atMost {
				t.Errorf("decided %v after the switch, want %v at most", took, c.by)
			}
			if s.exists(s.m.To.Home) {
				t.Error("the bad version is still on the disk")
			}
			if c.manager > 0 && strings.Contains(s.lines.String(), "was started again") {
				t.Error("the watcher started an agent that a service manager looks after")
			}
		})
	}
}

func TestPlanAtStart(t *testing.T) {
	left := func(t *testing.T, s *site, o *handoff.Outcome, err error) {
		t.Helper()
		if o != nil || err != nil {
			t.Errorf("outcome %+v, %v; want the host left alone\n%s", o, err, s.lines)
		}
		if s.host.restarts+s.host.starts > 0 {
			t.Error("an agent was started")
		}
	}

	inTime(t, "no marker", func(t *testing.T, s *site) {
		s.must(handoff.RemoveMarker(quickDisk{}, s.top))
		o, err := s.run(t.Context())
		left(t, s, o, err)
	})

	inTime(t, "a damaged marker is ignored and causes no rollback", func(t *testing.T, s *site) {
		s.must(os.WriteFile(layout.Path(s.top, layout.MarkerFile), []byte("\x00\x00\x00\x00"), 0o600))
		s.must(os.RemoveAll(filepath.Join(s.top, layout.MarkerFile+".prev")))
		o, err := s.run(t.Context())
		left(t, s, o, err)
		if s.leads(layout.AgentLink) != s.m.To.Home {
			t.Error("the pointer was moved")
		}
	})

	inTime(t, "with a pointer to a third version the host is left alone", func(t *testing.T, s *site) {
		s.install("data/muster-agent-2.0.0-cccccc")
		s.pointTo("data/muster-agent-2.0.0-cccccc")
		o, err := s.run(t.Context())
		left(t, s, o, err)
		if !s.exists(layout.MarkerFile) {
			t.Error("the marker was removed")
		}
		if !strings.Contains(s.lines.String(), "neither") {
			t.Errorf("the log does not say why: %s", s.lines)
		}
	})

	inTime(t, "an upgrade that never switched ends as rolled back", func(t *testing.T, s *site) {
		s.pointTo(s.m.From.Home)
		o, err := s.run(t.Context())
		if err != nil || o == nil || o.Result != handoff.RolledBack || o.Reason.Code != handoff.ReasonNotStarted {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
		if s.host.restarts != 0 {
			t.Error("the version that runs all the time was restarted")
		}
		if !s.exists(s.m.To.Home) {
			t.Error("the new home was removed, although a slow agent may still switch to it")
		}
	})

	inTime(t, "a watcher that is faster than the agent waits for the switch", func(t *testing.T, s *site) {
		s.pointTo(s.m.From.Home)
		time.AfterFunc(10*time.Second, func() { s.pointTo(s.m.To.Home) })
		s.switchAfter(11 * time.Second)
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.Committed, s.m.To.Home)
	})

	inTime(t, "an agent that undoes its upgrade ends the watch", func(t *testing.T, s *site) {
		s.pointTo(s.m.From.Home)
		time.AfterFunc(10*time.Second, func() { s.must(handoff.RemoveMarker(quickDisk{}, s.top)) })
		o, err := s.run(t.Context())
		left(t, s, o, err)
	})

	inTime(t, "an uninstall ends the watch", func(t *testing.T, s *site) {
		s.switchAfter(time.Second)
		time.AfterFunc(time.Minute, func() {
			s.must(os.Remove(layout.Path(s.top, layout.AgentLink)))
			time.Sleep(5 * time.Second)
			s.must(os.RemoveAll(s.top))
		})
		o, err := s.run(t.Context())
		left(t, s, o, err)
		synctest.Wait() // the watch may end while the folder is being removed
		if s.exists(".") {
			t.Error("something was written into the removed folder")
		}
	})

	inTime(t, "a host that was off longer than the grace is watched in full", func(t *testing.T, s *site) {
		s.host.home = ""
		time.Sleep(3 * time.Hour)
		begin := time.Now()
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		if took := time.Since(begin); took < 10*time.Minute {
			t.Errorf("watched %v, want the whole grace", took)
		}
	})

	inTime(t, "a power cut with a broken version still rolls back", func(t *testing.T, s *site) {
		s.host.home = ""
		s.host.lives[s.m.To.Home] = life{dies: time.Millisecond}
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.RolledBack {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
	})

	inTime(t, "a pointer moved back by hand during the watch", func(t *testing.T, s *site) {
		s.switchAfter(time.Second)
		time.AfterFunc(time.Minute, func() { s.pointTo(s.m.From.Home) })
		o, err := s.run(t.Context())
		if err != nil || o == nil || o.Result != handoff.RolledBack || o.Reason.Code != handoff.ReasonManual {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
	})

	inTime(t, "a missing pointer is restored", func(t *testing.T, s *site) {
		s.switchAfter(time.Second)
		s.must(os.Remove(layout.Path(s.top, layout.AgentLink)))
		o, err := s.run(t.Context())
		if err != nil || o == nil || o.Reason == nil || o.Reason.Code != handoff.ReasonNotStarted {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
	})
}
