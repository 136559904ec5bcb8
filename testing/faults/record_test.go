package faults

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/muster-fleet/muster/testing/fakeserver"
	"github.com/muster-fleet/muster/testing/faults/simdisk"
)

// point is a moment at which a story may be interrupted: right before a call.
type point struct {
	number int
	// name is good for a test's name, and finds the same call in another run:
	// label, call, file and how often that came before, since two processes may
	// take turns differently.
	name string
	by   string // the process that makes the call
	call simdisk.Call
	// world is as it was before the call.
	world world
}

func (p point) String() string {
	call := p.call.Name
	if p.call.Half {
		call += " (half)"
	}
	return fmt.Sprintf("%4d  %s", p.number, describe(p.by, p.call.Op, call, p.call.Path))
}

// names counts calls that look the same.
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

// recorder keeps the world before every call of a story.
type recorder struct {
	// skip says of a sync that it is to be left out.
	skip func(simdisk.Call) bool
	// then is asked after the world was kept.
	then func(*process, simdisk.Call) error

	mu     sync.Mutex
	names  names
	points []point
}

func (r *recorder) before(p *process, c simdisk.Call) error {
	r.note(p.host, p.String(), c)
	if r.skip != nil && c.Kind == simdisk.Sync && r.skip(c) {
		return simdisk.ErrSkip
	}
	if r.then != nil {
		return r.then(p, c)
	}
	return nil
}

func (r *recorder) note(h *host, by string, c simdisk.Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.points = append(r.points, point{
		number: len(r.points) + 1, name: r.names.next(c), by: by, call: c,
		world: world{fs: h.fs.Clone(), memory: h.server.Memory(), at: elapsed()},
	})
}

// record tells a story without a fault and returns every moment of it. The last
// is after the end: what was not made durable until then is lost later.
func record(t *testing.T, w world, e expectation, skip func(simdisk.Call) bool) (end, []point) {
	t.Helper()
	return recordWith(t, w, e, skip, nil)
}

// recordWith is record with faults in it: then is asked before every call.
func recordWith(t *testing.T, w world, e expectation, skip func(simdisk.Call) bool, then func(*process, simdisk.Call) error) (end, []point) {
	t.Helper()
	r := &recorder{skip: skip, then: then, names: names{}}
	w.fs = w.fs.Clone()
	var how end
	var wrong []string
	story(t, w, quiet, r.before, func(h *host) {
		how, wrong = h.converge(e)
		r.note(h, "nobody", simdisk.Call{Op: "the end", Name: "rest", Path: top})
	})
	if how == endBad {
		t.Fatalf("the story to be interrupted does not end well by itself:\n%s", strings.Join(wrong, "\n"))
	}
	return how, r.points
}

// around are the calls before and after the i-th, from 0.
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

// key tells apart worlds from which a story goes on differently.
type key [2][sha256.Size]byte

func (w world) key() key {
	type memory struct {
		Checkins []fakeserver.Checkin
		Acks     any
	}
	m := memory{Acks: w.memory.Acks()}
	if c := w.memory.Checkins(); len(c) > 0 {
		m.Checkins = c[len(c)-1:] // nobody looks at earlier ones
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic("faults: what came as JSON is none any more: " + err.Error())
	}
	return key{w.fs.Sum(), sha256.Sum256(b)}
}
