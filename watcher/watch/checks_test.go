package watch

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

// withChecks returns an upgrade whose package has n checks of the default threshold.
func withChecks(n int) handoff.Marker {
	m := testMarker()
	for i := range n {
		m.Rules.Checks = append(m.Rules.Checks, manifest.Check{Name: string(rune('a' + i)), TCP: "127.0.0.1:1"})
	}
	return m
}

// tried returns s with the results of one finished try of each check; "" passes.
func tried(s Sample, life int, results ...string) Sample {
	s.Tries = nil
	for i, r := range results {
		s.Tries = append(s.Tries, Try{Check: i, Life: life, Err: r})
	}
	return s
}

func TestVerdictOnChecks(t *testing.T) {
	var (
		passes = tried(isHealthy, 0, "")
		fails  = tried(isHealthy, 0, "refused")
		other  = isHealthy
	)
	other.PID = 101
	tests := []struct {
		name  string
		m     handoff.Marker
		parts [][]Sample
		want  Kind
		by    int
		text  string
	}{
		{"all pass", withChecks(1), [][]Sample{{passes}, seen(600, isHealthy)}, Commit, 600, ""},
		{"never tried is not good", withChecks(1), [][]Sample{seen(1000, isHealthy)}, Wait, 0, ""},
		{"one of two was not tried", withChecks(2), [][]Sample{{passes}, seen(1000, isHealthy)}, Wait, 0, ""},
		{"passed, then failed a third time", withChecks(1), [][]Sample{{passes, fails, fails, fails}}, RollBack, 3, `Check "a" of 1.1.0-3f2a9c failed 3 times in a row: refused.`},
		{"a pass in between resets the count", withChecks(1), [][]Sample{{passes, fails, fails, passes, fails, fails}}, Wait, 0, ""},
		{"its own threshold decides", func() handoff.Marker { m := withChecks(1); m.Rules.Checks[0].Threshold = 1; return m }(), [][]Sample{{passes, fails}}, RollBack, 1, "failed 1 times"},
		{"what starts after the control socket is given time", withChecks(1), [][]Sample{seen(30, fails)}, Wait, 0, ""},
		{"but no more than a fault", withChecks(1), [][]Sample{seen(31, fails)}, RollBack, 30, "did not pass once in 30s, 31 tries failed"},
		{"failing at the end of the grace", withChecks(1), [][]Sample{{passes}, seen(595, isHealthy), {fails}, seen(100, isHealthy)}, Wait, 0, ""},
		{"failing at the end, then passing", withChecks(1), [][]Sample{{passes}, seen(595, isHealthy), {fails}, seen(20, isHealthy), {passes}}, Commit, 617, ""},
		{"a try of an earlier process is ignored", withChecks(1), [][]Sample{{passes, fails, fails}, {other, tried(other, 0, "refused"), tried(other, 0, "refused")}}, Wait, 0, ""},
		{"a new process has to pass again", withChecks(1), [][]Sample{{passes}, seen(10, other), seen(1000, other)}, Wait, 0, ""},
		{"a cancelled try is ignored", withChecks(1), [][]Sample{{passes}, seen(10, tried(isHealthy, cancelledLife, "cut off"))}, Wait, 0, ""},
		{"an unknown check is ignored", withChecks(1), [][]Sample{{passes}, {tried(isHealthy, 0, "", "x", "y")}}, Wait, 0, ""},
		{"not passing for ever is not good", func() handoff.Marker { m := withChecks(1); m.Rules.Checks[0].Threshold = 1e6; return m }(), [][]Sample{seen(1400, fails)}, RollBack, 1380, `at the end check "a" did not pass`},
		{"a check that is never tried does not wait for ever", withChecks(1), [][]Sample{seen(1600, isHealthy)}, RollBack, 1500, `check "a" did not pass`},
		{"a failed component comes before its check in the reason", withChecks(1), [][]Sample{{passes}, seen(91, tried(alive(answer(newID, probe.Degraded, "logs")), 0, "")), {fails}}, RollBack, 91, "Component logs"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			v, h, at := judgeSamples(tc.m, tc.parts...)
			if v.Kind != tc.want {
				t.Fatalf("after %d s: %v %+v, want %v; %s", at, v.Kind, v.Reason, tc.want, Waiting(tc.m, h))
			}
			if tc.want != Wait && at != tc.by {
				t.Errorf("the verdict fell after %d s, want %d", at, tc.by)
			}
			if tc.want == RollBack && (!strings.Contains(v.Reason.Text, tc.text) || (v.Reason.Code != handoff.ReasonCheckFailed && !strings.Contains(tc.text, "Component"))) {
				t.Errorf("reason is %+v, want it to say %q", v.Reason, tc.text)
			}
		})
	}
}

// Whatever the results of the checks, a version is committed only if the last try of each
// check has passed, and rolled back by a check only after as many failures in a row as its
// threshold.
func TestVersionWithFailingChecksIsNotCommitted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := quickRules(rt)
		m.Rules.Checks = withChecks(rapid.IntRange(1, 3).Draw(rt, "checks")).Rules.Checks
		n := len(m.Rules.Checks)
		for i := range n {
			m.Rules.Checks[i].Threshold = rapid.IntRange(1, 4).Draw(rt, "threshold")
		}
		var h History
		at, row, last := noon, make([]int, n), make([]string, n)
		for i := range last {
			last[i] = "never tried"
		}
		for range 200 {
			at = at.Add(time.Duration(rapid.IntRange(1, 3000).Draw(rt, "ms")) * time.Millisecond)
			s := isHealthy
			s.At = at
			for i := range n {
				if rapid.IntRange(0, 3).Draw(rt, "ends") > 0 {
					continue
				}
				result := rapid.SampledFrom([]string{"", "", "", "refused"}).Draw(rt, "result")
				s.Tries = append(s.Tries, Try{Check: i, Err: result})
				if last[i] = result; result == "" {
					row[i] = 0
				} else {
					row[i]++
				}
			}
			h = h.Add(m, s)
			switch v := Judge(h); v.Kind {
			case Commit:
				if strings.Join(last, "") != "" {
					rt.Fatalf("kept, with %q", last)
				}
				return
			case RollBack:
				for i, c := range m.Rules.Checks {
					if row[i] >= c.Threshold {
						return
					}
				}
				if strings.Contains(v.Reason.Text, "did not become healthy") && strings.Join(last, "") != "" {
					return // at the limit the last tries determine the verdict
				}
				rt.Fatalf("rolled back with %v failures in a row: %+v", row, v.Reason)
			}
		}
	})
}

func TestLoopRunsChecks(t *testing.T) {
	checked := func(s *site, c ...manifest.Check) {
		s.m.Rules.Checks = c
		s.must(handoff.WriteMarker(quickDisk{}, s.top, s.m))
	}
	inTime(t, "at the interval, beside the samples", func(t *testing.T, s *site) {
		checked(s, manifest.Check{Name: "a", TCP: "127.0.0.1:1"}, manifest.Check{Name: "b", TCP: "127.0.0.1:2"})
		s.switchAfter(5 * time.Second)
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		if s.host.checked < 2*55 || s.host.checked > 2*65 {
			t.Errorf("tried %d times, want each once in the 10 s of the interval for 10 m", s.host.checked)
		}
	})

	inTime(t, "a check that fails is tried again sooner, and rolls back", func(t *testing.T, s *site) {
		checked(s, manifest.Check{Name: "good", TCP: "127.0.0.1:1"}, manifest.Check{Name: "port", TCP: "127.0.0.1:2"})
		s.switchAfter(time.Second)
		var failing atomic.Bool
		s.host.check = func(name string) error {
			if name == "port" && failing.Load() {
				return errors.New("connection refused")
			}
			return nil
		}
		begin := time.Now()
		time.AfterFunc(4*time.Minute, func() { failing.Store(true) })
		o, err := s.run(t.Context())
		if err != nil || o == nil || o.Reason == nil || o.Reason.Code != handoff.ReasonCheckFailed || !strings.Contains(o.Reason.Text, `"port"`) {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
		if took := time.Since(begin) - 4*time.Minute; took < 10*time.Second || took > 25*time.Second {
			t.Errorf("took %v from the first failure, want an interval and two retries", took)
		}
	})

	inTime(t, "a check that hangs delays nothing and ends with the watch", func(t *testing.T, s *site) {
		checked(s, manifest.Check{Name: "slow", TCP: "127.0.0.1:1", Timeout: time.Minute})
		s.switchAfter(time.Second)
		hangs := &hangingHost{scriptedHost: s.host}
		w := s.watch()
		w.Host = hangs
		time.AfterFunc(2*time.Minute, func() {
			s.host.mu.Lock()
			defer s.host.mu.Unlock()
			s.host.lives[s.m.To.Home] = life{dies: time.Millisecond}
		})
		begin := time.Now()
		o, err := w.Run(t.Context())
		if err != nil || o == nil || o.Reason == nil {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		// Two tries of a minute each do not reach the threshold; the crash rolls back.
		if o.Reason.Code != handoff.ReasonCrashLoop || time.Since(begin) > 2*time.Minute+20*time.Second {
			t.Errorf("reason %+v after %v, want the crashes after two minutes", o.Reason, time.Since(begin))
		}
		if n := hangs.under.Load(); n != 0 {
			t.Errorf("%d tries are still under way", n)
		}
	})

	inTime(t, "no more than a few at once", func(t *testing.T, s *site) {
		var many []manifest.Check
		for i := range manifest.MaxChecks {
			many = append(many, manifest.Check{Name: string(rune('a' + i)), TCP: "127.0.0.1:1", Timeout: time.Second, Threshold: 1000})
		}
		checked(s, many...)
		s.switchAfter(time.Second)
		hangs := &hangingHost{scriptedHost: s.host}
		w := s.watch()
		w.Host = hangs
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := w.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("ended with %v\n%s", err, s.lines)
		}
		if most := hangs.most.Load(); most != maxTries {
			t.Errorf("%d tries at once, want %d", most, maxTries)
		}
		synctest.Wait()
	})
}

// hangingHost has checks that end only with their context.
type hangingHost struct {
	*scriptedHost
	under, most atomic.Int32
}

func (h *hangingHost) Check(ctx context.Context, _ string, _ manifest.Check) error {
	n := h.under.Add(1)
	defer h.under.Add(-1)
	for most := h.most.Load(); n > most && !h.most.CompareAndSwap(most, n); most = h.most.Load() {
	}
	<-ctx.Done()
	return ctx.Err()
}
