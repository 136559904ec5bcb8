package faults

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// proof collects the results of the tests for the tables.
type proof struct {
	loud  bool
	began time.Time

	mu        sync.Mutex
	scenarios []*tally
	pairs     []*tally
	syncs     map[string]syncResult
}

// syncResult is the result of leaving out one sync.
type syncResult struct {
	calls int    // the number of calls in all scenarios
	found string // the first fault that ends badly without it; empty if none
	why   string // why none does, otherwise
}

func newProof(loud bool) *proof {
	return &proof{loud: loud, began: time.Now(), syncs: map[string]syncResult{}}
}

// progress prints progress.
func (f *proof) progress(format string, args ...any) {
	if f.loud {
		fmt.Fprintf(os.Stderr, "%6s  %s\n", time.Since(f.began).Round(time.Second), fmt.Sprintf(format, args...))
	}
}

// tally counts the ends of one scenario.
type tally struct {
	scenario scenario
	calls    map[string]int // by label
	cache    *cache

	mu     sync.Mutex
	faults map[model]int
	bad    int
	labels map[string]labelCount
}

type labelCount struct{ calls, faults, bad int }

func newTally(s scenario) *tally {
	return &tally{
		scenario: s, calls: map[string]int{}, cache: newCache(),
		faults: map[model]int{}, labels: map[string]labelCount{},
	}
}

// worlds is the number of different disks from which a host boots, and of the runs in which
// processes live on.
func (t *tally) worlds() int {
	n := t.cache.size()
	for m, faults := range t.faults {
		if m.livesOn() {
			n += faults
		}
	}
	return n
}

func (f *proof) scenario(s scenario, points []point) *tally {
	t := newTally(s)
	for _, p := range points[:len(points)-1] {
		if !p.call.Half {
			t.calls[p.call.Op]++
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scenarios = append(f.scenarios, t)
	return t
}

func (f *proof) pair(s scenario) *tally {
	t := newTally(s)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pairs = append(f.pairs, t)
	return t
}

func (f *proof) sync(site string, r syncResult) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.syncs[site] = r
}

func (t *tally) count(m model, p point, bad bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults[m]++
	l := t.labels[p.call.Op]
	l.faults++
	if bad {
		t.bad++
		l.bad++
	}
	t.labels[p.call.Op] = l
}

func sum[K comparable](counts map[K]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

const preamble = `# Crash proof

Written by ` + "`go tool mage proof`" + `, and compared by ` + "`go tool mage test`" + `. Every call of an upgrade that changes something, on the disk or among
processes, is interrupted or fails in each way below, and the host must come out of it by itself: with the version that the scenario
must end with, and the reason if that is the old one; exactly one agent runs, answers, and is the program that the links on the disk
would start; it is complete, nothing is pending, and the server knows the result. **Not covered:** the real exec, signals and service
manager, which are simulated; hosts without a service manager, macOS and Windows; orders in which unsynced writes may reach a disk
beyond those that ` + "`simdisk`" + ` enumerates; failing reads; three and more faults in one upgrade, and all but a sample of two.
[DESIGN.md](DESIGN.md) says how, and what is taken for granted.

- **kill**: the process that was about to make the call is killed; the others and the machine go on
- **halt**: all processes end at once; what they wrote is kept
- **lose**: the power is cut; what was not synced is lost
- **torn**: the power is cut; of what was not synced some survives, in each of the ways of ` + "`simdisk`" + `
- **eio**: the call to the disk fails with EIO, once
- **full**: the disk is full from this call on, for two minutes: all calls that need space fail with ENOSPC

Hosts have pinned a root of The Update Framework, which the publishers have replaced since, unless a scenario says otherwise.

`

// markdown returns PROOF.md. It contains no machine and no time, so that it changes only
// with the results.
func (f *proof) markdown() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	b.WriteString(preamble)
	f.scenarioTable(&b)
	f.labelTable(&b)
	f.pairTable(&b)
	f.syncTable(&b)
	return b.String()
}

func (f *proof) scenarioTable(b *strings.Builder) {
	b.WriteString("## By scenario\n\n")
	for _, t := range f.scenarios {
		variant := ""
		if t.scenario.variant {
			variant = " (*)"
		}
		fmt.Fprintf(b, "- `%s`%s: %s\n", t.scenario.name, variant, t.scenario.about)
	}
	b.WriteString("\n| scenario | calls |")
	for _, m := range models {
		fmt.Fprintf(b, " %s |", m)
	}
	b.WriteString(" faults | worlds | must end with | for a reason of | bad |\n|---|--:|")
	b.WriteString(strings.Repeat("--:|", len(models)))
	b.WriteString("--:|--:|---|---|--:|\n")
	faults, worlds, bad := 0, 0, 0
	for _, t := range f.scenarios {
		fmt.Fprintf(b, "| %s | %d |", t.scenario.name, sum(t.calls))
		for _, m := range models {
			fmt.Fprintf(b, " %d |", t.faults[m])
		}
		fmt.Fprintf(b, " %d | %d | %s | %s | %d |\n", sum(t.faults), t.worlds(), t.scenario.ends, t.scenario.allowed(), t.bad)
		faults, worlds, bad = faults+sum(t.faults), worlds+t.worlds(), bad+t.bad
	}
	fmt.Fprintf(b, "\n**%d faults, %d distinct worlds, %d bad ends.** A world is a disk from which the host boots after a fault, or a run in which processes live on: many faults leave the same disk.\n\n", faults, worlds, bad)
}

// allowed returns the reasons for an end with the old version.
func (s scenario) allowed() string {
	var all []string
	for _, r := range s.reasons {
		all = append(all, string(r))
	}
	return strings.Join(all, ", ")
}

// repeated are the labels of the records that are written again at every step of an upgrade
// or with every action. They are most of all faults, and say little that one of them does
// not.
var repeated = []string{"queue", "upgrade journal", "stage journal"}

func (f *proof) labelTable(b *strings.Builder) {
	labels := map[string]labelCount{}
	for _, t := range f.scenarios {
		for l, n := range t.calls {
			c := labels[l]
			c.calls += n
			labels[l] = c
		}
		for l, n := range t.labels {
			c := labels[l]
			c.faults, c.bad = c.faults+n.faults, c.bad+n.bad
			labels[l] = c
		}
	}
	table := func(about string, of func(label string) bool) {
		fmt.Fprintf(b, "%s\n\n| label of the call | calls | faults | bad |\n|---|--:|--:|--:|\n", about)
		var all labelCount
		for _, l := range slices.Sorted(maps.Keys(labels)) {
			if !of(l) {
				continue
			}
			c := labels[l]
			fmt.Fprintf(b, "| %s | %d | %d | %d |\n", l, c.calls, c.faults, c.bad)
			all = labelCount{all.calls + c.calls, all.faults + c.faults, all.bad + c.bad}
		}
		fmt.Fprintf(b, "| **sum** | %d | %d | %d |\n\n", all.calls, all.faults, all.bad)
	}
	isRepeated := func(l string) bool { return slices.Contains(repeated, l) }
	fmt.Fprintf(b, "## By label\n\n`go tool mage proof` runs all faults. `go tool mage test` counts all, and runs those at one in %d of the calls for repeated records, at one in %d of the other calls that fail and of those of a variant (*), and one in %d pairs.\n\n",
		repeatedStride, variantStride, pairStride)
	table("What is written once or a few times:", func(l string) bool { return !isRepeated(l) })
	table("Records that are written again at every step or with every action:", isRepeated)
}

func (f *proof) pairTable(b *strings.Builder) {
	b.WriteString("## Two faults in one upgrade\n\nThe second hits while the host comes out of the first. Sampled with a fixed seed.\n\n")
	b.WriteString("| scenario | pairs | must end with | bad |\n|---|--:|---|--:|\n")
	for _, t := range f.pairs {
		fmt.Fprintf(b, "| %s | %d | %s | %d |\n", t.scenario.name, sum(t.faults), t.scenario.ends, t.bad)
	}
}

func (f *proof) syncTable(b *strings.Builder) {
	b.WriteString("\n## Syncs left out\n\nThe model of a power cut is itself tested: without one of these syncs some fault must end badly, or it is said why none does.\n\n")
	b.WriteString("| sync | calls | without it |\n|---|--:|---|\n")
	for _, site := range slices.Sorted(maps.Keys(f.syncs)) {
		r := f.syncs[site]
		what := "bad end: `" + r.found + "`"
		if r.found == "" {
			what = "nothing: " + r.why
		}
		fmt.Fprintf(b, "| `%s` | %d | %s |\n", site, r.calls, what)
	}
}
