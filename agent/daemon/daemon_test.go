package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/control"
	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/upgrade"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakeserver"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is a host whose agent runs in this process and is started again whenever it is
// replaced. The test acts as the watcher.
type machine struct {
	t      *testing.T
	top    string
	server *fakeserver.Server
	repo   *tuftest.Repo
	floor  string
	client *http.Client

	runtimes map[string]runtime.Adapter
	sw       *gateway.Switch
	level    slog.LevelVar
	execErr  error
	retry    []time.Duration // nil for the default
	disk     disk.Disk
	sources  []string // upgrade.download.sources

	namedVersion string // server.user_agent_version

	mu         sync.Mutex
	started    int // watchers
	watcherErr error
	cancel     context.CancelFunc
	ended      chan error
}

// floored is an authority whose publishers have set a floor.
type floored struct {
	trust.Authority
	floor string
}

func (f floored) Floor(context.Context, string) string { return f.floor }

func newMachine(t *testing.T) *machine {
	t.Helper()
	top, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	if top, err = filepath.EvalSymlinks(top); err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, top: top, server: fakeserver.New(t), disk: disk.OS{}, repo: tuftest.New(t)}
	if m.client, err = (gateway.Trust{Fingerprint: m.server.CAPin}).HTTPClient(m.server.URL); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(top, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := install.Unpack(context.Background(), disk.OS{}, m.publish("1.0.0"), top)
	if err != nil {
		t.Fatal(err)
	}
	for link, program := range map[string]string{layout.AgentLink: "muster-agent", layout.WatcherLink: "muster-watcher"} {
		if err := os.Symlink(filepath.Join(p.Home(), program), filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		m.stop()
		m.client.CloseIdleConnections()
		os.RemoveAll(top)
	})
	return m
}

func (m *machine) publish(version string) string {
	m.t.Helper()
	return m.publishBuild(version, version)
}

// publishBuild publishes a build of a version, whose programs have a content of their own.
func (m *machine) publishBuild(version, content string) string {
	m.t.Helper()
	dir := m.t.TempDir()
	var files []build.File
	for _, name := range []string{"muster-agent", "muster-watcher"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(name+content), 0o755); err != nil {
			m.t.Fatal(err)
		}
		files = append(files, build.File{Name: name, Path: path, Mode: 0o755})
	}
	name := manifest.ArchiveName(version, "linux", "amd64", "tar.gz")
	var buf bytes.Buffer
	if _, err := build.Build(context.Background(), build.Spec{Manifest: manifest.Package{Version: version, OS: "linux", Arch: "amd64"}, Files: files}, &buf); err != nil {
		m.t.Fatal(err)
	}
	m.repo.Sign(name, buf.Bytes())
	m.server.Publish(name, buf.Bytes())
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, buf.Bytes(), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return path
}

func (m *machine) options() Options {
	m.t.Helper()
	exe, err := filepath.EvalSymlinks(layout.Path(m.top, layout.AgentLink))
	if err != nil {
		m.t.Fatal(err)
	}
	running, err := RunningVersion(disk.OS{}, m.top, exe, "dev")
	if err != nil {
		m.t.Fatal(err)
	}
	socket, err := control.Listen(m.top)
	if err != nil {
		m.t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Upgrade.Watch.Interval = selfCheckShortest
	cfg.Server.UserAgentVersion = m.namedVersion
	cfg.Upgrade.Download.Sources = append(cfg.Upgrade.Download.Sources, m.sources...)
	if m.retry != nil {
		cfg.Upgrade.Retry = m.retry
	}
	return Options{
		Top: m.top, Running: running, GOOS: "linux", GOARCH: "amd64", PID: os.Getpid(), Config: cfg,
		Identity: &identity.Identity{AgentID: "agent-1", APIKey: "key-agent-1", ServerURL: m.server.URL},
		Host:     host.Info{Hostname: "h"}, Disk: m.disk, HTTP: m.client, Switch: m.sw, Muster: !m.server.Fleet, Level: &m.level, Other: http.DefaultClient, Trust: floored{m.repo.Authority(), m.floor},
		Control: socket, Lock: FileLock, Stopped: func() error { return handoff.CountStop(disk.OS{}, m.top) }, Watchers: m, Exec: func() error { return m.execErr }, Runtimes: m.runtimes,
	}
}

func (m *machine) MarkerVersion(context.Context, string) (int, error) {
	return handoff.MarkerVersion, nil
}
func (m *machine) PID() int                   { return 0 }
func (m *machine) Stop(context.Context) error { return nil }

func (m *machine) Start(context.Context, string, string) (upgrade.Watcher, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watcherErr != nil {
		return nil, m.watcherErr
	}
	m.started++
	return m, nil
}

// start runs the agent, and each version that replaces it.
func (m *machine) start() {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel, m.ended = cancel, make(chan error, 1)
	first := m.options()
	go func() {
		o := first
		for {
			err := Agent{Options: o}.Run(ctx)
			if !errors.Is(err, ErrReplaced) {
				m.ended <- err
				return
			}
			o = m.options()
		}
	}()
}

func (m *machine) stop() {
	if m.cancel == nil {
		return
	}
	m.cancel()
	m.cancel = nil
	select {
	case err := <-m.ended:
		if err != nil {
			m.t.Errorf("agent ended with %v", err)
		}
	case <-time.After(2 * StopTimeout):
		m.t.Error("the agent does not stop")
	}
}

// end writes the outcome and removes the marker, as the watcher does.
func (m *machine) end(result handoff.Result, reason *handoff.Reason) {
	m.t.Helper()
	d := disk.OS{}
	mk, err := handoff.ReadMarker(d, m.top)
	if err != nil || mk == nil {
		m.t.Fatalf("marker %v, %v", mk, err)
	}
	if result == handoff.RolledBack {
		m.stop()
		if err := disk.Point(d, "test", filepath.FromSlash(mk.From.Home+"/muster-agent"), layout.Path(m.top, layout.AgentLink)); err != nil {
			m.t.Fatal(err)
		}
		m.start()
	}
	o := handoff.Outcome{ActionID: mk.ActionID, From: mk.From, To: mk.To, Result: result, Reason: reason, At: time.Now().UTC()}
	if err := errors.Join(handoff.WriteOutcome(d, m.top, o), handoff.RemoveMarker(d, m.top)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) lastIs(what string, ok func(fakeserver.Checkin) bool) {
	m.t.Helper()
	m.server.Wait(m.t, what, 10*time.Second, func() bool {
		all := m.server.Checkins()
		return len(all) > 0 && ok(all[len(all)-1])
	})
}

func state(c fakeserver.Checkin) agentapi.UpgradeState {
	if c.UpgradeDetails == nil {
		return ""
	}
	return c.UpgradeDetails.State
}

func (m *machine) ack(action string) agentapi.AckEvent {
	m.t.Helper()
	var found *agentapi.AckEvent
	m.server.Wait(m.t, "ack of "+action, 10*time.Second, func() bool {
		for _, a := range m.server.Acks() {
			if a.ActionID == action {
				found = &a
			}
		}
		return found != nil
	})
	return *found
}

func TestUpgradeIsWatchedAndCommitted(t *testing.T) {
	m := newMachine(t)
	m.publish("1.1.0")
	m.start()
	m.server.Upgrade("a1", "1.1.0")
	m.lastIs("1.1.0 is watched", func(c fakeserver.Checkin) bool {
		return c.UserAgent == "Elastic Agent v1.1.0" && state(c) == agentapi.UpgradeWatching && c.UpgradeDetails.ActionID == "a1"
	})
	if a := m.ack("a1"); a.Error != "" || a.Message != "upgraded to 1.1.0" {
		t.Errorf("ack %+v", a)
	}
	// A second upgrade waits during the watch.
	m.publish("1.2.0")
	m.server.Upgrade("a2", "1.2.0")
	m.lastIs("the second action is confirmed", func(c fakeserver.Checkin) bool { return c.AckToken == "2" })
	if got := state(m.server.Checkins()[len(m.server.Checkins())-1]); got != agentapi.UpgradeWatching {
		t.Errorf("state %s while watching", got)
	}
	m.end(handoff.Committed, nil)
	m.lastIs("1.2.0 is watched next", func(c fakeserver.Checkin) bool {
		return c.UserAgent == "Elastic Agent v1.2.0" && state(c) == agentapi.UpgradeWatching
	})
	m.end(handoff.Committed, nil)
	m.lastIs("nothing is left to say", func(c fakeserver.Checkin) bool { return c.UpgradeDetails == nil })
	if n := len(m.server.Acks()); n != 2 {
		t.Errorf("%d acks, want one for each action", n)
	}
}

// While a version of the agent is watched no component is upgraded, and its report says so until
// the order is called off or begins.
func TestUpgradeOfAComponentWaitsForTheWatchAndSaysSo(t *testing.T) {
	m := newMachine(t)
	m.publish("1.1.0")
	m.start()
	m.server.Upgrade("a1", "1.1.0")
	m.lastIs("1.1.0 is watched", func(c fakeserver.Checkin) bool { return state(c) == agentapi.UpgradeWatching })
	send := func(id string, kind agentapi.ActionType, data string) {
		m.server.Send(agentapi.Action{ID: id, Type: kind, CreatedAt: time.Now(), Data: json.RawMessage(data)})
	}
	send("policy:p1:2", agentapi.ActionPolicyChange, `{"policy":{"id":"p1","components":[{"name":"web","runtime":"process"}]}}`)
	details := func(what string, ok func(*agentapi.UpgradeDetails) bool) {
		t.Helper()
		m.lastIs(what, func(c fakeserver.Checkin) bool {
			var list []agentapi.Component
			return json.Unmarshal(c.Components, &list) == nil && len(list) == 1 && ok(list[0].UpgradeDetails)
		})
	}
	waits := func(d *agentapi.UpgradeDetails) bool {
		return d != nil && d.State == agentapi.UpgradeRequested && strings.Contains(d.Metadata.Reason, "waits until the agent's new version")
	}
	send("w1", agentapi.ActionUpgrade, `{"version":"2.0.0","component":{"name":"web"}}`)
	details("the order waits for the watch", waits)
	send("c1", agentapi.ActionCancel, `{"target_id":"w1"}`)
	details("it is called off", func(d *agentapi.UpgradeDetails) bool { return d == nil })
	send("w2", agentapi.ActionUpgrade, `{"version":"2.0.0","component":{"name":"web"}}`)
	details("the next order waits too", waits)
	// The restored version begins it at once, on a host that lacks the runtime.
	m.end(handoff.RolledBack, &handoff.Reason{Code: handoff.ReasonAgentFailed, Text: "The agent said FAILED for 30s."})
	details("it begins", func(d *agentapi.UpgradeDetails) bool {
		return d != nil && d.State == agentapi.UpgradeFailed && strings.Contains(d.Metadata.ErrorMsg, `no runtime "process"`)
	})
}

func TestRollbackIsReportedUntilTheNextUpgrade(t *testing.T) {
	m := newMachine(t)
	m.publish("1.1.0")
	m.start()
	// Requested on the host, so that the server gets no result but the reason.
	err := probe.Client{Dial: probe.DialSocket(m.top)}.Upgrade(context.Background(), probe.UpgradeRequest{Version: "1.1.0"})
	if err != nil {
		t.Fatal(err)
	}
	m.lastIs("1.1.0 is watched", func(c fakeserver.Checkin) bool {
		return c.UserAgent == "Elastic Agent v1.1.0" && state(c) == agentapi.UpgradeWatching
	})
	err = probe.Client{Dial: probe.DialSocket(m.top)}.Upgrade(context.Background(), probe.UpgradeRequest{Version: "1.2.0"})
	if err == nil || !strings.Contains(err.Error(), "being watched") {
		t.Errorf("a second upgrade while watching: %v", err)
	}
	m.end(handoff.RolledBack, &handoff.Reason{Code: handoff.ReasonAgentFailed, Text: "The agent said FAILED for 30s."})
	rolledBack := func(c fakeserver.Checkin) bool {
		return c.UserAgent == "Elastic Agent v1.0.0" && state(c) == agentapi.UpgradeRollback &&
			c.UpgradeDetails.Metadata.ReasonCode == "agent_failed" && strings.Contains(c.UpgradeDetails.Metadata.ErrorMsg, "FAILED for 30s")
	}
	m.lastIs("the rollback is reported", rolledBack)
	before := len(m.server.Checkins())
	m.stop()
	m.start()
	m.server.Wait(t, "a check-in after a restart", 10*time.Second, func() bool { return len(m.server.Checkins()) > before })
	m.lastIs("the rollback is still reported", rolledBack)

	m.server.Upgrade("a2", "1.1.0")
	if a := m.ack("a2"); !strings.Contains(a.Error, "failed here before") {
		t.Errorf("ack %+v", a)
	}

	m.lastIs("the refusal is reported", func(c fakeserver.Checkin) bool { return state(c) == agentapi.UpgradeFailed })

	// A version that the host itself has kept from running may be tried again.
	m.publish("1.3.0")
	for i, code := range []handoff.ReasonCode{handoff.ReasonSettings, handoff.ReasonUnwritable, handoff.ReasonManual} {
		m.server.Upgrade(fmt.Sprint("b", i), "1.3.0")
		m.lastIs("1.3.0 is watched", func(c fakeserver.Checkin) bool {
			return c.UserAgent == "Elastic Agent v1.3.0" && state(c) == agentapi.UpgradeWatching
		})
		m.end(handoff.RolledBack, &handoff.Reason{Code: code, Text: "The host."})
		m.lastIs("the rollback is reported", func(c fakeserver.Checkin) bool {
			return c.UserAgent == "Elastic Agent v1.0.0" && state(c) == agentapi.UpgradeRollback && c.UpgradeDetails.Metadata.ReasonCode == string(code)
		})
	}
}

func TestAgentContinuesIfReexecFails(t *testing.T) {
	m := newMachine(t)
	m.publish("1.1.0")
	m.execErr = errors.New("exec format error")
	m.start()
	m.server.Upgrade("a1", "1.1.0")
	if a := m.ack("a1"); !strings.Contains(a.Error, "exec format error") {
		t.Errorf("ack %+v", a)
	}
	m.lastIs("1.0.0 tells the failure", func(c fakeserver.Checkin) bool {
		return c.UserAgent == "Elastic Agent v1.0.0" && state(c) == agentapi.UpgradeFailed && c.UpgradeDetails.Metadata.FailedState == agentapi.UpgradeRestarting
	})
	if mk, err := handoff.ReadMarker(disk.OS{}, m.top); mk != nil || err != nil {
		t.Errorf("marker %v, %v", mk, err)
	}
}

func TestFailedAndScheduledUpgradesAreReported(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.server.Upgrade("a1", "9.9.9")
	if a := m.ack("a1"); !strings.Contains(a.Error, "muster package push") {
		t.Errorf("ack %+v", a)
	}
	m.lastIs("the failure is reported", func(c fakeserver.Checkin) bool {
		return state(c) == agentapi.UpgradeFailed && c.UpgradeDetails.ActionID == "a1"
	})
	at := time.Now().Add(time.Hour)
	m.server.Send(agentapi.Action{ID: "a2", Type: agentapi.ActionUpgrade, CreatedAt: time.Now(), Data: []byte(`{"version":"1.1.0"}`), StartTime: &at})
	m.lastIs("the schedule is reported", func(c fakeserver.Checkin) bool {
		return state(c) == agentapi.UpgradeScheduled && c.UpgradeDetails.Metadata.ScheduledAt.Equal(at)
	})
	m.server.Send(agentapi.Action{ID: "a3", Type: agentapi.ActionCancel, Data: []byte(`{"target_id":"a2"}`)})
	if a := m.ack("a2"); a.Error != "cancelled" {
		t.Errorf("ack %+v", a)
	}
	m.lastIs("the last failure is reported again", func(c fakeserver.Checkin) bool {
		return state(c) == agentapi.UpgradeFailed && c.UpgradeDetails.ActionID == "a1"
	})
}

func TestUnenrolledAgentStopsCheckingIn(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.server.Send(agentapi.Action{ID: "u", Type: agentapi.ActionUnenroll})
	if a := m.ack("u"); a.Error != "" {
		t.Errorf("ack %+v", a)
	}
	deadline := time.Now().Add(5 * time.Second)
	for {
		h, err := probe.Client{Dial: probe.DialSocket(m.top)}.Health(context.Background())
		if err == nil && h.State == probe.Degraded && strings.Contains(h.Message, "unenrolled") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("health %+v, %v", h, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestSecondAgentInOneFolderIsRefused(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.lastIs("the first checks in", func(fakeserver.Checkin) bool { return true })
	if _, err := control.Listen(m.top); err == nil || !strings.Contains(err.Error(), "already answers") {
		t.Errorf("a second control socket: %v", err)
	}
	o := Options{Top: m.top, Lock: FileLock, Disk: disk.OS{}, Running: handoff.Install{Identity: manifest.Identity{Version: "1.0.0"}, Home: "data/x"}}
	if err := (Agent{Options: o}).Run(context.Background()); !errors.Is(err, ErrLocked) {
		t.Errorf("a second agent ended with %v", err)
	}
}

func TestRestartedAgentReportsItsUpgradeFromItsFirstCheckinOn(t *testing.T) {
	m := newMachine(t)
	m.stall("1.1.0")
	m.start()
	m.lastIs("it is idle", func(c fakeserver.Checkin) bool { return c.UpgradesIdle && c.UpgradeDetails == nil })
	m.server.Upgrade("a1", "1.1.0")
	m.lastIs("it downloads", func(c fakeserver.Checkin) bool { return state(c) == agentapi.UpgradeDownloading })
	m.stop()
	before := len(m.server.Checkins())
	m.start()
	m.lastIs("it downloads again", func(c fakeserver.Checkin) bool { return state(c) == agentapi.UpgradeDownloading })
	for _, c := range m.server.Checkins()[before:] {
		if state(c) == "" || c.UpgradeDetails.ActionID != "a1" || c.UpgradesIdle {
			t.Errorf("a check-in reports %+v, idle %v", c.UpgradeDetails, c.UpgradesIdle)
		}
	}
	m.server.Send(agentapi.Action{ID: "c1", Type: agentapi.ActionCancel, Data: []byte(`{"target_id":"a1"}`)})
	m.ack("a1")
}

func TestScheduledUpgradeIsReportedFromTheFirstCheckinOn(t *testing.T) {
	m := newMachine(t)
	m.start()
	at := time.Now().Add(time.Hour)
	m.server.Send(agentapi.Action{ID: "a1", Type: agentapi.ActionUpgrade, CreatedAt: time.Now(), Data: []byte(`{"version":"1.1.0"}`), StartTime: &at})
	scheduled := func(c fakeserver.Checkin) bool {
		return state(c) == agentapi.UpgradeScheduled && c.UpgradeDetails.Metadata.ScheduledAt.Equal(at) && !c.UpgradesIdle
	}
	m.lastIs("it is scheduled", scheduled)
	m.stop()
	before := len(m.server.Checkins())
	m.start()
	m.server.Wait(t, "a check-in", 10*time.Second, func() bool { return len(m.server.Checkins()) > before })
	if c := m.server.Checkins()[before]; !scheduled(c) {
		t.Errorf("the first check-in reports %+v, idle %v", c.UpgradeDetails, c.UpgradesIdle)
	}
}

// A result that the server has not answered may say how an upgrade ended.
func TestAgentIsNotIdleBeforeTheServerHasAnsweredItsResults(t *testing.T) {
	m := newMachine(t)
	refuse := make(chan struct{})
	m.server.Before = func(w http.ResponseWriter, r *http.Request) bool {
		select {
		case <-refuse:
			return false
		default:
		}
		if !strings.HasSuffix(r.URL.Path, "/acks") {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	m.start()
	m.server.Upgrade("a1", "9.9.9")
	m.lastIs("the failure is reported", func(c fakeserver.Checkin) bool { return state(c) == agentapi.UpgradeFailed })
	if all := m.server.Checkins(); all[len(all)-1].UpgradesIdle {
		t.Error("it says that it is idle while its result waits")
	}
	close(refuse)
	m.ack("a1")
}

// A file that is broken while the agent runs, or when it starts, is named in the next check-in, and no
// longer once it is corrected.
func TestBrokenConfigurationIsReported(t *testing.T) {
	m := newMachine(t)
	file := layout.Path(m.top, layout.ConfigFile)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	checkin := func(what, status, says string) {
		t.Helper()
		m.stop() // which makes the agent check in again
		m.start()
		m.lastIs(what, func(c fakeserver.Checkin) bool { return c.Status == status && strings.Contains(c.Message, says) })
	}
	m.publish("1.1.0")
	m.start()
	m.lastIs("it is healthy", func(c fakeserver.Checkin) bool { return c.Status == "online" })
	write("log: {level: info}\ncolour: red\n")
	m.server.Upgrade("a1", "1.1.0")
	if a := m.ack("a1"); !strings.Contains(a.Error, "agent.yml: line 2: key colour is not known") {
		t.Errorf("the upgrade ends with %q", a.Error)
	}
	m.lastIs("the running agent names file and line", func(c fakeserver.Checkin) bool {
		return c.Status == "degraded" && strings.Contains(c.Message, "agent.yml: line 2: key colour is not known") &&
			c.UpgradeDetails != nil && c.UpgradeDetails.Metadata.ReasonCode == agentapi.ReasonSettings
	})
	checkin("so it does after a restart", "degraded", "agent.yml: line 2: key colour is not known")
	write("log: {level: info}\n")
	checkin("it is well again", "online", "")
	m.server.Upgrade("a2", "1.1.0")
	m.lastIs("1.1.0 is watched", func(c fakeserver.Checkin) bool { return state(c) == agentapi.UpgradeWatching })
}

// A disk that takes no file any more is named in the next check-in, which stores nothing, and so is the
// order that could not be stored. The order is done once the disk takes files again.
func TestHostThatCannotWriteSaysSo(t *testing.T) {
	m := newMachine(t)
	m.publish("1.1.0")
	full := &fullDisk{}
	m.disk = full
	m.start()
	m.lastIs("it is healthy", func(c fakeserver.Checkin) bool { return c.Status == "online" })
	full.set(true)
	m.server.Upgrade("a1", "1.1.0")
	m.lastIs("it cannot write", func(c fakeserver.Checkin) bool {
		return c.Status == "degraded" && strings.Contains(c.Message, agentapi.Unwritable) && strings.Contains(c.Message, syscall.ENOSPC.Error())
	})
	if acks := m.server.Acks(); len(acks) > 0 {
		t.Errorf("acks %+v", acks)
	}
	full.set(false)
	m.server.Wait(t, "1.1.0 is watched", 30*time.Second, func() bool {
		all := m.server.Checkins()
		return state(all[len(all)-1]) == agentapi.UpgradeWatching && all[len(all)-1].Status == "online"
	})
}

// fullDisk is a disk that is full from time to time.
type fullDisk struct {
	disk.OS
	full atomic.Bool
}

func (d *fullDisk) set(full bool) { d.full.Store(full) }

func (d *fullDisk) CheckWritable(op, path string) error { return disk.WriteCheck(d, op, path) }

func (d *fullDisk) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	if d.full.Load() && flag&os.O_CREATE != 0 {
		return nil, &disk.Error{Op: op, Err: &os.PathError{Op: "open", Path: path, Err: syscall.ENOSPC}}
	}
	return d.OS.OpenFile(op, path, flag, perm)
}

// A mirror that fails is named in the check-in while the package comes from the server.
func TestMirrorThatFailsIsNamed(t *testing.T) {
	m := newMachine(t)
	name := manifest.ArchiveName("1.1.0", "linux", "amd64", "tar.gz")
	m.publish("1.1.0")
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) != name {
			http.NotFound(w, r)
			return
		}
		http.Error(w, "the proxy is out of order", http.StatusForbidden)
	}))
	t.Cleanup(mirror.Close)
	m.sources = []string{mirror.URL + "/packages"}
	hold := make(chan struct{})
	m.server.Before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, name) {
			<-hold // until the check-in was seen
		}
		return false
	}
	m.start()
	m.server.Upgrade("a1", "1.1.0")
	m.lastIs("the mirror is named", func(last fakeserver.Checkin) bool {
		return state(last) == agentapi.UpgradeDownloading && strings.Contains(last.UpgradeDetails.Metadata.RetryErrorMsg, mirror.URL) &&
			strings.Contains(last.UpgradeDetails.Metadata.RetryErrorMsg, "403")
	})
	m.lastIs("the mirror is reported once", func(last fakeserver.Checkin) bool {
		f := last.Upgrade.FailedSources
		return len(f) == 1 && f[0].Package == mirror.URL+"/packages/"+name && strings.Contains(f[0].Reason, "403")
	})
	close(hold)
	m.lastIs("1.1.0 is watched", func(c fakeserver.Checkin) bool { return state(c) == agentapi.UpgradeWatching })
}

func TestFailedSourcesAreBoundedAndNamedOnceForEachPackage(t *testing.T) {
	var list []agentapi.FailedSource
	for i := range 2 * agentapi.MaxFailedSources {
		for range 3 {
			list = withSource(list, fmt.Sprintf("https://mirror/agent-1.%d.0.tar.gz", i), "it is "+strings.Repeat("very ", 1_000)+"slow")
		}
	}
	if len(list) != agentapi.MaxFailedSources {
		t.Fatalf("there are %d, want %d", len(list), agentapi.MaxFailedSources)
	}
	for i, f := range list {
		if want := fmt.Sprintf("https://mirror/agent-1.%d.0.tar.gz", agentapi.MaxFailedSources+i); f.Package != want || len(f.Reason) > maxProblem+len("…") {
			t.Errorf("number %d is %.80s with a reason of %d bytes, want %s", i, f.Package, len(f.Reason), want)
		}
	}
}
