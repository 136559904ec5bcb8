package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/testing/harness"
	"github.com/muster-fleet/muster/testing/require"
)

// A real file system that is too small for a second version.
func TestUpgradeWithoutDiskSpaceIsPostponedAndLeavesNothing(t *testing.T) {
	require.Root(t)
	w := newWorld(t, harness.HostOptions{})
	top := filepath.Join(w.Dir, "small")
	check(t, os.MkdirAll(top, 0o755))
	// The file system has room for the first version, the copy of its archive that the
	// installer makes and removes, and a little more.
	need := size(t, w.Programs.Agent) + size(t, w.Programs.Watcher) + size(t, w.archives["1.0.0"]) + 3<<20
	check(t, syscall.Mount("tmpfs", top, "tmpfs", 0, fmt.Sprintf("size=%d", need)))
	t.Cleanup(func() {
		if err := syscall.Unmount(top, 0); err != nil {
			t.Error(err)
		}
	})
	h, err := w.Install(t.Context(), w.server, w.publisher, w.archives["1.0.0"], "small", harness.HostOptions{})
	check(t, err)
	t.Cleanup(func() { check(t, h.Stop()) }) // before the unmount
	check(t, h.Start())
	w.hosts = append(w.hosts, h)
	w.identify()
	before := tree(t, h)

	w.publish("1.1.0", w.Programs.Agent)
	// The server knows what the host has reported, and names it before anything is ordered.
	order := []string{"agents", "upgrade", "--version", "1.1.0", h.ID}
	w.wait(h, "has reported its free space", func(a adminapi.Agent) bool { return strings.Contains(fmt.Sprint(a.LocalMetadata), "free_bytes") })
	if code, said := w.command(order...); code == 0 || !strings.Contains(said, "of free disk space for version 1.1.0") || !strings.Contains(said, "--force") {
		t.Errorf("the order is answered %d: %s", code, said)
	}
	// With --force the host decides. The version may fit later, so it postpones the upgrade
	// with the reason, before anything is downloaded.
	_, err = w.server.CLI(t.Context(), append(order, "--force")...)
	check(t, err)
	w.wait(h, "has put the upgrade off", func(a adminapi.Agent) bool {
		return a.UpgradeDetails != nil && a.UpgradeDetails.State == adminapi.UpgradeScheduled &&
			a.UpgradeDetails.Metadata.RetryErrorMsg != nil && strings.Contains(*a.UpgradeDetails.Metadata.RetryErrorMsg, "not enough disk space")
	})
	w.onDisk(h, "1.0.0")
	if after := tree(t, h); !slices.Equal(before, after) {
		t.Errorf("the host has changed:\n before %v\n after  %v", before, after)
	}
}
