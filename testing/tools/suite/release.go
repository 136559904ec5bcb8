package suite

import (
	"context"
	"io"
	"path/filepath"

	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// releaseDir is a module of its own, so that what builds packages is no dependency of the product.
func releaseDir(root string) string { return filepath.Join(root, "packaging", "release") }

// Release makes what is published of a version. The flags are those of packaging/release.
func Release(ctx context.Context, root string, out io.Writer, flags ...string) error {
	if err := toolchain.BuildUI(ctx, root, out); err != nil {
		return err
	}
	args := append([]string{"go", "run", "-tags=" + toolchain.Tags, "."}, flags...)
	return toolchain.RunGroup(ctx, out, releaseDir(root), nil, args...)
}

// ReleaseTest installs, upgrades and removes the packages of a release in real systems, runs what
// the documentation says, and runs the agent where there is no systemd.
func ReleaseTest(ctx context.Context, root string, out io.Writer) error {
	if err := toolchain.BuildUI(ctx, root, out); err != nil {
		return err
	}
	// Not from the cache, which does not notice that the programs have changed.
	if err := toolchain.RunGroup(ctx, out, releaseDir(root), nil, "go", "test", "-count=1", "-v", "-tags="+toolchain.Tags, "-timeout="+goTimeout, "./..."); err != nil {
		return err
	}
	tags := toolchain.Tags + "," + toolchain.ReleaseTag
	return toolchain.RunGroup(ctx, out, root, nil, "go", "test", "-count=1", "-v", "-tags="+tags, "-timeout="+goTimeout, "./testing/suites/elsewhere")
}

// testRelease makes a release and checks it, without installing it.
func testRelease(ctx context.Context, root string, out io.Writer) error {
	dir := releaseDir(root)
	if err := toolchain.RunGroup(ctx, out, dir, nil, "go", "vet", "-tags="+toolchain.Tags, "./..."); err != nil {
		return err
	}
	return toolchain.RunGroup(ctx, out, dir, nil, "go", "test", "-count=1", "-tags="+toolchain.Tags, "-timeout="+goTimeout, ".")
}
