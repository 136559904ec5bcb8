package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/muster-fleet/muster/server/agents/limit"
	"github.com/muster-fleet/muster/server/api/admin"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/api/agents"
	"github.com/muster-fleet/muster/server/api/httpapi"
	"github.com/muster-fleet/muster/server/insight/attention"
	"github.com/muster-fleet/muster/server/insight/attention/facts"
	"github.com/muster-fleet/muster/server/insight/history"
	"github.com/muster-fleet/muster/server/insight/inventory"
	"github.com/muster-fleet/muster/server/insight/view"
	"github.com/muster-fleet/muster/server/node/authority"
	"github.com/muster-fleet/muster/server/node/debug"
	"github.com/muster-fleet/muster/server/node/replica"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/ui"
)

// newAgentServer serves the agent protocol.
func newAgentServer(o Options, s *services, admission *limit.Admission, config *tls.Config) *http.Server {
	routes := &agents.Handlers{
		API: httpapi.API{Log: o.Log}, Agents: o.Store.Agents(), Enrollment: s.enrollment, Checkin: s.checkins, Actions: s.actions, Beacons: s.beacons, Policies: s.policies,
		Artifacts: s.artifacts, Trust: s.trust, Uploads: s.uploads, Cache: s.cache, Health: s.health, Limits: admission, Version: o.Version,
	}
	server := httpapi.NewServer(routes.Handler(), o.Log)
	server.TLSConfig = config
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if limit.HTTP2(c) {
			ctx = httpapi.ConnContext(ctx, c)
		}
		return s.parker.ConnContext(limit.ConnContext(ctx, c), c)
	}
	// net/http buffers this much of a body before the handler has authenticated the
	// request. With HTTP/1.1, which nearly all agents use, it is 4 KiB, too.
	server.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 4 << 10, MaxReceiveBufferPerConnection: 64 << 10}
	return server
}

// newAdminServer serves the admin API and the web UI. Its streams end when draining is
// closed.
func newAdminServer(o Options, s *services, admission *limit.Admission, info Info, certs *certificates, draining <-chan struct{}) *http.Server {
	agents := &inventory.Service{Store: s.store, Timeouts: s.policies.Timeouts, Catalog: s.actions.Catalog, Now: o.Now}
	past := &history.Service{Store: s.store, Agents: agents, Now: o.Now}
	judged := &facts.Reader{
		Store: s.store, Agents: agents, History: past, Trust: s.trust, Declared: s.declared, Incidents: s.incidents, Servers: s.aboutServers(certs.renewedElsewhere), Now: o.Now,
	}
	routes := &admin.Handlers{
		API: httpapi.API{Log: o.Log, PlainCodes: true}, Trail: audit.Trail{Store: s.store}, Access: s.access, Enrollment: s.enrollment, Policies: s.policies, Infra: s.infra, Actions: s.actions,
		Artifacts: s.artifacts, Trust: s.trust, Uploads: s.uploads, Events: s.events, Rollouts: s.rollouts, Configs: s.configs, Groups: s.groups, Declared: s.declared, Locks: s.locks, Incidents: s.incidents, Webhooks: s.webhooks, Replicas: s.replicas, Series: s.series, Settings: o.Config.Settings(effectiveSettings(o, admission, info)), Refuses: s.upgrade.Refuses, Health: s.health,
		Metrics: s.metrics.Handler(), UI: ui.Handler(), Server: adminapi.Server{Version: o.Version, AgentUrl: info.AgentURL, CaPin: info.CAPin}, CA: certs.pem, Inventory: agents, Views: &view.Service{Store: s.store, Now: o.Now}, History: past, Attention: judged,
		KibanaVersion: o.Config.Admin.KibanaVersion,
		Limits:        admission, Parked: s.parker.Count, Draining: draining, Now: o.Now,
	}
	server := httpapi.NewServer(routes.Handler(), o.Log)
	server.TLSConfig = certs.tls
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return limit.ConnContext(httpapi.ConnContext(ctx, c), c)
	}
	return server
}

// aboutServers returns a function that says what a person should know of the servers, and of this
// one's certificate, which leaf returns while the server cannot renew it itself.
func (s *services) aboutServers(leaf func() *x509.Certificate) func(context.Context, time.Time) ([]string, []attention.Expiry, error) {
	return func(ctx context.Context, now time.Time) (remarks []string, expiries []attention.Expiry, err error) {
		servers, err := s.replicas.List(ctx)
		if c := leaf(); c != nil && !now.Before(authority.WarnFrom(c)) {
			expiries = append(expiries, attention.Expiry{
				Kind: attention.Server, What: "The certificate of this server", At: c.NotAfter,
				Effect: "then no agent and no operator can connect", Next: "Install another one: muster ca --help, or replace the file tls.certificate.",
			})
		}
		return replica.Remarks(servers, now), expiries, err
	}
}

// effectiveSettings returns what the server derives for keys that are not configured.
func effectiveSettings(o Options, admission *limit.Admission, info Info) map[string]string {
	l := admission.Limits
	return map[string]string{
		"upgrades": o.Config.UpgradesDir(), "agents.url": info.AgentURL, "admin.url": info.AdminURL,
		"limits.max_agents": fmt.Sprint(l.Agents), "limits.max_handshakes": fmt.Sprint(l.Handshakes), "limits.handshakes_per_second": fmt.Sprint(l.HandshakesPerSecond),
		"limits.max_checkins": fmt.Sprint(l.Checkins), "limits.max_reports": fmt.Sprint(l.Reports), "limits.max_enrollments": fmt.Sprint(l.Enrollments),
		"limits.max_downloads": fmt.Sprint(l.Downloads), "limits.enrollments_per_second": fmt.Sprint(l.EnrollmentsPerSecond), "limits.enrollments_per_hour": fmt.Sprint(l.EnrollmentsPerHour),
		"limits.memory_bytes": fmt.Sprint(l.MemoryBytes),
	}
}

// listening is an HTTP server with the function that serves until it is shut down.
type listening struct {
	*http.Server
	serve func() error
}

// listen starts to accept connections of agents and returns the HTTP servers. The
// admission's listener limits the rate of agents' handshakes; the parker's listener on top
// of it also returns parked connections that have another request.
func (s *Server) listen() []listening {
	admin := limit.AdminListener(s.listeners.admin)
	agents := s.services.parker.Listener(s.admission.Listener(s.listeners.agents, s.agentTLS, s.log))
	all := []listening{
		{s.agents, func() error { return s.agents.Serve(agents) }},
		{s.admin, func() error { return s.admin.ServeTLS(admin, "", "") }},
	}
	if s.listeners.debug != nil {
		server := httpapi.NewServer(debug.Handler(), s.log)
		all = append(all, listening{server, func() error { return server.Serve(s.listeners.debug) }})
	}
	return all
}
