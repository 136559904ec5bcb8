package cli_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/node/selfupgrade"
)

func TestUpgradeOfTheServersSaysWhatIsMissing(t *testing.T) {
	o := newOperator(t)
	data := t.TempDir()
	o.fails(2, []string{"server", "upgrade"}, "want one of --to VERSION, --resume, --status and --undo")
	o.fails(2, []string{"server", "upgrade", "--to", "1.1.0", "--undo"}, "want one of")
	o.fails(1, []string{"server", "upgrade", "--status", "--data", data}, "no server runs on "+data, "name the data folder with --data")
	o.contains(o.run("server", "upgrade", "--resume", "--data", data), "No upgrade of the servers is under way on this machine.")

	records := selfupgrade.Records{Disk: disk.OS{}, Data: data, Log: slog.New(slog.DiscardHandler)}
	r := selfupgrade.Record{Run: "r", From: "1.0.0", To: "1.1.0", Phase: fleet.ServerStop}
	if err := records.Write(r); err != nil {
		t.Fatal(err)
	}
	o.contains(o.run("server", "upgrade", "--resume", "--data", data), "The server on this machine continues when it starts.")
	r.Phase = fleet.ServerSwitch
	if err := records.Write(r); err != nil {
		t.Fatal(err)
	}
	o.fails(1, []string{"server", "upgrade", "--resume", "--data", data}, "it does not run from an installation")
	// Nor does a server of the old version start any more.
	o.fails(1, []string{"server", "--data", data, "--agents-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, "the servers were upgraded to 1.1.0, which this machine cannot run")
}

func TestBackupsOfUpgradesAreListed(t *testing.T) {
	o := newOperator(t)
	data := t.TempDir()
	o.fails(1, []string{"server", "backups", "--data", filepath.Join(data, "missing")}, "name the data folder with --data")
	if got := asJSON[[]selfupgrade.Backup](o, "server", "backups", "--data", data); got == nil || len(got) != 0 {
		t.Errorf("without an upgrade the backups are %#v", got)
	}
	dir := filepath.Join(data, "backups")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := apptest.Start(t)
	file := filepath.Join(dir, selfupgrade.BackupName("1.1.0", fleet.NewID()))
	o.run("backup", file, "--data", s.Data, "--without-packages")
	o.run("backup", filepath.Join(dir, "mine.tar"), "--data", s.Data, "--without-packages")
	got := asJSON[[]selfupgrade.Backup](o, "server", "backups", "--data", data)
	if len(got) != 1 || got[0].File != file || got[0].From == "" || got[0].To != "1.1.0" || got[0].Bytes == 0 || got[0].CreatedAt.IsZero() || got[0].Problem != "" {
		t.Errorf("the backups are %+v", got)
	}
	o.contains(o.run("server", "backups", "--data", data), "FROM", got[0].From, "1.1.0", file)
}

func TestSchemasOfTheProgramAreShown(t *testing.T) {
	o := newOperator(t)
	s := apptest.Start(t)
	got := asJSON[map[string]int](o, "server", "schema")
	if got["sqlite"] != s.Store.Schema() || got["elasticsearch"] == 0 {
		t.Errorf("the schemas are %v", got)
	}
	o.fails(1, []string{"server", "schema", "--migrate", "--data", filepath.Join(s.Data, "elsewhere")}, "no such file")
	o.fails(1, []string{"server", "schema", "--migrate", "--data", s.Data}, "another `muster server` uses it")
}
