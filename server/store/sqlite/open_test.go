package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// fast makes Open give up soon on a lock that is not released.
var fast = Options{BusyTimeout: 50 * time.Millisecond}

func mustOpen(t testing.TB, path string) *Store {
	t.Helper()
	return mustOpenWith(t, path, Options{})
}

func mustOpenWith(t testing.TB, path string, opts Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// fileWithAgent creates a file with an agent in it.
func fileWithAgent(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "muster.db")
	s, err := Open(t.Context(), path, fast)
	if err == nil {
		err = s.Agents().Create(t.Context(), fleet.Agent{ID: "a", AccessKeyID: "k"})
	}
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func wantRefusal(t *testing.T, path string, words ...string) {
	t.Helper()
	s, err := Open(t.Context(), path, fast)
	if err == nil {
		_ = s.Close()
		t.Fatalf("%s was opened", path)
	}
	for _, word := range append(words, path) {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not contain %q: %v", word, err)
		}
	}
}

func TestFileIsPrivateToItsOwner(t *testing.T) {
	t.Parallel()
	require.System(t, "linux", "darwin") // Windows has no file modes: the folder's access list decides
	path := fileWithAgent(t)
	if err := os.Chmod(path, 0o644); err != nil { // as after a careless restore
		t.Fatal(err)
	}
	s := mustOpen(t, path)
	if err := s.Agents().Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v: %v", path+suffix, info.Mode(), err)
		}
	}
}

func TestFileNamesWithSpecialCharacters(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a b.db", "100%.db", "q?x=1&_pragma=query_only(1).db", "#1.db", "ü%41.db", "c:d.db"} {
		if runtime.GOOS == "windows" && strings.ContainsAny(name, "?:") {
			continue
		}
		path := filepath.Join(t.TempDir(), name)
		s := mustOpen(t, path)
		if err := s.Agents().Create(t.Context(), fleet.Agent{ID: "a"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(path); err != nil || s.Path() != path {
			t.Errorf("%s: path is %s: %v", name, s.Path(), err)
		}
	}
}

func TestRelativePathSurvivesAChangeOfFolder(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	s := mustOpen(t, "muster.db")
	t.Chdir(t.TempDir())
	s.writer.dropConnSoon(t)
	if err := s.Agents().Create(t.Context(), fleet.Agent{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	again := mustOpenWith(t, filepath.Join(folder, "muster.db"), Options{ReadOnly: true})
	if !stored(t, again, "a") || s.Path() != again.Path() {
		t.Errorf("it was written elsewhere; the paths are %s and %s", s.Path(), again.Path())
	}
}

// dropConnSoon makes the next write begin on a new connection.
func (w *writer) dropConnSoon(t *testing.T) {
	t.Helper()
	err := w.run(t.Context(), func(*tx) error {
		if err := w.exec(t.Context(), `ROLLBACK`); err != nil {
			return err
		}
		return errors.New("rolled back")
	})
	if err == nil {
		t.Fatal("a transaction that was rolled back returned no error")
	}
}

func TestOpenErrorNamesFileAndRemedy(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	text := filepath.Join(folder, "notes.txt")
	if err := os.WriteFile(text, bytes.Repeat([]byte("not a database\n"), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(folder, "short")
	if err := os.WriteFile(short, []byte("SQLite format 3\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, filepath.Join(folder, "missing", "muster.db"), "folder does not exist", "create it")
	wantRefusal(t, folder, "is a directory")
	wantRefusal(t, text, "is not an SQLite file", "another file")
	wantRefusal(t, short, "is not an SQLite file")
	if b, err := os.ReadFile(text); err != nil || !bytes.HasPrefix(b, []byte("not a database")) {
		t.Errorf("the file was changed: %v", err)
	}
	if _, err := os.Stat(filepath.Join(folder, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder was made: %v", err)
	}
}

func TestFileOfAnotherProgramIsRefusedUnchanged(t *testing.T) {
	t.Parallel()
	for name, statements := range map[string]string{
		"with its own mark": `PRAGMA application_id = 7; CREATE TABLE t (x)`,
		"without a mark":    `CREATE TABLE t (x)`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "other.db")
			db, err := sql.Open("sqlite", uri(path))
			if err == nil {
				_, err = db.Exec(statements)
			}
			if err == nil {
				err = db.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			wantRefusal(t, path, "belongs to another program", "another file")
			db, err = sql.Open("sqlite", uri(path))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close() // only read
			var tables int
			if err := db.QueryRow(`SELECT count(*) FROM sqlite_schema`).Scan(&tables); err != nil || tables != 1 {
				t.Errorf("it has %d tables: %v", tables, err)
			}
		})
	}
}

func TestFileOfNewerSchemaIsRefusedUnchanged(t *testing.T) {
	t.Parallel()
	path := fileWithAgent(t)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newest, err := embedded.newest()
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint32(data[60:], uint32(newest+1)) //nolint:gosec // a small number
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, path, "newer Muster", fmt.Sprintf("schema %d", newest+1), fmt.Sprintf("up to %d", newest))
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(data, after) {
		t.Errorf("the file was changed: %v", err)
	}
	if beside, err := filepath.Glob(path + "-[ws]*"); err != nil || len(beside) > 0 {
		t.Errorf("files were made beside it: %v %v", beside, err)
	}
}

// A newer Muster may have been killed before a checkpoint wrote its header to the file.
func TestNewerSchemaInTheLogIsRefused(t *testing.T) {
	t.Parallel()
	path := fileWithAgent(t)
	newer, err := sql.Open("sqlite", uri(path)+"?_pragma=journal_mode(WAL)&_pragma=wal_autocheckpoint(0)")
	if err != nil {
		t.Fatal(err)
	}
	defer newer.Close() // it represents the killed process
	if _, err := newer.Exec(`PRAGMA user_version = 999`); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, path, "newer Muster", "schema 999")
	if _, err := Open(t.Context(), path, fast); !errors.Is(err, store.ErrNewer) {
		t.Errorf("the error is %v, and no store.ErrNewer", err)
	}
}

// notes are the schemas of a later Muster: this one's, and one that can go back.
func notes(t *testing.T) schemas {
	t.Helper()
	newest := NewestSchema()
	files := fstest.MapFS{
		fmt.Sprintf("migrations/%04d_notes.sql", newest+1):      {Data: []byte(`CREATE TABLE notes (agent TEXT) STRICT; INSERT INTO notes SELECT id FROM agents;`)},
		fmt.Sprintf("migrations/%04d_notes.down.sql", newest+1): {Data: []byte(`DROP TABLE notes;`)},
	}
	for v := range newest {
		text, err := embedded.up(v + 1)
		if err != nil {
			t.Fatal(err)
		}
		files[fmt.Sprintf("migrations/%04d_of_today.sql", v+1)] = &fstest.MapFile{Data: []byte(text)}
	}
	return schemas{files}
}

func TestSchemaGoesUpAndBack(t *testing.T) {
	t.Parallel()
	path, later, newest := fileWithAgent(t), notes(t), NewestSchema()
	notes := func() (list []string) {
		t.Helper()
		s := mustOpenWith(t, path, Options{schemas: later})
		if err := s.each(t.Context(), `SELECT agent FROM notes`, nil, func(scan scan) error {
			list = append(list, "")
			return scan(&list[len(list)-1])
		}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return list
	}
	for range 2 { // the second time there is nothing to do
		if got := notes(); !slices.Equal(got, []string{"a"}) {
			t.Fatalf("the new table has %v", got)
		}
	}
	wantRefusal(t, path, "newer Muster", fmt.Sprintf("schema %d", newest+1))
	for range 2 {
		if err := later.downgrade(t.Context(), path, newest); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, path)
	if err := s.Agents().Create(t.Context(), fleet.Agent{ID: "b"}); err != nil || !stored(t, s, "a") {
		t.Errorf("with the schema of before, the first agent is there %v: %v", stored(t, s, "a"), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := notes(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("after the second upgrade the new table has %v", got)
	}
}

// A migration that fails leaves the file as it was.
func TestFailedMigrationChangesNothing(t *testing.T) {
	t.Parallel()
	path, later, newest := fileWithAgent(t), notes(t), NewestSchema()
	files := later.files.(fstest.MapFS)
	files[fmt.Sprintf("migrations/%04d_broken.sql", newest+2)] = &fstest.MapFile{Data: []byte(`DELETE FROM agents; INSERT INTO nothing VALUES (1);`)}
	if _, err := Open(t.Context(), path, Options{schemas: later}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("schema %d", newest+2)) {
		t.Fatalf("the error is %v", err)
	}
	if !stored(t, mustOpen(t, path), "a") {
		t.Error("the agent is missing")
	}
}

func TestSchemaWithoutAWayBackStays(t *testing.T) {
	t.Parallel()
	path := fileWithAgent(t)
	newest := NewestSchema()
	const want = "has no way back to"
	if err := CheckDowngrade(newest - 1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want %q", err, want)
	}
	if err := Downgrade(t.Context(), path, newest-1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want %q", err, want)
	}
	if err := errors.Join(CheckDowngrade(newest), Downgrade(t.Context(), path, newest)); err != nil {
		t.Error(err)
	}
	s := mustOpen(t, path)
	if err := Downgrade(t.Context(), path, newest); !errors.Is(err, ErrInUse) {
		t.Errorf("of a file in use the error is %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestDamagedFileIsRefused(t *testing.T) {
	t.Parallel()
	t.Run("cut short", func(t *testing.T) {
		path := fileWithAgent(t)
		if err := os.Truncate(path, 4096*2+100); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, path, "is damaged", "restore a backup")
	})
	t.Run("overwritten", func(t *testing.T) {
		path := fileWithAgent(t)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(bytes.Repeat([]byte{0xAA}, int(info.Size())-4096), 4096); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, path, "is damaged", "restore a backup")
	})
}

func TestFileLockedByAnotherProcessIsRefused(t *testing.T) {
	t.Parallel()
	path := fileWithAgent(t)
	other, err := sql.Open("sqlite", uri(path)+"?_pragma=locking_mode(EXCLUSIVE)")
	if err != nil {
		t.Fatal(err)
	}
	other.SetMaxOpenConns(1)
	defer other.Close() // it represents another process
	if _, err := other.Exec(`BEGIN EXCLUSIVE; DELETE FROM settings`); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, path, "locked by another process", "try again")
}

// While another process, such as a backup, locks the file, writes wait and then fail; reads
// succeed.
func TestLockedFileMakesWritesUnavailable(t *testing.T) {
	t.Parallel()
	path := fileWithAgent(t)
	s := mustOpenWith(t, path, fast)
	unlock := lock(t, path)
	err := s.Agents().Create(t.Context(), fleet.Agent{ID: "b"})
	if fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(err.Error(), "locked by another process") {
		t.Errorf("while it is locked: %v", err)
	}
	if err := s.Ping(t.Context()); fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(err.Error(), "locked by another process") {
		t.Errorf("ping while it is locked: %v", err)
	}
	if _, err := s.Agents().Get(t.Context(), "a"); err != nil {
		t.Errorf("reading while it is locked: %v", err)
	}
	unlock()
	if err := s.Agents().Create(t.Context(), fleet.Agent{ID: "b"}); err != nil {
		t.Errorf("after it was unlocked: %v", err)
	}
}

// A Ping whose context ends before the lock's timeout must not report a healthy store.
func TestPingWithShortDeadlineReportsALockedFile(t *testing.T) {
	t.Parallel()
	path := fileWithAgent(t)
	s := mustOpen(t, path)
	lock(t, path)
	short, cancel := context.WithTimeout(t.Context(), DefaultBusyTimeout/10)
	defer cancel()
	if err := s.Ping(short); fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(err.Error(), "takes no writes") {
		t.Errorf("ping with a short deadline while it is locked: %v", err)
	}
}

// lock locks the file for writing, as another process would, until unlock is called or the
// test ends.
func lock(t *testing.T, path string) (unlock func()) {
	t.Helper()
	other, err := sql.Open("sqlite", uri(path))
	if err != nil {
		t.Fatal(err)
	}
	other.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = other.Close() })
	if _, err := other.Exec(`BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := other.Exec(`ROLLBACK`); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "muster.db")
	first := mustOpen(t, path)
	s, err := Open(t.Context(), path, fast)
	if !errors.Is(err, ErrInUse) {
		t.Fatalf("opened %v: %v", s, err)
	}
	for _, words := range []string{filepath.Dir(path), fmt.Sprintf("process %d", os.Getpid()), "stop that one first", "Elasticsearch"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("the error does not contain %q: %v", words, err)
		}
	}
	if err := first.Agents().Create(t.Context(), fleet.Agent{ID: "a"}); err != nil {
		t.Errorf("a write of the owner afterwards: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if !stored(t, mustOpen(t, path), "a") {
		t.Error("the agent is missing")
	}
}

func TestOpenWaitsForTheOwnerToClose(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "muster.db")
	first, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan error)
	go func() {
		s, err := Open(t.Context(), path, Options{BusyTimeout: time.Minute})
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(2 * lockRetry): // only to catch an Open that does not wait
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

func TestReadOnlyOpensBesideTheOwner(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "muster.db")
	owner := mustOpen(t, path)
	for _, id := range []string{"a", "b"} { // the second while a reader is open
		if err := owner.Agents().Create(t.Context(), fleet.Agent{ID: id}); err != nil {
			t.Fatal(err)
		}
		reader := mustOpenWith(t, path, Options{ReadOnly: true})
		if !stored(t, reader, id) {
			t.Errorf("%s is missing", id)
		}
		if err := reader.Agents().Delete(t.Context(), id); fleet.KindOf(err) != fleet.Internal {
			t.Errorf("a write: %v", err)
		}
	}
}

func TestReadOnlyNeverWritesToTheFile(t *testing.T) {
	t.Parallel()
	path := fileWithAgent(t)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), path, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if !stored(t, s, "a") {
		t.Error("the agent is missing")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file has changed: %v", err)
	}
	if _, err := Open(t.Context(), path, Options{ReadOnly: true, schemas: notes(t)}); err == nil || !strings.Contains(err.Error(), "older Muster") {
		t.Errorf("a file of an older Muster: %v", err)
	}
}

// A reader does not use the lock file, nor does a program of somebody else.
func TestSchemaIsNotUpgradedWhileAnOlderProcessHasTheFileOpen(t *testing.T) {
	t.Parallel()
	path, later, older := fileWithAgent(t), Options{BusyTimeout: fast.BusyTimeout, schemas: notes(t)}, NewestSchema()
	old, err := sql.Open("sqlite", uri(path)+"?_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close() // it represents an older process
	version := func() (v int) {
		t.Helper()
		if err := old.QueryRowContext(t.Context(), `PRAGMA user_version`).Scan(&v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := version(); v != older {
		t.Fatalf("schema %d", v)
	}
	if _, err := Open(t.Context(), path, later); err == nil || !strings.Contains(err.Error(), "older Muster") || !strings.Contains(err.Error(), "stop every process") {
		t.Errorf("the error is %v", err)
	}
	if _, err := old.ExecContext(t.Context(), `UPDATE agents SET rev = 2`); err != nil || version() != older {
		t.Fatalf("after the refusal the older process reads schema %d: %v", version(), err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if !stored(t, mustOpenWith(t, path, later), "a") {
		t.Error("the agent is missing")
	}
}

func TestMigrationsAreNumberedWithoutAGap(t *testing.T) {
	t.Parallel()
	newest, err := embedded.newest()
	if err != nil || newest < 1 {
		t.Fatalf("newest is %d: %v", newest, err)
	}
	for v := range newest {
		if step, err := embedded.up(v + 1); err != nil || strings.TrimSpace(step) == "" {
			t.Errorf("schema %d: %v", v+1, err)
		}
	}
	if _, err := embedded.up(newest + 1); err == nil {
		t.Error("there is a migration after the newest")
	}
}

func TestOpenReturnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, err := Open(ctx, filepath.Join(t.TempDir(), "muster.db"), Options{})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("opened %v: %v", s, err)
	}
}
