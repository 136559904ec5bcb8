package series

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
)

var start = time.Date(2026, time.March, 3, 10, 0, 0, 0, time.UTC)

type counts = map[string]map[fleet.Health]int

func sampled(at time.Time, c counts) fleet.Sample { return newSample(c, at) }

func TestNewSampleNamesTheVersionsWithMostAgents(t *testing.T) {
	c := counts{"": {fleet.HealthOffline: 2}}
	for i := range maxVersions + 3 {
		c[fmt.Sprintf("1.%d.0", i)] = map[fleet.Health]int{fleet.HealthHealthy: i + 1, fleet.HealthFailed: 0}
	}
	s := sampled(start, c)
	if len(s.Counts) != maxVersions+1 {
		t.Fatalf("the sample has %d versions", len(s.Counts))
	}
	// 1.0.0, 1.1.0 and 1.2.0 have the fewest: 1 + 2 + 3.
	if got := s.Counts[""]; got[fleet.HealthHealthy] != 6 || got[fleet.HealthOffline] != 2 {
		t.Errorf("the others are %v", got)
	}
	if got := s.Counts["1.22.0"]; len(got) != 1 || got[fleet.HealthHealthy] != 23 {
		t.Errorf("1.22.0 has %v", got)
	}
	if s.ID != "2026-03-03T10:00:00Z" || sampleID(start.Add(Interval-1)) != s.ID || sampleID(start.Add(Interval)) == s.ID {
		t.Errorf("the sample of %s has the id %s", s.At, s.ID)
	}
}

// A store that is sampled and thinned out all the time stays small, and has a sample in each
// step that its age is kept by.
func TestThinningKeepsTheFirstSampleOfEachStep(t *testing.T) {
	var list []fleet.Sample
	now := start
	for range int(40 * 24 * time.Hour / Interval) {
		list = append(list, sampled(now, nil))
		old := superfluous(list, now)
		list = slices.DeleteFunc(list, func(s fleet.Sample) bool { return slices.Contains(old, s.ID) })
		now = now.Add(Interval)
	}
	if len(list) < 800 || len(list) > 900 {
		t.Errorf("%d samples are kept", len(list))
	}
	now = now.Add(-Interval)
	for name, w := range Windows {
		if got := Over(list, w, now); slices.Contains(line("", pick(list, got.Times, w), func(string) bool { return true }, false).Values, nil) {
			t.Errorf("the window %s has gaps", name)
		}
		if newest := list[max(0, len(list)-read(w))]; read(w) < len(list) && newest.At.After(now.Add(-w.Span)) {
			t.Errorf("the %d newest samples begin at %s, which is not enough for %s", read(w), newest.At, name)
		}
	}
}

// pick returns the sample of each step, or nil.
func pick(list []fleet.Sample, times []time.Time, w Window) []*fleet.Sample {
	out := make([]*fleet.Sample, len(times))
	for i := range list {
		if n := slices.Index(times, list[i].At.Truncate(w.Step)); n >= 0 {
			out[n] = &list[i]
		}
	}
	return out
}

func TestThinningDoesNotDependOnWhenItRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []fleet.Sample
		for i := range rapid.IntRange(0, 300).Draw(t, "samples") {
			if rapid.Bool().Draw(t, "there") {
				list = append(list, sampled(start.Add(time.Duration(i)*Interval), nil))
			}
		}
		end := start.Add(time.Duration(rapid.IntRange(300, 12_000).Draw(t, "now")) * Interval)
		at := rapid.IntRange(0, 12_000).Draw(t, "between")
		twice := slices.Clone(list)
		for _, now := range []time.Time{start.Add(time.Duration(at) * Interval), end} {
			if !now.After(end) {
				old := superfluous(twice, now)
				twice = slices.DeleteFunc(twice, func(s fleet.Sample) bool { return slices.Contains(old, s.ID) })
			}
		}
		old := superfluous(list, end)
		once := slices.DeleteFunc(list, func(s fleet.Sample) bool { return slices.Contains(old, s.ID) })
		if !slices.EqualFunc(once, twice, func(a, b fleet.Sample) bool { return a.ID == b.ID }) {
			t.Fatalf("thinned once, %d samples stay; thinned twice, %d", len(once), len(twice))
		}
	})
}

func values(l Line) string { return text(l.Values) }

func text(list []*int) string {
	out := ""
	for _, v := range list {
		if v == nil {
			out += "- "
		} else {
			out += fmt.Sprint(*v, " ")
		}
	}
	return out
}

func TestOverReturnsNullsWhereThereIsNoSample(t *testing.T) {
	w := Window{Span: 20 * time.Minute, Step: Interval}
	list := []fleet.Sample{
		sampled(start.Add(-time.Hour), counts{"0.9.0": {fleet.HealthHealthy: 99}}), // before the window
		sampled(start.Add(-14*time.Minute), counts{"1.0.0": {fleet.HealthHealthy: 5, fleet.HealthOffline: 1}}),
		sampled(start.Add(time.Minute), counts{"1.0.0": {fleet.HealthHealthy: 2}, "1.1.0": {fleet.HealthHealthy: 3, fleet.HealthFailed: 1}}),
	}
	got := Over(list, w, start.Add(2*time.Minute))
	if len(got.Times) != 4 || !got.Times[0].Equal(start.Add(-15*time.Minute)) || !got.Times[3].Equal(start) {
		t.Fatalf("the times are %v", got.Times)
	}
	for i, want := range []struct{ name, values, healthy string }{{"1.0.0", "6 - - 2 ", "5 - - 2 "}, {"1.1.0", "0 - - 4 ", "0 - - 3 "}} {
		if l := got.Versions[i]; l.Name != want.name || values(l) != want.values || text(l.Healthy) != want.healthy {
			t.Errorf("version %s: %s, healthy %s; want %+v", l.Name, values(l), text(l.Healthy), want)
		}
	}
	var healths []string
	for _, l := range got.Health {
		healths = append(healths, l.Name+" "+values(l))
	}
	if want := []string{"healthy 5 - - 5 ", "failed 0 - - 1 ", "offline 1 - - 0 "}; !slices.Equal(healths, want) {
		t.Errorf("health: %q, want %q", healths, want)
	}
}

func TestOverNamesTenVersionsAndCountsTheOthersTogether(t *testing.T) {
	c := counts{"": {fleet.HealthHealthy: 1}}
	for i := range shownVersions + 2 {
		c[fmt.Sprintf("1.%d.0", i)] = map[fleet.Health]int{fleet.HealthHealthy: 10}
	}
	got := Over([]fleet.Sample{sampled(start, c)}, Windows["24h"], start)
	last := got.Versions[len(got.Versions)-1]
	if len(got.Versions) != shownVersions+1 || got.Versions[0].Name != "1.11.0" || last.Name != "" {
		t.Fatalf("there are %d lines from %s to %q", len(got.Versions), got.Versions[0].Name, last.Name)
	}
	if n := last.Values[len(last.Values)-1]; n == nil || *n != 21 {
		t.Errorf("the others are %s", values(last))
	}
}
