package report

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/beacon"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
	"github.com/muster-fleet/muster/watcher/watch"
)

// wire is a server in virtual time. answer returns the result of the n-th beacon.
type wire struct {
	answer func(ctx context.Context, n int) error

	mu   sync.Mutex
	got  []agentapi.Beacon
	when []time.Duration // from the start
	log  strings.Builder
}

func (w *wire) send(ctx context.Context, b agentapi.Beacon) error {
	w.mu.Lock()
	n := len(w.got)
	w.got, w.when = append(w.got, b), append(w.when, time.Since(epoch))
	w.mu.Unlock()
	if w.answer == nil {
		return nil
	}
	return w.answer(ctx, n)
}

func (w *wire) words() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, b := range w.got {
		out = append(out, string(b.Phase)+" "+b.Waiting)
	}
	return out
}

// epoch is when every bubble's clock begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func sending(t *testing.T, name string, answer func(ctx context.Context, n int) error, f func(t *testing.T, s *Sender, w *wire)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := &wire{answer: answer}
			s := start("https://fleet.example.com", w.send, slog.New(slog.NewTextHandler(&w.log, nil)))
			f(t, s, w)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			s.Close(ctx)
		})
	})
}

func watching(what string) watch.Report { return watch.Report{Phase: watch.Watching, Waiting: what} }

func over(r handoff.Result) watch.Report { return watch.Report{Phase: watch.Phase(r)} }

func want(t *testing.T, w *wire, words ...string) {
	t.Helper()
	synctest.Wait()
	if got := w.words(); !slices.Equal(got, words) {
		t.Fatalf("sent %q, want %q", got, words)
	}
}

var errNetwork = errors.New("no route to host")

func TestSenderSendsTheNewestReport(t *testing.T) {
	sending(t, "in a crash loop, once a second", nil, func(t *testing.T, s *Sender, w *wire) {
		s.Send(watching("1"))
		synctest.Wait()
		for _, what := range []string{"2", "3", "4"} {
			time.Sleep(100 * time.Millisecond)
			s.Send(watching(what))
		}
		time.Sleep(2 * time.Second)
		want(t, w, "watching 1", "watching 4")
		if w.when[1] != time.Second {
			t.Errorf("the second came after %v, want a second", w.when[1])
		}
		if good, bad := s.Contact(); good != 2 || bad != 0 {
			t.Errorf("%d accepted, %d failed", good, bad)
		}
		if good, bad := s.Contact(); good != 0 || bad != 0 {
			t.Errorf("counted twice: %d accepted, %d failed", good, bad)
		}
	})

	sending(t, "a server that is away gets what is new when it is back", func(_ context.Context, n int) error {
		if n < 3 {
			return errNetwork
		}
		return nil
	}, func(t *testing.T, s *Sender, w *wire) {
		for range 30 {
			s.Send(watching(time.Since(epoch).String()))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		// Waits of 2, 4 and 8 s, then one a second.
		if got := w.when[:4]; !slices.Equal(got, []time.Duration{0, 2 * time.Second, 6 * time.Second, 14 * time.Second}) {
			t.Errorf("sent at %v", got)
		}
		if w.got[3].Waiting != "13s" && w.got[3].Waiting != "14s" {
			t.Errorf("the one that got through says %s", w.got[3].Waiting)
		}
		if good, bad := s.Contact(); good < 10 || bad != 3 {
			t.Errorf("%d accepted, %d failed", good, bad)
		}
		if n := strings.Count(w.log.String(), "could not be sent"); n != 1 || !strings.Contains(w.log.String(), "reach the server again") {
			t.Errorf("log: %s", w.log.String())
		}
	})
}

func TestSenderHonoursRetryAfter(t *testing.T) {
	busy := func(_ context.Context, n int) error {
		if n == 0 {
			return &beacon.RefusedError{HTTPStatus: 429, RetryAfter: 2 * time.Minute}
		}
		return nil
	}
	sending(t, "while watching", busy, func(t *testing.T, s *Sender, w *wire) {
		for range 10 {
			s.Send(watching("x"))
			time.Sleep(30 * time.Second)
		}
		synctest.Wait()
		if w.when[1] != 2*time.Minute {
			t.Errorf("sent again after %v", w.when[1])
		}
	})
	sending(t, "and a rollback does not wait for it", busy, func(t *testing.T, s *Sender, w *wire) {
		s.Send(watching("x"))
		synctest.Wait()
		begin := time.Now()
		s.Send(watch.Report{Phase: watch.RollingBack})
		s.Flush(t.Context())
		if took := time.Since(begin); took != 0 {
			t.Errorf("flushing took %v", took)
		}
		want(t, w, "watching x")
		time.Sleep(3 * time.Minute)
		want(t, w, "watching x", "rolling_back ")
	})
}

func TestFlush(t *testing.T) {
	slow := func(ctx context.Context, _ int) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
			return nil
		}
	}
	sending(t, "waits for what is on its way", slow, func(t *testing.T, s *Sender, w *wire) {
		s.Send(watching("x"))
		synctest.Wait()
		s.Send(watch.Report{Phase: watch.RollingBack})
		begin := time.Now()
		s.Flush(t.Context())
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("took %v, want both to be sent", took)
		}
		want(t, w, "watching x", "rolling_back ")
	})
	sending(t, "no longer than it may", slow, func(t *testing.T, s *Sender, _ *wire) {
		s.Send(watching("x"))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		begin := time.Now()
		s.Flush(ctx)
		if took := time.Since(begin); took != 500*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
	sending(t, "not for a server that is away", func(context.Context, int) error { return errNetwork }, func(t *testing.T, s *Sender, w *wire) {
		s.Send(watch.Report{Phase: watch.RollingBack})
		begin := time.Now()
		s.Flush(t.Context())
		if took := time.Since(begin); took != 0 {
			t.Errorf("took %v", took)
		}
		// It is sent again meanwhile, since there is no newer one.
		time.Sleep(2 * time.Second)
		want(t, w, "rolling_back ", "rolling_back ")
	})
}

func TestCloseSendsTheResult(t *testing.T) {
	sending(t, "at once", nil, func(t *testing.T, s *Sender, w *wire) {
		s.Send(over(handoff.Committed))
		begin := time.Now()
		s.Close(t.Context())
		if took := time.Since(begin); took != 0 {
			t.Errorf("took %v", took)
		}
		want(t, w, "committed ")
	})
	sending(t, "also when the server was away until just now", func(_ context.Context, n int) error {
		if n < 6 {
			return errNetwork
		}
		return nil
	}, func(t *testing.T, s *Sender, w *wire) {
		s.Send(watch.Report{Phase: watch.RollingBack})
		time.Sleep(time.Minute) // by now it waits half a minute between two tries
		n := len(w.words())
		s.Send(over(handoff.RolledBack))
		begin := time.Now()
		s.Close(t.Context())
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("took %v, want the waits to restart", took)
		}
		if got := w.words(); got[len(got)-1] != "rolled_back " || len(got) <= n {
			t.Errorf("sent %q", got)
		}
	})
	sending(t, "within half a minute, or not", func(context.Context, int) error { return errNetwork }, func(t *testing.T, s *Sender, w *wire) {
		s.Send(over(handoff.RollbackFailed))
		begin := time.Now()
		s.Close(t.Context())
		if took := time.Since(begin); took != lastTimeout {
			t.Errorf("took %v, want %v", took, lastTimeout)
		}
		if n := len(w.words()); n < 4 || n > 5 { // the fifth is due at the last moment
			t.Errorf("tried %d times, want 4 or 5", n)
		}
	})
	sending(t, "within two seconds once the watcher is to stop", func(context.Context, int) error { return errNetwork }, func(t *testing.T, s *Sender, _ *wire) {
		s.Send(over(handoff.Committed))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begin := time.Now()
		s.Close(ctx)
		if took := time.Since(begin); took != 7*time.Second {
			t.Errorf("took %v, want 7s", took)
		}
	})
	sending(t, "but a watch that is not over has none", func(context.Context, int) error { return errNetwork }, func(t *testing.T, s *Sender, _ *wire) {
		s.Send(watching("x"))
		synctest.Wait()
		s.Send(watching("y"))
		begin := time.Now()
		s.Close(t.Context())
		if took := time.Since(begin); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}

func TestBeaconOfAReport(t *testing.T) {
	at := time.Date(2026, 3, 10, 12, 0, 0, 0, time.FixedZone("", 3600))
	m := handoff.Marker{
		ActionID: "a-1",
		From:     handoff.Install{Identity: manifest.Identity{Version: "1.0.0", Hash: "9be1f0"}},
		To:       handoff.Install{Identity: manifest.Identity{Version: "1.1.0", Snapshot: true, Hash: "3f2a9c"}},
	}
	got := beaconOf(watch.Report{
		Marker: m, Phase: watch.RollingBack, Alive: true, Crashes: 2, Waiting: "it waits", At: at,
		Health: &probe.Health{Identity: m.To.Identity, State: probe.Degraded, Fleet: probe.Fleet{LastCheckin: &at}},
		Reason: &handoff.Reason{Code: handoff.ReasonCheckFailed, Text: "It failed."},
	})
	if got.ActionID != "a-1" || got.From != "1.0.0" || got.To != "1.1.0-SNAPSHOT" || got.Phase != agentapi.BeaconRollingBack ||
		got.Waiting != "it waits" || !got.At.Equal(at) || got.Reason.Code != "check_failed" || got.Reason.Text != "It failed." {
		t.Errorf("%+v", got)
	}
	if a := got.Agent; !a.Alive || a.State != "degraded" || a.Version != "1.1.0-SNAPSHOT" || a.Crashes != 2 || !a.LastCheckin.Equal(at) {
		t.Errorf("%+v", a)
	}
	for _, phase := range []watch.Phase{
		watch.Watching, watch.RollingBack, watch.Phase(handoff.Committed), watch.Phase(handoff.RolledBack), watch.Phase(handoff.RollbackFailed),
	} {
		if b := beaconOf(watch.Report{Phase: phase}); !b.Phase.Known() {
			t.Errorf("the wire knows no phase %q", phase)
		}
	}
}
