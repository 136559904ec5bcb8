package component

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/manifest"
)

// look is a sample at a time since the start of the version.
type look struct {
	at       time.Duration
	down     bool
	unready  bool
	restarts int
	fails    bool // the one check
}

// every returns looks like l from a time to another, one a second.
func every(from, to time.Duration, l look) []look {
	var out []look
	for l.at = from; l.at <= to; l.at += time.Second {
		out = append(out, l)
	}
	return out
}

func TestVerdictOnANewVersion(t *testing.T) {
	const wait = 10 * time.Second
	rules := Rules{Wait: wait, MaxRestarts: 2, Checks: []manifest.Check{{Name: "page", Threshold: 3}}}
	for _, c := range []struct {
		name  string
		looks [][]look
		want  verdict
		at    time.Duration
		why   string
	}{
		{"good", [][]look{every(0, 20*time.Second, look{})}, good, wait, ""},
		{"the check passes late", [][]look{every(0, 9*time.Second, look{fails: true}), every(10*time.Second, 20*time.Second, look{})}, good, wait, ""},
		{"the check never passes", [][]look{every(0, 20*time.Second, look{fails: true})}, bad, wait, "check page fails: 503"},
		{"the check passed and fails for good", [][]look{every(0, 2*time.Second, look{}), every(3*time.Second, 20*time.Second, look{fails: true})}, bad, 5 * time.Second, "check page fails"},
		{"one failure in between", [][]look{every(0, 2*time.Second, look{}), {{at: 3 * time.Second, fails: true}}, every(4*time.Second, 20*time.Second, look{})}, good, wait, ""},
		{"one failure at the end of the wait", [][]look{every(0, 9*time.Second, look{}), {{at: wait, fails: true}}, every(11*time.Second, 20*time.Second, look{})}, good, 11 * time.Second, ""},
		{"failures from the end of the wait on", [][]look{every(0, 9*time.Second, look{}), every(wait, 20*time.Second, look{fails: true})}, bad, 12 * time.Second, "check page fails"},
		{"restarts as allowed", [][]look{every(0, 4*time.Second, look{}), every(5*time.Second, 20*time.Second, look{restarts: 2})}, good, wait, ""},
		{"one restart too many", [][]look{every(0, 4*time.Second, look{}), every(5*time.Second, 20*time.Second, look{restarts: 3})}, bad, 5 * time.Second, "crash loop: it was restarted 3 times within 5s"},
		{"down for a moment", [][]look{{{down: true}}, every(time.Second, 20*time.Second, look{})}, good, wait, ""},
		{"down at the end of the wait", [][]look{every(0, 8*time.Second, look{}), every(9*time.Second, 20*time.Second, look{down: true})}, bad, wait, "it does not run: exit status 1"},
		{"not ready in time", [][]look{every(0, 20*time.Second, look{unready: true})}, bad, wait, "it is not ready"},
	} {
		t.Run(c.name, func(t *testing.T) {
			began := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
			o := observation{began: began}
			for _, looks := range c.looks {
				for _, l := range looks {
					now := began.Add(l.at)
					s := sample{at: now, status: runtime.Status{Running: !l.down, Ready: !l.down && !l.unready, Restarts: l.restarts}}
					switch {
					case l.down:
						s.status.Message = "exit status 1"
					case l.fails:
						s.checks = []error{errors.New("503")}
					default:
						s.checks = []error{nil}
					}
					o.add(s, &rules)
					v, why := o.judge(&rules, now)
					if v == undecided {
						continue
					}
					if v != c.want || l.at != c.at || !strings.Contains(why, c.why) {
						t.Errorf("verdict %d (%s) after %s, want %d (%s) after %s", v, why, l.at, c.want, c.why, c.at)
					}
					return
				}
			}
			t.Error("no verdict")
		})
	}
}

// A component that stays down is bad before the end of its wait.
func TestDownForTooLongEndsTheWait(t *testing.T) {
	rules := Rules{Wait: time.Hour}
	began := time.Now()
	o := observation{began: began}
	for at := time.Duration(0); ; at += time.Second {
		o.add(sample{at: began.Add(at)}, &rules)
		if v, _ := o.judge(&rules, began.Add(at)); v == bad {
			if at != downTolerance {
				t.Errorf("bad after %s, want %s", at, downTolerance)
			}
			return
		}
		if at > time.Minute {
			t.Fatal("no verdict")
		}
	}
}
