package app_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/app/apptest"
)

// An agent polls on two connections at once, so that each poll ends the one before.
// None of the connections breaks.
func TestSupersededPollsBreakNoConnection(t *testing.T) {
	s := apptest.Start(t)
	a := s.Enroll("web-01", "1.0.0")
	var polls, broken atomic.Int64
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	var both sync.WaitGroup
	for range 2 {
		transport := s.Client.Transport.(*http.Transport).Clone()
		transport.Protocols = &http.Protocols{}
		transport.Protocols.SetHTTP1(true)
		client := &http.Client{Transport: transport}
		both.Go(func() {
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				r, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.AgentURL+a.Path("checkin"), io.NopCloser(strings.NewReader(`{"status":"online"}`)))
				r.ContentLength = 19
				r.Header.Set("Authorization", "ApiKey "+a.Key)
				began := time.Now()
				resp, err := client.Do(r)
				switch {
				case ctx.Err() != nil:
					return
				case err != nil:
					broken.Add(1)
					t.Logf("after %d: %v (%s)", polls.Load(), err, time.Since(began))
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				polls.Add(1)
			}
		})
	}
	both.Wait()
	t.Logf("%d polls", polls.Load())
	if n := broken.Load(); n > 0 {
		t.Errorf("%d of %d polls lost their connection", n, polls.Load())
	}
}
