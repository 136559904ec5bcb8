package app

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/agents/agentcache"
	"github.com/muster-fleet/muster/server/agents/artifact"
	"github.com/muster-fleet/muster/server/agents/artifact/repository"
	"github.com/muster-fleet/muster/server/agents/beacon"
	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/agents/diagnostics"
	"github.com/muster-fleet/muster/server/agents/enrollment"
	"github.com/muster-fleet/muster/server/agents/infra"
	"github.com/muster-fleet/muster/server/agents/limit"
	"github.com/muster-fleet/muster/server/agents/policy"
	"github.com/muster-fleet/muster/server/api/access"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/incident"
	"github.com/muster-fleet/muster/server/insight/metrics"
	"github.com/muster-fleet/muster/server/insight/series"
	"github.com/muster-fleet/muster/server/insight/webhook"
	"github.com/muster-fleet/muster/server/node/replica"
	"github.com/muster-fleet/muster/server/node/retention"
	"github.com/muster-fleet/muster/server/node/selfupgrade"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/automatic"
	"github.com/muster-fleet/muster/server/rollout/configfile"
	"github.com/muster-fleet/muster/server/rollout/group"
	"github.com/muster-fleet/muster/server/rollout/reconcile"
	"github.com/muster-fleet/muster/server/rollout/spec/declare"
	specreconcile "github.com/muster-fleet/muster/server/rollout/spec/reconcile"
	"github.com/muster-fleet/muster/server/rollout/upgrademanifest"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/keyfile"
	"github.com/muster-fleet/muster/server/store/lease"
	"github.com/muster-fleet/muster/server/store/storehealth"
)

// services are the parts that the handlers call and that work in the background.
type services struct {
	store      store.Store // watched: see package audit
	health     *storehealth.Monitor
	cache      *agentcache.Cache
	parker     *checkin.EpollParker
	events     *event.Stream
	access     *access.Service
	policies   *policy.Service
	infra      *infra.Service
	policyFeed *policy.Feed
	enrollment *enrollment.Service
	trust      *repository.Service
	artifacts  *artifact.Service
	locks      rollout.Locks
	uploads    *diagnostics.Service
	feed       *action.Feed
	actions    *action.Service
	lastSeen   *checkin.LastSeen
	checkins   *checkin.Service
	beacons    *beacon.Service
	incidents  *incident.Service
	webhooks   *webhook.Service
	reconciler *reconcile.Reconciler
	rollouts   *rollout.Service
	configs    *configfile.Renderer
	groups     *group.Service
	declared   *declare.Service
	fleets     *specreconcile.Service
	automatic  *automatic.Service
	metrics    *metrics.Metrics
	retention  *retention.Service
	series     *series.Service
	replicas   *replica.Service
	upgrade    *selfupgrade.Follower
}

// newServices creates each service after those that it needs, so that nothing is set
// later. Where two services would need each other, the first gets a smaller part of the
// second, such as [rollout.Locks], which only reads the store.
func newServices(ctx context.Context, o Options, admission *limit.Admission, server infra.Server, self replica.Self) (*services, error) {
	db, log, now := audit.Watch(o.Store), o.Log, o.Now
	db.Unreadable().OnFirst(func(d store.Unreadable) {
		log.Error("a document in the store cannot be read: lists leave it out", "kind", d.Noun, "id", d.ID, "reason", d.Reason)
	})
	health := storehealth.New(db.Ping, log, now)
	cache := agentcache.New(db.OnAgentChange, health.Away)
	parker := checkin.NewEpollParker(log)
	events := &event.Stream{Store: db.Events(), Log: log, Now: now}

	trustDir := filepath.Join(o.Config.Data, "trust")
	trust, err := repository.Open(ctx, repository.Config{
		Dir: trustDir, Disk: disk.OS{}, Files: db.TrustFiles(), Settings: db.Settings(), Audit: db.Audit(), Events: events, Log: log, Now: now,
	})
	if err != nil {
		return nil, err
	}
	// After trust, which makes the folder at the first start.
	sessions, err := access.OpenSessionKey(ctx, disk.OS{}, trustDir, db.Settings(), log)
	if err != nil {
		return nil, err
	}
	admins := access.New(db, sessions, events, now)
	sealer, err := keyfile.OpenSealer(ctx, keyfile.File{Disk: disk.OS{}, Dir: trustDir, Name: keyfile.EncryptionKey, Settings: db.Settings()}, log)
	if err != nil {
		return nil, err
	}
	var readable keyfile.Sealer
	if o.Config.Enrollment.ReadableKeys {
		readable = sealer
	}
	enrollments := &enrollment.Service{Store: db, Events: events, Now: now, Sealer: readable, DefaultKeys: o.Config.Enrollment.DefaultKeys}
	policyFeed, err := policy.NewFeed(ctx, db.Policies(), parker.Parked, parker.Wake, health, log)
	if err != nil {
		return nil, err
	}
	objects := infra.Objects{Store: db, Server: server, Sealer: sealer, Tokens: infra.NewUninstallTokens(sealer.Derive("uninstall tokens"))}
	policies := &policy.Service{
		Store: db, Events: events, Keys: enrollments, Objects: objects, Removals: action.Removals{Store: db, PerHour: o.Config.Admin.RemovalsPerHour, Now: now},
		Changed: policyFeed.Signal, Now: now,
	}
	if err := policies.EnsureDefault(ctx); err != nil {
		return nil, err
	}
	if err := enrollments.CreateDefaultKeys(ctx); err != nil {
		return nil, err
	}
	policyChanges := &policy.Changes{Feed: policyFeed, Render: policies.Render, Now: now}
	artifacts := &artifact.Service{
		Dir: o.Config.PackagesDir(), Disk: disk.OS{}, MaxSize: artifact.MaxPackage, Store: db, Trust: trust, Health: health, Events: events, Log: log, Now: now,
	}
	if err := artifacts.CleanUp(); err != nil {
		return nil, err
	}

	uploads := &diagnostics.Service{Store: db, Dir: o.Config.UploadsDir(), Disk: disk.OS{}, Now: now}

	locks := rollout.Locks{Store: db}
	feed, err := action.NewFeed(ctx, db.Actions(), parker.Wake, health, log)
	if err != nil {
		return nil, err
	}
	wake := specreconcile.NewWake()
	declarations := declare.Config{Store: db, Policies: policies, Events: events, Changed: wake.Signal, Log: log, Now: now}
	owners := declare.NewOwners(declarations)
	var orders *lease.Owner
	// The servers that share a store tell each other which connections were closed.
	servers := replica.Config{Servers: db.Servers(), Audit: db.Audit(), Self: self, Parked: parker.Count, Health: health, Log: log, Now: now}
	shares := db.PackageData() != nil // otherwise the store belongs to this server, which all agents poll
	if shares {
		servers.Closed = func(now time.Time) []fleet.ClosedConnection { return checkin.ClosedHere(parker, now) }
	}
	replicas := replica.New(servers)
	connections := checkin.Connections{Parker: parker, Health: health, Since: now.UTC(), Now: now}
	if shares {
		connections.Closed = replicas.ClosedAt
		orders = &lease.Owner{Leases: db.Leases(), Name: fleet.NewID(), TTL: lease.DefaultTTL, Renew: lease.DefaultRenew, Now: now}
	}
	actions := &action.Service{Store: db, Feed: feed, Lease: orders, Owners: owners, Trust: trust, Locks: locks, Guards: rollout.Guards{Store: db}, RemovalsPerHour: o.Config.Admin.RemovalsPerHour, Release: parker.Release, Health: health, Sealer: sealer, Events: events, Log: log, Now: now}

	generation, err := store.Generation(ctx, db.Settings())
	if err != nil {
		return nil, err
	}
	lastSeen := &checkin.LastSeen{Agents: db.Agents(), Parker: parker, Cache: cache, Health: health, Log: log}
	checkins := &checkin.Service{
		Agents: db.Agents(), Actions: db.Actions(), Results: db.Results(), Pending: feed, Parker: parker, LastSeen: lastSeen, Cache: cache, Health: health,
		Policies: policyChanges, Sealer: sealer, Events: events, Log: log, Now: now, Generation: generation, Poll: o.Config.Check.Poll, PollJitter: o.Config.Check.PollJitter,
	}
	beacons := &beacon.Service{Agents: db.Agents(), Events: events, Now: now}

	incidents := &incident.Service{Store: db.Incidents(), Agents: db.Agents(), Rollouts: db.Rollouts(), Targets: db.Targets(), Events: events, Audit: db.Audit(), Log: log, Now: now}
	manifests := upgrademanifest.Dir{Path: o.Config.UpgradesDir()}
	configs := &configfile.Renderer{UpgradeManifests: manifests, Packages: actions.CatalogOf, Actions: db.Actions(), Now: now}
	reconciler := reconcile.New(reconcile.Config{
		Store: db, Actions: actions, Policies: policies, Renderer: configs, Incidents: incidents, Health: health, LeaseOwner: fleet.NewID(), Connections: connections.Of, Events: events, Log: log, Now: now,
	})
	rollouts := &rollout.Service{
		Store: db, Actions: actions, Policies: policies, UpgradeManifests: manifests, Renderer: configs, Reconciler: reconciler, Owners: owners, Connections: connections.Of,
		Defaults: o.Config.Rollouts.Defaults.Defaults, Events: events, Log: log, Now: now,
	}
	declarations.Rollouts = rollouts
	declared := declare.New(declarations)
	fleets := specreconcile.New(specreconcile.Config{
		Objects: declared, Wake: wake, Store: db, Rollouts: rollouts, Lease: &lease.Owner{Leases: db.Leases(), Name: fleet.NewID(), TTL: lease.DefaultTTL, Renew: lease.DefaultRenew, Now: now},
		Log: log, Now: now,
	})
	groups := group.New(group.Config{
		Store: db, Rollouts: rollouts, Lease: &lease.Owner{Leases: db.Leases(), Name: fleet.NewID(), TTL: lease.DefaultTTL, Renew: lease.DefaultRenew, Now: now},
		Events: events, Log: log, Now: now,
	})
	upgrades := &automatic.Service{
		Store: db, Rollouts: rollouts, Lease: &lease.Owner{Leases: db.Leases(), Name: fleet.NewID(), TTL: lease.DefaultTTL, Renew: lease.DefaultRenew, Now: now},
		Log: log, Now: now,
	}
	allowed, err := o.Config.Webhooks.allowed()
	if err != nil {
		return nil, err
	}
	webhooks := &webhook.Service{Store: db, Transport: webhook.NewTransport(allowed), Events: events, Log: log, Now: now}
	keep := &retention.Service{
		Store: db, Lease: &lease.Owner{Leases: db.Leases(), Name: fleet.NewID(), TTL: lease.DefaultTTL, Renew: lease.DefaultRenew, Now: now},
		Limits: nil, Uploads: uploads.Expire, Log: log, Now: now,
	}
	samples := &series.Service{
		Agents: db.Agents(), Samples: db.Samples(), Timeouts: policies.Timeouts,
		Lease: &lease.Owner{Leases: db.Leases(), Name: fleet.NewID(), TTL: lease.DefaultTTL, Renew: lease.DefaultRenew, Now: now}, Log: log, Now: now,
	}
	var machine selfupgrade.Machine = selfupgrade.NoMachine{}
	if o.Machine != nil {
		machine = o.Machine
	}
	upgrade := selfupgrade.New(selfupgrade.Config{
		Upgrades: db.ServerUpgrades(), Servers: db.Servers(), Leases: db.Leases(), Audit: db.Audit(), Records: selfupgrade.Records{Disk: disk.OS{}, Data: o.Config.Data, Log: log}, Machine: machine,
		Self: selfupgrade.Me{ID: self.ID, Host: self.Host, Version: self.Version, Serving: true, Record: selfupgrade.Record{}}, Parked: parker.Count, Away: health.Away, Log: log, Now: now,
	})
	counters := metrics.New(db, events, now, metrics.Store(health), metrics.Limits(admission, parker.Count))

	objectChanges := &infra.Service{Objects: objects, Policies: policies, Now: now}
	// Without it the server serves all the same, and tries again at its next start.
	if err := objectChanges.OneDefault(ctx); err != nil {
		log.Warn("cannot make sure that one host, source and output is the default: the newest of several is used", "error", err)
	}
	if err := objectChanges.NoticeConfiguration(ctx, serverName(o.Config.Data)); err != nil {
		log.Warn("cannot compare agents.url and the CA with those of the last start: agents do not learn of a change until their policy changes", "error", err)
	}

	return &services{
		store: db, health: health, cache: cache, parker: parker, events: events, access: admins, policies: policies, infra: objectChanges, policyFeed: policyFeed, enrollment: enrollments, trust: trust, artifacts: artifacts,
		locks: locks, uploads: uploads, feed: feed, actions: actions, lastSeen: lastSeen, checkins: checkins, beacons: beacons,
		incidents: incidents, reconciler: reconciler, rollouts: rollouts, configs: configs, groups: groups, declared: declared, fleets: fleets, automatic: upgrades, webhooks: webhooks, metrics: counters, retention: keep, series: samples, replicas: replicas, upgrade: upgrade,
	}, nil
}

// serverName returns a name that no other server of the store has: two on one machine have
// different folders.
func serverName(data string) string {
	if abs, err := filepath.Abs(data); err == nil {
		data = abs
	}
	return hostname() + ":" + data
}

func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

// loops returns the background loops. Each runs until its context ends.
func (s *services) loops() []func(context.Context) {
	return []func(context.Context){
		s.health.Run, s.events.Run, s.feed.Run, s.policyFeed.Run, s.lastSeen.Run, s.actions.ReconcileUpgrades, s.actions.CarryOutOrders, s.actions.EndOrdersOfLeavers, s.trust.Run, s.artifacts.Run, s.reconciler.Run, s.groups.Run, s.fleets.Run, s.automatic.Run, s.incidents.Run, s.incidents.CloseRun, s.webhooks.Run, s.metrics.Run, s.retention.Run, s.series.Run, s.replicas.Run, s.upgrade.Run,
	}
}
