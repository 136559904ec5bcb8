package faults

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// link passes an agent's requests directly to the server's handler. Processes die only
// between two calls to their disk, so a request has arrived completely or not at all.
type link struct{ p *process }

// aMoment separates what an agent does at the same time in two goroutines, so that the order
// of their calls is always the same.
const aMoment = time.Millisecond

var errUnplugged = errors.New("the network is gone with the host")

func (l link) RoundTrip(r *http.Request) (*http.Response, error) {
	if !l.p.alive() {
		return nil, errUnplugged
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
	}
	// A server notices that its client has disconnected.
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(l.p.ctx, cancel)
	arrived := r.Clone(ctx)
	arrived.Body, arrived.RequestURI = io.NopCloser(bytes.NewReader(body)), r.URL.RequestURI()
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.WroteRequest != nil {
		trace.WroteRequest(httptrace.WroteRequestInfo{})
	}
	if strings.HasSuffix(r.URL.Path, "/acks") {
		time.Sleep(aMoment) // results are sent after what follows them on the host
	}
	answers := make(chan *http.Response, 1)
	l.p.host.all.Go(func() {
		defer cancel()
		defer stop()
		rec := httptest.NewRecorder()
		l.p.host.server.ServeHTTP(rec, arrived)
		answers <- rec.Result()
	})
	select {
	case resp := <-answers:
		if !l.p.alive() {
			return nil, errUnplugged
		}
		resp.Request = r
		return resp, nil
	case <-l.p.dead:
		return nil, errUnplugged
	case <-r.Context().Done():
		if strings.HasPrefix(r.URL.Path, agentapi.PathArtifacts) {
			time.Sleep(10 * aMoment) // a download ends after what cancels it, and its result
		}
		return nil, r.Context().Err()
	}
}

// pipes is the listener of a control socket with connections in memory.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
