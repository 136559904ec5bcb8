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

// echo is a gatherer that answers each number with its double, and notes what it
// was asked together.
type echo struct {
	gatherer[int, int]
	mu       sync.Mutex
	together [][]int
}

func newEcho(answer func(ctx context.Context, asked []int) error) *echo {
	e := &echo{}
	e.send = func(ctx context.Context, asked []int) ([]int, error) {
		e.mu.Lock()
		e.together = append(e.together, asked)
		e.mu.Unlock()
		if err := answer(ctx, asked); err != nil {
			return nil, err
		}
		out := make([]int, len(asked))
		for i, n := range asked {
			out[i] = 2 * n
		}
		return out, nil
	}
	return e
}

// Whoever comes while requests are under way waits for the next; nobody waits for
// company.
func TestCallsGatherWhileOthersAreUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEcho(func(context.Context, []int) error { time.Sleep(time.Second); return nil })
		began := time.Now()
		var all sync.WaitGroup
		const callers = 50
		for i := range callers {
			all.Go(func() {
				got, err := e.do(t.Context(), []int{i, -i})
				if err != nil || !slices.Equal(got, []int{2 * i, -2 * i}) {
					t.Errorf("%d was answered %v, %v", i, got, err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if n := len(e.together); n != maxFlights+1 {
			t.Errorf("%d callers made %d requests, want %d: %v", callers, n, maxFlights+1, e.together)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it took %s, want the time of two requests", took)
		}
		synctest.Wait()
		e.gatherer.mu.Lock()
		defer e.gatherer.mu.Unlock()
		if e.flights != 0 {
			t.Errorf("%d flights are under way at the end", e.flights)
		}
	})
}

func TestACallerThatGivesUpStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEcho(func(ctx context.Context, _ []int) error {
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
		hurry, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		for n := range maxFlights {
			call(t.Context(), n, nil)
		}
		call(hurry, 10, context.DeadlineExceeded) // waits, and is never sent
		call(t.Context(), 11, nil)
		all.Wait()
		for _, asked := range e.together {
			if slices.Contains(asked, 10) {
				t.Error("what nobody waited for any more was sent")
			}
		}
	})
}

func TestACallThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		e := newEcho(func(context.Context, []int) error { <-release; return nil })
		began := time.Now()
		if _, err := e.do(t.Context(), []int{1}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != callTimeout {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		close(release)
	})
}

// What Elasticsearch would not even read fails who sent it; what fails on the way
// fails all who shared it.
func TestWhoseFaultAFailureIs(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		failed int // of the three that share a request, the third is the bad one
	}{
		"malformed":   {&refusal{status: http.StatusBadRequest}, 1},
		"too large":   {&refusal{status: http.StatusRequestEntityTooLarge}, 1},
		"cut off":     {errors.New("reset"), 3},
		"unavailable": {&refusal{status: http.StatusServiceUnavailable}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEcho(func(_ context.Context, asked []int) error {
					time.Sleep(time.Second)
					if slices.Contains(asked, 13) {
						return tc.err
					}
					return nil
				})
				var all sync.WaitGroup
				var mu sync.Mutex
				failed := 0
				for _, n := range append(make([]int, maxFlights), 11, 12, 13) {
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
					t.Errorf("%d callers failed, want %d: %v", failed, tc.failed, e.together)
				}
			})
		})
	}
}

func TestTooManyThatWaitAreTurnedAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEcho(func(context.Context, []int) error { time.Sleep(time.Second); return nil })
		e.waiting = make([]*gathered[int, int], maxWaiting)
		if _, err := e.do(t.Context(), []int{1}); !errors.Is(err, errTooMany) {
			t.Errorf("error is %v", err)
		}
	})
}

// However callers come and go, each is answered what he asked for, and no request
// is larger than it may be.
func TestEachCallerIsAnsweredWhatHeAsked(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			e := newEcho(func(_ context.Context, asked []int) error {
				time.Sleep(time.Duration(len(asked)) * time.Millisecond)
				return nil
			})
			var all sync.WaitGroup
			for range rapid.IntRange(1, 300).Draw(rt, "callers") {
				asked := rapid.SliceOfN(rapid.Int(), 1, 5).Draw(rt, "asked")
				if rapid.Bool().Draw(rt, "pause") {
					time.Sleep(time.Millisecond)
				}
				all.Go(func() {
					got, err := e.do(t.Context(), asked)
					if err != nil || len(got) != len(asked) {
						t.Errorf("%v was answered %v, %v", asked, got, err)
						return
					}
					for i, n := range asked {
						if got[i] != 2*n {
							t.Errorf("%v was answered %v", asked, got)
						}
					}
				})
			}
			all.Wait()
			for _, asked := range e.together {
				if len(asked) > 5*maxGathered {
					t.Errorf("%d were asked together", len(asked))
				}
			}
		})
	})
}
