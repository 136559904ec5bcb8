//go:build linux

package bench

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/server/action"
	"github.com/muster-fleet/muster/server/beacon"
	"github.com/muster-fleet/muster/server/checkin"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/httpapi"
	"github.com/muster-fleet/muster/server/httpapi/agents"
	"github.com/muster-fleet/muster/server/limit"
	"github.com/muster-fleet/muster/server/outage"
	"github.com/muster-fleet/muster/server/outage/outagetest"
	"github.com/muster-fleet/muster/server/store/sqlite"
)

// outageServer is what of a server takes in agents' messages: all of it but the
// network, whose cost is not what is measured, and people's part.
type outageServer struct {
	dir      string
	db       *sqlite.Store
	switched *outagetest.Store // the same store, which can be away
	keeper   *outage.Keeper
	parker   *checkin.Blocking
	actions  *action.Service
	client   *http.Client // of agents

	stop context.CancelFunc
	all  sync.WaitGroup
}

func startOutageServer(b *testing.B) *outageServer {
	b.Helper()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	s := &outageServer{parker: &checkin.Blocking{}}
	var err error
	s.dir, err = os.MkdirTemp("", "mbench-")
	must(err)
	b.Cleanup(func() { _ = os.RemoveAll(s.dir) }) // after a failure it is still there
	// The benchmark's own context ends before its cleanup.
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context()))
	s.stop = stop
	s.db, err = sqlite.Open(ctx, filepath.Join(s.dir, "muster.db"), sqlite.Options{})
	must(err)
	s.switched = &outagetest.Store{Store: s.db}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s.keeper, err = outage.New(s.journalDir(), outage.DefaultMaxBytes, s.switched.Agents(), s.switched.Ping, log, nil)
	must(err)
	events := &event.Stream{Store: s.switched.Events(), Log: log}
	feed, err := action.NewFeed(ctx, s.db.Actions(), s.parker.Wake, log)
	must(err)
	feed.Outage = s.keeper
	ledger := &checkin.Ledger{Agents: s.switched.Agents(), Parker: s.parker, Log: log, Outage: s.keeper}
	s.actions = &action.Service{Store: s.switched, Feed: feed, Events: events, Log: log, Outage: s.keeper}
	beacons := &beacon.Service{Agents: s.switched.Agents(), Events: events, Outage: s.keeper}
	check := &checkin.Service{
		Agents: s.switched.Agents(), Actions: s.switched.Actions(), Results: s.switched.Results(), Parker: s.parker, Ledger: ledger, Events: events, Log: log, Outage: s.keeper,
		// Nobody polls again for want of an answer: that says nothing new.
		Poll: 2 * outagePatience,
	}
	s.keeper.Write = map[outage.Kind]outage.Writer{outage.Checkin: check.WriteKept, outage.Ack: s.actions.WriteKept, outage.Beacon: beacons.WriteKept}
	limits, err := limit.Derive(limit.ThisMachine(), limit.Config{})
	must(err)
	h := &agents.Handlers{API: httpapi.API{Log: log}, Limits: limit.NewAdmission(limits, nil), Outage: s.keeper, Checkin: check, Actions: s.actions, Beacons: beacons, Version: oldVersion}
	s.client = &http.Client{Transport: direct{h.Handler()}}
	for _, loop := range []func(context.Context){events.Run, feed.Run, ledger.Run, s.actions.Settle, s.keeper.Run} {
		s.all.Go(func() { loop(ctx) })
	}
	return s
}

func (s *outageServer) journalDir() string { return filepath.Join(s.dir, "outage") }

func (s *outageServer) close() error {
	s.stop()
	s.all.Wait()
	err := s.keeper.Close()
	if cerr := s.db.Close(); err == nil {
		err = cerr
	}
	if rerr := os.RemoveAll(s.dir); err == nil {
		err = rerr
	}
	return err
}

// direct calls a handler in the place of the network.
type direct struct{ http.Handler }

// RoundTrip returns when the handler does, or the context of the request ends.
func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	in := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), r.Body)
	in.Header = r.Header
	out := httptest.NewRecorder()
	d.ServeHTTP(out, in)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return out.Result(), nil
}

// together does f n times, workers at once, and measures each.
func together(b *testing.B, n, workers int, f func(i int) error) []time.Duration {
	b.Helper()
	each := make([]time.Duration, n)
	var all errgroup.Group
	for w := range min(workers, n) {
		all.Go(func() error {
			for i := w; i < n; i += workers {
				began := time.Now()
				if err := f(i); err != nil {
					return err
				}
				each[i] = time.Since(began)
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		b.Fatal(err)
	}
	return each
}
