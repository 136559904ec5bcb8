package repository

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/trust/tuf"
	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// onlineKey is the key that new roots are to name. To replace it, it is given
	// another name and the server started again: both are held until the publishers
	// have named the new one, and then the old file may go.
	onlineKey = "online.key"
	keySuffix = ".key"
	opKeys    = "online keys"
)

// onlineKeySetting is where the store remembers that the installation has an online
// key: the public half of the first.
const onlineKeySetting = "online-key"

func (s *Service) openKeys(ctx context.Context) error {
	entries, err := s.Disk.ReadDir(opKeys, s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return s.firstKey(ctx)
	}
	if err != nil {
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
	// The folder is there, so somebody took the key away to have another.
	k, err := s.makeKey()
	s.keys = append(tuf.Online{k}, s.keys...)
	return err
}

// firstKey is for a server without a folder. It makes a key if the installation has
// none. Else it is a replica that should have been given a copy: a key of its own
// would be one that no root names, and nobody would notice until the others are gone.
func (s *Service) firstKey(ctx context.Context) error {
	registered, err := s.Settings.Get(ctx, onlineKeySetting)
	if err != nil && fleet.KindOf(err) != fleet.NotFound {
		return err
	}
	state, err := s.load(ctx)
	if err != nil {
		return err
	}
	if registered == nil && state.repository.Root() == nil {
		k, err := s.makeKey()
		if err != nil {
			return err
		}
		own := []byte(k.Public().String())
		if registered, err = s.Settings.GetOrPut(ctx, onlineKeySetting, own); err != nil {
			return err
		}
		if bytes.Equal(registered, own) {
			s.keys = tuf.Online{k}
			return nil
		}
		// Another server started for the first time at the same moment.
		if err := s.Disk.RemoveAll(opKeys, s.Dir); err != nil {
			return err
		}
	}
	s.keyless = "this server has no online key, and cannot sign timestamp.json when the servers that have it are away: stop it, copy the folder trust out of the data folder of one of them to " + s.Dir +
		", and start it again; if the key is lost everywhere, make the folder, empty, and the server makes another"
	s.Log.Warn("the online key is missing", "what", s.keyless)
	return nil
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
