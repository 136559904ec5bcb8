package limit_test

import (
	"crypto/tls"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/limit"
)

// aside is how long one step of bulk work has waited.
func aside(c *limit.Courtesy) time.Duration {
	begin := time.Now()
	c.StepAside()
	return time.Since(begin)
}

func TestBulkWorkStepsAsideWhileSomebodyIsInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &limit.Courtesy{}
		if got := aside(c); got != 0 {
			t.Errorf("with nobody inside it waited %s", got)
		}
		if got := aside(nil); got != 0 || (*limit.Courtesy)(nil).Aside() != 0 {
			t.Errorf("without a courtesy it waited %s", got)
		}
		visit := c.Enter()
		if got := aside(c); got != limit.AsideTime {
			t.Errorf("with somebody inside it waited %s, want %s", got, limit.AsideTime)
		}
		if got := aside(c); got != 0 {
			t.Errorf("when its turn has come it waited %s", got)
		}
		visit.Leave()

		time.Sleep(time.Second)
		another := c.Enter()
		time.AfterFunc(limit.AsideTime/3, another.Leave)
		if got := aside(c); got < limit.AsideTime/3 || got > limit.AsideTime/3+time.Millisecond {
			t.Errorf("it waited %s for a visit of %s", got, limit.AsideTime/3)
		}
		another.Leave() // twice is once
		if got := c.Aside(); got != 0 {
			t.Errorf("when all have left bulk work would step aside for %s", got)
		}
	})
}

func TestNobodyWaitsForAVisitThatLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &limit.Courtesy{}
		visit := c.Enter()
		if !visit.Waits() {
			t.Error("it is over before it has begun")
		}
		time.Sleep(limit.VisitLimit)
		synctest.Wait()
		if got := c.Aside(); got != 0 || visit.Waits() {
			t.Errorf("after %s bulk work would step aside for %s, and it waits: %v", limit.VisitLimit, got, visit.Waits())
		}
		visit.Leave()
		time.Sleep(time.Second)
		next := c.Enter()
		if got := c.Aside(); got != limit.AsideTime {
			t.Errorf("for the next visit bulk work would step aside for %s, want %s", got, limit.AsideTime)
		}
		next.Leave()
	})
}

// However visits begin and end, one after the other or several together: a step
// waits no longer than limit.AsideTime, and bulk work keeps a quarter of its speed.
func TestOperatorsWithoutEndLeaveBulkWorkAQuarter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		programs := rapid.IntRange(1, 3).Draw(rt, "programs")
		takes := rapid.IntRange(1, 400).Draw(rt, "takes")   // ms of a request
		pauses := rapid.IntRange(0, 120).Draw(rt, "pauses") // ms between two
		synctest.Test(t, func(t *testing.T) {
			const long = 2 * time.Second
			const step = 500 * time.Microsecond
			c := &limit.Courtesy{}
			end := time.Now().Add(long)
			for range programs {
				go func() {
					for time.Now().Before(end) {
						visit := c.Enter()
						time.Sleep(time.Duration(takes) * time.Millisecond)
						visit.Leave()
						time.Sleep(time.Duration(pauses) * time.Millisecond)
					}
				}()
			}
			time.Sleep(time.Microsecond)
			var steps time.Duration
			for time.Now().Before(end) {
				if got := aside(c); got > limit.AsideTime {
					t.Errorf("one step waited %s", got)
				}
				time.Sleep(step)
				steps += step
			}
			if steps < long/5 { // a look is a millisecond, of which a part is lost
				t.Errorf("%d programs, %d ms a request, %d ms between two: of %s there were %s of bulk work", programs, takes, pauses, long, steps)
			}
			time.Sleep(time.Second) // for the programs to end
		})
	})
}

// pipes is a listener whose connections are given to it.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// The check-ins of a fleet that comes back fill the line that an operator's request
// stands in; those of a few agents do not.
func TestARequestInACrowdWaitsForAnOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := small()
		l.Checkins = 100
		a := limit.NewAdmission(l, nil)
		a.Courtesy = &limit.Courtesy{}
		enter := func() (took time.Duration) {
			begin := time.Now()
			if _, err := a.Enter(t.Context(), request(t.Context(), nil), limit.Checkin, 10); err != nil {
				t.Fatal(err)
			}
			return time.Since(begin)
		}
		visit := a.Courtesy.Enter()
		for i := range limit.Crowd + 1 {
			if got := enter(); got != 0 {
				t.Errorf("with %d inside another waited %s", i, got)
			}
		}
		if got := enter(); got != limit.AsideTime {
			t.Errorf("in a crowd it waited %s, want %s", got, limit.AsideTime)
		}
		visit.Leave()
		if got := enter(); got != 0 {
			t.Errorf("without an operator it waited %s", got)
		}
	})
}

func TestAHandshakeWaitsForAnOperator(t *testing.T) {
	cert := serverTLS(t)
	synctest.Test(t, func(t *testing.T) {
		a := limit.NewAdmission(small(), nil)
		a.Courtesy = &limit.Courtesy{}
		inner := make(pipes)
		l := a.Listener(inner, cert, slog.New(slog.DiscardHandler))
		handshake := func() time.Duration {
			begin := time.Now()
			theirs, ours := net.Pipe()
			defer theirs.Close()
			go func() { inner <- ours }()
			client := make(chan error, 1)
			go func() { client <- tls.Client(theirs, &tls.Config{InsecureSkipVerify: true}).Handshake() }()
			c, err := l.Accept()
			if err == nil {
				go func() { _, _ = c.Read(make([]byte, 1)) }() // else nobody takes the tickets
				err = <-client
			}
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(begin)
			defer c.Close()
			return took
		}
		if got := handshake(); got != 0 {
			t.Errorf("with nobody inside it took %s", got)
		}
		visit := a.Courtesy.Enter()
		if got := handshake(); got != limit.AsideTime {
			t.Errorf("with somebody inside it took %s, want %s", got, limit.AsideTime)
		}
		visit.Leave()
		if got := handshake(); got != 0 {
			t.Errorf("with nobody inside any more it took %s", got)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}
