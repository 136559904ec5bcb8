package faults

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/fakeserver"
	"github.com/muster-fleet/muster/testing/kit/simdisk"
)

// point is a point at which a run is interrupted, just before a call.
type point struct {
	number int
	// name is a test's name that identifies the same call in another run: label, call,
	// file and a count. The order of calls of different processes may differ.
	name string
	by   string // the process that makes the call
	call simdisk.Call
	// snapshot is the state before the call.
	snapshot snapshot
	// taped is the number of calls on the tape before it.
	taped int
}

func (p point) String() string {
	call := p.call.Name
	if p.call.Half {
		call += " (half)"
	}
	return fmt.Sprintf("%4d  %s", p.number, describe(p.by, p.call.Op, call, p.call.Path))
}

// names counts calls with the same name.
type names map[string]int

func (n names) next(c simdisk.Call) string {
	call := c.Name
	if c.Half {
		call += " half"
	}
	s := strings.NewReplacer(" ", "-", "/", "_").Replace(fmt.Sprintf("%s.%s.%s", c.Op, call, path.Base(c.Path)))
	n[s]++
	return fmt.Sprintf("%s.%d", s, n[s])
}

// recorder records a snapshot before every call of a run.
type recorder struct {
	// skip reports whether to leave out a sync.
	skip   func(simdisk.Call) bool
	script script
	// then is called after the snapshot, and may return a fault.
	then func(*process, simdisk.Call) error

	mu     sync.Mutex
	names  names
	points []point
}

func (r *recorder) before(p *process, c simdisk.Call) error {
	r.add(p.host, p.String(), c)
	if r.skip != nil && c.Kind == simdisk.Sync && r.skip(c) {
		return simdisk.ErrSkip
	}
	if r.then != nil {
		return r.then(p, c)
	}
	return nil
}

func (r *recorder) add(h *host, by string, c simdisk.Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := snapshot{server: h.server.State(), at: elapsed(), script: r.script}
	w.script.staged = h.staged.Load()
	w.serverSum = sync.OnceValue(func() [sha256.Size]byte { return serverSum(w.server) })
	var taped int
	w.fs, taped = h.fs.Snapshot()
	r.points = append(r.points, point{number: len(r.points) + 1, name: r.names.next(c), by: by, call: c, snapshot: w, taped: taped})
}

// recording is a scenario that was run once without a fault, for all tests.
type recording struct {
	scenario    scenario
	begin       snapshot
	expectation expectation
	points      []point
	tape        *simdisk.Tape
}

// recorded returns the recording of a scenario, which it makes at most once.
func (k *kit) recorded(t *testing.T, s scenario) *recording {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.recordings[s.name]; r != nil {
		return r
	}
	r := &recording{scenario: s}
	r.begin, r.expectation = s.begin(t, k)
	w := r.begin
	w.fs = w.fs.Clone()
	r.tape = w.fs.Record()
	r.points = recordOn(t, w, r.expectation, nil, nil)
	k.recordings[s.name] = r
	return r
}

// without returns the points of the recording without some syncs. The programs are not run
// again: they do not notice a missing sync.
func (r *recording) without(skip func(simdisk.Call) bool) []point {
	points := slices.Clone(r.points)
	taped := make([]int, len(points))
	for i, p := range points {
		taped[i] = p.taped
	}
	for i, f := range r.tape.Play(taped, skip) {
		points[i].snapshot.fs = f
	}
	return points
}

// record runs a scenario without a fault and returns all its points. The last one is after
// the end, where data that is still not durable may be lost.
func record(t *testing.T, w snapshot, e expectation, skip func(simdisk.Call) bool) []point {
	t.Helper()
	return recordWith(t, w, e, skip, nil)
}

// recordWith is record with a function that is called before every call.
func recordWith(t *testing.T, w snapshot, e expectation, skip func(simdisk.Call) bool, then func(*process, simdisk.Call) error) []point {
	t.Helper()
	w.fs = w.fs.Clone()
	return recordOn(t, w, e, skip, then)
}

// recordOn is recordWith on the disk of w itself.
func recordOn(t *testing.T, w snapshot, e expectation, skip func(simdisk.Call) bool, then func(*process, simdisk.Call) error) []point {
	t.Helper()
	r := &recorder{skip: skip, then: then, names: names{}, script: w.script}
	var how result
	runHost(t, w, quiet, r.before, func(h *host) {
		how = h.converge(e)
		r.add(h, "nobody", simdisk.Call{Op: "the end", Name: "rest", Path: top})
	})
	if how.end == endBad {
		t.Fatalf("the scenario does not end well without a fault:\n%s", strings.Join(how.wrong, "\n"))
	}
	return r.points
}

// around formats the calls around points[i].
func around(points []point, i int) string {
	var b strings.Builder
	first := max(0, i-8)
	for n, p := range points[first:min(len(points), i+4)] {
		mark := "  "
		if first+n == i {
			mark = "→ "
		}
		fmt.Fprintf(&b, "%s%s\n", mark, p)
	}
	return b.String()
}

// key identifies what a snapshot's future depends on.
type key [2][sha256.Size]byte

func (w snapshot) key() key {
	k := key{w.fs.Sum()}
	if w.serverSum == nil {
		k[1] = serverSum(w.server)
	} else {
		k[1] = w.serverSum()
	}
	if w.script.staged {
		k[1][0]++
	}
	return k
}

func serverSum(s fakeserver.State) [sha256.Size]byte {
	type server struct {
		Checkins []fakeserver.Checkin
		Acks     any
	}
	m := server{Acks: s.Acks()}
	if c := s.Checkins(); len(c) > 0 {
		m.Checkins = c[len(c)-1:] // earlier ones have no influence
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic("faults: cannot encode the server's state: " + err.Error())
	}
	return sha256.Sum256(b)
}
