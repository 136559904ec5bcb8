// Package app is one muster server: it builds the parts in order, serves both listeners,
// and shuts down in reverse. The command line starts one; tests run several in one
// process, with their own listeners and clocks.
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/agents/infra"
	"github.com/muster-fleet/muster/server/agents/limit"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/node/authority"
	"github.com/muster-fleet/muster/server/node/replica"
	"github.com/muster-fleet/muster/server/node/selfupgrade"
	"github.com/muster-fleet/muster/server/store"
)

// Drain bounds a shutdown. Parked polls are answered at once, so it leaves time for
// downloads and requests in progress.
const Drain = 10 * time.Second

// Options configure a server.
type Options struct {
	Config Config
	// Store is required; the server does not close it.
	Store   store.Store
	Version string
	Log     *slog.Logger
	// NewStore lets the server start although the data folder has a CA and the store is
	// empty; see CheckStore.
	NewStore bool
	// AgentListener and AdminListener replace listening on the configured
	// addresses. They accept plain connections; the server adds TLS.
	AgentListener net.Listener
	AdminListener net.Listener
	// Machine is what an upgrade of the servers does on this machine; nil if the server
	// cannot be replaced.
	Machine selfupgrade.Machine
	Now     clock.Clock
}

// Server is a server that is ready to run.
type Server struct {
	log           *slog.Logger
	info          Info
	tickets       *authority.Tickets
	agentTLS      *tls.Config
	admission     *limit.Admission
	listeners     *listeners
	services      *services
	agents, admin *http.Server
	draining      chan struct{} // closed when Run begins to shut down
}

// Info describes a running server.
type Info struct {
	Version  string `json:"version"`
	AgentURL string `json:"agent_url"`
	AdminURL string `json:"admin_url"`
	CAPin    string `json:"ca_pin"`
	// CAFile is the path of the CA's certificate, empty with an operator's certificate.
	CAFile string `json:"ca_file,omitempty"`
	Data   string `json:"data"`
	// DebugURL is where profiles are served, empty if they are not.
	DebugURL string `json:"debug_url,omitempty"`
}

// New builds a server and opens its listeners. The caller must call Run.
func New(ctx context.Context, o Options) (*Server, error) {
	if err := o.Config.Validate(); err != nil {
		return nil, err
	}
	certs, err := openCertificates(ctx, o)
	if err != nil {
		return nil, err
	}
	agentTLS, err := certs.forAgents()
	if err != nil {
		return nil, err
	}
	admission, err := newAdmission(o, agentTLS)
	if err != nil {
		return nil, err
	}
	listeners, err := openListeners(o)
	if err != nil {
		return nil, err
	}
	info := newInfo(o, certs, listeners)
	id, err := replica.OpenID(disk.OS{}, o.Config.Data)
	if err != nil {
		listeners.close()
		return nil, err
	}
	services, err := newServices(ctx, o, admission,
		infra.Server{AgentsURL: info.AgentURL, Guessed: o.Config.Agents.URL == "", CA: string(certs.pem)},
		replica.Self{ID: id, Host: hostname(), Version: o.Version, Schema: o.Store.Schema(), AgentsURL: info.AgentURL, AdminURL: info.AdminURL})
	if err != nil {
		listeners.close()
		return nil, err
	}
	services.metrics.ServeCertificate(certs.tls)
	draining := make(chan struct{})
	return &Server{
		log: o.Log, info: info, tickets: certs.tickets, agentTLS: agentTLS, admission: admission, listeners: listeners, services: services, draining: draining,
		agents: newAgentServer(o, services, admission, agentTLS),
		admin:  newAdminServer(o, services, admission, info, certs, draining),
	}, nil
}

func newInfo(o Options, certs *certificates, l *listeners) Info {
	i := Info{
		Version: o.Version, Data: o.Config.Data, CAPin: certs.pin, CAFile: certs.file,
		AgentURL: baseURL(o.Config.Agents.URL, o.Config.Agents.Listen, l.agents),
		AdminURL: baseURL(o.Config.Admin.URL, o.Config.Admin.Listen, l.admin),
	}
	if l.debug != nil {
		i.DebugURL = "http://" + l.debug.Addr().String() + "/debug/pprof/"
	}
	return i
}

// Info returns the server's addresses and identity.
func (s *Server) Info() Info { return s.info }

// FirstKeys creates an admin key and an enrollment key if there is no admin key yet; ok
// reports whether it did. The admin key cannot be shown again.
func (s *Server) FirstKeys(ctx context.Context) (adminKey, enrollmentKey fleet.Credential, ok bool, err error) {
	adminKey, ok, err = s.services.access.FirstKey(ctx)
	if err != nil || !ok {
		return adminKey, enrollmentKey, false, err
	}
	enrollmentKey, err = s.services.enrollment.FirstKey(ctx)
	return adminKey, enrollmentKey, err == nil, err
}

// Run serves until ctx ends, or until the server has to stop to be upgraded with the others,
// then drains. It returns nil after an orderly shutdown, and selfupgrade.ErrStopped after the
// other.
func (s *Server) Run(ctx context.Context) error {
	// The loops outlive the listeners, so that they write what the last requests
	// reported.
	loops, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	var running sync.WaitGroup
	for _, loop := range s.services.loops() {
		running.Go(func() { loop(loops) })
	}
	running.Go(func() { s.tickets.Rotate(loops, s.agentTLS) })
	servers := s.listen()
	failed := make(chan error, len(servers))
	for _, l := range servers {
		running.Go(func() {
			if err := l.serve(); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case <-s.services.upgrade.Stopping():
		err = selfupgrade.ErrStopped
	case err = <-failed:
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), Drain)
	defer cancel()
	close(s.draining)
	// Before the HTTP servers, which do not know the parked connections and still have to
	// accept those that the parker returns.
	if perr := s.services.parker.Close(drain); perr != nil {
		s.log.Warn("some polls were not answered in time", "parked", s.services.parker.Count())
	}
	var ending sync.WaitGroup // concurrently, so that none accepts requests while another drains
	for _, l := range servers {
		ending.Go(func() {
			if l.Shutdown(drain) != nil {
				l.Close()
			}
		})
	}
	ending.Wait()
	stopLoops()
	running.Wait()
	return err
}
