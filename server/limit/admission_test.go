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
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/limit"
)

const maxBody = 1 << 20

func small() limit.Limits {
	return limit.Limits{Agents: 100, Handshakes: 8, HandshakesPerSecond: 1000, Checkins: 1, Reports: 1, Enrollments: 1, Downloads: 1, BodyBytes: 64 << 10, Waiting: 1}
}

func request(ctx context.Context, body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", body)
	return r.WithContext(ctx)
}

// limited expects a refusal that says when to come again.
func limited(t *testing.T, err error) time.Duration {
	t.Helper()
	var refusal *fleet.Error
	if !errors.As(err, &refusal) || refusal.Kind != fleet.TooMany || refusal.RetryAfter < time.Second || refusal.Message == "" {
		t.Fatalf("the error is %#v", err)
	}
	return refusal.RetryAfter
}

func TestAParkedCheckinHoldsNoPlace(t *testing.T) {
	t.Parallel()
	a := limit.NewAdmission(small(), nil)
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

func TestABodyArrivesWholeWhateverItsPieces(t *testing.T) {
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
		a := limit.NewAdmission(small(), nil)
		r, err := a.Enter(r.Context(), r, limit.Report, most)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r.Body)
		if !bytes.Equal(got, text) {
			t.Errorf("%d bytes became %d", len(text), len(got))
		}
		if broken != errors.Is(err, boom) {
			t.Errorf("the body ended with %v", err)
		}
		limit.Done(r.Context())
		if got := a.Bodies().Used; got != 0 {
			t.Errorf("%d bytes are still in use", got)
		}
	})
}

// A body that is in memory already is neither copied nor counted, and refused by its
// reader if it is too long, as any other.
func TestABodyInMemoryIsTakenAsItIs(t *testing.T) {
	t.Parallel()
	a := limit.NewAdmission(small(), nil)
	text := []byte(`{"status":"online"}`)
	in := request(t.Context(), nil)
	in.Body = limit.InMemory(text)
	r, err := a.Enter(t.Context(), in, limit.Checkin, maxBody)
	if err != nil {
		t.Fatal(err)
	}
	defer limit.Done(r.Context())
	if got := a.Bodies().Used; got != 0 {
		t.Errorf("%d bytes are counted", got)
	}
	whole, ok := r.Body.(interface{ Whole() ([]byte, bool) }).Whole()
	if !ok || &whole[0] != &text[0] || len(whole) != len(text) {
		t.Errorf("the body is %q, whole: %v, or a copy", whole, ok)
	}
	if rest, err := io.ReadAll(r.Body); err != nil || len(rest) > 0 {
		t.Errorf("behind the whole there is %q, %v", rest, err)
	}

	long := request(t.Context(), nil)
	long.Body = limit.InMemory(text)
	r, err = a.Enter(t.Context(), long, limit.Report, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer limit.Done(r.Context())
	var tooLarge *http.MaxBytesError
	if _, err := io.ReadAll(http.MaxBytesReader(httptest.NewRecorder(), r.Body, 4)); !errors.As(err, &tooLarge) {
		t.Errorf("a long body was read: %v", err)
	}
}

func TestBodiesShareTheMemory(t *testing.T) {
	t.Parallel()
	a := limit.NewAdmission(small(), nil)
	long := strings.NewReader(strings.Repeat("x", maxBody))
	_, err := a.Enter(t.Context(), request(t.Context(), long), limit.Checkin, maxBody)
	limited(t, err)
	if got := a.Bodies(); got.Used != 0 || got.Limited != 1 {
		t.Errorf("then bodies are %+v", got)
	}
	if a.Use(limit.Checkin).Used != 0 {
		t.Error("it holds a place")
	}

	// What is unpacked counts too.
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

func TestClientsAreCalledBackAtDifferentTimes(t *testing.T) {
	t.Parallel()
	l := small()
	l.Waiting = 0
	a := limit.NewAdmission(l, nil)
	if _, err := a.Enter(t.Context(), request(t.Context(), nil), limit.Enroll, maxBody); err != nil {
		t.Fatal(err)
	}
	seconds := map[int]bool{}
	for range 100 {
		_, err := a.Enter(t.Context(), request(t.Context(), nil), limit.Enroll, maxBody)
		seconds[int(limited(t, err).Seconds())] = true
	}
	if len(seconds) < 5 {
		t.Errorf("100 clients come back in the seconds %v", seconds)
	}
	if got := a.Use(limit.Enroll).Limited; got != 100 {
		t.Errorf("%d are counted", got)
	}
}
