// Package replica is one muster server: it builds the parts in order, serves
// both listeners, and shuts down in reverse. It is a package of its own, apart
// from the main program, so that a test can run several in one process over
// listeners and clocks of its own.
package replica

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/server/access"
	"github.com/muster-fleet/muster/server/action"
	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/agentcache"
	"github.com/muster-fleet/muster/server/artifact"
	"github.com/muster-fleet/muster/server/artifact/repository"
	"github.com/muster-fleet/muster/server/authority"
	"github.com/muster-fleet/muster/server/beacon"
	"github.com/muster-fleet/muster/server/checkin"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/enrollment"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/httpapi"
	"github.com/muster-fleet/muster/server/httpapi/admin"
	"github.com/muster-fleet/muster/server/httpapi/agents"
	"github.com/muster-fleet/muster/server/incident"
	"github.com/muster-fleet/muster/server/limit"
	"github.com/muster-fleet/muster/server/metrics"
	"github.com/muster-fleet/muster/server/policy"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/reconcile"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/storehealth"
	"github.com/muster-fleet/muster/server/upgrademanifest"
	"github.com/muster-fleet/muster/server/webhook"
	"github.com/muster-fleet/muster/ui"
)

// Drain is how long a shutdown may take: parked polls are answered at once, so
// this is for downloads and requests under way.
const Drain = 10 * time.Second

// Options are what a replica is made of.
type Options struct {
	Config Config
	// Store is required; the replica does not close it.
	Store   store.Store
	Version string
	Log     *slog.Logger
	// AgentListener and AdminListener replace listening on the configured
	// addresses. They carry plain connections; TLS is put on top.
	AgentListener net.Listener
	AdminListener net.Listener
	Now           clock.Clock
}

// Replica is a server that is ready to run.
type Replica struct {
	opts       Options
	log        *slog.Logger
	parker     *checkin.EpollParker
	lastSeen   *checkin.LastSeen
	feed       *action.Feed
	events     *event.Stream
	actions    *action.Service
	enroll     *enrollment.Service
	access     *access.Service
	reconciler *reconcile.Reconciler
	webhooks   *webhook.Service
	metrics    *metrics.Metrics
	trust      *repository.Service
	artifacts  *artifact.Service
	health     *storehealth.Monitor
	cache      *agentcache.Cache
	admission  *limit.Admission
	tickets    *authority.Tickets

	agentTLS                     *tls.Config  // in use: its session tickets' keys change
	debugListener                net.Listener // nil without debug.listen
	debugServer                  *http.Server
	agentListener, adminListener net.Listener
	agentServer, adminServer     *http.Server
	draining                     chan struct{} // closed when Run begins to end
	info                         Info
}

// Info is where a running replica is found.
type Info struct {
	Version  string `json:"version"`
	AgentURL string `json:"agent_url"`
	AdminURL string `json:"admin_url"`
	CAPin    string `json:"ca_pin"`
	// CAFile is the CA's certificate, empty with an operator's own.
	CAFile string `json:"ca_file,omitempty"`
	Data   string `json:"data"`
	// DebugURL is where profiles are served, empty if nowhere.
	DebugURL string `json:"debug_url,omitempty"`
}

// New builds a replica and opens its listeners; Run must follow.
func New(ctx context.Context, o Options) (_ *Replica, err error) {
	if err := o.Config.Validate(); err != nil {
		return nil, err
	}
	r := &Replica{opts: o, log: o.Log, parker: checkin.NewEpollParker(o.Log), draining: make(chan struct{})}
	r.health = storehealth.New(o.Store.Ping, o.Log, o.Now)
	r.cache = agentcache.New(o.Store.OnAgentChange, r.health.Away)
	tlsConfig, err := r.certificates(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.limits(tlsConfig); err != nil {
		return nil, err
	}
	if r.agentListener, err = listen(o.AgentListener, "agents.listen", o.Config.Agents.Listen, "--agents-listen"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.agentListener.Close()
			if r.adminListener != nil {
				r.adminListener.Close()
			}
			if r.debugListener != nil {
				r.debugListener.Close()
			}
		}
	}()
	if r.adminListener, err = listen(o.AdminListener, "admin.listen", o.Config.Admin.Listen, "--admin-listen"); err != nil {
		return nil, err
	}
	if err := r.listenDebug(); err != nil {
		return nil, err
	}
	r.info.Version, r.info.Data = o.Version, o.Config.Data
	r.info.AgentURL = baseURL(o.Config.Agents.URL, o.Config.Agents.Listen, r.agentListener)
	r.info.AdminURL = baseURL(o.Config.Admin.URL, o.Config.Admin.Listen, r.adminListener)
	r.warnOfJournal()
	if err := r.build(ctx, tlsConfig); err != nil {
		return nil, err
	}
	return r, nil
}

// warnOfJournal tells operators what they may find of earlier versions, which kept
// agents' messages on disk while the store was away.
func (r *Replica) warnOfJournal() {
	if r.opts.Config.Outage != nil {
		r.log.Warn("the key outage of the configuration has no meaning any more: agents keep what the store cannot take, and send it again")
	}
	dir := filepath.Join(r.opts.Config.Data, "outage")
	if left, _ := filepath.Glob(filepath.Join(dir, "*.journal")); len(left) > 0 {
		r.log.Warn("an earlier version has left a journal of agents' messages, which is not used: agents send their results again. Remove the folder", "dir", dir)
	}
}

func (r *Replica) build(ctx context.Context, tlsConfig *tls.Config) error {
	o, s := r.opts, r.opts.Store
	r.events = &event.Stream{Store: s.Events(), Log: r.log, Now: o.Now}
	policies := &policy.Service{Store: s, Events: r.events, Now: o.Now}
	if err := policies.EnsureDefault(ctx); err != nil {
		return err
	}
	var err error
	if r.access, err = access.New(ctx, s, o.Now); err != nil {
		return err
	}
	if r.feed, err = action.NewFeed(ctx, s.Actions(), r.parker.Wake, r.health, r.log); err != nil {
		return err
	}
	r.lastSeen = &checkin.LastSeen{Agents: s.Agents(), Parker: r.parker, Cache: r.cache, Health: r.health, Log: r.log}
	r.actions = &action.Service{Store: s, Feed: r.feed, Events: r.events, Log: r.log, Now: o.Now, Health: r.health}
	r.enroll = &enrollment.Service{Store: s, Events: r.events, Now: o.Now}
	r.artifacts = &artifact.Service{Dir: o.Config.PackagesDir(), Disk: disk.OS{}, Store: s, Events: r.events, Log: r.log, Now: o.Now, Health: r.health}
	if err := r.artifacts.CleanUp(); err != nil {
		return err
	}
	if r.trust, err = repository.Open(ctx, &repository.Service{
		Dir: filepath.Join(o.Config.Data, "trust"), Disk: disk.OS{}, Files: s.TrustFiles(), Settings: s.Settings(), Events: r.events, Log: r.log, Now: o.Now,
	}); err != nil {
		return err
	}
	r.artifacts.Rooted, r.actions.Judge = r.trust.Rooted, r.trust.Judge
	check := &checkin.Service{
		Agents: s.Agents(), Actions: s.Actions(), Results: s.Results(), Inbox: r.feed, Parker: r.parker, LastSeen: r.lastSeen, Events: r.events, Log: r.log, Now: o.Now,
		Cache: r.cache, Health: r.health, Poll: o.Config.Check.Poll, PollJitter: o.Config.Check.PollJitter,
	}
	beacons := &beacon.Service{Agents: s.Agents(), Events: r.events, Now: o.Now}
	agentRoutes := &agents.Handlers{
		API: httpapi.API{Log: r.log}, Agents: s.Agents(), Cache: r.cache, Health: r.health, Enrollment: r.enroll, Checkin: check, Actions: r.actions, Artifacts: r.artifacts, Version: o.Version,
		Beacons: beacons, Trust: r.trust, Limits: r.admission,
	}
	incidents := &incident.Service{Store: s.Incidents(), Events: r.events, Audit: s.Audit(), Log: r.log, Now: o.Now}
	r.webhooks = &webhook.Service{Store: s, Events: r.events, Log: r.log, Now: o.Now}
	r.metrics = metrics.New(s, r.events, o.Now)
	r.metrics.WatchStore(r.health)
	r.metrics.WatchLimits(r.admission, r.parker.Count)
	r.reconciler = &reconcile.Reconciler{Store: s, Actions: r.actions, Events: r.events, Log: r.log, Now: o.Now, Holder: fleet.NewID(), Timeouts: policies.Timeouts, Incidents: incidents, Health: r.health}
	rollouts := &rollout.Service{
		Store: s, Actions: r.actions, Events: r.events, Log: r.log, Now: o.Now, Timeouts: policies.Timeouts, Signal: r.reconciler.Signal,
		Manifests: upgrademanifest.Dir{Path: o.Config.UpgradesDir()},
	}
	r.actions.Locks = rollouts.Locked
	adminRoutes := &admin.Handlers{
		API: httpapi.API{Log: r.log, PlainCodes: true}, Store: s, Access: r.access, Enrollment: r.enroll, Policies: policies,
		Actions: r.actions, Artifacts: r.artifacts, Trust: r.trust, Events: r.events,
		Rollouts: rollouts, Incidents: incidents, Webhooks: r.webhooks, Health: r.health, Metrics: r.metrics.Handler(), UI: ui.Handler(), Now: o.Now, Draining: r.draining,
		Limits: r.admission, Parked: r.parker.Count,
		Server: adminapi.Server{Version: o.Version, AgentUrl: r.info.AgentURL, CaPin: r.info.CAPin},
	}
	r.agentServer = httpapi.NewServer(agentRoutes.Handler(), r.log)
	r.adminServer = httpapi.NewServer(adminRoutes.Handler(), r.log)
	r.agentServer.TLSConfig, r.adminServer.TLSConfig = r.agentTLS, tlsConfig
	r.agentServer.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return r.parker.ConnContext(limit.ConnContext(ctx, c), c)
	}
	return nil
}

func listen(given net.Listener, key, addr, flag string) (net.Listener, error) {
	if given != nil {
		return given, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: is another server running? choose another address with %s", key, err, flag)
	}
	return l, nil
}

// baseURL is what to connect to: as configured, or the host's name where the
// listener takes connections from everywhere.
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

// Info says where the replica is found.
func (r *Replica) Info() Info { return r.info }

// FirstKeys makes an admin key and an enrollment key, if there is no admin key
// yet; ok says that it did. Their credentials are shown this once.
func (r *Replica) FirstKeys(ctx context.Context) (adminKey, enrollmentKey fleet.Credential, ok bool, err error) {
	adminKey, ok, err = r.access.FirstKey(ctx)
	if err != nil || !ok {
		return adminKey, enrollmentKey, false, err
	}
	_, enrollmentKey, err = r.enroll.CreateKey(ctx, "first key", fleet.DefaultPolicyID, 0, "muster")
	return adminKey, enrollmentKey, err == nil, err
}

// Run serves until ctx ends, then drains. It returns nil after an orderly end.
func (r *Replica) Run(ctx context.Context) error {
	// The loops outlive the listeners, so that what the last requests said is
	// written.
	loops, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	var running sync.WaitGroup
	for _, loop := range []func(context.Context){r.events.Run, r.feed.Run, r.lastSeen.Run, r.actions.Settle, r.trust.Run, r.artifacts.Run, r.reconciler.Run, r.webhooks.Run, r.metrics.Run, r.health.Run} {
		running.Go(func() { loop(loops) })
	}
	running.Go(func() { r.tickets.Rotate(loops, r.agentTLS) })
	servers := r.servers()
	failed := make(chan error, len(servers))
	for _, s := range servers {
		running.Go(func() {
			if err := s.serve(); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), Drain)
	defer cancel()
	close(r.draining)
	// Before the servers: they know nothing of connections that are parked, and take
	// those that come back.
	if perr := r.parker.Close(drain); perr != nil {
		r.log.Warn("some polls were not answered in time", "parked", r.parker.Count())
	}
	var ending sync.WaitGroup // at once, so that neither takes new requests while the other drains
	for _, s := range servers {
		ending.Go(func() {
			if s.Shutdown(drain) != nil {
				s.Close()
			}
		})
	}
	ending.Wait()
	stopLoops()
	running.Wait()
	return err
}
