package limit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/muster-fleet/muster/server/fleet"
)

// Kind is a kind of request. Requests of different kinds do not wait for each other.
type Kind string

const (
	Checkin  Kind = "checkin" // until it is parked or answered
	Report   Kind = "report"  // acknowledgements, beacons, and uninstalled agents
	Enroll   Kind = "enroll"
	Download Kind = "download" // packages and trust files
	Admin    Kind = "admin"    // the admin API
	Upload   Kind = "upload"   // chunks of files that agents send
)

// Kinds are all kinds in display order.
var Kinds = []Kind{Checkin, Report, Enroll, Download, Admin, Upload}

const (
	// maxWait bounds how long a request is queued: longer than all agents of a server
	// take to answer one action, and shorter than their own timeouts.
	maxWait = 5 * time.Second
	// retrySpread is the range of the random Retry-After. A fleet of 18,000 that is
	// refused at once then returns at about 1,000 a second, which one processor serves.
	retrySpread = 15 * time.Second
	// downloadSpread is retrySpread for downloads. They last minutes, so an earlier retry
	// would be refused again.
	downloadSpread = 2 * time.Minute
	// fullSpread is retrySpread for agents beyond Limits.Agents: a connection becomes
	// free only when an agent leaves, and each attempt costs a handshake.
	fullSpread = 90 * time.Second

	// adminRequests bounds the requests of the admin API in progress: enough for dozens
	// of operators and browsers, while a script that sends requests without pause leaves
	// the processors to the agents.
	adminRequests = 32
	// adminWaiting is how many more may be queued: a browser opens six connections.
	adminWaiting = 128

	// adminTransfers bounds the event streams and the transfers of packages and files, which
	// last for minutes: as many as there are connections.
	adminTransfers = adminConnections

	// uploadBytes is the memory of one chunk of an upload. Uploads get half of the memory
	// for bodies.
	uploadBytes = 4 << 20
	// strangerBytes is the memory for the bodies of clients of the admin API that have no key:
	// two reviews of the maximum length, or a thousand logins.
	strangerBytes = 16 << 20
	// operatorBytes is the memory for the bodies of those that have a key: one for each request
	// in progress, of the usual maximum length. It is none of the agents'.
	operatorBytes = 32 << 20
	// adminChunk is bodyChunk for both, as much as a goroutine and its buffers take.
	adminChunk = 16 << 10

	// bodyChunk is how much memory a body reserves at a time while it arrives, so that a
	// request that announces a megabyte and sends nothing holds only this much.
	bodyChunk = 4 << 10

	// usualBody is what bodies of agents have at most, but those of very large hosts. What a body has
	// beyond it comes from largeBodies, so that large bodies leave the memory for bodies to the usual
	// ones.
	usualBody = 64 << 10
	// largeBodies bounds the memory of large bodies, packed and unpacked. Those of a large site
	// arrive one after the other; if a thousand hosts with 200 KB connect at once, some are answered
	// 429.
	largeBodies = 6 << 20
	// bodyCopies is how many copies of a large body exist at most while it is read and checked: the
	// buffer that grows, the one that it grew from, and that of the decoder.
	bodyCopies = 3
	// decodingBytes bounds the memory of what is being decoded and stored, beyond usualCost. A
	// message that costs more, of which there are few, has all of it.
	decodingBytes = 6 << 20
	// usualCost is what decoding a message costs usually: a message waits for memory only beyond
	// it.
	usualCost = 128 << 10
)

// cost returns how much memory a message of so many bytes and values takes while it is decoded,
// compared with the document in the store, and written there. Measured: four copies of the bytes
// exist at one time, and a value of two decoded documents takes some 100 bytes.
func cost(bytes, values int) int64 { return 4*int64(bytes) + 200*int64(values) }

// Use is how much of a limit is in use.
type Use struct {
	Max, Used int64
	// Waiting is how many are queued.
	Waiting int
	// Limited counts refusals since the server's start.
	Limited uint64
}

// pool is a semaphore with counters.
type pool struct {
	*semaphore.Weighted
	max     int64
	queue   int64         // bounds the callers waiting in enter
	spread  time.Duration // range of Retry-After
	used    atomic.Int64
	waiting atomic.Int64
	limited atomic.Uint64
	leave   func() // releases one slot
}

func newPool(size, queue int64, spread time.Duration) *pool {
	p := &pool{Weighted: semaphore.NewWeighted(size), max: size, queue: queue, spread: spread}
	p.leave = func() { p.release(1) }
	return p
}

func (p *pool) tryAcquire(n int64) bool {
	ok := p.TryAcquire(n)
	if ok {
		p.used.Add(n)
	}
	return ok
}

func (p *pool) release(n int64) {
	p.used.Add(-n)
	p.Release(n)
}

// enter acquires one slot; see enterFor.
func (p *pool) enter(ctx context.Context) error { return p.enterFor(ctx, 1) }

// enterFor acquires n, in the order of the calls. It waits up to maxWait, and fails if that is
// not enough or the queue is full.
func (p *pool) enterFor(ctx context.Context, n int64) error {
	if p.tryAcquire(n) {
		return nil
	}
	defer p.waiting.Add(-1)
	if p.waiting.Add(1) > p.queue {
		return p.refuse()
	}
	inTime, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	err := p.acquire(inTime, n)
	if err != nil && ctx.Err() == nil { // otherwise the client has disconnected
		err = p.refuse()
	}
	return err
}

func (p *pool) acquire(ctx context.Context, n int64) error {
	err := p.Acquire(ctx, n)
	if err == nil {
		p.used.Add(n)
	}
	return err
}

func (p *pool) refuse() error {
	p.limited.Add(1)
	after := time.Second + p.jitter()
	return tooMany(after, "this server has more requests than it can work on: retry in %s", after.Round(time.Second))
}

// jitter is a random part of what a client is told to wait.
func (p *pool) jitter() time.Duration { return rand.N(p.spread) }

func tooMany(after time.Duration, format string, args ...any) error {
	e := fleet.Errorf(fleet.TooMany, format, args...)
	e.RetryAfter = after
	return e
}

func (p *pool) use() Use {
	return Use{Max: p.max, Used: p.used.Load(), Waiting: int(p.waiting.Load()), Limited: p.limited.Load()}
}

// Admission decides which requests and connections the server handles, and which have to
// be retried.
type Admission struct {
	Limits Limits

	requests  map[Kind]*pool
	bodies    *pool                          // bytes
	memory    budget                         // of bodies
	large     *pool                          // bytes of bodies beyond usualBody
	decoding  *pool                          // bytes, as cost estimates them
	checkins  agentLocks                     // of agents' check-ins
	tokens    tokens                         // of enrolments
	strange   map[Kind]*places[netip.Prefix] // for AsStranger; of other kinds than these, that of the empty kind
	anonymous *places[netip.Prefix]          // for Anonymous; with half of Limits.Downloads
	reviews   *places[netip.Prefix]          // for Review
	unknown   *places[netip.Prefix]          // for EnterStranger, each of adminChunk
	operators *places[string]                // for the bodies of EnterAdmin, by key, each of adminChunk
	keyed     map[Kind]*places[string]       // for EnterAdmin and EnterUpload, by key; requests counts their refusals
	transfers *places[string]                // for EnterTransfer, by key
	connections
}

// NewAdmission returns an Admission with the limits l.
func NewAdmission(l Limits) *Admission {
	requests := func(n, waiting int, spread time.Duration) *pool { return newPool(int64(n), int64(waiting), spread) }
	uploads := newPlaces[string](int(max(1, l.BodyBytes/2/uploadBytes)), adminWaiting)
	uploads.most = 1
	lookups := func(n, waiting int) *places[netip.Prefix] { return newPlaces[netip.Prefix](n, waiting) }
	bodies := newPool(l.BodyBytes, 0, retrySpread)
	return &Admission{
		Limits: l,
		requests: map[Kind]*pool{
			Checkin:  requests(l.Checkins, l.Waiting, retrySpread),
			Report:   requests(l.Reports, l.Waiting, retrySpread),
			Enroll:   requests(l.Enrollments, l.Waiting, retrySpread),
			Download: requests(l.Downloads, l.Downloads, downloadSpread),
			Admin:    requests(0, 0, retrySpread),
			Upload:   requests(0, 0, retrySpread),
		},
		bodies: bodies,
		memory: budget{
			chunk: bodyChunk, take: func() bool { return bodies.tryAcquire(bodyChunk) },
			put: func(chunks int) { bodies.release(int64(chunks) * bodyChunk) }, refuse: bodies.refuse,
		},
		large:    newPool(largeBodies, 0, retrySpread),
		decoding: newPool(decodingBytes, int64(max(1, l.Checkins/4)), retrySpread), // they wait with a slot
		tokens:   tokens{perSecond: l.EnrollmentsPerSecond, perHour: l.EnrollmentsPerHour},
		strange: map[Kind]*places[netip.Prefix]{
			"":       lookups(8*l.Checkins/7+1, l.Waiting), // the share of one source is Limits.Checkins
			Download: lookups(8*l.Checkins/7+1, l.Waiting), // apart, since a slow client holds one while it reads a trust file
			Admin:    lookups(adminRequests, adminWaiting),
		},
		anonymous:   newPlaces[netip.Prefix]((l.Downloads+1)/2, 0),
		reviews:     newPlaces[netip.Prefix](maxReviews, maxReviews),
		unknown:     newPlaces[netip.Prefix](strangerBytes/adminChunk, 0),
		operators:   newPlaces[string](operatorBytes/adminChunk, 0),
		keyed:       map[Kind]*places[string]{Admin: newPlaces[string](adminRequests, adminWaiting), Upload: uploads},
		transfers:   newPlaces[string](adminTransfers, 0),
		connections: newConnections(l),
	}
}

// Use returns how much of a kind's limit is in use.
func (a *Admission) Use(k Kind) Use {
	p, shared := a.keyed[k]
	if !shared {
		return a.requests[k].use()
	}
	use := p.use()
	use.Limited = a.requests[k].limited.Load()
	return use
}

// Bodies returns how much of the memory for bodies is in use, in bytes.
func (a *Admission) Bodies() Use { return a.bodies.use() }

// Decoding waits for the memory that decoding the body of an agent's request takes, as
// [Message.Check] estimates it, and keeps it until [Done].
func Decoding(ctx context.Context, cost int64) error {
	t, ok := ctx.Value(ticketKey{}).(*ticket)
	if !ok || t.agents == nil || cost <= usualCost {
		return nil
	}
	cost = min(cost-usualCost, decodingBytes)
	err := t.agents.decoding.enterFor(ctx, cost)
	if err == nil {
		t.decoding += cost
	}
	return err
}

// ticket is what one admitted request holds.
type ticket struct {
	leave  func() // releases its slot
	memory *budget
	chunks int // reserved in memory
	done   atomic.Bool

	// agents is nil for requests of others, which have none of the rest.
	agents   *Admission
	chunked  bool  // it is a chunk of an upload, whose memory is that of its slot
	large    int64 // reserved in large
	decoding int64
	lock     *agentLock // of the agent's check-in; nil: it is none
}

// budget is memory for bodies, in chunks.
type budget struct {
	chunk  int64
	take   func() bool
	put    func(chunks int)
	refuse func() error
}

// sharedMemory is memory of which each source gets a share. The places are its chunks.
func sharedMemory[K comparable](p *places[K], from K, refuse func() error) *budget {
	return &budget{
		chunk: adminChunk, take: func() bool { return p.tryAcquire(from) },
		put: func(chunks int) {
			for range chunks {
				p.release(from)
			}
		},
		refuse: refuse,
	}
}

func (t *ticket) release() {
	t.free()
	t.leave()
}

// free releases all but the slot.
func (t *ticket) free() {
	t.memory.put(t.chunks)
	if a := t.agents; a != nil {
		a.large.release(t.large)
		a.decoding.release(t.decoding)
		if t.lock != nil {
			a.checkins.release(t.lock)
		}
	}
}

// reserve reserves one chunk of memory for the body.
func (t *ticket) reserve() error {
	if a := t.agents; a != nil && !t.chunked && int64(t.chunks)*t.memory.chunk >= usualBody {
		n := bodyCopies * t.memory.chunk
		if !a.large.tryAcquire(n) {
			return a.large.refuse()
		}
		t.large += n
	}
	if !t.memory.take() {
		return t.memory.refuse()
	}
	t.chunks++
	return nil
}

type ticketKey struct{}

// AsStranger calls f, which is work for a client that is not authenticated: the search for
// its credential in the store, before anything else of the request is read. Such requests
// wait by their source and apart from all others, so that a stranger takes nothing from
// an agent.
//
// A refusal is a *fleet.Error of kind TooMany with RetryAfter, counted for k.
func (a *Admission) AsStranger(ctx context.Context, remoteAddr string, k Kind, f func() error) error {
	inTime, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	from, strange := sourceOfText(remoteAddr), a.strange[k]
	if strange == nil {
		strange = a.strange[""]
	}
	if err := strange.acquire(inTime, from); err != nil {
		if ctx.Err() == nil { // otherwise the client has disconnected
			err = a.requests[k].refuse()
		}
		return err
	}
	defer strange.release(from)
	return f()
}

// Anonymous calls f, which enters a download of a client that has no credentials. Such
// downloads take at most half of the slots, and each source gets its share of that half.
func (a *Admission) Anonymous(ctx context.Context, remoteAddr string, f func() error) error {
	from := sourceOfText(remoteAddr)
	if err := a.anonymous.acquire(ctx, from); err != nil {
		return a.requests[Download].refuse()
	}
	defer a.anonymous.release(from)
	return f()
}

// maxReviews bounds the conversions for Kubernetes at one time, and those that wait. A review has up
// to 8 MiB, which are in memory several times while it is converted.
const maxReviews = 8

// Review calls f, which converts objects for a client that has no credentials, from a body that
// EnterStranger has read. It takes no slot of operators, and each source gets its share.
func (a *Admission) Review(ctx context.Context, remoteAddr string, f func() error) error {
	inTime, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	from := sourceOfText(remoteAddr)
	if err := a.reviews.acquire(inTime, from); err != nil {
		return a.requests[Admin].refuse()
	}
	defer a.reviews.release(from)
	return f()
}

// RefuseFull returns the refusal of a request whose connection is beyond the limit of
// agents, nil for others.
func (a *Admission) RefuseFull(ctx context.Context) error {
	if !Refused(ctx) {
		return nil
	}
	return tooMany(fullSpread/3+rand.N(fullSpread), "this server has as many agents as it can (%d): it accepts the next when one leaves, or another server does; `limits.max_agents` sets the limit", a.Limits.Agents)
}

// Enter reads the body of r into memory and then waits for a slot, so that a host on a
// slow link holds no slot while it sends. r must be authenticated: the memory is that of
// all agents. The returned request has a context derived from ctx; [Done] must be called
// with it.
//
// Of a body longer than maxBody it reads one byte more than maxBody, so that the handler
// notices. A refusal is a *fleet.Error of kind TooMany with RetryAfter.
func (a *Admission) Enter(ctx context.Context, r *http.Request, k Kind, maxBody int64) (*http.Request, error) {
	p := a.requests[k]
	return enter(ctx, r, maxBody, &ticket{agents: a, chunked: maxBody >= uploadBytes, memory: &a.memory, leave: p.leave}, p.enter)
}

// EnterCheckin is Enter for a check-in of an agent, of which one is read and handled at a time. A
// second waits until the first is parked or answered; if the first is still being sent, end is
// called, which must end its reading, since an agent whose connection broke sends another. Any
// more are refused.
func (a *Admission) EnterCheckin(ctx context.Context, r *http.Request, agentID string, maxBody int64, end func()) (*http.Request, error) {
	p := a.requests[Checkin]
	lock, err := a.checkins.acquire(ctx, agentID, end)
	if err != nil {
		if ctx.Err() == nil { // otherwise the client has disconnected
			err = p.refuse()
		}
		return nil, err
	}
	return enter(ctx, r, maxBody, &ticket{agents: a, lock: lock, memory: &a.memory, leave: p.leave}, p.enter)
}

// EnterAdmin is Enter for a request of the admin API. Each key gets a share of the slots and of
// the memory, which is none of the agents', and keys take turns.
func (a *Admission) EnterAdmin(ctx context.Context, r *http.Request, key string, maxBody int64) (*http.Request, error) {
	t := &ticket{memory: sharedMemory(a.operators, key, a.requests[Admin].refuse), leave: func() { a.keyed[Admin].release(key) }}
	return enter(ctx, r, maxBody, t, func(ctx context.Context) error { return a.wait(ctx, Admin, key) })
}

// EnterUpload waits for a slot for a chunk of an agent's file, before its body is read: a chunk
// takes as much memory as a hundred messages, so of a thousand that begin at once a few are to
// end. An agent holds one slot. The caller bounds how slowly the body arrives. leave releases
// the slot.
func (a *Admission) EnterUpload(ctx context.Context, agent string) (leave func(), err error) {
	return func() { a.keyed[Upload].release(agent) }, a.wait(ctx, Upload, agent)
}

// wait acquires a slot of a kind whose slots keys share.
func (a *Admission) wait(ctx context.Context, k Kind, key string) error {
	inTime, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	err := a.keyed[k].acquire(inTime, key)
	if err != nil && ctx.Err() == nil { // otherwise the client has disconnected
		err = a.requests[k].refuse()
	}
	return err
}

// EnterStranger reads the body of a request of a client that has no key, within the memory for
// those, of which each source gets a share. It takes no slot: [Admission.AsStranger] or
// [Admission.Review] do. The caller sets a deadline of some seconds for the body. [Done] must
// be called with the context of the returned request.
func (a *Admission) EnterStranger(r *http.Request, maxBody int64) (*http.Request, error) {
	t := &ticket{memory: sharedMemory(a.unknown, sourceOfText(r.RemoteAddr), a.requests[Admin].refuse), leave: func() {}}
	return enter(r.Context(), r, maxBody, t, func(context.Context) error { return nil })
}

// EnterTransfer admits an event stream, or the transfer of a package or a file, of the admin
// API. It waits for nothing, and each key gets a share. leave releases the slot.
func (a *Admission) EnterTransfer(ctx context.Context, key string) (leave func(), err error) {
	if !a.transfers.tryAcquire(key) {
		return nil, a.requests[Admin].refuse()
	}
	return func() { a.transfers.release(key) }, nil
}

// enter reads the body of r into the memory of t, and then acquires a slot.
func enter(ctx context.Context, r *http.Request, maxBody int64, t *ticket, acquire func(context.Context) error) (*http.Request, error) {
	r = r.WithContext(context.WithValue(ctx, ticketKey{}, t))
	err := t.readBody(r, maxBody)
	if t.lock != nil && !t.agents.checkins.bodyRead(t.lock) {
		err = t.agents.requests[Checkin].refuse() // a newer check-in has ended this one
	}
	if err == nil {
		err = acquire(ctx)
	}
	if err != nil {
		t.free()
		return nil, err
	}
	return r, nil
}

// Done releases what the request of ctx holds, when it is answered or parked. Later calls
// do nothing.
func Done(ctx context.Context) {
	if t, ok := ctx.Value(ticketKey{}).(*ticket); ok && !t.done.Swap(true) {
		t.release()
	}
}

// readBody replaces the body of r by a copy in memory, of at most limit+1 bytes.
func (t *ticket) readBody(r *http.Request, limit int64) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	// Not more than a chunk before it has been received: the client states the length.
	text := bytes.NewBuffer(make([]byte, 0, max(0, min(r.ContentLength, bodyChunk))+bytes.MinRead))
	_, err := text.ReadFrom(io.LimitReader(&counted{Reader: r.Body, ticket: t}, limit+1))
	switch refusal := (*fleet.Error)(nil); {
	case errors.As(err, &refusal):
		return err
	case err != nil:
		return fleet.FieldError("body", "is not whole: %w", err)
	}
	r.Body = body{text}
	return nil
}

// body is a body in memory. Handlers take its bytes without a copy; see httpapi.ReadBody.
type body struct{ *bytes.Buffer }

// Close implements io.Closer.
func (body) Close() error { return nil }

// Reader returns a reader of an uncompressed body, which reserves memory for what is read
// through it until the request of ctx is done. It fails with TooMany if memory is short.
func Reader(ctx context.Context, r io.Reader) io.Reader {
	if t, ok := ctx.Value(ticketKey{}).(*ticket); ok {
		return &counted{Reader: r, ticket: t}
	}
	return r
}

// counted reserves memory before it reads.
type counted struct {
	io.Reader
	ticket *ticket
	left   int64 // bytes that are reserved and not read yet
}

func (c *counted) Read(p []byte) (int, error) {
	if c.left == 0 {
		if err := c.ticket.reserve(); err != nil {
			return 0, err
		}
		c.left = c.ticket.memory.chunk
	}
	n, err := c.Reader.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}
