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

	mu      sync.Mutex
	faults  map[model]int
	ends    map[end]int
	reasons map[reason]int
	labels  map[string]map[end]int
}

func newTally(s scenario) *tally {
	return &tally{
		scenario: s, calls: map[string]int{}, cache: newCache(),
		faults: map[model]int{}, ends: map[end]int{}, reasons: map[reason]int{}, labels: map[string]map[end]int{},
	}
}

// worlds is the number of different states after which a host was run. After a fault that
// leaves a process alive each run is one.
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

func (t *tally) count(m model, p point, r result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults[m]++
	t.ends[r.end]++
	if r.end == endOld {
		t.reasons[r.why]++
	}
	if t.labels[p.call.Op] == nil {
		t.labels[p.call.Op] = map[end]int{}
	}
	t.labels[p.call.Op][r.end]++
}

func sum[K comparable](counts map[K]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

const preamble = `# Crash proof

Written by ` + "`go tool mage proof`" + `. Every call of an upgrade that changes something, on the disk or among processes, is interrupted in
every way there is, and the host must come out of it by itself: exactly one whole version that the pointer leads to and that
answers, nothing pending, and the server told what became of the upgrade. [DESIGN.md](DESIGN.md) says how, and what is taken for granted.

- **kill**: the process that was about to make the call is killed; the others and the machine go on
- **halt**: all processes end at once; what they wrote is kept
- **lose**: the power is cut; what was not synced is lost
- **torn**: the power is cut; of what was not synced some survives, in each of the ways of ` + "`simdisk`" + `

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
		fmt.Fprintf(b, "- `%s`: %s\n", t.scenario.name, t.scenario.about)
	}
	b.WriteString("\n| scenario | calls |")
	for _, m := range models {
		fmt.Fprintf(b, " %s |", m)
	}
	b.WriteString(" faults | worlds | must end with | bad | reasons given |\n|---|--:|")
	b.WriteString(strings.Repeat("--:|", len(models)))
	b.WriteString("--:|--:|---|--:|---|\n")
	faults, worlds, bad := 0, 0, 0
	for _, t := range f.scenarios {
		fmt.Fprintf(b, "| %s | %d |", t.scenario.name, sum(t.calls))
		for _, m := range models {
			fmt.Fprintf(b, " %d |", t.faults[m])
		}
		fmt.Fprintf(b, " %d | %d | %s | %d | %s |\n", sum(t.faults), t.worlds(), t.scenario.ends, t.ends[endBad], t.given())
		faults, worlds, bad = faults+sum(t.faults), worlds+t.worlds(), bad+t.ends[endBad]
	}
	fmt.Fprintf(b, "\n**%d faults, %d distinct worlds, %d bad ends.** Faults that leave the same disk and server lead to the same world, which is run once.\n\n", faults, worlds, bad)
}

// given returns the reasons of the ends with the old version.
func (t *tally) given() string {
	var all []string
	for _, r := range slices.Sorted(maps.Keys(t.reasons)) {
		all = append(all, fmt.Sprintf("%s %d", r, t.reasons[r]))
	}
	return strings.Join(all, ", ")
}

// repeated are the labels of the records that are written again at every step of an upgrade
// or with every action. They are most of all faults, and say little that one of them does
// not.
var repeated = []string{"queue", "upgrade journal"}

func (f *proof) labelTable(b *strings.Builder) {
	calls, ends := map[string]int{}, map[string]map[end]int{}
	for _, t := range f.scenarios {
		for l, n := range t.calls {
			calls[l] += n
		}
		for l, counts := range t.labels {
			if ends[l] == nil {
				ends[l] = map[end]int{}
			}
			for e, n := range counts {
				ends[l][e] += n
			}
		}
	}
	table := func(about string, of func(label string) bool) {
		fmt.Fprintf(b, "%s\n\n| label of the call | calls | faults | bad |\n|---|--:|--:|--:|\n", about)
		allCalls, all := 0, map[end]int{}
		for _, l := range slices.Sorted(maps.Keys(ends)) {
			if !of(l) {
				continue
			}
			fmt.Fprintf(b, "| %s | %d | %d | %d |\n", l, calls[l], sum(ends[l]), ends[l][endBad])
			allCalls += calls[l]
			for e, n := range ends[l] {
				all[e] += n
			}
		}
		fmt.Fprintf(b, "| **sum** | %d | %d | %d |\n\n", allCalls, sum(all), all[endBad])
	}
	isRepeated := func(l string) bool { return slices.Contains(repeated, l) }
	b.WriteString("## By label\n\n")
	table("What is written once or a few times:", func(l string) bool { return !isRepeated(l) })
	table("Records that are written again at every step or with every action:", isRepeated)
}

func (f *proof) pairTable(b *strings.Builder) {
	b.WriteString("## Two faults in one upgrade\n\nThe second hits while the host comes out of the first. Sampled with a fixed seed.\n\n")
	b.WriteString("| scenario | pairs | must end with | bad |\n|---|--:|---|--:|\n")
	for _, t := range f.pairs {
		fmt.Fprintf(b, "| %s | %d | %s | %d |\n", t.scenario.name, sum(t.ends), t.scenario.ends, t.ends[endBad])
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
