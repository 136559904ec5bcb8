package access

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"log/slog"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/keyfile"
)

// sessionKeyFile is the file of the key that signs sessions.
const sessionKeyFile = "session-key"

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
	f := keyfile.File{Disk: d, Dir: dir, Name: sessionKeyFile, Settings: settings}
	key, err := f.Open(ctx)
	if err != nil {
		return SessionKey{}, err
	}
	if key != nil {
		return SessionKey{key: key}, nil
	}
	k := SessionKey{problem: "this server does not have the key that signs the installation's sessions, so nobody can log in to it: stop it, copy " + sessionKeyFile +
		" out of the folder trust of a server that people can log in to, as " + f.Path() + ", and start it again; if the key is lost everywhere, make that file, empty, and the server makes another"}
	log.Warn("the session key is missing", "what", k.problem)
	return k, nil
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
