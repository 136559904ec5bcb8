package limit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

func roomy() Limits {
	return Limits{Agents: 1000, Checkins: 100, Reports: 100, Enrollments: 100, Downloads: 1, BodyBytes: 1 << 30, Waiting: 100, EnrollmentsPerSecond: 20, EnrollmentsPerHour: 1000}
}

// slow is a body that arrives until it is ended.
type slow struct{ ended chan struct{} }

func (s slow) Read([]byte) (int, error) {
	<-s.ended
	return 0, errors.New("the read deadline is over")
}

func (slow) Close() error { return nil }

// checkin enters a check-in of an agent, whose body is ended by the next.
func checkin(t *testing.T, a *Admission, agent string, body io.ReadCloser, end func()) (*http.Request, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
	if err != nil {
		t.Fatal(err)
	}
	return a.EnterCheckin(t.Context(), r, agent, 1<<20, end)
}

func TestOneCheckinOfAnAgentIsHandledAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := NewAdmission(roomy())
		body := func() io.ReadCloser { return io.NopCloser(strings.NewReader("{}")) }
		never := func() { t.Error("a body that was read is ended") }
		first, err := checkin(t, a, "web", body(), never)
		if err != nil {
			t.Fatal(err)
		}
		other, err := checkin(t, a, "db", body(), never)
		if err != nil {
			t.Fatalf("another agent: %v", err)
		}
		Done(other.Context())
		var second *http.Request
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			second, err = checkin(t, a, "web", body(), never)
		}()
		synctest.Wait()
		if _, err := checkin(t, a, "web", body(), never); fleet.KindOf(err) != fleet.TooMany {
			t.Errorf("a third: %v", err)
		}
		Done(first.Context())
		<-waited
		if err != nil {
			t.Fatalf("the second: %v", err)
		}
		// It is not parked, so the next gives up.
		began := time.Now()
		if _, err := checkin(t, a, "web", body(), never); fleet.KindOf(err) != fleet.TooMany || time.Since(began) != maxWait {
			t.Errorf("one after it: %v after %s", err, time.Since(began))
		}
		Done(second.Context())
		Done(second.Context())
		last, err := checkin(t, a, "web", body(), never)
		if err != nil {
			t.Fatalf("the last: %v", err)
		}
		Done(last.Context())
		if len(a.checkins.held) != 0 || a.Bodies().Used != 0 || a.Use(Checkin).Used != 0 {
			t.Errorf("left are %d locks, %+v, %+v", len(a.checkins.held), a.Bodies(), a.Use(Checkin))
		}
	})
}

// The connection of an agent broke while it sent its check-in, which the server does not notice for
// a minute. The agent sends another.
func TestCheckinThatIsStillSentIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := NewAdmission(roomy())
		broken, failed := slow{make(chan struct{})}, make(chan error)
		go func() {
			_, err := checkin(t, a, "web", broken, func() { close(broken.ended) })
			failed <- err
		}()
		synctest.Wait()
		began := time.Now()
		r, err := checkin(t, a, "web", io.NopCloser(strings.NewReader("{}")), func() {})
		if err := <-failed; fleet.KindOf(err) != fleet.TooMany {
			t.Errorf("the first: %v", err)
		}
		if err != nil || time.Since(began) > 0 {
			t.Fatalf("the second: %v after %s", err, time.Since(began))
		}
		Done(r.Context())
	})
}

// Bodies that are larger than usual share a budget of their own, so that they leave room to others,
// and what is decoded of them another.
func TestLargeBodiesHaveABudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := NewAdmission(roomy())
		enter := func(size int) (*http.Request, error) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(strings.Repeat("x", size)))
			if err != nil {
				t.Fatal(err)
			}
			return a.Enter(t.Context(), r, Report, 1<<20)
		}
		var large []context.Context
		for range 20 {
			r, err := enter(1 << 20)
			if err != nil {
				if fleet.KindOf(err) != fleet.TooMany {
					t.Fatal(err)
				}
				break
			}
			large = append(large, r.Context())
		}
		if n := len(large); n == 0 || n*bodyCopies<<20 > largeBodies+bodyCopies<<20 {
			t.Errorf("%d large bodies are in memory", n)
		}
		usual, err := enter(usualBody - 1)
		if err != nil {
			t.Fatalf("a usual body: %v", err)
		}
		// The first has all of the memory for decoding, and usual ones need none of it.
		if err := Decoding(large[0], 100<<20); err != nil {
			t.Fatal(err)
		}
		if err := Decoding(usual.Context(), usualCost); err != nil {
			t.Errorf("what costs little: %v", err)
		}
		began := time.Now()
		if err := Decoding(usual.Context(), usualCost+1); fleet.KindOf(err) != fleet.TooMany || time.Since(began) != maxWait {
			t.Errorf("what costs more: %v after %s", err, time.Since(began))
		}
		for _, ctx := range append(large, usual.Context()) {
			Done(ctx)
		}
		for name, p := range map[string]*pool{"bodies": a.bodies, "large": a.large, "decoding": a.decoding, "reports": a.requests[Report]} {
			if used := p.use().Used; used != 0 {
				t.Errorf("%d of %s are left", used, name)
			}
		}
	})
}

func TestEnrollmentTokenHasARateAndANumber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := NewAdmission(roomy())
		enrol := func(token string, n int) (refused error) {
			for range n {
				if err := a.Enrol(token); err != nil {
					return err
				}
			}
			return nil
		}
		refusedBy := func(err error, key string, most time.Duration) {
			t.Helper()
			var e *fleet.Error
			if !errors.As(err, &e) || e.Kind != fleet.TooMany || !strings.Contains(e.Message, "`"+key+"`") || e.RetryAfter <= 0 || e.RetryAfter > most+retrySpread {
				t.Errorf("the refusal is %v, want one of %s", err, key)
			}
		}
		if err := enrol("a", 200); err != nil {
			t.Fatal(err)
		}
		refusedBy(enrol("a", 1), "limits.enrollments_per_second", time.Second)
		if err := enrol("b", 200); err != nil {
			t.Errorf("another token: %v", err)
		}
		for range 800 / 20 {
			time.Sleep(time.Second)
			if err := enrol("a", 20); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		refusedBy(enrol("a", 1), "limits.enrollments_per_hour", time.Hour)
		time.Sleep(time.Hour)
		if err := enrol("a", 1); err != nil {
			t.Errorf("after an hour: %v", err)
		}
		if err := enrol("c", 1); err != nil || len(a.tokens.by) != 2 {
			t.Errorf("%d tokens are remembered, %v", len(a.tokens.by), err)
		}
		if a.Use(Enroll).Limited != 2 {
			t.Errorf("%d refusals are counted", a.Use(Enroll).Limited)
		}
	})
}
