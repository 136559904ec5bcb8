package e2e

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

func TestThreeHostsUpgradeToAGoodVersion(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01", "web-02", "db-01")
	w.Publish("1.1.0", w.Programs.Agent)
	w.Upgrade("1.1.0", w.Hosts...)
	for _, h := range w.Hosts {
		w.upgraded(h, "1.1.0")
		// Phases shorter than one tick of the reporter may be missing; the order never
		// changes.
		order := []string{"UPG_REQUESTED", "UPG_DOWNLOADING", "UPG_EXTRACTING", "UPG_REPLACING", "UPG_RESTARTING", "UPG_WATCHING"}
		phases := w.seen(h)
		if !slices.IsSortedFunc(phases, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) }) || !slices.Contains(phases, "UPG_WATCHING") {
			t.Errorf("%s went through %v", h.Name, phases)
		}
		// The previous version is kept for a rollback.
		homes, err := filepath.Glob(layout.Path(h.Top, layout.Home("1.0.0-*")))
		if err != nil || len(homes) != 1 {
			t.Errorf("homes of 1.0.0 on %s: %v, %v", h.Name, homes, err)
		}
	}
}

func TestVersionThatDiesAtStartIsRolledBackAndNotRetried(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	h := w.Hosts[0]
	w.Publish("1.2.0", w.Programs.Crasher)

	// A key that somebody has added is not in effect yet, and would be at the start of the new version:
	// the host says so, and downloads nothing.
	file := layout.Path(h.Top, layout.ConfigFile)
	settings, err := os.ReadFile(file)
	check(t, err)
	check(t, os.WriteFile(file, append(settings, "\ncolour: red\n"...), 0o600))
	w.Upgrade("1.2.0", h)
	w.Wait(h, "names the file", func(a adminapi.Agent) bool {
		return a.Status == fleet.StatusDegraded && a.LastCheckinMessage != nil && strings.Contains(*a.LastCheckinMessage, "key colour is not known") && reasonCode(a) == agentapi.ReasonSettings
	})
	w.onDisk(h, "1.0.0")
	// With the broken file it starts as well, and with the settings that it had.
	check(t, h.Stop())
	check(t, h.Start())
	w.Wait(h, "still names the file", func(a adminapi.Agent) bool { return a.Status == fleet.StatusDegraded })
	check(t, os.WriteFile(file, settings, 0o600))

	w.Upgrade("1.2.0", h)
	w.rolledBack(h, "1.2.0", "1.0.0", diesAtStart...)
	w.Wait(h, "has the last words of the version", func(a adminapi.Agent) bool {
		return a.UpgradeDetails != nil && a.UpgradeDetails.Metadata.Reason != nil && strings.Contains(*a.UpgradeDetails.Metadata.Reason, "cannot load the module table")
	})

	// Both the server and the host remember the bad version.
	out, err := w.Server.CLI(t.Context(), "agents", "upgrade", "--version", "1.2.0", h.ID)
	if err == nil || !strings.Contains(out+err.Error(), "version 1.2.0 failed on its host before") {
		t.Errorf("the server answers the second try with %v:\n%s", err, out)
	}
	// The agent ends the watch, and accepts upgrades again, after the watcher has reported.
	harness.Eventually(t, "the host refuses the second try", func() error {
		out, err := h.CLI(t.Context(), "upgrade", "1.2.0")
		if err == nil {
			t.Fatalf("the host accepts the second try:\n%s", out)
		}
		if !strings.Contains(out+err.Error(), "version 1.2.0 failed here before") {
			return fmt.Errorf("it answers\n%s\n%w", out, err)
		}
		return nil
	})
	w.onDisk(h, "1.0.0")

	// It still accepts a good one.
	w.Publish("1.2.1", w.Programs.Agent)
	w.Upgrade("1.2.1", h)
	w.upgraded(h, "1.2.1")
}

func TestUnhealthyVersionIsRolledBack(t *testing.T) {
	w := newWorld(t, harness.HostOptions{Grace: 20 * time.Second}, "web-01")
	h := w.Hosts[0]
	w.Publish("1.3.0", w.Programs.Unhealthy)
	w.Upgrade("1.3.0", h)
	harness.Eventually(t, "the host says what has failed", func() error {
		out, _ := exec.CommandContext(t.Context(), w.Programs.Agent, "status", "--top", h.Top).CombinedOutput()
		if !strings.Contains(string(out), "check queue: failed") {
			return fmt.Errorf("its status is\n%s", out)
		}
		return nil
	})
	w.rolledBack(h, "1.3.0", "1.0.0", "agent_failed")
	w.Wait(h, "says why", func(a adminapi.Agent) bool {
		return strings.Contains(*a.UpgradeDetails.Metadata.Reason, "the agent cannot write its queue")
	})
}

// slow makes a download last some seconds.
var slow = harness.HostOptions{DownloadRate: 3 << 20}

func TestServerKilledDuringADownload(t *testing.T) {
	w := newWorld(t, slow, "web-01")
	h := w.Hosts[0]
	w.Publish("1.1.0", w.Programs.Agent)
	w.Upgrade("1.1.0", h)
	w.waitPhase(h, agentapi.UpgradeDownloading)
	part := waitForPart(t, h)
	check(t, w.Server.Kill())
	before := size(t, part)
	check(t, w.Server.Start(t.Context()))
	harness.Eventually(t, "the download goes on where it was", func() error {
		if now := size(t, part); now < before {
			t.Fatalf("it began again: %d bytes, were %d", now, before)
		}
		if _, err := os.Lstat(part); err == nil {
			return errStillThere
		}
		return nil
	})
	w.upgraded(h, "1.1.0")
}

func TestServerKilledDuringTheWatch(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	h := w.Hosts[0]
	w.Publish("1.1.0", w.Programs.Agent)
	w.Upgrade("1.1.0", h)
	w.waitPhase(h, agentapi.UpgradeWatching)
	check(t, w.Server.Kill())
	// The watch ends while the server is down, which must not roll back a good version.
	harness.Eventually(t, "the watcher is done", func() error {
		if _, err := os.Lstat(layout.Path(h.Top, layout.MarkerFile)); err == nil {
			return errStillThere
		}
		return nil
	})
	w.onDisk(h, "1.1.0")
	check(t, w.Server.Start(t.Context()))
	w.upgraded(h, "1.1.0")
}

func TestServerKilledBeforeTheAck(t *testing.T) {
	w := newWorld(t, slow, "web-01")
	h := w.Hosts[0]
	w.Publish("1.1.0", w.Programs.Agent)
	w.Upgrade("1.1.0", h)
	// The server is down from the end of the download on: neither phases nor the
	// acknowledgement arrive.
	w.waitPhase(h, agentapi.UpgradeDownloading)
	part := waitForPart(t, h)
	harness.Eventually(t, "the archive is there", func() error {
		if _, err := os.Lstat(part); err == nil {
			return errStillThere
		}
		return nil
	})
	check(t, w.Server.Kill())
	harness.Eventually(t, "the pointer leads to 1.1.0", func() error {
		runs, err := h.Runs()
		if err == nil && !strings.HasPrefix(runs, "1.1.0-") {
			return errStillThere
		}
		return err
	})
	check(t, w.Server.Start(t.Context()))
	w.upgraded(h, "1.1.0")
}

func TestTamperedPackageIsRefused(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	h := w.Hosts[0]
	archive, err := w.Publisher.Package(t.Context(), "1.1.0", w.Programs.Agent)
	check(t, err)
	_, err = w.Server.CLI(t.Context(), "package", "add", archive, "--targets-key", w.Publisher.TargetsKey())
	check(t, err)
	flip(t, archive)

	t.Run("by the publisher", func(t *testing.T) {
		if err := w.Server.Publish(t.Context(), w.Publisher, archive); err == nil || !strings.Contains(err.Error(), filepath.Base(archive)) {
			t.Errorf("pushing it: %v, want a word about the archive", err)
		}
	})
	t.Run("by the server", func(t *testing.T) {
		if _, err := w.Server.CLI(t.Context(), "package", "push", archive); err == nil || !strings.Contains(err.Error(), filepath.Base(archive)) {
			t.Errorf("pushing it: %v, want a word about the archive", err)
		}
	})
	t.Run("by the agent, from a source of its own", func(t *testing.T) {
		w.refusedFrom(t, h, filepath.Dir(archive), "another content than expected")
	})
}

// refusedFrom upgrades a host to 1.1.0 from a folder served over HTTP, and checks
// that it refuses for a reason with a word in it, and is as before.
func (w *world) refusedFrom(t *testing.T, h *harness.Host, dir, word string) {
	t.Helper()
	mirror := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer mirror.Close()
	before := tree(t, h)
	_, err := w.Server.CLI(t.Context(), "agents", "upgrade", "--version", "1.1.0", "--source-uri", mirror.URL, h.ID)
	check(t, err)
	action := newest(t, w.Server)
	a := w.Wait(h, "has refused", func(a adminapi.Agent) bool {
		return a.UpgradeStatus != nil && *a.UpgradeStatus == fleet.UpgradeFailed && a.UpgradeDetails.ActionId == action
	})
	if text := *a.UpgradeDetails.Metadata.ErrorMsg; !strings.Contains(text, word) {
		t.Errorf("it refused with %q, want a word about %s", text, word)
	}
	w.onDisk(h, "1.0.0")
	w.result(h, "1.1.0", *a.UpgradeDetails.Metadata.ErrorMsg)
	if after := tree(t, h); !slices.Equal(before, after) {
		t.Errorf("the host has changed:\n before %v\n after  %v", before, after)
	}
}

func newest(t testing.TB, s *harness.Server) string {
	t.Helper()
	list, err := harness.Get[adminapi.ActionStatusList](t.Context(), s, "/api/fleet/agents/action_status?perPage=1")
	check(t, err)
	return list.Items[0].ActionId
}

// tree lists the versions and links of a host; state and logs may change.
func tree(t *testing.T, h *harness.Host) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(h.Top, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(h.Top, path)
		if e.IsDir() && e.Name() == "run" {
			return filepath.SkipDir
		}
		if dir := filepath.Dir(rel); dir == "." || strings.HasPrefix(dir, layout.Home("")) {
			names = append(names, rel)
		}
		return nil
	})
	check(t, err)
	return names
}

func flip(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	check(t, err)
	b[len(b)/2] ^= 1
	check(t, os.WriteFile(path, b, 0o644))
}

type stillThere struct{}

func (stillThere) Error() string { return "it is still there" }

var errStillThere = stillThere{}

func waitForPart(t *testing.T, h *harness.Host) string {
	t.Helper()
	var part string
	harness.Eventually(t, "bytes have arrived", func() error {
		parts, err := filepath.Glob(filepath.Join(layout.Path(h.Top, layout.DownloadsDir), "*.part"))
		if err != nil {
			return err
		}
		for _, p := range parts {
			if size(t, p) > 1<<20 {
				part = p
				return nil
			}
		}
		return errStillThere
	})
	return part
}

// size returns the size of a file. A partial download that has just been renamed is
// complete.
func size(t *testing.T, path string) int64 {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		return 1 << 60
	}
	return fi.Size()
}
