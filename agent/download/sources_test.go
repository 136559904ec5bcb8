package download

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/packaging/host/disk"
)

func TestNextSourceIsTriedAtOnce(t *testing.T) {
	data := noise(1, 100_000)
	for name, first := range map[string]behaviour{
		"not found": answers(404), "gone": answers(410), "unauthorized": answers(401), "forbidden": answers(403),
		"busy": answers(503), "too many": answers(429, "Retry-After", "100"), "breaks at once": breaks(0),
		"refuses the connection": nil,
		"no TLS there":           nil,
		"no such scheme":         nil,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				url := "http://nobody/p"
				switch {
				case first != nil:
					url = w.host("one", data, first).url
				case name == "no TLS there":
					url = strings.Replace(w.host("one", data).url, "http:", "https:", 1)
				case name == "no such scheme":
					url = "ftp://one/p"
				}
				two := w.host("two", data)
				begun := time.Now()
				w.fetch([]string{url, two.url}, data, nil)
				w.holds(data)
				if took := time.Since(begun); took != 0 {
					w.Errorf("it waited %s", took)
				}
			})
		})
	}
}

func TestSourceWithOtherBytesIsGivenUp(t *testing.T) {
	data := noise(1, 100_000)
	for name, wrong := range map[string][]byte{
		"same size": noise(2, 100_000), "longer": append(bytes.Clone(data), 0), "shorter": data[:99_999], "empty": nil,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				one, two := w.host("one", wrong), w.host("two", data)
				w.fetch([]string{one.url, two.url}, data, nil)
				w.holds(data)
				if len(one.ranges()) != 1 {
					w.Errorf("the wrong source was asked %d times", len(one.ranges()))
				}
			})
		})
	}
}

// Chunked bodies have no length.
func TestBodyOfUnknownLengthMustHaveTheWantedSize(t *testing.T) {
	data := noise(1, 100_000)
	chunked := func(h *host, w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		_, _ = w.Write(h.data)
	}
	inWorld(t, func(w *world) {
		h := w.host("one", data)
		h.always = chunked
		w.fetch([]string{h.url}, data, nil)
		w.holds(data)
	})
	inWorld(t, func(w *world) {
		long, short, good := w.host("long", append(bytes.Clone(data), 1)), w.host("short", data[:50_000]), w.host("good", data)
		long.always, short.always = chunked, chunked
		w.fetch([]string{long.url, short.url, good.url}, data, nil)
		w.holds(data)
		err := w.fetcher().Fetch(w.Context(), []string{long.url}, w.dir, "q", wantOf(data), nil)
		if !errors.Is(err, ErrContent) || Transient(err) || !strings.Contains(err.Error(), "more than 100000 bytes") {
			w.Errorf("too long: %v", err)
		}
	})
}

func TestLastingRefusalIsNotRetried(t *testing.T) {
	data := noise(1, 100_000)
	inWorld(t, func(w *world) {
		gone := w.host("gone", data)
		gone.always = answers(404)
		busy := w.host("busy", data, answers(503), answers(503), answers(503))
		w.fetch([]string{gone.url, busy.url}, data, nil)
		w.holds(data)
		if len(gone.ranges()) != 1 || len(busy.ranges()) != 4 {
			w.Errorf("%d and %d requests", len(gone.ranges()), len(busy.ranges()))
		}
	})
}

// A source that sends bytes, however few at a time, is asked again before others.
func TestSourceThatSendsBytesIsTriedFirst(t *testing.T) {
	data := noise(1, 100_000)
	inWorld(t, func(w *world) {
		first, second := w.host("first", data), w.host("second", data)
		first.always, second.always = answers(503), breaks(4000)
		w.fetch([]string{first.url, second.url}, data, nil)
		w.holds(data)
		if len(first.ranges()) != 1 || len(second.ranges()) != 25 {
			w.Errorf("%d and %d requests", len(first.ranges()), len(second.ranges()))
		}
	})
}

func TestErrorsThatEndADownload(t *testing.T) {
	data := noise(1, 1000)
	one := func(b behaviour) map[string]behaviour { return map[string]behaviour{"one": b} }
	for _, c := range []struct {
		name      string
		hosts     map[string]behaviour // sources in the order of their names
		urls      []string             // replace those of hosts
		disk      disk.Disk
		want      Want
		is        error
		says      []string
		transient bool
		kept      bool
	}{
		{name: "not there", hosts: one(answers(404)), is: ErrNotFound, says: []string{"http://one/p: not found", "`muster package push`"}},
		{name: "withdrawn", hosts: one(answers(410)), is: ErrNotFound, says: []string{"`muster package push`"}},
		{name: "no rights", hosts: one(answers(403)), says: []string{"403", "enrol it again"}},
		{name: "no credentials", hosts: one(answers(401)), says: []string{"401", "without credentials"}},
		{name: "a proxy", hosts: one(answers(407)), says: []string{"407", "network.proxy"}},
		{name: "odd", hosts: one(answers(418)), says: []string{"418", "check the URL"}},
		{name: "another place", hosts: one(answers(302, "Location", "http://elsewhere/")), says: []string{"redirects to http://elsewhere/", "allow_http"}},
		{name: "other bytes", hosts: one(serve), want: wantOf(noise(2, 1000)), says: []string{"another content", "replace the file"}},
		{name: "another size", hosts: one(serve), want: wantOf(data[1:]), says: []string{"has another content than expected (1000 bytes, want 999)", "replace the file"}},
		{
			name: "nowhere", hosts: map[string]behaviour{"one": answers(404), "two": answers(403)},
			is: ErrNotFound, says: []string{"no source gives the file: http://one/p: not found", "; http://two/p: server answered 403"},
		},
		{name: "no source", urls: []string{}, says: []string{"source_uri"}},
		{name: "no URL", urls: []string{"http://user:secret@[x/"}, says: []string{"http://host/path"}},
		{name: "no size", want: Want{SHA512: wantOf(data).SHA512}, says: []string{"want.size: is 0 bytes, want 1 to 2147483648"}},
		{name: "too large", want: Want{Size: MaxSize + 1, SHA512: wantOf(data).SHA512}, says: []string{"want.size: is 2147483649 bytes"}},
		{name: "no digest", want: Want{Size: 1000}, says: []string{`want.sha512: is ""`, "128"}},
		{name: "not a digest", want: Want{Size: 1000, SHA512: "abc"}, says: []string{`want.sha512: is "abc"`}},
		{name: "cannot write", hosts: one(serve), disk: broken{}, says: []string{"input/output error", "check the disk"}},
		{name: "no space", hosts: one(serve), disk: full{}, is: disk.ErrNoSpace, says: []string{"not enough disk space", "free some"}, transient: true},
		{name: "no space left", hosts: one(serve), disk: broken{full: true}, is: syscall.ENOSPC, says: []string{"free some"}, transient: true},
		{name: "busy for ever", hosts: one(answers(503)), says: []string{"gave up after 20 attempts", "http://one/p: server answered 503"}, transient: true, kept: true},
		{name: "no server", urls: []string{"http://nobody/p"}, is: syscall.ECONNREFUSED, says: []string{"gave up after 20 attempts", "http://nobody/p: dial tcp"}, transient: true, kept: true},
		{
			name: "busy here, not there", hosts: map[string]behaviour{"one": answers(404), "two": answers(503)},
			is: ErrNotFound, says: []string{"http://one/p: not found", "; http://two/p: server answered 503"}, transient: true, kept: true,
		},
		{name: "a byte at a time", hosts: one(without(breaks(100), "Range")), says: []string{"gave up", "ended after 100 of 1000 bytes"}, transient: true, kept: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
				for name, do := range c.hosts {
					h := w.host(name, data)
					h.always = do
					c.urls = append(c.urls, h.url)
				}
				slices.Sort(c.urls)
				if c.want == (Want{}) {
					c.want = wantOf(data)
				}
				f := w.fetcher()
				if c.disk != nil {
					f.Disk = c.disk
				}
				err := f.Fetch(w.Context(), c.urls, w.dir, "p", c.want, nil)
				if err == nil || c.is != nil && !errors.Is(err, c.is) {
					w.Fatalf("error %v, want %v", err, c.is)
				}
				for _, says := range c.says {
					if !strings.Contains(err.Error(), says) {
						w.Errorf("error %q does not say %q", err, says)
					}
				}
				if strings.Contains(err.Error(), "secret") {
					w.Errorf("error %q contains a secret", err)
				}
				if Transient(err) != c.transient || KeepsPart(err) != c.kept {
					w.Errorf("%q: transient %t, kept %t", err, Transient(err), KeepsPart(err))
				}
				if left := names(w.T, w.dir); !c.kept && len(left) > 0 && c.disk == nil {
					w.Errorf("left behind: %q", left)
				}
			})
		})
	}
}

// full is a disk with too little space, broken one that cannot be written.
type full struct{ disk.OS }

func (full) Free(string, string) (int64, error) { return 1000, nil }

type broken struct {
	disk.OS
	full bool
}

func (b broken) OpenFile(op, path string, flag int, perm os.FileMode) (disk.File, error) {
	f, err := b.OS.OpenFile(op, path, flag, perm)
	return brokenFile{f, b.full}, err
}

type brokenFile struct {
	disk.File
	full bool
}

func (b brokenFile) Write([]byte) (int, error) {
	if b.full {
		return 0, syscall.ENOSPC
	}
	return 0, syscall.EIO
}

func TestSecretsInURLsAreNotShown(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.host("one", nil)
		h.always = answers(503)
		err := w.fetcher().Fetch(w.Context(), []string{"http://user:hunter2@one/p?signature=hunter2"}, w.dir, "p", wantOf([]byte("data")), func(p Progress) {
			if strings.Contains(p.Retry, "hunter2") {
				t.Errorf("a report contains it: %q", p.Retry)
			}
		})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error is %v", err)
		}
		if r := h.requests()[0]; r.URL.RawQuery != "signature=hunter2" {
			t.Errorf("asked for %s", r.URL)
		}
	})
}

func TestCredentialsAreSentOnlyToTheOwnServer(t *testing.T) {
	data := noise(1, 10)
	inWorld(t, func(w *world) {
		own, other := w.host("own", data), w.host("other", data)
		f := w.fetcher()
		f.Source.Own, f.Source.Origin = w.client, "http://OWN:80/"
		f.Source.Authorize = func(r *http.Request) { r.Header.Set("Authorization", "ApiKey secret") }
		for _, h := range []*host{own, other} {
			if err := f.Find(w.Context(), []string{h.url}); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Small(w.Context(), []string{h.url}, maxSmall); err != nil {
				t.Fatal(err)
			}
			if err := f.Fetch(w.Context(), []string{h.url}, w.dir, h.url[7:10], wantOf(data), nil); err != nil {
				t.Fatal(err)
			}
			if n := len(h.requests()); n != 3 {
				t.Errorf("%s was asked %d times", h.url, n)
			}
			for _, r := range h.requests() {
				if sent := r.Header.Get("Authorization") != ""; sent != (h == own) {
					t.Errorf("%s to %s has Authorization %q", r.Method, h.url, r.Header.Get("Authorization"))
				}
				if r.Header.Get("Accept-Encoding") != "identity" {
					t.Errorf("%s accepts %q", r.Method, r.Header.Get("Accept-Encoding"))
				}
			}
		}
	})
}

// maxSmall is the limit of a small file in the tests.
const maxSmall = 64 << 10

func TestSmall(t *testing.T) {
	inWorld(t, func(w *world) {
		missing, busy, big := w.host("missing", nil), w.host("busy", []byte("signature"), answers(503), breaks(4)), w.host("big", make([]byte, maxSmall+1))
		missing.always = answers(404)
		data, err := w.fetcher().Small(w.Context(), []string{missing.url, busy.url}, maxSmall)
		if err != nil || string(data) != "signature" {
			t.Errorf("got %q, %v", data, err)
		}
		if _, err = w.fetcher().Small(w.Context(), []string{big.url}, maxSmall); err == nil || Transient(err) || !strings.Contains(err.Error(), "more than 65536 bytes") {
			t.Errorf("too big: %v", err)
		}
		if _, err = w.fetcher().Small(w.Context(), []string{missing.url}, maxSmall); !errors.Is(err, ErrNotFound) || Transient(err) {
			t.Errorf("missing: %v", err)
		}
		busy.always = stalls(3)
		begun := time.Now()
		if _, err = w.fetcher().Small(w.Context(), []string{busy.url}, maxSmall); err == nil || !Transient(err) || time.Since(begun) < MaxAttempts*StallTimeout {
			t.Errorf("stalled: %v after %s", err, time.Since(begun))
		}
	})
}

func TestFind(t *testing.T) {
	data := noise(1, 123_456)
	onlyGet := func(h *host, w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		serve(h, w, r)
	}
	for _, c := range []struct {
		name string
		do   behaviour
	}{
		{"HEAD", serve},
		{"no HEAD", onlyGet},
		{"neither HEAD nor ranges", without(onlyGet, "Range")},
		{"a signed URL", func(h *host, w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			serve(h, w, r)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				missing, h := w.host("missing", nil), w.host("one", data, answers(503))
				missing.always, h.always = answers(404), c.do
				if err := w.fetcher().Find(w.Context(), []string{missing.url, h.url}); err != nil {
					t.Error(err)
				}
				if err := w.fetcher().Find(w.Context(), []string{missing.url}); !errors.Is(err, ErrNotFound) {
					t.Errorf("missing: %v", err)
				}
			})
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	data := noise(1, 1000)
	for _, c := range []struct {
		header string
		wait   time.Duration
	}{
		{"120", 2 * time.Minute},
		{"31536000", backoff.MaxRetryAfter}, // a year
		{"Fri, 31 Dec 2100 23:59:59 GMT", backoff.MaxRetryAfter},
		{"soon", 0},
	} {
		t.Run(c.header, func(t *testing.T) {
			inWorld(t, func(w *world) {
				h := w.host("one", data, answers(503, "Retry-After", c.header), answers(429, "Retry-After", c.header))
				begun := time.Now()
				var at []time.Time
				w.fetch([]string{h.url}, data, func(p Progress) {
					if p.Retry != "" {
						at = append(at, p.RetryAt)
					} else if len(at) > 0 && time.Now().Before(at[len(at)-1]) {
						w.Errorf("%+v has no reason for the wait", p)
					}
				})
				w.holds(data)
				// The jitter is added, so that agents do not return together.
				if took := time.Since(begun); took < 2*c.wait || took > 2*c.wait+3*backoff.DefaultBase {
					w.Errorf("it waited %s", took)
				}
				if len(at) != 2 || at[0].Before(begun.Add(c.wait)) {
					w.Errorf("it reported to wait until %v", at)
				}
			})
		})
	}
}

// A source with a Retry-After does not delay the others, and is not asked earlier because
// of them.
func TestRetryAfterDelaysOnlyItsSource(t *testing.T) {
	data := noise(1, 1000)
	inWorld(t, func(w *world) {
		patient := w.host("patient", data, answers(503, "Retry-After", "600"))
		busy := w.host("busy", data)
		busy.always = answers(503)
		begun := time.Now()
		w.fetch([]string{patient.url, busy.url}, data, nil)
		w.holds(data)
		if took := time.Since(begun); took < 10*time.Minute || took > 12*time.Minute || len(patient.ranges()) != 2 || len(busy.ranges()) < 10 {
			w.Errorf("it took %s, with %d and %d requests", took, len(patient.ranges()), len(busy.ranges()))
		}
	})
}
