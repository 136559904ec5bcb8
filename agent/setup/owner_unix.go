//go:build unix

package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// checkOwners refuses a folder from which root would run what other users put there:
// it and all folders above must belong to root, and be writable for root only. The sticky
// bit of a folder such as /tmp does not help, because others create names there first. flag is
// the one that names the folder.
func checkOwners(flag, folder string) error {
	for dir := filepath.Clean(folder); ; dir = filepath.Dir(dir) {
		fi, err := os.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // install creates it; the root folder exists
		}
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		if err := checkOwner(dir, fi.Mode(), fi.Sys().(*syscall.Stat_t)); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func checkOwner(dir string, mode fs.FileMode, owner *syscall.Stat_t) error {
	const why = "could replace the agent, which root runs"
	writable := mode&0o002 != 0 || (mode&0o020 != 0 && owner.Gid != 0)
	switch {
	case owner.Uid != 0:
		return fmt.Errorf("%s belongs to the user with id %d, who %s: choose another folder, or run `chown root %s`", dir, owner.Uid, why, dir)
	case writable && mode&fs.ModeSticky != 0:
		return fmt.Errorf("%s is shared by all users, who %s: choose another folder", dir, why)
	case writable:
		return fmt.Errorf("users other than root may write to %s, and %s: choose another folder, or run `chmod go-w %s`", dir, why, dir)
	}
	return nil
}

// runsAsRoot reports whether the agent will run as root: it runs as whoever installs it.
func runsAsRoot() bool { return os.Geteuid() == 0 }

// keepPrivate does nothing: files have modes.
func keepPrivate(string) error { return nil }

// leaveHome does nothing: a program that runs can be removed.
func leaveHome(string) error { return nil }
