package download

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

func TestDownloadResumesAfterABrokenConnection(t *testing.T) {
	data := noise(1, 1<<20)
	inWorld(t, func(w *world) {
		h := w.host("one", data, breaks(300_000), breaks(300_000), breaks(300_000))
		w.fetch([]string{h.url}, data, nil)
		w.holds(data)
		if got := h.ranges(); !slices.Equal(got, []string{"", from(300_000), from(600_000), from(900_000)}) {
			w.Errorf("it asked for %q", got)
		}
		for i, r := range h.requests()[1:] {
			if r.Header.Get("If-Range") != h.tag {
				w.Errorf("request %d has If-Range %q", i+1, r.Header.Get("If-Range"))
			}
		}
	})
}

func TestDownloadResumesAfterARestart(t *testing.T) {
	data := noise(1, 1<<20)
	inWorld(t, func(w *world) {
		h := w.host("one", data, breaks(700_001))
		w.stopAfter(1, h, []string{h.url}, data)
		w.fetch([]string{h.url}, data, nil)
		w.holds(data)
		if got := h.ranges(); !slices.Equal(got, []string{"", from(700_001)}) {
			w.Errorf("it asked for %q", got)
		}
	})
}

func TestFinishedFileIsNotFetchedAgain(t *testing.T) {
	data := noise(1, 1<<20)
	inWorld(t, func(w *world) {
		h := w.host("one", data)
		for range 3 {
			w.fetch([]string{h.url}, data, nil)
		}
		w.holds(data)
		if got := h.ranges(); len(got) != 1 {
			w.Errorf("%d requests", len(got))
		}
		// Nor if the server is down.
		w.fetch([]string{"http://nobody/p"}, data, nil)
	})
}

func TestDamagedFinishedFileIsFetchedAgain(t *testing.T) {
	data := noise(1, 1<<20)
	for name, damage := range map[string]func(path string) error{
		"cut":   func(path string) error { return os.Truncate(path, 700_000) },
		"zeros": func(path string) error { return os.WriteFile(path, make([]byte, len(data)), 0o600) },
		"one byte": func(path string) error {
			b := bytes.Clone(data)
			b[500_000] ^= 1
			return os.WriteFile(path, b, 0o600)
		},
		"longer": func(path string) error { return os.WriteFile(path, append(bytes.Clone(data), 0), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				h := w.host("one", data)
				w.fetch([]string{h.url}, data, nil)
				if err := damage(filepath.Join(w.dir, "p")); err != nil {
					w.Fatal(err)
				}
				w.fetch([]string{h.url}, data, nil)
				w.holds(data)
				if got := h.ranges(); !slices.Equal(got, []string{"", ""}) {
					w.Errorf("it asked for %q", got)
				}
			})
		})
	}
}

func TestReplacedFileStartsOver(t *testing.T) {
	old, data := noise(1, 1<<20), noise(2, 1<<20)
	inWorld(t, func(w *world) {
		h := w.host("one", old, breaks(500_000))
		again := func(p Progress) {
			if p.Retry != "" {
				h.publish(data, `"2"`)
			}
		}
		w.fetch([]string{h.url}, data, again)
		w.holds(data)
		if got := h.ranges(); !slices.Equal(got, []string{"", from(500_000)}) {
			w.Errorf("it asked for %q", got)
		}
	})
}

func TestFileReplacedBetweenTwoProcessesStartsOver(t *testing.T) {
	old, data := noise(1, 1<<20), noise(2, 1<<20)
	inWorld(t, func(w *world) {
		h := w.host("one", old, breaks(950_000))
		w.stopAfter(1, h, []string{h.url}, data)
		h.publish(data, `"2"`)
		w.fetch([]string{h.url}, data, nil)
		w.holds(data)
	})
}

// Some servers answer a range although the file was replaced.
func TestRangeWithAnotherTagStartsOver(t *testing.T) {
	old, data := noise(1, 1<<20), noise(2, 1<<20)
	inWorld(t, func(w *world) {
		h := w.host("one", old, breaks(500_000))
		h.always = without(serve, "If-Range")
		w.fetch([]string{h.url}, data, func(p Progress) {
			if p.Retry != "" {
				h.publish(data, `"2"`)
			}
		})
		w.holds(data)
	})
}

func TestServerWithoutTagsIsResumed(t *testing.T) {
	data := noise(1, 1<<20)
	for _, tag := range []string{"", `W/"weak"`} {
		inWorld(t, func(w *world) {
			h := w.host("one", data, breaks(500_000))
			h.tag = tag
			w.fetch([]string{h.url}, data, nil)
			w.holds(data)
			if got := h.ranges(); got[1] != from(500_000) || h.requests()[1].Header.Get("If-Range") != "" {
				w.Errorf("it asked for %q, If-Range %q", got, h.requests()[1].Header.Get("If-Range"))
			}
		})
	}
}

// A server that ignores ranges sends the file from its first byte each time. The part
// stays, since the next connection may break earlier than the last.
func TestServerThatIgnoresRangesKeepsThePart(t *testing.T) {
	data := noise(1, 1<<20)
	inWorld(t, func(w *world) {
		ignores := func(then behaviour) behaviour { return without(then, "Range") }
		h := w.host("one", data, breaks(800_000), ignores(breaks(100_000)), ignores(breaks(900_000)))
		var percents []float64
		w.fetch([]string{h.url}, data, func(p Progress) {
			if p.Retry != "" {
				percents = append(percents, p.Percent)
			}
		})
		w.holds(data)
		if len(percents) != 3 || percents[1] != percents[0] || percents[2] < percents[1] {
			w.Errorf("it was at %v %%", percents)
		}
		if got := h.ranges()[3]; got != from(900_000) {
			w.Errorf("in the end it asked for %q", got)
		}
	})
}

func TestWrongContentRangeIsRefused(t *testing.T) {
	data := noise(1, 1<<20)
	for name, wrong := range map[string]string{
		"another start": "bytes 400000-1048575/1048576", "none": "", "no numbers": "bytes x-y/z",
		"before itself": "bytes 500000-1048575/1000", "another unit": "lines 500000-1048575/1048576",
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				h := w.host("one", data, breaks(500_000))
				h.always = func(h *host, rw http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Range") == "" {
						serve(h, rw, r)
						return
					}
					rw.Header().Set("ETag", h.tag)
					rw.Header().Set("Content-Range", wrong)
					rw.WriteHeader(http.StatusPartialContent)
					_, _ = rw.Write(data[400_000:])
				}
				w.fetch([]string{h.url}, data, nil)
				w.holds(data)
				if got := h.ranges(); !slices.Equal(got, []string{"", from(500_000), ""}) {
					w.Errorf("it asked for %q", got)
				}
			})
		})
	}
}

func TestCompletePartIsOnlyCommitted(t *testing.T) {
	data := noise(1, 1<<20)
	t.Run("without a request", func(t *testing.T) {
		inWorld(t, func(w *world) {
			h := w.host("one", data)
			w.leavePart(checkpoint{Digest: wantOf(data).SHA512, URL: h.url, Tag: h.tag}, data)
			w.fetch([]string{h.url}, data, nil)
			w.holds(data)
			if got := h.ranges(); len(got) != 0 {
				w.Errorf("it asked for %q", got)
			}
		})
	})
	t.Run("416 with another size: the source is refused", func(t *testing.T) {
		inWorld(t, func(w *world) {
			h := w.host("one", data, breaks(500_000), answers(http.StatusRequestedRangeNotSatisfiable, "Content-Range", "bytes */400000"))
			err := w.fetcher().Fetch(w.Context(), []string{h.url}, w.dir, "p", wantOf(data), nil)
			if !errors.Is(err, ErrContent) || Transient(err) || len(h.ranges()) != 2 {
				w.Errorf("%v after %d requests", err, len(h.ranges()))
			}
		})
	})
	t.Run("416 without a size: the whole file is requested", func(t *testing.T) {
		inWorld(t, func(w *world) {
			h := w.host("one", data, breaks(500_000), answers(http.StatusRequestedRangeNotSatisfiable))
			w.fetch([]string{h.url}, data, nil)
			w.holds(data)
		})
	})
}

// leavePart writes a part and a checkpoint as an earlier process does, and fills in n.
func (w *world) leavePart(n checkpoint, data []byte) {
	w.Helper()
	path := filepath.Join(w.dir, "p")
	if err := os.WriteFile(path+partSuffix, data, 0o600); err != nil {
		w.Fatal(err)
	}
	n.Length, n.SHA512 = int64(len(data)), wantOf(data).SHA512
	if err := disk.WriteRecord(disk.OS{}, "test", path+checkpointSuffix, checkpointKind, checkpointVersion, n); err != nil {
		w.Fatal(err)
	}
}

func TestPartThatDiffersFromItsCheckpointStartsOver(t *testing.T) {
	data := noise(1, 1<<20)
	part, checkpoint := "p"+partSuffix, "p"+checkpointSuffix
	for name, damage := range map[string]func(dir string) error{
		"the part is shorter": func(dir string) error { return os.Truncate(filepath.Join(dir, part), 100_000) },
		"the part is zeros": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, part), make([]byte, 700_000), 0o600)
		},
		"the part is gone":          func(dir string) error { return os.Remove(filepath.Join(dir, part)) },
		"the checkpoint is gone":    func(dir string) error { return os.Remove(filepath.Join(dir, checkpoint)) },
		"the checkpoint is damaged": func(dir string) error { return os.Truncate(filepath.Join(dir, checkpoint), 50) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				h := w.host("one", data, breaks(700_000))
				w.stopAfter(1, h, []string{h.url}, data)
				if err := damage(w.dir); err != nil {
					w.Fatal(err)
				}
				w.fetch([]string{h.url}, data, nil)
				w.holds(data)
				if got := h.ranges(); !slices.Equal(got, []string{"", ""}) {
					w.Errorf("it asked for %q", got)
				}
			})
		})
	}
}

// A power cut may leave anything behind the bytes that were saved.
func TestBytesBehindTheCheckpointAreDiscarded(t *testing.T) {
	data := noise(1, 1<<20)
	inWorld(t, func(w *world) {
		h := w.host("one", data, breaks(700_000))
		w.stopAfter(1, h, []string{h.url}, data)
		f, err := os.OpenFile(filepath.Join(w.dir, "p"+partSuffix), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			w.Fatal(err)
		}
		if _, err := f.Write(make([]byte, 100_000)); err != nil {
			w.Fatal(err)
		}
		f.Close()
		w.fetch([]string{h.url}, data, nil)
		w.holds(data)
		if got := h.ranges(); got[1] != from(700_000) {
			w.Errorf("it asked for %q", got)
		}
	})
}

func TestPartOfAnotherFileStartsOver(t *testing.T) {
	data, other := noise(1, 1<<20), noise(2, 1<<20)
	inWorld(t, func(w *world) {
		h := w.host("one", other, breaks(700_000))
		w.stopAfter(1, h, []string{h.url}, other)
		h.publish(data, `"2"`)
		w.fetch([]string{h.url}, data, nil)
		w.holds(data)
		if got := h.ranges(); got[1] != "" {
			w.Errorf("it asked for %q", got)
		}
	})
}

func TestPartResumesFromAnySource(t *testing.T) {
	data := noise(1, 1<<20)
	t.Run("in one process", func(t *testing.T) {
		inWorld(t, func(w *world) {
			one, two := w.host("one", data, breaks(300_000)), w.host("two", data)
			one.always, two.tag = answers(http.StatusServiceUnavailable), `"another"`
			w.fetch([]string{one.url, two.url}, data, nil)
			w.holds(data)
			if got := two.ranges(); !slices.Equal(got, []string{from(300_000)}) || two.requests()[0].Header.Get("If-Range") != "" {
				w.Errorf("it asked the other source for %q", got)
			}
		})
	})
	t.Run("in the next", func(t *testing.T) {
		inWorld(t, func(w *world) {
			one, two := w.host("one", data, breaks(300_000)), w.host("two", data)
			w.stopAfter(1, one, []string{one.url}, data)
			w.fetch([]string{two.url}, data, nil)
			w.holds(data)
			if got := two.ranges(); !slices.Equal(got, []string{from(300_000)}) {
				w.Errorf("it asked the other source for %q", got)
			}
		})
	})
}

// Two sources that differ must not replace each other's bytes for ever.
func TestDifferingSourcesAreNotMixedAgain(t *testing.T) {
	data, evil := noise(1, 1<<20), noise(2, 1<<20)
	for name, always := range map[string]bool{"once": false, "for ever": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				one, two := w.host("one", evil), w.host("two", data)
				if always {
					two.plan = []behaviour{nil, answers(http.StatusServiceUnavailable)}
				}
				n := 0
				one.always = func(h *host, rw http.ResponseWriter, r *http.Request) {
					n++
					switch {
					case n%2 == 0: // now the second source continues the file of the first
						answers(http.StatusServiceUnavailable)(h, rw, r)
					case n == 1 || always:
						breaks(300_000)(h, rw, r)
					default:
						serve(h, rw, r)
					}
				}
				w.fetch([]string{one.url, two.url}, data, nil)
				w.holds(data)
				if total := len(one.ranges()) + len(two.ranges()); total > 7 {
					w.Errorf("it took %d requests: %q, %q", total, one.ranges(), two.ranges())
				}
			})
		})
	}
}

// The part of an earlier process may be wrong. The source that sends the rest must not be
// blamed, and the file may arrive in small pieces after that.
func TestWrongPartIsNotBlamedOnTheSource(t *testing.T) {
	data, evil := noise(1, 200_000), noise(2, 200_000)
	for _, had := range []int{100_000, 200_000} {
		for name, always := range map[string]behaviour{"a sound link": serve, "one that breaks": breaks(4 << 10)} {
			t.Run(fmt.Sprintf("%d bytes of it, %s", had, name), func(t *testing.T) {
				inWorld(t, func(w *world) {
					h := w.host("one", data)
					h.always = always
					w.leavePart(checkpoint{Digest: wantOf(data).SHA512, URL: h.url, Tag: h.tag}, evil[:had])
					w.fetch([]string{h.url}, data, nil)
					w.holds(data)
				})
			})
		}
	}
}
