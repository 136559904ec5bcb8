package outage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	modernc "modernc.org/sqlite" // also registers the driver
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// DefaultMaxBytes holds ten minutes of 19,000 agents that are all being upgraded:
	// of each an acknowledgement, eleven check-ins and five beacons, 20 KB, some 400 MB
	// together. BenchmarkOutage in testing/bench measures it.
	DefaultMaxBytes = 512 << 20
	// MinMaxBytes holds the largest ordinary check-in.
	MinMaxBytes = 1 << 20

	// rowBytes is what a message takes on disk besides its texts.
	rowBytes = 100
	// groupMax bounds how many messages share a flush to disk, as in the store.
	groupMax = 256
	// addTimeout bounds how long a message waits for the disk: one that takes longer
	// is broken, and the agent better sends it again.
	addTimeout = 5 * time.Second
	// shrinkPages bounds what is given back at once, to some 100 ms.
	shrinkPages = 512
	// batchBytes bounds what is read at once to be written to the store.
	batchBytes = 8 << 20

	journalSuffix = ".journal"
	damagedSuffix = ".damaged"
	// journalVersion is the file's user_version. One of a later version is left
	// alone.
	journalVersion = 1
)

// Message is a word that is kept.
type Message struct {
	Seq     int64 // the order in which messages came
	AgentID string
	// KeyID is the key that the message came with: only the agent that has it still
	// may have its word.
	KeyID    string
	Kind     Kind
	Received time.Time
	Body     []byte
}

func (m *Message) size() int64 {
	return int64(len(m.Body)+len(m.AgentID)+len(m.KeyID)+len(m.Kind)) + rowBytes
}

// Journal is a bounded queue of messages on disk: an SQLite file that this process
// alone has open, for as long as it lives. What a process that died has left is
// taken over by the next that starts in the same folder.
//
// It is safe for concurrent use.
type Journal struct {
	max   int64
	sync  string // durable, or not
	log   *slog.Logger
	queue chan *addition
	stop  chan struct{}
	gone  chan struct{} // closed when loop has ended

	disk sync.Mutex // guards file: one statement, or one transaction, at a time
	file *file

	mu       sync.Mutex
	held     map[string]int // messages by agent, those on their way to the disk among them
	messages int
	bytes    int64
	full     bool  // a message was refused since the last was removed
	broken   error // what the disk answered last
	closed   bool
}

// addition is a message on its way to the disk.
type addition struct {
	Message
	done chan error
}

// file is a journal's file, open and locked.
type file struct {
	path string
	db   *sql.DB
	conn *sql.Conn
	last int64 // highest Seq
}

// errInUse says that a living process has the file.
var errInUse = errors.New("another process has it")

// errNewer says that the file is of a later version of Muster.
var errNewer = errors.New("it was written by a newer Muster")

// OpenJournal opens a journal in dir, which is made if it does not exist, with what
// processes that are gone have left there.
func OpenJournal(dir string, maxBytes int64, log *slog.Logger) (*Journal, error) {
	return openJournal(dir, maxBytes, durable, log)
}

// How a file is synchronised. Tests in which no power is cut are ten times as quick
// without.
const (
	durable          = "FULL"
	testOnlyVolatile = "OFF"
)

func openJournal(dir string, maxBytes int64, sync string, log *slog.Logger) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("outage journal: %w: make the data folder writable for the server", err)
	}
	j := &Journal{max: maxBytes, sync: sync, log: log, queue: make(chan *addition), stop: make(chan struct{}), gone: make(chan struct{}), held: map[string]int{}}
	ctx := context.Background()
	left, err := filepath.Glob(filepath.Join(globQuote(dir), "*"+journalSuffix))
	if err != nil {
		return nil, fmt.Errorf("outage journal: %w", err)
	}
	for _, path := range left {
		if err := j.adopt(ctx, path); err != nil {
			return nil, errors.Join(err, j.release())
		}
	}
	if j.file == nil {
		if j.file, err = openFile(ctx, filepath.Join(dir, fleet.NewID()+journalSuffix), sync); err != nil {
			return nil, fmt.Errorf("outage journal: %w", err)
		}
	}
	if err := j.count(ctx); err != nil {
		return nil, errors.Join(err, j.release())
	}
	if j.messages > 0 {
		log.Info("messages kept before the server ended will be written", "messages", j.messages, "bytes", j.bytes)
	}
	go j.loop()
	return j, nil
}

// adopt takes over a file that no process has open: as this journal's own, or what
// is in it. The file stays, empty, for a later process: to remove it could take it
// from one that is opening it now.
func (j *Journal) adopt(ctx context.Context, path string) error {
	f, err := openFile(ctx, path, j.sync)
	switch {
	case errors.Is(err, errInUse):
		return nil
	case errors.Is(err, errNewer):
		j.log.Error("an outage journal is left alone", "path", path, "error", err)
		return nil
	case isDamaged(err):
		// The server must start all the same; what the agents said last they say
		// again.
		j.log.Error("an outage journal cannot be read and is put aside", "path", path+damagedSuffix, "error", err)
		for _, end := range []string{"", "-wal"} {
			if err := os.Rename(path+end, path+damagedSuffix+end); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("outage journal: %w", err)
			}
		}
		return nil
	case err != nil:
		return fmt.Errorf("outage journal: %w", err)
	case j.file == nil:
		j.file = f
		return nil
	}
	err = j.file.takeOver(ctx, f)
	return errors.Join(err, f.close())
}

// globQuote makes a folder's name stand for itself in a pattern.
func globQuote(dir string) string {
	out := make([]rune, 0, len(dir))
	for _, r := range dir {
		if (r == '*' || r == '?' || r == '[' || r == '\\') && filepath.Separator != '\\' {
			out = append(out, '\\')
		}
		out = append(out, r)
	}
	return string(out)
}

func openFile(ctx context.Context, path, sync string) (*file, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	// SQLite would let others read it. One that exists is not opened here: to close
	// it again would take the lock from a journal of this process that has it.
	made, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case err == nil:
		made.Close()
	case !errors.Is(err, os.ErrExist):
		return nil, err
	}
	name := filepath.ToSlash(path)
	if name[0] != '/' {
		name = "/" + name // C:/…
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: name}).EscapedPath())
	if err != nil {
		return nil, err
	}
	f := &file{path: path, db: db}
	if f.conn, err = db.Conn(ctx); err == nil {
		err = f.lock(ctx, sync)
	}
	if err != nil {
		_ = f.close() // the first error says more
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// lock takes the file for this process and makes its table. SQLite holds the lock
// until the file is closed, or the process is gone.
func (f *file) lock(ctx context.Context, sync string) error {
	for _, pragma := range []string{
		"busy_timeout(0)", "locking_mode(EXCLUSIVE)", "synchronous(" + sync + ")",
		// Of a check-in two would fit into a page of 4 KB, and a third of it be empty.
		// It counts for a file that is new.
		"page_size(16384)",
		"auto_vacuum(INCREMENTAL)", // the room of an outage is given back after it
		"journal_mode(WAL)", "fullfsync(1)", "checkpoint_fullfsync(1)",
		"wal_autocheckpoint(250)", // pages: 4 MB stand beside the file
		"journal_size_limit(16777216)",
	} {
		if err := f.exec(ctx, "PRAGMA "+pragma); err != nil {
			return err
		}
	}
	var version int
	if err := f.conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return busy(err)
	}
	if version > journalVersion {
		return errNewer
	}
	for _, statement := range []string{
		"BEGIN EXCLUSIVE",
		`CREATE TABLE IF NOT EXISTS messages (
			seq INTEGER PRIMARY KEY, agent TEXT NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, received INTEGER NOT NULL, body BLOB NOT NULL
		) STRICT`,
		fmt.Sprintf("PRAGMA user_version = %d", journalVersion),
		"COMMIT",
	} {
		if err := f.exec(ctx, statement); err != nil {
			return err
		}
	}
	return f.conn.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM messages").Scan(&f.last)
}

func (f *file) exec(ctx context.Context, statement string) error {
	_, err := f.conn.ExecContext(ctx, statement)
	return busy(err)
}

func busy(err error) error {
	if c := code(err); c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_LOCKED {
		return errInUse
	}
	return err
}

func isDamaged(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_CORRUPT || c == sqlite3.SQLITE_NOTADB
}

// code is SQLite's primary result code, 0 if err is not SQLite's.
func code(err error) int {
	var e *modernc.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

func (f *file) close() error {
	var err error
	if f.conn != nil {
		err = f.conn.Close()
	}
	return errors.Join(err, f.db.Close())
}

// takeOver moves what is in from behind what is here. A crash in between leaves a
// message in both, which does no harm: it can be written twice.
func (f *file) takeOver(ctx context.Context, from *file) error {
	for after := int64(0); ; {
		batch, err := from.batch(ctx, after, groupMax)
		if err != nil || len(batch) == 0 {
			return err
		}
		after = batch[len(batch)-1].Seq
		err = f.add(ctx, batch)
		if err == nil {
			err = from.remove(ctx, batch)
		}
		if err != nil {
			return fmt.Errorf("outage journal: take over %s: %w", from.path, err)
		}
	}
}

// add writes messages in one transaction, and gives each its Seq.
func (f *file) add(ctx context.Context, messages []Message) error {
	tx, err := f.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after Commit it has nothing to do
	insert, err := tx.PrepareContext(ctx, "INSERT INTO messages (seq, agent, key, kind, received, body) VALUES (?, ?, ?, ?, ?, ?)")
	if err != nil {
		return err
	}
	defer insert.Close()
	for i, m := range messages {
		if _, err := insert.ExecContext(ctx, f.last+int64(i)+1, m.AgentID, m.KeyID, string(m.Kind), m.Received.UnixNano(), m.Body); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	f.last += int64(len(messages))
	return nil
}

func (f *file) remove(ctx context.Context, messages []Message) error {
	tx, err := f.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after Commit it has nothing to do
	for _, m := range messages {
		if _, err := tx.ExecContext(ctx, "DELETE FROM messages WHERE seq = ?", m.Seq); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// batch reads up to limit messages behind after, some batchBytes of them.
func (f *file) batch(ctx context.Context, after int64, limit int) ([]Message, error) {
	rows, err := f.conn.QueryContext(ctx, "SELECT seq, agent, key, kind, received, body FROM messages WHERE seq > ? ORDER BY seq LIMIT ?", after, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Message
	for size := int64(0); size < batchBytes && rows.Next(); {
		var m Message
		var received int64
		if err := rows.Scan(&m.Seq, &m.AgentID, &m.KeyID, &m.Kind, &received, &m.Body); err != nil {
			return nil, err
		}
		m.Received = time.Unix(0, received).UTC()
		size += m.size()
		out = append(out, m)
	}
	return out, rows.Err()
}

// count learns what is in the file.
func (j *Journal) count(ctx context.Context) error {
	rows, err := j.file.conn.QueryContext(ctx, fmt.Sprintf("SELECT agent, count(*), sum(length(body)+length(agent)+length(key)+length(kind)+%d) FROM messages GROUP BY agent", rowBytes))
	if err != nil {
		return fmt.Errorf("outage journal: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var n int
		var size int64
		if err := rows.Scan(&id, &n, &size); err != nil {
			return fmt.Errorf("outage journal: %w", err)
		}
		j.held[id] = n
		j.messages += n
		j.bytes += size
	}
	return rows.Err()
}

// Add keeps a message behind those that are there, and returns when it is durable.
// It fails with Unavailable when the journal is full or the disk does not write. A
// message that failed may be there all the same: that it was kept in vain does no
// harm.
func (j *Journal) Add(ctx context.Context, m Message) error {
	if err := j.reserve(&m); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, addTimeout)
	defer cancel()
	a := &addition{Message: m, done: make(chan error, 1)}
	select {
	case j.queue <- a:
	case <-j.stop:
		j.free([]Message{m})
		return fleet.Errorf(fleet.Unavailable, "the server is shutting down")
	case <-ctx.Done():
		j.free([]Message{m})
		return fleet.Errorf(fleet.Unavailable, "the server's disk does not take what agents say: %w", ctx.Err())
	}
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
		return fleet.Errorf(fleet.Unavailable, "the server's disk does not take what agents say: %w", ctx.Err())
	}
}

func (j *Journal) reserve(m *Message) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.bytes+m.size() > j.max {
		if !j.full {
			j.log.Error("the outage journal is full: what agents say now is not kept, they say it again", "bytes", j.bytes, "max_bytes", j.max)
		}
		j.full = true
		return fleet.Errorf(fleet.Unavailable, "the store is away, and the outage journal is full: it has %d of %d bytes", j.bytes, j.max)
	}
	j.held[m.AgentID]++
	j.messages++
	j.bytes += m.size()
	return nil
}

// free takes messages out of the count.
func (j *Journal) free(messages []Message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range messages {
		m := &messages[i]
		if j.held[m.AgentID]--; j.held[m.AgentID] == 0 {
			delete(j.held, m.AgentID)
		}
		j.messages--
		j.bytes -= m.size()
	}
}

// loop writes what waits in one transaction, as the store's writer does: a thousand
// acknowledgements pay for a few flushes to disk.
func (j *Journal) loop() {
	defer close(j.gone)
	for {
		select {
		case <-j.stop:
			return
		case first := <-j.queue:
			j.commit(j.gather(first))
		}
	}
}

func (j *Journal) gather(first *addition) []*addition {
	group := []*addition{first}
	for len(group) < groupMax {
		select {
		case a := <-j.queue:
			group = append(group, a)
		default:
			return group
		}
	}
	return group
}

func (j *Journal) commit(group []*addition) {
	messages := make([]Message, len(group))
	for i, a := range group {
		messages[i] = a.Message
	}
	j.disk.Lock()
	err := j.file.add(context.Background(), messages)
	j.disk.Unlock()
	j.note(err)
	if err != nil {
		j.free(messages)
		err = fleet.Errorf(fleet.Unavailable, "the server's disk does not take what agents say: %w", err)
	}
	for _, a := range group {
		a.done <- err
	}
}

func (j *Journal) note(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil && j.broken == nil {
		j.log.Error("the outage journal cannot be written: look at the disk of the data folder", "path", j.file.path, "error", err)
	}
	j.broken = err
}

// Holds says whether there are messages of an agent.
func (j *Journal) Holds(agentID string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.held[agentID] > 0
}

// Size is how many messages there are, and what they take of the bound.
func (j *Journal) Size() (messages int, bytes int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.messages, j.bytes
}

// Problem says why messages are refused, empty if they are not.
func (j *Journal) Problem() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.broken != nil:
		return "the outage journal cannot be written: look at the disk of the server's data folder"
	case j.full:
		return fmt.Sprintf("the outage journal is full at %d bytes (outage.max_bytes): what agents say now is not kept, they say it again", j.max)
	}
	return ""
}

// Batch returns the oldest messages behind the one numbered after.
func (j *Journal) Batch(ctx context.Context, after int64, limit int) ([]Message, error) {
	j.disk.Lock()
	defer j.disk.Unlock()
	batch, err := j.file.batch(ctx, after, limit)
	if err != nil {
		err = fmt.Errorf("read the outage journal: %w", err)
	}
	return batch, err
}

// Remove removes messages that Batch returned. After the last one the file is made
// small again.
func (j *Journal) Remove(ctx context.Context, messages []Message) error {
	if len(messages) == 0 {
		return nil
	}
	j.disk.Lock()
	err := j.file.remove(ctx, messages)
	j.disk.Unlock()
	j.note(err)
	if err != nil {
		return fmt.Errorf("remove from the outage journal: %w", err)
	}
	j.free(messages)
	j.mu.Lock()
	j.full = false
	empty := j.messages == 0
	j.mu.Unlock()
	if empty {
		if err := j.shrink(ctx); err != nil {
			j.log.Warn("the outage journal keeps its room on disk", "error", err)
		}
	}
	return nil
}

// shrink gives the room of the file back, as long as there are no messages. Half a
// gigabyte takes seconds, so what agents say meanwhile comes in between.
func (j *Journal) shrink(ctx context.Context) error {
	for before := math.MaxInt; ; {
		if n, _ := j.Size(); n > 0 {
			return nil // the next time that it is empty
		}
		free, err := j.shrinkStep(ctx)
		if err != nil || free == 0 || free >= before {
			return err
		}
		before = free
	}
}

// shrinkStep gives some of the free pages back, and returns how many there were.
func (j *Journal) shrinkStep(ctx context.Context) (free int, err error) {
	j.disk.Lock()
	defer j.disk.Unlock()
	if err := j.file.conn.QueryRowContext(ctx, "PRAGMA freelist_count").Scan(&free); err != nil {
		return 0, err
	}
	if free == 0 {
		return 0, j.file.run(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	}
	return free, j.file.run(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", shrinkPages))
}

// run executes a statement whose rows are its steps.
func (f *file) run(ctx context.Context, statement string) error {
	rows, err := f.conn.QueryContext(ctx, statement)
	if err != nil {
		return err
	}
	for rows.Next() {
	}
	return errors.Join(rows.Err(), rows.Close())
}

// Close closes the file; later calls of Add fail. What is in it stays.
func (j *Journal) Close() error {
	j.mu.Lock()
	closed := j.closed
	j.closed = true
	j.mu.Unlock()
	if closed {
		return nil
	}
	close(j.stop)
	<-j.gone
	return j.release()
}

func (j *Journal) release() error {
	j.disk.Lock()
	defer j.disk.Unlock()
	if j.file == nil {
		return nil
	}
	return j.file.close()
}
