package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/server/store"
)

// maxGroup bounds the writes that share a transaction. As many take some 30 ms, for which
// the first waits for the last.
const maxGroup = 1024

// commitSiblings is the largest group that is committed without Options.CommitDelay.
const commitSiblings = 5

// errClosed is returned after Close.
var errClosed = errors.New("the store is closed")

// writer runs all writes on one connection. The writes that arrive while a transaction runs
// share the next one, so that a thousand acknowledgements cost a few flushes to disk. Each
// write runs in its own savepoint, so that its failure does not affect the others. Records
// are written together, and one by one only if that fails.
type writer struct {
	db      *sql.DB
	jobs    chan *write
	delay   time.Duration // Options.CommitDelay
	closing chan struct{}
	close   func()
	stopped chan struct{} // closed when loop has returned
	// refuse, if not nil, is the error of every write.
	refuse error
	// failing reports whether a write has failed because of the disk, and Ping has not
	// succeeded in writing since.
	failing atomic.Bool
	// unknowns is of the documents that writes replace.
	unknowns store.Unknowns
	// changes reports the agents that a commit changed.
	changes agentChanges

	// The following are used only by the goroutine of loop.
	conn      *sql.Conn
	stmts     map[string]*sql.Stmt
	recording bool                      // whether conn has the triggers of recordChanges
	written   map[string]documentWrites // by agent
}

// write is one caller's part of a transaction.
type write struct {
	ctx     context.Context
	do      func(*tx) error
	records *records // what do writes; nil if it writes anything else
	err     error
	done    chan error
}

// tx is the transaction a write runs in.
type tx struct{ w *writer }

// newWriter returns a writer whose loop has not been started.
func newWriter(db *sql.DB, delay time.Duration) *writer {
	w := &writer{db: db, delay: delay, jobs: make(chan *write, maxGroup), closing: make(chan struct{}), stopped: make(chan struct{})}
	w.close = sync.OnceFunc(func() {
		close(w.closing)
		<-w.stopped
	})
	return w
}

// run returns nil once the changes that do made are durable. After an error they may be
// durable as well: a transaction does not stop when the context of one caller ends. So do
// may still run after run has returned an error, and must not write to variables that the
// caller then reads.
func (w *writer) run(ctx context.Context, do func(*tx) error) error {
	return w.enqueue(ctx, &write{ctx: ctx, do: do})
}

func (w *writer) enqueue(ctx context.Context, job *write) error {
	if w.refuse != nil {
		return w.refuse
	}
	job.done = make(chan error, 1)
	select {
	case w.jobs <- job:
	case <-w.closing:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-job.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-w.stopped:
		select {
		case err := <-job.done:
			return err
		default:
			return errClosed
		}
	}
}

// apply runs do in a write transaction and returns its result.
func apply[T any](ctx context.Context, s *Store, op string, do func(*tx) (T, error)) (T, error) {
	var zero T
	value := make(chan T, 1) // not a variable; see run
	err := s.writer.run(ctx, func(t *tx) error {
		v, err := do(t)
		if err == nil {
			value <- v
		}
		return err
	})
	if err != nil {
		return zero, s.fault(op, err)
	}
	return <-value, nil
}

// write is apply for a function without a result.
func (s *Store) write(ctx context.Context, op string, do func(*tx) error) error {
	return s.fault(op, s.writer.run(ctx, do))
}

func (w *writer) loop() {
	defer close(w.stopped)
	for {
		select {
		case <-w.closing:
			w.dropConn()
			return
		case first := <-w.jobs:
			w.write(w.group(first))
		}
	}
}

// group returns first and the queued writes, up to maxGroup. It waits for more if there are
// more than commitSiblings.
func (w *writer) group(first *write) []*write {
	group := w.appendQueued([]*write{first})
	if len(group) > commitSiblings && len(group) < maxGroup {
		time.Sleep(w.delay)
		group = w.appendQueued(group)
	}
	return group
}

// appendQueued appends the queued writes to group, up to maxGroup in all.
func (w *writer) appendQueued(group []*write) []*write {
	for len(group) < maxGroup {
		select {
		case job := <-w.jobs:
			group = append(group, job)
		default:
			return group
		}
	}
	return group
}

// write commits a group and wakes its callers.
func (w *writer) write(group []*write) {
	err := w.commit(group)
	for _, job := range group {
		if err != nil {
			// The whole group failed: a write may have succeeded only because of another
			// that was not stored.
			job.err = err
		}
		if diskFailed(job.err) {
			w.failing.Store(true)
		}
		job.done <- job.err
	}
}

// commit runs the group in one transaction. It sets err of a write that fails alone; the
// error it returns applies to the whole group.
func (w *writer) commit(group []*write) error {
	// The context of one caller must not stop the writes of the others.
	ctx := context.Background()
	if err := w.connect(ctx); err != nil {
		return err
	}
	if err := w.begin(ctx); err != nil {
		return err
	}
	var left []*write
	for _, job := range group {
		if job.err = job.ctx.Err(); job.err == nil {
			left = append(left, job)
		}
	}
	if len(group) == 1 {
		// A single write needs no savepoint: its failure rolls back the transaction.
		// SAVEPOINT and RELEASE would nearly double the statements of a small write.
		if len(left) == 1 {
			if left[0].err = left[0].do(&tx{w}); left[0].err != nil {
				w.rollback(ctx)
				return nil
			}
		}
		left = nil
	}
	left, err := w.runRecords(ctx, left)
	if err != nil {
		return err
	}
	for _, job := range left {
		if err := w.runOne(ctx, job); err != nil {
			w.dropConn() // rolls back
			return err
		}
	}
	changes, err := w.changedAgents()
	if err != nil {
		w.dropConn()
		return err
	}
	// Even if COMMIT fails, the change may be durable.
	defer w.changes.report(changes)
	if err := w.exec(ctx, `COMMIT`); err != nil {
		w.dropConn()
		return err
	}
	return nil
}

// runRecords writes the records of the group together and returns the remaining writes. If
// that fails, it rolls back the transaction, in which nothing else has been written yet, and
// returns the whole group. An error applies to the whole group.
func (w *writer) runRecords(ctx context.Context, group []*write) ([]*write, error) {
	var together []*records
	var others []*write
	for _, job := range group {
		if job.records != nil {
			together = append(together, job.records)
		} else {
			others = append(others, job)
		}
	}
	if len(together) < 2 {
		return group, nil
	}
	if err := putRecords(&tx{w}, together); err != nil {
		w.rollback(ctx)
		if w.conn == nil {
			return nil, err
		}
		return group, w.begin(ctx)
	}
	return others, nil
}

func (w *writer) begin(ctx context.Context) error {
	err := w.exec(ctx, `BEGIN IMMEDIATE`)
	if err != nil {
		w.dropConn()
	}
	return err
}

func (w *writer) rollback(ctx context.Context) {
	clear(w.written)
	if err := w.exec(ctx, `ROLLBACK`); err != nil {
		w.dropConn() // SQLite ends the transaction itself on a full disk
	}
}

// runOne runs a write in a savepoint. It returns an error only if the whole transaction is
// lost.
func (w *writer) runOne(ctx context.Context, job *write) error {
	if err := w.exec(ctx, `SAVEPOINT one`); err != nil {
		return err
	}
	if job.err = job.do(&tx{w}); job.err != nil {
		clear(w.written)
		// On a full disk SQLite may have rolled back the whole transaction, and with it the
		// savepoint.
		if err := w.exec(ctx, `ROLLBACK TO one`); err != nil {
			return job.err
		}
	}
	return w.exec(ctx, `RELEASE one`)
}

func (w *writer) connect(ctx context.Context) error {
	if w.conn == nil {
		conn, err := w.db.Conn(ctx)
		if err != nil {
			return err
		}
		w.conn, w.stmts, w.recording = conn, map[string]*sql.Stmt{}, false
	}
	if !w.recording && w.changes.wanted() {
		if _, err := w.conn.ExecContext(ctx, recordChanges); err != nil {
			w.dropConn()
			return err
		}
		w.recording, w.written = true, map[string]documentWrites{}
	}
	return nil
}

// dropConn closes the connection, which rolls back its transaction. After an error the state
// of the transaction is uncertain, so the next group starts on a new connection.
func (w *writer) dropConn() {
	if w.conn == nil {
		return
	}
	for _, st := range w.stmts { // first: a connection with open statements lives on, with its lock
		_ = st.Close()
	}
	_ = w.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = w.conn.Close()
	w.conn, w.stmts = nil, nil
}

func (w *writer) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if st, ok := w.stmts[query]; ok {
		return st, nil
	}
	st, err := w.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	w.stmts[query] = st
	return st, nil
}

func (w *writer) exec(ctx context.Context, query string) error {
	st, err := w.stmt(ctx, query)
	if err != nil {
		return err
	}
	_, err = st.ExecContext(ctx)
	return err
}

// exec runs a fixed statement and returns how many rows it changed. Statements are fixed
// because prepared ones are cached without a bound.
func (t *tx) exec(query string, args ...any) (int64, error) {
	st, err := t.w.stmt(context.Background(), query)
	if err != nil {
		return 0, err
	}
	r, err := st.Exec(args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// get reads one row of a fixed query. It returns sql.ErrNoRows if there is none.
func (t *tx) get(query string, args []any, dest ...any) error {
	st, err := t.w.stmt(context.Background(), query)
	if err != nil {
		return err
	}
	return st.QueryRow(args...).Scan(dest...)
}

// each calls f for every row of a fixed query.
func (t *tx) each(query string, args []any, f func(scan) error) error {
	st, err := t.w.stmt(context.Background(), query)
	if err != nil {
		return err
	}
	rows, err := st.Query(args...)
	if err != nil {
		return err
	}
	return eachRow(rows, f)
}

// revision returns the Revision that callers see. A rid is never used again, so the revision
// of a deleted document does not match a later document with the same id.
func revision(rid, rev int64) int64 { return rid<<32 | rev }
