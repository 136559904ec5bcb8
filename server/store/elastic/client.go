package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"
	"github.com/elastic/go-elasticsearch/v8/esapi"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// callTimeout bounds one call, with its repeats, for few documents. A cluster that
	// needs longer is in trouble, and whoever waits for it had better be told.
	callTimeout = 10 * time.Second
	// bulkTimeout bounds a call for thousands of documents, which a small cluster
	// under load takes some seconds for.
	bulkTimeout = 30 * time.Second
	// fewDocuments is up to where callTimeout is for.
	fewDocuments = 200
	// shardTimeout is how long Elasticsearch lets a write wait for a primary copy: by
	// itself a minute. Another copy takes over within a second or two; where there is
	// none, only an operator helps. It is below callTimeout, so that what is said is
	// which index has no primary.
	shardTimeout = 4 * time.Second
	// masterTimeout is how long the changes that Open makes may wait for the master,
	// which has a queue of them when several servers start at once. Below half of
	// bulkTimeout, so that it is the master's absence that is told.
	masterTimeout = 12 * time.Second
	// callTries bounds how often a request is sent. With callBackoff a busy node has
	// half a second to catch its breath; callers with more patience repeat the call.
	callTries = 4
	// callBackoff is the pause before the second try; it doubles with each.
	callBackoff = 50 * time.Millisecond
	// maxErrorBody bounds what is read of an answer that is an error.
	maxErrorBody = 64 << 10
	// shedEvery is how often idle connections are closed at most. One that is needed
	// anew costs a handshake.
	shedEvery = time.Second
)

// timeoutFor is the bound of a call for n documents.
func timeoutFor(n int) time.Duration {
	if n <= fewDocuments {
		return callTimeout
	}
	return bulkTimeout
}

// client sends requests and says what became of them.
type client struct {
	transport esapi.Transport
	idle      interface{ CloseIdleConnections() }
	// several says that there is another node to ask.
	several bool
	prefix  string
	closed  atomic.Bool
	shed    atomic.Int64          // when idle connections were closed last, in nanoseconds
	fresh   map[string]*freshness // by index; never changed

	reads  *gatherer[lookup, found]
	writes *gatherer[[]byte, written]
}

func newClient(transport esapi.Transport, idle interface{ CloseIdleConnections() }, nodes int, prefix string) *client {
	c := &client{transport: transport, idle: idle, several: nodes > 1, prefix: prefix, fresh: map[string]*freshness{}}
	for index := range schemas {
		c.fresh[index] = newFreshness()
	}
	c.reads = &gatherer[lookup, found]{send: c.getSome}
	c.writes = &gatherer[[]byte, written]{send: c.send}
	return c
}

// errClosed is what calls meet after Close.
var errClosed = errors.New("the store is closed")

func (c *client) close() {
	c.closed.Store(true)
	c.idle.CloseIdleConnections()
}

// name of an index.
func (c *client) name(index string) string { return c.prefix + index }

// refusal is an answer that says no, of a request or of one item of a bulk.
type refusal struct {
	status int
	kind   string // such as version_conflict_engine_exception
	reason string
}

func (r *refusal) Error() string {
	if r.kind == "" {
		return fmt.Sprintf("status %d: %s", r.status, r.reason)
	}
	return fmt.Sprintf("%s: %s", r.kind, r.reason)
}

// blocked says that an index takes no writes until somebody does something.
func (r *refusal) blocked() bool { return r.kind == "cluster_block_exception" }

// lost says that a shard has no copy that could be asked: the index is red.
func (r *refusal) lost() bool {
	switch r.kind {
	case "unavailable_shards_exception", "no_shard_available_action_exception", "search_phase_execution_exception":
		return r.status == http.StatusServiceUnavailable
	}
	return false
}

// busy says that nothing was done, since there was too much to do.
func (r *refusal) busy() bool { return r.status == http.StatusTooManyRequests && !r.blocked() }

// call is one request.
type call struct {
	op      string        // for errors: what it is for
	timeout time.Duration // of the request with its repeats
	// repeatable requests may be sent again when it is not clear what became of
	// them. All are when it is clear that nothing did.
	repeatable bool
	// request makes it; each try needs its own body.
	request func() esapi.Request
}

// do sends a request until it is answered, as often as is safe, and decodes the
// answer into out. Its errors are fleet.Errors.
func (c *client) do(ctx context.Context, what call, out any) error {
	return fault(what.op, c.try(ctx, what, out))
}

// try is do with errors as they are.
func (c *client) try(ctx context.Context, what call, out any) error {
	ctx, cancel := context.WithTimeout(ctx, what.timeout)
	defer cancel()
	pause := callBackoff
	var before error
	for try := 1; ; try++ {
		if c.closed.Load() {
			return errClosed
		}
		err := c.once(ctx, what, c.patience(ctx, what, try), out)
		switch {
		case err == nil:
			return nil
		case before != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return before // says more than that time is up
		case try == callTries || ctx.Err() != nil || !repeat(err, what.repeatable):
			return err
		}
		before = err
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause *= 2
	}
}

// patience is how long one try may take. A node that hangs costs half of the time
// there is, if another can be asked after it.
func (c *client) patience(ctx context.Context, what call, try int) time.Duration {
	deadline, _ := ctx.Deadline() // try has set one
	left := time.Until(deadline)
	if try == 1 && c.several && what.repeatable {
		left /= 2
	}
	return left
}

// repeat says whether a request that met err may be sent again.
func repeat(err error, repeatable bool) bool {
	var refused *refusal
	if errors.As(err, &refused) {
		switch refused.status {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return repeatable
		}
		return refused.busy()
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return true // it was never sent; there may be another node
	}
	return repeatable
}

// shedIdle closes connections nobody uses, after one did not answer in time. If a
// firewall or a node has forgotten it, it has forgotten the others too, and each
// would cost somebody a timeout.
func (c *client) shedIdle() {
	now, last := time.Now().UnixNano(), c.shed.Load()
	if now-last >= int64(shedEvery) && c.shed.CompareAndSwap(last, now) {
		c.idle.CloseIdleConnections()
	}
}

// once sends a request once.
func (c *client) once(ctx context.Context, what call, patience time.Duration, out any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	res, err := what.request().Do(ctx, c.transport)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			c.shedIdle()
		}
		return err
	}
	defer res.Body.Close() // read to its end, or given up
	// Without it whatever answers is a proxy, or another server altogether: what
	// it says of documents must not be believed.
	if res.Header.Get("X-Elastic-Product") != "Elasticsearch" {
		return &refusal{status: http.StatusBadGateway, reason: fmt.Sprintf("what answers (status %d) is not Elasticsearch: check the URL, and the proxy if there is one", res.StatusCode)}
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return readRefusal(res.StatusCode, res.Body)
	}
	if out == nil {
		out = &struct{}{}
	}
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		if ctx.Err() != nil {
			c.shedIdle()
			return ctx.Err()
		}
		return fmt.Errorf("the answer broke off or is no JSON: %w", err)
	}
	return nil
}

// cause is an error as Elasticsearch writes it.
type cause struct {
	Type   string `json:"type"`
	Reason string `json:"reason"`
	// Why holds the inner error, which says more where the outer only says that
	// all shards failed.
	Why    *cause  `json:"caused_by"`
	Roots  []cause `json:"root_cause"`
	Failed []struct {
		Reason cause `json:"reason"`
	} `json:"failed_shards"`
}

// linkPattern finds the links to its manual that Elasticsearch puts into reasons.
var linkPattern = regexp.MustCompile(`(; for more information,? see)? ?https?://[^\s\]]*`)

func (e cause) refusal(status int) *refusal {
	r := &refusal{status: status, kind: e.Type, reason: e.Reason}
	inner := e.Why
	if inner == nil && len(e.Failed) > 0 {
		inner = &e.Failed[0].Reason
	}
	if inner != nil && inner.Reason != "" && inner.Reason != e.Reason {
		r.reason += ": " + inner.Reason
	}
	r.reason = linkPattern.ReplaceAllString(r.reason, "")
	return r
}

func readRefusal(status int, body io.Reader) *refusal {
	b, _ := io.ReadAll(io.LimitReader(body, maxErrorBody)) // what has come is enough
	var answer struct {
		Error json.RawMessage `json:"error"`
	}
	_ = json.Unmarshal(b, &answer) // or it is not JSON
	var e cause
	if json.Unmarshal(answer.Error, &e) == nil && e.Type != "" {
		return e.refusal(status)
	}
	var sentence string
	if json.Unmarshal(answer.Error, &sentence) == nil && sentence != "" {
		return &refusal{status: status, reason: sentence}
	}
	return &refusal{status: status, reason: http.StatusText(status)}
}

// fault turns what a call met into a fleet.Error that says what to try. Errors
// that are fleet.Errors already pass through. None carries a URL: credentials may
// stand in one.
func fault(op string, err error) error {
	var known *fleet.Error
	var refused *refusal
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, errClosed) || errors.Is(err, elastictransport.ErrClosed):
		return unavailable(op, err, "the store is closed: the server is shutting down")
	case errors.Is(err, context.Canceled):
		return unavailable(op, err, "the caller stopped waiting for the store")
	case errors.Is(err, context.DeadlineExceeded):
		return unavailable(op, err, "Elasticsearch did not answer in time (%s): look at the health and the load of the cluster", op)
	case errors.As(err, &refused):
		return refusedFault(op, refused)
	}
	return unavailable(op, err, "Elasticsearch cannot be reached (%s): %s", op, reachText(err))
}

func refusedFault(op string, r *refusal) error {
	switch {
	case r.status == http.StatusUnauthorized:
		return unavailable(op, r, "Elasticsearch does not know the credentials of the store: check them")
	case r.status == http.StatusForbidden && !r.blocked():
		return unavailable(op, r, "Elasticsearch does not let the store %s: check the privileges of its user or key: %s", op, r.reason)
	case r.blocked():
		return unavailable(op, r, "Elasticsearch takes no writes (%s): free disk space, or remove the block: %s", op, r.reason)
	case r.kind == "index_not_found_exception":
		return unavailable(op, r, "an index of the store is missing (%s): %s: start a server again to have it made, or restore it", op, r.reason)
	case r.lost():
		which, _, _ := strings.Cut(r.reason, " Timeout: ") // what follows is the request
		return unavailable(op, r, "an index is red, none of its copies is at hand (%s): look at the health of the cluster, and start the nodes that are missing: %s", op, which)
	case r.status == http.StatusTooManyRequests:
		return unavailable(op, r, "Elasticsearch is overloaded (%s): %s", op, r.reason)
	case r.status >= http.StatusInternalServerError:
		return unavailable(op, r, "Elasticsearch failed (%s): %s", op, r.reason)
	}
	return &fleet.Error{Kind: fleet.Internal, Message: fmt.Sprintf("Elasticsearch refuses to %s: %s", op, r), Err: r}
}

func unavailable(op string, err error, format string, args ...any) error {
	return &fleet.Error{Kind: fleet.Unavailable, Message: fmt.Sprintf(format, args...), Err: fmt.Errorf("%s: %w", op, err)}
}

// reachText is what went wrong on the network, without the URL a request had.
func reachText(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Error() // names the address alone
	}
	s := err.Error()
	if i := strings.LastIndex(s, "://"); i >= 0 {
		if _, rest, ok := strings.Cut(s[i:], "\": "); ok {
			return rest
		}
		return "the request failed"
	}
	return s
}

func missing(noun, id string) error {
	return fleet.Errorf(fleet.NotFound, "%s %s does not exist", noun, id)
}

func exists(noun, id string) error {
	return fleet.Errorf(fleet.Conflict, "%s %s exists already", noun, id)
}

func changed(noun, id string) error {
	return fleet.Errorf(fleet.Conflict, "%s %s has been changed meanwhile: read it again and repeat the change", noun, id)
}
