package sqlite

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// applicationID marks the header of Muster's files.
const applicationID = 0x4d757374 // "Must"

// Open opens the file at path, creating it if there is none; its folder must exist. It
// holds a lock on the file until Close, and fails with ErrInUse if another process does.
// Open upgrades an older schema. It refuses, and does not change, a file that is damaged,
// or was written by a newer Muster or by another program.
func Open(ctx context.Context, path string, opts Options) (_ *Store, err error) {
	if opts.Readers == 0 {
		opts.Readers = DefaultReaders
	}
	if opts.BusyTimeout == 0 {
		opts.BusyTimeout = DefaultBusyTimeout
	}
	if opts.CommitDelay == 0 {
		opts.CommitDelay = DefaultCommitDelay
	}
	if opts.schemas.files == nil {
		opts.schemas = embedded
	}
	// An absolute path stays valid if the process changes its folder, and has one spelling
	// as a URI.
	if path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("database %s: %w", path, err)
	}
	if err := prepareFile(path, opts.schemas, opts.ReadOnly); err != nil {
		return nil, err
	}
	s := &Store{path: path, queries: semaphore.NewWeighted(int64(max(1, opts.Readers/2)))}
	s.Typed = s.Documents
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closePartial())
		}
	}()
	if opts.ReadOnly {
		err = s.openReadOnly(ctx, opts)
	} else {
		err = s.open(ctx, opts)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, opts Options) (err error) {
	if s.lock, err = acquireLock(ctx, s.path, opts.BusyTimeout); err != nil {
		return err
	}
	if err := upgradeSchema(ctx, s.path, opts); err != nil {
		return err
	}
	db, err := connect(s.path, opts, writerSettings, 1)
	if err != nil {
		return err
	}
	s.writer = newWriter(db, opts.CommitDelay)
	if err := check(ctx, db, s.path); err != nil {
		return err
	}
	if err := refuseMoved(ctx, db, s.path, opts); err != nil {
		return err
	}
	readers, err := connect(s.path, opts, readerSettings, opts.Readers)
	if err != nil {
		return err
	}
	s.readers = newReadPool(readers)
	go s.writer.loop()
	return nil
}

func (s *Store) openReadOnly(ctx context.Context, opts Options) error {
	db, err := connect(s.path, opts, "mode=ro&"+readerSettings, opts.Readers)
	if err != nil {
		return err
	}
	s.readers, s.writer = newReadPool(db), newWriter(db, 0)
	s.writer.refuse = errReadOnly
	version, newest, err := schemaOf(ctx, db, opts.schemas, s.path)
	if err != nil {
		return fmt.Errorf("open: %w", fault(s.path, "read", err))
	}
	if version < newest {
		err = fmt.Errorf("database %s: was written by an older Muster (schema %d, this program reads %d): stop that server, and run the command again", s.path, version, newest)
	}
	if err == nil {
		err = refuseMoved(ctx, db, s.path, opts)
	}
	if err == nil {
		go s.writer.loop()
	}
	return err
}

// closePartial closes what a failed Open has opened.
func (s *Store) closePartial() error {
	var errs []error
	if s.readers != nil {
		errs = append(errs, s.readers.Close())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.db.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// Settings of connections. The cache of the writer holds all of agent_last_seen and facts
// of 100,000 agents; the pages that readers miss are in the system's cache.
const (
	writerSettings = "_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=cache_size(-16000)"
	readerSettings = "_pragma=query_only(1)&_pragma=cache_size(-4000)"
	// exclusiveSettings keep other processes out of the file. In this mode SQLite keeps the
	// index of the log in memory, if the mode is set before the first read.
	exclusiveSettings = writerSettings + "&_pragma=locking_mode(EXCLUSIVE)"
)

// upgradeSchema upgrades the schema to the newest. No other connection may be open
// meanwhile: a reader of an older Muster, which takes no lock, would continue to use
// tables that no longer exist. Afterwards an older Muster refuses the file.
func upgradeSchema(ctx context.Context, path string, opts Options) (err error) {
	version, newest := 0, 0
	for _, settings := range []string{writerSettings, exclusiveSettings} {
		db, err := connect(path, opts, settings, 1)
		if err != nil {
			return err
		}
		version, newest, err = schemaOf(ctx, db, opts.schemas, path)
		if err == nil && version < newest && settings == exclusiveSettings {
			err = migrate(ctx, db, opts.schemas, version, newest)
		}
		if cerr := db.Close(); err == nil {
			err = cerr
		}
		switch {
		case code(err) == sqlite3.SQLITE_BUSY && settings == exclusiveSettings:
			return fmt.Errorf("open: %w: an older Muster may have it open, and must not use it beside this one: stop every process that has it open, then start again", fault(path, "upgrade the schema", err))
		case err != nil:
			return fmt.Errorf("open: %w", fault(path, "upgrade the schema", err))
		case version == newest:
			return nil
		}
	}
	return nil
}

// prepareFile creates the file, or checks its header without SQLite, which might change the
// file. It makes the file private to its owner, because it contains hashes of keys; SQLite
// gives the files beside it the same mode. With readOnly it only checks the header.
func prepareFile(path string, of schemas, readOnly bool) error {
	flag := os.O_RDWR | os.O_CREATE
	if readOnly {
		flag = os.O_RDONLY
	}
	f, err := os.OpenFile(path, flag, 0o600)
	switch {
	case err != nil && readOnly:
		return fmt.Errorf("database %s: %w", path, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("database %s: its folder does not exist: create it, or choose another file: %w", path, err)
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
		return fmt.Errorf("database %s: is not an SQLite file: choose another file, or move this one away", path)
	}
	if err := checkHeader(path, of, int(binary.BigEndian.Uint32(header[68:])), int(binary.BigEndian.Uint32(header[60:])), false); err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 && !readOnly {
		if err := f.Chmod(0o600); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return fmt.Errorf("database %s: can be read by others and its mode cannot be changed: %w", path, err)
		}
	}
	return nil
}

// checkHeader refuses files of other programs and newer schemas. A file without tables has
// neither number.
func checkHeader(path string, of schemas, appID, version int, tables bool) error {
	newest, err := of.newest()
	switch {
	case err != nil:
		return err
	case appID != applicationID && (appID != 0 || tables):
		return fmt.Errorf("database %s: belongs to another program: choose another file", path)
	case version > newest:
		e := fleet.Errorf(fleet.Internal, "database %s: was written by a newer Muster (schema %d, this program supports up to %d): run that version or a later one; the file has not been changed", path, version, newest)
		e.Err = store.ErrNewer
		return e
	}
	return nil
}

// connect opens a pool of connections, all with the same settings.
func connect(path string, opts Options, extra string, conns int) (*sql.DB, error) {
	if err := registered; err != nil {
		return nil, fault(path, "open", err)
	}
	settings := []string{
		fmt.Sprintf("busy_timeout(%d)", opts.BusyTimeout.Milliseconds()),
		// A write that returned nil must survive a power cut.
		"synchronous(FULL)",
		// On macOS fsync alone does not reach the disk; elsewhere these have no effect.
		"fullfsync(1)", "checkpoint_fullfsync(1)",
		"foreign_keys(1)",
		"temp_store(MEMORY)",
		"journal_size_limit(67108864)", // truncates a log that grew in a burst
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

// uri returns path as a URI for SQLite, with special characters escaped.
func uri(path string) string {
	p := filepath.ToSlash(path)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // C:/…
	}
	return "file:" + (&url.URL{Path: p}).EscapedPath()
}

// schemaOf returns the schema version of the file and the newest one. It fails if the file
// belongs to another program or a newer Muster.
func schemaOf(ctx context.Context, db *sql.DB, of schemas, path string) (version, newest int, err error) {
	var appID, tables int
	err = db.QueryRowContext(ctx, `SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id, pragma_user_version`).
		Scan(&appID, &version, &tables)
	if err != nil {
		return 0, 0, err
	}
	if newest, err = of.newest(); err != nil {
		return 0, 0, err
	}
	return version, newest, checkHeader(path, of, appID, version, tables > 0)
}

// migrate applies all missing migrations in one transaction.
func migrate(ctx context.Context, db *sql.DB, of schemas, version, newest int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after Commit
	for version < newest {
		version++
		step, err := of.up(version)
		if err != nil {
			return err
		}
		for _, statement := range []string{step, fmt.Sprintf("PRAGMA user_version = %d", version), fmt.Sprintf("PRAGMA application_id = %d", applicationID)} {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("schema %d: %w", version, err)
			}
		}
	}
	return tx.Commit()
}

// checkLimit is the largest file that is checked whole when it is opened, which takes half
// a second with 100,000 agents. Damage in a larger file is reported by the query that reads
// it.
const checkLimit = 256 << 20

// check refuses a damaged file before the server uses it.
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

// fromTime converts a time to the form the tables store, nanoseconds since 1970. The zero
// time, which is out of range, becomes the lowest number, and so does any time before 1700.
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
