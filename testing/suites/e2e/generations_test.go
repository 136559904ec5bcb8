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
	h := w.hosts[0]

	// The package's watcher is older: the host's own watches.
	w.add("1.1.0", w.packageWith("1.1.0", w.Programs.OldWatcher))
	w.upgrade("1.1.0", h)
	w.upgraded(h, "1.1.0")
	watchedBy(t, h, "1.0.0")
	log, err := os.ReadFile(layout.Path(h.Top, layout.WatcherLogFile))
	if err != nil || !strings.Contains(string(log), "result=committed version=1.1.0-") {
		t.Errorf("the watcher did not judge 1.1.0: %v\n%s", err, log)
	}

	// The next package's watcher is current: it watches.
	w.publish("1.2.0", w.Programs.Agent)
	w.upgrade("1.2.0", h)
	w.upgraded(h, "1.2.0")
	watchedBy(t, h, "1.2.0")
}

func TestHostWithAnOldWatcherUsesTheNewOne(t *testing.T) {
	w := newWorld(t, harness.HostOptions{})
	w.add("0.9.0", w.packageWith("0.9.0", w.Programs.OldWatcher))
	h := w.install("0.9.0", "old")
	watchedBy(t, h, "0.9.0")

	// A version that dies shows that the new watcher decides: the old one would have
	// refused the marker, and there would be no rollback.
	w.publish("1.1.0", w.Programs.Crasher)
	w.upgrade("1.1.0", h)
	w.rolledBack(h, "1.1.0", "0.9.0", diesAtStart...)

	w.publish("1.2.0", w.Programs.Agent)
	w.upgrade("1.2.0", h)
	w.upgraded(h, "1.2.0")
	watchedBy(t, h, "1.2.0")
}

func TestHostUpgradesToALegacyPackageAndBack(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	h := w.hosts[0]
	w.add("1.1.0", w.legacy("1.1.0", "abcdef0123"))
	w.upgrade("1.1.0", h)
	w.upgradedLegacy(h, "1.1.0", "abcdef")

	w.publish("1.2.0", w.Programs.Agent)
	w.upgrade("1.2.0", h)
	w.upgraded(h, "1.2.0")
	// The previous version is kept for a rollback, whatever its home is called.
	if p, err := install.ReadHome(disk.OS{}, h.Top, layout.Home("abcdef")); err != nil || p.Version != "1.1.0" {
		t.Errorf("the home of 1.1.0 holds %q, %v", p.Version, err)
	}
}

func TestHostInstalledFromALegacyPackageUpgrades(t *testing.T) {
	w := newWorld(t, harness.HostOptions{})
	w.add("0.9.0", w.legacy("0.9.0", "abcdef0123"))
	h := w.install("0.9.0", "old")
	w.wait(h, "runs 0.9.0", func(a adminapi.Agent) bool { return a.Agent.Version == "0.9.0" })

	w.publish("1.1.0", w.Programs.Crasher)
	w.upgrade("1.1.0", h)
	a := w.wait(h, "is back at 0.9.0", func(a adminapi.Agent) bool {
		return a.Agent.Version == "0.9.0" && a.UpgradeStatus != nil && *a.UpgradeStatus == fleet.UpgradeRolledBack && reasonCode(a) != ""
	})
	if got := reasonCode(a); !slices.Contains(diesAtStart, got) {
		t.Errorf("it was rolled back for %q", got)
	}

	w.publish("1.2.0", w.Programs.Agent)
	w.upgrade("1.2.0", h)
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
				w.add(version, make(w))
				w.install(version, running)
				_, err := w.server.CLI(t.Context(), "package", "withdraw", filepath.Base(w.archives[version]), "--targets-key", w.publisher.TargetsKey())
				check(t, err)
			}
			w.add(version, publish(w))
			for _, h := range w.hosts {
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

// install installs one more host from an archive of a version.
func (w *world) install(version, name string) *harness.Host {
	w.t.Helper()
	h, err := w.Install(w.t.Context(), w.server, w.publisher, w.archives[version], name, harness.HostOptions{})
	check(w.t, err)
	w.hosts = append(w.hosts, h)
	check(w.t, h.Start())
	w.identify()
	return h
}

// add publishes an existing archive.
func (w *world) add(version, archive string) {
	w.t.Helper()
	w.archives[version] = archive
	check(w.t, w.server.Publish(w.t.Context(), w.publisher, archive))
}

func (w *world) packageWith(version, watcher string) string {
	w.t.Helper()
	archive, err := w.publisher.PackageOf(w.t.Context(), version, w.Programs.Agent, watcher)
	check(w.t, err)
	return archive
}

func (w *world) packageOf(version, hash string) string {
	w.t.Helper()
	archive, err := w.publisher.PackageOf(w.t.Context(), version, w.Programs.Agent, w.Programs.Watcher, "--hash", hash)
	check(w.t, err)
	return archive
}

// legacy creates a package of the real programs without a manifest.
func (w *world) legacy(version, hash string) string {
	w.t.Helper()
	p := fakepkg.DescribeLegacy(version)
	p.Hash, p.OS, p.Arch = hash, runtime.GOOS, runtime.GOARCH
	p.VersionedHome = layout.Home(p.Identity().ShortHash())
	archive := filepath.Join(w.Dir, "legacy.tar.gz")
	check(w.t, w.Cache.Get(archive, func(path string) error {
		made := fakepkg.Write(w.t, filepath.Dir(path), filepath.Base(path)+".tar.gz", fakepkg.Legacy(w.t, p, w.Programs.Agent, w.Programs.Watcher))
		return os.Rename(made, path)
	}, "legacy", version, hash))
	named, err := w.publisher.Add(version, archive)
	check(w.t, err)
	return named
}

// upgradedLegacy is upgraded for a version whose home is named by its hash alone.
func (w *world) upgradedLegacy(h *harness.Host, version, hash string) {
	w.t.Helper()
	w.wait(h, "has been upgraded to "+version, func(a adminapi.Agent) bool {
		return a.Agent.Version == version && a.UpgradeDetails == nil && a.UpgradeStartedAt == nil && a.UpgradedAt != nil
	})
	eventually(w.t, h.Name+" has its final state on disk", func() error {
		if _, err := os.Lstat(layout.Path(h.Top, layout.MarkerFile)); err == nil {
			return errStillThere
		}
		return nil
	})
	if runs, err := h.Runs(); err != nil || runs != hash {
		w.t.Errorf("the pointer leads to %s, %v, want %s", runs, err, hash)
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
