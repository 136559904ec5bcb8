package limit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/agents/limit"
	"github.com/muster-fleet/muster/server/fleet"
)

const maxBody = 1 << 20

func small() limit.Limits {
	return limit.Limits{Agents: 100, Handshakes: 8, HandshakesPerSecond: 1000, Checkins: 1, Reports: 1, Enrollments: 1, Downloads: 1, BodyBytes: 64 << 10, Waiting: 1}
}

func request(ctx context.Context, body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", body)
	return r.WithContext(ctx)
}

// limited checks that err is a refusal with a Retry-After, and returns that.
func limited(t *testing.T, err error) time.Duration {
	t.Helper()
	var refusal *fleet.Error
	if !errors.As(err, &refusal) || refusal.Kind != fleet.TooMany || refusal.RetryAfter < time.Second || refusal.Message == "" {
		t.Fatalf("the error is %#v", err)
	}
	return refusal.RetryAfter
}

func TestParkedCheckinHoldsNoSlot(t *testing.T) {
	t.Parallel()
	a := limit.NewAdmission(small())
	ctx, cancel := context.WithCancel(t.Context())
	first, err := a.Enter(ctx, request(ctx, strings.NewReader("{}")), limit.Checkin, maxBody)
	if err != nil {
		t.Fatal(err)
	}
	if got := a.Use(limit.Checkin); got.Used != 1 || a.Bodies().Used == 0 {
		t.Errorf("with one inside it is %+v, bodies %+v", got, a.Bodies())
	}
	waits := make(chan *http.Request, 1)
	go func() {
		r, err := a.Enter(t.Context(), request(t.Context(), strings.NewReader("{}")), limit.Checkin, maxBody)
		if err != nil {
			t.Error(err)
		}
		waits <- r
	}()
	limit.Done(first.Context()) // it is parked
	second := <-waits
	cancel()
	limit.Done(first.Context()) // and answered later
	limit.Done(first.Context())
	if got := a.Use(limit.Checkin); got.Used != 1 {
		t.Errorf("the place was given back twice: %+v", got)
	}
	// Kinds do not wait for each other.
	report, err := a.Enter(t.Context(), request(t.Context(), strings.NewReader("{}")), limit.Report, maxBody)
	if err != nil {
		t.Fatal(err)
	}
	limit.Done(report.Context())
	limit.Done(second.Context())
	for _, k := range limit.Kinds {
		if got := a.Use(k); got.Used != 0 || got.Waiting != 0 {
			t.Errorf("at the end %s is %+v", k, got)
		}
	}
	if got := a.Bodies(); got.Used != 0 {
		t.Errorf("at the end bodies are %+v", got)
	}
	limit.Done(t.Context()) // of no request: nothing happens
}

func TestBodyIsReadCompletely(t *testing.T) {
	t.Parallel()
	boom := errors.New("the network")
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.Byte(), 0, 20_000).Draw(t, "text")
		most := rapid.Int64Range(0, 20_000).Draw(t, "limit")
		broken := rapid.Bool().Draw(t, "broken")
		known := rapid.Bool().Draw(t, "known length")
		var body io.Reader = bytes.NewReader(text)
		if broken {
			body = io.MultiReader(body, iotest.ErrReader(boom))
		}
		switch rapid.IntRange(0, 2).Draw(t, "pieces") {
		case 1:
			body = iotest.HalfReader(body)
		case 2:
			body = iotest.DataErrReader(body)
		}
		r := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(body))
		r.ContentLength = -1
		if known {
			r.ContentLength = int64(len(text))
		}
		a := limit.NewAdmission(small())
		admitted, err := a.Enter(r.Context(), r, limit.Report, most)
		switch {
		case err != nil:
			if !broken || !errors.Is(err, boom) || fleet.KindOf(err) != fleet.Invalid {
				t.Errorf("the body is refused with %v", err)
			}
		case broken && int64(len(text)) <= most:
			t.Error("a broken body is admitted")
		default:
			want := text[:min(int64(len(text)), most+1)] // its reader refuses one byte too many
			if got, err := io.ReadAll(admitted.Body); !bytes.Equal(got, want) || err != nil {
				t.Errorf("%d bytes became %d, %v", len(text), len(got), err)
			}
			limit.Done(admitted.Context())
		}
		if got := a.Bodies().Used; got != 0 {
			t.Errorf("%d bytes are still in use", got)
		}
	})
}

func TestBodiesShareTheirMemory(t *testing.T) {
	t.Parallel()
	a := limit.NewAdmission(small())
	long := strings.NewReader(strings.Repeat("x", maxBody))
	_, err := a.Enter(t.Context(), request(t.Context(), long), limit.Checkin, maxBody)
	limited(t, err)
	if got := a.Bodies(); got.Used != 0 || got.Limited != 1 {
		t.Errorf("then bodies are %+v", got)
	}
	if a.Use(limit.Checkin).Used != 0 {
		t.Error("it holds a place")
	}

	// The uncompressed body counts too.
	r, err := a.Enter(t.Context(), request(t.Context(), strings.NewReader("packed")), limit.Checkin, maxBody)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, limit.Reader(r.Context(), strings.NewReader(strings.Repeat("x", maxBody))))
	limited(t, err)
	if n == 0 || n > 64<<10 {
		t.Errorf("%d bytes were unpacked", n)
	}
	limit.Done(r.Context())
	if got := a.Bodies(); got.Used != 0 || got.Limited != 2 {
		t.Errorf("at the end bodies are %+v", got)
	}
	// One that announces much and sends little claims little.
	announced := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(strings.NewReader("x")))
	announced.ContentLength = maxBody
	r, err = a.Enter(announced.Context(), announced, limit.Checkin, maxBody)
	if err != nil {
		t.Fatal(err)
	}
	if got := a.Bodies().Used; got > 8<<10 {
		t.Errorf("one byte of a megabyte holds %d", got)
	}
	limit.Done(r.Context())
}

// enter requests a slot for a request without a body.
func enter(ctx context.Context, a *limit.Admission, k limit.Kind) (leave func(), err error) {
	r, err := a.Enter(ctx, request(ctx, nil), k, maxBody)
	if err != nil {
		return nil, err
	}
	return func() { limit.Done(r.Context()) }, nil
}

func mustEnter(t *testing.T, a *limit.Admission, k limit.Kind) (leave func()) {
	t.Helper()
	leave, err := enter(t.Context(), a, k)
	if err != nil {
		t.Fatal(err)
	}
	return leave
}

func TestRequestsAreAdmittedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := small()
		l.Waiting = 5
		a := limit.NewAdmission(l)
		leave := mustEnter(t, a, limit.Report)
		admitted := make(chan int, 5)
		for i := range 5 {
			go func() {
				leave, err := enter(t.Context(), a, limit.Report)
				if err != nil {
					t.Error(err)
					return
				}
				admitted <- i
				leave()
			}()
			synctest.Wait()
		}
		if got := a.Use(limit.Report); got.Used != 1 || got.Waiting != 5 || got.Max != 1 {
			t.Errorf("with five waiting it is %+v", got)
		}
		leave()
		for i := range 5 {
			if got := <-admitted; got != i {
				t.Errorf("%d was admitted in place of %d", got, i)
			}
		}
		synctest.Wait()
		if got := a.Use(limit.Report); got.Used != 0 || got.Waiting != 0 || got.Limited != 0 {
			t.Errorf("at the end it is %+v", got)
		}
	})
}

func TestQueuedRequestIsRefusedAfterMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := small()
		l.Waiting = 100
		a := limit.NewAdmission(l)
		leave := mustEnter(t, a, limit.Checkin)
		begun := time.Now()
		after := make(chan time.Duration, l.Waiting)
		for range l.Waiting {
			go func() {
				_, err := enter(t.Context(), a, limit.Checkin)
				after <- limited(t, err)
			}()
		}
		synctest.Wait()
		if _, err := enter(t.Context(), a, limit.Checkin); limited(t, err) == 0 || time.Since(begun) != 0 {
			t.Errorf("with a full queue it waited %s", time.Since(begun))
		}
		seconds := map[int]bool{}
		for range l.Waiting {
			got := <-after
			if got > 20*time.Second {
				t.Errorf("one is to come back in %s", got)
			}
			seconds[int(got.Seconds())] = true
		}
		if len(seconds) < 8 {
			t.Errorf("%d clients come back in the seconds %v", l.Waiting, seconds)
		}
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("they were refused after %s", took)
		}
		if got := a.Use(limit.Checkin); got.Used != 1 || got.Waiting != 0 || got.Limited != 101 {
			t.Errorf("then it is %+v", got)
		}
		leave()
		mustEnter(t, a, limit.Checkin)()
	})
}

func TestDisconnectedClientReleasesItsSlotAndMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := limit.NewAdmission(small())
		leave := mustEnter(t, a, limit.Report)
		ctx, hangUp := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			hangUp()
		}()
		if _, err := enter(ctx, a, limit.Report); !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
		leave()
		if got := a.Use(limit.Report); got.Used != 0 || got.Waiting != 0 || got.Limited != 0 {
			t.Errorf("then it is %+v", got)
		}
	})
}

func TestSlowBodyHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := limit.NewAdmission(small())
		body, sender := io.Pipe()
		slow := make(chan error, 1)
		go func() {
			r, err := a.Enter(t.Context(), request(t.Context(), body), limit.Report, maxBody)
			if err == nil {
				limit.Done(r.Context())
			}
			slow <- err
		}()
		for range 3 {
			_, _ = sender.Write([]byte("x"))
			synctest.Wait()
			mustEnter(t, a, limit.Report)()
		}
		sender.Close()
		if err := <-slow; err != nil {
			t.Error(err)
		}
	})
}

func TestKindsOfRequestsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	l := small()
	l.Waiting = 0
	a := limit.NewAdmission(l)
	for _, k := range []limit.Kind{limit.Enroll, limit.Download, limit.Checkin} {
		defer mustEnter(t, a, k)()
	}
	mustEnter(t, a, limit.Report)()
}

func TestAnonymousDownloadsLeaveHalfToAgents(t *testing.T) {
	l := small()
	l.Downloads = 16
	a := limit.NewAdmission(l)
	var hold func(n int, from string) int
	hold = func(n int, from string) (got int) {
		// All are held at the same time.
		err := a.Anonymous(t.Context(), from, func() error {
			if n > 1 {
				got = hold(n-1, from)
			}
			return nil
		})
		if err != nil {
			if fleet.KindOf(err) != fleet.TooMany {
				t.Errorf("%v, want that it has to be retried", err)
			}
			return 0
		}
		return got + 1
	}
	if got := hold(100, "10.0.0.1:1"); got != 7 {
		t.Errorf("one source has %d of 8 at once, want 7", got)
	}
	_ = a.Anonymous(t.Context(), "10.0.0.1:1", func() error {
		if got := hold(100, "10.0.0.2:1"); got == 0 {
			t.Error("another source has none")
		}
		return nil
	})
}

func TestReviewsOfStrangersTakeNothingFromOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := limit.NewAdmission(small())
		end := make(chan struct{})
		for range 100 {
			go func() {
				_ = a.Review(t.Context(), "10.0.0.1:1", func() error {
					<-end // a body that never comes
					return nil
				})
			}()
		}
		synctest.Wait()
		if err := a.Review(t.Context(), "10.0.0.2:1", func() error { return nil }); err != nil {
			t.Errorf("another source: %v", err)
		}
		if r, err := a.EnterAdmin(t.Context(), request(t.Context(), nil), "an operator", maxBody); err != nil {
			t.Errorf("an operator: %v", err)
		} else {
			limit.Done(r.Context())
		}
		close(end)
	})
}

func TestOneKeyLeavesSlotsOfTheAdminAPIToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := limit.NewAdmission(small())
		admin := func(key string) (*http.Request, error) {
			return a.EnterAdmin(t.Context(), request(t.Context(), nil), key, maxBody)
		}
		var held []*http.Request
		for {
			r, err := admin("a script")
			if err != nil {
				limited(t, err)
				break
			}
			held = append(held, r)
		}
		if len(held) != 28 || a.Use(limit.Admin).Max != 32 {
			t.Errorf("one key holds %d of %d slots, want seven eighths", len(held), a.Use(limit.Admin).Max)
		}
		mustEnter(t, a, limit.Checkin)()
		r, err := admin("a person")
		if err != nil {
			t.Fatalf("another key: %v", err)
		}
		for _, r := range append(held, r) {
			limit.Done(r.Context())
		}
		if got := a.Use(limit.Admin); got.Used != 0 || got.Limited != 1 {
			t.Errorf("then it is %+v", got)
		}
	})
}

// Bodies that never end hold memory of their senders' share, and no slot, whether the senders
// have a key or not. Another sender is served all the time.
func TestUnfinishedBodiesOfTheAdminAPIHoldNoSlot(t *testing.T) {
	const unfinished = 2_000
	for who, enter := range map[string]func(a *limit.Admission, r *http.Request, from string) (*http.Request, error){
		"strangers": func(a *limit.Admission, r *http.Request, from string) (*http.Request, error) {
			r.RemoteAddr = from
			return a.EnterStranger(r, maxBody)
		},
		"operators": func(a *limit.Admission, r *http.Request, from string) (*http.Request, error) {
			return a.EnterAdmin(r.Context(), r, from, maxBody)
		},
	} {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := limit.NewAdmission(small())
				refused := 0
				ends := make(chan error, unfinished)
				for range unfinished {
					body, sender := io.Pipe()
					defer sender.Close()
					go func() {
						_, err := enter(a, request(t.Context(), body), "10.0.0.1:1")
						ends <- err
					}()
				}
				synctest.Wait()
				for len(ends) > 0 {
					limited(t, <-ends)
					refused++
				}
				if refused == 0 {
					t.Error("one sender begins as many as it wants")
				}
				if got := a.Use(limit.Admin); got.Used != 0 || got.Waiting != 0 {
					t.Errorf("they hold slots: %+v", got)
				}
				r, err := enter(a, request(t.Context(), strings.NewReader("{}")), "10.0.0.2:1")
				if err != nil {
					t.Fatalf("another sender: %v", err)
				}
				limit.Done(r.Context())
			})
		})
	}
}

func TestAgentSendsOneChunkAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := small()
		l.BodyBytes = 64 << 20
		a := limit.NewAdmission(l)
		leave, err := a.EnterUpload(t.Context(), "one")
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.EnterUpload(t.Context(), "one")
		limited(t, err)
		other, err := a.EnterUpload(t.Context(), "another")
		if err != nil {
			t.Fatal(err)
		}
		other()
		leave()
		if got := a.Use(limit.Upload); got.Used != 0 || got.Limited != 1 {
			t.Errorf("then it is %+v", got)
		}
	})
}

func TestEventStreamsOfOneKeyLeaveSomeToOthers(t *testing.T) {
	a := limit.NewAdmission(small())
	held := 0
	for ; held <= 1_000; held++ {
		if _, err := a.EnterTransfer(t.Context(), "one"); err != nil {
			limited(t, err)
			break
		}
	}
	if held == 0 || held > 1_000 {
		t.Errorf("one key has %d streams", held)
	}
	if _, err := a.EnterTransfer(t.Context(), "another"); err != nil {
		t.Error(err)
	}
}
