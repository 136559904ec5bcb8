// Package ui embeds the built web UI and serves it to browsers. The pages send requests
// only to the admin API of the same origin.
//
// "npm run build" fills the folder dist. A program built without it runs too, and its pages
// say how to build them.
package ui

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

//go:embed all:dist
var dist embed.FS

const (
	// noncePlaceholder is the text in index.html that each response replaces by its nonce.
	noncePlaceholder = "MUSTER_CSP_NONCE"
	// assetMaxAge is a year: the name of an asset has the hash of its content, so the
	// asset never changes.
	assetMaxAge = 365 * 24 * 60 * 60
	// looseMaxAge is for the few files with a fixed name. They are tiny and have an ETag,
	// so that revalidation is cheap.
	looseMaxAge = 0
)

// Handler serves the embedded UI. It answers only GET and HEAD, returns 404 for everything
// under /api/, and sends index.html for each path that looks like a page, so that a reload
// of any page works.
func Handler() http.Handler {
	built, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // "dist" is a constant and a valid path
	}
	return handlerOf(built)
}

func handlerOf(built fs.FS) http.Handler {
	index, err := fs.ReadFile(built, "index.html")
	if err != nil {
		return http.HandlerFunc(notBuilt)
	}
	return &site{files: built, index: index}
}

type site struct {
	files fs.FS
	index []byte
}

// ServeHTTP implements http.Handler.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	name := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "The UI answers GET and HEAD only.", http.StatusMethodNotAllowed)
	case name == "api" || strings.HasPrefix(name, "api/"):
		http.NotFound(w, r)
	case name == "" || name == "index.html":
		s.serveIndex(w, r)
	case s.serveFile(w, r, name):
	case looksLikeFile(name):
		// A page instead would be parsed as a script or a style sheet.
		http.NotFound(w, r)
	default:
		s.serveIndex(w, r)
	}
}

// looksLikeFile reports whether name is a missing asset and not a page. Ids of agents may
// have dots, so only the extensions of a build count.
func looksLikeFile(name string) bool {
	if strings.HasPrefix(name, "assets/") || strings.HasPrefix(name, ".") {
		return true
	}
	switch path.Ext(name) {
	case ".js", ".mjs", ".css", ".map", ".svg", ".png", ".ico", ".json", ".txt", ".woff2", ".html", ".br", ".gz":
		return !strings.Contains(name, "/")
	}
	return false
}

func (s *site) serveIndex(w http.ResponseWriter, r *http.Request) {
	nonce, err := newNonce()
	if err != nil {
		http.Error(w, "The server has no randomness to make a nonce from.", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy(nonce))
	h.Set("Cache-Control", "no-store") // it names the current assets and carries a nonce
	h.Set("Content-Type", "text/html; charset=utf-8")
	page := bytes.ReplaceAll(s.index, []byte(noncePlaceholder), []byte(nonce))
	h.Set("Content-Length", fmt.Sprint(len(page)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(page) // fails only if the browser has disconnected
	}
}

// serveFile sends the named file, compressed if the build has such a copy and the browser
// accepts it. It returns false if there is no such file.
func (s *site) serveFile(w http.ResponseWriter, r *http.Request, name string) bool {
	if name == ".gitkeep" || strings.HasSuffix(name, ".br") || strings.HasSuffix(name, ".gz") {
		return false // served only by content negotiation
	}
	plain, err := fs.ReadFile(s.files, name)
	if err != nil {
		return false
	}
	h := w.Header()
	h.Set("Content-Type", contentType(name))
	h.Set("Vary", "Accept-Encoding")
	if strings.HasPrefix(name, "assets/") {
		h.Set("Cache-Control", fmt.Sprintf("public, max-age=%d, immutable", assetMaxAge))
	} else {
		h.Set("Cache-Control", fmt.Sprintf("max-age=%d, must-revalidate", looseMaxAge))
	}
	body, encoding := s.encoded(name, plain, r.Header.Get("Accept-Encoding"))
	if encoding != "" {
		h.Set("Content-Encoding", encoding)
	}
	tag := etag(body)
	h.Set("ETag", tag)
	if noneMatch(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	h.Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(body)
	}
	return true
}

// encodings lists the encodings in order of preference, with the file extensions of the
// build.
var encodings = [...]struct{ name, suffix string }{{"br", ".br"}, {"gzip", ".gz"}}

func (s *site) encoded(name string, plain []byte, accept string) (body []byte, encoding string) {
	for _, e := range encodings {
		if !accepts(accept, e.name) {
			continue
		}
		if packed, err := fs.ReadFile(s.files, name+e.suffix); err == nil {
			return packed, e.name
		}
	}
	return plain, ""
}

// accepts reports whether an Accept-Encoding header allows coding; "br;q=0" does not.
func accepts(header, coding string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), coding) {
			q := strings.ReplaceAll(strings.ToLower(params), " ", "")
			return q != "q=0" && q != "q=0.0" && q != "q=0.00" && q != "q=0.000"
		}
	}
	return false
}

func etag(body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + hex.EncodeToString(sum[:12]) + `"`
}

func noneMatch(header, tag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		candidate := strings.TrimPrefix(strings.TrimSpace(part), "W/")
		if candidate == tag || candidate == "*" {
			return true
		}
	}
	return false
}

// contentType returns the types of the files of a build. The host's table of types may be
// missing or wrong, and with nosniff a wrong type means a blank page.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js", ".mjs":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".html":
		return "text/html; charset=utf-8"
	}
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}

// policy allows the pages to load from and to call only their own origin. Style elements
// with the nonce are allowed too: the component library creates some at run time.
func policy(nonce string) string {
	return strings.Join([]string{
		"default-src 'none'",
		"script-src 'self'",
		"style-src 'self' 'nonce-" + nonce + "'",
		"img-src 'self'",
		"font-src 'self'",
		"connect-src 'self'",
		"manifest-src 'self'",
		"base-uri 'none'",
		"form-action 'self'",
		"frame-ancestors 'none'",
	}, "; ")
}

// secure sets the headers of every response, errors included.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}

// nonceBytes is 128 bits, which Content Security Policy recommends.
const nonceBytes = 16

func newNonce() (string, error) {
	raw := make([]byte, nonceBytes)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("make a nonce for the page: %w", err)
	}
	return base64.RawStdEncoding.EncodeToString(raw), nil
}

const notBuiltPage = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Muster: the UI was not built</title></head>
<body><main><h1>The UI was not built</h1>
<p>This muster was compiled without its web pages. Run <code>go tool mage ui</code>, which needs Node 20, and build muster again.</p>
<p>Everything else works: the agents, the admin API under <code>/api/</code> and the commands of <code>muster</code>.</p>
</main></body></html>
`

// notBuilt answers 503: 404 would mean a wrong address, and 200 would tell a probe that
// the UI works.
func notBuilt(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	if name := path.Clean("/" + r.URL.Path); name == "/api" || strings.HasPrefix(name, "/api/") {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusServiceUnavailable)
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(notBuiltPage))
	}
}
