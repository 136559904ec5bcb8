package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

var bearersAt = time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)

func TestSharedBy(t *testing.T) {
	at := func(minutes float64) time.Time { return bearersAt.Add(time.Duration(minutes * float64(time.Minute))) }
	b := func(name string, since, again float64) Bearer {
		return Bearer{ProcessID: name, Hostname: name, Since: at(since), Again: at(again)}
	}
	for _, c := range []struct {
		name    string
		bearers []Bearer
		now     float64
		want    string
	}{
		{"nobody", nil, 0, ""},
		{"one host", []Bearer{b("a", 0, 0)}, 100, ""},
		{"a restart", []Bearer{b("a", 0, 0), b("b", 5, 5)}, 6, ""},
		{"a restart, and a late request of the process before it", []Bearer{b("a", 0, 5.4), b("b", 5, 5.9)}, 6, ""},
		{"a snapshot was restored in place of what ran since", []Bearer{b("a", 0, 60), b("b", 5, 5)}, 61, ""},
		{"two at once", []Bearer{b("a", 0, 6.5), b("b", 5, 6)}, 7, "a b"},
		{"the copy came first into the list", []Bearer{b("b", 5, 6), b("a", 0, 6.5)}, 7, "a b"},
		{"three at once", []Bearer{b("a", 0, 9), b("b", 5, 9), b("c", 6, 9)}, 9, "a b c"},
		{"two at once, and a process that ended", []Bearer{b("x", 0, 0), b("a", 1, 9), b("b", 5, 9)}, 9, "a b"},
		{"one of them has gone", []Bearer{b("a", 0, 20), b("b", 5, 9)}, 19.1, ""},
		{"both are away, as at the last check-in", []Bearer{b("a", 0, 10), b("b", 5, 9)}, 10, "a b"},
	} {
		var got []string
		for _, s := range SharedBy(c.bearers, at(c.now)) {
			got = append(got, s.Hostname)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: the identity is shared by %v, want %q", c.name, got, c.want)
		}
	}
}

// machine is a host in the tests: what it reports at a check-in.
type machine struct{ id, boot, process, name, version string }

// checksIn is a check-in of the machine, whose metadata the document takes over if it follows it.
func (m machine) checksIn(a *Agent, now time.Time) (changed, follows bool) {
	if changed, follows = a.ObserveBearer(m.bearer(), now); follows {
		a.LocalMetadata = fmt.Appendf(nil, `{"elastic":{"agent":{"upgradeable":true}},"host":{"id":%q}}`, m.id)
	}
	return changed, follows
}

func (m machine) bearer() Bearer {
	h := HostMetadata{}
	h.Host.ID, h.Host.Hostname, h.Elastic.Agent.Version = m.id, m.name, m.version
	if m.process == "" {
		return BearerOf(nil, &h)
	}
	return BearerOf(&agentapi.Instance{BootID: m.boot, ProcessID: m.process}, &h)
}

// One host that restarts, reboots, is renamed, is upgraded and rolled back, with requests of an ended
// process that arrive late, is never two, and none of that delays its orders. Only a new id of its
// machine does, until it was alone with it for a minute.
func TestOneHostIsNeverTwoBearers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		elastic := rapid.Bool().Draw(t, "elastic")
		next := 0
		id := func(kind string) string {
			next++
			if elastic {
				return ""
			}
			return fmt.Sprint(kind, next)
		}
		m := machine{"m", id("boot"), id("process"), "web-1", "1.0.0"}
		now, a := bearersAt, Agent{ID: "a"}
		moved := false // to a machine with another id
		observe := func(m machine) {
			_, follows := m.checksIn(&a, now)
			if a.SharedSince != nil || (!follows || a.Withholds(agentapi.ActionUpgrade)) && !moved {
				t.Fatalf("one host is taken for several: %s", a.SharedText())
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			before := m
			switch rapid.SampledFrom([]string{"check in", "restart", "reboot", "rename", "upgrade", "roll back", "new machine id"}).Draw(t, "what") {
			case "restart":
				m.process = id("process")
			case "reboot":
				m.boot, m.process = id("boot"), id("process")
			case "rename":
				m.name = rapid.SampledFrom([]string{"web-1", "web-2", ""}).Draw(t, "name")
			case "upgrade":
				m.version, m.process = "1.1.0", id("process")
			case "roll back":
				m.version, m.process = "1.0.0", id("process")
			case "new machine id":
				next++
				m.id, m.process, moved = fmt.Sprint("m", next), id("process"), true
			}
			observe(m)
			for range rapid.IntRange(0, 3).Draw(t, "late") { // what the server has of the process before
				now = now.Add(time.Duration(rapid.IntRange(0, 10).Draw(t, "seconds")) * time.Second)
				observe(before)
				observe(m)
			}
			now = now.Add(time.Duration(rapid.IntRange(1, 900).Draw(t, "pause")) * time.Second)
			observe(m)
			if moved { // and a late request of the other machine may have begun the minute anew
				now = now.Add(overlap)
				observe(m)
				now, moved = now.Add(overlap), false
				observe(m)
			}
		}
	})
}

// Two hosts with one identity that both check in are found while both do, the document follows one
// of them alone, both are named, and the agent gets no orders. When one has gone, it is a host like
// others again.
func TestTwoBearersAreFoundAndTheDocumentFollowsOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := machine{"m1", "boot-1", "process-1", "web-1", "1.0.0"}
		second := first
		second.name, second.boot, second.process = "web-1-clone", "boot-2", "process-2"
		switch rapid.SampledFrom([]string{"clone", "new machine id", "same name", "elastic", "containers"}).Draw(t, "kind") {
		case "new machine id":
			second.id = "m2"
		case "same name":
			second.name = first.name
		case "elastic":
			first.process, first.boot, second.process, second.boot, second.id = "", "", "", "", "m2"
		case "containers": // on one kernel
			second.boot = first.boot
		}
		now, a := bearersAt, Agent{ID: "a", Active: true}
		writes := 0
		for range rapid.IntRange(1, 20).Draw(t, "alone") {
			changed, _ := first.checksIn(&a, now)
			if changed {
				writes++
			}
			now = now.Add(5 * time.Minute)
		}
		if writes != 1 {
			t.Fatalf("a host alone has %d writes", writes)
		}
		longest := rapid.IntRange(1, 280).Draw(t, "longest pause") // two of them are within sharedFor
		began := now
		for a.SharedSince == nil {
			for _, m := range []machine{second, first} {
				_, follows := m.checksIn(&a, now)
				if first.id != second.id && longest < 30 && (!a.Withholds(agentapi.ActionUpgrade) || follows != (m == first)) {
					t.Fatalf("after %s of two machines, orders are delivered or the document follows %s: %v", now.Sub(began), m.name, follows)
				}
				now = now.Add(time.Duration(rapid.IntRange(1, longest).Draw(t, "pause")) * time.Second)
			}
			if now.Sub(began) > 2*time.Minute+4*time.Duration(longest)*time.Second {
				t.Fatalf("after %s they are not found: %+v", now.Sub(began), a.Bearers)
			}
		}
		writes, began = 0, now
		for now.Sub(began) < time.Hour {
			for _, m := range []machine{second, first} {
				changed, follows := m.checksIn(&a, now)
				if changed {
					writes++
				}
				if follows != (m == first) {
					t.Fatalf("the document follows %s: %v", m.name, follows)
				}
				if text := a.SharedText(); !strings.Contains(text, "2 hosts") || !strings.Contains(text, first.name) || !strings.Contains(text, second.name) {
					t.Fatalf("it says %q", text)
				}
				now = now.Add(time.Duration(rapid.IntRange(1, longest).Draw(t, "pause")) * time.Second)
			}
		}
		if limit := int(now.Sub(began)/bearerRest)*2 + 2; writes > limit {
			t.Fatalf("there are %d writes in an hour, at most %d are expected", writes, limit)
		}
		if err := a.checkAble(); err == nil || !strings.Contains(err.Error(), "muster-agent enroll") {
			t.Fatalf("an order is refused with %v", err)
		}
		for range 5 { // the first has enrolled again, or has gone
			now = now.Add(5 * time.Minute)
			second.checksIn(&a, now)
		}
		if _, follows := second.checksIn(&a, now); a.SharedSince != nil || !follows || a.checkAble() != nil {
			t.Fatalf("the host that is left is still one of several: %s", a.SharedText())
		}
	})
}

// From the first check-in of another machine on, nothing is delivered to the agent, and its document
// stays that of the machine that was there first. A machine that was alone for a minute is the one.
func TestNewMachineGetsOrdersOnceItIsAlone(t *testing.T) {
	a1, b1 := machine{"m1", "boot-1", "p1", "web-1", "1.0.0"}, machine{"m2", "boot-2", "p2", "web-1", "1.0.0"}
	b2 := b1
	b2.process = "p3" // restarted
	elasticA, elasticB := machine{id: "m1", name: "web-1", version: "9.0.0"}, machine{id: "m2", name: "web-1", version: "9.0.0"}
	unknown := machine{boot: "boot-1", process: "p4", name: "web-1", version: "1.0.0"}
	type step struct {
		at      int // seconds
		m       machine
		follows bool
		holds   bool
	}
	for name, c := range map[string]struct {
		enrolled string // the machine's id
		steps    []step
	}{
		"reinstalled, with its state":       {"m1", []step{{0, a1, true, false}, {600, b1, false, true}, {630, b1, false, true}, {660, b1, true, false}, {661, b1, true, false}}},
		"restarted meanwhile":               {"m1", []step{{0, a1, true, false}, {600, b1, false, true}, {630, b2, false, true}, {661, b2, true, false}}},
		"a late request of the other":       {"m1", []step{{0, a1, true, false}, {600, b1, false, true}, {605, a1, true, true}, {635, b1, false, true}, {690, b1, false, true}, {695, b1, true, false}}},
		"away for a day":                    {"m1", []step{{0, a1, true, false}, {86400, b1, false, true}, {2 * 86400, b1, true, false}}},
		"and back":                          {"m1", []step{{0, a1, true, false}, {600, b1, false, true}, {700, b1, true, false}, {800, a1, false, true}, {860, a1, true, false}}},
		"the second goes at once":           {"m1", []step{{0, a1, true, false}, {600, b1, false, true}, {601, a1, true, true}, {659, a1, true, true}, {661, a1, true, false}}},
		"both come often":                   {"m1", []step{{0, a1, true, false}, {300, b1, false, true}, {329, a1, true, true}, {330, b1, false, true}, {331, a1, true, true}, {361, b1, false, true}, {390, a1, true, true}}},
		"an image that was enrolled":        {"image", []step{{0, a1, false, true}, {59, a1, false, true}, {60, a1, true, false}}},
		"the first check-in":                {"m1", []step{{0, a1, true, false}}},
		"a machine without an id":           {"m1", []step{{0, a1, true, false}, {600, unknown, true, false}}},
		"enrolled before it had an id":      {"", []step{{0, b1, true, false}}},
		"Elastic's agent on a new machine":  {"m1", []step{{0, elasticA, true, false}, {600, elasticB, false, true}, {660, elasticB, true, false}}},
		"two of Elastic's":                  {"m1", []step{{0, elasticA, true, false}, {600, elasticB, false, true}, {630, elasticA, true, true}, {660, elasticB, false, true}, {690, elasticA, true, true}}},
		"one of Elastic's without metadata": {"m1", []step{{0, elasticA, true, false}, {600, elasticB, false, true}, {601, machine{}, true, true}, {661, machine{}, true, false}}},
	} {
		a := Agent{ID: "a", Active: true, LocalMetadata: fmt.Appendf(nil, `{"host":{"id":%q}}`, c.enrolled)}
		for n, s := range c.steps {
			_, follows := s.m.checksIn(&a, bearersAt.Add(time.Duration(s.at)*time.Second))
			if follows != s.follows || a.Withholds(agentapi.ActionUpgrade) != s.holds {
				t.Errorf("%s: at step %d, after %d s, the document follows: %v, orders wait: %v", name, n, s.at, follows, a.Withholds(agentapi.ActionUpgrade))
			}
			if a.Withholds(agentapi.ActionCancel) || a.Withholds(agentapi.ActionUnenroll) {
				t.Errorf("%s: at step %d a cancellation or the end of the identity waits", name, n)
			}
			if (a.NewHostSince != nil) != (a.NewHostText() != "") {
				t.Errorf("%s: at step %d it says %q", name, n, a.NewHostText())
			}
			if a.NewHostSince != nil && a.Stable() {
				t.Errorf("%s: at step %d its check-ins are taken for duplicates", name, n)
			}
		}
	}
}

func TestBearersOfADocumentAreBounded(t *testing.T) {
	now, a := bearersAt, Agent{ID: "a"}
	for i := range 100 {
		a.ObserveBearer(machine{"m", "boot", fmt.Sprint("process-", i), "web-1", "1.0.0"}.bearer(), now)
		if now = now.Add(time.Second); len(a.Bearers) > maxBearers {
			t.Fatalf("there are %d", len(a.Bearers))
		}
	}
	now = now.Add(2 * bearerFor)
	a.ObserveBearer(machine{"m", "boot", "last", "web-1", "1.0.0"}.bearer(), now)
	if len(a.Bearers) != 2 || a.Bearers[0].ProcessID != "process-99" {
		t.Errorf("after a rest there are %+v", a.Bearers)
	}
}

func TestHostsOfOneNameAreToldApart(t *testing.T) {
	same := Bearer{ProcessID: "0123456789", Hostname: "web-1", MachineID: "abcdefghij", BootID: "boot-one-1", Since: bearersAt, Again: bearersAt.Add(time.Hour)}
	for want, change := range map[string]func(*Bearer){
		"web-1 (machine abcdefgh) and web-1 (machine without an id)": func(b *Bearer) { b.MachineID = "" },
		"web-1 (boot boot-one) and web-1 (boot boot-two)":            func(b *Bearer) { b.BootID = "boot-two-2" },
		"web-1 (process 01234567) and web-1 (process other)":         func(*Bearer) {},
		"web-1 and a host without a name":                            func(b *Bearer) { b.Hostname = "" },
	} {
		other := same
		other.ProcessID = "other"
		change(&other)
		a := Agent{Bearers: []Bearer{same, other}, SharedSince: &bearersAt}
		if got := a.SharedText(); !strings.HasSuffix(got, ": "+want) {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
