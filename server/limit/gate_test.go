package limit

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhoFindsAGateFullWaitsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(2, 10, 100, time.Now)
		for range 2 {
			if _, ok := g.enter(t.Context()); !ok {
				t.Fatal("an empty gate lets nobody in")
			}
		}
		var mu sync.Mutex
		var order []int
		for i := range 5 {
			go func() {
				if _, ok := g.enter(t.Context()); ok {
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
				}
			}()
			synctest.Wait()
		}
		if u := g.use(); u.Used != 2 || u.Waiting != 5 || u.Max != 2 {
			t.Errorf("with two inside it is %+v", u)
		}
		for range 5 {
			g.leave()
			synctest.Wait()
		}
		for i, who := range order {
			if i != who {
				t.Fatalf("they came in in the order %v", order)
			}
		}
		g.leave()
		g.leave()
		if u := g.use(); len(order) != 5 || u.Used != 0 || u.Waiting != 0 || u.Limited != 0 {
			t.Errorf("%v came in, and then it is %+v", order, u)
		}
	})
}

func TestNobodyWaitsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 1, 100, time.Now)
		g.enter(t.Context())
		start := time.Now()
		seated := make(chan time.Duration, 1)
		go func() {
			after, ok := g.enter(t.Context())
			if ok {
				t.Error("it came in, though nobody left")
			}
			seated <- after
		}()
		synctest.Wait()
		if after, ok := g.enter(t.Context()); ok || after < time.Second || time.Since(start) != 0 {
			t.Errorf("with no seat left it is told %v, %s after %s", ok, after, time.Since(start))
		}
		if after := <-seated; after < time.Second || time.Since(start) != patience {
			t.Errorf("it was sent away for %s, after %s", after, time.Since(start))
		}
		// One that hangs up leaves nothing behind, and is not counted.
		ctx, hangUp := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			hangUp()
		}()
		if after, ok := g.enter(ctx); ok || after != 0 {
			t.Errorf("who hung up got %s, %v", after, ok)
		}
		g.leave()
		if u := g.use(); u.Used != 0 || u.Waiting != 0 || u.Limited != 2 {
			t.Errorf("then it is %+v", u)
		}
	})
}

// A burst is absorbed; a queue that stands is not kept, for it only makes every
// answer late.
func TestAStandingQueueLosesPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 100, 100, time.Now)
		g.enter(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		var asking sync.WaitGroup
		for range 4 { // so that there is somebody waiting all the time
			asking.Go(func() {
				for ctx.Err() == nil {
					g.enter(ctx)
				}
			})
			time.Sleep(patience / 4)
		}
		time.Sleep(standing)
		start := time.Now()
		if _, ok := g.enter(t.Context()); ok || time.Since(start) != shortPatience {
			t.Errorf("in a standing queue it waited %s", time.Since(start))
		}
		cancel()
		asking.Wait()
		start = time.Now()
		if _, ok := g.enter(t.Context()); ok || time.Since(start) != patience {
			t.Errorf("after an empty queue it waited %s", time.Since(start))
		}
	})
}

// Those that are refused together come back spread over twice the time that the
// gate needs for so many, whatever it was thought to do at first.
func TestThoseRefusedComeBackNoFasterThanTheyAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, refused = 50, 1000
		g := newGate(1, 200, 10_000, time.Now)
		g.enter(t.Context())
		// It is full for four seconds, and one leaves every 20 ms.
		var asking sync.WaitGroup
		for range 199 {
			asking.Go(func() { g.enter(t.Context()) })
		}
		synctest.Wait()
		for range 4 * perSecond {
			time.Sleep(time.Second / perSecond)
			g.leave()
		}
		asking.Wait()
		if g.perSecond < 0.9*perSecond || g.perSecond > 1.1*perSecond {
			t.Errorf("after four seconds at %d a second it thinks it does %.0f", perSecond, g.perSecond)
		}
		g.enter(t.Context())
		g.seats = 0
		back := map[int]int{} // by second
		for range refused {
			after, ok := g.enter(t.Context())
			if ok || after < time.Second || after > time.Second+slack*refused/perSecond*1.1*time.Second+minSpread {
				t.Fatalf("one is told %v, %s", ok, after)
			}
			back[int(after.Seconds())]++
		}
		for second, n := range back {
			if n > perSecond {
				t.Errorf("%d come back in second %d, and %d are served in one", n, second, perSecond)
			}
		}
		if len(back) < slack*refused/perSecond {
			t.Errorf("they come back within %d seconds", len(back))
		}
	})
}

func TestABacklogHasAnEnd(t *testing.T) {
	t.Parallel()
	now := time.Now()
	g := newGate(0, 0, 0.001, func() time.Time { return now })
	for range 10_000 {
		if after, _ := g.enter(t.Context()); after > time.Second+maxSpread+minSpread {
			t.Fatalf("one is sent away for %s", after)
		}
	}
}
