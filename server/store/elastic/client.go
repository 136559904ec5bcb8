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
	"github.com/muster-fleet/muster/server/store"
)

const (
	// callTimeout bounds one call for few documents, including retries. A cluster that needs
	// longer is in trouble, which the caller should learn.
	callTimeout = 10 * time.Second
	// bulkTimeout bounds a call for thousands of documents, for which a small cluster under
	// load needs some seconds.
	bulkTimeout = 30 * time.Second
	// fewDocuments is the most documents that callTimeout applies to.
	fewDocuments = 200
	// shardTimeout is how long Elasticsearch lets a write wait for a primary shard; its
	// default is a minute. A replica takes over within two seconds; if there is none, an
	// operator has to act. It is shorter than callTimeout, so that the error names the index
	// without a primary.
	shardTimeout = 4 * time.Second
	// masterTimeout is how long the changes of Open may wait for the master, which queues
	// them when several servers start at once. It is shorter than half of bulkTimeout, so
	// that the error names the missing master.
	masterTimeout = 12 * time.Second
	// callTries bounds the attempts of a request. With callBackoff they give an overloaded
	// node some 350 ms to recover; a caller that can wait longer repeats the call.
	callTries = 4
	// callBackoff is the pause before the second attempt. It doubles with each attempt.
	callBackoff = 50 * time.Millisecond
	// maxErrorBody bounds how much of an error response is read.
	maxErrorBody = 64 << 10
	// closeIdleEvery is the shortest interval between closing idle connections. A new
	// connection costs a handshake.
	closeIdleEvery = time.Second
)

// timeoutFor returns the timeout of a call for n documents.
func timeoutFor(n int) time.Duration {
	if n <= fewDocuments {
		return callTimeout
	}
	return bulkTimeout
}

// client sends requests to Elasticsearch.
type client struct {
	unreadable store.Unreadables
	unknowns   store.Unknowns

	transport esapi.Transport
	idle      interface{ CloseIdleConnections() }
	// several reports whether there is more than one node.
	several    bool
	prefix     string
	closed     atomic.Bool
	idleClosed atomic.Int64          // when idle connections were last closed, in Unix nanoseconds
	fresh      map[string]*freshness // by index; the map does not change

	reads  *batcher[lookup, getResult]
	writes *batcher[[]byte, writeResult]
}

func newClient(transport esapi.Transport, idle interface{ CloseIdleConnections() }, nodes int, prefix string) *client {
	c := &client{transport: transport, idle: idle, several: nodes > 1, prefix: prefix, fresh: map[string]*freshness{}}
	for index := range schemas {
		c.fresh[index] = newFreshness()
	}
	c.reads = &batcher[lookup, getResult]{send: c.getSome}
	c.writes = &batcher[[]byte, writeResult]{send: c.send}
	return c
}

// errClosed is the error of calls after Close.
var errClosed = errors.New("the store is closed")

func (c *client) close() {
	c.closed.Store(true)
	c.idle.CloseIdleConnections()
}

// name returns the full name of an index.
func (c *client) name(index string) string { return c.prefix + index }

// refusal is an error response to a request, or to one item of a bulk request.
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

// blocked reports whether the index has a write block, which an operator has to remove.
func (r *refusal) blocked() bool { return r.kind == "cluster_block_exception" }

// shardUnavailable reports whether a shard has no active copy: the index is red.
func (r *refusal) shardUnavailable() bool {
	switch r.kind {
	case "unavailable_shards_exception", "no_shard_available_action_exception", "search_phase_execution_exception":
		return r.status == http.StatusServiceUnavailable
	}
	return false
}

// busy reports whether the request was rejected, without any effect, because of overload.
func (r *refusal) busy() bool { return r.status == http.StatusTooManyRequests && !r.blocked() }

// call is one request.
type call struct {
	op      string        // what it is for, in errors
	timeout time.Duration // of all attempts together
	// repeatable is set if the request may be sent again after an error that leaves its
	// effect unclear. Any request is sent again if it certainly had no effect.
	repeatable bool
	// request returns a new request; each attempt needs its own body.
	request func() esapi.Request
}

// do sends a request, retries it if that is safe, and decodes the response into out. Its
// errors are fleet.Errors.
func (c *client) do(ctx context.Context, what call, out any) error {
	return fault(what.op, c.try(ctx, what, out))
}

// try is do with unconverted errors.
func (c *client) try(ctx context.Context, what call, out any) error {
	ctx, cancel := context.WithTimeout(ctx, what.timeout)
	defer cancel()
	pause := callBackoff
	var before error
	for try := 1; ; try++ {
		if c.closed.Load() {
			return errClosed
		}
		err := c.once(ctx, what, c.attemptTimeout(ctx, what, try), out)
		switch {
		case err == nil:
			return nil
		case before != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return before // says more than a timeout
		case try == callTries || ctx.Err() != nil || !retryable(err, what.repeatable):
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

// attemptTimeout returns how long one attempt may take. If there are several nodes, the
// first attempt gets half of the time, so that another node can be tried if one hangs.
func (c *client) attemptTimeout(ctx context.Context, what call, try int) time.Duration {
	deadline, _ := ctx.Deadline() // try has set one
	left := time.Until(deadline)
	if try == 1 && c.several && what.repeatable {
		left /= 2
	}
	return left
}

// retryable reports whether a request that failed with err may be sent again.
func retryable(err error, repeatable bool) bool {
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
		return true // the request was not sent; another node may answer
	}
	return repeatable
}

// closeIdle closes idle connections after a timeout. If a firewall or a node has dropped the
// state of one connection, it has probably dropped that of the others as well, and each would
// cost a caller another timeout.
func (c *client) closeIdle() {
	now, last := time.Now().UnixNano(), c.idleClosed.Load()
	if now-last >= int64(closeIdleEvery) && c.idleClosed.CompareAndSwap(last, now) {
		c.idle.CloseIdleConnections()
	}
}

// once sends a request once.
func (c *client) once(ctx context.Context, what call, timeout time.Duration, out any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	res, err := what.request().Do(ctx, c.transport)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			c.closeIdle()
		}
		return err
	}
	defer res.Body.Close() // an error has no consequence: the body was read, or is not needed
	// A response without this header comes from a proxy or another server. What it says
	// about documents must not be trusted.
	if res.Header.Get("X-Elastic-Product") != "Elasticsearch" {
		return &refusal{status: http.StatusBadGateway, reason: fmt.Sprintf("the server that answers (status %d) is not Elasticsearch: check the URL, and the proxy if there is one", res.StatusCode)}
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return readRefusal(res.StatusCode, res.Body)
	}
	if out == nil {
		out = &struct{}{}
	}
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		if ctx.Err() != nil {
			c.closeIdle()
			return ctx.Err()
		}
		return fmt.Errorf("the response is incomplete or not JSON: %w", err)
	}
	return nil
}

// cause is an error as Elasticsearch encodes it.
type cause struct {
	Type   string `json:"type"`
	Reason string `json:"reason"`
	// Why is the inner error. It says more if the outer one only says that all shards
	// failed.
	Why    *cause  `json:"caused_by"`
	Roots  []cause `json:"root_cause"`
	Failed []struct {
		Reason cause `json:"reason"`
	} `json:"failed_shards"`
}

// linkPattern matches the links to the manual that Elasticsearch adds to reasons.
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
	b, _ := io.ReadAll(io.LimitReader(body, maxErrorBody)) // after an error, a part is enough
	var answer struct {
		Error json.RawMessage `json:"error"`
	}
	_ = json.Unmarshal(b, &answer) // fails if the body is not JSON
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

// fault turns the error of a call into a fleet.Error that says what to try. It returns
// fleet.Errors unchanged. The message never contains a URL, which may contain credentials.
func fault(op string, err error) error {
	var known *fleet.Error
	var refused *refusal
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, errClosed) || errors.Is(err, elastictransport.ErrClosed):
		return store.Unavailable(op, err, "the store is closed: the server is shutting down")
	case errors.Is(err, context.Canceled):
		return store.Unavailable(op, err, "the caller stopped waiting for the store")
	case errors.Is(err, context.DeadlineExceeded):
		return store.Unavailable(op, err, "Elasticsearch did not answer in time (%s): look at the health and the load of the cluster", op)
	case errors.As(err, &refused):
		return refusedFault(op, refused)
	}
	return store.Unavailable(op, err, "Elasticsearch cannot be reached (%s): %s", op, reachText(err))
}

func refusedFault(op string, r *refusal) error {
	switch {
	case r.status == http.StatusUnauthorized:
		return store.Unavailable(op, r, "Elasticsearch does not know the credentials of the store: check them")
	case r.status == http.StatusForbidden && !r.blocked():
		return store.Unavailable(op, r, "Elasticsearch does not allow the store to %s: check the privileges of its user or key: %s", op, r.reason)
	case r.blocked():
		return store.Unavailable(op, r, "Elasticsearch takes no writes (%s): free disk space, or remove the block: %s", op, r.reason)
	case r.kind == "index_not_found_exception":
		return store.Unavailable(op, r, "an index of the store is missing (%s): %s: restart a server to create it, or restore it", op, r.reason)
	case r.shardUnavailable():
		which, _, _ := strings.Cut(r.reason, " Timeout: ") // the rest is the request
		return store.Unavailable(op, r, "an index is red, none of its copies is available (%s): look at the health of the cluster, and start the nodes that are missing: %s", op, which)
	case r.status == http.StatusTooManyRequests:
		return store.Unavailable(op, r, "Elasticsearch is overloaded (%s): %s", op, r.reason)
	case r.status >= http.StatusInternalServerError:
		return store.Unavailable(op, r, "Elasticsearch failed (%s): %s", op, r.reason)
	}
	return &fleet.Error{Kind: fleet.Internal, Message: fmt.Sprintf("Elasticsearch refuses to %s: %s", op, r), Err: r}
}

// reachText returns the message of a network error without the URL of the request.
func reachText(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Error() // contains only the address
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
