package tuf

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// pinnedFile is never removed: the client falls back to it when the newest root is
// damaged.
const (
	pinnedFile = "pinned-root.json"

	opPin       = "trust pin"
	opRoot      = "trust root"
	opTimestamp = "trust timestamp"
	opSnapshot  = "trust snapshot"
	opTargets   = "trust targets"
)

var ops = map[Role]string{RoleRoot: opRoot, RoleTimestamp: opTimestamp, RoleSnapshot: opSnapshot, RoleTargets: opTargets}

// local is the folder of a client.
type local struct {
	disk disk.Disk
	dir  string
	log  *slog.Logger
}

func (l local) path(role Role) string { return filepath.Join(l.dir, string(role)+".json") }

func (l local) write(role Role, data []byte) error {
	return disk.WriteFile(l.disk, ops[role], l.path(role), data, 0o600)
}

// read returns nil for a file that is missing or cannot be read: a refresh fetches
// it again.
func (l local) read(role Role) []byte {
	data, err := l.disk.ReadFile(ops[role], l.path(role))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			l.logDamaged(role, err)
		}
		return nil
	}
	return data
}

func (l local) logDamaged(role Role, err error) {
	l.log.Warn("a trusted file on this host is damaged or no longer signed by a trusted key, fetching it again", "role", string(role), "err", err)
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

// trustedRoot returns the newest root that was verified, else the pinned one. [Pin]
// ensures that the former is never older than the latter.
func (l local) trustedRoot() ([]byte, error) {
	if newest := l.read(RoleRoot); newest != nil {
		err := verifyRoot(newest)
		if err == nil {
			return newest, nil
		}
		l.logDamaged(RoleRoot, err)
	}
	path := filepath.Join(l.dir, pinnedFile)
	pinned, err := l.disk.ReadFile(opPin, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotPinned
	}
	if err == nil {
		err = verifyRoot(pinned)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrNotPinned, err)
	}
	return pinned, nil
}

// verifyRoot verifies a root on its own.
func verifyRoot(data []byte) error {
	_, err := startChain(data, time.Time{})
	return err
}

// Pin stores root as the one that a host trusts, at its enrolment. It removes files
// that were verified under another root, which may be another publisher's.
func Pin(d disk.Disk, dir string, root []byte) error {
	if err := verifyRoot(root); err != nil {
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
	// The files are removed before the pin is written: a crash in between leaves
	// the old pin, with nothing newer.
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

// Pinned reports whether a root is pinned in dir.
func Pinned(d disk.Disk, dir string) (bool, error) {
	_, err := d.Lstat(opPin, filepath.Join(dir, pinnedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// StoredExpiries returns when root and targets expire, as a host has them. The server may have newer
// ones. It leaves out damaged targets, which a client fetches again, and fails with ErrNotPinned if the
// host has no root.
func StoredExpiries(d disk.Disk, dir string) ([]Expiry, error) {
	l := local{d, dir, slog.New(slog.DiscardHandler)}
	root, err := l.trustedRoot()
	if err != nil {
		return nil, err
	}
	targets := l.read(RoleTargets)
	if _, err := decodeTargets(targets); err != nil {
		targets = nil
	}
	return Repository{Roots: [][]byte{root}, Targets: targets}.OfflineExpiries()
}
