package download

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

func TestRateLimitIsExactOverTime(t *testing.T) {
	for _, c := range []struct{ limit, seconds int }{
		{1000, 10}, {1000, 120}, {50_000, 10}, {34_000, 10}, {1 << 19, 10}, {7, 200},
	} {
		t.Run(fmt.Sprintf("%d B/s for %d s", c.limit, c.seconds), func(t *testing.T) {
			data := noise(1, c.limit*c.seconds)
			inWorld(t, func(w *world) {
				h := w.host("one", data)
				f := w.fetcher()
				f.RateLimit = int64(c.limit)
				var waits int
				begun := time.Now()
				if err := f.Fetch(w.Context(), []string{h.url}, w.dir, "p", wantOf(data), func(p Progress) {
					if p.Retry != "" {
						waits++
					}
				}); err != nil {
					t.Fatal(err)
				}
				took := time.Since(begun)
				w.holds(data)
				if off := took.Seconds()/float64(c.seconds) - 1; math.Abs(off) > 0.05 || waits > 0 {
					t.Errorf("it took %s, %.1f %% off, with %d breaks", took, 100*off, waits)
				}
			})
		})
	}
}

// At rates beyond a timer's precision the bucket, not the waits, keeps the rate.
func TestLimiterIsExactAtAnyRate(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		limit := rapid.Int64Range(1, 20<<30).Draw(r, "bytes per second")
		reads := rapid.SliceOfN(rapid.IntRange(1, bufferSize), 1, 50).Draw(r, "reads")
		var took time.Duration
		var total, most int64
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(limit)
			begun := time.Now()
			for _, n := range reads {
				n = l.chunk(n)
				total += int64(n)
				before := time.Now()
				if err := l.pay(t.Context(), n); err != nil {
					t.Error(err)
				}
				most = max(most, int64(time.Since(before)))
			}
			took = time.Since(begun)
		})
		burst := max(limit/burstsPerSecond, 1)
		least := time.Duration(float64(total-burst) / float64(limit) * float64(time.Second))
		if slack := time.Millisecond; took < least-slack || took > max(least, 0)+time.Second/burstsPerSecond+slack {
			r.Fatalf("%d bytes at %d B/s took %s, want %s", total, limit, took, least)
		}
		if time.Duration(most) > time.Second {
			r.Fatalf("one wait took %s", time.Duration(most))
		}
	})
}

func TestBrokenLinkGetsNoNewBurst(t *testing.T) {
	data := noise(1, 100_000)
	inWorld(t, func(w *world) {
		h := w.host("one", data)
		h.always = breaks(2000)
		f := w.fetcher()
		f.RateLimit, f.Rand = 10_000, func() float64 { return 0 }
		begun := time.Now()
		if err := f.Fetch(w.Context(), []string{h.url}, w.dir, "p", wantOf(data), nil); err != nil {
			t.Fatal(err)
		}
		w.holds(data)
		if took := time.Since(begun); took < 9500*time.Millisecond {
			t.Errorf("100 kB at 10 kB/s took %s", took)
		}
	})
}

// A slow link has no time limit.
func TestSlowLinkIsNoStall(t *testing.T) {
	data := noise(1, 3<<20)
	inWorld(t, func(w *world) {
		h := w.host("one", data, trickles(50_000, serve))
		begun := time.Now()
		var lowest, highest float64
		w.fetch([]string{h.url}, data, func(p Progress) {
			if since := time.Since(begun); since > RateWindow && p.Percent < 100 {
				lowest, highest = min(lowest, p.BytesPerSecond-50_000), max(highest, p.BytesPerSecond-50_000)
			}
		})
		w.holds(data)
		if took := time.Since(begun); took < time.Minute || len(h.ranges()) != 1 {
			w.Errorf("it took %s and %d requests", took, len(h.ranges()))
		}
		if lowest < -2500 || highest > 2500 {
			w.Errorf("the reported rate was off by %v to %v", lowest, highest)
		}
	})
}

// An attempt ends when fewer than MinProgress bytes arrive within StallTimeout. The time in
// which the rate limit lets this host read nothing does not count.
func TestSlowerLinkIsAStall(t *testing.T) {
	const size = 5 * MinProgress
	data := noise(1, size)
	for _, c := range []struct {
		name     string
		every    time.Duration // between two bytes
		limit    int64
		requests []string
	}{
		{"19 bytes a second", time.Second / 19, 0, []string{""}},
		{"19 bytes a second, and a limit of 5", time.Second / 19, 5, []string{""}},
		{"16 bytes a second", 63 * time.Millisecond, 0, []string{"", from(953), from(2 * 953), from(3 * 953), from(4 * 953), from(5 * 953)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				h := w.host("one", data)
				h.always = drips(c.every)
				f := w.fetcher()
				f.RateLimit = c.limit
				if err := f.Fetch(w.Context(), []string{h.url}, w.dir, "p", wantOf(data), nil); err != nil {
					t.Fatal(err)
				}
				w.holds(data)
				if got := h.ranges(); !slices.Equal(got, c.requests) {
					t.Errorf("it asked for %q, want %q", got, c.requests)
				}
			})
		})
	}
}

func TestSlowDownloadWritesCheckpointsByTime(t *testing.T) {
	data := noise(1, 3<<20)
	inWorld(t, func(w *world) {
		h := w.host("one", data, trickles(50_000, serve))
		begun, looked := time.Now(), 0
		w.fetch([]string{h.url}, data, func(Progress) {
			since := time.Since(begun)
			if since < CheckpointInterval+2*time.Second {
				return
			}
			var n checkpoint
			err := disk.ReadRecord(disk.OS{}, "test", filepath.Join(w.dir, "p"+checkpointSuffix), checkpointKind, checkpointVersion, &n)
			if least := int64((since - CheckpointInterval - 2*time.Second).Seconds() * 50_000); err == nil && n.Length >= least {
				looked++
			} else if since < time.Minute {
				w.Errorf("after %s the checkpoint says %d bytes (%v), want %d", since, n.Length, err, least)
			}
		})
		if looked < 20 {
			w.Errorf("it was saved %d times", looked)
		}
	})
}

func TestStalledAttemptEndsAndResumes(t *testing.T) {
	data := noise(1, 1<<20)
	inWorld(t, func(w *world) {
		silent := func(_ *host, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		h := w.host("one", data, stalls(300_000), silent, stalls(400_000))
		begun := time.Now()
		var reports []Progress
		w.fetch([]string{h.url}, data, func(p Progress) { reports = append(reports, p) })
		w.holds(data)
		if took := time.Since(begun); took < 3*StallTimeout || took > 3*StallTimeout+10*time.Second {
			w.Errorf("it took %s", took)
		}
		if got := h.ranges(); got[1] != from(300_000) || got[2] != from(300_000) || got[3] != from(700_000) {
			w.Errorf("it asked for %q", got)
		}
		var stalled, waits int
		for _, p := range reports {
			if p.BytesPerSecond == 0 && p.Retry == "" {
				stalled++
			}
			if p.Retry != "" {
				waits++
				if want := h.url + ": fewer than 1024 bytes arrived in 1m0s"; p.Retry != want {
					t.Errorf("it says %q, want %q", p.Retry, want)
				}
			}
		}
		// One for each second of the three stalls, except those of the sliding mean.
		if stalled < 3*(60-5-1) || waits != 3 {
			w.Errorf("%d reports of a stall, %d of a wait", stalled, waits)
		}
	})
}

func TestLinkThatBreaksEveryFewKilobytesFinishes(t *testing.T) {
	data := noise(1, 1<<20)
	inWorld(t, func(w *world) {
		h := w.host("one", data)
		h.always = breaks(4 << 10)
		w.fetch([]string{h.url}, data, nil)
		w.holds(data)
		if n := len(h.ranges()); n != 256 {
			w.Errorf("%d requests", n)
		}
	})
}

// A source that sends a byte now and then could keep a host busy for years, so it must send
// a kilobyte within the attempts that may fail.
func TestTooLittleProgressIsGivenUp(t *testing.T) {
	data := noise(1, 10_000)
	for name, c := range map[string]struct {
		always behaviour
		ends   bool
	}{
		"51 bytes in each attempt":  {breaks(MinProgress/MaxAttempts - 1), false},
		"128 bytes in each attempt": {breaks(MinProgress / 8), true},
		"a byte every 7 s":          {drips(7 * time.Second), false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				h := w.host("one", data)
				h.always = c.always
				err := w.fetcher().Fetch(w.Context(), []string{h.url}, w.dir, "p", wantOf(data), nil)
				if (err == nil) != c.ends || !c.ends && (len(h.ranges()) != MaxAttempts || !Transient(err)) {
					w.Errorf("%v after %d requests", err, len(h.ranges()))
				}
			})
		})
	}
}

// Otherwise a source could keep a host busy for ever.
func TestRepeatedBytesAreNoProgress(t *testing.T) {
	data := noise(1, 1<<20)
	inWorld(t, func(w *world) {
		n := 0
		h := w.host("one", data)
		h.always = func(h *host, rw http.ResponseWriter, r *http.Request) {
			n++
			rw.Header().Set("ETag", fmt.Sprintf(`"%d"`, n)) // a new tag each time
			http.ServeContent(&counted{ResponseWriter: rw, left: 500_000, end: func() { panic(http.ErrAbortHandler) }}, r, "", time.Time{}, bytes.NewReader(h.data))
		}
		err := w.fetcher().Fetch(w.Context(), []string{h.url}, w.dir, "p", wantOf(data), nil)
		if !Transient(err) || n > 2*MaxAttempts {
			w.Errorf("%v after %d requests", err, n)
		}
	})
}

func TestProgressIsReportedEverySecondUpTo100(t *testing.T) {
	data := noise(1, 1<<20)
	inWorld(t, func(w *world) {
		h := w.host("one", data, trickles(50_000, breaks(500_000)), trickles(50_000, serve))
		begun := time.Now()
		var at []time.Duration
		var reports []Progress
		w.fetch([]string{h.url}, data, func(p Progress) {
			at, reports = append(at, time.Since(begun)), append(reports, p)
		})
		if at[0] != 0 || reports[0] != (Progress{}) {
			w.Errorf("the first report came after %s: %+v", at[0], reports[0])
		}
		if last := reports[len(reports)-1]; last != (Progress{Percent: 100}) {
			w.Errorf("the last report is %+v", last)
		}
		for i := 1; i < len(reports); i++ {
			if at[i]-at[i-1] > 2*ReportEvery || reports[i].Percent < reports[i-1].Percent || reports[i].Percent > 100 {
				w.Errorf("report %d after %s: %+v follows %+v", i, at[i], reports[i], reports[i-1])
			}
			if p := reports[i]; p.Retry != "" && (p.Percent < 40 || !p.RetryAt.After(begun.Add(at[i]))) {
				w.Errorf("a wait is reported as %+v at %s", p, at[i])
			}
		}
		if n := len(reports); n < 20 || n > 30 {
			w.Errorf("%d reports in %s", n, at[len(at)-1])
		}
	})
}

func TestNoReportAfterFetchReturns(t *testing.T) {
	data := noise(1, 1<<20)
	inWorld(t, func(w *world) {
		h := w.host("one", data, stalls(1000))
		ctx, cancel := context.WithCancelCause(w.Context())
		enough := errors.New("enough")
		time.AfterFunc(10500*time.Millisecond, func() { cancel(enough) })
		ended := false
		begun := time.Now()
		err := w.fetcher().Fetch(ctx, []string{h.url}, w.dir, "p", wantOf(data), func(Progress) {
			if ended {
				t.Error("there was a report after the end")
			}
		})
		ended = true
		if !errors.Is(err, enough) || time.Since(begun) != 10500*time.Millisecond || !KeepsPart(err) {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		time.Sleep(time.Minute)
	})
}

// The rate is the mean of the bytes received in the window, whatever the pattern.
func TestRateIsTheMeanOfTheWindow(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		came := rapid.SliceOfN(rapid.Int64Range(0, 1<<20), 1, 60).Draw(r, "bytes in each second")
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		var w window
		w.reset(now)
		for i, n := range came {
			w.total += n
			now = now.Add(time.Second)
			var sum, seconds int64
			for j := max(0, i-int(RateWindow/time.Second)+1); j <= i; j++ {
				sum, seconds = sum+came[j], seconds+1
			}
			want := float64(sum) / float64(seconds)
			if got := w.rate(now); math.Abs(got-want) > 1e-6*(1+want) {
				r.Fatalf("after %d s: %v, want %v", i+1, got, want)
			}
		}
		if len(w.marks) > 10 {
			r.Fatalf("it keeps %d marks", len(w.marks))
		}
	})
}
