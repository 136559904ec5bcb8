package debug_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/node/debug"
)

func TestCheckAcceptsLoopbackOnly(t *testing.T) {
	t.Parallel()
	for addr, good := range map[string]bool{
		"127.0.0.1:6060": true, "127.8.8.8:0": true, "[::1]:6060": true, "localhost:6060": true, "[::ffff:127.0.0.1]:1": true,
		":6060": false, "0.0.0.0:6060": false, "[::]:6060": false, "10.0.0.1:6060": false, "fleet.example.com:6060": false,
		"127.0.0.1": false, "": false, "localhost.example.com:1": false, "127.0.0.1.example.com:1": false,
	} {
		switch err := debug.Check(addr); {
		case (err == nil) != good:
			t.Errorf("%q: %v", addr, err)
		case err != nil && (!strings.Contains(err.Error(), `"`+addr+`"`) || !strings.Contains(err.Error(), "127.0.0.1:6060")):
			t.Errorf("%q: the error %q does not say what to write", addr, err)
		}
	}
}

func TestHandlerRefusesOtherHosts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		host, path string
		status     int
		has        string
	}{
		{"127.0.0.1:6060", "/debug/pprof/", http.StatusOK, "goroutine"},
		{"localhost:6060", "/debug/pprof/goroutine?debug=1", http.StatusOK, "goroutine profile"},
		{"[::1]", "/debug/pprof/heap?debug=1", http.StatusOK, "heap profile"},
		{"[::1]:6060", "/debug/pprof/symbol", http.StatusOK, "num_symbols"},
		{"evil.example.com:6060", "/debug/pprof/heap", http.StatusForbidden, "this machine alone"},
		{"127.0.0.1:6060", "/", http.StatusNotFound, ""},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.Host = c.host
		w := httptest.NewRecorder()
		debug.Handler().ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.has) {
			t.Errorf("%s at %s answers %d %.80s", c.path, c.host, w.Code, w.Body)
		}
	}
}
