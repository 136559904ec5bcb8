package limit

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

func TestSourceOfAnAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"192.0.2.7:50000":             "192.0.2.7/32",
		"[::ffff:192.0.2.7]:50000":    "192.0.2.7/32",
		"[2001:db8:1:2:3:4:5:6]:8220": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:8220":         "fe80::/64",
	} {
		if got := sourceOfText(text); got.String() != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	if got := sourceOfText("pipe"); got != (netip.Prefix{}) {
		t.Errorf("a pipe is %s", got)
	}
}

func host(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32)
}

// hold acquires a place at once, or reports that it would have to wait.
func hold(p *places[netip.Prefix], i int) bool {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return p.acquire(ended, host(i)) == nil
}

func TestLoneSourceHasSevenEighthsAndLeavesTheRest(t *testing.T) {
	t.Parallel()
	p := newPlaces[netip.Prefix](64, 100)
	held := 0
	for hold(p, 1) {
		held++
	}
	if held != 56 {
		t.Errorf("one source holds %d of 64", held)
	}
	for i := 2; p.use().Used < 64; i++ { // each next source still gets one
		if !hold(p, i) {
			t.Fatalf("source %d got none, with %+v", i, p.use())
		}
	}
}

func TestSourcesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces[netip.Prefix](1, 100)
		if !hold(p, 1) {
			t.Fatal("the first place is not free")
		}
		order := make(chan int, 100)
		for _, from := range []int{1, 1, 1, 1, 1, 2, 2, 3} {
			go func() {
				if err := p.acquire(t.Context(), host(from)); err != nil {
					t.Error(err)
				}
				order <- from
				p.release(host(from))
			}()
			synctest.Wait()
		}
		p.release(host(1))
		for i, want := range []int{1, 2, 3, 1, 2, 1, 1, 1} {
			if got := <-order; got != want {
				t.Errorf("the %dth turn was of source %d, want %d", i+1, got, want)
			}
		}
	})
}

func TestQueueIsSharedAmongSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces[netip.Prefix](1, 8)
		if !hold(p, 1) {
			t.Fatal("the first place is not free")
		}
		ctx, cancel := context.WithCancel(t.Context())
		refused := make(chan error, 20)
		for range 20 {
			go func() { refused <- p.acquire(ctx, host(1)) }()
		}
		synctest.Wait()
		if got := p.use().Waiting; got != 7 || len(refused) != 13 {
			t.Errorf("%d of one source wait, %d were refused", got, len(refused))
		}
		go func() { refused <- p.acquire(ctx, host(2)) }()
		synctest.Wait()
		if got := p.use().Waiting; got != 8 {
			t.Errorf("%d wait with another source", got)
		}
		cancel()
		synctest.Wait()
		full := 0
		for range 21 {
			if errors.Is(<-refused, errQueueFull) {
				full++
			}
		}
		p.release(host(1))
		if full != 13 || p.use() != (Use{Max: 1}) || len(p.sources) != 0 || p.turns.Len() != 0 {
			t.Errorf("%d were refused, left are %+v, %d sources", full, p.use(), len(p.sources))
		}
	})
}

// Whatever sources do: no place is lost or given twice, none waits while it has room, and a
// source that holds nothing gets a free place at once.
func TestPlacesAreGivenToWhoeverHasRoom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) {
			n := rapid.IntRange(1, 9).Draw(rt, "places")
			p := newPlaces[netip.Prefix](n, 1000)
			type caller struct {
				from   int
				cancel context.CancelFunc
				result chan error
				done   bool
			}
			var callers []*caller
			held := map[int]int{}
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				if i := rapid.IntRange(-2, len(callers)-1).Draw(rt, "caller"); i >= 0 {
					c := callers[i]
					switch {
					case c.done && held[c.from] > 0 && rapid.Bool().Draw(rt, "leaves"):
						held[c.from]--
						p.release(host(c.from))
					case !c.done:
						c.cancel()
					}
				} else {
					from := rapid.IntRange(1, 4).Draw(rt, "from")
					ctx, cancel := context.WithCancel(context.Background())
					c := &caller{from: from, cancel: cancel, result: make(chan error, 1)}
					callers = append(callers, c)
					free := p.use().Used < int64(n)
					go func() { c.result <- p.acquire(ctx, host(from)) }()
					synctest.Wait()
					if free && held[from] == 0 && len(c.result) == 0 {
						rt.Fatalf("source %d holds nothing and waits, with %+v", from, p.use())
					}
				}
				synctest.Wait()
				sum := 0
				for _, c := range callers {
					if !c.done && len(c.result) > 0 {
						if c.done = true; <-c.result == nil {
							held[c.from]++
						} else {
							c.from = 0 // it gave up
						}
					}
				}
				for _, h := range held {
					sum += h
				}
				if got := p.use(); got.Used != int64(sum) || sum > n {
					rt.Fatalf("%d of %d are held, counted as %+v", sum, n, got)
				}
				for from, s := range p.sources {
					if s.turn != nil && p.room(s) {
						rt.Fatalf("%s waits though it has room", from)
					}
				}
			}
			for _, c := range callers {
				c.cancel()
			}
			synctest.Wait()
		})
	})
}
