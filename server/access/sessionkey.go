package access

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// sessionKeyFile is the file of the key that signs sessions. The key is not in the
	// store: whoever reads the store's backups must not be able to sign. The name has no
	// suffix .key, as the online keys in the same folder have.
	sessionKeyFile = "session-key"
	opSessionKey   = "session key"
	// digestSetting is the setting with the digest of the installation's session key. A
	// server whose key has another digest opens no sessions, which no other server would
	// accept.
	digestSetting = "session-key-digest"
	// storedKeySetting is where earlier versions kept the key itself.
	storedKeySetting = "session-key"
)

// SessionKey signs sessions. All servers of an installation have the same.
type SessionKey struct {
	key []byte
	// problem says why this server has no key, and what to do. It is empty if there is one.
	problem string
}

// OpenSessionKey reads the session key in dir, the folder of the online key. It makes the
// first key of the installation, and another one in place of an empty file. A server
// without the installation's key starts all the same, since agents and admin keys do not
// need it.
func OpenSessionKey(ctx context.Context, d disk.Disk, dir string, settings store.Settings, log *slog.Logger) (SessionKey, error) {
	if err := forgetStoredKey(ctx, settings); err != nil {
		return SessionKey{}, err
	}
	registered, err := settings.Get(ctx, digestSetting)
	if err != nil && fleet.KindOf(err) != fleet.NotFound {
		return SessionKey{}, err
	}
	path := filepath.Join(dir, sessionKeyFile)
	text, err := d.ReadFile(opSessionKey, path)
	text = bytes.TrimSpace(text)
	switch {
	case errors.Is(err, fs.ErrNotExist) && registered == nil:
		// The folder is not made here: its absence tells the next start that this server
		// should have been given a copy of it.
		if _, err := d.Lstat(opSessionKey, dir); err == nil {
			if text, err = writeSessionKey(d, path); err != nil {
				return SessionKey{}, err
			}
		}
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return SessionKey{}, err
	case len(text) == 0:
		if text, err = writeSessionKey(d, path); err != nil {
			return SessionKey{}, err
		}
		if err := settings.Delete(ctx, digestSetting); err != nil {
			return SessionKey{}, err
		}
		registered = nil
	}
	if key, err := base64.StdEncoding.DecodeString(string(text)); err == nil && len(key) == sha256.Size {
		own := digestOf(key)
		if registered == nil {
			if registered, err = settings.GetOrPut(ctx, digestSetting, own); err != nil {
				return SessionKey{}, err
			}
		}
		if bytes.Equal(registered, own) {
			return SessionKey{key: key}, nil
		}
	}
	k := SessionKey{problem: "this server does not have the key that signs the installation's sessions, so nobody can log in to it: stop it, copy " + sessionKeyFile +
		" out of the folder trust of a server that people can log in to, as " + path + ", and start it again; if the key is lost everywhere, make that file, empty, and the server makes another"}
	log.Warn("the session key is missing", "what", k.problem)
	return k, nil
}

// forgetStoredKey deletes the key that earlier versions kept in the store. It reads
// first, so that a server on a full disk starts.
func forgetStoredKey(ctx context.Context, settings store.Settings) error {
	_, err := settings.Get(ctx, storedKeySetting)
	switch {
	case err == nil:
		return settings.Delete(ctx, storedKeySetting)
	case fleet.KindOf(err) == fleet.NotFound:
		return nil
	}
	return err
}

func writeSessionKey(d disk.Disk, path string) ([]byte, error) {
	key := make([]byte, sha256.Size)
	rand.Read(key) // never fails, by its documentation
	text := []byte(base64.StdEncoding.EncodeToString(key))
	return text, disk.WriteFile(d, opSessionKey, path, append(bytes.Clone(text), '\n'), 0o600)
}

// digestOf returns a digest that identifies the key and says nothing about it.
func digestOf(key []byte) []byte {
	sum := sha256.Sum256(key)
	return []byte(hex.EncodeToString(sum[:]))
}

func (k SessionKey) sign(body string) string {
	mac := hmac.New(sha256.New, k.key)
	mac.Write([]byte(body))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// usable returns an error if this server has no key.
func (k SessionKey) usable() error {
	if k.problem == "" && len(k.key) > 0 {
		return nil
	}
	return fleet.Errorf(fleet.Unavailable, "%s", k.problem)
}
