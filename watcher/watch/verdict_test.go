package watch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

var (
	oldID   = manifest.Identity{Version: "1.0.0", Hash: "9be1f0aa"}
	newID   = manifest.Identity{Version: "1.1.0", Hash: "3f2a9cbb"}
	thirdID = manifest.Identity{Version: "0.9.0", Hash: "0a0a0a0a"}
	noon    = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	errMute = errors.New("connection refused")
)

// testMarker is an upgrade from 1.0.0 to 1.1.0 under the default rules.
func testMarker() handoff.Marker {
	return handoff.Marker{
		ActionID:  "a-1",
		From:      handoff.Install{Identity: oldID, Home: "data/muster-agent-1.0.0-9be1f0"},
		To:        handoff.Install{Identity: newID, Home: "data/muster-agent-1.1.0-3f2a9c"},
		Archive:   "sha512:77",
		CreatedAt: noon,
		Rules:     handoff.DefaultRules(),
		Before:    handoff.Before{Failing: []string{"settings"}, Healthy: map[string]string{"logs": "2.0.0", "metrics": "2.0.0"}},
	}
}

func answer(id manifest.Identity, state probe.State, failed ...string) *probe.Health {
	h := &probe.Health{Identity: id, State: state, PID: 100, Message: "disk is full"}
	for _, c := range failed {
		h.Workloads = append(h.Workloads, probe.Workload{Name: c, Version: "2.0.0", State: probe.Failed, Message: "exit 1", FailedSince: noon})
	}
	return h
}

func with(h *probe.Health, change func(*probe.Health)) *probe.Health {
	change(h)
	return h
}

// failing is the answer of an agent that fails a check of itself.
func failing(name string, atFault bool) *probe.Health {
	h := answer(newID, probe.Degraded)
	if atFault {
		h.State = probe.Failed
	}
	h.Checks = []probe.Check{{Name: name, Problem: "it cannot", Since: noon, AtFault: atFault}}
	return h
}

// seen returns samples one second apart, as the loop takes them while something is wrong.
func seen(seconds int, s Sample) []Sample {
	out := make([]Sample, seconds)
	for i := range out {
		out[i] = s
	}
	return out
}

func alive(h *probe.Health) Sample { return Sample{Alive: true, PID: 100, Health: h} }

var (
	isHealthy = alive(answer(newID, probe.Healthy))
	isGone    = Sample{Err: probe.ErrNotRunning}
	isMute    = Sample{Alive: true, PID: 100, Err: errMute}
	isOld     = alive(answer(oldID, probe.Healthy))
	justAlive = Sample{Alive: true, PID: 100}
)

// judgeSamples adds samples one second apart, from noon on, and returns the verdict with its
// second.
func judgeSamples(m handoff.Marker, parts ...[]Sample) (Verdict, History, int) {
	var h History
	n := 0
	for _, part := range parts {
		for _, s := range part {
			s.At = noon.Add(time.Duration(n) * time.Second)
			h = h.Add(m, s)
			if v := Judge(h); v.Kind != Wait {
				return v, h, n
			}
			n++
		}
	}
	return Judge(h), h, n
}

// An agent that was asked to stop and ended in order has not crashed, however the host counts exits.
func TestOrderlyStopsAreNoCrashes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var samples []Sample
		s := isHealthy
		s.Stops = rapid.IntRange(0, 3).Draw(rt, "stops of earlier watches")
		add := func(n int) { samples = append(samples, seen(n, s)...) }
		add(3)
		counts := rapid.SampledFrom([]string{"no exits", "all exits", "crashes"}).Draw(rt, "the host counts")
		crashes := 0
		for range rapid.IntRange(0, 8).Draw(rt, "exits") {
			orderly := rapid.Bool().Draw(rt, "orderly")
			if orderly {
				s.Stops++
				add(rapid.IntRange(0, 2).Draw(rt, "seconds until it has ended"))
			} else {
				crashes++
			}
			if counts == "all exits" || counts == "crashes" && !orderly {
				s.Exits++
			}
			away := s
			away.Alive, away.PID, away.Health, away.Err = false, 0, nil, probe.ErrNotRunning
			samples = append(samples, seen(rapid.IntRange(0, 5).Draw(rt, "seconds away"), away)...)
			s.PID++
			add(rapid.IntRange(1, 5).Draw(rt, "seconds of its life"))
			if crashes > testMarker().Rules.MaxCrashes {
				break // the verdict is final
			}
		}
		v, h, _ := judgeSamples(testMarker(), samples)
		if h.crashes() != crashes {
			rt.Errorf("%d crashes are counted, want %d", h.crashes(), crashes)
		}
		loop := crashes > testMarker().Rules.MaxCrashes
		if got := v.Kind == RollBack && v.Reason.Code == handoff.ReasonCrashLoop; got != loop {
			rt.Errorf("the verdict is %v after %d crashes", v, crashes)
		}
	})
}

// The old version is stopped in order while it is replaced: that excuses no crash of the new one.
func TestStopOfTheOldVersionExcusesNoCrash(t *testing.T) {
	stopped := func(s Sample) Sample { s.Stops = 1; return s }
	back := func(pid int) []Sample { s := isHealthy; s.PID = pid; return []Sample{stopped(isGone), stopped(s)} }
	v, h, _ := judgeSamples(testMarker(), seen(3, isOld), back(201), back(202), back(203), back(204))
	if h.crashes() != 3 || v.Kind != RollBack {
		t.Errorf("%d crashes, %v", h.crashes(), v)
	}
}

func TestVerdict(t *testing.T) {
	crash := func(n int) []Sample { // n times: gone for a second, then two seconds with a new process id
		var out []Sample
		for i := range n {
			out = append(out, isGone)
			back := isHealthy
			back.PID = 200 + i
			out = append(out, seen(2, back)...)
		}
		return out
	}
	exits := func(n int) Sample { s := isGone; s.Exits = n; return s }
	tests := []struct {
		name  string
		parts [][]Sample
		want  Kind
		code  handoff.ReasonCode
		by    int // second of the verdict
		text  string
	}{
		{"nothing seen yet", nil, Wait, "", 0, ""},
		{"healthy for the whole grace", [][]Sample{seen(601, isHealthy)}, Commit, "", 600, ""},
		{"healthy, a second too short", [][]Sample{seen(600, isHealthy)}, Wait, "", 600, ""},
		{"the old version is replaced, then all is well", [][]Sample{seen(10, isOld), seen(2, isGone), seen(601, isHealthy)}, Commit, "", 612, ""},
		{"alive the whole grace but asked only twice", [][]Sample{seen(2, isHealthy), seen(700, justAlive)}, Wait, "", 702, ""},
		{"failed at the end of the grace", [][]Sample{seen(590, isHealthy), seen(20, alive(answer(newID, probe.Failed)))}, Wait, "", 610, ""},
		{"failed at the end, then well again", [][]Sample{
			seen(590, isHealthy), seen(20, alive(answer(newID, probe.Failed))), seen(3, isHealthy),
		}, Commit, "", 612, ""},

		{"two crashes are allowed", [][]Sample{seen(5, isHealthy), crash(2), seen(20, Sample{Alive: true, PID: 201})}, Wait, "", 40, ""},
		{
			"a third rolls back, at once",
			[][]Sample{seen(5, isHealthy), crash(3)},
			RollBack, handoff.ReasonCrashLoop, 11,
			"The process of 1.1.0-3f2a9c ended 3 times within 11s; 2 are allowed.",
		},
		{"the number changes without a gap", [][]Sample{
			seen(5, isHealthy), {{Alive: true, PID: 101}, {Alive: true, PID: 102}, {Alive: true, PID: 103}},
		}, RollBack, handoff.ReasonCrashLoop, 7, "ended 3 times"},
		{
			"the host counts ends that fall between two looks",
			[][]Sample{seen(2, isOld), {isGone, exits(1), exits(2), exits(3)}},
			RollBack, handoff.ReasonCrashLoop, 5, "ended 3 times",
		},
		{"the samples and the host count the same ends once", [][]Sample{
			seen(5, isHealthy), {exits(1)}, seen(2, Sample{Alive: true, PID: 101, Exits: 1}), {exits(2)}, seen(2, Sample{Alive: true, PID: 102, Exits: 2}),
		}, Wait, "", 20, ""},
		{"the exit for the switch is no crash", [][]Sample{seen(2, isOld), {isGone}, seen(2, isMute), crash(2)}, Wait, "", 20, ""},

		{"never a process", [][]Sample{seen(31, isGone)}, RollBack, handoff.ReasonNotStarted, 30, "no process was there for 30s"},
		{
			"gone and not started again",
			[][]Sample{seen(5, isHealthy), seen(31, isGone)},
			RollBack, handoff.ReasonCrashLoop, 35,
			"nothing started it again for 30s",
		},
		{"gone a second too short", [][]Sample{seen(5, isHealthy), seen(30, isGone), seen(2, isHealthy)}, Wait, "", 40, ""},
		{"the old version never goes", [][]Sample{seen(31, isOld)}, RollBack, handoff.ReasonNotStarted, 30, "1.0.0-9be1f0 still answered after 30s"},
		{"the old version comes back", [][]Sample{seen(5, isHealthy), seen(31, isOld)}, RollBack, handoff.ReasonWrongVersion, 35, "in place of 1.1.0"},
		{
			"a third version answers",
			[][]Sample{seen(31, alive(answer(thirdID, probe.Healthy)))},
			RollBack, handoff.ReasonWrongVersion, 30,
			"0.9.0-0a0a0a answered for 30s in place of 1.1.0-3f2a9c.",
		},
		{"another build of the same version answers", [][]Sample{
			seen(31, alive(answer(manifest.Identity{Version: "1.1.0", Hash: "ffffffff"}, probe.Healthy))),
		}, RollBack, handoff.ReasonWrongVersion, 30, "1.1.0-ffffff"},

		{
			"mute while alive",
			[][]Sample{seen(5, isHealthy), seen(31, isMute)},
			RollBack, handoff.ReasonControlLost, 35,
			"did not answer on its control socket for 30s: connection refused.",
		},
		{"mute, asked only now and then", [][]Sample{seen(5, isHealthy), {isMute}, seen(30, justAlive)}, RollBack, handoff.ReasonControlLost, 35, ""},
		{"one answer breaks the silence", [][]Sample{seen(29, isMute), {isHealthy}, seen(29, isMute), {isHealthy}}, Wait, "", 70, ""},

		{
			"failed",
			[][]Sample{seen(5, isHealthy), seen(31, alive(answer(newID, probe.Failed)))},
			RollBack, handoff.ReasonAgentFailed, 35,
			`1.1.0-3f2a9c reported FAILED for 30s ("disk is full").`,
		},
		{
			"a component that was healthy before",
			[][]Sample{seen(5, isHealthy), seen(91, alive(answer(newID, probe.Degraded, "logs")))},
			RollBack,
			handoff.ReasonComponentFailed, 95, `Component logs has failed for 1m30s under 1.1.0-3f2a9c, and was healthy under 1.0.0-9be1f0 ("exit 1").`,
		},
		{"two components that take turns", [][]Sample{
			seen(80, alive(answer(newID, probe.Degraded, "logs"))), seen(1, isHealthy), seen(80, alive(answer(newID, probe.Degraded, "metrics"))),
		}, Wait, "", 160, ""},
		{"a component that is back in time", [][]Sample{seen(5, isHealthy), seen(89, alive(answer(newID, probe.Degraded, "logs"))), seen(700, isHealthy)}, Commit, "", 600, ""},
		{"a component that failed before", [][]Sample{seen(3, isHealthy), seen(600, alive(answer(newID, probe.Degraded, "db")))}, Commit, "", 600, ""},
		{"a component that was upgraded since", [][]Sample{seen(3, isHealthy), seen(600, alive(with(answer(newID, probe.Degraded, "logs"), func(h *probe.Health) { h.Workloads[0].Version = "2.1.0" })))}, Commit, "", 600, ""},
		{"a component of which nothing is known", [][]Sample{seen(3, isHealthy), seen(600, alive(with(answer(newID, probe.Degraded, "logs"), func(h *probe.Health) { h.Workloads[0].FailedSince = time.Time{} })))}, Commit, "", 600, ""},

		{"a check of itself that the agent fails", [][]Sample{seen(5, isHealthy), seen(31, alive(failing("queue", true)))}, RollBack, handoff.ReasonAgentFailed, 35, "1.1.0-3f2a9c reported FAILED for 30s"},
		{"one that the version before failed too", [][]Sample{seen(3, isHealthy), seen(600, alive(failing("settings", true)))}, Commit, "", 600, ""},
		{"one that the host fails", [][]Sample{seen(3, isHealthy), seen(600, alive(failing("disk", false)))}, Commit, "", 600, ""},
		{"bad all the time in turns", [][]Sample{
			seen(5, isHealthy), seen(25, alive(answer(newID, probe.Failed))), seen(25, isMute), seen(25, alive(answer(newID, probe.Failed))), seen(25, isMute),
		}, RollBack, handoff.ReasonControlLost, 95, "was not well at any time for 1m30s"},

		{"degraded for ever is kept in the end", [][]Sample{seen(1400, alive(answer(newID, probe.Degraded)))}, Commit, "", 1380, ""},
		{
			"starting for ever is not",
			[][]Sample{seen(1400, alive(answer(newID, probe.Starting)))},
			RollBack, handoff.ReasonAgentFailed, 1380,
			"did not become healthy within 23m0s; at the end it reported STARTING",
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			v, h, at := judgeSamples(testMarker(), tc.parts...)
			if v.Kind != tc.want || v.Reason.Code != tc.code {
				t.Fatalf("after %d s: %v %+v, want %v %s; %s", at, v.Kind, v.Reason, tc.want, tc.code, Waiting(testMarker(), h))
			}
			if tc.want != Wait && at != tc.by {
				t.Errorf("the verdict fell after %d s, want %d", at, tc.by)
			}
			if !strings.Contains(v.Reason.Text, tc.text) {
				t.Errorf("reason is %q, want it to say %q", v.Reason.Text, tc.text)
			}
		})
	}
}

// Neither the state of the link to the server nor the DEGRADED that comes with it counts
// against the new version.
func TestServerTroubleNeverRollsBack(t *testing.T) {
	h := answer(newID, probe.Degraded)
	h.Fleet = probe.Fleet{State: probe.Failed, Error: "429 Too Many Requests"}
	v, _, at := judgeSamples(testMarker(), seen(5, isHealthy), seen(3000, alive(h)))
	if v.Kind != Commit {
		t.Errorf("verdict %v %+v after %d s, want good", v.Kind, v.Reason, at)
	}
}

func TestGapsDoNotCountAsWatched(t *testing.T) {
	at := func(s Sample, after time.Duration) Sample { s.At = noon.Add(after); return s }
	replay := func(samples ...Sample) (Verdict, History) {
		var h History
		for _, s := range samples {
			h = h.Add(testMarker(), s)
		}
		return Judge(h), h
	}
	t.Run("a silence over a suspend", func(t *testing.T) {
		v, h := replay(at(isHealthy, 0), at(isMute, time.Second), at(isMute, 3*time.Hour), at(isMute, 3*time.Hour+time.Second))
		if v.Kind != Wait || h.silent != time.Second {
			t.Errorf("verdict %v, silence %v, want a second of silence and no verdict", v, h.silent)
		}
	})
	t.Run("a grace over a suspend", func(t *testing.T) {
		v, h := replay(at(isHealthy, 0), at(isHealthy, time.Second), at(isHealthy, time.Hour), at(isHealthy, time.Hour+time.Second))
		if v.Kind != Wait || h.watched != 2*time.Second {
			t.Errorf("verdict %v, watched %v, want two seconds watched and no verdict", v, h.watched)
		}
	})
	t.Run("a clock set back", func(t *testing.T) {
		v, h := replay(at(isHealthy, 0), at(isMute, -time.Hour), at(isMute, -time.Hour+2*time.Second))
		if v.Kind != Wait || h.silent != 2*time.Second {
			t.Errorf("verdict %v, silence %v, want two seconds of silence and no verdict", v, h.silent)
		}
	})
	t.Run("a marker from last year", func(t *testing.T) {
		m := testMarker()
		m.CreatedAt = noon.AddDate(-1, 0, 0)
		if v, _, _ := judgeSamples(m, seen(5, isHealthy)); v.Kind != Wait {
			t.Errorf("verdict %v, want the whole grace to be watched", v)
		}
	})
}

// agentLife draws samples: conditions that last for a while, a process that is replaced now
// and then, and at most a few seconds between samples.
type agentLife struct {
	at   time.Time
	pid  int
	now  Sample
	left int
}

func newLife() *agentLife { return &agentLife{at: noon, pid: 100} }

func (l *agentLife) next(rt *rapid.T) Sample {
	if l.left == 0 {
		l.left = rapid.IntRange(1, 25).Draw(rt, "lasts")
		l.now = rapid.SampledFrom([]Sample{
			isHealthy, isHealthy, isHealthy, isGone, isMute, isOld, justAlive,
			alive(answer(newID, probe.Failed)), alive(answer(newID, probe.Degraded)), alive(answer(newID, probe.Starting)),
			alive(answer(newID, probe.Healthy, "logs")), alive(failing("queue", true)), alive(failing("settings", true)), alive(answer(thirdID, probe.Healthy)),
		}).Draw(rt, "sample")
		if rapid.IntRange(0, 9).Draw(rt, "replaced") == 0 {
			l.pid++
		}
	}
	l.left--
	l.at = l.at.Add(time.Duration(rapid.IntRange(1, 3000).Draw(rt, "ms")) * time.Millisecond)
	s := l.now
	s.At = l.at
	if s.Alive {
		s.PID = l.pid
	}
	return s
}

func quickRules(rt *rapid.T) handoff.Marker {
	m := testMarker()
	m.Rules.Grace = handoff.Duration(time.Duration(rapid.IntRange(1, 60).Draw(rt, "grace")) * time.Second)
	m.Rules.FailedFor = handoff.Duration(time.Duration(rapid.IntRange(1, 20).Draw(rt, "failed for")) * time.Second)
	m.Rules.MaxCrashes = rapid.IntRange(0, 4).Draw(rt, "max crashes")
	return m
}

func TestVerdictIsFinal(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, life := quickRules(rt), wholeLife{newLife(), &fleetLife{}}
		m.Rules.Checks = withChecks(2).Rules.Checks
		var h History
		var fallen Verdict
		for range rapid.IntRange(1, 120).Draw(rt, "samples") {
			h = h.Add(m, life.next(rt, m, h))
			v := Judge(h)
			if fallen.Kind != Wait && v != fallen {
				rt.Fatalf("verdict %v became %v", fallen, v)
			}
			fallen = v
			if v.Kind == RollBack && (v.Reason.Code == "" || !strings.HasSuffix(v.Reason.Text, ".")) {
				rt.Fatalf("reason %+v is not a code with a full sentence", v.Reason)
			}
		}
	})
}

// A version that answers DEGRADED is never rolled back and is committed in the end, whatever
// the state of its link.
func TestDegradedNeverRollsBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, at := quickRules(rt), noon
		var h History
		for range 400 {
			at = at.Add(time.Duration(rapid.IntRange(0, 20000).Draw(rt, "ms")) * time.Millisecond)
			s := justAlive
			if rapid.Bool().Draw(rt, "asked") {
				s.Health = answer(newID, rapid.SampledFrom([]probe.State{probe.Degraded, probe.Healthy}).Draw(rt, "state"))
				s.Health.Fleet.State = probe.Failed
			}
			s.At = at
			h = h.Add(m, s)
			if v := Judge(h); v.Kind == RollBack {
				rt.Fatalf("rolled back: %+v", v.Reason)
			}
		}
	})
}

// What the new version did not cause never rolls back, however long it lasts: checks of the agent by itself
// that failed before or that the host fails, and components that failed before, were upgraded since, were
// stopped, or of which nothing is known. Such a watch ends well.
func TestWhatTheVersionDidNotCauseNeverRollsBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := quickRules(rt)
		checks := []probe.Check{{Name: "settings", AtFault: true}, {Name: "disk"}, {Name: "queue"}, {Name: "runtime docker"}}
		workloads := []probe.Workload{
			{Name: "db", Version: "2.0.0", State: probe.Failed, FailedSince: noon},
			{Name: "logs", Version: "2.1.0", State: probe.Failed, FailedSince: noon},
			{Name: "metrics", Version: "2.0.0", State: probe.Failed},
		}
		var h History
		at := noon
		for range 300 { // more seconds than the longest watch
			a := answer(newID, probe.Degraded)
			a.Checks = checks[rapid.IntRange(0, len(checks)).Draw(rt, "first check"):]
			a.Workloads = workloads[rapid.IntRange(0, len(workloads)).Draw(rt, "first component"):]
			if slices.ContainsFunc(a.Checks, func(c probe.Check) bool { return c.AtFault }) {
				a.State = probe.Failed
			}
			for range rapid.IntRange(1, 100).Draw(rt, "seconds") {
				s := alive(a)
				s.At = at
				at = at.Add(time.Second)
				h = h.Add(m, s)
				switch v := Judge(h); v.Kind {
				case RollBack:
					rt.Fatalf("rolled back: %+v", v.Reason)
				case Commit:
					return
				}
			}
		}
		rt.Fatalf("no verdict after %v", h.total)
	})
}

// What the new version is to blame for rolls back once it has lasted, whatever fails beside it and is not.
func TestWhatTheVersionCausedRollsBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := quickRules(rt)
		a, want := failing("settings", true), handoff.ReasonAgentFailed
		lasts := time.Duration(m.Rules.FailedFor)
		if rapid.Bool().Draw(rt, "a component") {
			want, lasts = handoff.ReasonComponentFailed, componentFactor*lasts
			a.Workloads = []probe.Workload{{Name: "db", Version: "2.0.0", FailedSince: noon}, {Name: "logs", Version: "2.0.0", FailedSince: noon}}
		} else {
			a.Checks = append(a.Checks, probe.Check{Name: "queue", AtFault: true})
		}
		v, _, after := judgeSamples(m, seen(int(lasts/time.Second)+1, alive(a)))
		if v.Kind != RollBack || v.Reason.Code != want || time.Duration(after)*time.Second != lasts {
			rt.Fatalf("%v %+v after %d s, want %s after %v", v.Kind, v.Reason, after, want, lasts)
		}
	})
}

// A gap between two samples never causes a rollback that the same samples without the gap do
// not cause.
func TestGapNeverCausesARollback(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, life := quickRules(rt), newLife()
		gap := maxGap + time.Duration(rapid.IntRange(1, 100000).Draw(rt, "gap seconds"))*time.Second
		cut := rapid.IntRange(1, 60).Draw(rt, "cut")
		if rapid.Bool().Draw(rt, "backwards") {
			gap = -gap
		}
		var with, without History
		for i := range 150 {
			s := life.next(rt)
			without = without.Add(m, s)
			if i >= cut {
				s.At = s.At.Add(gap)
			}
			with = with.Add(m, s)
			if Judge(with).Kind == RollBack && Judge(without).Kind == Wait {
				rt.Fatalf("the gap of %v rolled back: %+v", gap, Judge(with).Reason)
			}
			if Judge(with).Kind == Commit && Judge(without).Kind == Wait {
				rt.Fatalf("the gap of %v shortened the watch", gap)
			}
			if Judge(without).Kind != Wait {
				return
			}
		}
	})
}

// Every watch reaches a verdict, whatever the samples.
func TestEveryWatchEnds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, life := quickRules(rt), newLife()
		var h History
		limit := limitFactor*time.Duration(m.Rules.Grace) + lostFactor*time.Duration(m.Rules.FailedFor) + switchTimeout
		for life.at.Sub(noon) <= limit+10*time.Second {
			h = h.Add(m, life.next(rt))
			if Judge(h).Kind != Wait {
				return
			}
		}
		// Only a process that was not asked yet is waited for beyond the limit,
		// and the loop asks it at the next sample.
		h = h.Add(m, Sample{At: life.at.Add(time.Second), Alive: true, PID: h.pid, Health: answer(newID, probe.Degraded)})
		if Judge(h).Kind == Wait {
			rt.Fatalf("no verdict after %v: %s", h.total, Waiting(m, h))
		}
	})
}

// Every watch reaches a verdict whatever the checks and the server do, even if a check is
// never tried.
func TestEveryWatchWithChecksEnds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, life := quickRules(rt), wholeLife{newLife(), &fleetLife{}}
		m.Rules.Checks = withChecks(2).Rules.Checks
		silent := rapid.Bool().Draw(rt, "no try ever ends")
		var h History
		limit := limitFactor*time.Duration(m.Rules.Grace) + lostFactor*time.Duration(m.Rules.FailedFor) + switchTimeout + untriedLimit
		for life.agent.at.Sub(noon) <= limit+10*time.Second {
			s := life.next(rt, m, h)
			if silent {
				s.Tries = nil
			}
			h = h.Add(m, s)
			if Judge(h).Kind != Wait {
				return
			}
		}
		h = h.Add(m, Sample{At: life.agent.at.Add(time.Second), Alive: true, PID: h.pid, Health: answer(newID, probe.Degraded)})
		if Judge(h).Kind == Wait {
			rt.Fatalf("no verdict after %v: %s", h.total, Waiting(m, h))
		}
	})
}

func TestHistoriesShareNoMemory(t *testing.T) {
	m := testMarker()
	bad := alive(answer(newID, probe.Degraded, "logs"))
	bad.At = noon
	h := History{}.Add(m, bad)
	bad.At = noon.Add(2 * time.Second)
	a, b := h.Add(m, bad), h.Add(m, bad)
	a = a.Add(m, Sample{At: noon.Add(4 * time.Second), Alive: true, PID: 100})
	if got := fmt.Sprint(h.components, b.components, a.components); got != "map[logs:0s] map[logs:2s] map[logs:4s]" {
		t.Errorf("sums are %s, want each history to keep its own", got)
	}
}

// The reason of a version that died has its last words, and the host's own trouble takes the blame off
// the version. Nothing that was known before is lost.
func TestReasonHasWhatTheHostShows(t *testing.T) {
	own := &handoff.Reason{Code: handoff.ReasonUnwritable, Text: "The host cannot write to its disk: no space left on device."}
	for _, row := range []struct {
		name string
		r    handoff.ReasonCode
		d    Diagnosis
		code handoff.ReasonCode
		says string
	}{
		{"nothing is known", handoff.ReasonCrashLoop, Diagnosis{}, handoff.ReasonCrashLoop, "It ended."},
		{"the output of one that crashed", handoff.ReasonCrashLoop, Diagnosis{Output: "panic: (oops)\n"}, handoff.ReasonCrashLoop, `It ended. Its last output: "panic: (oops)".`},
		{"the output of one that never ran", handoff.ReasonNotStarted, Diagnosis{Output: "exec format error"}, handoff.ReasonNotStarted, `It ended. Its last output: "exec format error".`},
		{"the output of one that runs", handoff.ReasonAgentFailed, Diagnosis{Output: "all is well"}, handoff.ReasonAgentFailed, "It ended."},
		{"a full disk", handoff.ReasonCrashLoop, Diagnosis{Output: "oops", Own: own}, handoff.ReasonUnwritable, `It ended. Its last output: "oops". ` + own.Text},
		{"a full disk, and a component that fails", handoff.ReasonComponentFailed, Diagnosis{Own: own}, handoff.ReasonUnwritable, "It ended. " + own.Text},
		{"a full disk, and somebody who asked", handoff.ReasonManual, Diagnosis{Own: own}, handoff.ReasonManual, "It ended."},
	} {
		got := explain(handoff.Reason{Code: row.r, Text: "It ended."}, row.d)
		if got.Code != row.code || got.Text != row.says {
			t.Errorf("%s: %s: %s", row.name, got.Code, got.Text)
		}
		if again := explain(got, Diagnosis{Own: row.d.Own}); again != got {
			t.Errorf("%s: said twice: %s", row.name, again.Text)
		}
	}
	if got := explain(handoff.Reason{Code: handoff.ReasonCrashLoop}, Diagnosis{Output: strings.Repeat("x", 1<<20)}); len(got.Text) > maxQuote+100 {
		t.Errorf("a reason has %d bytes", len(got.Text))
	}
}
