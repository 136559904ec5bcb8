package download

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever servers do, a download ends with the file or with an error.
func TestMisbehavingServersNeverGiveWrongBytes(t *testing.T) {
	data, evil := noise(1, 40_000), noise(2, 40_000)
	chunked := func(h *host, w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		_, _ = w.Write(h.data)
	}
	shifted := func(h *host, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", "bytes 7-39999/40000")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(h.data[7:])
	}
	misbehaviours := []func(n int) behaviour{
		func(int) behaviour { return serve }, breaks, stalls, breaks,
		func(n int) behaviour { return without(breaks(n), "Range") },
		func(n int) behaviour { return without(breaks(n), "If-Range") },
		func(int) behaviour { return chunked }, func(int) behaviour { return shifted },
		func(int) behaviour { return answers(503, "Retry-After", "7") }, func(int) behaviour { return answers(404) },
		func(int) behaviour { return answers(416) }, func(int) behaviour { return answers(416, "Content-Range", "bytes */123") },
		func(int) behaviour { return answers(206) }, func(int) behaviour { return answers(204) },
		func(n int) behaviour {
			return func(h *host, w http.ResponseWriter, r *http.Request) {
				h.publish(h.data, fmt.Sprintf(`"%d"`, n))
				breaks(n)(h, w, r)
			}
		},
	}
	plan := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) behaviour {
		return rapid.SampledFrom(misbehaviours).Draw(r, "does")(rapid.IntRange(0, len(data)).Draw(r, "n"))
	}), 0, 8)
	rapid.Check(t, func(r *rapid.T) {
		type server struct {
			evil bool
			tag  string
			plan []behaviour
		}
		servers := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) server {
			return server{rapid.Bool().Draw(r, "evil"), rapid.SampledFrom([]string{"", `"1"`, `"2"`, `W/"3"`}).Draw(r, "tag"), plan.Draw(r, "plan")}
		}), 1, 3).Draw(r, "servers")
		var err error
		var got []byte
		inWorld(t, func(w *world) {
			var urls []string
			for i, s := range servers {
				content := data
				if s.evil {
					content = evil
				}
				h := w.host(fmt.Sprintf("s%d", i), content, s.plan...)
				h.tag = s.tag
				urls = append(urls, h.url)
			}
			last := 0.0
			if err = w.fetcher().Fetch(w.Context(), urls, w.dir, "p", wantOf(data), func(p Progress) { last = p.Percent }); err == nil {
				got, err = os.ReadFile(filepath.Join(w.dir, "p"))
				if last != 100 {
					err = fmt.Errorf("the last report is %v %%", last)
				}
				return
			}
			if _, serr := os.Lstat(filepath.Join(w.dir, "p")); serr == nil {
				err = errors.New("it failed and left a file")
				return
			}
			var e *ended
			if !errors.As(err, &e) {
				return
			}
			err = nil // an error is a valid end too
		})
		if err != nil {
			r.Fatal(err)
		}
		if got != nil && !bytes.Equal(got, data) {
			r.Fatalf("it ended with %d other bytes", len(got))
		}
	})
}

func TestSourcesAreTriedInOrder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		sources := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) *source {
			return &source{
				gone: rapid.Bool().Draw(r, "gone"), failures: rapid.IntRange(0, MaxAttempts).Draw(r, "failures"),
				notBefore: now.Add(time.Duration(rapid.IntRange(-5, 5).Draw(r, "not before")) * time.Second),
			}
		}), 1, 6).Draw(r, "sources")
		first := sources[rapid.IntRange(0, len(sources)-1).Draw(r, "first")]
		got := order(sources, first, now)
		at := -1
		for i, s := range got {
			if s.gone || s.failures >= MaxAttempts || now.Before(s.notBefore) {
				r.Fatalf("source %d is asked out of turn", slices.Index(sources, s))
			}
			if s == first && i != 0 {
				r.Fatal("the first one is not the first")
			}
			if s != first {
				if next := slices.Index(sources, s); next <= at {
					r.Fatalf("source %d comes after %d", next, at)
				} else {
					at = next
				}
			}
		}
		usable := slices.DeleteFunc(slices.Clone(sources), func(s *source) bool { return !s.worthAsking() })
		if len(usable) == 0 {
			return
		}
		pause := time.Duration(rapid.IntRange(0, 60).Draw(r, "pause")) * time.Second
		next := nextRetry(sources, now, pause)
		if next.Before(now.Add(pause)) || len(order(sources, nil, next)) == 0 {
			r.Fatalf("at %s no source may be asked", next.Sub(now))
		}
		if len(got) > 0 && !next.Equal(now.Add(pause)) {
			r.Fatalf("it waits %s although one may be asked", next.Sub(now))
		}
	})
}

func TestContentRange(t *testing.T) {
	for text, want := range map[string]struct {
		start, size int64
		ok          bool
	}{
		"bytes 10-19/20":  {10, 20, true},
		"bytes 0-0/1":     {0, 1, true},
		"bytes 10-19/*":   {10, -1, true},
		"bytes 10-19":     {-1, -1, false},
		"bytes 20-29/20":  {-1, -1, false},
		"bytes -1-19/20":  {-1, -1, false},
		"bytes x-19/20":   {-1, -1, false},
		"bytes */20":      {-1, -1, false},
		"bytes 10-19/x":   {-1, -1, false},
		"":                {-1, -1, false},
		"bytes 1 0-19/20": {-1, -1, false},
	} {
		start, size, ok := contentRange(http.Header{"Content-Range": {text}})
		if start != want.start || size != want.size || ok != want.ok {
			t.Errorf("%q is %d, %d, %t, want %+v", text, start, size, ok, want)
		}
	}
	for text, want := range map[string]int64{"bytes */20": 20, "bytes */0": 0, "bytes */*": -1, "bytes */-1": -1, "bytes 1-2/3": -1, "": -1} {
		if size, ok := sizeBehind416(http.Header{"Content-Range": {text}}); ok != (want >= 0) || ok && size != want {
			t.Errorf("%q is %d, %t, want %d", text, size, ok, want)
		}
	}
}

func TestContinuesRefusesAnswersOfAnotherFile(t *testing.T) {
	part := beginning{url: "a", tag: "t", have: 10}
	untagged := beginning{url: "a", have: 10}
	for _, c := range []struct {
		name        string
		part        beginning
		url         string
		answer      answer
		lax, strict bool
	}{
		{"the rest", part, "a", answer{start: 10, size: 20, tag: "t"}, true, true},
		{"the rest, its tag left out", part, "a", answer{start: 10, size: 20}, true, true},
		{"the whole once more", part, "a", answer{size: 20, tag: "t"}, true, true},
		{"the whole, of unknown size", part, "a", answer{size: -1, tag: "t"}, true, true},
		{"the whole without its tag", part, "a", answer{size: 20}, false, false},
		{"another tag", part, "a", answer{start: 10, size: 20, tag: "u"}, false, false},
		{"another place", part, "b", answer{start: 10, size: 20, tag: "t"}, true, false},
		{"another place and tag", part, "b", answer{start: 10, size: 20, tag: "u"}, true, false},
		{"no tags", untagged, "a", answer{start: 10, size: 20}, true, false},
		{"a tag at last", untagged, "a", answer{start: 10, size: 20, tag: "t"}, false, false},
	} {
		if got := c.part.continues(c.url, c.answer, false); got != c.lax {
			t.Errorf("%s: %t", c.name, got)
		}
		if got := c.part.continues(c.url, c.answer, true); got != c.strict {
			t.Errorf("%s, strict: %t", c.name, got)
		}
	}
}

func TestCertificateErrorsNameTheNextStep(t *testing.T) {
	for want, err := range map[string]error{
		"install its CA":        x509.UnknownAuthorityError{Cert: &x509.Certificate{}},
		"as its certificate":    x509.HostnameError{Certificate: &x509.Certificate{}, Host: "one"},
		"check the clock":       x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired},
		"connection reset":      syscall.ECONNRESET,
		"fewer than 1024 bytes": errStalled,
	} {
		got := linkError(&url.Error{Op: "Get", URL: "https://user:secret@one/p", Err: err})
		if !strings.Contains(got.Error(), want) || strings.Contains(got.Error(), "secret") {
			t.Errorf("%v is reported as %q, want %q", err, got, want)
		}
	}
}

func TestSameOrigin(t *testing.T) {
	for raw, want := range map[string]bool{
		"https://fleet:8220/x": true, "https://FLEET:8220/": true, "http://fleet:8220/x": false,
		"https://fleet/x": false, "https://fleet.example:8220/x": false, "https://fleet:8220@evil/x": false,
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := SameOrigin(u, "https://fleet:8220"); got != want {
			t.Errorf("%s is of the same origin: %t", raw, got)
		}
	}
	u, _ := url.Parse("https://fleet:443/x")
	if !SameOrigin(u, "https://fleet") || SameOrigin(u, "") {
		t.Error("the default port, or a missing origin, is handled wrongly")
	}
}
