// Package sqlite keeps the server's documents in one SQLite file: the store that
// `muster server` uses when none is configured. It implements the interfaces of
// package store, is proved by storetest, and is the only place with SQL.
//
// The file belongs to one process, which holds a lock on it; others may read it.
// Why the tables are as they are stands in DESIGN.md.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Defaults of [Options].
const (
	// DefaultReaders is how many reads run at once. SQLite is bound by the
	// processor, so more than a few only take memory (a page cache each).
	DefaultReaders = 4
	// DefaultBusyTimeout is how long Open waits for another process that owns the
	// file, such as a server that is being replaced or a command, and how long a write
	// waits for one that locks it from outside, such as a backup.
	DefaultBusyTimeout = 5 * time.Second
	// DefaultCommitDelay is how long a transaction waits for more writes where more
	// than commitSiblings wait already: PostgreSQL has settings of these names. When a
	// fleet acknowledges, thousands of writes come one after the other, and to end a
	// transaction costs as much as twenty of them. One write, or a few, never wait.
	DefaultCommitDelay = 10 * time.Millisecond
)

// Options of Open; the zero value is right for a server.
type Options struct {
	Readers     int           // zero: DefaultReaders
	BusyTimeout time.Duration // zero: DefaultBusyTimeout
	// CommitDelay is DefaultCommitDelay if it is zero, and none below. A simulation in
	// virtual time has none: how many writes wait there is up to Go's scheduler.
	CommitDelay time.Duration
	// ReadOnly reads the file beside the process that owns it, and never writes to it:
	// every write of the Store fails.
	ReadOnly bool
	// Moved opens a store that is marked as moved, too.
	Moved bool
}

// Store is an open file. It is safe for concurrent use.
type Store struct {
	path    string
	lock    *flock.Flock // nil if the file is opened to be read
	readers *reading
	writer  *writer

	rids    ridCache
	actions store.ActionCache[int64]

	// unlabelled says that some agents of the first schema have not got their labels:
	// then every write of one makes all of its facts.
	unlabelled bool
}

var _ store.Store = (*Store)(nil)

func (s *Store) Agents() store.Agents   { return agents{s} }
func (s *Store) Actions() store.Actions { return actions{s} }
func (s *Store) Results() store.Results { return results{s} }

func (s *Store) Policies() store.Collection[fleet.Policy] {
	return collection[fleet.Policy]{s, "policy", func(v *fleet.Policy) (string, *int64) { return v.ID, &v.Revision }}
}

func (s *Store) Packages() store.Collection[fleet.Package] {
	return collection[fleet.Package]{s, "package", func(v *fleet.Package) (string, *int64) { return v.File, &v.Revision }}
}

func (s *Store) EnrollmentKeys() store.Collection[fleet.EnrollmentKey] {
	return collection[fleet.EnrollmentKey]{s, "enrollment key", func(v *fleet.EnrollmentKey) (string, *int64) { return v.ID, &v.Revision }}
}

func (s *Store) AdminKeys() store.Collection[fleet.AdminKey] {
	return collection[fleet.AdminKey]{s, "admin key", func(v *fleet.AdminKey) (string, *int64) { return v.ID, &v.Revision }}
}

func (s *Store) PublisherKeys() store.Collection[fleet.PublisherKey] {
	return collection[fleet.PublisherKey]{s, "publisher key", func(v *fleet.PublisherKey) (string, *int64) { return v.ID, &v.Revision }}
}

func (s *Store) TrustFiles() store.Collection[fleet.TrustFile] {
	return collection[fleet.TrustFile]{s, "trust file", func(v *fleet.TrustFile) (string, *int64) { return v.ID, &v.Revision }}
}

func (s *Store) Previews() store.Collection[fleet.Preview] {
	return collection[fleet.Preview]{s, "preview", func(v *fleet.Preview) (string, *int64) { return v.Hash, &v.Revision }}
}

func (s *Store) Leases() store.Collection[fleet.Lease] {
	return collection[fleet.Lease]{s, "lease", func(v *fleet.Lease) (string, *int64) { return v.ID, &v.Revision }}
}

func (s *Store) PolicyLocks() store.Collection[fleet.PolicyLock] {
	return collection[fleet.PolicyLock]{s, "policy lock", func(v *fleet.PolicyLock) (string, *int64) { return v.PolicyID, &v.Revision }}
}

func (s *Store) ExposureRules() store.Collection[fleet.ExposureRule] {
	return collection[fleet.ExposureRule]{s, "exposure rule", func(v *fleet.ExposureRule) (string, *int64) { return v.ID, &v.Revision }}
}

func (s *Store) Freezes() store.Collection[fleet.Freeze] {
	return collection[fleet.Freeze]{s, "freeze", func(v *fleet.Freeze) (string, *int64) { return v.ID, &v.Revision }}
}

func (s *Store) Incidents() store.Collection[fleet.Incident] {
	return collection[fleet.Incident]{s, "incident", func(v *fleet.Incident) (string, *int64) { return v.ID, &v.Revision }}
}

func (s *Store) Webhooks() store.Collection[fleet.Webhook] {
	return collection[fleet.Webhook]{s, "webhook", func(v *fleet.Webhook) (string, *int64) { return v.ID, &v.Revision }}
}

func (s *Store) DeadLetters() store.Collection[fleet.DeadLetter] {
	return collection[fleet.DeadLetter]{s, "dead letter", func(v *fleet.DeadLetter) (string, *int64) { return v.ID, &v.Revision }}
}

func (s *Store) Rollouts() store.Rollouts { return rollouts{s} }
func (s *Store) Targets() store.Targets   { return targets{s} }
func (s *Store) Audit() store.Audit       { return audit{s} }
func (s *Store) Events() store.Events     { return events{s} }
func (s *Store) Settings() store.Settings { return settings{s} }

// PackageData is nil. Whoever opens the file is on its machine, and can read the
// folder of packages beside it: to keep them in the file as well would take their
// room twice.
func (s *Store) PackageData() store.PackageData { return nil }

// Path of the file.
func (s *Store) Path() string { return s.path }

// Ping reads the file's first page, and opens a transaction as every write does: it
// notices a file that is locked or must not be written. A full disk it does not: an
// idle server would write to it all day to find out.
func (s *Store) Ping(ctx context.Context) error {
	var version int
	if err := s.get(ctx, `PRAGMA user_version`, nil, &version); err != nil {
		return err
	}
	err := s.writer.run(ctx, func(*tx) error { return nil })
	if errors.Is(err, context.DeadlineExceeded) {
		return unavailable("ping", err, "database %s: it takes no writes: another process may have locked it, or the disk does not answer", s.path)
	}
	return s.fault("ping", err)
}

// Close waits for writes that have begun. Those that wait their turn, and every
// later call, fail as Unavailable.
func (s *Store) Close() error {
	s.writer.close()
	// Readers first: the last connection to close empties the log into the file.
	err := errors.Join(s.readers.Close(), s.writer.db.Close())
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return s.fault("close", err)
}

// reading is connections that read, and their prepared statements by their text.
type reading struct {
	*sql.DB
	mu    sync.Mutex
	stmts map[string]*sql.Stmt
}

func newReading(db *sql.DB) *reading { return &reading{DB: db, stmts: map[string]*sql.Stmt{}} }

// stmt returns a prepared statement. It is for the fixed queries of this package, so
// what is kept is bounded.
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

// get reads one row of a fixed query; sql.ErrNoRows comes back as it is.
func (s *Store) get(ctx context.Context, query string, args []any, dest ...any) error {
	st, err := s.stmt(ctx, query)
	if err == nil {
		err = st.QueryRowContext(ctx, args...).Scan(dest...)
	}
	return s.fault("read", err)
}

// each calls f for every row of a fixed query.
func (s *Store) each(ctx context.Context, query string, args []any, f func(scan) error) error {
	st, err := s.stmt(ctx, query)
	if err != nil {
		return s.fault("read", err)
	}
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return s.fault("read", err)
	}
	return s.fault("read", eachRow(rows, f))
}

// page calls f for the rows of one page and returns how many there are in all,
// both from one snapshot so that they fit. count takes args, and may be empty: then
// they are not counted. query takes args, the limit (-1 for none) and the offset.
func (s *Store) page(ctx context.Context, op, count, query string, args []any, offset, limit int, f func(scan) error) (total int, err error) {
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
	rows, err := tx.QueryContext(ctx, query, append(args[:len(args):len(args)], limit, max(offset, 0))...)
	if err == nil {
		err = eachRow(rows, f)
	}
	return total, s.fault(op, err)
}

// scan reads the columns of one row.
type scan func(dest ...any) error

func eachRow(rows *sql.Rows, f func(scan) error) error {
	defer rows.Close() // Err tells
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// documentsAhead is how many rows are read before their documents are decoded:
// enough that starting goroutines costs nothing, few enough to hold in memory.
const documentsAhead = 512

// eachDocument calls f with the value of every row, in their order. Decoding is
// most of the work, so all processors share it. row reads one and returns what
// decodes it, which must not need anything of another.
func eachDocument[T any](rows *sql.Rows, row func(scan) (func() (T, error), error), f func(T)) error {
	var pending []func() (T, error)
	var values []T
	flush := func() error {
		if len(values) < len(pending) {
			values = make([]T, len(pending)) // not before: most callers ask for a few
		}
		err := onAllProcessors(len(pending), func(i int) (err error) {
			values[i], err = pending[i]()
			return err
		})
		if err != nil {
			return err
		}
		for i := range pending {
			f(values[i])
		}
		pending = pending[:0]
		return nil
	}
	err := eachRow(rows, func(scan scan) error {
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

// onAllProcessors calls f for every number below n. It returns an error of f's.
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
