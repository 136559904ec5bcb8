// Package debug serves the profiles of a running server to somebody on its own
// machine: where processor time, memory and goroutines are. It asks for no key,
// so it listens to nobody else.
package debug

import (
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
)

// Check says what is wrong with an address to listen on: anything but a loopback
// address with a port. A name is refused, for it can mean another address
// tomorrow; localhost is not.
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

// Handler serves net/http/pprof's pages under /debug/pprof/.
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A page of the web that a browser on this machine has open can make a name
		// of its own mean this address.
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		if !isLoopback(host) {
			http.Error(w, fmt.Sprintf("profiles are served to this machine alone: ask for 127.0.0.1, not for %q", r.Host), http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
