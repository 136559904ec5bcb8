package attack_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
)

const (
	// resetRequests is how many requests a rapid reset sends: so many that a server that
	// handles them all would be busy for seconds.
	resetRequests = 20_000
	// maxReset is how many of them the server may handle: those that it lets a connection
	// reset, and those that it is handling by then.
	maxReset = 3000
)

// rapidReset sends requests on one HTTP/2 connection and resets each at once, until the
// server closes the connection.
func rapidReset(t *testing.T, s *apptest.Server, base, path, key string) {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	config := s.Client.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"h2"}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(apptest.WaitLimit)); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, c) // until the server closes the connection
	}()
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	frames := http2.NewFramer(c, nil)
	if err := frames.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	var head bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	for i := range resetRequests {
		head.Reset()
		for _, f := range [][2]string{{":method", http.MethodPost}, {":scheme", "https"}, {":authority", u.Host}, {":path", path}, {"authorization", "ApiKey " + key}} {
			if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
				t.Fatal(err)
			}
		}
		stream := uint32(2*i + 1)
		err := errors.Join(
			frames.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true}),
			frames.WriteRSTStream(stream, http2.ErrCodeCancel),
		)
		if err != nil {
			break
		}
	}
	select {
	case <-closed:
	case <-ctx.Done():
		t.Error("the connection goes on")
	}
}

// handled counts the requests that a server has handled.
type handled struct {
	slog.Handler
	requests atomic.Int64
}

func (h *handled) Enabled(context.Context, slog.Level) bool { return true }

func (h *handled) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "request" {
		h.requests.Add(1)
	}
	return nil
}

// A client that begins requests and resets them is not bound by the limit of concurrent
// requests. Its connection is closed after some.
func TestRapidResetsAreCutOff(t *testing.T) {
	log := &handled{Handler: slog.DiscardHandler}
	s := apptest.Start(t, func(o *app.Options) { o.Log = slog.New(log) })
	agent := s.Enroll("web-01", "1.0.0")
	for _, target := range []struct{ name, base, path, key string }{
		{"agents without a key", s.AgentURL, agent.Path("checkin"), "x"},
		{"an agent", s.AgentURL, agent.Path("acks"), agent.Key},
		{"status of agents", s.AgentURL, "/api/status", "x"},
		{"admin API", s.AdminURL, "/api/v1/session", "x"},
		{"web UI", s.AdminURL, "/", "x"},
	} {
		t.Run(target.name, func(t *testing.T) {
			before := log.requests.Load()
			rapidReset(t, s, target.base, target.path, target.key)
			if got := log.requests.Load() - before; got > maxReset {
				t.Errorf("%d of %d requests were handled", got, resetRequests)
			}
		})
	}
	if got := s.Agents(http.MethodPost, agent.Path("acks"), agent.Key, `{"events":[]}`); got.Status != http.StatusOK {
		t.Errorf("afterwards an agent gets %d: %s", got.Status, got.Body)
	}
}
