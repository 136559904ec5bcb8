package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// A real file system that is too small for a second version, and then one that takes nothing at all.
func TestUpgradeWithoutDiskSpaceIsPostponedAndLeavesNothing(t *testing.T) {
	require.Root(t)
	w := newWorld(t, harness.HostOptions{})
	top := filepath.Join(w.Dir, "small")
	check(t, os.MkdirAll(top, 0o755))
	// The file system has room for the first version, the copy of its archive that the
	// installer makes and removes, and a little more.
	need := size(t, w.Programs.Agent) + size(t, w.Programs.Watcher) + size(t, w.Archives["1.0.0"]) + 3<<20
	check(t, syscall.Mount("tmpfs", top, "tmpfs", 0, fmt.Sprintf("size=%d", need)))
	t.Cleanup(func() {
		if err := syscall.Unmount(top, 0); err != nil {
			t.Error(err)
		}
	})
	h, err := w.Install(t.Context(), w.Server, w.Publisher, w.Archives["1.0.0"], "small", harness.HostOptions{})
	check(t, err)
	t.Cleanup(func() { check(t, h.Stop()) }) // before the unmount
	check(t, h.Start())
	w.Hosts = append(w.Hosts, h)
	w.Online("", w.Hosts...)
	before := tree(t, h)

	w.Publish("1.1.0", w.Programs.Agent)
	// The server knows what the host has reported, and names it before anything is ordered.
	order := []string{"agents", "upgrade", "--version", "1.1.0", h.ID}
	w.Wait(h, "has reported its free space", func(a adminapi.Agent) bool { return strings.Contains(fmt.Sprint(a.LocalMetadata), "free_bytes") })
	if code, said := w.command(order...); code == 0 || !strings.Contains(said, "of free disk space for version 1.1.0") || !strings.Contains(said, "--force") {
		t.Errorf("the order is answered %d: %s", code, said)
	}
	// With --force the host decides. The version may fit later, so it postpones the upgrade
	// with the reason, before anything is downloaded.
	_, err = w.Server.CLI(t.Context(), append(order, "--force")...)
	check(t, err)
	w.Wait(h, "has put the upgrade off", func(a adminapi.Agent) bool {
		return a.UpgradeDetails != nil && a.UpgradeDetails.State == agentapi.UpgradeScheduled &&
			a.UpgradeDetails.Metadata.RetryErrorMsg != nil && strings.Contains(*a.UpgradeDetails.Metadata.RetryErrorMsg, "not enough disk space")
	})
	w.onDisk(h, "1.0.0")
	if after := tree(t, h); !slices.Equal(before, after) {
		t.Errorf("the host has changed:\n before %v\n after  %v", before, after)
	}
	w.startsUnwritable(h, fmt.Sprintf("size=%d", need))
}

// startsUnwritable starts the agent of a host, whose folder is a tmpfs with an option, while that cannot
// be written. The agent must check in and say so, and answer on its socket once it can write, without another start.
func (w *world) startsUnwritable(h *harness.Host, option string) {
	w.Helper()
	remount := func(flags uintptr, more string) error {
		return syscall.Mount("tmpfs", h.Top, "tmpfs", syscall.MS_REMOUNT|flags, option+more)
	}
	// Its status is that of its upgrade, which is scheduled.
	says := func(a adminapi.Agent, status string) bool {
		return a.LastCheckinStatus != nil && *a.LastCheckinStatus == status
	}
	filler := filepath.Join(h.Top, "filler")
	for _, kind := range []struct {
		name        string
		spoil, mend func() error
	}{
		{"full", func() error {
			err := os.WriteFile(filler, make([]byte, 64<<20), 0o600)
			if !errors.Is(err, syscall.ENOSPC) {
				return fmt.Errorf("fill the disk: %w", err)
			}
			return nil
		}, func() error { return os.Remove(filler) }},
		{"read-only", func() error { return remount(syscall.MS_RDONLY, "") }, func() error { return remount(0, "") }},
		{"without inodes", func() error {
			// Its log is new too.
			if err := os.Remove(layout.Path(h.Top, layout.AgentLogFile)); err != nil {
				return err
			}
			var fs syscall.Statfs_t
			if err := syscall.Statfs(h.Top, &fs); err != nil {
				return err
			}
			return remount(0, fmt.Sprintf(",nr_inodes=%d", fs.Files-fs.Ffree))
		}, func() error { return remount(0, ",nr_inodes=10000") }},
	} {
		check(w, h.Stop())
		check(w, kind.spoil())
		started := time.Now()
		check(w, h.Start())
		w.Wait(h, "is degraded on a disk that is "+kind.name, func(a adminapi.Agent) bool {
			return says(a, "degraded") && a.LastCheckin != nil && a.LastCheckin.After(started) &&
				a.LastCheckinMessage != nil && strings.Contains(*a.LastCheckinMessage, agentapi.Unwritable)
		})
		check(w, kind.mend())
		for deadline := time.Now().Add(harness.WaitLimit); ; time.Sleep(100 * time.Millisecond) {
			// Its exit status is that of a degraded agent until the next check-in.
			said, err := h.CLI(w.Context(), "status")
			if strings.Contains(said, agentapi.Unwritable) || err == nil {
				break
			}
			if time.Now().After(deadline) {
				w.Fatalf("the agent does not answer on its socket: %v: %s", err, said)
			}
		}
	}
}
