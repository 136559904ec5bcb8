package primitive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// acquireArtifact brings the version to the host: it downloads the package, unpacks it beside
// the others, and has the runtime fetch what it needs besides. Only what the publishers have
// signed is unpacked. A version that the host has kept is used as it is.
func (c *Change) acquireArtifact() steps.Step {
	return steps.Step{
		Name: AcquireArtifact, Timeout: acquireTimeout, Input: func() string { return c.Journal.Desired.ID },
		Done: c.acquired, Do: c.doAcquire, Undo: c.undoAcquire,
	}
}

func (c *Change) acquired(ctx context.Context) (bool, error) {
	if c.Journal.To.Home == "" {
		return false, nil
	}
	to, err := c.to()
	if err != nil {
		return false, nil //nolint:nilerr // it is fetched again
	}
	if _, err := install.CheckIntact(ctx, c.Disk, c.Dir, c.Journal.To.Home); err != nil {
		return false, nil //nolint:nilerr // likewise
	}
	return c.Adapter.Acquired(ctx, to)
}

func (c *Change) doAcquire(ctx context.Context) error {
	j := c.Journal
	if j.Desired.Rollback {
		return c.switchTo(ctx, j.Desired.Version)
	}
	expect, err := c.Packages.Expect(ctx, c.archive(), j.Desired.SourceURI)
	if err != nil {
		return err
	}
	if err := c.Allow(j.Desired.Version, expect); err != nil {
		return err
	}
	if pinned, ok := strings.CutPrefix(j.Desired.Checksum, "sha512:"); ok && pinned != expect.SHA512 {
		return fmt.Errorf("%s: its publishers have signed sha512:%s, and %s was asked for", c.archive(), expect.SHA512, j.Desired.Checksum)
	}
	if i := slices.IndexFunc(c.OnHost, func(k handoff.Version) bool { return k.Archive != "" && k.Archive == expect.Archive }); i >= 0 {
		if _, err := install.CheckIntact(ctx, c.Disk, c.Dir, c.OnHost[i].Home); err == nil {
			return c.reuse(ctx, c.OnHost[i])
		}
	}
	if err := c.fetch(ctx, expect); err != nil {
		return err
	}
	return c.acquireRest(ctx)
}

// switchTo takes the newest version of that name on the host. Its publishers are not asked, but
// for what this host knows of them.
func (c *Change) switchTo(ctx context.Context, version string) error {
	for _, v := range slices.Backward(c.OnHost) {
		if v.FullVersion() != version {
			continue
		}
		floor := c.Packages.Floor(ctx, c.Journal.Desired.Component)
		if err := c.Allow(version, &trust.Expectation{Archive: v.Archive, Floor: floor}); err != nil {
			return err
		}
		return c.reuse(ctx, v)
	}
	return fmt.Errorf("version %s of %s is neither kept nor staged on this host: upgrade to it instead", version, c.Journal.Desired.Component)
}

// DiscardDownload removes what was downloaded.
func (c *Change) DiscardDownload() error {
	return download.Discard(c.Disk, c.downloads(), c.archive())
}

// reuse takes a version that is on the host.
func (c *Change) reuse(ctx context.Context, on handoff.Version) error {
	p, err := install.CheckIntact(ctx, c.Disk, c.Dir, on.Home)
	if err != nil {
		return err
	}
	if err := c.checkPackage(p); err != nil {
		return err
	}
	if err := c.take(installed(p, on.Home, on.Archive), true); err != nil {
		return err
	}
	return c.acquireRest(ctx)
}

// acquireRest has the runtime fetch what it needs.
func (c *Change) acquireRest(ctx context.Context) error {
	to, err := c.to()
	if err != nil {
		return err
	}
	return c.Adapter.Acquire(ctx, to, func(percent float64) {
		c.Report(agentapi.UpgradeMetadata{DownloadPercent: percent})
	})
}

func (c *Change) fetch(ctx context.Context, expect *trust.Expectation) error {
	if err := c.Disk.MkdirAll(AcquireArtifact, c.downloads(), 0o700); err != nil {
		return err
	}
	err := c.Packages.Fetch(ctx, c.downloads(), c.archive(), c.Journal.Desired.SourceURI, download.Want{Size: expect.Size, SHA512: expect.SHA512}, func(p download.Progress) {
		m := agentapi.UpgradeMetadata{DownloadPercent: p.Percent, DownloadRate: agentapi.Rate(p.BytesPerSecond), RetryErrorMsg: p.Retry}
		if !p.RetryAt.IsZero() {
			m.RetryUntil = &p.RetryAt
		}
		c.Report(m)
	})
	if err != nil {
		return err
	}
	archive, err := install.Open(ctx, c.Disk, filepath.Join(c.downloads(), c.archive()), func(r io.Reader) error {
		_, err := expect.Verify(r)
		return err
	})
	if err != nil {
		return err
	}
	err = c.unpack(ctx, archive, expect)
	return errors.Join(err, archive.Close())
}

func (c *Change) unpack(ctx context.Context, archive *install.Archive, expect *trust.Expectation) error {
	p := archive.Manifest.Package
	if err := c.checkPackage(p); err != nil {
		return err
	}
	to := installed(p, p.Home(), expect.Archive)
	there, err := install.CheckIntact(ctx, c.Disk, c.Dir, to.Home)
	switch {
	case err == nil && there.Identity() == to.Identity:
		return c.take(to, true)
	case errors.Is(err, install.ErrDamagedHome):
		if err := disk.RemoveHome(c.Disk, c.Dir, to.Home); err != nil {
			return err
		}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	// Before the home is there, so that undoing removes it.
	if err := c.take(to, false); err != nil {
		return err
	}
	_, err = archive.Unpack(ctx, c.Dir)
	return err
}

func installed(p manifest.Package, home, archive string) Installed {
	image, _ := p.Component.Settings["image"].(string)
	return Installed{Identity: p.Identity(), Home: home, Archive: archive, Image: image}
}

// take records the version. One that is installed already stays as it is, also at boots, since what
// the runtime knows of it is not made again.
func (c *Change) take(to Installed, reused bool) error {
	to.WithheldAtBoot = c.Journal.Desired.WithheldAtBoot
	if from := c.Journal.From; from != nil && from.Home == to.Home {
		to.WithheldAtBoot = from.WithheldAtBoot
	}
	c.Journal.To, c.Journal.Reused = to, reused
	return c.Save()
}

// checkPackage compares what a signed package says with what was asked for.
func (c *Change) checkPackage(p manifest.Package) error {
	o := c.Journal.Desired
	if err := p.Fits(c.GOOS, c.GOARCH); err != nil {
		return err
	}
	switch {
	case p.Component == nil:
		return fmt.Errorf("%s is the package of an agent, not of component %s", c.archive(), o.Component)
	case p.Component.Name != o.Component:
		return fmt.Errorf("%s is the package of component %s, %s was asked for", c.archive(), p.Component.Name, o.Component)
	case p.FullVersion() != o.Version:
		return fmt.Errorf("package holds version %s, %s was asked for", p.FullVersion(), o.Version)
	case p.Component.Runtime != o.Runtime:
		return fmt.Errorf("the package of %s %s runs with %s, and the policy says %s: correct runtime in the policy", o.Component, o.Version, p.Component.Runtime, o.Runtime)
	}
	image, _ := p.Component.Settings["image"].(string)
	if o.Image != "" && o.Image != image {
		return fmt.Errorf("image: the publishers of %s %s have signed %q, and %q was asked for", o.Component, o.Version, image, o.Image)
	}
	if digest, ok := strings.CutPrefix(o.Checksum, "sha256:"); ok && !strings.HasSuffix(image, "@sha256:"+digest) {
		return fmt.Errorf("checksum: the publishers of %s %s have signed the image %q, and %s was asked for", o.Component, o.Version, image, o.Checksum)
	}
	return nil
}

// undoAcquire removes what was not there before. What cannot be removed stays: the version that
// runs does not need it, and package component removes it later.
func (c *Change) undoAcquire(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, discardTimeout)
	defer cancel()
	if err := c.removeAcquired(ctx); err != nil {
		c.Log.Warn("what was fetched is not removed yet", "component", c.Journal.Desired.Component, "version", c.Journal.Desired.Version, "error", err)
	}
	return nil
}

func (c *Change) removeAcquired(ctx context.Context) error {
	j := c.Journal
	if !j.KeepDownload {
		if err := c.DiscardDownload(); err != nil {
			return err
		}
	}
	if j.To.Home == "" || j.Reused || j.configOnly() {
		return nil
	}
	to, err := c.to()
	switch {
	case err == nil:
		if err := c.Adapter.Discard(ctx, to); err != nil {
			return err
		}
	case !missing(err) && !errors.Is(err, install.ErrDamagedHome):
		return err
	}
	staging := layout.Path(c.Dir, layout.Staging(j.To.Home))
	return errors.Join(c.Disk.RemoveAll(AcquireArtifact, staging), disk.RemoveHome(c.Disk, c.Dir, j.To.Home))
}
