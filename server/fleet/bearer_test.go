package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/agentapi"
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

func (m machine) bearer() Bearer {
	h := HostMetadata{}
	h.Host.ID, h.Host.Hostname, h.Elastic.Agent.Version = m.id, m.name, m.version
	if m.process == "" {
		return BearerOf(nil, &h)
	}
	return BearerOf(&agentapi.Instance{BootID: m.boot, ProcessID: m.process}, &h)
}

// One host that restarts, reboots, is renamed, is upgraded and rolled back, with requests of an ended
// process that arrive late, is never two.
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
		observe := func(m machine) {
			_, follows := a.ObserveBearer(m.bearer(), now)
			if a.SharedSince != nil || !follows {
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
				m.id = fmt.Sprint("m", next)
			}
			observe(m)
			for range rapid.IntRange(0, 3).Draw(t, "late") { // what the server has of the process before
				now = now.Add(time.Duration(rapid.IntRange(0, 10).Draw(t, "seconds")) * time.Second)
				observe(before)
				observe(m)
			}
			now = now.Add(time.Duration(rapid.IntRange(1, 900).Draw(t, "pause")) * time.Second)
			observe(m)
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
		now, a := bearersAt, Agent{ID: "a", Active: true, LocalMetadata: []byte(`{"elastic":{"agent":{"upgradeable":true}}}`)}
		writes := 0
		for range rapid.IntRange(1, 20).Draw(t, "alone") {
			changed, _ := a.ObserveBearer(first.bearer(), now)
			if changed {
				writes++
			}
			now = now.Add(5 * time.Minute)
		}
		if writes != 1 {
			t.Fatalf("a host alone has %d writes", writes)
		}
		longest := rapid.IntRange(1, 300).Draw(t, "longest pause")
		began := now
		for a.SharedSince == nil {
			for _, m := range []machine{second, first} {
				a.ObserveBearer(m.bearer(), now)
				now = now.Add(time.Duration(rapid.IntRange(1, longest).Draw(t, "pause")) * time.Second)
			}
			if now.Sub(began) > 2*time.Minute+4*time.Duration(longest)*time.Second {
				t.Fatalf("after %s they are not found: %+v", now.Sub(began), a.Bearers)
			}
		}
		writes, began = 0, now
		for now.Sub(began) < time.Hour {
			for _, m := range []machine{second, first} {
				changed, follows := a.ObserveBearer(m.bearer(), now)
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
			a.ObserveBearer(second.bearer(), now)
		}
		if _, follows := a.ObserveBearer(second.bearer(), now); a.SharedSince != nil || !follows || a.checkAble() != nil {
			t.Fatalf("the host that is left is still one of several: %s", a.SharedText())
		}
	})
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
