package e2e

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

// The newer of the two watchers that understand the marker watches, in both directions.
func TestNewestWatcherThatUnderstandsTheMarkerWatches(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	h := w.Hosts[0]

	// The package's watcher is older: the host's own watches.
	w.Add("1.1.0", w.packageWith("1.1.0", w.Programs.OldWatcher))
	w.Upgrade("1.1.0", h)
	w.upgraded(h, "1.1.0")
	watchedBy(t, h, "1.0.0")
	log, err := os.ReadFile(layout.Path(h.Top, layout.WatcherLogFile))
	if err != nil || !strings.Contains(string(log), "result=committed version=1.1.0-") {
		t.Errorf("the watcher did not judge 1.1.0: %v\n%s", err, log)
	}

	// The next package's watcher is current: it watches.
	w.Publish("1.2.0", w.Programs.Agent)
	w.Upgrade("1.2.0", h)
	w.upgraded(h, "1.2.0")
	watchedBy(t, h, "1.2.0")
}

func TestHostWithAnOldWatcherUsesTheNewOne(t *testing.T) {
	w := newWorld(t, harness.HostOptions{})
	w.Add("0.9.0", w.packageWith("0.9.0", w.Programs.OldWatcher))
	h := w.AddHosts("0.9.0", harness.HostOptions{}, "old")[0]
	watchedBy(t, h, "0.9.0")

	// A version that dies shows that the new watcher decides: the old one would have
	// refused the marker, and there would be no rollback.
	w.Publish("1.1.0", w.Programs.Crasher)
	w.Upgrade("1.1.0", h)
	w.rolledBack(h, "1.1.0", "0.9.0", diesAtStart...)

	w.Publish("1.2.0", w.Programs.Agent)
	w.Upgrade("1.2.0", h)
	w.upgraded(h, "1.2.0")
	watchedBy(t, h, "1.2.0")
}

func TestHostUpgradesToALegacyPackageAndBack(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	h := w.Hosts[0]
	w.Add("1.1.0", w.legacy("1.1.0", "abcdef0123"))
	w.Upgrade("1.1.0", h)
	w.upgradedLegacy(h, "1.1.0", "abcdef")

	w.Publish("1.2.0", w.Programs.Agent)
	w.Upgrade("1.2.0", h)
	w.upgraded(h, "1.2.0")
	// The previous version is kept for a rollback, whatever its home is called.
	if p, err := install.ReadHome(disk.OS{}, h.Top, layout.Home("abcdef")); err != nil || p.Version != "1.1.0" {
		t.Errorf("the home of 1.1.0 holds %q, %v", p.Version, err)
	}
}

func TestHostInstalledFromALegacyPackageUpgrades(t *testing.T) {
	w := newWorld(t, harness.HostOptions{})
	w.Add("0.9.0", w.legacy("0.9.0", "abcdef0123"))
	h := w.AddHosts("0.9.0", harness.HostOptions{}, "old")[0]
	w.Wait(h, "runs 0.9.0", func(a adminapi.Agent) bool { return a.Agent.Version == "0.9.0" })

	w.Publish("1.1.0", w.Programs.Crasher)
	w.Upgrade("1.1.0", h)
	a := w.Wait(h, "is back at 0.9.0", func(a adminapi.Agent) bool {
		return a.Agent.Version == "0.9.0" && a.UpgradeStatus != nil && *a.UpgradeStatus == fleet.UpgradeRolledBack && reasonCode(a) != ""
	})
	if got := reasonCode(a); !slices.Contains(diesAtStart, got) {
		t.Errorf("it was rolled back for %q", got)
	}

	w.Publish("1.2.0", w.Programs.Agent)
	w.Upgrade("1.2.0", h)
	w.upgraded(h, "1.2.0")
}

// Two packages are the same if version, snapshot and hash are. For a snapshot, of which
// there are many builds, the hash is only in the package itself, so the host reads it.
func TestRunningPackageIsRefusedInEitherGeneration(t *testing.T) {
	const version, hash = "1.1.0-SNAPSHOT", "abcdef0123"
	generations := map[string]func(*world) string{
		"manifest": func(w *world) string { return w.packageOf(version, hash) },
		"legacy":   func(w *world) string { return w.legacy(version, hash) },
	}
	for published, publish := range generations {
		t.Run(published+" is published", func(t *testing.T) {
			w := newWorld(t, harness.HostOptions{})
			for running, make := range generations {
				w.Add(version, make(w))
				w.AddHosts(version, harness.HostOptions{}, running)
				_, err := w.Server.CLI(t.Context(), "package", "withdraw", filepath.Base(w.Archives[version]), "--targets-key", w.Publisher.TargetsKey())
				check(t, err)
			}
			w.Add(version, publish(w))
			for _, h := range w.Hosts {
				before := tree(t, h)
				out, err := h.CLI(t.Context(), "upgrade", version)
				if err == nil || !strings.Contains(err.Error()+out, version+"-abcdef already runs here") {
					t.Errorf("%s runs: %v\n%s\nwant a refusal because it already runs here", h.Name, err, out)
				}
				if after := tree(t, h); !slices.Equal(before, after) {
					t.Errorf("the host has changed:\n before %v\n after  %v", before, after)
				}
			}
		})
	}
}

func (w *world) packageWith(version, watcher string) string {
	w.Helper()
	archive, err := w.Publisher.PackageOf(w.Context(), version, w.Programs.Agent, watcher)
	check(w, err)
	return archive
}

func (w *world) packageOf(version, hash string) string {
	w.Helper()
	archive, err := w.Publisher.PackageOf(w.Context(), version, w.Programs.Agent, w.Programs.Watcher, "--hash", hash)
	check(w, err)
	return archive
}

// legacy creates a package of the real programs without a manifest.
func (w *world) legacy(version, hash string) string {
	w.Helper()
	p := fakepkg.DescribeLegacy(version)
	p.Hash, p.OS, p.Arch = hash, runtime.GOOS, runtime.GOARCH
	p.VersionedHome = layout.Home(p.Identity().ShortHash())
	archive := filepath.Join(w.Dir, "legacy.tar.gz")
	check(w, w.Cache.Get(archive, func(path string) error {
		made := fakepkg.Write(w, filepath.Dir(path), filepath.Base(path)+".tar.gz", fakepkg.Legacy(w, p, w.Programs.Agent, w.Programs.Watcher))
		return os.Rename(made, path)
	}, "legacy", version, hash))
	named, err := w.Publisher.Add(version, archive)
	check(w, err)
	return named
}

// upgradedLegacy is upgraded for a version whose home is named by its hash alone.
func (w *world) upgradedLegacy(h *harness.Host, version, hash string) {
	w.Helper()
	w.Wait(h, "has been upgraded to "+version, func(a adminapi.Agent) bool {
		return a.Agent.Version == version && a.UpgradeDetails == nil && a.UpgradeStartedAt == nil && a.UpgradedAt != nil
	})
	harness.Eventually(w, h.Name+" has its final state on disk", func() error {
		if _, err := os.Lstat(layout.Path(h.Top, layout.MarkerFile)); err == nil {
			return errStillThere
		}
		return nil
	})
	if runs, err := h.Runs(); err != nil || runs != hash {
		w.Errorf("the pointer leads to %s, %v, want %s", runs, err, hash)
	}
	w.result(h, version, "")
}

// watchedBy checks which version's watcher a host uses.
func watchedBy(t *testing.T, h *harness.Host, version string) {
	t.Helper()
	target, err := os.Readlink(layout.Path(h.Top, layout.WatcherLink))
	check(t, err)
	p, err := install.ReadHome(disk.OS{}, h.Top, filepath.ToSlash(filepath.Dir(target)))
	if err != nil || p.FullVersion() != version {
		t.Errorf("the watcher is the one of %s (%s, %v), want the one of %s", p.FullVersion(), target, err, version)
	}
}
