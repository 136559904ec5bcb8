package webhook

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// internal are the networks that a webhook reaches only if the configuration allows it.
// Otherwise an operator, or whoever has an operator's key, could send requests to
// services that trust the server's network.
var internal = prefixes(
	"0.0.0.0/8",        // this host
	"10.0.0.0/8",       // private
	"100.64.0.0/10",    // shared by carriers and clouds; Alibaba's metadata service
	"127.0.0.0/8",      // loopback
	"168.63.129.16/32", // Azure's services for the host
	"169.254.0.0/16",   // link-local; the metadata services of most clouds
	"172.16.0.0/12",    // private
	"192.0.0.0/24",     // protocol assignments; Oracle's metadata service
	"192.168.0.0/16",   // private
	"198.18.0.0/15",    // benchmarks of networks
	"224.0.0.0/3",      // multicast, reserved and broadcast
	"::/96",            // this host, loopback, and IPv4 addresses in an old form
	"64:ff9b::/96",     // NAT64, which leads to any IPv4 address
	"64:ff9b:1::/48",   // the same, private
	"2001::/32",        // Teredo, the same
	"2002::/16",        // 6to4, the same
	"fc00::/7",         // private; Amazon's metadata service
	"fe80::/10",        // link-local
	"fec0::/10",        // private, in an old form
	"ff00::/8",         // multicast
)

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		out[i] = netip.MustParsePrefix(text)
	}
	return out
}

// Allowed are the destinations inside the network that webhooks may reach. The zero value
// allows none.
type Allowed struct {
	networks []netip.Prefix
	hosts    []string
}

// Add adds one entry of the configuration: a network, an address, or the name
// of a host as it stands in the URL of a webhook.
func (a *Allowed) Add(entry string) error {
	if p, err := netip.ParsePrefix(entry); err == nil {
		a.networks = append(a.networks, p.Masked())
		return nil
	}
	if addr, err := netip.ParseAddr(entry); err == nil {
		a.networks = append(a.networks, netip.PrefixFrom(addr, addr.BitLen()))
		return nil
	}
	if entry == "" || strings.ContainsAny(entry, "/:*@ \t") {
		return fmt.Errorf("is %q, want a network such as 10.0.0.0/8, an address, or the name of a host", entry)
	}
	a.hosts = append(a.hosts, hostname(entry))
	return nil
}

func hostname(text string) string { return strings.ToLower(strings.TrimSuffix(text, ".")) }

func contains(networks []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// check refuses an address inside the network that is not allowed. host is the name that
// it was resolved from.
func (a *Allowed) check(host string, addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	if slices.Contains(a.hosts, hostname(host)) || contains(a.networks, addr) || !contains(internal, addr) {
		return nil
	}
	return &notAllowedError{host: host, addr: addr}
}

// notAllowedError is the refusal of an address inside the network.
type notAllowedError struct {
	host string
	addr netip.Addr
}

func (e *notAllowedError) Error() string {
	name := e.host
	if name != e.addr.String() {
		name += " (" + e.addr.String() + ")"
	}
	return fmt.Sprintf("%s is inside the network: name it under webhooks.allow in the server's configuration if webhooks may reach it", name)
}

// NewTransport returns the transport of deliveries. It checks each address when it connects
// to it, after the name was resolved, so a name whose address changes is checked too. It
// uses no proxy of the environment: a proxy would resolve the name itself.
func NewTransport(allowed Allowed) *http.Transport {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		dialer := net.Dialer{
			Timeout: PostTimeout,
			ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
				to, err := netip.ParseAddrPort(address)
				if err != nil {
					return err
				}
				return allowed.check(host, to.Addr())
			},
		}
		return dialer.DialContext(ctx, network, address)
	}
	return &http.Transport{
		DialContext:         dial,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        MaxWebhooks,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: PostTimeout,
		// A receiver's answer is its status; what it may send before that is bounded.
		MaxResponseHeaderBytes: 64 << 10,
	}
}
