package repository

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/trust/tuf"
)

const (
	// onlineKey is the key that new roots are to name. To replace it, it is given
	// another name and the server started again: both are held until the publishers
	// have named the new one, and then the old file may go.
	onlineKey = "online.key"
	keySuffix = ".key"
	opKeys    = "online keys"
)

func (s *Service) openKeys() error {
	entries, err := s.Disk.ReadDir(opKeys, s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	have := false
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), keySuffix) {
			continue
		}
		k, err := s.readKey(filepath.Join(s.Dir, e.Name()))
		if err != nil {
			return err
		}
		if e.Name() == onlineKey {
			have = true
			s.keys = append(tuf.Online{k}, s.keys...)
			continue
		}
		s.keys = append(s.keys, k)
	}
	if have {
		return nil
	}
	k, err := s.makeKey()
	s.keys = append(tuf.Online{k}, s.keys...)
	return err
}

func (s *Service) readKey(path string) (tuf.PrivateKey, error) {
	data, err := s.Disk.ReadFile(opKeys, path)
	if err != nil {
		return tuf.PrivateKey{}, err
	}
	k, err := tuf.DecryptPrivateKey("", data)
	if err != nil {
		return k, fmt.Errorf("%s: %w: restore it from a backup, or take it away: the server then makes another, which the publishers must name in their next root", path, err)
	}
	return k, nil
}

func (s *Service) makeKey() (tuf.PrivateKey, error) {
	k, err := tuf.GenerateKey(rand.Reader, "server")
	if err != nil {
		return k, err
	}
	if err := s.Disk.MkdirAll(opKeys, s.Dir, 0o700); err != nil {
		return k, err
	}
	return k, disk.WriteFile(s.Disk, opKeys, filepath.Join(s.Dir, onlineKey), tuf.UnsafePlainPrivateKey(k), 0o600)
}
