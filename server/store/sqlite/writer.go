package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"

	"github.com/muster-fleet/muster/server/fleet"
)

// maxGroup bounds how many writes share a transaction. Sharing saves the flush
// to disk, which at some hundred writes is a small part; a longer transaction
// would only make its first writer wait for its last.
const maxGroup = 256

// errClosed is what calls meet after Close.
var errClosed = errors.New("the store is closed")

// writer runs all writes of the process on one connection, one after the other.
// Writes that wait while a transaction runs go into the next one together, so a
// thousand acknowledgements pay for a few flushes to disk. Each has a savepoint
// of its own: one that fails takes nothing with it.
type writer struct {
	db    *sql.DB
	queue chan *write
	stop  chan struct{}
	gone  chan struct{} // closed when loop has ended
	once  sync.Once
	// refuse is what every write meets instead; nil: nothing.
	refuse error

	// Of the loop alone.
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

// write is one caller's part of a transaction.
type write struct {
	ctx  context.Context
	do   func(*tx) error
	err  error
	done chan error
}

// tx is the transaction a write runs in.
type tx struct{ w *writer }

func newWriter(db *sql.DB) *writer {
	w := &writer{db: db, queue: make(chan *write), stop: make(chan struct{}), gone: make(chan struct{})}
	go w.loop()
	return w
}

func (w *writer) close() {
	w.once.Do(func() { close(w.stop) })
	<-w.gone
}

// run returns nil once what do wrote is durable. After an error it may be, too:
// a caller that gives up does not stop a transaction it shares with others, so
// do must not touch anything its caller reads after an error.
func (w *writer) run(ctx context.Context, do func(*tx) error) error {
	if w.refuse != nil {
		return w.refuse
	}
	job := &write{ctx: ctx, do: do, done: make(chan error, 1)}
	select {
	case <-w.stop: // also when the loop is still free to take it
		return errClosed
	default:
	}
	select {
	case w.queue <- job:
	case <-w.stop:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-job.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
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
		case <-w.stop:
			w.dropConn()
			return
		case first := <-w.queue:
			group := w.gather(first)
			err := w.commit(group)
			for _, job := range group {
				if err != nil {
					// What a member saw of the others has not come to be.
					job.err = err
				}
				job.done <- job.err
			}
		}
	}
}

func (w *writer) gather(first *write) []*write {
	group := []*write{first}
	for len(group) < maxGroup {
		select {
		case job := <-w.queue:
			group = append(group, job)
		default:
			return group
		}
	}
	return group
}

// commit runs the group in one transaction. A member that fails keeps its error
// in err; the error returned is that of all.
func (w *writer) commit(group []*write) error {
	// A member that gives up must not stop the others.
	ctx := context.Background()
	if err := w.connect(ctx); err != nil {
		return err
	}
	if err := w.exec(ctx, `BEGIN IMMEDIATE`); err != nil {
		w.dropConn()
		return err
	}
	alone := len(group) == 1
	for _, job := range group {
		if job.err = job.ctx.Err(); job.err != nil {
			continue
		}
		if alone {
			// No savepoint: its failure may undo the transaction, and the two
			// statements would be a good part of all there are.
			if job.err = job.do(&tx{w}); job.err != nil {
				w.rollback(ctx)
				return nil
			}
			continue
		}
		if err := w.runOne(ctx, job); err != nil {
			w.dropConn() // rolls back
			return err
		}
	}
	if err := w.exec(ctx, `COMMIT`); err != nil {
		w.dropConn()
		return err
	}
	return nil
}

func (w *writer) rollback(ctx context.Context) {
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
		// A full disk may have undone everything: then there is no savepoint to
		// go back to.
		if err := w.exec(ctx, `ROLLBACK TO one`); err != nil {
			return job.err
		}
	}
	return w.exec(ctx, `RELEASE one`)
}

func (w *writer) connect(ctx context.Context) error {
	if w.conn != nil {
		return nil
	}
	conn, err := w.db.Conn(ctx)
	if err != nil {
		return err
	}
	w.conn, w.stmts = conn, map[string]*sql.Stmt{}
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

// looks is what the last look for others' writes saw.
type looks struct {
	sync.Mutex
	conn    *sql.Conn
	version int64
}

// ChangedElsewhere looks at SQLite's own count of what other connections have
// written, on the one connection that writes for this process.
func (s *Store) ChangedElsewhere(ctx context.Context) (bool, error) {
	return apply(ctx, s, "look for what others changed", func(t *tx) (bool, error) {
		var version int64
		if err := t.get(`PRAGMA data_version`, nil, &version); err != nil {
			return true, err
		}
		s.looks.Lock()
		defer s.looks.Unlock()
		// The counts of two connections have nothing to do with each other.
		changed := s.looks.conn != t.w.conn || s.looks.version != version
		s.looks.conn, s.looks.version = t.w.conn, version
		return changed, nil
	})
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
