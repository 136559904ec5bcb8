package cli

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/node/backup"
	"github.com/muster-fleet/muster/server/node/selfupgrade"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/elastic"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/testing/kit/esnode"
)

// Upgrades that succeed one after the other leave the newest backups, and no file of someone else is touched.
func TestOldBackupsOfUpgradesAreRemovedFromTheFolder(t *testing.T) {
	data := t.TempDir()
	s, err := sqlite.Open(t.Context(), filepath.Join(data, storeFile), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := &upgradeMachine{version: "1.0.0", config: app.Config{Data: data}}
	if list, err := upgradeBackups(t.Context(), m.config); err != nil || list == nil || len(list) != 0 {
		t.Errorf("without an upgrade the backups are %v, %v", list, err)
	}
	if removed, err := m.Prune(t.Context()); err != nil || len(removed) != 0 {
		t.Errorf("without an upgrade %v is removed, %v", removed, err)
	}
	var made, runs []string
	upgrade := func() {
		t.Helper()
		u := fleet.ServerUpgrade{Run: fleet.NewID(), To: "1.1.0-rc.1"}
		file, err := m.Backup(t.Context(), u)
		if err != nil {
			t.Fatal(err)
		}
		// Copies and restores change the times of files, which therefore say nothing.
		if err := os.Chtimes(file, time.Time{}, time.Now().Add(-time.Duration(len(made))*time.Hour)); err != nil {
			t.Fatal(err)
		}
		made, runs = append(made, file), append(runs, u.Run)
	}
	upgrade()
	dir := filepath.Dir(made[0])
	others := map[string]bool{
		"muster-2026-03-01.tar": false, "before-1.1.0.tar": false, "before-restore-20260301": true,
		"before-1.1.0-aaaaaaaa.tar": false, // has the name of a backup, and is none
		"before-1.1.0-bbbbbbbb.tar": true,
	}
	for name, folder := range others {
		write := func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }
		if folder {
			write = func(path string) error { return os.Mkdir(path, 0o700) }
		}
		if err := write(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for range selfupgrade.KeptBackups + 1 {
		upgrade()
	}
	// The record on this machine names the second upgrade, which another one has overtaken.
	removed, err := m.Prune(t.Context(), runs[len(runs)-1], runs[1])
	if want := []string{made[2], made[0]}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("removed %q, %v, want %q", removed, err, want)
	}
	if removed, err := m.Prune(t.Context(), runs[len(runs)-1], runs[1]); err != nil || len(removed) != 0 {
		t.Errorf("a second time %q is removed, %v", removed, err)
	}
	list, err := upgradeBackups(t.Context(), m.config)
	var left []string
	for _, b := range list {
		if b.Problem != "" {
			if filepath.Base(b.File) != "before-1.1.0-aaaaaaaa.tar" || b.From != "" || b.Bytes != 1 {
				t.Errorf("%+v", b)
			}
			continue
		}
		left = append(left, b.File)
		if b.From != "1.0.0" || b.To != "1.1.0-rc.1" || b.Bytes == 0 || time.Since(b.CreatedAt) > time.Minute {
			t.Errorf("the list has %+v", b)
		}
	}
	if want := []string{made[4], made[3], made[1]}; err != nil || !slices.Equal(left, want) || len(list) != len(want)+1 {
		t.Errorf("listed are %q, %v, want %q and the one that cannot be read", left, err, want)
	}
	for name := range others {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s, which no upgrade made: %v", name, err)
		}
	}
	f, err := os.Open(made[4])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := backup.Read(t.Context(), f, t.TempDir()); err != nil {
		t.Errorf("the backup that was kept cannot be restored: %v", err)
	}
}

// With Elasticsearch the same rule holds for copies of indices. One that a server has run with stays.
func TestOldCopiesOfIndicesAreRemoved(t *testing.T) {
	ctx := t.Context()
	p := esnode.Shared(t)
	es := &app.ElasticsearchConfig{Hosts: p.URLs, Prefix: p.Prefix, Username: p.Username, Password: p.Password, APIKey: p.APIKey}
	config := app.Config{Data: t.TempDir(), Store: app.StoreConfig{Elasticsearch: es}}
	if p.CA != nil {
		es.CA = filepath.Join(config.Data, "ca.pem")
		if err := os.WriteFile(es.CA, p.CA, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func(prefix string) *elastic.Store {
		t.Helper()
		o, err := elasticOptions(es)
		if err != nil {
			t.Fatal(err)
		}
		o.Prefix, o.Loading = prefix, true
		s, err := elastic.Open(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(open(es.Prefix).Packages().Create(ctx, fleet.Package{File: "a.tar.gz", Version: "1.0.0"}))
	m := &upgradeMachine{version: "1.0.0", config: config}
	place := func(run string) string { return selfupgrade.CopyName(es.Prefix, run) + "*" }
	listed := func() (good, bad []string) {
		t.Helper()
		list, err := upgradeBackups(ctx, config)
		must(err)
		for _, b := range list {
			if b.From != "1.0.0" || b.To != "1.1.0" || b.File != "" || time.Since(b.CreatedAt) > 10*time.Minute || b.CreatedAt.IsZero() || b.Bytes == 0 && b.Problem == "" {
				t.Errorf("the list has %+v", b)
			}
			if b.Problem != "" {
				bad = append(bad, b.Indices)
			} else {
				good = append(good, b.Indices)
			}
		}
		return good, bad
	}

	// An upgrade was interrupted while it copied, and the next ones succeeded.
	interrupted := fleet.NewID()
	must(open(selfupgrade.CopyName(es.Prefix, interrupted)).SetMigration(ctx, store.Migration{From: selfupgrade.CopiedFrom(es.Prefix, "1.0.0", "1.1.0"), StartedAt: time.Now().UTC()}))
	var runs []string
	for range selfupgrade.KeptBackups + 1 {
		u := fleet.ServerUpgrade{Run: fleet.NewID(), To: "1.1.0"}
		if got, err := m.Backup(ctx, u); err != nil || got != "the indices "+place(u.Run) {
			t.Fatalf("%s, %v", got, err)
		}
		runs = append(runs, u.Run)
	}
	newest := runs[len(runs)-1]
	used := open(selfupgrade.CopyName(es.Prefix, newest))
	must(used.Servers().Create(ctx, fleet.Server{ID: "s1"}))
	if good, bad := listed(); !slices.Equal(good, []string{place(runs[2]), place(runs[1]), place(runs[0])}) || !slices.Equal(bad, []string{place(newest), place(interrupted)}) {
		t.Errorf("listed are %v, and with problems %v", good, bad)
	}
	if removed, err := m.Prune(ctx); err != nil || !slices.Equal(removed, []string{place(interrupted)}) {
		t.Errorf("removed %v, %v, want what is not whole, and not what a server has run with", removed, err)
	}
	must(used.Servers().Delete(ctx, "s1"))
	if removed, err := m.Prune(ctx, runs[0]); err != nil || !slices.Equal(removed, []string{place(runs[1])}) {
		t.Errorf("removed %v, %v, want the oldest that is not in use", removed, err)
	}
	if removed, err := m.Prune(ctx, runs[0]); err != nil || len(removed) != 0 {
		t.Errorf("a second time %v is removed, %v", removed, err)
	}
	if good, bad := listed(); len(good) != selfupgrade.KeptBackups || len(bad) != 0 {
		t.Errorf("left are %v, and with problems %v", good, bad)
	}
	if p, err := open(es.Prefix).Packages().Get(ctx, "a.tar.gz"); err != nil || p.Version != "1.0.0" {
		t.Errorf("the indices themselves have %+v, %v", p, err)
	}
}
