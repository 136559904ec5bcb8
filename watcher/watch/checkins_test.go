package watch

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

const serverURL = "https://fleet.example.com:8220"

// way is one second of the agent's and the watcher's connection to the server.
type way struct {
	state   probe.State
	failed  int // tries in a row
	status  int
	checkin int // seconds after noon of its last check-in; 0 means never
	url     string
	server  Contact
}

func (w way) sample() Sample {
	h := answer(newID, probe.Degraded)
	h.Fleet = probe.Fleet{URL: w.url, State: w.state, FailedTries: w.failed, LastStatus: w.status, Error: "no way there"}
	if w.url == "" {
		h.Fleet.URL = serverURL
	}
	if w.checkin > 0 {
		at := noon.Add(time.Duration(w.checkin) * time.Second)
		h.Fleet.LastCheckin = &at
	}
	s := alive(h)
	s.Server = w.server
	return s
}

// offlineFor returns the samples of an agent that does not reach its server and tries
// again every 20 s, while the watcher's beacon every 30 s is accepted. change may change
// each second.
func offlineFor(seconds int, change func(second int, w *way)) []Sample {
	out := make([]Sample, seconds)
	for i := range out {
		w := way{state: probe.Degraded, failed: 1 + i/20, checkin: 1, server: Contact{URL: serverURL}}
		if i%30 == 0 {
			w.server.Good = 1
		}
		if change != nil {
			change(i, &w)
		}
		out[i] = w.sample()
	}
	return out
}

func TestVerdictOnLostCheckins(t *testing.T) {
	at := func(from int, change func(w *way)) func(int, *way) {
		return func(i int, w *way) {
			if i >= from {
				change(w)
			}
		}
	}
	always := func(change func(w *way)) func(int, *way) { return at(0, change) }
	tests := []struct {
		name string
		part []Sample
		want Kind
		by   int
		text string
	}{
		{"the watcher reaches the server, the agent does not", offlineFor(400, nil), RollBack, 181, "has not reached its server for 3m0s, while the watcher reached it 6 times: 9 check-ins failed (\"no way there\")."},
		{"a key that is refused", offlineFor(400, always(func(w *way) { w.status = 401 })), RollBack, 181, "3m0s"},
		{"it does not try", offlineFor(400, always(func(w *way) { w.state, w.failed, w.checkin = probe.Starting, 0, 0 })), RollBack, 180, "it did not try"},
		{"a second too short", offlineFor(181, nil), Wait, 0, ""},

		{"an open poll counts as reaching the server", offlineFor(599, always(func(w *way) { w.state, w.failed = probe.Healthy, 0 })), Wait, 0, ""},
		{"check-ins succeed now and then", offlineFor(599, func(i int, w *way) { w.checkin, w.failed = 1+i/150, i%150/20 }), Wait, 0, ""},
		{"no credential of the watcher", offlineFor(599, always(func(w *way) { w.server = Contact{} })), Wait, 0, ""},
		{"the watcher cannot reach the server either", offlineFor(599, func(i int, w *way) { w.server.Good, w.server.Bad = 0, w.server.Good }), Wait, 0, ""},
		{"no beacon ends", offlineFor(599, func(i int, w *way) { w.server.Good = 0 }), Wait, 0, ""},
		{"one beacon, then none", offlineFor(599, at(1, func(w *way) { w.server.Good = 0 })), Wait, 0, ""},
		{"a beacon fails now and then", offlineFor(599, func(i int, w *way) {
			if i%150 == 149 {
				w.server.Bad = 1
			}
		}), Wait, 0, ""},
		{"two beacons in three minutes are too few", offlineFor(400, func(i int, w *way) {
			if w.server.Good = 0; i%85 == 0 {
				w.server.Good = 1
			}
		}), RollBack, 255, "reached it 3 times"},
		{"beacons too far apart prove nothing", offlineFor(599, func(i int, w *way) {
			if w.server.Good = 0; i%100 == 0 {
				w.server.Good = 1
			}
		}), Wait, 0, ""},
		{"it tried before the first beacon, and waits since", offlineFor(599, always(func(w *way) { w.failed = 7 })), Wait, 0, ""},
		{"another server than the watcher's", offlineFor(599, always(func(w *way) { w.url = "https://other.example.com" })), Wait, 0, ""},
		{"the same server, spelled with a slash", offlineFor(400, always(func(w *way) { w.url = serverURL + "/" })), RollBack, 181, ""},
		{"the server is busy", offlineFor(599, always(func(w *way) { w.status = 429 })), Wait, 0, ""},
		{"the server is broken", offlineFor(599, always(func(w *way) { w.status = 503 })), Wait, 0, ""},
		{"broken once in three minutes", offlineFor(599, func(i int, w *way) {
			if i%150 == 149 {
				w.status = 500
			}
		}), Wait, 0, ""},
		{"it waits to try again after the server was away", offlineFor(599, func(i int, w *way) {
			if w.failed = 7; i < 60 {
				w.server.Good, w.server.Bad = 0, w.server.Good
			}
		}), Wait, 0, ""},
		{"its answers could not be stored", offlineFor(599, always(func(w *way) { w.failed = 0 })), Wait, 0, ""},
		{"an agent that does not report its tries", offlineFor(599, always(func(w *way) { w.failed, w.checkin = 0, 0 })), Wait, 0, ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			v, h, by := judgeSamples(testMarker(), tc.part)
			if v.Kind != tc.want || (tc.want == RollBack && v.Reason.Code != handoff.ReasonCheckinLost) {
				t.Fatalf("after %d s: %v %+v, want %v; %+v", by, v.Kind, v.Reason, tc.want, h.connection)
			}
			if tc.want == RollBack && by != tc.by {
				t.Errorf("the verdict fell after %d s, want %d", by, tc.by)
			}
			if !strings.Contains(v.Reason.Text, tc.text) {
				t.Errorf("reason is %q, want it to say %q", v.Reason.Text, tc.text)
			}
		})
	}

	t.Run("a loss that begins at the end of the grace delays the commit", func(t *testing.T) {
		healthy := alive(answer(newID, probe.Healthy))
		late := offlineFor(400, nil)
		for i := range late {
			late[i].Health.State = probe.Healthy
		}
		v, _, by := judgeSamples(testMarker(), seen(500, healthy), late)
		if v.Kind != RollBack || v.Reason.Code != handoff.ReasonCheckinLost || by < 660 {
			t.Errorf("after %d s: %v %+v, want a rollback because of the loss", by, v.Kind, v.Reason)
		}
	})
}

// fleetLife draws an agent's connection to its server with faults of all kinds, and the
// watcher's connection. serverOnly draws no fault of the agent alone: every failure of the
// agent is then the server's refusal, or the watcher's beacons fail as well.
type fleetLife struct {
	serverOnly bool
	left       int
	trouble    string
	failed     int
	checkin    *time.Time
}

func (l *fleetLife) next(rt *rapid.T, s Sample) Sample {
	if l.left == 0 {
		l.left = rapid.IntRange(1, 200).Draw(rt, "trouble lasts")
		troubles := []string{"none", "none", "server busy", "server down", "network"}
		if !l.serverOnly {
			troubles = append(troubles, "key refused", "does not try", "tls")
		}
		l.trouble = rapid.SampledFrom(troubles).Draw(rt, "trouble")
	}
	l.left--
	s.Server.URL = serverURL
	beacon := rapid.IntRange(0, 9).Draw(rt, "beacon") == 0
	if s.Health == nil {
		return s
	}
	h := *s.Health
	h.Fleet = probe.Fleet{URL: serverURL, State: probe.Degraded}
	if l.trouble != "does not try" && rapid.IntRange(0, 4).Draw(rt, "tries") == 0 {
		l.failed++
	}
	good := true
	switch l.trouble {
	case "none":
		l.failed = 0
		h.Fleet.State = probe.Healthy
		if beacon {
			at := s.At
			l.checkin = &at
		}
	case "server busy":
		h.Fleet.LastStatus = 429
	case "server down":
		h.Fleet.LastStatus, good = 503, false
	case "network":
		good, beacon = false, true
	case "key refused":
		h.Fleet.LastStatus = 401
	case "does not try":
		h.Fleet.State, l.failed, l.checkin = probe.Starting, 0, nil
	}
	if beacon && good {
		s.Server.Good = 1
	} else if beacon {
		s.Server.Bad = 1
	}
	h.Fleet.FailedTries, h.Fleet.LastCheckin = l.failed, l.checkin
	s.Health = &h
	return s
}

// A version that is well otherwise is never rolled back because of a server that refuses or
// cannot be reached.
func TestServerFaultsAloneNeverRollBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, fleet, at := quickRules(rt), &fleetLife{serverOnly: true}, noon
		var h History
		for range 400 {
			at = at.Add(time.Duration(rapid.IntRange(0, 20000).Draw(rt, "ms")) * time.Millisecond)
			s := alive(answer(newID, rapid.SampledFrom([]probe.State{probe.Degraded, probe.Healthy}).Draw(rt, "state")))
			s.At = at
			h = h.Add(m, fleet.next(rt, s))
			if v := Judge(h); v.Kind == RollBack {
				rt.Fatalf("rolled back: %+v", v.Reason)
			}
		}
	})
}

// Without a credential of the watcher the state of the agent's link is ignored.
func TestLostCheckinsAreIgnoredWithoutACredential(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, fleet, at := quickRules(rt), &fleetLife{}, noon
		var h History
		for range 300 {
			at = at.Add(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "ms")) * time.Millisecond)
			s := alive(answer(newID, probe.Degraded))
			s.At = at
			s = fleet.next(rt, s)
			s.Server = Contact{}
			h = h.Add(m, s)
			if v := Judge(h); v.Kind == RollBack {
				rt.Fatalf("rolled back: %+v", v.Reason)
			}
		}
	})
}

// A version that has lost its server for longer than the rule is rolled back if the watcher's
// reports are accepted, for every interval of its tries up to a third of the rule's time.
func TestLostCheckinsRollBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := testMarker()
		pace := rapid.IntRange(1, 60).Draw(rt, "seconds between tries")
		status := rapid.SampledFrom([]int{0, 400, 401, 403, 404}).Draw(rt, "status")
		offset := rapid.IntRange(0, 29).Draw(rt, "second of the first beacon")
		v, h, by := judgeSamples(m, offlineFor(599, func(i int, w *way) {
			w.failed, w.status, w.server.Good = 1+i/pace, status, 0
			if i%30 == offset {
				w.server.Good = 1
			}
		}))
		if v.Kind != RollBack || v.Reason.Code != handoff.ReasonCheckinLost {
			rt.Fatalf("after %d s: %v %+v; %+v", by, v.Kind, v.Reason, h.connection)
		}
	})
}
