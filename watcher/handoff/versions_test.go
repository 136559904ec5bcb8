package handoff

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

var noon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

func onHost(name string, bytes int64) Version {
	return Version{Install: Install{Identity: manifest.Identity{Version: name, Hash: "9be1f0"}, Home: "data/muster-agent-" + name}, Bytes: bytes}
}

func staged(name string, bytes int64) Version {
	v := onHost(name, bytes)
	v.StagedAt = noon
	return v
}

// ran is a version that was replaced some hours before noon.
func ran(name string, bytes int64, hours int) Version {
	v := onHost(name, bytes)
	v.ReplacedAt = noon.Add(-time.Duration(hours) * time.Hour)
	return v
}

func TestSurplus(t *testing.T) {
	limits := func(previous, staged int, bytes int64) Limits {
		return Limits{Previous: previous, Staged: staged, Bytes: bytes, Window: Duration(100 * time.Hour)}
	}
	for name, c := range map[string]struct {
		list   []Version
		limits Limits
		want   string
	}{
		"nothing":                             {nil, limits(1, 2, 0), ""},
		"all within the limits":               {[]Version{ran("1", 5, 9), staged("3", 5), staged("4", 5)}, limits(1, 2, 15), ""},
		"the oldest that ran":                 {[]Version{ran("1", 5, 9), ran("2", 5, 8), ran("3", 5, 7)}, limits(2, 2, 0), "1"},
		"the oldest that is staged":           {[]Version{staged("3", 5), ran("1", 5, 9), staged("4", 5), staged("5", 5)}, limits(1, 2, 0), "3"},
		"no staged ones":                      {[]Version{staged("3", 5), ran("1", 5, 9)}, limits(1, 0, 0), "3"},
		"too large: staged ones first":        {[]Version{ran("1", 5, 9), ran("2", 5, 8), staged("3", 5), staged("4", 5)}, limits(2, 2, 12), "3 4"},
		"too large: then the oldest that ran": {[]Version{ran("1", 5, 9), ran("2", 5, 8), staged("3", 5)}, limits(2, 2, 7), "3 1"},
		"the version before stays":            {[]Version{ran("2", 50, 8)}, limits(1, 2, 7), ""},
		"the version before stays, whatever":  {[]Version{ran("1", 5, 9), ran("2", 50, 8)}, limits(0, 0, 7), "1"},
		"the window of one is over":           {[]Version{ran("1", 5, 101), ran("2", 5, 99)}, limits(5, 2, 0), "1"},
		"the window of all is over":           {[]Version{ran("1", 5, 102), ran("2", 5, 101), staged("3", 5)}, limits(5, 2, 0), "1 2"},
		"staged ones have no window":          {[]Version{func() Version { v := staged("3", 5); v.StagedAt = noon.AddDate(-1, 0, 0); return v }()}, limits(1, 2, 0), ""},
		"a clock that is wrong":               {[]Version{ran("1", 5, -10000)}, limits(1, 2, 0), ""},
		"no window, just replaced":            {[]Version{ran("1", 5, 0)}, Limits{Previous: 1}, ""},
		"no window, a moment later":           {[]Version{ran("1", 5, 1)}, Limits{Previous: 1}, "1"},
		"the order decides, not the clock":    {[]Version{ran("2", 5, 1), ran("1", 5, 9)}, limits(1, 2, 0), "2"},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(c.list)
			var got []string
			for _, v := range Surplus(c.list, c.limits, noon) {
				got = append(got, v.Version)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("surplus is %v, want %s", got, c.want)
			}
			if !reflect.DeepEqual(c.list, before) {
				t.Error("the list was changed")
			}
		})
	}
}

// The version that was replaced last stays within its window, and what stays meets the limits
// but for that version.
func TestSurplusNeverRemovesTheVersionBefore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var list []Version
		for i := range rapid.IntRange(0, 8).Draw(rt, "versions") {
			name, bytes := fmt.Sprint(i), rapid.Int64Range(0, 100).Draw(rt, "bytes")
			if rapid.Bool().Draw(rt, "staged") {
				list = append(list, staged(name, bytes))
			} else {
				list = append(list, ran(name, bytes, rapid.IntRange(-50, 50).Draw(rt, "hours")))
			}
		}
		l := Limits{
			Previous: rapid.IntRange(0, 4).Draw(rt, "previous"), Staged: rapid.IntRange(0, 4).Draw(rt, "max staged"),
			Bytes: rapid.Int64Range(0, 300).Draw(rt, "max bytes"), Window: Duration(time.Duration(rapid.IntRange(0, 60).Draw(rt, "window")) * time.Hour),
		}
		gone := Surplus(list, l, noon)
		stays := Without(list, gone)
		if len(stays)+len(gone) != len(list) {
			rt.Fatalf("%d stay and %d go, of %d", len(stays), len(gone), len(list))
		}
		var last *Version
		for _, v := range list {
			if !v.Staged() {
				last = &v
			}
		}
		within := func(v Version) bool { return !noon.After(v.ReplacedAt.Add(time.Duration(l.Window))) }
		if last != nil && within(*last) != Holds(stays, last.Home) {
			rt.Fatalf("the version before is %+v, and %v stay", *last, stays)
		}
		previous, nstaged, others := 0, 0, int64(0)
		for _, v := range stays {
			switch {
			case v.Staged():
				nstaged++
				others += v.Bytes
			case !within(v):
				rt.Fatalf("%+v stays after its window", v)
			default:
				previous++
				if v.Home != last.Home {
					others += v.Bytes
				}
			}
		}
		if nstaged > l.Staged || previous > max(1, l.Previous) || l.Bytes > 0 && others > l.Bytes {
			rt.Fatalf("%v stay, with the limits %+v", stays, l)
		}
	})
}

func write(t *testing.T, top string, homes ...Version) {
	t.Helper()
	for _, v := range homes {
		home := layout.Path(top, v.Home)
		if err := os.MkdirAll(filepath.Join(home, "run"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, "run", "state"), make([]byte, 1000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, top string) Versions {
	t.Helper()
	v, err := ReadVersions(disk.OS{}, top)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestReadVersionsReturnsTheWrittenVersionsThatAreThere(t *testing.T) {
	top := host(t)
	if v := read(t, top); !reflect.DeepEqual(v, Versions{}) {
		t.Errorf("without a record: %+v", v)
	}
	a, b, c := ran("1.0.0", 5, 1), staged("1.2.0", 6), staged("1.3.0", 7)
	b.Archive = "signature sha256:00"
	v := Versions{OnHost: []Version{a, b, c}, Highest: "1.1.0", Failed: []FailedVersion{failed("1.1.1", "aa", "x", 0)}}
	if err := WriteVersions(disk.OS{}, top, v); err != nil {
		t.Fatal(err)
	}
	write(t, top, a, b)
	v.Remove(c.Home)
	if got := read(t, top); !reflect.DeepEqual(got, v) {
		t.Errorf("read %+v, want %+v", got, v)
	}
	bad := a
	bad.Home = "data/downloads"
	for what, v := range map[string]Versions{
		"a home that is none": {OnHost: []Version{bad}, Highest: "1.1.0"},
		"half a version":      {OnHost: []Version{a}, Highest: "half"},
	} {
		if err := WriteVersions(disk.OS{}, top, v); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadVersions(disk.OS{}, top); !reflect.DeepEqual(got, Versions{}) || err == nil {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

func TestDropGoneRemovesOnlyWhatIsGone(t *testing.T) {
	top := host(t)
	a, b := ran("1.0.0", 5, 9), staged("1.2.0", 6)
	if err := DropGone(disk.OS{}, top); err != nil {
		t.Fatal(err)
	}
	if err := WriteVersions(disk.OS{}, top, Versions{OnHost: []Version{a, b}, Highest: "1.1.0"}); err != nil {
		t.Fatal(err)
	}
	write(t, top, b)
	if err := DropGone(disk.OS{}, top); err != nil {
		t.Fatal(err)
	}
	write(t, top, a) // as another build with the same name does
	if v, want := read(t, top), (Versions{OnHost: []Version{b}, Highest: "1.1.0"}); !reflect.DeepEqual(v, want) {
		t.Errorf("read %+v, want %+v", v, want)
	}
}

func TestHighestVersionNeverDecreases(t *testing.T) {
	var v Versions
	for _, step := range []struct{ version, want string }{
		{"1.1.0", "1.1.0"}, {"1.0.0", "1.1.0"}, {"1.1.0-SNAPSHOT", "1.1.0"}, {"1.10.0-rc.1", "1.10.0-rc.1"}, {"1.10.0", "1.10.0"}, {"1.9.0", "1.10.0"}, {"half", "1.10.0"},
	} {
		if v.Raise(step.version); v.Highest != step.want {
			t.Errorf("after %s it is %s, want %s", step.version, v.Highest, step.want)
		}
	}
}

func failed(version, hash, archive string, minutes int) FailedVersion {
	number, snapshot := manifest.SplitSnapshot(version)
	return FailedVersion{
		Identity: manifest.Identity{Version: number, Snapshot: snapshot, Hash: hash}, Archive: archive, Reason: "it crashed", At: noon.Add(time.Duration(minutes) * time.Minute),
	}
}

func TestFailedBefore(t *testing.T) {
	var v Versions
	v.Fail(failed("1.1.0", "aa", "x", 0))
	v.Fail(failed("1.2.0-SNAPSHOT", "aa", "y", 0))
	v.Fail(failed("1.2.0-SNAPSHOT", "bb", "", 0))
	for _, c := range []struct {
		what, version, hash, archive string
		want                         bool
	}{
		{"of which only the name is known", "1.1.0", "", "", true},
		{"the same archive", "1.1.0", "", "x", true},
		{"another archive", "1.1.0", "", "z", false},
		{"another archive of the same build", "1.1.0", "aa", "z", true},
		{"another build", "1.1.0", "cc", "", false},
		{"another version", "1.1.1", "aa", "x", false},
		{"the version of a snapshot", "1.2.0", "", "", false},
		{"a snapshot of which only the name is known", "1.2.0-SNAPSHOT", "", "", false},
		{"the snapshot's archive", "1.2.0-SNAPSHOT", "", "y", true},
		{"the snapshot's build", "1.2.0-SNAPSHOT", "bb", "z", true},
		{"another build of the snapshot", "1.2.0-SNAPSHOT", "cc", "z", false},
	} {
		if got := v.FailedBefore(c.version, c.hash, c.archive) != nil; got != c.want {
			t.Errorf("%s (%s, %q, %q) failed before: %v", c.what, c.version, c.hash, c.archive, got)
		}
	}
	v.Commit(failed("1.1.0", "aa", "", 0).Identity) // with force
	if f := v.FailedBefore("1.1.0", "", ""); f != nil || len(v.Failed) != 2 {
		t.Errorf("a version that was committed has failed: %+v", v.Failed)
	}
}

// Whatever happens, each failure is remembered once, the last ones are, and what was recorded before
// is not changed through a copy.
func TestFailuresAreBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var v Versions
		for i := range rapid.IntRange(0, 2*maxFailed).Draw(rt, "failures") {
			f := failed(fmt.Sprintf("1.%d.0", rapid.IntRange(0, 2*maxFailed).Draw(rt, "version")), "aa", rapid.SampledFrom([]string{"", "x"}).Draw(rt, "archive"), i)
			before := v
			was := slices.Clone(v.Failed)
			v.Fail(f)
			again := v
			if again.Fail(f); !reflect.DeepEqual(again, v) {
				rt.Fatalf("the same failure again changes %+v to %+v", v, again)
			}
			if n := len(v.Failed); n > maxFailed || v.Failed[n-1] != f || v.FailedBefore(f.Version, f.Hash, f.Archive) == nil {
				rt.Fatalf("after %+v recorded are %d: %+v", f, n, v.Failed)
			}
			if !slices.Equal(before.Failed, was) {
				rt.Fatalf("a copy was changed: %+v", before.Failed)
			}
		}
	})
}

func TestStage(t *testing.T) {
	of := func(v Version, archive string) Version {
		v.Archive = archive
		return v
	}
	limits := Limits{Previous: 1, Staged: 2, Bytes: 20, Window: Duration(100 * time.Hour)}
	kept, two, three := of(ran("1", 5, 9), "a1"), of(staged("2", 5), "a2"), of(staged("3", 5), "a3")
	before := Version{Archive: "a4", Bytes: 5, StagedAt: noon} // of its archive only that is known
	for name, c := range map[string]struct {
		stage Version
		fits  bool
		gone  string
		want  []Version
	}{
		"the oldest makes room":       {of(staged("4", 5), "a4"), true, "2", []Version{kept, three, of(staged("4", 5), "a4")}},
		"before it is fetched":        {before, true, "2", []Version{kept, three, before}},
		"again":                       {of(staged("2", 6), "a2"), true, "", []Version{kept, three, of(staged("2", 6), "a2")}},
		"its archive is there":        {Version{Archive: "a3", Bytes: 5, StagedAt: noon}, true, "", []Version{kept, two, {Archive: "a3", Bytes: 5, StagedAt: noon}}},
		"it ran, and stays what ran":  {of(staged("1", 5), "b1"), true, "", []Version{of(kept, "b1"), two, three}},
		"too large":                   {of(staged("4", 16), "a4"), false, "", []Version{kept, two, three}},
		"too large, without the rest": {of(staged("4", 14), "a4"), true, "2 3", []Version{kept, of(staged("4", 14), "a4")}},
	} {
		t.Run(name, func(t *testing.T) {
			v := Versions{OnHost: []Version{kept, two, three}}
			gone, fits := v.Stage(c.stage, limits)
			var names []string
			for _, g := range gone {
				names = append(names, g.Version)
			}
			if fits != c.fits || strings.Join(names, " ") != c.gone || !slices.Equal(v.OnHost, c.want) {
				t.Errorf("%v, gone is %v, on the host are %+v", fits, names, v.OnHost)
			}
		})
	}
}

// Whatever the clock says, a version that was counted once stays for its window less what may be counted
// wrongly at each start of the agent, and goes once the agent has run for the window.
func TestWindowIsNotThatOfTheClock(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const window = 100 * time.Hour
		limits := Limits{Previous: 1, Window: Duration(window)}
		clock := noon
		v := ran("a", 1, 0)
		var passed, ran, slack time.Duration // of real time, of the agent's, and of what may be wrong
		counted := false                     // by this process
		for range rapid.IntRange(1, 60).Draw(rt, "counts") {
			switch rapid.IntRange(0, 5).Draw(rt, "what happens") {
			case 0: // the clock is set
				clock = clock.Add(time.Duration(rapid.Int64Range(-1e6, 1e6).Draw(rt, "jump")) * time.Minute)
			case 1: // the agent is started again, at once or after a while
				off := time.Duration(rapid.IntRange(0, 300).Draw(rt, "off")) * time.Minute
				clock, passed, counted, slack = clock.Add(off), passed+off, false, slack+maxUncounted
			}
			d := time.Duration(rapid.IntRange(0, 120).Draw(rt, "runs")) * time.Minute
			clock, passed = clock.Add(d), passed+d
			var elapsed *time.Duration
			if counted {
				elapsed = &d
				ran += d
			}
			first := v.CountedAt.IsZero()
			v = v.Count(clock, elapsed)
			if first {
				slack += maxUncounted
			}
			counted = true
			gone := len(Surplus([]Version{v}, limits, clock)) > 0
			switch {
			case gone && passed+slack < window:
				rt.Fatalf("gone after %s of %s", passed, window)
			case !gone && ran > window:
				rt.Fatalf("there after %s of %s", ran, window)
			case gone:
				return
			}
			if left := v.Left(window, clock); left < 0 || left > window {
				rt.Fatalf("%s are left of %s", left, window)
			}
		}
	})
}
