package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a server with the test's answers.
type script struct {
	mu    sync.Mutex
	calls []call
	// answer is called without the lock; n counts from zero.
	answer func(ctx context.Context, n int) (agentapi.CheckinResponse, error)
	// delaySent delays the sending of the request.
	delaySent time.Duration
	// random is the jitter of every wait, in (0, 1); zero means 0.5.
	random float64
	begun  time.Time
}

type call struct {
	at      time.Duration
	message string
	token   string
}

func (s *script) Checkin(ctx context.Context, r agentapi.CheckinRequest, sent func()) (agentapi.CheckinResponse, error) {
	s.mu.Lock()
	n := len(s.calls)
	s.calls = append(s.calls, call{at: time.Since(s.begun), message: r.Message, token: r.AckToken})
	s.mu.Unlock()
	if err := backoff.Sleep(ctx, s.delaySent); err != nil {
		return agentapi.CheckinResponse{}, err
	}
	sent()
	return s.answer(ctx, n)
}

func (s *script) messages() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		out = append(out, c.message)
	}
	return out
}

func (s *script) at(n int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[n].at
}

func (s *script) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

// parked answers when the poll ends or its caller has gone.
func parked(ctx context.Context, d time.Duration) (agentapi.CheckinResponse, error) {
	return agentapi.CheckinResponse{}, backoff.Sleep(ctx, d)
}

// phases reports the last phase that the test set.
type phases struct {
	mu       sync.Mutex
	now      string
	changes  Changes
	answered atomic.Int64
}

func (p *phases) set(s string) {
	p.mu.Lock()
	p.now = s
	p.mu.Unlock()
	p.changes.Urgent()
}

func (p *phases) report() agentapi.CheckinRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return agentapi.CheckinRequest{Message: p.now, PollTimeout: "7m"}
}

// inBubble runs test with a loop against s in virtual time.
func inBubble(t *testing.T, s *script, test func(l *Loop, p *phases)) {
	t.Helper()
	inBubbleOf(t, true, s, test)
}

func inBubbleOf(t *testing.T, muster bool, s *script, test func(l *Loop, p *phases)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		s.begun = time.Now()
		p := &phases{}
		l := &Loop{
			Server: s, Muster: muster, URL: func() string { return "" }, Report: p.report, Changes: &p.changes, Rand: func() float64 { return cmp.Or(s.random, 0.5) },
			Deliver: func(agentapi.CheckinResponse) error { return nil }, Answered: func() { p.answered.Add(1) },
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { l.Run(ctx); close(done) }()
		synctest.Wait()
		test(l, p)
		cancel()
		<-done
	})
}

// A poll that a newer one replaces is answered without what waits for the agent.
func TestOnlyTheNewestPollCountsAsAnswered(t *testing.T) {
	s := &script{}
	s.answer = func(ctx context.Context, n int) (agentapi.CheckinResponse, error) {
		if n > 0 {
			return parked(ctx, time.Minute)
		}
		for s.count() < 2 { // as Muster's server does
			if err := backoff.Sleep(ctx, time.Second); err != nil {
				return agentapi.CheckinResponse{}, err
			}
		}
		return agentapi.CheckinResponse{}, nil
	}
	inBubble(t, s, func(_ *Loop, p *phases) {
		time.Sleep(10 * time.Second)
		p.set("held")
		time.Sleep(30 * time.Second)
		if n := p.answered.Load(); s.count() != 2 || n != 0 {
			t.Errorf("%d polls, and %d count as answered", s.count(), n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := p.answered.Load(); n != 1 {
			t.Errorf("%d count as answered, want that of the newer poll", n)
		}
	})
}

func TestUrgentChangeIsSentBesideAnOpenPoll(t *testing.T) {
	s := &script{answer: func(ctx context.Context, _ int) (agentapi.CheckinResponse, error) { return parked(ctx, 5*time.Minute) }}
	inBubble(t, s, func(_ *Loop, p *phases) {
		time.Sleep(time.Minute)
		p.set("downloading")
		synctest.Wait()
		if s.count() != 2 || s.at(1) != time.Minute {
			t.Errorf("%d polls, the second after %s", s.count(), s.at(s.count()-1))
		}
	})
}

// A Fleet Server forgets the newer of two polls when the older ends.
func TestAtAFleetServerTheOlderPollEndsBeforeTheNext(t *testing.T) {
	var mu sync.Mutex
	open, most := 0, 0
	var ended time.Duration
	s := &script{}
	s.answer = func(ctx context.Context, _ int) (agentapi.CheckinResponse, error) {
		mu.Lock()
		open++
		most = max(most, open)
		mu.Unlock()
		resp, err := parked(ctx, 5*time.Minute)
		mu.Lock()
		defer mu.Unlock()
		open--
		ended = time.Since(s.begun)
		return resp, err
	}
	inBubbleOf(t, false, s, func(l *Loop, p *phases) {
		time.Sleep(time.Minute)
		p.set("downloading")
		time.Sleep(time.Second)
		synctest.Wait()
		if s.count() != 2 || most != 1 || ended != time.Minute || s.at(1) != time.Minute+settle {
			t.Errorf("%d polls, %d at once; the first ended after %s, the last began after %s", s.count(), most, ended, s.at(s.count()-1))
		}
		if f := l.Fleet(time.Now()); f.Error != "" || f.FailedTries != 0 {
			t.Errorf("link is %+v", f)
		}
		for range 600 { // a minute of progress
			p.changes.Progress()
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if n := s.count(); most != 1 || n < 3 || n > 4 {
			t.Errorf("%d polls, %d at once", n, most)
		}
	})
}

func TestWaitsAfterAnswersOfAFleetServer(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusUnauthorized} {
		s := &script{answer: func(context.Context, int) (agentapi.CheckinResponse, error) {
			return agentapi.CheckinResponse{}, &StatusError{HTTPStatus: status}
		}}
		inBubbleOf(t, false, s, func(*Loop, *phases) {
			m := time.Minute
			want := []time.Duration{m * 3 / 4, m * 3 / 2, 3 * m, 6 * m, 10 * m * 3 / 4, 10 * m * 3 / 4, 10 * m * 3 / 4, 10 * m * 3 / 4}
			if status == http.StatusUnauthorized {
				want = append(want[:6], time.Hour, time.Hour)
			}
			for i, w := range want {
				time.Sleep(w)
				synctest.Wait()
				if s.count() != i+2 || s.at(i+1)-s.at(i) != w {
					t.Fatalf("status %d: %d polls, want the next after %s", status, s.count(), w)
				}
			}
		})
	}
}

func TestOlderPollIsCancelledAfterTheOverlap(t *testing.T) {
	var cancelled time.Duration
	s := &script{}
	s.answer = func(ctx context.Context, n int) (agentapi.CheckinResponse, error) {
		resp, err := parked(ctx, 5*time.Minute)
		if n == 0 {
			cancelled = time.Since(s.begun)
		}
		return resp, err
	}
	inBubble(t, s, func(l *Loop, p *phases) {
		time.Sleep(time.Minute)
		p.set("a")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if cancelled != time.Minute+2*time.Second {
			t.Errorf("cancelled after %s", cancelled)
		}
		if s.count() != 2 {
			t.Errorf("%d polls: a poll cancelled by us is no failure", s.count())
		}
		if f := l.Fleet(time.Now()); f.State != probe.Healthy || f.Error != "" {
			t.Errorf("link is %+v", f)
		}
	})
}

func TestQuickChangesAreCombined(t *testing.T) {
	s := &script{answer: func(ctx context.Context, _ int) (agentapi.CheckinResponse, error) { return parked(ctx, 5*time.Minute) }}
	inBubble(t, s, func(_ *Loop, p *phases) {
		time.Sleep(time.Minute)
		for i := range 5 {
			p.set(fmt.Sprint(i))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := s.messages(); got[len(got)-1] != "4" || !slices.IsSorted(got) {
			t.Errorf("sent %v", got)
		}
	})
}

func TestNewerReportWaitsUntilTheOlderIsSent(t *testing.T) {
	s := &script{
		delaySent: 500 * time.Millisecond,
		answer:    func(ctx context.Context, _ int) (agentapi.CheckinResponse, error) { return parked(ctx, 5*time.Minute) },
	}
	inBubble(t, s, func(_ *Loop, p *phases) {
		time.Sleep(200 * time.Millisecond)
		p.set("a")
		time.Sleep(time.Second)
		synctest.Wait()
		if s.count() != 2 || s.at(1) != 500*time.Millisecond {
			t.Errorf("%d polls, the last at %s; want the second when the first had left", s.count(), s.at(s.count()-1))
		}
	})
}

func TestProgressIsSentOnceASecond(t *testing.T) {
	s := &script{}
	var mu sync.Mutex
	open := func() {} // ends the poll before, as Muster's server does
	s.answer = func(ctx context.Context, _ int) (agentapi.CheckinResponse, error) {
		mu.Lock()
		open()
		ctx, open = context.WithCancel(ctx)
		mu.Unlock()
		<-ctx.Done()
		return agentapi.CheckinResponse{}, nil
	}
	inBubble(t, s, func(_ *Loop, p *phases) {
		time.Sleep(time.Minute)
		for range 50 {
			p.changes.Progress()
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if n := s.count() - 1; n < 4 || n > 6 {
			t.Errorf("%d polls for 5 s of progress", n)
		}
	})
}

func TestWaitsAfterFailures(t *testing.T) {
	refused := func(status int, after time.Duration) error {
		return &StatusError{HTTPStatus: status, RetryAfter: after}
	}
	for _, c := range []struct {
		name string
		err  error
		want []time.Duration // between polls, with a random number of one half
	}{
		{"network", errors.New("connection refused"), []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second}},
		{"Retry-After", refused(429, 10*time.Second), []time.Duration{10500 * time.Millisecond, 10500 * time.Millisecond}},
		{"key not accepted", refused(401, 0), []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, UnauthorizedWait, UnauthorizedWait}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{answer: func(context.Context, int) (agentapi.CheckinResponse, error) { return agentapi.CheckinResponse{}, c.err }}
			inBubble(t, s, func(l *Loop, _ *phases) {
				for i, want := range c.want {
					time.Sleep(want)
					synctest.Wait()
					if s.count() != i+2 {
						t.Fatalf("%d polls after waiting %s, want %d", s.count(), want, i+2)
					}
					if got := s.at(i+1) - s.at(i); got != want {
						t.Errorf("wait %d was %s, want %s", i, got, want)
					}
				}
				f := l.Fleet(time.Now())
				if f.State != probe.Degraded || f.Error == "" || f.FailedTries != len(c.want)+1 {
					t.Errorf("link is %+v, want %d failed tries", f, len(c.want)+1)
				}
				if refusal := new(StatusError); errors.As(c.err, &refusal) && f.LastStatus != refusal.HTTPStatus {
					t.Errorf("link is %+v, want status %d", f, refusal.HTTPStatus)
				}
			})
		})
	}
}

// A load balancer that cuts parked polls does not make the agent wait for longer and longer; a server
// that is away, directly or behind one, does.
func TestCutPollDoesNotGrowTheBackoff(t *testing.T) {
	closed := &url.Error{Op: "Post", URL: "https://fleet.example.com", Err: io.EOF}
	refused := &url.Error{Op: "Post", URL: "https://fleet.example.com", Err: syscall.ECONNREFUSED}
	late := &url.Error{Op: "Post", URL: "https://fleet.example.com", Err: context.DeadlineExceeded}
	for _, c := range []struct {
		name  string
		held  time.Duration
		err   error
		grows bool
	}{
		{"closed after a minute", time.Minute, closed, false},
		{"closed after half a minute", 30 * time.Second, closed, false},
		{"502 after a minute", time.Minute, &StatusError{HTTPStatus: http.StatusBadGateway}, false},
		{"504 after a minute", time.Minute, &StatusError{HTTPStatus: http.StatusGatewayTimeout}, false},
		{"closed at once", 0, closed, true},
		{"refused at once", 0, refused, true},
		{"502 at once", 0, &StatusError{HTTPStatus: http.StatusBadGateway}, true},
		{"504 after the 10 s of a connection", 10 * time.Second, &StatusError{HTTPStatus: http.StatusGatewayTimeout}, true},
		{"503 after a minute", time.Minute, &StatusError{HTTPStatus: http.StatusServiceUnavailable}, true},
		{"no answer at all", time.Minute, late, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{random: 0.99, answer: func(ctx context.Context, n int) (agentapi.CheckinResponse, error) {
				if err := backoff.Sleep(ctx, c.held); err != nil {
					return agentapi.CheckinResponse{}, err
				}
				return agentapi.CheckinResponse{}, c.err
			}}
			inBubble(t, s, func(l *Loop, _ *phases) {
				time.Sleep(30*time.Second + 12*(c.held+2*time.Second))
				pauses := make([]time.Duration, 0, 4)
				for n := 1; n < min(5, s.count()); n++ {
					pauses = append(pauses, s.at(n)-s.at(n-1)-c.held)
				}
				if grown := slices.Max(pauses) > 2*time.Second; grown != c.grows || len(pauses) < 3 {
					t.Errorf("the pauses are %v, want them growing: %v", pauses, c.grows)
				}
				if f := l.Fleet(time.Now()); !c.grows && (f.State == probe.Degraded || f.FailedTries != 0) {
					t.Errorf("the link is %+v", f)
				}
			})
		})
	}
}

func TestFailedReportIsSentAgainBesideTheOlderPoll(t *testing.T) {
	s := &script{answer: func(ctx context.Context, n int) (agentapi.CheckinResponse, error) {
		if n == 1 {
			return agentapi.CheckinResponse{}, refusedBusy()
		}
		return parked(ctx, 5*time.Minute)
	}}
	inBubble(t, s, func(_ *Loop, p *phases) {
		time.Sleep(time.Minute)
		p.set("failed")
		time.Sleep(time.Second)
		synctest.Wait()
		if got := s.messages(); len(got) != 3 || got[2] != "failed" {
			t.Errorf("sent %v", got)
		}
	})
}

func refusedBusy() error { return &StatusError{HTTPStatus: http.StatusServiceUnavailable} }

func TestLoopPausesIfTheServerAnswersAtOnce(t *testing.T) {
	s := &script{answer: func(context.Context, int) (agentapi.CheckinResponse, error) { return agentapi.CheckinResponse{}, nil }}
	inBubble(t, s, func(*Loop, *phases) {
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s.count() > 12 {
			t.Errorf("%d polls in 10 s", s.count())
		}
	})
}

func TestFlushWaitsUntilUrgentChangesAreSent(t *testing.T) {
	s := &script{
		delaySent: 300 * time.Millisecond,
		answer:    func(ctx context.Context, _ int) (agentapi.CheckinResponse, error) { return parked(ctx, time.Minute) },
	}
	inBubble(t, s, func(_ *Loop, p *phases) {
		time.Sleep(10 * time.Second)
		p.set("restarting")
		before := time.Now()
		if err := p.changes.Flush(context.Background()); err != nil || time.Since(before) != 300*time.Millisecond {
			t.Errorf("flush took %s, %v", time.Since(before), err)
		}
	})
}

// Whatever the server does, reports arrive in order, at most two polls are open, and the
// last phase arrives in the end.
func TestReportsArriveInOrder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		answers := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 30).Draw(r, "answers")
		gaps := rapid.SliceOfN(rapid.IntRange(0, 5000), 1, 15).Draw(r, "gaps")
		var mu sync.Mutex
		open, most := 0, 0
		s := &script{delaySent: time.Duration(rapid.IntRange(0, 3000).Draw(r, "delay")) * time.Millisecond}
		s.answer = func(ctx context.Context, n int) (agentapi.CheckinResponse, error) {
			mu.Lock()
			open++
			most = max(most, open)
			mu.Unlock()
			defer func() { mu.Lock(); open--; mu.Unlock() }()
			if n >= len(answers) {
				return parked(ctx, 5*time.Minute)
			}
			switch answers[n] {
			case 0:
				return agentapi.CheckinResponse{}, nil
			case 1:
				return agentapi.CheckinResponse{}, refusedBusy()
			case 2:
				return parked(ctx, time.Second)
			}
			return parked(ctx, 5*time.Minute)
		}
		last := ""
		inBubble(t, s, func(_ *Loop, p *phases) {
			for i, gap := range gaps {
				last = fmt.Sprintf("%03d", i)
				p.set(last)
				time.Sleep(time.Duration(gap) * time.Millisecond)
			}
			time.Sleep(30 * time.Minute)
			synctest.Wait()
		})
		got := s.messages()
		if !slices.IsSorted(got) {
			r.Errorf("sent %v", got)
		}
		if got[len(got)-1] != last {
			r.Errorf("the last report is %q, want %q", got[len(got)-1], last)
		}
		if most > 2 {
			r.Errorf("%d polls open at once", most)
		}
	})
}
