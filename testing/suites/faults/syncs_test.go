package faults

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/simdisk"
)

// redundant are the syncs without which no fault ends badly, and the reasons. The code still
// needs them: each is a guarantee of its package, independent of its callers.
// A prefix that ends with $ is a complete name.
var redundant = []struct{ prefix, why string }{
	{"active commit syncdir", "the journal's next entry, or the outcome, lies in the same folder and is synced before anything rests on it"},
	{"copy state sync ", "an older or empty queue in the new home: the server sends again what was not confirmed, the marker knows the action"},
	{"queue snapshot", "an older or empty queue in the new home: the server sends again what was not confirmed, the marker knows the action"},
	{"decision sync data/upgrade-decision.new", "the space is for a disk that becomes full later: without it the decision is written to a file of its own, and the pointer shows what was decided"},
	{"decision syncdir", "the space is for a disk that becomes full later, as above"},
	{"download", "an archive is believed only after its signature was checked; a damaged one is removed and fetched again"},
	{"queue sync <home>/run/queue.prev.new", "read only if the queue is damaged, and that is synced"},
	{"queue syncdir", "a lost queue loses its ack token too, so the server sends again what was not confirmed, and the journal knows what had begun; what only the queue knows, results on their way and the time of the next try, has no part in these stories"},
	{"remove home syncdir", "removing the marker or the journal, which follows, syncs the same folder"},
	{"rollback request syncdir", "a request that comes back names a home that is not being watched"},
	{"stage journal", "without a readable journal at worst a home and an archive are left, which the next stage of that version uses and the next commit removes"},
	{"trust", "a damaged or lost file of the publishers is fetched and verified again, and the pinned root is never written again"},
	{"unpack syncdir .", "the folder data has its name since the installation"},
	{"unpack syncdir data", "copying the state syncs the home, and the journal's next entry its name, before the pointer moves"},
	{"upgrade journal sync data/upgrade-journal.prev.new", "read only if the journal is damaged, and that is synced"},
	{"versions sync data/versions.prev", "read only if the record is damaged, and that is synced"},
	{"versions syncdir", "the outcome, or removing the journal of the stage, which follows, syncs the same folder; a failed version is recorded at every start as long as the outcome is there"},
	{"upgrade outcome syncdir", "removing the marker, which follows, syncs the same folder"},
}

// together are groups of syncs that cover for one another, so that a whole group has to be
// left out.
var together = map[string][]string{
	"every sync of the names in a new home": {
		"unpack syncdir data/.unpack-<home>", "copy state syncdir <home>", "queue snapshot syncdir <home>", "queue syncdir <home>",
	},
	"every sync of the names in data before the pointer moves": {
		"unpack syncdir data", "upgrade journal syncdir data", "upgrade marker syncdir data", "active commit syncdir data",
	},
}

// redundantStride is the part of the known redundant syncs that a test tries; `go tool mage
// proof` tries all.
const redundantStride = 120

// pairsWithoutSync is how many pairs are tried if no single loss ends badly.
const pairsWithoutSync = 60

func whyRedundant(site string) string {
	for _, r := range redundant {
		whole, exact := strings.CutSuffix(r.prefix, "$")
		if site == whole || (!exact && strings.HasPrefix(site, r.prefix)) {
			return r.why
		}
	}
	return ""
}

// site returns the name of a sync in the code, independent of the version.
func (e expectation) site(c simdisk.Call) string {
	if c.Kind != simdisk.Sync {
		return ""
	}
	home := strings.NewReplacer(
		e.old.install.Home, "<home>", e.new.install.Home, "<home>",
		strings.TrimPrefix(e.new.install.Home, "data/"), "<home>", e.new.archive, "<archive>",
	)
	return fmt.Sprintf("%s %s %s", c.Op, c.Name, home.Replace(relative(c.Path)))
}

// baseline is a scenario whose faults all end well with all syncs in place.
type baseline struct {
	*recording
	sites  map[string]int
	worlds map[key]bool
}

func recordAll(t *testing.T, k *kit) []*baseline {
	t.Helper()
	var all []*baseline
	for _, s := range scenarios {
		b := &baseline{recording: k.recorded(t, s), sites: map[string]int{}, worlds: map[key]bool{}}
		for _, p := range b.points {
			if site := b.expectation.site(p.call); site != "" {
				b.sites[site]++
			}
			for _, c := range p.snapshot.fs.Cuts() {
				b.worlds[p.afterCut(c).key()] = true
			}
		}
		all = append(all, b)
	}
	return all
}

// If leaving out a sync makes no fault end badly, the model of a power cut is too weak or
// the sync is not needed.
func TestMissingSyncIsFound(t *testing.T) {
	all := recordAll(t, sharedKit(t))
	calls := map[string]int{}
	for _, b := range all {
		for site, n := range b.sites {
			calls[site] += n
		}
	}
	if len(calls) < 30 {
		t.Fatalf("only %d syncs are known: %v", len(calls), calls)
	}
	for _, site := range slices.Sorted(maps.Keys(calls)) {
		t.Run(site, func(t *testing.T) {
			t.Parallel()
			why := whyRedundant(site)
			stride := 1
			if why != "" && !whole {
				stride = redundantStride
			}
			bad := leaveOut(t, all, []string{site}, stride)
			switch {
			case bad == "" && why == "":
				t.Errorf("nothing ends badly without the sync %q: is it needed? If not, say why not in the list of redundant syncs", site)
			case bad != "" && why != "":
				t.Errorf("the sync %q is listed as redundant, but without it this ends badly: %s", site, bad)
			}
			found.sync(site, syncResult{calls: calls[site], found: bad, why: why})
			found.progress("without %s: %s%s", site, bad, why)
		})
	}
	for name, sites := range together {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 0
			for _, site := range sites {
				if calls[site] == 0 {
					t.Errorf("no scenario makes the sync %q any more", site)
				}
				n += calls[site]
			}
			bad := leaveOut(t, all, sites, 1)
			if bad == "" {
				t.Errorf("nothing ends badly without all of %q", sites)
			}
			found.sync(name, syncResult{calls: n, found: bad})
		})
	}
}

// leaveOut returns the first fault that ends badly without some syncs. It tries plain
// losses first, since they find most, then some pairs of faults, then torn writes, which
// are the most numerous.
func leaveOut(t *testing.T, all []*baseline, sites []string, stride int) string {
	t.Helper()
	all = slices.DeleteFunc(slices.Clone(all), func(b *baseline) bool {
		return !slices.ContainsFunc(sites, func(site string) bool { return b.sites[site] > 0 })
	})
	points := make([][]point, len(all))
	for i, b := range all {
		points[i] = b.without(b.skips(sites))
	}
	losses := func(f *simdisk.FS) []simdisk.Cut { return f.Cuts()[:1] }
	torn := func(f *simdisk.FS) []simdisk.Cut { return f.Cuts()[1:] }
	single := func(cuts func(*simdisk.FS) []simdisk.Cut) string {
		for i, b := range all {
			if bad := b.firstBad(t, points[i], cuts, stride); bad != "" {
				return bad
			}
		}
		return ""
	}
	if bad := single(losses); bad != "" {
		return bad
	}
	if stride == 1 {
		if bad := all[0].firstBadPair(t, sites); bad != "" {
			return bad
		}
	}
	return single(torn)
}

func (b *baseline) skips(sites []string) func(simdisk.Call) bool {
	return func(c simdisk.Call) bool { return slices.Contains(sites, b.expectation.site(c)) }
}

func (b *baseline) firstBad(t *testing.T, points []point, cuts func(*simdisk.FS) []simdisk.Cut, stride int) string {
	t.Helper()
	seen, n := map[key]bool{}, 0
	for _, p := range points {
		if p.snapshot.fs.Same(b.points[p.number-1].snapshot.fs) {
			continue // it ends well with the sync too
		}
		for _, c := range cuts(p.snapshot.fs) {
			w := p.afterCut(c)
			k := w.key()
			if seen[k] || b.worlds[k] {
				continue // likewise
			}
			seen[k] = true
			if n++; n%stride != 0 {
				continue
			}
			if r := runFault(t, w, b.expectation, nil, quiet); r.end == endBad {
				return fmt.Sprintf("%s/%s/%s", b.scenario.name, p.name, c)
			}
		}
	}
	return ""
}

func (b *baseline) firstBadPair(t *testing.T, sites []string) string {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	for range pairsWithoutSync {
		first := b.points[random.IntN(len(b.points)-1)]
		p := newPair(t, b.begin, b.expectation, first, b.skips(sites), [4]int{random.Int(), random.Int(), random.Int(), random.Int()})
		if r := runFault(t, p.snapshot, b.expectation, nil, quiet); r.end == endBad {
			return fmt.Sprintf("%s/%s: %s; %s", b.scenario.name, first.name, p.how[0], p.how[1])
		}
	}
	return ""
}
