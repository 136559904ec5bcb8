package check

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// Policy runs checks that a server names and no publisher has signed. Whoever has stolen the
// server must not read through them what a host can reach, and its agent runs as root: they
// reach this host's loopback addresses only, and of an answer nothing but its status is reported.
type Policy struct {
	// Allow are the other addresses that the host's configuration lets them reach.
	Allow []netip.Prefix
}

var (
	errNotAllowed = errors.New("checks of a policy reach this host's loopback addresses only: list the address in checks.allow of the host's agent.yml, or have the component's package define the check")
	errNoProgram  = errors.New("runs a program, which only a signed package may define")
)

// Run runs a check. What it returns holds no text of who answers.
func (p Policy) Run(ctx context.Context, c manifest.Check) error {
	dialer := &net.Dialer{Control: p.control}
	switch {
	case len(c.Exec) > 0:
		return errNoProgram
	case c.HTTP != "":
		return withoutAnswer(c.HTTP, httpCheck(ctx, c.HTTP, dialer))
	}
	return tcpCheck(ctx, c.TCP, dialer)
}

// control refuses an address when it is dialled. Names are resolved by then, so neither another
// answer for the name nor a redirect leads elsewhere.
func (p Policy) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	// A connection to the unspecified address leads to this host.
	addr := to.Addr().Unmap().WithZone("")
	if addr.IsLoopback() || addr.IsUnspecified() || slices.ContainsFunc(p.Allow, func(in netip.Prefix) bool { return in.Contains(addr) }) {
		return nil
	}
	return fmt.Errorf("%s: %w", addr, errNotAllowed)
}

// withoutAnswer returns the error of an HTTP check without what the answer says: net/http quotes
// answers that are not HTTP, reasons beside statuses, and places of redirects.
func withoutAnswer(address string, err error) error {
	if err == nil {
		return nil
	}
	reason := errors.New("the answer is not that of a web server")
	var (
		status  statusError
		dialled *net.OpError
		cert    *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &status):
		return statusError{url: address, status: fmt.Sprintf("%d %s", status.code, http.StatusText(status.code)), code: status.code}
	case errors.As(err, &dialled):
		reason = dialled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		reason = context.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		reason = context.Canceled
	case errors.As(err, &cert):
		reason = errors.New("its certificate is not valid for this host")
	case errors.Is(err, errOffHost):
		reason = errOffHost
	case errors.Is(err, errRedirects):
		reason = errRedirects
	}
	return fmt.Errorf("GET %s: %w", address, reason)
}

// ParseAllowed parses an entry of checks.allow: an address, or a range of addresses.
func ParseAllowed(entry string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(entry); err == nil && addr.Zone() == "" {
		return netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), nil
	}
	in, err := netip.ParsePrefix(entry)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q: want an address, or a range such as 10.0.0.0/8 (a name is whatever its resolver says)", entry)
	}
	return in.Masked(), nil
}
