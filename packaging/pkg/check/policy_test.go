//go:build linux

package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

func tryPolicy(t *testing.T, p Policy, within time.Duration, c manifest.Check) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return p.Run(ctx, c)
}

func TestPolicyChecksReachLoopbackAndWhatTheHostAllows(t *testing.T) {
	allow := func(entries ...string) (p Policy) {
		for _, e := range entries {
			in, err := ParseAllowed(e)
			must(t, err)
			p.Allow = append(p.Allow, in)
		}
		return p
	}
	for _, c := range []struct {
		address string
		policy  Policy
		reaches bool
	}{
		{"127.0.0.1:80", Policy{}, true},
		{"127.8.9.1:80", Policy{}, true},
		{"[::1]:80", Policy{}, true},
		{"[::ffff:127.0.0.1]:80", Policy{}, true},
		{"0.0.0.0:80", Policy{}, true}, // leads to this host
		{"169.254.169.254:80", Policy{}, false},
		{"10.0.0.1:80", Policy{}, false},
		{"[::ffff:10.0.0.1]:80", Policy{}, false},
		{"[fe80::1%eth0]:80", Policy{}, false},
		{"[fd00::1]:80", Policy{}, false},
		{"192.0.2.1:80", Policy{}, false},
		{"10.0.0.1:80", allow("10.0.0.0/8"), true},
		{"[::ffff:10.0.0.1]:80", allow("10.0.0.1"), true},
		{"10.0.0.2:80", allow("10.0.0.1"), false},
		{"[fe80::1%eth0]:80", allow("fe80::/10"), true},
		{"name:80", allow("0.0.0.0/0", "::/0"), false},
	} {
		if err := c.policy.control("tcp", c.address, nil); (err == nil) != c.reaches {
			t.Errorf("%s with %v: %v", c.address, c.policy.Allow, err)
		}
	}
	for _, entry := range []string{"", "db.example.com", "10.0.0.0/40", "fe80::1%eth0", "*"} {
		if in, err := ParseAllowed(entry); err == nil {
			t.Errorf("%q is %s", entry, in)
		}
	}
}

// The name of this machine leads to another of its addresses, as any name may.
func TestPolicyChecksDoNotFollowNamesFromLoopback(t *testing.T) {
	other := otherAddress(t)
	if other == "" {
		t.Log("this machine has loopback addresses only")
		return
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(other, "0"))
	must(t, err)
	asked := false
	server := &httptest.Server{Listener: l, Config: &http.Server{ReadHeaderTimeout: plenty, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true })}}
	server.Start()
	defer server.Close()
	checks := []manifest.Check{{HTTP: server.URL}, {TCP: l.Addr().String()}}
	name, err := os.Hostname()
	must(t, err)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if addrs, err := net.DefaultResolver.LookupHost(t.Context(), name); err == nil && len(addrs) == 1 && addrs[0] == other {
		checks = append(checks, manifest.Check{HTTP: "http://" + net.JoinHostPort(name, port)})
	}
	for _, c := range checks {
		if err := tryPolicy(t, Policy{}, plenty, c); !errors.Is(err, errNotAllowed) || !strings.Contains(err.Error(), other) {
			t.Errorf("%s%s: %v, want that %s is not allowed", c.HTTP, c.TCP, err, other)
		}
	}
	if asked {
		t.Error("the server was asked")
	}
	for _, c := range checks {
		if err := tryPolicy(t, Policy{Allow: []netip.Prefix{netip.MustParsePrefix(other + "/32")}}, plenty, c); err != nil {
			t.Errorf("%s%s, which the host allows: %v", c.HTTP, c.TCP, err)
		}
	}
	if err := tryPolicy(t, Policy{}, plenty, manifest.Check{Exec: []string{"/bin/true"}}); !errors.Is(err, errNoProgram) {
		t.Errorf("a program: %v", err)
	}
}

// Whatever a service on loopback answers, and however, none of it is reported.
func TestPolicyChecksReportNothingOfAnAnswer(t *testing.T) {
	const secret = "s3cret"
	answers := map[string]string{ // raw answers, and what is reported
		"HTTP/1.1 503 " + secret + "\r\nX-Key: " + secret + "\r\nContent-Length: 6\r\n\r\n" + secret: "answered 503 Service Unavailable",
		"HTTP/1.1 299 " + secret + "\r\nContent-Length: 6\r\n\r\n" + secret:                          "",
		"HTTP/1.1 302 Found\r\nLocation: http://" + secret + ".example.com/" + secret + "\r\n\r\n":   "redirects to another host",
		"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/" + secret + "\r\n\r\n":                  "connection refused",
		"HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1/" + secret + "\r\n\r\n":                     "not that of a web server",
		"HTTP/1.1 302 Found\r\nLocation: http://%zz" + secret + "\r\n\r\n":                           "not that of a web server",
		"SSH-2.0-" + secret + "\r\n":                                  "not that of a web server",
		"HTTP/1.1 " + secret + " OK\r\n\r\n":                          "not that of a web server",
		"HTTP/1.1 500 x\r\n" + secret + "\r\n\r\n":                    "not that of a web server",
		"HTTP/1.1 500 x\r\nContent-Length: " + secret + "\r\n\r\n":    "not that of a web server",
		"HTTP/1.1 500 x\r\nTransfer-Encoding: " + secret + "\r\n\r\n": "not that of a web server",
	}
	for answer, want := range answers {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		must(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 1<<12))
				_, _ = io.WriteString(conn, answer)
				conn.Close()
			}
		}()
		for _, scheme := range []string{"http", "https"} {
			if scheme == "https" && want != "" {
				want = "not that of a web server"
			}
			err = tryPolicy(t, Policy{}, plenty, manifest.Check{HTTP: fmt.Sprintf("%s://%s/health", scheme, l.Addr())})
			if (err == nil) != (want == "" && scheme == "http") || err != nil && want != "" && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %q: %v, want %q", scheme, answer, err, want)
			}
			if err != nil && (strings.Contains(err.Error(), secret) || len(err.Error()) > 200) {
				t.Errorf("%s, %q: the error is %v", scheme, answer, err)
			}
		}
		must(t, l.Close())
		<-done
	}
	hangs, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer hangs.Close()
	if err := tryPolicy(t, Policy{}, 200*time.Millisecond, manifest.Check{HTTP: "http://" + hangs.Addr().String()}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
}
