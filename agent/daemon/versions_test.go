package daemon

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakeserver"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

func (m *machine) socket() probe.Client { return probe.Client{Dial: probe.DialSocket(m.top)} }

// health waits until the agent's health is as wanted.
func (m *machine) health(what string, ok func(probe.Health) bool) {
	m.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		h, err := m.socket().Health(context.Background())
		if err == nil && ok(h) {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("not within 30s: %s; the health is %+v, staging %+v, versions %+v, %v", what, h, h.Staging, h.Versions, err)
		}
	}
}

// has reports whether the host has exactly these versions, such as "1.0.0 running".
func has(h probe.Health, want ...string) bool {
	var got []string
	for _, v := range h.Versions {
		got = append(got, v.Version+" "+string(v.State))
	}
	return strings.Join(got, ", ") == strings.Join(want, ", ")
}

func TestStagedVersionIsSwitchedToWithoutTheServer(t *testing.T) {
	m := newMachine(t)
	m.publish("1.1.0")
	m.start()
	m.health("it runs", func(h probe.Health) bool { return has(h, "1.0.0 running") })
	if err := m.socket().Stage(t.Context(), probe.StageRequest{Version: "1.0.0"}); err == nil || !strings.Contains(err.Error(), "already runs here") {
		t.Errorf("stage of the running version: %v", err)
	}
	if err := m.socket().Stage(t.Context(), probe.StageRequest{Version: "1.1.0"}); err != nil {
		t.Fatal(err)
	}
	m.health("1.1.0 is staged", func(h probe.Health) bool {
		return has(h, "1.0.0 running", "1.1.0 staged") && h.Staging == nil && h.Upgrade == nil && len(h.Rollbacks) == 0 && h.Versions[1].Bytes > 0
	})
	m.server.Before = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, agentapi.PathArtifacts) {
			return false
		}
		t.Errorf("the server was asked for %s", r.URL.Path)
		http.NotFound(w, r)
		return true
	}
	if err := m.ask(probe.UpgradeRequest{Rollback: true}); err == nil || !strings.Contains(err.Error(), "no earlier version is kept") {
		t.Errorf("a rollback, with a staged version only: %v", err)
	}
	if err := m.ask(probe.UpgradeRequest{Rollback: true, Version: "1.1.0"}); err != nil {
		t.Fatal(err)
	}
	m.lastIs("1.1.0 is watched", func(c fakeserver.Checkin) bool {
		return runs(c, "1.1.0") && state(c) == agentapi.UpgradeWatching && offers(c, "1.0.0")
	})
	for what, err := range map[string]error{
		"a stage during the watch":             m.socket().Stage(t.Context(), probe.StageRequest{Version: "1.2.0"}),
		"a removal during the watch":           m.socket().Remove(t.Context(), probe.RemoveRequest{Version: "1.0.0"}),
		"a switch to another during the watch": m.ask(probe.UpgradeRequest{Rollback: true, Version: "1.2.0"}),
	} {
		if err == nil || !strings.Contains(err.Error(), "being watched") {
			t.Errorf("%s: %v", what, err)
		}
	}
	m.commit()
	m.health("1.0.0 is kept", func(h probe.Health) bool { return has(h, "1.1.0 running", "1.0.0 previous") && h.Upgrade == nil })
	if err := m.socket().Remove(t.Context(), probe.RemoveRequest{Version: "1.0.0"}); err != nil {
		t.Fatal(err)
	}
	m.health("1.0.0 is removed", func(h probe.Health) bool { return has(h, "1.1.0 running") && len(h.Rollbacks) == 0 })
}

func TestFailedStageSaysWhyUntilTheNextOne(t *testing.T) {
	m := newMachine(t)
	m.start()
	if err := m.socket().Stage(t.Context(), probe.StageRequest{Version: "9.9.9"}); err != nil {
		t.Fatal(err)
	}
	m.health("it has failed", func(h probe.Health) bool {
		return h.Staging != nil && h.Staging.State == string(agentapi.UpgradeFailed) && strings.Contains(h.Staging.Message, "muster package push")
	})
	m.lastIs("the report has no upgrade", func(c fakeserver.Checkin) bool { return c.UpgradeDetails == nil })
	m.publish("1.1.0")
	if err := m.socket().Stage(t.Context(), probe.StageRequest{Version: "1.1.0"}); err != nil {
		t.Fatal(err)
	}
	m.health("the next one succeeds", func(h probe.Health) bool { return has(h, "1.0.0 running", "1.1.0 staged") && h.Staging == nil })
}

// A stage that the agent's end interrupts begins again with the agent, and an upgrade ends it.
func TestStageGoesOnAfterARestartUntilAnUpgradeBegins(t *testing.T) {
	m := newMachine(t)
	archive := agentapi.PathArtifacts + manifest.ArchiveName("1.1.0", "linux", "amd64", "tar.gz")
	m.server.Before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || r.URL.Path != archive {
			return false
		}
		<-r.Context().Done() // a source that never answers
		return true
	}
	m.publish("1.1.0")
	m.publish("1.2.0")
	m.start()
	m.lastIs("it runs", func(c fakeserver.Checkin) bool { return runs(c, "1.0.0") })
	if err := m.socket().Stage(t.Context(), probe.StageRequest{Version: "1.1.0"}); err != nil {
		t.Fatal(err)
	}
	downloads := func(h probe.Health) bool {
		return h.Staging != nil && h.Staging.TargetVersion == "1.1.0" && h.Staging.State == string(agentapi.UpgradeDownloading)
	}
	m.health("it downloads", downloads)
	if err := m.socket().Stage(t.Context(), probe.StageRequest{Version: "1.2.0"}); err == nil || !strings.Contains(err.Error(), "version 1.1.0 is being staged") {
		t.Errorf("a second stage: %v", err)
	}
	m.stop()
	m.start()
	m.health("it downloads again", downloads)
	m.server.Upgrade("a1", "1.2.0")
	m.lastIs("1.2.0 is watched", func(c fakeserver.Checkin) bool { return runs(c, "1.2.0") && state(c) == agentapi.UpgradeWatching })
	m.end(handoff.Committed, nil)
	m.health("nothing is staged", func(h probe.Health) bool { return h.Upgrade == nil && h.Staging == nil && h.Version == "1.2.0" })
}

// A server's order to switch to a staged version waits until the watch is over.
func TestSwitchToAStagedVersionWaitsForTheWatch(t *testing.T) {
	m := newMachine(t)
	m.publish("1.1.0")
	m.publish("1.2.0")
	m.start()
	m.lastIs("it runs", func(c fakeserver.Checkin) bool { return runs(c, "1.0.0") })
	if err := m.socket().Stage(t.Context(), probe.StageRequest{Version: "1.2.0"}); err != nil {
		t.Fatal(err)
	}
	m.health("1.2.0 is staged", func(h probe.Health) bool { return has(h, "1.0.0 running", "1.2.0 staged") })
	m.server.Upgrade("a1", "1.1.0")
	m.lastIs("1.1.0 is watched", func(c fakeserver.Checkin) bool { return runs(c, "1.1.0") && state(c) == agentapi.UpgradeWatching })
	m.server.Send(agentapi.Action{ID: "w1", Type: agentapi.ActionUpgrade, CreatedAt: time.Now(), Data: []byte(`{"version":"1.2.0","rollback":true}`)})
	m.lastIs("the order is stored", func(c fakeserver.Checkin) bool { return c.AckToken == "2" })
	m.commit()
	m.lastIs("1.2.0 is watched next", func(c fakeserver.Checkin) bool {
		return runs(c, "1.2.0") && state(c) == agentapi.UpgradeWatching && c.UpgradeDetails.ActionID == "w1"
	})
	for _, c := range m.server.Checkins() {
		if state(c) == agentapi.UpgradeRollback {
			t.Errorf("it was rolled back: %+v", c.UpgradeDetails)
		}
	}
	if r, err := handoff.ReadRequest(disk.OS{}, m.top); r != nil || err != nil {
		t.Errorf("the watcher was asked: %+v, %v", r, err)
	}
}
