package checkin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/checkin/tlstrim"
	"github.com/muster-fleet/muster/server/limit"
)

const (
	// laneBuffer is what a request may have, head and body, to be answered in the
	// lane: as much as the head alone may have in the servers' limits. A check-in of
	// an agent with a dozen components has 4 KB.
	laneBuffer = 16 << 10
	// laneRecord is what TLS may read a record into without making a buffer of its own.
	// A check-in that says nothing new has 1 KB.
	laneRecord = 4 << 10
	// recordMargin is more than what TLS adds to a record.
	recordMargin = 512
	// lanePatience is for a request that has begun to be there as a whole, with up to
	// two ticks of the wheel, which looks after it. Nearly all are one record; those on
	// a slow link are net/http's.
	lanePatience = 100 * time.Millisecond
	// lastWord is for the request of a client that has hung up: some commits.
	lastWord = time.Second
	// laneRequests bounds the requests that are worked on together: as many as the
	// limits of two processors let in, which the store's grouping of writes uses.
	laneRequests = 1024
	// laneIdle is how often it is looked which goroutines of the lane had no request
	// since.
	laneIdle = time.Second
	// trickle is how often a request is begun while polls of a bulk wake wait for
	// their answers, here or at another server of this machine. All who have theirs come
	// back at once, with an acknowledgement that costs more than an answer: the last to be
	// answered would wait for the first ones' acknowledgements. Some have to come, for
	// the wake may last; few enough that six servers on two processors, each with its
	// own, leave the rest to the answers.
	trickle = 50 * time.Millisecond
	// fewFirst is how many requests of others go before the next of those who answer
	// a bulk wake: an order for one agent does not wait for a fleet's
	// acknowledgements, and neither do these for ever.
	fewFirst = 4
	// manyFirst is how many acknowledgements of a fleet go before one of its next
	// polls: what became of an action is news, and a poll is not in a hurry.
	manyFirst = 16
)

// lane answers the next request of a connection that was parked, without giving it
// back to net/http, where each would cost a goroutine with a fresh stack, two buffers
// and a hijack. It takes what an agent sends: a POST that is there as a whole, with
// its length, and nothing behind it. Everything else goes to net/http with what has
// been read, whatever is wrong with it included.
type lane struct {
	lot     *Lot
	handler http.Handler
	places  chan struct{} // taken for each request that is worked on

	mu sync.Mutex
	// Serving, and nobody's yet; bounded by the connections that there are. many are
	// those whose last answer was a bulk wake's, again those that have had another
	// answer since.
	few, many, again fifo
	ready            chan struct{} // capacity 1: something is in one of them
	fewRow, manyRow  int           // taken one after the other
	begun            time.Time     // the last of many or again during a bulk wake
	aside            aside         // of these
	rest             rest          // the usher's
	neighbours       neighbours

	turns map[*turn]struct{}
	// free are those that wait for a request. The last to have had one has the next: what
	// it works with is still at the processor's hand.
	free []*turn
	// spare is how few of them there have been since it was looked last.
	spare  int
	looked time.Time
	ended  bool
}

// Serve lets h answer the requests of connections that were parked before. It belongs
// before Listener; without it the http.Server answers them all.
func (l *Lot) Serve(h http.Handler) {
	if l.Neighbours != nil {
		l.queue.handOut = l.Neighbours.HandOut
	}
	l.lane = &lane{lot: l, handler: h, neighbours: neighbours{of: l.Neighbours}, places: make(chan struct{}, laneRequests), ready: make(chan struct{}, 1), turns: map[*turn]struct{}{}}
}

// push takes a connection that has something to read: after a bulk wake or not, and
// then for the first time or not.
func (n *lane) push(s *slot, bulk, again bool) {
	n.mu.Lock()
	switch {
	case again:
		n.again.push(s)
	case bulk:
		n.many.push(s)
	default:
		n.few.push(s)
	}
	n.mu.Unlock()
	select {
	case n.ready <- struct{}{}:
	default:
	}
}

// next returns the next connection, or how long one has to wait; 0: there is none.
func (n *lane) next() (*slot, time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	crowd := n.many.len() + n.again.len()
	if n.few.len() > 0 && (n.fewRow < fewFirst || crowd == 0) {
		n.fewRow++
		return n.few.first(), 0
	}
	if crowd == 0 {
		return nil, 0
	}
	if n.aside.waits(n.lot.Courtesy) {
		if n.few.len() > 0 {
			return n.few.first(), 0
		}
		return nil, asideLook
	}
	if now := time.Now(); n.lot.queue.bulky() || n.neighbours.busy(now) {
		if wait := n.begun.Add(trickle).Sub(now); wait > 0 {
			if n.few.len() > 0 {
				return n.few.first(), 0
			}
			return nil, wait
		}
		n.begun = now
	}
	n.fewRow = 0
	if n.again.len() > 0 && (n.manyRow >= manyFirst || n.many.len() == 0) {
		n.manyRow = 0
		return n.again.first(), 0
	}
	n.manyRow++
	return n.many.first(), 0
}

// usher lets one request after the other begin.
func (n *lane) usher() {
	defer n.end()
	for {
		s, wait := n.next()
		if s == nil {
			var later <-chan time.Time
			if wait > 0 {
				later = time.After(wait)
			}
			select {
			case <-n.ready:
			case <-later:
			case <-n.lot.empty:
				return
			}
			continue
		}
		// Those that have begun go first: so many are at work together as there is
		// work for, and the others cost no goroutine yet.
		n.rest.yield(s.bulk)
		n.places <- struct{}{}
		if t := n.take(); t != nil {
			t.next <- s
		} else {
			n.lot.running.Go(func() { n.serve(s) }) // s is live, so nobody waits for running yet
		}
	}
}

// take returns a turn that waits for a request; nil: none does.
func (n *lane) take() *turn {
	n.mu.Lock()
	defer n.mu.Unlock()
	last := len(n.free) - 1
	if last < 0 {
		return nil
	}
	t := n.free[last]
	n.free = n.free[:last]
	n.spare = min(n.spare, last)
	return t
}

// serve answers a request, and others as long as there are any.
func (n *lane) serve(s *slot) {
	t := &turn{lot: n.lot, next: make(chan *slot, 1), plain: &plain{}, record: make([]byte, laneRecord), text: make([]byte, laneBuffer), header: http.Header{}}
	n.mu.Lock()
	n.turns[t] = struct{}{}
	n.mu.Unlock()
	for more := true; more; s, more = <-t.next {
		t.serve(n.handler, s)
		n.wait(t)
		<-n.places
	}
}

// wait puts t among those that wait for a request.
func (n *lane) wait(t *turn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.free = append(n.free, t)
	if n.ended {
		n.release(len(n.free))
	}
}

// release ends the first of those that wait. It needs the lock.
func (n *lane) release(count int) {
	for _, t := range n.free[:count] {
		delete(n.turns, t)
		close(t.next)
	}
	n.free = slices.Delete(n.free, 0, count)
}

// end ends all that wait, and those that are at work when they would.
func (n *lane) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended, n.spare = true, 0
	n.release(len(n.free))
}

// check ends reads that last, and turns that nobody has needed for a while. Should a
// read have ended just now, its connection is net/http's after the next.
func (n *lane) check(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for t := range n.turns {
		if s := t.reads.overdue(now, lanePatience); s != nil {
			_ = s.conn.SetReadDeadline(longAgo)
		}
	}
	if now.Sub(n.looked) > laneIdle {
		n.release(n.spare)
		n.spare, n.looked = len(n.free), now
	}
}

// turn is a request in the lane, and the http.ResponseWriter of its answer; then it
// is another connection's.
type turn struct {
	lot   *Lot
	next  chan *slot // capacity 1; closed: there is none
	s     *slot
	reads stint

	plain  *plain
	record []byte // lent to TLS while it reads
	text   []byte // of the request; what has been read is
	n      int    // so much
	// drained: the kernel had no more than that. It gave less than it was asked for.
	drained bool

	header   http.Header
	status   int
	body     []byte
	out      []byte
	hijacked bool
}

// serve answers the request that s brings, or gives s to net/http. s is serving.
func (t *turn) serve(h http.Handler, s *slot) {
	clear(t.header)
	t.s, t.n, t.status, t.hijacked = s, 0, 0, false
	t.body, t.out = kept(t.body), kept(t.out)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r, err := t.request(ctx)
	switch {
	case errors.Is(err, errNotOurs):
		t.giveBack()
		return
	case err != nil: // the client has gone
		t.lot.abandon(s)
		return
	}
	t.follow(cancel)
	ok := t.call(h, r)
	switch {
	case t.hijacked:
	case !ok:
		t.lot.abandon(s)
	default:
		t.answer(r)
	}
}

// follow lets a hang-up end the request, as net/http does: what its agent says next,
// on another connection, must not overtake it. One that came with the request leaves
// it a moment: what an agent says last is heard.
func (t *turn) follow(hungUp context.CancelFunc) {
	s := t.s
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	s.hungUp = hungUp
	s.unread = s.unread || !t.drained
	if s.lost {
		time.AfterFunc(lastWord, hungUp)
	}
}

// kept empties a buffer, or lets go of a large one.
func kept(b []byte) []byte {
	if cap(b) > keptBuffer {
		return nil
	}
	return b[:0]
}

// errNotOurs says that a request is net/http's.
var errNotOurs = errors.New("not for the lane")

// longAgo ends a read that would wait.
var longAgo = time.Unix(1, 0)

// request reads one.
func (t *turn) request(ctx context.Context) (*http.Request, error) {
	conn := t.s.conn
	if c := secure(conn); c != nil {
		tlstrim.Lend(c, t.record)
		defer func() {
			if !tlstrim.Trim(c) {
				t.record = make([]byte, laneRecord)
			}
		}()
	}
	t.reads.begin(t.s)
	r, head, size, err := t.read(ctx, conn)
	t.reads.end()
	switch {
	case err != nil:
		return nil, err
	case t.n != size || size == len(t.text):
		return nil, errNotOurs
	}
	if holds(conn) { // epoll will not tell of it
		t.drained = false // for all that it was given may not be all that there is
		_ = conn.SetReadDeadline(longAgo)
		// If that is its end, the client has gone, and is heard all the same; see follow.
		m, _ := conn.Read(t.text[t.n:])
		_ = conn.SetReadDeadline(time.Time{})
		if t.n += m; m > 0 {
			return nil, errNotOurs
		}
	}
	if r == nil {
		r, err = http.ReadRequest(bufio.NewReader(bytes.NewReader(t.text[:head])))
		if err != nil || r.ProtoMajor != 1 || r.ProtoMinor != 1 || r.Host == "" || r.ContentLength != int64(size-head) {
			return nil, errNotOurs
		}
		r = r.WithContext(ctx)
	}
	r.Body = limit.InMemory(t.text[head:size])
	r.RemoteAddr = t.s.from
	return r, nil
}

// read reads until there is a request as a whole, and how long its head is and all of
// it. The request itself is nil if it is not plain.
func (t *turn) read(ctx context.Context, conn net.Conn) (r *http.Request, head, size int, err error) {
	reads := 0
	for size == 0 {
		if t.n == len(t.text) {
			return nil, 0, 0, errNotOurs
		}
		m, err := conn.Read(t.text[t.n:])
		reads++
		switch t.n += m; {
		case err != nil && t.n == 0 && !timedOut(err):
			return nil, 0, 0, err
		case err != nil && m == 0: // not the whole of a request in time, or at all
			return nil, 0, 0, errNotOurs
		}
		if r, head = t.plain.read(ctx, t.text[:t.n]); r != nil {
			size = t.n
		} else if head, size, err = measure(t.text[:t.n]); err != nil {
			return nil, 0, 0, err
		}
	}
	t.drained = reads == 1 && t.n <= laneRecord-recordMargin
	return r, head, size, nil
}

func timedOut(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// measure finds how long a request is, and its head; 0: it is not there as a whole.
// It knows plain ones only, so that it never sees another end than http.ReadRequest.
func measure(text []byte) (head, size int, err error) {
	if post := []byte("POST "); !bytes.HasPrefix(text, post[:min(len(post), len(text))]) {
		return 0, 0, errNotOurs
	}
	end := bytes.Index(text, []byte("\r\n\r\n"))
	if end < 0 {
		return 0, 0, nil
	}
	length := -1
	for line := range bytes.SplitSeq(text[:end], []byte("\r\n")) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case !isText(line), len(name) == 0 || name[0] == ' ':
			return 0, 0, errNotOurs
		case isName(name, "Transfer-Encoding"), isName(name, "Expect"), isName(name, "Upgrade"):
			return 0, 0, errNotOurs
		case isName(name, "Content-Length"):
			n, err := strconv.Atoi(string(bytes.TrimSpace(value)))
			if err != nil || n < 0 || n > laneBuffer || length >= 0 {
				return 0, 0, errNotOurs
			}
			length = n
		}
	}
	if length < 0 {
		return 0, 0, errNotOurs
	}
	if head = end + len("\r\n\r\n"); head+length > len(text) {
		return 0, 0, nil
	}
	return head, head + length, nil
}

func isName(b []byte, name string) bool {
	return len(b) == len(name) && strings.EqualFold(string(b), name)
}

// giveBack gives the connection to net/http, with what has been read.
func (t *turn) giveBack() {
	s := t.s
	_ = s.conn.SetReadDeadline(time.Time{})
	if t.n > 0 {
		s.conn = &early{Conn: s.conn, sent: bytes.Clone(t.text[:t.n])}
	}
	s.shard.mu.Lock()
	t.lot.giveBack(s)
}

// call lets the handler answer. false: it has panicked, and the connection ends, as
// in net/http.
func (t *turn) call(h http.Handler, r *http.Request) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			ok = false
			if p != http.ErrAbortHandler { //nolint:errorlint // it is panicked as it is
				t.lot.log.Error("a handler failed", "path", r.URL.Path, "error", fmt.Errorf("panic: %v", p))
			}
		}
	}()
	h.ServeHTTP(t, r)
	return true
}

// Header is the answer's.
func (t *turn) Header() http.Header { return t.header }

// WriteHeader sets the answer's status, once.
func (t *turn) WriteHeader(status int) {
	if t.status == 0 {
		t.status = status
	}
}

// Write appends to the answer, which goes out when the handler returns.
func (t *turn) Write(b []byte) (int, error) {
	if t.hijacked {
		return 0, http.ErrHijacked
	}
	t.WriteHeader(http.StatusOK)
	t.body = append(t.body, b...)
	return len(b), nil
}

// SetWriteDeadline is for handlers that would wait: this answer does not.
func (t *turn) SetWriteDeadline(time.Time) error { return nil }

// turnOf is the turn behind the writers that handlers put around it; nil: it is none.
func turnOf(w http.ResponseWriter) *turn {
	for {
		switch is := w.(type) {
		case *turn:
			return is
		case interface{ Unwrap() http.ResponseWriter }:
			w = is.Unwrap()
		default:
			return nil
		}
	}
}

// Hijack gives the connection away.
func (t *turn) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if t.hijacked {
		return nil, nil, http.ErrHijacked
	}
	t.hijacked, t.plain = true, &plain{} // for who has the connection may have the request
	s := t.s
	_ = s.conn.SetReadDeadline(time.Time{}) // see check
	s.shard.mu.Lock()
	t.lot.release(s)
	s.shard.mu.Unlock()
	t.lot.leave()                                                                     // who hijacks has joined
	return s.conn, bufio.NewReadWriter(bufio.NewReaderSize(http.NoBody, 0), nil), nil // nothing has been read behind it
}

// answer writes what the handler has said.
func (t *turn) answer(r *http.Request) {
	t.WriteHeader(http.StatusOK)
	s, l, h := t.s, t.lot, t.header
	s.shard.mu.Lock()
	s.hungUp = nil
	s.shard.mu.Unlock()
	s.last = r.Close || l.ending() || strings.EqualFold(h.Get("Connection"), "close")
	if len(t.body) > 0 && h.Get("Content-Type") == "" {
		h.Set("Content-Type", http.DetectContentType(t.body))
	}
	b := bytes.NewBuffer(statusLine(t.out, t.status))
	_ = h.WriteSubset(b, ownHeaders)
	t.out = l.endHead(b.Bytes(), len(t.body), t.status != http.StatusNoContent && t.status != http.StatusNotModified, s.last)
	t.out = append(t.out, t.body...)
	s.again = s.bulk
	slow := !s.hasRoom(len(t.out)) || len(t.out) > largeAnswer
	if slow {
		_ = s.conn.SetWriteDeadline(time.Now().Add(writeLimit))
	}
	_, err := s.conn.Write(t.out)
	if slow {
		_ = s.conn.SetWriteDeadline(time.Time{})
	}
	l.answered(s, err)
}
