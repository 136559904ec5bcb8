package selfupgrade

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

func TestOnlyNamesOfBackupsOfUpgradesAreTaken(t *testing.T) {
	for _, to := range []string{"1.2.0", "1.2.0-rc.1", "1.2.0-SNAPSHOT", "1.2.0-rc-2+build.7"} {
		run := fleet.NewID()
		gotTo, gotRun, ok := ParseBackupName(BackupName(to, run))
		if !ok || gotTo != to || gotRun != ShortRun(run) || gotRun == "" {
			t.Errorf("%s: %s, %s, %v", BackupName(to, run), gotTo, gotRun, ok)
		}
	}
	for _, name := range []string{
		"", "muster.tar", "before-.tar", "before-1.2.0.tar", "before-1.2.0-.tar", "before-1.2-abcdefgh.tar", "before-1.2.0-abcdefg.tar", "before-1.2.0-abcdefghi.tar",
		"before-1.2.0-ABCDEFGH.tar", "before-1.2.0-abcdefg1.tar", "before-1.2.0-abcdefgh.tar.gz", "before-1.2.0-abcdefgh", "my-before-1.2.0-abcdefgh.tar", "before-restore-abcdefgh.tar",
		"before-../1.2.0-abcdefgh.tar",
	} {
		if to, run, ok := ParseBackupName(name); ok {
			t.Errorf("%q is taken for the backup of an upgrade to %s, run %s", name, to, run)
		}
	}
}

func TestOnlyNamesOfCopiesOfUpgradesAreTaken(t *testing.T) {
	run := fleet.NewID()
	if got, ok := ParseCopyName("muster-", CopyName("muster-", run)); !ok || got != ShortRun(run) {
		t.Errorf("%s: %s, %v", CopyName("muster-", run), got, ok)
	}
	for _, name := range []string{"", "muster-", "muster-backup-", "muster-backup-abc-", "muster-backup-ABCDEFGH-", "other-backup-abcdefgh-", "muster-backup-abcdefgh", "muster-backup-abcdefghi-"} {
		if run, ok := ParseCopyName("muster-", name); ok {
			t.Errorf("%q is taken for the copy of an upgrade, run %s", name, run)
		}
	}
	text := CopiedFrom("muster-", "1.0.0", "1.1.0-rc.1")
	if from, to, ok := ParseCopiedFrom(text); !ok || from != "1.0.0" || to != "1.1.0-rc.1" {
		t.Errorf("%q: from %q to %q, %v", text, from, to, ok)
	}
	if from, to, ok := ParseCopiedFrom("/var/lib/muster/muster.db"); ok {
		t.Errorf("a store that was moved is taken for a copy: from %q to %q", from, to)
	}
}

func TestNewestBackupsAndThoseInUseAreKept(t *testing.T) {
	at := func(day int) time.Time { return time.Date(2026, 3, day, 0, 0, 0, 0, time.UTC) }
	b := func(run string, day int) Backup { return Backup{Run: run, File: run, CreatedAt: at(day)} }
	damaged := b("damagedd", 9)
	damaged.Problem = "it was cut off"
	for name, c := range map[string]struct {
		list  []Backup
		inUse []string
		want  []string
	}{
		"none":                                 {nil, nil, nil},
		"as many as are kept":                  {[]Backup{b("aaaaaaaa", 1), b("bbbbbbbb", 2), b("cccccccc", 3)}, nil, nil},
		"the oldest of four":                   {[]Backup{b("bbbbbbbb", 2), b("dddddddd", 4), b("aaaaaaaa", 1), b("cccccccc", 3)}, []string{"ddddddddxyz"}, []string{"aaaaaaaa"}},
		"the oldest two of five":               {[]Backup{b("aaaaaaaa", 1), b("bbbbbbbb", 2), b("cccccccc", 3), b("dddddddd", 4), b("eeeeeeee", 5)}, nil, []string{"bbbbbbbb", "aaaaaaaa"}},
		"not the oldest if it is in use":       {[]Backup{b("aaaaaaaa", 1), b("bbbbbbbb", 2), b("cccccccc", 3), b("dddddddd", 4)}, []string{"", "aaaaaaaaxyz"}, []string{"bbbbbbbb"}},
		"none if all are in use":               {[]Backup{b("aaaaaaaa", 1), b("bbbbbbbb", 2), b("cccccccc", 3), b("dddddddd", 4)}, []string{"aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd"}, nil},
		"one that is damaged displaces none":   {[]Backup{damaged, b("aaaaaaaa", 1), b("bbbbbbbb", 2), b("cccccccc", 3)}, nil, nil},
		"one that is damaged is not removed":   {[]Backup{{Run: "damagedd", Problem: "cut off"}, b("aaaaaaaa", 1), b("bbbbbbbb", 2), b("cccccccc", 3), b("dddddddd", 4)}, nil, []string{"aaaaaaaa"}},
		"what is not whole, unless in use":     {[]Backup{{Run: "halfhalf", Problem: "x", Unfinished: true}, {Run: "workwork", Problem: "x", Unfinished: true}, b("aaaaaaaa", 1), b("bbbbbbbb", 2), b("cccccccc", 3)}, []string{"workworkxyz"}, []string{"halfhalf"}},
		"of the same moment, by the file name": {[]Backup{b("dddddddd", 1), b("cccccccc", 1), b("bbbbbbbb", 1), b("aaaaaaaa", 1)}, nil, []string{"dddddddd"}},
	} {
		before := slices.Clone(c.list)
		var got []string
		for _, b := range Surplus(c.list, c.inUse...) {
			got = append(got, b.Run)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: removes %q, want %q", name, got, c.want)
		}
		if !slices.Equal(c.list, before) {
			t.Errorf("%s: the list was changed", name)
		}
	}
}
