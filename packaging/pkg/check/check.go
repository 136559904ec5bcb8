// Package check runs what a package defines to be run on a host: health checks, by the watcher
// those of a new version of the agent and by the agent those of its components, and the hooks of
// components.
package check

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

const (
	// maxCheckOutput is how many bytes of the end of a check's output, or of the
	// beginning of an answer, are quoted in its error.
	maxCheckOutput = 300

	// checkWaitDelay bounds the wait for the output of a program that was killed, or
	// whose children hold the output open.
	checkWaitDelay = 500 * time.Millisecond

	// maxRedirects allows for a missing slash and a login page.
	maxRedirects = 3
)

// Run runs a check of the package in the folder home. When ctx ends it kills the program and
// returns within checkWaitDelay.
func Run(ctx context.Context, home string, c manifest.Check) error {
	switch {
	case len(c.Exec) > 0:
		_, err := Execute(ctx, Program{Home: home, Exec: c.Exec, As: disk.Own})
		return err
	case c.HTTP != "":
		return httpCheck(ctx, c.HTTP, new(net.Dialer))
	}
	return tcpCheck(ctx, c.TCP, new(net.Dialer))
}

var (
	errOffHost   = errors.New("redirects to another host")
	errRedirects = fmt.Errorf("redirects more than %d times", maxRedirects)
)

// statusError is an answer that is not 2xx.
type statusError struct {
	url, status string // status as the answer has it
	code        int
	body        []byte // its beginning
}

func (e statusError) Error() string {
	if len(e.body) > 0 {
		return fmt.Sprintf("GET %s answered %s, saying %q", e.url, e.status, e.body)
	}
	return fmt.Sprintf("GET %s answered %s", e.url, e.status)
}

// httpCheck requests a URL, without a proxy.
func httpCheck(ctx context.Context, address string, dialer *net.Dialer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	client := http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       dialer.DialContext,
			DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return dialTLS(ctx, dialer, network, addr)
			},
		},
		CheckRedirect: func(next *http.Request, before []*http.Request) error {
			if next.URL.Hostname() != before[0].URL.Hostname() {
				return fmt.Errorf("%w, %s", errOffHost, next.URL.Host)
			}
			if len(before) > maxRedirects {
				return errRedirects
			}
			return nil
		},
	}
	resp, err := client.Do(req)
	if err != nil {
		return err // names the method and the URL
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return nil
	}
	// The body is only for the message, so its errors are ignored.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxCheckOutput))
	return statusError{address, resp.Status, resp.StatusCode, bytes.TrimSpace(bytes.ToValidUTF8(body, nil))}
}

// dialTLS verifies the certificate unless the connection stays on this host: services rarely
// have one for 127.0.0.1. Elsewhere another host could answer in the place of the service.
func dialTLS(ctx context.Context, dialer *net.Dialer, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	secured := tls.Client(conn, &tls.Config{ServerName: host, InsecureSkipVerify: isLoopback(conn.RemoteAddr())})
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}

// isLoopback takes the address of a connection and not a name: a name may lead anywhere.
func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func tcpCheck(ctx context.Context, addr string, dialer *net.Dialer) error {
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err // names the address
	}
	return conn.Close()
}
