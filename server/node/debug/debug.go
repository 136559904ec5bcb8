// Package debug serves the profiles of a running server to users of its own machine:
// processor time, memory and goroutines. It requires no key, so it listens on loopback
// only.
package debug

import (
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
)

// Check returns an error unless addr is a loopback address with a port. Host names
// other than localhost are refused, because they may resolve to another address later.
func Check(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("is %q, want host:port such as 127.0.0.1:6060", addr)
	}
	if isLoopback(host) {
		return nil
	}
	return fmt.Errorf("is %q, which others can reach: profiles are served without a key, so it has to be an address of this machine alone, such as 127.0.0.1:6060 (from elsewhere: ssh -L 6060:127.0.0.1:6060)", addr)
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.Unmap().IsLoopback())
}

// Handler serves the pages of net/http/pprof under /debug/pprof/.
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A malicious web page can make its own host name resolve to loopback (DNS
		// rebinding).
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		if !isLoopback(host) {
			http.Error(w, fmt.Sprintf("profiles are served to this machine alone: use 127.0.0.1, not %q", r.Host), http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
