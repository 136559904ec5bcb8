package limit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Kind is what an agent's request costs the server, and so with which others it
// shares a limit.
type Kind string

const (
	Checkin  Kind = "checkin" // until it is parked or answered
	Report   Kind = "report"  // acknowledgements, beacons, and that an agent was uninstalled
	Enroll   Kind = "enroll"
	Download Kind = "download" // packages and trust files
)

// Kinds are all of them, in the order in which they are shown.
var Kinds = []Kind{Checkin, Report, Enroll, Download}

// Use is how much of a limit is in use.
type Use struct {
	Max, Used int64
	// Waiting is how many wait for their turn.
	Waiting int
	// Limited counts what was sent away since the server's start.
	Limited uint64
}

// Admission decides which of the agents' requests are worked on, and which have
// to come again.
type Admission struct {
	Limits Limits
	// Courtesy is whom the handshakes step aside for; nil: nobody. Set it before there
	// is a Listener.
	Courtesy *Courtesy

	gates       map[Kind]*gate
	bodies      atomic.Int64
	bodyLimited atomic.Uint64
	connections
}

// NewAdmission keeps l. A nil now is time.Now.
func NewAdmission(l Limits, now func() time.Time) *Admission {
	if now == nil {
		now = time.Now
	}
	// First guesses, until a queue shows how fast it moves. That a download ends
	// is seldom: whoever finds them full comes again in the course of minutes.
	rate := float64(l.HandshakesPerSecond)
	return &Admission{Limits: l, gates: map[Kind]*gate{
		Checkin:  newGate(l.Checkins, l.Waiting, 2*rate, now),
		Report:   newGate(l.Reports, l.Waiting, 2*rate, now),
		Enroll:   newGate(l.Enrollments, l.Waiting, max(rate/8, 1), now),
		Download: newGate(l.Downloads, l.Downloads, float64(max(l.Downloads/16, 1)), now),
	}}
}

// Use says how much of a kind's limit is in use.
func (a *Admission) Use(k Kind) Use { return a.gates[k].use() }

// Bodies says how much of the memory for bodies is in use, in bytes.
func (a *Admission) Bodies() Use {
	return Use{Max: a.Limits.BodyBytes, Used: a.bodies.Load(), Limited: a.bodyLimited.Load()}
}

// Ticket is one request that has been let in, and its context.
type Ticket struct {
	context.Context //nolint:containedctx // it is one

	of    *Admission
	gate  *gate
	bytes int64
	done  atomic.Bool
}

type ticketKey struct{}

// Value finds the ticket itself.
func (t *Ticket) Value(key any) any {
	if key == (ticketKey{}) {
		return t
	}
	return t.Context.Value(key)
}

// Enter reads the body of r and waits for the request's turn. It returns the
// request to go on with, in a context made of ctx, whose body is in memory: a host on
// a slow link holds no place while it sends. [Done] gives the place back, and must be
// called.
//
// A body longer than maxBody is handed on one byte too long, for its reader to
// refuse. The errors are *fleet.Error: TooMany, with RetryAfter.
func (a *Admission) Enter(ctx context.Context, r *http.Request, k Kind, maxBody int64) (*http.Request, error) {
	if Refused(ctx) {
		// Not through the gate, which is for those that may stay.
		return nil, overload(fullRetry/2+rand.N(fullRetry), "this server holds as many agents as it can (%d): it takes the next when one leaves, or another server does; `limits.max_agents` says how many", a.Limits.Agents)
	}
	t := &Ticket{Context: ctx, of: a, gate: a.gates[k]}
	r = r.WithContext(t)
	if err := t.readBody(r, maxBody); err != nil {
		t.freeBody()
		return nil, err
	}
	// Of a crowd nobody is in a hurry, and each that goes on stands before whoever waits
	// for the admin API.
	if aside := a.Courtesy.Aside(); aside > 0 && t.gate.use().Used > Crowd {
		time.Sleep(aside)
	}
	if after, ok := t.gate.enter(r.Context()); !ok {
		t.freeBody()
		return nil, overload(after, "this server has more requests of agents than it can work on: come again in %s", after.Round(time.Second))
	}
	return r, nil
}

// Crowd is how many requests of a kind are worked on before the next of them steps
// aside for the admin API: fewer are through in a few milliseconds.
const Crowd = 16

// fullRetry is how long who finds a server full stays away: half of it to half as
// long again. Each attempt costs a handshake, and an agent that leaves for good
// is no matter of seconds.
const fullRetry = time.Minute

func overload(after time.Duration, format string, args ...any) *fleet.Error {
	e := fleet.Errorf(fleet.TooMany, format, args...)
	e.RetryAfter = after
	return e
}

// Done says that no more work is done for the request of this context: it is
// answered, or parked. Later calls do nothing, nor does a context without one.
func Done(ctx context.Context) {
	if t, ok := ctx.Value(ticketKey{}).(*Ticket); ok && !t.done.Swap(true) {
		t.freeBody()
		t.gate.leave()
	}
}

// bodyChunk is by how much a body's claim to memory grows while it arrives: who
// announces a megabyte and sends none claims this.
const bodyChunk = 4 << 10

// readBody reads the body of r into memory, at most one byte beyond limit. What
// goes wrong with it, the handler finds behind what was read.
func (t *Ticket) readBody(r *http.Request, limit int64) error {
	if _, is := r.Body.(*read); is || r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	size := int64(bodyChunk)
	if r.ContentLength >= 0 {
		size = min(size, r.ContentLength+1) // one more, to see its end
	}
	b := make([]byte, 0, size)
	body := &read{rest: r.Body}
	for int64(len(b)) <= limit {
		if len(b) == cap(b) {
			grown := make([]byte, len(b), min(2*int64(cap(b)), limit+bodyChunk))
			copy(grown, b)
			b = grown
		}
		if more := int64(cap(b)) - t.bytes; more > 0 {
			if err := t.take(more); err != nil {
				return err
			}
		}
		n, err := r.Body.Read(b[len(b):min(int64(cap(b)), limit+1)])
		b = b[:len(b)+n]
		if err != nil {
			body.err = err
			break
		}
	}
	body.text = b
	r.Body = body
	return nil
}

// read is a body that has been read, with what ended it.
type read struct {
	text []byte
	err  error // nil: there is more, which is for rest
	rest io.ReadCloser
}

// InMemory is the body of a request that has been read as a whole already, by who
// answers for its memory until the request is done. Enter takes it as it is.
func InMemory(text []byte) io.ReadCloser {
	return &read{text: text, err: io.EOF, rest: http.NoBody}
}

func (b *read) Read(p []byte) (int, error) {
	if len(b.text) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		return b.rest.Read(p)
	}
	n := copy(p, b.text)
	b.text = b.text[n:]
	return n, nil
}

func (b *read) Close() error { return b.rest.Close() }

// Whole returns the body, if it was read to its end and nothing of it is taken yet.
func (b *read) Whole() (text []byte, ok bool) {
	ok = errors.Is(b.err, io.EOF)
	if ok {
		text, b.text = b.text, nil
	}
	return text, ok
}

// take claims n bytes of the memory for bodies.
func (t *Ticket) take(n int64) error {
	if t.of.bodies.Add(n) > t.of.Limits.BodyBytes {
		t.of.bodies.Add(-n)
		t.of.bodyLimited.Add(1)
		after := time.Second + rand.N(minSpread)
		return overload(after, "this server has more to read than it has memory for: come again in %s", after.Round(time.Second))
	}
	t.bytes += n
	return nil
}

func (t *Ticket) freeBody() {
	t.of.bodies.Add(-t.bytes)
	t.bytes = 0
}

// Reader counts what is read through it, an unpacked body, as the body's bytes
// until the request of ctx is done. Where memory is short, its error is TooMany.
func Reader(ctx context.Context, r io.Reader) io.Reader {
	if t, ok := ctx.Value(ticketKey{}).(*Ticket); ok {
		return &counted{r, t, 0}
	}
	return r
}

type counted struct {
	io.Reader
	ticket *Ticket
	paid   int64 // bytes that are claimed and not read yet
}

func (c *counted) Read(p []byte) (int, error) {
	if c.paid == 0 {
		if err := c.ticket.take(bodyChunk); err != nil {
			return 0, err
		}
		c.paid = bodyChunk
	}
	n, err := c.Reader.Read(p[:min(int64(len(p)), c.paid)])
	c.paid -= int64(n)
	return n, err
}

// errOver is why a connection is not kept.
var errOver = errors.New("more connections than the server takes")

// String is for the log.
func (l Limits) String() string {
	return fmt.Sprintf("agents=%d handshakes=%d handshakes_per_second=%d checkins=%d reports=%d enrollments=%d downloads=%d memory_bytes=%d",
		l.Agents, l.Handshakes, l.HandshakesPerSecond, l.Checkins, l.Reports, l.Enrollments, l.Downloads, l.MemoryBytes)
}
