package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

//go:embed migrations/*.sql
var migrations embed.FS

// applicationID in the header tells Muster's files from other SQLite files.
const applicationID = 0x4d757374 // "Must"

// Open opens the file at path, and makes it if there is none; its folder must
// exist. An older schema is brought up to date. A file of a newer Muster, of
// another program, or a damaged one is left as it is.
func Open(ctx context.Context, path string, opts Options) (*Store, error) {
	if opts.Readers == 0 {
		opts.Readers = DefaultReaders
	}
	if opts.BusyTimeout == 0 {
		opts.BusyTimeout = DefaultBusyTimeout
	}
	// An absolute path stays right if the process changes its folder, and has
	// one spelling as a URI.
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", path, err)
	}
	if err := claim(path); err != nil {
		return nil, err
	}
	first := immediate
	if opts.Alone {
		first = exclusive
	}
	db, err := upToDate(ctx, path, opts, first)
	if opts.Alone && code(err) == sqlite3.SQLITE_BUSY {
		err = fmt.Errorf("database %s: %w", path, ErrInUse)
	}
	if err != nil {
		return nil, err
	}
	err = check(ctx, db, path)
	if err == nil && !opts.Moved {
		err = refuseMoved(ctx, db, path)
	}
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	if opts.Alone {
		w := newWriter(db, nil)
		w.refuse = errReadOnly // it would take the only connection, and keep it
		only := newReading(db)
		return newStore(path, only, only, db, w), nil
	}
	unlabelled := false
	if err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM facts WHERE labels IS NULL)`).Scan(&unlabelled); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("open: %w", fault(path, "read", err))
	}
	const reading = "_pragma=query_only(1)&_pragma=cache_size(-4000)" // what readers miss is in the system's cache
	readers, err := connect(path, opts, reading, opts.Readers)
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	urgent, err := connect(path, opts, reading, urgentReaders)
	if err != nil {
		_, _ = readers.Close(), db.Close()
		return nil, err
	}
	watcher, err := connect(path, opts, reading, 1)
	if err != nil {
		_, _, _ = urgent.Close(), readers.Close(), db.Close()
		return nil, err
	}
	t, err := newTurn(path, opts.BusyTimeout)
	if err != nil {
		_, _, _, _ = watcher.Close(), urgent.Close(), readers.Close(), db.Close()
		return nil, err
	}
	s := newStore(path, newReading(readers), newReading(urgent), watcher, newWriter(db, t))
	s.unlabelled = unlabelled
	return s, nil
}

func newStore(path string, readers, urgent *reading, watcher *sql.DB, w *writer) *Store {
	return &Store{path: path, readers: readers, urgent: urgent, watcher: watcher, writer: w, changes: newChangeLog()}
}

// Settings of the connection that writes. Exclusive comes before anything is read:
// then SQLite keeps the index of the log in its own memory, and others out of the file.
const (
	immediate = "_txlock=immediate&_pragma=cache_size(-16000)" // the whole of hot and facts at 100,000 agents
	exclusive = immediate + "&_pragma=locking_mode(EXCLUSIVE)"
)

// busyRetry is how long to leave a file to another process before trying again.
const busyRetry = 20 * time.Millisecond

// upToDate connects to the file and brings its schema up to date, again while another
// process has the file, for as long as the busy timeout. SQLite itself does not wait
// where a new file is given its log: two processes that wait there would wait for
// each other.
func upToDate(ctx context.Context, path string, opts Options, settings string) (*sql.DB, error) {
	deadline := time.Now().Add(opts.BusyTimeout)
	for {
		db, err := connect(path, opts, settings, 1)
		if err != nil {
			return nil, err
		}
		err = migrate(ctx, db, path, opts.Alone)
		if err == nil {
			return db, nil
		}
		_ = db.Close() // before it is wanted alone
		if errors.Is(err, errAlone) {
			err = migrateAlone(ctx, path)
		}
		if err != nil && (code(err) != sqlite3.SQLITE_BUSY || !time.Now().Before(deadline)) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(busyRetry + rand.N(busyRetry)): // not in step with another that does the same
		}
	}
}

// aloneSchema is the first in which every write is in agent_changes. A process of an
// older Muster that has the file open would go on without, so no other may have it
// open when the file gets this schema; from then on an older one does not open it.
const aloneSchema = 5

var errAlone = fmt.Errorf("schema %d is only made by who has the file alone", aloneSchema)

// migrateAlone is migrate while no other connection is open; SQLITE_BUSY says that
// there is one.
func migrateAlone(ctx context.Context, path string) error {
	db, err := connect(path, Options{BusyTimeout: busyRetry}, exclusive, 1)
	if err != nil {
		return err
	}
	err = migrate(ctx, db, path, true)
	if code(err) == sqlite3.SQLITE_BUSY {
		err = fmt.Errorf("%w: an older Muster may have it open, and must not write beside this one: stop every process that has it open, then start again", err)
	}
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	return err
}

// claim makes the file with the mode that keeps key hashes to its owner (SQLite
// gives the files beside it the same), and looks at its header without SQLite,
// which might change the file.
func claim(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("database %s: its folder does not exist: make it, or name another file: %w", path, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("database %s: cannot be opened for writing: check the owner and the mode of the file and of its folder: %w", path, err)
	case err != nil:
		return fmt.Errorf("database %s: %w", path, err)
	}
	defer f.Close() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("database %s: %w", path, err)
	}
	header := make([]byte, 100)
	n, err := io.ReadFull(f, header)
	if errors.Is(err, io.EOF) {
		return nil // new
	}
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("database %s: %w", path, err)
	}
	if n < len(header) || !strings.HasPrefix(string(header), "SQLite format 3\x00") {
		return fmt.Errorf("database %s: is not an SQLite file: name another file, or move this one away", path)
	}
	if err := recognise(path, int(binary.BigEndian.Uint32(header[68:])), int(binary.BigEndian.Uint32(header[60:])), false); err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := f.Chmod(0o600); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return fmt.Errorf("database %s: can be read by others and its mode cannot be changed: %w", path, err)
		}
	}
	return nil
}

// recognise judges the two numbers of a header. A file without tables has none.
func recognise(path string, appID, version int, tables bool) error {
	newest, err := newestSchema()
	switch {
	case err != nil:
		return err
	case appID != applicationID && (appID != 0 || tables):
		return fmt.Errorf("database %s: belongs to another program: name another file", path)
	case version > newest:
		return fmt.Errorf("database %s: was written by a newer Muster (schema %d, this program knows up to %d): run that version or a later one; the file has not been changed", path, version, newest)
	}
	return nil
}

// connect opens a pool. Each connection gets the same settings.
func connect(path string, opts Options, extra string, conns int) (*sql.DB, error) {
	if err := registered; err != nil {
		return nil, fault(path, "open", err)
	}
	settings := []string{
		fmt.Sprintf("busy_timeout(%d)", opts.BusyTimeout.Milliseconds()),
		"journal_mode(WAL)",
		// A write that was reported must survive a power cut.
		"synchronous(FULL)",
		// macOS lies to fsync otherwise; elsewhere they do nothing.
		"fullfsync(1)", "checkpoint_fullfsync(1)",
		"foreign_keys(1)",
		"temp_store(MEMORY)",
		"journal_size_limit(67108864)", // what a burst made of the log is given back
	}
	query := extra
	for _, p := range settings {
		query += "&_pragma=" + p
	}
	db, err := sql.Open("sqlite", uri(path)+"?"+query)
	if err != nil {
		return nil, fault(path, "open", err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(0)
	db.SetConnMaxLifetime(0)
	return db, nil
}

// uri spells a path so that no character of it means something to SQLite.
func uri(path string) string {
	p := filepath.ToSlash(path)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // C:/…
	}
	return "file:" + (&url.URL{Path: p}).EscapedPath()
}

// migrate brings the schema up to date, step by step, each in a transaction of
// its own. Of several processes one migrates and the others find it done. A new file
// gets all steps at once, so that one half-way is an old one. alone says that nobody
// else has the file open.
func migrate(ctx context.Context, db *sql.DB, path string, alone bool) error {
	newest, err := newestSchema()
	if err != nil {
		return err
	}
	for {
		done, err := migrateOnce(ctx, db, path, newest, alone)
		if err != nil {
			return fmt.Errorf("open: %w", fault(path, "bring the schema up to date", err))
		}
		if done {
			return nil
		}
	}
}

func migrateOnce(ctx context.Context, db *sql.DB, path string, newest int, alone bool) (done bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // after Commit it has nothing to do
	var appID, version, tables int
	for pragma, dest := range map[string]*int{
		"PRAGMA application_id": &appID, "PRAGMA user_version": &version, "SELECT count(*) FROM sqlite_schema": &tables,
	} {
		if err := tx.QueryRowContext(ctx, pragma).Scan(dest); err != nil {
			return false, err
		}
	}
	if err := recognise(path, appID, version, tables > 0); err != nil {
		return false, err
	}
	upTo := min(version+1, newest)
	switch {
	case version == newest:
		return true, nil
	case version == 0:
		upTo = newest
	case version < aloneSchema && !alone:
		return false, errAlone
	}
	for version < upTo {
		version++
		step, err := migrationFor(version)
		if err != nil {
			return false, err
		}
		for _, statement := range []string{step, fmt.Sprintf("PRAGMA user_version = %d", version), fmt.Sprintf("PRAGMA application_id = %d", applicationID)} {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return false, fmt.Errorf("schema %d: %w", version, err)
			}
		}
	}
	return false, tx.Commit()
}

// checkLimit is the largest file whose pages are all looked at when it is opened:
// that takes half a second with 100,000 agents. Damage in a larger file shows when it
// is met.
const checkLimit = 256 << 20

// check refuses to work on a file that is damaged, before a half of the fleet is
// served from it.
func check(ctx context.Context, db *sql.DB, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("database %s: %w", path, err)
	}
	if info.Size() > checkLimit {
		return nil
	}
	var verdict string
	if err := db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&verdict); err != nil {
		return fmt.Errorf("open: %w", fault(path, "check", err))
	}
	if verdict != "ok" {
		return fmt.Errorf("database %s: %s (%s)", path, damaged, verdict)
	}
	return nil
}

// newestSchema is the number of the last file in migrations.
func newestSchema() (int, error) {
	entries, err := migrations.ReadDir("migrations")
	if err != nil {
		return 0, err
	}
	return len(entries), nil
}

func migrationFor(version int) (string, error) {
	names, err := fs.Glob(migrations, fmt.Sprintf("migrations/%04d_*.sql", version))
	if err != nil || len(names) != 1 {
		return "", fmt.Errorf("schema %s: want one migration, have %v", strconv.Itoa(version), names)
	}
	b, err := migrations.ReadFile(names[0])
	return string(b), err
}

// Times are kept as nanoseconds since 1970. The zero time, which has none, and
// what lies before it are the earliest.
func fromTime(t time.Time) int64 {
	if t.Year() < 1700 {
		return -1 << 63
	}
	return t.UnixNano()
}

func toTime(n int64) time.Time {
	if n == -1<<63 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

func fromTimePtr(t *time.Time) any {
	if t == nil {
		return nil
	}
	return fromTime(*t)
}

func toTimePtr(n sql.NullInt64) *time.Time {
	if !n.Valid {
		return nil
	}
	t := toTime(n.Int64)
	return &t
}
