package faults

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/kit/simdisk"
)

// model is a kind of fault.
type model string

const (
	// modelKill kills the process that is about to make the call; the other processes
	// and the machine continue.
	modelKill model = "kill"
	// modelHalt kills all processes at once and keeps what they wrote.
	modelHalt model = "halt"
	// modelLose cuts the power and loses everything that was not synced.
	modelLose model = "lose"
	// modelTorn cuts the power in every other way that simdisk enumerates.
	modelTorn model = "torn"
	// modelEIO fails the call to the disk with EIO.
	modelEIO model = "eio"
	// modelFull fills the disk: from this call on every call that needs space fails with
	// ENOSPC, for fullFor.
	modelFull model = "full"
)

// fullFor is how long a disk stays full: longer than the watcher tries to carry out a
// verdict.
const fullFor = 2 * time.Minute

// livesOn reports whether other processes live on after the fault.
func (m model) livesOn() bool { return m == modelKill || m == modelEIO || m == modelFull }

var models = []model{modelKill, modelHalt, modelLose, modelTorn, modelEIO, modelFull}

// offFor is how long a host is off after a power cut.
const offFor = time.Minute

// result is the result of one interrupted run.
type result struct {
	end   end
	why   reason // of an end with the old version
	wrong []string
	log   string
}

// further is an upgrade that must work on a host that has recovered.
type further struct {
	release *release
	action  string
}

// resume boots a host from w and waits until it has recovered. A run that ends badly is
// repeated with its log recorded.
func resume(t *testing.T, w snapshot, e expectation, f *further) result {
	t.Helper()
	r := runFault(t, w, e, f, quiet)
	if r.end == endBad {
		var log bytes.Buffer
		again := runFault(t, w, e, f, slog.New(slog.NewTextHandler(&log, nil)))
		r.log, r.wrong = log.String(), append(r.wrong, again.again())
	}
	return r
}

func runFault(t *testing.T, w snapshot, e expectation, f *further, log *slog.Logger) (r result) {
	t.Helper()
	w.fs = w.fs.Clone()
	runHost(t, w, log, nil, func(h *host) { r = h.recover(e, f) })
	return r
}

func (r result) again() string {
	return fmt.Sprintf("(repeated with its log recorded, it ends %s)", r.end)
}

// recover waits for a host to recover from a fault, and upgrades it to a good version if f
// is given. The end is endBad if the host did not recover or cannot be upgraded.
func (h *host) recover(e expectation, f *further) result {
	came := h.converge(e)
	if came.end == endBad || f == nil {
		return came
	}
	next := expectation{action: f.action, old: e.old, new: f.release, staged: e.staged, end: endNew, strict: true}
	if came.end == endNew {
		next.old = e.new
	}
	h.server.Upgrade(f.action, f.release.install.Version)
	if r := h.converge(next); r.end == endBad {
		r.wrong = append([]string{fmt.Sprintf("the host recovered (%s), but cannot be upgraded any more", came.end)}, r.wrong...)
		return r
	}
	return came
}

// failAt runs a scenario in which the process that is about to make the named call is
// killed, or the call fails.
func failAt(t *testing.T, m model, w snapshot, e expectation, name string, f *further) result {
	t.Helper()
	r := runFailing(t, m, w, e, name, f, quiet)
	if r.end == endBad {
		var log bytes.Buffer
		again := runFailing(t, m, w, e, name, f, slog.New(slog.NewTextHandler(&log, nil)))
		r.log, r.wrong = log.String(), append(r.wrong, again.again())
	}
	return r
}

func runFailing(t *testing.T, m model, w snapshot, e expectation, name string, f *further, log *slog.Logger) (r result) {
	t.Helper()
	e.failing = m != modelKill
	k := &failer{model: m, name: name, seen: names{}}
	w.fs = w.fs.Clone()
	runHost(t, w, log, k.before, func(h *host) { r = h.recover(e, f) })
	if !k.hit && r.end != endBad {
		// The order of calls differed in this run, so it proves nothing.
		return result{end: endBad, wrong: []string{"this call was not made this time: runs differ"}}
	}
	return r
}

// failer strikes one call: it kills the process that is about to make it, or fails it.
type failer struct {
	model model
	name  string

	mu    sync.Mutex
	seen  names
	hit   bool
	until time.Time // the disk is full
}

func (k *failer) before(p *process, c simdisk.Call) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.hit && k.seen.next(c) == k.name {
		k.hit = true
		p.host.log.Warn("fault", "model", k.model, "process", p.String(), "before", k.name)
		switch k.model {
		case modelKill:
			p.kill()
		case modelEIO:
			return syscall.EIO
		case modelFull:
			k.until = time.Now().Add(fullFor)
		}
	}
	if needsSpace(c) && time.Now().Before(k.until) {
		return syscall.ENOSPC
	}
	return nil
}

// needsSpace reports whether a call fails when the disk is full.
func needsSpace(c simdisk.Call) bool { return c.Op != opExec && c.NeedsSpace() }

// fails reports whether a model has a fault at a call.
func (m model) fails(c simdisk.Call) bool {
	switch m {
	case modelEIO:
		return c.Op != opExec
	case modelFull:
		return needsSpace(c)
	}
	return true
}

// cache has the results by snapshot, since many faults leave the same snapshot.
type cache struct {
	mu      sync.Mutex
	results map[key]*cacheEntry
	disks   map[[sha256.Size]byte]bool // of the snapshots
}

type cacheEntry struct {
	sync.Once
	result result
}

func newCache() *cache {
	return &cache{results: map[key]*cacheEntry{}, disks: map[[sha256.Size]byte]bool{}}
}

// size is the number of different disks. That of snapshots differs from run to run: an agent
// reports while it acts, and either may come first.
func (m *cache) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.disks)
}

// resume counts w and returns a function that returns its result. It runs w at most once.
func (m *cache) resume(t *testing.T, w snapshot, e expectation, f *further) func() result {
	t.Helper()
	k := w.key()
	if k[0][0]%furtherEvery != 0 {
		f = nil
	}
	m.mu.Lock()
	m.disks[k[0]] = true
	o := m.results[k]
	if o == nil {
		o = &cacheEntry{}
		m.results[k] = o
	}
	m.mu.Unlock()
	return func() result {
		o.Do(func() { o.result = resume(t, w, e, f) })
		return o.result
	}
}

// furtherEvery is one in how many hosts is upgraded further, chosen by the content of its
// disk: a further upgrade doubles the time of a run.
const furtherEvery = 10

// afterCut returns the snapshot of a point after a power cut.
func (p point) afterCut(c simdisk.Cut) snapshot {
	w := p.snapshot
	w.fs = w.fs.After(c)
	w.at += offFor
	return w
}

func (p point) afterHalt() snapshot {
	w := p.snapshot
	w.fs = w.fs.Killed()
	w.at += offFor
	return w
}

// complaint formats a bad end for people.
func (r result) complaint(points []point, i int) string {
	return fmt.Sprintf("%s\n\ncalls around the fault:\n%s\nlog after it:\n%s", strings.Join(r.wrong, "\n"), around(points, i), r.log)
}
