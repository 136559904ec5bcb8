package tuf

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
)

// Names in a client's folder. The pinned root stays for ever: it is what remains
// when the newest one is damaged.
const (
	pinnedFile = "pinned-root.json"

	opPin       = "trust pin"
	opRoot      = "trust root"
	opTimestamp = "trust timestamp"
	opSnapshot  = "trust snapshot"
	opTargets   = "trust targets"
)

var ops = map[Role]string{RoleRoot: opRoot, RoleTimestamp: opTimestamp, RoleSnapshot: opSnapshot, RoleTargets: opTargets}

// local is a client's folder.
type local struct {
	disk disk.Disk
	dir  string
	log  *slog.Logger
}

func (l local) path(role Role) string { return filepath.Join(l.dir, string(role)+".json") }

func (l local) write(role Role, data []byte) error {
	return disk.WriteFile(l.disk, ops[role], l.path(role), data, 0o600)
}

// read gives nil for a file that is not there or cannot be read: a refresh
// fetches it again.
func (l local) read(role Role) []byte {
	data, err := l.disk.ReadFile(ops[role], l.path(role))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			l.passOver(role, err)
		}
		return nil
	}
	return data
}

func (l local) passOver(role Role, err error) {
	l.log.Warn("a trusted file on this host is damaged or no longer signed by a trusted key, it is fetched anew", "role", string(role), "err", err)
}

// forgetOnline removes snapshot and timestamp.
func (l local) forgetOnline() error {
	for _, role := range []Role{RoleTimestamp, RoleSnapshot} {
		if err := l.disk.Remove(ops[role], l.path(role)); err != nil {
			return err
		}
	}
	return l.disk.SyncDir(opSnapshot, l.dir)
}

// trustedRoot is the root that was reached last, else the pinned one. [Pin] sees
// to it that the former is never the older.
func (l local) trustedRoot() ([]byte, error) {
	if newest := l.read(RoleRoot); newest != nil {
		err := soundRoot(newest)
		if err == nil {
			return newest, nil
		}
		l.passOver(RoleRoot, err)
	}
	path := filepath.Join(l.dir, pinnedFile)
	pinned, err := l.disk.ReadFile(opPin, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotPinned
	}
	if err == nil {
		err = soundRoot(pinned)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrNotPinned, err)
	}
	return pinned, nil
}

// soundRoot checks a root by itself.
func soundRoot(data []byte) error {
	_, err := startChain(data, time.Time{})
	return err
}

// Pin makes root the one that a host trusts, at its enrolment. What was verified
// under another one is forgotten: it may have been another publisher's.
func Pin(d disk.Disk, dir string, root []byte) error {
	if err := soundRoot(root); err != nil {
		return fmt.Errorf("pin: %w", err)
	}
	path := filepath.Join(dir, pinnedFile)
	if have, err := d.ReadFile(opPin, path); err == nil && bytes.Equal(have, root) {
		return nil
	}
	if err := d.MkdirAll(opPin, dir, 0o700); err != nil {
		return err
	}
	if err := d.SyncDir(opPin, filepath.Dir(dir)); err != nil {
		return err
	}
	// Before the pin: a crash in between leaves the old pin, with nothing newer.
	l := local{disk: d, dir: dir}
	for _, role := range roles {
		if err := d.Remove(opPin, l.path(role)); err != nil {
			return err
		}
	}
	if err := d.SyncDir(opPin, dir); err != nil {
		return err
	}
	return disk.WriteFile(d, opPin, path, root, 0o600)
}

// Pinned says whether a root is pinned in dir, so that a host is to believe it
// instead of keys without one.
func Pinned(d disk.Disk, dir string) (bool, error) {
	_, err := d.Lstat(opPin, filepath.Join(dir, pinnedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
