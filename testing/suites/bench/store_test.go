//go:build linux

package bench

import (
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/checkin"
)

// Environment variables that make the measurement smaller. STORES.md is written only
// without them, and with both stores.
const (
	fleetVariable  = "MUSTER_BENCH_FLEET"   // agents of the large fleet
	atOnceVariable = "MUSTER_BENCH_AT_ONCE" // agents that act at the same time
	timesVariable  = "MUSTER_BENCH_TIMES"   // repetitions of sequential calls
	rowsVariable   = "MUSTER_BENCH_ROWS"    // a regular expression for the rows to measure
)

// extent is the size of the measurement.
type extent struct {
	fleet, atOnce, times int
	rows                 *regexp.Regexp
	whole                bool // no variable is set
}

func extentOf(b *testing.B) extent {
	b.Helper()
	e := extent{whole: true}
	number := func(variable string, standard int) int {
		text := os.Getenv(variable)
		if text == "" {
			return standard
		}
		e.whole = false
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			b.Fatalf("%s is %q, want a number above 0", variable, text)
		}
		return n
	}
	e.fleet, e.atOnce, e.times = number(fleetVariable, 100_000), number(atOnceVariable, 500), number(timesVariable, 200)
	pattern := os.Getenv(rowsVariable)
	var err error
	if e.rows, err = regexp.Compile(pattern); err != nil {
		b.Fatalf("%s: %v", rowsVariable, err)
	}
	e.whole = e.whole && pattern == ""
	return e
}

// few returns the repetitions of calls that wait for the feed or take a second themselves.
func (e extent) few() int { return min(e.times, 20) }

// BenchmarkStores makes all measurements of both stores once. In a CPU profile the servers
// have the label who=server.
func BenchmarkStores(b *testing.B) {
	e := extentOf(b)
	var t comparison
	head := fmt.Sprintf(storesHead, thisMachine(), loadAverage(), e.times, e.few(), e.atOnce, e.fleet)
	for _, k := range []kind{embedded, elasticsearch} {
		b.Run(k.name, func(b *testing.B) {
			for b.Loop() {
				t.measure(b, k, e)
			}
		})
	}
	if !b.Failed() && len(t.measured) > 0 {
		t.report(b, head, e.whole && len(t.measured) == 2)
	}
}

const storesHead = `# What the stores cost

The real server over TLS on loopback, one on the embedded store and two on Elasticsearch, and agents that speak the protocol, all
in one process. Elasticsearch is one node with a small heap on the same processors. %s; the load average was %s when it began.
Written by ` + "`go tool mage bench`" + `: %d of each, %d of what takes half a second or more, %d agents at once, a fleet of %d.

A check-in is over when what it said is durable and it is parked: then the server ends the poll the agent had before. CPU is the
processor's time for each, of the process with servers and agents, and of Elasticsearch. Requests to Elasticsearch are counted
afterwards, by a proxy before a third server; what a server asks for by itself is taken off.

`

// loadAverage returns the load of the last minute. If it exceeds the number of cores, other
// programs have affected the figures.
func loadAverage() string {
	var minute string
	_, _ = fmt.Sscan(string(must(os.ReadFile("/proc/loadavg"))), &minute)
	return minute
}

// figure is one measurement.
type figure struct {
	name string
	// times is the number of repetitions for the time, counted that for the requests.
	times, counted int
	// prepare prepares n repetitions and returns a function that performs them. Agents and
	// operators use different servers if there are two.
	prepare func(s *site, people, agents *server, n int) func() timing
	// needsFleet means that it queries the large fleet; needsTwo, that agents and operators
	// must use different servers; waits, that most of its time is waiting.
	needsFleet, needsTwo, waits bool
}

// timing is the result of a figure.
type timing struct {
	each []time.Duration
	// took is the total time of n concurrent calls; 0 for sequential calls.
	took time.Duration
	n    int
	// part is a part of each time, which has its own row, partName.
	partName string
	part     []time.Duration
	// cpu is the CPU time of each call, if it is significant.
	cpu string
}

// enrolTogether is how many hosts enrol at the same time.
const enrolTogether = 16

func figures(e extent) []figure {
	few := e.few()
	kept := min(e.times, 50) // counts do not vary
	all := []figure{
		{name: "enrol", times: e.times, counted: kept, prepare: enrolments(1)},
		{name: fmt.Sprintf("enrol, %d at once", enrolTogether), times: e.atOnce, counted: 4 * enrolTogether, prepare: enrolments(enrolTogether)},
		{name: "check-in that says nothing new", times: e.times, counted: kept, prepare: checkIns(saysNothing)},
		{name: "check-in that changes the agent", times: e.times, counted: kept, prepare: checkIns(saysDocument)},
		{name: "check-in that changes its status", times: e.times, counted: kept, prepare: checkIns(saysStatus)},
		{name: fmt.Sprintf("check-in that changes the agent, %d at once", e.atOnce), times: e.atOnce, counted: e.atOnce, prepare: checkInsAtOnce},
		{name: "action ordered → received at another server", times: few, counted: few, prepare: deliveries, needsTwo: true, waits: true},
		{name: "action ordered → received at the same server", times: few, prepare: deliveriesAtHome, waits: true},
		{name: fmt.Sprintf("action for %d → received, on Elasticsearch at another server", e.atOnce), times: e.atOnce, counted: e.atOnce, prepare: deliveryToAll, waits: true},
		{name: "acknowledgement", times: min(e.times, e.atOnce), counted: kept, prepare: acknowledgements(false)},
		{name: fmt.Sprintf("acknowledgement, %d at once", e.atOnce), times: e.atOnce, counted: e.atOnce, prepare: acknowledgements(true)},
	}
	for _, q := range []struct{ name, path string }{
		{"status counts of %d agents", statusPath},
		{"page of 20 of %d agents, `" + euOnline + "`", "/api/fleet/agents?perPage=20&kuery=" + url.QueryEscape(euOnline)},
		{"count of %d agents, `" + euOnline + "`", "/api/fleet/agents?perPage=0&kuery=" + url.QueryEscape(euOnline)},
	} {
		all = append(all, figure{name: fmt.Sprintf(q.name, e.fleet), times: few, counted: 3, prepare: queries(q.path), needsFleet: true})
	}
	return slices.DeleteFunc(all, func(f figure) bool { return !e.rows.MatchString(f.name) })
}

// withCPU adds to a timing the CPU time of this process, which runs the servers and the
// agents, and of the node.
func (s *site) withCPU(do func() timing) timing {
	s.Helper()
	spent := func() (own, node time.Duration) {
		own = cpu(s.B, os.Getpid())
		if s.node != nil {
			node = cpu(s.B, s.node.Node(0).PID())
		}
		return own, node
	}
	own, node := spent()
	got := do()
	ownAfter, nodeAfter := spent()
	n := time.Duration(max(got.n, len(got.each)))
	if got.cpu = spell((ownAfter - own) / n); s.node != nil {
		got.cpu += " + " + spell((nodeAfter-node)/n)
	}
	return got
}

// measure measures all figures of one store.
func (t *comparison) measure(b *testing.B, k kind, e extent) {
	s := newSite(b, k)
	defer s.close()
	first := s.start(s.address)
	second := first // the embedded store belongs to one server
	if k == elasticsearch {
		second = s.start(s.address)
	}
	// A warm-up, since programs are slow just after their start, above all Java.
	s.park(first, s.enrolled(first, e.atOnce))
	s.calm(first)
	all := figures(e)
	for _, f := range all {
		if f.needsTwo && first == second {
			continue
		}
		if f.needsFleet && s.fleet == nil {
			got := s.withCPU(func() timing { return s.load(first, e.fleet) })
			t.add(fmt.Sprintf("fleet of %d written by the store's own calls", e.fleet), k, got)
		}
		do := f.prepare(s, first, second, f.times)
		got := s.withCPU(do)
		if f.waits {
			got.cpu = ""
		}
		t.add(f.name, k, got)
		s.calm(first)
	}
	if s.node != nil {
		s.stop(first)
		s.stop(second)
		t.count(s, all, e)
	}
	t.measured = append(t.measured, k)
}

// quietTime is how long the requests of an idle server are counted: its loops poll each
// half second, or each few seconds.
const quietTime = 10 * time.Second

// count counts the requests of all figures to Elasticsearch.
func (t *comparison) count(s *site, all []figure, e extent) {
	proxy := s.proxy()
	server := s.start(proxy.Access())
	requests := func(f func()) (made map[string]float64, took time.Duration) {
		before, began := proxy.Counts(), time.Now()
		f()
		made, took = map[string]float64{}, time.Since(began)
		for kind, n := range proxy.Counts() {
			made[kind] = float64(n - before[kind])
		}
		return made, took
	}
	idle, took := requests(func() { time.Sleep(quietTime) })
	// caused returns the requests of a figure, without those of an idle server, divided by n.
	caused := func(made map[string]float64, during time.Duration, n float64) map[string]float64 {
		for kind := range made {
			made[kind] = (made[kind] - idle[kind]*during.Seconds()/took.Seconds()) / n
		}
		return made
	}
	for _, f := range all {
		if f.counted == 0 {
			continue
		}
		do := f.prepare(s, server, server, f.counted)
		time.Sleep(checkin.FlushInterval) // so that writes of the preparation are flushed
		made, during := requests(func() { do() })
		t.requests(f.name, caused(made, during, float64(f.counted)))
		s.calm(server)
	}
	const parked = "agent parked, each minute"
	if e.rows.MatchString(parked) {
		s.park(server, s.enrolled(server, e.atOnce))
		time.Sleep(checkin.FlushInterval)
		made, during := requests(func() { time.Sleep(checkin.RetouchInterval) })
		t.requests(parked, caused(made, during, float64(e.atOnce)*during.Minutes()))
		s.hangUp()
		for kind := range idle {
			idle[kind] /= took.Minutes()
		}
		t.requests("server that nobody talks to, each minute", idle)
	}
}
