// Package series keeps the numbers of agents by version and health over time. The server that
// owns a lease takes a sample every five minutes; older samples are thinned out, so that their
// number is bounded. The admin API reads them for charts.
package series

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Interval is the time between samples: often enough to see a rollout's batches.
const Interval = 5 * time.Minute

// maxVersions is how many versions a sample names, those with most agents. A fleet has a few at
// a time; the rest of a long tail would make each sample large.
const maxVersions = 20

// age is for how long samples are kept at a distance.
type age struct{ until, step time.Duration }

// ages bounds the samples to some 900: enough for 300 points of each window.
var ages = []age{
	{24*time.Hour + Interval, Interval},
	{7*24*time.Hour + 30*time.Minute, 30 * time.Minute},
	{30*24*time.Hour + 2*time.Hour, 2 * time.Hour},
}

// Window is a span of time that charts show, and the distance of their points.
type Window struct{ Span, Step time.Duration }

// Windows are the windows by their names in the API.
var Windows = map[string]Window{
	"24h": {24 * time.Hour, Interval},
	"7d":  {7 * 24 * time.Hour, 30 * time.Minute},
	"30d": {30 * 24 * time.Hour, 2 * time.Hour},
}

// superfluous returns the ids of the samples that are not kept at now. Of the samples within a
// step, the first stays. Steps begin at the same times for all lengths that divide each other,
// so a sample that stays in a step has stayed in all shorter ones. All samples of a longest step
// have the same age, that of its end: otherwise the first of a step could be too old while another
// one, for which it once stayed, would not be.
func superfluous(list []fleet.Sample, now time.Time) []string {
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b fleet.Sample) int { return a.At.Compare(b.At) })
	type slot struct {
		step time.Duration
		at   time.Time
	}
	longest := ages[len(ages)-1].step
	taken := map[slot]bool{}
	var out []string
	for _, s := range sorted {
		old := now.Sub(s.At.Truncate(longest).Add(longest))
		i := slices.IndexFunc(ages, func(a age) bool { return old <= a.until })
		if i < 0 {
			out = append(out, s.ID)
			continue
		}
		at := slot{ages[i].step, s.At.Truncate(ages[i].step)}
		if taken[at] {
			out = append(out, s.ID)
		}
		taken[at] = true
	}
	return out
}

// sampleID is the id of the sample of the interval that now is in, so that two servers cannot
// both store one.
func sampleID(now time.Time) string { return now.UTC().Truncate(Interval).Format(time.RFC3339) }

// newSample returns a sample of counts, which it reduces to maxVersions versions.
func newSample(counts map[string]map[fleet.Health]int, now time.Time) fleet.Sample {
	s := fleet.Sample{ID: sampleID(now), At: now.UTC(), Counts: map[string]map[fleet.Health]int{}}
	for i, v := range byAgents(totals(counts), "") {
		if i >= maxVersions {
			v.name = ""
		}
		add(s.Counts, v.name, counts[v.version])
	}
	add(s.Counts, "", counts[""])
	if len(s.Counts[""]) == 0 {
		delete(s.Counts, "")
	}
	return s
}

func add(to map[string]map[fleet.Health]int, version string, counts map[fleet.Health]int) {
	if to[version] == nil {
		to[version] = map[fleet.Health]int{}
	}
	for h, n := range counts {
		if n > 0 {
			to[version][h] += n
		}
	}
}

func totals(counts map[string]map[fleet.Health]int) map[string]int {
	out := map[string]int{}
	for v, by := range counts {
		for _, n := range by {
			out[v] += n
		}
	}
	return out
}

// ranked is a version in the order of its agents. name is what it is listed under.
type ranked struct {
	name, version string
	agents        int
}

// byAgents returns the versions but one, those with most agents first, and newer ones first
// among equals.
func byAgents(agents map[string]int, except string) []ranked {
	var out []ranked
	for v, n := range agents {
		if v != except && n > 0 {
			out = append(out, ranked{v, v, n})
		}
	}
	slices.SortFunc(out, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.agents, a.agents), cmp.Compare(fleet.VersionKey(b.version), fleet.VersionKey(a.version)), cmp.Compare(a.version, b.version))
	})
	return out
}

// Series has the numbers of agents over a window.
type Series struct {
	Step     time.Duration
	Times    []time.Time
	Versions []Line // those with most agents first, and last the others together, as ""
	Health   []Line // in the order of fleet.Healths
}

// Line has one number for each time; nil: there is no sample.
type Line struct {
	Name    string
	Values  []*int
	Healthy []*int // of a version: how many of Values were healthy
}

// shownVersions is how many versions a chart can show clearly.
const shownVersions = 10

// Over returns the series of a window that ends at now.
func Over(list []fleet.Sample, w Window, now time.Time) Series {
	out := Series{Step: w.Step, Versions: []Line{}, Health: []Line{}}
	end := now.UTC().Truncate(w.Step)
	at := map[time.Time]int{}
	for t := end.Add(-w.Span + w.Step); !t.After(end); t = t.Add(w.Step) {
		at[t] = len(out.Times)
		out.Times = append(out.Times, t)
	}
	samples := make([]*fleet.Sample, len(out.Times))
	most := map[string]int{}
	for i := range list {
		n, ok := at[list[i].At.UTC().Truncate(w.Step)]
		if !ok {
			continue
		}
		// The latest of a step: the last step then shows the present.
		if samples[n] == nil || list[i].At.After(samples[n].At) {
			samples[n] = &list[i]
		}
	}
	for _, s := range samples {
		if s == nil {
			continue
		}
		for v, n := range totals(s.Counts) {
			most[v] = max(most[v], n)
		}
	}
	versions := byAgents(most, "")
	shown := versions[:min(shownVersions, len(versions))]
	named := map[string]bool{}
	for _, v := range shown {
		named[v.version] = true
		out.Versions = append(out.Versions, line(v.version, samples, func(version string) bool { return version == v.version }, true))
	}
	if len(versions) > len(shown) || most[""] > 0 {
		out.Versions = append(out.Versions, line("", samples, func(version string) bool { return !named[version] }, true))
	}
	for _, h := range fleet.Healths {
		if l, some := healthLine(h, samples); some {
			out.Health = append(out.Health, l)
		}
	}
	return out
}

// line counts the agents of the versions that are in it.
func line(name string, samples []*fleet.Sample, in func(string) bool, healthy bool) Line {
	l := Line{Name: name, Values: make([]*int, len(samples))}
	if healthy {
		l.Healthy = make([]*int, len(samples))
	}
	for i, s := range samples {
		if s == nil {
			continue
		}
		all, well := 0, 0
		for v, by := range s.Counts {
			if !in(v) {
				continue
			}
			for h, n := range by {
				all += n
				if h == fleet.HealthHealthy {
					well += n
				}
			}
		}
		l.Values[i] = &all
		if healthy {
			l.Healthy[i] = &well
		}
	}
	return l
}

// healthLine counts the agents with a health; some reports whether there was ever one.
func healthLine(h fleet.Health, samples []*fleet.Sample) (l Line, some bool) {
	l = Line{Name: string(h), Values: make([]*int, len(samples))}
	for i, s := range samples {
		if s == nil {
			continue
		}
		n := 0
		for _, by := range s.Counts {
			n += by[h]
		}
		l.Values[i], some = &n, some || n > 0
	}
	return l, some
}
