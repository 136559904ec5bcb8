//go:build linux

package nspawn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

const (
	// imageVersion is part of the image's name: count it up when what goes into
	// the image changes.
	imageVersion = "v1"
	// buildTimeout: the packages are 60 MB and take a minute to fetch and unpack.
	buildTimeout = 8 * time.Minute
	// diskSize is what a machine may fill; the image has holes where it is empty.
	diskSize = "1G"
)

// packages are what a machine has beyond Debian's smallest system.
const packages = "systemd,dbus,ca-certificates"

// ballast is removed from the image, which each machine copies.
var ballast = []string{
	"usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists", "var/cache/debconf",
	// Of the machine that made it; systemd would take the name from there.
	"etc/hostname", "etc/resolv.conf",
}

// notInTests are units that begin work of their own in the middle of a test.
var notInTests = []string{
	"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer",
	"systemd-tmpfiles-clean.timer", "getty.target", "console-getty.service",
}

// Prepare returns the image that machines are copied from, and makes it first if
// this user has none yet: with debootstrap, from where this machine gets its own
// packages. It is kept in the user's cache folder.
func Prepare(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("a folder for the image of test machines: %w", err)
	}
	release, err := thisRelease()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "muster", "nspawn")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	image := filepath.Join(dir, release.codename+"-"+imageVersion+".ext4")
	if _, err := os.Stat(image); err == nil {
		return image, nil
	}
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	lock := flock.New(image + ".lock")
	if _, err := lock.TryLockContext(ctx, time.Second); err != nil {
		return "", fmt.Errorf("wait for another process that makes %s: %w", image, err)
	}
	defer lock.Unlock() //nolint:errcheck // the lock ends with the process
	if _, err := os.Stat(image); err == nil {
		return image, nil
	}
	if err := build(ctx, release, dir, image); err != nil {
		return "", fmt.Errorf("make the image of test machines: %w", err)
	}
	return image, nil
}

func build(ctx context.Context, r release, dir, image string) (err error) {
	tmp, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	root, unfinished := filepath.Join(tmp, "root"), filepath.Join(tmp, "image")
	bootstrap := []string{"debootstrap", "--variant=minbase", "--include=" + packages}
	if r.keyring != "" {
		bootstrap = append(bootstrap, "--keyring="+r.keyring)
	}
	if _, err := run(ctx, append(bootstrap, r.codename, root, r.mirror)...); err != nil {
		log, _ := os.ReadFile(filepath.Join(root, "debootstrap", "debootstrap.log"))
		return fmt.Errorf("%w (can %s be reached from here?): %s", err, r.mirror, lastLines(string(log)))
	}
	for _, b := range ballast {
		if err := os.RemoveAll(filepath.Join(root, b)); err != nil {
			return err
		}
	}
	for _, unit := range notInTests {
		if err := os.Symlink(os.DevNull, filepath.Join(root, "etc/systemd/system", unit)); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"truncate", "--size=" + diskSize, unfinished},
		{"mkfs.ext4", "-q", "-F", "-m", "0", "-d", root, unfinished},
	} {
		if _, err := run(ctx, args...); err != nil {
			return err
		}
	}
	return os.Rename(unfinished, image)
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
