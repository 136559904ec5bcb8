package daemon

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakeserver"
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
