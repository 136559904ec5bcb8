package ui

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// site is a small build with the kinds of files that Vite writes.
func testSite() fs.FS {
	return fstest.MapFS{
		"index.html":             {Data: []byte(`<meta nonce="MUSTER_CSP_NONCE"><div id="root"></div>`)},
		"assets/index-abc.js":    {Data: []byte("plain script")},
		"assets/index-abc.js.br": {Data: []byte("br script")},
		"assets/index-abc.js.gz": {Data: []byte("gz script")},
		"assets/index-abc.css":   {Data: []byte("plain style")},
		"scheme.js":              {Data: []byte("scheme")},
		".gitkeep":               {},
	}
}

func get(t *testing.T, h http.Handler, method, target string, header map[string]string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for k, v := range header {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestHandlerServesPagesAssetsAndErrors(t *testing.T) {
	h := handlerOf(testSite())
	cases := []struct {
		name, method, target string
		status               int
		contentType          string // empty: not checked
		cache                string
	}{
		{"the root is the page", "GET", "/", 200, "text/html; charset=utf-8", "no-store"},
		{"so is its file", "GET", "/index.html", 200, "text/html; charset=utf-8", "no-store"},
		{"a page of the client", "GET", "/agents", 200, "text/html; charset=utf-8", "no-store"},
		{"a page with an id", "GET", "/agents/0b3e-22", 200, "text/html; charset=utf-8", "no-store"},
		{"a page whose id has dots", "GET", "/agents/web.example.js", 200, "text/html; charset=utf-8", "no-store"},
		{"a hashed asset", "GET", "/assets/index-abc.css", 200, "text/css; charset=utf-8", "public, max-age=31536000, immutable"},
		{"a file with a fixed name", "GET", "/scheme.js", 200, "text/javascript; charset=utf-8", "max-age=0, must-revalidate"},
		{"an asset of an older build", "GET", "/assets/index-old.js", 404, "", ""},
		{"a file that is not there", "GET", "/favicon.ico", 404, "", ""},
		{"the API", "GET", "/api/v1/nothing", 404, "", ""},
		{"the API by another spelling", "GET", "/agents/../api/v1/nothing", 404, "", ""},
		{"a compressed copy asked for by name", "GET", "/assets/index-abc.js.br", 404, "", ""},
		{"the placeholder of the empty folder", "GET", "/.gitkeep", 404, "", ""},
		{"a folder", "GET", "/assets", 200, "text/html; charset=utf-8", "no-store"},
		{"out of the folder", "GET", "/../embed.go", 200, "text/html; charset=utf-8", "no-store"},
		{"a head", "HEAD", "/agents", 200, "text/html; charset=utf-8", "no-store"},
		{"a write", "POST", "/agents", 405, "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := get(t, h, c.method, c.target, nil)
			if w.Code != c.status {
				t.Fatalf("%s %s: status %d, want %d", c.method, c.target, w.Code, c.status)
			}
			if got := w.Header().Get("Content-Type"); c.contentType != "" && got != c.contentType {
				t.Errorf("Content-Type %q, want %q", got, c.contentType)
			}
			if got := w.Header().Get("Cache-Control"); c.cache != "" && got != c.cache {
				t.Errorf("Cache-Control %q, want %q", got, c.cache)
			}
			if c.method == "HEAD" && w.Body.Len() != 0 {
				t.Errorf("HEAD has a body of %d bytes", w.Body.Len())
			}
			for _, name := range []string{"Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy"} {
				if w.Header().Get(name) == "" {
					t.Errorf("%s is missing", name)
				}
			}
		})
	}
}

func TestIndexHasAFreshNonceOfItsPolicy(t *testing.T) {
	h := handlerOf(testSite())
	nonce := regexp.MustCompile(`'nonce-([^']+)'`)
	seen := map[string]bool{}
	for range 3 {
		w := get(t, h, "GET", "/", nil)
		policy := w.Header().Get("Content-Security-Policy")
		m := nonce.FindStringSubmatch(policy)
		if m == nil {
			t.Fatalf("no nonce in the policy %q", policy)
		}
		if !strings.Contains(w.Body.String(), `nonce="`+m[1]+`"`) {
			t.Errorf("the page does not carry the nonce %s of its policy: %s", m[1], w.Body)
		}
		if seen[m[1]] {
			t.Errorf("nonce %s came twice", m[1])
		}
		seen[m[1]] = true
		for _, unsafe := range []string{"unsafe-inline", "unsafe-eval", "*", "data:", "http:"} {
			if strings.Contains(policy, unsafe) {
				t.Errorf("the policy allows %s: %s", unsafe, policy)
			}
		}
	}
}

func TestAssetsAreServedInTheBestAcceptedEncoding(t *testing.T) {
	h := handlerOf(testSite())
	cases := []struct{ accept, encoding, body string }{
		{"gzip, deflate, br", "br", "br script"},
		{"gzip", "gzip", "gz script"},
		{"br;q=0, gzip;q=0.5", "gzip", "gz script"},
		{"", "", "plain script"},
		{"zstd", "", "plain script"},
	}
	for _, c := range cases {
		t.Run("accepts "+c.accept, func(t *testing.T) {
			w := get(t, h, "GET", "/assets/index-abc.js", map[string]string{"Accept-Encoding": c.accept})
			if got := w.Header().Get("Content-Encoding"); got != c.encoding {
				t.Errorf("Content-Encoding %q, want %q", got, c.encoding)
			}
			if got := w.Body.String(); got != c.body {
				t.Errorf("body %q, want %q", got, c.body)
			}
			if got := w.Header().Get("Content-Type"); got != "text/javascript; charset=utf-8" {
				t.Errorf("Content-Type %q is not that of the script itself", got)
			}
			if w.Header().Get("Vary") != "Accept-Encoding" {
				t.Error("Vary is missing: a cache would give the copy to a browser that cannot read it")
			}
		})
	}
}

func TestUnchangedFileAnswers304(t *testing.T) {
	h := handlerOf(testSite())
	first := get(t, h, "GET", "/scheme.js", nil)
	tag := first.Header().Get("ETag")
	for _, header := range []string{tag, "W/" + tag, `"other", ` + tag} {
		again := get(t, h, "GET", "/scheme.js", map[string]string{"If-None-Match": header})
		if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
			t.Errorf("If-None-Match %s: status %d with %d bytes, want 304 without a body", header, again.Code, again.Body.Len())
		}
	}
	if changed := get(t, h, "GET", "/scheme.js", map[string]string{"If-None-Match": `"other"`}); changed.Code != 200 {
		t.Errorf("another tag: status %d, want 200", changed.Code)
	}
}

func TestMissingBuildAnswers503WithInstructions(t *testing.T) {
	h := handlerOf(fstest.MapFS{".gitkeep": {}})
	w := get(t, h, "GET", "/agents", nil)
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d, want 503", w.Code)
	}
	if !strings.Contains(w.Body.String(), "go tool mage ui") {
		t.Errorf("the page does not name the command: %s", w.Body)
	}
	if w.Header().Get("Cache-Control") != "no-store" {
		t.Error("a browser may keep this page beyond the build")
	}
	if api := get(t, h, "GET", "/api/status", nil); api.Code != http.StatusNotFound {
		t.Errorf("/api/status: status %d, want 404", api.Code)
	}
}

// firstPageBudget bounds what index.html names, compressed by brotli: a page is shown once that is
// there. What few pages need, such as charts and the editor of YAML, is loaded with them.
const firstPageBudget = 280 << 10

func TestEmbeddedBuildIsCompleteOrAbsent(t *testing.T) {
	w := get(t, Handler(), "GET", "/", nil)
	if w.Code == http.StatusServiceUnavailable {
		t.Log("this checkout has no build; only the notice can be shown")
		return
	}
	asset := regexp.MustCompile(`(?:src|href)="(/[^"]+)"`)
	size := 0
	for _, m := range asset.FindAllStringSubmatch(w.Body.String(), -1) {
		got := get(t, Handler(), "GET", m[1], map[string]string{"Accept-Encoding": "br"})
		if got.Code != 200 {
			t.Errorf("index.html names %s, which answers %d", m[1], got.Code)
		}
		size += got.Body.Len()
	}
	if size > firstPageBudget {
		t.Errorf("the first page takes %d bytes, more than %d: load what it does not show later", size, firstPageBudget)
	}
	if strings.Contains(w.Body.String(), noncePlaceholder) {
		t.Error("the placeholder of the nonce was left in the page")
	}
}
