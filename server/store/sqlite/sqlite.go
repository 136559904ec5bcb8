// Package sqlite implements package store on one SQLite file. `muster server` uses it if
// no other store is configured. Only this package contains SQL.
//
// The file belongs to one process, which holds a lock on it; others may read it. DESIGN.md
// explains the tables.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sync/semaphore"

	"github.com/muster-fleet/muster/server/store"
)

// Defaults of [Options].
const (
	// DefaultReaders is how many reads run concurrently. Reads are bound by the processor,
	// so more connections only cost memory, a page cache each.
	DefaultReaders = 4
	// DefaultBusyTimeout is how long Open waits for another process that owns the file,
	// such as a server that is being replaced or a command, and how long a write waits for
	// a process that locks the file, such as a backup.
	DefaultBusyTimeout = 5 * time.Second
	// DefaultCommitDelay is how long a transaction waits for more writes if more than
	// commitSiblings are waiting already, like PostgreSQL's settings of these names. When a
	// fleet acknowledges an action, thousands of writes arrive within a second, and a commit
	// costs as much as twenty of them. A few writes are never delayed.
	DefaultCommitDelay = 10 * time.Millisecond
)

// Options of Open; the zero value is right for a server.
type Options struct {
	Readers     int           // zero: DefaultReaders
	BusyTimeout time.Duration // zero: DefaultBusyTimeout
	// CommitDelay is DefaultCommitDelay if it is zero, and no delay if it is negative. A
	// simulation in virtual time needs none, since the delay would depend on Go's
	// scheduler.
	CommitDelay time.Duration
	// ReadOnly opens the file beside the process that owns it and never writes to it. Every
	// write of the Store fails.
	ReadOnly bool
	// Moved allows opening a store that is marked as moved.
	Moved bool

	schemas schemas // zero: embedded
}

// Store is an open file. It is safe for concurrent use.
type Store struct {
	store.Typed

	path    string
	lock    *flock.Flock // nil if Options.ReadOnly
	readers *readPool
	queries *semaphore.Weighted // half of the readers
	writer  *writer

	rids       ridCache
	unreadable store.Unreadables
	exclusive  store.Exclusive
	actions    store.ActionCache[int64]
}

var _ store.Store = (*Store)(nil)

func (s *Store) Agents() store.Agents   { return agents{s} }
func (s *Store) Actions() store.Actions { return actions{s} }
func (s *Store) Results() store.Results { return results{s} }

func (s *Store) Rollouts() store.Rollouts {
	return rollouts{store.KindRollouts.In(rolloutDocuments{s}), s}
}

func (s *Store) Targets() store.Targets   { return targets{s} }
func (s *Store) Audit() store.Audit       { return audit{s} }
func (s *Store) History() store.History   { return history{s} }
func (s *Store) Events() store.Events     { return events{s} }
func (s *Store) Settings() store.Settings { return settings{s} }

// PackageData returns nil: the process that owns the file keeps packages in the folder
// beside it.
func (s *Store) PackageData() store.PackageData { return nil }

// Schema returns the number of the newest schema, which Open has brought the file to.
func (s *Store) Schema() int { return NewestSchema() }

// Exclusively needs no lock in the file, which belongs to this process.
func (s *Store) Exclusively(ctx context.Context, what string, f func(context.Context) error) error {
	return s.exclusive.Do(ctx, what, f)
}

// Unreadable returns the documents that lists and scans have left out.
func (s *Store) Unreadable() *store.Unreadables { return &s.unreadable }

// NewestSchema returns the number of the schema that this program writes.
func NewestSchema() int {
	newest, _ := embedded.newest() // the files are embedded, so that reading them cannot fail
	return newest
}

// Path returns the absolute path of the file.
func (s *Store) Path() string { return s.path }

// Ping reads the first page of the file and begins a transaction, as every write does. It
// detects a file that is locked or read-only. After a write has failed because of the
// disk, it also writes, until that succeeds; before, an idle server need not keep writing.
func (s *Store) Ping(ctx context.Context) error {
	var version int
	if err := s.get(ctx, `PRAGMA user_version`, nil, &version); err != nil {
		return err
	}
	err := s.writer.run(ctx, func(*tx) error { return nil })
	if errors.Is(err, context.DeadlineExceeded) {
		return store.Unavailable("ping", err, "database %s: it takes no writes: another process may have locked it, or the disk does not answer", s.path)
	}
	if err == nil && s.writer.failing.Load() {
		err = s.probe(ctx)
	}
	return s.fault("ping", err)
}

// probeSetting is the name of the setting that probe writes. Settings.Each hides it.
const probeSetting = "write-probe"

// probeSize is more than a few waiting writes need: while the disk has a page or two left,
// some writes succeed.
const probeSize = 64 << 10

// probe writes and removes a value. It needs two transactions, since SQLite does not write
// pages that are freed by the same one.
func (s *Store) probe(ctx context.Context) error {
	for _, query := range []string{`INSERT INTO settings (name, value) VALUES (?1, zeroblob(?2)) ON CONFLICT DO UPDATE SET value = zeroblob(?2)`, `DELETE FROM settings WHERE ?2 > 0 AND name = ?1`} {
		err := s.writer.run(ctx, func(t *tx) error {
			_, err := t.exec(query, probeSetting, probeSize)
			return err
		})
		if err != nil {
			return err
		}
	}
	s.writer.failing.Store(false)
	return nil
}

// Close waits for the running transaction. Queued writes, and all later calls, fail with
// Unavailable.
func (s *Store) Close() error {
	s.writer.close()
	// Readers first: the last connection to close must be able to write, since it copies the
	// log into the file.
	err := errors.Join(s.readers.Close(), s.writer.db.Close())
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return s.fault("close", err)
}

// readPool is the connections that read, and their prepared statements by their text.
type readPool struct {
	*sql.DB
	mu    sync.Mutex
	stmts map[string]*sql.Stmt
}

func newReadPool(db *sql.DB) *readPool { return &readPool{DB: db, stmts: map[string]*sql.Stmt{}} }

// stmt returns a prepared statement. query must be one of a fixed set, because statements
// are cached without a bound.
func (s *Store) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	r := s.readers
	r.mu.Lock()
	defer r.mu.Unlock()
	if st, ok := r.stmts[query]; ok {
		return st, nil
	}
	st, err := r.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	r.stmts[query] = st
	return st, nil
}

// get reads one row of a fixed query; see stmt. It returns sql.ErrNoRows unchanged.
func (s *Store) get(ctx context.Context, query string, args []any, dest ...any) error {
	st, err := s.stmt(ctx, query)
	if err == nil {
		err = st.QueryRowContext(ctx, args...).Scan(dest...)
	}
	return s.fault("read", err)
}

// each calls f for every row of a fixed query; see stmt.
func (s *Store) each(ctx context.Context, query string, args []any, f func(scan) error) error {
	st, err := s.stmt(ctx, query)
	if err != nil {
		return s.fault("read", err)
	}
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return s.fault("read", err)
	}
	return s.fault("read", s.eachRow(rows, f))
}

// page calls f for the rows of one page and returns the total number of rows, both from
// one snapshot. count takes args; if it is empty, the rows are not counted. query takes
// args, the limit (-1 for none) and the offset.
func (s *Store) page(ctx context.Context, op, count, query string, args []any, offset, limit int, f func(scan) error) (total int, err error) {
	return s.pageOf(ctx, op, count, func(int) string { return query }, args, offset, limit, f)
}

// pageOf is page with a query that depends on the total.
func (s *Store) pageOf(ctx context.Context, op, count string, query func(total int) string, args []any, offset, limit int, f func(scan) error) (total int, err error) {
	tx, err := s.readers.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return 0, s.fault(op, err)
	}
	defer tx.Rollback() // nothing was written
	if count != "" {
		err = tx.QueryRowContext(ctx, count, args...).Scan(&total)
	}
	if err != nil || limit == 0 {
		return total, s.fault(op, err)
	}
	rows, err := tx.QueryContext(ctx, query(total), append(args[:len(args):len(args)], limit, max(offset, 0))...)
	if err == nil {
		err = s.eachRow(rows, f)
	}
	return total, s.fault(op, err)
}

// scan reads the columns of one row.
type scan func(dest ...any) error

// eachRow calls f for every row. A row whose document cannot be read is left out: f returns its
// error, and must not have used it.
func (s *Store) eachRow(rows *sql.Rows, f func(scan) error) error {
	return eachRow(rows, func(scan scan) error {
		err := f(scan)
		if err != nil && s.unreadable.Skip(err) {
			return nil
		}
		return err
	})
}

// eachRow calls f for every row until f returns an error.
func eachRow(rows *sql.Rows, f func(scan) error) error {
	defer rows.Close() // rows.Err reports errors
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// documentsAhead is how many rows are read before their documents are decoded: enough to
// make the cost of starting goroutines negligible, and few enough to hold in memory.
const documentsAhead = 512

// eachDocument calls f with the value of every row, in their order. Decoding is most of
// the work, so it runs on all processors. row reads one row and returns a function that
// decodes it; these functions run concurrently.
func eachDocument[T any](s *Store, rows *sql.Rows, row func(scan) (func() (T, error), error), f func(T)) error {
	var pending []func() (T, error)
	var values []T
	var left []bool // whether the value is left out
	flush := func() error {
		if len(values) < len(pending) {
			values, left = make([]T, len(pending)), make([]bool, len(pending)) // not documentsAhead: most queries have few rows
		}
		err := onAllProcessors(len(pending), func(i int) (err error) {
			values[i], err = pending[i]()
			if left[i] = err != nil && s.unreadable.Skip(err); left[i] {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		for i := range pending {
			if !left[i] {
				f(values[i])
			}
		}
		pending = pending[:0]
		return nil
	}
	err := s.eachRow(rows, func(scan scan) error {
		read, err := row(scan)
		if err != nil {
			return err
		}
		if pending = append(pending, read); len(pending) == documentsAhead {
			return flush()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// onAllProcessors calls f for every number below n, concurrently. It returns the errors of
// f; after an error not all numbers are processed.
func onAllProcessors(n int, f func(i int) error) error {
	workers := min(runtime.GOMAXPROCS(0), n)
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				errs[w] = f(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
