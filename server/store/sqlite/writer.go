package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// maxGroup bounds how many writes share a transaction: as many acknowledgements as
// a server of two cores takes at once. In no order they go to all pages of an index,
// so the more of them there are, the fewer pages each has to pay for: at 1,024 an
// acknowledgement then takes a fifth less of the processor's time than at 256. Together
// they take some 30 ms, which is how long the first waits for the last.
const maxGroup = 1024

const (
	// shorter is how much less a transaction takes in while somebody waits
	// who may write next: an eighth of the fleet's are some 5 ms.
	shorter    = 8
	shortGroup = maxGroup / shorter
	// maxHold is how long the others' writes wait for the next write of who waits:
	// those of one order follow each other within a millisecond or two. Where urgent
	// writes never end, the others have their turn as often.
	maxHold = 20 * time.Millisecond
	// holdLook is how often it is looked whether anybody still waits.
	holdLook = time.Millisecond
	// crowd is how many records come within maxGather, each while others wait, for a
	// group to wait for more of them: what a fleet acknowledges. Who writes one after the
	// other is no crowd. A server lets requests that have begun go first, and the loop
	// would write as soon as there is one: most groups were of one to twenty, and to end
	// the transaction took more time than all that was in it.
	crowd = 16
	// fullGroup is enough to write at once. Between 128 and 1,024 no difference could be
	// measured, and the larger a group is, the longer its first waits.
	fullGroup = 256
	// maxGather is how long the first of a group waits for others, and gatherLook how
	// long for the next: in that time all who were told of the last group have gone on.
	maxGather  = 20 * time.Millisecond
	gatherLook = 2 * time.Millisecond
	// toldTogether is how many callers are told of their group's end before these may
	// run, while somebody waits. A thousand at once would be a thousand goroutines
	// before them: 40 ms of the processor.
	toldTogether = 64
)

var (
	// errClosed is what calls meet after Close.
	errClosed = errors.New("the store is closed")
	// errBusy is what they meet when another process does not stop writing.
	errBusy = errors.New("another process holds the right to write")
)

// writer runs all writes of the process on one connection, one after the other.
// Writes that wait while a transaction runs go into the next one together, so a
// thousand acknowledgements pay for a few flushes to disk; those that somebody waits
// for have one of their own before it. One that fails takes
// nothing with it: each has a savepoint of its own, but for records, which are
// written together and each alone only if that fails.
type writer struct {
	db    *sql.DB
	turn  *turn
	queue queue
	gone  chan struct{} // closed when loop has ended
	// refuse is what every write meets instead; nil: nothing.
	refuse error
	// changes reports the agents that a commit changed.
	changes agentChanges

	// Of the loop alone.
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	// recording says that conn has the triggers of recordChanges.
	recording bool
}

// write is one caller's part of a transaction.
type write struct {
	ctx     context.Context
	do      func(*tx) error
	records *records    // what do writes, if that is all; nil: it does something else
	waits   func() bool // whether somebody waits for it; nil: nobody does
	err     error
	done    chan error
}

// tx is the transaction a write runs in.
type tx struct{ w *writer }

func newWriter(db *sql.DB, t *turn) *writer {
	w := &writer{db: db, turn: t, queue: newQueue(), gone: make(chan struct{})}
	go w.loop()
	return w
}

func (w *writer) close() {
	w.queue.close()
	<-w.gone
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
	if !w.queue.add(job) {
		return errClosed
	}
	select {
	case err := <-job.done:
		return err
	case <-ctx.Done():
		w.queue.remove(job)
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
		group, open := w.queue.take()
		if !open {
			for _, job := range group {
				job.done <- errClosed
			}
			w.dropConn()
			w.turn.close()
			return
		}
		w.write(group)
	}
}

// write commits a group and tells its members. Urgent writes that have come meanwhile
// go before the others are told: who is told runs.
func (w *writer) write(group []*write) {
	err := w.commit(group)
	w.queue.written()
	for i, job := range group {
		if job.waits == nil && i%toldTogether == 0 {
			if i > 0 && w.queue.awaited() {
				runtime.Gosched()
			}
			if urgent := w.queue.takeUrgent(); len(urgent) > 0 {
				w.write(urgent)
			}
		}
		if err != nil {
			// What a member saw of the others has not come to be.
			job.err = err
		}
		job.done <- job.err
	}
	// Who waits has the processor next: the loop waits for what it writes then. To
	// yield here would put the loop behind all that can run, four times an order.
}

// queue is the writes that wait for the next transaction, as many as there are
// callers: each adds one and waits. It is no channel, so that a caller is put to
// sleep once, not twice, and so that a group has all that wait.
type queue struct {
	mu     sync.Mutex
	jobs   []*write
	urgent []*write // for whom somebody waits
	closed bool
	wake   chan struct{} // has a token when the loop has something to look at

	waits []func() bool // of urgent writes that came, as long as they say so
	held  time.Time     // since when jobs let others pass; zero: they do not

	writing bool             // a group is, and has not been told
	came    [crowd]time.Time // the last records that came while others waited
	oldest  int              // of these
}

func newQueue() queue { return queue{wake: make(chan struct{}, 1)} }

// add says whether the queue is open.
func (q *queue) add(job *write) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	if job.waits != nil {
		q.urgent, q.waits = append(q.urgent, job), append(q.waiting(), job.waits)
	} else {
		q.jobs = append(q.jobs, job)
		if job.records != nil && (q.writing || len(q.jobs) > 1) {
			q.came[q.oldest] = time.Now()
			q.oldest = (q.oldest + 1) % crowd
		}
	}
	q.signal()
	return true
}

// waiting are those of whom some may write next. It needs the lock.
func (q *queue) waiting() []func() bool {
	q.waits = slices.DeleteFunc(q.waits, func(waits func() bool) bool { return !waits() })
	return q.waits
}

// awaited says that somebody waits who may write next.
func (q *queue) awaited() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting()) > 0
}

// share is how many of n rows one write should have now.
func (q *queue) share(n int) int {
	if q.awaited() {
		return max(1, n/shorter)
	}
	return n
}

// remove takes out what has not been taken.
func (q *queue) remove(job *write) {
	q.mu.Lock()
	defer q.mu.Unlock()
	from := &q.jobs
	if job.waits != nil {
		from = &q.urgent
	}
	if i := slices.Index(*from, job); i >= 0 {
		*from = slices.Delete(*from, i, i+1)
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// written says that the group that was taken last is written.
func (q *queue) written() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writing = false
}

// gather waits while a crowd adds to what is there, until it is a group.
func (q *queue) gather() {
	for end, n := time.Now().Add(maxGather), 0; ; {
		was := n
		var more bool
		if n, more = q.crowded(); !more || n == was || !time.Now().Before(end) {
			return
		}
		time.Sleep(gatherLook)
	}
}

// crowded says how many writes there are, and whether it is worth to wait for more.
func (q *queue) crowded() (n int, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = len(q.jobs)
	return n, time.Since(q.came[q.oldest]) <= maxGather && n < fullGroup && len(q.waiting()) == 0 && !q.closed
}

// take waits for writes and returns up to maxGroup of them, urgent ones before others
// and else those that came first; or all that are left when the queue has been closed.
func (q *queue) take() (group []*write, open bool) {
	for range q.wake {
		q.gather()
		for {
			group, hold, open := q.next()
			if len(group) > 0 || !open {
				return group, open
			}
			if !hold {
				break
			}
			select {
			case <-q.wake:
			case <-time.After(holdLook):
			}
		}
	}
	return nil, false // never: wake is not closed
}

// next returns what is to be written now. hold: there is something, but somebody who
// waits may write first.
func (q *queue) next() (group []*write, hold, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		group = slices.Concat(q.urgent, q.jobs)
		q.urgent, q.jobs = nil, nil
		return group, false, false
	}
	urgent, waiting := len(q.urgent) > 0, len(q.waiting()) > 0
	switch {
	case len(q.jobs) == 0:
		q.held = time.Time{}
	case !urgent && !waiting:
	case q.held.IsZero():
		q.held = time.Now()
	}
	if due := !q.held.IsZero() && time.Since(q.held) > maxHold; !due {
		if urgent {
			return q.pop(&q.urgent, maxGroup), false, true
		}
		if waiting && len(q.jobs) > 0 {
			return nil, true, true
		}
	}
	q.held = time.Time{}
	n := maxGroup
	if waiting {
		n = shortGroup
	}
	return q.pop(&q.jobs, n), false, true
}

// takeUrgent returns the urgent writes that wait, if there are any.
func (q *queue) takeUrgent() []*write {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pop(&q.urgent, maxGroup)
}

// pop needs the lock.
func (q *queue) pop(from *[]*write, n int) []*write {
	n = min(n, len(*from))
	group := slices.Clone((*from)[:n])
	q.writing = n > 0
	*from = slices.Delete(*from, 0, n)
	if len(q.jobs)+len(q.urgent) > 0 {
		q.signal()
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
	if err := w.turn.take(); err != nil {
		return err
	}
	defer w.turn.leave()
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
		// No savepoint: its failure may undo the transaction, and the two
		// statements would be a good part of all there are.
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
	ids, err := w.changedAgents()
	if err != nil {
		w.dropConn()
		return err
	}
	// Also after a failed COMMIT: nobody knows whether the change is durable.
	defer w.changes.report(ids)
	if err := w.exec(ctx, `COMMIT`); err != nil {
		w.dropConn()
		return err
	}
	return nil
}

// runRecords begins a transaction with what the group has of records, together,
// and returns what is left to do: all of it if that failed, which needs no
// savepoint as nothing came before it. An error is that of all.
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
		w.recording = true
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
