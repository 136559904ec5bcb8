//go:build linux

package nspawn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// Init is the init system of a machine.
type Init int

// The init systems.
const (
	Systemd Init = iota
	OpenRC
	SystemV
)

// kind is how machines with an init system are made.
type kind struct {
	// name begins the name of the image, after that of the release.
	name string
	// include are the packages that debootstrap installs in addition to Debian's smallest system.
	// It cannot choose among packages that exclude each other; apt can, for those of install.
	include string
	install []string
	// isUp is a command that succeeds when everything has been started.
	isUp string
}

func (i Init) kind() kind {
	// Nothing reports the end of a boot; the consoles are started last.
	const hasConsoles = `[ "$(cat /proc/1/comm)" = init ] && ls -l /proc/[0-9]*/exe | grep -q getty`
	switch i {
	case OpenRC:
		return kind{name: "-openrc", install: []string{"openrc", "sysvinit-core"}, isUp: hasConsoles}
	case SystemV:
		return kind{name: "-sysv", install: []string{"sysv-rc", "sysvinit-core", "insserv"}, isUp: hasConsoles}
	}
	// systemd needs dbus, and people who follow the documentation have curl and sudo. systemctl
	// exits with an error for every state except running.
	return kind{include: "systemd,dbus,ca-certificates,curl,sudo", isUp: `state=$(systemctl is-system-running); echo $state; [ "$state" = running -o "$state" = degraded ]`}
}

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

// Prepare returns the image of which each machine with an init system gets a copy. It is in the user's cache
// folder. If it does not exist, Prepare builds it with debootstrap from the package source
// of this machine.
func Prepare(ctx context.Context, i Init) (string, error) {
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
	image := filepath.Join(dir, release.codename+i.kind().name+"-"+imageVersion+".ext4")
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
	if err := build(ctx, release, i.kind(), dir, image); err != nil {
		return "", fmt.Errorf("make the image of test machines: %w", err)
	}
	return image, nil
}

func build(ctx context.Context, r release, k kind, dir, image string) (err error) {
	tmp, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	root, unfinished := filepath.Join(tmp, "root"), filepath.Join(tmp, "image")
	if err := r.bootstrap(ctx, root, k); err != nil {
		return err
	}
	for _, b := range ballast {
		if err := os.RemoveAll(filepath.Join(root, b)); err != nil {
			return err
		}
	}
	units := filepath.Join(root, "etc/systemd/system")
	if err := os.MkdirAll(units, 0o755); err != nil {
		return err
	}
	for _, unit := range notInTests {
		if err := os.Symlink(os.DevNull, filepath.Join(units, unit)); err != nil {
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

// bootstrap makes Debian's smallest system in a folder, and adds what a kind needs.
func (r release) bootstrap(ctx context.Context, root string, k kind) error {
	args := []string{"debootstrap", "--variant=minbase"}
	if k.include != "" {
		args = append(args, "--include="+k.include)
	}
	if r.keyring != "" {
		args = append(args, "--keyring="+r.keyring)
	}
	if _, err := run(ctx, append(args, r.codename, root, r.mirror)...); err != nil {
		log, _ := os.ReadFile(filepath.Join(root, "debootstrap", "debootstrap.log"))
		return fmt.Errorf("%w (can %s be reached from here?): %s", err, r.mirror, lastLines(string(log)))
	}
	if len(k.install) == 0 {
		return nil
	}
	apt := []string{"chroot", root, "env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get"}
	if _, err := run(ctx, append(apt, "update")...); err != nil {
		return err
	}
	_, err := run(ctx, slices.Concat(apt, []string{"install", "-y", "--no-install-recommends"}, k.install)...)
	return err
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
