package watch

import (
	"testing"
	"time"

	"github.com/muster-fleet/muster/watcher/handoff"
)

// launchd starts a job at most once every 10 s: one that ends earlier is missing for the rest of
// them, and one that ran longer is started at once. services.AgentLaunchd says so too.
const launchdThrottle = 10

// underLaunchd returns the samples of an agent that ends after each of lives, in seconds, until the
// last one, during which it stays. Its first process replaces that of the old version.
func underLaunchd(s Sample, lives ...int) []Sample {
	samples := seen(3, isOld)
	for i, life := range lives {
		s.PID = 200 + i
		samples = append(samples, seen(life, s)...)
		if i < len(lives)-1 {
			// Samples are a second apart, so that one finds no process even if it is back at once.
			samples = append(samples, seen(max(1, launchdThrottle-life), isGone)...)
		}
	}
	return samples
}

func TestLaunchdRestartsAreJudgedInTime(t *testing.T) {
	for _, test := range []struct {
		name    string
		samples []Sample
		want    Kind
		code    handoff.ReasonCode
		by      int // second of the verdict, at the latest
	}{
		{"the switch, as one process", underLaunchd(isHealthy, 610), Commit, "", 610},
		{"a crash right after a start", underLaunchd(isHealthy, 1, 620), Commit, "", 620},
		{"two crashes by chance", underLaunchd(isHealthy, 40, 3, 640), Commit, "", 640},
		{"an operator's restart by launchctl", underLaunchd(isHealthy, 300, 400), Commit, "", 620},

		{"it ends before it is seen", underLaunchd(isHealthy, 0, 0, 0, 0, 0, 0), RollBack, handoff.ReasonNotStarted, 40},
		{"it ends before it answers", underLaunchd(isMute, 1, 1, 1, 1, 1, 1), RollBack, handoff.ReasonCrashLoop, 40},
		{"it answers and ends", underLaunchd(isHealthy, 2, 2, 2, 2, 2), RollBack, handoff.ReasonCrashLoop, 40},
		{"it ends after the throttle, so that it is started at once", underLaunchd(isHealthy, 15, 15, 15, 15), RollBack, handoff.ReasonCrashLoop, 60},
		{"it ends every minute", underLaunchd(isHealthy, 60, 60, 60, 60), RollBack, handoff.ReasonCrashLoop, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			v, _, second := judgeSamples(testMarker(), test.samples)
			if v.Kind != test.want || v.Reason.Code != test.code || second > test.by {
				t.Errorf("%v at second %d (%s), want %v with %q by second %d", v.Kind, second, v.Reason.Text, test.want, test.code, test.by)
			}
		})
	}
	// The longest absence of a restart must not count as a version that does not start.
	if limit := handoff.DefaultFailedFor; limit < 2*launchdThrottle*time.Second {
		t.Errorf("a version that is missing for %s is rolled back, and launchd takes %d s to start it", limit, launchdThrottle)
	}
}
