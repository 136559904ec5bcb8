// Package keyfile has the keys that all servers of an installation share and that the store
// must not have. They are files in the folder of the online key, so that a reader of the
// store, or of its backups, can neither sign nor decrypt. The store has a digest of each, so
// that a server notices at its start that its key is not the installation's.
package keyfile

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Size is the length of a key, in bytes.
const Size = 32

// File is a key of the installation. The name has no suffix .key, as the online keys in the
// same folder have.
type File struct {
	Disk     disk.Disk
	Dir      string // the folder of the online key
	Name     string
	Settings store.Settings
}

// Path returns the path of the file.
func (f File) Path() string { return filepath.Join(f.Dir, f.Name) }

// digestSetting is the setting with the digest of the installation's key.
func (f File) digestSetting() string { return f.Name + "-digest" }

// Open reads the key. It makes the first key of the installation, and another one in place
// of an empty file. It returns nil if this server does not have the installation's key.
func (f File) Open(ctx context.Context) ([]byte, error) {
	registered, err := f.Settings.Get(ctx, f.digestSetting())
	if err != nil && fleet.KindOf(err) != fleet.NotFound {
		return nil, err
	}
	text, err := f.Disk.ReadFile(f.Name, f.Path())
	text = bytes.TrimSpace(text)
	switch {
	case errors.Is(err, fs.ErrNotExist) && registered == nil:
		// The folder is not made here: its absence tells the next start that this server
		// should have been given a copy of it.
		if _, err := f.Disk.Lstat(f.Name, f.Dir); err == nil {
			if text, err = f.write(); err != nil {
				return nil, err
			}
		}
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case len(text) == 0:
		if text, err = f.write(); err != nil {
			return nil, err
		}
		if err := f.Settings.Delete(ctx, f.digestSetting()); err != nil {
			return nil, err
		}
		registered = nil
	}
	key, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil || len(key) != Size {
		return nil, nil //nolint:nilerr // a damaged key is not the installation's
	}
	own := digestOf(key)
	if registered == nil {
		if registered, err = f.Settings.GetOrPut(ctx, f.digestSetting(), own); err != nil {
			return nil, err
		}
	}
	if !bytes.Equal(registered, own) {
		return nil, nil
	}
	return key, nil
}

func (f File) write() ([]byte, error) {
	key := make([]byte, Size)
	rand.Read(key) // never fails, by its documentation
	text := []byte(base64.StdEncoding.EncodeToString(key))
	return text, disk.WriteFile(f.Disk, f.Name, f.Path(), append(bytes.Clone(text), '\n'), 0o600)
}

// digestOf returns a digest that identifies the key and says nothing about it.
func digestOf(key []byte) []byte {
	sum := sha256.Sum256(key)
	return []byte(hex.EncodeToString(sum[:]))
}
