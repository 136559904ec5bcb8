package daemon

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakeserver"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

func (m *machine) ask(r probe.UpgradeRequest) error {
	return probe.Client{Dial: probe.DialSocket(m.top)}.Upgrade(context.Background(), r)
}

// commit commits the new version and keeps the previous one, as the watcher does.
func (m *machine) commit() {
	m.t.Helper()
	mk, err := handoff.ReadMarker(disk.OS{}, m.top)
	if err != nil || mk == nil {
		m.t.Fatalf("marker %v, %v", mk, err)
	}
	v, err := handoff.ReadVersions(disk.OS{}, m.top)
	if err == nil {
		v.Add(handoff.Version{Install: mk.From, ReplacedAt: time.Now()})
		err = handoff.WriteVersions(disk.OS{}, m.top, v)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.end(handoff.Committed, nil)
}

func offers(c fakeserver.Checkin, version string) bool {
	return c.Upgrade != nil && len(c.Upgrade.Rollbacks) == 1 && c.Upgrade.Rollbacks[0].Version == version &&
		time.Until(c.Upgrade.Rollbacks[0].ValidUntil) > 6*24*time.Hour
}

func runs(c fakeserver.Checkin, version string) bool { return c.UserAgent == "Elastic Agent v"+version }

func TestRollbackToTheKeptVersion(t *testing.T) {
	m := newMachine(t)
	m.publish("1.1.0")
	m.start()
	if err := m.ask(probe.UpgradeRequest{Rollback: true}); err == nil || !strings.Contains(err.Error(), "no earlier version is kept") {
		t.Errorf("without a previous version: %v", err)
	}
	m.server.Upgrade("a1", "1.1.0")
	m.lastIs("1.1.0 is watched, and the previous version is offered", func(c fakeserver.Checkin) bool {
		return runs(c, "1.1.0") && state(c) == agentapi.UpgradeWatching && offers(c, "1.0.0")
	})
	m.commit()
	m.lastIs("1.1.0 is kept", func(c fakeserver.Checkin) bool { return c.UpgradeDetails == nil && offers(c, "1.0.0") })

	m.server.Send(agentapi.Action{ID: "r0", Type: agentapi.ActionUpgrade, CreatedAt: time.Now(), Data: []byte(`{"version":"0.9.0","rollback":true}`)})
	if a := m.ack("r0"); !strings.Contains(a.Error, "0.9.0 is neither staged nor kept on this host, which has 1.0.0") {
		t.Errorf("ack %+v", a)
	}
	m.server.Send(agentapi.Action{ID: "r1", Type: agentapi.ActionUpgrade, CreatedAt: time.Now(), Data: []byte(`{"version":"1.0.0","rollback":true}`)})
	m.lastIs("1.0.0 is watched", func(c fakeserver.Checkin) bool {
		return runs(c, "1.0.0") && state(c) == agentapi.UpgradeWatching && c.UpgradeDetails.ActionID == "r1" && offers(c, "1.1.0")
	})
	if a := m.ack("r1"); a.Error != "" {
		t.Errorf("ack %+v", a)
	}
	for _, c := range m.server.Checkins() {
		if c.UpgradeDetails != nil && c.UpgradeDetails.ActionID == "r1" && c.UpgradeDetails.State == agentapi.UpgradeDownloading {
			t.Error("a rollback says that it downloads")
		}
	}
}

// What runs and what is kept are builds of one version.
func TestRollbackToAnotherBuildOfTheVersion(t *testing.T) {
	m := newMachine(t)
	exe, err := filepath.EvalSymlinks(layout.Path(m.top, layout.AgentLink))
	if err != nil {
		t.Fatal(err)
	}
	running, err := RunningVersion(disk.OS{}, m.top, exe, "dev")
	if err != nil {
		t.Fatal(err)
	}
	p, err := install.Unpack(t.Context(), disk.OS{}, m.publishBuild("1.0.0", "an earlier build"), m.top)
	if err != nil {
		t.Fatal(err)
	}
	kept := handoff.Install{Identity: p.Identity(), Home: p.Home()}
	if err := handoff.WriteVersions(disk.OS{}, m.top, handoff.Versions{OnHost: []handoff.Version{{Install: kept, ReplacedAt: time.Now()}}}); err != nil {
		t.Fatal(err)
	}
	m.start()
	m.health("the other build is kept", func(h probe.Health) bool {
		return h.Identity == running.Identity && len(h.Rollbacks) == 1 && h.Rollbacks[0].Build() == kept.Identity.String()
	})
	if err := m.ask(probe.UpgradeRequest{Rollback: true, Version: running.Identity.String()}); err == nil || !strings.Contains(err.Error(), "already runs here") {
		t.Errorf("a rollback to the build that runs: %v", err)
	}
	if err := m.ask(probe.UpgradeRequest{Rollback: true, Version: kept.Identity.String()}); err != nil {
		t.Fatal(err)
	}
	m.health("the other build is watched", func(h probe.Health) bool {
		return h.Identity == kept.Identity && h.Upgrade != nil && h.Upgrade.State == string(agentapi.UpgradeWatching)
	})
	m.commit()
	m.health("the other build runs", func(h probe.Health) bool {
		return h.Identity == kept.Identity && h.Upgrade == nil && has(h, "1.0.0 running", "1.0.0 previous")
	})
	if err := m.socket().Remove(t.Context(), probe.RemoveRequest{Version: running.Identity.String()}); err != nil {
		t.Fatal(err)
	}
	m.health("it is alone", func(h probe.Health) bool { return h.Identity == kept.Identity && has(h, "1.0.0 running") })
}

// The watcher is not to take a restart by an operator for a crash.
func TestOrderlyStopIsCountedDuringAWatch(t *testing.T) {
	m := newMachine(t)
	m.publish("1.1.0")
	stops := func(want int) {
		t.Helper()
		if n := handoff.Stops(disk.OS{}, m.top); n != want {
			t.Errorf("%d orderly stops are counted, want %d", n, want)
		}
	}
	m.start()
	m.stop()
	stops(0)
	m.start()
	m.server.Upgrade("a1", "1.1.0")
	watched := func(c fakeserver.Checkin) bool { return runs(c, "1.1.0") && state(c) == agentapi.UpgradeWatching }
	m.lastIs("1.1.0 is watched", watched)
	stops(0) // the restart into the new version is none
	for n := range 2 {
		m.stop()
		stops(n + 1)
		m.start()
	}
	m.health("it is watched", func(h probe.Health) bool { return h.Upgrade != nil })
	m.commit()
	m.health("it is committed", func(h probe.Health) bool { return h.Upgrade == nil })
	m.stop()
	stops(2)
}

func TestRollbackDuringAWatchIsDoneByTheWatcher(t *testing.T) {
	m := newMachine(t)
	m.publish("1.1.0")
	m.start()
	m.server.Upgrade("a1", "1.1.0")
	m.lastIs("1.1.0 is watched", func(c fakeserver.Checkin) bool { return runs(c, "1.1.0") && state(c) == agentapi.UpgradeWatching })
	m.ack("a1")
	rollback := agentapi.Action{ID: "r1", Type: agentapi.ActionUpgrade, CreatedAt: time.Now(), Data: []byte(`{"version":"1.0.0","rollback":true}`)}
	m.server.Send(rollback)
	if a := m.ack("r1"); a.Error != "" {
		t.Errorf("ack %+v", a)
	}
	r, err := handoff.ReadRequest(disk.OS{}, m.top)
	if err != nil || r == nil || !strings.Contains(r.Why, "action r1") || !strings.Contains(r.ToHome, "1.1.0") {
		t.Fatalf("request %+v, %v", r, err)
	}
	m.end(handoff.RolledBack, &handoff.Reason{Code: handoff.ReasonManual, Text: r.Why})
	m.lastIs("the rollback is reported", func(c fakeserver.Checkin) bool {
		return runs(c, "1.0.0") && state(c) == agentapi.UpgradeRollback && c.UpgradeDetails.Metadata.ReasonCode == "manual"
	})
	// Sent again to the restored version, whose queue is older: it is done already.
	m.server.Send(rollback)
	m.server.Upgrade("a2", "1.1.0") // a manual rollback does not mark the version as failed
	m.lastIs("1.1.0 is watched again", func(c fakeserver.Checkin) bool {
		return runs(c, "1.1.0") && state(c) == agentapi.UpgradeWatching && c.UpgradeDetails.ActionID == "a2"
	})
	if err := m.ask(probe.UpgradeRequest{Rollback: true}); err != nil {
		t.Errorf("asked on the host while watched: %v", err)
	}
	if r, err := handoff.ReadRequest(disk.OS{}, m.top); err != nil || r == nil {
		t.Errorf("request %+v, %v", r, err)
	}
}

func TestServerCannotRollBackBelowTheFloorDuringAWatch(t *testing.T) {
	m := newMachine(t)
	m.floor = "1.0.1"
	m.publish("1.1.0")
	m.start()
	m.server.Upgrade("a1", "1.1.0")
	m.lastIs("1.1.0 is watched", func(c fakeserver.Checkin) bool { return runs(c, "1.1.0") && state(c) == agentapi.UpgradeWatching })
	m.server.Send(agentapi.Action{ID: "r1", Type: agentapi.ActionUpgrade, CreatedAt: time.Now(), Data: []byte(`{"version":"1.0.0","rollback":true,"force":true}`)})
	if a := m.ack("r1"); !strings.Contains(a.Error, "version 1.0.0 is below 1.0.1") {
		t.Errorf("ack %+v", a)
	}
	if r, err := handoff.ReadRequest(disk.OS{}, m.top); r != nil || err != nil {
		t.Errorf("the watcher is asked: %+v, %v", r, err)
	}
	if err := m.ask(probe.UpgradeRequest{Rollback: true}); err != nil {
		t.Errorf("asked on the host: %v", err)
	}
	if r, err := handoff.ReadRequest(disk.OS{}, m.top); r == nil || err != nil {
		t.Errorf("asked on the host, the watcher is not: %v", err)
	}
}

func TestTransientFailureIsRetried(t *testing.T) {
	m := newMachine(t)
	m.retry = []time.Duration{500 * time.Millisecond, time.Hour}
	archive := agentapi.PathArtifacts + manifest.ArchiveName("1.1.0", "linux", "amd64", "tar.gz")
	var fetched atomic.Int32
	m.server.Before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && r.URL.Path == archive && r.Header.Get("Range") == "" {
			fetched.Add(1)
		}
		return false
	}
	m.publish("1.1.0")
	m.watcherErr = context.DeadlineExceeded // the host is too busy to start one
	m.start()
	m.server.Upgrade("a1", "1.1.0")
	postponed := func(n int) func(fakeserver.Checkin) bool {
		return func(c fakeserver.Checkin) bool {
			return state(c) == agentapi.UpgradeScheduled && c.UpgradeDetails.Metadata.RetryAttempt == n &&
				strings.Contains(c.UpgradeDetails.Metadata.RetryErrorMsg, "watcher: ")
		}
	}
	m.lastIs("the second try is postponed for an hour", postponed(2))
	m.stop()
	m.start()
	m.lastIs("it still is after a restart", postponed(2))
	for _, c := range m.server.Checkins() {
		if state(c) == agentapi.UpgradeFailed {
			t.Errorf("reported as failed: %+v", c.UpgradeDetails)
		}
	}
	if n := fetched.Load(); n != 1 {
		t.Errorf("the archive was fetched %d times", n)
	}
	m.mu.Lock()
	m.watcherErr = nil
	m.mu.Unlock()
	m.server.Upgrade("a2", "1.1.0") // a new action does not wait for the retry
	m.lastIs("1.1.0 is watched", func(c fakeserver.Checkin) bool {
		return runs(c, "1.1.0") && state(c) == agentapi.UpgradeWatching && c.UpgradeDetails.ActionID == "a2"
	})
	if a := m.ack("a1"); a.Error != "superseded by the newer upgrade a2" {
		t.Errorf("ack %+v", a)
	}
	if n := fetched.Load(); n != 1 {
		t.Errorf("the archive was fetched %d times", n)
	}
}

// stall publishes a version that no request gets.
func (m *machine) stall(version string) {
	m.publish(version)
	archive := agentapi.PathArtifacts + manifest.ArchiveName(version, "linux", "amd64", "tar.gz")
	m.server.Before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || r.URL.Path != archive {
			return false
		}
		<-r.Context().Done() // a source that never answers
		return true
	}
}

func TestCancelStopsARunningUpgrade(t *testing.T) {
	m := newMachine(t)
	m.stall("1.1.0")
	m.start()
	m.server.Upgrade("a1", "1.1.0")
	m.lastIs("it downloads", func(c fakeserver.Checkin) bool { return state(c) == agentapi.UpgradeDownloading })
	m.server.Send(agentapi.Action{ID: "c1", Type: agentapi.ActionCancel, Data: []byte(`{"target_id":"a1"}`)})
	if a := m.ack("a1"); a.Error != "cancelled" {
		t.Errorf("ack %+v", a)
	}
	if a := m.ack("c1"); a.Error != "" {
		t.Errorf("ack of the cancel %+v", a)
	}
}
