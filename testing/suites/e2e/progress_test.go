package e2e

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

// A restarted agent continues its upgrade, and the server never takes it for a failed one.
func TestAgentRestartedDuringADownloadIsUpgraded(t *testing.T) {
	w := newWorld(t, slow, "web-01")
	h := w.Hosts[0]
	w.Publish("1.1.0", w.Programs.Agent)
	w.Upgrade("1.1.0", h)
	for range 3 {
		w.waitPhase(h, agentapi.UpgradeDownloading)
		waitForPart(t, h)
		check(t, h.Stop())
		check(t, h.Start())
	}
	w.upgraded(h, "1.1.0")
	for _, phase := range w.seen(h) {
		if strings.Contains(phase, "FAILED") {
			t.Errorf("it was seen as failed: %v", w.seen(h))
		}
	}
	list, err := harness.Get[adminapi.ActionStatusList](t.Context(), w.Server, "/api/fleet/agents/action_status?perPage=1")
	check(t, err)
	if a := list.Items[0]; a.Status != "COMPLETE" || a.Outcome != "COMPLETE" || a.NbAgentsDone != 1 || a.NbAgentsFailed != 0 {
		t.Errorf("the action is %s, its outcome %s, %d done, %d failed", a.Status, a.Outcome, a.NbAgentsDone, a.NbAgentsFailed)
	}
}

// stallingSource serves the packages of a folder, of which archives stop half-way, also for a host
// that resumes.
func stallingSource(t *testing.T, dir string) string {
	t.Helper()
	end := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		file := filepath.Join(dir, filepath.Base(r.URL.Path))
		if !strings.HasSuffix(file, ".tar.gz") {
			http.ServeFile(rw, r, file)
			return
		}
		var from int64
		_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from) // else it is the whole file
		http.ServeFile(&half{ResponseWriter: rw, left: max(size(t, file)/2-from, 0), wait: func() {
			select {
			case <-end:
			case <-r.Context().Done():
			}
		}}, r, file)
	}))
	t.Cleanup(func() {
		close(end)
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// half is a response that waits after some bytes.
type half struct {
	http.ResponseWriter
	left int64
	wait func()
}

func (h *half) Write(b []byte) (int, error) {
	if int64(len(b)) <= h.left {
		h.left -= int64(len(b))
		return h.ResponseWriter.Write(b)
	}
	_ = http.NewResponseController(h.ResponseWriter).Flush() // what was sent arrives; the rest never does
	h.wait()
	return 0, http.ErrAbortHandler
}

// A host that stays at a percentage is online all the time.
func TestHostThatStaysAtAPercentageHoldsARolloutNoLongerThanTheBound(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	h := w.Hosts[0]
	w.Publish("1.1.0", w.Programs.Agent)
	archive, err := os.ReadFile(w.Archives["1.1.0"])
	check(t, err)
	plan := w.plan("1.1.0", fmt.Sprintf(`
select: {all: true}
source_uri: %s
artifacts: [{checksum: "sha256:%x"}]
strategy: {kind: all_at_once}
health: {stale_after: 30s}
`, stallingSource(t, filepath.Dir(w.Archives["1.1.0"])), sha256.Sum256(archive)))
	begun := time.Now()
	if code, said := w.command("rollouts", "create", "--file", plan, "--start", "--yes"); code != 0 {
		t.Fatalf("it ended with %d:\n%s", code, said)
	}
	w.waitPhase(h, agentapi.UpgradeDownloading)
	id := w.newestRollout().ID
	const bound = 3 * 30 * time.Second
	for w.rollout(id).State == fleet.RolloutRunning && time.Since(begun) < bound+harness.WaitLimit {
		time.Sleep(time.Second)
	}
	r := w.rollout(id)
	if r.State == fleet.RolloutRunning || r.Counts.Failed != 1 || time.Since(begun) < bound {
		t.Errorf("after %s it is %s with %+v", time.Since(begun).Round(time.Second), r.State, r.Counts)
	}
	if a := w.Wait(h, "is there", func(adminapi.Agent) bool { return true }); a.Status == fleet.StatusOffline {
		t.Error("the host is offline, so the test shows nothing")
	}
	if _, why := w.command("agents", "why", h.ID); !strings.Contains(why, "no progress") {
		t.Errorf("why says nothing of it:\n%s", why)
	}
	attention, err := harness.Get[adminapi.Attention](t.Context(), w.Server, "/api/v1/attention")
	check(t, err)
	if !slices.ContainsFunc(attention.Items, func(i adminapi.AttentionItem) bool { return strings.Contains(i.Text, "no progress") }) {
		t.Errorf("attention has %+v", attention.Items)
	}
}
