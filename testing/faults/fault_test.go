package faults

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/faults/simdisk"
)

// model is a kind of fault.
type model string

const (
	// modelKill kills the process that was about to make the call; the others,
	// and the machine, go on.
	modelKill model = "kill"
	// modelHalt ends all processes at once and keeps what they wrote.
	modelHalt model = "halt"
	// modelLose cuts the power, and all that was not synced is lost.
	modelLose model = "lose"
	// modelTorn cuts the power in every other way that simdisk knows.
	modelTorn model = "torn"
)

var models = []model{modelKill, modelHalt, modelLose, modelTorn}

// offFor is how long a host is off after its power was cut.
const offFor = time.Minute

// result is how one interrupted story came out.
type result struct {
	end   end
	wrong []string
	log   string
}

// further is an upgrade that must work on whatever host has come out of a fault.
type further struct {
	release *release
	action  string
}

// goOn has a host boot in w and waits until it is well. A story that ends badly
// is told once more with its log written.
func goOn(t *testing.T, w world, e expectation, f *further) result {
	t.Helper()
	r := tell(t, w, e, f, quiet)
	if r.end == endBad {
		var log bytes.Buffer
		again := tell(t, w, e, f, slog.New(slog.NewTextHandler(&log, nil)))
		r.log, r.wrong = log.String(), append(r.wrong, again.again())
	}
	return r
}

func tell(t *testing.T, w world, e expectation, f *further, log *slog.Logger) (r result) {
	t.Helper()
	w.fs = w.fs.Clone()
	story(t, w, log, nil, func(h *host) { r.end, r.wrong = h.come(e, f) })
	return r
}

func (r result) again() string {
	return fmt.Sprintf("(told once more with its log written, it ends %s)", r.end)
}

// come waits for a host to come out of a fault, and upgrades it to a good version
// if f is given. It returns how it came out of the fault, or that it did not, or
// cannot be upgraded any more.
func (h *host) come(e expectation, f *further) (end, []string) {
	came, wrong := h.converge(e)
	if came == endBad || f == nil {
		return came, wrong
	}
	next := expectation{action: f.action, old: e.old, new: f.release, mayKeep: true, strict: true}
	if came == endNew {
		next.old = e.new
	}
	h.server.Upgrade(f.action, f.release.install.Version)
	if how, wrong := h.converge(next); how != endNew {
		return endBad, append([]string{fmt.Sprintf("the host came out well (%s), but cannot be upgraded any more", came)}, wrong...)
	}
	return came, nil
}

// killAt tells a story in which the process that is about to make the named call
// is killed.
func killAt(t *testing.T, w world, e expectation, name string, f *further) result {
	t.Helper()
	r := tellKilled(t, w, e, name, f, quiet)
	if r.end == endBad {
		var log bytes.Buffer
		again := tellKilled(t, w, e, name, f, slog.New(slog.NewTextHandler(&log, nil)))
		r.log, r.wrong = log.String(), append(r.wrong, again.again())
	}
	return r
}

func tellKilled(t *testing.T, w world, e expectation, name string, f *further, log *slog.Logger) (r result) {
	t.Helper()
	k := &killer{name: name, seen: names{}}
	w.fs = w.fs.Clone()
	story(t, w, log, k.before, func(h *host) { r.end, r.wrong = h.come(e, f) })
	if !k.hit && r.end != endBad {
		// Two tellings took different turns, so this one proves nothing.
		return result{end: endBad, wrong: []string{"this call was not made this time: the story differs from telling to telling"}}
	}
	return r
}

// killer kills whoever is about to make a call.
type killer struct {
	name string

	mu   sync.Mutex
	seen names
	hit  bool
}

func (k *killer) before(p *process, c simdisk.Call) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.hit && k.seen.next(c) == k.name {
		k.hit = true
		p.host.log.Warn("killed", "process", p.String(), "before", k.name)
		p.kill()
	}
	return nil
}

// memo knows the results of worlds that were gone on from already: many faults
// leave the same world.
type memo struct {
	mu      sync.Mutex
	results map[key]*once
}

type once struct {
	sync.Once
	result result
}

func newMemo() *memo { return &memo{results: map[key]*once{}} }

func (m *memo) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.results)
}

// goOn tells the story of w, unless it was told.
func (m *memo) goOn(t *testing.T, w world, e expectation, f *further) result {
	t.Helper()
	k := w.key()
	if k[0][0]%furtherEvery != 0 {
		f = nil
	}
	m.mu.Lock()
	o := m.results[k]
	if o == nil {
		o = &once{}
		m.results[k] = o
	}
	m.mu.Unlock()
	o.Do(func() { o.result = goOn(t, w, e, f) })
	return o.result
}

// furtherEvery: one host in ten is upgraded further, chosen by what is on its
// disk. It doubles the time of a story.
const furtherEvery = 10

// afterCut is the world of a point after the power was cut.
func (p point) afterCut(c simdisk.Cut) world {
	w := p.world
	w.fs = w.fs.After(c)
	w.at += offFor
	return w
}

func (p point) afterHalt() world {
	w := p.world
	w.fs = w.fs.Killed()
	w.at += offFor
	return w
}

// complaint is a bad end as a person wants to read it.
func (r result) complaint(points []point, i int) string {
	return fmt.Sprintf("%s\n\ncalls around the fault:\n%s\nlog after it:\n%s", strings.Join(r.wrong, "\n"), around(points, i), r.log)
}
