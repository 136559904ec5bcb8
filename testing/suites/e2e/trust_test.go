package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

// refused waits for the end of an upgrade that a host does not begin.
func (w *world) refused(h *harness.Host, word string) {
	w.Helper()
	action := newest(w, w.Server)
	a := w.Wait(h, "has refused", func(a adminapi.Agent) bool {
		return a.UpgradeStatus != nil && *a.UpgradeStatus == fleet.UpgradeFailed && a.UpgradeDetails.ActionId == action
	})
	if text := *a.UpgradeDetails.Metadata.ErrorMsg; !strings.Contains(text, word) {
		w.Errorf("%s refused with %q, want a word about %q", h.Name, text, word)
	}
}

func TestHostWithAPinnedRootTrustsOnlyItsPublishers(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	key := w.Publisher.TargetsKey()
	h := w.Hosts[0]

	w.Publish("1.1.0", w.Programs.Agent)
	w.Upgrade("1.1.0", h)
	w.upgraded(h, "1.1.0")

	// A package that nobody has signed, which the server would serve.
	archive, err := w.Publisher.Package(t.Context(), "1.2.0", w.Programs.Agent)
	check(t, err)
	_, err = w.Server.CLI(t.Context(), "package", "push", archive)
	check(t, err)
	_, err = w.Server.CLI(t.Context(), "agents", "upgrade", "--force", "--version", "1.2.0", h.ID)
	check(t, err)
	w.refused(h, "muster-agent-1.2.0")

	// A version that the publishers have removed is not installed, and the server cannot roll
	// back to it; only the host itself can.
	_, err = w.Server.CLI(t.Context(), "package", "floor", "1.1.0", "--targets-key", key)
	check(t, err)
	_, err = w.Server.CLI(t.Context(), "agents", "upgrade", "--force", "--version", "1.0.0", h.ID)
	check(t, err)
	w.refused(h, "below 1.1.0")
	_, err = w.Server.CLI(t.Context(), "agents", "rollback", h.ID)
	check(t, err)
	w.refused(h, "below 1.1.0")
	out, err := h.CLI(t.Context(), "rollback")
	if err != nil {
		t.Fatalf("muster-agent rollback: %v\n%s", err, out)
	}
	w.onDisk(h, "1.0.0")

	// 1.1.0 was committed here, so a lower version needs the publishers' permission.
	_, err = w.Server.CLI(t.Context(), "package", "floor", "none", "--targets-key", key)
	check(t, err)
	w.Publish("1.0.5", w.Programs.Agent)
	w.Upgrade("1.0.5", h)
	w.refused(h, "is older than 1.1.0")
	_, err = w.Server.CLI(t.Context(), "package", "allow-downgrade", "1.0.5", "--targets-key", key)
	check(t, err)
	w.Upgrade("1.0.5", h)
	w.upgraded(h, "1.0.5")
}

// A mirror with wrong content is skipped, and the next source is used.
func TestMirrorWithWrongContentIsSkipped(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	h := w.Hosts[0]
	w.Publish("1.1.0", w.Programs.Agent)

	data, err := os.ReadFile(w.Archives["1.1.0"])
	check(t, err)
	data[len(data)/2] ^= 1
	asked := make(chan struct{}, 100)
	mirror := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			asked <- struct{}{}
		}
		_, _ = rw.Write(data) // the agent may have disconnected
	}))
	defer mirror.Close()
	_, err = w.Server.CLI(t.Context(), "agents", "upgrade", "--version", "1.1.0", "--source-uri", mirror.URL, h.ID)
	check(t, err)
	w.upgraded(h, "1.1.0")
	if len(asked) == 0 {
		t.Error("the mirror was never asked")
	}
}
