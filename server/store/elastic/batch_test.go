package elastic

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// doubler is a batcher that answers each number with its double, and records its requests.
type doubler struct {
	batcher[int, int]
	mu       sync.Mutex
	requests [][]int
}

func newDoubler(request func(ctx context.Context, items []int) error) *doubler {
	e := &doubler{}
	e.send = func(ctx context.Context, items []int) ([]int, error) {
		e.mu.Lock()
		e.requests = append(e.requests, items)
		e.mu.Unlock()
		if err := request(ctx, items); err != nil {
			return nil, err
		}
		out := make([]int, len(items))
		for i, n := range items {
			out[i] = 2 * n
		}
		return out, nil
	}
	return e
}

// Calls are sent immediately up to maxInFlight requests, and then share the next one.
func TestCallsShareTheNextRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newDoubler(func(context.Context, []int) error { time.Sleep(time.Second); return nil })
		began := time.Now()
		var all sync.WaitGroup
		const callers = 50
		for i := range callers {
			all.Go(func() {
				got, err := e.do(t.Context(), []int{i, -i})
				if err != nil || !slices.Equal(got, []int{2 * i, -2 * i}) {
					t.Errorf("call %d returned %v, %v", i, got, err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if n := len(e.requests); n != maxInFlight+1 {
			t.Errorf("%d callers made %d requests, want %d: %v", callers, n, maxInFlight+1, e.requests)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it took %s, want the time of two requests", took)
		}
		synctest.Wait()
		e.batcher.mu.Lock()
		defer e.batcher.mu.Unlock()
		if e.inFlight != 0 {
			t.Errorf("inFlight is %d at the end", e.inFlight)
		}
	})
}

func TestCancelledCallDoesNotStopASharedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newDoubler(func(ctx context.Context, _ []int) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second):
				return nil
			}
		})
		var all sync.WaitGroup
		call := func(ctx context.Context, n int, want error) {
			all.Go(func() {
				if _, err := e.do(ctx, []int{n}); !errors.Is(err, want) {
					t.Errorf("call %d: %v, want %v", n, err, want)
				}
			})
			synctest.Wait()
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		for n := range maxInFlight {
			call(t.Context(), n, nil)
		}
		call(short, 10, context.DeadlineExceeded) // ends in the queue and is never sent
		call(t.Context(), 11, nil)
		all.Wait()
		for _, items := range e.requests {
			if slices.Contains(items, 10) {
				t.Error("a call was sent after its context had ended")
			}
		}
	})
}

func TestHangingCallTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		e := newDoubler(func(context.Context, []int) error { <-release; return nil })
		began := time.Now()
		if _, err := e.do(t.Context(), []int{1}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != callTimeout {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		close(release)
	})
}

// An invalid item fails only its own call. Any other error fails all calls that share the
// request.
func TestErrorsOfASharedRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		failed int // of the three calls that share a request, of which the third is invalid
	}{
		"malformed":   {&refusal{status: http.StatusBadRequest}, 1},
		"too large":   {&refusal{status: http.StatusRequestEntityTooLarge}, 1},
		"reset":       {errors.New("reset"), 3},
		"unavailable": {&refusal{status: http.StatusServiceUnavailable}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newDoubler(func(_ context.Context, items []int) error {
					time.Sleep(time.Second)
					if slices.Contains(items, 13) {
						return tc.err
					}
					return nil
				})
				var all sync.WaitGroup
				var mu sync.Mutex
				failed := 0
				for _, n := range append(make([]int, maxInFlight), 11, 12, 13) {
					all.Go(func() {
						if _, err := e.do(t.Context(), []int{n}); err != nil {
							mu.Lock()
							defer mu.Unlock()
							failed++
						}
					})
					synctest.Wait()
				}
				all.Wait()
				if failed != tc.failed {
					t.Errorf("%d callers failed, want %d: %v", failed, tc.failed, e.requests)
				}
			})
		})
	}
}

func TestCallsBeyondTheQueueAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newDoubler(func(context.Context, []int) error { time.Sleep(time.Second); return nil })
		e.queue = make([]*batched[int, int], maxQueued)
		if _, err := e.do(t.Context(), []int{1}); !errors.Is(err, errQueueFull) {
			t.Errorf("error is %v", err)
		}
	})
}

// With any timing of calls, each gets the answers to its own items, and no request exceeds
// its bound.
func TestEachCallGetsItsOwnAnswers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			e := newDoubler(func(_ context.Context, items []int) error {
				time.Sleep(time.Duration(len(items)) * time.Millisecond)
				return nil
			})
			var all sync.WaitGroup
			for range rapid.IntRange(1, 300).Draw(rt, "callers") {
				items := rapid.SliceOfN(rapid.Int(), 1, 5).Draw(rt, "items")
				if rapid.Bool().Draw(rt, "pause") {
					time.Sleep(time.Millisecond)
				}
				all.Go(func() {
					got, err := e.do(t.Context(), items)
					if err != nil || len(got) != len(items) {
						t.Errorf("do(%v) returned %v, %v", items, got, err)
						return
					}
					for i, n := range items {
						if got[i] != 2*n {
							t.Errorf("do(%v) returned %v", items, got)
						}
					}
				})
			}
			all.Wait()
			for _, items := range e.requests {
				if len(items) > 5*maxBatched {
					t.Errorf("a request has %d items", len(items))
				}
			}
		})
	})
}
