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
	// imageVersion is part of the image's name. Increase it when the content of the image
	// changes.
	imageVersion = "v2"
	// buildTimeout bounds a build, which fetches and unpacks 60 MB of packages.
	buildTimeout = 8 * time.Minute
	// diskSize is the size of a machine's disk; the image is a sparse file.
	diskSize = "1G"
)

// packages are installed in addition to Debian's smallest system: systemd needs dbus, and people
// who follow the documentation have curl and sudo.
const packages = "systemd,dbus,ca-certificates,curl,sudo"

// ballast is removed from the image to keep it small, since each machine copies it.
var ballast = []string{
	"usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists", "var/cache/debconf",
	// These are of the machine that builds the image; systemd would use its name.
	"etc/hostname", "etc/resolv.conf",
}

// notInTests are units that would start work of their own during a test.
var notInTests = []string{
	"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer",
	"systemd-tmpfiles-clean.timer", "getty.target", "console-getty.service",
}

// Prepare returns the image of which each machine gets a copy. It is in the user's cache
// folder. If it does not exist, Prepare builds it with debootstrap from the package source
// of this machine.
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
	if err := r.bootstrap(ctx, root, "--include="+packages); err != nil {
		return err
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

// Bootstrap makes Debian's smallest system in a folder, from the package source of this machine.
func Bootstrap(ctx context.Context, root string) error {
	r, err := thisRelease()
	if err != nil {
		return err
	}
	return r.bootstrap(ctx, root)
}

func (r release) bootstrap(ctx context.Context, root string, flags ...string) error {
	args := append([]string{"debootstrap", "--variant=minbase"}, flags...)
	if r.keyring != "" {
		args = append(args, "--keyring="+r.keyring)
	}
	if _, err := run(ctx, append(args, r.codename, root, r.mirror)...); err != nil {
		log, _ := os.ReadFile(filepath.Join(root, "debootstrap", "debootstrap.log"))
		return fmt.Errorf("%w (can %s be reached from here?): %s", err, r.mirror, lastLines(string(log)))
	}
	return nil
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
