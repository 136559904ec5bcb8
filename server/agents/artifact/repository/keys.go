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

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// onlineKey is the file of the key that new roots are to name. To replace the key,
	// an operator renames the file and restarts the server. The server then holds both
	// keys until the publishers have named the new one, after which the old file can be
	// deleted.
	onlineKey = "online.key"
	keySuffix = ".key"
	opKeys    = "online keys"
)

// onlineKeySetting is the setting that records that the installation has an online key.
// Its value is the public half of the first one.
const onlineKeySetting = "online-key"

func (s *Service) openKeys(ctx context.Context) error {
	entries, err := s.disk.ReadDir(opKeys, s.dir)
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
		k, err := s.readKey(filepath.Join(s.dir, e.Name()))
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
	// The folder exists without the key, so somebody removed it to get another.
	k, err := s.makeKey()
	s.keys = append(tuf.Online{k}, s.keys...)
	return err
}

// firstKey handles a server without a folder. It generates a key if the installation
// has none. Otherwise this server should have been given a copy of the key: no root
// would name a key of its own, which would go unnoticed until the other servers are
// gone.
func (s *Service) firstKey(ctx context.Context) error {
	registered, err := s.settings.Get(ctx, onlineKeySetting)
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
		if registered, err = s.settings.GetOrPut(ctx, onlineKeySetting, own); err != nil {
			return err
		}
		if bytes.Equal(registered, own) {
			s.keys = tuf.Online{k}
			return nil
		}
		// Another server started for the first time at the same moment.
		if err := s.disk.RemoveAll(opKeys, s.dir); err != nil {
			return err
		}
	}
	s.keyless = "this server has no online key, and cannot sign timestamp.json when the servers that have it are away: stop it, copy the folder trust out of the data folder of one of them to " + s.dir +
		", and start it again; if the key is lost everywhere, make the folder, empty, and the server makes another"
	s.log.Warn("the online key is missing", "what", s.keyless)
	return nil
}

func (s *Service) readKey(path string) (tuf.PrivateKey, error) {
	data, err := s.disk.ReadFile(opKeys, path)
	if err != nil {
		return tuf.PrivateKey{}, err
	}
	k, err := tuf.DecryptPrivateKey("", data)
	if err != nil {
		return k, fmt.Errorf("%s: %w: restore it from a backup, or remove it: the server then makes another, which the publishers must name in their next root", path, err)
	}
	return k, nil
}

func (s *Service) makeKey() (tuf.PrivateKey, error) {
	k, err := tuf.GenerateKey(rand.Reader, "server")
	if err != nil {
		return k, err
	}
	if err := s.disk.MkdirAll(opKeys, s.dir, 0o700); err != nil {
		return k, err
	}
	return k, disk.WriteFile(s.disk, opKeys, filepath.Join(s.dir, onlineKey), tuf.UnsafePlainPrivateKey(k), 0o600)
}
