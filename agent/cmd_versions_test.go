package main

import (
	"bytes"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/watcher/probe"
)

func TestVersionsAreListedForPeople(t *testing.T) {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	at := time.Date(2026, 3, 10, 12, 0, 0, 0, time.Local)
	printVersions(w, []probe.Version{
		{Version: "1.1.0", Hash: "3f2a9c0000", State: probe.VersionRunning},
		{Version: "1.2.0", Hash: "bbbbbb", State: probe.VersionStaged, Since: at, Bytes: 41_260_000},
		{Version: "1.1.0", Hash: "cccccc", State: probe.VersionPrevious, Since: at, Bytes: 40e6, Until: at.AddDate(0, 0, 7), Problem: "missing library"},
	})
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	want := `VERSION  BUILD         STATE     SINCE                SIZE     ROLLBACK UNTIL       PROBLEM
1.1.0    1.1.0-3f2a9c  running   -                    -        -                    -
1.2.0    1.2.0-bbbbbb  staged    2026-03-10 12:00:00  41.3 MB  -                    -
1.1.0    1.1.0-cccccc  previous  2026-03-10 12:00:00  40.0 MB  2026-03-17 12:00:00  missing library
`
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
}

func TestStageIsFollowedToItsEnd(t *testing.T) {
	staged := []probe.Version{{Version: "1.0.0", State: probe.VersionRunning}, {Version: "1.2.0", State: probe.VersionStaged}}
	for name, c := range map[string]struct {
		h    probe.Health
		line string
		over bool
		err  string
	}{
		"under way":     {probe.Health{Staging: &probe.Upgrade{TargetVersion: "1.2.0", State: "UPG_DOWNLOADING", Percent: 30, BytesPerSecond: 2e6}}, "UPG_DOWNLOADING to 1.2.0, 30 % at 2.0 MB/s", false, ""},
		"staged":        {probe.Health{Versions: staged}, "Version 1.2.0 is on this host: muster-agent versions switch 1.2.0 switches to it.", true, ""},
		"failed":        {probe.Health{Versions: staged[:1], Staging: &probe.Upgrade{TargetVersion: "1.2.0", State: "UPG_FAILED", Message: "no space"}}, "", true, "version 1.2.0 is not staged: no space"},
		"forgotten":     {probe.Health{Versions: staged[:1]}, "", true, "stage it again"},
		"another stage": {probe.Health{Staging: &probe.Upgrade{TargetVersion: "1.3.0", State: "UPG_DOWNLOADING"}}, "", true, "stage it again"},
	} {
		t.Run(name, func(t *testing.T) {
			line, over, err := judgeStage(c.h, "", "1.2.0")
			if line != c.line || over != c.over || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q, %v, %v; want %q, %v, %q", line, over, err, c.line, c.over, c.err)
			}
		})
	}
}

// A host is switched between two builds of 1.1.0: the name alone does not show that it has arrived.
func TestSwitchIsFollowedToItsEnd(t *testing.T) {
	target := probe.Version{Version: "1.1.0", Hash: "bbbbbb"}
	at := func(hash string, u *probe.Upgrade) probe.Health {
		return probe.Health{Identity: manifest.Identity{Version: "1.1.0", Hash: hash}, Upgrade: u}
	}
	for name, c := range map[string]struct {
		h    probe.Health
		line string
		over bool
		err  string
	}{
		"accepted":           {at("aaaaaa", &probe.Upgrade{TargetVersion: "1.1.0-bbbbbb", State: "UPG_REQUESTED"}), "UPG_REQUESTED to 1.1.0-bbbbbb", false, ""},
		"watched":            {at("bbbbbb", &probe.Upgrade{TargetVersion: "1.1.0", State: "UPG_WATCHING"}), "UPG_WATCHING to 1.1.0", false, ""},
		"committed":          {at("bbbbbb", nil), "Version 1.1.0 runs again.", true, ""},
		"rolled back":        {at("aaaaaa", &probe.Upgrade{TargetVersion: "1.1.0", State: "UPG_ROLLBACK", Message: "it crashed"}), "", true, "it crashed"},
		"forgotten":          {at("aaaaaa", nil), "", true, "version 1.1.0-aaaaaa runs, and the agent reports no switch"},
		"another has failed": {at("bbbbbb", &probe.Upgrade{TargetVersion: "1.2.0", State: "UPG_FAILED"}), "Version 1.1.0 runs again.", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			line, over, err := judgeSwitch(c.h, target, "runs again")
			if line != c.line || over != c.over || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q, %v, %v; want %q, %v, %q", line, over, err, c.line, c.over, c.err)
			}
		})
	}
}

func TestRollbackPicksTheWantedVersion(t *testing.T) {
	kept := []probe.Rollback{{Version: "1.2.0", Problem: "damaged"}, {Version: "1.1.0"}, {Version: "1.0.0", Hash: "bbbbbb"}, {Version: "1.0.0", Hash: "aaaaaa"}}
	for _, c := range []struct {
		kept               []probe.Rollback
		wanted, want, fail string
	}{
		{kept, "", "1.1.0", ""},
		{kept, "1.0.0", "1.0.0-bbbbbb", ""},
		{kept, "1.0.0-aaaaaa", "1.0.0-aaaaaa", ""},
		{kept, "1.0.0-cccccc", "", "version 1.0.0-cccccc is not kept"},
		{kept, "1.2.0", "", "version 1.2.0 cannot be rolled back to: damaged"},
		{kept[:1], "", "", "version 1.2.0 cannot be rolled back to: damaged"},
		{kept, "0.9.0", "", "version 0.9.0 is not kept for a rollback on this host: it has 1.2.0, 1.1.0, 1.0.0-bbbbbb, 1.0.0-aaaaaa"},
		{nil, "", "", "no earlier version is kept"},
		{nil, "1.0.0", "", "no earlier version is kept"},
	} {
		got, err := pickRollback(c.kept, c.wanted)
		if (err == nil && got.Build() != c.want) || (err != nil) != (c.fail != "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("of %v, wanted %q: %q, %v; want %q, %q", c.kept, c.wanted, got, err, c.want, c.fail)
		}
	}
}
