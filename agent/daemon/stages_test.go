package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/runtime/process"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakeserver"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

func stageAction(id, data string) agentapi.Action {
	return agentapi.Action{ID: id, Type: agentapi.ActionStage, Data: []byte(data)}
}

// reports waits until a check-in lists these staged versions.
func (m *machine) reports(staged ...string) {
	m.t.Helper()
	m.lastIs("staged are "+strings.Join(staged, ", "), func(c fakeserver.Checkin) bool {
		return c.StagedVersions != nil && slices.Equal(c.StagedVersions, staged)
	})
}

func TestServerOrdersStages(t *testing.T) {
	m := newMachine(t)
	m.publish("1.1.0")
	m.start()
	m.reports()
	m.server.Send(stageAction("s1", `{"version":"1.1.0"}`))
	if ack := m.ack("s1"); ack.Error != "" || ack.Message != "1.1.0 is staged" {
		t.Errorf("the acknowledgement is %+v", ack)
	}
	m.reports("1.1.0")
	for id, c := range map[string]struct{ data, want string }{
		"s2": {`{"version":"1.0.0"}`, "version 1.0.0 already runs here"},
		"s3": {`{"version":"9.9.9"}`, "muster package push"},
		"s4": {`{"version":"latest"}`, "latest"},
		"s5": {`{"version":"2.5.0","component":{"name":"web"}}`, "there is no component web: the host's policy has none"},
	} {
		m.server.Send(stageAction(id, c.data))
		if ack := m.ack(id); !strings.Contains(ack.Error, c.want) {
			t.Errorf("%s gives %+v, want %q", c.data, ack, c.want)
		}
	}
	if err := m.socket().Remove(t.Context(), probe.RemoveRequest{Version: "1.1.0"}); err != nil {
		t.Fatal(err)
	}
	m.reports()
}

// A stage that the agent's end interrupts is carried out by the next process, and one that is
// under way ends with a CANCEL.
func TestOrderedStageIsCarriedOutAfterARestartUnlessItIsCancelled(t *testing.T) {
	m := newMachine(t)
	archive := agentapi.PathArtifacts + manifest.ArchiveName("1.1.0", "linux", "amd64", "tar.gz")
	var answers atomic.Bool
	m.server.Before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || r.URL.Path != archive || answers.Load() {
			return false
		}
		<-r.Context().Done() // a source that never answers
		return true
	}
	m.publish("1.1.0")
	m.start()
	m.reports()
	downloads := func(h probe.Health) bool {
		return h.Staging != nil && h.Staging.TargetVersion == "1.1.0" && h.Staging.State == string(agentapi.UpgradeDownloading)
	}
	m.server.Send(stageAction("s1", `{"version":"1.1.0"}`))
	m.health("it downloads", downloads)
	m.server.Send(agentapi.Action{ID: "c1", Type: agentapi.ActionCancel, Data: []byte(`{"target_id":"s1"}`)})
	if ack := m.ack("s1"); ack.Error != agentapi.Cancelled {
		t.Errorf("the cancelled one gives %+v", ack)
	}
	m.health("it has ended", func(h probe.Health) bool {
		return h.Staging != nil && h.Staging.State == string(agentapi.UpgradeFailed)
	})

	m.server.Send(stageAction("s2", `{"version":"1.1.0"}`))
	m.health("it downloads", downloads)
	m.stop()
	answers.Store(true)
	m.start()
	if ack := m.ack("s2"); ack.Error != "" {
		t.Errorf("after the restart it gives %+v", ack)
	}
	m.reports("1.1.0")
}

// publishers answer as a test wants, and count how often they are asked.
type publishers struct {
	answer func(context.Context) error
	asked  atomic.Int32
}

func (p *publishers) Expect(ctx context.Context, _ string, _ trust.Fetch) (*trust.Expectation, error) {
	p.asked.Add(1)
	return nil, p.answer(ctx)
}
func (p *publishers) Floor(context.Context, string) string { return "" }

// orderedStages runs the ordered stages of a host in virtual time, without its server, for as long as story takes.
// It has the component web.
func orderedStages(t *testing.T, p *publishers, retry []time.Duration, story func(*daemon)) {
	top := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		o := Options{
			Top: top, Running: handoff.Install{Identity: manifest.Identity{Version: "1.0.0", Hash: "aaaaaa"}, Home: "data/muster-agent-1.0.0-aaaaaa"},
			GOOS: "linux", GOARCH: "amd64", Config: config.Default(), Disk: disk.OS{}, Trust: p,
			Runtimes: map[string]runtime.Adapter{"process": process.New(process.Options{Disk: disk.OS{}})},
		}
		o.Config.Upgrade.Retry = retry
		if err := (disk.OS{}).MkdirAll("test", filepath.Join(top, "data"), 0o755); err != nil {
			t.Fatal(err)
		}
		d, err := Agent{o}.build()
		if err != nil {
			t.Fatal(err)
		}
		if err := d.workloads.Follow(t.Context(), []agentapi.PolicyComponent{{Name: "web", Runtime: "process"}}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var stages sync.WaitGroup
		stages.Go(func() { d.runOrderedStages(ctx) })
		story(d)
		cancel()
		stages.Wait()
	})
}

// subjects are the data of stages of the agent and of a component.
var subjects = map[string]string{"agent": `{"version":"1.1.0"}`, "component": `{"version":"1.1.0","component":{"name":"web"}}`}

func (d *daemon) receives(t *testing.T, actions ...agentapi.Action) {
	t.Helper()
	if err := d.deliver(agentapi.CheckinResponse{Actions: actions}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// The wait of ten seconds is as long as that for something else which is under way, and counts all the same.
func TestOrderedStageThatFailsIsGivenUpAfterItsRetries(t *testing.T) {
	for subject, data := range subjects {
		for _, wait := range []time.Duration{queueRetry, 7 * time.Minute} {
			t.Run(subject+" "+wait.String(), func(t *testing.T) {
				p := &publishers{answer: func(context.Context) error { return request.Later(errors.New("the server is away")) }}
				orderedStages(t, p, []time.Duration{wait, wait}, func(d *daemon) {
					d.receives(t, stageAction("s1", data))
					time.Sleep(wait + time.Second)
					if p.asked.Load() != 2 || len(d.queue.Acks(1)) > 0 {
						t.Errorf("after the first wait it was tried %d times, and acknowledged is %+v", p.asked.Load(), d.queue.Acks(1))
					}
					time.Sleep(time.Hour)
					if acks := d.queue.Acks(2); p.asked.Load() != 3 || len(acks) != 1 || !strings.Contains(acks[0].Error, "the server is away") {
						t.Errorf("it was tried %d times, and acknowledged is %+v", p.asked.Load(), acks)
					}
				})
			})
		}
	}
}

// A stage that is cancelled has ended: it is not one that the agent's end has interrupted, nor one that is tried again.
func TestCancelledOrderedStageIsOver(t *testing.T) {
	for subject, data := range subjects {
		t.Run(subject, func(t *testing.T) {
			p := &publishers{answer: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }}
			orderedStages(t, p, []time.Duration{time.Minute}, func(d *daemon) {
				reported := func() *agentapi.UpgradeDetails {
					if subject == "agent" {
						return d.currentStage()
					}
					return d.workloads.Staging("web")
				}
				d.receives(t, stageAction("s1", data))
				if r := reported(); p.asked.Load() != 1 || r == nil || r.State.Ended() {
					t.Fatalf("the publishers were asked %d times, and reported is %+v", p.asked.Load(), r)
				}
				d.receives(t, agentapi.Action{ID: "c1", Type: agentapi.ActionCancel, Data: json.RawMessage(`{"target_id":"s1"}`)})
				if r := reported(); r == nil || r.State != agentapi.UpgradeFailed || r.Metadata.ErrorMsg != agentapi.Cancelled {
					t.Errorf("reported is %+v", r)
				}
				time.Sleep(time.Hour)
				acks := d.queue.Acks(3)
				if p.asked.Load() != 1 || len(acks) != 2 || acks[0].ActionID != "s1" || acks[0].Error != agentapi.Cancelled {
					t.Errorf("it was tried %d times, and acknowledged is %+v", p.asked.Load(), acks)
				}
				if again, err := d.executor.RecoverStage(); again != nil || err != nil {
					t.Errorf("the next process begins it again: %+v, %v", again, err)
				}
				if again := d.workloads.Interrupted(); len(again) > 0 {
					t.Errorf("the next process begins them again: %+v", again)
				}
				d.receives(t, stageAction("s2", data))
				if p.asked.Load() != 2 {
					t.Error("the next one does not begin")
				}
			})
		})
	}
}
