package admin

import (
	"net/http"
	"strings"
)

// spacePrefix begins the paths of the space default, the one that there is: Kibana serves
// its API for each space under /s/{space}.
const spacePrefix = "/s/default"

// inDefaultSpace serves requests for the API of the space default as those without a space.
// It does so before they are routed, so that limits, the audit trail and everything else that
// depends on a route are the same for both.
func inDefaultSpace(next http.Handler) http.Handler {
	stripped := http.StripPrefix(spacePrefix, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, spacePrefix+"/api/") && strings.HasPrefix(r.URL.EscapedPath(), spacePrefix) {
			stripped.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// spaceOf returns the space whose API a path is in.
func spaceOf(path string) (space string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/s/")
	if !ok {
		return "", false
	}
	space, rest, ok = strings.Cut(rest, "/")
	return space, ok && isAPI("/"+rest)
}

// isAPI reports whether a path is one of an API, here or elsewhere, such as behind a proxy
// that has been given another base path.
func isAPI(path string) bool { return strings.Contains(path+"/", "/api/") }
