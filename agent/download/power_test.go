package download

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/testing/kit/require"
)

const (
	testDir   = "/data/downloads"
	testSize  = 100_000
	testEvery = 30_000 // between two checkpoints
	testRead  = 10_000 // more than one read of a pipe returns
)

// onMemDisk downloads over HTTP or from a folder onto d.
func (w *world) onMemDisk(d *memDisk, urls []string, data []byte) error {
	f := w.fetcher()
	f.Disk, f.testOnlyCheckpointEvery = d, testEvery
	return f.Fetch(w.Context(), urls, testDir, "p", wantOf(data), nil)
}

// converges makes one more fetch without faults and returns what is wrong with the disk.
func (w *world) converges(d *memDisk, urls []string, data []byte) error {
	if err := w.onMemDisk(d, urls, data); err != nil {
		return fmt.Errorf("the next fetch fails: %w", err)
	}
	if i := d.names[testDir+"/p"]; i == nil || !bytes.Equal(i.data, data) || !bytes.Equal(i.synced, data) || d.durable[testDir+"/p"] != i {
		return errors.New("the file is not complete and durable")
	}
	if left := d.list(testDir); !slices.Equal(left, []string{"p"}) {
		return fmt.Errorf("the folder holds %q", left)
	}
	if err := Discard(d, testDir, "p"); err != nil || len(d.list(testDir)) > 0 {
		return fmt.Errorf("discarding leaves %q, %w", d.list(testDir), err)
	}
	return nil
}

// eachSource runs test with the file on a server and in a folder.
func eachSource(t *testing.T, data []byte, test func(w *world, url string)) {
	for _, kind := range []string{"http", "file"} {
		t.Run(kind, func(t *testing.T) {
			inWorld(t, func(w *world) {
				h := w.host("one", data)
				url := h.url
				if kind == "file" {
					url = "file:///drop/p"
				}
				test(w, url)
			})
		})
	}
}

func (w *world) newMemDisk(data []byte) *memDisk {
	d := newMemDisk(w.T)
	d.folders["/data"] = true
	d.put("/drop/p", data)
	return d
}

func TestFetchRecoversFromAFailedDiskCall(t *testing.T) {
	data := noise(1, testSize)
	eachSource(t, data, func(w *world, url string) {
		for n := 1; ; n++ {
			d := w.newMemDisk(data)
			d.failAt = n
			err := w.onMemDisk(d, []string{url}, data)
			if len(d.calls) < n {
				if n < 50 {
					w.Errorf("only %d calls were made: does every call use the disk?", n)
				}
				w.Logf("%d calls were failed", n-1)
				return
			}
			if call := d.calls[n-1]; err != nil && !strings.Contains(err.Error(), "input/output error") {
				w.Errorf("call %d (%s) failed: the error is %v", n, call, err)
			}
			d.failAt = 0
			if err := w.converges(d, []string{url}, data); err != nil {
				w.Fatalf("call %d (%s) failed: %v", n, d.calls[n-1], err)
			}
		}
	})
}

// crash runs a download that is killed at call n. over reports whether it made fewer calls,
// so that the crash comes after its end.
func (w *world) crash(d *memDisk, n int, urls []string, data []byte) (over bool) {
	d.calls, d.failAt, d.dead = nil, n, true
	_ = w.onMemDisk(d, urls, data)
	over = len(d.calls) < n
	d.failAt, d.dead = 0, false
	return over
}

// crashEverywhere crashes at each call under each model and returns the number of calls. It
// calls report with each error, and stops when report returns false. It is an error if the
// next fetch does not give the file, or fetches too much of it again.
func (w *world) crashEverywhere(h *host, data []byte, skip func(string) bool, report func(string) bool) int {
	for n := 1; ; n++ {
		for _, model := range models {
			d := w.newMemDisk(data)
			d.skip = skip
			over := w.crash(d, n, []string{h.url}, data)
			where := "after the end"
			if !over {
				where = fmt.Sprintf("call %d (%s)", n, d.calls[n-1])
			}
			had, before := d.part(testDir), len(h.requests())
			err := w.converges(d.after(model), []string{h.url}, data)
			most := len(data) - had + testEvery + testRead // a checkpoint may have been incomplete
			if over {
				most = 0
			}
			if fetched := h.sentSince(before); err == nil && fetched > most {
				err = fmt.Errorf("%d bytes were there, %d were fetched again", had, fetched)
			}
			if err != nil && !report(fmt.Sprintf("%s, %s: %v", where, model, err)) {
				return n
			}
			if over && model == models[len(models)-1] {
				return n - 1
			}
		}
	}
}

// sentSince returns how many bytes were requested from the nth request on.
func (h *host) sentSince(n int) int {
	sum := 0
	for _, asked := range h.ranges()[n:] {
		var start int
		_, _ = fmt.Sscanf(asked, "bytes=%d-", &start)
		sum += len(h.data) - start
	}
	return sum
}

func TestPowerCutAtAnyDiskCallLosesLittle(t *testing.T) {
	require.Time(t, "cuts the power at every call")
	data := noise(1, testSize)
	inWorld(t, func(w *world) {
		h := w.host("one", data)
		calls := w.crashEverywhere(h, data, nil, func(bad string) bool { w.Error(bad); return true })
		w.Logf("%d calls with %d models each", calls, len(models))
	})
}

// The model of a power cut must find a missing sync.
func TestPowerCutModelFindsAMissingSync(t *testing.T) {
	data := noise(1, testSize)
	for _, missing := range []string{"sync p.part", "syncdir downloads", "sync p.part.state.new"} {
		t.Run(missing, func(t *testing.T) {
			inWorld(t, func(w *world) {
				h := w.host("one", data)
				skip := func(call string) bool { return call == missing }
				found := ""
				w.crashEverywhere(h, data, skip, func(bad string) bool { found = bad; return false })
				if found == "" {
					w.Fatal("nothing went wrong without it")
				}
				w.Log(found)
			})
		})
	}
}

func TestRepeatedPowerCuts(t *testing.T) {
	data := noise(1, testSize)
	rapid.Check(t, func(r *rapid.T) {
		type cut struct {
			call  int
			model string
		}
		cuts := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) cut {
			return cut{rapid.IntRange(1, 120).Draw(r, "call"), rapid.SampledFrom(models).Draw(r, "model")}
		}), 1, 6).Draw(r, "cuts")
		breakAt := rapid.IntRange(0, len(data)).Draw(r, "the link breaks at")
		var err error
		inWorld(t, func(w *world) {
			h := w.host("one", data, breaks(breakAt))
			d := w.newMemDisk(data)
			for _, c := range cuts {
				w.crash(d, c.call, []string{h.url}, data)
				d = d.after(c.model)
			}
			err = w.converges(d, []string{h.url}, data)
		})
		if err != nil {
			r.Fatal(err)
		}
	})
}
