package component

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/probe"
)

// look is a sample at a time since the start of the version.
type look struct {
	at       time.Duration
	down     bool
	unready  bool
	restarts int
	fails    bool // the one check
	unknown  bool // the runtime does not answer
	stopped  bool // by somebody
}

// sample is the look as a sample.
func (l look) sample(began time.Time) sample {
	s := sample{at: began.Add(l.at), status: runtime.Status{Running: !l.down, Ready: !l.down && !l.unready, Restarts: l.restarts}}
	switch {
	case l.unknown:
		s.status, s.unknown = runtime.Status{Message: "no answer"}, true
	case l.stopped:
		s.status = runtime.Status{Stopped: true}
	case l.down:
		s.status.Message, s.status.Ended = "exit status 1", "exit status 1"
	case l.fails:
		s.checks = []error{errors.New("503")}
	default:
		s.checks = []error{nil}
	}
	return s
}

// every returns looks like l from a time to another, one a second.
func every(from, to time.Duration, l look) []look {
	var out []look
	for l.at = from; l.at <= to; l.at += time.Second {
		out = append(out, l)
	}
	return out
}

// always is a runtime whose components run.
type always struct{ runtime.Adapter }

func (always) Status(context.Context, *runtime.Release) (runtime.Status, error) {
	return runtime.Status{Running: true, Ready: true}, nil
}

// Nobody has signed the checks of a policy, so they have rules of their own.
func TestChecksOfThePolicyAreRunAsSuch(t *testing.T) {
	signed, policys := errors.New("as the package's"), errors.New("as the policy's")
	m := &Manager{Options: Options{
		Check:       func(context.Context, string, manifest.Check) error { return signed },
		PolicyCheck: func(context.Context, manifest.Check) error { return policys },
	}}
	policy := agentapi.ComponentHealth{Checks: []agentapi.ComponentCheck{{Name: "p", TCP: ":1"}}}
	action := agentapi.ComponentHealth{Checks: []agentapi.ComponentCheck{{Name: "a", TCP: ":2"}}}
	for _, of := range [][]manifest.Check{nil, {{Name: "s", TCP: ":3"}}} {
		rules := newRules(of, merged(policy, action))
		s := m.sample(t.Context(), always{}, &runtime.Release{}, &rules)
		if want := append(slices.Repeat([]error{signed}, len(of)), policys, policys); !slices.Equal(s.checks, want) {
			t.Errorf("with %d checks of the package they are run %v, want %v", len(of), s.checks, want)
		}
	}
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
		{"a runtime that answers late", [][]look{{{unknown: true}}, every(time.Second, 20*time.Second, look{restarts: 7})}, good, wait, ""},
		{"a runtime that is killed and comes back", [][]look{every(0, 4*time.Second, look{}), every(5*time.Second, 60*time.Second, look{unknown: true}), every(61*time.Second, 70*time.Second, look{})}, good, 61 * time.Second, ""},
		{"a runtime that does not come back", [][]look{every(0, 4*time.Second, look{}), every(5*time.Second, 5*time.Minute, look{unknown: true})}, bad, 5*time.Second + silentTolerance, "its runtime has not answered for 1m30s: no answer"},
		{"down after the runtime was away", [][]look{every(0, 4*time.Second, look{}), every(5*time.Second, 30*time.Second, look{unknown: true}), every(31*time.Second, 60*time.Second, look{down: true})}, bad, 31 * time.Second, "it does not run: exit status 1"},
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
					o.add(l.sample(began), &rules)
					v, why := o.judge(&rules, now)
					if v == undecided {
						continue
					}
					if v != c.want || l.at != c.at || !strings.Contains(why.text, c.why) || (why.code == "") != (v == good) {
						t.Errorf("verdict %d (%s) after %s, want %d (%s) after %s", v, why, l.at, c.want, c.why, c.at)
					}
					return
				}
			}
			t.Error("no verdict")
		})
	}
}

// A component that runs, but is restarted by itself more often than a new version may be, is
// degraded until that is long enough ago.
func TestHealthOfAComponentThatIsRestarted(t *testing.T) {
	rules := Rules{MaxRestarts: 2, Checks: []manifest.Check{{Name: "page", Threshold: 3}}}
	// looks are in steps of observeEvery; counter has what the runtime has counted at each.
	looks := func(counter ...int) (out []look) {
		for i, n := range counter {
			out = append(out, look{at: time.Duration(i) * observeEvery, restarts: n})
		}
		return out
	}
	down, unknown := look{at: 25 * time.Second, down: true, restarts: 7}, look{at: 25 * time.Second, unknown: true}
	for _, c := range []struct {
		name  string
		looks []look
		after time.Duration // since the first look
		want  probe.State
		says  string
	}{
		{"restarts as allowed", looks(0, 1, 2), 20 * time.Second, probe.Healthy, ""},
		{"one too many", looks(0, 1, 3), 20 * time.Second, probe.Degraded, "it was restarted 3 times in the last 5 min"},
		{"those before the agent looked", looks(7, 7, 8), 20 * time.Second, probe.Healthy, ""},
		{"with how it ended", append(looks(4, 6, 7), down, look{at: 30 * time.Second, restarts: 11}), 30 * time.Second, probe.Degraded, "it was restarted 7 times in the last 5 min: exit status 1"},
		{"one that is down", append(looks(4, 6, 7), down), 25 * time.Second, probe.Failed, "it does not run: exit status 1"},
		{"an operator's restart, after which runtimes count from zero", looks(7, 0, 0), 20 * time.Second, probe.Healthy, ""},
		{"restarts after an operator's", looks(7, 1, 3), 20 * time.Second, probe.Degraded, "it was restarted 3 times"},
		{"a runtime that does not answer for a while", append(looks(7, 7, 8), unknown, look{at: 30 * time.Second, restarts: 8}), 30 * time.Second, probe.Healthy, ""},
		{"three within the window", looks(0, 1, 2, 3), restartWindow, probe.Degraded, "it was restarted 3 times"},
		{"three, the first longer ago", looks(0, 1, 2, 3), restartWindow + observeEvery, probe.Healthy, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			began := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
			var o observation
			for _, l := range c.looks {
				o.add(l.sample(began), &rules)
			}
			if state, says := o.health(&rules, began.Add(c.after)); state != c.want || says != c.says && !(c.says != "" && strings.HasPrefix(says, c.says)) {
				t.Errorf("it is %s: %q, want %s: %q", state, says, c.want, c.says)
			}
		})
	}
}

// It is asked again and again, so what it keeps is bounded.
func TestComponentThatHasFailed(t *testing.T) {
	rules := Rules{MaxRestarts: 2, Checks: []manifest.Check{{Name: "page", Threshold: 3}}}
	began := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	const never = -1
	for _, c := range []struct {
		what  string
		looks []look
		since time.Duration
	}{
		{"nothing is known of it", nil, never},
		{"it runs", []look{{}, {at: 10 * time.Second}}, never},
		{"it does not run", []look{{}, {at: 10 * time.Second, down: true}, {at: 20 * time.Second, down: true}}, 10 * time.Second},
		{"it runs again", []look{{}, {at: 10 * time.Second, down: true}, {at: 20 * time.Second, restarts: 1}}, never},
		{"somebody has stopped it", []look{{}, {at: 10 * time.Second, stopped: true}}, never},
		{"its runtime is silent", []look{{}, {at: 10 * time.Second, down: true}, {at: 20 * time.Second, unknown: true}}, never},
		{"its check fails", []look{{}, {at: 10 * time.Second, fails: true}, {at: 20 * time.Second, fails: true}, {at: 30 * time.Second, fails: true}}, never},
		{"it is restarted as often as may be", []look{{}, {at: 10 * time.Second, restarts: 1}, {at: 20 * time.Second, restarts: 2}}, never},
		{"it is restarted again and again", []look{{}, {at: 10 * time.Second, restarts: 2}, {at: 20 * time.Second, restarts: 3}, {at: 49 * time.Second, restarts: 3}}, 10 * time.Second},
		{"it is steady since", []look{{}, {at: 10 * time.Second, restarts: 2}, {at: 20 * time.Second, restarts: 3}, {at: 50 * time.Second, restarts: 3}}, never},
	} {
		o := observation{began: began}
		now := began
		for _, l := range c.looks {
			s := l.sample(began)
			now = s.at
			o.add(s, &rules)
		}
		want := time.Time{}
		if c.since != never {
			want = began.Add(c.since)
		}
		if got := o.failedSince(&rules, now); !got.Equal(want) {
			t.Errorf("%s: it has failed since %v, want %v", c.what, got, want)
		}
	}
}

func TestWhoIsToBlameForARuntimeThatDoesNotAnswer(t *testing.T) {
	refused := fmt.Errorf("look for container web: %w: client version 1.24 is too old", runtime.ErrRefused)
	away := fmt.Errorf("the Docker engine is away, %w: connection refused", runtime.ErrTransient)
	damaged := errors.New("process.json: unexpected end")
	for _, c := range []struct {
		err    error
		own    bool
		silent time.Duration
		agent  bool
	}{
		{refused, false, silentTolerance, true},
		{refused, false, silentTolerance - time.Second, false}, // an engine that is being upgraded
		{away, false, 24 * time.Hour, false},
		{context.DeadlineExceeded, false, 24 * time.Hour, false},
		{runtime.ErrUnavailable, false, 24 * time.Hour, false},
		{damaged, false, 24 * time.Hour, false},
		{damaged, true, silentTolerance, true},
		{syscall.EIO, true, 24 * time.Hour, false},
	} {
		if got := atFault(c.err, c.own, c.silent); got != c.agent {
			t.Errorf("%v for %v, own %v: the agent is at fault: %v", c.err, c.silent, c.own, got)
		}
	}
}

func TestRestartsOfAYearAreNotKept(t *testing.T) {
	began, rules := time.Now(), Rules{}
	var o observation
	for i := range 10_000 {
		o.add(sample{at: began.Add(time.Duration(i) * observeEvery), status: runtime.Status{Running: true, Restarts: i}}, &rules)
	}
	if n := len(o.recent); n > int(restartWindow/observeEvery) {
		t.Errorf("%d restarts are kept", n)
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
