package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

func testCollections(t *testing.T, cfg Config) {
	eachCollection(func(name string, c kind) { c.test(t, cfg, name) })

	t.Run("documents of different kinds may have the same id", func(t *testing.T) {
		ctx, s := t.Context(), cfg.open(t)
		must(t, s.AdminKeys().Create(ctx, fleet.AdminKey{ID: "same"}))
		must(t, s.EnrollmentKeys().Create(ctx, fleet.EnrollmentKey{ID: "same"}))
		must(t, s.AdminKeys().Delete(ctx, "same"))
		value(s.EnrollmentKeys().Get(ctx, "same"))(t)
	})
}

// eachCollection calls f with every kind of document that is stored in a Collection.
func eachCollection(f func(name string, c kind)) {
	when := func(i int) time.Time { return at(time.Duration(i) * time.Minute) }
	noun[fleet.Policy]{
		of: store.Store.Policies,
		make: func(i int) fleet.Policy {
			return fleet.Policy{
				ID: fmt.Sprint("policy-", i), Name: "Edge <1>", Namespace: "default", Description: "d", MonitoringEnabled: []string{"logs"},
				SpaceIDs: []string{"default"}, PolicyRev: 3, Revisions: []fleet.PolicyRevision{{Revision: 3, At: when(i), By: "admin"}}, InactivityTimeout: time.Hour, UnenrollTimeout: new(int64(7)),
				KeepMonitoringAlive: new(true), MonitoringPprof: new(true), MonitoringHTTP: json.RawMessage(`{"port":6791}`),
				MonitoringDiagnostics: json.RawMessage(`{"limit":{"burst":1}}`), DataOutputID: "o", MonitoringOutputID: "m",
				DownloadSourceID: "s", FleetServerHostID: "h", AgentFeatures: []fleet.AgentFeature{{Name: "fqdn", Enabled: true}},
				GlobalDataTags:   []fleet.GlobalDataTag{{Name: "site", Value: json.RawMessage(`7`)}},
				RequiredVersions: []fleet.RequiredVersion{{Version: "1.1.0", Percentage: 12.5}}, UpgradeWindows: []fleet.Window{{Days: []string{"mon"}, From: "22:00", To: "04:00", Zone: "Europe/Berlin"}},
				AdvancedSettings: json.RawMessage(`{"agent_limits_go_max_procs":2}`), Overrides: json.RawMessage(`{"agent":{}}`),
				Protected: true, Managed: true, Default: true, DefaultFleetServer: true, HasFleetServer: new(true),
				SupportsAgentless: new(true), Agentless: json.RawMessage(`{"resources":{}}`), UpdatedAt: when(i), UpdatedBy: "admin",
			}
		},
		head:   func(v *fleet.Policy) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.Policy, n int) { v.PolicyRev = int64(n) },
		mutate: func(v *fleet.Policy) { v.MonitoringEnabled[0] = "modified" },
	}.visit(f, "policies")
	noun[fleet.FleetServerHost]{
		of: store.Store.FleetServerHosts,
		make: func(i int) fleet.FleetServerHost {
			return fleet.FleetServerHost{
				ID: fmt.Sprint("host-", i), Name: "Berlin", HostURLs: []string{"https://fleet.example.com:8220"}, Default: true, Internal: new(true),
				Preconfigured: true, ProxyID: "p", Sealed: []byte{0, 1, 255},
				SSL: &fleet.HostSSL{
					CertificateAuthorities: []string{"a"}, Certificate: "c", Key: "k", ESCertificateAuthorities: []string{"ea"}, ESCertificate: "ec", ESKey: "ek",
					AgentCertificateAuthorities: []string{"aa"}, AgentCertificate: "ac", AgentKey: "ak", ClientAuth: "none",
				},
			}
		},
		head:   func(v *fleet.FleetServerHost) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.FleetServerHost, n int) { v.Name = fmt.Sprint(n) },
		mutate: func(v *fleet.FleetServerHost) { v.HostURLs[0], v.SSL.Key = "modified", "modified" },
	}.visit(f, "fleet server hosts")
	noun[fleet.DownloadSource]{
		of: store.Store.DownloadSources,
		make: func(i int) fleet.DownloadSource {
			return fleet.DownloadSource{
				ID: fmt.Sprint("source-", i), Name: "Mirror", Host: "https://mirror.example.com/", Default: true, ProxyID: "p", Sealed: []byte{0, 1, 255},
				SSL: &fleet.ClientSSL{CertificateAuthorities: []string{"a"}, Certificate: "c", Key: "k", VerificationMode: "full"},
			}
		},
		head:   func(v *fleet.DownloadSource) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.DownloadSource, n int) { v.Name = fmt.Sprint(n) },
		mutate: func(v *fleet.DownloadSource) { v.SSL.CertificateAuthorities[0] = "modified" },
	}.visit(f, "download sources")
	noun[fleet.FleetProxy]{
		of: store.Store.FleetProxies,
		make: func(i int) fleet.FleetProxy {
			return fleet.FleetProxy{
				ID: fmt.Sprint("proxy-", i), Name: "Proxy", URL: "http://proxy:3128", Headers: map[string]any{"X-Site": "berlin", "n": 7.5, "b": true},
				CertificateAuthorities: "a", Certificate: "c", CertificateKey: "k", Preconfigured: true, Sealed: []byte{0, 1, 255},
			}
		},
		head:   func(v *fleet.FleetProxy) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.FleetProxy, n int) { v.Name = fmt.Sprint(n) },
		mutate: func(v *fleet.FleetProxy) { v.Headers["X-Site"] = "modified" },
	}.visit(f, "fleet proxies")
	noun[fleet.Output]{
		of: store.Store.Outputs,
		make: func(i int) fleet.Output {
			return fleet.Output{
				ID: fmt.Sprint("output-", i), Name: "Logs", Type: fleet.OutputKafka, Hosts: []string{"kafka:9092"}, Default: true, DefaultMonitoring: true,
				Internal: new(true), Preconfigured: new(true), CASHA256: "s", CATrustedFingerprint: "f", ConfigYAML: "a: b\n", ProxyID: "p",
				SSL:     &fleet.ClientSSL{CertificateAuthorities: []string{"a"}, Certificate: "c", Key: "k", VerificationMode: "none"},
				Shipper: &fleet.OutputShipper{DiskQueueEnabled: new(true), DiskQueuePath: new("/q"), MemQueueEvents: new(7.0)}, AllowEdit: []string{"name"},
				Preset: "scale", WriteToLogsStreams: new(true), ServiceToken: "t", KibanaURL: "u", KibanaAPIKey: "k", SyncIntegrations: new(true),
				SyncUninstalledIntegrations: new(true), Version: "1.0.0", Key: "k", Compression: "gzip", CompressionLevel: new(4.0), ClientID: "Elastic",
				AuthType: "user_pass", ConnectionType: "plaintext", Username: "u", Password: "p", SASL: &fleet.OutputSASL{Mechanism: "PLAIN"},
				Partition: "hash", Random: &fleet.OutputEvents{GroupEvents: new(1.0)}, RoundRobin: &fleet.OutputEvents{GroupEvents: new(2.0)},
				Hash: &fleet.OutputHash{Hash: "h", Random: new(true)}, Topic: "t", Headers: []fleet.OutputHeader{{Key: "a", Value: "b"}},
				Timeout: new(30.0), BrokerTimeout: new(10.0), RequiredAcks: new(-1), Sealed: []byte{0, 1, 255},
			}
		},
		head:   func(v *fleet.Output) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.Output, n int) { v.Name = fmt.Sprint(n) },
		mutate: func(v *fleet.Output) { v.Hosts[0], v.Headers[0].Value = "modified", "modified" },
	}.visit(f, "outputs")
	noun[fleet.Package]{
		of: store.Store.Packages,
		make: func(i int) fleet.Package {
			return fleet.Package{
				File: fmt.Sprintf("muster-agent-1.%d.0-linux-amd64.tar.gz", i), Version: "1.0.0-SNAPSHOT", Snapshot: true, Hash: "3f2a9c", OS: "linux",
				Arch: "amd64", Size: 1 << 33, SHA256: "aa", SHA512: "bb", KeyID: "k", PushedAt: when(i), PushedBy: "admin", Signature: []byte{0, 1, 255},
				Component: "web", Runtime: "systemd",
			}
		},
		head:   func(v *fleet.Package) (string, *int64) { return v.File, &v.Revision },
		change: func(v *fleet.Package, n int) { v.Size = int64(n) },
		mutate: func(v *fleet.Package) { v.Signature[0] = 'X' },
	}.visit(f, "packages")
	noun[fleet.EnrollmentKey]{
		of: store.Store.EnrollmentKeys,
		make: func(i int) fleet.EnrollmentKey {
			return fleet.EnrollmentKey{ID: fmt.Sprint("key-", i), Hash: "aa", Sealed: []byte{0, 1, 255}, Name: "n", PolicyID: "default", Active: true, CreatedAt: when(i), ExpireAt: atPtr(time.Hour)}
		},
		head:   func(v *fleet.EnrollmentKey) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.EnrollmentKey, n int) { v.Name = fmt.Sprint(n) },
		mutate: func(v *fleet.EnrollmentKey) { *v.ExpireAt, v.Sealed[0] = base, 'X' },
	}.visit(f, "enrollment keys")
	noun[fleet.AdminKey]{
		of: store.Store.AdminKeys,
		make: func(i int) fleet.AdminKey {
			return fleet.AdminKey{
				ID: fmt.Sprint("key-", i), Hash: "aa", Name: "n", Active: true, CreatedAt: when(i), CreatedBy: "b",
				ExpireAt: atPtr(time.Hour), LastUsedAt: atPtr(time.Minute), Generation: int64(i),
			}
		},
		head:   func(v *fleet.AdminKey) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.AdminKey, n int) { v.Name = fmt.Sprint(n) },
		mutate: func(v *fleet.AdminKey) { *v.ExpireAt, *v.LastUsedAt = base, base },
	}.visit(f, "admin keys")
	noun[fleet.PublisherKey]{
		of: store.Store.PublisherKeys,
		make: func(i int) fleet.PublisherKey {
			return fleet.PublisherKey{ID: fmt.Sprintf("%016x", i), PublicKey: "RWQ", Name: "ci", AddedAt: when(i), AddedBy: "admin"}
		},
		head:   func(v *fleet.PublisherKey) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.PublisherKey, n int) { v.Name = fmt.Sprint(n) },
		mutate: func(v *fleet.PublisherKey) { v.Name = "modified" },
	}.visit(f, "publisher keys")
	noun[fleet.TrustFile]{
		of: store.Store.TrustFiles,
		make: func(i int) fleet.TrustFile {
			return fleet.TrustFile{ID: fmt.Sprintf("sha256:%064x", i), Data: []byte{0, 1, 255}, AddedAt: when(i)}
		},
		head:   func(v *fleet.TrustFile) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.TrustFile, n int) { v.Data = []byte(fmt.Sprint(n)) },
		mutate: func(v *fleet.TrustFile) { v.Data[0] = 'X' },
	}.visit(f, "trust files")
	noun[fleet.Preview]{
		of: store.Store.Previews,
		make: func(i int) fleet.Preview {
			return fleet.Preview{
				Hash: fmt.Sprintf("sha256:%064x", i), RolloutID: "r", At: when(i),
				Targets:  []fleet.PreviewTarget{{AgentID: "a", Hostname: "<h>", From: "1.0.0", To: "1.1.0", Values: []string{"berlin"}, Online: true, Bytes: 1 << 40}},
				Skipped:  []fleet.SkippedAgent{{AgentID: "b", Code: fleet.WhySame, Text: "runs 1.1.0 already"}},
				Coverage: &fleet.Coverage{Over: []string{"os"}, Cells: 3, Covered: 2, Agents: 0.975, Uncovered: []fleet.Cell{{Values: []string{"linux"}, Agents: 1}}},
				Estimate: fleet.Duration(90 * time.Second), Exposure: &fleet.Exposure{Version: "1.1.0", Limit: 5}, Warnings: []string{"w"},
			}
		},
		head:   func(v *fleet.Preview) (string, *int64) { return v.Hash, &v.Revision },
		change: func(v *fleet.Preview, n int) { v.Offline = n },
		mutate: func(v *fleet.Preview) { v.Targets[0].Values[0], v.Exposure.Limit = "modified", 9 },
	}.visit(f, "previews")
	noun[fleet.AcceptedOrder]{
		of: store.Store.AcceptedOrders,
		make: func(i int) fleet.AcceptedOrder {
			return fleet.AcceptedOrder{
				ID: fmt.Sprintf("%064x", i), Kind: "upgrade", Terms: []byte(`{"Version":"1.1.0"}`), AgentIDs: []string{"a", "b"}, Handled: 1, Entry: fleet.AuditEntry{ID: "e", At: when(i), Actor: "ann", Verb: "agent.upgrade", Subject: "act", Why: "<w>", Text: "ann did it"},
				Action: fleet.Action{ID: "act", Type: agentapi.ActionUpgrade, Data: []byte(`{"version":"1.1.0"}`), CreatedAt: when(i), CreatedBy: "ann"},
			}
		},
		head:   func(v *fleet.AcceptedOrder) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.AcceptedOrder, n int) { v.Handled = n },
		mutate: func(v *fleet.AcceptedOrder) { v.AgentIDs[0], v.Terms[2] = "modified", 'X' },
	}.visit(f, "accepted orders")
	noun[fleet.Lease]{
		of:     store.Store.Leases,
		make:   func(i int) fleet.Lease { return fleet.Lease{ID: fmt.Sprint("rollout/", i), Holder: "host-1", Beat: 1} },
		head:   func(v *fleet.Lease) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.Lease, n int) { v.Beat = int64(n) },
		mutate: func(v *fleet.Lease) { v.Holder = "modified" },
	}.visit(f, "leases")
	noun[fleet.RolloutGroup]{
		of: store.Store.RolloutGroups,
		make: func(i int) fleet.RolloutGroup {
			return fleet.RolloutGroup{
				ID: fmt.Sprint("group-", i), State: fleet.GroupRunning, Hash: "sha256:1", Generation: int64(i), CreatedAt: when(i), CreatedBy: "kim", StartedAt: atPtr(time.Minute),
				Plan: fleet.GroupPlan{
					Name: "db and app", FailurePolicy: fleet.RollbackAll, DesiredVersions: map[string]string{"db": "1.0.0"},
					Members: []fleet.GroupMemberPlan{{Name: "db", Soak: fleet.Duration(time.Hour), Plan: fleet.Plan{Name: "db", Version: "1.0.0"}}},
				},
				Members: []fleet.GroupMember{{Name: "db", State: fleet.MemberRunning, RolloutID: "r", EndedAt: atPtr(time.Hour)}},
				Stop:    &fleet.GroupStop{Kind: fleet.GroupStopDrift, Text: "t", By: "muster", At: when(i), Member: "db"},
			}
		},
		head:   func(v *fleet.RolloutGroup) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.RolloutGroup, n int) { v.Plan.Name = fmt.Sprint(n) },
		mutate: func(v *fleet.RolloutGroup) {
			v.Members[0].State, v.Plan.DesiredVersions["db"], *v.StartedAt, v.Stop.Text = fleet.MemberFailed, "2", base, "modified"
		},
	}.visit(f, "rollout groups")
	noun[fleet.DeclaredFleet]{
		of: store.Store.DeclaredFleets,
		make: func(i int) fleet.DeclaredFleet {
			return fleet.DeclaredFleet{Name: fmt.Sprint("fleet-", i), Doc: json.RawMessage(`{"apiVersion":"muster.dev/v1alpha9","spec":{"new":[1.0,"<"]}}`)}
		},
		head:   func(v *fleet.DeclaredFleet) (string, *int64) { return v.Name, &v.Revision },
		change: func(v *fleet.DeclaredFleet, n int) { v.Doc = json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)) },
		mutate: func(v *fleet.DeclaredFleet) { v.Doc[2] = 'X' },
	}.visit(f, "declared fleets")
	noun[fleet.PolicyLock]{
		of: store.Store.PolicyLocks,
		make: func(i int) fleet.PolicyLock {
			// Of the agents of a policy, or of a component of theirs.
			return fleet.PolicyLock{PolicyID: fmt.Sprint("policy-", i/2), Component: []string{"", "web"}[i%2], RolloutID: "r", At: when(i)}
		},
		head:   func(v *fleet.PolicyLock) (string, *int64) { return v.Key(), &v.Revision },
		change: func(v *fleet.PolicyLock, n int) { v.RolloutID = fmt.Sprint(n) },
		mutate: func(v *fleet.PolicyLock) { v.RolloutID = "modified" },
	}.visit(f, "policy locks")
	noun[fleet.ExposureRule]{
		of: store.Store.ExposureRules,
		make: func(i int) fleet.ExposureRule {
			return fleet.ExposureRule{
				ID: fmt.Sprint("rule-", i), Enabled: true, Percent: 12.5, HealthyHours: 1000, Per: []fleet.ExposureLabel{{Label: "site", Percent: 50}},
				UpdatedAt: when(i), UpdatedBy: "admin",
			}
		},
		head:   func(v *fleet.ExposureRule) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.ExposureRule, n int) { v.Percent = float64(n) },
		mutate: func(v *fleet.ExposureRule) { v.Per[0].Label = "modified" },
	}.visit(f, "exposure rules")
	noun[fleet.Freeze]{
		of: store.Store.Freezes,
		make: func(i int) fleet.Freeze {
			return fleet.Freeze{ID: fmt.Sprint("freeze-", i), Name: "year's end", From: base, To: at(time.Hour), CreatedAt: when(i), CreatedBy: "admin"}
		},
		head:   func(v *fleet.Freeze) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.Freeze, n int) { v.Name = fmt.Sprint(n) },
		mutate: func(v *fleet.Freeze) { v.Name = "modified" },
	}.visit(f, "freezes")
	noun[fleet.Incident]{
		of: store.Store.Incidents,
		make: func(i int) fleet.Incident {
			return fleet.Incident{
				ID: fmt.Sprint("upgrade_failed:r:a", i), Category: fleet.IncidentUpgradeFailed, Severity: "critical", State: fleet.IncidentAcked, Title: "t", Text: "<x>",
				RolloutID: "r", AgentID: "a", Hostname: "h", RecoveryPlan: "p", OpenedAt: when(i), Acked: &fleet.Decision{By: "admin", At: base, Why: "w"}, Count: 2,
			}
		},
		head:   func(v *fleet.Incident) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.Incident, n int) { v.Count = n },
		mutate: func(v *fleet.Incident) { v.Acked.By = "modified" },
	}.visit(f, "incidents")
	noun[fleet.Webhook]{
		of: store.Store.Webhooks,
		make: func(i int) fleet.Webhook {
			return fleet.Webhook{
				ID: fmt.Sprint("hook-", i), Name: "chat", URL: "https://chat.example/?a=1&b=2", Secret: "s", Events: []string{fleet.EventRolloutPaused},
				After: 1 << 40, CreatedAt: when(i), CreatedBy: "admin",
			}
		},
		head:   func(v *fleet.Webhook) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.Webhook, n int) { v.After = int64(n) },
		mutate: func(v *fleet.Webhook) { v.Events[0] = "modified" },
	}.visit(f, "webhooks")
	noun[fleet.Upload]{
		of: store.Store.Uploads,
		make: func(i int) fleet.Upload {
			return fleet.Upload{
				ID: fmt.Sprint("upload-", i), ActionID: "action", AgentID: "agent", Name: "diagnostics.zip", MIMEType: "application/zip", Size: 5,
				Requested: true, Status: fleet.UploadAwaiting, Chunks: []fleet.Chunk{{SHA256: "ab", Size: 5, Key: "cd"}}, StartedAt: when(i),
			}
		},
		head:   func(v *fleet.Upload) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.Upload, n int) { v.Size = int64(n) },
		mutate: func(v *fleet.Upload) { v.Chunks[0].Key = "modified" },
	}.visit(f, "uploads")
	noun[fleet.DeadLetter]{
		of: store.Store.DeadLetters,
		make: func(i int) fleet.DeadLetter {
			return fleet.DeadLetter{
				ID: fmt.Sprint("hook:", i), WebhookID: "hook", Type: fleet.EventRolloutPaused, Body: json.RawMessage(`{"id": "r"}`), Error: "410 Gone", Attempts: 8, At: when(i),
			}
		},
		head:   func(v *fleet.DeadLetter) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.DeadLetter, n int) { v.Attempts = n },
		mutate: func(v *fleet.DeadLetter) { v.Body[2] = 'X' },
	}.visit(f, "dead letters")
	noun[fleet.View]{
		of: store.Store.Views,
		make: func(i int) fleet.View {
			return fleet.View{ID: fmt.Sprint("view-", i), Page: "agents", Name: "Edge <1>", Search: "kuery=site%3Aams", CreatedBy: "admin", CreatedAt: when(i)}
		},
		head:   func(v *fleet.View) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.View, n int) { v.Search = fmt.Sprint(n) },
		mutate: func(v *fleet.View) { v.Name = "modified" },
	}.visit(f, "views")
	noun[fleet.AgentOrder]{
		of: store.Store.AgentOrders,
		make: func(i int) fleet.AgentOrder {
			return fleet.AgentOrder{ID: fmt.Sprint("order-", i), AgentIDs: []string{"b", "a"}, Until: when(i)}
		},
		head:   func(v *fleet.AgentOrder) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.AgentOrder, n int) { v.Until = when(n) },
		mutate: func(v *fleet.AgentOrder) { v.AgentIDs[0] = "modified" },
	}.visit(f, "agent orders")
	noun[fleet.Sample]{
		of: store.Store.Samples,
		make: func(i int) fleet.Sample {
			return fleet.Sample{ID: fmt.Sprint("sample-", i), At: when(i), Counts: map[string]map[fleet.Health]int{"1.0.0": {fleet.HealthHealthy: 7}, "": {fleet.HealthOffline: 1}}}
		},
		head: func(v *fleet.Sample) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.Sample, n int) {
			v.Counts = map[string]map[fleet.Health]int{"1.0.0": {fleet.HealthHealthy: n}}
		},
		mutate: func(v *fleet.Sample) { v.Counts["1.0.0"][fleet.HealthHealthy] = 99 },
	}.visit(f, "samples")
	noun[fleet.Server]{
		of: store.Store.Servers,
		make: func(i int) fleet.Server {
			return fleet.Server{
				ID: fmt.Sprint("server-", i), Process: "p", Host: "srv-1", Version: "1.0.0", Schema: 4, StartedAt: base, SeenAt: when(i),
				AgentsURL: "https://srv-1:8220", AdminURL: "https://srv-1:8221", Parked: 7, SharedWith: "srv-2",
			}
		},
		head:   func(v *fleet.Server) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.Server, n int) { v.Parked = n },
		mutate: func(v *fleet.Server) { v.Host = "modified" },
	}.visit(f, "servers")
	noun[fleet.ServerUpgrade]{
		of: store.Store.ServerUpgrades,
		make: func(i int) fleet.ServerUpgrade {
			return fleet.ServerUpgrade{
				ID: fmt.Sprint("upgrade-", i), Run: "r", From: "1.0.0", To: "1.1.0", Phase: fleet.ServerStop, Since: when(i), StartedAt: base, Actor: "kim",
				Intended: atPtr(time.Minute), WithoutBackup: true, Backup: "/b", Problem: "<p>", EndedAt: atPtr(time.Hour),
				Servers: []fleet.UpgradingServer{{ID: "s", Host: "srv-1", Version: "1.0.0", Reached: fleet.ServerHold, Problem: "p", StoppedAt: atPtr(time.Minute), ServedAt: atPtr(time.Hour), Before: 7, After: 6}},
			}
		},
		head:   func(v *fleet.ServerUpgrade) (string, *int64) { return v.ID, &v.Revision },
		change: func(v *fleet.ServerUpgrade, n int) { v.Problem = fmt.Sprint(n) },
		mutate: func(v *fleet.ServerUpgrade) { v.Servers[0].Host, *v.Intended = "modified", base },
	}.visit(f, "server upgrades")
}

// noun describes a kind of document to the suite.
type noun[T any] struct {
	of     func(store.Store) store.Collection[T]
	make   func(i int) T // created later for a higher i
	head   func(*T) (id string, revision *int64)
	change func(v *T, n int)
	mutate func(*T) // changes memory that a copy of the value would share
}

// kind is a noun of any type.
type kind interface {
	test(t *testing.T, cfg Config, name string)
	fill(ctx context.Context, s store.Store, n int) error
	modify(ctx context.Context, s store.Store) error
	count(ctx context.Context, s store.Store) (int, error)
}

func (n noun[T]) visit(f func(string, kind), name string) { f(name, n) }

func (n noun[T]) id(v T) string { id, _ := n.head(&v); return id }

func (n noun[T]) revision(v T) int64 { _, r := n.head(&v); return *r }

func (n noun[T]) test(t *testing.T, cfg Config, name string) {
	ctx := t.Context()

	t.Run(name+" are created, updated and deleted", func(t *testing.T) {
		c := n.of(cfg.open(t))
		want := n.make(1)
		id := n.id(want)
		_, err := c.Get(ctx, id)
		wantKind(t, err, fleet.NotFound)
		_, err = c.Update(ctx, want)
		wantKind(t, err, fleet.NotFound)
		must(t, c.Create(ctx, want))
		wantKind(t, c.Create(ctx, want), fleet.Conflict)

		n.mutate(&want)
		want = n.make(1)
		got := value(c.Get(ctx, id))(t)
		equal(t, got, want)
		n.mutate(&got)
		got = value(c.Get(ctx, id))(t)
		equal(t, got, want)

		old := got
		n.change(&got, 7)
		first := value(c.Update(ctx, got))(t)
		equal(t, value(c.Get(ctx, id))(t), got)
		n.change(&old, 8)
		_, err = c.Update(ctx, old)
		wantKind(t, err, fleet.Conflict)
		equal(t, value(c.Get(ctx, id))(t), got)

		_, revision := n.head(&got)
		*revision = first
		second := value(c.Update(ctx, got))(t) // a write that changes nothing has a revision, too
		now := value(c.Get(ctx, id))(t)
		if second == first || n.revision(now) != second {
			t.Fatalf("two updates returned the revisions %d and %d, Get returns %d", first, second, n.revision(now))
		}
		must(t, c.Delete(ctx, id))
		must(t, c.Delete(ctx, id))
		_, err = c.Get(ctx, id)
		wantKind(t, err, fleet.NotFound)
		must(t, c.Create(ctx, n.make(1)))
		_, err = c.Update(ctx, now)
		wantKind(t, err, fleet.Conflict) // the revision is that of the deleted one
	})

	t.Run(name+" are listed newest first, in pages", func(t *testing.T) {
		c := n.of(cfg.open(t))
		list, total, err := c.List(ctx, 0, 0)
		must(t, err)
		if len(list) != 0 || total != 0 {
			t.Fatalf("an empty store lists %d of %d", len(list), total)
		}
		want := []string{}
		for i := range 7 {
			must(t, c.Create(ctx, n.make(i)))
			want = append(want, n.id(n.make(i)))
		}
		slices.Reverse(want)
		for _, page := range []struct{ offset, limit, from, to int }{
			{0, 0, 0, 7}, {0, 3, 0, 3}, {3, 3, 3, 6}, {6, 3, 6, 7}, {7, 3, 7, 7}, {5, 0, 5, 7}, {9, 0, 7, 7},
		} {
			cfg.eventually(t, func() error {
				list, total, err := c.List(ctx, page.offset, page.limit)
				if err != nil || total != 7 {
					return fmt.Errorf("total is %d, want 7: %w", total, err)
				}
				got := []string{}
				for _, v := range list {
					got = append(got, n.id(v))
				}
				return differs(got, want[page.from:page.to])
			})
		}
		// The revision of a listed value can be used for an update.
		list, _, err = c.List(ctx, 0, 1)
		must(t, err)
		if alone := value(c.Get(ctx, n.id(list[0])))(t); n.revision(list[0]) != n.revision(alone) {
			t.Fatalf("List returns revision %d, Get returns %d", n.revision(list[0]), n.revision(alone))
		}
		n.change(&list[0], 9)
		value(c.Update(ctx, list[0]))(t)
	})

	t.Run("one of several concurrent updates of "+name+" succeeds", func(t *testing.T) {
		stores := cfg.openTwice(t)
		must(t, n.of(stores[0]).Create(ctx, n.make(1)))
		start := value(n.of(stores[0]).Get(ctx, n.id(n.make(1))))(t)
		var all sync.WaitGroup
		results := make([]error, 6)
		for w := range results {
			all.Go(func() {
				mine := start
				n.change(&mine, 100+w)
				_, results[w] = n.of(stores[w%2]).Update(ctx, mine)
			})
		}
		all.Wait()
		won := 0
		for w, err := range results {
			if err != nil {
				wantKind(t, err, fleet.Conflict)
				continue
			}
			won++
			want := start
			n.change(&want, 100+w)
			for _, s := range stores {
				equal(t, value(n.of(s).Get(ctx, n.id(start)))(t), want)
			}
		}
		if won != 1 {
			t.Fatalf("%d updates succeeded, want 1", won)
		}
	})
}
