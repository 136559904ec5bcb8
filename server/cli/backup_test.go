package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/esnode"
)

// made is what `muster backup -o json` prints.
type made struct {
	File, SHA256    string
	Files           int
	Bytes           int64
	Store, Packages bool
}

// restored is what `muster restore -o json` prints.
type restored struct {
	Data, Version, Kept string
	Created             string `json:"created_at"`
	Store, Packages     bool
	Paused              []string `json:"paused_rollouts"`
}

func TestBackupOfARunningServerIsRestoredOnAnEmptyMachine(t *testing.T) {
	o, s := loggedIn(t, quick)
	s.Publisher().Publish("1.1.0")
	s.Enroll("web", "1.0.0").MustCheckin(nil)
	running := o.run("rollouts", "create", "--version", "1.1.0", "--all", "--start", "--yes", "-o", "json")
	// The servers are being upgraded, as when an upgrade makes its backup.
	now := time.Now().UTC()
	u := fleet.ServerUpgrade{ID: fleet.ServerUpgradeID, Run: "r", From: apptest.Version, To: "9.9.9", Phase: fleet.ServerHold, Since: now, StartedAt: now, Servers: []fleet.UpgradingServer{{ID: "other", Host: "srv-2"}}}
	if err := s.Store.ServerUpgrades().Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "muster.tar")
	got := asJSON[made](o, "backup", file, "--data", s.Data)
	if !got.Store || !got.Packages || got.File != file || len(got.SHA256) != 64 || got.Files < 4 {
		t.Errorf("backup prints %+v", got)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || info.Size() < got.Bytes {
		t.Errorf("the backup is %v, %v", info, err)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("beside it are %v, %v", left, err)
	}
	o.fails(1, []string{"backup", file, "--data", s.Data}, "exists already")
	o.fails(1, []string{"backup", file + "2", "--data", t.TempDir()}, "there is no server data")
	o.fails(1, []string{"restore", file, "--data", s.Data, "--replace"}, "another `muster server` uses it")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}

	data := filepath.Join(t.TempDir(), "data")
	out := asJSON[restored](o, "restore", file, "--data", data)
	if out.Data != data || out.Version != apptest.Version || !out.Store || !out.Packages || out.Kept != "" || len(out.Paused) != 1 || !strings.Contains(running, out.Paused[0]) {
		t.Errorf("restore prints %+v, the rollout is %s", out, running)
	}
	if left, err := filepath.Glob(filepath.Join(data, "restore.*")); err != nil || len(left) != 0 {
		t.Errorf("the restore has left %v, %v", left, err)
	}
	again := apptest.StartOn(t, data)
	if u, err := again.Store.ServerUpgrades().Get(t.Context(), u.ID); err != nil || u.Phase != fleet.ServerUndone || !strings.Contains(u.Problem, "restored from a backup") {
		t.Errorf("after the restore the upgrade of the servers is %+v, %v", u, err)
	}
	if again.CAPin != s.CAPin || again.AdminKey != "" {
		t.Errorf("the restored server has the CA %s, want %s; first key %q", again.CAPin, s.CAPin, again.AdminKey)
	}
	again.AdminKey = s.AdminKey
	o.login(again)
	o.contains(o.run("agents", "list"), "web")
	o.contains(o.run("rollouts", "status", out.Paused[0]), "paused", "muster restore paused it at once", "the store was restored from a backup")
	o.contains(o.run("package", "list"), "1.1.0")
}

func TestDamagedBackupReplacesNothing(t *testing.T) {
	o := newOperator(t)
	data := filepath.Join(t.TempDir(), "data")
	first, stop := o.serve(data)
	stop()
	dir := t.TempDir()
	file := filepath.Join(dir, "muster.tar")
	o.contains(o.run("backup", file, "--data", data, "--without-packages"), "Wrote "+file, "sha256", "keep it secret")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o.fails(1, []string{"restore", file, "--data", data}, "has data already", "muster.db", "tls", "--replace")
	for name, text := range map[string]string{
		"cut off":     string(whole[:len(whole)/2]),
		"changed":     strings.Replace(string(whole), "BEGIN PRIVATE KEY", "BEGIN PRIVATE SEA", 1),
		"no backup":   "hello",
		"empty":       "",
		"other store": strings.Replace(string(whole), "CREATE TABLE", "CREATE CABLE", 1),
	} {
		bad := filepath.Join(dir, "bad.tar")
		if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o.fails(1, []string{"restore", bad, "--data", data, "--replace"}, "backup "+bad+": ", "nothing has been replaced")
		if left, err := filepath.Glob(filepath.Join(data, "*restore*")); err != nil || len(left) != 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
	record := filepath.Join(data, "server-upgrade") // of an upgrade of the servers, in whose middle they were restored
	if err := os.WriteFile(record, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.contains(o.run("restore", file, "--data", data, "--replace"), "Restored the backup of", "What it replaced is in "+filepath.Join(data, "before-restore-"),
		"muster server --data "+data, "Push the packages again", "Enrol the agents again")
	if _, err := os.Stat(record); !os.IsNotExist(err) {
		t.Errorf("the record of the upgrade is left: %v", err)
	}
	second, stop := o.serve(data)
	defer stop()
	if second.CAPin != first.CAPin || second.AdminKeyFile != "" {
		t.Errorf("the restored server says %+v", second)
	}
}

func TestInterruptedRestoreIsCompletedByTheSameCommand(t *testing.T) {
	o := newOperator(t)
	data := filepath.Join(t.TempDir(), "data")
	_, stop := o.serve(data)
	stop()
	file := filepath.Join(t.TempDir(), "muster.tar")
	o.run("backup", file, "--data", data)
	// It died after everything was verified and half of it was moved.
	verified := filepath.Join(data, "restore.verified")
	if err := os.Mkdir(verified, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(data, "tls"), filepath.Join(verified, "tls")); err != nil {
		t.Fatal(err)
	}
	o.fails(1, []string{"server", "--data", data}, "was interrupted", "muster restore")
	o.contains(o.run("restore", file, "--data", data), "Completed the interrupted restore")
	_, stop = o.serve(data)
	stop()
}

// With Elasticsearch a backup has the folders, and snapshots have the documents.
func TestBackupBesideElasticsearch(t *testing.T) {
	o := newOperator(t)
	p := esnode.Shared(t)
	config := onElasticsearch(t, p)
	data := filepath.Join(t.TempDir(), "data")
	first, stop := o.serveWith("--config", config, "--data", data)
	stop()
	file := filepath.Join(t.TempDir(), "muster.tar")
	o.contains(o.run("backup", file, "--config", config, "--data", data), "take a snapshot of the indices")
	lost := filepath.Join(t.TempDir(), "data")
	o.fails(1, []string{"restore", file, "--data", lost}, "another kind of store", "--config")
	o.contains(o.run("restore", file, "--config", config, "--data", lost), "muster store restored")
	o.contains(o.run("store", "restored", "--config", config, "--data", lost), "new generation")
	second, stop := o.serveWith("--config", config, "--data", lost)
	stop()
	if second.CAPin != first.CAPin || second.AdminKeyFile != "" {
		t.Errorf("the restored server says %+v", second)
	}
}
