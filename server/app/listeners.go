package app

import (
	"fmt"
	"net"
	"os"
	"strings"
)

// listeners accept the server's connections, without TLS.
type listeners struct {
	agents, admin net.Listener
	debug         net.Listener // nil without debug.listen
}

func openListeners(o Options) (_ *listeners, err error) {
	l := &listeners{}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.agents, err = listen(o.AgentListener, "agents.listen", o.Config.Agents.Listen, "--agents-listen"); err != nil {
		return nil, err
	}
	if l.admin, err = listen(o.AdminListener, "admin.listen", o.Config.Admin.Listen, "--admin-listen"); err != nil {
		return nil, err
	}
	if o.Config.Debug.Listen == "" {
		return l, nil
	}
	if l.debug, err = listen(nil, "debug.listen", o.Config.Debug.Listen, "--debug-listen"); err != nil {
		return nil, err
	}
	if tcp, ok := l.debug.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() { // localhost may resolve to any address
		return nil, fmt.Errorf("debug.listen: is %q, which is %s on this machine: it has to be a loopback address, such as 127.0.0.1:6060", o.Config.Debug.Listen, l.debug.Addr())
	}
	return l, nil
}

func (l *listeners) close() {
	for _, open := range []net.Listener{l.agents, l.admin, l.debug} {
		if open != nil {
			open.Close()
		}
	}
}

func listen(given net.Listener, key, addr, flag string) (net.Listener, error) {
	if given != nil {
		return given, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: is another server running? `muster doctor` names who listens; choose another address with %s", key, err, flag)
	}
	return l, nil
}

// baseURL returns the URL of a listener: the configured one, or one made from its address,
// with the machine's host name if it listens on all addresses.
func baseURL(configured, addr string, l net.Listener) string {
	if configured != "" {
		return strings.TrimRight(configured, "/")
	}
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "https://" + addr
	}
	if want, _, err := net.SplitHostPort(addr); err == nil && want != "" {
		host = want
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "localhost"
		if name, err := os.Hostname(); err == nil && name != "" {
			host = name
		}
	}
	return "https://" + net.JoinHostPort(host, port)
}
