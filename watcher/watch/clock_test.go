package watch

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/watcher/handoff"
)

// jump draws a clock jump or a sleep of the host between two samples: mostly none,
// otherwise up to fifty years in either direction.
func jump(rt *rapid.T) time.Duration {
	if rapid.IntRange(0, 15).Draw(rt, "jumps") > 0 {
		return 0
	}
	const year = 365 * 24 * time.Hour
	by := time.Duration(rapid.SampledFrom([]int64{
		int64(maxGap) + 1, int64(time.Minute), int64(time.Hour), int64(24 * time.Hour), int64(year), int64(50 * year),
	}).Draw(rt, "jump"))
	if rapid.Bool().Draw(rt, "backwards") {
		return -by
	}
	return by
}

// wholeLife draws everything that a watch observes of an agent: processes, health, checks,
// and the connections of the agent and the watcher to the server.
type wholeLife struct {
	agent *agentLife
	fleet *fleetLife
}

func (l wholeLife) next(rt *rapid.T, m handoff.Marker, h History) Sample {
	s := l.fleet.next(rt, l.agent.next(rt))
	for i := range m.Rules.Checks {
		if rapid.IntRange(0, 5).Draw(rt, "try ends") == 0 {
			s.Tries = append(s.Tries, Try{Check: i, Life: h.Life(), Err: rapid.SampledFrom([]string{"", "", "refused"}).Draw(rt, "result")})
		}
	}
	return s
}

// Clock jumps and sleep of the host cause no rollback and no earlier commit, at any time of
// the watch.
func TestClockJumpsNeverDecide(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, life := quickRules(rt), wholeLife{newLife(), &fleetLife{}}
		m.Rules.Checks = withChecks(2).Rules.Checks
		var with, without History
		var off time.Duration
		for range 250 {
			s := life.next(rt, m, without)
			without = without.Add(m, s)
			off += jump(rt)
			s.At = s.At.Add(off)
			with = with.Add(m, s)
			now, plain := Judge(with), Judge(without)
			if now.Kind != Wait && plain.Kind == Wait {
				rt.Fatalf("a time jump changed the verdict: %v %+v", now.Kind, now.Reason)
			}
			if plain.Kind != Wait {
				return
			}
		}
	})
}

// A version is committed only after the whole grace was watched, without clock jumps and the
// time in which the host slept or was off.
func TestWholeGraceIsWatched(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := quickRules(rt)
		m.CreatedAt = noon.AddDate(rapid.IntRange(-50, 50).Draw(rt, "marker's age in years"), 0, 0)
		var h History
		at, watched, looks := noon, time.Duration(0), 0
		for range 300 {
			gap := time.Duration(rapid.IntRange(1, 5000).Draw(rt, "ms")) * time.Millisecond
			if j := jump(rt); j != 0 {
				at = at.Add(j)
			} else if looks > 0 {
				watched += gap
				at = at.Add(gap)
			}
			s := isHealthy
			s.At = at
			looks++
			h = h.Add(m, s)
			switch v := Judge(h); v.Kind {
			case Commit:
				if watched < time.Duration(m.Rules.Grace) || looks < minHealthy {
					rt.Fatalf("committed after %v in %d samples, the grace is %s", watched, looks, m.Rules.Grace)
				}
				return
			case RollBack:
				rt.Fatalf("a healthy version was rolled back: %+v", v.Reason)
			}
		}
	})
}

// A sleep, a reboot or a clock jump restarts the time after which lost check-ins roll back.
func TestSleepRestartsTheCheckinComparison(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour, 20 * 365 * 24 * time.Hour, -20 * 365 * 24 * time.Hour} {
		m := testMarker()
		before, after := offlineFor(150, nil), offlineFor(599, nil)
		var h History
		for i, s := range before {
			s.At = noon.Add(time.Duration(i) * time.Second)
			h = h.Add(m, s)
		}
		if h.connection.lost < 2*time.Minute {
			t.Fatalf("lost for %v before the jump", h.connection.lost)
		}
		begin := noon.Add(150*time.Second + by)
		for i, s := range after {
			s.At = begin.Add(time.Duration(i) * time.Second)
			// The count of its failed tries continues.
			f := *s.Health
			f.Fleet.FailedTries += 7
			s.Health = &f
			h = h.Add(m, s)
			if Judge(h).Kind == Wait {
				continue
			}
			if i < 180 || Judge(h).Reason.Code != handoff.ReasonCheckinLost {
				t.Errorf("a jump by %v: %+v after %d s", by, Judge(h).Reason, i)
			}
			break
		}
		if Judge(h).Kind != RollBack {
			t.Errorf("a jump by %v: no verdict; %+v", by, h.connection)
		}
	}
}
