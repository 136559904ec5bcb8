package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// maxGroup bounds how many writes share a transaction: together they take some 30 ms,
// which is how long the first waits for the last.
const maxGroup = 1024

// commitSiblings is how many writes may wait without Options.CommitDelay.
const commitSiblings = 5

// errClosed is returned after Close.
var errClosed = errors.New("the store is closed")

// writer runs all writes on one connection, one after the other. The writes that wait
// while a transaction runs share the next one, so a thousand acknowledgements pay for
// a few flushes to disk. Each has a savepoint of its own, so that one that fails takes
// nothing with it; records are written together, and each alone only if that fails.
type writer struct {
	db      *sql.DB
	jobs    chan *write
	delay   time.Duration // Options.CommitDelay
	closing chan struct{}
	close   func()
	gone    chan struct{} // closed when loop has ended
	// refuse, if not nil, is returned by every write.
	refuse error
	// changes reports the agents that a commit changed.
	changes agentChanges

	// Used by loop's goroutine alone.
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	// recording says that conn has the triggers of recordChanges.
	recording bool
	written   map[string]documentWrites // by agent
}

// write is one caller's part of a transaction.
type write struct {
	ctx     context.Context
	do      func(*tx) error
	records *records // what do writes, if that is all; nil: it does something else
	err     error
	done    chan error
}

// tx is the transaction a write runs in.
type tx struct{ w *writer }

// newWriter returns a writer whose loop has not been started.
func newWriter(db *sql.DB, delay time.Duration) *writer {
	w := &writer{db: db, delay: delay, jobs: make(chan *write, maxGroup), closing: make(chan struct{}), gone: make(chan struct{})}
	w.close = sync.OnceFunc(func() {
		close(w.closing)
		<-w.gone
	})
	return w
}

// run returns nil once what do wrote is durable. After an error it may be, too:
// a caller that gives up does not stop a transaction it shares with others, so
// do must not touch anything its caller reads after an error.
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
	case <-w.gone:
		select {
		case err := <-job.done:
			return err
		default:
			return errClosed
		}
	}
}

// apply runs do in a write transaction and returns what it returned.
func apply[T any](ctx context.Context, s *Store, op string, do func(*tx) (T, error)) (T, error) {
	var zero T
	value := make(chan T, 1) // not a shared variable: see run
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

// write is apply for what returns nothing.
func (s *Store) write(ctx context.Context, op string, do func(*tx) error) error {
	return s.fault(op, s.writer.run(ctx, do))
}

func (w *writer) loop() {
	defer close(w.gone)
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

// group returns first and all that wait behind it, up to maxGroup.
func (w *writer) group(first *write) []*write {
	group := w.waiting([]*write{first})
	if len(group) > commitSiblings && len(group) < maxGroup {
		time.Sleep(w.delay)
		group = w.waiting(group)
	}
	return group
}

// waiting appends the writes that wait, up to maxGroup in all.
func (w *writer) waiting(group []*write) []*write {
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
		job.done <- job.err
	}
}

// commit runs the group in one transaction. A member that fails keeps its error
// in err; the error returned is that of all.
func (w *writer) commit(group []*write) error {
	// A member that gives up must not stop the others.
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
		// No savepoint: its failure may undo the transaction, and SAVEPOINT and RELEASE
		// would nearly double the statements of a small write.
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
	// Also after a failed COMMIT: nobody knows whether the change is durable.
	defer w.changes.report(changes)
	if err := w.exec(ctx, `COMMIT`); err != nil {
		w.dropConn()
		return err
	}
	return nil
}

// runRecords begins a transaction with what the group has of records, together,
// and returns what is left to do. If that fails, it rolls back and returns the whole
// group: no savepoint is needed, since nothing was written before. An error is that of all.
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
		w.dropConn() // a full disk may have ended the transaction already
	}
}

// runOne returns an error only if the whole transaction is lost.
func (w *writer) runOne(ctx context.Context, job *write) error {
	if err := w.exec(ctx, `SAVEPOINT one`); err != nil {
		return err
	}
	if job.err = job.do(&tx{w}); job.err != nil {
		clear(w.written)
		// A full disk may have undone everything: then there is no savepoint to
		// go back to.
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

// dropConn closes the connection, and with it what its transaction has not
// committed. After an error that is surer than to guess its state.
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

// exec runs a fixed statement and returns how many rows it changed.
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

// get reads one row of a fixed query; sql.ErrNoRows says that there is none.
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

// revision makes the number callers see. The rid in it is never used again, so
// the revision of a deleted document fits none that takes its id later.
func revision(rid, rev int64) int64 { return rid<<32 | rev }

func changed(noun, id string) error {
	return fleet.Errorf(fleet.Conflict, "%s %s has been changed meanwhile: read it again and repeat the change", noun, id)
}

func missing(noun, id string) error {
	return fleet.Errorf(fleet.NotFound, "%s %s does not exist", noun, id)
}

func exists(noun, id string) error {
	return fleet.Errorf(fleet.Conflict, "%s %s exists already", noun, id)
}
