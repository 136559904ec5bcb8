package faults

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/prooffile"
	"github.com/muster-fleet/muster/testing/kit/simdisk"
)

const defaultSeed = 1

// seed chooses the pairs of faults; `-args -seed 7` tries others.
var seed = flag.Uint64("seed", defaultSeed, "chooses which pairs of faults are tried")

var found = newProof(whole)

func TestMain(m *testing.M) {
	flag.Parse()
	// Each run leaves a host and its disk as garbage. Collecting it rarely saves a tenth
	// of the time.
	debug.SetGCPercent(400)
	code := m.Run()
	if code == 0 && (whole || allRun()) {
		if err := prooffile.WriteOrCompare(found.markdown()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// allRun reports whether all tests have run, so that the tables are complete.
func allRun() bool {
	return flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "" && *seed == defaultSeed
}

// Every scenario runs without a fault, and then once for every call in it and every way
// to be interrupted there.
func TestHostRecoversFromEveryFault(t *testing.T) {
	k := sharedKit(t)
	next := k.further(t)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			r := k.recorded(t, s)
			w, e, points := r.begin, r.expectation, r.points
			if len(points) < 50 {
				t.Fatalf("only %d calls: is the disk still handed in everywhere?", len(points))
			}
			b := &cases{t: t, points: points, tally: found.scenario(s, points)}
			for _, m := range models {
				t.Run(string(m), func(t *testing.T) {
					t.Parallel()
					for i, p := range points {
						t.Run(p.name, func(t *testing.T) { b.interrupt(t, m, i, w, e, &next) })
					}
					found.progress("%s/%s: done, %d worlds so far", s.name, m, b.tally.cache.size())
				})
			}
		})
	}
}

// cases is one scenario with all its points.
type cases struct {
	t      *testing.T
	points []point
	tally  *tally
}

// interrupt runs the scenario with a fault at one call.
func (b *cases) interrupt(t *testing.T, m model, i int, w snapshot, e expectation, f *further) {
	p := b.points[i]
	skip := !whole && i%b.tally.scenario.stride(m, p) != 0
	check := func(t *testing.T, run func() result) {
		t.Helper()
		if skip {
			b.tally.count(m, p, false)
			return
		}
		r := run()
		b.tally.count(m, p, r.end == endBad)
		if r.end == endBad {
			t.Errorf("%s\n\n%s", replay(t), r.complaint(b.points, i))
		}
	}
	switch m {
	case modelKill, modelEIO, modelFull:
		if i == len(b.points)-1 || !m.fails(p.call) {
			return // after the end there is no call
		}
		if i%furtherEvery != 0 {
			f = nil
		}
		check(t, func() result { return failAt(t, m, w, e, p.name, f) })
	case modelHalt:
		check(t, b.tally.cache.resume(t, p.afterHalt(), e, f))
	case modelLose:
		check(t, b.tally.cache.resume(t, p.afterCut(simdisk.Lose), e, f))
	case modelTorn:
		for _, c := range p.snapshot.fs.Cuts()[1:] {
			if skip {
				check(t, b.tally.cache.resume(t, p.afterCut(c), e, f))
				continue
			}
			t.Run(c.String(), func(t *testing.T) { check(t, b.tally.cache.resume(t, p.afterCut(c), e, f)) })
		}
	}
}

// whole means that every fault runs. Otherwise all are counted, and a part of them runs.
var whole = prooffile.Whole()

const (
	// repeatedStride is at one in how many of the calls for repeated records faults run:
	// they are more than half of all calls.
	repeatedStride = 20
	// failingStride is likewise for the other calls that fail.
	failingStride = 5
	// variantStride is likewise for the other calls of a variant.
	variantStride = 5
	// pairStride is one in how many pairs of faults runs.
	pairStride = 4
)

func (s scenario) stride(m model, p point) int {
	switch {
	case slices.Contains(repeated, p.call.Op):
		return repeatedStride
	case m == modelEIO, m == modelFull:
		return failingStride
	case s.variant:
		return variantStride
	}
	return 1
}

// replay returns the command that repeats one case.
func replay(t *testing.T) string {
	parts := strings.Split(t.Name(), "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return fmt.Sprintf("to repeat it: go test ./testing/suites/faults -run '%s'", strings.Join(parts, "/"))
}

// pairsPerScenario bounds the sampled pairs of faults: there are some hundred thousand for
// each scenario.
const pairsPerScenario = 120

// The second fault interrupts the recovery from the first one.
func TestHostRecoversFromTwoFaults(t *testing.T) {
	k := sharedKit(t)
	for i, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			recorded := k.recorded(t, s)
			w, e, points := recorded.begin, recorded.expectation, recorded.points
			tally := found.pair(s)
			t.Parallel()
			random := rand.New(rand.NewPCG(*seed, uint64(i)))
			for n := range pairsPerScenario {
				first := points[random.IntN(len(points)-1)]
				numbers := [4]int{random.Int(), random.Int(), random.Int(), random.Int()}
				if !whole && n%pairStride != 0 {
					tally.count(modelHalt, first, false)
					continue
				}
				t.Run(fmt.Sprint(n+1), func(t *testing.T) {
					p := newPair(t, w, e, first, nil, numbers)
					r := resume(t, p.snapshot, e, nil)
					tally.count(modelHalt, first, r.end == endBad)
					if r.end == endBad {
						t.Errorf("%s -args -seed %d\n\nfirst %s before\n%s\n%s before\n%s\n%s", replay(t), *seed,
							p.how[0], around(points, first.number-1), p.how[1], around(p.between, p.second), strings.Join(r.wrong, "\n")+"\n"+r.log)
					}
				})
			}
		})
	}
}

// pair is a snapshot after two faults.
type pair struct {
	snapshot snapshot
	how      [2]string
	between  []point // the calls after the first fault
	second   int     // index of the call before which the second fault comes
}

// newPair runs the time between the faults. The numbers choose the model and the variant of
// the first fault, and the call and the variant of the second.
func newPair(t *testing.T, w snapshot, e expectation, first point, skip func(simdisk.Call) bool, numbers [4]int) pair {
	t.Helper()
	var p pair
	switch numbers[0] % 3 {
	case 0:
		// The process is killed, and the same boot continues until the second fault.
		k := &failer{model: modelKill, name: first.name, seen: names{}}
		p.how[0] = "the process is killed"
		p.between = recordWith(t, w, e, skip, k.before)
		if first.number < len(p.between) {
			p.between = p.between[first.number:]
		}
	case 1:
		p.how[0] = "all processes die"
		p.between = record(t, first.afterHalt(), e, skip)
	case 2:
		cuts := first.snapshot.fs.Cuts()
		c := cuts[numbers[1]%len(cuts)]
		p.how[0] = "power cut " + c.String()
		p.between = record(t, first.afterCut(c), e, skip)
	}
	p.second = numbers[2] % len(p.between)
	at := p.between[p.second]
	cuts := at.snapshot.fs.Cuts()
	if n := numbers[3] % (len(cuts) + 1); n == len(cuts) {
		p.how[1], p.snapshot = "then all processes die", at.afterHalt()
	} else {
		p.how[1], p.snapshot = "then power cut "+cuts[n].String(), at.afterCut(cuts[n])
	}
	return p
}

// Two recordings of a scenario have the same calls. Otherwise calls might be missed, and
// faults could not be repeated.
func TestRecordingIsDeterministic(t *testing.T) {
	k := sharedKit(t)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			r := k.recorded(t, s)
			t.Parallel()
			first := r.points
			second := record(t, r.begin, r.expectation, nil)
			for i := range max(len(first), len(second)) {
				if i >= min(len(first), len(second)) || first[i].String() != second[i].String() {
					t.Fatalf("two recordings of %d and %d calls differ at\n%s\n%s", len(first), len(second), around(first, i), around(second, i))
				}
			}
		})
	}
}
