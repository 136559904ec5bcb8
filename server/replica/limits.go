package replica

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"

	"github.com/muster-fleet/muster/server/authority"
	"github.com/muster-fleet/muster/server/debug"
	"github.com/muster-fleet/muster/server/httpapi"
	"github.com/muster-fleet/muster/server/limit"
)

// limits makes what agents are let in by: the configuration of their TLS, and how
// many of them, and of their requests, the machine can take.
func (r *Replica) limits(served *tls.Config) error {
	r.agentTLS = served.Clone()
	// Older versions need one round trip more, and resume in another way.
	r.agentTLS.MinVersion = tls.VersionTLS13
	// HTTP/1.1 first: a connection can be parked without a goroutine. Clients with
	// HTTP/2 only are served too.
	r.agentTLS.NextProtos = []string{"http/1.1", "h2"}
	// An answer is one record and one system call, not two: what an agent is given
	// is of use only when it is there as a whole.
	r.agentTLS.DynamicRecordSizingDisabled = true
	if err := r.tickets.Set(r.agentTLS); err != nil {
		return err
	}
	if cert, err := authority.Certificate(served); err != nil {
		return err
	} else if authority.IsRSA(cert) {
		r.log.Warn("the server's certificate has an RSA key: each connection of an agent costs three times the processor time of ECDSA P-256", "certificate", r.opts.Config.TLS.Certificate)
	}
	machine := limit.ThisMachine()
	if r.opts.Config.Limits.HandshakesPerSecond == 0 {
		machine.Handshake = limit.MeasureHandshake(r.agentTLS)
	}
	limits, err := limit.Derive(machine, r.opts.Config.Limits)
	if err != nil {
		return err
	}
	r.admission = limit.NewAdmission(limits)
	r.log.Info("limits", "agents", limits.Agents, "handshakes", limits.Handshakes, "handshakes_per_second", limits.HandshakesPerSecond,
		"checkins", limits.Checkins, "reports", limits.Reports, "enrollments", limits.Enrollments, "downloads", limits.Downloads,
		"waiting", limits.Waiting, "body_bytes", limits.BodyBytes, "memory_bytes", limits.MemoryBytes)
	return nil
}

// listenDebug opens the debug listener, if there is to be one.
func (r *Replica) listenDebug() error {
	addr := r.opts.Config.Debug.Listen
	if addr == "" {
		return nil
	}
	l, err := listen(nil, "debug.listen", addr, "--debug-listen")
	if err != nil {
		return err
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() { // a name may mean anything
		l.Close()
		return fmt.Errorf("debug.listen: is %q, which is %s on this machine: it has to be a loopback address, such as 127.0.0.1:6060", addr, l.Addr())
	}
	r.debugListener, r.debugServer = l, httpapi.NewServer(debug.Handler(), r.log)
	r.info.DebugURL = "http://" + l.Addr().String() + "/debug/pprof/"
	return nil
}

// served is a server and how it serves until it is shut down.
type served struct {
	*http.Server
	serve func() error
}

// servers are all of the replica's. The agents' handshakes are done by their
// listener, at its pace; parked connections come back through the parker's, above it.
func (r *Replica) servers() []served {
	agents := r.parker.Listener(r.admission.Listener(r.agentListener, r.agentTLS, r.log))
	all := []served{
		{r.agentServer, func() error { return r.agentServer.Serve(agents) }},
		{r.adminServer, func() error { return r.adminServer.ServeTLS(r.adminListener, "", "") }},
	}
	if r.debugServer != nil {
		all = append(all, served{r.debugServer, func() error { return r.debugServer.Serve(r.debugListener) }})
	}
	return all
}
