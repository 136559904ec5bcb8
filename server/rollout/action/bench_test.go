//go:build unix

package action_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/server/agents/agentcache"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/testing/kit/processor"
)

// BenchmarkUpgrade runs one order for a fleet on SQLite. It reports the processor time for
// each agent, which other load on the machine changes little.
func BenchmarkUpgrade(b *testing.B) {
	const fleetSize = 5000
	service, o := benchService(b, fleetSize)
	begin := processor.Spent(b)
	b.ReportAllocs()
	for b.Loop() {
		a, err := service.Upgrade(b.Context(), o)
		if err != nil || len(a.Agents) != fleetSize {
			b.Fatal(len(a.Agents), err)
		}
	}
	b.ReportMetric(float64(processor.Spent(b)-begin)/1e3/float64(b.N*fleetSize), "cpu-µs/agent")
}

// benchService returns a service with a fleet, and an order for all of it.
func benchService(b *testing.B, fleetSize int) (*action.Service, action.UpgradeOrder) {
	b.Helper()
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "muster.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	var enrolling errgroup.Group
	enrolling.SetLimit(64)
	ids := make([]string, fleetSize)
	for i := range ids {
		a := benchAgent(i)
		ids[i] = a.ID
		enrolling.Go(func() error { return s.Agents().Create(context.Background(), a) })
	}
	if err := enrolling.Wait(); err != nil {
		b.Fatal(err)
	}
	slices.Sort(ids) // as those of a query are
	if err := s.Packages().Create(b.Context(), fleet.Package{File: "a", Version: "1.1.0", OS: "linux", Arch: "amd64"}); err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	var health storehealth.Monitor
	agentcache.New(s.OnAgentChange, health.Away)
	feed, err := action.NewFeed(b.Context(), s.Actions(), func(...string) {}, &health, log)
	if err != nil {
		b.Fatal(err)
	}
	service := &action.Service{Store: s, Health: &health, Feed: feed, Events: &event.Stream{Store: s.Events(), Log: log}, Log: log, Now: time.Now}
	return service, action.UpgradeOrder{UpgradeRequest: fleet.UpgradeRequest{Version: "1.1.0", Force: true}, AgentIDs: ids, Selected: true, Actor: "ann"}
}

// BenchmarkCancel runs the cancellation of an order for a fleet, none of which has received it.
func BenchmarkCancel(b *testing.B) {
	const fleetSize = 5000
	service, o := benchService(b, fleetSize)
	b.ReportAllocs()
	var spent float64
	for b.Loop() {
		b.StopTimer()
		a, err := service.Upgrade(b.Context(), o)
		if err != nil || len(a.Agents) != fleetSize {
			b.Fatal(len(a.Agents), err)
		}
		begin := processor.Spent(b)
		b.StartTimer()
		if _, err := service.Cancel(b.Context(), a.ID, "ann"); err != nil {
			b.Fatal(err)
		}
		spent += float64(processor.Spent(b) - begin)
	}
	b.ReportMetric(spent/1e3/float64(b.N*fleetSize), "cpu-µs/agent")
}

// benchAgent returns an agent with metadata like those of Muster's agents, 1.5 KB.
func benchAgent(i int) fleet.Agent {
	id := fmt.Sprintf("%08x-54d8-4f0a-9a55-%012x", uint32(i)*2654435761, i) //nolint:gosec // spread, not secret
	at := time.Date(2026, time.March, 3, 10, 0, i, 0, time.UTC)
	return fleet.Agent{
		ID: id, Type: "PERMANENT", Active: true, PolicyID: fmt.Sprintf("policy-%d", i%10), PolicyRev: 3,
		AccessKeyID: "k" + id, AccessKeyHash: "5f2a9c1be0d94f7c5f2a9c1be0d94f7c5f2a9c1be0d94f7c5f2a9c1be0d94f7c",
		WatcherKeyID: "w" + id, WatcherKeyHash: "5f2a9c1be0d94f7c5f2a9c1be0d94f7c5f2a9c1be0d94f7c5f2a9c1be0d94f7c",
		EnrolledAt: at, Version: "1.0.0", VersionSince: &at, HealthySince: &at, LastHealthyVersion: "1.0.0", Tags: []string{"prod", "site=berlin"},
		Last: fleet.LastSeen{At: &at, Status: "online", Message: "Running"},
		LocalMetadata: fmt.Appendf(nil, `{"elastic":{"agent":{"id":%q,"version":"1.0.0","snapshot":false,"build.original":"1.0.0 (build: 3f2a9c)","complete":true,"upgradeable":true,"log_level":"info","unprivileged":false}},`+
			`"host":{"hostname":"host-%06d.example.internal","name":"host-%06d","architecture":"x86_64","id":"5f2a9c1be0d94f7c5f2a9c1be0d94f7c","ip":["127.0.0.1/8","::1/128","10.0.0.%d/24","fe80::42:acff:fe11:2/64"],"mac":["02:42:ac:11:00:02","02:42:ac:11:00:03"]},`+
			`"os":{"family":"debian","kernel":"6.18.0-amd64","platform":"debian","version":"13 (trixie)","name":"Debian GNU/Linux","full":"Debian GNU/Linux trixie(13)","type":"linux"}}`,
			id, i, i, i%250),
		Components: []byte(`[{"id":"log-default","type":"log","status":"HEALTHY","message":"Healthy: communicating with pid '1234'","units":[{"id":"log-default","type":"output","status":"HEALTHY","message":"Healthy"},` +
			`{"id":"log-default-logfile-system-1","type":"input","status":"HEALTHY","message":"Healthy"}]},{"id":"system/metrics-default","type":"system/metrics","status":"HEALTHY","message":"Healthy: communicating with pid '1240'"}]`),
	}
}
